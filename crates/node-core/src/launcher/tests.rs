//! The launcher driven by events, with a model of what is around it: processes, the record file, step daemons, the controller. It
//! checks with each action that nothing is started twice or before it is on file, and that each thing held is given back once.

mod actions;
mod dismissed;
mod early_signals;
mod floods;
mod last_lines;
mod marked_signals;
mod random;
mod recorded_steps;
mod scenarios;
mod tmp_dirs;

use super::interface::{
    Failure, JobProgramKind, LaunchFiles, ProcessOwner, Recovered, ResultPurpose, ScriptNotStarted,
    StartedStepd, StepdConnId,
};
use super::*;
use crate::JobTmpDir;
use crate::messages::{
    ProcessIdentity, RunningStep, StepOrder, StepdCommand, TaskBinding, VERSIONS,
};
use crate::signals::{SIGKILL, SIGTERM};
use muster_model::cpuset::CpuSet;
use muster_model::effect::TerminateReason;
use muster_model::environment::Environment;
use muster_model::ids::{Attempt, AttemptStep, BlobId, JobId, NodeIdx, StepNo};
use muster_model::job::{Allocation, ArrayRole, NodeShare, StepEnd};
use muster_model::spec::{JobKind, JobSpec, Owner};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::job_container::ContainerSettings;
use muster_proto::node::{NodeSettings, Order, Orders};
use muster_proto::step::{StepLaunch, StepSpec};
use muster_proto::version::Greeting;
use muster_trust::{KEY, KeyPair, Receiver, SessionPeers};
use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};

const UID: u32 = 1000;
const SCRIPT: BlobId = BlobId([5; 32]);
const PEERS: SessionPeers<'static> = SessionPeers {
    cluster: "c",
    node: "n1",
    receiver: Receiver::Launcher,
};

fn attempt_of(job: u64) -> JobAttempt {
    JobAttempt::new(JobId(job), Attempt(1))
}

/// A job with all four CPUs of this node.
fn grant(attempt: JobAttempt, kind: JobKind) -> JobGrant {
    let spec = JobSpec {
        kind,
        script: Some(SCRIPT),
        owner: Owner {
            uid: UID,
            gid: UID,
            user: "u".to_owned(),
            ..Owner::default()
        },
        ..JobSpec::default()
    };
    let alloc = Allocation {
        nodes: vec![NodeShare {
            node: NodeIdx(1),
            name: "n1".to_owned(),
            cpus: CpuSet::first(4),
            memory_mib: 0,
            tasks: 4,
            gres: Vec::new(),
        }],
        hostlist: "n1".to_owned(),
        ..Allocation::default()
    };
    JobGrant {
        job: attempt.job,
        attempt: attempt.attempt,
        spec: std::sync::Arc::new(spec),
        alloc: alloc.into(),
        position: 0,
        array: ArrayRole::None,
        array_info: None,
        start_time: Timestamp(1),
        time_limit: TimeLimit::Unlimited,
        restarts: 0,
        addresses: Vec::new(),
        key: vec![1; 16].into(),
        account: String::new(),
        qos: String::new(),
        next_step: 0,
        components: Vec::new(),
        resizes: 0,
        het_key: None,
    }
}

fn step_order(attempt: JobAttempt, step: StepNo) -> Box<StepOrder> {
    Box::new(StepOrder {
        attempt,
        launch: StepLaunch {
            key: vec![1; 16].into(),
            spec: StepSpec {
                job: attempt.job,
                ..StepSpec::default()
            },
            step,
            step_key: vec![2; 16].into(),
            position: 0,
            tasks: vec![vec![0]],
            names: vec!["n1".to_owned()],
            cpus: CpuSet::first(1),
            memory_mib: 0,
            gres: Vec::new(),
            lead: String::new(),
            width: 0,
            above: None,
        },
        user: ProcessIdentity::default(),
        env: Environment::default(),
        limits: Vec::new(),
        array: None,
        job_name: String::new(),
        append: false,
        task_prolog: None,
        task_epilog: None,
        binding: TaskBinding::default(),
        pmix: None,
        direct: false,
        tmp_dir: None,
    })
}

fn end_of_step() -> StepEnd {
    StepEnd::never_ran(Timestamp(9))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Script(JobAttempt),
    /// With the step that it runs.
    Stepd(JobAttempt, Option<StepNo>),
    Programs(JobAttempt, JobProgramKind),
    Helper,
    /// Left by a job's script or task.
    Orphan(JobAttempt),
}

#[derive(Debug)]
struct Process {
    kind: Kind,
    is_child: bool,
    /// It has ended so, and was not collected.
    ended: Option<i32>,
    /// It does nothing any more: only SIGKILL ends it.
    hangs: bool,
}

#[derive(Debug, Default)]
struct Connection {
    pid: i32,
    is_listening: bool,
    unread: VecDeque<StepNo>,
}

/// See the module.
struct World {
    launcher: Launcher,
    now: Now,
    controller: Option<muster_trust::SealedSession>,
    events: VecDeque<Event>,
    timers: BTreeMap<Timer, u64>,
    records: String,
    processes: BTreeMap<i32, Process>,
    watched: BTreeSet<i32>,
    results: BTreeSet<AttemptStep>,
    stepds: BTreeMap<StepdConnId, Connection>,
    /// Numbers that have gone to other processes, with when those started.
    started_ms: BTreeMap<i32, u64>,
    look_ups: BTreeSet<UserAccount>,
    last_id: u64,
    /// Processes cannot be started for now.
    lacks: bool,
    /// The disk is full.
    is_full: bool,
    prolog: Vec<String>,
    epilog: Vec<String>,
    /// What the agent has received since it attached.
    sent: Vec<LauncherEvent>,
    /// What has been started ever.
    scripts: BTreeMap<JobAttempt, u32>,
    steps: BTreeMap<AttemptStep, u32>,
    /// Those of this launcher's time.
    new_steps: BTreeSet<AttemptStep>,
    /// Daemons to which the agent has a connection, and steps of which it knows the end by that.
    owned: BTreeSet<StepdConnId>,
    known_ends: BTreeSet<AttemptStep>,
    signals: Vec<(i32, i32)>,
    /// Of those to scripts: the ones that the steps get, too.
    signals_for_steps_too: Vec<i32>,
    /// Lines of each message.
    messages: Vec<usize>,
    /// Signals that step daemons keep until their tasks run.
    later_signals: Vec<u32>,
    /// Files whose last lines are being read.
    read: Vec<(JobAttempt, String)>,
    /// Limits that step daemons got, by their processes.
    limits: Vec<(i32, Option<u64>)>,
    /// Jobs of which the controller knows how they ended.
    forgotten: BTreeSet<JobAttempt>,
    prologs: u32,
    epilogs: u32,
    /// A launcher before has left programs of the site.
    has_crashed: bool,
    /// `PrologFlags=Serial`.
    is_serial: bool,
    /// Jobs have directories to themselves.
    has_containers: bool,
    has_tmp_dirs: bool,
    /// Temporary directories that scripts were given.
    tmp_dirs: BTreeMap<JobAttempt, JobTmpDir>,
    /// Those that are to be removed.
    removed_tmp_dirs: Vec<JobTmpDir>,
    /// Jobs whose directories are there.
    containers: BTreeSet<JobAttempt>,
    /// What step daemons say of their version.
    stepd_greeting: Option<Greeting>,
}

impl World {
    /// A launcher of a node without jobs, whose agent has a session with the controller.
    fn new() -> World {
        let (mut records, ..) = LauncherRecords::read("", "boot");
        let text = String::from_utf8(records.rewritten()).unwrap();
        let mut world = World {
            launcher: Launcher::new(World::setup(), records),
            now: Now {
                wall: Timestamp(1000),
                mono_ms: 1_000_000,
            },
            controller: None,
            events: VecDeque::new(),
            timers: BTreeMap::new(),
            records: text,
            processes: BTreeMap::new(),
            watched: BTreeSet::new(),
            results: BTreeSet::new(),
            stepds: BTreeMap::new(),
            started_ms: BTreeMap::new(),
            look_ups: BTreeSet::new(),
            last_id: 100,
            lacks: false,
            is_full: false,
            prolog: Vec::new(),
            epilog: Vec::new(),
            sent: Vec::new(),
            scripts: BTreeMap::new(),
            steps: BTreeMap::new(),
            new_steps: BTreeSet::new(),
            owned: BTreeSet::new(),
            known_ends: BTreeSet::new(),
            signals: Vec::new(),
            signals_for_steps_too: Vec::new(),
            messages: Vec::new(),
            later_signals: Vec::new(),
            read: Vec::new(),
            limits: Vec::new(),
            forgotten: BTreeSet::new(),
            prologs: 0,
            epilogs: 0,
            has_crashed: false,
            is_serial: false,
            has_containers: false,
            has_tmp_dirs: false,
            tmp_dirs: BTreeMap::new(),
            removed_tmp_dirs: Vec::new(),
            containers: BTreeSet::new(),
            stepd_greeting: Some(VERSIONS.greeting()),
        };
        world.deliver(Event::Recovered(Box::default()));
        world.attach();
        world
    }

    fn setup() -> LauncherSetup {
        LauncherSetup {
            spool: "/spool".into(),
            uid: 0,
            cpus: 4,
            own: "n1.1.2".to_owned(),
            host: "host".to_owned(),
            first_limits: Vec::new(),
        }
    }

    fn attach(&mut self) {
        let attach = AttachAgent {
            conf: String::new(),
            node: "n1".to_owned(),
            cluster: "c".to_owned(),
            version: String::new(),
            claim: MachineClaim::default(),
            greeting: None,
        };
        self.sent.clear();
        self.owned.clear();
        self.known_ends.clear();
        self.deliver(Event::Attached(Box::new(attach), None));
        self.deliver(Event::OpenSession(Ok([3; KEY])));
        let controller = KeyPair::of([7; KEY]);
        let Some(LauncherEvent::SessionKey(key)) = self.sent.pop() else {
            panic!("no key");
        };
        self.controller = Some(controller.with_node(PEERS, &key).unwrap());
        let key = controller.public().to_vec().into();
        self.command(LauncherCommand::BeginSession(key));
        let begun = self.sent.pop();
        assert!(matches!(begun, Some(LauncherEvent::SessionBegun(None))));
        let settings = NodeSettings {
            prolog: self.prolog.first().cloned(),
            epilog: self.epilog.first().cloned(),
            kill_wait_s: 30,
            serial_programs: self.is_serial,
            job_tmp_dirs: self.has_tmp_dirs,
            tmp_fs: "/tmp".to_owned(),
            containers: match self.has_containers {
                true => vec![ContainerSettings {
                    dirs: vec!["/tmp".to_owned()],
                    ..ContainerSettings::default()
                }],
                false => Vec::new(),
            },
            ..NodeSettings::default()
        };
        self.orders(Vec::new(), Some(settings));
    }

    fn orders(&mut self, orders: Vec<Order>, settings: Option<NodeSettings>) {
        let orders = Orders {
            cluster: "c".to_owned(),
            node: "n1".to_owned(),
            at: Timestamp(0),
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            orders,
            drop_blobs: Vec::new(),
            settings: settings.map(Box::new),
        };
        let orders = minicbor::to_vec(orders).unwrap();
        let seal = self.controller.as_mut().unwrap().seal(&orders);
        self.deliver(Event::Sealed {
            orders: orders.into(),
            seal: seal.to_vec().into(),
            local_time: "2026-01-01T00:00:00".to_owned(),
        });
    }

    fn order(&mut self, order: Order) {
        self.orders(vec![order], None);
        self.finish_wakeup();
    }

    fn launch(&mut self, attempt: JobAttempt, kind: JobKind) {
        self.order(Order::Launch(Box::new(grant(attempt, kind))));
        self.answer_look_ups();
    }

    fn terminate(&mut self, attempt: JobAttempt, now: bool) {
        self.order(Order::Terminate {
            job: attempt.job,
            attempt: attempt.attempt,
            now,
            why: TerminateReason::Cancelled,
        });
    }

    fn command(&mut self, command: LauncherCommand) {
        self.deliver(Event::Command(command));
        self.finish_wakeup();
    }

    fn start_step(&mut self, attempt: JobAttempt, step: StepNo) {
        self.deliver(Event::StartStep {
            order: step_order(attempt, step),
            random: Some(1),
        });
        self.finish_wakeup();
    }

    fn answer_look_ups(&mut self) {
        for account in std::mem::take(&mut self.look_ups) {
            self.deliver(Event::GroupsFound(account, vec![UID, 7]));
        }
        self.finish_wakeup();
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Delivers an event and what comes of it; whether anything did.
    fn deliver(&mut self, event: Event) -> bool {
        self.events.push_back(event);
        let mut has_acted = false;
        while let Some(event) = self.events.pop_front().or_else(|| self.next_step_end()) {
            let mut actions = Vec::new();
            self.launcher.on_event(event, self.now, &mut actions);
            has_acted |= !actions.is_empty();
            for action in actions {
                self.carry_out(action);
            }
        }
        has_acted
    }

    fn next_step_end(&mut self) -> Option<Event> {
        let (id, connection) = self
            .stepds
            .iter_mut()
            .find(|(_, c)| c.is_listening && !c.unread.is_empty())?;
        let step = connection.unread.pop_front()?;
        let process = self.processes.get(&connection.pid);
        if let Some(Kind::Stepd(attempt, _)) = process.map(|p| p.kind)
            && self.owned.contains(id)
        {
            self.known_ends.insert(AttemptStep::new(attempt, step));
        }
        Some(Event::StepEnded(*id, step, EncodedEnd::of(&end_of_step())))
    }

    fn finish_wakeup(&mut self) {
        for _ in 0..100 {
            if !self.deliver(Event::WakeUpEnded) {
                return self.check_ends();
            }
        }
        panic!("a wake-up does not end");
    }

    /// The agent knows of each end that the launcher knows.
    fn check_ends(&self) {
        let is_attached = self.launcher.state.actions.is_attached;
        for (attempt, entry) in self.launcher.state.jobs.iter().filter(|_| is_attached) {
            for (step, _) in entry.steps.iter().filter(|(_, p)| p.ended.is_some()) {
                let is_end = |event: &LauncherEvent| match event {
                    LauncherEvent::StepEnded {
                        attempt: of,
                        step: no,
                        ..
                    } => (of, no) == (attempt, step),
                    _ => false,
                };
                let is_known = self.known_ends.contains(&AttemptStep::new(*attempt, *step));
                assert!(
                    is_known || self.sent.iter().any(is_end),
                    "the end of step {step} of {attempt:?} is reported to nobody"
                );
            }
        }
    }

    /// Delivers ends of processes.
    fn reap(&mut self) {
        while let Some((pid, status)) = self.first_ended() {
            let process = self.processes.remove(&pid).unwrap();
            if process.is_child {
                self.deliver(Event::ChildEnded {
                    pid,
                    status,
                    usage: Box::default(),
                    failure: None,
                });
            } else if self.watched.remove(&pid) {
                self.deliver(Event::WatchedEnded { pid, status: None });
            }
        }
        self.finish_wakeup();
    }

    fn first_ended(&self) -> Option<(i32, i32)> {
        let mut all = self.processes.iter();
        all.find_map(|(pid, process)| Some((*pid, process.ended?)))
    }

    /// Fires the timer that is due next, if one is.
    fn fire_timer(&mut self) -> bool {
        let first = self.timers.iter().min_by_key(|(_, at)| **at);
        let Some((key, at)) = first.map(|(key, at)| (key.clone(), *at)) else {
            return false;
        };
        self.timers.remove(&key);
        self.now.mono_ms = self.now.mono_ms.max(at);
        self.deliver(Event::TimerDue(key));
        self.finish_wakeup();
        true
    }

    fn spawn(&mut self, kind: Kind) -> Result<i32, Failure> {
        if self.lacks {
            return Err(Failure {
                error: "no processes".to_owned(),
                is_temporary: true,
            });
        }
        let pid = i32::try_from(self.next_id()).unwrap();
        let process = Process {
            kind,
            is_child: true,
            ended: None,
            hangs: false,
        };
        self.processes.insert(pid, process);
        Ok(pid)
    }

    fn end(&mut self, pid: i32, status: i32) {
        if let Some(process) = self.processes.get_mut(&pid)
            && (!process.hangs || status == SIGKILL)
        {
            process.ended.get_or_insert(status);
        }
    }

    fn pids(&self, is_it: impl Fn(&Kind) -> bool) -> Vec<i32> {
        let live = self.processes.iter().filter(|(_, p)| p.ended.is_none());
        live.filter(|(_, p)| is_it(&p.kind))
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// The tasks of a daemon have ended. It reports that, or leaves it in a file.
    fn end_tasks(&mut self, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let Kind::Stepd(attempt, Some(step)) = process.kind else {
            return;
        };
        if process.ended.is_some() || process.hangs {
            return;
        }
        process.kind = Kind::Stepd(attempt, None);
        let connection = self.stepds.values_mut().find(|c| c.pid == pid);
        match connection {
            Some(connection) => {
                connection.unread.push_back(step);
            }
            None => {
                self.results.insert(AttemptStep::new(attempt, step));
                self.end(pid, 0);
            }
        }
    }

    /// The launcher is killed, and another takes over.
    fn crash(&mut self) {
        self.has_crashed = true;
        for pid in self.pids(|kind| {
            !matches!(
                kind,
                Kind::Orphan(_) | Kind::Script(_) | Kind::Stepd(_, Some(_))
            )
        }) {
            self.end(pid, SIGKILL);
        }
        // What it had not received, daemons leave in files.
        for (_, connection) in std::mem::take(&mut self.stepds) {
            for step in connection.unread {
                if let Some(Process {
                    kind: Kind::Stepd(attempt, _),
                    ..
                }) = self.processes.get(&connection.pid)
                {
                    self.results.insert(AttemptStep::new(*attempt, step));
                }
            }
        }
        self.processes.retain(|_, p| p.ended.is_none());
        self.processes.values_mut().for_each(|p| p.is_child = false);
        self.timers.clear();
        self.look_ups.clear();
        self.read.clear();
        self.watched.clear();
        self.events.clear();
        self.new_steps.clear();
        let (mut records, attempts, same_boot) = LauncherRecords::read(&self.records, "boot");
        self.records = String::from_utf8(records.rewritten()).unwrap();
        self.launcher = Launcher::new(World::setup(), records);
        let mut left = Recovered {
            same_boot,
            ..Recovered::default()
        };
        for (attempt, old) in &attempts {
            // A script notes itself, also where the disk is full.
            let noted = self.pids(|kind| *kind == Kind::Script(*attempt)).pop();
            left.scripts.extend(noted.map(|pid| (*attempt, pid)));
            let pids = old.pid.into_iter().chain(noted);
            let pids = pids.chain(old.steps.values().copied());
            for pid in pids.filter(|pid| self.processes.contains_key(pid)) {
                let started_ms = self.started_ms.get(&pid).copied();
                left.processes
                    .insert(pid, started_ms.unwrap_or(old.boot_ms));
                self.watched.insert(pid);
            }
        }
        left.attempts = attempts;
        self.sent.clear();
        self.deliver(Event::Recovered(Box::new(left)));
        self.finish_wakeup();
        self.attach();
    }

    /// The agent receives something: each end once.
    fn send(&mut self, event: LauncherEvent) {
        let is_same = |other: &LauncherEvent| match (&event, other) {
            (
                LauncherEvent::StepEnded { attempt, step, .. },
                LauncherEvent::StepEnded {
                    attempt: of,
                    step: other,
                    ..
                },
            ) => (attempt, step) == (of, other),
            _ => outcome_of(&event).is_some() && outcome_of(&event) == outcome_of(other),
        };
        assert!(
            !self.sent.iter().any(is_same),
            "{event:?} is reported twice"
        );
        if let LauncherEvent::Released(attempt) = event {
            let left = self.processes.values().find(|p| match p.kind {
                Kind::Script(of)
                | Kind::Stepd(of, Some(_))
                | Kind::Programs(
                    of,
                    JobProgramKind::Prolog | JobProgramKind::Epilog(_) | JobProgramKind::Container,
                ) => of == attempt,
                Kind::Orphan(of) => of == attempt && p.ended.is_none(),
                _ => false,
            });
            assert!(left.is_none(), "{attempt:?} is released and has {left:?}");
            let has_container = self.containers.contains(&attempt);
            assert!(
                !has_container,
                "{attempt:?} is released and has directories"
            );
        }
        self.sent.push(event);
    }

    fn outcome(&self, attempt: JobAttempt) -> Option<&LauncherEvent> {
        self.sent
            .iter()
            .find(|event| outcome_of(event) == Some(attempt))
    }

    fn is_released(&self, attempt: JobAttempt) -> bool {
        let is_it =
            |event: &LauncherEvent| matches!(event, LauncherEvent::Released(of) if *of == attempt);
        self.sent.iter().any(is_it)
    }

    fn phase(&self, attempt: JobAttempt) -> NodeJobPhase {
        self.launcher
            .state
            .jobs
            .get(&attempt)
            .map_or(NodeJobPhase::Gone, |e| e.phase)
    }

    fn script(&self, attempt: JobAttempt) -> i32 {
        self.launcher.state.jobs[&attempt].script.expect("it runs")
    }

    fn program(&self, attempt: JobAttempt) -> i32 {
        self.pids(|kind| matches!(kind, Kind::Programs(of, _) if *of == attempt))[0]
    }

    /// A process ends, which is collected.
    fn end_and_reap(&mut self, pid: i32, status: i32) {
        self.end(pid, status);
        self.reap();
    }
}

/// The job of which an event reports how its script ended.
fn outcome_of(event: &LauncherEvent) -> Option<JobAttempt> {
    match event {
        LauncherEvent::BatchEnded { attempt, .. }
        | LauncherEvent::LaunchFailed { attempt, .. }
        | LauncherEvent::Vanished(attempt) => Some(*attempt),
        _ => None,
    }
}
