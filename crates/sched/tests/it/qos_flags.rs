//! Flags of QOS that lift limits of partitions or keep jobs waiting.

use crate::account_limits::{of, with};
use crate::world::{World, cluster, job, nodes, wide};
use muster_core::event::{AccountsChange, Event};
use muster_model::accounts::Qos;
use muster_model::job::{JobState, Reason};
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::sync::Arc;

fn change_accounts(world: &mut World, changes: Vec<AccountsChange>) {
    let at = world.now;
    world.apply(&Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    });
}

fn set_flags(world: &mut World, flags: &[&str]) {
    let qos = Qos {
        name: "q".into(),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..world
            .state
            .accounts
            .qos
            .get("q")
            .cloned()
            .unwrap_or_default()
    };
    change_accounts(world, vec![AccountsChange::Qos(qos)]);
}

fn with_qos(spec: JobSpec) -> JobSpec {
    JobSpec {
        qos: Some("q".into()),
        ..spec
    }
}

/// The flags were refused.
#[test]
fn jobs_of_a_qos_may_be_beyond_limits_of_partitions() {
    let one_node = || {
        let mut spec = job(1, 5);
        spec.ask.max_nodes = Some(1);
        spec
    };
    let cases = [
        (
            Qos::PARTITION_MAX_NODES,
            wide(4, 4, 5),
            Reason::PartitionNodeLimit,
        ),
        (
            Qos::PARTITION_MIN_NODES,
            one_node(),
            Reason::PartitionNodeLimit,
        ),
        (
            Qos::PARTITION_TIME_LIMIT,
            wide(2, 2, 60),
            Reason::PartitionTimeLimit,
        ),
    ];
    for (flag, spec, reason) in cases {
        let mut config = cluster(nodes(4, 4));
        let part = &mut config.partitions[0];
        (part.min_nodes, part.max_nodes) = (2, Some(3));
        part.max_time = TimeLimit::Minutes(30);
        let mut world = World::new(config);
        // The flags of the other limits are of no use.
        let all = [
            Qos::PARTITION_MAX_NODES,
            Qos::PARTITION_MIN_NODES,
            Qos::PARTITION_TIME_LIMIT,
        ];
        let others: Vec<&str> = all.into_iter().filter(|other| *other != flag).collect();
        set_flags(&mut world, &others);
        let id = world.submit(with_qos(spec));
        world.pass_by_core();
        assert_eq!(world.reason(id), reason, "{flag}");
        set_flags(&mut world, &[flag]);
        world.pass_by_core();
        assert_eq!(world.state.jobs[&id].state, JobState::Running, "{flag}");
        let held = world.state.jobs[&id].held().count();
        let expected = match flag {
            Qos::PARTITION_MAX_NODES => 4,
            Qos::PARTITION_MIN_NODES => 1,
            _ => 2,
        };
        assert_eq!(held, expected, "{flag}");
    }
}

/// Use counts at the start by the QOS' factor with the flag only, sacctmgr(1).
#[test]
fn the_factor_counts_before_a_start_with_its_flag() {
    for (flags, starts) in [(&[][..], true), (&[Qos::USAGE_FACTOR_SAFE][..], false)] {
        let mut world = with("grptresmins=cpu=100", "", "", "");
        let mut config = (**world.state.config.as_ref().unwrap()).clone();
        config.order.enforce_safe = true;
        let at = world.now;
        world.apply(&Event::Configured {
            config: Arc::new(config),
            at,
            partitions: None,
        });
        let mut qos = world.state.accounts.qos["q"].clone();
        qos.usage_factor_millionths = Some(2_000_000);
        change_accounts(&mut world, vec![AccountsChange::Qos(qos)]);
        set_flags(&mut world, flags);
        // 60 of 100 CPU minutes, or 120.
        let id = world.submit(with_qos(of("u", job(3, 20))));
        assert_eq!(!world.pass_by_core().is_empty(), starts, "{flags:?}");
        if !starts {
            assert_eq!(world.reason(id), Reason::AssocGrpCPUMinutesLimit);
        }
    }
}

/// `EnforceUsageThreshold`: jobs wait while the fair share is below `UsageThreshold`.
#[test]
fn jobs_wait_below_the_usage_threshold() {
    let mut world = with("", "", "", "");
    let mut qos = world.state.accounts.qos["q"].clone();
    qos.usage_threshold_millionths = Some(500_000);
    change_accounts(&mut world, vec![AccountsChange::Qos(qos)]);
    let share = |world: &mut World, value: f64| {
        let fair = &mut world.state.accounts.fair;
        let users = fair.entry("b".to_owned()).or_default();
        users.insert("u".to_owned(), value);
    };
    share(&mut world, 0.4);
    let ignored = world.submit(with_qos(of("u", job(1, 5))));
    assert_eq!(world.pass_by_core(), [ignored], "the flag is missing");
    set_flags(&mut world, &[Qos::ENFORCE_USAGE_THRESHOLD]);
    share(&mut world, 0.4);
    let waits = world.submit(with_qos(of("u", job(1, 5))));
    let other = world.submit(of("u", job(1, 5)));
    assert_eq!(world.pass_by_core(), [other]);
    assert_eq!(world.reason(waits), Reason::QOSUsageThreshold);
    let why = muster_sched::explain(
        &world.state,
        waits,
        world.now,
        &muster_core::policy::access::privacy::View::all(&world.state),
    );
    let why = why.unwrap().waits_for.join(" ");
    assert!(
        why.contains("UsageThreshold=0.5 of QOS q keeps it back"),
        "{why}"
    );
    // Use decays: the share rises without any event of the job.
    share(&mut world, 0.5);
    world.now = world.sched.next_look().expect("it is tried again");
    assert_eq!(world.pass_by_core(), [waits]);
}
