//! Orders that follow from events. Repeating one does no harm, so they are sent again when a node registers.

use crate::event::{Event, JobChange, NodeChange};
use crate::state::State;
use muster_model::command::SignalScope;
use muster_model::effect::{Effect, TerminateReason};
use muster_model::ids::{JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Job, JobState, NodeShare, Phase, Reason};
use muster_model::node::{NodeLink, Reboot};
use muster_model::spec::JobKind;
use muster_model::time::TimeLimit;

/// SIGSTOP on Linux.
const SIGSTOP: u32 = 19;
/// SIGTERM on Linux.
const SIGTERM: u32 = 15;
/// SIGCONT on Linux.
const SIGCONT: u32 = 18;

impl State {
    /// The effects of `event`, which was just applied (no later one was).
    pub fn effects_of(&self, event: &Event) -> Vec<Effect> {
        match event {
            Event::JobStarted { id, .. } => self.with_job(*id, |job| {
                let mut out = match job.configuring {
                    true => Vec::new(),
                    false => self.launches(job),
                };
                out.extend(notice(job));
                out
            }),
            Event::JobChanged {
                id,
                change: JobChange::Ready | JobChange::NodesUp,
                ..
            } => self.with_job(*id, |job| self.ready(job)),
            Event::JobChanged {
                id,
                change: JobChange::StepLimit { step, limit },
                ..
            } => self.with_job(*id, |job| self.step_limits(job, *step, *limit)),
            // Agents take it as their part of the job from now on.
            Event::JobChanged {
                id,
                change: JobChange::Resized(_),
                ..
            } => self.with_job(*id, |job| match self.is_configuring(job) {
                true => Vec::new(),
                false => self.launches(job),
            }),
            Event::JobEnding { id, .. } => self.with_job(*id, |job| {
                let mut out = self.terminations(job);
                out.extend(notice(job));
                out
            }),
            Event::JobSuspended { id, .. } => {
                self.with_job(*id, |job| self.signals(job, SIGSTOP, SignalScope::Full))
            }
            Event::JobResumed { id, .. } => {
                self.with_job(*id, |job| self.signals(job, SIGCONT, SignalScope::Full))
            }
            Event::JobChanged {
                id,
                change: JobChange::Warned,
                ..
            } => self.with_job(*id, |job| match job.spec.warn_signal {
                Some(warn) if warn.batch_only => self.signals(job, warn.signal, SignalScope::Batch),
                Some(warn) => self.signals(job, warn.signal, SignalScope::Steps),
                None => Vec::new(),
            }),
            Event::JobChanged {
                id,
                change: JobChange::Preempted(how),
                ..
            } if how.end.is_some() => self.with_job(*id, |job| self.preemption_notice(job)),
            Event::NodeReleased { id, position, .. } => {
                self.with_job(*id, |job| self.end_of_share(job, *position))
            }
            Event::NodeChanged {
                node,
                change:
                    NodeChange::Reboot(Some(Reboot {
                        issued: Some(_), ..
                    })),
                ..
            } => vec![Effect::Reboot { node: *node }],
            Event::JobChanged { .. }
            | Event::Configured { .. }
            | Event::BlobStored { .. }
            | Event::JobSubmitted { .. }
            | Event::TaskSplit { .. }
            | Event::JobRequeued { .. }
            | Event::JobsPurged { .. }
            | Event::StepStarted { .. }
            | Event::StepEnded { .. }
            | Event::NodeRegistered { .. }
            | Event::NodeChanged { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::ReservationSet { .. }
            | Event::ReservationStarted { .. }
            | Event::ReservationGone { .. }
            | Event::AccountsChanged { .. }
            | Event::PrioritiesCalculated { .. }
            | Event::CrontabSet { .. }
            | Event::TriggersChanged { .. } => Vec::new(),
        }
    }

    /// Orders for a node that registered with `present`, after the events of its registration were applied: launches of
    /// jobs that it should run and lacks, ends of jobs that it has and should not.
    pub fn orders_for_node(&self, node: NodeIdx, present: &[JobAttempt]) -> Vec<Effect> {
        let mut out = Vec::new();
        let reboot = self.node(node).and_then(|n| n.reboot.as_ref());
        if reboot.is_some_and(|r| r.issued.is_some()) {
            // The order may have been lost with the connection.
            out.push(Effect::Reboot { node });
        }
        // First the ends: a launch may need the CPUs of a job that was given up while the node was away.
        for JobAttempt { job: id, attempt } in present {
            let expected = self
                .jobs_on(node)
                .any(|job| job.id == *id && job.attempt == *attempt);
            if !expected {
                out.push(Effect::Terminate {
                    node,
                    job: *id,
                    attempt: *attempt,
                    now: false,
                    why: match self.jobs.get(id) {
                        None => TerminateReason::Finished,
                        // It gave this node up while the node was away.
                        Some(job) if job.resize_time.is_some() && job.attempt == *attempt => {
                            match job.phase() {
                                Phase::Running | Phase::Suspended => TerminateReason::Cancelled,
                                _ => why_ended(job),
                            }
                        }
                        Some(job) => why_ended(job),
                    },
                });
            }
        }
        for job in self.jobs_on(node) {
            let (id, attempt) = (job.id, job.attempt);
            let there = present.contains(&JobAttempt::new(id, attempt));
            match job.phase() {
                Phase::Running | Phase::Suspended if self.is_configuring(job) => {}
                Phase::Running if !there => out.push(Effect::Launch {
                    node,
                    job: id,
                    attempt,
                }),
                // The order to stop may have been lost with the connection, and that to launch. Others may have the
                // job's CPUs: their launches come after this.
                Phase::Suspended => {
                    let launch = !there || job.resize_time.is_some();
                    out.extend(launch.then_some(Effect::Launch {
                        node,
                        job: id,
                        attempt,
                    }));
                    out.push(Effect::Signal {
                        node,
                        job: id,
                        attempt,
                        step: None,
                        signal: SIGSTOP,
                        scope: SignalScope::Full,
                        cancelled_by: None,
                    });
                }
                Phase::Completing | Phase::Requeueing => out.push(Effect::Terminate {
                    node,
                    job: id,
                    attempt,
                    now: false,
                    why: why_ended(job),
                }),
                // The orders with a smaller allocation and to go on may have been lost with the connection, and limits may have
                // been changed meanwhile.
                Phase::Running => {
                    out.extend(job.resize_time.map(|_| Effect::Launch {
                        node,
                        job: id,
                        attempt,
                    }));
                    let was_stopped = job.suspended_ms > 0;
                    out.extend(was_stopped.then_some(Effect::Signal {
                        node,
                        job: id,
                        attempt,
                        step: None,
                        signal: SIGCONT,
                        scope: SignalScope::Full,
                        cancelled_by: None,
                    }));
                    out.extend(limited(job).map(|(step, limit)| Effect::StepLimit {
                        node,
                        job: id,
                        attempt,
                        step,
                        limit,
                    }));
                }
                Phase::Pending | Phase::Ended | Phase::Gone => {}
            }
        }
        out
    }

    /// A step's new limit, for all nodes of its job: those that have no part in the step do not mind.
    fn step_limits(&self, job: &Job, step: StepNo, limit: TimeLimit) -> Vec<Effect> {
        self.reachable(job)
            .map(|(_, share)| Effect::StepLimit {
                node: share.node,
                job: job.id,
                attempt: job.attempt,
                step,
                limit,
            })
            .collect()
    }

    /// Jobs that hold resources on a node.
    pub fn jobs_on(&self, node: NodeIdx) -> impl Iterator<Item = &Job> {
        self.node(node)
            .into_iter()
            .flat_map(|n| &n.jobs)
            .filter_map(|id| self.jobs.get(id))
    }

    /// Signals to the nodes that a job holds; to the leading node only for the batch shell. Nothing for the shell of
    /// a job that has none.
    pub(crate) fn signals(&self, job: &Job, signal: u32, scope: SignalScope) -> Vec<Effect> {
        if scope == SignalScope::Batch && job.spec.kind != JobKind::Batch {
            return Vec::new();
        }
        self.reachable(job)
            .filter(|(position, _)| scope != SignalScope::Batch || *position == 0)
            .map(|(_, share)| Effect::Signal {
                node: share.node,
                job: job.id,
                attempt: job.attempt,
                step: None,
                signal,
                scope,
                cancelled_by: None,
            })
            .collect()
    }

    /// The nodes of a job that still hold something of it and are connected.
    pub(crate) fn reachable<'a>(
        &'a self,
        job: &'a Job,
    ) -> impl Iterator<Item = (u32, &'a NodeShare)> {
        let shares = job.alloc.as_ref().map_or(&[][..], |alloc| &alloc.nodes[..]);
        (0u32..)
            .zip(shares)
            .filter(|(position, _)| job.nodes_held.contains(*position))
            .filter(|(_, share)| {
                self.node(share.node)
                    .is_some_and(|node| node.link == NodeLink::Up)
            })
    }

    /// The signals that warn a job before its grace time is over.
    fn preemption_notice(&self, job: &Job) -> Vec<Effect> {
        let by_user = self.preemption().is_some_and(|s| s.send_user_signal);
        let warning = job.spec.warn_signal.filter(|_| by_user && !job.warned);
        let mut out = self.signals(job, SIGCONT, SignalScope::Steps);
        out.extend(match warning {
            Some(warn) if warn.batch_only => self.signals(job, warn.signal, SignalScope::Batch),
            Some(warn) => self.signals(job, warn.signal, SignalScope::Steps),
            None => self.signals(job, SIGTERM, SignalScope::Steps),
        });
        out
    }

    fn with_job(&self, id: JobId, make: impl FnOnce(&Job) -> Vec<Effect>) -> Vec<Effect> {
        self.jobs.get(&id).map_or_else(Vec::new, make)
    }

    /// The launches that `PrologSlurmctld` has kept back: of a heterogeneous job all once it has run for all, the
    /// leader's last.
    fn ready(&self, job: &Job) -> Vec<Effect> {
        match job.het {
            None if job.configuring => Vec::new(),
            None => self.launches(job),
            Some(_) if self.is_configuring(job) => Vec::new(),
            Some(part) => {
                let started = |job: &&Job| matches!(job.phase(), Phase::Running | Phase::Suspended);
                let jobs = self.het_jobs(part).rev().filter(started);
                jobs.flat_map(|job| self.launches(job)).collect()
            }
        }
    }

    fn launches(&self, job: &Job) -> Vec<Effect> {
        self.reachable(job)
            .map(|(_, share)| Effect::Launch {
                node: share.node,
                job: job.id,
                attempt: job.attempt,
            })
            .collect()
    }

    /// A job that goes on without one of its nodes (`--no-kill`, or it was made smaller): if that one is connected, it
    /// gets an order. Otherwise the node has reported that nothing is left, or got the order when the job ended.
    fn end_of_share(&self, job: &Job, position: u32) -> Vec<Effect> {
        if !matches!(job.phase(), Phase::Running | Phase::Suspended) {
            return Vec::new();
        }
        let shares = job.alloc.as_ref().map_or(&[][..], |alloc| &alloc.nodes[..]);
        let connected = |share: &&NodeShare| {
            self.node(share.node)
                .is_some_and(|node| node.link == NodeLink::Up)
        };
        shares
            .get(position as usize)
            .filter(connected)
            .map(|share| Effect::Terminate {
                node: share.node,
                job: job.id,
                attempt: job.attempt,
                now: false,
                why: match self.node(share.node) {
                    Some(node) if node.down => TerminateReason::NodeFailure,
                    _ => TerminateReason::Cancelled,
                },
            })
            .into_iter()
            .collect()
    }

    fn terminations(&self, job: &Job) -> Vec<Effect> {
        let why = why_ended(job);
        self.reachable(job)
            .map(|(_, share)| Effect::Terminate {
                node: share.node,
                job: job.id,
                attempt: job.attempt,
                now: false,
                why,
            })
            .collect()
    }
}

/// Steps of srun's that have limits of their own.
fn limited(job: &Job) -> impl Iterator<Item = (StepNo, TimeLimit)> {
    job.steps
        .iter()
        .filter(|s| s.step < StepNo::INTERACTIVE)
        .filter_map(|s| Some((s.step, s.time_limit?)))
}

/// The holder of an allocation waits for its start and its end.
fn notice(job: &Job) -> Option<Effect> {
    (job.spec.interactive || job.spec.kind == JobKind::Allocation)
        .then_some(Effect::Notify { job: job.id })
}

/// The message for the standard error of a job that ends.
fn why_ended(job: &Job) -> TerminateReason {
    match (job.state, job.reason) {
        (_, Reason::NodeDown) => TerminateReason::NodeFailure,
        // A launch that failed leaves nobody to tell.
        (_, Reason::JobLaunchFailure) => TerminateReason::Finished,
        (JobState::Pending | JobState::Running | JobState::Suspended, _) => {
            TerminateReason::Requeued
        }
        (JobState::Timeout | JobState::Deadline, _) => TerminateReason::TimeLimit,
        (JobState::Cancelled, _) => TerminateReason::Cancelled,
        (JobState::Preempted, _) => TerminateReason::Preempted,
        (JobState::NodeFail, _) => TerminateReason::NodeFailure,
        (
            JobState::Completed | JobState::Failed | JobState::BootFail | JobState::OutOfMemory,
            _,
        ) => TerminateReason::Finished,
    }
}
