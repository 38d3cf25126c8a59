//! `sacctmgr add`, `modify` and `delete cluster`: the controller's own cluster, whose settings are those of the account
//! root, and records of others.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key, OF_CLUSTERS};
use super::edit::{
    NO_CONDITIONS, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE, changed_lines, lines,
    parts, take_setting,
};
use super::session::{Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::command::{AccountsAsk, ClusterAsk, TermsAsk};
use std::fmt::Write as _;

/// Settings given for clusters.
#[derive(Debug, Default, PartialEq)]
struct ClusterSettings {
    names: Vec<String>,
    classification: Option<String>,
    association: AssociationSettings,
}

impl ClusterSettings {
    fn read(book: &Book, words: &[String]) -> Result<ClusterSettings, Failure> {
        let mut settings = ClusterSettings::default();
        for text in words {
            let word = Word::new(text);
            if text.eq_ignore_ascii_case("set") || text.eq_ignore_ascii_case("and") {
                continue;
            }
            if word.key.is_none() || word.is("names", 1) || word.is("clusters", 2) {
                settings
                    .names
                    .extend(word.list().iter().map(|name| name.to_lowercase()));
            } else if word.is("classification", 3) {
                settings.classification = Some(class(&word.value)?);
            } else if ["federation", "fedstate", "features"]
                .iter()
                .any(|n| word.is(n, 3))
            {
                return Err(super::ledger::error(format!(
                    "{text}: there are no federations: accounting is that of one cluster"
                )));
            } else {
                take_setting(&mut settings.association, &word, book, USE_WHERE)?;
            }
        }
        Ok(settings)
    }

    fn sets(&self) -> bool {
        self.classification.is_some() || !self.association.is_empty()
    }

    /// Listing of the settings.
    fn text(&self) -> String {
        let mut out = String::from(" Setting\n");
        if let Some(class) = &self.classification {
            let _ = writeln!(out, "  Classification = {class}");
        }
        if !self.association.is_empty() {
            let _ = write!(out, "  Default Limits:\n{}", self.association.lines(None));
        }
        out
    }

    fn ask(&self) -> ClusterAsk {
        ClusterAsk {
            classification: self.classification.clone(),
            terms: self.association.terms.clone(),
        }
    }
}

/// A classification by its whole name.
pub(super) fn class(text: &str) -> Result<String, Failure> {
    let known = ["Capability", "Capacity", "Capapacity"];
    let found = known
        .iter()
        .find(|name| super::begins(name, text) && text.len() > 4);
    found.map(|name| (*name).to_owned()).ok_or_else(|| {
        super::ledger::error(format!(
            "Classification={text}: expected Capability, Capacity or Capapacity"
        ))
    })
}

pub(super) fn edit(
    session: &mut Invocation<'_>,
    verb: Verb,
    words: &[String],
) -> Result<(), Failure> {
    match verb {
        Verb::Add => add(session, words),
        Verb::Modify => modify(session, words),
        Verb::Delete => delete(session, words),
    }
}

fn is_known(book: &Book, name: &str) -> bool {
    name.eq_ignore_ascii_case(&book.cluster) || book.all.clusters.contains_key(name)
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book()?;
    let settings = ClusterSettings::read(&book, words)?;
    if settings.names.is_empty() {
        return Err(Failure::new(" Need name of cluster to add."));
    }
    let mut new: Vec<String> = Vec::new();
    for name in &settings.names {
        if is_known(&book, name) {
            session.console.say(&format!(
                " This cluster {name} already exists.  Not adding.\n"
            ));
        } else if !new.contains(name) {
            new.push(name.clone());
        }
    }
    if new.is_empty() {
        return Err(Failure::silent());
    }
    let mut text = String::from(" Adding Cluster(s)\n");
    for name in &new {
        let _ = writeln!(text, "  Name           = {name}");
    }
    if settings.sets() {
        text += &settings.text();
    }
    let edit = Invocation::edit_of(&new, AccountsAsk::AddClusters(settings.ask()));
    session.add(&text, "clusters", vec![edit])
}

/// The names of clusters that conditions mean, the controller's own among them.
fn meant(book: &Book, conditions: &Conditions) -> Vec<String> {
    let mut names: Vec<String> = book.all.clusters.keys().cloned().collect();
    names.push(book.cluster.clone());
    names.sort_unstable();
    names.retain(|name| {
        let own = *name == book.cluster;
        let record = book.all.clusters.get(name);
        let class = match own {
            true => book.all.classification.as_str(),
            false => record.map_or("", |record| record.classification.as_str()),
        };
        conditions.fits(Key::Names, name) && conditions.fits(Key::Classification, class)
    });
    names
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book()?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_CLUSTERS, USE_SET)?;
    let settings = ClusterSettings::read(&book, &set)?;
    if !settings.sets() {
        return Err(Failure::new(NOTHING_SET));
    }
    session.console.say(&settings.text());
    let names = meant(&book, &conditions);
    if names.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    let mut text = String::new();
    if settings.classification.is_some() {
        let _ = write!(text, " Modified cluster...\n{}", lines(&names));
    }
    if settings.association.terms != TermsAsk::default() {
        text.push_str(" Modified cluster defaults for associations...\n");
        for name in &names {
            text += &defaults(&book, name, &settings.association.terms);
        }
    }
    let edit = Invocation::edit_of(&names, AccountsAsk::ModifyClusters(settings.ask()));
    session.make(&text, NOTHING_MODIFIED, vec![edit])
}

/// The lines of a cluster's associations that inherit from `root`.
fn defaults(book: &Book, name: &str, ask: &TermsAsk) -> String {
    if name == book.cluster {
        let root: Vec<Association<'_>> = book.tree().into_iter().take(1).collect();
        return changed_lines(book, &root, ask);
    }
    let all = book.clone().of_all_clusters().into_iter();
    let mut named = all.filter(|other| other.cluster == name);
    named.next().map_or(String::new(), |other| {
        let top: Vec<Association<'_>> = other.tree().into_iter().take(1).collect();
        changed_lines(&other, &top, ask)
    })
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_CLUSTERS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    let names = meant(&book, &conditions);
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting clusters...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::DeleteClusters);
    session.make(&text, NOTHING_DELETED, vec![edit])
}
