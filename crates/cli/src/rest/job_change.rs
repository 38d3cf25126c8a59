//! Changes of jobs: keys of a body become the fields of `scontrol update job`.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use super::job_keys::text_of;
use super::jobs::no_job;
use super::value::{self, GivenValue};
use crate::connect::{ConnectError, unexpected};
use crate::scontrol::update::Pair;
use crate::scontrol::update_job::{self, ChangeError};
use crate::targets::job_target;
use crate::zone;
use muster_model::command::{JobTarget, JobUpdate, Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::limits::REQUEST_ITEMS_MAX;
use muster_model::refusal::RefusalCode;
use muster_model::time::Timestamp;
use muster_proto::client::{JobFilter, Response};
use serde_json::{Map, Value};

/// Key of a body, and the field of scontrol that it is.
#[rustfmt::skip]
const FIELDS: &[(&str, &str)] = &[
    ("account", "Account"),
    ("admin_comment", "AdminComment"),
    ("begin_time", "StartTime"),
    ("comment", "Comment"),
    ("constraints", "Features"),
    ("contiguous", "Contiguous"),
    ("core_specification", "CoreSpec"),
    ("cpus_per_task", "CPUsPerTask"),
    ("deadline", "Deadline"),
    ("dependency", "Dependency"),
    ("end_time", "EndTime"),
    ("excluded_nodes", "ExcNodeList"),
    ("extra", "Extra"),
    ("features", "Features"),
    ("gres", "Gres"),
    ("job_name", "JobName"),
    ("licenses", "Licenses"),
    ("mail_type", "MailType"),
    ("mail_user", "MailUser"),
    ("memory_per_cpu", "MinMemoryCPU"),
    ("memory_per_node", "MinMemoryNode"),
    ("minimum_cpus", "NumCPUs"),
    ("minimum_cpus_per_node", "MinCPUsNode"),
    ("minimum_nodes", "NumNodes"),
    ("name", "JobName"),
    ("nice", "Nice"),
    ("nodes", "NumNodes"),
    ("partition", "Partition"),
    ("prefer", "Prefer"),
    ("priority", "Priority"),
    ("qos", "QOS"),
    ("requeue", "Requeue"),
    ("required_nodes", "ReqNodeList"),
    ("reservation", "ReservationName"),
    ("site_factor", "SiteFactor"),
    ("standard_error", "StdErr"),
    ("standard_input", "StdIn"),
    ("standard_output", "StdOut"),
    ("tasks", "NumTasks"),
    ("temporary_disk_per_node", "MinTmpDiskNode"),
    ("time_limit", "TimeLimit"),
    ("time_minimum", "TimeMin"),
    ("tres_per_node", "Gres"),
    ("wckey", "WCKey"),
];

/// `POST job/{job_id}`.
pub(super) fn update(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let target = job_target(&name).ok_or_else(|| no_job(&name))?;
    let body = take_body(call)?;
    let Changes { pairs, hold } = read_changes(call, name, &body)?;
    let update = read_update(call, target.job, &pairs)?;
    if update != JobUpdate::default() {
        send(call, target.clone(), update)?;
    } else if hold.is_none() {
        let why = "the body has no key that changes the job";
        return Err(CallFailure::numbered(
            HttpStatus::INTERNAL_ERROR,
            errno::NO_CHANGE,
            "job",
            why,
        ));
    }
    if let Some(hold) = hold {
        let user = false;
        let command = match hold {
            true => UserCommand::Hold { target, user },
            false => UserCommand::Release { target },
        };
        call.carry_out(command)?;
    }
    results(call)
}

/// Changes in the body: keys as `scontrol update` has them, and whether to hold or release the job.
struct Changes {
    pairs: Vec<Pair>,
    hold: Option<bool>,
}

/// The body's keys of a job.
fn take_body(call: &mut Call<'_>) -> Result<Map<String, Value>, CallFailure> {
    let body = std::mem::take(&mut call.body);
    let Value::Object(mut body) = body else {
        return Err(CallFailure::malformed(
            "body",
            "the body is not an object with a job's keys",
        ));
    };
    // The object around the keys in newer versions of Slurm's description.
    if body.len() == 1
        && let Some(Value::Object(inner)) = body.get_mut("job")
    {
        return Ok(std::mem::take(inner));
    }
    Ok(body)
}

fn read_changes(
    call: &mut Call<'_>,
    name: String,
    body: &Map<String, Value>,
) -> Result<Changes, CallFailure> {
    let mut pairs = vec![Pair::new("JobId", name)];
    let mut hold = None;
    for (key, value) in body {
        let lower = key.to_ascii_lowercase();
        let bad = |why: &str| CallFailure::malformed(key, format!("{key}: {why}"));
        let given = value::read(value).map_err(bad)?;
        if matches!(given, GivenValue::Nothing) {
            continue;
        }
        if lower == "hold" {
            hold = match given {
                GivenValue::Truth(truth) => Some(truth),
                _ => return Err(bad("expected true or false")),
            };
            continue;
        }
        let known = FIELDS.iter().find(|(name, _)| *name == lower);
        match known {
            Some((_, field)) => pairs.push(pair(&lower, field, given)),
            None => {
                let what = format!("{key} cannot be changed, and was left as it is");
                call.warn(key, what);
            }
        }
    }
    Ok(Changes { pairs, hold })
}

/// The change that keys ask for. Some depend on what the job is, which is asked for then.
fn read_update(call: &mut Call<'_>, job: JobId, pairs: &[Pair]) -> Result<JobUpdate, CallFailure> {
    let mut problem = None;
    let read = {
        let mut load = || {
            let filter = JobFilter {
                ids: vec![job],
                ..JobFilter::default()
            };
            let jobs = call.ask(|client| client.query_jobs(filter));
            match jobs.map(|jobs| jobs.into_iter().next()) {
                Ok(Some(job)) => Ok(job),
                Ok(None) => Err(ConnectError::Refused(RefusalCode::InvalidJobId.into())),
                Err(failure) => {
                    problem = Some(failure);
                    Err(ConnectError::Refused(RefusalCode::InvalidJobId.into()))
                }
            }
        };
        update_job::changes(pairs, &mut load)
    };
    if let Some(failure) = problem {
        return Err(failure);
    }
    read.map_err(|error| change_failure(call, error))
}

/// Members that versions since v0.0.40 answer beside errors.
fn results(call: &mut Call<'_>) -> Outcome {
    Ok(call.document(&call.context(), |w| {
        if !w.is_old() {
            w.list("results", |_| {});
        }
    }))
}

fn pair(key: &str, field: &str, given: GivenValue) -> Pair {
    let text = match (key, given) {
        ("time_limit" | "time_minimum", GivenValue::Infinite) => "UNLIMITED".to_owned(),
        ("requeue", GivenValue::Truth(truth)) => u8::from(truth).to_string(),
        (_, GivenValue::Truth(truth)) => if truth { "yes" } else { "no" }.to_owned(),
        (_, other) => other.text().unwrap_or_default(),
    };
    let is_time = matches!(key, "begin_time" | "deadline" | "end_time");
    let text = match text.parse::<i64>() {
        Ok(unix_s) if is_time => zone::show(Timestamp::from_unix_s(unix_s)),
        _ => text,
    };
    let text = match key {
        "tres_per_node" | "gres" => text.replace("gres/", "").replace("gres:", ""),
        _ => text,
    };
    Pair::new(field, text)
}

fn change_failure(call: &Call<'_>, error: ChangeError) -> CallFailure {
    match error {
        ChangeError::Load(error) => call.failure(&error),
        ChangeError::Unknown(pair) => {
            let why = update_job::refused(&pair).unwrap_or("it cannot be changed");
            CallFailure::malformed(&pair.text, format!("{}: {why}", pair.text))
        }
        ChangeError::Value(pair, why) => {
            CallFailure::malformed(&pair.text, format!("{}: {why}", pair.text))
        }
    }
}

fn send(call: &mut Call<'_>, target: JobTarget, update: JobUpdate) -> Result<(), CallFailure> {
    let update = Box::new(update);
    call.carry_out(UserCommand::UpdateJob { target, update })
}

/// `GET job/{job_id}/requeue`.
pub(super) fn requeue(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let target = job_target(&name).ok_or_else(|| no_job(&name))?;
    let id = target.job;
    let command = UserCommand::Requeue {
        target,
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    call.carry_out(command)?;
    Ok(call.document(&call.context(), |w| {
        w.list("status", |w| {
            w.item(|w| {
                w.raw("job_id", id.0);
                w.text("step_id", "");
                w.text("error", "No error");
                w.raw("error_code", 0);
                w.text("why", "");
            });
        });
    }))
}

/// `POST jobs/requeue`: jobs that end and are put back, each by itself. A job that refuses is an error beside the others.
pub(super) fn requeue_many(call: &mut Call<'_>) -> Outcome {
    let body = take_body(call)?;
    if let Some(other) = body
        .keys()
        .find(|key| !["jobs", "flags"].contains(&key.as_str()))
    {
        return Err(CallFailure::malformed(other, "expected jobs and flags"));
    }
    let names = words(&body, "jobs")?;
    if names.is_empty() {
        return Err(CallFailure::malformed("jobs", "it names no job"));
    }
    if names.len() > REQUEST_ITEMS_MAX {
        let why = format!("more than {REQUEST_ITEMS_MAX} jobs");
        return Err(CallFailure::malformed("jobs", why));
    }
    let (mut hold, mut special_exit, mut incomplete) = (false, false, false);
    for flag in words(&body, "flags")? {
        match flag.to_ascii_lowercase().as_str() {
            "hold" => hold = true,
            "specialexit" => special_exit = true,
            "incomplete" => incomplete = true,
            _ => {
                let why = format!("'{flag}': expected Incomplete, Hold or SpecialExit");
                return Err(CallFailure::malformed("flags", why));
            }
        }
    }
    let targets = names.iter().map(|name| job_target(name).ok_or(name));
    let targets: Vec<JobTarget> = targets
        .collect::<Result<_, _>>()
        .map_err(|name| no_job(name))?;
    let mut refused = Vec::new();
    for (name, target) in names.iter().zip(targets) {
        let command = UserCommand::Requeue {
            target,
            hold,
            special_exit,
            incomplete,
        };
        let refusals = call.ask(|client| match client.command(command) {
            Err(ConnectError::Refused(refusal)) => Ok(vec![(name.clone(), refusal)]),
            Err(error) => Err(error),
            Ok(Reply::Done { refused, .. }) => Ok(refused),
            Ok(other) => Err(unexpected(&Response::Reply(Box::new(other)))),
        })?;
        refused.extend(refusals);
    }
    for (name, refusal) in &refused {
        let mut failure = call.refusal(refusal);
        failure.problem.description = format!("job {name}: {}", failure.problem.description);
        call.errors.push(failure.problem);
    }
    Ok(call.document(&call.context(), |w| {
        w.list("status", |w| {
            for (name, refusal) in &refused {
                w.item(|w| {
                    w.text("job_id", name);
                    w.raw("error_code", errno::of(refusal.code));
                    w.text("error", refusal.code.text());
                    w.text("why", &refusal.detail);
                });
            }
        });
    }))
}

/// Words of a member: a list of texts or numbers, or a text with commas.
fn words(body: &Map<String, Value>, key: &str) -> Result<Vec<String>, CallFailure> {
    let text = text_of(body, key).map_err(|error| CallFailure::malformed(key, error.why))?;
    let text = text.unwrap_or_default();
    let words = text.split(',').map(str::trim);
    Ok(words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_scontrol() {
        for (key, field) in FIELDS {
            let lower = field.to_ascii_lowercase();
            let is_known = update_job::fields().any(|name| name == lower);
            assert!(is_known, "{key} -> {field}");
        }
        assert!(FIELDS.is_sorted_by_key(|(key, _)| *key));
    }
}
