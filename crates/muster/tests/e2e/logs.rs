//! Log files: what rotates them, and who reads them.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn logs_that_are_moved_away_are_begun_anew() {
    let c = Cluster::start(1, 2);
    let (controller, agent) = (c.controller(), c.agent("n1"));
    for (log, pid) in [("log/ctld.log", controller), ("log/noded.n1.log", agent)] {
        let path = c.path(log);
        for signal in ["USR2", "HUP"] {
            let old = path.with_extension(signal);
            std::fs::rename(&path, &old).unwrap();
            c.ok(&format!("kill -{signal} {pid}"));
            c.until("the log is begun anew", || {
                std::fs::read_to_string(&path).is_ok_and(|text| text.contains("opened anew"))
            });
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640, "{log}");
        }
    }
    // The agent, which opens no files of its own, writes to the new one too.
    c.kill(controller);
    c.until("the agent logs there", || {
        let text = std::fs::read_to_string(c.path("log/noded.n1.log"));
        text.is_ok_and(|text| text.contains("controller"))
    });
    assert_eq!(c.start_controller().code, 0);
    c.until_prints("sinfo -h -o %T", "idle");
    assert_eq!(c.agent("n1"), agent);
}

/// What users choose is told to them, and not written to the log of root's launcher, where it would forge lines and fill the disk.
#[test]
fn texts_of_users_are_told_to_them_and_not_to_the_node() {
    let c = Cluster::start(1, 2);
    let forged = "$'/proc/x\\nmuster-shim: agent 1.0 of node FORGED attached'";
    let ran = c.run(&format!("srun -n2 --task-epilog={forged} true"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("--task-epilog /proc/x\\nmuster-shim"),
        "{}",
        ran.err
    );
    assert_eq!(
        ran.err.matches("cannot be executed").count(),
        2,
        "{}",
        ran.err
    );
    // Files for each task are opened on its node.
    for options in [
        "--output=/proc/FORGED%t",
        "--error=/proc/FORGED%t",
        "--output=own%t -D /proc/FORGED",
    ] {
        c.run(&format!("srun -n2 {options} true"));
    }
    let log = std::fs::read_to_string(c.path("spool.n1/shim.log")).unwrap();
    assert!(!log.contains("FORGED"), "{log}");
}

#[test]
fn a_jobs_output_is_printed_and_followed_to_its_end() {
    let c = Cluster::start(1, 2);
    c.ok("mkfifo go");
    let script = "echo one; echo two; read -r line < go; echo \"three $line\"; echo wrong >&2";
    let job = c.sbatch(&format!("-o out.%j -e err.%j --wrap '{script}'"));
    c.until_prints(&format!("cat out.{job}"), "one\ntwo");
    assert_eq!(c.ok(&format!("muster logs {job}")), "one\ntwo");
    assert_eq!(c.ok(&format!("muster logs -n 1 {job}")), "two");
    c.ok(&format!(
        "muster logs -f {job} > followed & echo go > go; wait"
    ));
    assert_eq!(c.read("followed"), "one\ntwo\nthree go\n");
    assert_eq!(c.ok(&format!("muster logs -e {job}")), "wrong");
    // One that waits is followed from its start on, and is not there before.
    let held = c.sbatch("-H -o later --wrap 'echo late'");
    let refused = c.run(&format!("muster logs {held}"));
    assert!(
        refused.code == 1 && refused.err.contains("has not started"),
        "{refused:?}"
    );
    c.ok(&format!(
        "muster logs -f {held} > followed & scontrol release {held}; wait"
    ));
    assert_eq!(c.read("followed"), "late\n");
    let array = c.sbatch("-a 1-2 -o /dev/null --wrap true");
    for (args, text) in [
        (format!("{array}"), "name a task"),
        ("99".to_owned(), "there is no job 99"),
        ("x".to_owned(), "not a job number"),
        (String::new(), "one job is needed"),
    ] {
        let refused = c.run(&format!("muster logs {args}"));
        assert!(
            refused.code == 1 && refused.err.contains(text),
            "{args}: {refused:?}"
        );
    }
}
