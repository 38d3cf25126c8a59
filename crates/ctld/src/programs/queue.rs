//! Programs that wait to be run. Users take turns: ten thousand programs of one delay another's by one. What waits is bounded by
//! user and for all in bytes, from when it is added: a specification that several keep counts once.

use super::plan::{ProgramPlan, bytes_of};
use log::{error, warn};
use muster_channel::admission::{ByteBounds, ByteCount};
use muster_model::ids::JobId;
use muster_model::spec::JobSpec;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueBounds {
    /// For the log.
    pub(super) what: &'static str,
    /// Programs that run at the same time.
    pub(super) at_once: usize,
    /// Programs of one user that run at the same time.
    pub(super) of_user_at_once: usize,
    /// Programs of one user that wait.
    pub(super) items: usize,
    /// Bytes of users.
    pub(super) bytes: ByteBounds,
    /// Bytes of one user beyond which texts are cut.
    pub(super) cut_beyond: usize,
}

/// See the module. Clones are the same queue.
#[derive(Clone, Debug)]
pub(super) struct ProgramQueue(Arc<QueueShared>);

#[derive(Debug)]
struct QueueShared {
    inner: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    turns: UserTurns,
    running: usize,
    /// The same by user.
    running_of: HashMap<u32, usize>,
    is_closed: bool,
}

/// A program that has a place to run; [`ProgramQueue::leave`] gives it back.
pub(super) struct PlacedProgram {
    pub(super) uid: u32,
    pub(super) plan: ProgramPlan,
}

impl ProgramQueue {
    pub(super) fn new(bounds: QueueBounds) -> ProgramQueue {
        ProgramQueue(Arc::new(QueueShared {
            inner: Mutex::new(QueueState {
                turns: UserTurns::new(bounds),
                running: 0,
                running_of: HashMap::new(),
                is_closed: false,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Adds a user's program, unless too much of that waits.
    pub(super) fn push(&self, uid: u32, plan: ProgramPlan) {
        self.lock().turns.push(uid, plan);
        self.0.changed.notify_one();
    }

    /// The launch of a user's job is gone: its prolog is not run if it has not begun.
    pub(super) fn drop_prolog(&self, uid: u32, job: JobId) {
        self.lock().turns.drop_prolog(uid, job);
        self.0.changed.notify_one();
    }

    /// Waits for a program and a place for it; absent once nothing is left and nobody adds more. [`ProgramQueue::leave`] follows.
    pub(super) fn next(&self) -> Option<PlacedProgram> {
        let mut inner = self.lock();
        loop {
            if inner.running < inner.turns.bounds.at_once
                && let Some(placed) = inner.take()
            {
                return Some(placed);
            }
            if inner.is_closed && inner.turns.of_user.is_empty() {
                return None;
            }
            let woken = self.0.changed.wait(inner);
            inner = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A program of a user has ended.
    pub(super) fn leave(&self, uid: u32) {
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        if let Some(own) = inner.running_of.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                inner.running_of.remove(&uid);
            }
        }
        self.0.changed.notify_one();
    }

    /// Nobody adds more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.0.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Takes the next program of a user who may have one more run.
    fn take(&mut self) -> Option<PlacedProgram> {
        let running_of = &self.running_of;
        let most = self.turns.bounds.of_user_at_once;
        let has_place = |uid: u32| running_of.get(&uid).is_none_or(|own| *own < most);
        let placed = self.turns.pop(has_place)?;
        self.running += 1;
        *self.running_of.entry(placed.uid).or_default() += 1;
        Some(placed)
    }
}

/// The waiting programs, in the order of the users' turns.
#[derive(Debug)]
struct UserTurns {
    bounds: QueueBounds,
    of_user: BTreeMap<u32, UserPrograms>,
    /// The user whose turn it was last.
    last: u32,
    /// How many were added.
    added: u64,
    specs: KeptSpecs,
    /// Of nobody: those of users come of it.
    bytes: ByteCount,
}

#[derive(Debug)]
struct UserPrograms {
    /// In the order in which they were added.
    waiting: BTreeMap<u64, WaitingProgram>,
    /// The prolog of each job that has one among them.
    prologs: HashMap<JobId, u64>,
    bytes: ByteCount,
    left_out: usize,
}

#[derive(Debug)]
struct WaitingProgram {
    plan: ProgramPlan,
    /// The bytes that it counts beside its specification; absent if it is not counted.
    counted: Option<usize>,
}

/// Specifications that something waiting keeps, by their addresses, which are no other's meanwhile.
#[derive(Debug, Default)]
struct KeptSpecs(HashMap<usize, KeptSpec>);

#[derive(Debug)]
struct KeptSpec {
    /// How many keep it.
    keepers: usize,
    bytes: usize,
}

fn spec_pointer(spec: &Arc<JobSpec>) -> usize {
    Arc::as_ptr(spec).addr()
}

impl KeptSpecs {
    /// Bytes that one more that keeps it adds.
    fn added(&self, spec: Option<&Arc<JobSpec>>) -> usize {
        match spec {
            Some(spec) if !self.0.contains_key(&spec_pointer(spec)) => bytes_of(spec),
            _ => 0,
        }
    }

    fn add(&mut self, spec: Option<&Arc<JobSpec>>, bytes: usize) {
        if let Some(spec) = spec {
            let known = self.0.entry(spec_pointer(spec));
            let keepers = 0;
            known.or_insert(KeptSpec { keepers, bytes }).keepers += 1;
        }
    }

    /// One that keeps it has left; the bytes of it if that was the last.
    fn remove(&mut self, spec: Option<&Arc<JobSpec>>) -> usize {
        let Some(key) = spec.map(spec_pointer) else {
            return 0;
        };
        let Some(known) = self.0.get_mut(&key) else {
            return 0;
        };
        known.keepers -= 1;
        match known.keepers {
            0 => self.0.remove(&key).map_or(0, |gone| gone.bytes),
            _ => 0,
        }
    }
}

impl UserTurns {
    fn new(bounds: QueueBounds) -> UserTurns {
        UserTurns {
            bounds,
            of_user: BTreeMap::new(),
            last: u32::MAX,
            added: 0,
            specs: KeptSpecs::default(),
            bytes: ByteCount::new(bounds.bytes),
        }
    }

    /// Appends a program of a user; false if too many of the user's wait.
    fn push(&mut self, uid: u32, plan: ProgramPlan) -> bool {
        let own = self.of_user.entry(uid).or_insert_with(|| UserPrograms {
            waiting: BTreeMap::new(),
            prologs: HashMap::new(),
            bytes: self.bytes.of_another(),
            left_out: 0,
        });
        self.added += 1;
        if plan.is_required() {
            if let Some(launch) = plan.prolog() {
                own.prologs.insert(launch.job, self.added);
            }
            let counted = None;
            (own.waiting).insert(self.added, WaitingProgram { plan, counted });
            return true;
        }
        let fits = own.waiting.len() < self.bounds.items;
        let spec = self.specs.added(plan.spec());
        let bytes = plan.bytes();
        let is_whole = own.bytes.own().saturating_add(spec + bytes) <= self.bounds.cut_beyond;
        let may_cut = !is_whole && self.bounds.cut_beyond < self.bounds.bytes.own;
        // Where others keep the specification, it may be the whole that takes less.
        let cut = may_cut.then(|| plan.cut());
        let cut = cut.filter(|cut| cut.bytes() < spec + bytes);
        let (spec, bytes, plan) = match cut {
            Some(cut) => (0, cut.bytes(), cut),
            None => (spec, bytes, plan),
        };
        let may_wait = fits && (is_whole || may_cut);
        if may_wait && own.bytes.take(spec + bytes).is_ok() {
            self.specs.add(plan.spec(), spec);
            let counted = Some(bytes);
            (own.waiting).insert(self.added, WaitingProgram { plan, counted });
            return true;
        }
        own.left_out += 1;
        if own.left_out == 1 {
            let (what, count) = (self.bounds.what, own.waiting.len());
            warn!(
                "a {what} for a job of uid {uid} is left out, and others are: {count} of them wait"
            );
        }
        if own.waiting.is_empty() {
            self.of_user.remove(&uid);
        }
        false
    }

    /// Drops the prolog of a job whose launch is gone. Nothing waits for it, and it keeps the job's specification.
    fn drop_prolog(&mut self, uid: u32, job: JobId) {
        let Some(own) = self.of_user.get_mut(&uid) else {
            return;
        };
        if let Some(number) = own.prologs.remove(&job) {
            own.waiting.remove(&number);
        }
        self.remove_if_idle(uid);
    }

    /// Forgets a user of whom nothing waits.
    fn remove_if_idle(&mut self, uid: u32) {
        let Some(own) = self.of_user.get(&uid).filter(|own| own.waiting.is_empty()) else {
            return;
        };
        if own.left_out > 0 {
            let (what, count) = (self.bounds.what, own.left_out);
            error!("{count} times a {what} for jobs of uid {uid} was left out");
        }
        self.of_user.remove(&uid);
    }

    /// Takes the next program of the user whose turn it is, of those who have a place for one.
    fn pop(&mut self, has_place: impl Fn(u32) -> bool) -> Option<PlacedProgram> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let upto = (Bound::Unbounded, Bound::Included(self.last));
        let mut users = self.of_user.range(after).chain(self.of_user.range(upto));
        let uid = *users.find(|(uid, _)| has_place(**uid))?.0;
        self.last = uid;
        let own = self.of_user.get_mut(&uid)?;
        let (number, WaitingProgram { plan, counted }) = own.waiting.pop_first()?;
        if let Some(launch) = plan.prolog()
            && own.prologs.get(&launch.job) == Some(&number)
        {
            own.prologs.remove(&launch.job);
        }
        if let Some(bytes) = counted {
            let spec = self.specs.remove(plan.spec());
            own.bytes.give_back(bytes + spec);
        }
        self.remove_if_idle(uid);
        Some(PlacedProgram { uid, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::JobProgram;
    use super::super::record::ProgramJob;
    use super::*;
    use muster_core::state::State;
    use muster_model::ids::{Attempt, JobAttempt, JobId};
    use muster_model::job::Job;
    use muster_model::time::{TimeLimit, Timestamp};

    const BOUNDS: QueueBounds = QueueBounds {
        what: "program",
        at_once: 1,
        of_user_at_once: usize::MAX,
        items: usize::MAX,
        bytes: ByteBounds {
            own: 2 << 20,
            all: 8 << 20,
            few: 1 << 10,
        },
        cut_beyond: 1 << 20,
    };
    const TEXT: usize = 64 << 10;

    fn spec(comment: usize) -> Arc<JobSpec> {
        Arc::new(JobSpec {
            comment: Some("c".repeat(comment)),
            ..JobSpec::default()
        })
    }

    fn plan(kind: JobProgram, id: u64, spec: &Arc<JobSpec>) -> ProgramPlan {
        let job = Job::new(
            JobId(id),
            Arc::clone(spec),
            TimeLimit::Unlimited,
            Timestamp(0),
        );
        let record = ProgramJob::of(&State::default(), &job);
        ProgramPlan::job(kind, String::new(), record, &Arc::default())
    }

    fn epilog(id: u64, spec: &Arc<JobSpec>) -> ProgramPlan {
        plan(JobProgram::Epilog, id, spec)
    }

    fn value(plan: ProgramPlan, name: &str) -> String {
        let env = plan.invocation().env;
        let found = env.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).unwrap_or_default()
    }

    fn pop(turns: &mut UserTurns) -> Option<ProgramPlan> {
        turns.pop(|_| true).map(|placed| placed.plan)
    }

    fn job_of(plan: ProgramPlan) -> u64 {
        value(plan, "SLURM_JOB_ID").parse().unwrap()
    }

    #[test]
    fn users_take_turns() {
        let items = 5;
        let mut waiting = UserTurns::new(QueueBounds { items, ..BOUNDS });
        let spec = spec(10);
        for id in 0..10 {
            let fits = waiting.push(7, epilog(id, &spec));
            assert_eq!(fits, id < 5, "five of one user wait");
        }
        for (uid, id) in [(3, 100), (9, 200), (3, 101)] {
            assert!(waiting.push(uid, epilog(id, &spec)));
        }
        let order: Vec<u64> = std::iter::from_fn(|| pop(&mut waiting).map(job_of)).collect();
        assert_eq!(order, [100, 0, 200, 101, 1, 2, 3, 4]);
        assert!(waiting.of_user.is_empty() && waiting.specs.0.is_empty());
        assert_eq!(waiting.bytes.all(), 0);
    }

    /// Programs and mails were counted, not their texts, and each had a copy.
    #[test]
    fn texts_that_programs_share_count_once_and_others_each() {
        let mut waiting = UserTurns::new(BOUNDS);
        let shared = spec(TEXT);
        for id in 0..500 {
            assert!(waiting.push(7, epilog(id, &shared)));
        }
        let own = waiting.of_user[&7].bytes.own();
        assert!((TEXT..TEXT + 500 * 2048).contains(&own), "{own}");
        let texts = waiting.specs.0.len();
        assert_eq!(texts, 1);
        // Each with a text of its own: some are whole, others cut, and there is an end to it.
        let kept = (0..100_000).take_while(|id| waiting.push(8, epilog(*id, &spec(TEXT))));
        let kept = kept.count();
        let own = waiting.of_user[&8].bytes.own();
        assert!(own <= BOUNDS.bytes.own && kept > 300, "{own} {kept}");
        assert!(waiting.specs.0.len() <= 1 + BOUNDS.cut_beyond / TEXT);
        // A prolog has a job wait for it.
        let launch = JobAttempt::new(JobId(7), Attempt(1));
        let prolog =
            |turns: &mut UserTurns| turns.push(8, plan(JobProgram::Prolog(launch), 7, &shared));
        assert!(prolog(&mut waiting));
        let plans: Vec<ProgramPlan> = std::iter::from_fn(|| pop(&mut waiting)).collect();
        assert!(plans.iter().any(|plan| plan.prolog() == Some(launch)));
        let lengths = plans
            .into_iter()
            .map(|plan| value(plan, "SLURM_JOB_COMMENT").len());
        let lengths: Vec<usize> = lengths.collect();
        let of = |length| lengths.iter().filter(|l| **l == length).count();
        assert_eq!(of(TEXT) + of(256), lengths.len());
        assert!(of(256) > 200 && of(TEXT) > 500, "{}", of(256));
        assert_eq!((waiting.bytes.all(), waiting.specs.0.len()), (0, 0));
    }

    /// Each of ten thousand tasks of an array had an environment of its own for want of room, and most were left out.
    #[test]
    fn what_shares_its_texts_is_not_cut_to_what_takes_more() {
        let mut waiting = UserTurns::new(BOUNDS);
        let shared = spec(TEXT);
        while waiting.of_user.get(&7).map_or(0, |own| own.bytes.own()) < BOUNDS.cut_beyond {
            assert!(waiting.push(7, epilog(0, &shared)));
        }
        let whole = waiting.of_user[&7].waiting.len();
        let more = (0..100_000).take_while(|id| waiting.push(7, epilog(*id, &shared)));
        assert!(more.count() >= whole, "they take no more than those before");
        while let Some(plan) = pop(&mut waiting) {
            assert!(plan.spec().is_some());
        }
        assert_eq!(waiting.bytes.all(), 0);
    }

    /// Jobs that were started and cancelled left a prolog each, which kept a command line of a megabyte and was run for nobody.
    #[test]
    fn the_prolog_of_a_launch_that_is_gone_is_dropped() {
        let mut waiting = UserTurns::new(BOUNDS);
        let shared = spec(TEXT);
        let prolog = |id| {
            let launch = JobAttempt::new(JobId(id), Attempt(1));
            plan(JobProgram::Prolog(launch), id, &shared)
        };
        for id in 0..1000 {
            waiting.push(7, prolog(id));
            waiting.drop_prolog(7, JobId(id));
        }
        assert!(waiting.of_user.is_empty());
        assert_eq!(Arc::strong_count(&shared), 1);
        waiting.push(7, prolog(1));
        waiting.push(7, prolog(2));
        assert!(waiting.push(7, epilog(1, &shared)));
        // One that has begun goes on.
        assert_eq!(pop(&mut waiting).map(job_of), Some(1));
        waiting.drop_prolog(7, JobId(1));
        waiting.drop_prolog(8, JobId(2));
        waiting.drop_prolog(7, JobId(2));
        assert!(pop(&mut waiting).is_some_and(|plan| plan.prolog().is_none()));
        assert!(waiting.of_user.is_empty() && waiting.specs.0.is_empty());
    }

    /// Programs of one user that took minutes each had all the places, and those of others waited as long.
    #[test]
    fn a_user_has_a_part_of_the_places() {
        let queue = ProgramQueue::new(QueueBounds {
            at_once: 4,
            of_user_at_once: 2,
            ..BOUNDS
        });
        (0..5).for_each(|id| queue.push(7, epilog(id, &spec(10))));
        let next = |queue: &ProgramQueue| {
            let placed = queue.lock().take();
            placed.map(|placed| (placed.uid, job_of(placed.plan)))
        };
        let first: Vec<_> = std::iter::from_fn(|| next(&queue)).collect();
        assert_eq!(first, [(7, 0), (7, 1)]);
        queue.push(9, epilog(100, &spec(10)));
        assert_eq!((next(&queue), next(&queue)), (Some((9, 100)), None));
        queue.leave(7);
        queue.leave(9);
        assert_eq!((next(&queue), next(&queue)), (Some((7, 2)), None));
        assert_eq!(queue.lock().running_of.len(), 1);
    }

    /// Programs that come while there is no room take turns with earlier ones, and are bounded all the same.
    #[test]
    fn what_waits_for_room_takes_turns() {
        let queue = ProgramQueue::new(BOUNDS);
        (0..5).for_each(|id| queue.push(7, epilog(id, &spec(10))));
        let mut started = vec![job_of(queue.next().unwrap().plan)];
        queue.push(9, epilog(100, &spec(10)));
        (0..1000).for_each(|_| queue.push(10, epilog(200, &spec(TEXT))));
        assert!(queue.lock().turns.of_user[&10].bytes.own() <= BOUNDS.bytes.own);
        queue.close();
        for _ in 0..4 {
            queue.leave(7);
            started.push(job_of(queue.next().unwrap().plan));
        }
        assert_eq!(started, [0, 100, 200, 1, 200]);
        while pop(&mut queue.lock().turns).is_some() {}
        assert!(queue.next().is_none());
    }
}
