//! Performs the decisions of the launcher ([`Launcher`]) in order, and passes the results back as
//! events. It decides nothing itself.

use super::containers::{self, Namespace};
use super::files::{LastLines, Message};
use super::membership::Membership;
use super::output::Output;
use super::questions::{About, QueryProcess};
use super::record_file::{self, RecordFile};
use super::script_start::ScriptStarter;
use super::scripts::Scripts;
use super::search::Search;
use super::stepds::{self, Stepds};
use super::{controller_key, groups, measure, programs, timers::Timers, tmp_dirs::Removals};
use crate::cgroup::jobs::Jobs as JobGroups;
use crate::os_error::is_temporary;
use crate::reaping::{self, ReapResult};
use crate::removal::Removal;
use crate::{now, step_result, sys};
use muster_model::ids::{JobAttempt, JobId, StepNo};
use muster_model::job::ResourceUsage;
use muster_model::visible_text::debug_beginning;
use muster_node_core::launcher::interface::{
    Action, Event, Failure, JobProgramKind, LaunchFiles, Recovered, RootConnId, ScriptFile,
    ScriptLaunch, ScriptNotStarted,
};
use muster_node_core::launcher::{
    JobProcesses, Launcher, LauncherRecords, LauncherSetup, ProcessQuery, RecordedAttempt,
    UserAccount,
};
use muster_node_core::messages::{AttachAgent, FirstOrder, LauncherEvent};
use muster_node_core::now::Now;
use muster_node_core::stepd_reuse::result_path;
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Interval between checks whether killed processes have left their jobs' groups, milliseconds.
const GROUPS_WAIT_MS: i32 = 5;
/// The object to which a polled descriptor belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Watched(i32),
    Stepd(muster_node_core::launcher::interface::StepdConnId),
    Asked,
    Question,
}

/// See the module.
pub(super) struct LauncherExecutor {
    spool: PathBuf,
    launcher: Launcher,
    events: VecDeque<Event>,
    timers: Timers,
    records: RecordFile,
    scripts: Scripts,
    search: Search,
    script_starter: ScriptStarter,
    stepds: Stepds,
    questions: Vec<QueryProcess>,
    output: Output,
    answers: Vec<(RootConnId, LauncherEvent)>,
    tmp_dirs: Removals,
    /// More children may have ended than were collected.
    pub(super) may_have_ended: bool,
}

fn failure(e: &io::Error) -> Failure {
    Failure {
        error: e.to_string(),
        is_temporary: is_temporary(e),
    }
}

impl LauncherExecutor {
    /// Takes over the processes that an earlier launcher has left in a spool directory.
    pub(super) fn open(spool: &Path) -> io::Result<LauncherExecutor> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let text = RecordFile::read(spool)?;
        let (mut records, attempts, same_boot) = LauncherRecords::read(&text, boot_id.trim());
        let file = RecordFile::create(spool, &records.rewritten())?;
        let there = std::thread::available_parallelism();
        let setup = LauncherSetup {
            spool: spool.to_owned(),
            uid: geteuid().as_raw(),
            cpus: there.map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            first_limits: sys::first_limits().to_vec(),
            own: crate::own_name(spool)?,
            host: muster_trust::host::short_name(),
        };
        let live = |attempt: &JobAttempt| same_boot && !attempts[attempt].released;
        let known: Vec<JobAttempt> = attempts.keys().copied().filter(live).collect();
        let groups = JobGroups::open(spool, &known)?;
        let mut executor = LauncherExecutor {
            spool: spool.to_owned(),
            launcher: Launcher::new(setup, records),
            events: VecDeque::new(),
            timers: Timers::default(),
            records: file,
            scripts: Scripts::new(spool),
            search: Search::new(Membership::open(spool)?, groups),
            script_starter: ScriptStarter::new()?,
            stepds: Stepds::default(),
            questions: Vec::new(),
            output: Output::default(),
            answers: Vec::new(),
            tmp_dirs: Removals::default(),
            may_have_ended: false,
        };
        executor.recover(attempts, same_boot);
        Ok(executor)
    }

    fn recover(&mut self, attempts: BTreeMap<JobAttempt, RecordedAttempt>, same_boot: bool) {
        let is_known = |attempt: JobAttempt| same_boot && attempts.contains_key(&attempt);
        self.search.members.recover(is_known);
        let mut left = Recovered {
            same_boot,
            settings: record_file::read_settings(&self.spool),
            ..Recovered::default()
        };
        for (attempt, old) in attempts.iter().filter(|_| same_boot) {
            let noted = self.search.members.script_of(*attempt);
            left.scripts.extend(noted.map(|pid| (*attempt, pid)));
            let may_run = old.ended.is_none() && old.failed.is_none();
            let script = old.pid.into_iter().chain(noted).filter(|_| may_run);
            let live = old
                .steps
                .iter()
                .filter(|(step, _)| !old.step_ends.contains_key(step));
            for pid in script.chain(live.map(|(_, pid)| *pid)) {
                let started = self.search.watch(pid);
                // The process is watched first; from then on its number cannot be reused.
                let is_its = self.search.members.may_be_of(*attempt, pid);
                if !is_its {
                    self.search.unwatch(pid);
                }
                let started = started.filter(|_| is_its);
                left.processes.extend(started.map(|started| (pid, started)));
            }
        }
        left.attempts = attempts;
        self.deliver(Event::Recovered(Box::new(left)));
    }

    /// Delivers an event and the events that follow from it. Returns whether it had any effect.
    pub(super) fn deliver(&mut self, event: Event) -> bool {
        self.events.push_back(event);
        let (mut actions, mut has_acted) = (Vec::new(), false);
        while let Some(event) = self.events.pop_front().or_else(|| self.stepds.next_event()) {
            let now = Now {
                wall: now(),
                mono_ms: sys::boot_ms(),
            };
            self.launcher.on_event(event, now, &mut actions);
            self.search.forget_found();
            has_acted |= !actions.is_empty();
            for action in actions.drain(..) {
                self.carry_out(action);
            }
        }
        has_acted
    }

    fn carry_out(&mut self, action: Action) {
        let is_signal =
            |a: &Action| matches!(a, Action::SignalScript { .. } | Action::SignalStep { .. });
        if !is_signal(&action) {
            self.search.forget_found();
        }
        let spool = &self.spool;
        match action {
            Action::Log(line) => eprintln!("{line}"),
            Action::SetTimer(key, at_ms) => self.timers.set(key, at_ms),
            Action::StopTimer(key) => self.timers.stop(&key),
            Action::AppendRecords(lines) => {
                let written = self.records.append(&lines).map_err(|e| failure(&e));
                // The frame must not be shared here, or it would be copied if it cannot be written
                // at once.
                drop(lines);
                self.events.push_back(Event::RecordsAppended(written));
            }
            Action::RewriteRecords(all) => {
                let written = self.records.rewrite(&all).map_err(|e| e.to_string());
                self.events.push_back(Event::RecordsRewritten(written));
            }
            Action::SendAgent(event) => self.output.push(&event),
            Action::Answer(conn, event) => self.answers.push((conn, event)),
            Action::KeepSettings(bytes) => {
                if let Err(e) = record_file::keep_settings(spool, &bytes) {
                    eprintln!("{}: settings: {e}", spool.display());
                }
            }
            Action::CheckControllerKey { cluster, key } => {
                let checked = controller_key::check(spool, &cluster, &key);
                self.events.push_back(Event::ControllerKeyChecked(checked));
            }
            Action::KeepScripts(used) => self.scripts.keep_only(&used),
            Action::DropScript(id) => self.scripts.drop_blob(id),
            Action::RemoveSocket(path) => drop(fs::remove_file(path)),
            Action::RemoveResult(attempt, step) => {
                let _ = fs::remove_file(result_path(spool, attempt, step));
            }
            Action::ReadResult(attempt, step, purpose) => {
                let result = step_result::read(&result_path(spool, attempt, step));
                self.events.push_back(Event::ResultRead {
                    attempt,
                    step,
                    purpose,
                    result,
                });
            }
            Action::ListResults => {
                let results = stepds::results(spool);
                self.events.push_back(Event::ResultsListed(results));
            }
            Action::RemoveFilesOfOthers(jobs) => remove_files_of_others(spool, &jobs),
            other => self.handle_processes(other),
        }
    }

    /// Starts processes, and serves step daemons.
    fn handle_processes(&mut self, action: Action) {
        match action {
            Action::PrepareLaunch {
                attempt,
                script,
                prolog,
                epilog,
            } => {
                let files = self.prepare_launch(script.as_ref(), prolog, epilog);
                self.events.push_back(Event::LaunchPrepared(attempt, files));
            }
            Action::StartScript(launch) => {
                let started = self.start_script(&launch);
                self.events
                    .push_back(Event::ScriptStarted(launch.attempt, started));
            }
            Action::StartPrograms {
                attempt,
                kind,
                programs,
                env,
            } => {
                let started = programs::start(kind, &programs, env);
                self.programs_started(attempt, kind, started);
            }
            Action::MakeContainer(attempt, around) => {
                let started = containers::start_making(&around);
                self.programs_started(attempt, JobProgramKind::Container, started);
            }
            Action::RemoveContainer(attempt, around) => {
                let started = containers::start_removal(&around);
                self.programs_started(attempt, JobProgramKind::ContainerRemoval, started);
            }
            Action::RemoveTmpDir(dir) => self.tmp_dirs.add(dir, sys::boot_ms()),
            Action::SweepContainers { base, kept } => containers::sweep(&base, &kept),
            Action::StartMessage {
                attempt,
                kind,
                user,
                work_dir,
                path,
                line,
                namespace,
            } => {
                let message = Message {
                    work_dir,
                    path,
                    line,
                };
                let started = Namespace::open(namespace.as_deref())
                    .and_then(|namespace| message.start(&user, &namespace))
                    .map_err(|e| e.to_string());
                self.events
                    .push_back(Event::MessageStarted(attempt, kind, started));
            }
            Action::ReadLastLines {
                attempt,
                user,
                work_dir,
                path,
                namespace,
            } => {
                let order = LastLines { work_dir, path };
                let started = Namespace::open(namespace.as_deref())
                    .and_then(|namespace| order.start(&user, &namespace));
                match started {
                    Ok(started) => self.ask(started, About::LastLines(attempt)),
                    Err(e) => {
                        eprintln!("job {}: its last lines cannot be read: {e}", attempt.job);
                        self.events
                            .push_back(Event::LastLinesRead(attempt, Vec::new()));
                    }
                }
            }
            Action::StopLastLines(attempt) => self.drop_question(&About::LastLines(attempt)),
            Action::StartSiteProgram { kind, program, env } => {
                let started = programs::start_of_site(&program, &env);
                let started = started.map_err(|e| e.to_string());
                self.events
                    .push_back(Event::SiteProgramStarted(kind, started));
            }
            Action::RemoveDirs {
                attempt,
                user,
                dirs,
            } => {
                let removal = Removal::begin(user, &dirs);
                let started = removal.map(|r| Event::RemovalStarted(attempt, r.pid));
                self.events.extend(started);
            }
            Action::LookUpGroups(account) => self.look_up_groups(account),
            Action::StopLookUp(account) => self.drop_question(&About::Groups(account)),
            Action::Measure { id, wanted, of } => self.start_measurement(id, wanted, &of),
            Action::StopMeasurement(id) => self.drop_question(&About::Measurement(id)),
            other => self.handle_stepds(other),
        }
    }

    /// Starts the removal of temporary directories that have waited long enough for others.
    fn remove_tmp_dirs(&mut self) {
        for pid in self.tmp_dirs.start_due(sys::boot_ms()) {
            self.search.add_helper(pid);
        }
    }

    /// Reports whether the process of programs around a job has started.
    fn programs_started(
        &mut self,
        attempt: JobAttempt,
        kind: JobProgramKind,
        started: io::Result<i32>,
    ) {
        let started = started.map_err(|e| failure(&e));
        self.events
            .push_back(Event::ProgramsStarted(attempt, kind, started));
    }

    fn start_measurement(&mut self, id: u64, wanted: ProcessQuery, of: &JobProcesses) {
        let listed = measure::list(self.search.tree(), of);
        match measure::start(listed, wanted) {
            Ok(started) => self.ask(started, About::Measurement(id)),
            Err(e) => {
                eprintln!("no process to measure a job: {e}");
                self.events.push_back(Event::Measured(id, None));
            }
        }
    }

    fn handle_stepds(&mut self, action: Action) {
        match action {
            Action::StartStepd {
                order,
                socket,
                listen,
                confinement,
                namespace,
            } => {
                let (attempt, step) = (order.step.order.attempt, order.step.order.launch.step);
                let groups = self
                    .search
                    .groups
                    .of_daemon(attempt, confinement.as_deref());
                let started = groups.and_then(|(entrances, groups)| {
                    let namespace = Namespace::open(namespace.as_deref())?;
                    let place = (self.search.members.of_daemon(attempt), entrances, namespace);
                    let order = FirstOrder { groups, ..*order };
                    self.stepds.start(&order, &socket, listen.as_deref(), place)
                });
                let started = started.map(|(started, channel)| {
                    self.give_channel(attempt, step, channel);
                    started
                });
                let started = started.map_err(|e| e.to_string());
                self.events
                    .push_back(Event::StepdStarted(attempt, step, started));
            }
            Action::GiveStep {
                attempt,
                step,
                stepd,
                frame,
            } => {
                let given = self.stepds.give(stepd, &frame).ok();
                let is_sent = given.is_some();
                if let Some(channel) = given {
                    self.give_channel(attempt, step, channel);
                }
                self.events
                    .push_back(Event::StepGiven(attempt, step, is_sent));
            }
            Action::SendStepd(stepd, command) => {
                if !self.stepds.send(stepd, &command) {
                    self.events.push_back(Event::NotSent(stepd, command));
                }
            }
            Action::ListenTo(stepd) => self.stepds.listen_to(stepd),
            Action::StopListening(stepd) => self.stepds.stop_listening(stepd),
            Action::CloseStepd(stepd) => self.stepds.close(stepd),
            Action::AskStepds(sockets) => {
                let events = self.stepds.ask(sockets, &self.spool);
                self.events.extend(events);
            }
            Action::WatchStepd(attempt, step, pid) => {
                let is_there = self.search.watch(pid).is_some();
                let belongs = is_there.then(|| self.search.members.of(pid));
                self.events
                    .push_back(Event::StepdWatched(attempt, step, pid, belongs));
            }
            other => self.signal(other),
        }
    }

    /// Signals processes, and searches for them.
    fn signal(&mut self, action: Action) {
        let (launcher, search) = (&self.launcher, &mut self.search);
        let event = match action {
            Action::Unwatch(pid) => {
                search.unwatch(pid);
                None
            }
            Action::Signal(pid, signal) => {
                search.signal(pid, signal);
                None
            }
            Action::SignalGroup(pid, signal) => {
                search.signal_group(pid, signal);
                None
            }
            Action::SignalScript {
                of,
                script,
                signal,
                steps_too,
            } => {
                search.signal_script(launcher, of, script, signal, steps_too);
                None
            }
            Action::SignalBelow { of, roots, signal } => {
                search.signal_below(of, &roots, signal);
                None
            }
            Action::SignalStep {
                of,
                step,
                pid,
                signal,
            } => search.signal_step(of, (step, pid), signal),
            Action::SignalFound {
                of,
                found,
                since_ms,
                signal,
            } => {
                search.signal_found(of, &found, since_ms, signal);
                None
            }
            Action::FindLeftovers(jobs) => Some(search.find_leftovers(launcher, &jobs)),
            Action::KillOrphans => {
                search.orphans(launcher);
                None
            }
            Action::KillRemnants(of, daemon) => {
                search.kill_remnants(launcher, of, daemon);
                None
            }
            Action::RetireMember(attempt, pid) => {
                search.members.retire(attempt, pid);
                None
            }
            Action::FreezeGroups(attempt, is_frozen) => {
                search.groups.freeze(attempt, is_frozen);
                None
            }
            Action::RemoveGroups(attempt) => {
                search.groups.remove(attempt);
                None
            }
            Action::ForgetScript(attempt) => {
                search.members.forget_script(attempt);
                None
            }
            Action::ForgetMembers(attempt) => {
                search.members.forget(attempt);
                None
            }
            // These actions are performed by the callers.
            other => {
                let shown = debug_beginning(&other, 60);
                eprintln!("nothing carries out {shown}");
                None
            }
        };
        self.events.extend(event);
    }

    fn start_script(&mut self, launch: &ScriptLaunch) -> Result<i32, ScriptNotStarted> {
        let confinement = launch.confinement.as_deref();
        let groups = self.search.groups.of_script(launch.attempt, confinement);
        let groups = groups.map_err(|e| ScriptNotStarted::Failed(failure(&e)))?;
        let namespace = Namespace::open(launch.namespace.as_deref());
        let namespace = namespace.map_err(|e| ScriptNotStarted::Failed(failure(&e)))?;
        let row = self.search.members.of_script(launch.attempt);
        let place = (row, groups, namespace);
        self.script_starter.start(launch, place)
    }

    /// Reports a process that has ended or is about to, and the result if it is a script.
    fn note_script_end(&mut self, pid: i32) {
        let Some(attempt) = self.launcher.job_of_script(pid) else {
            return;
        };
        let kills = self.search.groups.oom_kills_of_script(attempt);
        if kills > 0 {
            self.deliver(Event::ScriptOutOfMemory(attempt, kills));
        }
    }

    fn prepare_launch(
        &mut self,
        script: Option<&ScriptFile>,
        prolog: Option<String>,
        epilog: Option<String>,
    ) -> Result<LaunchFiles, Failure> {
        let path = |s: &ScriptFile| self.scripts.path(s.id, s.uid, s.gid, &s.text);
        let script = script.map(path).transpose();
        Ok(LaunchFiles {
            script: script.map_err(|e| failure(&e))?,
            prolog: site_programs("Prolog", prolog),
            epilog: site_programs("Epilog", epilog),
        })
    }

    fn look_up_groups(&mut self, account: UserAccount) {
        match groups::start(&account) {
            Ok(started) => self.ask(started, About::Groups(account)),
            Err(e) => {
                eprintln!("no process to look up the groups of {}: {e}", account.name);
                let groups = vec![account.gid];
                self.events.push_back(Event::GroupsFound(account, groups));
            }
        }
    }

    fn ask(&mut self, (pid, answer): (i32, UnixStream), about: About) {
        self.search.add_helper(pid);
        self.questions.push(QueryProcess {
            pid,
            answer,
            bytes: Vec::new(),
            about,
        });
    }

    fn drop_question(&mut self, about: &About) {
        let is_it = |q: &QueryProcess| q.about == *about;
        if let Some(at) = self.questions.iter().position(is_it) {
            let question = self.questions.swap_remove(at);
            self.search.kill_helper(question.pid);
        }
    }

    fn read_answer(&mut self, fd: RawFd) {
        let is_it = |q: &QueryProcess| q.answer.as_raw_fd() == fd;
        let Some(at) = self.questions.iter().position(is_it) else {
            return;
        };
        if !self.questions[at].read() {
            return;
        }
        let QueryProcess { bytes, about, .. } = self.questions.swap_remove(at);
        self.deliver(match about {
            About::Groups(account) => {
                let groups = groups::groups_of(&account, &bytes);
                Event::GroupsFound(account, groups)
            }
            About::Measurement(id) => Event::Measured(id, Some(bytes)),
            About::LastLines(attempt) => Event::LastLinesRead(attempt, bytes),
        });
    }

    /// Descriptors to poll for input, and the objects to which they belong:
    /// [`LauncherExecutor::take`].
    pub(super) fn polled(&self) -> impl Iterator<Item = (RawFd, Source)> {
        let watched = self.search.watched();
        let watched = watched.map(|(fd, pid)| (fd, Source::Watched(pid)));
        let stepds = self.stepds.listened();
        let stepds = stepds.map(|(fd, id)| (fd, Source::Stepd(id)));
        let asked = self.stepds.asked().map(|fd| (fd, Source::Asked));
        let questions = self.questions.iter();
        let questions = questions.map(|q| (q.answer.as_raw_fd(), Source::Question));
        // Step daemons come before processes: a daemon's report counts, however the daemon ended
        // afterwards.
        stepds.chain(asked).chain(questions).chain(watched)
    }

    /// A descriptor is readable.
    pub(super) fn take(&mut self, fd: RawFd, source: Source) {
        match source {
            Source::Stepd(id) => {
                // Since the poll the launcher may have taken the end of its step: later messages wait until its next
                // step is assigned.
                self.stepds.read(vec![id]);
                self.deliver_unread();
            }
            Source::Asked => {
                if let Some(event) = self.stepds.answer_of(fd) {
                    self.deliver(event);
                }
            }
            Source::Question => self.read_answer(fd),
            Source::Watched(pid) => {
                self.note_script_end(pid);
                if let Some(event) = self.search.watched_ended(pid) {
                    self.deliver(event);
                }
            }
        }
    }

    fn deliver_unread(&mut self) {
        if let Some(event) = self.stepds.next_event() {
            self.deliver(event);
        }
    }

    /// Delivers the reports of step daemons before events of other origin about them, such as a
    /// daemon's exit.
    pub(super) fn read_stepds(&mut self) {
        self.stepds.read_ready();
        self.deliver_unread();
    }

    /// Sends the agent its end of a control channel to a step's daemon. The daemon keeps the other
    /// end, so the launcher never has to close descriptors that the agent sends.
    fn give_channel(&mut self, attempt: JobAttempt, step: StepNo, channel: OwnedFd) {
        let event = LauncherEvent::StepChannel(attempt, step);
        self.output.push_with(&event, channel);
    }

    /// Another agent was attached: it receives what the previous one has missed.
    pub(super) fn attach(&mut self, attach: AttachAgent) {
        self.output.clear();
        let is_needed = self.launcher.needs_machine(&attach.claim);
        let machine = is_needed.then(|| Box::new(crate::topology::read_machine(attach.claim)));
        self.deliver(Event::Attached(Box::new(attach), machine));
    }

    /// Collects children that have ended. Each is reported before the next is collected: while the
    /// end of a process is not known yet, no other process can have its number.
    pub(super) fn reap(&mut self) {
        self.read_stepds();
        let after = reaping::each_ended(sys::ended_child, |pid| self.collect(pid));
        self.may_have_ended = after == ReapResult::Burst;
    }

    /// Collects one ended child and reports it.
    fn collect(&mut self, pid: i32) {
        // Reads only daemons that may have sent more since all were read. Reading all of them for
        // each child would take longer with each job.
        self.stepds.read(self.launcher.stepds_before(pid));
        self.deliver_unread();
        self.note_script_end(pid);
        let script = self.launcher.job_of_script(pid);
        let used = script.and_then(|attempt| self.search.groups.usage_of_script(attempt));
        let Some(child) = sys::reap_child(pid) else {
            return;
        };
        self.search.forget_helper(pid);
        self.tmp_dirs.ended(pid, child.status);
        let failure = self.script_starter.ended(pid);
        let mut usage = ResourceUsage {
            user_us: child.user_us,
            system_us: child.system_us,
            max_rss_kib: child.max_rss_kib,
            pages: child.pages,
            disk_read_bytes: child.blocks_in * 512,
            disk_write_bytes: child.blocks_out * 512,
            ..ResourceUsage::default()
        };
        if let Some(used) = used {
            used.raise(&mut usage);
        }
        self.deliver(Event::ChildEnded {
            pid,
            status: child.status,
            usage: Box::new(usage),
            failure,
        });
    }

    /// Delivers due timers, and lets the launcher complete the work of this wake-up.
    pub(super) fn finish_wakeup(&mut self) {
        while let Some(key) = self.timers.take_due(sys::boot_ms()) {
            self.deliver(Event::TimerDue(key));
        }
        self.tmp_dirs.kill_late(sys::boot_ms());
        self.remove_tmp_dirs();
        self.search.kill_more_remnants(&self.launcher);
        self.search.groups.remove_left();
        if self.search.groups.take_emptied() {
            self.deliver(Event::GroupsEmptied);
        }
        while self.deliver(Event::WakeUpEnded) {}
    }

    /// Output to the agent; its records are on disk first.
    pub(super) fn take_output(&mut self) -> Output {
        std::mem::take(&mut self.output)
    }

    /// Output to root.
    pub(super) fn take_answers(&mut self) -> Vec<(RootConnId, LauncherEvent)> {
        std::mem::take(&mut self.answers)
    }

    pub(super) fn may_exit(&self) -> bool {
        self.launcher.may_exit()
    }

    /// Called before the launcher exits, when nothing can wait any more.
    pub(super) fn finish(&mut self) {
        self.tmp_dirs.start_all();
    }

    /// Milliseconds to the next timer; -1 if there is none.
    pub(super) fn timeout_ms(&self) -> i32 {
        if self.may_have_ended || self.search.has_remnants() {
            return 0;
        }
        let next = self
            .timers
            .next()
            .into_iter()
            .chain(self.tmp_dirs.next_ms());
        let timer = next.min().map_or(-1, |at_ms| {
            let wait_ms = at_ms.saturating_sub(sys::boot_ms());
            i32::try_from(wait_ms).unwrap_or(i32::MAX)
        });
        match (self.search.groups.is_waiting(), timer) {
            (true, 0..GROUPS_WAIT_MS) | (false, _) => timer,
            (true, _) => GROUPS_WAIT_MS,
        }
    }
}

/// The programs that a key of slurm.conf names, in its order.
fn site_programs(key: &str, value: Option<String>) -> Vec<String> {
    let values = value.iter().flat_map(|value| value.split(','));
    let named = values.filter(|value| !value.is_empty());
    named.flat_map(|value| fitting(key, value)).collect()
}

/// The programs that match a pattern, or the one with that name.
fn fitting(key: &str, value: &str) -> Vec<String> {
    if !value.contains(['*', '?', '[']) {
        return vec![value.to_owned()];
    }
    let found = sys::glob(value);
    if found.is_empty() {
        eprintln!("{key}={value}: no file on this node fits the pattern");
    }
    found
}

/// Removes results of steps whose jobs are forgotten, and sockets where nobody listens, whose names have no job's number.
fn remove_files_of_others(spool: &Path, jobs: &BTreeSet<JobId>) {
    for (path, name) in stepds::step_files(spool) {
        let number = name.strip_prefix("step-").and_then(|n| n.split('.').next());
        let job = number.and_then(|n| n.parse().ok()).map(JobId);
        let is_useless = match job {
            Some(job) => !jobs.contains(&job),
            None => name.ends_with(".sock") && !stepds::has_listener(&path),
        };
        if is_useless {
            let _ = fs::remove_file(path);
        }
    }
}
