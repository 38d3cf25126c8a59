//! Step daemons from the shim's side: forked without exec, told of the job's end, collected with their result. One whose
//! step left nothing behind is kept for the next step of its job.

use super::jobs::{Entry, Role, Shim};
use super::processes::{self, Containment};
use super::wire::{FromShim, PmixOrder, Run, StepOrder};
use crate::descriptors::{self, StandardStreams};
use crate::{now, stepd, sys};
use muster_core::ids::StepNo;
use muster_core::job::{ExitStatus, JobState, StepEnd, Usage};
use muster_proto::frame::{self, Frames};
use muster_proto::step::ToStepd;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where memory that processes share has its names.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// Daemons without a step that a job keeps at most.
const SPARES_MAX: usize = 16;
/// An order for a daemon that has had a step may have so many bytes: they fit into the line to it.
const ORDER_MAX: usize = 64 << 10;

/// The process of a step daemon that this shim forked.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) pid: i32,
    /// The line to it: [`stepd::Control`] one way, ends of steps the other.
    control: UnixStream,
    input: Frames,
    /// Where srun reaches it.
    socket: PathBuf,
}

impl Daemon {
    fn tell(&mut self, control: &stepd::Control) -> io::Result<()> {
        self.control.write_all(&frame::encode(control))
    }

    /// Gives it another step, and the streams of its task.
    fn give(&mut self, frame: &[u8], streams: Option<&StandardStreams>) -> io::Result<()> {
        let sent = match streams {
            Some(streams) => descriptors::send(&self.control, frame, streams)?,
            None => 0,
        };
        self.control.write_all(&frame[sent..])
    }

    /// Has one without a step end.
    fn dismiss(mut self) {
        let _ = fs::remove_file(&self.socket);
        // If it is gone already, so much the better.
        let _ = self.tell(&stepd::Control::Leave);
    }
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
    pub(super) ended: Option<StepEnd>,
}

impl StepProc {
    /// Has the daemon end its tasks: TERM, after a while KILL.
    pub(super) fn ask_to_end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let end = stepd::Control::End;
        let told = self.daemon.as_mut().map(|d| d.tell(&end));
        if !matches!(told, Some(Ok(()))) {
            sys::kill(self.pid, libc::SIGTERM);
        }
    }
}

impl Entry {
    /// Has the daemons that wait for another step end.
    pub(super) fn dismiss_spares(&mut self) {
        for spare in self.spares.drain(..) {
            spare.dismiss();
        }
    }
}

impl Shim {
    /// Starts a step daemon, or gives one that is there a step. A direct step comes with `streams`.
    pub(super) fn start_step(&mut self, order: Box<StepOrder>, streams: Option<StandardStreams>) {
        self.launch();
        let Some((order, streams)) = self.wait_for_prolog(order, streams) else {
            return;
        };
        let direct = order.direct;
        let (run, step) = (order.run, order.launch.step);
        let refused = match self.jobs.get(&run) {
            None => Some("the job is not on this node"),
            Some(e) if e.ending.is_some() => Some("the job is ending"),
            Some(e) if e.steps.contains_key(&step) => Some("the step exists"),
            Some(_) if direct && streams.is_none() => Some("its streams did not come"),
            Some(_) => None,
        };
        let started = match refused {
            Some(why) => Err(io::Error::other(why)),
            None => self.place_step(order, streams.as_ref()),
        };
        let event = match started {
            Ok((socket, wire)) => FromShim::StepReady {
                run,
                step,
                socket: socket.to_string_lossy().into_owned(),
                wire,
                direct,
            },
            Err(e) => FromShim::StepFailed {
                run,
                step,
                error: e.to_string(),
            },
        };
        self.emit(&event);
    }

    /// Has a daemon take the step: one that is there, or a new one. Gives where it listens: for srun, and for the
    /// step's other nodes.
    fn place_step(
        &mut self,
        order: Box<StepOrder>,
        streams: Option<&StandardStreams>,
    ) -> io::Result<(PathBuf, Option<String>)> {
        let (run, step) = (order.run, order.launch.step);
        let spares = self.jobs.get(&run).is_some_and(|e| !e.spares.is_empty());
        if order.pmix.is_some() || !spares {
            return self.fork_step(&order, streams);
        }
        let next = stepd::NextStep {
            order,
            kill_wait_ms: u64::try_from(self.kill_wait.as_millis()).unwrap_or(u64::MAX),
            result: Shim::result_path(&self.spool, run, step)
                .to_string_lossy()
                .into_owned(),
        };
        let frame = next.as_control();
        while frame.len() <= ORDER_MAX
            && let Some(spare) = self.jobs.get_mut(&run).and_then(|e| e.spares.pop())
        {
            if let Some(socket) = self.give_step(spare, (run, step), &frame, streams) {
                return Ok((socket, None));
            }
        }
        self.fork_step(&next.order, streams)
    }

    /// Gives a step to a daemon that has had one; nothing if that fails.
    fn give_step(
        &mut self,
        mut daemon: Daemon,
        (run, step): (Run, StepNo),
        frame: &[u8],
        streams: Option<&StandardStreams>,
    ) -> Option<PathBuf> {
        if daemon.give(frame, streams).is_err() {
            sys::kill(daemon.pid, libc::SIGKILL);
            let _ = fs::remove_file(&daemon.socket);
            return None;
        }
        let socket = daemon.socket.clone();
        self.enter_step(run, step, daemon, Vec::new());
        Some(socket)
    }

    fn enter_step(&mut self, run: Run, step: StepNo, daemon: Daemon, dirs: Vec<PathBuf>) {
        let pid = daemon.pid;
        self.records.step(run, step, pid);
        self.roles.insert(pid, Role::Step(run, step));
        self.lines.insert(daemon.control.as_raw_fd(), (run, step));
        if let Some(entry) = self.jobs.get_mut(&run) {
            let proc = StepProc {
                pid,
                daemon: Some(daemon),
                dirs,
                ended: None,
            };
            entry.steps.insert(step, proc);
        }
    }

    fn fork_step(
        &mut self,
        order: &StepOrder,
        streams: Option<&StandardStreams>,
    ) -> io::Result<(PathBuf, Option<String>)> {
        let (run, step) = (order.run, order.launch.step);
        let socket = self.step_socket(run, step);
        let listener = super::bind(&socket, 0o600)?;
        if nix::unistd::geteuid().is_root() {
            chown(&socket, Some(order.user.uid), Some(order.user.gid))?;
        }
        let wire = match &order.pmix {
            Some(pmix) => Some(listen_at(&pmix.listen)?),
            None => None,
        };
        let address = wire.as_ref().map(TcpListener::local_addr).transpose()?;
        let (control, far_end) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let setting = stepd::Setting {
            node: self.node.clone(),
            kill_wait: self.kill_wait,
            result: Shim::result_path(&self.spool, run, step),
            dirs: order
                .pmix
                .as_ref()
                .map_or_else(Vec::new, |pmix| self.step_dirs(order, pmix)),
        };
        let dirs = setting.dirs.clone();
        if !dirs.is_empty() {
            self.records.step_dirs(run, step, &dirs);
        }
        match sys::fork()? {
            sys::Fork::Child => {
                let wire = wire.as_ref();
                become_stepd(order, &setting, &listener, &far_end, wire, streams)
            }
            sys::Fork::Parent(pid) => {
                let daemon = Daemon {
                    pid,
                    control,
                    input: Frames::default(),
                    socket: socket.clone(),
                };
                self.enter_step(run, step, daemon, dirs);
                Ok((socket, address.map(|a| a.to_string())))
            }
        }
    }

    /// For files of the tasks and of what serves them, and for memory that they share. No other step on this machine
    /// has a directory of that name, not even of another cluster or emulated node.
    fn step_dirs(&self, order: &StepOrder, pmix: &PmixOrder) -> Vec<PathBuf> {
        let mut hasher = DefaultHasher::new();
        self.spool.hash(&mut hasher);
        let (uid, node, place) = (order.user.uid, &self.node, hasher.finish());
        let name = format!("muster-pmix.{uid}.{}.{node}.{place:016x}", pmix.nspace);
        let bases = [pmix.tmp_base.as_str(), SHARED_MEMORY];
        let mut dirs: Vec<PathBuf> = bases.map(|base| Path::new(base).join(&name)).into();
        dirs.dedup();
        dirs
    }

    fn step_socket(&self, run: Run, step: StepNo) -> PathBuf {
        self.spool.join(format!("step-{}.{}.sock", run.0, step.0))
    }

    /// A daemon has something to say: its step has ended. Others that end leave a file.
    pub(super) fn hear_daemon(&mut self, fd: RawFd) {
        let Some(&(run, step)) = self.lines.get(&fd) else {
            return;
        };
        let entry = self.jobs.get_mut(&run);
        let Some(proc) = entry.and_then(|e| e.steps.get_mut(&step)) else {
            self.lines.remove(&fd);
            return;
        };
        let Some(daemon) = &mut proc.daemon else {
            self.lines.remove(&fd);
            return;
        };
        let mut chunk = [0; 4 << 10];
        match daemon.control.read(&mut chunk) {
            Ok(n) if n > 0 => daemon.input.push(&chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            // What it has not said is in its file, or lost: its end tells.
            _ => {
                self.lines.remove(&fd);
                return;
            }
        }
        let mut said = Vec::new();
        let end = loop {
            match daemon.input.take() {
                Ok(Some(stepd::Told::Said(message))) => said.push(message),
                Ok(Some(stepd::Told::Ended(end))) => break Some(*end),
                Ok(None) => break None,
                Err(_) => {
                    self.lines.remove(&fd);
                    break None;
                }
            }
        };
        let daemon = end.as_ref().and_then(|_| proc.daemon.take());
        for message in said {
            self.emit(&FromShim::StepSaid { run, step, message });
        }
        if let Some(end) = end {
            self.lines.remove(&fd);
            self.records.step_ended(run, step, &end);
            self.end_of_step(run, step, end);
        }
        if let Some(daemon) = daemon {
            self.keep_daemon(run, daemon);
        }
    }

    fn keep_daemon(&mut self, run: Run, daemon: Daemon) {
        self.roles.insert(daemon.pid, Role::Spare(run));
        match self.jobs.get_mut(&run) {
            Some(entry) if entry.ending.is_none() && entry.spares.len() < SPARES_MAX => {
                entry.spares.push(daemon);
            }
            _ => daemon.dismiss(),
        }
    }

    /// A daemon without a step has ended.
    pub(super) fn spare_ended(&mut self, run: Run, pid: i32) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if let Some(at) = entry.spares.iter().position(|spare| spare.pid == pid) {
            let _ = fs::remove_file(&entry.spares.swap_remove(at).socket);
        }
    }

    /// A step daemon ended: reads what it left. One that was killed left no result, perhaps processes, and files.
    pub(super) fn step_ended(&mut self, run: Run, step: StepNo) {
        let entry = self.jobs.get(&run);
        let daemon = entry.and_then(|e| e.steps.get(&step)?.daemon.as_ref());
        let socket = daemon.map(|d| d.socket.clone());
        if let Some((pid, line)) = daemon.map(|d| (d.pid, d.control.as_raw_fd())) {
            // It may have told of the step's end and then been killed.
            self.hear_daemon(line);
            if !self.lines.contains_key(&line) && self.roles.remove(&pid).is_some() {
                return self.spare_ended(run, pid);
            }
        }
        let _ = fs::remove_file(socket.unwrap_or_else(|| self.step_socket(run, step)));
        let end = fs::read(Shim::result_path(&self.spool, run, step))
            .ok()
            .and_then(|bytes| minicbor::decode(&bytes).ok());
        if end.is_none() {
            self.kill_rest_of(run, step);
        }
        self.end_of_step(run, step, end.unwrap_or_else(lost));
    }

    fn end_of_step(&mut self, run: Run, step: StepNo, end: StepEnd) {
        let Some(proc) = self.jobs.get_mut(&run).and_then(|e| e.steps.get_mut(&step)) else {
            return;
        };
        remove_dirs(&std::mem::take(&mut proc.dirs));
        proc.ended = Some(end.clone());
        if let Some(daemon) = proc.daemon.take() {
            self.lines.remove(&daemon.control.as_raw_fd());
        }
        self.emit(&FromShim::StepEnded {
            run,
            step,
            end: Box::new(end),
        });
        self.unsettled = true;
    }

    /// Kills what a step daemon that was killed has left: its tasks go with it, but not what they had started.
    fn kill_rest_of(&mut self, run: Run, step: StepNo) {
        let number = step.0.to_string();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut killed = BTreeSet::new();
        loop {
            let mut all = self.tree.below(&[own]);
            if self.jobs.get(&run).is_some_and(|e| e.recovered) {
                all.extend(self.strays(run));
            }
            let left: Vec<i32> = all
                .into_iter()
                .filter(|pid| {
                    let [step] = processes::variables(*pid, ["SLURM_STEP_ID"]);
                    step.as_deref() == Some(&number) && self.job_by_environment(*pid) == Some(run)
                })
                .collect();
            // One of them may have forked while it was looked for the others.
            let known = killed.len();
            for pid in left {
                sys::kill(pid, libc::SIGKILL);
                killed.insert(pid);
            }
            if killed.len() == known {
                return;
            }
        }
    }

    pub(super) fn forget_step(&mut self, run: Run, step: StepNo) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if entry.steps.get(&step).is_some_and(|s| s.ended.is_some()) {
            entry.steps.remove(&step);
            self.records.step_gone(run, step);
            let _ = fs::remove_file(Shim::result_path(&self.spool, run, step));
        }
    }

    /// Processes of the job's step daemons.
    pub(super) fn daemons(&self, run: Run) -> Vec<i32> {
        self.jobs.get(&run).map_or_else(Vec::new, |e| {
            let alive = e.steps.values().filter(|s| s.ended.is_none() && s.pid > 0);
            alive.map(|s| s.pid).collect()
        })
    }

    /// Tells all steps of a job to end, and their users why.
    pub(super) fn end_all_steps(&mut self, run: Run, message: Option<String>) {
        let node = self.node.clone();
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        for (step, proc) in entry.steps.iter_mut().filter(|(_, p)| p.ended.is_none()) {
            if let (Some(text), Some(daemon)) = (&message, &mut proc.daemon) {
                let text = format!(
                    "slurmstepd: error: *** STEP {}.{step} ON {node} {text} ***",
                    run.0
                );
                // A daemon that does not read is being killed anyway.
                let _ = daemon.tell(&stepd::Control::Text(text));
            }
            proc.ask_to_end();
        }
    }

    /// Tells a step daemon that its tasks may run for another time. One whose line was lost with an earlier shim
    /// keeps its limit.
    pub(super) fn limit_step(&mut self, run: Run, step: StepNo, seconds: Option<u64>) {
        self.control_step(run, step, &stepd::Control::Limit(seconds));
    }

    /// Has a step daemon write a line to the standard error of its step, whichever node it is on.
    pub(super) fn tell_step(&mut self, run: Run, step: StepNo, text: String) {
        let line = format!("slurmstepd: error: {text}");
        self.control_step(run, step, &stepd::Control::Own(line));
    }

    /// srun says something to the daemon of a step that has its streams.
    pub(super) fn say_to_step(&mut self, run: Run, step: StepNo, message: Box<ToStepd>) {
        let entry = self.jobs.get(&run);
        let line = entry.is_some_and(|e| e.steps.get(&step).is_some_and(|p| p.daemon.is_some()));
        match *message {
            // The line was lost with an earlier shim.
            ToStepd::Signal(signal) if !line => {
                self.signal_step(run, step, i32::try_from(signal).unwrap_or(0));
            }
            _ => self.control_step(run, step, &stepd::Control::Say(message)),
        }
    }

    fn control_step(&mut self, run: Run, step: StepNo, control: &stepd::Control) {
        let entry = self.jobs.get_mut(&run);
        let proc = entry.and_then(|e| e.steps.get_mut(&step));
        if let Some(daemon) = proc.and_then(|p| p.daemon.as_mut()) {
            // A daemon that does not read is being killed.
            let _ = daemon.tell(control);
        }
    }

    pub(super) fn end_step(&mut self, run: Run, step: StepNo) {
        let entry = self.jobs.get_mut(&run);
        if let Some(proc) = entry.and_then(|e| e.steps.get_mut(&step)) {
            proc.ask_to_end();
        }
    }

    /// Signals all processes of a step; one that is to end it also ends a step whose tasks have not started.
    pub(super) fn signal_step(&mut self, run: Run, step: StepNo, signal: i32) {
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        let Some(pid) = proc.filter(|p| p.ended.is_none()).map(|p| p.pid) else {
            return;
        };
        let tasks = self.tree.below(&[pid]);
        if tasks.is_empty() && matches!(signal, libc::SIGKILL | libc::SIGTERM | libc::SIGINT) {
            self.end_step(run, step);
        }
        for task in tasks {
            sys::kill(task, signal);
        }
    }
}

/// In a fresh fork: keeps only what a step daemon needs.
fn become_stepd(
    order: &StepOrder,
    setting: &stepd::Setting,
    listener: &UnixListener,
    control: &UnixStream,
    wire: Option<&TcpListener>,
    streams: Option<&StandardStreams>,
) -> ! {
    let mut kept = vec![listener.as_raw_fd(), control.as_raw_fd()];
    kept.extend(wire.map(AsRawFd::as_raw_fd));
    kept.extend(streams.iter().flat_map(|s| s.numbers()));
    // Above what the shim has open, so that neither overwrites the other; then down to fixed numbers.
    let high: io::Result<Vec<RawFd>> = kept.iter().map(|fd| sys::dup_high(*fd)).collect();
    let moved = high.and_then(|high| {
        let to_fixed = |(target, fd): (RawFd, &RawFd)| sys::dup_to(*fd, target);
        (3..).zip(&high).try_for_each(to_fixed)
    });
    if moved.is_err() {
        sys::exit_now(1);
    }
    let mut fixed = (3..).map(sys::adopt);
    sys::close_from(3 + u32::try_from(kept.len()).unwrap_or(0));
    let mut next = || fixed.next().unwrap_or_else(|| sys::exit_now(1));
    let (listener, control) = (UnixListener::from(next()), UnixStream::from(next()));
    let wire = wire.map(|_| TcpListener::from(next()));
    let streams = streams.map(|_| StandardStreams {
        stdin: next(),
        stdout: next(),
        stderr: next(),
    });
    stepd::run(order, setting, listener, control, wire, streams)
}

/// Removes directories of a step. What ends at this very moment may still write: under another name it cannot find them.
pub(crate) fn remove_dirs(dirs: &[PathBuf]) {
    for dir in dirs {
        let mut aside = dir.clone().into_os_string();
        aside.push(".gone");
        let removed = fs::rename(dir, &aside).and_then(|()| fs::remove_dir_all(&aside));
        if let Err(e) = removed
            && e.kind() != io::ErrorKind::NotFound
        {
            eprintln!("{}: {e}", dir.display());
        }
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
