//! Accounts, users, associations, QOS and workload keys, as accounting has them.

use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use crate::listing::document::Writer;
use crate::listing::query;
use crate::sacctmgr::book::{Association, Book};
use muster_model::account_limits::{Limits, TresAmount, TresAmounts};
use muster_model::accounts::{Account, PARENT_SHARES, Qos, ROOT, User};

/// The records, as the caller may see them.
pub(super) fn load(call: &mut Call<'_>) -> Result<Book, CallFailure> {
    Ok(Book::new(call.ask(query::accounts_of_clusters)?))
}

/// Says that the name in the path names nothing.
pub(super) fn nothing(call: &Call<'_>, what: &str) -> CallFailure {
    let why = format!("there is no {what} {}", call.name());
    let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::NOTHING_FOUND);
    CallFailure::numbered(status, number, what, why)
}

/// Whether the query's list of names has a name, or there is no such list.
fn is_listed(call: &Call<'_>, parameter: &str, name: &str) -> bool {
    let lists: Vec<&str> = call
        .query
        .iter()
        .filter(|(key, value)| key == parameter && !value.is_empty())
        .map(|(_, list)| list.as_str())
        .collect();
    lists.is_empty()
        || lists
            .iter()
            .any(|list| list.split(',').any(|own| own == name))
}

/// Writes a text, or what stands for none in the layout.
pub(super) fn text_or_null(w: &mut Writer<'_>, key: &str, text: &str) {
    if text.is_empty() && w.is_old() {
        w.raw(key, "null");
    } else {
        w.text(key, text);
    }
}

fn short(w: &mut Writer<'_>, association: &Association<'_>, book: &Book) {
    w.text("account", association.account);
    w.text("cluster", &book.cluster);
    text_or_null(w, "partition", association.partition);
    text_or_null(w, "user", association.user);
    if !w.is_old() {
        w.raw("id", association.own.id);
    }
}

pub(super) fn short_list(
    w: &mut Writer<'_>,
    all: &[Association<'_>],
    book: &Book,
    fits: impl Fn(&Association<'_>) -> bool,
) {
    w.list("associations", |w| {
        for association in all.iter().filter(|a| fits(a)) {
            w.item(|w| short(w, association, book));
        }
    });
}

/// `GET accounts`.
pub(super) fn accounts(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let shown: Vec<&Account> = book
        .all
        .accounts
        .values()
        .filter(|account| account.name != ROOT)
        .filter(|account| is_listed(call, "description", &account.description))
        .collect();
    let root = root_account();
    let shown: Vec<&Account> = [&root].into_iter().chain(shown).collect();
    write_accounts(call, &book, &shown)
}

/// `GET account/{account_name}`.
pub(super) fn account(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let root = root_account();
    let found = match call.name() {
        ROOT => Some(&root),
        name => book.all.accounts.get(name),
    };
    let found = found.ok_or_else(|| nothing(call, "account"))?;
    write_accounts(call, &book, &[found])
}

pub(super) fn root_account() -> Account {
    Account {
        name: ROOT.to_owned(),
        description: "default root account".to_owned(),
        organization: ROOT.to_owned(),
        ..Account::default()
    }
}

fn write_accounts(call: &mut Call<'_>, book: &Book, shown: &[&Account]) -> Outcome {
    let all = book.sorted();
    Ok(call.document(&call.context(), |w| {
        w.list("accounts", |w| {
            for account in shown {
                w.item(|w| {
                    short_list(w, &all, book, |a| a.account == account.name);
                    w.list("coordinators", |w| {
                        let users = book.all.users.values();
                        for user in users.filter(|u| u.coordinates.contains(&account.name)) {
                            w.item(|w| coordinator(w, &user.name));
                        }
                    });
                    w.text("description", &account.description);
                    w.text("name", &account.name);
                    w.text("organization", &account.organization);
                    w.list("flags", |_| {});
                });
            }
        });
    }))
}

fn coordinator(w: &mut Writer<'_>, name: &str) {
    w.text("name", name);
    w.raw("direct", true);
}

/// `GET users`.
pub(super) fn users(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let level = |user: &User| {
        match user.admin_level.as_str() {
            "" => "None",
            level => level,
        }
        .to_owned()
    };
    let shown: Vec<&User> = book
        .all
        .users
        .values()
        .filter(|user| is_listed(call, "admin_level", &level(user)))
        .filter(|user| is_listed(call, "default_account", &user.default_account))
        .collect();
    write_users(call, &book, &shown)
}

/// `GET user/{name}`.
pub(super) fn user(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let found = book.all.users.get(call.name());
    let found = found.ok_or_else(|| nothing(call, "user"))?;
    write_users(call, &book, &[found])
}

fn write_users(call: &mut Call<'_>, book: &Book, shown: &[&User]) -> Outcome {
    let all = book.sorted();
    Ok(call.document(&call.context(), |w| {
        w.list("users", |w| {
            for user in shown {
                w.item(|w| one_user(w, user, &all, book));
            }
        });
    }))
}

pub(super) fn one_user(w: &mut Writer<'_>, user: &User, all: &[Association<'_>], book: &Book) {
    let level = match user.admin_level.as_str() {
        "" => "None",
        level => level,
    };
    match w.is_old() {
        true => w.text("administrator_level", level),
        false => w.texts("administrator_level", [level]),
    }
    short_list(w, all, book, |a| a.user == user.name);
    w.list("coordinators", |w| {
        for account in &user.coordinates {
            w.item(|w| coordinator(w, account));
        }
    });
    w.map("default", |w| {
        if w.version() >= 44 {
            w.raw("qos", 0);
        }
        w.text("account", &user.default_account);
        w.text("wckey", &user.default_wckey);
    });
    w.list("flags", |_| {});
    w.text("name", &user.name);
    if !w.is_old() {
        w.text("old_name", "");
        w.list("wckeys", |w| {
            for key in &user.wckeys {
                w.item(|w| wckey(w, key, user, book));
            }
        });
    }
}

/// `GET associations`, and `GET association` for the one that the query chooses.
pub(super) fn associations(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let all = book.sorted();
    let shown: Vec<&Association<'_>> = all.iter().filter(|a| is_chosen(call, a, &book)).collect();
    write_associations(call, &book, &shown)
}

/// Whether the parameters of the query choose an association.
pub(super) fn is_chosen(call: &Call<'_>, a: &Association<'_>, book: &Book) -> bool {
    is_listed(call, "account", a.account)
        && is_listed(call, "user", a.user)
        && is_listed(call, "cluster", &book.cluster)
        && is_listed(call, "partition", a.partition)
        && is_listed(call, "parent_account", a.parent)
        && is_listed(call, "id", &a.own.id.to_string())
}

/// `GET association`.
pub(super) fn association(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let all = book.sorted();
    let shown: Vec<&Association<'_>> = all.iter().filter(|a| is_chosen(call, a, &book)).collect();
    if call.dialect.is_old() && shown.len() > 1 {
        let why = "Ambiguous request: More than 1 association would have been dumped.";
        let (status, number) = (HttpStatus::BAD_REQUEST, errno::INVALID_QUERY);
        return Err(CallFailure::numbered(status, number, "association", why));
    }
    write_associations(call, &book, &shown)
}

fn write_associations(call: &mut Call<'_>, book: &Book, shown: &[&Association<'_>]) -> Outcome {
    Ok(call.document(&call.context(), |w| {
        w.list("associations", |w| {
            for association in shown {
                w.item(|w| one_association(w, association, book));
            }
        });
    }))
}

/// The numbers that amounts of TRES have in documents.
pub(super) fn tres_id(name: &str) -> u32 {
    let known = [
        "cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages",
    ];
    let at = known.iter().position(|own| *own == name);
    at.and_then(|at| u32::try_from(at + 1).ok()).unwrap_or(1001)
}

fn amounts(w: &mut Writer<'_>, key: &str, amounts: &TresAmounts) {
    w.list(key, |w| {
        for TresAmount { name, amount } in amounts {
            w.item(|w| {
                let (kind, own) = name.split_once('/').unwrap_or((name, ""));
                w.text("type", kind);
                text_or_null(w, "name", own);
                w.raw("id", tres_id(name));
                w.raw("count", *amount);
            });
        }
    });
}

fn maybe(w: &mut Writer<'_>, key: &str, value: Option<impl Into<u64>>) {
    w.number(key, value.map(Into::into), "null");
}

/// A number that a version before objects for numbers has, and an object later.
pub(super) fn one_association(w: &mut Writer<'_>, a: &Association<'_>, book: &Book) {
    let (own, limits) = (a.own, &a.own.limits);
    if !w.is_old() {
        w.list("accounting", |_| {});
    }
    w.text("account", a.account);
    w.text("cluster", &book.cluster);
    if !w.is_old() {
        w.text("comment", "");
    }
    w.map("default", |w| {
        text_or_null(w, "qos", own.default_qos.as_deref().unwrap_or(""));
    });
    w.list("flags", |_| {});
    if !w.is_old() {
        w.raw("id", own.id);
    }
    let default = book
        .all
        .users
        .get(a.user)
        .map(|u| u.default_account.as_str());
    let is_default = default == Some(a.account);
    if w.is_old() {
        w.raw("is_default", u8::from(is_default));
    } else {
        w.raw("is_default", is_default);
        w.text("lineage", &lineage(a, book));
    }
    w.map("max", |w| maximums(w, limits));
    w.map("min", |w| {
        maybe(w, "priority_threshold", limits.min_priority)
    });
    text_or_null(w, "parent_account", a.parent);
    text_or_null(w, "partition", a.partition);
    maybe(w, "priority", own.priority);
    let qos: Vec<&str> = match &own.qos {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => Vec::new(),
    };
    w.texts("qos", qos);
    match own.shares {
        Some(PARENT_SHARES) => w.raw("shares_raw", i32::MAX),
        shares => w.raw("shares_raw", shares.unwrap_or(1)),
    }
    w.map("usage", |_| {});
    text_or_null(w, "user", a.user);
}

/// The accounts above, and the user: `/physics/optics/0-ada/`.
fn lineage(a: &Association<'_>, book: &Book) -> String {
    let mut names = vec![a.account];
    while let Some(account) = names.last().and_then(|name| book.all.accounts.get(*name)) {
        let parent = account.parent.as_str();
        if parent.is_empty() || parent == ROOT || names.contains(&parent) {
            break;
        }
        names.push(parent);
    }
    names.retain(|name| *name != ROOT);
    let mut text = String::from("/");
    for name in names.iter().rev() {
        text.push_str(name);
        text.push('/');
    }
    if !a.user.is_empty() {
        text.push_str(&format!("0-{}/", a.user));
    }
    text
}

fn maximums(w: &mut Writer<'_>, limits: &Limits) {
    w.map("jobs", |w| {
        w.map("per", |w| {
            maybe(w, "count", limits.grp_jobs);
            maybe(w, "accruing", None::<u64>);
            maybe(w, "submitted", limits.grp_submit);
            maybe(w, "wall_clock", limits.max_wall_min);
        });
        maybe(w, "active", limits.max_jobs);
        maybe(w, "accruing", None::<u64>);
        maybe(w, "total", limits.max_submit);
    });
    w.map("tres", |w| {
        amounts(w, "total", &limits.grp_tres);
        w.map("group", |w| {
            amounts(w, "minutes", &limits.grp_tres_mins);
            amounts(w, "active", &limits.grp_tres_run_mins);
        });
        w.map("minutes", |w| {
            amounts(w, "total", &limits.max_tres_mins);
            w.map("per", |w| w.list("job", |_| {}));
        });
        w.map("per", |w| {
            amounts(w, "job", &limits.max_tres);
            amounts(w, "node", &limits.max_tres_node);
        });
    });
    w.map("per", |w| {
        w.map("account", |w| maybe(w, "wall_clock", limits.grp_wall_min));
    });
}

/// `GET qos`.
pub(super) fn all_qos(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let shown: Vec<&Qos> = book
        .all
        .qos
        .values()
        .filter(|qos| {
            is_listed(call, "name", &qos.name) && is_listed(call, "id", &qos.id.to_string())
        })
        .collect();
    write_qos(call, &shown)
}

/// `GET qos/{qos}`.
pub(super) fn qos(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let found = book.all.qos(call.name());
    let found = found.ok_or_else(|| nothing(call, "qos"))?;
    write_qos(call, &[&found])
}

fn write_qos(call: &mut Call<'_>, shown: &[&Qos]) -> Outcome {
    Ok(call.document(&call.context(), |w| {
        let key = if w.is_old() { "QOS" } else { "qos" };
        w.list(key, |w| {
            for qos in shown {
                w.item(|w| one_qos(w, qos));
            }
        });
    }))
}

/// A count in millionths as a decimal, if it is set.
fn decimal(w: &mut Writer<'_>, key: &str, millionths: Option<u64>) {
    let value = millionths.map(|m| m as f64 / 1e6);
    if w.is_old() {
        match value {
            Some(value) => w.raw(key, format_args!("{value:?}")),
            None => w.raw(key, "null"),
        }
    } else {
        w.map(key, |w| {
            w.raw("set", value.is_some());
            w.raw("infinite", false);
            w.raw("number", format_args!("{:?}", value.unwrap_or(0.0)));
        });
    }
}

pub(super) fn one_qos(w: &mut Writer<'_>, qos: &Qos) {
    w.text("description", &qos.description);
    w.texts("flags", &qos.flags);
    w.raw("id", qos.id);
    w.map("limits", |w| qos_limits(w, qos));
    w.text("name", &qos.name);
    w.map("preempt", |w| {
        w.texts("list", &qos.preempt);
        w.texts("mode", qos.preempt_mode.as_deref());
        maybe(w, "exempt_time", qos.preempt_exempt_s);
    });
    if w.is_old() {
        w.raw("priority", qos.priority);
    } else {
        w.limit("priority", Some(qos.priority.into()), false);
    }
    decimal(
        w,
        "usage_factor",
        qos.usage_factor_millionths.or(Some(1_000_000)),
    );
    decimal(w, "usage_threshold", qos.usage_threshold_millionths);
}

fn qos_limits(w: &mut Writer<'_>, qos: &Qos) {
    let limits = &qos.limits;
    w.raw("grace_time", qos.grace_time_s);
    w.map("max", |w| {
        w.map("active_jobs", |w| {
            maybe(w, "accruing", None::<u64>);
            maybe(w, "count", limits.grp_jobs);
        });
        w.map("tres", |w| {
            amounts(w, "total", &limits.grp_tres);
            w.map("minutes", |w| {
                if !w.is_old() {
                    amounts(w, "total", &limits.grp_tres_mins);
                }
                w.map("per", |w| {
                    amounts(w, "qos", &limits.grp_tres_run_mins);
                    amounts(w, "job", &limits.max_tres_mins);
                    w.list("account", |_| {});
                    w.list("user", |_| {});
                });
            });
            w.map("per", |w| {
                amounts(w, "account", &limits.max_tres_account);
                amounts(w, "job", &limits.max_tres);
                amounts(w, "node", &limits.max_tres_node);
                amounts(w, "user", &limits.max_tres_user);
            });
        });
        w.map("wall_clock", |w| {
            w.map("per", |w| {
                maybe(w, "qos", limits.grp_wall_min);
                maybe(w, "job", limits.max_wall_min);
            });
        });
        w.map("jobs", |w| {
            if !w.is_old() {
                maybe(w, "count", limits.grp_submit);
            }
            w.map("active_jobs", |w| {
                w.map("per", |w| {
                    maybe(w, "account", limits.max_jobs_account);
                    maybe(w, "user", limits.max_jobs);
                });
            });
            w.map("per", |w| {
                maybe(w, "account", limits.max_submit_account);
                maybe(w, "user", limits.max_submit);
            });
        });
        w.map("accruing", |w| {
            w.map("per", |w| {
                maybe(w, "account", None::<u64>);
                maybe(w, "user", None::<u64>);
            });
        });
    });
    decimal(w, "factor", qos.limit_factor_millionths);
    w.map("min", |w| {
        maybe(w, "priority_threshold", limits.min_priority);
        w.map("tres", |w| {
            w.map("per", |w| amounts(w, "job", &limits.min_tres));
        });
    });
}

pub(super) fn wckey(w: &mut Writer<'_>, key: &str, user: &User, book: &Book) {
    w.list(if w.is_old() { "accounts" } else { "accounting" }, |_| {});
    w.text("cluster", &book.cluster);
    w.raw("id", 0);
    w.text("name", key);
    w.text("user", &user.name);
    // Since v0.0.42 the schema has no flag for the default one.
    let is_default = user.default_wckey == key && w.version() < 42;
    w.texts("flags", is_default.then_some("DEFAULT"));
}

/// `GET wckeys`.
pub(super) fn wckeys(call: &mut Call<'_>) -> Outcome {
    write_wckeys(call, None)
}

/// `GET wckey/{id}`: by its name, since keys have no numbers here.
pub(super) fn one_wckey(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    write_wckeys(call, Some(&name))
}

fn write_wckeys(call: &mut Call<'_>, name: Option<&str>) -> Outcome {
    let book = load(call)?;
    let mut shown = Vec::new();
    for user in book.all.users.values() {
        for key in &user.wckeys {
            if name.is_none_or(|name| name == key)
                && is_listed(call, "name", key)
                && is_listed(call, "user", &user.name)
            {
                shown.push((key.as_str(), user));
            }
        }
    }
    if shown.is_empty() && name.is_some() {
        return Err(nothing(call, "wckey"));
    }
    Ok(call.document(&call.context(), |w| {
        w.list("wckeys", |w| {
            for (key, user) in &shown {
                w.item(|w| wckey(w, key, user, &book));
            }
        });
    }))
}
