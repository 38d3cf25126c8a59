//! Signals that wait for their turn. To signal a job is to search its processes, which users could order faster than it is
//! done: equal signals of a job are one while they wait, and with each wake-up of the process every user gets so much of this.
//! What begins and ends jobs and steps does not wait for it.

use super::event::TimerKey;
use super::{JobEntry, Launcher};
use crate::messages::JobAttempt;
use muster_model::command::SignalScope;
use muster_model::ids::StepNo;
use muster_model::pending::Pending;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Searches for one user in a wake-up.
pub(super) const SEARCHES_MAX: usize = 16;
/// Wait before the next wake-up, where there is more to do.
const NEXT_ROUND_MS: u64 = 1;

/// What waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Delivery {
    Signal {
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    },
    /// The step is to end, after the signals that it got before.
    EndStep(StepNo),
}

impl Delivery {
    fn signal(self) -> u32 {
        match self {
            Delivery::Signal { signal, .. } => signal.unsigned_abs(),
            Delivery::EndStep(_) => 0,
        }
    }

    /// For all steps of the job.
    fn is_for_steps(self) -> bool {
        match self {
            Delivery::Signal { step, scope, .. } => step.is_none() && scope != SignalScope::Batch,
            Delivery::EndStep(_) => false,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct WaitingSignals {
    jobs: HashMap<JobAttempt, Pending<Delivery>>,
    /// Jobs of each user, each once.
    turns: BTreeMap<u32, VecDeque<JobAttempt>>,
    /// This wake-up has had its round.
    has_had_round: bool,
}

impl WaitingSignals {
    fn push(&mut self, (run, uid): (JobAttempt, u32), delivery: Delivery) -> bool {
        let pending = self.jobs.entry(run).or_insert_with(|| {
            self.turns.entry(uid).or_default().push_back(run);
            Pending::default()
        });
        pending.push(delivery, delivery.signal())
    }

    fn remove(&mut self, run: JobAttempt) -> Option<Pending<Delivery>> {
        let pending = self.jobs.remove(&run)?;
        for turns in self.turns.values_mut() {
            turns.retain(|waits| *waits != run);
        }
        self.turns.retain(|_, turns| !turns.is_empty());
        Some(pending)
    }

    /// What each user's jobs get now: `searches` says what one delivery costs.
    fn take_round(
        &mut self,
        searches: impl Fn(JobAttempt, Delivery) -> usize,
    ) -> Vec<(JobAttempt, Delivery)> {
        let mut round = Vec::new();
        for turns in self.turns.values_mut() {
            let mut left = SEARCHES_MAX;
            while left > 0
                && let Some(run) = turns.pop_front()
            {
                let Some(pending) = self.jobs.get_mut(&run) else {
                    continue;
                };
                while left > 0
                    && let Some(delivery) = pending.pop()
                {
                    left = left.saturating_sub(searches(run, delivery));
                    round.push((run, delivery));
                }
                if pending.is_empty() {
                    self.jobs.remove(&run);
                } else {
                    turns.push_back(run);
                }
            }
        }
        self.turns.retain(|_, turns| !turns.is_empty());
        round
    }
}

impl Launcher {
    /// Signals a job, or a step of it, when it is its turn.
    pub(super) fn signal_in_turn(
        &mut self,
        run: JobAttempt,
        step: Option<StepNo>,
        signal: i32,
        scope: SignalScope,
    ) {
        // A step gets the same, whatever the scope.
        let scope = match step {
            Some(_) => SignalScope::Steps,
            None => scope,
        };
        self.deliver_in_turn(
            run,
            Delivery::Signal {
                step,
                signal,
                scope,
            },
        );
    }

    /// Ends a step, after the signals that the job was sent before.
    pub(super) fn end_step_in_turn(&mut self, run: JobAttempt, step: StepNo) {
        match self.waiting.jobs.contains_key(&run) {
            true => self.deliver_in_turn(run, Delivery::EndStep(step)),
            false => self.end_step(run, step),
        }
    }

    fn deliver_in_turn(&mut self, run: JobAttempt, delivery: Delivery) {
        let is_here = |e: &&JobEntry| !e.phase.is_released();
        let Some(uid) = self.jobs.get(&run).filter(is_here).map(|e| e.uid) else {
            return;
        };
        if !self.waiting.push((run, uid), delivery) {
            let line = format!("job {}: too many signals wait: {delivery:?}", run.job);
            self.actions.log_refusal(&line);
        }
    }

    /// Delivers what a job is still to get before it is ended, as far as a user has a turn for that.
    pub(super) fn deliver_before_end(&mut self, run: JobAttempt) {
        let Some(mut pending) = self.waiting.remove(run) else {
            return;
        };
        let mut left = SEARCHES_MAX;
        while left > 0
            && let Some(delivery) = pending.pop()
        {
            left = left.saturating_sub(self.searches(run, delivery));
            self.deliver(run, delivery);
        }
    }

    /// A job is no more.
    pub(super) fn drop_waiting(&mut self, run: JobAttempt) {
        self.waiting.remove(run);
    }

    /// Each user's turn, once nothing else is left to do in a wake-up.
    pub(super) fn deliver_waiting(&mut self) {
        if self.waiting.jobs.is_empty() || self.waiting.has_had_round {
            // Nothing comes of this: the wake-up is over.
            self.waiting.has_had_round = false;
            return;
        }
        let before = self.actions.list.len();
        let mut waiting = std::mem::take(&mut self.waiting);
        let round = waiting.take_round(|run, delivery| self.searches(run, delivery));
        self.waiting = waiting;
        for (run, delivery) in round {
            self.deliver(run, delivery);
        }
        if !self.waiting.jobs.is_empty() {
            self.actions.set_timer(TimerKey::Signals, NEXT_ROUND_MS);
        }
        self.waiting.has_had_round = self.actions.list.len() > before;
    }

    /// What a delivery costs.
    fn searches(&self, run: JobAttempt, delivery: Delivery) -> usize {
        match self.jobs.get(&run).filter(|_| delivery.is_for_steps()) {
            Some(entry) => 1 + entry.live_step_count(),
            None => 1,
        }
    }

    fn deliver(&mut self, run: JobAttempt, delivery: Delivery) {
        match delivery {
            Delivery::Signal {
                step,
                signal,
                scope,
            } => self.signal(run, step, signal, scope),
            Delivery::EndStep(step) => self.end_step(run, step),
        }
    }
}
