//! Description of a name space: the location of its tasks, the hosts that serve them, and the
//! attributes that register it with libpmix. A missing key makes some version of Open MPI fail, so
//! all keys that are known to be read are set.

use crate::info::{Infos, Value};
use crate::server::{Server, TaskLocation};
use crate::{ProcName, RANK_ALL};
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use std::io;

/// A step, as PMIx sees it.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Job {
    /// Its name space.
    #[n(0)]
    pub(crate) nspace: String,
    /// Names of its nodes.
    #[n(1)]
    pub(crate) names: Vec<String>,
    /// Ranks of each node, by local number.
    #[n(2)]
    pub(crate) tasks: Vec<Vec<u32>>,
    /// Where each node's host listens.
    #[n(3)]
    pub(crate) hosts: Vec<String>,
    /// The task that asked for it, if one did.
    #[n(4)]
    pub(crate) parent: Option<ProcName>,
    /// Numbers of the programs of its tasks by rank, where there is more than one.
    #[n(5)]
    #[cbor(default)]
    pub(crate) apps: Vec<u32>,
}

impl Job {
    /// Position of the node that a rank runs on.
    pub(crate) fn node_of(&self, rank: u32) -> Option<usize> {
        self.tasks.iter().position(|here| here.contains(&rank))
    }

    /// Positions of the nodes that run some of these processes.
    pub(crate) fn nodes_of(&self, ranks: &[u32]) -> Vec<usize> {
        (0..self.tasks.len())
            .filter(|&node| {
                let here = &self.tasks[node];
                ranks
                    .iter()
                    .any(|r| (*r == RANK_ALL && !here.is_empty()) || here.contains(r))
            })
            .collect()
    }

    /// Number of tasks.
    pub(crate) fn size(&self) -> u32 {
        self.tasks.iter().map(|t| count(t.len())).sum()
    }

    fn app_of(&self, rank: u32) -> u32 {
        self.apps.get(rank as usize).copied().unwrap_or(0)
    }
}

/// User and group of a step's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TaskOwner {
    /// See credentials(7).
    #[n(0)]
    pub uid: u32,
    /// See credentials(7).
    #[n(1)]
    pub gid: u32,
}

/// The part of a name space's registration that differs by host.
pub(crate) struct LocalRegistration<'a> {
    /// Position of this node, if the name space has tasks here.
    pub(crate) node: Option<usize>,
    /// The job's number, as text.
    pub(crate) job_id: &'a str,
    /// User and group of the tasks.
    pub(crate) owner: TaskOwner,
    /// Directory for the tasks' files, and a subdirectory for this name space.
    pub(crate) dirs: (&'a str, &'a str),
    /// This node runs more tasks than it has CPUs.
    pub(crate) crowded: bool,
    /// Slots of the allocation.
    pub(crate) universe: u32,
    /// Locations of this node's tasks, by local number; empty if they are not bound.
    pub(crate) places: &'a [TaskLocation],
}

/// Registers a name space with the server.
pub(crate) fn register(
    server: &Server,
    job: &Job,
    local: &LocalRegistration<'_>,
) -> io::Result<()> {
    let mut infos = Infos::new(server.library());
    let size = job.size();
    infos.add("pmix.euid", Value::U32(local.owner.uid));
    infos.add("pmix.egid", Value::U32(local.owner.gid));
    infos.add("pmix.jobid", Value::Text(local.job_id));
    infos.add("pmix.univ.size", Value::U32(local.universe.max(size)));
    infos.add("pmix.job.size", Value::U32(size));
    infos.add("pmix.max.size", Value::U32(size));
    let apps = job.apps.iter().max().map_or(1, |last| last + 1);
    infos.add("pmix.job.napps", Value::U32(apps));
    infos.add("pmix.num.nodes", Value::U32(count(job.names.len())));
    let nodes = server.node_list(&job.names.join(","))?;
    infos.add("pmix.nmap", Value::Regex(&nodes));
    // Do not list the local tasks of another step. PMIx 5 gives that list to the spawning tasks,
    // but cannot give it to the spawned tasks about the spawning ones. If only one side considers
    // the other local, collectives of Open MPI wait for messages that nobody sends. The library
    // computes locality itself from the two other lists.
    if local.node.is_some() {
        let ranks: Vec<String> = job.tasks.iter().map(|t| list(t)).collect();
        let ranks = server.rank_lists(&ranks.join(";"))?;
        infos.add("pmix.pmap", Value::Regex(&ranks));
        infos.add("pmix.tmpdir", Value::Text(local.dirs.0));
        infos.add("pmix.nsdir", Value::Text(local.dirs.1));
        // The step daemon removes these directories.
        infos.add("pmix.tdir.rmclean", Value::Bool(true));
    }
    if local.crowded {
        infos.add("pmix.ndosub", Value::Bool(true));
    }
    if let Some(parent) = &job.parent {
        infos.add("pmix.spawned", Value::Bool(true));
        infos.add("pmix.parent", Value::Proc(parent));
    }
    for node in 0..job.names.len() {
        infos.add(
            "pmix.node.arr",
            Value::Array(&node_infos(server, job, local, node)),
        );
    }
    for app in 0..apps {
        let members: Vec<u32> = (0..size).filter(|r| job.app_of(*r) == app).collect();
        let mut array = Infos::new(server.library());
        array.add("pmix.appnum", Value::U32(app));
        array.add("pmix.app.size", Value::U32(count(members.len())));
        array.add(
            "pmix.aldr",
            Value::Rank(members.first().copied().unwrap_or(0)),
        );
        infos.add("pmix.app.arr", Value::Array(&array));
    }
    for (node, here) in job.tasks.iter().enumerate() {
        for (index, rank) in here.iter().enumerate() {
            let mut array = rank_infos(server, job, (node, index), *rank);
            if local.node == Some(node)
                && let Some(place) = local.places.get(index)
            {
                array.add("pmix.cpuset", Value::Text(&place.cpuset));
                array.add("pmix.locstr", Value::Text(&place.levels));
            }
            infos.add("pmix.pdata", Value::Array(&array));
        }
    }
    let here = local.node.map_or(0, |n| job.tasks[n].len());
    server.register_job(&job.nspace, here, &mut infos)
}

fn node_infos(server: &Server, job: &Job, local: &LocalRegistration<'_>, node: usize) -> Infos {
    let mut array = Infos::new(server.library());
    let here = &job.tasks[node];
    array.add("pmix.nodeid", Value::U32(count(node)));
    // If the name is missing, the library aborts this process.
    array.add("pmix.hname", Value::Text(&job.names[node]));
    array.add("pmix.local.size", Value::U32(count(here.len())));
    array.add("pmix.node.size", Value::U32(count(here.len())));
    if local.node.is_some() {
        array.add("pmix.lpeers", Value::Text(&list(here)));
    }
    array.add("pmix.lldr", Value::Rank(here.first().copied().unwrap_or(0)));
    if local.crowded && local.node == Some(node) {
        array.add("pmix.ndosub", Value::Bool(true));
    }
    array
}

fn rank_infos(server: &Server, job: &Job, (node, index): (usize, usize), rank: u32) -> Infos {
    let mut array = Infos::new(server.library());
    let app = job.app_of(rank);
    let before = (0..rank).filter(|r| job.app_of(*r) == app).count();
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    // The rank must be the first entry.
    array.add("pmix.rank", Value::Rank(rank));
    array.add("pmix.appnum", Value::U32(app));
    array.add("pmix.apprank", Value::Rank(count(before)));
    array.add("pmix.grank", Value::Rank(rank));
    array.add("pmix.lrank", Value::U16(index));
    array.add("pmix.nrank", Value::U16(index));
    array.add("pmix.nodeid", Value::U32(count(node)));
    array.add("pmix.hname", Value::Text(&job.names[node]));
    array.add("pmix.reinc", Value::U32(0));
    array
}

fn list(ranks: &[u32]) -> String {
    let texts: Vec<String> = ranks.iter().map(u32::to_string).collect();
    texts.join(",")
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
