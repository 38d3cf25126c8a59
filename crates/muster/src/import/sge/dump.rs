//! Output of qconf: objects as keys and values, found by the content of their files and not by their names.

use anyhow::{Context, Result, ensure};
use muster_conf::grid_engine::ALL_HOSTS;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Bytes of one file, files in all, and directories in each other.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 8;

/// Lists of bare names, and where these are said here.
const BARE: [(&str, &str); 3] = [
    (
        "managers",
        "administrators are users of AdminLevel=Administrator: sacctmgr modify user",
    ),
    (
        "operators",
        "operators are users of AdminLevel=Operator: sacctmgr modify user",
    ),
    (
        "submit_hosts",
        "any host with the cluster's key and slurm.conf submits",
    ),
];

/// An object: keys and values in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    /// Its first key.
    pub(super) kind: String,
    /// Its name: kind and own name.
    pub(super) what: String,
    /// Keys and values.
    pub(super) lines: Vec<(String, String)>,
}

impl Object {
    /// The value of a key; `NONE` and its like are none.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let found = self.lines.iter().find(|(own, _)| own == key);
        let value = found.map(|(_, value)| value.as_str())?;
        let is_none =
            ["none", "undefined", "infinity", ""].contains(&value.to_ascii_lowercase().as_str());
        (!is_none).then_some(value)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.lines.first().map_or("", |(_, value)| value.as_str())
    }

    /// The words of a list, and whether some of it is for single hosts or groups (`[HOST=...]`), which is left out.
    pub(super) fn list(&self, key: &str) -> (Vec<String>, bool) {
        let value = self.get(key).unwrap_or_default();
        let usual = value.split('[').next().unwrap_or_default();
        let words = usual.split(|c: char| c == ',' || c.is_whitespace());
        let words = words.filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("none"));
        (words.map(str::to_owned).collect(), value.contains('['))
    }
}

/// A complex.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) requestable: bool,
    /// `NO`, `YES`, `JOB`, `HOST`.
    pub(super) consumable: String,
    /// Amount for jobs that do not ask for it.
    pub(super) default: String,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Dump {
    pub(super) queues: Vec<Object>,
    pub(super) calendars: Vec<Object>,
    pub(super) environments: Vec<Object>,
    /// Hosts that run jobs.
    pub(super) hosts: Vec<Object>,
    /// `qconf -se global`.
    pub(super) global: Option<Object>,
    pub(super) groups: BTreeMap<String, Vec<String>>,
    pub(super) complexes: Vec<Complex>,
    pub(super) projects: Vec<Object>,
    pub(super) users: Vec<Object>,
    pub(super) usersets: Vec<Object>,
    pub(super) classes: Vec<Object>,
    pub(super) configuration: Option<Object>,
    pub(super) quotas: Vec<(String, Vec<String>)>,
    pub(super) admin_hosts: Vec<String>,
    pub(super) others: Vec<Object>,
    /// Files that are none of these.
    pub(super) unknown: Vec<(String, String)>,
}

impl Dump {
    /// Reads all files of a directory.
    ///
    /// # Errors
    /// It cannot be read, or is too large to be such a directory.
    pub(super) fn read(dir: &Path) -> Result<Dump> {
        let mut dump = Dump::default();
        let mut files = Vec::new();
        list(dir, 0, &mut files)?;
        files.sort();
        for file in files {
            let size = fs::metadata(&file).map_or(0, |found| found.len());
            let shown = file
                .strip_prefix(dir)
                .unwrap_or(&file)
                .display()
                .to_string();
            ensure!(
                size <= FILE_BYTES_MAX,
                "{shown} has {size} bytes, which no output of qconf has"
            );
            let bytes =
                fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            dump.take(&shown, &String::from_utf8_lossy(&bytes));
        }
        dump.complete();
        Ok(dump)
    }

    /// Adds the group of all hosts, which a dump of queues and hosts may lack.
    pub(super) fn complete(&mut self) {
        let hosts = self.hosts.iter();
        let all = hosts.map(|host| host.name().to_owned()).collect();
        self.groups.entry(ALL_HOSTS.to_owned()).or_insert(all);
    }

    /// Takes the text of a file, which may have several objects, each begun by its first key.
    pub(super) fn take(&mut self, file: &str, text: &str) {
        if text.trim_start().starts_with("#name") {
            return self.take_complexes(text);
        }
        if text.trim_start().starts_with('{') {
            return self.take_quotas(text);
        }
        let base = file.rsplit('/').next().unwrap_or(file);
        if base == "admin_hosts" {
            self.admin_hosts = text.split_whitespace().map(str::to_owned).collect();
            return;
        }
        if let Some((_, why)) = BARE.iter().find(|(own, _)| *own == base) {
            self.unknown.push((
                format!(
                    "{base} ({})",
                    text.split_whitespace().collect::<Vec<_>>().join(" ")
                ),
                (*why).to_owned(),
            ));
            return;
        }
        let lines = joined(text);
        let mut object = Object::default();
        for (key, value) in lines {
            if is_first(&key) && !object.lines.is_empty() && object.kind == key {
                self.keep(file, std::mem::take(&mut object));
            }
            if object.lines.is_empty() {
                object.kind.clone_from(&key);
                object.what = format!("{key} {value}");
            }
            object.lines.push((key, value));
        }
        if !object.lines.is_empty() {
            self.keep(file, object);
        }
    }

    fn keep(&mut self, file: &str, object: Object) {
        let has = |key: &str| object.lines.iter().any(|(own, _)| own == key);
        match object.kind.as_str() {
            "qname" => self.queues.push(object),
            "pe_name" => self.environments.push(object),
            "jcname" => self.classes.push(object),
            "hostname" if object.name() == "global" => self.global = Some(object),
            "hostname" if object.name() != "template" => self.hosts.push(object),
            "group_name" => {
                let hosts = object.list("hostlist").0;
                self.groups.insert(object.name().to_owned(), hosts);
            }
            "name" if has("entries") => self.usersets.push(object),
            "name" if has("default_project") => self.users.push(object),
            "name" if has("fshare") || has("acl") => self.projects.push(object),
            "execd_spool_dir" => self.configuration = Some(object),
            "calendar_name" => self.calendars.push(object),
            "ckpt_name" | "algorithm" => self.others.push(object),
            "id" => self.others.push(Object {
                kind: "sharetree".to_owned(),
                what: "the share tree".to_owned(),
                lines: object.lines,
            }),
            _ => self.unknown.push((
                format!("file {file}"),
                "it is not a known output of qconf".to_owned(),
            )),
        }
    }

    fn take_complexes(&mut self, text: &str) {
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
        {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, _, kind, _, requestable, consumable, rest @ ..] = words.as_slice() else {
                continue;
            };
            self.complexes.push(Complex {
                name: (*name).to_owned(),
                kind: (*kind).to_owned(),
                requestable: !requestable.eq_ignore_ascii_case("no"),
                consumable: consumable.to_ascii_uppercase(),
                default: rest.first().copied().unwrap_or_default().to_owned(),
            });
        }
    }

    fn take_quotas(&mut self, text: &str) {
        let mut name = String::new();
        let mut limits = Vec::new();
        let mut enabled = true;
        for line in text.lines().map(str::trim) {
            match line.split_once(char::is_whitespace) {
                Some(("name", value)) => name = value.trim().to_owned(),
                Some(("enabled", value)) => enabled = value.trim().eq_ignore_ascii_case("true"),
                Some(("limit", _)) => limits.push(line.to_owned()),
                _ if line == "}" => {
                    let limits = std::mem::take(&mut limits);
                    if enabled {
                        self.quotas.push((name.clone(), limits));
                    }
                }
                _ => {}
            }
        }
    }

    /// A setting of the whole cluster.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.configuration.as_ref()?.get(key)
    }

    /// The names that lists of hosts may have.
    pub(super) fn known_hosts(&self) -> KnownHosts<'_> {
        let hosts: HashSet<&str> = self.hosts.iter().map(Object::name).collect();
        let mut within: HashMap<&str, Vec<&str>> = HashMap::new();
        for (group, inside) in &self.groups {
            for word in inside {
                within.entry(word).or_default().push(group);
            }
        }
        let (mut groups, mut waiting) = (HashSet::new(), Vec::from_iter(hosts.iter().copied()));
        while let Some(word) = waiting.pop() {
            for group in within.remove(word).unwrap_or_default() {
                if groups.insert(group) {
                    waiting.push(group);
                }
            }
        }
        KnownHosts { hosts, groups }
    }

    /// The hosts of a list of hosts and groups, each once. Groups have groups in them, which may be the same ones.
    pub(super) fn hosts_of(&self, list: &[String], known: &KnownHosts<'_>) -> Vec<String> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let mut waiting: Vec<&String> = list.iter().rev().collect();
        while let Some(word) = waiting.pop() {
            if !seen.insert(word) {
                continue;
            }
            if word.starts_with('@') {
                let inside = self.groups.get(word).map_or(&[][..], Vec::as_slice);
                waiting.extend(inside.iter().rev());
            } else if known.hosts.contains(word.as_str()) {
                all.push(word.clone());
            }
        }
        all
    }
}

/// Hosts, and groups that have some: made once, since cells have many lists of them.
#[derive(Debug)]
pub(super) struct KnownHosts<'a> {
    hosts: HashSet<&'a str>,
    groups: HashSet<&'a str>,
}

impl KnownHosts<'_> {
    /// Whether a word of a list is such a host or group.
    pub(super) fn has(&self, word: &str) -> bool {
        self.hosts.contains(word) || self.groups.contains(word)
    }
}

/// Keys that begin an object, so that one file may have several.
fn is_first(key: &str) -> bool {
    [
        "qname",
        "pe_name",
        "jcname",
        "hostname",
        "group_name",
        "calendar_name",
        "ckpt_name",
    ]
    .contains(&key)
}

fn list(dir: &Path, depth: usize, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    ensure!(
        depth <= DEPTH_MAX,
        "{} has directories too deep in each other",
        dir.display()
    );
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), depth + 1, files)?;
        } else if kind.is_file() {
            files.push(entry.path());
            ensure!(
                files.len() <= FILES_MAX,
                "{} has too many files",
                dir.display()
            );
        }
    }
    Ok(())
}

/// Lines as keys and values; `\` at the end joins a line with the next. Keys of share trees end in `=`.
fn joined(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let line = line.trim();
        if !goes_on && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let (part, more) = line
            .strip_suffix('\\')
            .map_or((line, false), |part| (part.trim(), true));
        match all.last_mut().filter(|_| goes_on) {
            Some((_, value)) => {
                // A list goes on where a word ends.
                if !value.ends_with([',', '[']) && !part.starts_with([',', ']', '[']) {
                    value.push(' ');
                }
                value.push_str(part);
            }
            None => {
                let (key, value) = part.split_once([' ', '\t', '=']).unwrap_or((part, ""));
                all.push((key.to_owned(), value.trim().to_owned()));
            }
        }
        goes_on = more;
    }
    all
}
