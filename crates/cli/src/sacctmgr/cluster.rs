//! `sacctmgr add`, `modify` and `delete cluster`: the controller's own cluster, whose settings are those of the account
//! root, and records of others.

use super::book::{Association, Book, ClusterFacts};
use super::conditions::{Conditions, Key, OF_CLUSTERS};
use super::edit::{
    NO_CONDITIONS, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE, changed_lines, lines,
    parts, take_setting,
};
use super::federation::{FULL, Memberships, SignedList, cells_of_cluster, membership};
use super::row::{ListingRow, ShownAssociation};
use super::session::{Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, layout, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::{ClusterFeatures, Federation, NORMAL};
use muster_model::command::{AccountsAsk, AccountsEdit, ClusterAsk, TermsAsk};
use muster_proto::client::AccountsAnswer;
use std::fmt::Write as _;

const CLUSTER: &str = "Cluster,ControlHost,ControlPort,RPC";
const CLUSTER_LIMITS: &str =
    ",Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,DefaultQOS";

/// Settings given for clusters.
#[derive(Debug, Default, PartialEq)]
struct ClusterSettings {
    names: Vec<String>,
    classification: Option<String>,
    /// `Federation`; empty: none any more.
    federation: Option<String>,
    fed_state: Option<&'static str>,
    features: Option<SignedList>,
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
            } else if word.is("federation", 3) && !word.is("fedstate", 4) {
                settings.federation = Some(word.value.to_lowercase());
            } else if word.is("fedstate", 4) {
                settings.fed_state = Some(fed_state(&word.value)?);
            } else if word.is("features", 3) {
                settings.features = Some(SignedList::of(&word)?);
            } else {
                take_setting(&mut settings.association, &word, book, USE_WHERE)?;
            }
        }
        Ok(settings)
    }

    fn sets(&self) -> bool {
        self.classification.is_some() || self.changes_federation() || !self.association.is_empty()
    }

    fn changes_federation(&self) -> bool {
        self.federation.is_some() || self.fed_state.is_some() || self.features.is_some()
    }

    /// Listing of the settings.
    fn text(&self) -> String {
        let mut out = String::from(" Setting\n");
        if let Some(class) = &self.classification {
            let _ = writeln!(out, "  Classification = {class}");
        }
        if let Some(features) = &self.features {
            let sign = match features.sign {
                Some('+') => "+=",
                Some('-') => "-=",
                _ => "=",
            };
            for name in &features.names {
                out += &setting("Feature", sign, name);
            }
            if features.names.is_empty() {
                out += &setting("Feature", sign, "");
            }
        }
        if let Some(name) = &self.federation {
            out += &setting("Federation", "=", name);
        }
        if let Some(state) = self.fed_state {
            out += &setting("FedState", "=", state);
        }
        if !self.association.is_empty() {
            let _ = write!(out, "  Default Limits:\n{}", self.association.lines(None));
        }
        out
    }

    /// The edits of federations and features of these clusters.
    fn federation_edits(&self, book: &Book, names: &[String]) -> Result<Vec<AccountsEdit>, ()> {
        let mut memberships = Memberships::new(book);
        let mut edits = Vec::new();
        for name in names {
            match self.federation.as_deref() {
                Some("") => memberships.leave(name),
                Some(federation) if !memberships.join(name, federation) => return Err(()),
                Some(_) | None => {}
            }
            if let Some(state) = self.fed_state {
                memberships.set_state(name, state);
            }
            if let Some(given) = &self.features {
                let known = book.all.cluster_features.get(name).cloned();
                let of = ClusterFeatures {
                    cluster: name.clone(),
                    features: changed_features(known.unwrap_or_default(), given),
                };
                let ask = AccountsAsk::SetFeatures(of);
                edits.push(Invocation::edit_of(std::slice::from_ref(name), ask));
            }
        }
        edits.extend(memberships.edits());
        Ok(edits)
    }

    /// Refuses a federation that is not there.
    fn check_federation(&self, book: &Book) -> Result<(), Failure> {
        match self.federation.as_deref() {
            None | Some("") => Ok(()),
            Some(name) if book.all.federations.contains_key(name) => Ok(()),
            Some(name) => Err(Failure::new(format!(
                " The federation {name} doesn't exist."
            ))),
        }
    }

    fn ask(&self) -> ClusterAsk {
        ClusterAsk {
            classification: self.classification.clone(),
            terms: self.association.terms.clone(),
        }
    }
}

fn changed_features(mut known: Vec<String>, given: &SignedList) -> Vec<String> {
    match given.sign {
        Some('-') => known.retain(|name| !given.names.contains(name)),
        Some(_) => {
            let new = given.names.iter().filter(|name| !known.contains(name));
            known.extend(new.cloned().collect::<Vec<_>>());
        }
        None => known.clone_from(&given.names),
    }
    known
}

/// A line of settings.
fn setting(name: &str, sign: &str, value: &str) -> String {
    // Additions and removals begin further to the left.
    let width = if sign.len() == 2 { 12 } else { 14 };
    format!("  {name:<width$}{sign:>2} {value}\n")
}

/// A state of a cluster in a federation.
fn fed_state(text: &str) -> Result<&'static str, Failure> {
    let found = (Federation::STATES.into_iter()).find(|name| name.eq_ignore_ascii_case(text));
    found.ok_or_else(|| Failure::new(format!("Invalid FedState {text}.")))
}

/// Whether a cluster is in a federation that is meant.
fn fits_federation(book: &Book, conditions: &Conditions, cluster: &str) -> bool {
    let own = membership(book, cluster).map_or("", |(federation, _)| federation.name.as_str());
    conditions.of(Key::Federations).is_none() || conditions.fits(Key::Federations, own)
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
    let book = session.book_of_change(words)?;
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
    settings.check_federation(&book)?;
    let Ok(more) = settings.federation_edits(&book, &new) else {
        session.console.say(&text);
        return Err(Failure::new(format!(" Problem adding clusters: {FULL}")));
    };
    let mut edits = vec![Invocation::edit_of(
        &new,
        AccountsAsk::AddClusters(settings.ask()),
    )];
    edits.extend(more);
    session.add(&text, "clusters", edits)
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
        conditions.fits(Key::Names, name)
            && conditions.fits(Key::Classification, class)
            && fits_federation(book, conditions, name)
    });
    names
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_CLUSTERS, USE_SET)?;
    let settings = ClusterSettings::read(&book, &set)?;
    if !settings.sets() {
        return Err(Failure::new(NOTHING_SET));
    }
    settings.check_federation(&book)?;
    let mut names = meant(&book, &conditions);
    if let Some(federation) = &settings.federation {
        names.retain(|name| !is_assigned(session, &book, name, federation));
        if names.is_empty() {
            session.console.say("Nothing to change\n");
            return Ok(());
        }
    }
    session.console.say(&settings.text());
    if names.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    let mut text = String::new();
    if settings.classification.is_some() || settings.changes_federation() {
        let _ = write!(text, " Modified cluster...\n{}", lines(&names));
    }
    let mut edits = Vec::new();
    if settings.classification.is_some() || !settings.association.is_empty() {
        let ask = AccountsAsk::ModifyClusters(settings.ask());
        edits.push(Invocation::edit_of(&names, ask));
    }
    if settings.association.terms != TermsAsk::default() {
        text.push_str(" Modified cluster defaults for associations...\n");
        for name in &names {
            text += &defaults(&book, name, &settings.association.terms);
        }
    }
    let Ok(more) = settings.federation_edits(&book, &names) else {
        return Err(super::ledger::error(FULL));
    };
    edits.extend(more);
    session.make(&text, NOTHING_MODIFIED, edits)
}

/// Whether a cluster is in that federation already; says so, and if it is in another one.
fn is_assigned(session: &mut Invocation<'_>, book: &Book, cluster: &str, federation: &str) -> bool {
    match membership(book, cluster) {
        Some((own, _)) if own.name == federation => {
            let text =
                format!(" The cluster {cluster} is already assigned to federation {federation}");
            session.console.complain(&text);
            true
        }
        Some((own, _)) if !federation.is_empty() => {
            let name = &own.name;
            let text = format!(" The cluster {cluster} is assigned to federation {name}");
            session.console.complain(&text);
            false
        }
        _ => false,
    }
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

/// Clusters: the controller's own one, and those that were added.
pub(super) fn show(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_CLUSTERS, USE_SET)?;
    let mut usual = CLUSTER.to_owned();
    if !conditions.has(Key::NoLimits) {
        usual.push_str(CLUSTER_LIMITS);
    }
    if words
        .iter()
        .any(|word| word.len() >= 5 && super::begins("withfederations", word))
    {
        usual.push_str(",Federation,ID,Features,FedState");
    }
    let columns = layout(&conditions, &usual)?;
    let (book, facts) = match session.ledger.cluster_without_controller() {
        Some(cluster) => {
            let answer = AccountsAnswer {
                cluster,
                ..AccountsAnswer::default()
            };
            (Book::new(answer), ClusterFacts::default())
        }
        None => (session.book()?, session.facts()?),
    };
    let mut names: Vec<&str> = book.all.clusters.keys().map(String::as_str).collect();
    names.push(&book.cluster);
    names.extend(facts.others.iter().map(|cluster| cluster.name.as_str()));
    names.sort_unstable();
    names.dedup();
    let root = book.tree().into_iter().next();
    let mut rows = Vec::new();
    for name in names {
        let own = name == book.cluster;
        let record = book.all.clusters.get(name);
        let other = facts.others.iter().find(|other| other.name == name);
        let (host, port) = match other {
            _ if own => (facts.host.as_str(), facts.port),
            Some(other) => (
                other.addresses.first().map_or("", String::as_str),
                other.port,
            ),
            None => ("", 0),
        };
        let (terms, classification) = match record {
            Some(record) if !own => (&record.terms, record.classification.as_str()),
            _ => (&book.all.root, book.all.classification.as_str()),
        };
        let list = terms.qos.clone().unwrap_or_else(|| vec![NORMAL.to_owned()]);
        let has_qos = conditions.fits(Key::DefaultQos, terms.default_qos.as_deref().unwrap_or(""));
        let is_meant = conditions.fits(Key::Names, name)
            && conditions.fits(Key::Classification, classification)
            && conditions.of(Key::Flags).is_none()
            && fits_federation(&book, &conditions, name)
            && (conditions.of(Key::DefaultQos).is_none() || has_qos);
        if !is_meant {
            continue;
        }
        let mut row = ListingRow::default()
            .with("Cluster", name)
            .with("Name", name)
            .with("Class", classification)
            .with("QOS", list.join(","))
            .with("RPC", if own || other.is_some() { "9728" } else { "0" })
            .with("ControlPort", port.to_string())
            .with("ControlHost", host.to_owned());
        row = cells_of_cluster(row, &book, name);
        if own {
            row = row
                .with("Cluster Nodes", facts.nodes.clone())
                .with("NodeCount", facts.node_count.to_string())
                .with("TRES", facts.total.clone())
                .with("PluginIDSelect", "109");
        }
        if let Some(root) = &root {
            let at = Association {
                own: terms,
                ..root.clone()
            };
            row.association = Some(ShownAssociation::new(&book, &at, &Conditions::alone()));
            rows.push(row.line(&columns));
        }
    }
    session.print(&columns, &rows);
    Ok(())
}
