//! Turns of changes of jobs that a script of the site sees: what it says of one holds for a job as it was looked at, so the user's
//! next change is looked at once this one is done.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Users whose changes are under way.
#[derive(Default)]
pub(crate) struct ChangeTurns {
    by_user: RefCell<HashMap<u32, Arc<Semaphore>>>,
}

/// The turn of a change, until this is dropped.
pub(crate) struct ChangeTurn(#[expect(dead_code)] Option<OwnedSemaphorePermit>);

impl ChangeTurns {
    /// Waits until no other change of this user's is under way.
    pub(crate) async fn take(&self, uid: u32) -> ChangeTurn {
        let own = {
            let mut all = self.by_user.borrow_mut();
            // Who has a turn or waits for one has a reference.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            let one = || Arc::new(Semaphore::new(1));
            Arc::clone(all.entry(uid).or_insert_with(one))
        };
        // It is never closed.
        ChangeTurn(own.acquire_owned().await.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Of two changes at the same time a script saw the job as it was before both: each was within what the site allows, and both
    /// together were not.
    #[test]
    fn changes_of_a_user_are_looked_at_one_after_the_other() {
        let turns = ChangeTurns::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(turns.take(1000)).poll(&mut context) else {
            panic!("nobody is before it");
        };
        let mut second = pin!(turns.take(1000));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(pin!(turns.take(1001)).poll(&mut context).is_ready());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        // Nothing is kept of users whose changes are done.
        assert!(pin!(turns.take(1002)).poll(&mut context).is_ready());
        assert_eq!(turns.by_user.borrow().len(), 1);
    }
}
