//! Limits that this program changes for itself and its own programs: no core files, since these would hold secrets, and as many
//! descriptors as the hard limit allows. Programs of users and of the site get the first limits back.

use super::{own_limit, set_soft_limit};
use muster_model::spec::SoftLimit;
use std::io;
use std::sync::OnceLock;

/// The limits that this program changes, with the soft limits that it was started with.
static FIRST: OnceLock<Vec<SoftLimit>> = OnceLock::new();

/// Too small for a core file. It is not 0 because with 0 the kernel would still pass cores to a program; with 1 it
/// does not (core(5), "Piping core dumps to a program").
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

/// Sets the first limits in a process whose parent has changed its own limits.
pub(crate) fn set_first_limits(limits: Vec<SoftLimit>) {
    FIRST.get_or_init(|| limits);
}

/// Soft limits of a task or script: the requested ones, and the first ones for all other resources.
pub(crate) fn with_first_limits(asked: &[SoftLimit]) -> Vec<SoftLimit> {
    let mut limits = asked.to_vec();
    for first in first_limits() {
        if !asked.iter().any(|limit| limit.resource == first.resource) {
            limits.push(*first);
        }
    }
    limits
}

/// Restores the first limit of descriptors, for a program of this process's own that needs few.
pub(crate) fn restore_file_limit() {
    let first = first_limits().iter();
    for limit in first.filter(|limit| limit.resource == libc::RLIMIT_NOFILE) {
        // The first limit is below the current one, so this cannot fail.
        let _ = set_soft_limit(limit.resource, limit.value);
    }
}
