//! The temporary directory that a job of the Grid Engine commands has on each of its nodes: `JOB.TASK.QUEUE` in a directory of
//! root's in `TmpFS`.

use crate::job_view::job_view;
use minicbor::{Decode, Encode};
use muster_model::job_env;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::node::{JobGrant, NodeSettings};
use std::path::PathBuf;

/// The variables that name it.
pub(crate) const VARIABLES: [&str; 2] = ["TMPDIR", "TMP"];

/// A job's temporary directory on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct JobTmpDir {
    /// Where it is.
    #[n(0)]
    pub path: PathBuf,
    /// Whose it is.
    #[n(1)]
    pub uid: u32,
    /// See above.
    #[n(2)]
    pub gid: u32,
}

/// Where directories of jobs of this node are: a directory of root's in `TmpFS`, so that nobody else decides what is at a name in it.
pub(crate) fn parent(cluster: &str, settings: &NodeSettings, node: &str) -> PathBuf {
    base(settings, node).join(format!("muster.{cluster}.{node}"))
}

/// `TmpFS` of this node.
pub(crate) fn base(settings: &NodeSettings, node: &str) -> PathBuf {
    let base = settings.tmp_fs.replace("%n", node).replace("%h", node);
    match base.starts_with('/') {
        true => PathBuf::from(base),
        false => PathBuf::from("/tmp"),
    }
}

/// The directory of a job on the node of this name; none if the job has none of its own. Each attempt has another: what an earlier one
/// has left may still be being removed.
pub(crate) fn path(
    grant: &JobGrant,
    cluster: &str,
    settings: &NodeSettings,
    node: &str,
) -> Option<PathBuf> {
    let mut name = job_env::tmp_dir_name(&job_view(grant, cluster, settings))?;
    if grant.attempt.0 > 1 {
        name.push_str(&format!(".{}", grant.attempt.0));
    }
    Some(parent(cluster, settings, node).join(name))
}
