//! `sacctmgr add coordinator` and `delete coordinator`: users who may add users to an account and set their limits.

use super::begins;
use super::book::Book;
use super::edit::lines;
use super::session::{Invocation, Verb, refused};
use super::words::Word;
use crate::listing::Failure;
use muster_model::command::{AccountsAsk, AccountsEdit};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A parsed line.
#[derive(Debug, Default, PartialEq, Eq)]
struct CoordinatorLine {
    users: Vec<String>,
    accounts: Vec<String>,
}

/// Runs the edit.
pub(super) fn edit(
    session: &mut Invocation<'_>,
    verb: Verb,
    words: &[String],
) -> Result<(), Failure> {
    let book = session.book()?;
    let words = read(words, &book)?;
    let needed = match verb {
        Verb::Add if words.users.is_empty() && words.accounts.is_empty() => {
            " You need to specify conditions to to add the coordinator."
        }
        Verb::Add if words.users.is_empty() => " You need to specify a user list here.",
        Verb::Add if words.accounts.is_empty() => " You need to specify an account list here.",
        Verb::Delete if words.users.is_empty() && words.accounts.is_empty() => {
            " You need to specify a user list or account list here."
        }
        Verb::Add | Verb::Delete | Verb::Modify => "",
    };
    if !needed.is_empty() {
        return Err(Failure::new(needed));
    }
    let books = session.books(None)?;
    check(&words, &books)?;
    let text = intended(verb, &words);
    let edits: Vec<AccountsEdit> = books
        .iter()
        .filter_map(|book| edit_in(verb, book, &words))
        .collect();
    if verb == Verb::Add {
        return session.add(&text, "coordinator", edits);
    }
    session.console.say(&text);
    let removed = removed(&words, &books);
    if !session.immediate && !removed.is_empty() {
        session.console.say(&removed);
        if !session.commits() {
            return Ok(());
        }
    }
    let mut changed = 0;
    for edit in edits {
        changed += session.ledger.edit(edit).map_err(refused)?;
    }
    if changed == 0 {
        session.console.say(" Nothing removed\n");
        return Err(Failure::silent());
    }
    if session.immediate {
        session.console.say(&removed);
    }
    Ok(())
}

/// The edit of one cluster's records: of those of the users and accounts that it has. Nothing if it lacks all of them.
fn edit_in(verb: Verb, book: &Book, words: &CoordinatorLine) -> Option<AccountsEdit> {
    let known = |name: &&String| book.all.users.contains_key(*name);
    let users: Vec<String> = words.users.iter().filter(known).cloned().collect();
    let named = words.accounts.iter();
    let accounts: Vec<String> = named
        .filter(|name| book.has_account(name))
        .cloned()
        .collect();
    let lacks = users.is_empty() && !words.users.is_empty()
        || accounts.is_empty() && !words.accounts.is_empty();
    if lacks {
        return None;
    }
    let ask = match verb {
        Verb::Add => AccountsAsk::AddCoordinators { accounts },
        Verb::Delete | Verb::Modify => AccountsAsk::DeleteCoordinators { accounts },
    };
    Some(Invocation::edit_in(book, &users, ask))
}

/// Users by name, and `names=`, `users=` and `accounts=`.
fn read(words: &[String], book: &Book) -> Result<CoordinatorLine, Failure> {
    let mut read = CoordinatorLine::default();
    for text in words {
        if ["where", "set", "and"]
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word))
        {
            continue;
        }
        let word = Word::new(text);
        let users = || word.list().into_iter().map(|name| book.all.user_key(&name));
        match word.key.as_deref() {
            None => read.users.extend(users()),
            Some(key) if begins("accounts", key) || begins("accts", key) => {
                let names = word.list().into_iter();
                read.accounts
                    .extend(names.map(|name| book.all.account_key(&name)));
            }
            Some(key) if begins("names", key) || begins("users", key) => read.users.extend(users()),
            Some(_) => {
                return Err(Failure::new(format!(
                    " Unknown condition: {text}\n Use keyword 'where' to modify condition"
                )));
            }
        }
    }
    Ok(read)
}

fn check(words: &CoordinatorLine, books: &[Book]) -> Result<(), Failure> {
    let has_account = |name: &str| books.iter().any(|book| book.has_account(name));
    let has_user = |name: &str| books.iter().any(|book| book.all.users.contains_key(name));
    if let Some(name) = words.accounts.iter().find(|name| !has_account(name)) {
        return Err(Failure::new(format!(
            " You specified a non-existent account '{name}'."
        )));
    }
    match words.users.iter().find(|name| !has_user(name)) {
        Some(name) => Err(Failure::new(format!(
            " You specified a non-existent user '{name}'."
        ))),
        None => Ok(()),
    }
}

/// The text before the change, as scripts parse it.
fn intended(verb: Verb, words: &CoordinatorLine) -> String {
    let (users, accounts) = (lines(&words.users), lines(&words.accounts));
    match verb {
        Verb::Add => format!(
            " Adding Coordinator User(s)\n{users} To Account(s) and all sub-accounts\n{accounts}"
        ),
        Verb::Delete | Verb::Modify => {
            let mut out = match words.users.is_empty() {
                true => String::from(" Removing Coordinators\n"),
                false => format!(" Removing Coordinators with user name\n{users}"),
            };
            match words.accounts.is_empty() {
                true => out.push_str(" From all accounts\n"),
                false => out += &format!(" From Account(s)\n{accounts}"),
            }
            out
        }
    }
}

/// Listing of removed coordinators and their accounts; empty if there are none.
fn removed(words: &CoordinatorLine, books: &[Book]) -> String {
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    let users = books.iter().flat_map(|book| book.all.users.values());
    let mut gone: BTreeSet<(&str, &str)> = BTreeSet::new();
    for user in users.filter(|user| named(&words.users, &user.name)) {
        let all = user.coordinates.iter();
        let all = all.filter(|account| named(&words.accounts, account));
        gone.extend(all.map(|account| (user.name.as_str(), account.as_str())));
    }
    let mut out = String::new();
    for (user, account) in gone {
        let _ = writeln!(out, "  U = {user:<9} A = {account:<10}");
    }
    match out.is_empty() {
        true => out,
        false => format!(" Removed Coordinators (sub accounts not listed)...\n{out}"),
    }
}
