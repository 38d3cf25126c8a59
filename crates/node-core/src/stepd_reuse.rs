//! Conventions of agent and launcher for the reuse of a step daemon for several steps of a job.

use muster_model::ids::{JobAttempt, StepNo};
use muster_trust::keyed_name;
use std::path::{Path, PathBuf};

/// Daemons of a job that wait for a step, at most.
pub const SPARES_MAX: usize = 16;
/// Maximum size of an order for a daemon that is reused, so that it fits into the daemon's control channel.
pub const ORDER_MAX: usize = 64 << 10;

/// Bytes of a job's key in the names of its sockets, whose paths may have 107 bytes.
const SECRET_BYTES: usize = 8;

/// The socket of the step daemon that is started for a step. Names of all sockets of the host are public, and can be looked for in
/// the spool directory: they say nothing to somebody without the job's key.
pub fn socket_path(spool: &Path, job_key: &[u8], step: StepNo) -> PathBuf {
    let start = sockets_of_job(job_key);
    spool.join(format!("{start}{}.sock", step.0))
}

/// Beginning of names of all sockets of a job's step daemons on a node. They have no digit before the step, as results
/// have one of their job.
pub fn sockets_of_job(job_key: &[u8]) -> String {
    let secret = keyed_name(job_key, b"sockets of step daemons");
    let letter = |four_bits: u8| char::from(b'a' + four_bits);
    let letters = |byte: &u8| [letter(byte >> 4), letter(byte & 15)];
    let secret: String = secret.iter().take(SECRET_BYTES).flat_map(letters).collect();
    format!("step-{secret}.")
}

/// The file in which a daemon leaves the end of a step.
pub fn result_path(spool: &Path, attempt: JobAttempt, step: StepNo) -> PathBuf {
    spool.join(format!(
        "step-{}.{}.{}.end",
        attempt.job, attempt.attempt.0, step.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sockets_need_the_key_of_their_job() {
        let name = |key: u8, step| socket_path(Path::new("/spool"), &[key; 16], StepNo(step));
        assert_ne!(name(1, 0), name(2, 0), "of another job");
        assert_ne!(name(1, 0), name(1, 1), "of another step");
        let start = sockets_of_job(&[1; 16]);
        assert_eq!(name(1, 7), Path::new(&format!("/spool/{start}7.sock")));
        let secret = start.strip_prefix("step-").unwrap();
        let secret = secret.strip_suffix('.').unwrap();
        assert_eq!(secret.len(), 16);
        assert!(secret.bytes().all(|byte| byte.is_ascii_lowercase()));
    }
}
