//! Audit sessions of processes, as /proc shows them: see [`crate::shim`]'s membership for what they serve.

use std::fs;

/// The audit session of a process (a number, or `self`); nothing if it is in none, or gone.
pub(crate) fn of(pid: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/sessionid")).ok()?;
    let session = text.trim().parse().ok()?;
    (session != u32::MAX).then_some(session)
}
