//! Jobs that attacks are about, and those that must work beside them.

use crate::outcome::Outcome;
use crate::peer::PeerReply;
use crate::requests;
use crate::sys::{ROOT, User, VICTIM};
use crate::target::{Target, until};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::spec::JobSpec;
use muster_proto::client::{AllocationInfo, Query, RequestBody, Response};
use std::time::{Duration, Instant};

/// The number that a submission was given.
pub(crate) fn submitted(answer: &PeerReply<Response>) -> Option<JobId> {
    match answer {
        PeerReply::Accepted(Response::Reply(reply)) => match reply.as_ref() {
            Reply::Submitted { id, .. } => Some(*id),
            _ => None,
        },
        _ => None,
    }
}

/// Submits a job that must be accepted.
pub(crate) fn must_submit(
    target: &Target,
    user: User,
    spec: JobSpec,
    script: &str,
    outcome: &mut Outcome,
) -> Option<JobId> {
    let answer = target.ask(user, requests::submit(spec, script));
    outcome.count("an ordinary job", &answer);
    let job = submitted(&answer);
    if job.is_none() {
        outcome.finding(format!(
            "an ordinary job of user {} was not accepted: {answer:?}",
            user.uid
        ));
    }
    job
}

/// A small job of a user on the first node.
pub(crate) fn small_job(target: &Target, user: User) -> JobSpec {
    let mut spec = requests::job(&target.dir_of(user).display().to_string());
    spec.ask.nodelist = Some(FIRST_NODE.to_owned());
    spec
}

/// The node on which jobs of attacks run that are about one node.
pub(crate) const FIRST_NODE: &str = "n1";

/// A job that runs on the first node, and its allocation as its owner sees it.
pub(crate) fn running_job(
    target: &Target,
    user: User,
    outcome: &mut Outcome,
) -> Option<Box<AllocationInfo>> {
    let mut spec = small_job(target, user);
    spec.ask.cpus_per_task = Some(2);
    running_job_of(target, user, spec, outcome)
}

/// As above, for a given job.
pub(crate) fn running_job_of(
    target: &Target,
    user: User,
    spec: JobSpec,
    outcome: &mut Outcome,
) -> Option<Box<AllocationInfo>> {
    let job = must_submit(target, user, spec, "#!/bin/sh\nexec sleep 600\n", outcome)?;
    if !until(|| state(target, job) == Some(JobState::Running)) {
        outcome.finding("an ordinary job did not start");
        return None;
    }
    let query = Query::Allocation(job);
    match target.ask(user, RequestBody::Query(Box::new(query))) {
        PeerReply::Accepted(Response::JobStarted(info)) => Some(info),
        other => {
            outcome.finding(format!("an owner does not get its allocation: {other:?}"));
            None
        }
    }
}

/// The state of a job in the queue.
pub(crate) fn state(target: &Target, job: JobId) -> Option<JobState> {
    target.jobs(ROOT, &[job]).first().map(|job| job.state)
}

/// Cancels all jobs of a user, removes its crontab and waits until none of its processes is left.
pub(crate) fn clear(target: &Target, user: User, outcome: &mut Outcome) {
    // It would have jobs that wait.
    let none = UserCommand::SetCrontab(Box::default());
    target.ask(user, RequestBody::Command(Box::new(none)));
    target.run(ROOT, &format!("scancel --user={}", user.uid));
    let gone = until(|| {
        let left = target.run(ROOT, &format!("squeue -h -u {} -o %i", user.uid));
        left.code == 0 && left.out.is_empty() && target.processes_of(user).is_empty()
    });
    if !gone {
        let left = target.processes_of(user);
        outcome.finding(format!(
            "processes of user {} are left of no job: {left:?}",
            user.uid
        ));
    }
}

/// An ordinary job of another user: submitted, run, ended, within a time.
pub(crate) fn victim_works(
    target: &Target,
    node: Option<&str>,
    limit: Duration,
) -> Result<(), String> {
    let started = Instant::now();
    let mut spec = requests::job(&target.dir_of(VICTIM).display().to_string());
    spec.ask.nodelist = node.map(str::to_owned);
    let answer = target.ask(VICTIM, requests::submit(spec, "#!/bin/sh\nexit 0\n"));
    let Some(job) = submitted(&answer) else {
        return Err(format!("another user's job was not accepted: {answer:?}"));
    };
    match target.ended(job).as_deref() {
        Some("COMPLETED") if started.elapsed() <= limit => Ok(()),
        Some("COMPLETED") => Err(format!(
            "another user's job took {:.1} s",
            started.elapsed().as_secs_f32()
        )),
        other => Err(format!(
            "another user's job: {}",
            other.unwrap_or("not ended")
        )),
    }
}

/// Waits until the records of jobs that have ended are purged: others need the room.
pub(crate) fn until_queue_is_empty(target: &Target) {
    until(|| target.run(ROOT, "squeue -h -t all -o %i").out.is_empty());
}
