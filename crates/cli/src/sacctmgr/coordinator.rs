//! `sacctmgr add coordinator` and `delete coordinator`: who may add users to an account and set what they may use.

use super::begins;
use super::edit::{Verb, agreed, error, list};
use crate::connect::{Client, ConnectError};
use crate::listing::{Failure, print, query};
use muster_model::accounts::{Accounts, ROOT};
use muster_model::command::{AccountsAsk, AccountsEdit, Reply, UserCommand};
use std::fmt::Write as _;

/// A parsed line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    users: Vec<String>,
    accounts: Vec<String>,
}

/// Runs the edit.
pub(super) fn edit(
    verb: Verb,
    words: &[String],
    immediate: bool,
    quiet: bool,
) -> Result<(), Failure> {
    let words = read(words)?;
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
    let mut client = Client::connect().map_err(error)?;
    let before = query::accounts(&mut client).map_err(error)?.accounts;
    check(&words, &before)?;
    let say = |text: &str| {
        if !quiet {
            print(text);
        }
    };
    say(&intended(verb, &words));
    let removed = match verb {
        Verb::Delete => removed(&words, &before),
        Verb::Add | Verb::Modify => String::new(),
    };
    if !(immediate || quiet || agreed()?) {
        print(" Changes Discarded\n");
        return Ok(());
    }
    let accounts = words.accounts.clone();
    let edit = AccountsEdit {
        names: words.users.clone(),
        ask: match verb {
            Verb::Add => AccountsAsk::AddCoordinators { accounts },
            Verb::Delete | Verb::Modify => AccountsAsk::DeleteCoordinators { accounts },
        },
    };
    match client.command(UserCommand::EditAccounts(Box::new(edit))) {
        Ok(Reply::Done { changed: 0, .. }) => {
            say(" Nothing removed\n");
            Err(Failure::silent())
        }
        Ok(_) => {
            say(&removed);
            Ok(())
        }
        Err(ConnectError::Refused(refusal)) => Err(Failure::new(match verb {
            Verb::Add => format!(" Problem adding coordinator: {refusal}"),
            Verb::Delete | Verb::Modify => format!(" Error with request: {refusal}"),
        })),
        Err(other) => Err(error(other)),
    }
}

/// Makes a user a coordinator of accounts and says whether it changed something.
pub(super) fn add(client: &mut Client, user: &str, accounts: &str) -> Result<u32, Failure> {
    let edit = AccountsEdit {
        names: vec![user.to_owned()],
        ask: AccountsAsk::AddCoordinators {
            accounts: list(accounts),
        },
    };
    match client.command(UserCommand::EditAccounts(Box::new(edit))) {
        Ok(Reply::Done { changed, .. }) => Ok(changed),
        Ok(_) => Ok(0),
        Err(ConnectError::Refused(refusal)) => Err(Failure::new(refusal.to_string())),
        Err(other) => Err(error(other)),
    }
}

/// Users by name, and `names=`, `users=` and `accounts=`.
fn read(words: &[String]) -> Result<Words, Failure> {
    let mut read = Words::default();
    for word in words {
        if word.eq_ignore_ascii_case("where") || word.eq_ignore_ascii_case("set") {
            continue;
        }
        let Some((key, value)) = word.split_once('=') else {
            read.users.extend(list(word));
            continue;
        };
        let value = value.trim_matches(['"', '\'']);
        match key.strip_suffix(['s', 'S']).unwrap_or(key) {
            key if begins("account", key) || key.eq_ignore_ascii_case("acct") => {
                read.accounts.extend(list(value));
            }
            key if begins("name", key) || begins("user", key) => read.users.extend(list(value)),
            _ => {
                return Err(Failure::new(format!(
                    " Unknown condition: {word}\n Use keyword 'where' to modify condition"
                )));
            }
        }
    }
    Ok(read)
}

fn check(words: &Words, all: &Accounts) -> Result<(), Failure> {
    let is_account = |name: &&String| *name == ROOT || all.accounts.contains_key(*name);
    if let Some(name) = words.accounts.iter().find(|name| !is_account(name)) {
        return Err(Failure::new(format!(
            " You specified a non-existent account '{name}'."
        )));
    }
    let known = |name: &&String| all.users.contains_key(*name);
    match words.users.iter().find(|name| !known(name)) {
        Some(name) => Err(Failure::new(format!(
            " You specified a non-existent user '{name}'."
        ))),
        None => Ok(()),
    }
}

/// The text before the change, as scripts parse it.
fn intended(verb: Verb, words: &Words) -> String {
    let lines = |names: &[String]| {
        let lines = names.iter().map(|name| format!("  {name}\n"));
        lines.collect::<String>()
    };
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

/// Who was a coordinator of what, of those who are one no more.
fn removed(words: &Words, before: &Accounts) -> String {
    let mut out = String::from(" Removed Coordinators (sub accounts not listed)...\n");
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    for user in before
        .users
        .values()
        .filter(|u| named(&words.users, &u.name))
    {
        let gone = user.coordinates.iter();
        for account in gone.filter(|account| named(&words.accounts, account)) {
            let _ = writeln!(out, "  U = {:<9} A = {account:<10}", user.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        read(&words).unwrap()
    }

    /// Captured from Slurm 22.05.
    #[test]
    fn output_is_slurms() {
        let add = words("ben account=chem,acme");
        assert_eq!(add, words("Accounts=chem,acme names=ben"));
        assert_eq!(
            intended(Verb::Add, &add),
            " Adding Coordinator User(s)\n  ben\n To Account(s) and all sub-accounts\n  chem\n  acme\n"
        );
        let delete = words("names=ben");
        assert_eq!(
            intended(Verb::Delete, &delete),
            " Removing Coordinators with user name\n  ben\n From all accounts\n"
        );
        let mut all = Accounts::default();
        let ben = muster_model::accounts::User {
            name: "ben".into(),
            coordinates: vec!["acme".into(), "chem".into()],
            ..Default::default()
        };
        all.users.insert("ben".into(), ben);
        all.accounts.insert("chem".into(), Default::default());
        assert_eq!(
            removed(&words("where ben account=chem"), &all),
            " Removed Coordinators (sub accounts not listed)...\n  U = ben       A = chem      \n"
        );
        let error = |line: &str| check(&words(line), &all).unwrap_err().to_string();
        assert_eq!(
            error("account=nosuch names=ben"),
            " You specified a non-existent account 'nosuch'."
        );
        assert_eq!(
            error("account=chem names=nosuch"),
            " You specified a non-existent user 'nosuch'."
        );
    }
}
