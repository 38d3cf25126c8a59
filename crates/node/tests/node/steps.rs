//! Steps, with the tests in the place of srun.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, PATIENCE, env_of, fifo};
use super::versions::hello;
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, JobId, StepNo};
use muster_model::job::{ExitStatus, JobState, StepEnd};
use muster_model::spec::{ExecContext, JobKind, StdioSpec};
use muster_model::time::TimeLimit;
use muster_proto::frame;
use muster_proto::node::{Order, Report};
use muster_proto::step::{
    AgentReply, AgentRequest, FromStepd, Process, StdinTask, StepCreated, StepSpec, TaskNumbers,
    ToStepd,
};
use muster_trust::{JobKeyUse, derive_job_key};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

pub const TESTS: &[Test] = &[
    ("step_over_two_agents_with_stdio", two_agents),
    ("srun_is_ahead_of_the_controller", ahead),
    ("steps_run_beside_each_other_or_wait", side_by_side),
    ("step_files_and_missing_program", files),
    ("step_on_a_terminal", terminal),
    ("multi_prog", multi_prog),
    ("step_ends_with_srun", srun_gone),
    ("step_time_limit_and_leftovers", time_limit),
    ("step_gets_another_limit", new_limit),
    ("step_survives_the_agent", survives),
    ("steps_end_with_the_job", job_ends),
    ("processes_are_listed", listed),
    ("task_prolog_and_epilog", around),
    ("step_survives_the_shim", survives_shim),
    ("step_hears_a_new_shim", hears_new_shim),
];

/// A job without a script, on these nodes.
pub fn allocate(id: u64, dir: &Dir, nodes: &mut [&mut Node], cpus: u32) {
    let mut job = JobMaker::new(id, &dir.0, "");
    job.spec.kind = JobKind::Allocation;
    job.cpus = cpus;
    let shared: Vec<&Node> = nodes.iter().map(|n| &**n).collect();
    let (blobs, grants) = job.grants(&shared);
    for (node, grant) in nodes.iter_mut().zip(grants) {
        node.order(blobs.clone(), vec![Order::Launch(Box::new(grant))]);
    }
}

pub fn spec(job: u64, dir: &Dir, argv: &[&str]) -> StepSpec {
    StepSpec {
        job: JobId(job),
        name: argv.first().unwrap_or(&"step").to_string(),
        argv: argv.iter().map(|a| a.to_string()).collect(),
        context: ExecContext {
            environment: ["PATH=/usr/bin:/bin", "SLURM_PROCID=stale"]
                .iter()
                .collect(),
            umask: 0o022,
            soft_limits: Vec::new(),
        },
        work_dir: dir.0.to_string_lossy().into_owned(),
        ..StepSpec::default()
    }
}

/// What srun would be.
pub struct Srun {
    agent: UnixStream,
    pub created: Option<StepCreated>,
    stepds: Vec<UnixStream>,
}

/// What came of a step: streams and exits by task, and messages.
#[derive(Debug, Default)]
pub struct Outcome {
    pub out: BTreeMap<u32, String>,
    pub err: BTreeMap<u32, String>,
    pub exits: BTreeMap<u32, ExitStatus>,
    pub messages: Vec<String>,
}

impl Srun {
    pub fn ask(node: &Node, spec: StepSpec) -> Srun {
        // The order that made the job may still be on its way; the agent is asked until it knows.
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let probe = AgentRequest::Inspect { job: spec.job };
            let mut other = connect(node);
            frame::write(&mut other, &probe).unwrap();
            match frame::read(&mut other).unwrap() {
                AgentReply::Processes(_) => return Srun::ask_once(node, spec),
                AgentReply::Refused(_) if std::time::Instant::now() < until => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn ask_once(node: &Node, spec: StepSpec) -> Srun {
        let mut agent = connect(node);
        frame::write(&mut agent, &AgentRequest::Create(Box::new(spec))).unwrap();
        Srun {
            agent,
            created: None,
            stepds: Vec::new(),
        }
    }

    pub fn reply(&mut self) -> AgentReply {
        frame::read(&mut self.agent).unwrap()
    }

    pub fn created(mut self) -> Srun {
        loop {
            match self.reply() {
                AgentReply::Queued(_) => {}
                AgentReply::Created(created) => {
                    self.created = Some(*created);
                    return self;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn connect(mut self) -> Srun {
        self = self.created();
        let created = self.created.as_ref().unwrap();
        for node in &created.nodes {
            let path = node.address.strip_prefix("unix:").unwrap();
            let mut stepd = UnixStream::connect(path).unwrap();
            stepd.set_read_timeout(Some(PATIENCE)).unwrap();
            frame::write(&mut stepd, &hello(&created.key)).unwrap();
            self.stepds.push(stepd);
        }
        self
    }

    pub fn send(&mut self, message: &ToStepd) {
        for stepd in &mut self.stepds {
            frame::write(stepd, message).unwrap();
        }
    }

    /// Waits until all tasks run.
    pub fn started(&mut self) -> Vec<u32> {
        let mut pids = Vec::new();
        for stepd in &mut self.stepds {
            match frame::read(stepd).unwrap() {
                FromStepd::Started(p) => pids.extend(p),
                other => panic!("{other:?}"),
            }
        }
        pids
    }

    pub fn finish(mut self) -> Outcome {
        let mut o = Outcome::default();
        for stepd in &mut self.stepds {
            loop {
                match frame::read(stepd).expect("closed before Closed") {
                    FromStepd::Started(_) => {}
                    FromStepd::Stdout { task, bytes } => {
                        o.out
                            .entry(task)
                            .or_default()
                            .push_str(std::str::from_utf8(&bytes).unwrap());
                    }
                    FromStepd::Stderr { task, bytes } => {
                        o.err
                            .entry(task)
                            .or_default()
                            .push_str(std::str::from_utf8(&bytes).unwrap());
                    }
                    FromStepd::NodeMessage(text) => o.messages.push(text),
                    FromStepd::Exited { task, exit, .. } => {
                        o.exits.insert(task, exit);
                    }
                    FromStepd::NodeTasksEnded => break,
                    // Only steps of MPI programs say these.
                    FromStepd::TaskJoinedMpi | FromStepd::TaskFailed { .. } => {}
                    other => panic!("the test's steps are no trees: {other:?}"),
                }
            }
        }
        o
    }
}

fn connect(node: &Node) -> UnixStream {
    let stream = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn step_end(node: &mut Node, job: u64, step: u32) -> StepEnd {
    let report = node.report(|r| {
        r.job == JobId(job)
            && matches!(&r.report, Report::StepEnded { step: s, .. } if *s == StepNo(step))
    });
    match report.report {
        Report::StepEnded { end, .. } => *end,
        other => panic!("{other:?}"),
    }
}

fn two_agents() {
    let dir = Dir::new("two");
    let mut n1 = Node::start(&dir, "n1");
    let mut n2 = Node::start(&dir, "n2");
    allocate(10, &dir, &mut [&mut n1, &mut n2], 2);
    let script = "cat; env; echo err $SLURM_PROCID >&2; exit $SLURM_PROCID";
    let mut s = spec(10, &dir, &["sh", "-c", script]);
    s.ntasks = Some(4);
    s.extra_env = vec![("SLURM_UMASK".to_owned(), "0022".to_owned())];
    let mut srun = Srun::ask(&n1, s).connect();
    let created = srun.created.clone().unwrap();
    assert_eq!(created.hostlist, "n[1-2]");
    assert_eq!(created.nodes[1].tasks, [2, 3]);
    let input = "x".repeat(200_000);
    for chunk in input.as_bytes().chunks(50_000) {
        srun.send(&ToStepd::Stdin {
            task: None,
            bytes: chunk.to_vec().into(),
        });
    }
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: Vec::new().into(),
    });
    let o = srun.finish();
    for task in 0..4 {
        assert_eq!(
            o.exits[&task],
            ExitStatus {
                code: task,
                signal: 0
            }
        );
        assert_eq!(o.err[&task], format!("err {task}\n"));
        let env = o.out[&task]
            .strip_prefix(input.as_str())
            .expect("the whole input");
        let env = env_of(env);
        let node = task / 2;
        for (name, value) in [
            ("SLURM_PROCID", task.to_string()),
            ("SLURM_LOCALID", (task % 2).to_string()),
            ("SLURM_NODEID", node.to_string()),
            ("SLURMD_NODENAME", format!("n{}", node + 1)),
            ("SLURM_GTIDS", ["0,1", "2,3"][node as usize].to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_STEP_NODELIST", "n[1-2]".to_owned()),
            ("SLURM_TASKS_PER_NODE", "2(x2)".to_owned()),
            ("SLURM_NTASKS", "4".to_owned()),
            ("SLURM_UMASK", "0022".to_owned()),
        ] {
            assert_eq!(env[name], value, "{name} of task {task}");
        }
    }
    let started = n1.report(|r| matches!(r.report, Report::StepStarted(_)));
    match started.report {
        Report::StepStarted(step) => assert_eq!((step.nodes, step.tasks, step.cpus), (2, 4, 4)),
        other => panic!("{other:?}"),
    }
    let end = step_end(&mut n1, 10, 0);
    assert_eq!(end.exit, ExitStatus { code: 3, signal: 0 });
    assert_eq!((end.state, end.usage.tasks), (JobState::Failed, 4));
    for node in [&mut n1, &mut n2] {
        node.terminate(10, TerminateReason::Finished);
        node.released(10);
    }
}

/// srun hears of its allocation when the node does, and may be the first to ask.
fn ahead() {
    let dir = Dir::new("ahead");
    let mut node = Node::start(&dir, "n1");
    let mut with_key = spec(1, &dir, &["true"]);
    with_key.key = Some(derive_job_key(&[9; 16], JobKeyUse::Owner).into());
    let early = Srun::ask_once(&node, with_key.clone());
    let mut number = connect(&node);
    let ask = AgentRequest::TakeStepNumber {
        job: with_key.job,
        key: with_key.key,
    };
    frame::write(&mut number, &ask).unwrap();
    // An answer to a later request proves that the early one was heard.
    match Srun::ask_once(&node, spec(99, &dir, &["true"])).reply() {
        AgentReply::Refused(_) => {}
        other => panic!("{other:?}"),
    }
    allocate(1, &dir, &mut [&mut node], 1);
    match frame::read(&mut number).unwrap() {
        AgentReply::StepNumber { .. } => {}
        other => panic!("{other:?}"),
    }
    let outcome = early.connect().finish();
    assert_eq!(outcome.exits[&0], ExitStatus::default());
}

fn side_by_side() {
    let dir = Dir::new("side");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let exact = || StepSpec {
        ntasks: Some(1),
        cpus_per_task: Some(1),
        exact: true,
        ..spec(1, &dir, &["sh", "-c", "read x"])
    };
    let first = Srun::ask(&node, exact()).connect();
    let mut second = Srun::ask(&node, exact()).connect();
    let mut third = Srun::ask(&node, exact());
    // Both CPUs are held: the third waits, is told so, and one that shares does not wait.
    match third.reply() {
        AgentReply::Queued(text) => assert_eq!(text, "Requested nodes are busy"),
        other => panic!("{other:?}"),
    }
    let overlap = StepSpec {
        overlap: true,
        ntasks: Some(2),
        ..spec(1, &dir, &["true"])
    };
    assert_eq!(Srun::ask(&node, overlap).connect().finish().exits.len(), 2);
    let now_or_never = StepSpec {
        immediate: true,
        ..exact()
    };
    match Srun::ask_once(&node, now_or_never).reply() {
        AgentReply::Refused(_) => {}
        // It stands behind the third, which is no answer yet.
        AgentReply::Queued(_) => {}
        other => panic!("{other:?}"),
    }
    let line = ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    };
    second.send(&line);
    assert_eq!(second.finish().exits[&0], ExitStatus::default());
    let mut third = third.connect();
    third.send(&line);
    assert_eq!(third.finish().exits[&0], ExitStatus::default());
    let mut first = first;
    first.send(&line);
    first.finish();
    let too_many = StepSpec {
        ntasks: Some(3),
        ..spec(1, &dir, &["true"])
    };
    match Srun::ask_once(&node, too_many).reply() {
        AgentReply::Refused(refusal) => assert!(refusal.detail.contains("do not fit"), "{refusal}"),
        other => panic!("{other:?}"),
    }
}

fn files() {
    let dir = Dir::new("files");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let s = StepSpec {
        ntasks: Some(2),
        stdio: StdioSpec {
            stdout: Some("out_%j_%s_%t".to_owned()),
            ..StdioSpec::default()
        },
        ..spec(1, &dir, &["sh", "-c", "echo out; echo err >&2"])
    };
    let o = Srun::ask(&node, s).connect().finish();
    // Of standard error srun gets the end: errors before the files are open would come by it.
    let is_silent = o.err.values().all(String::is_empty);
    assert!(o.out.is_empty() && is_silent, "{o:?}");
    assert_eq!(dir.text("out_1_0_0"), "out\nerr\n");
    assert_eq!(dir.text("out_1_0_1"), "out\nerr\n");
    // A task whose file cannot be opened fails alone.
    std::fs::write(dir.path("d0"), "").unwrap();
    let s = StepSpec {
        ntasks: Some(2),
        stdio: StdioSpec {
            stdout: Some("d%t/out".to_owned()),
            ..StdioSpec::default()
        },
        ..spec(1, &dir, &["echo", "out"])
    };
    let o = Srun::ask(&node, s).connect().finish();
    assert_eq!(o.exits[&0], ExitStatus { code: 1, signal: 0 });
    assert_eq!(o.exits[&1], ExitStatus::default());
    assert_eq!(dir.text("d1/out"), "out\n");
    let o = Srun::ask(&node, spec(1, &dir, &["/nosuch/program"]))
        .connect()
        .finish();
    assert_eq!(o.exits[&0], ExitStatus { code: 2, signal: 0 });
    assert_eq!(
        o.err[&0],
        "slurmstepd: error: execve(): /nosuch/program: No such file or directory\n"
    );
}

fn terminal() {
    let dir = Dir::new("pty");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let s = StepSpec {
        pty: Some((33, 77)),
        ..spec(
            1,
            &dir,
            &[
                "sh",
                "-c",
                "tty; stty size; read x; echo got $x; stty size; cat",
            ],
        )
    };
    let mut srun = Srun::ask(&node, s).connect();
    srun.started();
    srun.send(&ToStepd::SetWindowSize(44, 88));
    for bytes in [&b"hello\n"[..], b""] {
        srun.send(&ToStepd::Stdin {
            task: None,
            bytes: bytes.to_vec().into(),
        });
    }
    let o = srun.finish();
    assert_eq!(o.exits[&0], ExitStatus::default());
    let out = &o.out[&0];
    assert!(out.contains("/dev/pts/"), "{out}");
    assert!(out.contains("got hello\r\n44 88\r\n"), "{out}");
}

fn multi_prog() {
    let dir = Dir::new("mp");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 4);
    let s = StepSpec {
        ntasks: Some(4),
        multi_prog: vec![
            ("0".to_owned(), "echo a%t".to_owned()),
            ("1-2".to_owned(), "echo b%t:%o".to_owned()),
        ],
        stdin_task: StdinTask::None,
        ..spec(1, &dir, &[])
    };
    let o = Srun::ask(&node, s).connect().finish();
    assert_eq!(o.out[&0], "a0\n");
    assert_eq!(o.out[&1], "b1:0\n");
    assert_eq!(o.out[&2], "b2:1\n");
    assert_eq!(o.exits[&3], ExitStatus { code: 1, signal: 0 });
    assert!(o.err[&3].contains("no program is given for task 3"));
}

fn srun_gone() {
    let dir = Dir::new("gone");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let s = spec(
        1,
        &dir,
        &[
            "sh",
            "-c",
            "trap 'echo bye >bye; exit 9' TERM; while :; do sleep 60 & wait $!; done",
        ],
    );
    let mut srun = Srun::ask(&node, s).connect();
    srun.started();
    // The shell must have set its trap before it is told to end.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(inspect(&node, 1)[0].pid).unwrap());
    wait_for_child(pid);
    drop(srun);
    let end = step_end(&mut node, 1, 0);
    assert_eq!(end.exit, ExitStatus { code: 9, signal: 0 });
    assert_eq!(dir.text("bye"), "bye\n");
    // One that hangs up before it ever came to the daemon.
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).created();
    drop(srun);
    assert_eq!(step_end(&mut node, 1, 1).state, JobState::Cancelled);
}

fn wait_for_child(pid: nix::unistd::Pid) {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let until = std::time::Instant::now() + PATIENCE;
    while std::fs::read_to_string(&path).unwrap().is_empty() {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
}

/// A process: its number, its step, and for a task its numbers.
/// The only node's task of this number.
fn task(number: u32) -> TaskNumbers {
    TaskNumbers {
        local: number,
        global: number,
    }
}

fn inspect(node: &Node, job: u64) -> Vec<Process> {
    let mut stream = connect(node);
    frame::write(&mut stream, &AgentRequest::Inspect { job: JobId(job) }).unwrap();
    match frame::read(&mut stream).unwrap() {
        AgentReply::Processes(list) => list,
        other => panic!("{other:?}"),
    }
}

fn time_limit() {
    let dir = Dir::new("limit");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let s = StepSpec {
        time_limit: Some(TimeLimit::Minutes(0)),
        ..spec(1, &dir, &["sleep", "600"])
    };
    let o = Srun::ask(&node, s).connect().finish();
    assert_eq!(
        o.exits[&0],
        ExitStatus {
            code: 0,
            signal: 15
        }
    );
    let line = &o.messages[0];
    assert!(
        line.starts_with("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT ")
            && line.ends_with(" DUE TO TIME LIMIT ***"),
        "{line}"
    );
    assert_eq!(step_end(&mut node, 1, 0).state, JobState::Timeout);
    // A process that a task leaves behind with its output open does not hold the step up.
    let s = spec(1, &dir, &["sh", "-c", "setsid sleep 600 & echo done"]);
    let o = Srun::ask(&node, s).connect().finish();
    assert_eq!(o.out[&0], "done\n");
    assert_eq!(step_end(&mut node, 1, 1).state, JobState::Completed);
    assert!(inspect(&node, 1).is_empty());
}

/// A limit that is set while the step runs counts from its start; one that is taken away does not end it.
fn new_limit() {
    let dir = Dir::new("newlimit");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let limited = StepSpec {
        time_limit: Some(TimeLimit::Minutes(1)),
        ..spec(1, &dir, &["sh", "-c", "read x; echo $x"])
    };
    let mut srun = Srun::ask(&node, limited).connect();
    srun.started();
    let limit = |limit| Order::StepLimit {
        job: JobId(1),
        attempt: Attempt(1),
        step: StepNo(0),
        limit,
    };
    node.order(Vec::new(), vec![limit(TimeLimit::Unlimited)]);
    node.order(Vec::new(), vec![limit(TimeLimit::Minutes(0))]);
    let o = srun.finish();
    assert_eq!(o.exits[&0].signal, 15, "{o:?}");
    assert!(o.messages[0].ends_with(" DUE TO TIME LIMIT ***"), "{o:?}");
    assert_eq!(step_end(&mut node, 1, 0).state, JobState::Timeout);
}

fn survives() {
    let dir = Dir::new("survive");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(
        &node,
        spec(1, &dir, &["sh", "-c", "read x; echo $x; exit 5"]),
    )
    .connect();
    srun.started();
    node.kill_agent();
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"still here\n".to_vec().into(),
    });
    let o = srun.finish();
    assert_eq!(o.out[&0], "still here\n");
    node.start_agent();
    node.accept();
    let end = step_end(&mut node, 1, 0);
    assert_eq!(end.exit, ExitStatus { code: 5, signal: 0 });
    // Numbers go on where they were.
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).connect();
    assert_eq!(srun.created.as_ref().unwrap().step, StepNo(1));
    srun.finish();
}

fn job_ends() {
    let dir = Dir::new("jobend");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sleep", "600"])).connect();
    srun.started();
    let mut waiting = Srun::ask(&node, spec(1, &dir, &["true"]));
    node.terminate(1, TerminateReason::TimeLimit);
    let o = srun.finish();
    assert_eq!(
        o.exits[&0],
        ExitStatus {
            code: 0,
            signal: 15
        }
    );
    assert!(
        o.messages[0].contains("*** STEP 1.0 ON n1 CANCELLED AT "),
        "{o:?}"
    );
    loop {
        match waiting.reply() {
            AgentReply::Queued(_) => {}
            AgentReply::Refused(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(step_end(&mut node, 1, 0).state, JobState::Cancelled);
    node.released(1);
}

fn listed() {
    let dir = Dir::new("pids");
    let mut node = Node::start(&dir, "n1");
    let up = dir.path("up");
    fifo(&up);
    let mut job = JobMaker::new(1, &dir.0, "#!/bin/sh\necho up >up\nsleep 600 &\nwait\n");
    job.cpus = 2;
    node.run(&job);
    std::fs::read_to_string(&up).unwrap();
    // A process that executes another program just now has no environment yet to know it by.
    let mut s = spec(1, &dir, &["sh", "-c", "sleep 600 & echo up; wait"]);
    s.ntasks = Some(2);
    let mut srun = Srun::ask(&node, s).connect();
    let pids = srun.started();
    for _ in 0..2 {
        let up: FromStepd = frame::read(&mut srun.stepds[0]).unwrap();
        assert!(matches!(up, FromStepd::Stdout { .. }));
    }
    let list = inspect(&node, 1);
    for (pid, number) in pids.iter().zip(0..) {
        let process = Process {
            pid: *pid,
            step: StepNo(0),
            task: Some(task(number)),
        };
        assert!(list.contains(&process), "{list:?}");
    }
    let batch = list
        .iter()
        .filter(|p| p.step == StepNo::BATCH && p.task.is_some());
    assert_eq!(batch.count(), 1);
}

fn around() {
    let dir = Dir::new("around");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    for (name, text) in [
        (
            "pro",
            "#!/bin/sh\necho export FROM=prolog$SLURM_PROCID\necho unset GONE\necho print hello\n",
        ),
        ("epi", "#!/bin/sh\necho $SLURM_LOCALID >epilog\n"),
    ] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(dir.path(name), text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(name), mode).unwrap();
    }
    let file = |name: &str| Some(dir.path(name).to_string_lossy().into_owned());
    let mut s = spec(1, &dir, &["sh", "-c", "echo $FROM $GONE"]);
    s.context.environment.set(b"GONE", b"yes");
    s.task_prolog = file("pro");
    s.task_epilog = file("epi");
    let o = Srun::ask(&node, s).connect().finish();
    assert_eq!(o.out[&0], "hello\nprolog0\n");
    assert_eq!(dir.text("epilog"), "0\n");
    // Without its prolog a task does not run.
    std::fs::write(dir.path("pro"), "#!/bin/sh\nexit 3\n").unwrap();
    for (program, status) in [
        (file("pro"), 3),
        (file("nosuch"), 1),
        (Some("pro".to_owned()), 1),
    ] {
        let mut s = spec(1, &dir, &["sh", "-c", "echo ran"]);
        s.task_prolog = program;
        let o = Srun::ask(&node, s).connect().finish();
        assert_eq!(
            o.exits[&0],
            ExitStatus {
                code: status,
                signal: 0
            }
        );
        assert_eq!(o.out[&0], "");
    }
}

/// A daemon that lost its shim gets another limit, and tells of its end, by the next one.
fn hears_new_shim() {
    let dir = Dir::new("newshim");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x"])).connect();
    srun.started();
    another_shim(&mut node);
    let limit = Order::StepLimit {
        job: JobId(1),
        attempt: Attempt(1),
        step: StepNo(0),
        limit: TimeLimit::Minutes(0),
    };
    node.order(Vec::new(), vec![limit]);
    let o = srun.finish();
    assert!(o.messages[0].ends_with(" DUE TO TIME LIMIT ***"), "{o:?}");
    assert_eq!(step_end(&mut node, 1, 0).state, JobState::Timeout);
    // The daemon was of another shim's: the next step has one of this.
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).connect();
    assert_eq!(srun.finish().exits[&0], ExitStatus { code: 0, signal: 0 });
    assert_eq!(step_end(&mut node, 1, 1).exit.code, 0);
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// Kills the shim; a job that goes through shows that a new one is there.
pub fn another_shim(node: &mut Node) {
    let old = node.shim_pid();
    node.kill_shim();
    let dir = node.spool.parent().unwrap().to_owned();
    node.run(&JobMaker::new(2, &dir, "#!/bin/sh\n"));
    node.batch_exit(2);
    assert_ne!(node.shim_pid(), old);
}

fn survives_shim() {
    let dir = Dir::new("shimstep");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    srun.started();
    another_shim(&mut node);
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    assert_eq!(srun.finish().exits[&0], ExitStatus { code: 5, signal: 0 });
    let end = step_end(&mut node, 1, 0);
    assert_eq!((end.exit.code, end.usage.tasks), (5, 1));
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}
