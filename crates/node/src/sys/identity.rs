//! Whose rights a process has, and who may look into it.

use super::check;
use std::io;

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
