//! A private cluster on this machine: `muster up`, `muster down`, `muster env`, and `muster config check`.

use crate::daemon;
use crate::given_conf;
use crate::given_configuration;
use crate::home::Home;
use crate::hosts;
use crate::install;
use crate::slurm_user;
use crate::slurmctld;
use crate::web;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use muster_cli::connect::Client;
use muster_conf::{Diagnostic, Severity, read_from_disk};
use muster_proto::client::{RequestBody, Response};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the end of a private cluster's daemons.
const DOWN_MAX: Duration = Duration::from_secs(20);

struct UpArgs {
    nodes: Option<u32>,
    cpus: Option<u32>,
    conf: Option<PathBuf>,
    /// Each node is a host of its own.
    hosts: bool,
    /// Run time of jobs, if one process speaks for all nodes.
    emulate: Option<String>,
    /// NUMA domains of emulated nodes.
    numa: Option<String>,
    /// Users have tokens.
    web: bool,
}

fn up_args(args: &[String]) -> Result<UpArgs> {
    let mut parsed = UpArgs {
        nodes: None,
        cpus: None,
        conf: None,
        hosts: false,
        emulate: None,
        numa: None,
        web: false,
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            inline
                .clone()
                .or_else(|| words.next().cloned())
                .with_context(|| format!("{name} needs a value"))
        };
        let number = |text: String, what: &str, max: u32| {
            let n = text.parse().ok().filter(|n| (1..=max).contains(n));
            n.with_context(|| format!("{what} takes a number from 1 to {max}, not '{text}'"))
        };
        match name {
            "--nodes" | "-n" => parsed.nodes = Some(number(value()?, "--nodes", 10_000)?),
            "--cpus" | "-c" => parsed.cpus = Some(number(value()?, "--cpus", 65_536)?),
            "--file" | "-f" => parsed.conf = Some(value()?.into()),
            "--hosts" => parsed.hosts = true,
            "--web" => parsed.web = true,
            "--emulate" => {
                parsed.emulate.get_or_insert("0".to_owned());
            }
            "--run-time" => {
                let text = value()?;
                crate::emulate::run_time(&text)?;
                parsed.emulate = Some(text);
            }
            "--numa" => {
                let text = value()?;
                crate::emulate::Numa::parse(&text)?;
                parsed.numa = Some(text);
            }
            _ => bail!("'muster up' has no option '{word}'; 'muster up --help' lists them"),
        }
    }
    if parsed.hosts && (parsed.conf.is_some() || parsed.emulate.is_some()) {
        bail!("--hosts makes a cluster of its own: it goes neither with --file nor with --emulate");
    }
    if parsed.web && parsed.hosts {
        bail!("--web does not go with --hosts: a browser does not reach those hosts");
    }
    if parsed.web && parsed.conf.is_some() {
        bail!(
            "--web does not go with --file: that file says itself whether users have tokens (docs/rest.md)"
        );
    }
    Ok(parsed)
}

/// `muster up`.
///
/// # Errors
/// When the cluster cannot be started; the message says where to look.
pub(crate) fn up(args: &[String]) -> Result<ExitCode> {
    let args = up_args(args)?;
    let home = Home::find()?;
    home.check_length()?;
    let started = Instant::now();
    home.check_owner()?;
    let has_hosts = prepare_hosts(&home, &args)?;
    for dir in ["state", "run", "log", "bin"] {
        let path = home.at(dir);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    install::into(&home.at("bin"))?;
    prepare_conf(&home, &args)?;
    let names = home.names();
    let agents: &[String] = if args.emulate.is_some() { &[] } else { &names };
    for name in agents {
        for kind in ["spool", "tmp"] {
            let mode = if kind == "tmp" { 0o1777 } else { 0o711 };
            home.make_dir(&format!("{kind}.{name}"), mode)?;
        }
    }
    if has_hosts {
        hosts::start(&home)?;
    }
    if daemon::alive(&home.ctld_pid_file()).is_none() {
        start(&home, hosts::CONTROLLER, "slurmctld", &[], "controller")?;
    }
    if let Some(run_time) = &args.emulate {
        start_emulator(&home, run_time, args.numa.as_deref())?;
    }
    for name in agents {
        if daemon::alive(&home.node_pid_file(name)).is_none() {
            start(
                &home,
                name,
                "slurmd",
                &["-N", name],
                &format!("agent of node {name}"),
            )?;
        }
    }
    if has_hosts {
        let status = hosts::command(&home, hosts::CONTROLLER, &home.at("bin/muster"))?
            .args(["host", "--wait"])
            .env("MUSTER_HOME", &home.0)
            .env("SLURM_CONF", home.conf())
            .status()?;
        if !status.success() {
            bail!(
                "not all nodes came up; logs are in {}",
                home.at("log").display()
            );
        }
    } else {
        wait_for_nodes(&home, names.len())?;
    }
    let way = match hosts::are_in(&home) {
        true => format!("{} host login", own_name()),
        false => format!("eval \"$({} env)\"", own_name()),
    };
    let browser = match Own::of(&home.conf()).has_tokens && !hosts::are_in(&home) {
        true => format!("\n\nand in a browser\n\n  {} web", own_name()),
        false => String::new(),
    };
    say!(
        "{} nodes are up after {:.1} s. To use them:\n\n  {way}\n\nthen for example\n\n  \
         sinfo\n  srun -N2 hostname\n  sbatch --array=1-100 --wrap 'echo task $SLURM_ARRAY_TASK_ID'\n  squeue\n  \
         sacct{browser}\n\nState, logs and slurm.conf are in {}; 'muster down' stops it.\n",
        names.len(),
        started.elapsed().as_secs_f32(),
        home.0.display(),
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether the cluster's nodes are to be hosts; makes the directory that says so.
fn prepare_hosts(home: &Home, args: &UpArgs) -> Result<bool> {
    if !args.hosts && !hosts::are_in(home) {
        return Ok(false);
    }
    hosts::check()?;
    if args.conf.is_some() || args.emulate.is_some() {
        bail!(
            "the nodes of {} are hosts: give another MUSTER_HOME, or 'muster down --purge'",
            home.0.display()
        );
    }
    if !hosts::are_in(home) && home.conf().exists() {
        bail!(
            "{} has a cluster that was made without --hosts: remove it with 'muster down --purge', or give another MUSTER_HOME",
            home.0.display()
        );
    }
    if args.nodes.is_some_and(|nodes| nodes > hosts::NODES_MAX) {
        bail!("--hosts goes with up to {} nodes", hosts::NODES_MAX);
    }
    fs::create_dir_all(&home.0)?;
    home.make_dir("hosts", 0o755)?;
    Ok(true)
}

/// `muster host`.
///
/// # Errors
/// When there is no such host.
pub(crate) fn host(args: &[String]) -> Result<ExitCode> {
    match args {
        [word] if word == "--wait" => wait_on_controller(),
        [word, name] if word == "--stop" => stop_on_host(name),
        _ => hosts::main(args),
    }
}

/// Waits for nodes on the controller's host.
fn wait_on_controller() -> Result<ExitCode> {
    let home = Home::find()?;
    wait_for_nodes(&home, home.names().len())?;
    Ok(ExitCode::SUCCESS)
}

/// Ends a host's daemons and jobs; runs on that host, since process ids are its own.
fn stop_on_host(name: &str) -> Result<ExitCode> {
    let home = Home::find()?;
    let pid_file = match name == hosts::CONTROLLER {
        true => home.ctld_pid_file(),
        false => home.node_pid_file(name),
    };
    let pids: Vec<i32> = daemon::alive(&pid_file)
        .filter(|pid| is_daemon_of(&home, *pid))
        .into_iter()
        .collect();
    for pid in &pids {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
    }
    wait_for_end(&pids)?;
    let spool = home.at(&format!("spool.{name}"));
    if spool.exists() {
        muster_node::stop_launcher(&spool, true)
            .with_context(|| format!("cannot end the processes of {}", spool.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends all hosts: their daemons first, then whatever else is there.
fn stop_hosts(home: &Home) -> Result<()> {
    let Some(holder) = hosts::holder(home) else {
        return Ok(());
    };
    let nodes = home.names();
    for name in nodes.iter().map(String::as_str).chain([hosts::CONTROLLER]) {
        let stopped = hosts::command(home, name, &home.at("bin/muster"))?
            .args(["host", "--stop", name])
            .env("MUSTER_HOME", &home.0)
            .status()?;
        if !stopped.success() {
            complain!("muster down: processes of host {name} are killed");
        }
    }
    let firsts = hosts::first_processes(home);
    kill(Pid::from_raw(holder), Signal::SIGTERM).context("cannot end the holder of the hosts")?;
    wait_for_end(&[vec![holder], firsts].concat())
}

fn start_emulator(home: &Home, run_time: &str, numa: Option<&str>) -> Result<()> {
    let pid_file = home.emulator_pid_file();
    if daemon::alive(&pid_file).is_some() {
        return Ok(());
    }
    let pid_file = pid_file.display().to_string();
    let report = home.at("run/emulator.json").display().to_string();
    let mut words = vec![
        "emulate",
        "nodes",
        "--run-time",
        run_time,
        "--pid-file",
        &pid_file,
        "--report",
        &report,
    ];
    if let Some(numa) = numa {
        words.extend(["--numa", numa]);
    }
    start(
        home,
        "",
        "muster",
        &words,
        "process that speaks for the nodes",
    )
}

/// `muster install DIR`.
pub(crate) fn install(args: &[String]) -> Result<ExitCode> {
    let [dir] = args else {
        bail!("usage: muster install DIR");
    };
    let dir = Path::new(dir);
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    install::into(dir)?;
    install::libraries(dir)?;
    Ok(ExitCode::SUCCESS)
}

fn own_name() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "muster".to_owned())
}

/// Nodes of a private cluster of which nothing is said.
const NODES: u32 = 4;
/// Port of its controller, as in Slurm: it names the controller's socket, and nobody listens there unless users have tokens.
const PORT: u16 = 6817;
/// The key of its users' tokens.
const TOKEN_KEY: &str = "jwt.key";

/// Prepares slurm.conf: an existing file stays, unless another is requested.
fn prepare_conf(home: &Home, args: &UpArgs) -> Result<()> {
    let path = home.conf();
    let there = fs::read_to_string(&path).ok();
    let text = match (&args.conf, &there) {
        (Some(given), _) => {
            let own = own_conf(home, NODES, default_cpus(), memory_mib()?, Own::default())?;
            let adapted = given_conf::adapt(given, &path, &own)?;
            for warning in &adapted.warnings {
                complain!("muster up: {warning}");
            }
            if there.as_ref() != Some(&adapted.text) {
                refuse_while_running(home)?;
                refuse_other_cluster(home, given)?;
            }
            given_conf::bring_companions(given, &path)?;
            adapted.text
        }
        (None, Some(there)) => match other_size(home, args, there)? {
            Some(text) => text,
            None => return Ok(()),
        },
        (None, None) => {
            let (nodes, cpus) = (args.nodes.unwrap_or(NODES), args.cpus);
            let text = own_conf(
                home,
                nodes,
                cpus.unwrap_or_else(default_cpus),
                memory_mib()?,
                Own::new(home, args.web)?,
            )?;
            check_own(&path, &text)?;
            text
        }
    };
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn default_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Settings by which one private cluster differs from another of its size.
#[derive(Clone, Copy)]
struct Own {
    port: u16,
    has_tokens: bool,
}

impl Default for Own {
    fn default() -> Own {
        Own {
            port: PORT,
            has_tokens: false,
        }
    }
}

impl Own {
    /// Settings of a new cluster. With tokens it listens for their users.
    fn new(home: &Home, has_tokens: bool) -> Result<Own> {
        if !has_tokens {
            return Ok(Own::default());
        }
        web::make_key(&home.at(TOKEN_KEY))?;
        let port = web::free_port(PORT)?;
        Ok(Own { port, has_tokens })
    }

    /// Settings that a slurm.conf has.
    fn of(conf: &Path) -> Own {
        let (config, _) = muster_conf::load(conf);
        Own {
            port: *config.slurmctld_ports.start(),
            has_tokens: config.text("AuthAltTypes").is_some(),
        }
    }
}

/// The slurm.conf of a private cluster.
fn own_conf(home: &Home, nodes: u32, cpus: u32, memory_mib: u64, own: Own) -> Result<String> {
    let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
    let user = User::from_uid(geteuid())?.map_or_else(|| geteuid().to_string(), |user| user.name);
    let text = muster_conf::write_minimal(&muster_conf::PrivateClusterConfig {
        host: &host,
        port: own.port,
        user: &user,
        home: &home.0,
        nodes,
        cpus,
        memory_mib,
        token_key: own.has_tokens.then(|| home.at(TOKEN_KEY)).as_deref(),
    });
    let text = text + &format!("TmpFS={}/tmp.%n\n", home.0.display());
    Ok(match hosts::are_in(home) {
        true => hosts::conf(&home.0, &text),
        false => text,
    })
}

/// The slurm.conf of the size that is asked for, if the one that is there is of another. One that somebody has edited is never
/// written over.
fn other_size(home: &Home, args: &UpArgs, there: &str) -> Result<Option<String>> {
    let path = home.conf();
    let (config, _) = muster_conf::load(&path);
    let size = u32::try_from(config.nodes.len()).unwrap_or(u32::MAX);
    let (cpus, memory_mib) = config
        .nodes
        .first()
        .map_or((0, 0), |node| (node.cpus, node.real_memory_mib));
    let (nodes_now, cpus_now) = (args.nodes.unwrap_or(size), args.cpus.unwrap_or(cpus));
    let own = Own::of(&path);
    let is_without_tokens = args.web && !own.has_tokens;
    if (nodes_now, cpus_now) == (size, cpus) && !is_without_tokens {
        return Ok(None);
    }
    if daemon::alive(&home.ctld_pid_file()).is_some() {
        bail!(
            "a cluster of {size} nodes with {cpus} CPUs{} runs in {}; stop it with 'muster down', or give another MUSTER_HOME",
            if is_without_tokens {
                " and no tokens"
            } else {
                ""
            },
            home.0.display()
        );
    }
    if own_conf(home, size, cpus, memory_mib, own)? != there {
        bail!(
            "{} has {size} nodes with {cpus} CPUs and was edited or given: change its NodeName lines, or remove it with \
             'muster down --purge'",
            path.display()
        );
    }
    let own = match is_without_tokens {
        true => Own::new(home, true)?,
        false => own,
    };
    let text = own_conf(home, nodes_now, cpus_now, self::memory_mib()?, own)?;
    check_own(&path, &text)?;
    Ok(Some(text))
}

/// Refuses another configuration under a cluster that runs.
fn refuse_while_running(home: &Home) -> Result<()> {
    if daemon::alive(&home.ctld_pid_file()).is_some() {
        bail!(
            "a cluster with another configuration runs in {}; stop it with 'muster down', or give another MUSTER_HOME",
            home.0.display()
        );
    }
    Ok(())
}

/// Refuses the configuration of another cluster than the one whose state is there.
fn refuse_other_cluster(home: &Home, given: &Path) -> Result<()> {
    if !home.conf().exists() || !home.at("state/journal/journal.id").exists() {
        return Ok(());
    }
    let name = |path: &Path| muster_conf::load(path).0.cluster_name;
    let (there, other) = (name(&home.conf()), name(given));
    if there != other {
        bail!(
            "{} has the state of cluster '{there}', and {} is of cluster '{other}': remove that state with \
             'muster down --purge', or give another MUSTER_HOME",
            home.0.display(),
            given.display()
        );
    }
    Ok(())
}

/// Numbers that are given may be more than a configuration can have.
fn check_own(path: &Path, text: &str) -> Result<()> {
    let (_, findings) = muster_conf::load_text(path, text);
    let errors: Vec<String> = findings
        .iter()
        .filter(|d| d.severity == muster_conf::Severity::Error)
        .map(ToString::to_string)
        .collect();
    if !errors.is_empty() {
        bail!("the configuration has errors:\n{}", errors.join("\n"));
    }
    Ok(())
}

fn memory_mib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let kib = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    Ok(kib.context("/proc/meminfo has no MemTotal")? >> 10)
}

/// Starts a daemon: on this machine, or on its host.
fn start(home: &Home, host: &str, link: &str, args: &[&str], what: &str) -> Result<()> {
    let log = home.at(&format!("log/{link}.out"));
    let out = muster_node::open_own(&log, fs::OpenOptions::new().create(true).append(true))
        .with_context(|| format!("cannot open {}", log.display()))?;
    let program = home.at("bin").join(link);
    let mut command = match hosts::are_in(home) {
        true => hosts::command(home, host, &program)?,
        false => Command::new(program),
    };
    let output = command
        .args(args)
        .env("SLURM_CONF", home.conf())
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .with_context(|| format!("cannot start the {what}"))?;
    if !output.status.success() {
        bail!(
            "the {what} did not start:\n{}its log is in {}",
            String::from_utf8_lossy(&output.stderr),
            home.at("log").display()
        );
    }
    Ok(())
}

/// Time limit for the next node to come.
const NODES_WAIT: Duration = Duration::from_secs(30);

fn wait_for_nodes(home: &Home, count: usize) -> Result<()> {
    let bar = ProgressBar::new(count as u64);
    bar.set_style(
        ProgressStyle::with_template("{spinner} {pos} of {len} nodes are up")
            .expect("a fixed template"),
    );
    let wanted = u32::try_from(count).unwrap_or(u32::MAX);
    let mut client = Client::connect_to(&home.conf())?;
    client.stream().set_read_timeout(Some(NODES_WAIT))?;
    client.send(RequestBody::WaitNodes(wanted))?;
    let mut up = 0;
    while up < wanted {
        up = match client.receive() {
            Ok(Response::NodesUp(up)) => up,
            Ok(_) => bail!("unexpected answer"),
            // None came for long, or the controller is gone.
            Err(e) => bail!(
                "{up} of {count} nodes came up ({e}); the others' logs are in {}",
                home.at("log").display()
            ),
        };
        bar.set_position(up.into());
    }
    bar.finish_and_clear();
    Ok(())
}

/// `muster down`.
///
/// # Errors
/// When a process cannot be stopped.
pub(crate) fn down(args: &[String]) -> Result<ExitCode> {
    let purge = match args {
        [] => false,
        [one] if one == "--purge" => true,
        _ => bail!("'muster down' takes --purge or nothing"),
    };
    let home = Home::find()?;
    if !home.conf().exists() {
        say!("There is no cluster in {}.\n", home.0.display());
        return Ok(ExitCode::SUCCESS);
    }
    home.check_owner()?;
    let has_hosts = hosts::are_in(&home);
    if has_hosts {
        stop_hosts(&home)?;
    }
    // Also what an earlier configuration had. Numbers of processes of hosts mean nothing here.
    let pid_files = if has_hosts {
        Vec::new()
    } else {
        home.list("run", "", ".pid")
    };
    let pids = pid_files.iter().filter_map(|f| daemon::alive(f));
    let pids: Vec<i32> = pids.filter(|pid| is_daemon_of(&home, *pid)).collect();
    for pid in &pids {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
    }
    wait_for_end(&pids)?;
    let spools = if has_hosts {
        Vec::new()
    } else {
        home.list("", "spool.", "")
    };
    for spool in spools {
        muster_node::stop_launcher(&spool, true)
            .with_context(|| format!("cannot end the processes of {}", spool.display()))?;
    }
    if purge {
        fs::remove_dir_all(&home.0)
            .with_context(|| format!("cannot remove {}", home.0.display()))?;
    }
    say!(
        "The cluster in {} is down{}.\n",
        home.0.display(),
        if purge {
            ", its state is removed"
        } else {
            "; 'muster up' starts it again"
        }
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether a process runs a program of this cluster's. SlurmUser, who can write pid files, does not choose what root ends.
fn is_daemon_of(home: &Home, pid: i32) -> bool {
    if !geteuid().is_root() {
        return true;
    }
    let bin = fs::canonicalize(home.at("bin"));
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    matches!((bin, program), (Ok(bin), Ok(program)) if program.starts_with(&bin))
}

/// Waits for daemons that were asked to end. They are nobody's children here, and who inherits them may leave them
/// zombies for seconds: what counts is that they have ended.
fn wait_for_end(pids: &[i32]) -> Result<()> {
    let until = Instant::now() + DOWN_MAX;
    for pid in pids {
        // Gone already.
        let Ok(process) = muster_node::pidfd(*pid) else {
            continue;
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(0) => bail!("process {pid} does not end after SIGTERM; see its log"),
                Err(Errno::EINTR) => {}
                result => break result.map(drop).context("cannot wait for a process")?,
            }
        }
    }
    Ok(())
}

/// `muster env`.
///
/// # Errors
/// When there is no cluster.
pub(crate) fn env(args: &[String]) -> Result<ExitCode> {
    if !args.is_empty() {
        bail!("'muster env' takes no arguments");
    }
    let home = Home::find()?;
    home.check_owner()?;
    if !home.conf().exists() {
        bail!(
            "there is no cluster in {}; start one with 'muster up'",
            home.0.display()
        );
    }
    let quoted = |path: &Path| quote(&path.display().to_string());
    let bin = home.at("bin");
    say!("export MUSTER_HOME={}\n", quoted(&home.0));
    say!("export SLURM_CONF={}\n", quoted(&home.conf()));
    say!("export PATH={}:\"$PATH\"\n", quoted(&bin));
    say!(
        "export MUSTER_CTLD_PIDFILE={}\n",
        quoted(&home.ctld_pid_file())
    );
    let start = format!(
        "SLURM_CONF={} {}",
        quoted(&home.conf()),
        quoted(&bin.join("slurmctld"))
    );
    say!("export MUSTER_CTLD_START={}\n", quote(&start));
    Ok(ExitCode::SUCCESS)
}

/// A text as one word of a shell, in which it means nothing else.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Prints the findings in a file that was checked without slurm.conf.
fn report_alone(path: &Path, found: &[Diagnostic]) -> ExitCode {
    found.iter().for_each(|finding| say!("{finding}\n"));
    let count = |severity| found.iter().filter(|f| f.severity == severity).count();
    let errors = count(Severity::Error);
    say!(
        "{}: errors {errors}, warnings {}, keys without effect {}\n",
        path.display(),
        count(Severity::Warning),
        count(Severity::NoEffect)
    );
    ExitCode::from(u8::from(errors > 0))
}

const CONFIG_USAGE: &str =
    "usage: muster config check FILE, or muster config fetch HOST[:PORT][,...] DIRECTORY [USER]";

/// `muster config check FILE`.
pub(crate) fn config(args: &[String]) -> ExitCode {
    if let [verb, rest @ ..] = args
        && (verb == "fetch" || verb == muster_node::FETCH_LATER || verb.starts_with("keep="))
    {
        return given_configuration::main(verb, rest);
    }
    let [verb, file] = args else {
        complain!("{CONFIG_USAGE}");
        return ExitCode::from(1);
    };
    if verb != "check" {
        complain!("muster: there is no 'config {verb}'; {CONFIG_USAGE}");
        return ExitCode::from(1);
    }
    let path = Path::new(file);
    if let Some(found) = muster_conf::check_alone(path, &read_from_disk) {
        return report_alone(path, &found);
    }
    if path.file_name().is_some_and(|name| name == "topology.yaml") {
        let conf = path.with_file_name("slurm.conf");
        complain!(
            "muster: topology.yaml is checked with the slurm.conf beside it: muster config check {}",
            conf.display()
        );
        return ExitCode::from(1);
    }
    let mut report = muster_conf::check(path);
    let accounts = slurm_user::check_accounts(&report.config);
    report.diagnostics.extend(accounts);
    let directory = slurmctld::check_state_location(&report.config);
    report.diagnostics.extend(directory);
    say!("{report}\n");
    ExitCode::from(u8::from(!report.is_usable()))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_name_is_one_word_of_a_shell() {
        for name in ["/tmp/x$(touch pwned)", "it's", "a b", "`id`"] {
            let script = format!("printf %s {}", quote(&quote(name)));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.unwrap().stdout, quote(name).into_bytes());
        }
    }
}
