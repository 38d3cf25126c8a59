//! Messages between processes of a node, beside those of `muster-node-core`: they use links that only the
//! executors have. The processes import these modules, and not each other.

pub(crate) mod agent_order;
pub(crate) mod agent_relay;
pub(crate) mod agent_supervisor;
pub(crate) mod launcher_socket;
