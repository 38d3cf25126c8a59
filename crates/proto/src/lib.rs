//! The wire: what clients, controller, node agents and step daemons say to each other.
//!
//! Every message is one frame: a length (u32, big endian) and a CBOR value (RFC 8949) of the types below, whose
//! fields are numbered and may only be added to. The same frames travel over Unix and TCP sockets; identity comes
//! from the transport (peer credentials), never from the message. Beside types there are frames, versions and the line
//! protocol of JSV; what a message leads to is decided by its receiver.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod acct;
pub mod address;
pub mod archive;
pub mod cgroup;
pub mod changes;
pub mod client;
pub mod configuration;
mod daemon_socket;
pub mod frame;
pub mod hello;
pub mod job_container;
pub mod jsv;
pub mod node;
pub mod node_trust;
pub mod preencoded;
mod request_counts;
mod rights;
mod shape;
pub mod step;
pub mod version;

pub use shape::ShapeError;

/// Version of the protocol, sent first on every connection ([`version`]). It changes where messages do in a way that is more than
/// new optional fields. A peer that is older than [`OLDEST_PROTOCOL`], or newer than this, is refused by name.
pub const PROTOCOL: u32 = 1;
/// Oldest version that is still understood.
pub const OLDEST_PROTOCOL: u32 = 1;
