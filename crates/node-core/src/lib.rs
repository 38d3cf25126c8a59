//! What the processes of a node decide, and the messages between them, without I/O: no sockets, files, clocks or threads.
//! `muster-node` executes it.
#![warn(missing_docs)]

pub mod layout;
pub mod messages;
mod prolog_epilog;
pub mod step_bounds;

pub use prolog_epilog::PrologEpilog;
