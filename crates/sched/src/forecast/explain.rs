//! `muster why`: what a job waits for, which jobs are ahead of it, when it will start and which
//! changes would start it sooner. The times come from forecasts; each change is evaluated by its
//! own forecast.

mod changes;
pub(crate) mod run;
mod task_numbers;

use crate::demand::licenses::asked;
use crate::forecast::Forecast;
use crate::order::QueueOrder;
use muster_core::policy::access::privacy::View;
use muster_core::state::{Scale, State};
use muster_model::account_limits::Scope;
use muster_model::calendar::CalendarState;
use muster_model::config::PartitionConfig;
use muster_model::explain::{ExpectedTime, JobAhead};
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState, Phase, Reason};
use muster_model::node::{Node, NodeLink};
use muster_model::reservation::RunWindow;
use muster_model::spec::{DependencyKind, DependencyTerm, MemoryAsk, Sharing};
use muster_model::time::{TimeLimit, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Number of jobs ahead that are listed.
const AHEAD_MAX: usize = 10;

/// The state of a job that is not pending, as a sentence.
fn state_text(state: &State, job: &Job, view: &View<'_>) -> String {
    let nodes = job.alloc.as_ref().map_or("", |a| a.hostlist.as_str());
    if job.completing {
        let name = job.state.name();
        return match job.phase() {
            Phase::Requeueing => format!(
                "It is {name}, and back in the queue when what is left of it on {nodes} is cleaned up."
            ),
            _ => format!("It is {name}; what is left of it on {nodes} is cleaned up."),
        };
    }
    match (job.state, &job.preempted) {
        (JobState::Suspended, _) if job.stopped_by_calendar => {
            let calendar = state.partition(&job.partition);
            let calendar = calendar.and_then(|own| own.calendar.as_ref());
            let name = calendar.map_or("", |own| &own.calendar.name);
            format!(
                "It is stopped on {nodes} by calendar {name} of partition {}, and goes on when that says so.",
                job.partition
            )
        }
        (JobState::Suspended, _) if job.waits_for_turn() => {
            let order = state.config.as_ref().map(|config| &config.order);
            let slice_s = order.and_then(|order| order.time_slice_s).unwrap_or(0);
            format!(
                "It is stopped on {nodes}: jobs that have the same CPUs take turns of {slice_s} s (PreemptMode=GANG), \
                 and others have theirs."
            )
        }
        (JobState::Suspended, Some(by)) if job.is_stopped_for_another() => format!(
            "It is stopped on {nodes} to make room for {}, and goes on when its CPUs are free.",
            match view.sees_job(by.by) {
                true => format!("job {}", by.by),
                false => "another job".to_owned(),
            }
        ),
        (JobState::Suspended, _) => format!(
            "An administrator stopped it on {nodes}; 'scontrol resume {}' lets it go on.",
            job.id
        ),
        (JobState::Running, _) if state.is_configuring(job) => {
            format!("It has its nodes, {nodes}, which are being made ready for it.")
        }
        (JobState::Running, _) => format!("It runs on {nodes}."),
        _ => format!("It is over: {}.", job.state.name()),
    }
}

/// The reasons that block a job now, one sentence each.
pub(crate) fn obstacles(state: &State, id: JobId, now: Timestamp, view: &View<'_>) -> Vec<String> {
    let job = state.jobs.get(&id);
    job.map_or(Vec::new(), |job| waits_for(state, job, now, view))
}

/// The events that a job waits for, one sentence each.
fn waits_for(state: &State, job: &Job, now: Timestamp, view: &View<'_>) -> Vec<String> {
    let ask = &job.spec.ask;
    let partitions = match job.spec.partitions.as_slice() {
        [] => job.partition.clone(),
        several => several.join(","),
    };
    match job.reason {
        Reason::Dependency => dependencies(state, job).collect(),
        Reason::DependencyNeverSatisfied => vec![
            "A job that it depends on ended in a way that can never satisfy the dependency: cancel it, or change the dependency."
                .into(),
        ],
        Reason::Priority => vec![format!(
            "Jobs that come first wait for nodes of partition {partitions} as well."
        )],
        Reason::Resources | Reason::None => vec![format!(
            "It is next in partition {partitions}; {} must become free.",
            wanted(job)
        )],
        Reason::BeginTime if job.spec.begin.is_some() && job.spec.begin == job.begin_at => vec![
            "It asks for a later begin (--begin), and is not considered before.".into(),
        ],
        Reason::BeginTime => vec![
            "It is to start some time after a job that it depends on (after:JOB+MINUTES), and is not considered before."
                .into(),
        ],
        Reason::LaunchBackoff => {
            vec!["It could not be started on its node and is tried again after a while.".into()]
        }
        Reason::JobHeldUser => {
            let held = format!("It is held: 'scontrol release {}' lets it go.", job.id);
            std::iter::once(held).chain(dependencies(state, job)).collect()
        }
        Reason::JobHeldAdmin | Reason::JobHoldMaxRequeue => {
            let held = format!(
                "An administrator or the system holds it: an administrator lets it go with 'scontrol release {}'.",
                job.id
            );
            std::iter::once(held).chain(dependencies(state, job)).collect()
        }
        Reason::JobArrayTaskLimit => {
            vec![throttled(state, job)]
        }
        Reason::ReqNodeNotAvail | Reason::NodesUnavailable => unavailable(state, job, view),
        Reason::PartitionDown | Reason::PartitionInactive if !calendars(state, job).is_empty() => {
            calendars(state, job)
        }
        Reason::PartitionDown | Reason::PartitionInactive => vec![format!(
            "Partition {partitions} starts no jobs: an administrator sets its state with 'scontrol update PartitionName={partitions} State=UP'."
        )],
        Reason::PartitionNodeLimit => limits_of(state, job, |p| {
            let nodes = |n: u32| format!("{n} node{}", if n == 1 { "" } else { "s" });
            match (p.min_nodes.max(1), p.max_nodes) {
                (least, None) => format!("at least {}", nodes(least)),
                (1, Some(most)) => format!("at most {}", nodes(most)),
                (least, Some(most)) => format!("{least} to {}", nodes(most)),
            }
        }),
        Reason::MaxMemPerLimit => limits_of(state, job, |p| {
            match (p.max_memory, state.config.as_ref().map(|c| c.max_memory)) {
                (MemoryAsk::PerNode(mib), _)
                | (MemoryAsk::Default, Some(MemoryAsk::PerNode(mib))) => {
                    format!("at most {mib} MiB on a node")
                }
                (MemoryAsk::PerCpu(mib), _)
                | (MemoryAsk::Default, Some(MemoryAsk::PerCpu(mib))) => {
                    format!("at most {mib} MiB for each CPU")
                }
                (MemoryAsk::Default, Some(MemoryAsk::Default) | None) => "any memory".into(),
            }
        }),
        Reason::PartitionTimeLimit => limits_of(state, job, |p| match p.max_time {
            TimeLimit::Minutes(m) => format!("at most {m} minutes"),
            TimeLimit::Unlimited => "any time".into(),
        }),
        Reason::PartitionConfig if !large_enough(state, job) => limits_of(state, job, |p| {
            let nodes = p.nodes.len();
            format!("at most {nodes} node{}: it has no more", if nodes == 1 { "" } else { "s" })
        }),
        Reason::BadConstraints | Reason::PartitionConfig => vec![format!(
            "No node of partition {partitions} can ever give it {}{}.",
            wanted(job),
            ask.constraint
                .as_ref()
                .map_or(String::new(), |c| format!(" with '{c}'"))
        )],
        Reason::Reservation => vec![match &job.spec.reservation {
            Some(names) => format!("Its reservation {names} has not begun."),
            None => format!(
                "Partition {partitions} takes jobs of its QOS in reservations only (--reservation)."
            ),
        }],
        Reason::AccountNotAllowed => vec![format!(
            "Partition {partitions} does not take jobs of account {} (AllowAccounts, DenyAccounts).",
            job.spec.account_name()
        )],
        Reason::QOSNotAllowed => vec![format!(
            "Partition {partitions} does not take jobs of QOS {} (AllowQos, DenyQos).",
            state.qos_of(job)
        )],
        Reason::ReservationDeleted => vec!["The reservation that it asked for is gone.".into()],
        Reason::NodesReserved => {
            vec!["Nodes that it needs are reserved for others at a time when it would run.".into()]
        }
        Reason::ReservedForMaintenance => {
            vec!["Nodes that it needs are reserved for maintenance at a time when it would run.".into()]
        }
        Reason::Licenses => licenses(state, job, now, view),
        Reason::Cleaning => vec!["Its last run is still being cleaned up.".into()],
        reason if reason.is_limit() => vec![limit(state, job, now, view)],
        other => vec![format!("Its reason is {}.", other.name())],
    }
}

/// Partitions of a job that their calendars close, a sentence each.
fn calendars(state: &State, job: &Job) -> Vec<String> {
    let partitions = partitions_of(job);
    let known = partitions.iter().filter_map(|name| state.partition(name));
    let closed = |partition: &PartitionConfig| {
        let calendar = partition.calendar.as_ref();
        let calendar = calendar.filter(|own| own.state != CalendarState::On)?;
        Some(format!(
            "Partition {} starts no jobs now: its calendar {} has it {} (qconf -scal {}).",
            partition.name,
            calendar.calendar.name,
            calendar.state.name(),
            calendar.calendar.name
        ))
    };
    known.filter_map(closed).collect()
}

/// Future times that the job's start depends on.
fn times(state: &State, job: &Job, now: Timestamp, view: &View<'_>) -> Vec<ExpectedTime> {
    let mut all = Vec::new();
    let mut add_time = |what: String, at: Option<Timestamp>| {
        all.extend(
            at.filter(|at| *at > now)
                .map(|at| ExpectedTime { what, at }),
        );
    };
    add_time("Not before".into(), job.begin_at);
    add_time("To be over by (--deadline)".into(), job.spec.deadline);
    match job.reason {
        Reason::Reservation => {
            for name in job.spec.reservations() {
                let reservation = state.reservations.get(name);
                add_time(
                    format!("Reservation {name} begins"),
                    reservation.map(|r| r.start),
                );
            }
        }
        Reason::PartitionDown | Reason::PartitionInactive => {
            let partitions = partitions_of(job);
            for partition in partitions.iter().filter_map(|name| state.partition(name)) {
                let calendar = partition.calendar.as_ref();
                if let Some(calendar) = calendar.filter(|own| own.state != CalendarState::On) {
                    let (name, calendar_name) = (&partition.name, &calendar.calendar.name);
                    add_time(
                        format!("Calendar {calendar_name} changes partition {name}"),
                        calendar.next_change,
                    );
                }
            }
        }
        Reason::NodesReserved | Reason::ReservedForMaintenance => {
            let length_s = job.time_limit.seconds();
            let end = length_s.map_or(Timestamp(i64::MAX), |s| now.plus_s(s));
            let named = nodes_named(job);
            let only_those = named.len() >= job.spec.ask.min_nodes.max(1) as usize;
            let mine = |name: &String| {
                if only_those {
                    return named.contains(name);
                }
                let partitions = partitions_of(job);
                let mut known = partitions.iter().filter_map(|p| state.partition(p));
                known.any(|p| p.nodes.contains(name))
            };
            let seen = state.reservations.iter();
            for reservation in seen.filter(|own| view.sees_reservation(own)) {
                let own = job.spec.reservations().any(|name| name == reservation.name);
                let nodes = reservation.nodes.iter().map(|node| &node.name);
                let names: Vec<&String> = nodes.filter(|name| mine(name)).collect();
                if own || names.is_empty() || !reservation.meets(now, now, end) {
                    continue;
                }
                let (name, nodes) = (&reservation.name, hostlist::compress(&names));
                add_time(
                    format!("Reservation {name} of {nodes} begins"),
                    Some(reservation.start),
                );
                add_time(
                    format!("Reservation {name} of {nodes} is over"),
                    Some(reservation.end),
                );
            }
        }
        _ => {}
    }
    all
}

/// Number of the job's licenses that are free, and the jobs that use the others.
fn licenses(state: &State, job: &Job, now: Timestamp, view: &View<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let all = asked(job.spec.licenses.as_deref());
    let named: BTreeMap<&str, u32> = (all.iter().flatten())
        .map(|license| (license.name.as_str(), license.count))
        .collect();
    for (name, count) in named {
        let reservation = job.spec.reservation.as_deref();
        let length_s = job.time_limit.seconds();
        let end = length_s.map_or(Timestamp(i64::MAX), |s| now.plus_s(s));
        let left = state.licenses_left(name, reservation, RunWindow::from_now(now, end));
        let total = state.license_total(name);
        let free = format!("{} of {total} can be had now", left.max(0));
        let kept = match left >= i64::from(count) {
            true => ", which are kept for a job that comes first",
            false => "",
        };
        lines.push(format!(
            "It asks for {count} of license {name}; {free}{kept}."
        ));
        let held = |id: &JobId| {
            let job = state.jobs.get(id)?;
            let licenses = &job.alloc.as_ref()?.licenses;
            let held = licenses.iter().find(|license| license.name == name)?;
            Some((state.limit_end(job), job.id, held.count))
        };
        let mut holders: Vec<_> = state.active.iter().filter_map(held).collect();
        holders.sort_by_key(|(end, id, _)| (end.unwrap_or(Timestamp(i64::MAX)), *id));
        let count = holders.len();
        let named = holders.into_iter().filter(|(_, id, _)| view.sees_job(*id));
        let named = named.take(AHEAD_MAX);
        let mut words: Vec<String> = named
            .map(|(_, id, n)| format!("job {id} has {n}"))
            .collect();
        let more = count - words.len();
        if more > 0 {
            words.push(format!("{more} jobs have more"));
        }
        if !words.is_empty() {
            lines.push(format!("Of {name}, {}.", words.join(", ")));
        }
    }
    lines
}

/// The limit that blocks the job, the entity that has the limit, and its present use.
fn limit(state: &State, job: &Job, now: Timestamp, view: &View<'_>) -> String {
    let reason = job.reason.name();
    let Some(over) = state.waits_for_limit(job, now) else {
        return format!("A limit keeps it back: {reason}.");
    };
    let whose = match &over.scope {
        Scope::Account(account) => format!("account {account}"),
        Scope::Association(account, user) => format!("user {user} in account {account}"),
        Scope::PartitionAssociation(account, user, partition) => {
            format!("user {user} in account {account}, partition {partition}")
        }
        Scope::Qos(qos) => format!("QOS {qos}"),
        Scope::QosUser(qos, user) => format!("QOS {qos}, for user {user}"),
        Scope::QosAccount(qos, account) => format!("QOS {qos}, for account {account}"),
    };
    // If the entity is one user, it is the job's owner.
    let is_of_user = over.scope.user().is_some();
    let used = match over.used {
        0 => String::new(),
        _ if !is_of_user && !view.sees_use() => String::new(),
        used => format!("; {used} of that are in use"),
    };
    format!("{} of {whose} keeps it back{used}.", over.limit)
}

/// The array's `%` limit blocks a task.
fn throttled(state: &State, job: &Job) -> String {
    let array = job.submission();
    let most = state.arrays.get(&array).and_then(|info| info.throttle);
    let most = most.map_or(String::new(), |most| most.to_string());
    format!(
        "As many tasks of its array run as '%{most}' allows: 'scontrol update JobId={array} ArrayTaskThrottle=N' changes that."
    )
}

/// Earlier unfinished jobs of the same owner and name, up to a few.
fn earlier_of_name(state: &State, job: &Job) -> String {
    const LISTED_MAX: usize = 5;
    let names = state.by_owner.get(&job.spec.owner.uid);
    let known = names.and_then(|names| names.get(&job.spec.name));
    let earlier = known.into_iter().flatten();
    let earlier = earlier.take_while(|(submission, _)| *submission < job.submitted_as());
    let mut all: Vec<String> = earlier
        .take(LISTED_MAX + 1)
        .map(|(_, id)| id.to_string())
        .collect();
    if all.len() > LISTED_MAX {
        all[LISTED_MAX] = "...".to_owned();
    }
    all.join(", ")
}

fn dependencies<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = String> + 'a {
    let terms = job.waiting_on.iter();
    terms.map(move |term| dependency(state, job, term))
}

fn dependency(state: &State, job: &Job, term: &DependencyTerm) -> String {
    match term {
        DependencyTerm::Singleton => format!(
            "Earlier jobs of the same name and owner must be over (singleton): {}.",
            earlier_of_name(state, job)
        ),
        DependencyTerm::Job {
            kind, job, task, ..
        } => {
            let job = match task {
                Some(task) => format!("{job}_{task}"),
                None => job.to_string(),
            };
            match kind {
                DependencyKind::After => format!("Job {job} must have started (after)."),
                DependencyKind::AfterAny => format!("Job {job} must be over (afterany)."),
                DependencyKind::AfterOk => format!("Job {job} must end well (afterok)."),
                DependencyKind::AfterNotOk => format!("Job {job} must fail (afternotok)."),
                DependencyKind::AfterCorr => {
                    format!("The task of the same number of array {job} must end well (aftercorr).")
                }
            }
        }
    }
}

/// The job's request as text.
fn wanted(job: &Job) -> String {
    let ask = &job.spec.ask;
    let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let cpus = u64::from(ask.task_count()) * u64::from(ask.cpus_of_task());
    let mut text = count(cpus, "CPU");
    if ask.min_nodes > 1 || ask.nodes_set {
        text += &format!(" on {}", count(u64::from(ask.min_nodes.max(1)), "node"));
    }
    for gres in &ask.gres {
        text += &format!(" with {} {} each", gres.count, gres.name);
    }
    let devices = ask.devices();
    let others = [
        (&devices.per_job, "in all"),
        (&devices.per_socket, "each socket"),
        (&devices.per_task, "each task"),
    ];
    for (list, of_what) in others {
        for gres in list {
            text += &format!(" with {} {} {of_what}", gres.count, gres.name);
        }
    }
    if ask.sharing == Sharing::Exclusive {
        text += " that nobody else is on";
    }
    if let Some(asked) = ask.switches {
        let most = count(u64::from(asked.count), "switch");
        text += &format!(", below {most} at most");
    }
    text
}

/// The nodes that the job requests by name.
fn nodes_named(job: &Job) -> BTreeSet<String> {
    let list = job.spec.ask.nodelist.as_deref();
    let names = list.and_then(|list| hostlist::parse(list).ok());
    names.unwrap_or_default().into_iter().collect()
}

/// Nodes that the job needs and that are out of service.
fn unavailable(state: &State, job: &Job, view: &View<'_>) -> Vec<String> {
    let names = nodes_named(job);
    let partitions = partitions_of(job);
    let mine = |node: &&Node| {
        if !names.is_empty() {
            return names.contains(&node.config.name);
        }
        let has = |name: &&String| {
            let partition = state.partitions.iter().find(|p| p.name == **name);
            partition.is_some_and(|p| p.nodes.contains(&node.config.name))
        };
        partitions.iter().any(|name| has(&name))
    };
    let what = |node: &Node| {
        let text = node
            .reason
            .as_ref()
            .map(|r| format!(" ({})", r.text))
            .unwrap_or_default();
        let state = match node {
            n if n.down => "down",
            n if n.drain => "drained",
            n if n.fail => "failing",
            n if n.link != NodeLink::Up => "not connected",
            _ => return None,
        };
        Some(format!("Node {} is {state}{text}.", node.config.name))
    };
    let mut lines: Vec<String> = state.nodes.iter().filter(mine).filter_map(what).collect();
    if !view.sees_nodes() && !lines.is_empty() {
        return vec!["Nodes that it needs are out of service.".into()];
    }
    let more = lines.len().saturating_sub(AHEAD_MAX);
    lines.truncate(AHEAD_MAX);
    if more > 0 {
        lines.push(format!("So are {more} more."));
    }
    if lines.is_empty() {
        lines.push("Jobs in a partition of a higher priority tier wait for its nodes, too.".into());
    }
    lines
}

/// Whether one of the job's partitions has as many nodes as the job requests.
fn large_enough(state: &State, job: &Job) -> bool {
    let partitions = partitions_of(job);
    let mut known = partitions.iter().filter_map(|p| state.partition(p));
    known.any(|p| p.nodes.len() >= job.spec.ask.min_nodes as usize)
}

fn limits_of(
    state: &State,
    job: &Job,
    says: impl Fn(&muster_model::config::PartitionConfig) -> String,
) -> Vec<String> {
    let of = |name: &String| {
        let partition = state.partitions.iter().find(|p| p.name == *name)?;
        Some(format!(
            "Partition {name} takes jobs of {}.",
            says(partition)
        ))
    };
    partitions_of(job).iter().filter_map(of).collect()
}

fn partitions_of(job: &Job) -> Vec<String> {
    match job.spec.partitions.as_slice() {
        [] => vec![job.partition.clone()],
        several => several.to_vec(),
    }
}

/// Whether a job waits for nodes that are in use or reserved.
fn waits_for_nodes(job: &Job) -> bool {
    job.is_startable()
        && matches!(
            job.reason,
            Reason::None
                | Reason::Priority
                | Reason::Resources
                | Reason::ReqNodeNotAvail
                | Reason::NodesUnavailable
        )
}

/// Jobs ahead: those that run on the nodes where the job will start, and those that will start on
/// them first. The list is empty if the job waits for something other than nodes.
fn ahead(state: &State, job: &Job, found: &Forecast) -> (Vec<JobAhead>, u32) {
    let start = found.starts.get(&job.id);
    let Some(start) = start.filter(|_| waits_for_nodes(job)) else {
        return (Vec::new(), 0);
    };
    let names = |list: &str| -> BTreeSet<String> {
        hostlist::parse(list)
            .unwrap_or_default()
            .into_iter()
            .collect()
    };
    let nodes = names(&start.nodes);
    let entry = |other: &Job| JobAhead {
        job: other.id,
        user: other.spec.owner.user.clone(),
        name: other.spec.name.clone(),
        partition: other.partition.clone(),
        ..JobAhead::default()
    };
    let mut running = Vec::new();
    for other in state.active.iter().filter_map(|id| state.jobs.get(id)) {
        let Some(alloc) = other.alloc.as_ref().filter(|_| !other.completing) else {
            continue;
        };
        let shares = |share: &muster_model::job::NodeShare| nodes.contains(&share.name);
        if alloc.nodes.iter().any(shares) {
            running.push(JobAhead {
                cpus: alloc.cpus(),
                nodes: alloc.hostlist.clone(),
                runs: true,
                until: state.limit_end(other),
                ..entry(other)
            });
        }
    }
    running.sort_by_key(|a| (a.until.unwrap_or(Timestamp(i64::MAX)), a.job));
    // Among jobs with the same expected start, the earlier one in the queue is ahead.
    let (order, scale) = (QueueOrder::new(state), Scale::new(state));
    let place = |job: &Job| {
        let tier = state
            .partition(&job.partition)
            .map_or(1, |p| p.priority_tier);
        let level = order.level(job.spec.qos.as_deref());
        let priority = state.priority_of(scale.as_ref(), job);
        (Reverse(level), Reverse(tier), Reverse(priority), job.id)
    };
    let mut waiting = Vec::new();
    for (id, theirs) in &found.starts {
        let Some(other) = state
            .jobs
            .get(id)
            .filter(|other| *id != job.id && (theirs.at, place(other)) < (start.at, place(job)))
        else {
            continue;
        };
        if names(&theirs.nodes).is_disjoint(&nodes) {
            continue;
        }
        let ahead = JobAhead {
            cpus: theirs.cpus,
            until: Some(theirs.at),
            ..entry(other)
        };
        waiting.push(((theirs.at, place(other)), ahead));
    }
    waiting.sort_by_key(|(order, _)| *order);
    let mut waiting: Vec<JobAhead> = waiting.into_iter().map(|(_, ahead)| ahead).collect();
    let count = u32::try_from(running.len() + waiting.len()).unwrap_or(u32::MAX);
    running.truncate(AHEAD_MAX);
    waiting.truncate(AHEAD_MAX);
    running.append(&mut waiting);
    (running, count)
}
