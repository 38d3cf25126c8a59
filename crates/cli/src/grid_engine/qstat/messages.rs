//! Why jobs wait, in the words of Grid Engine's scheduler: of queues, of single jobs, of groups of jobs.

use super::lines::{self, is_pending};
use super::queues::Instance;
use crate::grid_engine::selection;
use crate::listing::job::JobRow;
use muster_model::job::{ArrayRole, Job, Reason};

/// The message about a queue that takes no job.
pub(super) fn of_queue(queue: &Instance) -> Option<String> {
    let why = match queue.states.as_str() {
        states if states.contains('u') => "it is temporarily not available",
        states if states.contains('C') => "it is suspended",
        states if states.contains(['d', 'D', 'E']) => "it is disabled",
        _ if queue.total > 0 && queue.used >= queue.total => "it is full",
        _ => return None,
    };
    Some(format!(
        "queue instance \"{}\" dropped because {why}",
        queue.name()
    ))
}

/// Whether no queue takes jobs.
pub(super) fn all_dropped(queues: &[Instance]) -> bool {
    !queues.is_empty() && queues.iter().all(|own| of_queue(own).is_some())
}

/// The message where no queue takes jobs.
pub(super) const ALL_DROPPED: &str = "All queues dropped because of overload or full";

/// The messages about all queues.
pub(super) fn of_queues(queues: &[Instance]) -> Vec<String> {
    let mut all: Vec<String> = queues.iter().filter_map(of_queue).collect();
    if all_dropped(queues) {
        all.push(ALL_DROPPED.to_owned());
    }
    all
}

/// Why a job waits, as far as Grid Engine has words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It is in error state.
    Error,
    /// It is held.
    Hold,
    /// Its time has not come.
    Time,
    /// It waits for others.
    Predecessors,
    /// As many tasks of the array run as may.
    ArrayLimit,
    /// For another reason.
    Other,
}

impl Waits {
    /// Returns the reasons of a pending job.
    pub(super) fn of(job: &Job) -> Waits {
        match job {
            job if lines::is_in_error(job) => Waits::Error,
            job if lines::is_held(job, 'u') || lines::is_held(job, 'o') => Waits::Hold,
            job if lines::is_held(job, 'd') => Waits::Predecessors,
            job if lines::is_held(job, 'a') => Waits::Time,
            job if is_array(job) && job.reason == Reason::JobArrayTaskLimit => Waits::ArrayLimit,
            _ => Waits::Other,
        }
    }

    /// The message about one job; other reasons have Slurm's names.
    pub(super) fn text(self, job: &Job) -> String {
        let text = match self {
            Waits::Error => "Job is in error state",
            Waits::Hold => "Job is in hold state",
            Waits::Time => "execution time not reached",
            Waits::Predecessors => "job dropped because of job dependencies",
            Waits::ArrayLimit => "not all array tasks may be started due to 'max_aj_instances'",
            Waits::Other => {
                return format!("Job waits: {}", JobRow::new(job, None).reason());
            }
        };
        text.to_owned()
    }

    /// The message about all jobs that wait for the same.
    fn group(self, job: &Job) -> String {
        let text = match self {
            Waits::Error => "Jobs dropped because of error state",
            Waits::Hold => "Jobs dropped because of hold state",
            Waits::Time => "Jobs can not run because execution time not reached",
            Waits::Predecessors => "Job dropped because of job dependencies",
            Waits::ArrayLimit => "Not all array tasks may be started due to 'max_aj_instances'",
            Waits::Other => {
                return format!("Jobs wait: {}", JobRow::new(job, None).reason());
            }
        };
        text.to_owned()
    }

    /// The order of groups.
    fn rank(self) -> u8 {
        match self {
            Waits::Other => 0,
            Waits::Error => 1,
            Waits::Hold => 2,
            Waits::Time => 3,
            Waits::Predecessors => 4,
            Waits::ArrayLimit => 5,
        }
    }
}

fn is_array(job: &Job) -> bool {
    matches!(job.array, ArrayRole::Pending { .. })
}

/// Jobs that wait for the same thing.
#[derive(Debug)]
pub(super) struct WaitGroup {
    pub(super) waits: Waits,
    /// Their common reason.
    pub(super) text: String,
    /// Their numbers.
    pub(super) numbers: Vec<String>,
}

/// All jobs that wait, in groups.
pub(super) fn groups(jobs: &[Job]) -> Vec<WaitGroup> {
    let mut groups: Vec<WaitGroup> = Vec::new();
    for job in jobs.iter().filter(|job| is_pending(job)) {
        let waits = Waits::of(job);
        let text = waits.group(job);
        let number = selection::number(job).to_string();
        match groups.iter_mut().find(|own| own.text == text) {
            Some(own) => own.numbers.push(number),
            None => groups.push(WaitGroup {
                waits,
                text,
                numbers: vec![number],
            }),
        }
    }
    groups.sort_by_key(|own| own.waits.rank());
    groups
}
