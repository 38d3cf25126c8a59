//! `sacctmgr add`, `modify` and `delete user`.

use super::book::{Association, Book};
use super::conditions::{Conditions, Key, OF_USERS};
use super::console::agreed;
use super::edit::{
    NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE,
    changed_lines, check_clusters, lines, parts, take_setting, without_default_qos,
};
use super::session::{Invocation, Verb};
use super::settings::AssociationSettings;
use super::show::{USE_SET, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::User;
use muster_model::command::{AccountsAsk, AccountsEdit, TermsAsk, WckeysAsk};
use std::fmt::Write as _;

/// A key of a user's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    AdminLevel,
    DefaultAccount,
    DefaultWckey,
    NewName,
    Wckeys,
}

const OWN: &[(&str, usize, Own)] = &[
    ("AdminLevel", 2, Own::AdminLevel),
    ("DefaultAccount", 8, Own::DefaultAccount),
    ("DefaultWCKey", 8, Own::DefaultWckey),
    ("NewName", 1, Own::NewName),
    ("WCKeys", 1, Own::Wckeys),
];

/// Settings of a user and of its associations.
#[derive(Debug, Default, PartialEq)]
struct Settings {
    admin_level: String,
    default_account: String,
    wckeys: WckeysAsk,
    new_name: Option<String>,
    association: AssociationSettings,
}

impl Settings {
    fn take(&mut self, word: &Word, book: &Book, hint: &str) -> Result<(), Failure> {
        match word.key_of(OWN) {
            Some(Own::AdminLevel) => self.admin_level.clone_from(&word.value),
            Some(Own::DefaultAccount) => {
                self.default_account = book.all.account_key(&word.value);
            }
            Some(Own::DefaultWckey) => self.wckeys.default = Some(word.value.clone()),
            Some(Own::NewName) => self.new_name = Some(book.all.user_key(&word.value)),
            Some(Own::Wckeys) => self.wckeys.keys = Some((word.sign, word.list())),
            None => take_setting(&mut self.association, word, book, hint)?,
        }
        Ok(())
    }

    fn concerns_user(&self) -> bool {
        !self.admin_level.is_empty()
            || !self.default_account.is_empty()
            || self.wckeys != WckeysAsk::default()
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

/// What `add user` will do.
struct Addition {
    names: Vec<String>,
    accounts: Vec<String>,
    partitions: Vec<String>,
    settings: Settings,
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book()?;
    let (mut conditions, mut settings) = (Conditions::default(), Settings::default());
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
    let missing = missing_accounts(&accounts, &clusters, &book);
    accounts.retain(|account| book.has_account(account));
    if !missing.is_empty() && accounts.is_empty() {
        let text = format!("{missing} No associations or wckeys created.");
        return Err(Failure::new(text));
    }
    let mut addition = Addition {
        names,
        accounts,
        partitions: conditions.names(Key::Partitions),
        settings,
    };
    if !session.immediate {
        ask_about_unknown(session, &mut addition.names);
    }
    let (text, users) = addition.text(&book);
    if text.is_empty() {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::new(missing.trim_end_matches('\n')));
    }
    let edits = addition.edits(&users);
    session.add(&text, "users", edits)?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(missing.trim_end_matches('\n'))),
    }
}

/// Says of which accounts there are none.
fn missing_accounts(accounts: &[String], clusters: &[String], book: &Book) -> String {
    let mut out = String::new();
    let contact = "        Contact your admin to add this account.\n";
    for account in accounts {
        if !book.has_account(account) {
            let _ = write!(out, " This account '{account}' doesn't exist.\n{contact}");
            continue;
        }
        let others = clusters
            .iter()
            .filter(|name| !name.eq_ignore_ascii_case(&book.cluster));
        for other in others {
            let _ = write!(
                out,
                " This account '{account}' doesn't exist on cluster {other}\n{contact}"
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

impl Addition {
    /// What will be added, and the users of it; empty if there is nothing.
    fn text(&self, book: &Book) -> (String, Vec<String>) {
        let is_new = |name: &&String| !book.all.users.contains_key(*name);
        let new: Vec<&String> = self.names.iter().filter(is_new).collect();
        let mut associations = String::new();
        let mut users = Vec::new();
        let parts: Vec<&str> = match self.partitions.is_empty() {
            true => vec![""],
            false => self.partitions.iter().map(String::as_str).collect(),
        };
        for name in &self.names {
            let known = book.all.users.get(name);
            for account in &self.accounts {
                for part in &parts {
                    if has(known, account, part) {
                        continue;
                    }
                    users.push(name.clone());
                    let _ = write!(
                        associations,
                        "  U = {name:<9.9} A = {account:<10.10} C = {:<10.10}",
                        book.cluster
                    );
                    if !part.is_empty() {
                        let _ = write!(associations, " P = {part:<10}");
                    }
                    associations.push('\n');
                }
            }
        }
        let wckeys = self.wckeys_text(book, &mut users);
        if associations.is_empty() && wckeys.is_empty() {
            return (String::new(), users);
        }
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
        users.dedup();
        (out, users)
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

    fn wckeys_text(&self, book: &Book, users: &mut Vec<String>) -> String {
        let listed = self.settings.wckeys.keys.iter().flat_map(|(_, keys)| keys);
        let default = self
            .settings
            .wckeys
            .default
            .iter()
            .filter(|key| !key.is_empty());
        let mut keys: Vec<&String> = listed.chain(default).collect();
        keys.dedup();
        let mut out = String::new();
        for name in &self.names {
            let known = book.all.users.get(name);
            for key in &keys {
                if known.is_some_and(|user| user.wckeys.contains(key)) {
                    continue;
                }
                users.push(name.clone());
                let _ = writeln!(
                    out,
                    "  U = {name:<9.9} W = {key:<10.10} C = {:<10.10}",
                    book.cluster
                );
            }
        }
        match out.is_empty() {
            true => out,
            false => format!(" WCKeys =\n{out}"),
        }
    }

    fn edits(&self, users: &[String]) -> Vec<AccountsEdit> {
        let settings = &self.settings;
        let ask = AccountsAsk::AddUsers {
            accounts: self.accounts.clone(),
            default_account: settings.default_account.clone(),
            admin_level: admin_level(&settings.admin_level).to_owned(),
            terms: settings.association.terms.clone(),
            wckeys: settings.wckeys.clone(),
            partitions: self.partitions.clone(),
        };
        vec![Invocation::edit_of(users, ask)]
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
    let book = session.book()?;
    let (conditions, set) = parts(words);
    let conditions = read(&conditions, OF_USERS, USE_SET)?;
    let mut settings = Settings::default();
    for text in set.iter().filter(|word| !word.eq_ignore_ascii_case("and")) {
        let word = Word::new(text);
        let resets = word.is("rawusage", 7) && word.key.is_some();
        if resets && conditions.names(Key::Accounts).is_empty() {
            return Err(super::ledger::error("An account must be specified"));
        }
        settings.take(&word, &book, USE_WHERE)?;
    }
    if settings == Settings::default() {
        return Err(Failure::new(NOTHING_SET));
    }
    let users: Vec<&User> = book
        .all
        .users
        .values()
        .filter(|user| conditions.fits_user(user))
        .collect();
    if settings.association.resets_usage {
        return reset_usage(session, &book, &conditions, &users);
    }
    if let Some(to) = settings.new_name {
        return rename(session, &conditions, &users, to);
    }
    let changed = meant(&book, &conditions);
    if let Some(text) = without_default_qos(&book, &changed, &settings.association.terms) {
        session.console.complain(&text);
        return Ok(());
    }
    let named: Vec<String> = users.iter().map(|user| user.name.clone()).collect();
    if settings.concerns_user() {
        check_defaults(session, &book, &settings, &users)?;
    }
    let associations = settings.association.terms != TermsAsk::default();
    let mut text = String::new();
    if settings.concerns_user() && !named.is_empty() {
        let _ = write!(text, " Modified users...\n{}", lines(&named));
    }
    if associations && !changed.is_empty() {
        let changes = changed_lines(&book, &changed, &settings.association.terms);
        let _ = write!(text, " Modified user associations...\n{changes}");
    }
    if text.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    let ask = |accounts: Vec<String>, partitions: Vec<String>| AccountsAsk::ModifyUsers {
        accounts,
        partitions,
        default_account: settings.default_account.clone(),
        admin_level: admin_level(&settings.admin_level).to_owned(),
        terms: settings.association.terms.clone(),
        wckeys: settings.wckeys.clone(),
    };
    let edits = match associations {
        false => vec![Invocation::edit_of(&named, ask(Vec::new(), Vec::new()))],
        true => by_user(&changed, &conditions)
            .into_iter()
            .map(|(names, accounts, partitions)| {
                Invocation::edit_of(&names, ask(accounts, partitions))
            })
            .collect(),
    };
    session.make(&text, NOTHING_MODIFIED, edits)
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

/// New defaults are among what users have.
fn check_defaults(
    session: &mut Invocation<'_>,
    book: &Book,
    settings: &Settings,
    users: &[&User],
) -> Result<(), Failure> {
    let account = settings.default_account.as_str();
    let key = settings.wckeys.default.as_deref().unwrap_or("");
    let listed = settings
        .wckeys
        .keys
        .as_ref()
        .map(|(_, keys)| keys.as_slice());
    let gets_key = listed.unwrap_or_default().iter().any(|own| own == key);
    let lacks_account = |user: &&&User| !account.is_empty() && !user.is_in(account);
    let lacks_key =
        |user: &&&User| !key.is_empty() && !gets_key && !user.wckeys.iter().any(|own| own == key);
    let mut say = |what: &str, name: &str, lacking: Vec<&&User>| {
        if lacking.is_empty() {
            return Ok(());
        }
        let mut text = format!(
            " Can't modify because these users aren't associated with new default {what} '{name}'...\n"
        );
        for user in lacking {
            let _ = writeln!(text, "  U = {} C = {}", user.name, book.cluster);
        }
        session.console.say(&text);
        Err(Failure::silent())
    };
    say(
        "account",
        account,
        users.iter().filter(lacks_account).collect(),
    )?;
    say("wckey", key, users.iter().filter(lacks_key).collect())
}

fn reset_usage(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
    users: &[&User],
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
    let names: Vec<String> = users.iter().map(|user| user.name.clone()).collect();
    let edit = Invocation::edit_of(&names, AccountsAsk::ResetUsage { accounts });
    session.ledger.edit(edit).map_err(super::session::refused)?;
    Ok(())
}

fn rename(
    session: &mut Invocation<'_>,
    conditions: &Conditions,
    users: &[&User],
    to: String,
) -> Result<(), Failure> {
    if users.len() > 1 || conditions.names(Key::Names).len() > 1 {
        return Err(Failure::new(
            "sacctmgr: error: Can only change one at a time\n Error with request: Can only change one at a time\n \
             If you are changing a users name you can only specify 1 user at a time.",
        ));
    }
    let [user] = users else {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    };
    let names = [user.name.clone()];
    let text = format!(" Modified users...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::RenameUser { to });
    session.make(&text, NOTHING_MODIFIED, vec![edit])
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_USERS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    if let Some(keys) = conditions.of(Key::Wckeys) {
        if conditions.of(Key::Accounts).is_some() {
            return Err(Failure::new(" Mixing Account and WCKeys is not allowed"));
        }
        let keys = keys.to_vec();
        return delete_wckeys(session, &book, &conditions, keys);
    }
    let gone = meant(&book, &conditions);
    let of_associations = conditions.of(Key::Accounts).is_some()
        || conditions.of(Key::Clusters).is_some()
        || conditions.concerns_associations();
    if of_associations {
        return delete_associations(session, &book, &conditions, &gone);
    }
    let fitting = book
        .all
        .users
        .values()
        .filter(|user| conditions.fits_user(user));
    let names: Vec<String> = fitting.map(|user| user.name.clone()).collect();
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting users...\n{}", lines(&names));
    let ask = AccountsAsk::DeleteUsers {
        accounts: Vec::new(),
        partitions: Vec::new(),
    };
    session.make(
        &text,
        NOTHING_DELETED,
        vec![Invocation::edit_of(&names, ask)],
    )
}

fn delete_associations(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
    gone: &[Association<'_>],
) -> Result<(), Failure> {
    if gone.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let mut text = String::from(" Deleting user associations...\n");
    for at in gone {
        let (cluster, account, user) = (&book.cluster, at.account, at.user);
        let _ = write!(text, "  C = {cluster:<10} A = {account:<10} U = {user:<9}");
        if !at.partition.is_empty() {
            let _ = write!(text, " P = {}", at.partition);
        }
        text.push('\n');
    }
    let all = book.tree();
    let left = |user: &str| {
        let count = |list: &[Association<'_>]| list.iter().filter(|at| at.user == user).count();
        count(&all) - count(gone)
    };
    let mut without: Vec<&str> = gone.iter().map(|at| at.user).collect();
    without.sort_unstable();
    without.dedup();
    without.retain(|user| left(user) == 0);
    if !without.is_empty() {
        let _ = write!(
            text,
            " Deleting users (No Associations)...\n{}",
            lines(&without)
        );
    }
    let edits = by_user(gone, conditions)
        .into_iter()
        .map(|(names, accounts, partitions)| {
            let ask = AccountsAsk::DeleteUsers {
                accounts,
                partitions,
            };
            Invocation::edit_of(&names, ask)
        });
    let edits = edits.collect();
    session.make(&text, NOTHING_DELETED, edits)
}

fn delete_wckeys(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
    keys: Vec<String>,
) -> Result<(), Failure> {
    let names = conditions.names(Key::Names);
    let mut lines = String::new();
    for user in book
        .all
        .users
        .values()
        .filter(|user| conditions.fits_user(user))
    {
        for key in user.wckeys.iter().filter(|key| keys.contains(key)) {
            let (cluster, name) = (&book.cluster, &user.name);
            let _ = writeln!(lines, "  C = {cluster:<10} W = {key:<20} U = {name:<9}");
        }
    }
    if lines.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let text = format!(" Deleting user WCKeys...\n{lines}");
    let edit = Invocation::edit_of(&names, AccountsAsk::DeleteWckeys(keys));
    session.make(&text, NOTHING_DELETED, vec![edit])
}
