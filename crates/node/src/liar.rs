//! An agent that lies, for tests: it speaks the launcher's protocol below the agent. Not a part of the crate's interface.

use crate::descriptors::{SrunStdio, receive, send};
use crate::messages::launcher_socket::{attach_frame, socket_path};
use crate::one_way_link::OneWayLink;
use crate::options::AgentOptions;
use muster_model::cpuset::CpuSet;
use muster_model::environment::Environment;
use muster_model::ids::{Attempt, JobAttempt, JobId, StepNo};
use muster_node_core::messages::{
    LauncherCommand, LauncherEvent, NextStep, PmixOrder, ProcessIdentity, StepOrder, StepdEvent,
    TaskBinding,
};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{StepLaunch, StepSpec};
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to a launcher.
#[derive(Debug)]
pub struct LyingAgent {
    stream: UnixStream,
    /// Where orders go, once root has attached it.
    orders: Option<File>,
    input: Frames,
    /// Descriptors that came with messages.
    received: VecDeque<OwnedFd>,
    /// Control channels to step daemons, by job and step.
    channels: HashMap<(u64, u32), UnixStream>,
    /// Streams of steps whose daemons are not there yet.
    streams: HashMap<(u64, u32), SrunStdio>,
}

/// The agent's description of a step. Unchanged, it is true of a job with two CPUs.
#[derive(Clone, Debug)]
pub struct StepLie {
    /// The job.
    pub job: u64,
    /// The step.
    pub step: u32,
    /// The job that the request names.
    pub of_job: u64,
    /// Nodes.
    pub names: Vec<String>,
    /// CPUs from the first one on.
    pub cpus: u32,
    /// CPUs, by the kernel's numbers, to which the task is bound.
    pub bound_to: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Tasks on this node.
    pub tasks: u32,
    /// The user of the step, and its only group.
    pub uid: u32,
    /// The directory that root is to make for MPI, and the component of its name.
    pub mpi: Option<(String, String)>,
    /// The command.
    pub argv: Vec<String>,
    /// Where the step's end is to be written by root.
    pub result: String,
}

impl StepLie {
    /// The truth.
    pub fn new(job: u64, step: u32, node: &str) -> StepLie {
        StepLie {
            job,
            step,
            of_job: job,
            names: vec![node.to_owned()],
            cpus: 2,
            bound_to: 0,
            memory_mib: 0,
            tasks: 1,
            uid: 65_534,
            mpi: None,
            argv: vec!["/bin/true".to_owned()],
            result: String::new(),
        }
    }

    fn order(&self) -> StepOrder {
        let spec = StepSpec {
            job: JobId(self.of_job),
            argv: self.argv.clone(),
            work_dir: "/".to_owned(),
            ..StepSpec::default()
        };
        let mut tasks = vec![Vec::new(); self.names.len()];
        tasks[0] = (0..self.tasks).collect();
        StepOrder {
            attempt: attempt_of(self.job),
            launch: StepLaunch {
                key: vec![1; 16].into(),
                spec,
                step: StepNo(self.step),
                step_key: vec![2; 16].into(),
                position: 0,
                tasks,
                names: self.names.clone(),
                cpus: CpuSet::first(self.cpus),
                memory_mib: self.memory_mib,
                gres: Vec::new(),
                lead: String::new(),
                width: 0,
                above: None,
            },
            user: ProcessIdentity {
                uid: self.uid,
                gid: self.uid,
                groups: vec![self.uid],
                name: "liar".to_owned(),
            },
            env: Environment::default(),
            limits: Vec::new(),
            array: None,
            job_name: String::new(),
            append: false,
            task_prolog: None,
            task_epilog: None,
            binding: TaskBinding {
                cpus: match self.bound_to {
                    0 => Vec::new(),
                    count => vec![CpuSet::first(count)],
                },
                ..TaskBinding::default()
            },
            pmix: self.mpi.as_ref().map(|(base, name)| pmix(base, name)),
            direct: self.mpi.is_none() && self.tasks == 1,
            tmp_dir: None,
        }
    }
}

fn pmix(base: &str, name: &str) -> PmixOrder {
    PmixOrder {
        nspace: name.to_owned(),
        version: None,
        universe: 1,
        listen: "127.0.0.1".to_owned(),
        tmp_base: base.to_owned(),
        share_topology: false,
        early: false,
        timeout_s: 1,
        env: Vec::new(),
        pmi: true,
        cross_memory: None,
        plain_network: true,
        ucx: None,
        no_gpus: true,
        crowded_slack_us: 0,
        any: false,
    }
}

fn attempt_of(job: u64) -> JobAttempt {
    JobAttempt::new(JobId(job), Attempt(1))
}

/// The liar's end of a step that was given to a daemon.
#[derive(Debug)]
pub struct LiarStep {
    /// The standard output of the step's task.
    pub stdout: UnixStream,
    /// Srun's end of its line.
    _line: UnixStream,
}

impl LiarStep {
    /// The complete output of the task.
    ///
    /// # Errors
    /// The output does not end.
    pub fn output(&mut self) -> io::Result<String> {
        self.stdout.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Streams for a step, and their other ends.
fn given() -> io::Result<(LiarStep, SrunStdio)> {
    let (stdout, task_stdout) = UnixStream::pair()?;
    let (line, daemon_line) = UnixStream::pair()?;
    let null = || Ok::<_, io::Error>(OwnedFd::from(std::fs::File::open("/dev/null")?));
    let srun = SrunStdio {
        stdin: null()?,
        stderr: task_stdout.try_clone()?.into(),
        stdout: task_stdout.into(),
        line: daemon_line.into(),
    };
    let given = LiarStep {
        stdout,
        _line: line,
    };
    Ok((given, srun))
}

impl LyingAgent {
    /// Connects to the launcher of a spool directory without sending anything.
    ///
    /// # Errors
    /// No launcher listens.
    pub fn connect(spool: &Path) -> io::Result<LyingAgent> {
        let stream = UnixStream::connect(socket_path(spool))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(LyingAgent {
            stream,
            orders: None,
            input: Frames::default(),
            received: VecDeque::new(),
            channels: HashMap::new(),
            streams: HashMap::new(),
        })
    }

    /// Sends the message that root sends before it passes the connection to an agent; from then on the connection is
    /// an agent's.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn attach(&mut self, options: &AgentOptions) -> io::Result<()> {
        let frame = attach_frame(options);
        if let Some(orders) = &mut self.orders {
            return orders.write_all(&frame);
        }
        let orders = OneWayLink::open()?;
        send(&self.stream, &frame, &[orders.reader.as_raw_fd()])?;
        shutdown(self.stream.as_raw_fd(), Shutdown::Write)?;
        self.orders = Some(orders.writer.into());
        Ok(())
    }

    /// As above, without the link for orders.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn attach_without_link(&mut self, options: &AgentOptions) -> io::Result<()> {
        self.stream.write_all(&attach_frame(options))
    }

    /// Sends the launcher a descriptor by the connection.
    ///
    /// # Errors
    /// It is shut down for writing.
    pub fn send_descriptor(&self, fd: &impl AsRawFd) -> io::Result<usize> {
        send(&self.stream, b"x", &[fd.as_raw_fd()])
    }

    fn order(&mut self, order: &LauncherCommand) -> io::Result<()> {
        match &mut self.orders {
            Some(orders) => frame::write(orders, order),
            None => frame::write(&mut self.stream, order),
        }
    }

    /// The launcher's next message; none if it closes the connection first.
    fn next(&mut self) -> Option<LauncherEvent> {
        loop {
            if let Ok(Some(message)) = self.input.take() {
                if let LauncherEvent::StepChannel(attempt, step) = &message {
                    let channel = UnixStream::from(self.received.pop_front()?);
                    if let Some(streams) = self.streams.remove(&(attempt.job.0, step.0)) {
                        streams.send(&channel);
                    }
                    self.channels.insert((attempt.job.0, step.0), channel);
                }
                return Some(message);
            }
            let mut chunk = [0; 4096];
            match receive(&self.stream, &mut chunk, &mut self.received) {
                Ok(n) if n > 0 => self.input.push(&chunk[..n]),
                _ => return None,
            }
        }
    }

    /// The launcher's next message that has this in it; none if it closes the connection first.
    pub fn answer(&mut self, wanted: &str) -> Option<String> {
        loop {
            let text = format!("{:?}", self.next()?);
            if text.contains(wanted) {
                return Some(text);
            }
        }
    }

    /// Asks for a key; gives it.
    pub fn open_session(&mut self) -> Option<Vec<u8>> {
        self.order(&LauncherCommand::OpenSession).ok()?;
        loop {
            if let LauncherEvent::SessionKey(key) = self.next()? {
                return Some(key.into());
            }
        }
    }

    /// Says that a controller with this key has answered.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn begin_session(&mut self, controller: &[u8]) -> io::Result<()> {
        self.order(&LauncherCommand::BeginSession(controller.to_vec().into()))
    }

    /// Passes orders on that a controller has sealed.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn pass_on(&mut self, orders: &[u8], seal: &[u8]) -> io::Result<()> {
        self.order(&LauncherCommand::Sealed {
            orders: orders.to_vec().into(),
            seal: seal.to_vec().into(),
        })
    }

    /// Starts a step. Its streams are sent when the launcher answers that the daemon is there.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn start_step(&mut self, lie: &StepLie) -> io::Result<LiarStep> {
        let (given, streams) = given()?;
        let order = lie.order();
        match order.direct {
            true => drop(self.streams.insert((lie.job, lie.step), streams)),
            // Nobody else has them.
            false => drop(streams),
        }
        self.order(&LauncherCommand::StartStep(Box::new(order)))?;
        Ok(given)
    }

    /// Gives the daemon that was started with a step of the job another one, once the one before has ended.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn give_step(&self, started_with: u32, lie: &StepLie) -> io::Result<LiarStep> {
        let next = NextStep {
            order: Box::new(lie.order()),
            kill_wait_ms: 1000,
            result: lie.result.clone(),
            kept: Vec::new(),
        };
        let (given, streams) = given()?;
        let daemon = self.channels.get(&(lie.job, started_with));
        let mut daemon = daemon.ok_or(io::ErrorKind::NotConnected)?;
        daemon.set_read_timeout(Some(PATIENCE))?;
        while !matches!(frame::read(&mut daemon)?, StepdEvent::StepEnded(..)) {}
        send(daemon, &next.as_command(), &streams.numbers())?;
        Ok(given)
    }

    /// Says that a process has a step now, and has it ended and signalled.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn end_process(&mut self, job: u64, step: u32, pid: i32) -> io::Result<()> {
        let (attempt, step) = (attempt_of(job), StepNo(step));
        self.order(&LauncherCommand::StepAssigned { attempt, step, pid })?;
        self.order(&LauncherCommand::EndStep { attempt, step })?;
        let signal = libc::SIGKILL;
        self.order(&LauncherCommand::SignalStep {
            attempt,
            step,
            signal,
        })?;
        self.order(&LauncherCommand::ReleaseStepd { attempt, pid })
    }

    /// Makes the launcher keep an entry of this size for a job, under this number.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn keep(&mut self, job: u64, key: u32, bytes: usize) -> io::Result<()> {
        self.order(&LauncherCommand::Keep {
            attempt: attempt_of(job),
            key,
            bytes: vec![0; bytes].into(),
        })
    }

    /// Makes the launcher write a line to the standard error of a job's script.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn notify(&mut self, job: u64, text: &str) -> io::Result<()> {
        self.order(&LauncherCommand::PrintLine {
            attempt: attempt_of(job),
            text: text.to_owned(),
            step: None,
            kill: false,
        })
    }

    /// Makes the launcher forget a job.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn forget(&mut self, job: u64) -> io::Result<()> {
        self.order(&LauncherCommand::Forget(attempt_of(job)))
    }

    /// Asks for the processes of a job.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn inspect(&mut self, job: u64) -> io::Result<()> {
        self.order(&LauncherCommand::Inspect {
            job: JobId(job),
            tag: 7,
        })
    }

    /// Says what only root may: that the launcher is to kill all and end.
    ///
    /// # Errors
    /// The launcher is gone.
    pub fn stop(&mut self) -> io::Result<()> {
        self.order(&LauncherCommand::Stop { kill: true })
    }
}
