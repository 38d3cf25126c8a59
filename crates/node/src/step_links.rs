//! The connections of a step daemon's that never block: to srun or the node above, and to the nodes below in the tree.

mod below;
mod client;
mod wire;

pub(crate) use below::Below;
pub(crate) use client::Client;
