//! What libraries ask of the commands: requests made of command lines, with what would have been printed as texts, and records of
//! jobs. Unlike a command, the process around a library has threads, and changes its environment.

use crate::connect::{Client, ConnectError};
use crate::listing::query;
use crate::{grid_engine, process, say, sbatch};
use muster_model::command::UserCommand;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_proto::acct::{AcctJob, AcctQuery};
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// What qsub with these arguments asks the controller for. Nothing is read from standard input: the arguments name a program.
///
/// # Errors
/// What qsub would have printed.
pub fn qsub_submission(args: &[String]) -> Result<UserCommand, String> {
    captured(|| grid_engine::qsub::request(args))
}

/// What sbatch with these arguments asks the controller for.
///
/// # Errors
/// What sbatch would have printed.
pub fn sbatch_submission(args: &[String]) -> Result<UserCommand, String> {
    captured(|| sbatch::request(args))
}

fn captured(make: impl FnOnce() -> Result<UserCommand, ExitCode>) -> Result<UserCommand, String> {
    process::copy_variables();
    let (made, text) = say::captured(make);
    made.map_err(|_| text.trim_end().to_owned())
}

/// Records of jobs, arrays and tasks by their numbers, as far as the controller still has them.
///
/// # Errors
/// The controller cannot be asked.
pub fn jobs(client: &mut Client, ids: Vec<JobId>) -> Result<Vec<Job>, ConnectError> {
    client.query_jobs(JobFilter {
        ids,
        ..JobFilter::default()
    })
}

/// What accounting has of a job, or of an array's tasks.
///
/// # Errors
/// The controller cannot be asked.
pub fn accounting(client: &mut Client, id: JobId) -> Result<Vec<AcctJob>, ConnectError> {
    let query = AcctQuery {
        jobs: vec![(id, None)],
        ..AcctQuery::default()
    };
    query::accounting(client, query).map(|(jobs, ..)| jobs)
}
