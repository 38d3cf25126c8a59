//! Limits of accounting that a submission meets: refusals of `DenyOnLimit` and `--immediate`, and time limits that follow.

use crate::accounts::{account, edit, users};
use crate::world::{World, config, spec, user};
use muster_core::decide::{check_immediate, prospective_job};
use muster_model::account_limits::LimitAsk;
use muster_model::command::{AccountsAsk, ListEdit, QosAsk, TermsAsk, WckeysAsk};
use muster_model::config::ClusterConfig;
use muster_model::job::Reason;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;

/// A world with a QOS that has this limit, in which user 1000 may submit.
fn limited(key: &str, value: &str, flags: &[&str]) -> World {
    limited_in(config(), key, value, flags)
}

fn limited_in(mut config: ClusterConfig, key: &str, value: &str, flags: &[&str]) -> World {
    config.order.enforce_limits = true;
    config.partitions[0].billing_weights = Some("CPU=2".into());
    config.partitions[0].default_time = None;
    config.partitions[0].max_time = TimeLimit::Unlimited;
    let mut world = World::with(config);
    let ask = QosAsk {
        limits: vec![LimitAsk::new(key, value)],
        flags: Some(ListEdit {
            sign: None,
            names: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }),
        ..QosAsk::default()
    };
    world.must(0, edit(&["q"], AccountsAsk::AddQos(ask)));
    world.must(0, edit(&["a"], account("root")));
    world.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    world
}

fn asking(tasks: u32) -> JobSpec {
    let mut job = spec("j");
    job.qos = Some("q".into());
    job.ask.ntasks = Some(tasks);
    job.time_limit = None;
    job
}

#[test]
fn billing_is_counted_when_a_job_is_submitted() {
    let mut world = limited("maxtresperjob", "billing=4", &["DenyOnLimit"]);
    world.submit(asking(2));
    assert_eq!(world.refusal(asking(3)), RefusalCode::AccountingPolicy);
}

#[test]
fn a_job_without_a_time_limit_has_the_time_that_its_minutes_allow() {
    let mut world = limited("maxtresmins", "cpu=60", &[]);
    let id = world.submit(asking(4));
    assert_eq!(world.job(id).time_limit, TimeLimit::Minutes(15));
    // No time is short enough for one of this size.
    let id = world.submit(asking(100));
    assert_eq!(world.job(id).time_limit, TimeLimit::Unlimited);
}

#[test]
fn a_job_that_would_wait_for_a_limit_does_not_start_at_once() {
    let world = limited("maxtresperjob", "cpu=2", &[]);
    for (tasks, may) in [(2, true), (3, false)] {
        let job = prospective_job(&world.state, &user(1000), &asking(tasks), world.now).unwrap();
        let refusal = check_immediate(&world.state, &job, world.now).err();
        let expected = (!may).then_some(Reason::QOSMaxCpuPerJobLimit.name());
        let detail = refusal.as_ref().map(|refusal| refusal.detail.as_str());
        assert_eq!(detail, expected);
    }
}

#[test]
fn a_job_waits_for_a_limit_if_all_its_partitions_have_one() {
    let mut config = config();
    let mut other = config.partitions[0].clone();
    other.name = "other".into();
    config.partitions[0].qos = Some("q".into());
    config.partitions.push(other);
    let first = config.partitions[0].name.clone();
    let world = limited_in(config, "maxtresperjob", "cpu=2", &[]);
    for (partitions, waits) in [
        (vec![first.clone()], true),
        (vec![first, "other".into()], false),
    ] {
        let mut job = asking(3);
        (job.qos, job.partitions) = (None, partitions);
        let job = prospective_job(&world.state, &user(1000), &job, world.now).unwrap();
        assert_eq!(
            world.state.waits_for_limit(&job, world.now).is_some(),
            waits
        );
    }
}

/// A QOS with a factor lets associations have more of each resource; its own limits stay.
#[test]
fn a_limit_factor_multiplies_limits_of_associations() {
    let mut world = limited("maxtresperjob", "mem=1000000", &["DenyOnLimit"]);
    let terms = TermsAsk {
        limits: vec![
            LimitAsk::new("maxtres", "cpu=2"),
            LimitAsk::new("grptres", "cpu=4"),
        ],
        ..TermsAsk::default()
    };
    let more = AccountsAsk::ModifyUsers {
        accounts: vec!["a".into()],
        default_account: String::new(),
        admin_level: String::new(),
        terms,
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    };
    world.must(0, edit(&["u1000"], more));
    assert_eq!(world.refusal(asking(3)), RefusalCode::AccountingPolicy);
    let factor = QosAsk {
        limit_factor_millionths: Some(Some(1_500_000)),
        ..QosAsk::default()
    };
    world.must(0, edit(&["q"], AccountsAsk::ModifyQos(factor)));
    world.submit(asking(3));
    assert_eq!(world.refusal(asking(4)), RefusalCode::AccountingPolicy);
}
