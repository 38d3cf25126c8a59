//! The properties of a job that decide with which others it may share nodes.

use crate::nodes::fleet::Fleet;
use crate::nodes::room::SharingKey;
use muster_core::policy::mcs::node_label;
use muster_core::state::State;
use muster_model::spec::JobSpec;
use std::sync::Arc;

/// Owner and label of a job, as far as they decide with which jobs it shares nodes.
pub(crate) fn sharing_key(fleet: &Fleet, state: &State, spec: &JobSpec) -> SharingKey {
    let label = node_label(state, spec).filter(|_| fleet.by_label);
    SharingKey {
        user: fleet.by_user.then_some(spec.owner.uid),
        label: label.map(Arc::from),
    }
}
