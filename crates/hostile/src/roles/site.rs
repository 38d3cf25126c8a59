//! Accounts, and users with each role, that are there as long as an attack needs them.

use crate::jobs::{clear, must_submit, running_job_of, small_job};
use crate::outcome::Outcome;
use crate::requests::{Ids, range};
use crate::sys::{ADMINISTRATOR, COORDINATOR, OPERATOR, ROOT, User, VICTIM};
use crate::target::Target;
use muster_model::spec::{ArraySpec, JobSpec, Owner};

/// The account that is coordinated.
pub(super) const OWN: &str = "labs";
/// An account under it.
pub(super) const UNDER: &str = "optics";
/// An account that is neither.
pub(super) const FOREIGN: &str = "firm";

/// The victim has jobs in both accounts.
const MAKE: &str = "set -e; edit='sacctmgr -i -Q'; $edit add account labs,firm; $edit add account optics parent=labs; \
                    $edit add user games account=labs,firm; $edit add user mail account=labs; \
                    $edit add user man account=firm adminlevel=Operator; \
                    $edit add user lp account=firm adminlevel=Administrator; \
                    $edit add coordinator account=labs names=mail";
/// Additions of attacks are removed as well.
const REMOVE: &str = "sacctmgr -i -Q delete user games,mail,man,lp,nobody,bin,x; \
                      sacctmgr -i -Q delete account c1,c2,optics,labs,firm,x; true";

/// The accounts and users, until this is dropped.
pub(super) struct Site<'t>(&'t Target);

impl<'t> Site<'t> {
    pub(super) fn make(target: &'t Target, outcome: &mut Outcome) -> Option<Site<'t>> {
        let site = Site(target);
        let ran = target.run(ROOT, MAKE);
        if ran.code != 0 {
            outcome.finding(format!("root makes no accounts: {} {}", ran.out, ran.err));
            return None;
        }
        Some(site)
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        self.0.run(ROOT, REMOVE);
    }
}

/// The victim, as requests name an owner.
pub(super) fn victim() -> Owner {
    Owner {
        uid: VICTIM.uid,
        gid: VICTIM.gid,
        user: "games".to_owned(),
        group: "games".to_owned(),
    }
}

/// Jobs of the victim in an account.
pub(super) fn jobs_in(target: &Target, account: &str, outcome: &mut Outcome) -> Option<Ids> {
    let held = || JobSpec {
        hold: true,
        account: Some(account.to_owned()),
        ..small_job(target, VICTIM)
    };
    let array = JobSpec {
        array: Some(ArraySpec {
            indices: range(0, 4),
            throttle: None,
        }),
        ..held()
    };
    let runs = JobSpec {
        hold: false,
        ..held()
    };
    let script = "#!/bin/sh\nexec sleep 600\n";
    Some(Ids {
        pending: must_submit(target, VICTIM, held(), script, outcome)?,
        array: must_submit(target, VICTIM, array, script, outcome)?,
        running: running_job_of(target, VICTIM, runs, outcome)?.job.id,
    })
}

/// Ends the jobs of all users who take part.
pub(super) fn clear_all(target: &Target, outcome: &mut Outcome) {
    for user in [VICTIM, OPERATOR, ADMINISTRATOR, COORDINATOR] {
        clear(target, user, outcome);
    }
}

/// A user's name in messages.
pub(super) fn name_of(user: User) -> &'static str {
    match user {
        VICTIM => "the owner",
        OPERATOR => "an operator",
        ADMINISTRATOR => "an administrator",
        COORDINATOR => "a coordinator",
        _ => "a stranger",
    }
}
