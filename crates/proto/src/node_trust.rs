//! Keys of nodes: what a node says that gets one of its own by a token, and what the controller has of them.

use crate::frame::Message;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::{FRAME_BYTES_MAX, NAME_BYTES_MAX};
use muster_model::time::Timestamp;
use muster_model::validate::Validate;

/// Bytes of a public key or of the proof that somebody has it.
const KEY_BYTES_MAX: usize = 32;

/// From a node that joins, within the key exchange of a channel that its token begins.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct JoinHello {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// The node's public key (X25519).
    #[n(1)]
    #[valid(max_bytes = KEY_BYTES_MAX)]
    pub key: ByteVec,
    /// That it has the other half of it.
    #[n(2)]
    #[valid(max_bytes = KEY_BYTES_MAX)]
    pub proof: ByteVec,
}

impl Message for JoinHello {
    const BYTES_MAX: usize = 1 << 10;
}

/// All that the controller says then.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum JoinAnswer {
    /// The key is pinned, durably, and the token used up.
    #[n(0)]
    Joined,
    /// Nothing has changed, for this reason.
    #[n(1)]
    Refused(
        #[n(0)]
        #[valid(max_bytes = NAME_BYTES_MAX)]
        String,
    ),
}

impl Message for JoinAnswer {
    const BYTES_MAX: usize = FRAME_BYTES_MAX;
}

/// The controller's record of a node that has a key of its own, or may get one (`muster node list`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NodeKeyRecord {
    /// `NodeName`; empty for a token of any node.
    #[n(0)]
    pub node: String,
    /// Its public key; none if it has none yet.
    #[n(1)]
    pub key: Option<ByteVec>,
    /// When it was pinned.
    #[n(2)]
    pub pinned: Timestamp,
    /// From which address.
    #[n(3)]
    pub address: String,
    /// The user that made the token.
    #[n(4)]
    pub by: String,
    /// When the last of its unused tokens expires; none if it has none.
    #[n(5)]
    pub token_expires: Option<Timestamp>,
    /// Connections in its name that were refused since the controller started.
    #[n(6)]
    pub refused: u64,
}
