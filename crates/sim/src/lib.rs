//! A whole cluster in one thread, on a virtual clock, from a seed. The controller is the real one: its writer, its
//! recovery and its journal, over a storage in memory that crashes, tears and fills up; so is what seals its orders. On each
//! node are the real agent, launcher, step daemons and sruns (`muster_node_core`), with executors here instead of those of
//! `muster_node` and `muster_cli`: below them are models of a machine with its processes and of a spool directory.
//! Network and users are models that keep to the protocol. After everything that happens the invariants are checked; a seed in
//! which one does not hold is a bug, and runs the same way every time.
//!
//! What may fail: the controller at every point of a turn, its machine, its disk (full, or failing to sync), its
//! clock, accounting (slow), connections, agents, launchers, and whole nodes; and, as a seed draws them, the classes of
//! [`FaultClass`]. What is never modelled: bytes changed on the way or on the disk after they were durable (the
//! journal's own tests do that), and nodes that lie about processes that do run there.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arbitrary;
mod classes;
mod controller;
mod ledger;
mod node;
mod outlets;
mod random;
pub mod replay;
mod trace;
pub mod workload;
mod world;

pub use classes::FaultClass;

use std::fmt;

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes; 0 lets the seed choose.
    pub nodes: usize,
    /// Things that users and administrators do before the faults stop.
    pub steps: u32,
    /// Keep the whole trace, not only its end.
    pub trace: bool,
    /// Keep also what the processes of this node are given and do, event by event.
    pub trace_node: Option<usize>,
    /// A fault that must be found.
    pub plant: Option<Plant>,
    /// Classes of faults; what the seed draws if absent.
    pub classes: Option<Vec<FaultClass>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodes: 0,
            steps: 60,
            trace: false,
            trace_node: None,
            plant: None,
            classes: None,
        }
    }
}

/// Bugs that are put into the controller's world and the nodes' on purpose, to see that the simulator finds such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The journal says that a batch is durable one batch too early, so answers leave before it is.
    EarlyAcknowledgement,
    /// Now and then a launch is lost although the connection is fine.
    LostLaunch,
    /// Now and then a launch names CPUs that another job has.
    CoreGivenTwice,
    /// Now and then a launch names devices that another job has.
    DeviceGivenTwice,
    /// Now and then an agent receives that a job is gone while its processes run.
    EarlyRelease,
    /// Now and then the end of a step is lost between an agent and its connection.
    LostStepEnd,
    /// Now and then the end of a batch script is lost there.
    LostScriptEnd,
    /// Now and then a step daemon starts its first task once more.
    TaskTwice,
    /// Now and then a launcher does not see the leftovers of a job.
    Leftover,
    /// Now and then lines of a node's record file are not written, although that is said.
    LostRecord,
    /// A thread that ends is not noticed: the process lives on without it.
    Zombie,
    /// The core gets the wall clock itself, with all its steps.
    WallClock,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant: the function or the place that checks it.
    pub invariant: &'static str,
    /// Description of the finding.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, detail: impl Into<String>) -> Violation {
        Violation {
            invariant,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// Counts of a run, and its violation.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The seed.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Durable events.
    pub events: u64,
    /// Turns of the controller.
    pub turns: u64,
    /// Starts of the controller after the first.
    pub restarts: u64,
    /// Submissions that were acknowledged.
    pub acknowledged: u64,
    /// Launches of jobs.
    pub launches: u64,
    /// Requests of hostile users that were answered, and those of them that were accepted.
    pub attacks: (u64, u64),
    /// Virtual time that passed, milliseconds.
    pub virtual_ms: u64,
    /// Hash of the trace, equal for two equal runs.
    pub trace_hash: u64,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// The last lines of the trace, or all of them.
    pub trace: Vec<String>,
}

/// Runs the cluster that follows from `seed`.
pub fn run(seed: u64, options: &Options) -> RunReport {
    world::World::new(seed, options).run()
}
