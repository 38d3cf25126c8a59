//! An explanation in slices: first a forecast up to the job's start, then one for each number of tasks and for each change that may
//! start it sooner. The caller decides after each operation whether there is time for another, and may finish with the known part.

use super::changes::{Change, changes};
use super::{ahead, state_text, task_numbers, times, waits_for};
use crate::forecast::{Forecast, ForecastBounds, Play, with_change};
use muster_core::policy::access::privacy::View;
use muster_core::state::State;
use muster_model::explain::{EarlierStart, ExpectedStart, Explanation, TasksStart};
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// Number of changes that are tried.
const CHANGES_MAX: usize = 24;
/// Number of instants that all forecasts of changes together may simulate.
const CHANGE_INSTANTS_MAX: usize = 60_000;
/// Number of instants that all forecasts with single numbers of tasks together may simulate.
const NUMBER_INSTANTS_MAX: usize = 20_000;
/// A change that gains less than this is not reported, milliseconds.
const GAIN_MS: u64 = 30_000;

/// Explains why a job waits, and what would start it sooner, limited to what the user may see; `None` if there is no such job.
pub fn explain(state: &State, id: JobId, now: Timestamp, view: &View<'_>) -> Option<Explanation> {
    let mut run = ExplainRun::new(state, id, now, view, ExplanationDepth::WithChanges)?;
    while !run.advance(state, view) {}
    Some(run.finish(state, view, None))
}

/// Explains why a job waits without what would start it sooner, which takes a forecast for each change that is tried.
pub fn explain_briefly(
    state: &State,
    id: JobId,
    now: Timestamp,
    view: &View<'_>,
) -> Option<Explanation> {
    let mut run = ExplainRun::new(state, id, now, view, ExplanationDepth::Brief)?;
    while !run.advance(state, view) {}
    Some(run.finish(state, view, None))
}

/// Extent of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplanationDepth {
    /// Without what would start the job sooner.
    Brief,
    /// With a trial of each change that may start it sooner.
    WithChanges,
}

/// A question that a forecast answers.
enum Goal {
    /// When the job starts.
    Start,
    /// When it would start with this number of tasks.
    Tasks(u32),
    /// When it would start if it were changed; with the change's place in the list.
    Change(usize, Box<Change>),
}

/// A forecast under way.
struct GoalTrial {
    goal: Goal,
    play: Box<Play>,
}

/// A start by a change.
struct ChangedStart {
    /// The change's place in the list.
    place: usize,
    /// The change's kind.
    kind: u32,
    start: EarlierStart,
}

/// An explanation under way. The state and the view are the same in all calls.
pub struct ExplainRun {
    explanation: Explanation,
    depth: ExplanationDepth,
    trial: Option<GoalTrial>,
    left: VecDeque<Goal>,
    is_start_known: bool,
    /// Instants that forecasts with numbers of tasks have simulated.
    number_instants: usize,
    /// Instants that forecasts of changes have simulated.
    change_instants: usize,
    /// Starts by changes.
    found: Vec<ChangedStart>,
}

impl ExplainRun {
    /// Begins an explanation at a time, limited to what the user may see; `None` if there is no such job.
    pub fn new(
        state: &State,
        id: JobId,
        now: Timestamp,
        view: &View<'_>,
        depth: ExplanationDepth,
    ) -> Option<ExplainRun> {
        let job = state.jobs.get(&id)?;
        let waits = job.state == JobState::Pending;
        let mut explanation = Explanation {
            job: id,
            reason: job.reason,
            waits,
            now,
            ..Explanation::default()
        };
        if waits {
            explanation.waits_for = waits_for(state, job, now, view);
            explanation.times = times(state, job, now, view);
        } else {
            explanation.waits_for = vec![state_text(state, job, view)];
        }
        Some(ExplainRun {
            explanation,
            depth,
            trial: None,
            left: waits.then_some(Goal::Start).into_iter().collect(),
            is_start_known: !waits,
            number_instants: 0,
            change_instants: 0,
            found: Vec::new(),
        })
    }

    /// Takes over expected starts that were worked out of the same state, if the job's is among them: they are not simulated again.
    pub fn take_known(&mut self, state: &State, view: &View<'_>, known: &Forecast) {
        let start = known.starts.get(&self.explanation.job);
        if !self.is_start_known && start.is_some_and(|start| !start.estimate) {
            self.left.clear();
            self.start_found(state, view, known);
        }
    }

    /// Performs one operation: copies the state for a forecast, or simulates one turn of the scheduler. Returns whether nothing is
    /// left to do.
    pub fn advance(&mut self, state: &State, view: &View<'_>) -> bool {
        match &mut self.trial {
            Some(trial) => {
                if trial.play.step()
                    && let Some(trial) = self.trial.take()
                {
                    self.ended(state, view, trial);
                }
            }
            None => {
                let next = self.left.pop_front();
                self.trial = next.and_then(|goal| self.begin(state, goal));
            }
        }
        self.trial.is_none() && self.left.is_empty()
    }

    /// The explanation with all that is known. A start that was not simulated is taken from `earlier` starts, of an earlier state,
    /// or estimated.
    pub fn finish(
        mut self,
        state: &State,
        view: &View<'_>,
        earlier: Option<&Forecast>,
    ) -> Explanation {
        if !self.is_start_known {
            self.assume_start(state, view, earlier);
        } else {
            let trial = self.trial.iter().map(|trial| &trial.goal);
            let (mut numbers, mut changes) = (0, 0);
            for goal in trial.chain(&self.left) {
                match goal {
                    Goal::Start => {}
                    Goal::Tasks(_) => numbers += 1,
                    Goal::Change(..) => changes += 1,
                }
            }
            let mut add = |count: usize, what: &str| {
                if count > 0 {
                    let line = format!("{what}: {count} more were to be tried.");
                    self.explanation.not_worked_out.push(line);
                }
            };
            add(numbers, "Starts with other numbers of tasks");
            add(changes, "Changes that would start it sooner");
        }
        self.found
            .sort_by_key(|found| (found.start.start.at, found.place));
        let found = self.found.into_iter();
        self.explanation.sooner = found.map(|found| found.start).collect();
        self.explanation
    }

    /// Fills in a start that no forecast of this state has come to.
    fn assume_start(&mut self, state: &State, view: &View<'_>, earlier: Option<&Forecast>) {
        let (id, now) = (self.explanation.job, self.explanation.now);
        let earlier = earlier.filter(|forecast| {
            let start = forecast.starts.get(&id);
            start.is_some_and(|start| !start.estimate && start.at > now)
        });
        let line = match earlier {
            Some(forecast) => {
                self.fill_start(state, view, forecast);
                "Its start and the jobs ahead are those of an earlier state of the queue."
            }
            None => {
                let play = self.trial.as_ref().map(|trial| &trial.play);
                self.explanation.start = play.and_then(|play| play.estimates().remove(&id));
                match self.explanation.start {
                    Some(_) => "Its start is an estimate; the jobs ahead are unknown.",
                    None => "Its start and the jobs ahead of it.",
                }
            }
        };
        self.explanation.not_worked_out.push(line.to_owned());
        if self.depth == ExplanationDepth::WithChanges {
            let line = "Changes that would start it sooner.".to_owned();
            self.explanation.not_worked_out.push(line);
        }
    }

    fn begin(&self, state: &State, goal: Goal) -> Option<GoalTrial> {
        let job = state.jobs.get(&self.explanation.job)?;
        let mut bounds = ForecastBounds {
            job: Some(job.id),
            ..ForecastBounds::default()
        };
        let state = match &goal {
            Goal::Start => state.clone(),
            Goal::Tasks(tasks) => {
                bounds.instants = NUMBER_INSTANTS_MAX.checked_sub(self.number_instants)?;
                let range = job.spec.ask.task_range.as_ref()?;
                task_numbers::with_number(state, job, range, *tasks)
            }
            Goal::Change(_, change) => {
                bounds.until = self.worth_trying(change)?;
                with_change(state, job.id, change.spec.clone(), change.limit)
            }
        };
        let play = Box::new(Play::new(state, self.explanation.now, bounds));
        Some(GoalTrial { goal, play })
    }

    /// The time by which the job must start for a change to be reported, if there is any; `None` if it is not worth a trial.
    fn worth_trying(&self, change: &Change) -> Option<Option<Timestamp>> {
        let of_kind = self.found.iter().filter(|found| found.kind == change.kind);
        let best = of_kind.map(|found| found.start.start.at).min();
        let base = self.explanation.start.as_ref();
        let until = best.or(base.map(|start| start.at));
        let until = until.map(|at| Timestamp(at.0.saturating_sub(GAIN_MS as i64)));
        let is_past = until.is_some_and(|until| until < self.explanation.now);
        (self.change_instants < CHANGE_INSTANTS_MAX && !is_past).then_some(until)
    }

    /// A forecast is over.
    fn ended(&mut self, state: &State, view: &View<'_>, trial: GoalTrial) {
        let GoalTrial { goal, play } = trial;
        let (mut forecast, is_complete) = (play.forecast, play.is_complete);
        let cost = forecast.cost;
        let id = self.explanation.job;
        match goal {
            Goal::Start if is_complete || forecast.starts.contains_key(&id) => {
                self.start_found(state, view, &forecast);
            }
            // The simulation was too long; without a start, no change can be compared with it.
            Goal::Start => {}
            Goal::Tasks(tasks) => {
                self.number_instants += cost;
                let start = forecast.starts.remove(&id);
                // Where the forecast was not completed, nothing is known.
                if start.is_some() || is_complete {
                    self.explanation.by_tasks.push(TasksStart { tasks, start });
                }
            }
            Goal::Change(place, change) => {
                self.change_instants += cost;
                self.explanation.tried += 1;
                if let Some(start) = forecast.starts.remove(&id) {
                    let sooner = EarlierStart {
                        change: change.option,
                        words: change.words,
                        start,
                    };
                    self.found.push(ChangedStart {
                        place,
                        kind: change.kind,
                        start: sooner,
                    });
                }
            }
        }
    }

    fn fill_start(&mut self, state: &State, view: &View<'_>, found: &Forecast) {
        let Some(job) = state.jobs.get(&self.explanation.job) else {
            return;
        };
        let explanation = &mut self.explanation;
        explanation.predicted = found.predicted;
        explanation.start = found.starts.get(&job.id).cloned();
        (explanation.ahead, explanation.ahead_count) = ahead(state, job, found);
        // Other jobs are counted, not listed.
        explanation.ahead.retain(|ahead| view.sees_job(ahead.job));
    }

    /// Says the expected starts, which are known now, and queues the next trials.
    fn start_found(&mut self, state: &State, view: &View<'_>, found: &Forecast) {
        self.is_start_known = true;
        self.fill_start(state, view, found);
        let Some(job) = state.jobs.get(&self.explanation.job) else {
            return;
        };
        if let Some(range) = &job.spec.ask.task_range {
            self.explanation.task_range = range.text();
            let numbers = task_numbers::tried(state, job, range).into_iter();
            self.left.extend(numbers.map(Goal::Tasks));
        }
        if self.depth == ExplanationDepth::WithChanges {
            self.queue_changes(state, job);
        }
    }

    fn queue_changes(&mut self, state: &State, job: &Job) {
        let now = self.explanation.now;
        let starts_now = |start: &ExpectedStart| start.at <= now;
        if self.explanation.start.as_ref().is_some_and(starts_now) || job.priority == 0 {
            return;
        }
        let all = changes(state, job, now).into_iter().take(CHANGES_MAX);
        // The first of each kind come first: time may not suffice for all.
        let mut count_of_kind: BTreeMap<u32, usize> = BTreeMap::new();
        let mut ordered: Vec<(usize, usize, Change)> = Vec::new();
        for (place, change) in all.enumerate() {
            let count = count_of_kind.entry(change.kind).or_default();
            ordered.push((*count, place, change));
            *count += 1;
        }
        ordered.sort_by_key(|(round, place, _)| (*round, *place));
        let goals = ordered.into_iter();
        self.left
            .extend(goals.map(|(_, place, change)| Goal::Change(place, Box::new(change))));
    }
}
