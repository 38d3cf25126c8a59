//! qresub: submits copies of jobs.

use super::arguments::{self, OperandPosition};
use super::{environment, fail, missing, qdel, selection, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::query;
use crate::options::{HelpForm, Spec, flag, opt};
use crate::say;
use crate::submit::{capture, line};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::BlobId;
use muster_model::job::Job;
use muster_proto::client::JobFilter;
use muster_trust::host::short_name;
use std::process::ExitCode;

/// qresub.
pub(crate) static SPEC: Spec = Spec {
    name: "qresub",
    about: "Submits copies of jobs.",
    operands: "JOB[,...]",
    form: HelpForm::GridEngine,
    options: &[
        opt("h", "u|o|s|n", "submit the copies held").partly("whatever the kind, by the user"),
        flag("help", "print this help"),
    ],
    variables: &[],
    notes: "A copy has the options and the script of the job. Its environment is made anew, as for qsub without -v; a hold and \
            jobs to wait for are not copied.\n",
};

/// Grid Engine's exit status where there is no such job.
const NO_JOB: u8 = 4;

/// Runs qresub.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let parsed = match arguments::parse(&SPEC, args, OperandPosition::Mixed) {
        Ok(parsed) => parsed,
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") {
        say::stdout(&SPEC.help());
        return ExitCode::SUCCESS;
    }
    let hold = parsed.last("h").is_some_and(|kinds| kinds != "n");
    let named = match qdel::words(&parsed, "qresub") {
        Ok(named) if !named.is_empty() => named,
        Ok(_) => return fail("qresub: no job is named", 1),
        Err(code) => return code,
    };
    let mut client = match Client::connect_patiently(line::PATIENCE) {
        Ok(client) => client,
        Err(error) => return unreachable(&error),
    };
    let own = vec![nix::unistd::getuid().as_raw()];
    let jobs = match client.query_jobs(JobFilter {
        uids: own,
        ..JobFilter::default()
    }) {
        Ok(jobs) => jobs,
        Err(error) => return unreachable(&error),
    };
    let mut status = ExitCode::SUCCESS;
    for one in &named {
        let mut found: Vec<&Job> = jobs.iter().filter(|job| one.is(job)).collect();
        found.dedup_by_key(|job| selection::number(job));
        if found.is_empty() {
            status = missing(&format!("job \"{}\" does not exist", one.text), NO_JOB);
        }
        for job in found {
            match copy(&mut client, job, hold) {
                Ok(id) => say::stdout(&format!(
                    "Your job {id} (\"{}\") has been submitted\n",
                    job.spec.name
                )),
                Err(error) => status = super::unable_to_run(&error.to_string()),
            }
        }
    }
    status
}

fn copy(client: &mut Client, job: &Job, hold: bool) -> Result<String, ConnectError> {
    let number = selection::number(job);
    let script = query::script(client, number)?;
    let mut spec = (*job.spec).clone();
    spec.hold = hold;
    spec.dependency = muster_model::spec::Dependency::default();
    spec.submit_line = format!("qresub {number}");
    spec.submit_host = short_name();
    let request = super::request::Request::default();
    let context = capture::context(environment::of_job(&request, &spec.name), None)
        .map_err(|why| ConnectError::Broken(std::io::Error::other(why)))?;
    let (first, second) = (BlobId([1; 32]), BlobId([2; 32]));
    (spec.script, spec.context) = (Some(first), Some(second));
    let blobs = [(first, script), (second, capture::encoded(&context))];
    let submit = UserCommand::Submit {
        spec: Box::new(spec),
        blobs: blobs.map(|(id, bytes)| (id, bytes.into())).into(),
        test_only: false,
    };
    match client.command(submit)? {
        Reply::Submitted { id, .. } => Ok(id.to_string()),
        other => Err(crate::connect::unexpected(
            &muster_proto::client::Response::Reply(Box::new(other)),
        )),
    }
}
