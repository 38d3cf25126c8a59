//! Verifiers of the site: processes that see each submission and each change of a job before the writer does. They live on
//! and serve one request at a time; requests wait here for a free one, users in turn, and none has more than half of them;
//! a change goes before submissions of its user that wait, since changes of its job wait for it. A process that fails or
//! takes too long is killed and replaced: its request fails or passes as the site says, and no other request waits for it.
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
    /// The order of turns, with an entry for each request that is not parked.
    queue: FairQueue<()>,
    /// How many each user has.
    running: HashMap<u32, usize>,
    /// The number of requests of users who have as many as they may.
    parked: HashMap<u32, usize>,
    /// The waiting requests by user, each user's in order.
    waiting: HashMap<u32, VecDeque<oneshot::Sender<Worker>>>,
    /// The text that was good last.
    last_good: Option<ByteVec>,
    /// Why none could be started last.
    fault: Option<String>,
}

impl Inside {
    /// A request waits; `most` is what a user may have at the same time. A change is its user's next: changes
    /// of the same job by others wait until it is done, and its user has no other change that waits here.
    fn ask(&mut self, uid: u32, turn: oneshot::Sender<Worker>, is_change: bool, most: usize) {
        let waiting = self.waiting.entry(uid).or_default();
        match is_change {
            true => waiting.push_front(turn),
            false => waiting.push_back(turn),
        }
        match self.running.get(&uid).copied().unwrap_or_default() < most {
            true => self.queue.push(uid, ()),
            false => *self.parked.entry(uid).or_default() += 1,
        }
    }

    /// The next request that may have a process.
    fn next(&mut self, most: usize) -> Option<(u32, oneshot::Sender<Worker>)> {
        loop {
            let (uid, ()) = self.queue.pop()?;
            if self.running.get(&uid).copied().unwrap_or_default() >= most {
                *self.parked.entry(uid).or_default() += 1;
                continue;
            }
            let Some(waiting) = self.waiting.get_mut(&uid) else {
                continue;
            };
            let next = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&uid);
            }
            if let Some(turn) = next {
                return Some((uid, turn));
            }
        }
    }

    /// A request of a user's has ended.
    fn finished(&mut self, uid: u32, took_ns: u64) {
        self.queue.charge(uid, took_ns);
        if let Some(count) = self.running.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(&uid);
            }
        }
        if let Some(parked) = self.parked.get_mut(&uid) {
            *parked -= 1;
            if *parked == 0 {
                self.parked.remove(&uid);
            }
            self.queue.push(uid, ());
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

    /// Serves the requests that it has, and starts no more processes.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.inside.borrow_mut().idle.clear();
    }

    /// Processes that one user may have at the same time.
    fn of_one_user(&self) -> usize {
        (self.settings.processes / 2).max(1)
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
        let most = self.of_one_user();
        self.inside.borrow_mut().ask(uid, turn, is_change, most);
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
        let most = self.of_one_user();
        while !inside.idle.is_empty() {
            let Some((uid, turn)) = inside.next(most) else {
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
        let waiting = !inside.queue.is_empty() || inside.alive == 0;
        if self.closed.get() && inside.alive > 0
            || !waiting
            || inside.alive >= self.settings.processes
        {
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
                    inside.parked.clear();
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
        let took = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        inside.finished(self.uid, took);
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

    /// A change kept the turn of its job while it waited for all that its user had submitted before, each with a script that takes
    /// its time: nobody else could change the job.
    #[test]
    fn a_change_goes_before_what_its_user_submits() {
        let mut inside = Inside::default();
        let mut clients = Vec::new();
        let mut ask = |inside: &mut Inside, uid: u32, is_change: bool| {
            let (turn, ready) = oneshot::channel();
            inside.ask(uid, turn, is_change, 1);
            clients.push(ready);
        };
        (0..4).for_each(|_| ask(&mut inside, 1000, false));
        let (uid, _first) = inside.next(1).expect("one waits");
        *inside.running.entry(uid).or_default() += 1;
        ask(&mut inside, 1000, true);
        assert!(inside.next(1).is_none(), "the user has as many as it may");
        clients.truncate(4);
        inside.finished(1000, 1);
        let served: Vec<bool> = std::iter::from_fn(|| inside.next(1))
            .map(|(_, turn)| turn.is_closed())
            .collect();
        assert_eq!(served, [true], "it is the change, whose client has gone");
        // Each of the rest gets its turn.
        let mut rest = 0;
        loop {
            inside.running.insert(1000, 1);
            inside.finished(1000, 1);
            let Some(_turn) = inside.next(1) else {
                break;
            };
            rest += 1;
        }
        assert_eq!(rest, 3);
        assert!(inside.waiting.is_empty() && inside.parked.is_empty());
    }
}
