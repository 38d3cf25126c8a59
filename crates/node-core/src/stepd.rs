//! The step daemon as a state machine. It runs the steps of its job one after the other, and decides when the tasks
//! start, which connections' requests are accepted, how the step ends, and who receives the report of its end.
//!
//! [`Stepd::on_event`] takes one event and returns the resulting actions. `muster_node::stepd` executes them. Output
//! of tasks passes through here unchanged; output of nodes below does not pass through here.

mod actions;
mod clients;
mod ending;
mod host;
mod interface;
pub mod phase;
mod recent_output;
mod step;
#[cfg(test)]
mod tests;
pub mod tree;
mod upward;

pub use interface::{
    Action, ClientId, Event, HostCommand, HostEvent, StartedTasks, StepSender, StepdSetup,
};
pub use step::EPILOG_KILLED;

use crate::messages::{KeptEntries, NextStep, RunningStep, StepdCommand, StepdEvent, VERSIONS};
use crate::now::Now;
use crate::stepd_reuse::result_path;
use actions::Actions;
use muster_model::ids::StepNo;
use muster_model::job::StepEnd;
use muster_proto::step::{FromStepd, ToStepd};
use muster_proto::version::Greeting;
use phase::Move;
use std::path::PathBuf;
use std::rc::Rc;
use step::Step;

/// The end of a step, and the file that has it.
#[derive(Debug)]
struct Ended {
    /// The file of the step's result.
    path: PathBuf,
    end: StepEnd,
    kept: KeptEntries,
}

/// The action that remains before the daemon exits, once it is known whether the launcher has read its earlier
/// messages.
#[derive(Debug)]
struct PendingExit {
    /// The end of its last step, if that is not reported.
    ended: Option<Ended>,
    /// srun, of a direct step.
    srun: Option<ClientId>,
}

/// The end of a step that is being reported to the launcher.
#[derive(Debug)]
struct ReportedEnd {
    ended: Ended,
    /// The message that reports it.
    frame: Rc<Vec<u8>>,
    /// srun, of a direct step.
    srun: Option<ClientId>,
}

/// See the module.
#[derive(Debug)]
pub struct Stepd {
    setup: StepdSetup,
    /// This node's name.
    node: Rc<str>,
    step: Option<Step>,
    reporting: Option<ReportedEnd>,
    pending_exit: Option<PendingExit>,
    /// A step that was given by the launcher while another ran, which a lost agent had given.
    early: Option<Box<NextStep>>,
    has_launcher: bool,
    /// Ends that were sent to the launcher, which may not have read them: if it is lost, they are lost with it.
    unread: Vec<Ended>,
    is_over: bool,
    out: Actions,
}

impl Stepd {
    /// A daemon with a launcher, and without a step.
    pub fn new(setup: StepdSetup) -> Stepd {
        Stepd {
            node: Rc::from(&*setup.node),
            setup,
            step: None,
            reporting: None,
            pending_exit: None,
            early: None,
            has_launcher: true,
            unread: Vec::new(),
            is_over: false,
            out: Actions::default(),
        }
    }

    /// When [`Event::TimeUp`] is to be sent, in milliseconds of the clock that never goes back.
    pub fn deadline(&self) -> Option<u64> {
        let step = self.step.as_ref()?;
        let all = [step.timers.first(), step.up.adoption_by];
        all.into_iter().flatten().min()
    }

    /// Whether the daemon has no step, and waits for one.
    pub fn is_idle(&self) -> bool {
        self.step.is_none()
    }

    /// The launcher may not have read all that it was sent.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// srun's acknowledgements are so far behind that tasks must wait.
    pub fn is_full(&self) -> bool {
        let tree = self.step.as_ref().and_then(|step| step.up.tree.as_ref());
        tree.is_some_and(tree::Tree::is_full)
    }

    /// Takes an event; the actions that follow from it are appended.
    pub fn on_event(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        self.out.now = now;
        if !self.is_over {
            self.take(event);
        }
        actions.append(&mut self.out.list);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::StepGiven(next, giver, srun) => self.step_given(next, giver, srun),
            // The message concerns a step that has ended. Its sender has recorded the end.
            Event::Command(StepdCommand::Exit) if self.is_idle() => {
                self.unread.clear();
                self.exit();
            }
            // It was on its way when this daemon went on to the next step.
            Event::Command(command) if command.step().is_some_and(|step| !self.runs(step)) => {}
            Event::LauncherHasRead => self.unread.clear(),
            Event::LauncherLost => {
                // The loss of the launcher is no reason to end while a step runs.
                self.has_launcher = false;
                self.leave_unread();
            }
            Event::EndReported { is_sent, had_read } => self.end_reported(is_sent, had_read),
            Event::LauncherChecked(has_read) => self.finish_exit(has_read),
            Event::Greeted {
                client,
                message: ToStepd::Adopt(greeting),
                is_own: true,
            } if !self.is_idle() => self.launcher_came(client, greeting.unwrap_or_default()),
            Event::Greeted { client, .. } if self.is_idle() => {
                self.out.push(Action::CloseClient(client));
            }
            Event::Broken(why) => self.break_off(&why),
            Event::WakeUpEnded if self.is_idle() => {
                if !self.has_launcher {
                    self.begin_exit(None, None);
                }
            }
            Event::WakeUpEnded => self.check_end(),
            event => {
                if let Some(step) = &mut self.step {
                    step.on_event(event, &mut self.out);
                }
            }
        }
    }

    fn runs(&self, step: StepNo) -> bool {
        let running = self.step.as_ref().map(|running| running.order.launch.step);
        running == Some(step)
    }

    fn step_given(&mut self, mut next: Box<NextStep>, giver: StepSender, srun: Option<ClientId>) {
        let is_idle = self.is_idle() && self.reporting.is_none();
        match giver {
            StepSender::Start(dirs) if is_idle => self.begin(*next, dirs, srun),
            StepSender::Launcher if is_idle => self.begin(*next, Vec::new(), srun),
            StepSender::Launcher => self.early = Some(next),
            StepSender::Agent if is_idle => match self.confine(&mut next) {
                Ok(()) => self.begin(*next, Vec::new(), srun),
                Err(why) => {
                    self.out.log(format!("a step is refused: {why}"));
                    self.out.list.extend(srun.map(Action::CloseClient));
                }
            },
            // While a step runs, no other is given.
            StepSender::Agent | StepSender::Start(_) => {
                self.out.list.extend(srun.map(Action::CloseClient));
            }
        }
    }

    /// Checks a step that an agent gives, and fills in the fields that the agent may not choose.
    fn confine(&self, next: &mut NextStep) -> Result<(), String> {
        let setup = &self.setup;
        setup.bounds.check(setup.attempt, &next.order)?;
        if next.order.pmix.is_some() {
            return Err(
                "the step needs a host, for which the launcher makes directories".to_owned(),
            );
        }
        let result = result_path(&setup.spool, setup.attempt, next.order.launch.step);
        next.result = result.to_string_lossy().into_owned();
        next.order.user = setup.bounds.user.clone();
        next.order.tmp_dir = setup.bounds.tmp_dir.clone();
        Ok(())
    }

    fn begin(&mut self, next: NextStep, dirs: Vec<PathBuf>, srun: Option<ClientId>) {
        let mut step = Step::new(next, dirs, Rc::clone(&self.node), &self.out);
        let order = Rc::clone(&step.order);
        self.out.push(Action::BeginStep(order, srun));
        if step.order.pmix.is_some() {
            self.out.push(Action::StartHost(step.dirs.clone()));
        }
        if let Some(srun) = srun {
            step.start_direct(srun, &mut self.out);
        }
        self.step = Some(step);
    }

    /// There is a new launcher.
    fn launcher_came(&mut self, client: ClientId, theirs: Greeting) {
        if VERSIONS.is_too_old(&theirs) {
            // The step's result will be in its file.
            let why = VERSIONS.difference(&theirs, "the launcher", "a step daemon");
            self.out.log(format!("{why}; it is refused"));
            return self.out.push(Action::CloseClient(client));
        }
        // The launcher looks for files when it has been answered.
        self.leave_unread();
        let Some(step) = &self.step else { return };
        let running = RunningStep {
            attempt: step.order.attempt,
            step: step.order.launch.step,
            pid: self.setup.pid,
            dirs: step.dirs.clone(),
            kept: step.kept.clone(),
            greeting: Some(VERSIONS.greeting()),
        };
        self.has_launcher = true;
        let running = Box::new(running);
        self.out.push(Action::AdoptLauncher(client, running));
    }

    fn check_end(&mut self) {
        let Some(step) = &mut self.step else { return };
        if !step.is_done(&mut self.out) {
            return;
        }
        let end = step.end(&self.out);
        let is_reusable = step.is_reusable();
        step.move_by(Move::Finish, &mut self.out);
        self.finish(end, is_reusable);
    }

    /// The daemon cannot go on.
    fn break_off(&mut self, why: &str) {
        let Some(step) = &mut self.step else {
            return self.exit();
        };
        let (job, number) = (step.order.attempt.job, step.order.launch.step);
        self.out.log(format!("step {job}.{number}: {why}"));
        step.move_by(Move::Break, &mut self.out);
        let end = StepEnd::never_ran(self.out.now.wall);
        self.finish(end, false);
    }

    /// The step has ended: releases its resources, and reports the end.
    fn finish(&mut self, end: StepEnd, is_reusable: bool) {
        let Some(step) = self.step.take() else { return };
        let (srun, other) = match step.up.client() {
            Some(client) if step.order.direct => (Some(client), None),
            other => (None, other),
        };
        self.out.list.extend(other.map(Action::CloseClient));
        if !step.dirs.is_empty() {
            let user = step.order.user.uid;
            let dirs = step.dirs;
            self.out.push(Action::RemoveDirs { user, dirs });
        }
        self.out.push(Action::EndStep);
        let number = step.order.launch.step;
        let frame = is_reusable.then(|| Rc::new(StepdEvent::ended(number, &end)));
        let ended = Ended {
            path: step.result,
            end,
            kept: step.kept,
        };
        match frame {
            Some(frame) if self.has_launcher => {
                self.out.push(Action::ReportEnd(Rc::clone(&frame)));
                self.reporting = Some(ReportedEnd { ended, frame, srun });
            }
            _ => self.begin_exit(Some(ended), srun),
        }
    }

    /// The order matters: a process that receives the end later finds it where it was reported before.
    fn end_reported(&mut self, is_sent: bool, had_read: bool) {
        let Some(ReportedEnd { ended, frame, srun }) = self.reporting.take() else {
            return;
        };
        if !is_sent {
            // Half a frame is none: it learns the rest from the file.
            self.has_launcher = false;
            return self.begin_exit(Some(ended), srun);
        }
        if had_read {
            self.unread.clear();
        }
        self.out.push(Action::SendAgent(frame));
        self.unread.push(ended);
        self.close_direct_srun(srun, true);
        if let Some(next) = self.early.take() {
            self.begin(*next, Vec::new(), None);
        }
    }

    /// Closes the connection to the srun of a direct step. Where the end is not recorded yet, it learns the rest from the agent.
    fn close_direct_srun(&mut self, srun: Option<ClientId>, is_recorded: bool) {
        let Some(srun) = srun else { return };
        if is_recorded {
            self.out
                .push(Action::Send(FromStepd::NodeTasksEnded, false));
        }
        self.out.push(Action::CloseClient(srun));
    }

    /// Begins the exit of the process: ends of steps that nobody is known to have read are left in files.
    fn begin_exit(&mut self, ended: Option<Ended>, srun: Option<ClientId>) {
        self.pending_exit = Some(PendingExit { ended, srun });
        match self.has_unread() && self.has_launcher {
            true => self.out.push(Action::CheckLauncher),
            false => self.finish_exit(false),
        }
    }

    fn exit(&mut self) {
        self.begin_exit(None, None);
    }

    fn finish_exit(&mut self, has_read: bool) {
        let Some(PendingExit { ended, srun }) = self.pending_exit.take() else {
            return;
        };
        if has_read {
            self.unread.clear();
        }
        self.leave_unread();
        self.out.list.extend(ended.map(Ended::leave_result));
        self.close_direct_srun(srun, false);
        self.is_over = true;
        self.out.push(Action::Exit);
    }

    /// Leaves files of the ends that the launcher is not known to have read.
    fn leave_unread(&mut self) {
        let unread = self.unread.drain(..);
        self.out.list.extend(unread.map(Ended::leave_result));
    }
}

impl Ended {
    fn leave_result(self) -> Action {
        Action::LeaveResult(self.path, Box::new(self.end), self.kept)
    }
}
