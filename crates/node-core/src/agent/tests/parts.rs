//! A new agent finds out which nodes have their parts of the steps that the one before has begun.

use super::scenarios::{launch_for_node_2, started};
use super::*;
use crate::agent::transition::LedStepState;
use muster_model::ids::StepId;

const STEP: StepNo = StepNo(0);

/// An agent that follows one which was lost after it had asked for a step of two nodes. `began` are the entries of the launcher
/// that arrived.
fn after_a_lost_agent(began: impl Fn(u32) -> bool) -> Bench {
    let mut old = Bench::with_job(1);
    old.create(1, step_spec(2));
    let mut kept = BTreeMap::new();
    for command in &old.commands {
        if let LauncherCommand::Keep { key, bytes, .. } = command
            && began(*key)
        {
            kept.insert(*key, bytes.clone());
        }
    }
    let mut bench = Bench::of_node(1);
    bench.event(Event::LauncherUp);
    // What there is comes bit by bit.
    bench.launcher(LauncherEvent::State {
        jobs: vec![KnownJob {
            grant: Some(encode(&grant(0))),
            ..KnownJob::new(RUN)
        }],
        is_last: false,
    });
    for entry in entries(kept) {
        assert!(!bench.agent.state.is_synced);
        let kept = vec![entry];
        bench.launcher(LauncherEvent::State {
            jobs: vec![KnownJob {
                kept,
                ..KnownJob::new(RUN)
            }],
            is_last: false,
        });
    }
    bench.launcher(LauncherEvent::State {
        jobs: Vec::new(),
        is_last: true,
    });
    assert!(bench.agent.state.is_synced);
    bench.connect_controller();
    bench
}

fn refused(code: RefusalCode) -> Result<AgentReply, String> {
    Ok(AgentReply::Refused(code.into()))
}

#[test]
fn a_step_whose_nodes_were_never_asked_ends_with_those_that_were() {
    let mut bench = after_a_lost_agent(|_| true);
    let waiting = bench.create(2, step_spec(2));
    assert!(bench.replies_to(waiting).is_empty() && bench.starts.is_empty());
    let (to, asked) = bench.answer(refused(RefusalCode::JobNotHere));
    assert_eq!(to, address(2));
    assert!(matches!(asked, AgentRequest::FindStep { step: STEP, .. }));
    // The daemon here ends as srun does not come.
    bench.launcher(LauncherEvent::StepEnded {
        attempt: RUN,
        step: STEP,
        end: Box::new(end()),
    });
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    assert_eq!(bench.starts.last().map(|s| s.1), Some(StepNo(1)));
}

#[test]
fn a_step_of_which_only_the_record_was_kept_is_over() {
    let mut bench = after_a_lost_agent(|key| key == STEP.0);
    bench.answer(refused(RefusalCode::JobNotHere));
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    bench.end_job();
}

#[test]
fn a_node_that_does_not_know_yet_is_asked_again() {
    let mut bench = after_a_lost_agent(|_| true);
    for answer in [refused(RefusalCode::Busy), Err("no answer".to_owned())] {
        bench.answer(answer);
        assert!(bench.asks.is_empty());
        bench.timer(Timer::FindParts(RUN.job, STEP));
    }
    bench.answer(Ok(AgentReply::Done));
    assert!(bench.asks.is_empty() && !bench.timers.contains(&Timer::FindParts(RUN.job, STEP)));
    let states = bench.agent.steps.led.states();
    assert_eq!(
        states,
        [(StepId::new(RUN.job, STEP), LedStepState::Running)]
    );
}

#[test]
fn a_node_says_whether_it_has_its_part() {
    let find = |key: [u8; 16], step: u32| AgentRequest::FindStep {
        job: RUN.job,
        key: key.to_vec().into(),
        step: StepNo(step),
    };
    let code = |bench: &Bench, request: RequestId| match bench.replies_to(request)[..] {
        [AgentReply::Done] => None,
        [AgentReply::Refused(refusal)] => Some(refusal.code),
        ref other => panic!("{other:?}"),
    };
    let mut bench = Bench::of_node(2);
    let early = bench.request(AGENT_CONN, find(KEY, 0), false);
    assert_eq!(code(&bench, early), Some(RefusalCode::Busy));
    bench.connect_launcher(Vec::new());
    bench.connect_controller();
    let unknown = bench.request(AGENT_CONN, find(KEY, 0), false);
    assert_eq!(code(&bench, unknown), Some(RefusalCode::JobNotHere));
    bench.order(Order::Launch(Box::new(grant(1))));
    let wrong = bench.request(AGENT_CONN, find([8; 16], 0), false);
    assert_eq!(code(&bench, wrong), Some(RefusalCode::AccessDenied));
    let user = bench.request(ConnId(5), find(KEY, 0), false);
    assert_eq!(code(&bench, user), Some(RefusalCode::AccessDenied));
    let absent = bench.request(AGENT_CONN, find(KEY, 0), false);
    assert_eq!(code(&bench, absent), Some(RefusalCode::JobNotHere));

    let start = AgentRequest::StartStep(Box::new(launch_for_node_2()), Vec::new());
    bench.request(AGENT_CONN, start, false);
    let starting = bench.request(AGENT_CONN, find(KEY, 0), false);
    assert_eq!(code(&bench, starting), Some(RefusalCode::Busy));
    bench.start_ready();
    let running = bench.request(AGENT_CONN, find(KEY, 0), false);
    assert_eq!(code(&bench, running), None);
}

#[test]
fn srun_is_answered_when_the_job_is_forgotten_before_all_nodes_have_answered() {
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(2));
    let stepd = bench.start_ready();
    bench.launcher(LauncherEvent::Released(RUN));
    bench.stepd_ends(stepd, 0);
    bench.timer(Timer::Release(RUN));
    bench.acknowledge();
    let [AgentReply::Refused(refusal)] = bench.replies_to(request)[..] else {
        panic!("{:?}", bench.replies);
    };
    assert_eq!(refusal.code, RefusalCode::AlreadyDone);
    assert!(bench.requests.is_empty());
    // The other node answers too late.
    bench.answer(Err("it is gone".to_owned()));
    bench.assert_quiet();
}

/// With its last node the controller would end a step whose end it has not got, and guess how it ended.
#[test]
fn a_job_is_released_after_the_ends_of_steps_that_are_led_for_it() {
    for comes in [true, false] {
        let mut bench = Bench::with_job(1);
        bench.create(1, step_spec(2));
        let stepd = bench.start_ready();
        bench.answer(Ok(started()));
        bench.stepd_ends(stepd, 0);
        bench.launcher(LauncherEvent::Released(RUN));
        bench.flush_reports();
        let is_release = |r: &NumberedReport| matches!(r.report, Report::Released);
        assert!(!bench.reports.iter().any(is_release), "node 2 has the step");
        match comes {
            true => {
                let ended = AgentRequest::StepNodeEnded {
                    job: RUN.job,
                    key: KEY.to_vec().into(),
                    step: STEP,
                    position: 1,
                    end: Box::new(end()),
                    others: Vec::new(),
                    onwards: false,
                };
                bench.request(AGENT_CONN, ended, false);
            }
            false => {
                bench.event(Event::ControllerLost);
                bench.timer(Timer::Release(RUN));
                assert!(bench.timers.contains(&Timer::Release(RUN)), "it goes on");
                bench.connect_controller();
                bench.event(Event::TimerDue(Timer::Release(RUN)));
                bench.flush_reports();
                assert!(!bench.reports.iter().any(is_release), "it has just come");
                bench.timer(Timer::Release(RUN));
            }
        }
        bench.flush_reports();
        assert_eq!(bench.step_ends().len(), usize::from(comes));
        assert!(
            bench.reports.last().is_some_and(is_release),
            "in this order"
        );
        bench.acknowledge();
    }
}
