//! Short texts that stand for long ones: lists of nodes, patterns of files, bindings of tasks. What expands them has as much
//! memory as before, which is looked at afterwards, and another user's listing does not wait.

use super::{FIRST_NODE, clear, finished, must_submit, or_end, running_job, small_job};
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply};
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, ROOT, VICTIM, as_user};
use crate::target::Target;
use muster_model::command::{JobUpdate, UserCommand};
use muster_model::ids::JobId;
use muster_model::spec::{JobSpec, StdioSpec};
use muster_proto::client::RequestBody;
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use std::time::{Duration, Instant};

/// Time limit for another user's listing afterwards, in a debug build on a busy machine.
const LISTING_MAX: Duration = Duration::from_secs(10);
/// A script that ends at once.
const SCRIPT: &str = "#!/bin/sh\nexit 0\n";
/// Times that overflow what there is already.
const MOST: &str = "18446744073709551615";

/// As many bytes as a text may have, for each of 20,000 names.
fn long_names() -> String {
    format!("{}[0-19999]", "x".repeat(60_000))
}

fn update(job: JobId, update: JobUpdate) -> RequestBody {
    RequestBody::Command(Box::new(UserCommand::UpdateJob {
        target: requests::target(job),
        update: Box::new(update),
    }))
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Nodes: names of 60 KB, and one node 200,000 times.
pub(super) fn long_node_lists(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let info = or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let again = format!("{FIRST_NODE},").repeat(160_000);
    for list in [long_names(), again] {
        let mut named = small_job(target, ATTACKER);
        let mut excluded = named.clone();
        named.ask.nodelist = Some(list.clone());
        excluded.ask.exclude = Some(list.clone());
        let changed = JobUpdate {
            nodelist: Some(list),
            ..JobUpdate::default()
        };
        let all = [
            ("--nodelist", requests::submit(named, SCRIPT)),
            ("--exclude", requests::submit(excluded, SCRIPT)),
            ("NodeList=", update(info.job.id, changed)),
        ];
        for (what, body) in all {
            let answer = target.ask(ATTACKER, body);
            outcome.must_refuse(&format!("{what} of long or many names"), &answer);
        }
    }
    let base = || requests::step(info.job.id, &["true"]);
    let steps = [
        StepSpec {
            nodelist: Some(long_names()),
            ..base()
        },
        StepSpec {
            exclude: Some(long_names()),
            ..base()
        },
    ];
    for spec in steps {
        let answer = create(target, spec);
        outcome.must_refuse("a step on nodes of long names", &answer);
    }
    finished(target, outcome)
}

/// `%x` again and again, for a job with a long name.
pub(super) fn growing_patterns(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let pattern = |symbols: usize| StdioSpec {
        stdin: None,
        stdout: Some("%x".repeat(symbols)),
        stderr: Some("%x".repeat(symbols)),
        append: None,
    };
    let job = |symbols: usize| JobSpec {
        name: "x".repeat(1024),
        stdio: pattern(symbols),
        ..small_job(target, ATTACKER)
    };
    let answer = target.ask(ATTACKER, requests::submit(job(32_000), SCRIPT));
    outcome.must_refuse("patterns of 64 KB", &answer);
    let held = JobSpec {
        hold: true,
        ..job(2000)
    };
    let held = or_end!(
        must_submit(target, ATTACKER, held, SCRIPT, &mut outcome),
        target,
        outcome
    );
    let longer = JobUpdate {
        stdio: Some(pattern(32_000)),
        ..JobUpdate::default()
    };
    let answer = target.ask(ATTACKER, update(held, longer));
    outcome.must_refuse("patterns of 64 KB in an update", &answer);
    let started = Instant::now();
    let shown = target.run(VICTIM, &format!("scontrol show job {held}"));
    let is_short = shown.out.len() < 64 << 10 && started.elapsed() < LISTING_MAX;
    outcome.require(is_short, "a pattern grows where a job is shown");
    let failing = or_end!(
        must_submit(target, ATTACKER, job(2000), SCRIPT, &mut outcome),
        target,
        outcome
    );
    let end = target.ended(failing);
    outcome.require(
        end.as_deref().is_some_and(|end| end != "COMPLETED"),
        "a job with files of 2 MB names did not fail",
    );
    clear(target, ATTACKER, &mut outcome);
    let drained = target.run(ROOT, "sinfo -h -N -t drain,down -o %N").out;
    outcome.require(drained.is_empty(), "a node was blamed for a long pattern");
    outcome
}

/// Lists of masks that are repeated: of a job, whose environment the launcher makes, and of steps.
pub(super) fn repeated_bindings(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let high = format!("0x8{}", "0".repeat(16_000));
    let lists = [
        format!("{high}*65536"),
        format!("0x1*65535,{high}"),
        format!("0x1,0x1*{MOST}"),
    ];
    for list in &lists {
        let mut spec = small_job(target, ATTACKER);
        spec.shown
            .push(("mem-bind".to_owned(), format!("mask_mem:{list}")));
        let answer = target.ask(ATTACKER, requests::submit(spec, SCRIPT));
        outcome.count("a job with repeated masks", &answer);
        if let Some(job) = super::submitted(&answer) {
            target.ended(job);
        }
    }
    let info = or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let base = || requests::step(info.job.id, &["true"]);
    for list in &lists {
        let by_memory = StepSpec {
            mem_bind: Some(format!("mask_mem:{list}")),
            ..base()
        };
        let by_cpus = StepSpec {
            cpu_bind: Some(format!("mask_cpu:{list}")),
            ..base()
        };
        for spec in [by_memory, by_cpus] {
            outcome.count("a step with repeated masks", &create(target, spec));
        }
    }
    for gpu_bind in [
        "per_task:4294967295".to_owned(),
        format!("map_gpu:0,0*{MOST}"),
    ] {
        let spec = StepSpec {
            gpu_bind: text(&gpu_bind),
            ntasks: Some(2),
            overcommit: true,
            ..base()
        };
        outcome.count("a step with repeated devices", &create(target, spec));
    }
    finished(target, outcome)
}

/// Asks the agent of the first node for a step.
fn create(target: &Target, spec: StepSpec) -> PeerReply<AgentReply> {
    let agent = target.agent(FIRST_NODE);
    let frame = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
    as_user(ATTACKER, || match Peer::connect(&agent) {
        Ok(mut peer) => peer.ask::<AgentReply>(&frame),
        Err(_) => PeerReply::Closed,
    })
}
