//! The statement of a credential, beside its maker: the cluster and the purpose, and the secret of the channel that it
//! begins. A credential for another cluster whose hosts trust the same munge key, or for another purpose, is good for
//! nothing.

use crate::SECRET;
use std::fmt;

/// The beginning of all statements, so that none is anything else's.
const KIND: &str = "muster channel 1";
/// Bytes of a name in a statement.
const NAME_BYTES_MAX: usize = 256;

/// The subject that its maker speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Himself.
    User,
    /// The agent of this node, and nobody else, whatever the maker's rights.
    Node(String),
    /// Himself, to get the configuration and nothing else: of whichever cluster, since that is not known without it.
    Configuration,
}

impl Purpose {
    /// Reads one as it is displayed.
    pub fn of_text(text: &str) -> Option<Purpose> {
        match text.strip_prefix("node ") {
            Some(name) if !name.is_empty() => Some(Purpose::Node(name.to_owned())),
            None if text == "user" => Some(Purpose::User),
            None if text == "configuration" => Some(Purpose::Configuration),
            _ => None,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::User => f.write_str("user"),
            Purpose::Node(name) => write!(f, "node {name}"),
            Purpose::Configuration => f.write_str("configuration"),
        }
    }
}

/// The payload of a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct Statement {
    /// `ClusterName`.
    pub cluster: String,
    /// The purpose of the channel.
    pub purpose: Purpose,
    /// Known to its maker and to whom the credential is restricted.
    pub secret: [u8; SECRET],
}

/// The secret does not reach logs.
impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statement({}, {})", self.cluster, self.purpose)
    }
}

/// Why a credential's payload is no statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential was made for something else")]
pub struct NoStatement;

impl Statement {
    /// As a credential carries it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{KIND}\n{}\n{}\n", self.cluster, self.purpose).into_bytes();
        bytes.extend(self.secret);
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// The credential was made for something else.
    pub fn decode(bytes: &[u8]) -> Result<Statement, NoStatement> {
        let (text, secret) = bytes.split_last_chunk::<SECRET>().ok_or(NoStatement)?;
        let text = std::str::from_utf8(text).map_err(|_| NoStatement)?;
        let mut lines = text.strip_suffix('\n').ok_or(NoStatement)?.split('\n');
        let (kind, cluster, purpose) = (lines.next(), lines.next(), lines.next());
        let (Some(KIND), Some(cluster), Some(purpose), None) =
            (kind, cluster, purpose, lines.next())
        else {
            return Err(NoStatement);
        };
        let purpose = Purpose::of_text(purpose).ok_or(NoStatement)?;
        if cluster.len() > NAME_BYTES_MAX || text.len() > 2 * NAME_BYTES_MAX {
            return Err(NoStatement);
        }
        Ok(Statement {
            cluster: cluster.to_owned(),
            purpose,
            secret: *secret,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_as_it_was_made() {
        for purpose in [
            Purpose::User,
            Purpose::Node("n1".to_owned()),
            Purpose::Configuration,
        ] {
            let statement = Statement {
                cluster: "c".to_owned(),
                purpose,
                // As if the secret were lines.
                secret: [b'\n'; SECRET],
            };
            let bytes = statement.encode();
            assert_eq!(Statement::decode(&bytes), Ok(statement));
            assert!(Statement::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn what_was_made_for_something_else_is_none() {
        let secret = [0; SECRET];
        for text in [
            "",
            "muster channel 1\nc\n",
            "muster channel 1\nc\nroot\n",
            "muster channel 1\nc\nnode \n",
            "muster channel 2\nc\nuser\n",
            "muster channel 1\nc\nuser\nuser\n",
            "muster channel 1\nc\nuser",
        ] {
            let bytes = [text.as_bytes(), &secret].concat();
            assert_eq!(Statement::decode(&bytes), Err(NoStatement), "{text:?}");
        }
    }
}
