//! `srun a : b` in a job that is not heterogeneous: each part has nodes of its own, in the order of the parts. The parts
//! are steps with numbers of their own; srun holds them together, and their tasks are numbered over all.

use super::{ComponentRequest, SrunCall, components, config_of, of_component, part, programs};
use crate::srun::executor::Executor;
use crate::srun::request;
use crate::submit::line::SubmitLine;
use muster_model::hostlist;
use muster_model::job::{Allocation, NodeShare};
use muster_model::job_env::HetComponent;
use muster_node_core::srun::config::SrunConfig;
use muster_proto::client::AllocationInfo;
use muster_proto::step::StepSpec;
use std::process::ExitCode;
use std::sync::Arc;

/// A component that no job has: its variables are in no environment, so that those of the whole job do not count.
const NO_COMPONENT: usize = usize::MAX;

pub(super) fn run(
    lines: &[SubmitLine],
    mut info: AllocationInfo,
    call: SrunCall<'_>,
) -> Result<ExitCode, ExitCode> {
    let say = lines[0].say;
    let mut parts: Vec<(usize, ComponentRequest)> = Vec::with_capacity(lines.len());
    for (number, (line, words)) in lines.iter().zip(programs(lines)).enumerate() {
        let mut own = of_component(line, NO_COMPONENT);
        own.words = words;
        let asked = own.chosen.has("ntasks") || own.chosen.has("ntasks-per-node");
        request::forget_other_counts(&mut own.chosen);
        parts.push((number, part(&own, call.args, asked)?));
    }
    let config = config_of(&lines[0], call, &parts)?;
    let alloc = info.job.alloc.clone();
    let nodes = alloc.as_ref().map_or(&[][..], |alloc| &alloc.nodes);
    let mut free: Vec<&NodeShare> = nodes.iter().collect();
    for (_, part) in &mut parts {
        let own = take_nodes(&part.spec, nodes, &mut free).map_err(|text| {
            say.error(&text);
            say.failed()
        })?;
        let component = on_nodes(&info, &mut part.spec, own);
        info.components.push(component);
    }
    let (_, parts) = components(&say, parts, &info)?;
    let config = SrunConfig { parts, ..config };
    Ok(Executor::new(config, None, call.filters).run())
}

/// The nodes of a part: those that it names and the next ones that no part before it has.
fn take_nodes(
    spec: &StepSpec,
    all: &[NodeShare],
    free: &mut Vec<&NodeShare>,
) -> Result<Vec<NodeShare>, String> {
    let listed = |list: &Option<String>| list.as_deref().map(hostlist::parse);
    let excluded = listed(&spec.exclude)
        .and_then(Result::ok)
        .unwrap_or_default();
    let named = listed(&spec.nodelist)
        .and_then(Result::ok)
        .unwrap_or_default();
    let is_free = |name: &String| free.iter().any(|node| node.name == *name);
    let is_known = |name: &String| all.iter().any(|node| node.name == *name);
    if let Some(taken) = named.iter().find(|name| is_known(name) && !is_free(name)) {
        let list = spec.nodelist.as_deref().unwrap_or_default();
        return Err(format!(
            "Required nodelist {list} overlaps with excluded {taken}"
        ));
    }
    let count = (spec.min_nodes.unwrap_or(1) as usize)
        .max(named.len())
        .max(1);
    let mut own: Vec<&NodeShare> = Vec::with_capacity(count.min(all.len()));
    let fits = |node: &&&NodeShare| !excluded.contains(&node.name);
    own.extend(
        free.iter()
            .filter(fits)
            .filter(|node| named.contains(&node.name)),
    );
    let others = free
        .iter()
        .filter(fits)
        .filter(|node| !named.contains(&node.name));
    own.extend(others.take(count.saturating_sub(own.len())));
    if own.len() < count {
        return Err(format!(
            "Allocation failure of {count} nodes: job size of {}, already allocated {} nodes to previous components.",
            all.len(),
            all.len() - free.len()
        ));
    }
    free.retain(|node| !own.iter().any(|taken| taken.name == node.name));
    // In the order of the job's nodes.
    let mut own: Vec<NodeShare> = own.into_iter().cloned().collect();
    own.sort_by_key(|node| all.iter().position(|known| known.name == node.name));
    Ok(own)
}

/// The part of a job that a step on these nodes fills.
fn on_nodes(info: &AllocationInfo, spec: &mut StepSpec, nodes: Vec<NodeShare>) -> HetComponent {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let list = hostlist::compress(&names);
    spec.min_nodes = Some(count);
    spec.max_nodes = Some(count);
    spec.nodelist = Some(list.clone());
    spec.exclude = None;
    let alloc = info.job.alloc.as_deref().cloned().unwrap_or_default();
    HetComponent {
        job: info.job.id,
        spec: info.job.spec.clone(),
        alloc: Arc::new(Allocation {
            hostlist: list,
            ntasks: count,
            nodes,
            ..alloc
        }),
        time_limit: info.job.time_limit,
        lead_address: info.addresses.first().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::cpuset::CpuSet;
    use muster_model::ids::NodeIdx;

    fn nodes() -> Vec<NodeShare> {
        let names = ["n1", "n2", "n3"].into_iter();
        let share = |(node, name): (u32, &str)| NodeShare {
            node: NodeIdx(node),
            name: name.to_owned(),
            cpus: CpuSet::first(1),
            memory_mib: 0,
            tasks: 1,
            gres: Vec::new(),
        };
        (0..).zip(names).map(share).collect()
    }

    fn names(spec: &StepSpec, all: &[NodeShare], free: &mut Vec<&NodeShare>) -> String {
        match take_nodes(spec, all, free) {
            Ok(own) => own
                .into_iter()
                .map(|n| n.name)
                .collect::<Vec<_>>()
                .join(","),
            Err(text) => text,
        }
    }

    #[test]
    fn parts_have_nodes_of_their_own() {
        let all = nodes();
        let mut free: Vec<&NodeShare> = all.iter().collect();
        let listed = |list: &str| StepSpec {
            nodelist: Some(list.to_owned()),
            ..StepSpec::default()
        };
        assert_eq!(names(&listed("n2"), &all, &mut free), "n2");
        assert_eq!(
            names(&listed("n2"), &all, &mut free),
            "Required nodelist n2 overlaps with excluded n2"
        );
        let two = StepSpec {
            min_nodes: Some(2),
            ..StepSpec::default()
        };
        assert_eq!(names(&two, &all, &mut free), "n1,n3");
        assert_eq!(
            names(&StepSpec::default(), &all, &mut free),
            "Allocation failure of 1 nodes: job size of 3, already allocated 3 nodes to previous components."
        );
    }
}
