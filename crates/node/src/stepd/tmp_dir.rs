//! The job's temporary directory. Each task makes it unless another process of the job has. It does so as the user
//! and within the job, so that a file system that blocks delays nobody else.

use super::task_set::TaskSet;
use muster_model::job_env::Variables;
use muster_node_core::tmp_dir::VARIABLES;
use muster_script::tmp_dir::{TmpDirNames, make};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

impl TaskSet {
    /// In a child, as the user: makes the job's temporary directory, if it has one to itself; what `TMPDIR` is. Where it cannot be made,
    /// which is no reason for a task to fail, that is the directory above, and `report` gets a line.
    pub(super) fn make_tmp_dir(&self, report: impl FnOnce(&str)) -> Option<String> {
        let dir = self.order.tmp_dir.as_deref()?;
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let (usual, other) = (text(&dir.path), text(&dir.other_path()));
        let above = text(dir.above());
        let names = TmpDirNames {
            usual: &usual,
            other: &other,
            above: &above,
        };
        let path = make(&names).unwrap_or_else(|e| {
            let (usual, shared) = (dir.path.display(), dir.above().display());
            report(&format!(
                "temporary directory {usual} cannot be made: {e}: TMPDIR is {shared}"
            ));
            &above
        });
        Some(path.to_string_lossy().into_owned())
    }

    /// Where the directory is, as a rule.
    pub(super) fn usual_tmp_dir(&self) -> Option<String> {
        let dir = self.order.tmp_dir.as_deref()?;
        Some(dir.path.to_string_lossy().into_owned())
    }
}

/// The variables that name it.
pub(super) fn variables(tmp_dir: Option<&str>) -> Variables {
    let of = |path: &str| VARIABLES.map(|name| (name.to_owned(), path.to_owned()));
    tmp_dir.into_iter().flat_map(of).collect()
}
