//! Whose rights a process has, and who may look into it.

use super::check;
use std::io;
use std::sync::OnceLock;

/// Gives up root: groups, group and user, for good. Until it executes a program, this process still has the memory of one
/// that was root's, so no process of the user may look into it, whatever `fs.suid_dumpable` says: the saved user stays
/// root, which keeps the user out, until the process has been made undumpable. The second change of identity leaves it so.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and length describe a live slice.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: these calls take plain numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(uid, uid, 0) })?;
    set_undumpable()?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(uid, uid, uid) }).map(drop)
}

/// Lets no process without privileges look into this one, and has it leave no core, until it executes a program.
pub(crate) fn set_undumpable() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Has no program that this process executes gain privileges, by set-user-ID bits or file capabilities, for good.
pub(crate) fn refuse_privileges() -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// The soft limit of this program's cores before [`forbid_cores`].
static CORE_LIMIT: OnceLock<u64> = OnceLock::new();

/// Has this process, and what comes of it, leave no core. Tasks get the limit back: see [`with_core_limit`].
pub(crate) fn forbid_cores() -> io::Result<()> {
    let limit = super::own_limit(libc::RLIMIT_CORE)?;
    CORE_LIMIT.get_or_init(|| limit.rlim_cur);
    super::set_soft_limit(libc::RLIMIT_CORE, 0)
}

/// Soft limits of a task or script: those that are asked for, and the one of cores that this program was started with.
pub(crate) fn with_core_limit(asked: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut limits = asked.to_vec();
    if let Some(core) = CORE_LIMIT.get()
        && !asked
            .iter()
            .any(|(resource, _)| *resource == libc::RLIMIT_CORE)
    {
        limits.push((libc::RLIMIT_CORE, *core));
    }
    limits
}
