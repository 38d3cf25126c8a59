//! Scripts and contexts that the controller has sent in this session.

use super::context::Contexts;
use super::interface::Action;
use super::job::Batch;
use super::retry::LaunchRefusal;
use super::state::LauncherState;
use muster_model::ids::BlobId;
use muster_proto::node::JobGrant;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Bytes that may be kept: four times as many as a controller leaves on a node.
const BYTES_MAX: usize = 256 << 20;
/// Bytes that one counts at least: a script is a file, too.
const BYTES_MIN: usize = 4 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Scripts {
    pub(super) blobs: HashMap<BlobId, Rc<[u8]>>,
    pub(super) contexts: Contexts,
    /// Scripts to remove when the jobs that run them are forgotten.
    pub(super) stale_scripts: HashSet<BlobId>,
}

impl Scripts {
    /// Whether the controller has left more than it should.
    pub(super) fn are_too_many(&self) -> bool {
        let bytes = self.blobs.values().map(|blob| blob.len().max(BYTES_MIN));
        bytes.sum::<usize>() > BYTES_MAX
    }

    /// Forgets all of them, as the controller sends them again in the next session. Those of jobs that run stay on disk.
    pub(super) fn clear(&mut self, state: &mut LauncherState) {
        self.blobs.clear();
        self.contexts.clear();
        self.drop_unused_scripts(state);
    }

    /// The data of a batch job's script, from the controller's order.
    pub(super) fn batch_of(&mut self, grant: &JobGrant) -> Result<Batch, LaunchRefusal> {
        let spec = &grant.spec;
        let blob = |scripts: &Scripts, id, what: &str| {
            scripts.blobs.get(&id).cloned().ok_or_else(|| {
                LaunchRefusal::of_node(format!(
                    "the controller did not send the job's {what} ({id:?})"
                ))
            })
        };
        let id = spec.script;
        let id = id.ok_or_else(|| LaunchRefusal::of_job("the job has no script"))?;
        let text = blob(self, id, "script")?;
        let context = match spec.context {
            None => Rc::default(),
            Some(id) => {
                let bytes = blob(self, id, "execution context")?;
                self.contexts
                    .get(id, &bytes)
                    .map_err(LaunchRefusal::of_job)?
            }
        };
        Ok(Batch {
            script: id,
            text,
            context,
        })
    }

    /// Removes scripts that no job here runs.
    fn drop_unused_scripts(&mut self, state: &mut LauncherState) {
        let used: HashSet<(BlobId, u32)> = state
            .jobs
            .values()
            .filter_map(|e| {
                let spec = &e.grant.as_ref()?.spec;
                Some((spec.script?, spec.owner.uid))
            })
            .collect();
        state.actions.push(Action::KeepScripts(used));
    }

    /// Removes a script that the controller does not refer to any more, once no job here runs it.
    pub(super) fn drop_script(&mut self, state: &mut LauncherState, id: BlobId) {
        let mut grants = state.jobs.values().filter_map(|e| e.grant.as_ref());
        if grants.any(|grant| grant.spec.script == Some(id)) {
            self.stale_scripts.insert(id);
        } else {
            state.actions.push(Action::DropScript(id));
        }
    }
}
