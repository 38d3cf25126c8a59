//! The step daemon: one process per step and node, executed afresh by the launcher ([`start`]). It starts the tasks, carries their streams to
//! srun and back, tells how they ended, and leaves its result in a file of the spool, so that nothing else need be
//! alive when it ends. One thread, one poll loop. A daemon whose step left nothing behind may be given the next step of
//! its job by the launcher, which costs less than another process.
//!
//! Its life: listens; waits for srun's key; forks all tasks, which open their files and wait for each other; lets
//! them go; carries bytes until the last task has ended, kills what those left behind, sends the rest, and exits.
//! SIGTERM, or srun's disappearance, ends the tasks: TERM, after `KillWait` KILL.
//!
//! A task that is alone may have srun's own streams ([`StepOrder::direct`]). Then nothing is carried and nobody waited for:
//! with the streams comes a connection to srun, and the last word on it is said when the end is recorded.

mod around;
mod bind;
pub(crate) mod client;
mod direct;
mod ending;
mod mpi;
mod program;
mod result;
mod runtime;
mod start;
mod streams;
mod task;
pub(crate) mod tree;
mod wire;

use crate::descriptors::SrunStdio;
use crate::launcher::Removal;
use crate::{reaping, sys};
use client::Client;
pub use mpi::host::{HOST_NAME, pmix_host_main};
use muster_model::job::{ExitStatus, StepEnd, Usage};
use muster_node_core::messages::{KeptEntries, NextStep, StepOrder, StepdCommand, StepdEvent};
use muster_proto::step::{FromStepd, ToStepd};
use result::{Served, broken, leave};
use runtime::{Confines, StepdRuntime};
pub use start::{STEPD_NAME, stepd_main};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use streams::Stream;
use task::Task;
use tree::Tree;

/// How long srun may take to come.
const HELLO_WAIT: Duration = Duration::from_secs(30);
/// How long srun may take to read the last output of a step that was ordered to end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often it is looked whether the launcher has read how the steps before have ended.
const READ_WAIT: Duration = Duration::from_secs(1);
/// How long the directories of a step may take to be removed.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);
/// Output that srun has not read yet: beyond this, tasks have to wait.
const OUTPUT_MAX: usize = 1 << 20;

/// What a step daemon has beyond its order.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// This node's name.
    pub(crate) node: String,
    /// Time between TERM and KILL.
    pub(crate) kill_wait: Duration,
    /// File for the result.
    pub(crate) result: PathBuf,
    /// Where an MPI step has its files, and where the memory that its tasks share. Removed at the end; by the launcher if
    /// this process is killed.
    pub(crate) dirs: Vec<PathBuf>,
    /// What the agent has the launcher keep of the step, for a launcher that does not know the step: the one before, and the agent,
    /// may be lost just after they gave the step.
    pub(crate) kept: KeptEntries,
}

impl Setting {
    /// What goes with the next step of the job, beside what stays as it was.
    fn with_next(&self, next: &NextStep) -> Setting {
        Setting {
            node: self.node.clone(),
            kill_wait: Duration::from_millis(next.kill_wait_ms.min(u32::MAX.into())),
            result: PathBuf::from(&next.result),
            dirs: Vec::new(),
            kept: next.kept.clone(),
        }
    }
}

/// Runs the daemon. Never returns.
fn run(
    order: &StepOrder,
    setting: &Setting,
    listener: UnixListener,
    (launcher, agent, confines): (UnixStream, Option<UnixStream>, Confines),
    wire: Option<TcpListener>,
    srun: Option<SrunStdio>,
) -> ! {
    let mut runtime = match StepdRuntime::open(listener, launcher, agent, confines) {
        Ok(runtime) => runtime,
        Err(e) => {
            let end = broken(order, &e);
            leave(&setting.result, &end, &setting.kept);
            sys::exit_now(0)
        }
    };
    let mut served = serve(order, setting, &mut runtime, wire, srun);
    let mut step = order.launch.step;
    let mut setting = setting.clone();
    loop {
        let ended = StepdEvent::ended(step, &served.end);
        // The order matters: a process that receives the end later finds it where it was reported before.
        if !served.reusable || !runtime.send_to_launcher(&ended) {
            if runtime.has_unread() {
                runtime.leave_unread();
            }
            leave(&setting.result, &served.end, &setting.kept);
            served.part(false);
            break;
        }
        runtime.send_to_agent(&ended);
        served.part(true);
        runtime.keep_unread(served.end, &mut setting);
        let Some((next, with)) = runtime.next_step() else {
            break;
        };
        setting = setting.with_next(&next);
        step = next.order.launch.step;
        served = serve(&next.order, &setting, &mut runtime, None, with.srun);
    }
    if runtime.has_unread() {
        runtime.leave_unread();
    }
    sys::exit_now(0)
}

fn serve(
    order: &StepOrder,
    setting: &Setting,
    runtime: &mut StepdRuntime,
    wire: Option<TcpListener>,
    srun: Option<SrunStdio>,
) -> Served {
    let mut stepd = Stepd::new(order, setting, runtime);
    stepd.start_pmix(wire);
    if let Some(srun) = srun {
        stepd.start_direct(srun);
    }
    let served = stepd.run();
    let reusable = stepd.left_nothing();
    let srun = stepd.client.take().filter(|_| order.direct);
    if let Some(removal) = Removal::begin(&setting.dirs) {
        removal.wait(REMOVAL_WAIT);
    }
    match served {
        Ok(end) => Served {
            end,
            reusable,
            srun,
        },
        Err(e) => Served {
            end: broken(order, &e),
            reusable: false,
            srun,
        },
    }
}

/// How far the step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No srun yet.
    Waiting,
    /// Tasks are forked and prepare themselves.
    Starting,
    /// Tasks run.
    Running,
    /// All have ended; the rest of their output is on the way.
    Draining,
}

struct Stepd<'a> {
    order: &'a StepOrder,
    setting: &'a Setting,
    /// What outlives the step.
    runtime: &'a mut StepdRuntime,
    /// Connections that have not shown the key.
    strangers: Vec<Client>,
    client: Option<Client>,
    /// This node's place among the step's, where srun does not speak to every one itself.
    tree: Option<Tree>,
    /// The connection upwards is lost, and srun is awaited until then.
    adoption_by: Option<Instant>,
    phase: Phase,
    tasks: Vec<Task>,
    streams: Vec<Stream>,
    /// Children that run the epilogs of tasks that have ended, whose end is reported afterwards.
    epilogs: Vec<(i32, FromStepd)>,
    /// Tasks write a byte here when they are prepared; they start when `go` is closed.
    ready: Option<OwnedFd>,
    ready_count: usize,
    go: Option<OwnedFd>,
    hello_by: Instant,
    /// How long tasks may run, and since when they do.
    limit: Option<Duration>,
    started: Option<Instant>,
    time_limit: Option<Instant>,
    kill_at: Option<Instant>,
    give_up_at: Option<Instant>,
    /// When tasks of this node end by an abort of one of them, should srun not end the step before.
    abort_at: Option<(Instant, ExitStatus)>,
    ending: bool,
    timed_out: bool,
    /// The status of the step when one task's end ended it.
    failed: Option<ExitStatus>,
    pmix: Option<mpi::Pmix>,
    /// Why there is none.
    pmix_error: Option<String>,
    usage: Usage,
    /// srun was sent the last message.
    close_sent: bool,
    /// This process has no children any more, and so, as orphans become its children, the tasks have left none.
    childless: bool,
    /// More children may have ended than were collected.
    may_have_ended: bool,
    /// Streams of srun's for the only task, until it has them.
    direct: Option<[OwnedFd; 3]>,
}

impl<'a> Stepd<'a> {
    fn new(order: &'a StepOrder, setting: &'a Setting, runtime: &'a mut StepdRuntime) -> Stepd<'a> {
        let accepted = std::mem::take(&mut runtime.accepted);
        Stepd {
            order,
            setting,
            runtime,
            strangers: accepted.into_iter().flat_map(Client::new).collect(),
            client: None,
            tree: None,
            adoption_by: None,
            phase: Phase::Waiting,
            tasks: Vec::new(),
            streams: Vec::new(),
            epilogs: Vec::new(),
            ready: None,
            ready_count: 0,
            go: None,
            hello_by: Instant::now() + HELLO_WAIT,
            limit: order
                .launch
                .spec
                .time_limit
                .and_then(|l| l.seconds())
                .map(Duration::from_secs),
            started: None,
            time_limit: None,
            kill_at: None,
            give_up_at: None,
            abort_at: None,
            ending: false,
            timed_out: false,
            failed: None,
            pmix: None,
            pmix_error: None,
            usage: Usage::default(),
            close_sent: false,
            childless: false,
            may_have_ended: false,
            direct: None,
        }
    }

    /// Nothing of the step is left that another step in this process could meet.
    fn left_nothing(&self) -> bool {
        let orderly = self.phase == Phase::Draining && !self.ending && self.childless;
        orderly && self.order.pmix.is_none() && self.streams.iter().all(|s| !s.has_output())
    }

    fn run(&mut self) -> io::Result<StepEnd> {
        loop {
            self.deadlines();
            // Last words go in one write.
            if self.is_done() {
                return Ok(self.result());
            }
            if let Some(client) = &mut self.client {
                client.write();
                if !client.wire.open {
                    self.client_lost();
                    continue;
                }
            }
            self.wait()?;
        }
    }

    fn is_done(&mut self) -> bool {
        match self.phase {
            Phase::Waiting => self.ending,
            Phase::Starting | Phase::Running => false,
            Phase::Draining => {
                let gave_up = self.give_up_at.is_some_and(|at| at <= Instant::now());
                if let Some(pmix) = self.pmix.as_ref().filter(|p| !p.ended) {
                    if !gave_up {
                        return false;
                    }
                    sys::kill(pmix.pid, libc::SIGKILL);
                }
                // No stream tells that what was left behind is gone.
                let left = self.order.direct && !self.childless && !self.tasks.is_empty();
                if (left || self.streams.iter().any(Stream::has_output)) && !gave_up {
                    return false;
                }
                gave_up || self.has_taken_leave()
            }
        }
    }

    /// The last messages have been sent, and read.
    fn has_taken_leave(&mut self) -> bool {
        let absent = self.client.is_none();
        if absent && (self.tree.is_none() || self.adoption_by.is_none()) {
            return true;
        }
        if self.order.direct {
            // That is said once the end is recorded.
            return true;
        }
        if !std::mem::replace(&mut self.close_sent, true) {
            self.send(&FromStepd::Closed);
        }
        let Some(client) = &mut self.client else {
            return false;
        };
        if let Some(tree) = &self.tree {
            if !tree.is_over() {
                client.write();
                return false;
            }
            if !std::mem::replace(&mut client.end_sent, true) {
                client.send(&FromStepd::Over);
            }
        }
        client.write();
        client.wire.output.is_empty() || !client.wire.open
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut fds = Vec::with_capacity(8 + self.streams.len());
        let mut add = |fd: i32, events: i16| {
            fds.push(libc::pollfd {
                fd,
                events,
                revents: 0,
            });
        };
        // A negative descriptor is skipped by poll(2).
        let raw = |fd: Option<i32>| fd.unwrap_or(-1);
        add(self.runtime.signals.as_fd().as_raw_fd(), libc::POLLIN);
        add(self.runtime.listener.as_raw_fd(), libc::POLLIN);
        add(raw(self.runtime.launcher_fd()), libc::POLLIN);
        add(
            raw(self.ready.as_ref().map(|c| c.as_raw_fd())),
            libc::POLLIN,
        );
        let tree = self.tree.as_ref();
        let stuffed =
            self.streams.iter().any(Stream::is_stuffed) || tree.is_some_and(Tree::is_stuffed);
        let client = self.client.as_ref();
        let choked = client.is_some_and(|c| c.wire.output.len() > OUTPUT_MAX);
        let full = choked || tree.is_some_and(Tree::is_full);
        let reading = if stuffed { 0 } else { libc::POLLIN };
        let writing = match client.is_some_and(Client::has_output) {
            true => libc::POLLOUT,
            false => 0,
        };
        add(
            raw(client.map(|c| c.wire.stream.as_raw_fd())),
            reading | writing,
        );
        let (host, events) = self.pmix.as_ref().map_or((-1, 0), |p| p.interest(full));
        add(host, events);
        let agent = self.runtime.agent_stream();
        add(raw(agent.map(|a| a.as_raw_fd())), libc::POLLIN);
        for stranger in &self.strangers {
            add(stranger.wire.stream.as_raw_fd(), libc::POLLIN);
        }
        let strangers = self.strangers.len();
        let mut below = 0;
        for (fd, events) in tree.into_iter().flat_map(|t| t.interests(choked)) {
            add(fd, events);
            below += 1;
        }
        for stream in &self.streams {
            let (fd, events) = stream.interest(full);
            add(fd, events);
        }
        sys::poll(&mut fds, self.timeout_ms())?;
        let seen = |i: usize| fds[i].revents;
        let children: Vec<bool> = (0..below).map(|i| seen(7 + strangers + i) != 0).collect();
        let streams: Vec<usize> = (0..self.streams.len())
            .filter(|i| seen(7 + strangers + below + i) != 0)
            .collect();
        let greeted: Vec<usize> = (0..strangers).filter(|i| seen(7 + i) != 0).collect();

        for i in streams {
            if let Some(message) = self.streams[i].serve() {
                self.send(&message);
            }
        }
        self.streams.retain(Stream::is_open);
        if children.contains(&true) {
            self.take_below(&children);
        }
        if seen(3) != 0 {
            self.take_ready();
        }
        if seen(5) != 0 {
            self.take_pmix();
        }
        if seen(4) & !libc::POLLOUT != 0 {
            self.take_client();
        }
        for i in greeted.into_iter().rev() {
            self.take_stranger(i);
        }
        if seen(2) != 0 {
            self.take_control();
        }
        if seen(6) != 0 {
            // While a step runs, no other is given.
            self.runtime.receive_from_agent();
        }
        if seen(0) != 0 || self.may_have_ended {
            self.take_signals();
        }
        if seen(1) != 0 {
            self.accept();
        }
        Ok(())
    }

    fn timeout_ms(&mut self) -> i32 {
        if self.may_have_ended {
            return 0;
        }
        let hello = (self.phase == Phase::Waiting).then_some(self.hello_by);
        let adoption = self.adoption_by;
        let reading = (self.runtime.has_unread()).then(|| Instant::now() + READ_WAIT);
        let company = self.client.as_ref().and_then(Client::waits_until);
        [
            hello,
            company,
            reading,
            self.time_limit,
            self.kill_at,
            self.give_up_at,
            self.abort_at.map(|(at, _)| at),
            adoption,
        ]
        .into_iter()
        .flatten()
        .min()
        .map_or(-1, |at| {
            let wait = at.saturating_duration_since(Instant::now()).as_millis() + 1;
            i32::try_from(wait).unwrap_or(i32::MAX)
        })
    }

    fn deadlines(&mut self) {
        let now = Instant::now();
        if self.phase == Phase::Waiting && self.hello_by <= now && !self.ending {
            eprintln!(
                "step {}.{}: srun did not come",
                self.order.run.job, self.order.launch.step
            );
            self.ending = true;
        }
        if self.time_limit.is_some_and(|at| at <= now) {
            self.time_limit = None;
            self.timed_out = true;
            if self.order.launch.position == 0 {
                let at = sys::local_time(crate::now().unix_s());
                let line = format!(
                    "slurmstepd: error: *** STEP {}.{} ON {} CANCELLED AT {at} DUE TO TIME LIMIT ***",
                    self.order.run.job, self.order.launch.step, self.setting.node
                );
                self.message(line);
            }
            self.begin_end();
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.signal_all(libc::SIGKILL);
        }
        if let Some((_, exit)) = self.abort_at.take_if(|(at, _)| *at <= now) {
            self.fail(exit);
        }
        if self.adoption_by.is_some_and(|at| at <= now) {
            self.adoption_by = None;
            self.srun_left();
        }
    }

    fn start(&mut self) {
        self.phase = Phase::Starting;
        if let Err(e) = self.fork_tasks() {
            self.message(format!("slurmstepd: error: cannot start tasks: {e}"));
            self.ending = true;
            self.signal_all(libc::SIGKILL);
        }
        // Time that srun spends before it comes is not the step's.
        self.started = Some(Instant::now());
        self.limit_time();
        if self.tasks.is_empty() {
            self.phase = Phase::Draining;
        } else if self.go.is_none() {
            self.tasks_run();
        }
    }

    /// Works out when the time of the tasks is up.
    fn limit_time(&mut self) {
        let running = self.phase != Phase::Draining && !self.ending;
        let since = self.started.filter(|_| running);
        self.time_limit = since
            .zip(self.limit)
            .and_then(|(at, limit)| at.checked_add(limit));
    }

    fn take_ready(&mut self) {
        let Some(fd) = &self.ready else {
            return;
        };
        let mut bytes = [0; 256];
        match nix::unistd::read(fd, &mut bytes) {
            Ok(n) if n > 0 => {
                self.ready_count += n;
                if self.ready_count < self.tasks.len() {
                    return;
                }
            }
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return,
            // Every task is prepared or has ended.
            _ => {}
        }
        self.ready = None;
        self.release_tasks();
    }

    /// Lets the tasks go, once all of them are prepared and what they are to find is known.
    fn release_tasks(&mut self) {
        let unready = self.pmix.as_ref().is_some_and(|p| !p.ready);
        if self.ready.is_some() || unready || self.go.take().is_none() {
            return;
        }
        self.tasks_run();
    }

    fn tasks_run(&mut self) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
        }
        // srun knows that the task of a direct step is started with the step.
        if !self.order.direct {
            self.tell_of_singletons_ahead();
            self.tell_started();
        }
    }

    fn tell_started(&mut self) {
        let pids = self.tasks.iter().map(|t| t.pid.unsigned_abs()).collect();
        self.send(&FromStepd::Started(pids));
    }

    fn take_client(&mut self) {
        if let Some(client) = &mut self.client {
            client.wire.read();
        }
        self.client_messages();
    }

    fn client_messages(&mut self) {
        while let Some(message) = self.client.as_mut().and_then(Client::next) {
            self.on_request(message);
        }
        if self.client.as_ref().is_some_and(|c| !c.wire.open) {
            self.client_lost();
        }
    }

    fn on_request(&mut self, message: ToStepd) {
        match message {
            ToStepd::Hello(..) | ToStepd::Attach(_) | ToStepd::Adopt(_) | ToStepd::Nothing => {}
            ToStepd::Stdin { task, bytes } => {
                for stream in &mut self.streams {
                    stream.feed(task, &bytes);
                }
            }
            ToStepd::Peers(peers) => self.pmix_peers(peers),
            ToStepd::Fail(exit) => self.fail(exit),
            ToStepd::Signal(signal) => {
                self.signal_all(i32::try_from(signal).unwrap_or(0));
            }
            ToStepd::Window(rows, columns) => {
                for stream in &self.streams {
                    stream.set_window(rows, columns);
                }
            }
            ToStepd::Down(number, message) => {
                let tree = self.tree.as_mut();
                let new = tree.and_then(|t| t.take(number, *message, &self.order.launch));
                if let Some(message) = new {
                    self.on_request(message);
                }
                if self.tree.as_mut().is_some_and(Tree::owes_acknowledgement) {
                    self.send(&FromStepd::Acknowledged);
                }
            }
            ToStepd::Again(seen) => self.say_again(&seen),
            ToStepd::Seen(position, count) => {
                if let Some(tree) = &mut self.tree {
                    tree.seen(position, count);
                }
            }
            ToStepd::Left => self.srun_left(),
        }
    }

    /// srun is gone: so is the reason for the tasks to be.
    fn client_lost(&mut self) {
        self.client = None;
        if !self.is_orphan() && self.phase != Phase::Draining {
            self.begin_end();
        }
    }

    /// What the launcher wants said or done.
    fn take_control(&mut self) {
        for control in self.runtime.receive_commands() {
            match control {
                // Every node receives it; one of them prints it.
                StepdCommand::PrintStepLine(line) if self.order.launch.position == 0 => {
                    self.message(line)
                }
                StepdCommand::PrintStepLine(_) => {}
                StepdCommand::PrintLine(line) => self.message(line),
                // The job ends, and the launcher does not know of this step, which the agent gave.
                StepdCommand::EndStep | StepdCommand::Exit => self.begin_end(),
                StepdCommand::SetTimeLimit(seconds) => {
                    self.limit = seconds.map(Duration::from_secs);
                    self.limit_time();
                }
                // It waits.
                StepdCommand::StartStep(_) => {}
            }
        }
    }

    fn take_signals(&mut self) {
        let mut children = false;
        while let Ok(Some(info)) = self.runtime.signals.read_signal() {
            match i32::try_from(info.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => children = true,
                libc::SIGTERM => {
                    // The message that belongs to it was written before the signal was sent.
                    self.take_control();
                    self.begin_end();
                }
                _ => {}
            }
        }
        if children || self.may_have_ended {
            self.reap();
        }
    }

    fn reap(&mut self) {
        let after = reaping::each_ended(sys::reap, |r| self.child_ended(&r));
        self.childless |= after == reaping::After::Childless;
        self.may_have_ended = after == reaping::After::Burst;
        let ended = self.tasks.iter().all(|t| t.exit.is_some()) && self.epilogs.is_empty();
        if self.phase != Phase::Waiting && ended {
            self.all_ended();
        }
    }

    fn child_ended(&mut self, r: &sys::Reaped) {
        if let Some(at) = self.epilogs.iter().position(|(pid, _)| *pid == r.pid) {
            let (_, exited) = self.epilogs.swap_remove(at);
            self.send(&exited);
            return;
        }
        let exit = muster_node_core::exit_status::exit_status(r.status);
        if self.pmix.as_ref().is_some_and(|p| p.pid == r.pid) {
            self.pmix_ended(exit);
            return;
        }
        let Some(task) = self.tasks.iter_mut().find(|t| t.pid == r.pid) else {
            return;
        };
        task.exit = Some(exit);
        let used = Usage {
            user_us: r.user_us,
            system_us: r.system_us,
            max_rss_kib: r.max_rss_kib,
            pages: r.pages,
            disk_read_bytes: r.blocks_in * 512,
            disk_write_bytes: r.blocks_out * 512,
            ..Usage::default()
        };
        self.usage.add(&used.of_task(task.global, 0));
        let exited = FromStepd::Exited {
            task: task.global,
            exit,
            oom: false,
        };
        let global = task.global;
        let failed = self.pmix_task_ended(global, exit);
        match self.fork_epilog(global) {
            Some(pid) => self.epilogs.push((pid, exited)),
            None => self.send(&exited),
        }
        if let Some(failed) = failed {
            self.send(&failed);
        }
    }

    /// What the tasks left behind is killed; it holds their pipes open.
    fn all_ended(&mut self) {
        self.phase = Phase::Draining;
        self.time_limit = None;
        if !self.childless {
            self.signal_found(&self.of_tasks(), libc::SIGKILL);
            if self.order.direct {
                let at = Instant::now() + LAST_WORDS;
                self.give_up_at.get_or_insert(at);
            }
        }
        self.remove_leftovers();
        if let Some(pmix) = &mut self.pmix {
            pmix.stop();
        }
        self.streams.iter_mut().for_each(Stream::no_more_input);
        if self.ending && self.give_up_at.is_none() {
            self.give_up_at = Some(Instant::now() + LAST_WORDS);
        }
    }

    fn send(&mut self, message: &FromStepd) {
        match (&mut self.tree, &mut self.client) {
            (Some(tree), client) => {
                let frame = tree.say(message);
                if let Some(client) = client {
                    client.send_frame(frame, client::is_patient(message));
                }
            }
            (None, Some(client)) => client.send(message),
            (None, None) => {}
        }
    }

    fn message(&mut self, line: String) {
        self.send(&FromStepd::Message(line));
    }
}

/// A frame of output, or of its end when there are no bytes.
fn output(task: u32, error: bool, bytes: &[u8]) -> FromStepd {
    let bytes = bytes.to_vec().into();
    if error {
        FromStepd::Stderr { task, bytes }
    } else {
        FromStepd::Stdout { task, bytes }
    }
}
