//! Jobs of libraries that have a value for each option, a script and an environment: nothing of this process goes into the job.

use crate::connect::{Client, ConnectError, unexpected};
use crate::zone::{self, LocalZone};
use muster_conf::options::job::{self, BuildError, SubmitEnvironment};
use muster_conf::options::{ChosenOptions, OptionCommand, Source, find};
use muster_model::command::UserCommand;
use muster_model::environment::Environment;
use muster_model::ids::{BlobId, JobId};
use muster_model::refusal::Refusal;
use muster_model::spec::{ExecContext, JobKind};
use muster_proto::client::{AllocationInfo, Query, Response};
use muster_trust::host::short_name;

/// An option of sbatch by its long name; one without a value is a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// The name.
    pub long: &'static str,
    /// The value.
    pub value: Option<String>,
}

/// A job that is asked for.
#[derive(Clone, Debug, Default)]
pub struct JobRequest {
    /// Options of sbatch.
    pub options: Vec<GivenOption>,
    /// The batch script; an allocation without one.
    pub script: Option<Vec<u8>>,
    /// Arguments of the script, or the program that holds the allocation.
    pub argv: Vec<String>,
    /// Variables of the job, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Directory that it runs in.
    pub work_dir: String,
    /// File mode creation mask.
    pub umask: u32,
    /// The command line that accounting shows.
    pub submit_line: String,
    /// Host from which it is submitted; this one if it is empty.
    pub submit_host: String,
    /// Only says when it would start.
    pub test_only: bool,
}

/// Why a request makes no job.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JobRequestError {
    /// An option is malformed or not there.
    #[error("{0}")]
    Option(String),
    /// The cluster cannot do it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The request to the controller.
///
/// # Errors
/// The first option that is malformed or refused.
pub fn job_request(asked: JobRequest) -> Result<UserCommand, JobRequestError> {
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    for GivenOption { long, value } in asked.options {
        let unknown = || JobRequestError::Option(format!("there is no option --{long}"));
        let row = find(OptionCommand::Sbatch, long).ok_or_else(unknown)?;
        chosen.give(row, value, Source::CommandLine);
    }
    let zone = LocalZone::default();
    let ambient = SubmitEnvironment {
        now: zone::now,
        zone: &zone,
    };
    let built = job::build(&chosen, &ambient).map_err(|error| match error {
        BuildError::Option(error) => JobRequestError::Option(error.lines.join("; ")),
        BuildError::Refused(refusal) => refusal.into(),
    })?;
    let mut spec = built.spec;
    spec.kind = match asked.script {
        Some(_) => JobKind::Batch,
        None => JobKind::Allocation,
    };
    spec.argv = asked.argv;
    spec.work_dir = asked.work_dir;
    spec.submit_line = asked.submit_line;
    spec.submit_host = match asked.submit_host.is_empty() {
        true => short_name(),
        false => asked.submit_host,
    };
    let mut blobs = Vec::new();
    if let Some(script) = asked.script {
        let mut environment = Environment::default();
        for pair in &asked.environment {
            environment.push(&[pair.as_slice()]);
        }
        environment.set(b"SLURM_SUBMIT_DIR", spec.work_dir.as_bytes());
        environment.set(b"SLURM_SUBMIT_HOST", spec.submit_host.as_bytes());
        let context = ExecContext {
            environment,
            umask: asked.umask,
            soft_limits: Vec::new(),
        };
        // Numbers will do: the controller gives blobs their ids by content.
        let (script_id, context_id) = (BlobId([1; 32]), BlobId([2; 32]));
        (spec.script, spec.context) = (Some(script_id), Some(context_id));
        blobs.push((script_id, script.into()));
        blobs.push((context_id, context.encoded().into()));
    }
    Ok(UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: asked.test_only,
    })
}

/// Nodes of an allocation, and where their agents are.
///
/// # Errors
/// The controller cannot be asked, or the job has no allocation.
pub fn allocation_info(client: &mut Client, job: JobId) -> Result<AllocationInfo, ConnectError> {
    match client.query(Query::Allocation(job))? {
        Response::JobStarted(info) => Ok(*info),
        other => Err(unexpected(&other)),
    }
}
