//! Limits of associations and QOS (`AccountingStorageEnforce=limits`): how many jobs may run or be submitted, and what
//! they may have at once. What counts towards each is kept as jobs change, so that looking is a matter of the depth of
//! the tree of accounts.

use crate::job::{Allocation, ArrayRole, Job, JobState, Reason};
use crate::state::State;
use crate::time::TimeLimit;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// Amounts of what is counted: `cpu`, `mem` (MiB), `node`, `gres/NAME`.
pub type Amounts = Vec<(String, u64)>;

/// What an association or a QOS limits; absent and empty is no limit.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Limits {
    /// `GrpJobs`: running, of all below an account or with a QOS.
    #[n(0)]
    pub grp_jobs: Option<u32>,
    /// `GrpSubmitJobs`: running and waiting, likewise.
    #[n(1)]
    pub grp_submit: Option<u32>,
    /// `GrpTRES`: in use at once, likewise.
    #[n(2)]
    pub grp_tres: Amounts,
    /// `MaxJobs`: running, of each user in an account; `MaxJobsPerUser` of a QOS.
    #[n(3)]
    pub max_jobs: Option<u32>,
    /// `MaxSubmitJobs`: running and waiting, likewise.
    #[n(4)]
    pub max_submit: Option<u32>,
    /// `MaxTRES` of each job: `cpu` and `node`.
    #[n(5)]
    pub max_tres: Amounts,
    /// `MaxWall` of each job, minutes.
    #[n(6)]
    pub max_wall_min: Option<u32>,
    /// `MaxTRESPerUser` of a QOS: `cpu` and `node`.
    #[n(7)]
    pub max_tres_user: Amounts,
}

/// What is said of limits that cannot be set.
pub const NOT_KEPT: &str = "is not kept here";

/// One edit of limits: the limit's name in lower case, and its value; -1 clears.
pub type LimitAsk = (String, String);

/// Whose use is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// An account with all below it.
    Account(String),
    /// A user in an account.
    Association(String, String),
    /// A QOS.
    Qos(String),
    /// A user with a QOS.
    QosUser(String, String),
}

/// What counts towards limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InUse {
    /// Jobs that run.
    pub jobs: u32,
    /// Jobs that run or wait, tasks of arrays one by one.
    pub submitted: u32,
    /// What those that run have.
    pub tres: BTreeMap<String, u64>,
}

/// What one record counts for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    scopes: Vec<Scope>,
    jobs: u32,
    submitted: u32,
    tres: Amounts,
}

/// What an allocation has of what is counted.
pub fn amounts(alloc: &Allocation) -> Amounts {
    let mut out = vec![
        ("cpu".to_owned(), alloc.cpus()),
        ("mem".to_owned(), alloc.memory_mib()),
        ("node".to_owned(), alloc.nodes.len() as u64),
    ];
    let mut gres: BTreeMap<&str, u64> = BTreeMap::new();
    for share in alloc.nodes.iter().flat_map(|n| &n.gres) {
        *gres.entry(&share.name).or_default() += u64::from(share.ids.len());
    }
    let named = gres.into_iter();
    out.extend(named.map(|(name, count)| (format!("gres/{name}"), count)));
    out
}

impl InUse {
    fn shift(&mut self, counted: &Counted, more: bool) {
        let shift = |value: u32, by: u32| match more {
            true => value.saturating_add(by),
            false => value.saturating_sub(by),
        };
        self.jobs = shift(self.jobs, counted.jobs);
        self.submitted = shift(self.submitted, counted.submitted);
        for (name, amount) in &counted.tres {
            let value = self.tres.entry(name.clone()).or_default();
            *value = match more {
                true => value.saturating_add(*amount),
                false => value.saturating_sub(*amount),
            };
        }
        self.tres.retain(|_, amount| *amount > 0);
    }

    /// With one more job running that has so much.
    pub fn add(&mut self, tres: &Amounts) {
        let counted = Counted {
            jobs: 1,
            tres: tres.clone(),
            ..Counted::default()
        };
        self.shift(&counted, true);
    }

    fn of(&self, name: &str) -> u64 {
        self.tres.get(name).copied().unwrap_or(0)
    }
}

impl Limits {
    /// Sets one; what is wrong about it if it cannot be set.
    ///
    /// # Errors
    /// Why not, naming the limit.
    pub fn set(&mut self, (key, value): &LimitAsk, qos: bool) -> Result<(), String> {
        let number = || match value.as_str() {
            "-1" => Ok(None),
            _ => (value.parse().map(Some))
                .map_err(|_| format!("{key}={value}: expected a number, or -1 for none")),
        };
        match key.as_str() {
            "grpjobs" => self.grp_jobs = number()?,
            "grpsubmit" | "grpsubmitjobs" => self.grp_submit = number()?,
            "grptres" => set_amounts(&mut self.grp_tres, key, value, &["cpu", "mem", "node"])?,
            "maxjobs" if !qos => self.max_jobs = number()?,
            "maxsubmit" | "maxsubmitjobs" if !qos => self.max_submit = number()?,
            "maxjobsperuser" | "maxjobspu" | "maxjobs" => self.max_jobs = number()?,
            "maxsubmitjobsperuser"
            | "maxsubmitpu"
            | "maxsubmitjobspu"
            | "maxsubmit"
            | "maxsubmitjobs" => self.max_submit = number()?,
            "maxtres" | "maxtresperjob" | "maxtrespj" => {
                set_amounts(&mut self.max_tres, key, value, &["cpu", "node"])?;
            }
            "maxtresperuser" | "maxtrespu" if qos => {
                set_amounts(&mut self.max_tres_user, key, value, &["cpu", "node"])?;
            }
            "maxwall" | "maxwalldurationperjob" => {
                self.max_wall_min = match value.as_str() {
                    "-1" => None,
                    _ => match value.parse() {
                        Ok(TimeLimit::Minutes(minutes)) => Some(minutes),
                        Ok(TimeLimit::Unlimited) => None,
                        Err(_) => return Err(format!("{key}={value}: expected a time")),
                    },
                };
            }
            _ => return Err(format!("{key} {NOT_KEPT}")),
        }
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

fn set_amounts(
    amounts: &mut Amounts,
    key: &str,
    value: &str,
    known: &[&str],
) -> Result<(), String> {
    for word in value.split(',').filter(|w| !w.is_empty()) {
        let wrong = || {
            let known = known.join(", ");
            let devices = if known.contains("mem") {
                " or gres/NAME"
            } else {
                ""
            };
            format!("{key}={word}: expected name=number with {known}{devices}; -1 for none")
        };
        let (name, count) = word.split_once('=').ok_or_else(wrong)?;
        let name = name.to_ascii_lowercase();
        let is_known = known.contains(&name.as_str())
            || (known.contains(&"mem") && name.starts_with("gres/") && name.len() > 5);
        if !is_known {
            return Err(wrong());
        }
        amounts.retain(|(n, _)| *n != name);
        if count != "-1" {
            let units = [('K', 0u32), ('M', 0), ('G', 10), ('T', 20)];
            let upper = count.to_ascii_uppercase();
            let unit = units
                .iter()
                .find(|(u, _)| upper.ends_with(*u) && name == "mem");
            let digits = unit.map_or(upper.as_str(), |(u, _)| upper.trim_end_matches(*u));
            let number: u64 = digits.parse().map_err(|_| wrong())?;
            let shift = unit.map_or(0, |(_, shift)| *shift);
            let number = match unit {
                Some(('K', _)) => number.div_ceil(1024),
                _ => number.checked_shl(shift).unwrap_or(u64::MAX),
            };
            amounts.push((name, number));
        }
    }
    amounts.sort();
    Ok(())
}

/// Over which limit a job is that would have so much of what some of its scopes count.
fn over(name: &str, amount: u64, used: u64, limits: &Amounts) -> bool {
    let limit = limits.iter().find(|(n, _)| n == name);
    limit.is_some_and(|(_, most)| amount > 0 && used.saturating_add(amount) > *most)
}

impl State {
    /// Whether limits are kept.
    pub fn keeps_limits(&self) -> bool {
        self.config.as_ref().is_some_and(|c| c.order.enforce_limits)
    }

    /// Accounts from that one up.
    fn accounts_above<'s>(&'s self, account: &'s str) -> impl Iterator<Item = &'s str> {
        let parent = |name: &&'s str| {
            let record = self.accounts.accounts.get(*name)?;
            Some(record.parent.as_str()).filter(|p| !p.is_empty())
        };
        // The tree has no circles; a bound costs nothing.
        std::iter::successors(Some(account), parent).take(64)
    }

    /// QOS whose limits hold for a job: its own, and that of its partition.
    fn qos_of_limits<'s>(&'s self, job: &'s Job, partition: &str) -> Vec<&'s str> {
        let own = self.qos_of(job);
        let of_partition = self.partition(partition).and_then(|p| p.qos.as_deref());
        let mut all = vec![own];
        all.extend(of_partition.filter(|name| *name != own));
        all
    }

    /// Whose use a job in that partition counts for.
    pub fn scopes_of(&self, job: &Job, partition: &str) -> Vec<Scope> {
        let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
        let mut scopes = vec![Scope::Association(account.to_owned(), user.clone())];
        let above = self.accounts_above(account);
        scopes.extend(above.map(|name| Scope::Account(name.to_owned())));
        for qos in self.qos_of_limits(job, partition) {
            scopes.push(Scope::Qos(qos.to_owned()));
            scopes.push(Scope::QosUser(qos.to_owned(), user.clone()));
        }
        scopes
    }

    /// What a record counts for.
    pub(crate) fn counted(&self, job: &Job) -> Counted {
        if !self.keeps_limits() || job.is_over() {
            return Counted::default();
        }
        let runs = !job.nodes_held.is_empty() && !job.state.is_ended() && !job.completing
            || job.state == JobState::Suspended;
        let tasks = match &job.array {
            ArrayRole::Pending { indices } => u32::try_from(indices.len()).unwrap_or(u32::MAX),
            ArrayRole::None | ArrayRole::Task { .. } => 1,
        };
        Counted {
            scopes: self.scopes_of(job, &job.partition),
            jobs: u32::from(runs),
            submitted: if job.state.is_ended() { 0 } else { tasks },
            tres: match &job.alloc {
                Some(alloc) if runs => amounts(alloc),
                _ => Amounts::new(),
            },
        }
    }

    /// Brings use from one standing of a record to another.
    pub(crate) fn shift_counted(&mut self, before: &Counted, after: &Counted) {
        if before == after {
            return;
        }
        for (counted, more) in [(before, false), (after, true)] {
            for scope in &counted.scopes {
                let used = self.limit_use.entry(scope.clone()).or_default();
                used.shift(counted, more);
                if *used == InUse::default() {
                    self.limit_use.remove(scope);
                }
            }
        }
    }

    /// Limits of a scope, and of what there was set above for a user in an account.
    fn limits_in(&self, scope: &Scope) -> Limits {
        let accounts = &self.accounts;
        match scope {
            Scope::Account(name) => {
                let record = accounts.accounts.get(name);
                record.map(|a| a.terms.limits.clone()).unwrap_or_default()
            }
            Scope::Association(account, user) => {
                let own = accounts
                    .users
                    .get(user)
                    .and_then(|u| u.accounts.get(account));
                let mut limits = own.map(|t| t.limits.clone()).unwrap_or_default();
                for name in self.accounts_above(account) {
                    let Some(above) = accounts.accounts.get(name).map(|a| &a.terms.limits) else {
                        continue;
                    };
                    limits.max_jobs = limits.max_jobs.or(above.max_jobs);
                    limits.max_submit = limits.max_submit.or(above.max_submit);
                    limits.max_wall_min = limits.max_wall_min.or(above.max_wall_min);
                    for (name, most) in &above.max_tres {
                        if !limits.max_tres.iter().any(|(n, _)| n == name) {
                            limits.max_tres.push((name.clone(), *most));
                        }
                    }
                }
                limits
            }
            Scope::Qos(name) | Scope::QosUser(name, _) => {
                let record = accounts.qos.get(name);
                record.map(|q| q.limits.clone()).unwrap_or_default()
            }
        }
    }

    /// Whether anything is limited for a scope.
    pub fn is_limited(&self, scope: &Scope) -> bool {
        !self.limits_in(scope).is_empty()
    }

    /// The limit that keeps so many more jobs of this kind from being submitted.
    pub fn submit_limit(&self, job: &Job, tasks: u32) -> Option<&'static str> {
        if !self.keeps_limits() {
            return None;
        }
        self.scopes_of(job, &job.partition)
            .iter()
            .find_map(|scope| {
                let limits = self.limits_in(scope);
                let used = self.limit_use.get(scope).map_or(0, |u| u.submitted);
                let full = |most: Option<u32>| most.is_some_and(|m| used.saturating_add(tasks) > m);
                match scope {
                    Scope::Account(_) | Scope::Qos(_) => {
                        full(limits.grp_submit).then_some("GrpSubmitJobs")
                    }
                    Scope::Association(..) => {
                        let group = full(limits.grp_submit).then_some("GrpSubmitJobs");
                        group.or(full(limits.max_submit).then_some("MaxSubmitJobs"))
                    }
                    Scope::QosUser(..) => full(limits.max_submit).then_some("MaxSubmitJobsPerUser"),
                }
            })
    }

    /// The limit that keeps a job from starting with so much in that partition, given what is in use beside what the
    /// state knows.
    pub fn start_limit(
        &self,
        job: &Job,
        partition: &str,
        tres: &Amounts,
        more: &BTreeMap<Scope, InUse>,
    ) -> Option<Reason> {
        if !self.keeps_limits() {
            return None;
        }
        let wall = job.time_limit;
        let none = InUse::default();
        self.scopes_of(job, partition).iter().find_map(|scope| {
            let limits = self.limits_in(scope);
            if limits.is_empty() {
                return None;
            }
            let used = self.limit_use.get(scope).unwrap_or(&none);
            let fresh = more.get(scope).unwrap_or(&none);
            let jobs = used.jobs.saturating_add(fresh.jobs);
            let full = |most: Option<u32>| most.is_some_and(|most| jobs >= most);
            let group = || {
                let over = |(name, amount): &&(String, u64)| {
                    let used = used.of(name).saturating_add(fresh.of(name));
                    over(name, *amount, used, &limits.grp_tres)
                };
                tres.iter().find(over).map(|(name, _)| name.as_str())
            };
            let each = || {
                let over =
                    |(name, amount): &&(String, u64)| over(name, *amount, 0, &limits.max_tres);
                tres.iter().find(over).map(|(name, _)| name.as_str())
            };
            let by_user = || {
                let over = |(name, amount): &&(String, u64)| {
                    let used = used.of(name).saturating_add(fresh.of(name));
                    over(name, *amount, used, &limits.max_tres_user)
                };
                tres.iter().find(over).map(|(name, _)| name.as_str())
            };
            let too_long = limits.max_wall_min.is_some_and(|most| match wall {
                TimeLimit::Minutes(minutes) => minutes > most,
                TimeLimit::Unlimited => true,
            });
            match scope {
                Scope::Account(_) => full(limits.grp_jobs)
                    .then_some(Reason::AssocGrpJobsLimit)
                    .or_else(|| group().map(assoc_group)),
                Scope::Association(..) => full(limits.max_jobs)
                    .then_some(Reason::AssocMaxJobsLimit)
                    .or(full(limits.grp_jobs).then_some(Reason::AssocGrpJobsLimit))
                    .or(too_long.then_some(Reason::AssocMaxWallDurationPerJobLimit))
                    .or_else(|| group().map(assoc_group))
                    .or_else(|| {
                        each().map(|name| match name {
                            "cpu" => Reason::AssocMaxCpuPerJobLimit,
                            _ => Reason::AssocMaxNodePerJobLimit,
                        })
                    }),
                Scope::Qos(_) => full(limits.grp_jobs)
                    .then_some(Reason::QOSGrpJobsLimit)
                    .or(too_long.then_some(Reason::QOSMaxWallDurationPerJobLimit))
                    .or_else(|| group().map(qos_group))
                    .or_else(|| {
                        each().map(|name| match name {
                            "cpu" => Reason::QOSMaxCpuPerJobLimit,
                            _ => Reason::QOSMaxNodePerJobLimit,
                        })
                    }),
                Scope::QosUser(..) => full(limits.max_jobs)
                    .then_some(Reason::QOSMaxJobsPerUserLimit)
                    .or_else(|| {
                        by_user().map(|name| match name {
                            "cpu" => Reason::QOSMaxCpuPerUserLimit,
                            _ => Reason::QOSMaxNodePerUserLimit,
                        })
                    }),
            }
        })
    }
}

fn assoc_group(name: &str) -> Reason {
    match name {
        "cpu" => Reason::AssocGrpCpuLimit,
        "mem" => Reason::AssocGrpMemLimit,
        "node" => Reason::AssocGrpNodeLimit,
        _ => Reason::AssocGrpGRES,
    }
}

fn qos_group(name: &str) -> Reason {
    match name {
        "cpu" => Reason::QOSGrpCpuLimit,
        "mem" => Reason::QOSGrpMemLimit,
        "node" => Reason::QOSGrpNodeLimit,
        _ => Reason::QOSGrpGRES,
    }
}
