//! Commands become events here, or are refused. One verb a file; they share the draft (the state as the events
//! made so far leave it), the ways in which a job ends, dependencies, and the choice of jobs by what users write.

mod accounting;
mod ask;
mod calendar;
mod calendar_stops;
mod cancel;
mod commit;
mod configure;
mod cron_entry;
mod crontab;
mod dependency;
mod draft;
mod dynamic_nodes;
mod ending;
mod expedite;
mod expedite_fault;
mod future_nodes;
mod het;
mod hold;
mod job_accounting;
mod job_limits;
mod node;
mod node_loss;
mod partition;
mod partition_access;
mod pending_reboot;
mod places;
mod power;
mod preempt;
mod reboot;
mod requeue;
mod reservation;
mod resize;
mod room;
mod submit;
mod suspend;
mod target;
mod texts;
mod tick;
mod triggers;
mod turns;
mod update_job;
mod update_nodes;
mod update_step;

use crate::event::Event;
use crate::policy::access;
use crate::state::{DisplayUpdate, State};
use draft::{Draft, EventBounds};
use muster_model::command::{Command, Identity, Plan, Reply, UserCommand};
use muster_model::effect::Effect;
use muster_model::ids::JobAttempt;
use muster_model::job::{Hold, Job};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
pub use partition_access::{
    barred, exemptions, limit_reason, max_memory, restricts, within_memory_limit,
};
pub use target::{means_all_components, unknown};

/// The decision on a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The events, in order; to be made durable and applied.
    pub events: Vec<Event>,
    /// Orders that no event carries: plain signals.
    pub effects: Vec<Effect>,
    /// The answer to a user's command; absent for other commands, and for a valid `--test-only` submission and
    /// `Reconfigure`, which the caller answers.
    pub reply: Option<Reply>,
    /// Notes to be taken after the events: health reports, the scheduler's reasons and expected starts.
    pub notes: Vec<DisplayUpdate>,
}

/// Decides on a command. Changes nothing: the caller applies the events, in order.
pub fn decide(state: &State, command: &Command, now: Timestamp) -> Decision {
    let mut draft = Draft::new(state, now);
    let reply = match command {
        Command::User(identity, command) => match bounded(&mut draft, identity, command) {
            Ok(reply) => reply,
            Err(refusal) => {
                return Decision {
                    reply: Some(Reply::Refused(refusal)),
                    ..Decision::default()
                };
            }
        },
        Command::Node(node, command) => {
            node::decide_node_report(&mut draft, *node, command);
            None
        }
        Command::Commit(plan) => {
            commit::commit(&mut draft, plan.clone());
            None
        }
        Command::Tick { accounted } => {
            tick::tick(&mut draft, *accounted);
            None
        }
        Command::Trigger(report) => {
            triggers::report(&mut draft, *report);
            None
        }
        Command::AssumeEnded { job } => {
            ending::assume_ended(&mut draft, *job);
            None
        }
        Command::PrologEnded { job, attempt, well } => {
            node::controllers_prolog(&mut draft, JobAttempt::new(*job, *attempt), *well);
            None
        }
        Command::Configure { config, keep } => {
            configure::configure(&mut draft, config, *keep);
            None
        }
    };
    close(draft, reply)
}

/// Decides on the scheduler's plan as on [`Command::Commit`], and keeps the plan: lists of nodes may be long.
pub fn decide_plan(state: &State, plan: Plan, now: Timestamp) -> Decision {
    let mut draft = Draft::new(state, now);
    commit::commit(&mut draft, plan);
    close(draft, None)
}

/// Adds the events that follow from the others.
fn close(mut draft: Draft<'_>, reply: Option<Reply>) -> Decision {
    if !draft.state.reservations.is_empty() {
        reservation::follow(&mut draft);
    }
    dependency::resolve(&mut draft);
    triggers::follow(&mut draft);
    draft.into_decision(reply)
}

/// The record that a submission would make, for `--test-only` and `--immediate`: the same checks as `Submit`, no
/// change. The record has the number that the next job gets.
///
/// # Errors
/// Why the submission would be refused.
pub fn prospective_job(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<Job, Refusal> {
    let draft = Draft::new(state, now);
    submit::prepare(&draft, identity, spec).map(|(job, _)| job)
}

/// Refuses a job that is to start at once (`--immediate`) while it is held, or waits for a time, for other jobs, or because of a
/// limit of accounting.
///
/// # Errors
/// What it waits for.
pub fn check_immediate(state: &State, job: &Job, now: Timestamp) -> Result<(), Refusal> {
    let why = match job {
        job if job.is_startable() => {
            let over = state.waits_for_limit(job, now);
            return over.map_or(Ok(()), |over| Err(job_limits::denied(&over)));
        }
        job if job.hold != Hold::None => "it would be held",
        job if !job.waiting_on.is_empty() => "it would wait for other jobs (--dependency)",
        _ => "it would wait for a time (--begin)",
    };
    let text = format!("a job with --immediate starts at once or not at all, and {why}");
    Err(Refusal::new(RefusalCode::InvalidDependency, text))
}

/// The records that a heterogeneous submission would make: the same checks as `SubmitHet`, no change.
///
/// # Errors
/// Why the submission would be refused.
pub fn prospective_het_jobs(
    state: &State,
    identity: &Identity,
    specs: &[JobSpec],
    now: Timestamp,
) -> Result<Vec<Job>, Refusal> {
    let mut draft = Draft::new(state, now);
    het::prepare(&mut draft, identity, specs)
}

/// A submission writes its own bytes; other commands may write many of jobs that exist. Commands of administrators about
/// nodes may end as many jobs as there are.
fn bounded(
    draft: &mut Draft<'_>,
    identity: &Identity,
    command: &UserCommand,
) -> Result<Option<Reply>, Refusal> {
    match command {
        UserCommand::Submit { .. } | UserCommand::SubmitHet { .. } | UserCommand::SetCrontab(_) => {
        }
        UserCommand::Cancel { .. }
        | UserCommand::Signal { .. }
        | UserCommand::Hold { .. }
        | UserCommand::Release { .. }
        | UserCommand::Top { .. }
        | UserCommand::Requeue { .. }
        | UserCommand::Suspend { .. }
        | UserCommand::Resume { .. }
        | UserCommand::UpdateJob { .. }
        | UserCommand::UpdateStep { .. }
        | UserCommand::Notify { .. }
        | UserCommand::EndAllocation { .. } => draft.begin_bounds(EventBounds::BytesAndEvents),
        _ => draft.begin_bounds(EventBounds::Bytes),
    }
    let reply = user(draft, identity, command);
    // Jobs beyond the bounds were left out: another refusal may be about that.
    draft.end_bounds()?;
    reply
}

fn user(
    draft: &mut Draft<'_>,
    identity: &Identity,
    command: &UserCommand,
) -> Result<Option<Reply>, Refusal> {
    let request = AccessRequest::from(command);
    if !request.least().needs_object() {
        access::require(draft.state, identity, request)?;
    }
    match command {
        UserCommand::Submit {
            spec,
            blobs,
            test_only,
        } => submit::submit(draft, identity, spec, blobs, *test_only),
        UserCommand::SubmitHet {
            specs,
            blobs,
            test_only,
        } => het::submit(draft, identity, specs, blobs, *test_only),
        UserCommand::Cancel { selection } => cancel::cancel(draft, identity, selection),
        UserCommand::Signal {
            selection,
            signal,
            scope,
        } => cancel::signal(draft, identity, selection, *signal, *scope),
        UserCommand::Hold { target, user } => hold::hold(draft, identity, target, *user),
        UserCommand::Release { target } => hold::release(draft, identity, target),
        UserCommand::Top { target } => hold::top(draft, identity, target),
        UserCommand::Requeue {
            target,
            hold,
            special_exit,
            incomplete,
        } => {
            let how = requeue::RequeueOptions {
                hold: *hold || *special_exit,
                special_exit: *special_exit,
                incomplete: *incomplete,
            };
            requeue::requeue(draft, identity, target, how)
        }
        UserCommand::Suspend { target } => suspend::suspend(draft, target),
        UserCommand::Resume { target } => suspend::resume(draft, target),
        UserCommand::UpdateJob { target, update } => {
            update_job::update(draft, identity, target, update)
        }
        UserCommand::UpdateNodes { nodes, update } => {
            update_nodes::update(draft, identity, nodes, update)
        }
        UserCommand::UpdatePartition { name, pairs, read } => {
            partition::update(draft, name, pairs, read)
        }
        UserCommand::CreatePartition { name, pairs } => partition::create(draft, name, pairs),
        UserCommand::DeletePartition { name } => partition::delete(draft, name),
        UserCommand::CreateNodes { nodes } => dynamic_nodes::create(draft, nodes),
        UserCommand::DeleteNodes { nodes } => dynamic_nodes::delete(draft, nodes),
        UserCommand::TakeNode(host) => future_nodes::take(draft, host),
        UserCommand::Reboot {
            nodes,
            asap,
            down_after,
            reason,
        } => {
            let request = reboot::RebootRequest {
                nodes,
                asap: *asap,
                down_after: *down_after,
                reason: reason.as_deref(),
            };
            reboot::reboot(draft, identity, &request)
        }
        UserCommand::CancelReboot { nodes } => reboot::cancel(draft, nodes),
        UserCommand::CreateReservation(ask) => reservation::create(draft, identity, ask),
        UserCommand::UpdateReservation(ask) => reservation::update(draft, ask),
        UserCommand::EditAccounts(edit) => accounting::edit(draft, identity, edit),
        UserCommand::DeleteReservation { name } => reservation::delete(draft, identity, name),
        UserCommand::UpdateStep {
            target,
            step,
            time_limit,
        } => update_step::update(draft, identity, target, *step, *time_limit),
        UserCommand::SetCrontab(ask) => crontab::set(draft, identity, ask),
        UserCommand::Trigger(ask) => triggers::ask(draft, identity, ask),
        UserCommand::Notify { target, text } => update_step::notify(draft, identity, target, text),
        UserCommand::EndAllocation { job, exit } => {
            cancel::end_allocation(draft, identity, *job, *exit)
        }
        // The caller reads the files.
        UserCommand::Reconfigure => Ok(None),
    }
}
