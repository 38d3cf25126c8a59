//! `sacctmgr add`, `modify` and `delete user`.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key, OF_USERS};
use super::console::agreed;
use super::edit::{
    Changed, NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET,
    USE_WHERE, check_clusters, is_among, lines, lines_of_clusters, parts, take_setting,
    without_default_qos,
};
use super::session::{ChangePart, Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::{Failure, complain, print};
use muster_model::accounts::{ROOT, User};
use muster_model::command::ListEdit;
use muster_model::command::{AccountsAsk, AccountsEdit, TermsAsk, WckeysAsk};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A key of a user's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserKey {
    AdminLevel,
    DefaultAccount,
    DefaultWckey,
    NewName,
    Wckeys,
}

const OWN: &[(&str, usize, UserKey)] = &[
    ("AdminLevel", 2, UserKey::AdminLevel),
    ("DefaultAccount", 8, UserKey::DefaultAccount),
    ("DefaultWCKey", 8, UserKey::DefaultWckey),
    ("NewName", 1, UserKey::NewName),
    ("WCKeys", 1, UserKey::Wckeys),
];

/// Settings of a user and of its associations.
#[derive(Debug, Default, PartialEq)]
struct UserSettings {
    admin_level: String,
    default_account: String,
    wckeys: WckeysAsk,
    new_name: Option<String>,
    association: AssociationSettings,
}

impl UserSettings {
    fn take(&mut self, word: &Word, book: &Book, hint: &str) -> Result<(), Failure> {
        match word.key_of(OWN) {
            Some(UserKey::AdminLevel) => self.admin_level.clone_from(&word.value),
            Some(UserKey::DefaultAccount) => {
                self.default_account = book.all.account_key(&word.value);
            }
            Some(UserKey::DefaultWckey) => self.wckeys.default = Some(word.value.clone()),
            Some(UserKey::NewName) => self.new_name = Some(book.all.user_key(&word.value)),
            Some(UserKey::Wckeys) => {
                self.wckeys.keys = Some(ListEdit {
                    sign: word.sign,
                    names: word.list(),
                })
            }
            None => take_setting(&mut self.association, word, book, hint)?,
        }
        Ok(())
    }

    fn concerns_user(&self) -> bool {
        !self.admin_level.is_empty()
            || !self.default_account.is_empty()
            || self.wckeys != WckeysAsk::default()
    }

    /// The edit of what users are on a cluster. Defaults are those of the cluster, levels are the same everywhere.
    fn record_edit(&self, book: &Book, conditions: &Conditions) -> Option<AccountsEdit> {
        let is_meant = conditions.fits_cluster(book, Key::Clusters);
        let users = users_that_fit(book, conditions);
        let names: Vec<String> = users.map(|user| user.name.clone()).collect();
        if names.is_empty() || !is_meant && self.admin_level.is_empty() {
            return None;
        }
        let ask = AccountsAsk::ModifyUsers {
            accounts: Vec::new(),
            partitions: Vec::new(),
            default_account: match is_meant {
                true => self.default_account.clone(),
                false => String::new(),
            },
            admin_level: admin_level(&self.admin_level).to_owned(),
            terms: TermsAsk::default(),
            wckeys: match is_meant {
                true => self.wckeys.clone(),
                false => WckeysAsk::default(),
            },
        };
        Some(Invocation::edit_in(book, &names, ask))
    }

    /// The edits of what associations of one cluster have.
    fn association_edits(
        &self,
        changed: &Changed<'_>,
        conditions: &Conditions,
    ) -> Vec<AccountsEdit> {
        let each = by_user(&changed.associations, conditions).into_iter();
        let each = each.filter(|(names, ..)| !names.is_empty());
        let edits = each.map(|(names, accounts, partitions)| {
            let ask = AccountsAsk::ModifyUsers {
                accounts,
                partitions,
                default_account: String::new(),
                admin_level: String::new(),
                terms: self.association.terms.clone(),
                wckeys: WckeysAsk::default(),
            };
            Invocation::edit_in(changed.book, &names, ask)
        });
        edits.collect()
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

fn folded(names: &[String], key: impl Fn(&str) -> String) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names.iter().map(|name| key(name)) {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// Plan of `add user`.
struct UserAddition<'a> {
    /// The clusters in whose records users are added.
    books: Vec<&'a Book>,
    names: Vec<String>,
    accounts: Vec<String>,
    partitions: Vec<String>,
    settings: UserSettings,
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let (mut conditions, mut settings) = (Conditions::default(), UserSettings::default());
    for text in words {
        let word = Word::new(text);
        let is_setting = word.key_of(OWN).is_some() && word.key_of(OF_USERS) != Some(Key::Accounts);
        let own = [Key::Names, Key::Accounts, Key::Clusters, Key::Partitions];
        let is_own =
            word.key.is_none() || word.key_of(OF_USERS).is_some_and(|key| own.contains(&key));
        if text.eq_ignore_ascii_case("set") {
            continue;
        }
        match is_own && !is_setting {
            true => drop(conditions.take(&word, OF_USERS)?),
            false => settings.take(&word, &book, "")?,
        }
    }
    let all = &book.all;
    let names = folded(&conditions.names(Key::Names), |name| all.user_key(name));
    let mut accounts = folded(&conditions.names(Key::Accounts), |name| {
        all.account_key(name)
    });
    if names.is_empty() {
        return Err(Failure::new(" Need name of user to add."));
    }
    let default = settings.default_account.clone();
    if !default.is_empty() && !accounts.contains(&default) {
        accounts.push(default);
    }
    accounts.sort_unstable();
    if accounts.is_empty() && settings.wckeys == WckeysAsk::default() {
        return Err(Failure::new(" Need name of account to add user to."));
    }
    let clusters = conditions.names(Key::Clusters);
    check_clusters(&clusters, &book)?;
    let books = session.books(Some(&clusters))?;
    let meant = books.iter().filter(|book| is_among(&clusters, book));
    let meant: Vec<&Book> = meant.collect();
    let missing = missing_accounts(&accounts, &meant);
    accounts.retain(|account| meant.iter().any(|book| book.has_account(account)));
    if !missing.is_empty() && accounts.is_empty() {
        if names.iter().any(|name| all.user(name).is_none()) {
            let text = format!("{missing} No associations or wckeys created.");
            return Err(Failure::new(text));
        }
        complain(missing.trim_end());
        print(" Nothing new added.\n");
        return Err(Failure::silent());
    }
    let mut addition = UserAddition {
        books: meant,
        names,
        accounts,
        partitions: conditions.names(Key::Partitions),
        settings,
    };
    if !session.immediate {
        ask_about_unknown(session, &mut addition.names);
    }
    let is_new = |name: &String| !books.iter().any(|book| book.all.users.contains_key(name));
    let text = addition.text(&is_new);
    if text.is_empty() {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::new(missing.trim_end_matches('\n')));
    }
    let edits = addition.edits();
    session.add(&text, "users", edits)?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(missing.trim_end_matches('\n'))),
    }
}

/// Says of which accounts there are none.
fn missing_accounts(accounts: &[String], books: &[&Book]) -> String {
    let mut out = String::new();
    let contact = "        Contact your admin to add this account.\n";
    for account in accounts {
        if !books.iter().any(|book| book.has_account(account)) {
            let _ = write!(out, " This account '{account}' doesn't exist.\n{contact}");
            continue;
        }
        for book in books.iter().filter(|book| !book.has_account(account)) {
            let _ = write!(
                out,
                " This account '{account}' doesn't exist on cluster {}\n{contact}",
                book.cluster
            );
        }
    }
    out
}

/// Users whom the machine does not know are added if that is wanted.
fn ask_about_unknown(session: &mut Invocation<'_>, names: &mut Vec<String>) {
    let mut wanted = Vec::new();
    for name in names.drain(..) {
        let question =
            format!("There is no uid for user '{name}'\nAre you sure you want to continue?");
        if session.ledger.is_user(&name) || agreed(session.console, &question) {
            wanted.push(name);
        }
    }
    *names = wanted;
}

impl UserAddition<'_> {
    /// Listing of the additions; empty if there are none.
    fn text(&self, is_new: &impl Fn(&String) -> bool) -> String {
        let mut associations = String::new();
        for name in &self.names {
            for account in &self.accounts {
                for book in self.books.iter().filter(|book| book.has_account(account)) {
                    associations += &self.association_lines(book, name, account);
                }
            }
        }
        let wckeys = self.wckeys_text();
        if associations.is_empty() && wckeys.is_empty() {
            return String::new();
        }
        let new: Vec<&String> = self.names.iter().filter(|name| is_new(name)).collect();
        let mut out = String::new();
        if !new.is_empty() {
            let _ = write!(out, " Adding User(s)\n{}", lines(&new));
            out += &self.own_text();
        }
        if !associations.is_empty() {
            let _ = write!(out, " Associations =\n{associations}");
        }
        out += &wckeys;
        if !associations.is_empty() {
            let set = self.settings.association.lines(None);
            let _ = write!(out, " Non Default Settings\n{set}");
        }
        out
    }

    /// The partitions of new associations; an empty one where they hold in all.
    fn parts(&self) -> Vec<&str> {
        match self.partitions.is_empty() {
            true => vec![""],
            false => self.partitions.iter().map(String::as_str).collect(),
        }
    }

    /// The associations of a user in an account that a cluster does not have yet.
    fn association_lines(&self, book: &Book, name: &str, account: &str) -> String {
        let known = book.all.users.get(name);
        let mut out = String::new();
        for part in self.parts() {
            if has(known, account, part) {
                continue;
            }
            let _ = write!(
                out,
                "  U = {name:<9.9} A = {account:<10.10} C = {:<10.10}",
                book.cluster
            );
            if !part.is_empty() {
                let _ = write!(out, " P = {part:<10}");
            }
            out.push('\n');
        }
        out
    }

    fn own_text(&self) -> String {
        let own = [
            ("Default Account", self.settings.default_account.as_str()),
            (
                "Default WCKey",
                self.settings.wckeys.default.as_deref().unwrap_or(""),
            ),
            ("Admin Level", admin_level(&self.settings.admin_level)),
        ];
        let mut out = String::new();
        for (name, value) in own.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(out, "  {name:<15} = {value}");
        }
        match out.is_empty() {
            true => out,
            false => format!(" Settings =\n{out}"),
        }
    }

    /// The workload characterization keys that are asked for.
    fn wckeys(&self) -> Vec<&String> {
        let listed = self
            .settings
            .wckeys
            .keys
            .iter()
            .flat_map(|edit| &edit.names);
        let default = self.settings.wckeys.default.iter();
        let mut keys: Vec<&String> = listed
            .chain(default.filter(|key| !key.is_empty()))
            .collect();
        keys.dedup();
        keys
    }

    /// Whether a user gets keys on a cluster: it has, or gets, an association there.
    fn gets_wckeys(&self, book: &Book, name: &str) -> bool {
        let known = book.all.users.get(name);
        known.is_some_and(User::has_associations)
            || self
                .accounts
                .iter()
                .any(|account| book.has_account(account))
    }

    fn has_wckey(book: &Book, name: &str, key: &String) -> bool {
        let known = book.all.users.get(name);
        known.is_some_and(|user| user.wckeys.contains(key))
    }

    fn wckeys_text(&self) -> String {
        let mut out = String::new();
        for name in &self.names {
            for key in self.wckeys() {
                let without = |book: &&&Book| {
                    self.gets_wckeys(book, name) && !Self::has_wckey(book, name, key)
                };
                for book in self.books.iter().filter(without) {
                    let _ = writeln!(
                        out,
                        "  U = {name:<9.9} W = {key:<10.10} C = {:<10.10}",
                        book.cluster
                    );
                }
            }
        }
        match out.is_empty() {
            true => out,
            false => format!(" WCKeys =\n{out}"),
        }
    }

    /// An edit for each cluster: of the users that get something there.
    fn edits(&self) -> Vec<AccountsEdit> {
        let mut edits = Vec::new();
        for book in &self.books {
            let accounts = self.accounts.iter().filter(|name| book.has_account(name));
            let accounts: Vec<String> = accounts.cloned().collect();
            let gets = |name: &&String| {
                let lacks =
                    |account: &String| !self.association_lines(book, name, account).is_empty();
                let lacks_key = |key: &&String| !Self::has_wckey(book, name, key);
                accounts.iter().any(lacks)
                    || self.gets_wckeys(book, name) && self.wckeys().iter().any(lacks_key)
            };
            let users: Vec<String> = self.names.iter().filter(gets).cloned().collect();
            if !users.is_empty() {
                edits.push(Invocation::edit_in(book, &users, self.ask(book, accounts)));
            }
        }
        edits
    }

    fn ask(&self, book: &Book, accounts: Vec<String>) -> AccountsAsk {
        let settings = &self.settings;
        let default = Some(&settings.default_account).filter(|name| book.has_account(name));
        AccountsAsk::AddUsers {
            accounts,
            default_account: default.cloned().unwrap_or_default(),
            admin_level: admin_level(&settings.admin_level).to_owned(),
            terms: settings.association.terms.clone(),
            wckeys: settings.wckeys.clone(),
            partitions: self.partitions.clone(),
        }
    }
}

fn has(known: Option<&User>, account: &str, partition: &str) -> bool {
    let Some(user) = known else { return false };
    match partition {
        "" => user.accounts.contains_key(account),
        part => user
            .partitions
            .get(account)
            .is_some_and(|parts| parts.contains_key(part)),
    }
}

/// An administrator's level by its whole name.
fn admin_level(text: &str) -> &str {
    match text.to_ascii_lowercase().as_str() {
        "" => "",
        word if "administrator".starts_with(word) => "Administrator",
        word if "operator".starts_with(word) => "Operator",
        word if "none".starts_with(word) => "None",
        _ => text,
    }
}

/// The associations of users that conditions mean, in the order of the tree.
fn meant<'a>(book: &'a Book, conditions: &Conditions) -> Vec<Association<'a>> {
    let tree = book.tree().into_iter();
    let of_user = tree.filter(|at| {
        let user = book.all.users.get(at.user);
        user.is_some_and(|user| conditions.fits_user(user))
    });
    let all = of_user.filter(|at| {
        conditions.fits_cluster(book, Key::Clusters) && conditions.fits_association(book, at)
    });
    all.collect()
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_USERS, USE_SET)?;
    let mut settings = UserSettings::default();
    for text in set.iter().filter(|word| !word.eq_ignore_ascii_case("and")) {
        let word = Word::new(text);
        let resets = word.is("rawusage", 7) && word.key.is_some();
        if resets && conditions.names(Key::Accounts).is_empty() {
            return Err(super::ledger::error("An account must be specified"));
        }
        settings.take(&word, &book, USE_WHERE)?;
    }
    if settings == UserSettings::default() {
        return Err(Failure::new(NOTHING_SET));
    }
    if settings.association.resets_usage {
        return reset_usage(session, &book, &conditions);
    }
    let books = session.books(conditions.of(Key::Clusters))?;
    if let Some(to) = settings.new_name {
        return rename(session, &conditions, &books, &to);
    }
    let changed: Vec<Changed<'_>> = (books.iter())
        .map(|book| Changed {
            book,
            associations: meant(book, &conditions),
        })
        .collect();
    let terms = &settings.association.terms;
    if let Some(text) = without_default_qos(&changed, terms) {
        session.console.complain(&text);
        return Ok(());
    }
    let named = names_that_fit(&books, &conditions);
    if settings.concerns_user() {
        check_defaults(session, &books, &settings, &conditions)?;
    }
    let mut parts = Vec::new();
    if settings.concerns_user() && !named.is_empty() {
        parts.push(ChangePart {
            text: format!(" Modified users...\n{}", lines(&named)),
            edits: (books.iter())
                .filter_map(|book| settings.record_edit(book, &conditions))
                .collect(),
        });
    }
    let changes = lines_of_clusters(&changed, terms);
    if *terms != TermsAsk::default() && !changes.is_empty() {
        parts.push(ChangePart {
            text: format!(" Modified user associations...\n{changes}"),
            edits: (changed.iter())
                .flat_map(|changed| settings.association_edits(changed, &conditions))
                .collect(),
        });
    }
    if parts.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    session.make_parts(NOTHING_MODIFIED, parts)
}

/// The users of a cluster that conditions mean.
fn users_that_fit<'a>(
    book: &'a Book,
    conditions: &'a Conditions,
) -> impl Iterator<Item = &'a User> {
    let all = book.all.users.values();
    all.filter(|user| conditions.fits_user(user))
}

/// The users that conditions mean, each once.
fn names_that_fit(books: &[Book], conditions: &Conditions) -> Vec<String> {
    let all = books
        .iter()
        .flat_map(|book| users_that_fit(book, conditions));
    let mut names: Vec<String> = all.map(|user| user.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Users with the accounts and partitions of their associations that are meant: all in one where conditions name users,
/// accounts and partitions only, so that the change is made as a whole.
fn by_user(
    changed: &[Association<'_>],
    conditions: &Conditions,
) -> Vec<(Vec<String>, Vec<String>, Vec<String>)> {
    let distinct = |names: Vec<&str>| {
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let users = distinct(changed.iter().map(|at| at.user).collect());
    let partitions = conditions.names(Key::Partitions);
    let special = [Key::Qos, Key::DefaultQos, Key::Priority];
    if special.iter().all(|key| conditions.of(*key).is_none()) {
        return vec![(users, conditions.names(Key::Accounts), partitions)];
    }
    let of_one = |user: String| {
        let own = changed.iter().filter(|at| at.user == user);
        let accounts = distinct(own.map(|at| at.account).collect());
        (vec![user], accounts, partitions.clone())
    };
    users.into_iter().map(of_one).collect()
}

/// New defaults are among what users have, on each cluster that is meant.
fn check_defaults(
    session: &mut Invocation<'_>,
    books: &[Book],
    settings: &UserSettings,
    conditions: &Conditions,
) -> Result<(), Failure> {
    let account = settings.default_account.as_str();
    let key = settings.wckeys.default.as_deref().unwrap_or("");
    let listed = settings
        .wckeys
        .keys
        .as_ref()
        .map(|edit| edit.names.as_slice());
    let gets_key = listed.unwrap_or_default().iter().any(|own| own == key);
    let in_account = |user: &User| account.is_empty() || user.is_in(account);
    let has_key =
        |user: &User| key.is_empty() || gets_key || user.wckeys.iter().any(|own| own == key);
    let names = names_that_fit(books, conditions);
    let meant: Vec<&Book> = (books.iter())
        .filter(|book| conditions.fits_cluster(book, Key::Clusters))
        .collect();
    let mut say = |what: &str, name: &str, has: &dyn Fn(&User) -> bool| {
        if name.is_empty() {
            return Ok(());
        }
        let mut lacking = String::new();
        for user in &names {
            let lacks = |book: &&&Book| !book.all.users.get(user).is_some_and(has);
            for book in meant.iter().filter(lacks) {
                let _ = writeln!(lacking, "  U = {user} C = {}", book.cluster);
            }
        }
        if lacking.is_empty() {
            return Ok(());
        }
        session.console.say(&format!(
            " Can't modify because these users aren't associated with new default {what} '{name}'...\n{lacking}"
        ));
        Err(Failure::silent())
    };
    say("account", account, &in_account)?;
    say("wckey", key, &has_key)
}

fn reset_usage(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
) -> Result<(), Failure> {
    let accounts = conditions.names(Key::Accounts);
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
    let users = users_that_fit(book, conditions);
    let names: Vec<String> = users.map(|user| user.name.clone()).collect();
    let edit = Invocation::edit_of(&names, AccountsAsk::ResetUsage { accounts });
    session.ledger.edit(edit).map_err(super::session::refused)?;
    Ok(())
}

fn rename(
    session: &mut Invocation<'_>,
    conditions: &Conditions,
    books: &[Book],
    to: &str,
) -> Result<(), Failure> {
    let names = names_that_fit(books, conditions);
    if names.len() > 1 || conditions.names(Key::Names).len() > 1 {
        return Err(Failure::new(
            "sacctmgr: error: Can only change one at a time\n Error with request: Can only change one at a time\n \
             If you are changing a users name you can only specify 1 user at a time.",
        ));
    }
    let [name] = names.as_slice() else {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    };
    let text = format!(" Modified users...\n{}", lines(&names));
    let with = books
        .iter()
        .filter(|book| book.all.users.contains_key(name));
    let edits = with.map(|book| {
        let ask = AccountsAsk::RenameUser { to: to.to_owned() };
        Invocation::edit_in(book, &names, ask)
    });
    session.make(&text, NOTHING_MODIFIED, edits.collect())
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_USERS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let books = session.books(conditions.of(Key::Clusters))?;
    if let Some(keys) = conditions.of(Key::Wckeys) {
        if conditions.of(Key::Accounts).is_some() {
            return Err(Failure::new(" Mixing Account and WCKeys is not allowed"));
        }
        let keys = keys.to_vec();
        return delete_wckeys(session, &books, &conditions, &keys);
    }
    let of_associations = conditions.of(Key::Accounts).is_some()
        || conditions.of(Key::Clusters).is_some()
        || conditions.concerns_associations();
    if of_associations {
        return delete_associations(session, &books, &conditions);
    }
    let names = names_that_fit(&books, &conditions);
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting users...\n{}", lines(&names));
    let mut edits = Vec::new();
    for book in &books {
        // The user root of other clusters is there as long as they are.
        let known = |user: &&User| !book.is_other || user.name != ROOT;
        let known = users_that_fit(book, &conditions).filter(known);
        let names: Vec<String> = known.map(|user| user.name.clone()).collect();
        let ask = AccountsAsk::DeleteUsers {
            accounts: Vec::new(),
            partitions: Vec::new(),
        };
        if !names.is_empty() {
            edits.push(Invocation::edit_in(book, &names, ask));
        }
    }
    session.make(&text, NOTHING_DELETED, edits)
}

fn delete_associations(
    session: &mut Invocation<'_>,
    books: &[Book],
    conditions: &Conditions,
) -> Result<(), Failure> {
    let mut text = String::from(" Deleting user associations...\n");
    let mut edits = Vec::new();
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for book in books {
        let gone = meant(book, conditions);
        for at in &gone {
            let (cluster, account, user) = (&book.cluster, at.account, at.user);
            let _ = write!(text, "  C = {cluster:<10} A = {account:<10} U = {user:<9}");
            if !at.partition.is_empty() {
                let _ = write!(text, " P = {}", at.partition);
            }
            text.push('\n');
            left.entry(at.user).or_default();
        }
        let each = by_user(&gone, conditions).into_iter();
        let each = each.filter(|(names, ..)| !names.is_empty());
        edits.extend(each.map(|(names, accounts, partitions)| {
            let ask = AccountsAsk::DeleteUsers {
                accounts,
                partitions,
            };
            Invocation::edit_in(book, &names, ask)
        }));
    }
    if edits.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    for book in books {
        let gone = meant(book, conditions);
        for (user, count) in &mut left {
            let of = |list: &[Association<'_>]| list.iter().filter(|at| at.user == *user).count();
            *count += of(&book.tree()) - of(&gone);
        }
    }
    left.retain(|_, count| *count == 0);
    if !left.is_empty() {
        let without: Vec<&str> = left.into_keys().collect();
        let _ = write!(
            text,
            " Deleting users (No Associations)...\n{}",
            lines(&without)
        );
    }
    session.make(&text, NOTHING_DELETED, edits)
}

fn delete_wckeys(
    session: &mut Invocation<'_>,
    books: &[Book],
    conditions: &Conditions,
    keys: &[String],
) -> Result<(), Failure> {
    let names = conditions.names(Key::Names);
    let mut lines = String::new();
    let mut edits = Vec::new();
    let meant = books
        .iter()
        .filter(|book| conditions.fits_cluster(book, Key::Clusters));
    for book in meant {
        let before = lines.len();
        for user in users_that_fit(book, conditions) {
            for key in user.wckeys.iter().filter(|key| keys.contains(key)) {
                let (cluster, name) = (&book.cluster, &user.name);
                let _ = writeln!(lines, "  C = {cluster:<10} W = {key:<20} U = {name:<9}");
            }
        }
        if lines.len() > before {
            let ask = AccountsAsk::DeleteWckeys(keys.to_vec());
            edits.push(Invocation::edit_in(book, &names, ask));
        }
    }
    if lines.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting user WCKeys...\n{lines}");
    session.make(&text, NOTHING_DELETED, edits)
}
