//! The PMIx host beside the step daemon: a program executed as the job's user ([`host`]) that opens libpmix and
//! serves the tasks. [`muster_node_core::stepd`] makes the decisions about it. This module starts the host, exchanges
//! messages with it, passes its variables to the tasks, and removes what the tasks leave.

mod hints;
pub(super) mod host;
mod leftovers;

use crate::os_error;
use crate::removal::Removal;
use crate::stepd_log;
use crate::sys;
use crate::user_dir;
use muster_model::cpuset::CpuSet;
use muster_model::visible_text::debug_beginning;
use muster_node_core::messages::{PmixOrder, StepOrder, UcxOrder};
use muster_node_core::stepd::{Action, HostCommand, HostEvent};
use muster_pmix::control::{Environments, FromHost, ToHost};
use muster_pmix::pmi::PMI_FD;
use muster_pmix::{HostSetup, TaskOwner, Tuning, UcxChoice};
use muster_proto::frame::{self, Frames};
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Prefixes of variables by which launchers around srun announce their own server to their
/// processes. They would lead a task to a wrong server, or to none.
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

/// Whether a variable has one of those prefixes.
pub(super) fn is_foreign(variable: &[u8]) -> bool {
    // Most variables do not.
    if !matches!(variable.first(), Some(b'P' | b'O' | b'N' | b'M')) {
        return false;
    }
    let begins = |name: &&str| variable.starts_with(name.as_bytes());
    FOREIGN.iter().any(begins) && !begins(&"PMIX_MCA_")
}

/// Maximum number of bytes queued for a host that does not read; above it the host is killed. Only
/// srun of the same user can cause that many.
const UNSENT_MAX: usize = 16 << 20;
/// Maximum size of a host's message. The longest contains environments of the node's tasks.
const MESSAGE_MAX: usize = 32 << 20;
/// Time limit for removing what an earlier step or another user has left in the directory's place.
const LEFT_OVER_WAIT: Duration = Duration::from_secs(1);
/// Number of 64 KiB reads from the host before other work has its turn.
const READS_AT_ONCE: usize = 16;

/// The host, and the data about tasks that it provides.
#[derive(Debug)]
pub(super) struct Pmix {
    /// Its process.
    pub(super) pid: i32,
    /// `None` once nothing more is read from it: other processes may hold the host's end after the
    /// host has ended.
    control: Option<UnixStream>,
    input: Frames,
    /// Messages that were not sent yet.
    output: Vec<u8>,
    /// Received bytes of an incomplete message.
    incomplete: usize,
    errors: host::Errors,
    /// Tasks read their environment from this file when they are released.
    environments: File,
    /// Sockets of tasks that use PMI, by local number; kept until the tasks have been forked.
    sockets: Vec<OwnedFd>,
    /// The environments are written.
    ready: bool,
    /// The process was collected: its number may be another process's.
    pub(super) ended: bool,
    /// Directories for files of tasks and library and, last, for memory that tasks share; they may
    /// be the same.
    dirs: Vec<PathBuf>,
    /// Shared memory files of ended tasks, outside the step's directories.
    shared: BTreeSet<PathBuf>,
    /// Start time of the host: the tasks have no older files.
    since: SystemTime,
    /// The agent's order, from which variables for MPI are derived.
    order: PmixOrder,
    /// This node runs more tasks of the step than it has CPUs for them.
    crowded: bool,
}

impl Pmix {
    /// Forks the host of a step that needs one. `spool` names this node, for `ps`.
    pub(super) fn start(
        order: &StepOrder,
        spool: &Path,
        dirs: Vec<PathBuf>,
        listener: Option<TcpListener>,
    ) -> io::Result<Pmix> {
        let Some(pmix) = &order.pmix else {
            return Err(io::Error::other("the step is to have none"));
        };
        for dir in &dirs {
            make_dir(order, dir)?;
        }
        let position = order.launch.position as usize;
        let here = order.launch.tasks.get(position).map_or(0, Vec::len);
        let machine = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = (order.launch.cpus.len() as usize).clamp(1, machine);
        let setup = HostSetup {
            job: order.attempt.job.0,
            nspace: pmix.nspace.clone(),
            names: order.launch.names.clone(),
            tasks: order.launch.tasks.clone(),
            position,
            owner: TaskOwner {
                uid: order.user.uid,
                gid: order.user.gid,
            },
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
        let place = (order, pmix, &*spool.to_string_lossy());
        let started = host::start(place, setup, listener.as_ref(), &far_end, &far_ends)?;
        control.set_nonblocking(true)?;
        Ok(Pmix {
            pid: started.pid,
            control: Some(control),
            input: Frames::default(),
            output: Vec::new(),
            incomplete: 0,
            errors: started.errors,
            environments,
            sockets,
            ready: false,
            ended: false,
            dirs,
            shared: BTreeSet::new(),
            since: SystemTime::now(),
            order: pmix.clone(),
            crowded,
        })
    }

    /// Descriptors to poll. While srun is behind with its output (`full`), the host waits.
    pub(super) fn interest(&self, full: bool) -> (i32, i16) {
        let Some(control) = self.control.as_ref().filter(|_| !self.ended) else {
            return (-1, 0);
        };
        let reading = if full { 0 } else { libc::POLLIN };
        let writing = if self.output.is_empty() {
            0
        } else {
            libc::POLLOUT
        };
        (control.as_raw_fd(), reading | writing)
    }

    /// Sends the host a message, or queues it until the host reads. The host runs as the user, who
    /// may stop it.
    fn send(&mut self, message: &ToHost) {
        if self.ended || self.control.is_none() {
            return;
        }
        frame::encode_into(message, &mut self.output);
        if self.output.len() > UNSENT_MAX {
            return self.give_up("does not read");
        }
        self.flush();
    }

    fn flush(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        while !self.output.is_empty() {
            match control.write(&self.output) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The end of the host is noticed when it is collected.
                Err(_) => self.output.clear(),
            }
        }
    }

    /// Kills a host that violates the protocol, unless it has ended and another process uses its
    /// socket.
    fn give_up(&mut self, why: &str) {
        let what = match self.ended {
            true => "",
            false => " and is killed",
        };
        stepd_log::line(&format!("the PMIx host {} {why}{what}", self.pid));
        self.close();
        self.kill();
    }

    /// Stops reading from the host and writing to it.
    fn close(&mut self) {
        self.control = None;
        self.output.clear();
        self.input = Frames::default();
        self.incomplete = 0;
    }

    /// Kills the host, unless it was collected, because only until then the number is its own.
    fn kill(&self) {
        if !self.ended {
            sys::kill(self.pid, libc::SIGKILL);
        }
    }

    /// Performs decisions about the host, and about memory of the tasks, which belongs to `user`.
    pub(super) fn execute(&mut self, action: Action, user: u32) {
        match action {
            Action::SendHost(HostCommand::Peers(peers)) => self.send(&ToHost::Peers(peers)),
            Action::SendHost(HostCommand::TaskFailed(rank)) => {
                self.send(&ToHost::TaskFailed { rank });
            }
            // A host that has closed its end cannot be asked.
            Action::SendHost(HostCommand::Stop) if self.control.is_none() => self.kill(),
            Action::SendHost(HostCommand::Stop) => self.send(&ToHost::Stop),
            Action::KillHost => self.kill(),
            Action::RemoveLeftovers { is_searched } => {
                if is_searched {
                    leftovers::find(self.since, user, &mut self.shared);
                }
                leftovers::remove(&std::mem::take(&mut self.shared), user);
            }
            other => {
                let other = debug_beginning(&other, 80);
                stepd_log::line(&format!("there is nothing to do this to: {other}"));
            }
        }
    }

    /// Tasks are about to be signalled: records their shared memory if they may end by the signal.
    pub(super) fn note_leftovers(&mut self, tasks: &[i32], signals: &[i32]) {
        let ends = |signal: &i32| matches!(*signal, libc::SIGTERM | libc::SIGKILL | libc::SIGINT);
        if signals.iter().any(ends) {
            for pid in tasks {
                leftovers::note(*pid, &mut self.shared);
            }
        }
    }

    /// Sends queued messages to the host, and returns messages of the host.
    pub(super) fn receive(&mut self) -> Vec<HostEvent> {
        self.flush();
        let messages = self.read();
        if self.ended {
            // Messages that the host wrote itself are read.
            self.close();
        }
        messages.into_iter().map(|m| self.event(m)).collect()
    }

    fn event(&mut self, message: FromHost) -> HostEvent {
        match message {
            FromHost::Ready(environments) => match self.keep(&environments) {
                Ok(()) => HostEvent::Ready,
                Err(e) => HostEvent::Failed(format!("the tasks' environment cannot be kept: {e}")),
            },
            FromHost::Failed(why) => HostEvent::Failed(why),
            FromHost::Connected(rank) => HostEvent::Connected(rank),
            FromHost::Finalized(rank) => HostEvent::Finalized(rank),
            FromHost::Abort { rank, status, text } => HostEvent::Abort { rank, status, text },
            FromHost::Message(text) => HostEvent::Message(text),
            FromHost::Output(is_error, bytes) => HostEvent::Output(is_error, bytes),
            FromHost::Signal(ranks, signal) => HostEvent::Signal(ranks, signal),
            FromHost::PeerLost(position) => HostEvent::PeerLost(position),
            FromHost::Note(line) => HostEvent::Note(line),
        }
    }

    /// Received messages, up to the number handled at once.
    fn read(&mut self) -> Vec<FromHost> {
        let is_open = self.read_bytes();
        let messages = self.take_messages();
        if !is_open {
            self.close();
        }
        self.errors.log();
        messages
    }

    /// Receives available bytes; returns whether more may follow.
    fn read_bytes(&mut self) -> bool {
        let Some(control) = &mut self.control else {
            return false;
        };
        let mut chunk = [0; 64 << 10];
        for _ in 0..READS_AT_ONCE {
            match control.read(&mut chunk) {
                Ok(0) => return false,
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    self.incomplete += n;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn take_messages(&mut self) -> Vec<FromHost> {
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
                    self.give_up(&format!("sends an invalid message ({e})"));
                    break;
                }
            }
        }
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

    /// In a task's child: adds the variables for the task.
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

    /// In a task's child, just before exec: puts its socket where PMI programs expect it; and sets
    /// how late its sleeps may end if it shares its CPU with other ranks.
    pub(super) fn hand_over(&self, local: u32) -> io::Result<()> {
        if self.crowded && self.order.crowded_slack_us > 0 {
            sys::set_timer_slack(Duration::from_micros(self.order.crowded_slack_us.into()));
        }
        match self.sockets.get(local as usize) {
            Some(socket) => sys::dup_to(socket.as_raw_fd(), PMI_FD),
            None => Ok(()),
        }
    }

    /// All tasks have been forked: closes this process's copies of their sockets.
    pub(super) fn tasks_have_sockets(&mut self) {
        self.sockets.clear();
    }
}

/// A new directory of the user. Remains of an earlier use of this step number are removed.
fn make_dir(order: &StepOrder, path: &Path) -> io::Result<()> {
    let make = || fs::DirBuilder::new().mode(0o700).create(path);
    let made = match make() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let removal = Removal::begin(order.user.uid, &[path.to_owned()]);
            removal.into_iter().for_each(|r| r.wait(LEFT_OVER_WAIT));
            make()
        }
        other => other,
    };
    made.and_then(|()| match Uid::effective().is_root() {
        true => give_away(path, order.user.uid, order.user.gid),
        false => Ok(()),
    })
    .map_err(|e| os_error::named(path.display(), e))
}

/// Gives a user a directory that this process has just created.
fn give_away(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let dir = options.read(true).custom_flags(flags).open(path)?;
    user_dir::give_away(&dir, uid, gid)
}

/// UCX settings of the host. If the site names no devices, the host uses those that the user names for the tasks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getegid, geteuid};
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    /// A host that is this process itself, and its end of the socket.
    fn host_of(child: &Child) -> (Pmix, UnixStream) {
        let (control, far) = UnixStream::pair().unwrap();
        control.set_nonblocking(true).unwrap();
        let pmix = Pmix {
            pid: child.id().try_into().unwrap(),
            control: Some(control),
            input: Frames::default(),
            output: Vec::new(),
            incomplete: 0,
            errors: host::Errors::none(),
            environments: File::from(sys::memory_file(c"test").unwrap()),
            sockets: Vec::new(),
            ready: false,
            ended: false,
            dirs: Vec::new(),
            shared: BTreeSet::new(),
            since: SystemTime::now(),
            order: PmixOrder::default(),
            crowded: false,
        };
        (pmix, far)
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// A process that the host had left wrote nonsense to the host's socket after the host was collected: the process that had its
    /// number by then was killed, by root.
    #[test]
    fn a_host_that_was_collected_is_not_killed() {
        // The process that has the number now.
        let mut other = sleeper();
        let (mut pmix, mut left) = host_of(&other);
        pmix.ended = true;
        left.write_all(&[0xff; 4]).unwrap();
        assert!(pmix.receive().is_empty());
        pmix.execute(Action::KillHost, 0);
        pmix.execute(Action::SendHost(HostCommand::Stop), 0);
        assert!(left.write_all(&[0]).is_err(), "nothing more is read");
        sys::kill(pmix.pid, libc::SIGTERM);
        assert_eq!(other.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut child = sleeper();
        host_of(&child).0.execute(Action::KillHost, 0);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    /// The socket was ready for ever, and root's daemon in a loop.
    #[test]
    fn a_host_that_has_closed_its_end_is_not_looked_at_again() {
        let mut child = sleeper();
        let (mut pmix, mut far) = host_of(&child);
        frame::write(&mut far, &FromHost::Connected(3)).unwrap();
        drop(far);
        assert_eq!(pmix.interest(false).1, libc::POLLIN);
        assert_eq!(pmix.receive(), [HostEvent::Connected(3)]);
        assert_eq!(pmix.interest(false), (-1, 0));
        // The host cannot be asked to end.
        pmix.execute(Action::SendHost(HostCommand::Stop), 0);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_directory_that_was_put_in_the_place_of_the_steps_is_not_given_away() {
        let dir = std::env::temp_dir().join(format!("muster-mpi-dir.{}", std::process::id()));
        let make = |name: &str| {
            let made = dir.join(name);
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&made).unwrap();
            made
        };
        let (own, gid) = (geteuid().as_raw(), getegid().as_raw());
        give_away(&make("fresh"), own, gid).unwrap();
        let full = make("full");
        fs::write(full.join("file"), "").unwrap();
        give_away(&full, own, gid).unwrap_err();
        let link = dir.join("link");
        symlink(make("fresh"), &link).unwrap();
        give_away(&link, own, gid).unwrap_err();
        if geteuid().is_root() {
            let victims = make("victims");
            chown(&victims, Some(65533), None).unwrap();
            give_away(&victims, 65534, gid).unwrap_err();
            assert_eq!(fs::metadata(&victims).unwrap().uid(), 65533);
            give_away(&make("fresh"), 65534, gid).unwrap();
            assert_eq!(fs::metadata(make("fresh")).unwrap().uid(), 65534);
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
