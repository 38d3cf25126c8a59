//! Bytes of users' connections from other hosts that have not arrived as whole frames, or were not taken yet.

use muster_channel::admission::ByteCount;
use muster_channel::server::CARRIED;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The bytes of each user with connections, and how many these are.
#[derive(Debug)]
pub(super) struct CarriedBytes {
    users: RefCell<HashMap<u32, CarriedOfUser>>,
    all: ByteCount,
}

/// The bytes that are carried for one user.
#[derive(Debug)]
struct CarriedOfUser {
    connections: usize,
    bytes: ByteCount,
}

/// A connection of a user's, until this is dropped.
#[derive(Debug)]
pub(super) struct CarriedConnection {
    carried: Rc<CarriedBytes>,
    uid: u32,
}

impl CarriedBytes {
    pub(super) fn new() -> Rc<CarriedBytes> {
        Rc::new(CarriedBytes {
            users: RefCell::default(),
            all: ByteCount::new(CARRIED),
        })
    }

    /// Counts a connection; its kept bytes count there.
    pub(super) fn connect(self: &Rc<CarriedBytes>, uid: u32) -> (CarriedConnection, ByteCount) {
        let mut users = self.users.borrow_mut();
        let user = users.entry(uid);
        let user = user.or_insert_with(|| CarriedOfUser {
            connections: 0,
            bytes: self.all.of_another(),
        });
        user.connections += 1;
        let carried = Rc::clone(self);
        (CarriedConnection { carried, uid }, user.bytes.clone())
    }
}

impl Drop for CarriedConnection {
    fn drop(&mut self) {
        let mut users = self.carried.users.borrow_mut();
        if let Some(user) = users.get_mut(&self.uid) {
            user.connections -= 1;
            if user.connections == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_user_count_together() {
        let carried = CarriedBytes::new();
        let (first, bytes) = carried.connect(7);
        let (second, others) = carried.connect(7);
        bytes.take(CARRIED.own).unwrap();
        assert!(others.take(1).is_err());
        let (third, other) = carried.connect(8);
        other.take(CARRIED.few).unwrap();
        bytes.give_back(CARRIED.own);
        other.give_back(CARRIED.few);
        drop((first, second, third));
        assert!(carried.users.borrow().is_empty());
    }
}
