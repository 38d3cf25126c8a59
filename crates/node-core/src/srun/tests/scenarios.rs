//! What happens to a step, one thing after another.

use super::*;
use crate::signals::{SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
use crate::srun::config::NumberSource;
use muster_proto::step::HetStep;

fn signals(all: &[i32]) -> Vec<ToStepd> {
    let signal = |s: &i32| ToStepd::Signal(s.unsigned_abs());
    all.iter().map(signal).collect()
}

fn two_nodes() -> StepCreated {
    created(vec![node(1, &[0, 1]), node(2, &[2])])
}

/// A step whose task may have srun's streams.
fn direct() -> Bench {
    Bench::begun(SrunConfig {
        can_pass_stdio: true,
        ..config(1)
    })
}

fn passed() -> FromStepd {
    FromStepd::Created(Box::new(StepCreated {
        direct: true,
        ..created(vec![node(1, &[0])])
    }))
}

fn from_channel(bench: &mut Bench, messages: Vec<FromStepd>) {
    assert!(bench.srun.interest().stepds);
    bench.event(Event::StepdMessages(StepdIdx(0), messages));
}

#[test]
fn a_short_step_that_has_the_streams_is_over_at_once() {
    let mut bench = direct();
    let (_, request, channel) = &bench.requests[0];
    let AgentRequest::Create(spec) = request else {
        panic!("{request:?}");
    };
    assert!(spec.passes_stdio && channel.is_some());
    let messages = vec![passed(), exited(0, 0, 0), FromStepd::NodeTasksEnded];
    from_channel(&mut bench, messages);
    assert_eq!((bench.exit, bench.catches_signals), (Some(0), false));
    assert_eq!(bench.opened[0].stdin, InputSource::Nothing);
    assert_eq!((bench.printed().as_str(), bench.agents.len()), ("", 0));
}

#[test]
fn a_longer_step_that_has_the_streams_is_looked_at_before_it_is_waited_for() {
    let mut bench = direct();
    from_channel(&mut bench, vec![passed()]);
    assert!(bench.srun.interest().looks);
    bench.idle();
    assert!(!bench.srun.interest().looks && bench.catches_signals);
    from_channel(&mut bench, vec![exited(0, 3, 0), FromStepd::NodeTasksEnded]);
    bench.idle();
    assert_eq!(bench.exit, Some(3));
    let text = "srun: error: n1: task 0: Exited with exit code 3\n";
    assert_eq!(bench.printed(), text);
}

#[test]
fn streams_that_are_declined_are_carried() {
    let mut bench = direct();
    let step = created(vec![node(1, &[0])]);
    bench.reply(AgentReply::Created(Box::new(step)));
    assert_eq!(bench.stepds.len(), 1, "the channel is closed");
    assert_eq!(bench.opened[0].stdin, InputSource::Own);
    bench.idle();
    bench.stepd(
        1,
        vec![out(0, "text"), exited(0, 0, 0), FromStepd::NodeTasksEnded],
    );
    assert_eq!((bench.exit, bench.stdout.as_str()), (None, "text"));
    bench.reply(AgentReply::Done);
    assert_eq!(bench.exit, Some(0));
}

#[test]
fn an_agent_of_another_version_answers_itself() {
    let mut bench = direct();
    from_channel(&mut bench, vec![exited(0, 2, 0)]);
    assert!(!bench.srun.interest().stepds, "nothing overtakes the agent");
    let FromStepd::Created(step) = passed() else {
        unreachable!()
    };
    bench.reply(AgentReply::Created(step));
    bench.event(Event::StepdMessages(
        StepdIdx(0),
        vec![FromStepd::NodeTasksEnded],
    ));
    bench.idle();
    assert_eq!(bench.exit, Some(2));
}

/// What the daemon has said may come after the end of the agent's connection, though it was said before.
#[test]
fn a_daemon_that_has_the_streams_goes_on_without_its_agent() {
    let mut bench = direct();
    let agent = bench.srun.interest().agent.unwrap();
    bench.event(Event::AgentLost(agent, "reset".to_owned()));
    assert_eq!((bench.exit, bench.srun.interest().agent), (None, None));
    from_channel(
        &mut bench,
        vec![passed(), exited(0, 5, 0), FromStepd::NodeTasksEnded],
    );
    bench.idle();
    assert_eq!(bench.exit, Some(5));
    // One that never had the order says nothing.
    for is_closed in [true, false] {
        let mut bench = direct();
        let agent = bench.srun.interest().agent.unwrap();
        bench.event(Event::AgentLost(agent, "reset".to_owned()));
        match is_closed {
            true => bench.event(Event::StepdLost(StepdIdx(0), "closed".to_owned())),
            false => assert_eq!(bench.wait(), 5000),
        }
        let text =
            "srun: error: Unable to create step for job 5: connection to the agent lost: reset\n";
        assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
    }
}

#[test]
fn an_agent_that_says_that_all_is_over_does_not_answer_for_the_daemon() {
    let mut bench = direct();
    bench.reply(AgentReply::Done);
    assert_eq!(bench.srun.interest().agent, None);
    bench.event(Event::StepdLost(StepdIdx(0), "end of file".to_owned()));
    let text =
        "srun: error: Unable to create step for job 5: connection to the agent lost: end of file\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));

    let mut bench = direct();
    bench.reply(AgentReply::Done);
    let messages = vec![passed(), exited(0, 0, 0), FromStepd::NodeTasksEnded];
    from_channel(&mut bench, messages);
    assert_eq!((bench.exit, bench.agents.len()), (Some(0), 0));
}

#[test]
fn a_channel_that_is_lost_leaves_the_word_to_the_agent() {
    let mut bench = direct();
    bench.event(Event::StepdLost(StepdIdx(0), "end of file".to_owned()));
    assert!(!bench.srun.interest().stepds);
    bench.reply(AgentReply::Refused(RefusalCode::AccessDenied.into()));
    assert_eq!(bench.exit, Some(1));
}

/// Others' requests had all the room of a node: each srun there failed.
#[test]
fn a_request_that_a_node_has_no_room_for_is_made_again() {
    let busy = || AgentReply::Refused(Refusal::new(RefusalCode::Busy, "too many requests"));
    for mut bench in [Bench::begun(config(1)), direct()] {
        let streams = bench.stepds.len();
        bench.reply(busy());
        assert!(bench.agents.is_empty() && bench.stepds.is_empty());
        let why = "temporarily disabled, retrying (too many requests)\n";
        let printed = bench.printed();
        assert!(printed.ends_with(why), "{printed}");
        assert_eq!((bench.wait(), bench.requests.len()), (1000, 2));
        bench.reply(busy());
        assert_eq!((bench.wait(), bench.requests.len()), (2000, 3));
        assert_eq!(bench.stepds.len(), streams);
        bench.reply(AgentReply::Created(Box::new(created(vec![node(1, &[0])]))));
        assert_eq!(bench.printed(), "srun: Step created for StepId=5.0\n");
    }
    let mut bench = Bench::begun(config(1));
    while bench.exit.is_none() {
        bench.reply(busy());
        if bench.exit.is_none() {
            bench.wait();
        }
    }
    assert_eq!((bench.exit, bench.requests.len()), (Some(1), 21));
}

/// A step over the components of a heterogeneous job, which needs a number first.
fn numbered() -> SrunConfig {
    let number = NumberSource {
        leader: JOB,
        lead: Lead::Local(LEAD.to_owned()),
    };
    SrunConfig {
        number: Some(number),
        ..config(1)
    }
}

/// A step of a heterogeneous job failed at once when the agent had no room for the request for its number.
#[test]
fn a_number_that_a_node_has_no_room_to_give_is_asked_for_again() {
    let busy = || AgentReply::Refused(Refusal::new(RefusalCode::Busy, "too many requests"));
    let mut bench = Bench::begun(numbered());
    bench.reply(busy());
    assert!(bench.agents.is_empty());
    let why = "temporarily disabled, retrying (too many requests)\n";
    assert!(bench.printed().ends_with(why));
    assert_eq!((bench.wait(), bench.requests.len()), (1000, 2));
    bench.reply(busy());
    assert_eq!((bench.wait(), bench.requests.len()), (2000, 3));
    bench.reply(AgentReply::StepNumber {
        number: 3,
        proof: b"proof".to_vec().into(),
    });
    let is_part = |request: &AgentRequest| matches!(request, AgentRequest::Create(_));
    assert!(
        bench
            .requests
            .iter()
            .map(|(_, r, _)| is_part(r))
            .eq([false, false, false, true])
    );
    // The retries of the number do not count against those of a part.
    bench.reply(busy());
    assert_eq!((bench.wait(), bench.requests.len()), (1000, 5));

    let mut bench = Bench::begun(numbered());
    while bench.exit.is_none() {
        bench.reply(busy());
        if bench.exit.is_none() {
            bench.wait();
        }
    }
    assert_eq!((bench.exit, bench.requests.len()), (Some(1), 21));

    let mut config = numbered();
    config.exit_codes.immediate = Some(77);
    config.parts[0].spec.immediate = true;
    let mut bench = Bench::begun(config);
    bench.reply(busy());
    assert_eq!((bench.exit, bench.requests.len()), (Some(77), 1));
}

/// No end is reported of a task that could not be started, or whose step was ended before it was.
#[test]
fn a_step_of_which_a_task_has_no_end_has_not_ended_well() {
    let mut bench = direct();
    from_channel(&mut bench, vec![passed(), FromStepd::NodeTasksEnded]);
    assert_eq!(bench.exit, Some(1));
}

#[test]
fn a_step_that_waits_says_so_once() {
    let mut bench = Bench::begun(config(1));
    for _ in 0..2 {
        bench.reply(AgentReply::Queued(String::new()));
    }
    let step = created(vec![node(1, &[0])]);
    bench.reply(AgentReply::Created(Box::new(step)));
    assert_eq!(
        bench.printed(),
        "srun: Job 5 step creation temporarily disabled, retrying (Requested nodes are busy)\n\
         srun: Step created for StepId=5.0\n"
    );
}

#[test]
fn a_node_that_does_not_know_the_job_is_asked_again_with_its_key() {
    let mut bench = Bench::begun(config(1));
    let not_here = || AgentReply::Refused(RefusalCode::JobNotHere.into());
    bench.reply(not_here());
    let keys = bench.requests.iter().map(|(_, request, _)| match request {
        AgentRequest::Create(spec) => spec.key.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [None, Some(b"job".to_vec().into())]
    );
    bench.reply(not_here());
    assert_eq!((bench.requests.len(), bench.exit), (2, Some(1)));
    let text = RefusalCode::JobNotHere.text();
    let text = format!("srun: error: Unable to create step for job 5: {text}\n");
    assert_eq!(bench.printed(), text);
}

#[test]
fn a_step_that_was_not_to_wait_has_an_exit_code_of_its_own() {
    let mut config = config(1);
    config.exit_codes.immediate = Some(77);
    config.parts[0].spec.immediate = true;
    let mut bench = Bench::begun(config);
    let refusal = Refusal::new(RefusalCode::Busy, "all CPUs are in use".to_owned());
    bench.reply(AgentReply::Refused(refusal));
    assert_eq!(bench.exit, Some(77));
    let first = bench.printed();
    assert!(first.starts_with("srun: error: all CPUs are in use\nsrun: error: Unable"));
}

#[test]
fn the_controller_knows_where_the_agent_is() {
    let mut bench = Bench::new(config(1));
    bench.unreachable.insert(LEAD.to_owned());
    bench.event(Event::Started);
    assert_eq!(bench.agents.values().collect::<Vec<_>>(), ["n1:6818"]);
    let AgentRequest::Create(spec) = &bench.requests[0].1 else {
        panic!("it asks for the step");
    };
    assert_eq!(spec.key, Some(b"job".to_vec().into()));

    let mut bench = Bench::new(config(1));
    bench.unreachable = [LEAD, "n1:6818"].map(str::to_owned).into();
    bench.event(Event::Started);
    let text =
        "srun: error: Unable to reach the agent of the job's first node at n1:6818: refused\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));

    let mut bench = Bench::new(config(1));
    bench.unreachable.insert(LEAD.to_owned());
    bench.allocation = Err(ControllerError::Failed("timed out".to_owned()));
    bench.event(Event::Started);
    let text = "srun: error: Unable to confirm allocation for job 5: timed out\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));

    let mut bench = Bench::new(config(1));
    bench.unreachable.insert(LEAD.to_owned());
    bench.allocation = Err(ControllerError::Refused(RefusalCode::InvalidJobId.into()));
    bench.event(Event::Started);
    let text = "srun: error: Unable to confirm allocation for job 5: Invalid job id specified\n\
                srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 5\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
}

#[test]
fn an_allocation_of_its_own_ends_with_a_failure() {
    let mut config = config(1);
    config.has_allocation = true;
    let mut bench = Bench::begun(config);
    let agent = bench.srun.interest().agent.unwrap();
    bench.event(Event::AgentLost(agent, "reset".to_owned()));
    let text =
        "srun: error: Unable to create step for job 5: connection to the agent lost: reset\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
    assert_eq!(bench.ended, Some(ExitStatus { code: 1, signal: 0 }));
}

#[test]
fn what_cannot_be_opened_ends_srun() {
    let mut bench = Bench::begun(config(1));
    bench.open_error = Some("Could not open stdout file /x: no".to_owned());
    let step = created(vec![node(1, &[0])]);
    bench.reply(AgentReply::Created(Box::new(step)));
    let text = "srun: error: Could not open stdout file /x: no\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));

    let mut config = config(1);
    config.parts[0].spec.stdin_task = StdinTask::One(1);
    let mut bench = Bench::begun(config);
    let step = created(vec![node(1, &[0])]);
    bench.reply(AgentReply::Created(Box::new(step)));
    let text = "srun: error: --input=1: the step has 1 tasks, numbered from 0\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
}

#[test]
fn a_node_that_is_not_reached_at_first_is_a_failure() {
    let mut bench = Bench::begun(config(3));
    bench.unreachable.insert("unix:/stepd2".to_owned());
    bench.reply(AgentReply::Created(Box::new(two_nodes())));
    let text = "srun: error: Unable to reach node n2 at unix:/stepd2: refused\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
}

#[test]
fn lines_are_labelled_and_ends_reported_together() {
    let mut config = config(3);
    config.rules.label = true;
    config.rules.prolog = Some("/prolog".to_owned());
    config.rules.epilog = Some("/epilog".to_owned());
    let mut bench = Bench::running(config, two_nodes());
    assert_eq!(bench.programs, ["/prolog"]);
    bench.stepd(1, vec![out(0, "a\nb"), exited(1, 7, 0)]);
    bench.stepd(
        2,
        vec![out(2, "c\n"), exited(2, 0, 0), FromStepd::NodeTasksEnded],
    );
    assert_eq!(bench.printed(), "");
    bench.stepd(1, vec![exited(0, 7, 0)]);
    assert_eq!(bench.wait(), 50);
    let text = "srun: error: n1: tasks 0-1: Exited with exit code 7\n";
    assert_eq!(bench.printed(), text);
    bench.stepd(1, vec![FromStepd::NodeTasksEnded]);
    bench.reply(AgentReply::Done);
    assert_eq!(bench.stdout, "0: a\n2: c\n0: b\n");
    assert_eq!((bench.exit, bench.programs.len()), (Some(7), 2));
}

#[test]
fn input_goes_to_the_node_of_its_task() {
    let mut config = config(3);
    config.parts[0].spec.stdin_task = StdinTask::One(2);
    let mut bench = Bench::running(config, two_nodes());
    assert!(bench.srun.interest().input);
    bench.event(Event::Input(b"x".to_vec()));
    assert_eq!(bench.sent_to(1), []);
    let expected = ToStepd::Stdin {
        task: Some(2),
        bytes: b"x".to_vec().into(),
    };
    assert_eq!(bench.sent_to(2), [expected]);
    bench.stepd(1, vec![exited(0, 0, 0), exited(1, 0, 0)]);
    bench.stepd(2, vec![exited(2, 0, 0)]);
    assert!(!bench.srun.interest().input, "nobody is there to read");
}

#[test]
fn a_bad_exit_ends_all_by_term_and_kill() {
    let mut config = config(3);
    config.rules.kill_on_bad_exit = true;
    let mut bench = Bench::running(config, two_nodes());
    bench.stepd(2, vec![exited(2, 1, 0), FromStepd::NodeTasksEnded]);
    assert_eq!(
        bench.printed(),
        "srun: error: n2: task 2: Exited with exit code 1\nsrun: Terminating StepId=5.0\n"
    );
    assert_eq!(bench.sent_to(1), signals(&[SIGTERM, SIGCONT]));
    assert_eq!(bench.wait(), 30_000);
    assert_eq!(bench.sent_to(1), signals(&[SIGKILL]));
    assert_eq!(bench.wait(), 2000);
    let text = "srun: error: Timed out waiting for StepId=5.0 to end\n";
    assert_eq!((bench.printed().as_str(), bench.exit), (text, Some(1)));
}

/// The node signals the tasks itself.
#[test]
fn a_signal_for_the_whole_job_is_not_passed_on() {
    let mut bench = Bench::running(config(3), two_nodes());
    let job = bench.srun.steps().next().expect("there is a step").job;
    bench.event(Event::JobSignal(10, JobId(job.0 + 1)));
    bench.event(Event::JobSignal(12, job));
    bench.event(Event::JobSignal(SIGTERM, job));
    bench.idle();
    assert_eq!(bench.sent_to(1), signals(&[10, SIGTERM, SIGCONT]));
}

#[test]
fn tasks_that_take_too_long_after_the_first_are_killed() {
    let mut config = config(3);
    config.rules.wait_s = 5;
    let mut bench = Bench::running(config, two_nodes());
    bench.stepd(1, vec![FromStepd::Started(vec![1, 2]), exited(0, 0, 0)]);
    assert_eq!((bench.wait(), bench.wait()), (50, 4950));
    assert_eq!(
        bench.printed(),
        "srun: First task exited 5s ago\n\
         srun: StepId=5.0 task 2: unknown\n\
         srun: StepId=5.0 task 1: running\n\
         srun: StepId=5.0 task 0: exited\n\
         srun: Terminating StepId=5.0\n"
    );
    assert_eq!(bench.sent_to(2), signals(&[SIGKILL]));
}

#[test]
fn ctrl_c_asks_then_ends_then_leaves() {
    let mut bench = Bench::running(config(3), two_nodes());
    bench.signal(SIGINT);
    let text =
        "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=5.0 tasks 0-2: unknown\n";
    assert_eq!(bench.printed(), text);
    bench.now_ms += 1000;
    bench.signal(SIGINT);
    assert_eq!(bench.printed(), text);
    assert_eq!(bench.sent_to(1), []);
    bench.now_ms += 999;
    bench.signal(SIGINT);
    assert_eq!(
        bench.printed(),
        "srun: sending Ctrl-C to StepId=5.0\n\
         srun: forcing job termination\n\
         srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    );
    assert_eq!(bench.sent_to(2), signals(&[SIGINT, SIGCONT]));
    bench.signal(SIGINT);
    assert_eq!(bench.sent_to(2), signals(&[SIGKILL]));
    assert_eq!(bench.printed(), "srun: forcing job termination\n");
    assert_eq!(bench.exit, Some(1));
}

#[test]
fn options_say_what_ctrl_c_does() {
    let mut quits = config(3);
    quits.rules.quit_on_interrupt = true;
    let mut bench = Bench::running(quits, two_nodes());
    bench.signal(SIGINT);
    assert_eq!(bench.sent_to(1), signals(&[SIGINT, SIGCONT]));
    assert_eq!(bench.wait(), 100);
    assert_eq!(bench.sent_to(1), signals(&[SIGKILL]));
    let mut passes = config(3);
    passes.rules.disable_status = true;
    let mut bench = Bench::running(passes, two_nodes());
    bench.signal(SIGINT);
    assert_eq!(bench.sent_to(1), signals(&[SIGINT]));
    bench.signal(SIGQUIT);
    assert_eq!(bench.sent_to(1), signals(&[SIGINT, SIGCONT]));
    let mut passes = config(3);
    passes.rules.disable_status = true;
    let mut bench = Bench::running(passes, two_nodes());
    bench.signal(SIGINT);
    bench.printed();
    bench.signal(SIGINT);
    assert_eq!(bench.printed(), "srun: forcing job termination\n");
    assert_eq!(bench.sent_to(1), signals(&[SIGINT, SIGKILL]));
}

#[test]
fn other_signals_are_for_the_tasks_and_a_second_term_kills() {
    let mut bench = Bench::running(config(3), two_nodes());
    bench.signal(10);
    assert_eq!(bench.sent_to(1), signals(&[10]));
    bench.signal(SIGTERM);
    assert_eq!(bench.sent_to(1), signals(&[SIGTERM, SIGCONT]));
    assert_eq!(bench.printed(), "srun: forcing job termination\n");
    bench.signal(SIGTERM);
    assert_eq!(bench.sent_to(1), signals(&[SIGKILL]));
    bench.stepd(
        1,
        vec![exited(0, 0, 9), exited(1, 0, 9), FromStepd::NodeTasksEnded],
    );
    bench.stepd(2, vec![exited(2, 0, 9), FromStepd::NodeTasksEnded]);
    bench.reply(AgentReply::Done);
    assert_eq!(bench.exit, Some(137));
}

#[test]
fn the_end_of_the_allocation_ends_the_step() {
    let mut config = config(3);
    config.has_allocation = true;
    let mut bench = Bench::running(config, two_nodes());
    assert!(bench.srun.interest().controller);
    bench.event(Event::JobEnded(JobState::Cancelled));
    bench.idle();
    assert_eq!(
        bench.printed(),
        "srun: Force Terminated job 5\n\
         srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    );
    let interest = bench.srun.interest();
    assert!(!interest.controller && !interest.reads_controller);
    assert_eq!(bench.wait(), 32_000);
    assert_eq!(bench.exit, Some(1));
    assert_eq!(bench.ended, Some(ExitStatus { code: 1, signal: 0 }));
}

#[test]
fn a_lost_node_is_a_failure_that_is_reported_once() {
    let mut bench = Bench::running(config(3), two_nodes());
    bench.stepd(1, vec![exited(0, 0, 0)]);
    bench.lose(1);
    assert_eq!(
        bench.printed(),
        "srun: error: Node failure on n1\n\
         srun: error: n1: task 1: connection to the node's step daemon lost, exit status unknown\n"
    );
    bench.stepd(2, vec![exited(2, 0, 0), FromStepd::NodeTasksEnded]);
    // A lead is not waited for that would wait for that node.
    assert_eq!((bench.exit, bench.agents.len()), (Some(1), 0));
}

#[test]
fn a_lead_that_does_not_answer_keeps_srun_for_two_seconds() {
    let mut bench = Bench::running(config(3), two_nodes());
    bench.stepd(
        1,
        vec![exited(0, 0, 0), exited(1, 0, 0), FromStepd::NodeTasksEnded],
    );
    bench.stepd(2, vec![exited(2, 0, 0), FromStepd::NodeTasksEnded]);
    assert_eq!((bench.exit, bench.wait()), (None, 2000));
    assert_eq!(bench.exit, Some(0));
}

#[test]
fn a_terminal_is_the_tasks_until_they_end() {
    let mut config = config(1);
    config.parts[0].spec.pty = Some((24, 80));
    let mut bench = Bench::running(config, created(vec![node(1, &[0])]));
    assert!(bench.is_raw);
    bench.event(Event::Window(50, 132));
    assert_eq!(bench.sent_to(1), [ToStepd::SetWindowSize(50, 132)]);
    bench.stepd(1, vec![exited(0, 0, 0), FromStepd::NodeTasksEnded]);
    assert!(!bench.is_raw);
}

/// A step on four nodes, with a task each, whose tasks know each other.
fn meshed() -> Bench {
    let step = StepCreated {
        mesh_addresses: vec!["a".to_owned(), "b".to_owned()],
        ..two_nodes()
    };
    let mut bench = Bench::running(config(3), step);
    let mesh_addresses = ToStepd::SetMeshAddresses(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(bench.sent_to(1), [mesh_addresses]);
    bench
}

#[test]
fn a_task_that_others_wait_for_ends_the_step_with_its_status() {
    let failed = |joined| FromStepd::TaskFailed {
        task: 2,
        exit: ExitStatus {
            code: 42,
            signal: 0,
        },
        joined,
        line: Some("task 2 aborts".to_owned()),
    };
    let mut bench = meshed();
    bench.stepd(2, vec![failed(false)]);
    assert_eq!(bench.printed(), "task 2 aborts\n");
    assert_eq!(bench.sent_to(1), []);
    bench.stepd(1, vec![FromStepd::TaskJoinedMpi]);
    let exit = ExitStatus {
        code: 42,
        signal: 0,
    };
    assert_eq!(bench.sent_to(1), [ToStepd::FailStep(exit)]);
    assert_eq!(bench.printed(), "srun: Terminating StepId=5.0\n");
    bench.stepd(2, vec![failed(true)]);
    assert_eq!(bench.printed(), "");
    bench.stepd(
        1,
        vec![exited(0, 0, 9), exited(1, 0, 9), FromStepd::NodeTasksEnded],
    );
    bench.stepd(2, vec![exited(2, 0, 9), FromStepd::NodeTasksEnded]);
    bench.reply(AgentReply::Done);
    assert_eq!(bench.exit, Some(42));

    let mut bench = meshed();
    bench.stepd(1, vec![FromStepd::TaskJoinedMpi]);
    bench.lose(2);
    let exit = ExitStatus { code: 1, signal: 0 };
    assert_eq!(bench.sent_to(1)[0], ToStepd::FailStep(exit));
}

/// A step on seven nodes by a tree of width two: 0 leads 1, 2 and 3; 4 leads 5 and 6.
fn tree() -> Bench {
    let nodes = (0..7).map(|n| node(n, &[u32::try_from(n).unwrap()]));
    let step = StepCreated {
        width: 2,
        ..created(nodes.collect())
    };
    let mut config = config(7);
    config.parts[0].spec.unbuffered = true;
    let bench = Bench::running(config, step);
    assert_eq!(bench.stepds.len(), 2);
    bench
}

fn up(position: u32, number: u64, acknowledged: u64, message: FromStepd) -> FromStepd {
    FromStepd::ForwardUp {
        position,
        number,
        acknowledged,
        message: Box::new(message),
    }
}

#[test]
fn nodes_below_a_lost_one_are_reached_directly() {
    let mut bench = tree();
    bench.signal(10);
    bench.signal(12);
    bench.stepd(0, vec![up(3, 0, 1, out(3, "a")), up(3, 0, 1, out(3, "a"))]);
    bench.lose(0);
    assert_eq!(
        bench.printed(),
        "srun: error: Node failure on n0\n\
         srun: error: n0: task 0: connection to the node's step daemon lost, exit status unknown\n"
    );
    // 1 leads 2.
    let attached = bench.sent.iter().filter_map(|(_, message)| match message {
        ToStepd::Attach(attach) if attach.seen != [0; 4] && attach.seen != [0; 3] => {
            Some((attach.below.len(), attach.seen.clone()))
        }
        _ => None,
    });
    assert_eq!(
        attached.collect::<Vec<_>>(),
        [(1, vec![0, 0]), (0, vec![1])]
    );
    let second = ToStepd::ForwardDown(1, Box::new(ToStepd::Signal(12)));
    assert_eq!(bench.sent_to(3), std::slice::from_ref(&second));
    let first = ToStepd::ForwardDown(0, Box::new(ToStepd::Signal(10)));
    assert_eq!(bench.sent_to(1), [first, second]);
    bench.stepd(3, vec![up(3, 0, 2, out(3, "a")), up(3, 1, 2, out(3, "b"))]);
    assert_eq!(bench.stdout, "ab");
}

#[test]
fn a_lost_node_whose_heirs_are_not_there_is_several() {
    let mut bench = tree();
    bench.unreachable = ["unix:/stepd5", "unix:/stepd6"].map(str::to_owned).into();
    bench.lose(4);
    let printed = bench.printed();
    let failures = printed.lines().filter(|l| l.contains("Node failure"));
    let failures: Vec<&str> = failures.collect();
    let expected = [4, 5, 6].map(|n| format!("srun: error: Node failure on n{n}"));
    assert_eq!(failures, expected);
    bench.stepd(0, vec![up(1, 0, 0, FromStepd::ChildLost(2))]);
    assert!(
        bench
            .printed()
            .starts_with("srun: error: Node failure on n2\n")
    );
}

#[test]
fn input_waits_for_nodes_that_do_not_take_it() {
    let mut bench = tree();
    bench.event(Event::Input(vec![0; 300 << 10]));
    bench.idle();
    assert!(!bench.srun.interest().input);
    let took = |position| up(position, 0, 1, FromStepd::Acknowledged);
    bench.stepd(0, (0..4).map(took).collect());
    assert!(!bench.srun.interest().input);
    bench.stepd(4, (4..7).map(took).collect());
    assert!(bench.srun.interest().input);
}

#[test]
fn a_step_over_components_has_one_number_and_a_lead_in_each() {
    let part = |job, first_task| StepComponent {
        spec: Box::new(StepSpec {
            job: JobId(job),
            het: Some(HetStep {
                first_task,
                total_tasks: Some(2),
                ..HetStep::default()
            }),
            ..StepSpec::default()
        }),
        lead: Lead::Component(format!("c{job}:6818")),
    };
    let number = NumberSource {
        leader: JOB,
        lead: Lead::Local(LEAD.to_owned()),
    };
    let mut bench = Bench::begun(SrunConfig {
        number: Some(number),
        parts: vec![part(5, 0), part(6, 1)],
        ..config(1)
    });
    bench.reply(AgentReply::Refused(RefusalCode::JobNotHere.into()));
    bench.reply(AgentReply::StepNumber {
        number: 3,
        proof: b"proof".to_vec().into(),
    });
    assert_eq!(bench.agents.values().collect::<Vec<_>>(), ["c5:6818"]);
    for number in [1, 2] {
        bench.reply(AgentReply::Queued("busy".to_owned()));
        let step = StepCreated {
            step: StepNo(3),
            ..created(vec![node(number, &[u32::try_from(number).unwrap() - 1])])
        };
        bench.reply(AgentReply::Created(Box::new(step)));
    }
    let asked = bench
        .requests
        .iter()
        .filter_map(|(_, request, _)| match request {
            AgentRequest::Create(spec) => {
                let het = spec.het.as_ref().unwrap();
                assert!(spec.key.is_some() && het.proof.is_some());
                Some((spec.job.0, het.step, het.first_task))
            }
            _ => None,
        });
    assert_eq!(asked.collect::<Vec<_>>(), [(5, 3, 0), (6, 3, 1)]);
    assert!(
        bench
            .printed()
            .contains("srun: Step created for StepId=6.3\n")
    );
    bench.idle();
    bench.stepd(1, vec![exited(0, 0, 0), FromStepd::NodeTasksEnded]);
    bench.stepd(2, vec![exited(1, 4, 0), FromStepd::NodeTasksEnded]);
    bench.reply(AgentReply::Done);
    bench.reply(AgentReply::Done);
    assert_eq!((bench.exit, bench.agents.len()), (Some(4), 0));
}
