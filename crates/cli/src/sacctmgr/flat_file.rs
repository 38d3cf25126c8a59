//! `sacctmgr dump` and `load`: accounts and users with what their associations set, as lines of a file that Slurm
//! writes and reads, too. QOS are in neither's file.

use super::edit::{self, Entity, Verb};
use crate::connect::Client;
use crate::listing::{Failure, print, query};
use muster_model::account_limits::{Amounts, Limits};
use muster_model::accounts::{Accounts, PARENT_SHARES, ROOT, Terms, User};
use std::fmt::Write as _;

const HEAD: &str = "\
# Accounts and users of a cluster, for 'sacctmgr load'. A line is a title, a dash, a name, and options after colons:
#   Cluster - 'name'
#   Parent - 'account'                        the lines that follow are below this account, which a line above made
#   Account - 'name':Description='...':Organization='...':Fairshare=1:MaxJobs=4:MaxTRESPerJob=node=5
#   User - 'name':DefaultAccount='account':AdminLevel='None':Fairshare=1:MaxWallDurationPerJob=60
# The account root is there without a line of its own.
";

fn error(text: impl std::fmt::Display) -> Failure {
    Failure::new(format!("sacctmgr: error: {text}"))
}

/// `file=NAME` or a bare name, and the other words.
fn file_of(words: &[String]) -> (Option<String>, Vec<&String>) {
    let named = |word: &&String| {
        let (key, _) = word.split_once('=').unwrap_or(("", ""));
        super::begins("file", key)
    };
    let file = words
        .iter()
        .find(named)
        .and_then(|word| word.split_once('='));
    let rest = words.iter().filter(|word| !named(word)).collect();
    (
        file.map(|(_, value)| value.trim_matches(['"', '\'']).to_owned()),
        rest,
    )
}

/// Writes the file.
pub(super) fn dump(words: &[String]) -> Result<(), Failure> {
    let (file, rest) = file_of(words);
    let cluster = rest
        .first()
        .map(|word| word.split_once('=').map_or(word.as_str(), |(_, v)| v));
    let Some(cluster) = cluster else {
        return Err(Failure::new(" We need a cluster to dump."));
    };
    let mut client = Client::connect().map_err(error)?;
    let answer = query::accounts(&mut client).map_err(error)?;
    if cluster != answer.cluster {
        return Err(Failure::new(format!(" Cluster {cluster} doesn't exist.")));
    }
    let path = file.unwrap_or_else(|| {
        let path = format!("./{cluster}.cfg");
        print(&format!(" No filename given, using {path}.\n"));
        path
    });
    let text = written(&answer.cluster, &answer.accounts);
    std::fs::write(&path, format!("{HEAD}{text}")).map_err(|e| error(format!("{path}: {e}")))?;
    for line in text.lines() {
        crate::listing::complain(&format!("sacctmgr: {line}"));
    }
    Ok(())
}

fn written(cluster: &str, all: &Accounts) -> String {
    let mut out = format!("Cluster - '{cluster}':Fairshare=1:QOS='normal'\n");
    let mut waiting = vec![ROOT.to_owned()];
    while let Some(parent) = waiting.pop() {
        let users = all
            .users
            .values()
            .filter_map(|u| Some((u, u.accounts.get(&parent)?)));
        let users: Vec<(&User, &Terms)> = users.collect();
        let below: Vec<_> = all
            .accounts
            .values()
            .filter(|a| a.parent == parent)
            .collect();
        if users.is_empty() && below.is_empty() && parent != ROOT {
            continue;
        }
        let _ = writeln!(out, "Parent - '{parent}'");
        for (user, terms) in users {
            let _ = write!(
                out,
                "User - '{}':DefaultAccount='{}'",
                user.name, user.default_account
            );
            let level = super::level(&user.name, &user.admin_level);
            if level != "None" && !level.is_empty() {
                let _ = write!(out, ":AdminLevel='{level}'");
            }
            if !user.default_wckey.is_empty() {
                let _ = write!(out, ":DefaultWCKey='{}'", user.default_wckey);
            }
            if !user.coordinates.is_empty() {
                let _ = write!(out, ":Coordinator='{}'", user.coordinates.join(","));
            }
            if !user.wckeys.is_empty() {
                let _ = write!(out, ":WCKeys='{}'", user.wckeys.join(","));
            }
            terms_text(&mut out, terms);
        }
        for account in &below {
            let _ = write!(
                out,
                "Account - '{}':Description='{}':Organization='{}'",
                account.name, account.description, account.organization
            );
            terms_text(&mut out, &account.terms);
        }
        // A file is read from the top: each account before those below it.
        waiting.extend(below.iter().rev().map(|account| account.name.clone()));
    }
    out
}

/// Whether it is the option that names the accounts that a user coordinates.
fn is_coordinator(option: &str) -> bool {
    let key = option.split_once('=').map_or("", |(key, _)| key);
    key.len() > 1 && super::begins("coordinators", key)
}

fn terms_text(out: &mut String, terms: &Terms) {
    let shares = match terms.shares {
        Some(PARENT_SHARES) => "parent".to_owned(),
        shares => shares.unwrap_or(1).to_string(),
    };
    let _ = write!(out, ":Fairshare={shares}");
    let Limits {
        grp_jobs,
        grp_submit,
        grp_tres,
        max_jobs,
        max_submit,
        max_tres,
        max_wall_min,
        grp_wall_min,
        grp_tres_mins,
        grp_tres_run_mins,
        max_tres_mins,
        max_tres_node,
        // Of a QOS alone.
        max_tres_user: _,
        max_jobs_account: _,
        max_submit_account: _,
        max_tres_account: _,
        min_tres: _,
        min_priority: _,
        max_jobs_accrue_account: _,
        max_tres_run_mins_user: _,
        max_tres_run_mins_account: _,
        grp_jobs_accrue,
        max_jobs_accrue,
    } = &terms.limits;
    let numbers = [
        ("Priority", &terms.priority),
        ("GrpJobs", grp_jobs),
        ("GrpSubmitJobs", grp_submit),
        ("GrpJobsAccrue", grp_jobs_accrue),
        ("MaxJobs", max_jobs),
        ("MaxJobsAccrue", max_jobs_accrue),
        ("MaxSubmitJobs", max_submit),
        ("MaxWallDurationPerJob", max_wall_min),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            let _ = write!(out, ":{name}={number}");
        }
    }
    if let Some(minutes) = grp_wall_min {
        let _ = write!(out, ":GrpWall={minutes}");
    }
    let amounts = [
        ("GrpTRES", grp_tres),
        ("GrpTRESMins", grp_tres_mins),
        ("GrpTRESRunMins", grp_tres_run_mins),
        ("MaxTRESPerJob", max_tres),
        ("MaxTRESPerNode", max_tres_node),
        ("MaxTRESMinsPerJob", max_tres_mins),
    ];
    for (name, amounts) in amounts {
        if !amounts.is_empty() {
            let _ = write!(out, ":{name}={}", amounts_text(amounts));
        }
    }
    if let Some(qos) = &terms.qos {
        let _ = write!(out, ":QOS='{}'", qos.join(","));
    }
    if let Some(qos) = &terms.default_qos {
        let _ = write!(out, ":DefaultQOS='{qos}'");
    }
    out.push('\n');
}

fn amounts_text(amounts: &Amounts) -> String {
    let words = amounts
        .iter()
        .map(|(name, count)| format!("{name}={count}"));
    words.collect::<Vec<_>>().join(",")
}

/// A line of the file.
#[derive(Debug, PartialEq)]
struct Entry {
    title: String,
    name: String,
    options: Vec<String>,
}

impl Entry {
    /// Reads a line; nothing for comments and empty ones.
    fn read(line: &str) -> Result<Option<Entry>, String> {
        let line = line.split_once('#').map_or(line, |(line, _)| line).trim();
        if line.is_empty() {
            return Ok(None);
        }
        let (title, rest) = line.split_once('-').ok_or("expected 'Title - name'")?;
        let mut parts = split(rest.trim());
        let name = parts.remove(0);
        if name.is_empty() {
            return Err("there is no name".to_owned());
        }
        Ok(Some(Entry {
            title: title.trim().to_ascii_lowercase(),
            name,
            options: parts,
        }))
    }
}

/// Parts between colons; quotes keep colons in and are taken off.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ':') => parts.push(String::new()),
            (_, c) => parts
                .last_mut()
                .expect("there is one from the start")
                .push(c),
        }
    }
    parts
}

/// Adds what a file says; with `clean`, to nothing.
pub(super) fn load(words: &[String], immediate: bool) -> Result<(), Failure> {
    let (file, rest) = file_of(words);
    let clean = rest.iter().any(|w| w.eq_ignore_ascii_case("clean"));
    let bare = rest
        .iter()
        .find(|w| !w.contains('=') && !w.eq_ignore_ascii_case("clean"));
    let Some(path) = file.or_else(|| bare.map(|w| (*w).clone())) else {
        return Err(Failure::new(" No filename given, specify one with file=''"));
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Failure::new(format!(" Unable to read \"{path}\": {e}")))?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let read =
            Entry::read(line).map_err(|why| error(format!("{path}, line {number}: {why}")))?;
        entries.extend(read.map(|entry| (number, entry)));
    }
    let mut client = Client::connect().map_err(error)?;
    let answer = query::accounts(&mut client).map_err(error)?;
    let other = rest
        .iter()
        .find_map(|w| w.split_once('='))
        .filter(|(key, _)| super::begins("cluster", key));
    for (number, entry) in entries.iter().filter(|(_, e)| e.title == "cluster") {
        let name = other.map_or(entry.name.as_str(), |(_, name)| name);
        if name != answer.cluster {
            return Err(error(format!(
                "{path}, line {number}: this is cluster '{}', not '{name}'; say cluster={} to load it all the same",
                answer.cluster, answer.cluster
            )));
        }
    }
    if !immediate {
        print(&format!(
            " {} lines of {path} will be loaded.\n",
            entries.len()
        ));
        if !edit::agreed()? {
            print(" Changes Discarded\n");
            return Ok(());
        }
    }
    let mut known = answer.accounts;
    if clean {
        remove_all(&mut client, &known)?;
        known = Accounts::default();
    }
    let (mut parent, mut done) = (ROOT.to_owned(), 0);
    let mut coordinators = Vec::new();
    for (number, entry) in &entries {
        let at = |failure: Failure| error(format!("{path}, line {number}: {failure}"));
        match entry.title.as_str() {
            "cluster" => {
                let usual = |o: &&String| !["Fairshare=1", "QOS=normal"].contains(&o.as_str());
                for option in entry.options.iter().filter(usual) {
                    crate::listing::complain(&format!(
                        "sacctmgr: warning: {path}, line {number}: {option} has no effect: the cluster sets nothing for all of its accounts"
                    ));
                }
            }
            "parent" => parent.clone_from(&entry.name),
            "account" if entry.name == ROOT => {}
            "account" => {
                let words = with(entry, [format!("parent={parent}")]);
                let verb = verb(known.accounts.contains_key(&entry.name));
                done += edit::send(&mut client, verb, Entity::Account, &words).map_err(at)?;
            }
            "user" => {
                let has = known
                    .users
                    .get(&entry.name)
                    .is_some_and(|u| u.accounts.contains_key(&parent));
                let mut words = with(entry, [format!("account={parent}")]);
                let accounts = words.extract_if(.., |word| is_coordinator(word));
                // All accounts are there at the end.
                coordinators.extend(accounts.map(|list| (*number, entry.name.clone(), list)));
                done += edit::send(&mut client, verb(has), Entity::User, &words).map_err(at)?;
            }
            other => {
                return Err(error(format!(
                    "{path}, line {number}: '{other}' is no title; Cluster, Parent, Account and User are"
                )));
            }
        }
    }
    for (number, user, list) in coordinators {
        let at = |failure: Failure| error(format!("{path}, line {number}: {failure}"));
        let (_, accounts) = list.split_once('=').unwrap_or_default();
        done += super::coordinator::add(&mut client, &user, accounts).map_err(at)?;
    }
    match done {
        0 => print(" Nothing new added.\n"),
        count => print(&format!(" {count} changes were made.\n")),
    }
    Ok(())
}

fn verb(exists: bool) -> Verb {
    if exists { Verb::Modify } else { Verb::Add }
}

/// The words of an edit that makes an entry true.
fn with<const N: usize>(entry: &Entry, conditions: [String; N]) -> Vec<String> {
    let name = [format!("name={}", entry.name)];
    let of_user = entry.title == "user";
    let (before, after): (Vec<String>, Vec<String>) = match of_user {
        true => (conditions.into(), Vec::new()),
        false => (Vec::new(), conditions.into()),
    };
    let set = ["set".to_owned()];
    let options = entry.options.iter().filter(|o| !o.is_empty()).cloned();
    name.into_iter()
        .chain(before)
        .chain(set)
        .chain(after)
        .chain(options)
        .collect()
}

fn remove_all(client: &mut Client, all: &Accounts) -> Result<(), Failure> {
    for user in all.users.keys() {
        edit::send(
            client,
            Verb::Delete,
            Entity::User,
            &[format!("name={user}")],
        )?;
    }
    // From the leaves up.
    let depth = |name: &String| {
        all.shares
            .iter()
            .find(|s| s.account == *name)
            .map_or(0, |s| s.depth)
    };
    let mut names: Vec<&String> = all.accounts.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(depth(name)));
    for account in names {
        edit::send(
            client,
            Verb::Delete,
            Entity::Account,
            &[format!("name={account}")],
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::accounts::Account;

    #[test]
    fn lines_as_slurm_writes_them() {
        let mut all = Accounts::default();
        let limits = Limits {
            max_jobs: Some(4),
            max_tres: vec![("node".to_owned(), 5)],
            ..Limits::default()
        };
        let terms = Terms {
            shares: Some(399),
            limits,
            ..Terms::default()
        };
        for (name, parent, terms) in [("cs", ROOT, terms), ("test", "cs", Terms::default())] {
            let account = Account {
                name: name.into(),
                parent: parent.into(),
                description: format!("{name} people"),
                organization: "lc".into(),
                terms,
            };
            all.accounts.insert(name.into(), account);
        }
        let user = User {
            name: "u".into(),
            default_account: "test".into(),
            admin_level: "Operator".into(),
            coordinates: vec!["test".into()],
            accounts: [("test".to_owned(), Terms::default())].into(),
            wckeys: vec!["k".into(), "l".into()],
            default_wckey: "k".into(),
        };
        all.users.insert("u".into(), user);
        assert_eq!(
            written("peer", &all),
            "Cluster - 'peer':Fairshare=1:QOS='normal'\n\
             Parent - 'root'\n\
             Account - 'cs':Description='cs people':Organization='lc':Fairshare=399:MaxJobs=4:MaxTRESPerJob=node=5\n\
             Parent - 'cs'\n\
             Account - 'test':Description='test people':Organization='lc':Fairshare=1\n\
             Parent - 'test'\n\
             User - 'u':DefaultAccount='test':AdminLevel='Operator':DefaultWCKey='k':Coordinator='test':WCKeys='k,l':Fairshare=1\n"
        );
    }

    #[test]
    fn lines_are_read() {
        let line = "Account - 'a b':Description='x: y':MaxTRESPerJob=node=5:MaxJobs=4 # more";
        let entry = Entry::read(line).unwrap().unwrap();
        assert_eq!(
            (entry.title.as_str(), entry.name.as_str()),
            ("account", "a b")
        );
        assert_eq!(
            entry.options,
            ["Description=x: y", "MaxTRESPerJob=node=5", "MaxJobs=4"]
        );
        assert_eq!(
            with(&entry, ["parent=p".to_owned()])[..4],
            ["name=a b", "set", "parent=p", "Description=x: y"]
        );
        assert_eq!(Entry::read("  # only this"), Ok(None));
        assert!(Entry::read("Account").is_err());
        assert!(Entry::read("Account - ").is_err());
    }
}
