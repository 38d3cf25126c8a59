//! Determines the job of a process. If the kernel has audit sessions, they decide; otherwise the session of
//! setsid(2), or the only job of the process's user.

use super::interface::{ProcessOwner, ProcessSearch, ProcessTraits, StepdConnId};
use super::state::{LauncherState, Role};
use super::{JobEntry, Launcher};
use muster_model::ids::JobAttempt;

impl Launcher {
    /// The job that a process comes from.
    pub fn owner_of(&self, process: &ProcessTraits) -> Option<JobAttempt> {
        match process.belongs {
            ProcessOwner::To(attempt) => return Some(attempt),
            ProcessOwner::ToSite => return None,
            ProcessOwner::Unknown => {}
        }
        if let Some(attempt) = process
            .session
            .and_then(|session| self.owner_of_session(session))
        {
            return Some(attempt);
        }
        let uid = process.uid?;
        let is_of =
            |e: &JobEntry| e.uid == uid && !e.phase.is_released() && !e.phase.has_not_begun();
        let mut of_user = self.state.jobs.iter().filter(|(_, e)| is_of(e));
        match (of_user.next(), of_user.next()) {
            (Some((attempt, _)), None) => Some(*attempt),
            _ => None,
        }
    }

    /// The job whose script or step daemon leads a session.
    pub fn owner_of_session(&self, session: i32) -> Option<JobAttempt> {
        self.state.sessions.get(&session).copied()
    }

    /// Whether a job is of this user.
    pub fn has_uid(&self, attempt: JobAttempt, uid: Option<u32>) -> bool {
        let entry = self.state.jobs.get(&attempt);
        entry.is_some_and(|e| Some(e.uid) == uid)
    }

    /// Whether no job here is of the user.
    pub fn has_no_job_of(&self, uid: u32) -> bool {
        !self
            .state
            .jobs
            .values()
            .any(|e| e.uid == uid && !e.phase.is_released())
    }

    /// Whether a process is one that this launcher has started or watches.
    pub fn knows_process(&self, pid: i32) -> bool {
        self.state.roles.contains_key(&pid)
    }

    /// Step daemons whose messages must be read before the end of a process: the process itself if it is one, or
    /// those of the job if the process is its script.
    pub fn stepds_before(&self, pid: i32) -> Vec<StepdConnId> {
        let (attempt, only) = match self.state.roles.get(&pid) {
            Some(Role::Step(attempt, _) | Role::Spare(attempt)) => (attempt, Some(pid)),
            Some(Role::Script(attempt)) => (attempt, None),
            _ => return Vec::new(),
        };
        let entry = self.state.jobs.get(attempt);
        let of_steps = entry.into_iter().flat_map(|e| e.steps.values());
        let spares = entry.into_iter().flat_map(|e| &e.spares);
        let dismissed = entry.into_iter().flat_map(|e| e.dismissed.values());
        let all = of_steps.filter_map(|s| s.stepd.as_ref()).chain(spares);
        all.chain(dismissed.flatten())
            .filter(|stepd| only.is_none_or(|pid| stepd.pid == pid))
            .map(|stepd| stepd.id)
            .collect()
    }

    /// The job whose script a process is.
    pub fn job_of_script(&self, pid: i32) -> Option<JobAttempt> {
        match self.state.roles.get(&pid) {
            Some(Role::Script(attempt)) => Some(*attempt),
            _ => None,
        }
    }

    /// Whether the executor may search for remaining processes of a job.
    pub fn knows_job(&self, attempt: JobAttempt) -> bool {
        self.state.jobs.contains_key(&attempt)
    }
}

impl LauncherState {
    pub(super) fn members(&self, attempt: JobAttempt) -> ProcessSearch {
        let entry = self.jobs.get(&attempt);
        ProcessSearch {
            attempt,
            is_roots: entry.is_some_and(|e| e.uid == 0),
            is_recovered: entry.is_some_and(|e| e.is_recovered),
        }
    }
}

/// Jobs of a launcher, for comparison with the processes that run.
pub fn known_jobs(launcher: &Launcher) -> impl Iterator<Item = JobAttempt> {
    launcher.state.jobs.keys().copied()
}
