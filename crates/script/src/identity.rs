//! The change of a process from root to a user.

use crate::bare::{self, Errno};

/// Gives up root: groups, group and user, for good. Not to be called where memory is shared with another process: each
/// change of identity sets the memory's dumpable flag to `fs.suid_dumpable`. Nor where there are other threads, which would
/// stay root.
///
/// Until it executes a program, this process still has the memory of one that was root's, so no process of the user may
/// look into it or have it leave a core, whatever that setting says. The saved user stays root, which keeps the user from
/// looking into it, and no signal that leaves a core comes, until the process has been made undumpable. The second change
/// of identity takes nothing that the first has not, and leaves it so.
///
/// # Errors
/// This process is not root.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    let before = bare::set_signal_mask(u64::MAX);
    let became = change_identity(uid, gid, groups);
    bare::set_signal_mask(before);
    became
}

fn change_identity(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    bare::set_groups(groups)?;
    bare::set_gids(gid, gid, gid)?;
    bare::set_uids(uid, uid, 0)?;
    bare::set_undumpable()?;
    bare::set_uids(uid, uid, uid)
}
