//! Allocations of jobs by node, with their ends. They determine what a node has free at a later
//! time. They follow the state by job and node.

use crate::nodes::class::NodeClass;
use crate::nodes::devices::give_back;
use crate::nodes::room::{NodeLabel, NodeUsers, Room, Want};
use crate::nodes::sharing::lend;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::NodeShare;
use muster_model::time::Timestamp;
use std::ops::Range;

/// The end of a job whose end is not known.
pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);
/// The end of a job that is being cleaned up.
pub(crate) const ANY_MOMENT: Timestamp = Timestamp(i64::MIN);

/// The end of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobEnds {
    pub(crate) job: JobId,
    /// The expected end.
    pub(crate) planned: Timestamp,
    /// The latest end.
    pub(crate) limit: Timestamp,
}

/// The end of a job on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndOnNode {
    pub(crate) node: u32,
    pub(crate) ends: JobEnds,
}

/// A job's part of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeAllocation {
    pub(crate) job: JobId,
    /// The expected end of the job.
    pub(crate) planned: Timestamp,
    /// The latest end of the job.
    pub(crate) limit: Timestamp,
    pub(crate) cpus: CpuSet,
    /// The job is stopped: other jobs use its CPUs, and it is not counted among the node's jobs.
    pub(crate) lent: bool,
    pub(crate) mib: u64,
    /// Devices, by their index in the node's class.
    pub(crate) gres: Vec<(u32, CpuSet)>,
    /// The allocation is part of a plan that has not been carried out yet.
    pub(crate) proposed: bool,
    /// Number of the partition in which the job was placed; [`NOWHERE`] if that partition does not
    /// exist any more.
    pub(crate) part: u32,
}

/// The kind of job ends that is counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Expected ends.
    Planned,
    /// Ends at the time limit.
    Limits,
    /// No ends: the nodes stay as they are.
    Ignored,
}

/// Assumptions about job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndAssumption {
    pub(crate) ends: Ends,
    /// The assumed end of jobs whose end is not known, if any.
    pub(crate) endless: Option<Timestamp>,
    /// Jobs that end by this time count as gone where a choice depends on resources that are free already.
    pub(crate) gone_by: Timestamp,
}

impl From<Ends> for EndAssumption {
    fn from(ends: Ends) -> EndAssumption {
        EndAssumption {
            ends,
            endless: None,
            gone_by: Timestamp(i64::MIN),
        }
    }
}

impl NodeAllocation {
    pub(crate) fn new(
        class: &NodeClass,
        share: &NodeShare,
        ends: JobEnds,
        part: u32,
    ) -> NodeAllocation {
        let JobEnds {
            job,
            planned,
            limit,
        } = ends;
        let mut gres = Vec::new();
        for held in &share.gres {
            for (entry, at) in class.gres.iter().zip(0u32..) {
                let counts = !class.no_consume.get(at as usize).copied().unwrap_or(false);
                if entry.name == held.name && entry.kind == held.kind && counts {
                    gres.push((at, held.ids.clone()));
                }
            }
        }
        NodeAllocation {
            job,
            planned,
            limit,
            cpus: class.kept_with(&share.cpus),
            lent: false,
            mib: share.memory_mib,
            gres,
            proposed: false,
            part,
        }
    }

    /// Whether another allocation has the same resources until the same time.
    pub(crate) fn is_like(&self, other: &NodeAllocation) -> bool {
        let times = |t: &NodeAllocation| (t.planned, t.limit, t.mib, t.part, t.lent);
        times(self) == times(other) && self.cpus == other.cpus && self.gres == other.gres
    }

    /// The time at which the job leaves.
    pub(crate) fn end(&self, assumed: EndAssumption) -> Timestamp {
        let end = match assumed.ends {
            Ends::Planned => self.planned,
            Ends::Limits => self.limit,
            Ends::Ignored => return NEVER,
        };
        if end == NEVER {
            return assumed.endless.unwrap_or(NEVER);
        }
        end
    }

    /// Returns the allocation to `room`, of which jobs may use at most `most` CPUs. `layers` are
    /// the CPUs that several of the remaining jobs use.
    pub(crate) fn leave(
        &self,
        class: &NodeClass,
        most: u32,
        room: &mut Room,
        layers: &mut [CpuSet],
    ) {
        if !self.lent {
            let freed = match layers {
                [] => self.cpus.len(),
                layers => lend(layers, &self.cpus).len(),
            };
            room.cpus = room.cpus.saturating_add(freed).min(most);
            room.jobs = room.jobs.saturating_sub(1);
        }
        room.mib = room.mib.saturating_add(self.mib).min(class.mib);
        if room.jobs == 0 {
            (room.exclusive, room.by_user, room.users) = (false, false, NodeUsers::None);
            room.label = NodeLabel::Any;
        }
        if room.devices.is_none() {
            return;
        }
        let held = self.gres.iter();
        give_back(class, room, held.map(|(at, ids)| (*at as usize, ids)));
    }
}

/// CPUs of a node used by several jobs, to follow as these jobs leave; usually empty.
pub(crate) fn layers_of(layers: &[CpuSet]) -> Vec<CpuSet> {
    match layers.is_empty() {
        true => Vec::new(),
        false => layers.to_vec(),
    }
}

/// Whether the memory next to these CPUs has room for the job's part there. A job with CPUs of
/// several domains is assumed to use memory of each domain in proportion.
pub(crate) fn memory_near(
    class: &NodeClass,
    allocations: &[NodeAllocation],
    want: &Want,
    cpus: Range<u32>,
) -> bool {
    if want.mib == 0 || class.cpus == 0 {
        return true;
    }
    let part = |mib: u64, of: u32, all: u32| mib * u64::from(of) / u64::from(all.max(1));
    let width = cpus.end - cpus.start;
    let used = allocations.iter().map(|allocation| {
        let here = cpus
            .clone()
            .filter(|cpu| allocation.cpus.contains(*cpu))
            .count();
        let here = u32::try_from(here).unwrap_or(u32::MAX);
        part(allocation.mib, here, allocation.cpus.len())
    });
    let needed = part(want.mib, width.min(want.cpus), want.cpus);
    used.sum::<u64>() + needed <= part(class.mib, width, class.cpus)
}

/// Nodes in the order in which their room or their jobs changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    nodes: Vec<u32>,
    /// Number of changes that were removed from `nodes`.
    dropped: u64,
    /// Total number of changes.
    version: u64,
}

impl Changes {
    /// Records a change of a node.
    pub(crate) fn note(&mut self, node: u32) {
        self.version += 1;
        if self.nodes.last() != Some(&node) {
            self.nodes.push(node);
        }
    }

    /// While the version stays the same, no node has changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Number of all changes so far, to be passed to [`Changes::since`].
    pub(crate) fn count(&self) -> u64 {
        self.dropped + self.nodes.len() as u64
    }

    /// Changes after the first `count`; `None` if they were removed.
    pub(crate) fn since(&self, count: u64) -> Option<&[u32]> {
        let from = usize::try_from(count.checked_sub(self.dropped)?).ok()?;
        // The last recorded node may have changed again without a new record.
        self.nodes.get(from.saturating_sub(1)..)
    }

    /// Limits the number of stored changes.
    pub(crate) fn trim(&mut self, most: usize) {
        if self.nodes.len() > most {
            self.dropped += self.nodes.len() as u64;
            self.nodes.clear();
        }
    }
}
