//! Whatever happens, no more than needed make room, for somebody, and what is there of them is used.

use super::{config, within};
use crate::world::{World, cluster, nodes, wide};
use muster_core::event::{AccountsChange, Event};
use muster_model::accounts::Qos;
use muster_model::command::Plan;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState, NodeShare, Reason};
use muster_model::preemption::{PreemptMode, PreemptType};
use muster_model::spec::{JobSpec, MemoryAsk};
use muster_model::time::Timestamp;
use muster_sched::{HeldNode, Scheduler};
use proptest::prelude::*;
use std::cmp::Reverse;

impl World {
    pub(super) fn end_by_core(&mut self, id: JobId) {
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

/// What a job would find on the nodes now if these were gone: free CPUs and memory without what is reserved for those
/// before it in line. By the simplest means.
fn left_without(world: &World, id: JobId, gone: &[JobId]) -> Vec<(u32, u64)> {
    let state = &world.state;
    let waiting = &state.jobs[&id];
    let stops = state.preemption().unwrap().mode == PreemptMode::Suspend;
    // The job starts when the last of them has used up its grace time.
    let grace_s = match stops {
        true => None,
        false => { gone.iter() }
            .map(|id| state.grace_s(&state.jobs[id]))
            .max(),
    };
    let limit_s = waiting.time_limit.seconds().expect("all have limits");
    let end = world.now.plus_s(limit_s + u64::from(grace_s.unwrap_or(0)));
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
                free.0 += if job.cpus_released_by_preemption {
                    0
                } else {
                    share.cpus.len()
                };
                free.1 += if ended || !stops { share.memory_mib } else { 0 };
            }
        }
        free
    };
    let before = |p: &&HeldNode| {
        let job = &state.jobs[&p.job];
        p.start < end && standing(world, job) < standing(world, waiting)
    };
    let held = world.sched.held_nodes();
    let held: Vec<&HeldNode> = held.iter().filter(before).collect();
    let mut left: Vec<(u32, u64)> = (0..state.nodes.len())
        .map(|node| free_at(node, Timestamp(i64::MIN)))
        .collect();
    for (node, left) in left.iter_mut().enumerate() {
        for reservation in held.iter().filter(|p| p.node as usize == node) {
            let mut then = free_at(node, reservation.start);
            let beside = |p: &&&HeldNode| {
                p.node as usize == node && p.start <= reservation.start && reservation.start < p.end
            };
            for other in held.iter().filter(beside) {
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
    let goes = |j: &Job| j.completing || j.cpus_released_by_preemption || j.grace_end().is_some();
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

/// The jobs that start once those who are leaving have left.
fn starts_when_gone(world: &mut World) -> Vec<JobId> {
    let gone = world.state.jobs.values().filter(|job| job.completing);
    let gone: Vec<JobId> = gone.map(|job| job.id).collect();
    gone.iter().for_each(|id| world.clean(*id));
    let mut started = Vec::new();
    loop {
        let new = world.preempting_pass().1;
        if new.is_empty() {
            return started;
        }
        started.extend(new.into_iter().map(JobId));
    }
}

/// Once those who made room have left, at once or at the end of their grace time, those for whom they did start, or one
/// that comes before them in line.
fn is_used(world: &World, plan: &Plan) -> Result<(), TestCaseError> {
    let state = world.state.clone();
    let mut world = World {
        sched: Scheduler::new(&state),
        state,
        now: world.now,
    };
    let mut started = starts_when_gone(&mut world);
    let in_grace = |job: &&Job| job.state == JobState::Running;
    let jobs = world.state.jobs.values().filter(in_grace);
    if let Some(end) = jobs.filter_map(Job::grace_end).max() {
        world.now = world.now.max(end);
        world.tick();
        started.extend(starts_when_gone(&mut world));
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

/// A job of two nodes that fits beside the reservation of one before it in line makes no room: where room is made, the
/// other's reservation would be brought forward to it, and the job would not start.
#[test]
fn nobody_ends_for_room_that_goes_to_a_reservation() {
    let submit = |part, tasks, nodes| Op::Submit {
        part,
        tasks,
        nodes,
        mib: 0,
    };
    let ops = [
        submit(2, 1, 2),
        submit(0, 1, 1),
        submit(0, 1, 1),
        Op::Pass,
        Op::End(1),
        Op::Clean(0),
        submit(0, 3, 1),
        Op::Later(1),
        submit(0, 1, 1),
        submit(2, 1, 1),
        Op::Pass,
        Op::End(2),
        submit(2, 5, 2),
        submit(1, 1, 2),
        submit(2, 3, 1),
        Op::Clean(0),
        Op::Pass,
    ];
    soundly(0, &ops).expect("every plan is sound");
}

/// A job for which others have a grace time starts after it, and then does not end before a reservation that it would
/// have ended before.
#[test]
fn grace_times_of_others_come_before_the_time_of_a_job() {
    let submit = |part, tasks, nodes| Op::Submit {
        part,
        tasks,
        nodes,
        mib: 0,
    };
    let ops = [
        submit(0, 1, 2),
        submit(0, 1, 1),
        Op::Pass,
        submit(0, 3, 1),
        submit(0, 1, 2),
        submit(1, 5, 2),
        Op::Pass,
        submit(1, 3, 1),
        submit(1, 1, 2),
        submit(0, 1, 1),
        submit(1, 6, 2),
        Op::End(281_836_483_314_873_372),
        Op::End(15_085_626_726_540_151_258),
        Op::End(15_955_085_303_216_479_573),
        submit(2, 2, 1),
        Op::Clean(8_870_018_863_173_625_277),
        submit(1, 3, 2),
        Op::Pass,
        submit(2, 1, 2),
        Op::Clean(7_908_573_833_888_937_671),
        Op::Pass,
    ];
    soundly(16, &ops).expect("every plan is sound");
}

/// A job that stops another on a node from which a third has yet to leave stops it when that one has left: jobs that had
/// stopped go on first, which may bring forward the reservation of one before it in line.
#[test]
fn nobody_stops_before_others_have_left() {
    let submit = |part, tasks, nodes, mib| Op::Submit {
        part,
        tasks,
        nodes,
        mib,
    };
    let ops = [
        submit(0, 1, 2, 0),
        submit(1, 6, 2, 0),
        submit(0, 1, 2, 341),
        Op::Pass,
        submit(0, 2, 1, 178),
        submit(1, 5, 2, 181),
        Op::Later(1),
        submit(2, 5, 2, 14),
        Op::Pass,
        Op::End(1_582_708_860_073_443_152),
        Op::Clean(0),
        Op::Pass,
        submit(1, 1, 2, 475),
        submit(1, 4, 1, 164),
        submit(2, 1, 1, 463),
        Op::Pass,
        Op::End(9_497_944_570_500_631_372),
        Op::Pass,
    ];
    soundly(53, &ops).expect("every plan is sound");
}

/// Of nodes that become free at the same time, a reservation holds those of which least is free already, and jobs that
/// leave count there as they will when they have left.
#[test]
fn reservations_are_as_they_will_be_when_jobs_have_left() {
    let submit = |part, tasks, nodes| Op::Submit {
        part,
        tasks,
        nodes,
        mib: 0,
    };
    let ops = [
        submit(2, 1, 1),
        submit(2, 6, 2),
        submit(0, 2, 1),
        submit(0, 1, 2),
        Op::Pass,
        Op::Later(30),
        submit(2, 1, 1),
        submit(2, 5, 2),
        Op::End(0),
        Op::Pass,
        submit(1, 1, 2),
        Op::Pass,
    ];
    soundly(48, &ops).expect("every plan is sound");
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
    world.apply(&Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    });
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
