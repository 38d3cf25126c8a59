//! What runs on a node: the agent (`noded`) that takes the controller's orders, the shim that forks and waits for
//! jobs and outlives the agent, and the step daemon (`stepd`) of each parallel step, which the shim starts.
//!
//! The binary calls [`run`] for the agent, [`shim_main`] when it is started under the name [`SHIM_NAME`], which
//! the agent does with its own executable, [`stepd_main`] under [`STEPD_NAME`], which the shim does, and
//! [`pmix_host_main`] under [`HOST_NAME`], which step daemons do.
#![warn(missing_docs)]

mod agent;
mod audit_session;
mod binding;
mod cross_memory;
mod descriptors;
mod emulate;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod info;
mod job_view;
mod layout;
mod numa;
mod options;
mod pattern;
mod pmix_place;
mod record;
mod role;
mod shim;
mod standing;
mod step_bounds;
mod step_variables;
mod stepd;
mod sys;

pub use agent::run;
pub use binding::topology::{Shape, SocketUnit};
pub use cross_memory::CrossMemory;
pub use emulate::{EmulateOptions, EmulatedNode, RunTime, emulate};
pub use options::AgentOptions;
pub use shim::{SHIM_NAME, ShimStop, shim_main, stop_shim};
pub use stepd::{HOST_NAME, STEPD_NAME, pmix_host_main, stepd_main};
pub use sys::pidfd;

use muster_core::time::Timestamp;

/// The clock.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
