//! Nodes that are alike hold as many tasks of a job. Most nodes that are looked at one after another are alike, so the
//! last answer is kept.

use crate::demand::Demand;
use crate::fleet::{NodeClass, Room};
use std::cell::RefCell;

/// The last answer: class, room, tasks.
#[derive(Debug, Default)]
pub(crate) struct Alike(RefCell<Option<(u32, Room, u32)>>);

impl Alike {
    /// [`Demand::tasks_in`], of always the same demand. `number` is that of the class.
    pub(crate) fn tasks_in(
        &self,
        demand: &Demand,
        (number, class): (u32, &NodeClass),
        room: &Room,
    ) -> u32 {
        // Rooms with devices are costly to keep, and seldom equal.
        if room.devices.is_some() {
            return demand.tasks_in(class, room);
        }
        let mut last = self.0.borrow_mut();
        match &*last {
            Some((of, known, tasks)) if *of == number && known == room => *tasks,
            _ => {
                let tasks = demand.tasks_in(class, room);
                *last = Some((number, room.clone(), tasks));
                tasks
            }
        }
    }
}
