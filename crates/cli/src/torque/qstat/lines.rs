//! A line for each job: the brief one, and that with requests and times.

use super::{Listing, state_letter};
use crate::listing::job::JobRow;
use crate::torque::arguments::TorqueLine;
use muster_model::job::Job;
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;
use muster_trust::host::short_name;
use std::fmt::Write as _;

/// `qstat`.
pub(super) fn brief(listing: &Listing) -> String {
    let mut text = String::new();
    if listing.shown.is_empty() {
        return text;
    }
    text.push_str(
        "Job id              Name             Username        Time Use S Queue          \n",
    );
    text.push_str(
        "------------------- ---------------- --------------- -------- - ---------------\n",
    );
    for job in &listing.shown {
        let row = row(listing, job);
        let _ = writeln!(
            text,
            "{:<19.19} {:<16.16} {:<15.15} {:<8} {} {:<15.15}",
            job.id.to_string(),
            job.spec.name,
            job.spec.owner.user,
            clock(row.run_time_s(listing.ctx)),
            state_letter(job),
            partition(&row),
        );
    }
    text
}

/// `qstat -a` and its kin.
pub(super) fn alternative(listing: &Listing, parsed: &TorqueLine) -> String {
    let mut text = String::new();
    if listing.shown.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\n{}:", short_name());
    text.push_str(HEAD);
    for job in &listing.shown {
        line(&mut text, listing, job, parsed);
    }
    text
}

const HEAD: &str = "                                                                               Req'd  Req'd   Elap \n\
Job id               Username Queue    Name                 SessID NDS   TSK   Memory Time Use S Time \n\
-------------------- -------- -------- -------------------- ------ ----- ----- ------ ----- - -----\n";

fn line(text: &mut String, listing: &Listing, job: &Job, parsed: &TorqueLine) {
    let row = row(listing, job);
    let limit = match job.time_limit {
        TimeLimit::Minutes(minutes) => short_clock(i64::from(minutes) * 60),
        TimeLimit::Unlimited => "--".to_owned(),
    };
    let _ = write!(
        text,
        "{:<20.20} {:<8.8} {:<8.8} {:<20.20} {:<6} {:<5} {:<5} {:>6} {:>5} {} {:>5}",
        job.id.to_string(),
        job.spec.owner.user,
        partition(&row),
        job.spec.name,
        "--",
        row.node_count(),
        row.cpus(),
        memory(&row, parsed),
        limit,
        state_letter(job),
        short_clock(row.run_time_s(listing.ctx)),
    );
    if parsed.has("n") {
        let nodes = nodes(&row);
        text.push_str("   ");
        if !parsed.has("1") {
            text.truncate(text.trim_end().len());
            text.push_str("\n   ");
        }
        text.push_str(if nodes.is_empty() { "--" } else { &nodes });
    }
    text.push('\n');
    if parsed.has("s") {
        let _ = writeln!(text, "   {}", comment(&row));
    }
}

/// Why a job waits, or since when it runs.
pub(super) fn comment(row: &JobRow) -> String {
    match row.is_pending() {
        true => format!("Not Running: {}", row.reason()),
        false => row.state_name().to_owned(),
    }
}

pub(super) fn row<'a>(listing: &Listing<'a>, job: &'a Job) -> JobRow<'a> {
    JobRow::new(job, listing.jobs.array_of(job))
}

pub(super) fn partition(row: &JobRow) -> String {
    let mut text = String::new();
    row.write_partition(&mut text);
    text
}

/// `n1/3+n2/1`: nodes with the number of CPUs that the job has there.
pub(super) fn nodes(row: &JobRow) -> String {
    let named = row.shares();
    let all: Vec<String> = named
        .map(|share| format!("{}/{}", share.name, share.cpus.len()))
        .collect();
    all.join("+")
}

/// Memory that was asked for.
fn memory(row: &JobRow, parsed: &TorqueLine) -> String {
    let mib = match row.job.spec.ask.memory {
        MemoryAsk::Default | MemoryAsk::PerNode(0) => return "--".to_owned(),
        MemoryAsk::PerNode(mib) => mib,
        MemoryAsk::PerCpu(mib) => mib.saturating_mul(row.cpus()),
    };
    if parsed.has("M") {
        return format!("{}mw", mib.div_ceil(8));
    }
    match parsed.has("G") || mib % 1024 == 0 {
        true => format!("{}gb", mib.div_ceil(1024)),
        false => format!("{mib}mb"),
    }
}

/// `01:02:03`.
pub(super) fn clock(seconds: i64) -> String {
    let (hours, rest) = (seconds / 3600, seconds % 3600);
    format!("{hours:02}:{:02}:{:02}", rest / 60, rest % 60)
}

/// `01:02`.
fn short_clock(seconds: i64) -> String {
    format!("{:02}:{:02}", seconds / 3600, seconds % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::context::Ctx;
    use crate::listing::fixture;
    use crate::listing::query::Jobs;
    use crate::torque::arguments::{WordPlaces, parse};
    use crate::torque::qstat::SPEC;
    use jiff::tz::TimeZone;

    fn parsed(text: &str) -> TorqueLine {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&SPEC, &words, WordPlaces::Mixed).unwrap()
    }

    /// The columns of Slurm 22.05's qstat.
    #[test]
    fn columns_are_where_programs_look_for_them() {
        let ctx = Ctx::bare("peer", TimeZone::UTC);
        let mut job = fixture::job(129, "bigjob");
        job.time_limit = TimeLimit::Minutes(10);
        let jobs = Jobs::default();
        let listing = Listing {
            ctx: &ctx,
            jobs: &jobs,
            shown: vec![&job],
        };
        assert_eq!(
            brief(&listing).lines().last().unwrap(),
            "129                 bigjob           root            00:00:00 Q batch          "
        );
        let text = alternative(&listing, &parsed("-n"));
        assert_eq!(
            text.lines().skip(5).collect::<Vec<_>>(),
            [
                "129                  root     batch    bigjob               --     1     1         -- 00:10 Q 00:00",
                "   --"
            ]
        );
        let text = alternative(&listing, &parsed("-n1"));
        assert!(text.ends_with("00:10 Q 00:00   --\n"), "{text}");
        let none = Listing {
            shown: Vec::new(),
            ..listing
        };
        assert_eq!(brief(&none) + &alternative(&none, &parsed("-a")), "");
    }

    #[test]
    fn times() {
        assert_eq!(clock(3_723), "01:02:03");
        assert_eq!(short_clock(360_059), "100:00");
    }
}
