//! Random interleavings of what can happen to srun: agents and step daemons are lost, messages come late or twice, signals come
//! whenever they like. srun always ends, with the status of the worst task; it counts every end once, loses no output but with
//! the node that had it, reports each lost node once, and asks for no step twice unless it was refused.

use super::*;
use crate::signals::{SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use crate::srun::config::NumberSource;
use crate::srun::nodes::Plant;
use muster_model::{hostlist, tree as branches};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::ops::Range;

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

/// A step daemon and its tasks.
struct StepNodeModel {
    is_alive: bool,
    /// Tasks that have not exited.
    running: Vec<u32>,
    written: u32,
    /// What it has said, how much of that it has sent, and how much of it has come.
    log: Vec<FromStepd>,
    sent: usize,
    arrived: usize,
    /// Messages of srun that it has, in a tree.
    taken: u64,
    ignores_term: bool,
}

impl StepNodeModel {
    fn say(&mut self, message: FromStepd) {
        if self.is_alive && self.log.last() != Some(&FromStepd::Closed) {
            self.log.push(message);
        }
    }

    fn exit(&mut self, task: u32, exit: ExitStatus) {
        if self.running.contains(&task) && self.is_alive {
            self.running.retain(|t| *t != task);
            let oom = false;
            self.say(FromStepd::Exited { task, exit, oom });
            if self.running.is_empty() {
                self.say(FromStepd::Closed);
            }
        }
    }

    fn exit_all(&mut self, signal: i32) {
        let signal = signal.unsigned_abs();
        for task in self.running.clone() {
            self.exit(task, ExitStatus { code: 0, signal });
        }
    }

    fn take(&mut self, message: &ToStepd) {
        match message {
            ToStepd::Signal(9) => self.exit_all(SIGKILL),
            ToStepd::Signal(15) if !self.ignores_term => self.exit_all(SIGTERM),
            ToStepd::Fail(_) => self.exit_all(SIGKILL),
            _ => {}
        }
    }
}

/// srun among what surrounds it.
struct World {
    bench: Bench,
    setup: Setup,
    nodes: Vec<StepNodeModel>,
    /// Which nodes are reached by a connection.
    routes: BTreeMap<StepdId, Range<usize>>,
    /// Connections that are gone, which srun has not seen.
    losses: Vec<StepdId>,
    /// How often a step may be asked for in each job.
    may_ask: BTreeMap<JobId, u32>,
    known_requests: usize,
    parts_created: usize,
    /// What srun has got: ends of tasks, and lines of each.
    exits: BTreeMap<u32, ExitStatus>,
    lines: BTreeMap<u32, Vec<String>>,
}

impl World {
    fn new(setup: Setup, plant: Option<Plant>) -> World {
        let count: usize = setup.parts.iter().sum();
        let part = |number: usize| StepPart {
            spec: Box::new(StepSpec {
                job: JobId(5 + number as u64),
                ..StepSpec::default()
            }),
            lead: match setup.parts.len() {
                1 if setup.has_allocation => Lead::At(LEAD.to_owned()),
                1 => Lead::Local(LEAD.to_owned()),
                _ => Lead::Component(format!("unix:/agent{number}")),
            },
        };
        let parts: Vec<StepPart> = (0..setup.parts.len()).map(part).collect();
        let may_ask = parts.iter().map(|part| (part.spec.job, 1)).collect();
        let number = NumberSource {
            leader: JOB,
            lead: Lead::Unknown,
        };
        let mut config = SrunConfig {
            has_allocation: setup.has_allocation,
            can_pass_stdio: setup.is_direct,
            number: (parts.len() > 1).then_some(number),
            parts,
            ..config(1)
        };
        config.rules.kill_on_bad_exit = setup.kills_on_bad_exit;
        config.rules.label = setup.labels;
        config.rules.wait_s = setup.wait_s;
        let mut bench = Bench::new(config);
        bench.srun.step.nodes.plant = plant;
        let node = |number: usize| StepNodeModel {
            is_alive: true,
            running: tasks_of(&setup, number),
            written: 0,
            log: vec![FromStepd::Started(Vec::new())],
            sent: 0,
            arrived: 0,
            taken: 0,
            ignores_term: setup.hangs,
        };
        let mut world = World {
            nodes: (0..count).map(node).collect(),
            bench,
            setup,
            routes: BTreeMap::new(),
            losses: Vec::new(),
            may_ask,
            known_requests: 0,
            parts_created: 0,
            exits: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        world.event(SrunEvent::Started);
        world
    }

    /// The part that a node is in.
    fn part_of(&self, number: usize) -> Range<usize> {
        let mut first = 0;
        for size in &self.setup.parts {
            if number < first + size {
                return first..first + size;
            }
            first += size;
        }
        unreachable!("there is no node {number}")
    }

    fn width(&self, part: &Range<usize>) -> usize {
        match self.setup.width {
            0 => part.len(),
            width => width as usize,
        }
    }

    fn is_tree(&self, number: usize) -> bool {
        let part = self.part_of(number);
        part.len() > self.width(&part)
    }

    /// The node above in its tree, if there is one.
    fn above(&self, number: usize) -> Option<usize> {
        let part = self.part_of(number);
        let (_, above) = branches::place(number - part.start, part.len(), self.width(&part));
        above.map(|above| part.start + above)
    }

    /// The connection by which what a node says comes to srun.
    fn route(&self, number: usize) -> Option<StepdId> {
        let reaches = |(id, nodes): &(&StepdId, &Range<usize>)| {
            let mut at = number;
            while self.nodes[at].is_alive && nodes.contains(&at) {
                if at == nodes.start {
                    return self.bench.stepds.contains_key(id);
                }
                match self.above(at) {
                    Some(above) => at = above,
                    None => return false,
                }
            }
            false
        };
        let mut routes = self.routes.iter();
        routes.find(reaches).map(|(id, _)| *id)
    }

    fn event(&mut self, event: SrunEvent) {
        if self.bench.exit.is_none() {
            self.bench.event(event);
            self.bench.idle();
            self.settle();
        }
    }

    /// What srun has sent reaches those whom it concerns.
    fn settle(&mut self) {
        let requests = self.bench.requests[self.known_requests..].iter();
        for (_, request, _) in requests {
            if let AgentRequest::Create(spec) = request {
                let left = self.may_ask.get_mut(&spec.job).unwrap();
                assert!(*left > 0, "a step is asked for again");
                *left -= 1;
            }
        }
        self.known_requests = self.bench.requests.len();
        for (id, message) in std::mem::take(&mut self.bench.sent) {
            match message {
                ToStepd::Hello(..) => {
                    let head = self.head(id);
                    self.routes.insert(id, head..head + 1);
                }
                ToStepd::Attach(attach) => {
                    let head = self.head(id);
                    let branch = head..head + 1 + attach.below.len();
                    self.routes.insert(id, branch.clone());
                    for (number, seen) in branch.zip(attach.seen) {
                        self.nodes[number].sent = usize::try_from(seen).unwrap();
                    }
                }
                ToStepd::Seen(..) => {}
                ToStepd::Down(number, message) => {
                    for at in self.routes[&id].clone() {
                        if self.route(at) == Some(id) {
                            let node = &mut self.nodes[at];
                            // One whose tasks have ended need not know it.
                            let is_lost = number > node.taken && !node.running.is_empty();
                            assert!(!is_lost, "a message to node {at} is lost");
                            if number == node.taken {
                                node.taken += 1;
                                node.take(&message);
                            }
                        }
                    }
                }
                message => {
                    let at = self.routes[&id].start;
                    if self.route(at) == Some(id) {
                        self.nodes[at].take(&message);
                    }
                }
            }
        }
    }

    fn head(&self, id: StepdId) -> usize {
        let address = &self.bench.stepds[&id];
        address["unix:/stepd".len()..].parse().unwrap()
    }

    fn apply(&mut self, what: Move) {
        let count = self.nodes.len();
        match what {
            Move::Reply(answer) => self.reply(answer),
            Move::AgentLost => {
                if let Some(agent) = self.bench.srun.interest().agent {
                    self.event(SrunEvent::AgentLost(agent, "reset".to_owned()));
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
                self.nodes[which % count].say(FromStepd::Joined);
            }
            Move::Fail(which, joined) if self.setup.is_meshed => {
                let node = &mut self.nodes[which % count];
                if let Some(task) = nth(&node.running, which) {
                    let exit = ExitStatus { code: 9, signal: 0 };
                    let line = None;
                    node.say(FromStepd::Failed {
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
                    self.event(SrunEvent::Signal(signal));
                }
            }
            Move::Input => {
                if self.bench.srun.interest().input {
                    self.event(SrunEvent::Input(vec![b'x'; 100 << 10]));
                }
            }
            Move::Time(ms) => {
                self.bench.now_ms += ms;
                self.event(SrunEvent::Idle);
            }
            Move::JobEnds => {
                if self.bench.srun.interest().reads_controller {
                    self.event(SrunEvent::JobEnded(JobState::Cancelled));
                }
            }
        }
    }

    fn is_recording(&self) -> bool {
        self.bench.srun.cx.state == SrunState::Recording
    }

    fn reply(&mut self, answer: Answer) {
        let Some(agent) = self.bench.srun.interest().agent else {
            return;
        };
        let number = AgentReply::StepNumber {
            number: 3,
            proof: b"proof".to_vec().into(),
        };
        let is_numbering = self.bench.srun.cx.state == SrunState::Locating;
        let reply = match answer {
            _ if self.is_recording() => AgentReply::Done,
            Answer::Created if is_numbering => number,
            Answer::Created => match self.create() {
                Some(step) => AgentReply::Created(Box::new(step)),
                None => return,
            },
            Answer::Queued if is_numbering => return,
            Answer::Queued => AgentReply::Queued("busy".to_owned()),
            Answer::NotHere => {
                // With the key of the job it is refused for good.
                if let Some((_, AgentRequest::Create(spec), _)) = self.bench.requests.last() {
                    *self.may_ask.get_mut(&spec.job).unwrap() += u32::from(spec.key.is_none());
                }
                AgentReply::Refused(RefusalCode::JobNotHere.into())
            }
            Answer::Refused => AgentReply::Refused(RefusalCode::Busy.into()),
            // Only a daemon that has srun's streams may be ahead of its agent.
            Answer::Done if self.setup.is_direct => AgentReply::Done,
            Answer::Done => return,
        };
        self.event(SrunEvent::AgentReplied(agent, Box::new(reply)));
    }

    /// The step of the next part; or its daemon has the word, and says so.
    fn create(&mut self) -> Option<StepCreated> {
        let first = self.setup.parts[..self.parts_created].iter().sum();
        let part = self.part_of(first);
        self.parts_created += 1;
        let nodes = part.clone().map(|at| node(at, &tasks_of(&self.setup, at)));
        let wires = part.clone().map(|at| at.to_string());
        let step = StepCreated {
            step: StepNo(3),
            width: self.setup.width,
            wires: wires.filter(|_| self.setup.is_meshed).collect(),
            ..created(nodes.collect())
        };
        let channel = self
            .bench
            .requests
            .last()
            .and_then(|(_, _, channel)| *channel);
        let Some(channel) = channel.filter(|id| self.bench.stepds.contains_key(id)) else {
            return Some(step);
        };
        if !self.nodes[0].is_alive {
            self.parts_created -= 1;
            self.bench.stepds.remove(&channel);
            self.event(SrunEvent::StepdLost(channel, "end of file".to_owned()));
            return None;
        }
        self.routes.insert(channel, 0..1);
        let word = FromStepd::Created(Box::new(StepCreated {
            direct: true,
            ..step
        }));
        self.event(SrunEvent::StepdMessages(channel, vec![word]));
        None
    }

    fn deliver(&mut self, number: usize, count: usize) {
        if !self.bench.srun.interest().stepds {
            return;
        }
        if self.parts_created == 0 {
            self.create();
        }
        let Some(id) = self.route(number) else {
            return;
        };
        let from = self.nodes[number].sent;
        let upto = self.nodes[number].log.len().min(from + count);
        let messages: Vec<FromStepd> = (from..upto).map(|at| self.message(number, at)).collect();
        for at in from..upto {
            self.arrives(number, at);
        }
        self.nodes[number].sent = upto;
        if !messages.is_empty() {
            self.event(SrunEvent::StepdMessages(id, messages));
        }
    }

    fn message(&self, number: usize, at: usize) -> FromStepd {
        let node = &self.nodes[number];
        let message = node.log[at].clone();
        if !self.is_tree(number) {
            return message;
        }
        FromStepd::Up {
            position: u32::try_from(number - self.part_of(number).start).unwrap(),
            number: at as u64,
            acknowledged: node.taken,
            message: Box::new(message),
        }
    }

    /// Keeps account of what srun gets for the first time.
    fn arrives(&mut self, number: usize, at: usize) {
        let node = &mut self.nodes[number];
        if at < node.arrived {
            return;
        }
        node.arrived = at + 1;
        match &node.log[at] {
            FromStepd::Exited { task, exit, .. } => {
                self.exits.insert(*task, *exit);
            }
            FromStepd::Stdout { task, bytes } => {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                self.lines.entry(*task).or_default().push(text);
            }
            _ => {}
        }
    }

    fn repeat(&mut self, number: usize, which: usize) {
        let sent = self.nodes[number].sent;
        if let Some(id) = self.route(number)
            && self.is_tree(number)
            && sent > 0
        {
            let message = self.message(number, which % sent);
            self.event(SrunEvent::StepdMessages(id, vec![message]));
        }
    }

    fn node_dies(&mut self, number: usize) {
        if !std::mem::replace(&mut self.nodes[number].is_alive, false) {
            return;
        }
        let address = format!("unix:/stepd{number}");
        self.bench.unreachable.insert(address);
        let heads = self
            .routes
            .iter()
            .filter(|(_, nodes)| nodes.start == number);
        self.losses.extend(heads.map(|(id, _)| *id));
        if let Some(above) = self.above(number) {
            let position = number - self.part_of(number).start;
            let position = u32::try_from(position).unwrap();
            // It may have ended as it should.
            let node = &mut self.nodes[above];
            if node.is_alive {
                node.log.push(FromStepd::Lost(position));
            }
        }
    }

    fn loss_seen(&mut self, which: usize) {
        if !self.losses.is_empty() && self.bench.srun.interest().stepds {
            let id = self.losses.remove(which % self.losses.len());
            if self.bench.stepds.remove(&id).is_some() {
                self.event(SrunEvent::StepdLost(id, "end of file".to_owned()));
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
        let of = super::super::tasks::code;
        let worst = self.exits.values().map(|exit| of(*exit)).max();
        let failed = self.bench.srun.step.failed;
        prop_assert!(failed.is_none() || self.setup.is_meshed);
        let mut expected = failed.map_or(worst.unwrap_or(0), of);
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

fn tasks_of(setup: &Setup, number: usize) -> Vec<u32> {
    let first = u32::try_from(number).unwrap() * setup.tasks_per_node;
    (first..first + setup.tasks_per_node).collect()
}

fn nth(tasks: &[u32], which: usize) -> Option<u32> {
    (!tasks.is_empty()).then(|| tasks[which % tasks.len()])
}

fn play(setup: Setup, moves: &[Move], plant: Option<Plant>) -> Result<(), TestCaseError> {
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
    for plant in [Plant::TakesRepeated, Plant::SendsNothingAgain] {
        let mut runner = TestRunner::deterministic();
        let cases = (a_setup(), vec(a_move(), 0..150));
        let found = runner.run(&cases, |(setup, moves)| play(setup, &moves, Some(plant)));
        assert!(found.is_err(), "{plant:?} is not found");
    }
}
