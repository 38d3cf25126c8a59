//! seff: how much of what a job had it used, by accounting.

use crate::SLURM_VERSION;
use crate::connect::{Client, ConnectError};
use crate::listing::account::{AcctRow, AmountStyle};
use crate::listing::context::Ctx;
use crate::listing::text::put;
use crate::listing::{Failure, complain, print, query};
use crate::options::{HelpForm, Opt, Spec, flag};
use crate::targets::job_target;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::time::Timestamp;
use muster_proto::acct::efficiency::{JobEfficiency, duration, memory};
use muster_proto::acct::{AcctJob, AcctQuery};

/// seff.
pub(crate) static SPEC: Spec = Spec {
    name: "seff",
    about: "Shows how much of its CPUs and memory a job used, as accounting has it.",
    operands: "JOB_ID",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: &[],
    notes: "\
JOB_ID is 12, or 12_3 for a task of an array. Of a job that runs, what has been measured so far counts; of steps that run, nothing.
",
};

static OPTIONS: &[Opt] = &[
    flag("help", "print this help").short('h'),
    flag("usage", "print a short summary"),
    flag("version", "print the version").short('v'),
];

/// Runs seff.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some((name, _)) = parsed.options.into_iter().next() {
        match name {
            "help" => print(&SPEC.help()),
            "usage" => print(&SPEC.usage()),
            _ => print(&format!("slurm {SLURM_VERSION}\n")),
        }
        return Ok(());
    }
    let [operand] = parsed.operands.as_slice() else {
        return Err(Failure::new(format!(
            "seff: error: name one job\n{}",
            SPEC.usage().trim_end()
        )));
    };
    let wanted = wanted(operand).ok_or_else(|| {
        Failure::new(format!(
            "seff: error: '{operand}' is not a valid job: write 12 or 12_3"
        ))
    })?;
    let mut client = Client::connect().map_err(failed)?;
    let question = AcctQuery {
        jobs: vec![wanted],
        start: Some(Timestamp(0)),
        ..AcctQuery::default()
    };
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let (jobs, at, _) = query::accounting(&mut client, question).map_err(failed)?;
    ctx.now = at;
    // For an array that is named as a whole, the record of its number.
    let named = |job: &&AcctJob| wanted.1.is_some() || job.id == wanted.0;
    let job = jobs.iter().find(named).or(jobs.first());
    let job = job.ok_or_else(|| Failure::new("Job not found."))?;
    if job.state == JobState::Running {
        complain("WARNING: Efficiency statistics may be misleading for RUNNING jobs.");
    }
    let cluster = client.endpoint.cluster.clone();
    print(&report(job, &cluster, &ctx));
    Ok(())
}

/// The job, and the task of an array.
fn wanted(text: &str) -> Option<(JobId, Option<u32>)> {
    let target = job_target(text).filter(|target| target.component.is_none())?;
    let task = match &target.tasks {
        None => None,
        Some(tasks) => Some(tasks.first().filter(|first| tasks.last() == Some(*first))?),
    };
    Some((target.job, task))
}

fn failed(error: ConnectError) -> Failure {
    Failure::new(format!("seff: error: {error}"))
}

fn report(job: &AcctJob, cluster: &str, ctx: &Ctx) -> String {
    let row = AcctRow {
        job,
        step: None,
        shown: AmountStyle::default(),
    };
    let mut out = String::new();
    put!(out, "Job ID: {}\n", job.id);
    if let Some(task) = job.array {
        put!(out, "Array Job ID: {task}\n");
    }
    put!(out, "Cluster: {cluster}\n");
    put!(out, "User/Group: {}/{}\n", job.user, job.group);
    let state = row.state_name();
    put!(out, "State: {state} (exit code {})\n", job.exit.code);
    let (cpus, nodes) = (u64::from(row.cpus()), u64::from(row.nodes().max(1)));
    match cpus {
        0 | 1 => put!(out, "Cores: {cpus}\n"),
        _ => put!(out, "Nodes: {nodes}\nCores per node: {}\n", cpus / nodes),
    }
    let Some(efficiency) = JobEfficiency::of(job, ctx.now) else {
        put!(
            out,
            "Efficiency not available for jobs in the {state} state.\n"
        );
        return out;
    };
    put!(out, "CPU Utilized: {}\n", duration(efficiency.used_cpu_s));
    put!(
        out,
        "CPU Efficiency: {:.2}% of {} core-walltime\n",
        efficiency.cpu_percent(),
        duration(efficiency.had_cpu_s)
    );
    put!(
        out,
        "Job Wall-clock time: {}\n",
        duration(efficiency.elapsed_s)
    );
    let had_kib = efficiency.had_kib;
    put!(out, "Memory Utilized: {}\n", memory(efficiency.used_kib));
    put!(
        out,
        "Memory Efficiency: {:.2}% of {} ({}/node)\n",
        efficiency.memory_percent(),
        memory(had_kib),
        memory(had_kib / nodes)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sacct::tests::{job as sacct_job, step as sacct_step};
    use muster_model::ids::StepNo;
    use muster_model::job::{ArrayTask, ResourceUsage};
    use muster_proto::acct::AcctStep;

    fn job() -> AcctJob {
        let step = |total_rss_kib, user_us| AcctStep {
            usage: Some(ResourceUsage {
                user_us,
                total_rss_kib,
                ..ResourceUsage::default()
            }),
            ..sacct_step(StepNo(0), "s", JobState::Failed, (3, 0), 8, 0)
        };
        AcctJob {
            user: "u".to_owned(),
            group: "g".to_owned(),
            start: Some(Timestamp::from_unix_s(1000)),
            end: Some(Timestamp::from_unix_s(91_000)),
            alloc_cpus: 8,
            alloc_nodes: 2,
            alloc_mem_mib: 4096,
            steps: vec![step(1 << 20, 90_000_000_000), step(1024, 90_000_000_000)],
            ..sacct_job(12, "j", JobState::Failed, (3, 0))
        }
    }

    #[test]
    fn what_was_used_is_compared_with_what_there_was() {
        let text = report(&job(), "c", &Ctx::new("c"));
        let expected = "Job ID: 12\nCluster: c\nUser/Group: u/g\nState: FAILED (exit code 3)\nNodes: 2\nCores per node: 4\n\
            CPU Utilized: 2-02:00:00\nCPU Efficiency: 25.00% of 8-08:00:00 core-walltime\n\
            Job Wall-clock time: 1-01:00:00\nMemory Utilized: 1.00 GB\n\
            Memory Efficiency: 25.00% of 4.00 GB (2.00 GB/node)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_task_that_has_not_run_has_no_efficiency() {
        let waits = AcctJob {
            array: Some(ArrayTask {
                array: JobId(10),
                index: 2,
            }),
            state: JobState::Pending,
            start: None,
            end: None,
            alloc_cpus: 0,
            req_cpus: 1,
            steps: Vec::new(),
            ..job()
        };
        let text = report(&waits, "c", &Ctx::new("c"));
        assert!(
            text.contains("Array Job ID: 10_2\n") && text.contains("Cores: 1\n"),
            "{text}"
        );
        assert!(
            text.ends_with("Efficiency not available for jobs in the PENDING state.\n"),
            "{text}"
        );
    }

    #[test]
    fn one_job_is_named() {
        assert_eq!(wanted("12_3"), Some((JobId(12), Some(3))));
        for text in ["12_[1-3]", "x", "12+1", "0"] {
            assert_eq!(wanted(text), None, "{text}");
        }
    }
}
