//! What users have done to an agent, or to other users by it, and what comes of it.

use super::Test;
use super::attacker::{Attack, LATE, UID};
use super::cluster::{Dir, JobMaker, Node, PATIENCE, fifo};
use super::steps::{Srun, allocate, spec};
use muster_model::effect::TerminateReason;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Allocation, ExitStatus, StepEnd};
use muster_model::job_env::HetComponent;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobKind, JobSpec, MemoryAsk, Owner};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::frame;
use muster_proto::node::{NodeSettings, Order};
use muster_proto::step::{AgentReply, AgentRequest, HetStep, StepLaunch, StepSpec};
use muster_trust::{JobKeyUse, derive_job_key, prove_step_number};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("attack_script_directory", script_directory),
    ("attack_slow_close", slow_close),
    ("attack_requests_of_agents", requests_of_agents),
    ("attack_memory_of_tasks", memory_of_tasks),
    ("attack_step_numbers", step_numbers),
    ("attack_component_step_numbers", component_numbers),
    ("attack_step_count", step_count),
    ("attack_connections", connections),
    ("attack_connections_to_emulated_nodes", emulated),
    ("attack_unknown_jobs", unknown_jobs),
    ("a_panic_of_a_part_ends_the_agent", panic_of_a_part),
];

/// A job of the attacker.
fn own_job(id: u64, dir: &Dir, script: &str) -> JobMaker {
    let mut job = JobMaker::new(id, &dir.0, script);
    job.spec.owner = Owner {
        uid: UID,
        gid: UID,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    };
    job.spec.stdio.stdout = Some("/dev/null".to_owned());
    job
}

/// An allocation of the attacker, on one node.
fn own_allocation(id: u64, dir: &Dir, node: &mut Node, settings: impl FnOnce(&mut NodeSettings)) {
    let mut job = own_job(id, dir, "");
    job.spec.kind = JobKind::Allocation;
    job.cpus = 4;
    job.memory_mib = 1000;
    let mut changed = node.settings.clone();
    settings(&mut changed);
    let before = std::mem::replace(&mut node.settings, changed);
    node.configure();
    node.settings = before;
    node.run(&job);
}

fn socket(node: &Node) -> String {
    node.spool.join("noded.sock").to_string_lossy().into_owned()
}

fn ask(node: &Node, request: &AgentRequest) -> AgentReply {
    let mut agent = UnixStream::connect(socket(node)).unwrap();
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    frame::write(&mut agent, request).unwrap();
    frame::read(&mut agent).unwrap()
}

/// The answer to a request for a step; waits until the job is known.
fn create(node: &Node, spec: &StepSpec) -> AgentReply {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match ask(node, &AgentRequest::Create(Box::new(spec.clone()))) {
            AgentReply::Refused(r)
                if r.code == RefusalCode::JobNotHere && std::time::Instant::now() < until => {}
            reply => return reply,
        }
    }
}

fn given_number(reply: AgentReply) -> u32 {
    match reply {
        AgentReply::StepNumber { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

fn refusal(reply: AgentReply) -> RefusalCode {
    match reply {
        AgentReply::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

/// The agent is there, and answers root.
fn answers(node: &Node) {
    match ask(node, &AgentRequest::Inspect { job: JobId(99) }) {
        AgentReply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::InvalidJobId),
        other => panic!("{other:?}"),
    }
}

/// A job puts a link where the agent is to write its script the next time, which is after the agent was started again.
fn script_directory() {
    let dir = Dir::new("scriptlink");
    let secret = dir.path("secret");
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    let victim = secret.join("shadow");
    fs::write(&victim, "root's").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    for gate in ["planted", "go"] {
        fifo(&dir.path(gate));
        chown(dir.path(gate), Some(UID), None).unwrap();
    }
    let mut node = Node::start(&dir, "n1");
    let script = format!(
        "#!/bin/sh\n[ \"$SLURM_JOB_ID\" = 1 ] || exit 7\ncd \"$(dirname \"$0\")\" || exit 1\nrm -f next\n\
         ln -s {} next\necho > {1}/planted\nread x < {1}/go\nexit 7\n",
        victim.display(),
        dir.0.display()
    );
    let exit = ExitStatus { code: 7, signal: 0 };
    node.run(&own_job(1, &dir, &script));
    assert_eq!(dir.text("planted"), "\n");
    node.kill_agent();
    node.start_agent();
    node.accept();
    let mut second = own_job(2, &dir, &script);
    second.first_cpu = 1;
    node.run(&second);
    let second = node.batch_exit(2);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    let found = fs::metadata(&victim).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o600));
    assert_eq!(second, exit);
    fs::write(dir.path("go"), "x\n").unwrap();
    assert_eq!(node.batch_exit(1), exit);
    for found in fs::read_dir(node.spool.join("scripts")).unwrap().flatten() {
        assert_eq!(found.metadata().unwrap().uid(), 0, "{found:?}");
    }
}

/// Descriptors whose close takes long delay nobody else.
fn slow_close() {
    let dir = Dir::new("slowclose");
    let mut node = Node::start(&dir, "n1");
    let mut attack = Attack::start(&["linger", &socket(&node)]);
    assert_eq!(attack.line(), "sent");
    answers(&node);
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 3\n"));
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
    answers(&node);
}

/// The owner of a job may ask for steps, and nothing that agents ask each other: neither with srun's key nor with theirs.
fn requests_of_agents() {
    let dir = Dir::new("ofagents");
    let mut node = Node::start(&dir, "n1");
    own_allocation(1, &dir, &mut node, |_| ());
    let marker = dir.path("ran");
    let mut requests = Vec::new();
    let agents = vec![9; 16];
    for key in [agents.clone(), derive_job_key(&agents, JobKeyUse::Owner)] {
        let step = StepNo(5);
        let launch = StepLaunch {
            key: key.clone().into(),
            spec: spec(1, &dir, &["touch", &marker.to_string_lossy()]),
            step,
            step_key: vec![1; 16].into(),
            position: 0,
            tasks: vec![vec![0]],
            names: vec!["n1".to_owned()],
            cpus: (0..8).collect(),
            memory_mib: 1 << 20,
            gres: Vec::new(),
            lead: node.address(),
            width: 0,
            above: None,
        };
        requests.push(AgentRequest::StartStep(Box::new(launch), Vec::new()));
        requests.push(AgentRequest::SignalStep {
            job: JobId(1),
            key: key.clone().into(),
            step,
            signal: 9,
            below: vec!["unix:/tmp/noded.sock".to_owned()],
        });
        requests.push(AgentRequest::FindStep {
            job: JobId(1),
            key: key.clone().into(),
            step,
        });
        requests.push(AgentRequest::StepNodeEnded {
            job: JobId(1),
            key: key.into(),
            step,
            position: 0,
            end: Box::new(StepEnd::never_ran(Timestamp(1))),
            others: Vec::new(),
            onwards: false,
        });
    }
    // Root is not another agent by being root, and another agent that root has connected is not root.
    for request in &requests {
        assert_eq!(refusal(ask(&node, request)), RefusalCode::AccessDenied);
    }
    let serve = frame::encode(&AgentRequest::ServeNode("n2".to_owned(), None));
    let create = AgentRequest::Create(Box::new(spec(
        1,
        &dir,
        &["touch", &marker.to_string_lossy()],
    )));
    for request in [create, AgentRequest::Inspect { job: JobId(1) }] {
        let mut agent = UnixStream::connect(socket(&node)).unwrap();
        agent.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::Write::write_all(&mut agent, &serve).unwrap();
        frame::write(&mut agent, &request).unwrap();
        let reply = frame::read(&mut agent).unwrap();
        assert_eq!(refusal(reply), RefusalCode::AccessDenied);
    }
    // Of a job of somebody else.
    allocate(2, &dir, &mut [&mut node], 1);
    let mut foreign = spec(2, &dir, &["touch", &marker.to_string_lossy()]);
    foreign.key = Some(agents.clone().into());
    requests.push(AgentRequest::Create(Box::new(foreign)));
    let files: Vec<String> = requests
        .iter()
        .enumerate()
        .map(|(i, request)| {
            let file = dir.path(&format!("request{i}"));
            fs::write(&file, frame::encode(request)).unwrap();
            file.to_string_lossy().into_owned()
        })
        .collect();
    // The jobs are known then.
    let number = AgentRequest::TakeStepNumber {
        job: JobId(2),
        key: Some(derive_job_key(&agents, JobKeyUse::Owner).into()),
    };
    assert_eq!(given_number(ask(&node, &number)), 0);
    let socket = socket(&node);
    let args: Vec<&str> = ["requests", &socket]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    let mut attack = Attack::start(&args);
    for request in &requests {
        assert_eq!(attack.line(), "AccessDenied", "{request:?}");
    }
    assert!(!marker.exists());
    for job in [1, 2] {
        node.terminate(job, TerminateReason::Finished);
        node.released(job);
    }
}

/// Numbers whose product is nothing, or beyond all measure.
fn memory_of_tasks() {
    let dir = Dir::new("product");
    let mut node = Node::start(&dir, "n1");
    own_allocation(1, &dir, &mut node, |_| ());
    let pid = node.agent_pid();
    let step = |change: fn(&mut StepSpec)| {
        let mut spec = spec(1, &dir, &["true"]);
        change(&mut spec);
        spec
    };
    for spec in [
        step(|s| {
            s.memory = MemoryAsk::PerCpu(1 << 63);
            s.cpus_per_task = Some(2);
        }),
        step(|s| {
            s.overcommit = true;
            s.ntasks = Some(2_000_000_000);
        }),
        step(|s| {
            s.overcommit = true;
            s.ntasks = Some(513);
        }),
        step(|s| s.argv.clear()),
        step(|s| {
            s.ntasks = Some(1);
            s.min_nodes = Some(u32::MAX);
        }),
    ] {
        refusal(create(&node, &spec));
    }
    answers(&node);
    assert_eq!(node.agent_pid(), pid);
    let sound = step(|s| s.ntasks = Some(2));
    let outcome = Srun::ask(&node, sound).connect().finish();
    assert_eq!(outcome.exits.len(), 2);
}

/// A step of an ordinary job has the number that its agent gives it, not one that it asks for.
fn step_numbers() {
    let dir = Dir::new("numbers");
    let mut node = Node::start(&dir, "n1");
    own_allocation(1, &dir, &mut node, |_| ());
    let asking = |step: u32| {
        let mut chosen = spec(1, &dir, &["sh", "-c", "exit $SLURM_STEP_ID"]);
        chosen.het = Some(HetStep {
            step,
            ..HetStep::default()
        });
        chosen
    };
    for step in [
        StepNo::BATCH.0,
        StepNo::EXTERN.0,
        StepNo::INTERACTIVE.0,
        1 << 30,
    ] {
        let code = refusal(create(&node, &asking(step)));
        let codes = [RefusalCode::InvalidValue, RefusalCode::ProtocolError];
        assert!(codes.contains(&code), "{code:?}");
    }
    for (given, step) in [7, 7, (1 << 30) - 1].into_iter().enumerate() {
        let exits = Srun::ask(&node, asking(step)).connect().finish().exits;
        let code = exits[&0].code;
        assert_eq!(code, u32::try_from(given).unwrap(), "asked for {step}");
    }
}

/// A component of a heterogeneous job believes no number of a step but those that the leader's agent has given out.
fn component_numbers() {
    let dir = Dir::new("component");
    let mut node = Node::start(&dir, "n1");
    let mut job = own_job(1, &dir, "");
    job.spec.kind = JobKind::Allocation;
    job.cpus = 4;
    let (blobs, mut grants) = job.grants(&[&node]);
    let mut grant = grants.remove(0);
    let component = |job: u64, node: &Node| HetComponent {
        job: JobId(job),
        spec: Arc::new(JobSpec::default()),
        alloc: Arc::new(Allocation::default()),
        time_limit: TimeLimit::Unlimited,
        lead_address: node.address(),
    };
    grant.components = vec![component(9, &node), component(1, &node)];
    let key = [6; 16];
    grant.het_key = Some(key.to_vec().into());
    node.order(blobs, vec![Order::Launch(Box::new(grant))]);
    let step = |number: u32, proof: Vec<u8>| {
        let mut step = spec(1, &dir, &["true"]);
        step.overlap = true;
        step.het = Some(HetStep {
            step: number,
            proof: Some(proof.into()),
            ..HetStep::default()
        });
        step
    };
    let with_owner_key = prove_step_number(&derive_job_key(&[9; 16], JobKeyUse::Owner), 7);
    let wrong = [
        (7, Vec::new()),
        (7, vec![0; 16]),
        (7, prove_step_number(&key, 8)),
        (7, with_owner_key),
        (StepNo::COUNTED_MAX, prove_step_number(&key, 7)),
    ];
    for (number, proof) in wrong {
        let code = refusal(create(&node, &step(number, proof)));
        let codes = [RefusalCode::InvalidValue, RefusalCode::StepLimit];
        assert!(codes.contains(&code), "{code:?}");
    }
    let sound = step(7, prove_step_number(&key, 7));
    let outcome = Srun::ask(&node, sound.clone()).connect().finish();
    assert_eq!(outcome.exits[&0], ExitStatus::default());
    assert_eq!(refusal(create(&node, &sound)), RefusalCode::InvalidValue);
}

/// `MaxStepCount` is the end.
fn step_count() {
    let dir = Dir::new("count");
    let mut node = Node::start(&dir, "n1");
    own_allocation(1, &dir, &mut node, |s| s.max_step_count = 3);
    let number = AgentRequest::TakeStepNumber {
        job: JobId(1),
        key: Some(derive_job_key(&[9; 16], JobKeyUse::Owner).into()),
    };
    assert_eq!(given_number(ask(&node, &number)), 0);
    for _ in 0..2 {
        let outcome = Srun::ask(&node, spec(1, &dir, &["true"]))
            .connect()
            .finish();
        assert_eq!(outcome.exits[&0], ExitStatus::default());
    }
    let last = spec(1, &dir, &["true"]);
    assert_eq!(refusal(create(&node, &last)), RefusalCode::StepLimit);
    assert_eq!(refusal(ask(&node, &number)), RefusalCode::StepLimit);
}

/// More connections than there are descriptors lock nobody else out.
fn connections() {
    let dir = Dir::new("connections");
    let mut node = Node::start(&dir, "n1");
    node.kill_agent();
    node.start_limited_agent(1024);
    node.accept();
    let mut attack = Attack::start(&["connections", &socket(&node), "1100"]);
    let refused: usize = attack.line().parse().unwrap();
    assert_eq!(refused, LATE);
    answers(&node);
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 3\n"));
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
    drop(attack);
    answers(&node);
}

/// The same of emulated nodes, which whoever leads a step still reaches.
fn emulated() {
    let dir = Dir::new("emulated");
    let own = std::env::current_exe().unwrap();
    let nodes = Command::new("sh")
        .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
        .arg(own)
        .arg(crate::EMULATE)
        .arg(&dir.0)
        .spawn()
        .unwrap();
    let _nodes = Killed(nodes);
    let socket = dir.path("spool.n1/noded.sock");
    let until = Instant::now() + PATIENCE;
    while fs::metadata(&socket).is_ok_and(|file| file.mode() & 0o777 != 0o666) || !socket.exists() {
        assert!(Instant::now() < until, "nobody listens");
        std::thread::yield_now();
    }
    let mut attack = Attack::start(&["connections", &socket.to_string_lossy(), "1100"]);
    assert_eq!(attack.line().parse(), Ok(LATE));
    let mut agent = UnixStream::connect(&socket).unwrap();
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = AgentRequest::Inspect { job: JobId(1) };
    frame::write(&mut agent, &request).unwrap();
    let reply = frame::read(&mut agent).unwrap();
    assert_eq!(refusal(reply), RefusalCode::JobNotHere);
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No part of an agent is missing while the others go on; jobs do, and the next agent finds them.
fn panic_of_a_part() {
    let dir = Dir::new("panic");
    let mut node = Node::start(&dir, "n1");
    node.kill_agent();
    let (pipe, gate) = (dir.path("pipe"), dir.path("gate"));
    fifo(&pipe);
    fifo(&gate);
    // The agent opens it.
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).unwrap();
    node.start_panicking_agent(&pipe);
    node.accept();
    let script = format!("#!/bin/sh\nread x < {}\nexit 3\n", gate.display());
    node.run(&JobMaker::new(1, &dir.0, &script));
    // It runs.
    let gate = fs::OpenOptions::new().write(true).open(&gate).unwrap();
    fs::write(&pipe, "x").unwrap();
    assert_eq!(node.agent_status(), Some(101));
    node.disconnect();
    node.start_agent();
    node.accept();
    std::io::Write::write_all(&mut &gate, b"x\n").unwrap();
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
}

fn resident_mib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

/// Requests about jobs that may come are held for a while, but not as many as anybody likes.
fn unknown_jobs() {
    let dir = Dir::new("unknown");
    let node = Node::start(&dir, "n1");
    let mut attack = Attack::start(&["unknown-jobs", &socket(&node), "60", "7000000"]);
    let refused: usize = attack.line().parse().unwrap();
    assert!(refused >= 45, "{refused}");
    let resident = resident_mib(node.agent_pid());
    assert!(resident < 250, "{resident} MiB");
    answers(&node);
}
