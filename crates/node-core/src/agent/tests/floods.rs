//! What users ask for faster or larger than nodes can take: it is counted what the agent keeps of it.

use super::*;
use muster_model::spec::StdioSpec;

/// Steps of which each has all the texts that it may have, none of which has started.
#[test]
fn records_of_steps_have_bounded_lines_and_are_bounded_by_user() {
    let mut bench = Bench::with_job(1);
    let path = Some("p".repeat(4 << 10));
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
    assert!(steps.iter().all(|bytes| *bytes < 18 << 10));
    let all: usize = steps.iter().sum();
    assert!((31 << 20..=32 << 20).contains(&all), "{all}");
}

/// A prolog runs, and the launcher answers for no step: what was asked for is held there, however soon the clients go.
#[test]
fn bytes_count_until_the_launcher_has_answered() {
    let mut bench = Bench::with_job(1);
    let spec = StepSpec {
        overlap: true,
        ..step_spec(1)
    };
    let requests: Vec<RequestId> = (0..6).map(|n| bench.create(n, spec.clone())).collect();
    assert_eq!(bench.starts.len(), 6);
    for conn in 0..3 {
        bench.event(Event::ConnClosed(ConnId(conn)));
    }
    assert_eq!(bench.with_bytes, requests.iter().copied().collect());
    assert_eq!(bench.left, requests[..3].iter().copied().collect());
    let failed = |step: u32| LauncherEvent::StepFailed {
        attempt: RUN,
        step: StepNo(step),
        error: "no".to_owned(),
    };
    // One client of each kind has a step that fails.
    bench.launcher(failed(0));
    bench.launcher(failed(3));
    assert!(!bench.with_bytes.contains(&requests[0]) && !bench.with_bytes.contains(&requests[3]));
    bench.starts.remove(3);
    bench.starts.remove(0);
    for left in (0..4).rev() {
        bench.start_ready();
        assert_eq!(bench.with_bytes.len(), left);
    }
    bench.end_job();
}

/// Anybody on the node opens and closes connections: each that closed had all steps that wait laid out again, and was looked for in
/// all that go on.
#[test]
fn a_connection_that_asked_for_no_step_closes_without_work() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(2));
    bench.start_ready();
    let waiting = bench.create(2, step_spec(2));
    // The daemons of the job are read before a step is laid out again.
    let lays_out = |bench: &mut Bench, conn: u64| {
        bench.run(Event::ConnClosed(ConnId(conn)));
        bench.run(Event::Idle)
    };
    let refused = bench.create(
        3,
        StepSpec {
            job: JobId(8),
            ..step_spec(1)
        },
    );
    assert!(matches!(
        bench.replies_to(refused)[..],
        [AgentReply::Refused(_)]
    ));
    for other in [3, 99] {
        assert!(!lays_out(&mut bench, other), "connection {other}");
    }
    assert!(bench.requests.contains(&waiting));
    // One that waits goes with its connection.
    lays_out(&mut bench, 2);
    assert!(!bench.requests.contains(&waiting));
}
