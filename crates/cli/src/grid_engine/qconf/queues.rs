//! Queues, which are partitions: what adds, changes and deletes them becomes a request of scontrol, so that the controller decides who
//! may. An attribute that a partition does not have is refused by name, with the place where there is one.

use super::{ClusterData, change, tables};
use crate::connect::{Client, ConnectError};
use crate::editor;
use crate::grid_engine::{fail, unreachable};
use crate::say;
use crate::submit::line;
use muster_conf::grid_engine::ALL_HOSTS;
use muster_conf::grid_engine::Mapping;
use muster_conf::grid_engine::resources;
use muster_model::command::{Reply, UserCommand};
use muster_model::config::PartitionConfig;
use muster_model::hostlist::compress;
use muster_model::refusal::RefusalCode;
use muster_model::time::TimeLimit;
use muster_trust::host::short_name;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

/// The largest file that is read, bytes: a queue of many hosts by name.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Attributes and their values, in the order of the text.
pub(super) type Attributes = Vec<(String, String)>;

/// Options that are carried out here, and what follows each.
const CARRIED_OUT: [(&str, &str); 13] = [
    ("aq", "[queue]"),
    ("Aq", "file"),
    ("mq", "queue"),
    ("Mq", "file"),
    ("dq", "queues"),
    ("mattr", "queue attribute value queues"),
    ("aattr", "queue attribute value queues"),
    ("dattr", "queue attribute value queues"),
    ("rattr", "queue attribute value queues"),
    ("Mattr", "queue file queues"),
    ("Aattr", "queue file queues"),
    ("Dattr", "queue file queues"),
    ("Rattr", "queue file queues"),
];

/// Carries out an option about queues; `None` for other options.
pub(super) fn run(option: &str, values: &[String]) -> Option<Result<ExitCode, ExitCode>> {
    let name = option.strip_prefix('-')?;
    let (_, form) = CARRIED_OUT.iter().find(|(own, _)| *own == name)?;
    let of_object = form.starts_with("queue ");
    let object = values.first().map_or("", String::as_str);
    if of_object && !matches!(object, "queue" | "") {
        return None;
    }
    let words = form.split(' ').count();
    let least = words - usize::from(form.starts_with('['));
    if !(least..=words).contains(&values.len()) {
        let why = format!("qconf: option \"{option}\" is followed by: {form}");
        return Some(Err(fail(&why, 1)));
    }
    let value = |at: usize| values.get(at).map_or("", String::as_str);
    if of_object {
        let pairs = match words {
            4 => Ok(vec![(value(1).to_owned(), value(2).to_owned())]),
            _ => read(value(1)).and_then(|text| parse(&text)),
        };
        let queues = value(words - 1);
        let changed = pairs.map_err(|why| fail(&why, 1));
        return Some(changed.and_then(|pairs| change_each(&name[..1], &pairs, queues)));
    }
    Some(ClusterData::load().and_then(|shown| {
        let mut changes = QueueChanges::new(&shown)?;
        let done = match name {
            "aq" => changes.edit_new(value(0)),
            "Aq" => read(value(0)).and_then(|text| changes.add(&text)),
            "mq" => changes.edit(value(0)),
            "Mq" => read(value(0)).and_then(|text| changes.modify(&text, None)),
            _ => changes.delete(value(0)),
        };
        match done {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(why) => Err(fail(&why, 1)),
        }
    }))
}

/// Most repetitions of a change of a list, because another user has changed the list since it was read.
const CHANGES_MAX: u32 = 20;

/// Changes attributes of several queues. What is added to a list or taken from it is that of the list as it is then: the controller
/// refuses a change of a list that has changed since it was read, and the change is made of the new one. No other is.
fn change_each(
    operation: &str,
    pairs: &[(String, String)],
    queues: &str,
) -> Result<ExitCode, ExitCode> {
    for queue in queues.split(',') {
        let mut left = CHANGES_MAX;
        loop {
            left -= 1;
            let shown = ClusterData::load()?;
            let mut changes = QueueChanges::new(&shown)?;
            let done = changes.change_attributes(operation, pairs, queue);
            let is_list = |(name, _): &(String, String)| LISTS.contains(&name.as_str());
            let is_repeated =
                matches!(operation, "a" | "A" | "d" | "D") && pairs.iter().all(is_list);
            match done {
                Ok(()) => break,
                Err(_) if is_repeated && changes.is_outdated && left > 0 => {}
                Err(why) => return Err(fail(&why, 1)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a file.
fn read(path: &str) -> Result<String, String> {
    let shown = Path::new(path).display();
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("error opening {shown}: {e}"))?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("error reading {shown}: {e}"))?;
    Ok(text)
}

/// The attributes of a text as `qconf -sq` prints it: a line each, which a backslash continues.
///
/// # Errors
/// An attribute is not one of a queue, has no value, or is there twice.
pub(super) fn parse(text: &str) -> Result<Attributes, String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    let mut all = Attributes::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let value = words.collect::<Vec<_>>().join(" ");
        if !tables::QUEUE.iter().any(|(own, _)| *own == name) {
            return Err(format!("unknown attribute name \"{name:.80}\""));
        }
        if value.is_empty() {
            return Err(format!("attribute \"{name}\" has no value"));
        }
        if all.iter().any(|(own, _)| own == name) {
            return Err(format!("attribute \"{name}\" is there twice"));
        }
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

/// The words of a list; none for `NONE`.
fn words(list: &str) -> Vec<&str> {
    let words = list.split([' ', ',']).filter(|word| !word.is_empty());
    words
        .filter(|word| !word.eq_ignore_ascii_case("NONE"))
        .collect()
}

/// Whether two values of an attribute mean the same.
fn is_same(name: &str, old: &str, new: &str) -> bool {
    match name {
        "h_rt" => resources::time(name, Some(old)) == resources::time(name, Some(new)),
        "shell" | "tmpdir" | "prolog" | "epilog" | "calendar" => old == new,
        _ => {
            let (mut old, mut new) = (words(old), words(new));
            old.sort_unstable();
            new.sort_unstable();
            let pairs = old.iter().zip(&new);
            old.len() == new.len() && { pairs }.all(|(a, b)| a.eq_ignore_ascii_case(b))
        }
    }
}

/// Where the setting that an attribute maps to is changed.
fn place(name: &str) -> &'static str {
    match name {
        "qname" => "a queue keeps its name: add another and delete this one",
        "pe_list" => "all queues have all parallel environments, the pe lines of sge.conf",
        "rerun" => "JobRequeue of slurm.conf, or qsub -r",
        "tmpdir" => "TmpFS of slurm.conf",
        "prolog" | "epilog" => "Prolog and Epilog of slurm.conf",
        "complex_values" => "Gres of NodeName lines and Licenses of slurm.conf",
        "subordinate_list" => "PreemptMode and PriorityTier of PartitionName lines of slurm.conf",
        "seq_no" => "Weight of NodeName lines of slurm.conf",
        "owner_list" => "operators: qconf -ao",
        "xuser_lists" => "name those who may use the queue in user_lists",
        "initial_state" => "qmod -d and qmod -e",
        "starter_method" | "suspend_method" | "resume_method" | "terminate_method" => {
            "there are no methods; PrologSlurmctld, Prolog and TaskProlog of slurm.conf run programs"
        }
        "load_thresholds" | "suspend_thresholds" | "nsuspend" | "suspend_interval" => {
            "nodes take jobs by their CPUs and memory, not by load"
        }
        "shell" | "shell_start_mode" => "the first line of the script, or qsub -S",
        "ckpt_list" => "there are no checkpointing environments",
        "s_rt" => "qsub -l s_rt",
        name if name.starts_with("h_") || name.starts_with("s_") => {
            "DefMemPerCPU and MaxMemPerCPU of PartitionName lines of slurm.conf, or qsub -l"
        }
        _ => "partitions have nothing like it",
    }
}

/// The fields of a partition that make a queue with these attributes into one with others.
///
/// # Errors
/// What of it a partition cannot have, a line each.
pub(super) fn fields(
    queue: &str,
    old: &Attributes,
    new: &Attributes,
    mapping: &Mapping,
) -> Result<Vec<(String, String)>, String> {
    let (mut fields, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in new {
        let before = old.iter().find(|(own, _)| own == name);
        let before = before.map_or("", |(_, value)| value.as_str());
        if is_same(name, before, value) {
            continue;
        }
        match field(name, value, mapping) {
            Ok((key, value)) => fields.push((key.to_owned(), value)),
            Err(why) if name == "calendar" => refused.push(why),
            Err(why) => {
                let line = format!("denied: {name} {value} of queue \"{queue}\": {why}");
                refused.push(line);
            }
        }
    }
    match refused.is_empty() {
        true => Ok(fields),
        false => Err(refused.join("\n")),
    }
}

/// A field of a partition as it is, which the controller compares with its own when the change arrives.
fn as_read(partition: &PartitionConfig, key: &str) -> (String, String) {
    let value = match key {
        "Nodes" => compress(&partition.nodes),
        "AllowGroups" => partition.allow_groups.join(","),
        "AllowAccounts" => partition.allow_accounts.join(","),
        "DenyAccounts" => partition.deny_accounts.join(","),
        "MaxTime" => match partition.max_time {
            TimeLimit::Minutes(minutes) => minutes.to_string(),
            TimeLimit::Unlimited => UNLIMITED.to_owned(),
        },
        "Calendar" => {
            let calendar = partition.calendar.as_ref();
            calendar.map_or_else(|| "NONE".to_owned(), |own| own.calendar.text())
        }
        _ => {
            let most = partition.max_cpus_per_node;
            most.map_or_else(|| UNLIMITED.to_owned(), |most| most.to_string())
        }
    };
    (key.to_owned(), value)
}

/// No limit, in fields of partitions.
const UNLIMITED: &str = "UNLIMITED";

/// An attribute as a field of a partition.
fn field(name: &str, value: &str, mapping: &Mapping) -> Result<(&'static str, String), String> {
    let is_plain_list = matches!(name, "hostlist" | "user_lists" | "projects" | "xprojects");
    if value.contains('[') && !is_plain_list {
        return Err("hosts of a queue have no values of their own".to_owned());
    }
    let list = |none: &str| match words(value).join(",") {
        list if list.is_empty() => Ok(none.to_owned()),
        list => change::names(&list),
    };
    let accounts = |none: &str| {
        let list = list(none)?;
        let all = list.split(',').map(|own| change::account_of(mapping, own));
        Ok::<_, String>(all.collect::<Vec<_>>().join(","))
    };
    match name {
        "hostlist" => Ok(("Nodes", hosts(value, mapping)?)),
        "user_lists" => Ok(("AllowGroups", list("ALL")?)),
        "projects" => Ok(("AllowAccounts", accounts("ALL")?)),
        "xprojects" => Ok(("DenyAccounts", accounts("")?)),
        "calendar" if value.eq_ignore_ascii_case("NONE") => Ok(("Calendar", "NONE".to_owned())),
        "calendar" => {
            let missing = || format!("Calendar \"{value}\" does not exist");
            let calendar = mapping.calendar(value).ok_or_else(missing)?;
            Ok(("Calendar", calendar.text()))
        }
        "h_rt" => {
            let limit = resources::time(name, Some(value))?;
            let minutes = limit.map(|seconds| seconds.div_ceil(60).max(1).to_string());
            Ok(("MaxTime", minutes.unwrap_or_else(|| UNLIMITED.to_owned())))
        }
        "slots" => {
            let slots: u32 = value
                .parse()
                .map_err(|_| "it is a number of slots on each host".to_owned())?;
            Ok(("MaxCPUsPerNode", slots.to_string()))
        }
        name => Err(place(name).to_owned()),
    }
}

/// Hosts as a hostlist, with those of host groups as they are now.
fn hosts(value: &str, mapping: &Mapping) -> Result<String, String> {
    let all = words(value);
    if all == [ALL_HOSTS] {
        return Ok("ALL".to_owned());
    }
    // Hostlists are as they are.
    if value.contains('[') {
        return Ok(all.join(","));
    }
    if all.contains(&ALL_HOSTS) {
        return Err(format!(
            "{ALL_HOSTS} has all hosts, and needs none beside it"
        ));
    }
    let mut hosts = mapping.expanded_hosts(&all, &[])?;
    let mut known = HashSet::new();
    hosts.retain(|host| known.insert(host.clone()));
    Ok(compress(&hosts))
}

/// A new value of a list, after the operation that the first letter of an option names.
///
/// # Errors
/// An element to be added is there, or one to be removed is not.
fn combined(
    operation: &str,
    name: &str,
    queue: &str,
    old: &str,
    new: &str,
) -> Result<String, String> {
    let mut all = words(old);
    let of = format!("of \"{queue}\"");
    for word in words(new) {
        if name == "hostlist" && word == ALL_HOSTS {
            all = match operation.eq_ignore_ascii_case("d") {
                true => Vec::new(),
                false => vec![word],
            };
            continue;
        }
        let known = all.iter().position(|own| own.eq_ignore_ascii_case(word));
        match (operation.to_ascii_lowercase().as_str(), known) {
            ("d", Some(at)) => {
                all.remove(at);
            }
            ("d", None) => return Err(format!("\"{word}\" does not exist in \"{name}\" {of}")),
            ("a", Some(_)) => return Err(format!("\"{word}\" already exists in \"{name}\" {of}")),
            (_, Some(_)) => {}
            (_, None) => all.push(word),
        }
    }
    Ok(match all.is_empty() {
        true => "NONE".to_owned(),
        false => all.join(" "),
    })
}

/// Names whose values are lists.
const LISTS: [&str; 4] = ["hostlist", "user_lists", "projects", "xprojects"];

/// Changes of queues, with the known partitions.
struct QueueChanges<'a> {
    shown: &'a ClusterData,
    client: Client,
    who: String,
    /// A change was refused because its basis has changed.
    is_outdated: bool,
}

impl<'a> QueueChanges<'a> {
    fn new(shown: &'a ClusterData) -> Result<QueueChanges<'a>, ExitCode> {
        let user = line::user(&nix::unistd::getuid().to_string());
        Ok(QueueChanges {
            shown,
            client: Client::connect().map_err(|e| unreachable(&e))?,
            who: user.map(|user| user.name).unwrap_or_default(),
            is_outdated: false,
        })
    }

    fn find(&self, queue: &str) -> Option<(String, &'a PartitionConfig)> {
        let mut all = self.shown.queues().into_iter();
        all.find(|(name, _)| name == queue)
    }

    fn existing(&self, queue: &str) -> Result<(String, &'a PartitionConfig), String> {
        if queue.contains('@') {
            return Err(format!(
                "denied: \"{queue}\": hosts of a queue have no values of their own"
            ));
        }
        let missing = || format!("denied: cluster queue \"{queue}\" does not exist");
        self.find(queue).ok_or_else(missing)
    }

    /// Attributes of a queue as they are now.
    fn attributes(&self, queue: &str, partition: &PartitionConfig) -> Result<Attributes, String> {
        parse(&self.shown.queue_text(queue, partition))
    }

    /// The text for a queue that is not there yet.
    fn template(&self, name: &str) -> String {
        let partition = PartitionConfig::named(name);
        self.shown.queue_text(name, &partition)
    }

    fn edit_new(&mut self, name: &str) -> Result<(), String> {
        let name = if name.is_empty() { "template" } else { name };
        let edited = editor::edit("qconf", "queue", &self.template(name))?;
        let text = read(&edited.path().to_string_lossy())?;
        self.add(&text)
    }

    fn edit(&mut self, queue: &str) -> Result<(), String> {
        let (name, partition) = self.existing(queue)?;
        let text = self.shown.queue_text(&name, partition);
        let edited = editor::edit("qconf", "queue", &text)?;
        let text = read(&edited.path().to_string_lossy())?;
        self.modify(&text, Some(queue))
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let mut wanted = parse(text)?;
        let queue = name_in(&wanted)?;
        if self.find(&queue).is_some() {
            return Err(format!("cluster queue \"{queue}\" already exists"));
        }
        let mut fields = Vec::new();
        wanted.retain(|(name, value)| {
            let is_disabled = name == "initial_state" && value == "disabled";
            if is_disabled {
                fields.push(("State".to_owned(), "DOWN".to_owned()));
            }
            !is_disabled
        });
        let known = parse(&self.template(&queue))?;
        fields.extend(self::fields(&queue, &known, &wanted, &self.shown.mapping)?);
        let partition = self.partition_name(&queue);
        let command = UserCommand::CreatePartition {
            name: partition,
            pairs: fields,
        };
        let who = self.who_and_where();
        self.send(
            command,
            &format!("{who} added \"{queue}\" to cluster queue list"),
        )
    }

    /// The partition that a queue is, or would be.
    fn partition_name(&self, queue: &str) -> String {
        let mut mapped = self.shown.mapping.queues.iter();
        let mapped = mapped.find(|(own, _)| own == queue);
        mapped.map_or(queue, |(_, partition)| partition).to_owned()
    }

    fn modify(&mut self, text: &str, only: Option<&str>) -> Result<(), String> {
        let wanted = parse(text)?;
        let queue = name_in(&wanted)?;
        if only.is_some_and(|only| only != queue) {
            return Err(format!("denied: qname {queue}: {}", place("qname")));
        }
        self.change(&queue, &wanted)
    }

    fn change(&mut self, queue: &str, wanted: &Attributes) -> Result<(), String> {
        let (name, partition) = self.existing(queue)?;
        let known = self.attributes(&name, partition)?;
        let pairs = fields(&name, &known, wanted, &self.shown.mapping)?;
        let read = pairs.iter().map(|(key, _)| as_read(partition, key));
        let command = UserCommand::UpdatePartition {
            name: partition.name.clone(),
            read: read.collect(),
            pairs,
        };
        let who = self.who_and_where();
        self.send(
            command,
            &format!("{who} modified \"{name}\" in cluster queue list"),
        )
    }

    fn change_attributes(
        &mut self,
        operation: &str,
        pairs: &[(String, String)],
        queue: &str,
    ) -> Result<(), String> {
        let (name, partition) = self.existing(queue)?;
        let known = self.attributes(&name, partition)?;
        let mut wanted = Attributes::new();
        for (attribute, value) in pairs {
            let before = known.iter().find(|(own, _)| own == attribute);
            let Some((_, before)) = before else {
                return Err(format!("unknown attribute name \"{attribute:.80}\""));
            };
            let is_list = LISTS.contains(&attribute.as_str());
            // Single hosts can be removed from all hosts.
            let hosts = partition.nodes.join(" ");
            let before = match attribute == "hostlist" {
                true => &hosts,
                false => before,
            };
            let value = match operation {
                "r" | "R" => value.clone(),
                "d" | "D" if !is_list => {
                    return Err(format!("denied: {attribute} of \"{name}\" is no list"));
                }
                _ if is_list => combined(operation, attribute, &name, before, value)?,
                _ => value.clone(),
            };
            wanted.push((attribute.clone(), value));
        }
        self.change(queue, &wanted)
    }

    fn delete(&mut self, queues: &str) -> Result<(), String> {
        for queue in queues.split(',') {
            let (name, partition) = self.existing(queue)?;
            let command = UserCommand::DeletePartition {
                name: partition.name.clone(),
            };
            let who = self.who_and_where();
            self.send(
                command,
                &format!("{who} removed \"{name}\" from cluster queue list"),
            )?;
        }
        Ok(())
    }

    fn who_and_where(&self) -> String {
        format!("{}@{}", self.who, short_name())
    }

    fn send(&mut self, command: UserCommand, done: &str) -> Result<(), String> {
        let refusal = match self.client.command(command) {
            Ok(Reply::Done { refused, .. }) => refused.into_iter().next().map(|(_, why)| why),
            Ok(_) => None,
            Err(ConnectError::Refused(refusal)) => Some(refusal),
            Err(error) => return Err(format!("error: {error}")),
        };
        match refusal {
            None => {
                say::stdout(&format!("{done}\n"));
                Ok(())
            }
            Some(refusal) if refusal.code == RefusalCode::AccessDenied => {
                let who = &self.who;
                Err(format!(
                    "denied: \"{who}\" must be manager for this operation"
                ))
            }
            Some(refusal) => {
                self.is_outdated |= refusal.code == RefusalCode::Busy;
                Err(format!("denied: {refusal}"))
            }
        }
    }
}

/// The name of the queue that attributes are about.
fn name_in(attributes: &Attributes) -> Result<String, String> {
    let found = attributes.iter().find(|(own, _)| own == "qname");
    let (_, name) = found.ok_or("attribute \"qname\" is missing")?;
    let is_list = name.contains(',') || name.contains('@');
    match is_list {
        true => Err(format!("\"{name}\" is not a valid name of a queue")),
        false => change::names(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Attributes {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(own).collect()
    }

    fn changed(new: &[(&str, &str)]) -> Result<String, String> {
        let mapping = Mapping::parse("project p12 physics\n", "f").0;
        let old = pairs(&[
            ("qname", "long.q"),
            ("hostlist", "n1 n2"),
            ("slots", "8"),
            ("shell", "/bin/sh"),
            ("pe_list", "smp mpi"),
            ("user_lists", "NONE"),
            ("projects", "NONE"),
            ("xprojects", "chem"),
            ("h_rt", "01:00:00"),
            ("h_vmem", "INFINITY"),
        ]);
        let fields = fields("long.q", &old, &pairs(new), &mapping)?;
        let texts = fields.iter().map(|(key, value)| format!("{key}={value}"));
        Ok(texts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn attributes_become_fields_of_a_partition() {
        for (new, want) in [
            (&[][..], ""),
            // Equal values in other words.
            (
                &[
                    ("hostlist", "n2,n1"),
                    ("h_rt", "3600"),
                    ("pe_list", "mpi smp"),
                    ("user_lists", "none"),
                ],
                "",
            ),
            (&[("hostlist", "@allhosts")], "Nodes=ALL"),
            (&[("hostlist", "n1, n3")], "Nodes=n[1,3]"),
            (&[("hostlist", "n1 n2 n3 n4 x")], "Nodes=n[1-4],x"),
            (&[("hostlist", "n[1,2,3,4]")], "Nodes=n[1,2,3,4]"),
            (&[("hostlist", "NONE")], "Nodes="),
            (&[("h_rt", "0:0:61")], "MaxTime=2"),
            (&[("h_rt", "INFINITY")], "MaxTime=UNLIMITED"),
            (&[("slots", "4")], "MaxCPUsPerNode=4"),
            (
                &[
                    ("user_lists", "staff guests"),
                    ("projects", "p12"),
                    ("xprojects", "NONE"),
                ],
                "AllowGroups=staff,guests AllowAccounts=physics DenyAccounts=",
            ),
        ] {
            assert_eq!(changed(new).as_deref(), Ok(want), "{new:?}");
        }
    }

    #[test]
    fn what_a_partition_does_not_have_is_refused_with_its_place() {
        let why = changed(&[("shell", "/bin/csh"), ("h_vmem", "4G"), ("slots", "4")]).unwrap_err();
        assert_eq!(
            why,
            "denied: shell /bin/csh of queue \"long.q\": the first line of the script, or qsub -S\n\
             denied: h_vmem 4G of queue \"long.q\": DefMemPerCPU and MaxMemPerCPU of PartitionName lines of slurm.conf, or qsub -l"
        );
        for (name, value, part) in [
            ("slots", "4,[n1=8]", "no values of their own"),
            ("slots", "x", "a number of slots"),
            ("h_rt", "x", "not a time value"),
            (
                "hostlist",
                "@others n1",
                "host group \"@others\" does not exist",
            ),
            ("pe_list", "smp", "the pe lines of sge.conf"),
            ("user_lists", "a=b", "not a valid list of names"),
        ] {
            let why = changed(&[(name, value)]).unwrap_err();
            assert!(why.contains(part), "{name} {value}: {why}");
        }
    }

    #[test]
    fn texts_are_read_as_they_are_printed() {
        let text = "# a queue\nqname   long.q\nhostlist  n1 \\\n   n2\n\nslots 4\n";
        let read = pairs(&[("qname", "long.q"), ("hostlist", "n1 n2"), ("slots", "4")]);
        assert_eq!(parse(text), Ok(read));
        for (text, why) in [
            ("nosuch 1\n", "unknown attribute name \"nosuch\""),
            ("slots\n", "attribute \"slots\" has no value"),
            ("slots 1\nslots 2\n", "attribute \"slots\" is there twice"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()));
        }
        assert!(name_in(&pairs(&[("slots", "1")])).is_err());
        assert!(name_in(&pairs(&[("qname", "a@b")])).is_err());
    }

    #[test]
    fn lists_are_added_to_and_taken_from() {
        let of = |operation, old, new| combined(operation, "hostlist", "all.q", old, new);
        assert_eq!(of("a", "n1", "n2,n3").as_deref(), Ok("n1 n2 n3"));
        assert_eq!(of("m", "n1", "n1 n2").as_deref(), Ok("n1 n2"));
        assert_eq!(of("d", "n1 n2", "n1,n2").as_deref(), Ok("NONE"));
        assert_eq!(of("a", "n1", "@allhosts").as_deref(), Ok("@allhosts"));
        assert_eq!(of("d", "n1 n2", "@allhosts").as_deref(), Ok("NONE"));
        assert_eq!(
            of("d", "n1", "n3").unwrap_err(),
            "\"n3\" does not exist in \"hostlist\" of \"all.q\""
        );
        assert_eq!(
            of("a", "n1", "n1").unwrap_err(),
            "\"n1\" already exists in \"hostlist\" of \"all.q\""
        );
    }
}
