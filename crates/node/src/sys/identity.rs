//! Whose rights a process has, and who may look into it.

use super::check;
use crate::shim::wire::User;
use std::io;

/// Gives up root: groups, group and user, for good. Not to be called where memory is shared with another process: each
/// change of identity sets the memory's dumpable flag to `fs.suid_dumpable`.
///
/// Until it executes a program, this process still has the memory of one that was root's, so no process of the user may
/// look into it or have it leave a core, whatever that setting says. The saved user stays root, which keeps the user from
/// looking into it, and no signal that leaves a core comes, until the process has been made undumpable. The second change
/// of identity takes nothing that the first has not, and leaves it so.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let before = block_all_signals();
    let became = change_identity(uid, gid, groups);
    set_signal_mask(&before);
    became
}

fn change_identity(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
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

/// Blocks all signals; gives those that were blocked before.
fn block_all_signals() -> libc::sigset_t {
    // SAFETY: sigfillset fills the set before it is read, and both sets are live.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is live.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
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
