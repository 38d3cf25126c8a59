//! Where a node's agent is, as the agent says of itself: `slurmd -F` takes a node in state FUTURE for its host.

use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// The host of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct NodeHost {
    /// `NodeHostname`.
    #[n(0)]
    pub hostname: String,
    /// `NodeAddr`.
    #[n(1)]
    pub addr: String,
    /// `Port`.
    #[n(2)]
    pub port: u32,
}

/// A host that asks which of the nodes in state FUTURE it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct FutureHost {
    /// Where its agent will be.
    #[n(0)]
    pub host: NodeHost,
    /// Sockets over all boards.
    #[n(1)]
    pub sockets: u32,
    /// Cores of each.
    #[n(2)]
    pub cores_per_socket: u32,
    /// Threads of each core.
    #[n(3)]
    pub threads_per_core: u32,
    /// A feature that the node has to have (`-F FEATURE`).
    #[n(4)]
    pub feature: Option<String>,
}
