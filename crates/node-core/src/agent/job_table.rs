//! The agent's table of the jobs of this node, by job and launch: a requeued job may return while an earlier launch
//! of it is still being killed here.

use super::reports::Reports;
use super::transition::{NodeJobEvent, NodeJobState, next_node_job_state};
use crate::signals::{SIGCONT, SIGSTOP};
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_model::job::NodeShare;
use muster_proto::node::{JobGrant, Report};
use muster_trust::{JobKeyUse, derive_job_key, is_same_key};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A launch of a job here.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// The job's share; absent when it is no longer known. [Set](Job::set_grant) together with the values derived
    /// from it.
    pub(super) grant: Option<Rc<JobGrant>>,
    /// Positions of its nodes in the order of their names, once a node was looked for.
    by_name: OnceCell<Vec<u32>>,
    /// Where it is in its life.
    pub(super) state: NodeJobState,
    /// The controller has suspended it: others may have its CPUs.
    pub(super) suspended: bool,
    /// Nodes that the job had before it was shrunk. They have yet to report how its steps ended there.
    former_nodes: BTreeSet<String>,
}

impl Job {
    /// Whether this node leads it.
    pub(super) fn leads(&self) -> bool {
        self.grant.as_ref().is_some_and(|g| g.position == 0)
    }

    /// Sets the job's share.
    pub(super) fn set_grant(&mut self, grant: Rc<JobGrant>) {
        self.by_name = OnceCell::new();
        self.grant = Some(grant);
    }

    /// The job was shrunk: reduces its share.
    pub(super) fn shrink(&mut self, grant: &Rc<JobGrant>) {
        let before = self.grant.take();
        self.set_grant(Rc::clone(grant));
        let before = before.iter().flat_map(|had| &had.alloc.nodes);
        self.former_nodes.extend(before.map(|n| n.name.clone()));
    }

    /// A step of it that goes on is on these nodes. The job may have been made smaller while another agent was here.
    pub(super) fn add_nodes_of_step<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if self.grant.as_ref().is_some_and(|grant| grant.resizes == 0) {
            return;
        }
        for name in names {
            if !self.has_node(name) {
                self.former_nodes.insert(name.to_owned());
            }
        }
    }

    /// Whether a node is, or was, one of the job's nodes. The caller may not have shown the key yet, so this searches
    /// no list: the set is built once for each job.
    pub(super) fn has_node(&self, name: &str) -> bool {
        let is_granted = self.grant.as_ref().is_some_and(|grant| {
            let nodes = &grant.alloc.nodes;
            let name_at = |at: u32| nodes.get(at as usize).map(|node| node.name.as_str());
            let by_name = self.by_name.get_or_init(|| {
                let mut all: Vec<u32> = (0..).take(nodes.len()).collect();
                all.sort_by_key(|at| name_at(*at));
                all
            });
            let found = by_name.binary_search_by_key(&Some(name), |at| name_at(*at));
            found.is_ok()
        });
        is_granted || self.former_nodes.contains(name)
    }

    /// The job's share of this node.
    pub(super) fn share(&self) -> Option<&NodeShare> {
        let grant = self.grant.as_ref()?;
        grant.alloc.nodes.get(grant.position as usize)
    }
}

/// All jobs of the agent.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobAttempt, Job>,
}

impl Jobs {
    /// Moves a launch to its next state; `None` if the launch is not known, or the event changes nothing.
    pub(super) fn advance(
        &mut self,
        attempt: JobAttempt,
        event: NodeJobEvent,
    ) -> Option<NodeJobState> {
        let job = self.all.get_mut(&attempt)?;
        let next = next_node_job_state(job.state, event)?;
        job.state = next;
        Some(next)
    }

    /// Steps of a job that this node leads have ended on all nodes, or the wait for them has.
    pub(super) fn steps_over(&mut self, reports: &mut Reports, attempt: JobAttempt) {
        if self.advance(attempt, NodeJobEvent::StepsOver).is_some() {
            reports.push(attempt.job, attempt.attempt, Report::Released);
        }
    }

    /// A launch, if it is known.
    pub(super) fn get(&self, attempt: JobAttempt) -> Option<&Job> {
        self.all.get(&attempt)
    }

    /// See [`Jobs::get`].
    pub(super) fn get_mut(&mut self, attempt: JobAttempt) -> Option<&mut Job> {
        self.all.get_mut(&attempt)
    }

    /// The launch, known from now on.
    pub(super) fn entry(&mut self, attempt: JobAttempt) -> &mut Job {
        self.all.entry(attempt).or_default()
    }

    /// Forgets a launch.
    pub(super) fn remove(&mut self, attempt: JobAttempt) -> Option<Job> {
        self.all.remove(&attempt)
    }

    /// The whole of a launch gets a signal: while it is suspended no step of it starts. Whether it goes on.
    pub(super) fn signalled(&mut self, attempt: JobAttempt, signal: u32) -> bool {
        let (Some(job), Ok(signal)) = (self.all.get_mut(&attempt), i32::try_from(signal)) else {
            return false;
        };
        match signal {
            SIGSTOP => job.suspended = true,
            SIGCONT => job.suspended = false,
            _ => {}
        }
        signal == SIGCONT
    }

    /// Whether a launch is suspended: others may have its CPUs.
    pub(super) fn is_suspended(&self, attempt: JobAttempt) -> bool {
        self.all.get(&attempt).is_some_and(|job| job.suspended)
    }

    /// All launches, by job and attempt.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobAttempt, &Job)> {
        self.all.iter().map(|(&attempt, job)| (attempt, job))
    }

    /// The latest launch of a job.
    pub(super) fn latest(&self, id: JobId) -> Option<(JobAttempt, &Job)> {
        self.launches(id).next_back()
    }

    /// The launch of a job that has this key.
    pub(super) fn with_key(&self, id: JobId, key: &[u8]) -> Option<(JobAttempt, &Job)> {
        self.launches(id)
            .rev()
            .find(|(_, job)| job.grant.as_ref().is_some_and(|g| is_same_key(&g.key, key)))
    }

    /// The launch of a job whose owner's srun has this key.
    pub(super) fn with_owner_key(&self, id: JobId, key: &[u8]) -> Option<(JobAttempt, &Job)> {
        let has = |g: &Rc<JobGrant>| is_owner_key(g, key);
        let mut launches = self.launches(id).rev();
        launches.find(|(_, job)| job.grant.as_ref().is_some_and(has))
    }

    /// All launches of a job, the oldest first.
    fn launches(&self, id: JobId) -> impl DoubleEndedIterator<Item = (JobAttempt, &Job)> {
        let all = JobAttempt::new(id, Attempt(0))..=JobAttempt::new(id, Attempt(u32::MAX));
        self.all.range(all).map(|(&attempt, job)| (attempt, job))
    }
}

/// Whether a key is the one by which the owner's srun asks for steps of a launch.
pub(super) fn is_owner_key(grant: &JobGrant, key: &[u8]) -> bool {
    is_same_key(&derive_job_key(&grant.key, JobKeyUse::Owner), key)
}
