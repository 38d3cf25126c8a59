//! Notices for the standard error of jobs' scripts. A process writes them, as the job's user, and starting one takes long: each
//! user has one at a time, and of what waits for a job meanwhile the last lines count.

use super::Launcher;
use super::event::MessageKind;
use crate::messages::JobAttempt;
use std::collections::{BTreeMap, VecDeque};

/// Lines that wait for one job; of more the oldest are dropped.
pub(super) const NOTICES_MAX: usize = 8;

/// What waits for one job.
#[derive(Default)]
struct Lines {
    lines: VecDeque<String>,
    dropped: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Notices {
    waiting: BTreeMap<JobAttempt, Lines>,
    /// Jobs of each user for which lines wait.
    turns: BTreeMap<u32, VecDeque<JobAttempt>>,
    /// By user, the job for which a process writes.
    writing: BTreeMap<u32, JobAttempt>,
}

impl Notices {
    fn push(&mut self, run: JobAttempt, uid: u32, text: &str) {
        let waiting = self.waiting.entry(run).or_insert_with(|| {
            self.turns.entry(uid).or_default().push_back(run);
            Lines::default()
        });
        waiting.lines.push_back(text.to_owned());
        if waiting.lines.len() > NOTICES_MAX {
            waiting.lines.pop_front();
            waiting.dropped += 1;
        }
    }

    /// The next lines of a user, if no process writes for that user.
    fn next(&mut self, uid: u32) -> Option<(JobAttempt, Lines)> {
        if self.writing.contains_key(&uid) {
            return None;
        }
        while let Some(run) = self.turns.get_mut(&uid)?.pop_front() {
            if let Some(lines) = self.waiting.remove(&run) {
                return Some((run, lines));
            }
        }
        self.turns.remove(&uid);
        None
    }

    /// What is to be written for a job before its end is announced.
    pub(super) fn take(&mut self, run: JobAttempt) -> Vec<String> {
        let taken = self.waiting.remove(&run).unwrap_or_default();
        if !taken.lines.is_empty() {
            for turns in self.turns.values_mut() {
                turns.retain(|waits| *waits != run);
            }
        }
        taken.lines.into()
    }

    /// The process that wrote for a job has ended, or has not begun: whose it was.
    fn written(&mut self, run: JobAttempt) -> Option<u32> {
        let (&uid, _) = self.writing.iter().find(|(_, of)| **of == run)?;
        self.writing.remove(&uid);
        Some(uid)
    }
}

impl Launcher {
    /// Prints a line for a script when it is its turn.
    pub(super) fn print_notice(&mut self, run: JobAttempt, text: &str) {
        let Some(entry) = self.jobs.get(&run).filter(|e| e.script.is_some()) else {
            return;
        };
        let uid = entry.uid;
        self.notices.push(run, uid, text);
        self.write_notices(uid);
    }

    /// Lines of a job are written.
    pub(super) fn notices_written(&mut self, run: JobAttempt) {
        if let Some(uid) = self.notices.written(run) {
            self.write_notices(uid);
        }
    }

    fn write_notices(&mut self, uid: u32) {
        while let Some((run, Lines { lines, dropped })) = self.notices.next(uid) {
            if dropped > 0 {
                let line = format!("job {}: {dropped} notices are dropped", run.job);
                self.actions.log_refusal(&line);
            }
            // Its script may have ended.
            if self.print(run, &Vec::from(lines), MessageKind::Notice) {
                self.notices.writing.insert(uid, run);
                return;
            }
        }
    }
}
