//! Which nodes of which jobs a file goes to or comes from: those of a job, of one of its steps, of the components of a
//! heterogeneous job or of one of them.

use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::own_step;
use crate::targets::step_number;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::refusal::RefusalCode;
use muster_proto::client::{AllocationInfo, Query, Response};

/// A job that runs, and nodes of it.
#[derive(Debug)]
pub(crate) struct CopyTarget {
    /// The job, or the component.
    pub(crate) job: JobId,
    /// Names of the nodes.
    pub(crate) nodes: Vec<String>,
}

impl CopyTarget {
    /// All nodes of a job.
    pub(crate) fn all_of(info: &AllocationInfo) -> CopyTarget {
        let nodes = info.job.alloc.iter().flat_map(|alloc| &alloc.nodes);
        CopyTarget {
            job: info.job.id,
            nodes: nodes.map(|node| node.name.clone()).collect(),
        }
    }
}

/// Job or step named by a text of the form `JOB[+COMPONENT][.STEP]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyTargetName {
    job: JobId,
    component: Option<usize>,
    step: Option<StepNo>,
}

impl CopyTargetName {
    fn parse(text: &str) -> Option<CopyTargetName> {
        let (text, step) = match text.split_once('.') {
            Some((text, step)) => (text, Some(step_number(step)?)),
            None => (text, None),
        };
        let (job, component) = match text.split_once('+') {
            Some((job, component)) => (job, Some(component.parse().ok()?)),
            None => (text, None),
        };
        let id = job.parse().ok().filter(|id| *id > 0)?;
        Some(CopyTargetName {
            job: JobId(id),
            component,
            step,
        })
    }
}

/// Looks the nodes up that a text names, by the job that must run.
///
/// # Errors
/// The text to say.
pub(crate) fn find(text: &str) -> Result<Vec<CopyTarget>, String> {
    let failed = |why: &str| {
        let shown = match text.starts_with(|c: char| c.is_ascii_digit()) {
            true => text,
            false => "0",
        };
        format!("Slurm job {shown} lookup error: {why}")
    };
    let name = CopyTargetName::parse(text).ok_or_else(|| failed(NO_SUCH_JOB))?;
    let mut client = Client::connect().map_err(|e| e.to_string())?;
    if name.step.is_some() {
        // It may be the step in which this runs.
        own_step::wait(&mut client).map_err(|e| e.to_string())?;
    }
    let info = allocation(&mut client, name.job, failed)?;
    let chosen = match name.component {
        Some(number) => {
            let component = info.components.get(number);
            let job = component.ok_or_else(|| failed(NO_SUCH_JOB))?.job;
            vec![allocation(&mut client, job, failed)?]
        }
        // A heterogeneous job is named by its first component.
        None if name.step.is_none() && is_leader(&info) => {
            let jobs = info.components.iter().map(|component| component.job);
            jobs.map(|job| allocation(&mut client, job, failed))
                .collect::<Result<_, _>>()?
        }
        None => vec![info],
    };
    let Some(number) = name.step else {
        return Ok(chosen.iter().map(|info| CopyTarget::all_of(info)).collect());
    };
    let of_step = |info: &AllocationInfo| {
        let step = info.job.steps.iter().find(|step| step.step == number)?;
        Some(CopyTarget {
            job: info.job.id,
            nodes: hostlist::parse(&step.hostlist).ok()?,
        })
    };
    let found: Vec<CopyTarget> = chosen.iter().filter_map(|info| of_step(info)).collect();
    match found.is_empty() {
        true => Err(failed(NO_SUCH_JOB)),
        false => Ok(found),
    }
}

const NO_SUCH_JOB: &str = "Invalid job id specified";

fn is_leader(info: &AllocationInfo) -> bool {
    let first = info.components.first();
    first.is_some_and(|component| component.job == info.job.id)
}

fn allocation(
    client: &mut Client,
    job: JobId,
    failed: impl Fn(&str) -> String,
) -> Result<Box<AllocationInfo>, String> {
    match client.query(Query::Allocation(job)) {
        Ok(Response::JobStarted(info)) if info.job.alloc.is_some() => Ok(info),
        Ok(Response::JobStarted(_)) => Err(failed("Job is pending execution")),
        Ok(other) => Err(unexpected(&other).to_string()),
        Err(ConnectError::Refused(refusal)) => Err(failed(match refusal.code {
            // Slurm's word where a file would go to another user's job.
            RefusalCode::AccessDenied => "Invalid user id",
            code => code.text(),
        })),
        Err(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_job_a_component_or_a_step() {
        let named = |component, step: Option<u32>| {
            Some(CopyTargetName {
                job: JobId(5),
                component,
                step: step.map(StepNo),
            })
        };
        assert_eq!(CopyTargetName::parse("5"), named(None, None));
        assert_eq!(CopyTargetName::parse("5+1"), named(Some(1), None));
        assert_eq!(CopyTargetName::parse("5.2"), named(None, Some(2)));
        assert_eq!(CopyTargetName::parse("5+0.2"), named(Some(0), Some(2)));
        for text in ["", "0", "-1", "x", "5+", "5+x", "5.", "5_1"] {
            assert_eq!(CopyTargetName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_names_no_job_is_refused_without_a_question() {
        for (text, shown) in [("x", "0"), ("5+x", "5+x"), ("-1", "0")] {
            let expected = format!("Slurm job {shown} lookup error: Invalid job id specified");
            assert_eq!(find(text).unwrap_err(), expected);
        }
    }
}
