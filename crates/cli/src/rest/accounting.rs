//! Jobs of accounting: parameters of the query are the conditions of sacct.

use super::call::{Call, CallFailure, Outcome};
use super::http::HttpStatus;
use crate::listing::account::AcctRow;
use crate::listing::{Failure as SacctFailure, query};
use crate::sacct::document;
use crate::sacct::filter::{self, RowConditions};
use jiff::Zoned;
use muster_model::hostlist;
use muster_model::limits::QUERY_ITEMS_MAX;
use muster_proto::acct::AcctJob;

/// Answer of versions since v0.0.39 where nothing fits, which is no failure.
const NOTHING_FOUND: &str = "Query found no jobs";

/// `GET jobs`.
pub(super) fn jobs(call: &mut Call<'_>) -> Outcome {
    let conditions = conditions(call)?;
    answer(call, &conditions)
}

/// `GET job/{job_id}`.
pub(super) fn job(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let mut conditions = RowConditions::default();
    filter::add_rows(&mut conditions.rows, &name).map_err(|_| super::jobs::no_job(&name))?;
    conditions.query.duplicates = true;
    answer(call, &conditions)
}

fn answer(call: &mut Call<'_>, conditions: &RowConditions) -> Outcome {
    let now = Zoned::now();
    let question = conditions
        .to_query(&now, 0)
        .map_err(|e| malformed("start_time", &e))?;
    let (mut ctx, mut found) = (call.context(), 0);
    let document = call.document_of(|w, client| {
        ctx.cluster.clone_from(&client.endpoint.cluster);
        let mut answer = Ok(());
        w.list("jobs", |w| {
            let write = |mut jobs: Vec<AcctJob>, now| {
                crate::sacct::in_order(&mut jobs);
                ctx.now = now;
                let rows = jobs.iter().map(|job| AcctRow {
                    job,
                    step: None,
                    shown: crate::listing::account::AmountStyle::default(),
                });
                let rows: Vec<AcctRow<'_>> = rows.filter(|row| conditions.wants(row)).collect();
                found += rows.len();
                document::items(w, &rows, &ctx);
            };
            answer = query::accounting_in_parts(client, question, write).map(|_| ());
        });
        answer
    })?;
    if found > 0 {
        return Ok(document);
    }
    call.warn(call.operation.call, NOTHING_FOUND);
    let ctx = call.context();
    Ok(call.document(&ctx, |w| document::jobs(w, &[], &ctx)))
}

/// Drops what sacct would write before its texts.
fn malformed(source: &str, failure: &SacctFailure) -> CallFailure {
    let text = failure.to_string();
    let text = text.trim_start_matches("sacct: ");
    let text = text
        .trim_start_matches("error: ")
        .trim_start_matches("fatal: ");
    CallFailure::malformed(source, text)
}

/// A point in time: seconds since 1970, or as sacct takes it.
fn time(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(unix_s) if unix_s > 100_000_000 => {
            crate::zone::show(muster_model::time::Timestamp::from_unix_s(unix_s))
        }
        _ => text
            .strip_prefix("uts")
            .map_or_else(|| text.to_owned(), time),
    }
}

fn conditions(call: &mut Call<'_>) -> Result<RowConditions, CallFailure> {
    let mut all = RowConditions {
        everyone: true,
        ..RowConditions::default()
    };
    let parameters = std::mem::take(&mut call.query);
    // The least and the most of a range come by themselves.
    let (mut cpus, mut nodes) = ((None, None), (None, None));
    for (name, value) in &parameters {
        let bad = |e: SacctFailure| malformed(name, &e);
        let number = || {
            let number = value.parse::<u32>();
            number.map_err(|_| {
                CallFailure::malformed(name, format!("{name}={value} is not a number"))
            })
        };
        let is_set = || !matches!(value.as_str(), "0" | "false" | "no");
        if value.is_empty() {
            continue;
        }
        match name.as_str() {
            "account" | "accounts" => all.query.accounts.extend(filter::texts(value)),
            "constraints" => all.constraints.extend(filter::texts(value)),
            "cpus_max" => cpus.1 = Some(number()?),
            "cpus_min" => cpus.0 = Some(number()?),
            "end_time" => all.end = Some(time(value)),
            "groups" => all
                .query
                .gids
                .extend(filter::parse_groups(value).map_err(bad)?),
            "job_name" => all.query.names.extend(filter::texts(value)),
            "node" => add_hosts(&mut all.query.nodes, name, value)?,
            "nodes_max" => nodes.1 = Some(number()?),
            "nodes_min" => nodes.0 = Some(number()?),
            "partition" => all.query.partitions.extend(filter::texts(value)),
            "qos" => all.query.qos.extend(filter::texts(value)),
            "reason" | "state_reason" => all.reasons.extend(filter::texts(value)),
            "skip_steps" => all.query.allocations_only = is_set(),
            "start_time" => all.start = Some(time(value)),
            "state" => all.set_states(value).map_err(bad)?,
            "step" => filter::add_rows(&mut all.rows, value).map_err(bad)?,
            "submit_time" => all.start = Some(time(value)),
            "show_duplicates" => all.query.duplicates = is_set(),
            "timelimit_max" => all.limits.1 = Some(filter::parse_limit(value).map_err(bad)?),
            "timelimit_min" => all.limits.0 = Some(filter::parse_limit(value).map_err(bad)?),
            "user" | "users" => all
                .query
                .uids
                .extend(filter::parse_users(value).map_err(bad)?),
            "wckey" => all.query.wckeys.extend(filter::texts(value)),
            "cluster" => only_this_cluster(call, value)?,
            // They ask for data that the answer has anyway.
            "show_batch_script"
            | "show_job_environment"
            | "disable_truncate_usage_time"
            | "skip_steps_by_default"
            | "whole_hetjob"
            | "disable_whole_hetjob"
            | "disable_wait_for_result"
            | "usage_time"
            | "usage_time_as_submit_time"
            | "format" => {
                call.warn(name, format!("{name} has no effect"));
            }
            // Without them the answer would have jobs that are not meant.
            "association" | "exit_code" | "reservation" | "reservation_id" => {
                let why = "jobs of accounting cannot be chosen by it here";
                return Err(CallFailure::malformed(name, why));
            }
            _ => {
                // A condition that is not understood would choose too many jobs.
                let (status, number) = (HttpStatus::INTERNAL_ERROR, super::errno::INVALID_QUERY);
                let why = format!("Unknown Query field {name}");
                return Err(CallFailure::numbered(status, number, name, why));
            }
        }
    }
    let range = |(low, high): (Option<u32>, Option<u32>)| match (low, high) {
        (None, None) => None,
        (low, high) => Some((low.unwrap_or(0), high.unwrap_or(u32::MAX))),
    };
    (all.cpus, all.nodes) = (range(cpus), range(nodes));
    // Without a window, all of accounting, as Slurm's does, also of jobs in a state, of which sacct takes those of a moment.
    if all.start.is_none() && all.rows.is_empty() {
        all.start = Some("1970-01-02".to_owned());
    }
    if all.end.is_none() && all.states_given {
        all.end = Some("now".to_owned());
    }
    Ok(all)
}

/// Adds the nodes of a list, of which there are no more with those before than a query may name.
fn add_hosts(nodes: &mut Vec<String>, name: &str, list: &str) -> Result<(), CallFailure> {
    let left = QUERY_ITEMS_MAX.saturating_sub(nodes.len());
    let names = hostlist::names(list, left);
    nodes.extend(names.map_err(|e| CallFailure::malformed(name, e.to_string()))?);
    Ok(())
}

fn only_this_cluster(call: &mut Call<'_>, names: &str) -> Result<(), CallFailure> {
    let settings = call.ask(query::settings)?;
    match names.split(',').all(|name| name == settings.cluster_name) {
        true => Ok(()),
        false => Err(CallFailure::malformed(
            "cluster",
            format!("only cluster {} is known here", settings.cluster_name),
        )),
    }
}
