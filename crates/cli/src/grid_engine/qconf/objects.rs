//! Objects that are lines of sge.conf and sections of job_classes.conf: parallel environments, complexes, host groups, the JSV, job
//! classes. Users who can change these files on the controller's host change them by qconf; others get an answer of `in_files`.

use super::site_file::SiteFile;
use super::{ClusterData, in_files};
use crate::connect::Client;
use crate::editor;
use crate::grid_engine::{fail, unreachable};
use crate::say;
use crate::submit::line;
use muster_conf::Diagnostic;
use muster_conf::grid_engine::edited::{with_class, with_line};
use muster_conf::grid_engine::{ALL_HOSTS, AllocationRule, ComplexTarget, FILE, Mapping};
use muster_conf::job_classes::{self, JobClasses};
use muster_model::command::UserCommand;
use muster_trust::host::short_name;
use std::process::ExitCode;

/// A new value of a line of sge.conf; without a value the line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineChange {
    keyword: &'static str,
    name: String,
    value: Option<String>,
    /// The line for the user.
    done: String,
}

/// Carries out an option; `None` for other options, and where the caller cannot change the file.
pub(super) fn run(option: &str, values: &[String]) -> Option<Result<ExitCode, ExitCode>> {
    let (verb, object) = option.strip_prefix('-')?.split_at_checked(1)?;
    let is_attribute = object == "attr" && matches!(values.first()?.as_str(), "pe" | "hostgroup");
    let is_known = is_attribute || matches!(object, "p" | "hgrp" | "c" | "cal" | "conf" | "jc");
    if !is_known || !matches!(verb, "a" | "A" | "m" | "M" | "d" | "D" | "r" | "R") {
        return None;
    }
    // All but these name a file or an object.
    if values.is_empty() && !matches!(option, "-mc" | "-mconf" | "-ajc") {
        return None;
    }
    let client = match Client::connect() {
        Ok(client) => client,
        Err(error) => return Some(Err(unreachable(&error))),
    };
    let file = if object == "jc" {
        job_classes::FILE
    } else {
        FILE
    };
    let file = SiteFile::changeable(file, &client)?;
    Some(ClusterData::load().and_then(|shown| {
        let change = ObjectChange {
            shown: &shown,
            verb,
            object,
            values,
        };
        let done = match object {
            "jc" => change.class(&file),
            _ => change.lines(&file),
        };
        match done {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(why) => Err(fail(&why, 1)),
        }
    }))
}

/// An option with its values.
struct ObjectChange<'a> {
    shown: &'a ClusterData,
    verb: &'a str,
    object: &'a str,
    values: &'a [String],
}

impl ObjectChange<'_> {
    fn value(&self, at: usize) -> &str {
        self.values.get(at).map_or("", String::as_str)
    }

    /// Makes changes of sge.conf.
    fn lines(&self, file: &SiteFile) -> Result<(), String> {
        let changes = match self.object {
            "p" => vec![self.environment()?],
            "hgrp" => vec![self.host_group()?],
            "c" => self.complexes()?,
            "cal" => vec![self.calendar()?],
            "conf" => self.configuration()?,
            _ => self.attributes()?,
        };
        file.change(
            |text| {
                // A change of a list is made of the list that was read.
                if Mapping::parse(text, FILE).0 != self.shown.mapping {
                    return Err("denied: sge.conf has changed meanwhile; try again".to_owned());
                }
                let mut text = with_usual_environments(text, &self.shown.mapping, &changes);
                for change in &changes {
                    text = with_line(&text, change.keyword, &change.name, change.value.as_deref());
                }
                Ok(text)
            },
            |text, name| self.findings(text, name),
        )?;
        for change in &changes {
            say::stdout(&format!("{}\n", change.done));
        }
        match (changes.is_empty(), self.object) {
            (true, _) => say::stdout("nothing has changed\n"),
            (false, "cal") => return self.take_over_calendars(&changes),
            (false, _) => notice(),
        }
        Ok(())
    }

    fn findings(&self, text: &str, name: &str) -> Vec<Diagnostic> {
        let (mapping, mut findings) = Mapping::parse(text, name);
        let partitions = &self.shown.ctx.partitions;
        let is_there = |queue: &str| partitions.iter().any(|own| own.name == queue);
        findings.extend(mapping.queues_without_partition(name, is_there));
        findings
    }

    fn line(
        &self,
        keyword: &'static str,
        list: &str,
        name: &str,
        value: Option<String>,
        is_new: bool,
    ) -> LineChange {
        let who = who();
        let done = match (&value, is_new) {
            (None, _) => format!("{who} removed \"{name}\" from {list} list"),
            (Some(_), true) => format!("{who} added \"{name}\" to {list} list"),
            (Some(_), false) => format!("{who} modified \"{name}\" in {list} list"),
        };
        LineChange {
            keyword,
            name: name.to_owned(),
            value,
            done,
        }
    }

    /// `-ap`, `-Ap`, `-mp`, `-Mp`, `-dp`.
    fn environment(&self) -> Result<LineChange, String> {
        let name = self.value(0);
        let known = |name: &str| self.shown.mapping.rule(name).is_some();
        let missing =
            |name: &str| format!("denied: parallel environment \"{name}\" does not exist");
        let text = match self.verb {
            "d" if !known(name) => return Err(missing(name)),
            "d" => return Ok(self.line("pe", PE_LIST, name, None, false)),
            "a" => edited(
                "pe",
                &self.shown.environment_text(name, AllocationRule::PeSlots),
            )?,
            "m" => edited("pe", &self.shown.environment(name)?)?,
            _ => in_files::text(name)?,
        };
        let rows = in_files::rows_of(&text);
        let (name, rule) = in_files::environment_of_rows(&rows)?;
        self.check_environment(&rows)?;
        match (self.verb, known(name)) {
            ("a" | "A", true) => Err(format!("parallel environment \"{name}\" already exists")),
            ("m" | "M", false) => Err(missing(name)),
            (_, is_there) => Ok(self.line("pe", PE_LIST, name, Some(rule.text()), !is_there)),
        }
    }

    /// Attributes of an environment beside its rule: those that are set by other means are refused.
    fn check_environment(&self, rows: &[(String, String)]) -> Result<(), String> {
        let slots: u64 = self.shown.slots();
        for (name, value) in rows {
            let why = match (name.as_str(), value.as_str()) {
                ("pe_name" | "allocation_rule", _)
                | (
                    "user_lists" | "xuser_lists" | "start_proc_args" | "stop_proc_args"
                    | "qsort_args",
                    "NONE",
                )
                | ("start_proc_args" | "stop_proc_args", "/bin/true")
                | ("control_slaves" | "job_is_first_task" | "accounting_summary", "TRUE")
                | ("urgency_slots", "min") => continue,
                ("slots", value) if value.parse().is_ok_and(|own: u64| own >= slots) => continue,
                ("slots", _) => {
                    "limits of slots are those of accounts and QOS: qconf -Arqs, sacctmgr"
                }
                ("user_lists" | "xuser_lists", _) => {
                    "queues have lists of users: user_lists of qconf -mq"
                }
                ("start_proc_args" | "stop_proc_args", _) => {
                    "Prolog, Epilog and TaskProlog of slurm.conf run programs"
                }
                (
                    "control_slaves" | "job_is_first_task" | "accounting_summary" | "urgency_slots"
                    | "qsort_args",
                    _,
                ) => {
                    say::stderr(&format!("qconf: warning: {name} {value} has no effect\n"));
                    continue;
                }
                _ => return Err(format!("unknown attribute name \"{name:.80}\"")),
            };
            return Err(format!(
                "denied: {name} {value} of a parallel environment: {why}"
            ));
        }
        Ok(())
    }

    /// `-acal`, `-Acal`, `-mcal`, `-Mcal`, `-dcal`.
    fn calendar(&self) -> Result<LineChange, String> {
        let name = self.value(0);
        let known = |name: &str| self.shown.mapping.calendar(name).is_some();
        let missing = |name: &str| format!("denied: calendar \"{name}\" does not exist");
        let text = match self.verb {
            "d" if !known(name) => return Err(missing(name)),
            "d" => {
                return match self.shown.queues_with_calendar(name).first() {
                    Some(queue) => Err(format!(
                        "denied: Calendar \"{name}\" is still referenced in queue \"{queue}\""
                    )),
                    None => Ok(self.line("calendar", "calendar", name, None, false)),
                };
            }
            "a" => edited("calendar", &calendar_text(name, "NONE", "NONE"))?,
            "m" => edited("calendar", &self.shown.calendar(name)?)?,
            _ => in_files::text(name)?,
        };
        let calendar = in_files::calendar_of_rows(&in_files::rows_of(&text))?;
        let name = &calendar.name;
        let value = format!("year {} week {}", calendar.year, calendar.week);
        match (self.verb, known(name)) {
            ("a" | "A", true) => Err(format!("calendar \"{name}\" already exists")),
            ("m" | "M", false) => Err(missing(name)),
            (_, is_there) => Ok(self.line("calendar", "calendar", name, Some(value), !is_there)),
        }
    }

    /// Partitions that have a calendar get it as it is now.
    fn take_over_calendars(&self, changes: &[LineChange]) -> Result<(), String> {
        for change in changes {
            let Some(value) = &change.value else {
                continue;
            };
            let text = format!("{} {value}", change.name);
            for partition in &self.shown.ctx.partitions {
                let calendar = partition.calendar.as_ref();
                if calendar.is_some_and(|own| own.calendar.name == change.name) {
                    let command = UserCommand::UpdatePartition {
                        name: partition.name.clone(),
                        read: Vec::new(),
                        pairs: vec![("Calendar".to_owned(), text.clone())],
                    };
                    let sent = Client::connect().and_then(|mut client| client.command(command));
                    sent.map_err(|error| format!("error: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// `-ahgrp`, `-Ahgrp`, `-mhgrp`, `-Mhgrp`, `-dhgrp`.
    fn host_group(&self) -> Result<LineChange, String> {
        let name = self.value(0);
        let groups = &self.shown.mapping.host_groups;
        let known = |name: &str| groups.iter().any(|own| own.name == name);
        let missing = |name: &str| format!("Host group \"{name}\" does not exist");
        let text = match self.verb {
            "d" => {
                let user = groups
                    .iter()
                    .find(|own| own.members.iter().any(|one| one == name));
                return match (known(name), user) {
                    (false, _) => Err(missing(name)),
                    (true, Some(other)) => Err(format!(
                        "denied: host group \"{name}\" is in \"{}\"",
                        other.name
                    )),
                    (true, None) => Ok(self.line("hostgroup", GROUP_LIST, name, None, false)),
                };
            }
            "a" => edited("host group", &format!("group_name {name}\nhostlist NONE\n"))?,
            "m" => edited("host group", &self.shown.host_group(name)?)?,
            _ => in_files::text(name)?,
        };
        let rows = in_files::rows_of(&text);
        let name = in_files::row(&rows, "group_name")?;
        let hosts = in_files::row(&rows, "hostlist")?;
        match (self.verb, known(name)) {
            ("a" | "A", true) => Err(format!("Host group \"{name}\" already exists")),
            ("m" | "M", false) => Err(missing(name)),
            (_, is_there) => Ok(self.line(
                "hostgroup",
                GROUP_LIST,
                name,
                Some(self.members(hosts)?),
                !is_there,
            )),
        }
    }

    /// Hosts and groups of a list, each of which must be there.
    fn members(&self, list: &str) -> Result<String, String> {
        let words: Vec<&str> = list
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .collect();
        for word in &words {
            let mut groups = self.shown.mapping.host_groups.iter();
            let is_there = match word.starts_with('@') {
                true => *word == ALL_HOSTS || groups.any(|own| own.name == *word),
                false => self
                    .shown
                    .ctx
                    .nodes
                    .iter()
                    .any(|node| node.config.name == *word),
            };
            if !is_there && word.starts_with('@') {
                return Err(format!("Host group \"{word}\" does not exist"));
            }
            if !is_there {
                return Err(format!("can't resolve hostname \"{word}\""));
            }
        }
        match words.is_empty() || words == ["NONE"] {
            true => {
                Err("denied: a host group has a host at least; qconf -dhgrp removes it".to_owned())
            }
            false => Ok(words.join(" ")),
        }
    }

    /// `-mattr`, `-aattr`, `-dattr`, `-rattr` of environments and host groups, and the same with a file.
    fn attributes(&self) -> Result<Vec<LineChange>, String> {
        let of_file = self.verb.starts_with(|c: char| c.is_ascii_uppercase());
        let rows = match of_file {
            true => in_files::rows_of(&in_files::text(self.value(1))?),
            false => vec![(self.value(1).to_owned(), self.value(2).to_owned())],
        };
        let names = self.value(if of_file { 2 } else { 3 });
        if names.is_empty() {
            return Err(format!(
                "qconf: option \"-{}attr\" is followed by: object attribute value names",
                self.verb
            ));
        }
        let mut changes = Vec::new();
        for name in names.split(',') {
            for (attribute, value) in &rows {
                changes.push(match (self.value(0), attribute.as_str()) {
                    ("pe", "allocation_rule") => self.rule(name, value)?,
                    ("hostgroup", "hostlist") => self.group_members(name, value)?,
                    ("pe", _) => {
                        let one = [(attribute.clone(), value.clone())];
                        self.check_environment(&one)?;
                        continue;
                    }
                    _ => return Err(format!("unknown attribute name \"{attribute:.80}\"")),
                });
            }
        }
        Ok(changes)
    }

    fn rule(&self, name: &str, value: &str) -> Result<LineChange, String> {
        let missing = || format!("denied: parallel environment \"{name}\" does not exist");
        self.shown.mapping.rule(name).ok_or_else(missing)?;
        let rule = AllocationRule::parse(value);
        let rule = rule.ok_or_else(|| format!("allocation_rule \"{value}\" is not valid"))?;
        Ok(self.line("pe", PE_LIST, name, Some(rule.text()), false))
    }

    fn group_members(&self, name: &str, value: &str) -> Result<LineChange, String> {
        let groups = &self.shown.mapping.host_groups;
        let group = groups.iter().find(|own| own.name == name);
        let group = group.ok_or_else(|| format!("Host group \"{name}\" does not exist"))?;
        let given = value.split([' ', ',']).filter(|word| !word.is_empty());
        let mut members: Vec<&str> = group.members.iter().map(String::as_str).collect();
        match self.verb.to_ascii_lowercase().as_str() {
            "r" => members = given.collect(),
            "d" => {
                for word in given {
                    let at = members.iter().position(|own| *own == word);
                    members.remove(at.ok_or_else(|| {
                        format!("\"{word}\" does not exist in \"hostlist\" of \"{name}\"")
                    })?);
                }
            }
            _ => {
                for word in given {
                    if !members.contains(&word) {
                        members.push(word);
                    }
                }
            }
        }
        let members = self.members(&members.join(" "))?;
        Ok(self.line("hostgroup", GROUP_LIST, name, Some(members), false))
    }

    /// `-Mc`, `-mc`: complexes that the table has more or no more.
    fn complexes(&self) -> Result<Vec<LineChange>, String> {
        let text = match self.verb {
            "m" => edited("complex", &self.shown.complexes())?,
            "M" => in_files::text(self.value(0))?,
            _ => return Err("qconf: complexes are changed by -mc and -Mc FILE".to_owned()),
        };
        let mapping = &self.shown.mapping;
        let known = self.shown.complex_rows();
        let (mut changes, mut named) = (Vec::new(), Vec::new());
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
        {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, shortcut, kind, _, _, consumable, ..] = words[..] else {
                match words.is_empty() {
                    true => continue,
                    false => {
                        return Err(format!(
                            "error: a line of a complex has eight columns: {}",
                            line.trim()
                        ));
                    }
                }
            };
            named.push(name);
            let row = known.iter().find(|row| row[0] == name);
            if row.is_some_and(|row| row[2] == kind && row[5] == consumable) {
                continue;
            }
            if row.is_some() && mapping.complex(name).is_none() {
                return Err(format!(
                    "denied: complex {name} is {kind} {consumable}: it has its meaning here without sge.conf, and keeps it"
                ));
            }
            if shortcut != name {
                say::stderr(&format!(
                    "qconf: warning: complex {name} has no shortcut {shortcut}; a complex of that name can be added\n"
                ));
            }
            let target = self.target(name, kind, consumable)?;
            changes.push(self.line("complex", COMPLEX_LIST, name, Some(target), row.is_none()));
        }
        for (name, _) in &mapping.complexes {
            if !named.contains(&name.as_str()) {
                changes.push(self.line("complex", COMPLEX_LIST, name, None, false));
            }
        }
        Ok(changes)
    }

    /// The target of a complex: a device or a license of its name where there is one, a feature, memory.
    fn target(&self, name: &str, kind: &str, consumable: &str) -> Result<String, String> {
        let is_gres = self.shown.gres.iter().any(|own| own == name);
        let before = self.shown.mapping.complex(name);
        let per = match consumable {
            "YES" => " slot",
            "JOB" => " job",
            _ => "",
        };
        match (kind, consumable, before) {
            ("BOOL", ..) => Ok(format!("feature:{name}")),
            ("MEMORY", "YES", _) => Ok("memory".to_owned()),
            (
                "INT" | "RSMAP" | "DOUBLE",
                "YES" | "JOB" | "HOST",
                Some(ComplexTarget::Gres(own, _)),
            ) => Ok(format!("gres:{own}{per}")),
            ("INT" | "RSMAP" | "DOUBLE", "YES" | "JOB" | "HOST", _) if is_gres => {
                Ok(format!("gres:{name}{per}"))
            }
            ("INT" | "RSMAP" | "DOUBLE", "YES" | "JOB", _) if self.shown.has_license(name) => {
                Ok(format!("license:{name}"))
            }
            ("INT" | "RSMAP" | "DOUBLE", "YES" | "JOB" | "HOST", _) => Err(format!(
                "denied: complex {name}: slurm.conf has neither a device (GresTypes={name}) nor a license (Licenses={name}:N) of \
                 that name; write one of them, then scontrol reconfigure"
            )),
            _ => Err(format!(
                "denied: complex {name}: nodes have no such value of type {kind}; a feature (BOOL) says what they are"
            )),
        }
    }

    /// `-Mconf`, `-mconf`: rows that are of sge.conf.
    fn configuration(&self) -> Result<Vec<LineChange>, String> {
        let shown = self.shown.configuration("")?;
        let text = match self.verb {
            "m" if matches!(self.value(0), "" | "global") => edited("configuration", &shown)?,
            "M" => in_files::text(self.value(0))?,
            _ => return Err("denied: hosts have no configuration of their own".to_owned()),
        };
        let known = in_files::rows_of(&shown);
        let mut changes = Vec::new();
        for (name, value) in in_files::rows_of(&text) {
            let before = known.iter().find(|(own, _)| *own == name);
            let Some((_, before)) = before else {
                return Err(format!("unknown attribute name \"{name:.80}\""));
            };
            if before.eq_ignore_ascii_case(&value) {
                continue;
            }
            let keyword = match name.as_str() {
                "jsv_url" => "jsv_url",
                "jsv_allowed_mod" => "jsv_allowed_mod",
                _ => {
                    return Err(format!(
                        "denied: {name} {value}: write it into slurm.conf, then scontrol reconfigure"
                    ));
                }
            };
            changes.push(LineChange {
                keyword,
                name: String::new(),
                value: Some(value),
                done: format!("{} modified \"global\" in configuration list", who()),
            });
        }
        Ok(changes)
    }

    /// `-ajc`, `-Ajc`, `-mjc`, `-Mjc`, `-djc`.
    fn class(&self, file: &SiteFile) -> Result<(), String> {
        let asked = self.value(0);
        let classes = JobClasses::parse(&file.read_text()?, job_classes::FILE).0;
        let known = |name: &str| classes.classes.iter().any(|own| own.name == name);
        let missing = |name: &str| format!("Job class \"{name}\" does not exist");
        let text = match self.verb {
            "d" if !known(asked) => return Err(missing(asked)),
            "d" => None,
            "a" => Some(edited("job class", &format!("jcname {asked}\n"))?),
            "m" => Some(edited(
                "job class",
                &classes.show(asked).ok_or_else(|| missing(asked))?,
            )?),
            _ => Some(in_files::text(asked)?),
        };
        let rows = text.as_deref().map(in_files::rows_of).unwrap_or_default();
        let name = match &text {
            None => asked,
            Some(_) => in_files::row(&rows, "jcname")?,
        };
        let named = rows.iter().filter(|(key, _)| key == "jcname").count();
        match (self.verb, known(name)) {
            _ if named > 1 => return Err("denied: one job class at a time".to_owned()),
            ("a" | "A", true) => return Err(format!("Job class \"{name}\" already exists")),
            ("m" | "M", false) => return Err(missing(name)),
            _ => {}
        }
        file.change(
            |before| match JobClasses::parse(before, job_classes::FILE).0 == classes {
                true => Ok(with_class(before, name, text.as_deref())),
                false => {
                    Err("denied: job_classes.conf has changed meanwhile; try again".to_owned())
                }
            },
            |text, path| JobClasses::parse(text, path).1,
        )?;
        let change = self.line("complex", "job class", name, text.clone(), !known(name));
        say::stdout(&format!("{}\n", change.done));
        say::stderr("qconf: scontrol reconfigure has the controller read job_classes.conf\n");
        Ok(())
    }
}

/// A calendar as `-scal` shows it.
pub(super) fn calendar_text(name: &str, year: &str, week: &str) -> String {
    format!("calendar_name    {name}\nyear             {year}\nweek             {week}\n")
}

const PE_LIST: &str = "parallel environment";
const GROUP_LIST: &str = "host group";
const COMPLEX_LIST: &str = "complex entry";

/// Without a pe line there are the usual environments, which a first line would take away: they get lines then.
fn with_usual_environments(text: &str, mapping: &Mapping, changes: &[LineChange]) -> String {
    let mut text = text.to_owned();
    if mapping.pes.is_empty() && changes.iter().any(|own| own.keyword == "pe") {
        for (name, rule) in mapping.environments() {
            text = with_line(&text, "pe", &name, Some(&rule.text()));
        }
    }
    text
}

fn notice() {
    say::stderr(
        "qconf: sge.conf is changed on this host; scontrol reconfigure has the controller read it, and give it to hosts that have \
         it from there\n",
    );
}

/// `root@host`.
fn who() -> String {
    let user = line::user(&nix::unistd::getuid().to_string());
    let user = user.map(|user| user.name).unwrap_or_default();
    format!("{user}@{}", short_name())
}

/// Lets the user edit a text.
fn edited(what: &str, text: &str) -> Result<String, String> {
    let edited = editor::edit("qconf", what, text)?;
    in_files::text(&edited.path().to_string_lossy())
}
