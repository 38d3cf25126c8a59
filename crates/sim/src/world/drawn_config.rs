//! The configuration of a simulated cluster, as its seed draws it.

use super::accounting;
use crate::random::Random;
use muster_model::config::{
    ClusterConfig, EnforcePartLimits, OverSubscribe, PartitionConfig, PartitionState,
};
use muster_model::node::NodeConfig;
use muster_model::node_state::InitialState;
use muster_model::preemption::{PreemptMode, PreemptType};
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;

/// Memory of every node, MiB.
pub(super) const MEMORY_MIB: u64 = 4000;

/// A cluster.
pub(crate) fn configuration(random: &mut Random, nodes: usize) -> ClusterConfig {
    let count = if nodes == 0 {
        random.between(1, 5)
    } else {
        nodes as u64
    };
    let threads = random.small(1, 2);
    let nodes: Vec<NodeConfig> = (0..count)
        .map(|i| {
            let cores = random.small(1, 4);
            NodeConfig {
                name: format!("n{i}"),
                hostname: format!("n{i}"),
                addr: format!("n{i}"),
                port: 6818,
                cpus: cores * threads,
                boards: 1,
                sockets: 1,
                cores_per_socket: cores,
                threads_per_core: threads,
                memory_mib: MEMORY_MIB,
                weight: 1,
                state: InitialState::Unknown,
                ..NodeConfig::default()
            }
        })
        .collect();
    let names: Vec<String> = nodes.iter().map(|n| n.name.clone()).collect();
    let half = names[..names.len().div_ceil(2)].to_vec();
    let partitions = vec![
        partition("all", names, true, 1),
        partition("few", half, false, 2),
    ];
    let mut config = ClusterConfig {
        cluster_name: crate::controller::CLUSTER.to_owned(),
        nodes,
        partitions,
        first_job_id: 1,
        max_job_count: 1000,
        max_array_size: 100,
        min_job_age_s: random.small(5, 60),
        kill_wait_s: 5,
        node_timeout_s: random.small(20, 90),
        return_to_service: random.small(0, 2),
        job_requeue: random.one_in(2),
        default_memory: MemoryAsk::PerCpu(100),
        max_memory: MemoryAsk::Default,
        enforce_part_limits: EnforcePartLimits::No,
        memory_is_consumable: random.one_in(2),
        whole_nodes: random.one_in(8),
        backfill: random.one_in(2),
        over_time_limit_min: None,
        kill_invalid_depend: random.one_in(2),
        inactive_limit_s: 0,
        admin_uids: vec![0],
        whole_cores: random.one_in(2),
        select_parameters: Vec::new(),
        scheduler_parameters: Vec::new(),
        ..ClusterConfig::default()
    };
    if random.one_in(2) {
        draw_preemption(random, &mut config);
    }
    accounting::draw(random, &mut config);
    config
}

/// Jobs of `few` go before those of `all`; jobs of `all` may share CPUs.
fn draw_preemption(random: &mut Random, config: &mut ClusterConfig) {
    let modes = [
        PreemptMode::Cancel,
        PreemptMode::Requeue,
        PreemptMode::Suspend,
    ];
    let settings = &mut config.order.preemption;
    settings.kind = PreemptType::PartitionPrio;
    settings.mode = *random.pick(&modes);
    settings.exempt_s = *random.pick(&[0, 0, 20]);
    settings.reclaim_licenses = random.one_in(2);
    config.partitions[0].grace_time_s = *random.pick(&[0, 0, 5]);
    if random.one_in(3) {
        config.partitions[0].over_subscribe = OverSubscribe::Force(random.small(1, 3));
        config.order.time_slice_s = random.one_in(2).then_some(5);
    }
}

fn partition(name: &str, nodes: Vec<String>, default: bool, tier: u32) -> PartitionConfig {
    PartitionConfig {
        name: name.to_owned(),
        nodes_text: nodes.join(","),
        nodes,
        default,
        state: PartitionState::Up,
        max_time: TimeLimit::Minutes(10),
        default_time: Some(TimeLimit::Minutes(2)),
        min_nodes: 1,
        max_nodes: None,
        max_cpus_per_node: None,
        allow_groups: Vec::new(),
        allow_accounts: Vec::new(),
        deny_accounts: Vec::new(),
        allow_qos: Vec::new(),
        deny_qos: Vec::new(),
        alloc_nodes: Vec::new(),
        priority_tier: tier,
        priority_job_factor: 1,
        over_subscribe: OverSubscribe::No,
        default_memory: MemoryAsk::Default,
        max_memory: MemoryAsk::Default,
        hidden: false,
        root_only: false,
        disable_root_jobs: false,
        exclusive_user: false,
        lln: false,
        req_resv: false,
        qos: None,
        grace_time_s: 0,
        preempt_mode: None,
        over_time_limit_min: None,
        billing_weights: None,
        topology: None,
        ..PartitionConfig::named("")
    }
}
