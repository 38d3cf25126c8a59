//! Identity of a journal, which differs from every other's; part of every checksum.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

/// Tells one journal from every other. Not a secret between administrators, but users must not
/// know it: checksums start from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

impl LogId {
    /// A new one, from the system's random numbers.
    pub fn random() -> io::Result<LogId> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(LogId(bytes))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}
