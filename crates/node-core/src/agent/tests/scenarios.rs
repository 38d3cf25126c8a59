//! What happens to steps when processes, connections and nodes fail.

use super::*;
use crate::agent::transition::{LedStepState, NodeStepState};
use crate::kept::{KEPT_NEXT, kept_of_node};
use muster_model::ids::StepId;
use muster_proto::step::{StepLaunch, StepShare};

const STEP: StepNo = StepNo(0);

fn refusal(reply: &AgentReply) -> RefusalCode {
    match reply {
        AgentReply::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_is_created_ends_and_is_reported_once() {
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(1));
    assert!(bench.with_bytes.contains(&request), "the launcher has it");
    let stepd = bench.start_ready();
    assert!(bench.with_bytes.is_empty(), "its bytes are not kept");
    assert!(matches!(
        bench.replies_to(request)[..],
        [AgentReply::Created(_)]
    ));
    bench.stepd_ends(stepd, 0);
    assert!(matches!(
        bench.replies_to(request)[..],
        [AgentReply::Created(_), AgentReply::Done]
    ));
    // The launcher keeps ends, and says them again.
    bench.launcher(LauncherEvent::StepEnded {
        attempt: RUN,
        step: STEP,
        end: Box::new(end()),
    });
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    let forgotten = |bench: &Bench| {
        let forgets = |c: &&LauncherCommand| matches!(c, LauncherCommand::ForgetStep(..));
        bench.commands.iter().filter(forgets).count()
    };
    assert_eq!(forgotten(&bench), 0, "the controller may not know yet");
    bench.acknowledge();
    assert_eq!(forgotten(&bench), 1);
    bench.end_job();
}

#[test]
fn a_daemon_that_waits_gets_the_next_step() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(1));
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 0);
    let second = bench.create(2, step_spec(1));
    assert_eq!(bench.offered, [(stepd, StepNo(1), None)]);
    assert!(bench.starts.is_empty());
    assert!(matches!(
        bench.replies_to(second)[..],
        [AgentReply::Created(_)]
    ));
    // The start is reported although nothing else happens.
    assert!(bench.timers.contains(&Timer::Reports));
    bench.stepd_ends(stepd, 1);
    // One that does not take it is left, and the launcher starts another.
    bench.takes_offers = false;
    let third = bench.create(3, step_spec(1));
    assert!(!bench.stepds.contains_key(&stepd));
    let other = bench.start_ready();
    assert_eq!(bench.replies_to(third).len(), 1);
    bench.stepd_ends(other, 2);
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [StepNo(0), StepNo(1), StepNo(2)]);
    bench.end_job();
}

#[test]
fn streams_go_to_the_daemon_of_a_task_that_is_alone_and_are_closed_once() {
    let mut bench = Bench::with_job(1);
    let spec = StepSpec {
        passes_stdio: true,
        ..step_spec(1)
    };
    let request = bench.create(1, spec.clone());
    let stepd = bench.start_ready();
    assert_eq!(bench.stdio_sent.len(), 1);
    assert!(bench.stdio.is_empty());
    // srun learns the rest from the daemon.
    assert!(bench.replies_to(request).is_empty());
    bench.stepd_ends(stepd, 0);
    assert!(bench.requests.is_empty() && bench.replies.is_empty());
    bench.create(2, spec.clone());
    assert!(matches!(bench.offered[..], [(_, StepNo(1), Some(_))]));
    assert!(bench.stdio.is_empty());
    // A step of two tasks does not have them.
    bench.stepd_ends(stepd, 1);
    let wide = StepSpec {
        ntasks: Some(2),
        ..spec.clone()
    };
    bench.create(3, wide);
    assert!(bench.stdio.is_empty());
    // Nor does one that waits and is given up.
    let of_both = StepSpec {
        passes_stdio: true,
        ..step_spec(2)
    };
    bench.create(4, of_both);
    assert_eq!(bench.stdio.len(), 1);
    bench.event(Event::ConnClosed(ConnId(4)));
    assert!(bench.stdio.is_empty());
}

/// The launcher's word, or srun's request, may come before the end that the daemon has sent here.
#[test]
fn daemons_are_read_before_what_follows_from_an_end() {
    let end_unread = |bench: &mut Bench| {
        bench.create(1, step_spec(1));
        let stepd = bench.start_ready();
        let ended = StepdEvent::StepEnded(STEP, Box::new(end()));
        bench.unread.insert(stepd, vec![ended]);
    };
    let mut bench = Bench::with_job(1);
    end_unread(&mut bench);
    bench.launcher(LauncherEvent::StepEnded {
        attempt: RUN,
        step: STEP,
        end: Box::new(StepEnd::never_ran(Timestamp(9))),
    });
    bench.flush_reports();
    let is_end = |r: &&NumberedReport| matches!(r.report, Report::StepEnded { .. });
    let reported = bench.reports.iter().find(is_end).unwrap();
    let mut of_daemon = Box::new(end());
    of_daemon.usage.set_node("n1");
    let of_daemon = Report::StepEnded {
        step: STEP,
        end: of_daemon,
    };
    assert_eq!(reported.report, of_daemon);

    // The job's release would be the last that the controller learns of it.
    let mut bench = Bench::with_job(1);
    end_unread(&mut bench);
    bench.launcher(LauncherEvent::Released(RUN));
    bench.flush_reports();
    let reports: Vec<&Report> = bench.reports.iter().map(|r| &r.report).collect();
    assert_eq!(reports[1..], [&of_daemon, &Report::Released]);

    // srun that goes because its step is over ends nothing.
    let mut bench = Bench::with_job(1);
    end_unread(&mut bench);
    bench.event(Event::ConnClosed(ConnId(1)));
    let ends = |c: &LauncherCommand| matches!(c, LauncherCommand::EndStep { .. });
    assert!(!bench.commands.iter().any(ends));

    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(1));
    let stepd = bench.start_ready();
    let ended = StepdEvent::StepEnded(STEP, Box::new(end()));
    bench.unread.insert(stepd, vec![ended]);
    let spec = StepSpec {
        immediate: true,
        min_nodes: Some(2),
        max_nodes: Some(2),
        ..step_spec(2)
    };
    let second = bench.create(2, spec);
    assert!(bench.unread.is_empty());
    bench.start_or_offer();
    bench.answer(Ok(started()));
    assert!(matches!(
        bench.replies_to(second)[..],
        [AgentReply::Created(_)]
    ));
}

impl Bench {
    /// Answers a start, unless a daemon that waited has got the step.
    fn start_or_offer(&mut self) {
        if !self.starts.is_empty() {
            self.start_ready();
        }
    }
}

pub(super) fn started() -> AgentReply {
    AgentReply::StepdsStarted {
        address: "unix:/spool/n2/step".to_owned(),
        mesh_address: None,
        below: Vec::new(),
    }
}

#[test]
fn what_does_not_fit_waits_or_is_refused() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(1));
    let stepd = bench.start_ready();
    // The other node is free; nodes 1 and 2 together are not.
    let waiting = bench.create(2, step_spec(2));
    let immediate = StepSpec {
        immediate: true,
        ..step_spec(2)
    };
    bench.timer(Timer::StepQueued(ConnId(2)));
    assert!(matches!(
        bench.replies_to(waiting)[..],
        [AgentReply::Queued(_)]
    ));
    bench.event(Event::ConnClosed(ConnId(2)));
    let refused = bench.create(3, immediate);
    assert_eq!(
        refusal(bench.replies_to(refused)[0]),
        RefusalCode::NotImmediate
    );
    bench.stepd_ends(stepd, 0);
    bench.end_job();
}

#[test]
fn a_launcher_that_is_lost_while_it_starts_a_daemon_is_asked_again() {
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(1));
    let (first, _) = bench.starts.remove(0);
    bench.event(Event::LauncherLost);
    assert_eq!(bench.controller_closed, 1);
    bench.event(Event::LauncherUp);
    assert!(bench.starts.is_empty(), "it has not said what it knows");
    let known = KnownJob {
        attempt: RUN,
        grant: None,
        kept: Vec::new(),
        steps: Vec::new(),
    };
    bench.launcher(LauncherEvent::State {
        jobs: vec![known.clone()],
        is_last: true,
    });
    assert!(!bench.stepds.contains_key(&first));
    let second = bench.start_ready();
    assert!(matches!(
        bench.replies_to(request)[..],
        [AgentReply::Created(_)]
    ));
    bench.stepd_ends(second, 0);

    // The daemon was started, and nobody knows its place.
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(1));
    bench.starts.clear();
    bench.event(Event::LauncherLost);
    let steps = vec![STEP];
    bench.connect_launcher(vec![KnownJob { steps, ..known }]);
    assert!(bench.starts.is_empty());
    assert_eq!(
        refusal(bench.replies_to(request)[0]),
        RefusalCode::NodeConfigUnavailable
    );
    assert_eq!(
        bench.agent.steps.node_steps.states(),
        [(StepId::new(RUN.job, STEP), NodeStepState::Running)]
    );
}

/// An order that it got twice would be refused the second time.
#[test]
fn a_launcher_gets_orders_once_it_has_said_what_it_knows() {
    let mut bench = Bench::with_job(1);
    bench.event(Event::LauncherLost);
    bench.event(Event::LauncherUp);
    bench.create(1, step_spec(1));
    assert!(bench.starts.is_empty());
    bench.launcher(LauncherEvent::State {
        jobs: vec![KnownJob::new(RUN)],
        is_last: true,
    });
    assert_eq!(bench.starts.len(), 1);
}

#[test]
fn a_launcher_that_is_lost_takes_the_session_with_it() {
    let mut bench = Bench::with_job(1);
    bench.next += 1;
    let dial = DialId(bench.next);
    bench.event(Event::Dialed(dial));
    bench.event(Event::ControllerAnswered(dial, vec![2].into()));
    bench.event(Event::LauncherLost);
    assert_eq!(bench.controller_closed, 1);
    assert!(matches!(bench.verdicts[..], [(d, Err(_))] if d == dial));
    // A connection that comes up nevertheless is closed.
    bench.event(Event::ControllerUp);
    assert_eq!(bench.controller_closed, 2);
    // What it ordered is not done.
    bench.order(Order::Launch(Box::new(JobGrant {
        job: JobId(8),
        ..grant(0)
    })));
    assert!(bench.agent.state.jobs.latest(JobId(8)).is_none());
    // The dial that waits gets the next launcher's key.
    bench.connect_launcher(Vec::new());
    bench.launcher(LauncherEvent::SessionKey(vec![1].into()));
    assert_eq!(bench.greeted, [dial]);
}

#[test]
fn requests_that_are_faster_than_the_controller_wait_for_it() {
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(Vec::new());
    bench.connect_controller();
    let spec = StepSpec {
        key: Some(muster_trust::derive_job_key(&KEY, muster_trust::JobKeyUse::Owner).into()),
        ..step_spec(1)
    };
    let first = bench.create(1, spec.clone());
    let second = bench.create(2, spec.clone());
    let third = bench.create(3, spec);
    assert!(bench.replies.is_empty());
    bench.event(Event::ConnClosed(ConnId(2)));
    assert!(!bench.requests.contains(&second));
    bench.order(Order::Launch(Box::new(grant(0))));
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 0);
    // The third has the other node.
    bench.answer(Ok(started()));
    let done = [first, third].map(|request| bench.replies_to(request).len());
    assert_eq!(done, [2, 1]);

    let mut bench = Bench::of_node(2);
    bench.connect_launcher(Vec::new());
    let launch = launch_for_node_2();
    let start = AgentRequest::StartStep(Box::new(launch), Vec::new());
    let request = bench.request(AGENT_CONN, start, false);
    bench.timer(Timer::Grant);
    assert_eq!(
        refusal(bench.replies_to(request)[0]),
        RefusalCode::JobNotHere
    );
    bench.assert_quiet();
}

/// A step of both nodes, as node 1 orders node 2 to start it.
pub(super) fn launch_for_node_2() -> StepLaunch {
    StepLaunch {
        key: KEY.to_vec().into(),
        spec: step_spec(2),
        step: STEP,
        step_key: vec![5; 16].into(),
        tasks: vec![vec![0], vec![1]],
        names: vec!["n1".to_owned(), "n2".to_owned()],
        lead: address(1),
        width: 50,
        position: 1,
        cpus: CpuSet::first(4),
        memory_mib: 0,
        gres: Vec::new(),
        above: None,
    }
}

#[test]
fn srun_that_goes_while_nodes_start_ends_the_step_when_they_have() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(2));
    bench.start_ready();
    bench.event(Event::ConnClosed(ConnId(1)));
    assert!(bench.requests.is_empty());
    let states = bench.agent.steps.led.states();
    assert_eq!(
        states,
        [(StepId::new(RUN.job, STEP), LedStepState::Abandoned)]
    );
    bench.commands.clear();
    bench.answer(Ok(started()));
    let ended = |c: &LauncherCommand| matches!(c, LauncherCommand::EndStep { .. });
    assert_eq!(bench.commands.iter().filter(|c| ended(c)).count(), 1);
    let (to, request) = bench.asks.first_key_value().unwrap().1;
    assert_eq!(*to, address(2));
    assert!(matches!(request, AgentRequest::SignalStep { .. }));
}

#[test]
fn a_node_that_cannot_start_a_step_ends_it_everywhere_unreported() {
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(2));
    let stepd = bench.start_ready();
    let (to, body) = bench.answer(Err("it is gone".to_owned()));
    assert_eq!(to, address(2));
    assert!(matches!(body, AgentRequest::StartStep(..)));
    assert_eq!(
        refusal(bench.replies_to(request)[0]),
        RefusalCode::NodeConfigUnavailable
    );
    // What runs there is not known.
    bench.answer(Ok(AgentReply::Done));
    bench.stepd_ends(stepd, 0);
    bench.flush_reports();
    assert!(bench.reports.is_empty());
    assert!(bench.requests.is_empty());
    bench.end_job();
}

#[test]
fn ends_of_other_nodes_count_once() {
    let mut bench = Bench::with_job(1);
    let request = bench.create(1, step_spec(2));
    let stepd = bench.start_ready();
    bench.answer(Ok(started()));
    let other = |key: Vec<u8>| AgentRequest::StepNodeEnded {
        job: RUN.job,
        key: key.into(),
        step: STEP,
        position: 1,
        end: Box::new(end()),
        others: Vec::new(),
        onwards: false,
    };
    let wrong = bench.request(AGENT_CONN, other(vec![8; 16]), false);
    assert_eq!(
        refusal(bench.replies_to(wrong)[0]),
        RefusalCode::AccessDenied
    );
    let user = bench.request(ConnId(5), other(KEY.to_vec()), false);
    assert_eq!(
        refusal(bench.replies_to(user)[0]),
        RefusalCode::AccessDenied
    );
    for _ in 0..2 {
        let again = bench.request(AGENT_CONN, other(KEY.to_vec()), false);
        assert_eq!(bench.replies_to(again), [&AgentReply::Done]);
    }
    assert_eq!(bench.replies_to(request).len(), 1, "n1 runs still");
    bench.stepd_ends(stepd, 0);
    let late = bench.request(AGENT_CONN, other(KEY.to_vec()), false);
    assert_eq!(bench.replies_to(late), [&AgentReply::Done]);
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    bench.end_job();
}

/// An agent that was taken over ended that of the job's first node, each time that it reported this.
#[test]
fn an_end_with_any_numbers_is_merged() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(2));
    let stepd = bench.start_ready();
    bench.answer(Ok(started()));
    let exit = muster_model::job::ExitStatus {
        code: u32::MAX,
        signal: u32::MAX,
    };
    let ended = AgentRequest::StepNodeEnded {
        job: RUN.job,
        key: KEY.to_vec().into(),
        step: STEP,
        position: 1,
        end: Box::new(StepEnd { exit, ..end() }),
        others: Vec::new(),
        onwards: false,
    };
    bench.request(AGENT_CONN, ended, false);
    bench.stepd_ends(stepd, 0);
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    bench.end_job();
}

#[test]
fn the_lead_learns_of_an_end_however_long_it_takes() {
    let mut bench = Bench::with_job(2);
    let launch = StepLaunch {
        above: Some(address(3)),
        ..launch_for_node_2()
    };
    let start = || AgentRequest::StartStep(Box::new(launch.clone()), Vec::new());
    let request = bench.request(AGENT_CONN, start(), false);
    let stepd = bench.start_ready();
    assert!(matches!(
        bench.replies_to(request)[..],
        [AgentReply::StepdsStarted { .. }]
    ));
    // The lead that got no answer asks again: the step runs on.
    let again = bench.request(AGENT_CONN, start(), false);
    assert_eq!(refusal(bench.replies_to(again)[0]), RefusalCode::JobNotHere);
    bench.stepd_ends(stepd, 0);
    let (to, _) = bench.answer(Ok(AgentReply::Refused(RefusalCode::JobNotHere.into())));
    assert_eq!(to, address(3));
    for _ in 0..3 {
        let (to, body) = bench.answer(Err("it is gone".to_owned()));
        assert_eq!(to, address(1));
        assert!(matches!(body, AgentRequest::StepNodeEnded { .. }));
        bench.timer(Timer::EndDelivery(AttemptStep::new(RUN, STEP)));
    }
    let states = bench.agent.steps.node_steps.states();
    assert_eq!(states, [(StepId::new(RUN.job, STEP), NodeStepState::Ended)]);
    bench.answer(Ok(AgentReply::Done));
    assert_eq!(bench.agent.steps.node_steps.states(), []);
    // Nor does it run again in the daemon that waits for a step.
    let late = bench.request(AGENT_CONN, start(), false);
    assert_eq!(refusal(bench.replies_to(late)[0]), RefusalCode::JobNotHere);
    assert!(bench.offered.is_empty() && bench.starts.is_empty());
    bench.end_job();
}

#[test]
fn ends_from_below_go_up_together() {
    let mut bench = Bench::with_job(2);
    let start = AgentRequest::StartStep(Box::new(launch_for_node_2()), Vec::new());
    bench.request(AGENT_CONN, start, false);
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 0);
    // While that is under way, two from below come.
    let below = |position| AgentRequest::StepNodeEnded {
        job: RUN.job,
        key: KEY.to_vec().into(),
        step: STEP,
        position,
        end: Box::new(end()),
        others: Vec::new(),
        onwards: true,
    };
    let requests = [2, 3].map(|position| bench.request(AGENT_CONN, below(position), false));
    assert_eq!(bench.asks.len(), 1);
    bench.answer(Ok(AgentReply::Done));
    let (_, body) = bench.answer(Ok(AgentReply::Done));
    let AgentRequest::StepNodeEnded {
        position, others, ..
    } = body
    else {
        panic!("{body:?}");
    };
    assert_eq!((position, others.len()), (2, 1));
    for request in requests {
        assert_eq!(bench.replies_to(request), [&AgentReply::Done]);
    }
    bench.end_job();
}

pub(super) fn share(node: usize) -> StepShare {
    StepShare {
        address: address(node),
        cpus: CpuSet::first(4),
        memory_mib: 0,
        gres: Vec::new(),
    }
}

/// Of three nodes, the second starts the third.
pub(super) fn launch_of_three(position: u32) -> StepLaunch {
    StepLaunch {
        tasks: vec![vec![0], vec![1], vec![2]],
        names: vec!["n1".to_owned(), "n2".to_owned(), "n3".to_owned()],
        position,
        ..launch_for_node_2()
    }
}

#[test]
fn a_node_answers_for_those_below_it_when_all_have_answered() {
    let start = || AgentRequest::StartStep(Box::new(launch_of_three(1)), vec![share(3)]);
    for (below_answers, own_first) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::with_job(2);
        let request = bench.request(AGENT_CONN, start(), false);
        let answer = match below_answers {
            true => Ok(started()),
            false => Err("it is gone".to_owned()),
        };
        if own_first {
            bench.start_ready();
        }
        assert!(bench.replies_to(request).is_empty());
        let (to, body) = bench.answer(answer);
        assert_eq!(to, address(3));
        let AgentRequest::StartStep(launch, _) = body else {
            panic!("{body:?}");
        };
        assert_eq!((launch.position, launch.above), (2, Some(address(2))));
        if !own_first {
            assert!(bench.replies_to(request).is_empty());
            bench.start_ready();
        }
        let [AgentReply::StepdsStarted { below, .. }] = bench.replies_to(request)[..] else {
            panic!("{:?}", bench.replies);
        };
        assert_eq!(below.len(), 1);
        assert_eq!(below[0].error.is_none(), below_answers);
        assert!(bench.requests.is_empty());
    }

    // Its own part fails; the one below runs, and the lead ends it.
    let mut bench = Bench::with_job(2);
    let request = bench.request(AGENT_CONN, start(), false);
    let (_, step) = bench.starts.remove(0);
    bench.launcher(LauncherEvent::StepFailed {
        attempt: RUN,
        step,
        error: "there is no memory".to_owned(),
    });
    assert!(bench.replies_to(request).is_empty());
    bench.answer(Ok(started()));
    assert_eq!(
        refusal(bench.replies_to(request)[0]),
        RefusalCode::JobNotHere
    );
    assert_eq!(bench.agent.steps.node_steps.states(), []);
    bench.end_job();
}

/// With a tree of width 2, the first branch of three nodes is the lead and the node after it.
#[test]
fn a_lead_heads_a_branch_of_its_step() {
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(Vec::new());
    bench.connect_controller();
    bench.order(Order::Launch(Box::new(grant_of(3, 0))));
    let spec = StepSpec {
        tree_width: Some(2),
        ..step_spec(3)
    };
    let request = bench.create(1, spec.clone());
    let addresses: Vec<&str> = bench.asks.values().map(|(to, _)| to.as_str()).collect();
    assert_eq!(addresses, [address(2), address(3)]);
    let stepd = bench.start_ready();
    bench.answer(Ok(started()));
    assert!(bench.replies_to(request).is_empty());
    bench.answer(Ok(started()));
    let [AgentReply::Created(created)] = bench.replies_to(request)[..] else {
        panic!("{:?}", bench.replies);
    };
    let names: Vec<&str> = created.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    assert!(created.nodes.iter().all(|n| !n.address.is_empty()));
    bench.stepd_ends(stepd, 0);

    // A node that is lost signals nothing: the next one of its branch is asked.
    bench.event(Event::ConnClosed(ConnId(1)));
    let signals = bench.asks.len();
    assert_eq!(signals, 2);
    let (to, _) = bench.answer(Err("it is gone".to_owned()));
    assert_eq!(to, address(2));
    bench.answer(Ok(AgentReply::Done));
    assert!(bench.asks.is_empty());
    bench.end_job();
}

#[test]
fn a_new_agent_takes_steps_back() {
    let mut old = Bench::with_job(1);
    old.create(1, step_spec(1));
    let mut kept: BTreeMap<u32, ByteVec> = BTreeMap::new();
    for command in &old.commands {
        if let LauncherCommand::Keep { key, bytes, .. } = command {
            kept.insert(*key, bytes.clone());
        }
    }
    assert_eq!(
        kept.keys().copied().collect::<Vec<_>>(),
        [0, kept_of_node(STEP), KEPT_NEXT]
    );
    let known = KnownJob {
        attempt: RUN,
        grant: Some(encode(&grant(0))),
        kept: entries(kept),
        steps: vec![STEP],
    };
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(vec![known]);
    bench.connect_controller();
    bench.launcher(LauncherEvent::StepEnded {
        attempt: RUN,
        step: STEP,
        end: Box::new(end()),
    });
    bench.flush_reports();
    assert_eq!(bench.step_ends(), [STEP]);
    // Its number is not given again.
    bench.create(1, step_spec(1));
    assert_eq!(bench.starts.last().map(|s| s.1), Some(StepNo(1)));
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 1);
    bench.end_job();
}

#[test]
fn a_job_that_ends_refuses_what_waits() {
    let mut bench = Bench::with_job(1);
    bench.create(1, step_spec(2));
    let stepd = bench.start_ready();
    bench.answer(Ok(started()));
    let waiting = bench.create(2, step_spec(1));
    bench.order(Order::Terminate {
        job: RUN.job,
        attempt: RUN.attempt,
        now: false,
        why: muster_model::effect::TerminateReason::Cancelled,
    });
    assert_eq!(
        refusal(bench.replies_to(waiting)[0]),
        RefusalCode::AlreadyDone
    );
    let late = bench.create(3, step_spec(1));
    assert_eq!(refusal(bench.replies_to(late)[0]), RefusalCode::AlreadyDone);
    bench.stepd_ends(stepd, 0);
    // The other node's agent is gone with its part of the step: the job is forgotten all the same.
    bench.end_job();
}

#[test]
fn questions_about_processes_end_with_the_launcher() {
    let mut bench = Bench::with_job(1);
    let job = RUN.job;
    let inspect = bench.request(ConnId(1), AgentRequest::Inspect { job }, false);
    let measure = bench.request(ConnId(2), AgentRequest::Measure { job }, false);
    bench.launcher(LauncherEvent::Measured {
        tag: 2,
        tasks: Some(Vec::new()),
    });
    assert!(matches!(
        bench.replies_to(measure)[..],
        [AgentReply::Measured(_)]
    ));
    bench.event(Event::LauncherLost);
    assert_eq!(refusal(bench.replies_to(inspect)[0]), RefusalCode::Busy);
    let late = bench.request(ConnId(3), AgentRequest::Inspect { job }, false);
    assert_eq!(refusal(bench.replies_to(late)[0]), RefusalCode::Busy);
    assert!(bench.requests.is_empty());
}

fn signal(signal: i32) -> Order {
    Order::Signal {
        job: RUN.job,
        attempt: RUN.attempt,
        step: None,
        signal: signal.unsigned_abs(),
        scope: muster_model::command::SignalScope::Full,
        cancelled_by: None,
    }
}

/// Others may have the CPUs of a job that is suspended.
#[test]
fn no_step_of_a_suspended_job_starts() {
    let mut bench = Bench::with_job(1);
    bench.order(signal(crate::signals::SIGSTOP));
    let waits = bench.create(1, step_spec(1));
    let hurry = StepSpec {
        immediate: true,
        ..step_spec(1)
    };
    let refused = bench.create(2, hurry);
    assert_eq!(
        refusal(bench.replies_to(refused)[0]),
        RefusalCode::NotImmediate
    );
    assert!(bench.starts.is_empty());
    bench.timer(Timer::StepQueued(ConnId(1)));
    assert!(matches!(
        bench.replies_to(waits)[..],
        [AgentReply::Queued(_)]
    ));
    bench.order(signal(crate::signals::SIGCONT));
    let stepd = bench.start_ready();
    bench.stepd_ends(stepd, 0);
    bench.end_job();

    // Where another node leads, it may not know yet.
    let mut bench = Bench::with_job(2);
    bench.order(signal(crate::signals::SIGSTOP));
    let request = AgentRequest::StartStep(Box::new(launch_of_three(1)), Vec::new());
    let id = bench.request(AGENT_CONN, request, false);
    assert_eq!(refusal(bench.replies_to(id)[0]), RefusalCode::JobNotHere);
    bench.end_job();
}

/// A launcher that comes at once after another has not begun the session that this one had: it would refuse all orders, and what
/// they launch would be taken for there.
#[test]
fn a_connection_whose_launcher_was_replaced_meanwhile_is_given_up() {
    let mut bench = Bench::of_node(1);
    bench.connect_launcher(Vec::new());
    let dial = DialId(70);
    bench.event(Event::Dialed(dial));
    bench.launcher(LauncherEvent::SessionKey(vec![1].into()));
    bench.event(Event::ControllerAnswered(dial, vec![2].into()));
    bench.launcher(LauncherEvent::SessionBegun(None));
    bench.event(Event::LauncherLost);
    bench.connect_launcher(Vec::new());
    bench.event(Event::ControllerUp);
    bench.order(Order::Launch(Box::new(grant(0))));
    let job = bench.agent.state.jobs.get(RUN);
    assert!(job.is_none(), "nobody launches it");
}
