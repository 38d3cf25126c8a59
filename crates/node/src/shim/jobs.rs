//! What the shim knows of jobs, and the rules by which they start and are forgotten.

use super::batch::Launch;
use super::checks::Refusals;
use super::context::Contexts;
use super::launch::{self, Launches, NotStarted};
use super::measure::{Listed, Measurement, Wanted};
use super::membership::Membership;
use super::orders::encoded;
use super::processes::{self, Containment, ProcessTree};
use super::records::{Fault, Records};
use super::remnants::Remnant;
use super::removal::Removal;
use super::scripts::Scripts;
use super::session::{Place, Session};
use super::site::SitePrograms;
use super::steps::{Beginners, Daemon, StepProc};
use super::users::Users;
use super::waiting::{TRIES_MAX, TRY_AGAIN, Waiting, fault_of};
use crate::descriptors::OrderFds;
use crate::{now, reaping, sys};
use muster_model::command::SignalScope;
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::job::Usage;
use muster_model::time::Timestamp;
use muster_node_core::PrologEpilog;
use muster_node_core::binding::Machine;
use muster_node_core::messages::{
    Attach, JobAttempt, KnownJob, LauncherCommand, LauncherEvent, MachineClaim, Process, StepOrder,
    User,
};
use muster_node_core::step_numbers::UsedStepNumbers;
use muster_proto::node::{JobGrant, NodeSettings};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Launches whose child can tell of a failure before exec at the same time; further ones fail with an exit code.
const SLOTS: usize = 4096;
/// What a child of the shim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A batch script.
    Script(JobAttempt),
    /// A step daemon.
    Step(JobAttempt, StepNo),
    /// A step daemon that waits for another step.
    Spare(JobAttempt),
    /// A child that writes the message of a job that is being ended.
    StderrNotifier(JobAttempt),
    /// A child that tells a script why it is killed then.
    StderrNotifierThenKill(JobAttempt),
    /// A child that writes another message.
    Writer(JobAttempt),
    /// A child that removes directories of a step.
    Remover(JobAttempt),
    /// The programs that run before a job.
    Prolog(JobAttempt),
    /// Those that run after it.
    Epilog(JobAttempt),
    /// A program of the site that has to do with the node itself.
    Site,
    /// Another process whose end matters only because something may be settled then.
    Other,
}

/// A job here.
#[derive(Debug, Default)]
pub(super) struct JobEntry {
    pub(super) uid: u32,
    /// Its share, as the controller has sealed it; none if what is on file of it cannot be read.
    pub(super) grant: Option<Rc<JobGrant>>,
    /// It has not begun.
    pub(super) waiting: Option<Box<Waiting>>,
    /// Whom it runs as, once the groups are known.
    pub(super) user: Option<Rc<User>>,
    /// Its script's process.
    pub(super) script: Option<i32>,
    pub(super) slot: Option<usize>,
    /// How its script ended, or why it did not start.
    pub(super) outcome: Option<LauncherEvent>,
    pub(super) steps: BTreeMap<StepNo, StepProc>,
    /// What steps of it have had here, those that are forgotten included.
    pub(super) numbers: UsedStepNumbers,
    /// Steps that an earlier shim has forgotten: what their daemons leave is no news.
    pub(super) steps_gone: BTreeSet<StepNo>,
    /// Daemons of steps that are over, for others.
    pub(super) spares: Vec<Daemon>,
    /// It is being ended.
    pub(super) ending: Option<Ending>,
    pub(super) released: bool,
    /// Its processes were adopted by init when an earlier shim was lost; they are found by looking at all.
    pub(super) recovered: bool,
    pub(super) files: Option<Files>,
    /// Processes that write messages or remove directories, and when they are killed.
    pub(super) writers: BTreeMap<i32, Instant>,
    pub(super) removals: Vec<Removal>,
    pub(super) prolog_epilog: Option<Box<PrologEpilog>>,
    /// The prolog's process, while it runs.
    pub(super) prolog: Option<i32>,
    /// How often that could not be started; it is tried again.
    pub(super) prolog_tries: u32,
    /// The job was stopped: a script that starts later is, too.
    pub(super) stopped: bool,
    /// What waits for it: the script's launch, and steps.
    pub(super) pending_launch: Option<Box<Launch>>,
    pub(super) pending_steps: Vec<(Box<StepOrder>, OrderFds)>,
    /// The epilog's process, while it runs.
    pub(super) epilog: Option<i32>,
    pub(super) epilog_began: bool,
    /// What of its end makes the node unfit for others.
    pub(super) fault: Option<String>,
}

impl JobEntry {
    /// Nothing of it begins any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.ending.is_some() || self.released
    }

    /// Processes of it, or for it, run: the script, step daemons, the programs around it.
    pub(super) fn is_busy(&self) -> bool {
        self.script.is_some()
            || self.prolog.is_some()
            || self.epilog.is_some()
            || !self.writers.is_empty()
            || self.steps.values().any(|s| s.ended.is_none())
    }
}

/// How far the end of a job has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// When what is left is killed.
    pub(super) kill_at: Option<Instant>,
    /// It was.
    pub(super) killed: bool,
    /// When that was, and whether it was reported that it did not help.
    pub(super) killed_at: Option<Instant>,
    pub(super) reported: bool,
}

/// Where a script's standard error goes, for messages.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) user: Rc<User>,
    pub(super) work_dir: String,
    pub(super) stderr: String,
}

/// A job that begins now.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) run: JobAttempt,
    /// Its script, if it has one here.
    pub(super) launch: Option<Launch>,
    /// It waits again if it cannot begin.
    pub(super) waiting: Waiting,
}

/// A process that is not a child of this shim.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) role: Role,
}

/// See the module.
pub(super) struct Shim {
    pub(super) spool: PathBuf,
    root: bool,
    /// Which node this is, as root says.
    pub(super) place: Place,
    pub(super) claim: MachineClaim,
    pub(super) machine: Option<Machine>,
    pub(super) session: Session,
    pub(super) settings: NodeSettings,
    /// Scripts and contexts that the controller has sent in this session.
    pub(super) blobs: HashMap<BlobId, Rc<[u8]>>,
    pub(super) contexts: Contexts,
    pub(super) scripts: Scripts,
    /// Scripts to remove when the jobs that run them are forgotten.
    pub(super) stale_scripts: HashSet<BlobId>,
    pub(super) users: Users,
    pub(super) measurements: Vec<Measurement>,
    pub(super) refusals: Refusals,
    pub(super) site: SitePrograms,
    /// Launches that wait until the last holder of their share is gone, in order.
    pub(super) queued: Vec<JobAttempt>,
    /// Jobs of which launch or steps wait for the groups of their user.
    pub(super) without_groups: BTreeSet<JobAttempt>,
    /// When launches are tried again that lacked something.
    pub(super) retries: BTreeSet<(Instant, JobAttempt)>,
    /// When jobs are stopped to which that was announced.
    pub(super) stops: BTreeMap<JobAttempt, Instant>,
    /// An agent listens.
    pub(super) attached: bool,
    pub(super) jobs: BTreeMap<JobAttempt, JobEntry>,
    pub(super) roles: BTreeMap<i32, Role>,
    /// Sessions that scripts and step daemons lead or led, by their number.
    pub(super) sessions: HashMap<i32, JobAttempt>,
    pub(super) members: Membership,
    /// Scripts that are being started.
    launches: Launches,
    /// Step daemons that are being started.
    pub(super) beginners: Beginners,
    pub(super) records: Records,
    pub(super) tree: ProcessTree,
    slots: Rc<sys::SharedSlots>,
    free_slots: Vec<usize>,
    pub(super) kill_wait: Duration,
    /// How long after SIGKILL processes count as unkillable, and what is run then.
    pub(super) unkillable: Option<(Duration, Option<String>)>,
    pub(super) ending: BTreeSet<JobAttempt>,
    /// When programs that run around jobs are killed; nothing once they were.
    pub(super) program_ends: BTreeMap<JobAttempt, Option<Instant>>,
    /// Something may have changed for jobs that are ending.
    pub(super) unsettled: bool,
    /// More children may have ended than were collected.
    pub(super) may_have_ended: bool,
    /// What killed step daemons have left.
    pub(super) remnants: Vec<Remnant>,
    /// Jobs have left their shares since it was last looked for launches that wait for those.
    pub(super) share_is_free: bool,
    pub(super) to_begin: Vec<Begin>,
    output: Vec<u8>,
    pub(super) watched: Vec<Watched>,
    /// Lines to step daemons, with their steps.
    pub(super) lines: BTreeMap<RawFd, (JobAttempt, StepNo)>,
    /// Daemons of an earlier shim's that have been asked what they run.
    pub(super) asked: Vec<Daemon>,
    pub(super) old: Option<(BTreeMap<JobAttempt, super::records::Old>, bool)>,
    exit: bool,
    /// Everything is killed: no program is started around jobs any more.
    pub(super) killing: bool,
}

impl Shim {
    pub(super) fn open(spool: &Path) -> io::Result<Shim> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let (records, old, same_boot) = Records::open(spool, boot_id.trim())?;
        let mut shim = Shim {
            spool: spool.to_owned(),
            root: nix::unistd::geteuid().is_root(),
            place: Place::default(),
            claim: MachineClaim::default(),
            machine: None,
            session: Session::default(),
            settings: NodeSettings::default(),
            blobs: HashMap::new(),
            contexts: Contexts::default(),
            scripts: Scripts::new(spool),
            stale_scripts: HashSet::new(),
            users: Users::default(),
            measurements: Vec::new(),
            refusals: Refusals::default(),
            site: SitePrograms::default(),
            queued: Vec::new(),
            without_groups: BTreeSet::new(),
            retries: BTreeSet::new(),
            stops: BTreeMap::new(),
            attached: false,
            jobs: BTreeMap::new(),
            roles: BTreeMap::new(),
            sessions: HashMap::new(),
            members: Membership::open(spool)?,
            launches: Launches::new(),
            beginners: Beginners::default(),
            records,
            tree: ProcessTree::new(),
            slots: Rc::new(sys::SharedSlots::new(SLOTS)?),
            free_slots: (0..SLOTS).rev().collect(),
            kill_wait: Duration::from_secs(30),
            unkillable: None,
            ending: BTreeSet::new(),
            program_ends: BTreeMap::new(),
            unsettled: false,
            may_have_ended: false,
            remnants: Vec::new(),
            share_is_free: false,
            to_begin: Vec::new(),
            output: Vec::new(),
            watched: Vec::new(),
            lines: BTreeMap::new(),
            asked: Vec::new(),
            old: Some((old, same_boot)),
            exit: false,
            killing: false,
        };
        shim.read_settings();
        Ok(shim)
    }

    /// Carries out an agent's order; gives the answer, if it has one.
    pub(super) fn handle(&mut self, message: LauncherCommand) -> Option<LauncherEvent> {
        if let LauncherCommand::Sealed { orders, seal } = message {
            return self.take_sealed(&orders, &seal);
        }
        self.launch();
        if let Some(why) = self.refusal(&message) {
            self.refusals
                .log(format_args!("{why}: {:.200}", format!("{message:?}")));
            if let LauncherCommand::StepAssigned { run, step, .. } = message {
                self.report_lost_step(run, step);
            }
            return None;
        }
        match message {
            LauncherCommand::Attach(_)
            | LauncherCommand::Stop { .. }
            | LauncherCommand::StartStep(_)
            | LauncherCommand::Sealed { .. } => {}
            LauncherCommand::OpenSession => return Some(self.open_session()),
            LauncherCommand::BeginSession(key) => return Some(self.begin_session(&key)),
            LauncherCommand::SignalStep { run, step, signal } => {
                self.signal(run, Some(step), signal, SignalScope::Steps);
            }
            LauncherCommand::EndStep { run, step } => self.end_step(run, step),
            LauncherCommand::PrintLine {
                run,
                text,
                step: Some(step),
                ..
            } => self.tell_step(run, step, text),
            LauncherCommand::PrintLine {
                run, text, kill, ..
            } => self.tell_script(run, &text, kill),
            LauncherCommand::StepAssigned { run, step, pid } => {
                self.on_step_assigned(run, step, pid)
            }
            LauncherCommand::ReleaseStepd { run, pid } => self.dismiss(run, pid),
            LauncherCommand::Forget(run) => self.forget(run),
            LauncherCommand::ForgetStep(run, step) => self.forget_step(run, step),
            LauncherCommand::Keep { run, key, bytes } => {
                if self.jobs.contains_key(&run) {
                    self.records.keep(run, key, bytes);
                }
            }
            LauncherCommand::Inspect { job, tag } => return self.measure(job, tag, Wanted::List),
            LauncherCommand::Measure { job, tag, memory } => {
                return self.measure(job, tag, Wanted::Usage(memory));
            }
        }
        None
    }

    /// Root wants this process to end; the answer, unless it does.
    pub(super) fn stop(&mut self, kill: bool) -> Option<LauncherEvent> {
        self.launch();
        if kill {
            self.kill_all();
            return None;
        }
        match self.busy() {
            0 => {
                self.exit = true;
                None
            }
            jobs => Some(LauncherEvent::Busy(jobs)),
        }
    }

    /// A new agent: it is sent everything that was not forgotten.
    pub(super) fn attach(&mut self, attach: Attach) {
        // Who has asked for them is gone.
        self.measurements.clear();
        self.launch();
        self.place = Place {
            cluster: attach.cluster,
            node: attach.node,
        };
        if self.machine.is_none() || self.claim != attach.claim {
            self.claim = attach.claim;
            self.machine = Some(crate::topology::read_machine(attach.claim));
        }
        // The one before belonged to a connection of the agent before.
        self.session = Session::default();
        self.site.forget_settings();
        self.attached = true;
        self.output.clear();
        self.disown_daemons();
        let known = self.jobs.iter().map(|(&run, e)| KnownJob {
            run,
            grant: e.grant.as_deref().map(encoded),
            kept: self
                .records
                .kept(run)
                .map(|(k, v)| (k, v.clone()))
                .collect(),
            steps: e.steps.iter().map(|(&s, _)| s).collect(),
        });
        let mut events = vec![LauncherEvent::State(known.collect())];
        for (&run, e) in &self.jobs {
            events.extend(e.outcome.clone());
            for (&step, proc) in &e.steps {
                events.extend(proc.ended.as_ref().map(|end| LauncherEvent::StepEnded {
                    run,
                    step,
                    end: Box::new(end.decoded()),
                }));
            }
            let fault = e.fault.clone();
            events.extend(fault.map(|error| LauncherEvent::NodeFault { run, error }));
            if e.released {
                events.push(LauncherEvent::Released(run));
            }
        }
        events.iter().for_each(|e| self.emit(e));
    }

    pub(super) fn emit(&mut self, event: &LauncherEvent) {
        if self.attached {
            muster_proto::frame::encode_into(event, &mut self.output);
        }
    }

    /// What the agent is to receive; the records of it are on file before it is.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Forks what came in this wake-up, settles jobs that end, enforces deadlines, writes the records.
    pub(super) fn finish_wakeup(&mut self) {
        self.launch();
        self.enforce_deadlines();
        self.kill_remnants();
        if std::mem::take(&mut self.unsettled) {
            self.settle();
        }
        if std::mem::take(&mut self.share_is_free) {
            self.go_on_with_queued();
            self.launch();
        }
        if let Err(e) = self.records.flush() {
            // What is lost here costs a job a second report after a crash of the shim, never a second launch:
            // launches check the same write themselves.
            eprintln!("{}: attempts: {e}", self.spool.display());
        }
    }

    /// Writes down that a job came, before anything of it begins.
    pub(super) fn enter_on_file(&mut self, run: JobAttempt, has_script: bool) {
        let Some(entry) = self.jobs.get(&run) else {
            return;
        };
        self.records
            .came(run, entry.uid, has_script, sys::boot_ms());
        if let Some(grant) = &entry.grant {
            self.records.grant(run, &encoded(grant));
        }
        if let Some(around) = &entry.prolog_epilog {
            self.records.around(run, around);
        }
    }

    /// Begins a launch that is on file.
    pub(super) fn begin(&mut self, Begin { run, launch, .. }: Begin) {
        let around = self.jobs.get(&run).and_then(|e| e.prolog_epilog.as_ref());
        if around.is_some_and(|a| !a.prolog.is_empty()) {
            return self.start_prolog(run, launch.map(Box::new));
        }
        if let Some(launch) = launch {
            self.fork_script(launch);
        }
        self.start_early_steps(run);
    }

    /// Starts the script of a job that has been entered.
    pub(super) fn fork_script(&mut self, mut order: Launch) {
        let run = order.run;
        let slot = self.free_slots.pop();
        let slots = (Rc::clone(&self.slots), slot.unwrap_or(usize::MAX));
        let row = self.members.of_script(run);
        let forked = self.launches.start(&order, self.root, row, slots);
        let Some(entry) = self.jobs.get_mut(&run) else {
            self.free_slots.extend(slot);
            return;
        };
        if forked.is_err() {
            self.free_slots.extend(slot);
        } else {
            entry.slot = slot;
        }
        match forked {
            Ok(pid) => {
                self.records.forked(run, pid);
                self.roles.insert(pid, Role::Script(run));
                self.sessions.insert(pid, run);
                entry.script = Some(pid);
                if entry.stopped {
                    sys::kill(pid, libc::SIGSTOP);
                }
                entry.files = Some(Files {
                    stderr: order.stderr.unwrap_or(order.stdout),
                    user: order.user,
                    work_dir: order.work_dir,
                });
            }
            Err(NotStarted::Wrong(error)) => self.fail(run, error, Fault::Job),
            Err(NotStarted::Failed(e)) => {
                let again = super::scripts::is_temporary(&e) && order.tries < TRIES_MAX;
                self.members.forget_script(run);
                if !again {
                    let fault = fault_of(super::scripts::is_temporary(&e));
                    return self.fail(run, format!("fork: {e}"), fault);
                }
                if order.tries == 0 {
                    eprintln!("job {}: fork: {e}; it is tried again", run.job);
                }
                order.tries += 1;
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.pending_launch = Some(Box::new(order));
                }
                self.retries.insert((Instant::now() + TRY_AGAIN, run));
            }
        }
    }

    pub(super) fn fail(&mut self, run: JobAttempt, error: String, fault: Fault) {
        self.records.failed(run, fault, &error);
        self.finish(run, fault.event(run, error));
    }

    /// The node is unfit for others: reported now, and to every agent that comes before the job is forgotten.
    pub(super) fn tell_fault(&mut self, run: JobAttempt, error: String) {
        eprintln!("job {}: {error}", run.job);
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.fault = Some(error.clone());
        }
        self.emit(&LauncherEvent::NodeFault { run, error });
    }

    /// The script's part is over: tells so, and begins the job's end here.
    pub(super) fn finish(&mut self, run: JobAttempt, outcome: LauncherEvent) {
        self.emit(&outcome);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if let Some(slot) = entry.slot.take() {
            self.free_slots.push(slot);
        }
        entry.script = None;
        entry.outcome = Some(outcome);
        let steps = entry.steps.values().any(|s| s.ended.is_none());
        self.begin_end(run, !steps);
        if steps {
            self.end_all_steps(run, None);
        }
    }

    /// Children ended; more of them than were taken in, if [`Shim::may_have_ended`].
    pub(super) fn reap(&mut self) {
        let end = now();
        let after = reaping::each_ended(sys::reap, |r| self.child_ended(&r, end));
        self.may_have_ended = after == reaping::After::Burst;
    }

    fn child_ended(&mut self, r: &sys::Reaped, end: Timestamp) {
        self.unsettled = true;
        match self.roles.remove(&r.pid) {
            Some(Role::Script(run)) => {
                let usage = Usage {
                    user_us: r.user_us,
                    system_us: r.system_us,
                    max_rss_kib: r.max_rss_kib,
                    pages: r.pages,
                    disk_read_bytes: r.blocks_in * 512,
                    disk_write_bytes: r.blocks_out * 512,
                    ..Usage::default()
                };
                self.script_ended(run, Some(r.status), usage.of_task(0, 0), end);
            }
            Some(Role::Step(run, step)) => {
                self.step_ended(run, step);
                self.members.retire(run, r.pid);
            }
            Some(Role::Spare(run)) => {
                self.spare_ended(run, r.pid);
                self.members.retire(run, r.pid);
            }
            Some(Role::StderrNotifier(run)) => {
                self.writer_ended(run, r.pid);
                self.ask_to_end(run);
            }
            Some(Role::StderrNotifierThenKill(run)) => {
                self.writer_ended(run, r.pid);
                self.signal_script(run, libc::SIGKILL);
            }
            Some(Role::Writer(run)) => self.writer_ended(run, r.pid),
            Some(Role::Remover(run)) => self.remover_ended(run, r.pid),
            Some(Role::Prolog(run)) => self.prolog_ended(run, r.status),
            Some(Role::Epilog(run)) => self.epilog_ended(run, r.status),
            Some(Role::Site) => self.site_program_ended(r.pid, r.status),
            Some(Role::Other) | None => {}
        }
    }

    /// A script ended, with a status if anyone knows it.
    pub(super) fn script_ended(
        &mut self,
        run: JobAttempt,
        status: Option<i32>,
        usage: Usage,
        end: Timestamp,
    ) {
        // Steps that have ended before it did.
        self.receive_from_daemons_of(run);
        let slot = self.jobs.get(&run).and_then(|e| e.slot);
        if let Some(text) = slot.and_then(|s| self.slots.take(s)) {
            let (node_fault, error) = launch::failure(&text);
            let fault = if node_fault { Fault::Node } else { Fault::Job };
            return self.fail(run, error, fault);
        }
        let Some(status) = status else {
            return self.finish(run, LauncherEvent::Vanished(run));
        };
        self.records.ended(run, status, &usage, end);
        self.finish(
            run,
            LauncherEvent::BatchEnded {
                run,
                status,
                usage,
                end,
            },
        );
    }

    pub(super) fn signal(
        &mut self,
        run: JobAttempt,
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    ) {
        match (step, scope) {
            (Some(StepNo::BATCH), _) => self.signal_script(run, signal),
            (Some(step), _) => self.signal_step(run, step, signal),
            (None, SignalScope::Batch) => {
                if let Some(pid) = self.jobs.get(&run).and_then(|e| e.script) {
                    self.signal_process(pid, signal);
                }
            }
            (None, SignalScope::Steps) => self.signal_steps(run, signal),
            (None, SignalScope::Full) => {
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.stopped = match signal {
                        libc::SIGSTOP => true,
                        libc::SIGCONT => false,
                        _ => entry.stopped,
                    };
                }
                self.signal_script(run, signal);
                self.signal_steps(run, signal);
            }
        }
    }

    fn signal_steps(&mut self, run: JobAttempt, signal: i32) {
        let steps: Vec<StepNo> = self
            .jobs
            .get(&run)
            .map(|e| e.steps.keys().copied().collect())
            .unwrap_or_default();
        for step in steps {
            self.signal_step(run, step, signal);
        }
    }

    fn forget(&mut self, run: JobAttempt) {
        if self.jobs.get(&run).is_none_or(|e| !e.released) {
            return;
        }
        let entry = self.jobs.remove(&run);
        let script = entry.and_then(|e| e.grant?.spec.script);
        if let Some(id) = script.filter(|id| self.stale_scripts.remove(id)) {
            self.drop_script(id);
        }
        self.stops.remove(&run);
        self.sessions.retain(|_, owner| *owner != run);
        self.members.forget(run);
        self.records.forgotten(run);
    }

    /// The processes of a job. Nothing is read of them that they could keep from being read.
    pub(super) fn inspect(&mut self, job: JobId) -> Listed {
        let mut listed = Listed::default();
        let mut add = |pid: i32, step, task| {
            let pid = pid.unsigned_abs();
            listed.all.push(Process { pid, step, task });
        };
        for (_, entry) in self.jobs.iter().filter(|(run, _)| run.job == job) {
            for (&step, proc) in entry.steps.iter().filter(|(_, p)| p.ended.is_none()) {
                for pid in self.tree.below(&[proc.pid]) {
                    if processes::Stat::of(pid).is_some_and(|s| s.parent == proc.pid) {
                        listed.tasks.push(pid.unsigned_abs());
                    }
                    add(pid, step, None);
                }
            }
            if let Some(script) = entry.script {
                add(script, StepNo::BATCH, Some((0, 0)));
                for pid in self.tree.below(&[script]) {
                    add(pid, StepNo::BATCH, None);
                }
            }
        }
        listed
    }

    /// Jobs that have processes.
    fn busy(&self) -> u32 {
        let alive = |e: &&JobEntry| !e.released && e.is_busy();
        u32::try_from(self.jobs.values().filter(alive).count()).unwrap_or(u32::MAX)
    }

    /// Exit once no job has processes.
    pub(super) fn exit_when_idle(&mut self) {
        self.exit = true;
    }

    /// Kill everything, then exit.
    pub(super) fn kill_all(&mut self) {
        self.exit = true;
        self.end_programs();
        let runs: Vec<JobAttempt> = self.jobs.keys().copied().collect();
        for run in runs {
            if !self.end_waiting(run) && self.jobs.get(&run).is_some_and(|e| !e.released) {
                self.begin_end(run, true);
                self.kill_job(run);
            }
        }
    }

    pub(super) fn may_exit(&self) -> bool {
        self.exit && self.busy() == 0 && self.ending.is_empty()
    }

    /// Descriptors that are polled for input: [`Shim::watched_ended`], [`Shim::receive_from_daemon`],
    /// [`Shim::on_adoption_reply`], [`Shim::receive_groups`], [`Shim::receive_measurement`].
    pub(super) fn watched_fds(&self) -> Vec<RawFd> {
        let watched = self.watched.iter().map(|w| w.pidfd.as_raw_fd());
        let asked = self.asked.iter().map(Daemon::fd);
        let lines = self.lines.keys().copied();
        let look_ups = self.look_up_fds();
        let daemons = lines.chain(asked);
        let measurements = self.measurement_fds();
        let processes = look_ups.chain(measurements);
        watched.chain(daemons).chain(processes).collect()
    }
}
