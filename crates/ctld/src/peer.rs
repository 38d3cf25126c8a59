//! The process or host at the other end of a connection.

use std::net::IpAddr;

/// The peer's credentials, from the kernel or from its proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Process id; 0 if it is not known.
    pub(crate) pid: u32,
}

/// The origin and the purpose of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The other host's name, or its address; none for this host.
    pub(crate) host: Option<String>,
    /// From where it is made on another host.
    pub(crate) address: Option<IpAddr>,
    /// It is for the agent of this node and nothing else.
    pub(crate) node: Option<String>,
    /// The proof of that, if it is.
    pub(crate) proof: NodeProof,
    /// It is a node that says who the user is, by a key of its own.
    pub(crate) is_vouched_for: bool,
}

/// Where a request comes from, as the audit log has it. The other host's name is the identity's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Process id of the client; 0 if it is not known.
    pub(crate) pid: u32,
    /// From where it is made on another host.
    pub(crate) address: Option<IpAddr>,
    /// For whom the client, a gateway, says that it asks.
    pub(crate) client: Option<IpAddr>,
}

/// The proof that an agent speaks for its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeProof {
    /// The kernel of the controller's own host.
    #[default]
    Kernel,
    /// Munge's key.
    Munge,
    /// The cluster's key.
    Slurm,
    /// A key of the node's own.
    OwnKey,
}

impl NodeProof {
    /// As `scontrol show node` prints it.
    pub(crate) fn text(self) -> Option<String> {
        let text = match self {
            NodeProof::Kernel => return None,
            NodeProof::Munge => "munge",
            NodeProof::Slurm => "auth/slurm",
            NodeProof::OwnKey => "its own key",
        };
        Some(text.to_owned())
    }
}
