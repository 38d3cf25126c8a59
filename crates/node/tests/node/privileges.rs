//! What the processes of a node may do: the agent, which speaks with users and with the network, has no privileges, and what
//! anybody kills of the others is not a step's end.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, PATIENCE, wait_for_end};
use super::steps::{Srun, allocate, another_shim, spec, step_end};
use muster_model::effect::TerminateReason;
use muster_model::job::ExitStatus;
use muster_proto::step::ToStepd;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::{Pid, getsid};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("the_agent_has_no_privileges", agent_status),
    ("the_agent_cannot_read_what_root_keeps", spool_files),
    ("the_account_of_the_agent_orders_nothing", own_account),
    ("a_step_survives_each_process_of_its_node", killed),
    ("names_of_step_sockets_cannot_be_guessed", step_sockets),
    ("a_full_queue_of_a_step_holds_up_no_launcher", full_queue),
    ("a_supervisor_that_is_told_to_ends_its_agent", told_to_end),
    ("a_supervisor_takes_its_agent_along", taken_along),
];

/// First argument of the program in the role of somebody who looks at the node.
pub const ROLE: &str = "privileges";

/// Whether what a descriptor leads to is a pipe.
fn is_pipe(target: &Path) -> bool {
    target.to_string_lossy().starts_with("pipe:")
}

fn status_of(pid: i32, key: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap();
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

fn agent_uid(node: &Node) -> u32 {
    status_of(node.agent_pid(), "Uid:")[0].parse().unwrap()
}

fn agent_status() {
    let dir = Dir::new("privileges");
    let mut node = Node::start(&dir, "n1");
    // A job and a step are there, so that all that it may hold for them is.
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x"])).connect();
    srun.started();
    let pid = node.agent_pid();
    for ids in ["Uid:", "Gid:"] {
        let ids = status_of(pid, ids);
        assert!(ids.iter().all(|id| id != "0" && *id == ids[0]), "{ids:?}");
    }
    assert_eq!(status_of(pid, "Groups:"), Vec::<String>::new());
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        let bits = status_of(pid, set).concat();
        assert!(bits.bytes().all(|b| b == b'0'), "{set} {bits}");
    }
    assert_eq!(status_of(pid, "NoNewPrivs:"), ["1"]);
    // It has no terminal of root's, where it could type.
    assert_eq!(getsid(Some(Pid::from_raw(pid))), Ok(Pid::from_raw(pid)));
    assert_eq!(status_of(pid, "Seccomp:"), ["2"], "no filter");
    // Nobody of its user may look into it: its files in /proc are root's.
    let mem = fs::metadata(format!("/proc/{pid}/mem")).unwrap();
    assert_eq!(mem.uid(), 0);
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    for variable in environment.split(|b| *b == 0).filter(|v| !v.is_empty()) {
        let variable = String::from_utf8_lossy(variable);
        let name = variable.split('=').next().unwrap();
        assert!(["TZ", "RUST_BACKTRACE"].contains(&name), "{variable}");
    }
    // It has no file, and no pipe but its own: what it writes there could hold root, who writes or reads too.
    let pipes_of = |pid: i32| -> Vec<PathBuf> {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let targets = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        targets
            .filter(|to| to != Path::new("/dev/null"))
            .filter(|to| to.is_absolute() || is_pipe(to))
            .collect()
    };
    let roots: Vec<PathBuf> = [node.supervisor_pid(), node.shim_pid()]
        .into_iter()
        .flat_map(pipes_of)
        .collect();
    for target in pipes_of(pid) {
        let is_own = is_pipe(&target) && !roots.contains(&target);
        assert!(is_own, "{}", target.display());
    }
    // The others are root's, and nobody else's.
    for pid in [node.supervisor_pid(), node.shim_pid()] {
        assert_eq!(status_of(pid, "Uid:"), ["0"; 4]);
    }
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    srun.finish();
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// Does something with the rights of the agent's account; gives what it prints.
fn as_agent(node: &Node, args: &[&str]) -> String {
    let uid = agent_uid(node);
    let output = Command::new("/proc/self/exe")
        .arg(ROLE)
        .args(args)
        .uid(uid)
        .gid(uid)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The program in that role.
pub fn run(args: &[String]) -> ExitCode {
    match args {
        [what, path] if what == "read" => println!("{:?}", fs::read(path).map_err(|e| e.kind())),
        [what, path] if what == "write" => {
            let opened = fs::File::options().append(true).open(path);
            println!("{:?}", opened.map(drop).map_err(|e| e.kind()));
        }
        [what, path] if what == "make" => {
            println!("{:?}", fs::write(path, "").map_err(|e| e.kind()));
        }
        [what, path] if what == "connect" => {
            let connected = UnixStream::connect(path);
            println!("{:?}", connected.map(drop).map_err(|e| e.kind()));
        }
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn spool_files() {
    let dir = Dir::new("spoolfiles");
    let mut node = Node::start(&dir, "n1");
    let job = JobMaker::new(1, &dir.0, "#!/bin/sh\nread x </dev/null; sleep 600\n");
    node.run(&job);
    allocate(2, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(2, &dir, &["sh", "-c", "read x"])).connect();
    srun.started();
    let denied = format!("Err({:?})\n", ErrorKind::PermissionDenied);
    let mut files = Vec::new();
    files_below(&node.spool, &mut files);
    assert!(files.len() > 4, "{files:?}");
    for file in &files {
        let path = file.to_str().unwrap();
        assert_eq!(as_agent(&node, &["write", path]), denied, "{path}");
        // What everybody may read tells nothing of jobs.
        let name = file.file_name().unwrap().to_str().unwrap();
        let is_open = matches!(
            name,
            "cross-memory" | "host" | "shim.pid" | "shim.lock" | "noded.lock"
        ) || name.ends_with(".x25519");
        if !is_open {
            assert_eq!(as_agent(&node, &["read", path]), denied, "{path}");
        }
    }
    let new = node.spool.join("new");
    assert_eq!(as_agent(&node, &["make", new.to_str().unwrap()]), denied);
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    srun.finish();
    for job in [1, 2] {
        node.terminate(job, TerminateReason::Finished);
        node.released(job);
    }
}

fn own_account() {
    let dir = Dir::new("account");
    let node = Node::start(&dir, "n1");
    let denied = format!("Err({:?})\n", ErrorKind::PermissionDenied);
    let launcher = node.spool.join("shim.sock");
    let launcher = launcher.to_str().unwrap();
    assert_eq!(as_agent(&node, &["connect", launcher]), denied);
    // Also if somebody has opened it by mistake.
    fs::set_permissions(launcher, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(as_agent(&node, &["connect", launcher]), "Ok(())\n");
    let until = Instant::now() + PATIENCE;
    while !dir
        .text("spool.n1/shim.log")
        .contains("a connection is refused")
    {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let agent = node.address();
    let agent = agent.strip_prefix("unix:").unwrap();
    assert_eq!(as_agent(&node, &["connect", agent]), "Ok(())\n");
}

/// Kills this process of a node, which then starts again.
fn kill_and_restart(node: &mut Node, pid: i32, ends_with: Option<i32>) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert_eq!(node.agent_status(), ends_with);
    node.disconnect();
    node.start_agent();
    node.accept();
}

fn killed() {
    let dir = Dir::new("killed");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    srun.started();
    let launcher = node.shim_pid();
    // The agent's end is the supervisor's, with a status that tells of it.
    let agent = node.agent_pid();
    kill_and_restart(&mut node, agent, Some(128 + Signal::SIGKILL as i32));
    let supervisor = node.supervisor_pid();
    kill_and_restart(&mut node, supervisor, None);
    assert_eq!(node.shim_pid(), launcher, "it goes on");
    // The supervisor starts another launcher.
    let (supervisor, agent) = (node.supervisor_pid(), node.agent_pid());
    node.kill_shim();
    assert_ne!(node.shim_pid(), launcher);
    assert_eq!(
        (supervisor, agent),
        (node.supervisor_pid(), node.agent_pid())
    );
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    assert_eq!(srun.finish().exits[&0], ExitStatus { code: 5, signal: 0 });
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// Everybody may read the names of all sockets, and look for files in the spool directory. Sockets of steps were named after job and
/// step, which showed the jobs of others. The next launcher finds a daemon of the version before by such a name.
fn step_sockets() {
    let dir = Dir::new("stepsockets");
    let mut node = Node::start(&dir, "n1");
    let job = 1_234_567;
    allocate(job, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(job, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    srun.started();
    let public = fs::read_to_string("/proc/net/unix").unwrap();
    let mut of_node = public.lines().filter(|line| line.contains("-stepsockets/"));
    let shown = of_node.find(|line| line.contains("1234567"));
    assert_eq!(shown, None, "the number of the job is seen");
    for step in 0..100 {
        let guessed = node.spool.join(format!("step-{job}.{step}.sock"));
        assert!(!guessed.exists(), "{}", guessed.display());
    }
    let socket = node.step_socket();
    let earlier = node.spool.join(format!("step-{job}.0.sock"));
    fs::rename(&socket, &earlier).unwrap();
    another_shim(&mut node);
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    assert_eq!(srun.finish().exits[&0], ExitStatus { code: 5, signal: 0 });
    assert_eq!(step_end(&mut node, job, 0).exit.code, 5);
    node.terminate(job, TerminateReason::Finished);
    node.released(job);
    assert!(!earlier.exists(), "{}", earlier.display());
}

/// The socket of a step is its user's: who fills the queue there had the next launcher wait without end.
fn full_queue() {
    let dir = Dir::new("fullqueue");
    // A queue may be longer than a process may have descriptors.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    let task = srun.started()[0];
    let daemon: i32 = status_of(task.try_into().unwrap(), "PPid:")[0]
        .parse()
        .unwrap();
    let daemon = Pid::from_raw(daemon);
    kill(daemon, Signal::SIGSTOP).unwrap();
    let address = UnixAddr::new(&node.step_socket()).unwrap();
    let mut queue = Vec::new();
    let full = loop {
        let flags = SockFlag::SOCK_NONBLOCK;
        let own = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        match connect(own.as_raw_fd(), &address) {
            Ok(()) => queue.push(own),
            Err(e) => break e,
        }
    };
    assert_eq!(full, Errno::EAGAIN);
    another_shim(&mut node);
    drop(queue);
    kill(daemon, Signal::SIGCONT).unwrap();
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    assert_eq!(srun.finish().exits[&0], ExitStatus { code: 5, signal: 0 });
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

fn told_to_end() {
    let dir = Dir::new("told");
    let mut node = Node::start(&dir, "n1");
    let agent = muster_node::pidfd(node.agent_pid()).unwrap();
    kill(Pid::from_raw(node.supervisor_pid()), Signal::SIGTERM).unwrap();
    assert_eq!(node.agent_status(), Some(0));
    wait_for_end(&agent);
    assert!(!node.spool.join("noded.sock").exists());
    assert_eq!(status_of(node.shim_pid(), "Uid:"), ["0"; 4]);
}

fn taken_along() {
    let dir = Dir::new("along");
    let mut node = Node::start(&dir, "n1");
    let agent = muster_node::pidfd(node.agent_pid()).unwrap();
    kill(Pid::from_raw(node.supervisor_pid()), Signal::SIGKILL).unwrap();
    assert_eq!(node.agent_status(), None);
    wait_for_end(&agent);
}
