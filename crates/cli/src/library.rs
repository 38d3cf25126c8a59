//! Requests of libraries to the commands: made of command lines, with the output as texts, and records of jobs. Unlike
//! a command, the process around a library has threads, and changes its environment.

mod records;
mod submission;

pub use records::{
    JobDetails, JobListing, ListedProcess, NodeDetails, NodeListing, StepDetails, TopologyRow,
    for_each_job, licenses, nodes, reservation_list, settings, step_processes, topology,
};
pub use submission::{GivenOption, JobRequest, JobRequestError, allocation_info, job_request};

use crate::connect::{Client, ConnectError};
use crate::errno;
use crate::grid_engine::site;
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::zone::{self, LocalZone};
use crate::{class, grid_engine, process, say, sbatch};
use minicbor::bytes::ByteVec;
use muster_conf::grid_engine::Mapping;
use muster_conf::job_classes::{FILE, JobClasses};
use muster_conf::options::values::time;
use muster_model::accounts::Accounts;
use muster_model::command::{ReservationAsk, UserCommand};
use muster_model::config::PartitionConfig;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::node::Node;
use muster_model::refusal::RefusalCode;
use muster_model::spec::ExecContext;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery};
use muster_proto::client::{JobFilter, ReservationsAnswer};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Request of qsub with these arguments to the controller. Nothing is read from standard input: the arguments name a
/// program.
///
/// # Errors
/// The error output of qsub.
pub fn qsub_submission(args: &[String]) -> Result<UserCommand, String> {
    captured(|| grid_engine::qsub::request(args))
}

/// Request of sbatch with these arguments to the controller.
///
/// # Errors
/// The error output of sbatch.
pub fn sbatch_submission(args: &[String]) -> Result<UserCommand, String> {
    captured(|| sbatch::request(args))
}

fn captured<T>(make: impl FnOnce() -> Result<T, ExitCode>) -> Result<T, String> {
    process::copy_variables();
    let (made, text) = say::captured(make);
    made.map_err(|_| text.trim_end().to_owned())
}

/// Records of jobs, arrays and tasks by their numbers, as far as the controller still has them.
///
/// # Errors
/// The controller cannot be asked.
pub fn jobs(client: &mut Client, ids: Vec<JobId>) -> Result<Vec<Job>, ConnectError> {
    filtered_jobs(
        client,
        JobFilter {
            ids,
            ..JobFilter::default()
        },
    )
}

/// Records of the jobs that a filter finds.
///
/// # Errors
/// The controller cannot be asked.
pub fn filtered_jobs(client: &mut Client, filter: JobFilter) -> Result<Vec<Job>, ConnectError> {
    client.query_jobs(filter)
}

/// Nodes and partitions, as far as the user may see them.
#[derive(Debug, Default)]
pub struct Hardware {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The partitions.
    pub partitions: Vec<PartitionConfig>,
}

/// The nodes and partitions of the cluster.
///
/// # Errors
/// The controller cannot be asked.
pub fn hardware(client: &mut Client) -> Result<Hardware, ConnectError> {
    let mut ctx = Ctx::new("");
    query::cluster(client, &mut ctx)?;
    Ok(Hardware {
        nodes: ctx.nodes,
        partitions: ctx.partitions,
    })
}

/// Names by which partitions are known beside their own: Grid Engine's queues, as sge.conf has them.
#[derive(Debug)]
pub struct QueueNames(Mapping);

/// The names of queues at this site.
///
/// # Errors
/// What is wrong with sge.conf.
pub fn queue_names() -> Result<QueueNames, String> {
    captured(site::mapping).map(QueueNames)
}

impl QueueNames {
    /// The names of a partition.
    pub fn of<'a>(&'a self, partition: &'a PartitionConfig) -> Vec<&'a str> {
        site::queues(&self.0, partition)
    }

    /// The partition of a queue; nothing for the default one.
    pub fn partition<'a>(&'a self, queue: &'a str) -> Option<&'a str> {
        let found = self.0.queues.iter().find(|(own, _)| own == queue);
        match found {
            Some((_, partition)) => Some(partition),
            None if queue == site::ALL => None,
            None => Some(queue),
        }
    }
}

/// The reservations that the user may see.
///
/// # Errors
/// The controller cannot be asked.
pub fn reservations(client: &mut Client) -> Result<ReservationsAnswer, ConnectError> {
    query::reservations(client)
}

/// Makes a reservation whose name is the next free number, as qrsub does, and gives the name.
///
/// # Errors
/// The controller refuses it.
pub fn reserve(client: &mut Client, ask: ReservationAsk) -> Result<String, ConnectError> {
    grid_engine::qrsub::create_numbered(client, ask)
}

/// The names of the site's job classes and of their variants.
///
/// # Errors
/// The controller cannot be asked.
pub fn job_classes(client: &mut Client) -> Result<Vec<String>, ConnectError> {
    let text = query::job_classes(client)?;
    Ok(class::names(&JobClasses::parse(&text, FILE).0))
}

/// Changes the environment and the limits that a submission carries.
///
/// # Errors
/// It carries none.
pub fn change_context(
    made: &mut UserCommand,
    change: impl FnOnce(&mut ExecContext),
) -> Result<(), String> {
    let none = || "the request has no environment".to_owned();
    let UserCommand::Submit { spec, blobs, .. } = made else {
        return Err(none());
    };
    let own = blobs.iter_mut().find(|(id, _)| Some(*id) == spec.context);
    let (_, bytes) = own.ok_or_else(none)?;
    let mut context: ExecContext = minicbor::decode(bytes).map_err(|_| none())?;
    change(&mut context);
    *bytes = ByteVec::from(context.encoded());
    Ok(())
}

/// The words of a text of options, as a shell would have them: blanks separate, quotes and backslashes keep.
///
/// # Errors
/// A quote has no other one, or nothing follows a backslash.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = chars.next();
                let next = next.ok_or("the native specification ends in a backslash")?;
                word.get_or_insert_default().push(next);
            }
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("the native specification has a quote without its other one".to_owned());
    }
    all.extend(word);
    Ok(all)
}

/// Accounting records of a job, or of an array's tasks.
///
/// # Errors
/// The controller cannot be asked.
pub fn accounting(client: &mut Client, id: JobId) -> Result<Vec<AcctJob>, ConnectError> {
    let query = AcctQuery {
        jobs: vec![(id, None)],
        ..AcctQuery::default()
    };
    query::accounting(client, query).map(|(jobs, ..)| jobs)
}

/// Accounting records of the jobs that a query finds.
///
/// # Errors
/// The controller cannot be asked.
pub fn accounting_of(client: &mut Client, query: AcctQuery) -> Result<Vec<AcctJob>, ConnectError> {
    query::accounting(client, query).map(|(jobs, ..)| jobs)
}

/// Accounts, users and QOS of the cluster.
///
/// # Errors
/// The controller cannot be asked.
pub fn accounts(client: &mut Client) -> Result<Accounts, ConnectError> {
    query::accounts(client).map(|answer| answer.accounts)
}

/// Runs scontrol with these arguments for the caller's own use, and gives its standard output.
///
/// # Errors
/// Its error output.
pub fn scontrol(args: &[String]) -> Result<String, String> {
    process::copy_variables();
    let (code, kept) =
        say::run_captured(|| crate::scontrol::main(args, crate::documents::print_answer));
    match code == ExitCode::SUCCESS {
        true => Ok(kept.out),
        false => Err(kept.err.trim_end().to_owned()),
    }
}

/// Slurm's number of a refusal (slurm_errno.h).
pub fn error_number(code: RefusalCode) -> i32 {
    errno::of(code)
}

/// Slurm's text for one of its numbers, where it is known.
pub fn error_text(number: i32) -> Option<&'static str> {
    errno::text_of(number)
}

/// The number of the error that a command's error output names.
pub fn error_number_of(text: &str) -> Option<i32> {
    errno::named_in(text)
}

/// A time in the user's zone, as commands print it.
pub fn time_text(at: Timestamp) -> String {
    zone::show(at)
}

/// The time that a text such as `now+1hour` means now.
pub fn time_of_text(text: &str) -> Option<Timestamp> {
    time::parse(text, zone::now(), &LocalZone::default())
}

/// Looks at jobs that are waited for, at growing intervals.
#[derive(Debug)]
pub struct JobPoller {
    pause: Duration,
    until: Option<Instant>,
}

impl JobPoller {
    /// Between the first two looks.
    const SHORTEST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    /// Looks until that time, or for ever.
    pub fn until(until: Option<Instant>) -> JobPoller {
        JobPoller {
            pause: JobPoller::SHORTEST,
            until,
        }
    }

    /// Waits for the next look; false if the time is over.
    pub fn wait(&mut self) -> bool {
        let pause = self.next_pause(Instant::now());
        pause.map(std::thread::sleep).is_some()
    }

    fn next_pause(&mut self, now: Instant) -> Option<Duration> {
        let left = self.until.map(|until| until.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            return None;
        }
        let pause = left.map_or(self.pause, |left| left.min(self.pause));
        self.pause = (self.pause * 2).min(JobPoller::LONGEST);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_shells() {
        let own = |text: &str| words(text).unwrap();
        assert_eq!(
            own(" -l  h_rt=5 -N 'a b' -q \"x y\"z a\\ b ''"),
            ["-l", "h_rt=5", "-N", "a b", "-q", "x yz", "a b", ""]
        );
        assert!(words("'a").is_err() && words("a\\").is_err());
    }

    #[test]
    fn queues_stand_for_partitions() {
        let (mapping, findings) = Mapping::parse("queue long.q long\n", "sge.conf");
        assert!(findings.is_empty());
        let names = QueueNames(mapping);
        assert_eq!(names.partition("long.q"), Some("long"));
        assert_eq!(names.partition("long"), Some("long"));
        assert_eq!(names.partition("all.q"), None);
        let mapped = QueueNames(Mapping::parse("queue all.q short\n", "sge.conf").0);
        assert_eq!(mapped.partition("all.q"), Some("short"));
    }

    #[test]
    fn looks_at_jobs_become_rarer_and_end_in_time() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let mut looks = JobPoller::until(None);
        let pauses: Vec<Duration> = (0..8).map_while(|_| looks.next_pause(now)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000].map(ms));
        let mut looks = JobPoller::until(Some(now + ms(50)));
        assert_eq!(looks.next_pause(now), Some(ms(20)));
        assert_eq!(looks.next_pause(now + ms(20)), Some(ms(30)));
        assert_eq!(looks.next_pause(now + ms(50)), None);
        assert_eq!(looks.next_pause(now + ms(60)), None);
    }
}
