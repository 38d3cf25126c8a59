//! The life of jobs and nodes, by commands on a small cluster in memory.

mod accounts;
mod accrual;
mod arrays;
mod dependencies;
mod ending;
mod fixtures;
mod het;
mod hostile;
mod job_env;
mod kept_events;
mod launching;
mod mutation;
mod nodes;
mod partitions;
mod power;
mod random;
mod reboots;
mod reservations;
mod resizing;
mod rights;
mod running;
mod submission;
mod table;
mod turns;
mod verbs;
mod world;
