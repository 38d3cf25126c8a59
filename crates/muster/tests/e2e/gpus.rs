//! GPUs: uneven shares of jobs, devices of steps and tasks, and what programs are told of them.

use crate::cluster::Cluster;

/// Three nodes of eight CPUs and four GPUs: two of each type, at one half of the CPUs each.
fn cluster() -> Cluster {
    let c = Cluster::start(3, 8);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|l| l.starts_with("NodeName=")) {
        line.push_str(" Gres=gpu:a:2,gpu:b:2");
    }
    let text = lines.join("\n") + "\nGresTypes=gpu\n";
    std::fs::write(&conf, text).unwrap();
    std::fs::write(
        c.path("gres.conf"),
        "Name=gpu Type=a Cores=0-3 Count=2\nName=gpu Type=b Cores=4-7 Count=2 Flags=amd_gpu_env\n",
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    c
}

#[test]
fn jobs_and_tasks_have_the_gpus_that_they_count() {
    let c = cluster();
    // Five of nodes that have four: two nodes, and as many for each task as can be.
    let script = "echo $SLURM_JOB_NUM_NODES $SLURM_GPUS; \
                  srun -l bash -c 'echo $SLURM_STEP_GPUS/$CUDA_VISIBLE_DEVICES' | sort";
    c.write("script", &format!("#!/bin/bash\n{script}\n"));
    c.ok("sbatch -W -n5 --gpus=5 --mem=10 -o out script");
    assert_eq!(
        c.read("out"),
        "2 5\n0: 0,1,2,3/0,1,2,3\n1: 0,1,2,3/0,1,2,3\n2: 0,1,2,3/0,1,2,3\n3: 0,1,2,3/0,1,2,3\n4: 0/0\n"
    );
    let asked = c.ok("sacct -nXP -j 1 -o ReqTRES,AllocTRES");
    let both: Vec<&str> = asked.split('|').collect();
    assert!(
        both.len() == 2 && both.iter().all(|tres| tres.contains(",gres/gpu=5,")),
        "{asked}"
    );
    // A node that a job is leaving would be the better one for the next.
    c.until_prints("sinfo -h -o %t", "idle");
    // Each task has its own, in the job's step and in one of a running job.
    let each = "bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES' | sort";
    assert_eq!(
        c.ok(&format!("srun -n3 -N1 --gpus-per-task=1 --mem=10 {each}")),
        "0 0\n1 1\n2 2"
    );
    assert_eq!(
        c.ok(&format!(
            "salloc -n2 -N1 --gpus-per-task=2 --mem=10 srun {each}"
        )),
        "0 0,1\n1 2,3"
    );
    assert_eq!(
        c.ok(&format!(
            "salloc -n4 -N1 --gpus=2 --mem=10 srun --gpu-bind=single:2 {each}"
        )),
        "0 0\n1 0\n2 1\n3 1"
    );
    // A step has what it asks for of the job's.
    assert_eq!(
        c.ok("salloc -n1 --gpus-per-node=4 --mem=10 srun --gpus=1 bash -c 'echo $SLURM_STEP_GPUS of $SLURM_JOB_GPUS'"),
        "0 of 0,1,2,3"
    );
    // Types are numbered through, and gres.conf says which variables there are.
    assert_eq!(
        c.ok("srun -n1 --gres=gpu:b:1 --mem=10 bash -c 'echo $SLURM_JOB_GPUS ${CUDA_VISIBLE_DEVICES-none} $ROCR_VISIBLE_DEVICES'"),
        "2 none 2"
    );
    for command in ["sbatch", "srun -n1", "salloc"] {
        assert_eq!(
            c.ok(&format!("{command} --gres=help true")),
            "Valid gres options are:\ngpu[[:type]:count]"
        );
    }
}

#[test]
fn what_is_counted_by_gpu_is_shown_and_given() {
    let c = cluster();
    let job = c.sbatch(
        "--gpus=b:3 --cpus-per-gpu=2 --mem-per-gpu=7 --gres-flags=enforce-binding -o /dev/null --wrap 'sleep 1000'",
    );
    c.until_prints(&format!("squeue -h -j {job},{job} -o %T"), "RUNNING");
    let shown = c.ok(&format!("scontrol show job -d {job}"));
    for part in [
        "CpusPerTres=gres/gpu:2",
        "MemPerTres=gres/gpu:7",
        "TresPerJob=gres/gpu:b:3",
        "Nodes=n1 CPU_IDs=4-7 Mem=14 GRES=gpu:b:2(IDX:2-3)",
        "Nodes=n2 CPU_IDs=4-5 Mem=7 GRES=gpu:b:1(IDX:2)",
        "gres/gpu=3",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    let refused = c.run("sbatch --gpus=13 --wrap true");
    assert!(
        refused
            .err
            .contains("all nodes together have 12 of gpu, 13 are asked for")
    );
    let refused = c.run("sbatch --gpus=2 -N3 --wrap true");
    assert!(refused.err.contains("--gpus < -N"), "{}", refused.err);
}

/// Two nodes of eight CPUs and two GPUs, each of which jobs share by parts of this name.
fn parted(name: &str, more: &str) -> Cluster {
    let c = Cluster::start(2, 8);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|l| l.starts_with("NodeName=")) {
        line.push_str(&format!(" Gres=gpu:2,{name}:200"));
    }
    let text = lines.join("\n") + &format!("\nGresTypes=gpu,{name}\n{more}");
    std::fs::write(&conf, text).unwrap();
    c.ok("scontrol reconfigure");
    c
}

#[test]
fn jobs_share_gpus_by_parts() {
    let c = parted("mps", "DefCpuPerGPU=3\nDefMemPerGPU=9\n");
    let sleep = |gres: &str, script: &str| {
        let script = format!("{script}; sleep 1000");
        c.sbatch(&format!(
            "-w n1 --gres={gres} --mem=10 -o %j.out --wrap '{script}'"
        ))
    };
    let env = "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $SLURM_GPUS_ON_NODE.";
    let first = sleep("mps:25", env);
    let second = sleep("mps:50", env);
    c.until_prints(&format!("cat {first}.out {second}.out"), "0 25 1.\n0 50 1.");
    let shown = c.ok("scontrol show node n1 -d");
    assert!(
        shown.contains("GresUsed=gpu:0(IDX:N/A),mps:75(75/100,0/100)"),
        "{shown}"
    );
    // The other GPU is to be had as a whole only, with the CPUs and memory that go with it.
    let whole =
        c.sbatch("-w n1 --gres=gpu:1 -o whole.out --wrap 'echo $SLURM_JOB_GPUS; sleep 1000'");
    c.until_prints(&format!("squeue -h -j {whole},{whole} -o %T"), "RUNNING");
    let shown = c.ok(&format!("scontrol show job -d {whole}"));
    assert!(
        shown.contains("CPU_IDs=2-4 Mem=9 GRES=gpu:1(IDX:1)"),
        "{shown}"
    );
    let waits = sleep("mps:26", "true");
    c.until_prints(
        &format!("squeue -h -j {waits},{waits} -o '%T %r'"),
        "PENDING Resources",
    );
    for (gres, why) in [
        ("mps:101", "no node has 101 of mps; the maximum is 100"),
        ("gpu:1,mps:10", "cannot be had together"),
    ] {
        let refused = c.run(&format!("sbatch --gres={gres} --wrap true"));
        assert!(refused.err.contains(why), "{gres}: {}", refused.err);
    }
}

#[test]
fn shards_are_counted() {
    let c = parted("shard", "");
    let out = c.ok(
        "srun -n1 --gres=shard:60 --mem=10 bash -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE $SLURM_JOB_GPUS'",
    );
    assert_eq!(out, "0 60 0");
    // Its node gives it up after srun has heard of its end.
    c.until_prints("squeue -h -o %T", "");
    let out = c.ok(
        "salloc -n1 --gres=shard:60 --mem=10 srun --gres=shard:20 bash -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE'",
    );
    assert_eq!(out, "0 20");
    assert!(
        c.ok("scontrol show config")
            .contains("GresTypes               = gpu,shard")
    );
}

#[test]
fn identifiers_of_a_resource_map_are_nobody_elses_until_they_are_freed() {
    let c = Cluster::start(1, 8);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let with_gres = |line: &str| match line.starts_with("NodeName=") {
        true => format!("{line} Gres=gpu:2,port:3"),
        false => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(with_gres).collect();
    std::fs::write(&conf, lines.join("\n") + "\nGresTypes=gpu,port\n").unwrap();
    let map = |gpus: &str| {
        let text =
            format!("Name=gpu ResourceMap=\"{gpus}\"\nName=port ResourceMap=\"3(10000-10002)\"\n");
        std::fs::write(c.path("gres.conf"), text).unwrap();
        c.ok("scontrol reconfigure");
    };
    map("gpu=2(GPU1 GPU2)");
    // Of four jobs two run, with different identifiers.
    let jobs: Vec<u64> = (1..=4)
        .map(|n| {
            c.sbatch(&format!(
                "--gres=gpu:1,port:1 --mem=10 -o /dev/null --wrap 'echo $SGE_HGR_gpu $SGE_HGR_port >has.{n}.new; \
                 srun sh -c \"echo \\$SGE_HGR_gpu\" >step.{n}; mv has.{n}.new has.{n}; while [ ! -e end.{n} ]; do sleep 0.05; done'"
            ))
        })
        .collect();
    let has = |n: u32| {
        c.until("the job says what it has", || {
            c.dir.join(format!("has.{n}")).exists()
        });
        c.read(&format!("has.{n}"))
    };
    assert_eq!(
        (has(1), has(2)),
        ("GPU1 10000\n".into(), "GPU2 10001\n".into())
    );
    assert_eq!(
        (c.read("step.1"), c.read("step.2")),
        ("GPU1\n".into(), "GPU2\n".into())
    );
    c.until_prints("squeue -h -t PD | wc -l", "2");
    let detail = c.run(&format!("qstat -j {}", jobs[1])).out;
    assert!(
        detail.contains("resource map  1:            gpu=n1=(GPU2),port=n1=(10001)"),
        "{detail}"
    );
    // A controller that is killed knows what they have.
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    c.until_prints("sinfo -h -o %t", "mix");
    c.write("end.2", "");
    assert_eq!(has(3), "GPU2 10001\n");
    assert!(!c.dir.join("has.4").exists());
    c.write("end.1", "");
    assert_eq!(has(4), "GPU1 10000\n");
    ["end.3", "end.4"]
        .into_iter()
        .for_each(|end| c.write(end, ""));
    c.until_prints("squeue -h | wc -l", "0");
    // One that two may share, and numbers that programs find it by.
    map("2(5 5)");
    let out = c.ok("srun --gres=gpu:1 --mem=10 bash -c 'echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $ZE_AFFINITY_MASK \
                    $GPU_DEVICE_ORDINAL $SLURM_JOB_GPUS $SLURM_STEP_GPUS $SGE_HGR_gpu'");
    assert_eq!(out, "5 5 5 5 5 5 5");
}

#[test]
fn steps_are_shown_and_accounted_with_their_gpus() {
    let c = cluster();
    c.write(
        "script",
        "#!/bin/bash\nsrun --gres=gpu:a:1 --mem=10 true\nsrun --overlap --mem=10 scontrol show step $SLURM_JOB_ID.1 | grep TRES >shown\n",
    );
    c.ok("sbatch -W -N1 --gpus=2 --mem=10 -o out script");
    assert_eq!(
        c.read("shown").trim(),
        "TRES=cpu=1,gres/gpu=2,gres/gpu:a=2,mem=10M,node=1"
    );
    let accounted = || c.ok("sacct -nP -j 1 -o JobID,AllocTRES | grep -F .");
    c.until("all steps have ended", || accounted().lines().count() == 3);
    assert_eq!(
        accounted(),
        "1.batch|cpu=1,gres/gpu=2,gres/gpu:a=2,mem=10M,node=1\n\
         1.0|cpu=1,gres/gpu=1,gres/gpu:a=1,mem=10M,node=1\n\
         1.1|cpu=1,gres/gpu=2,gres/gpu:a=2,mem=10M,node=1"
    );
}

#[test]
fn steps_have_the_gpus_of_their_tasks() {
    let c = cluster();
    let each = "bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'";
    c.write(
        "script",
        &format!(
            "#!/bin/bash\nsrun -n1 {each}\nsrun -n2 {each} | sort\nsrun -n1 --gpus=2 {each}\n"
        ),
    );
    c.ok("sbatch -W -N1 -n2 --gpus-per-task=1 --mem=10 -o out script");
    assert_eq!(c.read("out"), "0 0\n0 0\n1 1\n0 0,1\n");
}

#[test]
fn a_step_of_an_exclusive_job_has_the_gpus_that_it_asks_for() {
    let c = cluster();
    let each = "bash -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES' | sort";
    for (ask, expected) in [
        ("--gres=gpu:1", "0 0"),
        ("--gpus=3", "0 0,1,2"),
        ("-n2 --gpus-per-task=1", "0 0\n1 1"),
        ("--gpus-per-task=2", "0 0,1"),
    ] {
        let out = c.ok(&format!("srun -N1 --exclusive --mem=10 {ask} {each}"));
        assert_eq!(out, expected, "{ask}");
    }
}
