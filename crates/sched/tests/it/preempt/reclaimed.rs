//! `PreemptParameters=reclaim_licenses`: jobs make room for others that lack licenses.

use super::{config, within};
use crate::world::{World, job, wide};
use muster_core::event::JobChange;
use muster_model::ids::JobId;
use muster_model::job::{Hold, JobState, Reason};
use muster_model::licenses::LicenseCount;
use muster_model::preemption::PreemptMode;
use muster_model::spec::JobSpec;

fn licensed(licenses: &str, spec: JobSpec) -> JobSpec {
    JobSpec {
        licenses: Some(licenses.into()),
        ..spec
    }
}

/// Four licenses; `reclaims` as in `PreemptParameters`.
fn four_licenses(mode: PreemptMode, reclaims: bool) -> World {
    let mut config = config(6, 1, mode);
    config.licenses = vec![LicenseCount::new("foo", 4)];
    config.order.preemption.reclaim_licenses = reclaims;
    World::new(config)
}

#[test]
fn licenses_are_taken_from_the_fewest_where_the_site_says_so() {
    for reclaims in [false, true] {
        let mut world = four_licenses(PreemptMode::Cancel, reclaims);
        let one = world.submit(licensed("foo:1", job(1, 60)));
        let two = world.submit(licensed("foo:2", job(1, 60)));
        let none = world.submit(job(1, 60));
        assert_eq!(world.pass_by_core(), [one, two, none]);
        // One license is free; three nodes are.
        let urgent = world.submit(within("hi", licensed("foo:3", job(1, 60))));
        let (victims, started) = world.preempting_pass();
        assert_eq!(world.reason(urgent), Reason::Licenses);
        if !reclaims {
            assert_eq!((victims, started), (vec![], vec![]));
            continue;
        }
        assert_eq!((victims, started), (vec![two.0], vec![]));
        // Nobody else is taken in the meantime, nor does somebody else get what it needs.
        let small = world.submit(licensed("foo:1", job(1, 5)));
        assert_eq!(world.preempting_pass(), (vec![], vec![]));
        world.clean(two);
        assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
        assert_eq!(world.state_of(one).0, JobState::Running);
        assert_eq!(world.state_of(none).0, JobState::Running);
        assert_eq!(world.reason(small), Reason::Licenses);
    }
}

#[test]
fn nodes_and_licenses_are_made_free_together_or_not_at_all() {
    let mut world = four_licenses(PreemptMode::Requeue, true);
    let fixed = world.submit(within("hi", licensed("foo:2", job(1, 60))));
    let holder = world.submit(licensed("foo:2", job(1, 60)));
    let rest: Vec<JobId> = (0..4).map(|_| world.submit(job(1, 60))).collect();
    assert_eq!(world.pass_by_core().len(), 6);
    // Three cannot be had while the one of its own tier has two.
    let never = world.submit(within("hi", licensed("foo:3", job(1, 60))));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    let (hold, priority) = (Hold::User, 0);
    world.change(never, JobChange::Hold { hold, priority });
    // Two nodes: the one of the holder, and one more.
    let urgent = world.submit(within("hi", licensed("foo:2", wide(2, 2, 60))));
    let (mut victims, started) = world.preempting_pass();
    victims.sort_unstable();
    assert_eq!(started, []);
    assert_eq!(victims.len(), 2);
    assert!(victims.contains(&holder.0), "{victims:?}");
    assert!(rest.iter().any(|id| victims.contains(&id.0)));
    for id in victims {
        world.clean(JobId(id));
    }
    assert_eq!(world.preempting_pass(), (vec![], vec![urgent.0]));
    assert_eq!(world.state_of(fixed).0, JobState::Running);
}

/// Who is only stopped keeps its licenses: stopping it would be in vain.
#[test]
fn nobody_is_stopped_for_licenses() {
    let mut world = four_licenses(PreemptMode::Suspend, true);
    let holder = world.submit(licensed("foo:4", job(1, 60)));
    assert_eq!(world.pass_by_core(), [holder]);
    world.submit(within("hi", licensed("foo:1", job(1, 60))));
    assert_eq!(world.preempting_pass(), (vec![], vec![]));
    assert_eq!(world.state_of(holder).0, JobState::Running);
}
