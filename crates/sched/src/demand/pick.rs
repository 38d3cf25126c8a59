//! A choice of a node.

use crate::demand::device_demand::JobShare;

/// A node chosen and the tasks it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) node: u32,
    pub(crate) tasks: u32,
    /// Devices of the whole job that it gives.
    pub(crate) share: JobShare,
}
