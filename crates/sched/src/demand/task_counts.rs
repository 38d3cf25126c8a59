//! How many tasks of a job fit on a node, cached for the last two kinds of nodes. Equal nodes hold equally many, and most
//! nodes that placement visits one after another are equal, now and once their jobs have ended.

use crate::demand::Demand;
use crate::nodes::class::NodeClass;
use crate::nodes::room::Room;
use std::cell::RefCell;

/// An answer.
#[derive(Debug)]
struct CachedCount {
    /// Number of the node's class.
    class: u32,
    room: Room,
    tasks: u32,
}

/// The last answers, the later one first.
#[derive(Debug, Default)]
pub(crate) struct TaskCounts(RefCell<[Option<CachedCount>; 2]>);

impl TaskCounts {
    /// [`Demand::tasks_in`], of always the same demand. `number` is that of the class.
    pub(crate) fn tasks_in(
        &self,
        demand: &Demand,
        number: u32,
        class: &NodeClass,
        room: &Room,
    ) -> u32 {
        // Rooms with devices are costly to keep, and seldom equal.
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
