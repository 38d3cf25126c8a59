//! Reports that the controller has not acknowledged. They live in memory: after a restart of the agent the shim
//! tells everything again, and the controller ignores what it knows by attempt.

use muster_core::ids::{Attempt, JobId, StepNo};
use muster_core::time::Timestamp;
use muster_proto::node::{NumberedReport, Report};
use std::collections::VecDeque;

/// The queue of reports.
#[derive(Debug)]
pub(super) struct Reports {
    next: u64,
    queue: VecDeque<NumberedReport>,
    /// How many at the front were sent on this connection.
    sent: usize,
}

impl Reports {
    /// Numbers begin above those of all earlier lives: milliseconds of the clock, with room for a million reports
    /// in each.
    pub(super) fn new(now: Timestamp) -> Reports {
        Reports {
            next: u64::try_from(now.0).unwrap_or(0) << 20,
            queue: VecDeque::new(),
            sent: 0,
        }
    }

    /// Adds one.
    pub(super) fn push(&mut self, job: JobId, attempt: Attempt, report: Report) {
        self.queue.push_back(NumberedReport {
            seq: self.next,
            job,
            attempt,
            report,
        });
        self.next += 1;
    }

    /// Whether the end of a step waits to be acknowledged.
    pub(super) fn has_step_end(&self, run: (JobId, Attempt), step: StepNo) -> bool {
        self.queue.iter().any(|r| {
            (r.job, r.attempt) == run
                && matches!(&r.report, Report::StepEnded { step: s, .. } if *s == step)
        })
    }

    /// What has not been sent on this connection.
    pub(super) fn unsent(&mut self) -> Option<Vec<NumberedReport>> {
        let unsent: Vec<_> = self.queue.iter().skip(self.sent).cloned().collect();
        self.sent = self.queue.len();
        (!unsent.is_empty()).then_some(unsent)
    }

    /// A new connection: everything goes out again.
    pub(super) fn send_all_again(&mut self) {
        self.sent = 0;
    }

    /// Drops and gives those up to `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Vec<NumberedReport> {
        let count = self.queue.partition_point(|r| r.seq <= seq);
        self.sent = self.sent.saturating_sub(count);
        self.queue.drain(..count).collect()
    }
}
