//! Requests that the site's settings and limits bound: samples of tasks, ranges of node counts, QOS.

use crate::accounts::{account, edit, users};
use crate::world::{World, config, spec, target};
use muster_model::account_limits::LimitAsk;
use muster_model::command::{AccountsAsk, JobUpdate, QosAsk, TermsAsk, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::refusal::RefusalCode;
use muster_model::spec::MemoryAsk;

/// The memory of a job with a limit is watched by samples, so that it may not have fewer than the site wants.
#[test]
fn a_job_with_a_memory_limit_is_sampled_as_often_as_the_site_wants() {
    let mut config = config();
    config.sample_s = 5;
    let mut w = World::with(config);
    let with = |memory, interval: &str| {
        let mut own = spec("j");
        own.ask.memory = memory;
        own.shown = vec![("acctg-freq".to_owned(), interval.to_owned())];
        own
    };
    let limited = MemoryAsk::PerNode(10);
    let mut code = |memory, interval| {
        w.try_submit(1000, with(memory, interval))
            .err()
            .map(|r| r.code)
    };
    assert_eq!(code(limited, "4"), None);
    assert_eq!(code(limited, "energy=60"), None);
    assert_eq!(code(limited, "task=6"), Some(RefusalCode::InvalidAcctgFreq));
    assert_eq!(code(limited, "0"), Some(RefusalCode::InvalidAcctgFreq));
    assert_eq!(code(MemoryAsk::PerNode(0), "60"), None);
}

/// With `-N1-8` Slurm takes as many nodes as the limits allow; a job that needs more waits.
#[test]
fn a_range_of_nodes_ends_where_limits_do() {
    let mut order = config().order;
    (order.enforce_associations, order.enforce_limits) = (true, true);
    let mut w = World::with(ClusterConfig { order, ..config() });
    w.must(0, edit(&["a"], account("")));
    let terms = TermsAsk {
        limits: vec![LimitAsk::new("maxtres", "node=2")],
        ..TermsAsk::default()
    };
    w.must(0, edit(&["u1000"], users("a", terms)));
    let mut most = |least: u32, most: u32| {
        let mut own = spec("j");
        own.ask.nodes_set = true;
        (own.ask.min_nodes, own.ask.max_nodes) = (least, Some(most));
        let id = w.try_submit(1000, own).unwrap();
        w.job(id).spec.ask.max_nodes
    };
    assert_eq!(most(1, 3), Some(2));
    assert_eq!(most(1, 2), Some(2));
    assert_eq!(most(3, 3), Some(3));
}

/// squeue, sacct and programs of the site had `normal` instead.
#[test]
fn the_default_qos_is_the_jobs_own() {
    let mut w = World::with(config());
    w.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    w.must(0, edit(&["a", "b"], account("")));
    let terms = TermsAsk {
        default_qos: Some("high".to_owned()),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["u1000"], users("a", terms)));
    w.must(0, edit(&["u1000"], users("b", TermsAsk::default())));
    let mut own = spec("j");
    own.account = Some("a".to_owned());
    let id = w.submit(own);
    assert_eq!(w.job(id).spec.qos_name(), "high");
    let update = JobUpdate {
        account: Some("b".to_owned()),
        ..JobUpdate::default()
    };
    w.must(
        1000,
        UserCommand::UpdateJob {
            target: target(id),
            update: Box::new(update),
        },
    );
    assert_eq!(w.job(id).spec.qos_name(), "normal");
}
