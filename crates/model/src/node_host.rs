//! Where a node's agent is, as the agent says of itself: `slurmd -F` takes a node in state FUTURE for its host.

use crate::node::NodeConfig;
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

impl NodeHost {
    /// What a line says of it.
    pub fn of(config: &NodeConfig) -> NodeHost {
        NodeHost {
            hostname: config.hostname.clone(),
            addr: config.addr.clone(),
            port: config.port,
        }
    }

    /// Makes a line say this of it.
    pub fn set_in(&self, config: &mut NodeConfig) {
        config.hostname.clone_from(&self.hostname);
        config.addr.clone_from(&self.addr);
        config.port = self.port;
    }
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

impl FutureHost {
    /// Whether a node is such a machine, and has the feature.
    pub fn fits(&self, config: &NodeConfig) -> bool {
        let shape = |sockets, cores, threads| (sockets, cores, threads);
        let own = shape(self.sockets, self.cores_per_socket, self.threads_per_core);
        let wanted = shape(
            config.sockets,
            config.cores_per_socket,
            config.threads_per_core,
        );
        let has = |feature: &String| config.features.contains(feature);
        own == wanted && self.feature.as_ref().is_none_or(has)
    }
}
