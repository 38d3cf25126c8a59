//! Who is at the other end of a connection.

use std::net::IpAddr;

/// The peer's credentials, from the kernel, or by what it has proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Process id; 0 if it is not known.
    pub(crate) pid: u32,
}

/// Where a connection comes from, and what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The other host's name, or its address; none for this host.
    pub(crate) host: Option<String>,
    /// From where it is made on another host.
    pub(crate) address: Option<IpAddr>,
    /// It is for the agent of this node and nothing else.
    pub(crate) node: Option<String>,
}
