//! Rows: GPUs and resources counted by them.

use super::row::{Group, OptionRow, opt};

pub(super) const ROWS: &[OptionRow] = &[
    opt(
        "gpus",
        "n",
        "GPUs of the whole job; TYPE:n for those of a type",
    )
    .short('G')
    .group(Group::Gpu)
    .env(&["SBATCH_GPUS"], &["SLURM_GPUS"], &["SALLOC_GPUS"]),
    opt("gpus-per-node", "[type:]n", "GPUs of each node")
        .group(Group::Gpu)
        .env(
            &["SBATCH_GPUS_PER_NODE"],
            &["SLURM_GPUS_PER_NODE"],
            &["SALLOC_GPUS_PER_NODE"],
        ),
    opt(
        "gpus-per-socket",
        "[type:]n",
        "GPUs of each socket; needs --sockets-per-node",
    )
    .group(Group::Gpu),
    opt("gpus-per-task", "[type:]n", "GPUs of each task")
        .group(Group::Gpu)
        .env(
            &["SBATCH_GPUS_PER_TASK"],
            &["SLURM_GPUS_PER_TASK"],
            &["SALLOC_GPUS_PER_TASK"],
        ),
    opt("cpus-per-gpu", "n", "CPUs for each GPU")
        .group(Group::Gpu)
        .env(
            &["SBATCH_CPUS_PER_GPU"],
            &["SLURM_CPUS_PER_GPU"],
            &["SALLOC_CPUS_PER_GPU"],
        ),
    opt("mem-per-gpu", "MB", "memory for each GPU")
        .group(Group::Gpu)
        .env(
            &["SBATCH_MEM_PER_GPU"],
            &["SLURM_MEM_PER_GPU"],
            &["SALLOC_MEM_PER_GPU"],
        ),
    opt("ntasks-per-gpu", "n", "tasks for each GPU")
        .group(Group::Gpu)
        .srun_env(&["SLURM_NTASKS_PER_GPU"]),
    opt(
        "ntasks-per-tres",
        "n",
        "old name of --ntasks-per-gpu; one of them only",
    )
    .group(Group::Gpu)
    .srun_env(&["SLURM_NTASKS_PER_TRES"]),
    opt(
        "gpu-bind",
        "type",
        "GPUs that each task may use: closest, single:n, per_task:n, map_gpu:list, ...",
    )
    .group(Group::Gpu)
    .env(
        &["SBATCH_GPU_BIND"],
        &["SLURM_GPU_BIND"],
        &["SALLOC_GPU_BIND"],
    ),
    opt("gpu-freq", "value", "GPU frequency")
        .group(Group::Gpu)
        .env(
            &["SBATCH_GPU_FREQ"],
            &["SLURM_GPU_FREQ"],
            &["SALLOC_GPU_FREQ"],
        )
        .warns("GPU frequencies are left as they are"),
    opt(
        "tres-per-task",
        "list",
        "resources of each task: cpu=n, gres/gpu[:type]=n",
    )
    .group(Group::Gpu)
    .env(
        &["SBATCH_TRES_PER_TASK"],
        &["SLURM_TRES_PER_TASK"],
        &["SALLOC_TRES_PER_TASK"],
    ),
    opt(
        "tres-bind",
        "list",
        "devices that each task may use: gres/gpu:type",
    )
    .group(Group::Gpu)
    .env(
        &["SBATCH_TRES_BIND"],
        &["SLURM_TRES_BIND"],
        &["SALLOC_TRES_BIND"],
    ),
];
