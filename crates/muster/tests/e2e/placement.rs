//! Options that choose nodes, and what a job gets of them.

use crate::cluster::Cluster;

#[test]
fn the_script_runs_where_it_asks_to_and_the_system_keeps_what_the_job_says() {
    let c = Cluster::start(3, 4);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("NodeName=n[1-3] ") {
            Some(rest) => {
                lines.push(format!("NodeName=n[1-2] Feature=slow {rest}"));
                lines.push(format!("NodeName=n3 Feature=fast {rest}"));
            }
            None => lines.push(line.to_owned()),
        }
    }
    let text = lines.join("\n") + "\nAllowSpecResourcesUsage=YES\n";
    std::fs::write(&conf, text).unwrap();
    c.ok("scontrol reconfigure");
    c.write(
        "script",
        "#!/bin/bash\necho $SLURMD_NODENAME\nsrun -l bash -c 'echo $SLURMD_NODENAME' | sort\n",
    );
    let job = c.sbatch("-W -N3 --batch=fast -o out script");
    assert_eq!(c.read("out"), "n3\n0: n3\n1: n1\n2: n2\n");
    let shown = c.ok(&format!("scontrol show job {job}"));
    assert!(shown.contains("BatchHost=n3"), "{shown}");
    let refused = c.run("sbatch -N3 --batch=nosuch --wrap true");
    assert!(refused.code != 0 && refused.err.contains("no node has the feature nosuch"));
    // A core of four, threads of four; a job that says so has the node alone.
    let cpus = "bash -c 'echo $SLURM_CPUS_ON_NODE'";
    assert_eq!(c.ok(&format!("srun -n1 -S1 {cpus}")), "3");
    assert_eq!(c.ok(&format!("srun -n1 --thread-spec=2 {cpus}")), "2");
    let shown = c.ok("salloc -Q -n1 -S1 bash -c 'scontrol show job $SLURM_JOB_ID'");
    assert!(
        shown.contains("CoreSpec=1") && shown.contains("NumCPUs=3"),
        "{shown}"
    );
    // A task on each of so many cores.
    assert_eq!(c.ok("srun -N1 -B 1:2:1 echo task"), "task\ntask");
}

/// `SLURM_HOSTFILE` names the nodes of jobs, too, unless the command line does.
#[test]
fn a_host_file_names_the_nodes_of_an_allocation() {
    let c = Cluster::start(2, 2);
    c.write("hosts", "n2\n");
    let nodes = "bash -c 'echo $SLURM_JOB_NODELIST'";
    let with = "SLURM_HOSTFILE=$PWD/hosts";
    assert_eq!(c.ok(&format!("{with} salloc -Q {nodes}")), "n2");
    assert_eq!(c.ok(&format!("{with} salloc -Q -w n1 {nodes}")), "n1");
    c.ok(&format!(
        "{with} sbatch -Q -W -o out --wrap 'echo $SLURM_JOB_NODELIST'"
    ));
    assert_eq!(c.read("out").trim(), "n2");
    c.write("tasks", "n2\nn1\nn2\n");
    c.ok("SLURM_HOSTFILE=$PWD/tasks sbatch -Q -W -n3 -m arbitrary -o out --wrap 'srun -l printenv SLURMD_NODENAME'");
    let placed = c.ok("sort out");
    assert_eq!(placed, "0: n2\n1: n1\n2: n2");
}
