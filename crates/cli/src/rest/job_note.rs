//! Texts that accounting has of jobs, as `sacctmgr modify job` changes them. The controller decides what each user may change of
//! which job.

use super::account_change::edit;
use super::call::{Call, CallFailure, Outcome};
use super::job_keys::{member, text_of};
use super::jobs::no_job;
use super::submission::Body;
use super::value;
use crate::listing::{job_names, query};
use muster_model::accounts::JobNote;
use muster_model::command::{AccountsAsk, JobTarget, JobUpdate, UserCommand};
use muster_model::ids::JobId;
use muster_model::limits::QUERY_ITEMS_MAX;
use muster_proto::acct::AcctQuery;
use serde_json::Value;

/// `POST job/{job_id}` of accounting.
pub(super) fn one(call: &mut Call<'_>) -> Outcome {
    let names = vec![call.name().to_owned()];
    match std::mem::take(&mut call.body) {
        Value::Object(body) => change(call, &names, &body),
        _ => Err(CallFailure::malformed("body", "the body is not an object")),
    }
}

/// `POST jobs` of accounting.
pub(super) fn many(call: &mut Call<'_>) -> Outcome {
    let Value::Object(body) = std::mem::take(&mut call.body) else {
        return Err(CallFailure::malformed("body", "the body is not an object"));
    };
    let names = match member(&body, "job_id_list") {
        Some(Value::Array(items)) if !items.is_empty() => items
            .iter()
            .map(|item| match item {
                Value::String(name) => Ok(name.clone()),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(CallFailure::malformed(
                    "job_id_list",
                    "expected numbers of jobs",
                )),
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => {
            let why = "the body names no jobs in job_id_list";
            return Err(CallFailure::malformed("job_id_list", why));
        }
    };
    match member(&body, "job_rec").and_then(Value::as_object) {
        Some(record) => change(call, &names, record),
        None => Err(CallFailure::malformed("job_rec", "the body has no job_rec")),
    }
}

fn change(call: &mut Call<'_>, names: &[String], record: &Body) -> Outcome {
    if names.len() > QUERY_ITEMS_MAX {
        let why = format!("a request may name {QUERY_ITEMS_MAX} jobs at most");
        return Err(CallFailure::malformed("job_id_list", why));
    }
    let note = note(call, record)?;
    let mut asked = AcctQuery {
        allocations_only: true,
        ..AcctQuery::default()
    };
    for name in names {
        asked
            .jobs
            .push(job_names::parse_job(name).ok_or_else(|| no_job(name))?);
    }
    let (jobs, ..) = call.ask(|client| query::accounting(client, asked))?;
    if jobs.is_empty() {
        return Err(no_job(&names[0]));
    }
    let (over, others): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.state.is_ended());
    for job in &others {
        update(call, job.id, &note)?;
    }
    if !over.is_empty() {
        let names = over.iter().map(|job| job.id.to_string()).collect();
        edit(call, names, AccountsAsk::NoteJobs(note))?;
    }
    let results: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
    Ok(call.document(&call.context(), |w| w.texts("results", &results)))
}

fn note(call: &mut Call<'_>, record: &Body) -> Result<JobNote, CallFailure> {
    let mut note = JobNote::default();
    for (key, value) in record {
        let bad = |why: &str| CallFailure::malformed(key, format!("{key}: {why}"));
        match key.as_str() {
            "comment" => match value {
                Value::Object(texts) => {
                    let text = |name: &str| {
                        text_of(texts, name).map_err(|e| CallFailure::malformed(&e.key, e.why))
                    };
                    (note.comment, note.admin_comment) = (text("job")?, text("administrator")?);
                    if text("system")?.is_some() {
                        let why = "comment/system is not kept: use job or administrator";
                        return Err(CallFailure::malformed("comment/system", why));
                    }
                }
                _ => note.comment = value::read(value).map_err(bad)?.text(),
            },
            "derived_exit_code" => note.derived_exit = exit_code(value).map_err(bad)?,
            "wckey" => note.wckey = value::read(value).map_err(bad)?.text(),
            _ => {
                // Counts follow from what nodes report.
                let is_empty = value::read(value).is_ok_and(|given| given.is_empty());
                if !is_empty {
                    call.warn(
                        key,
                        format!("{key} cannot be changed, and was left as it is"),
                    );
                }
            }
        }
    }
    match note == JobNote::default() {
        true => Err(CallFailure::malformed(
            "job",
            "the body has no key that changes the job: comment, derived_exit_code or wckey",
        )),
        false => Ok(note),
    }
}

/// A number, or the object that answers have.
fn exit_code(value: &Value) -> Result<Option<u32>, &'static str> {
    let given = match value
        .as_object()
        .and_then(|body| member(body, "return_code"))
    {
        Some(code) => value::read(code)?,
        None => value::read(value)?,
    };
    match given.text() {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| "expected a number"),
    }
}

/// A job that is not over has its texts in the controller.
fn update(call: &mut Call<'_>, job: JobId, note: &JobNote) -> Result<(), CallFailure> {
    let shown = note.admin_comment.iter();
    let update = JobUpdate {
        comment: note.comment.clone(),
        shown: shown
            .map(|text| ("admin-comment".to_owned(), text.clone()))
            .collect(),
        wckey: note.wckey.clone(),
        ..JobUpdate::default()
    };
    let command = UserCommand::UpdateJob {
        target: JobTarget {
            job,
            tasks: None,
            component: None,
        },
        update: Box::new(update),
    };
    call.carry_out(command)
}
