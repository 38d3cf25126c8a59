//! Which jobs and steps are meant, one by one: for `--interactive`, where the user agrees to each, and for `--verbose`.

use super::{CancelRequest, CancelTarget};
use crate::connect::{Client, unexpected};
use crate::say::{self, Say};
use muster_model::command::{JobSelection, JobTarget};
use muster_model::job::Job;
use muster_model::refusal::RefusalCode;
use muster_proto::client::{JobFilter, Query, Response};
use std::io::BufRead as _;
use std::process::ExitCode;

/// Jobs and steps to be ended or signalled.
pub(super) struct CancelSelection {
    pub(super) targets: Vec<CancelTarget>,
    /// Something that was named is not there; that was said.
    pub(super) has_failed: bool,
}

/// Finds the targets of filters and ids, and with `--interactive` asks about each.
///
/// # Errors
/// The exit code, after the error was printed.
pub(super) fn choose(
    say: &Say,
    client: &mut Client,
    request: &CancelRequest,
) -> Result<CancelSelection, ExitCode> {
    let jobs = active_jobs(say, client, request)?;
    let (mut targets, mut has_failed) = (Vec::new(), false);
    if request.targets.is_empty() {
        if jobs.is_empty() && say.verbose > 0 {
            let filters = filters(&request.filter);
            say.error(&format!(
                "No active jobs match ALL job filters, including: {filters} "
            ));
        }
        for job in &jobs {
            let target = CancelTarget {
                text: job.id.to_string(),
                job: JobTarget {
                    job: job.id,
                    tasks: None,
                    component: None,
                },
                step: None,
            };
            if !request.interactive || is_agreed_to(job, &target) {
                targets.push(target);
            }
        }
        return Ok(CancelSelection {
            targets,
            has_failed,
        });
    }
    for target in &request.targets {
        match jobs.iter().find(|job| job.id == target.job.job) {
            Some(job) if is_agreed_to(job, target) => targets.push(target.clone()),
            Some(_) => {}
            None => {
                let (id, why) = (&target.text, RefusalCode::InvalidJobId.text());
                say.error(&format!("Kill job error on job id {id}: {why}"));
                has_failed = true;
            }
        }
    }
    Ok(CancelSelection {
        targets,
        has_failed,
    })
}

fn is_agreed_to(job: &Job, target: &CancelTarget) -> bool {
    let what = match target.step {
        Some(_) => "step_id",
        None => "job_id",
    };
    say::stdout(&format!(
        "Cancel {what}={} name={} partition={} [y/n]? ",
        target.text, job.spec.name, job.partition
    ));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}

/// Jobs that have not ended and that filters and ids name.
fn active_jobs(
    say: &Say,
    client: &mut Client,
    request: &CancelRequest,
) -> Result<Vec<Job>, ExitCode> {
    let filter = JobFilter {
        ids: request.targets.iter().map(|t| t.job.job).collect(),
        uids: request.filter.uid.into_iter().collect(),
        states: request.filter.state.into_iter().collect(),
        partitions: request.filter.partition.clone().into_iter().collect(),
        active: true,
        ..JobFilter::default()
    };
    let mut answer = client.query(Query::Jobs(filter));
    let mut jobs = Vec::new();
    loop {
        match answer {
            Ok(Response::Jobs(part)) => {
                jobs.extend(part.jobs.into_jobs());
                if !part.more {
                    break;
                }
                answer = client.receive();
            }
            Ok(other) => {
                return Err(say.connect_error("Unable to list jobs", &unexpected(&other)));
            }
            Err(error) => return Err(say.connect_error("Unable to list jobs", &error)),
        }
    }
    jobs.retain(|job| !job.state.is_ended() && matches(&request.filter, job));
    Ok(jobs)
}

/// The filters that a listing cannot apply itself.
fn matches(filter: &JobSelection, job: &Job) -> bool {
    let same = |want: &Option<String>, have: Option<&String>| {
        want.as_ref().is_none_or(|w| have == Some(w))
    };
    let is_there = || {
        let alloc = job.alloc.as_deref().into_iter();
        let mut nodes = alloc.flat_map(|alloc| &alloc.nodes);
        nodes.any(|node| filter.nodes.contains(&node.name))
    };
    same(&filter.name, Some(&job.spec.name))
        && same(&filter.account, job.spec.account.as_ref())
        && same(&filter.qos, job.spec.qos.as_ref())
        && same(&filter.reservation, job.spec.reservation.as_ref())
        && same(&filter.wckey, job.spec.wckey.as_ref())
        && (filter.nodes.is_empty() || is_there())
}

/// The filters as Slurm names them.
fn filters(filter: &JobSelection) -> String {
    let nodes = filter.nodes.join(",");
    let state = filter.state.map(|state| state.name().to_owned());
    let user = filter.uid.map(user_name);
    let given = [
        ("account", filter.account.as_ref()),
        ("job_name", filter.name.as_ref()),
        ("nodelist", (!nodes.is_empty()).then_some(&nodes)),
        ("partition", filter.partition.as_ref()),
        ("qos", filter.qos.as_ref()),
        ("reservation", filter.reservation.as_ref()),
        ("state", state.as_ref()),
        ("user_name", user.as_ref()),
        ("wckey", filter.wckey.as_ref()),
    ];
    let shown = given
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    shown.collect::<Vec<String>>().join(" ")
}

fn user_name(uid: u32) -> String {
    crate::submit::line::user(&uid.to_string()).map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_named_as_slurm_names_them() {
        let filter = JobSelection {
            name: Some("nosuch".to_owned()),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            ..JobSelection::default()
        };
        assert_eq!(filters(&filter), "job_name=nosuch nodelist=n1,n2");
    }
}
