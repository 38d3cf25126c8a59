//! Rows: nodes, tasks, CPUs, memory, and who may share them.

use super::row::{Commands, Group, OptionRow, flag, opt};

const R: Commands = Commands::R;

pub(super) const ROWS: &[OptionRow] = &[
    opt("cpus-per-task", "ncpus", "CPUs of each task")
        .short('c')
        .srun_env(&["SRUN_CPUS_PER_TASK"]),
    opt("cpu-freq", "min[-max[:governor]]", "CPU frequency")
        .env(
            &["SBATCH_CPU_FREQ_REQ"],
            &["SLURM_CPU_FREQ_REQ"],
            &["SALLOC_CPU_FREQ_REQ"],
        )
        .warns("CPU frequencies are left as they are"),
    opt(
        "distribution",
        "type",
        "how tasks are laid out: block, cyclic, plane=size, [:block|cyclic]",
    )
    .short('m')
    .env(
        &["SBATCH_DISTRIBUTION"],
        &["SLURM_DISTRIBUTION"],
        &["SALLOC_DISTRIBUTION"],
    ),
    opt(
        "gres",
        "list",
        "devices of each node: name[:type][:count],...",
    )
    .env(
        &["SBATCH_GRES"],
        &["SLURM_GRES", "SLURM_STEP_GRES"],
        &["SALLOC_GRES"],
    ),
    opt(
        "gres-flags",
        "type",
        "enforce-binding: no CPUs but those next to the devices",
    )
    .env(
        &["SBATCH_GRES_FLAGS"],
        &["SLURM_GRES_FLAGS"],
        &["SALLOC_GRES_FLAGS"],
    ),
    opt("nodes", "N", "number of nodes: count or min-max")
        .short('N')
        .srun_env(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"]),
    opt("ntasks", "ntasks", "number of tasks")
        .short('n')
        .srun_env(&["SLURM_NPROCS", "SLURM_NTASKS"]),
    opt("ntasks-per-node", "n", "tasks on each node").srun_env(&["SLURM_NTASKS_PER_NODE"]),
    opt("tasks-per-node", "n", "the same as --ntasks-per-node").same_as("ntasks-per-node"),
    flag("overcommit", "several tasks may share a CPU")
        .short('O')
        .env(
            &["SBATCH_OVERCOMMIT"],
            &["SLURM_OVERCOMMIT"],
            &["SALLOC_OVERCOMMIT"],
        ),
    flag(
        "oversubscribe",
        "share CPUs with other jobs, where the partition allows it",
    )
    .short('s'),
    flag("share", "old name of --oversubscribe").same_as("oversubscribe"),
    opt(
        "core-spec",
        "cores",
        "cores of each node that the system keeps",
    )
    .short('S')
    .env(
        &["SBATCH_CORE_SPEC"],
        &["SLURM_CORE_SPEC"],
        &["SALLOC_CORE_SPEC"],
    )
    .partly("where AllowSpecResourcesUsage=YES; otherwise nodes keep what slurm.conf says"),
    opt(
        "thread-spec",
        "threads",
        "threads of each node that the system keeps",
    )
    .env(
        &["SBATCH_THREAD_SPEC"],
        &["SLURM_THREAD_SPEC"],
        &["SALLOC_THREAD_SPEC"],
    )
    .partly("where AllowSpecResourcesUsage=YES; otherwise nodes keep what slurm.conf says"),
    flag("spread-job", "use as many nodes as possible").env(
        &["SBATCH_SPREAD_JOB"],
        &["SLURM_SPREAD_JOB"],
        &["SALLOC_SPREAD_JOB"],
    ),
    flag(
        "use-min-nodes",
        "of a range of node counts, prefer the least",
    )
    .env(
        &["SBATCH_USE_MIN_NODES"],
        &["SLURM_USE_MIN_NODES"],
        &["SALLOC_USE_MIN_NODES"],
    ),
    opt(
        "switches",
        "count[@time]",
        "most leaf switches, and how long to wait for so few",
    )
    .env(
        &["SBATCH_REQ_SWITCH"],
        &["SLURM_REQ_SWITCH"],
        &["SALLOC_REQ_SWITCH"],
    ),
    opt(
        "segment",
        "nodes",
        "nodes that must be in one block of the network",
    )
    .env(
        &["SBATCH_SEGMENT_SIZE"],
        &["SRUN_SEGMENT_SIZE"],
        &["SALLOC_SEGMENT_SIZE"],
    ),
    flag(
        "consolidate-segments",
        "put segments into the smallest group of blocks",
    ),
    flag("spread-segments", "put segments into different blocks"),
    flag("contiguous", "nodes next to each other").group(Group::Constraint),
    opt(
        "constraint",
        "list",
        "features that nodes must have: a&b, a|b, [a*2&b*1]",
    )
    .short('C')
    .group(Group::Constraint)
    .env(
        &["SBATCH_CONSTRAINT"],
        &["SLURM_CONSTRAINT"],
        &["SALLOC_CONSTRAINT"],
    ),
    opt(
        "prefer",
        "list",
        "features that nodes should have if possible",
    )
    .group(Group::Constraint)
    .env(&["SBATCH_PREFER"], &["SLURM_PREFER"], &["SALLOC_PREFER"]),
    opt("nodefile", "file", "file with the names of nodes to use")
        .short('F')
        .group(Group::Constraint),
    opt(
        "mem",
        "MB",
        "memory of each node; K, M, G, T may follow; 0 is all",
    )
    .group(Group::Constraint)
    .env(
        &["SBATCH_MEM_PER_NODE"],
        &["SLURM_MEM_PER_NODE"],
        &["SALLOC_MEM_PER_NODE"],
    ),
    opt("mem-bind", "type", "binding of tasks to memory")
        .group(Group::Affinity)
        .env(
            &["SBATCH_MEM_BIND"],
            &["SLURM_MEM_BIND"],
            &["SALLOC_MEM_BIND"],
        ),
    opt("mincpus", "n", "least CPUs of each node").group(Group::Constraint),
    opt("reservation", "names", "use nodes of this reservation")
        .group(Group::Constraint)
        .env(
            &["SBATCH_RESERVATION"],
            &["SLURM_RESERVATION"],
            &["SALLOC_RESERVATION"],
        ),
    opt("tmp", "MB", "temporary disk space of each node").group(Group::Constraint),
    opt("nodelist", "names", "nodes that must be in the allocation")
        .short('w')
        .group(Group::Constraint),
    opt("exclude", "names", "nodes that must not be")
        .short('x')
        .group(Group::Constraint),
    flag("no-allocate", "run without an allocation (administrators)")
        .short('Z')
        .on(R)
        .group(Group::Constraint)
        .refused("every step belongs to a job; give --jobid or let srun make a job"),
    opt(
        "exclusive",
        "user|mcs|topo",
        "no other jobs on the nodes; in srun's steps, the same as --exact",
    )
    .optional()
    .group(Group::Consumable)
    .env(
        &["SBATCH_EXCLUSIVE"],
        &["SLURM_EXCLUSIVE"],
        &["SALLOC_EXCLUSIVE"],
    ),
    opt("mem-per-cpu", "MB", "memory for each CPU of the allocation")
        .group(Group::Consumable)
        .env(
            &["SBATCH_MEM_PER_CPU"],
            &["SLURM_MEM_PER_CPU"],
            &["SALLOC_MEM_PER_CPU"],
        ),
    opt(
        "mem-update",
        "MB",
        "change the memory limit of a running step",
    )
    .on(R)
    .group(Group::Consumable)
    .refused("memory limits of steps cannot be changed; use --mem when the step starts"),
    opt("resv-ports", "count", "reserve network ports for the tasks")
        .optional()
        .group(Group::Consumable)
        .srun_env(&["SLURM_RESV_PORTS"])
        .refused("ports are not reserved here; current Open MPI does not need them"),
];
