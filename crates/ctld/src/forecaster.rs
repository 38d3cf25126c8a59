//! Expected starts and explanations. They are computed on a copy of the state and on a thread of their own, so that
//! neither the writer nor other readers wait for them; a result is used until the state has changed and it may be
//! computed again. Users take turns, and the state is copied when it is somebody's turn.
//!
//! Expected starts are worked out in slices, between which others have their turns, for a limited time; starts beyond it are
//! estimates. A question waits for them for a limited time too, and then gets those that are known. Explanations are worked out in
//! slices as well, and answered with the known part when their time is over. Each holds a copy of the state while it is under way, so
//! few are; the others wait, and are refused when they have waited for too long.

mod bounds;
mod explaining;
mod trying;

use crate::clock::now;
use crate::failure::{self, caught};
use crate::forecaster::bounds::{BEGUN_MAX, SLICE, TRIALS_MAX, WORK_MAX};
use crate::forecaster::explaining::{EXPLAIN_MAX, ForecastStarts, WhyQuestion, WhyRun};
use crate::forecaster::trying::{TryQuestion, TryRun};
use crate::mail::{ForecastResult, StateCopy, ToReplica};
use crate::outbox::Outbox;
use crate::peer::RequestOrigin;
use muster_channel::admission::FairQueue;
use muster_core::state::State;
use muster_journal::Position;
use muster_model::command::{Identity, Reply};
use muster_model::ids::JobId;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use muster_proto::client::{JobFilter, StartsProgress};
use muster_sched::ExplanationDepth;
use muster_sched::forecast::{Forecast, ForecastBounds, ForecastRun};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time after which expected starts are computed again though nothing has changed: time has passed.
const SERVES_MS: u64 = 30_000;
/// Factor by which the thread rests longer than it worked, so that listings in a loop do not keep it busy.
const REST: u32 = 3;
/// Time of work after which an intermediate result is published.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Time that a question waits for expected starts.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Where forecasts take longer than this, questions do not wait for them.
const SLOW: Duration = Duration::from_secs(1);

/// A question about jobs.
pub(crate) struct ForecastQuery {
    /// The user who asks.
    pub(crate) identity: Identity,
    /// Which jobs.
    pub(crate) filter: JobFilter,
    /// Where the answer goes.
    pub(crate) out: Outbox,
}

/// In whose turn expected starts are worked out, which serve everybody: nobody has this number.
const EVERYBODY: u32 = u32::MAX;

/// Something to work out.
enum ForecastTask {
    /// Expected starts.
    Starts,
    /// Their next slice.
    MoreStarts(Box<StartsRun>),
    Why(WhyQuestion),
    /// The next slice of an explanation.
    MoreWhy(Box<WhyRun>),
    Try(TryQuestion),
    /// The next slice of a trial.
    MoreTry(Box<TryRun>),
}

impl ForecastTask {
    /// It may be performed while so many trials and explanations are under way: it holds no copy of the state, or has one, or there is
    /// room for another.
    fn may_begin(&self, under_way: &UnderWay, time: Instant) -> bool {
        let all = under_way.trials + under_way.explanations;
        match self {
            ForecastTask::Starts
            | ForecastTask::MoreStarts(_)
            | ForecastTask::MoreWhy(_)
            | ForecastTask::MoreTry(_) => true,
            ForecastTask::Why(question) => all < BEGUN_MAX || question.is_late(time),
            ForecastTask::Try(question) => {
                all < BEGUN_MAX && under_way.trials < TRIALS_MAX || question.is_late(time)
            }
        }
    }
}

/// Questions that were begun and are not answered yet.
#[derive(Default)]
struct UnderWay {
    trials: usize,
    explanations: usize,
}

/// A forecast of all expected starts under way.
struct StartsRun {
    run: ForecastRun,
    position: Position,
    at: Timestamp,
    took: Duration,
    /// Time of work up to the result that was published last.
    published: Duration,
}

impl StartsRun {
    fn result(&self, forecast: Forecast, is_over: bool) -> ForecastResult {
        ForecastResult {
            forecast: Arc::new(forecast),
            position: self.position,
            at: self.at,
            took: self.took,
            is_over,
        }
    }
}

/// Tasks in the turns of their users. Between two turns of the thread each question under way is one of them.
#[derive(Default)]
struct TaskQueue {
    tasks: FairQueue<ForecastTask>,
    under_way: UnderWay,
}

impl TaskQueue {
    /// The task whose turn it is.
    fn pop(&mut self, time: Instant) -> Option<(u32, ForecastTask)> {
        let under_way = &self.under_way;
        let may = |_: &u32, task: &ForecastTask| task.may_begin(under_way, time);
        let popped = self.tasks.pop_where(may)?;
        match &popped.1 {
            ForecastTask::MoreWhy(_) => self.under_way.explanations -= 1,
            ForecastTask::MoreTry(_) => self.under_way.trials -= 1,
            _ => {}
        }
        Some(popped)
    }

    /// The rest of a task is its user's next.
    fn put_back(&mut self, uid: u32, rest: ForecastTask) {
        match &rest {
            ForecastTask::MoreWhy(_) => self.under_way.explanations += 1,
            ForecastTask::MoreTry(_) => self.under_way.trials += 1,
            _ => {}
        }
        self.tasks.put_back(uid, rest);
    }
}

/// Tasks that wait for the thread.
#[derive(Default)]
struct Tasks {
    waiting: Mutex<TaskQueue>,
    there_are: Condvar,
    /// Nobody asks any more.
    is_over: AtomicBool,
}

impl Tasks {
    fn push(&self, uid: u32, task: ForecastTask) {
        self.locked().tasks.push(uid, task);
        self.there_are.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, TaskQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task whose turn it is; waits for one. None once nobody asks any more.
    fn next(&self) -> Option<(u32, ForecastTask)> {
        let mut waiting = self.locked();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(task) = waiting.pop(Instant::now()) {
                return Some(task);
            }
            let woken = self.there_are.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The replica's end of the thread.
pub(crate) struct Forecaster {
    tasks: Arc<Tasks>,
    latest: Option<LatestForecast>,
    /// A forecast is asked for or under way.
    in_progress: bool,
    /// Questions that wait for it, the oldest first.
    waiting: VecDeque<WaitingQuery>,
}

/// The result that questions are answered with.
struct LatestForecast {
    result: ForecastResult,
    received: Instant,
}

/// A question that waits for expected starts of a state of this position or a later one.
struct WaitingQuery {
    position: Position,
    until: Instant,
    asked: ForecastQuery,
}

impl Drop for Forecaster {
    fn drop(&mut self) {
        // Under the lock, so that the thread is not about to wait.
        let waiting = self.tasks.locked();
        self.tasks.is_over.store(true, Ordering::Relaxed);
        self.tasks.there_are.notify_one();
        drop(waiting);
    }
}

impl Forecaster {
    /// Starts the thread; its results go to the replica.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(to_replica: Sender<ToReplica>) -> std::io::Result<Forecaster> {
        let tasks = Arc::new(Tasks::default());
        let own = Arc::clone(&tasks);
        failure::spawn_essential("forecast", move || {
            work(&own, &to_replica);
            Ok(())
        })?;
        Ok(Forecaster {
            tasks,
            latest: None,
            in_progress: false,
            waiting: VecDeque::new(),
        })
    }

    /// Expected starts as they were worked out last.
    pub(crate) fn starts(&self) -> Option<&Forecast> {
        let latest = self.latest.as_ref()?;
        Some(&latest.result.forecast)
    }

    /// Their progress.
    pub(crate) fn progress(&self) -> StartsProgress {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let forecast = self.starts();
        StartsProgress {
            at: self.latest.as_ref().map(|latest| latest.result.at),
            simulated: forecast.map_or(0, |forecast| number(forecast.simulated)),
            estimated: forecast.map_or(0, |forecast| number(forecast.estimated)),
            in_progress: self.in_progress,
        }
    }

    /// Gives a question back if it is to be answered from known results, else keeps it until there is one, or
    /// until it has waited for long enough.
    pub(crate) fn ask(
        &mut self,
        state: &State,
        position: Position,
        asked: ForecastQuery,
        time: Instant,
    ) -> Option<ForecastQuery> {
        let waits = |id: &JobId| state.pending.contains(id) || state.arrays.contains_key(id);
        let ids = &asked.filter.ids;
        if state.pending.is_empty() || !(ids.is_empty() || ids.iter().any(waits)) {
            return Some(asked);
        }
        if let Some(LatestForecast { result, received }) = &self.latest {
            let fresh = now().since_ms(result.at) < SERVES_MS && result.position == position;
            let rests = time.saturating_duration_since(*received) < result.took * REST;
            if result.is_over && (fresh || rests) {
                return Some(asked);
            }
        }
        self.begin();
        if self
            .latest
            .as_ref()
            .is_some_and(|latest| latest.result.took > SLOW)
        {
            return Some(asked);
        }
        self.waiting.push_back(WaitingQuery {
            position,
            until: time + WAIT_MAX,
            asked,
        });
        None
    }

    fn begin(&mut self) {
        if !self.in_progress {
            self.in_progress = true;
            self.tasks.push(EVERYBODY, ForecastTask::Starts);
        }
    }

    /// A forecast has arrived, or a part of it. Returns the questions that it can answer; a client that has read a later
    /// position waits for the next. A part replaces no result that was over.
    pub(crate) fn received(&mut self, foreseen: ForecastResult) -> Vec<ForecastQuery> {
        let (known, is_over) = (foreseen.position, foreseen.is_over);
        let replaces = |latest: &LatestForecast| is_over || !latest.result.is_over;
        if self.latest.as_ref().is_none_or(replaces) {
            self.latest = Some(LatestForecast {
                result: foreseen,
                received: Instant::now(),
            });
        }
        if !is_over {
            return Vec::new();
        }
        self.in_progress = false;
        let waiting = std::mem::take(&mut self.waiting);
        let (answered, later): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|query| query.position <= known);
        self.waiting = later.into();
        if !self.waiting.is_empty() {
            self.begin();
        }
        answered.into_iter().map(|query| query.asked).collect()
    }

    /// Time until a question has waited for long enough.
    pub(crate) fn due_in(&self, time: Instant) -> Option<Duration> {
        let first = self.waiting.front()?;
        Some(first.until.saturating_duration_since(time))
    }

    /// The questions that have waited for long enough.
    pub(crate) fn overdue(&mut self, time: Instant) -> Vec<ForecastQuery> {
        let is_overdue = |query: &WaitingQuery| query.until <= time;
        let count = self
            .waiting
            .iter()
            .take_while(|query| is_overdue(query))
            .count();
        let overdue = self.waiting.drain(..count);
        overdue.map(|query| query.asked).collect()
    }

    /// Why a job waits, if it is in the scope of the user who asks; without what would start it sooner if that is not asked for.
    pub(crate) fn explain(
        &self,
        identity: Identity,
        job: JobId,
        depth: ExplanationDepth,
        out: Outbox,
        time: Instant,
    ) {
        let known = self
            .latest
            .as_ref()
            .map(|LatestForecast { result, .. }| ForecastStarts {
                forecast: Arc::clone(&result.forecast),
                position: result.position,
                is_current: result.is_over && now().since_ms(result.at) < SERVES_MS,
            });
        let question = WhyQuestion {
            job,
            depth,
            out,
            due: time + EXPLAIN_MAX,
            known,
            identity,
        };
        self.tasks
            .push(question.identity.uid, ForecastTask::Why(question));
    }

    /// When a job would start, or the components of a heterogeneous one.
    pub(crate) fn try_job(
        &self,
        identity: Identity,
        specs: Vec<JobSpec>,
        place: RequestOrigin,
        reply: oneshot::Sender<Reply>,
    ) {
        let question = TryQuestion {
            identity,
            specs,
            place,
            reply,
            asked: Instant::now(),
        };
        self.tasks
            .push(question.identity.uid, ForecastTask::Try(question));
    }
}

/// A copy of the replica's state as it is now; absent once that has stopped.
fn copied(to_replica: &Sender<ToReplica>) -> Option<StateCopy> {
    let (answer, copy) = channel();
    to_replica.send(ToReplica::Copy { answer }).ok()?;
    copy.recv().ok()
}

/// Computes forecasts until the replica has stopped. Each task has a state of its own, so a panic ends no more than the task.
fn work(tasks: &Tasks, to_replica: &Sender<ToReplica>) {
    while let Some((uid, task)) = tasks.next() {
        let begun = Instant::now();
        if perform(task, tasks, to_replica).is_none() {
            return;
        }
        let took = begun.elapsed().as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        tasks.locked().tasks.charge(uid, took);
    }
}

/// Performs a task, or a slice of it. None once the replica has stopped.
fn perform(task: ForecastTask, tasks: &Tasks, to_replica: &Sender<ToReplica>) -> Option<()> {
    match task {
        ForecastTask::Starts => {
            let StateCopy { state, position } = copied(to_replica)?;
            let (begun, at) = (Instant::now(), now());
            let begin = || ForecastRun::new(*state, at, ForecastBounds::default());
            let Ok(run) = caught(begin) else {
                let result = ForecastResult {
                    forecast: Arc::default(),
                    position,
                    at,
                    took: begun.elapsed(),
                    is_over: true,
                };
                return publish(to_replica, result);
            };
            let run = StartsRun {
                run,
                position,
                at,
                took: begun.elapsed(),
                published: Duration::ZERO,
            };
            advance(Box::new(run), tasks, to_replica)
        }
        ForecastTask::MoreStarts(run) => advance(run, tasks, to_replica),
        ForecastTask::Why(question) if question.is_gone() => Some(()),
        ForecastTask::Why(question) if question.is_late(Instant::now()) => {
            question.refuse();
            Some(())
        }
        ForecastTask::Why(question) => {
            let StateCopy { state, position } = copied(to_replica)?;
            queue_explanation(explaining::begin(question, state, position), tasks);
            Some(())
        }
        ForecastTask::MoreWhy(run) => {
            queue_explanation(explaining::advance(run), tasks);
            Some(())
        }
        ForecastTask::Try(question) if question.is_gone() => Some(()),
        ForecastTask::Try(question) if question.is_late(Instant::now()) => {
            question.refuse();
            Some(())
        }
        ForecastTask::Try(question) => {
            let StateCopy { state, .. } = copied(to_replica)?;
            queue_trial(trying::begin(question, state), tasks);
            Some(())
        }
        ForecastTask::MoreTry(run) => {
            queue_trial(trying::advance(run), tasks);
            Some(())
        }
    }
}

/// Queues the next slice of an explanation, if it is not answered.
fn queue_explanation(run: Option<Box<WhyRun>>, tasks: &Tasks) {
    if let Some(run) = run {
        let uid = run.uid();
        tasks.locked().put_back(uid, ForecastTask::MoreWhy(run));
    }
}

/// Queues the next slice of a trial, if it is not answered.
fn queue_trial(run: Option<Box<TryRun>>, tasks: &Tasks) {
    if let Some(run) = run {
        let uid = run.uid();
        tasks.locked().put_back(uid, ForecastTask::MoreTry(run));
    }
}

/// Works out expected starts for the time of a slice, and queues the next.
fn advance(mut run: Box<StartsRun>, tasks: &Tasks, to_replica: &Sender<ToReplica>) -> Option<()> {
    let begun = Instant::now();
    let slice = caught(|| {
        loop {
            let is_over = run.run.advance();
            if is_over || begun.elapsed() >= SLICE {
                return is_over;
            }
        }
    });
    run.took += begun.elapsed();
    let is_over = match slice {
        Ok(is_over) => is_over || run.took >= WORK_MAX,
        Err(_) => return publish(to_replica, run.result(Forecast::default(), true)),
    };
    if is_over || run.took >= run.published + PUBLISH_EVERY {
        run.published = run.took;
        let forecast = caught(|| run.run.so_far()).unwrap_or_default();
        publish(to_replica, run.result(forecast, is_over))?;
    }
    if is_over {
        return Some(());
    }
    let next = ForecastTask::MoreStarts(run);
    tasks.locked().put_back(EVERYBODY, next);
    Some(())
}

/// Publishes a result. None once the replica has stopped.
fn publish(to_replica: &Sender<ToReplica>, result: ForecastResult) -> Option<()> {
    let sent = to_replica.send(ToReplica::ForecastResult(Box::new(result)));
    sent.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forecaster without a thread, a state with a job that waits, and a question for all expected starts.
    fn case() -> (Forecaster, State, impl Fn() -> ForecastQuery) {
        let forecaster = Forecaster {
            tasks: Arc::default(),
            latest: None,
            in_progress: false,
            waiting: VecDeque::new(),
        };
        let mut state = State::default();
        state.pending.insert(JobId(1));
        let question = || ForecastQuery {
            identity: Identity::default(),
            filter: JobFilter::default(),
            out: crate::outbox::channel(None).0,
        };
        (forecaster, state, question)
    }

    fn result(position: Position, took: Duration, is_over: bool) -> ForecastResult {
        let forecast = Forecast {
            simulated: usize::try_from(position).unwrap(),
            ..Forecast::default()
        };
        ForecastResult {
            forecast: Arc::new(forecast),
            position,
            at: now(),
            took,
            is_over,
        }
    }

    #[test]
    fn a_question_waits_for_a_limited_time() {
        let (mut forecaster, state, question) = case();
        let time = Instant::now();
        assert!(forecaster.ask(&state, 1, question(), time).is_none());
        assert_eq!(forecaster.due_in(time), Some(WAIT_MAX));
        assert!(forecaster.overdue(time).is_empty());
        assert_eq!(forecaster.overdue(time + WAIT_MAX).len(), 1);
        assert_eq!(forecaster.due_in(time), None);
        let progress = forecaster.progress();
        assert!(progress.in_progress && progress.at.is_none());
    }

    #[test]
    fn nobody_waits_where_forecasts_are_slow() {
        let (mut forecaster, state, question) = case();
        let time = Instant::now();
        assert!(forecaster.ask(&state, 5, question(), time).is_none());
        let part = result(5, Duration::from_millis(1500), false);
        assert!(
            forecaster.received(part).is_empty(),
            "a part answers nobody"
        );
        assert!(forecaster.ask(&state, 6, question(), time).is_some());
        let whole = result(5, Duration::from_secs(5), true);
        assert_eq!(forecaster.received(whole).len(), 1);
        assert!(!forecaster.progress().in_progress);
        // A part of a later forecast does not replace a whole one.
        let later = Instant::now() + Duration::from_secs(60);
        assert!(forecaster.ask(&state, 7, question(), later).is_some());
        assert!(forecaster.progress().in_progress);
        forecaster.received(result(7, Duration::from_secs(1), false));
        assert_eq!(forecaster.progress().simulated, 5);
        forecaster.received(result(7, Duration::from_secs(2), true));
        assert_eq!(forecaster.progress().simulated, 7);
    }

    #[test]
    fn a_forecast_is_made_in_slices_that_end() {
        let (to_replica, inbox) = channel();
        let run = StartsRun {
            run: ForecastRun::new(State::default(), now(), ForecastBounds::default()),
            position: 3,
            at: now(),
            took: WORK_MAX,
            published: WORK_MAX,
        };
        let tasks = Tasks::default();
        advance(Box::new(run), &tasks, &to_replica).unwrap();
        let Ok(ToReplica::ForecastResult(result)) = inbox.try_recv() else {
            panic!("a forecast has used its time, and is not published");
        };
        assert!(result.is_over && result.position == 3);
        assert!(tasks.locked().tasks.is_empty(), "no slice follows");
    }

    /// Each question under way holds a copy of the state: as many users as asked at once had as many copies.
    #[test]
    fn few_questions_are_under_way_at_a_time() {
        let (forecaster, ..) = case();
        let (out, mut inbox) = crate::outbox::channel(None);
        let ask = |uid| {
            let identity = Identity {
                uid,
                ..Identity::default()
            };
            forecaster.explain(
                identity,
                JobId(1),
                ExplanationDepth::Brief,
                out.clone(),
                Instant::now(),
            );
        };
        (0..10).for_each(ask);
        let mut queue = forecaster.tasks.locked();
        queue.under_way.trials = TRIALS_MAX;
        let time = Instant::now();
        // There is room for one explanation beside the trials, and the next one is begun when it is answered.
        assert!(matches!(queue.pop(time), Some((0, ForecastTask::Why(_)))));
        queue.under_way.explanations = 1;
        assert!(queue.pop(time).is_none());
        queue.under_way.explanations = 0;
        assert!(matches!(queue.pop(time), Some((1, ForecastTask::Why(_)))));
        queue.under_way.explanations = 1;
        let late = time + bounds::TURN_WAIT_MAX;
        let Some((2, ForecastTask::Why(question))) = queue.pop(late) else {
            panic!("a question waits for longer than it may");
        };
        question.refuse();
        let frame = inbox.try_recv().expect("it is not answered");
        match muster_proto::frame::decode(&frame[4..]) {
            Ok(muster_proto::client::Response::Refused(refusal)) => {
                assert!(refusal.to_string().contains("ask again later"), "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
}
