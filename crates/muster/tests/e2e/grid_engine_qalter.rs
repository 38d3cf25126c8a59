//! qalter on a real cluster, and what is said of jobs with a range of slots.

use crate::cluster::Cluster;

#[test]
fn slots_of_a_job_that_waits_are_changed() {
    let c = Cluster::start(1, 2);
    c.ok("qsub -terse -cwd -o /dev/null -j y -b y -N RUN -pe smp 2 -l h_rt=600 sleep 1000");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    c.ok("qsub -terse -cwd -b y -N WAIT -pe smp 2 sleep 1000");
    // Several changes of one job's request and files keep each other.
    assert_eq!(
        c.ok("qalter -pe mpi 1-2 -l h_vmem=20M -o out -e err 2"),
        "modified parallel environment of job 2\nmodified slot range of job 2\nmodified hard resource list of job 2\n\
         modified stdout path list of job 2\nmodified stderr path list of job 2"
    );
    let detail = c.ok("qstat -j 2");
    assert!(
        detail.contains("parallel environment:  mpi range: 1-2\n")
            && detail.contains("stdout_path_list:           NONE:NONE:")
            && detail.contains("stderr_path_list:           NONE:NONE:"),
        "{detail}"
    );
    assert!(c.ok("scontrol show job 2").contains("MinMemoryCPU=20M"));
    assert_eq!(
        c.ok("qalter -pe smp 2 2"),
        "modified parallel environment of job 2\nmodified slot range of job 2"
    );
    assert!(c.ok("qstat -j 2").contains("environment:  smp range: 2\n"));
    for (command, why) in [
        (
            "qalter -pe smp 2 1",
            "job 1 can't modify running jobs\n".to_owned(),
        ),
        (
            "qalter -pe nosuch 2 2",
            "qalter: job rejected: the requested parallel environment \"nosuch\" does not exist\n"
                .to_owned(),
        ),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err), (1, why), "{command}");
    }
    c.ok("scancel 1");
    c.until_prints("squeue -h -j 2 -o %T", "RUNNING");
    assert!(c.ok("qstat -j 2").contains("environment:  smp range: 2\n"));
}

#[test]
fn a_range_of_slots_has_starts_of_its_own() {
    let c = Cluster::start(1, 2);
    for (name, minutes) in [("A", 10), ("B", 30)] {
        let holder = "-o /dev/null -j y sleep 5000";
        c.ok(&format!(
            "qsub -b y -N {name} -l h_rt=0:{minutes}:0 {holder}"
        ));
        c.until_prints(&format!("squeue -h -n {name} -o %T"), "RUNNING");
    }
    c.ok("qsub -b y -N RANGE -l h_rt=60 -o /dev/null -j y sleep 1");
    c.ok("qalter -pe smp 1-2 RANGE");
    c.until_prints("squeue -h -j 3 -o %r", "Resources");
    let why = c.ok("muster why 3");
    for part in [
        " in partition batch, with 1 task\n",
        "\nIt asks for 1-2 tasks, waits for the least number",
        "\n  1 task: 20",
        "\n  2 tasks: 20",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let detail = c.ok("qstat -j 3");
    for part in [
        " Job waits: Resources\n",
        " Job waits for 1 slots at least: It is next in partition batch; 1 CPU",
        " With 1 slots its start is expected at ",
        " With 2 slots its start is expected at ",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
}

#[test]
fn requests_mail_files_and_predecessors_are_changed() {
    let c = Cluster::start(2, 2);
    c.ok("qsub -h -b y -N FIRST -cwd sleep 1");
    c.ok("qsub -h -b y -N ARRAY -t 1-2 -cwd sleep 1");
    c.ok("qsub -h -b y -N WAIT -t 1-2 -cwd -l h_rt=600,h_vmem=10M sleep 1");
    let wait = c.ok("squeue -h -n WAIT -o %F | head -n 1");
    let changed = |options: &str, what: &str| {
        let said = c.ok(&format!("qalter {options} WAIT"));
        assert_eq!(said, format!("modified {what} of job {wait}"), "{options}");
        c.ok(&format!("scontrol show job {wait}"))
    };
    let requests = "hard resource list";
    for (options, what, parts) in [
        (
            "-l h_rt=120,h_vmem=10M,num_proc=2,exclusive,hostname=n2",
            requests,
            &[
                "TimeLimit=00:02:00",
                "ReqNodeList=n2",
                "MinCPUsNode=2",
                "MinMemoryCPU=10M",
            ][..],
        ),
        (
            "-l h_rt=120,h_vmem=10M,num_proc=2",
            requests,
            &["ReqNodeList=(null)", "MinCPUsNode=2"],
        ),
        (
            "-q all.q@n1",
            "hard queue list",
            &["ReqNodeList=n1", "MinCPUsNode=2"],
        ),
        (
            "-l h_rt=60",
            requests,
            &["TimeLimit=00:01:00", "ReqNodeList=n1", "MinCPUsNode=1"],
        ),
        ("-m be", "mail options", &["MailType=BEGIN,END"]),
        ("-M a@b", "mail list", &["MailUser=a@b"]),
        ("-i in", "stdin path list", &["/in"]),
        (
            "-hold_jid_ad ARRAY",
            "job id hold array list",
            &["Dependency=aftercorr:"],
        ),
        (
            "-hold_jid FIRST",
            "job id hold list",
            &["afterany:1", "aftercorr:"],
        ),
    ] {
        let shown = changed(options, what);
        for part in parts {
            assert!(shown.contains(part), "{options}: {part}: {shown}");
        }
    }
    let refused = c.run("qalter -l s_rt=60 WAIT");
    assert!(
        refused.code == 1 && refused.err.contains("s_rt and qname of -l"),
        "{refused:?}"
    );
    let other = c.ok("sbatch --parsable -H --wrap true");
    let refused = c.run(&format!("qalter -l num_proc=2 {other}"));
    assert!(
        refused.code == 1 && refused.err.contains("h_rt and memory only"),
        "{refused:?}"
    );
}
