//! Parts that sbatch, srun and salloc share, and other commands of them: the command line, the inherited environment of
//! a job, a held allocation. `muster_conf::options` interprets the options.

pub(crate) mod capture;
pub(crate) mod components;
pub(crate) mod filters;
pub(crate) mod holder;
pub(crate) mod incoming;
pub(crate) mod line;
mod login;
mod reason;
pub(crate) mod signals;
pub(crate) mod verbose;
