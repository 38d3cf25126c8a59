//! How long the ends of steps are reported to their lead, and what waits for that.

use super::scenarios::launch_for_node_2;
use super::*;
use muster_proto::step::StepLaunch;

const STEP: StepNo = StepNo(0);
const DELIVERY: Timer = Timer::EndDelivery(AttemptStep {
    attempt: RUN,
    step: STEP,
});

/// The second node of a job whose lead takes no reports: the node's part of a step has ended there.
fn undelivered() -> Bench {
    let mut bench = Bench::with_job(2);
    let start = AgentRequest::StartStep(Box::new(launch_for_node_2()), Vec::new());
    bench.request(AGENT_CONN, start, false);
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 0);
    bench.answer(Err("the job or step is not known here".to_owned()));
    bench
}

/// It was tried for ever, with a line in the log each time.
#[test]
fn the_lead_of_a_forgotten_job_is_tried_for_an_hour() {
    let mut bench = undelivered();
    let below = AgentRequest::StepNodeEnded {
        job: RUN.job,
        key: KEY.to_vec().into(),
        step: STEP,
        position: 2,
        end: Box::new(end()),
        others: Vec::new(),
        onwards: true,
    };
    let request = bench.request(AGENT_CONN, below, false);
    // While the job is here, that has no end.
    bench.now.mono_ms += 24 * 3_600_000;
    bench.timer(DELIVERY);
    bench.answer(Err("it is gone".to_owned()));
    bench.launcher(LauncherEvent::Released(RUN));
    bench.acknowledge();
    assert!(bench.agent.state.jobs.latest(RUN.job).is_none());
    // The lead may be on its way back, and knows the job.
    for minutes in [0, 59] {
        bench.now.mono_ms += minutes * 60_000;
        bench.timer(DELIVERY);
        assert!(bench.replies_to(request).is_empty());
        bench.answer(Err("it is gone".to_owned()));
    }
    bench.now.mono_ms += 60_000;
    bench.timer(DELIVERY);
    bench.answer(Err("it is gone".to_owned()));
    assert!(!bench.timers.contains(&DELIVERY));
    let refused = AgentReply::Refused(RefusalCode::JobNotHere.into());
    assert_eq!(bench.replies_to(request), [&refused]);
    bench.assert_quiet();
}

/// Each answer counted as taken, also that the lead was too busy: the lead never got the node's end, and the step did not end.
#[test]
fn an_end_that_the_lead_refuses_is_reported_again() {
    let mut bench = undelivered();
    let refused = |code: RefusalCode| Ok(AgentReply::Refused(code.into()));
    for _ in 0..3 {
        bench.timer(DELIVERY);
        bench.answer(refused(RefusalCode::Busy));
    }
    assert!(bench.timers.contains(&DELIVERY));
    bench.timer(DELIVERY);
    bench.answer(refused(RefusalCode::AccessDenied));
    assert!(!bench.timers.contains(&DELIVERY), "a later launch is there");
    bench.assert_quiet();
}

/// It waited for that of the step with the same number, and then counted as reported with it.
#[test]
fn the_end_of_a_step_does_not_wait_for_one_of_an_earlier_launch() {
    let mut bench = undelivered();
    bench.launcher(LauncherEvent::Released(RUN));
    bench.acknowledge();
    let again = JobAttempt::new(RUN.job, Attempt(2));
    let key = vec![8; 16];
    bench.order(Order::Launch(Box::new(JobGrant {
        attempt: again.attempt,
        key: key.clone().into(),
        ..grant(1)
    })));
    let launch = StepLaunch {
        key: key.clone().into(),
        ..launch_for_node_2()
    };
    let start = AgentRequest::StartStep(Box::new(launch), Vec::new());
    bench.request(AGENT_CONN, start, false);
    let (stepd, step) = bench.starts.remove(0);
    bench.launcher(LauncherEvent::StepReady {
        attempt: again,
        step,
        socket: "/spool/step0".to_owned(),
        mesh_address: None,
        direct: false,
        pid: 101,
    });
    bench.timer(DELIVERY);
    bench.stepd_ends(stepd, 0);
    let keys: Vec<&[u8]> = (bench.asks.values())
        .map(|(_, body)| match body {
            AgentRequest::StepNodeEnded { key, .. } => &key[..],
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(keys, [&KEY[..], &key]);
    bench.answer(Ok(AgentReply::Done));
    assert_eq!(bench.agent.steps.node_steps.states().len(), 1);
    bench.answer(Ok(AgentReply::Done));
    assert_eq!(bench.agent.steps.node_steps.states(), []);
    assert!(bench.agent.steps.tree.is_quiet());
}

/// It counted as known, and was forgotten: the lead took the part for one that never ran.
#[test]
fn a_lead_that_has_not_its_jobs_back_has_ends_reported_again() {
    let ended = || AgentRequest::StepNodeEnded {
        job: RUN.job,
        key: KEY.to_vec().into(),
        step: STEP,
        position: 1,
        end: Box::new(end()),
        others: Vec::new(),
        onwards: false,
    };
    let mut bench = Bench::of_node(1);
    let busy = AgentReply::Refused(RefusalCode::Busy.into());
    for is_connected in [false, true] {
        if is_connected {
            bench.event(Event::LauncherUp);
        }
        let request = bench.request(AGENT_CONN, ended(), false);
        assert_eq!(bench.replies_to(request), [&busy]);
    }
    bench.launcher(LauncherEvent::State {
        jobs: Vec::new(),
        is_last: true,
    });
    let request = bench.request(AGENT_CONN, ended(), false);
    assert_eq!(bench.replies_to(request), [&AgentReply::Done]);
}
