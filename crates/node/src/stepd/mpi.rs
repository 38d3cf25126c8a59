//! The PMIx host beside the step daemon: a program executed as the job's user ([`host`]) that opens libpmix and serves
//! the tasks. Here is the daemon's side: it starts the host before srun has come, hands each task what the host says it is
//! to find in its environment, follows who has joined and who has taken leave, and cleans up.

mod hints;
pub(super) mod host;
mod leftovers;

use super::task::Task;
use super::{Setting, Stepd};
use crate::launcher::Removal;
use crate::sys;
use minicbor::bytes::ByteVec;
use muster_model::cpuset::CpuSet;
use muster_model::job::ExitStatus;
use muster_node_core::messages::{PmixOrder, StepOrder, UcxOrder};
use muster_pmix::control::{Environments, FromHost, ToHost};
use muster_pmix::pmi::PMI_FD;
use muster_pmix::{HostSetup, Tuning, UcxChoice};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{FromStepd, ProgramKind};
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, lchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How variables begin by which launchers around srun tell their own processes where their server is. They would lead a
/// task to another than its own, or to none.
const FOREIGN: [&str; 16] = [
    "PMIX_",
    "PMI_APPNUM=",
    "PMI_FD=",
    "PMI_ID=",
    "PMI_JOBID=",
    "PMI_LOCAL_",
    "PMI_PORT=",
    "PMI_RANK=",
    "PMI_SIZE=",
    "PMI_SPAWNED=",
    "PMI2_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "NS_META_SEG_SIZE=",
    "MUSTER_PMIX_PARENT=",
    "MUSTER_PMI_PUTS=",
];

/// Whether a variable is one of those.
pub(super) fn is_foreign(variable: &[u8]) -> bool {
    // Most are not.
    if !matches!(variable.first(), Some(b'P' | b'O' | b'N' | b'M')) {
        return false;
    }
    let begins = |name: &&str| variable.starts_with(name.as_bytes());
    FOREIGN.iter().any(begins) && !begins(&"PMIX_MCA_")
}

/// So long srun has to end a step of which a task aborts; where it does not, this node's tasks end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes for a host that does not read, beyond which it is killed. Only srun of the same user brings so many.
const UNSENT_MAX: usize = 16 << 20;
/// Bytes of a message of the host's. The longest is about environments of the node's tasks.
const MESSAGE_MAX: usize = 32 << 20;
/// How long what an earlier step has left, or somebody else has put there, may take to be removed.
const LEFT_OVER_WAIT: Duration = Duration::from_secs(1);
/// Reads of 64 KiB from the host before others have their turn.
const READS_AT_ONCE: usize = 16;

/// The host and what is known of the tasks through it.
#[derive(Debug)]
pub(super) struct Pmix {
    /// Its process.
    pub(super) pid: i32,
    control: UnixStream,
    input: Frames,
    /// What it has not been sent yet.
    output: Vec<u8>,
    /// Bytes that have come since its last whole message.
    incomplete: usize,
    errors: host::Errors,
    /// Tasks read their environment from here once they are let go.
    environments: File,
    /// Sockets of the tasks, by local number, where they speak PMI; until they have been forked.
    sockets: Vec<OwnedFd>,
    /// It is written.
    pub(super) ready: bool,
    /// It was ordered to exit.
    stopped: bool,
    /// It has exited.
    pub(super) ended: bool,
    connected: BTreeSet<u32>,
    finalized: BTreeSet<u32>,
    /// For files of tasks and library, and, last, for memory that tasks share; they may be one.
    dirs: Vec<PathBuf>,
    /// Memory of tasks that were ordered to end, outside the step's directories.
    shared: BTreeSet<PathBuf>,
    /// When it was started: the tasks have nothing that is older.
    since: SystemTime,
    /// The agent's order, from which MPI's variables are made.
    order: PmixOrder,
    /// More tasks of the step than CPUs for them are on this node.
    crowded: bool,
}

impl Pmix {
    /// Forks the host.
    pub(super) fn start(
        order: &StepOrder,
        pmix: &PmixOrder,
        setting: &Setting,
        listener: Option<TcpListener>,
    ) -> io::Result<Pmix> {
        let dirs = setting.dirs.clone();
        for dir in &dirs {
            make_dir(order, dir)?;
        }
        let position = order.launch.position as usize;
        let here = order.launch.tasks.get(position).map_or(0, Vec::len);
        let machine = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = (order.launch.cpus.len() as usize).clamp(1, machine);
        let setup = HostSetup {
            job: order.run.job.0,
            nspace: pmix.nspace.clone(),
            names: order.launch.names.clone(),
            tasks: order.launch.tasks.clone(),
            position,
            owner: (order.user.uid, order.user.gid),
            dir: dirs
                .first()
                .map_or_else(String::new, |d| d.to_string_lossy().into_owned()),
            key: order.launch.key.to_vec(),
            cpus: order.binding.cpus.iter().map(list).collect(),
            crowded: here > cpus,
            universe: pmix.universe,
            version: pmix.version,
            env: variables(order),
            tuning: Tuning {
                share_topology: pmix.share_topology,
                early: pmix.early,
                timeout: Duration::from_secs(pmix.timeout_s.into()),
                ucx: pmix.ucx.as_ref().map(|u| ucx(u, order)),
            },
        };
        let crowded = setup.crowded;
        let name = CString::new("muster-pmix").expect("a literal without a zero byte");
        let environments = File::from(sys::memory_file(&name)?);
        let (control, far_end) = UnixStream::pair()?;
        let (mut sockets, mut far_ends) = (Vec::new(), Vec::new());
        for _ in 0..if pmix.pmi || pmix.any { here } else { 0 } {
            let (own, far) = UnixStream::pair()?;
            sockets.push(OwnedFd::from(own));
            far_ends.push(far);
        }
        let spool = setting.result.parent().unwrap_or(Path::new("/"));
        let place = (order, pmix, &*spool.to_string_lossy());
        let started = host::start(place, setup, listener.as_ref(), &far_end, &far_ends)?;
        control.set_nonblocking(true)?;
        let mut host = Pmix {
            pid: started.pid,
            control,
            input: Frames::default(),
            output: Vec::new(),
            incomplete: 0,
            errors: started.errors,
            environments,
            sockets,
            ready: false,
            stopped: false,
            ended: false,
            connected: BTreeSet::new(),
            finalized: BTreeSet::new(),
            dirs,
            shared: BTreeSet::new(),
            since: SystemTime::now(),
            order: pmix.clone(),
            crowded,
        };
        if order.launch.names.len() == 1 {
            host.send(&ToHost::Peers(vec![String::new()]));
        }
        Ok(host)
    }

    /// What to poll for. While srun is behind with its output (`full`), the host waits.
    pub(super) fn interest(&self, full: bool) -> (i32, i16) {
        if self.ended {
            return (-1, 0);
        }
        let reading = if full { 0 } else { libc::POLLIN };
        let writing = if self.output.is_empty() {
            0
        } else {
            libc::POLLOUT
        };
        (self.control.as_raw_fd(), reading | writing)
    }

    /// Sends the host a message, or keeps it until the host reads. The host is the user's process, which may be stopped.
    pub(super) fn send(&mut self, message: &ToHost) {
        if self.ended {
            return;
        }
        frame::encode_into(message, &mut self.output);
        if self.output.len() > UNSENT_MAX {
            self.give_up("does not read");
        }
        self.flush();
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.control.write(&self.output) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // A host that is gone is found when it is reaped.
                Err(_) => self.output.clear(),
            }
        }
    }

    /// Kills a host that does not behave as one.
    fn give_up(&mut self, why: &str) {
        eprintln!("the PMIx host {} {why} and is killed", self.pid);
        self.output.clear();
        self.input = Frames::default();
        self.incomplete = 0;
        sys::kill(self.pid, libc::SIGKILL);
    }

    /// The last task has ended.
    pub(super) fn stop(&mut self) {
        if !self.ended && !std::mem::replace(&mut self.stopped, true) {
            self.send(&ToHost::Stop);
        }
    }

    /// Messages that have come, as many as are read at once.
    fn receive(&mut self) -> Vec<FromHost> {
        let mut chunk = [0; 64 << 10];
        for _ in 0..READS_AT_ONCE {
            match self.control.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    self.input.push(&chunk[..n]);
                    self.incomplete += n;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let mut out = Vec::new();
        loop {
            match self.input.take() {
                Ok(Some(message)) => {
                    out.push(message);
                    self.incomplete = 0;
                }
                Ok(None) if self.incomplete > MESSAGE_MAX => {
                    self.give_up("sends a message that is too long");
                    break;
                }
                Ok(None) => break,
                Err(e) => {
                    self.give_up(&format!("is not understood ({e})"));
                    break;
                }
            }
        }
        self.errors.log();
        out
    }

    fn keep(&mut self, environments: &Environments) -> io::Result<()> {
        if self.ready {
            return Ok(());
        }
        let bytes = minicbor::to_vec(environments).expect("writing to memory cannot fail");
        self.environments.write_all(&bytes)?;
        self.ready = true;
        Ok(())
    }

    /// Descriptors that a task needs until it executes its program.
    pub(super) fn of_task(&self, local: u32) -> impl Iterator<Item = RawFd> {
        let socket = self.sockets.get(local as usize);
        let socket = socket.map(AsRawFd::as_raw_fd);
        [self.environments.as_raw_fd()].into_iter().chain(socket)
    }

    /// In a task's child: adds what the task is to find.
    pub(super) fn adjust(&self, rank: u32, env: &mut Vec<CString>) {
        let length = self.environments.metadata().map_or(0, |m| m.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        if self.environments.read_exact_at(&mut bytes, 0).is_ok()
            && let Ok(environments) = minicbor::decode::<Environments>(&bytes)
        {
            env.extend(environments.of(rank).filter_map(|v| CString::new(v).ok()));
        }
        hints::add(&self.order, self.dirs.last(), self.crowded, env);
    }

    /// In a task's child, just before exec: its socket, where a program that speaks PMI looks for it; and how late its
    /// sleeps may end where it shares its CPU with other ranks.
    pub(super) fn hand_over(&self, local: u32) -> io::Result<()> {
        if self.crowded && self.order.crowded_slack_us > 0 {
            sys::set_timer_slack(Duration::from_micros(self.order.crowded_slack_us.into()));
        }
        match self.sockets.get(local as usize) {
            Some(socket) => sys::dup_to(socket.as_raw_fd(), PMI_FD),
            None => Ok(()),
        }
    }

    /// All tasks have been forked: they alone have their sockets.
    pub(super) fn tasks_have_sockets(&mut self) {
        self.sockets.clear();
    }
}

impl Stepd<'_> {
    /// Starts the host if the step wants one. A failure is sent to srun when it connects.
    pub(super) fn start_pmix(&mut self, listener: Option<TcpListener>) {
        let Some(order) = &self.order.pmix else {
            return;
        };
        match Pmix::start(self.order, order, self.setting, listener) {
            Ok(host) => self.pmix = Some(host),
            Err(e) => self.pmix_failed(&format!("the PMIx host cannot be started: {e}")),
        }
    }

    /// Tells the user of tasks that will not find each other because the site has said so.
    pub(super) fn tell_of_singletons_ahead(&mut self) {
        let spec = &self.order.launch.spec;
        let tasks = self.task_count();
        let is_mpi = spec.program == ProgramKind::Mpi && spec.mpi.is_none();
        if is_mpi && tasks > 1 && self.order.pmix.is_none() {
            let name = spec.argv.first().map_or("", String::as_str);
            self.send(&FromStepd::Note(format!(
                "slurmstepd: warning: mpi/none: {name} is linked to MPI, but MpiDefault is none: each of its {tasks} tasks \
                 will take itself for the only one; with srun --mpi=auto they find each other"
            )));
        }
    }

    /// Tells the user of tasks that have all ended well and have not found each other, though they are MPI's.
    fn tell_of_singletons(&mut self) {
        let tasks = self.task_count();
        let is_mpi = self.order.launch.spec.program == ProgramKind::Mpi;
        let ended_well = |t: &Task| t.exit.is_some_and(|exit| exit.is_ok());
        let apart = |p: &Pmix| !p.order.any && p.connected.is_empty();
        let apart = self.pmix.as_ref().is_some_and(apart);
        if is_mpi && apart && tasks > 1 && self.tasks.iter().all(ended_well) {
            let kind = self.mpi_kind();
            let name = self
                .order
                .launch
                .spec
                .argv
                .first()
                .map_or("", String::as_str);
            self.send(&FromStepd::Note(format!(
                "slurmstepd: warning: mpi/{kind}: {name} has not looked for {kind}: if it has called MPI_Init, each of its \
                 {tasks} tasks took itself for the only one; srun --mpi=list tells what else there is"
            )));
        }
    }

    /// Tasks of the whole step.
    fn task_count(&self) -> usize {
        self.order.launch.tasks.iter().map(Vec::len).sum()
    }

    /// Tasks cannot be started, or cannot go on.
    fn pmix_failed(&mut self, why: &str) {
        let (node, kind) = (&self.setting.node, self.mpi_kind());
        let line = format!("slurmstepd: error: mpi/{kind}: {node}: {why}");
        self.pmix_error.get_or_insert(line);
        self.tell_pmix_error();
    }

    /// Tells srun, once it is there, why there is no PMIx; the step fails with that.
    pub(super) fn tell_pmix_error(&mut self) {
        if self.client.is_none() || self.ending {
            return;
        }
        if let Some(line) = self.pmix_error.clone() {
            self.message(line);
            let exit = ExitStatus { code: 1, signal: 0 };
            let task = self.tasks.first().map_or(0, |t| t.global);
            self.send(&FromStepd::Failed {
                task,
                exit,
                joined: true,
                line: None,
            });
            self.fail(exit);
        }
    }

    /// Tasks are about to be signalled: what they would leave behind is noted if they may end by it.
    pub(super) fn note_leftovers(&mut self, tasks: &[i32], signal: i32) {
        let ends = matches!(signal, libc::SIGTERM | libc::SIGKILL | libc::SIGINT);
        if let Some(pmix) = self.pmix.as_mut().filter(|_| ends) {
            for pid in tasks {
                leftovers::note(*pid, &mut pmix.shared);
            }
        }
    }

    /// All tasks have ended: what they left goes.
    pub(super) fn remove_leftovers(&mut self) {
        self.tell_of_singletons();
        if let Some(pmix) = &mut self.pmix {
            let well = self
                .tasks
                .iter()
                .all(|t| t.exit.is_some_and(|exit| exit.is_ok()));
            if !well || pmix.connected.len() > pmix.finalized.len() {
                leftovers::find(pmix.since, self.order.user.uid, &mut pmix.shared);
            }
            leftovers::remove(&std::mem::take(&mut pmix.shared), self.order.user.uid);
        }
    }

    /// Where the hosts of the other nodes are.
    pub(super) fn pmix_peers(&mut self, peers: Vec<String>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.send(&ToHost::Peers(peers));
        }
    }

    /// Sends the host what it has not read yet, and takes in what it says.
    pub(super) fn take_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            pmix.flush();
        }
        let messages = self.pmix.as_mut().map(Pmix::receive).unwrap_or_default();
        for message in messages {
            self.pmix_message(message);
        }
    }

    fn pmix_message(&mut self, message: FromHost) {
        let Some(pmix) = &mut self.pmix else {
            return;
        };
        match message {
            FromHost::Ready(environments) => match pmix.keep(&environments) {
                Ok(()) => self.release_tasks(),
                Err(e) => self.pmix_failed(&format!("the tasks' environment cannot be kept: {e}")),
            },
            FromHost::Failed(why) => self.pmix_failed(&why),
            FromHost::Connected(rank) => {
                let first = pmix.connected.is_empty();
                pmix.connected.insert(rank);
                // It may have been another kind's program before.
                pmix.finalized.remove(&rank);
                if first {
                    self.send(&FromStepd::Joined);
                }
            }
            FromHost::Finalized(rank) => {
                pmix.finalized.insert(rank);
            }
            FromHost::Abort { rank, status, text } => self.aborted(rank, status, &text),
            FromHost::Note(line) => self.send(&FromStepd::Note(line)),
            FromHost::Message(text) => {
                for line in text.lines() {
                    self.message(line.to_owned());
                }
            }
            FromHost::Output(error, bytes) => self.pmix_output(error, bytes),
            FromHost::Signal(ranks, signal) => {
                if ranks.is_empty() {
                    self.signal_all(signal);
                }
                for task in self.tasks.iter().filter(|t| t.exit.is_none()) {
                    if ranks.contains(&task.global) {
                        sys::kill(task.pid, signal);
                    }
                }
            }
            FromHost::PeerLost(position) => {
                let name = self.order.launch.names.get(position as usize);
                let name = name.map_or("a node", String::as_str);
                eprintln!("the PMIx host of {name} is gone");
            }
        }
    }

    /// Output of a step that a task spawned comes out as the first task's here.
    fn pmix_output(&mut self, error: bool, bytes: ByteVec) {
        if let Some(task) = self.tasks.first().map(|t| t.global) {
            let message = if error {
                FromStepd::Stderr { task, bytes }
            } else {
                FromStepd::Stdout { task, bytes }
            };
            self.send(&message);
        }
    }

    /// What tasks find each other by, in messages.
    fn mpi_kind(&self) -> &'static str {
        match &self.order.pmix {
            Some(order) if order.pmi => "pmi2",
            Some(order) if order.any => "auto",
            _ => "pmix",
        }
    }

    /// A task aborts: srun ends the step everywhere. The task goes on waiting until then, so that others do not find it gone,
    /// and abort for that, before srun has received what went wrong first.
    fn aborted(&mut self, rank: u32, status: i32, text: &str) {
        let (job, step, node) = (
            self.order.run.job,
            self.order.launch.step,
            &self.setting.node,
        );
        // Open MPI says so when there is nothing to say.
        let words = if text.is_empty() || text == "N/A" {
            String::new()
        } else {
            format!(": {}", text.trim_end())
        };
        let kind = self.mpi_kind();
        let line = format!(
            "slurmstepd: error: mpi/{kind}: {node}: task {rank} aborts StepId={job}.{step} with status {status}{words}"
        );
        // An exit status has eight bits; an abort is never a success.
        let code = match status.cast_unsigned() & 0xff {
            0 => 1,
            code => code,
        };
        let exit = ExitStatus { code, signal: 0 };
        self.send(&FromStepd::Failed {
            task: rank,
            exit,
            joined: true,
            line: Some(line),
        });
        self.abort_at
            .get_or_insert((Instant::now() + ABORT_TIMEOUT, exit));
    }

    /// A task has ended: whether the others would wait for it for ever, which srun then prints.
    pub(super) fn pmix_task_ended(&mut self, rank: u32, exit: ExitStatus) -> Option<FromStepd> {
        // What it wrote to the host before it ended has arrived by now.
        self.take_pmix();
        let kind = self.mpi_kind();
        let pmix = self.pmix.as_mut()?;
        let joined = pmix.connected.contains(&rank);
        if pmix.finalized.contains(&rank) || (!joined && exit.is_ok()) || self.ending {
            return None;
        }
        let status = if exit.is_ok() {
            // It left without a word: the step did not go well, whatever it says.
            ExitStatus { code: 1, signal: 0 }
        } else {
            exit
        };
        pmix.send(&ToHost::TaskFailed { rank });
        let line = exit.is_ok().then(|| {
            format!(
                "slurmstepd: error: mpi/{kind}: {}: task {rank} exited without taking leave of the others (MPI_Finalize)",
                self.setting.node
            )
        });
        Some(FromStepd::Failed {
            task: rank,
            exit: status,
            joined,
            line,
        })
    }

    /// The host has exited.
    pub(super) fn pmix_ended(&mut self, exit: ExitStatus) {
        self.take_pmix();
        let Some(pmix) = &mut self.pmix else {
            return;
        };
        pmix.ended = true;
        pmix.errors.log();
        let running = self.tasks.iter().any(|t| t.exit.is_none());
        if running && !self.ending && self.pmix_error.is_none() && exit.signal != 9 {
            self.pmix_failed(&format!(
                "the PMIx host has ended (exit status {}, signal {})",
                exit.code, exit.signal
            ));
        }
    }
}

/// A fresh directory of the user's. What an earlier life of this step's number left there goes.
fn make_dir(order: &StepOrder, path: &Path) -> io::Result<()> {
    let make = || fs::DirBuilder::new().mode(0o700).create(path);
    let made = match make() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let removal = Removal::begin(&[path.to_owned()]);
            removal.into_iter().for_each(|r| r.wait(LEFT_OVER_WAIT));
            make()
        }
        other => other,
    };
    made.and_then(|()| {
        if Uid::effective().is_root() {
            // In a directory without the sticky bit somebody might have put another file in its place.
            lchown(path, Some(order.user.uid), Some(order.user.gid))?;
        }
        Ok(())
    })
    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// What the host may use of UCX. Where the site names no devices, those count that the user names for the tasks.
fn ucx(wanted: &UcxOrder, order: &StepOrder) -> UcxChoice {
    let devices = || {
        let mut own = order.env.iter().filter_map(|v| str::from_utf8(v).ok());
        own.find_map(|v| v.strip_prefix("UCX_NET_DEVICES=").map(str::to_owned))
    };
    UcxChoice {
        devices: wanted.devices.clone().or_else(devices),
        transports: wanted.transports.clone(),
    }
}

/// `0,1,4`.
fn list(cpus: &CpuSet) -> String {
    let numbers: Vec<String> = cpus.iter().map(|n| n.to_string()).collect();
    numbers.join(",")
}

/// The environment of the step, for steps that its tasks spawn.
fn variables(order: &StepOrder) -> Vec<(String, String)> {
    order
        .env
        .iter()
        .filter_map(|v| str::from_utf8(v).ok()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
