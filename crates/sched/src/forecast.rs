//! When and where jobs that wait are expected to start: the controller's own engine runs on a copy of the state, on a
//! clock that jumps from one end to the next. Jobs run as long as they are predicted to, or to their limits; nobody
//! submits anything. Under these assumptions a forecast is exact: it comes from the scheduler itself.

pub(crate) mod explain;

use crate::engine::{Engine, Turn};
use crate::forecast::explain::obstacles;
use crate::nodes::planned::PlannedEnds;
use muster_core::event::{Event, JobChange};
use muster_core::policy::access::privacy::View;
use muster_core::state::State;
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::explain::ExpectedStart;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, JobState, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{ExecContext, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The assumed length of jobs without a limit.
const ENDLESS_S: u64 = 365 * 86_400;

/// How far a forecast goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Starts that are played through; for later ones the time is estimated.
    pub starts: usize,
    /// Instants that are played through.
    pub instants: usize,
    /// It ends when this job has started.
    pub job: Option<JobId>,
    /// Nothing after this is of interest.
    pub until: Option<Timestamp>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            starts: 5_000,
            instants: 20_000,
            job: None,
            until: None,
        }
    }
}

/// The result of a forecast.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// Starts of jobs that wait, by record; of an array's record that of its first task.
    pub starts: BTreeMap<JobId, ExpectedStart>,
    /// Jobs are taken to run as long as predicted; else to their limits.
    pub predicted: bool,
    /// Starts and instants played through.
    pub cost: usize,
}

/// Forecasts the starts of all that waits.
pub fn forecast(state: &State, now: Timestamp, bounds: Bounds) -> Forecast {
    let mut play = Play::new(state.clone(), now, bounds);
    play.run();
    if bounds.job.is_none() {
        play.estimate_rest();
    }
    play.forecast
}

/// When and where a job would start if it were submitted now, among all that waits: `--test-only`.
///
/// # Errors
/// Why it would be refused, or that nothing which is foreseen starts it.
pub fn would_start(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<(JobId, ExpectedStart), Refusal> {
    let mut play = Play::new(state.clone(), now, Bounds::default());
    // The contents of script and environment do not matter, but both must exist.
    let script = spec.script.map(|id| (id, b"#!/bin/sh\n".to_vec().into()));
    let context = spec
        .context
        .map(|id| (id, ExecContext::default().encoded().into()));
    let submit = UserCommand::Submit {
        spec: Box::new(spec.clone()),
        blobs: script.into_iter().chain(context).collect(),
        test_only: false,
    };
    play.turn = Turn::default();
    let command = Command::User(identity.clone(), submit);
    play.engine.decide(0, &command, now, &mut play.turn);
    let id = match play.turn.replies.pop() {
        Some((_, Reply::Submitted { id, .. })) => id,
        Some((_, Reply::Refused(refusal))) => return Err(refusal),
        _ => return Err(RefusalCode::NodeConfigUnavailable.into()),
    };
    play.bounds.job = Some(id);
    play.run();
    if !play.forecast.starts.contains_key(&id) {
        play.estimate_rest();
    }
    match play.forecast.starts.remove(&id) {
        Some(start) => Ok((id, start)),
        None => {
            let state = play.engine.state();
            Err(never(state, id, play.now, &View::of(state, identity)))
        }
    }
}

/// Why a job does not start, whatever comes.
fn never(state: &State, id: JobId, now: Timestamp, view: &View<'_>) -> Refusal {
    let reason = state.jobs.get(&id).map_or(Reason::None, |job| job.reason);
    let code = match reason {
        Reason::PartitionTimeLimit => RefusalCode::InvalidTimeLimit,
        Reason::MaxMemPerLimit => RefusalCode::InvalidMemory,
        Reason::AccountNotAllowed => RefusalCode::InvalidAccount,
        Reason::QOSNotAllowed => RefusalCode::InvalidQos,
        Reason::PartitionNodeLimit => RefusalCode::InvalidNodeCount,
        reason if reason.is_limit() => RefusalCode::AccountingPolicy,
        _ => RefusalCode::NodeConfigUnavailable,
    };
    let why = match reason {
        Reason::Resources | Reason::Priority | Reason::None => Vec::new(),
        Reason::JobHeldUser | Reason::JobHeldAdmin => vec![
            "it would be held (--hold, or a priority of 0) and start only after 'scontrol release'"
                .into(),
        ],
        _ => obstacles(state, id, now, view),
    };
    match why.as_slice() {
        [] => Refusal::new(code, "nothing that is foreseen makes room for it"),
        why => Refusal::new(code, why.join(" ")),
    }
}

/// The state in which a job that waits asks for something else.
pub(crate) fn with_change(state: &State, id: JobId, spec: JobSpec, limit: TimeLimit) -> State {
    let mut state = state.clone();
    let job = state.jobs.get(&id);
    let at = job.map_or(Timestamp(0), |j| j.submit_time);
    let begun = job.is_some_and(|j| j.spec.begin.is_some()) && spec.begin.is_none();
    let waited = job.is_some_and(|j| !j.waiting_on.is_empty());
    let waits_on_none =
        (waited && spec.dependency.terms.is_empty()).then(|| JobChange::WaitingOn {
            terms: Vec::new(),
            reason: Reason::None,
        });
    let changes = [JobChange::Spec(Arc::new(spec)), JobChange::TimeLimit(limit)];
    for change in changes
        .into_iter()
        .chain(waits_on_none)
        .chain(begun.then_some(JobChange::Eligible))
    {
        state.apply(&Event::JobChanged { id, change, at });
    }
    state
}

/// When a job that runs is expected to end.
pub(crate) fn end_of(
    state: &State,
    ends: &PlannedEnds,
    id: JobId,
    now: Timestamp,
) -> Option<Timestamp> {
    let job = state.jobs.get(&id)?;
    if job.completing {
        return Some(now);
    }
    let end = ends.end_of(id).or_else(|| state.limit_end(job));
    let endless = || job.start_time.unwrap_or(now).plus_s(ENDLESS_S);
    Some(end.unwrap_or_else(endless).max(now))
}

struct Play {
    engine: Engine,
    now: Timestamp,
    bounds: Bounds,
    /// Jobs that run, by their end.
    ends: BTreeSet<(Timestamp, JobId)>,
    /// Jobs of the beginning that have not started.
    waiting: BTreeSet<JobId>,
    turn: Turn,
    forecast: Forecast,
}

impl Play {
    fn new(state: State, now: Timestamp, bounds: Bounds) -> Play {
        let planned = PlannedEnds::new(&state);
        let end = |id: &JobId| Some((end_of(&state, &planned, *id, now)?, *id));
        Play {
            ends: state.active.iter().filter_map(end).collect(),
            waiting: state.pending.clone(),
            forecast: Forecast {
                predicted: planned.predicts(),
                ..Forecast::default()
            },
            engine: Engine::new(state),
            now,
            bounds,
            turn: Turn::default(),
        }
    }

    fn run(&mut self) {
        loop {
            self.forecast.cost += 1;
            self.instant();
            let done = match self.bounds.job {
                Some(job) => self.forecast.starts.contains_key(&job),
                None => self.waiting.is_empty(),
            };
            let starts = self.forecast.starts.len();
            let cost = self.forecast.cost;
            if done || starts >= self.bounds.starts || cost >= self.bounds.instants {
                return;
            }
            match self.next() {
                Some(next) if self.bounds.until.is_none_or(|until| next <= until) => {
                    self.now = next;
                }
                _ => return,
            }
        }
    }

    /// All that happens at this time.
    fn instant(&mut self) {
        while let Some(&(at, id)) = self.ends.first()
            && at <= self.now
        {
            self.ends.pop_first();
            let job = self.engine.state().jobs.get(&id);
            if job.is_some_and(|job| job.state == JobState::Suspended) {
                // It goes on later, and ends later.
                continue;
            }
            self.decide(&Command::AssumeEnded { job: id });
        }
        self.decide(&Command::Tick { accounted: true });
        loop {
            self.turn = Turn::default();
            self.engine.schedule(self.now, &mut self.turn);
            let started = self.follow();
            if !started && !self.turn.more {
                break;
            }
        }
    }

    fn decide(&mut self, command: &Command) {
        self.turn = Turn::default();
        self.engine.decide(0, command, self.now, &mut self.turn);
        self.follow();
    }

    /// Takes note of what the turn brought; whether a job started.
    fn follow(&mut self) -> bool {
        let mut started = false;
        let mut cleaned = Vec::new();
        for event in &self.turn.events {
            match event {
                Event::JobStarted { id, alloc, .. } => {
                    started = true;
                    let Some(job) = self.engine.state().jobs.get(id) else {
                        continue;
                    };
                    self.ends.insert((run_until(job, self.now), *id));
                    let base = match job.array {
                        ArrayRole::Task { base, .. } => base,
                        _ => *id,
                    };
                    for record in [*id, base] {
                        if self.waiting.contains(&record) || self.bounds.job == Some(record) {
                            let start = ExpectedStart {
                                at: self.now,
                                nodes: alloc.hostlist.clone(),
                                cpus: alloc.cpus(),
                                partition: alloc.partition.clone(),
                                estimate: false,
                            };
                            self.forecast.starts.entry(record).or_insert(start);
                            self.waiting.remove(&record);
                        }
                    }
                }
                // Time limits, and who makes room for others: nodes are clean at once.
                Event::JobEnding { id, .. } => cleaned.push(*id),
                Event::JobResumed { id, .. } => {
                    if let Some(job) = self.engine.state().jobs.get(id) {
                        self.ends.insert((run_until(job, self.now), *id));
                    }
                }
                _ => {}
            }
        }
        for ended in cleaned {
            let completing = |job: &Job| job.completing;
            if self.engine.state().jobs.get(&ended).is_some_and(completing) {
                let mut turn = Turn::default();
                let command = Command::AssumeEnded { job: ended };
                self.engine.decide(0, &command, self.now, &mut turn);
                started |= !turn.events.is_empty();
            }
        }
        started
    }

    /// When something happens next.
    fn next(&self) -> Option<Timestamp> {
        let state = self.engine.state();
        let reservations = state.reservations.iter().flat_map(|r| {
            let soon = r.occurrences(self.now).take(2);
            soon.flat_map(|(start, end)| [start, end])
        });
        let later = |at: &Timestamp| *at > self.now;
        [
            self.ends.first().map(|(at, _)| *at),
            // Preempted jobs have a limit of their own.
            state.by_limit.iter().map(|(at, _)| *at).find(later),
            state.by_begin.iter().map(|(at, _)| *at).find(later),
            self.engine.scheduler().next_look(),
            reservations.filter(later).min(),
        ]
        .into_iter()
        .flatten()
        .filter(later)
        .min()
    }

    /// Estimates for jobs that were not played through: they start when the work ahead of them is done, at best.
    fn estimate_rest(&mut self) {
        let state = self.engine.state();
        let all: u64 = state.nodes.iter().map(|n| u64::from(n.config.cpus)).sum();
        let runs = |id: &JobId| {
            let job = state.jobs.get(id)?;
            (job.is_startable() && job.priority > 0).then_some(job)
        };
        let mut waiting: Vec<&Job> = self.waiting.iter().filter_map(runs).collect();
        waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
        if self.forecast.starts.len() < self.bounds.starts
            && self.forecast.cost < self.bounds.instants
        {
            // All was played through: who has not started then does not.
            return;
        }
        let mut work_ms = 0u64;
        for job in waiting {
            let at = self.now.plus_ms(work_ms / all.max(1));
            let cpus =
                u64::from(job.spec.ask.task_count()) * u64::from(job.spec.ask.cpus_of_task());
            let start = ExpectedStart {
                at,
                cpus,
                partition: job.partition.clone(),
                estimate: true,
                ..ExpectedStart::default()
            };
            self.forecast.starts.insert(job.id, start);
            let tasks = match &job.array {
                ArrayRole::Pending { indices } => indices.len(),
                _ => 1,
            };
            let runs_ms = run_until(job, at).since_ms(at);
            work_ms = work_ms.saturating_add(runs_ms.saturating_mul(cpus).saturating_mul(tasks));
        }
    }
}

/// When a job ends that starts or goes on now.
fn run_until(job: &Job, now: Timestamp) -> Timestamp {
    let limit_s = job.time_limit.seconds().unwrap_or(ENDLESS_S);
    let run_s = job
        .predicted_s
        .map_or(limit_s, |s| u64::from(s).min(limit_s));
    let ran_ms = match job.state {
        JobState::Running | JobState::Suspended => job.run_time_ms(now),
        _ => 0,
    };
    let left_ms = run_s.saturating_mul(1000).saturating_sub(ran_ms);
    now.plus_ms(left_ms.max(1))
}
