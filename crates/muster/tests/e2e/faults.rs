//! Processes die at the worst moments; nothing that was acknowledged is lost, nothing runs twice.

use crate::cluster::{Cluster, alive};
use std::collections::BTreeSet;

/// A script that notes its start and end and waits for a file in between.
const NOTE: &str = "--wrap 'echo begin $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $$ >>notes; until [ -e go ]; do sleep 0.05; done; \
                    echo end $SLURM_JOB_ID >>notes; exit 5'";

#[test]
fn a_killed_controller_loses_no_acknowledged_job_and_reuses_no_id() {
    let c = Cluster::start(2, 4);
    let mut all = BTreeSet::new();
    for round in 0..3 {
        for _ in 0..10 {
            assert!(
                all.insert(c.sbatch("-H -o /dev/null --wrap true")),
                "an id was given twice"
            );
        }
        all.insert(c.sbatch(&format!(
            "-H -o /dev/null --array=0-99 -J a{round} --wrap true"
        )));
        c.kill(c.controller());
        assert_eq!(c.start_controller().code, 0);
        let left: BTreeSet<u64> = c
            .ok("squeue -h -o %F")
            .lines()
            .map(|l| l.parse().unwrap())
            .collect();
        assert_eq!(left, all);
    }
    // sacct leaves out jobs that were never eligible unless they are named.
    let ids: Vec<String> = all.iter().map(u64::to_string).collect();
    let rows = c.ok(&format!(
        "sacct -X -n -P -o JobID -j {} | wc -l",
        ids.join(",")
    ));
    assert_eq!(rows, all.len().to_string());
}

#[test]
fn running_jobs_go_on_through_a_restart_of_controller_and_agents() {
    let c = Cluster::start(2, 4);
    let jobs: Vec<u64> = (0..4)
        .map(|_| c.sbatch(&format!("-n2 -o /dev/null {NOTE}")))
        .collect();
    c.until("all have begun", || {
        c.read_if_there("notes").lines().count() == 4
    });
    c.kill(c.controller());
    c.kill(c.agent("n1"));
    c.kill(c.agent("n2"));
    assert_eq!(c.start_controller().code, 0);
    c.ok("slurmd -N n1 && slurmd -N n2");
    c.until_prints("sinfo -h -o %T", "allocated");
    assert_eq!(c.ok("squeue -h -t R -o %i | wc -l"), "4");
    c.kill(c.controller());
    c.write("go", "");
    c.until("all have ended", || {
        c.read("notes").matches("end").count() == 4
    });
    assert_eq!(c.start_controller().code, 0);
    for job in jobs {
        c.until_prints(
            &format!("sacct -X -n -P -j {job} -o State,ExitCode"),
            "FAILED|5:0",
        );
    }
    assert_eq!(
        c.read("notes").matches("begin").count(),
        4,
        "{}",
        c.read("notes")
    );
}

#[test]
fn a_machine_that_dies_runs_its_jobs_again_with_a_restart_count() {
    let c = Cluster::start(1, 4);
    let job = c.sbatch(&format!("-o /dev/null {NOTE}"));
    let fixed = c.sbatch(&format!("--no-requeue -o /dev/null {NOTE}"));
    c.until("both have begun", || {
        c.read_if_there("notes").lines().count() == 2
    });
    let pids: Vec<i32> = c
        .read("notes")
        .lines()
        .map(|l| l.split(' ').next_back().unwrap().parse().unwrap())
        .collect();
    // Everything of this machine at once, as when its power fails.
    let shim: i32 = c
        .ok("pgrep -f \"muster-shim.*$(dirname $SLURM_CONF)/\" | head -1")
        .parse()
        .unwrap();
    for pid in [c.controller(), c.agent("n1"), shim]
        .into_iter()
        .chain(pids)
    {
        if alive(pid) {
            c.kill(pid);
        }
    }
    c.up_again(&["--nodes", "1", "--cpus", "4"]);
    c.write("go", "");
    c.until_prints(
        &format!("sacct -X -n -P -j {job} -o State,ExitCode"),
        "FAILED|5:0",
    );
    c.until_prints(&format!("sacct -X -n -P -j {fixed} -o State"), "NODE_FAIL");
    let notes = c.read("notes");
    assert_eq!(
        notes.matches(&format!("begin {job} 1 ")).count(),
        1,
        "{notes}"
    );
    assert_eq!(
        notes.matches(&format!("begin {fixed} ")).count(),
        1,
        "{notes}"
    );
}

#[test]
fn submissions_under_fire_run_exactly_once() {
    let c = Cluster::start(2, 8);
    let submit = c.command(
        "for i in $(seq 60); do until sbatch --parsable -o /dev/null --wrap 'echo $SLURM_JOB_ID >>ran'; do sleep 0.02; done; done",
    );
    let mut submit = submit;
    let child = submit
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for round in 0..5 {
        c.until("some more were acknowledged", || {
            c.read_if_there("ran").lines().count() > round * 8
        });
        c.kill(c.controller());
        assert_eq!(c.start_controller().code, 0);
    }
    let output = child.wait_with_output().unwrap();
    let acked: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    c.until_prints("squeue -h", "");
    let ran: Vec<String> = c.read("ran").lines().map(str::to_owned).collect();
    let once: BTreeSet<&String> = ran.iter().collect();
    assert_eq!(once.len(), ran.len(), "a job ran twice");
    for id in &acked {
        assert!(once.contains(id), "acknowledged job {id} did not run");
    }
    assert_eq!(acked.iter().collect::<BTreeSet<_>>().len(), 60);
}

#[test]
fn damage_in_the_journal_is_reported_and_nothing_is_dropped() {
    let c = Cluster::start(1, 2);
    let jobs: Vec<u64> = (0..20)
        .map(|_| c.sbatch("-H -o /dev/null --wrap true"))
        .collect();
    c.kill(c.controller());
    let journal = c.path("state/journal");
    let segment = std::fs::read_dir(&journal)
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_none_or(|e| e != "id") && p.metadata().unwrap().len() > 4096)
        .unwrap();
    let good = std::fs::read(&segment).unwrap();
    let mut bad = good.clone();
    bad[3000] ^= 0x40;
    std::fs::write(&segment, &bad).unwrap();
    let refused = c.start_controller();
    assert_ne!(refused.code, 0);
    assert!(
        refused
            .err
            .contains(segment.file_name().unwrap().to_str().unwrap()),
        "{}",
        refused.err
    );
    assert_eq!(std::fs::read(&segment).unwrap(), bad, "nothing is changed");
    std::fs::write(&segment, &good).unwrap();
    assert_eq!(c.start_controller().code, 0);
    assert_eq!(c.ok("squeue -h -o %i | wc -l"), jobs.len().to_string());
}

#[test]
fn a_full_disk_refuses_submissions_with_the_cause_and_running_jobs_go_on() {
    let c = Cluster::start(1, 2);
    if !c.ok("id -u").eq("0") {
        eprintln!("not root: no small file system can be mounted; this test looked at nothing");
        return;
    }
    // The state moves to a file system of its own, as small as it may be.
    c.kill(c.controller());
    let state = c.path("state");
    let state = state.display();
    c.ok(&format!(
        "cp -a {state} {state}.old && rm -rf {state}/* && mount -t tmpfs -o size=48m tmpfs {state} && cp -a {state}.old/. {state}/"
    ));
    assert_eq!(c.start_controller().code, 0);
    let job = c.sbatch(&format!("-o /dev/null {NOTE}"));
    c.until("it has begun", || {
        c.read_if_there("notes").contains("begin")
    });
    c.run(&format!("head -c 100m /dev/zero >{state}/ballast"));
    // Space is looked at ten times a second.
    c.until("a submission is refused", || {
        c.run("sbatch -H -o /dev/null --wrap true").code != 0
    });
    let refused = c.run("sbatch -H -o /dev/null --wrap true");
    assert!(
        refused.code == 1 && refused.err.contains("make space there"),
        "{refused:?}"
    );
    c.write("go", "");
    c.until_prints(&format!("squeue -h -t all -j {job},{job} -o %T"), "FAILED");
    c.ok(&format!("rm {state}/ballast"));
    c.until("submissions are accepted again", || {
        c.run("sbatch -H -o /dev/null --wrap true").code == 0
    });
    c.ok("scontrol shutdown; true");
    c.ok(&format!(
        "for i in $(seq 200); do umount {state} && exit 0; sleep 0.05; done; exit 1"
    ));
}
