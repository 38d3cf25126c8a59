//! How many one-task batch jobs per second one agent runs, from order to acknowledged end, beside a bare loop that
//! forks, executes and waits for the same script. `cargo run --release -p muster-node --example launch_rate [jobs]`

use log::LevelFilter;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, BlobId, JobId, NodeIdx};
use muster_model::job::{Allocation, ArrayRole, NodeShare};
use muster_model::spec::{ExecContext, JobSpec, Owner, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_node::{AGENT_NAME, AgentLog, AgentOptions, LAUNCHER_NAME, STEPD_NAME};
use muster_proto::client::{Request, RequestBody, Response};
use muster_proto::frame;
use muster_proto::node::{JobGrant, NodeSettings, Order, Orders, Report, ToCtld, ToNode, Welcome};
use muster_trust::{KeyPair, Receiver, SealedSession, SessionPeers};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SCRIPT: &str = "#!/bin/sh\ntrue\n";
/// Jobs that run at the same time, as on a node of that many CPUs.
const AT_ONCE: u64 = 16;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    if name.ends_with(LAUNCHER_NAME) {
        muster_node::launcher_main(args);
        return Ok(());
    }
    if name.ends_with(STEPD_NAME) {
        muster_node::stepd_main();
        return Ok(());
    }
    if name.ends_with(AGENT_NAME) {
        muster_node::agent_main(|_| ());
        return Ok(());
    }
    let args: Vec<String> = args.collect();
    if let [word, dir] = &args[..]
        && word == "agent"
    {
        return agent(Path::new(dir));
    }
    let jobs: u64 = args.first().map_or(Ok(2000), |n| n.parse())?;
    let dir = std::env::temp_dir().join(format!("muster-rate-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let bare = bare_loop(&dir, jobs)?;
    println!("bare fork+exec+wait, {AT_ONCE} at once: {bare:8.0} jobs/s");
    let listener = UnixListener::bind(dir.join("ctld.sock"))?;
    let mut agent = Command::new("/proc/self/exe")
        .arg("agent")
        .arg(&dir)
        .spawn()?;
    let rate = through_agent(&listener, &dir, jobs)?;
    println!("through one agent, {AT_ONCE} at once:   {rate:8.0} jobs/s");
    println!("ratio {:.2}", rate / bare);
    agent.kill()?;
    agent.wait()?;
    muster_node::stop_launcher(&dir.join("spool"), true)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn agent(dir: &Path) -> anyhow::Result<()> {
    let options = AgentOptions {
        name: "n1".to_owned(),
        cluster: "rate".to_owned(),
        address: String::new(),
        controller_socket: dir.join("ctld.sock"),
        spool_dir: dir.join("spool"),
        claimed_cpus: None,
        claimed_sockets: 0,
        shared_machine: true,
        claimed_memory_mib: None,
        launcher_program: None,
        slurmd_user: String::new(),
        network: Default::default(),
        conf: String::new(),
        fetch: Vec::new(),
        dynamic: None,
        spool_pattern: String::new(),
    };
    let log = AgentLog {
        file: None,
        path: None,
        replace: drop,
        append: |line| eprintln!("{line}"),
        level: LevelFilter::Off,
    };
    muster_node::run(options, log, || {}).map(drop)
}

fn bare_loop(dir: &Path, jobs: u64) -> anyhow::Result<f64> {
    let script = dir.join("script");
    std::fs::write(&script, SCRIPT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    let started = Instant::now();
    let mut running = std::collections::VecDeque::new();
    for _ in 0..jobs {
        if running.len() as u64 == AT_ONCE {
            wait_oldest(&mut running)?;
        }
        running.push_back(
            Command::new(&script)
                .stdin(std::process::Stdio::null())
                .spawn()?,
        );
    }
    while !running.is_empty() {
        wait_oldest(&mut running)?;
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}

fn wait_oldest(
    running: &mut std::collections::VecDeque<std::process::Child>,
) -> anyhow::Result<()> {
    if let Some(mut child) = running.pop_front() {
        anyhow::ensure!(child.wait()?.success());
    }
    Ok(())
}

fn through_agent(listener: &UnixListener, dir: &Path, jobs: u64) -> anyhow::Result<f64> {
    let key = KeyPair::of([7; 32]);
    let (mut stream, _) = listener.accept()?;
    // The supervisor's, which restricts the connection.
    let _: Request = frame::read(&mut stream)?;
    let request: Request = frame::read(&mut stream)?;
    let RequestBody::NodeHello(hello) = request.body else {
        anyhow::bail!("no hello");
    };
    let session = |receiver, node_key: &[u8]| {
        let peers = SessionPeers {
            cluster: "rate",
            node: "n1",
            receiver,
        };
        key.with_node(peers, node_key)
    };
    let mut sessions = [
        session(Receiver::Agent, &hello.key)?,
        session(Receiver::Launcher, &hello.launcher_key)?,
    ];
    let welcome = Welcome {
        public_key: key.public().to_vec().into(),
        cluster: "rate".to_owned(),
        greeting: None,
    };
    frame::write(&mut stream, &Response::Welcome(Box::new(welcome)))?;
    let context = minicbor::to_vec(context())?;
    let blobs = vec![
        (BlobId([1; 32]), SCRIPT.as_bytes().to_vec().into()),
        (BlobId([2; 32]), context.into()),
    ];
    let started = Instant::now();
    let mut next = jobs.min(AT_ONCE) + 1;
    let first = (1..next).map(|id| launch(id, dir)).collect();
    send(&mut stream, &mut sessions, blobs, first)?;
    let mut released = 0;
    while released < jobs {
        let message: ToCtld = frame::read(&mut stream)?;
        let ToCtld::Reports(reports) = message else {
            continue;
        };
        let mut orders = Vec::new();
        for report in &reports {
            match &report.report {
                Report::BatchEnded { exit, .. } => anyhow::ensure!(exit.is_ok(), "{report:?}"),
                Report::Released => {
                    released += 1;
                    if next <= jobs {
                        orders.push(launch(next, dir));
                        next += 1;
                    }
                }
                other => anyhow::bail!("{other:?}"),
            }
        }
        if let Some(last) = reports.last() {
            frame::write(&mut stream, &ToNode::Ack(last.seq))?;
        }
        if !orders.is_empty() {
            send(&mut stream, &mut sessions, Vec::new(), orders)?;
        }
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}

fn send(
    stream: &mut UnixStream,
    sessions: &mut [SealedSession; 2],
    blobs: Vec<(BlobId, minicbor::bytes::ByteVec)>,
    orders: Vec<Order>,
) -> anyhow::Result<()> {
    let orders = minicbor::to_vec(Orders {
        cluster: "rate".to_owned(),
        node: "n1".to_owned(),
        at: Timestamp(0),
        blobs,
        orders,
        drop_blobs: Vec::new(),
        settings: Some(Box::new(NodeSettings {
            kill_wait_s: 30,
            ..NodeSettings::default()
        })),
    })?;
    let [seal, launcher_seal] = sessions
        .each_mut()
        .map(|session| session.seal(&orders).to_vec().into());
    let message = ToNode::Sealed {
        orders: orders.into(),
        seal,
        launcher_seal,
    };
    frame::write(stream, &message)?;
    Ok(())
}

/// An environment of the usual size.
fn context() -> ExecContext {
    let variables = (0..40).map(|i| format!("VARIABLE_{i}=some value of a usual length {i}"));
    ExecContext {
        environment: variables.chain(["PATH=/usr/bin:/bin".to_owned()]).collect(),
        umask: 0o022,
        soft_limits: Vec::new(),
    }
}

fn launch(id: u64, dir: &Path) -> Order {
    let spec = JobSpec {
        name: "rate".to_owned(),
        owner: Owner {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            user: "root".to_owned(),
            group: "root".to_owned(),
        },
        script: Some(BlobId([1; 32])),
        context: Some(BlobId([2; 32])),
        work_dir: dir.to_string_lossy().into_owned(),
        stdio: StdioSpec {
            stdout: Some("/dev/null".to_owned()),
            ..StdioSpec::default()
        },
        ..JobSpec::default()
    };
    let alloc = Allocation {
        nodes: vec![NodeShare {
            node: NodeIdx(0),
            name: "n1".to_owned(),
            cpus: CpuSet::first(1),
            memory_mib: 100,
            tasks: 1,
            gres: Vec::new(),
        }],
        partition: "batch".to_owned(),
        hostlist: "n1".to_owned(),
        ntasks: 1,
        ..Allocation::default()
    };
    Order::Launch(Box::new(JobGrant {
        job: JobId(id),
        attempt: Attempt(1),
        spec: spec.into(),
        alloc: alloc.into(),
        position: 0,
        array: ArrayRole::None,
        array_info: None,
        start_time: Timestamp(0),
        time_limit: TimeLimit::Unlimited,
        restarts: 0,
        addresses: vec![format!("unix:{}/spool/noded.sock", dir.display())],
        key: vec![0; 16].into(),
        account: "root".to_owned(),
        qos: "normal".to_owned(),
        next_step: 0,
        components: Vec::new(),
        het_key: None,
        resizes: 0,
    }))
}
