//! `sacct -B` and `--env-vars`: what jobs were submitted with. Accounting has what `AccountingStoreFlags` names; of jobs that the
//! controller still knows it has the script as well.

use super::failed;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::{Failure, print, query};
use muster_model::ids::JobId;
use muster_model::spec::ExecContext;
use muster_proto::acct::{AcctJob, JobTextKind, JobTextQuery};
use muster_proto::client::{Query, Response};

const RULE: usize = 80;

/// Prints the scripts of jobs.
pub(super) fn scripts(client: &mut Client, jobs: &[AcctJob]) -> Result<(), Failure> {
    for job in jobs {
        heading("Batch Script for", job.id, "");
        let kept = match job.batch {
            true => ask(client, job.id, JobTextKind::Script)?,
            false => None,
        };
        let script = match (job.batch, kept) {
            (true, None) => match query::script(client, job.id) {
                Ok(script) => Some(script),
                Err(ConnectError::Refused(_)) => None,
                Err(e) => return Err(failed(e)),
            },
            (_, kept) => kept,
        };
        match script {
            Some(script) => {
                print(&String::from_utf8_lossy(&script));
                print("\n");
            }
            None => print("NONE\n"),
        }
    }
    Ok(())
}

/// Prints the environments of jobs.
pub(super) fn environments(client: &mut Client, jobs: &[AcctJob]) -> Result<(), Failure> {
    for job in jobs {
        heading(
            "Environment used for",
            job.id,
            " (must be batch to display)",
        );
        let kept = match job.batch {
            true => ask(client, job.id, JobTextKind::Environment)?,
            false => None,
        };
        let context = kept.and_then(|bytes| minicbor::decode::<ExecContext>(&bytes).ok());
        match context {
            Some(context) => {
                let mut text = String::new();
                for variable in context.environment.iter() {
                    text.push_str(&String::from_utf8_lossy(variable));
                    text.push('\n');
                }
                text.push('\n');
                print(&text);
            }
            None => print("NONE\n"),
        }
    }
    Ok(())
}

fn heading(what: &str, job: JobId, more: &str) {
    print(&format!("{what} {job}{more}\n{}\n", "-".repeat(RULE)));
}

fn ask(client: &mut Client, job: JobId, kind: JobTextKind) -> Result<Option<Vec<u8>>, Failure> {
    let query = Query::JobText(JobTextQuery { job, kind });
    match client.query(query).map_err(failed)? {
        Response::JobText(text) => Ok(text.map(|text| text.to_vec())),
        other => Err(failed(unexpected(&other))),
    }
}
