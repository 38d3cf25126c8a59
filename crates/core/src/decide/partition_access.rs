//! Access to partitions, and their limits for jobs.

use crate::policy::access;
use crate::state::State;
use muster_model::accounts::Qos;
use muster_model::command::Identity;
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig, PartitionState};
use muster_model::job::Reason;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::{JobSpec, MemoryAsk, Owner, ResourceAsk};
use muster_model::time::TimeLimit;

/// Why a job of that size and limit waits in a partition until its limits are changed; `None` if it is within them.
pub fn limit_reason(
    partition: &PartitionConfig,
    ask: &ResourceAsk,
    time_limit: TimeLimit,
) -> Option<Reason> {
    let too_long = match (time_limit, partition.max_time) {
        (_, TimeLimit::Unlimited) => false,
        (TimeLimit::Unlimited, TimeLimit::Minutes(_)) => true,
        (TimeLimit::Minutes(asked), TimeLimit::Minutes(most)) => asked > most,
    };
    if too_long {
        return Some(Reason::PartitionTimeLimit);
    }
    let too_many = partition.max_nodes.is_some_and(|most| ask.min_nodes > most);
    let too_few = ask.max_nodes.is_some_and(|most| most < partition.min_nodes);
    if too_many || too_few {
        return Some(Reason::PartitionNodeLimit);
    }
    (ask.min_nodes as usize > partition.nodes.len()).then_some(Reason::PartitionConfig)
}

/// The partitions that a job names or gets by default, checked: state, access, limits. With the first reason to
/// wait, if its limits keep it from all of them.
pub(super) fn choose<'a>(
    state: &'a State,
    identity: &Identity,
    spec: &JobSpec,
    time_limit: impl Fn(&PartitionConfig) -> TimeLimit,
) -> Result<(Vec<&'a PartitionConfig>, Option<Reason>), Refusal> {
    let named = named(state, spec)?;
    let enforce = state
        .config
        .as_ref()
        .map_or(EnforcePartLimits::No, |c| c.enforce_part_limits);
    let (mut usable, mut refusal) = (0, None);
    for partition in &named {
        match access(state, identity, spec, partition) {
            Ok(()) => usable += 1,
            Err(why) if enforce == EnforcePartLimits::All => return Err(why),
            Err(why) => refusal = Some(why),
        }
    }
    if let Some(why) = refusal.filter(|_| usable == 0) {
        return Err(why);
    }
    let reasons: Vec<Option<Reason>> = named
        .iter()
        .map(|p| limit_reason(p, &spec.ask, time_limit(p)))
        .collect();
    let outside = match enforce {
        EnforcePartLimits::All => reasons.iter().find_map(|r| *r),
        EnforcePartLimits::Any | EnforcePartLimits::No => {
            if reasons.iter().any(Option::is_none) {
                None
            } else {
                reasons.iter().find_map(|r| *r)
            }
        }
    };
    match (outside, enforce) {
        (Some(reason), EnforcePartLimits::Any | EnforcePartLimits::All) => {
            Err(limit_refusal(reason))
        }
        (reason, _) => Ok((named, reason)),
    }
}

fn named<'a>(state: &'a State, spec: &JobSpec) -> Result<Vec<&'a PartitionConfig>, Refusal> {
    if spec.partitions.is_empty() {
        let default = state.partitions.iter().find(|p| p.default);
        return default.map(|p| vec![p]).ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidPartition,
                "no partition was asked for and none is the default; use --partition",
            )
        });
    }
    spec.partitions
        .iter()
        .map(|name| {
            state.partition(name).ok_or_else(|| {
                Refusal::new(
                    RefusalCode::InvalidPartition,
                    format!("invalid partition specified: {name}"),
                )
            })
        })
        .collect()
}

/// Whether the job may be put into the partition at all.
pub(super) fn access(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    partition: &PartitionConfig,
) -> Result<(), Refusal> {
    let name = &partition.name;
    match partition.state {
        PartitionState::Up | PartitionState::Down => {}
        PartitionState::Drain | PartitionState::Inactive => {
            return Err(Refusal::new(
                RefusalCode::PartitionNotAvailable,
                format!("partition {name} takes no jobs now"),
            ));
        }
    }
    if partition.root_only && !access::may(state, identity, AccessRequest::RootOnlyPartition) {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            format!("partition {name} is for root (RootOnly=YES)"),
        ));
    }
    let owner = &spec.owner;
    if partition.disable_root_jobs && owner.uid == 0 {
        return Err(Refusal::new(
            RefusalCode::RootDisabled,
            format!("partition {name} takes no jobs of root (DisableRootJobs=YES)"),
        ));
    }
    if !group_allowed(partition, identity, owner) {
        return Err(Refusal::new(
            RefusalCode::PartitionAccess,
            format!(
                "partition {name} is for the groups {}",
                partition.allow_groups.join(",")
            ),
        ));
    }
    if !listed(&partition.alloc_nodes, Some(&spec.submit_host)) {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            format!(
                "partition {name} takes no jobs from {} (AllocNodes)",
                spec.submit_host
            ),
        ));
    }
    let account = spec.account.as_ref();
    if !listed(&partition.allow_accounts, account) || denied(&partition.deny_accounts, account) {
        return Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!("the job's account may not use partition {name}"),
        ));
    }
    let default = state
        .accounts
        .default_qos(spec.account_name(), &owner.user, name)
        .to_owned();
    let qos = spec.qos.as_ref().or(Some(&default));
    if !listed(&partition.allow_qos, qos) || denied(&partition.deny_qos, qos) {
        return Err(Refusal::new(
            RefusalCode::InvalidQos,
            format!("the job's QOS may not use partition {name}"),
        ));
    }
    let qos = qos.and_then(|name| state.accounts.qos.get(name));
    if let Some(qos) = qos.filter(|qos| qos.has(Qos::REQUIRES_RESERVATION))
        && spec.reservation.is_none()
    {
        return Err(Refusal::new(
            RefusalCode::InvalidReservation,
            format!(
                "QOS {} takes jobs with --reservation only (flag {})",
                qos.name,
                Qos::REQUIRES_RESERVATION
            ),
        ));
    }
    if partition.req_resv && spec.reservation.is_none() {
        return Err(Refusal::new(
            RefusalCode::InvalidReservation,
            format!("partition {name} takes jobs with --reservation only (ReqResv=YES)"),
        ));
    }
    Ok(())
}

/// Root passes; groups of the caller count for the caller's own jobs.
fn group_allowed(partition: &PartitionConfig, identity: &Identity, owner: &Owner) -> bool {
    let allowed = &partition.allow_groups;
    if allowed.is_empty() || identity.uid == 0 {
        return true;
    }
    allowed.contains(&owner.group)
        || (owner.uid == identity.uid
            && (allowed.contains(&identity.group)
                || identity.groups.iter().any(|g| allowed.contains(g))))
}

/// An empty list is for all.
fn listed(list: &[String], value: Option<&String>) -> bool {
    list.is_empty() || value.is_some_and(|v| list.contains(v))
}

fn denied(list: &[String], value: Option<&String>) -> bool {
    value.is_some_and(|v| list.contains(v))
}

fn limit_refusal(reason: Reason) -> Refusal {
    match reason {
        Reason::PartitionTimeLimit => Refusal::new(
            RefusalCode::InvalidTimeLimit,
            "--time is over the partition's MaxTime",
        ),
        Reason::PartitionNodeLimit => Refusal::new(
            RefusalCode::InvalidNodeCount,
            "--nodes is outside the partition's MinNodes and MaxNodes",
        ),
        _ => Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            "the partition does not have so many nodes",
        ),
    }
}

/// The memory a job gets when it asks for none: the partition's default, else the cluster's.
pub(super) fn default_memory(state: &State, partition: &PartitionConfig) -> MemoryAsk {
    match partition.default_memory {
        MemoryAsk::Default => state
            .config
            .as_ref()
            .map_or(MemoryAsk::Default, |c| c.default_memory),
        memory @ (MemoryAsk::PerNode(_) | MemoryAsk::PerCpu(_)) => memory,
    }
}

/// Whether a job that asks for no memory gets some with each of its GPUs (`DefMemPerGPU`). What a partition says of
/// memory stands before what the cluster says.
pub(super) fn memory_by_gpu(state: &State, partition: &PartitionConfig, ask: &ResourceAsk) -> bool {
    let cluster = state.config.as_ref().map(|c| c.job_defaults);
    let by_gpu = match partition.default_memory {
        MemoryAsk::Default => partition.job_defaults.or(cluster.unwrap_or_default()),
        MemoryAsk::PerNode(_) | MemoryAsk::PerCpu(_) => partition.job_defaults,
    };
    by_gpu.mib_per_gpu.is_some() && ask.wants_gpus()
}

/// The most memory a job may ask for; `Default` is no limit.
pub(super) fn max_memory(
    cluster: Option<&ClusterConfig>,
    partition: &PartitionConfig,
) -> MemoryAsk {
    match partition.max_memory {
        MemoryAsk::Default => cluster.map_or(MemoryAsk::Default, |c| c.max_memory),
        memory @ (MemoryAsk::PerNode(_) | MemoryAsk::PerCpu(_)) => memory,
    }
}

/// Whether a job of that memory is within what the partition allows.
pub fn within_memory_limit(
    cluster: Option<&ClusterConfig>,
    partition: &PartitionConfig,
    ask: &ResourceAsk,
) -> bool {
    match (max_memory(cluster, partition), ask.memory) {
        (MemoryAsk::Default, _) | (_, MemoryAsk::Default) => true,
        (MemoryAsk::PerNode(most), MemoryAsk::PerNode(mib)) => mib <= most,
        (MemoryAsk::PerCpu(most), MemoryAsk::PerCpu(mib)) => mib <= most,
        (MemoryAsk::PerNode(most), MemoryAsk::PerCpu(mib)) => {
            mib.saturating_mul(u64::from(ask.cpus_of_task())) <= most
        }
        // How many CPUs it gets on a node is known only when it is placed.
        (MemoryAsk::PerCpu(_), MemoryAsk::PerNode(_)) => true,
    }
}
