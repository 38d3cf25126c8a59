//! Running steps as documents: `scontrol show steps --json`, and answers of `listjobs`, `liststeps` and `listpids` about a node.

use super::context::Ctx;
use super::document::Writer;
use super::step_fields::StepRow;
use muster_model::ids::{JobId, StepNo};
use muster_model::time::TimeLimit;

/// Writes the main part of a document with the steps.
pub(crate) fn write(w: &mut Writer<'_>, rows: &[StepRow<'_>], ctx: &Ctx) {
    w.list("steps", |w| {
        for row in rows {
            w.item(|w| one_step(w, row, ctx));
        }
    });
    w.time("last_update", Some(ctx.now));
}

fn one_step(w: &mut Writer<'_>, row: &StepRow<'_>, ctx: &Ctx) {
    let (step, job) = (row.step, row.job.job);
    w.map("array", |w| {
        let base = if row.job.in_array() {
            row.job.base_id().0
        } else {
            0
        };
        w.raw("job_id", base);
        w.raw("task_id", row.job.index().unwrap_or(u32::MAX - 1));
    });
    w.text("cluster", &ctx.cluster);
    w.text("container", "");
    w.text("container_id", "");
    w.map("cpu", |w| {
        w.map("frequency", |w| {
            for key in ["min", "max", "governor"] {
                w.limit(key, None, false);
            }
        });
    });
    w.text("name", &step.name);
    w.text("network", "");
    w.text("nodes", &step.hostlist);
    w.raw("number_cpus", step.cpus);
    w.raw("number_tasks", step.tasks);
    w.text("partition", &job.partition);
    w.text("reserved_ports", "");
    w.map("time", |w| {
        let ran_s = ctx.now.since_ms(step.start_time) / 1000;
        w.limit("running", Some(ran_s), false);
        w.time("start", Some(step.start_time));
        match step.time_limit {
            Some(TimeLimit::Minutes(minutes)) => w.limit("limit", Some(minutes.into()), false),
            _ => w.limit("limit", None, true),
        }
    });
    w.map("srun", |w| {
        let maker = step.maker.as_ref();
        w.text("host", maker.map_or("", |maker| &maker.host));
        w.raw("pid", maker.map_or(0, |maker| maker.pid));
    });
    w.texts("state", ["RUNNING"]);
    w.text("id", &format!("{}.{}", job.id, step.step));
    w.text_or_empty("stderr", step.stdio.stderr.as_deref());
    w.text_or_empty("stdin", step.stdio.stdin.as_deref());
    w.text_or_empty("stdout", step.stdio.stdout.as_deref());
    w.text("submit_line", &step.submit_line);
    w.map("task", |w| {
        w.text(
            "distribution",
            step.distribution.as_deref().unwrap_or("Unknown"),
        );
    });
    w.map("tres", |w| {
        let mut allocation = String::new();
        row.write_tres(&mut allocation);
        w.text("allocation", &allocation);
        w.text("binding", "");
        w.text("frequency", "");
        w.map("per", |w| {
            for key in ["cpu", "memory", "step", "node", "socket", "task"] {
                w.text(key, "");
            }
        });
    });
    w.text("user", &job.spec.owner.user);
}

/// A step on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepOnNode {
    /// The job.
    pub(crate) job: JobId,
    /// The step.
    pub(crate) step: StepNo,
}

/// A process of a step on a node.
pub(crate) struct NodeProcess {
    /// The job.
    pub(crate) job: JobId,
    /// The step.
    pub(crate) step: StepNo,
    /// The process.
    pub(crate) pid: u32,
    /// Its task's number among those of the node.
    pub(crate) local_task: Option<u32>,
    /// Its task's number among all of the step.
    pub(crate) global_task: Option<u32>,
}

/// Writes the main part of `scontrol listjobs --json`.
pub(crate) fn write_jobs_on_node(w: &mut Writer<'_>, jobs: &[JobId]) {
    w.list("jobs", |w| {
        for job in jobs {
            w.item(|w| w.raw("job_id", job.0));
        }
    });
}

/// Writes the main part of `scontrol liststeps --json`.
pub(crate) fn write_steps_on_node(w: &mut Writer<'_>, steps: &[StepOnNode]) {
    w.list("steps", |w| {
        for StepOnNode { job, step } in steps {
            w.item(|w| {
                w.raw("job_id", job.0);
                w.text("step_id", &step.to_string());
            });
        }
    });
}

/// Writes the main part of `scontrol listpids --json`.
pub(crate) fn write_processes(w: &mut Writer<'_>, processes: &[NodeProcess]) {
    w.list("pids", |w| {
        for process in processes {
            w.item(|w| {
                w.limit("global_task_id", process.global_task.map(u64::from), false);
                w.limit("local_task_id", process.local_task.map(u64::from), false);
                w.raw("job_id", process.job.0);
                w.raw("pid", process.pid);
                w.text("step_id", &process.step.to_string());
            });
        }
    });
}
