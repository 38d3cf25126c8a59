//! How many connections of somebody a relay carries at a time: each costs it descriptors, of which others need some.

use super::control::JobAgent;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// Descriptors of a connection that is carried.
const DESCRIPTORS: u64 = 2;
/// Part of all descriptors that one user, or one agent, may have.
const PART: u64 = 8;
/// Part that all agents may have: with the keys of many jobs one can speak for many.
const AGENTS_PART: u64 = 2;

/// Whose a connection is: what the key proves that it was opened with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The owner of a job, root too.
    User(u32),
    /// The agent of another node of a job.
    Agent(JobAgent),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::User(uid) => write!(f, "uid {uid}"),
            Owner::Agent(agent) => write!(f, "the agent of {agent}"),
        }
    }
}

/// The connections of each owner that has any.
#[derive(Debug)]
pub(super) struct Shares {
    counts: RefCell<HashMap<Owner, u64>>,
    /// Those of all agents.
    agents: Cell<u64>,
    max: u64,
    agents_max: u64,
}

/// A connection that counts as its owner's until this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Rc<Shares>,
    owner: Owner,
}

impl Shares {
    /// Shares a limit of `descriptors`.
    pub(super) fn of(descriptors: u64) -> Rc<Shares> {
        Rc::new(Shares {
            counts: RefCell::default(),
            agents: Cell::new(0),
            max: descriptors / PART / DESCRIPTORS,
            agents_max: descriptors / AGENTS_PART / DESCRIPTORS,
        })
    }

    /// Counts a connection.
    ///
    /// # Errors
    /// The owner has too many, or all agents have.
    pub(super) fn take(self: &Rc<Shares>, owner: Owner) -> Result<Share, String> {
        let mut counts = self.counts.borrow_mut();
        let count = counts.get(&owner).copied().unwrap_or(0);
        if count >= self.max {
            return Err(format!(
                "{owner} has {count} connections to this node, which is the limit of one"
            ));
        }
        if let Owner::Agent(_) = owner {
            let agents = self.agents.get();
            if agents >= self.agents_max {
                return Err(format!(
                    "agents have {agents} connections to this node, which is the limit of all"
                ));
            }
            self.agents.set(agents + 1);
        }
        counts.insert(owner.clone(), count + 1);
        let shares = Rc::clone(self);
        Ok(Share { shares, owner })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Owner::Agent(_) = self.owner {
            self.shares.agents.set(self.shares.agents.get() - 1);
        }
        let mut counts = self.shares.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

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
        assert!(shares.counts.borrow().is_empty());
    }

    /// They counted as root's, who had no limit.
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
        assert!(refused.contains("agents have 8"), "{refused}");
        let _user = shares.take(Owner::User(7)).unwrap();
        all.pop();
        all.push(take(4, "n2").unwrap());
        drop(all);
        assert_eq!((shares.agents.get(), shares.counts.borrow().len()), (0, 1));
    }
}
