//! Reservations of cores.

use super::*;

#[test]
fn cores() {
    let mut w = World::new();
    let cores = ReservationAsk {
        core_counts: vec![3],
        node_count: Some(2),
        ..ask(&w, "c", 0, 60)
    };
    assert_eq!(create(&mut w, cores), Ok("c".into()));
    let counts: Vec<u32> = get(&w, "c")
        .nodes
        .iter()
        .map(|n| n.cpus.as_ref().unwrap().len())
        .collect();
    assert_eq!(counts, [2, 1]);
    // Another takes what is left of the first node.
    let rest = ReservationAsk {
        core_counts: vec![2],
        ..on(&w, "d", 0, 60, "n1")
    };
    assert_eq!(create(&mut w, rest), Ok("d".into()));
    let (c, d) = (get(&w, "c"), get(&w, "d"));
    let cpus = |r: &Reservation| r.cpus_on(NodeIdx(0), 4).unwrap();
    assert!(!cpus(c).intersects(&cpus(d)));
    let uneven = ReservationAsk {
        core_counts: vec![1, 1],
        ..on(&w, "e", 0, 60, "n3")
    };
    assert_eq!(create(&mut w, uneven), Err(RefusalCode::CoreCounts));
    let change = ReservationAsk {
        core_counts: vec![1],
        ..named("c")
    };
    assert_eq!(
        update(&mut w, change),
        Err(RefusalCode::CoreReservationUpdate)
    );
}

/// The first node had room for the smaller number only, and the next one was not asked for the larger.
#[test]
fn cores_are_found_in_whichever_order_nodes_have_them() {
    for counts in [vec![5], vec![3, 2]] {
        let mut w = World::new();
        for (name, node, cores) in [("a", "n1", 2), ("b", "n2", 1)] {
            let taken = ReservationAsk {
                core_counts: vec![cores],
                ..on(&w, name, 0, 60, node)
            };
            create(&mut w, taken).unwrap();
        }
        let cores = |count| ReservationAsk {
            core_counts: count,
            node_count: Some(2),
            partition: Some("short".into()),
            ..ask(&w, "c", 0, 60)
        };
        let (wanted, more) = (cores(counts), cores(vec![6]));
        assert_eq!(create(&mut w, more), Err(RefusalCode::NodesBusy));
        assert_eq!(create(&mut w, wanted), Ok("c".into()));
        let nodes = get(&w, "c").nodes.iter();
        let counts: Vec<u32> = nodes.map(|n| n.cpus.as_ref().unwrap().len()).collect();
        assert_eq!(counts, [2, 3]);
    }
}

#[test]
fn the_first_cores_of_each_node() {
    let mut w = World::new();
    let r = ReservationAsk {
        core_counts: vec![1],
        node_count: Some(1),
        flags: Flags::FIRST_CORES,
        ..ask(&w, "r", 0, 60)
    };
    create(&mut w, r).unwrap();
    let cpus = get(&w, "r").nodes[0].cpus.clone().unwrap();
    assert_eq!(cpus.iter().next(), Some(0));
}
