//! Makes the kernel's OOM killer choose processes of users before the node's own, proc_pid_oom_score_adj(5).

pub(crate) use muster_script::oom::leave_protection;
use std::fs;
use std::io;

/// Makes the kernel end this process last when memory runs out. Children inherit this until they call
/// [`leave_protection`].
///
/// # Errors
/// This process is not root, or lacks CAP_SYS_RESOURCE.
pub(crate) fn protect() -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", "-1000")
}
