//! The partitions and nodes in which a job may run: `-q`, `-soft -q`, `-masterq`, `-l hostname`.

use super::request::Request;
use super::site::{self, Queues};
use super::unreachable;
use crate::connect::Client;
use crate::listing::context::Ctx;
use muster_conf::grid_engine::resources::Resources;
use muster_conf::grid_engine::{AllocationRule, Mapping};
use muster_conf::options::ChosenOptions;
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use std::process::ExitCode;

impl Request {
    /// Puts a parallel environment in place of a pattern (`-pe mpi* 4`): the first one that can have such a number of slots. A
    /// pattern that fits none stays, and is refused as a name is.
    pub(super) fn choose_environment(&mut self, mapping: &Mapping) {
        let Some((pe, slots)) = self.pe.as_mut().filter(|(pe, _)| super::is_pattern(pe)) else {
            return;
        };
        let mut all = mapping.environments();
        all.retain(|(name, _)| super::fits(pe, name));
        let can = |(_, rule): &&(String, AllocationRule)| {
            self.rule.unwrap_or(*rule).tasks_of(&slots.all).is_some()
        };
        if let Some((name, _)) = all.iter().find(can).or(all.first()) {
            pe.clone_from(name);
        }
    }
}

/// Sets the partitions, and the nodes where not all of these will do.
///
/// # Errors
/// The exit status, after the error was printed.
pub(super) fn places(
    request: &Request,
    resources: &Resources,
    mapping: &Mapping,
    client: &mut Client,
    chosen: &mut ChosenOptions,
) -> Result<(), ExitCode> {
    if !request.master_queues.is_empty() && request.pe.is_none() {
        return Err(super::unable_to_run(
            "job rejected: specification of master queue is not allowed for non-parallel jobs",
        ));
    }
    let is_anywhere = request.queues.is_empty()
        && request.soft_queues.is_empty()
        && request.master_queues.is_empty()
        && resources.queue.is_none()
        && resources.hosts.is_none();
    if is_anywhere {
        return Ok(());
    }
    let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
    set(request, resources, mapping, &ctx, chosen).map_err(|why| super::unable_to_run(&why))
}

fn set(
    request: &Request,
    resources: &Resources,
    mapping: &Mapping,
    ctx: &Ctx,
    chosen: &mut ChosenOptions,
) -> Result<(), String> {
    let queues = queues(request, resources, mapping, &ctx.partitions)?;
    if !queues.partitions.is_empty() {
        chosen.set("partition", Some(queues.partitions.join(",")));
    }
    let names = ctx.nodes.iter().map(|node| node.config.name.clone());
    let all: Vec<String> = names.collect();
    let hosts = resources.hosts.as_deref();
    let fitting = hosts
        .map(|pattern| site::hosts(&all, pattern))
        .transpose()?;
    match both(queues.nodes, fitting) {
        None => {}
        Some(nodes) if nodes.is_empty() => return Err(NO_QUEUES.to_owned()),
        Some(nodes) if nodes.len() == 1 => chosen.set("nodelist", nodes.first().cloned()),
        Some(nodes) => {
            let others = all.iter().filter(|own| !nodes.contains(own));
            let others: Vec<&str> = others.map(String::as_str).collect();
            if !others.is_empty() {
                chosen.set("exclude", Some(hostlist::compress(&others)));
            }
        }
    }
    Ok(())
}

const NO_QUEUES: &str = "error: no suitable queues";

/// The nodes that are in both lists; an absent one has all.
fn both(first: Option<Vec<String>>, second: Option<Vec<String>>) -> Option<Vec<String>> {
    match (first, second) {
        (Some(mut first), Some(second)) => {
            first.retain(|own| second.contains(own));
            Some(first)
        }
        (first, second) => first.or(second),
    }
}

/// The queues that hard requests allow, those of soft ones first: a job starts in the first of its partitions that has room.
///
/// # Errors
/// The text behind `Unable to run job:`.
fn queues(
    request: &Request,
    resources: &Resources,
    mapping: &Mapping,
    partitions: &[PartitionConfig],
) -> Result<Queues, String> {
    let mut list = request.queues.clone();
    list.extend(resources.queue.clone());
    let mut found = site::resolve(mapping, partitions, &list)?;
    if !request.master_queues.is_empty() {
        let master = master_queues(request, mapping, partitions)?;
        found.nodes = both(found.nodes, master.nodes);
        if list.is_empty() {
            found.partitions = master.partitions;
        } else {
            found
                .partitions
                .retain(|own| master.partitions.contains(own));
        }
        if found.partitions.is_empty() {
            return Err(NO_QUEUES.to_owned());
        }
    }
    if !request.soft_queues.is_empty() {
        let mut soft = site::resolve(mapping, partitions, &request.soft_queues)?;
        if soft.nodes.is_some() {
            return Err(format!(
                "-soft -q {} names hosts: a job may prefer queues and features of hosts (-soft -l), no single hosts",
                request.soft_queues.join(",")
            ));
        }
        if found.partitions.is_empty() {
            let default = partitions.iter().filter(|partition| partition.default);
            found.partitions = default.map(|partition| partition.name.clone()).collect();
        } else {
            soft.partitions.retain(|own| found.partitions.contains(own));
        }
        found
            .partitions
            .retain(|own| !soft.partitions.contains(own));
        soft.partitions.append(&mut found.partitions);
        found.partitions = soft.partitions;
    }
    Ok(found)
}

/// The queues of `-masterq`. All slots of a job are in one partition, so that its first task is in one of these queues if the job is.
fn master_queues(
    request: &Request,
    mapping: &Mapping,
    partitions: &[PartitionConfig],
) -> Result<Queues, String> {
    let found = site::resolve(mapping, partitions, &request.master_queues)?;
    let rule = request
        .pe
        .as_ref()
        .and_then(|(pe, _)| request.rule_of(pe, mapping));
    match found.nodes {
        Some(_) if rule != Some(AllocationRule::PeSlots) => Err(format!(
            "-masterq {} names hosts: the host of the first task cannot be chosen for a job that may have several; name queues \
             alone",
            request.master_queues.join(",")
        )),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{OperandPosition, parse};
    use super::super::submit_options::QSUB;
    use super::*;

    fn places(line: &str) -> Result<(String, Option<String>), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let mut request = Request::default();
        for given in &parse(&QSUB, &words, OperandPosition::End).unwrap().options {
            request.take(given).unwrap();
        }
        let partition = |name: &str, default, nodes: &[&str]| PartitionConfig {
            default,
            nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
            ..PartitionConfig::named(name)
        };
        let partitions = [
            partition("a", true, &["n1", "n2"]),
            partition("b", false, &["n2", "n3"]),
            partition("c", false, &["n3"]),
        ];
        let mapping = Mapping::default();
        let found = queues(&request, &Resources::default(), &mapping, &partitions)?;
        Ok((
            found.partitions.join(","),
            found.nodes.map(|all| all.join(",")),
        ))
    }

    #[test]
    fn soft_queues_come_first_and_a_master_queue_is_that_of_the_job() {
        let found = |partitions: &str, nodes: Option<&str>| {
            Ok((partitions.to_owned(), nodes.map(str::to_owned)))
        };
        for (line, want) in [
            ("-q a,b -soft -q b", found("b,a", None)),
            ("-soft -q b", found("b,a", None)),
            ("-soft -q b,a -hard -q c,a", found("a,c", None)),
            ("-soft -q all.q", found("a", None)),
            ("-pe smp 2 -masterq b", found("b", None)),
            ("-pe mpi 2 -q a,b -masterq b,c", found("b", None)),
            ("-pe smp 2 -q a,b -masterq b@n3", found("b", Some("n3"))),
            (
                "-pe mpi 2 -par $pe_slots -masterq *@n3",
                found("b,c", Some("n3")),
            ),
        ] {
            assert_eq!(places(line), want, "{line}");
        }
        for (line, why) in [
            ("-pe smp 2 -q a -masterq b", NO_QUEUES),
            (
                "-pe mpi 2 -masterq b@n3",
                "-masterq b@n3 names hosts: the host of the first task",
            ),
            ("-soft -q b@n3", "-soft -q b@n3 names hosts"),
            (
                "-soft -q nosuch",
                "Job was rejected because job requests unknown queue \"nosuch\"",
            ),
        ] {
            let found = places(line).unwrap_err();
            assert!(found.starts_with(why), "{line}: {found}");
        }
    }
}
