//! When and where waiting jobs are expected to start: the controller's engine runs on a copy of the
//! state, with a clock that jumps from one job end to the next. Jobs run as long as predicted, or
//! to their limits, and nothing is submitted. Under these assumptions a forecast is exact, because
//! the scheduler itself makes it.

pub(crate) mod explain;

use crate::backfill::together::JOINT_NODES_MAX;
use crate::engine::{Engine, Turn};
use crate::forecast::explain::obstacles;
use crate::nodes::planned::PlannedEnds;
use crate::pass::trial;
use muster_core::decide::{check_immediate, prospective_het_jobs};
use muster_core::event::{Event, JobChange};
use muster_core::policy::access::privacy::View;
use muster_core::state::State;
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::explain::ExpectedStart;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, ArrayRole, Job, JobState, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{ExecContext, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The assumed length of jobs without a limit.
const ENDLESS_S: u64 = 365 * 86_400;

/// Time in which reservations that repeat have shown all that they leave free, where nothing else happens: they repeat weekly at the
/// latest.
const REPETITION_S: u64 = 8 * 86_400;

/// Limits of a forecast.
#[derive(Clone, Copy, Debug)]
pub struct ForecastBounds {
    /// Number of starts to simulate; later starts are estimated.
    pub starts: usize,
    /// Number of instants to simulate.
    pub instants: usize,
    /// The forecast ends when this job has started.
    pub job: Option<JobId>,
    /// The forecast ends at this time.
    pub until: Option<Timestamp>,
}

impl Default for ForecastBounds {
    fn default() -> ForecastBounds {
        ForecastBounds {
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
    /// Expected starts of waiting jobs by record; for an array's record, the start of its first
    /// task.
    pub starts: BTreeMap<JobId, ExpectedStart>,
    /// Whether jobs are assumed to run as long as predicted; otherwise to their limits.
    pub predicted: bool,
    /// Number of simulated starts and instants.
    pub cost: usize,
    /// Number of jobs whose starts were simulated.
    pub simulated: usize,
    /// Number of jobs whose starts are estimates, because the simulation has not come to them.
    pub estimated: usize,
}

/// Forecasts the starts of all waiting jobs.
pub fn forecast(state: &State, now: Timestamp, bounds: ForecastBounds) -> Forecast {
    let mut run = ForecastRun::new(state.clone(), now, bounds);
    while !run.advance() {}
    match bounds.job {
        Some(_) => run.play.forecast,
        None => run.so_far(),
    }
}

/// A forecast in slices: the caller decides after each turn of the scheduler whether to continue, and may publish intermediate results.
pub struct ForecastRun {
    play: Play,
    is_over: bool,
}

impl ForecastRun {
    /// Begins a forecast of the starts of all waiting jobs.
    pub fn new(state: State, now: Timestamp, bounds: ForecastBounds) -> ForecastRun {
        ForecastRun {
            play: Play::new(state, now, bounds),
            is_over: false,
        }
    }

    /// Simulates one more turn of the scheduler. Returns whether the simulation is over.
    pub fn advance(&mut self) -> bool {
        self.is_over = self.is_over || self.play.step();
        self.is_over
    }

    /// Starts that were simulated so far, and estimates of the others.
    pub fn so_far(&self) -> Forecast {
        let mut forecast = self.play.forecast.clone();
        let estimates = self.play.estimates();
        forecast.simulated = forecast.starts.len();
        forecast.estimated = estimates.len();
        forecast.starts.extend(estimates);
        forecast
    }
}

/// When and where a job would start if it were submitted now behind all waiting jobs:
/// `--test-only`.
///
/// # Errors
/// The reason why the job would be refused, or that no foreseen event starts it.
pub fn would_start(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<(JobId, ExpectedStart), Refusal> {
    let mut trial = SubmitTrial::new(state, identity, spec, now)?;
    loop {
        while !trial.advance() {}
        match trial.finish(state) {
            TrialEnd::Start { job, start } => return Ok((job, start)),
            TrialEnd::Refused(refusal) => return Err(refusal),
            TrialEnd::Again(next) => trial = *next,
        }
    }
}

/// A trial of a job that is not submitted, in slices: the caller decides after each turn of the scheduler whether to continue.
pub struct SubmitTrial {
    play: Play,
    identity: Identity,
    spec: JobSpec,
    /// The number that the job has in the simulation.
    id: JobId,
    /// When the trial began.
    at: Timestamp,
}

/// Outcome of a trial.
pub enum TrialEnd {
    /// When and where the job would start.
    Start {
        /// The number that it would have.
        job: JobId,
        /// Its start.
        start: ExpectedStart,
    },
    /// The reason why it would be refused or never start.
    Refused(Refusal),
    /// Only a time limit keeps it from starting: another trial, with the highest limit that there is.
    Again(Box<SubmitTrial>),
}

impl SubmitTrial {
    /// Begins a trial of a job that is submitted now behind all waiting jobs.
    ///
    /// # Errors
    /// The reason why the job would be refused.
    pub fn new(
        state: &State,
        identity: &Identity,
        spec: &JobSpec,
        now: Timestamp,
    ) -> Result<SubmitTrial, Refusal> {
        let mut play = Play::new(state.clone(), now, ForecastBounds::default());
        // Only the existence of script and environment matters, not their contents.
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
        Ok(SubmitTrial {
            play,
            identity: identity.clone(),
            spec: spec.clone(),
            id,
            at: now,
        })
    }

    /// Simulates one more turn of the scheduler. Returns whether the simulation is over.
    pub fn advance(&mut self) -> bool {
        self.play.step()
    }

    /// The answer, an estimate if the simulation is not over; `state` is the one that the trial began with.
    pub fn finish(mut self, state: &State) -> TrialEnd {
        let (id, play) = (self.id, &mut self.play);
        let simulated = play.forecast.starts.remove(&id);
        let estimate = || play.estimates().remove(&id);
        if let Some(start) = simulated.or_else(estimate) {
            return TrialEnd::Start { job: id, start };
        }
        let ended = play.engine.state();
        match within_time_limit(ended, id, &self.spec) {
            // As Slurm answers: the job is accepted, and this limit may change before it could start.
            Some(spec) => match SubmitTrial::new(state, &self.identity, &spec, self.at) {
                Ok(next) => TrialEnd::Again(Box::new(next)),
                Err(refusal) => TrialEnd::Refused(refusal),
            },
            None => {
                let view = View::of(ended, &self.identity);
                TrialEnd::Refused(never(ended, id, play.now, &view))
            }
        }
    }
}

/// The request of a job that waits for nothing but a higher MaxTime of its partitions, with the highest that they have.
fn within_time_limit(state: &State, id: JobId, spec: &JobSpec) -> Option<JobSpec> {
    let job = state.jobs.get(&id)?;
    if job.reason != Reason::PartitionTimeLimit {
        return None;
    }
    let partitions = state.config.as_ref()?.partitions.iter();
    let of_job = partitions.filter(|partition| job.spec.partitions.contains(&partition.name));
    let most = of_job.map(|partition| partition.max_time).max()?;
    (most < job.time_limit).then(|| JobSpec {
        time_limit: Some(most),
        ..spec.clone()
    })
}

/// When and where all components of a heterogeneous job would start if they were the first in line: `--test-only`.
///
/// # Errors
/// The reason why the job would be refused, or why its components never start.
pub fn would_start_together(
    state: &State,
    identity: &Identity,
    specs: &[JobSpec],
    now: Timestamp,
) -> Result<(JobId, ExpectedStart), Refusal> {
    let jobs = prospective_het_jobs(state, identity, specs, now)?;
    if specs.iter().any(|spec| spec.immediate_s.is_some()) {
        jobs.iter()
            .try_for_each(|job| check_immediate(state, job, now))?;
    }
    let specs: Vec<JobSpec> = jobs.iter().map(|job| (*job.spec).clone()).collect();
    let (at, allocs) =
        trial::would_start_together(state, &specs, now, trial::TrialGoal::When, JOINT_NODES_MAX)?;
    let first = allocs.first().map(|alloc| alloc.partition.clone());
    let nodes: Vec<&str> = allocs.iter().map(|alloc| alloc.hostlist.as_str()).collect();
    let start = ExpectedStart {
        at,
        cpus: allocs.iter().map(Allocation::cpus).sum(),
        nodes: nodes.join(","),
        partition: first.unwrap_or_default(),
        estimate: false,
        tasks: None,
    };
    Ok((jobs.first().map(|job| job.id).unwrap_or_default(), start))
}

/// The reason why a job does not start, whatever happens.
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

/// The state with a changed request of a waiting job.
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

/// The expected end of a running job.
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

/// A simulation of the scheduler's own work on a copy of the state.
pub(crate) struct Play {
    engine: Engine,
    now: Timestamp,
    bounds: ForecastBounds,
    /// Running jobs, by their end.
    ends: BTreeSet<(Timestamp, JobId)>,
    /// Jobs that were waiting at the beginning and have not started.
    waiting: BTreeSet<JobId>,
    turn: Turn,
    pub(crate) forecast: Forecast,
    /// The scheduler has not looked at everything that fits at this time.
    is_within_instant: bool,
    /// Nothing else happens: a job that has not started does not start.
    pub(crate) is_complete: bool,
    /// Since when no job runs, and none is to begin at a time of its own.
    idle_since: Option<Timestamp>,
}

impl Play {
    pub(crate) fn new(state: State, now: Timestamp, bounds: ForecastBounds) -> Play {
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
            is_within_instant: false,
            is_complete: false,
            idle_since: None,
        }
    }

    /// Simulates one turn of the scheduler; after the last one of an instant, goes on to the next. Returns whether the simulation
    /// is over.
    pub(crate) fn step(&mut self) -> bool {
        if !self.is_within_instant {
            self.forecast.cost += 1;
            self.begin_instant();
        }
        self.turn = Turn::default();
        self.engine.schedule(self.now, &mut self.turn);
        let started = self.follow();
        self.is_within_instant = started || self.turn.more;
        if self.is_within_instant {
            return false;
        }
        let done = match self.bounds.job {
            Some(job) => self.forecast.starts.contains_key(&job),
            None => self.waiting.is_empty(),
        };
        let starts = self.forecast.starts.len();
        let cost = self.forecast.cost;
        if starts >= self.bounds.starts || cost >= self.bounds.instants {
            return true;
        }
        self.note_idle();
        let until = self.bounds.until;
        let next = self
            .next()
            .filter(|next| !done && until.is_none_or(|until| *next <= until));
        match next {
            Some(next) => self.now = next,
            None => self.is_complete = true,
        }
        self.is_complete
    }

    /// Applies what happens at this time before the scheduler's turns.
    fn begin_instant(&mut self) {
        while let Some(&(at, id)) = self.ends.first()
            && at <= self.now
        {
            self.ends.pop_first();
            let job = self.engine.state().jobs.get(&id);
            if job.is_some_and(|job| job.state == JobState::Suspended) {
                // The job is resumed later and therefore ends later.
                continue;
            }
            self.decide(&Command::AssumeEnded { job: id });
        }
        self.decide(&Command::Tick { accounted: true });
    }

    fn decide(&mut self, command: &Command) {
        self.turn = Turn::default();
        self.engine.decide(0, command, self.now, &mut self.turn);
        self.follow();
    }

    /// Records the results of a turn; returns whether a job has started.
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
                    let range = job.spec.ask.task_range.as_ref();
                    let tasks = range.map(|_| alloc.ntasks);
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
                                tasks,
                            };
                            self.forecast.starts.entry(record).or_insert(start);
                            self.waiting.remove(&record);
                        }
                    }
                }
                // Applies time limits and preemption; nodes are available at once, without cleanup
                // time.
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

    fn note_idle(&mut self) {
        let mut begins = self.engine.state().by_begin.iter().map(|(at, _)| *at);
        let is_idle = self.ends.is_empty() && begins.all(|at| at <= self.now);
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(self.now));
    }

    /// The time of the next event.
    fn next(&self) -> Option<Timestamp> {
        let state = self.engine.state();
        let is_known = |since: Timestamp| since.plus_s(REPETITION_S) < self.now;
        let repetitions_are_known = self.idle_since.is_some_and(is_known);
        let reservations = state.reservations.iter();
        let reservations = reservations.filter(|r| !(repetitions_are_known && r.repeats()));
        let reservations = reservations.flat_map(|r| {
            let soon = r.occurrences(self.now).take(2);
            soon.flat_map(|(start, end)| [start, end])
        });
        let later = |at: &Timestamp| *at > self.now;
        [
            self.ends.first().map(|(at, _)| *at),
            // Preempted jobs have their own time limit.
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

    /// Estimated starts of jobs that were not simulated: at the earliest when the work ahead of
    /// them is done.
    pub(crate) fn estimates(&self) -> BTreeMap<JobId, ExpectedStart> {
        if self.is_complete {
            return BTreeMap::new();
        }
        let state = self.engine.state();
        let all: u64 = state.nodes.iter().map(|n| u64::from(n.config.cpus)).sum();
        let runs = |id: &JobId| {
            let job = state.jobs.get(id)?;
            (job.is_startable() && job.priority > 0).then_some(job)
        };
        let mut waiting: Vec<&Job> = self.waiting.iter().filter_map(runs).collect();
        waiting.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.id));
        let mut estimates = BTreeMap::new();
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
            estimates.insert(job.id, start);
            let tasks = match &job.array {
                ArrayRole::Pending { indices } => indices.len(),
                _ => 1,
            };
            let runs_ms = run_until(job, at).since_ms(at);
            work_ms = work_ms.saturating_add(runs_ms.saturating_mul(cpus).saturating_mul(tasks));
        }
        estimates
    }
}

/// The end of a job that starts or resumes now.
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
