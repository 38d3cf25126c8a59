//! What Slurm gave for the same, and properties over drawn topologies.

use super::*;
use crate::binding::topology::CpuPlace;
use proptest::prelude::*;

const SLURM: &str = include_str!("../../../tests/data/slurm_masks.txt");

fn bits(hex: &str) -> CpuSet {
    let bits = u64::from_str_radix(hex, 16).unwrap();
    (0..64).filter(|cpu| bits & (1 << cpu) != 0).collect()
}

fn hex(set: &CpuSet) -> String {
    format!("{:x}", set.iter().fold(0u64, |bits, cpu| bits | 1 << cpu))
}

fn spread(word: &str) -> CpuSpread {
    match word {
        "block" => CpuSpread::Block,
        "cyclic" => CpuSpread::Cyclic,
        "fcyclic" => CpuSpread::FullCyclic,
        other => panic!("{other}"),
    }
}

#[test]
fn masks_are_those_of_slurm() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for line in SLURM.lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let shape: Vec<u32> = words[0].split(':').map(|n| n.parse().unwrap()).collect();
        let request = CpuRequest {
            tasks: words[2].parse().unwrap(),
            cpus_per_task: words[3].parse().unwrap(),
            unit: match words[4] {
                "auto" => None,
                "threads" => Some(Unit::Threads),
                "cores" => Some(Unit::Cores),
                "sockets" => Some(Unit::Sockets),
                other => panic!("{other}"),
            },
            sockets: spread(words[5]),
            cores: None,
            threads_per_core: words[6].parse().ok(),
            tasks_per_socket: words[7].parse().ok(),
        };
        let topology = CpuTopology::uniform(shape[0], shape[1], shape[2]);
        let masks: Vec<String> = assign(&topology, &bits(words[1]), &request, None)
            .iter()
            .map(hex)
            .collect();
        if masks.join(",") != words[8] {
            wrong.push(format!("{line}: {}", masks.join(",")));
        }
        seen += 1;
    }
    assert!(seen > 700, "{seen} rows");
    assert!(
        wrong.is_empty(),
        "{} of {seen} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_distribution_over_cores_is_honoured() {
    let topology = CpuTopology::uniform(2, 4, 2);
    let masks = |sockets, cores, cpus_per_task| {
        let request = CpuRequest {
            tasks: 4,
            cpus_per_task,
            unit: Some(Unit::Threads),
            sockets,
            cores: Some(cores),
            threads_per_core: None,
            tasks_per_socket: None,
        };
        let masks: Vec<String> = assign(&topology, &topology.all(), &request, None)
            .iter()
            .map(hex)
            .collect();
        masks.join(",")
    };
    assert_eq!(masks(CpuSpread::Block, CpuSpread::Block, 1), "1,2,4,8");
    assert_eq!(masks(CpuSpread::Block, CpuSpread::Cyclic, 1), "1,4,10,40");
    assert_eq!(
        masks(CpuSpread::Cyclic, CpuSpread::Cyclic, 1),
        "1,100,4,400"
    );
    assert_eq!(
        masks(CpuSpread::Block, CpuSpread::FullCyclic, 2),
        "5,50,a,a0"
    );
}

/// A topology with gaps, uneven sockets and NUMA domains that are not sockets.
fn topologies() -> impl Strategy<Value = CpuTopology> {
    (1u32..4, 1u32..5, 1u32..3, any::<u64>()).prop_map(|(sockets, cores, threads, holes)| {
        let whole = CpuTopology::uniform(sockets, cores, threads);
        let places: Vec<CpuPlace> = whole
            .all()
            .iter()
            .filter(|cpu| *cpu == 0 || holes & (1 << (cpu % 64)) == 0)
            .filter_map(|cpu| whole.get(cpu).cloned())
            .map(|place| CpuPlace {
                ldom: place.core / 2,
                ..place
            })
            .collect();
        CpuTopology::of(places)
    })
}

fn wishes() -> impl Strategy<Value = CpuRequest> {
    let spreads = prop_oneof![
        Just(CpuSpread::Block),
        Just(CpuSpread::Cyclic),
        Just(CpuSpread::FullCyclic)
    ];
    let units = prop_oneof![
        Just(Unit::Threads),
        Just(Unit::Cores),
        Just(Unit::Sockets),
        Just(Unit::Ldoms)
    ];
    (
        (1u32..12, 1u32..6, proptest::option::of(units)),
        (spreads.clone(), proptest::option::of(spreads)),
        (proptest::option::of(1u32..3), proptest::option::of(1u32..3)),
    )
        .prop_map(
            |(
                (tasks, cpus_per_task, unit),
                (sockets, cores),
                (threads_per_core, tasks_per_socket),
            )| CpuRequest {
                tasks,
                cpus_per_task,
                unit,
                sockets,
                cores,
                threads_per_core,
                tasks_per_socket,
            },
        )
}

fn step_cpus(topology: &CpuTopology, keep: u64) -> CpuSet {
    let some: CpuSet = topology
        .all()
        .iter()
        .filter(|cpu| keep & (1 << (cpu % 64)) != 0)
        .collect();
    if some.is_empty() {
        topology.all()
    } else {
        some
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_task_gets_cpus_of_its_step(topology in topologies(), request in wishes(), keep in any::<u64>()) {
        let cpus = step_cpus(&topology, keep);
        let masks = assign(&topology, &cpus, &request, None);
        prop_assert!(masks.len() == 1 || masks.len() == request.tasks as usize);
        for mask in &masks {
            prop_assert!(!mask.is_empty() && cpus.is_superset(mask), "{mask:?} in {cpus:?}");
        }
        prop_assert!(masks == assign(&topology, &cpus, &request, None), "not the same twice");
    }

    #[test]
    fn tasks_that_fit_share_no_thread(topology in topologies(), request in wishes(), keep in any::<u64>()) {
        let cpus = step_cpus(&topology, keep);
        let request = CpuRequest { unit: Some(Unit::Threads), tasks_per_socket: None, ..request };
        let dealt = thinned(&topology, &cpus, request.threads_per_core);
        let cpus_per_task = request.cpus_per_task.min(dealt.len());
        let request = CpuRequest { cpus_per_task, tasks: request.tasks.min(dealt.len() / cpus_per_task), ..request };
        let mut used = CpuSet::default();
        for mask in assign(&topology, &cpus, &request, None) {
            prop_assert_eq!(mask.len(), request.cpus_per_task);
            prop_assert!(!used.intersects(&mask), "{:?} twice", mask);
            used.union_with(&mask);
        }
    }

    #[test]
    fn a_task_is_bound_to_whole_units(topology in topologies(), request in wishes(), keep in any::<u64>()) {
        let cpus = step_cpus(&topology, keep);
        let Some(unit) = request.unit else { return Ok(()); };
        for mask in assign(&topology, &cpus, &request, None) {
            prop_assert_eq!(topology.widen(&mask, unit, &cpus), mask);
        }
    }

    #[test]
    fn with_no_more_tasks_than_cores_none_is_shared(topology in topologies(), sockets in prop_oneof![Just(CpuSpread::Block), Just(CpuSpread::Cyclic)]) {
        let cores = u32::try_from(topology.units_in(&topology.all(), Unit::Cores)).unwrap();
        let request = CpuRequest {
            tasks: cores, cpus_per_task: 1, unit: Some(Unit::Cores), sockets, cores: None,
            threads_per_core: None, tasks_per_socket: None,
        };
        let mut used = CpuSet::default();
        for mask in assign(&topology, &topology.all(), &request, None) {
            prop_assert!(!used.intersects(&mask));
            used.union_with(&mask);
        }
        prop_assert_eq!(used, topology.all());
    }
}
