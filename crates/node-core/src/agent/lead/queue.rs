//! The queue of waiting steps, by job, connection and user, so that the cost of an event does not depend on unrelated
//! steps. Its length is bounded. `waiting` decides which steps start.

use super::Waiting;
use crate::agent::ConnId;
use muster_model::ids::JobAttempt;
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// Steps of one job that may wait: as many as one user may have connections, each of an srun.
const JOB_MAX: usize = 4096;
/// The limit for all jobs of one user that this node leads.
const USER_MAX: usize = 8192;

/// All waiting steps.
#[derive(Debug, Default)]
pub(super) struct WaitingSteps {
    jobs: BTreeMap<JobAttempt, JobQueue>,
    clients: HashMap<ConnId, ClientSteps>,
    /// Number of waiting steps, by owner of their jobs.
    users: HashMap<u32, usize>,
    /// Jobs with changes since they were last examined.
    ready: BTreeSet<JobAttempt>,
    /// The job examined last; the next ones are those after it.
    last: Option<JobAttempt>,
    /// Jobs whose steps wait until the controller has acknowledged reports.
    unacknowledged: BTreeSet<JobAttempt>,
    next: u64,
    /// Number of examinations of waiting steps and jobs so far.
    #[cfg(test)]
    pub(super) looks: usize,
}

/// Steps of one job that wait. Each has a place; later ones have higher places.
#[derive(Debug)]
struct JobQueue {
    owner: u32,
    steps: BTreeMap<u64, Waiting>,
    /// Positions of the steps that share all resources, and so need not wait for others.
    overlapping: BTreeSet<u64>,
    /// Positions of the steps that have arrived since the job was last examined.
    fresh: Vec<u64>,
    /// Positions of those arrived steps that must start at once, but are delayed only by the controller.
    undecided: BTreeSet<u64>,
    /// The first does not fit now, and holds up all that do not share everything.
    is_blocked: bool,
}

impl JobQueue {
    fn new(owner: u32) -> JobQueue {
        JobQueue {
            owner,
            steps: BTreeMap::new(),
            overlapping: BTreeSet::new(),
            fresh: Vec::new(),
            undecided: BTreeSet::new(),
            is_blocked: false,
        }
    }

    fn first(&self) -> Option<u64> {
        self.steps.keys().next().copied()
    }
}

/// A step that waits: its job, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingPlace {
    pub(super) attempt: JobAttempt,
    pub(super) place: u64,
}

/// A connection by which steps were asked for that wait.
#[derive(Debug, Default)]
struct ClientSteps {
    steps: BTreeSet<WaitingPlace>,
    /// A timer runs after which the client learns that they wait.
    has_timer: bool,
}

impl WaitingSteps {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether another step of a job of this user may wait.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(super) fn check_room(&self, attempt: JobAttempt, owner: u32) -> Result<(), Refusal> {
        let of_job = self.jobs.get(&attempt).map_or(0, |job| job.steps.len());
        let of_user = self.users.get(&owner).copied().unwrap_or(0);
        let detail = if of_job >= JOB_MAX {
            format!("{of_job} steps of job {} wait on this node", attempt.job)
        } else if of_user >= USER_MAX {
            format!("{of_user} steps of this user's jobs wait on this node")
        } else {
            return Ok(());
        };
        Err(Refusal::new(RefusalCode::Busy, detail))
    }

    /// Adds a step of a job of this user.
    pub(super) fn push(&mut self, owner: u32, waiting: Waiting) {
        let (attempt, place) = (waiting.attempt, self.next);
        self.next += 1;
        let client = self.clients.entry(waiting.conn).or_default();
        client.steps.insert(WaitingPlace { attempt, place });
        let new = || JobQueue::new(owner);
        let job = self.jobs.entry(attempt).or_insert_with(new);
        *self.users.entry(job.owner).or_default() += 1;
        if waiting.spec.overlap {
            job.overlapping.insert(place);
        }
        job.fresh.push(place);
        job.steps.insert(place, waiting);
        self.ready.insert(attempt);
    }

    /// A step at a place.
    pub(super) fn get_mut(&mut self, attempt: JobAttempt, place: u64) -> Option<&mut Waiting> {
        self.count_look();
        self.jobs.get_mut(&attempt)?.steps.get_mut(&place)
    }

    /// Takes a step away. If it was the first of its job, others may start.
    pub(super) fn remove(&mut self, attempt: JobAttempt, place: u64) -> Option<Waiting> {
        self.count_look();
        let job = self.jobs.get_mut(&attempt)?;
        let was_first = job.first() == Some(place);
        let waiting = job.steps.remove(&place)?;
        job.overlapping.remove(&place);
        job.undecided.remove(&place);
        if was_first {
            job.is_blocked = false;
            self.ready.insert(attempt);
        }
        let (owner, is_last) = (job.owner, job.steps.is_empty());
        if is_last {
            self.jobs.remove(&attempt);
            self.ready.remove(&attempt);
            self.unacknowledged.remove(&attempt);
        }
        if let Some(client) = self.clients.get_mut(&waiting.conn) {
            client.steps.remove(&WaitingPlace { attempt, place });
            if client.steps.is_empty() {
                self.clients.remove(&waiting.conn);
            }
        }
        if let Some(count) = self.users.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&owner);
            }
        }
        Some(waiting)
    }

    /// Takes all steps of a job away.
    pub(super) fn take_job(&mut self, attempt: JobAttempt) -> Vec<Waiting> {
        let job = self.jobs.get(&attempt);
        let places: Vec<u64> = job.map_or_else(Vec::new, |job| job.steps.keys().copied().collect());
        let places = places.into_iter();
        places
            .filter_map(|place| self.remove(attempt, place))
            .collect()
    }

    /// Takes all steps away that were asked for by a connection.
    pub(super) fn take_client(&mut self, conn: ConnId) -> Vec<Waiting> {
        let steps = self.of_client(conn).into_iter();
        steps
            .filter_map(|of| self.remove(of.attempt, of.place))
            .collect()
    }

    fn of_client(&self, conn: ConnId) -> Vec<WaitingPlace> {
        let client = self.clients.get(&conn);
        client.map_or_else(Vec::new, |client| client.steps.iter().copied().collect())
    }

    /// Whether a client without a timer needs one, after which srun prints that its steps wait.
    pub(super) fn start_timer(&mut self, conn: ConnId) -> bool {
        let client = self.clients.get_mut(&conn);
        client.is_some_and(|client| !std::mem::replace(&mut client.has_timer, true))
    }

    /// The timer of a client has run out: its steps that wait.
    pub(super) fn timer_over(&mut self, conn: ConnId) -> Vec<WaitingPlace> {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.has_timer = false;
        }
        self.of_client(conn)
    }

    /// Something of a job has changed that may let its steps start.
    pub(super) fn retry(&mut self, attempt: JobAttempt) {
        if let Some(job) = self.jobs.get_mut(&attempt) {
            job.is_blocked = false;
            self.ready.insert(attempt);
        }
    }

    /// The steps of a job wait until the controller has acknowledged reports.
    pub(super) fn await_controller(&mut self, attempt: JobAttempt) {
        self.unacknowledged.insert(attempt);
    }

    /// The controller has acknowledged reports.
    pub(super) fn controller_acknowledged(&mut self) {
        self.ready.append(&mut self.unacknowledged);
    }

    /// A job that is to be looked at. Jobs take turns.
    pub(super) fn next_ready(&self) -> Option<JobAttempt> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.ready.range((after, Bound::Unbounded)).next();
        next.or_else(|| self.ready.first()).copied()
    }

    /// The job has had its turn.
    pub(super) fn set_last(&mut self, attempt: JobAttempt) {
        self.last = Some(attempt);
    }

    /// Whether a job is to be looked at.
    pub(super) fn is_ready(&self, attempt: JobAttempt) -> bool {
        self.ready.contains(&attempt)
    }

    /// A job is being looked at.
    pub(super) fn set_looked_at(&mut self, attempt: JobAttempt) {
        self.ready.remove(&attempt);
    }

    /// A job is to be looked at again, though nothing of it has changed.
    pub(super) fn look_again(&mut self, attempt: JobAttempt) {
        if self.jobs.contains_key(&attempt) {
            self.ready.insert(attempt);
        }
    }

    /// The place of the step of a job that may start next.
    pub(super) fn candidate(&mut self, attempt: JobAttempt) -> Option<u64> {
        self.count_look();
        let job = self.jobs.get(&attempt)?;
        match job.is_blocked {
            true => job.overlapping.first().copied(),
            false => job.first(),
        }
    }

    /// The first step of a job, at this place, does not fit.
    pub(super) fn block(&mut self, attempt: JobAttempt, place: u64) {
        if let Some(job) = self.jobs.get_mut(&attempt) {
            job.is_blocked = true;
            // One that shares everything always fits, and is not looked at twice.
            job.overlapping.remove(&place);
        }
    }

    /// Positions of the steps that have arrived since the last call; some of them may have been removed.
    pub(super) fn take_fresh(&mut self, attempt: JobAttempt) -> Vec<u64> {
        let job = self.jobs.get_mut(&attempt);
        job.map_or_else(Vec::new, |job| std::mem::take(&mut job.fresh))
    }

    /// Defers the decision about a step that must start at once, until the controller has acknowledged reports.
    pub(super) fn put_off(&mut self, attempt: JobAttempt, place: u64) {
        if let Some(job) = self.jobs.get_mut(&attempt) {
            job.undecided.insert(place);
        }
    }

    /// Takes the positions of deferred steps after the controller has acknowledged reports.
    pub(super) fn take_undecided(&mut self, attempt: JobAttempt) -> BTreeSet<u64> {
        let job = self.jobs.get_mut(&attempt);
        job.map_or_else(BTreeSet::new, |job| std::mem::take(&mut job.undecided))
    }

    #[cfg(not(test))]
    fn count_look(&self) {}

    #[cfg(test)]
    fn count_look(&mut self) {
        self.looks += 1;
    }

    /// Jobs of steps that wait, one for each step.
    #[cfg(test)]
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobAttempt> {
        let jobs = self.jobs.iter();
        jobs.flat_map(|(attempt, job)| job.steps.keys().map(|_| *attempt))
    }
}
