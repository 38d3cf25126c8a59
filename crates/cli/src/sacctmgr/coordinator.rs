//! `sacctmgr add coordinator` and `delete coordinator`: who may add users to an account and set what they may use.

use super::begins;
use super::book::Book;
use super::edit::lines;
use super::session::{Invocation, Verb, refused};
use super::words::Word;
use crate::listing::Failure;
use muster_model::command::AccountsAsk;
use std::fmt::Write as _;

/// A parsed line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
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
    check(&words, &book)?;
    let accounts = words.accounts.clone();
    let text = intended(verb, &words);
    if verb == Verb::Add {
        let ask = AccountsAsk::AddCoordinators { accounts };
        return session.add(
            &text,
            "coordinator",
            vec![Invocation::edit_of(&words.users, ask)],
        );
    }
    session.console.say(&text);
    let removed = removed(&words, &book);
    if !session.immediate && !removed.is_empty() {
        session.console.say(&removed);
        if !session.commits() {
            return Ok(());
        }
    }
    let ask = AccountsAsk::DeleteCoordinators { accounts };
    let edit = Invocation::edit_of(&words.users, ask);
    if session.ledger.edit(edit).map_err(refused)? == 0 {
        session.console.say(" Nothing removed\n");
        return Err(Failure::silent());
    }
    if session.immediate {
        session.console.say(&removed);
    }
    Ok(())
}

/// Users by name, and `names=`, `users=` and `accounts=`.
fn read(words: &[String], book: &Book) -> Result<Words, Failure> {
    let mut read = Words::default();
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

fn check(words: &Words, book: &Book) -> Result<(), Failure> {
    if let Some(name) = words.accounts.iter().find(|name| !book.has_account(name)) {
        return Err(Failure::new(format!(
            " You specified a non-existent account '{name}'."
        )));
    }
    match words
        .users
        .iter()
        .find(|name| !book.all.users.contains_key(*name))
    {
        Some(name) => Err(Failure::new(format!(
            " You specified a non-existent user '{name}'."
        ))),
        None => Ok(()),
    }
}

/// The text before the change, as scripts parse it.
fn intended(verb: Verb, words: &Words) -> String {
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

/// Who was a coordinator of what, of those who are one no more; empty if nobody was.
fn removed(words: &Words, book: &Book) -> String {
    let mut out = String::new();
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    for user in book
        .all
        .users
        .values()
        .filter(|u| named(&words.users, &u.name))
    {
        let gone = user.coordinates.iter();
        for account in gone.filter(|account| named(&words.accounts, account)) {
            let _ = writeln!(out, "  U = {:<9} A = {account:<10}", user.name);
        }
    }
    match out.is_empty() {
        true => out,
        false => format!(" Removed Coordinators (sub accounts not listed)...\n{out}"),
    }
}
