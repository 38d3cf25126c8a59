//! Records and nodes as a draft leaves them. A copy is made when somebody asks: most drafts that start or end a job note
//! what its nodes give and get, and nobody looks at these again.

use crate::apply;
use crate::state::State;
use foldhash::fast::RandomState;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Allocation, Job};
use muster_model::node::Node;
use muster_model::time::Timestamp;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A job comes to a node or leaves it.
pub(super) struct Use {
    pub(super) job: JobId,
    pub(super) alloc: Arc<Allocation>,
    /// The node's place in the allocation.
    pub(super) position: u32,
    pub(super) how: ShareChange,
}

/// A change of a job's share.
pub(super) enum ShareChange {
    Takes,
    GivesBack {
        /// Others had its CPUs.
        lent: bool,
        at: Timestamp,
    },
}

impl Use {
    fn apply(&self, node: &mut Node) {
        let Some(share) = self.alloc.nodes.get(self.position as usize) else {
            return;
        };
        match self.how {
            ShareChange::Takes => apply::node::take(node, self.job, share, &self.alloc),
            ShareChange::GivesBack { lent, at } => {
                apply::node::give_back(node, self.job, (share, &self.alloc), lent, at)
            }
        }
    }
}

/// A node that the draft has to do with.
#[derive(Default)]
struct DraftedNode {
    /// The use that is not in the copy because there is none yet.
    first: Option<Use>,
    more: Vec<Use>,
    /// In a box: most drafts have one, and a tree has room for many.
    copy: OnceCell<Box<Node>>,
}

impl DraftedNode {
    fn copy(&self, idx: NodeIdx, state: &State) -> Option<&Node> {
        if let Some(copy) = self.copy.get() {
            return Some(copy);
        }
        let mut node = Box::new(state.node(idx)?.clone());
        for used in self.first.iter().chain(&self.more) {
            used.apply(&mut node);
        }
        Some(self.copy.get_or_init(|| node))
    }
}

/// Nodes as a draft leaves them.
#[derive(Default)]
pub(super) struct Nodes(HashMap<NodeIdx, DraftedNode, RandomState>);

impl Nodes {
    /// Whether nothing of any has changed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A node as it is now.
    pub(super) fn get<'s>(&'s self, idx: NodeIdx, state: &'s State) -> Option<&'s Node> {
        match self.0.get(&idx) {
            None => state.node(idx),
            Some(drafted) => drafted.copy(idx, state),
        }
    }

    /// The node, to be changed.
    pub(super) fn get_mut(&mut self, idx: NodeIdx, state: &State) -> Option<&mut Node> {
        state.node(idx)?;
        let drafted = self.0.entry(idx).or_default();
        drafted.copy(idx, state)?;
        (drafted.first, drafted.more) = (None, Vec::new());
        drafted.copy.get_mut().map(Box::as_mut)
    }

    /// A node of which all is as it is now but what jobs have there.
    pub(super) fn but_for_jobs<'s>(&'s self, idx: NodeIdx, state: &'s State) -> Option<&'s Node> {
        let copy = self.0.get(&idx).and_then(|drafted| drafted.copy.get());
        copy.map(Box::as_ref).or_else(|| state.node(idx))
    }

    /// Makes room for `count` nodes that jobs will come to or leave.
    pub(super) fn expect(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// A job comes to a node or leaves it.
    pub(super) fn note(&mut self, idx: NodeIdx, used: Use) {
        let drafted = self.0.entry(idx).or_default();
        match drafted.copy.get_mut() {
            Some(copy) => used.apply(copy),
            None if drafted.first.is_none() => drafted.first = Some(used),
            None => drafted.more.push(used),
        }
    }
}

/// A record that the draft has to do with.
#[derive(Default)]
struct DraftedJob {
    /// Places of its allocation that it has given back, as far as that is not in the copy because there is none yet.
    released: Vec<u32>,
    copy: OnceCell<Box<Job>>,
}

impl DraftedJob {
    fn copy(&self, id: JobId, state: &State) -> Option<&Job> {
        if let Some(copy) = self.copy.get() {
            return Some(copy);
        }
        let mut job = Box::new(state.jobs.get(&id)?.clone());
        for position in &self.released {
            job.nodes_held.remove(*position);
        }
        Some(self.copy.get_or_init(|| job))
    }
}

/// Records as a draft leaves them.
#[derive(Default)]
pub(super) struct DraftedJobs(BTreeMap<JobId, DraftedJob>);

impl DraftedJobs {
    /// A record as it is now.
    pub(super) fn get<'s>(&'s self, id: JobId, state: &'s State) -> Option<&'s Job> {
        match self.0.get(&id) {
            None => state.jobs.get(&id),
            Some(drafted) => drafted.copy(id, state),
        }
    }

    /// The draft's own copy, if it has one.
    pub(super) fn own_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let copy = self
            .0
            .get_mut(&id)
            .and_then(|drafted| drafted.copy.get_mut());
        copy.map(Box::as_mut)
    }

    /// The draft's own copy; whether it was made now.
    pub(super) fn get_mut(&mut self, id: JobId, state: &State) -> Option<(&mut Job, bool)> {
        let is_new = self.0.get(&id).is_none_or(|d| d.copy.get().is_none());
        if is_new {
            state.jobs.get(&id)?;
            let drafted = self.0.entry(id).or_default();
            drafted.copy(id, state)?;
            drafted.released = Vec::new();
        }
        Some((self.own_mut(id)?, is_new))
    }

    /// A new record.
    pub(super) fn insert(&mut self, id: JobId, job: Job) {
        let copy = OnceCell::from(Box::new(job));
        let released = Vec::new();
        self.0.insert(id, DraftedJob { released, copy });
    }

    /// Takes note that an ended job has given a place of its allocation back and holds others; `false` if more than
    /// that comes of it.
    pub(super) fn release(&mut self, id: JobId, position: u32, state: &State) -> bool {
        if self.own_mut(id).is_some() {
            return false;
        }
        let Some(job) = state.jobs.get(&id).filter(|job| job.completing) else {
            return false;
        };
        let given = self.0.get(&id).map_or(0, |drafted| drafted.released.len());
        if !job.nodes_held.contains(position) || job.nodes_held.len() as usize <= given + 1 {
            return false;
        }
        self.0.entry(id).or_default().released.push(position);
        true
    }

    /// Whether nothing but places that were given back has changed of a record, which holds others still.
    pub(super) fn only_released(&self, id: JobId) -> bool {
        let drafted = self.0.get(&id);
        drafted.is_some_and(|drafted| drafted.copy.get().is_none())
    }
}
