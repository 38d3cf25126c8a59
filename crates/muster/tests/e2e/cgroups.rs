//! Control groups, by the kernel that is here: jobs are held to their memory and CPUs, all of their processes end with them, and
//! nothing that a user does leads out of a job's groups. Each attempt to leave fails its test if it succeeds.

use crate::cluster::Cluster;
use std::fs;
use std::path::PathBuf;

/// A node that is this machine, with these lines in cgroup.conf; none where there is nothing to test with.
fn confined(cgroup_conf: &str) -> Option<Cluster> {
    confined_with(cgroup_conf, ("", ""))
}

/// The same, with more in slurm.conf and of its node.
fn confined_with(cgroup_conf: &str, (more, of_node): (&str, &str)) -> Option<Cluster> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if !is_root() || fs::read_dir("/sys/fs/cgroup/memory").is_err() {
        eprintln!("not root, or no hierarchy for memory of version 1: this test looked at nothing");
        return None;
    }
    let c = Cluster::fresh();
    c.write("cgroup.conf", cgroup_conf);
    // Device files that do no harm where they are denied, as if they were GPUs.
    for (file, minor) in [("gpu0", 5), ("gpu1", 8)] {
        c.run(&format!("mknod -m 666 {file} c 1 {minor}"));
    }
    let dir = c.dir.display();
    c.write("gres.conf", &format!("Name=gpu File={dir}/gpu[0-1]\n"));
    c.write(
        "given.conf",
        &format!(
            "ClusterName=groups\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n\
             ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity\nUnkillableStepTimeout=120\n\
             AccountingStorageType=accounting_storage/slurmdbd\n\
             {more}NodeName=n1 CPUs={cpus} RealMemory=2000 {of_node} State=UNKNOWN\nPartitionName=p Nodes=n1 Default=YES\n"
        ),
    );
    let given = c.dir.join("given.conf");
    c.up_again(&["-f", given.to_str().unwrap()]);
    // Jobs of others than root write here.
    c.ok("chmod 1777 .");
    Some(c)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0)
}

const LIMITS: &str =
    "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainCores=yes\nMinRAMSpace=10\n";

/// Submits as `nobody`.
fn as_nobody(c: &Cluster, command: &str) -> String {
    let quoted = command.replace('\'', "'\\''");
    c.ok(&format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{quoted}'"
    ))
}

/// Directories of jobs' groups of this cluster.
fn groups(c: &Cluster) -> Vec<PathBuf> {
    let of = fs::metadata(c.path("spool.n1")).unwrap();
    let (dev, ino) = (
        std::os::unix::fs::MetadataExt::dev(&of),
        std::os::unix::fs::MetadataExt::ino(&of),
    );
    let own = format!("spool.n1.{dev:x}.{ino:x}");
    let found = c.run(&format!(
        "find /sys/fs/cgroup -mindepth 1 -type d -path '*/muster/{own}/job_*' -prune"
    ));
    found.out.lines().map(PathBuf::from).collect()
}

#[test]
fn a_job_that_takes_more_memory_than_it_has_ends_as_out_of_memory() {
    let Some(c) = confined(LIMITS) else { return };
    let greedy = c.sbatch(
        "--mem=40 -o greedy.out --wrap 'head -c 100m /dev/zero | tail -c 100m | wc -c; echo went on'",
    );
    let modest =
        c.sbatch("--mem=200 -o modest.out --wrap 'head -c 100m /dev/zero | tail -c 100m | wc -c'");
    c.until_prints(
        &format!("sacct -X -n -P -j {greedy} -o State,ExitCode"),
        "OUT_OF_MEMORY|0:125",
    );
    c.until_prints(&format!("sacct -X -n -P -j {modest} -o State"), "COMPLETED");
    assert_eq!(c.read("modest.out").trim(), "104857600");
    let out = c.read("greedy.out");
    let line = format!(
        "slurmstepd: error: Detected 1 oom_kill event in StepId={greedy}.batch. Some of the step tasks have been OOM Killed."
    );
    assert!(out.contains(&line), "{out}");
    let shown = c.ok(&format!("scontrol show job {greedy}"));
    assert!(
        shown.contains("JobState=OUT_OF_MEMORY Reason=OutOfMemory"),
        "{shown}"
    );
    // A step has what it asks for of its job's.
    let step = c.run("srun --mem=30 bash -c 'head -c 60m /dev/zero | tail -c 60m | wc -c'");
    assert!(
        step.err
            .contains("slurmstepd: error: Detected 1 oom_kill event in StepId="),
        "{step:?}"
    );
    let inner = c.sbatch(
        "--mem=200 -o inner.out --wrap 'srun --mem=30 bash -c \"head -c 60m /dev/zero | tail -c 60m | wc -c\"; srun true; exit 0'",
    );
    c.until_prints(
        &format!("sacct -n -P -j {inner} -o JobID,State"),
        &format!("{inner}|COMPLETED\n{inner}.batch|COMPLETED\n{inner}.0|OUT_OF_MEMORY\n{inner}.1|COMPLETED"),
    );
    c.until("all groups are removed", || groups(&c).is_empty());
}

#[test]
fn nothing_leads_out_of_a_jobs_groups() {
    let Some(c) = confined(LIMITS) else { return };
    c.write(
        "escape.sh",
        "#!/bin/bash\n\
         own() { cut -d: -f3 /proc/$1/cgroup | grep job_ | sort | uniq -c; }\n\
         own self >before\n\
         # By the files of the groups above, and of its own.\n\
         find /sys/fs/cgroup -name cgroup.procs -o -name tasks -o -name cgroup.threads | while read f; do\n\
           { echo $$ >$f; } 2>/dev/null && echo wrote $f\n\
         done >written\n\
         # A limit of its own.\n\
         find /sys/fs/cgroup -path '*/job_*' -type f -writable >writable\n\
         find /sys/fs/cgroup -path '*/job_*' -type d -writable >>writable\n\
         # By leaving its parents and its session.\n\
         setsid bash -c '(cut -d: -f3 /proc/self/cgroup | grep job_ | sort | uniq -c >after.new; mv after.new after) & '\n\
         # By a namespace of groups, and of users.\n\
         unshare --user --map-root-user --cgroup --mount bash -c 'mount -t cgroup2 none /mnt && echo $$ >/mnt/cgroup.procs && echo left' >namespace 2>&1\n\
         # CPUs that are another's.\n\
         taskset -p -c 0-255 $$ >/dev/null 2>&1\n\
         grep Cpus_allowed_list /proc/self/status >cpus\n\
         while [ ! -e after ]; do sleep 0.05; done\n",
    );
    let others = c.sbatch("-n1 --mem=20 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {others} -o %T"), "RUNNING");
    if c.ok("nproc") != "1" {
        c.ok("chmod +x escape.sh");
        as_nobody(&c, "sbatch -W -n1 --mem=50 -o escape.out escape.sh");
        assert_eq!(c.read("written"), "", "{}", c.read("escape.out"));
        assert_eq!(c.read("writable"), "");
        assert!(!c.read("before").is_empty());
        assert_eq!(c.read("before"), c.read("after"));
        assert!(
            !c.read("namespace").contains("left"),
            "{}",
            c.read("namespace")
        );
        assert_eq!(
            c.read("cpus").trim(),
            "Cpus_allowed_list:\t1",
            "the other job has CPU 0"
        );
    }
    c.ok(&format!("scancel {others}"));
    c.until("all groups are removed", || groups(&c).is_empty());
}

#[test]
fn no_process_outlives_its_job() {
    let Some(c) = confined("ConstrainRAMSpace=no\n") else {
        return;
    };
    c.write(
        "leak.sh",
        "#!/bin/bash\nexport MARK=leaked-by-$SLURM_JOB_ID\n\
         for i in $(seq 20); do (setsid bash -c 'exec -a changed sleep 1000' &); done\n\
         # Grows as fast as it is killed.\n\
         bomb() { while :; do bomb & wait; done; }\n\
         (trap '' TERM INT HUP; ulimit -u 400; setsid bash -c 'b() { b | b & }; b; sleep 1000' & )\n\
         sleep 0.2\n",
    );
    c.ok("chmod +x leak.sh");
    let leftover = |id: &str| {
        let mark = format!("MARK=leaked-by-{id}");
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter(|p| {
            fs::read(p.path().join("environ"))
                .is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
        })
        .count()
    };
    for _ in 0..3 {
        let id = as_nobody(&c, "sbatch -W --parsable -n1 -o leak.out leak.sh");
        c.until("it has left the node", || {
            c.ok(&format!("squeue -h -j {id} -t all -o %T")) != "COMPLETING"
        });
        assert_eq!(leftover(&id), 0);
    }
    as_nobody(&c, "srun -n1 ./leak.sh");
    c.until("all groups are removed", || groups(&c).is_empty());
}

#[test]
fn what_a_lost_launcher_has_left_of_unknown_jobs_is_killed() {
    let Some(c) = confined(LIMITS) else { return };
    let job = c.sbatch("-n1 --mem=20 -o /dev/null --wrap 'sleep 1000'");
    c.until("it has groups", || groups(&c).len() > 1);
    // As if it were another job's, which nobody knows.
    let mut stray = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    for group in groups(&c) {
        let other = group.with_file_name("job_424242");
        fs::create_dir(&other).unwrap();
        if other.starts_with("/sys/fs/cgroup/unified") {
            fs::write(other.join("cgroup.procs"), stray.id().to_string()).unwrap();
        }
    }
    let shim: i32 = fs::read_to_string(c.path("spool.n1/shim.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    c.kill(shim);
    c.until("the stray process is killed", || {
        stray.try_wait().unwrap().is_some()
    });
    c.until("its groups are removed", || {
        groups(&c).iter().all(|g| !g.ends_with("job_424242"))
    });
    // The job that is known goes on, and its groups are found again.
    assert_eq!(c.ok(&format!("squeue -h -j {job} -o %T")), "RUNNING");
    c.ok(&format!("scancel {job}"));
    c.until("all groups are removed", || groups(&c).is_empty());
}

#[test]
fn a_job_opens_its_own_devices_alone() {
    let gres = ("GresTypes=gpu\n", "Gres=gpu:2");
    let Some(c) = confined_with("ConstrainDevices=yes\n", gres) else {
        return;
    };
    if fs::read_dir("/sys/fs/cgroup/devices").is_err() {
        eprintln!("no hierarchy for devices of version 1: this test looked at nothing more");
        return;
    }
    let look = "for d in gpu0 gpu1; do head -c 1 $d >/dev/null 2>&1 && echo $d; done; \
                mknod -m 666 own-$SLURM_JOB_ID c 1 8 2>/dev/null; true";
    assert_eq!(c.ok(&format!("srun --gres=gpu:1 bash -c '{look}'")), "gpu0");
    assert_eq!(
        c.ok(&format!("srun --gres=gpu:2 bash -c '{look}'")),
        "gpu0\ngpu1"
    );
    // Root has none either, by whatever name.
    assert_eq!(c.ok(&format!("srun bash -c '{look}'")), "");
    assert_eq!(
        c.ok("srun bash -c 'mknod other c 1 5 2>/dev/null; head -c 1 other 2>/dev/null | wc -c'"),
        "0"
    );
    c.until("all groups are removed", || groups(&c).is_empty());
}

#[test]
fn a_suspended_job_is_frozen_and_can_be_ended() {
    let Some(c) = confined("ConstrainRAMSpace=no\n") else {
        return;
    };
    let job = c.sbatch(
        "-n1 -o /dev/null --wrap 'echo $$ >pid; while :; do date +%N >tick; sleep 0.01; done'",
    );
    c.until("it runs", || c.run("cat tick").code == 0);
    let frozen = || {
        let events = groups(&c)
            .into_iter()
            .map(|g| g.join("step_batch/cgroup.events"));
        let mut texts = events.filter_map(|file| fs::read_to_string(file).ok());
        texts.any(|text| text.contains("frozen 1"))
    };
    c.ok(&format!("scontrol suspend {job}"));
    c.until("it is frozen", frozen);
    // A signal of the user's does not have it go on.
    c.ok("kill -CONT $(cat pid)");
    assert!(frozen());
    c.ok(&format!("scontrol resume {job}"));
    c.until("it goes on", || !frozen());
    c.ok(&format!("scontrol suspend {job}"));
    c.until("it is frozen", frozen);
    c.ok(&format!("scancel {job}"));
    c.until_prints(
        &format!("squeue -h -j {job} -t all -o %T | grep -v CANCELLED; true"),
        "",
    );
    c.until("all groups are removed", || groups(&c).is_empty());
}
