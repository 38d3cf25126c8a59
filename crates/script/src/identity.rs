//! The change of a process from root to a user.

use crate::bare::{self, Errno};
use crate::kernel;

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
/// This process is not root; or a number is the one that leaves an identity as it is, which would be root's.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    let before = bare::set_signal_mask(u64::MAX);
    let became = change_identity(uid, gid, groups);
    bare::set_signal_mask(before);
    became
}

fn change_identity(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno(kernel::EINVAL));
    }
    bare::set_groups(groups)?;
    bare::set_gids(gid, gid, gid)?;
    bare::set_uids(uid, uid, 0)?;
    bare::set_undumpable()?;
    bare::set_uids(uid, uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To setresuid(2), the highest number says that nothing changes: a script with it would have stayed root's.
    #[test]
    fn nobody_is_the_user_whose_number_means_no_change() {
        for (uid, gid) in [(u32::MAX, 65_534), (65_534, u32::MAX)] {
            assert_eq!(become_user(uid, gid, &[]), Err(Errno(kernel::EINVAL)));
        }
    }
}
