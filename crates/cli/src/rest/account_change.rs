//! Changes of accounting: a body becomes the requests that sacctmgr makes of it. Existing records are changed, missing
//! ones are made.

use super::accounts::{is_chosen, load, nothing};
use super::call::{Call, CallFailure, Outcome};
use super::errno;
use super::http::HttpStatus;
use super::job_keys::{member, text_of};
use crate::sacctmgr::book::Book;
use crate::sacctmgr::settings;
use muster_model::accounts::ROOT;
use muster_model::command::ListEdit;
use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, QosAsk, TermsAsk, UserCommand, WckeysAsk,
};
use serde_json::{Map, Value};

type RecordBody = Map<String, Value>;

/// The records of a list in the body.
pub(super) fn records(call: &mut Call<'_>, names: &[&str]) -> Result<Vec<RecordBody>, CallFailure> {
    let name = names[0];
    let missing = || {
        let why = format!("the body has no list '{name}'");
        CallFailure::numbered(HttpStatus::BAD_REQUEST, errno::FAIL_PARSING, name, why)
    };
    let Value::Object(body) = std::mem::take(&mut call.body) else {
        return Err(missing());
    };
    let list = names.iter().find_map(|name| body.get(*name));
    let Some(Value::Array(items)) = list else {
        return Err(missing());
    };
    let record = |item: &Value| match item {
        Value::Object(record) => Ok(record.clone()),
        _ => Err(CallFailure::malformed(
            name,
            format!("an item of {name} is not an object"),
        )),
    };
    items.iter().map(record).collect()
}

fn text(record: &RecordBody, key: &str) -> Result<Option<String>, CallFailure> {
    text_of(record, key).map_err(|e| CallFailure::malformed(&e.key, format!("{key}: {}", e.why)))
}

fn required(record: &RecordBody, key: &str) -> Result<String, CallFailure> {
    let missing = || CallFailure::malformed(key, format!("a record has no {key}"));
    text(record, key)?.ok_or_else(missing)
}

/// Sends a change of records.
pub(super) fn edit(
    call: &mut Call<'_>,
    names: Vec<String>,
    ask: AccountsAsk,
) -> Result<(), CallFailure> {
    let command = UserCommand::EditAccounts(Box::new(AccountsEdit {
        names,
        ask,
        cluster: String::new(),
    }));
    call.carry_out(command)
}

/// The longest path of members that is looked at.
const PATH_BYTES_MAX: usize = 512;

/// Warns of members that say something and are not read: `is_read` knows the paths of those that are.
pub(super) fn warn_of_unread(
    call: &mut Call<'_>,
    record: &RecordBody,
    above: &str,
    is_read: &dyn Fn(&str) -> bool,
) {
    for (key, value) in record {
        // No key that is read is that long, and each member below would have a copy of it.
        if above.len() + key.len() > PATH_BYTES_MAX {
            let bytes = key.len();
            call.warn(above, format!("a key of {bytes} bytes has no effect here"));
            continue;
        }
        let path = format!("{above}{key}");
        if is_read(&path) {
            continue;
        }
        match (super::value::read(value), value) {
            (Ok(given), _)
                if given.is_empty() || given == super::value::GivenValue::Truth(false) => {}
            (Err(_), Value::Object(members)) => {
                warn_of_unread(call, members, &format!("{path}/"), is_read);
            }
            _ => call.warn(&path, format!("{path} has no effect here")),
        }
    }
}

/// An account that is to be made, or changed if it is there.
struct AccountWanted {
    parent: String,
    description: String,
    organization: String,
    terms: TermsAsk,
}

impl AccountWanted {
    fn ask(self, is_there: bool) -> AccountsAsk {
        let AccountWanted {
            parent,
            description,
            organization,
            terms,
        } = self;
        match is_there {
            true => AccountsAsk::ModifyAccounts {
                parent,
                description,
                organization,
                terms,
            },
            false => AccountsAsk::AddAccounts {
                parent,
                description,
                organization,
                terms,
            },
        }
    }
}

/// A user that is to be made, or changed if it is there.
#[derive(Default)]
struct UserWanted {
    accounts: Vec<String>,
    default_account: String,
    admin_level: String,
    terms: TermsAsk,
    wckeys: WckeysAsk,
    partitions: Vec<String>,
}

impl UserWanted {
    fn ask(self, is_there: bool) -> AccountsAsk {
        let UserWanted {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        } = self;
        match is_there {
            true => AccountsAsk::ModifyUsers {
                accounts,
                default_account,
                admin_level,
                terms,
                wckeys,
                partitions,
            },
            false => AccountsAsk::AddUsers {
                accounts,
                default_account,
                admin_level,
                terms,
                wckeys,
                partitions,
            },
        }
    }
}

fn has_account(book: &Book, name: &str) -> bool {
    name == ROOT || book.all.accounts.contains_key(name)
}

/// `POST accounts`.
pub(super) fn accounts(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["accounts"])?;
    let mut book = load(call)?;
    for record in &records {
        let read = ["name", "description", "organization", "coordinators"];
        warn_of_unread(call, record, "", &|path| read.contains(&path));
        let name = required(record, "name")?;
        let wanted = AccountWanted {
            parent: String::new(),
            description: text(record, "description")?.unwrap_or_default(),
            organization: text(record, "organization")?.unwrap_or_default(),
            terms: TermsAsk::default(),
        };
        let ask = wanted.ask(has_account(&book, &name));
        edit(call, vec![name.clone()], ask)?;
        coordinators(call, record, &name)?;
        // A record that follows may name it again.
        book.all.accounts.entry(name).or_default();
    }
    call.done()
}

fn coordinators(
    call: &mut Call<'_>,
    record: &RecordBody,
    account: &str,
) -> Result<(), CallFailure> {
    let Some(Value::Array(items)) = member(record, "coordinators") else {
        return Ok(());
    };
    let mut names = Vec::new();
    for item in items {
        let name = item.get("name").and_then(Value::as_str);
        let expected =
            || CallFailure::malformed("coordinators", "expected objects that have a name");
        names.push(name.ok_or_else(expected)?.to_owned());
    }
    match names.is_empty() {
        true => Ok(()),
        false => {
            let accounts = vec![account.to_owned()];
            edit(call, names, AccountsAsk::AddCoordinators { accounts })
        }
    }
}

/// `DELETE account/{account_name}`.
pub(super) fn delete_account(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let book = load(call)?;
    if !book.all.accounts.contains_key(&name) {
        return no_change(call, "removed_accounts");
    }
    let removed = associations_text(&book, |account, _| account == name);
    edit(call, vec![name], AccountsAsk::DeleteAccounts)?;
    removed_list(call, "removed_associations", &removed)
}

/// `POST users`.
pub(super) fn users(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["users"])?;
    let mut book = load(call)?;
    for record in &records {
        let read = [
            "name",
            "administrator_level",
            "default/account",
            "default/wckey",
        ];
        warn_of_unread(call, record, "", &|path| read.contains(&path));
        let name = required(record, "name")?;
        let default = member(record, "default").and_then(Value::as_object);
        let of_default = |key: &str| default.map_or(Ok(None), |default| text(default, key));
        let default_account = of_default("account")?.unwrap_or_default();
        let is_there = book.all.users.contains_key(&name);
        let first = Some(default_account.clone()).filter(|name| !is_there && !name.is_empty());
        let wanted = UserWanted {
            accounts: first.into_iter().collect(),
            default_account,
            admin_level: text(record, "administrator_level")?.unwrap_or_default(),
            wckeys: WckeysAsk {
                default: of_default("wckey")?,
                keys: None,
            },
            ..UserWanted::default()
        };
        edit(call, vec![name.clone()], wanted.ask(is_there))?;
        book.all.users.entry(name).or_default();
    }
    call.done()
}

/// `DELETE user/{name}`.
pub(super) fn delete_user(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let book = load(call)?;
    if !book.all.users.contains_key(&name) {
        return no_change(call, "removed_users");
    }
    let ask = AccountsAsk::DeleteUsers {
        accounts: Vec::new(),
        partitions: Vec::new(),
    };
    edit(call, vec![name.clone()], ask)?;
    removed_list(call, "removed_users", &[name])
}

/// Nothing was there that could be taken away, as Slurm answers it.
fn no_change(call: &mut Call<'_>, list: &str) -> Outcome {
    call.warn(call.operation.call, format!("there is no {}", call.name()));
    removed_list(call, list, &[])
}

fn removed_list(call: &mut Call<'_>, key: &str, names: &[String]) -> Outcome {
    Ok(call.document(&call.context(), |w| w.texts(key, names)))
}

fn associations_text(book: &Book, fits: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let all = book.sorted();
    let found = all.iter().filter(|a| fits(a.account, a.user));
    found
        .map(|a| {
            let cluster = &book.cluster;
            let mut text = format!("C = {cluster:<10} A = {:<20}", a.account);
            if !a.user.is_empty() {
                text.push_str(&format!(" U = {:<9}", a.user));
            }
            text.trim_end().to_owned()
        })
        .collect()
}

/// Where a limit of an association stands in a record, and the key of sacctmgr for it.
const ASSOCIATION_LIMITS: &[(&str, &str)] = &[
    ("max/jobs/per/count", "GrpJobs"),
    ("max/jobs/per/submitted", "GrpSubmitJobs"),
    ("max/jobs/per/wall_clock", "MaxWallDurationPerJob"),
    ("max/jobs/active", "MaxJobs"),
    ("max/jobs/total", "MaxSubmitJobs"),
    ("max/tres/total", "GrpTRES"),
    ("max/tres/group/minutes", "GrpTRESMins"),
    ("max/tres/group/active", "GrpTRESRunMins"),
    ("max/tres/minutes/total", "MaxTRESMinsPerJob"),
    ("max/tres/per/job", "MaxTRESPerJob"),
    ("max/tres/per/node", "MaxTRESPerNode"),
    ("max/per/account/wall_clock", "GrpWall"),
    ("min/priority_threshold", "MinPrioThreshold"),
    ("priority", "Priority"),
    ("shares_raw", "FairShare"),
    ("fairshare", "FairShare"),
    ("default/qos", "DefaultQOS"),
    ("defaultqos", "DefaultQOS"),
    ("qos", "QOSLevels"),
];

/// Limits of a QOS.
const QOS_LIMITS: &[(&str, &str)] = &[
    ("description", "Description"),
    ("flags", "Flags"),
    ("limits/grace_time", "GraceTime"),
    ("limits/max/active_jobs/count", "GrpJobs"),
    ("limits/max/jobs/count", "GrpSubmitJobs"),
    ("limits/max/tres/total", "GrpTRES"),
    ("limits/max/tres/minutes/total", "GrpTRESMins"),
    ("limits/max/tres/minutes/per/qos", "GrpTRESRunMins"),
    ("limits/max/tres/minutes/per/job", "MaxTRESMinsPerJob"),
    ("limits/max/tres/per/account", "MaxTRESPerAccount"),
    ("limits/max/tres/per/job", "MaxTRESPerJob"),
    ("limits/max/tres/per/node", "MaxTRESPerNode"),
    ("limits/max/tres/per/user", "MaxTRESPerUser"),
    ("limits/max/wall_clock/per/qos", "GrpWall"),
    ("limits/max/wall_clock/per/job", "MaxWallDurationPerJob"),
    (
        "limits/max/jobs/active_jobs/per/account",
        "MaxJobsPerAccount",
    ),
    ("limits/max/jobs/active_jobs/per/user", "MaxJobsPerUser"),
    ("limits/max/jobs/per/account", "MaxSubmitJobsPerAccount"),
    ("limits/max/jobs/per/user", "MaxSubmitJobsPerUser"),
    ("limits/factor", "LimitFactor"),
    ("limits/min/priority_threshold", "MinPrioThreshold"),
    ("limits/min/tres/per/job", "MinTRESPerJob"),
    ("preempt/list", "Preempt"),
    ("preempt/mode", "PreemptMode"),
    ("preempt/exempt_time", "PreemptExemptTime"),
    ("priority", "Priority"),
    ("usage_factor", "UsageFactor"),
    ("usage_threshold", "UsageThreshold"),
];

/// Value at a path of members, if it is set.
pub(super) fn member_at<'a>(record: &'a RecordBody, path: &str) -> Option<&'a Value> {
    let (above, last) = match path.rsplit_once('/') {
        Some((above, last)) => (member_at(record, above)?.as_object()?, last),
        None => (record, path),
    };
    member(above, last).filter(|value| !value.is_null())
}

/// The settings that a record has, as words of sacctmgr.
fn words(
    record: &RecordBody,
    table: &[(&str, &'static str)],
) -> Result<Vec<(&'static str, String)>, CallFailure> {
    let mut found = Vec::new();
    for (path, key) in table {
        let Some(value) = member_at(record, path) else {
            continue;
        };
        let bad = |why: &str| CallFailure::malformed(path, format!("{path}: {why}"));
        let text = match value {
            Value::Array(items) if items.iter().any(Value::is_object) => {
                tres(items).ok_or_else(|| bad("expected objects of type, name and count"))?
            }
            other => match super::value::read(other).map_err(bad)? {
                super::value::GivenValue::Infinite => "-1".to_owned(),
                given if given.is_empty() => continue,
                given => given.text().unwrap_or_default(),
            },
        };
        if text.contains(['\n', '\0', '"', '\'']) {
            return Err(bad("it has a character that no setting has"));
        }
        found.push((*key, text));
    }
    Ok(found)
}

/// `cpu=4,gres/gpu=2` of a list of TRES.
pub(super) fn tres(items: &[Value]) -> Option<String> {
    let mut texts = Vec::new();
    for item in items {
        let kind = item.get("type")?.as_str()?;
        let name = item
            .get("name")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let count = item.get("count")?.as_i64()?;
        texts.push(match name {
            Some(name) => format!("{kind}/{name}={count}"),
            None => format!("{kind}={count}"),
        });
    }
    Some(texts.join(","))
}

fn terms(record: &RecordBody, book: &Book) -> Result<TermsAsk, CallFailure> {
    let words = words(record, ASSOCIATION_LIMITS)?;
    let terms = settings::association_terms(&words, book);
    terms.map_err(|why| CallFailure::malformed("associations", plain(&why)))
}

/// A text of sacctmgr's without its prefix.
fn plain(why: &str) -> String {
    let why = why.replace("sacctmgr: error: ", "");
    why.trim().to_owned()
}

fn only_own_cluster(record: &RecordBody, book: &Book) -> Result<(), CallFailure> {
    match text(record, "cluster")? {
        Some(cluster) if cluster != book.cluster => {
            let why = format!(
                "only associations of cluster {} are kept here",
                book.cluster
            );
            Err(CallFailure::malformed("cluster", why))
        }
        _ => Ok(()),
    }
}

/// Members of an association that are no settings.
const ASSOCIATION_MEMBERS: [&str; 6] = [
    "account",
    "user",
    "cluster",
    "partition",
    "parent_account",
    "is_default",
];

/// Whether a table of settings has a path.
fn is_setting(table: &[(&str, &str)], path: &str) -> bool {
    table.iter().any(|(own, _)| *own == path)
}

/// `POST associations`.
pub(super) fn associations(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["associations"])?;
    let mut book = load(call)?;
    for record in &records {
        warn_of_unread(call, record, "", &|path| {
            ASSOCIATION_MEMBERS.contains(&path) || is_setting(ASSOCIATION_LIMITS, path)
        });
        only_own_cluster(record, &book)?;
        let account = required(record, "account")?;
        let terms = terms(record, &book)?;
        match text(record, "user")? {
            None => association_of_account(call, &mut book, account, (record, terms))?,
            Some(user) => association_of_user(call, &mut book, (user, account), (record, terms))?,
        }
    }
    call.done()
}

fn association_of_user(
    call: &mut Call<'_>,
    book: &mut Book,
    (user, account): (String, String),
    (record, terms): (&RecordBody, TermsAsk),
) -> Result<(), CallFailure> {
    let partition = text(record, "partition")?.unwrap_or_default();
    let is_default = match member(record, "is_default") {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::Number(number)) => number.as_i64() == Some(1),
        _ => false,
    };
    let known = book.all.users.entry(user.clone()).or_default();
    let is_there = known
        .associations()
        .any(|(own, part, _)| own == account && part == partition);
    let wanted = UserWanted {
        accounts: vec![account.clone()],
        default_account: match is_default {
            true => account.clone(),
            false => String::new(),
        },
        terms,
        partitions: Some(partition.clone())
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect(),
        ..UserWanted::default()
    };
    edit(call, vec![user], wanted.ask(is_there))?;
    match partition.is_empty() {
        true => drop(known.accounts.entry(account).or_default()),
        false => {
            let parts = known.partitions.entry(account).or_default();
            parts.entry(partition).or_default();
        }
    }
    Ok(())
}

fn association_of_account(
    call: &mut Call<'_>,
    book: &mut Book,
    account: String,
    (record, terms): (&RecordBody, TermsAsk),
) -> Result<(), CallFailure> {
    let parent = text(record, "parent_account")?.unwrap_or_default();
    let is_there = has_account(book, &account);
    if is_there && parent.is_empty() && terms == TermsAsk::default() {
        // An account has its association from the beginning.
        return Ok(());
    }
    let wanted = AccountWanted {
        parent,
        description: String::new(),
        organization: String::new(),
        terms,
    };
    edit(call, vec![account.clone()], wanted.ask(is_there))?;
    book.all.accounts.entry(account).or_default();
    Ok(())
}

/// `DELETE associations` and `DELETE association`. Without a condition nothing is chosen: not everything.
pub(super) fn delete_associations(call: &mut Call<'_>) -> Outcome {
    let is_condition =
        |name: &str| matches!(name, "account" | "user" | "partition" | "id" | "cluster");
    if let Some((other, _)) = call.query.iter().find(|(name, _)| !is_condition(name)) {
        let why = format!("Unknown Query field {other}");
        return Err(CallFailure::malformed(&other.clone(), why));
    }
    let named = |name: &str| call.parameter(name).is_some_and(|value| !value.is_empty());
    if !["account", "user", "id", "partition"]
        .iter()
        .any(|name| named(name))
    {
        return Err(CallFailure::malformed(
            "account",
            "no condition chooses the associations: say account, user, partition or id",
        ));
    }
    let book = load(call)?;
    let all = book.sorted();
    let chosen: Vec<_> = all.iter().filter(|a| is_chosen(call, a, &book)).collect();
    if call.operation.path == "association" && chosen.len() > 1 {
        return Err(CallFailure::malformed(
            "association",
            "Ambiguous request: More than 1 association would be deleted.",
        ));
    }
    let mut removed = Vec::new();
    // Users first, so that an account has none when it goes.
    for association in chosen.iter().filter(|a| !a.user.is_empty()) {
        let ask = AccountsAsk::DeleteUsers {
            accounts: vec![association.account.to_owned()],
            partitions: Some(association.partition.to_owned())
                .filter(|p| !p.is_empty())
                .into_iter()
                .collect(),
        };
        edit(call, vec![association.user.to_owned()], ask)?;
        removed.push(format!(
            "C = {:<10} A = {:<10} U = {}",
            book.cluster, association.account, association.user
        ));
    }
    for association in chosen
        .iter()
        .filter(|a| a.user.is_empty() && a.account != ROOT)
    {
        let names = vec![association.account.to_owned()];
        edit(call, names, AccountsAsk::DeleteAccounts)?;
        removed.push(format!(
            "C = {:<10} A = {}",
            book.cluster, association.account
        ));
    }
    if removed.is_empty() {
        call.warn(call.operation.call, "the conditions choose no association");
    }
    removed_list(call, "removed_associations", &removed)
}

/// `POST qos`.
pub(super) fn qos(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["qos", "QOS"])?;
    let mut book = load(call)?;
    for record in &records {
        warn_of_unread(call, record, "", &|path| {
            path == "name" || is_setting(QOS_LIMITS, path)
        });
        let name = required(record, "name")?;
        let words = words(record, QOS_LIMITS)?;
        let ask: QosAsk = settings::qos_ask(&words, &book)
            .map_err(|why| CallFailure::malformed("qos", plain(&why)))?;
        let ask = match book.all.qos(&name) {
            Some(_) => AccountsAsk::ModifyQos(ask),
            None => AccountsAsk::AddQos(ask),
        };
        edit(call, vec![name.clone()], ask)?;
        let made = book.all.qos.entry(name.clone()).or_default();
        made.name = name;
    }
    call.done()
}

/// `DELETE qos/{qos}`.
pub(super) fn delete_qos(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let book = load(call)?;
    if book.all.qos(&name).is_none() {
        return Err(nothing(call, "qos"));
    }
    edit(call, vec![name.clone()], AccountsAsk::DeleteQos)?;
    removed_list(call, "removed_qos", &[name])
}

/// `POST wckeys`.
pub(super) fn wckeys(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["wckeys"])?;
    let book = load(call)?;
    for record in &records {
        let read = ["name", "user", "cluster"];
        warn_of_unread(call, record, "", &|path| read.contains(&path));
        only_own_cluster(record, &book)?;
        let (name, user) = (required(record, "name")?, required(record, "user")?);
        let wanted = UserWanted {
            wckeys: WckeysAsk {
                default: None,
                keys: Some(ListEdit {
                    sign: Some('+'),
                    names: vec![name],
                }),
            },
            ..UserWanted::default()
        };
        edit(call, vec![user], wanted.ask(true))?;
    }
    call.done()
}

/// `DELETE wckey/{id}`: by its name, of all users who have it.
pub(super) fn delete_wckey(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    let book = load(call)?;
    let mut users = book.all.users.values();
    if !users.any(|user| user.wckeys.contains(&name)) {
        return Err(nothing(call, "wckey"));
    }
    edit(
        call,
        Vec::new(),
        AccountsAsk::DeleteWckeys(vec![name.clone()]),
    )?;
    removed_list(call, "deleted_wckeys", &[name])
}

/// `POST clusters`.
pub(super) fn clusters(call: &mut Call<'_>) -> Outcome {
    let records = records(call, &["clusters"])?;
    let mut book = load(call)?;
    for record in &records {
        warn_of_unread(call, record, "", &|path| path == "name");
        let name = required(record, "name")?;
        if name != book.cluster && !book.all.clusters.contains_key(&name) {
            let ask = AccountsAsk::AddClusters(ClusterAsk::default());
            edit(call, vec![name.clone()], ask)?;
            book.all.clusters.entry(name).or_default();
        }
    }
    call.done()
}

/// `DELETE cluster/{cluster_name}`.
pub(super) fn delete_cluster(call: &mut Call<'_>) -> Outcome {
    let name = call.name().to_owned();
    edit(call, vec![name.clone()], AccountsAsk::DeleteClusters)?;
    removed_list(call, "deleted_clusters", &[name])
}

/// Common parts of bodies of `users_association` and `accounts_association`: names that get an association, and its
/// settings.
struct AssociationBody {
    condition: RecordBody,
    association: RecordBody,
    terms: TermsAsk,
    /// The record of the user or account.
    of: RecordBody,
}

impl AssociationBody {
    fn read(call: &mut Call<'_>, of: &str) -> Result<AssociationBody, CallFailure> {
        let body = std::mem::take(&mut call.body);
        let part = |value: &Value, name: &str| value.get(name).and_then(Value::as_object).cloned();
        let name = "association_condition";
        let missing = || CallFailure::malformed(name, format!("the body has no {name}"));
        let condition = part(&body, name).ok_or_else(missing)?;
        let association = member(&condition, "association").and_then(Value::as_object);
        let association = association.cloned().unwrap_or_default();
        let book = load(call)?;
        Ok(AssociationBody {
            terms: terms(&association, &book)?,
            of: part(&body, of).unwrap_or_default(),
            condition,
            association,
        })
    }

    fn names(&self, key: &str) -> Result<Vec<String>, CallFailure> {
        let list = text(&self.condition, key)?.unwrap_or_default();
        let names = list.split(',').filter(|name| !name.is_empty());
        Ok(names.map(str::to_owned).collect())
    }

    /// As above, for a list that must not be empty.
    fn some_names(&self, key: &str) -> Result<Vec<String>, CallFailure> {
        let names = self.names(key)?;
        let missing =
            || CallFailure::malformed(key, format!("association_condition names no {key}"));
        (!names.is_empty()).then_some(names).ok_or_else(missing)
    }

    fn of(&self, key: &str) -> Result<String, CallFailure> {
        Ok(text(&self.of, key)?.unwrap_or_default())
    }
}

fn added(call: &mut Call<'_>, key: &str, names: &[String]) -> Outcome {
    Ok(call.document(&call.context(), |w| w.text(key, &names.join("\n"))))
}

/// `POST users_association`.
pub(super) fn users_association(call: &mut Call<'_>) -> Outcome {
    let asked = AssociationBody::read(call, "user")?;
    let users = asked.some_names("users")?;
    let ask = AccountsAsk::AddUsers {
        accounts: asked.names("accounts")?,
        default_account: asked.of("defaultaccount")?,
        admin_level: asked.of("adminlevel")?,
        partitions: asked.names("partitions")?,
        wckeys: WckeysAsk::default(),
        terms: asked.terms,
    };
    edit(call, users.clone(), ask)?;
    added(call, "added_users", &users)
}

/// `POST accounts_association`.
pub(super) fn accounts_association(call: &mut Call<'_>) -> Outcome {
    let asked = AssociationBody::read(call, "account")?;
    let accounts = asked.some_names("accounts")?;
    let ask = AccountsAsk::AddAccounts {
        parent: text(&asked.association, "parent")?.unwrap_or_default(),
        description: asked.of("description")?,
        organization: asked.of("organization")?,
        terms: asked.terms,
    };
    edit(call, accounts.clone(), ask)?;
    added(call, "added_accounts", &accounts)
}
