//! Values and descriptors that the supervisor passes to an agent.

use super::agent_supervisor::RequestSender;
use crate::cross_memory::CrossMemory;
use crate::options::AgentOptions;
use crate::role;
use anyhow::Context as _;
use log::LevelFilter;
use minicbor::{Decode, Encode};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Log destination of a node's daemons.
#[derive(Debug)]
pub struct AgentLog {
    /// The open log file.
    pub file: Option<File>,
    /// Path of that file.
    pub path: Option<PathBuf>,
    /// Makes this process log to another file.
    pub replace: fn(File),
    /// Logs a line of another process, which contains its time.
    pub append: fn(&str),
    /// Log messages of this level and more important ones.
    pub level: LevelFilter,
}

/// The rest.
#[derive(Debug, Encode, Decode)]
pub(crate) struct AgentOrder {
    #[n(0)]
    pub(crate) options: AgentOptions,
    /// Result of the measurement of cross-memory attach.
    #[n(1)]
    pub(crate) cross_memory: Option<String>,
    #[n(2)]
    pub(crate) log_level: String,
    /// The user of the supervisor, which opens connections to other agents.
    #[n(5)]
    pub(crate) supervisor_uid: u32,
    /// There is a relay for other hosts.
    #[n(6)]
    #[cbor(default)]
    pub(crate) has_relay: bool,
}

impl AgentOrder {
    pub(crate) fn encoded(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory cannot fail")
    }
}

/// Everything that an agent starts with.
pub(crate) struct Inherited {
    pub(crate) options: AgentOptions,
    pub(crate) cross_memory: Option<CrossMemory>,
    /// The uid whose connections are those of other agents.
    pub(crate) supervisor_uid: u32,
    /// Link for requests to the supervisor.
    pub(crate) requests: RequestSender,
    /// Receives connections to the launcher.
    pub(crate) launcher: OwnedFd,
    /// Receives connections to the controller.
    pub(crate) controller: OwnedFd,
    /// Receives connections to other agents.
    pub(crate) peers: OwnedFd,
    /// Receives results of applying the configuration.
    pub(crate) news: OwnedFd,
    /// Socket for srun and other agents.
    pub(crate) listener: UnixListener,
    /// Link to the relay for other hosts.
    pub(crate) relay: Option<OwnedFd>,
}

/// In an agent: the data passed by the supervisor, and the log level.
///
/// # Errors
/// The process was not started by a supervisor.
pub(crate) fn inherited() -> anyhow::Result<(Inherited, LevelFilter)> {
    let order = role::read_order()?;
    let order: AgentOrder = minicbor::decode(&order).context("the order cannot be read")?;
    let mut next = role::FIRST_FD;
    let mut take = || {
        let fd = role::take_descriptor(next);
        next += 1;
        fd
    };
    let mut inherited = Inherited {
        cross_memory: order.cross_memory.as_deref().and_then(CrossMemory::parse),
        options: order.options,
        supervisor_uid: order.supervisor_uid,
        requests: RequestSender::new(take()?),
        launcher: take()?,
        controller: take()?,
        peers: take()?,
        news: take()?,
        listener: take()?.into(),
        relay: None,
    };
    let level = order.log_level.parse().context("its level of messages")?;
    if order.has_relay {
        inherited.relay = Some(take()?);
    }
    Ok((inherited, level))
}
