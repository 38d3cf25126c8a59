//! What users ask for faster or larger than nodes can take: it is counted what the agent keeps of it.

use super::*;
use muster_model::spec::StdioSpec;

/// Steps of which each has all the texts that it may have, none of which has started.
#[test]
fn records_of_steps_have_bounded_lines_and_are_bounded_by_user() {
    let mut bench = Bench::with_job(1);
    let path = Some("p".repeat(60 << 10));
    let spec = StepSpec {
        overlap: true,
        submit_line: "y".repeat(960 << 10),
        stdio: StdioSpec {
            stdin: path.clone(),
            stdout: path.clone(),
            stderr: path,
            ..StdioSpec::default()
        },
        ..step_spec(1)
    };
    let mut count = 0;
    let refused = loop {
        let request = bench.create(count, spec.clone());
        if let [AgentReply::Refused(refusal)] = bench.replies_to(request)[..] {
            break refusal.clone();
        }
        count += 1;
    };
    assert_eq!(refused.code, RefusalCode::StepLimit);
    let steps: Vec<usize> = bench
        .commands
        .iter()
        .filter_map(|command| match command {
            LauncherCommand::Keep { key, bytes, .. } if *key < 1 << 30 => Some(bytes.len()),
            _ => None,
        })
        .collect();
    assert!(steps.iter().all(|bytes| *bytes < 190 << 10));
    let all: usize = steps.iter().sum();
    assert!((31 << 20..=32 << 20).contains(&all), "{all}");
}
