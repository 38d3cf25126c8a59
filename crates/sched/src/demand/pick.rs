//! A choice of a node.

/// Kinds of devices that a job may count over all of its nodes.
pub(crate) const SHARES_MAX: usize = muster_model::limits::JOB_DEVICES_MAX;
/// What one node gives of the devices of the whole job, kind by kind.
pub(crate) type JobShare = [u32; SHARES_MAX];

/// A node chosen and the tasks it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) node: u32,
    pub(crate) tasks: u32,
    /// Devices of the whole job that it gives.
    pub(crate) share: JobShare,
}
