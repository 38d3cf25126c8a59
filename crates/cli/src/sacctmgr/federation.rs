//! `sacctmgr add`, `modify`, `delete` and `show federation`, and federations of clusters: records that are kept and shown. Jobs
//! are not sent to other clusters.

use super::book::Book;
use super::conditions::{Conditions, Key};
use super::edit::{NO_CONDITIONS, NOTHING_DELETED, NOTHING_MODIFIED, USE_WHERE, lines, parts};
use super::fields::columns;
use super::row::ListingRow;
use super::session::{Invocation, Verb};
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::{FEDERATION_CLUSTERS_MAX, Federation, FederationMember};
use muster_model::command::{AccountsAsk, AccountsEdit};
use std::collections::BTreeMap;

const SHOWN: &str = "Federation,Cluster,ID%2,Features,FedState";
const ONE_FEDERATION: &str = " Can't assign clusters to multiple federations.";
const NOTHING_TO_CHANGE: &str = "Nothing to change\n";
pub(super) const ACTIVE: &str = "ACTIVE";
pub(super) const FULL: &str = "Too many clusters in federation";

const OF_FEDERATIONS: &[(&str, usize, Key)] = &[
    ("Clusters", 1, Key::Clusters),
    ("Federations", 2, Key::Names),
    ("Format", 2, Key::Format),
    ("Names", 1, Key::Names),
];

/// A list of clusters or features, and whether it replaces (`=`), adds to (`+=`) or shortens (`-=`) what there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SignedList {
    pub(super) sign: Option<char>,
    pub(super) names: Vec<String>,
}

impl SignedList {
    pub(super) fn of(word: &Word) -> Result<SignedList, Failure> {
        let items = word.list();
        let is_signed = |item: &String| item.starts_with(['+', '-']);
        let plain = items.iter().filter(|item| !is_signed(item)).count();
        if word.sign.is_none() && plain > 0 && plain < items.len() {
            return Err(super::ledger::error(
                "You can't use '=' and '+' or '-' in the same line",
            ));
        }
        let names = items.into_iter();
        let names = names.map(|item| item.trim_start_matches(['+', '-']).to_lowercase());
        Ok(SignedList {
            sign: word.sign,
            names: names.filter(|name| !name.is_empty()).collect(),
        })
    }
}

/// A line of settings: `Cluster      += west`.
pub(super) fn setting(name: &str, sign: &str, value: &str) -> String {
    format!("  {name:<13}{sign:>2} {value}\n")
}

/// Memberships as they shall be, and which federations change.
pub(super) struct Memberships {
    all: BTreeMap<String, Federation>,
    changed: Vec<String>,
}

impl Memberships {
    pub(super) fn new(book: &Book) -> Memberships {
        Memberships {
            all: book.all.federations.clone(),
            changed: Vec::new(),
        }
    }

    fn note(&mut self, name: &str) {
        if !self.changed.iter().any(|own| own == name) {
            self.changed.push(name.to_owned());
        }
    }

    /// Takes a cluster out of the federation that it is in.
    pub(super) fn leave(&mut self, cluster: &str) {
        let is_in = |federation: &&mut Federation| {
            let mut members = federation.members.iter();
            members.any(|member| member.cluster == cluster)
        };
        let Some(federation) = self.all.values_mut().find(is_in) else {
            return;
        };
        federation
            .members
            .retain(|member| member.cluster != cluster);
        let name = federation.name.clone();
        self.note(&name);
    }

    /// Puts a cluster into a federation with the lowest number that is free there; `false` if there is none.
    pub(super) fn join(&mut self, cluster: &str, federation: &str) -> bool {
        self.leave(cluster);
        let entry = self.all.entry(federation.to_owned()).or_default();
        federation.clone_into(&mut entry.name);
        let is_free = |id: &u32| !entry.members.iter().any(|member| member.id == *id);
        let Some(id) = (1..=FEDERATION_CLUSTERS_MAX).find(is_free) else {
            return false;
        };
        entry.members.push(FederationMember {
            cluster: cluster.to_owned(),
            id,
            state: ACTIVE.to_owned(),
        });
        entry.members.sort_by_key(|member| member.id);
        self.note(federation);
        true
    }

    pub(super) fn set_state(&mut self, cluster: &str, state: &str) {
        let mut changed = None;
        for federation in self.all.values_mut() {
            let mut members = federation.members.iter_mut();
            if let Some(member) = members.find(|member| member.cluster == cluster) {
                state.clone_into(&mut member.state);
                changed = Some(federation.name.clone());
            }
        }
        changed.iter().for_each(|name| self.note(name));
    }

    /// The edits that make them so: those that lose clusters first.
    pub(super) fn edits(self) -> Vec<AccountsEdit> {
        let all = self.changed.iter().filter_map(|name| {
            let federation = self.all.get(name)?.clone();
            let ask = AccountsAsk::SetFederation(federation);
            Some(Invocation::edit_of(std::slice::from_ref(name), ask))
        });
        all.collect()
    }
}

/// The federation that a cluster is in, and how.
pub(super) fn membership<'a>(
    book: &'a Book,
    cluster: &str,
) -> Option<(&'a Federation, &'a FederationMember)> {
    book.all.federations.values().find_map(|federation| {
        let mut members = federation.members.iter();
        let own = members.find(|member| member.cluster == cluster)?;
        Some((federation, own))
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

fn is_cluster(book: &Book, name: &str) -> bool {
    name == book.cluster || book.all.clusters.contains_key(name)
}

/// Refuses clusters that are not there.
fn check_clusters(book: &Book, names: &[String]) -> Result<(), Failure> {
    let missing = names.iter().filter(|name| !is_cluster(book, name));
    let text: Vec<String> = missing
        .map(|name| format!(" The cluster {name} doesn't exist. Please add first."))
        .collect();
    match text.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(text.join("\n"))),
    }
}

/// Says which clusters are in other federations, and without `-i` asks whether to go on.
fn may_move(session: &mut Invocation<'_>, book: &Book, names: &[String], to: &str) -> bool {
    let mut moves = false;
    for name in names {
        if let Some((federation, _)) = membership(book, name).filter(|(own, _)| own.name != to) {
            let text = format!(
                " The cluster {name} is assigned to federation {}",
                federation.name
            );
            session.console.complain(&text);
            moves = true;
        }
    }
    let question = "Are you sure you want to reassign these clusters?";
    !moves || session.immediate || super::console::agreed(session.console, question)
}

/// Names and clusters of an addition or change.
fn settings(words: &[String]) -> Result<(Vec<String>, Option<SignedList>), Failure> {
    let (mut names, mut clusters) = (Vec::new(), None);
    for text in words {
        if text.eq_ignore_ascii_case("set") || text.eq_ignore_ascii_case("and") {
            continue;
        }
        let word = Word::new(text);
        let lower = || word.list().into_iter().map(|name| name.to_lowercase());
        match word.key_of(OF_FEDERATIONS) {
            _ if word.key.is_none() => names.extend(lower()),
            Some(Key::Names) => names.extend(lower()),
            Some(Key::Clusters) => clusters = Some(SignedList::of(&word)?),
            Some(_) | None => {
                return Err(Failure::new(format!(" Unknown option: {text}{USE_WHERE}")));
            }
        }
    }
    Ok((names, clusters))
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (names, clusters) = settings(words)?;
    if names.is_empty() {
        return Err(Failure::new(" Need name of federation to add."));
    }
    let book = session.book()?;
    let mut new: Vec<String> = Vec::new();
    for name in names {
        if book.all.federations.contains_key(&name) {
            let text = format!(" This federation {name} already exists.  Not adding.\n");
            session.console.say(&text);
        } else if !new.contains(&name) {
            new.push(name);
        }
    }
    let Some(first) = new.first() else {
        return Err(Failure::silent());
    };
    let clusters = clusters.unwrap_or_default().names;
    if !clusters.is_empty() && new.len() > 1 {
        return Err(Failure::new(ONE_FEDERATION));
    }
    check_clusters(&book, &clusters)?;
    if !may_move(session, &book, &clusters, first) {
        return Ok(());
    }
    let mut memberships = Memberships::new(&book);
    let mut text = format!(" Adding Federation(s)\n{}", lines(&new));
    for name in &new {
        let federation = Federation {
            name: name.clone(),
            ..Federation::default()
        };
        memberships.all.insert(name.clone(), federation);
        memberships.note(name);
    }
    if !clusters.is_empty() {
        text.push_str(" Settings\n");
    }
    for cluster in &clusters {
        text += &setting("Cluster", "=", cluster);
        if !memberships.join(cluster, first) {
            return Err(super::ledger::error(FULL));
        }
    }
    session.add(&text, "federations", memberships.edits())
}

/// Changes of the clusters of a federation: lines of settings, and the new memberships.
fn reassigned(
    session: &mut Invocation<'_>,
    book: &Book,
    name: &str,
    clusters: &SignedList,
) -> Result<(String, Memberships), Failure> {
    let mut memberships = Memberships::new(book);
    let known = &book.all.federations[name];
    let is_in = |cluster: &str| known.members.iter().any(|member| member.cluster == cluster);
    let mut out = String::new();
    for cluster in &clusters.names {
        let refusal = match (clusters.sign, is_in(cluster)) {
            (Some('-'), false) => Some(format!(
                " The cluster {cluster} isn't assigned to federation {name}"
            )),
            (Some('-'), true) => None,
            (_, true) => Some(format!(
                " The cluster {cluster} is already assigned to federation {name}"
            )),
            (_, false) => None,
        };
        if let Some(text) = refusal {
            session.console.complain(&text);
            continue;
        }
        if clusters.sign == Some('-') {
            memberships.leave(cluster);
            out += &setting("Cluster", "-=", cluster);
            continue;
        }
        if !memberships.join(cluster, name) {
            return Err(super::ledger::error(FULL));
        }
        out += &setting("Cluster", "+=", cluster);
    }
    if clusters.sign.is_none() {
        let others = known.members.iter();
        for member in others.filter(|member| !clusters.names.contains(&member.cluster)) {
            memberships.leave(&member.cluster);
            out += &setting("Cluster", "-=", &member.cluster);
        }
    }
    Ok((out, memberships))
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_FEDERATIONS, USE_SET)?;
    let (_, clusters) = settings(&set)?;
    let Some(clusters) = clusters else {
        return Err(Failure::new(super::edit::NOTHING_SET));
    };
    let names: Vec<String> = conditions.names(Key::Names).to_vec();
    let [name] = &names[..] else {
        return Err(Failure::new(ONE_FEDERATION));
    };
    let name = &name.to_lowercase();
    let book = session.book()?;
    if !book.all.federations.contains_key(name) {
        return Err(Failure::new(format!(
            " The federation {name} doesn't exist."
        )));
    }
    check_clusters(&book, &clusters.names)?;
    let moves = clusters.sign != Some('-');
    if moves && !may_move(session, &book, &clusters.names, name) {
        return Ok(());
    }
    let (settings, memberships) = reassigned(session, &book, name, &clusters)?;
    if settings.is_empty() {
        session.console.say(NOTHING_TO_CHANGE);
        return Err(Failure::silent());
    }
    session.console.say(&format!(" Setting\n{settings}"));
    let text = format!(" Modified federation...\n{}", lines(&names));
    session.make(&text, NOTHING_MODIFIED, memberships.edits())
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_FEDERATIONS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    let names: Vec<String> = meant(&book, &conditions)
        .map(|federation| federation.name.clone())
        .collect();
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting federations...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::DeleteFederations);
    session.make(&text, NOTHING_DELETED, vec![edit])
}

fn meant<'a>(book: &'a Book, conditions: &'a Conditions) -> impl Iterator<Item = &'a Federation> {
    let all = book.all.federations.values();
    all.filter(|federation| {
        conditions.fits(Key::Names, &federation.name)
            && (conditions.of(Key::Clusters).is_none()
                || (federation.members.iter())
                    .any(|member| conditions.fits(Key::Clusters, &member.cluster)))
    })
}

/// Federations with their clusters.
pub(super) fn show(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_FEDERATIONS, USE_SET)?;
    let columns = columns(conditions.format.as_deref().unwrap_or(SHOWN), false)?;
    let book = session.book()?;
    let tree = conditions.has(Key::Tree);
    let mut rows = Vec::new();
    for federation in meant(&book, &conditions) {
        let name = || ListingRow::default().with("Federation", federation.name.clone());
        if tree || federation.members.is_empty() {
            rows.push(name().line(&columns));
        }
        rows.extend(federation.members.iter().map(|member| {
            let row = match tree {
                true => ListingRow::default(),
                false => name(),
            };
            of_member(row, &book, member).line(&columns)
        }));
    }
    session.print(&columns, &rows);
    Ok(())
}

/// Cells of a cluster in a federation.
fn of_member<'a>(row: ListingRow<'a>, book: &Book, member: &FederationMember) -> ListingRow<'a> {
    row.with("Cluster", member.cluster.clone())
        .with("ID", member.id.to_string())
        .with("Features", features_of(book, &member.cluster))
        .with("FedState", member.state.clone())
        .with("FedStateRaw", raw_state(&member.state).to_string())
}

/// The number that Slurm has for a state: the base, and flags for draining and for the removal after it.
fn raw_state(state: &str) -> u32 {
    match state {
        "ACTIVE" => 1,
        "INACTIVE" => 2,
        "DRAIN" => 1 | 1 << 4,
        "DRAIN+REMOVE" => 1 | 1 << 4 | 1 << 5,
        _ => 0,
    }
}

fn features_of(book: &Book, cluster: &str) -> String {
    let own = book.all.cluster_features.get(cluster);
    own.map_or(String::new(), |features| features.join(","))
}

/// Cells of a cluster that say in which federation it is.
pub(super) fn cells_of_cluster<'a>(
    row: ListingRow<'a>,
    book: &Book,
    cluster: &str,
) -> ListingRow<'a> {
    match membership(book, cluster) {
        Some((federation, member)) => {
            of_member(row, book, member).with("Federation", federation.name.clone())
        }
        None => row
            .with("ID", "0")
            .with("Features", features_of(book, cluster))
            .with("FedState", "NA")
            .with("FedStateRaw", "0"),
    }
}
