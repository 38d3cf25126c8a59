//! Reservations that ordinary users make for themselves, where the site lets them (`arusers` of sge.conf). They are for cores of a
//! partition that the user may use, for the user alone, few at a time, and within what jobs of the user may have.

use super::Draft;
use super::nodes::cores_of_partition;
use crate::decide::ask::configuration;
use crate::decide::job_accounting::check_accounting;
use crate::decide::partition_access;
use crate::policy::access;
use crate::policy::limits::over_beside;
use crate::state::State;
use crate::state::limit_use::CurrentUse;
use muster_model::account_limits::Scope;
use muster_model::command::{Identity, NameList, ReservationAsk};
use muster_model::cpuset::CpuSet;
use muster_model::job::Job;
use muster_model::limits::{
    USER_RESERVATION_AHEAD_S, USER_RESERVATION_LENGTH_S, USER_RESERVATIONS_MAX,
};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::{Flags, Reservation};
use muster_model::rights::Role;
use muster_model::spec::{JobSpec, Owner, ResourceAsk};
use muster_model::time::TimeLimit;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether the user makes and deletes reservations as an ordinary one whom the site lets.
pub(in crate::decide) fn is_own(state: &State, identity: &Identity) -> bool {
    access::role_of(state, identity) < Role::Operator
}

fn refuse<T>(why: &str) -> Result<T, Refusal> {
    let detail = format!("reservations of users (arusers): {why}");
    Err(Refusal::new(RefusalCode::AccessDenied, detail))
}

/// The request, with the partition that it is in: the default one if none is named.
///
/// # Errors
/// It is more than users may have.
pub(super) fn bounded(
    draft: &Draft<'_>,
    identity: &Identity,
    ask: &ReservationAsk,
) -> Result<ReservationAsk, Refusal> {
    let ReservationAsk {
        name,
        start,
        // The end is looked at once it is worked out.
        end: _,
        duration: _,
        duration_sign: _,
        nodes,
        node_count,
        core_counts,
        partition,
        features,
        users,
        accounts,
        groups,
        licenses,
        flags,
        flags_removed,
        max_start_delay_s,
        purge_s,
        comment: _,
        utc_offset_s: _,
        skip,
    } = ask;
    let extras = [
        ("Nodes", nodes.is_some()),
        ("NodeCnt", node_count.is_some()),
        ("Features", features.is_some()),
        ("Accounts", accounts.is_some()),
        ("Groups", groups.is_some()),
        ("Licenses", licenses.is_some()),
        (
            "Flags",
            *flags != Flags::default() || *flags_removed != Flags::default(),
        ),
        ("MaxStartDelay", max_start_delay_s.is_some()),
        ("PURGE_COMP", purge_s.is_some()),
        ("Skip", *skip),
    ];
    if let Some((what, _)) = extras.iter().find(|(_, is_given)| *is_given) {
        return refuse(&format!(
            "{what} is for operators; users name cores, a partition and a time"
        ));
    }
    // Without a number, it would be of all nodes of the partition, whole.
    if core_counts.len() != 1 || core_counts[0] == 0 {
        return refuse("CoreCnt= must be one number of cores");
    }
    let is_for_oneself = match users {
        Some(NameList::Only(names)) => names.as_slice() == [identity.user.as_str()],
        _ => false,
    };
    if !is_for_oneself {
        return refuse("Users= may only be your own user name");
    }
    if start.is_some_and(|start| start > draft.now.plus_s(USER_RESERVATION_AHEAD_S)) {
        return refuse("it begins more than a year ahead");
    }
    check_name(draft.state, name.as_deref())?;
    let all = draft.state.reservations.iter();
    let own = all.filter(|own| own.made_by == Some(identity.uid)).count();
    if own >= USER_RESERVATIONS_MAX {
        return refuse(&format!(
            "you have {own} of {USER_RESERVATIONS_MAX} reservations"
        ));
    }
    let default = || {
        let all = draft.state.partitions.iter();
        all.filter(|own| own.default)
            .map(|own| own.name.clone())
            .next()
    };
    let partition = partition.clone().or_else(default);
    Ok(ReservationAsk {
        partition,
        ..ask.clone()
    })
}

/// A number that is taken next at the most, so that nobody takes all that come.
fn check_name(state: &State, name: Option<&str>) -> Result<(), Refusal> {
    let number = |name: &str| name.parse::<u32>().ok();
    let most = state
        .reservations
        .iter()
        .filter_map(|own| number(&own.name))
        .max()
        .unwrap_or(0);
    let is_next = |name: &str| {
        number(name)
            .is_some_and(|own| own > 0 && own <= most.saturating_add(1) && own.to_string() == name)
    };
    match name {
        Some(name) if is_next(name) => Ok(()),
        _ => refuse("ReservationName is the next number"),
    }
}

/// Refuses a partition that the user's jobs may not use, a time that is longer than they may run there, and more cores than
/// there are.
pub(super) fn check_partition(
    draft: &Draft<'_>,
    identity: &Identity,
    made: &Reservation,
    ask: &ReservationAsk,
) -> Result<(), Refusal> {
    let name = made.partition.as_deref().unwrap_or_default();
    let Some(partition) = draft.state.partition(name) else {
        return refuse("no partition is named and none is the default");
    };
    let length_s = made.end.since_ms(made.start).div_ceil(1000);
    let most_s = partition.max_time.seconds();
    if length_s > most_s.unwrap_or(USER_RESERVATION_LENGTH_S) {
        return refuse(&match most_s {
            Some(_) => format!("it is longer than the MaxTime of partition {name}"),
            None => format!(
                "it is longer than {} days",
                USER_RESERVATION_LENGTH_S / 86_400
            ),
        });
    }
    if ask.core_counts.iter().sum::<u32>() > cores_of_partition(draft, partition) {
        return refuse(&format!("partition {name} has fewer cores"));
    }
    let spec = spec_of(draft, identity, made, 1)?;
    partition_access::access(draft.state, identity, &spec, partition)
}

/// Refuses more than a job of the user's could have at that time: more nodes than one may in the partition, more than the limits
/// of his association and QOS leave him beside the reservations of users that share them. What runs now does not count.
pub(super) fn check_limits(
    draft: &Draft<'_>,
    identity: &Identity,
    made: &Reservation,
) -> Result<(), Refusal> {
    let state = draft.state;
    let partition = made
        .partition
        .as_deref()
        .and_then(|name| state.partition(name));
    let nodes = u32::try_from(made.nodes.len()).unwrap_or(u32::MAX);
    if let Some(most) = partition
        .and_then(|p| p.max_nodes)
        .filter(|most| nodes > *most)
    {
        return refuse(&format!(
            "it needs {nodes} nodes, and a job may have {most}"
        ));
    }
    if !state.keeps_limits() {
        return Ok(());
    }
    let job = job_of(draft, identity, made)?;
    let mut beside: BTreeMap<Scope, CurrentUse> = BTreeMap::new();
    let others = state
        .reservations
        .iter()
        .filter(|own| own.made_by.is_some());
    for other in others.filter(|own| own.start < made.end && made.start < own.end) {
        let owner = Identity {
            uid: other.made_by.unwrap_or_default(),
            user: other.users.first().cloned().unwrap_or_default(),
            ..Identity::default()
        };
        // A reservation whose owner has no association any more counts for no other.
        let Ok(job) = job_of(draft, &owner, other) else {
            continue;
        };
        for scope in state.scopes_of(&job, &job.partition) {
            let in_use = beside.entry(scope).or_default();
            in_use.jobs = in_use.jobs.saturating_add(1);
            for (name, amount) in [
                ("cpu", u64::from(reserved_cpus(other))),
                ("node", other.nodes.len() as u64),
            ] {
                let sum = in_use.tres.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
    }
    match over_beside(state, &job, &beside, draft.now) {
        Some(over) => refuse(&format!(
            "a job of its size, beside other reservations at that time, would be over {}",
            over.limit
        )),
        None => Ok(()),
    }
}

/// A job that has what a reservation has, as long as it has it.
fn job_of(draft: &Draft<'_>, owner: &Identity, of: &Reservation) -> Result<Job, Refusal> {
    let spec = spec_of(draft, owner, of, reserved_cpus(of))?;
    let length_s = of.end.since_ms(of.start).div_ceil(1000);
    let limit = TimeLimit::Minutes(u32::try_from(length_s.div_ceil(60)).unwrap_or(u32::MAX));
    Ok(Job::new(
        draft.next_job_id(),
        Arc::new(spec),
        limit,
        draft.now,
    ))
}

fn reserved_cpus(reservation: &Reservation) -> u32 {
    let cpus = reservation
        .nodes
        .iter()
        .filter_map(|node| node.cpus.as_ref());
    cpus.map(CpuSet::len).fold(0, u32::saturating_add)
}

/// The request of a job with that many CPUs in a reservation.
fn spec_of(
    draft: &Draft<'_>,
    identity: &Identity,
    made: &Reservation,
    cpus: u32,
) -> Result<JobSpec, Refusal> {
    let mut spec = JobSpec {
        owner: Owner {
            uid: identity.uid,
            gid: identity.gid,
            user: identity.user.clone(),
            group: identity.group.clone(),
        },
        submit_host: identity.host.clone().unwrap_or_default(),
        partitions: made.partition.iter().cloned().collect(),
        // A job in it names it, as a partition may ask for.
        reservation: Some(made.name.clone()),
        ask: ResourceAsk {
            ntasks: Some(cpus),
            min_nodes: u32::try_from(made.nodes.len()).unwrap_or(u32::MAX),
            ..ResourceAsk::default()
        },
        ..JobSpec::default()
    };
    let config = configuration(draft.state)?;
    // The account and the QOS that a job of the user's would have, which a partition may keep out.
    check_accounting(draft, config, &mut spec)?;
    Ok(spec)
}

/// Refuses to delete a reservation that somebody else has made.
pub(super) fn check_owner(identity: &Identity, reservation: &Reservation) -> Result<(), Refusal> {
    match reservation.made_by == Some(identity.uid) {
        true => Ok(()),
        false => refuse(&format!("{} is not yours", reservation.name)),
    }
}
