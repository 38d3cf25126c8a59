//! Choice of the process that the kernel ends when memory runs out, proc_pid_oom_score_adj(5).

use crate::{bare, kernel};

/// Has the kernel end this process, and what comes of it, no later than others, if it has the launcher's protection. To be
/// called before it becomes a user: root's value is the lowest that the user can choose then. It must not share its parent's
/// memory, as the kernel would change the parent too.
pub fn leave_protection() {
    let flags = kernel::O_RDWR | kernel::O_CLOEXEC;
    let Ok(file) = bare::open(c"/proc/self/oom_score_adj", flags, 0) else {
        return;
    };
    let mut value = [0; 8];
    let is_protected = bare::read(file, &mut value).is_ok() && value[0] == b'-';
    if is_protected {
        // The worst is that a process of this job is ended later than others.
        let _ = bare::write_at(file, b"0", 0);
    }
    bare::close(file);
}
