//! Loads slurm.conf: sorts pairs into global settings and node, partition and other lines, checks every value against
//! the key tables, and fills the typed [`Config`]. Never stops at an error and never panics: a wrong value becomes a
//! [`Diagnostic`] and takes its default.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, Origin};
use crate::keys::{self, Key, KeyStatus, Kind, Table};
use crate::model::{
    ClusterLimits, Config, ControlHost, Paths, PriorityType, Propagate, SchedulerType,
    SelectParameters, SelectType, SelectUnit, Setting, Timeouts,
};
use crate::reader::{Reader, Record, Settings};
use crate::slurmctld_parameters::RateLimits;
use crate::source::{self, LogicalLine, Pair, ReadFile};
use crate::{nodes, partitions, value};
use muster_model::config::EnforcePartLimits;

/// Loads a configuration from disk.
pub fn load(path: &Path) -> (Config, Vec<Diagnostic>) {
    load_with(path, &source::read_from_disk)
}

/// Loads a configuration from text, as if it were the file at `path`. Includes are not found.
pub fn load_text(path: &Path, text: &str) -> (Config, Vec<Diagnostic>) {
    load_with(path, &|wanted| match wanted == path {
        true => Ok(text.as_bytes().to_vec()),
        false => Err(io::Error::from(io::ErrorKind::NotFound)),
    })
}

/// Loads a configuration by way of the caller's own file reader.
pub fn load_with(path: &Path, read: ReadFile<'_>) -> (Config, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let lines = source::read_lines(path, read, &mut findings);
    let mut found = CheckedLines::default();
    let mut checker = Checker::new(&mut findings);
    for line in lines {
        found.take(line, &mut checker);
    }
    let whole = Origin {
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
    };
    let unreadable = found
        .is_empty()
        .then(|| findings.list.first().cloned())
        .flatten();
    let config = build(path, &whole, found, &mut findings);
    match unreadable {
        // Missing settings of an unreadable file are not worth reporting.
        Some(finding) if finding.origin.line == 0 => (config, vec![finding]),
        _ => (config, findings.sorted()),
    }
}

/// Checks pairs against key tables; says once for each key that it has no effect.
pub(crate) struct Checker<'a> {
    pub(crate) findings: &'a mut Findings,
    reported: BTreeSet<(&'static str, &'static str)>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(findings: &'a mut Findings) -> Checker<'a> {
        Checker {
            findings,
            reported: BTreeSet::new(),
        }
    }

    /// The key and setting of a pair; `None`, with a finding, where the key is unknown or the value
    /// is wrong. `what` names the kind of line in messages.
    pub(crate) fn check(
        &mut self,
        pair: &Pair,
        table: &'static Table,
        what: &'static str,
    ) -> Option<(&'static Key, Setting)> {
        let Some(key) = table.find(&pair.key) else {
            self.unknown(pair, table, what);
            return None;
        };
        let blank_is_fine = matches!(
            key.kind,
            Kind::Text | Kind::Path | Kind::Program | Kind::List | Kind::Hosts | Kind::Secret
        );
        if pair.value.is_empty() && !blank_is_fine {
            let message = format!("{} has no value", key.name);
            self.findings
                .error(&pair.origin, key.name, message, describe(key));
            return None;
        }
        match key.kind.check(&pair.value) {
            Ok(later) => self.status(key, pair, &later, what),
            // A plugin of Slurm that Muster does not use at all may be any plugin.
            Err(_) if is_unused_plugin(key) => self.status(key, pair, &[], what),
            Err(error) => {
                let (message, help) = match key.status {
                    KeyStatus::Protection(why) => (
                        format!("{}={} is not supported: {why}", key.name, pair.value),
                        format!("remove {} if the site can do without it", key.name),
                    ),
                    _ => (format!("{}: {error}", key.name), describe(key)),
                };
                self.findings.error(&pair.origin, key.name, message, help);
                return None;
            }
        }
        Some((
            key,
            Setting {
                value: pair.value.clone(),
                origin: pair.origin.clone(),
            },
        ))
    }

    fn unknown(&mut self, pair: &Pair, table: &'static Table, what: &'static str) {
        let (name, origin) = (&pair.key, &pair.origin);
        let message = format!("unknown key `{name}` in {what}");
        let is_global = std::ptr::eq(table, &*keys::SLURM);
        let help = match nearest(table, name) {
            Some(near) => format!("did you mean `{near}`?"),
            None if !is_global && keys::SLURM.find(name).is_some() => {
                format!("`{name}` belongs on a line of its own")
            }
            None if is_global && keys::NODE.find(name).is_some() => {
                format!("`{name}` belongs on a NodeName line")
            }
            None if is_global && keys::PARTITION.find(name).is_some() => {
                format!("`{name}` belongs on a PartitionName line")
            }
            None => "docs/compat.md lists the keys; remove this one if it is not needed".to_owned(),
        };
        self.findings.error(origin, name, message, help);
    }

    /// Says so, once, if the key asks for something that Muster does not do.
    fn status(&mut self, key: &'static Key, pair: &Pair, later: &[String], what: &'static str) {
        let asks_for_nothing = asks_for_default(key, &pair.value) && later.is_empty();
        if asks_for_nothing || self.reported.contains(&(what, key.name)) {
            return;
        }
        let name = key.name;
        match key.status {
            KeyStatus::Honoured if later.is_empty() => return,
            KeyStatus::NoEffect(why) | KeyStatus::Protection(why) => {
                let message = format!("{name} has no effect in Muster: {why}");
                self.findings
                    .add(crate::Severity::NoEffect, &pair.origin, name, message, "");
            }
            KeyStatus::Later(note) if later.is_empty() => {
                let message = format!("{name} is not implemented yet and is ignored");
                self.findings.warn(&pair.origin, name, message, note);
            }
            KeyStatus::Honoured | KeyStatus::Later(_) => {
                let words = later.join(",");
                let message = format!("{name}: {words} is not implemented yet and is ignored");
                self.findings.warn(&pair.origin, name, message, "");
            }
        }
        self.reported.insert((what, name));
    }
}

/// The keys of which each line adds a program.
const ADDING_KEYS: [&str; 2] = ["Epilog", "Prolog"];

/// The keys that begin a line of their own kind.
const LINE_KEYS: [&str; 5] = [
    "NodeName",
    "PartitionName",
    "DownNodes",
    "NodeSet",
    "FrontendName",
];

/// The known key nearest to a misspelt one; in slurm.conf, also those that begin a line.
fn nearest(table: &'static Table, name: &str) -> Option<&'static str> {
    let line_key = LINE_KEYS
        .into_iter()
        .filter(|_| std::ptr::eq(table, &*keys::SLURM))
        .find(|key| keys::is_near(name, key));
    line_key.or_else(|| table.nearest(name))
}

fn is_unused_plugin(key: &Key) -> bool {
    matches!(key.kind, Kind::Plugin(..)) && matches!(key.status, KeyStatus::NoEffect(_))
}

/// Whether a value asks for what happens anyway: the default, or that nothing is done.
fn asks_for_default(key: &Key, text: &str) -> bool {
    let plain = match &key.kind {
        Kind::Plugin(prefix, _) => keys::plugin_word(prefix, text),
        _ => text,
    };
    let default = key.default.unwrap_or("");
    if plain.eq_ignore_ascii_case(default) || plain.eq_ignore_ascii_case("none") {
        return true;
    }
    match &key.kind {
        Kind::Bool => value::parse_bool(text) == value::parse_bool(default),
        Kind::Level => keys::parse_level(text) == keys::parse_level(default),
        Kind::Many(_) => text.eq_ignore_ascii_case("task/none"),
        Kind::Clock | Kind::Limit => {
            value::parse_time_limit(text) == value::parse_time_limit(default)
        }
        _ => false,
    }
}

fn describe(key: &Key) -> String {
    format!("{}: {}", key.name, key.about)
}

/// Content of a file's lines, checked but not yet put together.
#[derive(Default)]
pub(crate) struct CheckedLines {
    settings: Settings,
    controllers: Vec<Pair>,
    nodes: Vec<Record>,
    node_default: Settings,
    partitions: Vec<Record>,
    partition_default: Settings,
    down_nodes: Vec<Record>,
    node_sets: Vec<Record>,
}

impl CheckedLines {
    fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.controllers.is_empty() && self.nodes.is_empty()
    }

    fn take(&mut self, line: LogicalLine, checker: &mut Checker<'_>) {
        let mut pairs = line.into_iter();
        while let Some(pair) = pairs.next() {
            let rest = pairs.as_slice();
            match pair.key.to_ascii_lowercase().as_str() {
                "nodename" => {
                    let record = record(pair, rest, &keys::NODE, "a NodeName line", checker);
                    nodes::check_default(&record, checker.findings);
                    keep(record, &mut self.nodes, &mut self.node_default);
                    return;
                }
                "partitionname" => {
                    let what = "a PartitionName line";
                    let record = record(pair, rest, &keys::PARTITION, what, checker);
                    keep(record, &mut self.partitions, &mut self.partition_default);
                    return;
                }
                "downnodes" => {
                    let what = "a DownNodes line";
                    self.down_nodes
                        .push(record(pair, rest, &keys::DOWN_NODES, what, checker));
                    return;
                }
                "nodeset" => {
                    let what = "a NodeSet line";
                    self.node_sets
                        .push(record(pair, rest, &keys::NODE_SET, what, checker));
                    return;
                }
                "frontendname" => {
                    let what = "a FrontendName line";
                    checker.check(&pair, &keys::FRONTEND, what);
                    for pair in rest {
                        checker.check(pair, &keys::FRONTEND, what);
                    }
                    return;
                }
                "slurmctldhost" => {
                    if checker.check(&pair, &keys::SLURM, "slurm.conf").is_some() {
                        self.controllers.push(pair);
                    }
                }
                _ => {
                    self.global(&pair, checker);
                    // The rest of a line whose first key is misspelt would only be noise.
                    let is_line_key = |near: &str| LINE_KEYS.contains(&near);
                    let unknown = keys::SLURM.find(&pair.key).is_none();
                    if unknown && nearest(&keys::SLURM, &pair.key).is_some_and(is_line_key) {
                        return;
                    }
                }
            }
        }
    }

    fn global(&mut self, pair: &Pair, checker: &mut Checker<'_>) {
        let Some((key, setting)) = checker.check(pair, &keys::SLURM, "slurm.conf") else {
            return;
        };
        if ADDING_KEYS.contains(&key.name)
            && let Some(before) = self.settings.get_mut(key.name)
        {
            before.value = format!("{},{}", before.value, setting.value);
            return;
        }
        if let Some(before) = self.settings.insert(key.name, setting) {
            let message = format!(
                "{} was set before, at {}; this value counts",
                key.name, before.origin
            );
            checker
                .findings
                .warn(&pair.origin, key.name, message, "remove one of the two");
        }
    }
}

fn record(
    name: Pair,
    rest: &[Pair],
    table: &'static Table,
    what: &'static str,
    checker: &mut Checker<'_>,
) -> Record {
    let mut settings = Settings::new();
    for pair in rest {
        let Some((key, setting)) = checker.check(pair, table, what) else {
            continue;
        };
        if settings.insert(key.name, setting).is_some() {
            let message = format!("{} is given twice on one line; the last counts", key.name);
            checker
                .findings
                .warn(&pair.origin, key.name, message, "remove one of the two");
        }
    }
    Record {
        name: name.value,
        settings,
        origin: name.origin,
    }
}

/// Adds a record, on top of the defaults so far; a DEFAULT line changes those instead.
fn keep(mut record: Record, list: &mut Vec<Record>, default: &mut Settings) {
    if record.name.eq_ignore_ascii_case("DEFAULT") {
        default.append(&mut record.settings);
        return;
    }
    for (key, setting) in &*default {
        record
            .settings
            .entry(key)
            .or_insert_with(|| setting.clone());
    }
    list.push(record);
}

fn build(path: &Path, whole: &Origin, mut found: CheckedLines, findings: &mut Findings) -> Config {
    let slurmctld = controllers(whole, &mut found, findings);
    let settings = std::mem::take(&mut found.settings);
    let reader = Reader {
        settings: &settings,
        table: &keys::SLURM,
    };
    if reader.given("ClusterName").is_none() {
        findings.error(
            whole,
            "ClusterName",
            "ClusterName is missing",
            "add ClusterName=NAME",
        );
    }
    let limits = limits(&reader, findings);
    let ports = reader
        .text("SlurmctldPort")
        .and_then(|text| keys::parse_ports(text).ok());
    let slurmd_port = u16::try_from(reader.count("SlurmdPort")).unwrap_or(6818);
    let disable_root_jobs = reader.is_set("DisableRootJobs");
    let paths = paths(&reader, findings);
    let mut built = nodes::expand(&found.nodes, slurmd_port, findings);
    if !reader.plugin("SelectType").eq_ignore_ascii_case("linear") {
        nodes::refuse_counting_sockets(&built, findings);
    }
    let down_nodes = nodes::apply_down(&found.down_nodes, &mut built, findings);
    let node_sets = partitions::node_sets(&found.node_sets, &built, findings);
    let partitions = partitions::build(
        &found.partitions,
        &built,
        &node_sets,
        disable_root_jobs,
        findings,
    );
    if built.list.is_empty() && reader.given("MaxNodeCount").is_none() {
        findings.error(
            whole,
            "NodeName",
            "there are no nodes",
            "add NodeName=NAME CPUs=COUNT, or MaxNodeCount for nodes that join by slurmd -Z",
        );
    }
    if partitions.is_empty() {
        let help = "add PartitionName=NAME Nodes=ALL Default=YES";
        findings.warn(whole, "PartitionName", "there are no partitions", help);
    }
    let mut config = Config {
        path: path.to_owned(),
        cluster_name: reader
            .given("ClusterName")
            .unwrap_or("")
            .to_ascii_lowercase(),
        slurmctld,
        slurmctld_addr: reader.text("SlurmctldAddr").map(str::to_owned),
        slurmctld_ports: ports.map_or(6817..=6817, |(first, last)| first..=last),
        slurmd_port,
        slurmd_user: reader.text("SlurmdUser").unwrap_or("root").to_owned(),
        slurm_user: reader.text("SlurmUser").unwrap_or("root").to_owned(),
        paths,
        slurmctld_debug: level(&reader, "SlurmctldDebug"),
        slurmd_debug: level(&reader, "SlurmdDebug"),
        slurmd_parameters: reader.list("SlurmdParameters"),
        rate_limits: slurmctld_parameters(&reader, findings),
        timeouts: timeouts(&reader),
        limits,
        enforce_part_limits: enforce_part_limits(&reader),
        disable_root_jobs,
        job_requeue: reader.is_set("JobRequeue"),
        job_file_append: reader.is_set("JobFileAppend"),
        kill_on_bad_exit: reader.is_set("KillOnBadExit"),
        return_to_service: reader.number("ReturnToService").unwrap_or(0).min(2) as u8,
        scheduler: match reader.plugin("SchedulerType") {
            word if word.eq_ignore_ascii_case("builtin") => SchedulerType::Builtin,
            _ => SchedulerType::Backfill,
        },
        select: match reader.plugin("SelectType") {
            word if word.eq_ignore_ascii_case("linear") => SelectType::Linear,
            _ => SelectType::ConsTres,
        },
        select_parameters: select_parameters(&reader),
        priority: match reader.plugin("PriorityType") {
            word if word.eq_ignore_ascii_case("multifactor") => PriorityType::Multifactor,
            _ => PriorityType::Basic,
        },
        mpi_default: reader.plugin("MpiDefault").to_ascii_lowercase(),
        task_plugins: task_plugins(&reader),
        accounting: !reader
            .plugin("AccountingStorageType")
            .eq_ignore_ascii_case("none"),
        accounting_enforce: accounting_enforce(&reader.list("AccountingStorageEnforce")),
        launch_parameters: reader.list("LaunchParameters"),
        scheduler_parameters: scheduler_parameters(&reader, findings),
        propagate: propagate(&reader, findings),
        gres_types: reader.list("GresTypes"),
        nodes: built.list,
        partitions,
        down_nodes,
        node_sets,
        raw: Settings::new(),
    };
    config.raw = settings;
    config
}

fn controllers(
    whole: &Origin,
    found: &mut CheckedLines,
    findings: &mut Findings,
) -> Vec<ControlHost> {
    let mut hosts = Vec::new();
    for pair in &found.controllers {
        if let Ok((host, addr)) = keys::parse_controller(&pair.value) {
            hosts.push(ControlHost {
                host: host.to_owned(),
                addr: addr.map(str::to_owned),
            });
        }
    }
    if let Some(second) = found.controllers.get(1) {
        let message = "backup controllers are not implemented yet; only the first is used";
        findings.warn(&second.origin, "SlurmctldHost", message, "");
    }
    let old = found.settings.get("ControlMachine");
    if let (true, Some(machine)) = (hosts.is_empty(), old) {
        let host = machine.value.split(',').next().unwrap_or("").to_owned();
        let addr = found
            .settings
            .get("ControlAddr")
            .map(|addr| addr.value.clone());
        let help = match &addr {
            Some(addr) => format!("write SlurmctldHost={host}({addr})"),
            None => format!("write SlurmctldHost={host}"),
        };
        let message = "ControlMachine is the old name of SlurmctldHost";
        findings.warn(&machine.origin, "ControlMachine", message, help);
        hosts.push(ControlHost { host, addr });
    }
    if hosts.is_empty() {
        let help = "add SlurmctldHost=HOST";
        findings.error(whole, "SlurmctldHost", "SlurmctldHost is missing", help);
    }
    hosts
}

/// Paths of daemons' own files and directories.
const ABSOLUTE: [&str; 6] = [
    "StateSaveLocation",
    "SlurmctldPidFile",
    "SlurmctldLogFile",
    "SlurmdSpoolDir",
    "SlurmdPidFile",
    "SlurmdLogFile",
];

fn paths(reader: &Reader<'_>, findings: &mut Findings) -> Paths {
    let text = |key| reader.text(key).unwrap_or("").to_owned();
    let given = |key| {
        reader
            .given(key)
            .filter(|text| !text.is_empty() && *text != "(null)")
    };
    let same = reader
        .given("StateSaveLocation")
        .filter(|&t| Some(t) == given("SlurmdSpoolDir"));
    if let (Some(path), Some(setting)) = (same, reader.settings.get("StateSaveLocation")) {
        let message =
            format!("StateSaveLocation and SlurmdSpoolDir are the same directory, {path}");
        let help = "give each its own: one holds the controller's state, the other a node's";
        findings.warn(&setting.origin, "StateSaveLocation", message, help);
    }
    for key in ABSOLUTE {
        if let Some(setting) = reader.settings.get(key)
            && given(key).is_some_and(|path| !path.starts_with('/'))
        {
            let message = format!("{key} is not an absolute path: '{}'", setting.value);
            let help = "daemons start in different directories; write the path from / on";
            findings.error(&setting.origin, key, message, help);
        }
    }
    Paths {
        slurmctld_pid_file: text("SlurmctldPidFile").into(),
        slurmctld_log_file: given("SlurmctldLogFile").map(Into::into),
        state_save_location: text("StateSaveLocation").into(),
        slurmd_pid_file: text("SlurmdPidFile"),
        slurmd_log_file: given("SlurmdLogFile").map(str::to_owned),
        slurmd_spool_dir: text("SlurmdSpoolDir"),
        tmp_fs: text("TmpFS"),
    }
}

fn level(reader: &Reader<'_>, key: &str) -> &'static str {
    reader
        .text(key)
        .and_then(|text| keys::parse_level(text).ok())
        .unwrap_or("info")
}

fn timeouts(reader: &Reader<'_>) -> Timeouts {
    // Slurm takes INFINITE to mean never, for which its timeouts have 0.
    let seconds = |key| reader.number(key).unwrap_or(0);
    Timeouts {
        slurmctld_s: seconds("SlurmctldTimeout"),
        slurmd_s: seconds("SlurmdTimeout"),
        message_s: seconds("MessageTimeout"),
        kill_wait_s: seconds("KillWait"),
        inactive_s: seconds("InactiveLimit"),
        batch_start_s: seconds("BatchStartTimeout"),
        unkillable_step_s: seconds("UnkillableStepTimeout"),
        complete_wait_s: seconds("CompleteWait"),
        min_job_age_s: seconds("MinJobAge"),
        wait_s: seconds("WaitTime"),
    }
}

fn limits(reader: &Reader<'_>, findings: &mut Findings) -> ClusterLimits {
    ClusterLimits {
        max_job_count: reader.count("MaxJobCount"),
        max_array_size: reader.count("MaxArraySize"),
        max_node_count: max_node_count(reader, findings),
        first_job_id: reader.count("FirstJobId").max(1),
        max_job_id: reader.count("MaxJobId"),
        def_mem: reader.mem_per("DefMem", findings),
        max_mem: reader.mem_per("MaxMem", findings),
        job_defaults: crate::job_defaults::read(reader, findings),
        over_time_limit_min: reader.number("OverTimeLimit"),
        resv_over_run_min: reader.number("ResvOverRun"),
    }
}

/// Slurm's bound on nodes with dynamic ones.
const MAX_NODE_COUNT: u64 = 65_536;

fn max_node_count(reader: &Reader<'_>, findings: &mut Findings) -> u32 {
    let count = reader
        .given("MaxNodeCount")
        .and_then(|_| reader.number("MaxNodeCount"));
    let count = count.unwrap_or(0);
    if let Some(setting) = reader
        .settings
        .get("MaxNodeCount")
        .filter(|_| count > MAX_NODE_COUNT)
    {
        let message = format!("MaxNodeCount={count} is more than {MAX_NODE_COUNT}, which is used");
        findings.warn(&setting.origin, "MaxNodeCount", message, "");
    }
    u32::try_from(count.min(MAX_NODE_COUNT)).unwrap_or(0)
}

fn enforce_part_limits(reader: &Reader<'_>) -> EnforcePartLimits {
    match reader
        .text("EnforcePartLimits")
        .unwrap_or("NO")
        .to_ascii_uppercase()
        .as_str()
    {
        "ANY" => EnforcePartLimits::Any,
        "ALL" | "YES" | "1" => EnforcePartLimits::All,
        _ => EnforcePartLimits::No,
    }
}

fn select_parameters(reader: &Reader<'_>) -> SelectParameters {
    let mut parameters = SelectParameters {
        unit: SelectUnit::Core,
        memory: false,
        others: Vec::new(),
    };
    // The default applies with cons_tres; select/linear has none.
    let linear = reader.plugin("SelectType").eq_ignore_ascii_case("linear");
    if linear && reader.given("SelectTypeParameters").is_none() {
        return parameters;
    }
    for word in reader.list("SelectTypeParameters") {
        let lower = word.to_ascii_lowercase();
        let (unit, memory) = match lower.strip_suffix("_memory") {
            Some(unit) => (unit.to_owned(), true),
            None => (lower, false),
        };
        match unit.as_str() {
            "cr_cpu" => parameters.unit = SelectUnit::Cpu,
            "cr_core" => parameters.unit = SelectUnit::Core,
            "cr_socket" => parameters.unit = SelectUnit::Socket,
            "cr" => {}
            _ => {
                // Spelled as documented, so that readers need not care for case.
                let known = match reader
                    .table
                    .find("SelectTypeParameters")
                    .map(|key| &key.kind)
                {
                    Some(Kind::Many(choices)) => choices
                        .iter()
                        .find(|choice| choice.word.eq_ignore_ascii_case(&word)),
                    _ => None,
                };
                parameters
                    .others
                    .push(known.map_or(word, |choice| choice.word.to_owned()));
                continue;
            }
        }
        parameters.memory |= memory;
    }
    parameters
}

fn task_plugins(reader: &Reader<'_>) -> Vec<String> {
    let words = reader.list("TaskPlugin").into_iter();
    words
        .map(|word| word.rsplit('/').next().unwrap_or("").to_ascii_lowercase())
        .filter(|word| word != "none")
        .collect()
}

/// The words of `AccountingStorageEnforce` with those that they imply, in Slurm's order.
fn accounting_enforce(words: &[String]) -> Vec<&'static str> {
    const ORDER: [&str; 7] = [
        "associations",
        "limits",
        "nojobs",
        "nosteps",
        "qos",
        "safe",
        "wckeys",
    ];
    let mut set = BTreeSet::new();
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "1" | "associations" => set.extend(["associations"]),
            "limits" => set.extend(["associations", "limits"]),
            "nojobs" => set.extend(["nojobs", "nosteps"]),
            "nosteps" => set.extend(["nosteps"]),
            "qos" => set.extend(["associations", "qos"]),
            "safe" => set.extend(["associations", "limits", "safe"]),
            "wckeys" => set.extend(["associations", "wckeys"]),
            "all" => set.extend(["associations", "limits", "qos", "safe", "wckeys"]),
            _ => {}
        }
    }
    ORDER
        .into_iter()
        .filter(|word| set.contains(word))
        .collect()
}

fn scheduler_parameters(reader: &Reader<'_>, findings: &mut Findings) -> Vec<String> {
    let words = reader.list("SchedulerParameters");
    if let Some(setting) = reader.settings.get("SchedulerParameters") {
        crate::scheduler_parameters::check(&words, &setting.origin, findings);
    }
    words
}

fn slurmctld_parameters(reader: &Reader<'_>, findings: &mut Findings) -> RateLimits {
    let words = reader.list("SlurmctldParameters");
    let Some(setting) = reader.settings.get("SlurmctldParameters") else {
        return RateLimits::default();
    };
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let slurm_user = reader.settings.get("SlurmUser");
    let is_root = slurm_user.is_none_or(|user| matches!(user.value.as_str(), "root" | "0"));
    if has("allow_user_triggers") && !is_root {
        let message = "SlurmctldParameters=allow_user_triggers has no effect: a controller that is not root runs no programs as users";
        let help = "remove it; users can have triggers with SlurmUser=root only";
        findings.warn(&setting.origin, "SlurmctldParameters", message, help);
    }
    crate::slurmctld_parameters::read(&words, &setting.origin, findings)
}

fn propagate(reader: &Reader<'_>, findings: &mut Findings) -> Propagate {
    let upper = |key: &str| -> Vec<String> {
        reader
            .list(key)
            .iter()
            .map(|word| word.to_ascii_uppercase())
            .collect()
    };
    let except = upper("PropagateResourceLimitsExcept");
    let only = reader.settings.get("PropagateResourceLimits");
    if let (Some(only), false) = (only, except.is_empty()) {
        let key = "PropagateResourceLimits";
        let message = format!("{key} and {key}Except exclude each other; {key}Except counts");
        findings.warn(&only.origin, key, message, "remove one of the two");
    }
    if except.is_empty() {
        Propagate {
            limits: upper("PropagateResourceLimits"),
            except,
        }
    } else {
        Propagate {
            limits: vec!["ALL".to_owned()],
            except,
        }
    }
}
