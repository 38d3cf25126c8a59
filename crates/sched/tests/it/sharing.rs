//! CPUs that several jobs have at once (`OverSubscribe`), and nodes for one user alone.

use crate::world::{World, cluster, job, nodes, partition};
use muster_model::config::OverSubscribe;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::mcs::{MCS_LABEL, McsConfig, McsKind, McsSelect};
use muster_model::spec::{JobSpec, Sharing};
use proptest::prelude::*;

fn sharing(count: u32, cpus: u32, how: OverSubscribe) -> World {
    let mut config = cluster(nodes(count, cpus));
    config.partitions[0].over_subscribe = how;
    let other = partition("q", &config.nodes);
    config.partitions.push(other);
    World::new(config)
}

fn asks(sharing: Sharing, spec: JobSpec) -> JobSpec {
    let mut spec = spec;
    spec.ask.sharing = sharing;
    spec
}

fn cpus_of(world: &World, id: JobId) -> Vec<u32> {
    let job = &world.state.jobs[&id];
    let shares = job.held().map(|(share, _)| share);
    shares.flat_map(|share| share.cpus.iter()).collect()
}

#[test]
fn force_gives_each_cpu_to_so_many() {
    let mut world = sharing(1, 2, OverSubscribe::Force(2));
    let ids: Vec<JobId> = (0..5).map(|_| world.submit(job(1, 60))).collect();
    world.pass_by_core();
    let places: Vec<Vec<u32>> = ids.iter().map(|id| cpus_of(&world, *id)).collect();
    // Free CPUs first, then those that the fewest have.
    assert_eq!(places, [vec![0], vec![1], vec![0], vec![1], vec![]]);
    // Another partition's job does not come in between, and --exclusive is of no use.
    let mut other = job(1, 60);
    other.partitions = vec!["q".into()];
    world.submit(other);
    world.submit(asks(Sharing::Exclusive, job(1, 60)));
    assert_eq!(world.pass_by_core(), []);
    world.end(ids[0]);
    assert_eq!(world.pass_by_core(), [ids[4]]);
    assert_eq!(cpus_of(&world, ids[4]), [0]);
    world.state.check_invariants().unwrap();
}

#[test]
fn yes_shares_with_those_who_ask_for_it() {
    let mut world = sharing(1, 2, OverSubscribe::Yes(2));
    let own = world.submit(job(1, 60));
    let shared: Vec<JobId> = (0..3)
        .map(|_| world.submit(asks(Sharing::Oversubscribe, job(1, 60))))
        .collect();
    world.pass_by_core();
    assert_eq!(cpus_of(&world, own), [0]);
    let places: Vec<Vec<u32>> = shared.iter().map(|id| cpus_of(&world, *id)).collect();
    assert_eq!(places, [vec![1], vec![1], vec![]]);
    world.end(own);
    assert_eq!(world.pass_by_core(), [shared[2]]);
}

#[test]
fn a_user_has_nodes_alone() {
    let mut world = sharing(2, 2, OverSubscribe::No);
    let of = |uid: u32, spec: JobSpec| {
        let mut spec = spec;
        spec.owner.uid = uid;
        spec
    };
    let mine = world.submit(of(1, asks(Sharing::ExclusiveUser, job(1, 60))));
    let theirs = world.submit(of(2, job(2, 60)));
    let more = world.submit(of(1, job(1, 60)));
    world.pass_by_core();
    assert_eq!(world.place(mine), "n0:1");
    assert_eq!(world.place(theirs), "n1:2");
    assert_eq!(world.place(more), "n0:1");
    world.end(more);
    let late = world.submit(of(2, job(1, 60)));
    assert_eq!(world.pass_by_core(), []);
    world.end(mine);
    assert_eq!(world.pass_by_core(), [late]);
    // Where somebody else is there is no room for one who wants the node alone.
    world.end(theirs);
    let again = world.submit(of(1, asks(Sharing::ExclusiveUser, job(1, 60))));
    world.pass_by_core();
    assert_eq!(world.place(again), "n1:1");
    world.state.check_invariants().unwrap();
}

/// A cluster of two nodes whose jobs of different users are kept apart.
fn labelled(select: McsSelect) -> World {
    let mut config = cluster(nodes(2, 4));
    config.mcs = Some(McsConfig {
        select,
        ..McsConfig::new(McsKind::User)
    });
    World::new(config)
}

fn with_label(label: &str, sharing: Sharing, tasks: u32) -> JobSpec {
    let mut spec = asks(sharing, job(tasks, 60));
    spec.owner.user = label.to_owned();
    spec.shown = vec![(MCS_LABEL.to_owned(), label.to_owned())];
    spec
}

#[test]
fn jobs_of_different_labels_have_different_nodes() {
    let mut world = labelled(McsSelect::OnDemand);
    let plain = world.submit(job(1, 60));
    let first = world.submit(with_label("a", Sharing::ExclusiveMcs, 1));
    let same = world.submit(with_label("a", Sharing::ExclusiveMcs, 1));
    let other = world.submit(with_label("b", Sharing::ExclusiveMcs, 1));
    // A label alone does not keep nodes for it.
    let unkept = world.submit(with_label("a", Sharing::Default, 1));
    world.pass_by_core();
    assert_eq!(world.place(plain), "n0:1");
    assert_eq!(world.place(first), "n1:1");
    assert_eq!(world.place(same), "n1:1");
    assert_eq!(world.place(unkept), "n0:1");
    assert_eq!(world.state.jobs[&other].state, JobState::Pending);
    assert_eq!(world.state.nodes[1].mcs_label.as_deref(), Some("a"));
    world.end(first);
    assert_eq!(world.pass_by_core(), []);
    world.end(same);
    assert_eq!(world.state.nodes[1].mcs_label, None);
    assert_eq!(world.pass_by_core(), [other]);
    world.state.check_invariants().unwrap();
}

#[test]
fn all_jobs_with_a_label_or_none_of_them_have_nodes_of_their_own() {
    let mut world = labelled(McsSelect::All);
    let first = world.submit(with_label("a", Sharing::Default, 1));
    let other = world.submit(with_label("b", Sharing::Default, 1));
    let third = world.submit(with_label("c", Sharing::Default, 1));
    assert_eq!(world.pass_by_core(), [first, other]);
    world.end(first);
    assert_eq!(world.pass_by_core(), [third]);
    let mut world = labelled(McsSelect::Never);
    let first = world.submit(with_label("a", Sharing::ExclusiveMcs, 1));
    let other = world.submit(with_label("b", Sharing::Default, 1));
    world.pass_by_core();
    assert_eq!(
        (world.place(first), world.place(other)),
        ("n0:1".into(), "n0:1".into())
    );
    assert_eq!(world.state.nodes[0].mcs_label, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(100)))]

    /// The core starts all that is planned on nodes kept for labels, and a new scheduler plans the same.
    #[test]
    fn labels_are_sound(
        ops in proptest::collection::vec((0u32..6, 1u32..6, 0usize..20), 1..50),
    ) {
        let mut world = labelled(McsSelect::OnDemand);
        let mut all: Vec<JobId> = Vec::new();
        for (kind, tasks, which) in ops {
            let label = ["a", "b"][tasks as usize % 2];
            match kind {
                0 => all.push(world.submit(with_label(label, Sharing::Default, tasks))),
                1 => all.push(world.submit(with_label(label, Sharing::Exclusive, 1))),
                2..5 => all.push(world.submit(with_label(label, Sharing::ExclusiveMcs, tasks))),
                _ => {}
            }
            let running: Vec<JobId> = all.iter().filter(|id| world.state.jobs[id].state == JobState::Running).copied().collect();
            if which % 3 == 0 && !running.is_empty() {
                world.end(running[which % running.len()]);
            }
            let fresh = muster_sched::Scheduler::new(&world.state).plan(&world.state, world.now);
            let plan = world.sched.plan(&world.state, world.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            world.pass_by_core();
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(100)))]

    /// The core starts all that is planned, counts are kept, and a new scheduler plans the same.
    #[test]
    fn sharing_is_sound(
        most in 1u32..4,
        force in any::<bool>(),
        ops in proptest::collection::vec((0u32..6, 1u32..6, 0usize..20), 1..50),
    ) {
        let how = if force { OverSubscribe::Force(most) } else { OverSubscribe::Yes(most) };
        let mut world = sharing(2, 3, how);
        let mut all: Vec<JobId> = Vec::new();
        for (kind, tasks, which) in ops {
            let mut spec = job(tasks, 60);
            spec.owner.uid = 1 + tasks % 2;
            match kind {
                0 => spec.partitions = vec!["q".into()],
                1 => spec.ask.sharing = Sharing::ExclusiveUser,
                2 => spec.ask.sharing = Sharing::Exclusive,
                _ => spec.ask.sharing = Sharing::Oversubscribe,
            }
            if kind < 5 {
                all.push(world.submit(spec));
            }
            let running: Vec<JobId> = all.iter().filter(|id| world.state.jobs[id].state == JobState::Running).copied().collect();
            if which % 3 == 0 && !running.is_empty() {
                world.end(running[which % running.len()]);
            }
            let fresh = muster_sched::Scheduler::new(&world.state).plan(&world.state, world.now);
            let plan = world.sched.plan(&world.state, world.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            world.pass_by_core();
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
        }
    }
}
