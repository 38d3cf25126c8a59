//! The durable history, kept apart from the controller's own state: a state of its own that every durable event is
//! applied to after it went through the journal's encoding, and each job's life in short. Invariants compare the
//! controller and the nodes with this.

use crate::Violation;
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Allocation, ExitStatus, JobState, Reason};
use muster_model::reservation::Flags;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The history so far.
#[derive(Default)]
pub(crate) struct Ledger {
    /// All durable events, applied.
    pub(crate) state: State,
    /// Position of the last of them.
    pub(crate) position: Position,
    /// Every job number that was ever given.
    pub(crate) jobs: BTreeMap<JobId, Life>,
    /// Positions at which nodes were declared down.
    downs: BTreeMap<NodeIdx, Vec<Position>>,
    /// Position up to which accounting has stored; later records may not leave the queue.
    pub(crate) accounted: Position,
    /// Ends by time limits that were not looked at yet.
    pub(crate) limit_ends: Vec<LimitEnd>,
    /// When the controller's machine last lost its clocks, milliseconds.
    pub(crate) clock_lost_ms: Option<u64>,
    /// Counts, for the report.
    pub(crate) starts: u64,
}

/// One job's life.
pub(crate) struct Life {
    /// As submitted; a task has its array's.
    pub(crate) spec: Arc<JobSpec>,
    /// Launches by number.
    pub(crate) attempts: BTreeMap<Attempt, Launch>,
    /// It left the queue.
    pub(crate) purged: bool,
    /// Position of the last event that ended it; its accounting row is complete there but for steps.
    pub(crate) ended_at: Position,
}

/// One launch.
pub(crate) struct Launch {
    /// Position of its start.
    pub(crate) started_at: Position,
    /// Virtual time when that became known, milliseconds.
    pub(crate) started_ms: u64,
    /// Virtual time when it was decided, milliseconds.
    pub(crate) decided_ms: u64,
    /// Since when it is suspended, and how long it was before, milliseconds.
    suspended: (Option<u64>, u64),
    /// It ended while it was suspended.
    pub(crate) ended_suspended: bool,
    /// Steps whose starts were accounted.
    pub(crate) steps_started: BTreeSet<StepNo>,
    /// Steps whose ends were accounted, and how.
    pub(crate) steps_ended: BTreeMap<StepNo, ExitStatus>,
    /// Nodes, in order: those that it started on, and the rest whenever it lost some.
    pub(crate) sizes: Vec<Vec<NodeIdx>>,
    /// Position at which it was last resumed after a suspension.
    pub(crate) resumed_at: Option<Position>,
    /// State and status of its first end, and whether all of it had been launched by then.
    pub(crate) end: Option<(JobState, ExitStatus, bool)>,
}

/// A job that was ended by its time limit.
pub(crate) struct LimitEnd {
    /// The job.
    pub(crate) job: JobId,
    /// When its launch was decided, milliseconds.
    pub(crate) decided_ms: u64,
    /// Its real run time, milliseconds.
    pub(crate) ran_ms: u64,
    /// Its limit, milliseconds.
    pub(crate) limit_ms: u64,
}

impl Launch {
    /// Its real run time so far, without suspensions, milliseconds.
    pub(crate) fn ran_ms(&self, now: u64) -> u64 {
        let until = self.suspended.0.unwrap_or(now);
        until
            .saturating_sub(self.decided_ms)
            .saturating_sub(self.suspended.1)
    }

    /// The nodes that it has, in order.
    pub(crate) fn nodes(&self) -> &[NodeIdx] {
        self.sizes.last().map_or(&[], Vec::as_slice)
    }

    /// Whether a node is, or was, at a position. An order may have been on its way while the job lost a node.
    pub(crate) fn has_had(&self, position: u32, node: NodeIdx) -> bool {
        let there = |size: &Vec<NodeIdx>| size.get(position as usize) == Some(&node);
        self.sizes.iter().any(there)
    }
}

fn nodes_of(alloc: &Allocation) -> Vec<NodeIdx> {
    alloc.nodes.iter().map(|share| share.node).collect()
}

impl Ledger {
    /// Takes one durable event.
    ///
    /// # Errors
    /// When the history itself is impossible.
    pub(crate) fn take(
        &mut self,
        (now, decided_ms): (u64, u64),
        position: Position,
        event: &Event,
    ) -> Result<(), Violation> {
        if position != self.position + 1 {
            let at = self.position;
            return Err(Violation::new(
                "invariant_positions_are_consecutive",
                format!("event {position} follows event {at}"),
            ));
        }
        self.position = position;
        match event {
            Event::JobSubmitted { id, spec, .. } => self.give(*id, Arc::clone(spec))?,
            Event::TaskSplit { base, id, .. } if base != id => {
                if let Some(spec) = self.jobs.get(base).map(|life| Arc::clone(&life.spec)) {
                    self.give(*id, spec)?;
                }
            }
            Event::JobStarted {
                id,
                attempt,
                at,
                alloc,
                ..
            } => {
                self.start_attempt(JobAttempt::new(*id, *attempt), *at, now, decided_ms, alloc)?;
            }
            Event::JobEnding {
                id,
                state,
                exit,
                reason,
                ..
            } => {
                self.end_job(*id, *state, *exit, *reason, decided_ms);
            }
            Event::JobChanged {
                id,
                change: JobChange::Resized(alloc),
                ..
            } => {
                if let Some(launch) = self.last_launch(*id) {
                    launch.sizes.push(nodes_of(alloc));
                }
            }
            Event::JobResumed { id, .. } => {
                if let Some(launch) = self.last_launch(*id) {
                    launch.resumed_at = Some(position);
                    if let Some(since) = launch.suspended.0.take() {
                        launch.suspended.1 += decided_ms.saturating_sub(since);
                    }
                }
            }
            Event::JobSuspended { id, .. } => {
                if let Some(launch) = self.last_launch(*id) {
                    launch.suspended.0.get_or_insert(decided_ms);
                }
            }
            Event::StepStarted { id, step } => {
                if let Some(launch) = self.last_launch(*id)
                    && !launch.steps_started.insert(step.step)
                {
                    return Err(Violation::new(
                        "invariant_steps_are_accounted_once",
                        format!("step {} of job {id} starts for the second time", step.step),
                    ));
                }
            }
            Event::StepEnded { id, step, end } => {
                if let Some(launch) = self.last_launch(*id)
                    && launch.steps_ended.insert(*step, end.exit).is_some()
                {
                    return Err(Violation::new(
                        "invariant_steps_are_accounted_once",
                        format!("step {step} of job {id} ends for the second time"),
                    ));
                }
            }
            Event::JobsPurged { ids } => ids.iter().try_for_each(|id| self.purge(*id))?,
            Event::NodeChanged {
                node,
                change: NodeChange::Down(_),
                ..
            } => {
                self.downs.entry(*node).or_default().push(position);
            }
            _ => {}
        }
        self.state.apply(event);
        Ok(())
    }

    /// A job that leaves the number of its tasks open gets one of those that will do.
    fn is_in_range(&self, id: JobId, alloc: &Allocation) -> Result<(), Violation> {
        let job = self.state.jobs.get(&id);
        match job.and_then(|job| job.spec.ask.task_range.as_ref()) {
            Some(range) if !range.admits(alloc.ntasks) => {
                let (tasks, text) = (alloc.ntasks, range.text());
                Err(Violation::new(
                    "invariant_tasks_are_in_their_range",
                    format!("job {id} has {tasks} tasks of {text}"),
                ))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn start_attempt(
        &mut self,
        JobAttempt { job: id, attempt }: JobAttempt,
        at: Timestamp,
        now: u64,
        decided_ms: u64,
        alloc: &Allocation,
    ) -> Result<(), Violation> {
        self.starts += 1;
        self.keeps_off(id, at, alloc)?;
        self.is_in_range(id, alloc)?;
        let launch = Launch {
            started_at: self.position,
            started_ms: now,
            decided_ms,
            suspended: (None, 0),
            ended_suspended: false,
            steps_started: BTreeSet::new(),
            steps_ended: BTreeMap::new(),
            sizes: vec![nodes_of(alloc)],
            resumed_at: None,
            end: None,
        };
        let known = self
            .jobs
            .get_mut(&id)
            .map(|life| life.attempts.insert(attempt, launch));
        if !matches!(known, Some(None)) {
            return Err(Violation::new(
                "invariant_attempts_are_new",
                format!("job {id} starts attempt {} for the second time", attempt.0),
            ));
        }
        Ok(())
    }

    fn end_job(
        &mut self,
        id: JobId,
        state: JobState,
        exit: ExitStatus,
        reason: Reason,
        decided_ms: u64,
    ) {
        self.limit_ends
            .extend(self.limit_end(id, (state, reason), decided_ms));
        let held = self
            .state
            .jobs
            .get(&id)
            .is_some_and(|job| !job.nodes_held.is_empty());
        if let Some(launch) = self.last_launch(id) {
            launch.ended_suspended |= launch.suspended.0.is_some();
        }
        if let Some(life) = self.jobs.get_mut(&id) {
            life.ended_at = self.position;
            if let (true, Some(mut last)) = (held, life.attempts.last_entry()) {
                // Another component of its heterogeneous job may be what could not be launched.
                let launched = reason != Reason::JobLaunchFailure;
                last.get_mut().end.get_or_insert((state, exit, launched));
            }
        }
    }

    /// The end to be checked if a job is ended by its time limit and nothing else.
    fn limit_end(&self, id: JobId, how: (JobState, Reason), decided_ms: u64) -> Option<LimitEnd> {
        let job = self.state.jobs.get(&id)?;
        // Components of a heterogeneous job end with the first one.
        let with_another = job.het.is_some_and(|part| !part.leads());
        let other_end = with_another
            || job.end_by.is_some()
            || job.preempted.is_some()
            || job.spec.deadline.is_some();
        if how != (JobState::Timeout, Reason::TimeLimit) || other_end {
            return None;
        }
        let launch = self.launch(id, job.attempt)?;
        Some(LimitEnd {
            job: id,
            decided_ms: launch.decided_ms,
            ran_ms: launch.ran_ms(decided_ms),
            limit_ms: job.time_limit.seconds()?.saturating_mul(1000),
        })
    }

    /// Checks that nodes reserved for others while a job may run are not given to it.
    fn keeps_off(&self, id: JobId, at: Timestamp, alloc: &Allocation) -> Result<(), Violation> {
        let reservations = &self.state.reservations;
        let named = |name: &String| reservations.get(name);
        let own = alloc.reservation.as_ref().and_then(named);
        if own.is_some_and(|own| own.flags.has(Flags::MAINT.with(Flags::OVERLAP))) {
            return Ok(());
        }
        let limit = self.state.jobs.get(&id).map(|job| job.time_limit);
        let end = limit.and_then(|limit| limit.seconds());
        let end = end.map_or(Timestamp(i64::MAX), |s| at.plus_s(s));
        for share in &alloc.nodes {
            let others = reservations.iter().filter(|r| {
                let other = alloc.reservation.as_ref() != Some(&r.name);
                other && at < r.end && r.start < end
            });
            for other in others {
                let mut here = other.nodes.iter().filter(|n| n.node == share.node);
                let taken = |cpus: &Option<CpuSet>| match cpus {
                    None => true,
                    Some(cpus) => cpus.intersects(&share.cpus),
                };
                if here.any(|n| taken(&n.cpus)) {
                    let (node, name) = (&share.name, &other.name);
                    let detail = format!("job {id} starts on {node}, which {name} has then");
                    return Err(Violation::new("invariant_reservations_are_kept", detail));
                }
            }
        }
        Ok(())
    }

    fn give(&mut self, id: JobId, spec: Arc<JobSpec>) -> Result<(), Violation> {
        let life = Life {
            spec,
            attempts: BTreeMap::new(),
            purged: false,
            ended_at: 0,
        };
        match self.jobs.insert(id, life) {
            None => Ok(()),
            Some(before) => Err(Violation::new(
                "invariant_ids_are_given_once",
                format!(
                    "job {id} is given to a second job; the first was {}",
                    before.spec.name
                ),
            )),
        }
    }

    fn purge(&mut self, id: JobId) -> Result<(), Violation> {
        let over = self
            .state
            .jobs
            .get(&id)
            .is_some_and(muster_model::job::Job::is_over);
        let accounted = self.accounted;
        let broken = |detail| {
            Err(Violation::new(
                "invariant_only_accounted_jobs_leave",
                detail,
            ))
        };
        let Some(life) = self.jobs.get_mut(&id) else {
            return broken(format!("job {id} leaves the queue and was never there"));
        };
        life.purged = true;
        for (attempt, launch) in &life.attempts {
            let mut begun = launch.steps_started.iter();
            if let Some(step) = begun.find(|step| !launch.steps_ended.contains_key(step)) {
                let detail = format!(
                    "job {id} leaves the queue; step {step} of launch {} has no end",
                    attempt.0
                );
                return Err(Violation::new("invariant_steps_are_accounted_once", detail));
            }
        }
        if !over {
            return broken(format!("job {id} leaves the queue and is not over"));
        }
        if life.ended_at > accounted {
            let at = life.ended_at;
            return broken(format!(
                "job {id} leaves the queue; it ended at event {at}, accounting has {accounted}"
            ));
        }
        Ok(())
    }

    /// Whether a node was declared down between two positions.
    pub(crate) fn was_down_between(&self, node: NodeIdx, from: Position, to: Position) -> bool {
        self.downs
            .get(&node)
            .is_some_and(|at| at.iter().any(|p| (from..=to).contains(p)))
    }

    fn last_launch(&mut self, id: JobId) -> Option<&mut Launch> {
        let life = self.jobs.get_mut(&id)?;
        life.attempts.values_mut().next_back()
    }

    /// A launch.
    pub(crate) fn launch(&self, job: JobId, attempt: Attempt) -> Option<&Launch> {
        self.jobs.get(&job)?.attempts.get(&attempt)
    }
}
