//! `POST job/allocate`: an allocation that no connection holds, as `salloc --no-shell` makes one. It waits in the queue, and ends with
//! its time limit or when it is cancelled; steps are started in it by srun. It has no script, so nothing of the body becomes a process.

use super::call::{Call, CallFailure, Outcome};
use super::job_keys::member;
use super::submission::{self, Body, object};
use crate::connect::unexpected;
use muster_model::command::{Reply, UserCommand};
use muster_model::spec::{JobKind, JobSpec};
use muster_proto::client::Response;

/// Keys that are for processes of a batch script, which there is none of.
const OF_SCRIPTS: [&str; 6] = [
    "argv",
    "environment",
    "rlimits",
    "standard_error",
    "standard_input",
    "standard_output",
];

/// `POST job/allocate`.
pub(super) fn allocate(call: &mut Call<'_>) -> Outcome {
    let body = std::mem::take(&mut call.body);
    let body = object(&body, "the body")?;
    let components = components(body)?;
    if member(body, "script").is_some_and(|script| !script.is_null()) {
        call.warn("script", "an allocation runs no script");
    }
    let mut specs = Vec::with_capacity(components.len());
    for component in components {
        specs.push(spec(call, component)?);
    }
    let blobs = Vec::new();
    let test_only = false;
    let command = match specs.len() {
        1 => UserCommand::Submit {
            spec: Box::new(specs.remove(0)),
            blobs,
            test_only,
        },
        _ => UserCommand::SubmitHet {
            specs,
            blobs,
            test_only,
        },
    };
    match call.ask(|client| client.command(command))? {
        Reply::Submitted {
            id,
            warnings,
            lines,
            ..
        } => {
            for warning in lines.into_iter().chain(warnings) {
                call.warn("job", warning);
            }
            Ok(call.document(&call.context(), |w| {
                w.raw("job_id", id.0);
                w.text("job_submit_user_msg", "");
            }))
        }
        other => {
            let error = unexpected(&Response::Reply(Box::new(other)));
            Err(call.failure(&error))
        }
    }
}

/// The allocation, or the components of a heterogeneous one, the leader first.
fn components(body: &Body) -> Result<Vec<&Body>, CallFailure> {
    if let Some(job) = member(body, "job").filter(|job| !job.is_null()) {
        return Ok(vec![object(job, "job")?]);
    }
    match member(body, "hetjob").and_then(|list| list.as_array()) {
        Some(jobs) if !jobs.is_empty() => jobs
            .iter()
            .map(|job| object(job, "a component of hetjob"))
            .collect(),
        _ => Err(CallFailure::malformed(
            "job",
            "the body has neither job nor hetjob, which say what the allocation is to be",
        )),
    }
}

fn spec(call: &mut Call<'_>, body: &Body) -> Result<JobSpec, CallFailure> {
    if member(body, "array").is_some_and(|array| !array.is_null() && array != "") {
        let why = "an allocation is one job: arrays are of batch jobs";
        return Err(CallFailure::malformed("array", why));
    }
    for key in OF_SCRIPTS {
        if member(body, key).is_some_and(|value| !value.is_null()) {
            call.warn(key, format!("{key} is for scripts, and has no effect here"));
        }
    }
    let work_dir = match submission::given_work_dir(body)? {
        Some(path) => path,
        // Steps have the directory of the srun that starts them.
        None => "/".to_owned(),
    };
    let spec = submission::spec(call, body, work_dir)?;
    let name = match spec.name.as_str() {
        "" => "openapi",
        name => name,
    };
    Ok(JobSpec {
        name: name.to_owned(),
        kind: JobKind::Allocation,
        // Settings for scripts alone were reported above to have no effect.
        stdio: JobSpec::default().stdio,
        requeue: JobSpec::default().requeue,
        ..spec
    })
}
