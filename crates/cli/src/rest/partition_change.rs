//! Partitions that are made, changed and deleted, as `scontrol create`, `update` and `delete partition` do it: a body has the keys
//! that an answer has, at the same places.

use super::account_change::{member_at, records};
use super::call::{Call, CallFailure, Outcome};
use super::value::{self, GivenValue};
use crate::listing::query;
use muster_model::command::UserCommand;
use serde_json::{Map, Value};

/// Where a setting of a partition is in a record, and the key of scontrol for it.
const SETTINGS: &[(&str, &str)] = &[
    ("accounts/allowed", "AllowAccounts"),
    ("accounts/deny", "DenyAccounts"),
    ("defaults/memory_per_cpu", "DefMemPerCPU"),
    ("defaults/time", "DefaultTime"),
    ("grace_time", "GraceTime"),
    ("groups/allowed", "AllowGroups"),
    ("maximums/cpus_per_node", "MaxCPUsPerNode"),
    ("maximums/cpus_per_socket", "MaxCPUsPerSocket"),
    ("maximums/memory_per_cpu", "MaxMemPerCPU"),
    ("maximums/nodes", "MaxNodes"),
    ("maximums/over_time_limit", "OverTimeLimit"),
    ("maximums/time", "MaxTime"),
    ("minimums/nodes", "MinNodes"),
    ("nodes/allowed_allocation", "AllocNodes"),
    ("nodes/configured", "Nodes"),
    ("partition/state", "State"),
    ("priority/job_factor", "PriorityJobFactor"),
    ("priority/tier", "PriorityTier"),
    ("qos/allowed", "AllowQos"),
    ("qos/assigned", "QOS"),
    ("qos/deny", "DenyQos"),
];

/// `POST partitions`.
pub(super) fn many(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["partitions"])?;
    let mut ctx = call.context();
    call.ask(|client| query::cluster(client, &mut ctx))?;
    let mut known: Vec<String> = ctx.partitions.iter().map(|p| p.name.clone()).collect();
    for record in &records {
        let name = match record.get("name").and_then(Value::as_str) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => return Err(CallFailure::malformed("name", "a record has no name")),
        };
        super::account_change::warn_of_unread(call, record, "", &|path| {
            path == "name" || SETTINGS.iter().any(|(own, _)| *own == path)
        });
        let pairs = pairs(record)?;
        let command = match known.contains(&name) {
            true => UserCommand::UpdatePartition {
                name,
                pairs,
                read: Vec::new(),
            },
            false => {
                known.push(name.clone());
                UserCommand::CreatePartition { name, pairs }
            }
        };
        call.carry_out(command)?;
    }
    call.done()
}

/// `DELETE partition/{partition_name}`.
pub(super) fn delete(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    call.carry_out(UserCommand::DeletePartition { name })?;
    call.done()
}

fn pairs(record: &Map<String, Value>) -> Result<Vec<(String, String)>, CallFailure> {
    let mut pairs = Vec::new();
    for (path, key) in SETTINGS {
        let Some(value) = member_at(record, path) else {
            continue;
        };
        let bad = |why: &str| CallFailure::malformed(path, format!("{path}: {why}"));
        let text = match value::read(value).map_err(bad)? {
            GivenValue::Infinite => "UNLIMITED".to_owned(),
            given if given.is_empty() => continue,
            given => given.text().unwrap_or_default(),
        };
        if text.chars().any(char::is_control) {
            return Err(bad("it has a character that no setting has"));
        }
        // A state has flags beside it in answers, which are no settings.
        let text = match *key {
            "State" => text.split(',').next().unwrap_or_default().to_owned(),
            _ => text,
        };
        pairs.push(((*key).to_owned(), text));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_fields_of_scontrol() {
        for (path, key) in SETTINGS {
            let fields = crate::scontrol::partition::FIELDS;
            assert!(
                fields.iter().any(|(name, _)| name == key),
                "{path} -> {key}"
            );
        }
        let record = serde_json::json!({"maximums": {"time": {"set": false, "infinite": true, "number": 0},
            "nodes": {"set": true, "number": 3}}, "partition": {"state": ["DOWN"]}, "qos": {"deny": ""}});
        let pairs = pairs(record.as_object().unwrap()).unwrap();
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(pairs, ["MaxNodes=3", "MaxTime=UNLIMITED", "State=DOWN"]);
    }
}
