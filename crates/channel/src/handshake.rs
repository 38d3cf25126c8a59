//! The exchange of keys: an opening from the side that connects, an answer or a refusal from the other.

use crate::SECRET;
use crate::opening::{CREDENTIAL_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::opening::{EXCHANGE_OVERHEAD, Opening, OpeningError, Scheme, part};
use crate::records::{Sealer, Unsealer};
use snow::{Builder, HandshakeState};
use std::sync::Arc;

/// Ephemeral keys of both sides (X25519), and a secret that both have from the credential, which comes first.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Contents of the first record of the side that connects.
const CONFIRMATION: &[u8] = b"confirmed";
/// Bytes of the reason of a refusal.
const REASON_BYTES_MAX: usize = 1 << 10;

/// Why there is no channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The first bytes are no opening or no answer.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// The other side does not have the secret, or somebody between has changed something.
    #[error(
        "the other side does not know what the credential says, or received data were modified"
    )]
    Secret,
    /// The message after the opening was not sent by the side that made the opening.
    #[error("its first message was sent before, by another connection, or was modified")]
    Unconfirmed,
    /// The other side refuses. It has not proved who it is: the text is no more than a hint.
    #[error("{0}")]
    Refused(String),
    /// No random numbers, or another failure of this side.
    #[error("{0}")]
    Failed(String),
}

/// Both directions of a channel.
#[derive(Debug)]
pub struct Channel {
    /// For outgoing records.
    pub sealer: Sealer,
    /// For incoming records.
    pub opener: Unsealer,
}

/// A channel of the side that connects.
#[derive(Debug)]
pub struct InitiatedChannel {
    /// Both directions.
    pub channel: Channel,
    /// The payload of the other side's answer.
    pub payload: Vec<u8>,
    /// Bytes to be sent before anything else: they show the other side that the opening was not a repeated one.
    pub confirmation: Vec<u8>,
}

/// An accepted channel that the other side has not confirmed yet. Its opening may be a recorded one that is sent again;
/// its sender cannot confirm it.
#[derive(Debug)]
pub struct UnconfirmedChannel(pub(crate) Channel);

impl UnconfirmedChannel {
    /// Takes what has come; whether the confirmation is in it. What follows it is in the channel's opener already.
    ///
    /// # Errors
    /// It is none.
    pub fn confirm(&mut self, bytes: &[u8]) -> Result<bool, HandshakeError> {
        let mut plain = Vec::new();
        self.0.opener.push(bytes);
        match self.0.opener.open_next(&mut plain) {
            Ok(false) => Ok(false),
            Ok(true) if plain == CONFIRMATION => Ok(true),
            Ok(true) | Err(_) => Err(HandshakeError::Unconfirmed),
        }
    }

    /// The channel, once it was confirmed.
    pub fn into_channel(self) -> Channel {
        self.0
    }
}

/// The side that connects, while it waits for the answer.
pub struct Initiator(HandshakeState);

impl Initiator {
    /// Begins: gives the bytes to send. Only who has the secret can read the payload, or answer.
    ///
    /// # Errors
    /// [`HandshakeError::Opening`] if credential or payload are too long; [`HandshakeError::Failed`].
    pub fn begin(
        scheme: Scheme,
        credential: &[u8],
        secret: &[u8; SECRET],
        payload: &[u8],
    ) -> Result<(Initiator, Vec<u8>), HandshakeError> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(OpeningError::Length("credential").into());
        }
        let prologue = Opening::prologue(scheme, credential);
        let mut state = builder(&prologue, secret)?
            .build_initiator()
            .map_err(failed)?;
        let opening = Opening {
            scheme,
            credential: credential.to_vec(),
            exchange: message(&mut state, payload)?,
        };
        Ok((Initiator(state), opening.encode()))
    }

    /// Takes the answer once it has come whole; none before. What follows the answer is in the channel's opener already.
    ///
    /// # Errors
    /// The other side refuses, or is not who can read the credential.
    pub fn finish(&mut self, bytes: &[u8]) -> Result<Option<InitiatedChannel>, HandshakeError> {
        let Some((exchange, rest)) = part(bytes, PAYLOAD_BYTES_MAX + EXCHANGE_OVERHEAD, "answer")?
        else {
            return Ok(None);
        };
        if exchange.is_empty() {
            let reason = part(rest, REASON_BYTES_MAX, "refusal")?;
            return match reason {
                Some((text, _)) => Err(HandshakeError::Refused(plain(text))),
                None => Ok(None),
            };
        }
        let payload = read(&mut self.0, exchange)?;
        // The state is used up: the one left behind is good for nothing.
        let spent = builder(b"", &[0; SECRET])?
            .build_initiator()
            .map_err(failed)?;
        let mut channel = channel(std::mem::replace(&mut self.0, spent))?;
        // The other side may speak at once.
        channel.opener.push(rest);
        let mut confirmation = Vec::new();
        let sealed = channel.sealer.seal(CONFIRMATION, &mut confirmation);
        sealed.map_err(|e| HandshakeError::Failed(e.to_string()))?;
        Ok(Some(InitiatedChannel {
            channel,
            payload,
            confirmation,
        }))
    }
}

/// The side that was connected to, which has read the opening and knows the secret from its credential.
pub struct Responder(HandshakeState);

impl Responder {
    /// Takes an opening: what the other side says with it.
    ///
    /// # Errors
    /// The other side does not have the secret: it is not who made the credential.
    pub fn accept(
        opening: &Opening,
        secret: &[u8; SECRET],
    ) -> Result<(Responder, Vec<u8>), HandshakeError> {
        let prologue = Opening::prologue(opening.scheme, &opening.credential);
        let mut state = builder(&prologue, secret)?
            .build_responder()
            .map_err(failed)?;
        let payload = read(&mut state, &opening.exchange)?;
        Ok((Responder(state), payload))
    }

    /// Answers: the bytes to send, and the channel, which is to be confirmed.
    ///
    /// # Errors
    /// The payload is too long; [`HandshakeError::Failed`].
    pub fn answer(
        mut self,
        payload: &[u8],
    ) -> Result<(Vec<u8>, UnconfirmedChannel), HandshakeError> {
        let exchange = message(&mut self.0, payload)?;
        let mut bytes = (exchange.len() as u16).to_be_bytes().to_vec();
        bytes.extend(exchange);
        Ok((bytes, UnconfirmedChannel(channel(self.0)?)))
    }

    /// A message in place of an answer. Anybody on the way can read it.
    pub fn refusal(reason: &str) -> Vec<u8> {
        let mut end = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = &reason.as_bytes()[..end];
        let mut bytes = vec![0, 0];
        bytes.extend((reason.len() as u16).to_be_bytes());
        bytes.extend(reason);
        bytes
    }
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Initiator")
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

fn builder<'a>(
    prologue: &'a [u8],
    secret: &'a [u8; SECRET],
) -> Result<Builder<'a>, HandshakeError> {
    let pattern = PATTERN.parse().map_err(failed)?;
    let builder = Builder::new(pattern).prologue(prologue).map_err(failed)?;
    builder.psk(0, secret).map_err(failed)
}

fn failed(error: snow::Error) -> HandshakeError {
    HandshakeError::Failed(error.to_string())
}

fn message(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(OpeningError::Length("payload").into());
    }
    let mut bytes = vec![0; payload.len() + EXCHANGE_OVERHEAD];
    let length = state.write_message(payload, &mut bytes).map_err(failed)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn read(state: &mut HandshakeState, exchange: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut payload = vec![0; exchange.len()];
    let read = state.read_message(exchange, &mut payload);
    payload.truncate(read.map_err(|_| HandshakeError::Secret)?);
    Ok(payload)
}

fn channel(state: HandshakeState) -> Result<Channel, HandshakeError> {
    let state = Arc::new(state.into_stateless_transport_mode().map_err(failed)?);
    Ok(Channel {
        sealer: Sealer::new(Arc::clone(&state)),
        opener: Unsealer::new(state),
    })
}

/// A text that anybody may have sent.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [u8; SECRET] = [7; SECRET];

    /// A channel between two sides with these secrets.
    fn meet(
        ours: [u8; SECRET],
        theirs: [u8; SECRET],
    ) -> Result<(Channel, Channel), HandshakeError> {
        let (mut client, bytes) = Initiator::begin(Scheme::Munge, b"MUNGE:x:", &ours, b"hello")?;
        let opening = Opening::decode(&bytes)?.expect("it is whole");
        let (server, hello) = Responder::accept(&opening, &theirs)?;
        assert_eq!(hello, b"hello");
        let (answer, mut far) = server.answer(b"welcome")?;
        for some in 0..answer.len() {
            assert!(client.finish(&answer[..some])?.is_none());
        }
        let begun = client.finish(&answer)?.expect("it is whole");
        assert_eq!(begun.payload, b"welcome");
        let (last, some) = begun.confirmation.split_last().expect("it is not empty");
        assert!(!far.confirm(some)?);
        assert!(far.confirm(&[*last])?);
        Ok((begun.channel, far.into_channel()))
    }

    fn pass(from: &mut Sealer, to: &mut Unsealer, bytes: &[u8]) {
        let (mut sealed, mut opened) = (Vec::new(), Vec::new());
        from.seal(bytes, &mut sealed).unwrap();
        for chunk in sealed.chunks(1000) {
            to.push(chunk);
            while to.open_next(&mut opened).unwrap() {}
        }
        assert!(opened == bytes);
    }

    #[test]
    fn both_sides_have_the_same_channel() {
        let (mut near, mut far) = meet(KNOWN, KNOWN).unwrap();
        let long: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for bytes in [&b"a"[..], b"bc", &long] {
            pass(&mut near.sealer, &mut far.opener, bytes);
            pass(&mut far.sealer, &mut near.opener, bytes);
        }
    }

    /// A server that had to say something at once could not: its first words were taken for a part of the answer.
    #[test]
    fn what_comes_with_the_answer_is_the_channels() {
        let (mut client, bytes) = Initiator::begin(Scheme::Job, b"7", &KNOWN, b"").unwrap();
        let opening = Opening::decode(&bytes).unwrap().unwrap();
        let (server, _) = Responder::accept(&opening, &KNOWN).unwrap();
        let (mut answer, mut far) = server.answer(b"").unwrap();
        far.0.sealer.seal(b"at once", &mut answer).unwrap();
        let mut near = client.finish(&answer).unwrap().unwrap().channel;
        let mut plain = Vec::new();
        while near.opener.open_next(&mut plain).unwrap() {}
        assert_eq!(plain, b"at once");
    }

    /// An opening of a user's command was recorded on the way, and is sent again: the answer is good for nothing.
    #[test]
    fn a_repeated_opening_is_not_confirmed() {
        let (mut client, bytes) = Initiator::begin(Scheme::Jwt, b"token", &KNOWN, b"").unwrap();
        let opening = Opening::decode(&bytes).unwrap().unwrap();
        let answer = || {
            let (server, _) = Responder::accept(&opening, &KNOWN).unwrap();
            server.answer(b"").unwrap()
        };
        let (first, mut channel) = answer();
        let begun = client.finish(&first).unwrap().unwrap();
        assert!(channel.confirm(&begun.confirmation).unwrap());
        let (_, mut again) = answer();
        assert_eq!(
            again.confirm(&begun.confirmation),
            Err(HandshakeError::Unconfirmed)
        );
        // Nor is one that ends instead.
        let (second, mut ended) = answer();
        let mut other = Initiator::begin(Scheme::Jwt, b"token", &KNOWN, b"")
            .unwrap()
            .0;
        assert!(other.finish(&second).is_err());
        let mut end = Vec::new();
        ended.0.sealer.seal_end(&mut end).unwrap();
        assert_eq!(ended.confirm(&end), Err(HandshakeError::Unconfirmed));
    }

    #[test]
    fn who_does_not_have_the_secret_is_refused() {
        assert_eq!(meet(KNOWN, [8; SECRET]).err(), Some(HandshakeError::Secret));
    }

    /// Somebody between who has neither secret nor credential of his own.
    #[test]
    fn what_is_changed_on_the_way_is_noticed() {
        let (_, bytes) = Initiator::begin(Scheme::Munge, b"MUNGE:x:", &KNOWN, b"hello").unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opening = match Opening::decode(&changed) {
                Ok(Some(opening)) => opening,
                // Lengths do not fit any more.
                Ok(None) | Err(_) => continue,
            };
            let refused = Responder::accept(&opening, &KNOWN).err();
            assert_eq!(refused, Some(HandshakeError::Secret), "byte {at}");
        }
    }

    #[test]
    fn an_answer_of_somebody_else_is_refused() {
        let begin = || Initiator::begin(Scheme::Munge, b"MUNGE:x:", &KNOWN, b"").unwrap();
        let (mut client, _) = begin();
        // Of another connection of the same client.
        let (_, other) = begin();
        let opening = Opening::decode(&other).unwrap().unwrap();
        let (server, _) = Responder::accept(&opening, &KNOWN).unwrap();
        let (answer, _) = server.answer(b"").unwrap();
        assert_eq!(client.finish(&answer).err(), Some(HandshakeError::Secret));
    }

    #[test]
    fn a_refusal_is_a_plain_text() {
        let (mut client, _) = Initiator::begin(Scheme::Munge, b"c", &KNOWN, b"").unwrap();
        let refusal = Responder::refusal("the credential has expired\x1b[2J");
        assert!(client.finish(&refusal[..5]).unwrap().is_none());
        let why = client.finish(&refusal).unwrap_err();
        assert_eq!(why.to_string(), "the credential has expired [2J");
        assert!(Responder::refusal(&"ü".repeat(5000)).len() <= 4 + REASON_BYTES_MAX);
    }

    #[test]
    fn lengths_are_bounded() {
        let long = vec![0; CREDENTIAL_BYTES_MAX + 1];
        let refused = Initiator::begin(Scheme::Munge, &long, &KNOWN, b"").err();
        assert_eq!(refused, Some(OpeningError::Length("credential").into()));
        let long = [0; PAYLOAD_BYTES_MAX + 1];
        let refused = Initiator::begin(Scheme::Munge, b"", &KNOWN, &long).err();
        assert_eq!(refused, Some(OpeningError::Length("payload").into()));
    }
}
