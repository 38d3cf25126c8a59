//! The connection of a call to the controller, and the configuration that leads to it.

#![allow(unsafe_code)]

use crate::abi::config::SlurmConf;
use crate::abi::members::OwnedText;
use crate::error::CallError;
use crate::memory;
use libc::{c_char, c_long};
use muster_cli::connect::{Client, unexpected};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody, Response};
use std::time::Duration;

/// Time for which a controller that restarts is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// `SLURM_VERSION_NUMBER` of the interface.
pub const VERSION: c_long = 0x16_05_08;

/// A connection to the controller.
///
/// # Errors
/// There is none.
pub fn connect() -> Result<Client, CallError> {
    Ok(Client::connect_patiently(PATIENCE)?)
}

/// Sends a command that changes jobs or the cluster.
///
/// # Errors
/// The controller cannot be reached, or refuses it, for one of the jobs at least.
pub fn change(command: UserCommand) -> Result<(), CallError> {
    match connect()?.command(command)? {
        Reply::Done { refused, .. } => match refused.into_iter().next() {
            None => Ok(()),
            Some((_, refusal)) => Err(refusal.into()),
        },
        other => Err(CallError::unexpected(&other)),
    }
}

/// Sends a request that is answered by nothing but that it is done.
///
/// # Errors
/// The controller cannot be reached, or refuses it.
pub fn order(body: RequestBody) -> Result<(), CallError> {
    match connect()?.call(body)? {
        Response::Done | Response::Stopping => Ok(()),
        Response::Reply(_) => Ok(()),
        other => Err(unexpected(&other).into()),
    }
}

/// A job's number.
pub fn job(id: u32) -> JobId {
    JobId(id.into())
}

/// A job's number as structures have it.
pub fn job_number(id: JobId) -> u32 {
    u32::try_from(id.0).unwrap_or(u32::MAX)
}

/// The configuration of programs that look at it without asking: nothing but the cluster's name is there.
#[unsafe(no_mangle)]
pub static mut slurm_conf: SlurmConf = {
    // SAFETY: members are numbers and pointers, or structures of these.
    unsafe { std::mem::zeroed() }
};

/// The other cluster to which requests go: none.
#[unsafe(no_mangle)]
pub static mut working_cluster_rec: *mut libc::c_void = std::ptr::null_mut();

/// Name under which programs write messages: none.
#[unsafe(no_mangle)]
pub static mut slurm_prog_name: *mut c_char = std::ptr::null_mut();

value_functions! {
    /// Version of the interface.
    fn slurm_api_version() -> c_long, else 0, {
        Ok(VERSION)
    }
}

status_functions! {
    /// Whether a controller answers.
    fn slurm_ping(controller: libc::c_int) {
        match connect()?.query(Query::Ping)? {
            Response::Pong(_) if controller <= 1 => Ok(()),
            _ => Err(CallError::new(crate::error::NO_CONNECTION, "there is no such controller")),
        }
    }
}

quiet_functions! {
    /// Begins: programs call it first. With a path, requests go to the cluster of that configuration.
    fn slurm_init(path: *const c_char) {
        if let Some(path) = memory::raw(path) {
            use std::os::unix::ffi::OsStrExt as _;
            // SAFETY: slurm.h has it called before anything else, when no other thread reads the environment.
            std::env::set_var("SLURM_CONF", std::ffi::OsStr::from_bytes(path));
        }
        let read = muster_conf::endpoint::read(&muster_conf::endpoint::conf_path());
        if let Ok(endpoint) = read {
            let name = OwnedText::of(&endpoint.cluster);
            let own = &raw mut slurm_conf;
            libc::free(std::ptr::replace(&raw mut (*own).cluster_name, name).0.cast());
        }
    }
    /// Ends: nothing is left open between calls.
    fn slurm_fini() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_header() {
        let header = include_str!("../../../packaging/slurm/slurm/slurm_version.h");
        assert!(header.contains(&format!("SLURM_VERSION_NUMBER 0x{VERSION:06x}")));
        assert_eq!(job_number(job(17)), 17);
    }
}
