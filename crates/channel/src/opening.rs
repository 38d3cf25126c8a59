//! The first message of the side that connects: the kind of its credential, the credential, and its part of the key exchange.

use std::fmt;

/// The beginning of every channel; no other protocol that may come by the same port has it.
const MAGIC: [u8; 8] = *b"muster/1";
/// Bytes of a credential. One of munge with a payload of a hundred bytes has about 300.
pub const CREDENTIAL_BYTES_MAX: usize = 8 << 10;
/// Bytes that either side says within the key exchange.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 10;
/// Key and seal that a message of the exchange has beside its payload.
pub(crate) const EXCHANGE_OVERHEAD: usize = 32 + 16;
const EXCHANGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + EXCHANGE_OVERHEAD;
/// Bytes of the whole.
pub const OPENING_BYTES_MAX: usize =
    MAGIC.len() + 1 + 2 + CREDENTIAL_BYTES_MAX + 2 + EXCHANGE_BYTES_MAX;

/// Kinds of credentials. Numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A munge credential (munge(7)) that has the secret in it.
    Munge,
    /// A token of auth/slurm; the secret follows from it and the cluster's key.
    Slurm,
    /// The token of a user without its signature, from which the secret follows.
    Jwt,
    /// The number of a job; the secret follows from the job's key.
    Job,
    /// The statement of a node that has a key of its own; the secret follows from that key and the controller's.
    Node,
    /// A token by which a node gets a key of its own; the secret follows from that and the controller's key.
    Join,
}

impl Scheme {
    const ALL: [Scheme; 6] = [
        Scheme::Munge,
        Scheme::Slurm,
        Scheme::Job,
        Scheme::Jwt,
        Scheme::Node,
        Scheme::Join,
    ];

    /// Its number in the protocol.
    pub fn number(self) -> u8 {
        match self {
            Scheme::Munge => 1,
            Scheme::Slurm => 2,
            Scheme::Job => 3,
            Scheme::Jwt => 4,
            Scheme::Node => 5,
            Scheme::Join => 6,
        }
    }

    /// The one with that number.
    pub fn of_number(number: u8) -> Option<Scheme> {
        Scheme::ALL
            .into_iter()
            .find(|scheme| scheme.number() == number)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Munge => "munge",
            Scheme::Slurm => "auth/slurm",
            Scheme::Job => "job key",
            Scheme::Jwt => "auth/jwt",
            Scheme::Node => "node key",
            Scheme::Join => "join token",
        })
    }
}

/// Why the first bytes of a connection are no opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// They are of another protocol, or of another version.
    #[error("it does not speak this protocol")]
    Magic,
    /// A kind of credential that is not known here.
    #[error("its kind of credential ({0}) is not known here")]
    Scheme(u8),
    /// A part that is longer than it may be.
    #[error("its {0} is too long")]
    Length(&'static str),
    /// Bytes follow that do not belong to it.
    #[error("bytes follow where none may come yet")]
    Surplus,
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Kind of the credential.
    pub scheme: Scheme,
    /// The credential.
    pub credential: Vec<u8>,
    /// The first message of the exchange.
    pub(crate) exchange: Vec<u8>,
}

impl Opening {
    /// The data that the exchange is bound to, beside the secret: all earlier messages.
    pub(crate) fn prologue(scheme: Scheme, credential: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(scheme.number());
        // A credential that is longer is refused before.
        bytes.extend((credential.len() as u16).to_be_bytes());
        bytes.extend(credential);
        bytes
    }

    /// As it goes over the network.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Opening::prologue(self.scheme, &self.credential);
        bytes.extend((self.exchange.len() as u16).to_be_bytes());
        bytes.extend(&self.exchange);
        bytes
    }

    /// Reads one; none while it has not come whole.
    ///
    /// # Errors
    /// What there is cannot become one, whatever follows.
    pub fn decode(bytes: &[u8]) -> Result<Option<Opening>, OpeningError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(OpeningError::Magic);
        }
        let Some((&number, rest)) = bytes.get(MAGIC.len()..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let scheme = Scheme::of_number(number).ok_or(OpeningError::Scheme(number))?;
        let Some((credential, rest)) = part(rest, CREDENTIAL_BYTES_MAX, "credential")? else {
            return Ok(None);
        };
        let Some((exchange, rest)) = part(rest, EXCHANGE_BYTES_MAX, "key exchange")? else {
            return Ok(None);
        };
        if !rest.is_empty() {
            return Err(OpeningError::Surplus);
        }
        Ok(Some(Opening {
            scheme,
            credential: credential.to_vec(),
            exchange: exchange.to_vec(),
        }))
    }
}

/// A part, and what follows it.
type FieldAndRest<'b> = (&'b [u8], &'b [u8]);

/// A part with its length before it, and what follows it; none while it has not come whole.
pub(crate) fn part<'b>(
    bytes: &'b [u8],
    most: usize,
    name: &'static str,
) -> Result<Option<FieldAndRest<'b>>, OpeningError> {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > most {
        return Err(OpeningError::Length(name));
    }
    Ok(rest.split_at_checked(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opening(credential: Vec<u8>, exchange: Vec<u8>) -> Opening {
        Opening {
            scheme: Scheme::Munge,
            credential,
            exchange,
        }
    }

    proptest! {
        #[test]
        fn one_comes_whole_or_not_yet(
            credential in prop::collection::vec(any::<u8>(), 0..CREDENTIAL_BYTES_MAX),
            exchange in prop::collection::vec(any::<u8>(), 0..EXCHANGE_BYTES_MAX),
            cut in 0.0..1.0,
        ) {
            let opening = opening(credential, exchange);
            let bytes = opening.encode();
            prop_assert!(bytes.len() <= OPENING_BYTES_MAX);
            prop_assert_eq!(Opening::decode(&bytes), Ok(Some(opening)));
            let some = (bytes.len() as f64 * cut) as usize;
            prop_assert_eq!(Opening::decode(&bytes[..some]), Ok(None));
        }

        #[test]
        fn whatever_comes_is_understood_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Opening::decode(&bytes);
            let mut bytes = [&MAGIC[..], &bytes].concat();
            let _ = Opening::decode(&bytes);
            bytes.push(0);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_early() {
        assert_eq!(Opening::decode(b"GET /"), Err(OpeningError::Magic));
        assert_eq!(
            Opening::decode(b"muster/1\x09"),
            Err(OpeningError::Scheme(9))
        );
        let long = Opening::decode(b"muster/1\x01\xff\xff");
        assert_eq!(long, Err(OpeningError::Length("credential")));
        let mut bytes = opening(b"c".to_vec(), b"e".to_vec()).encode();
        bytes.push(0);
        assert_eq!(Opening::decode(&bytes), Err(OpeningError::Surplus));
    }
}
