//! Requests that wait for their job, by job, by connection and by user. How many a user may have is bounded.

use super::ConnId;
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

/// Requests of one user that may wait for their job.
const USER_MAX: usize = 1024;

/// Time that a request waits until the controller announces the job to this node.
const WAIT_MS: u64 = 30_000;

/// The number of turn parts that client requests of announced jobs have in one event: four turns, each of which may
/// take milliseconds.
const PARTS_AT_ONCE: u64 = 4 * PARTS_OF_TURN;
/// Parts of the turn of a request that is laid out. A request that is refused before takes one part, so that requests
/// of other users do not take the turns of a job's owner.
const PARTS_OF_TURN: u64 = 256;
/// Names, nodes and tasks that are looked at in a part of a turn.
const WORK_OF_PART: u64 = 16;
/// The delay between the turns of one event and the next. Meanwhile the agent handles other events.
pub(super) const TURN_MS: u64 = 1;

/// The sender of a request.
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
    /// When it has waited long enough, by the clock of [`Now::mono_ms`](crate::now::Now::mono_ms).
    until_ms: u64,
    request: T,
}

/// All waiting requests, by number. All wait equally long, so the oldest expires first.
#[derive(Debug)]
pub(super) struct EarlyRequests<T> {
    all: BTreeMap<u64, EarlyRequest<T>>,
    by_job: BTreeMap<JobId, BTreeSet<u64>>,
    by_client: HashMap<ConnId, BTreeSet<u64>>,
    /// Number of requests by user.
    users: HashMap<u32, usize>,
    /// Number of requests of agents that wait for each job.
    of_agents: HashMap<JobId, usize>,
    next: u64,
    /// A timer runs for the oldest, or for one that was there before.
    has_timer: bool,
    /// Requests of agents for jobs that were announced in this event.
    at_once: VecDeque<T>,
    /// Announced jobs, each with the end of the range of request numbers that have their turn now.
    granted: BTreeMap<JobId, u64>,
    /// The job among these whose request had its turn last.
    last: Option<JobId>,
    /// Parts of turns that were taken since a timer that runs was set.
    spent: u64,
    has_turn_timer: bool,
}

impl<T> Default for EarlyRequests<T> {
    fn default() -> EarlyRequests<T> {
        EarlyRequests {
            all: BTreeMap::new(),
            by_job: BTreeMap::new(),
            by_client: HashMap::new(),
            users: HashMap::new(),
            of_agents: HashMap::new(),
            next: 0,
            has_timer: false,
            at_once: VecDeque::new(),
            granted: BTreeMap::new(),
            last: None,
            spent: 0,
            has_turn_timer: false,
        }
    }
}

impl<T> EarlyRequests<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a request of another agent waits for a job. Requests of users do not count, because users may name any
    /// job.
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

    /// Keeps one.
    pub(super) fn add(&mut self, job: JobId, sender: EarlySender, request: T, now_ms: u64) {
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
            until_ms: now_ms.saturating_add(WAIT_MS),
            request,
        };
        self.all.insert(number, early);
    }

    /// Whether the job of a request was announced, so that the request gets a turn.
    fn is_granted(&self, number: u64, early: &EarlyRequest<T>) -> bool {
        let end = self.granted.get(&early.job);
        end.is_some_and(|end| number < *end)
    }

    /// Whether a timer is to be set for the oldest whose job has not come, and after how long it is due.
    pub(super) fn start_timer(&mut self, now_ms: u64) -> Option<u64> {
        if self.has_timer {
            return None;
        }
        let mut all = self.all.iter();
        let (_, oldest) = all.find(|(number, early)| !self.is_granted(**number, early))?;
        self.has_timer = true;
        Some(oldest.until_ms.saturating_sub(now_ms))
    }

    /// It is due: takes those away that have waited long enough for their job.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<T> {
        self.has_timer = false;
        let old = self.all.iter();
        let old = old.take_while(|(_, early)| early.until_ms <= now_ms);
        let due = old.filter(|(number, early)| !self.is_granted(**number, early));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().filter_map(|n| self.take(n)).collect()
    }

    /// Takes away what agents have asked for a job.
    fn take_of_agents(&mut self, job: JobId) -> Vec<T> {
        if !self.has_of_agent(job) {
            return Vec::new();
        }
        let is_of_agent = |number: &u64| {
            let early = self.all.get(number);
            early.is_some_and(|early| early.sender == EarlySender::Agent)
        };
        let numbers = self.by_job.get(&job).into_iter().flatten();
        let numbers: Vec<u64> = numbers.copied().filter(is_of_agent).collect();
        numbers.into_iter().filter_map(|n| self.take(n)).collect()
    }

    /// The job was announced: requests that wait for it get their turns.
    pub(super) fn give_turns(&mut self, job: JobId) {
        let of_agents = self.take_of_agents(job);
        self.at_once.extend(of_agents);
        if self.by_job.contains_key(&job) {
            self.granted.insert(job, self.next);
        }
    }

    /// Takes the next request: those of agents first, then those of clients, if this event may take another. Jobs
    /// take turns.
    pub(super) fn take_turn(&mut self) -> Option<T> {
        if let Some(of_agent) = self.at_once.pop_front() {
            return Some(of_agent);
        }
        while self.spent < PARTS_AT_ONCE {
            let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.granted.range((after, Bound::Unbounded)).next();
            let (&job, &end) = next.or_else(|| self.granted.first_key_value())?;
            self.last = Some(job);
            let first = self.by_job.get(&job).and_then(BTreeSet::first).copied();
            match first.filter(|number| *number < end) {
                Some(number) => return self.take(number),
                None => drop(self.granted.remove(&job)),
            }
        }
        None
    }

    /// Accounts for the turn of a client's request: whether it was laid out, and how many names, nodes and tasks were
    /// examined.
    pub(super) fn spend(&mut self, was_laid_out: bool, work: u64) {
        let parts = if was_laid_out { PARTS_OF_TURN } else { 1 };
        self.spent = self.spent.saturating_add(parts + work / WORK_OF_PART);
    }

    /// Whether a timer is to be set, after which others have their turns.
    pub(super) fn start_turn_timer(&mut self) -> bool {
        self.spent > 0 && !std::mem::replace(&mut self.has_turn_timer, true)
    }

    /// The timer between turns is due.
    pub(super) fn on_turn_timer(&mut self) {
        self.has_turn_timer = false;
        self.spent = 0;
    }

    /// Takes one away.
    fn take(&mut self, number: u64) -> Option<T> {
        let EarlyRequest {
            job,
            sender,
            request,
            ..
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

    /// Removes the requests of a client.
    pub(super) fn take_client(&mut self, conn: ConnId) -> Vec<T> {
        let numbers = self.by_client.get(&conn).into_iter().flatten();
        let numbers: Vec<u64> = numbers.copied().collect();
        numbers.into_iter().filter_map(|n| self.take(n)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, these requests were refused as if their job were not announced.
    #[test]
    fn requests_whose_turn_comes_do_not_wait_too_long() {
        let mut early = EarlyRequests::default();
        let client = |conn| EarlySender::Client {
            conn: ConnId(conn),
            uid: 1,
        };
        for n in 0..10 {
            early.add(JobId(1), client(n), n, 0);
        }
        early.add(JobId(2), client(10), 10, 0);
        assert_eq!(early.start_timer(0), Some(WAIT_MS));
        early.give_turns(JobId(1));
        // This request waits for a later size of the job.
        early.add(JobId(1), client(11), 11, 1);
        assert_eq!(early.take_due(WAIT_MS), [10]);
        assert_eq!(early.start_timer(WAIT_MS), Some(1));
        assert_eq!(early.take_due(WAIT_MS + 1), [11]);
        assert_eq!(early.start_timer(WAIT_MS + 1), None);
        let mut turns = Vec::new();
        while let Some(n) = early.take_turn() {
            turns.push(n);
            early.spend(true, 0);
            early.on_turn_timer();
        }
        assert_eq!(turns, (0..10).collect::<Vec<u64>>());
    }

    /// Earlier, refused requests were processed four at a time, as those that are laid out.
    #[test]
    fn a_turn_counts_by_its_work() {
        let mut early = EarlyRequests::default();
        let mut number = 0;
        let mut taken = |was_laid_out, work| {
            for _ in 0..1000 {
                let (conn, uid) = (ConnId(number), 1);
                early.add(JobId(1), EarlySender::Client { conn, uid }, (), 0);
                number += 1;
            }
            early.give_turns(JobId(1));
            early.on_turn_timer();
            let mut count = 0;
            while early.take_turn().is_some() {
                early.spend(was_laid_out, work);
                count += 1;
            }
            count
        };
        assert_eq!(taken(true, 0), 4);
        assert_eq!(taken(true, 200_000), 1);
        assert_eq!(taken(false, 0), 1024);
    }
}
