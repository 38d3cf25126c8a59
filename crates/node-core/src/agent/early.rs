//! Requests that wait for their job, by job, by connection and by user. How many a user may have is bounded.

use super::ConnId;
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Requests of one user that may wait for their job.
const USER_MAX: usize = 1024;

/// Who has sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlySender {
    /// Another agent.
    Agent,
    /// A user's client.
    Client { conn: ConnId, uid: u32 },
}

/// A request that waits.
#[derive(Debug)]
struct EarlyRequest<T> {
    job: JobId,
    sender: EarlySender,
    request: T,
}

/// All of them, by number.
#[derive(Debug)]
pub(super) struct EarlyRequests<T> {
    all: HashMap<u64, EarlyRequest<T>>,
    by_job: BTreeMap<JobId, BTreeSet<u64>>,
    by_client: HashMap<ConnId, BTreeSet<u64>>,
    /// How many each user has.
    users: HashMap<u32, usize>,
    /// How many of agents wait for each job.
    of_agents: HashMap<JobId, usize>,
    next: u64,
}

impl<T> Default for EarlyRequests<T> {
    fn default() -> EarlyRequests<T> {
        EarlyRequests {
            all: HashMap::new(),
            by_job: BTreeMap::new(),
            by_client: HashMap::new(),
            users: HashMap::new(),
            of_agents: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> EarlyRequests<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a request of another agent waits for a job. Those of users do not count: they may name any job.
    pub(super) fn has_of_agent(&self, job: JobId) -> bool {
        self.of_agents.contains_key(&job)
    }

    /// Whether another request may wait.
    ///
    /// # Errors
    /// The user has as many as there may be.
    pub(super) fn check_room(&self, sender: EarlySender) -> Result<(), Refusal> {
        let EarlySender::Client { uid, .. } = sender else {
            return Ok(());
        };
        let count = self.users.get(&uid).copied().unwrap_or(0);
        if count < USER_MAX {
            return Ok(());
        }
        let detail = format!("{count} requests of this user wait for their jobs on this node");
        Err(Refusal::new(RefusalCode::Busy, detail))
    }

    /// Keeps one; its number.
    pub(super) fn add(&mut self, job: JobId, sender: EarlySender, request: T) -> u64 {
        let number = self.next;
        self.next += 1;
        match sender {
            EarlySender::Client { conn, uid } => {
                *self.users.entry(uid).or_default() += 1;
                self.by_client.entry(conn).or_default().insert(number);
            }
            EarlySender::Agent => *self.of_agents.entry(job).or_default() += 1,
        }
        self.by_job.entry(job).or_default().insert(number);
        let early = EarlyRequest {
            job,
            sender,
            request,
        };
        self.all.insert(number, early);
        number
    }

    /// Takes one away.
    pub(super) fn take(&mut self, number: u64) -> Option<T> {
        let EarlyRequest {
            job,
            sender,
            request,
        } = self.all.remove(&number)?;
        if let Some(numbers) = self.by_job.get_mut(&job) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_job.remove(&job);
            }
        }
        match sender {
            EarlySender::Client { conn, uid } => {
                count_down(&mut self.users, uid);
                if let Some(numbers) = self.by_client.get_mut(&conn) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.by_client.remove(&conn);
                    }
                }
            }
            EarlySender::Agent => count_down(&mut self.of_agents, job),
        }
        Some(request)
    }

    /// Numbers of those that wait for a job, in order.
    pub(super) fn of_job(&self, job: JobId) -> Vec<u64> {
        let numbers = self.by_job.get(&job).into_iter().flatten();
        numbers.copied().collect()
    }

    /// Numbers of those of a client, in order.
    pub(super) fn of_client(&self, conn: ConnId) -> Vec<u64> {
        let numbers = self.by_client.get(&conn).into_iter().flatten();
        numbers.copied().collect()
    }
}

fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
