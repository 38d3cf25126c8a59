//! Short texts that stand for long ones: what a request makes of them must be refused before there is any of it.

use super::submitted;
use crate::world::{World, spec, target, user};
use muster_model::command::{JobUpdate, NodeUpdate, Reply, UserCommand};
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, ResourceAsk, StdioSpec};

/// 60 KB for each of 20,000 names.
fn long_names() -> String {
    format!("{}[0-19999]", "x".repeat(60_000))
}

fn must_refuse(reply: Reply, says: &str) {
    let Reply::Refused(Refusal { code, detail, .. }) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(code, RefusalCode::InvalidNode, "{detail}");
    assert!(detail.contains(says), "{detail:.200}");
    assert!(detail.len() < 1000, "{} bytes", detail.len());
}

#[test]
fn names_of_nodes_that_are_too_long_are_refused_before_they_are_expanded() {
    let mut world = World::new();
    let asks = [
        ResourceAsk {
            nodelist: Some(long_names()),
            ..spec("j").ask
        },
        ResourceAsk {
            exclude: Some(long_names()),
            ..spec("j").ask
        },
    ];
    for ask in asks {
        let job = JobSpec { ask, ..spec("j") };
        let refused = submitted(&mut world, user(1000), job).unwrap_err();
        must_refuse(Reply::Refused(refused), "255 bytes");
    }
    let update = UserCommand::UpdateNodes {
        nodes: long_names(),
        update: NodeUpdate::default(),
    };
    must_refuse(world.user(0, update), "255 bytes");
}

#[test]
fn a_list_names_no_more_than_twice_the_nodes_of_a_running_job() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1, 2]));
    let name = |job: &Job| job.alloc.as_ref().unwrap().nodes[0].name.clone();
    let first = name(world.job(id));
    for (list, says) in [
        (format!("{first},").repeat(60_000), "1024 names"),
        (long_names(), "255 bytes"),
        (
            "unknown[1-1000]".to_owned(),
            "unknown1 is not in the configuration",
        ),
    ] {
        let update = JobUpdate {
            nodelist: Some(list),
            ..JobUpdate::default()
        };
        let update = UserCommand::UpdateJob {
            target: target(id),
            update: Box::new(update),
        };
        must_refuse(world.user(1000, update), says);
    }
}

#[test]
fn a_pattern_of_a_file_is_no_longer_than_a_path() {
    let mut world = World::new();
    let stdio = |bytes: usize| StdioSpec {
        stdout: Some("%x".repeat(bytes / 2)),
        ..StdioSpec::default()
    };
    let job = |bytes| JobSpec {
        hold: true,
        stdio: stdio(bytes),
        ..spec("j")
    };
    let refused = submitted(&mut world, user(1000), job(4098)).unwrap_err();
    assert_eq!(refused.code, RefusalCode::TooLong);
    let id = submitted(&mut world, user(1000), job(4096)).unwrap();
    for (bytes, is_refused) in [(4098, true), (4096, false)] {
        let update = JobUpdate {
            stdio: Some(stdio(bytes)),
            ..JobUpdate::default()
        };
        let update = UserCommand::UpdateJob {
            target: target(id),
            update: Box::new(update),
        };
        let reply = world.user(1000, update);
        assert_eq!(matches!(reply, Reply::Refused(_)), is_refused, "{reply:?}");
    }
    world.check_replay();
}
