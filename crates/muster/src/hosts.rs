//! `muster up --hosts`: the nodes of a private cluster, its controller and a login node as small hosts. Each has network, UTS,
//! mount and PID namespaces of its own; a bridge in a network namespace of the cluster's own joins them.
//!
//! One process, the cluster's holder, keeps it all: it has a pipe to the first process of each host, which ends at the pipe's
//! end and takes all processes of its PID namespace along. So nothing is left behind whatever is killed.

use crate::daemon::{self, PidFile};
use crate::home::Home;
use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{geteuid, sethostname};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// The controller's host.
pub(crate) const CONTROLLER: &str = "ctl";
/// The host from which users submit.
pub(crate) const LOGIN: &str = "login";
/// Most nodes: their addresses are of one /24.
pub(crate) const NODES_MAX: u32 = 200;
/// Programs of other packages, and the package of each.
const PROGRAMS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("munged", "munge"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("sh", "dash"),
];
/// Bytes of the cluster's munge key.
const KEY_BYTES: usize = 1024;

/// Mounts of a host. `$1` is the cluster's directory, `$2` the host's name.
const MOUNTS: &str = r#"
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 stage /mnt
mkdir /mnt/home /mnt/upper /mnt/work
mount --bind "$1" /mnt/home
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work overlay /etc
for file in hosts hostname resolv.conf; do rm -f "/etc/$file"; done
cat /mnt/home/hosts/hosts > /etc/hosts
echo "$2" > /etc/hostname
: > /etc/resolv.conf
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mkdir -p "$1"
mount --move /mnt/home "$1"
umount -l /mnt
"#;

/// Network of a host. `$1` is its name, `$2` its first process, `$3` its address.
const LINK: &str = r#"
ip link add "h.$1" type veth peer name eth0 netns "$2"
ip link set "h.$1" master br0 up
nsenter -t "$2" -n ip addr add "$3/24" dev eth0
nsenter -t "$2" -n ip link set eth0 up
nsenter -t "$2" -n ip link set lo up
"#;

/// Whether a cluster has hosts of its own.
pub(crate) fn are_in(home: &Home) -> bool {
    home.at("hosts").exists()
}

/// Refuses what hosts cannot do without.
///
/// # Errors
/// What is missing, and how to get it.
pub(crate) fn check() -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "'muster up --hosts' makes namespaces and mounts, for which it must be root: use sudo, or leave --hosts out"
    );
    for (program, package) in PROGRAMS {
        ensure!(
            is_installed(program),
            "'muster up --hosts' needs the program {program}, which is not installed (Debian: apt install {package})"
        );
    }
    Ok(())
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/sbin"]);
    dirs.into_iter()
        .any(|dir| Path::new(dir).join(program).is_file())
}

/// The address of the nth host: the controller is 1, the login host 2, nodes follow.
fn address(nth: usize) -> String {
    format!("10.91.0.{nth}")
}

/// slurm.conf of a private cluster, as one of hosts.
pub(crate) fn conf(home: &Path, local: &str) -> String {
    let mut text = String::new();
    for line in local.lines() {
        if line.starts_with("SlurmctldHost=") {
            let _ = writeln!(text, "SlurmctldHost={CONTROLLER}({})", address(1));
            let socket = home.join("munge/socket");
            let _ = writeln!(
                text,
                "AuthType=auth/munge\nAuthInfo=socket={}",
                socket.display()
            );
        } else if let Some(rest) = line.strip_prefix("NodeName=") {
            nodes(&mut text, rest);
        } else if line.starts_with("TmpFS=") {
            text.push_str("TmpFS=/tmp\n");
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// A line for each node of `n1 ...` or `n[1-N] ...`.
fn nodes(text: &mut String, line: &str) {
    let (names, rest) = line.split_once(' ').unwrap_or((line, ""));
    let count = names
        .trim_end_matches(']')
        .rsplit(['-', 'n'])
        .next()
        .and_then(|n| n.parse::<usize>().ok());
    let kept: Vec<&str> = rest
        .split(' ')
        .filter(|word| !word.starts_with("NodeHostname=") && !word.starts_with("NodeAddr="))
        .collect();
    for n in 1..=count.unwrap_or(1) {
        let _ = writeln!(
            text,
            "NodeName=n{n} NodeAddr={} {}",
            address(n + 2),
            kept.join(" ")
        );
    }
}

/// All hosts, in the order of their addresses.
fn names(home: &Home) -> Vec<String> {
    let first = [CONTROLLER, LOGIN].map(str::to_owned);
    first.into_iter().chain(home.names()).collect()
}

fn holder_pid_file(home: &Home) -> PathBuf {
    home.at("hosts/holder.pid")
}

/// The first process of a host, while the cluster's holder lives.
fn first_process(home: &Home, host: &str) -> Result<u32> {
    let is_up = daemon::alive(&holder_pid_file(home)).is_some();
    ensure!(
        is_up,
        "no cluster with hosts runs in {}; start one with 'muster up --hosts'",
        home.0.display()
    );
    let known = names(home);
    ensure!(
        known.iter().any(|name| name == host),
        "there is no host '{host}' in this cluster; it has {}",
        known.join(" ")
    );
    let path = home.at(&format!("hosts/{host}.first"));
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{} has no process id", path.display()))
}

/// A program in a host's namespaces.
///
/// # Errors
/// The host does not run.
pub(crate) fn command(home: &Home, host: &str, program: &Path) -> Result<Command> {
    let first = first_process(home, host)?.to_string();
    let mut command = Command::new("nsenter");
    command.args(["-t", &first, "-m", "-u", "-n", "-p", "--"]);
    command.arg(program);
    Ok(command)
}

/// Starts the hosts and the cluster's munged, unless they run.
///
/// # Errors
/// When a host cannot be made.
pub(crate) fn start(home: &Home) -> Result<()> {
    if daemon::alive(&holder_pid_file(home)).is_some() {
        return Ok(());
    }
    let mut table = "127.0.0.1 localhost\n".to_owned();
    for (nth, name) in names(home).iter().enumerate() {
        let _ = writeln!(table, "{} {name}", address(nth + 1));
    }
    fs::write(home.at("hosts/hosts"), table).context("cannot write the hosts' /etc/hosts")?;
    let output = Command::new(home.at("bin/muster"))
        .args(["host", "--hold"])
        .env("MUSTER_HOME", &home.0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .context("cannot start the holder of the hosts")?;
    ensure!(
        output.status.success(),
        "the hosts did not start: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    start_munged(home)
}

/// munged, on the controller's host: it ends with that.
fn start_munged(home: &Home) -> Result<()> {
    let dir = home.at("munge");
    home.make_dir("munge", 0o755)?;
    for name in ["socket", "socket.lock", "pid", "seed"] {
        let _ = fs::remove_file(dir.join(name));
    }
    let key = dir.join("key");
    if !key.exists() {
        let mut bytes = vec![0; KEY_BYTES];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .context("cannot read /dev/urandom")?;
        let mut options = fs::OpenOptions::new();
        let made = options.create_new(true).write(true).mode(0o600).open(&key);
        made.and_then(|mut file| file.write_all(&bytes))
            .context("cannot make munge's key")?;
    }
    let option = |name: &str, file: &str| format!("--{name}={}", dir.join(file).display());
    let output = command(home, CONTROLLER, Path::new("munged"))?
        .arg("--force")
        .args([option("key-file", "key"), option("socket", "socket")])
        .args([option("pid-file", "pid"), option("seed-file", "seed")])
        .arg(option("log-file", "log"))
        .stdin(Stdio::null())
        .output()
        .context("cannot start munged")?;
    ensure!(
        output.status.success(),
        "munged did not start: {}; its log is {}",
        String::from_utf8_lossy(&output.stderr).trim(),
        dir.join("log").display()
    );
    Ok(())
}

/// The first processes of all hosts that run.
pub(crate) fn first_processes(home: &Home) -> Vec<i32> {
    let names = names(home);
    let found = names
        .iter()
        .filter_map(|name| first_process(home, name).ok());
    found.filter_map(|id| i32::try_from(id).ok()).collect()
}

/// The cluster's holder, if it lives: with it all hosts end.
pub(crate) fn holder(home: &Home) -> Option<i32> {
    daemon::alive(&holder_pid_file(home))
}

/// `muster host NODE [COMMAND...]`, and what the cluster starts.
pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    match args {
        [word] if word == "--hold" => hold(),
        [word, name] if word == "--begin" => begin(name),
        [word, name] if word == "--first" => first(name),
        [host, words @ ..] if !host.starts_with('-') => enter(host, words),
        _ => bail!("usage: muster host NODE [COMMAND...]"),
    }
}

/// Runs a command on a host, in the directory where it was called if that is there.
fn enter(host: &str, words: &[String]) -> Result<ExitCode> {
    let home = Home::find()?;
    ensure!(
        geteuid().is_root(),
        "'muster host' enters namespaces of root's: use sudo"
    );
    home.check_owner()?;
    let shell = [std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())];
    let words = if words.is_empty() { &shell } else { words };
    let dir = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let path = std::env::var("PATH").unwrap_or_default();
    let error = command(&home, host, Path::new("/bin/sh"))?
        .args(["-c", "cd \"$0\" 2>/dev/null; exec \"$@\""])
        .arg(dir)
        .args(words)
        .env("MUSTER_HOME", &home.0)
        .env("SLURM_CONF", home.conf())
        .env("PATH", format!("{}:{path}", home.at("bin").display()))
        .exec();
    Err(error).context("cannot run nsenter (Debian: apt install util-linux)")
}

fn script(text: &str, args: &[&str]) -> Result<()> {
    let output = Command::new("sh")
        .args(["-euc", text, "sh"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("cannot run sh")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// The cluster's holder: makes the bridge and the hosts, and waits for a signal that ends it.
fn hold() -> Result<ExitCode> {
    let home = Home::find()?;
    let ready = daemon::daemonise()?;
    let _pid_file = PidFile::take(&holder_pid_file(&home))?;
    unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
    script("ip link add br0 type bridge; ip link set br0 up", &[])
        .context("cannot make a bridge")?;
    let mut hosts = Vec::new();
    for (nth, name) in names(&home).iter().enumerate() {
        let host = make(&home, name, &address(nth + 1));
        hosts.push(host.with_context(|| format!("host {name}"))?);
    }
    ready.report();
    // The pipes to the hosts are open until this process ends.
    loop {
        nix::unistd::pause();
    }
}

/// Makes a host; it lives until the pipe to it closes.
fn make(home: &Home, name: &str, address: &str) -> Result<Child> {
    let mut child = Command::new(home.at("bin/muster"))
        .args(["host", "--begin", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start its first process")?;
    let mut said = String::new();
    let mut out = child.stdout.take().context("no pipe")?;
    out.read_to_string(&mut said)
        .context("cannot read what its first process says")?;
    let Some(id) = said.strip_prefix("ready ") else {
        bail!("its mounts could not be made; {}", said.trim());
    };
    let id = id.trim();
    script(LINK, &[name, id, address]).context("cannot make its network")?;
    fs::write(home.at(&format!("hosts/{name}.first")), id)
        .context("cannot write its process id")?;
    Ok(child)
}

/// Makes the namespaces of a host and starts its first process, which has the pipe.
fn begin(name: &str) -> Result<ExitCode> {
    let spaces = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID;
    unshare(spaces).context("cannot make namespaces")?;
    sethostname(name).context("cannot set its name")?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["host", "--first", name])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start its first process")?;
    let mut said = String::new();
    let mut out = child.stdout.take().context("no pipe")?;
    out.read_to_string(&mut said)?;
    match said.as_str() {
        "" => say!("ready {}\n", child.id()),
        error => say!("{error}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// The first process of a host. The kernel ends all others of its PID namespace with it.
fn first(name: &str) -> Result<ExitCode> {
    let home = Home::find()?;
    if let Err(e) = script(MOUNTS, &[&home.0.display().to_string(), name]) {
        say!("{e:#}\n");
        return Ok(ExitCode::FAILURE);
    }
    // SAFETY: no handler is installed. Orphans of the host, which are this process's children, are not waited for.
    #[allow(unsafe_code)]
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }.context("cannot ignore SIGCHLD")?;
    // The process that started this one waits for the end of these streams, and so does `muster up`.
    let null = fs::OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_an_address_and_the_rest_stays() {
        let local = "SlurmctldHost=h(127.0.0.1)\nReturnToService=2\n\
                     NodeName=n[1-12] NodeHostname=h NodeAddr=127.0.0.1 CPUs=2\nTmpFS=/x/tmp.%n\n";
        let text = conf(Path::new("/x"), local);
        assert!(text.starts_with(
            "SlurmctldHost=ctl(10.91.0.1)\nAuthType=auth/munge\nAuthInfo=socket=/x/munge/socket\nReturnToService=2\n\
             NodeName=n1 NodeAddr=10.91.0.3 CPUs=2\n"
        ));
        assert!(text.ends_with("NodeName=n12 NodeAddr=10.91.0.14 CPUs=2\nTmpFS=/tmp\n"));
    }
}
