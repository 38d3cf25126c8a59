//! The columns of `squeue --steps`.

use super::context::Ctx;
use super::format::{Field, Record, fields};
use super::job::JobRow;
use super::text::{self, put};
use muster_model::account_limits::TresAmount;
use muster_model::hostlist;
use muster_model::job::Step;
use muster_model::time::TimeLimit;
use std::collections::HashSet;

/// squeue's steps.
pub(crate) struct Steps;

impl Record for Steps {
    type Row<'a> = StepRow<'a>;
}

/// A running step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRow<'a> {
    /// Its job.
    pub(crate) job: JobRow<'a>,
    /// The step.
    pub(crate) step: &'a Step,
}

impl StepRow<'_> {
    /// `11_0.batch`, `10.0`.
    pub(crate) fn write_id(&self, out: &mut String, ctx: &Ctx) {
        self.job.write_id(out, ctx);
        put!(out, ".{}", self.step.step);
    }

    /// Its resources: `cpu=4,mem=100M,node=1`.
    pub(crate) fn write_tres(&self, out: &mut String) {
        put!(out, "cpu={}", self.step.cpus);
        for TresAmount { name, amount } in &self.step.devices {
            put!(out, ",{name}={amount}");
        }
        out.push_str(",mem=");
        text::memory(out, self.memory_mib(), false);
        put!(out, ",node={}", self.step.nodes);
    }

    /// Its memory over all nodes; that of the job there if it has none of its own.
    fn memory_mib(&self) -> u64 {
        let step = self.step;
        let Some(alloc) = self.job.job.alloc.as_deref() else {
            return step.memory_mib;
        };
        if step.memory_mib > 0 {
            return step.memory_mib;
        }
        let names = |list: &str| hostlist::parse(list).unwrap_or_default();
        let own: HashSet<String> = names(&step.hostlist).into_iter().collect();
        let shares = names(&alloc.hostlist).into_iter().zip(&alloc.nodes);
        let of_step = shares.filter(|(name, _)| own.contains(name));
        of_step.map(|(_, share)| share.memory_mib).sum()
    }

    /// Seconds since it began.
    fn run_time_s(&self, ctx: &Ctx) -> i64 {
        ctx.now.unix_s() - self.step.start_time.unix_s()
    }
}

/// All columns.
pub(crate) static FIELDS: &[Field<Steps>] = fields![StepRow<'_>;
    b'b' ["tres-per-node"] "TRES_PER_JOB" cut _r _c o => o.push_str("(null)");
    b'i' ["stepid"] "STEPID" cut r c o => r.write_id(o, c);
    b'j' ["stepname"] "NAME" cut r _c o => o.push_str(&r.step.name);
    b'l' ["timelimit"] "TIME_LIMIT" run r _c o => limit(r, o);
    b'u' ["username"] "USER" cut r _c o => o.push_str(&r.job.job.spec.owner.user);
    b'A' ["numtasks"] "TASKS" cut r _c o => put!(o, "{}", r.step.tasks);
    b'M' ["timeused"] "TIME" run r c o => text::short_duration(o, r.run_time_s(c));
    b'N' ["nodes", "nodelist"] "NODELIST" run r _c o => o.push_str(&r.step.hostlist);
    b'P' ["partition"] "PARTITION" cut r _c o => o.push_str(&r.job.job.partition);
    b'S' ["starttime"] "START_TIME" run r c o => c.time(o, r.step.start_time);
    b'U' ["userid"] "UID" cut r _c o => put!(o, "{}", r.job.job.spec.owner.uid);
    b'-' ["arrayjobid"] "ARRAY_JOB_ID" cut r _c o => put!(o, "{}", if r.job.in_array() { r.job.base_id().0 } else { 0 });
    b'-' ["arraytaskid"] "ARRAY_TASK_ID" cut r c o => r.job.write_indices(o, c);
    b'-' ["cluster"] "CLUSTER" cut _r c o => o.push_str(&c.cluster);
    b'-' ["container"] "CONTAINER" cut _r _c o => o.push_str("(null)");
    b'-' ["cpufreq"] "CPU_FREQ" cut _r _c o => o.push_str("Unknown-Unknown:Unknown");
    b'-' ["cpus-per-tres"] "CPUS_PER_TRES" cut _r _c o => o.push_str("(null)");
    b'-' ["jobid"] "JOB_ID" cut r _c o => put!(o, "{}", r.job.job.id);
    b'-' ["mem-per-tres"] "MEM_PER_TRES" cut _r _c o => o.push_str("(null)");
    b'-' ["network"] "NETWORK" cut _r _c o => o.push_str("(null)");
    b'-' ["numcpus"] "NUM_CPUS" cut r _c o => put!(o, "{}", r.step.cpus);
    b'-' ["resvport", "resvports"] "RESV_PORTS" cut _r _c o => o.push_str("(null)");
    b'-' ["stepstate"] "STATE" cut _r _c o => o.push_str("RUNNING");
    b'-' ["tres-bind"] "TRES_BIND" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-freq"] "TRES_FREQ" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-per-job"] "TRES_PER_STEP" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-per-socket"] "TRES_PER_SOCKET" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-per-step"] "TRES_PER_STEP" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-per-task"] "TRES_PER_TASK" cut _r _c o => o.push_str("(null)");
];

fn limit(r: &StepRow<'_>, out: &mut String) {
    match r.step.time_limit {
        Some(TimeLimit::Minutes(m)) => text::short_duration(out, i64::from(m) * 60),
        _ => out.push_str("UNLIMITED"),
    }
}
