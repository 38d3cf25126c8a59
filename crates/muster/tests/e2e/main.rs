//! Whole clusters of real processes, each test its own, driven through the commands that users have; and what the program
//! makes of its tables. One program of tests for all: each that is linked has the whole product in it.

#![allow(clippy::unwrap_used)]

mod batch;
mod binding;
mod cgroups;
mod cluster;
mod containers;
mod containment;
mod control;
mod corpus;
mod emulate;
mod faults;
mod forecast;
mod generated;
mod given_conf;
mod governance;
mod gpus;
mod grid_engine;
mod het;
mod hostile;
mod hosts;
mod imb;
mod interactive;
mod logs;
mod mpi;
mod mpi_default;
mod mpich;
mod network;
mod node_fitness;
mod openmpi5;
mod other_hosts;
mod packages;
mod placement;
mod power;
mod preempt;
mod priorities;
mod refusals;
mod reservations;
mod rest;
mod rights;
mod running;
mod sattach;
mod sbcast;
mod scrontab;
mod shutdown;
mod site;
mod slurm_user;
mod slurmdbd;
mod start;
mod steps;
mod tree;
mod trust;
