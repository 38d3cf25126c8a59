//! srun with a step that stand-ins play.

use crate::stage::{Stage, exited, node, out, send_messages};
use muster_model::command::UserCommand;
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::refusal::RefusalCode;
use muster_proto::client::{Query, RequestBody};
use muster_proto::frame;
use muster_proto::step::{AgentReply, FromStepd, ToStepd};

#[test]
fn output_is_labelled_and_ends_are_told() {
    let stage = Stage::new();
    stage.willing_controller(&["n1", "n2"]);
    stage.agent(
        Vec::new(),
        vec![node("n1", &[0, 1]), node("n2", &[2])],
        |name, stream| {
            if name == "n1" {
                send_messages(
                    stream,
                    &[
                        FromStepd::Started(vec![10, 11]),
                        out(0, "a\nb"),
                        out(1, "c\n"),
                        out(0, "d\n"),
                        exited(0, 7, 0),
                        exited(1, 7, 0),
                        FromStepd::NodeTasksEnded,
                    ],
                );
            } else {
                send_messages(
                    stream,
                    &[
                        FromStepd::Started(vec![12]),
                        exited(2, 0, 0),
                        FromStepd::NodeTasksEnded,
                    ],
                );
            }
        },
    );
    let seen = stage.run(&["srun", "-N2", "-n3", "-l", "prog"]);
    let mut lines: Vec<&str> = seen.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: a", "0: bd", "1: c"]);
    assert_eq!(
        seen.stderr,
        "srun: error: n1: tasks 0-1: Exited with exit code 7\n"
    );
    assert_eq!(seen.code, 7);
    let end = UserCommand::EndAllocation {
        job: JobId(5),
        exit: ExitStatus { code: 7, signal: 0 },
    };
    let requests = stage.requests.lock().unwrap();
    assert_eq!(requests.last(), Some(&RequestBody::Command(Box::new(end))));
}

fn inside(stage: &Stage) -> Vec<(&'static str, String)> {
    let agent = format!("unix:{}", stage.dir.join("agent.sock").display());
    vec![("SLURM_JOB_ID", "5".to_owned()), ("MUSTER_NODE", agent)]
}

fn run_inside(stage: &Stage, args: &[&str], input: &str) -> crate::stage::Seen {
    let env = inside(stage);
    let env: Vec<(&str, &str)> = env.iter().map(|(n, v)| (*n, v.as_str())).collect();
    stage.run_with(args, &env, input)
}

#[test]
fn a_signal_gives_its_number() {
    let stage = Stage::new();
    stage.agent(Vec::new(), vec![node("n1", &[0])], |_, stream| {
        send_messages(
            stream,
            &[
                FromStepd::Started(vec![9]),
                exited(0, 0, 11),
                FromStepd::NodeTasksEnded,
            ],
        );
    });
    let seen = run_inside(&stage, &["srun", "prog"], "");
    assert_eq!(seen.stderr, "srun: error: n1: task 0: Segmentation fault\n");
    assert_eq!(seen.code, 139);
}

/// srun(1), `SLURM_TEST_EXEC`: nothing is asked of anyone for a program that cannot be executed.
#[test]
fn a_program_that_is_not_here_is_refused_where_that_is_tested() {
    let stage = Stage::new();
    for program in [
        "/nonexistent",
        "no-such-program-here",
        "/etc/passwd",
        "/etc",
    ] {
        let seen = stage.run_with(&["srun", program], &[("SLURM_TEST_EXEC", "1")], "");
        let wanted = format!("srun: fatal: Can not execute {program}\n");
        assert_eq!((seen.stderr, seen.code), (wanted, 1));
    }
    assert!(stage.requests.lock().unwrap().is_empty());
}

#[test]
fn a_node_that_has_not_heard_of_the_job_is_asked_again_with_its_key() {
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    let not_here = AgentReply::Refused(RefusalCode::JobNotHere.into());
    stage.agent(vec![not_here], vec![node("n1", &[0])], |_, stream| {
        send_messages(
            stream,
            &[
                FromStepd::Started(vec![9]),
                exited(0, 0, 0),
                FromStepd::NodeTasksEnded,
            ],
        );
    });
    let seen = run_inside(&stage, &["srun", "prog"], "");
    assert_eq!((seen.stderr.as_str(), seen.code), ("", 0));
    let requests = stage.requests.lock().unwrap();
    let query = Query::Allocation(JobId(5));
    let asked = |r: &RequestBody| matches!(r, RequestBody::Query(q) if **q == query);
    assert!(requests.iter().any(asked), "{requests:?}");
}

#[test]
fn waiting_and_messages_of_the_node() {
    let stage = Stage::new();
    let busy = || AgentReply::Queued("Requested nodes are busy".to_owned());
    stage.agent(vec![busy(), busy()], vec![node("n1", &[0])], |_, stream| {
        let text = "slurmstepd-n1: error: execve(): /nosuch/program: No such file or directory";
        send_messages(
            stream,
            &[
                FromStepd::NodeMessage(text.to_owned()),
                exited(0, 2, 0),
                FromStepd::NodeTasksEnded,
            ],
        );
    });
    let seen = run_inside(&stage, &["srun", "/nosuch/program"], "");
    assert_eq!(
        seen.stderr,
        "srun: Job 5 step creation temporarily disabled, retrying (Requested nodes are busy)\n\
         srun: Step created for StepId=5.0\n\
         slurmstepd-n1: error: execve(): /nosuch/program: No such file or directory\n\
         srun: error: n1: task 0: Exited with exit code 2\n"
    );
    assert_eq!(seen.code, 2);
}

#[test]
fn input_goes_to_the_tasks() {
    let stage = Stage::new();
    stage.agent(Vec::new(), vec![node("n1", &[0])], |_, stream| {
        let mut got = Vec::new();
        loop {
            match frame::read(stream).unwrap() {
                ToStepd::Stdin { task, bytes } => {
                    assert_eq!(task, None);
                    if bytes.is_empty() {
                        break;
                    }
                    got.extend_from_slice(&bytes);
                }
                other => panic!("{other:?}"),
            }
        }
        let text = String::from_utf8(got).unwrap().to_uppercase();
        send_messages(
            stream,
            &[out(0, &text), exited(0, 0, 0), FromStepd::NodeTasksEnded],
        );
    });
    let input = "line\n".repeat(20_000);
    let seen = run_inside(&stage, &["srun", "-o", "out_%j_%s", "cat"], &input);
    assert_eq!(
        (seen.stdout.as_str(), seen.stderr.as_str(), seen.code),
        ("", "", 0)
    );
    assert_eq!(stage.read("out_5_0"), input.to_uppercase());
}

#[test]
fn one_bad_exit_ends_all() {
    let stage = Stage::new();
    stage.agent(
        Vec::new(),
        vec![node("n1", &[0]), node("n2", &[1])],
        |name, stream| {
            send_messages(stream, &[FromStepd::Started(vec![1])]);
            if name == "n1" {
                send_messages(stream, &[exited(0, 1, 0), FromStepd::NodeTasksEnded]);
                return;
            }
            loop {
                match frame::read(stream).unwrap() {
                    ToStepd::Signal(15) => break,
                    // What is stopped goes on first.
                    ToStepd::Signal(18) | ToStepd::Stdin { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            send_messages(stream, &[exited(1, 0, 15), FromStepd::NodeTasksEnded]);
        },
    );
    let seen = run_inside(&stage, &["srun", "-K", "-n2", "prog"], "");
    assert_eq!(
        seen.stderr,
        "srun: error: n1: task 0: Exited with exit code 1\n\
         srun: Terminating StepId=5.0\n\
         srun: error: n2: task 1: Terminated\n"
    );
    assert_eq!(seen.code, 143);
}

#[test]
fn what_fails_first_is_told() {
    let stage = Stage::new();
    stage.agent(
        Vec::new(),
        vec![node("n1", &[0]), node("n2", &[1])],
        |name, stream| {
            let task = u32::from(name == "n2");
            let aborts = |code| FromStepd::TaskFailed {
                task,
                exit: ExitStatus { code, signal: 0 },
                joined: true,
                line: Some(format!("{name}: task {task} aborts with status {code}")),
            };
            send_messages(stream, &[FromStepd::Started(vec![1])]);
            if name == "n1" {
                send_messages(stream, &[aborts(42)]);
            }
            while !matches!(frame::read(stream).unwrap(), ToStepd::FailStep(_)) {}
            // It found the other gone before it was told to end.
            if name == "n2" {
                send_messages(stream, &[aborts(14)]);
            }
            send_messages(stream, &[exited(task, 0, 9), FromStepd::NodeTasksEnded]);
        },
    );
    let seen = run_inside(&stage, &["srun", "-n2", "prog"], "");
    assert!(
        seen.stderr.starts_with(
            "n1: task 0 aborts with status 42\nsrun: Terminating StepId=5.0\nsrun: error: "
        ),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("14"), "{}", seen.stderr);
    assert_eq!(seen.code, 42);
}

#[test]
fn a_lost_node_is_a_failure() {
    let stage = Stage::new();
    stage.agent(Vec::new(), vec![node("n1", &[0, 1])], |_, stream| {
        send_messages(stream, &[FromStepd::Started(vec![1, 2]), exited(0, 0, 0)]);
    });
    let seen = run_inside(&stage, &["srun", "-n2", "prog"], "");
    assert!(
        seen.stderr.contains("srun: error: Node failure on n1\n"),
        "{}",
        seen.stderr
    );
    assert_eq!(seen.code, 1);
}

/// In an allocation these options were passed over without a word: the step ran as its job's user.
#[test]
fn another_user_is_refused_in_an_allocation_too() {
    let stage = Stage::new();
    let env = inside(&stage);
    let env: Vec<(&str, &str)> = env.iter().map(|(n, v)| (*n, v.as_str())).collect();
    for args in [
        &["srun", "--uid=nosuchuser", "prog"][..],
        &["srun", "--gid=nosuchgroup", "prog"],
        &["srun", "-n1", "a", ":", "--uid=nosuchuser", "b"],
        &["srun", "--het-group=0", "--uid=nosuchuser", "prog"],
        &["srun", "--jobid=5", "--uid=nosuchuser", "prog"],
    ] {
        let seen = stage.run_with(args, &env, "");
        assert_eq!(seen.code, 255, "{args:?}: {}", seen.stderr);
        assert!(
            seen.stderr.contains("id specification"),
            "{args:?}: {}",
            seen.stderr
        );
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: nothing is run as another user");
        return;
    }
    for long in ["uid", "gid"] {
        let seen = stage.run_as(65534, &["srun", &format!("--{long}=0"), "prog"], &env);
        assert_eq!(
            seen.stderr,
            format!("srun: error: --{long} only permitted by root user\n")
        );
        assert_eq!(seen.code, 255);
    }
}

/// A step of another user, which root asked for, ran as the job's user without a word.
#[test]
fn root_names_no_other_user_than_the_jobs() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: nothing is run as another user");
        return;
    }
    let stage = Stage::new();
    stage.willing_controller(&["n1"]);
    stage.agent(Vec::new(), vec![node("n1", &[0])], |_, stream| {
        let ended = [
            FromStepd::Started(vec![9]),
            exited(0, 0, 0),
            FromStepd::NodeTasksEnded,
        ];
        send_messages(stream, &ended);
    });
    for (option, has) in [("--uid=65534", "uid 0"), ("--gid=65534", "gid 0")] {
        for args in [
            &["srun", option, "prog"][..],
            &["srun", "-n1", "a", ":", option, "b"],
        ] {
            let seen = run_inside(&stage, args, "");
            let text = format!("{option}: job 5 has {has}, and its steps run with that");
            assert!(seen.stderr.contains(&text), "{args:?}: {}", seen.stderr);
            assert_ne!(seen.code, 0);
        }
    }
    let seen = run_inside(&stage, &["srun", "--uid=0", "--gid=0", "prog"], "");
    assert_eq!((seen.stderr.as_str(), seen.code), ("", 0));
}

#[test]
fn mpi_is_what_there_is() {
    let stage = Stage::new();
    let seen = stage.run(&["srun", "--mpi=list"]);
    assert_eq!(seen.code, 0);
    assert!(
        seen.stdout
            .starts_with("MPI plugin types are...\n\tnone\n\tauto\n\tpmi2\n"),
        "{}",
        seen.stdout
    );
    let seen = stage.run(&["srun", "--mpi=openmpi", "true"]);
    assert!(
        seen.stderr.ends_with(
            "srun: error: Invalid MPI type 'openmpi', --mpi=list for acceptable types\n"
        )
    );
    assert_eq!(seen.code, 1);
}
