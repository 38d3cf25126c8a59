//! Random interleavings of what can happen to the agent of a job's first node: a step is started at most once and its end is
//! reported once, whichever process stops when, and nothing is held when all is over.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// srun asks for a step of so many nodes.
    Create { nodes: u32, streams: bool },
    /// An srun goes.
    CloseConn(usize),
    /// The launcher handles a command to start a daemon.
    LauncherWorks,
    /// An answer of the launcher arrives.
    LauncherAnswer,
    /// The launcher is lost, with all that is on its way.
    LauncherLost,
    /// Another launcher is there.
    LauncherUp,
    /// A connection to the controller is made.
    ControllerUp,
    /// It is lost.
    ControllerLost,
    /// A running step ends here.
    StepEnds(usize),
    /// What a daemon has sent arrives.
    StepdReadable(usize),
    /// A request to the other agent arrives there, and so does its answer, or not.
    PeerWorks { which: usize, answers: bool },
    /// A step ends on the other node.
    PeerStepEnds(usize),
    /// The other agent reports an end, perhaps not for the first time.
    PeerReports(usize),
    /// Daemons take further steps from now on, or not.
    TakeOffers(bool),
    /// A timer runs out.
    Timer(usize),
    /// The controller acknowledges what it has.
    Acknowledge,
}

fn step() -> impl Strategy<Value = Step> {
    let index = || any::<prop::sample::Index>().prop_map(|i| i.index(64));
    prop_oneof![
        4 => (1_u32..3, any::<bool>()).prop_map(|(nodes, streams)| Step::Create { nodes, streams }),
        1 => index().prop_map(Step::CloseConn),
        5 => Just(Step::LauncherWorks),
        6 => Just(Step::LauncherAnswer),
        1 => Just(Step::LauncherLost),
        3 => Just(Step::LauncherUp),
        3 => Just(Step::ControllerUp),
        1 => Just(Step::ControllerLost),
        4 => index().prop_map(Step::StepEnds),
        3 => index().prop_map(Step::StepdReadable),
        4 => (index(), prop::bool::weighted(0.8))
            .prop_map(|(which, answers)| Step::PeerWorks { which, answers }),
        3 => index().prop_map(Step::PeerStepEnds),
        4 => index().prop_map(Step::PeerReports),
        1 => any::<bool>().prop_map(Step::TakeOffers),
        3 => index().prop_map(Step::Timer),
        2 => Just(Step::Acknowledge),
    ]
}

/// The agent among what surrounds it.
struct World {
    bench: Bench,
    launcher_up: bool,
    controller_up: bool,
    /// Commands that the launcher has not handled, and answers that the agent has not got.
    commands: VecDeque<(StepdId, StepNo)>,
    answers: VecDeque<LauncherEvent>,
    kept: BTreeMap<u32, ByteVec>,
    /// Steps that were started here, and those that run, by the channel of their daemon.
    started: BTreeSet<StepNo>,
    running: BTreeMap<StepNo, StepdId>,
    ended: BTreeSet<StepNo>,
    /// The same on the other node; an end stays there until the lead has answered.
    peer_started: BTreeMap<StepNo, u32>,
    peer_running: BTreeSet<StepNo>,
    peer_ended: BTreeSet<StepNo>,
    open: BTreeSet<u64>,
    next_conn: u64,
    seen_commands: usize,
    seen_offers: usize,
}

fn nth<T: Copy>(mut all: impl ExactSizeIterator<Item = T>, which: usize) -> Option<T> {
    let count = all.len();
    (count > 0).then(|| all.nth(which % count)).flatten()
}

impl World {
    fn new() -> World {
        let mut world = World {
            bench: Bench::of_node(1),
            launcher_up: false,
            controller_up: false,
            commands: VecDeque::new(),
            answers: VecDeque::new(),
            kept: BTreeMap::new(),
            started: BTreeSet::new(),
            running: BTreeMap::new(),
            ended: BTreeSet::new(),
            peer_started: BTreeMap::new(),
            peer_running: BTreeSet::new(),
            peer_ended: BTreeSet::new(),
            open: BTreeSet::new(),
            next_conn: 0,
            seen_commands: 0,
            seen_offers: 0,
        };
        world.launcher_up();
        world.launcher_answers();
        world.controller_up();
        world
    }

    /// What the agent has done since then reaches those whom it concerns.
    fn settle(&mut self) {
        let starts: Vec<_> = self.bench.starts.drain(..).collect();
        if self.launcher_up {
            self.commands.extend(starts);
        }
        let offers = self.bench.offered.split_off(self.seen_offers);
        self.bench.offered.clear();
        self.seen_offers = 0;
        for (stepd, _) in offers {
            let step = self.last_assigned(stepd);
            assert!(self.started.insert(step), "step {step} is started again");
            self.running.insert(step, stepd);
        }
        let commands = self.bench.commands.split_off(self.seen_commands);
        self.seen_commands = self.bench.commands.len();
        for command in commands {
            match command {
                LauncherCommand::Keep { key, bytes, .. } if bytes.is_empty() => {
                    self.kept.remove(&key);
                }
                LauncherCommand::Keep { key, bytes, .. } => {
                    self.kept.insert(key, bytes);
                }
                LauncherCommand::ForgetStep(_, step) => {
                    self.ended.remove(&step);
                }
                _ => {}
            }
        }
        self.bench.replies.clear();
        if self.bench.controller_closed > 0 {
            self.bench.controller_closed = 0;
            self.controller_up = false;
            self.bench.event(AgentEvent::ControllerLost);
        }
    }

    /// The step that was offered to a daemon last: the launcher is informed of it.
    fn last_assigned(&self, _stepd: StepdId) -> StepNo {
        let assigned = self.bench.commands.iter().rev();
        let mut steps = assigned.filter_map(|command| match command {
            LauncherCommand::StepAssigned { step, .. } => Some(*step),
            _ => None,
        });
        steps.find(|s| !self.started.contains(s)).unwrap()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Create { nodes, streams } => {
                self.next_conn += 1;
                self.open.insert(self.next_conn);
                let spec = StepSpec {
                    hands_streams: streams,
                    has_stepd_channel: streams,
                    ..step_spec(nodes)
                };
                self.bench.create(self.next_conn, spec);
            }
            Step::CloseConn(which) => {
                if let Some(conn) = nth(self.open.iter().copied(), which) {
                    self.open.remove(&conn);
                    self.bench.event(AgentEvent::ConnClosed(ConnId(conn)));
                }
            }
            Step::LauncherWorks => self.launcher_works(),
            Step::LauncherAnswer => self.launcher_answers(),
            Step::LauncherLost => self.launcher_lost(),
            Step::LauncherUp => self.launcher_up(),
            Step::ControllerUp => self.controller_up(),
            Step::ControllerLost => {
                if std::mem::take(&mut self.controller_up) {
                    self.bench.event(AgentEvent::ControllerLost);
                }
            }
            Step::StepEnds(which) => self.step_ends(which),
            Step::StepdReadable(which) => {
                if let Some(stepd) = nth(self.bench.unread.keys().copied(), which)
                    && let Some(event) = self.bench.read(stepd)
                {
                    self.bench.event(event);
                }
            }
            Step::PeerWorks { which, answers } => self.peer_works(which, answers),
            Step::PeerStepEnds(which) => {
                if let Some(step) = nth(self.peer_running.iter().copied(), which) {
                    self.peer_running.remove(&step);
                    self.peer_ended.insert(step);
                }
            }
            Step::PeerReports(which) => self.peer_reports(which),
            Step::TakeOffers(takes) => self.bench.takes_offers = takes,
            Step::Timer(which) => {
                if let Some(timer) = nth(self.bench.timers.iter().copied(), which) {
                    self.bench.now.mono_ms += 50;
                    self.bench.timer(timer);
                }
            }
            Step::Acknowledge => {
                if self.controller_up {
                    self.bench.acknowledge();
                }
            }
        }
        self.settle();
    }

    fn launcher_works(&mut self) {
        let Some((stepd, step)) = self.commands.pop_front() else {
            return;
        };
        if self.started.insert(step) {
            self.running.insert(step, stepd);
            self.answers.push_back(LauncherEvent::StepReady {
                run: RUN,
                step,
                socket: format!("/spool/{step}"),
                wire: None,
                direct: self.bench.stepds.get(&stepd).is_some_and(|o| o.direct),
                pid: 100 + i32::try_from(stepd.0).unwrap(),
            });
        } else {
            let error = "the number was used".to_owned();
            self.answers.push_back(LauncherEvent::StepFailed {
                run: RUN,
                step,
                error,
            });
        }
    }

    fn launcher_answers(&mut self) {
        if let Some(event) = self.answers.pop_front() {
            self.bench.launcher(event);
        }
    }

    fn launcher_lost(&mut self) {
        if std::mem::take(&mut self.launcher_up) {
            self.commands.clear();
            self.answers.clear();
            self.bench.event(AgentEvent::LauncherLost);
        }
    }

    fn launcher_up(&mut self) {
        if std::mem::replace(&mut self.launcher_up, true) {
            return;
        }
        self.bench.event(AgentEvent::LauncherUp);
        let known = KnownJob {
            run: RUN,
            grant: Some(encode(&grant(0))),
            kept: self.kept.clone().into_iter().collect(),
            steps: self.running.keys().copied().collect(),
        };
        self.answers.push_back(LauncherEvent::State(vec![known]));
        for step in self.ended.clone() {
            self.answers.push_back(ended_event(step));
        }
    }

    /// Connects as far as the launcher has said what it knows.
    fn controller_up(&mut self) {
        if self.controller_up || !self.launcher_up || !self.bench.agent.is_synced {
            return;
        }
        self.bench.connect_controller();
        self.controller_up = true;
        self.bench.order(Order::Launch(Box::new(grant(0))));
    }

    fn step_ends(&mut self, which: usize) {
        let Some((step, stepd)) = nth(self.running.iter().map(|(a, b)| (*a, *b)), which) else {
            return;
        };
        self.running.remove(&step);
        self.ended.insert(step);
        // The launcher gets it first.
        if self.launcher_up {
            self.answers.push_back(ended_event(step));
        }
        if self.bench.stepds.contains_key(&stepd) {
            let event = StepdEvent::StepEnded(step, Box::new(end()));
            self.bench.unread.entry(stepd).or_default().push(event);
        }
    }

    fn peer_works(&mut self, which: usize, answers: bool) {
        let Some(id) = nth(self.bench.asks.keys().copied(), which) else {
            return;
        };
        let Some((_, body)) = self.bench.asks.remove(&id) else {
            return;
        };
        let reply = match body {
            AgentRequest::StartStep(launch, below) => {
                assert!(below.is_empty());
                let before = self.peer_started.insert(launch.step, launch.position);
                assert_eq!(before, None, "started twice there");
                self.peer_running.insert(launch.step);
                AgentReply::Started {
                    address: "unix:/n2".to_owned(),
                    wire: None,
                    below: Vec::new(),
                }
            }
            AgentRequest::SignalStep { step, .. } => {
                if self.peer_running.remove(&step) {
                    self.peer_ended.insert(step);
                }
                AgentReply::Done
            }
            other => panic!("{other:?}"),
        };
        let answer = answers.then_some(reply).ok_or("no answer".to_owned());
        self.bench.event(AgentEvent::PeerAnswered(id, answer));
    }

    fn peer_reports(&mut self, which: usize) {
        let Some(step) = nth(self.peer_ended.iter().copied(), which) else {
            return;
        };
        let request = AgentRequest::StepNodeEnded {
            job: RUN.job,
            key: KEY.to_vec().into(),
            step,
            position: self.peer_started[&step],
            end: Box::new(end()),
            others: Vec::new(),
            onwards: false,
        };
        let id = self.bench.request(AGENT_CONN, request, false);
        let reply = self.bench.replies_to(id);
        if reply == [&AgentReply::Done] {
            self.peer_ended.remove(&step);
        }
    }

    /// All that is under way comes to its end, and so does the job.
    fn finish(&mut self) {
        self.bench.takes_offers = true;
        for conn in std::mem::take(&mut self.open) {
            self.bench.event(AgentEvent::ConnClosed(ConnId(conn)));
            self.settle();
        }
        for round in 0.. {
            assert!(round < 1000, "it does not come to an end");
            self.apply(Step::LauncherUp);
            while !self.answers.is_empty() || !self.commands.is_empty() {
                self.apply(Step::LauncherWorks);
                self.apply(Step::LauncherAnswer);
            }
            self.apply(Step::ControllerUp);
            let answers = true;
            for what in [
                Step::PeerWorks { which: 0, answers },
                Step::PeerStepEnds(0),
                Step::PeerReports(0),
                Step::StepEnds(0),
                Step::StepdReadable(0),
                Step::Acknowledge,
            ] {
                self.apply(what);
            }
            let is_over = self.running.is_empty()
                && self.answers.is_empty()
                && self.bench.asks.is_empty()
                && self.bench.unread.is_empty()
                && self.peer_running.is_empty()
                && self.peer_ended.is_empty();
            if is_over {
                break;
            }
        }
        self.bench.acknowledge();
        self.bench.end_job();
    }
}

fn ended_event(step: StepNo) -> LauncherEvent {
    LauncherEvent::StepEnded {
        run: RUN,
        step,
        end: Box::new(end()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn steps_start_at_most_once_and_end_once(steps in vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
        }
        world.finish();
        // Reports go out again on each connection, under their numbers.
        let mut reports = BTreeMap::new();
        for report in &world.bench.reports {
            reports.insert(report.seq, report.clone());
        }
        let (mut begun, mut over) = (BTreeSet::new(), BTreeSet::new());
        for report in reports.values() {
            match &report.report {
                Report::StepStarted(step) => assert!(begun.insert(step.step)),
                Report::StepEnded { step, .. } => {
                    assert!(over.insert(*step), "step {step} has ended twice");
                    assert!(begun.contains(step), "step {step} was not reported");
                }
                _ => {}
            }
        }
        prop_assert_eq!(begun, over);
    }
}
