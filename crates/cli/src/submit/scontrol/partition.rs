//! `scontrol update PartitionName=`. Keys and values are the core's to judge; here lists are added to and taken from.

use super::Session;
use super::update::Pair;
use crate::connect::{ConnectError, unexpected};
use muster_core::command::UserCommand;
use muster_core::config::PartitionConfig;
use muster_core::hostlist;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_proto::client::{Query, Response};

/// Keys of slurm.conf's partition lines.
const KEYS: [&str; 33] = [
    "AllocNodes",
    "AllowAccounts",
    "AllowGroups",
    "AllowQos",
    "Alternate",
    "CpuBind",
    "Default",
    "DefaultTime",
    "DefMemPerCPU",
    "DefMemPerNode",
    "DenyAccounts",
    "DenyQos",
    "DisableRootJobs",
    "ExclusiveUser",
    "GraceTime",
    "Hidden",
    "JobDefaults",
    "LLN",
    "MaxCPUsPerNode",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MaxNodes",
    "MaxTime",
    "MinNodes",
    "Nodes",
    "OverSubscribe",
    "OverTimeLimit",
    "PreemptMode",
    "PriorityJobFactor",
    "PriorityTier",
    "QOS",
    "State",
    "TRESBillingWeights",
];
const MORE_KEYS: [&str; 4] = ["ReqResv", "RootOnly", "Shared", "Priority"];

impl Session {
    /// Sends the changes of a partition.
    pub(super) fn update_partition(&mut self, pairs: &[Pair]) {
        let mut name = String::new();
        let mut changes = Vec::new();
        for pair in pairs {
            if pair.is("partitionname", 3) && !pair.key.starts_with("prio") {
                name.clone_from(&pair.value);
                continue;
            }
            let known = KEYS
                .iter()
                .chain(&MORE_KEYS)
                .find(|k| k.eq_ignore_ascii_case(&pair.key));
            let Some(key) = known else {
                return self.not_supported(pair, None);
            };
            if *key == "State" && !self.partition_state(pair) {
                return;
            }
            let value = match pair.sign {
                None => pair.value.clone(),
                Some(sign) => match self.combined(&name, key, sign, &pair.value) {
                    Ok(value) => value,
                    Err(error) => return self.request_failed("slurm_update error", &error),
                },
            };
            // Priority is the old name of the tier.
            let key = if *key == "Priority" {
                "PriorityTier"
            } else {
                key
            };
            changes.push((key.to_owned(), value));
        }
        if changes.is_empty() {
            return self.error("No changes specified");
        }
        self.send_update(UserCommand::UpdatePartition {
            name,
            pairs: changes,
        });
    }

    fn partition_state(&mut self, pair: &Pair) -> bool {
        let known = ["UP", "DOWN", "DRAIN", "INACTIVE"]
            .iter()
            .any(|s| s.eq_ignore_ascii_case(&pair.value));
        if !known {
            self.error(&format!("Invalid input: {}", pair.text));
            self.error("Acceptable State values are UP, DOWN, DRAIN and INACTIVE");
        }
        known
    }

    /// A list with something added or taken away.
    fn combined(
        &mut self,
        partition: &str,
        key: &str,
        sign: char,
        value: &str,
    ) -> Result<String, ConnectError> {
        let known = self.partition(partition)?;
        let list = match key {
            "Nodes" => known.nodes,
            "AllowAccounts" => known.allow_accounts,
            "AllowGroups" => known.allow_groups,
            "AllowQos" => known.allow_qos,
            "DenyAccounts" => known.deny_accounts,
            "DenyQos" => known.deny_qos,
            "AllocNodes" => known.alloc_nodes,
            _ => {
                let why = format!("{key} is no list: use {key}=");
                return Err(Refusal::new(RefusalCode::InvalidValue, why).into());
            }
        };
        let named = hostlist::parse(value)
            .map_err(|e| Refusal::new(RefusalCode::InvalidValue, e.to_string()))?;
        let mut list = list;
        if sign == '+' {
            let new: Vec<String> = named.into_iter().filter(|n| !list.contains(n)).collect();
            list.extend(new);
        } else {
            list.retain(|n| !named.contains(n));
        }
        Ok(if key.ends_with("odes") {
            hostlist::compress(&list)
        } else {
            list.join(",")
        })
    }

    fn partition(&mut self, name: &str) -> Result<PartitionConfig, ConnectError> {
        let client = self.client()?;
        let mut answer = client.query(Query::Cluster)?;
        let mut found = None;
        loop {
            match answer {
                Response::Cluster(part) => {
                    found = found.or(part.partitions.into_iter().find(|p| p.name == name));
                    if !part.more {
                        break;
                    }
                }
                other => return Err(unexpected(&other)),
            }
            answer = client.receive()?;
        }
        found.ok_or_else(|| Refusal::from(RefusalCode::InvalidPartition).into())
    }
}
