//! The meanings of names of Grid Engine at this site: sge.conf, and the partitions and nodes that there are.

use super::{fits, is_pattern};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::say;
use muster_conf::endpoint;
pub(super) use muster_conf::grid_engine::ARCH;
use muster_conf::grid_engine::{FILE, Mapping};
use muster_model::config::PartitionConfig;
use std::process::ExitCode;

/// sge.conf beside slurm.conf. Without the file, names stand for themselves.
///
/// # Errors
/// The exit status, after the error of the file was printed.
pub(crate) fn mapping() -> Result<Mapping, ExitCode> {
    let path = endpoint::conf_path().with_file_name(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Mapping::default()),
        Err(e) => {
            return Err(super::fail(
                &format!("error: cannot read {}: {e}", path.display()),
                1,
            ));
        }
    };
    let (mapping, findings) = Mapping::parse(&text, &path.display().to_string());
    for finding in &findings {
        say::stderr(&format!("{finding}\n"));
    }
    match findings.is_empty() {
        true => Ok(mapping),
        false => Err(ExitCode::FAILURE),
    }
}

/// Partitions and nodes.
pub(super) fn cluster(client: &mut Client) -> Result<Ctx, ConnectError> {
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    query::cluster(client, &mut ctx)?;
    Ok(ctx)
}

/// The queue that stands for the default partition, unless sge.conf has it otherwise.
pub(crate) const ALL: &str = "all.q";

/// Names of queues by which a partition is known, the usual one first.
pub(crate) fn queues<'a>(mapping: &'a Mapping, partition: &'a PartitionConfig) -> Vec<&'a str> {
    let own = mapping
        .queues
        .iter()
        .filter(|(_, to)| *to == partition.name);
    let mut all: Vec<&str> = own.map(|(queue, _)| queue.as_str()).collect();
    if all.is_empty() && partition.default && !mapping.queues.iter().any(|(queue, _)| queue == ALL)
    {
        all.push(ALL);
    }
    all.push(&partition.name);
    all
}

/// The queue of a partition, as listings show it.
pub(super) fn queue_of(mapping: &Mapping, partitions: &[PartitionConfig], name: &str) -> String {
    let partition = partitions.iter().find(|partition| partition.name == name);
    let queue = partition.and_then(|own| queues(mapping, own).first().copied());
    queue.unwrap_or_else(|| mapping.queue_of(name)).to_owned()
}

/// The partitions and nodes that `-q` names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Queues {
    /// Partitions, in the order of the list.
    pub(super) partitions: Vec<String>,
    /// Nodes that will do; `None` is all of the partitions.
    pub(super) nodes: Option<Vec<String>>,
}

/// Finds the partitions and nodes that a list of queues allows.
///
/// # Errors
/// What Grid Engine says behind `Unable to run job:`.
pub(super) fn resolve(
    mapping: &Mapping,
    partitions: &[PartitionConfig],
    list: &[String],
) -> Result<Queues, String> {
    let mut found = Queues::default();
    let (mut nodes, mut bound) = (Vec::new(), false);
    for word in list {
        let (queue, hosts) = match word.split_once('@') {
            Some((queue, hosts)) => (queue, Some(hosts)),
            None => (word.as_str(), None),
        };
        let group = hosts.filter(|hosts| hosts.starts_with('@'));
        let of_group = group.map(|group| {
            let mut all: Vec<String> = partitions
                .iter()
                .flat_map(|own| own.nodes.clone())
                .collect();
            all.sort();
            all.dedup();
            let known = mapping.hosts_of_group(group, &all);
            known.ok_or_else(|| format!("host group \"{group}\" does not exist"))
        });
        let of_group = of_group.transpose()?;
        let fitting: Vec<&PartitionConfig> = partitions
            .iter()
            .filter(|own| queues(mapping, own).iter().any(|name| fits(queue, name)))
            .collect();
        if fitting.is_empty() {
            return Err(format!(
                "Job was rejected because job requests unknown queue \"{word}\""
            ));
        }
        for partition in fitting {
            let fits_hosts = |node: &&String| match &of_group {
                Some(group) => group.contains(node),
                None => hosts.is_none_or(|hosts| fits(hosts, node)),
            };
            let mut of_hosts = partition.nodes.iter().filter(fits_hosts).peekable();
            bound |= hosts.is_some();
            if hosts.is_some() && of_hosts.peek().is_none() {
                continue;
            }
            nodes.extend(of_hosts.cloned());
            if !found.partitions.contains(&partition.name) {
                found.partitions.push(partition.name.clone());
            }
        }
    }
    if bound {
        nodes.sort();
        nodes.dedup();
        if nodes.is_empty() {
            let list = list.join(",");
            return Err(format!(
                "Job was rejected because job requests unknown queue \"{list}\""
            ));
        }
        found.nodes = Some(nodes);
    }
    Ok(found)
}

/// Nodes whose names fit a pattern of `-l hostname`.
///
/// # Errors
/// No node does.
pub(super) fn hosts(all: &[String], pattern: &str) -> Result<Vec<String>, String> {
    let fitting: Vec<String> = all
        .iter()
        .filter(|name| fits(pattern, name))
        .cloned()
        .collect();
    match fitting.is_empty() {
        true if is_pattern(pattern) => Err(format!("no host fits hostname={pattern}")),
        true => Err(format!("unknown host \"{pattern}\"")),
        false => Ok(fitting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions() -> Vec<PartitionConfig> {
        let partition = |name: &str, default, nodes: &[&str]| PartitionConfig {
            default,
            nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
            ..PartitionConfig::named(name)
        };
        vec![
            partition("debug", true, &["n1", "n2"]),
            partition("long", false, &["n2", "n3"]),
        ]
    }

    #[test]
    fn queues_and_partitions() {
        let (mapping, partitions) = (Mapping::default(), partitions());
        let resolve = |list: &str| {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            resolve(&mapping, &partitions, &list)
        };
        let found = |partitions: &[&str], nodes: Option<&[&str]>| {
            let own = |list: &[&str]| {
                list.iter()
                    .map(|w| (*w).to_owned())
                    .collect::<Vec<String>>()
            };
            Ok(Queues {
                partitions: own(partitions),
                nodes: nodes.map(own),
            })
        };
        assert_eq!(resolve("all.q"), found(&["debug"], None));
        assert_eq!(resolve("long,all.q"), found(&["long", "debug"], None));
        assert_eq!(resolve("*@n2"), found(&["debug", "long"], Some(&["n2"])));
        assert_eq!(resolve("*@n3"), found(&["long"], Some(&["n3"])));
        assert_eq!(resolve("all.q@n[13]"), found(&["debug"], Some(&["n1"])));
        for (list, why) in [
            (
                "nosuch.q",
                "Job was rejected because job requests unknown queue \"nosuch.q\"",
            ),
            (
                "long@x",
                "Job was rejected because job requests unknown queue \"long@x\"",
            ),
            ("all.q@@big", "host group \"@big\" does not exist"),
        ] {
            assert_eq!(resolve(list).unwrap_err(), why);
        }
        let grouped = Mapping::parse("hostgroup @big n3 n9\n", "f").0;
        let list = ["*@@big".to_owned()];
        assert_eq!(
            super::resolve(&grouped, &partitions, &list),
            found(&["long"], Some(&["n3"]))
        );
        assert_eq!(
            resolve("all.q@@allhosts"),
            found(&["debug"], Some(&["n1", "n2"]))
        );
        assert_eq!(queue_of(&mapping, &partitions, "debug"), "all.q");
        let named = Mapping::parse("queue all.q long\n", "f").0;
        assert_eq!(queue_of(&named, &partitions, "long"), "all.q");
        assert_eq!(queue_of(&named, &partitions, "debug"), "debug");
    }
}
