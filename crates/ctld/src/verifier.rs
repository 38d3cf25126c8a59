//! Verifiers of the site: processes that see each submission and each change of a job before the writer does. They live on
//! and serve one request at a time; requests wait here for a free one, users in turn, and none has more than half of what others
//! leave; users whose requests take very long have half of them together. A change goes before submissions of its user that
//! wait, since changes of its job wait for it. A process that fails or takes too long is killed and replaced: its request fails
//! or passes as the site says, and no other request waits for it.
//! Nothing here runs a site's code or decides what a user may do.

mod jsv_process;
mod pools;
pub(crate) mod records;
mod settings;
mod worker;

use log::{debug, error, info, warn};
use minicbor::bytes::ByteVec;
use muster_channel::admission::FairQueue;
use muster_verifier::message::{DataQuery, Level, Subject, Verdict, VerifierReport};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub(crate) use pools::LoadedVerifiers;
pub(crate) use settings::{Kind, Settings};
pub(crate) use worker::{Worker, start};

/// The time that a process has beyond its own limit before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// Time that a user counts as slow after a request that took more than half of the time limit.
const SLOW_FOR: Duration = Duration::from_secs(600);

/// Processes of one verifier, and who waits for them.
pub(crate) struct Pool {
    settings: Settings,
    inside: RefCell<Inside>,
    /// The configuration was read again: another one serves from now on.
    closed: Cell<bool>,
}

#[derive(Default)]
struct Inside {
    idle: Vec<Worker>,
    /// Processes that are idle, busy or being started.
    alive: usize,
    /// The order of turns, with an entry for each request that waits.
    queue: FairQueue<()>,
    /// Number of processes of each user.
    running: HashMap<u32, usize>,
    /// Users with a request that took very long, until when they count as slow.
    slow: HashMap<u32, Instant>,
    /// The waiting requests by user, each user's in order.
    waiting: HashMap<u32, VecDeque<oneshot::Sender<Worker>>>,
    /// The text that was good last.
    last_good: Option<ByteVec>,
    /// Why none could be started last.
    fault: Option<String>,
}

impl Inside {
    /// A request waits. A change is its user's next: changes of the same job by others wait until it is done, and its user has no
    /// other change that waits here.
    fn ask(&mut self, uid: u32, turn: oneshot::Sender<Worker>, is_change: bool) {
        let waiting = self.waiting.entry(uid).or_default();
        match is_change {
            true => waiting.push_front(turn),
            false => waiting.push_back(turn),
        }
        self.queue.push(uid, ());
    }

    /// The next request that may have one of these processes. A user has one, or at most half of what others have left:
    /// the last is for somebody who has none. Users who are slow have half of all together, however many they are.
    fn next(&mut self, processes: usize, now: Instant) -> Option<(u32, oneshot::Sender<Worker>)> {
        let Inside {
            running,
            slow,
            queue,
            waiting: waiting_of,
            ..
        } = self;
        let is_slow = |uid: &u32| slow.get(uid).is_some_and(|until| now < *until);
        let all: usize = running.values().sum();
        let of_slow = running.iter().filter(|(uid, _)| is_slow(uid));
        let of_slow: usize = of_slow.map(|(_, count)| count).sum();
        let may = |uid: &u32| {
            let own = running.get(uid).copied().unwrap_or_default();
            let left = processes.saturating_sub(all - own);
            own < (left / 2).max(1) && (of_slow < (processes / 2).max(1) || !is_slow(uid))
        };
        loop {
            let (uid, ()) = queue.pop_of(may)?;
            let Some(waiting) = waiting_of.get_mut(&uid) else {
                continue;
            };
            let next = waiting.pop_front();
            if waiting.is_empty() {
                waiting_of.remove(&uid);
            }
            if let Some(turn) = next {
                return Some((uid, turn));
            }
        }
    }

    /// A request of a user's has ended, one that took very long if there is a time until which its user is slow.
    fn finished(&mut self, uid: u32, took: Duration, slow_until: Option<Instant>) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.queue.charge(uid, took_ns);
        if let Some(count) = self.running.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(&uid);
            }
        }
        if let Some(until) = slow_until {
            self.slow.retain(|_, other| *other + SLOW_FOR > until);
            self.slow.insert(uid, until);
        }
    }
}

impl Pool {
    /// A pool with its first process, which has loaded the script.
    pub(crate) fn new(settings: Settings, first: Worker, source: ByteVec) -> Rc<Pool> {
        let inside = Inside {
            idle: vec![first],
            alive: 1,
            last_good: Some(source),
            ..Inside::default()
        };
        Rc::new(Pool {
            settings,
            inside: RefCell::new(inside),
            closed: Cell::new(false),
        })
    }

    /// Its settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Serves the requests that it has, and starts no more processes than these need.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let mut inside = self.inside.borrow_mut();
        inside.alive -= inside.idle.len();
        inside.idle.clear();
    }

    /// Has a request verified. Answers come as the messages that they are sent in.
    ///
    /// # Errors
    /// Why there is no verdict; it does not say so if the site lets such requests pass.
    pub(crate) async fn verify<A: Future<Output = io::Result<Vec<u8>>>>(
        self: &Rc<Pool>,
        subject: Subject,
        answer: impl Fn(DataQuery) -> A,
    ) -> Result<Verdict, String> {
        let uid = subject.uid;
        let mut lease = self.lease(uid, subject.change.is_some()).await?;
        let bound = self.settings.time_limit + GRACE;
        let talk = lease.talk(subject, answer);
        let ended = match tokio::time::timeout(bound, talk).await {
            Ok(Ok(verdict)) => {
                lease.is_well = lease.worker.as_ref().is_some_and(Worker::is_reusable);
                match &verdict.failed {
                    None => return Ok(verdict),
                    Some(why) => why.clone(),
                }
            }
            // A script that goes on when its time is over ends its process.
            Ok(Err(e)) if lease.begun.elapsed() < self.settings.time_limit => {
                format!("its process ended: {e}")
            }
            Ok(Err(_)) | Err(_) => {
                let limit = self.settings.time_limit.as_secs_f32();
                format!("it did not end in {limit} s, and was killed")
            }
        };
        let name = self.settings.name();
        warn!("{name}: a request of uid {uid} was not verified: {ended}");
        Err(ended)
    }

    /// Waits for a process.
    async fn lease(self: &Rc<Pool>, uid: u32, is_change: bool) -> Result<Lease, String> {
        let (turn, ready) = oneshot::channel();
        self.inside.borrow_mut().ask(uid, turn, is_change);
        self.serve_waiting();
        self.start_missing();
        let Ok(worker) = ready.await else {
            let inside = self.inside.borrow();
            return Err(inside
                .fault
                .clone()
                .unwrap_or_else(|| "the controller stops".to_owned()));
        };
        Ok(Lease {
            pool: Rc::clone(self),
            uid,
            worker: Some(worker),
            begun: Instant::now(),
            is_well: false,
        })
    }

    /// Gives idle processes to those whose turn it is.
    fn serve_waiting(&self) {
        let mut inside = self.inside.borrow_mut();
        let (processes, now) = (self.settings.processes, Instant::now());
        while !inside.idle.is_empty() {
            let Some((uid, turn)) = inside.next(processes, now) else {
                return;
            };
            let Some(worker) = inside.idle.pop() else {
                return;
            };
            match turn.send(worker) {
                Ok(()) => *inside.running.entry(uid).or_default() += 1,
                // The request that waited is gone.
                Err(worker) => inside.idle.push(worker),
            }
        }
    }

    /// Starts a process where there is work for it: as many as the site wants, in the end.
    fn start_missing(self: &Rc<Pool>) {
        let mut inside = self.inside.borrow_mut();
        let is_first = inside.alive == 0 && !self.closed.get();
        let waiting = !inside.queue.is_empty() || is_first;
        if !waiting || inside.alive >= self.settings.processes {
            return;
        }
        inside.alive += 1;
        let (settings, last_good) = (self.settings.clone(), inside.last_good.clone());
        drop(inside);
        let pool = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let started = tokio::task::spawn_blocking(move || start(&settings, last_good)).await;
            let started = started.unwrap_or_else(|e| Err(e.to_string()));
            pool.started(started);
        });
    }

    fn started(self: &Rc<Pool>, started: Result<(Worker, VerifierReport), String>) {
        match started {
            Ok((worker, report)) => {
                self.note(report);
                let mut inside = self.inside.borrow_mut();
                inside.fault = None;
                inside.idle.push(worker);
            }
            Err(why) => {
                error!("{}: no process: {why}", self.settings.name());
                let mut inside = self.inside.borrow_mut();
                inside.alive -= 1;
                if inside.alive == 0 {
                    inside.fault = Some(format!("no verifier can be started: {why}"));
                    // Waiting requests get the error.
                    inside.queue = FairQueue::default();
                    inside.waiting.clear();
                }
            }
        }
        self.serve_waiting();
    }

    /// Notes the report of a process about its file.
    fn note(&self, report: VerifierReport) {
        let name = self.settings.name();
        match report {
            VerifierReport::Loaded(source) => {
                let mut inside = self.inside.borrow_mut();
                if inside.last_good.as_ref() != Some(&source) {
                    info!("{name}: {} was loaded", self.settings.script.display());
                    inside.last_good = Some(source);
                }
            }
            VerifierReport::Broken { why, has_other } => {
                let then = match has_other {
                    true => "what was loaded before goes on",
                    false => "nothing was loaded before",
                };
                error!("{name}: {why}; {then}");
            }
            VerifierReport::Log { level, text } => match level {
                Level::Error => error!("{name}: {text}"),
                Level::Info => info!("{name}: {text}"),
                Level::Debug | Level::Trace => debug!("{name}: {text}"),
            },
            VerifierReport::Question(_) | VerifierReport::Verdict(_) => {}
        }
    }
}

/// A process that serves one request.
struct Lease {
    pool: Rc<Pool>,
    uid: u32,
    worker: Option<Worker>,
    begun: Instant,
    /// It has given its verdict: it may serve another one.
    is_well: bool,
}

impl Lease {
    async fn talk<A: Future<Output = io::Result<Vec<u8>>>>(
        &mut self,
        subject: Subject,
        answer: impl Fn(DataQuery) -> A,
    ) -> io::Result<Verdict> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let worker = self.worker.as_mut().ok_or_else(gone)?;
        let pool = &self.pool;
        worker
            .verify(subject, answer, |report| pool.note(report))
            .await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let pool = &self.pool;
        let mut inside = pool.inside.borrow_mut();
        let now = Instant::now();
        let took = now - self.begun;
        let is_slow = took > pool.settings.time_limit / 2;
        inside.finished(self.uid, took, is_slow.then(|| now + SLOW_FOR));
        match self.worker.take() {
            Some(worker) if self.is_well && !pool.closed.get() => inside.idle.push(worker),
            worker => {
                inside.alive -= 1;
                drop(worker);
            }
        }
        drop(inside);
        pool.serve_waiting();
        pool.start_missing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of users, and who of them has a process.
    #[derive(Default)]
    struct Bench {
        inside: Inside,
        clients: Vec<oneshot::Receiver<Worker>>,
    }

    impl Bench {
        fn ask(&mut self, uid: u32, is_change: bool) {
            let (turn, ready) = oneshot::channel();
            self.inside.ask(uid, turn, is_change);
            self.clients.push(ready);
        }

        /// Gives processes to those whose turn it is, while there are free ones.
        fn serve(&mut self, processes: usize, now: Instant) -> Vec<(u32, oneshot::Sender<Worker>)> {
            let mut served = Vec::new();
            while self.inside.running.values().sum::<usize>() < processes
                && let Some((uid, turn)) = self.inside.next(processes, now)
            {
                *self.inside.running.entry(uid).or_default() += 1;
                served.push((uid, turn));
            }
            served
        }

        fn users(&mut self, processes: usize, now: Instant) -> Vec<u32> {
            let served = self.serve(processes, now).into_iter();
            served.map(|(uid, _)| uid).collect()
        }
    }

    /// Each of two users had half of the processes: where their requests made the script hang, nobody else could submit or change a
    /// job, again and again.
    #[test]
    fn users_who_make_a_script_hang_leave_a_process_to_others() {
        let now = Instant::now();
        let hang = Duration::from_secs(11);
        for processes in [4, 5, 8, 64] {
            let mut bench = Bench::default();
            (0..100).for_each(|_| bench.ask(1, false));
            bench.users(processes, now);
            (0..100).for_each(|_| bench.ask(2, false));
            bench.users(processes, now);
            bench.ask(3, false);
            assert_eq!(bench.users(processes, now), [3], "of {processes}");
            bench.inside.finished(3, Duration::from_millis(1), None);
            assert_eq!(bench.users(processes, now), [0; 0]);
        }
        // In any case those that are killed give way to others.
        let mut bench = Bench::default();
        (10..18).for_each(|uid| bench.ask(uid, false));
        let hanging = bench.users(4, now);
        assert_eq!(hanging, [10, 11, 12, 13]);
        let now = now + hang;
        for uid in hanging {
            bench.inside.finished(uid, hang, Some(now + SLOW_FOR));
        }
        // The others of them have their requests hang now.
        let hanging = bench.users(4, now);
        assert_eq!(hanging, [14, 15, 16, 17]);
        let now = now + hang;
        for uid in hanging {
            bench.inside.finished(uid, hang, Some(now + SLOW_FOR));
        }
        (10..18).for_each(|uid| bench.ask(uid, false));
        assert_eq!(bench.users(4, now).len(), 2);
        (1..=2).for_each(|uid| bench.ask(uid, false));
        assert_eq!(bench.users(4, now), [1, 2]);
        // They have their turn when one of theirs ends, and all of them after a while.
        let one = *bench.inside.running.keys().max().expect("one hangs");
        bench.inside.finished(one, hang, Some(now + SLOW_FOR));
        assert_eq!(bench.users(4, now).len(), 1);
        bench.inside.running.clear();
        assert_eq!(bench.users(4, now + SLOW_FOR).len(), 4);
    }

    /// Where the configuration was read again, idle processes that were ended counted for ever: requests that the verifiers of
    /// before still had to serve (the second component of a job, a request of a user who had as many processes as allowed)
    /// waited without end, and changes of their jobs with them.
    #[tokio::test]
    async fn requests_of_a_closed_pool_are_served() {
        let site = muster_verifier::jsv::Site {
            mapping: muster_conf::grid_engine::Mapping::default(),
            gres: Vec::new(),
        };
        let settings = Settings {
            kind: Kind::Jsv(Box::new(site)),
            script: "/bin/cat".into(),
            cluster: "c".to_owned(),
            processes: 2,
            time_limit: Duration::from_secs(60),
            memory_bytes: 0,
            passes_on_failure: false,
        };
        let serve = async {
            let (first, _) = start(&settings, None).expect("a process");
            let pool = Pool::new(settings.clone(), first, Vec::new().into());
            let held = pool.lease(1, false).await.expect("a process");
            let mut other = pool.lease(2, false).await.expect("a process");
            let own = Rc::clone(&pool);
            let waits = tokio::task::spawn_local(async move { own.lease(1, false).await });
            tokio::task::yield_now().await;
            other.is_well = true;
            drop(other);
            assert_eq!(pool.inside.borrow().idle.len(), 1);
            pool.close();
            drop(held);
            let served = waits.await.expect("it ends");
            drop(served.expect("a process"));
            drop(pool.lease(2, false).await.expect("a process"));
            let inside = pool.inside.borrow();
            assert_eq!((inside.alive, inside.idle.len()), (0, 0));
        };
        let local = tokio::task::LocalSet::new();
        let served = tokio::time::timeout(Duration::from_secs(20), local.run_until(serve));
        served.await.expect("all are served");
    }

    /// A change kept the turn of its job while it waited for all that its user had submitted before, each with a script that takes
    /// its time: nobody else could change the job.
    #[test]
    fn a_change_goes_before_what_its_user_submits() {
        let now = Instant::now();
        let mut bench = Bench::default();
        (0..4).for_each(|_| bench.ask(1000, false));
        assert_eq!(bench.users(1, now), [1000]);
        bench.ask(1000, true);
        assert!(
            bench.inside.next(1, now).is_none(),
            "the user has as many as it may"
        );
        bench.clients.truncate(4);
        bench.inside.finished(1000, Duration::from_millis(1), None);
        let served = bench.serve(1, now);
        let served: Vec<bool> = served.iter().map(|(_, turn)| turn.is_closed()).collect();
        assert_eq!(served, [true], "it is the change, whose client has gone");
        // Each of the rest gets its turn.
        for _ in 0..3 {
            bench.inside.finished(1000, Duration::from_millis(1), None);
            assert_eq!(bench.users(1, now), [1000]);
        }
        bench.inside.finished(1000, Duration::from_millis(1), None);
        assert!(bench.users(1, now).is_empty() && bench.inside.waiting.is_empty());
    }
}
