//! What a new shim does about attempts that an earlier one wrote down. Nothing is launched again.
//!
//! The earlier shim was killed, so processes of its jobs are init's children now and go on. They are watched through
//! pidfds. How a script ended is learnt from its zombie or, on kernels from 6.15 on, from its pidfd; where neither
//! tells, the job is reported as vanished.

use super::jobs::{JobEntry, Role, Shim};
use super::membership::Belongs;
use super::processes::{self, Stat};
use super::records::Old;
use super::steps::StepProc;
use crate::{now, sys};
use muster_model::ids::StepNo;
use muster_model::job::Usage;
use muster_node_core::messages::{JobAttempt, LauncherEvent};
use muster_proto::node::JobGrant;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;

/// A process started this much later than its record is another one with the same number.
const START_SLACK_MS: u64 = 2000;

impl Shim {
    /// Takes over the attempts on file.
    pub(super) fn recover(&mut self) {
        let Some((old, same_boot)) = self.old.take() else {
            return;
        };
        self.members
            .recover(|run| same_boot && old.contains_key(&run));
        for (run, old) in old {
            self.take_over(run, &old, same_boot);
        }
        if same_boot {
            self.find_steps();
        }
        self.unsettled = true;
    }

    /// Removes sockets and results of steps whose jobs are forgotten.
    pub(super) fn tidy(&self) {
        let Ok(files) = std::fs::read_dir(&self.spool) else {
            return;
        };
        for file in files.flatten() {
            let name = file.file_name();
            let job = name
                .to_str()
                .and_then(|n| n.strip_prefix("step-")?.split('.').next()?.parse().ok());
            if job.is_some_and(|job| !self.jobs.keys().any(|run| run.job.0 == job)) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    fn take_over(&mut self, run: JobAttempt, old: &Old, same_boot: bool) {
        let entry = JobEntry {
            uid: old.uid,
            recovered: same_boot,
            released: old.released,
            grant: old.grant.as_ref().and_then(|bytes| grant_of(run, bytes)),
            prolog_epilog: old.prolog_epilog.clone(),
            steps_gone: old.steps_gone.clone(),
            ..JobEntry::default()
        };
        let mut entry = entry;
        for step in &old.steps_gone {
            entry.numbers.insert(*step);
        }
        self.jobs.insert(run, entry);
        if same_boot {
            if let Some(pid) = old.pid {
                self.sessions.insert(pid, run);
            }
            for (&step, &pid) in &old.steps {
                self.sessions.insert(pid, run);
                self.take_over_step(run, step, pid, old);
            }
        } else {
            let dirs: Vec<_> = old.step_dirs.values().flatten().cloned().collect();
            self.remove_dirs(run, &dirs);
        }
        if let Some((status, usage, end)) = old.ended.clone() {
            let outcome = LauncherEvent::BatchEnded {
                run,
                status,
                usage,
                end,
            };
            return self.conclude(run, outcome, old.released);
        }
        if let Some((fault, error)) = old.failed.clone() {
            return self.conclude(run, fault.event(run, error), old.released);
        }
        if old.batch && same_boot {
            // Where its fork was not written down any more, the script itself has noted it.
            let noted = self.members.script_of(run);
            let mut found = [old.pid, noted].into_iter().flatten();
            let is_it = |stat: &Stat| is_of(stat, old.boot_ms, START_SLACK_MS);
            if let Some(pid) = found.find(|pid| self.watch_if(*pid, Role::Script(run), is_it)) {
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.script = Some(pid);
                }
                if old.ending {
                    self.resume_ending(run);
                }
                return;
            }
        }
        let in_prolog = old
            .prolog_epilog
            .as_ref()
            .is_some_and(|a| !a.prolog.is_empty())
            && !old.prolog_over;
        if old.batch || in_prolog || !same_boot {
            self.conclude(run, LauncherEvent::Vanished(run), old.released);
        } else if old.ending {
            self.resume_ending(run);
        }
    }

    fn conclude(&mut self, run: JobAttempt, outcome: LauncherEvent, released: bool) {
        if released {
            if let Some(entry) = self.jobs.get_mut(&run) {
                entry.outcome = Some(outcome);
            }
        } else {
            self.finish(run, outcome);
        }
    }

    /// It was ordered to end: the wait before KILL starts again.
    fn resume_ending(&mut self, run: JobAttempt) {
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.ending.get_or_insert_default().kill_at =
                Some(std::time::Instant::now() + self.kill_wait);
        }
        self.ending.insert(run);
    }

    fn take_over_step(&mut self, run: JobAttempt, step: StepNo, pid: i32, old: &Old) {
        let dirs = old.step_dirs.get(&step).cloned().unwrap_or_default();
        let ended = old.step_ends.get(&step).cloned();
        let is_it = |stat: &Stat| is_of(stat, old.boot_ms, u64::MAX);
        let runs = ended.is_none() && self.watch_if(pid, Role::Step(run, step), is_it);
        let over = ended.is_some();
        let proc = StepProc {
            dirs,
            ended,
            ..StepProc::new(if runs { pid } else { 0 }, None)
        };
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.enter_step(step, proc);
        }
        if !over && !runs {
            self.step_ended(run, step);
        }
    }

    /// A process that is watched ended.
    pub(super) fn watched_ended(&mut self, fd: RawFd) {
        let Some(at) = self.watched.iter().position(|w| w.pidfd.as_raw_fd() == fd) else {
            return;
        };
        let watched = self.watched.swap_remove(at);
        self.unsettled = true;
        match watched.role {
            Role::Script(run) => {
                let status = Stat::of(watched.pid)
                    .filter(|s| s.zombie)
                    .map(|s| s.exit)
                    .or_else(|| sys::exit_of_reaped(watched.pidfd.as_fd()));
                self.script_ended(run, status, Usage::default(), now());
            }
            Role::Step(run, step) => self.step_ended(run, step),
            Role::StderrNotifier(_)
            | Role::StderrNotifierThenKill(_)
            | Role::Writer(_)
            | Role::Remover(_)
            | Role::Prolog(_)
            | Role::Epilog(_)
            | Role::Spare(_)
            | Role::Site
            | Role::Other => {}
        }
    }

    /// Processes of a job that are not this shim's descendants. They are watched, so that their end is noticed.
    pub(super) fn strays(&mut self, run: JobAttempt) -> Vec<i32> {
        let since = sys::boot_ms();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let known: Vec<i32> = self.watched.iter().map(|w| w.pid).collect();
        let found: Vec<i32> = processes::all_pids()
            .into_iter()
            .filter(|&pid| pid != own)
            .filter(|&pid| {
                let Some(stat) = Stat::of(pid).filter(|s| !s.zombie) else {
                    return false;
                };
                match self.members.of(pid) {
                    Belongs::To(owner) => owner == run,
                    Belongs::ToSite => false,
                    Belongs::Unknown => self.sessions.get(&stat.session) == Some(&run),
                }
            })
            .collect();
        for &pid in &found {
            if !known.contains(&pid) {
                self.watch_if(pid, Role::Other, |stat| stat.start_ms <= since);
            }
        }
        found
    }
}

/// The grant that is on file.
fn grant_of(run: JobAttempt, bytes: &[u8]) -> Option<Rc<JobGrant>> {
    match minicbor::decode(bytes) {
        Ok(grant) => Some(Rc::new(grant)),
        Err(e) => {
            eprintln!("job {}: its grant cannot be read back: {e}", run.job);
            None
        }
    }
}

/// Whether a process was started at about `boot_ms`, at most `slack` later.
fn is_of(stat: &Stat, boot_ms: u64, slack: u64) -> bool {
    stat.start_ms + START_SLACK_MS >= boot_ms && stat.start_ms <= boot_ms.saturating_add(slack)
}
