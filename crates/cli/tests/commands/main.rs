//! sbatch, srun, salloc, scancel and scontrol as users see them: what they print, how they exit and what they ask
//! for, against stand-ins for controller and agents. The texts are Slurm 22.05's where it has them.

// What goes wrong in a test is to be seen.
#![allow(clippy::unwrap_used)]

mod scontrol;
mod srun;
mod stage;
mod submission;
