//! The agent of a node as a state machine. It follows the controller's orders, sends its reports until the controller
//! acknowledges them, and manages the steps of jobs that this node leads. The launcher stores the data that must
//! survive the agent.
//!
//! [`Agent::on_event`] takes one event and returns the resulting actions. `muster_node::agent` executes them.

mod actions;
mod channels;
mod clients;
mod early;
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
mod state;
mod step_tree;
mod stepds;
mod steps;
#[cfg(test)]
mod tests;
pub mod transition;
pub mod view;

pub use channels::{ChannelPeer, ChannelRefusal, ChannelTarget};
pub use clients::is_of_agents;
pub use interface::{
    Action, ClientRequest, ConnId, DialId, Event, PeerRequestId, RequestId, StdioId,
    StepdChannelId, Timer,
};
pub use step_tree::{Branch, branches_below, ends_request};

use crate::binding::Machine;
use crate::now::Now;
use clients::Inspections;
use greeting::Sessions;
use minicbor::bytes::ByteVec;
use muster_model::ids::StepId;
use muster_model::time::Timestamp;
use state::{AfterRead, AgentState};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use steps::Steps;

/// Data that the agent has at its start.
#[derive(Debug)]
pub struct AgentConfig {
    /// `NodeName`.
    pub name: String,
    /// `ClusterName`.
    pub cluster: String,
    /// The address of this agent for others.
    pub address: String,
    /// Path of its slurm.conf; empty if it is not known.
    pub conf: String,
    /// `SlurmdSpoolDir`.
    pub spool_dir: PathBuf,
    /// Whether ranks gain by copying from each other's memory, if that was measured.
    pub cross_memory_pays: Option<bool>,
    /// The IP address by which other machines reach this one, if the configuration names one that is its own.
    pub listens_at: Option<IpAddr>,
    /// CPUs and memory of the machine.
    pub machine: Machine,
}

/// The agent, which routes events to its parts.
pub struct Agent {
    state: AgentState,
    /// Events that arrived while step daemons were read.
    deferred: VecDeque<Event>,
    sessions: Sessions,
    inspections: Inspections,
    steps: Steps,
}

impl Agent {
    /// An agent that knows nothing yet.
    pub fn new(config: AgentConfig, started: Timestamp) -> Agent {
        Agent {
            state: AgentState::new(config, started),
            deferred: VecDeque::new(),
            sessions: Sessions::default(),
            inspections: Inspections::default(),
            steps: Steps::default(),
        }
    }

    /// Takes an event; what follows is added to the actions.
    pub fn on_event(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        self.state.now = now;
        match event {
            Event::StepdEvents {
                stepd,
                events,
                is_open,
            } => self.on_stepd_events(stepd, events, is_open),
            Event::StepdsRead => self.stepds_read(),
            // The event must not overtake deferred ones.
            event if self.state.reading.is_some() => self.deferred.push_back(event),
            event => self.dispatch(event),
        }
        self.state.out.move_to(actions);
    }

    /// Handles an event, after reading the step daemons that it may concern: a daemon reports the end of a step to
    /// the launcher first, then here, then to srun, so that a consequence of the end may arrive here before the end
    /// itself.
    fn dispatch(&mut self, event: Event) {
        let concerned = self.job_to_read_before(&event);
        match concerned
            .is_some_and(|attempt| self.steps.stepds.read_of(&mut self.state.out, attempt))
        {
            true => self.state.reading = Some(AfterRead::Event(Box::new(event))),
            false => self.handle(event),
        }
    }

    fn stepds_read(&mut self) {
        match self.state.reading.take() {
            Some(AfterRead::Event(event)) => self.handle(*event),
            Some(AfterRead::Placing(attempt)) => {
                self.steps.led.set_read(attempt);
                self.send_gathered();
            }
            None => {}
        }
        while self.state.reading.is_none()
            && let Some(event) = self.deferred.pop_front()
        {
            self.dispatch(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Dialed(dial) => {
                self.sessions
                    .dial(&mut self.state.out, dial, self.state.is_synced);
            }
            Event::ControllerAnswered(dial, key) => {
                self.sessions
                    .answer(&mut self.state.out, (dial, key), self.state.is_synced);
            }
            Event::ControllerUp => self.controller_up(),
            Event::Controller(message) => self.on_controller_message(message),
            Event::Orders {
                orders,
                bytes,
                launcher_seal,
            } => self.on_orders(*orders, bytes, launcher_seal),
            Event::ControllerLost => self.state.is_controller_up = false,
            Event::LauncherUp => self.launcher_up(),
            Event::Launcher(event) => self.on_launcher_event(*event),
            Event::LauncherLost => self.launcher_lost(),
            Event::StepOffered(stepd, is_written) => {
                self.steps.step_offered(&mut self.state, stepd, is_written)
            }
            Event::StepdEvents {
                stepd,
                events,
                is_open,
            } => self.on_stepd_events(stepd, events, is_open),
            Event::Request(request) => self.on_request(request),
            Event::ConnClosed(conn) => self.steps.step_client_gone(&mut self.state, conn),
            Event::PeerAnswered(request, answer) => {
                self.steps.peer_answered(&mut self.state, request, answer)
            }
            Event::TimerDue(timer) => self.timer_due(timer),
            Event::Idle => {
                self.steps.led.begin_looks();
                self.send_gathered();
            }
            Event::StepdsRead => {}
        }
    }

    fn timer_due(&mut self, timer: Timer) {
        match timer {
            Timer::Grant => self.steps.grant_wait_over(&mut self.state),
            Timer::EarlyTurns => {
                self.steps.node_steps.turns_come();
                self.steps.start_early(&mut self.state);
            }
            Timer::PlaceSteps => self.steps.led.resume_looks(),
            Timer::StepQueued(conn) => self.steps.led.notify_queued(&mut self.state, conn),
            Timer::Release(attempt) => self.release_wait_over(attempt),
            Timer::Reports => self.state.reports.wait_over(),
            Timer::Sample => self.steps.samples.sample_due(&mut self.state),
            Timer::EndDelivery(key) => {
                self.steps.tree.report_to_lead(&mut self.state.out, key);
            }
            Timer::FindParts(job, step) => {
                self.steps
                    .find_parts(&mut self.state, StepId::new(job, step));
            }
        }
    }

    /// Starts steps that fit, and sends what events have gathered.
    fn send_gathered(&mut self) {
        if !self.steps.try_steps(&mut self.state) {
            // Step daemons are read first.
            return;
        }
        if !self.state.is_controller_up {
            return;
        }
        let now_ms = self.state.now.mono_ms;
        let Some(reports) = self.state.reports.take_unsent(now_ms) else {
            if let Some(after_ms) = self.state.reports.start_timer(now_ms) {
                self.state.out.set_timer(Timer::Reports, after_ms);
            }
            return;
        };
        self.state.out.push(Action::SendReports(reports));
        while let Some(reports) = self.state.reports.take_unsent(now_ms) {
            self.state.out.push(Action::SendReports(reports));
        }
    }
}

fn encode<T: minicbor::Encode<()>>(value: &T) -> ByteVec {
    let bytes = minicbor::to_vec(value).expect("writing to memory cannot fail");
    bytes.into()
}
