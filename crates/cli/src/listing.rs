//! Shared parts of listing commands: squeue, sinfo, scontrol show, sacct and others. One table of fields per kind of
//! record feeds every format; views over the wire's records (`job`, `node`, `account`) hold the rules. Nothing here
//! changes the cluster.

pub(crate) mod account;
pub(crate) mod changes;
pub(crate) mod context;
pub(crate) mod document;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod format;
pub(crate) mod job;
pub(crate) mod job_document;
pub(crate) mod job_fields;
pub(crate) mod job_names;
pub(crate) mod license_document;
pub(crate) mod node;
pub(crate) mod node_document;
pub(crate) mod node_fields;
pub(crate) mod own_step;
pub(crate) mod query;
pub(crate) mod reservation;
pub(crate) mod states;
pub(crate) mod step_document;
pub(crate) mod step_fields;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod time_input;

use crate::connect::ConnectError;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of a command, after a failure was reported.
pub(crate) fn report(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Why a command ends with a status other than 0. The text goes to standard error as it is.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// A failure with exit status 1.
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure {
            text: text.into(),
            code: 1,
        }
    }

    /// Exit status 1 after something that was said already.
    pub(crate) fn silent() -> Failure {
        Failure::new("")
    }

    /// Says why, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if !self.text.is_empty() {
            complain(&self.text);
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Prefixes a connection's error with the call that Slurm names in it, which clients match.
pub(crate) fn failed_call(call: &str) -> impl Fn(ConnectError) -> Failure {
    move |error| match error {
        ConnectError::Config(_) => Failure::new(format!("{call}: {error}")),
        ConnectError::Refused(refusal) => {
            Failure::new(format!("{call} error: {}", refusal.code.text()))
        }
        other => Failure::new(format!("{call} error: {other}")),
    }
}

/// A line on standard error; a closed standard error is no reason to fail.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output at once. A reader that went away ends the command quietly, as SIGPIPE would.
pub(crate) fn print(text: &str) {
    if crate::say::keep_output(text) {
        return;
    }
    let mut out = io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(141);
    }
}
