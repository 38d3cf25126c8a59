//! The life of jobs and nodes, by commands on a small cluster in memory.

mod accounts;
mod arrays;
mod dependencies;
mod ending;
mod nodes;
mod partitions;
mod random;
mod reservations;
mod running;
mod submission;
mod table;
mod verbs;
mod world;
