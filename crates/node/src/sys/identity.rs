//! Whose rights a process has, and who may look into it.

use super::check;
use muster_node_core::messages::User;
use std::io;

/// Gives up root for a user, for good: see there. For processes with one thread.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let became = muster_script::identity::become_user(uid, gid, groups);
    became.map_err(|e| io::Error::from_raw_os_error(e.0))
}

/// Does something with the rights of a user, which this thread then gives up for root's: what the user has named is found,
/// and its owner asked, as if by the user.
///
/// # Errors
/// This thread cannot change its identity.
///
/// # Panics
/// It cannot change it back.
pub(crate) fn acting_as<T>(user: &User, act: impl FnOnce() -> T) -> io::Result<T> {
    let own_groups = nix::unistd::getgroups()?;
    let own_groups: Vec<u32> = own_groups.iter().map(|group| group.as_raw()).collect();
    let own_gid = nix::unistd::getegid().as_raw();
    let taken = set_groups(&user.groups)
        .and_then(|()| set_effective(libc::SYS_setresgid, user.gid))
        .and_then(|()| set_effective(libc::SYS_setresuid, user.uid));
    let result = taken.map(|()| act());
    // The real and the saved user are root all the time, so nobody could look into this process meanwhile.
    let restored = set_effective(libc::SYS_setresuid, 0)
        .and_then(|()| set_effective(libc::SYS_setresgid, own_gid))
        .and_then(|()| set_groups(&own_groups))
        .and_then(|()| set_undumpable());
    restored.expect("a process whose saved user is root may become root again");
    result
}

/// Sets an effective identity of this thread.
fn set_effective(call: libc::c_long, id: u32) -> io::Result<()> {
    if id == u32::MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: both calls take numbers only; -1 leaves an identity as it is.
    let rc = unsafe { libc::syscall(call, -1, id, -1) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

/// Sets the groups of this thread.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the length is that of the live slice, which the kernel only reads.
    let rc = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
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
