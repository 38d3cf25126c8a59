//! Bytes from other hosts before anybody knows whose they are: openings, answers, confirmations, records, statements.

use muster_channel::{
    Channel, Initiator, Opening, Purpose, Responder, SECRET, Scheme, Statement, UnconfirmedChannel,
};

const KNOWN: [u8; SECRET] = [7; SECRET];

/// Both sides before the second has answered.
fn begin() -> (Initiator, Vec<u8>) {
    Initiator::begin(Scheme::Munge, b"MUNGE:credential:", &KNOWN, b"hello").expect("it begins")
}

fn answer(opening: &[u8]) -> Option<(Vec<u8>, UnconfirmedChannel)> {
    let opening = Opening::decode(opening).ok()??;
    let (responder, said) = Responder::accept(&opening, &KNOWN).ok()?;
    assert_eq!(said, b"hello", "what was not said was believed");
    responder.answer(b"welcome").ok()
}

/// A channel that both sides have.
fn channels() -> (Channel, Channel) {
    let (mut client, opening) = begin();
    let (answer, mut far) = answer(&opening).expect("it is answered");
    let near = client.finish(&answer).expect("it is believed");
    let near = near.expect("it is whole");
    assert_eq!(far.confirm(&near.confirmation), Ok(true));
    (near.channel, far.into_channel())
}

/// Bytes as they are, or what one of the sides sends with these bytes over it: who is between may change anything.
fn changed(bytes: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (at, data) = data.split_at(data.len().min(2));
    let at = at.iter().fold(0, |at, byte| at * 256 + usize::from(*byte));
    let at = at.checked_rem(bytes.len()).unwrap_or(0);
    for (own, other) in bytes.iter_mut().skip(at).zip(data) {
        *own ^= other;
    }
    bytes
}

pub(super) fn run(data: &[u8]) {
    let Some((&stage, data)) = data.split_first() else {
        return;
    };
    match stage % 6 {
        0 => drop(answer(data)),
        1 => {
            let (_, opening) = begin();
            let theirs = changed(&opening, data);
            let answered = answer(&theirs).is_some();
            assert!(
                !answered || theirs == opening,
                "a changed opening was taken"
            );
        }
        2 => {
            let (mut client, opening) = begin();
            let (answer, _) = answer(&opening).expect("it is answered");
            let theirs = changed(&answer, data);
            let finished = client.finish(&theirs);
            let begun = matches!(finished, Ok(Some(_)));
            assert!(!begun || theirs == answer, "a changed answer was taken");
        }
        3 => {
            let (_, opening) = begin();
            let (_, mut far) = answer(&opening).expect("it is answered");
            assert_ne!(far.confirm(data), Ok(true), "anybody confirms");
        }
        4 => records(data),
        _ => {
            if let Ok(statement) = Statement::decode(data) {
                assert_eq!(Statement::decode(&statement.encode()), Ok(statement));
            }
        }
    }
}

/// Records that were changed, or made up, never carry other data than was sent.
fn records(data: &[u8]) {
    let (mut near, mut far) = channels();
    let mut sealed = Vec::new();
    let sent = near.sealer.seal(b"one", &mut sealed);
    sent.and_then(|()| near.sealer.seal(b"two", &mut sealed))
        .and_then(|()| near.sealer.seal_end(&mut sealed))
        .expect("they are sealed");
    let mut plain = Vec::new();
    far.opener.push(&changed(&sealed, data));
    while far.opener.open_next(&mut plain) == Ok(true) {}
    assert!(b"onetwo".starts_with(&plain), "{plain:?} was not sent");
    far.opener.push(data);
    while far.opener.open_next(&mut plain) == Ok(true) {}
    assert!(b"onetwo".starts_with(&plain), "{plain:?} was not sent");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let (_, opening) = begin();
    let statement = Statement {
        cluster: "c".to_owned(),
        purpose: Purpose::Node("n1".to_owned()),
        secret: KNOWN,
    };
    let staged = |stage: u8, bytes: &[u8]| [&[stage], bytes].concat();
    let mut seeds = vec![staged(0, &opening), staged(5, &statement.encode())];
    seeds.extend((1..5).map(|stage| staged(stage, &[0, 9, 1])));
    seeds.push(staged(3, &[0, 25, 1, 2, 3]));
    seeds
}
