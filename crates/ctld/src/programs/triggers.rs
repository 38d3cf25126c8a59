//! Programs of triggers (`strigger`). Those of the controller's own user have a queue of their own, so that programs of users keep
//! none waiting. A controller that is root runs a user's program by [`crate::trigger_program`]: a process of its own, which has
//! nothing of the controller's memory, becomes the user.

use super::plan::ProgramPlan;
use super::queue::{NextProgram, ProgramQueue, QueueBounds};
use super::{Invocation, begin, end};
use crate::failure;
use crate::mail::ToWriter;
use crate::program_settings::ProgramSettings;
use crate::trigger_program::TriggerOwner;
use log::error;
use muster_channel::admission::ByteBounds;
use muster_core::state::State;
use muster_model::trigger::{TriggerReport, TriggerRun, TriggerRunId};
use nix::unistd::geteuid;
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How long the program of a trigger may take; from Slurm.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// How many triggers there may be says how many programs wait: the queue has no bounds.
const BOUNDS: QueueBounds = QueueBounds {
    what: "trigger",
    at_once: 64,
    of_user: 16,
    items: usize::MAX,
    bytes: ByteBounds {
        own: usize::MAX,
        all: usize::MAX,
        few: 0,
    },
    cut_beyond: usize::MAX,
};

/// Whether the controller stops. Who starts a program holds it until the writer has been informed: what is started while the
/// controller stops would be started again by the next one.
static IS_STOPPED: RwLock<bool> = RwLock::new(false);

/// No program is started from now on; all that were are reported to the writer.
pub(crate) fn stop() {
    *IS_STOPPED.write().unwrap_or_else(PoisonError::into_inner) = true;
}

/// Starts programs of triggers.
pub(super) struct TriggerPrograms {
    /// Of the user that the controller runs as.
    own: ProgramQueue,
    /// Of others.
    others: ProgramQueue,
}

impl TriggerPrograms {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn start(writer: &Sender<ToWriter>) -> std::io::Result<TriggerPrograms> {
        let programs = TriggerPrograms {
            own: ProgramQueue::new(QueueBounds {
                of_user: BOUNDS.at_once,
                ..BOUNDS
            }),
            others: ProgramQueue::new(BOUNDS),
        };
        for queue in [&programs.own, &programs.others] {
            let (queue, writer) = (queue.clone(), writer.clone());
            failure::spawn_essential("triggers", move || {
                run_all(&queue, &writer);
                Ok(())
            })?;
        }
        Ok(programs)
    }

    /// Runs what has begun and was not started when the controller ended.
    pub(super) fn resume(&self, state: &State, settings: &Arc<ProgramSettings>) {
        let begun = state.triggers.runs().values().filter(|run| run.begun);
        begun.for_each(|run| self.push(run, settings));
    }

    /// Runs the program of a trigger if its time has come.
    pub(super) fn run(&self, state: &State, id: TriggerRunId, settings: &Arc<ProgramSettings>) {
        let run = state.triggers.runs().get(&id);
        if let Some(run) = run.filter(|run| run.begun) {
            self.push(run, settings);
        }
    }

    fn push(&self, run: &TriggerRun, settings: &Arc<ProgramSettings>) {
        let plan = ProgramPlan::of_trigger(run.id, invocation(run, settings), settings);
        match run.uid == geteuid().as_raw() {
            true => self.own.push(run.uid, plan),
            false => self.others.push(run.uid, plan),
        }
    }

    /// No more are run.
    pub(super) fn close(&self) {
        self.own.close();
        self.others.close();
    }
}

/// The program of a trigger, with what it was about as its last argument.
fn invocation(run: &TriggerRun, settings: &ProgramSettings) -> Invocation {
    let words = run.program.split_ascii_whitespace().map(str::to_owned);
    let mut args: Vec<String> = words.collect();
    args.push(run.argument.clone());
    let program = args.remove(0);
    let own = geteuid().as_raw();
    Invocation {
        what: "trigger",
        program,
        args,
        env: vec![super::variable("SLURM_CONF", &settings.conf_path)],
        file: None,
        time_limit: Some(TIME_LIMIT),
        owner: (run.uid != own).then_some(TriggerOwner {
            uid: run.uid,
            gid: run.gid,
        }),
    }
}

/// Starts a program and reports that, unless the controller stops.
fn start(
    invocation: &Invocation,
    trigger: Option<TriggerRunId>,
    writer: &Sender<ToWriter>,
) -> Option<std::io::Result<Child>> {
    let is_stopped = IS_STOPPED.read().unwrap_or_else(PoisonError::into_inner);
    if *is_stopped {
        return None;
    }
    let begun = begin(invocation);
    // Once this is durable it is not started again.
    if let Some(run) = trigger {
        let _ = writer.send(ToWriter::Trigger(TriggerReport::Started(run)));
    }
    drop(is_stopped);
    Some(begun)
}

fn run_all(queue: &ProgramQueue, writer: &Sender<ToWriter>) {
    while let Some(NextProgram { uid, plan }) = queue.next() {
        let (inside, writer) = (queue.clone(), writer.clone());
        let work = move || {
            let trigger = plan.trigger();
            let invocation = plan.invocation();
            if let Some(begun) = start(&invocation, trigger, &writer) {
                end(begun, &invocation);
            }
            inside.leave(uid);
        };
        if let Err(e) = failure::spawn_worker("trigger", work) {
            error!("the program of a trigger is not run: cannot start thread: {e}");
            queue.leave(uid);
        }
    }
}
