//! What an agent receives, values and descriptors, when the supervisor executes it.

use super::lines::RequestSender;
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

/// Where a node's daemons log.
#[derive(Debug)]
pub struct AgentLog {
    /// To this file, which is open.
    pub file: Option<File>,
    /// Where that file is.
    pub path: Option<PathBuf>,
    /// Has this process log to another file.
    pub replace: fn(File),
    /// Logs a line of another process's, which has its time.
    pub append: fn(&str),
    /// Messages of this level, and more important ones.
    pub level: LevelFilter,
}

/// The rest.
#[derive(Debug, Encode, Decode)]
pub(super) struct AgentOrder {
    #[n(0)]
    pub(super) options: AgentOptions,
    /// What was found out about cross-memory attach.
    #[n(1)]
    pub(super) cross_memory: Option<String>,
    #[n(2)]
    pub(super) log_level: String,
    /// The user of the supervisor, which makes connections to other agents.
    #[n(5)]
    pub(super) supervisor_uid: u32,
    /// There is a relay for other hosts.
    #[n(6)]
    #[cbor(default)]
    pub(super) has_relay: bool,
}

impl AgentOrder {
    pub(super) fn encoded(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory cannot fail")
    }
}

/// What an agent starts with.
pub(crate) struct Inherited {
    pub(crate) options: AgentOptions,
    pub(crate) cross_memory: Option<CrossMemory>,
    /// Whose connections are those of other agents.
    pub(crate) supervisor_uid: u32,
    /// Where the supervisor is asked for connections.
    pub(crate) requests: RequestSender,
    /// Brings connections to the launcher.
    pub(crate) launcher: OwnedFd,
    /// Brings connections to the controller.
    pub(crate) controller: OwnedFd,
    /// Brings connections to other agents.
    pub(crate) peers: OwnedFd,
    /// Brings what becomes of the configuration.
    pub(crate) news: OwnedFd,
    /// Where srun and other agents connect.
    pub(crate) listener: UnixListener,
    /// Leads to the relay for other hosts.
    pub(crate) relay: Option<OwnedFd>,
}

/// In an agent: what the supervisor has given it, and which messages it is to log.
///
/// # Errors
/// It was started by somebody else.
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
