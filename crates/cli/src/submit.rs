//! What sbatch, srun and salloc share, and other commands of it: the command line, what a job inherits, an allocation that is held.
//! What options mean is in `muster_conf::options`.

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
