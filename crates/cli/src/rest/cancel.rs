//! The end of jobs, and signals to them.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::Method;
use super::job_keys::{member, text_of};
use super::jobs::no_job;
use crate::connect::{ConnectError, unexpected};
use crate::listing::context::uid_of;
use crate::listing::document::Problem;
use crate::targets::job_target;
use muster_conf::options::values;
use muster_model::command::{JobSelection, JobTarget, Reply, SignalScope, UserCommand};
use muster_model::hostlist;
use muster_model::job::JobState;
use muster_model::limits::{QUERY_ITEMS_MAX, REQUEST_ITEMS_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::Response;
use serde_json::{Map, Value};

/// SIGKILL, by which a job ends.
const KILL: u32 = 9;

/// `DELETE job/{job_id}`.
pub(super) fn one(call: &mut Call<'_>) -> Outcome {
    let signal = match call.parameter("signal") {
        None | Some("") => KILL,
        Some(text) => signal(text)?,
    };
    let scope = match call.parameter("flags") {
        None | Some("") => SignalScope::Steps,
        Some(text) => scope(text)?,
    };
    let name = call.name().to_owned();
    let target = job_target(&name).ok_or_else(|| no_job(&name))?;
    let selection = JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    };
    let refused = send(call, selection, signal, scope)?;
    for (_, refusal) in refused {
        // A job that has ended already is as the user wants it.
        if refusal.code != RefusalCode::AlreadyDone || signal != KILL {
            return Err(call.refusal(&refusal));
        }
    }
    match call.dialect.number() {
        42.. => Ok(answer(call, &[])),
        _ => call.done(),
    }
}

fn signal(text: &str) -> Result<u32, CallFailure> {
    let signal = values::signal(text).filter(|number| *number > 0);
    signal
        .ok_or_else(|| CallFailure::malformed("signal", format!("'{text}' is not a valid signal")))
}

fn scope(text: &str) -> Result<SignalScope, CallFailure> {
    let mut scope = SignalScope::Steps;
    for word in text.split(',') {
        scope = match word.to_ascii_uppercase().as_str() {
            "BATCH_JOB" => SignalScope::Batch,
            "FULL_JOB" | "FULL_STEPS_ONLY" => SignalScope::Full,
            "ARRAY_TASK" | "NO_SIGNAL_FAIL" | "VERBOSE" => scope,
            _ => {
                let why = format!("'{word}': expected BATCH_JOB or FULL_JOB");
                return Err(CallFailure::malformed("flags", why));
            }
        };
    }
    Ok(scope)
}

/// Sends one request; which jobs refuse it, and why.
fn send(
    call: &mut Call<'_>,
    selection: JobSelection,
    signal: u32,
    scope: SignalScope,
) -> Result<Vec<(String, Refusal)>, CallFailure> {
    let command = match (signal, scope) {
        (KILL, SignalScope::Steps) => UserCommand::Cancel { selection },
        _ => UserCommand::Signal {
            selection,
            signal,
            scope,
        },
    };
    let reply = call.ask(|client| match client.command(command) {
        Err(ConnectError::Refused(refusal)) => Ok(vec![(String::new(), refusal)]),
        Err(error) => Err(error),
        Ok(Reply::Done { refused, .. }) => Ok(refused),
        Ok(other) => Err(unexpected(&Response::Reply(Box::new(other)))),
    })?;
    Ok(reply)
}

/// Keys that the body of `DELETE jobs` may have.
const KNOWN: [&str; 14] = [
    "account",
    "flags",
    "job_name",
    "jobs",
    "partition",
    "qos",
    "reservation",
    "signal",
    "job_state",
    "user_id",
    "user_name",
    "wckey",
    "nodes",
    "cron",
];

/// `DELETE jobs`: conditions are in the body, or in the query where a client cannot send a body.
pub(super) fn many(call: &mut Call<'_>) -> Outcome {
    debug_assert_eq!(call.operation.method, Method::Delete);
    let conditions = conditions(call);
    let selection = read_selection(&conditions)?;
    if selection == JobSelection::default() {
        // Nothing said is not everything.
        return Err(CallFailure::malformed(
            "jobs",
            "no condition chooses the jobs",
        ));
    }
    let signal = match condition(&conditions, "signal")? {
        Some(name) => signal(&name)?,
        None => KILL,
    };
    let flags = condition(&conditions, "flags")?;
    let scope = flags.map_or(Ok(SignalScope::Steps), |flags| scope(&flags))?;
    let refused = send(call, selection, signal, scope)?;
    for (name, refusal) in &refused {
        call.errors.push(Problem {
            number: errno::of(refusal.code),
            text: refusal.code.text().to_owned(),
            description: format!("job {name}: {}", refusal.code.text()),
            source: call.operation.call.to_owned(),
        });
    }
    Ok(answer(call, &refused))
}

/// The document with the jobs that refuse.
fn answer(call: &mut Call<'_>, refused: &[(String, Refusal)]) -> String {
    call.document(&call.context(), |w| {
        w.list("status", |w| {
            for (name, refusal) in refused {
                w.item(|w| {
                    w.map("error", |w| {
                        w.text("string", refusal.code.text());
                        w.raw("code", errno::of(refusal.code));
                        w.text("message", &refusal.detail);
                    });
                    w.text("step_id", name);
                    let digits = name.split(['_', '.', '+']).next().unwrap_or("");
                    w.limit("job_id", digits.parse().ok(), false);
                    w.map("federation", |w| w.text("sibling", ""));
                });
            }
        });
    })
}

fn condition(conditions: &Map<String, Value>, name: &str) -> Result<Option<String>, CallFailure> {
    let found = text_of(conditions, name);
    found.map_err(|error| CallFailure::malformed(name, error.why))
}

/// Which jobs conditions choose.
fn read_selection(conditions: &Map<String, Value>) -> Result<JobSelection, CallFailure> {
    let text = |name: &str| condition(conditions, name);
    if let Some(other) = conditions.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        // A condition that is not understood would choose too many jobs.
        return Err(CallFailure::malformed(
            other,
            format!("{other} is not a valid condition"),
        ));
    }
    let mut selection = JobSelection {
        account: text("account")?,
        name: text("job_name")?,
        partition: text("partition")?,
        qos: text("qos")?,
        reservation: text("reservation")?,
        wckey: text("wckey")?,
        ..JobSelection::default()
    };
    if let Some(nodes) = text("nodes")? {
        let parsed = hostlist::parse_limited(&nodes, QUERY_ITEMS_MAX);
        selection.nodes = parsed.map_err(|e| CallFailure::malformed("nodes", e.to_string()))?;
    }
    if let Some(user) = text("user_id")?.or(text("user_name")?) {
        let unknown = || CallFailure::malformed("user_name", format!("there is no user {user}"));
        selection.uid = Some(uid_of(&user).ok_or_else(unknown)?);
    }
    if let Some(name) = text("job_state")? {
        let states = [JobState::Pending, JobState::Running, JobState::Suspended];
        let state = states
            .into_iter()
            .find(|s| s.name().eq_ignore_ascii_case(&name));
        let expected =
            || CallFailure::malformed("job_state", "expected PENDING, RUNNING or SUSPENDED");
        selection.state = Some(state.ok_or_else(expected)?);
    }
    let names = text("jobs")?.unwrap_or_default();
    selection.targets = targets(&names)?;
    Ok(selection)
}

/// Jobs and tasks of a list, as many as fit into a request: a few characters can stand for a million tasks.
fn targets(names: &str) -> Result<Vec<JobTarget>, CallFailure> {
    let mut targets = Vec::new();
    let mut items = 0;
    for name in split_outside_brackets(names) {
        let target: JobTarget = job_target(name).ok_or_else(|| no_job(name))?;
        let ranges = target.tasks.iter().flat_map(|tasks| tasks.ranges());
        items += 1 + 2 * ranges.count();
        if items > REQUEST_ITEMS_MAX || targets.len() >= QUERY_ITEMS_MAX {
            let why = "more jobs and tasks are named than a request may have";
            return Err(CallFailure::malformed("jobs", why.to_owned()));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn conditions(call: &mut Call<'_>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, value) in &call.query {
        match all.get_mut(name) {
            // A parameter that is there more than once is a list.
            Some(Value::Array(items)) => items.push(value.as_str().into()),
            Some(before) => *before = vec![before.take(), value.as_str().into()].into(),
            None => drop(all.insert(name.clone(), value.as_str().into())),
        }
    }
    if let Value::Object(body) = std::mem::take(&mut call.body) {
        for (name, value) in body {
            if member(&all, &name).is_none() {
                all.insert(name, value);
            }
        }
    }
    all
}

/// Splits at commas that are not within brackets.
fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let parts = text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth <= 0 && c == ','
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_as_many_as_a_request_may_have() {
        let count = |names: &str| targets(names).map(|all| all.len());
        assert!(matches!(count("1,2_[1-3,5],3_*,4+1"), Ok(4)));
        // Half a million ranges for each.
        let strided = "1_[0-1000000:2]";
        assert!(matches!(count(strided), Ok(1)));
        assert!(count(&[strided; 3].join(",")).is_err());
    }
}
