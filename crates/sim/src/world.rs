//! The cluster and the loop that drives it: a queue of things that will handle, in virtual time. What happens to the
//! controller, the network, the nodes and the clients is in the modules below.

pub(crate) mod accounting;
mod agent_connections;
mod agents;
pub(crate) mod attackers;
pub(crate) mod clients;
mod clocks;
mod control_channels;
mod devices;
mod disks;
mod drawn_config;
pub(crate) mod events;
mod faults;
mod het_and_reservations;
mod hostile_users;
mod invariants;
mod launcher_actions;
mod launchers;
mod liars;
mod machines;
mod network;
pub(crate) mod nodes;
mod peers;
mod qos_and_licenses;
mod srun_executor;
mod sruns;
mod step_links;
mod stepd_actions;
mod stepd_tasks;
mod stepds;
mod submission;
pub(crate) mod threads;
mod turns;

use crate::classes::{self, FaultClass};
use crate::controller::{Controller, create_journal};
use crate::ledger::Ledger;
use crate::node::{
    Direction, LinkArrival, Node, Share, SrunProcess, StepLinkId, StepLinks, TaskKey,
};
use crate::outlets::{Conn, RequestId};
use crate::random::Random;
use crate::trace::Trace;
use crate::{Options, Plant, RunReport, Violation};
use clients::Clients;
use devices::Devices;
use events::{NodeEvent, SrunId, SrunWorldEvent};
use faults::Faults;
use muster_ctld::clock::SteadyClock;
use muster_journal::{MemStorage, Position};
use muster_model::command::Reply;
use muster_model::config::ClusterConfig;
use muster_model::ids::{AttemptStep, JobAttempt, NodeIdx, StepNo};
use muster_model::job::ExitStatus;
use muster_model::time::Timestamp;
use muster_proto::node::{NodeSettings, NumberedReport};
use network::Connection;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// When virtual time begins, milliseconds since 1970.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;
/// Virtual time after the last fault in which everything must end, milliseconds.
const LIVENESS_MS: u64 = 6 * 3600 * 1000;
/// More events than any run of this length has: beyond it the run loops.
const HAPPENINGS_PER_STEP: u64 = 20_000;

macro_rules! trace {
    ($world:expr, $($text:tt)+) => {
        $world.trace.line($world.now, format_args!($($text)+))
    };
}
pub(crate) use trace;

type Outcome = Result<(), Violation>;

/// Something that will handle.
pub(crate) enum WorldEvent {
    /// The controller takes a turn.
    Turn { life: u64 },
    /// The controller starts.
    Restart,
    /// An agent's registration arrives.
    Hello {
        conn: Conn,
        hello: Box<muster_proto::node::NodeHello>,
    },
    /// An agent's reports arrive.
    Reports {
        conn: Conn,
        reports: Vec<NumberedReport>,
    },
    /// An agent's load arrives.
    Health { conn: Conn, load: u32 },
    /// Bytes of the controller arrive at an agent.
    ToAgent { conn: Conn, bytes: Vec<u8> },
    /// A connection breaks.
    Break { conn: Conn },
    /// The controller's end of a connection finds it closed.
    CtldSeesClosed { conn: Conn },
    /// The agent's end does.
    AgentSeesClosed { conn: Conn },
    /// An agent tries to connect.
    Connect { node: usize },
    /// Something happens to a node.
    Node { node: usize, event: NodeEvent },
    /// Something happens to an srun.
    Srun { srun: SrunId, event: SrunWorldEvent },
    /// Something arrives on a connection to a step daemon.
    OnLink(StepLinkId, Direction, LinkArrival),
    /// A user does something.
    Step,
    /// A request arrives.
    Request { id: RequestId },
    /// Its answer arrives.
    Answer { id: RequestId, reply: Box<Reply> },
    /// Something breaks.
    Fault,
    /// Something is repaired.
    Repair(faults::Repair),
    /// Accounting goes on.
    Accounting,
    /// The replica thinks about a snapshot.
    Snapshot,
    /// The sync of a turn is over.
    Synced {
        life: u64,
        turn: Box<turns::Committed>,
    },
    /// A hostile user does something.
    Attack,
    /// A node lies.
    Lie,
    /// A thread of the controller ends.
    DoomThread,
    /// The controller's process ends because a thread did.
    ProcessEnds { life: u64 },
    /// The controller's storage fails.
    BreakStorage,
    /// Syncs become slow.
    SlowDisk,
    /// The wall clock is set.
    SetClock,
    /// A node's storage fails.
    BreakNode,
    /// A user asks again for what got no answer.
    Retry { lost: Box<clients::Lost> },
    /// After the faults: what an administrator would do to let everything end.
    Heal,
}

struct Queued {
    at: u64,
    number: u64,
    what: WorldEvent,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Reports of a step's end.
#[derive(Clone, Debug)]
pub(crate) struct StepReports {
    /// All ends, of which the last agent need not know.
    pub(crate) exits: Vec<ExitStatus>,
    /// The node that led it, and its boot.
    pub(crate) node: usize,
    pub(crate) boot: u64,
    /// The agent that reported last, by its number among the node's agents.
    pub(crate) agent_life: u64,
}

/// Real runs, as the nodes saw them.
#[derive(Default)]
pub(crate) struct Truth {
    /// Launches whose scripts were started on a node, ever.
    pub(crate) started: BTreeSet<(usize, JobAttempt)>,
    /// Exit statuses of scripts that ended by themselves.
    pub(crate) exits: BTreeMap<JobAttempt, ExitStatus>,
    /// Shares of nodes that launches have.
    pub(crate) shares: BTreeMap<(usize, JobAttempt), Share>,
    /// Tasks of steps that were started, ever.
    pub(crate) tasks: BTreeSet<TaskKey>,
    /// When a node was ordered to stop a job that has not been ordered to go on since, milliseconds.
    pub(crate) stopped: BTreeMap<(usize, JobAttempt), u64>,
    /// Launches that were ordered to end on a node while they were stopped there: others may have their CPUs.
    pub(crate) ended_stopped: BTreeSet<(usize, JobAttempt)>,
    /// When an agent had a part of a step begun on its node, milliseconds.
    pub(crate) begun: BTreeMap<(usize, JobAttempt, StepNo), u64>,
    /// Ends of tasks.
    pub(crate) task_ends: BTreeMap<TaskKey, ExitStatus>,
    /// Launches for which the agent that leads their steps has waited for the ends of steps on other nodes as long as it waits at most.
    pub(crate) waits_over: BTreeSet<JobAttempt>,
    /// Launches that each node has reported as released, also by agents of earlier lives.
    pub(crate) released: BTreeMap<usize, BTreeSet<JobAttempt>>,
    /// Ends of steps, as agents that led them have reported; not those that came after such a wait and the release.
    pub(crate) step_ends: BTreeMap<AttemptStep, StepReports>,
    /// Steps whose results a disk that was full or failed has not taken.
    pub(crate) lost_results: BTreeSet<AttemptStep>,
    /// Since when scripts stand still whose jobs run as far as the controller knows, milliseconds.
    pub(crate) halted: BTreeMap<(usize, JobAttempt), u64>,
    /// Since when parts of steps are held on a node that runs nothing of them, milliseconds.
    pub(crate) held_idle: BTreeMap<(JobAttempt, StepNo, usize), u64>,
}

/// The cluster.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) now: u64,
    /// The wall clock of the controller's machine minus the true time, milliseconds.
    pub(crate) skew: i64,
    /// When that machine booted, milliseconds.
    pub(crate) booted_ms: u64,
    /// The controller's clock.
    pub(crate) steady: Option<SteadyClock>,
    /// The clock's state as the controller stored it.
    pub(crate) kept_clock: Option<i64>,
    /// When the turn that is under way was decided, milliseconds.
    pub(crate) decided_ms: u64,
    /// Requests of hostile users: answered, accepted.
    pub(crate) attacks: (u64, u64),
    queue: BinaryHeap<Reverse<Queued>>,
    number: u64,
    pub(crate) random: Random,
    /// Chance of the classes of faults, apart: draws for them change nothing else.
    pub(crate) chaos: Random,
    classes: Vec<FaultClass>,
    /// Devices of the nodes, with chance of their own.
    pub(crate) devices: Devices,
    pub(crate) trace: Trace,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) storage: MemStorage,
    pub(crate) controller: Option<Controller>,
    /// Starts of the controller; events of an earlier life are void.
    pub(crate) life: u64,
    pub(crate) turn_at: Option<u64>,
    pub(crate) ledger: Ledger,
    /// Events of which a crash left open whether they are durable.
    pub(crate) doubt: Vec<muster_core::event::Event>,
    pub(crate) nodes: Vec<Node>,
    /// Settings of nodes.
    pub(crate) settings: NodeSettings,
    /// Connections of agents to launchers that were made.
    pub(crate) last_link: u64,
    pub(crate) sruns: BTreeMap<SrunId, SrunProcess>,
    pub(crate) last_srun: SrunId,
    /// Connections to step daemons.
    pub(crate) links: StepLinks,
    /// One in this number of messages on a node is the last of a process there, where that is a fault.
    pub(crate) deaths_in: u64,
    pub(crate) connections: BTreeMap<Conn, Connection>,
    pub(crate) next_conn: Conn,
    pub(crate) truth: Truth,
    pub(crate) clients: Clients,
    pub(crate) faults: Faults,
    pub(crate) accounted: Position,
    pub(crate) snapshot: Option<turns::Snapshot>,
    pub(crate) healing_since: Option<u64>,
    pub(crate) turns: u64,
    violation: Option<Violation>,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> World {
        let mut random = Random::new(seed, 1);
        let mut chaos = Random::new(seed, 2);
        let drawn = classes::draw(&mut chaos);
        let classes = options.classes.clone().unwrap_or(drawn);
        let mut config = drawn_config::configuration(&mut random, options.nodes);
        let devices = Devices::draw(Random::new(seed, 3), &mut config);
        let settings = nodes::settings(&mut random);
        let deaths_in = chaos.between(6, 120);
        let nodes = config
            .nodes
            .iter()
            .map(|line| Node::new(line.name.clone(), line.cpus, line.memory_mib))
            .collect();
        World {
            seed,
            options: options.clone(),
            now: 0,
            skew: 0,
            booted_ms: 0,
            steady: None,
            kept_clock: None,
            decided_ms: 0,
            attacks: (0, 0),
            queue: BinaryHeap::new(),
            number: 0,
            random,
            chaos,
            classes,
            devices,
            trace: Trace::new(options.trace, options.trace_node),
            config: Arc::new(config),
            storage: MemStorage::new(),
            controller: None,
            life: 0,
            turn_at: None,
            ledger: Ledger::default(),
            doubt: Vec::new(),
            nodes,
            settings,
            last_link: 0,
            sruns: BTreeMap::new(),
            last_srun: 0,
            links: StepLinks::default(),
            deaths_in,
            connections: BTreeMap::new(),
            next_conn: 1,
            truth: Truth::default(),
            clients: Clients::new(options.steps),
            faults: Faults::default(),
            accounted: 0,
            snapshot: None,
            healing_since: None,
            turns: 0,
            violation: None,
        }
    }

    pub(crate) fn run(mut self) -> RunReport {
        self.violation = self.begin().and_then(|()| self.drive()).err();
        if let Some(violation) = &self.violation {
            trace!(self, "VIOLATION {violation}");
        }
        RunReport {
            seed: self.seed,
            nodes: self.nodes.len(),
            events: self.ledger.position,
            turns: self.turns,
            restarts: self.life.saturating_sub(1),
            acknowledged: self.clients.acknowledged(),
            launches: self.ledger.starts,
            attacks: self.attacks,
            virtual_ms: self.now,
            trace_hash: self.trace.hash(),
            violation: self.violation,
            trace: self.trace.into_lines(),
        }
    }

    fn begin(&mut self) -> Outcome {
        create_journal(&self.storage)?;
        self.controller_process().restart()?;
        for node in 0..self.nodes.len() {
            let delay = self.random.below(2000);
            let event = NodeEvent::AgentStarts;
            self.later(delay, WorldEvent::Node { node, event });
        }
        self.later(1000, WorldEvent::Step);
        self.later(3000, WorldEvent::Fault);
        self.later(500, WorldEvent::Accounting);
        self.later(20_000, WorldEvent::Snapshot);
        let classes = std::mem::take(&mut self.classes);
        trace!(self, "classes of faults: {classes:?}");
        for class in &classes {
            let delay = self.chaos.between(1_000, 15_000);
            let first = match class {
                FaultClass::HostileClients => WorldEvent::Attack,
                FaultClass::LyingNodes => WorldEvent::Lie,
                FaultClass::DyingThreads => WorldEvent::DoomThread,
                FaultClass::FailingStorage => WorldEvent::BreakStorage,
                FaultClass::SlowSyncs => WorldEvent::SlowDisk,
                FaultClass::ClockSteps => WorldEvent::SetClock,
                FaultClass::FailingNodes => WorldEvent::BreakNode,
                // They happen with messages.
                FaultClass::DyingProcesses | FaultClass::UnreliableMessages => continue,
            };
            self.later(delay, first);
        }
        self.classes = classes;
        Ok(())
    }

    fn drive(&mut self) -> Outcome {
        let most = HAPPENINGS_PER_STEP * u64::from(self.options.steps.max(10));
        for _ in 0..most {
            let Some(Reverse(next)) = self.queue.pop() else {
                return Err(Violation::new(
                    "invariant_time_goes_on",
                    "nothing is left to handle",
                ));
            };
            self.now = self.now.max(next.at);
            self.handle(next.what)?;
            if let Some(since) = self.healing_since {
                if self.is_quiet() {
                    return invariants::invariant_nothing_is_left(self);
                }
                if self.now - since > LIVENESS_MS {
                    let now = self.clock();
                    match self.latest_begin() {
                        Some(begin) if begin > now => return Ok(()),
                        Some(begin) if now.since_ms(begin) < LIVENESS_MS => {}
                        _ => return Err(invariants::invariant_everything_ends(self)),
                    }
                }
            }
        }
        Err(Violation::new(
            "invariant_time_goes_on",
            format!("{most} things happened and there is no end"),
        ))
    }

    fn handle(&mut self, what: WorldEvent) -> Outcome {
        match what {
            WorldEvent::Turn { life } => self.controller_process().turn(life),
            WorldEvent::Restart => self.controller_process().restart(),
            WorldEvent::Hello { conn, hello } => {
                self.network().hello_arrives(conn, hello);
                Ok(())
            }
            WorldEvent::Reports { conn, reports } => {
                self.network().reports_arrive(conn, reports);
                Ok(())
            }
            WorldEvent::Health { conn, load } => {
                self.network().health_arrives(conn, load);
                Ok(())
            }
            WorldEvent::ToAgent { conn, bytes } => self.network().agent_receives(conn, &bytes),
            WorldEvent::Node { node, event } => self.machines().node_event(node, event),
            WorldEvent::Srun { srun, event } => self.sruns().on_event(srun, event),
            WorldEvent::OnLink(link, direction, arrival) => {
                self.step_network().arrive(link, direction, arrival)
            }
            WorldEvent::CtldSeesClosed { conn } => {
                self.network().ctld_sees_closed(conn);
                Ok(())
            }
            WorldEvent::AgentSeesClosed { conn } => {
                self.network().agent_sees_closed(conn);
                Ok(())
            }
            WorldEvent::Connect { node } => {
                self.network().connect(node);
                Ok(())
            }
            WorldEvent::Step => {
                self.users().step();
                Ok(())
            }
            WorldEvent::Request { id } => self.users().request_arrives(id),
            WorldEvent::Answer { id, reply } => self.users().answer_arrives(id, &reply),
            WorldEvent::Fault => self.fault_injector().fault(),
            WorldEvent::Repair(repair) => {
                self.fault_injector().repair(repair);
                Ok(())
            }
            WorldEvent::Accounting => self.controller_process().accounting_goes_on(),
            WorldEvent::Snapshot => self.controller_process().think_of_a_snapshot(),
            WorldEvent::Synced { life, turn } => self.controller_process().synced(life, *turn),
            WorldEvent::Lie => self.fault_injector().lie(),
            other => {
                self.handle_quietly(other);
                Ok(())
            }
        }
    }

    /// Handles an event that breaks no invariant by itself.
    fn handle_quietly(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::Break { conn } => {
                let delay = self.random.below(50);
                self.network().cut_conn(conn, Some(delay));
            }
            WorldEvent::Heal => self.users().heal(),
            WorldEvent::Attack => self.users().attack(),
            WorldEvent::DoomThread => self.fault_injector().doom_a_thread(),
            WorldEvent::ProcessEnds { life } => self.fault_injector().process_ends(life),
            WorldEvent::BreakStorage => self.fault_injector().break_the_storage(),
            WorldEvent::SlowDisk => self.fault_injector().slow_the_disk(),
            WorldEvent::SetClock => self.controller_clock().set_the_clock(),
            WorldEvent::BreakNode => self.fault_injector().break_a_node(),
            WorldEvent::Retry { lost } => self.fault_injector().retry(*lost),
            _ => {}
        }
    }

    /// Whether this cluster has a class of faults.
    pub(crate) fn has(&self, class: FaultClass) -> bool {
        self.classes.contains(&class)
    }

    /// Puts something into the queue.
    pub(crate) fn later(&mut self, delay: u64, what: WorldEvent) {
        self.number += 1;
        self.queue.push(Reverse(Queued {
            at: self.now + delay,
            number: self.number,
            what,
        }));
    }

    /// The node's place in the controller's table: the order of the configuration.
    pub(crate) fn idx(node: usize) -> NodeIdx {
        NodeIdx(u32::try_from(node).unwrap_or(u32::MAX))
    }

    pub(crate) fn planted(&self, plant: Plant) -> bool {
        self.options.plant == Some(plant)
    }

    /// The latest time for which a job that is left has to wait. A job that was submitted while the wall clock was far ahead of
    /// where it was set later waits for days, and whatever depends on it; only after that must everything end.
    fn latest_begin(&self) -> Option<Timestamp> {
        let jobs = self.controller.as_ref()?.writer.state().jobs.values();
        jobs.filter_map(|job| job.begin_at.max(job.eligible_time))
            .max()
    }

    fn is_quiet(&self) -> bool {
        !self.faults.busy
            && self.clients.nothing_in_flight()
            && self.sruns.is_empty()
            && self.nodes.iter().all(Node::is_clean)
            && self.controller.as_ref().is_some_and(|c| {
                c.inbox.is_empty()
                    && c.writer.state().jobs.is_empty()
                    && c.replica().jobs.is_empty()
            })
    }
}
