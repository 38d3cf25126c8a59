//! Changes of a job that may start it sooner: a smaller request, a shorter limit, another
//! partition, an option removed.

use super::partitions_of;
use muster_core::decide::prospective_job;
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::job::{Job, Reason};
use muster_model::spec::{Dependency, DeviceBinding, JobSpec, Sharing};
use muster_model::time::{TimeLimit, Timestamp};

/// A change to try.
pub(super) struct Change {
    /// Changes of one kind are tried in order, the smallest first.
    pub(super) kind: u32,
    pub(super) option: String,
    pub(super) words: String,
    pub(super) spec: JobSpec,
    pub(super) limit: TimeLimit,
}

/// All changes worth trying.
pub(super) fn changes(state: &State, job: &Job, now: Timestamp) -> Vec<Change> {
    let mut all = Vec::new();
    smaller(job, &mut all);
    shorter(state, job, now, &mut all);
    other_partitions(state, job, now, &mut all);
    without(job, &mut all);
    all
}

/// Half of `n`, a quarter, ... down to one.
fn halves(n: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(n / 2), |k| Some(k / 2)).take_while(|k| *k > 0)
}

fn smaller(job: &Job, all: &mut Vec<Change>) {
    let (spec, limit) = (&*job.spec, job.time_limit);
    let nodes = spec.ask.min_nodes;
    for k in halves(nodes).take(3) {
        let mut spec = spec.clone();
        (spec.ask.min_nodes, spec.ask.max_nodes) = (k, Some(k));
        spec.ask.task_range = None;
        let mut option = format!("--nodes={k}");
        if let Some(tasks) = spec.ask.ntasks {
            let tasks = (u64::from(tasks) * u64::from(k)).div_ceil(u64::from(nodes));
            let tasks = u32::try_from(tasks).unwrap_or(u32::MAX).max(k);
            spec.ask.ntasks = Some(tasks);
            option += &format!(" --ntasks={tasks}");
        }
        all.push(Change {
            kind: 0,
            option,
            words: format!("on {k} instead of {nodes} nodes"),
            spec,
            limit,
        });
    }
    if nodes > 1 && spec.ask.ntasks.is_some() && spec.ask.nodelist.is_none() {
        let mut spec = spec.clone();
        (spec.ask.min_nodes, spec.ask.max_nodes) = (1, None);
        spec.ask.task_range = None;
        spec.ask.nodes_set = false;
        all.push(Change {
            kind: 1,
            option: "without --nodes".into(),
            words: "with all its tasks, on as many nodes as it takes".into(),
            spec,
            limit,
        });
    }
    if let Some(tasks) = spec.ask.ntasks.filter(|tasks| nodes <= 1 && *tasks > 1) {
        for k in halves(tasks).take(3) {
            let mut spec = spec.clone();
            (spec.ask.ntasks, spec.ask.task_range) = (Some(k), None);
            all.push(Change {
                kind: 2,
                option: format!("--ntasks={k}"),
                words: format!("with {k} instead of {tasks} tasks"),
                spec,
                limit,
            });
        }
    }
    let cpus = spec.ask.cpus_per_task.unwrap_or(1);
    for k in halves(cpus).take(2) {
        let mut spec = spec.clone();
        spec.ask.cpus_per_task = Some(k);
        all.push(Change {
            kind: 3,
            option: format!("--cpus-per-task={k}"),
            words: format!("with {k} instead of {cpus} CPUs for each task"),
            spec,
            limit,
        });
    }
}

/// The longest allowed limit, if the job's own limit exceeds it.
fn most_minutes(state: &State, job: &Job, now: Timestamp) -> Option<u32> {
    match job.reason {
        Reason::PartitionTimeLimit => {
            let of = |name: &String| match state.partition(name)?.max_time {
                TimeLimit::Minutes(minutes) => Some(minutes),
                TimeLimit::Unlimited => None,
            };
            partitions_of(job).iter().filter_map(of).max()
        }
        Reason::AssocMaxWallDurationPerJobLimit | Reason::QOSMaxWallDurationPerJobLimit => {
            let over = state.waits_for_limit(job, now)?;
            over.limit.strip_prefix("MaxWall=")?.parse().ok()
        }
        _ => None,
    }
}

fn shorter(state: &State, job: &Job, now: Timestamp, all: &mut Vec<Change>) {
    let minutes = match job.time_limit {
        TimeLimit::Minutes(minutes) => minutes,
        // Any shorter limit may help.
        TimeLimit::Unlimited => 7 * 24 * 60,
    };
    let first = (job.time_limit == TimeLimit::Unlimited).then_some(minutes);
    let most = most_minutes(state, job, now).filter(|most| (1..minutes).contains(most));
    for k in most.into_iter().chain(first).chain(halves(minutes).take(4)) {
        let mut spec = (*job.spec).clone();
        spec.time_limit = Some(TimeLimit::Minutes(k));
        all.push(Change {
            kind: 4,
            option: format!("--time={k}"),
            words: match job.time_limit {
                TimeLimit::Unlimited => format!("with a limit of {k} minutes"),
                TimeLimit::Minutes(_) => {
                    format!("with a limit of {k} instead of {minutes} minutes")
                }
            },
            spec,
            limit: TimeLimit::Minutes(k),
        });
    }
}

fn other_partitions(state: &State, job: &Job, now: Timestamp, all: &mut Vec<Change>) {
    let owner = &job.spec.owner;
    let identity = Identity {
        uid: owner.uid,
        gid: owner.gid,
        user: owner.user.clone(),
        group: owner.group.clone(),
        ..Identity::default()
    };
    let mine = partitions_of(job);
    for partition in state.partitions.iter().filter(|p| !mine.contains(&p.name)) {
        let mut spec = (*job.spec).clone();
        spec.partitions = vec![partition.name.clone()];
        // Partitions in which the user may not submit are left out.
        if prospective_job(state, &identity, &spec, now).is_err() {
            continue;
        }
        all.push(Change {
            kind: 5 + u32::try_from(all.len()).unwrap_or(0),
            option: format!("--partition={}", partition.name),
            words: format!(
                "in partition {} instead of {}",
                partition.name,
                mine.join(",")
            ),
            spec,
            limit: job.time_limit,
        });
    }
}

fn without(job: &Job, all: &mut Vec<Change>) {
    type Drop = fn(&mut JobSpec);
    let ask = &job.spec.ask;
    let list: [(bool, &str, Drop); 12] = [
        (
            job.begin_at.is_some() && job.spec.begin.is_some(),
            "--begin",
            |s| {
                s.begin = None;
            },
        ),
        (!job.waiting_on.is_empty(), "--dependency", |s| {
            s.dependency = Dependency::default();
        }),
        (job.spec.licenses.is_some(), "--licenses", |s| {
            s.licenses = None;
        }),
        (ask.switches.is_some(), "--switches", |s| {
            s.ask.switches = None
        }),
        (ask.contiguous, "--contiguous", |s| s.ask.contiguous = false),
        (ask.sharing == Sharing::Exclusive, "--exclusive", |s| {
            s.ask.sharing = Sharing::Default;
        }),
        (ask.constraint.is_some(), "--constraint", |s| {
            s.ask.constraint = None
        }),
        (ask.nodelist.is_some(), "--nodelist", |s| {
            s.ask.nodelist = None
        }),
        (ask.exclude.is_some(), "--exclude", |s| s.ask.exclude = None),
        (ask.wants_devices(), "--gres and --gpus", |s| {
            s.ask.gres.clear();
            s.ask.devices = None;
        }),
        (
            ask.devices().binding == DeviceBinding::Enforced,
            "--gres-flags",
            |s| {
                if let Some(devices) = &mut s.ask.devices {
                    devices.binding = DeviceBinding::Preferred;
                }
            },
        ),
        (job.spec.reservation.is_some(), "--reservation", |s| {
            s.reservation = None
        }),
    ];
    for (given, option, drop) in list.into_iter().filter(|(given, ..)| *given) {
        debug_assert!(given);
        let mut spec = (*job.spec).clone();
        drop(&mut spec);
        all.push(Change {
            kind: 1000 + u32::try_from(all.len()).unwrap_or(0),
            option: format!("without {option}"),
            words: format!("without {option}"),
            spec,
            limit: job.time_limit,
        });
    }
}
