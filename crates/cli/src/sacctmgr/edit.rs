//! Shared parts of edits of users, accounts, QOS and clusters: the parts of a line, and the lines that list changes.

use super::book::{Association, Book};
use super::settings::{ASSOCIATION, AssociationSettings};
use super::words::Word;
use crate::listing::Failure;
use muster_model::account_limits::{LimitAsk, Limits, TresAmounts};
use muster_model::accounts::{AssociationTerms, QosDelta, ROOT};
use muster_model::command::ListEdit;
use muster_model::command::TermsAsk;
use std::fmt::Write as _;

/// The text after an option that is not known.
pub(super) const USE_WHERE: &str = "\n Use keyword 'where' to modify condition";
/// Error of a delete without conditions.
pub(super) const NO_CONDITIONS: &str = " No conditions given to remove, not executing.";
pub(super) const NOTHING_SET: &str = " You didn't give me anything to set";
pub(super) const NOTHING_ADDED: &str = " Nothing new added.\n";
pub(super) const NOTHING_MODIFIED: &str = " Nothing modified\n";
pub(super) const NOTHING_DELETED: &str = " Nothing deleted\n";

/// The words of `modify`: conditions, and settings, which follow `set`.
pub(super) fn parts(words: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut conditions, mut settings) = (Vec::new(), Vec::new());
    let mut setting = false;
    for word in words {
        if word.eq_ignore_ascii_case("set") {
            setting = true;
        } else if word.len() >= 3 && super::begins("where", word) {
            setting = false;
        } else if setting {
            settings.push(word.clone());
        } else {
            conditions.push(word.clone());
        }
    }
    (conditions, settings)
}

/// Takes a setting of an association, or returns the word's error.
pub(super) fn take_setting(
    settings: &mut AssociationSettings,
    word: &Word,
    book: &Book,
    hint: &str,
) -> Result<(), Failure> {
    let unknown = || format!(" Unknown option: {}{hint}", word.text);
    let Some(key) = word.key_of(ASSOCIATION) else {
        return Err(Failure::new(unknown()));
    };
    settings.take(key, word, book).map_err(|why| {
        let alone = why.contains("Raw usage") || why.starts_with("You gave a bad default");
        match alone {
            true => Failure::new(why),
            false => Failure::new(format!("{why}\n{}", unknown())),
        }
    })
}

/// Refuses clusters that are not there.
pub(super) fn check_clusters(clusters: &[String], book: &Book) -> Result<(), Failure> {
    let known = |name: &&String| {
        name.eq_ignore_ascii_case(&book.cluster)
            || book.all.clusters.contains_key(&name.to_lowercase())
    };
    match clusters.iter().find(|name| !known(name)) {
        Some(name) => Err(Failure::new(format!(
            " This cluster '{name}' doesn't exist.\n        Contact your admin to add it to accounting."
        ))),
        None => Ok(()),
    }
}

/// Whether a cluster is among those that are named; all are if none is.
pub(super) fn is_among(clusters: &[String], book: &Book) -> bool {
    let named = |name: &String| name.eq_ignore_ascii_case(&book.cluster);
    clusters.is_empty() || clusters.iter().any(named)
}

/// Names, each on a line.
pub(super) fn lines<S: AsRef<str>>(names: &[S]) -> String {
    let lines = names.iter().map(|name| format!("  {}\n", name.as_ref()));
    lines.collect()
}

/// The line of an association that is changed.
pub(super) fn line(book: &Book, at: &Association<'_>) -> String {
    let cluster = &book.cluster;
    match (at.user, at.account) {
        ("", ROOT) => format!("  C = {cluster:<10} A = root\n"),
        ("", account) => format!("  C = {cluster:<10} A = {account} of {}\n", at.parent),
        (user, account) => {
            let partition = match at.partition {
                "" => String::new(),
                partition => format!(" P = {partition}"),
            };
            format!("  C = {cluster:<10} A = {account:<20} U = {user:<9}{partition}\n")
        }
    }
}

/// The lines of changed associations, and of users below them that inherit the changes.
pub(super) fn changed_lines(book: &Book, changed: &[Association<'_>], ask: &TermsAsk) -> String {
    let tree = book.tree();
    let mut out = String::new();
    for at in changed {
        out += &line(book, at);
        if at.user.is_empty() {
            inheriting(book, &tree, at.account, ask, &mut out);
        }
    }
    out
}

/// Users below an account that inherit the changed settings from it, as no association between sets them.
fn inheriting(
    book: &Book,
    tree: &[Association<'_>],
    account: &str,
    ask: &TermsAsk,
    out: &mut String,
) {
    for at in tree {
        let above = if at.user.is_empty() {
            at.parent
        } else {
            at.account
        };
        if above != account || sets(at.own, ask) || at.account == ROOT && at.user.is_empty() {
            continue;
        }
        match at.user {
            "" => inheriting(book, tree, at.account, ask, out),
            _ => out.push_str(&line(book, at)),
        }
    }
}

/// Whether an association sets all that is asked for itself; what only groups have, no association has from above.
fn sets(own: &AssociationTerms, ask: &TermsAsk) -> bool {
    let mut asked = Limits::default();
    for limit in &ask.limits {
        // A limit that is cleared is compared as one that is set.
        let value = match limit.value.as_str() {
            "-1" => "1".to_owned(),
            other => other.replace("=-1", "=1"),
        };
        let _ = asked.set(&LimitAsk::new(limit.name.clone(), value), false);
    }
    let o = &own.limits;
    let count = |asked: Option<u32>, own: Option<u32>| asked.is_none() || own.is_some();
    let tres = |asked: &TresAmounts, own: &TresAmounts| {
        asked.iter().all(|tres| own.get(&tres.name).is_some())
    };
    let own_qos = own.qos.is_some() || own.qos_delta != QosDelta::default();
    count(asked.max_jobs, o.max_jobs)
        && count(asked.max_submit, o.max_submit)
        && count(asked.max_jobs_accrue, o.max_jobs_accrue)
        && count(asked.max_wall_min, o.max_wall_min)
        && tres(&asked.max_tres, &o.max_tres)
        && tres(&asked.max_tres_mins, &o.max_tres_mins)
        && tres(&asked.max_tres_node, &o.max_tres_node)
        && (ask.qos.is_none() || own_qos)
        && (ask.default_qos.is_none() || own.default_qos.is_some())
        && (ask.priority.is_none() || own.priority.is_some())
}

/// Changes in the records of one cluster.
pub(super) struct Changed<'a> {
    pub(super) book: &'a Book,
    pub(super) associations: Vec<Association<'a>>,
}

/// The lines of what changes in the records of all clusters.
pub(super) fn lines_of_clusters(all: &[Changed<'_>], ask: &TermsAsk) -> String {
    let lines = all
        .iter()
        .map(|changed| changed_lines(changed.book, &changed.associations, ask));
    lines.collect()
}

/// The associations that may not have the default QOS which is asked for, or nothing.
pub(super) fn without_default_qos(all: &[Changed<'_>], ask: &TermsAsk) -> Option<String> {
    let default = ask.default_qos.as_deref().filter(|name| !name.is_empty())?;
    let may = |book: &Book, at: &Association<'_>| {
        let mut own = book.qos(at);
        match &ask.qos {
            Some(ListEdit {
                sign: None,
                names: list,
            }) => own.clone_from(list),
            Some(ListEdit {
                sign: Some('+'),
                names: list,
            }) => own.extend(list.iter().cloned()),
            Some(ListEdit {
                sign: Some(_),
                names: list,
            }) => own.retain(|name| !list.contains(name)),
            None => {}
        }
        own.retain(|name| !ask.qos_less.contains(name));
        own.iter().any(|name| name == default)
    };
    let mut out = String::new();
    for changed in all {
        let book = changed.book;
        for at in changed.associations.iter().filter(|at| !may(book, at)) {
            out += &default_qos_line(book, at, default);
        }
    }
    (!out.is_empty()).then(|| {
        format!(
            " These associations don't have access to their default qos.\n \
             Please give them access before they the default can be set to this.\n{}",
            out.trim_end_matches('\n')
        )
    })
}

/// The line of an association with its default QOS.
pub(super) fn default_qos_line(book: &Book, at: &Association<'_>, qos: &str) -> String {
    let (cluster, account) = (&book.cluster, at.account);
    let mut out = format!("  DefQOS = {qos:<10} C = {cluster:<10} A = {account:<20} ");
    if !at.user.is_empty() {
        let _ = write!(out, "U = {:<9}", at.user);
    }
    out.push('\n');
    out
}
