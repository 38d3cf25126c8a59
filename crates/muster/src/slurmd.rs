//! `slurmd`: a node's supervisor and its agent, with the options of slurmd(8).

mod dynamic;
pub(crate) mod future;

use crate::conf_owner;
use crate::daemon::{self, PidFile, Ready};
use crate::flags::{CONF_SERVER, CONF_USER, Daemon, flag, long_flag};
use crate::given_configuration;
use crate::logging;
use anyhow::{Context, Result, bail};
use muster_channel::host::is_own;
use muster_conf::endpoint::{conf_path, controller_socket};
use muster_conf::{AuthMethod, Config, NodeDef, expand_path};
use muster_ctld::notify::Notify;
use muster_node::{AgentLog, AgentOptions, NetworkOptions, SocketUnit};
use muster_trust::node_key::{self, NodeKey, USUAL_DIRECTORY};
use nix::unistd::User;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// slurmd.
pub(crate) static DAEMON: Daemon = Daemon {
    name: "slurmd",
    about: "A node's agent: starts and ends jobs there as the controller orders.",
    operands: "",
    flags: &[
        flag('b', "", "report that the node was rebooted")
            .stored("nodes are not rebooted from here"),
        flag('c', "", "clear old state").stored("jobs outlive the agent in any case"),
        flag(
            'C',
            "",
            "print this machine as a line for slurm.conf, and exit",
        ),
        CONF_SERVER,
        CONF_USER,
        long_flag(
            "conf",
            'K',
            "\"KEY=VALUE ...\"",
            "with -Z: what to say of this node instead of what the machine is, as on a NodeName line",
        ),
        flag('d', "FILE", "program of the step daemon").refused("it is part of this binary"),
        flag('D', "", "stay in the foreground and log to the terminal"),
        flag(
            'f',
            "FILE",
            "read this slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)",
        ),
        flag(
            'F',
            "[FEATURE]",
            "be a node in state FUTURE that is such a machine (and has this feature)",
        ),
        flag('G', "", "print this machine's devices").refused("devices are named in gres.conf"),
        flag('h', "", "print this help"),
        flag('L', "FILE", "log here instead of SlurmdLogFile"),
        flag('M', "", "lock the agent in memory").refused("use systemd's settings"),
        flag('n', "N", "run at this nice value").refused("use nice(1) or systemd's settings"),
        flag(
            'N',
            "NAME",
            "be this node (default: the one whose NodeHostname is this host's)",
        ),
        flag('s', "", "change to the spool directory").stored("no core file is written there"),
        flag('v', "", "log more; may be repeated"),
        flag('V', "", "print the version"),
        flag(
            'Z',
            "",
            "join the cluster as a node that slurm.conf need not name (MaxNodeCount)",
        ),
    ],
};

#[derive(Default)]
struct Args {
    foreground: bool,
    conf: Option<PathBuf>,
    log: Option<PathBuf>,
    node: Option<String>,
    verbose: usize,
    /// Where the configuration comes from, if not from a file.
    server: Option<String>,
    server_user: Option<String>,
    /// It joins without being named, and says this of itself.
    dynamic: bool,
    said: Option<String>,
    /// It takes a node in state FUTURE, with this feature if one is named.
    future: Option<String>,
}

/// Runs a supervisor.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(ExitCode::SUCCESS), start)) {
        Ok(status) => status,
        Err(e) => {
            log::error!("{e:#}");
            complain!("slurmd: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

/// Runs what the supervisor starts without privileges.
pub(crate) fn agent_main() -> ExitCode {
    muster_node::agent_main(|level| logging::start_with(None, true, level))
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let (mut parsed, mut machine) = (Args::default(), false);
    for (letter, value) in DAEMON.parse(args)? {
        match letter {
            'D' => parsed.foreground = true,
            'v' => parsed.verbose += 1,
            'C' => machine = true,
            'h' => {
                say!("{}", DAEMON.help());
                return Ok(None);
            }
            'V' => {
                say!("slurm {}\n", muster_ctld::SLURM_VERSION);
                return Ok(None);
            }
            'f' => parsed.conf = Some(value.into()),
            'L' => parsed.log = Some(value.into()),
            'N' => parsed.node = Some(value),
            'H' => parsed.server = Some(value),
            'U' => parsed.server_user = Some(value),
            'Z' => parsed.dynamic = true,
            'F' => parsed.future = Some(value),
            'K' => parsed.said = Some(value),
            // The rest has no effect; the table says why.
            _ => {}
        }
    }
    if parsed.server.is_some() && parsed.conf.is_some() {
        bail!("--conf-server and -f say both where the configuration is: give one");
    }
    if parsed.said.is_some() && !parsed.dynamic {
        bail!("--conf requires -Z");
    }
    if parsed.future.is_some() && (parsed.dynamic || parsed.node.is_some()) {
        bail!("-F takes the node that the controller gives: leave out -Z and -N");
    }
    if machine {
        print_machine(parsed.conf)?;
        return Ok(None);
    }
    Ok(Some(parsed))
}

fn hostname() -> Result<String> {
    Ok(nix::unistd::gethostname()
        .context("cannot get this host's name")?
        .to_string_lossy()
        .into_owned())
}

/// Unit that counts as a socket, if there is a configuration that says.
fn socket_unit(conf: &Path) -> SocketUnit {
    if !conf.exists() {
        return SocketUnit::default();
    }
    let (config, _) = muster_conf::load(conf);
    let has = |word: &str| {
        let mut words = config.slurmd_parameters.iter();
        words.any(|own| own.eq_ignore_ascii_case(word))
    };
    match () {
        () if has("l3cache_as_socket") => SocketUnit::Cache,
        () if has("numa_node_as_socket") => SocketUnit::NumaDomain,
        () => SocketUnit::Package,
    }
}

fn print_machine(conf: Option<PathBuf>) -> Result<()> {
    let host = hostname()?;
    let short = short_name(&host);
    let machine = machine_pairs(&conf.unwrap_or_else(conf_path))?;
    say!("NodeName={short} {machine}\n");
    Ok(())
}

fn short_name(host: &str) -> &str {
    host.split('.').next().unwrap_or(host)
}

/// Processors and memory of this machine, as a NodeName line has them.
fn machine_pairs(conf: &Path) -> Result<String> {
    let shape = muster_node::MachineLayout::of_machine(socket_unit(conf));
    Ok(format!(
        "CPUs={} Boards=1 SocketsPerBoard={} CoresPerSocket={} ThreadsPerCore={} {}",
        shape.cpus,
        shape.sockets,
        shape.cores_per_socket,
        shape.threads_per_core,
        memory_pair()?
    ))
}

fn memory_pair() -> Result<String> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let kib = text
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemTotal:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0);
    Ok(format!("RealMemory={}", kib >> 10))
}

fn find_node<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a NodeDef> {
    if let Some(name) = name {
        return config
            .node(name)
            .with_context(|| format!("{} has no node '{name}'", config.path.display()));
    }
    let host = hostname()?;
    let short = host.split('.').next().unwrap_or(&host);
    let mut own = config
        .nodes
        .iter()
        .filter(|n| n.hostname == host || n.hostname == short);
    match (own.next(), own.next()) {
        (Some(node), None) => Ok(node),
        (None, _) => bail!(
            "{} has no node for host '{host}'; say which with -N",
            config.path.display()
        ),
        (Some(_), Some(_)) => bail!(
            "several nodes of {} are on host '{host}'; say which with -N",
            config.path.display()
        ),
    }
}

/// Agents and controller have accounts of their own: what an agent's account may do, an agent that is taken over may.
fn check_accounts(config: &Config) -> Result<()> {
    let same = config.slurmd_user == config.slurm_user;
    if nix::unistd::geteuid().is_root() && same && config.slurm_user != "root" {
        bail!(
            "SlurmdUser={} is the controller's account, SlurmUser: name another, or leave SlurmdUser out",
            config.slurmd_user
        );
    }
    // Here the terminal still sees the error.
    muster_node::check_account(&config.slurmd_user)
}

/// An address with its port, as it is written.
fn place(address: &str, port: u16) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

/// The directory with the node's own key, if it has one: that of the node, else the one of hosts without slurm.conf.
fn node_key_directory(config: &Config, node: &str, spool: &Path) -> Result<PathBuf> {
    let usual = Path::new(USUAL_DIRECTORY);
    let is_own = |key: &NodeKey| key.check(&config.cluster_name, node, usual).is_ok();
    let found = match NodeKey::find(spool)? {
        Some(key) => Some((spool, key)),
        // Another cluster's may be there.
        None => NodeKey::find(usual)
            .ok()
            .flatten()
            .filter(is_own)
            .map(|key| (usual, key)),
    };
    let Some((directory, key)) = found else {
        return Ok(spool.to_owned());
    };
    key.check(&config.cluster_name, node, directory)?;
    muster_node::pin_controller(spool, &key.cluster, &key.controller)
        .with_context(|| format!("the controller's key is not kept in {}", spool.display()))?;
    Ok(directory.to_owned())
}

/// Addresses of the controller if it is on another host, and of this node if there are other hosts.
fn network(config: &Config, node: &NodeDef, node_key: PathBuf) -> Result<NetworkOptions> {
    let has_key = node_key.join(node_key::FILE).exists();
    let none = config.authentication().method == AuthMethod::None && !has_key;
    let hosts = &config.slurmctld;
    let is_here = hosts
        .iter()
        .any(|host| is_own(&host.host) || is_own(host.address()));
    let listens = !none && (!is_here || config.raw.contains_key("AuthType"));
    // Nodes that share a host share its ports, and reach each other by sockets.
    let shares = config
        .nodes
        .iter()
        .any(|other| other.hostname == node.hostname && other.name != node.name);
    let communication = config.communication();
    let mut network = NetworkOptions {
        ipv6_only: communication.ipv6_only,
        without_http: communication.without_http,
        keep_alive_idle_s: communication.idle_s,
        keep_alive_interval_s: communication.interval_s,
        keep_alive_probes: communication.probes,
        port: (listens && !shares).then_some(node.port),
        place: place(&node.addr, node.port),
        node_key,
        ..NetworkOptions::default()
    };
    if is_here {
        return Ok(network);
    }
    let port = *config.slurmctld_ports.start();
    let controllers = match &config.slurmctld_addr {
        Some(address) => vec![place(address, port)],
        None => hosts
            .iter()
            .map(|host| place(host.address(), port))
            .collect(),
    };
    let user = User::from_name(&config.slurm_user)
        .ok()
        .flatten()
        .map(|user| user.uid.as_raw())
        .or_else(|| config.slurm_user.parse().ok());
    let user = user.or(has_key.then_some(0));
    network.receiver_uid = user.with_context(|| {
        format!(
            "this host has no user '{}' (SlurmUser), for whom credentials to the controller are: make one with the uid that \
             it has on the controller's host",
            config.slurm_user
        )
    })?;
    network.controllers = controllers;
    network.key_dir = config.authentication().key_dir;
    network.auth_type = config.text("AuthType").map(str::to_owned);
    network.auth_info = config.text("AuthInfo").map(str::to_owned);
    let timeout = config.text("TCPTimeout").and_then(|text| text.parse().ok());
    network.tcp_timeout_s = timeout.unwrap_or(2);
    Ok(network)
}

fn start(args: Args) -> Result<ExitCode> {
    let server = given_configuration::servers(args.server.clone(), args.conf.as_deref());
    let conf = match &server {
        Some(server) => given_configuration::get(server, args.server_user.as_deref())?,
        None => {
            let conf = args.conf.unwrap_or_else(conf_path);
            std::fs::canonicalize(&conf)
                .with_context(|| format!("cannot read the configuration {}", conf.display()))?
        }
    };
    let (config, _) = conf_owner::load(&conf)?;
    check_accounts(&config)?;
    let found = match (args.dynamic, &args.future) {
        (_, Some(feature)) => future::take(&config, feature)?,
        (true, None) => dynamic::describe(&config, args.node.as_deref(), args.said.as_deref())?,
        (false, None) => find_node(&config, args.node.as_deref())?.clone(),
    };
    let node = &found;
    let expand = |template: &str| expand_path(template, &node.name, &node.hostname);
    let paths = &config.paths;
    let spool_dir = expand(&paths.slurmd_spool_dir);
    let pid_file = expand(&paths.slurmd_pid_file);
    // Here the terminal still sees the error.
    muster_node::make_spool(&spool_dir)?;
    let ready = if args.foreground {
        Ready::foreground()
    } else {
        daemon::daemonise()?
    };
    let log_file = args
        .log
        .or_else(|| paths.slurmd_log_file.as_deref().map(expand));
    let log = AgentLog {
        file: log_file.as_deref().map(logging::open).transpose()?,
        path: log_file,
        replace: logging::replace,
        append: logging::append,
        level: logging::level(config.slurmd_debug, args.verbose),
    };
    let own = log.file.as_ref().map(File::try_clone).transpose()?;
    logging::start_with(own, args.foreground, log.level);
    let controller = controller_socket(&paths.slurmctld_pid_file, *config.slurmctld_ports.start());
    let fetch = server.as_deref().map_or_else(Vec::new, |server| {
        given_configuration::command(server, args.server_user.as_deref())
    });
    let node_key = node_key_directory(&config, &node.name, &spool_dir)?;
    let options = AgentOptions {
        name: node.name.clone(),
        address: node.addr.clone(),
        controller_socket: controller,
        spool_dir,
        cluster: config.cluster_name.clone(),
        claimed_cpus: Some(node.cpus),
        claimed_sockets: node.sockets,
        shared_machine: config
            .nodes
            .iter()
            .filter(|n| n.hostname == node.hostname)
            .count()
            > 1,
        claimed_memory_mib: Some(node.real_memory_mib),
        launcher_program: None,
        slurmd_user: config.slurmd_user.clone(),
        network: network(&config, node, node_key)?,
        conf: conf.display().to_string(),
        fetch,
        dynamic: args.dynamic.then(|| Box::new(found.config(&[]))),
        spool_pattern: paths.slurmd_spool_dir.clone(),
    };
    let _pid_file = PidFile::take(&pid_file)?;
    ready.detach();
    muster_node::run(options, log, move || {
        ready.report();
        Notify::from_environment().send("READY=1");
    })
}
