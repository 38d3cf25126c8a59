//! Entry points of fuzz targets to this crate: decoders of messages between the processes of a node, and the layout
//! of steps. Not a part of its interface.

use crate::messages::agent_relay::{ToAgent, ToRelay};
use crate::messages::agent_supervisor::{SupervisorAnswer, SupervisorRequest};
use muster_model::cpuset::CpuSet;
use muster_model::job::Allocation;
use muster_node_core::layout::{self, StepUse};
use muster_node_core::messages::{
    AgentToStepd, LauncherCommand, LauncherEvent, RunningStep, StepdCommand, StepdEvent,
};
use muster_node_core::record::StepRecord;
use muster_proto::frame;
use muster_proto::step::StepSpec;

/// Number of kinds of messages that [`decode`] knows.
pub const KINDS: usize = 11;

/// Decodes bytes as a message of a kind; what could be decoded can be encoded and decoded again.
///
/// # Panics
/// Something that can be decoded does not come back as it was.
pub fn decode(kind: usize, bytes: &[u8]) {
    macro_rules! round_trip {
        ($type:ty) => {
            round_trip!($type, frame::decode)
        };
        ($type:ty, $decode:path) => {
            if let Ok(value) = $decode(bytes) {
                let value: $type = value;
                let once = minicbor::to_vec(&value).expect("writing to memory cannot fail");
                let again: $type = $decode(&once).expect("what was decoded can be again");
                let twice = minicbor::to_vec(&again).expect("writing to memory cannot fail");
                assert!(once == twice, "{value:?} is {again:?} after a round trip");
            }
        };
    }
    match kind % KINDS {
        0 => round_trip!(LauncherCommand),
        1 => round_trip!(LauncherEvent),
        2 => round_trip!(StepdCommand),
        3 => round_trip!(StepdEvent),
        4 => round_trip!(RunningStep, minicbor::decode),
        5 => round_trip!(StepRecord, minicbor::decode),
        6 => round_trip!(SupervisorRequest),
        7 => round_trip!(SupervisorAnswer),
        8 => round_trip!(ToAgent),
        9 => round_trip!(AgentToStepd),
        _ => round_trip!(ToRelay),
    }
}

/// The resources of a node that steps use.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory, MiB.
    pub memory_mib: u64,
}

/// A step's share of a node.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Position of the node in the allocation.
    pub node: usize,
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Global numbers of its tasks.
    pub tasks: Vec<u32>,
}

/// Lays a step out in an allocation of which other steps use a part; `None` if the step does not fit.
pub fn lay_out(alloc: &Allocation, spec: &StepSpec, in_use: &[InUse]) -> Option<Vec<Placed>> {
    let held = |use_: &InUse| StepUse {
        cpus: use_.cpus.clone(),
        memory_mib: use_.memory_mib,
        gres: Vec::new(),
    };
    let held: Vec<StepUse> = in_use.iter().map(held).collect();
    let placed = layout::lay_out(alloc, spec, &held, layout::TASKS_PER_NODE_DEFAULT).ok()?;
    let shown = placed.into_iter().map(|part| Placed {
        node: part.node,
        cpus: part.cpus,
        memory_mib: part.memory_mib,
        tasks: part.tasks,
    });
    Some(shown.collect())
}
