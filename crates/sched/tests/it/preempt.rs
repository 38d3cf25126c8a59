//! Jobs that make room: who is chosen, what is kept for whom, and that nothing is given twice meanwhile.

mod anew;
mod reclaimed;
mod soundness;

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::event::{AccountsChange, Event};
use muster_core::policy::access::privacy::View;
use muster_model::accounts::Qos;
use muster_model::command::{Command, NodeCommand, Plan, UserCommand};
use muster_model::config::{ClusterConfig, OverSubscribe, PartitionState};
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::order_config::Multifactor;
use muster_model::preemption::{PreemptMode, PreemptType};
use muster_model::spec::{JobSpec, MemoryAsk};

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

/// Jobs of a partition that had all that they may have of a node still made others leave it, and kept the nodes idle.
#[test]
fn nobody_makes_room_that_its_partition_may_not_have() {
    for by_socket in [false, true] {
        let mut config = config(1, 8, PreemptMode::Cancel);
        config.nodes[0].sockets = 2;
        config.nodes[0].cores_per_socket = 4;
        let hi = config.partitions.iter_mut().find(|p| p.name == "hi");
        let hi = hi.expect("it is there");
        match by_socket {
            true => hi.max_cpus_per_socket = Some(2),
            false => hi.max_cpus_per_node = Some(4),
        }
        let mut world = World::new(config);
        let low: Vec<JobId> = (0..2).map(|_| world.submit(job(4, 60))).collect();
        world.pass_by_core();
        let urgent: Vec<JobId> = (0..2)
            .map(|_| world.submit(within("hi", job(4, 60))))
            .collect();
        // For one of both there is room.
        let (victims, _) = world.preempting_pass();
        let all: Vec<u64> = low.iter().map(|id| id.0).collect();
        match by_socket {
            // On two CPUs of each socket, which both have to leave.
            true => assert_eq!(victims.len(), 2),
            false => assert_eq!(victims.len(), 1),
        }
        assert!(victims.iter().all(|id| all.contains(id)));
        for id in &victims {
            world.clean(JobId(*id));
        }
        assert_eq!(world.preempting_pass(), (vec![], vec![urgent[0].0]));
        if by_socket {
            let back = world.submit(job(4, 60));
            assert_eq!(world.preempting_pass(), (vec![], vec![back.0]));
        }
        assert_eq!(world.preempting_pass(), (vec![], vec![]));
        world.end(urgent[0]);
        assert_eq!(world.preempting_pass().1, [urgent[1].0]);
    }
}

/// What another partition's job waits for was taken off what a partition may have of a node.
#[test]
fn room_that_another_partition_makes_takes_nothing_from_a_limit() {
    let mut config = config(1, 8, PreemptMode::Cancel);
    let mid = config.partitions.iter_mut().find(|p| p.name == "mid");
    mid.expect("it is there").max_cpus_per_node = Some(4);
    let mut world = World::new(config);
    let low: Vec<JobId> = (0..2).map(|_| world.submit(job(4, 60))).collect();
    world.pass_by_core();
    let urgent = ["hi", "mid"].map(|part| world.submit(within(part, job(4, 60))));
    let (mut victims, _) = world.preempting_pass();
    victims.sort_unstable();
    assert_eq!(victims, [low[0].0, low[1].0]);
    for id in low {
        world.clean(id);
    }
    let (_, mut started) = world.preempting_pass();
    started.sort_unstable();
    assert_eq!(started, urgent.map(|id| id.0));
}

/// CPUs that another job shares counted as free once one of both was to leave.
#[test]
fn cpus_that_another_job_still_shares_are_not_free() {
    let mut config = config(1, 8, PreemptMode::Cancel);
    config.nodes[0].sockets = 2;
    config.nodes[0].cores_per_socket = 4;
    config.partitions[0].over_subscribe = OverSubscribe::Force(2);
    let hi = config.partitions.iter_mut().find(|p| p.name == "hi");
    hi.expect("it is there").max_cpus_per_socket = Some(2);
    let mut world = World::new(config);
    let low: Vec<JobId> = (0..3).map(|_| world.submit(job(4, 60))).collect();
    world.pass_by_core();
    let is_running = |id: &JobId| world.state_of(*id).0 == JobState::Running;
    assert!(low.iter().all(is_running));
    let urgent = world.submit(within("hi", job(4, 60)));
    // It needs two CPUs of each socket, and one socket's have two jobs.
    let (victims, _) = world.preempting_pass();
    assert_eq!(victims.len(), 3);
    for id in low {
        world.clean(id);
    }
    assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
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
    let told =
        muster_sched::explain(&world.state, low[0], world.now, &View::all(&world.state)).unwrap();
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

/// CPUs that a stopped job gets back when another has left counted as room for jobs of its tier: these stopped others for
/// it, and had nothing of it.
#[test]
fn what_the_stopped_go_on_with_is_no_room_for_others() {
    let mut world = tiers(1, 4, PreemptMode::Suspend);
    let middle = world.submit(within("mid", job(2, 60)));
    let beside = world.submit(within("hi", job(2, 60)));
    world.pass_by_core();
    let high = world.submit(within("hi", job(2, 60)));
    assert_eq!(world.preempting_pass(), (vec![middle.0], vec![high.0]));
    world.end_by_core(beside);
    let low = world.submit(job(2, 60));
    assert_eq!(world.preempting_pass(), (vec![], vec![low.0]));
    world.ending(high);
    let other = world.submit(within("mid", job(4, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.clean(high);
    assert_eq!(world.state_of(middle).0, JobState::Running);
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    world.end_by_core(middle);
    assert_eq!(world.preempting_pass(), (vec![low.0], vec![other.0]));
}

/// A job of a QOS that may preempt the one in the middle only: if that is stopped, it starts on the CPUs of the lowest, which
/// stays stopped; if that ends, the lowest goes on before it.
#[test]
fn who_runs_in_place_of_another_is_stopped_but_not_ended_for_a_third() {
    for mode in ["suspend", "cancel"] {
        let mut config = cluster(nodes(1, 4));
        config.order.preemption.kind = PreemptType::Qos;
        config.order.preemption.mode = PreemptMode::Suspend;
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
            qos("low", &[], None),
            qos("mid", &["low"], Some(mode)),
            qos("high", &["mid"], None),
        ];
        let at = world.now;
        world.apply(&Event::AccountsChanged {
            changes,
            at,
            log: Vec::new(),
        });
        let of = |name: &str| JobSpec {
            qos: Some(name.into()),
            ..job(4, 60)
        };
        let low = world.submit(of("low"));
        world.pass_by_core();
        let middle = world.submit(of("mid"));
        assert_eq!(world.preempting_pass(), (vec![low.0], vec![middle.0]));
        let high = world.submit(of("high"));
        let stops = mode == "suspend";
        let expected = match stops {
            true => (vec![middle.0], vec![high.0]),
            false => (vec![], vec![]),
        };
        assert_eq!(world.preempting_pass(), expected);
        world.end_by_core(if stops { high } else { middle });
        assert_eq!(world.state_of(low).0, JobState::Running);
        world.preempting_pass();
        world.end_by_core(low);
        let next = if stops { middle } else { high };
        world.preempting_pass();
        assert_eq!(world.state_of(next).0, JobState::Running);
    }
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
    world.apply(&Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    });
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

/// What was stored of a job that waits is its place by its number, which is above all that factors make: each new job went
/// before those of its QOS that ran.
#[test]
fn within_a_qos_factors_say_who_goes_before_whom() {
    let mut config = cluster(nodes(1, 4));
    let mut high = partition("high", &config.nodes);
    high.priority_job_factor = 3;
    config.partitions.push(high);
    config.order.preemption.kind = PreemptType::Qos;
    config.order.preemption.mode = PreemptMode::Requeue;
    config.order.preemption.within = true;
    for (incr_only, calculate_running) in [(false, false), (true, false), (false, true)] {
        config.order.multifactor = Some(Multifactor {
            weight_partition: 3000,
            incr_only,
            calculate_running,
            ..Multifactor::default()
        });
        let mut world = World::new(config.clone());
        world.tick();
        let of = |parts: &[&str], nice: i32| JobSpec {
            partitions: parts.iter().map(|name| (*name).to_owned()).collect(),
            nice,
            ..job(4, 60)
        };
        // As submissions are stored: 4,294,901,758 and so on.
        let usual = |world: &mut World, spec| world.submit_with(spec, u32::MAX - 65_537);
        let runs = usual(&mut world, of(&["p"], 0));
        assert_eq!(world.preempting_pass().1, [runs.0]);
        assert_eq!(world.state.jobs[&runs].priority, 1000);
        for (parts, nice) in [(&["p"][..], 0), (&["p"], 100), (&["high"], 2001)] {
            usual(&mut world, of(parts, nice));
            assert_eq!(
                world.preempting_pass(),
                (vec![], vec![]),
                "{parts:?} {nice}"
            );
        }
        // Another partition that it names does not count in this one, where it is tried first.
        usual(&mut world, of(&["p", "high"], 2001));
        assert_eq!(world.preempting_pass(), (vec![], vec![]));
        let higher = usual(&mut world, of(&["high"], 1999));
        assert_eq!(world.preempting_pass().0, [runs.0]);
        world.clean(runs);
        assert_eq!(world.preempting_pass().1, [higher.0]);
        assert_eq!(world.state.jobs[&higher].priority, 1001);
    }
}

/// A job that runs had the priority of the best partition that it names, whichever it runs in.
#[test]
fn a_job_that_starts_has_the_priority_of_its_partition() {
    let mut config = cluster(nodes(1, 4));
    let mut high = partition("high", &config.nodes);
    high.priority_job_factor = 3;
    high.state = PartitionState::Down;
    config.partitions.push(high);
    config.order.multifactor = Some(Multifactor {
        weight_partition: 3000,
        ..Multifactor::default()
    });
    let mut world = World::new(config);
    world.tick();
    let both = JobSpec {
        partitions: vec!["high".into(), "p".into()],
        ..job(4, 60)
    };
    let id = world.submit(both);
    assert_eq!(world.preempting_pass().1, [id.0]);
    let started = &world.state.jobs[&id];
    assert_eq!((started.partition.as_str(), started.priority), ("p", 1000));
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
        world.apply(&Event::AccountsChanged {
            changes,
            at,
            log: Vec::new(),
        });
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

/// A reservation keeps what there will be when others have ended: what is free until then and left over is counted, too.
#[test]
fn what_a_reservation_leaves_counts_beside_what_is_made_free() {
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

/// `scontrol update PartitionName=p PreemptMode=` was refused.
#[test]
fn a_partition_changed_at_run_time_preempts_as_it_then_says() {
    let mut world = tiers(1, 4, PreemptMode::Cancel);
    let change = |world: &mut World, mode: &str| {
        world.admin(UserCommand::UpdatePartition {
            name: "p".into(),
            pairs: vec![("PreemptMode".into(), mode.into())],
            read: Vec::new(),
        });
    };
    let low = world.submit(job(4, 60));
    world.pass_by_core();
    change(&mut world, "off");
    world.submit(within("hi", job(4, 60)));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    change(&mut world, "requeue");
    assert_eq!(world.preempting_pass().0, [low.0]);
    world.clean(low);
    assert_eq!(world.state_of(low), (JobState::Pending, false));
}
