//! Whom a credential of another host leads where.

use super::*;
use crate::stepd_reuse::socket_path;
use muster_proto::hello::JobCredential;
use std::path::Path;

/// Who has the key of a job could speak for any name, and had a new share of this node's memory with each.
#[test]
fn the_agents_of_a_job_speak_for_its_other_nodes() {
    let mut bench = Bench::with_job(1);
    let peer = |bench: &Bench, job: JobId, node: &str| {
        let node = node.to_owned();
        let peer = bench.agent.channel_peer(&JobCredential::Node { job, node });
        peer.map(|peer| peer.target)
    };
    let target = |node: &str| Ok(ChannelTarget::AgentOf(RUN.job, node.to_owned()));
    assert_eq!(peer(&bench, RUN.job, "n2"), target("n2"));
    for other in ["n1", "n3", "", "n2 "] {
        let refused = peer(&bench, RUN.job, other);
        assert_eq!(refused, Err(ChannelRefusal::NoNode), "{other}");
    }
    let unknown = peer(&bench, JobId(8), "n2");
    assert_eq!(unknown, Err(ChannelRefusal::NotHere), "it may come");
    // A node that the job has left has to say how its steps have ended.
    let smaller = JobGrant {
        resizes: 1,
        ..grant_of(1, 0)
    };
    bench.order(Order::Launch(Box::new(smaller)));
    assert_eq!(peer(&bench, RUN.job, "n2"), target("n2"));
    assert_eq!(peer(&bench, RUN.job, "n3"), Err(ChannelRefusal::NoNode));
}

/// Another agent knew the smaller grant alone, and the step that the node was part of never ended.
#[test]
fn a_node_that_the_job_gave_up_reports_to_an_agent_that_came_later() {
    let mut old = Bench::with_job(1);
    old.create(1, step_spec(2));
    let mut kept = BTreeMap::new();
    for command in &old.commands {
        if let LauncherCommand::Keep { key, bytes, .. } = command {
            kept.insert(*key, bytes.clone());
        }
    }
    let smaller = JobGrant {
        resizes: 1,
        ..grant_of(1, 0)
    };
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(vec![KnownJob {
        grant: Some(encode(&smaller)),
        kept: entries(kept),
        ..KnownJob::new(RUN)
    }]);
    let peer = |node: &str| {
        let (job, node) = (RUN.job, node.to_owned());
        let peer = bench.agent.channel_peer(&JobCredential::Node { job, node });
        peer.map(|peer| peer.target)
    };
    assert_eq!(
        peer("n2"),
        Ok(ChannelTarget::AgentOf(RUN.job, "n2".to_owned()))
    );
    for other in ["n1", "n3"] {
        assert_eq!(peer(other), Err(ChannelRefusal::NoNode), "{other}");
    }
}

/// Who had shown no key had a wrong name looked for in all nodes of all steps that go on.
#[test]
fn looking_for_a_wrong_node_takes_as_long_however_many_steps_there_are() {
    const NODES: u32 = 64;
    let mut old = Bench::of_node(1);
    old.connect_launcher(Vec::new());
    old.connect_controller();
    old.order(Order::Launch(Box::new(grant_of(NODES, 0))));
    old.create(1, step_spec(NODES));
    let record = old.commands.iter().find_map(|command| match command {
        LauncherCommand::Keep { key: 0, bytes, .. } => Some(bytes.clone()),
        _ => None,
    });
    let record = record.unwrap();
    let with_steps = |count: u32| {
        let mut bench = Bench::of_node(1);
        let smaller = JobGrant {
            resizes: 1,
            ..grant_of(NODES / 2, 0)
        };
        bench.connect_launcher(vec![KnownJob {
            grant: Some(encode(&smaller)),
            kept: entries((0..count).map(|step| (step, record.clone()))),
            ..KnownJob::new(RUN)
        }]);
        assert_eq!(bench.agent.steps.led.states().len(), count as usize);
        bench
    };
    let took = |bench: &Bench| {
        let credential = |node: &str| JobCredential::Node {
            job: RUN.job,
            node: node.to_owned(),
        };
        assert!(bench.agent.channel_peer(&credential("n64")).is_ok());
        let wrong = credential("n65");
        let times = (0..50).map(|_| {
            let began = std::time::Instant::now();
            for _ in 0..20 {
                let refused = bench.agent.channel_peer(&wrong);
                assert_eq!(refused, Err(ChannelRefusal::NoNode));
            }
            began.elapsed()
        });
        times.min().unwrap()
    };
    let (few, many) = (took(&with_steps(1)), took(&with_steps(500)));
    assert!(many < few * 10, "{few:?} with one step, {many:?} with many");
}

/// The relay may connect to all step daemons of the node: the key of a step led to those of others, whose connections and memory it
/// could take.
#[test]
fn the_key_of_a_step_leads_to_step_daemons_of_its_job() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(1));
    bench.start_ready();
    let peer = |path: &str| {
        bench.agent.channel_peer(&JobCredential::Step {
            job: RUN.job,
            step: StepNo(0),
            path: path.to_owned(),
        })
    };
    let socket = |job_key: &[u8], step| {
        let path = socket_path(Path::new("/spool/n1"), job_key, StepNo(step));
        path.display().to_string()
    };
    let own = [socket(&KEY, 0), socket(&KEY, 12)];
    let earlier = ["/spool/n1/step-7.0.sock", "/spool/n1/step-7.12.sock"];
    for own in own.into_iter().chain(earlier.map(str::to_owned)) {
        let target = peer(&own).map(|peer| peer.target);
        assert_eq!(target, Ok(ChannelTarget::Stepd(own)));
    }
    let of_another = socket(&[8; 16], 0);
    assert_eq!(peer(&of_another), Err(ChannelRefusal::NoSocket));
    for other in [
        "step-8.0.sock",
        "step-77.0.sock",
        "step-7.sock",
        "step-7..sock",
        "step-.sock",
        "step-7.0.end",
        "step-7.0/../step-8.0.sock",
        "step-7.0.sock/x.sock",
        "run/step-7.0.sock",
    ] {
        let path = format!("/spool/n1/{other}");
        assert_eq!(peer(&path), Err(ChannelRefusal::NoSocket), "{path}");
    }
    let elsewhere = peer("/spool/n2/step-7.0.sock");
    assert_eq!(elsewhere, Err(ChannelRefusal::NoSocket));
}
