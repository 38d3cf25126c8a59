//! Actions of a step daemon: messages, tasks and files.

use super::stepds::StepdExecutor;
use super::{Outcome, stepd_tasks, trace};
use crate::Violation;
use crate::node::{Direction, Greeted, StepTasks};
use muster_model::ids::AttemptStep;
use muster_node_core::messages::{RunningStep, StepOrder, StepdEvent};
use muster_node_core::stepd::{Action, ClientId, Event};
use muster_node_core::stepd_reuse::result_path;
use muster_proto::frame::{self, Frames};
use muster_proto::step::FromStepd;
use std::rc::Rc;

impl StepdExecutor<'_> {
    pub(super) fn execute(&mut self, action: Action) -> Outcome {
        let now = self.world.now;
        let Some(process) = self.process() else {
            return Ok(());
        };
        match action {
            Action::Log(line) => {
                if line.contains("unexpected event") {
                    let detail = format!("{}: {line}", self.name());
                    return Err(Violation::new("invariant_steps_follow_the_table", detail));
                }
                let (name, pid) = (self.name().to_owned(), self.pid);
                trace!(self.world, "{name}: step daemon {pid}: {line}");
            }
            Action::BeginStep(order, srun) => self.begin_step(order, srun),
            Action::Send(message, _) => self.send_client(&frame::encode(&message)),
            Action::SendFrame(frame, _) => self.send_client(&frame),
            Action::AwaitFlush => {
                let is_late = self.world.random.one_in(4);
                let delay = self.world.hop();
                if let Some(process) = self.process() {
                    process.flushed_at = Some(now + if is_late { delay } else { 0 });
                }
            }
            Action::Refuse(id, refusal) => {
                if let Some((_, Greeted::Link(link))) =
                    process.clients.greeted.take_if(|(of, _)| *of == id)
                {
                    let refused = frame::encode(&FromStepd::Refused(refusal));
                    self.world
                        .step_network()
                        .send(link, Direction::Up, &refused);
                    self.world.step_network().close(link, Direction::Up);
                }
            }
            Action::TakeClient(id) => {
                process.flushed_at = None;
                if let Some((id, Greeted::Link(link))) =
                    process.clients.greeted.take_if(|(of, _)| *of == id)
                {
                    process.clients.client = Some((id, link));
                }
            }
            // Nobody attaches to steps here.
            Action::TakeReader(..) | Action::SendReaders(_) => {}
            Action::CloseClient(id) => self.close_client(id),
            Action::AdoptLauncher(id, running) => self.adopt_launcher(id, running),
            Action::ReportEnd(frame) => self.report_end(&frame)?,
            Action::SendAgent(frame) => {
                if let Some(channel) = process.agent_channel {
                    self.send_up(channel, &frame);
                }
            }
            Action::CheckLauncher => {
                let has_read = self.has_launcher_read();
                self.answer(Event::LauncherChecked(has_read));
            }
            Action::LeaveResult(path, end, kept) => {
                let attempt = process.attempt;
                let Some(step) = process.results.get(&path).copied() else {
                    let detail = format!("{}: {} is of no step", self.name(), path.display());
                    return Err(Violation::new("invariant_results_are_of_steps", detail));
                };
                let here = &mut self.world.nodes[self.node];
                if !here
                    .disk
                    .leave(AttemptStep::new(attempt, step), *end, kept, now)
                {
                    here.disturbed_at = now;
                    let lost = AttemptStep::new(attempt, step);
                    self.world.truth.lost_results.insert(lost);
                    let name = self.name().to_owned();
                    let job = attempt.job;
                    trace!(
                        self.world,
                        "{name}: the result of step {job}.{step} is lost"
                    );
                }
            }
            Action::RemoveDirs { .. } => {}
            Action::EndStep => {
                process.order = None;
                process.tasks = StepTasks::default();
                let below = std::mem::take(&mut process.below);
                let strangers = std::mem::take(&mut process.clients.strangers);
                for node in below.into_values() {
                    self.world.step_network().close(node.link, Direction::Down);
                }
                for (_, link) in strangers {
                    self.world.step_network().close(link, Direction::Up);
                }
            }
            Action::Exit => return self.world.machines().end_process(self.node, self.pid, 0),
            action => return stepd_tasks::execute_for_tasks(self, action),
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, event: Event) {
        if let Some(process) = self.process() {
            process.events.push_back(event);
        }
    }

    fn begin_step(&mut self, order: Rc<StepOrder>, srun: Option<ClientId>) {
        let spool = self.world.nodes[self.node].spool();
        let path = result_path(spool.as_ref(), order.attempt, order.launch.step);
        let Some(process) = self.process() else {
            return;
        };
        process.results.insert(path, order.launch.step);
        process.order = Some(order);
        process.tasks = StepTasks::default();
        let handed_over = process.clients.handed_over;
        if let Some((id, link)) = handed_over.filter(|(id, _)| srun == Some(*id)) {
            process.clients.handed_over = None;
            process.clients.client = Some((id, link));
            process.flushed_at = None;
        }
    }

    fn send_client(&mut self, frame: &[u8]) {
        if let Some((_, link)) = self.process().and_then(|p| p.clients.client) {
            self.world.step_network().send(link, Direction::Up, frame);
        }
    }

    fn close_client(&mut self, id: ClientId) {
        let Some(process) = self.process() else {
            return;
        };
        let clients = &mut process.clients;
        let is_it = |of: ClientId| of == id;
        let client = clients.client.take_if(|(of, _)| is_it(*of));
        let handed_over = clients.handed_over.take_if(|(of, _)| is_it(*of));
        let greeted = clients.greeted.take_if(|(of, _)| is_it(*of));
        for (_, link) in client.into_iter().chain(handed_over) {
            self.world.step_network().close(link, Direction::Up);
        }
        if let Some((_, greeted)) = greeted {
            self.close_greeted(greeted);
        }
    }

    fn adopt_launcher(&mut self, id: ClientId, running: Box<RunningStep>) {
        let greeted = self
            .process()
            .and_then(|p| p.clients.greeted.take_if(|(of, _)| *of == id));
        self.close_launcher();
        if let (Some((_, Greeted::Launcher(channel))), Some(process)) = (greeted, self.process()) {
            process.launcher_channel = Some(channel);
            let frame = frame::encode(&StepdEvent::StepRunning(running));
            if self.send_up(channel, &frame) {
                return;
            }
            self.close_launcher();
        }
        self.answer(Event::LauncherLost);
    }

    fn report_end(&mut self, frame: &[u8]) -> Outcome {
        let had_read = self.process().is_some_and(|p| p.machine.has_unread()) && self.is_all_read();
        let channel = self.process().and_then(|p| p.launcher_channel);
        let is_sent = channel.is_some_and(|channel| self.send_up(channel, frame));
        if !is_sent {
            self.close_launcher();
        }
        self.answer(Event::EndReported { is_sent, had_read });
        Ok(())
    }

    /// Sends to agent or launcher; whether it is there.
    fn send_up(&mut self, channel: u64, frame: &[u8]) -> bool {
        let mut frames = Frames::default();
        frames.push(frame);
        let channels = &mut self.world.nodes[self.node].machine.channels;
        let open = channels.get_mut(&channel).filter(|c| !c.is_upper_closed);
        let (Some(open), Ok(Some(event))) = (open, frames.take::<StepdEvent>()) else {
            return false;
        };
        open.up.push_back(event);
        self.world.machines().wake_upper(self.node, channel);
        true
    }
}
