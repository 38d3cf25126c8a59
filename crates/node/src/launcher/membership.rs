//! Determines the job to which a process belongs, by kernel data. Each batch script and each step
//! daemon begins its own audit session (audit(7): /proc/PID/loginuid and sessionid) before it
//! becomes the user, and all of its descendants belong to that session. A new parent, process
//! group, session or environment does not remove a process from it: that takes the right to change
//! the audit configuration. The children record the session numbers in a table that outlives the
//! launcher.
//!
//! If the kernel has no audit, or this process may not set it, sessions of setsid(2) are used
//! instead. A process that has left its session is then assigned to the only job of its user here;
//! while the user has several jobs, it is found when the last of them ends.

use crate::sys::bare;
use crate::sys::cells::SentSignal;
use crate::sys::cells::{Cells, RowValue};
use crate::{audit_session, sys};
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_node_core::launcher::interface::ProcessOwner;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

/// Maximum number of recorded scripts and step daemons.
const ROWS: usize = 1 << 16;
/// Kinds of rows.
const SCRIPT: u32 = 1;
const DAEMON: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Membership {
    cells: Rc<Cells>,
    free: Vec<usize>,
    rows: HashMap<JobAttempt, Vec<usize>>,
    /// Rows of ended step daemons, which are reused when no other row is free.
    retired: VecDeque<(JobAttempt, usize)>,
    /// Whether children begin their own sessions.
    works: bool,
    /// The session of this process, which the site's programs share.
    own: Option<u32>,
    /// Rows recorded under an earlier launcher.
    old: Vec<(usize, RowValue)>,
}

/// A row of the table, for the child that it describes.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    cells: Rc<Cells>,
    at: usize,
    works: bool,
}

impl Row {
    /// In the child, before it gives up root: begins a session. Allocates no memory.
    ///
    /// # Errors
    /// The session could not be begun, although this process has the right to.
    pub(crate) fn begin_session(&self, uid: u32) -> Result<(), bare::Errno> {
        let session = match self.works {
            true => bare::begin_audit_session(uid)?,
            false => 0,
        };
        let pid = i32::try_from(bare::getpid()).unwrap_or(0);
        self.cells.note(self.at, pid, session);
        Ok(())
    }
}

impl Membership {
    pub(super) fn open(spool: &Path) -> io::Result<Membership> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(spool.join("members"))?;
        Self::on(&file)
    }

    fn on(file: &File) -> io::Result<Membership> {
        let cells = Cells::new(file, ROWS)?;
        let noted = |at: usize| Some((at, cells.read(at))).filter(|(_, n)| n.kind != 0);
        let old: Vec<(usize, RowValue)> = (0..cells.count()).filter_map(noted).collect();
        let taken: BTreeSet<usize> = old.iter().map(|(at, _)| *at).collect();
        let free = (0..cells.count()).rev().filter(|at| !taken.contains(at));
        let works = can_begin_sessions()?;
        Ok(Membership {
            free: free.collect(),
            cells: Rc::new(cells),
            rows: HashMap::new(),
            retired: VecDeque::new(),
            // Otherwise processes of the site's programs would be attributed to a job.
            own: match works {
                true => audit_session::of("self")?,
                false => None,
            },
            works,
            old,
        })
    }

    /// A row for the script of a job that is about to be started.
    pub(super) fn of_script(&mut self, attempt: JobAttempt) -> Row {
        self.row(attempt, SCRIPT)
    }

    /// A row for a step daemon.
    pub(super) fn of_daemon(&mut self, attempt: JobAttempt) -> Row {
        self.row(attempt, DAEMON)
    }

    fn row(&mut self, attempt: JobAttempt, kind: u32) -> Row {
        let at = self.free.pop().or_else(|| {
            let (owner, at) = self.retired.pop_front()?;
            if let Some(rows) = self.rows.get_mut(&owner) {
                rows.retain(|row| *row != at);
            }
            Some(at)
        });
        // Without a row the process is treated as if there were no audit sessions.
        let at = at.unwrap_or(usize::MAX);
        if at < self.cells.count() {
            self.rows.entry(attempt).or_default().push(at);
        }
        let noted = RowValue {
            job: attempt.job.0,
            attempt: attempt.attempt.0,
            kind,
            pid: 0,
            session: 0,
        };
        self.cells.write(at, noted);
        Row {
            cells: Rc::clone(&self.cells),
            at,
            works: self.works,
        }
    }

    /// Records that a step daemon has ended.
    pub(super) fn retire(&mut self, attempt: JobAttempt, pid: i32) {
        let rows = self.rows.get(&attempt).into_iter().flatten();
        let its = rows.copied().find(|at| self.cells.read(*at).pid == pid);
        self.retired.extend(its.map(|at| (attempt, at)));
    }

    /// Records that a job is forgotten.
    pub(super) fn forget(&mut self, attempt: JobAttempt) {
        let rows = self.rows.remove(&attempt).unwrap_or_default();
        self.retired.retain(|(owner, _)| *owner != attempt);
        for at in rows {
            self.release(at);
        }
    }

    /// Frees the row of a job whose script was not started.
    pub(super) fn forget_script(&mut self, attempt: JobAttempt) {
        let Some(rows) = self.rows.get_mut(&attempt) else {
            return;
        };
        let is_free = |noted: RowValue| noted.kind == SCRIPT && noted.pid == 0;
        let place = rows.iter().position(|at| is_free(self.cells.read(*at)));
        if let Some(at) = place.map(|place| rows.remove(place)) {
            self.release(at);
        }
    }

    fn release(&mut self, at: usize) {
        let free = RowValue {
            job: 0,
            attempt: 0,
            kind: 0,
            pid: 0,
            session: 0,
        };
        self.cells.write(at, free);
        self.free.push(at);
    }

    /// Takes over the rows of jobs that are still known, and frees all others.
    pub(super) fn recover(&mut self, is_known: impl Fn(JobAttempt) -> bool) {
        for (at, noted) in std::mem::take(&mut self.old) {
            let attempt = run_of(noted);
            match is_known(attempt) {
                true => self.rows.entry(attempt).or_default().push(at),
                false => self.release(at),
            }
        }
    }

    /// The process of a job's script, if it has recorded itself.
    pub(super) fn script_of(&self, attempt: JobAttempt) -> Option<i32> {
        let rows = self.rows.get(&attempt)?.iter();
        let mut noted = rows.map(|at| self.cells.read(*at));
        let script = noted.find(|n| n.kind == SCRIPT && n.pid > 0)?;
        Some(script.pid)
    }

    /// The job whose script or step daemon began an audit session.
    fn job_of_session(&self, session: u32) -> Option<JobAttempt> {
        let rows = self.rows.values().flatten();
        let mut noted = rows.map(|at| self.cells.read(*at));
        noted.find(|n| n.session == session).map(run_of)
    }

    /// The audit session that a step daemon began.
    pub(super) fn session_of_daemon(&self, attempt: JobAttempt, pid: i32) -> Option<u32> {
        let rows = self.rows.get(&attempt)?.iter();
        let mut noted = rows.map(|at| self.cells.read(*at));
        let daemon = noted.find(|n| n.kind == DAEMON && n.pid == pid && n.session != 0);
        daemon.map(|n| n.session)
    }

    /// The job that a process belongs to.
    pub(super) fn of(&self, pid: i32) -> ProcessOwner {
        if !self.works {
            return ProcessOwner::Unknown;
        }
        self.of_session(audit_session::of(&pid.to_string()))
    }

    /// The owner of a process with this session. If the session cannot be read, the process does
    /// not count as the site's, which would be left alone: it is identified by other properties.
    fn of_session(&self, session: io::Result<Option<u32>>) -> ProcessOwner {
        let Ok(session) = session else {
            return ProcessOwner::Unknown;
        };
        let job = session.and_then(|session| self.job_of_session(session));
        match job {
            Some(attempt) => ProcessOwner::To(attempt),
            None if session == self.own => ProcessOwner::ToSite,
            None => ProcessOwner::Unknown,
        }
    }

    /// Whether a process may belong to a job, as far as audit sessions show.
    pub(super) fn may_be_of(&self, attempt: JobAttempt, pid: i32) -> bool {
        !self.works || self.of(pid) == ProcessOwner::To(attempt)
    }

    /// Whether audit sessions show to which job a process belongs.
    pub(super) fn knows_sessions(&self) -> bool {
        self.works
    }

    /// Signals a process of a job that is not a child of this one, and never another process that
    /// has got its number meanwhile. Sessions must [be known](Self::knows_sessions).
    pub(super) fn signal(&self, attempt: JobAttempt, pid: i32, signal: SentSignal) {
        if let Ok(pidfd) = sys::pidfd(pid)
            && self.of(pid) == ProcessOwner::To(attempt)
        {
            let _ = sys::cells::signal_by(&pidfd, signal);
        }
    }
}

fn run_of(noted: RowValue) -> JobAttempt {
    JobAttempt::new(JobId(noted.job), Attempt(noted.attempt))
}

/// Whether a child of this process may begin an audit session.
///
/// # Errors
/// This could not be determined. The launcher then does not start, because otherwise it would work
/// without sessions for its whole life.
fn can_begin_sessions() -> io::Result<bool> {
    let uid = nix::unistd::geteuid().as_raw();
    match sys::fork()? {
        sys::Fork::Child => {
            let begun = bare::begin_audit_session(uid).is_ok_and(|session| session != 0);
            sys::exit_now(i32::from(!begun))
        }
        sys::Fork::Parent(pid) => Ok(sys::exit_code_of(pid) == Some(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher without descriptors cannot read whose a process is. It was taken for the site's, and left alone, where the
    /// launcher itself is in no session.
    #[test]
    fn a_session_that_cannot_be_read_is_not_the_sites() {
        let dir = std::env::temp_dir().join(format!("muster-members.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut members = Membership::open(&dir).unwrap();
        members.own = None;
        assert_eq!(members.of_session(Ok(None)), ProcessOwner::ToSite);
        let lack = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(members.of_session(Err(lack)), ProcessOwner::Unknown);
        assert!(audit_session::of("0").is_err(), "there is no such process");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
