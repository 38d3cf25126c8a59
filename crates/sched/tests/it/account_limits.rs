//! Limits of associations and QOS: who waits for them says which, others pass, and what ends lets the next go.

use crate::world::{World, cluster, job, nodes, wide};
use muster_core::event::{AccountsChange, Event};
use muster_core::policy::access::privacy::View;
use muster_core::state::State;
use muster_model::account_limits::{LimitAsk, Limits, Scope};
use muster_model::accounts::{Account, AssociationTerms, Qos, User};
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::licenses::LicenseCount;
use muster_model::node::GresConfig;
use muster_model::refusal::RefusalCode;
use muster_model::spec::GresAsk;
use muster_model::spec::{JobKind, JobSpec, MemoryAsk};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn limits(text: &str, qos: bool) -> Limits {
    let mut limits = Limits::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap();
        limits.set(&LimitAsk::new(key, value), qos).unwrap();
    }
    limits
}

/// Accounts `a` and below it `b`; users `u` and `v` in `b`; QOS `q`.
pub(crate) fn with(a: &str, b: &str, u: &str, q: &str) -> World {
    with_config(cluster(nodes(4, 4)), [a, b, u, q])
}

/// The same in such a cluster.
fn with_config(mut config: ClusterConfig, [a, b, u, q]: [&str; 4]) -> World {
    config.order.enforce_limits = true;
    let mut world = World::new(config);
    let account = |name: &str, parent: &str, text: &str| {
        AccountsChange::Account(Account {
            name: name.into(),
            parent: parent.into(),
            terms: AssociationTerms {
                limits: limits(text, false),
                ..AssociationTerms::default()
            },
            ..Account::default()
        })
    };
    let user = |name: &str, text: &str| {
        let terms = AssociationTerms {
            limits: limits(text, false),
            ..AssociationTerms::default()
        };
        AccountsChange::User(User {
            name: name.into(),
            default_account: "b".into(),
            accounts: BTreeMap::from([("b".to_owned(), terms)]),
            ..User::default()
        })
    };
    let changes = vec![
        account("a", "root", a),
        account("b", "a", b),
        user("u", u),
        user("v", ""),
        AccountsChange::Qos(Qos {
            name: "q".into(),
            limits: limits(q, true),
            ..Qos::default()
        }),
    ];
    let at = world.now;
    world.apply(&Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    });
    world
}

pub(crate) fn of(user: &str, spec: JobSpec) -> JobSpec {
    let mut spec = spec;
    spec.account = Some("b".into());
    spec.owner.user = user.into();
    spec.owner.uid = 1 + u32::from(user == "v");
    spec
}

fn with_qos(user: &str, spec: JobSpec) -> JobSpec {
    JobSpec {
        qos: Some("q".into()),
        ..of(user, spec)
    }
}

fn started(world: &mut World) -> Vec<u64> {
    let mut all: Vec<u64> = world.pass_by_core().iter().map(|id| id.0).collect();
    all.sort_unstable();
    world.state.check_invariants().unwrap();
    all
}

/// Every limit of a job's QOS and association, the job that breaks it, and Slurm's word for that.
#[test]
fn each_limit_has_its_reason() {
    let large = || {
        let mut spec = wide(2, 4, 60);
        spec.ask.memory = MemoryAsk::PerNode(500);
        spec
    };
    let cases = [
        ("", "maxtres=mem=600", Reason::QOSMaxMemoryPerJob),
        ("maxtres=mem=600", "", Reason::AssocMaxMemPerJob),
        (
            "maxtresmins=cpu=239",
            "",
            Reason::AssocMaxCpuMinutesPerJobLimit,
        ),
        ("", "maxtresmins=node=119", Reason::QOSMaxNodeMinutesPerJob),
        ("maxtrespernode=cpu=1", "", Reason::AssocMaxCpuPerNode),
        ("", "maxtrespernode=mem=499", Reason::QOSMaxMemoryPerNode),
        (
            "grptresrunmins=cpu=239",
            "",
            Reason::AssocGrpCPURunMinutesLimit,
        ),
        (
            "",
            "grptresrunmins=mem=59999",
            Reason::QOSGrpMemoryRunMinutes,
        ),
        ("grptresmins=cpu=0", "", Reason::AssocGrpCPUMinutesLimit),
        ("", "grptresmins=node=0", Reason::QOSGrpNodeMinutes),
        ("grpwall=0", "", Reason::AssocGrpWallLimit),
        ("", "grpwall=0", Reason::QOSGrpWallLimit),
        ("", "maxtrespu=mem=999", Reason::QOSMaxMemoryPerUser),
        ("", "maxtrespa=cpu=3", Reason::MaxCpuPerAccount),
        ("", "maxjobspa=0", Reason::MaxJobsPerAccount),
        ("", "maxtresrunminspu=cpu=239", Reason::MaxCpuRunMinsPerUser),
        (
            "",
            "maxtresrunminspa=mem=59999",
            Reason::MaxMemoryRunMinsPerAccount,
        ),
        ("", "maxtresrunminspu=cpu=240,node=120", Reason::None),
        ("", "mintres=cpu=5", Reason::QOSMinCpuNotSatisfied),
        ("", "mintres=mem=1001", Reason::QOSMinMemory),
        // What a QOS limits its association does not.
        (
            "maxtres=cpu=1",
            "maxtres=cpu=3",
            Reason::QOSMaxCpuPerJobLimit,
        ),
        ("maxtres=cpu=1", "maxtres=cpu=4", Reason::None),
        ("grptres=cpu=1", "grptres=cpu=4", Reason::None),
        (
            "maxtres=cpu=1",
            "maxtres=node=2",
            Reason::AssocMaxCpuPerJobLimit,
        ),
    ];
    for (user, qos, reason) in cases {
        let mut world = with("", "", user, qos);
        let mut config = (**world.state.config.as_ref().unwrap()).clone();
        config.memory_is_consumable = true;
        let at = world.now;
        world.apply(&Event::Configured {
            config: Arc::new(config),
            at,
            partitions: None,
        });
        let id = world.submit(with_qos("u", large()));
        let runs = started(&mut world);
        assert_eq!(world.reason(id), reason, "{user} {qos}");
        assert_eq!(runs.is_empty(), reason != Reason::None, "{user} {qos}");
        if reason != Reason::None {
            let told = muster_sched::explain(&world.state, id, world.now, &View::all(&world.state));
            let text = told.expect("it waits").waits_for.join(" ");
            assert!(text.contains("keeps it back"), "{user} {qos}: {text}");
        }
    }
}

/// What those that run may still use comes down as time goes by, and lets the next go without any other change.
#[test]
fn minutes_that_are_left_to_run_let_others_go_in_time() {
    let mut world = with("grptresrunmins=cpu=120", "", "", "");
    let first = world.submit(of("u", job(1, 100)));
    let second = world.submit(of("v", job(1, 40)));
    assert_eq!(started(&mut world), [first.0]);
    assert_eq!(world.reason(second), Reason::AssocGrpCPURunMinutesLimit);
    let start = world.now;
    for _ in 0..40 {
        world.now = world.sched.next_look().expect("it is tried again");
        if !started(&mut world).is_empty() {
            break;
        }
    }
    assert_eq!(world.now.since_ms(start) / 60_000, 20);
    assert_eq!(world.state.active.len(), 2);
}

/// Likewise for each user with a QOS, and for each account: others do not count.
#[test]
fn minutes_left_to_run_are_counted_for_each_user_or_account() {
    for (qos, passes, reason) in [
        (
            "maxtresrunminspu=cpu=120",
            true,
            Reason::MaxCpuRunMinsPerUser,
        ),
        (
            "maxtresrunminspa=cpu=120",
            false,
            Reason::MaxCpuRunMinsPerAccount,
        ),
    ] {
        let mut world = with("", "", "", qos);
        let first = world.submit(with_qos("u", job(1, 100)));
        let second = world.submit(with_qos("u", job(1, 40)));
        let other = world.submit(with_qos("v", job(1, 40)));
        let runs = if passes {
            vec![first.0, other.0]
        } else {
            vec![first.0]
        };
        assert_eq!(started(&mut world), runs, "{qos}");
        assert_eq!(world.reason(second), reason, "{qos}");
        let start = world.now;
        for _ in 0..40 {
            world.now = world.sched.next_look().expect("it is tried again");
            if !started(&mut world).is_empty() {
                break;
            }
        }
        assert_eq!(world.now.since_ms(start) / 60_000, 20, "{qos}");
    }
}

/// What was used in the course of time counts, whoever below the account used it.
#[test]
fn use_counts_after_the_end() {
    for safe in [false, true] {
        let mut world = with("grptresmins=cpu=100", "", "", "");
        let mut config = (**world.state.config.as_ref().unwrap()).clone();
        config.order.enforce_safe = safe;
        let at = world.now;
        world.apply(&Event::Configured {
            config: Arc::new(config),
            at,
            partitions: None,
        });
        let first = world.submit(of("u", job(2, 45)));
        assert_eq!(started(&mut world), [first.0]);
        world.now = world.now.plus_s(40 * 60);
        world.end(first);
        // 80 of 100 are used, and a restart does not forget it.
        let mut bytes = Vec::new();
        world.state.encode_snapshot(&mut bytes);
        let read = State::decode_snapshot(&bytes).unwrap();
        assert_eq!(read.accounts, world.state.accounts);
        assert_eq!(read.check_invariants(), Ok(()));
        let long = world.submit(of("v", job(1, 30)));
        let short = world.submit(of("v", job(1, 20)));
        let runs = started(&mut world);
        if safe {
            assert_eq!(runs, [short.0]);
            assert_eq!(world.reason(long), Reason::AssocGrpCPUMinutesLimit);
        } else {
            assert_eq!(runs, [long.0, short.0]);
        }
    }
}

/// A QOS whose use counts half, or not at all: towards what was used, and what those that run may still use.
#[test]
fn use_counts_by_the_factor_of_the_qos() {
    for (factor, runs) in [(None, false), (Some(500_000), true), (Some(0), true)] {
        let mut world = with("grptresmins=cpu=100", "", "", "");
        let mut qos = world.state.accounts.qos["q"].clone();
        qos.usage_factor_millionths = factor;
        qos.flags = vec![Qos::USAGE_FACTOR_SAFE.into()];
        let (changes, at) = (vec![AccountsChange::Qos(qos)], world.now);
        world.apply(&Event::AccountsChanged {
            changes,
            at,
            log: Vec::new(),
        });
        let mut config = (**world.state.config.as_ref().unwrap()).clone();
        config.order.enforce_safe = true;
        world.apply(&Event::Configured {
            config: Arc::new(config),
            at,
            partitions: None,
        });
        // 3 CPUs for 20 minutes: 60, 30 or none of 100.
        let first = world.submit(with_qos("u", job(3, 20)));
        assert_eq!(started(&mut world), [first.0]);
        let second = world.submit(with_qos("u", job(3, 20)));
        assert_eq!(started(&mut world).is_empty(), !runs, "{factor:?}");
        if !runs {
            assert_eq!(world.reason(second), Reason::AssocGrpCPUMinutesLimit);
        }
        world.now = world.now.plus_s(20 * 60);
        for id in world.state.active.clone() {
            world.end(id);
        }
        // What is left for jobs of full count: 40, 40 and 100.
        let left = if factor == Some(0) { 100 } else { 40 };
        let long = world.submit(of("v", job(1, left + 1)));
        let short = world.submit(of("v", job(1, left)));
        let started = started(&mut world);
        // Without the factor the second one is there, too.
        let mine: Vec<u64> = started.into_iter().filter(|id| *id != second.0).collect();
        assert_eq!(mine, [short.0], "{factor:?}");
        assert_eq!(world.reason(long), Reason::AssocGrpCPUMinutesLimit);
        // A restart does not forget parts of a unit.
        let mut bytes = Vec::new();
        world.state.encode_snapshot(&mut bytes);
        let read = State::decode_snapshot(&bytes).unwrap();
        assert_eq!(read.accounts, world.state.accounts);
        assert_eq!(read.check_invariants(), Ok(()));
    }
}

/// `MinPrioThreshold`: nodes are not kept for jobs of a lower priority, so that others pass them.
#[test]
fn a_qos_keeps_nodes_for_urgent_jobs_alone() {
    for (threshold, passes) in [("", false), ("minpriothreshold=4294967295", true)] {
        let mut world = with("", "", "", threshold);
        let running = world.submit(of("u", wide(3, 12, 10)));
        assert_eq!(started(&mut world), [running.0]);
        let waits = world.submit(with_qos("u", wide(4, 16, 60)));
        let long = world.submit(of("v", job(4, 600)));
        let runs = started(&mut world);
        assert_eq!(runs == [long.0], passes, "{threshold}");
        assert_eq!(world.reason(waits), Reason::Resources);
    }
}

/// `DenyOnLimit` refuses what no other job's end would let start, `RequiresReservation` who names no reservation.
#[test]
fn a_qos_may_refuse_jobs() {
    let mut world = with("", "", "", "maxtres=cpu=2");
    let flag = |world: &mut World, flag: &str| {
        let mut qos = world.state.accounts.qos["q"].clone();
        qos.flags = vec![flag.into()];
        let (changes, at) = (vec![AccountsChange::Qos(qos)], world.now);
        world.apply(&Event::AccountsChanged {
            changes,
            at,
            log: Vec::new(),
        });
    };
    let submit = |world: &mut World, tasks| {
        let mut spec = with_qos("u", job(tasks, 10));
        (spec.kind, spec.interactive) = (JobKind::Allocation, true);
        let who = Identity {
            uid: 1,
            user: "u".into(),
            ..Identity::default()
        };
        let command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: vec![],
            test_only: false,
        };
        world.decide(&Command::User(who, command))
    };
    let refused = |reply| match reply {
        Some(Reply::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    flag(&mut world, "DenyOnLimit");
    let answer = submit(&mut world, 3);
    assert_eq!(refused(answer), RefusalCode::AccountingPolicy);
    let answer = submit(&mut world, 2);
    assert!(matches!(answer, Some(Reply::Submitted { .. })));
    flag(&mut world, "RequiresReservation");
    let answer = submit(&mut world, 2);
    assert_eq!(refused(answer), RefusalCode::InvalidReservation);
}

#[test]
fn jobs_of_a_user_are_counted_and_others_pass() {
    let mut world = with("", "maxjobs=1", "", "");
    let first = world.submit(of("u", job(1, 60)));
    let second = world.submit(of("u", job(1, 60)));
    let other = world.submit(of("v", job(1, 60)));
    assert_eq!(started(&mut world), [first.0, other.0]);
    assert_eq!(world.reason(second), Reason::AssocMaxJobsLimit);
    assert_eq!(started(&mut world), [0u64; 0]);
    world.end(first);
    assert_eq!(started(&mut world), [second.0]);
}

#[test]
fn what_an_account_has_counts_all_below_it() {
    let mut world = with("grptres=cpu=4", "", "", "");
    let first = world.submit(of("u", job(3, 60)));
    let second = world.submit(of("v", job(2, 60)));
    let third = world.submit(of("v", job(1, 60)));
    assert_eq!(started(&mut world), [first.0, third.0]);
    assert_eq!(world.reason(second), Reason::AssocGrpCpuLimit);
    // Stopped or not, it has what it has.
    world.admin(UserCommand::Suspend {
        target: muster_model::command::JobTarget {
            job: first,
            tasks: None,
            component: None,
        },
    });
    assert_eq!(started(&mut world), [0u64; 0]);
    world.end(first);
    assert_eq!(started(&mut world), [second.0]);
}

#[test]
fn a_qos_limits_each_user_and_each_job() {
    let mut world = with(
        "",
        "",
        "",
        "maxjobsperuser=2 maxtresperuser=cpu=3 maxtres=cpu=2 maxwall=60 grpjobs=3",
    );
    let long = world.submit(with_qos("u", job(1, 61)));
    let large = world.submit(with_qos("u", job(3, 60)));
    let ids: Vec<JobId> = [2, 2, 1, 1]
        .iter()
        .map(|cpus| world.submit(with_qos("u", job(*cpus, 60))))
        .collect();
    let others: Vec<JobId> = (0..2)
        .map(|_| world.submit(with_qos("v", job(1, 60))))
        .collect();
    assert_eq!(started(&mut world), [ids[0].0, ids[2].0, others[0].0]);
    assert_eq!(world.reason(long), Reason::QOSMaxWallDurationPerJobLimit);
    assert_eq!(world.reason(large), Reason::QOSMaxCpuPerJobLimit);
    assert_eq!(world.reason(ids[1]), Reason::QOSMaxCpuPerUserLimit);
    assert_eq!(world.reason(others[1]), Reason::QOSGrpJobsLimit);
    world.end(ids[2]);
    assert_eq!(started(&mut world), [ids[3].0]);
}

/// A task that leaves its array's record counts for itself, and for the record no more.
#[test]
fn tasks_of_an_array_count_once() {
    let mut world = with("", "", "", "maxjobsperuser=2");
    let array = world.array(with_qos("u", job(1, 10)), 5, None);
    let first = started(&mut world);
    assert_eq!(first.len(), 2);
    let submitted = |world: &World| {
        let all = &world.state.limit_use;
        let user = |scope: &Scope| matches!(scope, Scope::Association(_, user) if user == "u");
        let found = all.iter().find(|(scope, _)| user(scope));
        found.map(|(_, used)| (used.jobs, used.submitted))
    };
    assert_eq!(submitted(&world), Some((2, 5)));
    world.end(JobId(first[0]));
    assert_eq!(submitted(&world), Some((1, 4)));
    assert_eq!(started(&mut world).len(), 1);
    assert_eq!(world.reason(array), Reason::QOSMaxJobsPerUserLimit);
}

#[test]
fn submissions_over_a_limit_are_refused() {
    let mut world = with("grpsubmitjobs=3", "", "maxsubmitjobs=2", "");
    let submit = |user: &str| {
        let spec = JobSpec {
            kind: JobKind::Allocation,
            ..of(user, job(1, 10))
        };
        let who = Identity {
            uid: spec.owner.uid,
            user: user.into(),
            ..Identity::default()
        };
        let command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: Vec::new(),
            test_only: false,
        };
        Command::User(who, command)
    };
    let outcomes: Vec<bool> = ["u", "u", "u", "v", "v"]
        .into_iter()
        .map(|user| match world.decide(&submit(user)) {
            Some(Reply::Submitted { .. }) => true,
            Some(Reply::Refused(refusal)) => {
                assert_eq!(refusal.code, RefusalCode::AccountingPolicy);
                false
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(outcomes, [true, true, false, true, false]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(60)))]

    /// No limit is ever exceeded, the core starts all that is planned, and a new scheduler plans the same.
    #[test]
    fn limits_hold(
        ops in proptest::collection::vec((any::<bool>(), any::<bool>(), 1u32..5, 0usize..20), 1..40),
    ) {
        let mut world = with("grptres=cpu=7,node=3", "maxjobs=3", "maxtres=cpu=4", "maxtresperuser=cpu=4 grpjobs=3");
        let mut all: Vec<JobId> = Vec::new();
        for (v, q, cpus, which) in ops {
            let user = if v { "v" } else { "u" };
            let spec = job(cpus, 60);
            all.push(world.submit(if q { with_qos(user, spec) } else { of(user, spec) }));
            let running: Vec<JobId> = world.state.active.iter().copied().collect();
            if which % 2 == 0 && !running.is_empty() {
                world.end(running[which % running.len()]);
            }
            let fresh = muster_sched::Scheduler::new(&world.state).plan(&world.state, world.now);
            let plan = world.sched.plan(&world.state, world.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            world.note(&plan);
            world.pass_by_core();
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
            let mut cpus = 0;
            let (mut jobs, mut by_user) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u64>::new());
            for id in &world.state.active {
                let job = &world.state.jobs[id];
                let has = job.alloc.as_ref().unwrap().cpus();
                cpus += has;
                *jobs.entry(&job.spec.owner.user).or_default() += 1;
                if job.spec.qos.is_some() {
                    *by_user.entry(&job.spec.owner.user).or_default() += has;
                }
            }
            prop_assert!(cpus <= 7 && jobs.values().all(|n| *n <= 3) && by_user.values().all(|n| *n <= 4));
        }
    }
}

/// Nodes are kept for the first that waits for nodes, also in passes that do not look at who waits for a limit.
#[test]
fn a_job_that_waits_for_a_limit_leaves_the_reservation_to_the_next() {
    let mut world = with("", "", "maxjobs=1", "");
    world.submit(of("u", job(1, 60)));
    world.pass_by_core();
    let held = world.submit(of("u", job(1, 60)));
    let wide = world.submit(of("v", wide(4, 16, 60)));
    for _ in 0..3 {
        world.pass_by_core();
        assert_eq!(world.reason(held), Reason::AssocMaxJobsLimit);
        assert_eq!(world.reason(wide), Reason::Resources);
        let held = world.sched.held_nodes();
        assert!(!held.is_empty() && held.iter().all(|p| p.job == wide));
        // It would be in the way.
        let long = world.submit(of("v", job(1, 120)));
        world.pass_by_core();
        assert_eq!(world.reason(long), Reason::Priority);
    }
}

/// Limits by what a partition bills, by the type of devices and by licenses, whose names somebody wrote with capitals. The core
/// agrees to each start.
#[test]
fn limits_by_billing_type_and_license_hold() {
    let gpus = |kind: Option<&str>, count: u64| {
        let mut spec = job(1, 9);
        spec.ask.gres = vec![GresAsk {
            name: "gpu".into(),
            kind: kind.map(str::to_owned),
            count,
        }];
        spec
    };
    let licenses = |text: &str| JobSpec {
        licenses: Some(text.into()),
        ..job(1, 9)
    };
    let kept = |mut spec: JobSpec, cores: u32| {
        spec.ask.core_spec = Some(cores);
        spec
    };
    let cases = [
        ("billing=102", wide(2, 2, 9), true),
        ("billing=101", wide(2, 2, 9), false),
        ("billing=61", gpus(None, 1), true),
        ("billing=60", gpus(None, 1), false),
        ("gres/gpu:a100=1", gpus(Some("A100"), 1), true),
        ("gres/gpu:a100=1", gpus(Some("A100"), 2), false),
        ("gres/gpu:A100=1", gpus(None, 2), false),
        ("gres/gpu=1", gpus(Some("A100"), 2), false),
        ("license/MATLAB=2", licenses("MATLAB:2"), true),
        ("license/MATLAB=2", licenses("MATLAB:3"), false),
        ("cpu=3", kept(job(1, 9), 3), false),
        ("cpu=4", kept(job(1, 9), 3), true),
    ];
    for (most, spec, may) in cases {
        let mut lines = nodes(2, 4);
        for line in &mut lines {
            line.gres = vec![GresConfig {
                name: "gpu".into(),
                kind: Some("A100".into()),
                count: 2,
                ..GresConfig::default()
            }];
        }
        let mut config = cluster(lines);
        config.spec_by_job = true;
        config.licenses = vec![LicenseCount::new("MATLAB", 5)];
        config.partitions[0].billing_weights = Some("CPU=1,Node=50,GRES/gpu=10".into());
        for group in ["maxtres", "grptres"] {
            let limit = format!("{group}={most}");
            let mut world = with_config(config.clone(), ["", "", "", &limit]);
            world.submit(with_qos("u", spec.clone()));
            assert_eq!(
                started(&mut world).len(),
                usize::from(may),
                "{limit}: {:?}",
                spec.ask
            );
        }
    }
}
