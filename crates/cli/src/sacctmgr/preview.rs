//! The text that `sacctmgr` prints before it carries out an edit. Scripts parse it.

use super::edit::{Entity, Verb, Words};
use super::{amounts, clock, clock_of_minutes};
use muster_model::account_limits::{Amounts, LimitAsk, Limits};
use muster_model::accounts::{Accounts, PARENT_SHARES, ROOT};
use muster_model::command::QosAsk;
use std::fmt::Write as _;

/// Describes an edit.
pub(super) fn edit_preview(
    verb: Verb,
    entity: Entity,
    w: &Words,
    cluster: &str,
    before: &Accounts,
) -> String {
    let name = match entity {
        Entity::Account => "Account(s)",
        Entity::User => "User(s)",
        Entity::Qos => "QOS(s)",
    };
    let plural = match entity {
        Entity::Account => "accounts",
        Entity::User => "users",
        Entity::Qos => "QOS's",
    };
    if verb == Verb::Modify && entity == Entity::User && w.changes_associations() {
        return modified_associations(w, cluster, before);
    }
    if let (Verb::Delete, Some((_, keys))) = (verb, &w.wckeys.keys) {
        return deleted_wckeys(w, keys, cluster, before);
    }
    if verb == Verb::Modify && entity == Entity::Account {
        return modified_accounts(w, cluster, before);
    }
    let mut out = match verb {
        Verb::Add => format!(" Adding {name}\n"),
        Verb::Modify => format!(" Modified {plural}...\n"),
        Verb::Delete => format!(" Deleting {plural}...\n"),
    };
    for name in &w.names {
        let _ = writeln!(out, "  {name}");
    }
    match (verb, entity) {
        (Verb::Add, Entity::Account) => out + &added_accounts(w, cluster),
        (Verb::Add, Entity::User) => out + &added_users(w, cluster),
        (Verb::Add, Entity::Qos) => out + &added_qos(w),
        (Verb::Modify | Verb::Delete, _) => out,
    }
}

fn added_accounts(w: &Words, cluster: &str) -> String {
    let given = |text: &str, none: &str| match text {
        "" => none.to_owned(),
        text => text.to_owned(),
    };
    let description = given(w.description.as_deref().unwrap_or(""), "Account Name");
    let organization = given(&w.organization, "Parent/Account Name");
    let mut out = format!(
        " Settings\n  Description     = {description}\n  Organization    = {organization}\n Associations\n"
    );
    for name in &w.names {
        let _ = writeln!(out, "  A = {name:<10} C = {cluster:<10}");
    }
    out.push_str(" Settings\n");
    out.push_str(&limits_of(w));
    let _ = writeln!(out, "  Parent        = {}", given(&w.parent, ROOT));
    out.push_str(&qos_of(w));
    out
}

fn added_users(w: &Words, cluster: &str) -> String {
    let mut out = String::new();
    let own = [
        ("Default Account", w.default_account.as_str()),
        ("Default WCKey", w.wckeys.default.as_deref().unwrap_or("")),
        ("Admin Level", admin_level(&w.admin_level)),
    ];
    let mut given = own.iter().filter(|(_, value)| !value.is_empty()).peekable();
    if given.peek().is_some() {
        out.push_str(" Settings =\n");
    }
    for (name, value) in given {
        let _ = writeln!(out, "  {name:<15} = {value}");
    }
    out.push_str(" Associations =\n");
    let default = Some(&w.default_account).filter(|a| !a.is_empty() && !w.accounts.contains(a));
    for name in &w.names {
        for account in w.accounts.iter().chain(default) {
            let _ = writeln!(out, "  U = {name:<9} A = {account:<10} C = {cluster:<10}");
        }
    }
    let listed = w.wckeys.keys.iter().flat_map(|(_, keys)| keys);
    let default = w.wckeys.default.iter().filter(|key| !key.is_empty());
    let mut keys: Vec<&String> = listed.chain(default).collect();
    keys.dedup();
    if !keys.is_empty() {
        out.push_str(" WCKeys =\n");
        for name in &w.names {
            for key in &keys {
                let _ = writeln!(out, "  U = {name:<9} W = {key:<10} C = {cluster:<10}");
            }
        }
    }
    out.push_str(" Non Default Settings\n");
    out + &limits_of(w) + &qos_of(w)
}

fn added_qos(w: &Words) -> String {
    let mut out = String::from(" Settings\n");
    for name in &w.names {
        let description = w.description.as_deref().unwrap_or(name);
        let _ = writeln!(out, "  Description    = {description}");
    }
    out + &qos_settings(&w.qos)
}

/// An administrator's level by its whole name.
fn admin_level(text: &str) -> &str {
    match text.to_ascii_lowercase().as_str() {
        "admin" | "administrator" => "Administrator",
        "operator" => "Operator",
        "none" => "None",
        _ => text,
    }
}

/// Names and values of what is set; empty values are left out.
type Settings = Vec<(&'static str, String)>;

fn lines(settings: Settings, width: usize) -> String {
    let mut out = String::new();
    for (name, value) in settings.iter().filter(|(_, value)| !value.is_empty()) {
        // Slurm prints two names narrower or wider than the others.
        let width = match (*name, width) {
            ("GrpJobsAccrue", _) => 25,
            ("MaxJobsPerUser" | "Description", _) => 15,
            _ => width,
        };
        let _ = writeln!(out, "  {name:<width$}= {value}");
    }
    out
}

fn limits(asked: &[LimitAsk], qos: bool) -> Limits {
    let mut all = Limits::default();
    for ask in asked {
        // They were read before.
        let _ = all.set(ask, qos);
    }
    all
}

fn count(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |n| n.to_string())
}

fn minutes(limit: Option<u64>) -> String {
    limit.map_or(String::new(), clock_of_minutes)
}

/// Shares and limits of an association.
fn limits_of(w: &Words) -> String {
    let shares = match w.terms.shares {
        Some(Some(PARENT_SHARES)) => "parent".to_owned(),
        Some(shares) => count(shares),
        None => String::new(),
    };
    let l = limits(&w.terms.limits, false);
    let of = |amounts_of: &Amounts| amounts(amounts_of);
    let all = vec![
        ("Fairshare", shares),
        ("GrpJobs", count(l.grp_jobs)),
        ("GrpJobsAccrue", count(l.grp_jobs_accrue)),
        ("GrpSubmitJobs", count(l.grp_submit)),
        ("GrpTRES", of(&l.grp_tres)),
        ("GrpTRESMins", of(&l.grp_tres_mins)),
        ("GrpTRESRunMins", of(&l.grp_tres_run_mins)),
        ("GrpWall", minutes(l.grp_wall_min)),
        ("MaxJobs", count(l.max_jobs)),
        ("MaxJobsPrioAcc", count(l.max_jobs_accrue)),
        ("MaxSubmitJobs", count(l.max_submit)),
        ("MaxTRES", of(&l.max_tres)),
        ("MaxTRESPerNode", of(&l.max_tres_node)),
        ("MaxTRESMins", of(&l.max_tres_mins)),
        ("MaxWall", minutes(l.max_wall_min.map(u64::from))),
        ("Priority", count(w.terms.priority.flatten())),
    ];
    lines(all, 14)
}

/// QOS of an association.
fn qos_of(w: &Words) -> String {
    let list = w.terms.qos.as_ref().map(|(sign, names)| {
        let sign = sign.map_or(String::new(), String::from);
        format!("{sign}{}", names.join(","))
    });
    let default = w.terms.default_qos.clone();
    let all = vec![
        ("QOS", list.unwrap_or_default()),
        ("DefQOS", default.unwrap_or_default()),
    ];
    lines(all, 14)
}

fn qos_settings(qos: &QosAsk) -> String {
    let l = limits(&qos.limits, true);
    let of = |amounts_of: &Amounts| amounts(amounts_of);
    let words = |list: &Option<(Option<char>, Vec<String>)>| {
        let list = list.as_ref();
        list.map_or(String::new(), |(_, words)| words.join(","))
    };
    let mode = qos.preempt_mode.as_ref();
    let factor = |millionths: u64| format!("{:.4}", millionths as f64 / 1e6);
    let all = vec![
        ("Flags", words(&qos.flags)),
        ("GraceTime", count(qos.grace_time_s)),
        ("GrpJobs", count(l.grp_jobs)),
        ("GrpJobsAccrue", count(l.grp_jobs_accrue)),
        ("GrpSubmitJobs", count(l.grp_submit)),
        ("GrpTRES", of(&l.grp_tres)),
        ("GrpTRESMins", of(&l.grp_tres_mins)),
        ("GrpTRESRunMins", of(&l.grp_tres_run_mins)),
        ("GrpWall", minutes(l.grp_wall_min)),
        ("MaxJobsAccruePerAccount", count(l.max_jobs_accrue_account)),
        ("MaxJobsAccruePerUser", count(l.max_jobs_accrue)),
        ("MaxJobsPerAccount", count(l.max_jobs_account)),
        ("MaxJobsPerUser", count(l.max_jobs)),
        ("MaxSubmitJobsPerAccount", count(l.max_submit_account)),
        ("MaxSubmitJobsPerUser", count(l.max_submit)),
        ("MaxTRESPerAccount", of(&l.max_tres_account)),
        ("MaxTRESPerJob", of(&l.max_tres)),
        ("MaxTRESPerNode", of(&l.max_tres_node)),
        ("MaxTRESPerUser", of(&l.max_tres_user)),
        ("MinPrioThresh", count(l.min_priority)),
        ("MinTRESPerJob", of(&l.min_tres)),
        ("MaxTRESMins", of(&l.max_tres_mins)),
        ("MaxTRESRUNMinsPerAccount", of(&l.max_tres_run_mins_account)),
        ("MaxTRESRUNMinsPerUser", of(&l.max_tres_run_mins_user)),
        ("MaxWall", minutes(l.max_wall_min.map(u64::from))),
        ("Preempt", words(&qos.preempt)),
        (
            "PreemptMode",
            mode.map_or(String::new(), |m| m.to_ascii_uppercase()),
        ),
        (
            "PreemptExemptTime",
            qos.preempt_exempt_s.flatten().map_or(String::new(), clock),
        ),
        ("Priority", count(qos.priority)),
        (
            "UsageFactor",
            qos.usage_factor_millionths.map_or(String::new(), factor),
        ),
    ];
    lines(all, 25)
}

fn modified_accounts(w: &Words, cluster: &str, before: &Accounts) -> String {
    let mut out = String::from(" Modified accounts...\n");
    for name in &w.names {
        let _ = writeln!(out, "  {name}");
    }
    if !w.changes_associations() {
        return out;
    }
    out.push_str(" Modified account associations...\n");
    for (name, account) in before.accounts.iter().filter(|(n, _)| w.names.contains(n)) {
        let parent = match account.parent.as_str() {
            "" => ROOT,
            parent => parent,
        };
        let _ = writeln!(out, "  C = {cluster:<10} A = {name} of {parent}");
    }
    out
}

fn modified_associations(w: &Words, cluster: &str, before: &Accounts) -> String {
    let mut out = String::from(" Modified user associations...\n");
    for name in &w.names {
        let of_user = before.users.get(name).into_iter();
        let accounts = of_user.flat_map(|user| user.accounts.keys());
        for account in accounts.filter(|a| w.accounts.is_empty() || w.accounts.contains(a)) {
            let _ = writeln!(out, "  C = {cluster:<10} A = {account:<20} U = {name:<9}");
        }
    }
    out
}

fn deleted_wckeys(w: &Words, keys: &[String], cluster: &str, before: &Accounts) -> String {
    let mut out = String::from(" Deleting user WCKeys...\n");
    let named = |name: &String| w.names.is_empty() || w.names.contains(name);
    for (name, user) in before.users.iter().filter(|(name, _)| named(name)) {
        for key in user.wckeys.iter().filter(|key| keys.contains(key)) {
            let _ = writeln!(out, "  C = {cluster:<10} W = {key:<20} U = {name:<9}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::edit::read;
    use super::*;

    #[test]
    fn edits_are_previewed() {
        let preview = |line: &str, verb, entity| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let read = read(verb, entity, &words).unwrap();
            let user = muster_model::accounts::User {
                name: "nobody".into(),
                accounts: [("capture".to_owned(), Default::default())].into(),
                wckeys: vec!["k".into(), "l".into()],
                ..Default::default()
            };
            let mut before = Accounts::default();
            before.users.insert("nobody".into(), user);
            before.accounts.insert("b1".into(), Default::default());
            edit_preview(verb, entity, &read, "peer", &before)
        };
        assert_eq!(
            preview(
                "capture Description=x Organization=y",
                Verb::Add,
                Entity::Account
            ),
            " Adding Account(s)\n  capture\n Settings\n  Description     = x\n  Organization    = y\n Associations\n  \
             A = capture    C = peer      \n Settings\n  Parent        = root\n"
        );
        assert_eq!(
            preview("nobody Account=capture", Verb::Add, Entity::User),
            " Adding User(s)\n  nobody\n Associations =\n  U = nobody    A = capture    C = peer      \n Non Default \
             Settings\n"
        );
        assert_eq!(
            preview("nobody set MaxJobs=1", Verb::Modify, Entity::User),
            " Modified user associations...\n  C = peer       A = capture              U = nobody   \n"
        );
        assert_eq!(
            preview(
                "nobody set DefaultAccount=capture",
                Verb::Modify,
                Entity::User
            ),
            " Modified users...\n  nobody\n"
        );
        assert_eq!(
            preview("nobody", Verb::Delete, Entity::User),
            " Deleting users...\n  nobody\n"
        );
        assert_eq!(
            preview("nobody Account=capture WCKeys=k", Verb::Add, Entity::User),
            " Adding User(s)\n  nobody\n Associations =\n  U = nobody    A = capture    C = peer      \n WCKeys =\n  \
             U = nobody    W = k          C = peer      \n Non Default Settings\n"
        );
        // As sacctmgr 22.05 prints it.
        assert_eq!(
            preview(
                "lp Account=capture Fairshare=parent GrpJobs=1 GrpJobsAccrue=2 GrpTRES=cpu=1,mem=5 GrpTRESRunMins=cpu=7 \
                 GrpWall=60 MaxWall=2-00:00 Priority=3 QOS=normal DefaultQOS=normal DefaultAccount=capture \
                 AdminLevel=Operator DefaultWCKey=k",
                Verb::Add,
                Entity::User
            ),
            " Adding User(s)\n  lp\n Settings =\n  Default Account = capture\n  Default WCKey   = k\n  \
             Admin Level     = Operator\n Associations =\n  U = lp        A = capture    C = peer      \n WCKeys =\n  \
             U = lp        W = k          C = peer      \n Non Default Settings\n  Fairshare     = parent\n  \
             GrpJobs       = 1\n  GrpJobsAccrue            = 2\n  GrpTRES       = cpu=1,mem=5M\n  \
             GrpTRESRunMins= cpu=7\n  GrpWall       = 01:00:00\n  MaxWall       = 2-00:00:00\n  \
             Priority      = 3\n  QOS           = normal\n  DefQOS        = normal\n"
        );
        assert_eq!(
            preview(
                "hi Priority=100 MaxJobsPerUser=5 MaxWall=60 Flags=DenyOnLimit UsageFactor=2 GraceTime=30 \
                 PreemptMode=cancel PreemptExemptTime=60",
                Verb::Add,
                Entity::Qos
            ),
            " Adding QOS(s)\n  hi\n Settings\n  Description    = hi\n  Flags                    = DenyOnLimit\n  \
             GraceTime                = 30\n  MaxJobsPerUser = 5\n  MaxWall                  = 01:00:00\n  \
             PreemptMode              = CANCEL\n  PreemptExemptTime        = 01:00:00\n  \
             Priority                 = 100\n  UsageFactor              = 2.0000\n"
        );
        assert_eq!(
            preview("b1 set MaxJobs=4", Verb::Modify, Entity::Account),
            " Modified accounts...\n  b1\n Modified account associations...\n  C = peer       A = b1 of root\n"
        );
        assert_eq!(
            preview("where wckeys=k,m", Verb::Delete, Entity::User),
            " Deleting user WCKeys...\n  C = peer       W = k                    U = nobody   \n"
        );
    }
}
