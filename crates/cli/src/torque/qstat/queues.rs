//! Queues, which are partitions, and the server.

use super::state_letter;
use crate::listing::context::Ctx;
use crate::listing::query::Jobs;
use crate::torque::arguments::TorqueLine;
use crate::torque::fail;
use crate::torque::qstat::lines::clock;
use muster_model::config::{PartitionConfig, PartitionState};
use muster_model::job::{ArrayRole, Job};
use muster_model::time::TimeLimit;
use muster_trust::host::short_name;
use std::fmt::Write as _;
use std::process::ExitCode;

/// `qstat -Q`, `-q`, `-B`.
pub(super) fn show(parsed: &TorqueLine, ctx: &Ctx, jobs: &Jobs) -> Result<ExitCode, ExitCode> {
    let mut status = ExitCode::SUCCESS;
    if parsed.has("B") {
        crate::listing::print(&server(ctx, jobs, parsed.has("f")));
        return Ok(status);
    }
    let mut shown: Vec<&PartitionConfig> = Vec::new();
    for word in &parsed.operands {
        let name = word.split('@').next().unwrap_or_default();
        match ctx.partition(name) {
            Some(partition) => shown.push(partition),
            None => status = fail("qstat", &format!("Unknown queue destination {word}"), 170),
        }
    }
    if parsed.operands.is_empty() {
        shown = ctx.partitions.iter().filter(|p| ctx.shows(p)).collect();
    }
    let all: Vec<(&PartitionConfig, QueueCounts)> = shown
        .into_iter()
        .map(|partition| (partition, QueueCounts::of(jobs, Some(&partition.name))))
        .collect();
    let text = match (parsed.has("Q"), parsed.has("f")) {
        (true, true) => full(&all),
        (true, false) => with_jobs(&all),
        (false, _) => with_limits(&all),
    };
    crate::listing::print(&text);
    Ok(status)
}

/// Jobs by the letters of their states; tasks of an array count each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueCounts {
    queued: usize,
    running: usize,
    held: usize,
    waiting: usize,
    exiting: usize,
}

impl QueueCounts {
    fn of(jobs: &Jobs, partition: Option<&str>) -> QueueCounts {
        let mut counts = QueueCounts::default();
        let is_there = |job: &&Job| partition.is_none_or(|name| job.partition == name);
        for job in jobs.jobs.iter().filter(is_there) {
            let tasks = match &job.array {
                ArrayRole::Pending { indices } => indices.iter().count(),
                ArrayRole::None | ArrayRole::Task { .. } => 1,
            };
            match state_letter(job) {
                'Q' => counts.queued += tasks,
                'R' | 'S' => counts.running += tasks,
                'H' => counts.held += tasks,
                'W' => counts.waiting += tasks,
                'E' => counts.exiting += tasks,
                _ => {}
            }
        }
        counts
    }

    fn total(self) -> usize {
        self.queued + self.running + self.held + self.waiting + self.exiting
    }
}

/// Whether a queue takes jobs, and whether they start.
fn switches(partition: &PartitionConfig) -> (bool, bool) {
    match partition.effective_state() {
        PartitionState::Up => (true, true),
        PartitionState::Down => (true, false),
        PartitionState::Drain => (false, true),
        PartitionState::Inactive => (false, false),
    }
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

fn with_jobs(all: &[(&PartitionConfig, QueueCounts)]) -> String {
    let mut text = String::from(
        "Queue              Max   Tot   Ena   Str   Que   Run   Hld   Wat   Trn   Ext T\n\
         ----------------   ---   ---   ---   ---   ---   ---   ---   ---   ---   --- -\n",
    );
    for (partition, own) in all {
        let (enabled, started) = switches(partition);
        let _ = writeln!(
            text,
            "{:<16.16} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} E",
            partition.name,
            0,
            own.total(),
            yes(enabled),
            yes(started),
            own.queued,
            own.running,
            own.held,
            own.waiting,
            0,
            own.exiting,
        );
    }
    text
}

fn limit(partition: &PartitionConfig) -> Option<String> {
    match partition.max_time {
        TimeLimit::Minutes(minutes) => Some(clock(i64::from(minutes) * 60)),
        TimeLimit::Unlimited => None,
    }
}

fn with_limits(all: &[(&PartitionConfig, QueueCounts)]) -> String {
    let mut text = String::from(
        "Queue            Memory CPU Time Walltime Node  Run Que Lm State\n\
         ---------------- ------ -------- -------- ----  --- --- -- -----\n",
    );
    let (mut running, mut queued) = (0, 0);
    for (partition, own) in all {
        let waits = own.queued + own.held + own.waiting;
        let (enabled, started) = switches(partition);
        let _ = writeln!(
            text,
            "{:<16.16}   --      --    {:<8} {:>4} {:>4} {:>3} --  {} {} ",
            partition.name,
            limit(partition).unwrap_or_else(|| "   --   ".to_owned()),
            "--",
            own.running,
            waits,
            if enabled { 'E' } else { 'D' },
            if started { 'R' } else { 'S' },
        );
        running += own.running;
        queued += waits;
    }
    let _ = writeln!(text, "{:>52} -----", "-----");
    let _ = writeln!(text, "{running:>52} {queued:>5}");
    text
}

fn full(all: &[(&PartitionConfig, QueueCounts)]) -> String {
    let mut text = String::new();
    for (partition, own) in all {
        let (enabled, started) = switches(partition);
        let _ = writeln!(
            text,
            "Queue: {}\n    queue_type = Execution",
            partition.name
        );
        let _ = writeln!(text, "    total_jobs = {}", own.total());
        let _ = writeln!(
            text,
            "    state_count = Transit:0 Queued:{} Held:{} Waiting:{} Running:{} Exiting:{}",
            own.queued, own.held, own.waiting, own.running, own.exiting
        );
        if let Some(limit) = limit(partition) {
            let _ = writeln!(text, "    resources_max.walltime = {limit}");
        }
        let word = |is_so: bool| if is_so { "True" } else { "False" };
        let _ = writeln!(
            text,
            "    enabled = {}\n    started = {}\n",
            word(enabled),
            word(started)
        );
    }
    text
}

fn server(ctx: &Ctx, jobs: &Jobs, is_full: bool) -> String {
    let own = QueueCounts::of(jobs, None);
    let mut text = String::new();
    if is_full {
        let _ = writeln!(text, "Server: {}\n    server_state = Active", short_name());
        let _ = writeln!(text, "    total_jobs = {}", own.total());
        let _ = writeln!(
            text,
            "    state_count = Transit:0 Queued:{} Held:{} Waiting:{} Running:{} Exiting:{}",
            own.queued, own.held, own.waiting, own.running, own.exiting
        );
        if let Some(default) = ctx.partitions.iter().find(|p| p.default) {
            let _ = writeln!(text, "    default_queue = {}", default.name);
        }
        let _ = writeln!(text, "    pbs_version = {}\n", crate::SLURM_VERSION);
        return text;
    }
    text.push_str("Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status\n");
    text.push_str("----------------   ---   ---   ---   ---   ---   ---   ---   --- ----------\n");
    let _ = writeln!(
        text,
        "{:<16.16} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} Active",
        short_name(),
        0,
        own.total(),
        own.queued,
        own.running,
        own.held,
        own.waiting,
        0,
        own.exiting,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use crate::listing::query::Records;

    #[test]
    fn queues_with_their_jobs() {
        let held = {
            let mut job = fixture::job(8, "held");
            job.hold = muster_model::job::Hold::User;
            job
        };
        let jobs = Jobs {
            jobs: Records::from(vec![fixture::job(7, "x"), held]),
            ..Jobs::default()
        };
        let counts = QueueCounts::of(&jobs, Some("batch"));
        assert_eq!((counts.queued, counts.held, counts.total()), (1, 1, 2));
        assert_eq!(QueueCounts::of(&jobs, Some("short")).total(), 0);
        let partition = PartitionConfig {
            max_time: TimeLimit::Minutes(30),
            ..PartitionConfig::named("batch")
        };
        let all = [(&partition, counts)];
        assert_eq!(
            with_jobs(&all).lines().last().unwrap(),
            "batch                0     2   yes   yes     1     0     1     0     0     0 E"
        );
        let text = with_limits(&all);
        let line = text.lines().nth(2).unwrap();
        assert!(
            line.starts_with("batch              --      --    00:30:00"),
            "{line}"
        );
        assert!(full(&all).contains("    resources_max.walltime = 00:30:00\n"));
    }
}
