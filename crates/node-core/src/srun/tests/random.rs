//! Random interleavings of what can happen to srun: agents and step daemons are lost, messages come late or twice, signals come
//! whenever they like. srun always ends, with the status of the worst task; it counts every end once, loses no output but with
//! the node that had it, reports each lost node once, and asks for no step twice unless it was refused.

mod world;

use super::*;
use crate::signals::{SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use crate::srun::config::NumberSource;
use crate::srun::nodes::PlantedBug;
use muster_model::{hostlist, tree as branches};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::ops::Range;
use world::World;

/// What srun is called for.
#[derive(Clone, Debug)]
struct Setup {
    /// Nodes of each component.
    parts: Vec<usize>,
    tasks_per_node: u32,
    width: u32,
    is_direct: bool,
    has_allocation: bool,
    is_meshed: bool,
    kills_on_bad_exit: bool,
    labels: bool,
    wait_s: u32,
    /// Tasks do not end by themselves, nor by TERM.
    hangs: bool,
}

/// Something that happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Move {
    Reply(Answer),
    AgentLost,
    /// The controller has no answers from now on, or has them again.
    ControllerAnswers(bool),
    /// Nobody listens at the address of this agent.
    AgentUnreachable(usize),
    /// A node writes something, or a task of it exits.
    Write(usize),
    Exit(usize, u32, u32),
    /// A task joins the others, or fails.
    Join(usize),
    Fail(usize, bool),
    /// What nodes have sent arrives: of a node, so many messages.
    Deliver(usize, usize),
    /// It arrives a second time.
    Repeat(usize),
    NodeDies(usize),
    /// That a connection is gone is seen.
    LossSeen(usize),
    Signal(i32),
    Input,
    Time(u64),
    JobEnds,
}

/// What an agent says.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Created,
    Queued,
    NotHere,
    Busy,
    Refused,
    Done,
}

fn a_setup() -> impl Strategy<Value = Setup> {
    let flags = vec(any::<bool>(), 6);
    let sizes = prop_oneof![
        vec(1_usize..2, 1),
        vec(1_usize..9, 1),
        vec(1_usize..6, 2..3)
    ];
    (sizes, 1_u32..3, 0_u32..4, 0_u32..2, flags).prop_map(|(parts, tasks, width, wait_s, flags)| {
        let is_alone = parts == [1] && tasks == 1;
        Setup {
            is_direct: is_alone && flags[0],
            has_allocation: flags[1] && !(is_alone && flags[0]),
            is_meshed: flags[2],
            kills_on_bad_exit: flags[3],
            labels: flags[4],
            hangs: flags[5],
            parts,
            tasks_per_node: tasks,
            width,
            wait_s: wait_s * 3,
        }
    })
}

fn a_move() -> impl Strategy<Value = Move> {
    let index = || any::<prop::sample::Index>().prop_map(|i| i.index(64));
    let code = prop_oneof![3 => Just(0_u32), 1 => 1_u32..9];
    let number = prop_oneof![4 => Just(0_u32), 1 => Just(11_u32)];
    let signal = prop_oneof![
        4 => Just(SIGINT),
        1 => Just(SIGQUIT),
        2 => Just(SIGTERM),
        2 => Just(SIGCONT),
    ];
    prop_oneof![
        8 => Just(Move::Reply(Answer::Created)),
        2 => prop_oneof![
            Just(Answer::Queued),
            Just(Answer::NotHere),
            Just(Answer::Busy),
            Just(Answer::Done),
            Just(Answer::Done),
            Just(Answer::Refused),
        ].prop_map(Move::Reply),
        1 => prop::bool::weighted(0.3).prop_map(|lost| match lost {
            true => Move::AgentLost,
            false => Move::Time(10),
        }),
        1 => any::<bool>().prop_map(Move::ControllerAnswers),
        1 => index().prop_map(Move::AgentUnreachable),
        8 => index().prop_map(Move::Write),
        6 => (index(), code, number).prop_map(|(which, code, signal)| Move::Exit(which, code, signal)),
        1 => index().prop_map(Move::Join),
        1 => (index(), any::<bool>()).prop_map(|(which, joined)| Move::Fail(which, joined)),
        16 => (index(), 1_usize..4).prop_map(|(which, count)| Move::Deliver(which, count)),
        4 => index().prop_map(Move::Repeat),
        1 => index().prop_map(Move::NodeDies),
        3 => index().prop_map(Move::LossSeen),
        1 => signal.prop_map(Move::Signal),
        2 => Just(Move::Input),
        3 => prop_oneof![Just(20_u64), Just(500), Just(1500), Just(20_000)].prop_map(Move::Time),
        1 => prop::bool::weighted(0.2).prop_map(|ends| match ends {
            true => Move::JobEnds,
            false => Move::Time(60),
        }),
    ]
}

impl World {
    fn apply(&mut self, what: Move) {
        let count = self.nodes.len();
        match what {
            Move::Reply(answer) => self.reply(answer),
            Move::AgentLost => {
                if let Some(agent) = self.bench.srun.interest().agent {
                    self.event(Event::AgentLost(agent, "reset".to_owned()));
                }
            }
            Move::ControllerAnswers(true) => self.bench.allocation = Ok(allocation()),
            Move::ControllerAnswers(false) => {
                let error = ControllerError::Failed("timed out".to_owned());
                self.bench.allocation = Err(error);
            }
            Move::AgentUnreachable(which) => {
                let address = format!("unix:/agent{}", which % 3);
                self.bench.unreachable.insert(address);
            }
            Move::Write(which) => {
                let node = &mut self.nodes[which % count];
                if let Some(task) = nth(&node.running, which) {
                    let text = format!("{task}.{}\n", node.written);
                    node.written += 1;
                    node.say(out(task, &text));
                }
            }
            Move::Exit(which, code, signal) => {
                let node = &mut self.nodes[which % count];
                if let Some(task) = nth(&node.running, which).filter(|_| !self.setup.hangs) {
                    let code = if signal == 0 { code } else { 0 };
                    node.exit(task, ExitStatus { code, signal });
                }
            }
            Move::Join(which) if self.setup.is_meshed => {
                self.nodes[which % count].say(FromStepd::TaskJoinedMpi);
            }
            Move::Fail(which, joined) if self.setup.is_meshed => {
                let node = &mut self.nodes[which % count];
                if let Some(task) = nth(&node.running, which) {
                    let exit = ExitStatus { code: 9, signal: 0 };
                    let line = None;
                    node.say(FromStepd::TaskFailed {
                        task,
                        exit,
                        joined,
                        line,
                    });
                }
            }
            Move::Join(_) | Move::Fail(..) => {}
            Move::Deliver(which, messages) => self.deliver(which % count, messages),
            Move::Repeat(which) => self.repeat(which % count, which),
            Move::NodeDies(which) => self.node_dies(which % count),
            Move::LossSeen(which) => self.loss_seen(which),
            Move::Signal(signal) => {
                if self.bench.srun.interest().signals && self.bench.catches_signals {
                    self.event(Event::Signal(signal));
                }
            }
            Move::Input => {
                if self.bench.srun.interest().input {
                    self.event(Event::Input(vec![b'x'; 100 << 10]));
                }
            }
            Move::Time(ms) => {
                self.bench.now_ms += ms;
                self.event(Event::Idle);
            }
            Move::JobEnds => {
                if self.bench.srun.interest().reads_controller {
                    self.event(Event::JobEnded(JobState::Cancelled));
                }
            }
        }
    }

    /// All that is under way comes to its end.
    fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 500, "srun does not end");
            if self.bench.exit.is_some() {
                return;
            }
            self.apply(Move::Reply(Answer::Created));
            for number in 0..self.nodes.len() {
                if !self.setup.hangs {
                    for task in self.nodes[number].running.clone() {
                        self.nodes[number].exit(task, ExitStatus::default());
                    }
                }
                self.deliver(number, usize::MAX >> 1);
            }
            self.loss_seen(0);
            // A user who waits for a step that hangs is not patient.
            if self.setup.hangs && round % 10 == 9 {
                self.apply(Move::Signal(SIGINT));
                self.apply(Move::Signal(SIGINT));
            }
            self.apply(Move::Time(500));
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let printed = &self.bench.printed;
        let code = u32::from(self.bench.exit.unwrap());
        prop_assert_eq!(self.bench.ended.is_some(), self.setup.has_allocation);
        if self.bench.srun.step.tasks.count() == 0 || printed.contains("Unable to") {
            prop_assert_eq!(code, 1);
            return Ok(());
        }
        // The exit code.
        let worst = self.exits.values().map(|exit| exit.shell_code()).max();
        let failed = self.bench.srun.step.failed;
        prop_assert!(failed.is_none() || self.setup.is_meshed);
        let mut expected = failed.map_or(worst.unwrap_or(0), ExitStatus::shell_code);
        if printed.contains("Node failure") || self.bench.srun.step.leaves {
            expected = expected.max(1);
        }
        prop_assert_eq!(code, expected, "{}", printed);
        // Ends of tasks, and lost nodes.
        let mut reported = Vec::new();
        let mut lost = Vec::new();
        for line in printed.lines() {
            let words = line.strip_prefix("srun: error: ").unwrap_or("");
            if let Some(name) = words.strip_prefix("Node failure on n") {
                lost.push(name.parse::<usize>().unwrap());
            } else if let Some((_, tasks)) = words.split_once(": task")
                && !words.contains("connection to")
            {
                let list = tasks.trim_start_matches(['s', ' ']);
                let list = list.split(':').next().unwrap();
                reported.extend(hostlist::parse_ranges(list, 100).unwrap());
            }
        }
        reported.sort_unstable();
        let bad = self.exits.iter().filter(|(_, exit)| !exit.is_ok());
        let bad: Vec<u32> = bad.map(|(task, _)| *task).collect();
        prop_assert_eq!(reported, bad, "{}", printed);
        lost.sort_unstable();
        let count = lost.len();
        lost.dedup();
        prop_assert_eq!(count, lost.len(), "{}", printed);
        prop_assert!(lost.iter().all(|at| !self.nodes[*at].is_alive));
        // Output.
        let mut lines: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for line in self.bench.stdout.lines() {
            let text = line.rsplit(": ").next().unwrap();
            let task = text.split('.').next().unwrap().parse().unwrap();
            lines.entry(task).or_default().push(format!("{text}\n"));
        }
        prop_assert_eq!(&lines, &self.lines);
        if !self.bench.srun.step.leaves && lost.is_empty() {
            prop_assert!(
                self.nodes
                    .iter()
                    .all(|n| !n.is_alive || n.running.is_empty())
            );
        }
        Ok(())
    }
}

fn nth(tasks: &[u32], which: usize) -> Option<u32> {
    (!tasks.is_empty()).then(|| tasks[which % tasks.len()])
}

fn play(setup: Setup, moves: &[Move], plant: Option<PlantedBug>) -> Result<(), TestCaseError> {
    let mut world = World::new(setup, plant);
    for what in moves {
        world.apply(*what);
    }
    world.finish();
    world.check()
}

proptest! {
    #[test]
    fn srun_ends_with_the_status_of_its_step(setup in a_setup(), moves in vec(a_move(), 0..150)) {
        play(setup, &moves, None)?;
    }
}

#[test]
fn planted_bugs_are_found() {
    for plant in [PlantedBug::TakesRepeated, PlantedBug::SendsNothingAgain] {
        let mut runner = TestRunner::deterministic();
        let cases = (a_setup(), vec(a_move(), 0..150));
        let found = runner.run(&cases, |(setup, moves)| play(setup, &moves, Some(plant)));
        assert!(found.is_err(), "{plant:?} is not found");
    }
}
