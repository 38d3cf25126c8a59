//! The launcher's record of a job.

use super::context::Context;
use super::end::ScriptEnd;
use super::phase::NodeJobPhase;
use super::step_process::{ConnectedStepd, Placing, StepProcess};
use crate::messages::{LauncherEvent, ProcessIdentity, StepOrder};
use crate::step_numbers::UsedStepNumbers;
use crate::{JobTmpDir, PrologEpilog};
use muster_model::ids::{BlobId, StepNo};
use muster_model::job::NodeShare;
use muster_proto::node::JobGrant;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Signals that are kept for a script before it starts.
const EARLY_SIGNALS_MAX: usize = 64;

/// Time for which a signal for the steps of a job waits for the first of them: as long as a step daemon waits for srun.
const EARLY_STEP_SIGNAL_MS: u64 = 30_000;

/// A signal for the steps of a job that has had none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlyStepSignal {
    pub(super) signal: i32,
    /// It is dropped at this time, in milliseconds of the monotonic clock.
    pub(super) until_ms: u64,
}

/// A job here.
#[derive(Debug, Default)]
pub(super) struct JobEntry {
    /// Changed by [`super::state::LauncherState::advance`] alone.
    pub(super) phase: NodeJobPhase,
    pub(super) uid: u32,
    /// Its share, sealed by the controller; none if the record file's copy cannot be read.
    pub(super) grant: Option<Rc<JobGrant>>,
    /// The data of its launch, until its script runs.
    pub(super) launch: Launch,
    /// User and groups that it runs as, once the groups are known.
    pub(super) user: Option<Rc<ProcessIdentity>>,
    /// The process of its script.
    pub(super) script: Option<i32>,
    /// The process of its script is being started.
    pub(super) is_starting: bool,
    /// Signals received before the script's process was started.
    pub(super) early_signals: Vec<i32>,
    /// Signals for its steps, received before the first of them was here.
    pub(super) early_step_signals: Vec<EarlyStepSignal>,
    /// A step of it was here.
    pub(super) has_had_step: bool,
    /// End of its script, while the last lines of its standard error are read.
    pub(super) unread_end: Option<ScriptEnd>,
    /// End of its script, or why it did not start.
    pub(super) outcome: Option<LauncherEvent>,
    pub(super) steps: BTreeMap<StepNo, StepProcess>,
    /// Steps that are given to a daemon now.
    pub(super) placing: BTreeMap<StepNo, Placing>,
    /// Numbers of all its steps on this node, including forgotten ones.
    pub(super) numbers: UsedStepNumbers,
    /// Steps that an earlier launcher has forgotten: what their daemons leave is no news.
    pub(super) forgotten_steps: BTreeSet<StepNo>,
    /// Daemons of steps that are over, for others.
    pub(super) spares: Vec<ConnectedStepd>,
    /// An earlier launcher has begun it: its processes are found by looking at all.
    pub(super) is_recovered: bool,
    /// Where its script's standard error goes.
    pub(super) files: Option<ScriptFiles>,
    /// Processes that write its messages.
    pub(super) writers: BTreeSet<i32>,
    /// Processes that remove its directories.
    pub(super) removers: BTreeSet<i32>,
    /// The number of such processes that are being started.
    pub(super) starting_writers: u32,
    pub(super) prolog_epilog: Option<Box<PrologEpilog>>,
    /// The program that runs around it.
    pub(super) program: Program,
    /// Its prolog has ended.
    pub(super) is_past_prolog: bool,
    /// Its private directories are removed.
    pub(super) has_no_container: bool,
    /// Number of times that its prolog or script could not be started.
    pub(super) tries: u32,
    /// The job was stopped: a script that starts later is, too.
    pub(super) is_stopped: bool,
    /// Step daemons that have been ordered to end, or lost their connections with the agent, and have not ended: the agent may just
    /// have given one of them a step. Each is a child of this process that was not collected. One that was ordered to end keeps its
    /// connection until it has ended, for the ends of steps that the agent has not reported yet.
    pub(super) dismissed: BTreeMap<i32, Option<ConnectedStepd>>,
    /// Processes of its script that the kernel has killed for want of memory.
    pub(super) oom_kills: u64,
    /// Steps that wait for it to begin.
    pub(super) early_steps: Vec<EarlyStep>,
    /// The time at which remaining processes are killed, once it is decided.
    pub(super) kill_at_ms: Option<u64>,
    /// When SIGKILL was found not to be enough.
    pub(super) killed_since_ms: Option<u64>,
    /// A report that SIGKILL has no effect was sent.
    pub(super) is_unkillable: bool,
    /// The circumstance of its end that makes the node unfit for other jobs.
    pub(super) fault: Option<String>,
}

/// The data of a launch.
#[derive(Debug, Default)]
pub(super) struct Launch {
    /// The job's script, if it runs on this node.
    pub(super) batch: Option<Batch>,
    /// Path of the script's file.
    pub(super) path: Option<String>,
    /// Number of times that it lacked something before it was on file.
    pub(super) tries: u32,
    /// Its records were handed to the record file.
    pub(super) is_recorded: bool,
}

impl Launch {
    /// The launch of a job that has begun in part.
    pub(super) fn recorded() -> Launch {
        Launch {
            is_recorded: true,
            ..Launch::default()
        }
    }
}

/// The text and the environment of a script.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) script: BlobId,
    pub(super) text: Rc<[u8]>,
    pub(super) context: Rc<Context>,
}

/// The process of a prolog or an epilog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Program {
    #[default]
    None,
    /// The process of the prolog or epilog is being started.
    Starting,
    Running {
        pid: i32,
        /// The program has exceeded its time limit and was killed.
        is_late: bool,
    },
}

/// A step that waits for its job.
#[derive(Debug)]
pub(super) struct EarlyStep {
    pub(super) order: Box<StepOrder>,
    pub(super) random: Option<u64>,
    /// About how many it takes, where it waits.
    pub(super) bytes: usize,
}

/// Where a script's standard error goes, for messages.
#[derive(Debug)]
pub(super) struct ScriptFiles {
    pub(super) user: Rc<ProcessIdentity>,
    pub(super) work_dir: String,
    pub(super) stderr: String,
}

impl JobEntry {
    /// Processes of the job, or on its behalf, run: the script, step daemons, programs around it.
    pub(super) fn is_busy(&self) -> bool {
        self.script.is_some()
            || self.is_starting
            || self.unread_end.is_some()
            || self.program != Program::None
            || !self.writers.is_empty()
            || !self.removers.is_empty()
            || self.starting_writers > 0
            || self.has_live_step()
            || !self.dismissed.is_empty()
    }

    /// A step runs, or is about to.
    pub(super) fn has_live_step(&self) -> bool {
        !self.placing.is_empty() || self.steps.values().any(|s| s.ended.is_none())
    }

    /// Queues a signal for a script that is about to start. Returns whether there is such a script. The queue is
    /// limited.
    pub(super) fn keep_signal(&mut self, signal: i32) -> bool {
        let begins = matches!(self.phase, NodeJobPhase::Prolog | NodeJobPhase::Starting);
        let is_about_to =
            self.phase.has_not_begun() || self.is_starting || (begins && self.script.is_none());
        if is_about_to && self.early_signals.len() < EARLY_SIGNALS_MAX {
            self.early_signals.push(signal);
        }
        is_about_to
    }

    /// Queues a signal for the first step, if there was none. Each signal waits once.
    pub(super) fn keep_step_signal(&mut self, signal: i32, now_ms: u64) {
        if self.phase.is_leaving() || self.has_had_step {
            return;
        }
        let waiting = &mut self.early_step_signals;
        waiting.retain(|kept| kept.signal != signal && kept.until_ms > now_ms);
        if waiting.len() < EARLY_SIGNALS_MAX {
            waiting.push(EarlyStepSignal {
                signal,
                until_ms: now_ms.saturating_add(EARLY_STEP_SIGNAL_MS),
            });
        }
    }

    /// The job's temporary directory.
    pub(super) fn tmp_dir(&self) -> Option<&JobTmpDir> {
        self.prolog_epilog.as_ref()?.tmp_dir.as_deref()
    }

    /// The temporary directory that is removed after it; one in a directory of the job's own goes with that.
    pub(super) fn tmp_dir_to_remove(&self) -> Option<&JobTmpDir> {
        let own = self.container().into_iter();
        let mut own = own.flat_map(|of| &of.settings.dirs);
        self.tmp_dir()
            .filter(|dir| !own.any(|own| dir.path.starts_with(own)))
    }

    /// The job's share of this node.
    pub(super) fn share(&self) -> Option<&NodeShare> {
        let grant = self.grant.as_ref()?;
        grant.alloc.nodes.get(grant.position as usize)
    }

    /// A prolog runs or is to be run before anything else, or directories are made.
    pub(super) fn has_prolog(&self) -> bool {
        self.prolog_epilog
            .as_ref()
            .is_some_and(|p| !p.prolog.is_empty() || p.container.is_some())
    }

    /// A step is here.
    pub(super) fn enter_step(&mut self, step: StepNo, process: StepProcess) {
        self.has_had_step = true;
        self.numbers.insert(step);
        self.steps.insert(step, process);
    }

    /// Whether a step of this number is, or was, here.
    pub(super) fn had_step(&self, step: StepNo) -> bool {
        self.numbers.contains(step) || self.placing.contains_key(&step)
    }
}
