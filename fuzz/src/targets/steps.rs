//! Layouts of steps: in no allocation does any request panic, take CPUs of other jobs, or take those in use.

use super::headed;
use muster_hostile::cbor::Value;
use muster_hostile::requests;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Allocation, GresShare, NodeShare};
use muster_node::fuzzing::{self, InUse};
use muster_proto::frame;
use muster_proto::step::{AgentRequest, StepSpec};
use std::collections::BTreeSet;

/// An allocation as three numbers of an input describe it.
fn allocation(nodes: u8, cpus: u8, memory: u8) -> Allocation {
    let nodes = 1 + u32::from(nodes % 9);
    let share = |index: u32| {
        let cpus = 1 + (u32::from(cpus % 13) + index * u32::from(memory % 3)) % 13;
        NodeShare {
            node: NodeIdx(index),
            name: format!("n{}", index + 1),
            cpus: CpuSet::first(cpus),
            memory_mib: u64::from(memory) << (memory % 30),
            tasks: 1 + index % 2,
            gres: vec![GresShare {
                name: "gpu".to_owned(),
                kind: Some("a100".to_owned()),
                ids: CpuSet::first(cpus % 4),
                ..GresShare::default()
            }],
        }
    };
    Allocation {
        nodes: (0..nodes).map(share).collect(),
        hostlist: format!("n[1-{nodes}]"),
        ntasks: nodes,
        ..Allocation::default()
    }
}

/// Runs the target.
pub(super) fn run(data: &[u8]) {
    let Some((&[nodes, cpus, memory], bytes)) = data.split_first_chunk::<3>() else {
        return;
    };
    // As the agent decodes it.
    let request = Value::Array(vec![
        Value::Unsigned(0),
        Value::Array(vec![Value::Raw(bytes.to_vec())]),
    ]);
    let Ok(AgentRequest::Create(spec)) = frame::decode(&request.encode()) else {
        return;
    };
    let alloc = allocation(nodes, cpus, memory);
    let in_use = |share: &NodeShare| InUse {
        cpus: CpuSet::first(share.cpus.len() / 2),
        memory_mib: share.memory_mib / 2,
    };
    let nothing: Vec<InUse> = alloc.nodes.iter().map(|_| InUse::default()).collect();
    let some: Vec<InUse> = alloc.nodes.iter().map(in_use).collect();
    for held in [&nothing, &some] {
        if let Some(placed) = fuzzing::lay_out(&alloc, &spec, held) {
            check(&alloc, &spec, held, &placed);
        }
    }
}

fn check(alloc: &Allocation, spec: &StepSpec, held: &[InUse], placed: &[fuzzing::Placed]) {
    let (mut nodes, mut tasks) = (BTreeSet::new(), BTreeSet::new());
    for part in placed {
        assert!(nodes.insert(part.node), "a node has two parts of a step");
        let share = &alloc.nodes[part.node];
        assert!(share.cpus.is_superset(&part.cpus), "CPUs of others");
        assert!(part.memory_mib <= share.memory_mib, "memory of others");
        if !spec.overlap {
            assert!(!held[part.node].cpus.intersects(&part.cpus), "CPUs in use");
        }
        for task in &part.tasks {
            assert!(tasks.insert(*task), "task {task} is in two places");
        }
    }
    let count = tasks.len() as u64;
    assert!(
        tasks
            .last()
            .is_none_or(|last| u64::from(*last) + 1 == count),
        "numbers are left out"
    );
}

/// Inputs to begin with.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain = requests::step(JobId(1), &["true"]);
    let distributions = [
        "block",
        "cyclic",
        "plane=2",
        "arbitrary",
        "block:cyclic:fcyclic,Pack",
    ];
    let mut specs = vec![plain.clone(), requests::full_step(JobId(1))];
    specs.extend(distributions.map(|text| StepSpec {
        distribution: Some(text.to_owned()),
        ntasks: Some(4),
        nodelist: Some("n[1-2]".to_owned()),
        ..plain.clone()
    }));
    specs.push(StepSpec {
        exact: true,
        cpus_per_task: Some(2),
        ntasks_per_node: Some(2),
        ..plain.clone()
    });
    specs.push(StepSpec {
        overcommit: true,
        overlap: true,
        ntasks: Some(30),
        ..plain
    });
    let inputs = specs.iter().flat_map(|spec| {
        let value = Value::of(spec);
        [[0, 3, 10], [2, 7, 20], [8, 12, 29]].map(|head| headed(&head, &value))
    });
    inputs.collect()
}
