//! Jobs of the queue.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::job::JobRow;
use crate::listing::query::{self, Jobs};
use crate::listing::{job_document, job_names};
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job};
use muster_model::listing_codec::CompactListing;
use muster_proto::client::JobFilter;

/// `GET jobs`.
pub(super) fn list(call: &mut Call<'_>) -> Outcome {
    let mut ctx = call.context();
    // Cores of a share are shown by socket, which the nodes know.
    call.ask(|client| query::cluster(client, &mut ctx))?;
    let filter = JobFilter {
        starts: true,
        ..JobFilter::default()
    };
    call.document_of(|w, client| {
        let (mut jobs, mut answer) = (Jobs::default(), Ok(()));
        w.list("jobs", |w| {
            let write = |part: CompactListing, jobs: &mut Jobs, ctx: &Ctx| {
                let part = part.into_jobs();
                // Jobs of hidden partitions, too, as in Slurm: who polls would take one for lost.
                let rows = part.iter();
                let rows = rows.map(|job| JobRow::new(job, jobs.array_of(job)));
                job_document::items(w, rows, ctx);
            };
            answer = query::jobs_in_parts(client, &mut ctx, filter, &mut jobs, write);
        });
        job_document::end(w, &ctx);
        answer
    })
}

/// `GET job/{job_id}`.
pub(super) fn one(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let (id, task) = job_names::parse_job(&name).ok_or_else(|| no_job(&name))?;
    let (ctx, jobs) = load(call, vec![id])?;
    let rows: Vec<JobRow<'_>> = job_names::rows_of(&jobs, id, task).collect();
    if rows.is_empty() {
        return Err(no_job(&name));
    }
    Ok(call.document(&ctx, |w| job_document::jobs(w, &rows, &ctx)))
}

/// Says that a number names nothing.
pub(super) fn no_job(name: &str) -> CallFailure {
    let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::INVALID_JOB_ID);
    CallFailure::numbered(status, number, "job_id", format!("there is no job {name}"))
}

/// Jobs, with the nodes where they have some.
pub(super) fn load(call: &mut Call<'_>, ids: Vec<JobId>) -> Result<(Ctx, Jobs), CallFailure> {
    let filter = JobFilter {
        ids,
        starts: true,
        ..JobFilter::default()
    };
    let mut ctx = call.context();
    let jobs = call.ask(|client| query::jobs(client, &mut ctx, filter))?;
    if jobs.needs_nodes_in_documents() {
        call.ask(|client| query::cluster(client, &mut ctx))?;
    }
    Ok((ctx, jobs))
}

/// `GET jobs/state`.
pub(super) fn states(call: &mut Call<'_>) -> Outcome {
    let wanted: Vec<String> = call
        .query
        .iter()
        .filter(|(name, _)| name == "job_id")
        .flat_map(|(_, list)| list.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let mut named = Vec::new();
    for name in &wanted {
        named.push(job_names::parse_job(name).ok_or_else(|| no_job(name))?);
    }
    let filter = JobFilter {
        ids: named.iter().map(|(id, _)| *id).collect(),
        ..JobFilter::default()
    };
    let mut ctx = call.context();
    let jobs = call.ask(|client| query::jobs(client, &mut ctx, filter))?;
    let is_wanted = |job: &Job| {
        named.is_empty()
            || named.iter().any(|(id, task)| match (task, &job.array) {
                (Some(task), ArrayRole::Task { base, index }) => base == id && index == task,
                (Some(task), ArrayRole::Pending { indices }) => {
                    job.id == *id && indices.contains(*task)
                }
                _ => true,
            })
    };
    Ok(call.document(&ctx, |w| {
        w.list("jobs", |w| {
            for job in jobs.jobs.iter().filter(|job| is_wanted(job)) {
                w.item(|w| state(w, &JobRow::new(job, jobs.array_of(job))));
            }
        });
        if w.version() >= 42 {
            w.time("last_backfill", None);
            w.time("last_update", Some(ctx.now));
        }
    }))
}

fn state(w: &mut Writer<'_>, row: &JobRow<'_>) {
    w.raw("job_id", row.job.id.0);
    let (base, index) = match &row.job.array {
        ArrayRole::None => (0, None),
        ArrayRole::Pending { .. } => (row.job.id.0, None),
        ArrayRole::Task { base, index } => (base.0, Some(u64::from(*index))),
    };
    match w.version() {
        42.. => w.limit("array_job_id", Some(base), false),
        _ => w.raw("array_job_id", base),
    }
    w.limit("array_task_id", index, false);
    w.texts("state", job_document::states(row));
}
