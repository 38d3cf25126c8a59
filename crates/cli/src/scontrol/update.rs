//! `scontrol update`, `create`, `delete`: the entities to change, and node changes.

use super::{Session, nodes};
use crate::connect::ConnectError;
use crate::options::OptionStatus;
use muster_model::command::{NodeUpdate, Reply, UserCommand};

/// One `Key=Value`, `Key+=Value` or `Key-=Value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    /// As written.
    pub(crate) text: String,
    /// The key, in lower case, without its sign.
    pub(super) key: String,
    /// `+` or `-`.
    pub(super) sign: Option<char>,
    /// The value.
    pub(super) value: String,
}

impl Pair {
    /// A field without a sign.
    pub(crate) fn new(key: &str, value: String) -> Pair {
        Pair {
            text: format!("{key}={value}"),
            key: key.to_ascii_lowercase(),
            sign: None,
            value,
        }
    }

    fn read(word: &str) -> Option<Pair> {
        let (key, value) = word.split_once('=').or_else(|| {
            // Keys that may have no value.
            let known = ["ResetAccrueTime", "Nice"];
            let is_known = known.iter().any(|name| word.eq_ignore_ascii_case(name));
            is_known.then_some((word, ""))
        })?;
        let (key, sign) = match key.strip_suffix('+') {
            Some(key) => (key, Some('+')),
            None => match key.strip_suffix('-') {
                Some(key) => (key, Some('-')),
                None => (key, None),
            },
        };
        Some(Pair {
            text: word.to_owned(),
            key: key.to_ascii_lowercase(),
            sign,
            value: value.to_owned(),
        })
    }

    /// Whether the key is `name`, in any case, or a beginning of it that has `letters` at least.
    pub(super) fn is_named(&self, name: &str, letters: usize) -> bool {
        self.is(&name.to_ascii_lowercase(), letters)
    }

    /// Whether the key is `name` or a beginning of it that has `letters` at least.
    pub(super) fn is(&self, name: &str, letters: usize) -> bool {
        self.key == name || (self.key.len() >= letters && name.starts_with(&self.key))
    }
}

/// Entity of a specification.
enum UpdatedEntity {
    Job,
    Node,
    Partition,
    Reservation,
    Step,
    Controller,
    Other,
}

fn entity(pairs: &[Pair]) -> UpdatedEntity {
    for pair in pairs {
        // A job's fields may have the names of other entities.
        if pair.is("jobid", 3) || pair.is("jobname", 4) {
            return UpdatedEntity::Job;
        }
        if pair.is("nodename", 3) || pair.key == "nodes" && pairs.len() == 1 {
            return UpdatedEntity::Node;
        }
        if pair.is("partitionname", 10) {
            return UpdatedEntity::Partition;
        }
        if pair.is("stepid", 4) {
            return UpdatedEntity::Step;
        }
        if pair.is("reservationname", 12) {
            return UpdatedEntity::Reservation;
        }
    }
    // Short forms that are keys of other entities too count only when nothing clearer is there.
    match pairs.first() {
        Some(pair) if pair.is("partitionname", 3) => UpdatedEntity::Partition,
        Some(pair) if pair.is("reservationname", 3) => UpdatedEntity::Reservation,
        Some(pair) if pair.key == "name" => UpdatedEntity::Job,
        Some(pair) if pair.is("slurmctlddebug", 2) && pairs.len() == 1 => UpdatedEntity::Controller,
        _ => UpdatedEntity::Other,
    }
}

/// Entity of `create` and `delete`, in full or by its first three letters.
fn parse_entity(word: &str) -> Option<UpdatedEntity> {
    let word = word.to_ascii_lowercase();
    let known = |name: &str| word.len() >= 3 && name.starts_with(&word);
    if known("partitionname") {
        Some(UpdatedEntity::Partition)
    } else if known("reservationname") {
        Some(UpdatedEntity::Reservation)
    } else if known("nodename") || word == "nodes" {
        Some(UpdatedEntity::Node)
    } else {
        None
    }
}

/// A field of `scontrol update`: its name, its least letters, its effect here.
pub(crate) struct UpdateField {
    pub(crate) name: &'static str,
    pub(crate) letters: usize,
    pub(crate) status: OptionStatus,
}

const fn works(name: &'static str, letters: usize) -> UpdateField {
    UpdateField {
        name,
        letters,
        status: OptionStatus::Works,
    }
}

const fn refused(name: &'static str, why: &'static str) -> UpdateField {
    UpdateField {
        name,
        letters: usize::MAX,
        status: OptionStatus::Refused(why),
    }
}

const FEATURES: OptionStatus =
    OptionStatus::Partly("features that are available and those that are active are the same list");
const CONF: &str = "set it in slurm.conf, then scontrol reconfigure";
const NOT_KEPT: &str = "nodes do not keep this";

/// Fields of `update NodeName=`.
pub(crate) const NODE_FIELDS: &[UpdateField] = &[
    works("NodeName", 3),
    UpdateField {
        name: "State",
        letters: 1,
        status: OptionStatus::Partly(
            "DOWN, DRAIN, FAIL, RESUME, IDLE, UNDRAIN, POWER_UP, POWER_DOWN, POWER_DOWN_ASAP, POWER_DOWN_FORCE; scontrol reboot reboots nodes; scontrol create makes nodes",
        ),
    },
    works("Reason", 1),
    works("Weight", 1),
    UpdateField {
        name: "ActiveFeatures",
        letters: 3,
        status: FEATURES,
    },
    UpdateField {
        name: "AvailableFeatures",
        letters: 3,
        status: FEATURES,
    },
    UpdateField {
        name: "Features",
        letters: 1,
        status: FEATURES,
    },
    works("Comment", 1),
    refused(
        "Gres",
        "Invalid generic resource (gres) specification: devices are those of slurm.conf and gres.conf; change them there, then scontrol reconfigure",
    ),
    refused("NodeAddr", "agents tell where they are when they connect"),
    refused(
        "NodeHostname",
        "agents tell where they are when they connect",
    ),
    works("CpuBind", 7),
    refused("Extra", NOT_KEPT),
    refused("ResumeAfter", NOT_KEPT),
    refused("InstanceId", NOT_KEPT),
    refused("InstanceType", NOT_KEPT),
    refused("CertToken", NOT_KEPT),
    refused("Topology", CONF),
];

/// Whether nodes are to be taken out of service without saying why: a reason that they had before is of another time.
fn lacks_reason(update: &NodeUpdate) -> bool {
    let is_out = matches!(update.state.as_deref(), Some("DOWN" | "DRAIN" | "FAIL"));
    is_out && update.reason.as_deref().is_none_or(str::is_empty)
}

impl Session {
    /// `update ...`.
    pub(super) fn update(&mut self, words: &[String]) {
        if words.is_empty() {
            return self.complain("too few arguments for update keyword");
        }
        // A word without a value means something for reservations only.
        let skips = |word: &&String| !word.eq_ignore_ascii_case("skip");
        let mut words_with_values: Vec<String> = words.iter().filter(skips).cloned().collect();
        // `update job 12 ...` is `update job=12 ...`.
        if let [entity, name, ..] = words_with_values.as_slice()
            && !entity.contains('=')
            && !name.contains('=')
        {
            let named = format!("{entity}={name}");
            words_with_values.splice(..2, [named]);
        }
        let Some(pairs) = self.pairs(&words_with_values) else {
            return;
        };
        match entity(&pairs) {
            UpdatedEntity::Job => self.update_job(&pairs),
            UpdatedEntity::Node => self.update_node(&pairs),
            UpdatedEntity::Partition => self.update_partition(&pairs),
            UpdatedEntity::Step => self.update_step(&pairs),
            UpdatedEntity::Controller => {
                let level = pairs.first().map(|p| p.value.clone());
                self.set_debug(&level.unwrap_or_default(), None);
            }
            UpdatedEntity::Reservation => self.update_reservation(words),
            UpdatedEntity::Other => {
                self.complain("No valid entity in update command");
                self.complain(
                    "Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", \"JobId\", or \
                     \"SlurmctldDebug\"",
                );
            }
        }
    }

    /// `create ...`.
    pub(super) fn create(&mut self, words: &[String]) {
        // The entity may come before its fields as a word of its own.
        let bare = &words[..usize::from(!words[0].contains('='))];
        let Some(pairs) = self.pairs(&words[bare.len()..]) else {
            return;
        };
        let first = bare.first().map(String::as_str);
        let names = pairs.iter().map(|p| p.key.as_str());
        let named: Vec<UpdatedEntity> = first
            .into_iter()
            .chain(names)
            .filter_map(parse_entity)
            .collect();
        // A reservation may name nodes and a partition, and Nodes= is a field of a partition too.
        let named_any = |wanted: fn(&UpdatedEntity) -> bool| named.iter().any(wanted);
        let reservation = named_any(|e| matches!(e, UpdatedEntity::Reservation));
        let partition = named_any(|e| matches!(e, UpdatedEntity::Partition));
        match named.first() {
            Some(_) if reservation => self.create_reservation(&words[bare.len()..]),
            Some(_) if partition => self.create_partition(&pairs),
            Some(UpdatedEntity::Node) => match nodes::creation(words) {
                Ok(command) => self.send_change(command, "Error creating node(s)"),
                Err(why) => self.error(&why),
            },
            Some(_) | None => self.error(&format!("Invalid creation entity: {}", words[0])),
        }
    }

    /// `reboot [ASAP] [nextstate=STATE] [reason=TEXT] NODES`.
    pub(super) fn reboot(&mut self, words: &[String]) {
        let (mut asap, mut down_after, mut reason, mut nodes) = (false, false, None, None);
        for word in words {
            let lower = word.to_ascii_lowercase();
            match (lower.as_str(), word.split_once('=')) {
                ("asap", None) if nodes.is_none() => asap = true,
                ("nextstate=resume", _) => down_after = false,
                ("nextstate=down", _) => down_after = true,
                (_, Some((key, value))) if key.eq_ignore_ascii_case("reason") => {
                    reason = Some(value.to_owned());
                }
                (_, Some(_)) => {
                    return self.complain(&format!(
                        "Invalid input: {word} (nextstate=RESUME or DOWN, reason=TEXT)"
                    ));
                }
                (_, None) => nodes = Some(word.clone()),
            }
        }
        let Some(nodes) = nodes else {
            return self.complain("Missing node name(s)");
        };
        let command = UserCommand::Reboot {
            nodes,
            asap,
            down_after,
            reason,
        };
        self.send_change(command, "scontrol_reboot_nodes error");
    }

    /// `delete ENTITY=ID` or `delete ENTITY ID`.
    pub(super) fn delete(&mut self, words: &[String]) {
        let (entity, id) = match (words[0].split_once('='), words.get(1)) {
            (Some((entity, id)), None) => (entity, id),
            (None, Some(id)) => (words[0].as_str(), id.as_str()),
            _ => {
                return self
                    .error("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'");
            }
        };
        match parse_entity(entity) {
            Some(UpdatedEntity::Partition) => {
                let name = id.to_owned();
                let prefix = format!("delete_partition {}", words[0]);
                self.send_change(UserCommand::DeletePartition { name }, &prefix);
            }
            Some(UpdatedEntity::Node) => {
                let nodes = id.to_owned();
                let prefix = format!("delete_node {}", words[0]);
                self.send_change(UserCommand::DeleteNodes { nodes }, &prefix);
            }
            Some(_) => self.delete_reservation(id, words),
            None => self.complain(&format!("Invalid deletion entity: {}", words[0])),
        }
    }

    fn pairs(&mut self, words: &[String]) -> Option<Vec<Pair>> {
        let mut pairs = Vec::with_capacity(words.len());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            // `priority 10` is `priority=10`.
            let value = words.clone().next().filter(|next| !next.contains('='));
            let joined = value
                .filter(|_| !word.contains('=') && !word.eq_ignore_ascii_case("ResetAccrueTime"));
            let pair = match joined {
                Some(value) => {
                    words.next();
                    Pair::read(&format!("{word}={value}"))
                }
                None => Pair::read(word),
            };
            match pair {
                Some(pair) => pairs.push(pair),
                None => {
                    self.complain(&format!("Invalid input: {word}"));
                    self.complain("Request aborted");
                    return None;
                }
            }
        }
        Some(pairs)
    }

    fn update_node(&mut self, pairs: &[Pair]) {
        let mut update = NodeUpdate::default();
        let mut nodes = String::new();
        for pair in pairs {
            let value = pair.value.clone();
            let known = NODE_FIELDS
                .iter()
                .find(|f| pair.is_named(f.name, f.letters));
            let Some(field) = known else {
                return self.not_supported(pair, None);
            };
            if let OptionStatus::Refused(why) = field.status {
                return self.not_supported(pair, Some(why));
            }
            match field.name {
                "NodeName" => nodes = value,
                "State" => {
                    if !self.node_state(&mut update, pair) {
                        return;
                    }
                }
                "Reason" => update.reason = Some(value.trim_matches(['"', '\'']).to_owned()),
                "Weight" => match value.parse() {
                    Ok(weight) => update.weight = Some(weight),
                    Err(_) => {
                        self.error(&format!("Weight value ({value}) is not a valid number"));
                        return self.complain("No changes specified");
                    }
                },
                "ActiveFeatures" | "AvailableFeatures" | "Features" => {
                    let list = value.split(',').filter(|f| !f.is_empty());
                    update.features = Some(list.map(str::to_owned).collect());
                }
                "Comment" => update.comment = Some(value),
                "CpuBind" => update.cpu_bind = Some(value),
                _ => return self.not_supported(pair, None),
            }
        }
        if update == NodeUpdate::default() {
            return self.complain("No changes specified");
        }
        if lacks_reason(&update) {
            self.complain(
                "You must specify a reason when DOWNING or DRAINING a node. Request denied",
            );
            return;
        }
        self.send_update(UserCommand::UpdateNodes { nodes, update });
    }

    fn node_state(&mut self, update: &mut NodeUpdate, pair: &Pair) -> bool {
        const STATES: [(&str, usize); 14] = [
            ("NORESP", 3),
            ("DRAIN", 3),
            ("FAIL", 3),
            ("DOWN", 3),
            ("IDLE", 3),
            ("FUTURE", 3),
            ("RESUME", 3),
            ("UNDRAIN", 3),
            ("POWER_DOWN", 10),
            ("POWER_UP", 8),
            ("POWER_DOWN_ASAP", 12),
            ("POWER_DOWN_FORCE", 12),
            ("CANCEL_REBOOT", 3),
            ("REBOOT", 6),
        ];
        let upper = pair.value.to_ascii_uppercase();
        let known = STATES.iter().find(|(name, letters)| {
            *name == upper || (upper.len() >= *letters && name.starts_with(&upper))
        });
        match known {
            Some((name, _)) => update.state = Some((*name).to_owned()),
            None => {
                self.complain(&format!("Invalid input: {}", pair.text));
                self.complain("Request aborted");
                self.complain("Valid states are: DOWN DRAIN FAIL IDLE RESUME UNDRAIN POWER_DOWN POWER_DOWN_ASAP POWER_DOWN_FORCE POWER_UP");
                self.complain("Not all states are valid given a node's prior state");
            }
        }
        known.is_some()
    }

    /// Sends an update that is done or refused as a whole.
    pub(super) fn send_update(&mut self, command: UserCommand) {
        self.send_change(command, "slurm_update error");
    }

    /// Sends a command that is done or refused as a whole; a refusal is printed behind `prefix`.
    pub(super) fn send_change(&mut self, command: UserCommand, prefix: &str) {
        let result = self.client().and_then(|c| c.command(command));
        match result {
            Ok(Reply::Done { refused, .. }) => {
                for (_, refusal) in refused {
                    self.request_failed(prefix, &ConnectError::Refused(refusal));
                }
            }
            Ok(other) => self.error(&format!("unexpected answer {other:.60?}")),
            Err(error) => self.request_failed(prefix, &error),
        }
    }

    /// An unknown key, or one that cannot be changed here.
    pub(super) fn not_supported(&mut self, pair: &Pair, why: Option<&str>) {
        if let Some(why) = why {
            self.error(why);
        }
        self.complain(&format!(
            "Update of this parameter is not supported: {}",
            pair.text
        ));
        self.complain("Request aborted");
    }

    /// A value that cannot be read.
    pub(super) fn bad_value(&mut self, pair: &Pair, expected: &str) {
        self.error(&format!(
            "Invalid value in {}: expected {expected}",
            pair.text
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        let p = Pair::read("TimeLimit+=5").unwrap();
        assert_eq!(
            (p.key.as_str(), p.sign, p.value.as_str()),
            ("timelimit", Some('+'), "5")
        );
        let p = Pair::read("Comment=a=b").unwrap();
        assert_eq!(
            (p.key.as_str(), p.sign, p.value.as_str()),
            ("comment", None, "a=b")
        );
        assert_eq!(Pair::read("x"), None);
        assert!(
            p.is("comment", 3) && !p.is("com", 3) && Pair::read("comm=1").unwrap().is("comment", 3)
        );
    }

    #[test]
    fn nodes_are_taken_out_of_service_for_a_reason() {
        let update = |state: &str, reason: Option<&str>| NodeUpdate {
            state: Some(state.to_owned()),
            reason: reason.map(str::to_owned),
            ..NodeUpdate::default()
        };
        for state in ["DOWN", "DRAIN", "FAIL"] {
            assert!(lacks_reason(&update(state, None)), "{state}");
            assert!(lacks_reason(&update(state, Some(""))), "{state}");
            assert!(!lacks_reason(&update(state, Some("disk"))), "{state}");
        }
        assert!(!lacks_reason(&update("RESUME", None)));
        assert!(!lacks_reason(&NodeUpdate::default()));
    }

    #[test]
    fn entities() {
        let of = |words: &[&str]| {
            let pairs: Vec<Pair> = words.iter().map(|w| Pair::read(w).unwrap()).collect();
            match entity(&pairs) {
                UpdatedEntity::Job => "job",
                UpdatedEntity::Node => "node",
                UpdatedEntity::Partition => "partition",
                UpdatedEntity::Reservation => "reservation",
                UpdatedEntity::Step => "step",
                UpdatedEntity::Controller => "controller",
                UpdatedEntity::Other => "other",
            }
        };
        assert_eq!(of(&["jobid=1", "partition=x"]), "job");
        assert_eq!(of(&["partition=x", "jobid=1"]), "job");
        assert_eq!(of(&["JobName=x", "comment=1"]), "job");
        assert_eq!(of(&["NodeName=n1", "state=drain"]), "node");
        assert_eq!(of(&["partitionname=p", "state=up"]), "partition");
        assert_eq!(of(&["partition=p", "state=up"]), "partition");
        assert_eq!(of(&["ReservationName=r"]), "reservation");
        assert_eq!(of(&["StepId=5.0", "TimeLimit=3"]), "step");
        assert_eq!(of(&["SlurmctldDebug=debug"]), "controller");
        assert_eq!(of(&["foo=1"]), "other");
    }
}
