//! The ends of a step's nodes in one, and who tells of it.

use super::{Record, StepKey, Steps};
use crate::now;
use muster_core::job::{ExitStatus, JobState, StepEnd};

impl Steps {
    /// The daemon of a step has told of its end here, and tells srun as well: where it does so from the start, srun waits
    /// for nothing else.
    pub(in crate::agent) fn srun_hears_by_line(&mut self, key: StepKey) {
        if let Some(running) = self.running.get_mut(&key)
            && running.direct
            && running.heard_by_line
        {
            running.client = None;
        }
    }
}

/// All nodes' ends in one: the worst status, the sum of the usage.
pub(super) fn total(record: &Record) -> StepEnd {
    let mut ends = record.nodes.iter().filter_map(|n| n.end.as_ref());
    let Some(mut out) = ends.next().cloned() else {
        return StepEnd::never_ran(now());
    };
    let weight = |exit: ExitStatus| {
        if exit.signal == 0 {
            exit.code
        } else {
            128 + exit.signal
        }
    };
    for end in ends {
        out.end_time = out.end_time.max(end.end_time);
        if weight(end.exit) > weight(out.exit) {
            out.exit = end.exit;
        }
        if rank(end.state) > rank(out.state) {
            out.state = end.state;
        }
        out.usage.add(&end.usage);
    }
    out
}

fn rank(state: JobState) -> u32 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => 1,
        JobState::Cancelled => 2,
        JobState::Timeout => 3,
        JobState::OutOfMemory => 4,
        _ => 5,
    }
}
