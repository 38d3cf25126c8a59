//! What the kernel ends when memory runs out: processes of users rather than the node's own, proc_pid_oom_score_adj(5).

use std::fs::{self, File};
use std::io::{self, Write as _};

const OWN: &str = "/proc/self/oom_score_adj";

/// Has the kernel end this process last. What comes of it inherits that, until it calls [`leave_protection`].
///
/// # Errors
/// This process may not: it is not root, or lacks CAP_SYS_RESOURCE.
pub(crate) fn protect() -> io::Result<()> {
    fs::write(OWN, "-1000")
}

/// Undoes [`protect`] in a child, before it becomes a user: root's value is the lowest that the user can choose then. The child
/// must not share its parent's memory, as the kernel would change the parent too. Allocates nothing.
pub(crate) fn leave_protection() {
    let mut value = [0; 8];
    let is_protected = File::open(OWN)
        .and_then(|mut file| io::Read::read(&mut file, &mut value))
        .is_ok_and(|length| length > 0 && value[0] == b'-');
    if is_protected && let Ok(mut file) = File::options().write(true).open(OWN) {
        // The worst is that a process of this job is ended later than others.
        let _ = file.write_all(b"0");
    }
}
