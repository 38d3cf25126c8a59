//! The life of jobs and nodes, by commands on a small cluster in memory.

mod random;
mod world;
