//! Limits that this program changes for itself and its own programs: no core files, since these would hold secrets, and as many
//! descriptors as the hard limit allows. Programs of users and of the site get the first limits back.

use super::{own_limit, set_soft_limit};
use muster_model::spec::SoftLimit;
use std::io;
use std::sync::OnceLock;

/// The limits that this program changes, with the soft limits that it was started with.
static FIRST: OnceLock<Vec<SoftLimit>> = OnceLock::new();

/// Too small for a core in a file, and what has the kernel give none to a program either (core(5), pipes to a program), which it
/// does with a limit of 0.
const NO_CORE: u64 = 1;

/// Changes the limits of this process.
pub(crate) fn change_own_limits() -> io::Result<()> {
    let (core, files) = (
        own_limit(libc::RLIMIT_CORE)?,
        own_limit(libc::RLIMIT_NOFILE)?,
    );
    FIRST.get_or_init(|| {
        vec![
            SoftLimit::new(libc::RLIMIT_CORE, core.rlim_cur),
            SoftLimit::new(libc::RLIMIT_NOFILE, files.rlim_cur),
        ]
    });
    set_soft_limit(libc::RLIMIT_CORE, NO_CORE)?;
    set_soft_limit(libc::RLIMIT_NOFILE, files.rlim_max)
}

/// The soft limits from before [`change_own_limits`].
pub(crate) fn first_limits() -> &'static [SoftLimit] {
    FIRST.get().map_or(&[], Vec::as_slice)
}

/// In a process that one with changed limits has started: what the first limits are.
pub(crate) fn set_first_limits(limits: Vec<SoftLimit>) {
    FIRST.get_or_init(|| limits);
}

/// Soft limits of a task or script: those that are asked for, and otherwise the first ones.
pub(crate) fn with_first_limits(asked: &[SoftLimit]) -> Vec<SoftLimit> {
    let mut limits = asked.to_vec();
    for first in first_limits() {
        if !asked.iter().any(|limit| limit.resource == first.resource) {
            limits.push(*first);
        }
    }
    limits
}

/// The first limit of descriptors again, for a program of this one's that needs few.
pub(crate) fn restore_file_limit() {
    let first = first_limits().iter();
    for limit in first.filter(|limit| limit.resource == libc::RLIMIT_NOFILE) {
        // It is below the one that this process has.
        let _ = set_soft_limit(limit.resource, limit.value);
    }
}
