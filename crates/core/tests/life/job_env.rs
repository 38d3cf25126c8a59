//! The environment of jobs beside what Slurm 22.05.8 gave a job of the same shape: two nodes, two tasks a node, two
//! CPUs a task, 100 MiB a node; a task of an array; a `salloc -n2`.

use muster_model::cpuset::CpuSet;
use muster_model::grid_engine;
use muster_model::ids::{JobId, NodeIdx, StepNo};
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, NodeShare};
use muster_model::job_env::{self, JobView, StepView, Variables};
use muster_model::spec::{Dependency, DependencyTerm, JobSpec, MemoryAsk, Owner, ResourceAsk};
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Without `SLURM_TASK_PID` and `TMPDIR`, which who forks the script adds.
const BATCH: &str = "\
ENVIRONMENT=BATCH
HOSTNAME=n1
SLURMD_NODENAME=n1
SLURM_CLUSTER_NAME=peer
SLURM_CONF=/etc/slurm.conf
SLURM_CPUS_ON_NODE=4
SLURM_CPUS_PER_TASK=2
SLURM_GTIDS=0
SLURM_JOBID=1
SLURM_JOB_ACCOUNT=root
SLURM_JOB_CPUS_PER_NODE=4(x2)
SLURM_JOB_GID=0
SLURM_JOB_ID=1
SLURM_JOB_NAME=envdump
SLURM_JOB_NODELIST=n[1-2]
SLURM_JOB_NUM_NODES=2
SLURM_JOB_PARTITION=batch
SLURM_JOB_QOS=normal
SLURM_JOB_UID=0
SLURM_JOB_USER=root
SLURM_LOCALID=0
SLURM_MEM_PER_NODE=100
SLURM_NNODES=2
SLURM_NODEID=0
SLURM_NODELIST=n[1-2]
SLURM_NODE_ALIASES=(null)
SLURM_NPROCS=4
SLURM_NTASKS=4
SLURM_NTASKS_PER_NODE=2
SLURM_PRIO_PROCESS=0
SLURM_PROCID=0
SLURM_SUBMIT_DIR=/work
SLURM_SUBMIT_HOST=vm
SLURM_TASKS_PER_NODE=2(x2)
SLURM_TOPOLOGY_ADDR=n1
SLURM_TOPOLOGY_ADDR_PATTERN=node
SLURM_WORKING_CLUSTER=peer:127.0.0.1:17100:9728:109
";

/// Rank 3 of 4 of a step over the same job, without what srun itself sets (`SLURM_SRUN_COMM_*`,
/// `SLURM_STEP_LAUNCHER_PORT`, `SLURM_LAUNCH_NODE_IPADDR`, `SLURM_UMASK`, `SRUN_DEBUG`) and the relic
/// `SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0`.
const TASK_3: &str = "\
SLURMD_NODENAME=n2
SLURM_CLUSTER_NAME=peer
SLURM_CONF=/etc/slurm.conf
SLURM_CPUS_ON_NODE=4
SLURM_CPUS_PER_TASK=2
SLURM_DISTRIBUTION=block
SLURM_GTIDS=2,3
SLURM_JOBID=1
SLURM_JOB_ACCOUNT=root
SLURM_JOB_CPUS_PER_NODE=4(x2)
SLURM_JOB_GID=0
SLURM_JOB_ID=1
SLURM_JOB_NAME=envdump
SLURM_JOB_NODELIST=n[1-2]
SLURM_JOB_NUM_NODES=2
SLURM_JOB_PARTITION=batch
SLURM_JOB_QOS=normal
SLURM_JOB_UID=0
SLURM_JOB_USER=root
SLURM_LOCALID=1
SLURM_MEM_PER_NODE=100
SLURM_NNODES=2
SLURM_NODEID=1
SLURM_NODELIST=n[1-2]
SLURM_NODE_ALIASES=(null)
SLURM_NPROCS=4
SLURM_NTASKS=4
SLURM_NTASKS_PER_NODE=2
SLURM_PRIO_PROCESS=0
SLURM_PROCID=3
SLURM_STEPID=0
SLURM_STEP_ID=0
SLURM_STEP_NODELIST=n[1-2]
SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=4
SLURM_STEP_TASKS_PER_NODE=2(x2)
SLURM_SUBMIT_DIR=/work
SLURM_SUBMIT_HOST=vm
SLURM_TASKS_PER_NODE=2(x2)
SLURM_TOPOLOGY_ADDR=n2
SLURM_TOPOLOGY_ADDR_PATTERN=node
SLURM_WORKING_CLUSTER=peer:127.0.0.1:17100:9728:109
";

/// What an array's task has beyond a job of one CPU.
const ARRAY: &str = "\
SLURM_ARRAY_JOB_ID=2
SLURM_ARRAY_TASK_COUNT=3
SLURM_ARRAY_TASK_ID=2
SLURM_ARRAY_TASK_MAX=3
SLURM_ARRAY_TASK_MIN=1
SLURM_ARRAY_TASK_STEP=1
SLURM_CPUS_ON_NODE=1
SLURM_JOBID=7
SLURM_JOB_CPUS_PER_NODE=1
SLURM_JOB_NODELIST=n1
SLURM_JOB_NUM_NODES=1
SLURM_TASKS_PER_NODE=1
";

const SALLOC: &str = "\
SLURM_CLUSTER_NAME=peer
SLURM_CONF=/etc/slurm.conf
SLURM_JOBID=8
SLURM_JOB_ACCOUNT=root
SLURM_JOB_CPUS_PER_NODE=2
SLURM_JOB_ID=8
SLURM_JOB_NAME=interactive
SLURM_JOB_NODELIST=n1
SLURM_JOB_NUM_NODES=1
SLURM_JOB_PARTITION=batch
SLURM_JOB_QOS=normal
SLURM_NNODES=1
SLURM_NODELIST=n1
SLURM_NODE_ALIASES=(null)
SLURM_NPROCS=2
SLURM_NTASKS=2
SLURM_SUBMIT_DIR=/work
SLURM_SUBMIT_HOST=vm
SLURM_TASKS_PER_NODE=2
";

/// What newer versions set, and our own.
const ALSO: [&str; 3] = ["SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "MUSTER_NODE"];

struct Sample {
    spec: JobSpec,
    alloc: Allocation,
    array: ArrayRole,
    info: Option<ArrayInfo>,
}

fn sample(name: &str, ask: ResourceAsk, nodes: u32, cpus: u32, tasks: u32) -> Sample {
    let shares = (1..=nodes).map(|i| NodeShare {
        node: NodeIdx(i),
        name: format!("n{i}"),
        cpus: CpuSet::first(cpus),
        memory_mib: 100,
        tasks,
        gres: Vec::new(),
    });
    let root = "root".to_owned();
    Sample {
        spec: JobSpec {
            name: name.to_owned(),
            owner: Owner {
                uid: 0,
                gid: 0,
                user: root.clone(),
                group: root,
            },
            work_dir: "/work".to_owned(),
            submit_host: "vm".to_owned(),
            ask,
            ..JobSpec::default()
        },
        alloc: Allocation {
            reservation: None,
            end_by: None,
            billing_milli: 0,
            billing_units_milli: None,
            cpus_counted: None,
            mcs_label: None,
            usage_factor_millionths: None,
            backfilled: false,
            sharers: 0,
            only_user: None,
            licenses: Vec::new(),
            nodes: shares.collect(),
            partition: "batch".to_owned(),
            exclusive: false,
            hostlist: if nodes == 1 { "n1" } else { "n[1-2]" }.to_owned(),
            ntasks: nodes * tasks,
        },
        array: ArrayRole::None,
        info: None,
    }
}

impl Sample {
    fn view(&self, job: u64) -> JobView<'_> {
        JobView {
            job: JobId(job),
            spec: &self.spec,
            alloc: &self.alloc,
            array: &self.array,
            array_info: self.info.as_ref(),
            start_time: Timestamp(1_000_000),
            time_limit: TimeLimit::Minutes(5),
            restarts: 0,
            account: "root",
            qos: "normal",
            cluster: "peer",
            conf_path: "/etc/slurm.conf",
            working_cluster: "peer:127.0.0.1:17100:9728:109",
            lead_address: "unix:/spool/noded.sock",
            topology: ("", ""),
            components: &[],
        }
    }
}

/// Later settings win; what only newer versions have is left out.
fn text(env: Variables) -> String {
    let map: BTreeMap<String, String> = env.into_iter().collect();
    let lines = map.iter().filter(|(k, _)| !ALSO.contains(&k.as_str()));
    lines.map(|(k, v)| format!("{k}={v}\n")).collect()
}

fn two_nodes() -> Sample {
    let ask = ResourceAsk {
        min_nodes: 2,
        ntasks_per_node: Some(2),
        cpus_per_task: Some(2),
        memory: MemoryAsk::PerNode(100),
        ..ResourceAsk::default()
    };
    sample("envdump", ask, 2, 4, 2)
}

#[test]
fn batch_script() {
    let job = two_nodes();
    assert_eq!(text(job_env::batch_env(&job.view(1), 0)), BATCH);
    let env: BTreeMap<_, _> = job_env::batch_env(&job.view(1), 0).into_iter().collect();
    assert_eq!(env["SLURM_JOB_START_TIME"], "1000");
    assert_eq!(env["SLURM_JOB_END_TIME"], "1300");
    assert!(!env.contains_key("SLURM_RESTART_COUNT"));
    let again = JobView {
        restarts: 2,
        time_limit: TimeLimit::Unlimited,
        ..job.view(1)
    };
    let env: BTreeMap<_, _> = job_env::batch_env(&again, 0).into_iter().collect();
    assert_eq!(env["SLURM_RESTART_COUNT"], "2");
    assert!(!env.contains_key("SLURM_JOB_END_TIME"));
}

#[test]
fn task_of_a_step() {
    let job = two_nodes();
    let step = StepView {
        step: StepNo(0),
        hostlist: "n[1-2]",
        tasks: &[vec![0, 1], vec![2, 3]],
        position: 1,
        node: "n2",
        cpus_on_node: 4,
        gres: &[],
        cpus_per_task: Some(2),
        distribution: None,
        total_tasks: None,
    };
    let mut env = job_env::step_env(&job.view(1), &step);
    env.extend(job_env::task_env(3, 1));
    assert_eq!(text(env), TASK_3);
}

#[test]
fn task_of_an_array() {
    let mut job = sample("arr.sh", ResourceAsk::default(), 1, 1, 1);
    job.array = ArrayRole::Task {
        base: JobId(2),
        index: 2,
    };
    job.info = Some(ArrayInfo {
        count: 3,
        min: 1,
        max: 3,
        step: 1,
        ..ArrayInfo::default()
    });
    let env: BTreeMap<_, _> = job_env::batch_env(&job.view(7), 0).into_iter().collect();
    for line in ARRAY.lines() {
        let (name, value) = line.split_once('=').unwrap();
        assert_eq!(env[name], value, "{name}");
    }
    // Only what was asked for.
    for name in [
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_CPUS_PER_TASK",
        "SLURM_MEM_PER_NODE",
        "SLURM_MEM_PER_CPU",
    ] {
        assert!(!env.contains_key(name), "{name}");
    }
}

#[test]
fn holder_of_an_allocation() {
    let ask = ResourceAsk {
        ntasks: Some(2),
        ..ResourceAsk::default()
    };
    let job = sample("interactive", ask, 1, 2, 2);
    assert_eq!(text(job_env::allocation_env(&job.view(8))), SALLOC);
}

#[test]
fn counts_and_stale_variables() {
    assert_eq!(job_env::per_node_text([4, 4, 3, 4]), "4(x2),3,4");
    assert_eq!(job_env::per_node_text([]), "");
    let all = [BATCH, TASK_3, ARRAY].concat();
    for name in all.lines().filter_map(|l| l.split('=').next()) {
        let general =
            matches!(name, "ENVIRONMENT" | "HOSTNAME") || name.starts_with("SLURM_SUBMIT_");
        assert_eq!(job_env::is_job_variable(name), !general, "{name}");
    }
    for input in [
        "SLURM_EXPORT_ENV",
        "SLURM_CPU_BIND",
        "SLURM_MPI_TYPE",
        "SBATCH_ACCOUNT",
        "PATH",
    ] {
        assert!(!job_env::is_job_variable(input), "{input}");
    }
}

/// What Grid Engine 8.1.9 gave a serial job, a task of an array and a parallel job, but for paths and hosts of that cell.
#[test]
fn jobs_of_grid_engine() {
    let ask = ResourceAsk {
        ntasks: Some(2),
        ..ResourceAsk::default()
    };
    let mut job = sample("pe.sh", ask, 1, 2, 2);
    let own = |job: &Sample, number| -> String {
        let env: BTreeMap<_, _> = job_env::batch_env(&job.view(number), 0)
            .into_iter()
            .collect();
        let lines = env.iter().filter(|(name, _)| !name.starts_with("SLURM"));
        let lines = lines.filter(|(name, _)| !name.starts_with("MUSTER_NODE"));
        lines
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect()
    };
    assert_eq!(
        own(&job, 7),
        "ENVIRONMENT=BATCH\nHOSTNAME=n1\n",
        "sbatch's jobs have none"
    );
    let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    job.spec.shown = vec![
        mark(grid_engine::COMMAND, "qsub"),
        mark(grid_engine::QUEUE, "all.q"),
        mark(grid_engine::PE, "mpi 2"),
    ];
    assert_eq!(
        own(&job, 7),
        "ENVIRONMENT=BATCH\nHOSTNAME=n1\nJOB_ID=7\nJOB_NAME=pe.sh\nJOB_SCRIPT=\nMUSTER_PE_HOSTS=n1 2 all.q@n1 UNDEFINED\n\n\
         NHOSTS=1\nNQUEUES=1\nNSLOTS=2\nPE=mpi\nQUEUE=all.q\nREQNAME=pe.sh\nREQUEST=pe.sh\nRESTARTED=0\n\
         SGE_CLUSTER_NAME=peer\nSGE_TASK_FIRST=undefined\nSGE_TASK_ID=undefined\nSGE_TASK_LAST=undefined\n\
         SGE_TASK_STEPSIZE=undefined\n"
    );
    job.spec.shown.pop();
    job.array = ArrayRole::Task {
        base: JobId(2),
        index: 3,
    };
    job.info = Some(ArrayInfo {
        min: 1,
        max: 5,
        step: 2,
        ..ArrayInfo::default()
    });
    let env = own(&job, 7);
    for line in [
        "JOB_ID=2",
        "SGE_TASK_ID=3",
        "SGE_TASK_FIRST=1",
        "SGE_TASK_LAST=5",
        "SGE_TASK_STEPSIZE=2",
    ] {
        assert!(env.lines().any(|own| own == line), "{line}: {env}");
    }
}

/// What Torque promises its jobs, with the numbers that Slurm's commands know them by.
#[test]
fn variables_of_torque() {
    let ask = ResourceAsk {
        ntasks: Some(4),
        ..ResourceAsk::default()
    };
    let mut job = sample("big.sh", ask, 2, 2, 2);
    job.spec.shown = vec![(muster_model::torque::COMMAND.to_owned(), "qsub".to_owned())];
    let own = |job: &Sample| -> String {
        let env: BTreeMap<_, _> = job_env::batch_env(&job.view(7), 0).into_iter().collect();
        let lines = env.iter().filter(|(name, _)| name.contains("PBS"));
        lines
            .map(|(name, value)| format!("{name}={value};"))
            .collect()
    };
    let account = job.view(7).account;
    let partition = &job.alloc.partition;
    let limit = job.view(7).time_limit.seconds();
    let limit = limit.map_or_else(String::new, |limit| format!("PBS_WALLTIME={limit};"));
    assert_eq!(
        own(&job),
        format!(
            "MUSTER_PBS_HOSTS=n1 2\nn2 2\n;PBS_ACCOUNT={account};PBS_ENVIRONMENT=PBS_BATCH;PBS_JOBID=7;PBS_JOBNAME=big.sh;PBS_NODENUM=0;PBS_NP=4;\
             PBS_NUM_NODES=2;PBS_NUM_PPN=2;PBS_O_QUEUE={partition};PBS_QUEUE={partition};PBS_TASKNUM=1;{limit}"
        )
    );
    job.array = ArrayRole::Task {
        base: JobId(2),
        index: 3,
    };
    let env = own(&job);
    for part in [
        "PBS_ARRAYID=3;",
        "PBS_ARRAY_INDEX=3;",
        "PBS_ARRAY_ID=2;",
        "PBS_JOBID=7;",
    ] {
        assert!(env.contains(part), "{part}: {env}");
    }
}

/// Root makes a directory of that name: it may lead nowhere else, whatever the submitter says.
#[test]
fn temporary_directories_of_grid_engine() {
    let mut job = sample("x", ResourceAsk::default(), 1, 1, 1);
    let partition = job.alloc.partition.clone();
    assert_eq!(job_env::tmp_dir_name(&job.view(7)), None);
    let mut name = |queue: &str| {
        let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        job.spec.shown = vec![
            mark(grid_engine::COMMAND, "qsub"),
            mark(grid_engine::QUEUE, queue),
        ];
        job_env::tmp_dir_name(&job.view(7)).unwrap()
    };
    assert_eq!(name("all.q"), "7.1.all.q");
    for queue in ["../../etc", "/", "a\nb", "a\0b", &"q".repeat(300)] {
        assert_eq!(name(queue), format!("7.1.{partition}"), "{queue:?}");
    }
    job.array = ArrayRole::Task {
        base: JobId(2),
        index: 3,
    };
    let of_task = job_env::tmp_dir_name(&job.view(7));
    assert_eq!(of_task, Some("2.3.".to_owned() + &partition));
}

/// sbatch(1) and salloc(1), output environment variables.
#[test]
fn memory_binding_and_dependency_are_in_the_environment() {
    let mut job = sample("x", ResourceAsk::default(), 1, 1, 1);
    let bind = "verbose,prefer,map_mem:0,1";
    job.spec.shown = vec![("mem-bind".to_owned(), bind.to_owned())];
    job.spec.dependency = Dependency {
        terms: vec![DependencyTerm::Singleton],
        any: false,
    };
    let view = job.view(7);
    let batch = job_env::batch_env(&view, 0);
    let holder = job_env::allocation_env(&view);
    let value = |env: &Variables, name: &str| {
        let found = env.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.clone())
    };
    for (name, wanted) in [
        ("", bind),
        ("_LIST", "0,1"),
        ("_TYPE", "map_mem:"),
        ("_PREFER", "prefer"),
        ("_VERBOSE", "verbose"),
    ] {
        let (sbatch, salloc) = (
            format!("SBATCH_MEM_BIND{name}"),
            format!("SLURM_MEM_BIND{name}"),
        );
        assert_eq!(value(&batch, &sbatch).as_deref(), Some(wanted), "{sbatch}");
        assert_eq!(value(&holder, &sbatch), None, "{sbatch}");
        for env in [&batch, &holder] {
            assert_eq!(value(env, &salloc).as_deref(), Some(wanted), "{salloc}");
        }
    }
    for env in [&batch, &holder] {
        let of_binding = || env.iter().filter(|(name, _)| name.contains("MEM_BIND"));
        let names: BTreeSet<&String> = of_binding().map(|(name, _)| name).collect();
        assert_eq!(names.len(), of_binding().count(), "each has one value");
    }
    let dependency = value(&batch, "SLURM_JOB_DEPENDENCY");
    assert_eq!(dependency.as_deref(), Some("singleton"));
}
