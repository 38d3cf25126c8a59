//! Control channels to the step daemons of this node. A daemon that has had a step gets the job's next one straight from here, and
//! sends the end of the step here; the launcher, which starts daemons, watches them and keeps the ends, gets reports of both as well.

use super::actions::Actions;
use super::node_steps::Offer;
use super::{Action, Agent, StepdChannelId};
use crate::messages::{KnownJob, LauncherCommand, StepdEvent};
use crate::stepd_reuse::SPARES_MAX;
use muster_model::ids::{AttemptStep, JobAttempt, StepId, StepNo};
use std::collections::BTreeMap;

/// The daemons that this agent has a channel to.
#[derive(Debug, Default)]
pub(super) struct Stepds {
    all: BTreeMap<StepdChannelId, StepdChannel>,
    next: u64,
}

#[derive(Debug)]
struct StepdChannel {
    attempt: JobAttempt,
    /// What it runs; nothing when it waits for a step.
    step: Option<StepNo>,
    /// The first step that it was given by this channel.
    started_with: StepNo,
    /// Its process, and where it listens, once the launcher has said so.
    place: Option<(i32, String)>,
    /// It gets no other step from here: the launcher that it belongs to, or that connection to it, is lost.
    retired: bool,
    /// The step that it is being given.
    offer: Option<Box<Offer>>,
}

impl StepdChannel {
    fn is_idle(&self, attempt: JobAttempt) -> bool {
        self.attempt == attempt
            && self.step.is_none()
            && self.place.is_some()
            && self.offer.is_none()
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
        id
    }

    /// The launcher has started one.
    pub(super) fn place(
        &mut self,
        AttemptStep { attempt, step }: AttemptStep,
        place: (i32, String),
    ) {
        // It may have ended already.
        let is_it = |d: &&mut StepdChannel| {
            d.attempt == attempt && d.place.is_none() && d.started_with == step
        };
        if let Some(stepd) = self.all.values_mut().find(is_it) {
            stepd.place = Some(place);
        }
    }

    /// Steps that run here but are not among those that the launcher knows.
    pub(super) fn unknown_to(&self, known: &[KnownJob]) -> Vec<(JobAttempt, StepNo, i32)> {
        let knows = |attempt: JobAttempt, step: StepNo| {
            let mut of_attempt = known.iter().filter(|k| k.attempt == attempt);
            of_attempt.any(|k| k.steps.contains(&step))
        };
        let running = self
            .all
            .values()
            .filter_map(|d| Some((d.attempt, d.step?, d.place.as_ref()?.0)));
        running
            .filter(|(attempt, step, _)| !knows(*attempt, *step))
            .collect()
    }

    /// The daemon that was started with a step.
    pub(super) fn started_with(&self, attempt: JobAttempt, step: StepNo) -> Option<StepdChannelId> {
        let is_it = |d: &StepdChannel| d.attempt == attempt && d.started_with == step;
        let mut all = self.all.iter();
        all.find(|(_, d)| is_it(d)).map(|(id, _)| *id)
    }

    /// A daemon that waits for a step of this job.
    pub(super) fn idle(&self, attempt: JobAttempt) -> Option<StepdChannelId> {
        let mut all = self.all.iter();
        all.find(|(_, d)| d.is_idle(attempt)).map(|(id, _)| *id)
    }

    /// A daemon is being given a step.
    pub(super) fn set_offer(&mut self, id: StepdChannelId, offer: Box<Offer>) {
        if let Some(stepd) = self.all.get_mut(&id) {
            stepd.offer = Some(offer);
        }
    }

    /// A daemon was given a step; the step, and the daemon's process and address.
    pub(super) fn take_offer(&mut self, id: StepdChannelId) -> Option<(Box<Offer>, i32, String)> {
        let stepd = self.all.get_mut(&id)?;
        let (pid, address) = stepd.place.clone()?;
        Some((stepd.offer.take()?, pid, address))
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

    /// The wanted channels, without those of daemons that are being given a step: their answer decides whether to close them.
    fn closable(&self, wanted: impl Fn(&StepdChannel) -> bool) -> Vec<StepdChannelId> {
        let all = self.all.iter();
        all.filter(|(_, d)| d.offer.is_none() && wanted(d))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn close(&mut self, out: &mut Actions, id: StepdChannelId) {
        if self.all.remove(&id).is_some() {
            out.push(Action::CloseStepd(id));
        }
    }

    fn close_where(&mut self, out: &mut Actions, wanted: impl Fn(&StepdChannel) -> bool) {
        for id in self.closable(wanted) {
            self.close(out, id);
        }
    }

    /// There is another launcher, or another connection to it: what waits for a step belongs to that.
    pub(super) fn retire(&mut self, out: &mut Actions) {
        self.close_where(out, |d| d.step.is_none());
        for stepd in self.all.values_mut() {
            stepd.retired = true;
        }
    }

    pub(super) fn forget(&mut self, out: &mut Actions, attempt: JobAttempt) {
        self.close_where(out, |d| d.attempt == attempt);
    }

    /// Closes the channel for a daemon that the launcher has not answered for.
    pub(super) fn close_unplaced(&mut self, out: &mut Actions, attempt: JobAttempt, step: StepNo) {
        let is_it =
            |d: &StepdChannel| d.place.is_none() && d.attempt == attempt && d.started_with == step;
        self.close_where(out, is_it);
    }

    /// Has the daemons of a job read that run something; whether there are any.
    pub(super) fn read_of(&mut self, out: &mut Actions, attempt: JobAttempt) -> bool {
        let all = self.all.iter();
        let busy = all.filter(|(_, d)| d.attempt == attempt && d.step.is_some());
        let busy: Vec<StepdChannelId> = busy.map(|(id, _)| *id).collect();
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
        let of_attempt = self.all.values().filter(|d| d.attempt == attempt);
        let waiting = of_attempt.filter(|d| d.step.is_none()).count();
        let place = stepd.place.clone();
        if ended
            && waiting > SPARES_MAX
            && let Some((pid, _)) = place
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
                // One that is known already; what is for launchers.
                StepdEvent::StepEnded(..) | StepdEvent::StepRunning(_) => {}
            }
        }
        self.steps
            .stepds
            .keep_or_close(&mut self.state.out, id, (is_open, ended));
    }
}
