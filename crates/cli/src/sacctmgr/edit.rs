//! `sacctmgr add`, `modify` and `delete`: what users write becomes one edit.

use super::begins;
use super::preview::edit_preview;
use crate::connect::{Client, ConnectError};
use crate::listing::{Failure, print, query};
use muster_model::account_limits::{LimitAsk, Limits, NOT_KEPT};
use muster_model::accounts::Accounts;
use muster_model::command::{
    AccountsAsk, AccountsEdit, QosAsk, Reply, TermsAsk, UserCommand, WckeysAsk,
};
use std::io::{BufRead as _, Write as _};

/// The kind of record that is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    Account,
    User,
    Qos,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Modify,
    Delete,
}

/// A parsed line.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) names: Vec<String>,
    pub(super) accounts: Vec<String>,
    pub(super) parent: String,
    pub(super) description: Option<String>,
    pub(super) organization: String,
    pub(super) default_account: String,
    pub(super) admin_level: String,
    pub(super) terms: TermsAsk,
    pub(super) wckeys: WckeysAsk,
    pub(super) qos: QosAsk,
    pub(super) reset_usage: bool,
    /// What `modify` was given to set.
    pub(super) sets: bool,
}

/// Runs an edit; `None` if the first word is no verb of one.
pub(super) fn run(words: &[String], immediate: bool, quiet: bool) -> Option<Result<(), Failure>> {
    let verb = words.first().map_or("", String::as_str);
    let verb = if begins("add", verb) || begins("create", verb) {
        Verb::Add
    } else if begins("modify", verb) || begins("update", verb) {
        Verb::Modify
    } else if begins("delete", verb) || begins("remove", verb) {
        Verb::Delete
    } else {
        return None;
    };
    Some(edit(verb, &words[1..], immediate, quiet))
}

pub(super) fn error(text: impl std::fmt::Display) -> Failure {
    Failure::new(format!("sacctmgr: error: {text}"))
}

fn edit(verb: Verb, words: &[String], immediate: bool, quiet: bool) -> Result<(), Failure> {
    let what = words.first().map_or("", String::as_str);
    if what.len() > 1 && begins("coordinator", what) && verb != Verb::Modify {
        return super::coordinator::edit(verb, &words[1..], immediate, quiet);
    }
    let entity = match what.strip_suffix('s').unwrap_or(what) {
        "qo" | "qos" => Entity::Qos,
        word if begins("account", word) => Entity::Account,
        word if begins("user", word) => Entity::User,
        word if begins("cluster", word) && verb == Verb::Add => {
            print(" This cluster keeps its own accounts; nothing to add.\n");
            return Ok(());
        }
        _ => {
            return Err(error(format!(
                "'{what}' cannot be edited here: accounts, coordinators, users and QOS can"
            )));
        }
    };
    let read = read(verb, entity, &words[1..])?;
    let of_all_users = verb == Verb::Delete && read.wckeys.keys.is_some();
    if read.names.is_empty() && !of_all_users {
        return Err(error("give the names, such as name=a,b"));
    }
    let edit = AccountsEdit {
        names: read.names.clone(),
        ask: ask(verb, entity, &read)?,
    };
    let preview = |cluster: &str, before: &Accounts| match quiet {
        true => String::new(),
        false => edit_preview(verb, entity, &read, cluster, before),
    };
    let mut client = Client::connect().map_err(error)?;
    let before = query::accounts(&mut client).map_err(error)?;
    if !(immediate || quiet) {
        print(&preview(&before.cluster, &before.accounts));
        if !agreed()? {
            print(" Changes Discarded\n");
            return Ok(());
        }
    }
    match client.command(UserCommand::EditAccounts(Box::new(edit))) {
        Ok(Reply::Done { changed: 0, .. }) => {
            print(match verb {
                Verb::Add => " Nothing new added.\n",
                Verb::Modify => " Nothing modified\n",
                Verb::Delete => " Nothing deleted\n",
            });
            Err(Failure::silent())
        }
        Ok(_) => {
            if immediate {
                print(&preview(&before.cluster, &before.accounts));
            }
            Ok(())
        }
        Err(ConnectError::Refused(refusal)) => Err(error(refusal)),
        Err(other) => Err(error(other)),
    }
}

/// Makes one edit of these words and says of how many things it changed something.
pub(super) fn send(
    client: &mut Client,
    verb: Verb,
    entity: Entity,
    words: &[String],
) -> Result<u32, Failure> {
    let read = read(verb, entity, words)?;
    let edit = AccountsEdit {
        names: read.names.clone(),
        ask: ask(verb, entity, &read)?,
    };
    match client.command(UserCommand::EditAccounts(Box::new(edit))) {
        Ok(Reply::Done { changed, .. }) => Ok(changed),
        Ok(_) => Ok(0),
        Err(ConnectError::Refused(refusal)) => Err(Failure::new(refusal.to_string())),
        Err(other) => Err(error(other)),
    }
}

/// Names, then `key=value`; `where` and `set` of `modify` say which is which.
pub(super) fn read(verb: Verb, entity: Entity, words: &[String]) -> Result<Words, Failure> {
    let mut read = Words::default();
    // Modify begins with conditions; `set` begins what is set.
    let mut setting = verb == Verb::Add;
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "set" => {
                setting = true;
                continue;
            }
            "where" => {
                setting = false;
                continue;
            }
            _ => {}
        }
        let Some((key, value)) = word.split_once('=') else {
            read.names.extend(list(word));
            continue;
        };
        let (key, sign) = match key.strip_suffix(['+', '-']) {
            Some(bare) => (bare, key.chars().next_back()),
            None => (key, None),
        };
        let key = key.to_ascii_lowercase();
        let value = value.trim_matches(['"', '\'']);
        let condition = verb != Verb::Add && !setting;
        if !condition {
            read.sets = true;
        }
        // What is deleted then, not whose.
        if verb == Verb::Delete && entity == Entity::User && ["wckey", "wckeys"].contains(&&*key) {
            read.wckeys.keys = Some((None, list(value)));
            continue;
        }
        if !read.take(entity, &key, sign, value, condition)? {
            return Err(error(format!(
                "Unknown option: {word}; of limits GrpJobs, GrpJobsAccrue, GrpSubmitJobs, GrpTRES, GrpTRESMins, GrpTRESRunMins, GrpWall, MaxJobs, MaxJobsAccrue, MaxSubmitJobs, MaxTRES, MaxTRESMins, MaxTRESPerNode, MaxWall and a QOS' MaxJobsAccruePerAccount, MaxJobsAccruePerUser, MaxJobsPerAccount, MaxSubmitJobsPerAccount, MaxTRESPerAccount, MaxTRESPerUser, MaxTRESRunMinsPerAccount, MaxTRESRunMinsPerUser, MinPrioThreshold, MinTRES are kept"
            )));
        }
    }
    if verb == Verb::Modify && !read.sets {
        return Err(error("You didn't give me anything to set"));
    }
    Ok(read)
}

impl Words {
    fn take(
        &mut self,
        entity: Entity,
        key: &str,
        sign: Option<char>,
        value: &str,
        condition: bool,
    ) -> Result<bool, Failure> {
        let bare = key.strip_suffix('s').unwrap_or(key);
        if bare == "cluster" {
            return Ok(true);
        }
        let own = match entity {
            Entity::Account => "account",
            Entity::User => "user",
            Entity::Qos => "qo",
        };
        if bare == "name" || (bare == own && (condition || entity != Entity::Qos)) {
            self.names.extend(list(value));
            return Ok(true);
        }
        match entity {
            Entity::User if bare == "account" || bare == "acct" => {
                self.accounts.extend(list(value))
            }
            _ if condition => return Ok(false),
            Entity::User if "defaultaccount".starts_with(key) && key.len() > 7 => {
                self.default_account = value.to_owned();
            }
            Entity::User if ["defaultwckey", "defwckey"].contains(&key) => {
                self.wckeys.default = Some(value.to_owned());
            }
            Entity::User if bare == "wckey" => self.wckeys.keys = Some((sign, list(value))),
            Entity::User if "adminlevel".starts_with(key) => self.admin_level = value.to_owned(),
            Entity::User if key == "rawusage" => {
                if value != "0" {
                    return Err(error("RawUsage can be set to 0 only"));
                }
                self.reset_usage = true;
            }
            Entity::Account if "parent".starts_with(key) => self.parent = value.to_owned(),
            Entity::Account if "organization".starts_with(key) => {
                self.organization = value.to_owned();
            }
            Entity::Account | Entity::Qos if "description".starts_with(key) && key.len() > 2 => {
                self.description = Some(value.to_owned());
            }
            Entity::Qos => return self.take_qos(key, sign, value),
            Entity::Account | Entity::User => return self.take_terms(key, sign, value),
        }
        Ok(true)
    }

    /// Whether what is set belongs to associations, not to the user.
    pub(super) fn changes_associations(&self) -> bool {
        self.terms != TermsAsk::default()
    }

    fn take_terms(&mut self, key: &str, sign: Option<char>, value: &str) -> Result<bool, Failure> {
        match key {
            "fairshare" | "shares" | "share" => {
                self.terms.shares = Some(match value.to_ascii_lowercase().as_str() {
                    "parent" => Some(muster_model::accounts::PARENT_SHARES),
                    "-1" => None,
                    _ => Some(number(key, value)?),
                });
            }
            "priority" => self.terms.priority = Some(optional(key, value)?),
            "defaultqos" | "defqos" => self.terms.default_qos = Some(value.to_owned()),
            "qos" | "qoslevel" | "qoslevels" => self.terms.qos = Some((sign, list(value))),
            _ => return take_limit(&mut self.terms.limits, key, value, false),
        }
        Ok(true)
    }

    fn take_qos(&mut self, key: &str, sign: Option<char>, value: &str) -> Result<bool, Failure> {
        match key {
            "priority" => self.qos.priority = Some(number(key, value)?),
            "preempt" => self.qos.preempt = Some((sign, list(value))),
            "flags" => self.qos.flags = Some((sign, list(value))),
            "preemptmode" => self.qos.preempt_mode = Some(value.to_owned()),
            "preemptexempttime" => self.qos.preempt_exempt_s = Some(run_time_s(key, value)?),
            "gracetime" => self.qos.grace_time_s = Some(seconds(key, value)?.unwrap_or(0)),
            "usagefactor" => {
                let factor: f64 = value
                    .parse()
                    .ok()
                    .filter(|f: &f64| *f >= 0.0)
                    .ok_or_else(|| error(format!("Bad value for {key}: {value}")))?;
                self.qos.usage_factor_millionths = Some((factor * 1e6) as u64);
            }
            _ => return take_limit(&mut self.qos.limits, key, value, true),
        }
        Ok(true)
    }
}

/// Takes a limit; whether it is one that is kept.
fn take_limit(
    limits: &mut Vec<LimitAsk>,
    key: &str,
    value: &str,
    qos: bool,
) -> Result<bool, Failure> {
    let ask = (key.to_owned(), value.to_owned());
    match Limits::default().set(&ask, qos) {
        Ok(()) => limits.push(ask),
        Err(why) if why.ends_with(NOT_KEPT) => return Ok(false),
        Err(why) => return Err(error(why)),
    }
    Ok(true)
}

pub(super) fn list(text: &str) -> Vec<String> {
    let words = text.split(',').filter(|w| !w.is_empty());
    words.map(str::to_owned).collect()
}

fn number(key: &str, value: &str) -> Result<u32, Failure> {
    value
        .parse()
        .map_err(|_| error(format!("Bad value for {key}: {value}, expected a number")))
}

/// A number; -1 clears.
fn optional(key: &str, value: &str) -> Result<Option<u32>, Failure> {
    if value == "-1" {
        return Ok(None);
    }
    number(key, value).map(Some)
}

/// A time, or seconds as a plain number; -1 clears.
fn seconds(key: &str, value: &str) -> Result<Option<u32>, Failure> {
    if value == "-1" {
        return Ok(None);
    }
    let parts: Option<Vec<u32>> = value.split(':').map(|p| p.parse().ok()).collect();
    match parts.as_deref() {
        Some([s]) => Ok(Some(*s)),
        Some([m, s]) => Ok(Some(m * 60 + s)),
        Some([h, m, s]) => Ok(Some(h * 3600 + m * 60 + s)),
        _ => Err(error(format!("Bad value for {key}: {value}"))),
    }
}

/// A run time as jobs have it, minutes as a plain number; -1 clears.
fn run_time_s(key: &str, value: &str) -> Result<Option<u32>, Failure> {
    if value == "-1" {
        return Ok(None);
    }
    if let Ok(minutes) = value.parse::<u32>() {
        return Ok(Some(minutes.saturating_mul(60)));
    }
    let Some((days, hours)) = value.split_once('-') else {
        return seconds(key, value);
    };
    let days = number(key, days)?.saturating_mul(86_400);
    let whole = format!("{hours}:00:00");
    let padded: Vec<&str> = whole.split(':').take(3).collect();
    let rest = seconds(key, &padded.join(":"))?.unwrap_or(0);
    Ok(Some(days.saturating_add(rest)))
}

fn ask(verb: Verb, entity: Entity, w: &Words) -> Result<AccountsAsk, Failure> {
    let description = w.description.clone().unwrap_or_default();
    let mut qos = w.qos.clone();
    qos.description.clone_from(&w.description);
    let terms = w.terms.clone();
    Ok(match (verb, entity) {
        (Verb::Add, Entity::Account) => AccountsAsk::AddAccounts {
            parent: w.parent.clone(),
            description,
            organization: w.organization.clone(),
            terms,
        },
        (Verb::Modify, Entity::Account) => AccountsAsk::ModifyAccounts {
            parent: w.parent.clone(),
            description,
            organization: w.organization.clone(),
            terms,
        },
        (Verb::Delete, Entity::Account) => AccountsAsk::DeleteAccounts,
        (Verb::Add, Entity::User) => AccountsAsk::AddUsers {
            accounts: w.accounts.clone(),
            default_account: w.default_account.clone(),
            admin_level: w.admin_level.clone(),
            terms,
            wckeys: w.wckeys.clone(),
        },
        (Verb::Modify, Entity::User) if w.reset_usage => AccountsAsk::ResetUsage {
            accounts: w.accounts.clone(),
        },
        (Verb::Modify, Entity::User) => AccountsAsk::ModifyUsers {
            accounts: w.accounts.clone(),
            default_account: w.default_account.clone(),
            admin_level: w.admin_level.clone(),
            terms,
            wckeys: w.wckeys.clone(),
        },
        (Verb::Delete, Entity::User) if w.wckeys.keys.is_some() && !w.accounts.is_empty() => {
            return Err(Failure::new(" Mixing Account and WCKeys is not allowed"));
        }
        (Verb::Delete, Entity::User) if w.wckeys.keys.is_some() => {
            let keys = w.wckeys.keys.clone();
            AccountsAsk::DeleteWckeys(keys.map(|(_, keys)| keys).unwrap_or_default())
        }
        (Verb::Delete, Entity::User) => AccountsAsk::DeleteUsers {
            accounts: w.accounts.clone(),
        },
        (Verb::Add, Entity::Qos) => AccountsAsk::AddQos(qos),
        (Verb::Modify, Entity::Qos) => AccountsAsk::ModifyQos(qos),
        (Verb::Delete, Entity::Qos) => AccountsAsk::DeleteQos,
    })
}

/// Asks, as sacctmgr does without `-i`.
pub(super) fn agreed() -> Result<bool, Failure> {
    print("Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): ");
    let _ = std::io::stdout().flush();
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| error(format!("no answer could be read: {e}; use -i")))?;
    Ok(line.trim().eq_ignore_ascii_case("y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<(Vec<String>, AccountsAsk), String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (verb, entity) = match (words[0].as_str(), words[1].as_str()) {
            ("add", "account") => (Verb::Add, Entity::Account),
            ("add", "user") => (Verb::Add, Entity::User),
            ("add", "qos") => (Verb::Add, Entity::Qos),
            ("modify", "user") => (Verb::Modify, Entity::User),
            ("modify", "qos") => (Verb::Modify, Entity::Qos),
            ("delete", "user") => (Verb::Delete, Entity::User),
            other => panic!("{other:?}"),
        };
        let read = read(verb, entity, &words[2..]).map_err(|e| e.to_string())?;
        let ask = ask(verb, entity, &read).map_err(|e| e.to_string())?;
        Ok((read.names, ask))
    }

    #[test]
    fn what_users_write() {
        let (names, ask) = asked("add account a,b parent=c fairshare=5 desc=x").unwrap();
        assert_eq!(names, ["a", "b"]);
        let terms = TermsAsk {
            shares: Some(Some(5)),
            ..TermsAsk::default()
        };
        let expected = AccountsAsk::AddAccounts {
            parent: "c".into(),
            description: "x".into(),
            organization: String::new(),
            terms,
        };
        assert_eq!(ask, expected);
        let (names, ask) = asked("modify user where name=u account=a set qos+=high").unwrap();
        assert_eq!(names, ["u"]);
        let AccountsAsk::ModifyUsers {
            accounts, terms, ..
        } = ask
        else {
            panic!("{ask:?}");
        };
        assert_eq!(accounts, ["a"]);
        assert_eq!(terms.qos, Some((Some('+'), vec!["high".into()])));
        let (names, ask) =
            asked("modify qos high set priority=10 preempt=low gracetime=60").unwrap();
        assert_eq!(names, ["high"]);
        let AccountsAsk::ModifyQos(qos) = ask else {
            panic!("{ask:?}");
        };
        assert_eq!((qos.priority, qos.grace_time_s), (Some(10), Some(60)));
        for (line, named) in [
            ("delete user u wckeys=k,l", "u"),
            ("delete user where wckey=k,l cluster=peer", ""),
        ] {
            let (names, ask) = asked(line).unwrap();
            let keys = vec!["k".to_owned(), "l".to_owned()];
            assert_eq!((names, ask), (list(named), AccountsAsk::DeleteWckeys(keys)));
        }
        assert_eq!(
            asked("delete user u account=a wckeys=k"),
            Err(" Mixing Account and WCKeys is not allowed".to_owned())
        );
    }

    #[test]
    fn keys_of_users() {
        let AccountsAsk::AddUsers { wckeys, .. } =
            asked("add user u account=a wckeys=k,l defaultwckey=k")
                .unwrap()
                .1
        else {
            panic!("a user is added");
        };
        let keys = vec!["k".to_owned(), "l".to_owned()];
        let expected = WckeysAsk {
            default: Some("k".into()),
            keys: Some((None, keys)),
        };
        assert_eq!(wckeys, expected);
        let AccountsAsk::ModifyUsers { wckeys, .. } =
            asked("modify user u set wckeys-=k").unwrap().1
        else {
            panic!("a user is changed");
        };
        assert_eq!(wckeys.keys, Some((Some('-'), vec!["k".into()])));
    }

    #[test]
    fn limits_are_refused_by_name() {
        let error = asked("add user u account=a maxtresrunminspu=cpu=5").unwrap_err();
        assert!(error.contains("maxtresrunminspu=cpu=5"), "{error}");
        let error = asked("add user u account=a maxjobs=x").unwrap_err();
        assert!(error.contains("maxjobs=x: expected a number"), "{error}");
        let AccountsAsk::ModifyQos(qos) = asked("modify qos q set maxtresperuser=cpu=4").unwrap().1
        else {
            panic!("a QOS is modified");
        };
        assert_eq!(
            qos.limits,
            [("maxtresperuser".to_owned(), "cpu=4".to_owned())]
        );
        assert!(
            asked("modify user u")
                .unwrap_err()
                .contains("anything to set")
        );
    }
}
