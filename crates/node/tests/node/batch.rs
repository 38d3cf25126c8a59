//! Batch scripts: launch, end, loss of agent and shim, termination.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, env_of, fifo};
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_model::job::{ArrayRole, ExitStatus, JobState};
use muster_model::spec::Owner;
use muster_proto::node::{Report, ToNode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::read_to_string;

pub const TESTS: &[Test] = &[
    ("batch_script_runs_and_is_reported", runs),
    ("directories_of_output_files_are_made", directories),
    ("exit_codes_and_signals", exits),
    ("two_hundred_array_tasks", burst),
    ("failed_launches_are_the_jobs_fault", failures),
    ("missing_work_dir_falls_back_to_tmp", astray),
    ("other_user_leaves_nothing_of_root", other_user),
    ("agent_dies_while_jobs_run", agent_dies),
    ("job_ends_while_agent_is_away", ends_unseen),
    ("shim_dies_while_jobs_run", shim_dies),
    ("an_attempt_is_never_launched_twice", never_twice),
    ("only_what_the_controller_said_is_done", forged),
    ("terminate_lets_the_script_clean_up", traps_term),
    ("terminate_kills_after_kill_wait", ignores_term),
    ("daemonised_grandchild_is_killed", daemonised),
    ("shim_stops_only_when_idle", stop_idle),
];

fn runs() {
    let dir = Dir::new("runs");
    let mut node = Node::start(&dir, "n1");
    let mut job = JobMaker::new(
        12,
        &dir.0,
        "#!/bin/sh\nenv\necho \"$0\" \"$@\"\nulimit -n\n",
    );
    job.spec.argv = vec!["a b".to_owned(), "c".to_owned()];
    node.run(&job);
    assert_eq!(node.batch_exit(12), ExitStatus::default());
    node.released(12);
    let out = dir.text("slurm-12.out");
    let env = env_of(&out);
    assert_eq!(env["SLURM_JOB_ID"], "12");
    assert_eq!(env["SLURMD_NODENAME"], "n1");
    assert_eq!(env["MINE"], "yes");
    assert_eq!(env["TMPDIR"], "/tmp");
    assert_eq!(env["MUSTER_NODE"], node.address());
    assert!(env.contains_key("SLURM_TASK_PID"));
    assert!(!env.contains_key("SLURM_STEP_ID"), "stale variable");
    let tail: Vec<&str> = out.lines().rev().take(2).collect();
    assert_eq!(tail[0], "333", "soft limit of open files");
    assert!(tail[1].ends_with("/slurm_script a b c"), "{}", tail[1]);
}

fn directories() {
    let dir = Dir::new("directories");
    let mut node = Node::start(&dir, "n1");
    let mut job = JobMaker::new(5, &dir.0, "#!/bin/sh\necho here\n");
    job.spec.stdio.stdout = Some("logs/%j/out".to_owned());
    node.run(&job);
    assert_eq!(node.batch_exit(5), ExitStatus::default());
    assert_eq!(dir.text("logs/5/out"), "here\n");
}

fn exits() {
    let dir = Dir::new("exits");
    let mut node = Node::start(&dir, "n1");
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 7\n"));
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\nkill -SEGV $$\n"));
    node.run(&JobMaker::new(3, &dir.0, "#!/no/such/shell\n"));
    assert_eq!(node.batch_exit(1), ExitStatus { code: 7, signal: 0 });
    assert_eq!(
        node.batch_exit(2),
        ExitStatus {
            code: 0,
            signal: 11
        }
    );
    assert_eq!(node.batch_exit(3), ExitStatus { code: 2, signal: 0 });
    let err = dir.text("slurm-3.out");
    assert!(
        err.starts_with("slurmstepd: error: execve(): ")
            && err.contains("No such file or directory"),
        "{err}"
    );
}

fn burst() {
    let dir = Dir::new("burst");
    let mut node = Node::start(&dir, "n1");
    let mut orders = Vec::new();
    let mut blobs = Vec::new();
    for i in 0..200 {
        let mut job = JobMaker::new(
            100 + i,
            &dir.0,
            "#!/bin/sh\necho task $SLURM_ARRAY_TASK_ID\n",
        );
        job.array = ArrayRole::Task {
            base: JobId(50),
            index: u32::try_from(i).unwrap(),
        };
        let (b, order) = job.order(&[&node]);
        blobs = b;
        orders.push(order);
    }
    node.order(blobs, orders);
    for i in 0..200 {
        assert_eq!(node.batch_exit(100 + i), ExitStatus::default());
        node.released(100 + i);
        assert_eq!(
            dir.text(&format!("slurm-50_{i}.out")),
            format!("task {i}\n")
        );
    }
    let scripts = std::fs::read_dir(node.spool.join("scripts")).unwrap();
    assert_eq!(scripts.count(), 1, "tasks share one script file");
}

fn failures() {
    let dir = Dir::new("failures");
    let mut node = Node::start(&dir, "n1");
    std::fs::write(dir.path("file"), "").unwrap();
    let mut job = JobMaker::new(1, &dir.0, "#!/bin/sh\ntrue\n");
    job.spec.stdio.stdout = Some("file/dir/%j.out".to_owned());
    node.run(&job);
    let report = node.report(|r| !matches!(r.report, Report::Released));
    match report.report {
        Report::LaunchFailed {
            error, node_fault, ..
        } => {
            assert!(!node_fault);
            assert!(error.contains("file/dir/1.out"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
    // A pattern that expands to 30 MB is the job's fault as well.
    let mut job = JobMaker::new(3, &dir.0, "#!/bin/sh\ntrue\n");
    job.spec.name = "n".repeat(1024);
    job.spec.stdio.stdout = Some("%x".repeat(30_000));
    node.run(&job);
    let report = node.report(|r| !matches!(r.report, Report::Released));
    match report.report {
        Report::LaunchFailed {
            error, node_fault, ..
        } => {
            assert!(!node_fault);
            assert!(error.contains("File name too long"), "{error}");
            assert!(error.len() < 10_000, "{} bytes", error.len());
        }
        other => panic!("{other:?}"),
    }
    node.released(3);
    let mut job = JobMaker::new(2, &dir.0, "#!/bin/sh\ncat; echo err >&2\n");
    std::fs::write(dir.path("input"), "hello\n").unwrap();
    job.spec.stdio.stdin = Some("input".to_owned());
    job.spec.stdio.stdout = Some("%x-%4j.o".to_owned());
    job.spec.stdio.stderr = Some("e".to_owned());
    node.run(&job);
    assert_eq!(node.batch_exit(2), ExitStatus::default());
    assert_eq!(dir.text("test-0002.o"), "hello\n");
    assert_eq!(dir.text("e"), "err\n");
}

fn astray() {
    let dir = Dir::new("astray");
    let mut node = Node::start(&dir, "n1");
    let mut job = JobMaker::new(1, &dir.path("nowhere"), "#!/bin/sh\npwd\n");
    let out = dir.path("out").to_string_lossy().into_owned();
    job.spec.stdio.stdout = Some(out);
    node.run(&job);
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    let text = dir.text("out");
    assert!(
        text.contains("couldn't chdir to `") && text.ends_with("\n/tmp\n"),
        "{text}"
    );
}

fn other_user() {
    let dir = Dir::new("user");
    let mut node = Node::start(&dir, "n1");
    dir.open();
    let script =
        "#!/bin/sh\nid -u; id -g; id -G; grep CapEff /proc/self/status; ls /proc/self/fd\n";
    let mut job = JobMaker::new(1, &dir.0, script);
    job.spec.owner = Owner {
        uid: 65534,
        gid: 65534,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    };
    node.run(&job);
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    let out = dir.text("slurm-1.out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..3], ["65534", "65534", "65534"], "{out}");
    assert!(lines[3].ends_with("0000000000000000"), "{out}");
    // Standard streams, and the directory that ls itself reads.
    assert_eq!(lines[4..], ["0", "1", "2", "3"], "{out}");
}

fn agent_dies() {
    let dir = Dir::new("agent");
    let mut node = Node::start(&dir, "n1");
    let (up, go) = (dir.path("up"), dir.path("go"));
    fifo(&up);
    fifo(&go);
    node.run(&JobMaker::new(
        1,
        &dir.0,
        "#!/bin/sh\necho up >up\nread x <go\nexit 4\n",
    ));
    assert_eq!(read_to_string(&up).unwrap(), "up\n");
    node.kill_agent();
    node.start_agent();
    node.accept();
    assert_eq!(
        node.hello.as_ref().unwrap().present,
        [JobAttempt::new(JobId(1), Attempt(1))]
    );
    std::fs::write(&go, "x\n").unwrap();
    assert_eq!(node.batch_exit(1), ExitStatus { code: 4, signal: 0 });
    node.released(1);
}

fn ends_unseen() {
    let dir = Dir::new("unseen");
    let mut node = Node::start(&dir, "n1");
    let (up, go, pid) = (dir.path("up"), dir.path("go"), dir.path("pid"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    node.run(&JobMaker::new(
        1,
        &dir.0,
        "#!/bin/sh\necho $$ >pid\necho up >up\nread x <go\nexit 5\n",
    ));
    read_to_string(&up).unwrap();
    node.kill_agent();
    let pid: i32 = read_to_string(&pid).unwrap().trim().parse().unwrap();
    let watched = nix::unistd::Pid::from_raw(pid);
    std::fs::write(&go, "x\n").unwrap();
    wait_gone(watched);
    node.ack = false;
    node.start_agent();
    node.accept();
    assert_eq!(node.batch_exit(1), ExitStatus { code: 5, signal: 0 });
    node.released(1);
    // Not acknowledged: told again on the next connection.
    node.disconnect();
    node.accept();
    node.ack = true;
    assert_eq!(node.batch_exit(1), ExitStatus { code: 5, signal: 0 });
    node.released(1);
}

/// Waits until a process that is not ours is gone.
pub fn wait_gone(pid: Pid) {
    let until = std::time::Instant::now() + super::cluster::PATIENCE;
    while kill(pid, None).is_ok() {
        assert!(std::time::Instant::now() < until, "process {pid} stays");
        std::thread::yield_now();
    }
}

fn shim_dies() {
    go_on_after_the_shim("shim", "");
    // A user chooses the name of a process, which need not be text. Such a script was taken for gone.
    go_on_after_the_shim("shimnamed", "printf '\\377\\376' >/proc/$$/comm\n");
}

/// A script, which begins like this, goes on while its launcher is killed, and is not launched again.
fn go_on_after_the_shim(name: &str, first: &str) {
    let dir = Dir::new(name);
    let mut node = Node::start(&dir, "n1");
    let (up, go) = (dir.path("up"), dir.path("go"));
    [&up, &go].into_iter().for_each(|f| fifo(f));
    node.run(&JobMaker::new(
        1,
        &dir.0,
        &format!("#!/bin/sh\n{first}echo once >>count\necho up >up\nread x <go\nexit 6\n"),
    ));
    read_to_string(&up).unwrap();
    let old = node.shim_pid();
    node.kill_shim();
    // A job that goes through shows that it is there.
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\nexit 2\n"));
    assert_eq!(node.batch_exit(2), ExitStatus { code: 2, signal: 0 });
    assert_ne!(node.shim_pid(), old);
    assert!(node.left(1).is_empty(), "the first job still runs");
    // The controller asks again: nothing is launched.
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\necho twice >>count\n"));
    std::fs::write(&go, "x\n").unwrap();
    let report = node.report(|r| r.job == JobId(1) && !matches!(r.report, Report::Released));
    match report.report {
        Report::BatchEnded { exit, .. } => assert_eq!(exit, ExitStatus { code: 6, signal: 0 }),
        // Where the kernel does not tell how somebody else's child ended.
        Report::Vanished => {
            println!("  (this kernel does not tell exit codes of adopted processes)")
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
    assert_eq!(dir.text("count"), "once\n");
}

fn never_twice() {
    let dir = Dir::new("twice");
    let mut node = Node::start(&dir, "n1");
    node.ack = false;
    let job = JobMaker::new(1, &dir.0, "#!/bin/sh\necho once >>count\n");
    node.run(&job);
    node.run(&job);
    node.batch_exit(1);
    node.released(1);
    // Agent and shim are both lost; the end is on file.
    node.kill_agent();
    let shim = Pid::from_raw(node.shim_pid());
    kill(shim, Signal::SIGKILL).unwrap();
    wait_gone(shim);
    node.start_agent();
    node.accept();
    node.run(&job);
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    node.released(1);
    assert_eq!(dir.text("count"), "once\n");
}

fn forged() {
    let dir = Dir::new("forged");
    let mut node = Node::start(&dir, "n1");
    let job = |id: u64| JobMaker::new(id, &dir.0, &format!("#!/bin/sh\necho {id} >>ran\n"));
    let sealed = |node: &mut Node, id: u64| {
        let (blobs, order) = job(id).order(&[node]);
        node.sealed(blobs, vec![order])
    };
    // Somebody changes what the controller said.
    let mut message = sealed(&mut node, 1);
    let ToNode::Sealed { orders, .. } = &mut message else {
        panic!("orders are sealed");
    };
    *orders.last_mut().unwrap() ^= 1;
    node.send(&message);
    node.turned_away();
    // Says it a second time.
    let twice = sealed(&mut node, 2);
    node.send(&twice);
    assert_eq!(node.batch_exit(2), ExitStatus::default());
    node.released(2);
    node.send(&twice);
    node.turned_away();
    // Says it on another connection, on which it was not said.
    let never = sealed(&mut node, 3);
    node.disconnect();
    node.accept();
    node.send(&never);
    node.turned_away();
    // Leaves something out.
    sealed(&mut node, 4);
    let next = sealed(&mut node, 5);
    node.send(&next);
    node.turned_away();
    node.run(&job(6));
    assert_eq!(node.batch_exit(6), ExitStatus::default());
    node.released(6);
    assert_eq!(dir.text("ran"), "2\n6\n");
}

fn traps_term() {
    let dir = Dir::new("term");
    let mut node = Node::start(&dir, "n1");
    let up = dir.path("up");
    fifo(&up);
    let script = "#!/bin/sh\ntrap 'echo cleaned; exit 3' TERM\necho up >up\nwhile :; do sleep 60 & wait $!; done\n";
    node.run(&JobMaker::new(1, &dir.0, script));
    read_to_string(&up).unwrap();
    let started = std::time::Instant::now();
    node.terminate(1, TerminateReason::TimeLimit);
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
    node.released(1);
    assert!(started.elapsed().as_millis() < 900, "not before KillWait");
    let out = dir.text("slurm-1.out");
    assert!(out.contains("cleaned\n"), "{out}");
    assert!(
        out.contains("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT ")
            && out.contains(" DUE TO TIME LIMIT ***\n"),
        "{out}"
    );
}

fn ignores_term() {
    let dir = Dir::new("kill");
    let mut node = Node::start(&dir, "n1");
    let up = dir.path("up");
    fifo(&up);
    node.run(&JobMaker::new(
        1,
        &dir.0,
        "#!/bin/sh\ntrap '' TERM\necho up >up\nwhile :; do sleep 60; done\n",
    ));
    read_to_string(&up).unwrap();
    node.terminate(1, TerminateReason::Cancelled);
    let report = node.report(|r| r.job == JobId(1));
    match report.report {
        Report::BatchEnded { exit, end, .. } => {
            assert_eq!(exit, ExitStatus { code: 0, signal: 9 });
            assert_eq!(end.state, JobState::Cancelled);
        }
        other => panic!("{other:?}"),
    }
    node.released(1);
    // A job that is not here is released at once.
    node.terminate(77, TerminateReason::Cancelled);
    node.released(77);
}

fn daemonised() {
    let dir = Dir::new("daemon");
    let mut node = Node::start(&dir, "n1");
    let up = dir.path("up");
    fifo(&up);
    // A new session, an empty environment, its parent gone; and one that only stays in the background.
    let script = "#!/bin/sh\nsetsid env -i sh -c 'sh -c \"echo \\$\\$ >>pids; echo up >up; exec sleep 600\" & exit 0'\n\
                  sleep 601 & echo $! >>pids\nread x <up\n";
    node.run(&JobMaker::new(1, &dir.0, script));
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    node.released(1);
    let pids = dir.text("pids");
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        let pid = Pid::from_raw(pid.parse().unwrap());
        assert!(kill(pid, None).is_err(), "process {pid} survived the job");
    }
}

fn stop_idle() {
    use muster_node::{LauncherStop, stop_launcher};
    let dir = Dir::new("stop");
    let mut node = Node::start(&dir, "n1");
    let up = dir.path("up");
    fifo(&up);
    node.run(&JobMaker::new(
        1,
        &dir.0,
        "#!/bin/sh\necho up >up\nexec sleep 600\n",
    ));
    read_to_string(&up).unwrap();
    node.kill_agent();
    assert_eq!(
        stop_launcher(&node.spool, false).unwrap(),
        LauncherStop::Busy(1)
    );
    assert_eq!(
        stop_launcher(&node.spool, true).unwrap(),
        LauncherStop::Stopped
    );
    assert_eq!(
        stop_launcher(&node.spool, true).unwrap(),
        LauncherStop::NotRunning
    );
}
