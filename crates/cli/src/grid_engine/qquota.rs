//! qquota: limits of accounts, associations, QOS and licenses that are in use, as resource quotas of Grid Engine. Limits of each
//! single job are no quotas and are not shown; use is counted over the jobs that the caller may see.

use super::arguments::Parsed;
use super::{fits, is_pattern, run_command, site, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_conf::grid_engine::{ComplexTarget, Mapping};
use muster_model::account_limits::{Limits, TresAmount, TresAmounts};
use muster_model::accounts::{Accounts, User};
use muster_model::job::Job;
use muster_model::licenses::License;
use muster_proto::client::JobFilter;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

/// qquota.
pub(crate) static SPEC: Spec = Spec {
    name: "qquota",
    about: "Shows resource quotas that are in use, as Grid Engine's qquota does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Quotas are limits of accounts and QOS (sacctmgr modify) where AccountingStorageEnforce=limits, and licenses. \
            A quota's name is account:NAME, user:NAME or qos:NAME, or license, with a number.\n",
};

static OPTIONS: &[Opt] = &[
    opt("h", "hosts", "quotas of these hosts").partly("ignored: quotas are never per host"),
    opt("l", "resources", "quotas of these resources"),
    opt("pe", "names", "quotas of these parallel environments")
        .partly("ignored: quotas are never per parallel environment"),
    opt("P", "projects", "quotas of these projects"),
    opt("q", "queues", "quotas of these queues"),
    opt(
        "u",
        "users",
        "quotas of these users, your own without it; * are all",
    ),
    flag("xml", "as XML"),
    flag("help", "print this help"),
];

/// Runs qquota.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, false, run)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let found = QuotaData::load(mapping).map_err(|e| unreachable(&e))?;
    let users = parsed.last("u").map_or_else(own_user, str::to_owned);
    let mut quotas = found.quotas(&users);
    let list = |name| {
        parsed
            .last(name)
            .map(|list| list.split(',').collect::<Vec<_>>())
    };
    let is_wanted = |list: &Option<Vec<&str>>, text: &str| {
        list.as_ref()
            .is_none_or(|list| list.iter().any(|pattern| fits(pattern, text)))
    };
    let (resources, projects, queues) = (list("l"), list("P"), list("q"));
    quotas.retain(|quota| {
        let of_project = quota.project.as_ref();
        let of_queue = quota.queue.as_ref();
        is_wanted(&resources, &quota.resource)
            && of_project.is_none_or(|project| is_wanted(&projects, project))
            && of_queue.is_none_or(|queue| is_wanted(&queues, queue))
    });
    crate::listing::print(&match parsed.has("xml") {
        true => xml(&quotas),
        false => table(&quotas),
    });
    Ok(ExitCode::SUCCESS)
}

fn own_user() -> String {
    let uid = nix::unistd::getuid().to_string();
    crate::submit::line::user(&uid).map_or(uid, |user| user.name)
}

/// A limit with its use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Quota {
    /// `account:physics/1`.
    name: String,
    /// The complex that is limited.
    resource: String,
    used: u64,
    limit: u64,
    /// The user whose use is counted; all users' if absent.
    user: Option<String>,
    /// The jobs' project; all projects if absent.
    project: Option<String>,
    /// The jobs' queue.
    queue: Option<String>,
}

impl Quota {
    /// An amount as this resource has it: memory in MiB or larger units.
    fn amount(&self, amount: u64) -> String {
        match self.resource == MEMORY {
            false => amount.to_string(),
            true if amount.is_multiple_of(1024) => format!("{}G", amount / 1024),
            true => format!("{amount}M"),
        }
    }
}

/// The complex that memory is limited by.
const MEMORY: &str = "h_vmem";
/// The resource under which jobs are counted.
const JOBS: &str = "jobs";

/// The data of quotas.
struct QuotaData {
    mapping: Mapping,
    ctx: Ctx,
    accounts: Accounts,
    /// Whether limits of accounts and QOS are kept.
    are_limits_kept: bool,
    licenses: Vec<License>,
    jobs: Vec<Job>,
}

impl QuotaData {
    fn load(mapping: Mapping) -> Result<QuotaData, ConnectError> {
        let mut client = Client::connect()?;
        let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
        let filter = JobFilter {
            active: true,
            ..JobFilter::default()
        };
        let listed = query::jobs(&mut client, &mut ctx, filter)?;
        let jobs = listed.jobs.iter().filter(|job| job.held().next().is_some());
        let jobs = jobs.cloned().collect();
        let mut client = Client::connect()?;
        let accounts = query::accounts(&mut client)?.accounts;
        let licenses = query::licenses(&mut client)?;
        let settings = query::config(&mut client)?.pairs;
        let enforced = settings
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case("AccountingStorageEnforce"));
        let are_limits_kept = enforced.is_some_and(|(_, words)| {
            let mut words = words.split(',');
            words.any(|word| ["limits", "safe", "all"].contains(&word.trim()))
        });
        Ok(QuotaData {
            mapping,
            ctx,
            accounts,
            are_limits_kept,
            licenses,
            jobs,
        })
    }

    /// All quotas that are in use and concern users of these patterns.
    fn quotas(&self, users: &str) -> Vec<Quota> {
        let is_meant = |name: &str| users.split(',').any(|pattern| fits(pattern, name));
        let mut all = Vec::new();
        if self.are_limits_kept {
            self.of_accounts(&is_meant, users, &mut all);
            self.of_qos(&is_meant, &mut all);
        }
        for license in self.licenses.iter().filter(|own| own.used > 0) {
            all.push(Quota {
                name: "license".to_owned(),
                resource: self.license(&license.name),
                used: u64::from(license.used),
                limit: u64::from(license.total),
                ..Quota::default()
            });
        }
        number(all)
    }

    fn of_accounts(&self, is_meant: &dyn Fn(&str) -> bool, users: &str, all: &mut Vec<Quota>) {
        let known = &self.accounts;
        let theirs: Vec<&User> = known
            .users
            .values()
            .filter(|own| is_meant(&own.name))
            .collect();
        // Limits of an account hold for all below it, so also those above an account of the user's.
        let mut concerned: BTreeSet<&str> = BTreeSet::new();
        for (account, ..) in theirs.iter().flat_map(|user| user.associations()) {
            concerned.extend(known.upwards(account));
        }
        if users.split(',').any(is_pattern) {
            concerned.extend(known.accounts.keys().map(String::as_str));
        }
        for name in concerned {
            let limits = match known.accounts.get(name) {
                Some(account) => &account.terms.limits,
                None => &known.root.limits,
            };
            let form = Quota {
                name: format!("account:{name}"),
                project: Some(self.project(name)),
                ..Quota::default()
            };
            let is_below = |job: &Job| known.upwards(job.spec.account_name()).any(|up| up == name);
            self.groups(limits, &form, is_below, all);
        }
        for user in theirs {
            for (account, partition, terms) in user.associations() {
                let queue = Some(partition).filter(|partition| !partition.is_empty());
                let form = Quota {
                    name: format!("user:{}", user.name),
                    user: Some(user.name.clone()),
                    project: Some(self.project(account)),
                    queue: queue
                        .map(|own| site::queue_of(&self.mapping, &self.ctx.partitions, own)),
                    ..Quota::default()
                };
                let is_its = |job: &Job| {
                    job.spec.owner.user == user.name
                        && job.spec.account_name() == account
                        && queue.is_none_or(|own| job.partition == own)
                };
                self.groups(&terms.limits, &form, is_its, all);
                let most = known
                    .terms(account, &user.name, partition)
                    .find_map(|terms| terms.limits.max_jobs);
                self.jobs(most, &form, is_its, all);
            }
        }
    }

    fn of_qos(&self, is_meant: &dyn Fn(&str) -> bool, all: &mut Vec<Quota>) {
        for qos in self.accounts.qos.values() {
            let (limits, name) = (&qos.limits, qos.name.as_str());
            let with_it = |job: &Job| self.has_qos(job, name);
            let form = Quota {
                name: format!("qos:{name}"),
                ..Quota::default()
            };
            self.groups(limits, &form, with_it, all);
            let running: Vec<&Job> = self.jobs.iter().filter(|job| with_it(job)).collect();
            let users: BTreeSet<&str> = running
                .iter()
                .map(|job| job.spec.owner.user.as_str())
                .collect();
            for user in users.into_iter().filter(|user| is_meant(user)) {
                let form = Quota {
                    user: Some(user.to_owned()),
                    ..form.clone()
                };
                let is_its = |job: &Job| with_it(job) && job.spec.owner.user == user;
                self.jobs(limits.max_jobs, &form, is_its, all);
                self.amounts(&limits.max_tres_user, &form, is_its, all);
            }
            let accounts: BTreeSet<&str> = running
                .iter()
                .filter(|job| is_meant(&job.spec.owner.user))
                .map(|job| job.spec.account_name())
                .collect();
            for account in accounts {
                let form = Quota {
                    project: Some(self.project(account)),
                    ..form.clone()
                };
                let is_its = |job: &Job| with_it(job) && job.spec.account_name() == account;
                self.jobs(limits.max_jobs_account, &form, is_its, all);
                self.amounts(&limits.max_tres_account, &form, is_its, all);
            }
        }
    }

    /// Whether limits of a QOS hold for a job: its own, or that of its partition.
    fn has_qos(&self, job: &Job, name: &str) -> bool {
        let spec = &job.spec;
        let default = || {
            self.accounts
                .default_qos(spec.account_name(), &spec.owner.user, &job.partition)
        };
        let partition = self
            .ctx
            .partitions
            .iter()
            .find(|own| own.name == job.partition);
        spec.qos.as_deref().unwrap_or_else(default) == name
            || partition.is_some_and(|own| own.qos.as_deref() == Some(name))
    }

    /// Limits of the simultaneous use by all of a group.
    fn groups(
        &self,
        limits: &Limits,
        form: &Quota,
        counts: impl Fn(&Job) -> bool,
        all: &mut Vec<Quota>,
    ) {
        self.jobs(limits.grp_jobs, form, &counts, all);
        self.amounts(&limits.grp_tres, form, &counts, all);
    }

    fn jobs(
        &self,
        limit: Option<u32>,
        form: &Quota,
        counts: impl Fn(&Job) -> bool,
        all: &mut Vec<Quota>,
    ) {
        let used = self.jobs.iter().filter(|job| counts(job)).count();
        if let (Some(limit), Ok(used @ 1..)) = (limit, u64::try_from(used)) {
            all.push(Quota {
                resource: JOBS.to_owned(),
                used,
                limit: u64::from(limit),
                ..form.clone()
            });
        }
    }

    fn amounts(
        &self,
        limits: &TresAmounts,
        form: &Quota,
        counts: impl Fn(&Job) -> bool,
        all: &mut Vec<Quota>,
    ) {
        for TresAmount { name, amount } in limits {
            let jobs = self.jobs.iter().filter(|job| counts(job));
            let used = match name.as_str() {
                // A node that several jobs of the group have counts once.
                "node" => {
                    let nodes = jobs
                        .flat_map(Job::held)
                        .map(|(share, _)| share.name.as_str());
                    nodes.collect::<BTreeSet<_>>().len() as u64
                }
                tres => jobs.map(|job| used(job, tres)).fold(0, u64::saturating_add),
            };
            if used > 0 {
                all.push(Quota {
                    resource: self.resource(name),
                    used,
                    limit: *amount,
                    ..form.clone()
                });
            }
        }
    }

    /// The complex that a trackable resource is.
    fn resource(&self, tres: &str) -> String {
        match tres.split_once('/') {
            Some(("gres", name)) => {
                let stands_for = |target: &ComplexTarget| matches!(target, ComplexTarget::Gres(own, _) if own == name);
                self.complex(stands_for).unwrap_or(name).to_owned()
            }
            Some(("license", name)) => self.license(name),
            _ => match tres {
                "cpu" => "slots".to_owned(),
                "mem" => MEMORY.to_owned(),
                "node" => "hosts".to_owned(),
                other => other.to_owned(),
            },
        }
    }

    fn license(&self, name: &str) -> String {
        let stands_for =
            |target: &ComplexTarget| matches!(target, ComplexTarget::License(own) if own == name);
        self.complex(stands_for).unwrap_or(name).to_owned()
    }

    fn complex(&self, stands_for: impl Fn(&ComplexTarget) -> bool) -> Option<&str> {
        let mut all = self.mapping.complexes.iter();
        let found = all.find(|(_, target)| stands_for(target));
        found.map(|(name, _)| name.as_str())
    }

    /// The project that an account is.
    fn project(&self, account: &str) -> String {
        let mut all = self.mapping.projects.iter();
        let found = all.find(|(_, own)| own == account);
        found.map_or(account, |(project, _)| project).to_owned()
    }
}

/// A running job's amount of a trackable resource: CPUs, MiB, devices, licenses.
fn used(job: &Job, tres: &str) -> u64 {
    let shares = || job.held().map(|(share, _)| share);
    match tres.split_once('/') {
        Some(("gres", name)) => {
            let (name, kind) = match name.split_once(':') {
                Some((name, kind)) => (name, Some(kind)),
                None => (name, None),
            };
            let devices = shares().flat_map(|share| &share.gres).filter(|gres| {
                gres.name == name && (kind.is_none() || gres.kind.as_deref() == kind)
            });
            devices.map(|gres| u64::from(gres.ids.len())).sum()
        }
        Some(("license", name)) => {
            let held = job.alloc.iter().flat_map(|alloc| &alloc.licenses);
            held.filter(|of| of.name == name)
                .map(|of| u64::from(of.count))
                .sum()
        }
        _ => match tres {
            "cpu" | "billing" => shares().map(|share| u64::from(share.cpus.len())).sum(),
            "mem" => shares()
                .map(|share| share.memory_mib)
                .fold(0, u64::saturating_add),
            _ => 0,
        },
    }
}

/// Gives each quota of a set its number.
fn number(mut all: Vec<Quota>) -> Vec<Quota> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for quota in &mut all {
        let number = numbers.entry(quota.name.clone()).or_default();
        *number += 1;
        quota.name = format!("{}/{number}", quota.name);
    }
    all
}

fn table(quotas: &[Quota]) -> String {
    if quotas.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "resource quota rule limit                filter\n{}\n",
        "-".repeat(80)
    );
    for quota in quotas {
        let (used, limit) = (quota.amount(quota.used), quota.amount(quota.limit));
        let amount = format!("{}={used}/{limit}", quota.resource);
        let parts = [
            ("users", &quota.user),
            ("projects", &quota.project),
            ("queues", &quota.queue),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter_map(|(key, value)| Some(format!("{key} {}", value.as_ref()?)))
            .collect();
        let filter = if parts.is_empty() {
            "-".to_owned()
        } else {
            parts.join(" ")
        };
        let _ = writeln!(text, "{:<18} {amount:<20} {filter}", quota.name);
    }
    text
}

fn xml(quotas: &[Quota]) -> String {
    use super::qstat::xml::escaped;
    let mut text = String::from(
        "<?xml version='1.0'?>\n<qquota_result xmlns=\"http://arc.liv.ac.uk/repos/darcs/sge/source/source/dist/util/\
         resources/schemas/qquota/qquota.xsd\">\n",
    );
    for quota in quotas {
        let _ = writeln!(text, " <qquota_rule name='{}'>", escaped(&quota.name));
        for (key, value) in [
            ("users", &quota.user),
            ("projects", &quota.project),
            ("queues", &quota.queue),
        ] {
            if let Some(value) = value {
                let _ = writeln!(text, "   <{key}>{}</{key}>", escaped(value));
            }
        }
        let _ = writeln!(
            text,
            "   <limit resource='{}' limit='{}' value='{}'/>\n </qquota_rule>",
            escaped(&quota.resource),
            quota.amount(quota.limit),
            quota.amount(quota.used)
        );
    }
    text + "</qquota_result>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota() -> Quota {
        Quota {
            name: "lim".to_owned(),
            resource: "slots".to_owned(),
            used: 1,
            limit: 5,
            user: Some("geuser".to_owned()),
            ..Quota::default()
        }
    }

    /// Output of Grid Engine 8.1.9 for such a quota.
    #[test]
    fn quotas_are_printed_as_grid_engine_prints_them() {
        let quotas = number(vec![quota(), quota()]);
        assert_eq!(
            table(&quotas[1..]),
            "resource quota rule limit                filter\n\
             --------------------------------------------------------------------------------\n\
             lim/2              slots=1/5            users geuser\n"
        );
        assert_eq!(
            xml(&quotas[1..]),
            "<?xml version='1.0'?>\n\
             <qquota_result xmlns=\"http://arc.liv.ac.uk/repos/darcs/sge/source/source/dist/util/resources/schemas/qquota/qquota.xsd\">\n \
             <qquota_rule name='lim/2'>\n   \
             <users>geuser</users>\n   \
             <limit resource='slots' limit='5' value='1'/>\n \
             </qquota_rule>\n\
             </qquota_result>\n"
        );
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn filters_and_units() {
        let of_project = Quota {
            resource: MEMORY.to_owned(),
            used: 1536,
            limit: 4096,
            user: None,
            project: Some("physics".to_owned()),
            ..quota()
        };
        let license = Quota {
            user: None,
            ..quota()
        };
        let text = table(&[of_project, license]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "lim                h_vmem=1536M/4G      projects physics",
                "lim                slots=1/5            -",
            ]
        );
    }
}
