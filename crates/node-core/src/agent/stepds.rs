//! Control channels to the step daemons of this node. A daemon that has had a step gets the job's next one straight from here, and
//! sends the end of the step here; the launcher, which starts daemons, watches them and keeps the ends, gets reports of both as well.

use super::actions::Actions;
use super::node_steps::Offer;
use super::{Action, Agent, StepdChannelId};
use crate::messages::{KnownJob, LauncherCommand, StepdEvent};
use crate::stepd_reuse::SPARES_MAX;
use muster_model::ids::{AttemptStep, JobAttempt, StepId, StepNo};
use std::collections::{BTreeMap, BTreeSet};

/// The daemons that this agent has a channel to.
#[derive(Debug, Default)]
pub(super) struct Stepds {
    all: BTreeMap<StepdChannelId, StepdChannel>,
    /// The daemons by job, so that the cost of an event does not depend on the daemons of other jobs.
    by_job: BTreeMap<JobAttempt, BTreeSet<StepdChannelId>>,
    next: u64,
}

/// The process of a daemon, and where that listens.
#[derive(Clone, Debug)]
pub(super) struct StepdEndpoint {
    pub(super) pid: i32,
    /// For the step's other nodes, and for srun.
    pub(super) address: String,
}

/// A step that runs in a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningDaemon {
    pub(super) attempt: JobAttempt,
    pub(super) step: StepNo,
    /// The daemon's process.
    pub(super) pid: i32,
}

#[derive(Debug)]
struct StepdChannel {
    attempt: JobAttempt,
    /// The step that it runs; none while it waits for one.
    step: Option<StepNo>,
    /// The first step that it was given by this channel.
    started_with: StepNo,
    /// Known once the launcher has said so.
    place: Option<StepdEndpoint>,
    /// It gets no other step from here: the launcher that it belongs to, or that connection to it, is lost.
    retired: bool,
    /// The step that it is being given.
    offer: Option<Box<Offer>>,
}

impl StepdChannel {
    fn is_idle(&self) -> bool {
        self.step.is_none() && self.place.is_some() && self.offer.is_none()
    }
}

impl Stepds {
    /// A daemon that the launcher is to start.
    pub(super) fn add(&mut self, attempt: JobAttempt, step: StepNo) -> StepdChannelId {
        let id = StepdChannelId(self.next);
        self.next += 1;
        let stepd = StepdChannel {
            attempt,
            step: Some(step),
            started_with: step,
            place: None,
            retired: false,
            offer: None,
        };
        self.all.insert(id, stepd);
        self.by_job.entry(attempt).or_default().insert(id);
        id
    }

    /// The daemons of a job, the oldest first.
    fn of_job(&self, attempt: JobAttempt) -> impl Iterator<Item = (StepdChannelId, &StepdChannel)> {
        let ids = self.by_job.get(&attempt).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// The launcher has started one.
    pub(super) fn place(
        &mut self,
        AttemptStep { attempt, step }: AttemptStep,
        place: StepdEndpoint,
    ) {
        // The daemon may have ended already.
        let is_it = |d: &StepdChannel| d.place.is_none() && d.started_with == step;
        let id = self.of_job(attempt).find(|(_, d)| is_it(d)).map(|d| d.0);
        if let Some(stepd) = id.and_then(|id| self.all.get_mut(&id)) {
            stepd.place = Some(place);
        }
    }

    /// Steps that run here but are missing in the launcher's list.
    pub(super) fn unknown_to(&self, known: &[KnownJob]) -> Vec<RunningDaemon> {
        let knows = |attempt: JobAttempt, step: StepNo| {
            let mut of_attempt = known.iter().filter(|k| k.attempt == attempt);
            of_attempt.any(|k| k.steps.contains(&step))
        };
        let running = self.all.values().filter_map(|daemon| {
            Some(RunningDaemon {
                attempt: daemon.attempt,
                step: daemon.step?,
                pid: daemon.place.as_ref()?.pid,
            })
        });
        running.filter(|r| !knows(r.attempt, r.step)).collect()
    }

    /// The daemon that was started with a step.
    pub(super) fn started_with(&self, attempt: JobAttempt, step: StepNo) -> Option<StepdChannelId> {
        let mut of_job = self.of_job(attempt);
        let found = of_job.find(|(_, d)| d.started_with == step);
        found.map(|(id, _)| id)
    }

    /// A daemon that waits for a step of this job.
    pub(super) fn idle(&self, attempt: JobAttempt) -> Option<StepdChannelId> {
        let found = self.of_job(attempt).find(|(_, d)| d.is_idle());
        found.map(|(id, _)| id)
    }

    /// A daemon is being given a step.
    pub(super) fn set_offer(&mut self, id: StepdChannelId, offer: Box<Offer>) {
        if let Some(stepd) = self.all.get_mut(&id) {
            stepd.offer = Some(offer);
        }
    }

    /// A daemon was given a step; the step, and the daemon's place.
    pub(super) fn take_offer(&mut self, id: StepdChannelId) -> Option<(Box<Offer>, StepdEndpoint)> {
        let stepd = self.all.get_mut(&id)?;
        let place = stepd.place.clone()?;
        Some((stepd.offer.take()?, place))
    }

    /// A daemon has a step now.
    pub(super) fn set_step(&mut self, id: StepdChannelId, step: StepNo) {
        if let Some(stepd) = self.all.get_mut(&id) {
            stepd.step = Some(step);
        }
    }

    /// A daemon has sent that this step is over; whether it had it.
    fn take_end(&mut self, id: StepdChannelId, step: StepNo) -> bool {
        let stepd = self.all.get_mut(&id);
        stepd.is_some_and(|d| d.step.take_if(|s| *s == step).is_some())
    }

    pub(super) fn close(&mut self, out: &mut Actions, id: StepdChannelId) {
        if let Some(stepd) = self.all.remove(&id) {
            if let Some(ids) = self.by_job.get_mut(&stepd.attempt) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_job.remove(&stepd.attempt);
                }
            }
            out.push(Action::CloseStepd(id));
        }
    }

    /// Closes the wanted channels of a job, except those of daemons that are being given a step: whether these are
    /// closed depends on their answers.
    fn close_of_job(
        &mut self,
        out: &mut Actions,
        attempt: JobAttempt,
        wanted: impl Fn(&StepdChannel) -> bool,
    ) {
        let of_job = self.of_job(attempt);
        let closable = of_job.filter(|(_, d)| d.offer.is_none() && wanted(d));
        let closable: Vec<StepdChannelId> = closable.map(|(id, _)| id).collect();
        for id in closable {
            self.close(out, id);
        }
    }

    /// There is another launcher, or another connection to it: what waits for a step belongs to that.
    pub(super) fn retire(&mut self, out: &mut Actions) {
        let jobs: Vec<JobAttempt> = self.by_job.keys().copied().collect();
        for attempt in jobs {
            self.close_of_job(out, attempt, |d| d.step.is_none());
        }
        for stepd in self.all.values_mut() {
            stepd.retired = true;
        }
    }

    pub(super) fn forget(&mut self, out: &mut Actions, attempt: JobAttempt) {
        self.close_of_job(out, attempt, |_| true);
    }

    /// Closes the channel for a daemon that the launcher has not answered for.
    pub(super) fn close_unplaced(&mut self, out: &mut Actions, attempt: JobAttempt, step: StepNo) {
        let is_it = |d: &StepdChannel| d.place.is_none() && d.started_with == step;
        self.close_of_job(out, attempt, is_it);
    }

    /// Makes the busy daemons of a job be read. Returns whether there are any.
    pub(super) fn read_of(&mut self, out: &mut Actions, attempt: JobAttempt) -> bool {
        let busy = self.of_job(attempt).filter(|(_, d)| d.step.is_some());
        let busy: Vec<StepdChannelId> = busy.map(|(id, _)| id).collect();
        let any = !busy.is_empty();
        if any {
            out.push(Action::ReadStepds(busy));
        }
        any
    }

    /// Closes the channel of a daemon that is gone, or that is not needed.
    fn keep_or_close(
        &mut self,
        out: &mut Actions,
        id: StepdChannelId,
        (is_open, ended): (bool, bool),
    ) {
        let Some(stepd) = self.all.get(&id) else {
            return;
        };
        if stepd.offer.is_some() {
            // The answer to that decides.
            return;
        }
        let attempt = stepd.attempt;
        if !is_open || (stepd.step.is_none() && stepd.retired) {
            return self.close(out, id);
        }
        let of_job = self.of_job(attempt);
        let waiting = of_job.filter(|(_, d)| d.step.is_none()).count();
        let pid = stepd.place.as_ref().map(|place| place.pid);
        if ended
            && waiting > SPARES_MAX
            && let Some(pid) = pid
        {
            self.close(out, id);
            out.command(LauncherCommand::ReleaseStepd { attempt, pid });
        }
    }
}

impl Agent {
    /// A daemon has sent something, or is gone.
    pub(super) fn on_stepd_events(
        &mut self,
        id: StepdChannelId,
        events: Vec<StepdEvent>,
        is_open: bool,
    ) {
        let Some(attempt) = self.steps.stepds.all.get(&id).map(|d| d.attempt) else {
            return;
        };
        let mut ended = false;
        for event in events {
            match event {
                StepdEvent::StepEnded(step, end) if self.steps.stepds.take_end(id, step) => {
                    ended = true;
                    let key: StepId = StepId::new(attempt.job, step);
                    self.steps.led.exit_delivered_directly(&mut self.state, key);
                    self.steps.stepd_ended(&mut self.state, attempt, step, *end);
                }
                // A message that is known already, or is meant for launchers.
                StepdEvent::StepEnded(..) | StepdEvent::StepRunning(_) => {}
            }
        }
        self.steps
            .stepds
            .keep_or_close(&mut self.state.out, id, (is_open, ended));
    }
}
