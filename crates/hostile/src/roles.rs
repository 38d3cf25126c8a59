//! Every request with every role: outsiders are refused and change nothing, owners and root are not refused for who they
//! are.

pub(crate) mod coordinator;
pub(crate) mod levels;
pub(crate) mod secrets;
mod site;

use crate::jobs::{clear, must_submit, running_job, small_job};
use crate::outcome::Outcome;
use crate::peer::{self, PeerReply};
use crate::random::Random;
use crate::requests::{self, Ids, Rights, Sample, range};
use crate::sys::{ATTACKER, NAMELESS, ROOT, User, VICTIM, as_user};
use crate::target::Target;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{ArraySpec, JobSpec};
use muster_proto::client::{RequestBody, Response};

/// Requests not made by root: they would stop the cluster, or a node.
const NOT_BY_ROOT: [&str; 6] = [
    "Shutdown",
    "NodeHello",
    "ServeNode",
    "Reboot",
    "Hold",
    "SetDebug",
];

/// Commands that undo root's requests.
const UNDO: &str = "scontrol update partitionname=batch state=up; scontrol update nodename=n1 state=resume; \
                    scontrol delete reservation=r1; scontrol delete partition=p1; true";

/// State that users see of everything that requests may change; of jobs, the existing ones: ended ones are forgotten in
/// time.
const STATE: &str = "squeue -h -a -o '%i %T %r %u %j %k' | sort; scontrol -o show partition; \
                     scontrol -o show reservation; sinfo -h -N -o '%N %T %E %w' | sort; \
                     sacctmgr -n -P show account; sacctmgr -n -P show user; sacctmgr -n -P show qos; true";

/// Jobs of a user that requests name.
pub(crate) fn jobs(target: &Target, user: User, outcome: &mut Outcome) -> Option<Ids> {
    let held = || JobSpec {
        hold: true,
        ..small_job(target, user)
    };
    let array = JobSpec {
        array: Some(ArraySpec {
            indices: range(0, 4),
            throttle: None,
        }),
        ..held()
    };
    let script = "#!/bin/sh\nexec sleep 600\n";
    Some(Ids {
        pending: must_submit(target, user, held(), script, outcome)?,
        array: must_submit(target, user, array, script, outcome)?,
        running: running_job(target, user, outcome)?.job.id,
    })
}

/// Every request to the controller and to an agent, with every role.
pub(crate) fn every_request(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(ids) = jobs(target, VICTIM, &mut outcome) else {
        return outcome;
    };
    for user in [ATTACKER, NAMELESS] {
        let ask = |body: RequestBody| target.ask(user, body);
        by_outsider(target, user, &ask, &ids, &mut outcome);
    }
    agent_by_outsider(target, ids.running, &mut outcome);
    clear(target, VICTIM, &mut outcome);
    by_owner(target, &mut outcome);
    by_root(target, &mut outcome);
    for user in [ATTACKER, NAMELESS, VICTIM] {
        clear(target, user, &mut outcome);
    }
    outcome
}

fn denied(answer: &PeerReply<Response>) -> bool {
    matches!(answer, PeerReply::Refused(refusal) if refusal.code == RefusalCode::AccessDenied)
}

fn of_rights(ids: &Ids, rights: impl Fn(Rights) -> bool) -> Vec<Sample> {
    let mut samples = requests::samples(ids);
    samples.retain(|sample| rights(sample.rights));
    samples
}

/// Somebody who has nothing to do with the jobs, and asks in this way.
pub(crate) fn by_outsider(
    target: &Target,
    user: User,
    ask: &dyn Fn(RequestBody) -> PeerReply<Response>,
    ids: &Ids,
    outcome: &mut Outcome,
) {
    for sample in of_rights(ids, |rights| rights == Rights::Anyone) {
        let answer = ask(sample.body);
        let what = format!("{} of user {}", sample.name, user.uid);
        outcome.count(&what, &answer);
        // A token names its user.
        let has_no_name = sample.name == "Token" && user == NAMELESS;
        if denied(&answer) && !has_no_name {
            outcome.finding(format!("{what}: denied, though anyone may ask"));
        }
    }
    clear(target, user, outcome);
    let before = target.run(ROOT, STATE).out;
    for sample in of_rights(ids, |rights| rights != Rights::Anyone) {
        let answer = ask(sample.body);
        let what = format!("{} of user {}", sample.name, user.uid);
        outcome.must_refuse(&what, &answer);
        if answer == PeerReply::Closed {
            outcome.finding(format!("{what}: the connection was closed without a word"));
        }
    }
    let after = target.run(ROOT, STATE).out;
    let differs = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    if before != after {
        outcome.finding(format!(
            "requests of user {} that were refused have changed something: {differs:?}",
            user.uid
        ));
    }
}

/// Somebody who does not have the job's key, at the job's agent.
fn agent_by_outsider(target: &Target, job: JobId, outcome: &mut Outcome) {
    let agent = target.agent("n1");
    for user in [ATTACKER, NAMELESS] {
        for key in [&[0; 32][..], &[], &[7; 4096]] {
            for sample in requests::agent_samples(job, key) {
                let answer = as_user(user, || peer::ask_agent(&agent, &sample.request));
                let what = format!("{} of user {}", sample.name, user.uid);
                outcome.must_refuse(&what, &answer);
            }
        }
    }
    for user in [VICTIM, ROOT] {
        for sample in requests::agent_samples(job, &[]) {
            if matches!(sample.name, "Inspect" | "Measure") {
                let answer = as_user(user, || peer::ask_agent(&agent, &sample.request));
                outcome.count(sample.name, &answer);
                if !matches!(answer, PeerReply::Accepted(_)) {
                    outcome.finding(format!("{} of user {}: {answer:?}", sample.name, user.uid));
                }
            }
        }
    }
}

/// The owner, about a job of its own; each time another, as most requests end it.
fn by_owner(target: &Target, outcome: &mut Outcome) {
    let kinds = of_rights(&Ids::default(), |rights| rights != Rights::Anyone).len();
    let mut ids: Option<Ids> = None;
    for kind in 0..kinds {
        let there = ids.filter(|ids| {
            let wanted = [ids.pending, ids.array, ids.running];
            let jobs = target.jobs(ROOT, &wanted);
            jobs.iter().filter(|job| !job.state.is_ended()).count() == wanted.len()
        });
        ids = there.or_else(|| {
            clear(target, VICTIM, outcome);
            jobs(target, VICTIM, outcome)
        });
        let Some(ids) = ids else { return };
        let samples = of_rights(&ids, |rights| rights != Rights::Anyone);
        let Some(sample) = samples.into_iter().nth(kind) else {
            return;
        };
        let answer = target.ask(VICTIM, sample.body);
        match sample.rights {
            // Only where an administrator has allowed it.
            Rights::Owner if sample.name == "Top" => outcome.count(sample.name, &answer),
            Rights::Owner | Rights::Anyone => {
                outcome.count(sample.name, &answer);
                if denied(&answer) {
                    outcome.finding(format!("{} of the owner: denied", sample.name));
                }
            }
            Rights::Administrator => {
                outcome.must_refuse(&format!("{} of an owner", sample.name), &answer);
            }
        }
    }
    clear(target, VICTIM, outcome);
}

/// Root, about another's jobs.
fn by_root(target: &Target, outcome: &mut Outcome) {
    let Some(ids) = jobs(target, VICTIM, outcome) else {
        return;
    };
    for sample in requests::samples(&ids) {
        if NOT_BY_ROOT.contains(&sample.name) {
            continue;
        }
        let answer = target.ask(ROOT, sample.body);
        outcome.count(sample.name, &answer);
        if denied(&answer) {
            outcome.finding(format!("{} of root: denied", sample.name));
        }
    }
    target.run(ROOT, UNDO);
    target.run(ROOT, "scancel --user=root");
}
