//! A private cluster on this machine that was started for the attack: its sockets, daemons, commands and state.

use crate::cbor::Value;
use crate::peer::{self, PeerReply};
use crate::sys::{ADMINISTRATOR, ATTACKER, COORDINATOR, NAMELESS, OPERATOR, User, VICTIM, as_user};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_proto::client::{JobFilter, Query, RequestBody, Response};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that anything may take which an attack waits for.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between looks at something that nothing announces.
pub const LOOK: Duration = Duration::from_millis(20);
/// Seconds after which a command counts as hung.
const COMMAND_MAX_S: &str = "60";

/// The file with the number of slurmrestd's process, in the home directory.
pub const REST_PID: &str = "rest/pid";

/// The file with the number of sackd's process, likewise.
pub const SACK_PID: &str = "network/sackd.pid";

/// The node whose agent serves `SlurmdPort`, once that was started.
pub const PORT_NODE: &str = "n2";

/// The users of attacks.
const USERS: [User; 6] = [
    ATTACKER,
    NAMELESS,
    VICTIM,
    OPERATOR,
    ADMINISTRATOR,
    COORDINATOR,
];

/// Settings of each node in slurm.conf.
pub(crate) const NODE_WORDS: &str =
    "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN";

/// Nodes of the cluster.
pub const NODES: u64 = 2;

/// Keys that the cluster's slurm.conf has beside those of a private cluster: attacks need them to be seen. The mail
/// program writes down its arguments.
pub fn configuration(home: &Path) -> String {
    let key = home.join("jwt.key");
    // Free a moment ago: by tokens the controller is reached over the network.
    let free = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let port = free.and_then(|l| l.local_addr()).map_or(6817, |a| a.port());
    format!(
        "ClusterName=muster\nSlurmctldHost=localhost\nSlurmctldPort={port}\nAuthAltTypes=auth/jwt\n\
         AuthAltParameters=jwt_key={}\nMailProg={}\nPriorityType=priority/multifactor\n\
         AccountingStorageType=accounting_storage/slurmdbd\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=64\nMaxArraySize=1001\nMaxJobCount=2000\nMinJobAge=2\n\
         KillWait=2\nReturnToService=2\nScronParameters=enable\n\
         NodeName=n[1-{NODES}] {NODE_WORDS}\n\
         PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        key.display(),
        home.join("mail.sh").display()
    )
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct Target {
    home: PathBuf,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Exit status; 128 + n for signal n.
    pub code: i32,
    /// Standard output, without blanks at the ends.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Target {
    /// The cluster of a home directory (`MUSTER_HOME`), running or not. Makes the directories in which users of the attack
    /// write, and the mail program; daemons that are started afterwards have as few descriptors as services have.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn prepare(home: &Path) -> io::Result<Target> {
        crate::sys::usual_descriptors();
        let target = Target::new(home);
        fs::create_dir_all(home)?;
        fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
        for user in USERS {
            let dir = target.dir_of(user);
            fs::create_dir_all(&dir)?;
            chown(&dir, Some(user.uid), Some(user.gid))?;
        }
        // In one write, as letters are sent side by side.
        let recorder = format!(
            "#!/bin/sh\ncall=$(id -u; for a; do echo \"$a\"; done)\nprintf '%s\\n---\\n' \"$call\" >>{}\n",
            target.mail_log().display()
        );
        fs::write(home.join("mail.sh"), recorder)?;
        fs::set_permissions(home.join("mail.sh"), fs::Permissions::from_mode(0o755))?;
        let mut key = [0; 32];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(home.join("jwt.key"))?.write_all(&key)?;
        fs::write(target.mail_log(), "")?;
        fs::set_permissions(target.mail_log(), fs::Permissions::from_mode(0o666))?;
        Ok(target)
    }

    /// The cluster of a home directory.
    pub fn new(home: &Path) -> Target {
        Target {
            home: home.to_path_buf(),
        }
    }

    /// Its home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// File with the arguments of the mail program.
    pub fn mail_log(&self) -> PathBuf {
        self.home.join("mail.log")
    }

    /// A directory that a user may write into.
    pub fn dir_of(&self, user: User) -> PathBuf {
        self.home.join(format!("user.{}", user.uid))
    }

    /// The controller's socket.
    pub fn controller(&self) -> PathBuf {
        let conf = self.home.join("slurm.conf");
        muster_conf::endpoint::read(&conf)
            .map_or_else(|_| self.home.join("run"), |endpoint| endpoint.socket)
    }

    /// The spool directory of a node.
    pub fn spool(&self, node: &str) -> PathBuf {
        self.home.join(format!("spool.{node}"))
    }

    /// The socket of a node's agent to which users connect.
    pub fn agent(&self, node: &str) -> PathBuf {
        self.spool(node).join("noded.sock")
    }

    /// A bash command with the cluster's commands on its path, as a user.
    pub fn command(&self, user: User, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", COMMAND_MAX_S, "bash", "-c", script])
            .env(
                "PATH",
                format!("{}:{path}", self.home.join("bin").display()),
            )
            .env("SLURM_CONF", self.home.join("slurm.conf"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        if user.uid != 0 {
            command
                .uid(user.uid)
                .gid(user.gid)
                .current_dir(self.dir_of(user));
        }
        command
    }

    /// Runs a bash command as a user, to its end.
    pub fn run(&self, user: User, script: &str) -> Ran {
        use std::os::unix::process::ExitStatusExt;
        match self.command(user, script).output() {
            Ok(output) => Ran {
                code: output
                    .status
                    .code()
                    .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
                out: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
                err: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            },
            Err(e) => Ran {
                code: 255,
                out: String::new(),
                err: e.to_string(),
            },
        }
    }

    /// Runs a bash command as the calling thread's user.
    pub fn own(&self, script: &str) -> Ran {
        self.run(crate::sys::ROOT, script)
    }

    /// Asks the controller as a user.
    pub fn ask(&self, user: User, body: RequestBody) -> PeerReply<Response> {
        self.ask_tree(user, &peer::request(body))
    }

    /// Asks the controller as a user, with any message.
    pub fn ask_tree(&self, user: User, message: &Value) -> PeerReply<Response> {
        let socket = self.controller();
        as_user(user, || peer::ask_controller(&socket, message))
    }

    /// The records of the queue that a user is shown. No records when there is no answer.
    pub fn jobs(&self, user: User, ids: &[JobId]) -> Vec<Job> {
        let filter = JobFilter {
            ids: ids.to_vec(),
            ..JobFilter::default()
        };
        match self.ask(user, RequestBody::Query(Box::new(Query::Jobs(filter)))) {
            PeerReply::Accepted(Response::Jobs(part)) => part.jobs.into_jobs(),
            _ => Vec::new(),
        }
    }

    /// The process that a pid file names.
    pub fn pid(&self, file: &str) -> Option<i32> {
        let text = fs::read_to_string(self.home.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Daemons by name: controller, supervisors, agents, shims, and relay, slurmrestd and sackd if they were started.
    pub fn daemons(&self) -> Vec<(String, i32)> {
        let mut files = vec![("controller".to_owned(), "run/ctld.pid".to_owned())];
        for node in self.nodes() {
            files.push((
                format!("supervisor {node}"),
                format!("run/noded.{node}.pid"),
            ));
            files.push((format!("shim {node}"), format!("spool.{node}/shim.pid")));
        }
        let pids = files
            .into_iter()
            .map(|(name, file)| Some((name, self.pid(&file)?)));
        let mut daemons: Vec<(String, i32)> = pids.flatten().collect();
        for node in self.nodes() {
            if let Some(agent) = self.agent_process(&node) {
                daemons.push((format!("agent {node}"), agent));
            }
        }
        if let Some(relay) = self.child(PORT_NODE, "muster-relay") {
            daemons.push(("relay".to_owned(), relay));
        }
        for (name, file) in [("slurmrestd", REST_PID), ("sackd", SACK_PID)] {
            if let Some(pid) = self.pid(file) {
                daemons.push((name.to_owned(), pid));
            }
        }
        daemons
    }

    /// The process of a node's agent.
    pub fn agent_process(&self, node: &str) -> Option<i32> {
        self.child(node, "muster-agent")
    }

    /// The process of a name that a node's supervisor has started: its agent, or its relay if it has one.
    fn child(&self, node: &str, name: &str) -> Option<i32> {
        let supervisor = self.pid(&format!("run/noded.{node}.pid"))?;
        let file = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(file).ok()?;
        let is_named = |pid: &i32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(name)
        };
        let mut pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        pids.find(is_named)
    }

    /// Its nodes, by their spool directories.
    pub fn nodes(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.home).into_iter().flatten().flatten();
        let mut nodes: Vec<String> = entries
            .filter_map(|e| Some(e.file_name().to_str()?.strip_prefix("spool.")?.to_owned()))
            .collect();
        nodes.sort();
        nodes
    }

    /// Processes of a user that come from this cluster: they work below its home directory, or are descendants of its
    /// daemons. Other clusters on the machine may have jobs of the same user.
    pub fn processes_of(&self, user: User) -> Vec<i32> {
        let uid = user.uid.to_string();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter(|pid| status(*pid, "Uid:").as_ref() == Some(&uid))
            .filter(|pid| alive(*pid) && self.is_of_cluster(*pid))
            .collect()
    }

    fn is_of_cluster(&self, pid: i32) -> bool {
        let works_here = |pid: i32| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir.starts_with(&self.home))
        };
        let named_so = |pid: i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&*self.home.to_string_lossy())
        };
        let parent = |pid: &i32| status(*pid, "PPid:")?.parse().ok().filter(|pid| *pid > 1);
        works_here(pid) || std::iter::successors(Some(pid), parent).any(named_so)
    }

    /// Kills a process (SIGKILL) and waits until it is gone.
    pub fn kill(&self, pid: i32) {
        let pid_ = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid_, nix::sys::signal::Signal::SIGKILL);
        until(|| !alive(pid));
    }

    /// Kills a node's agent and starts another.
    pub fn restart_agent(&self, node: &str) -> Ran {
        if let Some(pid) = self.pid(&format!("run/noded.{node}.pid")) {
            self.kill(pid);
        }
        self.run(crate::sys::ROOT, &self.agent_command(node))
    }

    /// Command line that starts a node's agent.
    pub fn agent_command(&self, node: &str) -> String {
        // The node whose port is attacked keeps it: its configuration is another.
        let conf = self.network_configuration();
        let options = match node == PORT_NODE && conf.exists() {
            true => format!("-f {} ", conf.display()),
            false => String::new(),
        };
        format!("slurmd {options}-N {node}")
    }

    /// The configuration by which the agent of [`PORT_NODE`] serves its port, once
    /// [`NetworkDaemons`](crate::network::NetworkDaemons) have started.
    pub(crate) fn network_configuration(&self) -> PathBuf {
        self.home().join("network/slurm.conf")
    }

    /// Kills the controller and starts another.
    pub fn restart_controller(&self) -> Ran {
        if let Some(pid) = self.pid("run/ctld.pid") {
            self.kill(pid);
        }
        self.run(crate::sys::ROOT, "slurmctld")
    }

    /// Waits until the controller says that all nodes can be used; whether they can.
    pub fn nodes_are_up(&self) -> bool {
        until(|| {
            let ran = self.run(crate::sys::ROOT, "sinfo -h -N -o %T | sort -u");
            ran.code == 0
                && !ran.out.is_empty()
                && ran
                    .out
                    .lines()
                    .all(|state| matches!(state, "idle" | "mixed" | "allocated" | "completing"))
        })
    }

    /// Waits until a job has ended; its state as sacct shows it.
    pub fn ended(&self, job: JobId) -> Option<String> {
        let mut state = String::new();
        let ended = until(|| {
            state = self.state(job);
            !matches!(state.as_str(), "" | "PENDING" | "RUNNING" | "SUSPENDED")
        });
        ended.then_some(state)
    }

    /// The state of a job as sacct shows it.
    pub fn state(&self, job: JobId) -> String {
        let script = format!("sacct -X -n -P -j {job} -o State");
        self.run(crate::sys::ROOT, &script).out
    }
}

/// Waits until something holds; whether it did in time.
pub fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a process exists and is no zombie.
pub fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with('Z'))
}

/// A field of `/proc/PID/status`.
fn status(pid: i32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.to_owned())
}
