//! Step daemons from the shim's side: started, ended with the job, collected with their result. One whose
//! step left nothing behind is kept for the next step of its job, which the agent gives it by a line of its own. What the agent
//! says of steps may come later here than what their daemons say: before it is acted on, the lines to these are looked at.

mod begin;
mod found;
mod stepd_event;

pub(super) use begin::Beginners;
pub(super) use stepd_event::EncodedEnd;

use super::jobs::{JobEntry, Role, Shim};
use super::processes::Containment;
use crate::descriptors::{self, OrderFds};
use crate::{now, stepd, sys};
use muster_core::ids::StepNo;
use muster_core::job::{ExitStatus, JobState, StepEnd, Usage};
use muster_node_core::messages::{
    FirstOrder, JobAttempt, LauncherEvent, NextStep, PmixOrder, StepBounds, StepOrder, StepdCommand,
};
use muster_node_core::pmix_place::SHARED_MEMORY;
use muster_node_core::stepd_reuse::{ORDER_MAX, SPARES_MAX, result_path};
use muster_proto::frame::{self, Frames};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use stepd_event::StepdEventRef;

/// How names of directories begin that a step has for itself.
const STEP_DIR: &str = "muster-pmix.";

/// The process of a step daemon that this shim forked.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) pid: i32,
    /// The line to it: [`StepdCommand`] one way, ends of steps the other.
    control: UnixStream,
    input: Frames,
    /// Where srun reaches it.
    socket: PathBuf,
    /// The agent has a line to it: gives it steps, and receives their ends.
    has_agent_channel: bool,
    /// An earlier shim forked it. It has no other step.
    adopted: bool,
}

impl Daemon {
    /// Readable when it has said something.
    pub(super) fn fd(&self) -> RawFd {
        self.control.as_raw_fd()
    }

    fn tell(&mut self, control: &StepdCommand) -> io::Result<()> {
        self.control.write_all(&frame::encode(control))
    }

    /// Gives it another step, and what goes with it.
    fn give(&mut self, frame: &[u8], with: &OrderFds) -> io::Result<()> {
        let sent = descriptors::send(&self.control, frame, &with.numbers())?;
        self.control.write_all(&frame[sent..])
    }

    /// Takes in what it has said.
    ///
    /// # Errors
    /// It says no more.
    fn read(&mut self) -> io::Result<()> {
        // Small: it is cleared for each daemon that is looked at, and holds several short steps.
        let mut chunk = [0; 2 << 10];
        loop {
            match self.control.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    // A read that did not fill the buffer emptied the socket.
                    if n < chunk.len() {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads what it has said: how this step has ended, if it has. What comes after that stays to be read: the agent may
    /// have given another step, and say so later.
    ///
    /// # Errors
    /// It is gone.
    fn end_of(&mut self, step: StepNo) -> io::Result<Option<EncodedEnd>> {
        let open = self.read();
        while let Some(event) = StepdEventRef::next(&mut self.input) {
            match event {
                StepdEventRef::StepEnded(of, end) if of == step => {
                    return Ok(Some(EncodedEnd::from_daemon(end)));
                }
                // One that a lost agent gave, and did not tell of.
                StepdEventRef::StepEnded(..) | StepdEventRef::StepRunning => {}
            }
        }
        open.map(|()| None)
    }

    /// Has one without a step end.
    fn dismiss(mut self) {
        let _ = fs::remove_file(&self.socket);
        // If it is gone already, so much the better.
        let _ = self.tell(&StepdCommand::Exit);
    }
}

/// Where a step was placed: its daemon's process, and where that listens for srun and for the step's other nodes.
struct Placed {
    pid: i32,
    socket: PathBuf,
    wire: Option<String>,
}

/// A step and its daemon.
#[derive(Debug)]
pub(super) struct StepProc {
    /// The daemon's process; 0 for one that did not outlive an earlier shim.
    pub(super) pid: i32,
    /// The daemon; lost with an earlier shim, and when the step is over.
    pub(super) daemon: Option<Daemon>,
    /// Its directories outside the spool directory, for MPI: what is in them when it has ended is nobody's.
    pub(super) dirs: Vec<PathBuf>,
    /// How its part of the step ended.
    pub(super) ended: Option<EncodedEnd>,
    /// Its daemon has reported that here, and so has left no file.
    pub(super) reported: bool,
}

impl StepProc {
    /// A step that runs in this process.
    pub(super) fn new(pid: i32, daemon: Option<Daemon>) -> StepProc {
        StepProc {
            pid,
            daemon,
            dirs: Vec::new(),
            ended: None,
            reported: false,
        }
    }

    /// Has the daemon end its tasks: TERM, after a while KILL. Gives its process if it has to be sent SIGTERM for that.
    #[must_use]
    pub(super) fn ask_to_end(&mut self) -> Option<i32> {
        if self.ended.is_some() {
            return None;
        }
        let end = StepdCommand::EndStep;
        let sent = self.daemon.as_mut().map(|d| d.tell(&end));
        (!matches!(sent, Some(Ok(())))).then_some(self.pid)
    }
}

impl JobEntry {
    /// Has the daemons that wait for another step end.
    pub(super) fn dismiss_spares(&mut self) {
        std::mem::take(&mut self.spares)
            .into_iter()
            .for_each(Daemon::dismiss);
    }
}

/// Whether a path leads to such a directory.
pub(crate) fn is_step_dir(path: &str) -> bool {
    let name = Path::new(path).file_name();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(STEP_DIR.as_bytes()))
}

impl Shim {
    /// Starts a step daemon, or gives one that is there a step.
    pub(super) fn start_step(&mut self, order: Box<StepOrder>, with: OrderFds) {
        self.launch();
        let Some((mut order, with)) = self.wait_for_job(order, with) else {
            return;
        };
        let direct = order.direct;
        let (run, step) = (order.run, order.launch.step);
        let mut refused = match self.jobs.get(&run) {
            None => Some("the job is not on this node"),
            Some(e) if e.is_leaving() => Some("the job is ending"),
            Some(_) if with.agent.is_none() => Some("what goes with its order did not come"),
            Some(_) => None,
        }
        .map(str::to_owned);
        let mut bounds = None;
        if refused.is_none() {
            match self.confine_step(&mut order) {
                Ok(found) => bounds = Some(found),
                Err(why) => refused = Some(why),
            }
        }
        if let Some(why) = &refused {
            let refusals = &mut self.refusals;
            refusals.log(format_args!("step {}.{step}: {why}", run.job));
        }
        let started = match (refused, bounds) {
            (None, Some(bounds)) => self.place_step(order, &with, bounds),
            (why, _) => Err(io::Error::other(why.unwrap_or_default())),
        };
        let event = match started {
            Ok(Placed { pid, socket, wire }) => LauncherEvent::StepReady {
                run,
                step,
                socket: socket.to_string_lossy().into_owned(),
                wire,
                direct,
                pid,
            },
            Err(e) => LauncherEvent::StepFailed {
                run,
                step,
                error: e.to_string(),
            },
        };
        self.emit(&event);
    }

    /// Has a daemon take the step: one that is there and that the agent has no line to, or a new one.
    fn place_step(
        &mut self,
        order: Box<StepOrder>,
        with: &OrderFds,
        bounds: StepBounds,
    ) -> io::Result<Placed> {
        let (run, step) = (order.run, order.launch.step);
        let is_free = |spare: &Daemon| !spare.has_agent_channel;
        let free = |e: &mut JobEntry| {
            let at = e.spares.iter().position(is_free)?;
            Some(e.spares.swap_remove(at))
        };
        let next = NextStep {
            order,
            kill_wait_ms: u64::try_from(self.kill_wait.as_millis()).unwrap_or(u64::MAX),
            result: result_path(&self.spool, run, step)
                .to_string_lossy()
                .into_owned(),
            kept: self.kept_of(run, step),
        };
        let spares = self.jobs.get(&run).map_or(&[][..], |e| &e.spares);
        // The streams of a direct step come by the agent, when the daemon knows of it.
        let needs_start = next.order.pmix.is_some() || next.order.direct;
        if needs_start || !spares.iter().any(is_free) {
            return self.start_daemon(next, with, bounds);
        }
        let frame = next.as_command();
        while frame.len() <= ORDER_MAX
            && let Some(spare) = self.jobs.get_mut(&run).and_then(free)
        {
            if let Some(placed) = self.give_step(spare, (run, step), &frame, with) {
                return Ok(placed);
            }
        }
        self.start_daemon(next, with, bounds)
    }

    /// Gives a step to a daemon that has had one; nothing if that fails.
    fn give_step(
        &mut self,
        mut daemon: Daemon,
        (run, step): (JobAttempt, StepNo),
        frame: &[u8],
        with: &OrderFds,
    ) -> Option<Placed> {
        if daemon.give(frame, with).is_err() {
            sys::kill(daemon.pid, libc::SIGKILL);
            let _ = fs::remove_file(&daemon.socket);
            return None;
        }
        daemon.has_agent_channel = true;
        let placed = Placed {
            pid: daemon.pid,
            socket: daemon.socket.clone(),
            wire: None,
        };
        self.enter_step(run, step, daemon, Vec::new());
        Some(placed)
    }

    /// The agent has given a step to a daemon that waited for one.
    pub(super) fn on_step_assigned(&mut self, run: JobAttempt, step: StepNo, pid: i32) {
        self.launch();
        self.receive_from_daemon_of(pid);
        let entry = self.jobs.get_mut(&run).filter(|e| !e.released);
        let Some(entry) = entry.filter(|e| !e.had_step(step)) else {
            return self.report_lost_step(run, step);
        };
        let ending = entry.ending.is_some();
        if let Some(at) = entry.spares.iter().position(|spare| spare.pid == pid) {
            let daemon = entry.spares.swap_remove(at);
            let line = daemon.fd();
            self.enter_step(run, step, daemon, Vec::new());
            // It may have ended, which was read with the end of the one before.
            return self.receive_from_daemon(line);
        }
        // One that has been dismissed meanwhile, or that an earlier shim forked.
        let dismissed = self.roles.get(&pid) == Some(&Role::Spare(run));
        if dismissed {
            self.roles.insert(pid, Role::Step(run, step));
        } else if self.roles.contains_key(&pid) || !self.watch_daemon(run, step, pid) {
            return self.report_lost_step(run, step);
        }
        self.records.step(run, step, pid);
        let mut proc = StepProc::new(pid, None);
        if ending && let Some(pid) = proc.ask_to_end() {
            self.signal_process(pid, libc::SIGTERM);
        }
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.enter_step(step, proc);
        }
    }

    /// A step that was given ended with its daemon before this process knew of it.
    pub(super) fn report_lost_step(&mut self, run: JobAttempt, step: StepNo) {
        let path = result_path(&self.spool, run, step);
        let left = stepd::read_result(&path).map(|(end, _)| end);
        let _ = fs::remove_file(path);
        let end = Box::new(left.unwrap_or_else(lost));
        self.emit(&LauncherEvent::StepEnded { run, step, end });
    }

    /// The agent has daemons enough that wait for a step.
    pub(super) fn dismiss(&mut self, run: JobAttempt, pid: i32) {
        self.receive_from_daemon_of(pid);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if let Some(at) = entry.spares.iter().position(|spare| spare.pid == pid) {
            entry.spares.swap_remove(at).dismiss();
        }
    }

    /// There is another agent: it has no lines to daemons that are here.
    pub(super) fn disown_daemons(&mut self) {
        for entry in self.jobs.values_mut() {
            let busy = entry.steps.values_mut().filter_map(|p| p.daemon.as_mut());
            busy.chain(&mut entry.spares)
                .for_each(|d| d.has_agent_channel = false);
        }
    }

    fn enter_step(&mut self, run: JobAttempt, step: StepNo, daemon: Daemon, dirs: Vec<PathBuf>) {
        let pid = daemon.pid;
        self.records.step(run, step, pid);
        self.roles.insert(pid, Role::Step(run, step));
        self.lines.insert(daemon.fd(), (run, step));
        if let Some(entry) = self.jobs.get_mut(&run) {
            let proc = StepProc {
                dirs,
                ..StepProc::new(pid, Some(daemon))
            };
            entry.enter_step(step, proc);
        }
    }

    fn start_daemon(
        &mut self,
        next: NextStep,
        with: &OrderFds,
        bounds: StepBounds,
    ) -> io::Result<Placed> {
        let of = &*next.order;
        let (run, step) = (of.run, of.launch.step);
        let socket = self.step_socket(run, step);
        let listener = super::bind(&socket, 0o600)?;
        // No message to a step daemon by this socket has any: see [`sys::refuse_descriptors`].
        let _ = sys::refuse_descriptors(&listener);
        if nix::unistd::geteuid().is_root() {
            chown(&socket, Some(of.user.uid), Some(of.user.gid))?;
        }
        let (mut wire, mut dirs) = (None, Vec::new());
        if let Some(pmix) = &of.pmix {
            wire = Some(listen_at(&pmix.listen)?);
            dirs = self.step_dirs(of, pmix)?;
            self.records.step_dirs(run, step, &dirs);
        }
        let address = wire.as_ref().map(TcpListener::local_addr).transpose()?;
        let (control, far_end) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let order = FirstOrder {
            node: self.place.node.clone(),
            dirs: dirs.clone(),
            has_wire: wire.is_some(),
            has_agent: with.agent.is_some(),
            first_limits: sys::first_limits().to_vec(),
            bounds,
            spool: self.spool.clone(),
            step: next,
        };
        let mut descriptors = vec![listener.as_raw_fd(), far_end.as_raw_fd()];
        descriptors.extend(wire.as_ref().map(AsRawFd::as_raw_fd));
        descriptors.extend(with.numbers());
        let row = self.members.of_daemon(run);
        let pid = self
            .beginners
            .start(&order, &descriptors, &self.spool, row)?;
        let daemon = Daemon {
            pid,
            control,
            input: Frames::default(),
            socket: socket.clone(),
            has_agent_channel: true,
            adopted: false,
        };
        self.sessions.insert(pid, run);
        self.enter_step(run, step, daemon, dirs);
        Ok(Placed {
            pid,
            socket,
            wire: address.map(|a| a.to_string()),
        })
    }

    /// For files of the tasks and of what serves them, and for memory that they share. No other step on this machine
    /// has a directory of that name, not even of another cluster or emulated node, and nobody can make it first.
    fn step_dirs(&self, order: &StepOrder, pmix: &PmixOrder) -> io::Result<Vec<PathBuf>> {
        let (mut hasher, mut random) = (DefaultHasher::new(), [0; 8]);
        self.spool.hash(&mut hasher);
        sys::fill_randomly(&mut random)?;
        let (uid, node, place) = (order.user.uid, &self.place.node, hasher.finish());
        let random = u64::from_ne_bytes(random);
        let name = format!(
            "{STEP_DIR}{uid}.{}.{node}.{place:016x}.{random:016x}",
            pmix.nspace
        );
        let bases = [pmix.tmp_base.as_str(), SHARED_MEMORY];
        let mut dirs: Vec<PathBuf> = bases.map(|base| Path::new(base).join(&name)).into();
        dirs.dedup();
        Ok(dirs)
    }

    fn step_socket(&self, run: JobAttempt, step: StepNo) -> PathBuf {
        self.spool.join(format!("step-{}.{}.sock", run.job, step.0))
    }

    /// A daemon has something to say: its step has ended. Others that end leave a file.
    pub(super) fn receive_from_daemon(&mut self, fd: RawFd) {
        let Some(&(run, step)) = self.lines.get(&fd) else {
            return;
        };
        let proc = self.jobs.get_mut(&run).and_then(|e| e.steps.get_mut(&step));
        let Some((mut daemon, proc)) = proc.and_then(|p| Some((p.daemon.take()?, p))) else {
            self.lines.remove(&fd);
            return;
        };
        match daemon.end_of(step) {
            Ok(None) => proc.daemon = Some(daemon),
            // What it has not said is in its file, or lost: its end tells.
            Err(_) => {
                proc.daemon = Some(daemon);
                self.lines.remove(&fd);
            }
            Ok(Some(end)) => {
                proc.reported = true;
                self.lines.remove(&fd);
                self.records.step_ended(run, step, end.clone());
                self.end_of_step(run, step, end, daemon.has_agent_channel);
                if daemon.adopted {
                    self.watched.retain(|w| w.pid != daemon.pid);
                    daemon.dismiss();
                } else {
                    self.keep_daemon(run, daemon);
                }
            }
        }
    }

    /// The same of the daemon that is this process, if it has a step.
    fn receive_from_daemon_of(&mut self, pid: i32) {
        if let Some(Role::Step(run, step)) = self.roles.get(&pid).copied() {
            self.receive_from_step(run, step);
        }
    }

    /// The same of the daemon of a step.
    fn receive_from_step(&mut self, run: JobAttempt, step: StepNo) {
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        if let Some(daemon) = proc.and_then(|p| p.daemon.as_ref()) {
            self.receive_from_daemon(daemon.control.as_raw_fd());
        }
    }

    /// The same of all daemons of a job.
    pub(super) fn receive_from_daemons_of(&mut self, run: JobAttempt) {
        let all = self
            .jobs
            .get(&run)
            .into_iter()
            .flat_map(|e| e.steps.values());
        let daemons = all.filter_map(|p| p.daemon.as_ref());
        let lines = daemons.map(|d| d.control.as_raw_fd());
        for line in lines.collect::<Vec<_>>() {
            self.receive_from_daemon(line);
        }
    }

    fn keep_daemon(&mut self, run: JobAttempt, daemon: Daemon) {
        self.roles.insert(daemon.pid, Role::Spare(run));
        match self.jobs.get_mut(&run) {
            // Of its own, the agent says when there are enough.
            Some(entry)
                if entry.ending.is_none()
                    && (daemon.has_agent_channel || entry.spares.len() < SPARES_MAX) =>
            {
                entry.spares.push(daemon);
            }
            _ => daemon.dismiss(),
        }
    }

    /// A daemon without a step has ended.
    pub(super) fn spare_ended(&mut self, run: JobAttempt, pid: i32) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if let Some(at) = entry.spares.iter().position(|spare| spare.pid == pid) {
            let _ = fs::remove_file(&entry.spares.swap_remove(at).socket);
        }
    }

    /// A step daemon ended: reads what it left. One that was killed left no result, perhaps processes, and files.
    pub(super) fn step_ended(&mut self, run: JobAttempt, step: StepNo) {
        let entry = self.jobs.get(&run);
        let daemon = entry.and_then(|e| e.steps.get(&step)?.daemon.as_ref());
        let socket = daemon.map(|d| d.socket.clone());
        let pid = entry.and_then(|e| e.steps.get(&step)).map_or(0, |s| s.pid);
        if let Some((pid, line)) = daemon.map(|d| (d.pid, d.control.as_raw_fd())) {
            // It may have reported the step's end and then been killed.
            self.receive_from_daemon(line);
            if !self.lines.contains_key(&line) && self.roles.remove(&pid).is_some() {
                return self.spare_ended(run, pid);
            }
        }
        let _ = fs::remove_file(socket.unwrap_or_else(|| self.step_socket(run, step)));
        let end = stepd::read_result(&result_path(&self.spool, run, step)).map(|(end, _)| end);
        if end.is_none() {
            self.kill_rest_of(run, pid);
        }
        let end = EncodedEnd::of(&end.unwrap_or_else(lost));
        self.end_of_step(run, step, end, false);
    }

    /// `known`: the agent knows of it.
    fn end_of_step(&mut self, run: JobAttempt, step: StepNo, end: EncodedEnd, known: bool) {
        let Some(proc) = self.jobs.get_mut(&run).and_then(|e| e.steps.get_mut(&step)) else {
            return;
        };
        let dirs = std::mem::take(&mut proc.dirs);
        proc.ended = Some(end.clone());
        if let Some(daemon) = proc.daemon.take() {
            self.lines.remove(&daemon.control.as_raw_fd());
        }
        self.remove_dirs(run, &dirs);
        if !known {
            let end = Box::new(end.decoded());
            self.emit(&LauncherEvent::StepEnded { run, step, end });
        }
        self.unsettled = true;
    }

    fn has_ended(&self, run: JobAttempt, step: StepNo) -> bool {
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        proc.is_some_and(|proc| proc.ended.is_some())
    }

    pub(super) fn forget_step(&mut self, run: JobAttempt, step: StepNo) {
        // What is known to have ended has nothing more to say.
        if !self.has_ended(run, step) {
            self.receive_from_step(run, step);
        }
        if !self.has_ended(run, step) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let reported = entry.steps.remove(&step).is_some_and(|s| s.reported);
        self.records.step_gone(run, step);
        if !reported {
            let _ = fs::remove_file(result_path(&self.spool, run, step));
        }
    }

    /// Processes of the job's step daemons.
    pub(super) fn daemons(&self, run: JobAttempt) -> Vec<i32> {
        self.jobs.get(&run).map_or_else(Vec::new, |e| {
            let alive = e.steps.values().filter(|s| s.ended.is_none() && s.pid > 0);
            alive.map(|s| s.pid).collect()
        })
    }

    /// Tells all steps of a job to end, and their users why.
    pub(super) fn end_all_steps(&mut self, run: JobAttempt, message: Option<String>) {
        self.receive_from_daemons_of(run);
        let node = self.place.node.clone();
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let mut to_term = Vec::new();
        for (step, proc) in entry.steps.iter_mut().filter(|(_, p)| p.ended.is_none()) {
            if let (Some(text), Some(daemon)) = (&message, &mut proc.daemon) {
                let text = format!(
                    "slurmstepd: error: *** STEP {}.{step} ON {node} {text} ***",
                    run.job
                );
                // A daemon that does not read is being killed anyway.
                let _ = daemon.tell(&StepdCommand::PrintStepLine(text));
            }
            to_term.extend(proc.ask_to_end());
        }
        for pid in to_term {
            self.signal_process(pid, libc::SIGTERM);
        }
    }

    /// Tells a step daemon that its tasks may run for another time.
    pub(super) fn limit_step(&mut self, run: JobAttempt, step: StepNo, seconds: Option<u64>) {
        self.control_step(run, step, &StepdCommand::SetTimeLimit(seconds));
    }

    /// Has a step daemon write a line to the standard error of its step, whichever node it is on.
    pub(super) fn tell_step(&mut self, run: JobAttempt, step: StepNo, text: String) {
        let line = format!("slurmstepd: error: {text}");
        self.control_step(run, step, &StepdCommand::PrintLine(line));
    }

    fn control_step(&mut self, run: JobAttempt, step: StepNo, control: &StepdCommand) {
        self.receive_from_step(run, step);
        let entry = self.jobs.get_mut(&run);
        let proc = entry.and_then(|e| e.steps.get_mut(&step));
        if let Some(daemon) = proc.and_then(|p| p.daemon.as_mut()) {
            // A daemon that does not read is being killed.
            let _ = daemon.tell(control);
        }
    }

    pub(super) fn end_step(&mut self, run: JobAttempt, step: StepNo) {
        self.receive_from_step(run, step);
        let entry = self.jobs.get_mut(&run);
        let proc = entry.and_then(|e| e.steps.get_mut(&step));
        if let Some(pid) = proc.and_then(StepProc::ask_to_end) {
            self.signal_process(pid, libc::SIGTERM);
        }
    }

    /// Watches a step daemon that an earlier launcher has started, as somebody says.
    fn watch_daemon(&mut self, run: JobAttempt, step: StepNo, pid: i32) -> bool {
        if !self.watch_if(pid, Role::Step(run, step), |_| true) {
            return false;
        }
        let is_it = self.members.may_be_of(run, pid);
        if !is_it {
            self.watched.pop();
        }
        is_it
    }

    /// Signals all processes of a step; one that is to end it also ends a step whose tasks have not started.
    pub(super) fn signal_step(&mut self, run: JobAttempt, step: StepNo, signal: i32) {
        self.receive_from_step(run, step);
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        let Some(pid) = proc.filter(|p| p.ended.is_none()).map(|p| p.pid) else {
            return;
        };
        let since_ms = sys::boot_ms();
        let tasks = self.tree.below(&[pid]);
        if tasks.is_empty() && matches!(signal, libc::SIGKILL | libc::SIGTERM | libc::SIGINT) {
            self.end_step(run, step);
        }
        self.signal_members(run, (&[], &tasks), (signal, since_ms));
    }
}

/// A listener for the step's other nodes, at a port of the kernel's choice.
fn listen_at(ip: &str) -> io::Result<TcpListener> {
    TcpListener::bind((ip, 0))
        .map_err(|e| io::Error::new(e.kind(), format!("cannot listen at {ip}: {e}")))
}

/// The end of a step whose daemon left no result: it was killed.
fn lost() -> StepEnd {
    StepEnd {
        end_time: now(),
        exit: ExitStatus {
            code: 0,
            signal: libc::SIGKILL.unsigned_abs(),
        },
        state: JobState::Failed,
        usage: Usage::default(),
        cancelled_by: None,
    }
}
