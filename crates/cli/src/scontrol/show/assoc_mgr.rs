//! `scontrol show assoc_mgr`: users, associations and QOS with their limits, and, in parentheses, what counts towards
//! each. Limits without use are those of sacctmgr, shares those of sshare.

use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::{Failure, failed_call, print, query};
use crate::sacctmgr::book::{Association, Book};
use crate::sacctmgr::ledger::tres_names;
use muster_model::account_limits::{Limits, Scope, ScopeUse, TresAmounts};
use muster_model::accounts::{PARENT_SHARES, Qos, ROOT, Share, User};
use muster_proto::client::AccountsAnswer;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// TRES that all clusters have, in Slurm's order.
const TRES: [&str; 8] = [
    "cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages",
];

/// The number of a user that the host does not know.
const NO_USER: u32 = 0xffff_fffe;

/// The number that Slurm has for `fairshare=parent`.
const PARENT_FAIR_SHARE: u32 = 0x7fff_ffff;

/// Records that are shown: an empty list of names is all.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecordFilter {
    users: Vec<String>,
    accounts: Vec<String>,
    qos: Vec<String>,
    sections: Vec<AssocMgrSection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AssocMgrSection {
    Users,
    Associations,
    Qos,
}

impl RecordFilter {
    fn parse(words: &[String]) -> Result<RecordFilter, Failure> {
        let mut filter = RecordFilter::default();
        for word in words {
            let none = || Failure::new(format!("No value given for option {word}"));
            let (key, value) = word.split_once('=').ok_or_else(none)?;
            let names = || value.split(',').filter(|name| !name.is_empty());
            if names().next().is_none() {
                return Err(none());
            }
            let key = key.to_ascii_lowercase();
            let is = |name: &str| !key.is_empty() && name.starts_with(&key);
            match () {
                () if is("accounts") => filter.accounts.extend(names().map(str::to_lowercase)),
                () if is("users") => filter.users.extend(names().map(str::to_lowercase)),
                () if is("qos") => filter.qos.extend(names().map(str::to_lowercase)),
                () if is("flags") => {
                    for name in names() {
                        filter.sections.push(section(name)?);
                    }
                }
                () => {
                    return Err(Failure::new(format!(
                        "invalid entity: {word} for keyword:show assoc_mgr"
                    )));
                }
            }
        }
        Ok(filter)
    }

    fn shows(&self, section: AssocMgrSection) -> bool {
        self.sections.is_empty() || self.sections.contains(&section)
    }
}

fn section(name: &str) -> Result<AssocMgrSection, Failure> {
    let known = [
        ("associations", AssocMgrSection::Associations),
        ("qos", AssocMgrSection::Qos),
        ("users", AssocMgrSection::Users),
    ];
    let name_of =
        |(word, _): &&(&str, AssocMgrSection)| word.starts_with(&name.to_ascii_lowercase());
    let found = known.iter().find(name_of).map(|(_, section)| *section);
    found.ok_or_else(|| {
        Failure::new(format!(
            "invalid flag '{name}', valid options are 'Assoc, QOS, and/or Users'"
        ))
    })
}

fn is_meant(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Runs the command with the words after `assoc_mgr`.
pub(super) fn show(words: &[String], one_line: bool) -> Result<(), Failure> {
    let filter = RecordFilter::parse(words)?;
    let failed = failed_call("slurm_load_assoc_mgr_info");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    let answer = query::accounts_in_use(&mut client).map_err(&failed)?;
    let uid =
        |name: &str| crate::people::user_named(name).map_or(NO_USER, |user| user.uid.as_raw());
    let tres = tres_names(&ctx);
    print(&render(answer, &tres, &filter, one_line, &uid));
    Ok(())
}

/// Records, with all that their lines are made of.
struct RecordListing<'a> {
    book: &'a Book,
    uses: BTreeMap<&'a Scope, &'a ScopeUse>,
    shares: BTreeMap<(&'a str, &'a str), &'a Share>,
    /// Names of all TRES.
    tres: Vec<&'a str>,
    one_line: bool,
    uid: &'a dyn Fn(&str) -> u32,
}

fn render(
    answer: AccountsAnswer,
    tres: &[String],
    filter: &RecordFilter,
    one_line: bool,
    uid: &dyn Fn(&str) -> u32,
) -> String {
    let uses = answer.uses.clone();
    let book = Book::new(answer);
    let shares = book.all.shares.iter();
    let listing = RecordListing {
        uses: uses.iter().map(|used| (&used.scope, used)).collect(),
        shares: shares
            .map(|share| ((share.account.as_str(), share.user.as_str()), share))
            .collect(),
        tres: TRES
            .into_iter()
            .chain(tres.iter().map(String::as_str))
            .collect(),
        book: &book,
        one_line,
        uid,
    };
    let mut out = "Current Association Manager state\n".to_owned();
    if filter.shows(AssocMgrSection::Users) {
        let lines = listing.users(filter);
        listing.section(&mut out, "User Records", "users", &lines);
    }
    if filter.shows(AssocMgrSection::Associations) {
        let lines = listing.associations(filter);
        listing.section(&mut out, "Association Records", "associations", &lines);
    }
    if filter.shows(AssocMgrSection::Qos) {
        let lines = listing.qos(filter);
        listing.section(&mut out, "QOS Records", "QOS", &lines);
    }
    out
}

impl RecordListing<'_> {
    fn section(&self, out: &mut String, title: &str, kind: &str, records: &[String]) {
        let blank = if self.one_line { "" } else { "\n" };
        if records.is_empty() {
            out.push_str(&format!("{blank}No {kind} currently cached in Slurm.\n\n"));
            return;
        }
        out.push_str(&format!("{blank}{title}\n{blank}"));
        out.extend(records.iter().map(String::as_str));
    }

    fn users(&self, filter: &RecordFilter) -> Vec<String> {
        let all = self.book.all.users.values();
        let mut all: Vec<&User> = all
            .filter(|user| is_meant(&filter.users, &user.name))
            .collect();
        // Root comes first, as the first that Slurm has.
        all.sort_by_key(|user| user.name != ROOT);
        let line = |user: &User| {
            let level = match user.admin_level.as_str() {
                "" | "None" => "Not Set",
                level => level,
            };
            let account = &user.default_account;
            // As Slurm has a user without a key; root, who is always there, is another case.
            let wckey = match user.default_wckey.as_str() {
                "" if user.name != ROOT => "(null)",
                key => key,
            };
            format!(
                "UserName={} DefAccount={account} DefWckey={wckey} AdminLevel={level}\n",
                self.named(&user.name),
            )
        };
        all.into_iter().map(line).collect()
    }

    /// A user's name with its number.
    fn named(&self, user: &str) -> String {
        format!("{user}({})", (self.uid)(user))
    }

    fn associations(&self, filter: &RecordFilter) -> Vec<String> {
        let all = self.book.sorted();
        let mut levels: BTreeMap<&str, u32> = BTreeMap::new();
        for at in &all {
            let level = levels.entry(above(at)).or_default();
            *level = level.saturating_add(own_shares(at));
        }
        let meant = all.iter().filter(|at| {
            is_meant(&filter.accounts, at.account)
                && (at.user.is_empty() || is_meant(&filter.users, at.user))
        });
        let level = |at: &Association<'_>| levels.get(above(at)).copied().unwrap_or(1);
        meant.map(|at| self.association(at, level(at))).collect()
    }

    fn association(&self, at: &Association<'_>, level: u32) -> String {
        let (book, unused) = (self.book, unused());
        let scope = scope_of(at);
        let used = self.uses.get(&scope).copied().unwrap_or(&unused);
        let priority = book.chain(at).iter().find_map(|terms| terms.priority);
        let user = match at.user {
            "" => String::new(),
            user => self.named(user),
        };
        let parent = match at.parent {
            "" => String::new(),
            name => {
                let record = book.all.accounts.get(name);
                format!("{name}({})", record.map_or(1, |account| account.terms.id))
            }
        };
        let record = book.all.users.get(at.user);
        let is_default = record.is_some_and(|user| user.default_account == at.account)
            && at.partition.is_empty();
        let mut fields = vec![
            format!(
                "ClusterName={} Account={} UserName={user} Partition={} Priority={} ID={}",
                book.cluster,
                at.account,
                at.partition,
                priority.unwrap_or(0),
                at.own.id
            ),
            self.shares_of(at, level),
            self.usage_of(at),
            format!(
                "ParentAccount={parent} Lft={} DefAssoc={}",
                at.span.0,
                if is_default { "Yes" } else { "No" }
            ),
        ];
        let own = &at.own.limits;
        fields.push(format!(
            "{} {}",
            group("GrpJobs", own.grp_jobs, used.jobs),
            group("GrpJobsAccrue", own.grp_jobs_accrue, used.accruing)
        ));
        fields.push(format!(
            "{} {}",
            group("GrpSubmitJobs", own.grp_submit, used.submitted),
            grp_wall(own, used)
        ));
        fields.extend(self.group_tres(own, used));
        fields.extend(per_user_and_job(&book.limits(at, true), used));
        self.record(fields)
    }

    fn shares_of(&self, at: &Association<'_>, level: u32) -> String {
        let share = self.shares.get(&(at.account, at.user));
        let raw = own_shares(at);
        let norm = match share {
            Some(share) => share.norm_shares,
            None if at.account == ROOT && at.user.is_empty() => 0.0,
            None => f64::from(raw) / f64::from(level.max(1)),
        };
        let factor = share.map_or(0.0, |share| share.fair_share);
        let raw = match at.own.shares {
            Some(PARENT_SHARES) => PARENT_FAIR_SHARE,
            _ => raw,
        };
        format!("SharesRaw/Norm/Level/Factor={raw}/{norm:.2}/{level}/{factor:.2}")
    }

    fn usage_of(&self, at: &Association<'_>) -> String {
        let none = Share::default();
        let share = self.shares.get(&(at.account, at.user));
        let share = share.copied().unwrap_or(&none);
        format!(
            "UsageRaw/Norm/Efctv={:.2}/{:.2}/{:.2}",
            share.raw_usage, share.norm_usage, share.effective_usage
        )
    }

    fn group_tres(&self, limits: &Limits, used: &ScopeUse) -> [String; 3] {
        [
            format!("GrpTRES={}", self.amounts(&limits.grp_tres, &used.tres)),
            format!(
                "GrpTRESMins={}",
                self.amounts(&limits.grp_tres_mins, &used.minutes)
            ),
            format!(
                "GrpTRESRunMins={}",
                self.amounts(&limits.grp_tres_run_mins, &used.run_minutes)
            ),
        ]
    }

    /// Limits of all TRES with what counts towards them.
    fn amounts(&self, limits: &TresAmounts, used: &TresAmounts) -> String {
        let words = self.tres.iter().map(|name| {
            let limit = limits.get(name);
            let limit = limit.map_or("N".to_owned(), |limit| limit.to_string());
            format!("{name}={limit}({})", used.get(name).unwrap_or(0))
        });
        words.collect::<Vec<_>>().join(",")
    }

    /// Fields of a record, each on a line.
    fn record(&self, fields: Vec<String>) -> String {
        let between = if self.one_line { " " } else { "\n    " };
        fields.join(between) + "\n"
    }

    fn qos(&self, filter: &RecordFilter) -> Vec<String> {
        let all = self.book.qos_records().into_iter();
        let meant = all.filter(|qos| is_meant(&filter.qos, &qos.name));
        meant.map(|qos| self.one_qos(&qos)).collect()
    }

    fn one_qos(&self, qos: &Qos) -> String {
        let (l, unused) = (&qos.limits, unused());
        let scope = Scope::Qos(qos.name.clone());
        let used = self.uses.get(&scope).copied().unwrap_or(&unused);
        let billing = used.minutes.get("billing").unwrap_or(0);
        let mut fields = vec![
            format!("QOS={}({})", qos.name, qos.id),
            format!("UsageRaw={}.000000", billing.saturating_mul(60)),
            [
                group("GrpJobs", l.grp_jobs, used.jobs),
                group("GrpJobsAccrue", l.grp_jobs_accrue, used.accruing),
                group("GrpSubmitJobs", l.grp_submit, used.submitted),
                grp_wall(l, used),
            ]
            .join(" "),
        ];
        fields.extend(self.group_tres(l, used));
        let mode = qos.preempt_mode.as_deref().unwrap_or("off");
        let mode = match mode.to_ascii_uppercase().as_str() {
            "CLUSTER" => "OFF".to_owned(),
            mode => mode.to_owned(),
        };
        fields.extend([
            format!("MaxWallPJ={}", number(l.max_wall_min)),
            format!("MaxTRESPJ={}", plain(&l.max_tres)),
            format!("MaxTRESPN={}", plain(&l.max_tres_node)),
            format!("MaxTRESMinsPJ={}", plain(&l.max_tres_mins)),
            format!("MinPrioThresh={} ", number(l.min_priority)),
            format!("MinTRESPJ={}", plain(&l.min_tres)),
            format!("PreemptMode={mode}"),
            format!("Priority={}", qos.priority),
        ]);
        let all = self.uses.iter();
        let accounts = all.clone().filter_map(|(scope, used)| match scope {
            Scope::QosAccount(name, account) if *name == qos.name => {
                Some((account.clone(), self.per_account(l, used)))
            }
            _ => None,
        });
        let users = all.filter_map(|(scope, used)| match scope {
            Scope::QosUser(name, user) if *name == qos.name => {
                Some(((self.uid)(user).to_string(), self.per_user(l, used)))
            }
            _ => None,
        });
        let parts = [
            self.parts("Account", accounts.collect()),
            self.parts("User", users.collect()),
        ];
        let between = if self.one_line { " " } else { "\n    " };
        let mut record = fields.join(between);
        parts.iter().for_each(|part| {
            let _ = write!(record, "{between}{part}");
        });
        record.push('\n');
        record
    }

    /// Limits of each account or user with a QOS.
    fn parts(&self, kind: &str, parts: Vec<(String, [String; 2])>) -> String {
        let mut out = format!("{kind} Limits");
        match (self.one_line, parts.is_empty()) {
            (true, true) => out.push_str(&format!("=No {kind}s")),
            (false, true) => out.push_str(&format!("\n        No {kind}s")),
            (true, false) => {
                out.push('=');
                let words = parts
                    .iter()
                    .map(|(name, [jobs, tres])| format!(" {name}={{{jobs} {tres}}}"));
                out.extend(words);
            }
            (false, false) => {
                let lines = parts.iter().map(|(name, [jobs, tres])| {
                    format!("\n      {name}\n        {jobs}\n        {tres}")
                });
                out.extend(lines);
            }
        }
        out
    }

    fn per_account(&self, l: &Limits, used: &ScopeUse) -> [String; 2] {
        let jobs = [
            group("MaxJobsPA", l.max_jobs_account, used.jobs),
            group("MaxJobsAccruePA", l.max_jobs_accrue_account, used.accruing),
            group("MaxSubmitJobsPA", l.max_submit_account, used.submitted),
        ];
        let tres = self.amounts(&l.max_tres_account, &used.tres);
        [jobs.join(" "), format!("MaxTRESPA={tres}")]
    }

    fn per_user(&self, l: &Limits, used: &ScopeUse) -> [String; 2] {
        let jobs = [
            group("MaxJobsPU", l.max_jobs, used.jobs),
            group("MaxJobsAccruePU", l.max_jobs_accrue, used.accruing),
            group("MaxSubmitJobsPU", l.max_submit, used.submitted),
        ];
        let tres = self.amounts(&l.max_tres_user, &used.tres);
        [jobs.join(" "), format!("MaxTRESPU={tres}")]
    }
}

/// The parent in the tree of shares.
fn above<'a>(at: &Association<'a>) -> &'a str {
    match at.user {
        "" => at.parent,
        _ => at.account,
    }
}

fn own_shares(at: &Association<'_>) -> u32 {
    match at.own.shares {
        Some(PARENT_SHARES) | None => 1,
        Some(shares) => shares,
    }
}

fn scope_of(at: &Association<'_>) -> Scope {
    let (account, user) = (at.account.to_owned(), at.user.to_owned());
    match (at.user, at.partition) {
        ("", _) => Scope::Account(account),
        (_, "") => Scope::Association(account, user),
        (_, partition) => Scope::PartitionAssociation(account, user, partition.to_owned()),
    }
}

fn unused() -> ScopeUse {
    ScopeUse {
        scope: Scope::Account(String::new()),
        jobs: 0,
        submitted: 0,
        accruing: 0,
        tres: TresAmounts::new(),
        run_minutes: TresAmounts::new(),
        minutes: TresAmounts::new(),
        wall_hundredths: 0,
    }
}

fn number(limit: Option<u32>) -> String {
    limit.map_or(String::new(), |limit| limit.to_string())
}

/// A limit with what counts towards it; `N` for none.
fn group(name: &str, limit: Option<u32>, used: u32) -> String {
    let limit = limit.map_or("N".to_owned(), |limit| limit.to_string());
    format!("{name}={limit}({used})")
}

fn grp_wall(limits: &Limits, used: &ScopeUse) -> String {
    let limit = limits.grp_wall_min;
    let limit = limit.map_or("N".to_owned(), |limit| limit.to_string());
    let wall = used.wall_hundredths;
    format!("GrpWall={limit}({}.{:02})", wall / 100, wall % 100)
}

/// Limits of one user in an account, and of each job.
fn per_user_and_job(l: &Limits, used: &ScopeUse) -> [String; 5] {
    let most = |name: &str, limit: Option<u32>, used: u32| {
        let text = limit.map_or(String::new(), |limit| format!("{limit}({used})"));
        format!("{name}={text}")
    };
    [
        [
            most("MaxJobs", l.max_jobs, used.jobs),
            most("MaxJobsAccrue", l.max_jobs_accrue, used.accruing),
            most("MaxSubmitJobs", l.max_submit, used.submitted),
            format!("MaxWallPJ={}", number(l.max_wall_min)),
        ]
        .join(" "),
        format!("MaxTRESPJ={}", plain(&l.max_tres)),
        format!("MaxTRESPN={}", plain(&l.max_tres_node)),
        format!("MaxTRESMinsPJ={}", plain(&l.max_tres_mins)),
        format!("MinPrioThresh={}", number(l.min_priority)),
    ]
}

/// Limits alone, in Slurm's order of TRES.
fn plain(amounts: &TresAmounts) -> String {
    let place = |name: &str| TRES.iter().position(|known| *known == name);
    let mut all: Vec<_> = amounts.iter().collect();
    all.sort_by_key(|tres| (place(&tres.name).unwrap_or(TRES.len()), tres.name.clone()));
    let words = all
        .iter()
        .map(|tres| format!("{}={}", tres.name, tres.amount));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
