//! The daemon driven by events, with a model of what is around it: processes and their output, srun, the launcher, the agent, an MPI
//! host. It checks with each action that no task is started twice, let go before all are prepared, or left when its step is
//! over, and that no end is reported twice or lost.

mod actions;
mod random;
mod scenarios;

use super::*;
use crate::messages::{PmixOrder, ProcessIdentity, StepBounds, StepOrder, TaskBinding};
use crate::signals::{SIGKILL, SIGTERM};
use muster_model::cpuset::CpuSet;
use muster_model::environment::Environment;
use muster_model::ids::{Attempt, JobAttempt, JobId, StepNo};
use muster_model::job::{ExitStatus, JobState, ResourceUsage};
use muster_model::time::Timestamp;
use muster_proto::frame::Frames;
use muster_proto::step::{Attach, StepLaunch, StepSpec};
use muster_proto::version::Versions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

const RUN: JobAttempt = JobAttempt {
    job: JobId(7),
    attempt: Attempt(1),
};
const KEY: [u8; 16] = [5; 16];
const KILL_WAIT_MS: u64 = 30_000;

/// What a step is like.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Tasks here, one if 0.
    tasks: u32,
    /// srun's streams come with it.
    is_direct: bool,
    has_host: bool,
    has_epilog: bool,
    /// There is a node below this one.
    has_tree: bool,
}

fn order(step: StepNo, kind: Kind) -> StepOrder {
    let tasks: Vec<u32> = (0..kind.tasks.max(1)).collect();
    let below: &[&str] = match kind.has_tree {
        true => &["n1", "n2"],
        false => &["n1"],
    };
    StepOrder {
        attempt: RUN,
        launch: StepLaunch {
            key: vec![1; 16].into(),
            spec: StepSpec {
                job: RUN.job,
                passes_stdio: kind.is_direct,
                ..StepSpec::default()
            },
            step,
            step_key: KEY.to_vec().into(),
            position: 0,
            tasks: below.iter().map(|_| tasks.clone()).collect(),
            names: below.iter().map(|name| (*name).to_owned()).collect(),
            cpus: CpuSet::first(1),
            memory_mib: 0,
            gres: Vec::new(),
            lead: String::new(),
            width: 1,
            above: None,
        },
        user: ProcessIdentity::default(),
        env: Environment::default(),
        limits: Vec::new(),
        array: None,
        job_name: String::new(),
        append: false,
        task_prolog: None,
        task_epilog: kind.has_epilog.then(|| "/epilog".to_owned()),
        binding: TaskBinding::default(),
        pmix: kind.has_host.then(pmix),
        direct: kind.is_direct,
        tmp_dir: None,
    }
}

fn pmix() -> PmixOrder {
    PmixOrder {
        nspace: "muster.7.0".to_owned(),
        version: None,
        universe: 1,
        listen: String::new(),
        tmp_base: "/tmp".to_owned(),
        share_topology: false,
        early: false,
        timeout_s: 0,
        env: Vec::new(),
        pmi: false,
        cross_memory: None,
        plain_network: false,
        ucx: None,
        no_gpus: false,
        crowded_slack_us: 0,
        any: false,
    }
}

fn next_step(step: StepNo, kind: Kind) -> NextStep {
    NextStep {
        order: Box::new(order(step, kind)),
        kill_wait_ms: KILL_WAIT_MS,
        result: result_file(step).to_string_lossy().into_owned(),
        kept: Vec::new(),
    }
}

fn hello() -> ToStepd {
    let greeting = Versions::CLUSTER.greeting();
    ToStepd::Hello(KEY.to_vec().into(), Some(greeting))
}

fn attach(is_srun: bool, seen: u64) -> ToStepd {
    ToStepd::Attach(Box::new(Attach {
        key: KEY.to_vec().into(),
        below: vec!["unix:/n2".to_owned()],
        srun: is_srun,
        seen: vec![seen],
        greeting: Some(Versions::CLUSTER.greeting()),
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Task(u32),
    Epilog(u32),
    Host,
    /// Left by a task.
    Orphan,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    role: Role,
    /// It waits to be let go; and is prepared for that.
    is_held: bool,
    is_prepared: bool,
    ignores_term: bool,
    /// It has ended so, and was not collected.
    ended: Option<i32>,
}

/// A stream from a task, and who has its other end.
#[derive(Clone, Debug)]
struct OutputStream {
    task: u32,
    is_error: bool,
    holders: BTreeSet<i32>,
}

/// srun, or the node above.
#[derive(Debug)]
struct Srun {
    id: ClientId,
    is_greeted: bool,
    is_srun: bool,
    queue: VecDeque<ToStepd>,
    /// It has hung up.
    is_gone: bool,
    is_flush_awaited: bool,
}

/// Something that is done otherwise than the machine has decided: the checks must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    TasksStartedTwice,
    TasksReleasedEarly,
    ExitNotSent,
    EndReportedTwice,
    ResultNotLeft,
    NothingKilled,
}

impl Plant {
    const ALL: [Plant; 6] = [
        Plant::TasksStartedTwice,
        Plant::TasksReleasedEarly,
        Plant::ExitNotSent,
        Plant::EndReportedTwice,
        Plant::ResultNotLeft,
        Plant::NothingKilled,
    ];
}

/// See the module.
struct World {
    stepd: Stepd,
    plant: Option<Plant>,
    now: Now,
    events: VecDeque<Event>,
    last_id: u64,
    /// The step that runs.
    order: Option<Rc<StepOrder>>,
    /// It, or the one before, has ended by [`Event::Broken`].
    is_broken: bool,
    processes: BTreeMap<i32, Process>,
    outputs: Vec<OutputStream>,
    /// Tasks that are prepared and were not counted.
    prepared: usize,
    /// Tasks have the other end of what they say that by.
    is_barrier_open: bool,
    /// Tasks of the step that were started, and those whose end its srun has received.
    started: usize,
    exits: BTreeMap<u32, u32>,
    was_started_sent: bool,
    closed_sent: u32,
    received: Vec<FromStepd>,
    srun: Option<Srun>,
    srun_reads: bool,
    /// Messages of a tree that srun has, and those that it has said.
    seen: u64,
    said: u64,
    /// The node below is connected.
    has_below: bool,
    /// The MPI host has said so.
    is_host_ready: bool,
    /// Processes cannot be started for now.
    lacks: bool,
    /// Ends that the launcher has not read; none if there is no launcher.
    launcher: Option<Vec<StepNo>>,
    is_launcher_loss_known: bool,
    /// Steps that were given.
    given: u32,
    begun: BTreeSet<StepNo>,
    reported: BTreeSet<StepNo>,
    /// Ends that the agent has been sent.
    sent: BTreeSet<StepNo>,
    /// Ends that a launcher has read, and those in files.
    known: BTreeSet<StepNo>,
    files: BTreeMap<PathBuf, StepEnd>,
    last_end: Option<StepEnd>,
    signals: Vec<i32>,
    refused: Vec<ClientId>,
    readers: Vec<ClientId>,
    /// What readers were sent.
    read: Vec<FromStepd>,
    /// Frames of earlier output that the last reader was sent.
    reread: Vec<u8>,
    /// Input that tasks were given.
    fed: Vec<(Option<u32>, Vec<u8>)>,
    closed: Vec<ClientId>,
    log: Vec<String>,
    /// Frames that went up in a tree.
    frames_sent: u32,
    is_over: bool,
}

impl World {
    fn new() -> World {
        let bounds = StepBounds {
            cpus: CpuSet::first(1),
            node: "n1".to_owned(),
            max_step_count: 1000,
            max_tasks: 100,
            ..StepBounds::default()
        };
        let setup = StepdSetup {
            node: "n1".to_owned(),
            pid: 99,
            attempt: RUN,
            bounds,
            spool: "/spool".into(),
        };
        World {
            stepd: Stepd::new(setup),
            plant: None,
            now: Now {
                wall: Timestamp(1000),
                mono_ms: 1_000_000,
            },
            events: VecDeque::new(),
            last_id: 100,
            order: None,
            is_broken: false,
            processes: BTreeMap::new(),
            outputs: Vec::new(),
            prepared: 0,
            is_barrier_open: false,
            started: 0,
            exits: BTreeMap::new(),
            was_started_sent: false,
            closed_sent: 0,
            received: Vec::new(),
            srun: None,
            srun_reads: true,
            seen: 0,
            said: 0,
            has_below: false,
            is_host_ready: false,
            lacks: false,
            launcher: Some(Vec::new()),
            is_launcher_loss_known: false,
            given: 0,
            begun: BTreeSet::new(),
            reported: BTreeSet::new(),
            sent: BTreeSet::new(),
            known: BTreeSet::new(),
            files: BTreeMap::new(),
            last_end: None,
            signals: Vec::new(),
            refused: Vec::new(),
            readers: Vec::new(),
            read: Vec::new(),
            reread: Vec::new(),
            fed: Vec::new(),
            closed: Vec::new(),
            log: Vec::new(),
            frames_sent: 0,
            is_over: false,
        }
    }

    /// With a first step.
    fn with_step(kind: Kind) -> World {
        let mut world = World::new();
        world.give(StepNo(0), kind, StepSender::Start(Vec::new()));
        world
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn give(&mut self, step: StepNo, kind: Kind, giver: StepSender) {
        let srun = kind.is_direct.then(|| ClientId(self.next_id()));
        let next = Box::new(next_step(step, kind));
        self.deliver(Event::StepGiven(next, giver, srun));
        self.end_wakeup();
    }

    /// Delivers an event and what comes of it.
    fn deliver(&mut self, event: Event) {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            let mut actions = Vec::new();
            self.stepd.on_event(event, self.now, &mut actions);
            for action in actions {
                self.carry_out(action);
            }
        }
    }

    fn end_wakeup(&mut self) {
        for _ in 0..100 {
            if self.is_over {
                return;
            }
            self.deliver(Event::WakeUpEnded);
            let flushes = |srun: &mut Srun| std::mem::take(&mut srun.is_flush_awaited);
            let reads = self.srun_reads;
            if !self.srun.as_mut().filter(|_| reads).is_some_and(flushes) {
                return;
            }
            self.deliver(Event::Flushed);
        }
        panic!("a wake-up does not end");
    }

    /// What `chosen` says of all that has come is delivered, in the order of the executor; by bit.
    fn wake_up(&mut self, chosen: u32) {
        let is_chosen = |bit: u32| chosen & (1 << bit) != 0;
        if is_chosen(0) {
            self.end_outputs();
        }
        if is_chosen(1) && self.prepared > 0 {
            let count = std::mem::take(&mut self.prepared);
            self.deliver(Event::TasksPrepared(Some(count)));
        }
        let is_unprepared = |p: &Process| p.is_held && !p.is_prepared;
        if is_chosen(1) && self.is_barrier_open && self.pids(is_unprepared).is_empty() {
            self.is_barrier_open = false;
            self.deliver(Event::TasksPrepared(None));
        }
        if is_chosen(2) {
            self.deliver_srun();
        }
        if is_chosen(3) {
            self.look_at_launcher();
        }
        if is_chosen(4) {
            self.collect();
        }
        self.end_wakeup();
    }

    fn end_outputs(&mut self) {
        let is_ended = |o: &mut OutputStream| o.holders.is_empty();
        for output in self.outputs.extract_if(.., is_ended).collect::<Vec<_>>() {
            self.deliver(Event::Output {
                task: output.task,
                is_error: output.is_error,
                bytes: Vec::new().into(),
            });
        }
    }

    fn deliver_srun(&mut self) {
        while let Some(srun) = &mut self.srun {
            let Some(message) = srun.queue.pop_front() else {
                break;
            };
            let client = srun.id;
            let event = match srun.is_greeted {
                true => Event::Client(message),
                false => Event::Greeted {
                    client,
                    message,
                    is_own: false,
                },
            };
            self.deliver(event);
        }
        if let Some(srun) = self.srun.take_if(|srun| srun.is_gone)
            && srun.is_greeted
        {
            self.deliver(Event::ClientClosed);
        }
    }

    fn look_at_launcher(&mut self) {
        match &self.launcher {
            Some(unread) if unread.is_empty() && self.stepd.has_unread() => {
                self.deliver(Event::LauncherHasRead);
            }
            None if !std::mem::replace(&mut self.is_launcher_loss_known, true) => {
                self.deliver(Event::LauncherLost);
            }
            _ => {}
        }
    }

    /// Collects the processes that have ended.
    fn collect(&mut self) {
        let first = |world: &World| {
            let mut all = world.processes.iter();
            all.find_map(|(pid, process)| Some((*pid, process.ended?)))
        };
        let mut count = 0;
        while let Some((pid, status)) = first(self) {
            count += 1;
            self.processes.remove(&pid);
            let usage = ResourceUsage {
                user_us: 1,
                ..ResourceUsage::default()
            };
            self.deliver(Event::ChildEnded {
                pid,
                status,
                usage: Box::new(usage),
            });
        }
        let are_none = self.processes.is_empty();
        if count > 0 {
            self.deliver(Event::ChildrenCollected { are_none });
        }
    }

    fn spawn(&mut self, role: Role, is_held: bool) -> Option<i32> {
        if self.lacks {
            return None;
        }
        let pid = i32::try_from(self.next_id()).unwrap();
        let process = Process {
            role,
            is_held,
            is_prepared: false,
            ignores_term: false,
            ended: None,
        };
        self.processes.insert(pid, process);
        Some(pid)
    }

    fn end(&mut self, pid: i32, status: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.ended.get_or_insert(status);
            for output in &mut self.outputs {
                output.holders.remove(&pid);
            }
        }
    }

    fn pids(&self, is_it: impl Fn(&Process) -> bool) -> Vec<i32> {
        let live = self.processes.iter().filter(|(_, p)| p.ended.is_none());
        let found = live.filter(|(_, process)| is_it(process));
        found.map(|(pid, _)| *pid).collect()
    }

    fn tasks(&self) -> Vec<i32> {
        self.pids(|p| matches!(p.role, Role::Task(_)))
    }

    /// Held tasks are prepared, as many as that.
    fn prepare(&mut self, count: usize) {
        let held = self.pids(|p| p.is_held && !p.is_prepared);
        for pid in held.into_iter().take(count) {
            self.prepared += 1;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.is_prepared = true;
            }
        }
    }

    /// srun, or the node above, connects.
    fn connect(&mut self, message: ToStepd) {
        let is_srun = match &message {
            ToStepd::Attach(attach) => attach.srun,
            _ => true,
        };
        self.srun = Some(Srun {
            id: ClientId(self.next_id()),
            is_greeted: false,
            is_srun,
            queue: VecDeque::from([message]),
            is_gone: false,
            is_flush_awaited: false,
        });
    }

    fn say(&mut self, message: ToStepd) {
        let in_tree = self
            .order
            .as_ref()
            .is_some_and(|o| o.launch.names.len() > 1);
        let Some(srun) = &mut self.srun else { return };
        let message = match in_tree {
            true => {
                self.said += 1;
                ToStepd::ForwardDown(self.said - 1, Box::new(message))
            }
            false => message,
        };
        srun.queue.push_back(message);
    }

    /// The time comes for which the daemon waits next, if there is one.
    fn pass_time(&mut self) -> bool {
        let Some(at) = self.stepd.deadline() else {
            return false;
        };
        self.now.mono_ms = self.now.mono_ms.max(at);
        self.deliver(Event::TimeUp("2026-01-01T00:00:00".to_owned()));
        self.end_wakeup();
        true
    }

    /// A launcher has read how a step ended, or finds it in its file.
    fn is_known(&self, step: StepNo) -> bool {
        self.known.contains(&step) || self.files.contains_key(&result_file(step))
    }
}

fn result_file(step: StepNo) -> PathBuf {
    result_path(Path::new("/spool"), RUN, step)
}
