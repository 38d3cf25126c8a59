//! Signals and limits of steps that wait for their turn. Signalling a job requires a search of its processes, which
//! users could request faster than it can be done. Therefore equal waiting signals of a job are merged, a step has
//! one limit, and each wake-up of the process handles a limited amount for each user. Starts and ends of jobs and
//! steps do not wait.

use super::JobEntry;
use super::actions::Actions;
use super::interface::Timer;
use muster_model::command::SignalScope;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::pending::JobWaiters;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Searches for one user in a wake-up.
pub(super) const SEARCHES_MAX: usize = 16;
/// Wait before the next wake-up, where there is more to do.
const NEXT_ROUND_MS: u64 = 1;

/// The signals and limits to deliver now.
pub(super) type Round = Vec<(JobAttempt, Delivery)>;

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Delivery {
    Signal {
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    },
    /// The step is to end, after the signals that it got before.
    EndStep(StepNo),
    /// The daemon of the step gets the limit that is kept with the step.
    LimitStep(StepNo),
}

impl Delivery {
    /// A signal for a job, or for a step of it, for which the scope makes no difference.
    pub(super) fn signal(step: Option<StepNo>, signal: i32, scope: SignalScope) -> Delivery {
        let scope = match step {
            Some(_) => SignalScope::Steps,
            None => scope,
        };
        Delivery::Signal {
            step,
            signal,
            scope,
        }
    }

    fn number(self) -> u32 {
        match self {
            Delivery::Signal { signal, .. } => signal.unsigned_abs(),
            Delivery::EndStep(_) | Delivery::LimitStep(_) => 0,
        }
    }

    /// The cost: a search, and one for each step of a job that gets the signal.
    fn searches(self, job: Option<&JobEntry>) -> usize {
        match self {
            Delivery::Signal {
                step: None, scope, ..
            } if scope != SignalScope::Batch => 1 + job.map_or(0, JobEntry::live_step_count),
            Delivery::Signal { .. } | Delivery::EndStep(_) | Delivery::LimitStep(_) => 1,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct WaitingSignals {
    jobs: HashMap<JobAttempt, JobWaiters<Delivery>>,
    /// Jobs of each user, each once.
    turns: BTreeMap<u32, VecDeque<JobAttempt>>,
    /// This wake-up has delivered its share.
    has_had_round: bool,
}

impl WaitingSignals {
    /// Queues a request for a job that is here.
    pub(super) fn add(
        &mut self,
        (job, actions): (Option<&JobEntry>, &mut Actions),
        attempt: JobAttempt,
        delivery: Delivery,
    ) {
        let Some(job) = job.filter(|job| !job.phase.is_released()) else {
            return;
        };
        let pending = self.jobs.entry(attempt).or_insert_with(|| {
            self.turns.entry(job.uid).or_default().push_back(attempt);
            JobWaiters::default()
        });
        if !pending.push(delivery, delivery.number()) {
            let line = format!("job {}: too many signals wait: {delivery:?}", attempt.job);
            actions.log_refusal(&line);
        }
        // The request comes from outside, and so with a new wake-up.
        self.has_had_round = false;
    }

    /// Removes what waits for a job.
    fn remove(&mut self, attempt: JobAttempt) -> Option<JobWaiters<Delivery>> {
        let pending = self.jobs.remove(&attempt)?;
        for turns in self.turns.values_mut() {
            turns.retain(|waits| *waits != attempt);
        }
        self.turns.retain(|_, turns| !turns.is_empty());
        Some(pending)
    }

    /// Takes the waiting requests of a job that is about to be ended, within its user's limit. The rest is dropped.
    pub(super) fn take_last(&mut self, attempt: JobAttempt, job: Option<&JobEntry>) -> Round {
        let mut round = Round::new();
        if let Some(mut pending) = self.remove(attempt) {
            let mut left = SEARCHES_MAX;
            take_turn(&mut pending, &mut left, (attempt, job), &mut round);
        }
        round
    }

    /// Once nothing else is left to do in a wake-up: what each user's jobs get now.
    pub(super) fn take_round(
        &mut self,
        jobs: &BTreeMap<JobAttempt, JobEntry>,
        actions: &mut Actions,
    ) -> Round {
        let mut round = Round::new();
        if std::mem::take(&mut self.has_had_round) || self.jobs.is_empty() {
            return round;
        }
        self.has_had_round = true;
        for turns in self.turns.values_mut() {
            let mut left = SEARCHES_MAX;
            while left > 0
                && let Some(attempt) = turns.pop_front()
            {
                let Some(pending) = self.jobs.get_mut(&attempt) else {
                    continue;
                };
                take_turn(
                    pending,
                    &mut left,
                    (attempt, jobs.get(&attempt)),
                    &mut round,
                );
                if pending.is_empty() {
                    self.jobs.remove(&attempt);
                } else {
                    turns.push_back(attempt);
                }
            }
        }
        self.turns.retain(|_, turns| !turns.is_empty());
        if !self.jobs.is_empty() {
            actions.set_timer(Timer::Signals, NEXT_ROUND_MS);
        }
        round
    }
}

fn take_turn(
    pending: &mut JobWaiters<Delivery>,
    left: &mut usize,
    (attempt, job): (JobAttempt, Option<&JobEntry>),
    round: &mut Round,
) {
    while *left > 0
        && let Some(delivery) = pending.pop()
    {
        *left = left.saturating_sub(delivery.searches(job));
        round.push((attempt, delivery));
    }
}
