//! The files beside slurm.conf: gres.conf into types, cgroup.conf, mpi.conf and slurmdbd.conf into
//! checked settings.

use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, Origin};
use crate::keys::{self, Table};
use crate::load::Checker;
use crate::model::Setting;
use crate::reader::{Reader, Settings};
use crate::source::{self, Pair, ReadFile};
use crate::value;
use muster_model::hostlist;

/// The most device files of one gres.conf line.
const MAX_DEVICES: usize = 1024;

/// One line of gres.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLine {
    /// Nodes that the line is about; empty for the node that reads it.
    pub nodes: Vec<String>,
    /// `gpu`; empty on a line that holds `AutoDetect` alone.
    pub name: String,
    /// `a100`.
    pub model: Option<String>,
    /// Number of devices: `Count`, else the number of files, else 1.
    pub count: u64,
    /// Device files, expanded.
    pub files: Vec<String>,
    /// Whether the files together make one device (`MultipleFiles`).
    pub one_device: bool,
    /// Cores near the device.
    pub cores: Vec<u32>,
    /// Links to the other devices.
    pub links: Vec<i32>,
    /// Identifiers of `ResourceMap`; empty where there is none.
    pub labels: Vec<String>,
    /// `Flags`, as written.
    pub flags: Vec<String>,
    /// `AutoDetect`, in lower case.
    pub auto_detect: Option<String>,
    /// The line.
    pub origin: Origin,
}

/// Loads gres.conf from disk.
pub fn load_gres(path: &Path) -> (Vec<GresLine>, Vec<Diagnostic>) {
    load_gres_with(path, &source::read_from_disk)
}

/// [`load_gres`] by way of the caller's own file reader.
pub fn load_gres_with(path: &Path, read: ReadFile<'_>) -> (Vec<GresLine>, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let lines = source::read_lines(path, read, &mut findings);
    let mut checker = Checker::new(&mut findings);
    let mut gres = Vec::new();
    for line in lines {
        let settings = check_line(&line, &keys::GRES, "gres.conf", &mut checker);
        let origin = line[0].origin.clone();
        if let Some(line) = gres_line(&settings, origin, checker.findings) {
            gres.push(line);
        }
    }
    (gres, findings.sorted())
}

pub(crate) fn check_line(
    line: &[Pair],
    table: &'static Table,
    what: &'static str,
    checker: &mut Checker<'_>,
) -> Settings {
    let mut settings = Settings::new();
    for pair in line {
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
    settings
}

fn gres_line(settings: &Settings, origin: Origin, findings: &mut Findings) -> Option<GresLine> {
    let reader = Reader {
        settings,
        table: &keys::GRES,
    };
    let given = |key: &str, other: &str| reader.given(key).or_else(|| reader.given(other));
    let name = reader.given("Name").unwrap_or("").to_owned();
    if name.is_empty() && reader.given("AutoDetect").is_none() {
        findings.error(
            &origin,
            "Name",
            "the line names no resource",
            "add Name=NAME",
        );
        return None;
    }
    let multiple = reader.given("MultipleFiles");
    let mut files = Vec::new();
    if let Some(text) = multiple.or_else(|| given("File", "Files")) {
        match hostlist::parse_limited(text, MAX_DEVICES) {
            Ok(list) => files = list,
            Err(error) => findings.error(&origin, "File", format!("File: {error}"), ""),
        }
    }
    if multiple.is_some() && given("File", "Files").is_some() {
        let message = "File and MultipleFiles exclude each other; MultipleFiles counts";
        findings.error(&origin, "File", message, "remove one of the two");
    }
    let devices = if multiple.is_some() {
        files.len().min(1)
    } else {
        files.len()
    } as u64;
    let labels = match reader.given("ResourceMap").map(resource_map).transpose() {
        Ok(labels) => labels.unwrap_or_default(),
        Err(why) => {
            let help = "write it as 2(0 1), 4(0-3) or 2(GPU1 GPU2)";
            findings.error(&origin, "ResourceMap", format!("ResourceMap: {why}"), help);
            Vec::new()
        }
    };
    let count = reader
        .given("Count")
        .and_then(|text| value::parse_count(text).ok())
        .or_else(|| u64::try_from(labels.len()).ok().filter(|count| *count > 0));
    if let Some(count) = count.filter(|count| !labels.is_empty() && *count != labels.len() as u64) {
        let message = format!("Count={count}, but ResourceMap names {}", labels.len());
        findings.error(
            &origin,
            "Count",
            message,
            "remove Count or correct ResourceMap",
        );
    }
    let shared = ["mps", "shard"].contains(&name.as_str());
    let must_agree = !shared && devices > 0;
    if let Some(count) = count.filter(|&count| must_agree && count != devices) {
        let message = format!("Count={count}, but there are {devices} device files");
        findings.error(&origin, "Count", message, "remove Count or correct File");
    }
    let cores = given("Cores", "CPUs").map(|text| hostlist::parse_ranges(text, 1 << 16));
    let mut links = Vec::new();
    for word in given("Links", "Link")
        .unwrap_or("")
        .split(',')
        .filter(|word| !word.is_empty())
    {
        match word.trim().parse() {
            Ok(link) => links.push(link),
            Err(_) => {
                let message = format!("Links: `{word}` is not a number");
                findings.error(&origin, "Links", message, "");
            }
        }
    }
    let nodes = reader.given("NodeName").map(hostlist::parse);
    Some(GresLine {
        nodes: nodes.and_then(Result::ok).unwrap_or_default(),
        name,
        model: reader.text("Type").map(str::to_owned),
        count: count.unwrap_or(devices.max(1)),
        files,
        one_device: multiple.is_some(),
        cores: cores.and_then(Result::ok).unwrap_or_default(),
        links,
        labels,
        flags: reader.list("Flags"),
        auto_detect: reader.given("AutoDetect").map(str::to_ascii_lowercase),
        origin,
    })
}

/// Identifiers of `AMOUNT(ID ID FIRST-LAST)`, also with `NAME=` before it. One may stand there several times, if as many jobs may have
/// it at a time.
///
/// # Errors
/// Why it is none.
fn resource_map(text: &str) -> Result<Vec<String>, String> {
    let form = || format!("'{text}' is not AMOUNT(IDS)");
    let map = text.split_once('=').map_or(text, |(_, map)| map);
    let (amount, ids) = map
        .trim()
        .strip_suffix(')')
        .and_then(|map| map.split_once('('))
        .ok_or_else(form)?;
    let amount: usize = amount.trim().parse().map_err(|_| form())?;
    let mut labels = Vec::new();
    for word in ids.split_whitespace() {
        let range = word.split_once('-').and_then(|(first, last)| {
            Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
        });
        match range {
            Some((first, last)) if first <= last && (last - first) as usize <= MAX_DEVICES => {
                labels.extend((first..=last).map(|id| id.to_string()));
            }
            Some(_) => {
                return Err(format!(
                    "'{word}' is not a valid range of at most {MAX_DEVICES} numbers"
                ));
            }
            None if word.contains(['[', ':']) => {
                return Err(format!(
                    "'{word}': masks and characteristics of an id are not implemented"
                ));
            }
            None if word.contains([',', '(', ')', '=', '"', '\'']) => {
                return Err(format!("'{word}' is not a valid identifier"));
            }
            None => labels.push(word.to_owned()),
        }
    }
    if labels.len() != amount {
        return Err(format!("it says {amount}, and names {}", labels.len()));
    }
    if labels.is_empty() || labels.len() > MAX_DEVICES {
        return Err(format!(
            "it names {}, of at most {MAX_DEVICES}",
            labels.len()
        ));
    }
    Ok(labels)
}

/// A file of plain settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainFile {
    /// cgroup.conf
    Cgroup,
    /// mpi.conf
    Mpi,
    /// slurmdbd.conf
    Slurmdbd,
}

/// The settings of a [`PlainFile`] file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatSettings {
    /// Which file.
    pub kind: PlainFile,
    /// Its settings, by the key's documented name.
    pub settings: Settings,
}

impl FlatSettings {
    /// Where there is no file: every key has its default.
    pub fn defaults(kind: PlainFile) -> FlatSettings {
        let settings = Settings::new();
        FlatSettings { kind, settings }
    }

    /// Value of a key in the file, else its default; `None` where there is neither.
    pub fn text(&self, key: &str) -> Option<&str> {
        Reader {
            settings: &self.settings,
            table: self.kind.table().0,
        }
        .text(key)
    }
}

impl PlainFile {
    fn table(self) -> (&'static Table, &'static str) {
        match self {
            PlainFile::Cgroup => (&keys::CGROUP, "cgroup.conf"),
            PlainFile::Mpi => (&keys::MPI, "mpi.conf"),
            PlainFile::Slurmdbd => (&keys::SLURMDBD, "slurmdbd.conf"),
        }
    }
}

/// Loads cgroup.conf, mpi.conf or slurmdbd.conf from disk.
pub fn load_flat(kind: PlainFile, path: &Path) -> (FlatSettings, Vec<Diagnostic>) {
    load_flat_with(kind, path, &source::read_from_disk)
}

/// [`load_flat`] by way of the caller's own file reader.
pub fn load_flat_with(
    kind: PlainFile,
    path: &Path,
    read: ReadFile<'_>,
) -> (FlatSettings, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let lines = source::read_lines(path, read, &mut findings);
    let (table, what) = kind.table();
    let mut checker = Checker::new(&mut findings);
    let mut settings: Settings = Settings::new();
    for pair in lines.iter().flatten() {
        let Some((key, setting)) = checker.check(pair, table, what) else {
            continue;
        };
        let before: Option<Setting> = settings.insert(key.name, setting);
        if let Some(before) = before {
            let message = format!(
                "{} was set before, at {}; this value counts",
                key.name, before.origin
            );
            checker
                .findings
                .warn(&pair.origin, key.name, message, "remove one of the two");
        }
    }
    (FlatSettings { kind, settings }, findings.sorted())
}
