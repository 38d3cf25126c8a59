//! qstat: jobs, queues and the server, in the columns that Slurm's qstat has.

mod full;
mod lines;
mod queues;

use super::arguments::TorqueLine;
use super::{HELP, fail, jobs, run_command, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::context::{Ctx, uid_of};
use crate::listing::query::{self, Jobs};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_model::command::JobTarget;
use muster_model::job::{ArrayRole, Job, JobState};
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// qstat.
pub(crate) static SPEC: Spec = Spec {
    name: "torque-qstat",
    about: "Shows jobs, queues and the server, as Torque's qstat does.",
    operands: "[JOB...] | [QUEUE...]",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "Jobs that have ended are shown for MinJobAge of slurm.conf, in state C. Tasks of an array have the numbers that Slurm's \
            commands know them by.\n",
};

static OPTIONS: &[Opt] = &[
    flag("1", "with -n: nodes on the job's own line"),
    flag("a", "all jobs, with requests and times"),
    flag("B", "the server"),
    flag("c", "only jobs that have not ended"),
    flag("C", "PBS only").refused("there is nothing of that name"),
    flag("e", "only jobs that could run").partly("those in states Q and R"),
    flag("E", "sort for servers").stored("there is one server"),
    flag("f", "all attributes of jobs, or with -Q of queues"),
    flag("G", "memory in gigabytes"),
    flag("i", "jobs that wait, with requests and times"),
    flag("l", "names in full").stored("columns are as wide as they are"),
    flag("M", "memory in megawords of 8 bytes"),
    flag("n", "with the nodes of jobs"),
    flag("q", "queues, with their limits"),
    flag("Q", "queues, with their jobs"),
    flag("r", "jobs that run, with requests and times"),
    flag("R", "PBS only").refused("there is nothing of that name"),
    flag("s", "with why jobs wait"),
    flag("t", "each task of an array").partly("tasks that wait are one line"),
    opt("u", "users", "jobs of these users, with requests and times"),
    opt("W", "options", "site options of the listing")
        .refused("say what is to be shown by -a, -f, -Q, -B"),
    flag("x", "as XML").refused("squeue --json has everything"),
    HELP[0],
    HELP[1],
];

/// Runs qstat.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, run)
}

/// Data of the listing.
struct Listing<'a> {
    ctx: &'a Ctx,
    jobs: &'a Jobs,
    shown: Vec<&'a Job>,
}

fn run(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let failed = |e: ConnectError| unreachable("qstat", &e);
    let mut client = Client::connect().map_err(failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    let of_queues = parsed.has("Q") || parsed.has("q") || parsed.has("B");
    let named = match of_queues {
        true => Vec::new(),
        false => named(parsed)?,
    };
    let mut filter = JobFilter {
        ids: named.iter().map(|(_, target)| target.job).collect(),
        ..JobFilter::default()
    };
    if let Some(list) = parsed.last("u") {
        for name in list.split(',').filter(|name| !name.is_empty()) {
            let name = name.split('@').next().unwrap_or_default();
            let uid = uid_of(name);
            filter
                .uids
                .push(uid.ok_or_else(|| fail("qstat", &format!("there is no user '{name}'"), 1))?);
        }
    }
    let jobs = query::jobs(&mut client, &mut ctx, filter).map_err(failed)?;
    if of_queues {
        return queues::show(parsed, &ctx, &jobs);
    }
    let mut status = ExitCode::SUCCESS;
    for (word, target) in &named {
        if jobs.unknown.contains(&target.job) {
            status = fail("qstat", &format!("Unknown Job Id {word}"), 153);
        }
    }
    let mut shown: Vec<&Job> = jobs.jobs.iter().collect();
    shown.retain(|job| is_wanted(job, parsed, &named));
    shown.sort_by_key(|job| job.id);
    let listing = Listing {
        ctx: &ctx,
        jobs: &jobs,
        shown,
    };
    let alternative = ["a", "i", "r", "u", "n", "s", "G", "M"];
    let text = if parsed.has("f") {
        full::of_jobs(&listing)
    } else if alternative.iter().any(|name| parsed.has(name)) {
        lines::alternative(&listing, parsed)
    } else {
        lines::brief(&listing)
    };
    crate::listing::print(&text);
    Ok(status)
}

/// Jobs that the command line names.
fn named(parsed: &TorqueLine) -> Result<Vec<(String, JobTarget)>, ExitCode> {
    let mut all = Vec::new();
    for word in &parsed.operands {
        let found = jobs::target(word);
        let found =
            found.ok_or_else(|| fail("qstat", &format!("'{word}' is no job or -Q misses"), 1))?;
        all.push((word.clone(), found));
    }
    Ok(all)
}

fn is_wanted(job: &Job, parsed: &TorqueLine, named: &[(String, JobTarget)]) -> bool {
    let letter = state_letter(job);
    if parsed.has("r") && !matches!(letter, 'R' | 'S' | 'E')
        || parsed.has("i") && !matches!(letter, 'Q' | 'H' | 'W')
        || parsed.has("c") && letter == 'C'
        || parsed.has("e") && !matches!(letter, 'Q' | 'R')
    {
        return false;
    }
    let has_task = |target: &JobTarget| match (&target.tasks, &job.array) {
        (None, _) => true,
        (Some(tasks), ArrayRole::Task { index, .. }) => tasks.contains(*index),
        (Some(tasks), ArrayRole::Pending { indices }) => {
            tasks.iter().any(|task| indices.contains(task))
        }
        (Some(_), ArrayRole::None) => false,
    };
    let is_of = |target: &JobTarget| {
        let base = match job.array {
            ArrayRole::Task { base, .. } => base,
            ArrayRole::None | ArrayRole::Pending { .. } => job.id,
        };
        (target.job == base || target.job == job.id) && has_task(target)
    };
    named.is_empty() || named.iter().any(|(_, target)| is_of(target))
}

/// The letter of a job's state.
fn state_letter(job: &Job) -> char {
    use muster_model::job::Hold;
    match job.state {
        _ if job.completing => 'E',
        JobState::Running => 'R',
        JobState::Suspended => 'S',
        JobState::Pending if job.hold != Hold::None => 'H',
        JobState::Pending if !job.waiting_on.is_empty() => 'H',
        JobState::Pending if job.begin_at.is_some() => 'W',
        JobState::Pending => 'Q',
        _ => 'C',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use crate::torque::arguments::{WordPlaces, parse};
    use muster_model::job::Hold;

    #[test]
    fn states_and_selections() {
        let mut job = fixture::job(7, "x");
        let with = |job: &Job, text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            let parsed = parse(&SPEC, &words, WordPlaces::Mixed).unwrap();
            is_wanted(job, &parsed, &named(&parsed).unwrap())
        };
        assert_eq!(state_letter(&job), 'Q');
        assert!(with(&job, "-i") && !with(&job, "-r") && with(&job, "7") && !with(&job, "8"));
        assert!(!with(&job, "7[1]"));
        job.hold = Hold::User;
        assert_eq!(state_letter(&job), 'H');
        job.hold = Hold::None;
        job.begin_at = Some(fixture::at(900));
        assert_eq!(state_letter(&job), 'W');
        job.state = JobState::Completed;
        assert_eq!(state_letter(&job), 'C');
        assert!(!with(&job, "-c"));
        job.completing = true;
        assert_eq!(state_letter(&job), 'E');
        job.completing = false;
        job.state = JobState::Running;
        job.array = ArrayRole::Task {
            base: muster_model::ids::JobId(5),
            index: 2,
        };
        assert!(with(&job, "-r") && with(&job, "5[2]") && !with(&job, "5[1]"));
        assert!(with(&job, "5") && with(&job, "7") && with(&job, "5[].srv"));
    }
}
