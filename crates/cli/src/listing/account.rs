//! A row of accounting as sacct sees it: a job or one of its steps.

use super::context::Ctx;
use super::text::{self, put};
use muster_model::account_limits::TresAmount;
use muster_model::ids::StepNo;
use muster_model::job::{ExitStatus, JobState, ResourceUsage};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::{AcctJob, AcctStep};

/// A job, or one of its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcctRow<'a> {
    /// The job.
    pub(crate) job: &'a AcctJob,
    /// The step; none for the job itself.
    pub(crate) step: Option<&'a AcctStep>,
    /// Units and the window that times are cut to.
    pub(crate) shown: AmountStyle,
}

/// Format of amounts and times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AmountStyle {
    /// `--units`, as an index in `KMGTPE`.
    pub(crate) unit: Option<usize>,
    /// `--noconvert`.
    pub(crate) keep_units: bool,
    /// Whether amounts get a unit only if they stay whole with it, as sstat has it.
    pub(crate) exact: bool,
    /// `--truncate`: the window.
    pub(crate) window: Option<(Timestamp, Timestamp)>,
}

impl<'a> AcctRow<'a> {
    /// `2_1.batch`, `2_[1-3%2]`, `9`.
    pub(crate) fn write_id(&self, out: &mut String) {
        if let Some(part) = self.job.het {
            out.push_str(&part.name());
            return self.write_step(out);
        }
        match (self.job.array, &self.job.array_pending) {
            (base, Some(indices)) => {
                put!(
                    out,
                    "{}_{indices}",
                    base.map_or(self.job.id, |task| task.array)
                )
            }
            (Some(task), None) => put!(out, "{task}"),
            (None, None) => put!(out, "{}", self.job.id),
        }
        self.write_step(out);
    }

    /// `6.batch`: with the task's own number.
    pub(crate) fn write_raw_id(&self, out: &mut String) {
        put!(out, "{}", self.job.id);
        self.write_step(out);
    }

    fn write_step(&self, out: &mut String) {
        if let Some(step) = self.step {
            put!(out, ".{}", step.step);
        }
    }

    /// Its state.
    pub(crate) fn state(&self) -> JobState {
        self.step.map_or(self.job.state, |s| s.state)
    }

    /// Its state in a word.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state() {
            // A lost node or a preemption says more than that the job went back to the queue.
            state @ (JobState::NodeFail | JobState::Preempted) => state.name(),
            _ if self.step.is_none() && self.job.resized => "RESIZING",
            _ if self.step.is_none() && self.job.requeued => "REQUEUED",
            state => state.name(),
        }
    }

    /// `CANCELLED by 1000`.
    pub(crate) fn write_state(&self, out: &mut String) {
        out.push_str(self.state_name());
        let by = match self.step {
            Some(step) => step.cancelled_by,
            None => self.job.cancelled_by,
        };
        if let Some(uid) = by.filter(|_| self.state() == JobState::Cancelled) {
            put!(out, " by {uid}");
        }
    }

    /// Its exit status.
    pub(crate) fn exit(&self) -> ExitStatus {
        self.step.map_or(self.job.exit, |s| s.exit)
    }

    /// Its start, inside the window.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        let start = match self.step {
            Some(step) => Some(step.start),
            None => self.job.start,
        }?;
        Some(self.shown.window.map_or(start, |(from, _)| start.max(from)))
    }

    /// Its end, inside the window.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        let end = match self.step {
            Some(step) => step.end,
            None => self.job.end,
        };
        match self.shown.window {
            Some((_, to)) if self.start().is_some() => Some(end.map_or(to, |end| end.min(to))),
            _ => end,
        }
    }

    /// Seconds from start to end, or until now, without suspensions.
    pub(crate) fn elapsed_s(&self, ctx: &Ctx) -> i64 {
        let Some(start) = self.start() else {
            return 0;
        };
        let end = self.end().unwrap_or(ctx.now);
        let suspended = match self.step {
            Some(_) => 0,
            None => i64::try_from(self.job.suspended_ms / 1000).unwrap_or(0),
        };
        (end.unix_s() - start.unix_s() - suspended).max(0)
    }

    /// CPUs it has, or asked for until it has some.
    pub(crate) fn cpus(&self) -> u32 {
        match self.step {
            Some(step) => step.cpus,
            None if self.job.alloc_cpus > 0 => self.job.alloc_cpus,
            None => self.job.req_cpus,
        }
    }

    /// Nodes it has, or asked for until it has some.
    pub(crate) fn nodes(&self) -> u32 {
        match self.step {
            Some(step) => step.nodes,
            None if self.job.alloc_nodes > 0 => self.job.alloc_nodes,
            None => self.job.req_nodes,
        }
    }

    /// Names of its nodes.
    pub(crate) fn nodelist(&self) -> &'a str {
        let list = match self.step {
            Some(step) => &step.nodelist,
            None => &self.job.nodelist,
        };
        if list.is_empty() {
            "None assigned"
        } else {
            list
        }
    }

    /// The use of the step.
    pub(crate) fn usage(&self) -> Option<&'a ResourceUsage> {
        self.step.and_then(|s| s.usage.as_ref())
    }

    /// User and system time: the step's, or the sum over the job's steps.
    pub(crate) fn cpu_us(&self) -> (u64, u64) {
        let usages = self.job.steps.iter().filter_map(|s| s.usage.as_ref());
        match self.step {
            Some(_) => self.usage().map_or((0, 0), |u| (u.user_us, u.system_us)),
            None => usages.fold((0, 0), |(user, system), u| {
                (user + u.user_us, system + u.system_us)
            }),
        }
    }

    /// Seconds it waited between becoming eligible and its start.
    pub(crate) fn waited_s(&self, ctx: &Ctx) -> i64 {
        let Some(eligible) = self.job.eligible else {
            return 0;
        };
        let until = self.job.start.or(self.job.end).unwrap_or(ctx.now);
        (until.unix_s() - eligible.unix_s()).max(0)
    }

    /// An amount of memory, MiB.
    pub(crate) fn write_mib(&self, out: &mut String, mib: u64) {
        match self.shown.unit {
            Some(unit) => text::amount(out, mib, Some(1), Some(unit)),
            None => text::memory(out, mib, self.shown.keep_units),
        }
    }

    /// An amount of memory that was used, KiB. What is not converted is written in bytes.
    pub(crate) fn write_kib(&self, out: &mut String, kib: u64) {
        match self.shown {
            AmountStyle {
                unit: None,
                keep_units: true,
                ..
            } => put!(out, "{}", kib.saturating_mul(1024)),
            AmountStyle { exact: true, .. } => {
                text::exact_amount(out, kib.saturating_mul(1024));
            }
            AmountStyle { unit, .. } => text::amount(out, kib, Some(0), unit),
        }
    }

    /// Resources it has: `billing=8,cpu=8,mem=200M,node=2`.
    pub(crate) fn write_tres(&self, out: &mut String) {
        if let Some(step) = self.step {
            put!(out, "cpu={}", step.cpus);
            for TresAmount { name, amount } in &step.devices {
                put!(out, ",{name}={amount}");
            }
            out.push_str(",mem=");
            self.write_mib(out, step.mem_mib);
            return put!(out, ",node={}", step.nodes);
        }
        let job = self.job;
        if job.alloc_nodes == 0 {
            return;
        }
        put!(out, "billing={},cpu={}", job.alloc_cpus, job.alloc_cpus);
        for (name, count) in &job.gres {
            put!(out, ",{name}={count}");
        }
        if job.alloc_mem_mib > 0 {
            out.push_str(",mem=");
            self.write_mib(out, job.alloc_mem_mib);
        }
        put!(out, ",node={}", job.alloc_nodes);
    }

    /// Resources the job asked for.
    pub(crate) fn write_tres_asked(&self, out: &mut String) {
        let job = self.job;
        if self.step.is_some() {
            return;
        }
        put!(out, "billing={},cpu={}", job.req_cpus, job.req_cpus);
        for (name, count) in &job.req_gres {
            put!(out, ",{name}={count}");
        }
        if job.req_mem_mib > 0 {
            out.push_str(",mem=");
            self.write_mib(out, job.req_mem_mib);
        }
        put!(out, ",node={}", job.req_nodes);
    }

    /// The job's limit.
    pub(crate) fn write_limit(&self, out: &mut String) {
        match self.job.time_limit {
            _ if self.step.is_some() => {}
            TimeLimit::Minutes(m) => text::long_duration(out, i64::from(m) * 60),
            TimeLimit::Unlimited => out.push_str("UNLIMITED"),
        }
    }

    /// Whether it is the batch script.
    pub(crate) fn is_batch_step(&self) -> bool {
        self.step.is_some_and(|s| s.step == StepNo::BATCH)
    }
}
