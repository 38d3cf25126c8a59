//! Changes by a loaded file: its lines compared with the records.

use super::{FileLine, limit_texts};
use crate::listing::Failure;
use crate::sacctmgr::book::Book;
use crate::sacctmgr::cluster::class;
use crate::sacctmgr::row::own_raw_qos;
use crate::sacctmgr::session::Invocation;
use crate::sacctmgr::settings::{ASSOCIATION, AssociationSettings};
use crate::sacctmgr::words::{Word, list};
use muster_model::accounts::{Account, AssociationTerms, NORMAL, PARENT_SHARES, ROOT, User};
use muster_model::command::ListEdit;
use muster_model::command::{AccountsAsk, AccountsEdit, ClusterAsk, TermsAsk, WckeysAsk};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A line's fields of an account or a user.
#[derive(Debug, Default)]
struct Said {
    classification: Option<String>,
    description: Option<String>,
    organization: Option<String>,
    admin_level: String,
    default_account: String,
    default_wckey: Option<String>,
    wckeys: Vec<String>,
    coordinates: Vec<String>,
    partition: Option<String>,
    association: AssociationSettings,
}

fn said(entry: &FileLine, book: &Book) -> Result<Said, Failure> {
    let mut said = Said::default();
    for option in &entry.options {
        let word = Word::new(option);
        let is = |name: &str, least: usize| word.key.is_some() && word.is(name, least);
        let value = || word.value.clone();
        match () {
            () if is("description", 3) => said.description = Some(value()),
            () if is("organization", 1) => said.organization = Some(value()),
            () if is("adminlevel", 2) => said.admin_level = value(),
            () if is("defaultaccount", 8) => {
                said.default_account = book.all.account_key(&word.value)
            }
            () if is("defaultwckey", 8) => said.default_wckey = Some(value()),
            () if is("wckeys", 1) => said.wckeys = word.list(),
            () if is("coordinators", 2) => said.coordinates = word.list(),
            () if is("partitions", 4) => said.partition = Some(value()),
            () if is("classification", 2) => {
                let class = class(word.value.trim_start_matches('*'));
                said.classification =
                    Some(class.map_err(|why| entry.wrong(option, &why.to_string()))?);
            }
            () if is("flags", 2) => {}
            () => {
                let Some(key) = word.key_of(ASSOCIATION) else {
                    return Err(entry.wrong(option, ""));
                };
                let taken = said.association.take(key, &word, book);
                taken.map_err(|why| entry.wrong(option, &why))?;
            }
        }
    }
    Ok(said)
}

/// Effects of loading a file: texts of additions and of changes, and the edits.
#[derive(Default)]
pub(super) struct Loading {
    /// Whether the cluster is added, or its records are removed before.
    pub(super) is_new: bool,
    /// Administrators among the users that are removed before: they stay administrators.
    pub(super) levels: BTreeMap<String, String>,
    pub(super) changed: String,
    pub(super) cluster: Vec<AssociationTerms>,
    pub(super) accounts: Vec<(String, String, String)>,
    pub(super) account_associations: Vec<(String, String, AssociationTerms)>,
    pub(super) users: Vec<(String, String, String, String)>,
    pub(super) user_associations: Vec<(String, String, AssociationTerms)>,
    pub(super) edits: Vec<AccountsEdit>,
    /// Coordinators at the end, when all accounts are there.
    pub(super) last: Vec<AccountsEdit>,
}

impl Loading {
    fn note(&mut self, what: &str, of: (&str, &str), old: &str, new: &str) {
        let (kind, name) = of;
        let _ = writeln!(
            self.changed,
            " Changed {what:<21} for {kind:<7} {name:<10} {old:>8} -> {new}"
        );
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.last.is_empty()
    }
}

/// Goes through the lines. The book gets their additions, so that later ones find them.
pub(super) fn plan(
    entries: &[FileLine],
    book: &mut Book,
    loading: &mut Loading,
) -> Result<(), Failure> {
    let mut parent = ROOT.to_owned();
    for entry in entries {
        let said = said(entry, book)?;
        match entry.title.as_str() {
            "cluster" => plan_cluster(&said, book, loading),
            "parent" if book.has_account(&entry.name) => parent.clone_from(&entry.name),
            "parent" => {
                return Err(Failure::new(format!(
                    " line({}) You need to add this parent ({}) as a child before you can add children to it.",
                    entry.number, entry.name
                )));
            }
            "account" | "project" if entry.name == ROOT => {}
            "account" | "project" => plan_account(&entry.name, &parent, &said, book, loading),
            "user" => plan_user(&entry.name, &parent, &said, book, loading),
            _ => {
                return Err(Failure::new(format!(
                    " error: Misformatted line({}): '{}' is not a column; Cluster, Parent, Account and User are",
                    entry.number, entry.title
                )));
            }
        }
    }
    Ok(())
}

/// The settings as they are after an edit.
fn with(terms: &AssociationTerms, ask: &TermsAsk) -> AssociationTerms {
    let mut terms = terms.clone();
    if let Some(shares) = ask.shares {
        terms.shares = shares;
    }
    if let Some(priority) = ask.priority {
        terms.priority = priority;
    }
    if let Some(default) = &ask.default_qos {
        terms.default_qos = Some(default.clone()).filter(|name| !name.is_empty());
    }
    match &ask.qos {
        Some(ListEdit { sign: None, names }) => {
            terms.qos = Some(names.clone()).filter(|list| !list.is_empty())
        }
        Some(ListEdit {
            sign: Some(sign),
            names,
        }) if terms.qos.is_none() => {
            let delta = &mut terms.qos_delta;
            let to = if *sign == '-' {
                &mut delta.less
            } else {
                &mut delta.more
            };
            let new: Vec<String> = names
                .iter()
                .filter(|name| !to.contains(name))
                .cloned()
                .collect();
            to.extend(new);
        }
        Some(ListEdit {
            sign: Some('-'),
            names,
        }) => {
            let list = terms.qos.iter_mut();
            list.for_each(|list| list.retain(|name| !names.contains(name)));
        }
        Some(ListEdit {
            sign: Some(_),
            names,
        }) => {
            let list = terms.qos.get_or_insert_default();
            let new: Vec<String> = names
                .iter()
                .filter(|name| !list.contains(name))
                .cloned()
                .collect();
            list.extend(new);
        }
        None => {}
    }
    for limit in &ask.limits {
        // They were read before.
        let _ = terms.limits.set(limit, false);
    }
    terms
}

/// Whether settings are equal, however they are written: one share is that of an association without shares.
fn same(one: &AssociationTerms, other: &AssociationTerms) -> bool {
    let usual = |terms: &AssociationTerms| {
        let mut terms = terms.clone();
        terms.shares = Some(terms.shares.unwrap_or(1));
        terms.id = 0;
        terms.qos.iter_mut().for_each(|list| list.sort_unstable());
        terms.qos_delta.more.sort_unstable();
        terms.qos_delta.less.sort_unstable();
        terms
    };
    usual(one) == usual(other)
}

/// Notes what differs between settings.
fn note_terms(
    loading: &mut Loading,
    of: (&str, &str),
    old: &AssociationTerms,
    new: &AssociationTerms,
) {
    let shares = |terms: &AssociationTerms| match terms.shares {
        Some(PARENT_SHARES) => "parent".to_owned(),
        shares => shares.unwrap_or(1).to_string(),
    };
    if shares(old) != shares(new) {
        loading.note("fairshare", of, &shares(old), &shares(new));
    }
    let (before, after) = (limit_texts(&old.limits), limit_texts(&new.limits));
    let value = |list: &[(&str, String)], name: &str| {
        let found = list.iter().find(|(own, _)| *own == name);
        found.map_or("-1".to_owned(), |(_, value)| value.clone())
    };
    for (name, new) in &after {
        let old = value(&before, name);
        if old != *new {
            loading.note(name, of, &old, new);
        }
    }
    let qos = own_raw_qos;
    if qos(old) != qos(new) {
        loading.note("QOS", of, &qos(old), &qos(new));
    }
    if old.default_qos != new.default_qos {
        let name = |terms: &AssociationTerms| terms.default_qos.clone().unwrap_or_default();
        loading.note("Default QOS", of, &name(old), &name(new));
    }
    let priority =
        |terms: &AssociationTerms| terms.priority.map_or("-1".to_owned(), |p| p.to_string());
    if priority(old) != priority(new) {
        loading.note("Priority", of, &priority(old), &priority(new));
    }
}

fn plan_cluster(said: &Said, book: &mut Book, loading: &mut Loading) {
    let mut ask = said.association.terms.clone();
    // A file says that all may have `normal` where nothing is set.
    if ask.qos
        == Some(ListEdit {
            sign: None,
            names: vec![NORMAL.to_owned()],
        })
        && book.all.root.qos.is_none()
    {
        ask.qos = None;
    }
    let new = with(&book.all.root, &ask);
    let had = &book.all.classification;
    let class = said.classification.clone();
    let class = class.filter(|class| loading.is_new || class != had);
    let same_terms = same(&book.all.root, &new);
    if same_terms && class.is_none() {
        return;
    }
    let of = ("Cluster", book.cluster.as_str());
    match &class {
        Some(class) if loading.is_new => {
            let _ = writeln!(loading.changed, "Classification: {class}");
        }
        Some(class) => loading.note("Classification", of, had, class),
        None => {}
    }
    if !loading.is_new {
        note_terms(loading, of, &book.all.root, &new);
    }
    book.all.classification = class.clone().unwrap_or_else(|| had.clone());
    let ask = ClusterAsk {
        classification: class,
        terms: ask,
    };
    let names = [book.cluster.clone()];
    loading.edits.push(Invocation::edit_of(
        &names,
        AccountsAsk::ModifyClusters(ask),
    ));
    if loading.is_new {
        loading.cluster.push(new.clone());
    }
    book.all.root = new;
}

fn plan_account(name: &str, parent: &str, said: &Said, book: &mut Book, loading: &mut Loading) {
    let names = [name.to_owned()];
    let ask = &said.association.terms;
    let Some(old) = book.all.accounts.get(name).cloned() else {
        let account = Account {
            name: name.to_owned(),
            parent: parent.to_owned(),
            description: said.description.clone().unwrap_or_else(|| name.to_owned()),
            organization: said.organization.clone().unwrap_or_else(|| match parent {
                ROOT => name.to_owned(),
                parent => parent.to_owned(),
            }),
            terms: with(&AssociationTerms::default(), ask),
        };
        let texts = (account.description.clone(), account.organization.clone());
        loading.accounts.push((name.to_owned(), texts.0, texts.1));
        let row = (name.to_owned(), parent.to_owned(), account.terms.clone());
        loading.account_associations.push(row);
        let ask = AccountsAsk::AddAccounts {
            parent: parent.to_owned(),
            description: account.description.clone(),
            organization: account.organization.clone(),
            terms: ask.clone(),
        };
        loading.edits.push(Invocation::edit_of(&names, ask));
        book.all.accounts.insert(name.to_owned(), account);
        return;
    };
    let mut new = old.clone();
    new.terms = with(&old.terms, ask);
    parent.clone_into(&mut new.parent);
    new.description = said.description.clone().unwrap_or(new.description);
    new.organization = said.organization.clone().unwrap_or(new.organization);
    let same_terms = same(&old.terms, &new.terms);
    let of = ("Account", name);
    let mut asked = [String::new(), String::new(), String::new()];
    let texts = [
        ("parent", &old.parent, &new.parent),
        ("description", &old.description, &new.description),
        ("organization", &old.organization, &new.organization),
    ];
    for (at, (what, old, new)) in texts.into_iter().enumerate() {
        let usual = |text: &str| {
            if text.is_empty() {
                ROOT.to_owned()
            } else {
                text.to_owned()
            }
        };
        if usual(old) != usual(new) {
            loading.note(what, of, old, new);
            asked[at].clone_from(new);
        }
    }
    if same_terms && asked.iter().all(String::is_empty) {
        return;
    }
    if !same_terms {
        note_terms(loading, of, &old.terms, &new.terms);
    }
    let [parent, description, organization] = asked;
    let ask = AccountsAsk::ModifyAccounts {
        parent,
        description,
        organization,
        terms: match same_terms {
            true => TermsAsk::default(),
            false => ask.clone(),
        },
    };
    loading.edits.push(Invocation::edit_of(&names, ask));
    book.all.accounts.insert(name.to_owned(), new);
}

fn plan_user(name: &str, account: &str, said: &Said, book: &mut Book, loading: &mut Loading) {
    let names = [name.to_owned()];
    let known = book.all.users.get(name).cloned();
    let partitions: Vec<String> = said.partition.as_deref().map(list).unwrap_or_default();
    let ask = &said.association.terms;
    let mut user = known.clone().unwrap_or_else(|| User {
        name: name.to_owned(),
        admin_level: "None".to_owned(),
        ..User::default()
    });
    let planned = plan_associations(account, &partitions, ask, &mut user, loading);
    let is_new = known.is_none() || planned.is_added;
    let record = plan_record(said, &known, &mut user, loading);
    let default_account = match known.is_some() && !record.default_account {
        true => String::new(),
        false => said.default_account.clone(),
    };
    let kept = loading.levels.get(name).filter(|_| known.is_none());
    let admin_level = match (record.admin_level, kept) {
        (true, _) => user.admin_level.clone(),
        (false, Some(kept)) => kept.clone(),
        (false, None) => String::new(),
    };
    if known.is_none() {
        loading.users.push((
            name.to_owned(),
            said.default_account.clone(),
            user.default_wckey.clone(),
            match said.admin_level.is_empty() {
                true => "Not Set".to_owned(),
                false => user.admin_level.clone(),
            },
        ));
    }
    let wckeys = record.wckeys;
    let terms = ask.clone();
    if is_new {
        // Its default account may be one that a later line adds it to.
        let known_default = default_account == account || user.is_in(&default_account);
        let ask = AccountsAsk::AddUsers {
            accounts: vec![account.to_owned()],
            default_account: if known_default {
                default_account.clone()
            } else {
                String::new()
            },
            admin_level,
            terms,
            wckeys,
            partitions,
        };
        loading.edits.push(Invocation::edit_of(&names, ask));
        if !known_default && !default_account.is_empty() {
            let ask = modified(
                Vec::new(),
                default_account,
                String::new(),
                TermsAsk::default(),
            );
            loading.last.insert(0, Invocation::edit_of(&names, ask));
        }
    } else if planned.is_changed || record.any {
        let terms = if planned.is_changed {
            terms
        } else {
            TermsAsk::default()
        };
        let ask = AccountsAsk::ModifyUsers {
            accounts: vec![account.to_owned()],
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        };
        loading.edits.push(Invocation::edit_of(&names, ask));
    }
    plan_coordinator(said, &mut user, loading);
    if is_new && user.default_account.is_empty() {
        account.clone_into(&mut user.default_account);
    }
    book.all.users.insert(name.to_owned(), user);
}

/// Changes of a user's associations by a line.
#[derive(Default)]
struct PlannedAssociations {
    is_added: bool,
    is_changed: bool,
}

/// Adds and changes associations of a user with an account, in these partitions or without one.
fn plan_associations(
    account: &str,
    partitions: &[String],
    ask: &TermsAsk,
    user: &mut User,
    loading: &mut Loading,
) -> PlannedAssociations {
    let name = user.name.clone();
    let mut planned = PlannedAssociations::default();
    let parts: Vec<String> = match partitions.is_empty() {
        true => vec![String::new()],
        false => partitions.to_vec(),
    };
    for part in &parts {
        let own = match part.as_str() {
            "" => user.accounts.get(account).cloned(),
            part => user
                .partitions
                .get(account)
                .and_then(|parts| parts.get(part))
                .cloned(),
        };
        let new = with(&own.clone().unwrap_or_default(), ask);
        match &own {
            Some(old) if same(old, &new) => continue,
            Some(old) => {
                note_terms(loading, ("User", name.as_str()), old, &new);
                planned.is_changed = true;
            }
            None => {
                let row = (name.clone(), account.to_owned(), new.clone());
                loading.user_associations.push(row);
                planned.is_added = true;
            }
        }
        match part.as_str() {
            "" => drop(user.accounts.insert(account.to_owned(), new)),
            part => {
                let parts = user.partitions.entry(account.to_owned()).or_default();
                parts.insert(part.to_owned(), new);
            }
        }
    }
    planned
}

/// Makes a user coordinator of the accounts that its line names.
fn plan_coordinator(said: &Said, user: &mut User, loading: &mut Loading) {
    let more: Vec<String> = said
        .coordinates
        .iter()
        .filter(|name| !user.coordinates.contains(name))
        .cloned()
        .collect();
    if !more.is_empty() {
        let all = more.join(",");
        let _ = writeln!(
            loading.changed,
            " Making User '{}' coordinator for account(s) {all}",
            user.name
        );
        user.coordinates.extend(more.clone());
        let ask = AccountsAsk::AddCoordinators { accounts: more };
        loading
            .last
            .push(Invocation::edit_of(std::slice::from_ref(&user.name), ask));
    }
}

fn modified(
    accounts: Vec<String>,
    default_account: String,
    admin_level: String,
    terms: TermsAsk,
) -> AccountsAsk {
    AccountsAsk::ModifyUsers {
        accounts,
        default_account,
        admin_level,
        terms,
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    }
}

/// Changes of a user's record by a line.
#[derive(Default)]
struct UserEdit {
    any: bool,
    default_account: bool,
    admin_level: bool,
    wckeys: WckeysAsk,
}

fn plan_record(
    said: &Said,
    known: &Option<User>,
    user: &mut User,
    loading: &mut Loading,
) -> UserEdit {
    let mut record = UserEdit::default();
    let name = user.name.clone();
    let of = ("User", name.as_str());
    let was = known.is_some();
    if !said.default_account.is_empty() && said.default_account != user.default_account {
        if was {
            loading.note(
                "Default Account",
                of,
                &user.default_account,
                &said.default_account,
            );
        }
        user.default_account.clone_from(&said.default_account);
        (record.any, record.default_account) = (true, true);
    }
    let level = said.admin_level.as_str();
    if !level.is_empty() && !user.admin_level.eq_ignore_ascii_case(level) {
        if was {
            loading.note("Admin Level", of, &user.admin_level, level);
        }
        level.clone_into(&mut user.admin_level);
        (record.any, record.admin_level) = (true, true);
    }
    if let Some(key) = said
        .default_wckey
        .as_ref()
        .filter(|key| **key != user.default_wckey)
    {
        if was {
            loading.note("Default WCKey", of, &user.default_wckey, key);
        }
        user.default_wckey.clone_from(key);
        record.wckeys.default = Some(key.clone());
        record.any = true;
    }
    let new: Vec<String> = said
        .wckeys
        .iter()
        .filter(|key| !user.wckeys.contains(key))
        .cloned()
        .collect();
    if !new.is_empty() {
        let quoted: Vec<String> = new.iter().map(|key| format!("'{key}'")).collect();
        let _ = writeln!(
            loading.changed,
            " Adding WCKey(s) {} for user '{}'",
            quoted.join(", "),
            user.name
        );
        user.wckeys.extend(new.clone());
        record.wckeys.keys = Some(ListEdit {
            sign: Some('+'),
            names: new,
        });
        record.any = true;
    }
    record
}
