//! What the kernel ends when memory runs out: processes of users rather than the node's own, proc_pid_oom_score_adj(5).

pub(crate) use muster_script::oom::leave_protection;
use std::fs;
use std::io;

/// Has the kernel end this process last. What comes of it inherits that, until it calls [`leave_protection`].
///
/// # Errors
/// This process may not: it is not root, or lacks CAP_SYS_RESOURCE.
pub(crate) fn protect() -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "-1000")
}
