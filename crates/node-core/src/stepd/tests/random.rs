//! Random interleavings of what can happen to a daemon: a task is started at most once and ends once, no task outlives its step, and
//! each end is known to a launcher or in a file, whichever process stops when.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Incident {
    /// A step is given, by the agent or the launcher.
    Give { kind: Kind, by_agent: bool },
    /// srun, or the node above, connects, with the key or without.
    Connect { has_key: bool, is_srun: bool },
    /// It says something.
    Say(Word),
    /// It goes.
    SrunGoes,
    /// It reads what it is sent, or not.
    SrunReads(bool),
    /// In a tree, it acknowledges what it has.
    Acknowledge,
    /// The connection to the node below is gone.
    BelowGoes { is_over: bool },
    /// Held tasks are prepared.
    Prepare(usize),
    /// A task, an epilog, an orphan or the host ends.
    Ends { which: Index, status: i32 },
    /// A task leaves a process behind, which has its output or not.
    Orphan { of: Index, has_output: bool },
    /// A process ignores SIGTERM.
    IgnoreTerm(Index),
    /// The MPI host says something.
    Host(HostWord),
    /// The launcher says something.
    Command(Command),
    /// The launcher reads what it was sent.
    LauncherReads,
    /// The launcher is lost, with what it has not read.
    LauncherLost,
    /// Another launcher connects.
    LauncherCame { is_own: bool },
    /// SIGTERM.
    Terminate,
    /// The next time comes for which the daemon waits.
    Time,
    /// A part of what has come is delivered.
    WakeUp(u32),
    /// No processes can be started, or they can again.
    Lack(bool),
    /// poll(2) fails.
    Break,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Signal,
    Fail,
    Input,
    Left,
}

#[derive(Clone, Copy, Debug)]
enum HostWord {
    Ready,
    Failed,
    Connected(u32),
    Finalized(u32),
    Abort(u32),
    Signal,
}

#[derive(Clone, Copy, Debug)]
enum Command {
    EndStep,
    Exit,
    Print,
    Limit(Option<u64>),
}

fn kind() -> impl Strategy<Value = Kind> {
    (0_u32..10, 1_u32..4, prop::bool::weighted(0.2)).prop_map(|(form, tasks, has_epilog)| Kind {
        tasks: if form == 0 { 1 } else { tasks },
        is_direct: form == 0,
        has_host: form == 1 || form == 2,
        has_epilog,
        has_tree: form == 3 || form == 4,
    })
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        Just(Word::Signal),
        Just(Word::Fail),
        Just(Word::Input),
        Just(Word::Left)
    ]
}

fn host_word() -> impl Strategy<Value = HostWord> {
    prop_oneof![
        6 => Just(HostWord::Ready),
        1 => Just(HostWord::Failed),
        2 => (0_u32..3).prop_map(HostWord::Connected),
        2 => (0_u32..3).prop_map(HostWord::Finalized),
        1 => (0_u32..3).prop_map(HostWord::Abort),
        1 => Just(HostWord::Signal),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => Just(Command::EndStep),
        1 => Just(Command::Exit),
        2 => Just(Command::Print),
        2 => prop::option::of(0_u64..100).prop_map(Command::Limit),
    ]
}

fn incident() -> impl Strategy<Value = Incident> {
    prop_oneof![
        4 => (kind(), prop::bool::weighted(0.8))
            .prop_map(|(kind, by_agent)| Incident::Give { kind, by_agent }),
        6 => (prop::bool::weighted(0.9), any::<bool>())
            .prop_map(|(has_key, is_srun)| Incident::Connect { has_key, is_srun }),
        2 => word().prop_map(Incident::Say),
        1 => Just(Incident::SrunGoes),
        1 => prop::bool::weighted(0.7).prop_map(Incident::SrunReads),
        3 => Just(Incident::Acknowledge),
        1 => any::<bool>().prop_map(|is_over| Incident::BelowGoes { is_over }),
        5 => (1_usize..4).prop_map(Incident::Prepare),
        8 => (any::<Index>(), prop_oneof![3 => Just(0), 1 => Just(256), 1 => Just(9)])
            .prop_map(|(which, status)| Incident::Ends { which, status }),
        1 => (any::<Index>(), any::<bool>())
            .prop_map(|(of, has_output)| Incident::Orphan { of, has_output }),
        1 => any::<Index>().prop_map(Incident::IgnoreTerm),
        4 => host_word().prop_map(Incident::Host),
        2 => command().prop_map(Incident::Command),
        3 => Just(Incident::LauncherReads),
        1 => Just(Incident::LauncherLost),
        2 => any::<bool>().prop_map(|is_own| Incident::LauncherCame { is_own }),
        1 => Just(Incident::Terminate),
        2 => Just(Incident::Time),
        6 => any::<u32>().prop_map(Incident::WakeUp),
        8 => Just(Incident::WakeUp(u32::MAX)),
        1 => prop::bool::weighted(0.3).prop_map(Incident::Lack),
        1 => prop::bool::weighted(0.05).prop_map(|breaks| match breaks {
            true => Incident::Break,
            false => Incident::WakeUp(u32::MAX),
        }),
    ]
}

fn choose(all: &[i32], which: Index) -> Option<i32> {
    (!all.is_empty()).then(|| *which.get(all))
}

impl World {
    fn happen(&mut self, what: Incident) {
        match what {
            Incident::Give { kind, by_agent } => {
                let step = StepNo(self.given);
                self.given += 1;
                // Who gives steps gives no number twice, and only the launcher starts daemons.
                let giver = match (by_agent, self.begun.is_empty()) {
                    (_, true) => StepSender::Start(Vec::new()),
                    (true, false) => StepSender::Agent,
                    (false, false) => StepSender::Launcher,
                };
                let is_early = self.order.is_some() && giver == StepSender::Launcher;
                let kind = Kind {
                    has_host: kind.has_host && matches!(giver, StepSender::Start(_)),
                    is_direct: kind.is_direct && giver != StepSender::Launcher,
                    ..kind
                };
                if !is_early || self.launcher.is_some() {
                    self.give(step, kind, giver);
                }
            }
            Incident::Connect { has_key, is_srun } => self.connect_with(has_key, is_srun),
            Incident::Say(word) => self.say_word(word),
            Incident::SrunGoes => {
                if let Some(srun) = &mut self.srun {
                    srun.is_gone = true;
                }
            }
            Incident::SrunReads(reads) => {
                self.srun_reads = reads;
                self.end_wakeup();
            }
            Incident::Acknowledge => self.acknowledge(),
            Incident::BelowGoes { is_over } => self.lose_below(is_over),
            Incident::Prepare(count) => self.prepare(count),
            Incident::Ends { which, status } => {
                if let Some(pid) = choose(&self.pids(|p| !p.is_held || status == 9), which) {
                    self.end(pid, status);
                }
            }
            Incident::Orphan { of, has_output } => {
                let is_task = |p: &Process| matches!(p.role, Role::Task(_)) && !p.is_held;
                if let Some(of) = choose(&self.pids(is_task), of)
                    && let Some(pid) = self.spawn(Role::Orphan, false)
                {
                    let outputs = self.outputs.iter_mut().filter(|_| has_output);
                    for output in outputs.filter(|o| o.holders.contains(&of)) {
                        output.holders.insert(pid);
                    }
                }
            }
            Incident::IgnoreTerm(which) => {
                if let Some(pid) = choose(&self.pids(|_| true), which)
                    && let Some(process) = self.processes.get_mut(&pid)
                {
                    process.ignores_term = true;
                }
            }
            Incident::Host(word) => self.host_says(word),
            Incident::Command(command) => self.command(command),
            Incident::LauncherReads => self.launcher_reads(),
            Incident::LauncherLost => self.launcher = None,
            Incident::LauncherCame { is_own } => self.launcher_came(is_own),
            Incident::Terminate => {
                self.deliver(Event::Terminate);
                self.end_wakeup();
            }
            Incident::Time => drop(self.pass_time()),
            Incident::WakeUp(chosen) => self.wake_up(chosen),
            Incident::Lack(lacks) => self.lacks = lacks,
            Incident::Break => {
                self.is_broken = true;
                self.deliver(Event::Broken("poll".to_owned()));
                self.end_wakeup();
            }
        }
    }

    fn connect_with(&mut self, has_key: bool, is_srun: bool) {
        let in_tree = self.order.as_ref().map(|o| o.launch.names.len() > 1);
        let has_srun = self.srun.as_ref().is_some_and(|srun| srun.is_greeted);
        if !has_key || in_tree.is_none() || (has_srun && in_tree == Some(false)) {
            // A stranger, or another srun: nobody lets it in.
            let client = ClientId(self.next_id());
            let message = match has_key {
                true => hello(),
                false => ToStepd::Hello(vec![0; 16].into(), None),
            };
            self.deliver(Event::Greeted {
                client,
                message,
                is_own: false,
            });
            assert!(self.closed.contains(&client) || self.is_over);
            return self.end_wakeup();
        }
        if self.srun.is_some() {
            return;
        }
        match in_tree {
            Some(true) => self.connect(attach(is_srun, self.seen)),
            _ => self.connect(hello()),
        }
    }

    fn say_word(&mut self, word: Word) {
        if self.srun.as_ref().is_some_and(|srun| srun.is_gone) {
            return;
        }
        match word {
            Word::Signal => self.say(ToStepd::Signal(10)),
            Word::Fail => self.say(ToStepd::FailStep(ExitStatus { code: 3, signal: 0 })),
            Word::Input => self.say(ToStepd::Stdin {
                task: None,
                bytes: b"x".to_vec().into(),
            }),
            // Only a node above says that.
            Word::Left => {
                if let Some(srun) = self.srun.as_mut().filter(|srun| !srun.is_srun) {
                    srun.queue.push_back(ToStepd::SrunDisconnected);
                }
            }
        }
    }

    fn acknowledge(&mut self) {
        let seen = ToStepd::AcknowledgeFrom(0, self.seen);
        let in_tree = self
            .order
            .as_ref()
            .is_some_and(|o| o.launch.names.len() > 1);
        if let Some(srun) = self.srun.as_mut().filter(|s| in_tree && !s.is_gone) {
            srun.queue.push_back(seen);
        }
    }

    fn lose_below(&mut self, is_over: bool) {
        if std::mem::take(&mut self.has_below) {
            self.deliver(Event::BelowClosed {
                position: 1,
                is_over,
            });
            self.end_wakeup();
        }
    }

    fn host_says(&mut self, word: HostWord) {
        if self.pids(|p| p.role == Role::Host).is_empty() {
            return;
        }
        let event = match word {
            HostWord::Ready => {
                self.is_host_ready = true;
                HostEvent::Ready
            }
            HostWord::Failed => HostEvent::Failed("it is broken".to_owned()),
            HostWord::Connected(rank) => HostEvent::Connected(rank),
            HostWord::Finalized(rank) => HostEvent::Finalized(rank),
            HostWord::Abort(rank) => HostEvent::Abort {
                rank,
                status: 7,
                text: String::new(),
            },
            HostWord::Signal => HostEvent::Signal(vec![0], 10),
        };
        // It says nothing of what nobody runs.
        if self.started > 0 || !matches!(word, HostWord::Connected(_) | HostWord::Finalized(_)) {
            self.deliver(Event::Host(event));
            self.end_wakeup();
        }
    }

    fn command(&mut self, command: Command) {
        if self.launcher.is_none() {
            return;
        }
        let command = match command {
            Command::EndStep => StepdCommand::EndStep(None),
            Command::Exit => {
                // Who says that has read the ends.
                self.launcher_reads();
                StepdCommand::Exit
            }
            Command::Print => StepdCommand::PrintLine("line".to_owned()),
            Command::Limit(seconds) => StepdCommand::SetTimeLimit(seconds, None),
        };
        self.deliver(Event::Command(command));
        self.end_wakeup();
    }

    fn launcher_reads(&mut self) {
        let unread = self.launcher.as_mut().map(std::mem::take);
        self.known.extend(unread.into_iter().flatten());
    }

    fn launcher_came(&mut self, is_own: bool) {
        // A daemon without a step ends with its launcher, and does not answer.
        if self.launcher.is_some() || self.order.is_none() {
            return;
        }
        self.look_at_launcher();
        let client = ClientId(self.next_id());
        self.deliver(Event::Greeted {
            client,
            message: ToStepd::Adopt(Some(VERSIONS.greeting())),
            is_own,
        });
        assert_eq!(self.launcher.is_some(), is_own || self.is_over);
        self.end_wakeup();
    }

    /// All comes to its end.
    fn finish(&mut self) {
        self.lacks = false;
        self.srun_reads = true;
        for _ in 0..200 {
            self.wake_up(u32::MAX);
            if self.is_over {
                return self.check();
            }
            self.command(match self.order {
                Some(_) => Command::EndStep,
                None => Command::Exit,
            });
            if self.launcher.is_none() {
                self.deliver(Event::Terminate);
            }
            self.acknowledge();
            self.lose_below(true);
            // Nobody but the launcher ends epilogs that began when the tasks were killed.
            for pid in self.pids(|p| matches!(p.role, Role::Host | Role::Epilog(_))) {
                self.end(pid, 0);
            }
            self.wake_up(u32::MAX);
            if !self.is_over {
                self.pass_time();
            }
        }
        let phase = self.stepd.step.as_ref().map(|step| step.phase);
        panic!("the daemon does not end: {phase:?}, {:?}", self.processes);
    }

    fn check(&mut self) {
        self.launcher_reads();
        for step in &self.begun {
            assert!(
                self.is_known(*step),
                "nobody knows how step {step} has ended"
            );
        }
        assert!(self.sent.is_subset(&self.reported));
    }

    fn run(plant: Option<Plant>, first: Kind, incidents: Vec<Incident>) {
        let mut world = World::new();
        world.plant = plant;
        world.given = 1;
        world.give(StepNo(0), first, StepSender::Start(Vec::new()));
        for what in incidents {
            world.happen(what);
            if world.is_over {
                return world.check();
            }
        }
        world.finish();
    }
}

proptest! {
    #[test]
    fn tasks_start_and_end_once_and_each_end_is_known(
        first in kind(),
        incidents in vec(incident(), 0..150),
    ) {
        World::run(None, first, incidents);
    }
}

/// What the test above cannot find it does not test.
#[test]
fn planted_bugs_are_found() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let all = (kind(), vec(incident(), 0..150));
    let is_found = |plant: Plant, runner: &mut TestRunner| {
        (0..300).any(|_| {
            let (first, incidents) = all.new_tree(runner).unwrap().current();
            let attempt = AssertUnwindSafe(|| World::run(Some(plant), first, incidents));
            catch_unwind(attempt).is_err()
        })
    };
    let missed: Vec<Plant> = Plant::ALL
        .into_iter()
        .filter(|plant| !is_found(*plant, &mut runner))
        .collect();
    assert_eq!(missed, []);
}
