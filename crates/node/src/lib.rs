//! The processes of a node: the supervisor, which is slurmd's own process; the agent, which communicates with the
//! controller and with users and runs without privileges; the launcher, which starts jobs, waits for them, and
//! outlives both; and the step daemon (`stepd`) of each parallel step, which the launcher starts.
//!
//! The binary calls [`run`] for the supervisor. The other processes are started by executing the same file under
//! another name: [`agent_main`] under [`AGENT_NAME`], [`launcher_main`] under [`LAUNCHER_NAME`], [`stepd_main`] under
//! [`STEPD_NAME`], [`pmix_host_main`] under [`HOST_NAME`], [`relay_main`] under [`RELAY_NAME`], [`credential_main`]
//! under [`CREDENTIAL_NAME`], and [`sack_main`] under [`SACK_NAME`].
#![warn(missing_docs)]

mod agent;
mod audit_session;
mod cgroup;
mod credential;
mod cross_memory;
mod descriptor_limit;
mod descriptors;
mod emulate;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod info;
mod job_files;
mod launcher;
#[doc(hidden)]
pub mod liar;
mod messages;
mod numa;
mod one_way_link;
mod options;
mod os_error;
mod processes;
mod reaping;
mod relay;
mod remote;
mod removal;
mod role;
mod root_files;
mod sack;
mod shared_queue;
mod step_links;
mod step_result;
mod stepd;
mod stepd_log;
mod supervisor;
mod sys;
mod syscall_filter;
mod topology;
mod tree_removal;
mod user_dir;

pub use agent::agent_main;
pub use cgroup::{ControllerUse, uses as control_group_uses};
pub use credential::credential_main;
pub use cross_memory::CrossMemory;
pub use emulate::{EmulateOptions, EmulatedNode, RunTime, emulate};
pub use failure::end_on_panic;
pub use launcher::{LauncherStop, launcher_main, pin_controller, stop_launcher};
pub use messages::agent_order::AgentLog;
pub use options::{AgentOptions, NetworkOptions};
pub use relay::relay_main;
pub use role::{
    AGENT_NAME, CREDENTIAL_NAME, HOST_NAME, LAUNCHER_NAME, RELAY_NAME, SACK_NAME, STEPD_NAME,
};
pub use root_files::{only_root_leads_to, only_user_leads_to, open_log, open_own};
pub use sack::{sack_main, serve as serve_tokens};
pub use stepd::{pmix_host_main, stepd_main};
pub use supervisor::{FETCH_LATER, check_account, make_spool, run};
pub use sys::pidfd;
pub use topology::{MachineLayout, SocketUnit};

use muster_model::time::Timestamp;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The name of the node with this spool directory that no other on the machine has.
pub(crate) fn own_name(spool: &Path) -> io::Result<String> {
    let of = std::fs::metadata(spool)?;
    let name = spool.file_name().and_then(|n| n.to_str()).unwrap_or("node");
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
    let name: String = name.chars().filter(is_plain).take(64).collect();
    Ok(format!("{name}.{:x}.{:x}", of.dev(), of.ino()))
}

/// The clock.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
