//! `scontrol create` and `update PartitionName=`. Keys and values are the core's to judge; here lists are added to and taken from.

use super::Session;
use super::update::Pair;
use crate::connect::{ConnectError, unexpected};
use crate::options::OptionStatus;
use muster_model::command::UserCommand;
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::{Query, Response};

/// So many letters of a field's name may stand for it.
const LETTERS_MIN: usize = 3;
const CONF: OptionStatus = OptionStatus::Refused("set it in slurm.conf, then scontrol reconfigure");

/// Fields of `update PartitionName=`, and their effects here.
pub(crate) const FIELDS: &[(&str, OptionStatus)] = &[
    ("PartitionName", OptionStatus::Works),
    ("AllocNodes", OptionStatus::Works),
    ("AllowAccounts", OptionStatus::Works),
    ("AllowGroups", OptionStatus::Works),
    ("AllowQos", OptionStatus::Works),
    ("Alternate", OptionStatus::Works),
    ("Calendar", OptionStatus::Works),
    ("CpuBind", OptionStatus::Works),
    ("Default", OptionStatus::Works),
    ("DefaultTime", OptionStatus::Works),
    ("DefMemPerCPU", OptionStatus::Works),
    ("DefMemPerNode", OptionStatus::Works),
    ("DenyAccounts", OptionStatus::Works),
    ("DenyQos", OptionStatus::Works),
    ("DisableRootJobs", OptionStatus::Works),
    ("ExclusiveUser", OptionStatus::Works),
    ("GraceTime", OptionStatus::Works),
    ("Hidden", OptionStatus::Works),
    ("JobDefaults", OptionStatus::Works),
    ("LLN", OptionStatus::Works),
    ("MaxCPUsPerNode", OptionStatus::Works),
    ("MaxCPUsPerSocket", OptionStatus::Works),
    ("MaxMemPerCPU", OptionStatus::Works),
    ("MaxMemPerNode", OptionStatus::Works),
    ("MaxNodes", OptionStatus::Works),
    ("MaxTime", OptionStatus::Works),
    ("MinNodes", OptionStatus::Works),
    ("Nodes", OptionStatus::Works),
    ("OverSubscribe", OptionStatus::Works),
    ("OverTimeLimit", OptionStatus::Works),
    ("PreemptMode", OptionStatus::Works),
    ("PriorityJobFactor", OptionStatus::Works),
    ("PriorityTier", OptionStatus::Works),
    ("Priority", OptionStatus::Works),
    ("QOS", OptionStatus::Works),
    ("ReqResv", OptionStatus::Works),
    ("RootOnly", OptionStatus::Works),
    ("Shared", OptionStatus::Works),
    ("State", OptionStatus::Works),
    ("TRESBillingWeights", OptionStatus::Works),
    ("ExclusiveTopo", CONF),
    ("PowerDownOnIdle", CONF),
    ("ResumeTimeout", CONF),
    ("SuspendTime", CONF),
    ("SuspendTimeout", CONF),
];

/// The field of a key, which may be the beginning of one field's name.
fn field(key: &str) -> Option<&'static (&'static str, OptionStatus)> {
    let whole = FIELDS.iter().find(|(k, _)| k.eq_ignore_ascii_case(key));
    let begins = |(name, _): &&(&str, OptionStatus)| {
        let start = name.get(..key.len());
        key.len() >= LETTERS_MIN && start.is_some_and(|start| start.eq_ignore_ascii_case(key))
    };
    whole.or_else(|| {
        let mut all = FIELDS.iter().filter(begins);
        all.next().filter(|_| all.next().is_none())
    })
}

/// Fields of a partition in a specification.
struct PartitionFields {
    name: String,
    changes: Vec<(String, String)>,
    /// Lists that changes were made of, as they were.
    read: Vec<(String, String)>,
}

impl Session {
    /// Sends the changes of a partition.
    pub(super) fn update_partition(&mut self, pairs: &[Pair]) {
        let Some(PartitionFields {
            name,
            changes,
            read,
        }) = self.partition_fields(pairs)
        else {
            return;
        };
        if changes.is_empty() {
            return self.error("No changes specified");
        }
        self.send_update(UserCommand::UpdatePartition {
            name,
            pairs: changes,
            read,
        });
    }

    /// Sends a partition to make.
    pub(super) fn create_partition(&mut self, pairs: &[Pair]) {
        if let Some(pair) = pairs.iter().find(|p| p.sign.is_some()) {
            return self.bad_value(
                pair,
                "Key=Value: there is nothing to add to or take from yet",
            );
        }
        let Some(fields) = self.partition_fields(pairs) else {
            return;
        };
        let name = fields.name;
        if name.is_empty() {
            return self.complain("PartitionName must be given.");
        }
        if name.eq_ignore_ascii_case("DEFAULT") {
            return self.complain("PartitionName cannot be \"DEFAULT\".");
        }
        let command = UserCommand::CreatePartition {
            name,
            pairs: fields.changes,
        };
        self.send_change(command, "Error creating the partition");
    }

    /// Name and fields of a specification; without an answer its error has been printed.
    fn partition_fields(&mut self, pairs: &[Pair]) -> Option<PartitionFields> {
        let mut name = String::new();
        let (mut changes, mut read) = (Vec::new(), Vec::new());
        for pair in pairs {
            if pair.is("partitionname", 3) && !pair.key.starts_with("prio") {
                name.clone_from(&pair.value);
                continue;
            }
            let Some((key, status)) = field(&pair.key) else {
                self.not_supported(pair, None);
                return None;
            };
            if let OptionStatus::Refused(why) = status {
                self.not_supported(pair, Some(why));
                return None;
            }
            if *key == "State" && !self.partition_state(pair) {
                return None;
            }
            let value = match pair.sign {
                None => pair.value.clone(),
                Some(sign) => match self.combined(&name, key, sign, &pair.value) {
                    Ok((before, value)) => {
                        read.push(((*key).to_owned(), before));
                        value
                    }
                    Err(error) => {
                        self.request_failed("slurm_update error", &error);
                        return None;
                    }
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
        Some(PartitionFields {
            name,
            changes,
            read,
        })
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

    /// A list as it is, and with something added or taken away.
    fn combined(
        &mut self,
        partition: &str,
        key: &str,
        sign: char,
        value: &str,
    ) -> Result<(String, String), ConnectError> {
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
                let why = format!("{key} is not a list: use {key}=");
                return Err(Refusal::new(RefusalCode::InvalidValue, why).into());
            }
        };
        let named = hostlist::parse(value)
            .map_err(|e| Refusal::new(RefusalCode::InvalidValue, e.to_string()))?;
        let text = |list: &[String]| match key.ends_with("odes") {
            true => hostlist::compress(list),
            false => list.join(","),
        };
        let before = text(&list);
        Ok((before, text(&changed_list(key, list, sign, named)?)))
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

/// A list with names added to it or taken away. The last name of a list of those who are allowed stays: an empty list allows all.
fn changed_list(
    key: &str,
    mut list: Vec<String>,
    sign: char,
    named: Vec<String>,
) -> Result<Vec<String>, Refusal> {
    let had_names = !list.is_empty();
    if sign == '+' {
        let new: Vec<String> = named.into_iter().filter(|n| !list.contains(n)).collect();
        list.extend(new);
    } else {
        list.retain(|n| !named.contains(n));
    }
    if had_names && list.is_empty() && key.starts_with("All") {
        let why = format!(
            "{key} would be empty, which allows all: use {key}=ALL if that is meant, or State=DRAIN"
        );
        return Err(Refusal::new(RefusalCode::InvalidValue, why));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taking away the last account, group, QOS or host that a partition allowed opened it to all.
    #[test]
    fn the_last_name_that_is_allowed_stays() {
        let changed = |key, list: &[&str], sign, named: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            changed_list(key, owned(list), sign, owned(named)).map(|list| list.join(","))
        };
        assert_eq!(
            changed("AllocNodes", &["a", "b"], '-', &["a"]),
            Ok("b".to_owned())
        );
        for key in ["AllocNodes", "AllowAccounts", "AllowGroups", "AllowQos"] {
            let refused = changed(key, &["a", "b"], '-', &["a", "b"]).unwrap_err();
            assert_eq!(refused.code, RefusalCode::InvalidValue);
            assert_eq!(changed(key, &[], '-', &["a"]), Ok(String::new()));
        }
        assert_eq!(
            changed("DenyAccounts", &["a"], '-', &["a"]),
            Ok(String::new())
        );
        assert_eq!(changed("Nodes", &["a"], '+', &["a"]), Ok("a".to_owned()));
    }
}
