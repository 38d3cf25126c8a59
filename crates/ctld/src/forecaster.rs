//! Expected starts and explanations. They are computed on a copy of the state and on a thread of their own, so that
//! neither the writer nor other readers wait for them; a result is used until the state has changed and it may be
//! computed again. Users take turns, and the state is copied when it is somebody's turn.

use crate::audit::Entry;
use crate::clock::now;
use crate::failure::{self, Panicked, caught};
use crate::fault;
use crate::mail::{ForecastResult, ToReplica};
use crate::outbox::Outbox;
use crate::peer::RequestOrigin;
use log::error;
use muster_channel::admission::FairQueue;
use muster_core::policy::access::privacy::{JobScope, View};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::command::{Identity, Reply};
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_proto::client::{JobFilter, Response};
use muster_proto::frame;
use muster_sched::forecast::{
    Forecast, ForecastBounds, forecast, would_start, would_start_together,
};
use muster_sched::{explain, explain_briefly};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// Time after which expected starts are computed again though nothing has changed: time has passed.
const SERVES_MS: u64 = 30_000;
/// Factor by which the thread rests longer than it worked, so that listings in a loop do not keep it busy.
const REST: u32 = 3;

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
    /// Expected starts, of a state of this position or a later one.
    Starts(Position),
    Why {
        job: JobId,
        /// Without what would start it sooner.
        is_brief: bool,
        identity: Identity,
        out: Outbox,
    },
    Try(
        Identity,
        Vec<JobSpec>,
        RequestOrigin,
        oneshot::Sender<Reply>,
    ),
}

/// Tasks that wait for the thread.
#[derive(Default)]
struct Tasks {
    waiting: Mutex<FairQueue<ForecastTask>>,
    there_are: Condvar,
    /// Nobody asks any more.
    is_over: AtomicBool,
}

impl Tasks {
    fn push(&self, uid: u32, task: ForecastTask) {
        self.locked().push(uid, task);
        self.there_are.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, FairQueue<ForecastTask>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task whose turn it is; waits for one. None once nobody asks any more.
    fn next(&self) -> Option<(u32, ForecastTask)> {
        let mut waiting = self.locked();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(task) = waiting.pop() {
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
    latest: Option<(ForecastResult, Instant)>,
    /// Questions that wait for the current computation.
    waiting: Vec<(Position, ForecastQuery)>,
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
            waiting: Vec::new(),
        })
    }

    /// Expected starts as they were worked out last.
    pub(crate) fn starts(&self) -> Option<&Forecast> {
        self.latest.as_ref().map(|(latest, _)| &latest.forecast)
    }

    /// Gives a question back if it can be answered from known results, else keeps it until there is one.
    pub(crate) fn ask(
        &mut self,
        state: &State,
        position: Position,
        asked: ForecastQuery,
    ) -> Option<ForecastQuery> {
        let waits = |id: &JobId| state.pending.contains(id) || state.arrays.contains_key(id);
        let ids = &asked.filter.ids;
        if state.pending.is_empty() || !(ids.is_empty() || ids.iter().any(waits)) {
            return Some(asked);
        }
        if let Some((latest, received)) = &self.latest {
            let fresh = now().since_ms(latest.at) < SERVES_MS && latest.position == position;
            if fresh || received.elapsed() < latest.took * REST {
                return Some(asked);
            }
        }
        if self.waiting.is_empty() {
            self.tasks.push(EVERYBODY, ForecastTask::Starts(position));
        }
        self.waiting.push((position, asked));
        None
    }

    /// A forecast has arrived. Returns the questions that it can answer; a client that has read a later position
    /// waits for the next.
    pub(crate) fn received(
        &mut self,
        position: Position,
        foreseen: ForecastResult,
    ) -> Vec<ForecastQuery> {
        let known = foreseen.position;
        self.latest = Some((foreseen, Instant::now()));
        let waiting = std::mem::take(&mut self.waiting);
        let (answered, later): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(seen, _)| *seen <= known);
        self.waiting = later;
        if !self.waiting.is_empty() {
            self.tasks.push(EVERYBODY, ForecastTask::Starts(position));
        }
        answered.into_iter().map(|(_, asked)| asked).collect()
    }

    /// Why a job waits, if it is in the scope of the user who asks; without what would start it sooner if that is not asked for.
    pub(crate) fn explain(&self, identity: Identity, job: JobId, is_brief: bool, out: Outbox) {
        let uid = identity.uid;
        let task = ForecastTask::Why {
            job,
            is_brief,
            identity,
            out,
        };
        self.tasks.push(uid, task);
    }

    /// When a job would start, or the components of a heterogeneous one.
    pub(crate) fn try_job(
        &self,
        identity: Identity,
        specs: Vec<JobSpec>,
        place: RequestOrigin,
        reply: oneshot::Sender<Reply>,
    ) {
        self.tasks.push(
            identity.uid,
            ForecastTask::Try(identity, specs, place, reply),
        );
    }
}

/// A copy of the replica's state as it is now; absent once that has stopped.
fn copied(to_replica: &Sender<ToReplica>) -> Option<Box<State>> {
    let (answer, copy) = channel();
    to_replica.send(ToReplica::Copy { answer }).ok()?;
    copy.recv().ok()
}

/// Computes forecasts until the replica has stopped. Each task has a state of its own, so a panic ends no more than the task.
fn work(tasks: &Tasks, to_replica: &Sender<ToReplica>) {
    while let Some((uid, task)) = tasks.next() {
        let begun = Instant::now();
        let Some(state) = copied(to_replica) else {
            return;
        };
        match task {
            ForecastTask::Starts(position) => {
                let (begin, at) = (Instant::now(), now());
                let foreseen = ForecastResult {
                    forecast: caught(|| forecast(&state, at, ForecastBounds::default()))
                        .unwrap_or_default(),
                    position,
                    at,
                    took: begin.elapsed(),
                };
                if to_replica
                    .send(ToReplica::ForecastResult(Box::new(foreseen)))
                    .is_err()
                {
                    return;
                }
            }
            ForecastTask::Why {
                job,
                is_brief,
                identity,
                out,
            } => explain_job(&state, job, is_brief, &identity, &out),
            ForecastTask::Try(identity, specs, place, reply) => {
                let answer = tried(&state, &identity, &specs);
                if let Some(first) = specs.first() {
                    Entry::of_trial(&state, &identity, first, place).replied(&answer);
                }
                let _ = reply.send(answer);
            }
        }
        let took = begun.elapsed().as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        tasks.locked().charge(uid, took);
    }
}

fn explain_job(state: &State, job: JobId, is_brief: bool, identity: &Identity, out: &Outbox) {
    let scope = JobScope::of(state, identity);
    let shown = Some(job).filter(|id| scope.shows(state, *id));
    let explain = match is_brief {
        true => explain_briefly,
        false => explain,
    };
    let explained = caught(|| explain(state, shown?, now(), &View::of(state, identity)));
    let response = match explained {
        Ok(Some(explanation)) => Response::Why(Box::new(explanation)),
        Err(_) => Response::Refused(fault_refusal()),
        Ok(None) => Response::Refused(RefusalCode::InvalidJobId.into()),
    };
    let _ = out.send(frame::encode(&response));
}

fn tried(state: &State, identity: &Identity, specs: &[JobSpec]) -> Reply {
    let tried = caught(|| match specs {
        [spec] => {
            fault::on_spec("forecast", spec);
            would_start(state, identity, spec, now())
        }
        components => would_start_together(state, identity, components, now()),
    });
    if let Err(Panicked(why)) = &tried {
        let (user, uid) = (&identity.user, identity.uid);
        error!("a trial of user {user} (uid {uid}) is refused: {why}");
    }
    match tried.unwrap_or_else(|_| Err(fault_refusal())) {
        Ok((id, start)) => Reply::WouldStart {
            at: start.at,
            cpus: start.cpus,
            nodes: start.nodes,
            partition: start.partition,
            id,
        },
        Err(refusal) => Reply::Refused(refusal),
    }
}

fn fault_refusal() -> Refusal {
    let detail = "the request met a fault in the controller; see the log of slurmctld";
    Refusal::new(RefusalCode::InvalidValue, detail)
}
