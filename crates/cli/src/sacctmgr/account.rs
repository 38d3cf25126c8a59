//! `sacctmgr add`, `modify` and `delete account`.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key, OF_ACCOUNTS, accounts_that_fit};
use super::edit::{
    Changed, NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET,
    USE_WHERE, check_clusters, is_among, lines, lines_of_clusters, parts, take_setting,
    without_default_qos,
};
use super::session::{Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::{Account, ROOT};
use muster_model::command::{AccountsAsk, AccountsEdit, TermsAsk, WckeysAsk};
use std::fmt::Write as _;

/// A key of an account's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccountKey {
    Names,
    Clusters,
    Description,
    Organization,
    Parent,
}

const OWN: &[(&str, usize, AccountKey)] = &[
    ("Accounts", 1, AccountKey::Names),
    ("Acct", 4, AccountKey::Names),
    ("Names", 1, AccountKey::Names),
    ("Clusters", 1, AccountKey::Clusters),
    ("Descriptions", 1, AccountKey::Description),
    ("Organizations", 1, AccountKey::Organization),
    ("Parents", 1, AccountKey::Parent),
];

/// Settings given for accounts.
#[derive(Debug, Default, PartialEq)]
struct AccountSettings {
    names: Vec<String>,
    clusters: Vec<String>,
    description: String,
    organization: String,
    parent: String,
    association: AssociationSettings,
}

impl AccountSettings {
    fn take(&mut self, word: &Word, book: &Book) -> Result<(), Failure> {
        let names = || {
            let names = word.list().into_iter();
            names.map(|name| book.all.account_key(&name))
        };
        // Beginnings of settings of associations come first where they are longer.
        let own = word.key_of(OWN).filter(|own| {
            let key = word.key.as_deref().unwrap_or("");
            *own != AccountKey::Description || !super::begins("defaultqos", key) || key.len() < 3
        });
        match own {
            _ if word.key.is_none() => self.names.extend(names()),
            Some(AccountKey::Names) => self.names.extend(names()),
            Some(AccountKey::Clusters) => self.clusters.extend(word.list()),
            Some(AccountKey::Description) => self.description = word.value.to_lowercase(),
            Some(AccountKey::Organization) => self.organization = word.value.to_lowercase(),
            Some(AccountKey::Parent) => self.parent = book.all.account_key(&word.value),
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

    /// The edits of one cluster's records: texts of the named accounts, equal in all clusters, and settings of the
    /// selected associations.
    fn edits(&self, changed: &Changed<'_>, conditions: &Conditions) -> Vec<AccountsEdit> {
        let book = changed.book;
        let ask = |parent: &str, terms: &TermsAsk, record: bool| {
            let recorded = |text: &str| match record {
                true => text.to_owned(),
                false => String::new(),
            };
            AccountsAsk::ModifyAccounts {
                parent: parent.to_owned(),
                description: recorded(&self.description),
                organization: recorded(&self.organization),
                terms: terms.clone(),
            }
        };
        let named = accounts_that_fit(conditions, book);
        let of: Vec<String> = (changed.associations.iter())
            .map(|at| at.account.to_owned())
            .collect();
        let terms = &self.association.terms;
        let mut edits = Vec::new();
        let mut edit = |names: &[String], ask: AccountsAsk| {
            if !names.is_empty() {
                edits.push(Invocation::edit_in(book, names, ask));
            }
        };
        match self.changes_record() {
            true if of == named => edit(&named, ask(&self.parent, terms, true)),
            true => {
                edit(&named, ask("", &TermsAsk::default(), true));
                if !self.parent.is_empty() || !self.association.is_empty() {
                    edit(&of, ask(&self.parent, terms, false));
                }
            }
            false => edit(&of, ask(&self.parent, terms, false)),
        }
        edits
    }

    /// The edits of users' associations.
    fn user_edits(&self, changed: &Changed<'_>) -> Vec<AccountsEdit> {
        let each = changed.associations.iter().map(|at| {
            let partition = Some(at.partition.to_owned()).filter(|name| !name.is_empty());
            let ask = AccountsAsk::ModifyUsers {
                accounts: vec![at.account.to_owned()],
                partitions: partition.into_iter().collect(),
                default_account: String::new(),
                admin_level: String::new(),
                terms: self.association.terms.clone(),
                wckeys: WckeysAsk::default(),
            };
            Invocation::edit_in(changed.book, &[at.user.to_owned()], ask)
        });
        each.collect()
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

/// Plan of `add account`.
struct AccountAddition<'a> {
    /// The clusters that get the accounts.
    books: Vec<&'a Book>,
    /// The accounts.
    names: Vec<String>,
    /// Accounts among them that no cluster has.
    new: Vec<String>,
    /// The account above.
    parent: String,
    settings: AccountSettings,
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let mut settings = AccountSettings::default();
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
    let books = session.books(Some(&settings.clusters))?;
    let parent = match settings.parent.as_str() {
        "" => ROOT.to_owned(),
        parent => parent.to_owned(),
    };
    let meant = books
        .iter()
        .filter(|book| is_among(&settings.clusters, book));
    let (fitting, without): (Vec<&Book>, Vec<&Book>) =
        meant.partition(|book| book.has_account(&parent));
    let mut missing = String::new();
    for book in without {
        let _ = write!(
            missing,
            " Parent account '{parent}' doesn't exist on cluster {}\n        \
             Contact your admin to add this account.\n",
            book.cluster
        );
    }
    if fitting.is_empty() {
        let text = format!("{missing} No associations created.");
        return Err(Failure::new(text));
    }
    let mut names: Vec<String> = Vec::new();
    for name in &settings.names {
        if !names.contains(name) && !fitting.iter().all(|book| book.has_account(name)) {
            names.push(name.clone());
        }
    }
    if names.is_empty() {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::new(missing.trim_end_matches('\n')));
    }
    let is_new = |name: &&String| !books.iter().any(|book| book.has_account(name));
    let addition = AccountAddition {
        new: names.iter().filter(is_new).cloned().collect(),
        books: fitting,
        names,
        parent,
        settings,
    };
    session.add(&addition.text(), "accounts", addition.edits(&books))?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(missing.trim_end_matches('\n'))),
    }
}

impl AccountAddition<'_> {
    /// Listing of the additions.
    fn text(&self) -> String {
        let settings = &self.settings;
        let or = |text: &str, none: &str| match text {
            "" => none.to_owned(),
            text => text.to_owned(),
        };
        let mut out = String::new();
        if !self.new.is_empty() {
            let description = or(&settings.description, "Account Name");
            let organization = or(&settings.organization, "Parent/Account Name");
            let _ = write!(
                out,
                " Adding Account(s)\n{} Settings\n  Description     = {description}\n  Organization    = {organization}\n",
                lines(&self.new)
            );
        }
        out.push_str(" Associations\n");
        for name in &self.names {
            for book in self.books.iter().filter(|book| !book.has_account(name)) {
                let _ = writeln!(out, "  A = {name:<10.10} C = {:<10.10}", book.cluster);
            }
        }
        if settings.sets() {
            let set = settings.association.lines(Some(&self.parent));
            let _ = write!(out, " Settings\n{set}");
        }
        out
    }

    /// An edit for each cluster, and for each account that has its texts from another cluster.
    fn edits(&self, books: &[Book]) -> Vec<AccountsEdit> {
        let mut edits = Vec::new();
        for book in &self.books {
            if !self.new.is_empty() {
                edits.push(Invocation::edit_in(book, &self.new, self.ask(None)));
            }
            let missing = self
                .names
                .iter()
                .filter(|name| !self.new.contains(name) && !book.has_account(name));
            for name in missing {
                let known = books.iter().find_map(|book| book.all.accounts.get(name));
                let names = [name.clone()];
                edits.push(Invocation::edit_in(book, &names, self.ask(known)));
            }
        }
        edits
    }

    fn ask(&self, known: Option<&Account>) -> AccountsAsk {
        let settings = &self.settings;
        let (description, organization) = match known {
            Some(known) => (known.description.clone(), known.organization.clone()),
            // Without one it is that of the account above.
            None => (
                settings.description.clone(),
                match (settings.organization.as_str(), self.parent.as_str()) {
                    ("", ROOT) => String::new(),
                    ("", parent) => parent.to_owned(),
                    (organization, _) => organization.to_owned(),
                },
            ),
        };
        AccountsAsk::AddAccounts {
            parent: self.parent.clone(),
            description,
            organization,
            terms: settings.association.terms.clone(),
        }
    }
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let own = session.book_of_change(words)?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_ACCOUNTS, USE_SET)?;
    let mut settings = AccountSettings::default();
    for text in set.iter().filter(|word| !word.eq_ignore_ascii_case("and")) {
        settings.take(&Word::new(text), &own)?;
    }
    if !settings.names.is_empty() {
        return Err(Failure::new(" Can't modify the name of an account"));
    }
    if !settings.sets() {
        return Err(Failure::new(NOTHING_SET));
    }
    let books = session.books(conditions.of(Key::Clusters))?;
    let parent = &settings.parent;
    if !parent.is_empty() && !books.iter().any(|book| book.has_account(parent)) {
        let text = format!(" Parent Account {parent} doesn't exist.");
        return Err(Failure::new(text));
    }
    if settings.association.resets_usage {
        let named = accounts_that_fit(&conditions, &own);
        return reset_usage(session, &own, &conditions, &named);
    }
    let of_users = conditions
        .of(Key::Users)
        .is_some_and(|users| !users.is_empty());
    if of_users && (settings.changes_record() || !settings.parent.is_empty()) {
        return Err(Failure::new(
            " Descriptions, organizations and parents are those of accounts, not of users in them.",
        ));
    }
    let mut named: Vec<String> = Vec::new();
    let mut changed: Vec<Changed<'_>> = Vec::new();
    for book in &books {
        let fitting = accounts_that_fit(&conditions, book);
        let mut associations = match of_users {
            true => user_associations(book, &conditions, &fitting),
            false => associations(book, &conditions, &fitting),
        };
        if !parent.is_empty() && !book.has_account(parent) {
            associations.clear();
        }
        named.extend(fitting);
        changed.push(Changed { book, associations });
    }
    named.sort_unstable();
    named.dedup();
    let terms = &settings.association.terms;
    if let Some(text) = without_default_qos(&changed, terms) {
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
    let lines = lines_of_clusters(&changed, terms);
    if of_associations && !lines.is_empty() {
        let _ = write!(text, " Modified account associations...\n{lines}");
    }
    if text.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    let edits = changed.iter().flat_map(|changed| match of_users {
        true => settings.user_edits(changed),
        false => settings.edits(changed, &conditions),
    });
    session.make(&text, NOTHING_MODIFIED, edits.collect())
}

/// The associations of the named users in accounts that are meant (`where user=`), in the order of the tree.
fn user_associations<'a>(
    book: &'a Book,
    conditions: &Conditions,
    named: &[String],
) -> Vec<Association<'a>> {
    if !conditions.fits_cluster(book, Key::Clusters) {
        return Vec::new();
    }
    let tree = book.tree().into_iter();
    tree.filter(|at| {
        !at.user.is_empty()
            && conditions.fits(Key::Users, at.user)
            && named.iter().any(|name| name == at.account)
    })
    .collect()
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
    if conditions
        .names(Key::Names)
        .iter()
        .any(|name| name.eq_ignore_ascii_case(ROOT))
    {
        return Err(Failure::new(
            " You are not allowed to remove the root account.\n Use remove cluster instead.",
        ));
    }
    let mut all: Vec<String> = Vec::new();
    let mut edits = Vec::new();
    for book in session.books(conditions.of(Key::Clusters))? {
        let mut names = accounts_that_fit(&conditions, &book);
        names.retain(|name| name != ROOT && conditions.fits_cluster(&book, Key::Clusters));
        if !names.is_empty() {
            let ask = AccountsAsk::DeleteAccounts;
            edits.push(Invocation::edit_in(&book, &names, ask));
            all.extend(names);
        }
    }
    if all.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    all.sort_unstable();
    all.dedup();
    let text = format!(" Deleting accounts...\n{}", lines(&all));
    session.make(&text, NOTHING_DELETED, edits)
}
