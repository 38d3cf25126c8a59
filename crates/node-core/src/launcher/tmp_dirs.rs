//! Temporary directories of Grid Engine jobs: where they are made, and what jobs get where they cannot be.

use super::interface::Action;
use super::job::JobEntry;
use super::node::Node;
use super::state::State;
use crate::messages::StepOrder;
use crate::{JobTmpDir, tmp_dir};
use muster_model::environment::Environment;
use muster_proto::node::JobGrant;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Node {
    fn tmp_parent_path(&self) -> PathBuf {
        tmp_dir::parent(&self.place.cluster, &self.settings, &self.place.node)
    }

    /// Where a Grid Engine job has its temporary directory, if it can be made.
    pub(super) fn tmp_dir_of(&self, grant: &JobGrant) -> Option<Box<JobTmpDir>> {
        let place = &self.place;
        let path = tmp_dir::path(grant, &place.cluster, &self.settings, &place.node)?;
        if !self.settings.job_tmp_dirs {
            return None;
        }
        let is_ready = self.tmp_parent.as_deref() == path.parent();
        if !is_ready && !self.is_in_container(&path) {
            return None;
        }
        let owner = &grant.spec.owner;
        let (uid, gid) = (owner.uid, owner.gid);
        Some(Box::new(JobTmpDir { path, uid, gid }))
    }

    /// Whether a path is in a directory that each job has to itself.
    fn is_in_container(&self, path: &Path) -> bool {
        let settings = self.container_settings();
        settings.is_some_and(|of| of.dirs.iter().any(|dir| path.starts_with(dir)))
    }

    /// What a job's script or a step finds in `TMPDIR` and `TMP`; none if that is for the user to say.
    fn tmp_variable(&self, entry: Option<&JobEntry>, grant: &JobGrant) -> Option<PathBuf> {
        let place = &self.place;
        tmp_dir::path(grant, &place.cluster, &self.settings, &place.node)?;
        let programs = entry.and_then(|e| e.prolog_epilog.as_ref());
        let own = programs.and_then(|p| p.tmp_dir.as_ref());
        let path = own.map(|dir| dir.path.clone());
        Some(path.unwrap_or_else(|| tmp_dir::base(&self.settings, &place.node)))
    }

    /// Puts the variables of a job's script into its environment; whether they are not the user's.
    pub(super) fn set_tmp_dir(
        &self,
        entry: &JobEntry,
        grant: &JobGrant,
        env: &mut Environment,
    ) -> bool {
        let path = self.tmp_variable(Some(entry), grant);
        for name in tmp_dir::VARIABLES.iter().filter(|_| path.is_some()) {
            let value = path.as_deref().unwrap_or(Path::new("/"));
            env.push(&[name.as_bytes(), b"=", value.to_string_lossy().as_bytes()]);
        }
        path.is_some()
    }

    /// An agent does not know whether a job's directory could be made: its steps get what its script has.
    pub(super) fn correct_tmp_dir(&self, entry: &JobEntry, order: &mut StepOrder) {
        let Some(grant) = &entry.grant else { return };
        let Some(path) = self.tmp_variable(Some(entry), grant) else {
            return;
        };
        let path = path.to_string_lossy();
        for name in tmp_dir::VARIABLES.map(str::as_bytes) {
            if order.env.value(name) != Some(path.as_bytes()) {
                order.env.set(name, path.as_bytes());
            }
        }
    }
}

/// Has the directory made that those of jobs are in, once it is known where that is.
pub(super) fn prepare(state: &mut State) {
    let parent = state.node.tmp_parent_path();
    let settings = &state.node.settings;
    let is_known = !state.node.place.node.is_empty() && !settings.tmp_fs.is_empty();
    if !settings.job_tmp_dirs || !is_known || state.node.tmp_parent.as_ref() == Some(&parent) {
        return;
    }
    let live = state.jobs.values().filter(|e| !e.phase.is_released());
    let programs = live.filter_map(|e| e.prolog_epilog.as_ref());
    let dirs = programs.filter_map(|p| p.tmp_dir.as_ref());
    let here = dirs.filter(|dir| dir.path.parent() == Some(&parent));
    let names = here.filter_map(|dir| dir.path.file_name()?.to_str());
    let kept: BTreeSet<String> = names.map(str::to_owned).collect();
    state.actions.push(Action::PrepareTmpDirs { parent, kept });
}

/// It is there, or cannot be made.
pub(super) fn prepared(state: &mut State, parent: PathBuf, is_there: bool) {
    let node = &mut state.node;
    if is_there {
        node.failed_tmp_parent = None;
        node.tmp_parent = Some(parent);
        return;
    }
    node.tmp_parent = None;
    if node.failed_tmp_parent.as_ref() != Some(&parent) {
        state.actions.log(format!(
            "TmpFS: {} cannot be made: TMPDIR of Grid Engine jobs is the directory that it would be in, for all of them",
            parent.display()
        ));
        node.failed_tmp_parent = Some(parent);
    }
}
