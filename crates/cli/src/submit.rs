//! sbatch, srun, salloc, scancel, scontrol: what they ask for.
