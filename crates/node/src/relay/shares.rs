//! How many connections of a user a relay carries at a time: each costs it descriptors, of which others need some.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Descriptors of a connection that is carried.
const DESCRIPTORS: u64 = 2;
/// Part of all descriptors that one user may have.
const PART: u64 = 8;

/// The connections of each user that has any.
#[derive(Debug)]
pub(super) struct Shares {
    of_uid: RefCell<HashMap<u32, u64>>,
    max: u64,
}

/// A connection that counts as its user's until this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Rc<Shares>,
    uid: u32,
}

impl Shares {
    /// Shares a limit of `descriptors` among users.
    pub(super) fn of(descriptors: u64) -> Rc<Shares> {
        Rc::new(Shares {
            of_uid: RefCell::default(),
            max: descriptors / PART / DESCRIPTORS,
        })
    }

    /// Counts a connection. Root has no limits.
    ///
    /// # Errors
    /// The user has too many.
    pub(super) fn take(self: &Rc<Shares>, uid: u32) -> Result<Share, String> {
        let mut of_uid = self.of_uid.borrow_mut();
        let count = of_uid.entry(uid).or_default();
        if *count >= self.max && uid != 0 {
            return Err(format!(
                "uid {uid} has {count} connections to this node, which is the limit of one user"
            ));
        }
        *count += 1;
        let shares = Rc::clone(self);
        Ok(Share { shares, uid })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut of_uid = self.shares.of_uid.borrow_mut();
        if let Some(count) = of_uid.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                of_uid.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_a_part_and_gives_it_back() {
        let shares = Shares::of(32);
        let own = [shares.take(7).unwrap(), shares.take(7).unwrap()];
        let refused = shares.take(7).unwrap_err();
        assert!(refused.contains("uid 7 has 2"), "{refused}");
        let _other = shares.take(8).unwrap();
        let _root: Vec<_> = (0..9).map(|_| shares.take(0).unwrap()).collect();
        drop(own);
        shares.take(7).unwrap();
        assert!(!shares.of_uid.borrow().contains_key(&7));
    }
}
