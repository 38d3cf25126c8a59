//! Where the PMIx host of a step has its files, and how the step is named: launcher and agent have to agree.

use muster_model::ids::{JobAttempt, StepNo};
use muster_proto::node::NodeSettings;

/// Where the kernel keeps shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Candidates for the directory of a step's files, the best first: `PMIxCliTmpDirBase`; else a directory in memory,
/// because no file outlives the step; if there is none, `TmpFS` or /tmp.
pub fn bases(settings: &NodeSettings, node: &str) -> Vec<String> {
    let named = settings.mpi.tmp_base.as_deref().into_iter();
    let bases = named.chain([SHARED_MEMORY, &settings.tmp_fs, "/tmp"]);
    let filled = bases.map(|base| base.replace("%n", node).replace("%h", node));
    filled.filter(|base| base.starts_with('/')).collect()
}

/// The name of a step's PMIx name space, unique in the cluster. Open MPI 5 derives numbers from it: the part before
/// the @ determines the job's, and the part after it is used unchanged, so that no two steps of a job have the same.
pub fn namespace(cluster: &str, attempt: JobAttempt, step: StepNo) -> String {
    format!("{cluster}.{}.{}@{step}", attempt.job, attempt.attempt.0)
}
