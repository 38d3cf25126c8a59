//! The commands of Torque on a real cluster, and lines for PBS and LSF in scripts of sbatch.

use crate::cluster::Cluster;

/// A cluster where the names that Grid Engine has, too, are Torque's.
fn of_torque(nodes: u32, cpus: u32) -> Cluster {
    let c = Cluster::start(nodes, cpus);
    let conf = c.ok("echo $SLURM_CONF");
    let dir = conf.trim().trim_end_matches("slurm.conf").to_owned();
    c.ok(&format!("echo 'commands torque' >{dir}sge.conf"));
    c
}

fn field(c: &Cluster, job: &str, name: &str) -> String {
    let text = c.ok(&format!("scontrol -o show job {job}"));
    let found = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix(&format!("{name}=")));
    found.unwrap_or_default().to_owned()
}

#[test]
fn a_script_with_lines_of_options_runs_with_the_variables_of_torque() {
    let c = of_torque(2, 4);
    c.write(
        "big.sh",
        "#!/bin/bash\n#PBS -N big\n#PBS -l nodes=2:ppn=2,walltime=00:10:00 -j oe\n#PBS -v A=1,B\n\
         echo \"$PBS_JOBID $PBS_JOBNAME $PBS_NP $PBS_NUM_NODES $PBS_NUM_PPN $PBS_QUEUE $PBS_ENVIRONMENT $PBS_WALLTIME $A $B ${C-none} $1\"\n\
         sort $PBS_NODEFILE | uniq -c | tr -s ' '\ncd $PBS_O_WORKDIR && ls big.sh\nsleep 600\n",
    );
    let job = c.ok("B=two C=three qsub big.sh word");
    let job = job.trim();
    c.until("the job has written", || {
        c.read_if_there(&format!("big.o{job}")).contains("big.sh\n")
    });
    let partition = field(&c, job, "Partition");
    assert_eq!(
        c.read(&format!("big.o{job}")),
        format!(
            "{job} big 4 2 2 {partition} PBS_BATCH 600 1 two none word\n 2 n1\n 2 n2\nbig.sh\n"
        )
    );
    let brief = c.ok("qstat");
    let line = brief.lines().last().unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[4]), (job, "big", "R"), "{brief}");
    let full = c.ok(&format!("qstat -f {job}.server"));
    for part in [
        format!("Job Id:\t{job}\n"),
        "\tJob_Name = big\n".to_owned(),
        "\tjob_state = R\n".to_owned(),
        "\texec_host = n1/2+n2/2\n".to_owned(),
        "\tResource_List.walltime = 00:10:00\n".to_owned(),
        "\tResource_List.nodect = 2\n".to_owned(),
    ] {
        assert!(full.contains(&part), "{part}: {full}");
    }
    assert!(c.ok("qstat -n -1 -r").contains("n1/2+n2/2"));
    assert!(c.ok("qstat -q").contains(&partition));
    // Nodes: busy, taken out of service, put back.
    let nodes = c.ok("pbsnodes");
    assert!(
        nodes.contains("n1\n    state = mixed\n    np = 4\n"),
        "{nodes}"
    );
    c.ok("pbsnodes -o n2 -N 'bad disk'");
    assert_eq!(c.ok("pbsnodes -l -n"), "n2\t\toffline\t\tbad disk");
    c.ok("pbsnodes -c n2");
    assert_eq!(c.ok("pbsnodes -l"), "");
    // An end; of a job that has ended the status says it alone.
    c.ok(&format!("qdel {job}"));
    c.until("the job has ended", || {
        c.ok(&format!("qstat {job}")).contains(" C ")
    });
    let again = c.run(&format!("qdel {job}"));
    assert_eq!((again.code, again.err.as_str()), (1, ""), "{again:?}");
    let unknown = c.run("qstat 99999");
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (153, "qstat: Unknown Job Id 99999\n")
    );
}

#[test]
fn jobs_are_held_released_changed_run_again_and_are_tasks() {
    let c = of_torque(1, 4);
    c.write("task.sh", "#!/bin/sh\necho $PBS_ARRAYID $PBS_ARRAY_ID\n");
    let held = c.ok("echo 'sleep 600' | qsub -h -q debug@server -p 7 -r y 2>&1 || true");
    assert!(held.contains("invalid partition"), "{held}");
    let job = c.ok("echo 'sleep 600' | qsub -h -p 7 -r y -m n");
    let job = job.trim();
    assert_eq!(field(&c, job, "JobName"), "STDIN");
    assert_eq!(field(&c, job, "Nice"), "7");
    assert!(c.ok("qstat -i").contains(" H "));
    c.ok(&format!(
        "qalter -N new -l walltime=0:05:00 -o changed.log {job}"
    ));
    assert_eq!(field(&c, job, "JobName"), "new");
    assert_eq!(field(&c, job, "TimeLimit"), "00:05:00");
    assert_eq!(field(&c, job, "Comment"), "stdout=changed.log");
    assert!(field(&c, job, "StdOut").ends_with("/changed.log"));
    c.ok(&format!("qrls {job}"));
    c.until("the job runs", || {
        c.state(job.parse().unwrap()) == "RUNNING"
    });
    c.ok(&format!("qalter -r n {job}"));
    let refused = c.run(&format!("qrerun {job}"));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .err
            .starts_with(&format!("qrerun: Error on job id {job}: "))
    );
    c.ok(&format!("qalter -r y {job}"));
    c.ok(&format!("qrerun {job}"));
    c.until("it is in the queue or runs again", || {
        field(&c, job, "Restarts") == "1"
    });
    c.ok("qdel all");
    let array = c.ok("qsub -t 1-3 -N arr -j oe -W block=true,umask=027 task.sh");
    let array = array.trim();
    assert_eq!(c.read(&format!("arr.o{array}.2")), format!("2 {array}\n"));
    let mode = c.ok(&format!("stat -c %a arr.o{array}.2"));
    assert_eq!(mode.trim(), "640");
    let after = c.ok(&format!(
        "qsub -b y -N after -W depend=afterokarray:{array}[] -W block=true -- echo 'a  b'"
    ));
    assert_eq!(c.read(&format!("after.o{}", after.trim())), "a  b\n");
}

#[test]
fn options_are_refused_by_name_and_the_line_of_sbatch_is_shown() {
    let c = of_torque(1, 2);
    c.write("job.sh", "#!/bin/sh\n#PBS -l nosuch=1\ntrue\n");
    for (script, code, err) in [
        (
            "qsub -W stagein=a@b:c job.sh",
            1,
            "qsub: -W stagein=a@b:c: files are not staged",
        ),
        ("qsub -T x job.sh", 2, "qsub: -T is not supported: "),
        (
            "qsub -l nosuch=1 job.sh",
            1,
            "qsub: -l nosuch: there is no such resource",
        ),
        ("qsub -Y job.sh", 2, "qsub: there is no option -Y"),
        (
            "qsub /nosuch.sh",
            1,
            "qsub: cannot read the script /nosuch.sh",
        ),
        ("qdel abc", 1, "qdel: 'abc' is no job"),
        (
            "qdel 99999",
            1,
            "qdel: Kill job error on job id 99999: Invalid job id specified",
        ),
        (
            "qhold 99999",
            1,
            "qhold: Error on job id 99999: Invalid job id specified",
        ),
        ("qalter -j oe 7", 2, "qalter: -j is not supported: "),
        ("pbsnodes -x", 2, "pbsnodes: -x is not supported: "),
        (
            "generate_pbs_nodefile",
            1,
            "generate_pbs_nodefile: SLURM_NODELIST is not set",
        ),
    ] {
        let ran = c.run(script);
        assert_eq!(ran.code, code, "{script}: {ran:?}");
        assert!(ran.err.starts_with(err), "{script}: {ran:?}");
    }
    assert_eq!(
        c.ok("qsub --sbatchline -l h_rt=300,h_vmem=3000 -pe shm 7 -b y hostname"),
        "sbatch -e hostname.e%A -o hostname.o%A -t5 --mem=3000M --cpus-per-task=7 --ignore-pbs -J hostname \
         --wrap=\"hostname\""
    );
    // The caller's word is stronger than the site's; Torque's have a name of their own besides.
    assert!(
        c.ok("MUSTER_COMMAND_SET=gridengine qsub -help")
            .starts_with("SGE ")
    );
    assert!(
        c.ok("MUSTER_COMMAND_SET=gridengine torque-qsub --help")
            .contains("Usage: qsub")
    );
    let mpi = c.ok("salloc -Q -N1 -n2 mpiexec.slurm -n 2 sh -c 'echo $SLURM_NTASKS'");
    assert_eq!(mpi, "2\n2");
    let file = c.ok("salloc -Q -N1 -n2 sh -c 'f=$(generate_pbs_nodefile); cat $f; rm $f'");
    assert_eq!(file, "n1\nn1");
}

/// As Slurm 22.05 reads them.
#[test]
fn sbatch_reads_lines_for_pbs_and_lsf() {
    let c = Cluster::start(2, 4);
    c.write(
        "pbs.sh",
        "#!/bin/sh\n#SBATCH -J other -n 1\n#PBS -N pbs\ntrue\n#PBS -l nodes=2:ppn=2,walltime=7 -o pbs.%j\n",
    );
    let job = c.sbatch("-H pbs.sh").to_string();
    assert_eq!(field(&c, &job, "JobName"), "pbs");
    assert_eq!(field(&c, &job, "TimeLimit"), "00:07:00");
    assert_eq!(field(&c, &job, "NumTasks"), "4");
    assert!(field(&c, &job, "StdOut").ends_with(&format!("/pbs.{job}")));
    let job = c.sbatch("-H --ignore-pbs pbs.sh").to_string();
    assert_eq!(field(&c, &job, "JobName"), "other");
    c.write(
        "ignores.sh",
        "#!/bin/sh\n#SBATCH --ignore-pbs -J other\n#PBS -N pbs\ntrue\n",
    );
    let job = c.sbatch("-H ignores.sh").to_string();
    assert_eq!(field(&c, &job, "JobName"), "other");
    let job = c.sbatch("-H -J line pbs.sh").to_string();
    assert_eq!(field(&c, &job, "JobName"), "line");
    c.write(
        "lsf.sh",
        "#!/bin/sh\n#SBATCH -J other\n#PBS -N pbs\n#BSUB -J lsf -n 3\ntrue\n",
    );
    let job = c.sbatch("-H lsf.sh").to_string();
    assert_eq!(field(&c, &job, "JobName"), "lsf");
    assert_eq!(field(&c, &job, "NumTasks"), "3");
    c.write("odd.sh", "#!/bin/sh\n#PBS -S /bin/sh -l arch=x\ntrue\n");
    let ran = c.run("sbatch -H odd.sh");
    assert!(
        ran.code == 0 && ran.err.contains("sbatch: warning: #PBS -S has no effect"),
        "{ran:?}"
    );
    c.write("bad.sh", "#!/bin/sh\n#PBS -d /tmp\ntrue\n");
    let ran = c.run("sbatch bad.sh");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err
            .contains("#PBS -d: sbatch reads no option -d of Torque"),
        "{ran:?}"
    );
}
