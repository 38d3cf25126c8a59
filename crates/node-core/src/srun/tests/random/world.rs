//! What surrounds srun: agents, and step daemons with their tasks, connected to srun or to each other. It keeps account of what srun
//! has got.

use super::*;

/// A step daemon and its tasks.
pub(super) struct StepNodeModel {
    pub(super) is_alive: bool,
    /// Tasks that have not exited.
    pub(super) running: Vec<u32>,
    pub(super) written: u32,
    /// What it has said, how much of that it has sent, and how much of it has come.
    pub(super) log: Vec<FromStepd>,
    pub(super) sent: usize,
    pub(super) arrived: usize,
    /// Messages of srun that it has, in a tree.
    pub(super) taken: u64,
    pub(super) ignores_term: bool,
}

impl StepNodeModel {
    pub(super) fn say(&mut self, message: FromStepd) {
        if self.is_alive && self.log.last() != Some(&FromStepd::NodeTasksEnded) {
            self.log.push(message);
        }
    }

    pub(super) fn exit(&mut self, task: u32, exit: ExitStatus) {
        if self.running.contains(&task) && self.is_alive {
            self.running.retain(|t| *t != task);
            let oom = false;
            self.say(FromStepd::Exited { task, exit, oom });
            if self.running.is_empty() {
                self.say(FromStepd::NodeTasksEnded);
            }
        }
    }

    pub(super) fn exit_all(&mut self, signal: i32) {
        let signal = signal.unsigned_abs();
        for task in self.running.clone() {
            self.exit(task, ExitStatus { code: 0, signal });
        }
    }

    pub(super) fn take(&mut self, message: &ToStepd) {
        match message {
            ToStepd::Signal(9) => self.exit_all(SIGKILL),
            ToStepd::Signal(15) if !self.ignores_term => self.exit_all(SIGTERM),
            ToStepd::FailStep(_) => self.exit_all(SIGKILL),
            _ => {}
        }
    }
}

/// srun among what surrounds it.
pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) setup: Setup,
    pub(super) nodes: Vec<StepNodeModel>,
    /// Which nodes are reached by a connection.
    pub(super) routes: BTreeMap<StepdIdx, Range<usize>>,
    /// Connections that are gone, which srun has not seen.
    pub(super) losses: Vec<StepdIdx>,
    /// How often a step may be asked for in each job.
    pub(super) may_ask: BTreeMap<JobId, u32>,
    /// How often the number of the step may be.
    pub(super) may_ask_number: u32,
    pub(super) known_requests: usize,
    pub(super) parts_created: usize,
    /// What srun has got: ends of tasks, and lines of each.
    pub(super) exits: BTreeMap<u32, ExitStatus>,
    pub(super) lines: BTreeMap<u32, Vec<String>>,
}

impl World {
    pub(super) fn new(setup: Setup, plant: Option<PlantedBug>) -> World {
        let count: usize = setup.parts.iter().sum();
        let part = |number: usize| StepComponent {
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
        let parts: Vec<StepComponent> = (0..setup.parts.len()).map(part).collect();
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
            may_ask_number: 1,
            known_requests: 0,
            parts_created: 0,
            exits: BTreeMap::new(),
            lines: BTreeMap::new(),
        };
        world.event(Event::Started);
        world
    }

    /// The part that a node is in.
    pub(super) fn part_of(&self, number: usize) -> Range<usize> {
        let mut first = 0;
        for size in &self.setup.parts {
            if number < first + size {
                return first..first + size;
            }
            first += size;
        }
        unreachable!("there is no node {number}")
    }

    pub(super) fn width(&self, part: &Range<usize>) -> usize {
        match self.setup.width {
            0 => part.len(),
            width => width as usize,
        }
    }

    pub(super) fn is_tree(&self, number: usize) -> bool {
        let part = self.part_of(number);
        part.len() > self.width(&part)
    }

    /// The node above in its tree, if there is one.
    pub(super) fn above(&self, number: usize) -> Option<usize> {
        let part = self.part_of(number);
        let (_, above) = branches::place(number - part.start, part.len(), self.width(&part));
        above.map(|above| part.start + above)
    }

    /// The connection by which what a node says comes to srun.
    pub(super) fn route(&self, number: usize) -> Option<StepdIdx> {
        let reaches = |(id, nodes): &(&StepdIdx, &Range<usize>)| {
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

    pub(super) fn event(&mut self, event: Event) {
        if self.bench.exit.is_none() {
            self.bench.event(event);
            self.bench.idle();
            self.settle();
        }
    }

    /// What srun has sent reaches those whom it concerns.
    pub(super) fn settle(&mut self) {
        let requests = self.bench.requests[self.known_requests..].iter();
        for (_, request, _) in requests {
            let left = match request {
                AgentRequest::Create(spec) => self.may_ask.get_mut(&spec.job).unwrap(),
                AgentRequest::TakeStepNumber { .. } => &mut self.may_ask_number,
                _ => continue,
            };
            assert!(*left > 0, "a step or its number is asked for again");
            *left -= 1;
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
                ToStepd::AcknowledgeFrom(..) => {}
                ToStepd::ForwardDown(number, message) => {
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

    pub(super) fn head(&self, id: StepdIdx) -> usize {
        let address = &self.bench.stepds[&id];
        address["unix:/stepd".len()..].parse().unwrap()
    }

    pub(super) fn is_recording(&self) -> bool {
        self.bench.srun.cx.state == SrunState::Recording
    }

    pub(super) fn reply(&mut self, answer: Answer) {
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
                match self.bench.requests.last() {
                    Some((_, AgentRequest::Create(spec), _)) => {
                        *self.may_ask.get_mut(&spec.job).unwrap() += u32::from(spec.key.is_none());
                    }
                    Some((_, AgentRequest::TakeStepNumber { key, .. }, _)) => {
                        self.may_ask_number += u32::from(key.is_none());
                    }
                    _ => {}
                }
                AgentReply::Refused(RefusalCode::JobNotHere.into())
            }
            Answer::Busy => {
                match self.bench.requests.last() {
                    Some((_, AgentRequest::Create(spec), _)) => {
                        *self.may_ask.get_mut(&spec.job).unwrap() += 1;
                    }
                    Some((_, AgentRequest::TakeStepNumber { .. }, _)) => self.may_ask_number += 1,
                    _ => {}
                }
                AgentReply::Refused(RefusalCode::Busy.into())
            }
            Answer::Refused => AgentReply::Refused(RefusalCode::AccessDenied.into()),
            // Only a daemon that has srun's streams may be ahead of its agent.
            Answer::Done if self.setup.is_direct => AgentReply::Done,
            Answer::Done => return,
        };
        self.event(Event::AgentReplied(agent, Box::new(reply)));
    }

    /// The step of the next part; or its daemon has the word, and says so.
    pub(super) fn create(&mut self) -> Option<StepCreated> {
        let first = self.setup.parts[..self.parts_created].iter().sum();
        let part = self.part_of(first);
        self.parts_created += 1;
        let nodes = part.clone().map(|at| node(at, &tasks_of(&self.setup, at)));
        let mesh_addresses = part.clone().map(|at| at.to_string());
        let step = StepCreated {
            step: StepNo(3),
            width: self.setup.width,
            mesh_addresses: mesh_addresses.filter(|_| self.setup.is_meshed).collect(),
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
            self.event(Event::StepdLost(channel, "end of file".to_owned()));
            return None;
        }
        self.routes.insert(channel, 0..1);
        let word = FromStepd::Created(Box::new(StepCreated {
            direct: true,
            ..step
        }));
        self.event(Event::StepdMessages(channel, vec![word]));
        None
    }

    pub(super) fn deliver(&mut self, number: usize, count: usize) {
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
            self.event(Event::StepdMessages(id, messages));
        }
    }

    pub(super) fn message(&self, number: usize, at: usize) -> FromStepd {
        let node = &self.nodes[number];
        let message = node.log[at].clone();
        if !self.is_tree(number) {
            return message;
        }
        FromStepd::ForwardUp {
            position: u32::try_from(number - self.part_of(number).start).unwrap(),
            number: at as u64,
            acknowledged: node.taken,
            message: Box::new(message),
        }
    }

    /// Keeps account of what srun gets for the first time.
    pub(super) fn arrives(&mut self, number: usize, at: usize) {
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

    pub(super) fn repeat(&mut self, number: usize, which: usize) {
        let sent = self.nodes[number].sent;
        if let Some(id) = self.route(number)
            && self.is_tree(number)
            && sent > 0
        {
            let message = self.message(number, which % sent);
            self.event(Event::StepdMessages(id, vec![message]));
        }
    }

    pub(super) fn node_dies(&mut self, number: usize) {
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
                node.log.push(FromStepd::ChildLost(position));
            }
        }
    }

    pub(super) fn loss_seen(&mut self, which: usize) {
        if !self.losses.is_empty() && self.bench.srun.interest().stepds {
            let id = self.losses.remove(which % self.losses.len());
            if self.bench.stepds.remove(&id).is_some() {
                self.event(Event::StepdLost(id, "end of file".to_owned()));
            }
        }
    }
}

pub(super) fn tasks_of(setup: &Setup, number: usize) -> Vec<u32> {
    let first = u32::try_from(number).unwrap() * setup.tasks_per_node;
    (first..first + setup.tasks_per_node).collect()
}
