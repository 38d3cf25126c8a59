//! The most nodes that limits of associations and QOS leave a job which asks for a range of them: it takes fewer, as with
//! Slurm, where one that asks for so many waits.

use super::Scope;
use super::verdict::limits_for;
use crate::state::State;
use muster_model::account_limits::TresAmounts;
use muster_model::job::Job;

/// The node limits that have been seen, from the scopes with precedence on.
#[derive(Default)]
struct NodeLimits {
    qos_group: Option<u64>,
    qos_job: Option<u64>,
    association_group: Option<u64>,
    association_job: Option<u64>,
    of_sharer: Option<u64>,
}

/// The lower one of two limits, either of which may be absent.
fn lower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// The most nodes of a job in that partition; none if there is no limit. A limit of a QOS has precedence over the same
/// one of an association.
pub(crate) fn most_nodes(state: &State, job: &Job, partition: &str) -> Option<u32> {
    if !state.keeps_limits() {
        return None;
    }
    let node = |tres: &TresAmounts| tres.get("node");
    let mut known = NodeLimits::default();
    for scope in state.scopes_of(job, partition) {
        let limits = limits_for(state, &scope, job);
        match scope {
            Scope::Qos(_) => {
                known.qos_group = known.qos_group.or(node(&limits.grp_tres));
                known.qos_job = known.qos_job.or(node(&limits.max_tres));
            }
            Scope::QosUser(..) => {
                known.of_sharer = lower(known.of_sharer, node(&limits.max_tres_user));
            }
            Scope::QosAccount(..) => {
                known.of_sharer = lower(known.of_sharer, node(&limits.max_tres_account));
            }
            Scope::Association(..) | Scope::PartitionAssociation(..) => {
                known.association_job = node(&limits.max_tres);
                known.association_group = lower(known.association_group, node(&limits.grp_tres));
            }
            Scope::Account(_) => {
                known.association_group = lower(known.association_group, node(&limits.grp_tres));
            }
        }
    }
    let group = known.qos_group.or(known.association_group);
    let of_job = known.qos_job.or(known.association_job);
    let most = lower(lower(group, of_job), known.of_sharer)?;
    Some(u32::try_from(most).unwrap_or(u32::MAX))
}
