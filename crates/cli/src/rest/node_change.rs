//! Changes of nodes.

use super::call::{Call, CallFailure, Outcome};
use super::job_keys::text_of;
use crate::scontrol::nodes;
use muster_model::command::{NodeUpdate, UserCommand};
use muster_model::limits::HOSTLIST_BYTES_MAX;
use serde_json::{Map, Value};

/// `POST node/{node_name}`.
pub(super) fn one(call: &mut Call<'_>) -> Outcome {
    let body = body(call)?;
    let nodes = call.name().to_owned();
    change(call, nodes, &body)
}

/// `POST nodes`.
pub(super) fn many(call: &mut Call<'_>) -> Outcome {
    let body = body(call)?;
    let nodes = text_of(&body, "name").map_err(|e| CallFailure::malformed(&e.key, e.why))?;
    match nodes {
        Some(nodes) => change(call, nodes, &body),
        None => Err(CallFailure::malformed(
            "name",
            "the body does not name the nodes",
        )),
    }
}

/// `DELETE node/{node_name}`.
pub(super) fn delete(call: &mut Call<'_>) -> Outcome {
    let nodes = call.name().to_owned();
    call.carry_out(UserCommand::DeleteNodes { nodes })?;
    call.done()
}

/// `POST new/node`: a line as slurm.conf has it, of which the host's own slurm.conf has the defaults.
pub(super) fn make(call: &mut Call<'_>) -> Outcome {
    let body = body(call)?;
    let key = "node_conf";
    let line = text_of(&body, key).map_err(|e| CallFailure::malformed(&e.key, e.why))?;
    let line = line.ok_or_else(|| CallFailure::malformed(key, "the body has no node_conf"))?;
    if line.len() > HOSTLIST_BYTES_MAX || line.chars().any(char::is_control) {
        let why = "expected one line such as NodeName=n9 CPUs=4 State=CLOUD";
        return Err(CallFailure::malformed(key, why));
    }
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let command = nodes::creation(&words).map_err(|why| CallFailure::malformed(key, why))?;
    call.carry_out(command)?;
    call.done()
}

fn body(call: &mut Call<'_>) -> Result<Map<String, Value>, CallFailure> {
    match std::mem::take(&mut call.body) {
        Value::Object(body) => Ok(body),
        _ => Err(CallFailure::malformed(
            "body",
            "the body is not an object with a node's keys",
        )),
    }
}

fn change(call: &mut Call<'_>, nodes: String, body: &Map<String, Value>) -> Outcome {
    let text = |name: &str| {
        text_of(body, name)
            .map_err(|e| CallFailure::malformed(&e.key, format!("{name}: {}", e.why)))
    };
    const KEYS: [&str; 14] = [
        "name",
        "state",
        "reason",
        "reason_uid",
        "weight",
        "features",
        "features_act",
        "comment",
        "cpu_bind",
        "extra",
        "gres",
        "address",
        "hostname",
        "resume_after",
    ];
    for key in body.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        call.warn(
            key,
            format!("{key} is not a key of a node that can be changed, and has no effect"),
        );
    }
    for key in ["extra", "gres", "address", "hostname", "resume_after"] {
        if text(key)?.is_some() {
            let why = format!("{key} cannot be changed here; it is set in slurm.conf");
            return Err(CallFailure::malformed(key, why));
        }
    }
    let mut update = NodeUpdate {
        reason: text("reason")?,
        comment: text("comment")?,
        cpu_bind: text("cpu_bind")?,
        ..NodeUpdate::default()
    };
    if let Some(states) = text("state")? {
        let mut words = states.split(',').filter(|word| !word.is_empty());
        update.state = words.next().map(str::to_ascii_uppercase);
        if words.next().is_some() {
            return Err(CallFailure::malformed(
                "state",
                "one state at a time can be set",
            ));
        }
    }
    if let Some(weight) = text("weight")? {
        let number = weight.parse();
        update.weight =
            Some(number.map_err(|_| CallFailure::malformed("weight", "expected a number"))?);
    }
    if let Some(features) = text("features")?.or(text("features_act")?) {
        let words = features.split(',').filter(|word| !word.is_empty());
        update.features = Some(words.map(str::to_owned).collect());
    }
    if update == NodeUpdate::default() {
        return Err(CallFailure::malformed(
            "body",
            "the body has no key that changes a node",
        ));
    }
    call.carry_out(UserCommand::UpdateNodes { nodes, update })?;
    call.done()
}
