//! Limits the connections that a relay carries per client: each uses descriptors, of which other
//! clients need some.

use crate::messages::agent_relay::JobAgent;
use muster_channel::admission::ByteCount;
use muster_channel::server::CARRIED;
use muster_model::ids::JobId;
use muster_model::limits::may_connect;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

/// Descriptors of a carried connection.
const DESCRIPTORS: u64 = 2;
/// Divisor: one user, or one agent, may have this fraction of all descriptors.
const PART: u64 = 8;
/// Divisor: all agents together may have this fraction of all descriptors. The key of a job allows
/// a client to act for all nodes of the job, so the agents of one job get only part of that
/// fraction and leave room for others.
const AGENTS_PART: u64 = 2;

/// The owner of a connection, as proved by its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The owner of a job, including root.
    User(u32),
    /// The agent of another node of a job.
    Agent(JobAgent),
}

/// For whom bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ByteOwner {
    User(u32),
    /// The agents of a job's other nodes.
    Agents(JobId),
}

impl Owner {
    /// The owner whose buffered bytes are limited; none for root.
    fn of_bytes(&self) -> Option<ByteOwner> {
        match self {
            Owner::User(0) => None,
            Owner::User(uid) => Some(ByteOwner::User(*uid)),
            Owner::Agent(agent) => Some(ByteOwner::Agents(agent.job)),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::User(uid) => write!(f, "uid {uid}"),
            Owner::Agent(agent) => write!(f, "the agent of {agent}"),
        }
    }
}

/// Number of connections of each owner that has any.
#[derive(Debug)]
pub(super) struct Shares {
    counts: RefCell<HashMap<Owner, u64>>,
    /// Buffered bytes of each user, and of the agents of each job, that have connections, and a total of all.
    bytes: RefCell<HashMap<ByteOwner, ByteCount>>,
    all_bytes: ByteCount,
    /// Connections of agents by job.
    jobs: RefCell<HashMap<JobId, u64>>,
    /// Connections of all agents.
    agents: Cell<u64>,
    max: u64,
    agents_max: u64,
}

/// A connection that counts towards its owner until this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Rc<Shares>,
    owner: Owner,
}

impl Shares {
    /// Divides a limit of `descriptors`.
    pub(super) fn of(descriptors: u64) -> Rc<Shares> {
        Rc::new(Shares {
            counts: RefCell::default(),
            bytes: RefCell::default(),
            all_bytes: ByteCount::new(CARRIED),
            jobs: RefCell::default(),
            agents: Cell::new(0),
            max: descriptors / PART / DESCRIPTORS,
            agents_max: descriptors / AGENTS_PART / DESCRIPTORS,
        })
    }

    /// Counts a connection.
    ///
    /// # Errors
    /// The owner has too many connections, or all agents together have.
    pub(super) fn take(self: &Rc<Shares>, owner: Owner) -> Result<Share, String> {
        let mut counts = self.counts.borrow_mut();
        let count = counts.get(&owner).copied().unwrap_or(0);
        if count >= self.max {
            return Err(format!(
                "{owner} has {count} connections to this node, its limit"
            ));
        }
        if let Owner::Agent(JobAgent { job, .. }) = owner {
            let (agents, max) = (self.agents.get(), self.agents_max);
            let mut jobs = self.jobs.borrow_mut();
            let of_job = jobs.get(&job).copied().unwrap_or(0);
            if !may_connect(of_job, agents, max, max) {
                return Err(format!(
                    "agents of job {job} have {of_job} of the {agents} connections of all agents to this node, and get no more"
                ));
            }
            jobs.insert(job, of_job + 1);
            self.agents.set(agents + 1);
        }
        counts.insert(owner.clone(), count + 1);
        let shares = Rc::clone(self);
        Ok(Share { shares, owner })
    }
}

impl Share {
    /// The count of the owner's buffered bytes; absent if the owner has no limit.
    pub(super) fn bytes(&self) -> Option<ByteCount> {
        let owner = self.owner.of_bytes()?;
        let mut bytes = self.shares.bytes.borrow_mut();
        let own = bytes.entry(owner);
        let own = own.or_insert_with(|| self.shares.all_bytes.of_another());
        Some(own.clone())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Owner::Agent(JobAgent { job, .. }) = &self.owner {
            self.shares.agents.set(self.shares.agents.get() - 1);
            give_back(&mut self.shares.jobs.borrow_mut(), job);
        }
        let mut counts = self.shares.counts.borrow_mut();
        give_back(&mut counts, &self.owner);
        let has_more = match &self.owner {
            Owner::User(_) => counts.contains_key(&self.owner),
            Owner::Agent(agent) => self.shares.jobs.borrow().contains_key(&agent.job),
        };
        if let Some(owner) = self.owner.of_bytes().filter(|_| !has_more) {
            self.shares.bytes.borrow_mut().remove(&owner);
        }
    }
}

/// Removes one connection from the counts.
fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_a_part_and_gives_it_back() {
        let shares = Shares::of(32);
        let take = |uid| shares.take(Owner::User(uid));
        for uid in [7, 0] {
            let own = [take(uid).unwrap(), take(uid).unwrap()];
            let refused = take(uid).unwrap_err();
            let expected = format!("uid {uid} has 2");
            assert!(refused.contains(&expected), "{refused}");
            let _other = take(8).unwrap();
            drop(own);
            take(uid).unwrap();
        }
        // All connections of an owner count together.
        let (first, second) = (take(7).unwrap(), take(7).unwrap());
        first.bytes().unwrap().take(10).unwrap();
        assert_eq!(second.bytes().unwrap().own(), 10);
        assert_eq!(take(8).unwrap().bytes().unwrap().own(), 0);
        drop((first, second));
        assert!(shares.counts.borrow().is_empty() && shares.bytes.borrow().is_empty());
    }

    /// When users had taken all room, a megabyte was left for root and for the agent of each node.
    #[test]
    fn what_is_kept_counts_for_users_and_for_the_agents_of_a_job() {
        let shares = Shares::of(4096);
        let agent = |job: u64, node: &str| {
            let (job, node) = (JobId(job), node.to_owned());
            shares.take(Owner::Agent(JobAgent { job, node })).unwrap()
        };
        assert!(shares.take(Owner::User(0)).unwrap().bytes().is_none());
        let (first, second, other) = (agent(1, "n2"), agent(1, "n3"), agent(2, "n2"));
        first.bytes().unwrap().take(10).unwrap();
        assert_eq!(second.bytes().unwrap().own(), 10);
        assert_eq!(other.bytes().unwrap().own(), 0);
        drop((first, other));
        assert_eq!(second.bytes().unwrap().own(), 10);
        drop(second);
        assert!(shares.bytes.borrow().is_empty());
    }

    /// Earlier, these counted as root's connections, which had no limit.
    #[test]
    fn an_agent_gets_a_part_of_what_agents_get() {
        let shares = Shares::of(32);
        let take = |job, node: &str| {
            let (job, node) = (JobId(job), node.to_owned());
            shares.take(Owner::Agent(JobAgent { job, node }))
        };
        let mut all = vec![take(1, "n2").unwrap(), take(1, "n2").unwrap()];
        let refused = take(1, "n2").unwrap_err();
        assert!(
            refused.contains("the agent of n2 (job 1) has 2"),
            "{refused}"
        );
        for (job, node) in [
            (1, "n3"),
            (1, "n3"),
            (2, "n2"),
            (2, "n2"),
            (3, "n2"),
            (3, "n2"),
        ] {
            all.push(take(job, node).unwrap());
        }
        let refused = take(4, "n2").unwrap_err();
        assert!(
            refused.contains("of the 8 connections of all agents"),
            "{refused}"
        );
        let _user = shares.take(Owner::User(7)).unwrap();
        all.pop();
        all.push(take(4, "n2").unwrap());
        drop(all);
        assert_eq!((shares.agents.get(), shares.counts.borrow().len()), (0, 1));
        assert!(shares.jobs.borrow().is_empty());
    }

    /// Earlier, the holder of the key of one job with many nodes could use the connections of all agents.
    #[test]
    fn the_agents_of_a_job_leave_something_for_others() {
        let shares = Shares::of(4096);
        let take = |job: u64, node: usize| {
            let (job, node) = (JobId(job), format!("n{node}"));
            shares.take(Owner::Agent(JobAgent { job, node }))
        };
        let first: Vec<Share> = (0..2000).map_while(|node| take(1, node).ok()).collect();
        let all = usize::try_from(shares.agents_max).unwrap();
        assert!(
            first.len() > all / 3,
            "one alone gets much: {}",
            first.len()
        );
        let second: Vec<Share> = (0..2000).map_while(|node| take(2, node).ok()).collect();
        assert!(second.len() > all / 8, "{}", second.len());
        let refused = take(1, 2001).unwrap_err();
        assert!(refused.contains("agents of job 1 have"), "{refused}");
        for job in 3..20 {
            let _own = take(job, 1).unwrap();
        }
    }
}
