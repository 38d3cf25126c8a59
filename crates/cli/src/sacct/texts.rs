//! `sacct -B` and `--env-vars`: what jobs were submitted with. Accounting has what `AccountingStoreFlags` names; of jobs that the
//! controller still knows it has the script as well.

use super::failed;
use crate::connect::{Client, ConnectError};
use crate::listing::{Failure, print, query};
use muster_model::ids::JobId;
use muster_proto::acct::{AcctJob, JobTextKind};

const RULE: usize = 80;

/// Prints the scripts of jobs.
pub(super) fn scripts(client: &mut Client, jobs: &[AcctJob]) -> Result<(), Failure> {
    for job in jobs {
        heading("Batch Script for", job.id, "");
        let kept = match job.batch {
            true => query::job_text(client, job.id, JobTextKind::Script).map_err(failed)?,
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
            true => query::kept_environment(client, job.id).map_err(failed)?,
            false => None,
        };
        match kept {
            Some(environment) => {
                let mut text = String::new();
                for variable in environment.iter() {
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
