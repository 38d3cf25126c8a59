//! Samples of the usage of running jobs (`JobAcctGatherFrequency`, `--acctg-freq`). The highest sample of each task
//! is added to the kernel's report at its end, and steps above their memory limit are killed (`OverMemoryKill`).
//!
//! Until its first sample is due, a job costs one entry in a queue. Samples are in memory only: they are lost with
//! the agent, unlike the kernel's report.

use super::actions::Actions;
use super::measure::{self, MeasuredUsage, StepTask, TaskUsages};
use super::state::AgentState;
use super::{Agent, Timer};
use crate::exit_status::OUT_OF_MEMORY;
use crate::messages::{LauncherCommand, TaskUsage};
use crate::signals::SIGKILL;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_model::job::{JobState, StepEnd};
use muster_model::usage::task_interval_s;
use muster_proto::node::{JobGrant, Sampling};
use muster_proto::step::MeasuredStep;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Samples taken and due.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// When launches are due, milliseconds.
    due: BTreeSet<(u64, JobAttempt)>,
    /// When the timer runs out, milliseconds.
    alarm_ms: Option<u64>,
    /// The most that each task of a launch had.
    seen: HashMap<JobAttempt, TaskUsages>,
    /// Memory limits of steps, KiB, if they differ from the job's share.
    may_have: HashMap<AttemptStep, u64>,
    /// Steps that were killed for their memory.
    killed: HashSet<AttemptStep>,
    /// Samples that are being taken.
    pub(super) under_way: HashSet<JobAttempt>,
    /// Lists of processes that were asked for to take them.
    pub(super) sampled_runs: HashMap<u64, JobAttempt>,
}

impl Samples {
    /// Sets the memory limit of a step, MiB; 0 means the share of its job.
    pub(super) fn limit_memory(&mut self, attempt: JobAttempt, step: StepNo, mib: u64) {
        if mib > 0 {
            self.may_have
                .insert(AttemptStep::new(attempt, step), mib * 1024);
        }
    }

    /// Sets the timer for the launch that is due first.
    fn set_timer(&mut self, out: &mut Actions, now_ms: u64) {
        let Some(&(first_ms, _)) = self.due.first() else {
            return;
        };
        if self.alarm_ms.is_some_and(|at| at <= first_ms) {
            return;
        }
        self.alarm_ms = Some(first_ms);
        out.set_timer(Timer::Sample, first_ms.saturating_sub(now_ms));
    }

    /// The samples of each step of a job so far.
    pub(super) fn of(&self, attempt: JobAttempt, node: &str) -> Vec<MeasuredStep> {
        let seen = self.seen.get(&attempt);
        seen.map_or_else(Vec::new, |seen| measure::sum_up(seen, node))
    }

    /// The launch is over.
    pub(super) fn forget(&mut self, attempt: JobAttempt) {
        self.seen.remove(&attempt);
    }
}

impl Agent {
    /// The usage of a job's tasks was read, or could not be.
    pub(super) fn on_measured(&mut self, tag: u64, tasks: Option<Vec<TaskUsage>>) {
        let tasks = tasks.map(measure::of_launcher);
        match self.steps.samples.sampled_runs.remove(&tag) {
            None => self.answer_measured(tag, tasks),
            Some(attempt) => {
                self.steps.samples.under_way.remove(&attempt);
                if let Some(tasks) = tasks {
                    self.steps
                        .samples
                        .add_sample(&mut self.state, attempt, tasks);
                }
            }
        }
    }

    /// The launcher that was asked is gone.
    pub(super) fn forget_measurements(&mut self) {
        self.steps.samples.sampled_runs.clear();
        self.steps.samples.under_way.clear();
        self.inspections.refuse_all(&mut self.state.out);
    }
}

impl Samples {
    /// A job has begun here: when it is looked at first.
    pub(super) fn sample_from_now(&mut self, state: &mut AgentState, grant: &JobGrant) {
        let Some(interval) = interval(state.node.settings.sampling, grant) else {
            return;
        };
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let due_ms = state.now.mono_ms.saturating_add(interval);
        self.due.insert((due_ms, attempt));
        self.set_timer(&mut state.out, state.now.mono_ms);
    }

    /// Jobs that an earlier life of the agent began are looked at too.
    pub(super) fn sample_all(&mut self, state: &mut AgentState) {
        let known: HashSet<JobAttempt> = self.due.iter().map(|(_, attempt)| *attempt).collect();
        let new: Vec<_> = state
            .jobs
            .iter()
            .filter(|(attempt, job)| !job.state.has_left() && !known.contains(attempt))
            .filter_map(|(_, job)| job.grant.clone())
            .collect();
        for grant in new {
            self.sample_from_now(state, &grant);
        }
    }

    /// Requests the usage of the jobs that are due from the launcher.
    pub(super) fn sample_due(&mut self, state: &mut AgentState) {
        let now_ms = state.now.mono_ms;
        self.alarm_ms = None;
        while let Some((_, attempt)) = self.due.first().filter(|(at, _)| *at <= now_ms).copied() {
            self.due.pop_first();
            let job = state.jobs.get(attempt).filter(|job| !job.state.has_left());
            let Some(grant) = job.and_then(|job| job.grant.clone()) else {
                continue;
            };
            let Some(interval) = interval(state.node.settings.sampling, &grant) else {
                continue;
            };
            self.due.insert((now_ms.saturating_add(interval), attempt));
            // If the previous sample is still outstanding, this one is left out.
            if let Some(settings) = state.node.settings.sampling
                && state.out.has_launcher
                && self.under_way.insert(attempt)
            {
                state.next_tag += 1;
                let tag = state.next_tag;
                self.sampled_runs.insert(tag, attempt);
                state.out.command(LauncherCommand::Measure {
                    job: attempt.job,
                    tag,
                    memory: Some(settings.memory),
                });
            }
        }
        self.set_timer(&mut state.out, state.now.mono_ms);
    }

    pub(super) fn add_sample(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        now: TaskUsages,
    ) {
        let Some(settings) = state.node.settings.sampling else {
            return;
        };
        if state
            .jobs
            .get(attempt)
            .is_none_or(|job| job.state.has_left())
        {
            return;
        }
        if settings.over_memory_kill {
            self.kill_over_memory(state, attempt, &now);
        }
        let seen = self.seen.entry(attempt).or_default();
        for (task, MeasuredUsage { usage, vsize_kib }) in now {
            let most_of_task = seen.entry(task).or_default();
            most_of_task.vsize_kib = vsize_kib.max(most_of_task.vsize_kib);
            let most = &mut most_of_task.usage;
            most.user_us = most.user_us.max(usage.user_us);
            most.system_us = most.system_us.max(usage.system_us);
            most.max_rss_kib = most.max_rss_kib.max(usage.max_rss_kib);
            most.pages = most.pages.max(usage.pages);
            most.disk_read_bytes = most.disk_read_bytes.max(usage.disk_read_bytes);
            most.disk_write_bytes = most.disk_write_bytes.max(usage.disk_write_bytes);
        }
    }

    /// Kills steps that have more memory than they may.
    pub(super) fn kill_over_memory(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        now: &TaskUsages,
    ) {
        let share = state.jobs.get(attempt).and_then(|job| job.share());
        let of_job = share.map_or(0, |share| share.memory_mib * 1024);
        let mut used: HashMap<StepNo, u64> = HashMap::new();
        for (key, measured) in now {
            *used.entry(key.step).or_default() += measured.usage.max_rss_kib;
        }
        for (step, kib) in used {
            let most = self.may_have.get(&AttemptStep::new(attempt, step));
            let most = most.copied().unwrap_or(of_job);
            if most == 0 || kib <= most {
                continue;
            }
            let order = LauncherCommand::SignalStep {
                attempt,
                step,
                signal: SIGKILL,
            };
            if !self.killed.insert(AttemptStep::new(attempt, step)) {
                // The line that was to be printed first has not been.
                state.out.command(order.clone());
                continue;
            }
            let text = format!(
                "StepId={}.{step} exceeded memory limit ({} > {}), being killed",
                attempt.job,
                kib * 1024,
                most * 1024
            );
            log::warn!("{text}");
            let printed_by = Some(step).filter(|step| *step != StepNo::BATCH);
            let kill = printed_by.is_none();
            state.out.command(LauncherCommand::PrintLine {
                attempt,
                text,
                step: printed_by,
                kill,
            });
            if !kill {
                state.out.command(order);
            }
        }
    }

    /// Adds the samples of a step to the report of its end. Returns whether the step was killed for its memory.
    pub(super) fn add_samples(
        &mut self,
        state: &mut AgentState,
        attempt: JobAttempt,
        step: StepNo,
        end: &mut StepEnd,
    ) -> bool {
        if let Some(seen) = self.seen.get(&attempt) {
            let tasks: TaskUsages = seen
                .range(StepTask::new(step, 0)..=StepTask::new(step, u32::MAX))
                .map(|(task, used)| (*task, used.clone()))
                .collect();
            for MeasuredStep { usage, .. } in measure::sum_up(&tasks, &state.node.config.name) {
                end.usage.raise(&usage);
            }
        }
        self.may_have.remove(&AttemptStep::new(attempt, step));
        // A step that ended before it received the signal was not killed.
        let killed = self.killed.remove(&AttemptStep::new(attempt, step)) && end.exit.signal != 0;
        if killed {
            end.state = JobState::OutOfMemory;
            end.exit = OUT_OF_MEMORY;
        }
        killed
    }
}

/// Time between samples of a job, milliseconds; none if it is not to be sampled.
fn interval(settings: Option<Sampling>, grant: &JobGrant) -> Option<u64> {
    let settings = settings?;
    let own = grant.spec.shown.iter().find(|(key, _)| key == "acctg-freq");
    let own = own.and_then(|(_, text)| task_interval_s(text));
    let seconds = interval_s(settings, own);
    (seconds > 0).then(|| u64::from(seconds) * 1000)
}

/// The interval in seconds, for a job with its own request. Because samples trigger the kill for excess memory, a job
/// cannot then choose a longer interval than the cluster's, or none.
fn interval_s(settings: Sampling, own: Option<u32>) -> u32 {
    let Some(own) = own else {
        return settings.interval_s;
    };
    match (settings.over_memory_kill, settings.interval_s) {
        (false, _) | (true, 0) => own,
        (true, most) if own == 0 => most,
        (true, most) => own.min(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::node::MemoryCount;

    /// `--acctg-freq=task=0` switched `OverMemoryKill` off for the own job.
    #[test]
    fn a_job_is_sampled_as_often_as_its_memory_is_limited_by_samples() {
        let seconds = |over_memory_kill, interval_s, own: &str| {
            let memory = MemoryCount::default();
            let settings = Sampling {
                interval_s,
                memory,
                over_memory_kill,
            };
            super::interval_s(settings, task_interval_s(own))
        };
        for (kills, of_cluster, own, expected) in [
            (true, 30, "task=0", 30),
            (true, 30, "0", 30),
            (true, 30, "task=3600", 30),
            (true, 30, "task=5", 5),
            (true, 30, "energy=10", 30),
            (true, 0, "task=5", 5),
            (false, 30, "task=0", 0),
            (false, 30, "task=3600", 3600),
            (false, 30, "energy=10", 30),
        ] {
            assert_eq!(seconds(kills, of_cluster, own), expected, "{kills} {own}");
        }
    }
}
