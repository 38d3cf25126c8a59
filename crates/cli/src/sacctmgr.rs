//! sacctmgr: accounts, users with their associations, and QOS, which the controller keeps. Users that nobody added
//! are in one account that has their own name, as accounting books it. Of limits those are kept that count jobs, and
//! what they have at once; others are refused by name.

mod coordinator;
mod edit;
mod events;
mod flat_file;
mod preview;
mod rows;

use self::rows::{accounts, qos, tres, wckeys};
use crate::SLURM_VERSION;
use crate::connect::{Client, ConnectError};
use crate::listing::{Failure, print, query};
use crate::options::{Spec, flag};
use crate::people;
use muster_model::account_limits::{Amounts, Limits};
use muster_model::accounts::{Accounts, NORMAL, PARENT_SHARES, Qos, ROOT, Terms};

/// What sacctmgr knows.
pub(crate) static SPEC: Spec = Spec {
    name: "sacctmgr",
    about: "Shows and changes accounts, users with their associations, and QOS.",
    operands: "show|add|modify|delete ENTITY [NAME,...] [KEY=VALUE...] [set KEY=VALUE...]",
    options: &[
        flag("associations", "with 'show user': associations, too").short('s'),
        flag("help", "print this help"),
        flag("immediate", "commit at once").short('i'),
        flag("noheader", "no line above the columns").short('n'),
        flag("parsable", "columns separated by '|', and one at the end").short('p'),
        flag("parsable2", "columns separated by '|'").short('P'),
        flag("quiet", "say less").short('Q'),
        flag("readonly", "refuse changes").short('r'),
        flag("usage", "print a short summary"),
        flag("verbose", "say more")
            .short('v')
            .stored("there is no more to say"),
        flag("version", "print the version").short('V'),
    ],
    variables: &[],
    notes: "Entities are account, coordinator, user, qos, association, cluster and tres; to show, event, problem and runawayjobs as \
            well. 'dump CLUSTER [file=FILE]' writes accounts and users to a file, 'load FILE [clean]' reads it. A user that nobody added is in an account of the same name. Limits on use over time are not kept. Nor are \
            transactions: the journal has all changes, but not who made them. Accounting is one SQLite file, which is \
            archived by copying it ('sqlite3 FILE .backup'), so there is no 'archive'.\n",
};

/// A line: a user in an account, an account, or a QOS.
#[derive(Default)]
struct Row {
    cluster: String,
    account: String,
    user: String,
    default_account: String,
    default_wckey: String,
    wckey: String,
    admin_level: String,
    /// Accounts that a user coordinates, or coordinators of an account.
    coordinators: String,
    parent: String,
    description: String,
    organization: String,
    terms: Terms,
    qos: Qos,
    kind: String,
    id: String,
}

struct Field {
    /// Name in `format=`; any beginning of it will do.
    name: &'static str,
    header: &'static str,
    width: usize,
    value: fn(&Row) -> String,
}

const fn field(
    name: &'static str,
    header: &'static str,
    width: usize,
    value: fn(&Row) -> String,
) -> Field {
    Field {
        name,
        header,
        width,
        value,
    }
}

/// Limits are unset, which Slurm shows as nothing.
const fn unset(name: &'static str, width: usize) -> Field {
    field(name, name, width, |_| String::new())
}

fn shares(row: &Row) -> String {
    match row.terms.shares {
        Some(PARENT_SHARES) => "parent".to_owned(),
        shares => shares.unwrap_or(1).to_string(),
    }
}

/// `[days-]hours:minutes:seconds`.
fn clock(seconds: u32) -> String {
    let (days, s) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    match days {
        0 => time,
        days => format!("{days}-{time}"),
    }
}

fn clock_of_minutes(minutes: u64) -> String {
    clock(u32::try_from(minutes.saturating_mul(60)).unwrap_or(u32::MAX))
}

/// Limits of a row: those of its QOS, or of its association.
fn limits(r: &Row) -> &Limits {
    match r.qos.name.is_empty() {
        true => &r.terms.limits,
        false => &r.qos.limits,
    }
}

fn count(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |n| n.to_string())
}

fn amounts(of: &Amounts) -> String {
    let words = of.iter().map(|(name, count)| match name.as_str() {
        "mem" => format!("mem={count}M"),
        _ => format!("{name}={count}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// Where a beginning fits several, the first is meant.
static FIELDS: &[Field] = &[
    field("Cluster", "Cluster", 10, |r| r.cluster.clone()),
    field("Account", "Account", 10, |r| r.account.clone()),
    field("User", "User", 10, |r| r.user.clone()),
    unset("Partition", 10),
    field("Share", "Share", 9, shares),
    field("Fairshare", "Share", 9, shares),
    field("Priority", "Priority", 10, |r| {
        if r.qos.name.is_empty() {
            r.terms.priority.map_or(String::new(), |p| p.to_string())
        } else {
            r.qos.priority.to_string()
        }
    }),
    field("GrpJobs", "GrpJobs", 7, |r| count(limits(r).grp_jobs)),
    field("GrpTRES", "GrpTRES", 13, |r| amounts(&limits(r).grp_tres)),
    field("GrpSubmit", "GrpSubmit", 9, |r| count(limits(r).grp_submit)),
    field("GrpWall", "GrpWall", 11, |r| {
        let minutes = limits(r)
            .grp_wall_min
            .and_then(|m| u32::try_from(m * 60).ok());
        minutes.map_or(String::new(), clock)
    }),
    field("GrpTRESMins", "GrpTRESMins", 13, |r| {
        amounts(&limits(r).grp_tres_mins)
    }),
    unset("GrpCPUs", 8),
    unset("GrpMem", 7),
    unset("GrpNodes", 8),
    field("MaxJobs", "MaxJobs", 7, |r| count(r.terms.limits.max_jobs)),
    field("MaxTRES", "MaxTRES", 13, |r| amounts(&limits(r).max_tres)),
    field("MaxTRESPerNode", "MaxTRESPerNode", 14, |r| {
        amounts(&limits(r).max_tres_node)
    }),
    field("MaxSubmit", "MaxSubmit", 9, |r| {
        count(r.terms.limits.max_submit)
    }),
    field("MaxWall", "MaxWall", 11, |r| {
        limits(r)
            .max_wall_min
            .map_or(String::new(), |m| clock(m * 60))
    }),
    field("MaxTRESMins", "MaxTRESMins", 13, |r| {
        amounts(&limits(r).max_tres_mins)
    }),
    field("QOS", "QOS", 20, |r| {
        r.terms
            .qos
            .as_ref()
            .map_or(NORMAL.to_owned(), |q| q.join(","))
    }),
    field("DefaultQOS", "Def QOS", 9, |r| {
        r.terms.default_qos.clone().unwrap_or_default()
    }),
    field("GrpTRESRunMin", "GrpTRESRunMin", 13, |r| {
        amounts(&limits(r).grp_tres_run_mins)
    }),
    field("DefaultAccount", "Def Acct", 10, |r| {
        r.default_account.clone()
    }),
    field("DefaultWCKey", "Def WCKey", 10, |r| r.default_wckey.clone()),
    field("WCKey", "WCKey", 10, |r| r.wckey.clone()),
    field("AdminLevel", "Admin", 9, |r| r.admin_level.clone()),
    field("Coordinators", "Coord Accounts", 20, |r| {
        r.coordinators.clone()
    }),
    field("ParentName", "Par Name", 10, |r| r.parent.clone()),
    field("Description", "Descr", 20, |r| r.description.clone()),
    field("Organization", "Org", 20, |r| r.organization.clone()),
    field("Name", "Name", 10, |r| r.qos.name.clone()),
    field("GraceTime", "GraceTime", 10, |r| clock(r.qos.grace_time_s)),
    field("Preempt", "Preempt", 10, |r| r.qos.preempt.join(",")),
    field("PreemptExemptTime", "PreemptExemptTime", 19, |r| {
        r.qos.preempt_exempt_s.map_or(String::new(), clock)
    }),
    field("PreemptMode", "PreemptMode", 11, |r| {
        let mode = r.qos.preempt_mode.as_deref().unwrap_or("cluster");
        mode.to_ascii_lowercase()
    }),
    field("Flags", "Flags", 40, |r| r.qos.flags.join(",")),
    unset("UsageThres", 10),
    field("UsageFactor", "UsageFactor", 11, |r| {
        let millionths = r.qos.usage_factor_millionths.unwrap_or(1_000_000);
        format!("{:.6}", millionths as f64 / 1e6)
    }),
    field("MaxTRESPU", "MaxTRESPU", 13, |r| {
        amounts(&r.qos.limits.max_tres_user)
    }),
    field("MaxJobsPU", "MaxJobsPU", 9, |r| {
        count(r.qos.limits.max_jobs)
    }),
    field("MaxSubmitPU", "MaxSubmitPU", 11, |r| {
        count(r.qos.limits.max_submit)
    }),
    field("MaxTRESPA", "MaxTRESPA", 13, |r| {
        amounts(&r.qos.limits.max_tres_account)
    }),
    field("MaxJobsPA", "MaxJobsPA", 9, |r| {
        count(r.qos.limits.max_jobs_account)
    }),
    field("MaxSubmitPA", "MaxSubmitPA", 11, |r| {
        count(r.qos.limits.max_submit_account)
    }),
    field("GrpJobsAccrue", "GrpJobsAccrue", 13, |r| {
        count(limits(r).grp_jobs_accrue)
    }),
    field("MaxJobsAccrue", "MaxJobsAccrue", 13, |r| {
        count(r.terms.limits.max_jobs_accrue)
    }),
    field("MaxJobsAccruePU", "MaxJobsAccruePU", 15, |r| {
        count(r.qos.limits.max_jobs_accrue)
    }),
    field("MaxJobsAccruePA", "MaxJobsAccruePA", 15, |r| {
        count(r.qos.limits.max_jobs_accrue_account)
    }),
    field("MaxTRESRunMinsPU", "MaxTRESRunMinsPU", 15, |r| {
        amounts(&r.qos.limits.max_tres_run_mins_user)
    }),
    field("MaxTRESRunMinsPA", "MaxTRESRunMinsPA", 15, |r| {
        amounts(&r.qos.limits.max_tres_run_mins_account)
    }),
    field("MinPrioThreshold", "MinPrioThres", 12, |r| {
        count(r.qos.limits.min_priority)
    }),
    field("MinTRES", "MinTRES", 13, |r| {
        amounts(&r.qos.limits.min_tres)
    }),
    field("ControlHost", "ControlHost", 15, |r| r.description.clone()),
    field("ControlPort", "ControlPort", 12, |r| r.organization.clone()),
    field("RPC", "RPC", 5, |r| r.parent.clone()),
    field("Type", "Type", 8, |r| r.kind.clone()),
    field("ID", "ID", 6, |r| r.id.clone()),
];

const USER: &str = "User,DefaultAccount,AdminLevel";
const USER_ASSOCIATIONS: &str = "User,DefaultAccount,AdminLevel,Cluster,Account,Partition,Share,Priority,MaxJobs,\
     MaxSubmit,MaxTRES,MaxWall,QOS,DefaultQOS";
const ASSOCIATION: &str = "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,\
     GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMin";

const ACCOUNT: &str = "Account,Description,Organization";
const ACCOUNT_ASSOCIATIONS: &str = "Account,Description,Organization,Cluster,ParentName,User,Share,Priority,GrpJobs,\
     GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS";
const QOS: &str = "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThres,UsageFactor,\
     GrpTRES,GrpTRESMins,GrpTRESRunMin,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,\
     MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES";
const CLUSTER: &str = "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,\
     MaxWall,QOS,DefaultQOS";
const WCKEY: &str = "WCKey,Cluster,User";
const TRES: &str = "Type,Name%15,ID";

/// How a listing is laid out.
#[derive(Default)]
struct Style {
    no_header: bool,
    /// A `|` between fields, not columns.
    parsable: bool,
    /// And one at the end.
    last: bool,
}

/// The same for listings that are laid out as tables.
fn style_of(style: &Style) -> crate::listing::table::Style {
    crate::listing::table::Style {
        bare: style.no_header,
        bars: style.parsable.then_some(style.last),
    }
}

/// Runs sacctmgr.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let mut style = Style::default();
    let mut associations = false;
    for (name, _) in &parsed.options {
        match *name {
            "version" => return print_text(&format!("slurm {SLURM_VERSION}\n")),
            "help" => return print_text(&SPEC.help()),
            "usage" => return print_text(&SPEC.usage()),
            "noheader" => style.no_header = true,
            "parsable" => (style.parsable, style.last) = (true, true),
            "parsable2" => (style.parsable, style.last) = (true, false),
            "associations" => associations = true,
            // Nothing is asked, and nothing is changed.
            _ => {}
        }
    }
    let has = |name: &str| parsed.options.iter().any(|(n, _)| *n == name);
    if let Some(done) = edit::run(&parsed.operands, has("immediate"), has("quiet")) {
        if has("readonly") {
            return Err(Failure::new(
                "sacctmgr: error: --readonly allows no changes",
            ));
        }
        return done;
    }
    if let [verb, what, ..] = parsed.operands.as_slice()
        && (begins("show", verb) || begins("list", verb))
        && begins("runawayjobs", what)
    {
        return no_runaways();
    }
    if let [verb, what, rest @ ..] = parsed.operands.as_slice()
        && (begins("show", verb) || begins("list", verb))
    {
        match what.to_ascii_lowercase().as_str() {
            word if begins("events", word) => return events::show(rest, &style),
            word if begins("problems", word) => return events::problems(&style),
            _ => {}
        }
    }
    match parsed.operands.split_first() {
        Some((verb, rest)) if begins("dump", verb) => return flat_file::dump(rest),
        Some((verb, rest)) if verb.len() > 1 && begins("load", verb) => {
            if has("readonly") {
                return Err(Failure::new(
                    "sacctmgr: error: --readonly allows no changes",
                ));
            }
            return flat_file::load(rest, has("immediate"));
        }
        _ => {}
    }
    let question = Question::new(&parsed.operands, associations)?;
    let failed = |e: ConnectError| Failure::new(format!("sacctmgr: error: {e}"));
    let mut client = Client::connect().map_err(failed)?;
    let answer = query::accounts(&mut client).map_err(failed)?;
    let host = client.endpoint.hosts.first().cloned().unwrap_or_default();
    print(&render(
        &question.columns()?,
        &style,
        &question.rows(&answer.cluster, &host, &answer.accounts),
    ));
    Ok(())
}

/// Accounting follows the controller's own events, so no job of it can run on there alone.
fn no_runaways() -> Result<(), Failure> {
    let client = Client::connect().map_err(|e| Failure::new(format!("sacctmgr: error: {e}")))?;
    print_text(&format!(
        "Runaway Jobs: No runaway jobs found on cluster {}\n",
        client.endpoint.cluster
    ))
}

fn print_text(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// The options of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entity {
    User,
    Association,
    Account,
    Qos,
    Cluster,
    Tres,
    Wckey,
}

/// Which lines, and which columns.
#[derive(Debug)]
struct Question {
    entity: Entity,
    /// One line for each association, not for each user or account.
    associations: bool,
    format: String,
    names: Option<Vec<String>>,
    users: Option<Vec<String>>,
    accounts: Option<Vec<String>>,
    clusters: Option<Vec<String>>,
}

impl Question {
    fn new(words: &[String], associations: bool) -> Result<Question, Failure> {
        let mut words = words.iter().map(String::as_str);
        let verb = words.next().unwrap_or("");
        if !begins("show", verb) && !begins("list", verb) {
            return Err(Failure::new(format!(
                "sacctmgr: error: '{verb}' is not implemented: show, add, modify, delete, dump and load are"
            )));
        }
        let entity = words.next().unwrap_or("");
        let (flags, words): (Vec<&str>, Vec<&str>) =
            words.partition(|word| begins("withassoc", word) || begins("withcoord", word));
        let flagged = |name: &str| flags.iter().any(|word| begins(name, word));
        let associations = associations || flagged("withassoc");
        let (entity, format) = match entity.strip_suffix('s').unwrap_or(entity) {
            "qo" | "qos" => (Entity::Qos, QOS),
            "tre" | "tres" => (Entity::Tres, TRES),
            word if begins("user", word) && associations => (Entity::User, USER_ASSOCIATIONS),
            word if begins("user", word) => (Entity::User, USER),
            word if begins("association", word) && word.len() > 1 => {
                (Entity::Association, ASSOCIATION)
            }
            word if begins("account", word) && associations => {
                (Entity::Account, ACCOUNT_ASSOCIATIONS)
            }
            word if begins("account", word) => (Entity::Account, ACCOUNT),
            word if begins("cluster", word) => (Entity::Cluster, CLUSTER),
            word if begins("wckey", word) => (Entity::Wckey, WCKEY),
            _ => {
                return Err(Failure::new(format!(
                    "sacctmgr: error: show {entity} is not implemented; user, association, account, qos, cluster, tres, \
                     wckey, event, problem and runawayjobs are"
                )));
            }
        };
        let mut question = Question {
            entity,
            associations,
            format: match flagged("withcoord") {
                true => format!("{format},Coordinators"),
                false => format.to_owned(),
            },
            names: None,
            users: None,
            accounts: None,
            clusters: None,
        };
        for word in words
            .into_iter()
            .filter(|w| !w.eq_ignore_ascii_case("where"))
        {
            let (key, value) = word.split_once('=').unwrap_or(("name", word));
            question.set(key, value, word)?;
        }
        Ok(question)
    }

    fn set(&mut self, key: &str, value: &str, word: &str) -> Result<(), Failure> {
        let key = key.to_ascii_lowercase();
        let list = || Some(value.split(',').map(str::to_owned).collect());
        match key.strip_suffix('s').unwrap_or(&key) {
            "format" => self.format = value.to_owned(),
            "name" if self.entity == Entity::User => self.users = list(),
            "name" if self.entity == Entity::Account => self.accounts = list(),
            "name" => self.names = list(),
            "user" => self.users = list(),
            "account" | "acct" | "defaultaccount" => self.accounts = list(),
            "cluster" => self.clusters = list(),
            "tree" | "withassoc" => {}
            _ => {
                return Err(Failure::new(format!(
                    "sacctmgr: error: Unknown condition: {word}; name=, user=, account=, cluster= and format= are \
                     implemented"
                )));
            }
        }
        Ok(())
    }

    fn columns(&self) -> Result<Vec<(&'static Field, usize)>, Failure> {
        let words = self.format.split(',').map(str::trim);
        words.filter(|w| !w.is_empty()).map(column).collect()
    }

    fn rows(&self, cluster: &str, host: &str, all: &Accounts) -> Vec<Row> {
        let fits = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_none_or(|l| l.iter().any(|n| n == name))
        };
        if !fits(&self.clusters, cluster) {
            return Vec::new();
        }
        let mut rows = match self.entity {
            Entity::User => self.users(all),
            Entity::Association => self.associations(all),
            Entity::Account => accounts(all, self.associations),
            Entity::Qos => qos(all),
            Entity::Cluster => vec![Row {
                description: host.to_owned(),
                parent: "9728".to_owned(),
                ..Row::default()
            }],
            Entity::Tres => tres(),
            Entity::Wckey => wckeys(all),
        };
        for row in &mut rows {
            row.cluster = cluster.to_owned();
        }
        rows.retain(|row| match self.entity {
            Entity::Account => fits(&self.accounts, &row.account),
            Entity::Qos => fits(&self.names, &row.qos.name),
            Entity::Cluster | Entity::Tres => true,
            Entity::Wckey => fits(&self.names, &row.wckey) && fits(&self.users, &row.user),
            Entity::User if !self.associations => {
                fits(&self.users, &row.user) && fits(&self.accounts, &row.default_account)
            }
            Entity::User | Entity::Association => {
                fits(&self.users, &row.user) && fits(&self.accounts, &row.account)
            }
        });
        rows
    }

    /// Users that were added; of others those that are named, or the one who asks.
    fn users(&self, all: &Accounts) -> Vec<Row> {
        let mut rows = Vec::new();
        for user in all.users.values() {
            let row = |account: &str, terms: &Terms| Row {
                user: user.name.clone(),
                default_account: user.default_account.clone(),
                default_wckey: user.default_wckey.clone(),
                admin_level: level(&user.name, &user.admin_level),
                coordinators: rows::coordinated(all, &user.name),
                account: account.to_owned(),
                terms: terms.clone(),
                ..Row::default()
            };
            if self.associations {
                rows.extend(user.accounts.iter().map(|(a, t)| row(a, t)));
            } else {
                rows.push(row(&user.default_account, &Terms::default()));
            }
        }
        rows.extend(self.others(all).into_iter().map(|user| Row {
            default_account: user.clone(),
            admin_level: level(&user, "None"),
            account: user.clone(),
            user,
            ..Row::default()
        }));
        rows
    }

    fn others(&self, all: &Accounts) -> Vec<String> {
        let own = || people::user_of_uid(nix::unistd::getuid().as_raw());
        let named = self.users.as_ref().or(self.accounts.as_ref());
        let users: Vec<nix::unistd::User> = match named {
            Some(names) => names
                .iter()
                .filter_map(|name| people::user_named(name))
                .collect(),
            None if all.users.is_empty() => Vec::from_iter(own()),
            None => Vec::new(),
        };
        let names = users.into_iter().map(|user| user.name);
        names.filter(|n| !all.users.contains_key(n)).collect()
    }

    fn associations(&self, all: &Accounts) -> Vec<Row> {
        let mut rows = Vec::new();
        if !all.users.is_empty() || !all.accounts.is_empty() {
            // The tree from the root down.
            for share in &all.shares {
                let terms = match (all.users.get(&share.user), all.accounts.get(&share.account)) {
                    (Some(user), _) => user.accounts.get(&share.account).cloned(),
                    (None, Some(account)) if share.user.is_empty() => Some(account.terms.clone()),
                    (None, _) => (share.account == ROOT).then(Terms::default),
                };
                let Some(terms) = terms else { continue };
                rows.push(Row {
                    account: share.account.clone(),
                    user: share.user.clone(),
                    terms,
                    ..Row::default()
                });
            }
        }
        rows.extend(self.others(all).into_iter().map(|user| Row {
            account: user.clone(),
            user,
            ..Row::default()
        }));
        rows
    }
}

/// Root may do everything, whatever its record says.
fn level(user: &str, level: &str) -> String {
    let known = if user == "root" {
        "Administrator"
    } else {
        level
    };
    known.to_owned()
}

/// Whether a word is the beginning of a name, in any case.
fn begins(name: &str, word: &str) -> bool {
    let start = name.get(..word.len());
    !word.is_empty() && start.is_some_and(|s| s.eq_ignore_ascii_case(word))
}

/// A field of `format=` and its width.
fn column(word: &str) -> Result<(&'static Field, usize), Failure> {
    let (name, width) = word.split_once('%').unwrap_or((word, ""));
    let field = FIELDS
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case(name))
        .or_else(|| FIELDS.iter().find(|f| begins(f.name, name)))
        .ok_or_else(|| {
            let names: Vec<&str> = FIELDS.iter().map(|f| f.name).collect();
            Failure::new(format!(
                "sacctmgr: error: Unknown field '{name}'; these exist: {}",
                names.join(", ")
            ))
        })?;
    match width {
        "" => Ok((field, field.width)),
        digits => match digits.parse() {
            Ok(width) if width <= usize::from(u16::MAX) => Ok((field, width)),
            _ => Err(Failure::new(format!(
                "sacctmgr: error: '{word}': the width of a column is a number, such as {name}%20"
            ))),
        },
    }
}

fn render(columns: &[(&'static Field, usize)], style: &Style, rows: &[Row]) -> String {
    let mut out = String::new();
    if !style.no_header {
        line(&mut out, columns, style, |f| f.header.to_owned());
        if !style.parsable {
            for (_, width) in columns {
                out.extend(std::iter::repeat_n('-', *width));
                out.push(' ');
            }
            out.push('\n');
        }
    }
    for row in rows {
        line(&mut out, columns, style, |f| (f.value)(row));
    }
    out
}

fn line(
    out: &mut String,
    columns: &[(&'static Field, usize)],
    style: &Style,
    cell: impl Fn(&'static Field) -> String,
) {
    for (i, (field, width)) in columns.iter().enumerate() {
        let text = cell(field);
        if style.parsable {
            out.push_str(if i > 0 && !style.last { "|" } else { "" });
            out.push_str(&text);
            out.push_str(if style.last { "|" } else { "" });
        } else if text.chars().count() > *width {
            out.extend(text.chars().take(width.saturating_sub(1)));
            out.push_str("+ ");
        } else {
            out.push_str(&format!("{text:>width$} "));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &str, style: &Style) -> Result<String, String> {
        shown_of(words, style, &Accounts::default())
    }

    fn shown_of(words: &str, style: &Style, all: &Accounts) -> Result<String, String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let question = Question::new(&words, false).map_err(|e| e.to_string())?;
        let columns = question.columns().map_err(|e| e.to_string())?;
        Ok(render(&columns, style, &question.rows("site", "host", all)))
    }

    const BARE: Style = Style {
        no_header: true,
        parsable: true,
        last: false,
    };

    #[test]
    fn what_clients_ask() {
        for words in [
            "show user root format=defaultaccount",
            "list Association format=account user=root",
            "show assoc where users=root cluster=site format=Acc",
        ] {
            assert_eq!(shown(words, &BARE).unwrap(), "root\n", "{words}");
        }
        let limits = "show assoc user=root format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit";
        assert_eq!(shown(limits, &BARE).unwrap(), "root|root||||\n");
        assert_eq!(shown("show user no.such.user", &BARE).unwrap(), "");
    }

    #[test]
    fn columns_are_slurms() {
        assert_eq!(
            shown("show user root", &Style::default()).unwrap(),
            "      User   Def Acct     Admin \n\
             ---------- ---------- --------- \n\
             \u{20}     root       root Administ+ \n"
        );
        assert_eq!(
            shown("list user root format=account%12", &Style::default()).unwrap(),
            "     Account \n------------ \n        root \n"
        );
    }

    #[test]
    fn what_was_added() {
        let mut all = Accounts::default();
        let user = muster_model::accounts::User {
            name: "nobody".into(),
            default_account: "bio".into(),
            admin_level: "None".into(),
            accounts: [("bio".to_owned(), Terms::default())].into(),
            ..Default::default()
        };
        all.users.insert("nobody".into(), user);
        let account = muster_model::accounts::Account {
            name: "bio".into(),
            parent: ROOT.into(),
            ..Default::default()
        };
        all.accounts.insert("bio".into(), account);
        let list = "list user nobody format=user,defaultaccount";
        assert_eq!(shown_of(list, &BARE, &all).unwrap(), "nobody|bio\n");
        assert_eq!(
            shown_of("show account format=account", &BARE, &all).unwrap(),
            "bio\nroot\n"
        );
        assert_eq!(
            shown_of("show qos format=name,priority", &BARE, &all).unwrap(),
            "normal|0\n"
        );
    }

    #[test]
    fn the_rest_is_refused_by_name() {
        for (words, name) in [
            ("archive x", "'archive'"),
            ("show transactions", "show transactions"),
            ("show user state=x", "state=x"),
            ("show user format=nosuch", "'nosuch'"),
            ("show user format=user%x", "'user%x'"),
        ] {
            let error = shown(words, &BARE).unwrap_err();
            assert!(error.contains(name), "{words}: {error}");
        }
    }
}
