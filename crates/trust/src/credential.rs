//! The proof with which a connection begins, of whatever scheme.

use muster_channel::{SECRET, Scheme};

/// The proof with which a connection begins.
#[derive(Clone)]
pub struct Proof {
    /// Kind of the credential.
    pub scheme: Scheme,
    /// The credential.
    pub credential: Vec<u8>,
    /// Secret that its receiver knows from it.
    pub secret: [u8; SECRET],
}

/// The secret does not reach logs.
impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proof({})", self.scheme)
    }
}
