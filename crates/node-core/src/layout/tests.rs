//! Layouts, drawn as `n1:0,1/4`: tasks and CPUs of each node.

use super::*;
use muster_model::ids::NodeIdx;

fn alloc(cpus: &[u32]) -> Allocation {
    let nodes = (1u32..).zip(cpus).map(|(i, &cpus)| NodeShare {
        node: NodeIdx(i),
        name: format!("n{i}"),
        cpus: CpuSet::first(cpus),
        memory_mib: 1000,
        tasks: 1,
        gres: Vec::new(),
    });
    Allocation {
        nodes: nodes.collect(),
        ..Allocation::default()
    }
}

/// `n1:0,1 n2:2` for the tasks, and the number of CPUs of each node.
fn show(placed: &[NodePlacement]) -> String {
    let parts: Vec<String> = placed
        .iter()
        .map(|p| {
            let tasks: Vec<String> = p.tasks.iter().map(u32::to_string).collect();
            format!("n{}:{}/{}", p.node + 1, tasks.join(","), p.cpus.len())
        })
        .collect();
    parts.join(" ")
}

fn idle(alloc: &Allocation, spec: &StepSpec) -> String {
    let held = vec![StepUse::default(); alloc.nodes.len()];
    match lay_out(alloc, spec, &held, TASKS_PER_NODE_DEFAULT) {
        Ok(placed) => show(&placed),
        Err(NoLayout::Busy) => "busy".to_owned(),
        Err(NoLayout::Never(r)) => format!("{:?}", r.code),
    }
}

fn spec(ntasks: u32) -> StepSpec {
    StepSpec {
        ntasks: Some(ntasks),
        ..StepSpec::default()
    }
}

/// Tasks that follow from the numbers of nodes and of tasks on each were not counted: a step of thousands was as one of none.
#[test]
fn tasks_count_as_work_also_where_their_number_follows() {
    let a = alloc(&[4; 10]);
    let most = TASKS_PER_NODE_DEFAULT;
    let work = |spec: &StepSpec| {
        let nodes = StepNodes::new(&a, spec, most).expect("the nodes are there");
        layout_work(&a, spec, &nodes, most)
    };
    assert_eq!(work(&spec(7)), 17);
    assert_eq!(work(&StepSpec::default()), 20);
    let by_node = |min_nodes| StepSpec {
        ntasks_per_node: Some(100),
        min_nodes,
        ..StepSpec::default()
    };
    assert_eq!(work(&by_node(None)), 1010);
    assert_eq!(work(&by_node(Some(3))), 310);
    assert_eq!(work(&by_node(Some(u32::MAX))), 10 + 10 * u64::from(most));
}

#[test]
fn distributions() {
    let a = alloc(&[4, 4]);
    assert_eq!(idle(&a, &spec(4)), "n1:0,1/4 n2:2,3/4");
    assert_eq!(idle(&a, &StepSpec::default()), "n1:0/4 n2:1/4");
    assert_eq!(idle(&a, &spec(1)), "n1:0/4");
    assert_eq!(idle(&a, &spec(9)), "TooManyCpus");
    let with = |distribution: &str, ntasks| StepSpec {
        distribution: Some(distribution.to_owned()),
        ..spec(ntasks)
    };
    assert_eq!(idle(&a, &with("cyclic", 5)), "n1:0,2,4/4 n2:1,3/4");
    assert_eq!(idle(&a, &with("plane=2", 6)), "n1:0,1,4,5/4 n2:2,3/4");
    assert_eq!(idle(&a, &with("block,pack", 5)), "n1:0,1,2,3/4 n2:4/4");
    assert_eq!(idle(&a, &with("nosuch", 5)), "InvalidValue");
    let arbitrary = StepSpec {
        nodelist: Some("n2,n1,n2".to_owned()),
        ..with("arbitrary", 3)
    };
    assert_eq!(idle(&a, &arbitrary), "n1:1/4 n2:0,2/4");
    // Uneven nodes: dealt out one at a time, numbered in blocks.
    assert_eq!(idle(&alloc(&[1, 4]), &spec(4)), "n1:0/1 n2:1,2,3/4");
}

/// What srun makes of options of a row, in an allocation of three nodes.
fn spec_of(options: &str) -> StepSpec {
    let (mut spec, mut nodes, mut words) = (StepSpec::default(), 3, options.split(' '));
    let (mut per_node, mut given) = (None, false);
    while let Some(word) = words.next() {
        let number = |text: &str| text.parse::<u32>().unwrap();
        match (word, word.get(..2)) {
            ("-m", _) => spec.distribution = words.next().map(str::to_owned),
            (_, Some("-n")) => spec.ntasks = Some(number(&word[2..])),
            (_, Some("-c")) => spec.cpus_per_task = Some(number(&word[2..])),
            (_, Some("-N")) => (nodes, given) = (number(&word[2..]), true),
            _ => per_node = Some(number(word.strip_prefix("--ntasks-per-node=").unwrap())),
        }
    }
    let ntasks = spec.ntasks.unwrap();
    let nodes = nodes.min(ntasks);
    spec.exact = spec.cpus_per_task.is_some();
    spec.ntasks_per_node = per_node.filter(|n| n * nodes >= ntasks);
    let pack = spec
        .distribution
        .as_deref()
        .is_some_and(|d| d.ends_with(",Pack"));
    if given || !pack {
        (spec.min_nodes, spec.max_nodes) = (Some(nodes), Some(nodes));
    } else {
        spec.ntasks_per_node = None;
    }
    spec
}

#[test]
fn tasks_go_where_slurm_puts_them() {
    let rows = include_str!("../../tests/data/slurm_layouts.txt").lines();
    let (mut seen, mut wrong) = (0, Vec::new());
    for row in rows.filter(|r| !r.starts_with('#')) {
        let fields: Vec<&str> = row.split('|').collect();
        let cpus: Vec<u32> = fields[0].split(',').map(|n| n.parse().unwrap()).collect();
        let a = alloc(&cpus);
        let spec = spec_of(fields[1]);
        let placed = lay_out(
            &a,
            &spec,
            &vec![StepUse::default(); cpus.len()],
            TASKS_PER_NODE_DEFAULT,
        );
        let shown = placed.map_or_else(
            |e| format!("{e:?}"),
            |placed| {
                let parts = placed.iter().map(|p| {
                    let tasks: Vec<String> = p.tasks.iter().map(u32::to_string).collect();
                    format!("n{}:{}", p.node + 1, tasks.join(","))
                });
                parts.collect::<Vec<_>>().join(" ")
            },
        );
        let count = |n: usize| u32::try_from(n).unwrap();
        let variable = Distribution::parse(spec.distribution.as_deref().unwrap_or(""))
            .unwrap()
            .with_default(spec.ntasks.unwrap(), count(fields[2].split(' ').count()))
            .variable();
        if (shown.as_str(), variable.as_str()) != (fields[2], fields[3]) {
            wrong.push(format!("{row}: {shown} {variable}"));
        }
        seen += 1;
    }
    assert!(seen > 400, "{seen} rows");
    assert!(
        wrong.is_empty(),
        "{} of {seen} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The allocation of `-N2 -n4 --ntasks-per-node=2` may have three CPUs on one node and one on the other.
#[test]
fn a_limit_of_tasks_per_node_yields_to_their_number() {
    let uneven = alloc(&[3, 1]);
    let at_most = |ntasks_per_node, ntasks| StepSpec {
        ntasks_per_node: Some(ntasks_per_node),
        ..spec(ntasks)
    };
    assert_eq!(idle(&uneven, &at_most(2, 4)), "n1:0,1,2/3 n2:3/1");
    let by_nodes = StepSpec {
        ntasks: None,
        min_nodes: Some(2),
        ..at_most(2, 0)
    };
    assert_eq!(idle(&uneven, &by_nodes), "n1:0,1,2/3 n2:3/1");
    let even = alloc(&[4, 4]);
    assert_eq!(idle(&even, &at_most(2, 4)), "n1:0,1/4 n2:2,3/4");
    assert_eq!(idle(&uneven, &at_most(2, 5)), "TooManyCpus");
}

#[test]
fn choice_of_nodes() {
    let a = alloc(&[4, 4, 4]);
    let on = |list: &str, ntasks| StepSpec {
        nodelist: Some(list.to_owned()),
        ..spec(ntasks)
    };
    assert_eq!(idle(&a, &on("n3", 2)), "n3:0,1/4");
    assert_eq!(idle(&a, &on("n9", 1)), "NodeConfigUnavailable");
    let relative = StepSpec {
        relative: Some(1),
        min_nodes: Some(1),
        ..StepSpec::default()
    };
    assert_eq!(idle(&a, &relative), "n2:0/4");
    let exclude = StepSpec {
        exclude: Some("n[1-2]".to_owned()),
        ..StepSpec::default()
    };
    assert_eq!(idle(&a, &exclude), "n3:0/4");
    let both = StepSpec {
        exclude: Some("n3".to_owned()),
        ..on("n3", 1)
    };
    assert_eq!(idle(&a, &both), "NodeConfigUnavailable");
    assert_eq!(
        idle(
            &a,
            &StepSpec {
                min_nodes: Some(3),
                ..on("n3", 3)
            }
        ),
        "n1:0/4 n2:1/4 n3:2/4"
    );
    let per_node = StepSpec {
        ntasks_per_node: Some(2),
        min_nodes: Some(2),
        ..StepSpec::default()
    };
    assert_eq!(idle(&a, &per_node), "n1:0,1/4 n2:2,3/4");
    let overcommit = StepSpec {
        overcommit: true,
        min_nodes: Some(1),
        ..spec(9)
    };
    assert_eq!(idle(&a, &overcommit), "n1:0,1,2,3,4,5,6,7,8/4");
    // Memory goes with CPUs, and these are shared.
    let with_memory = StepSpec {
        memory: MemoryAsk::PerCpu(100),
        ..overcommit
    };
    assert_eq!(idle(&a, &with_memory), "n1:0,1,2,3,4,5,6,7,8/4");
}

#[test]
fn devices_of_steps() {
    use muster_model::spec::DeviceAsk;
    let mut a = alloc(&[4, 4]);
    for (node, count) in a.nodes.iter_mut().zip([4, 2]) {
        node.gres = vec![GresShare {
            name: "gpu".to_owned(),
            ids: CpuSet::first(count),
            near: (0..count).map(|i| CpuSet::from_iter([i])).collect(),
            ..GresShare::default()
        }];
    }
    let gpus = |count| {
        vec![GresAsk {
            name: "gpu".to_owned(),
            kind: None,
            count,
        }]
    };
    let with = |devices, ntasks| StepSpec {
        devices: Some(Box::new(devices)),
        ..spec(ntasks)
    };
    let shown = |spec: &StepSpec, held: &[StepUse]| -> String {
        match lay_out(&a, spec, held, TASKS_PER_NODE_DEFAULT) {
            Ok(placed) => (placed.iter())
                .map(|p| {
                    let ids = p.gres.iter().flat_map(|g| g.ids.iter());
                    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
                    let near: usize = p.gres.iter().map(|g| g.near.len()).sum();
                    assert_eq!(near, ids.len());
                    format!("n{}:{}/{}", p.node + 1, p.tasks.len(), ids.join(","))
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err(NoLayout::Busy) => "busy".to_owned(),
            Err(NoLayout::Never(r)) => format!("{:?}", r.code),
        }
    };
    let mut held = vec![StepUse::default(), StepUse::default()];
    let of_task = |count| DeviceAsk {
        per_task: gpus(count),
        ..DeviceAsk::default()
    };
    let of_step = |count| DeviceAsk {
        per_job: gpus(count),
        ..DeviceAsk::default()
    };
    assert_eq!(shown(&with(of_task(1), 4), &held), "n1:2/0,1 n2:2/0,1");
    assert_eq!(shown(&with(of_task(2), 3), &held), "n1:2/0,1,2,3 n2:1/0,1");
    assert_eq!(shown(&with(of_task(3), 2), &held), "InvalidGres");
    assert_eq!(shown(&with(of_step(5), 4), &held), "n1:2/0,1,2 n2:2/0,1");
    assert_eq!(shown(&with(of_step(7), 4), &held), "InvalidGres");
    let without = StepSpec {
        no_devices: true,
        ..spec(2)
    };
    assert_eq!(shown(&without, &held), "n1:1/ n2:1/", "--gres=none");
    // A step that does not ask has them all, and keeps them from nobody.
    assert_eq!(shown(&spec(2), &held), "n1:1/0,1,2,3 n2:1/0,1");
    held[0].gres = vec![GresShare {
        ids: CpuSet::first(2),
        ..a.nodes[0].gres[0].clone()
    }];
    assert_eq!(shown(&with(of_step(4), 2), &held), "n1:1/2,3 n2:1/0,1");
    assert_eq!(shown(&with(of_step(5), 2), &held), "busy");
}

#[test]
fn steps_beside_each_other() {
    let a = alloc(&[4]);
    let exact = StepSpec {
        exact: true,
        cpus_per_task: Some(3),
        ..spec(1)
    };
    let mut held = vec![StepUse::default()];
    let first = lay_out(&a, &exact, &held, TASKS_PER_NODE_DEFAULT).unwrap();
    assert_eq!(show(&first), "n1:0/3");
    held[0].cpus.union_with(&first[0].cpus);
    assert_eq!(
        lay_out(&a, &exact, &held, TASKS_PER_NODE_DEFAULT),
        Err(NoLayout::Busy)
    );
    // What is left is enough for a plain step; it takes all of it.
    let plain = lay_out(&a, &spec(1), &held, TASKS_PER_NODE_DEFAULT).unwrap();
    assert_eq!(show(&plain), "n1:0/1");
    held[0].cpus.union_with(&plain[0].cpus);
    assert_eq!(
        lay_out(&a, &spec(1), &held, TASKS_PER_NODE_DEFAULT),
        Err(NoLayout::Busy)
    );
    let overlap = StepSpec {
        overlap: true,
        ..spec(4)
    };
    assert_eq!(
        show(&lay_out(&a, &overlap, &held, TASKS_PER_NODE_DEFAULT).unwrap()),
        "n1:0,1,2,3/4"
    );
    // Memory counts when it is asked for.
    let big = StepSpec {
        memory: MemoryAsk::PerNode(600),
        exact: true,
        ..spec(1)
    };
    held[0] = StepUse {
        memory_mib: 500,
        ..StepUse::default()
    };
    assert_eq!(
        lay_out(&a, &big, &held, TASKS_PER_NODE_DEFAULT),
        Err(NoLayout::Busy)
    );
    assert!(lay_out(&a, &spec(1), &held, TASKS_PER_NODE_DEFAULT).is_ok());
}

#[test]
fn numbers_without_measure_are_refused() {
    let a = alloc(&[4, 4]);
    let memory = |mib, cpus| StepSpec {
        memory: MemoryAsk::PerCpu(mib),
        cpus_per_task: Some(cpus),
        ..spec(1)
    };
    // Their product is 0, or small, in 64 bits.
    for (mib, cpus) in [
        (1 << 63, 2),
        (1 << 62, 4),
        (u64::MAX, 3),
        (1 << 63, u32::MAX),
    ] {
        let code = match cpus {
            2..=4 => "InvalidMemory",
            _ => "TooManyCpus",
        };
        assert_eq!(idle(&a, &memory(mib, cpus)), code);
        let overcommit = StepSpec {
            overcommit: true,
            ..memory(mib, cpus)
        };
        assert_eq!(idle(&a, &overcommit), "InvalidMemory");
    }
    let many = |ntasks| StepSpec {
        overcommit: true,
        ..spec(ntasks)
    };
    for ntasks in [1025, 2_000_000_000, u32::MAX] {
        assert_eq!(idle(&a, &many(ntasks)), "NodeConfigUnavailable");
    }
    let held = vec![StepUse::default(); 2];
    let placed = lay_out(&a, &many(1024), &held, TASKS_PER_NODE_DEFAULT).unwrap();
    assert_eq!(
        placed.iter().map(|p| p.tasks.len()).collect::<Vec<_>>(),
        [512, 512]
    );
    assert!(lay_out(&a, &many(9), &held, 4).is_err());
    assert!(lay_out(&a, &many(8), &held, 4).is_ok());
    let per_node = StepSpec {
        ntasks: None,
        min_nodes: Some(2),
        ntasks_per_node: Some(u32::MAX),
        ..many(1)
    };
    assert_eq!(idle(&a, &per_node), "NodeConfigUnavailable");
    let repeated = StepSpec {
        nodelist: Some(vec!["n1"; 1025].join(",")),
        distribution: Some("arbitrary".to_owned()),
        ..spec(1)
    };
    assert_eq!(idle(&a, &repeated), "InvalidNode");
    let wide = StepSpec {
        nodelist: Some("n[1-200000]".to_owned()),
        ..spec(1)
    };
    assert_eq!(idle(&a, &wide), "InvalidNode");
}

#[test]
fn the_least_number_of_nodes_is_found() {
    let a = alloc(&[1, 1, 8, 1, 4]);
    let range = |ntasks, least| StepSpec {
        min_nodes: Some(least),
        max_nodes: Some(5),
        ..spec(ntasks)
    };
    assert_eq!(idle(&a, &range(2, 1)), "n3:0,1/8");
    assert_eq!(idle(&a, &range(2, 2)), "n1:0/1 n2:1/1");
    assert_eq!(
        idle(&a, &range(12, 1)),
        "n3:0,1,2,3,4,5,6,7/8 n5:8,9,10,11/4"
    );
    assert_eq!(idle(&a, &range(16, 1)), "TooManyCpus");
    // A required node without room is not used where fewer nodes do.
    let held = vec![
        StepUse::default(),
        StepUse {
            cpus: CpuSet::first(1),
            ..StepUse::default()
        },
        StepUse::default(),
        StepUse::default(),
        StepUse::default(),
    ];
    let listed = StepSpec {
        nodelist: Some("n1,n2".to_owned()),
        ..spec(1)
    };
    let placed = lay_out(&a, &listed, &held, TASKS_PER_NODE_DEFAULT).unwrap();
    assert_eq!(show(&placed), "n1:0/1");
}

/// The agent, which no limit of memory ends, expands what a client sends.
#[test]
fn lists_of_nodes_do_not_grow_without_bounds() {
    let a = alloc(&[4, 4]);
    let step = |nodelist: Option<&str>, exclude: Option<&str>| StepSpec {
        nodelist: nodelist.map(str::to_owned),
        exclude: exclude.map(str::to_owned),
        ..spec(1)
    };
    let long = format!("{}[0-1000]", "x".repeat(60_000));
    for step in [step(Some(&long), None), step(None, Some(&long))] {
        let Err(NoLayout::Never(refusal)) = lay_out(&a, &step, &[], 512) else {
            panic!("laid out");
        };
        assert_eq!(refusal.code, RefusalCode::InvalidNode);
        assert!(refusal.detail.contains("255 bytes"), "{}", refusal.detail);
    }
    // Who is not of the job may be excluded as well.
    let step = step(None, Some("n1,m[1-60000]"));
    assert_eq!(idle(&a, &step), "n2:0/4");
}

/// They were given one by one, each time with a look at all nodes, for each of the kinds.
#[test]
fn counted_devices_are_shared_out_at_once() {
    let mut a = alloc(&[1; 200]);
    for node in &mut a.nodes {
        node.gres = vec![GresShare {
            name: "tokens".to_owned(),
            ids: CpuSet::first(20_000),
            ..GresShare::default()
        }];
    }
    let ask = GresAsk {
        name: "tokens".to_owned(),
        kind: None,
        count: 1 << 20,
    };
    let step = StepSpec {
        devices: Some(Box::new(muster_model::spec::DeviceAsk {
            per_job: vec![ask],
            ..Default::default()
        })),
        ..spec(200)
    };
    let held = vec![StepUse::default(); 200];
    let placed = lay_out(&a, &step, &held, TASKS_PER_NODE_DEFAULT).unwrap();
    let given = placed.iter().flat_map(|node| &node.gres);
    let given: Vec<u32> = given.map(|gres| gres.ids.len()).collect();
    assert_eq!(given.iter().sum::<u32>(), 1 << 20);
    assert!(given.iter().all(|count| (5242..=5243).contains(count)));
}

/// A step that has all CPUs of a job without needing them had memory of one task only, and was out of it where Slurm's is not.
#[test]
fn memory_goes_with_cpus_of_the_step() {
    let mut a = alloc(&[4]);
    a.nodes[0].memory_mib = 400;
    let memory = |spec: &StepSpec, held: StepUse| {
        let placed = lay_out(&a, spec, &[held], TASKS_PER_NODE_DEFAULT);
        placed.map(|placed| placed[0].memory_mib)
    };
    let one = StepSpec {
        memory: MemoryAsk::PerCpu(100),
        ..spec(1)
    };
    assert_eq!(memory(&one, StepUse::default()), Ok(400));
    let exact = StepSpec {
        exact: true,
        ..one.clone()
    };
    assert_eq!(memory(&exact, StepUse::default()), Ok(100));
    let held = |mib| StepUse {
        cpus: CpuSet::first(1),
        memory_mib: mib,
        ..StepUse::default()
    };
    assert_eq!(memory(&one, held(100)), Ok(300));
    assert_eq!(memory(&one, held(250)), Ok(150), "no more than is left");
    assert_eq!(memory(&one, held(350)), Err(NoLayout::Busy));
}
