//! Limits on jobs that are submitted, where components of heterogeneous jobs that ended alone come back to the queue with their leader.

use crate::limit_use::limited;
use crate::world::{SCRIPT, World, allocation, spec, target};
use muster_model::command::{
    JobTarget, KeptPartitions, NodeCommand, PlannedStart, Reply, UserCommand,
};
use muster_model::config::ExitCodeRange;
use muster_model::grid_engine;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Phase};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

fn narrow(spec: JobSpec) -> JobSpec {
    JobSpec {
        account: Some("narrow".into()),
        ..spec
    }
}

fn requeue(id: JobId) -> UserCommand {
    UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    }
}

/// A heterogeneous job of three components runs, two of which its owner has cancelled; the nodes of the last are still being cleaned.
/// There is room for three jobs.
fn with_ended_components() -> (World, [JobId; 3]) {
    let mut w = limited("maxsubmit=3", "maxsubmitpu=2");
    let mut config = (**w.state.config.as_ref().expect("configured")).clone();
    config.requeue_exit = vec![ExitCodeRange { first: 3, last: 3 }];
    w.configure(config, KeptPartitions::File);
    let component = || JobSpec {
        interactive: false,
        ..allocation("x")
    };
    let mut leader = spec("x");
    let mark = (grid_engine::COMMAND.to_owned(), "qsub".to_owned());
    leader.shown.push(mark);
    let command = UserCommand::SubmitHet {
        specs: [leader, component(), component()].map(narrow).into(),
        blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
        test_only: false,
    };
    let Reply::Submitted { id, .. } = w.user(1000, command) else {
        panic!("refused");
    };
    let ids = [0, 1, 2].map(|offset| JobId(id.0 + offset));
    let starts = (ids.iter().zip(0..)).map(|(id, node)| PlannedStart {
        job: *id,
        alloc: w.alloc(*id, &[node], 1),
    });
    let starts = starts.collect();
    assert_eq!(w.plan(starts), 3);
    for offset in [1, 2] {
        let component = JobTarget {
            component: Some(offset),
            ..target(id)
        };
        w.cancel(1000, component);
    }
    w.release(ids[1]);
    assert_eq!(
        ids.map(|id| w.job(id).phase()),
        [Phase::Running, Phase::Ended, Phase::Completing]
    );
    (w, ids)
}

fn states(w: &World, ids: [JobId; 3]) -> [JobState; 3] {
    ids.map(|id| w.job(id).state)
}

/// Exit codes of `RequeueExit` and of scripts of Grid Engine brought back components in whose place others had been submitted, time
/// after time.
#[test]
fn components_that_ended_do_not_come_back_by_an_exit_code_where_there_is_no_room() {
    for code in [3, 99] {
        for (others, comes_back) in [(0, true), (1, false), (2, false)] {
            let (mut w, ids) = with_ended_components();
            for _ in 0..others {
                w.submit(narrow(spec("y")));
            }
            w.end_batch(ids[0], code);
            w.release(ids[0]);
            w.release(ids[2]);
            let (state, phase) = match comes_back {
                true => (JobState::Pending, Phase::Pending),
                false => (JobState::Failed, Phase::Ended),
            };
            assert_eq!((w.job(ids[0]).state, w.job(ids[0]).phase()), (state, phase));
            let is_back = states(&w, ids) == [JobState::Pending; 3];
            assert_eq!(is_back, comes_back, "{code}, {others} others");
            w.check_replay();
        }
    }
}

/// A command that puts a stopped job back asks for that room, as it does of one that runs.
#[test]
fn components_that_ended_come_back_by_a_command_where_there_is_room() {
    for is_suspended in [false, true] {
        let (mut w, ids) = with_ended_components();
        let waits = w.submit(narrow(spec("y")));
        if is_suspended {
            let suspend = UserCommand::Suspend {
                target: target(ids[0]),
            };
            w.must(0, suspend);
            assert_eq!(w.job(ids[0]).phase(), Phase::Suspended);
        }
        let refused = w.refused(1000, requeue(ids[0]));
        assert_eq!(refused, RefusalCode::AccountingPolicy);
        w.cancel(1000, target(waits));
        w.must(1000, requeue(ids[0]));
        w.release(ids[0]);
        w.release(ids[2]);
        assert_eq!(states(&w, ids), [JobState::Pending; 3]);
        w.check_replay();
    }
}

/// A lost node is no act of the owner's.
#[test]
fn a_lost_node_brings_components_back_whatever_was_submitted() {
    let (mut w, ids) = with_ended_components();
    w.submit(narrow(spec("y")));
    let (job, attempt) = (ids[0], w.job(ids[0]).attempt);
    w.node(0, NodeCommand::Vanished { job, attempt });
    w.release(ids[0]);
    w.release(ids[2]);
    assert_eq!(states(&w, ids), [JobState::Pending; 3]);
}
