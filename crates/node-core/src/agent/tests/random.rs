//! Random interleavings of what can happen to the agent of a job's first node: a step is started at most once and its end is
//! reported once, whichever process stops when, and nothing is held when all is over.

use super::scenarios::{launch_of_three, share};
use super::*;
use crate::agent::reports::Reports;
use muster_proto::step::StepLaunch;
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// srun asks for a step of so many nodes.
    Create { nodes: u32, streams: bool },
    /// The lead on another node orders a step, with the node below or without; perhaps one that it has ordered before.
    Order { below: bool, again: Option<usize> },
    /// An srun goes.
    CloseConn(usize),
    /// The launcher handles a command to start a daemon.
    LauncherWorks,
    /// An answer of the launcher arrives.
    LauncherAnswer,
    /// The launcher is lost, with all that is on its way.
    LauncherLost,
    /// The agent is lost, where the job has one node.
    AgentLost,
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

fn a_move() -> impl Strategy<Value = Move> {
    let index = || any::<prop::sample::Index>().prop_map(|i| i.index(64));
    prop_oneof![
        4 => (1_u32..3, any::<bool>()).prop_map(|(nodes, streams)| Move::Create { nodes, streams }),
        4 => (any::<bool>(), prop::option::weighted(0.2, index()))
            .prop_map(|(below, again)| Move::Order { below, again }),
        1 => index().prop_map(Move::CloseConn),
        5 => Just(Move::LauncherWorks),
        6 => Just(Move::LauncherAnswer),
        1 => Just(Move::LauncherLost),
        1 => Just(Move::AgentLost),
        3 => Just(Move::LauncherUp),
        3 => Just(Move::ControllerUp),
        1 => Just(Move::ControllerLost),
        4 => index().prop_map(Move::StepEnds),
        3 => index().prop_map(Move::StepdReadable),
        4 => (index(), prop::bool::weighted(0.8))
            .prop_map(|(which, answers)| Move::PeerWorks { which, answers }),
        3 => index().prop_map(Move::PeerStepEnds),
        4 => index().prop_map(Move::PeerReports),
        1 => any::<bool>().prop_map(Move::TakeOffers),
        3 => index().prop_map(Move::Timer),
        2 => Just(Move::Acknowledge),
    ]
}

/// The agent among what surrounds it.
struct World {
    bench: Bench,
    launcher_up: bool,
    controller_up: bool,
    /// Commands that the launcher has not handled, and answers that the agent has not got.
    commands: VecDeque<(Option<StepdChannelId>, StepNo)>,
    answers: VecDeque<LauncherEvent>,
    kept: BTreeMap<u32, ByteVec>,
    /// Steps that were started here, and those that run, by the channel of their daemon.
    started: BTreeSet<StepNo>,
    running: BTreeMap<StepNo, Option<StepdChannelId>>,
    ended: BTreeSet<StepNo>,
    /// The same on the other node, with its position; an end stays there until it was taken.
    peer_started: BTreeMap<StepNo, u32>,
    peer_running: BTreeSet<StepNo>,
    peer_ended: BTreeSet<StepNo>,
    open: BTreeSet<u64>,
    next_conn: u64,
    /// How many nodes the job has.
    nodes: u32,
    /// The number of this node. The first leads.
    node: usize,
    /// Steps that the lead has ordered, with the node below or without.
    ordered: BTreeMap<StepNo, bool>,
    /// Requests of agents that are not answered, and the step whose end each is about.
    unanswered: BTreeMap<RequestId, Option<StepNo>>,
    /// Ends that the lead on another node knows, by position.
    known_ends: BTreeSet<(StepNo, u32)>,
}

fn nth<T: Copy>(mut all: impl ExactSizeIterator<Item = T>, which: usize) -> Option<T> {
    let count = all.len();
    (count > 0).then(|| all.nth(which % count)).flatten()
}

impl World {
    fn new(nodes: u32, node: usize) -> World {
        let mut world = World {
            bench: Bench::of_node(node),
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
            nodes,
            node,
            ordered: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            known_ends: BTreeSet::new(),
        };
        world.launcher_up();
        world.launcher_answers();
        world.controller_up();
        world
    }

    /// What the agent has done since then reaches those whom it concerns.
    fn settle(&mut self) {
        let starts = std::mem::take(&mut self.bench.starts).into_iter();
        self.commands
            .extend(starts.map(|(stepd, step)| (Some(stepd), step)));
        for (stepd, step, _) in std::mem::take(&mut self.bench.offered) {
            assert!(self.started.insert(step), "step {step} is started again");
            self.running.insert(step, Some(stepd));
        }
        for command in std::mem::take(&mut self.bench.commands) {
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
        for (request, reply) in std::mem::take(&mut self.bench.replies) {
            if self.bench.agents_requests.remove(&request) {
                self.agent_answered(request, &reply);
            }
        }
        if self.bench.controller_closed > 0 {
            self.bench.controller_closed = 0;
            self.controller_up = false;
            self.bench.event(Event::ControllerLost);
        }
    }

    fn apply(&mut self, what: Move) {
        match what {
            Move::Create { .. } if self.node > 1 => {}
            Move::Order { .. } if self.node == 1 => {}
            Move::Order { below, again } => self.order(below, again),
            Move::Create { nodes, streams } => {
                self.next_conn += 1;
                self.open.insert(self.next_conn);
                let spec = StepSpec {
                    passes_stdio: streams,
                    ..step_spec(nodes)
                };
                self.bench.create(self.next_conn, spec);
            }
            Move::CloseConn(which) => {
                if let Some(conn) = nth(self.open.iter().copied(), which) {
                    self.open.remove(&conn);
                    self.bench.event(Event::ConnClosed(ConnId(conn)));
                }
            }
            Move::LauncherWorks => self.launcher_works(),
            Move::LauncherAnswer => self.launcher_answers(),
            Move::LauncherLost => self.launcher_lost(),
            Move::LauncherUp => self.launcher_up(),
            Move::AgentLost => {
                if self.nodes != 2 {
                    self.agent_lost();
                }
            }
            Move::ControllerUp => self.controller_up(),
            Move::ControllerLost => {
                if std::mem::take(&mut self.controller_up) {
                    self.bench.event(Event::ControllerLost);
                }
            }
            Move::StepEnds(which) => self.step_ends(which),
            Move::StepdReadable(which) => {
                if let Some(stepd) = nth(self.bench.unread.keys().copied(), which)
                    && let Some(event) = self.bench.read(stepd)
                {
                    self.bench.event(event);
                }
            }
            Move::PeerWorks { which, answers } => self.peer_works(which, answers),
            Move::PeerStepEnds(which) => {
                if let Some(step) = nth(self.peer_running.iter().copied(), which) {
                    self.peer_running.remove(&step);
                    self.peer_ended.insert(step);
                }
            }
            Move::PeerReports(which) => self.peer_reports(which),
            Move::TakeOffers(takes) => self.bench.takes_offers = takes,
            Move::Timer(which) => {
                if let Some(timer) = nth(self.bench.timers.iter().copied(), which) {
                    self.bench.now.mono_ms += 50;
                    self.bench.timer(timer);
                }
            }
            Move::Acknowledge => {
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
        let is_new = self.started.insert(step);
        if is_new {
            self.running.insert(step, stepd);
        }
        // The answer goes to the agent that asked.
        let Some(stepd) = stepd.filter(|_| self.launcher_up) else {
            return;
        };
        if is_new {
            self.answers.push_back(LauncherEvent::StepReady {
                attempt: RUN,
                step,
                socket: format!("/spool/{step}"),
                mesh_address: None,
                direct: self.bench.stepds.get(&stepd).is_some_and(|o| o.direct),
                pid: 100 + i32::try_from(stepd.0).unwrap(),
            });
        } else {
            let error = "the number was used".to_owned();
            self.answers.push_back(LauncherEvent::StepFailed {
                attempt: RUN,
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
            self.bench.event(Event::LauncherLost);
        }
    }

    fn launcher_up(&mut self) {
        if std::mem::replace(&mut self.launcher_up, true) {
            return;
        }
        self.bench.event(Event::LauncherUp);
        let known = KnownJob {
            attempt: RUN,
            grant: Some(encode(&self.grant())),
            kept: entries(self.kept.clone()),
            steps: self.running.keys().copied().collect(),
        };
        self.answers.push_back(LauncherEvent::State {
            jobs: vec![known],
            is_last: true,
        });
        for step in self.ended.clone() {
            self.answers.push_back(ended_event(step));
        }
    }

    fn grant(&self) -> JobGrant {
        grant_of(self.nodes, u32::try_from(self.node - 1).unwrap())
    }

    fn order(&mut self, below: bool, again: Option<usize>) {
        let next = StepNo(u32::try_from(self.ordered.len()).unwrap());
        let before = again.and_then(|which| nth(self.ordered.iter().map(|(a, b)| (*a, *b)), which));
        let (step, below) = before.unwrap_or((next, below));
        self.ordered.insert(step, below);
        let launch = StepLaunch {
            step,
            ..launch_of_three(1)
        };
        let below = match below {
            true => vec![share(3)],
            false => Vec::new(),
        };
        let request = AgentRequest::StartStep(Box::new(launch), below);
        let id = self.bench.request(AGENT_CONN, request, false);
        self.unanswered.insert(id, None);
    }

    /// A request of another agent was answered, for the first and last time.
    fn agent_answered(&mut self, request: RequestId, reply: &AgentReply) {
        let Some(about) = self.unanswered.remove(&request) else {
            panic!("{request:?} was answered before: {reply:?}");
        };
        let Some(step) = about else {
            return;
        };
        let position = self.peer_started[&step];
        if self.node > 1 && *reply == AgentReply::Done {
            assert!(self.known_ends.contains(&(step, position)), "{step}");
        }
        // Without that, the peer turns to the lead.
        self.known_ends.insert((step, position));
        self.peer_ended.remove(&step);
    }

    /// The agent is lost, with what it has not done, and another one starts. What it has sent is received; srun and daemons see
    /// their connections end.
    fn agent_lost(&mut self) {
        let reports = std::mem::take(&mut self.bench.reports);
        let next = self.bench.next;
        self.bench = Bench::of_node(self.node);
        // The peers see that their connections end, and turn to the lead.
        for step in std::mem::take(&mut self.unanswered).into_values().flatten() {
            self.known_ends.insert((step, self.peer_started[&step]));
            self.peer_ended.remove(&step);
        }
        (self.bench.reports, self.bench.next) = (reports, next);
        self.bench.now.wall.0 += i64::try_from(next).unwrap() * 1000;
        self.bench.agent.state.reports = Reports::new(self.bench.now.wall);
        (self.launcher_up, self.controller_up) = (false, false);
        self.answers.clear();
        self.open.clear();
        let lost = |stepd: &mut Option<StepdChannelId>| *stepd = None;
        self.running.values_mut().for_each(lost);
        self.commands.iter_mut().for_each(|(stepd, _)| lost(stepd));
    }

    /// Connects as far as the launcher has said what it knows.
    fn controller_up(&mut self) {
        if self.controller_up || !self.launcher_up || !self.bench.agent.state.is_synced {
            return;
        }
        self.bench.connect_controller();
        self.controller_up = true;
        self.bench.order(Order::Launch(Box::new(self.grant())));
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
        if let Some(stepd) = stepd
            && self.bench.stepds.contains_key(&stepd)
        {
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
                assert!(before.is_none() || self.node > 1, "started twice there");
                if before.is_some() {
                    let refusal = AgentReply::Refused(RefusalCode::JobNotHere.into());
                    return self.bench.event(Event::PeerAnswered(id, Ok(refusal)));
                }
                self.peer_running.insert(launch.step);
                AgentReply::StepdsStarted {
                    address: "unix:/n2".to_owned(),
                    mesh_address: None,
                    below: Vec::new(),
                }
            }
            AgentRequest::SignalStep { step, .. } => {
                if self.peer_running.remove(&step) {
                    self.peer_ended.insert(step);
                }
                AgentReply::Done
            }
            AgentRequest::StepNodeEnded {
                step,
                position,
                others,
                ..
            } => {
                let others = others.into_iter().map(|other| other.position);
                for position in others.chain([position]) {
                    self.known_ends.insert((step, position));
                }
                AgentReply::Done
            }
            AgentRequest::FindStep { step, .. } => match self.peer_started.contains_key(&step) {
                true => AgentReply::Done,
                false => AgentReply::Refused(RefusalCode::JobNotHere.into()),
            },
            other => panic!("{other:?}"),
        };
        let answer = answers.then_some(reply).ok_or("no answer".to_owned());
        self.bench.event(Event::PeerAnswered(id, answer));
    }

    fn peer_reports(&mut self, which: usize) {
        let is_free = |step: &StepNo| !self.unanswered.values().any(|s| *s == Some(*step));
        let free: Vec<StepNo> = self.peer_ended.iter().copied().filter(is_free).collect();
        let Some(step) = nth(free.into_iter(), which) else {
            return;
        };
        let request = AgentRequest::StepNodeEnded {
            job: RUN.job,
            key: KEY.to_vec().into(),
            step,
            position: self.peer_started[&step],
            end: Box::new(end()),
            others: Vec::new(),
            onwards: self.node > 1,
        };
        let id = self.bench.request(AGENT_CONN, request, false);
        self.unanswered.insert(id, Some(step));
    }

    /// All that is under way comes to its end, and so does the job.
    fn finish(&mut self) {
        self.bench.takes_offers = true;
        for conn in std::mem::take(&mut self.open) {
            self.bench.event(Event::ConnClosed(ConnId(conn)));
            self.settle();
        }
        for round in 0.. {
            assert!(round < 1000, "it does not come to an end");
            self.apply(Move::LauncherUp);
            while !self.answers.is_empty() || !self.commands.is_empty() {
                self.apply(Move::LauncherWorks);
                self.apply(Move::LauncherAnswer);
            }
            self.apply(Move::ControllerUp);
            let answers = true;
            for what in [
                Move::PeerWorks { which: 0, answers },
                Move::PeerStepEnds(0),
                Move::PeerReports(0),
                Move::StepEnds(0),
                Move::StepdReadable(0),
                Move::Acknowledge,
            ] {
                self.apply(what);
            }
            for _ in 0..self.bench.timers.len() {
                self.apply(Move::Timer(0));
            }
            let is_over = self.running.is_empty()
                && self.answers.is_empty()
                && self.bench.asks.is_empty()
                && self.bench.unread.is_empty()
                && self.peer_running.is_empty()
                && self.peer_ended.is_empty()
                && self.bench.agent.steps.node_steps.is_quiet()
                && self.bench.agent.steps.tree.is_quiet();
            if is_over {
                break;
            }
        }
        self.bench.acknowledge();
        self.bench.end_job();
        assert_eq!(self.unanswered, BTreeMap::new());
    }
}

fn ended_event(step: StepNo) -> LauncherEvent {
    LauncherEvent::StepEnded {
        attempt: RUN,
        step,
        end: Box::new(end()),
    }
}

/// Steps whose start, and whose end, the controller knows; without agents that were lost it gets each once.
fn reported(world: &World, once: bool) -> (BTreeSet<StepNo>, BTreeSet<StepNo>) {
    // Reports go out again on each connection, under their numbers.
    let reports = world.bench.reports.iter();
    let reports: BTreeMap<u64, &Report> = reports.map(|r| (r.seq, &r.report)).collect();
    let (mut begun, mut over) = (BTreeSet::new(), BTreeSet::new());
    for report in reports.into_values() {
        match report {
            Report::StepStarted(step) => {
                assert!(begun.insert(step.step) || !once, "started twice: {step:?}");
            }
            Report::StepEnded { step, .. } => {
                assert!(over.insert(*step) || !once, "step {step} has ended twice");
                assert!(begun.contains(step) || !once, "step {step} had not begun");
            }
            _ => {}
        }
    }
    (begun, over)
}

proptest! {
    #[test]
    fn steps_start_at_most_once_and_end_once(moves in vec(a_move(), 0..120)) {
        let mut world = World::new(2, 1);
        for what in moves {
            world.apply(what);
        }
        world.finish();
        let (begun, over) = reported(&world, true);
        prop_assert_eq!(begun, over);
    }

    /// What was sent to the controller is known there; an end that was not is found again. A step whose order was lost with a
    /// launcher, and that no agent remembers, goes with its job.
    #[test]
    fn ends_survive_the_agent(moves in vec(a_move(), 0..120)) {
        let mut world = World::new(1, 1);
        for what in moves {
            world.apply(what);
        }
        world.finish();
        let (begun, over) = reported(&world, false);
        let ran = begun.intersection(&world.started).copied().collect::<BTreeSet<_>>();
        prop_assert!(ran.is_subset(&over), "{:?} {:?}", ran, over);
    }

    /// On a node that does not lead: the lead learns how each part ended that ran, and each agent that asks is answered once.
    #[test]
    fn the_lead_learns_of_each_part(moves in vec(a_move(), 0..120)) {
        let mut world = World::new(3, 2);
        for what in moves {
            world.apply(what);
        }
        world.finish();
        let ran = world.started.iter().map(|step| (*step, 1));
        let below = world.peer_started.iter().map(|(step, position)| (*step, *position));
        for part in ran.chain(below) {
            prop_assert!(world.known_ends.contains(&part), "{:?}", part);
        }
    }
}
