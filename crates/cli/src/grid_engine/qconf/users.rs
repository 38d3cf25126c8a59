//! Managers, operators, users and lists of users: what sacctmgr keeps, as qconf shows it. A list of users is an account.

use muster_model::accounts::Accounts;
use std::fmt::Write as _;

/// The list that all users are in, and the one of those who may reserve (`arusers` of sge.conf).
const DEPARTMENT: &str = "defaultdepartment";
const RESERVATION_USERS: &str = "arusers";

/// Users of an `AdminLevel`, by name.
pub(super) fn of_level(accounts: &Accounts, level: &str) -> Vec<String> {
    let all = accounts.users.values();
    let of_level = all.filter(|user| user.admin_level.eq_ignore_ascii_case(level));
    of_level.map(|user| user.name.clone()).collect()
}

/// Names of all lists of users.
pub(super) fn lists(accounts: &Accounts) -> Vec<String> {
    let mut all: Vec<String> = accounts.accounts.keys().cloned().collect();
    all.extend([DEPARTMENT, RESERVATION_USERS].map(str::to_owned));
    all.sort();
    all.dedup();
    all
}

/// A list of users.
///
/// # Errors
/// There is none of that name.
pub(super) fn list(
    accounts: &Accounts,
    reservation_users: &[String],
    name: &str,
) -> Result<String, String> {
    let entries: Vec<String> = match name {
        DEPARTMENT => Vec::new(),
        RESERVATION_USERS => reservation_users.to_vec(),
        _ if accounts.accounts.contains_key(name) => {
            let all = accounts.users.values();
            let members = all.filter(|user| user.associations().any(|(own, ..)| own == name));
            members.map(|user| user.name.clone()).collect()
        }
        _ => return Err(format!("denied: access list \"{name}\" does not exist")),
    };
    let entries = match entries.is_empty() {
        true => "NONE".to_owned(),
        false => entries.join(","),
    };
    let kind = if name == DEPARTMENT { "DEPT" } else { "ACL" };
    let mut text = String::new();
    for (key, value) in [
        ("name", name),
        ("type", kind),
        ("fshare", "0"),
        ("oticket", "0"),
        ("entries", &entries),
    ] {
        let _ = writeln!(text, "{key:<7} {value}");
    }
    Ok(text)
}

/// A user.
///
/// # Errors
/// There is none of that name.
pub(super) fn user(accounts: &Accounts, name: &str) -> Result<String, String> {
    let found = accounts.users.get(name);
    let found = found.ok_or_else(|| format!("{name} is not known as a user"))?;
    let project = match found.default_account.as_str() {
        "" => "NONE",
        account => account,
    };
    Ok(format!(
        "name {name}\noticket 0\nfshare 0\ndelete_time 0\ndefault_project {project}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::accounts::{Account, AssociationTerms, User};

    #[test]
    fn lists_of_users_are_accounts() {
        let mut accounts = Accounts::default();
        accounts
            .accounts
            .insert("physics".to_owned(), Account::default());
        for (name, level) in [("ada", "Administrator"), ("bob", "None")] {
            let mut user = User {
                name: name.to_owned(),
                admin_level: level.to_owned(),
                default_account: "physics".to_owned(),
                ..User::default()
            };
            user.accounts
                .insert("physics".to_owned(), AssociationTerms::default());
            accounts.users.insert(name.to_owned(), user);
        }
        assert_eq!(of_level(&accounts, "administrator"), ["ada"]);
        assert_eq!(
            lists(&accounts),
            ["arusers", "defaultdepartment", "physics"]
        );
        assert_eq!(
            list(&accounts, &[], "physics").unwrap(),
            "name    physics\ntype    ACL\nfshare  0\noticket 0\nentries ada,bob\n"
        );
        assert!(
            list(&accounts, &["@staff".to_owned()], "arusers")
                .unwrap()
                .ends_with("entries @staff\n")
        );
        assert!(
            list(&accounts, &[], "defaultdepartment")
                .unwrap()
                .contains("type    DEPT\n")
        );
        list(&accounts, &[], "nosuch").unwrap_err();
        assert!(
            user(&accounts, "bob")
                .unwrap()
                .ends_with("default_project physics\n")
        );
        user(&accounts, "nobody").unwrap_err();
    }
}
