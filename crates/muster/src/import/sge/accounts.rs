//! Projects and users: accounts in the form that `sacctmgr load` reads.

use super::Made;
use super::dump::{Dump, Object};
use std::collections::{BTreeMap, BTreeSet};

/// The name of an account: in small letters.
pub(super) fn account(project: &str) -> String {
    project.to_lowercase()
}

/// The file of accounts, and lines of sge.conf for names that are not the account's.
pub(super) fn write(dump: &Dump, made: &mut Made) {
    made.accounts.push_str("Cluster - 'sge'\nParent - 'root'\n");
    let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for project in &dump.projects {
        let own = project.name();
        let name = account(own);
        let shares = project.get("fshare").filter(|shares| *shares != "0");
        let shares = match shares.map(str::parse::<u32>) {
            Some(Ok(shares)) => format!(":Fairshare={shares}"),
            Some(Err(_)) => {
                made.note(&format!("project {own}: fshare"), "it is no number");
                String::new()
            }
            None => String::new(),
        };
        let line = format!(
            "Account - '{name}':Description='project {own}':Organization='{name}'{shares}\n"
        );
        made.accounts.push_str(&line);
        if name != own {
            made.sge.push_str(&format!("project {own} {name}\n"));
        }
        let users = members.entry(name).or_default();
        for list in project.list("acl").0 {
            for entry in entries(dump, &list) {
                match entry.starts_with('@') {
                    true => made.note(
                        &format!("project {own}: {entry} of {list}"),
                        "accounts have users, not groups: add them by sacctmgr add user",
                    ),
                    false => drop(users.insert(entry)),
                }
            }
        }
        for key in ["xacl", "oticket"] {
            if let Some(value) = project.get(key).filter(|value| *value != "0") {
                made.note(
                    &format!("project {own}: {key} {value}"),
                    "there is nothing like it",
                );
            }
        }
    }
    for user in &dump.users {
        match user.get("default_project") {
            Some(project) => drop(
                members
                    .entry(account(project))
                    .or_default()
                    .insert(user.name().to_owned()),
            ),
            None => made.note(
                &format!("user {}", user.name()),
                "without a default project there is no account to put the user into",
            ),
        }
    }
    let default = |user: &str| {
        let own: Option<&Object> = dump.users.iter().find(|own| own.name() == user);
        own.and_then(|own| own.get("default_project")).map(account)
    };
    for (name, users) in members.iter().filter(|(_, users)| !users.is_empty()) {
        made.accounts.push_str(&format!("Parent - '{name}'\n"));
        for user in users {
            let account = default(user).unwrap_or_else(|| name.clone());
            made.accounts
                .push_str(&format!("User - '{user}':DefaultAccount='{account}'\n"));
        }
    }
}

fn entries(dump: &Dump, list: &str) -> Vec<String> {
    let set = dump.usersets.iter().find(|set| set.name() == list);
    set.map_or_else(Vec::new, |set| set.list("entries").0)
}
