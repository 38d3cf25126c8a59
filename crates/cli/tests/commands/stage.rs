//! Stand-ins for controller, agent and step daemons, and a directory to run a command in.

use muster_model::command::{Reply, UserCommand};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::job::{
    AfterCompleting, Allocation, ArrayRole, ExitStatus, Hold, Job, JobState, NodeShare, Reason,
};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client::{AllocationInfo, Request, RequestBody, Response};
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated, StepNode, ToStepd};
use muster_proto::{PROTOCOL, frame};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A directory with a configuration, and what was asked of the stand-ins.
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    pub(crate) requests: Arc<Mutex<Vec<RequestBody>>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What a command left behind.
pub(crate) struct Seen {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("muster-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let conf = format!(
            "ClusterName=peer\nSlurmctldHost=vm\nSlurmctldPort=7100\nSlurmctldPidFile={}\n",
            dir.join("ctld.pid").display()
        );
        std::fs::write(dir.join("slurm.conf"), conf).unwrap();
        Stage {
            dir,
            requests: Arc::default(),
        }
    }

    /// Starts a controller that answers each request with what `answer` says.
    pub(crate) fn controller(
        &self,
        answer: impl Fn(&RequestBody) -> Vec<Response> + Send + Sync + 'static,
    ) {
        let socket = self.dir.join("muster-ctld.7100");
        std::fs::create_dir(&socket).unwrap();
        let listener = UnixListener::bind(socket.join("socket")).unwrap();
        let requests = self.requests.clone();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, requests, answer) =
                    (stream.unwrap(), requests.clone(), answer.clone());
                std::thread::spawn(move || {
                    while let Ok(request) = frame::read::<Request>(&mut stream) {
                        let responses = answer(&request.body);
                        requests.lock().unwrap().push(request.body);
                        for response in responses {
                            let _ = frame::write(&mut stream, &response);
                        }
                    }
                });
            }
        });
    }

    /// A controller that accepts every job as number 5 and starts it at once on the named nodes.
    pub(crate) fn willing_controller(&self, nodes: &'static [&'static str]) {
        let agent = format!("unix:{}", self.dir.join("agent.sock").display());
        let spec: Mutex<JobSpec> = Mutex::default();
        self.controller(move |request| match request {
            RequestBody::Command(command) => {
                let reply = match &**command {
                    UserCommand::Submit { spec: asked, .. } => {
                        *spec.lock().unwrap() = (**asked).clone();
                        Reply::Submitted {
                            id: JobId(5),
                            warnings: Vec::new(),
                            lines: Vec::new(),
                            name: None,
                        }
                    }
                    _ => Reply::Done {
                        changed: 1,
                        refused: Vec::new(),
                    },
                };
                vec![Response::Reply(Box::new(reply))]
            }
            RequestBody::Hold(_) => vec![Response::Held],
            RequestBody::WaitStarted(_) | RequestBody::Query(_) => {
                let spec = spec.lock().unwrap().clone();
                vec![Response::JobStarted(Box::new(allocation(
                    spec, nodes, &agent,
                )))]
            }
            RequestBody::WaitEnded(job) => vec![Response::JobEnded {
                job: *job,
                state: JobState::Failed,
                exit: ExitStatus { code: 3, signal: 0 },
            }],
            _ => Vec::new(),
        });
    }

    /// Starts an agent that makes every step, after the replies `before`, with one step daemon for each node;
    /// `play` is what the daemon of a node does.
    pub(crate) fn agent(
        &self,
        before: Vec<AgentReply>,
        nodes: Vec<StepNode>,
        play: impl Fn(&str, &mut UnixStream) + Send + Sync + 'static,
    ) {
        let listener = UnixListener::bind(self.dir.join("agent.sock")).unwrap();
        let play = Arc::new(play);
        let mut placed = nodes;
        for node in &mut placed {
            let path = self.dir.join(format!("stepd.{}", node.name));
            node.address = format!("unix:{}", path.display());
            let (daemon, play, name) = (
                UnixListener::bind(&path).unwrap(),
                play.clone(),
                node.name.clone(),
            );
            std::thread::spawn(move || {
                let (mut stream, _) = daemon.accept().unwrap();
                let hello: ToStepd = frame::read(&mut stream).unwrap();
                let ToStepd::Hello(key, Some(greeting)) = hello else {
                    panic!("{hello:?}");
                };
                assert_eq!(*key, b"key".to_vec());
                assert_eq!(greeting.protocol, PROTOCOL);
                play(&name, &mut stream);
            });
        }
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let AgentRequest::Greeting(_) = frame::read(&mut stream).unwrap() else {
                panic!("srun says first which version it speaks");
            };
            let AgentRequest::Create(_) = frame::read(&mut stream).unwrap() else {
                panic!("srun asks for a step first");
            };
            for reply in before {
                frame::write(&mut stream, &reply).unwrap();
            }
            let created = StepCreated {
                step: StepNo(0),
                nodes: placed,
                key: b"key".to_vec().into(),
                hostlist: "n[1-2]".to_owned(),
                mesh_addresses: Vec::new(),
                width: 0,
                direct: false,
                cpu_bind: String::new(),
            };
            frame::write(&mut stream, &AgentReply::Created(Box::new(created))).unwrap();
            // Held open until srun goes.
            let _ = frame::read::<AgentRequest>(&mut stream);
        });
    }

    fn prepare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-command"));
        command
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/")
            .env("TZ", "UTC")
            .env("SLURM_CONF", self.dir.join("slurm.conf"));
        command
    }

    /// Runs a command without input.
    pub(crate) fn run(&self, args: &[&str]) -> Seen {
        self.run_with(args, &[], "")
    }

    /// Runs a command with more variables and with input.
    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)], input: &str) -> Seen {
        use std::io::Write as _;
        let mut child = self
            .prepare(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        seen(child.wait_with_output().unwrap())
    }

    /// Runs a command as another user, which only root can.
    pub(crate) fn run_as(&self, uid: u32, args: &[&str], env: &[(&str, &str)]) -> Seen {
        let mut command = self.prepare(args);
        command.envs(env.iter().copied()).stdin(Stdio::null());
        seen(command.uid(uid).gid(uid).output().unwrap())
    }

    /// The one job that was submitted.
    pub(crate) fn submitted(&self) -> JobSpec {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .find_map(|r| match r {
                RequestBody::Command(c) => match &**c {
                    UserCommand::Submit { spec, .. } => Some((**spec).clone()),
                    _ => None,
                },
                _ => None,
            })
            .expect("a job was submitted")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap()
    }
}

fn seen(output: Output) -> Seen {
    Seen {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap_or(-1),
    }
}

/// A node of a step.
pub(crate) fn node(name: &str, tasks: &[u32]) -> StepNode {
    StepNode {
        name: name.to_owned(),
        address: String::new(),
        tasks: tasks.to_vec(),
    }
}

/// Says something as a step daemon.
pub(crate) fn send_messages(stream: &mut UnixStream, messages: &[FromStepd]) {
    for message in messages {
        frame::write(stream, message).unwrap();
    }
}

pub(crate) fn out(task: u32, text: &str) -> FromStepd {
    FromStepd::Stdout {
        task,
        bytes: text.as_bytes().to_vec().into(),
    }
}

pub(crate) fn exited(task: u32, code: u32, signal: u32) -> FromStepd {
    FromStepd::Exited {
        task,
        exit: ExitStatus { code, signal },
        oom: false,
    }
}

fn allocation(spec: JobSpec, nodes: &[&str], agent: &str) -> AllocationInfo {
    let shares = nodes.iter().zip(0..).map(|(name, at)| NodeShare {
        node: NodeIdx(at),
        name: (*name).to_owned(),
        cpus: CpuSet::first(2),
        memory_mib: 0,
        tasks: 1,
        gres: Vec::new(),
    });
    let alloc = Allocation {
        reservation: None,
        end_by: None,
        billing_milli: 0,
        billing_units_milli: None,
        cpus_counted: None,
        mcs_label: None,
        usage_factor_millionths: None,
        backfilled: false,
        sharers: 0,
        only_user: None,
        licenses: Vec::new(),
        nodes: shares.collect(),
        partition: "batch".to_owned(),
        exclusive: false,
        hostlist: nodes.join(","),
        ntasks: u32::try_from(nodes.len()).unwrap(),
    };
    AllocationInfo {
        job: running(spec, alloc),
        array: None,
        addresses: vec![agent.to_owned(); nodes.len()],
        components: Vec::new(),
        key: b"job".to_vec().into(),
        cluster: "peer".to_owned(),
    }
}

fn running(spec: JobSpec, alloc: Allocation) -> Job {
    Job {
        end_by: None,
        predicted_s: None,
        priority_fixed: false,
        priority_least: 0,
        het: None,
        preempted: None,
        cpus_released_by_preemption: false,
        resumed: false,
        power_up: None,
        gang_slice_ends: None,
        stopped_by_calendar: false,
        id: JobId(5),
        spec: Arc::new(spec),
        array: ArrayRole::None,
        state: JobState::Running,
        completing: false,
        reason: Reason::None,
        hold: Hold::None,
        priority: 1,
        submit_time: Timestamp(0),
        eligible_time: None,
        begin_at: None,
        start_time: Some(Timestamp(0)),
        end_time: None,
        suspend_time: None,
        suspended_ms: 0,
        restarts: 0,
        attempt: Attempt(1),
        alloc: Some(Arc::new(alloc)),
        resize_time: None,
        resizes: 0,
        accrual: None,
        nodes_held: CpuSet::default(),
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        time_limit: TimeLimit::Unlimited,
        waiting_on: Vec::new(),
        steps: Vec::new(),
        after_completing: AfterCompleting::End,
        cancelled_by: None,
        partition: "batch".to_owned(),
        warned: false,
        term_time: None,
        requeueable: true,
        special_exit: false,
        configuring: false,
        last_sched_eval: None,
        expected_start: None,
        switch_wait_since: None,
        next_step: 0,
        unreported_steps: muster_model::index_set::IndexSet::default(),
        reason_detail: None,
    }
}
