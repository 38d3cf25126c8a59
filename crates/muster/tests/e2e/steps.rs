//! Step daemons: one serves one step of its job after another, and what that must not change.

use crate::cluster::{Cluster, alive};

/// Processes of step daemons that this cluster's node has.
fn daemons(c: &Cluster) -> Vec<i32> {
    let spool = c.path("spool.n1").display().to_string();
    let pids = c.ok(&format!(
        "for p in $(pgrep -x muster-stepd); do if grep -qF '{spool}' /proc/$p/cmdline; then echo $p; fi; done"
    ));
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn kill_shim(c: &Cluster) {
    let pid: i32 = c.ok("cat ../spool.n1/shim.pid").parse().unwrap();
    c.kill(pid);
}

#[test]
fn a_step_daemon_serves_the_steps_of_its_job_one_after_another() {
    let c = Cluster::start(1, 4);
    c.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 2 -o steps.out\n\
         step() { srun -Q -n1 \"$@\"; echo \"is $?\"; }\n\
         step bash -c 'echo daemon $PPID; exit 3'\n\
         step bash -c 'umask 077; cd /; ulimit -c 0; trap \"\" HUP; echo daemon $PPID'\n\
         step bash -c 'echo daemon $PPID; umask; pwd; echo in $SLURM_STEP_ID, env $(env | grep -c ^SLURM_TASK_PID=$$)'\n\
         step /nosuch/program\n\
         echo given | step cat\n\
         srun -Q --mpi=none -n2 bash -c 'echo daemon $PPID'\n\
         step bash -c 'kill -SEGV $$'\n\
         step bash -c '(trap \"\" TERM; exec setsid sleep 1001) & echo $PPID'\n\
         step true\n",
    );
    c.ok("sbatch -W steps.sh || true");
    let out = c.read("steps.out");
    let told = |l: &&str| !l.starts_with("srun: error: ");
    let lines: Vec<&str> = out.lines().filter(told).collect();
    let daemon = lines[0];
    assert!(daemon.starts_with("daemon "), "{out}");
    let here = c.dir.canonicalize().unwrap();
    let expected = [
        daemon,
        "is 3",
        daemon,
        "is 0",
        daemon,
        "0022",
        here.to_str().unwrap(),
        "in 2, env 1",
        "is 0",
    ];
    assert_eq!(lines[..9], expected, "{out}");
    let text = lines[9..].join("\n");
    for part in [
        "slurmstepd: error: execve(): /nosuch/program: No such file or directory",
        "is 2",
        "given\nis 0",
        "is 139",
    ] {
        assert!(text.contains(part), "'{part}' is missing: {out}");
    }
    assert_eq!(out.matches(daemon).count(), 5, "{out}");
    c.until("the daemon is gone with its job", || daemons(&c).is_empty());
    assert_eq!(c.ok("pgrep -fx 'sleep 1001' || true"), "");
    assert_eq!(c.ok("ls ../spool.n1 | grep ^step- || true"), "");
    c.until_prints(
        "sacct -n -P -j 1 -o JobID,State,ExitCode | grep '[.][0-9]'",
        "1.0|FAILED|3:0\n1.1|COMPLETED|0:0\n1.2|COMPLETED|0:0\n1.3|FAILED|2:0\n1.4|COMPLETED|0:0\n\
         1.5|COMPLETED|0:0\n1.6|CANCELLED|0:11\n1.7|COMPLETED|0:0\n1.8|COMPLETED|0:0",
    );
}

/// Steps that daemons of earlier ones serve are reported like others.
#[test]
fn steps_that_follow_each_other_are_told_of_like_others() {
    let c = Cluster::start(1, 4);
    c.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 4 -o steps.out\n\
         for i in {0..19}; do srun -Q -n1 --exact -J s$i bash -c \"echo \\$SLURM_STEP_ID; exit $((i % 5))\"; done\n\
         srun -Q -n4 --mpi=none bash -c 'echo all $SLURM_STEP_ID of $SLURM_NTASKS' | sort -u\n\
         srun -Q -n1 bash -c 'echo whole $SLURM_CPUS_ON_NODE'\n\
         for i in {1..3}; do srun -Q -n1 --exact bash -c 'while [ ! -e go ]; do sleep 0.01; done'; done &\n\
         for i in {1..6}; do srun -Q -n1 --exact true; done\n\
         touch six; wait\n",
    );
    c.ok("sbatch steps.sh");
    c.until("the last but three are over", || c.dir.join("six").exists());
    // The one that goes on is found like any other, and has its CPU.
    c.until_prints("squeue -h -s -j 1 | grep -c '1[.][0-9]'", "1");
    c.write("go", "");
    c.until_prints("squeue -h", "");
    let out = c.read("steps.out");
    let told = |line: &&str| !line.starts_with("srun: error: ");
    let out = out.lines().filter(told).collect::<Vec<_>>().join("\n") + "\n";
    let mut expected: String = (0..20).map(|step| format!("{step}\n")).collect();
    expected += "all 20 of 4\nwhole 4\n";
    assert_eq!(out, expected);
    let names = (0..20).map(|i| format!("1.{i}|s{i}|{}:0|1\n", i % 5));
    let steps = c.ok("sacct -n -P -j 1 -o JobID,JobName,ExitCode,AllocCPUS | grep '[.][0-9]'");
    let lines: Vec<&str> = steps.lines().collect();
    let expected: String = names.collect();
    assert_eq!(lines[..20].join("\n") + "\n", expected);
    assert_eq!(lines.len(), 31, "{steps}");
    assert!(
        lines[20].ends_with("|0:0|4") && lines[21].ends_with("|0:0|4"),
        "{steps}"
    );
    assert!(lines[22..].iter().all(|l| l.ends_with("|0:0|1")), "{steps}");
    assert_eq!(c.ok("ls ../spool.n1 | grep -E '^(step|job)-' || true"), "");
}

#[test]
fn a_daemon_that_is_killed_without_a_step_is_not_missed() {
    let c = Cluster::start(1, 4);
    let mut child = c
        .command(
            "exec salloc -Q -n1 bash -c 'srun -Q true; touch done; while [ ! -e go ]; do sleep 0.01; done; \
             srun -Q bash -c \"exit 7\"'",
        )
        .spawn()
        .unwrap();
    c.until("the step is over", || c.dir.join("done").exists());
    let waiting = daemons(&c);
    assert_eq!(waiting.len(), 1);
    c.kill(waiting[0]);
    c.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    c.until_prints("squeue -h", "");
    // One that waits for a step is told to end with its job, and nobody waits until it has.
    c.until("no daemon is left", || daemons(&c).is_empty());
    assert_eq!(c.ok("ls ../spool.n1 | grep ^step- || true"), "");
}

#[test]
fn steps_at_once_have_a_daemon_each() {
    let c = Cluster::start(1, 4);
    let out = c.ok(
        "salloc -Q -n3 bash -c 'for round in 1 2; do for i in 1 2 3; do \
         srun -Q -n1 --exact bash -c \"echo \\$PPID; while [ \\$(ls at.$round.* 2>/dev/null | wc -l) -lt 3 ]; \
         do touch at.$round.$i; sleep 0.01; done\" & done; wait; done'",
    );
    let mut pids: Vec<&str> = out.lines().collect();
    let mut again = pids.split_off(3);
    pids.sort_unstable();
    again.sort_unstable();
    assert_eq!(pids, again, "the second round has the daemons of the first");
    pids.dedup();
    assert_eq!(pids.len(), 3);
}

#[test]
fn a_lost_shim_costs_steps_nothing() {
    let c = Cluster::start(1, 4);
    let job = c.sbatch(
        "-n2 -o steps.out --wrap 'srun -Q -n1 bash -c \"exit 4\"; \
         srun -Q -n1 --exact bash -c \"echo up; while [ ! -e go ]; do sleep 0.01; done; exit 5\"; echo is $?; \
         srun -Q -n1 bash -c \"exit 6\"; echo is $?'",
    );
    c.until("the second step runs", || {
        c.read_if_there("steps.out").contains("up")
    });
    let daemon = daemons(&c);
    assert_eq!(daemon.len(), 1, "the first step's daemon has the second");
    kill_shim(&c);
    c.until("there is another shim", || {
        let pid = c.ok("cat ../spool.n1/shim.pid");
        pid.parse().is_ok_and(alive)
    });
    assert!(alive(daemon[0]));
    c.write("go", "");
    c.until_prints("squeue -h", "");
    let out = c.read("steps.out");
    assert!(out.contains("\nis 5\n") && out.ends_with("is 6\n"), "{out}");
    c.until_prints(
        &format!("sacct -n -P -j {job} -o JobID,State,ExitCode | grep '[.][0-9]'"),
        &format!("{job}.0|FAILED|4:0\n{job}.1|FAILED|5:0\n{job}.2|FAILED|6:0"),
    );
    // One that waits for a step is told to end with its job, and nobody waits until it has.
    c.until("no daemon is left", || daemons(&c).is_empty());
}

#[test]
fn a_lost_shim_takes_daemons_without_a_step_along() {
    let c = Cluster::start(1, 4);
    let mut child = c
        .command("exec salloc -Q -n1 bash -c 'srun -Q true; touch done; while [ ! -e go ]; do sleep 0.01; done; srun -Q bash -c \"exit 7\"'")
        .spawn()
        .unwrap();
    c.until("the step is over", || c.dir.join("done").exists());
    assert_eq!(daemons(&c).len(), 1);
    kill_shim(&c);
    c.until("it has noticed", || daemons(&c).is_empty());
    c.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    c.until_prints("squeue -h", "");
}

#[test]
fn a_task_that_is_alone_has_the_streams_of_its_srun() {
    let c = Cluster::start(1, 4);
    c.write("list", "one\ntwo\nthree\n");
    c.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 2 -o /dev/null\n\
         while read line; do srun -Q -n1 bash -c \"read other; echo $line with \\$other\"; done <list >out\n\
         srun -Q -n1 readlink /proc/self/fd/1 >file\n\
         srun -Q -n1 bash -c 'echo to the errors >&2' 2>errors\n\
         srun -Q -n1 yes | head -1 >first\n\
         srun -Q -n1 -l echo labelled >label\n\
         srun -Q -n1 --input=none cat <list >none\n\
         srun -Q -n1 --output=named readlink /proc/self/fd/1\n",
    );
    c.ok("sbatch -W steps.sh");
    assert_eq!(c.read("out"), "one with two\nthree with\n");
    let here = c.dir.canonicalize().unwrap();
    assert_eq!(c.read("file"), format!("{}/file\n", here.display()));
    assert_eq!(c.read("errors"), "to the errors\n");
    assert_eq!(c.read("first"), "y\n");
    assert_eq!(c.read("label"), "0: labelled\n");
    assert_eq!(c.read("none"), "");
    assert!(c.read("named").starts_with("pipe:"), "srun writes the file");
}

/// Earlier, `--label` changed nothing in files that nodes write.
#[test]
fn lines_in_files_of_tasks_have_labels() {
    let c = Cluster::start(2, 4);
    c.ok("srun -l -N2 -n3 --output=out.%t bash -c 'echo one; kill -KILL 0' || true");
    c.ok("srun -l -n1 --output=ended.%t bash -c 'trap : TERM; kill -TERM 0; echo one; echo two >&2; printf end'");
    assert_eq!(c.read("ended.0"), "0: one\n0: two\n0: end\n");
    for task in 0..3 {
        assert_eq!(c.read(&format!("out.{task}")), format!("{task}: one\n"));
    }
    c.ok("srun -l -N2 -n12 --overcommit --output=shared.%N bash -c 'echo $SLURM_PROCID'");
    let shared = c.read("shared.n1") + &c.read("shared.n2");
    let mut lines: Vec<&str> = shared.lines().collect();
    lines.sort_unstable();
    let all: Vec<String> = (0..12).map(|task| format!("{task:2}: {task}")).collect();
    assert_eq!(lines, all);
    c.ok("srun -l -n1 --output=plain.%t --error=errors.%t bash -c 'echo out; echo err >&2'");
    assert_eq!(
        (c.read("plain.0"), c.read("errors.0")),
        ("0: out\n".into(), "0: err\n".into())
    );
}

#[test]
fn a_step_that_has_the_streams_of_srun_outlives_the_agent() {
    let c = Cluster::start(1, 4);
    let mut child = c
        .command(
            "exec salloc -Q -n1 bash -c 'srun -Q bash -c \"touch up; while [ ! -e go ]; do sleep 0.01; done; \
             echo still; exit 5\" >out; echo is $? >>out'",
        )
        .spawn()
        .unwrap();
    c.until("the step runs", || c.dir.join("up").exists());
    c.kill(c.agent("n1"));
    // It need not have noticed.
    c.write("go", "");
    c.until("srun has heard the end", || {
        c.read_if_there("out") == "still\nis 5\n"
    });
    c.ok("slurmd -N n1");
    assert!(child.wait().unwrap().success());
    c.until_prints("squeue -h", "");
    c.until_prints("sacct -n -P -j 1.0 -o State,ExitCode", "FAILED|5:0");
}

/// Compared with Slurm 22.05. Steps were refused or had too many tasks' worth of the job.
#[test]
fn steps_have_the_part_of_the_job_that_slurm_gives_them() {
    let c = Cluster::from_conf(
        "ClusterName=parts\nSlurmctldHost=localhost\nGresTypes=gpu\nDefMemPerCPU=50\n\
         NodeName=n[1-3] CPUs=4 Gres=gpu:2 RealMemory=1000\nPartitionName=p Nodes=ALL Default=YES\n",
    );
    let nodes = |output: &str| {
        let mut nodes: Vec<&str> = output.split_whitespace().collect();
        nodes.sort_unstable();
        nodes.join(" ")
    };
    let node = "printenv SLURMD_NODENAME";
    // The job has three CPUs on one node and one on the other.
    for options in [
        "--ntasks-per-node=2",
        "-N2 --ntasks-per-node=2",
        "-n4 --ntasks-per-node=3",
    ] {
        let out = c.ok(&format!("salloc -Q -w n[1-2] -n4 srun -Q {options} {node}"));
        assert_eq!(nodes(&out), "n1 n1 n1 n2", "{options}");
    }
    let named = |options| {
        let out = c.ok(&format!("salloc -Q -N3 -w n[1-3] srun -Q {options} {node}"));
        nodes(&out)
    };
    assert_eq!(named("-n3 -w n3"), "n1 n2 n3");
    assert_eq!(named("-n2 -w n3"), "n1 n3");
    assert_eq!(named("-n1 -w n3"), "n3");
    let lacks = |options: &str| c.run(&format!("salloc -Q -n1 srun {options} true")).err;
    let all = [
        ("-n9", "More processors requested than permitted"),
        ("--mem=9G", "Memory required by task is not available"),
        (
            "--gres=gpu:3",
            "Invalid generic resource (gres) specification",
        ),
    ];
    for (options, why) in all {
        let said = lacks(options);
        assert!(said.contains(why), "{options}: {said}");
    }
    let devices =
        c.ok("salloc -Q --gres=gpu:1 srun --gres=none sh -c 'echo \"<$CUDA_VISIBLE_DEVICES>\"'");
    assert_eq!(devices, "<>");
    let shown = "sh -c 'scontrol show step $SLURM_JOB_ID.0 | grep -o \"cpu=.*\"'";
    assert_eq!(c.ok(&format!("srun -n1 {shown}")), "cpu=1,mem=50M,node=1");
    let whole = c.ok(&format!("srun --exclusive -n1 {shown}"));
    assert!(whole.starts_with("cpu=1,"), "{whole}");
    let whole = c.ok(&format!("srun --exclusive {shown}"));
    assert!(whole.starts_with("cpu=4,"), "{whole}");
}
