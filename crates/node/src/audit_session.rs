//! Audit sessions of processes, as /proc shows them: see [`crate::launcher`]'s membership for their use.

use std::fs;
use std::io;

/// The audit session of a process (a number, or `self`); `None` if it is in no session.
///
/// # Errors
/// The session cannot be read: the process has ended, the kernel has no audit, or this process
/// lacks descriptors. The session is then unknown; the caller must not conclude that the process is
/// in no session.
pub(crate) fn of(pid: &str) -> io::Result<Option<u32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/sessionid"))?;
    let session: u32 = text.trim().parse().map_err(io::Error::other)?;
    Ok((session != u32::MAX).then_some(session))
}
