//! Reports that the controller has not acknowledged. They are in memory only: after a restart of the agent the
//! launcher sends everything again, and the controller ignores known reports by attempt.

use muster_model::batching::BatchDelay;
use muster_model::ids::{Attempt, AttemptStep, JobAttempt, JobId, StepNo};
use muster_model::time::Timestamp;
use muster_proto::node::{NumberedReport, Report};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Time that a step's start is held back so that its end can go in the same message. For as long after an end, further
/// ends are held back, too. Most steps at a high rate are over by then, and cost the controller less.
const STEP_REPORT_DELAY: BatchDelay = BatchDelay::from_ms(10);
/// The delay when ends follow each other closely: a turn of the controller and a sync cost the same for any number of
/// reports.
const FOLLOWING_END_DELAY: BatchDelay = BatchDelay::from_ms(30);

/// The queue of reports.
#[derive(Debug)]
pub(super) struct Reports {
    next: u64,
    queue: VecDeque<NumberedReport>,
    /// Number at the front that were sent on this connection.
    sent: usize,
    /// A timer runs for the longest delay of the waiting reports.
    timed: bool,
    /// The timer has run out.
    due: bool,
    /// When the end of a step was sent last.
    ended_ms: Option<u64>,
    /// About how many bytes of the queue are about steps, by launch of their job.
    of_steps: HashMap<JobAttempt, usize>,
    /// Number of ends of each step in the queue.
    ended: HashMap<AttemptStep, usize>,
}

/// Limit of the bytes of one user's unacknowledged reports of steps, which is enough for some thousand steps. Above
/// it no further step of the user begins.
const USER_BYTES_MAX: usize = 16 << 20;
/// The limit for all users.
const STEP_BYTES_MAX: usize = 128 << 20;
/// Approximate size of a report without its texts.
const REPORT_BYTES: usize = 2 << 10;
/// Bytes after which no other report goes into the same message: the reports of several users may be more than one may have.
const MESSAGE_BYTES: usize = 8 << 20;

/// About how many bytes a report is, if it is about a step.
fn step_bytes(report: &Report) -> Option<usize> {
    match report {
        Report::StepStarted(step) => {
            let files = [&step.stdio.stdin, &step.stdio.stdout, &step.stdio.stderr];
            let files: usize = files.into_iter().flatten().map(String::len).sum();
            let texts = step.submit_line.len() + step.name.len() + step.hostlist.len() + files;
            Some(REPORT_BYTES + texts)
        }
        Report::StepEnded { .. } => Some(REPORT_BYTES),
        _ => None,
    }
}

/// About how many bytes a report is.
fn bytes_of(report: &Report) -> usize {
    match report {
        Report::LaunchFailed { error, .. } | Report::NodeFault { error } => {
            REPORT_BYTES + error.len()
        }
        Report::BatchEnded { end, .. } => {
            REPORT_BYTES + end.last_lines.as_ref().map_or(0, String::len)
        }
        Report::Released | Report::Vanished => REPORT_BYTES,
        Report::StepStarted(_) | Report::StepEnded { .. } => {
            step_bytes(report).unwrap_or(REPORT_BYTES)
        }
    }
}

impl Reports {
    /// Numbers begin above those of all earlier agent processes: milliseconds of the clock, with room for a million
    /// reports in each.
    pub(super) fn new(now: Timestamp) -> Reports {
        Reports {
            next: u64::try_from(now.0).unwrap_or(0) << 20,
            queue: VecDeque::new(),
            sent: 0,
            timed: false,
            due: false,
            ended_ms: None,
            of_steps: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    /// Adds one.
    pub(super) fn push(&mut self, job: JobId, attempt: Attempt, report: Report) {
        if let Some(bytes) = step_bytes(&report) {
            *self
                .of_steps
                .entry(JobAttempt::new(job, attempt))
                .or_default() += bytes;
        }
        if let Report::StepEnded { step, .. } = &report {
            let ended = AttemptStep::new(JobAttempt::new(job, attempt), *step);
            *self.ended.entry(ended).or_default() += 1;
        }
        self.queue.push_back(NumberedReport {
            seq: self.next,
            job,
            attempt,
            report,
        });
        self.next += 1;
    }

    /// All were acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of reports that wait to be acknowledged.
    pub(super) fn count(&self) -> usize {
        self.queue.len()
    }

    /// Whether the end of a step waits to be acknowledged.
    pub(super) fn has_step_end(&self, attempt: JobAttempt, step: StepNo) -> bool {
        let ended = AttemptStep::new(attempt, step);
        self.ended.contains_key(&ended)
    }

    /// Takes the reports not yet sent on this connection, as many as fit into a message, so that more may follow; none while they
    /// all may be delayed: starts of steps, and ends that soon follow another.
    pub(super) fn take_unsent(&mut self, now_ms: u64) -> Option<Vec<NumberedReport>> {
        let unsent = self.queue.iter().skip(self.sent);
        let soon = self.follows_end(now_ms);
        let is_end = |r: &NumberedReport| matches!(r.report, Report::StepEnded { .. });
        let patient = |r: &NumberedReport| match r.report {
            Report::StepStarted(_) => true,
            Report::StepEnded { .. } => soon,
            _ => false,
        };
        let due = std::mem::take(&mut self.due);
        if !due && unsent.clone().all(patient) {
            return None;
        }
        if unsent.clone().any(is_end) {
            self.ended_ms = Some(now_ms);
        }
        let mut bytes = 0;
        let fits = |report: &&NumberedReport| {
            let has_room = bytes < MESSAGE_BYTES;
            bytes += bytes_of(&report.report);
            has_room
        };
        let unsent: Vec<_> = unsent.take_while(fits).cloned().collect();
        self.sent += unsent.len();
        // The rest follows at once.
        self.due = self.sent < self.queue.len();
        (!unsent.is_empty()).then_some(unsent)
    }

    /// For how long what waits may wait, if no timer runs; from now on one does, and [`Reports::wait_over`] follows. Milliseconds.
    pub(super) fn start_timer(&mut self, now_ms: u64) -> Option<u64> {
        let wait = match self.follows_end(now_ms) {
            true => FOLLOWING_END_DELAY,
            false => STEP_REPORT_DELAY,
        };
        let wanted = self.queue.len() > self.sent && !std::mem::replace(&mut self.timed, true);
        wanted.then_some(wait.as_ms())
    }

    /// The end of a step has just been sent.
    fn follows_end(&self, now_ms: u64) -> bool {
        self.ended_ms
            .is_some_and(|at| STEP_REPORT_DELAY.is_running(at, now_ms))
    }

    /// The delay that [`Reports::start_timer`] returned is over.
    pub(super) fn wait_over(&mut self) {
        self.timed = false;
        self.due = true;
    }

    /// A new connection: everything goes out again.
    pub(super) fn send_all_again(&mut self) {
        self.sent = 0;
        self.ended_ms = None;
    }

    /// Drops and gives those up to `seq`.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Vec<NumberedReport> {
        let count = self.queue.partition_point(|r| r.seq <= seq);
        self.sent = self.sent.saturating_sub(count);
        let known: Vec<NumberedReport> = self.queue.drain(..count).collect();
        for report in &known {
            let attempt = JobAttempt::new(report.job, report.attempt);
            if let Report::StepEnded { step, .. } = &report.report {
                let ended = AttemptStep::new(attempt, *step);
                if let Entry::Occupied(mut count) = self.ended.entry(ended) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
            if let Some(bytes) = step_bytes(&report.report)
                && let Some(sum) = self.of_steps.get_mut(&attempt)
            {
                *sum = sum.saturating_sub(bytes);
                if *sum == 0 {
                    self.of_steps.remove(&attempt);
                }
            }
        }
        known
    }

    /// Bytes that are about steps of these launches.
    pub(super) fn step_bytes(&self, wanted: impl Fn(JobAttempt) -> bool) -> usize {
        let wanted = self
            .of_steps
            .iter()
            .filter(|(attempt, _)| wanted(**attempt));
        wanted.map(|(_, bytes)| bytes).sum()
    }

    /// Whether a user with this number of bytes in reports must wait with further steps.
    pub(super) fn are_too_many(&self, of_user: usize) -> bool {
        of_user > USER_BYTES_MAX || self.of_steps.values().sum::<usize>() > STEP_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::{Step, StepEnd};
    use muster_model::limits::REQUEST_BYTES_MAX;
    use muster_model::spec::StdioSpec;

    fn started(reports: &mut Reports, step: u32) {
        reports.push(JobId(1), Attempt(1), start_of(step, String::new()));
    }

    fn start_of(step: u32, submit_line: String) -> Report {
        Report::StepStarted(Box::new(Step {
            step: StepNo(step),
            name: "true".to_owned(),
            hostlist: "n1".to_owned(),
            nodes: 1,
            tasks: 1,
            cpus: 1,
            memory_mib: 0,
            start_time: Timestamp(1),
            stdio: StdioSpec::default(),
            submit_line,
            time_limit: None,
            distribution: None,
            maker: None,
            devices: Vec::new(),
            device_ask: None,
        }))
    }

    fn ended(reports: &mut Reports, step: u32) {
        let end = Report::StepEnded {
            step: StepNo(step),
            end: Box::new(StepEnd::never_ran(Timestamp(1))),
        };
        reports.push(JobId(1), Attempt(1), end);
    }

    /// Steps of a user wait while the controller knows nothing of too many that were before.
    #[test]
    fn steps_without_acknowledgement_are_bounded() {
        let mut reports = Reports::new(Timestamp(1));
        let of_user = |reports: &Reports| reports.step_bytes(|attempt| attempt.job == JobId(1));
        let mut count = 0;
        while !reports.are_too_many(of_user(&reports)) {
            started(&mut reports, count);
            count += 1;
            assert!(count < 100_000, "{}", of_user(&reports));
        }
        assert!(count > 1000, "{count}");
        let last = reports.queue.back().unwrap().seq;
        reports.acknowledge(last - 1);
        assert!(!reports.are_too_many(of_user(&reports)));
        reports.acknowledge(last);
        assert_eq!(of_user(&reports), 0);
    }

    #[test]
    fn a_start_waits_for_its_end_or_for_the_timer() {
        let now = 1000;
        let mut reports = Reports::new(Timestamp(1));
        assert_eq!(reports.start_timer(now), None);
        started(&mut reports, 0);
        assert_eq!(reports.take_unsent(now), None);
        assert_eq!(reports.start_timer(now), Some(STEP_REPORT_DELAY.as_ms()));
        assert_eq!(reports.start_timer(now), None, "it runs");
        ended(&mut reports, 0);
        assert_eq!(reports.take_unsent(now).map(|r| r.len()), Some(2));
        assert_eq!(reports.take_unsent(now), None);

        reports.wait_over();
        assert_eq!(reports.take_unsent(now), None, "nothing waits");
        started(&mut reports, 1);
        assert_eq!(reports.take_unsent(now), None);
        assert!(reports.start_timer(now).is_some());
        reports.wait_over();
        assert_eq!(reports.take_unsent(now).map(|r| r.len()), Some(1));

        reports.send_all_again();
        assert_eq!(reports.take_unsent(now).map(|r| r.len()), Some(3));
    }

    #[test]
    fn steps_that_nobody_acknowledges_are_counted() {
        let mut reports = Reports::new(Timestamp(1));
        let of_job = |job| move |attempt: JobAttempt| attempt.job == JobId(job);
        for step in 0..10_000 {
            started(&mut reports, step);
            ended(&mut reports, step);
        }
        let bytes = reports.step_bytes(of_job(1));
        assert!(reports.are_too_many(bytes));
        assert_eq!(reports.step_bytes(of_job(2)), 0);
        assert!(!reports.are_too_many(0));
        let last = reports.next - 1;
        assert_eq!(reports.acknowledge(last - 1).len(), 19_999);
        assert!(!reports.are_too_many(reports.step_bytes(of_job(1))));
        reports.acknowledge(last);
        assert!(reports.of_steps.is_empty());
    }

    /// After a connection was lost all go out again, those of several users in one message, which the controller refused for its
    /// length: they were sent again for ever.
    #[test]
    fn reports_never_exceed_a_message() {
        let mut reports = Reports::new(Timestamp(1));
        let user_max = USER_BYTES_MAX / (1 << 20);
        for number in 0..4 * user_max {
            let step = start_of(0, "a".repeat(1 << 20));
            reports.push(JobId(number as u64 % 4), Attempt(1), step);
        }
        let mut count = 0;
        reports.send_all_again();
        reports.wait_over();
        while let Some(taken) = reports.take_unsent(1000) {
            count += taken.len();
            let message = minicbor::to_vec(&taken).unwrap();
            assert!(message.len() < REQUEST_BYTES_MAX / 2);
        }
        assert_eq!(count, 4 * user_max);
        assert_eq!(reports.start_timer(1000), None);
    }

    #[test]
    fn ends_that_follow_each_other_go_together() {
        let now = 1000;
        let mut reports = Reports::new(Timestamp(1));
        ended(&mut reports, 0);
        assert_eq!(reports.take_unsent(now).map(|r| r.len()), Some(1));
        for step in 1..4 {
            started(&mut reports, step);
            ended(&mut reports, step);
            assert_eq!(
                reports.take_unsent(now + STEP_REPORT_DELAY.as_ms() / 2),
                None
            );
        }
        assert_eq!(reports.start_timer(now), Some(FOLLOWING_END_DELAY.as_ms()));
        reports.wait_over();
        let then = STEP_REPORT_DELAY.end_ms(now);
        assert_eq!(reports.take_unsent(then).map(|r| r.len()), Some(6));

        ended(&mut reports, 4);
        let later = STEP_REPORT_DELAY.end_ms(then);
        assert_eq!(reports.take_unsent(later).map(|r| r.len()), Some(1));
        // Nothing else waits for them.
        ended(&mut reports, 5);
        reports.push(JobId(1), Attempt(1), Report::Released);
        assert_eq!(reports.take_unsent(later).map(|r| r.len()), Some(2));
    }
}
