//! What a step of a job receives of the job.

use super::Agent;
use muster_model::job_env::JobView;
use muster_node_core::job_view::{job_view, propagated_limits};
use muster_node_core::messages::User;
use muster_proto::node::JobGrant;

impl Agent {
    /// The job as its environment describes it.
    pub(super) fn view<'a>(&'a self, grant: &'a JobGrant) -> JobView<'a> {
        job_view(grant, &self.options.cluster, &self.settings)
    }

    /// Who a job runs as. The launcher does not take this from an agent, and adds the user's groups.
    pub(super) fn user_of(grant: &JobGrant) -> User {
        let owner = &grant.spec.owner;
        User {
            uid: owner.uid,
            gid: owner.gid,
            groups: Vec::new(),
            name: owner.user.clone(),
        }
    }

    /// Limits that `PropagateResourceLimits` lets through.
    pub(super) fn limits(&self, soft: &[(u32, u64)]) -> Vec<(u32, u64)> {
        propagated_limits(&self.settings, soft)
    }
}
