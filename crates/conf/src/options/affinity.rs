//! Rows: sockets, cores and threads, and binding to them.

use super::row::{Commands, Group, OptionRow, opt};

const R: Commands = Commands::R;

pub(super) const ROWS: &[OptionRow] = &[
    opt(
        "sockets-per-node",
        "S",
        "nodes with at least so many sockets",
    )
    .group(Group::Affinity),
    opt(
        "cores-per-socket",
        "C",
        "nodes with at least so many cores in a socket",
    )
    .group(Group::Affinity),
    opt(
        "threads-per-core",
        "T",
        "threads of each core that are used",
    )
    .group(Group::Affinity)
    .env(
        &["SBATCH_THREADS_PER_CORE"],
        &["SLURM_THREADS_PER_CORE"],
        &["SALLOC_THREADS_PER_CORE"],
    ),
    opt(
        "extra-node-info",
        "S[:C[:T]]",
        "the three in one; * stands for any",
    )
    .short('B')
    .group(Group::Affinity),
    opt("ntasks-per-core", "n", "most tasks on each core")
        .group(Group::Affinity)
        .srun_env(&["SLURM_NTASKS_PER_CORE"]),
    opt("ntasks-per-socket", "n", "most tasks on each socket")
        .group(Group::Affinity)
        .srun_env(&["SLURM_NTASKS_PER_SOCKET"]),
    opt(
        "hint",
        "type",
        "compute_bound, memory_bound, multithread or nomultithread",
    )
    .group(Group::Affinity)
    .env(
        &["SLURM_HINT", "SBATCH_HINT"],
        &["SLURM_HINT"],
        &["SLURM_HINT", "SALLOC_HINT"],
    ),
    opt(
        "cpu-bind",
        "type",
        "CPUs that each task may use: none, cores, threads, rank, map_cpu:list, ...",
    )
    .on(R)
    .group(Group::Affinity)
    .srun_env(&["SLURM_CPU_BIND"]),
    opt(
        "accel-bind",
        "options",
        "g: each task sees the GPUs next to its CPUs",
    )
    .on(R)
    .group(Group::Affinity),
];
