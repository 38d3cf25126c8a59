//! `qstat -f`: all attributes of jobs.

use super::lines::{clock, comment, nodes, partition, row};
use super::{Listing, state_letter};
use crate::listing::job::Stdio;
use muster_model::job::{ArrayRole, Hold, Job};
use muster_model::spec::MemoryAsk;
use muster_model::time::{TimeLimit, Timestamp};
use std::fmt::Write as _;

/// A paragraph for each job.
pub(super) fn of_jobs(listing: &Listing) -> String {
    listing
        .shown
        .iter()
        .map(|job| of_job(listing, job))
        .collect()
}

fn of_job(listing: &Listing, job: &Job) -> String {
    let (ctx, row, spec) = (listing.ctx, row(listing, job), &job.spec);
    let mut text = format!("Job Id:\t{}\n", job.id);
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "\t{name} = {value}");
        }
    };
    let time = |at: Option<Timestamp>| {
        at.map(|at| ctx.zoned(at).strftime("%a %b %d %H:%M:%S %Y").to_string())
            .unwrap_or_default()
    };
    set("Job_Name", &spec.name);
    set(
        "Job_Owner",
        &format!("{}@{}", spec.owner.user, spec.submit_host),
    );
    if row.start(ctx).is_some() && !row.is_pending() {
        set("resources_used.walltime", &clock(row.run_time_s(ctx)));
    }
    set("job_state", &state_letter(job).to_string());
    set("queue", &partition(&row));
    set("Account_Name", spec.account.as_deref().unwrap_or_default());
    set("qtime", &time(job.eligible_time.or(Some(job.submit_time))));
    set(
        "mtime",
        &time(
            job.end_time
                .or(job.start_time.filter(|_| !row.is_pending()))
                .or(Some(job.submit_time)),
        ),
    );
    set("ctime", &time(Some(job.submit_time)));
    if !row.is_pending() {
        set("start_time", &time(job.start_time));
        set("comp_time", &time(job.end_time));
    }
    set("Execution_Time", &time(row.begin(ctx)));
    set("exec_host", &nodes(&row));
    set("Priority", &job.priority.to_string());
    set("euser", &format!("{}({})", spec.owner.user, spec.owner.uid));
    set(
        "egroup",
        &format!("{}({})", spec.owner.group, spec.owner.gid),
    );
    let mut depend = String::new();
    row.write_dependency(&mut depend);
    if depend != "(null)" {
        set("depend", &depend);
    }
    set(
        "Hold_Types",
        match job.hold {
            Hold::None => "n",
            Hold::User => "u",
            _ => "s",
        },
    );
    if let TimeLimit::Minutes(minutes) = job.time_limit {
        set("Resource_List.walltime", &clock(i64::from(minutes) * 60));
    }
    set("Resource_List.nodect", &row.node_count().to_string());
    set("Resource_List.ncpus", &row.cpus().to_string());
    match spec.ask.memory {
        MemoryAsk::PerNode(mib) if mib > 0 => set("Resource_List.mem", &format!("{mib}mb")),
        MemoryAsk::PerCpu(mib) => set("Resource_List.pmem", &format!("{mib}mb")),
        MemoryAsk::Default | MemoryAsk::PerNode(_) => {}
    }
    set(
        "Output_Path",
        &row.stdio_path(Stdio::Out).unwrap_or_default(),
    );
    set(
        "Error_Path",
        &row.stdio_path(Stdio::Err).unwrap_or_default(),
    );
    let is_rerunnable = if job.requeueable { "True" } else { "False" };
    set("Rerunable", is_rerunnable);
    if let ArrayRole::Task { base, index } = job.array {
        set("array_id", &base.to_string());
        set("array_index", &index.to_string());
    }
    set("init_work_dir", &spec.work_dir);
    set("submit_args", &spec.submit_line);
    if row.is_pending() {
        set("comment", &comment(&row));
    }
    if job.state.is_ended() {
        let exit = match job.exit.signal {
            0 => job.exit.code,
            signal => 256 + signal,
        };
        set("exit_status", &exit.to_string());
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::context::Ctx;
    use crate::listing::fixture;
    use crate::listing::query::Jobs;
    use jiff::tz::TimeZone;

    #[test]
    fn attributes_of_a_job_that_waits() {
        let ctx = Ctx::bare("peer", TimeZone::UTC);
        let job = fixture::job(129, "bigjob");
        let jobs = Jobs::default();
        let listing = Listing {
            ctx: &ctx,
            jobs: &jobs,
            shown: vec![&job],
        };
        let text = of_jobs(&listing);
        assert!(
            text.starts_with("Job Id:\t129\n\tJob_Name = bigjob\n"),
            "{text}"
        );
        for line in [
            "\tJob_Owner = root@localhost",
            "\tjob_state = Q",
            "\tqueue = batch",
            "\tqtime = Sat Nov 21 20:23:38 2026",
            "\teuser = root(0)",
            "\tResource_List.nodect = 1",
            "\tResource_List.ncpus = 1",
            "\tOutput_Path = /dev/null",
            "\tHold_Types = n",
            "\tcomment = Not Running: None",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        assert!(
            !text.contains("exec_host") && text.ends_with("\n\n"),
            "{text}"
        );
    }
}
