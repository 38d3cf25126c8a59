//! Tests of the scheduler through its public interface, on a state that changes only by events.

mod cost;
mod drawn;
mod properties;
mod shapes;
mod world;
