//! The account of the agent: `SlurmdUser`, else an account that the host has for it, else a number
//! without an account.

use anyhow::{Context as _, ensure};
use muster_node_core::messages::ProcessIdentity;
use nix::unistd::{Uid, User as Account, getegid, geteuid};

/// The account that is used if `SlurmdUser` names none.
const OWN_ACCOUNT: &str = "muster-agent";
/// Numbers that are never assigned to accounts, but to services while they run (systemd's
/// `DynamicUser`). The search begins at the end of the range and takes the first number without an
/// account.
const DYNAMIC_UIDS: std::ops::RangeInclusive<u32> = 61_184..=65_519;

/// The account that the agent runs as. A supervisor that is not root can only use its own.
///
/// # Errors
/// The named account does not exist.
pub(super) fn find(slurmd_user: &str) -> anyhow::Result<ProcessIdentity> {
    if !geteuid().is_root() {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        return Ok(user(uid, gid, ""));
    }
    // Root is Slurm's default and appears in many files: it applies to the supervisor and the
    // launcher.
    if !matches!(slurmd_user, "" | "root" | "0") {
        let account = by_name(slurmd_user)
            .with_context(|| format!("SlurmdUser={slurmd_user} cannot be looked up"))?;
        let account = account.with_context(|| {
            format!("SlurmdUser={slurmd_user}: this host has no such account; make it, or name another in slurm.conf")
        })?;
        ensure!(
            !account.uid.is_root(),
            "SlurmdUser={slurmd_user} is another name of root"
        );
        return Ok(of_account(&account));
    }
    if let Ok(Some(account)) = Account::from_name(OWN_ACCOUNT)
        && !account.uid.is_root()
    {
        return Ok(of_account(&account));
    }
    let is_free = |uid: &u32| matches!(Account::from_uid(Uid::from_raw(*uid)), Ok(None));
    let free = DYNAMIC_UIDS.rev().find(is_free);
    let uid = free.with_context(|| {
        format!("there is no account for the agent: make one with the name {OWN_ACCOUNT}, or set SlurmdUser in slurm.conf")
    })?;
    Ok(user(uid, uid, ""))
}

/// Whether [`attempt`](super::run) will find an account for the agent; for a process that has not
/// gone to the background yet.
///
/// # Errors
/// There is no account, or the named one does not exist.
pub fn check_account(slurmd_user: &str) -> anyhow::Result<()> {
    find(slurmd_user).map(drop)
}

fn by_name(name: &str) -> nix::Result<Option<Account>> {
    match name.parse() {
        Ok(uid) => Account::from_uid(Uid::from_raw(uid)),
        Err(_) => Account::from_name(name),
    }
}

fn of_account(account: &Account) -> ProcessIdentity {
    user(account.uid.as_raw(), account.gid.as_raw(), &account.name)
}

/// Without supplementary groups.
fn user(uid: u32, gid: u32, name: &str) -> ProcessIdentity {
    ProcessIdentity {
        uid,
        gid,
        groups: Vec::new(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_root_by_another_name() {
        if !geteuid().is_root() {
            let own = find("no-such-account").unwrap();
            assert_eq!(own.uid, geteuid().as_raw(), "there is no choice");
            return;
        }
        for unset in ["", "root", "0"] {
            let account = find(unset).unwrap();
            assert!(account.uid != 0 && account.gid != 0 && account.groups.is_empty());
        }
        assert_eq!(find("65534").unwrap().uid, 65_534);
        let error = find("no-such-account").unwrap_err().to_string();
        assert!(error.contains("make it"), "{error}");
    }
}
