//! The keys of slurm.conf and its companions: one row for each, read from the tables in `keys/`.
//!
//! A row has the kind of a key's value, its default, whether Muster honours it, and its meaning. The loader, the
//! diagnostics, `scontrol show config` and the documentation all read these rows; none of them knows a key by itself.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::value::{self, ValueError, wrong};
use muster_model::hostlist;

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// As Slurm's documentation spells it.
    pub name: &'static str,
    /// Form of its values.
    pub kind: Kind,
    /// As it would be written in the file; `None` where the key is unset by default.
    pub default: Option<&'static str>,
    /// Whether and where `scontrol show config` lists it.
    pub shown: KeyListing,
    /// Its effect in Muster.
    pub status: KeyStatus,
    /// Its meaning, in a few words.
    pub about: &'static str,
}

/// Effect of a key in Muster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    /// It does what the documentation says.
    Honoured,
    /// It is read and has no effect; the text says why.
    NoEffect(&'static str),
    /// It has no effect, for the same reason; a value that is not of its kind asks for protection that Muster does not
    /// give, and is an error.
    Protection(&'static str),
    /// Not implemented yet; the text may add a note.
    Later(&'static str),
}

/// Whether `scontrol show config` lists a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyListing {
    /// Listed by Slurm 22.05 and later.
    Always,
    /// Listed only by Slurm later than 22.05.
    Newer,
    /// Never listed.
    Never,
}

/// One value of a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The word; `name=*` in the table stands for `name=VALUE`.
    pub word: &'static str,
    /// Whether the word takes `=VALUE`.
    pub takes_value: bool,
    /// Whether Muster does not implement it yet.
    pub later: bool,
}

/// Form of a key's values, and of their output by `scontrol show config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Free text.
    Text,
    /// A file or directory.
    Path,
    /// A program.
    Program,
    /// A host name or address.
    Host,
    /// A controller: `host` or `host(address)`.
    Controller,
    /// A user, by name or number.
    User,
    /// A user whose number is printed as well.
    UserWithId,
    /// A password; never printed.
    Secret,
    /// The cluster's name.
    ClusterName,
    /// Yes or no.
    Bool,
    /// 0 or 1.
    Flag,
    /// A whole number.
    Number,
    /// A decimal number.
    Float,
    /// A count with an optional K, M, G, T, P.
    Count,
    /// One port.
    Port,
    /// One port or a range.
    Ports,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
    /// Minutes.
    Minutes,
    /// Percent.
    Percent,
    /// Nodes a minute.
    Rate,
    /// Memory in MiB; 0 is no limit.
    Memory,
    /// A time limit, printed as `D-HH:MM:SS`.
    Clock,
    /// A time limit.
    Limit,
    /// Age at which records are deleted: `12month`, `30days`, `720hours`.
    Age,
    /// A log level, by name or number.
    Level,
    /// A hostlist expression.
    Hosts,
    /// Ids such as `0-3,8`.
    Ids,
    /// Names with counts: `foo:4,bar`.
    Licenses,
    /// Comma-separated words of any kind.
    List,
    /// One word of a closed set.
    One(Vec<Choice>),
    /// Comma-separated words of a closed set.
    Many(Vec<Choice>),
    /// A plugin: `prefix/word`, or the word alone.
    Plugin(&'static str, Vec<Choice>),
    /// Not settable; Muster computes it.
    Fact,
}

impl Kind {
    fn parse(text: &'static str) -> Option<Kind> {
        Some(match text.split_once(':') {
            Some(("one", words)) => Kind::One(choices(words)),
            Some(("many", words)) => Kind::Many(choices(words)),
            Some(("plug", rest)) => {
                let (prefix, words) = rest.split_once(':')?;
                Kind::Plugin(prefix, choices(words))
            }
            Some(_) => return None,
            None => match text {
                "str" => Kind::Text,
                "path" => Kind::Path,
                "exe" => Kind::Program,
                "host" => Kind::Host,
                "ctld" => Kind::Controller,
                "user" => Kind::User,
                "uid" => Kind::UserWithId,
                "secret" => Kind::Secret,
                "name" => Kind::ClusterName,
                "bool" => Kind::Bool,
                "flag" => Kind::Flag,
                "num" => Kind::Number,
                "float" => Kind::Float,
                "count" => Kind::Count,
                "port" => Kind::Port,
                "ports" => Kind::Ports,
                "sec" => Kind::Seconds,
                "usec" => Kind::Microseconds,
                "min" => Kind::Minutes,
                "pct" => Kind::Percent,
                "rate" => Kind::Rate,
                "mem" => Kind::Memory,
                "clock" => Kind::Clock,
                "limit" => Kind::Limit,
                "age" => Kind::Age,
                "debug" => Kind::Level,
                "nodes" => Kind::Hosts,
                "cpus" => Kind::Ids,
                "lic" => Kind::Licenses,
                "list" => Kind::List,
                "fact" => Kind::Fact,
                _ => return None,
            },
        })
    }

    /// Checks a value. On success, the words in it that Muster does not implement yet.
    pub fn check(&self, text: &str) -> Result<Vec<String>, ValueError> {
        let none = || Ok(Vec::new());
        match self {
            Kind::Text | Kind::Path | Kind::Program | Kind::List | Kind::Secret => none(),
            Kind::Host | Kind::User | Kind::UserWithId if !text.contains(char::is_whitespace) => {
                none()
            }
            Kind::Licenses => match muster_model::licenses::parse(text) {
                Some(_) => none(),
                None => wrong(text, "names with counts, such as foo:4,bar"),
            },
            Kind::Host => wrong(text, "a host name or address"),
            Kind::User | Kind::UserWithId => wrong(text, "a user name or number"),
            Kind::Controller => parse_controller(text).and(none()),
            Kind::ClusterName => check_cluster_name(text).and(none()),
            Kind::Bool => value::parse_bool(text).and(none()),
            Kind::Flag => match text {
                "0" | "1" => none(),
                _ => wrong(text, "0 or 1"),
            },
            Kind::Number
            | Kind::Seconds
            | Kind::Microseconds
            | Kind::Minutes
            | Kind::Percent
            | Kind::Rate => value::parse_number(text, u32::MAX.into()).and(none()),
            Kind::Memory if value::is_unlimited(text) => none(),
            Kind::Memory => value::parse_mem_mib(text).and(none()),
            Kind::Float => match text.trim_end_matches('%').parse::<f64>() {
                Ok(number) if number.is_finite() => none(),
                _ => wrong(text, "a number"),
            },
            Kind::Count => value::parse_count(text).and(none()),
            Kind::Port => parse_ports(text).and_then(|ports| match ports.0 == ports.1 {
                true => none(),
                false => wrong(text, "one port"),
            }),
            Kind::Ports => parse_ports(text).and(none()),
            Kind::Clock | Kind::Limit => value::parse_time_limit(text).and(none()),
            Kind::Age => check_age(text).and(none()),
            Kind::Level => parse_level(text).and(none()),
            Kind::Hosts => check_with(text, hostlist::parse(text)).and(none()),
            Kind::Ids => check_with(text, hostlist::parse_ranges(text, 1 << 16)).and(none()),
            Kind::One(choices) => check_words(text, &[text], choices),
            Kind::Many(choices) => {
                let words: Vec<&str> = text.split(',').map(str::trim).collect();
                check_words(text, &words, choices)
            }
            Kind::Plugin(prefix, choices) => {
                check_words(text, &[plugin_word(prefix, text)], choices)
            }
            Kind::Fact => wrong(text, "settable: Muster computes this value"),
        }
    }
}

/// The part of `sched/backfill` after its prefix; the whole where there is none.
pub(crate) fn plugin_word<'a>(prefix: &str, text: &'a str) -> &'a str {
    match text.split_once('/') {
        Some((given, word)) if given.eq_ignore_ascii_case(prefix) => word,
        _ => text,
    }
}

fn check_with<T>(text: &str, result: Result<T, hostlist::HostlistError>) -> Result<(), ValueError> {
    result
        .map(drop)
        .or_else(|error| wrong(text, format!("a list of names or numbers: {error}")))
}

fn choices(words: &'static str) -> Vec<Choice> {
    let choice = |word: &'static str| {
        let (word, later) = word
            .strip_suffix('?')
            .map_or((word, false), |word| (word, true));
        let (word, takes_value) = word.strip_suffix("=*").map_or((word, false), |w| (w, true));
        Choice {
            word,
            takes_value,
            later,
        }
    };
    words.split(',').map(choice).collect()
}

fn check_words(whole: &str, words: &[&str], choices: &[Choice]) -> Result<Vec<String>, ValueError> {
    let mut later = Vec::new();
    for given in words
        .iter()
        .filter(|word| !word.is_empty() || words.len() == 1)
    {
        let (name, has_value) = match given.split_once('=') {
            Some((name, _)) => (name, true),
            None => (*given, false),
        };
        let found = choices
            .iter()
            .find(|c| c.word.eq_ignore_ascii_case(name) && (c.takes_value || !has_value));
        match found {
            Some(choice) if choice.later => later.push((*given).to_owned()),
            Some(_) => {}
            None => {
                let known: Vec<&str> = choices.iter().map(|c| c.word).collect();
                let shown = if words.len() > 1 { given } else { whole };
                return wrong(shown, format!("one of {}", known.join(", ")));
            }
        }
    }
    Ok(later)
}

fn check_cluster_name(text: &str) -> Result<(), ValueError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !text.is_empty() && text.len() <= 40 && text.chars().all(fine) {
        return Ok(());
    }
    wrong(
        text,
        "a cluster name: up to 40 letters, digits, `_`, `-` or `.`",
    )
}

/// Takes `host` or `host(address)` apart.
pub(crate) fn parse_controller(text: &str) -> Result<(&str, Option<&str>), ValueError> {
    let (host, address) = match text.split_once('(') {
        Some((host, rest)) => match rest.strip_suffix(')') {
            Some(address) if !address.is_empty() => (host, Some(address)),
            _ => return wrong(text, "HOST or HOST(ADDRESS)"),
        },
        None => (text, None),
    };
    if host.is_empty() || host.contains([')', ' ', ',', '/']) {
        return wrong(text, "HOST or HOST(ADDRESS)");
    }
    Ok((host, address))
}

/// Reads a port, or a range of ports as first and last.
pub(crate) fn parse_ports(text: &str) -> Result<(u16, u16), ValueError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => wrong(text, "a port from 0 to 65535, or a range of ports"),
    }
}

fn check_age(text: &str) -> Result<(), ValueError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.to_ascii_lowercase();
    let known = ["", "hour", "hours", "day", "days", "month", "months"].contains(&unit.as_str());
    match number.parse::<u32>() {
        Ok(_) if known => Ok(()),
        _ => wrong(text, "a number of hours, days or months, such as 12months"),
    }
}

/// Slurm's log levels, by their numbers.
const LEVELS: [&str; 10] = [
    "quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5",
];

/// Reads a log level by name or number; gives its name.
pub(crate) fn parse_level(text: &str) -> Result<&'static str, ValueError> {
    let by_number = text
        .parse::<usize>()
        .ok()
        .and_then(|number| LEVELS.get(number));
    let level = by_number.or_else(|| LEVELS.iter().find(|name| name.eq_ignore_ascii_case(text)));
    match level {
        Some(name) => Ok(name),
        None => wrong(text, format!("one of {} or 0 to 9", LEVELS.join(", "))),
    }
}

/// The keys of one kind of line or file.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Key>,
    /// From the lower-case name to the row.
    index: HashMap<String, usize>,
}

impl Table {
    fn new(rows: Vec<Key>) -> Table {
        let index = rows
            .iter()
            .enumerate()
            .map(|(i, row)| (row.name.to_ascii_lowercase(), i))
            .collect();
        Table { rows, index }
    }

    /// All keys, in the order of `scontrol show config`.
    pub fn keys(&self) -> &[Key] {
        &self.rows
    }

    /// The key of that name, in any case.
    pub fn find(&self, name: &str) -> Option<&Key> {
        self.index
            .get(&name.to_ascii_lowercase())
            .map(|&i| &self.rows[i])
    }

    /// The known key that a misspelt one was most likely meant to be.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let name = name.to_ascii_lowercase();
        let (distance, row) = self
            .rows
            .iter()
            .map(|row| (edit_distance(&name, &row.name.to_ascii_lowercase()), row))
            .min_by_key(|(distance, _)| *distance)?;
        (distance <= tolerance(&name)).then_some(row.name)
    }
}

/// Number of slips at which a misspelt key is still recognisable.
fn tolerance(name: &str) -> usize {
    1 + name.len() / 4
}

/// Whether one word may be a misspelling of another, in any case.
pub(crate) fn is_near(name: &str, key: &str) -> bool {
    edit_distance(&name.to_ascii_lowercase(), &key.to_ascii_lowercase()) <= tolerance(key)
}

/// The one of these words that another may be a misspelling of, in any case.
pub(crate) fn nearest_of<'w>(name: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let name = name.to_ascii_lowercase();
    let distance = |word: &&str| edit_distance(&name, &word.to_ascii_lowercase());
    words
        .filter(|word| is_near(&name, word))
        .min_by_key(distance)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn edit_distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) =
        (left.chars().take(64).collect(), right.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, &l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &r) in right.iter().enumerate() {
            let mut cost = (last[j] + usize::from(l != r))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && l == right[j - 1] && left[i - 1] == r {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

fn rows(text: &'static str, prefix: &str) -> Vec<Key> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .filter_map(|line| {
            let (name, rest) = line.split_once('|').expect("a test reads every table row");
            let name = name.trim();
            let name = match prefix {
                "" => name,
                // The row of the line's first key has no prefix of its own.
                _ if name == prefix => name,
                _ => name.strip_prefix(prefix)?.strip_prefix('.')?,
            };
            Some(row(name, rest))
        })
        .collect()
}

fn row(name: &'static str, rest: &'static str) -> Key {
    let columns: Vec<&'static str> = rest.splitn(5, '|').map(str::trim).collect();
    let &[kind, default, shown, status, about] = columns.as_slice() else {
        unreachable!("a test reads every table row");
    };
    let (letter, note) = status.split_at(1);
    Key {
        name,
        kind: Kind::parse(kind).expect("a test reads every table row"),
        default: match default {
            "" => None,
            "\"\"" => Some(""),
            text => Some(text),
        },
        shown: match shown {
            "s" => KeyListing::Always,
            "n" => KeyListing::Newer,
            _ => KeyListing::Never,
        },
        status: match letter {
            "H" => KeyStatus::Honoured,
            "N" => KeyStatus::NoEffect(note.trim()),
            "E" => KeyStatus::Protection(note.trim()),
            _ => KeyStatus::Later(note.trim()),
        },
        about,
    }
}

const OTHER: &str = include_str!("keys/other.tbl");
const LINES: &str = include_str!("keys/lines.tbl");

/// The keys of slurm.conf outside node and partition lines.
pub static SLURM: LazyLock<Table> =
    LazyLock::new(|| Table::new(rows(include_str!("keys/slurm.tbl"), "")));
/// The keys of `NodeName=` lines.
pub static NODE: LazyLock<Table> =
    LazyLock::new(|| Table::new(rows(include_str!("keys/node.tbl"), "")));
/// The keys of `PartitionName=` lines.
pub static PARTITION: LazyLock<Table> =
    LazyLock::new(|| Table::new(rows(include_str!("keys/partition.tbl"), "")));
/// The keys of `DownNodes=` lines.
pub static DOWN_NODES: LazyLock<Table> = LazyLock::new(|| Table::new(rows(LINES, "DownNodes")));
/// The keys of `NodeSet=` lines.
pub static NODE_SET: LazyLock<Table> = LazyLock::new(|| Table::new(rows(LINES, "NodeSet")));
/// The keys of `FrontendName=` lines.
pub static FRONTEND: LazyLock<Table> = LazyLock::new(|| Table::new(rows(LINES, "FrontendName")));
/// The keys of gres.conf.
pub static GRES: LazyLock<Table> = LazyLock::new(|| Table::new(rows(OTHER, "gres")));
/// The keys of topology.conf.
pub static TOPOLOGY: LazyLock<Table> = LazyLock::new(|| Table::new(rows(OTHER, "topology")));
/// The keys of cgroup.conf.
pub static CGROUP: LazyLock<Table> = LazyLock::new(|| Table::new(rows(OTHER, "cgroup")));
/// The keys of job_container.conf.
pub static JOB_CONTAINER: LazyLock<Table> =
    LazyLock::new(|| Table::new(rows(OTHER, "job_container")));
/// The keys of mpi.conf.
pub static MPI: LazyLock<Table> = LazyLock::new(|| Table::new(rows(OTHER, "mpi")));
/// The keys of slurmdbd.conf.
pub static SLURMDBD: LazyLock<Table> = LazyLock::new(|| Table::new(rows(OTHER, "slurmdbd")));

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn tables() -> Vec<(&'static str, &'static Table)> {
        vec![
            ("slurm", &SLURM),
            ("node", &NODE),
            ("partition", &PARTITION),
            ("down nodes", &DOWN_NODES),
            ("node set", &NODE_SET),
            ("frontend", &FRONTEND),
            ("gres", &GRES),
            ("topology", &TOPOLOGY),
            ("cgroup", &CGROUP),
            ("job_container", &JOB_CONTAINER),
            ("mpi", &MPI),
            ("slurmdbd", &SLURMDBD),
        ]
    }

    #[test]
    fn every_row_is_sound() {
        for (name, table) in tables() {
            assert!(!table.keys().is_empty(), "{name}");
            let mut seen = HashSet::new();
            for key in table.keys() {
                assert!(!key.about.is_empty(), "{name} {}", key.name);
                assert!(
                    seen.insert(key.name.to_ascii_lowercase()),
                    "{name} {} twice",
                    key.name
                );
                if let Some(default) = key.default.filter(|d| !d.is_empty()) {
                    let settable = key.kind != Kind::Fact;
                    assert!(
                        !settable || key.kind.check(default).is_ok(),
                        "{name} {}",
                        key.name
                    );
                }
                if let KeyStatus::NoEffect(why) | KeyStatus::Protection(why) = key.status {
                    assert!(!why.is_empty(), "{name} {}: say why", key.name);
                }
            }
        }
    }

    #[test]
    fn the_nearest_key_is_found() {
        assert_eq!(SLURM.nearest("SlurmctldHots"), Some("SlurmctldHost"));
        assert_eq!(SLURM.nearest("SchedulerTyp"), Some("SchedulerType"));
        assert_eq!(NODE.nearest("RealMem"), None);
        assert_eq!(NODE.nearest("RealMemry"), Some("RealMemory"));
        assert_eq!(SLURM.nearest("Xyzzy"), None);
    }

    #[test]
    fn closed_sets() {
        let priority = &SLURM.find("prioritytype").unwrap().kind;
        assert_eq!(priority.check("priority/basic"), Ok(vec![]));
        assert_eq!(priority.check("priority/multifactor"), Ok(vec![]));
        let labels = &SLURM.find("MCSPlugin").unwrap().kind;
        assert_eq!(labels.check("mcs/label"), Ok(vec!["label".to_owned()]));
        let preempt = &SLURM.find("PreemptType").unwrap().kind;
        assert_eq!(preempt.check("preempt/qos"), Ok(vec![]));
        assert!(priority.check("priority/none").is_err());
        let select = &SLURM.find("SelectTypeParameters").unwrap().kind;
        let later = select.check("CR_CPU_Memory,cr_lln,NHC_No");
        assert_eq!(later, Ok(vec!["NHC_No".to_owned()]));
        assert_eq!(parse_level("3"), Ok("info"));
        assert_eq!(
            parse_controller("vm(127.0.0.1)"),
            Ok(("vm", Some("127.0.0.1")))
        );
    }
}
