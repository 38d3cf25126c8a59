//! Drawn by proptest: nothing is given twice, wishes are honoured, nobody who passes by delays the reserved job, and
//! a scheduler that followed events plans what a new one plans.

use crate::world::{World, cluster, job, nodes, partition};
use muster_core::decide::decide;
use muster_core::event::{Event, JobChange};
use muster_core::state::State;
use muster_model::command::{Command, Identity, NameList, Plan, ReservationAsk, UserCommand};
use muster_model::config::PREDICT_RUN_TIMES;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Hold, Reason};
use muster_model::reservation::Flags;
use muster_model::spec::{JobSpec, MemoryAsk, Sharing};
use muster_model::task_range::TaskRange;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::topology::SwitchAsk;
use muster_sched::Scheduler;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    Submit {
        spec: Short,
        priority: u32,
    },
    Array {
        spec: Short,
        tasks: u32,
        throttle: Option<u32>,
    },
    End(usize),
    Ending(usize),
    Pass,
    /// A plan is made and forgotten.
    Forget,
    Later(u64),
    Drain(u32),
    Resume(u32),
    Priority(usize, u32),
    Hold(usize),
    Limit(usize, u32),
    /// Begin and length in minutes, first and last node, flags, cores of a node.
    Reserve {
        start: u64,
        minutes: u32,
        nodes: (u32, u32),
        flags: u32,
        cores: Option<u32>,
    },
}

/// A specification that prints what the tests vary.
#[derive(Clone)]
struct Short(Box<JobSpec>);

impl std::fmt::Debug for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let a = &self.0.ask;
        write!(
            f,
            "-n{} -c{} -N{}-{:?} {:?} {:?} {:?} -w{:?} -x{:?} -p{:?}",
            a.task_count(),
            a.cpus_of_task(),
            a.min_nodes,
            a.max_nodes,
            self.0.time_limit,
            a.memory,
            a.sharing,
            a.nodelist,
            a.exclude,
            self.0.partitions
        )
    }
}

fn spec() -> impl Strategy<Value = JobSpec> {
    let size = (
        1u32..7,
        1u32..4,
        prop_oneof![Just(None), (1u32..4).prop_map(Some)],
    );
    let wish = (0u32..10, 0u32..10, 1u32..4, 0u32..4);
    (size, 1u32..5, wish).prop_map(
        |((tasks, cpt, node_range), len, (kind, mem, parts, list))| {
            let mut spec = job(tasks, len * 10);
            spec.ask.cpus_per_task = Some(cpt);
            if let Some(n) = node_range {
                spec.ask.min_nodes = n;
                spec.ask.max_nodes = Some(n + kind % 2);
                spec.ask.nodes_set = true;
            }
            match kind {
                8 => spec.ask.sharing = Sharing::Exclusive,
                9 => spec.time_limit = Some(TimeLimit::Unlimited),
                7 => spec.ask.exclude = Some("n0".into()),
                6 => spec.ask.nodelist = Some("n1".into()),
                _ => {}
            }
            match mem {
                0..=3 => spec.ask.memory = MemoryAsk::PerNode(u64::from(mem) * 150 + 50),
                4 | 5 => spec.ask.memory = MemoryAsk::PerCpu(100),
                6 => {}
                _ => spec.ask.memory = MemoryAsk::PerNode(10),
            }
            if kind == 5 || kind == 3 {
                spec.time_min = Some(TimeLimit::Minutes(len * 10 - mem % 10));
            }
            if len == 4 {
                spec.reservation = Some(format!("r{}", kind % 3));
            }
            if list > 1 {
                spec.ask.switches = Some(SwitchAsk {
                    count: 1,
                    wait_s: Some(u64::from(mem) * 100),
                });
            }
            if list == 0 {
                let mut range = TaskRange::default();
                range.counts.insert(tasks);
                range.counts.insert_range(tasks + kind % 3, tasks + mem);
                spec.ask.task_range = Some(Box::new(range));
            }
            if parts == 2 || list == 3 {
                spec.partitions = vec!["q".into()];
            } else if parts == 3 {
                spec.partitions = vec!["q".into(), "p".into()];
            }
            spec
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (spec(), 1u32..5).prop_map(|(s, priority)| Op::Submit { spec: Short(Box::new(s)), priority }),
        1 => (spec(), 1u32..6, prop_oneof![Just(None), (1u32..3).prop_map(Some)])
            .prop_map(|(s, tasks, throttle)| Op::Array { spec: Short(Box::new(s)), tasks, throttle }),
        5 => any::<usize>().prop_map(Op::End),
        1 => any::<usize>().prop_map(Op::Ending),
        6 => Just(Op::Pass),
        1 => Just(Op::Forget),
        2 => (1u64..900).prop_map(Op::Later),
        1 => Just(Op::Later(90_000)),
        1 => (0u32..4).prop_map(Op::Drain),
        1 => (0u32..4).prop_map(Op::Resume),
        1 => (any::<usize>(), 1u32..5).prop_map(|(i, p)| Op::Priority(i, p)),
        1 => any::<usize>().prop_map(Op::Hold),
        1 => (any::<usize>(), 1u32..9).prop_map(|(i, m)| Op::Limit(i, m)),
        1 => (0u64..30, 5u32..40, (0u32..4, 0u32..4), any::<u32>(), prop_oneof![Just(None), (1u32..5).prop_map(Some)])
            .prop_map(|(start, minutes, nodes, flags, cores)| Op::Reserve { start, minutes, nodes, flags, cores }),
    ]
}

fn world(flags: u32) -> World {
    let mut config = cluster(nodes(4, 4));
    config.memory_is_consumable = flags & 1 != 0;
    config.backfill = flags & 2 == 0 || flags & 4 == 0;
    if flags & 32 != 0 {
        config.scheduler_parameters = vec![PREDICT_RUN_TIMES.into()];
    }
    let mut q = partition("q", &config.nodes[2..]);
    q.priority_tier = 1 + (flags >> 3) % 2;
    config.partitions.push(q);
    if flags & 16 != 0 {
        config.topologies = vec![crate::network::tree(&[1, 2, 1], false)];
    }
    World::new(config)
}

fn pick(
    world: &World,
    which: usize,
    fits: impl Fn(&muster_model::job::Job) -> bool,
) -> Option<JobId> {
    let all: Vec<JobId> = world
        .state
        .jobs
        .values()
        .filter(|j| fits(j))
        .map(|j| j.id)
        .collect();
    all.get(which % all.len().max(1)).copied()
}

/// Carries an operation out; the jobs of a pass that were started.
fn carry_out(world: &mut World, op: &Op) -> Result<(), TestCaseError> {
    let runs = |j: &muster_model::job::Job| !j.nodes_held.is_empty() && !j.completing;
    let waits = |j: &muster_model::job::Job| world_waits(j);
    match op {
        Op::Submit { spec, priority } => {
            world.submit_with((*spec.0).clone(), *priority);
        }
        Op::Array {
            spec,
            tasks,
            throttle,
        } => {
            world.array((*spec.0).clone(), *tasks, *throttle);
        }
        Op::End(which) => {
            if let Some(id) = pick(world, *which, runs) {
                world.end(id);
            }
        }
        Op::Ending(which) => {
            if let Some(id) = pick(world, *which, runs) {
                world.ending(id);
            }
        }
        Op::Pass => return pass(world),
        Op::Forget => {
            let plan = world.sched.plan(&world.state, world.now);
            world.note(&plan);
        }
        Op::Later(s) => {
            world.now = world.now.plus_s(*s);
            if !world.state.reservations.is_empty() {
                world.tick();
            }
        }
        Op::Reserve {
            start,
            minutes,
            nodes,
            flags,
            cores,
        } => reserve(world, (*start, *minutes), *nodes, *flags, *cores),
        Op::Drain(node) => world.drain(*node),
        Op::Resume(node) => world.resume(*node),
        Op::Priority(which, priority) => {
            if let Some(id) = pick(world, *which, waits) {
                world.change(id, JobChange::Priority(*priority));
            }
        }
        Op::Hold(which) => {
            if let Some(id) = pick(world, *which, waits) {
                world.change(
                    id,
                    JobChange::Hold {
                        hold: Hold::User,
                        priority: 0,
                    },
                );
            }
        }
        Op::Limit(which, tens) => {
            let any = |j: &muster_model::job::Job| runs(j) || world_waits(j);
            if let Some(id) = pick(world, *which, any) {
                world.change(id, JobChange::TimeLimit(TimeLimit::Minutes(tens * 10)));
            }
        }
    }
    Ok(())
}

/// Makes a reservation `r0`, `r1` or `r2`, or does nothing if that is refused.
fn reserve(
    world: &mut World,
    (start, minutes): (u64, u32),
    (a, b): (u32, u32),
    flags: u32,
    cores: Option<u32>,
) {
    let kinds = [
        Flags::DAILY,
        Flags::HOURLY,
        Flags::MAINT,
        Flags::OVERLAP,
        Flags::FLEX,
        Flags::MAGNETIC,
        Flags::NO_HOLD_JOBS_AFTER,
        Flags::IGNORE_JOBS,
    ];
    let set = kinds
        .iter()
        .zip(0..)
        .filter(|(_, bit)| flags >> (bit * 2) & 3 == 3);
    let (first, last) = (a.min(b), a.max(b));
    let ask = ReservationAsk {
        name: Some(format!("r{}", flags % 3)),
        start: Some(world.now.plus_s(start * 60)),
        duration: Some(TimeLimit::Minutes(minutes)),
        nodes: Some(format!("n[{first}-{last}]")),
        core_counts: cores.map_or(vec![], |n| vec![n; (last - first + 1) as usize]),
        users: Some(NameList::AllBut(vec!["nobody".into()])),
        flags: set.fold(Flags::default(), |all, (flag, _)| all.with(*flag)),
        ..ReservationAsk::default()
    };
    let root = Identity::default();
    world.decide(&Command::User(
        root,
        UserCommand::CreateReservation(Box::new(ask)),
    ));
}

fn world_waits(job: &muster_model::job::Job) -> bool {
    job.is_startable()
}

/// A pass with all checks.
fn pass(world: &mut World) -> Result<(), TestCaseError> {
    let plan = world.sched.plan(&world.state, world.now);
    let fresh = Scheduler::new(&world.state).plan(&world.state, world.now);
    prop_assert_eq!(
        &plan.starts,
        &fresh.starts,
        "followed events (left) and anew (right)"
    );
    let (followed, anew) = (reasons(&world.state, &plan), reasons(&world.state, &fresh));
    if world.state.reservations.is_empty() {
        prop_assert_eq!(followed, anew);
    } else {
        prop_assert_eq!(without_reservations(followed), without_reservations(anew));
    }
    for (index, start) in plan.starts.iter().enumerate() {
        honoured(world, &plan, index)?;
        prop_assert!(world_waits(&world.state.jobs[&start.job]));
    }
    let agreed = decide(&world.state, &Command::Commit(plan.clone()), world.now);
    let starts = agreed
        .events
        .iter()
        .filter(|e| matches!(e, Event::JobStarted { .. }));
    prop_assert_eq!(starts.count(), plan.starts.len(), "the core drops a start");
    if world.state.reservations.is_empty() {
        not_delayed(world, &plan)?;
    }
    let before = world.now;
    world.commit(&plan);
    prop_assert_eq!(before, world.now);
    prop_assert_eq!(world.state.check_invariants(), Ok(()));
    for node in &world.state.nodes {
        let used = node.config.cpus - node.free_cpus.len();
        let held: u32 = held_on(&world.state, node.idx.0)
            .map(|s| s.cpus.len())
            .sum();
        prop_assert_eq!(used, held, "CPUs of {} are given twice", &node.config.name);
        prop_assert!(node.used_mib <= node.config.memory_mib);
    }
    // Reservations are made anew around what has started, which may make room for more; then it is at rest.
    if !plan.starts.is_empty() || world.sched.needs_another_plan() {
        return pass(world);
    }
    Ok(())
}

fn held_on(state: &State, node: u32) -> impl Iterator<Item = &muster_model::job::NodeShare> {
    state.jobs.values().flat_map(move |job| {
        let shares = job.alloc.iter().flat_map(|a| a.nodes.iter()).zip(0u32..);
        shares
            .filter(move |(s, i)| s.node.0 == node && job.nodes_held.contains(*i))
            .map(|(s, _)| s)
    })
}

/// A reservation comes nearer while a job waits for something else: both are true then.
fn without_reservations(reasons: BTreeMap<JobId, Reason>) -> BTreeMap<JobId, Reason> {
    let plain = |reason| match reason {
        Reason::NodesReserved | Reason::ReservedForMaintenance => Reason::Resources,
        Reason::Priority => Reason::Resources,
        other => other,
    };
    reasons.into_iter().map(|(id, r)| (id, plain(r))).collect()
}

/// Reasons of all that waits after a plan.
fn reasons(state: &State, plan: &Plan) -> BTreeMap<JobId, Reason> {
    let mut all: BTreeMap<JobId, Reason> = (state.jobs.values())
        .filter(|j| world_waits(j))
        .map(|j| (j.id, j.reason))
        .collect();
    all.extend(
        plan.reasons
            .iter()
            .map(|planned| (planned.job, planned.reason)),
    );
    for start in &plan.starts {
        all.remove(&start.job);
    }
    all
}

fn honoured(world: &World, plan: &Plan, index: usize) -> Result<(), TestCaseError> {
    let start = &plan.starts[index];
    let job = &world.state.jobs[&start.job];
    let ask = &job.spec.ask;
    let alloc = &start.alloc;
    let count = u32::try_from(alloc.nodes.len()).unwrap();
    prop_assert!(
        count >= ask.min_nodes && ask.max_nodes.is_none_or(|m| count <= m),
        "{:?}",
        ask
    );
    let tasks = alloc.nodes.iter().map(|s| s.tasks).sum::<u32>();
    match &ask.task_range {
        Some(range) => prop_assert!(range.admits(tasks), "{tasks} of {range:?}"),
        None => prop_assert_eq!(tasks, ask.task_count()),
    }
    prop_assert!(job.spec.partitions.contains(&alloc.partition));
    let part = world
        .state
        .partitions
        .iter()
        .find(|p| p.name == alloc.partition)
        .unwrap();
    for share in &alloc.nodes {
        let node = &world.state.nodes[share.node.0 as usize];
        prop_assert!(!node.drain && part.nodes.contains(&node.config.name));
        prop_assert!(node.free_cpus.is_superset(&share.cpus));
        prop_assert!(share.cpus.len() >= (share.tasks * ask.cpus_of_task()).max(1));
        if ask.sharing == Sharing::Exclusive {
            prop_assert!(node.jobs.is_empty() && share.cpus.len() == node.config.cpus);
        }
        for other in &plan.starts[..index] {
            for theirs in other.alloc.nodes.iter().filter(|s| s.node == share.node) {
                prop_assert!(!theirs.cpus.intersects(&share.cpus), "a CPU is given twice");
            }
        }
        if ask.exclude.is_some() {
            prop_assert_ne!(share.name.as_str(), "n0");
        }
    }
    if ask.nodelist.is_some() {
        prop_assert!(alloc.nodes.iter().any(|s| s.name == "n1"));
    }
    Ok(())
}

/// Free CPUs by node.
type Free = Vec<u32>;

/// When a job with only CPU wishes fits in partition `p`, tried at every end, by the simplest means.
fn naive_start(
    world: &World,
    spec: &JobSpec,
    mut free: Free,
    extra: &[(Timestamp, u32, u32)],
) -> Option<Timestamp> {
    let mut ends: Vec<(Timestamp, u32, u32)> = extra.to_vec();
    for job in world
        .state
        .jobs
        .values()
        .filter(|j| !j.nodes_held.is_empty())
    {
        let end = match world.state.by_limit.iter().find(|(_, id)| *id == job.id) {
            _ if job.completing => world.now,
            Some((t, _)) => (*t).max(world.now),
            None => continue,
        };
        for (share, i) in job.alloc.as_ref().unwrap().nodes.iter().zip(0..) {
            if job.nodes_held.contains(i) {
                ends.push((end, share.node.0, share.cpus.len()));
            }
        }
    }
    ends.sort();
    let fits = |free: &Free| {
        let cpt = spec.ask.cpus_of_task();
        let mut caps: Vec<u32> = (free.iter().enumerate())
            .filter(|(i, _)| !world.state.nodes[*i].drain)
            .map(|(_, f)| f / cpt)
            .filter(|c| *c > 0)
            .collect();
        caps.sort_by_key(|c| std::cmp::Reverse(*c));
        caps.truncate(spec.ask.max_nodes.unwrap_or(99) as usize);
        caps.len() >= spec.ask.min_nodes as usize
            && caps.iter().sum::<u32>() >= spec.ask.task_count()
    };
    let mut at = 0;
    while at < ends.len() {
        let t = ends[at].0;
        while at < ends.len() && ends[at].0 == t {
            free[ends[at].1 as usize] += ends[at].2;
            at += 1;
        }
        if fits(&free) {
            return Some(t);
        }
    }
    None
}

/// The first job that waits in `p` starts no later for those who passed by. Looked at only where CPUs alone decide.
fn not_delayed(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let config = world.state.config.as_ref().unwrap();
    let after = reasons(&world.state, plan);
    let plain = |spec: &JobSpec| {
        spec.ask.sharing == Sharing::Default
            && spec.ask.nodelist.is_none()
            && spec.ask.exclude.is_none()
            && spec.partitions == ["p"]
    };
    let in_use = |j: &muster_model::job::Job| plain(&j.spec) || j.state.is_ended();
    let shaped = !config.topologies.is_empty();
    if shaped || config.memory_is_consumable || !world.state.jobs.values().all(in_use) {
        return Ok(());
    }
    let Some(head) = after
        .iter()
        .find(|(_, r)| **r == Reason::Resources)
        .map(|(id, _)| *id)
    else {
        return Ok(());
    };
    let job = &world.state.jobs[&head];
    let order = |id: JobId| (std::cmp::Reverse(world.state.jobs[&id].priority), id);
    let mut free: Free = world
        .state
        .nodes
        .iter()
        .map(|n| n.free_cpus.len())
        .collect();
    let mut extra = Vec::new();
    let mut naive = None;
    for passing in [false, true] {
        for start in plan
            .starts
            .iter()
            .filter(|s| (order(s.job) > order(head)) == passing)
        {
            let limit = world.state.jobs[&start.job].time_limit.seconds();
            for share in &start.alloc.nodes {
                free[share.node.0 as usize] -= share.cpus.len();
                if let Some(s) = limit {
                    extra.push((world.now.plus_s(s), share.node.0, share.cpus.len()));
                }
            }
        }
        let start = naive_start(world, &job.spec, free.clone(), &extra);
        if passing {
            match (naive.unwrap(), start) {
                (Some(alone), Some(now)) => prop_assert!(now <= alone, "{head} is delayed"),
                (alone, now) => prop_assert_eq!(alone, now, "{} is delayed for ever", head),
            }
        } else {
            naive = Some(start);
            let expected = plan
                .expected
                .iter()
                .find(|planned| planned.job == head)
                .map(|planned| planned.start);
            let expected = expected.or(job.expected_start.filter(|_| start.is_some()));
            // What is overdue may end any moment.
            let expected = expected.map(|t| t.max(world.now));
            if config.backfill && start.is_some() && !matches!(job.array, ArrayRole::Task { .. }) {
                prop_assert_eq!(
                    expected,
                    start,
                    "the reservation of {} is at the wrong time",
                    head
                );
            }
        }
    }
    Ok(())
}

fn plain_spec() -> impl Strategy<Value = JobSpec> {
    spec().prop_map(|mut s| {
        s.partitions = vec!["p".into()];
        s.ask.sharing = Sharing::Default;
        (s.ask.nodelist, s.ask.exclude, s.reservation) = (None, None, None);
        s.time_min = None;
        s.ask.memory = MemoryAsk::Default;
        s
    })
}

/// Behind the first of its partition a job keeps the reservation for the first of another; once it is the first itself, and
/// of a higher tier, it does not.
#[test]
fn who_becomes_the_first_is_not_kept_back_by_those_after_him() {
    let mut world = world(8 + 16 + 32);
    let on_one_leaf = |mut spec: JobSpec, wait_s| {
        spec.ask.switches = Some(SwitchAsk {
            count: 1,
            wait_s: Some(wait_s),
        });
        spec
    };
    let mut first = on_one_leaf(job(1, 10), 0);
    (first.ask.min_nodes, first.ask.max_nodes) = (2, Some(2));
    first.ask.cpus_per_task = Some(2);
    first.partitions = vec!["q".into(), "p".into()];
    let mut second = on_one_leaf(job(5, 10), 100);
    second.ask.nodelist = Some("n1".into());
    let mut third = job(4, 10);
    third.partitions = vec!["q".into()];
    for spec in [first, second, third] {
        world.submit_with(spec, 1);
    }
    pass(&mut world).expect("the plan that follows events is the plan made anew");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(150)))]

    #[test]
    fn plans_are_sound_and_incremental(
        flags in 0u32..64,
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let mut world = world(flags);
        for op in &ops {
            carry_out(&mut world, op)?;
        }
        pass(&mut world)?;
    }

    #[test]
    fn nobody_delays_the_first(
        ops in proptest::collection::vec(
            prop_oneof![
                6 => (plain_spec(), 1u32..5)
                    .prop_map(|(s, priority)| Op::Submit { spec: Short(Box::new(s)), priority }),
                3 => any::<usize>().prop_map(Op::End),
                1 => any::<usize>().prop_map(Op::Ending),
                4 => Just(Op::Pass),
                2 => (1u64..900).prop_map(Op::Later),
                1 => (any::<usize>(), 1u32..9).prop_map(|(i, m)| Op::Limit(i, m)),
            ],
            1..60,
        ),
    ) {
        let mut world = world(0);
        for op in &ops {
            carry_out(&mut world, op)?;
        }
        pass(&mut world)?;
    }
}
