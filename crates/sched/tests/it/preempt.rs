//! Jobs that make room: who is chosen, what is kept for whom, and that nothing is given twice meanwhile.

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::accounts::{AccountsChange, Qos};
use muster_core::command::{Command, NodeCommand, Plan};
use muster_core::config::ClusterConfig;
use muster_core::event::Event;
use muster_core::ids::JobId;
use muster_core::job::{Job, JobState, Reason};
use muster_core::preemption::{PreemptMode, PreemptType};
use muster_core::spec::{JobSpec, MemoryAsk};
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
    // Nodes are kept for who waits before it.
    let tier = |j: &Job| {
        let part = state.partitions.iter().find(|p| p.name == j.partition);
        part.map(|p| p.priority_tier)
    };
    let place = |j: &Job| (Reverse(tier(j)), j.id);
    let by = place(&state.jobs[&first.by]);
    let waits = |j: &Job| j.is_startable() && place(j) < by;
    if busy
        || others
        || state.jobs.values().any(waits)
        || plan.preemptions.iter().any(|p| p.by != first.by)
    {
        return Ok(());
    }
    let waiting = &state.jobs[&first.by];
    let memory = state.config.as_ref().unwrap().memory_is_consumable;
    let stops = state.preemption().unwrap().mode == PreemptMode::Suspend;
    let victims: Vec<JobId> = plan.preemptions.iter().map(|p| p.victim).collect();
    let without = |gone: &[JobId]| {
        let mut free: Vec<(u32, u64)> = state
            .nodes
            .iter()
            .map(|n| (n.free_cpus.len(), n.unheld_mib()))
            .collect();
        for job in gone.iter().map(|id| &state.jobs[id]) {
            for (share, _) in job.held() {
                let node = &mut free[share.node.0 as usize];
                node.0 += share.cpus.len();
                node.1 += if stops { 0 } else { share.memory_mib };
            }
        }
        fits(&free, &waiting.spec, memory)
    };
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
    let mut config = config(3, 4, mode);
    config.memory_is_consumable = flags & 4 != 0;
    config.backfill = flags & 8 == 0;
    if flags & 16 != 0 {
        config.partitions[0].grace_time_s = 20;
    }
    if flags & 32 != 0 {
        config.order.preemption.exempt_s = 30;
    }
    let mut world = World::new(config);
    let mut all: Vec<JobId> = Vec::new();
    for op in ops {
        match op {
            Op::Submit {
                part,
                tasks,
                nodes,
                mib,
            } => {
                let mut spec = within(
                    ["p", "mid", "hi"][*part],
                    wide(*nodes, (*tasks).max(*nodes), 60),
                );
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
                let fresh =
                    muster_sched::Scheduler::new(&world.state).plan(&world.state, world.now);
                prop_assert_eq!(&plan.starts, &fresh.starts);
                prop_assert_eq!(&plan.preemptions, &fresh.preemptions);
                no_more_than_needed(&world, &plan)?;
                world.carry_out(plan);
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
        flags in 0u32..64,
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        soundly(flags, &ops)?;
    }
}
