//! The socket where tokens of auth/slurm are made for users: each gets tokens of its own, and keeps nobody from them.

use super::finished;
use crate::network::sack_socket;
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::random::Random;
use crate::sys::{ATTACKER, Lingering, NAMELESS, ROOT, User, VICTIM, as_user, raise_descriptors};
use crate::target::{SACK_PID, Target};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Beginning of a request; the name of the cluster follows.
const REQUEST: &[u8] = b"muster sack 1\n";
/// The cluster's name.
const CLUSTER: &[u8] = b"muster";
/// First byte of an answer with a token.
const MADE: u8 = 1;
/// Bytes of the secret before the token.
const SECRET: usize = 32;
/// Time limit for another user's token.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time that connections of the attackers wait to be taken.
const WAIT: Duration = Duration::from_millis(5);
/// Connections of each attacker.
const CONNECTIONS: usize = 1200;
/// Seconds that a token may be good, of a configuration that says nothing of it.
const LIFE_S: u64 = 60;

fn socket(target: &Target, outcome: &mut Outcome) -> Option<PathBuf> {
    if target.pid(SACK_PID).is_none() {
        outcome.skipped.push("sackd does not run".to_owned());
        return None;
    }
    Some(sack_socket(target))
}

/// Answer to a request of a user.
fn ask(socket: &Path, user: User, request: &[u8]) -> Option<Vec<u8>> {
    as_user(user, || {
        let mut peer = Peer::connect_for_messages(socket, ANSWER_MAX).ok()?;
        // Why nothing more is read may have been said.
        let _ = peer.send_raw(request);
        peer.message().ok()
    })
}

fn request() -> Vec<u8> {
    [REQUEST, CLUSTER].concat()
}

/// The claims of an answer's token; none if it has none.
fn claims(answer: &[u8]) -> Option<String> {
    let (&MADE, rest) = answer.split_first()? else {
        return None;
    };
    let token = std::str::from_utf8(rest.get(SECRET..)?).ok()?;
    String::from_utf8(from_base64url(token.split('.').nth(1)?)).ok()
}

fn from_base64url(text: &str) -> Vec<u8> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => break,
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

/// A number of the claims.
fn number(claims: &str, name: &str) -> Option<u64> {
    let rest = claims.split(&format!("\"{name}\":")).nth(1)?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// A user's token names the user and is good for a minute, whatever was asked. `must` says that there has to be one.
fn examine(what: &str, user: User, answer: Option<&[u8]>, must: bool, outcome: &mut Outcome) {
    outcome.sent += 1;
    let Some(claims) = answer.and_then(claims) else {
        outcome.refused += 1;
        if must {
            outcome.finding(format!("{what}: user {} gets no token", user.uid));
        }
        return;
    };
    outcome.accepted += 1;
    let life = || number(&claims, "exp")?.checked_sub(number(&claims, "iat")?);
    let is_own = number(&claims, "uid") == Some(u64::from(user.uid))
        && number(&claims, "gid") == Some(u64::from(user.gid));
    if !is_own || life().is_none_or(|life| life > LIFE_S) {
        outcome.finding(format!("{what}: user {} gets {claims}", user.uid));
    }
}

/// Requests that are cut, changed and too long, and ones that ask for another user or a longer life.
pub(super) fn tokens_of_others(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(socket) = socket(target, &mut outcome) else {
        return outcome;
    };
    for user in [ATTACKER, NAMELESS, VICTIM, ROOT] {
        let answer = ask(&socket, user, &request());
        examine(
            "an ordinary request",
            user,
            answer.as_deref(),
            true,
            &mut outcome,
        );
    }
    let whole = request();
    let mut wrong: Vec<Vec<u8>> = (1..whole.len()).map(|end| whole[..end].to_vec()).collect();
    for place in 0..whole.len() {
        let mut copy = whole.clone();
        copy[place] ^= 1 << random.below(8);
        wrong.push(copy);
    }
    for more in [
        "\0",
        "\n",
        "\nuid=0",
        "\nuser=root",
        "\nttl=99999999",
        "\nlifespan=99999999",
        ",other",
        "\u{202e}",
    ] {
        wrong.push([&whole, more.as_bytes()].concat());
    }
    wrong.extend([
        vec![0; 1],
        vec![0xff; 256],
        vec![b'm'; 100_000],
        whole.repeat(20),
    ]);
    for bytes in wrong {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let what = format!("the request {shown:?} of {} bytes", bytes.len());
        let answer = ask(&socket, ATTACKER, &bytes);
        // The cluster's name may be in capitals.
        let is_right = bytes.eq_ignore_ascii_case(&whole) && bytes.starts_with(REQUEST);
        if !is_right && answer.as_deref().and_then(claims).is_some() {
            outcome.finding(format!("{what}: a token"));
        }
        examine(&what, ATTACKER, answer.as_deref(), is_right, &mut outcome);
    }
    finished(target, outcome)
}

/// Thousands of connections of two users, with nothing, parts of requests and descriptors whose last close waits; others get their
/// tokens.
pub(super) fn crowded_sack(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(socket) = socket(target, &mut outcome) else {
        return outcome;
    };
    let most = usize::try_from(raise_descriptors()).unwrap_or(0);
    let count = (most.saturating_sub(400) / 2).min(CONNECTIONS);
    let mut lingering: Vec<Lingering> = (0..4)
        .filter_map(|_| Lingering::new(Duration::from_secs(10)).ok())
        .collect();
    let fds: Vec<_> = lingering.iter().map(Lingering::fd).collect();
    let mut open = Vec::new();
    for user in [ATTACKER, NAMELESS] {
        open.extend(as_user(user, || {
            let mut peers = Vec::new();
            for number in 0..count {
                let Ok(mut peer) = Peer::connect_for_messages(&socket, WAIT) else {
                    continue;
                };
                let _ = match number % 4 {
                    0 => peer.send_with(b"muster", &fds),
                    1 => peer.send_raw(&request()),
                    2 => peer.send_raw(b"m"),
                    _ => Ok(()),
                };
                peers.push(peer);
            }
            peers
        }));
        outcome.sent += count as u64;
        for other in [VICTIM, ROOT] {
            let started = Instant::now();
            let answer = ask(&socket, other, &request());
            let what = "while others keep connections";
            examine(what, other, answer.as_deref(), true, &mut outcome);
            if started.elapsed() > ANSWER_MAX {
                let (uid, took) = (other.uid, started.elapsed());
                outcome.finding(format!("user {uid} waited {took:?} for a token"));
            }
        }
    }
    lingering.iter_mut().for_each(Lingering::give_away);
    drop(open);
    drop(lingering);
    let answer = ask(&socket, VICTIM, &request());
    examine(
        "after all that",
        VICTIM,
        answer.as_deref(),
        true,
        &mut outcome,
    );
    finished(target, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_as_they_are_in_a_token() {
        let claims = br#"{"exp":1060,"iat":1000,"uid":65534}"#;
        assert_eq!(from_base64url(&crate::rest::base64url(claims)), claims);
        let text = std::str::from_utf8(claims).unwrap();
        assert_eq!(number(text, "uid"), Some(65534));
        assert_eq!(number(text, "none"), None);
    }
}
