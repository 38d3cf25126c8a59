//! Jobs that make room: who is chosen, what is kept for whom, and that nothing is given twice meanwhile.

mod reclaimed;

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::accounts::{AccountsChange, Qos};
use muster_core::command::{Command, NodeCommand, Plan};
use muster_core::config::ClusterConfig;
use muster_core::event::Event;
use muster_core::ids::JobId;
use muster_core::job::{Job, JobState, NodeShare, Reason};
use muster_core::preemption::{PreemptMode, PreemptType};
use muster_core::spec::{JobSpec, MemoryAsk};
use muster_core::time::Timestamp;
use muster_sched::{Promised, Scheduler};
use proptest::prelude::*;
use std::cmp::Reverse;

/// Partitions `p` (tier 1), `mid` (tier 5) and `hi` (tier 10) over the same nodes.
fn config(count: u32, cpus: u32, mode: PreemptMode) -> ClusterConfig {
    let mut config = cluster(nodes(count, cpus));
    for (name, tier) in [("mid", 5), ("hi", 10)] {
        let mut part = partition(name, &config.nodes);
        part.priority_tier = tier;
        config.partitions.push(part);
    }
    config.order.preemption.kind = PreemptType::PartitionPrio;
    config.order.preemption.mode = mode;
    config
}

fn tiers(count: u32, cpus: u32, mode: PreemptMode) -> World {
    World::new(config(count, cpus, mode))
}

fn within(part: &str, spec: JobSpec) -> JobSpec {
    JobSpec {
        partitions: vec![part.into()],
        ..spec
    }
}

impl World {
    /// What happened to jobs in this pass: those preempted and those started.
    fn preempting_pass(&mut self) -> (Vec<u64>, Vec<u64>) {
        let plan = self.sched.plan(&self.state, self.now);
        self.carry_out(plan)
    }

    fn carry_out(&mut self, plan: Plan) -> (Vec<u64>, Vec<u64>) {
        self.note(&plan);
        let victims = plan.preemptions.iter().map(|p| p.victim.0).collect();
        let before = self.state.active.clone();
        let planned = plan.starts.len();
        self.decide(&Command::Commit(plan));
        let started: Vec<u64> = self
            .state
            .active
            .difference(&before)
            .map(|id| id.0)
            .collect();
        assert_eq!(started.len(), planned, "the core drops what was planned");
        self.state.check_invariants().unwrap();
        (victims, started)
    }

    fn state_of(&self, id: JobId) -> (JobState, bool) {
        let job = &self.state.jobs[&id];
        (job.state, job.completing)
    }

    /// Nodes confirm that nothing is left of a job, by the core's own hand.
    fn clean(&mut self, id: JobId) {
        let job = &self.state.jobs[&id];
        let attempt = job.attempt;
        let held: Vec<_> = job.held().map(|(share, _)| share.node).collect();
        for node in held {
            let released = NodeCommand::Released { job: id, attempt };
            self.decide(&Command::Node(node, released));
        }
    }
}

#[test]
fn a_higher_tier_ends_the_fewest_of_a_lower_one() {
    let mut world = tiers(2, 4, PreemptMode::Cancel);
    let small: Vec<JobId> = (0..4).map(|_| world.submit(job(1, 60))).collect();
    let large = world.submit(job(4, 60));
    world.pass_by_core();
    let urgent = world.submit(within("hi", job(4, 60)));
    let (victims, started) = world.preempting_pass();
    assert_eq!((victims, started), (vec![large.0], vec![]));
    assert_eq!(world.state_of(large), (JobState::Preempted, true));
    assert_eq!(world.reason(urgent), Reason::Resources);
    // Nothing more is taken while that one is being cleaned up, and nobody else gets its place.
    let other = world.submit(job(4, 5));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.clean(large);
    assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
    assert_eq!(world.state_of(large), (JobState::Preempted, false));
    assert!(
        small
            .iter()
            .all(|id| world.state_of(*id).0 == JobState::Running)
    );
    assert_eq!(world.state_of(other).0, JobState::Pending);
}

#[test]
fn who_is_first_waits_for_nodes_that_a_higher_tier_waits_for_too() {
    let mut world = tiers(1, 4, PreemptMode::Off);
    let runs = world.submit(within("hi", job(4, 60)));
    world.pass();
    let low = world.submit(job(4, 60));
    world.pass();
    assert_eq!(world.reason(low), Reason::Resources);
    let high = world.submit(within("hi", job(4, 60)));
    world.pass();
    assert_eq!(
        (world.reason(high), world.reason(low)),
        (Reason::Resources, Reason::NodesUnavailable)
    );
    world.end(runs);
    world.pass();
    assert_eq!(world.reason(low), Reason::Resources);
}

#[test]
fn two_that_need_room_get_each_its_own() {
    let mut world = tiers(2, 4, PreemptMode::Requeue);
    let low: Vec<JobId> = (0..2).map(|_| world.submit(job(4, 60))).collect();
    world.pass_by_core();
    let high: Vec<JobId> = (0..2)
        .map(|_| world.submit(within("hi", job(4, 60))))
        .collect();
    let (mut victims, _) = world.preempting_pass();
    victims.sort_unstable();
    assert_eq!(victims, [low[0].0, low[1].0]);
    let told = muster_sched::explain(&world.state, low[0], world.now).unwrap();
    assert_eq!(
        told.waits_for,
        ["It is PREEMPTED, and back in the queue when what is left of it on n0 is cleaned up."]
    );
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.clean(low[1]);
    assert_eq!(world.preempting_pass().1.len(), 1);
    world.clean(low[0]);
    assert_eq!(world.preempting_pass().1.len(), 1);
    for id in low {
        assert_eq!(world.state_of(id), (JobState::Pending, false));
        assert_eq!(world.state.jobs[&id].restarts, 1);
    }
    assert!(
        high.iter()
            .all(|id| world.state_of(*id).0 == JobState::Running)
    );
}

#[test]
fn the_lowest_go_first() {
    let mut world = tiers(2, 4, PreemptMode::Cancel);
    let middle = world.submit(within("mid", job(4, 60)));
    let low = world.submit(job(4, 60));
    world.pass_by_core();
    world.submit(within("hi", job(3, 60)));
    assert_eq!(world.preempting_pass().0, [low.0]);
    assert_eq!(world.state_of(middle).0, JobState::Running);
    // The same tier and higher ones stay.
    world.submit(within("mid", job(3, 60)));
    assert_eq!(world.preempting_pass().0, [0u64; 0]);
}

#[test]
fn who_is_stopped_goes_on_when_the_other_ends() {
    let mut world = tiers(1, 4, PreemptMode::Suspend);
    let low = world.submit(job(4, 60));
    world.pass_by_core();
    let high = world.submit(within("hi", job(2, 60)));
    assert_eq!(world.preempting_pass(), (vec![low.0], vec![high.0]));
    assert_eq!(world.state_of(low).0, JobState::Suspended);
    // What is left of the stopped one's CPUs is not for others of its tier, but for those above it.
    let same = world.submit(job(1, 5));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    let middle = world.submit(within("mid", job(2, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![middle.0]));
    world.end_by_core(high);
    assert_eq!(world.state_of(low).0, JobState::Suspended);
    world.end_by_core(middle);
    assert_eq!(world.state_of(low).0, JobState::Running);
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.end_by_core(low);
    assert_eq!(world.preempting_pass(), (vec![], vec![same.0]));
}

#[test]
fn what_is_left_of_the_stopped_is_kept_in_the_same_pass() {
    let mut world = tiers(1, 4, PreemptMode::Suspend);
    let low = world.submit(job(4, 60));
    world.pass_by_core();
    let high = world.submit(within("hi", job(2, 60)));
    world.submit(job(1, 5));
    assert_eq!(world.preempting_pass(), (vec![low.0], vec![high.0]));
}

#[test]
fn memory_of_the_stopped_stays_theirs() {
    let mut config = config(1, 4, PreemptMode::Suspend);
    config.memory_is_consumable = true;
    let mut world = World::new(config);
    let with_memory = |part: &str, mib| {
        let mut spec = within(part, job(4, 60));
        spec.ask.memory = MemoryAsk::PerNode(mib);
        spec
    };
    world.submit(with_memory("p", 600));
    world.pass_by_core();
    world.submit(with_memory("hi", 600));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    let fits = world.submit(with_memory("hi", 300));
    assert_eq!(world.preempting_pass().1, [fits.0]);
}

#[test]
fn grace_and_exemption_are_given() {
    let mut config = config(1, 4, PreemptMode::Requeue);
    config.order.preemption.exempt_s = 60;
    config.partitions[0].grace_time_s = 30;
    let mut world = World::new(config);
    let low = world.submit(job(4, 60));
    world.pass_by_core();
    let high = world.submit(within("hi", job(4, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    assert_eq!(world.sched.next_look(), Some(world.now.plus_s(60)));
    world.now = world.now.plus_s(60);
    assert_eq!(world.preempting_pass().0, [low.0]);
    assert_eq!(world.state_of(low), (JobState::Running, false));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.now = world.now.plus_s(29);
    world.tick();
    assert_eq!(world.state_of(low), (JobState::Running, false));
    world.now = world.now.plus_s(1);
    world.tick();
    assert_eq!(world.state_of(low), (JobState::Preempted, true));
    world.clean(low);
    assert_eq!(world.state_of(low), (JobState::Pending, false));
    assert_eq!(world.preempting_pass().1, [high.0]);
}

#[test]
fn modes_of_partitions_count() {
    let mut config = config(3, 4, PreemptMode::Cancel);
    config.partitions[0].preempt_mode = Some("OFF".into());
    config.partitions[1].preempt_mode = Some("REQUEUE".into());
    let mut world = World::new(config);
    let safe = world.submit(job(4, 60));
    let back = world.submit(within("mid", job(4, 60)));
    let mut keeps = within("mid", job(4, 60));
    keeps.requeue = Some(false);
    let lost = world.submit(keeps);
    world.change(lost, muster_core::event::JobChange::Requeueable(false));
    world.pass_by_core();
    world.submit(within("hi", wide(2, 8, 60)));
    let (victims, _) = world.preempting_pass();
    assert_eq!(victims.len(), 2);
    assert_eq!(world.state_of(safe).0, JobState::Running);
    world.clean(back);
    world.clean(lost);
    assert_eq!(world.state_of(back), (JobState::Pending, false));
    assert_eq!(world.state_of(lost), (JobState::Preempted, false));
    assert_eq!(world.preempting_pass().1.len(), 1);
    // Nobody left who would make room.
    world.submit(within("hi", job(4, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
}

#[test]
fn qos_lists_say_who_goes_before_whom() {
    let mut config = cluster(nodes(1, 4));
    config.order.preemption.kind = PreemptType::Qos;
    config.order.preemption.mode = PreemptMode::Cancel;
    let mut world = World::new(config);
    let qos = |name: &str, preempt: &[&str], mode: Option<&str>| {
        AccountsChange::Qos(Qos {
            name: name.into(),
            preempt: preempt.iter().map(|n| (*n).to_owned()).collect(),
            preempt_mode: mode.map(str::to_owned),
            ..Qos::default()
        })
    };
    let changes = vec![
        qos("low", &[], Some("REQUEUE")),
        qos("high", &["low"], None),
        qos("own", &[], Some("within,cancel")),
    ];
    let at = world.now;
    world.apply(&Event::AccountsChanged { changes, at });
    let of = |name: &str| JobSpec {
        qos: Some(name.into()),
        ..job(4, 60)
    };
    let low = world.submit(of("low"));
    world.pass_by_core();
    world.submit(of("normal"));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    let high = world.submit_with(of("high"), 2000);
    assert_eq!(world.preempting_pass().0, [low.0]);
    world.clean(low);
    assert_eq!(world.preempting_pass().1, [high.0]);
    world.end_by_core(high);
    let own = world.submit_with(of("own"), 3000);
    world.preempting_pass();
    assert_eq!(world.state_of(own).0, JobState::Running);
    world.submit_with(of("own"), 3000);
    assert_eq!(world.preempting_pass().0, [0u64; 0]);
    world.submit_with(of("own"), 3001);
    assert_eq!(world.preempting_pass().0, [own.0]);
}

/// In the order of submission a job that had to make room would come first again when it is back in the queue, and
/// have what it made room with, again and again.
#[test]
fn who_made_room_comes_after_those_whom_it_was_made_for() {
    let mut config = cluster(nodes(1, 4));
    config.order.preemption.kind = PreemptType::Qos;
    config.order.preemption.mode = PreemptMode::Requeue;
    let mut world = World::new(config);
    // `top` may preempt `high` and that `low`: one above another, though `top` does not list `low`.
    for (name, preempt) in [("low", ""), ("high", "low"), ("top", "high")] {
        let qos = Qos {
            name: name.into(),
            preempt: preempt.split_whitespace().map(str::to_owned).collect(),
            ..Qos::default()
        };
        let (changes, at) = (vec![AccountsChange::Qos(qos)], world.now);
        world.apply(&Event::AccountsChanged { changes, at });
    }
    let submit = |world: &mut World, priority, name: &str| {
        let spec = JobSpec {
            qos: Some(name.into()),
            ..job(4, 60)
        };
        world.submit_with(spec, priority)
    };
    // Who comes earlier has the higher priority, as in the order of submission.
    let low = submit(&mut world, 30, "low");
    world.pass_by_core();
    let high = submit(&mut world, 20, "high");
    assert_eq!(world.preempting_pass(), (vec![low.0], vec![]));
    let top = submit(&mut world, 10, "top");
    world.clean(low);
    assert_eq!(world.state_of(low), (JobState::Pending, false));
    assert_eq!(world.preempting_pass(), (vec![], vec![top.0]));
    // It may not preempt that one, and comes after it all the same.
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.end_by_core(top);
    assert_eq!(world.preempting_pass(), (vec![], vec![high.0]));
    world.end_by_core(high);
    assert_eq!(world.preempting_pass(), (vec![], vec![low.0]));
    assert_eq!(world.state.jobs[&low].restarts, 1);
}

/// A promise keeps what there will be when others have ended: what is free until then and left over is counted, too.
#[test]
fn what_a_promise_leaves_counts_beside_what_is_made_free() {
    let mut world = tiers(3, 4, PreemptMode::Cancel);
    let on = |list: &str, mut spec: JobSpec| {
        spec.ask.nodelist = Some(list.into());
        spec
    };
    let pairs = |spec: JobSpec| {
        let mut spec = spec;
        spec.ask.cpus_per_task = Some(2);
        spec
    };
    world.submit(within("hi", on("n0", job(2, 10))));
    world.submit(within("hi", on("n1", job(4, 10))));
    let low = world.submit(on("n2", job(4, 60)));
    assert_eq!(world.pass_by_core().len(), 3);
    // It waits for n1, and has two CPUs of n0 kept from then on, when four will be free there.
    let first = world.submit(within("hi", on("n[0-1]", pairs(wide(2, 2, 60)))));
    let next = world.submit(within("mid", pairs(wide(2, 2, 60))));
    assert_eq!(world.preempting_pass(), (vec![low.0], vec![]));
    world.clean(low);
    assert_eq!(world.preempting_pass(), (vec![], vec![next.0]));
    assert_eq!(world.place(next), "n0:2 n2:2");
    assert_eq!(world.reason(first), Reason::Resources);
}

/// Who finds no room although all leave that may have to waits until nodes have gained what is missing.
#[test]
fn who_may_preempt_is_not_tried_at_every_end() {
    let mut world = tiers(8, 4, PreemptMode::Cancel);
    let high: Vec<JobId> = (0..6)
        .map(|_| world.submit(within("hi", job(4, 60))))
        .collect();
    let low: Vec<JobId> = (0..2).map(|_| world.submit(job(4, 60))).collect();
    assert_eq!(world.pass_by_core().len(), 8);
    // Two nodes make room; four are missing.
    world.submit(within("mid", wide(6, 24, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    for id in &high[..3] {
        world.end(*id);
        assert_eq!(world.preempting_pass(), (vec![], vec![]));
        let cost = world.sched.cost();
        assert_eq!(
            (cost.shapes_visited, cost.nodes_visited),
            (0, 0),
            "{cost:?}"
        );
    }
    world.end(high[3]);
    let (mut victims, _) = world.preempting_pass();
    victims.sort_unstable();
    assert_eq!(victims, [low[0].0, low[1].0]);
}

#[test]
fn tasks_of_an_array_get_room_in_one_go() {
    let mut world = tiers(3, 2, PreemptMode::Cancel);
    let low: Vec<JobId> = (0..3).map(|_| world.submit(job(2, 60))).collect();
    world.pass_by_core();
    world.array(within("hi", job(2, 60)), 3, None);
    let (mut victims, _) = world.preempting_pass();
    victims.sort_unstable();
    assert_eq!(victims, low.iter().map(|id| id.0).collect::<Vec<_>>());
    low.iter().for_each(|id| world.clean(*id));
    assert_eq!(world.preempting_pass().1.len(), 3);
}

impl World {
    fn end_by_core(&mut self, id: JobId) {
        self.ending(id);
        self.clean(id);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit {
        part: usize,
        tasks: u32,
        nodes: u32,
        mib: u64,
    },
    End(usize),
    Clean(usize),
    Pass,
    Later(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0usize..3, 1u32..7, 1u32..3, 0u64..500)
            .prop_map(|(part, tasks, nodes, mib)| Op::Submit { part, tasks, nodes, mib }),
        2 => any::<usize>().prop_map(Op::End),
        4 => any::<usize>().prop_map(Op::Clean),
        5 => Just(Op::Pass),
        1 => (1u64..100).prop_map(Op::Later),
    ]
}

/// Whether a job fits on nodes of which these have so many CPUs and so much memory free, by the simplest means.
fn fits(free: &[(u32, u64)], spec: &JobSpec, memory: bool) -> bool {
    let mib = match spec.ask.memory {
        MemoryAsk::PerNode(mib) if memory => mib,
        _ => 0,
    };
    let mut caps: Vec<u32> = free
        .iter()
        .filter(|(cpus, has)| *cpus > 0 && *has >= mib)
        .map(|(cpus, _)| *cpus)
        .collect();
    caps.sort_by_key(|c| Reverse(*c));
    caps.truncate(spec.ask.max_nodes.unwrap_or(99) as usize);
    caps.len() >= spec.ask.min_nodes as usize && caps.iter().sum::<u32>() >= spec.ask.task_count()
}

/// How far before others a job stands in line.
fn standing(world: &World, job: &Job) -> (Reverse<u32>, JobId) {
    (Reverse(world.state.preempt_rank(job)), job.id)
}

/// What a job would find on the nodes now if these were gone: free CPUs and memory without what is promised to those
/// before it in line. By the simplest means.
fn left_without(world: &World, id: JobId, gone: &[JobId]) -> Vec<(u32, u64)> {
    let state = &world.state;
    let waiting = &state.jobs[&id];
    let stops = state.preemption().unwrap().mode == PreemptMode::Suspend;
    let end = world
        .now
        .plus_s(waiting.time_limit.seconds().expect("all have limits"));
    // At a time, those gone whose limit passes by then included.
    let free_at = |node: usize, at: Timestamp| {
        let record = &state.nodes[node];
        let mut free = (record.free_cpus.len(), record.unheld_mib());
        for id in &state.active {
            let job = &state.jobs[id];
            let ended = state.limit_end(job).is_some_and(|end| end <= at);
            let leaves = ended || gone.contains(id);
            let here = |share: &&NodeShare| share.node.0 as usize == node && leaves;
            for share in job.held().map(|(share, _)| share).filter(here) {
                free.0 += if job.cpus_lent { 0 } else { share.cpus.len() };
                free.1 += if ended || !stops { share.memory_mib } else { 0 };
            }
        }
        free
    };
    let before = |p: &&Promised| {
        let job = &state.jobs[&p.job];
        p.start < end && standing(world, job) < standing(world, waiting)
    };
    let promised = world.sched.promised();
    let promised: Vec<&Promised> = promised.iter().filter(before).collect();
    let mut left: Vec<(u32, u64)> = (0..state.nodes.len())
        .map(|node| free_at(node, Timestamp(i64::MIN)))
        .collect();
    for (node, left) in left.iter_mut().enumerate() {
        for promise in promised.iter().filter(|p| p.node as usize == node) {
            let mut then = free_at(node, promise.start);
            let beside = |p: &&&Promised| {
                p.node as usize == node && p.start <= promise.start && promise.start < p.end
            };
            for other in promised.iter().filter(beside) {
                then.0 = then.0.saturating_sub(other.cpus);
                then.1 = then.1.saturating_sub(other.mib);
            }
            *left = (left.0.min(then.0), left.1.min(then.1));
        }
    }
    left
}

/// The first preemption of a plan: nobody could have been spared, and none of a lower rank alone would have done.
fn no_more_than_needed(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let Some(first) = plan.preemptions.first() else {
        return Ok(());
    };
    let state = &world.state;
    // Looked at only where it is the first thing that a pass does.
    let goes = |j: &Job| j.completing || j.cpus_lent || j.grace_end().is_some();
    let busy = state.jobs.values().any(goes);
    let others = plan.starts.iter().any(|s| s.job != first.by);
    if busy || others || plan.preemptions.iter().any(|p| p.by != first.by) {
        return Ok(());
    }
    let waiting = &state.jobs[&first.by];
    let memory = state.config.as_ref().unwrap().memory_is_consumable;
    let victims: Vec<JobId> = plan.preemptions.iter().map(|p| p.victim).collect();
    let without =
        |gone: &[JobId]| fits(&left_without(world, first.by, gone), &waiting.spec, memory);
    prop_assert!(!without(&[]), "nobody had to make room");
    prop_assert!(without(&victims), "{:?} do not make room", victims);
    for spared in &victims {
        let rest: Vec<JobId> = victims.iter().filter(|v| *v != spared).copied().collect();
        prop_assert!(!without(&rest), "{} could have been spared", spared);
    }
    let highest = victims
        .iter()
        .map(|v| state.preempt_rank(&state.jobs[v]))
        .max();
    let lower: Vec<JobId> = state
        .jobs
        .values()
        .filter(|j| {
            let open = state
                .preemptable(j)
                .is_some_and(|(_, until)| until <= world.now);
            open && Some(state.preempt_rank(j)) < highest
        })
        .map(|j| j.id)
        .collect();
    prop_assert!(!without(&lower), "lower ranks would have done: {:?}", lower);
    Ok(())
}

/// Once those who made room have left, those for whom they did start, or one that comes before them in line.
fn is_used(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let state = world.state.clone();
    let mut world = World {
        sched: Scheduler::new(&state),
        state,
        now: world.now,
    };
    let ends = |job: &Job| job.grace_end();
    let grace_end = world.state.jobs.values().filter_map(ends).max();
    if let Some(end) = grace_end {
        world.now = world.now.max(end);
        world.tick();
    }
    let gone = |job: &&Job| job.completing;
    let gone: Vec<JobId> = world
        .state
        .jobs
        .values()
        .filter(gone)
        .map(|j| j.id)
        .collect();
    gone.iter().for_each(|id| world.clean(*id));
    let mut started = Vec::new();
    loop {
        let new = world.preempting_pass().1;
        if new.is_empty() {
            break;
        }
        started.extend(new.into_iter().map(JobId));
    }
    let place = |id: &JobId| standing(&world, &world.state.jobs[id]);
    for preemption in &plan.preemptions {
        let by = preemption.by;
        let runs = !world.state.jobs[&by].is_startable();
        let before = started.iter().any(|id| place(id) < place(&by));
        prop_assert!(
            runs || before,
            "{by} has nothing of the room made by {}",
            preemption.victim
        );
    }
    Ok(())
}

/// Who goes on in place of the one that had stopped it may be stopped for another that had nobody to stop before.
#[test]
fn who_goes_on_can_be_stopped_for_another() {
    let submit = |part, tasks, nodes| Op::Submit {
        part,
        tasks,
        nodes,
        mib: 0,
    };
    let before = [(0, 1, 1), (0, 4, 2), (1, 1, 2)];
    let after = [(0, 1, 2), (2, 1, 1), (2, 1, 2), (2, 6, 2), (1, 1, 2)];
    let all = |jobs: &[(usize, u32, u32)]| {
        let jobs = jobs
            .iter()
            .map(|&(part, tasks, nodes)| submit(part, tasks, nodes));
        jobs.chain([Op::Pass]).collect::<Vec<Op>>()
    };
    let mut ops = all(&before);
    ops.extend(all(&after));
    ops.extend([Op::Pass, Op::End(2), Op::Clean(0), Op::Pass]);
    soundly(32, &ops).expect("every plan is sound");
}

/// What is left of those who are stopped for another is theirs: it is not what the nodes gained for those who wait.
#[test]
fn what_ends_helps_who_waits_although_another_is_stopped_there() {
    let submit = |part, tasks, nodes| Op::Submit {
        part,
        tasks,
        nodes,
        mib: 0,
    };
    let ops = [
        submit(0, 6, 2),
        Op::Pass,
        submit(1, 1, 2),
        submit(0, 1, 2),
        submit(1, 3, 1),
        submit(1, 1, 2),
        Op::Pass,
        submit(1, 2, 1),
        Op::End(3),
        Op::End(1),
        Op::Clean(0),
        Op::Clean(0),
        Op::Pass,
    ];
    soundly(2, &ops).expect("every plan is sound");
}

/// Plays operations and checks every plan against one made anew.
fn soundly(flags: u32, ops: &[Op]) -> Result<(), TestCaseError> {
    let mode = [
        PreemptMode::Cancel,
        PreemptMode::Requeue,
        PreemptMode::Suspend,
    ][flags as usize % 3];
    let by_qos = flags & 64 != 0;
    let mut config = match by_qos {
        true => cluster(nodes(3, 4)),
        false => config(3, 4, mode),
    };
    if by_qos {
        config.order.preemption.kind = PreemptType::Qos;
        config.order.preemption.mode = mode;
    }
    config.memory_is_consumable = flags & 4 != 0;
    config.backfill = flags & 8 == 0;
    if flags & 16 != 0 {
        config.partitions[0].grace_time_s = 20;
    }
    if flags & 32 != 0 {
        config.order.preemption.exempt_s = 30;
    }
    let mut world = World::new(config);
    let lists: [(&str, u32, &[&str]); 3] =
        [("p", 1, &[]), ("mid", 5, &["p"]), ("hi", 10, &["p", "mid"])];
    let changes = lists.map(|(name, priority, preempt)| {
        AccountsChange::Qos(Qos {
            name: name.into(),
            priority,
            preempt: preempt.iter().map(|n| (*n).to_owned()).collect(),
            grace_time_s: u32::from(flags & 16 != 0 && name == "p") * 20,
            ..Qos::default()
        })
    });
    let (changes, at) = (changes.to_vec(), world.now);
    world.apply(&Event::AccountsChanged { changes, at });
    let mut all: Vec<JobId> = Vec::new();
    for op in ops {
        match op {
            Op::Submit {
                part,
                tasks,
                nodes,
                mib,
            } => {
                let name = ["p", "mid", "hi"][*part];
                let mut spec = wide(*nodes, (*tasks).max(*nodes), 60);
                if by_qos {
                    spec.qos = Some(name.into());
                } else {
                    spec = within(name, spec);
                }
                spec.ask.memory = MemoryAsk::PerNode(mib + 1);
                all.push(world.submit(spec));
            }
            Op::End(i) => {
                let running: Vec<JobId> = all
                    .iter()
                    .filter(|id| world.state_of(**id) == (JobState::Running, false))
                    .copied()
                    .collect();
                if let Some(id) = running.get(i % running.len().max(1)) {
                    world.ending(*id);
                }
            }
            Op::Clean(i) => {
                let gone: Vec<JobId> = all
                    .iter()
                    .filter(|id| world.state.jobs[id].completing)
                    .copied()
                    .collect();
                if let Some(id) = gone.get(i % gone.len().max(1)) {
                    world.clean(*id);
                }
            }
            Op::Later(s) => {
                world.now = world.now.plus_s(*s);
                world.tick();
            }
            Op::Pass => {
                let plan = world.sched.plan(&world.state, world.now);
                let fresh = Scheduler::new(&world.state).plan(&world.state, world.now);
                prop_assert_eq!(&plan.starts, &fresh.starts);
                prop_assert_eq!(&plan.preemptions, &fresh.preemptions);
                no_more_than_needed(&world, &plan)?;
                world.carry_out(plan.clone());
                is_used(&world, &plan)?;
            }
        }
        prop_assert_eq!(world.state.check_invariants(), Ok(()));
    }
    // When everything that runs has ended often enough, nobody is left behind.
    for _ in 0..all.len() * 3 + 3 {
        world.now = world.now.plus_s(60);
        world.tick();
        world.preempting_pass();
        let gone: Vec<JobId> = all
            .iter()
            .filter(|id| world.state.jobs[id].completing)
            .copied()
            .collect();
        gone.iter().for_each(|id| world.clean(*id));
        world.preempting_pass();
        if let Some(id) = all
            .iter()
            .find(|id| world.state_of(**id).0 == JobState::Running)
        {
            world.end_by_core(*id);
        }
    }
    for id in &all {
        let job = &world.state.jobs[id];
        prop_assert!(
            job.state.is_ended()
                || job.reason == Reason::BadConstraints
                || job.reason == Reason::PartitionConfig,
            "{} is left {:?} {:?}",
            id,
            job.state,
            job.reason
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(200)))]

    #[test]
    fn room_is_made_soundly(
        flags in 0u32..128,
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        soundly(flags, &ops)?;
    }
}
