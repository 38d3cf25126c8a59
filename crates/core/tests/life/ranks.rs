//! Which priorities users may give their jobs.

use crate::world::{World, config, exit, spec, target};
use muster_model::command::{
    AccountsAsk, AccountsEdit, JobUpdate, PlannedStart, QosAsk, UserCommand,
};
use muster_model::ids::JobId;
use muster_model::job::Hold;
use muster_model::limits::PRIORITY_TOP;
use muster_model::order_config::Multifactor;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;

fn priority(id: JobId, priority: u32) -> UserCommand {
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(JobUpdate {
            priority: Some(priority),
            ..JobUpdate::default()
        }),
    }
}

fn hold(id: JobId) -> UserCommand {
    priority(id, 0)
}

fn multifactor() -> World {
    let mut config = config();
    config.order.multifactor = Some(Multifactor {
        weight_partition: 1000,
        ..Multifactor::default()
    });
    World::with(config)
}

fn worked_out(w: &World, id: JobId) -> u32 {
    let scale = muster_core::state::Scale::new(&w.state);
    w.state.priority_of(scale.as_ref(), w.job(id))
}

/// A held job was let go with what it would have where jobs are served as they come, which is far above what factors make.
#[test]
fn a_held_job_is_let_go_with_no_more_than_its_factors_make() {
    let mut w = multifactor();
    let usual = w.submit(spec("x"));
    let usual = worked_out(&w, usual);
    assert!((1..10_000).contains(&usual), "{usual}");
    let held_by_update = w.submit(spec("x"));
    w.must(1000, hold(held_by_update));
    let submitted_held = w.submit(JobSpec {
        hold: true,
        ..spec("x")
    });
    let runs = w.submit(spec("x"));
    assert!(w.start(runs, &[0]));
    w.must(1000, hold(runs));
    for id in [held_by_update, submitted_held, runs] {
        for too_much in [PRIORITY_TOP - 100, usual + 1] {
            let refused = w.refused(1000, priority(id, too_much));
            assert_eq!(refused, RefusalCode::AccessDenied, "{id}: {too_much}");
            assert_ne!(w.job(id).hold, Hold::None);
        }
    }
    w.must(1000, priority(held_by_update, usual - 1));
    assert_eq!(worked_out(&w, held_by_update), usual - 1);
    w.must(0, priority(submitted_held, PRIORITY_TOP - 100));
    assert_eq!(worked_out(&w, submitted_held), PRIORITY_TOP - 100);
    // What is let go without a priority has what the others have.
    let id = w.submit(spec("x"));
    w.must(1000, hold(id));
    let release = UserCommand::Release { target: target(id) };
    w.must(1000, release);
    assert_eq!((w.job(id).hold, worked_out(&w, id)), (Hold::None, usual));
}

/// What nobody holds is bounded by what it has, and where jobs are served as they come by its number.
#[test]
fn a_priority_is_bounded_by_the_usual_one() {
    let mut w = World::new();
    let id = w.submit(spec("x"));
    w.must(1000, hold(id));
    let usual = w.job(id).default_priority();
    let refused = w.refused(1000, priority(id, usual + 1));
    assert_eq!(refused, RefusalCode::AccessDenied);
    w.must(1000, priority(id, usual));
    let asking = |priority| JobSpec {
        priority: Some(priority),
        ..spec("x")
    };
    let next = PRIORITY_TOP - 2;
    assert_eq!(w.refusal(asking(next + 1)), RefusalCode::AccessDenied);
    assert!(w.try_submit(0, asking(next + 1)).is_ok());
    let id = w.submit(asking(next - 1));
    assert_eq!(w.job(id).priority, next - 1);
}

fn predicting() -> World {
    let mut config = config();
    config.scheduler_parameters = vec!["predict_run_times".to_owned()];
    let mut w = World::with(config);
    w.now = muster_model::time::Timestamp::from_unix_s(1_790_000_000);
    w
}

fn limited(minutes: u32) -> JobSpec {
    JobSpec {
        time_limit: Some(TimeLimit::Minutes(minutes)),
        ..spec("x")
    }
}

/// Where run times are predicted a job's place follows from when it was submitted: what follows from its number is before all.
#[test]
fn a_priority_that_is_asked_for_is_bounded_where_run_times_are_predicted() {
    let mut w = predicting();
    let first = w.submit(limited(5));
    let first = w.job(first).priority;
    w.now = w.now.plus_s(60);
    let asking = |priority| JobSpec {
        priority: Some(priority),
        ..limited(5)
    };
    for too_much in [PRIORITY_TOP - 100_000, first, first - 59] {
        let refused = w.refusal(asking(too_much));
        assert_eq!(refused, RefusalCode::AccessDenied, "{too_much}");
    }
    let id = w.submit(asking(first - 60));
    assert_eq!(w.job(id).priority, first - 60);
    assert!(w.try_submit(0, asking(PRIORITY_TOP)).is_ok());
}

/// Nothing was predicted of jobs without a limit, which came before all others by their numbers.
#[test]
fn a_job_without_a_limit_does_not_pass_those_that_have_one() {
    let mut w = predicting();
    let endless = w.submit(JobSpec {
        time_limit: Some(TimeLimit::Unlimited),
        ..spec("x")
    });
    let long = w.submit(limited(10_000));
    let short = w.submit(limited(5));
    let of = |id| w.job(id).priority;
    assert_eq!(of(endless), of(long));
    assert!(of(short) > of(long));
    w.must(1000, hold(endless));
    let refused = w.refused(1000, priority(endless, w.job(short).priority));
    assert_eq!(refused, RefusalCode::AccessDenied);
    assert!(w.start(short, &[0]));
    w.finish(short, exit(0).code);
    w.check_replay();
}

/// A job that runs got the priority of its number by a hold and a release: nobody's was above it any more.
#[test]
fn hold_and_release_leave_the_priority_of_a_job_that_runs() {
    for by_update in [false, true] {
        let mut w = multifactor();
        let id = w.submit(spec("x"));
        assert!(w.start(id, &[0]));
        let started = w.job(id).priority;
        assert!((1..10_000).contains(&started), "{started}");
        let held = match by_update {
            true => hold(id),
            false => UserCommand::Hold {
                target: target(id),
                user: false,
            },
        };
        let release = || UserCommand::Release { target: target(id) };
        w.must(1000, held.clone());
        assert_eq!((w.job(id).hold, w.job(id).priority), (Hold::User, started));
        w.must(1000, release());
        assert_eq!((w.job(id).hold, w.job(id).priority), (Hold::None, started));
        assert!(!w.job(id).priority_fixed);
        // Held, it comes back held; what it has then is worked out anew.
        w.must(1000, held.clone());
        let requeue = UserCommand::Requeue {
            target: target(id),
            hold: false,
            special_exit: false,
            incomplete: false,
        };
        w.must(1000, requeue);
        w.must(1000, release());
        assert_eq!(w.job(id).priority, started, "it is cleaned up");
        w.must(1000, held);
        w.release(id);
        assert_eq!((w.job(id).hold, w.job(id).priority), (Hold::User, 0));
        w.must(1000, release());
        assert_eq!(worked_out(&w, id), started);
        assert!(!w.job(id).priority_fixed);
        w.check_replay();
    }
}

fn with_express() -> World {
    let mut config = config();
    config.partitions[1].priority_job_factor = 4;
    config.order.multifactor = Some(Multifactor {
        weight_partition: 1000,
        weight_qos: 5000,
        ..Multifactor::default()
    });
    let mut w = World::with(config);
    let edit = AccountsEdit {
        cluster: String::new(),
        names: vec!["express".into()],
        ask: AccountsAsk::AddQos(QosAsk {
            priority: Some(10),
            ..QosAsk::default()
        }),
    };
    w.must(0, UserCommand::EditAccounts(Box::new(edit)));
    w
}

fn moved(id: JobId, update: JobUpdate) -> UserCommand {
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

/// A priority that was set to what a job had stayed, whatever QOS and partition it moved to.
#[test]
fn a_priority_that_was_set_falls_with_what_it_was_made_of() {
    let express = || JobSpec {
        qos: Some("express".into()),
        ..spec("x")
    };
    let to_normal = |priority| JobUpdate {
        qos: Some("normal".into()),
        priority,
        ..JobUpdate::default()
    };
    let mut w = with_express();
    let usual = w.submit(spec("x"));
    let usual = worked_out(&w, usual);
    let id = w.submit(express());
    let high = worked_out(&w, id);
    assert_eq!(high, usual + 5000);
    w.must(1000, priority(id, high));
    // What it is not made of leaves it.
    let comment = JobUpdate {
        comment: Some("c".into()),
        ..JobUpdate::default()
    };
    w.must(1000, moved(id, comment));
    assert_eq!(worked_out(&w, id), high);
    w.must(1000, moved(id, to_normal(None)));
    assert_eq!(worked_out(&w, id), usual);
    let back = JobUpdate {
        qos: Some("express".into()),
        ..JobUpdate::default()
    };
    w.must(1000, moved(id, back));
    assert_eq!(worked_out(&w, id), usual, "it does not rise");
    // Both in one update, and of a job that is held.
    for held in [false, true] {
        let id = w.submit(express());
        if held {
            w.must(1000, hold(id));
        }
        w.must(1000, moved(id, to_normal(Some(high))));
        assert_eq!(worked_out(&w, id), usual, "{held}");
    }
    // What an operator has added stays; what an operator moves keeps all.
    let id = w.submit(express());
    w.must(0, priority(id, high + 300));
    w.must(1000, moved(id, to_normal(None)));
    assert_eq!(worked_out(&w, id), usual + 300);
    let id = w.submit(express());
    w.must(1000, priority(id, high));
    w.must(0, moved(id, to_normal(None)));
    assert_eq!(worked_out(&w, id), high);
    w.check_replay();
}

/// A priority that is set is had in all partitions: no more than in the lowest of those that the job names.
#[test]
fn a_priority_that_is_set_is_bounded_in_each_partition() {
    let mut w = with_express();
    let of = |names: &[&str]| JobSpec {
        partitions: names.iter().map(|name| (*name).to_owned()).collect(),
        ..spec("x")
    };
    let low = w.submit(of(&["batch"]));
    let low = worked_out(&w, low);
    let id = w.submit(of(&["short", "batch"]));
    let high = worked_out(&w, id);
    assert!(high > low);
    let refused = w.refused(1000, priority(id, low + 1));
    assert_eq!(refused, RefusalCode::AccessDenied);
    w.must(1000, priority(id, low));
    // Set while it names the better one alone.
    let id = w.submit(of(&["short"]));
    w.must(1000, priority(id, high));
    let both = JobUpdate {
        partitions: Some(vec!["short".into(), "batch".into()]),
        ..JobUpdate::default()
    };
    w.must(1000, moved(id, both));
    assert_eq!(worked_out(&w, id), low);
}

/// Who asked for many nodes and set the priority to what that makes kept it with one.
#[test]
fn a_priority_that_was_set_falls_with_the_size_of_the_job() {
    let mut config = config();
    config.order.multifactor = Some(Multifactor {
        weight_job_size: 10_000,
        ..Multifactor::default()
    });
    let mut w = World::with(config);
    let wide = || {
        let mut wide = spec("x");
        wide.ask.min_nodes = 2;
        wide.ask.ntasks = Some(4);
        wide
    };
    let usual = w.submit(spec("x"));
    let usual = worked_out(&w, usual);
    let narrow = |priority| JobUpdate {
        ask: Some(spec("x").ask.clone()),
        priority,
        ..JobUpdate::default()
    };
    let id = w.submit(wide());
    let high = worked_out(&w, id);
    assert!(high > usual + 1000, "{high} {usual}");
    w.must(1000, priority(id, high));
    w.must(1000, moved(id, narrow(None)));
    assert_eq!(worked_out(&w, id), usual);
    let id = w.submit(wide());
    w.must(1000, moved(id, narrow(Some(high))));
    assert_eq!(worked_out(&w, id), usual);
    // An operator's stays.
    let id = w.submit(wide());
    w.must(0, moved(id, narrow(Some(high))));
    assert_eq!(worked_out(&w, id), high);
    w.check_replay();
}

/// A job that had started in the better of its partitions, and whose priority was set to what it had there, had that in all when it was
/// requeued.
#[test]
fn a_priority_that_is_set_while_a_job_runs_is_bounded_as_in_the_queue() {
    let mut w = with_express();
    let both = || JobSpec {
        partitions: vec!["short".into(), "batch".into()],
        ..spec("x")
    };
    let low = w.submit(spec("x"));
    let low = worked_out(&w, low);
    let id = w.submit(both());
    let mut alloc = w.alloc(id, &[0], 1);
    alloc.partition = "short".into();
    assert_eq!(w.plan(vec![PlannedStart { job: id, alloc }]), 1);
    let high = w.job(id).priority;
    assert!(high > low, "{high} {low}");
    let refused = w.refused(1000, priority(id, high));
    assert_eq!(refused, RefusalCode::AccessDenied);
    w.must(1000, priority(id, low));
    assert_eq!(w.job(id).priority, low);
}

/// Each job that was put on top got one more than the first of its owner's: in turns they came before everybody's.
#[test]
fn jobs_on_top_come_before_nobody_elses() {
    let mut config = config();
    config.scheduler_parameters = vec!["enable_user_top".into()];
    config.order.multifactor = Some(Multifactor {
        weight_partition: 1000,
        ..Multifactor::default()
    });
    let mut w = World::with(config);
    let other = w.try_submit(7, spec("x")).expect("accepted");
    let ids: Vec<JobId> = (0..3).map(|_| w.submit(spec("x"))).collect();
    let most = worked_out(&w, ids[0]);
    let top = |id| UserCommand::Top { target: target(id) };
    for round in 0..12 {
        let first = ids[2 - round % 3];
        w.must(1000, top(first));
        let of = |id: &JobId| worked_out(&w, *id);
        assert_eq!(of(&first), most);
        assert!(ids.iter().all(|id| *id == first || of(id) < most));
        // What is first stays as it is.
        let before: Vec<u32> = ids.iter().map(of).collect();
        w.must(1000, top(first));
        let after: Vec<u32> = ids.iter().map(|id| worked_out(&w, *id)).collect();
        assert_eq!(before, after);
    }
    assert_eq!(worked_out(&w, other), most);
    w.check_replay();
}

fn with_top(multifactor: Multifactor) -> World {
    let mut config = config();
    config.scheduler_parameters = vec!["enable_user_top".into()];
    config.order.multifactor = Some(multifactor);
    World::with(config)
}

fn top(id: JobId) -> UserCommand {
    UserCommand::Top { target: target(id) }
}

fn with_nice(nice: i32) -> JobSpec {
    JobSpec { nice, ..spec("x") }
}

/// Nice values of jobs fell by what rose elsewhere: of jobs that were of no use any more, whose priority was set, or that grew
/// afterwards. A job without a nice value of its own got one below zero.
#[test]
fn no_job_on_top_has_more_than_its_own_priority() {
    let by_size = Multifactor {
        weight_partition: 1000,
        weight_job_size: 10_000,
        ..Multifactor::default()
    };
    let mut w = with_top(by_size.clone());
    // Throwaways pay for nobody.
    let usual = w.submit(spec("x"));
    let most = worked_out(&w, usual);
    let slow: Vec<JobId> = (0..4).map(|_| w.submit(with_nice(90))).collect();
    for id in &slow {
        w.must(1000, top(*id));
        assert_eq!(worked_out(&w, *id), most - 90);
        assert!(worked_out(&w, usual) < most - 90);
    }
    // What was taken from it comes back, and no more.
    w.must(1000, top(usual));
    assert_eq!(worked_out(&w, usual), most);
    assert_eq!(w.job(usual).spec.nice, 0);

    // A job that is small on top of a large one, and grows.
    let mut w = with_top(by_size);
    let mut wide = spec("x");
    wide.ask.min_nodes = 2;
    wide.ask.ntasks = Some(4);
    let large = w.submit(wide.clone());
    let most = worked_out(&w, large);
    let small = w.submit(spec("x"));
    assert!(worked_out(&w, small) < most);
    w.must(1000, top(small));
    let grown = JobUpdate {
        ask: Some(wide.ask.clone()),
        ..JobUpdate::default()
    };
    w.must(1000, moved(small, grown));
    assert_eq!(worked_out(&w, small), most);
    w.check_replay();
}

/// Each time that a job was passed while its priority was set, in which its nice value does not count, the other gained for nothing.
#[test]
fn a_priority_that_was_set_has_no_part_in_an_order_by_nice_values() {
    let mut w = with_top(Multifactor {
        weight_partition: 1000,
        ..Multifactor::default()
    });
    let ids: Vec<JobId> = (0..2).map(|_| w.submit(spec("x"))).collect();
    let most = worked_out(&w, ids[0]);
    for _ in 0..3 {
        w.must(1000, priority(ids[0], most));
        w.must(1000, priority(ids[1], 1));
        assert_eq!(w.refused(1000, top(ids[1])), RefusalCode::NotSupported);
        for held in [
            hold(ids[1]),
            UserCommand::Release {
                target: target(ids[1]),
            },
        ] {
            w.must(1000, held);
        }
        w.must(1000, top(ids[1]));
        assert_eq!(w.job(ids[0]).spec.nice, 0);
        assert_eq!(worked_out(&w, ids[1]), most);
    }
}

/// What `top` is to have added is nothing that a submission says, and a nice value that is set is the job's own.
#[test]
fn what_top_gives_back_is_what_it_took() {
    let mut w = with_top(Multifactor {
        weight_partition: 1000,
        ..Multifactor::default()
    });
    let usual = w.submit(spec("x"));
    let most = worked_out(&w, usual);
    let forged = w.submit(JobSpec {
        nice_of_top: 500,
        ..with_nice(90)
    });
    w.must(1000, top(forged));
    assert_eq!(worked_out(&w, forged), most - 90);
    let nice = |nice| JobUpdate {
        nice: Some(nice),
        ..JobUpdate::default()
    };
    assert!(w.job(usual).spec.nice_of_top > 0);
    w.must(0, moved(usual, nice(700)));
    w.must(1000, top(usual));
    assert_eq!(w.job(usual).spec.nice, 700);
    assert_eq!(worked_out(&w, usual), most - 700);
}

/// What the nice value of a job hides at the lowest priority was had again after a move: both sides came out as 1.
#[test]
fn a_priority_that_was_set_falls_whatever_the_nice_value_is() {
    let mut w = with_express();
    let usual = w.submit(spec("x"));
    let usual = worked_out(&w, usual);
    let id = w.submit(JobSpec {
        qos: Some("express".into()),
        ..spec("x")
    });
    let high = worked_out(&w, id);
    w.must(1000, priority(id, high));
    let nice = JobUpdate {
        nice: Some(i32::MAX - 2),
        ..JobUpdate::default()
    };
    // With a priority that is set in the same update, as one without another moves no priority that was set.
    w.must(
        1000,
        moved(
            id,
            JobUpdate {
                priority: Some(high),
                ..nice
            },
        ),
    );
    assert_eq!(worked_out(&w, id), high);
    let to_normal = JobUpdate {
        qos: Some("normal".into()),
        ..JobUpdate::default()
    };
    w.must(1000, moved(id, to_normal));
    assert_eq!(worked_out(&w, id), usual);
}

/// Where the size counts in relation to the time limit, a job kept the priority of the limit that it no longer had.
#[test]
fn a_priority_that_was_set_falls_with_the_time_limit() {
    let mut config = config();
    config.order.multifactor = Some(Multifactor {
        weight_job_size: 100_000,
        small_relative_to_time: true,
        favor_small: true,
        ..Multifactor::default()
    });
    let mut w = World::with(config);
    let low = w.submit(limited(1));
    let low = worked_out(&w, low);
    let shorter = |priority| JobUpdate {
        time_limit: Some(TimeLimit::Minutes(1)),
        priority,
        ..JobUpdate::default()
    };
    for in_one in [false, true] {
        let id = w.submit(limited(1000));
        let high = worked_out(&w, id);
        assert!(high > low + 1000, "{high} {low}");
        if in_one {
            w.must(1000, moved(id, shorter(Some(high))));
        } else {
            w.must(1000, priority(id, high));
            w.must(1000, moved(id, shorter(None)));
        }
        assert_eq!(worked_out(&w, id), low, "{in_one}");
    }
}

/// What the factors of a job add up to, which the scheduler orders jobs by.
fn sum(w: &World, id: JobId) -> f64 {
    let scale = muster_core::state::Scale::new(&w.state).expect("priorities are worked out");
    let partition = w.state.partition("batch").expect("it is there");
    let factors = scale.factors(&w.state, w.job(id), partition);
    factors.age + factors.without_age()
}

/// Nice values took jobs no lower than to the lowest priority, at which they kept their order: `top` was done without effect.
#[test]
fn jobs_on_top_come_first_where_all_have_the_lowest_priority() {
    let mut w = with_top(Multifactor::default());
    let ids: Vec<JobId> = (0..3).map(|_| w.submit(spec("x"))).collect();
    for round in 0..4 {
        let first = ids[2 - round % 3];
        let before = sum(&w, first);
        w.must(1000, top(first));
        assert!(sum(&w, first) >= before);
        for other in ids.iter().filter(|id| **id != first) {
            assert!(sum(&w, *other) <= sum(&w, first) - 1.0, "{round}");
        }
        let before: Vec<i32> = ids.iter().map(|id| w.job(*id).spec.nice).collect();
        w.must(1000, top(first));
        let after: Vec<i32> = ids.iter().map(|id| w.job(*id).spec.nice).collect();
        assert_eq!(before, after);
    }
    // A nice value that is more than all else.
    let slow = w.submit(with_nice(500));
    w.must(1000, top(slow));
    assert_eq!(sum(&w, slow), -500.0);
    assert!(ids.iter().all(|id| sum(&w, *id) <= -501.0));
    w.check_replay();
}

/// A job that has waited was taken as far as the lowest priority, which is more than one has that has not waited.
#[test]
fn a_fresh_job_on_top_comes_before_those_that_have_waited() {
    let mut w = with_top(Multifactor {
        weight_age: 1000,
        max_age_s: 1000,
        calc_period_s: 60,
        ..Multifactor::default()
    });
    w.tick();
    let old: Vec<JobId> = (0..3)
        .map(|_| {
            w.pass(100);
            w.submit(spec("x"))
        })
        .collect();
    w.pass(120);
    let fresh = w.submit(spec("x"));
    assert!(sum(&w, old[0]) > sum(&w, old[1]) + 50.0);
    assert!(sum(&w, old[2]) > sum(&w, fresh) + 50.0);
    w.must(1000, top(fresh));
    for _ in 0..3 {
        let sums: Vec<f64> = old.iter().map(|id| sum(&w, *id)).collect();
        assert!(sums[0] <= sum(&w, fresh) - 1.0, "{sums:?}");
        assert!(sums.is_sorted_by(|a, b| a > b), "{sums:?}");
        w.pass(60);
    }
    w.check_replay();
}
