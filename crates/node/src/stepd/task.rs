//! Tasks: all are forked together, each sets its identity and opens its streams as its user, and
//! all are released at once, so that no output is written before every file is open. Until it
//! executes its program a task is a copy of the daemon; it therefore has only the descriptors that
//! it needs, and no process may trace it. The daemon never waits for it, because its user may stop
//! it, and opening the files that the user names may block.

use super::labelling;
use super::mpi;
use super::program::{self, Program};
use super::streams::Kind;
use super::task_set::{LimitCache, TaskSet};
use super::tmp_dir;
use crate::cgroup::steps::JobGroups;
use crate::job_files::{go_to, open_as, output_flags, say};
use crate::sys::{self, ExecArguments};
use muster_model::job_env::{self, Variables};
use muster_model::spec::SoftLimit;
use muster_node_core::labels;
use muster_node_core::messages::StepOrder;
use muster_node_core::pattern::{Symbols, expand};
use muster_proto::step::StdinTask;
use nix::fcntl::OFlag;
use nix::pty::openpty;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, Uid, pipe2, setpgid, setsid};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The streams of a forked child.
struct ChildStreams {
    stdin: TaskInput,
    stdout: TaskOutput,
    stderr: TaskOutput,
    /// Standard error until the files are open, if a file will be standard error: the log must not
    /// contain texts of users.
    early: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

enum TaskInput {
    Null,
    File(String),
    /// A pipe from the daemon, or srun's own stream.
    Pipe(OwnedFd),
}

enum TaskOutput {
    File(String),
    /// A pipe to the daemon, or srun's own stream.
    Pipe(OwnedFd),
    /// Same as standard output.
    Joined,
}

/// Data of a child before its exec.
struct ChildContext<'p> {
    local: u32,
    global: u32,
    /// The daemon's process.
    daemon: u32,
    /// Soft limits to be set.
    limits: &'p [SoftLimit],
    /// Descriptors that it needs beside its standard streams.
    kept: &'p [RawFd],
    /// Where it reports processes that write its labelled lines.
    labellers: Option<BorrowedFd<'p>>,
}

/// Pipes that all tasks share.
struct Barrier {
    ready: OwnedFd,
    go: OwnedFd,
    /// See [`ChildContext::labellers`].
    labellers: Option<OwnedFd>,
    /// The daemon's process.
    daemon: u32,
}

impl TaskSet {
    /// Forks all tasks of this node. They wait until they are released, apart from a single task
    /// that waits for nothing. Returns the processes that were started, and why there are no more.
    pub(super) fn start(
        &mut self,
        limits: &mut LimitCache,
        groups: Option<&JobGroups>,
    ) -> (Vec<i32>, Option<io::Error>) {
        let mut pids = Vec::new();
        let error = self
            .make_group(groups)
            .and_then(|()| self.fork_tasks(limits, &mut pids));
        let error = error.err();
        (pids, error)
    }

    /// Makes the control groups of the step.
    fn make_group(&mut self, groups: Option<&JobGroups>) -> io::Result<()> {
        let launch = &self.order.launch;
        let made = groups.map(|job| job.begin(launch.step, launch.memory_mib));
        self.group = made.transpose()?;
        Ok(())
    }

    /// In a child of the daemon: joins the step's control groups.
    ///
    /// # Errors
    /// The reason why the process is not in the groups: it must not execute anything of the user's
    /// then.
    pub(super) fn join_group(&self) -> Result<(), String> {
        let joined = self
            .group
            .as_ref()
            .map_or(Ok(()), |group| group.entrances.join());
        joined.map_err(|e| format!("a task cannot join its control group: {e}"))
    }

    fn fork_tasks(&mut self, limits: &mut LimitCache, pids: &mut Vec<i32>) -> io::Result<()> {
        let position = self.order.launch.position as usize;
        let globals = self.order.launch.tasks.get(position).cloned();
        let globals = globals.unwrap_or_default();
        if let [global] = globals[..]
            && self.starts_at_once()
        {
            pids.push(self.start_alone(global, limits)?);
            return Ok(());
        }
        let (ready, ready_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (go, go_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let barrier = Barrier {
            ready: ready_writer,
            go,
            labellers: match self.order.launch.spec.label {
                true => Some(self.labellers.expect()?),
                false => None,
            },
            daemon: std::process::id(),
        };
        self.ready = Some(ready);
        self.go = Some(go_writer);
        for (local, global) in (0u32..).zip(globals) {
            let ends = self.ends(local, global)?;
            match sys::fork()? {
                sys::Fork::Child => self.become_task(local, global, ends, &barrier),
                sys::Fork::Parent(pid) => pids.push(pid),
            }
        }
        if let Some(pmix) = &mut self.pmix {
            pmix.tasks_have_sockets();
        }
        Ok(())
    }

    /// Whether a single task has nothing to wait for before its program.
    fn starts_at_once(&self) -> bool {
        let (order, spec) = (&self.order, &self.order.launch.spec);
        let files = [&spec.stdio.stdin, &spec.stdio.stdout, &spec.stdio.stderr];
        let prologs = [&order.task_prolog, &spec.task_prolog];
        self.pmix.is_none()
            && spec.pty.is_none()
            && files.into_iter().chain(prologs).all(Option::is_none)
    }

    /// Starts the only task of this node, which waits for nothing.
    fn start_alone(&mut self, global: u32, limits: &mut LimitCache) -> io::Result<i32> {
        let ends = self.ends(0, global)?;
        let daemon = std::process::id();
        let expected = self.usual_tmp_dir();
        let mut program = self.program_alone(global, expected.as_deref());
        let limits = limits.missing(&self.order.limits);
        let place = ChildContext {
            local: 0,
            global,
            daemon,
            limits: &limits,
            kept: &[],
            labellers: None,
        };
        match sys::fork()? {
            sys::Fork::Parent(pid) => Ok(pid),
            sys::Fork::Child => {
                sys::restore_signals();
                sys::exit_now(match self.prepare_task(&ends, &place) {
                    Err(text) => {
                        say(&text);
                        1
                    }
                    Ok(()) => {
                        let made = self.make_tmp_dir(say);
                        if made != expected {
                            program = self.program_alone(global, made.as_deref());
                        }
                        program.exec(global, || Ok(()))
                    }
                })
            }
        }
    }

    /// The program of a single task.
    fn program_alone(&self, global: u32, tmp_dir: Option<&str>) -> Program<'_> {
        let own = self.own_env(0, global, tmp_dir);
        let inherited = inherited(&self.order, &own);
        let of_task = own.iter().cloned().filter_map(variable).collect();
        let found = self.order.launch.spec.program_file.as_deref();
        let found = found.filter(|_| self.order.direct);
        let program = Program::new(self.argv(global), ExecArguments::with(inherited, of_task));
        program.found_at(found)
    }

    /// Creates the streams of a task; the daemon's ends go into `self.streams`.
    fn ends(&mut self, local: u32, global: u32) -> io::Result<ChildStreams> {
        let spec = &self.order.launch.spec;
        if let Some([stdin, stdout, stderr]) = self.direct.take() {
            return Ok(ChildStreams {
                stdin: match spec.stdin_task {
                    StdinTask::None => TaskInput::Null,
                    StdinTask::All | StdinTask::One(_) => TaskInput::Pipe(stdin),
                },
                stdout: TaskOutput::Pipe(stdout),
                stderr: TaskOutput::Pipe(stderr),
                early: None,
                terminal: None,
            });
        }
        if let (Some((rows, columns)), 0) = (spec.pty, global) {
            let pty = openpty(None, None)?;
            sys::set_window(pty.master.as_fd(), rows, columns);
            if Uid::effective().is_root() {
                nix::unistd::fchown(&pty.slave, Some(self.order.user.uid.into()), None)?;
            }
            self.add_stream(global, Kind::Terminal, pty.master)?;
            return Ok(ChildStreams {
                stdin: TaskInput::Null,
                stdout: TaskOutput::Joined,
                stderr: TaskOutput::Joined,
                early: None,
                terminal: Some(pty.slave),
            });
        }
        let file = |pattern: &Option<String>| {
            pattern
                .as_ref()
                .map(|p| expand(p, &self.symbols(local, global)))
        };
        let (stdin, stdout, stderr) = (
            file(&spec.stdio.stdin),
            file(&spec.stdio.stdout),
            file(&spec.stdio.stderr),
        );
        let wanted = match spec.stdin_task {
            StdinTask::All => true,
            StdinTask::None => false,
            StdinTask::One(task) => task == global,
        };
        let joined = stdout.is_some() && (stderr.is_none() || stderr == stdout);
        let stdin = match stdin {
            Some(path) => TaskInput::File(path),
            None if wanted => {
                let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
                self.add_stream(global, Kind::In, writer)?;
                TaskInput::Pipe(reader)
            }
            None => TaskInput::Null,
        };
        let stdout = self.outlet(global, Kind::Out, stdout)?;
        let stderr = if joined {
            TaskOutput::Joined
        } else {
            self.outlet(global, Kind::Err, stderr)?
        };
        let early = match (&stderr, &stdout) {
            (TaskOutput::File(_), _) | (TaskOutput::Joined, TaskOutput::File(_)) => {
                let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
                self.add_stream(global, Kind::Err, reader)?;
                Some(writer)
            }
            _ => None,
        };
        Ok(ChildStreams {
            stdin,
            stdout,
            stderr,
            early,
            terminal: None,
        })
    }

    fn outlet(&mut self, global: u32, kind: Kind, file: Option<String>) -> io::Result<TaskOutput> {
        if let Some(path) = file {
            return Ok(TaskOutput::File(path));
        }
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        self.add_stream(global, kind, reader)?;
        Ok(TaskOutput::Pipe(writer))
    }

    fn symbols(&self, _local: u32, global: u32) -> Symbols<'_> {
        Symbols {
            job: self.order.attempt.job,
            array: self.order.array,
            step: Some(self.order.launch.step),
            node: &self.node,
            node_position: self.order.launch.position,
            task: global,
            user: &self.order.user.name,
            job_name: &self.order.job_name,
        }
    }

    /// The child side. Never returns.
    fn become_task(&self, local: u32, global: u32, ends: ChildStreams, barrier: &Barrier) -> ! {
        sys::restore_signals();
        let mut kept = vec![barrier.ready.as_raw_fd(), barrier.go.as_raw_fd()];
        kept.extend(barrier.labellers.as_ref().map(AsRawFd::as_raw_fd));
        if let Some(pmix) = &self.pmix {
            kept.extend(pmix.of_task(local));
        }
        let place = ChildContext {
            local,
            global,
            daemon: barrier.daemon,
            limits: &sys::with_first_limits(&self.order.limits),
            kept: &kept,
            labellers: barrier.labellers.as_ref().map(AsFd::as_fd),
        };
        let code = match self.prepare_task(&ends, &place) {
            Err(text) => {
                say(&text);
                1
            }
            Ok(()) => {
                // Ready: wait for the others. The daemon closes the other end when all are ready.
                let _ = nix::unistd::write(&barrier.ready, b"r");
                // The end of this pipe tells the daemon about tasks that failed, once no other
                // process holds it.
                sys::close_inherited(barrier.ready.as_raw_fd());
                let _ = nix::unistd::read(&barrier.go, &mut [0]);
                self.exec_task(local, global)
            }
        };
        sys::exit_now(code)
    }

    fn prepare_task(&self, ends: &ChildStreams, place: &ChildContext<'_>) -> Result<(), String> {
        let (order, spec) = (&self.order, &self.order.launch.spec);
        let (local, global, daemon) = (place.local, place.global, place.daemon);
        self.join_group()?;
        sys::leave_protection();
        for limit in place.limits {
            // Soft limits are set as far as possible, as in Slurm.
            let _ = sys::set_soft_limit(limit.resource, limit.value);
        }
        match &ends.terminal {
            Some(terminal) => {
                setsid().map_err(|e| format!("setsid: {e}"))?;
                sys::take_terminal(terminal.as_raw_fd()).map_err(|e| format!("terminal: {e}"))?;
            }
            // A separate process group, so that `kill 0` of a task does not reach the others.
            None => setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(|e| e.to_string())?,
        }
        // From here on messages go to the task's own streams.
        self.connect_pipes(ends).map_err(|e| e.to_string())?;
        sys::close_all_but(place.kept);
        if Uid::effective().is_root() {
            sys::become_user(order.user.uid, order.user.gid, &order.user.groups)
                .map_err(|e| format!("task {global}: cannot become {}: {e}", order.user.name))?;
        }
        // Without the daemon no process would end it, or learn of its end. (A change of identity
        // undoes this.)
        if !sys::die_with_parent_of(daemon) {
            return Err(format!("task {global}: its step daemon is gone"));
        }
        // Tasks of a step may copy from each other's memory; Yama requires that each declares this.
        sys::allow_attach(daemon);
        umask(Mode::from_bits_truncate(spec.context.umask & 0o777));
        let astray = go_to(&spec.work_dir).map_err(|e| format!("chdir to /tmp: {e}"))?;
        self.connect_files(ends, place)?;
        if let Some(line) = astray {
            say(&line);
        }
        self.bind_task(local, global)
    }

    fn connect_pipes(&self, ends: &ChildStreams) -> io::Result<()> {
        if let Some(terminal) = &ends.terminal {
            return (0..3).try_for_each(|fd| sys::dup_to(terminal.as_raw_fd(), fd));
        }
        if let TaskInput::Pipe(fd) = &ends.stdin {
            sys::dup_to(fd.as_raw_fd(), 0)?;
        }
        // Until then standard error is the log, which must not contain texts of users.
        if let Some(fd) = &ends.early {
            sys::dup_to(fd.as_raw_fd(), 2)?;
        }
        for (end, target) in [(&ends.stdout, 1), (&ends.stderr, 2)] {
            if let TaskOutput::Pipe(fd) = end {
                sys::dup_to(fd.as_raw_fd(), target)?;
            }
        }
        Ok(())
    }

    fn connect_files(&self, ends: &ChildStreams, place: &ChildContext<'_>) -> Result<(), String> {
        if ends.terminal.is_some() {
            return Ok(());
        }
        let input = match &ends.stdin {
            TaskInput::Pipe(_) => None,
            TaskInput::File(path) => Some(path.as_str()),
            TaskInput::Null => Some("/dev/null"),
        };
        if let Some(path) = input {
            open_as(path, OFlag::O_RDONLY, 0)
                .map_err(|e| format!("Could not open stdin file {path}: {e}"))?;
        }
        for (end, target, name) in [(&ends.stdout, 1, "stdout"), (&ends.stderr, 2, "stderr")] {
            match end {
                TaskOutput::File(path) => open_output(&self.order, path, target, place)
                    .map_err(|e| format!("Could not open {name} file {path}: {e}"))?,
                TaskOutput::Joined => sys::dup_to(1, 2).map_err(|e| e.to_string())?,
                TaskOutput::Pipe(_) => {}
            }
        }
        Ok(())
    }

    /// Executes the program of a forked task; returns an exit code if it cannot be executed.
    fn exec_task(&self, local: u32, global: u32) -> i32 {
        let tmp_dir = self.make_tmp_dir(say);
        let mut env = self.task_env(local, global, tmp_dir.as_deref());
        if let Err(status) = self.run_prologs(&mut env) {
            return status;
        }
        Program::new(self.argv(global), ExecArguments::new(env)).exec(global, || match &self.pmix {
            Some(pmix) => pmix.hand_over(local),
            None => Ok(()),
        })
    }

    /// The command line of a task.
    fn argv(&self, global: u32) -> Vec<String> {
        let spec = &self.order.launch.spec;
        if spec.multi_prog.is_empty() {
            spec.argv.clone()
        } else {
            program::of_task(&spec.multi_prog, global).unwrap_or_default()
        }
    }

    /// The environment of one task, apart from its process id.
    pub(super) fn task_env(&self, local: u32, global: u32, tmp_dir: Option<&str>) -> Vec<CString> {
        let own = self.own_env(local, global, tmp_dir);
        let mut env: Vec<CString> = inherited(&self.order, &own).map(CStr::to_owned).collect();
        env.extend(own.into_iter().filter_map(variable));
        if let Some(pmix) = &self.pmix {
            pmix.adjust(global, &mut env);
        }
        env
    }

    /// Variables that differ by task.
    fn own_env(&self, local: u32, global: u32, tmp_dir: Option<&str>) -> Variables {
        let mut own = job_env::task_env(global, local);
        own.extend(self.gpu_env(local));
        own.extend(tmp_dir::variables(tmp_dir));
        own
    }
}

/// Opens a file as a standard descriptor. With `--label` the task's lines get there by a process that labels them.
fn open_output(
    order: &StepOrder,
    path: &str,
    target: RawFd,
    place: &ChildContext<'_>,
) -> Result<(), String> {
    let spec = &order.launch.spec;
    let flags = output_flags(spec.append.unwrap_or(order.append));
    let Some(reports) = place.labellers.filter(|_| path != "/dev/null") else {
        return open_as(path, flags, target);
    };
    // Until now this is a pipe to the daemon, in which messages go to the user.
    let messages = nix::unistd::dup(io::stderr()).map_err(|e| e.to_string())?;
    open_as(path, flags, target)?;
    let of_all = spec.het.as_ref().and_then(|het| het.total_tasks);
    let own = order.launch.tasks.iter().map(Vec::len).sum();
    let ntasks = of_all.map_or(own, |tasks| tasks as usize);
    let label = labels::label(place.global, labels::width(ntasks));
    labelling::begin(target, messages.as_raw_fd(), reports, &label).map_err(|e| e.to_string())
}

/// The step's environment without variables of single tasks and without addresses of other MPI servers.
fn inherited<'a>(order: &'a StepOrder, own: &Variables) -> impl Iterator<Item = &'a CStr> {
    let is_own = move |variable: &&CStr| {
        let names = own.iter().map(|(name, _)| name.as_str());
        names.chain([program::TASK_PID]).any(|name| {
            let rest = variable.to_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b'='))
        })
    };
    order
        .env
        .strings()
        .filter(move |v| !is_own(v) && !mpi::is_foreign(v.to_bytes()))
}

fn variable((name, value): (String, String)) -> Option<CString> {
    CString::new(format!("{name}={value}")).ok()
}
