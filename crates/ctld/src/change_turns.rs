//! Turns of changes of jobs that a script of the site sees. Its verdict holds for the job as it was read, so the next change of
//! the same job, or by the same user, is verified once this one is done.

use muster_model::ids::JobId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Subject of which one change is under way at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    User(u32),
    /// The number that a job was submitted as.
    Job(JobId),
}

/// Users and jobs with changes under way.
#[derive(Default)]
pub(crate) struct ChangeTurns {
    all: RefCell<HashMap<Of, Arc<Semaphore>>>,
}

/// The turn of a change, until this is dropped.
pub(crate) struct ChangeTurn(#[expect(dead_code)] [Option<OwnedSemaphorePermit>; 2]);

impl ChangeTurns {
    /// Waits until no other change of this user's is under way, then for the leave to serve a request, then until no change of the
    /// job is. In that order: who waits for another change of their own keeps none of their leaves, and a job's turn is had by who
    /// waits for no leave more. Who may not change the job (`None`) takes no turn of it from those who may.
    ///
    /// # Errors
    /// The client has gone meanwhile, or the job cannot be looked at.
    pub(crate) async fn take<L>(
        &self,
        uid: u32,
        check_client: impl Fn() -> io::Result<()>,
        leave: impl Future<Output = L>,
        job: impl Future<Output = io::Result<Option<JobId>>>,
    ) -> io::Result<(ChangeTurn, L)> {
        let of_user = self.turn(Of::User(uid)).await;
        check_client()?;
        let leave = leave.await;
        let of_job = match job.await? {
            Some(job) => self.turn(Of::Job(job)).await,
            None => None,
        };
        check_client()?;
        Ok((ChangeTurn([of_job, of_user]), leave))
    }

    async fn turn(&self, of: Of) -> Option<OwnedSemaphorePermit> {
        let own = {
            let mut all = self.all.borrow_mut();
            // A change that has a turn or waits for one holds a reference.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            let one = || Arc::new(Semaphore::new(1));
            Arc::clone(all.entry(of).or_insert_with(one))
        };
        // It is never closed.
        own.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    async fn take(turns: &ChangeTurns, uid: u32, job: u64) -> ChangeTurn {
        let job = async move { Ok(Some(JobId(job))) };
        let taken = turns.take(uid, || Ok(()), async {}, job).await;
        taken.expect("the client is there").0
    }

    /// During two simultaneous changes a script saw the job as it was before both: each was within what the site
    /// allows, and both together were not.
    #[test]
    fn changes_of_a_user_are_looked_at_one_after_the_other() {
        let turns = ChangeTurns::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(take(&turns, 1000, 1)).poll(&mut context) else {
            panic!("nobody is before it");
        };
        let mut second = pin!(take(&turns, 1000, 2));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(pin!(take(&turns, 1001, 3)).poll(&mut context).is_ready());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        // Nothing is kept of users and jobs whose changes are done.
        assert!(pin!(take(&turns, 1002, 4)).poll(&mut context).is_ready());
        assert_eq!(turns.all.borrow().len(), 2);
    }

    /// The owner of a job and a coordinator of its account could do the same.
    #[test]
    fn changes_of_a_job_are_looked_at_one_after_the_other() {
        let turns = ChangeTurns::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(take(&turns, 1000, 1)).poll(&mut context) else {
            panic!("nobody is before it");
        };
        let mut second = pin!(take(&turns, 1001, 1));
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }

    /// Any user held up the changes of any job: the turn was taken before it was known whether the user may change the job.
    #[test]
    fn who_may_not_change_a_job_takes_no_turn_of_it() {
        let turns = ChangeTurns::default();
        let mut context = Context::from_waker(Waker::noop());
        let of_none = || turns.take(1000, || Ok(()), async {}, async { Ok(None) });
        let Poll::Ready(Ok(foreign)) = pin!(of_none()).poll(&mut context) else {
            panic!("nobody is before it");
        };
        assert!(pin!(take(&turns, 1001, 1)).poll(&mut context).is_ready());
        // Their own wait all the same.
        assert!(pin!(of_none()).poll(&mut context).is_pending());
        drop(foreign);
    }

    /// Changes that waited kept all leaves of their user, who could do nothing else, and were carried out when nobody waited for them
    /// any more.
    #[test]
    fn a_change_that_waits_for_another_keeps_nothing_of_its_user() {
        let turns = ChangeTurns::default();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(take(&turns, 1000, 1)).poll(&mut context) else {
            panic!("nobody is before it");
        };
        let has_leave = Cell::new(false);
        let is_there = Cell::new(true);
        let check = || match is_there.get() {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let leave = async { has_leave.set(true) };
        let mut second = pin!(turns.take(1000, check, leave, async { Ok(Some(JobId(2))) }));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(!has_leave.get());
        is_there.set(false);
        drop(first);
        let Poll::Ready(gone) = second.as_mut().poll(&mut context) else {
            panic!("its turn has come");
        };
        assert!(gone.is_err() && !has_leave.get());
        assert!(pin!(take(&turns, 1000, 2)).poll(&mut context).is_ready());
    }
}
