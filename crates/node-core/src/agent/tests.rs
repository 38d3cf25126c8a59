//! The machine driven by events, with an executor that keeps account of what the machine holds.

mod channels;
mod deliveries;
mod floods;
mod parts;
mod random;
mod scenarios;
mod waiting;

use super::*;
use crate::binding::Machine;
use crate::messages::{
    AgentToStepd, KeptEntries, KeptEntry, KnownJob, LauncherCommand, LauncherEvent, StepOrder,
    StepdEvent,
};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, AttemptStep, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Allocation, ArrayRole, NodeShare, StepEnd};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_proto::frame::Frames;
use muster_proto::node::{JobGrant, NumberedReport, Order, Orders, Report, ToNode};
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use std::collections::{BTreeMap, BTreeSet};

/// What a launcher keeps, as it says so.
fn entries(kept: impl IntoIterator<Item = (u32, ByteVec)>) -> KeptEntries {
    let entry = |(key, bytes)| KeptEntry { key, bytes };
    kept.into_iter().map(entry).collect()
}

const RUN: JobAttempt = JobAttempt {
    job: JobId(7),
    attempt: Attempt(1),
};
const KEY: [u8; 16] = [9; 16];
/// The connection by which another agent asks.
const AGENT_CONN: ConnId = ConnId(1_000_000);

fn address(node: usize) -> String {
    format!("unix:/spool/n{node}/noded.sock")
}

/// A job of two nodes with four CPUs each, of which this node is at `position`.
fn grant(position: u32) -> JobGrant {
    grant_of(2, position)
}

/// The same of so many nodes.
fn grant_of(nodes: u32, position: u32) -> JobGrant {
    let share = |node: u32| NodeShare {
        node: NodeIdx(node),
        name: format!("n{node}"),
        cpus: CpuSet::first(4),
        memory_mib: 1000,
        tasks: 4,
        gres: Vec::new(),
    };
    let alloc = Allocation {
        nodes: (1..=nodes).map(share).collect(),
        hostlist: format!("n[1-{nodes}]"),
        ..Allocation::default()
    };
    JobGrant {
        job: RUN.job,
        attempt: RUN.attempt,
        spec: std::sync::Arc::new(JobSpec::default()),
        alloc: alloc.into(),
        position,
        array: ArrayRole::None,
        array_info: None,
        start_time: Timestamp(1),
        time_limit: TimeLimit::Unlimited,
        restarts: 0,
        addresses: (1..=nodes as usize).map(address).collect(),
        key: KEY.to_vec().into(),
        account: String::new(),
        qos: String::new(),
        next_step: 0,
        components: Vec::new(),
        resizes: 0,
        het_key: None,
    }
}

fn end() -> StepEnd {
    StepEnd {
        exit: Default::default(),
        state: muster_model::job::JobState::Completed,
        ..StepEnd::never_ran(Timestamp(5))
    }
}

/// A step of so many tasks, each with all CPUs of a node.
fn step_spec(nodes: u32) -> StepSpec {
    StepSpec {
        job: RUN.job,
        argv: vec!["true".to_owned()],
        min_nodes: Some(nodes),
        max_nodes: Some(nodes),
        ntasks: Some(nodes),
        ..StepSpec::default()
    }
}

/// The step that a daemon is sent.
fn step_of(frame: &[u8]) -> StepNo {
    let mut frames = Frames::default();
    frames.push(frame);
    match frames.take() {
        Ok(Some(AgentToStepd::StartStep(next))) => next.order.launch.step,
        other => panic!("{other:?}"),
    }
}

/// An executor that has nothing behind it.
struct Bench {
    agent: Agent,
    now: Now,
    requests: BTreeSet<RequestId>,
    /// Those of agents that have no answer.
    agents_requests: BTreeSet<RequestId>,
    with_bytes: BTreeSet<RequestId>,
    /// Those whose client is gone, and whose bytes are held.
    left: BTreeSet<RequestId>,
    stdio: BTreeSet<StdioId>,
    /// Channels to step daemons, and the orders that made them.
    stepds: BTreeMap<StepdChannelId, Box<StepOrder>>,
    /// What step daemons have sent and nobody has read.
    unread: BTreeMap<StepdChannelId, Vec<StepdEvent>>,
    /// Whether daemons take further steps.
    takes_offers: bool,
    offered: Vec<(StepdChannelId, StepNo, Option<StdioId>)>,
    stdio_sent: Vec<(StepdChannelId, StdioId)>,
    commands: Vec<LauncherCommand>,
    /// Orders for the launcher that nobody has answered.
    starts: Vec<(StepdChannelId, StepNo)>,
    asks: BTreeMap<PeerRequestId, (String, AgentRequest)>,
    timers: BTreeSet<Timer>,
    /// How many were set.
    timers_set: usize,
    replies: Vec<(RequestId, AgentReply)>,
    reports: Vec<NumberedReport>,
    controller_closed: u32,
    verdicts: Vec<(DialId, Result<(), String>)>,
    greeted: Vec<DialId>,
    next: u64,
}

impl Bench {
    /// An agent of the node with this number, which has no peers so far.
    fn of_node(node: usize) -> Bench {
        let config = AgentConfig {
            conf: String::new(),
            name: format!("n{node}"),
            cluster: "test".to_owned(),
            address: address(node),
            spool_dir: format!("/spool/n{node}").into(),
            cross_memory_pays: None,
            listens_at: None,
            machine: Machine::new(Err("no machine".to_owned()), CpuSet::default()),
        };
        Bench {
            agent: Agent::new(config, Timestamp(1)),
            now: Now {
                wall: Timestamp(1000),
                mono_ms: 1000,
            },
            requests: BTreeSet::new(),
            agents_requests: BTreeSet::new(),
            with_bytes: BTreeSet::new(),
            left: BTreeSet::new(),
            stdio: BTreeSet::new(),
            stepds: BTreeMap::new(),
            unread: BTreeMap::new(),
            takes_offers: true,
            offered: Vec::new(),
            stdio_sent: Vec::new(),
            commands: Vec::new(),
            starts: Vec::new(),
            asks: BTreeMap::new(),
            timers: BTreeSet::new(),
            timers_set: 0,
            replies: Vec::new(),
            reports: Vec::new(),
            controller_closed: 0,
            verdicts: Vec::new(),
            greeted: Vec::new(),
            next: 0,
        }
    }

    /// The same with launcher and controller, and with the job.
    fn with_job(node: usize) -> Bench {
        let mut bench = Bench::of_node(node);
        bench.connect_launcher(Vec::new());
        bench.connect_controller();
        let position = u32::try_from(node).unwrap() - 1;
        bench.order(Order::Launch(Box::new(grant(position))));
        bench
    }

    fn connect_launcher(&mut self, known: Vec<KnownJob>) {
        self.event(Event::LauncherUp);
        self.launcher(LauncherEvent::State {
            jobs: known,
            is_last: true,
        });
    }

    fn connect_controller(&mut self) {
        self.next += 1;
        let dial = DialId(self.next);
        self.event(Event::Dialed(dial));
        self.launcher(LauncherEvent::SessionKey(vec![1].into()));
        assert_eq!(self.greeted.pop(), Some(dial));
        self.event(Event::ControllerAnswered(dial, vec![2].into()));
        self.launcher(LauncherEvent::SessionBegun(None));
        assert_eq!(self.verdicts.pop(), Some((dial, Ok(()))));
        self.event(Event::ControllerUp);
    }

    fn order(&mut self, order: Order) {
        let orders = Orders {
            cluster: "test".to_owned(),
            node: "n1".to_owned(),
            at: Timestamp(2),
            blobs: Vec::new(),
            orders: vec![order],
            drop_blobs: Vec::new(),
            settings: None,
        };
        self.event(Event::Orders {
            orders: Box::new(orders),
            bytes: vec![3].into(),
            launcher_seal: vec![4].into(),
        });
    }

    fn launcher(&mut self, event: LauncherEvent) {
        self.event(Event::Launcher(Box::new(event)));
    }

    /// An event, and that no other is there.
    fn event(&mut self, event: Event) {
        self.run(event);
        while self.run(Event::Idle) {}
    }

    /// Whether actions brought further events.
    fn run(&mut self, event: Event) -> bool {
        let (mut events, mut count) = (VecDeque::from([event]), 0);
        while let Some(event) = events.pop_front() {
            count += 1;
            let mut actions = Vec::new();
            self.agent.on_event(event, self.now, &mut actions);
            for action in actions {
                self.execute(action, &mut events);
            }
        }
        count > 1
    }

    fn execute(&mut self, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Greet { dial, .. } => self.greeted.push(dial),
            Action::TrustController(dial, result) => self.verdicts.push((dial, result)),
            Action::CloseController => self.controller_closed += 1,
            Action::SendHealth | Action::Stop => {}
            Action::SendReports(reports) => self.reports.extend(reports),
            Action::Launcher(command) => self.commands.push(command),
            Action::StartStepd { stepd, order, .. } => {
                self.starts.push((stepd, order.launch.step));
                assert!(self.stepds.insert(stepd, order).is_none());
            }
            Action::OfferStep {
                stepd,
                frame,
                stdio,
            } => {
                assert!(self.stepds.contains_key(&stepd));
                assert!(stdio.is_none_or(|stdio| self.stdio.contains(&stdio)));
                if self.takes_offers {
                    self.offered.push((stepd, step_of(&frame), stdio));
                }
                events.push_back(Event::StepOffered(stepd, self.takes_offers));
            }
            Action::SendStdio { stepd, stdio } => {
                assert!(self.stdio.contains(&stdio) && self.stepds.contains_key(&stepd));
                self.stdio_sent.push((stepd, stdio));
            }
            Action::ReadStepds(stepds) => {
                for stepd in stepds {
                    events.extend(self.read(stepd));
                }
                events.push_back(Event::StepdsRead);
            }
            Action::CloseStepd(stepd) => {
                self.unread.remove(&stepd);
                assert!(self.stepds.remove(&stepd).is_some(), "{stepd:?} twice");
            }
            Action::CloseStdio(stdio) => {
                assert!(self.stdio.remove(&stdio), "{stdio:?} twice");
            }
            Action::Reply(request, reply) => {
                assert!(self.requests.contains(&request), "{request:?}: {reply:?}");
                self.replies.push((request, reply));
            }
            Action::ReleaseBytes(request) => {
                assert!(self.with_bytes.remove(&request), "{request:?} twice");
            }
            Action::LeaveBytes(request) => {
                assert!(self.requests.remove(&request), "{request:?} twice");
                assert!(self.left.insert(request), "{request:?} twice");
            }
            Action::EndRequest(request) if self.left.remove(&request) => {
                assert!(self.with_bytes.remove(&request), "{request:?} twice");
            }
            Action::EndRequest(request) => {
                self.with_bytes.remove(&request);
                assert!(self.requests.remove(&request), "{request:?} twice");
            }
            Action::AskPeer {
                request,
                address,
                body,
            } => {
                self.asks.insert(request, (address, *body));
            }
            Action::SetTimer { timer, .. } => {
                self.timers.insert(timer);
                self.timers_set += 1;
            }
        }
    }

    /// What a daemon has sent.
    fn read(&mut self, stepd: StepdChannelId) -> Option<Event> {
        let events = self.unread.remove(&stepd)?;
        Some(Event::StepdEvents {
            stepd,
            events,
            is_open: true,
        })
    }

    fn request(&mut self, conn: ConnId, body: AgentRequest, stdio: bool) -> RequestId {
        self.next += 1;
        let (id, stdio_id) = (RequestId(self.next), StdioId(self.next));
        self.requests.insert(id);
        self.with_bytes.insert(id);
        if conn == AGENT_CONN {
            self.agents_requests.insert(id);
        }
        if stdio {
            self.stdio.insert(stdio_id);
        }
        self.event(Event::Request(ClientRequest {
            id,
            conn,
            uid: 0,
            is_agent: conn == AGENT_CONN,
            body: Box::new(body),
            stdio: stdio.then_some(stdio_id),
            random: vec![5; 16].into(),
        }));
        id
    }

    fn create(&mut self, conn: u64, spec: StepSpec) -> RequestId {
        let stdio = spec.passes_stdio;
        self.request(ConnId(conn), AgentRequest::Create(Box::new(spec)), stdio)
    }

    /// The launcher has started the daemon that was ordered first.
    fn start_ready(&mut self) -> StepdChannelId {
        let (stepd, step) = self.starts.remove(0);
        let direct = self.stepds.get(&stepd).is_some_and(|order| order.direct);
        self.launcher(LauncherEvent::StepReady {
            attempt: RUN,
            step,
            socket: format!("/spool/step{step}"),
            mesh_address: None,
            direct,
            pid: 100,
        });
        stepd
    }

    /// A daemon sends the end of its step here, which is read at once.
    fn stepd_ends(&mut self, stepd: StepdChannelId, step: u32) {
        let ended = StepdEvent::StepEnded(StepNo(step), Box::new(end()));
        self.unread.entry(stepd).or_default().push(ended);
        if let Some(event) = self.read(stepd) {
            self.event(event);
        }
    }

    fn timer(&mut self, timer: Timer) {
        assert!(self.timers.remove(&timer), "{timer:?}");
        if let Timer::Release(_) | Timer::Grant = timer {
            self.now.mono_ms += 60_000;
        }
        self.event(Event::TimerDue(timer));
    }

    /// Has reports that wait for others sent.
    fn flush_reports(&mut self) {
        if self.timers.contains(&Timer::Reports) {
            self.timer(Timer::Reports);
        }
    }

    /// Answers the first request to another agent, which was this one.
    fn answer(&mut self, answer: Result<AgentReply, String>) -> (String, AgentRequest) {
        let (id, asked) = self.asks.pop_first().unwrap();
        self.event(Event::PeerAnswered(id, answer));
        asked
    }

    fn replies_to(&self, request: RequestId) -> Vec<&AgentReply> {
        let of = self.replies.iter().filter(|(id, _)| *id == request);
        of.map(|(_, reply)| reply).collect()
    }

    fn step_ends(&self) -> Vec<StepNo> {
        let step = |r: &NumberedReport| match &r.report {
            Report::StepEnded { step, .. } => Some(*step),
            _ => None,
        };
        self.reports.iter().filter_map(step).collect()
    }

    /// Acknowledges all reports.
    fn acknowledge(&mut self) {
        self.flush_reports();
        if let Some(last) = self.reports.last().map(|r| r.seq) {
            self.event(Event::Controller(ToNode::Ack(last)));
        }
    }

    /// Nothing is held, in the executor or in the machine.
    fn assert_quiet(&self) {
        assert_eq!(self.requests, BTreeSet::new());
        assert_eq!(self.with_bytes, BTreeSet::new());
        assert_eq!(self.left, BTreeSet::new());
        assert_eq!(self.stdio, BTreeSet::new());
        assert!(self.asks.is_empty(), "{:?}", self.asks);
        assert_eq!(self.agent.steps.led.states(), []);
        assert_eq!(self.agent.steps.node_steps.states(), []);
        assert!(self.agent.steps.node_steps.is_quiet());
        assert!(self.agent.steps.tree.is_quiet());
        assert!(self.agent.inspections.is_empty());
        assert!(self.agent.state.reading.is_none() && self.agent.deferred.is_empty());
    }

    /// The job ends, and everything of it goes.
    fn end_job(&mut self) {
        self.launcher(LauncherEvent::Released(RUN));
        if self.timers.contains(&Timer::Release(RUN)) {
            // Other nodes do not say how their parts ended.
            self.timer(Timer::Release(RUN));
        }
        self.acknowledge();
        assert_eq!(
            self.stepds.keys().collect::<Vec<_>>(),
            Vec::<&StepdChannelId>::new()
        );
        self.assert_quiet();
    }
}
