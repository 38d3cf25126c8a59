//! What counts towards limits when a user gets another name, an account another parent, or a job another account, QOS or
//! partition.

use crate::accounts::{account, edit, users};
use crate::world::{SCRIPT, World, allocation, array, config, spec, target, task, user};
use muster_core::policy::limits::amounts;
use muster_model::account_limits::{LimitAsk, Scope};
use muster_model::command::{
    AccountsAsk, CrontabAsk, JobTarget, JobUpdate, ListEdit, QosAsk, Reply, TermsAsk, UserCommand,
};
use muster_model::command::{Command, PlannedStart};
use muster_model::granted::GrantedRight;
use muster_model::ids::JobId;
use muster_model::job::Phase;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

fn waits_for(w: &World, id: JobId) -> Option<&'static str> {
    let over = w.state.waits_for_limit(w.job(id), w.now);
    over.map(|over| over.reason.name())
}

/// The limits of an association, of a user in a partition and of a QOS count what was used: under the new name it had used nothing,
/// and the next user of the old name had used all.
#[test]
fn what_a_user_has_used_counts_under_the_new_name() {
    let mut config = config();
    config.order.enforce_limits = true;
    let mut w = World::with(config);
    w.must(0, edit(&["a"], account("")));
    let terms = || TermsAsk {
        limits: vec![LimitAsk::new("grpwall", "10")],
        ..TermsAsk::default()
    };
    let in_partition = |partition: &str| {
        let mut added = users("a", terms());
        if let AccountsAsk::AddUsers { partitions, .. } = &mut added {
            partitions.push(partition.to_owned());
        }
        added
    };
    for added in [users("a", terms()), in_partition("short")] {
        w.must(0, edit(&["u1000"], added));
    }
    let on = |partition: &str| JobSpec {
        partitions: vec![partition.into()],
        ..spec("x")
    };
    for partition in ["batch", "short"] {
        let id = w.submit(on(partition));
        assert!(w.start(id, &[0]));
        w.now = w.now.plus_s(1200);
        w.finish(id, 0);
    }
    let before = w.state.accounts.tres_usage.clone();
    let rename = AccountsAsk::RenameUser { to: "u2000".into() };
    w.must(0, edit(&["u1000"], rename));
    for partition in ["batch", "short"] {
        let id = w.try_submit(2000, on(partition)).expect("accepted");
        let limit = Some("AssocGrpWallLimit");
        assert_eq!(waits_for(&w, id), limit, "{partition}");
    }
    let after = &w.state.accounts.tres_usage;
    assert!(after.keys().all(|scope| scope.user() != Some("u1000")));
    let owned = before.iter().filter(|(scope, _)| scope.user().is_some());
    assert!(owned.clone().count() >= 3, "{before:?}");
    for (scope, used) in owned {
        assert_eq!(after.get(&scope.clone().with_user("u2000")), Some(used));
    }
    for added in [users("a", terms()), in_partition("short")] {
        w.must(0, edit(&["u1000"], added));
    }
    for partition in ["batch", "short"] {
        let id = w.submit(on(partition));
        assert_eq!(waits_for(&w, id), None, "{partition}");
    }
}

/// A job counted for the account that it had been below, for ever, and not for the one that it was below when it ended.
#[test]
fn a_job_that_runs_counts_for_the_accounts_that_it_is_below() {
    let mut config = config();
    config.order.enforce_limits = true;
    let mut w = World::with(config);
    w.must(0, edit(&["left", "right"], account("")));
    w.must(0, edit(&["a"], account("left")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    assert!(w.start(id, &[0]));
    w.now = w.now.plus_s(600);
    let moved = AccountsAsk::ModifyAccounts {
        parent: "right".into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit(&["a"], moved));
    w.now = w.now.plus_s(300);
    w.finish(id, 0);
    w.now = w.now.plus_s(6000);
    let minutes = |w: &World, name: &str| {
        let usage = &w.state.accounts.tres_usage[&Scope::Account(name.to_owned())];
        usage.minutes("wall", w.now, 0)
    };
    assert_eq!(minutes(&w, "left"), 10);
    assert_eq!(minutes(&w, "right"), 5);
    assert_eq!(minutes(&w, "a"), 15);
}

/// Jobs that waited counted under the old name: a user could submit as many again under the new one.
#[test]
fn a_user_with_jobs_that_wait_keeps_its_name() {
    let mut w = World::new();
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    let rename = || edit(&["u1000"], AccountsAsk::RenameUser { to: "b".into() });
    assert_eq!(w.refused(0, rename()), RefusalCode::JobsActive);
    w.cancel(1000, target(id));
    assert_eq!(w.must(0, rename()), 1);
}

/// Users `u1000` in accounts `wide` and `narrow`, of which the latter has a limit, and QOS `few`.
pub(crate) fn limited(narrow: &str, few: &str) -> World {
    let mut config = config();
    config.order.enforce_limits = true;
    config.crontabs = muster_model::cron::CrontabConfig {
        enabled: true,
        explicit_cancel: false,
        zone: "UTC0".to_owned(),
    };
    let ask = |text: &str| {
        let (key, value) = text.split_once('=').expect("key=value");
        vec![LimitAsk::new(key, value)]
    };
    config.partitions[1].qos = Some("of_short".into());
    let mut w = World::with(config);
    w.must(0, edit(&["wide", "narrow"], account("")));
    let terms = TermsAsk {
        limits: ask(narrow),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["u1000"], users("wide", TermsAsk::default())));
    w.must(0, edit(&["u1000"], users("narrow", terms)));
    for (name, text) in [("few", few), ("of_short", "grpsubmit=2")] {
        let qos = QosAsk {
            limits: ask(text),
            ..QosAsk::default()
        };
        w.must(0, edit(&[name], AccountsAsk::AddQos(qos)));
    }
    w
}

type Change<'a> = &'a dyn Fn(&mut JobUpdate);

fn change(target: JobTarget, change: Change<'_>) -> UserCommand {
    let mut update = JobUpdate::default();
    change(&mut update);
    UserCommand::UpdateJob {
        target,
        update: Box::new(update),
    }
}

/// Where a verifier had set the time limit of a change, the rest of it was not compared with limits either.
#[test]
fn a_granted_time_limit_is_no_way_past_the_limits_of_jobs() {
    let mut w = limited("maxsubmit=2", "maxsubmitpu=2");
    let jobs: Vec<JobId> = (0..3).map(|_| w.submit(spec("x"))).collect();
    let moved = |u: &mut JobUpdate| {
        u.account = Some("narrow".into());
        u.time_limit = Some(TimeLimit::Minutes(100));
    };
    let mut move_to_narrow = |id| {
        let mut identity = user(1000);
        identity.granted.insert(0, GrantedRight::RaisedTimeLimit);
        let reply = w.run(Command::User(identity, change(target(id), &moved)));
        match reply.reply {
            Some(Reply::Done { changed, .. }) => changed,
            Some(Reply::Refused(_)) => 0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(move_to_narrow(jobs[0]), 1);
    assert_eq!(move_to_narrow(jobs[1]), 1);
    assert_eq!(move_to_narrow(jobs[2]), 0);
}

/// Who may submit two jobs in an account, with a QOS or in a partition submitted them elsewhere, and moved them there.
#[test]
fn jobs_that_move_are_within_the_limits_on_those_that_are_submitted() {
    let to_narrow = |u: &mut JobUpdate| u.account = Some("narrow".into());
    let to_few = |u: &mut JobUpdate| u.qos = Some("few".into());
    let to_short = |u: &mut JobUpdate| u.partitions = Some(vec!["short".into()]);
    let changes: [(Change<'_>, &str); 3] = [
        (&to_narrow, "AssocMaxSubmitJobLimit"),
        (&to_few, "QOSMaxSubmitJobPerUserLimit"),
        (&to_short, "QOSGrpSubmitJobsLimit"),
    ];
    for (update, name) in changes {
        let refused = |w: &mut World, command| match w.user(1000, command) {
            Reply::Refused(refusal) => refusal.detail,
            Reply::Done { refused, changed } => {
                assert_eq!((refused.len(), changed), (1, 0));
                refused[0].1.detail.clone()
            }
            other => panic!("{other:?}"),
        };
        let mut w = limited("maxsubmit=2", "maxsubmitpu=2");
        let jobs: Vec<JobId> = (0..3).map(|_| w.submit(spec("x"))).collect();
        w.must(1000, change(target(jobs[0]), update));
        // What counts there already may be changed.
        w.must(1000, change(target(jobs[0]), update));
        w.must(1000, change(target(jobs[1]), update));
        let why = refused(&mut w, change(target(jobs[2]), update));
        assert_eq!(why, name);
        w.must(
            1000,
            change(target(jobs[2]), &|u| u.comment = Some("x".into())),
        );
        w.cancel(1000, target(jobs[0]));
        w.must(1000, change(target(jobs[2]), update));

        // An array is moved as a whole, and tasks with records of their own one after the other.
        let mut w = limited("maxsubmit=2", "maxsubmitpu=2");
        let whole = w.submit(JobSpec {
            array: array(0, 2, None),
            ..spec("x")
        });
        let why = refused(&mut w, change(target(whole), update));
        assert_eq!(why, name);
        w.must(1000, change(task(whole, 0), &|u| u.nice = Some(1)));
        w.must(1000, change(task(whole, 1), &|u| u.nice = Some(2)));
        match w.user(1000, change(target(whole), update)) {
            Reply::Done { changed, refused } => assert_eq!((changed, refused.len()), (2, 1)),
            other => panic!("{other:?}"),
        }
        w.check_replay();
    }
}

/// A job that runs has a part of what its QOS has room for, and stays there.
#[test]
fn a_job_that_runs_stays_in_its_qos() {
    let mut w = limited("maxsubmit=2", "maxsubmitpu=1");
    let few = |u: &mut JobUpdate| u.qos = Some("few".into());
    let key = |u: &mut JobUpdate| u.wckey = Some("x".into());
    let id = w.submit(spec("x"));
    assert!(w.start(id, &[0]));
    for update in [change(target(id), &few), change(target(id), &key)] {
        assert_eq!(w.refused(0, update.clone()), RefusalCode::JobNotPending);
        assert_eq!(w.refused(1000, update), RefusalCode::JobNotPending);
    }
}

/// A job that runs counts where others move to.
#[test]
fn a_job_that_runs_counts_where_others_move() {
    let mut w = limited("maxsubmit=2", "maxsubmitpu=1");
    let few = |id| change(target(id), &|u: &mut JobUpdate| u.qos = Some("few".into()));
    let (first, second) = (w.submit(spec("x")), w.submit(spec("x")));
    w.must(1000, few(first));
    assert!(w.start(first, &[0]));
    assert_eq!(w.refused(1000, few(second)), RefusalCode::AccountingPolicy);
}

/// Each component was compared with what was there before the request.
#[test]
fn components_count_together_for_limits_on_jobs_that_are_submitted() {
    let mut w = limited("maxsubmit=2", "grpsubmit=2");
    let het = |count: usize, change: &dyn Fn(usize, &mut JobSpec)| {
        let specs = (0..count).map(|n| {
            let mut spec = match n {
                0 => spec("x"),
                _ => JobSpec {
                    interactive: false,
                    ..allocation("x")
                },
            };
            change(n, &mut spec);
            spec
        });
        UserCommand::SubmitHet {
            specs: specs.collect(),
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        }
    };
    let code = |reply: Reply| match reply {
        Reply::Submitted { .. } => None,
        Reply::Refused(refusal) => Some(refusal.code),
        other => panic!("{other:?}"),
    };
    let over = Some(RefusalCode::AccountingPolicy);
    let in_narrow = |_: usize, spec: &mut JobSpec| spec.account = Some("narrow".into());
    let with_few = |_: usize, spec: &mut JobSpec| spec.qos = Some("few".into());
    for of_one in [&in_narrow as &dyn Fn(usize, &mut JobSpec), &with_few] {
        assert_eq!(code(w.user(1000, het(3, of_one))), over);
        assert!(w.state.jobs.is_empty());
    }
    // Two of each.
    let by_turns = |n: usize, spec: &mut JobSpec| match n % 2 {
        0 => in_narrow(n, spec),
        _ => with_few(n, spec),
    };
    assert_eq!(code(w.user(1000, het(5, &by_turns))), over);
    assert_eq!(code(w.user(1000, het(4, &by_turns))), None);
    assert_eq!(code(w.user(1000, het(2, &by_turns))), over);
}

/// Jobs that have ended counted no more, and were all put back at once.
#[test]
fn jobs_that_are_put_back_after_their_end_count_again() {
    let requeue = |id| UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let narrow = || JobSpec {
        account: Some("narrow".into()),
        ..spec("x")
    };
    let mut w = limited("maxsubmit=2", "grpsubmit=2");
    let run = |w: &mut World, spec: JobSpec| {
        let id = w.submit(spec);
        assert!(w.start(id, &[0]));
        w.finish(id, 0);
        id
    };
    let ended = [0; 3].map(|_| run(&mut w, narrow()));
    w.must(1000, requeue(ended[0]));
    w.must(1000, requeue(ended[1]));
    let refused = w.refused(1000, requeue(ended[2]));
    assert_eq!(refused, RefusalCode::AccountingPolicy);
    // One that runs counts already.
    assert!(w.start(ended[0], &[0]));
    w.must(1000, requeue(ended[0]));
    w.must(0, requeue(ended[2]));
    w.check_replay();

    // Tasks of an array count together.
    let mut w = limited("maxsubmit=2", "grpsubmit=2");
    let whole = w.submit(JobSpec {
        array: array(0, 1, None),
        ..narrow()
    });
    for index in 0..2 {
        assert!(w.start(whole, &[0]));
        let task = w.task_id(whole, index);
        w.finish(task, 0);
    }
    w.submit(narrow());
    match w.user(1000, requeue(whole)) {
        Reply::Done { changed, refused } => assert_eq!((changed, refused.len()), (1, 1)),
        other => panic!("{other:?}"),
    }
}

/// The entries of a crontab that replaces one of as many count for those that they name, and the old ones do no more.
#[test]
fn entries_of_a_crontab_count_together_for_limits_on_jobs_that_are_submitted() {
    let mut w = limited("maxsubmit=3", "grpsubmit=2");
    let crontab = |account: &str, entries: usize| {
        let job = JobSpec {
            account: Some(account.into()),
            ..spec("x")
        };
        UserCommand::SetCrontab(Box::new(CrontabAsk {
            owner: Default::default(),
            text: Some("@hourly true\n".repeat(entries)),
            jobs: vec![job; entries],
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
        }))
    };
    w.must(1000, crontab("wide", 5));
    let over = RefusalCode::AccountingPolicy;
    assert_eq!(w.refused(1000, crontab("narrow", 5)), over);
    assert_eq!(w.state.crontabs[&1000].jobs.len(), 5);
    w.must(1000, crontab("narrow", 2));
    w.must(1000, crontab("narrow", 2));
    assert_eq!(w.refused(1000, crontab("narrow", 4)), over);
    // One that has all that there is room for may be replaced.
    w.must(1000, crontab("narrow", 3));
    w.must(1000, crontab("narrow", 3));
    assert_eq!(w.state.crontabs[&1000].jobs.len(), 3);
}

/// A job that has ended and is put back into the queue waits once more; others were submitted in its place.
#[test]
fn jobs_that_are_put_back_are_within_the_limits_on_those_that_are_submitted() {
    let over = RefusalCode::AccountingPolicy;
    let again = |target: JobTarget| UserCommand::Requeue {
        target,
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let of_narrow = || JobSpec {
        account: Some("narrow".into()),
        ..spec("x")
    };
    let mut w = limited("maxsubmit=2", "maxsubmitpu=2");
    let ended: Vec<JobId> = (0..4)
        .map(|n| {
            let id = w.submit(of_narrow());
            assert!(w.start(id, &[0]));
            // The last is still being cleaned up.
            match n {
                3 => w.end_batch(id, 0),
                _ => w.finish(id, 0),
            }
            id
        })
        .collect();
    let waits = w.submit(of_narrow());
    w.must(1000, again(target(ended[3])));
    assert_eq!(w.refused(1000, again(target(ended[0]))), over);
    // It counts until it is in the queue, and there.
    assert_eq!(w.refusal(of_narrow()), over);
    w.release(ended[3]);
    assert_eq!(w.refusal(of_narrow()), over);
    w.cancel(1000, target(waits));
    w.must(1000, again(target(ended[0])));
    assert_eq!(w.refused(1000, again(target(ended[1]))), over);
    // As in Slurm, limits keep users back, and not operators.
    w.must(0, again(target(ended[1])));
    w.check_replay();

    // The tasks of an array count together.
    let mut w = limited("maxsubmit=3", "maxsubmitpu=2");
    let whole = w.submit(JobSpec {
        array: array(0, 2, None),
        ..of_narrow()
    });
    assert_eq!(w.schedule(), 3);
    for index in 0..3 {
        let id = w.task_id(whole, index);
        w.finish(id, 0);
    }
    w.submit(of_narrow());
    match w.user(1000, again(target(whole))) {
        Reply::Done { changed, refused } => assert_eq!((changed, refused.len()), (2, 1)),
        other => panic!("{other:?}"),
    }
    w.check_replay();
}

/// An entry of a crontab keeps its place in the queue while the nodes of a run are cleaned; one that is replaced then gives it up.
#[test]
fn a_job_that_comes_back_counts_while_its_nodes_are_cleaned() {
    let mut w = limited("maxsubmit=1", "maxsubmitpu=2");
    let of_narrow = || JobSpec {
        account: Some("narrow".into()),
        ..spec("x")
    };
    let crontab = || {
        UserCommand::SetCrontab(Box::new(CrontabAsk {
            owner: Default::default(),
            text: Some("@hourly true\n".into()),
            jobs: vec![of_narrow()],
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
        }))
    };
    w.must(1000, crontab());
    let id = w.state.crontabs[&1000].jobs[0];
    w.pass(3600);
    assert!(w.start(id, &[0]));
    w.end_batch(id, 0);
    assert_eq!(w.job(id).phase(), Phase::Requeueing);
    assert!(w.job(id).state.is_ended());
    assert_eq!(w.refusal(of_narrow()), RefusalCode::AccountingPolicy);
    w.must(1000, crontab());
    w.release(id);
    assert_eq!(w.job(id).phase(), Phase::Ended);
    assert_eq!(w.refusal(of_narrow()), RefusalCode::AccountingPolicy);
    w.check_replay();
}

/// Limits keep users back, and not operators who give one of them more; what these move counts for those who come later.
#[test]
fn operators_give_jobs_more_than_limits_allow() {
    let over = RefusalCode::AccountingPolicy;
    let mut w = limited("maxsubmit=1", "maxwall=60");
    let deny = QosAsk {
        flags: Some(ListEdit {
            sign: None,
            names: vec!["DenyOnLimit".into()],
        }),
        ..QosAsk::default()
    };
    w.must(0, edit(&["few"], AccountsAsk::ModifyQos(deny)));
    let minutes = |count: u32| Some(TimeLimit::Minutes(count));
    let of = |count: u32, qos: &str| JobSpec {
        qos: Some(qos.into()),
        time_limit: minutes(count),
        ..spec("x")
    };
    let running = w.submit(of(30, "few"));
    assert!(w.start(running, &[0]));
    w.must(0, change(target(running), &|u| u.time_limit = minutes(120)));
    assert_eq!(w.job(running).time_limit, TimeLimit::Minutes(120));

    let long = w.submit(of(120, "normal"));
    let to_few = |u: &mut JobUpdate| u.qos = Some("few".into());
    assert_eq!(w.refused(1000, change(target(long), &to_few)), over);
    w.must(0, change(target(long), &to_few));

    let to_narrow = |u: &mut JobUpdate| u.account = Some("narrow".into());
    let jobs: Vec<JobId> = (0..3).map(|_| w.submit(spec("x"))).collect();
    w.must(0, change(target(jobs[0]), &to_narrow));
    assert_eq!(w.refused(1000, change(target(jobs[1]), &to_narrow)), over);
    w.must(0, change(target(jobs[1]), &to_narrow));
    w.check_replay();
}

/// What a QOS refuses at submission a job did not become by submission, but by a change.
#[test]
fn a_job_does_not_become_what_its_qos_denies() {
    let mut w = limited("maxsubmit=9", "maxtres=cpu=2");
    let deny = QosAsk {
        flags: Some(ListEdit {
            sign: None,
            names: vec!["DenyOnLimit".into()],
        }),
        ..QosAsk::default()
    };
    w.must(0, edit(&["few"], AccountsAsk::ModifyQos(deny)));
    let cpus = |count: u32| ResourceAsk {
        ntasks: Some(count),
        ..ResourceAsk::default()
    };
    let of = |count: u32, qos: &str| JobSpec {
        ask: cpus(count),
        qos: Some(qos.into()),
        ..spec("x")
    };
    let denied = RefusalCode::AccountingPolicy;
    assert_eq!(w.refusal(of(3, "few")), denied);
    let large = w.submit(of(3, "normal"));
    let to_few = |u: &mut JobUpdate| u.qos = Some("few".into());
    assert_eq!(w.refused(1000, change(target(large), &to_few)), denied);
    let small = w.submit(of(2, "few"));
    let larger = change(target(small), &|u| u.ask = Some(cpus(3)));
    assert_eq!(w.refused(1000, larger), denied);
    let both = change(target(large), &|u| {
        to_few(u);
        u.ask = Some(cpus(2));
    });
    w.must(1000, both);
}

/// Limits on `billing` count what the partition's weights say, before the job starts too; `UsageFactor` counts once.
#[test]
fn billing_counts_by_weights_and_once_by_factor() {
    let start = |most: &str| {
        let mut config = config();
        config.order.enforce_limits = true;
        config.partitions[0].billing_weights = Some("CPU=1,Node=50".into());
        let mut w = World::with(config);
        let qos = QosAsk {
            limits: vec![LimitAsk::new("maxtres", most)],
            usage_factor_millionths: Some(2_000_000),
            ..QosAsk::default()
        };
        w.must(0, edit(&["twice"], AccountsAsk::AddQos(qos)));
        w.must(0, edit(&["a"], account("")));
        w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
        let id = w.submit(JobSpec {
            qos: Some("twice".into()),
            ..spec("x")
        });
        let started = w.start(id, &[0]);
        (w, id, started)
    };
    let (.., started) = start("billing=50");
    assert!(!started, "it is billed 50 and its CPUs");
    let (mut w, id, started) = start("billing=100");
    assert!(started);
    let alloc = w.job(id).alloc.clone().unwrap();
    let units = (50 + alloc.cpus()) * 1000;
    assert_eq!(alloc.billing_units_milli, Some(units));
    assert_eq!(alloc.billing_milli, 2 * units);
    w.now = w.now.plus_s(600);
    let usage = &w.state.accounts.tres_usage[&Scope::Qos("twice".into())];
    assert_eq!(usage.minutes("billing", w.now, 0), 2 * 10 * units / 1000);
}

/// Jobs that had ended came back to the queue beside those that had been submitted in their place.
#[test]
fn jobs_that_have_ended_come_back_within_the_limits_on_those_that_are_submitted() {
    let requeue = |id: JobId| UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let narrow = || JobSpec {
        account: Some("narrow".into()),
        ..spec("x")
    };
    let mut w = limited("maxsubmit=2", "maxsubmitpu=2");
    let ended: Vec<JobId> = (0..4)
        .map(|_| {
            let id = w.submit(narrow());
            w.cancel(1000, target(id));
            id
        })
        .collect();
    let is_ending = w.submit(narrow());
    assert!(w.start(is_ending, &[0]));
    w.cancel(1000, target(is_ending));
    w.submit(narrow());
    w.must(1000, requeue(ended[0]));
    for id in [ended[1], is_ending] {
        assert_eq!(w.refused(1000, requeue(id)), RefusalCode::AccountingPolicy);
    }
    w.must(0, requeue(ended[1]));
    // Tasks of an array count for those after them in the same command.
    let mut w = limited("maxsubmit=4", "maxsubmitpu=2");
    let whole = w.submit(JobSpec {
        array: array(0, 3, None),
        ..narrow()
    });
    for index in 0..3 {
        w.must(1000, change(task(whole, index), &|u| u.nice = Some(1)));
    }
    w.cancel(1000, target(whole));
    for _ in 0..3 {
        w.submit(narrow());
    }
    match w.user(1000, requeue(whole)) {
        Reply::Done { changed, refused } => assert_eq!(changed, 1, "{refused:?}"),
        other => panic!("{other:?}"),
    }
    w.check_replay();
}

/// What a job keeps for the system on whole nodes it pays for.
#[test]
fn cpus_kept_for_the_system_by_a_job_count() {
    let mut config = config();
    config.order.enforce_limits = true;
    config.spec_by_job = true;
    let mut w = World::with(config);
    let mut job = spec("x");
    job.ask.core_spec = Some(1);
    let id = w.submit(job);
    let mut alloc = w.alloc(id, &[0], 1);
    alloc.exclusive = true;
    assert_eq!(alloc.cpus(), 1);
    assert_eq!(w.plan(vec![PlannedStart { job: id, alloc }]), 1);
    let all = w.state.nodes[0].config.job_cpus().len();
    assert!(all > 1);
    let alloc = w.job(id).alloc.clone().unwrap();
    assert_eq!(alloc.cpus_counted, Some(u64::from(all)));
    assert_eq!(alloc.billing_milli, u64::from(all) * 1000);
    let counted = amounts(&alloc);
    assert_eq!(counted.get("cpu"), Some(u64::from(all)));
}

/// A coordinator who had only some QOS of the account took its own list away and had all.
#[test]
fn a_list_of_qos_that_a_coordinator_empties_gives_nothing_more() {
    let qos = |sign: Option<char>, names: &[&str]| TermsAsk {
        qos: Some(ListEdit {
            sign,
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }),
        ..TermsAsk::default()
    };
    let modify = |terms: TermsAsk| {
        let ask = AccountsAsk::ModifyUsers {
            accounts: vec!["a".into()],
            default_account: String::new(),
            admin_level: String::new(),
            terms,
            wckeys: Default::default(),
            partitions: Vec::new(),
        };
        edit(&["u1000"], ask)
    };
    let mut w = World::new();
    for name in ["low", "high"] {
        w.must(0, edit(&[name], AccountsAsk::AddQos(QosAsk::default())));
    }
    w.must(0, edit(&["a"], account("")));
    let list = AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: qos(None, &["normal", "low", "high"]),
    };
    w.must(0, edit(&["a"], list));
    w.must(0, edit(&["u1000"], users("a", qos(None, &["low"]))));
    let coordinator = AccountsAsk::AddCoordinators {
        accounts: vec!["a".into()],
    };
    w.must(0, edit(&["u1000"], coordinator));
    for terms in [qos(Some('-'), &["low"]), qos(None, &[])] {
        assert_eq!(w.refused(1000, modify(terms)), RefusalCode::AccessDenied);
    }
    w.must(0, modify(qos(None, &["low", "high"])));
    w.must(1000, modify(qos(Some('-'), &["high"])));
    w.must(0, modify(qos(Some('-'), &["low"])));
    // What was taken away comes back where nothing is set.
    w.must(0, modify(qos(Some('-'), &["high"])));
    assert_eq!(
        w.refused(1000, modify(qos(None, &[]))),
        RefusalCode::AccessDenied
    );
}

/// Such a coordinator left the account and came back, or made an association for a partition or under another account, which had all.
#[test]
fn new_associations_of_a_coordinator_have_no_more_qos() {
    let qos = |names: &[&str]| TermsAsk {
        qos: Some(ListEdit {
            sign: None,
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }),
        ..TermsAsk::default()
    };
    let mut w = World::new();
    for name in ["low", "high"] {
        w.must(0, edit(&[name], AccountsAsk::AddQos(QosAsk::default())));
    }
    w.must(0, edit(&["a", "b"], account("")));
    let list = |names: &[&str]| AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: qos(names),
    };
    w.must(0, edit(&["a"], list(&["normal", "low", "high"])));
    w.must(0, edit(&["u1000"], users("a", qos(&["low"]))));
    w.must(0, edit(&["u1000"], users("b", TermsAsk::default())));
    let coordinator = AccountsAsk::AddCoordinators {
        accounts: vec!["a".into()],
    };
    w.must(0, edit(&["u1000"], coordinator));
    let leave = AccountsAsk::DeleteUsers {
        accounts: vec!["a".into()],
        partitions: Vec::new(),
    };
    let in_partition = |terms: TermsAsk| {
        let mut ask = users("a", terms);
        if let AccountsAsk::AddUsers { partitions, .. } = &mut ask {
            partitions.push("short".to_owned());
        }
        ask
    };
    w.must(1000, edit(&["below"], account("a")));
    for ask in [
        leave,
        in_partition(TermsAsk::default()),
        users("below", TermsAsk::default()),
        users("below", qos(&["high"])),
    ] {
        let refused = w.refused(1000, edit(&["u1000"], ask));
        assert_eq!(refused, RefusalCode::AccessDenied);
    }
    w.must(1000, edit(&["u1000"], in_partition(qos(&["low"]))));
    w.must(1000, edit(&["u1000"], users("below", qos(&["low"]))));
    w.must(1000, edit(&["u1000"], users("a", TermsAsk::default())));
    // Others have what the account has, as ever.
    w.must(1000, edit(&["u2000"], users("a", TermsAsk::default())));
    // The list of an account below, which an operator has set.
    w.must(0, edit(&["below"], list(&["low"])));
    let refused = w.refused(1000, edit(&["below"], list(&[])));
    assert_eq!(refused, RefusalCode::AccessDenied);
    w.must(0, edit(&["below"], list(&[])));
}

/// A job without a time limit has that of `MaxWall`: with none at all it started, and was ended at once.
#[test]
fn no_job_starts_without_any_time() {
    let mut w = limited("maxsubmit=9", "maxwall=0");
    let few = JobSpec {
        qos: Some("few".into()),
        ..spec("x")
    };
    let id = w.submit(few);
    assert_eq!(waits_for(&w, id), Some("QOSMaxWallDurationPerJobLimit"));
    assert!(!w.start(id, &[0]));
}
