//! Programs of triggers (`strigger`). Those of administrators have a queue of their own, so that programs of users keep none
//! waiting. A controller that is root runs a user's program by [`crate::trigger_program`]: a process of its own, which has
//! nothing of the controller's memory, becomes the user.

use super::plan::ProgramPlan;
use super::queue::{PlacedProgram, ProgramQueue, QueueBounds};
use super::{Invocation, begin, end};
use crate::failure;
use crate::mail::ToWriter;
use crate::program_settings::ProgramSettings;
use crate::trigger_program::TriggerOwner;
use log::{error, warn};
use muster_channel::admission::ByteBounds;
use muster_core::state::State;
use muster_model::trigger::{TriggerReport, TriggerRun, TriggerRunId};
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Time limit of the program of a trigger; from Slurm.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Bounds of the queue: none, since the limit of triggers limits the waiting programs.
const BOUNDS: QueueBounds = QueueBounds {
    what: "trigger",
    at_once: 64,
    of_user_at_once: usize::MAX,
    items: usize::MAX,
    bytes: ByteBounds {
        own: usize::MAX,
        all: usize::MAX,
        few: 0,
    },
    cut_beyond: usize::MAX,
};

/// Bounds where users have triggers: programs of one leave places to those of others, however long they take.
const USERS_BOUNDS: QueueBounds = QueueBounds {
    of_user_at_once: 8,
    ..BOUNDS
};

/// Whether the controller stops. The thread that starts a program holds it until the writer has been informed: a
/// program started while the controller stops would be started again by the next one.
static IS_STOPPED: RwLock<bool> = RwLock::new(false);

/// No program is started from now on; all that were are reported to the writer.
pub(crate) fn stop() {
    *IS_STOPPED.write().unwrap_or_else(PoisonError::into_inner) = true;
}

/// Starts programs of triggers.
pub(super) struct TriggerPrograms {
    /// Programs of root, SlurmUser and the user that the controller runs as.
    own: ProgramQueue,
    /// Programs of other users.
    others: ProgramQueue,
    /// Programs in both that are to be started.
    waiting: WaitingRuns,
}

type WaitingRuns = Arc<Mutex<BTreeSet<TriggerRunId>>>;

fn lock(waiting: &WaitingRuns) -> MutexGuard<'_, BTreeSet<TriggerRunId>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TriggerPrograms {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn start(writer: &Sender<ToWriter>) -> std::io::Result<TriggerPrograms> {
        let programs = TriggerPrograms::new();
        for queue in [&programs.own, &programs.others] {
            let (queue, writer) = (queue.clone(), writer.clone());
            let waiting = Arc::clone(&programs.waiting);
            failure::spawn_essential("triggers", move || {
                run_all(&queue, &waiting, &writer);
                Ok(())
            })?;
        }
        Ok(programs)
    }

    fn new() -> TriggerPrograms {
        TriggerPrograms {
            own: ProgramQueue::new(BOUNDS),
            others: ProgramQueue::new(USERS_BOUNDS),
            waiting: WaitingRuns::default(),
        }
    }

    /// Runs what has begun and was not started when the controller ended.
    pub(super) fn resume(&self, state: &State, settings: &Arc<ProgramSettings>) {
        let begun = state.triggers.runs().values().filter(|run| run.begun);
        begun.for_each(|run| self.push(state, run, settings));
    }

    /// Runs the program of a trigger if its time has come.
    pub(super) fn run(&self, state: &State, id: TriggerRunId, settings: &Arc<ProgramSettings>) {
        match state.triggers.runs().get(&id) {
            Some(run) if run.begun => self.push(state, run, settings),
            Some(run) if run.argument.is_empty() => warn!(
                "the program of trigger {} is not run: the texts of its user's triggers and programs have no room for it",
                id.trigger
            ),
            Some(_) | None => {}
        }
    }

    /// A program was started, or is not to be.
    pub(super) fn forget(&self, id: TriggerRunId) {
        self.waiting().remove(&id);
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<TriggerRunId>> {
        lock(&self.waiting)
    }

    fn push(&self, state: &State, run: &TriggerRun, settings: &Arc<ProgramSettings>) {
        self.waiting().insert(run.id);
        let plan = ProgramPlan::of_trigger(run.id, invocation(run, settings), settings);
        match is_administrator(state, run.uid) {
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

/// Whether a program runs as an administrator: where the controller is root, programs of root's triggers run as SlurmUser.
fn is_administrator(state: &State, uid: u32) -> bool {
    let config = state.config.as_ref();
    let is_slurm_user = config.is_some_and(|config| config.admin_uids.contains(&uid));
    is_slurm_user || [0, geteuid().as_raw()].contains(&uid)
}

/// The program of a trigger, with its subject as its last argument.
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
        input: None,
        file: None,
        time_limit: Some(TIME_LIMIT),
        owner: (run.uid != own).then_some(TriggerOwner {
            uid: run.uid,
            gid: run.gid,
        }),
    }
}

/// Starts a program and reports that, unless the controller stops or the program is not to be started any more.
fn start(
    invocation: &Invocation,
    trigger: Option<TriggerRunId>,
    waiting: &WaitingRuns,
    writer: &Sender<ToWriter>,
) -> Option<std::io::Result<Child>> {
    let is_stopped = IS_STOPPED.read().unwrap_or_else(PoisonError::into_inner);
    if *is_stopped || trigger.is_some_and(|run| !lock(waiting).contains(&run)) {
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

fn run_all(queue: &ProgramQueue, waiting: &WaitingRuns, writer: &Sender<ToWriter>) {
    while let Some(PlacedProgram { uid, plan }) = queue.next() {
        let (inside, writer) = (queue.clone(), writer.clone());
        let waiting = Arc::clone(waiting);
        let work = move || {
            let trigger = plan.trigger();
            let invocation = plan.invocation();
            if let Some(begun) = start(&invocation, trigger, &waiting, &writer) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::config::ClusterConfig;
    use muster_model::time::Timestamp;

    /// A controller that is root had programs of SlurmUser, which are those of root's triggers too, among users': eight users
    /// with programs of five minutes kept them waiting.
    #[test]
    fn programs_of_administrators_have_places_of_their_own() {
        let (slurm_user, user) = (4_000_000, 4_000_001);
        let config = ClusterConfig {
            admin_uids: vec![slurm_user],
            ..ClusterConfig::default()
        };
        let state = State {
            config: Some(Arc::new(config)),
            ..State::default()
        };
        let programs = TriggerPrograms::new();
        let own = geteuid().as_raw();
        for (trigger, uid) in (1..).zip([slurm_user, user, own]) {
            let run = TriggerRun {
                id: TriggerRunId {
                    trigger,
                    fired: Timestamp(0),
                },
                uid,
                gid: uid,
                program: "/bin/true".to_owned(),
                argument: String::new(),
                due: Timestamp(0),
                begun: true,
            };
            programs.push(&state, &run, &Arc::default());
        }
        programs.close();
        let users = |queue: &ProgramQueue| {
            let placed = std::iter::from_fn(|| queue.next());
            placed.map(|placed| placed.uid).collect::<Vec<u32>>()
        };
        assert_eq!(users(&programs.others), [user]);
        let mut administrators = users(&programs.own);
        administrators.sort_unstable();
        assert_eq!(administrators, [own, slurm_user]);
    }

    /// Programs of users waited for places, and ran after the site had taken the permission away.
    #[test]
    fn a_program_that_is_not_to_be_started_is_left() {
        let programs = TriggerPrograms::new();
        let (writer, reports) = std::sync::mpsc::channel();
        let run = |trigger| TriggerRun {
            id: TriggerRunId {
                trigger,
                fired: Timestamp(0),
            },
            uid: geteuid().as_raw(),
            gid: 0,
            program: "/bin/true".to_owned(),
            argument: "n1".to_owned(),
            due: Timestamp(0),
            begun: true,
        };
        let started = |forgotten: bool| {
            let run = run(1);
            programs.push(&State::default(), &run, &Arc::default());
            if forgotten {
                programs.forget(run.id);
            }
            let invocation = invocation(&run, &ProgramSettings::default());
            let begun = start(&invocation, Some(run.id), &programs.waiting, &writer);
            begun.map(|child| child.expect("it is there").wait().unwrap().success())
        };
        assert_eq!(started(true), None);
        assert!(reports.try_recv().is_err());
        assert_eq!(started(false), Some(true));
        assert!(reports.try_recv().is_ok());
    }
}
