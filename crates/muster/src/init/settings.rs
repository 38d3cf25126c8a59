//! Settings of the new cluster: options, and answers at a terminal.

use super::nodes::{self, NodeLine, is_name};
use anyhow::{Context as _, Result, bail, ensure};
use muster_model::hostlist;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

/// Hosts of one command.
const HOSTS_MAX: usize = 8192;
/// Number of times that a question is asked.
const TRIES: usize = 3;

/// Method by which hosts prove their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    /// Each node by a key of its own.
    Keys,
    /// By munge.
    Munge,
    /// By slurm.key.
    Slurm,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) cluster: String,
    pub(super) controller: String,
    pub(super) slurm_user: String,
    pub(super) partition: String,
    pub(super) auth: Auth,
    pub(super) has_accounting: bool,
    pub(super) has_cgroups: bool,
    pub(super) nodes: Vec<NodeLine>,
    pub(super) directory: PathBuf,
    pub(super) is_forced: bool,
}

/// Options with a value.
const OPTIONS: [&str; 10] = [
    "cluster",
    "controller",
    "user",
    "node-from",
    "ssh",
    "partition",
    "auth",
    "accounting",
    "cgroups",
    "dir",
];

/// The options that were given.
#[derive(Default)]
struct InitWords {
    values: Vec<(String, String)>,
    is_forced: bool,
}

impl InitWords {
    fn parse(words: &[String]) -> Result<InitWords> {
        let mut given = InitWords::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--force" {
                given.is_forced = true;
                continue;
            }
            let name = word.strip_prefix("--").unwrap_or_default();
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            ensure!(
                OPTIONS.contains(&name),
                "there is no option '{word}': 'muster init --help' has all"
            );
            let value = value.or_else(|| words.next().cloned());
            let value = value.with_context(|| format!("{word} has no value"))?;
            given.values.push((name.to_owned(), value));
        }
        Ok(given)
    }

    fn all<'g>(&'g self, name: &'g str) -> impl Iterator<Item = &'g str> {
        let of_name = self.values.iter().filter(move |(own, _)| own == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// The last value of an option; else the answer to a question; else what counts without one.
    fn value(&self, name: &str, question: &str, otherwise: Option<&str>) -> Result<String> {
        match (self.all(name).last(), otherwise) {
            (Some(value), _) => Ok(value.to_owned()),
            (None, _) if io::stdin().is_terminal() => ask(name, question, otherwise),
            (None, Some(otherwise)) => Ok(otherwise.to_owned()),
            (None, None) => {
                bail!("--{name} is missing ({question}), and there is no terminal to ask at")
            }
        }
    }

    fn is_yes(&self, name: &str, question: &str) -> Result<bool> {
        match self.value(name, question, Some("yes"))?.as_str() {
            "yes" | "y" => Ok(true),
            "no" | "n" => Ok(false),
            other => bail!("--{name}={other}: yes or no"),
        }
    }
}

/// Asks at the terminal.
fn ask(name: &str, question: &str, otherwise: Option<&str>) -> Result<String> {
    for _ in 0..TRIES {
        let default = otherwise.map_or_else(String::new, |text| format!(" [{text}]"));
        eprint!("{question}{default}: ");
        io::stderr().flush()?;
        let mut line = String::new();
        ensure!(
            io::stdin().lock().read_line(&mut line)? > 0,
            "--{name} is missing"
        );
        match (line.trim(), otherwise) {
            ("", None) => {}
            ("", Some(otherwise)) => return Ok(otherwise.to_owned()),
            (answer, _) => return Ok(answer.to_owned()),
        }
    }
    bail!("--{name} is missing ({question})")
}

impl Settings {
    /// Settings by options, and by answers where they are missing.
    pub(super) fn of_words(words: &[String]) -> Result<Settings> {
        let given = InitWords::parse(words)?;
        let cluster = given.value("cluster", "name of the cluster", None)?;
        ensure!(is_name(&cluster), "'{cluster}' is not a valid cluster name");
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = host.to_string_lossy();
        let own = host.split('.').next().filter(|_| io::stdin().is_terminal());
        let controller = given.value("controller", "host of the controller", own)?;
        ensure!(
            is_name(&controller),
            "'{controller}' is not a valid host name"
        );
        let slurm_user = given.value("user", "account of the controller", Some("slurm"))?;
        ensure!(
            is_name(&slurm_user),
            "'{slurm_user}' is not a valid account name"
        );
        let partition = given.value("partition", "name of the partition", Some("main"))?;
        ensure!(
            is_name(&partition),
            "'{partition}' is not a valid partition name"
        );
        let auth = match given
            .value(
                "auth",
                "how nodes are known (keys, munge or slurm)",
                Some("keys"),
            )?
            .as_str()
        {
            "keys" => Auth::Keys,
            "munge" => Auth::Munge,
            "slurm" => Auth::Slurm,
            other => bail!("--auth={other}: keys, munge or slurm"),
        };
        Ok(Settings {
            has_accounting: given.is_yes("accounting", "keep accounting (yes or no)")?,
            has_cgroups: given.is_yes("cgroups", "hold jobs by control groups (yes or no)")?,
            nodes: nodes_of(&given)?,
            directory: std::path::absolute(given.all("dir").last().unwrap_or("/etc/slurm"))?,
            is_forced: given.is_forced,
            cluster,
            controller,
            slurm_user,
            partition,
            auth,
        })
    }

    /// The text of slurm.conf.
    pub(super) fn slurm_conf(&self) -> String {
        let auth = match self.auth {
            // Only nodes with keys of their own are believed then.
            Auth::Keys => "none",
            Auth::Munge => "munge",
            Auth::Slurm => "slurm",
        };
        let accounting = match self.has_accounting {
            true => "slurmdbd",
            false => "none",
        };
        let groups = match self.has_cgroups {
            true => "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup,task/affinity\n",
            false => "TaskPlugin=task/affinity\n",
        };
        let nodes: String = self
            .nodes
            .iter()
            .map(|node| format!("{}\n", node.text))
            .collect();
        format!(
            "ClusterName={}\nSlurmctldHost={}\nAuthType=auth/{auth}\nSlurmUser={}\nSlurmctldParameters=enable_configless\n\
             StateSaveLocation=/var/spool/slurmctld\nSlurmdSpoolDir=/var/spool/slurmd\n\
             SlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n\
             SlurmctldLogFile=/var/log/slurm/slurmctld.log\nSlurmdLogFile=/var/log/slurm/slurmd.log\n\
             {groups}SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nReturnToService=2\n\
             AccountingStorageType=accounting_storage/{accounting}\n\
             {nodes}PartitionName={} Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            self.cluster, self.controller, self.slurm_user, self.partition
        )
    }
}

/// Nodes of files and of hosts that are asked.
fn nodes_of(given: &InitWords) -> Result<Vec<NodeLine>> {
    let (mut found, mut hosts) = (Vec::new(), Vec::new());
    for path in given.all("node-from") {
        found.extend(nodes::from_file(path)?);
    }
    let mut lists: Vec<String> = given.all("ssh").map(str::to_owned).collect();
    if found.is_empty() && lists.is_empty() {
        if !io::stdin().is_terminal() {
            bail!(
                "no node is named: --node-from FILE has what 'slurmd -C' prints on each, or --ssh HOSTS asks them"
            );
        }
        lists.push(ask(
            "ssh",
            "hosts that are asked by ssh what they are, such as n[1-4]",
            None,
        )?);
    }
    for list in lists {
        let names = hostlist::parse_limited(&list, HOSTS_MAX);
        hosts.extend(names.with_context(|| format!("'{list}' is not a valid list of hosts"))?);
    }
    for host in hosts {
        found.push(nodes::from_host(&host)?);
    }
    Ok(found)
}
