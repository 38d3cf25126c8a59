//! Layout of tasks over nodes, and their binding to CPUs and memory. Where the machine's own CPUs are bound, the
//! tests adapt to how many there are.

use crate::cluster::Cluster;

/// CPUs that this process may use.
fn own_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap())
}

/// A cluster of one node that is this machine.
fn real() -> Cluster {
    Cluster::start(1, own_cpus())
}

const ALLOWED: &str = "bash -c 'grep Cpus_allowed_list /proc/self/status | cut -f2'";

#[test]
fn tasks_are_bound_to_the_cpus_of_their_step() {
    let c = real();
    let cpus = own_cpus();
    // One CPU for each task: all different.
    let each = c.ok(&format!("srun -n{cpus} {ALLOWED} | sort -u | wc -l"));
    assert_eq!(each, cpus.to_string());
    // One task that has all CPUs of the node may use them all; without binding too.
    let all = c.ok(&format!("srun -n1 -c{cpus} {ALLOWED}"));
    let unbound = c.ok(&format!(
        "srun -n{cpus} --cpu-bind=none {ALLOWED} | sort -u"
    ));
    assert_eq!(all, unbound);
    let verbose = c.run(&format!("srun -Q -n{cpus} --cpu-bind=verbose true"));
    let mut lines: Vec<&str> = verbose.err.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), cpus as usize, "{}", verbose.err);
    assert!(
        lines[0].starts_with("cpu-bind=MASK - n1, task  0  0 [")
            && lines[0].ends_with("]: mask 0x1 set"),
        "{}",
        lines[0]
    );
    let none = c.run("srun -Q -n1 --cpu-bind=v,none true").err;
    assert!(
        none.starts_with("cpu-bind=NONE - n1, task  0  0 ["),
        "{none}"
    );
    let env = c.ok("srun -n1 -c1 bash -c 'env | grep ^SLURM_CPU_BIND | sort'");
    let list = env
        .lines()
        .find_map(|l| l.strip_prefix("SLURM_CPU_BIND_LIST="));
    let list = list.unwrap_or_default();
    assert!(list.starts_with("0x"), "{env}");
    assert_eq!(
        env,
        format!(
            "SLURM_CPU_BIND=quiet,mask_cpu:{list}\nSLURM_CPU_BIND_LIST={list}\nSLURM_CPU_BIND_TYPE=mask_cpu:\n\
             SLURM_CPU_BIND_VERBOSE=quiet"
        )
    );
}

#[test]
fn explicit_bindings_and_what_cannot_be_had() {
    let c = real();
    let cpus = own_cpus();
    let last = cpus - 1;
    let script =
        format!("srun -n{cpus} -l --cpu-bind=map_cpu:{last},0 {ALLOWED} | sort -V | head -2");
    let expected = if cpus == 1 {
        "0: 0".to_owned()
    } else {
        format!("0: {last}\n1: 0")
    };
    assert_eq!(c.ok(&script), expected);
    let outside = c.run("srun -n1 --cpu-bind=map_cpu:4095 true");
    assert_ne!(outside.code, 0);
    assert!(
        outside
            .err
            .contains("CPU binding outside of job step allocation, allocated CPUs are: 0x"),
        "{}",
        outside.err
    );
    if cpus > 1 {
        let part = c.run("srun -n1 -c1 --cpu-bind=rank true");
        assert!(
            part.err
                .contains("Entire node must be allocated for quiet,rank"),
            "{}",
            part.err
        );
        let whole = c.ok(&format!(
            "srun -n{cpus} --cpu-bind=rank {ALLOWED} | sort -u | wc -l"
        ));
        assert_eq!(whole, cpus.to_string());
    }
    let bad = c.run("srun --cpu-bind=foo true");
    assert_eq!(
        bad.err,
        "srun: error: unrecognized --cpu-bind argument \"foo\"\nsrun: error: Failed to parse --cpu-bind= values.\n"
    );
    assert!(c.ok("srun --cpu-bind=help").starts_with("CPU bind options"));
}

#[test]
fn a_batch_script_runs_on_its_own_cpus() {
    let c = real();
    let cpus = own_cpus();
    c.ok(&format!("sbatch -W -n1 -o one.out --wrap \"{ALLOWED}\""));
    c.ok(&format!(
        "sbatch -W -n{cpus} -o all.out --wrap \"{ALLOWED}\""
    ));
    assert_eq!(c.read("one.out").trim(), "0");
    let all = c.ok(ALLOWED);
    assert_eq!(c.read("all.out").trim(), all);
}

#[test]
fn memory_is_bound_to_domains_that_exist() {
    let c = real();
    let policy = "bash -c 'head -1 /proc/self/numa_maps | cut -d\" \" -f2'";
    if !std::path::Path::new("/proc/self/numa_maps").exists() {
        let refused = c.run("srun -n1 --mem-bind=local true");
        assert!(
            refused
                .err
                .contains("this kernel has no NUMA memory policies"),
            "{}",
            refused.err
        );
        return;
    }
    assert_eq!(c.ok(&format!("srun -n1 {policy}")), "default");
    assert_eq!(
        c.ok(&format!("srun -n1 --mem-bind=local {policy}")),
        "local"
    );
    assert_eq!(
        c.ok(&format!("srun -n1 --mem-bind=map_mem:0 {policy}")),
        "bind:0"
    );
    assert_eq!(
        c.ok(&format!("srun -n1 --mem-bind=prefer,mask_mem:0x1 {policy}")),
        "prefer:0"
    );
    let verbose = c.run("srun -Q -n1 --mem-bind=v,local true").err;
    assert!(
        verbose.starts_with("mem-bind=LOC - n1, task  0  0 [")
            && verbose.ends_with("]: mask 0x1 set\n"),
        "{verbose}"
    );
    let missing = c.run("srun -n1 --mem-bind=map_mem:1000 true");
    assert_eq!(missing.code, 1);
    assert!(
        missing
            .err
            .contains("NUMA node 1000 does not exist; cannot bind local task 0 to it"),
        "{}",
        missing.err
    );
    let env =
        c.ok("srun -n1 --mem-bind=v,local bash -c 'env | grep ^SLURM_MEM_BIND | sort' 2>/dev/null");
    assert_eq!(
        env,
        "SLURM_MEM_BIND=verbose,local\nSLURM_MEM_BIND_LIST=\nSLURM_MEM_BIND_TYPE=local\nSLURM_MEM_BIND_VERBOSE=verbose"
    );
    c.ok("sbatch -W -n1 -o mem.out --mem-bind=local --wrap 'env | grep ^SLURM_MEM_BIND= ; srun head -1 /proc/self/numa_maps'");
    let out = c.read("mem.out");
    assert!(
        out.starts_with("SLURM_MEM_BIND=local\n") && out.contains(" local "),
        "{out}"
    );
}

#[test]
fn nodes_that_share_a_machine_bind_nothing_and_say_so() {
    let c = Cluster::start(2, 64);
    let quiet = c.run("srun -Q -N2 -n4 --cpu-bind=cores true");
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    let verbose = c.run("srun -Q -w n1 -n1 --cpu-bind=v,cores true").err;
    assert!(
        verbose.starts_with("cpu-bind=NONE - n1, task  0  0 ["),
        "{verbose}"
    );
    assert!(
        verbose.contains("slurmstepd: n1: tasks are not bound to CPUs: several nodes of the configuration are on this"),
        "{verbose}"
    );
}

#[test]
fn a_site_can_turn_binding_off() {
    let cpus = own_cpus();
    let conf = |plugin: &str| {
        format!(
            "ClusterName=t\nSlurmctldHost=localhost\n{plugin}\nNodeName=n1 CPUs={cpus}\nPartitionName=p Nodes=n1 Default=YES\n"
        )
    };
    let c = Cluster::from_conf(&conf("TaskPlugin=task/none"));
    let all = c.ok(ALLOWED);
    assert_eq!(c.ok(&format!("srun -n1 -c1 {ALLOWED}")), all);
    drop(c);
    let c = Cluster::from_conf(&conf(
        "TaskPlugin=task/affinity\nTaskPluginParam=none,verbose",
    ));
    let ran = c.run(&format!("srun -n1 -c1 {ALLOWED}"));
    assert_eq!(ran.out.trim(), all);
    assert!(ran.err.starts_with("cpu-bind=NONE - n1"), "{}", ran.err);
}

#[test]
fn tasks_go_to_nodes_as_the_distribution_says() {
    let c = Cluster::start(3, 4);
    c.write("hosts", "n3\nn1\nn3\nn2\n");
    c.write(
        "layout.sh",
        "#!/bin/bash\n#SBATCH -N3 -n6 --exclusive -o layout.out\nshow() { echo \"$* = $(srun \"$@\" bash -c \
         'echo $SLURM_PROCID:$SLURM_NODEID:$SLURM_LOCALID:$SLURMD_NODENAME:$SLURM_GTIDS:$SLURM_STEP_TASKS_PER_NODE:$SLURM_DISTRIBUTION:$SLURM_DIST_PLANESIZE' \
         | sort -n | tr '\\n' ' ')\"; }\n\
         show -n3\nshow -n5 -m cyclic\nshow -n5 -m plane=2:block 2>&1 | head -1\nshow -n5 -m plane=2\nSLURM_DIST_PLANESIZE=3 show -n5 -m plane\n\
         show -n5 -m block,Pack\nSLURM_HOSTFILE=hosts show\nshow -n2 -m arbitrary -w n3,n1\nshow -n3 -m arbitrary -w n3,n1 2>&1 | head -1\n\
         show -n7 --ntasks-per-node=2 2>/dev/null\n",
    );
    c.ok("sbatch -W layout.sh");
    let out = c.read("layout.out");
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        "-n3 = 0:0:0:n1:0:1(x3):cyclic: 1:1:0:n2:1:1(x3):cyclic: 2:2:0:n3:2:1(x3):cyclic: ",
        "-n5 -m cyclic = 0:0:0:n1:0,3:2(x2),1:cyclic: 1:1:0:n2:1,4:2(x2),1:cyclic: 2:2:0:n3:2:2(x2),1:cyclic: \
         3:0:1:n1:0,3:2(x2),1:cyclic: 4:1:1:n2:1,4:2(x2),1:cyclic: ",
        "srun: error: Invalid plane size or size not specified",
        "-n5 -m plane=2 = 0:0:0:n1:0,1:2(x2),1:plane:2 1:0:1:n1:0,1:2(x2),1:plane:2 2:1:0:n2:2,3:2(x2),1:plane:2 \
         3:1:1:n2:2,3:2(x2),1:plane:2 4:2:0:n3:4:2(x2),1:plane:2 ",
        "-n5 -m plane = 0:0:0:n1:0,1,2:3,1(x2):plane:3 1:0:1:n1:0,1,2:3,1(x2):plane:3 2:0:2:n1:0,1,2:3,1(x2):plane:3 \
         3:1:0:n2:3:3,1(x2):plane:3 4:2:0:n3:4:3,1(x2):plane:3 ",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(line, &expected, "{out}");
    }
    assert!(
        out.contains(" = 0:2:0:n3:0,2:1(x2),2:arbitrary: 1:0:0:n1:1:"),
        "{out}"
    );
    assert!(
        out.contains("-n2 -m arbitrary -w n3,n1 = 0:1:0:n3:0:1(x2):arbitrary: 1:0:0:n1:1:"),
        "{out}"
    );
    assert!(
        out.contains("3 tasks are asked for, the list names 2 nodes"),
        "{out}"
    );
    assert!(
        out.contains("-n7 --ntasks-per-node=2 = 0:0:0:n1:0,1,2:3,2(x2):block:"),
        "{out}"
    );
}

#[test]
fn what_the_site_says_of_binding_counts_where_the_step_says_nothing() {
    let cpus = own_cpus();
    let conf = |of_node: &str| {
        format!(
            "ClusterName=bind\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nTaskPlugin=task/affinity\n\
             TaskPluginParam=threads\nNodeName=n1 CPUs={cpus} {of_node}\nPartitionName=free Nodes=ALL Default=YES CpuBind=none\n\
             PartitionName=bound Nodes=ALL CpuBind=thread\n"
        )
    };
    let label = |c: &Cluster, options: &str| {
        let ran = c.run(&format!("srun -Q -n1 --cpu-bind=verbose {options} true"));
        ran.err.split(' ').next().unwrap_or_default().to_owned()
    };
    let c = Cluster::from_conf(&conf(""));
    assert_eq!(label(&c, ""), "cpu-bind=NONE");
    assert_eq!(label(&c, "-p bound"), "cpu-bind=MASK");
    assert_eq!(label(&c, "--cpu-bind=v,threads"), "cpu-bind=MASK");
    let c = Cluster::from_conf(&conf("CpuBind=none"));
    assert_eq!(label(&c, "-p bound"), "cpu-bind=NONE");
    assert_eq!(label(&c, "-p bound --cpu-bind=v,cores"), "cpu-bind=MASK");
    // The same by scontrol: what the node says, then the partition, then TaskPluginParam.
    let update = |what: &str, partition: &str, wanted: &str| {
        c.ok(&format!("scontrol update {what}"));
        // The node's agent hears of it soon.
        let wanted = format!("cpu-bind={wanted}");
        c.until("tasks are bound as was said", || {
            label(&c, &format!("-p {partition}")) == wanted
        });
    };
    let shown = |what: &str| c.ok(&format!("scontrol show {what} | grep CpuBind; true"));
    assert!(
        shown("node n1").contains(" CpuBind=none CoresPerSocket="),
        "{}",
        shown("node n1")
    );
    update("nodename=n1 cpubind=off", "bound", "MASK");
    assert_eq!(shown("node n1"), "");
    assert_eq!(label(&c, "-p free"), "cpu-bind=NONE");
    update("partitionname=bound cpubind=none", "bound", "NONE");
    update("partitionname=free cpubind=off", "free", "MASK");
    assert_eq!(
        shown("partition"),
        "AllocNodes=ALL Default=NO CpuBind=none  QoS=N/A"
    );
    update("nodename=n1 cpubind=core", "bound", "MASK");
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    assert!(shown("node n1").contains("CpuBind=cores"));
    assert_eq!(label(&c, "-p bound"), "cpu-bind=MASK");
    let wrong = c.run("scontrol update nodename=n1 cpubind=sideways");
    assert_eq!(wrong.code, 1);
    assert!(
        wrong
            .err
            .contains("expected none, socket, ldom, core, thread or off"),
        "{wrong:?}"
    );
}
