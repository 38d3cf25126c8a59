//! Numbers of tasks of a job that fit on a node, by count and by socket, cached for the last two kinds of nodes. Equal
//! nodes fit equally many tasks, and most nodes that placement visits in sequence are equal, both now and after their
//! jobs have ended.

use crate::demand::pick::Pick;
use crate::demand::{Demand, FitAsk, SocketFit};
use crate::nodes::class::NodeClass;
use crate::nodes::node_map::NodeMap;
use crate::nodes::room::{Detail, Room};
use std::cell::RefCell;

/// A cached result.
#[derive(Debug)]
struct CachedCount {
    /// Number of the node's class.
    class: u32,
    room: Room,
    tasks: u32,
}

/// The last results, the latest first.
#[derive(Debug, Default)]
pub(crate) struct TaskCounts(RefCell<[Option<CachedCount>; 2]>);

impl TaskCounts {
    /// [`Demand::tasks_in`], always for the same demand. `number` is that of the class.
    pub(crate) fn tasks_in(
        &self,
        demand: &Demand,
        number: u32,
        class: &NodeClass,
        room: &Room,
    ) -> u32 {
        // Rooms with devices are costly to store and seldom equal.
        if room.devices.is_some() {
            return demand.tasks_in(class, room);
        }
        let mut last = self.0.borrow_mut();
        let same = |known: &&CachedCount| known.class == number && known.room == *room;
        let known = last.iter().flatten().find(same);
        if let Some(known) = known {
            return known.tasks;
        }
        let tasks = demand.tasks_in(class, room);
        last.swap(0, 1);
        last[0] = Some(CachedCount {
            class: number,
            room: room.clone(),
            tasks,
        });
        tasks
    }
}

/// A cached result for sockets.
#[derive(Debug)]
struct CachedFit {
    class: u32,
    detail: Detail,
    ask: FitAsk,
    found: Option<Pick>,
}

/// The last result for a node.
#[derive(Debug)]
struct KnownFit {
    ask: FitAsk,
    found: Option<Pick>,
}

/// Results for sockets in one search for nodes, always for the same demand.
#[derive(Debug, Default)]
pub(crate) struct SocketFits {
    /// The last results, the latest first.
    last: RefCell<[Option<CachedFit>; 2]>,
    /// The last result for each node, which is looked at once per alternative.
    by_node: RefCell<NodeMap<KnownFit>>,
}

impl SocketFits {
    /// [`Demand::fit_to_sockets`], and the number of comparisons that this took. `number` is that
    /// of the class.
    pub(crate) fn fit(
        &self,
        demand: &Demand,
        number: u32,
        class: &NodeClass,
        FitAsk { pick, nodes }: FitAsk,
        detail: impl FnOnce() -> Option<Detail>,
    ) -> SocketFit {
        let node = pick.node;
        let here = |found: Option<Pick>| found.map(|pick| Pick { node, ..pick });
        let pick = Pick { node: 0, ..pick };
        let ask = FitAsk { pick, nodes };
        let mut by_node = self.by_node.borrow_mut();
        if let Some(known) = by_node.get(&node).filter(|known| known.ask == ask) {
            return SocketFit {
                pick: here(known.found),
                tries: 0,
            };
        }
        let Some(detail) = detail() else {
            // The sockets of the node are not known.
            return SocketFit {
                pick: here(Some(pick)),
                tries: 0,
            };
        };
        let mut last = self.last.borrow_mut();
        let same = |known: &&CachedFit| {
            known.class == number && known.ask == ask && known.detail == detail
        };
        let known = last.iter().flatten().find(same).map(|known| known.found);
        let SocketFit { pick: found, tries } = match known {
            Some(pick) => SocketFit { pick, tries: 0 },
            None => demand.fit_to_sockets(class, &detail, ask),
        };
        if known.is_none() {
            last.swap(0, 1);
            last[0] = Some(CachedFit {
                class: number,
                detail,
                ask,
                found,
            });
        }
        by_node.insert(node, KnownFit { ask, found });
        SocketFit {
            pick: here(found),
            tries,
        }
    }
}
