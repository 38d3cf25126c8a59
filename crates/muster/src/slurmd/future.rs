//! `slurmd -F`: a host takes a node in state FUTURE that is such a machine. The controller says which, and keeps that.

use super::dynamic::own_address;
use super::{hostname, short_name, socket_unit};
use anyhow::{Context as _, Result, bail};
use muster_cli::connect::{Client, ConnectError};
use muster_conf::{Config, NodeDef, dynamic_nodes};
use muster_model::command::{Reply, UserCommand};
use muster_model::node::NodeConfig;
use muster_model::node_host::{FutureHost, NodeHost};
use muster_model::refusal::RefusalCode;
use muster_proto::client::Response;
use muster_proto::frame;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time for which a controller is tried that cannot be reached, or has the host connected yet.
const TRY_MAX: Duration = Duration::from_secs(60);
/// The first pause between two attempts, which doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// Exit status where the same may succeed later.
const LATER: u8 = 75;

/// The node that this host has from now on. libmunge, which speaks to munged, has no business in a daemon of root's: a process of its
/// own asks.
pub(super) fn take(config: &Config, feature: &str) -> Result<NodeDef> {
    let until = Instant::now() + TRY_MAX;
    let mut pause = PAUSE;
    loop {
        let output = Command::new("/proc/self/exe")
            .arg0("muster")
            .args(["node", "take"])
            .arg(&config.path)
            .args(Some(feature).filter(|feature| !feature.is_empty()))
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start a process")?;
        match output.status.code() {
            Some(0) => return taken(&output.stdout, config),
            Some(code) if code == i32::from(LATER) && Instant::now() + pause < until => {
                complain!("slurmd: trying again in {} s", pause.as_secs());
                std::thread::sleep(pause);
                pause *= 2;
            }
            _ => bail!("this host is given no node"),
        }
    }
}

fn taken(answer: &[u8], config: &Config) -> Result<NodeDef> {
    let body = answer.get(4..).unwrap_or_default();
    let answer: Response = frame::decode(body).context("the answer cannot be read")?;
    let Response::Reply(reply) = answer else {
        bail!("the controller gave another answer than a node");
    };
    let Reply::NodeTaken(node) = *reply else {
        bail!("the controller gave another answer than a node");
    };
    let nodes = dynamic_nodes(&line(&node), config)?;
    let node = nodes.into_iter().next();
    node.context("the controller gave no node")
}

/// Settings of a node that its agent needs, as a line of slurm.conf.
fn line(node: &NodeConfig) -> String {
    format!(
        "NodeName={} NodeHostname={} NodeAddr={} Port={} CPUs={} Boards={} Sockets={} CoresPerSocket={} ThreadsPerCore={} RealMemory={}",
        node.name,
        node.hostname,
        node.addr,
        node.port,
        node.cpus,
        node.boards,
        node.sockets,
        node.cores_per_socket,
        node.threads_per_core,
        node.memory_mib
    )
}

/// `muster node take CONF [FEATURE]`: asks, and writes the answer as it came.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    let (conf, feature) = match words {
        [conf] => (Path::new(conf), None),
        [conf, feature] => (Path::new(conf), Some(feature.clone())),
        _ => bail!("usage: muster node take CONF [FEATURE]"),
    };
    let (config, _) = muster_conf::load(conf);
    let host = hostname()?;
    let hostname = short_name(&host).to_owned();
    let shape = muster_node::MachineLayout::of_machine(socket_unit(conf));
    let asked = FutureHost {
        host: NodeHost {
            addr: own_address(&config).unwrap_or_else(|| hostname.clone()),
            hostname,
            port: config.slurmd_port.into(),
        },
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        feature,
    };
    let command = UserCommand::TakeNode(Box::new(asked));
    let answer = Client::connect_to(conf).and_then(|mut client| client.command(command));
    let reply = match answer {
        Ok(reply) => reply,
        Err(e) => {
            complain!("slurmd: {e}");
            let is_over = match &e {
                ConnectError::Refused(refusal) => refusal.code != RefusalCode::Busy,
                ConnectError::Unreachable { .. } | ConnectError::Broken(_) => false,
                ConnectError::Config(_) | ConnectError::Untrusted { .. } => true,
            };
            return Ok(ExitCode::from(if is_over { 1 } else { LATER }));
        }
    };
    let mut out = std::io::stdout();
    out.write_all(&frame::encode(&Response::Reply(Box::new(reply))))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
