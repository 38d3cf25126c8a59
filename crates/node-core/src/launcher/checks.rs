//! Limits of an agent's orders. The agent is not trusted, because it communicates with users and the network. The
//! user and the resources of a job's steps come from the job's grant, which the controller has sealed. Orders beyond
//! the grant are refused, and the reason is logged.

use super::Launcher;
use super::job::JobEntry;
use super::known::kept_of_user;
use super::node::LauncherNode;
use crate::messages::{
    AttachAgent, LauncherCommand, PmixOrder, ProcessIdentity, StepBounds, StepOrder, VERSIONS,
};
use crate::pmix_place;
use crate::signals;
use crate::step_bounds::{max_step_count, max_tasks_per_node};
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::job::NodeShare;
use muster_model::limits::{FRAME_BYTES_MAX, NOTE_BYTES_MAX};
use muster_model::visible_text::debug_beginning;
use std::collections::HashSet;
use std::net::IpAddr;

/// Limit of the bytes that an agent may store for all jobs of one user.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Limit of one such entry: it travels in one frame together with its key.
const ENTRY_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// Bytes of an order in a line of the log.
const SHOWN_MAX: usize = 200;

/// Whether an agent speaks a version that is spoken here.
///
/// # Errors
/// It is too old: which versions both speak.
pub fn check_agent(attach: &AttachAgent) -> Result<(), String> {
    let theirs = attach.greeting.clone().unwrap_or_default();
    if VERSIONS.is_too_old(&theirs) {
        let they = format!("the agent of node {}", attach.node);
        return Err(VERSIONS.difference(&theirs, &they, "the launcher"));
    }
    Ok(())
}

impl LauncherNode {
    /// The limits for steps of a job, once the groups of its user are known.
    fn step_bounds(&self, entry: &JobEntry) -> Result<StepBounds, String> {
        let (Some(share), Some(user)) = (entry.share(), &entry.user) else {
            return Err("the job's grant is not known".to_owned());
        };
        let machine = self.machine.as_ref();
        Ok(StepBounds {
            user: ProcessIdentity::clone(user),
            cpus: share.cpus.clone(),
            memory_mib: share.memory_mib,
            gres: share.gres.clone(),
            threads: machine.and_then(|m| m.threads(&share.cpus, &self.settings)),
            node: self.place.node.clone(),
            max_step_count: max_step_count(&self.settings),
            max_tasks: max_tasks_per_node(&self.settings),
            tmp_dir: entry.tmp_dir().cloned().map(Box::new),
        })
    }

    /// Checks an order to start a step, and fills in the fields that the agent may not choose. Returns the limits for
    /// further steps of the job.
    ///
    /// # Errors
    /// Why the step may not start.
    pub(super) fn confine_step(
        &self,
        entry: &JobEntry,
        order: &mut StepOrder,
    ) -> Result<StepBounds, String> {
        let (attempt, step) = (order.attempt, order.launch.step);
        let bounds = self.step_bounds(entry)?;
        bounds.check(attempt, order)?;
        if entry.had_step(step) {
            return Err("the step exists, or has existed".to_owned());
        }
        let grant = entry.grant.as_ref();
        let nodes = grant.map_or(&[][..], |g| &g.alloc.nodes);
        let own: &[NodeShare] = match order.launch.names.len() {
            1 => &[],
            _ => nodes,
        };
        let own: HashSet<&str> = own.iter().map(|share| share.name.as_str()).collect();
        let others = order.launch.names.iter().filter(|n| **n != bounds.node);
        if others.into_iter().any(|name| !own.contains(name.as_str())) {
            return Err("the step has nodes that the job does not have".to_owned());
        }
        if let Some(pmix) = &mut order.pmix {
            self.confine_pmix(attempt, step, pmix)?;
        }
        order.user = bounds.user.clone();
        order.tmp_dir = bounds.tmp_dir.clone();
        Ok(bounds)
    }

    /// Directories of a step are made by root.
    fn confine_pmix(
        &self,
        attempt: JobAttempt,
        step: StepNo,
        pmix: &mut PmixOrder,
    ) -> Result<(), String> {
        let bases = pmix_place::bases(&self.settings, &self.place.node);
        if !bases.contains(&pmix.tmp_base) {
            return Err(format!("{:?} is not a directory for steps", pmix.tmp_base));
        }
        let listen: Result<IpAddr, _> = pmix.listen.parse();
        listen.map_err(|_| "the step's address is not a valid IP address".to_owned())?;
        pmix.nspace = pmix_place::namespace(&self.place.cluster, attempt, step);
        Ok(())
    }
}

impl Launcher {
    /// Why an agent's order is not carried out, if it is not. Steps are looked at where they start.
    pub(super) fn refusal(&self, message: &LauncherCommand) -> Option<String> {
        let known = |attempt: &JobAttempt| self.state.jobs.contains_key(attempt);
        match message {
            LauncherCommand::SignalStep { signal, .. }
                if !(1..=signals::SIGRTMAX).contains(signal) =>
            {
                Some(format!("there is no signal {signal}"))
            }
            LauncherCommand::SignalStep { attempt, .. }
            | LauncherCommand::EndStep { attempt, .. }
            | LauncherCommand::PrintLine { attempt, .. }
            | LauncherCommand::Keep { attempt, .. }
            | LauncherCommand::StepAssigned { attempt, .. }
                if !known(attempt) =>
            {
                Some("the job is not on this node".to_owned())
            }
            LauncherCommand::PrintLine { text, .. } if text.len() > NOTE_BYTES_MAX => {
                Some("the message is too long".to_owned())
            }
            LauncherCommand::PrintLine { text, .. } if text.chars().any(char::is_control) => {
                Some("the message has control characters".to_owned())
            }
            LauncherCommand::Keep {
                attempt,
                key,
                bytes,
            } => {
                let (records, length) = (&self.state.records, bytes.len());
                let more = length.saturating_sub(records.kept_length(*attempt, *key));
                let fits = |kept: usize| kept.saturating_add(more) <= KEPT_BYTES_MAX;
                // The owner need be looked at only where there is much.
                let is_too_much = length > ENTRY_BYTES_MAX
                    || (more > 0
                        && !fits(records.all_kept_bytes())
                        && !fits(kept_of_user(&self.state, *attempt)));
                is_too_much.then(|| "too much is kept of the jobs of its user".to_owned())
            }
            LauncherCommand::StepAssigned { step, .. }
                if step.0 >= max_step_count(&self.state.node.settings) =>
            {
                Some(format!("no step has the number {step}"))
            }
            LauncherCommand::Attach(_)
            | LauncherCommand::OpenSession
            | LauncherCommand::BeginSession(_)
            | LauncherCommand::Sealed { .. }
            | LauncherCommand::StartStep(_)
            | LauncherCommand::SignalStep { .. }
            | LauncherCommand::EndStep { .. }
            | LauncherCommand::Forget(_)
            | LauncherCommand::ForgetStep(..)
            | LauncherCommand::Inspect { .. }
            | LauncherCommand::Measure { .. }
            | LauncherCommand::Stop { .. }
            | LauncherCommand::PrintLine { .. }
            | LauncherCommand::StepAssigned { .. }
            | LauncherCommand::ReleaseStepd { .. } => None,
        }
    }
}

/// An order for the log: without texts of users, and without stored entries of steps, which contain keys.
pub(super) fn shown(order: &LauncherCommand) -> String {
    match order {
        LauncherCommand::Keep {
            attempt,
            key,
            bytes,
        } => {
            format!(
                "Keep of {} bytes by number {key} of {attempt:?}",
                bytes.len()
            )
        }
        LauncherCommand::PrintLine {
            attempt,
            text,
            step,
            ..
        } => format!("PrintLine of {} bytes to {attempt:?} {step:?}", text.len()),
        other => debug_beginning(other, SHOWN_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{Attempt, JobId};

    /// If a lead has a short address, a step's stored entry has its key near the beginning. Earlier, the key was
    /// logged when the job had left the node.
    #[test]
    fn the_log_has_no_keys_of_steps_and_no_words_of_users() {
        let attempt = JobAttempt::new(JobId(7), Attempt(1));
        let secret = vec![201; 32];
        let keep = LauncherCommand::Keep {
            attempt,
            key: 3,
            bytes: secret.into(),
        };
        let print = LauncherCommand::PrintLine {
            attempt,
            text: "words".to_owned(),
            step: Some(StepNo(2)),
            kill: false,
        };
        for order in [keep, print] {
            let line = shown(&order);
            assert!(line.contains("JobId(7)"), "{line}");
            assert!(!line.contains("201") && !line.contains("words"), "{line}");
        }
        let end = LauncherCommand::EndStep {
            attempt,
            step: StepNo(2),
        };
        assert!(shown(&end).starts_with("EndStep { attempt: JobAttempt { job: JobId(7)"));
    }
}
