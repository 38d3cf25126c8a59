//! The process that becomes a batch script. It starts as root, with an order and nothing else of the launcher's, becomes the user,
//! opens the user's files, for which the user may let it wait, and executes the script.
//!
//! Each job needs such a process, so its start has to be cheap. A program with a C library takes half a millisecond before its
//! `main`, Muster's own twice as much. Therefore this crate uses neither a library nor a heap, and its build script compiles it
//! once more as a small static program ([`PROGRAM`]). If that program is missing or cannot be executed, Muster's own program
//! calls [`main`]. docs/decisions/0046-script-start-program.md has the reasons.
//!
//! It does not parse anything that a user wrote, and it does not read the order of another version.
#![no_std]
#![cfg_attr(freestanding, no_main)]
// The program has no use for what only the launcher calls.
#![cfg_attr(freestanding, allow(dead_code, unused_imports))]
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(freestanding))]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bare;
#[cfg(freestanding)]
mod entry;
mod errno;
pub mod identity;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod kernel;
mod line;
pub mod oom;
mod order;
mod process;
pub mod tmp_dir;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use libc as kernel;

#[cfg(not(freestanding))]
pub use order::{ExecOrder, ResourceLimit, Strings};
pub use process::{FaultOwner, ORDER_FD, SLOT, SLOTS_FD, main};

/// The small program: a file to be executed, or nothing where none could be made.
#[cfg(not(freestanding))]
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/program"));
