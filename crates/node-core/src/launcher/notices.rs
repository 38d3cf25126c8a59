//! Notices for the standard error of jobs' scripts. A process writes them, as the job's user, and starting one takes long: each
//! user has one at a time, and of what waits for a job meanwhile the last lines count.

use super::interface::{Action, MessageKind};
use super::state::LauncherState;
use muster_model::ids::JobAttempt;
use std::collections::{BTreeMap, VecDeque};

/// Lines that wait for one job; of more the oldest are dropped.
pub(super) const NOTICES_MAX: usize = 8;

/// The lines that wait for one job.
#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<String>,
    dropped: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Notices {
    waiting: BTreeMap<JobAttempt, WaitingLines>,
    /// Jobs of each user for which lines wait.
    turns: BTreeMap<u32, VecDeque<JobAttempt>>,
    /// By user, the job for which a process writes.
    writing: BTreeMap<u32, JobAttempt>,
}

impl Notices {
    /// Prints a line for a script when it is its turn.
    pub(super) fn add(&mut self, state: &mut LauncherState, attempt: JobAttempt, text: String) {
        let Some(job) = state.jobs.get(&attempt).filter(|e| e.script.is_some()) else {
            return;
        };
        let uid = job.uid;
        let waiting = self.waiting.entry(attempt).or_insert_with(|| {
            self.turns.entry(uid).or_default().push_back(attempt);
            WaitingLines::default()
        });
        waiting.lines.push_back(text);
        if waiting.lines.len() > NOTICES_MAX {
            waiting.lines.pop_front();
            waiting.dropped += 1;
        }
        self.write_next(state, uid);
    }

    /// The process that wrote for a job has ended, or has not begun.
    pub(super) fn written(&mut self, state: &mut LauncherState, attempt: JobAttempt) {
        let writing = self.writing.iter().find(|(_, of)| **of == attempt);
        if let Some(uid) = writing.map(|(uid, _)| *uid) {
            self.writing.remove(&uid);
            self.write_next(state, uid);
        }
    }

    fn write_next(&mut self, state: &mut LauncherState, uid: u32) {
        if self.writing.contains_key(&uid) {
            return;
        }
        while let Some(attempt) = self.turns.get_mut(&uid).and_then(VecDeque::pop_front) {
            // The job's script may have ended.
            if self.print(state, attempt, None, MessageKind::Notice) {
                self.writing.insert(uid, attempt);
                return;
            }
        }
        self.turns.remove(&uid);
    }

    /// Starts a process that writes the waiting lines, and a last one, to the standard error of the job's script, as
    /// the job's user. Returns whether there is such a script.
    pub(super) fn print(
        &mut self,
        state: &mut LauncherState,
        attempt: JobAttempt,
        last: Option<String>,
        kind: MessageKind,
    ) -> bool {
        let WaitingLines { lines, dropped } = self.drop_waiting(attempt);
        let Some(job) = state.jobs.get_mut(&attempt).filter(|e| e.script.is_some()) else {
            return false;
        };
        let Some(files) = &job.files else {
            return false;
        };
        if dropped > 0 {
            state.actions.log_refusal(&format!(
                "job {}: {dropped} notices are dropped",
                attempt.job
            ));
        }
        job.starting_writers += 1;
        let namespace = job.namespace();
        let lines = lines.into_iter().chain(last);
        state.actions.push(Action::StartMessage {
            attempt,
            kind,
            user: files.user.clone(),
            work_dir: files.work_dir.clone(),
            path: files.stderr.clone(),
            line: lines
                .map(|text| format!("slurmstepd: error: {text}\n"))
                .collect(),
            namespace,
        });
        true
    }

    fn drop_waiting(&mut self, attempt: JobAttempt) -> WaitingLines {
        let Some(waiting) = self.waiting.remove(&attempt) else {
            return WaitingLines::default();
        };
        for turns in self.turns.values_mut() {
            turns.retain(|waits| *waits != attempt);
        }
        waiting
    }

    /// A job is no more.
    pub(super) fn forget(&mut self, attempt: JobAttempt) {
        self.drop_waiting(attempt);
    }
}
