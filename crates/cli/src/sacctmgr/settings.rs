//! Settings of associations and QOS: their syntax, their errors in Slurm's words, and their output before they are
//! made.

mod qos;

pub(super) use qos::{QOS, QosSettings, flags_text};

use super::book::Book;
use super::words::Word;
use super::{amounts_text, clock_of_minutes};
use muster_model::account_limits::{LimitAsk, Limits, TresAmounts};
use muster_model::accounts::PARENT_SHARES;
use muster_model::command::ListEdit;
use muster_model::command::{QosAsk, TermsAsk};
use std::fmt::Write as _;

/// Form of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitForm {
    /// A number.
    Count,
    /// Amounts of TRES.
    Tres,
    /// A time, minutes as a plain number.
    Time,
}

/// A key of an association's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssociationKey {
    Shares,
    Priority,
    Qos,
    DefaultQos,
    RawUsage,
    /// A limit: its usual name, and how it is written.
    Limit(&'static str, LimitForm),
}

use AssociationKey as A;
use LimitForm::{Count, Time, Tres};

const fn limit(name: &'static str, form: LimitForm) -> A {
    A::Limit(name, form)
}

/// Keys of associations, with the fewest letters of each that will do.
pub(super) const ASSOCIATION: &[(&str, usize, A)] = &[
    ("FairShare", 1, A::Shares),
    ("Shares", 1, A::Shares),
    ("GrpCPUMins", 7, limit("GrpCPUMins", Count)),
    ("GrpCPURunMins", 7, limit("GrpCPURunMins", Count)),
    ("GrpCPUs", 6, limit("GrpCPUs", Count)),
    ("GrpJobsAccrue", 8, limit("GrpJobsAccrue", Count)),
    ("GrpJobs", 4, limit("GrpJobs", Count)),
    ("GrpMemory", 4, limit("GrpMemory", Count)),
    ("GrpNodes", 4, limit("GrpNodes", Count)),
    ("GrpSubmitJobs", 4, limit("GrpSubmitJobs", Count)),
    ("GrpTRESMins", 8, limit("GrpTRESMins", Tres)),
    ("GrpTRESRunMins", 8, limit("GrpTRESRunMins", Tres)),
    ("GrpTRES", 7, limit("GrpTRES", Tres)),
    ("GrpWall", 4, limit("GrpWall", Time)),
    ("MaxCPUMinsPerJob", 7, limit("MaxCPUMins", Count)),
    ("MaxCPUsPerJob", 7, limit("MaxCPUs", Count)),
    ("MaxJobsAccrue", 8, limit("MaxJobsAccrue", Count)),
    ("MaxJobs", 4, limit("MaxJobs", Count)),
    ("MaxNodesPerJob", 4, limit("MaxNodes", Count)),
    ("MaxSubmitJobs", 4, limit("MaxSubmitJobs", Count)),
    ("MaxTRESMinsPerJob", 8, limit("MaxTRESMins", Tres)),
    ("MaxTRESMinsPJ", 8, limit("MaxTRESMins", Tres)),
    ("MaxTRESPerNode", 11, limit("MaxTRESPerNode", Tres)),
    ("MaxTRESPN", 9, limit("MaxTRESPerNode", Tres)),
    ("MaxTRESPerJob", 7, limit("MaxTRES", Tres)),
    ("MaxTRESPJ", 9, limit("MaxTRES", Tres)),
    ("MaxWallDurationPerJob", 4, limit("MaxWall", Time)),
    ("MinPrioThreshold", 4, limit("MinPrioThreshold", Count)),
    ("Priority", 3, A::Priority),
    ("QOSLevels", 1, A::Qos),
    ("DefaultQOS", 8, A::DefaultQos),
    ("DefQOS", 6, A::DefaultQos),
    ("RawUsage", 7, A::RawUsage),
];

/// Settings of an association.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AssociationSettings {
    /// As they are asked for.
    pub(super) terms: TermsAsk,
    /// Whether use is to be forgotten.
    pub(super) resets_usage: bool,
    /// Limits that are cleared, by their usual names and TRES.
    cleared: Vec<(String, String)>,
}

impl AssociationSettings {
    pub(super) fn is_empty(&self) -> bool {
        *self == AssociationSettings::default()
    }

    /// Takes a setting, or returns its error: lines in Slurm's words.
    pub(super) fn take(&mut self, key: A, word: &Word, book: &Book) -> Result<(), String> {
        let value = word.value.as_str();
        match key {
            A::Shares => {
                self.terms.shares = Some(match value.to_ascii_lowercase().as_str() {
                    "parent" => Some(PARENT_SHARES),
                    "-1" | "none" => None,
                    // The text in a dump for the parent's shares.
                    "2147483647" => Some(PARENT_SHARES),
                    _ => Some(number("FairShare", value)?),
                });
            }
            A::Priority => self.terms.priority = Some(optional("Priority", value)?),
            A::Qos => self.take_qos(word, book)?,
            A::DefaultQos => {
                let name = match value {
                    "-1" => String::new(),
                    _ => book.all.qos_key(value),
                };
                if !name.is_empty() && book.all.qos(&name).is_none() {
                    return Err(format!(
                        "You gave a bad default qos '{value}'.  Use 'list qos' to get complete list."
                    ));
                }
                self.terms.default_qos = Some(name);
            }
            A::RawUsage => {
                if value.parse::<f64>() != Ok(0.0) {
                    let text = "sacctmgr: error: Raw usage can only be set to 0 (zero)";
                    return Err(text.to_owned());
                }
                self.resets_usage = true;
            }
            A::Limit(name, form) => {
                let asks = limit_asks((name, form), word, &mut self.cleared, book)?;
                self.terms.limits.extend(asks);
            }
        }
        Ok(())
    }

    fn take_qos(&mut self, word: &Word, book: &Book) -> Result<(), String> {
        let (mut plain, mut more, mut less) = (Vec::new(), Vec::new(), Vec::new());
        // A sign before the equal sign is that of all items that have none.
        let outer = word
            .text
            .split_once('=')
            .and_then(|(key, _)| key.chars().next_back());
        let outer = outer.filter(|c| "+-".contains(*c));
        for item in word.value.split(',') {
            let item = item.trim_matches(['"', '\'']);
            let sign = item.chars().next().filter(|c| "+-".contains(*c)).or(outer);
            let name = book.all.qos_key(item.trim_start_matches(['+', '-']));
            if name.is_empty() {
                continue;
            }
            known_qos(&name, book)?;
            match sign {
                Some('+') => more.push(name),
                Some(_) => less.push(name),
                None => plain.push(name),
            }
        }
        let has_signs = !more.is_empty() || !less.is_empty();
        if has_signs && !plain.is_empty() {
            let text = "sacctmgr: error: You can't set qos equal to something and then add or subtract from it in the same line";
            return Err(text.to_owned());
        }
        let (sign, names) = match (plain.is_empty(), more.is_empty()) {
            (false, _) => (None, plain),
            (true, false) => (Some('+'), more),
            (true, true) if !less.is_empty() => (Some('-'), std::mem::take(&mut less)),
            (true, true) => (None, Vec::new()),
        };
        self.terms.qos = Some(ListEdit { sign, names });
        self.terms.qos_less = less;
        Ok(())
    }

    /// The lines of the settings, in Slurm's order; `parent` is among them.
    pub(super) fn lines(&self, parent: Option<&str>) -> String {
        let cleared = |name: &str| self.cleared.iter().any(|(own, _)| own == name);
        let l = limits(&self.terms.limits, false);
        let count = |name: &str, value: Option<u32>| match value {
            Some(value) => value.to_string(),
            None if cleared(name) => "NONE".to_owned(),
            None => String::new(),
        };
        let time = |name: &str, value: Option<u64>| match value {
            Some(minutes) => clock_of_minutes(minutes),
            None if cleared(name) => "NONE".to_owned(),
            None => String::new(),
        };
        let tres = |name: &str, of: &TresAmounts| self.tres(name, of);
        let shares = match self.terms.shares {
            Some(Some(PARENT_SHARES)) => "parent".to_owned(),
            Some(Some(shares)) => shares.to_string(),
            Some(None) => "NONE".to_owned(),
            None => String::new(),
        };
        let priority = match self.terms.priority {
            Some(None) => "NONE".to_owned(),
            other => other.flatten().map_or(String::new(), |p| p.to_string()),
        };
        let qos = self.terms.qos.as_ref().map(|ListEdit { sign, names }| {
            let sign = sign.map_or(String::new(), String::from);
            let mut names: Vec<String> = names.iter().map(|n| format!("{sign}{n}")).collect();
            names.extend(self.terms.qos_less.iter().map(|name| format!("-{name}")));
            names.sort_unstable();
            names.join(",")
        });
        let all = [
            ("Fairshare", 14, shares),
            ("GrpJobs", 14, count("GrpJobs", l.grp_jobs)),
            (
                "GrpJobsAccrue",
                25,
                count("GrpJobsAccrue", l.grp_jobs_accrue),
            ),
            ("GrpSubmitJobs", 14, count("GrpSubmitJobs", l.grp_submit)),
            ("GrpTRES", 14, tres("GrpTRES", &l.grp_tres)),
            ("GrpTRESMins", 14, tres("GrpTRESMins", &l.grp_tres_mins)),
            (
                "GrpTRESRunMins",
                14,
                tres("GrpTRESRunMins", &l.grp_tres_run_mins),
            ),
            ("GrpWall", 14, time("GrpWall", l.grp_wall_min)),
            ("MaxJobs", 14, count("MaxJobs", l.max_jobs)),
            (
                "MaxJobsPrioAcc",
                14,
                count("MaxJobsAccrue", l.max_jobs_accrue),
            ),
            ("MaxSubmitJobs", 14, count("MaxSubmitJobs", l.max_submit)),
            ("MaxTRES", 14, tres("MaxTRES", &l.max_tres)),
            (
                "MaxTRESPerNode",
                14,
                tres("MaxTRESPerNode", &l.max_tres_node),
            ),
            ("MaxTRESMins", 14, tres("MaxTRESMins", &l.max_tres_mins)),
            (
                "MaxWall",
                14,
                time("MaxWall", l.max_wall_min.map(u64::from)),
            ),
            (
                "MinPrioThresh",
                14,
                count("MinPrioThreshold", l.min_priority),
            ),
            ("Parent", 14, parent.unwrap_or_default().to_owned()),
            ("Priority", 14, priority),
            ("QOS", 14, qos.unwrap_or_default()),
            (
                "DefQOS",
                14,
                self.terms.default_qos.clone().unwrap_or_default(),
            ),
        ];
        printed(&all)
    }

    fn tres(&self, name: &str, of: &TresAmounts) -> String {
        let mut words: Vec<String> = match of.is_empty() {
            true => Vec::new(),
            false => amounts_text(of).split(',').map(str::to_owned).collect(),
        };
        let gone = self
            .cleared
            .iter()
            .filter(|(own, tres)| own == name && !tres.is_empty());
        words.extend(gone.map(|(_, tres)| format!("{tres}=NONE")));
        words.sort_unstable();
        words.join(",")
    }
}

fn printed(all: &[(&str, usize, String)]) -> String {
    let mut out = String::new();
    for (name, width, value) in all.iter().filter(|(.., value)| !value.is_empty()) {
        let _ = writeln!(out, "  {name:<width$}= {value}");
    }
    out
}

fn limits(asked: &[LimitAsk], qos: bool) -> Limits {
    let mut all = Limits::default();
    for ask in asked {
        // The values were checked when they were parsed.
        let _ = all.set(ask, qos);
    }
    all
}

/// Reads a limit. What it clears is noted.
fn limit_asks(
    (name, form): (&'static str, LimitForm),
    word: &Word,
    cleared: &mut Vec<(String, String)>,
    book: &Book,
) -> Result<Option<LimitAsk>, String> {
    let value = word.value.as_str();
    let clears = ["-1", "none", "unlimited", "infinite"]
        .iter()
        .any(|none| none.eq_ignore_ascii_case(value));
    let key = name.to_ascii_lowercase();
    match form {
        LimitForm::Count if clears => {
            cleared.push((name.to_owned(), String::new()));
            return Ok(Some(LimitAsk::new(key, "-1")));
        }
        LimitForm::Count => {
            let wanted = match name {
                // Memory may have a unit.
                "GrpMemory" => value.trim_end_matches(|c: char| c.is_ascii_alphabetic()),
                _ => value,
            };
            number(name, wanted)?;
        }
        LimitForm::Time if clears => {
            cleared.push((name.to_owned(), String::new()));
            return Ok(Some(LimitAsk::new(key, "-1")));
        }
        LimitForm::Time => {
            let read: Result<muster_model::time::TimeLimit, _> = value.parse();
            read.map_err(|_| bad_time(name, word))?;
        }
        LimitForm::Tres => check_tres(name, word, cleared, book)?,
    }
    Ok(Some(LimitAsk::new(key, value)))
}

/// The settings of an association that keys of sacctmgr name.
///
/// # Errors
/// What is wrong with the first that is malformed.
pub(crate) fn association_terms(pairs: &[(&str, String)], book: &Book) -> Result<TermsAsk, String> {
    let mut settings = AssociationSettings::default();
    for (name, value) in pairs {
        let word = Word::new(&format!("{name}={value}"));
        let key = word.key_of(ASSOCIATION);
        let key = key.ok_or_else(|| format!("an association has no {name}"))?;
        settings.take(key, &word, book)?;
    }
    Ok(settings.terms)
}

/// The settings of a QOS that keys of sacctmgr name.
///
/// # Errors
/// What is wrong with the first that is malformed.
pub(crate) fn qos_ask(pairs: &[(&str, String)], book: &Book) -> Result<QosAsk, String> {
    let mut settings = QosSettings::default();
    for (name, value) in pairs {
        let word = Word::new(&format!("{name}={value}"));
        let key = word.key_of(QOS);
        let key = key.ok_or_else(|| format!("a QOS has no {name}"))?;
        settings.take(key, &word, book)?;
    }
    Ok(settings.ask)
}

fn check_tres(
    name: &str,
    word: &Word,
    cleared: &mut Vec<(String, String)>,
    book: &Book,
) -> Result<(), String> {
    let error = "sacctmgr: error: slurmdb_format_tres_str:";
    for item in word.value.split(',').filter(|item| !item.is_empty()) {
        let Some((tres, count)) = item.split_once('=') else {
            return Err(format!("{error} no TRES id found for {item}"));
        };
        let ask = |count| LimitAsk::new(name.to_ascii_lowercase(), format!("{tres}={count}"));
        if count == "-1" {
            cleared.push((name.to_owned(), tres.to_ascii_lowercase()));
        }
        if !book.may_have_tres(tres) {
            return Err(format!("{error} no TRES known by type {tres}"));
        }
        if Limits::default().set(&ask(count), true).is_ok() {
            continue;
        }
        if Limits::default().set(&ask("0"), true).is_err() {
            return Err(format!("{error} no TRES known by type {tres}"));
        }
        let unit = count.chars().find(|c| !c.is_ascii_digit()).unwrap_or('?');
        return Err(format!(
            "sacctmgr: error: Invalid unit type '{unit}'. Possible options are 'KMGTP'"
        ));
    }
    Ok(())
}

/// Refuses a QOS that is not there, with those that are.
pub(super) fn known_qos(name: &str, book: &Book) -> Result<(), String> {
    if book.all.qos(name).is_some() {
        return Ok(());
    }
    let all: Vec<String> = book.qos_records().into_iter().map(|qos| qos.name).collect();
    Err(format!(
        "sacctmgr: error: You gave a bad qos '{name}'. Valid QOS's are {}",
        all.join(",")
    ))
}

fn bad_time(name: &str, word: &Word) -> String {
    format!(" Bad {name} time format: {}", word.text)
}

fn number(name: &str, value: &str) -> Result<u32, String> {
    let wrong = |_| format!("sacctmgr: error: Invalid value for {name} ({value})");
    value.parse().map_err(wrong)
}

/// A number; -1 clears.
fn optional(name: &str, value: &str) -> Result<Option<u32>, String> {
    match value {
        "-1" => Ok(None),
        _ => number(name, value).map(Some),
    }
}

/// A decimal number in millionths; -1 clears.
fn millionths(name: &str, value: &str) -> Result<Option<u64>, String> {
    if value == "-1" {
        return Ok(None);
    }
    let read = value
        .parse()
        .ok()
        .filter(|factor: &f64| (0.0..=1e12).contains(factor));
    let factor =
        read.ok_or_else(|| format!("sacctmgr: error: Invalid value for {name} ({value})"))?;
    Ok(Some((factor * 1e6).round() as u64))
}

/// A time, or seconds as a plain number.
fn seconds(value: &str) -> Option<u32> {
    let parts: Option<Vec<u32>> = value.split(':').map(|part| part.parse().ok()).collect();
    let (h, m, s) = match parts.as_deref()? {
        [s] => (0, 0, *s),
        [m, s] => (0, *m, *s),
        [h, m, s] => (*h, *m, *s),
        _ => return None,
    };
    h.checked_mul(3600)?
        .checked_add(m.checked_mul(60)?)?
        .checked_add(s)
}

/// A run time as jobs have it, minutes as a plain number.
fn run_time_s(value: &str) -> Option<u32> {
    if let Ok(minutes) = value.parse::<u32>() {
        return minutes.checked_mul(60);
    }
    let Some((days, rest)) = value.split_once('-') else {
        return seconds(value);
    };
    let days = days.parse::<u32>().ok()?.checked_mul(86_400)?;
    let mut parts = rest.split(':').map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().unwrap_or(Some(0));
    let (h, m, s) = (next()?, next()?, next()?);
    let rest = h
        .checked_mul(3600)?
        .checked_add(m.checked_mul(60)?)?
        .checked_add(s)?;
    days.checked_add(rest)
}
