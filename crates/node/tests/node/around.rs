//! The site's programs around a job, what the user's processes may see of agent and shim, and steps of jobs that have
//! lost both.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, env_of, fifo};
use super::steps::{Srun, allocate, spec, step_end};
use muster_model::effect::TerminateReason;
use muster_model::ids::StepNo;
use muster_model::job::ExitStatus;
use muster_model::spec::Owner;
use muster_proto::node::{Report, ToNode};
use muster_proto::step::ToStepd;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

pub const TESTS: &[Test] = &[
    ("prolog_and_epilog_run_as_root_around_a_job", around),
    ("failed_prolog_is_the_nodes_fault", prolog_fails),
    ("failed_epilog_makes_the_node_unfit", epilog_fails),
    ("programs_that_take_too_long_are_killed", programs_late),
    ("steps_wait_for_the_prolog", steps_wait),
    ("job_is_ended_during_its_prolog", ended_in_prolog),
    ("epilog_runs_when_the_shim_was_lost", epilog_after_loss),
    ("what_the_site_starts_is_left_alone", site_daemon),
    ("nothing_of_the_agent_reaches_jobs", hygiene),
    ("new_steps_when_agent_and_shim_were_lost", both_die),
];

fn program(dir: &Dir, name: &str, text: &str) -> PathBuf {
    let path = dir.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn configure(node: &mut Node, prolog: Option<PathBuf>, epilog: Option<PathBuf>) {
    let text = |p: Option<PathBuf>| p.map(|p| p.to_string_lossy().into_owned());
    node.settings.prolog = text(prolog);
    node.settings.epilog = text(epilog);
    node.configure();
}

fn around() {
    let dir = Dir::new("around");
    let mut node = Node::start(&dir, "n1");
    dir.open();
    let log = dir.path("log");
    let line = |word: &str| format!("echo {word} $(id -u) >>{}\n", log.display());
    std::fs::create_dir(dir.path("prolog.d")).unwrap();
    program(
        &dir,
        "prolog.d/1",
        &format!(
            "{}env >{}\n",
            line("first"),
            dir.path("prolog.env").display()
        ),
    );
    program(&dir, "prolog.d/2", &line("second"));
    let epilog = program(
        &dir,
        "epilog",
        &format!(
            "{}env >{}\nls /proc/self/fd >{}\n",
            line("epilog"),
            dir.path("epilog.env").display(),
            dir.path("epilog.fds").display()
        ),
    );
    configure(&mut node, Some(dir.path("prolog.d/*")), Some(epilog));
    let mut job = JobMaker::new(7, &dir.0, &format!("#!/bin/sh\n{}exit 3\n", line("job")));
    std::fs::write(&log, "").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o666)).unwrap();
    job.spec.owner = Owner {
        uid: 65534,
        gid: 65534,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    };
    node.run(&job);
    assert_eq!(node.batch_exit(7), ExitStatus { code: 3, signal: 0 });
    node.released(7);
    assert_eq!(dir.text("log"), "first 0\nsecond 0\njob 65534\nepilog 0\n");
    let env = env_of(&dir.text("prolog.env"));
    for (name, value) in [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOBID", "7"),
        ("SLURM_JOB_UID", "65534"),
        ("SLURM_JOB_USER", "nobody"),
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_JOB_PARTITION", "batch"),
        ("SLURMD_NODENAME", "n1"),
        ("SLURM_CLUSTER_NAME", "test"),
        ("SLURM_CONF", "/etc/slurm/slurm.conf"),
        ("SLURM_SCRIPT_CONTEXT", "prolog_slurmd"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(
        !env.contains_key("MINE"),
        "the submitter's environment is not the site's"
    );
    let env = env_of(&dir.text("epilog.env"));
    assert_eq!(env["SLURM_SCRIPT_CONTEXT"], "epilog_slurmd");
    assert_eq!(env["SLURM_JOB_EXIT_CODE"], "768");
    assert_eq!(env["SLURM_JOB_EXIT_CODE2"], "3:0");
    assert_eq!(dir.text("epilog.fds"), "0\n1\n2\n3\n");
}

fn prolog_fails() {
    let dir = Dir::new("prologfails");
    let mut node = Node::start(&dir, "n1");
    let prolog = program(&dir, "prolog", "exit 4\n");
    let epilog = program(
        &dir,
        "epilog",
        &format!("echo ran >{}\n", dir.path("epi").display()),
    );
    configure(&mut node, Some(prolog), Some(epilog));
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\necho ran >job\n"));
    let report = node.report(|r| !matches!(r.report, Report::Released));
    match report.report {
        Report::LaunchFailed {
            error,
            node_fault,
            prolog,
            lack,
        } => {
            assert!(node_fault && prolog && !lack);
            assert!(error.contains("/prolog failed: exit status 4"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
    assert_eq!(dir.text("job"), "");
    assert_eq!(dir.text("epi"), "ran\n");
    // One that is not there.
    configure(&mut node, Some(dir.path("nowhere")), None);
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\necho ran >job\n"));
    node.report(|r| {
        matches!(
            r.report,
            Report::LaunchFailed {
                node_fault: true,
                prolog: true,
                lack: false,
                ..
            }
        )
    });
    node.released(2);
}

fn epilog_fails() {
    let dir = Dir::new("epilogfails");
    let mut node = Node::start(&dir, "n1");
    let epilog = program(&dir, "epilog", "exit 5\n");
    configure(&mut node, None, Some(epilog));
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 0\n"));
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    let report = node.report(|_| true);
    match report.report {
        Report::NodeFault { error } => {
            assert!(
                error.starts_with("Epilog error") && error.ends_with("exit status 5"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
}

fn programs_late() {
    let dir = Dir::new("proglate");
    let mut node = Node::start(&dir, "n1");
    node.settings.prolog_timeout_s = Some(1);
    // What it starts in its own session goes with it.
    let prolog = program(&dir, "prolog", "sleep 1000\n");
    configure(&mut node, Some(prolog), None);
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\necho ran >job\n"));
    match node
        .report(|r| !matches!(r.report, Report::Released))
        .report
    {
        Report::LaunchFailed { error, prolog, .. } => {
            assert!(
                prolog && error.contains("longer than PrologEpilogTimeout"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
    assert_eq!(dir.text("job"), "");
    node.settings.prolog_timeout_s = None;
    node.settings.epilog_timeout_s = Some(1);
    let epilog = program(&dir, "epilog", "sleep 1000\n");
    configure(&mut node, None, Some(epilog));
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\nexit 0\n"));
    node.batch_exit(2);
    let report = node.report(|_| true);
    assert!(
        matches!(&report.report, Report::NodeFault { error } if error.contains("longer than")),
        "{report:?}"
    );
    node.released(2);
}

fn steps_wait() {
    let dir = Dir::new("prologsteps");
    let mut node = Node::start(&dir, "n1");
    let (go, done) = (dir.path("go"), dir.path("done"));
    fifo(&go);
    let prolog = program(
        &dir,
        "prolog",
        &format!("read x <{}\necho done >{}\n", go.display(), done.display()),
    );
    configure(&mut node, Some(prolog), None);
    allocate(1, &dir, &mut [&mut node], 1);
    let srun = Srun::ask(&node, spec(1, &dir, &["cat", "done"]));
    std::fs::write(&go, "x\n").unwrap();
    let o = srun.connect().finish();
    assert_eq!(o.out[&0], "done\n");
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

fn ended_in_prolog() {
    let dir = Dir::new("prologend");
    let mut node = Node::start(&dir, "n1");
    let (up, go, epi) = (dir.path("up"), dir.path("go"), dir.path("epi"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    let prolog = program(
        &dir,
        "prolog",
        &format!("echo up >{}\nread x <{}\n", up.display(), go.display()),
    );
    let epilog = program(&dir, "epilog", &format!("echo ran >{}\n", epi.display()));
    configure(&mut node, Some(prolog), Some(epilog));
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\necho ran >job\n"));
    read_to_string(&up).unwrap();
    node.terminate(1, TerminateReason::Cancelled);
    node.send(&ToNode::Ping);
    node.health();
    // The agent may restart meanwhile.
    node.kill_agent();
    node.start_agent();
    node.accept();
    node.terminate(1, TerminateReason::Cancelled);
    assert!(node.left(1).is_empty());
    std::fs::write(&go, "x\n").unwrap();
    node.released(1);
    assert!(node.left(1).is_empty());
    assert_eq!(
        (dir.text("job").as_str(), dir.text("epi").as_str()),
        ("", "ran\n")
    );
}

fn epilog_after_loss() {
    let dir = Dir::new("epiloss");
    let mut node = Node::start(&dir, "n1");
    let (up, go, epi) = (dir.path("up"), dir.path("go"), dir.path("epi"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    let epilog = program(
        &dir,
        "epilog",
        &format!("echo $SLURM_JOB_ID >>{}\n", epi.display()),
    );
    let prolog = program(&dir, "prolog", "exit 0\n");
    configure(&mut node, Some(prolog), Some(epilog));
    node.run(&JobMaker::new(
        3,
        &dir.0,
        "#!/bin/sh\necho up >up\nread x <go\n",
    ));
    read_to_string(&up).unwrap();
    node.kill_shim();
    std::fs::write(&go, "x\n").unwrap();
    node.released(3);
    assert_eq!(dir.text("epi"), "3\n");
}

fn site_daemon() {
    let dir = Dir::new("site");
    let mut node = Node::start(&dir, "n1");
    let (up, go, pid) = (dir.path("up"), dir.path("go"), dir.path("pid"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    // The prolog ends when the daemon has a session of its own; before that it is one of the prolog's processes.
    let text = format!(
        "mkfifo own\nsetsid sh -c 'echo $$ >{}; echo >own; echo up >{}; read x <{}' &\nread x <own\n",
        pid.display(),
        up.display(),
        go.display()
    );
    let text = format!("cd {}\n{text}", dir.0.display());
    let prolog = program(&dir, "prolog", &text);
    configure(&mut node, Some(prolog), None);
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 2\n"));
    read_to_string(&up).unwrap();
    assert_eq!(node.batch_exit(1), ExitStatus { code: 2, signal: 0 });
    node.released(1);
    let pid = Pid::from_raw(dir.text("pid").trim().parse().unwrap());
    assert!(kill(pid, None).is_ok(), "the site's daemon was killed");
    std::fs::write(&go, "x\n").unwrap();
    super::batch::wait_gone(pid);
}

fn hygiene() {
    let dir = Dir::new("hygiene");
    // SAFETY: the tests' controller has no thread that reads the environment now.
    #[allow(unsafe_code)]
    unsafe {
        std::env::set_var("MUSTER_CTLD_SECRET", "leak");
        std::env::set_var("MUSTER_HOME", "/leak");
    }
    let mut node = Node::start(&dir, "n1");
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe {
        std::env::remove_var("MUSTER_CTLD_SECRET");
        std::env::remove_var("MUSTER_HOME");
    }
    let epilog = program(
        &dir,
        "epilog",
        &format!("env >{}\n", dir.path("epi").display()),
    );
    configure(&mut node, None, Some(epilog));
    let script = "#!/bin/sh\nenv\nls /proc/self/fd\n";
    node.run(&JobMaker::new(1, &dir.0, script));
    node.batch_exit(1);
    node.released(1);
    allocate(2, &dir, &mut [&mut node], 1);
    let step = Srun::ask(&node, spec(2, &dir, &["sh", "-c", "env; ls /proc/self/fd"]));
    let step = step.connect().finish().out[&0].clone();
    node.terminate(2, TerminateReason::Finished);
    node.released(2);
    for (who, text) in [
        ("script", dir.text("slurm-1.out")),
        ("task", step),
        ("epilog", dir.text("epi")),
    ] {
        assert!(!text.contains("leak"), "{who}: {text}");
        assert!(text.contains("SLURM_JOB_ID="), "{who}: {text}");
        if who != "epilog" {
            assert!(text.ends_with("\n0\n1\n2\n3\n"), "{who}: {text}");
        }
    }
    let shim = read_to_string(format!("/proc/{}/environ", node.shim_pid())).unwrap();
    assert!(!shim.contains("leak"), "{shim}");
    // A submitter who has such a variable keeps it.
    let mut job = JobMaker::new(3, &dir.0, "#!/bin/sh\necho $MUSTER_HOME\n");
    job.env.push("MUSTER_HOME=/mine".to_owned());
    node.run(&job);
    node.batch_exit(3);
    node.released(3);
    assert_eq!(dir.text("slurm-3.out"), "/mine\n");
}

fn both_die() {
    let dir = Dir::new("bothdie");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut running = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    running.started();
    let shim = Pid::from_raw(node.shim_pid());
    node.kill_agent();
    kill(shim, Signal::SIGKILL).unwrap();
    super::batch::wait_gone(shim);
    let mode = std::fs::metadata(node.spool.join("attempts")).unwrap();
    assert_eq!(
        mode.permissions().mode() & 0o777,
        0o600,
        "it has keys in it"
    );
    node.start_agent();
    node.accept();
    let mut beside = spec(1, &dir, &["sh", "-c", "echo $SLURM_STEP_ID"]);
    beside.overlap = true;
    let mut second = Srun::ask(&node, beside).connect();
    second.started();
    assert_eq!(second.finish().out[&0], "1\n");
    running.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
    assert_eq!(
        running.finish().exits[&0],
        ExitStatus { code: 5, signal: 0 }
    );
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
    node.report(|r| {
        matches!(
            &r.report,
            Report::StepEnded {
                step: StepNo(1),
                ..
            }
        )
    });
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}
