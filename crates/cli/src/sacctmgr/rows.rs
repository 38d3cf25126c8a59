//! Lines of the listings that come from the accounts alone.

use super::Row;
use muster_model::accounts::{Accounts, NORMAL, Qos, ROOT};
use muster_model::rights::coordinates;

pub(super) fn accounts(all: &Accounts, associations: bool) -> Vec<Row> {
    let root = Row {
        account: ROOT.to_owned(),
        description: "default root account".to_owned(),
        organization: ROOT.to_owned(),
        coordinators: coordinators(all, ROOT),
        ..Row::default()
    };
    let mut rows: Vec<Row> = all
        .accounts
        .values()
        .map(|account| Row {
            account: account.name.clone(),
            parent: account.parent.clone(),
            description: account.description.clone(),
            organization: account.organization.clone(),
            coordinators: coordinators(all, &account.name),
            terms: account.terms.clone(),
            ..Row::default()
        })
        .collect();
    if associations {
        for user in all.users.values() {
            rows.extend(user.accounts.iter().map(|(account, terms)| Row {
                account: account.clone(),
                user: user.name.clone(),
                coordinators: coordinators(all, account),
                terms: terms.clone(),
                ..Row::default()
            }));
        }
    }
    rows.push(root);
    rows.sort_by(|a, b| (&a.account, &a.user).cmp(&(&b.account, &b.user)));
    rows
}

/// The coordinators of an account, or of one above it.
fn coordinators(all: &Accounts, account: &str) -> String {
    let users = all.users.keys().map(String::as_str);
    let own = users.filter(|user| coordinates(all, user, account));
    own.collect::<Vec<_>>().join(",")
}

/// The accounts that a user coordinates, with those under them.
pub(super) fn coordinated(all: &Accounts, user: &str) -> String {
    if (all.users.get(user)).is_none_or(|user| user.coordinates.is_empty()) {
        return String::new();
    }
    let mut names: Vec<&str> = all.accounts.keys().map(String::as_str).collect();
    names.push(ROOT);
    names.sort_unstable();
    names.retain(|account| coordinates(all, user, account));
    names.join(",")
}

pub(super) fn qos(all: &Accounts) -> Vec<Row> {
    let normal = all.qos(NORMAL).into_iter();
    let others = all.qos.values().filter(|q| q.name != NORMAL).cloned();
    normal
        .chain(others)
        .map(|qos| Row {
            description: qos.description.clone(),
            qos,
            ..Row::default()
        })
        .collect()
}

pub(super) fn tres() -> Vec<Row> {
    let all = [
        ("cpu", ""),
        ("mem", ""),
        ("energy", ""),
        ("node", ""),
        ("billing", ""),
        ("fs", "disk"),
        ("vmem", ""),
        ("pages", ""),
    ];
    all.iter()
        .zip(1..)
        .map(|((kind, name), id)| Row {
            kind: (*kind).to_owned(),
            qos: Qos {
                name: (*name).to_owned(),
                ..Qos::default()
            },
            id: id.to_string(),
            ..Row::default()
        })
        .collect()
}

/// Keys of all users; the default one of each with a star, as its jobs have it.
pub(super) fn wckeys(all: &Accounts) -> Vec<Row> {
    let mut rows = Vec::new();
    for user in all.users.values() {
        rows.extend(user.wckeys.iter().map(|key| Row {
            user: user.name.clone(),
            wckey: match *key == user.default_wckey {
                true => format!("*{key}"),
                false => key.clone(),
            },
            ..Row::default()
        }));
    }
    rows
}
