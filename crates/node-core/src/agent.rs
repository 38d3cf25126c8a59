//! The agent of a node as a state machine: what it does when something happens. It follows the controller's orders, reports what
//! happens until that is acknowledged, and makes the steps of jobs that this node leads. What must survive the agent is
//! kept by the launcher.
//!
//! [`Agent::on_event`] takes one event and gives the actions that follow. `muster_node::agent` executes them.

mod actions;
mod channels;
mod clients;
mod greeting;
mod interface;
mod job_table;
mod jobs;
mod lead;
mod measure;
mod node;
mod node_steps;
mod pmix;
mod reports;
mod sampling;
mod step_tree;
mod stepds;
#[cfg(test)]
mod tests;
pub mod transition;
pub mod view;

pub use channels::{ChannelPeer, ChannelRefusal, ChannelTarget};
pub use clients::is_of_agents;
pub use interface::{
    AgentAction, AgentEvent, ClientRequest, ConnId, DialId, PeerRequestId, RequestId, StdioId,
    StepdId, Timer,
};
pub use step_tree::{Branch, branches_below, ends_request};

use crate::binding::Machine;
use crate::messages::JobAttempt;
use crate::now::Now;
use actions::Actions;
use clients::Inspections;
use greeting::Sessions;
use job_table::Jobs;
use minicbor::bytes::ByteVec;
use muster_model::time::Timestamp;
use node::Node;
use reports::Reports;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;

/// What the agent knows when it starts.
#[derive(Debug)]
pub struct AgentConfig {
    /// `NodeName`.
    pub name: String,
    /// `ClusterName`.
    pub cluster: String,
    /// The address of this agent for others.
    pub address: String,
    /// `SlurmdSpoolDir`.
    pub spool_dir: PathBuf,
    /// Whether ranks gain by copying from each other's memory, if that was measured.
    pub cross_memory_pays: Option<bool>,
    /// The IP address by which other machines reach this one, if the configuration names one that is its own.
    pub listens_at: Option<IpAddr>,
    /// CPUs and memory of the machine.
    pub machine: Machine,
}

/// What waits until step daemons were read.
#[derive(Debug)]
enum AfterRead {
    /// This event.
    Event(Box<AgentEvent>),
    /// Placing a step of this job.
    Placing(JobAttempt),
}

/// All state of the agent.
pub struct Agent {
    node: Node,
    now: Now,
    /// Actions of the event that is being handled.
    out: Actions,
    /// Why step daemons are being read.
    reading: Option<AfterRead>,
    /// What happened meanwhile.
    deferred: VecDeque<AgentEvent>,
    sessions: Sessions,
    is_controller_up: bool,
    /// The launcher has said what it knows.
    is_synced: bool,
    /// A launcher that had done so is gone: the next one knows nothing of steps that is news.
    has_lost_a_launcher: bool,
    jobs: Jobs,
    reports: Reports,
    steps: lead::LedSteps,
    node_steps: node_steps::NodeSteps,
    tree: step_tree::StepTree,
    stepds: stepds::Stepds,
    inspections: Inspections,
    next_tag: u64,
    samples: sampling::Samples,
    /// Lists of processes that were asked for to take samples.
    sampled_runs: HashMap<u64, JobAttempt>,
}

impl Agent {
    /// An agent that knows nothing yet.
    pub fn new(config: AgentConfig, started: Timestamp) -> Agent {
        Agent {
            node: Node::new(config),
            now: Now::default(),
            out: Actions::default(),
            reading: None,
            deferred: VecDeque::new(),
            sessions: Sessions::default(),
            is_controller_up: false,
            is_synced: false,
            has_lost_a_launcher: false,
            jobs: Jobs::default(),
            reports: Reports::new(started),
            steps: lead::LedSteps::default(),
            node_steps: node_steps::NodeSteps::default(),
            tree: step_tree::StepTree::default(),
            stepds: stepds::Stepds::default(),
            inspections: Inspections::default(),
            next_tag: 0,
            samples: sampling::Samples::default(),
            sampled_runs: HashMap::new(),
        }
    }

    /// Takes an event; what follows is added to the actions.
    pub fn on_event(&mut self, event: AgentEvent, now: Now, actions: &mut Vec<AgentAction>) {
        self.now = now;
        match event {
            AgentEvent::StepdEvents {
                stepd,
                events,
                is_open,
            } => self.on_stepd_events(stepd, events, is_open),
            AgentEvent::StepdsRead => self.stepds_read(),
            // It must not overtake what waits.
            event if self.reading.is_some() => self.deferred.push_back(event),
            event => self.dispatch(event),
        }
        self.out.move_to(actions);
    }

    /// Handles an event, once step daemons that it may concern were read: a daemon sends the end of a step to the launcher, then
    /// here, then to srun, and what follows from the end may have come here faster.
    fn dispatch(&mut self, event: AgentEvent) {
        let concerned = self.job_to_read_before(&event);
        match concerned.is_some_and(|run| self.stepds.read_of(&mut self.out, run)) {
            true => self.reading = Some(AfterRead::Event(Box::new(event))),
            false => self.handle(event),
        }
    }

    fn stepds_read(&mut self) {
        match self.reading.take() {
            Some(AfterRead::Event(event)) => self.handle(*event),
            Some(AfterRead::Placing(run)) => {
                self.steps.set_read(run);
                self.handle(AgentEvent::Idle);
            }
            None => {}
        }
        while self.reading.is_none()
            && let Some(event) = self.deferred.pop_front()
        {
            self.dispatch(event);
        }
    }

    fn handle(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Dialed(dial) => {
                self.sessions.dial(&mut self.out, dial, self.is_synced);
            }
            AgentEvent::ControllerAnswered(dial, key) => {
                self.sessions
                    .answer(&mut self.out, (dial, key), self.is_synced);
            }
            AgentEvent::ControllerUp => self.controller_up(),
            AgentEvent::Controller(message) => self.on_controller_message(message),
            AgentEvent::Orders {
                orders,
                bytes,
                launcher_seal,
            } => self.on_orders(*orders, bytes, launcher_seal),
            AgentEvent::ControllerLost => self.is_controller_up = false,
            AgentEvent::LauncherUp => self.launcher_up(),
            AgentEvent::Launcher(event) => self.on_launcher_event(*event),
            AgentEvent::LauncherLost => self.launcher_lost(),
            AgentEvent::StepdChannelFailed(stepd, error) => self.stepd_channel_failed(stepd, error),
            AgentEvent::StepOffered(stepd, is_written) => self.step_offered(stepd, is_written),
            AgentEvent::StepdEvents {
                stepd,
                events,
                is_open,
            } => self.on_stepd_events(stepd, events, is_open),
            AgentEvent::Request(request) => self.on_request(request),
            AgentEvent::ConnClosed(conn) => self.step_client_gone(conn),
            AgentEvent::PeerAnswered(request, answer) => self.peer_answered(request, answer),
            AgentEvent::TimerDue(timer) => self.timer_due(timer),
            AgentEvent::Idle => self.send_gathered(),
            AgentEvent::StepdsRead => {}
        }
    }

    fn timer_due(&mut self, timer: Timer) {
        match timer {
            Timer::Grant(wait) => self.grant_wait_over(wait),
            Timer::StepQueued(conn) => self.notify_queued(conn),
            // Other nodes have not said in time how their parts of steps ended: the job waits for them no longer.
            Timer::Release(run) => self.jobs.steps_over(&mut self.reports, run),
            Timer::Reports => self.reports.wait_over(),
            Timer::Sample => self.sample_due(),
            Timer::EndDelivery(job, step) => {
                self.tree.report_to_lead(&mut self.out, (job, step));
            }
        }
    }

    /// Starts steps that fit, and sends what events have gathered.
    fn send_gathered(&mut self) {
        if !self.try_steps() {
            // Step daemons are read first.
            return;
        }
        if !self.is_controller_up {
            return;
        }
        let now_ms = self.now.mono_ms;
        if let Some(reports) = self.reports.take_unsent(now_ms) {
            self.out.push(AgentAction::SendReports(reports));
        } else if let Some(after_ms) = self.reports.start_timer(now_ms) {
            self.out.set_timer(Timer::Reports, after_ms);
        }
    }
}

fn encode<T: minicbor::Encode<()>>(value: &T) -> ByteVec {
    let bytes = minicbor::to_vec(value).expect("writing to memory cannot fail");
    bytes.into()
}
