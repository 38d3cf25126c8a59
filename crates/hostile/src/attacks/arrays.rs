//! Sets of array indices that no command writes: overlapping, reversed, unsorted, repeated, beyond every limit.

use super::{finished, in_seconds, must_submit, or_end, small_job, victim_works};
use crate::cbor::Value;
use crate::outcome::Outcome;
use crate::peer;
use crate::random::Random;
use crate::requests::{self, range};
use crate::sys::{ATTACKER, VICTIM};
use crate::target::Target;
use muster_model::command::{JobSelection, JobTarget, JobUpdate, SignalScope, UserCommand};
use muster_model::ids::JobId;
use muster_model::spec::{ArraySpec, JobSpec};
use muster_model::time::TimeLimit;
use muster_proto::client::RequestBody;
use std::time::Duration;

const MAX: u64 = u32::MAX as u64;

/// Invalid sets of indices.
const BAD: [&[(u64, u64)]; 8] = [
    &[(0, 3), (2, 9)],
    &[(5, 1)],
    &[(4, 9), (0, 1)],
    &[(1, 1), (1, 2)],
    &[(0, 50_000), (1, 2)],
    &[(0, MAX), (1, 2)],
    &[(0, 1 << 32)],
    &[(1 << 63, u64::MAX)],
];

/// A set, though one that no array of the cluster has.
const WIDE: &[(u64, u64)] = &[(0, MAX)];

/// Marks the place of a set of indices; more than any array of the cluster has.
const MARKER: (u32, u32) = (70_001, 70_003);

fn marked(message: &Value, ranges: &[(u64, u64)]) -> Value {
    let marker = [(u64::from(MARKER.0), u64::from(MARKER.1))];
    message.replaced(&Value::ranges(&marker), &Value::ranges(ranges))
}

/// An array whose indices overlap, with a begin that comes soon.
pub(super) fn overlapping_array(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    for ranges in BAD.into_iter().chain([WIDE]) {
        let spec = JobSpec {
            array: Some(ArraySpec {
                indices: range(MARKER.0, MARKER.1),
                throttle: Some(1),
            }),
            begin: Some(in_seconds(1)),
            ..small_job(target, ATTACKER)
        };
        let message = peer::request(requests::submit(spec, "#!/bin/sh\n"));
        let answer = target.ask_tree(ATTACKER, &marked(&message, ranges));
        outcome.must_refuse(&format!("an array of {ranges:?}"), &answer);
    }
    // A job that begins later ends: the controller has gone on past the begin of theirs.
    let spec = JobSpec {
        begin: Some(in_seconds(1)),
        ..small_job(target, VICTIM)
    };
    if let Some(job) = must_submit(target, VICTIM, spec, "#!/bin/sh\n", &mut outcome) {
        outcome.require(
            target.ended(job).as_deref() == Some("COMPLETED"),
            "a job with a begin does not run",
        );
    }
    finished(target, outcome)
}

/// Commands about some tasks of an array.
fn about_tasks(job: JobId) -> Vec<UserCommand> {
    let target = || JobTarget {
        job,
        tasks: Some(range(MARKER.0, MARKER.1)),
        component: None,
    };
    let selection = || JobSelection {
        targets: vec![target()],
        ..JobSelection::default()
    };
    vec![
        UserCommand::Cancel {
            selection: selection(),
        },
        UserCommand::Signal {
            selection: selection(),
            signal: 10,
            scope: SignalScope::Full,
        },
        UserCommand::Hold {
            target: target(),
            user: true,
        },
        UserCommand::Release { target: target() },
        UserCommand::Requeue {
            target: target(),
            hold: true,
            special_exit: false,
            incomplete: false,
        },
        UserCommand::Suspend { target: target() },
        UserCommand::Resume { target: target() },
        UserCommand::Top { target: target() },
        UserCommand::UpdateJob {
            target: target(),
            update: Box::new(JobUpdate {
                comment: Some("x".to_owned()),
                ..JobUpdate::default()
            }),
        },
        UserCommand::UpdateStep {
            target: target(),
            step: None,
            time_limit: TimeLimit::Unlimited,
        },
        UserCommand::Notify {
            target: target(),
            text: "x".to_owned(),
        },
    ]
}

/// Commands about tasks of an array, of the user's own and of another's, with such sets.
pub(super) fn overlapping_tasks(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let array = |user| JobSpec {
        array: Some(ArraySpec {
            indices: range(0, 900),
            throttle: None,
        }),
        hold: true,
        ..small_job(target, user)
    };
    let script = "#!/bin/sh\n";
    let own = or_end!(
        must_submit(target, ATTACKER, array(ATTACKER), script, &mut outcome),
        target,
        outcome
    );
    let other = or_end!(
        must_submit(target, VICTIM, array(VICTIM), script, &mut outcome),
        target,
        outcome
    );
    let waiting = || {
        let jobs = target.jobs(crate::sys::ROOT, &[]);
        jobs.iter().filter(|job| !job.state.is_ended()).count()
    };
    let records = waiting();
    // One after the other: a controller that hangs at one of them answers no other.
    'all: for job in [own, other, JobId(u64::MAX)] {
        for ranges in BAD {
            for command in about_tasks(job) {
                let what = format!("tasks {ranges:?} of {job}");
                let message = peer::request(RequestBody::Command(Box::new(command)));
                let answer = target.ask_tree(ATTACKER, &marked(&message, ranges));
                outcome.must_refuse(&what, &answer);
                if answer == peer::PeerReply::Silent {
                    break 'all;
                }
            }
        }
    }
    outcome.require(
        waiting() == records,
        "the queue has other records than before",
    );
    if let Err(e) = victim_works(target, None, Duration::from_secs(30)) {
        outcome.finding(e);
    }
    target.run(crate::sys::ROOT, &format!("scancel {other}"));
    finished(target, outcome)
}
