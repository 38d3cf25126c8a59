//! `-sync y`: waiting for a job's end, and the lines about it.

use super::selection;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::query;
use crate::say;
use crate::submit::line;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, ExitStatus, Job, JobState};
use muster_proto::acct::{AcctJob, AcctQuery};
use muster_proto::client::{JobFilter, RequestBody, Response};
use std::process::ExitCode;

/// Waits until a job has ended, all of its tasks if it is an array. Gives the first exit status that is not 0. Ends
/// without an error are left out with `-terse`, others are on standard error, as in Grid Engine.
pub(super) fn wait(mut client: Client, id: JobId, terse: bool) -> ExitCode {
    loop {
        match client.call(RequestBody::WaitEnded(id)) {
            Ok(Response::JobEnded { .. }) => break,
            Ok(other) => return super::unreachable(&unexpected(&other)),
            Err(ConnectError::Broken(_)) => match Client::connect_patiently(line::PATIENCE * 30) {
                Ok(again) => client = again,
                Err(error) => return super::unreachable(&error),
            },
            Err(error) => return super::unreachable(&error),
        }
    }
    let query = AcctQuery {
        jobs: vec![(id, None)],
        ..AcctQuery::default()
    };
    let answer = Client::connect_patiently(line::PATIENCE)
        .and_then(|mut client| query::accounting(&mut client, query));
    let said = match answer {
        Ok((mut jobs, ..)) => {
            jobs.sort_by_key(|job| job.array.map(|task| task.index));
            jobs.iter().map(end).collect()
        }
        Err(ConnectError::Refused(_)) => match without_accounting(id) {
            Ok(said) => said,
            Err(error) => return super::unreachable(&error),
        },
        Err(error) => return super::unreachable(&error),
    };
    let mut status = 0;
    for (text, own) in said {
        match own {
            0 if terse => {}
            0 => say::stdout(&format!("{text}\n")),
            _ => say::stderr(&format!("{text}\n")),
        }
        if status == 0 {
            status = own;
        }
    }
    ExitCode::from(status)
}

/// The ends of a job of a cluster without accounting: the controller knows a job for a while after its end.
fn without_accounting(id: JobId) -> Result<Vec<(String, u8)>, ConnectError> {
    let filter = JobFilter {
        ids: vec![id],
        ..JobFilter::default()
    };
    let mut jobs = Client::connect_patiently(line::PATIENCE)?.query_jobs(filter)?;
    jobs.sort_by_key(selection::task);
    let end = |job: &Job| {
        let number = selection::number(job);
        let id = match (selection::task(job), &job.array) {
            (Some(task), _) => format!("{number}.{task}"),
            (None, ArrayRole::Pending { indices }) => {
                format!("{number}.{}", selection::ranges(indices.iter()))
            }
            (None, _) => number.to_string(),
        };
        said(&id, job.state, job.exit)
    };
    Ok(jobs.iter().map(end).collect())
}

fn end(job: &AcctJob) -> (String, u8) {
    let id = match (job.array, &job.array_pending) {
        (Some(task), _) => format!("{}.{}", task.array, task.index),
        (None, Some(pending)) => format!("{}.{pending}", job.id),
        (None, None) => job.id.to_string(),
    };
    said(&id, job.state, job.exit)
}

/// The line about an end, and its part in the exit status.
fn said(id: &str, state: JobState, exit: ExitStatus) -> (String, u8) {
    let code = u8::try_from(exit.code & 0xff).unwrap_or(1);
    match (state, exit.signal) {
        (JobState::Cancelled, _) => (format!("Job {id} was deleted."), 1),
        (JobState::Timeout, _) => (format!("Job {id} exited because of signal SIGKILL"), 1),
        (JobState::NodeFail | JobState::BootFail, _) => {
            (format!("Job {id} was lost with its host."), 1)
        }
        (_, 0) => (format!("Job {id} exited with exit code {code}."), code),
        (_, signal) => (
            format!("Job {id} exited because of signal {}", name(signal)),
            1,
        ),
    }
}

/// `SIGKILL`.
fn name(signal: u32) -> String {
    let known = i32::try_from(signal)
        .ok()
        .and_then(|n| nix::sys::signal::Signal::try_from(n).ok());
    known.map_or_else(|| signal.to_string(), |signal| signal.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let exit = |code, signal| ExitStatus { code, signal };
        for (state, exit, text, status) in [
            (
                JobState::Completed,
                exit(0, 0),
                "Job 38 exited with exit code 0.",
                0,
            ),
            (
                JobState::Failed,
                exit(3, 0),
                "Job 38 exited with exit code 3.",
                3,
            ),
            (
                JobState::Failed,
                exit(0, 9),
                "Job 38 exited because of signal SIGKILL",
                1,
            ),
            (JobState::Cancelled, exit(0, 15), "Job 38 was deleted.", 1),
        ] {
            assert_eq!(said("38", state, exit), (text.to_owned(), status));
        }
    }
}
