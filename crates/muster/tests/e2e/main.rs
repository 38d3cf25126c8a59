//! Whole clusters of real processes, each test its own, driven through the commands that users have.

#![allow(clippy::unwrap_used)]

mod batch;
mod binding;
mod cluster;
mod containment;
mod control;
mod emulate;
mod faults;
mod forecast;
mod governance;
mod gpus;
mod het;
mod hostile;
mod imb;
mod interactive;
mod mpi;
mod mpi_default;
mod mpich;
mod network;
mod node_fitness;
mod openmpi5;
mod packages;
mod placement;
mod power;
mod preempt;
mod priorities;
mod refusals;
mod reservations;
mod rights;
mod running;
mod site;
mod slurm_user;
mod steps;
mod tree;
mod trust;
