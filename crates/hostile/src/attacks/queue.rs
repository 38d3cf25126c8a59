//! All records that the queue may have, taken by one user.

use super::{finished, small_job, submitted, victim_works};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::requests::{self, range};
use crate::sys::{ATTACKER, ROOT};
use crate::target::{Target, until};
use muster_model::spec::{ArraySpec, JobSpec};
use std::time::Duration;

/// More submissions than the queue of the cluster has records.
const SUBMISSIONS: u32 = 2500;

/// Submissions until one is refused; another user's is not.
pub(super) fn full_queue(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let spec = |number: u32| JobSpec {
        hold: true,
        array: number.is_multiple_of(2).then(|| ArraySpec {
            indices: range(0, 900),
            throttle: None,
        }),
        ..small_job(target, ATTACKER)
    };
    for number in 0..SUBMISSIONS {
        let answer = target.ask(ATTACKER, requests::submit(spec(number), "#!/bin/sh\n"));
        outcome.count("a submission", &answer);
        if submitted(&answer).is_none() {
            break;
        }
    }
    if let Err(e) = victim_works(target, None, Duration::from_secs(30)) {
        outcome.finding(format!("where one user has filled the queue: {e}"));
    }
    let outcome = finished(target, outcome);
    // Others need the records.
    until(|| target.run(ROOT, "squeue -h -t all -o %i").out.is_empty());
    outcome
}
