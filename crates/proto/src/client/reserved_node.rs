//! Nodes in reservations, as listings of nodes have them.

use minicbor::{Decode, Encode};
use muster_model::ids::NodeIdx;

/// A node that a reservation has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeInReservation {
    /// Which.
    #[n(0)]
    pub node: NodeIdx,
    /// The reservation is for maintenance.
    #[n(1)]
    pub maintenance: bool,
}
