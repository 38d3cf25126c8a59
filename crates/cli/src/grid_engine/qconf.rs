//! qconf: shows the configuration in Grid Engine's words, and changes queues and what accounting has. What else would change the
//! configuration is refused, with the place where it is changed.

mod accounting;
mod change;
mod host_groups;
mod in_files;
mod objects;
mod options;
mod queues;
mod quota_sets;
mod settings;
mod share_tree;
mod site_file;
mod tables;
mod users;

use super::arguments::{self, OperandPosition, OptionArgument};
use super::{fail, fits, site, unreachable};
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::options::{HelpForm, Spec};
use crate::say;
use muster_conf::grid_engine::{ALL_HOSTS, AllocationRule, ComplexTarget, CountedPer, Mapping};
use muster_model::accounts::Accounts;
use muster_model::config::PartitionConfig;
use muster_model::time::TimeLimit;
use quota_sets::QuotaSource;
use settings::ShownSettings;
use share_tree::ShareTree;
use std::fmt::Write as _;
use std::process::ExitCode;

/// qconf.
pub(crate) static SPEC: Spec = Spec {
    name: "qconf",
    about: "Shows and changes the configuration, as Grid Engine's qconf does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: options::OPTIONS,
    variables: &[],
    notes: "Queues are partitions: what changes them is scontrol's, and is undone by scontrol reconfigure unless ReconfigFlags has \
            KeepPartInfo. Users, lists of users, projects, shares and resource quota sets are sacctmgr's: what changes them is its \
            commands, and prints what these print. A list of users is an account. Parallel environments, complexes, host groups and \
            the JSV are lines of sge.conf, job classes are in job_classes.conf: root, or the owner of the directory, changes them on \
            the controller's host. For others, and on other hosts, qconf says what to write. All else that adds, changes or deletes \
            is refused with its place.\n",
};

/// Runs qconf.
pub(crate) fn main(args: &[String]) -> ExitCode {
    if let Some((word, values)) = args.split_first() {
        let changed = queues::run(word, values)
            .or_else(|| change(word, values))
            .or_else(|| accounting::run(word, values))
            .or_else(|| objects::run(word, values));
        if let Some(changed) = changed {
            return changed.unwrap_or_else(|code| code);
        }
        if let Some(said) = in_file(word, values) {
            return said;
        }
        if let Some(place) = change::place(word) {
            return fail(
                &format!("qconf: option \"{word}\" is not supported: change it here: {place}"),
                1,
            );
        }
    }
    let parsed = match arguments::parse(&SPEC, args, OperandPosition::Mixed) {
        Ok(parsed) => parsed,
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") || parsed.options.is_empty() {
        say::stdout(&SPEC.help());
        return ExitCode::SUCCESS;
    }
    let shown = ClusterData::load();
    let shown = match shown {
        Ok(shown) => shown,
        Err(code) => return code,
    };
    for given in &parsed.options {
        match shown.text(given) {
            Ok(text) => crate::listing::print(&text),
            Err(why) => return fail(&why, 1),
        }
    }
    ExitCode::SUCCESS
}

/// Carries out what sacctmgr can; `None` for other options.
fn change(word: &str, values: &[String]) -> Option<Result<ExitCode, ExitCode>> {
    let mapping = match site::mapping() {
        Ok(mapping) => mapping,
        Err(code) => return Some(Err(code)),
    };
    let lines = change::command_lines(word, values, &mapping)?;
    Some(lines.map_or_else(
        |why| Err(fail(&format!("qconf: {why}"), 1)),
        |lines| run_all(&lines),
    ))
}

/// Says which line of a file does what an option would; `None` where there is no more to say than the file.
fn in_file(word: &str, values: &[String]) -> Option<ExitCode> {
    change::place(word)?;
    let mapping = match site::mapping() {
        Ok(mapping) => mapping,
        Err(code) => return Some(code),
    };
    // Without the controller what sge.conf has is known.
    let complexes = || {
        let named = || {
            mapping
                .complexes
                .iter()
                .map(|(name, _)| name.clone())
                .collect()
        };
        ClusterData::load().map_or_else(|_| named(), |shown| shown.complex_names())
    };
    Some(match in_files::advice(word, values, &mapping, complexes)? {
        Ok(line) => {
            let lines = line.replace('\n', "\n       ");
            fail(
                &format!("qconf: option \"{word}\" is not supported: {lines}"),
                1,
            )
        }
        Err(why) => fail(&why, 1),
    })
}

/// Runs commands of sacctmgr, which print their own output; the first that fails is the last.
fn run_all(lines: &[change::CommandLine]) -> Result<ExitCode, ExitCode> {
    for line in lines {
        let mut words = vec!["-i".to_owned()];
        words.extend(line.iter().cloned());
        crate::sacctmgr::run(&words).map_err(crate::listing::Failure::report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Job classes, as the controller has them.
fn classes(given: &OptionArgument) -> Result<String, String> {
    let classes = crate::class::ask_for_classes()?;
    if given.name == "sjc" {
        let name = given.value();
        return classes
            .show(name)
            .ok_or_else(|| format!("Job class \"{name}\" does not exist"));
    }
    let names: Vec<&str> = classes
        .classes
        .iter()
        .map(|own| own.name.as_str())
        .collect();
    match names.is_empty() {
        true => Err("no job class defined".to_owned()),
        false => Ok(names.join("\n") + "\n"),
    }
}

/// Users and lists of users.
fn people(mapping: &Mapping, given: &OptionArgument) -> Result<String, String> {
    let mut client = Client::connect().map_err(|e| e.to_string())?;
    let answer = query::accounts(&mut client).map_err(|e| e.to_string())?;
    let accounts = &answer.accounts;
    let names = given.value().split(',');
    let each = |show: &dyn Fn(&str) -> Result<String, String>| -> Result<String, String> {
        let texts: Result<Vec<String>, String> = names.clone().map(show).collect();
        texts.map(|texts| texts.concat())
    };
    let mut all = match given.name {
        "su" => return each(&|name| users::list(accounts, &mapping.reservation_users, name)),
        "suser" => return each(&|name| users::user(accounts, name)),
        "sul" => users::lists(accounts),
        "sm" => users::of_level(accounts, "Administrator"),
        "so" => users::of_level(accounts, "Operator"),
        _ => accounts.users.keys().cloned().collect(),
    };
    if given.name == "sm" {
        all.push("root".to_owned());
        all.sort();
        all.dedup();
    }
    match (all.is_empty(), given.name) {
        (true, "so") => Err("no operator defined".to_owned()),
        (true, _) => Err("no user list defined".to_owned()),
        (false, _) => Ok(all.join("\n") + "\n"),
    }
}

/// A host's rows: its consumable resources and its processors.
fn host_rows(name: &str, resources: &[String], processors: u32) -> String {
    let complexes = match resources.is_empty() {
        true => "NONE".to_owned(),
        false => resources.join(","),
    };
    let processors = processors.to_string();
    let rows = [
        ("hostname", name),
        ("load_scaling", "NONE"),
        ("complex_values", complexes.as_str()),
        ("processors", processors.as_str()),
        ("user_lists", "NONE"),
        ("xuser_lists", "NONE"),
        ("projects", "NONE"),
        ("xprojects", "NONE"),
        ("usage_scaling", "NONE"),
        ("report_variables", "NONE"),
    ];
    let line = |(key, value): &(&str, &str)| format!("{key:<21} {value}\n");
    rows.iter().map(line).collect()
}

/// Data of the cluster.
struct ClusterData {
    mapping: Mapping,
    ctx: Ctx,
    hosts: Vec<String>,
    gres: Vec<String>,
    settings: Vec<(String, String)>,
}

impl ClusterData {
    fn load() -> Result<ClusterData, ExitCode> {
        let mapping = site::mapping()?;
        let mut client = Client::connect().map_err(|e| unreachable(&e))?;
        let ctx = site::cluster(&mut client).map_err(|e| unreachable(&e))?;
        let settings = query::config(&mut client)
            .map_err(|e| unreachable(&e))?
            .pairs;
        let hosts = client.endpoint.hosts.clone();
        let gres = client.endpoint.gres_types.clone();
        Ok(ClusterData {
            mapping,
            ctx,
            hosts,
            gres,
            settings,
        })
    }

    fn text(&self, given: &OptionArgument) -> Result<String, String> {
        let name = given.value();
        let lines = |all: Vec<String>| all.into_iter().map(|line| line + "\n").collect::<String>();
        let none = |what: &str| Err(format!("no {what} defined"));
        let nodes = || {
            self.ctx
                .nodes
                .iter()
                .map(|node| node.config.name.clone())
                .collect::<Vec<_>>()
        };
        match given.name {
            "sc" => Ok(self.complexes()),
            "sql" => Ok(lines(
                self.queues().into_iter().map(|(queue, _)| queue).collect(),
            )),
            "sq" => self.queue(name),
            "spl" => Ok(lines(
                self.environments().into_iter().map(|(pe, _)| pe).collect(),
            )),
            "sp" => self.environment(name),
            "sel" => Ok(lines(nodes())),
            // Licenses are the resources of all hosts.
            "se" if name == "global" => {
                let asked = Client::connect().and_then(|mut client| query::licenses(&mut client));
                let all = asked.map_err(|e| format!("error: {e}"))?;
                let values = all.iter().map(|own| format!("{}={}", own.name, own.total));
                Ok(host_rows("global", &values.collect::<Vec<_>>(), 0))
            }
            "se" => self.host(name),
            "sep" => Ok(self.processors()),
            "sh" | "ss" | "sss" => Ok(lines(self.hosts.clone())),
            "sm" | "so" | "sul" | "su" | "suserl" | "suser" => people(&self.mapping, given),
            "sprjl" if self.mapping.projects.is_empty() => none("project list"),
            "sprjl" => Ok(lines(
                self.mapping
                    .projects
                    .iter()
                    .map(|(own, _)| own.clone())
                    .collect(),
            )),
            "sprj" => self.project(name),
            "scall" if self.mapping.calendars.is_empty() => none("calendar"),
            "scall" => {
                let all = self.mapping.calendars.iter();
                let mut all: Vec<String> = all.map(|own| own.name.clone()).collect();
                all.sort();
                Ok(lines(all))
            }
            "scal" => self.calendar(name),
            "sckpt" => Err(format!(
                "{name} is not a checkpointing interface definition"
            )),
            "sckptl" => none("ckpt interface definition"),
            "sds" => Ok(String::new()),
            "srqsl" | "srqs" | "sstree" | "sst" | "sstnode" => self.of_accounting(given),
            "shgrpl" => {
                let own = self.mapping.host_groups.iter().map(|own| own.name.clone());
                let mut all: Vec<String> = own.chain([ALL_HOSTS.to_owned()]).collect();
                all.sort();
                Ok(lines(all))
            }
            "shgrp" => self.host_group(name),
            "shgrp_tree" => self.host_group_tree(name),
            "shgrp_resolved" => {
                let hosts = self.mapping.hosts_of_group(name, &nodes());
                let hosts = hosts.ok_or_else(|| host_groups::missing(name))?;
                Ok(hosts.join(" ") + "\n")
            }
            "sjc" | "sjcl" => classes(given),
            "sconfl" => none("config"),
            "secl" => Ok(self.event_clients()),
            "ssconf" => Ok(self.settings().scheduler()),
            _ => self.configuration(name),
        }
    }

    /// Limits and shares.
    fn of_accounting(&self, given: &OptionArgument) -> Result<String, String> {
        let mut client = Client::connect().map_err(|e| e.to_string())?;
        let answer = query::accounts(&mut client).map_err(|e| e.to_string())?;
        let quotas = self.quota_sets(&answer.accounts);
        let tree = ShareTree::of(&answer.accounts);
        let no_tree = || "no sharetree element".to_owned();
        match given.name {
            "srqs" => quotas.text(given.value()),
            "srqsl" => match quotas.names() {
                all if all.is_empty() => Err("no resource quota set list defined".to_owned()),
                all => Ok(all.join("\n") + "\n"),
            },
            "sstree" => tree.linear().ok_or_else(no_tree),
            "sst" => tree.indented().ok_or_else(no_tree),
            _ => {
                let nodes = given.value().split(',').map(|path| tree.node(path));
                nodes.collect::<Result<Vec<_>, _>>().map(|all| all.concat())
            }
        }
    }

    fn quota_sets<'a>(&'a self, accounts: &'a Accounts) -> QuotaSource<'a> {
        QuotaSource {
            accounts,
            partitions: &self.ctx.partitions,
            mapping: &self.mapping,
        }
    }

    /// Whether limits of accounts and QOS have an effect.
    fn has_limits(&self) -> bool {
        let words = self.setting("AccountingStorageEnforce").split(',');
        let mut words = words.map(str::trim);
        words.any(|word| ["limits", "safe", "all"].contains(&word))
    }

    fn queues(&self) -> Vec<(String, &PartitionConfig)> {
        let mut all: Vec<(String, &PartitionConfig)> = Vec::new();
        for partition in &self.ctx.partitions {
            all.push((
                site::queue_of(&self.mapping, &self.ctx.partitions, &partition.name),
                partition,
            ));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn environments(&self) -> Vec<(String, String)> {
        let all = self.mapping.environments().into_iter();
        let mut all: Vec<(String, String)> = all.map(|(name, rule)| (name, rule.text())).collect();
        all.sort();
        all
    }

    fn complex_names(&self) -> Vec<String> {
        let rows = self.complex_rows();
        rows.into_iter().map(|[name, ..]| name).collect()
    }

    fn complex_rows(&self) -> Vec<[String; 8]> {
        let mut rows: Vec<[String; 8]> = Vec::new();
        let mut add = |row: [&str; 8]| {
            if rows.iter().all(|known| known[0] != row[0]) {
                rows.push(row.map(str::to_owned));
            }
        };
        let mut row = |name: &str, kind: &str, relop: &str, consumable: &str| {
            add([name, name, kind, relop, "YES", consumable, "0", "0"]);
        };
        for (name, target) in &self.mapping.complexes {
            match target {
                ComplexTarget::Gres(_, per) => {
                    let consumable = match per {
                        CountedPer::Slot => "YES",
                        CountedPer::Job => "JOB",
                        CountedPer::Host => "HOST",
                    };
                    row(name, "INT", "<=", consumable);
                }
                ComplexTarget::License(_) => row(name, "INT", "<=", "JOB"),
                ComplexTarget::Feature(_) => row(name, "BOOL", "==", "NO"),
                ComplexTarget::Memory => row(name, "MEMORY", "<=", "YES"),
            }
        }
        for gres in &self.gres {
            row(gres, "INT", "<=", "HOST");
        }
        tables::COMPLEXES.into_iter().for_each(add);
        rows.sort();
        rows
    }

    fn complexes(&self) -> String {
        let rows = self.complex_rows();
        let mut text = String::from(
            "#name               shortcut   type        relop   requestable consumable default  urgency \n",
        );
        let _ = writeln!(text, "#{}", "-".repeat(90));
        for [
            name,
            shortcut,
            kind,
            relop,
            requestable,
            consumable,
            default,
            urgency,
        ] in rows
        {
            let _ = writeln!(
                text,
                "{name:<19} {shortcut:<10} {kind:<11} {relop:<7} {requestable:<11} {consumable:<10} {default:<8} {urgency}"
            );
        }
        text.push_str("# >#< starts a comment but comments are not saved across edits --------\n");
        text
    }

    fn queue(&self, pattern: &str) -> Result<String, String> {
        let pattern = if pattern.is_empty() { "*" } else { pattern };
        let found = self.queues().into_iter().filter(|(queue, partition)| {
            pattern.split(',').any(|own| {
                let own = own.split('@').next().unwrap_or_default();
                fits(own, queue) || fits(own, &partition.name)
            })
        });
        let texts: Vec<String> = found
            .map(|(queue, partition)| self.queue_text(&queue, partition))
            .collect();
        match texts.is_empty() {
            true => Err(format!(
                "No cluster queue or queue instance matches the phrase \"{pattern}\""
            )),
            false => Ok(texts.join("\n")),
        }
    }

    fn queue_text(&self, queue: &str, partition: &PartitionConfig) -> String {
        let environments: Vec<String> = self.environments().into_iter().map(|(pe, _)| pe).collect();
        let nodes = self
            .ctx
            .nodes
            .iter()
            .filter(|node| partition.nodes.contains(&node.config.name));
        let most = nodes
            .map(|node| node.config.job_cpus().len())
            .max()
            .unwrap_or(0)
            .min(partition.max_cpus_per_node.unwrap_or(u32::MAX));
        let limit = match partition.max_time {
            TimeLimit::Unlimited => "INFINITY".to_owned(),
            limit => {
                let seconds = limit.seconds().unwrap_or(0);
                format!(
                    "{:02}:{:02}:{:02}",
                    seconds / 3600,
                    seconds / 60 % 60,
                    seconds % 60
                )
            }
        };
        let list = |names: &[String]| match names.is_empty() {
            true => "NONE".to_owned(),
            false => names.join(" "),
        };
        // Accounts by the names of projects that they are.
        let accounts = |names: &[String]| {
            let projects = &self.mapping.projects;
            let project = |account: &String| {
                let found = projects.iter().find(|(_, own)| own == account);
                found.map_or(account, |(project, _)| project).clone()
            };
            list(&names.iter().map(project).collect::<Vec<_>>())
        };
        let has_all = self.ctx.nodes.len() == partition.nodes.len();
        let own = |key: &str| match key {
            "qname" => queue.to_owned(),
            "hostlist" if has_all => ALL_HOSTS.to_owned(),
            "hostlist" => list(&partition.nodes),
            "pe_list" => list(&environments),
            "rerun" => self.reruns(),
            "slots" => most.to_string(),
            "tmpdir" => self.setting("TmpFS").to_owned(),
            "user_lists" => list(&partition.allow_groups),
            "projects" => accounts(&partition.allow_accounts),
            "xprojects" => accounts(&partition.deny_accounts),
            "h_rt" => limit.clone(),
            "calendar" => {
                let calendar = partition.calendar.as_ref();
                calendar.map_or_else(|| "NONE".to_owned(), |own| own.calendar.name.clone())
            }
            _ => "NONE".to_owned(),
        };
        let value = |(key, same): (&str, &str)| match same {
            "" => own(key),
            same => same.to_owned(),
        };
        let rows = tables::QUEUE.into_iter();
        rows.map(|row| format!("{:<21} {}\n", row.0, value(row)))
            .collect()
    }

    /// Whether jobs run again if their host is lost.
    fn reruns(&self) -> String {
        match self.setting("JobRequeue") {
            "0" => "FALSE".to_owned(),
            _ => "TRUE".to_owned(),
        }
    }

    fn environment(&self, name: &str) -> Result<String, String> {
        let rule = self.mapping.rule(name);
        let rule = rule.ok_or_else(|| format!("{name} is not a parallel environment"))?;
        Ok(self.environment_text(name, rule))
    }

    fn calendar(&self, name: &str) -> Result<String, String> {
        let found = self.mapping.calendar(name);
        let found = found.ok_or_else(|| format!("{name} is not a calendar"))?;
        Ok(objects::calendar_text(name, &found.year, &found.week))
    }

    /// Queues that have a calendar.
    fn queues_with_calendar(&self, name: &str) -> Vec<String> {
        let has_it = |partition: &PartitionConfig| {
            let calendar = partition.calendar.as_ref();
            calendar.is_some_and(|own| own.calendar.name == name)
        };
        let all = self.queues().into_iter();
        let with = all.filter(|(_, partition)| has_it(partition));
        let mut with: Vec<String> = with.map(|(queue, _)| queue).collect();
        let in_file = self.mapping.queue_calendars.iter();
        with.extend(
            in_file
                .filter(|(_, own)| own == name)
                .map(|(queue, _)| queue.clone()),
        );
        with
    }

    /// Slots of all hosts.
    fn slots(&self) -> u64 {
        let cpus = self
            .ctx
            .nodes
            .iter()
            .map(|node| node.config.job_cpus().len());
        cpus.map(u64::from).sum()
    }

    /// An environment as `-sp` shows it.
    fn environment_text(&self, name: &str, rule: AllocationRule) -> String {
        let rows = [
            ("pe_name", name.to_owned()),
            ("slots", self.slots().to_string()),
            ("user_lists", "NONE".to_owned()),
            ("xuser_lists", "NONE".to_owned()),
            ("start_proc_args", "NONE".to_owned()),
            ("stop_proc_args", "NONE".to_owned()),
            ("allocation_rule", rule.text()),
            ("control_slaves", "TRUE".to_owned()),
            ("job_is_first_task", "TRUE".to_owned()),
            ("urgency_slots", "min".to_owned()),
            ("accounting_summary", "TRUE".to_owned()),
            ("qsort_args", "NONE".to_owned()),
        ];
        rows.iter()
            .map(|(key, value)| format!("{key:<18} {value}\n"))
            .collect()
    }

    /// The names of all hosts.
    fn host_names(&self) -> Vec<String> {
        let names = self.ctx.nodes.iter().map(|node| node.config.name.clone());
        names.collect()
    }

    /// Whether there is a license of that name.
    fn has_license(&self, name: &str) -> bool {
        let licenses = self.setting("Licenses").split(',');
        let mut names = licenses.map(|own| own.split([':', '=', '@']).next().unwrap_or_default());
        names.any(|own| own == name)
    }

    fn host(&self, name: &str) -> Result<String, String> {
        let node = self.ctx.nodes.iter().find(|node| node.config.name == name);
        let node = node.ok_or_else(|| format!("can't resolve hostname \"{name}\""))?;
        let gres = node.config.gres.iter();
        let gres: Vec<String> = gres
            .map(|gres| format!("{}={}", gres.name, gres.count))
            .collect();
        Ok(host_rows(name, &gres, node.config.cpus))
    }

    fn processors(&self) -> String {
        let mut text = String::from("HOST                      PROCESSOR        ARCH\n");
        let _ = writeln!(text, "{}", "=".repeat(47));
        for node in &self.ctx.nodes {
            let _ = writeln!(
                text,
                "{:<25} {:>9}        {}",
                node.config.name,
                node.config.cpus,
                site::ARCH
            );
        }
        text
    }

    fn project(&self, name: &str) -> Result<String, String> {
        let found = self.mapping.projects.iter().find(|(own, _)| own == name);
        let (_, account) = found.ok_or_else(|| format!("{name} is not known as a project"))?;
        Ok(format!(
            "name {name}\noticket 0\nfshare 0\nacl NONE\nxacl NONE\naccount {account}\n"
        ))
    }

    fn setting(&self, name: &str) -> &str {
        let found = self
            .settings
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("none", |(_, value)| value)
    }

    fn settings(&self) -> ShownSettings<'_> {
        ShownSettings {
            pairs: &self.settings,
            mapping: &self.mapping,
            partitions: self.ctx.partitions.len(),
        }
    }

    /// The configuration of all hosts; none has one of its own.
    fn configuration(&self, names: &str) -> Result<String, String> {
        let mut text = String::new();
        for name in names.split(',') {
            let is_host = self.ctx.nodes.iter().any(|node| node.config.name == name);
            match name {
                "" | "global" => text.push_str(&self.settings().global()),
                name if is_host => return Err(format!("configuration {name} not defined")),
                name => {
                    return Err(format!(
                        "can't resolve hostname \"{name}\": can't resolve host name"
                    ));
                }
            }
        }
        Ok(text)
    }

    /// The only part of the controller that Grid Engine would list: its scheduler.
    fn event_clients(&self) -> String {
        let host = self.hosts.first().map_or("", String::as_str);
        let head = format!("{:>8} {:<15} {:<25}", "ID", "NAME", "HOST");
        let dashes = "-".repeat(head.len());
        format!(
            "{head}\n{dashes}\n{:>8} {:<15} {host:<25}\n",
            1, "scheduler"
        )
    }
}
