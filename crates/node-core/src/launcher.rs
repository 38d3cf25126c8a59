//! The launcher of a node: it starts and ends jobs, prologs and step daemons, and outlives the agent, which may
//! crash, restart or be upgraded while they run. It makes no decision of the controller's; it stores how jobs ended
//! until the agent reports that the controller has recorded it.
//!
//! [`Launcher`] makes all decisions. Its executor in `muster-node` delivers [`interface::Event`]s and carries out
//! [`interface::Action`]s in order; results of an action are delivered before other events. It reads no clock and
//! does no I/O.

mod actions;
mod checks;
mod containers;
pub mod context;
mod daemons;
mod delivery;
mod early_steps;
mod end;
mod ending;
mod groups;
pub mod interface;
mod job;
mod known;
mod last_lines;
mod launch;
mod launches;
mod measure;
mod membership;
mod node;
mod notices;
mod orders;
mod phase;
mod program_events;
mod programs;
mod records;
mod recover;
mod retry;
mod scripts;
mod session;
mod signals;
mod site;
mod state;
mod step_process;
mod steps;
#[cfg(test)]
mod tests;
mod waiting;
mod writers;

pub use checks::check_agent;
pub use containers::CONTAINER_LACK_STATUS;
pub use end::{EncodedEnd, StepdEventRef};
pub use interface::{JobProcesses, ProcessQuery, StepResult, UserAccount};
pub use membership::known_jobs;
pub use node::LauncherSetup;
pub use phase::{Move, NodeJobPhase};
pub use records::{Fault, LaunchFailure, LauncherRecords, RecordedAttempt};
pub use steps::{is_step_dir, step_of_result};

use crate::binding::Machine;
use crate::messages::{AttachAgent, LauncherCommand, LauncherEvent, MachineClaim};
use crate::now::Now;
use interface::{Action, Event, RootConnId, Timer};
use job::JobEntry;
use launches::Launches;
use measure::Measurements;
use minicbor::bytes::ByteVec;
use muster_model::command::SignalScope;
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_model::job::ResourceUsage;
use muster_proto::node::JobGrant;
use session::{ControllerSession, OrderTarget};
use site::SitePrograms;
use state::{LauncherState, Role};
use waiting::Delivery;

/// The launcher. It routes events to its parts, and handles those that concern several parts.
pub struct Launcher {
    state: LauncherState,
    session: ControllerSession,
    measurements: Measurements,
    site: SitePrograms,
    launches: Launches,
    is_exiting: bool,
}

impl Launcher {
    /// A launcher with these records, which does nothing before [`Event::Recovered`].
    pub fn new(setup: LauncherSetup, records: LauncherRecords) -> Launcher {
        Launcher {
            state: LauncherState::new(setup, records),
            session: ControllerSession::default(),
            measurements: Measurements::default(),
            site: SitePrograms::default(),
            launches: Launches::default(),
            is_exiting: false,
        }
    }

    /// Processes an event, and appends the resulting actions.
    pub fn on_event(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        self.state.now = now;
        self.state.actions.now = now;
        std::mem::swap(&mut self.state.actions.list, actions);
        self.handle(event);
        std::mem::swap(&mut self.state.actions.list, actions);
    }

    fn handle(&mut self, event: Event) {
        if !matches!(event, Event::WakeUpEnded | Event::RecordsAppended(_)) {
            self.launches.is_full = false;
        }
        match event {
            Event::Recovered(left) => self.recover(*left),
            Event::Attached(attach, machine) => self.attach(*attach, machine.map(|m| *m)),
            Event::AgentLost => self.lose_agent(),
            Event::StopRequested { conn, kill } => self.stop(conn, kill),
            Event::ExitWhenIdle => self.is_exiting = true,
            Event::KillAll => self.kill_all(),
            Event::OpenSession(secret) => self.open_session(secret),
            Event::Sealed {
                orders,
                seal,
                local_time,
            } => self.take_sealed(&orders, &seal, &local_time),
            Event::StartStep { order, random } => self.state.start_step(order, random),
            Event::Command(command) => self.take_command(command),
            Event::ControllerKeyChecked(checked) => self.controller_key_checked(checked),
            Event::ChildEnded {
                pid,
                status,
                usage,
                failure,
            } => self.child_ended(pid, status, *usage, failure),
            Event::GroupsEmptied => self.state.is_unsettled = true,
            Event::ScriptOutOfMemory(attempt, kills) => {
                if let Some(entry) = self.state.jobs.get_mut(&attempt) {
                    entry.oom_kills = kills;
                }
            }
            Event::WatchedEnded { pid, status } => self.watched_ended(pid, status),
            Event::LaunchPrepared(attempt, files) => {
                self.launches
                    .launch_prepared(&mut self.state, attempt, files)
            }
            Event::ScriptStarted(attempt, pid) => {
                self.launches.script_started(&mut self.state, attempt, pid)
            }
            Event::ProgramsStarted(attempt, kind, pid) => {
                self.launches
                    .programs_started(&mut self.state, attempt, kind, pid)
            }
            Event::MessageStarted(attempt, kind, pid) => {
                self.launches
                    .writers
                    .message_started(&mut self.state, attempt, kind, pid)
            }
            Event::RemovalStarted(attempt, pid) => {
                self.launches
                    .writers
                    .removal_started(&mut self.state, attempt, pid)
            }
            Event::SiteProgramStarted(kind, pid) => {
                self.site.site_program_started(&mut self.state, kind, pid)
            }
            Event::StepdStarted(attempt, step, stepd) => {
                self.launches
                    .daemons
                    .stepd_started(&mut self.state, attempt, step, stepd)
            }
            Event::StepGiven(attempt, step, is_sent) => {
                self.launches
                    .daemons
                    .step_given(&mut self.state, attempt, step, is_sent)
            }
            Event::StepEnded(stepd, step, end) => {
                self.launches
                    .daemons
                    .step_reported(&mut self.state, stepd, step, end)
            }
            Event::StepdClosed(stepd) => self.state.stepd_closed(stepd),
            Event::NotSent(stepd, command) => {
                self.launches
                    .daemons
                    .not_sent(&mut self.state, stepd, &command)
            }
            Event::StepdRunning(stepd, socket, step) => {
                self.launches
                    .daemons
                    .adopt(&mut self.state, stepd, socket, *step)
            }
            Event::StepdsAsked => self.state.actions.push(Action::ListResults),
            Event::StepdWatched(attempt, step, pid, belongs) => {
                self.launches.daemons.stepd_watched(
                    &mut self.state,
                    AttemptStep::new(attempt, step),
                    pid,
                    belongs,
                );
            }
            Event::ResultRead {
                attempt,
                step,
                purpose,
                result,
            } => self.launches.daemons.result_read(
                &mut self.state,
                AttemptStep::new(attempt, step),
                purpose,
                result,
            ),
            Event::ResultsListed(results) => self.state.results_listed(results),
            Event::StepHasNoTasks(attempt, step, signal) => {
                self.state.step_has_no_tasks(attempt, step, signal)
            }
            Event::RecordsAppended(written) => {
                self.launches.records_appended(&mut self.state, written)
            }
            Event::RecordsRewritten(written) => {
                self.launches.records_rewritten(&mut self.state, written)
            }
            Event::GroupsFound(account, groups) => {
                self.launches
                    .groups_found(&mut self.state, &account, groups)
            }
            Event::LastLinesRead(attempt, bytes) => {
                self.launches
                    .last_lines_read(&mut self.state, attempt, &bytes)
            }
            Event::Measured(id, bytes) => {
                self.measurements
                    .measured(&mut self.state, id, bytes.as_deref())
            }
            Event::LeftoversFound {
                left,
                is_unclear,
                since_ms,
            } => self
                .launches
                .leftovers_found(&mut self.state, left, is_unclear, since_ms),
            Event::TimerDue(key) => self.timer_due(key),
            Event::WakeUpEnded => {
                let before = self.state.actions.list.len();
                self.finish_wakeup();
                // Signals that wait come after all else.
                if self.state.actions.list.len() == before {
                    let round = self
                        .launches
                        .signals
                        .waiting
                        .take_round(&self.state.jobs, &mut self.state.actions);
                    self.launches.signals.deliver(&mut self.state, round);
                }
            }
        }
    }

    fn timer_due(&mut self, key: Timer) {
        match key {
            Timer::Kill(attempt) => self.launches.kill_wait_over(&mut self.state, attempt),
            Timer::Retry(attempt) => self.launches.retry(&mut self.state, attempt),
            Timer::Stop(attempt) => self
                .launches
                .signals
                .stop_announced(&mut self.state, attempt),
            Timer::Programs(attempt) => self
                .launches
                .programs
                .programs_late(&mut self.state, attempt),
            Timer::Writer(attempt, pid) => {
                self.launches
                    .writers
                    .writer_late(&mut self.state, attempt, pid)
            }
            Timer::LookUp(account) => self.state.look_up_late(account),
            Timer::LastLines(attempt) => {
                last_lines::stop(&mut self.state, attempt);
                self.launches.last_lines_read(&mut self.state, attempt, &[]);
            }
            Timer::Measurement(id) => self.measurements.measurement_late(&mut self.state, id),
            // The wake-up itself is the effect.
            Timer::Signals => {}
            Timer::HealthCheck => self.site.check_health(&mut self.state),
            Timer::SiteProgram(pid) => self.site.kill_late(pid, &mut self.state.actions),
        }
    }

    /// Carries out what an agent asks for, where it may.
    fn take_command(&mut self, command: LauncherCommand) {
        if let Some(why) = self.refusal(&command) {
            let line = format!("{why}: {}", checks::shown(&command));
            self.state.actions.log_refusal(&line);
            if let LauncherCommand::StepAssigned { attempt, step, .. } = command {
                self.state.report_lost(attempt, step);
            }
            return;
        }
        match command {
            // These commands arrive as separate events.
            LauncherCommand::Attach(_)
            | LauncherCommand::Stop { .. }
            | LauncherCommand::StartStep(_)
            | LauncherCommand::OpenSession
            | LauncherCommand::Sealed { .. } => {}
            LauncherCommand::BeginSession(key) => self.begin_session(&key),
            LauncherCommand::SignalStep {
                attempt,
                step,
                signal,
            } => {
                let delivery = Delivery::signal(Some(step), signal, SignalScope::Steps);
                let job = (self.state.jobs.get(&attempt), &mut self.state.actions);
                self.launches.signals.waiting.add(job, attempt, delivery);
            }
            LauncherCommand::EndStep { attempt, step } => {
                let job = (self.state.jobs.get(&attempt), &mut self.state.actions);
                self.launches
                    .signals
                    .waiting
                    .add(job, attempt, Delivery::EndStep(step));
            }
            LauncherCommand::PrintLine {
                attempt,
                text,
                step: Some(step),
                ..
            } => self.state.print_in_step(attempt, step, &text),
            LauncherCommand::PrintLine {
                attempt,
                text,
                kill,
                ..
            } => self
                .launches
                .writers
                .print_in_script(&mut self.state, attempt, text, kill),
            LauncherCommand::StepAssigned { attempt, step, pid } => {
                self.launches
                    .daemons
                    .step_assigned(&mut self.state, attempt, step, pid);
            }
            LauncherCommand::ReleaseStepd { attempt, pid } => {
                self.launches
                    .daemons
                    .release_stepd(&mut self.state, attempt, pid)
            }
            LauncherCommand::Forget(attempt) => self.forget(attempt),
            LauncherCommand::ForgetStep(attempt, step) => self.state.forget_step(attempt, step),
            LauncherCommand::Keep {
                attempt,
                key,
                bytes,
            } => {
                if self.state.jobs.contains_key(&attempt) {
                    self.state.records.keep(attempt, key, bytes);
                }
            }
            LauncherCommand::Inspect { job, tag } => {
                self.measurements
                    .measure(&mut self.state, job, tag, ProcessQuery::List)
            }
            LauncherCommand::Measure { job, tag, memory } => {
                self.measurements
                    .measure(&mut self.state, job, tag, ProcessQuery::Usage(memory));
            }
        }
    }

    /// Root wants this process to end.
    fn stop(&mut self, conn: RootConnId, kill: bool) {
        if kill {
            return self.kill_all();
        }
        match self.busy() {
            0 => self.is_exiting = true,
            jobs => self
                .state
                .actions
                .push(Action::Answer(conn, LauncherEvent::Busy(jobs))),
        }
    }

    /// The agent is gone. The next one is to be sent steps, too, that this one has given to waiting daemons and not reported.
    fn lose_agent(&mut self) {
        self.state.actions.is_attached = false;
        self.launches.daemons.take_back(&mut self.state);
    }

    /// A new agent: it is sent everything that was not forgotten.
    fn attach(&mut self, attach: AttachAgent, machine: Option<Machine>) {
        self.measurements.stop_measurements(&mut self.state);
        self.state.node.place = OrderTarget {
            cluster: attach.cluster,
            node: attach.node,
        };
        self.state.node.conf = attach.conf;
        self.state.node.claim = attach.claim;
        if machine.is_some() {
            self.state.node.machine = machine;
        }
        // The one before belonged to a connection of the agent before.
        self.session = ControllerSession::default();
        self.site.forget(&mut self.state.actions);
        self.state.actions.is_attached = true;
        self.launches.daemons.take_back(&mut self.state);
        let mut events = known::all_known(&self.state);
        for (&attempt, e) in &self.state.jobs {
            events.extend(e.outcome.clone());
            for (&step, process) in &e.steps {
                events.extend(process.ended.as_ref().map(|end| LauncherEvent::StepEnded {
                    attempt,
                    step,
                    end: Box::new(end.decoded(self.state.now.wall)),
                }));
            }
            let fault = e.fault.clone();
            events.extend(fault.map(|error| LauncherEvent::NodeFault { attempt, error }));
            if e.phase.is_released() {
                events.push(LauncherEvent::Released(attempt));
            }
        }
        events
            .into_iter()
            .for_each(|event| self.state.actions.send(event));
    }

    /// Whether [`Event::Attached`] has to bring the machine, as another is known for this claim.
    pub fn needs_machine(&self, claim: &MachineClaim) -> bool {
        self.state.node.machine.is_none() || self.state.node.claim != *claim
    }

    fn child_ended(
        &mut self,
        pid: i32,
        status: i32,
        usage: ResourceUsage,
        failure: Option<interface::ScriptFailure>,
    ) {
        self.state.is_unsettled = true;
        match self.state.roles.remove(&pid) {
            Some(Role::Script(attempt)) => {
                self.launches.script_ended(
                    &mut self.state,
                    attempt,
                    Some(status),
                    usage.of_task(0, 0),
                    failure,
                );
            }
            Some(Role::Step(attempt, step)) => {
                self.state.stepd_ended(attempt, step);
                self.state.actions.push(Action::RetireMember(attempt, pid));
            }
            Some(Role::Spare(attempt)) => {
                self.launches
                    .daemons
                    .spare_ended(&mut self.state, attempt, pid);
                self.state.actions.push(Action::RetireMember(attempt, pid));
            }
            Some(Role::Message(attempt, kind)) => {
                self.launches
                    .writers
                    .writer_ended(&mut self.state, attempt, pid);
                self.launches
                    .writers
                    .message_written(&mut self.state, attempt, kind);
            }
            Some(Role::Remover(attempt)) => {
                self.launches
                    .writers
                    .writer_ended(&mut self.state, attempt, pid)
            }
            Some(Role::Prolog(attempt)) => {
                self.launches.prolog_ended(&mut self.state, attempt, status)
            }
            Some(Role::Epilog(attempt)) => {
                self.launches.epilog_ended(&mut self.state, attempt, status)
            }
            Some(Role::Container(attempt)) => {
                self.launches
                    .container_made(&mut self.state, attempt, status)
            }
            Some(Role::ContainerRemoval(attempt)) => self
                .launches
                .programs
                .container_gone(&mut self.state, attempt),
            Some(Role::Site) => self.site.ended(pid, status, &mut self.state.actions),
            Some(Role::Other) | None => {}
        }
    }

    /// A process that is watched ended.
    fn watched_ended(&mut self, pid: i32, status: Option<i32>) {
        self.state.is_unsettled = true;
        match self.state.roles.remove(&pid) {
            Some(Role::Script(attempt)) => self.launches.script_ended(
                &mut self.state,
                attempt,
                status,
                ResourceUsage::default(),
                None,
            ),
            // The daemon may have had earlier steps, whose ends were never reported.
            Some(Role::Step(attempt, _)) => {
                let entry = self.state.jobs.get(&attempt);
                let steps = entry.map_or_else(Vec::new, |e| e.live_steps_in(pid));
                steps
                    .into_iter()
                    .for_each(|step| self.state.stepd_ended(attempt, step));
            }
            // Only these are watched.
            Some(
                Role::Spare(_)
                | Role::Message(..)
                | Role::Remover(_)
                | Role::Prolog(_)
                | Role::Epilog(_)
                | Role::Container(_)
                | Role::ContainerRemoval(_)
                | Role::Site
                | Role::Other,
            )
            | None => {}
        }
    }

    fn forget(&mut self, attempt: JobAttempt) {
        let is_released = |e: &JobEntry| e.phase.is_released();
        if !self.state.jobs.get(&attempt).is_some_and(is_released)
            || !self.state.advance(attempt, Move::Forget)
        {
            return;
        }
        let entry = self.state.jobs.remove(&attempt);
        let script = entry.and_then(|e| e.grant?.spec.script);
        if let Some(id) = script.filter(|id| self.launches.scripts.stale_scripts.remove(id)) {
            self.launches.scripts.drop_script(&mut self.state, id);
        }
        if self.launches.signals.stops.remove(&attempt) {
            self.state.actions.stop_timer(Timer::Stop(attempt));
        }
        self.launches.signals.waiting.take_last(attempt, None);
        self.launches.writers.notices.forget(attempt);
        self.state.without_groups.remove(&attempt);
        self.state.sessions.retain(|_, owner| *owner != attempt);
        self.state.actions.push(Action::ForgetMembers(attempt));
        self.state.records.forgotten(attempt);
    }

    /// Jobs that have processes.
    fn busy(&self) -> u32 {
        let is_alive = |e: &&JobEntry| {
            let begins = e.phase == NodeJobPhase::Recording;
            !e.phase.is_released() && (begins || e.is_busy())
        };
        u32::try_from(self.state.jobs.values().filter(is_alive).count()).unwrap_or(u32::MAX)
    }

    /// Kill everything, then exit.
    fn kill_all(&mut self) {
        self.is_exiting = true;
        self.launches.programs.end_programs(&mut self.state);
        let attempts: Vec<JobAttempt> = self.state.jobs.keys().copied().collect();
        for attempt in attempts {
            if !self.launches.end_unbegun(&mut self.state, attempt)
                && !self.state.jobs[&attempt].phase.is_released()
            {
                self.launches
                    .begin_end(&mut self.state, attempt, Move::Terminate);
                self.launches.kill_job(&mut self.state, attempt);
            }
        }
    }

    /// Whether the process may end now.
    pub fn may_exit(&self) -> bool {
        self.is_exiting && self.busy() == 0 && self.state.ending.is_empty()
    }

    /// Writes pending records, begins jobs whose records are on file, and settles ending jobs: one of these at a
    /// time, because the later ones depend on the earlier.
    fn finish_wakeup(&mut self) {
        let waits = !self.launches.recording.is_empty() || !self.state.recording_steps.is_empty();
        if waits && !self.launches.is_full {
            return self.launches.write_records(&mut self.state);
        }
        if std::mem::take(&mut self.state.is_unsettled) && self.launches.settle(&mut self.state) {
            return;
        }
        if std::mem::take(&mut self.launches.share_is_free) {
            self.launches.go_on_with_queued(&mut self.state);
        }
        if !self.launches.is_full {
            self.launches.write_records(&mut self.state);
        }
    }
}

/// A grant as it is kept on file, and sent to agents.
fn encoded(grant: &JobGrant) -> ByteVec {
    let bytes = minicbor::to_vec(grant).expect("writing to memory cannot fail");
    bytes.into()
}
