//! `sacctmgr add`, `modify` and `delete account`.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key, OF_ACCOUNTS, accounts_that_fit};
use super::edit::{
    NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE,
    changed_lines, check_clusters, lines, parts, take_setting, without_default_qos,
};
use super::session::{Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::ROOT;
use muster_model::command::{AccountsAsk, TermsAsk};
use std::fmt::Write as _;

/// A key of an account's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Names,
    Clusters,
    Description,
    Organization,
    Parent,
}

const OWN: &[(&str, usize, Own)] = &[
    ("Accounts", 1, Own::Names),
    ("Acct", 4, Own::Names),
    ("Names", 1, Own::Names),
    ("Clusters", 1, Own::Clusters),
    ("Descriptions", 1, Own::Description),
    ("Organizations", 1, Own::Organization),
    ("Parents", 1, Own::Parent),
];

/// What is given for accounts.
#[derive(Debug, Default, PartialEq)]
struct Settings {
    names: Vec<String>,
    clusters: Vec<String>,
    description: String,
    organization: String,
    parent: String,
    association: AssociationSettings,
}

impl Settings {
    fn take(&mut self, word: &Word, book: &Book) -> Result<(), Failure> {
        let names = || {
            let names = word.list().into_iter();
            names.map(|name| book.all.account_key(&name))
        };
        // Beginnings of settings of associations come first where they are longer.
        let own = word.key_of(OWN).filter(|own| {
            let key = word.key.as_deref().unwrap_or("");
            *own != Own::Description || !super::begins("defaultqos", key) || key.len() < 3
        });
        match own {
            _ if word.key.is_none() => self.names.extend(names()),
            Some(Own::Names) => self.names.extend(names()),
            Some(Own::Clusters) => self.clusters.extend(word.list()),
            Some(Own::Description) => self.description.clone_from(&word.value),
            Some(Own::Organization) => self.organization.clone_from(&word.value),
            Some(Own::Parent) => self.parent = book.all.account_key(&word.value),
            None => take_setting(&mut self.association, word, book, USE_WHERE)?,
        }
        Ok(())
    }

    /// Whether anything but names and clusters is given.
    fn sets(&self) -> bool {
        self.changes_record() || !self.parent.is_empty() || !self.association.is_empty()
    }

    fn changes_record(&self) -> bool {
        !self.description.is_empty() || !self.organization.is_empty()
    }
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

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book()?;
    let mut settings = Settings::default();
    for text in words
        .iter()
        .filter(|word| !word.eq_ignore_ascii_case("set"))
    {
        settings.take(&Word::new(text), &book)?;
    }
    if settings.names.is_empty() {
        return Err(Failure::new(" Need name of account to add."));
    }
    check_clusters(&settings.clusters, &book)?;
    let here = |name: &String| name.eq_ignore_ascii_case(&book.cluster);
    if !settings.clusters.is_empty() && !settings.clusters.iter().any(here) {
        return Err(Failure::new(format!(
            "sacctmgr: error: accounts of cluster {} are kept by its own controller; this one is that of {}",
            settings.clusters.join(","),
            book.cluster
        )));
    }
    let parent = match settings.parent.as_str() {
        "" => ROOT,
        parent => parent,
    };
    if !book.has_account(parent) {
        return Err(Failure::new(format!(
            " Parent account '{parent}' doesn't exist on cluster {}\n        \
             Contact your admin to add this account.\n No associations created.",
            book.cluster
        )));
    }
    let mut names: Vec<String> = Vec::new();
    for name in &settings.names {
        if !book.has_account(name) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.is_empty() {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::silent());
    }
    let text = added(&names, &settings, parent, &book.cluster);
    let ask = AccountsAsk::AddAccounts {
        parent: parent.to_owned(),
        description: settings.description.clone(),
        // Without one it is that of the account above.
        organization: match (settings.organization.as_str(), parent) {
            ("", ROOT) => String::new(),
            ("", parent) => parent.to_owned(),
            (organization, _) => organization.to_owned(),
        },
        terms: settings.association.terms.clone(),
    };
    session.add(&text, "accounts", vec![Invocation::edit_of(&names, ask)])
}

fn added(names: &[String], settings: &Settings, parent: &str, cluster: &str) -> String {
    let or = |text: &str, none: &str| match text {
        "" => none.to_owned(),
        text => text.to_owned(),
    };
    let mut out = format!(" Adding Account(s)\n{}", lines(names));
    let description = or(&settings.description, "Account Name");
    let organization = or(&settings.organization, "Parent/Account Name");
    let _ = write!(
        out,
        " Settings\n  Description     = {description}\n  Organization    = {organization}\n Associations\n"
    );
    for name in names {
        let _ = writeln!(out, "  A = {name:<10.10} C = {cluster:<10.10}");
    }
    if settings.sets() {
        let _ = write!(
            out,
            " Settings\n{}",
            settings.association.lines(Some(parent))
        );
    }
    out
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book()?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_ACCOUNTS, USE_SET)?;
    let mut settings = Settings::default();
    for text in set.iter().filter(|word| !word.eq_ignore_ascii_case("and")) {
        settings.take(&Word::new(text), &book)?;
    }
    if !settings.names.is_empty() {
        return Err(Failure::new(" Can't modify the name of an account"));
    }
    if !settings.sets() {
        return Err(Failure::new(NOTHING_SET));
    }
    if !settings.parent.is_empty() && !book.has_account(&settings.parent) {
        let text = format!(" Parent Account {} doesn't exist.", settings.parent);
        return Err(Failure::new(text));
    }
    let named = accounts_that_fit(&conditions, &book);
    if settings.association.resets_usage {
        return reset_usage(session, &book, &conditions, &named);
    }
    let changed = associations(&book, &conditions, &named);
    let terms = &settings.association.terms;
    if let Some(text) = without_default_qos(&book, &changed, terms) {
        session.console.complain(&text);
        return Ok(());
    }
    let to_itself = named.iter().all(|name| *name == settings.parent);
    let of_associations =
        *terms != TermsAsk::default() || !settings.parent.is_empty() && !to_itself;
    let mut text = String::new();
    if settings.changes_record() && !named.is_empty() {
        let _ = write!(text, " Modified accounts...\n{}", lines(&named));
    }
    if of_associations && !changed.is_empty() {
        let _ = write!(
            text,
            " Modified account associations...\n{}",
            changed_lines(&book, &changed, terms)
        );
    }
    if text.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    let names: Vec<String> = match settings.changes_record() {
        true => named,
        false => changed.iter().map(|at| at.account.to_owned()).collect(),
    };
    let ask = AccountsAsk::ModifyAccounts {
        parent: settings.parent.clone(),
        description: settings.description.clone(),
        organization: settings.organization.clone(),
        terms: terms.clone(),
    };
    let edits = vec![Invocation::edit_of(&names, ask)];
    session.make(&text, NOTHING_MODIFIED, edits)
}

/// The associations of accounts that are meant, in the order of the tree.
fn associations<'a>(
    book: &'a Book,
    conditions: &Conditions,
    named: &[String],
) -> Vec<Association<'a>> {
    let tree = book.tree().into_iter();
    let own = tree.filter(|at| at.user.is_empty() && named.iter().any(|name| name == at.account));
    let fitting = own.filter(|at| {
        conditions.fits_cluster(book, Key::Clusters)
            && (conditions.of(Key::Qos).is_none()
                || conditions.fits_any(Key::Qos, book.qos(at).iter().map(String::as_str)))
    });
    fitting.collect()
}

fn reset_usage(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
    named: &[String],
) -> Result<(), Failure> {
    if named.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    if conditions.of(Key::Clusters).is_none() {
        let text = format!(
            "No cluster specified, resetting on local cluster {}\n",
            book.cluster
        );
        session.console.say(&text);
    }
    if !session.commits() {
        return Ok(());
    }
    let edit = Invocation::edit_of(named, AccountsAsk::ResetAccountUsage);
    session.ledger.edit(edit).map_err(super::session::refused)?;
    Ok(())
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_ACCOUNTS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    if conditions
        .names(Key::Names)
        .iter()
        .any(|name| name.eq_ignore_ascii_case(ROOT))
    {
        return Err(Failure::new(
            " You are not allowed to remove the root account.\n Use remove cluster instead.",
        ));
    }
    let mut names = accounts_that_fit(&conditions, &book);
    names.retain(|name| name != ROOT && conditions.fits_cluster(&book, Key::Clusters));
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting accounts...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::DeleteAccounts);
    session.make(&text, NOTHING_DELETED, vec![edit])
}
