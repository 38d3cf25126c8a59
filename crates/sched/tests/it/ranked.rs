//! `priority/multifactor`: who comes first, and what working priorities out anew costs. The core keeps accounts and use
//! and commits the plans.

use crate::world::{World, cluster, job, nodes, partition};
use muster_core::event::{AccountsChange, Event, JobChange};
use muster_core::state::Scale;
use muster_model::command::{AccountsAsk, AccountsEdit, JobTarget, QosAsk, TermsAsk, UserCommand};
use muster_model::config::PartitionState;
use muster_model::ids::JobId;
use muster_model::order_config::Multifactor;
use muster_model::spec::{JobSpec, Owner};
use muster_sched::Scheduler;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn settings() -> Multifactor {
    Multifactor {
        max_age_s: 1000,
        calc_period_s: 60,
        half_life_s: 3600,
        fair_tree: true,
        dampening: 1,
        ..Multifactor::default()
    }
}

fn world(cpus: u32, settings: Multifactor) -> World {
    let mut config = cluster(nodes(1, cpus));
    config.order.multifactor = Some(settings);
    let mut world = World::new(config);
    world.tick();
    world
}

fn of(user: &str, mut spec: JobSpec) -> JobSpec {
    spec.owner = Owner {
        user: user.into(),
        ..Owner::default()
    };
    spec
}

/// What would start next, one after the other, if there were room for one at a time.
fn order(world: &mut World) -> Vec<JobId> {
    let mut out = Vec::new();
    loop {
        let started = world.pass_by_core();
        if started.is_empty() {
            return out;
        }
        out.extend(&started);
        for id in started {
            world.end(id);
        }
    }
}

#[test]
fn age_counts_until_it_is_full() {
    let weights = Multifactor {
        weight_age: 1000,
        ..settings()
    };
    let mut w = world(1, weights);
    let running = w.submit(job(1, 100));
    assert_eq!(w.pass_by_core(), [running]);
    // What it had when it started stays with it, as squeue and sacct show it.
    assert_eq!(w.state.jobs[&running].priority, 1);
    let a = w.submit(job(1, 10));
    w.now = w.now.plus_s(100);
    let mut preferred = job(1, 10);
    preferred.nice = -50;
    let b = w.submit(preferred);
    w.now = w.now.plus_s(60);
    w.tick();
    // A has waited a tenth of the full age longer, which is 100; B is 50 ahead by its nice value.
    let priorities = |w: &World| -> Vec<u32> {
        let scale = Scale::new(&w.state);
        [a, b]
            .iter()
            .map(|id| w.state.priority_of(scale.as_ref(), &w.state.jobs[id]))
            .collect()
    };
    assert_eq!(priorities(&w), [160, 110]);
    w.now = w.now.plus_s(2000);
    w.tick();
    assert_eq!(priorities(&w), [1000, 1050]);
    w.end(running);
    assert_eq!(order(&mut w), [b, a]);
}

/// Priorities are at least 1, which is what all of these have, or had before they waited.
#[test]
fn a_job_on_top_starts_first_where_priorities_are_low() {
    for weight_age in [0, 1000] {
        let weights = Multifactor {
            weight_age,
            ..settings()
        };
        let mut w = world(1, weights);
        let running = w.submit(job(1, 100));
        assert_eq!(w.pass_by_core(), [running]);
        let older = w.submit(job(1, 10));
        w.now = w.now.plus_s(60);
        w.tick();
        let old = w.submit(job(1, 10));
        w.now = w.now.plus_s(300);
        w.tick();
        let fresh = w.submit(job(1, 10));
        let mut hurried = job(1, 10);
        hurried.nice = 500;
        let hurried = w.submit(hurried);
        for id in [fresh, hurried] {
            let target = JobTarget {
                job: id,
                tasks: None,
                component: None,
            };
            w.admin(UserCommand::Top { target });
        }
        w.now = w.now.plus_s(120);
        w.tick();
        w.end(running);
        assert_eq!(order(&mut w), [hurried, fresh, older, old]);
    }
}

/// `CALCULATE_RUNNING`: a job that runs has the priority that it would have if it waited.
#[test]
fn jobs_that_run_may_be_worked_out_too() {
    for calculate_running in [false, true] {
        let weights = Multifactor {
            weight_age: 1000,
            calculate_running,
            ..settings()
        };
        let mut w = world(1, weights);
        let running = w.submit(job(1, 100));
        assert_eq!(w.pass_by_core(), [running]);
        w.now = w.now.plus_s(500);
        w.tick();
        let scale = Scale::new(&w.state);
        let priority = w.state.priority_of(scale.as_ref(), &w.state.jobs[&running]);
        assert_eq!(priority, if calculate_running { 500 } else { 1 });
    }
}

#[test]
fn who_used_less_comes_first() {
    let weights = Multifactor {
        weight_fair_share: 1000,
        ..settings()
    };
    let mut w = world(1, weights);
    let first = w.submit(of("ann", job(1, 100)));
    let second = w.submit(of("ann", job(1, 100)));
    let third = w.submit(of("bob", job(1, 100)));
    assert_eq!(w.pass_by_core(), [first]);
    w.now = w.now.plus_s(600);
    w.end(first);
    w.tick();
    assert_eq!(order(&mut w), [third, second]);
}

/// `INCR_ONLY`: what is used lowers the priority of jobs that come later, not of those that wait.
#[test]
fn priorities_may_only_rise() {
    for incr_only in [false, true] {
        let weights = Multifactor {
            weight_fair_share: 1000,
            weight_age: 1000,
            incr_only,
            ..settings()
        };
        let mut w = world(1, weights);
        let running = w.submit(of("ann", job(1, 100)));
        assert_eq!(w.pass_by_core(), [running]);
        let early = w.submit(of("ann", job(1, 100)));
        // Another user with whom to share: ann has used more than her part.
        let other = w.submit(of("bob", job(1, 100)));
        let shown = |w: &World, id: JobId| {
            let scale = Scale::new(&w.state);
            w.state.priority_of(scale.as_ref(), &w.state.jobs[&id])
        };
        assert_eq!((shown(&w, early), shown(&w, other)), (1000, 1000));
        w.now = w.now.plus_s(200);
        w.tick();
        // Both have aged by a fifth; what ann uses takes half of hers.
        let expected = if incr_only { 1000 } else { 700 };
        assert_eq!((shown(&w, early), shown(&w, other)), (expected, 1200));
        let late = w.submit(of("ann", job(1, 100)));
        assert_eq!(shown(&w, late), 500, "it never had more");
        w.now = w.now.plus_s(600);
        w.tick();
        let both = (shown(&w, early), shown(&w, late));
        assert_eq!(both, (1300, 1100), "with age it rises beyond what it had");
        // What its owner changes counts anew.
        let mut nicer = (*w.state.jobs[&early].spec).clone();
        nicer.nice = 900;
        let change = JobChange::Spec(Arc::new(nicer));
        w.state.apply(&Event::JobChanged {
            id: early,
            change,
            at: w.now,
        });
        assert_eq!(shown(&w, early), 400);
    }
}

#[test]
fn qos_and_partition_count() {
    let weights = Multifactor {
        weight_qos: 1000,
        ..settings()
    };
    let mut w = world(1, weights);
    let qos = AccountsEdit {
        cluster: String::new(),
        names: vec!["high".into()],
        ask: AccountsAsk::AddQos(QosAsk {
            priority: Some(10),
            ..QosAsk::default()
        }),
    };
    w.admin(UserCommand::EditAccounts(Box::new(qos)));
    let plain = w.submit(job(1, 10));
    let mut urgent = job(1, 10);
    urgent.qos = Some("high".into());
    let urgent = w.submit(urgent);
    assert_eq!(order(&mut w), [urgent, plain]);
}

#[test]
fn shares_are_the_tree_of_accounts() {
    let weights = Multifactor {
        weight_fair_share: 1000,
        ..settings()
    };
    let mut w = world(1, weights);
    let edit = |names: &[&str], ask| {
        UserCommand::EditAccounts(Box::new(AccountsEdit {
            cluster: String::new(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ask,
        }))
    };
    for (name, shares) in [("big", 9), ("small", 1)] {
        w.admin(edit(
            &[name],
            AccountsAsk::AddAccounts {
                parent: String::new(),
                description: String::new(),
                organization: String::new(),
                terms: TermsAsk {
                    shares: Some(Some(shares)),
                    ..TermsAsk::default()
                },
            },
        ));
    }
    for (user, account) in [("ann", "big"), ("bob", "small")] {
        w.admin(edit(
            &[user],
            AccountsAsk::AddUsers {
                accounts: vec![account.into()],
                default_account: String::new(),
                admin_level: String::new(),
                terms: TermsAsk::default(),
                wckeys: Default::default(),
                partitions: Vec::new(),
            },
        ));
    }
    let spec = |user: &str, account: &str| {
        let mut spec = of(user, job(1, 10));
        spec.account = Some(account.into());
        spec
    };
    // Both have used the same; the bigger share comes first.
    for (user, account) in [("ann", "big"), ("bob", "small")] {
        let id = w.submit(spec(user, account));
        assert_eq!(w.pass_by_core(), [id]);
        w.now = w.now.plus_s(100);
        w.end(id);
    }
    w.tick();
    let bob = w.submit(spec("bob", "small"));
    let ann = w.submit(spec("ann", "big"));
    assert_eq!(order(&mut w), [ann, bob]);
}

#[test]
fn working_out_anew_moves_only_what_changed() {
    let weights = Multifactor {
        weight_age: 1000,
        weight_fair_share: 100,
        ..settings()
    };
    let mut w = world(4, weights);
    let running = w.submit(job(4, 1000));
    assert_eq!(w.pass_by_core(), [running]);
    for i in 0..40u32 {
        w.now = w.now.plus_s(1);
        for _ in 0..25 {
            w.submit(of(&format!("u{}", i % 8), job(1 + i % 4, 10 + i)));
        }
    }
    w.pass_by_core();
    // The last jobs came after priorities were worked out and have an age only now.
    for _ in 0..2 {
        w.now = w.now.plus_s(61);
        w.tick();
        w.pass_by_core();
    }
    w.now = w.now.plus_s(61);
    w.tick();
    assert_eq!(w.pass_by_core(), []);
    let cost = w.sched.cost();
    assert_eq!((cost.shapes_visited, cost.jobs_visited), (0, 0), "{cost:?}");
}

/// So many jobs of a user gain age at a time.
fn limit_aging(w: &mut World, most: u32) {
    let mut config = (**w.state.config.as_ref().expect("a configuration")).clone();
    config.order.enforce_limits = true;
    let at = w.now;
    w.apply(&Event::Configured {
        config: Arc::new(config),
        at,
        partitions: None,
    });
    let mut normal = w.state.accounts.qos("normal").expect("always there");
    normal.limits.max_jobs_accrue = Some(most);
    let changes = vec![AccountsChange::Qos(normal)];
    w.apply(&Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    });
}

/// Of two that wait one gains age, and the other, which came first in nothing but age, stays behind a later one.
#[test]
fn who_may_not_gain_age_is_passed() {
    for (limit, expected) in [(None, [0, 1, 2]), (Some(1), [0, 2, 1])] {
        let weights = Multifactor {
            weight_age: 1000,
            ..settings()
        };
        let mut w = world(1, weights);
        if let Some(most) = limit {
            limit_aging(&mut w, most);
        }
        let running = w.submit(of("v", job(1, 100)));
        assert_eq!(w.pass_by_core(), [running]);
        let mut jobs = vec![w.submit(of("u", job(1, 10))), w.submit(of("u", job(1, 10)))];
        w.now = w.now.plus_s(100);
        w.tick();
        jobs.push(w.submit(of("v", job(1, 10))));
        w.now = w.now.plus_s(100);
        w.tick();
        w.end(running);
        // All at once, before anybody's turn comes.
        assert_eq!(order(&mut w), expected.map(|n: usize| jobs[n]), "{limit:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(60)))]

    /// Jobs start in order of the priorities that the state tells, and a scheduler that followed events plans what a
    /// new one plans.
    #[test]
    fn the_order_is_that_of_the_priorities(
        ops in proptest::collection::vec((0u8..8, 0u32..4, 0i32..3, 1u64..200), 1..40),
        weights in (0u32..3, 0u32..3),
        incr_only in any::<bool>(),
        aging in proptest::option::of(0u32..4),
    ) {
        let settings = Multifactor {
            weight_age: weights.0 * 100_000,
            weight_fair_share: weights.1 * 50_000,
            weight_job_size: 1000,
            max_age_s: 300,
            incr_only,
            ..settings()
        };
        let mut w = world(1, settings);
        let mut had: BTreeMap<JobId, u32> = BTreeMap::new();
        if let Some(most) = aging {
            limit_aging(&mut w, most);
        }
        let mut running: Option<JobId> = None;
        for (kind, user, nice, seconds) in ops {
            match kind {
                0..=3 => {
                    let mut spec = of(&format!("u{user}"), job(1, 10 + user));
                    spec.nice = nice * 1000;
                    w.submit(spec);
                }
                4 | 5 => {
                    w.now = w.now.plus_s(seconds);
                    w.tick();
                }
                6 => {
                    if let Some(id) = w.state.pending.first().copied() {
                        w.change(id, JobChange::Priority(nice as u32 * 70_000 + 1));
                    }
                }
                _ => {
                    if let Some(id) = running.take().filter(|id| !w.state.jobs[id].state.is_ended()) {
                        w.end(id);
                    }
                }
            }
            let scale = Scale::new(&w.state);
            let of = |id: &JobId| w.state.priority_of(scale.as_ref(), &w.state.jobs[id]);
            let most = w.state.pending.iter().map(&of).max();
            for id in w.state.pending.iter().filter(|_| incr_only) {
                let changed = w.state.jobs[id].priority_fixed;
                let before = had.insert(*id, of(id)).filter(|_| !changed);
                prop_assert!(before <= Some(of(id)), "the priority of {} falls", id);
            }
            let plan = w.sched.plan(&w.state, w.now);
            let fresh = Scheduler::new(&w.state).plan(&w.state, w.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            if let Some(start) = plan.starts.first() {
                // Ranks are exact, what is shown is rounded.
                prop_assert!(of(&start.job) + 1 >= most.unwrap_or(0), "{} starts before another", start.job);
                running = Some(start.job);
            }
            w.commit(&plan);
        }
    }
}

/// Where priorities do not go down, the best of the partitions that a job names gave it its place in all of them.
#[test]
fn priorities_that_only_rise_are_those_of_each_partition() {
    for incr_only in [false, true] {
        let mut config = cluster(nodes(1, 1));
        let mut high = partition("high", &config.nodes);
        high.priority_job_factor = 4;
        high.state = PartitionState::Down;
        config.partitions.push(high);
        config.order.multifactor = Some(Multifactor {
            weight_partition: 4000,
            weight_age: 1000,
            incr_only,
            ..settings()
        });
        let mut w = World::new(config);
        w.tick();
        let of = |parts: &[&str], nice: i32| JobSpec {
            partitions: parts.iter().map(|name| (*name).to_owned()).collect(),
            nice,
            ..job(1, 10)
        };
        let running = w.submit(of(&["p"], 0));
        assert_eq!(w.pass_by_core(), [running]);
        let both = w.submit(of(&["high", "p"], 10));
        let plain = w.submit(of(&["p"], 0));
        let nicer = w.submit(of(&["p"], 20));
        // Also when they are worked out anew.
        w.now = w.now.plus_s(100);
        w.tick();
        w.end(running);
        assert_eq!(order(&mut w), [plain, both, nicer], "{incr_only}");
        // What was raised stays so, as far below the best as it is.
        let high = w.submit(of(&["high"], 0));
        let scale = Scale::new(&w.state);
        let shown = w.state.priority_of(scale.as_ref(), &w.state.jobs[&high]);
        assert_eq!(shown, 4000);
    }
}
