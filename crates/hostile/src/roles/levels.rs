//! Every request by operators and administrators, about another user's jobs and the cluster: requests in their rows of
//! the table of rights are not denied, and all others are, and change nothing.

use super::site::{FOREIGN, Site, clear_all, jobs_in, name_of, victim};
use super::{NOT_BY_ROOT, STATE, UNDO, denied};
use crate::jobs::{clear, submitted};
use crate::mutate;
use crate::outcome::Outcome;
use crate::peer;
use crate::random::Random;
use crate::requests::accounts::{add_users, delete_users, edit, modify_users, rename_user};
use crate::requests::parts::{NestedRequest, Other, parts};
use crate::requests::{self, Ids, Sample, job, submit};
use crate::sys::{ADMINISTRATOR, COORDINATOR, OPERATOR, ROOT, User, VICTIM};
use crate::target::{Target, until};
use muster_model::job::JobState;
use muster_model::rights::{AccessRequest as Row, Group, Role, suffices};
use muster_model::spec::JobSpec;
use muster_proto::client::RequestBody;

/// Wrong values that are tried on the requests that a role does not have.
const WRONG: usize = 300;

/// Words that a parser might take for a role.
const LEVELS: [&str; 10] = [
    "Administrator",
    "administrator",
    "ADMIN",
    "Admin",
    "Operator",
    " Operator",
    "Operator\0",
    "SlurmUser",
    "root",
    "2",
];

/// Listing of each user's role.
const ROLES: &str = "sacctmgr -nP show user format=user,adminlevel | sort";
/// Listing of records that only administrators change.
const CLUSTER: &str = "sinfo -h -N -o '%N %T %E %w' | sort; scontrol -o show partition; scontrol show config | \
                       grep -v '^Configuration data'; sacctmgr -nP show qos; sacctmgr -nP show user format=user,adminlevel";

/// See the module.
pub(crate) fn requests_of_each_level(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(site) = Site::make(target, &mut outcome) else {
        return outcome;
    };
    for (user, role) in [
        (OPERATOR, Role::Operator),
        (ADMINISTRATOR, Role::Administrator),
    ] {
        let Some(ids) = jobs_in(target, FOREIGN, &mut outcome) else {
            break;
        };
        by_role(target, user, role, &ids, &mut outcome);
        parts_by_role(target, user, role, &mut outcome);
        for_another(target, user, &mut outcome);
    }
    roles_of_themselves(target, &mut outcome);
    wrong_values(target, random, &mut outcome);
    clear_all(target, &mut outcome);
    drop(site);
    outcome
}

/// Requests that the role lacks first, since those that it has end the jobs.
fn by_role(target: &Target, user: User, role: Role, ids: &Ids, outcome: &mut Outcome) {
    let (own, lacking): (Vec<Sample>, Vec<Sample>) = requests::samples(ids)
        .into_iter()
        .partition(|sample| suffices(role, sample.row()));
    let before = target.run(ROOT, STATE).out;
    for sample in lacking {
        let what = format!("{} of {}", sample.name, name_of(user));
        must_deny(target, user, &what, sample.body, outcome);
    }
    if target.run(ROOT, STATE).out != before {
        outcome.finding(format!(
            "requests of {} that were denied have changed something",
            name_of(user)
        ));
    }
    for sample in own {
        if NOT_BY_ROOT.contains(&sample.name) {
            continue;
        }
        let what = format!("{} of {}", sample.name, name_of(user));
        may_do(target, user, &what, sample.body, outcome);
    }
    target.run(ROOT, UNDO);
    for user in [VICTIM, user] {
        clear(target, user, outcome);
    }
}

/// Asks for something that must be denied by right, and by nothing else.
pub(super) fn must_deny(
    target: &Target,
    user: User,
    what: &str,
    body: RequestBody,
    outcome: &mut Outcome,
) {
    let answer = target.ask(user, body);
    outcome.count(what, &answer);
    if !denied(&answer) {
        outcome.finding(format!("{what}: not denied: {answer:?}"));
    }
}

/// Asks for something that may be refused, but not for want of a right.
pub(super) fn may_do(
    target: &Target,
    user: User,
    what: &str,
    body: RequestBody,
    outcome: &mut Outcome,
) {
    let answer = target.ask(user, body);
    outcome.count(what, &answer);
    if denied(&answer) {
        outcome.finding(format!("{what}: {answer:?}"));
    }
}

/// Parts of requests, about jobs that are held.
fn parts_by_role(target: &Target, user: User, role: Role, outcome: &mut Outcome) {
    let Some(all) = parts_about(target, user, FOREIGN, outcome) else {
        return;
    };
    for NestedRequest { row, body } in all {
        let what = format!("the part {} of {}", row.name(), name_of(user));
        match suffices(role, row) {
            true => may_do(target, user, &what, body, outcome),
            false => must_deny(target, user, &what, body, outcome),
        }
    }
    for user in [VICTIM, user] {
        clear(target, user, outcome);
    }
}

/// All parts about three jobs of the victim's in an account: one runs, and one is held by root.
pub(super) fn parts_about(
    target: &Target,
    user: User,
    account: &str,
    outcome: &mut Outcome,
) -> Option<Vec<NestedRequest>> {
    let spec = || JobSpec {
        account: Some(account.to_owned()),
        ..crate::jobs::small_job(target, VICTIM)
    };
    let mut submitted = |hold: bool| {
        let spec = JobSpec { hold, ..spec() };
        let script = "#!/bin/sh\nexec sleep 600\n";
        crate::jobs::must_submit(target, VICTIM, spec, script, outcome)
    };
    let (waits, held, runs) = (submitted(true)?, submitted(true)?, submitted(false)?);
    until(|| crate::jobs::state(target, runs) == Some(JobState::Running));
    target.run(ROOT, &format!("scontrol hold {held}"));
    Some(parts(&Other {
        owner: victim(),
        waits,
        held,
        runs,
        work_dir: &target.dir_of(user).display().to_string(),
    }))
}

/// A submission that names another as its owner is its sender's.
fn for_another(target: &Target, user: User, outcome: &mut Outcome) {
    let root = muster_model::spec::Owner {
        uid: 0,
        gid: 0,
        user: "root".to_owned(),
        group: "root".to_owned(),
    };
    for owner in [victim(), root] {
        let spec = JobSpec {
            hold: true,
            owner,
            ..job(&target.dir_of(user).display().to_string())
        };
        let answer = target.ask(user, submit(spec, "#!/bin/sh\nid -u\n"));
        outcome.count("a submission for another", &answer);
        let id = submitted(&answer);
        let jobs = id.map_or_else(Vec::new, |id| target.jobs(ROOT, &[id]));
        if jobs.iter().any(|job| job.spec.owner.uid != user.uid) {
            outcome.finding(format!("{} submits for another", name_of(user)));
        }
    }
    clear(target, user, outcome);
}

/// Users who are no administrators make nobody one, by whatever words.
fn roles_of_themselves(target: &Target, outcome: &mut Outcome) {
    let before = target.run(ROOT, ROLES).out;
    for (user, name) in [(OPERATOR, "man"), (COORDINATOR, "mail")] {
        for level in LEVELS {
            for ask in [
                modify_users(&[], level),
                modify_users(&["labs"], level),
                add_users(&["labs"], level, &[]),
            ] {
                let body = RequestBody::Command(Box::new(edit(&[name], ask)));
                let answer = target.ask(user, body);
                let what = format!("AdminLevel={level:?} of {}", name_of(user));
                outcome.must_refuse(&what, &answer);
            }
        }
    }
    // Or by a record that has a role: its own out of the way, and an administrator's in its place.
    for (name, ask) in [
        ("man", rename_user("c1")),
        ("lp", rename_user("man")),
        ("lp", rename_user("c1")),
        ("man", delete_users(&[])),
        ("lp", delete_users(&[])),
    ] {
        for user in [OPERATOR, COORDINATOR] {
            let what = format!("the record of {name}, by {}", name_of(user));
            let body = RequestBody::Command(Box::new(edit(&[name], ask.clone())));
            must_deny(target, user, &what, body, outcome);
        }
    }
    let after = target.run(ROOT, ROLES).out;
    if before != after {
        outcome.finding(format!("roles were {before:?} and are {after:?}"));
    }
}

/// Wrong values in the requests that only administrators may make, by an operator and a coordinator. What they have become may be
/// anything; the cluster is not changed by it.
fn wrong_values(target: &Target, random: &mut Random, outcome: &mut Outcome) {
    let is_forbidden = |row: Row| {
        row.group() != Group::Accounts && row != Row::Submit && !suffices(Role::Operator, row)
    };
    let mut samples = requests::samples(&Ids::default());
    samples.retain(|sample: &Sample| is_forbidden(sample.row()));
    let before = target.run(ROOT, CLUSTER).out;
    for number in 0..WRONG {
        let Some(sample) = random.pick(&samples) else {
            return;
        };
        let message = mutate::several(&peer::request(sample.body.clone()), random);
        let user = [OPERATOR, COORDINATOR][number % 2];
        let answer = target.ask_tree(user, &message);
        let what = format!("{} with wrong values of {}", sample.name, name_of(user));
        match peer::body_of(&message) {
            Some(body) if !is_forbidden(Row::from(&body)) => outcome.count(&what, &answer),
            _ => outcome.must_refuse(&what, &answer),
        }
    }
    let after = target.run(ROOT, CLUSTER).out;
    let differs = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    if before != after {
        outcome.finding(format!(
            "wrong values of who may change nothing changed the cluster: {differs:?}"
        ));
    }
}
