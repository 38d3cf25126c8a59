//! `muster emulate nodes`: the nodes of a slurm.conf without their machines. `muster emulate jobs`: users who submit.

mod jobs;

use crate::daemon::{self, PidFile, Ready};
use crate::logging;
use anyhow::{Context, Result, bail};
use muster_conf::endpoint::{conf_path, controller_socket};
use muster_model::hostlist;
use muster_node::{EmulateOptions, EmulatedNode, RunTime};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
muster emulate nodes [NODELIST] [OPTIONS]

Speaks to the controller for nodes of slurm.conf (all of them, or NODELIST) as their agents would, from one process.
Jobs get their shares of these nodes and end after a time; nothing is run. For trying a configuration, and for
measuring. 'muster up -f FILE --emulate' starts a controller and this; it takes --run-time and --numa, too.

  --run-time T     how long jobs run, in seconds: SECONDS (default 0), exp:MEAN or uniform:LOW:HIGH
  --numa N[:L,S,R] nodes have N NUMA domains, at distances L to themselves, S within a socket, R else (10,16,32)
  --steps DIR      take part in steps that a real node leads, without running anything; DIR is the directory of the
                   private cluster ($MUSTER_HOME), which has the sockets in spool.NODE
  -f FILE          slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)
  -D               stay in the foreground
  --pid-file FILE  write the process's number here
  --report FILE    keep counts there, as JSON: jobs by the milliseconds from their start to their launch on the node

muster emulate jobs COUNT [--clients N] [--json] -- SBATCH-ARGUMENTS

Submits COUNT jobs as sbatch with these arguments would, over N connections (default 1) that stay open, each waiting for
the acknowledgement of one job before it submits the next, and tells how long acknowledgements took.
";

struct Args {
    nodes: Option<String>,
    conf: PathBuf,
    run_time: RunTime,
    numa: Option<Numa>,
    step_dir: Option<PathBuf>,
    foreground: bool,
    pid_file: Option<PathBuf>,
    report: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A bad command line or configuration; a controller that refuses the nodes.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    let help = words.iter().any(|w| w == "--help" || w == "-h");
    match words.split_first() {
        Some((what, rest)) if what == "nodes" && !help => run(&parse(rest)?),
        Some((what, rest)) if what == "jobs" && !help => jobs::main(rest),
        _ => {
            say!("{HELP}");
            Ok(ExitCode::from(u8::from(!help)))
        }
    }
}

fn parse(words: &[String]) -> Result<Args> {
    let mut args = Args {
        nodes: None,
        conf: conf_path(),
        run_time: RunTime::Fixed(0.0),
        numa: None,
        step_dir: None,
        foreground: false,
        pid_file: None,
        report: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let given = inline.clone().or_else(|| words.next().cloned());
            given.with_context(|| format!("{name} needs a value"))
        };
        match name {
            "--run-time" => args.run_time = run_time(&value()?)?,
            "--numa" => args.numa = Some(Numa::parse(&value()?)?),
            "--steps" => args.step_dir = Some(value()?.into()),
            "-f" => args.conf = value()?.into(),
            "-D" => args.foreground = true,
            "--pid-file" => args.pid_file = Some(value()?.into()),
            "--report" => args.report = Some(value()?.into()),
            _ if name.starts_with('-') => {
                bail!("'muster emulate nodes' has no option '{word}'; --help lists them")
            }
            _ if args.nodes.is_none() => args.nodes = Some(word.clone()),
            _ => bail!("'{word}': give all nodes as one list"),
        }
    }
    Ok(args)
}

/// NUMA domains that emulated nodes claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numa {
    domains: u32,
    own: u32,
    socket: u32,
    remote: u32,
}

impl Numa {
    /// Most domains of a node.
    const DOMAINS_MAX: u32 = 64;

    /// Reads `N` or `N:LOCAL,SOCKET,REMOTE`.
    ///
    /// # Errors
    /// What it cannot be.
    pub(crate) fn parse(text: &str) -> Result<Numa> {
        let (count, rest) = text.split_once(':').unwrap_or((text, "10,16,32"));
        let numbers: Vec<u32> = rest.split(',').filter_map(|n| n.parse().ok()).collect();
        let domains = count
            .parse()
            .ok()
            .filter(|n| (1..=Numa::DOMAINS_MAX).contains(n));
        match (domains, numbers.as_slice()) {
            (Some(domains), &[own, socket, remote]) => Ok(Numa {
                domains,
                own,
                socket,
                remote,
            }),
            _ => bail!("--numa is N or N:LOCAL,SOCKET,REMOTE, such as 8:10,16,32, not '{text}'"),
        }
    }

    /// Distances on a node of this number of sockets, row by row.
    fn distances(&self, sockets: u32) -> Vec<u32> {
        let each = (self.domains / sockets.max(1)).max(1);
        let pairs = (0..self.domains).flat_map(|a| (0..self.domains).map(move |b| (a, b)));
        pairs
            .map(|(a, b)| match (a == b, a / each == b / each) {
                (true, _) => self.own,
                (false, true) => self.socket,
                (false, false) => self.remote,
            })
            .collect()
    }
}

/// A run time as the command line says it.
///
/// # Errors
/// What it cannot be.
pub(crate) fn run_time(text: &str) -> Result<RunTime> {
    text.parse().map_err(anyhow::Error::msg)
}

fn run(args: &Args) -> Result<ExitCode> {
    let conf = std::fs::canonicalize(&args.conf)
        .with_context(|| format!("cannot read the configuration {}", args.conf.display()))?;
    let (config, _) = muster_conf::load(&conf);
    let wanted = args.nodes.as_deref().map(hostlist::parse).transpose()?;
    let wanted: Option<HashSet<String>> = wanted.map(|names| names.into_iter().collect());
    let nodes: Vec<EmulatedNode> = config
        .nodes
        .iter()
        .filter(|node| {
            wanted
                .as_ref()
                .is_none_or(|names| names.contains(&node.name))
        })
        .map(|node| EmulatedNode {
            name: node.name.clone(),
            cpus: node.cpus,
            memory_mib: node.real_memory_mib,
            numa_distances: (args.numa.as_ref())
                .map_or_else(Vec::new, |numa| numa.distances(node.sockets)),
        })
        .collect();
    if nodes.is_empty() {
        bail!("{} has none of these nodes", conf.display());
    }
    let step_dir = args.step_dir.as_deref().map(prepare_dir).transpose()?;
    // Each node is a connection; with steps, it listens as well, and has more connections while they start and end.
    raise_open_files(nodes.len() * if step_dir.is_some() { 6 } else { 1 })?;
    let socket = controller_socket(
        &config.paths.slurmctld_pid_file,
        *config.slurmctld_ports.start(),
    );
    let ready = match args.foreground {
        true => Ready::foreground(),
        false => daemon::daemonise()?,
    };
    logging::start(
        None,
        args.foreground,
        logging::level(config.slurmd_debug, 0),
    )?;
    let _pid_file = args.pid_file.as_deref().map(PidFile::take).transpose()?;
    ready.report();
    muster_node::emulate(EmulateOptions {
        nodes,
        controller_socket: socket,
        cluster: config.cluster_name.clone(),
        run_time: args.run_time,
        report: args.report.clone(),
        step_dir,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn prepare_dir(dir: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("--steps {}", dir.display()))?;
    std::fs::canonicalize(dir).with_context(|| format!("--steps {}", dir.display()))
}

fn raise_open_files(nodes: usize) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = nodes as u64 + 64;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        bail!(
            "{nodes} nodes need {needed} open files, this process may have {hard}; raise the limit ('ulimit -Hn') or give fewer nodes"
        );
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")
}
