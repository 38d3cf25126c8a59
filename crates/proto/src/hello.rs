//! What both sides of a channel between hosts say within its key exchange: versions, and names that nobody has to believe.

use crate::frame::Message;
use crate::version::Greeting;
use minicbor::{Decode, Encode};
use muster_model::limits::NAME_BYTES_MAX;
use muster_model::validate::Validate;

/// From the side that connects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ChannelHello {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// What its host calls itself: believed if the name leads to its address.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub host: String,
}

impl Message for ChannelHello {
    const BYTES_MAX: usize = 1 << 10;
}

/// From the side that was connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ChannelAnswer {
    /// Which version it speaks.
    #[n(0)]
    pub greeting: Greeting,
    /// `ClusterName`.
    #[n(1)]
    #[valid(max_bytes = NAME_BYTES_MAX)]
    pub cluster: String,
}

impl Message for ChannelAnswer {
    const BYTES_MAX: usize = 1 << 10;
}
