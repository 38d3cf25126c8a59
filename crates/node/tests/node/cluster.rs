//! The tests' controller and their agents.

use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, BlobId, JobId, NodeIdx};
use muster_model::job::{Allocation, ArrayRole, ExitStatus, NodeShare};
use muster_model::spec::{ExecContext, JobSpec, Owner, SoftLimit};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client::{Request, RequestBody, Response};
use muster_proto::frame;
use muster_proto::node::{
    JobGrant, NodeHello, NodeSettings, NumberedReport, Order, Orders, Report, ToCtld, ToNode,
    Welcome,
};
use muster_trust::{KeyPair, Receiver, SealedSession, SessionPeers};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{self, channel};
use std::time::{Duration, Instant};

pub const CLUSTER: &str = "test";
/// How long anything may take before a test gives up; never waited for when things work.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that is gone when the test is.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let path = PathBuf::from(format!("/tmp/mn{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }

    /// Has all users make files there, as in `/tmp`. It stays root's, as what is above a spool directory has to.
    pub fn open(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&self.0, mode).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Waits for the end of a process.
pub fn wait_for_end(pidfd: &OwnedFd) {
    let mut ended = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut ended, timeout), Ok(1), "the process goes on");
}

/// The controller's side of one node.
pub struct Node {
    pub name: String,
    pub spool: PathBuf,
    socket: PathBuf,
    listener: UnixListener,
    key: KeyPair,
    /// With its agent and its launcher.
    sessions: Option<[SealedSession; 2]>,
    /// The supervisor, with the agent below it.
    slurmd: Option<Child>,
    link: Option<UnixStream>,
    inbox: Option<mpsc::Receiver<ToCtld>>,
    reports: Vec<NumberedReport>,
    pub hello: Option<NodeHello>,
    pub ack: bool,
    highest: u64,
    pub settings: NodeSettings,
}

impl Node {
    pub fn start(dir: &Dir, name: &str) -> Node {
        let socket = dir.path(&format!("{name}.ctld"));
        let mut node = Node {
            name: name.to_owned(),
            spool: dir.path(&format!("spool.{name}")),
            listener: UnixListener::bind(&socket).unwrap(),
            socket,
            key: KeyPair::of([7; 32]),
            sessions: None,
            slurmd: None,
            link: None,
            inbox: None,
            reports: Vec::new(),
            hello: None,
            ack: true,
            highest: 0,
            settings: NodeSettings {
                kill_wait_s: 1,
                conf_path: "/etc/slurm/slurm.conf".to_owned(),
                working_cluster: "test:127.0.0.1:6817:9728:109".to_owned(),
                propagate_limits: vec![7],
                ..NodeSettings::default()
            },
        };
        node.start_agent();
        node.accept();
        node
    }

    /// The socket of the only step daemon here.
    pub fn step_socket(&self) -> PathBuf {
        let files = std::fs::read_dir(&self.spool).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut sockets = names.filter(|n| n.starts_with("step-") && n.ends_with(".sock"));
        let socket = self.spool.join(sockets.next().unwrap());
        assert_eq!(sockets.next(), None);
        socket
    }

    pub fn start_agent(&mut self) {
        self.start_agent_by(&mut Command::new("/proc/self/exe"));
    }

    /// Starts it with so many descriptors at most.
    pub fn start_limited_agent(&mut self, descriptors: u32) {
        let own = std::env::current_exe().unwrap();
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        self.start_agent_by(Command::new("sh").args(["-c", &script]).arg(own));
    }

    /// Starts one of which a thread panics when something is written to this pipe.
    pub fn start_panicking_agent(&mut self, pipe: &Path) {
        self.start_agent_by(Command::new("/proc/self/exe").env(crate::PANIC_BY, pipe));
    }

    /// Waits for the agent to end by itself; its exit status.
    pub fn agent_status(&mut self) -> Option<i32> {
        let pidfd = muster_node::pidfd(self.supervisor_pid()).unwrap();
        wait_for_end(&pidfd);
        self.slurmd.take().unwrap().wait().unwrap().code()
    }

    fn start_agent_by(&mut self, command: &mut Command) {
        let child = command
            .args(["agent", &self.name])
            .arg(&self.socket)
            .arg(&self.spool)
            .spawn()
            .unwrap();
        self.slurmd = Some(child);
    }

    pub fn kill_agent(&mut self) {
        if let Some(mut slurmd) = self.slurmd.take() {
            slurmd.kill().unwrap();
            slurmd.wait().unwrap();
        }
        self.disconnect();
    }

    pub fn supervisor_pid(&self) -> i32 {
        self.slurmd.as_ref().unwrap().id().try_into().unwrap()
    }

    /// Its only child that stays its child.
    pub fn agent_pid(&self) -> i32 {
        let pid = self.supervisor_pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap();
        let mut pids = children.split_ascii_whitespace();
        pids.next().unwrap().parse().unwrap()
    }

    pub fn disconnect(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = link.shutdown(std::net::Shutdown::Both);
        }
        self.inbox = None;
    }

    pub fn shim_pid(&self) -> i32 {
        let text = std::fs::read_to_string(self.spool.join("shim.pid")).unwrap();
        text.trim().parse().unwrap()
    }

    /// Kills the launcher. The agent starts another, and dials again: what is sealed for the one, the other does not believe.
    pub fn kill_shim(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.shim_pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        self.turned_away();
    }

    /// Waits for the agent and greets it.
    pub fn accept(&mut self) {
        let (mut stream, _) = self.listener.accept().unwrap();
        let restricted: Request = frame::read(&mut stream).unwrap();
        assert_eq!(restricted.body, RequestBody::ServeNode(self.name.clone()));
        let request: Request = frame::read(&mut stream).unwrap();
        let RequestBody::NodeHello(hello) = request.body else {
            panic!("no hello")
        };
        assert_eq!(hello.name, self.name);
        let session = |receiver, key: &[u8]| {
            let peers = SessionPeers {
                cluster: CLUSTER,
                node: &self.name,
                receiver,
            };
            self.key.with_node(peers, key).unwrap()
        };
        self.sessions = Some([
            session(Receiver::Agent, &hello.key),
            session(Receiver::Launcher, &hello.launcher_key),
        ]);
        self.hello = Some(*hello);
        let welcome = Welcome {
            public_key: self.key.public().to_vec().into(),
            cluster: CLUSTER.to_owned(),
            greeting: None,
        };
        frame::write(&mut stream, &Response::Welcome(Box::new(welcome))).unwrap();
        let (sender, inbox) = channel();
        let mut reader = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            while let Ok(message) = frame::read(&mut reader) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        self.highest = 0;
        self.link = Some(stream);
        self.inbox = Some(inbox);
        self.configure();
    }

    /// Sends the settings.
    pub fn configure(&mut self) {
        let mut orders = self.orders(Vec::new(), Vec::new());
        orders.settings = Some(Box::new(self.settings.clone()));
        let message = self.seal(&orders);
        self.send(&message);
    }

    pub fn address(&self) -> String {
        format!("unix:{}/noded.sock", self.spool.display())
    }

    pub fn order(&mut self, blobs: Vec<(BlobId, Vec<u8>)>, orders: Vec<Order>) {
        let message = self.sealed(blobs, orders);
        self.send(&message);
    }

    /// The message with these orders that is the next of this connection.
    pub fn sealed(&mut self, blobs: Vec<(BlobId, Vec<u8>)>, orders: Vec<Order>) -> ToNode {
        let orders = self.orders(blobs, orders);
        self.seal(&orders)
    }

    fn orders(&self, blobs: Vec<(BlobId, Vec<u8>)>, orders: Vec<Order>) -> Orders {
        Orders {
            cluster: CLUSTER.to_owned(),
            node: self.name.clone(),
            at: Timestamp(0),
            blobs: blobs.into_iter().map(|(id, b)| (id, b.into())).collect(),
            orders,
            drop_blobs: Vec::new(),
            settings: None,
        }
    }

    fn seal(&mut self, orders: &Orders) -> ToNode {
        let bytes = minicbor::to_vec(orders).unwrap();
        let sessions = self.sessions.as_mut().unwrap();
        let [seal, launcher_seal] = sessions
            .each_mut()
            .map(|session| session.seal(&bytes).to_vec().into());
        ToNode::Sealed {
            orders: bytes.into(),
            seal,
            launcher_seal,
        }
    }

    pub fn send(&mut self, message: &ToNode) {
        frame::write(self.link.as_mut().unwrap(), message).unwrap();
    }

    /// Waits until the agent has closed the connection, and for its next one.
    pub fn turned_away(&mut self) {
        while self.inbox.as_ref().unwrap().recv_timeout(PATIENCE).is_ok() {}
        self.disconnect();
        self.accept();
    }

    /// The next report that `wanted` accepts; others stay.
    pub fn report(&mut self, wanted: impl Fn(&NumberedReport) -> bool) -> NumberedReport {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.reports.iter().position(&wanted) {
                return self.reports.remove(at);
            }
            let wait = until.saturating_duration_since(Instant::now());
            let message = self.inbox.as_ref().unwrap().recv_timeout(wait);
            match message {
                Ok(ToCtld::Reports(reports)) => self.take(reports),
                Ok(ToCtld::Health { .. }) => {}
                Err(e) => panic!("no such report ({e}); there are {:?}", self.reports),
            }
        }
    }

    /// Waits for the answer to a ping: what was sent before it has been read.
    pub fn health(&mut self) {
        loop {
            match self.inbox.as_ref().unwrap().recv_timeout(PATIENCE) {
                Ok(ToCtld::Health { .. }) => return,
                Ok(ToCtld::Reports(reports)) => self.take(reports),
                Err(e) => panic!("no answer to the ping: {e}"),
            }
        }
    }

    fn take(&mut self, reports: Vec<NumberedReport>) {
        for report in reports {
            assert!(
                report.seq > self.highest || !self.ack,
                "numbers do not ascend"
            );
            self.highest = self.highest.max(report.seq);
            self.reports.push(report);
        }
        if self.ack {
            self.send(&ToNode::Ack(self.highest));
        }
    }

    /// Reports of a job that came and were not taken.
    pub fn left(&self, job: u64) -> Vec<&NumberedReport> {
        self.reports
            .iter()
            .filter(|r| r.job == JobId(job))
            .collect()
    }

    pub fn batch_exit(&mut self, job: u64) -> ExitStatus {
        let report = self.report(|r| r.job == JobId(job) && !matches!(r.report, Report::Released));
        match report.report {
            Report::BatchEnded { exit, .. } => exit,
            other => panic!("job {job}: {other:?}"),
        }
    }

    pub fn released(&mut self, job: u64) {
        self.report(|r| r.job == JobId(job) && matches!(r.report, Report::Released));
    }

    pub fn run(&mut self, job: &JobMaker) {
        let (blobs, order) = job.order(&[self]);
        self.order(blobs, vec![order]);
    }

    pub fn terminate(&mut self, job: u64, why: TerminateReason) {
        self.terminate_launch(job, 1, why);
    }

    pub fn terminate_launch(&mut self, job: u64, attempt: u32, why: TerminateReason) {
        let order = Order::Terminate {
            job: JobId(job),
            attempt: Attempt(attempt),
            now: false,
            why,
        };
        self.order(Vec::new(), vec![order]);
    }

    pub fn signal(&mut self, job: u64, signal: u32) {
        let order = Order::Signal {
            job: JobId(job),
            attempt: Attempt(1),
            step: None,
            signal,
            scope: SignalScope::Full,
            cancelled_by: None,
        };
        self.order(Vec::new(), vec![order]);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut agent) = self.slurmd.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let stopped = muster_node::stop_launcher(&self.spool, true);
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.spool.join("shim.log"));
            eprintln!(
                "shim of {}: {stopped:?}\n{}",
                self.name,
                log.unwrap_or_default()
            );
        }
    }
}

/// Makes jobs.
pub struct JobMaker {
    pub id: u64,
    pub attempt: u32,
    pub script: String,
    pub spec: JobSpec,
    pub env: Vec<String>,
    /// CPUs, from this one on.
    pub first_cpu: u32,
    pub cpus: u32,
    pub array: ArrayRole,
    pub memory_mib: u64,
}

impl JobMaker {
    pub fn new(id: u64, dir: &Path, script: &str) -> JobMaker {
        JobMaker {
            id,
            attempt: 1,
            script: script.to_owned(),
            spec: JobSpec {
                name: "test".to_owned(),
                owner: Owner {
                    uid: 0,
                    gid: 0,
                    user: "root".to_owned(),
                    group: "root".to_owned(),
                },
                work_dir: dir.to_string_lossy().into_owned(),
                submit_host: "vm".to_owned(),
                ..JobSpec::default()
            },
            env: vec![
                "PATH=/usr/bin:/bin".to_owned(),
                "SLURM_STEP_ID=stale".to_owned(),
                "MINE=yes".to_owned(),
            ],
            first_cpu: 0,
            cpus: 1,
            array: ArrayRole::None,
            memory_mib: 0,
        }
    }

    /// The order that the first of the nodes gets.
    pub fn order(&self, nodes: &[&Node]) -> (Vec<(BlobId, Vec<u8>)>, Order) {
        let (blobs, mut grants) = self.grants(nodes);
        (blobs, Order::Launch(Box::new(grants.remove(0))))
    }

    pub fn grants(&self, nodes: &[&Node]) -> (Vec<(BlobId, Vec<u8>)>, Vec<JobGrant>) {
        let context = ExecContext {
            environment: self.env.iter().collect(),
            umask: 0o022,
            soft_limits: vec![SoftLimit::new(7, 333)],
        };
        let mut spec = self.spec.clone();
        let context = minicbor::to_vec(&context).unwrap();
        let (script_id, context_id) = (blob_id(self.script.as_bytes()), blob_id(&context));
        spec.script = Some(script_id);
        spec.context = Some(context_id);
        let shares = nodes.iter().enumerate().map(|(i, node)| NodeShare {
            node: NodeIdx(u32::try_from(i).unwrap()),
            name: node.name.clone(),
            cpus: (self.first_cpu..self.first_cpu + self.cpus).collect(),
            memory_mib: self.memory_mib,
            tasks: spec.ask.ntasks_per_node.unwrap_or(1),
            gres: Vec::new(),
        });
        let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
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
            hostlist: muster_model::hostlist::compress(&names),
            ntasks: spec.ask.task_count(),
        };
        let grant = JobGrant {
            job: JobId(self.id),
            attempt: Attempt(self.attempt),
            spec: spec.into(),
            alloc: alloc.into(),
            position: 0,
            array: self.array.clone(),
            array_info: None,
            start_time: Timestamp(1_000_000),
            time_limit: TimeLimit::Minutes(5),
            restarts: 0,
            addresses: nodes.iter().map(|n| n.address()).collect(),
            key: vec![9; 16].into(),
            account: "root".to_owned(),
            qos: "normal".to_owned(),
            next_step: 0,
            components: Vec::new(),
            het_key: None,
            resizes: 0,
        };
        let grants = (0..nodes.len())
            .map(|i| JobGrant {
                position: u32::try_from(i).unwrap(),
                ..grant.clone()
            })
            .collect();
        let blobs = vec![
            (script_id, self.script.clone().into_bytes()),
            (context_id, context),
        ];
        (blobs, grants)
    }
}

/// Not SHA-256, but different for different content, which is all that the agent relies on.
fn blob_id(bytes: &[u8]) -> BlobId {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut id = [0; 32];
    for (i, chunk) in id.chunks_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (i, bytes).hash(&mut hasher);
        chunk.copy_from_slice(&hasher.finish().to_be_bytes());
    }
    BlobId(id)
}

/// Variables as a map.
pub fn env_of(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|l| l.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

/// A named pipe that a job opens for writing when it has come to a point; reading waits for that.
pub fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}
