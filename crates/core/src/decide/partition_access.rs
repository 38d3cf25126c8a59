//! Access to partitions, and their limits for jobs.

use crate::policy::access;
use crate::state::State;
use muster_model::accounts::{PartitionExemptions, Qos};
use muster_model::command::Identity;
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig};
use muster_model::job::Reason;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::{JobSpec, MemoryAsk, Owner, ResourceAsk};
use muster_model::time::TimeLimit;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of a partition that do not hold for a job there, as flags of its QOS say.
pub fn exemptions(state: &State, spec: &JobSpec, partition: &str) -> PartitionExemptions {
    let accounts = &state.accounts;
    if accounts.qos.is_empty() {
        return PartitionExemptions::default();
    }
    let default = || accounts.default_qos(spec.account_name(), &spec.owner.user, partition);
    let name = spec.qos.as_deref().unwrap_or_else(default);
    let qos = accounts.qos.get(name);
    qos.map(PartitionExemptions::of).unwrap_or_default()
}

/// Why a job of that size and limit waits in a partition until its limits are changed; `None` if it is within those that
/// hold for it.
pub fn limit_reason(
    partition: &PartitionConfig,
    ask: &ResourceAsk,
    time_limit: TimeLimit,
    exempt: PartitionExemptions,
) -> Option<Reason> {
    let too_long = match (time_limit, exempt.max_time_in(partition)) {
        (_, TimeLimit::Unlimited) => false,
        (TimeLimit::Unlimited, TimeLimit::Minutes(_)) => true,
        (TimeLimit::Minutes(asked), TimeLimit::Minutes(most)) => asked > most,
    };
    if too_long {
        return Some(Reason::PartitionTimeLimit);
    }
    let (fewest, most) = (
        exempt.min_nodes_in(partition),
        exempt.max_nodes_in(partition),
    );
    let too_many = most.is_some_and(|most| ask.min_nodes > most);
    let too_few = ask.max_nodes.is_some_and(|most| most < fewest);
    if too_many || too_few {
        return Some(Reason::PartitionNodeLimit);
    }
    (ask.min_nodes as usize > partition.nodes.len()).then_some(Reason::PartitionConfig)
}

/// The reason that keeps a job out of a partition, by properties of both that may change while the job waits. The rest of
/// [`access`] is about the user who puts it there, and from where.
enum AccessDenial<'a> {
    Account,
    Qos,
    /// The QOS takes jobs in reservations only.
    QosReservation(&'a str),
    /// The partition does.
    Reservation,
}

impl AccessDenial<'_> {
    fn reason(&self) -> Reason {
        match self {
            AccessDenial::Account => Reason::AccountNotAllowed,
            AccessDenial::Qos => Reason::QOSNotAllowed,
            AccessDenial::QosReservation(_) | AccessDenial::Reservation => Reason::Reservation,
        }
    }

    /// Whether a job waits that it keeps out, where `EnforcePartLimits=NO`.
    fn may_wait(&self) -> bool {
        matches!(self, AccessDenial::Account | AccessDenial::Qos)
    }

    fn refusal(&self, partition: &str) -> Refusal {
        let (code, text) = match self {
            AccessDenial::Account => (
                RefusalCode::InvalidAccount,
                format!("the job's account may not use partition {partition}"),
            ),
            AccessDenial::Qos => (
                RefusalCode::InvalidQos,
                format!("the job's QOS may not use partition {partition}"),
            ),
            AccessDenial::QosReservation(qos) => (
                RefusalCode::InvalidReservation,
                format!(
                    "QOS {qos} takes jobs with --reservation only (flag {})",
                    Qos::REQUIRES_RESERVATION
                ),
            ),
            AccessDenial::Reservation => (
                RefusalCode::InvalidReservation,
                format!("partition {partition} takes jobs with --reservation only (ReqResv=YES)"),
            ),
        };
        Refusal::new(code, text)
    }
}

/// The reason that keeps a job out of a partition by its account, its QOS there and whether it asks for a reservation.
fn access_denial<'a>(
    state: &'a State,
    spec: &'a JobSpec,
    partition: &PartitionConfig,
) -> Option<AccessDenial<'a>> {
    let accounts = &state.accounts;
    let account = spec.account.as_deref();
    let is = |list: &[String]| account.is_some_and(|name| accounts.lists_account(list, name));
    // An account is kept out with all accounts under it.
    let is_under =
        |list: &[String]| account.is_some_and(|name| accounts.lists_account_or_above(list, name));
    let allowed = match partition.allow_accounts.as_slice() {
        [] => !is_under(&partition.deny_accounts),
        allow => is(allow),
    };
    if !allowed {
        return Some(AccessDenial::Account);
    }
    let by_qos = !(partition.allow_qos.is_empty() && partition.deny_qos.is_empty());
    if by_qos || spec.reservation.is_none() && !accounts.qos.is_empty() {
        let default = || {
            let (account, user) = (spec.account_name(), &spec.owner.user);
            accounts.default_qos(account, user, &partition.name)
        };
        let qos = spec.qos.as_deref().unwrap_or_else(default);
        let allowed = match partition.allow_qos.as_slice() {
            [] => !accounts.lists_qos(&partition.deny_qos, qos),
            allow => accounts.lists_qos(allow, qos),
        };
        // Jobs of root may have any QOS anywhere.
        if spec.owner.uid != 0 && !allowed {
            return Some(AccessDenial::Qos);
        }
        let known = accounts.qos.get(qos);
        if let Some(qos) = known.filter(|qos| qos.has(Qos::REQUIRES_RESERVATION))
            && spec.reservation.is_none()
        {
            return Some(AccessDenial::QosReservation(&qos.name));
        }
    }
    (partition.req_resv && spec.reservation.is_none()).then_some(AccessDenial::Reservation)
}

/// Whether a partition keeps out any jobs for which [`barred`] asks. Beside that only a QOS that requires a reservation does.
pub fn restricts(partition: &PartitionConfig) -> bool {
    let lists = [
        &partition.allow_accounts,
        &partition.deny_accounts,
        &partition.allow_qos,
        &partition.deny_qos,
    ];
    partition.req_resv || lists.iter().any(|list| !list.is_empty())
}

/// Why a job may not start in a partition, whatever is free there, until one of them is changed: the partition does not take
/// its account or its QOS, or takes jobs in reservations only.
pub fn barred(state: &State, spec: &JobSpec, partition: &PartitionConfig) -> Option<Reason> {
    access_denial(state, spec, partition).map(|bar| bar.reason())
}

/// The partitions that a job names or gets by default, checked: state, access, limits. Those that it may not use are left
/// out, or have it refused where all must take it. With the first reason to wait, if its limits keep it from all of them.
pub(super) fn choose<'a>(
    state: &'a State,
    identity: &Identity,
    spec: &JobSpec,
    time_limit: impl Fn(&PartitionConfig) -> TimeLimit,
) -> Result<(Vec<&'a PartitionConfig>, Option<Reason>), Refusal> {
    let usable = usable(state, named(state, spec)?, |partition| {
        takes(state, identity, spec, partition)
    })?;
    let enforce = enforced(state);
    let reasons: Vec<Option<Reason>> = usable
        .iter()
        .map(|p| {
            let bar = access_denial(state, spec, p).map(|bar| bar.reason());
            let exempt = exemptions(state, spec, &p.name);
            bar.or_else(|| limit_reason(p, &spec.ask, time_limit(p), exempt))
        })
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
            match reason != Reason::PartitionTimeLimit && exceeds_cpus(state, &usable, &spec.ask) {
                true => Err(RefusalCode::TooManyCpus.into()),
                false => Err(limit_refusal(reason)),
            }
        }
        (reason, _) => Ok((usable, reason)),
    }
}

/// The partitions that still take a job whose account, QOS or reservation was changed. Who has put it there, and from
/// where, is not asked again.
pub(super) fn still_open(state: &State, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    if spec.partitions.is_empty() {
        return Ok(Vec::new());
    }
    // One that is gone keeps its place: it may be made again.
    let known = by_name(state, &spec.partitions);
    let open = usable(state, spec.partitions.iter().collect(), |name: &String| {
        let barred = known(name).and_then(|p| access_denial(state, spec, p));
        barred.map_or(Ok(()), |bar| Err(bar.refusal(name)))
    })?;
    Ok(open.into_iter().cloned().collect())
}

/// Refuses a change of a job after which the partition that it is in does not take it.
pub(super) fn require_open(state: &State, spec: &JobSpec, partition: &str) -> Result<(), Refusal> {
    let barred = state
        .partition(partition)
        .and_then(|p| access_denial(state, spec, p));
    barred.map_or(Ok(()), |bar| Err(bar.refusal(partition)))
}

fn enforced(state: &State) -> EnforcePartLimits {
    let config = state.config.as_ref();
    config.map_or(EnforcePartLimits::No, |config| config.enforce_part_limits)
}

/// The partitions of some that take a job: at least one, or each where `EnforcePartLimits=ALL`.
fn usable<T: Copy>(
    state: &State,
    named: Vec<T>,
    takes: impl Fn(T) -> Result<(), Refusal>,
) -> Result<Vec<T>, Refusal> {
    let (mut usable, mut refusal) = (Vec::with_capacity(named.len()), None);
    for partition in named {
        match takes(partition) {
            Ok(()) => usable.push(partition),
            Err(why) if enforced(state) == EnforcePartLimits::All => return Err(why),
            Err(why) => refusal = Some(why),
        }
    }
    match refusal {
        Some(why) if usable.is_empty() => Err(why),
        _ => Ok(usable),
    }
}

fn named<'a>(state: &'a State, spec: &JobSpec) -> Result<Vec<&'a PartitionConfig>, Refusal> {
    if spec.partitions.is_empty() {
        let default = state.partitions.iter().find(|p| p.default);
        return default.map(|p| vec![open_for(state, p)]).ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidPartition,
                "no partition was asked for and none is the default; use --partition",
            )
        });
    }
    let known = by_name(state, &spec.partitions);
    let (mut chosen, mut seen) = (Vec::with_capacity(spec.partitions.len()), BTreeSet::new());
    for name in &spec.partitions {
        let partition = known(name).ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidPartition,
                format!("invalid partition specified: {name}"),
            )
        })?;
        let open = open_for(state, partition);
        if seen.insert(open.name.as_str()) {
            chosen.push(open);
        }
    }
    Ok(chosen)
}

/// The partition to which a new job for a partition goes: its `Alternate` while it is drained or inactive, and that one's
/// if need be. Itself, where none of them takes jobs.
fn open_for<'a>(state: &'a State, partition: &'a PartitionConfig) -> &'a PartitionConfig {
    let mut candidate = partition;
    // Alternates may form a ring.
    for _ in 0..state.partitions.len() {
        if candidate.state.takes_jobs() {
            return candidate;
        }
        let next = candidate.alternate.as_deref();
        match next.and_then(|name| state.partition(name)) {
            Some(next) => candidate = next,
            None => break,
        }
    }
    partition
}

/// Finds partitions by name. Where a job names many, not by looking through all for each.
fn by_name<'a>(
    state: &'a State,
    names: &[String],
) -> impl Fn(&str) -> Option<&'a PartitionConfig> + use<'a> {
    const FEW: usize = 4;
    let many = names.len() > FEW;
    let all = state.partitions.iter().filter(move |_| many);
    let all: BTreeMap<&str, &PartitionConfig> = all.map(|p| (p.name.as_str(), p)).collect();
    move |name| match many {
        true => all.get(name).copied(),
        false => state.partition(name),
    }
}

/// Whether the partition is open to the user who puts a job there, and from where.
fn may_submit(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    partition: &PartitionConfig,
) -> Result<(), Refusal> {
    let name = &partition.name;
    if !partition.state.takes_jobs() {
        return Err(Refusal::new(
            RefusalCode::PartitionNotAvailable,
            format!("partition {name} takes no jobs now"),
        ));
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
    if !group_allowed(state, partition, identity, owner) {
        let hidden = access::privacy::hides(state, identity, PrivateData::PARTITIONS);
        let text = match hidden {
            true => format!("partition {name} is not for groups of yours"),
            false => format!(
                "partition {name} is for the groups {}",
                partition.allow_groups.join(",")
            ),
        };
        return Err(Refusal::new(RefusalCode::PartitionAccess, text));
    }
    let hosts = &partition.alloc_nodes;
    if !hosts.is_empty() && !hosts.contains(&spec.submit_host) {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            format!(
                "partition {name} takes no jobs from {} (AllocNodes)",
                spec.submit_host
            ),
        ));
    }
    Ok(())
}

/// Whether the job may be put into the partition at all.
pub(super) fn access(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    partition: &PartitionConfig,
) -> Result<(), Refusal> {
    may_submit(state, identity, spec, partition)?;
    access_denial(state, spec, partition).map_or(Ok(()), |bar| Err(bar.refusal(&partition.name)))
}

/// Whether a new job is taken into the partition: where `EnforcePartLimits=NO`, one waits that its account or QOS keeps out.
fn takes(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    partition: &PartitionConfig,
) -> Result<(), Refusal> {
    may_submit(state, identity, spec, partition)?;
    match access_denial(state, spec, partition) {
        Some(bar) if !(bar.may_wait() && enforced(state) == EnforcePartLimits::No) => {
            Err(bar.refusal(&partition.name))
        }
        _ => Ok(()),
    }
}

/// Root passes, and so do jobs of SlurmUser; groups of the caller count for the caller's own jobs.
fn group_allowed(
    state: &State,
    partition: &PartitionConfig,
    identity: &Identity,
    owner: &Owner,
) -> bool {
    let allowed = &partition.allow_groups;
    let config = state.config.as_ref();
    let is_slurm_user = || config.is_some_and(|config| config.admin_uids.contains(&owner.uid));
    if allowed.is_empty() || identity.uid == 0 || is_slurm_user() {
        return true;
    }
    allowed.contains(&owner.group)
        || (owner.uid == identity.uid
            && (allowed.contains(&identity.group)
                || identity.groups.iter().any(|g| allowed.contains(g))))
}

/// Whether a job asks for more CPUs than any of the partitions has, with one for each node at least.
fn exceeds_cpus(state: &State, partitions: &[&PartitionConfig], ask: &ResourceAsk) -> bool {
    let asked = u64::from(ask.min_cpus().max(ask.min_nodes));
    let cpus_of = |partition: &&PartitionConfig| -> u64 {
        let nodes = partition
            .nodes
            .iter()
            .filter_map(|name| state.node_named(name));
        nodes.map(|node| u64::from(node.config.cpus)).sum()
    };
    partitions
        .iter()
        .all(|partition| cpus_of(partition) < asked)
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
            RefusalCode::InvalidNodeCount,
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

/// The most memory that jobs have in a partition; `Default`, as 0, is no limit.
pub fn max_memory(cluster: Option<&ClusterConfig>, partition: &PartitionConfig) -> MemoryAsk {
    let all = [
        partition.max_memory,
        cluster.map_or(MemoryAsk::Default, |c| c.max_memory),
    ];
    let is_limit =
        |most: &MemoryAsk| matches!(most, MemoryAsk::PerNode(1..) | MemoryAsk::PerCpu(1..));
    all.into_iter().find(is_limit).unwrap_or(MemoryAsk::Default)
}

/// Whether this memory of a node is within that limit for a job with these CPUs there.
pub(super) fn is_within(most: MemoryAsk, mib: u64, cpus: u32) -> bool {
    match most {
        MemoryAsk::Default => true,
        MemoryAsk::PerNode(most) => mib <= most,
        MemoryAsk::PerCpu(most) => mib <= most.saturating_mul(u64::from(cpus)),
    }
}

/// Fewest CPUs of one of its nodes that a job gets, wherever it is placed.
fn least_cpus_of_node(ask: &ResourceAsk) -> u32 {
    let of_task = ask.cpus_of_task();
    let of_tasks = match (ask.ntasks, ask.ntasks_per_node, ask.max_nodes) {
        _ if ask.overcommit => 0,
        (None, Some(tasks), _) => tasks.saturating_mul(of_task),
        (Some(tasks), _, Some(nodes)) => tasks.div_ceil(nodes.max(1)).saturating_mul(of_task),
        _ => 0,
    };
    of_task
        .max(of_tasks)
        .max(ask.min_cpus_per_node.unwrap_or(1))
}

/// Whether a job of that memory is within what the partition allows.
pub fn within_memory_limit(
    cluster: Option<&ClusterConfig>,
    partition: &PartitionConfig,
    ask: &ResourceAsk,
) -> bool {
    let of_gpu = ask.devices().mib_per_gpu.filter(|_| ask.wants_gpus());
    match (max_memory(cluster, partition), ask.memory) {
        (MemoryAsk::PerNode(most), _) if of_gpu.is_some_and(|mib| mib > most) => false,
        (MemoryAsk::Default, _) | (_, MemoryAsk::Default) => true,
        (MemoryAsk::PerNode(most), MemoryAsk::PerNode(mib)) => mib <= most,
        (MemoryAsk::PerCpu(most), MemoryAsk::PerCpu(mib)) => mib <= most,
        (MemoryAsk::PerNode(most), MemoryAsk::PerCpu(mib)) => {
            mib.saturating_mul(u64::from(least_cpus_of_node(ask))) <= most
        }
        // It gets as many CPUs as that memory takes.
        (MemoryAsk::PerCpu(_), MemoryAsk::PerNode(_)) => true,
    }
}
