//! Versions of a protocol: what the side that connects says of itself first, and the refusal where the other side does not speak
//! that version. Within one version, messages gain optional fields only, so that releases understand each other.

use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode};
use muster_model::limits::NAME_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::validate::Validate;
use std::fmt;

/// The first message on a connection. A peer that sends none is older than this message: it speaks version 1.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Greeting {
    /// Version of the protocol.
    #[n(0)]
    pub protocol: u32,
    /// Muster's version, for texts.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub release: String,
}

/// Greeting of a peer that has not said its version.
impl Default for Greeting {
    fn default() -> Greeting {
        Greeting {
            protocol: 1,
            release: String::new(),
        }
    }
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protocol {}", self.protocol)?;
        match &*self.release {
            "" => Ok(()),
            // Anybody may send it.
            release => write!(f, " (muster {})", release.escape_debug()),
        }
    }
}

/// Versions of a protocol that this release speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u32,
    /// The newest, which it begins with.
    pub newest: u32,
}

impl Versions {
    /// Versions of the messages in this crate.
    pub const CLUSTER: Versions = Versions {
        oldest: crate::OLDEST_PROTOCOL,
        newest: crate::PROTOCOL,
    };

    /// The greeting of this release.
    #[must_use]
    pub fn greeting(self) -> Greeting {
        Greeting {
            protocol: self.newest,
            release: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Whether `they` can be understood here; otherwise the refusal, which names both versions and what to do.
    ///
    /// # Errors
    /// Their version is not spoken here.
    pub fn check(self, theirs: &Greeting, they: &str, we: &str) -> Result<(), Refusal> {
        let todo = if theirs.protocol < self.oldest {
            format!("update {they}")
        } else if theirs.protocol > self.newest {
            format!("update {we}, or use {they} of the same version")
        } else {
            return Ok(());
        };
        let difference = self.difference(theirs, they, we);
        let detail = format!("{difference}; {todo}");
        Err(Refusal::new(RefusalCode::ProtocolError, detail))
    }

    /// As [`check`](Versions::check), where the peer has to say which version it speaks.
    ///
    /// # Errors
    /// It does not say, or its version is not spoken here.
    pub fn check_said(
        self,
        theirs: Option<&Greeting>,
        they: &str,
        we: &str,
    ) -> Result<(), Refusal> {
        match theirs {
            Some(theirs) => self.check(theirs, they, we),
            None => {
                let own = self.greeting();
                let detail = format!(
                    "{they} does not say which version it speaks, {we} speaks {own}; update {they}"
                );
                Err(Refusal::new(RefusalCode::ProtocolError, detail))
            }
        }
    }

    /// Whether a peer is too old, where both sides wait for what the other says of itself: one that is newer decides whether it
    /// still speaks this version.
    #[must_use]
    pub fn is_too_old(self, theirs: &Greeting) -> bool {
        theirs.protocol < self.oldest
    }

    /// Which versions `they` and `we` speak.
    #[must_use]
    pub fn difference(self, theirs: &Greeting, they: &str, we: &str) -> String {
        let own = match self.oldest == self.newest {
            true => self.greeting().to_string(),
            false => format!(
                "protocols {} to {} (muster {})",
                self.oldest,
                self.newest,
                env!("CARGO_PKG_VERSION")
            ),
        };
        format!("{they} speaks {theirs}, {we} speaks {own}")
    }
}

/// The version in an encoded [`crate::client::Request`], whose rest a receiver that does not speak it cannot decode.
///
/// # Errors
/// It is no request.
pub fn of_request(body: &[u8]) -> Result<Greeting, Error> {
    let mut d = Decoder::new(body);
    d.array()?;
    let protocol = d.u32()?;
    Ok(Greeting {
        protocol,
        release: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(oldest: u32, newest: u32, theirs: u32) -> Option<String> {
        let versions = Versions { oldest, newest };
        let theirs = Greeting {
            protocol: theirs,
            release: "0.0\n1".to_owned(),
        };
        let refusal = versions.check(&theirs, "srun", "this slurmd").err()?;
        assert_eq!(refusal.code, RefusalCode::ProtocolError);
        Some(refusal.detail)
    }

    #[test]
    fn a_refusal_names_both_versions_and_what_to_do() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(refusal(2, 3, 2), None);
        assert_eq!(refusal(2, 3, 3), None);
        assert_eq!(
            refusal(2, 3, 1).unwrap(),
            format!(
                "srun speaks protocol 1 (muster 0.0\\n1), this slurmd speaks protocols 2 to 3 (muster {own}); update srun"
            )
        );
        assert_eq!(
            refusal(3, 3, 4).unwrap(),
            format!(
                "srun speaks protocol 4 (muster 0.0\\n1), this slurmd speaks protocol 3 (muster {own}); \
                 update this slurmd, or use srun of the same version"
            )
        );
        let silent = Versions::CLUSTER.check(&Greeting::default(), "srun", "this slurmd");
        assert_eq!(silent, Ok(()), "no greeting is version 1");
        let said = Versions::CLUSTER.greeting();
        let checked = Versions::CLUSTER.check_said(Some(&said), "srun", "this slurmd");
        assert_eq!(checked, Ok(()));
        let checked = Versions::CLUSTER.check_said(None, "srun", "this slurmd");
        let refusal = checked.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::ProtocolError);
        assert!(refusal.detail.ends_with("update srun"), "{refusal}");
    }

    #[test]
    fn the_version_of_a_request_that_cannot_be_decoded_is_known() {
        let mut e = minicbor::Encoder::new(Vec::new());
        e.array(2)
            .unwrap()
            .u32(9)
            .unwrap()
            .str("what is this")
            .unwrap();
        let body = e.into_writer();
        assert_eq!(of_request(&body).unwrap().protocol, 9);
        assert!(of_request(b"nonsense").is_err());
    }
}
