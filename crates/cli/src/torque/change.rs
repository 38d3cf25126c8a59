//! Shared parts of qdel, qhold, qrls, qalter and qrerun: a request for each job that is named, and messages about
//! refusals.

use super::{refusal_text, text_of};
use crate::connect::{Client, ConnectError};
use crate::say;
use crate::submit::line;
use muster_model::command::{JobTarget, Reply, UserCommand};
use muster_model::refusal::Refusal;
use std::process::ExitCode;

/// Why a job was not changed.
pub(super) enum ChangeFailure {
    /// The controller said no.
    By(Refusal),
    /// The controller could not be asked.
    Not(ConnectError),
}

/// Connects to the controller.
///
/// # Errors
/// The exit status, after why was printed.
pub(super) fn connect(name: &str) -> Result<Client, ExitCode> {
    Client::connect_patiently(line::PATIENCE).map_err(|e| super::unreachable(name, &e))
}

/// Sends a request. Of several jobs that it means, one that is refused is enough.
pub(super) fn send(client: &mut Client, command: UserCommand) -> Result<(), ChangeFailure> {
    match client.command(command) {
        Ok(Reply::Done { refused, .. }) => match refused.into_iter().next() {
            Some((_, refusal)) => Err(ChangeFailure::By(refusal)),
            None => Ok(()),
        },
        Ok(_) => Ok(()),
        Err(ConnectError::Refused(refusal)) => Err(ChangeFailure::By(refusal)),
        Err(error) => Err(ChangeFailure::Not(error)),
    }
}

/// Sends a request for each job, and says which were refused.
pub(super) fn each(
    name: &'static str,
    what: &str,
    jobs: Vec<(String, JobTarget)>,
    command: impl Fn(JobTarget) -> UserCommand,
) -> Result<ExitCode, ExitCode> {
    let mut client = connect(name)?;
    let mut status = ExitCode::SUCCESS;
    for (word, target) in jobs {
        if let Err(refused) = send(&mut client, command(target)) {
            complain(name, what, &word, &refused);
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Says why a job was not changed.
pub(super) fn complain(name: &str, what: &str, word: &str, refused: &ChangeFailure) {
    let why = match refused {
        ChangeFailure::By(refusal) => refusal_text(refusal),
        ChangeFailure::Not(error) => text_of(error),
    };
    say::stderr(&format!("{name}: {what} on job id {word}: {why}\n"));
}
