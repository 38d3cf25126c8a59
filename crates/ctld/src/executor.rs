//! Runs the connections of users on the event loop. A connection whose turn it is runs until it waits for something; users
//! take turns by the processor time that their connections took ([`FairQueue`]), whatever the number of their connections.
//! Connections of root, SlurmUser and agents are plain tasks of the event loop: they wait for one slice at most.

use crate::failure::caught;
use log::debug;
use muster_channel::admission::FairQueue;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Time that connections of users run before other tasks of the event loop do, and before it asks the kernel for news.
const SLICE: Duration = Duration::from_micros(500);

/// The connections of all users who have limits.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: RefCell<HashMap<u64, ConnectionTask>>,
    next_id: Cell<u64>,
    turns: RefCell<FairQueue<u64>>,
    woken: Arc<Mutex<Woken>>,
}

struct ConnectionTask {
    uid: u32,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Arc<TaskWaker>,
}

/// Tasks that have something to do, and who waits for some.
#[derive(Default)]
struct Woken {
    tasks: Vec<u64>,
    executor: Option<Waker>,
}

/// Wakes one task, from any thread.
struct TaskWaker {
    id: u64,
    /// Whether it is among the woken ones already, or waits for its turn.
    is_queued: AtomicBool,
    woken: Arc<Mutex<Woken>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut woken = self.woken.lock().unwrap_or_else(|e| e.into_inner());
        woken.tasks.push(self.id);
        let executor = woken.executor.take();
        drop(woken);
        if let Some(executor) = executor {
            executor.wake();
        }
    }
}

impl Executor {
    /// Adds a task of a user.
    pub(crate) fn spawn(&self, uid: u32, future: impl Future<Output = ()> + 'static) {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let waker = Arc::new(TaskWaker {
            id,
            is_queued: AtomicBool::new(false),
            woken: Arc::clone(&self.woken),
        });
        waker.wake_by_ref();
        let future = Box::pin(future);
        let task = ConnectionTask { uid, future, waker };
        self.tasks.borrow_mut().insert(id, task);
    }

    /// Runs tasks for as long as it is polled. It must not be a task with a budget of operations (`tokio::task::coop`): all
    /// connections would share one.
    pub(crate) async fn run(&self) {
        loop {
            poll_fn(|context| self.poll_woken(context)).await;
            let end = Instant::now() + SLICE;
            while self.run_next() && Instant::now() < end {}
            tokio::task::yield_now().await;
        }
    }

    /// Ready when a task has something to do.
    fn poll_woken(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.turns.borrow().is_empty() {
            return Poll::Ready(());
        }
        let mut woken = self.woken.lock().unwrap_or_else(|e| e.into_inner());
        if woken.tasks.is_empty() {
            woken.executor = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Runs the task whose turn it is; whether there was one.
    fn run_next(&self) -> bool {
        self.queue_woken();
        let Some((uid, id)) = self.turns.borrow_mut().pop() else {
            return false;
        };
        let begun = Instant::now();
        self.run_task(id);
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.turns.borrow_mut().charge(uid, took);
        true
    }

    fn queue_woken(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(|e| e.into_inner());
        let (tasks, mut turns) = (self.tasks.borrow(), self.turns.borrow_mut());
        for id in woken.tasks.drain(..) {
            // One that has ended may be woken still.
            if let Some(task) = tasks.get(&id) {
                turns.push(task.uid, id);
            }
        }
    }

    fn run_task(&self, id: u64) {
        // While it runs it may add others.
        let Some(mut task) = self.tasks.borrow_mut().remove(&id) else {
            return;
        };
        // Whatever wakes it from here on, it has not seen.
        task.waker.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&task.waker));
        let mut context = Context::from_waker(&waker);
        match caught(|| task.future.as_mut().poll(&mut context)) {
            Ok(Poll::Pending) => {
                self.tasks.borrow_mut().insert(id, task);
                return;
            }
            Ok(Poll::Ready(())) => {}
            // The panic is in the log; it costs the user this connection.
            Err(_) => debug!("a connection of uid {} is closed after a panic", task.uid),
        }
        let _ = caught(|| drop(task));
    }
}

/// Lets others run first who have something to do.
pub(crate) async fn pause() {
    let mut is_second = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Which users' tasks ran, in order.
    type Ran = Rc<RefCell<Vec<u32>>>;

    /// A task that runs this number of times.
    fn runs(executor: &Executor, ran: &Ran, uid: u32, times: usize) {
        let ran = Rc::clone(ran);
        executor.spawn(uid, async move {
            for again in (0..times).rev() {
                ran.borrow_mut().push(uid);
                if again > 0 {
                    pause().await;
                }
            }
        });
    }

    #[test]
    fn a_user_with_many_connections_delays_nobody_by_more_than_one_of_them() {
        let (executor, ran) = (Executor::default(), Ran::default());
        (0..5000).for_each(|_| runs(&executor, &ran, 1, 1000));
        (0..100).for_each(|_| assert!(executor.run_next()));
        assert_eq!(*ran.borrow(), [1; 100]);
        // Others connect one after the other; each is next.
        for uid in 2..50 {
            ran.borrow_mut().clear();
            runs(&executor, &ran, uid, 1);
            assert!(executor.run_next());
            assert_eq!(*ran.borrow(), [uid]);
        }
    }

    #[test]
    fn what_a_user_sends_at_once_is_not_served_at_once() {
        let (executor, ran) = (Executor::default(), Ran::default());
        // It never waits for anything: its client sends faster than it is served.
        runs(&executor, &ran, 1, usize::MAX);
        runs(&executor, &ran, 2, 1000);
        while ran.borrow().iter().filter(|uid| **uid == 2).count() < 1000 {
            assert!(executor.run_next());
        }
        // By time, so by about as many: what the clock says of so little differs.
        assert!(ran.borrow().contains(&1));
    }

    #[test]
    fn a_task_is_run_once_for_many_wakes_and_again_for_one_while_it_runs() {
        let (executor, ran) = (Executor::default(), Ran::default());
        let waker = Rc::new(RefCell::new(None::<Waker>));
        let (noted, seen) = (Rc::clone(&ran), Rc::clone(&waker));
        executor.spawn(
            1,
            poll_fn(move |context| {
                noted.borrow_mut().push(1);
                if seen.replace(Some(context.waker().clone())).is_none() {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }),
        );
        while executor.run_next() {}
        assert_eq!(ran.borrow().len(), 2);
        let wakes = waker.borrow().clone().unwrap();
        (0..10).for_each(|_| wakes.wake_by_ref());
        while executor.run_next() {}
        assert_eq!(ran.borrow().len(), 3);
    }

    #[test]
    fn a_panic_ends_the_task_that_has_it() {
        let (executor, ran) = (Executor::default(), Ran::default());
        executor.spawn(1, async { panic!("a request that nobody expected") });
        runs(&executor, &ran, 1, 2);
        while executor.run_next() {}
        assert_eq!(*ran.borrow(), [1, 1]);
        assert!(executor.tasks.borrow().is_empty());
    }

    #[test]
    fn it_serves_what_comes_while_others_never_rest() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let (executor, ran) = (Rc::new(Executor::default()), Ran::default());
            runs(&executor, &ran, 1, usize::MAX);
            let running = Rc::clone(&executor);
            tokio::task::spawn_local(tokio::task::unconstrained(
                async move { running.run().await },
            ));
            // News from the kernel, and a task of the event loop.
            let (mut here, there) = tokio::net::UnixStream::pair().unwrap();
            let (answer, answered) = tokio::sync::oneshot::channel();
            executor.spawn(2, async move {
                let _ = tokio::io::AsyncReadExt::read_u8(&mut here).await;
                let _ = answer.send(());
            });
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(there.try_write(b"x").unwrap(), 1);
            answered.await.unwrap();
        });
    }
}
