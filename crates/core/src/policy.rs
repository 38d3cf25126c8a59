//! The rules of the cluster that decisions, indexes and the scheduler share: who may do what, limits, preemption,
//! priorities, licenses. They read the state; those of them that keep an index of it are called where it changes.

pub mod access;
mod licenses;
pub mod limits;
pub mod mcs;
mod preemption;
pub mod priority;
