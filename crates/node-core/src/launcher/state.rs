//! State shared by the parts of the launcher: the node, its jobs, their processes, and the record file.

use super::actions::Actions;
use super::groups::Groups;
use super::interface::{MessageKind, UserAccount};
use super::job::JobEntry;
use super::node::{LauncherNode, LauncherSetup};
use super::phase::Move;
use super::records::LauncherRecords;
use crate::messages::ProcessIdentity;
use crate::now::Now;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_model::spec::Owner;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A batch script.
    Script(JobAttempt),
    /// A step daemon.
    Step(JobAttempt, StepNo),
    /// A step daemon that waits for another step.
    Spare(JobAttempt),
    /// Writes a message of a job's.
    Message(JobAttempt, MessageKind),
    /// Removes directories of a step.
    Remover(JobAttempt),
    /// The programs that run before a job.
    Prolog(JobAttempt),
    /// The programs after a job.
    Epilog(JobAttempt),
    /// Makes directories of a job.
    Container(JobAttempt),
    /// Removes them.
    ContainerRemoval(JobAttempt),
    /// A program of the site that has to do with the node itself.
    Site,
    /// Another process, whose end matters only because something may be settled then.
    Other,
}

/// See the module.
pub(super) struct LauncherState {
    pub(super) node: LauncherNode,
    pub(super) now: Now,
    pub(super) actions: Actions,
    pub(super) groups: Groups,
    /// Jobs whose launch or steps wait for the groups of their user.
    pub(super) without_groups: BTreeSet<JobAttempt>,
    pub(super) jobs: BTreeMap<JobAttempt, JobEntry>,
    /// Processes that this launcher has started, or watches.
    pub(super) roles: BTreeMap<i32, Role>,
    /// Sessions that scripts and step daemons lead or led, by their number.
    pub(super) sessions: HashMap<i32, JobAttempt>,
    pub(super) records: LauncherRecords,
    /// Steps that begin when their numbers are on file.
    pub(super) recording_steps: Vec<AttemptStep>,
    /// Steps among them whose records are being written.
    pub(super) steps_being_recorded: Vec<AttemptStep>,
    /// Jobs that are ending.
    pub(super) ending: BTreeSet<JobAttempt>,
    /// Something may have changed for jobs that are ending.
    pub(super) is_unsettled: bool,
}

impl LauncherState {
    pub(super) fn new(setup: LauncherSetup, records: LauncherRecords) -> LauncherState {
        LauncherState {
            node: LauncherNode::new(setup),
            now: Now::default(),
            actions: Actions::default(),
            groups: Groups::default(),
            without_groups: BTreeSet::new(),
            jobs: BTreeMap::new(),
            roles: BTreeMap::new(),
            sessions: HashMap::new(),
            records,
            recording_steps: Vec::new(),
            steps_being_recorded: Vec::new(),
            ending: BTreeSet::new(),
            is_unsettled: false,
        }
    }

    /// Takes a job to its next phase; whether that is possible.
    pub(super) fn advance(&mut self, attempt: JobAttempt, happens: Move) -> bool {
        let Some(entry) = self.jobs.get_mut(&attempt) else {
            return false;
        };
        let from = entry.phase;
        let Some(next) = from.after(happens) else {
            debug_assert!(false, "job {}: {happens:?} in {from:?}", attempt.job);
            self.actions.log(format!(
                "job {}: unexpected event {happens:?} in phase {from:?}",
                attempt.job
            ));
            return false;
        };
        entry.phase = next;
        match next.is_ending() {
            true => self.ending.insert(attempt),
            false => self.ending.remove(&attempt),
        };
        true
    }

    /// The identity of a job's owner, if the groups are known; else [`super::launches::Launches::groups_found`] comes.
    pub(super) fn user_of(&mut self, owner: &Owner) -> Option<Rc<ProcessIdentity>> {
        let account = UserAccount {
            name: owner.user.clone(),
            gid: owner.gid,
        };
        let groups = self
            .groups
            .get(&account, self.now.mono_ms, &mut self.actions);
        Some(Rc::new(ProcessIdentity {
            uid: owner.uid,
            gid: owner.gid,
            groups: groups?.to_vec(),
            name: owner.user.clone(),
        }))
    }

    pub(super) fn look_up_late(&mut self, account: UserAccount) {
        let now_ms = self.now.mono_ms;
        self.groups.repeat_late(account, now_ms, &mut self.actions);
    }
}
