//! A choice of a node.

/// Maximum number of device kinds that a job may request for all of its nodes together.
pub(crate) const SHARES_MAX: usize = muster_model::limits::JOB_DEVICES_MAX;
/// Devices of one node that count towards the whole job, by kind.
pub(crate) type JobShare = [u32; SHARES_MAX];

/// A chosen node and its number of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) node: u32,
    pub(crate) tasks: u32,
    /// Devices of the whole job on this node.
    pub(crate) share: JobShare,
}
