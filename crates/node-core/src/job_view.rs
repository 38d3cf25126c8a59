//! A job as its environment describes it, from its grant and the settings of the node.

use muster_model::job_env::JobView;
use muster_model::spec::SoftLimit;
use muster_proto::node::{JobGrant, NodeSettings};

/// The job of a grant.
pub fn job_view<'a>(
    grant: &'a JobGrant,
    cluster: &'a str,
    settings: &'a NodeSettings,
) -> JobView<'a> {
    JobView {
        job: grant.job,
        spec: &grant.spec,
        alloc: &grant.alloc,
        array: &grant.array,
        array_info: grant.array_info.as_ref(),
        start_time: grant.start_time,
        time_limit: grant.time_limit,
        restarts: grant.restarts,
        account: &grant.account,
        qos: &grant.qos,
        cluster,
        conf_path: &settings.conf_path,
        working_cluster: &settings.working_cluster,
        lead_address: grant.addresses.first().map_or("", String::as_str),
        topology: (&settings.topology_addr, &settings.topology_pattern),
        components: &grant.components,
    }
}

/// Limits that `PropagateResourceLimits` lets through.
pub fn propagated_limits(settings: &NodeSettings, soft: &[SoftLimit]) -> Vec<SoftLimit> {
    let wanted = &settings.propagate_limits;
    soft.iter()
        .filter(|limit| wanted.contains(&limit.resource))
        .copied()
        .collect()
}
