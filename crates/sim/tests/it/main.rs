//! The simulated cluster over many seeds, and what jobs get in it.

mod seeds;
mod selection;
