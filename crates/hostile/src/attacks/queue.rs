//! All records that the queue may have, taken by one user.

use super::{finished, small_job, submitted, victim_works};
use crate::jobs::until_queue_is_empty;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::requests::{self, range};
use crate::sys::ATTACKER;
use crate::target::Target;
use muster_model::spec::{ArraySpec, JobSpec};
use std::time::Duration;

/// More submissions than the queue of the cluster has records.
const SUBMISSIONS: u32 = 2500;

/// Submissions until one is refused; another user's is not.
pub(super) fn full_queue(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let array = ArraySpec {
        indices: range(0, 900),
        throttle: None,
    };
    // Arrays while there is room for one, then single jobs.
    for array in [Some(array), None] {
        let spec = JobSpec {
            hold: true,
            array,
            ..small_job(target, ATTACKER)
        };
        for _ in 0..SUBMISSIONS {
            let answer = target.ask(ATTACKER, requests::submit(spec.clone(), "#!/bin/sh\n"));
            outcome.count("a submission", &answer);
            if submitted(&answer).is_none() {
                break;
            }
        }
    }
    if let Err(e) = victim_works(target, None, Duration::from_secs(30)) {
        outcome.finding(format!("where one user has filled the queue: {e}"));
    }
    let outcome = finished(target, outcome);
    until_queue_is_empty(target);
    outcome
}
