//! All resources and their use: nodes with cores, sockets and devices, partitions, reservations,
//! the network, and the allocations of jobs with their ends.

pub(crate) mod allocations;
pub(crate) mod class;
pub(crate) mod class_masks;
pub(crate) mod cores;
pub(crate) mod devices;
pub(crate) mod fleet;
pub(crate) mod links;
pub(crate) mod network;
pub(crate) mod node_map;
pub(crate) mod node_ranges;
pub(crate) mod node_set;
pub(crate) mod part_cpus;
pub(crate) mod planned;
pub(crate) mod reserved;
pub(crate) mod room;
pub(crate) mod rooms;
pub(crate) mod settings;
pub(crate) mod sharing;
pub(crate) mod sharing_key;
pub(crate) mod sockets;
