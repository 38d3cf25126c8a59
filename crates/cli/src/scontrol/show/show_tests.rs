//! The expected texts are what scontrol 22.05.8 printed for the same records.

use super::job::{self, RecordStyle};
use super::node;
use crate::listing::context::Ctx;
use crate::listing::fixture;
use crate::listing::job::JobRow;
use crate::listing::node::NodeView;
use crate::listing::query::Jobs;
use crate::listing::step_fields::StepRow;
use muster_model::config::PartitionConfig;
use muster_model::job::StepDeviceAsk;

const PLAIN: RecordStyle = RecordStyle {
    one_line: false,
    details: 0,
};
const LINE: RecordStyle = RecordStyle {
    one_line: true,
    details: 0,
};

fn show_job(id: u64, style: RecordStyle) -> String {
    let (jobs, ctx) = (fixture::jobs(), later());
    let mut out = String::new();
    let job = jobs.jobs.iter().find(|j| j.id.0 == id).unwrap();
    job::write_job(&mut out, &JobRow::new(job, jobs.array_of(job)), &ctx, style);
    out
}

/// A second later than the listings of squeue.
fn later() -> Ctx {
    let mut ctx = fixture::ctx();
    ctx.now = fixture::at(46);
    ctx
}

#[track_caller]
fn assert_same(ours: &str, slurms: &str) {
    for (a, b) in ours.lines().zip(slurms.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!(ours, slurms);
}

#[test]
fn running_job() {
    assert_same(
        &show_job(9, PLAIN),
        include_str!("expected/scontrol_show_job_running.out"),
    );
}

#[test]
fn who_passed_others_by() {
    let jobs = fixture::jobs();
    let mut job = jobs.jobs.iter().find(|j| j.id.0 == 9).unwrap().clone();
    let alloc = job.alloc.as_deref().unwrap().clone();
    job.alloc = Some(std::sync::Arc::new(muster_model::job::Allocation {
        backfilled: true,
        ..alloc
    }));
    let mut ours = String::new();
    job::write_job(&mut ours, &JobRow::new(&job, None), &later(), PLAIN);
    let slurms = include_str!("expected/scontrol_show_job_running.out");
    assert_same(&ours, &slurms.replace("=Main", "=Backfill"));
}

#[test]
fn running_job_on_a_line() {
    assert_same(
        &show_job(9, LINE),
        include_str!("expected/scontrol_show_job_o.out"),
    );
}

#[test]
fn pending_job() {
    assert_same(
        &show_job(15, PLAIN),
        include_str!("expected/scontrol_show_job_pending.out"),
    );
}

#[test]
fn array() {
    // Slurm lists the running tasks from the newest to the oldest; here they are in order.
    let ours = show_job(11, PLAIN) + &show_job(13, PLAIN) + &show_job(12, PLAIN);
    // Slurm forgets when an array became eligible while its limit of tasks holds it back.
    let slurms = include_str!("expected/scontrol_show_job_array.out")
        .replace("EligibleTime=Unknown", "EligibleTime=2026-11-21T20:23:34");
    assert_same(&ours, &slurms);
}

#[test]
fn details() {
    let style = RecordStyle {
        one_line: false,
        details: 2,
    };
    assert_same(
        &show_job(10, style),
        include_str!("expected/scontrol_show_job_dd.out"),
    );
}

#[test]
fn step() {
    let Jobs { jobs, .. } = fixture::jobs();
    let job = jobs.iter().find(|j| j.id.0 == 10).unwrap();
    let row = StepRow {
        job: JobRow::new(job, None),
        step: &job.steps[0],
    };
    let mut out = String::new();
    job::write_step(&mut out, &row, &later(), PLAIN);
    // Which process made a step is known to the job's nodes, not to the controller.
    let slurms = include_str!("expected/scontrol_show_step.out").replace("vm:11749", "(null):0");
    assert_same(&out, &slurms);
    let mut step = (*job.steps[0]).clone();
    step.device_ask = Some(Box::new(StepDeviceAsk {
        bind: Some("gres/gpu:per_task:1".to_owned()),
        per_step: Some("cpu:1,gres/gpu:1".to_owned()),
        per_task: Some("gres/gpu:1".to_owned()),
        ..StepDeviceAsk::default()
    }));
    let row = StepRow { step: &step, ..row };
    out.clear();
    job::write_step(&mut out, &row, &later(), PLAIN);
    let (first, _) = slurms.trim_end().rsplit_once('\n').unwrap_or_default();
    let maker = "   SrunHost:Pid=(null):0\n";
    let devices = "   TresBind=gres/gpu:per_task:1\n   TresPerStep=cpu:1,gres/gpu:1\n   TresPerTask=gres/gpu:1\n\n";
    assert_same(&out, &format!("{first}\n{maker}{devices}"));
}

#[test]
fn node() {
    let ctx = later();
    let show = |style| {
        let mut out = String::new();
        for node in &ctx.nodes {
            let view = NodeView::new(node, false, None);
            node::write_node(&mut out, &view, &ctx, style);
        }
        out
    };
    let one = include_str!("expected/scontrol_show_node.out");
    assert_same(&show(PLAIN)[..one.len()], one);
    assert_same(
        &show(LINE),
        include_str!("expected/scontrol_show_node_o.out"),
    );
}

#[test]
fn partitions() {
    let ctx = later();
    let mut out = String::new();
    for partition in &ctx.partitions {
        node::write_partition(&mut out, partition, &ctx, PLAIN);
    }
    assert_same(&out, include_str!("expected/scontrol_show_partition.out"));
}

/// A partition was billed for its CPUs, whatever `TRESBillingWeights` said.
#[test]
fn partitions_are_billed_by_their_weights() {
    let ctx = later();
    let mut partition = ctx.partitions[0].clone();
    let billed = |partition: &PartitionConfig| {
        let mut out = String::new();
        node::write_partition(&mut out, partition, &ctx, PLAIN);
        let at = out.split("billing=").nth(1).unwrap_or("");
        let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    let cpus = billed(&partition);
    partition.billing_weights = Some("CPU=2.5,Node=3".to_owned());
    let nodes = partition.nodes.len() as u64;
    assert_eq!(billed(&partition), (cpus * 5 + nodes * 6) / 2);
}

#[test]
fn a_partition_shows_its_alternate_and_its_preemption() {
    let ctx = later();
    let partition = PartitionConfig {
        alternate: Some("other".to_owned()),
        preempt_mode: Some("REQUEUE".to_owned()),
        ..ctx.partitions[0].clone()
    };
    let mut out = String::new();
    node::write_partition(&mut out, &partition, &ctx, PLAIN);
    assert!(
        out.contains("AllocNodes=ALL Alternate=other Default="),
        "{out}"
    );
    assert!(out.contains(" PreemptMode=REQUEUE\n"), "{out}");
}
