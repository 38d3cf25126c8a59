//! Resource quota sets: limits of accounts, users and QOS, as rules of Grid Engine. A set has the name of the object whose limits it
//! shows. Rules that such limits can express become commands of sacctmgr; others are refused by name.

use super::change::{CommandLine, account_of, names};
use muster_conf::grid_engine::resources::memory;
use muster_conf::grid_engine::{ComplexTarget, Mapping, fits};
use muster_model::account_limits::{Limits, TresAmount, TresAmounts};
use muster_model::accounts::Accounts;
use muster_model::config::PartitionConfig;
use std::fmt::Write as _;

/// The data that rules are made of.
pub(super) struct QuotaSource<'a> {
    pub(super) accounts: &'a Accounts,
    pub(super) partitions: &'a [PartitionConfig],
    pub(super) mapping: &'a Mapping,
}

/// A rule: its filters, and limits by resource.
struct QuotaRule {
    filters: String,
    limits: Vec<String>,
}

/// A set, with the command that takes its limits away.
struct QuotaSet {
    name: String,
    rules: Vec<QuotaRule>,
    removal: CommandLine,
}

/// A use that has limits, and the keys of sacctmgr for these.
struct LimitedUse<'a> {
    filters: String,
    amounts: &'a TresAmounts,
    key: &'static str,
    jobs: Option<u32>,
    jobs_key: &'static str,
}

impl<'a> LimitedUse<'a> {
    /// All use together.
    fn of_group(filters: &str, limits: &'a Limits) -> LimitedUse<'a> {
        LimitedUse {
            filters: filters.to_owned(),
            amounts: &limits.grp_tres,
            key: "GrpTRES",
            jobs: limits.grp_jobs,
            jobs_key: "GrpJobs",
        }
    }
}

/// The QOS of jobs that name none.
const NORMAL: &str = "normal";

impl QuotaSource<'_> {
    fn sets(&self) -> Vec<QuotaSet> {
        let mut all = Vec::new();
        let root = &self.accounts.root.limits;
        let object = ["account", "where", "name=root"].map(str::to_owned);
        all.extend(self.set(
            "account_root",
            &object,
            &[LimitedUse::of_group("users *", root)],
        ));
        for account in self.accounts.accounts.values() {
            let filters = format!("projects {}", self.project(&account.name));
            let uses = [LimitedUse::of_group(&filters, &account.terms.limits)];
            let object = [
                "account".into(),
                "where".into(),
                format!("name={}", account.name),
            ];
            all.extend(self.set(&format!("account_{}", account.name), &object, &uses));
        }
        for user in self.accounts.users.values() {
            for (account, terms) in &user.accounts {
                let filters = format!("users {} projects {}", user.name, self.project(account));
                let uses = [LimitedUse::of_group(&filters, &terms.limits)];
                let name = format!("name={}", user.name);
                let object = [
                    "user".into(),
                    "where".into(),
                    name,
                    format!("account={account}"),
                ];
                all.extend(self.set(&format!("user_{}_{account}", user.name), &object, &uses));
            }
        }
        for qos in self.accounts.qos.values() {
            let (limits, queues) = (&qos.limits, self.queues_of(&qos.name));
            let with = |filters: &str| match &queues {
                Some(queues) => format!("{filters} queues {queues}"),
                None => filters.to_owned(),
            };
            let uses = [
                LimitedUse {
                    filters: with("users {*}"),
                    amounts: &limits.max_tres_user,
                    key: "MaxTRESPerUser",
                    jobs: limits.max_jobs,
                    jobs_key: "MaxJobsPerUser",
                },
                LimitedUse {
                    filters: with("projects {*}"),
                    amounts: &limits.max_tres_account,
                    key: "MaxTRESPerAccount",
                    jobs: limits.max_jobs_account,
                    jobs_key: "MaxJobsPerAccount",
                },
                LimitedUse::of_group(&with("users *"), limits),
            ];
            let object = ["qos".into(), "where".into(), format!("name={}", qos.name)];
            all.extend(self.set(&format!("qos_{}", qos.name), &object, &uses));
        }
        all
    }

    /// The limits of an object as a set; none if it has no limit.
    fn set(&self, name: &str, object: &[String], uses: &[LimitedUse<'_>]) -> Option<QuotaSet> {
        let (mut rules, mut unset) = (Vec::new(), Vec::new());
        for own in uses {
            let mut limits: Vec<String> = own.amounts.iter().map(|one| self.limit(one)).collect();
            if !limits.is_empty() {
                let none = own.amounts.iter().map(|one| format!("{}=-1", one.name));
                unset.push(format!(
                    "{}={}",
                    own.key,
                    none.collect::<Vec<_>>().join(",")
                ));
            }
            if let Some(jobs) = own.jobs {
                limits.push(format!("jobs={jobs}"));
                unset.push(format!("{}=-1", own.jobs_key));
            }
            if !limits.is_empty() {
                let filters = own.filters.clone();
                rules.push(QuotaRule { filters, limits });
            }
        }
        let words = std::iter::once("modify".to_owned()).chain(object.iter().cloned());
        let removal = words.chain(["set".to_owned()]).chain(unset).collect();
        let name = name.to_owned();
        (!rules.is_empty()).then_some(QuotaSet {
            name,
            rules,
            removal,
        })
    }

    /// The queues whose partitions have a QOS.
    fn queues_of(&self, qos: &str) -> Option<String> {
        let with = self
            .partitions
            .iter()
            .filter(|own| own.qos.as_deref() == Some(qos));
        let queues: Vec<&str> = with.map(|own| self.mapping.queue_of(&own.name)).collect();
        (!queues.is_empty()).then(|| queues.join(","))
    }

    fn project<'s>(&'s self, account: &'s str) -> &'s str {
        let known = self.mapping.projects.iter().find(|(_, own)| own == account);
        known.map_or(account, |(project, _)| project)
    }

    /// `slots=8`.
    fn limit(&self, TresAmount { name, amount }: &TresAmount) -> String {
        let mapped = |target: &dyn Fn(&ComplexTarget) -> bool| {
            let found = self.mapping.complexes.iter().find(|(_, own)| target(own));
            found.map(|(complex, _)| complex.clone())
        };
        match name.split_once('/') {
            None if name == "cpu" => format!("slots={amount}"),
            None if name == "mem" => format!("h_vmem={amount}M"),
            Some(("gres", gres)) => {
                let found =
                    mapped(&|own| matches!(own, ComplexTarget::Gres(name, _) if name == gres));
                format!("{}={amount}", found.unwrap_or_else(|| gres.to_owned()))
            }
            Some(("license", license)) => {
                let found =
                    mapped(&|own| matches!(own, ComplexTarget::License(name) if name == license));
                format!("{}={amount}", found.unwrap_or_else(|| license.to_owned()))
            }
            _ => format!("{name}={amount}"),
        }
    }

    /// `-srqsl`.
    pub(super) fn names(&self) -> Vec<String> {
        self.sets().into_iter().map(|set| set.name).collect()
    }

    /// `-srqs`: the sets whose names fit one of these; all without a list.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn text(&self, list: &str) -> Result<String, String> {
        let mut text = String::new();
        for set in self.sets() {
            if !list.is_empty() && !list.split(',').any(|own| fits(own, &set.name)) {
                continue;
            }
            let _ = writeln!(
                text,
                "{{\n   name         {}\n   description  NONE\n   enabled      TRUE",
                set.name
            );
            for rule in &set.rules {
                let _ = writeln!(
                    text,
                    "   limit        {} to {}",
                    rule.filters,
                    rule.limits.join(",")
                );
            }
            text.push_str("}\n");
        }
        match (text.is_empty(), list) {
            (false, _) => Ok(text),
            (true, "") => Err("No resource quota set found".to_owned()),
            (true, list) => Err(format!("resource quota set \"{list}\" does not exist")),
        }
    }

    /// `-drqs`: the commands that take the limits of sets away.
    ///
    /// # Errors
    /// There is no such set.
    pub(super) fn removal(&self, list: &str) -> Result<Vec<CommandLine>, String> {
        let sets = self.sets();
        let mut lines = Vec::new();
        for name in list.split(',') {
            let found = sets.iter().find(|set| set.name == name);
            let found =
                found.ok_or_else(|| format!("resource quota set \"{name}\" does not exist"))?;
            lines.push(found.removal.clone());
        }
        Ok(lines)
    }

    /// `-Arqs`, `-Mrqs`: the commands that set the limits of a text.
    ///
    /// # Errors
    /// A line is wrong, or no limit means the same.
    pub(super) fn commands(&self, text: &str) -> Result<Vec<CommandLine>, String> {
        let joined = text.replace("\\\n", " ");
        let mut lines = Vec::new();
        for line in joined.lines().map(str::trim) {
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            match (key, value.trim()) {
                ("" | "{" | "}" | "description" | "name", _) => {}
                (key, _) if key.starts_with('#') => {}
                ("enabled", value) if value.eq_ignore_ascii_case("TRUE") || value == "1" => {}
                ("enabled", _) => {
                    return Err(
                        "denied: enabled FALSE: a limit is there or not; qconf -drqs takes it away"
                            .to_owned(),
                    );
                }
                ("limit", rule) => lines.extend(
                    self.rule(rule)
                        .map_err(|why| format!("denied: limit {rule}: {why}"))?,
                ),
                (key, _) => return Err(format!("error: unknown attribute name \"{key:.80}\"")),
            }
        }
        match lines.is_empty() {
            true => Err("error: there is no limit in it".to_owned()),
            false => Ok(lines),
        }
    }

    /// A rule: `[name NAME] [users LIST] [projects LIST] [queues LIST] to RESOURCE=AMOUNT,...`.
    fn rule(&self, rule: &str) -> Result<Vec<CommandLine>, String> {
        let (filters, limits) = match rule.split_once(" to ") {
            Some((filters, limits)) => (filters.to_owned(), limits),
            None => (
                String::new(),
                rule.strip_prefix("to ").ok_or("\"to\" is missing")?,
            ),
        };
        // Blanks in braces and after commas separate nothing.
        let filters = filters
            .replace(", ", ",")
            .replace("{ ", "{")
            .replace(" }", "}");
        let mut words = filters.split_whitespace();
        let (mut users, mut projects, mut queues) = (None, None, None);
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("\"{word}\" has no value"))?;
            if value.contains('!') {
                return Err(format!(
                    "{word} {value}: limits have no exceptions; set another one of them"
                ));
            }
            match word {
                "name" => {}
                "users" => users = Some(value),
                "projects" => projects = Some(value),
                "queues" => queues = Some(value).filter(|own| *own != "*"),
                "hosts" => {
                    return Err(
                        "hosts: MaxCPUsPerNode of partitions (slots of qconf -mq) limits each host"
                            .to_owned(),
                    );
                }
                "pes" => {
                    return Err("pes: parallel environments have no limits; use queues".to_owned());
                }
                other => return Err(format!("there is no filter \"{other}\"")),
            }
        }
        let limits = self.limits(limits)?;
        match (users, projects, queues) {
            (None | Some("*"), None, None) => Ok(vec![of_group("account", &["name=root".to_owned()], &limits)]),
            (Some("{*}"), None, queues) => Ok(vec![self.of_qos(queues, &limits, "MaxTRESPerUser", "MaxJobsPerUser")?]),
            (None | Some("*"), Some("{*}"), queues) => {
                Ok(vec![self.of_qos(queues, &limits, "MaxTRESPerAccount", "MaxJobsPerAccount")?])
            }
            (None | Some("*"), None, queues) => Ok(vec![self.of_qos(queues, &limits, "GrpTRES", "GrpJobs")?]),
            (_, _, Some(_)) => {
                Err("users and projects by name beside queues: limits of a queue are those of its QOS, for {*} or all".to_owned())
            }
            (None | Some("*"), Some(projects), None) => each(projects, "projects")?
                .map(|project| {
                    let name = format!("name={}", names(account_of(self.mapping, project))?);
                    Ok(of_group("account", &[name], &limits))
                })
                .collect(),
            (Some(users), projects, None) => {
                let mut lines = Vec::new();
                for user in each(users, "users")? {
                    let account = match projects {
                        Some(project) => {
                            let mut all = each(project, "projects")?;
                            let project = all.next().unwrap_or_default();
                            if all.next().is_some() {
                                return Err("users and projects: one project at a time".to_owned());
                            }
                            account_of(self.mapping, project).to_owned()
                        }
                        None => self.only_account(user)?,
                    };
                    let object = [format!("name={}", names(user)?), format!("account={}", names(&account)?)];
                    lines.push(of_group("user", &object, &limits));
                }
                Ok(lines)
            }
        }
    }

    fn only_account(&self, user: &str) -> Result<String, String> {
        let known = self.accounts.users.get(user);
        let known = known.ok_or_else(|| format!("{user} is not known as a user"))?;
        let mut all = known.accounts.keys();
        match (all.next(), all.next()) {
            (Some(account), None) => Ok(account.clone()),
            _ => Err(format!(
                "{user} is in several accounts, each with limits of its own: name a project, too"
            )),
        }
    }

    /// A limit of the QOS of queues, or of the usual one.
    fn of_qos(
        &self,
        queues: Option<&str>,
        limits: &RuleLimits,
        key: &str,
        count_key: &str,
    ) -> Result<CommandLine, String> {
        let qos = match queues {
            None => NORMAL.to_owned(),
            Some(queue) => {
                let mapped = self.mapping.queues.iter().find(|(own, _)| own == queue);
                let partition = mapped.map_or(queue, |(_, partition)| partition);
                let default = queue == "all.q" && mapped.is_none();
                let found = self
                    .partitions
                    .iter()
                    .find(|own| own.name == partition || default && own.default);
                let found = found
                    .ok_or_else(|| format!("queue \"{queue}\" does not exist, or is a list"))?;
                let qos = found.qos.clone();
                qos.ok_or_else(|| format!("queue {queue} has no QOS: write QOS=NAME on its PartitionName line of slurm.conf"))?
            }
        };
        Ok(limits.command("qos", &[format!("name={}", names(&qos)?)], key, count_key))
    }

    fn limits(&self, text: &str) -> Result<RuleLimits, String> {
        let mut all = RuleLimits::default();
        for word in text.split(',').map(str::trim) {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("\"{word}\" is no limit"))?;
            if value.contains('$') {
                return Err(format!("{word}: limits that depend on hosts are not there"));
            }
            let count = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{word}: a number is expected"))
            };
            let tres = match (name, self.mapping.complex(name)) {
                ("jobs", None) => {
                    all.jobs = Some(
                        u32::try_from(count()?).map_err(|_| format!("{word}: it is too large"))?,
                    );
                    continue;
                }
                ("slots", None) => format!("cpu={}", count()?),
                ("h_vmem" | "mem_free" | "virtual_free", None)
                | (_, Some(ComplexTarget::Memory)) => {
                    format!("mem={}M", memory(name, Some(value))?.div_ceil(1 << 20))
                }
                (_, Some(ComplexTarget::Gres(gres, _))) => format!("gres/{gres}={}", count()?),
                ("gpu", None) => format!("gres/gpu={}", count()?),
                (_, Some(ComplexTarget::License(license))) => {
                    format!("license/{license}={}", count()?)
                }
                _ => {
                    return Err(format!(
                        "{word}: no limit counts {name}; slots, h_vmem, gpu, jobs and complexes of sge.conf are counted"
                    ));
                }
            };
            all.tres.push(tres);
        }
        Ok(all)
    }
}

/// Limits of one rule, as sacctmgr takes them.
#[derive(Default)]
struct RuleLimits {
    tres: Vec<String>,
    jobs: Option<u32>,
}

impl RuleLimits {
    fn command(&self, kind: &str, object: &[String], key: &str, count_key: &str) -> CommandLine {
        let head = ["modify", kind, "where"].map(str::to_owned);
        let mut line: CommandLine = head.into_iter().chain(object.iter().cloned()).collect();
        line.push("set".to_owned());
        if !self.tres.is_empty() {
            line.push(format!("{key}={}", self.tres.join(",")));
        }
        line.extend(self.jobs.map(|jobs| format!("{count_key}={jobs}")));
        line
    }
}

fn of_group(kind: &str, object: &[String], limits: &RuleLimits) -> CommandLine {
    limits.command(kind, object, "GrpTRES", "GrpJobs")
}

/// The words of a list in braces, or one word. A list without braces has one limit together, which there is not.
fn each<'l>(list: &'l str, filter: &str) -> Result<impl Iterator<Item = &'l str>, String> {
    let inner = list
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    if inner.is_none() && list.contains(',') {
        return Err(format!(
            "{filter} {list}: a limit for several together is one of an account above them; {{{list}}} limits each"
        ));
    }
    let words = inner.unwrap_or(list);
    if words.contains(['@', '*', '{', '}']) {
        return Err(format!(
            "{filter} {list}: names are expected, or {{*}} alone"
        ));
    }
    Ok(words
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::accounts::{Account, AssociationTerms, Qos, User};

    fn source<'a>(
        accounts: &'a Accounts,
        mapping: &'a Mapping,
        partitions: &'a [PartitionConfig],
    ) -> QuotaSource<'a> {
        QuotaSource {
            accounts,
            partitions,
            mapping,
        }
    }

    #[test]
    fn rules_become_limits() {
        let mut accounts = Accounts::default();
        let mut user = User::default();
        user.accounts
            .insert("physics".to_owned(), AssociationTerms::default());
        accounts.users.insert("ada".to_owned(), user);
        let conf = "project p12 physics\ncomplex gpu gres:gpu:a100\ncomplex lic license:matlab\nqueue long.q long\n";
        let mapping = Mapping::parse(conf, "f").0;
        let partitions = [PartitionConfig {
            qos: Some("longer".to_owned()),
            ..PartitionConfig::named("long")
        }];
        let source = source(&accounts, &mapping, &partitions);
        for (rule, want) in [
            (
                "to slots=100",
                "modify account where name=root set GrpTRES=cpu=100",
            ),
            (
                "users {*} to slots=8,h_vmem=4G,jobs=5",
                "modify qos where name=normal set MaxTRESPerUser=cpu=8,mem=4096M MaxJobsPerUser=5",
            ),
            (
                "projects p12 to gpu=2",
                "modify account where name=physics set GrpTRES=gres/gpu:a100=2",
            ),
            (
                "name r projects {p12, bio} to lic=3",
                "modify account where name=physics set GrpTRES=license/matlab=3;modify account where name=bio set GrpTRES=license/matlab=3",
            ),
            (
                "users ada to slots=2",
                "modify user where name=ada account=physics set GrpTRES=cpu=2",
            ),
            (
                "users {ada,bob} projects x to slots=2",
                "modify user where name=ada account=x set GrpTRES=cpu=2;modify user where name=bob account=x set GrpTRES=cpu=2",
            ),
            (
                "users {*} queues long.q to slots=2",
                "modify qos where name=longer set MaxTRESPerUser=cpu=2",
            ),
            (
                "queues long.q to slots=9",
                "modify qos where name=longer set GrpTRES=cpu=9",
            ),
        ] {
            let lines = source.rule(rule).unwrap();
            let lines: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
            assert_eq!(lines.join(";"), want, "{rule}");
        }
        for (rule, why) in [
            ("users {*} slots=2", "\"to\" is missing"),
            ("users {*} hosts n1 to slots=2", "hosts: MaxCPUsPerNode"),
            (
                "users !ada to slots=2",
                "users !ada: limits have no exceptions",
            ),
            (
                "users ada,bob to slots=2",
                "users ada,bob: a limit for several together",
            ),
            (
                "users @staff to slots=2",
                "users @staff: names are expected",
            ),
            ("users nobody to slots=2", "nobody is not known as a user"),
            (
                "users {*} to slots=$num_proc",
                "slots=$num_proc: limits that depend on hosts",
            ),
            ("users {*} to load=2", "load=2: no limit counts load"),
            (
                "users {*} queues all.q to slots=2",
                "queue \"all.q\" does not exist",
            ),
            ("pes smp to slots=2", "pes: parallel environments"),
        ] {
            let found = source.rule(rule).unwrap_err();
            assert!(found.starts_with(why), "{rule}: {found}");
        }
        assert!(
            source
                .commands("{\nname x\nenabled FALSE\n")
                .unwrap_err()
                .contains("enabled FALSE")
        );
        assert!(
            source.commands("{\nname x\n}\n").is_err() && source.commands("nonsense 1\n").is_err()
        );
    }

    #[test]
    fn limits_are_shown_as_sets_and_taken_away() {
        let mut accounts = Accounts::default();
        let amounts = |list: &[(&str, u64)]| -> TresAmounts {
            list.iter()
                .map(|(name, amount)| ((*name).to_owned(), *amount))
                .collect()
        };
        let mut account = Account {
            name: "physics".to_owned(),
            ..Account::default()
        };
        account.terms.limits.grp_tres = amounts(&[("cpu", 8), ("mem", 1024)]);
        accounts.accounts.insert("physics".to_owned(), account);
        let mut qos = Qos {
            name: "normal".to_owned(),
            ..Qos::default()
        };
        qos.limits.max_tres_user = amounts(&[("cpu", 4)]);
        qos.limits.max_jobs = Some(3);
        accounts.qos.insert("normal".to_owned(), qos);
        let mapping = Mapping::parse("project p12 physics\n", "f").0;
        let source = source(&accounts, &mapping, &[]);
        assert_eq!(source.names(), ["account_physics", "qos_normal"]);
        assert_eq!(
            source.text("qos_*").unwrap(),
            "{\n   name         qos_normal\n   description  NONE\n   enabled      TRUE\n   limit        users {*} to slots=4,jobs=3\n}\n"
        );
        assert!(
            source
                .text("")
                .unwrap()
                .contains("   limit        projects p12 to slots=8,h_vmem=1024M\n")
        );
        let lines = source.removal("account_physics,qos_normal").unwrap();
        let lines: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "modify account where name=physics set GrpTRES=cpu=-1,mem=-1",
                "modify qos where name=normal set MaxTRESPerUser=cpu=-1 MaxJobsPerUser=-1"
            ]
        );
        source.removal("nosuch").unwrap_err();
        // The sets that are shown can be set again.
        source.commands(&source.text("").unwrap()).unwrap();
    }
}
