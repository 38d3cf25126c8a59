//! Users who attack: their bytes go through the decoder and, as a valid request would, to the writer. The core's
//! decision on each request is checked: nothing of another user's may change, and no field that the client fills in may
//! give it rights.

use super::clients::{Users, brief};
use super::hostile_users::{FIRST_UID, USERS};
use super::{Outcome, WorldEvent, trace};
use crate::Violation;
use crate::arbitrary::{self, AttackerKnowledge};
use crate::classes::FaultClass;
use crate::world::turns::panic_text;
use muster_core::decide::{Decision, decide};
use muster_core::event::{Event, JobChange, NodeChange};
use muster_core::state::State;
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::Reason;
use muster_model::limits::PRIORITY_TOP;
use muster_model::spec::JobSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Requests of one flood.
const FLOOD: u64 = 60;

impl Users<'_> {
    /// One of the hostile users sends something, or much at once.
    pub(crate) fn attack(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::HostileClients) {
            return;
        }
        let delay = self.world.chaos.around(3_000);
        self.world.later(delay, WorldEvent::Attack);
        let count = match self.world.chaos.below(12) {
            0 => FLOOD,
            _ => self.world.chaos.between(1, 4),
        };
        let uid = FIRST_UID + self.world.chaos.small(0, USERS - 1);
        let Some(mut known) = self.known_to(uid) else {
            return;
        };
        for _ in 0..count {
            // A name that nobody waits for, and a script of its own.
            known.spec.name = format!("x{}", self.world.chaos.below(1 << 40));
            let command = arbitrary::command(&mut self.world.chaos, &known);
            if let Some(mut command) = arbitrary::garbled(&mut self.world.chaos, command) {
                muster_ctld::name_blobs(&mut command);
                self.ask(uid, command, None);
            }
        }
    }

    fn known_to(&mut self, uid: u32) -> Option<AttackerKnowledge> {
        // Draws for attackers must not change the actions of others.
        std::mem::swap(&mut self.world.random, &mut self.world.chaos);
        let mut spec = self.make_spec("");
        std::mem::swap(&mut self.world.random, &mut self.world.chaos);
        spec.script = spec.script.map(|_| BlobId([251; 32]));
        let state = self.world.controller.as_ref()?.writer.state();
        let mut blobs: Vec<BlobId> = state.blobs.keys().copied().collect();
        blobs.sort_unstable();
        blobs.truncate(20);
        let mut jobs: Vec<JobId> = state.jobs.keys().copied().collect();
        jobs.drain(..jobs.len().saturating_sub(30));
        Some(AttackerKnowledge {
            jobs,
            blobs,
            spec,
            now: self.world.wall().0,
            uid,
            array_size: self.world.config.max_array_size,
        })
    }

    /// Checks the decision on a request of a hostile user now.
    pub(crate) fn judge(&mut self, identity: &Identity, command: &UserCommand) -> Outcome {
        let now = self.world.clock();
        let Some(controller) = &self.world.controller else {
            return Ok(());
        };
        let state = controller.writer.state();
        let asked = Command::User(identity.clone(), command.clone());
        let decision = catch_unwind(AssertUnwindSafe(|| decide(state, &asked, now)));
        let decision = decision.map_err(|cause| {
            let (why, what) = (panic_text(&*cause), brief(command));
            Violation::new("invariant_nothing_panics", format!("{why}, on {what}"))
        })?;
        let broken = |(invariant, detail): (&'static str, String)| {
            Violation::new(
                invariant,
                format!("{detail}, after {} of {}", brief(command), identity.user),
            )
        };
        touches_own_jobs_only(state, identity, command, &decision)
            .and_then(|()| takes_no_rights(state, identity, command, &decision))
            .map_err(broken)
    }

    /// Counts accepted and refused requests of hostile users, for the trace.
    pub(crate) fn attack_is_answered(&mut self, reply: &Reply) {
        let accepted = !matches!(reply, Reply::Refused(_));
        self.world.attacks.0 += 1;
        self.world.attacks.1 += u64::from(accepted);
        trace!(self.world, "  (attack, accepted: {accepted})");
    }
}

type Found = Result<(), (&'static str, String)>;

fn touches_own_jobs_only(
    state: &State,
    identity: &Identity,
    command: &UserCommand,
    decision: &Decision,
) -> Found {
    let refused = matches!(decision.reply, Some(Reply::Refused(_)));
    if arbitrary::is_administration(command) && !refused {
        return Err((
            "invariant_users_are_no_administrators",
            "it was not refused".to_owned(),
        ));
    }
    let new: BTreeMap<JobId, u32> = decision
        .events
        .iter()
        .filter_map(|event| match event {
            Event::JobSubmitted { id, spec, .. } => Some((*id, spec.owner.uid)),
            _ => None,
        })
        .collect();
    let split: BTreeMap<JobId, JobId> = decision
        .events
        .iter()
        .filter_map(|event| match event {
            Event::TaskSplit { base, id, .. } => Some((*id, *base)),
            _ => None,
        })
        .collect();
    let owns = |id: &JobId| {
        let id = split.get(id).unwrap_or(id);
        let known = state.jobs.get(id).map(|job| job.spec.owner.uid);
        known.or_else(|| new.get(id).copied()) == Some(identity.uid)
    };
    for event in &decision.events {
        let may = match event {
            Event::JobSubmitted { .. } | Event::BlobStored { .. } => true,
            // An event that others wait for has happened, or cannot happen any more.
            Event::JobChanged { id, change, .. } => {
                let follows = matches!(
                    change,
                    JobChange::WaitingOn { .. }
                        | JobChange::DependenciesDecided { .. }
                        | JobChange::NotBefore(_)
                        | JobChange::Eligible
                        | JobChange::TurnDue(_)
                        | JobChange::Accrues(_)
                );
                follows || owns(id)
            }
            Event::JobEnding { id, reason, .. } => {
                *reason == Reason::DependencyNeverSatisfied || owns(id)
            }
            Event::TaskSplit { base, .. } => {
                let waits = state.jobs.get(base).map(|job| !job.waiting_on.is_empty());
                owns(base) || waits == Some(true)
            }
            // A job that was stopped for one that ends goes on.
            Event::JobResumed { .. } => true,
            Event::NodeReleased { id, .. }
            | Event::JobRequeued { id, .. }
            | Event::JobSuspended { id, .. }
            | Event::StepStarted { id, .. }
            | Event::StepEnded { id, .. } => owns(id),
            Event::NodeChanged { change, .. } => {
                matches!(change, NodeChange::Reboot(_) | NodeChange::Power(_))
            }
            Event::CrontabSet { uid, .. } => *uid == identity.uid,
            // Events of nodes and jobs make them fire.
            Event::TriggersChanged { .. } => true,
            Event::ReservationSet { .. } | Event::ReservationGone { .. } => {
                !state.reservations.is_empty()
            }
            Event::ReservationStarted { .. }
            | Event::JobStarted { .. }
            | Event::JobsPurged { .. }
            | Event::Configured { .. }
            | Event::PartitionChanged { .. }
            | Event::PartitionRemoved { .. }
            | Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::AccountsChanged { .. }
            | Event::PrioritiesCalculated { .. }
            | Event::NodeRegistered { .. } => false,
        };
        if !may {
            return Err(("invariant_users_change_own_jobs_only", format!("{event:?}")));
        }
    }
    Ok(())
}

/// Fields that decide about rights and order are the controller's to fill in.
fn takes_no_rights(
    state: &State,
    identity: &Identity,
    command: &UserCommand,
    decision: &Decision,
) -> Found {
    let carried: BTreeSet<BlobId> = match command {
        UserCommand::Submit { blobs, .. } | UserCommand::SubmitHet { blobs, .. } => {
            blobs.iter().map(|(id, _)| *id).collect()
        }
        _ => BTreeSet::new(),
    };
    for event in &decision.events {
        match event {
            Event::JobSubmitted {
                id, spec, priority, ..
            } => {
                check_spec(identity, spec)?;
                check_blobs(state, identity, spec, &carried)?;
                let multifactor = state.scale.is_some();
                let usual = PRIORITY_TOP.saturating_sub(u32::try_from(id.0).unwrap_or(u32::MAX));
                let lead = state.scale.is_none() && *priority > usual.saturating_add(86_400);
                if !multifactor && lead {
                    return Err(("invariant_no_user_goes_first", format!("{priority}")));
                }
            }
            Event::JobChanged {
                change: JobChange::Spec(spec),
                ..
            } if spec.owner.uid == identity.uid => check_spec(identity, spec)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_spec(identity: &Identity, spec: &JobSpec) -> Found {
    let owner = &spec.owner;
    let own = (owner.uid, owner.gid) == (identity.uid, identity.gid) && owner.user == identity.user;
    if !own {
        return Err(("invariant_jobs_belong_to_their_user", format!("{owner:?}")));
    }
    if spec.site_factor != 0 || spec.nice < 0 {
        let (factor, nice) = (spec.site_factor, spec.nice);
        return Err((
            "invariant_no_user_goes_first",
            format!("site factor {factor}, nice {nice}"),
        ));
    }
    if spec.shown.iter().any(|(key, _)| key == "admin-comment") {
        return Err((
            "invariant_users_are_no_administrators",
            "an admin comment was taken".to_owned(),
        ));
    }
    Ok(())
}

/// A script or environment is the user's if the request carries it, or if a job of the user's has it already.
fn check_blobs(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    carried: &BTreeSet<BlobId>,
) -> Found {
    for id in [spec.script, spec.context].into_iter().flatten() {
        let has = |spec: &JobSpec| {
            spec.owner.uid == identity.uid && [spec.script, spec.context].contains(&Some(id))
        };
        if !carried.contains(&id) && !state.jobs.values().any(|job| has(&job.spec)) {
            return Err(("invariant_scripts_stay_with_their_user", format!("{id:?}")));
        }
    }
    Ok(())
}
