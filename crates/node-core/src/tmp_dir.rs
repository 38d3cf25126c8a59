//! The temporary directory that a job of the Grid Engine commands has on each of its nodes: `JOB.TASK.QUEUE` in `TmpFS`. The processes of
//! the job make it themselves, as its user (`muster_script::tmp_dir`).

use crate::job_view::job_view;
use minicbor::{Decode, Encode};
use muster_model::job_env;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::node::{JobGrant, NodeSettings};
use muster_trust::{JobKeyUse, derive_job_key};
use std::path::{Path, PathBuf};

/// The variables that name it.
pub const VARIABLES: [&str; 2] = ["TMPDIR", "TMP"];

/// Bytes of a key, as digits, in the name that others cannot guess.
const SUFFIX_BYTES: usize = 8;

/// A job's temporary directory on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub struct JobTmpDir {
    /// Where it is.
    #[n(0)]
    pub path: PathBuf,
    /// Owner of the directory.
    #[n(1)]
    pub uid: u32,
    /// See above.
    #[n(2)]
    pub gid: u32,
    /// Suffix of the name if another file has the name already.
    #[n(3)]
    #[cbor(default)]
    pub suffix: String,
}

impl JobTmpDir {
    /// Where it is if something else has its usual path.
    pub fn other_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(&self.suffix);
        path.into()
    }

    /// The directory above.
    pub fn above(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// `TmpFS` of this node.
fn base(settings: &NodeSettings, node: &str) -> PathBuf {
    let base = settings.tmp_fs.replace("%n", node).replace("%h", node);
    match base.starts_with('/') {
        true => PathBuf::from(base),
        false => PathBuf::from("/tmp"),
    }
}

/// The value of `TMPDIR` for a job of the Grid Engine commands without a directory of its own; none for other jobs,
/// whose users set it.
pub(crate) fn shared(
    grant: &JobGrant,
    cluster: &str,
    settings: &NodeSettings,
    node: &str,
) -> Option<PathBuf> {
    job_env::tmp_dir_name(&job_view(grant, cluster, settings))?;
    Some(base(settings, node))
}

/// The private directory of a job on the node of this name, if it has one. Each attempt has its own, because the
/// removal of an earlier one may still be under way.
pub(crate) fn of_job(
    grant: &JobGrant,
    cluster: &str,
    settings: &NodeSettings,
    node: &str,
) -> Option<Box<JobTmpDir>> {
    if !settings.job_tmp_dirs {
        return None;
    }
    let mut name = job_env::tmp_dir_name(&job_view(grant, cluster, settings))?;
    if grant.attempt.0 > 1 {
        name.push_str(&format!(".{}", grant.attempt.0));
    }
    let owner = &grant.spec.owner;
    Some(Box::new(JobTmpDir {
        path: base(settings, node).join(name),
        uid: owner.uid,
        gid: owner.gid,
        suffix: suffix(grant, node),
    }))
}

/// A suffix that only nodes of the job know, different on each, because other users may have seen the name.
fn suffix(grant: &JobGrant, node: &str) -> String {
    let key = derive_job_key(&grant.key, JobKeyUse::TmpDir);
    let of_node = derive_job_key(&[&key[..], node.as_bytes()].concat(), JobKeyUse::TmpDir);
    let digits = of_node.iter().take(SUFFIX_BYTES);
    digits.map(|byte| format!("{byte:02x}")).collect()
}
