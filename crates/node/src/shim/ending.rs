//! How jobs end: asked, then killed, and released when no process is left.
//!
//! A job's end leaves no process: what survives its script was orphaned on the way and thus adopted by the shim, so
//! after each script's end it is enough to look whether the shim has children that it did not fork.

use super::around::is_of_the_site;
use super::files;
use super::jobs::{Role, Shim};
use super::processes::{self, Containment};
use super::steps::StepProc;
use super::wire::{FromShim, Run};
use crate::sys;
use muster_core::ids::{Attempt, JobId};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long step daemons may go on after their tasks were killed, to pass on the last output.
const AFTER_KILL: Duration = Duration::from_secs(10);

impl Shim {
    pub(super) fn begin_end(&mut self, run: Run, killed: bool) {
        // Steps that have been taken have to be ended.
        self.hear_all_standing(run, true);
        let kill_at = Instant::now() + self.kill_wait;
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let ending = entry.ending.get_or_insert_default();
        ending.killed |= killed;
        ending.kill_at.get_or_insert(kill_at);
        entry.dismiss_spares();
        self.ending.insert(run);
        self.unsettled = true;
    }

    pub(super) fn terminate(&mut self, run: Run, now: bool, message: Option<String>) {
        let Some(entry) = self.jobs.get(&run) else {
            return self.emit(&FromShim::Released(run));
        };
        if entry.released {
            return self.emit(&FromShim::Released(run));
        }
        let first = entry.ending.is_none();
        if first {
            self.records.ending(run);
        }
        self.begin_end(run, false);
        if now {
            self.kill_job(run);
        } else if first {
            // The message comes before what the script writes when it is signalled, as in Slurm.
            let telling = message.as_ref().is_some_and(|text| {
                let text = format!("*** JOB {} ON {} {text} ***", run.0, self.node);
                self.tell(run, &text, Role::Teller(run))
            });
            if !telling {
                self.ask_to_end(run);
            }
            self.end_all_steps(run, message);
        }
    }

    /// Signals the script that it should end.
    pub(super) fn ask_to_end(&mut self, run: Run) {
        self.signal_script(run, libc::SIGCONT);
        self.signal_script(run, libc::SIGTERM);
    }

    /// Tells a script something, and then kills it if that is wanted: what it has is what it was told before its end.
    pub(super) fn tell_script(&mut self, run: Run, text: &str, kill: bool) {
        let role = match kill {
            true => Role::LastTeller(run),
            false => Role::Other,
        };
        if !self.tell(run, text, role) && kill {
            self.signal_script(run, libc::SIGKILL);
        }
    }

    /// Has a child write a line into the standard error of the job's script, as its owner; whether one does. `role`
    /// says what its end means.
    pub(super) fn tell(&mut self, run: Run, text: &str, role: Role) -> bool {
        let Some(files) = self.jobs.get(&run).and_then(|e| {
            e.script?;
            e.files.as_ref()
        }) else {
            return false;
        };
        let line = format!("slurmstepd: error: {text}\n");
        match sys::fork() {
            Ok(sys::Fork::Child) => {
                sys::restore_signals();
                files::write_line(&files.user, &files.work_dir, &files.stderr, &line)
            }
            Ok(sys::Fork::Parent(pid)) => {
                self.roles.insert(pid, role);
                true
            }
            Err(e) => {
                eprintln!("job {}: its message cannot be written: fork: {e}", run.0);
                false
            }
        }
    }

    /// Signals the script, its descendants, and orphans of the job: parents first, so that none sees a child end by the
    /// signal, and goes on or ends by itself, before it has the signal too.
    pub(super) fn signal_script(&mut self, run: Run, signal: i32) {
        let mut roots: Vec<i32> = self
            .jobs
            .get(&run)
            .and_then(|e| e.script)
            .into_iter()
            .collect();
        roots.extend(self.leftovers(run));
        let below = self.tree.below(&roots);
        for pid in roots.into_iter().chain(below) {
            sys::kill(pid, signal);
        }
    }

    /// Kills everything of a job but its step daemons, which end by themselves once their tasks are gone.
    pub(super) fn kill_job(&mut self, run: Run) {
        self.signal_script(run, libc::SIGKILL);
        let daemons = self.daemons(run);
        for pid in self.tree.below(&daemons) {
            sys::kill(pid, libc::SIGKILL);
        }
        if let Some(entry) = self.jobs.get_mut(&run) {
            // A daemon that has no task yet must not start one.
            entry.steps.values_mut().for_each(StepProc::ask_to_end);
            let ending = entry.ending.get_or_insert_default();
            ending.killed = true;
            ending.kill_at = Some(Instant::now() + AFTER_KILL);
        }
        self.unsettled = true;
    }

    pub(super) fn enforce_deadlines(&mut self) {
        self.end_late_programs();
        let now = Instant::now();
        let due: Vec<Run> = self
            .ending
            .iter()
            .filter(|run| {
                self.jobs
                    .get(run)
                    .and_then(|e| e.ending?.kill_at)
                    .is_some_and(|at| at <= now)
            })
            .copied()
            .collect();
        for run in due {
            if self
                .jobs
                .get(&run)
                .and_then(|e| e.ending)
                .is_some_and(|e| e.killed)
            {
                for pid in self.daemons(run) {
                    eprintln!(
                        "job {}: step daemon {pid} does not end and is killed",
                        run.0
                    );
                    sys::kill(pid, libc::SIGKILL);
                }
            }
            self.kill_job(run);
            self.tell_if_unkillable(run);
        }
    }

    /// Processes that SIGKILL does not end make a node unfit: it is told once, and the site's program is run.
    fn tell_if_unkillable(&mut self, run: Run) {
        let Some((timeout, program)) = self.unkillable.clone() else {
            return;
        };
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        let Some(ending) = &mut entry.ending else {
            return;
        };
        if entry.epilog_began || entry.prolog.is_some() {
            // What runs is the site's.
            return;
        }
        let since = *ending.killed_at.get_or_insert_with(Instant::now);
        if ending.told || since.elapsed() < timeout {
            return;
        }
        ending.told = true;
        self.tell_fault(run, "Kill task failed".to_owned());
        if let Some(program) = program {
            self.run_unkillable(run, program);
        }
    }

    /// Milliseconds to the next deadline; -1 when there is none.
    pub(super) fn timeout_ms(&self) -> i32 {
        self.ending
            .iter()
            .filter_map(|run| self.jobs.get(run)?.ending?.kill_at)
            .chain(self.program_ends.values().filter_map(|end| *end))
            .min()
            .map_or(-1, |at| {
                let wait = at.saturating_duration_since(Instant::now()).as_millis() + 1;
                i32::try_from(wait).unwrap_or(i32::MAX)
            })
    }

    /// Releases jobs of which nothing is left, and kills what survived scripts that have ended.
    pub(super) fn settle(&mut self) {
        let ending: Vec<Run> = self.ending.iter().copied().collect();
        let done: Vec<Run> = ending
            .into_iter()
            .filter(|run| self.jobs.get(run).is_none_or(|e| !e.is_busy()))
            .collect();
        if done.is_empty() {
            return;
        }
        let orphans = self.orphans();
        let unclear = orphans.iter().any(|(_, owner)| owner.is_none());
        for run in done {
            let mut left: Vec<i32> = orphans
                .iter()
                .filter(|(_, owner)| *owner == Some(run))
                .map(|(pid, _)| *pid)
                .collect();
            if self.jobs.get(&run).is_some_and(|e| e.recovered) {
                left.extend(self.strays(run));
            }
            if left.is_empty() {
                if !self.start_epilog(run) {
                    self.release(run);
                }
                continue;
            }
            let killed = self
                .jobs
                .get(&run)
                .is_some_and(|e| e.outcome.is_some() || e.ending.is_some_and(|e| e.killed));
            if killed {
                let below = self.tree.below(&left);
                for pid in left.into_iter().chain(below) {
                    sys::kill(pid, libc::SIGKILL);
                }
            }
        }
        if unclear {
            // With the last job of its user gone, an orphan that could have been any of several jobs' is nobody's.
            self.orphans();
        }
    }

    /// Children that this process did not fork, with the jobs they come from.
    fn orphans(&mut self) -> Vec<(i32, Option<Run>)> {
        let children = self.tree.own_children();
        let unknown = children
            .into_iter()
            .filter(|pid| !self.roles.contains_key(pid) && !is_of_the_site(*pid));
        let mut found = Vec::new();
        for pid in unknown.collect::<Vec<_>>() {
            let owner = self.job_of(pid);
            if owner.is_none() && self.is_nobodys(pid) {
                eprintln!("process {pid} is left over from no job and is killed");
                sys::kill(pid, libc::SIGKILL);
            }
            found.push((pid, owner));
        }
        found
    }

    /// Orphans of one job.
    fn leftovers(&mut self, run: Run) -> Vec<i32> {
        let mut left: Vec<i32> = self
            .orphans()
            .into_iter()
            .filter(|(_, owner)| *owner == Some(run))
            .map(|(pid, _)| pid)
            .collect();
        if self.jobs.get(&run).is_some_and(|e| e.recovered) {
            left.extend(self.strays(run));
        }
        left
    }

    /// The job that a process comes from: by session, by environment, or as the only one of its user.
    pub(super) fn job_of(&self, pid: i32) -> Option<Run> {
        if let Some(run) = sys::session_of(pid).and_then(|sid| self.sessions.get(&sid)) {
            return Some(*run);
        }
        if let Some(run) = self.job_by_environment(pid) {
            return Some(run);
        }
        let uid = processes::owner(pid)?;
        let mut of_user = self
            .jobs
            .iter()
            .filter(|(_, e)| e.uid == uid && !e.released);
        match (of_user.next(), of_user.next()) {
            (Some((run, _)), None) => Some(*run),
            _ => None,
        }
    }

    /// The job that a process's environment names, if it was given by this node.
    pub(super) fn job_by_environment(&self, pid: i32) -> Option<Run> {
        let [spool, job, attempt] =
            processes::variables(pid, ["MUSTER_SPOOL", "SLURM_JOB_ID", "MUSTER_ATTEMPT"]);
        if Path::new(&spool?) != self.spool || is_of_the_site(pid) {
            return None;
        }
        let job = JobId(job?.parse().ok()?);
        if let Some(attempt) = attempt.and_then(|a| a.parse().ok()) {
            let run = (job, Attempt(attempt));
            return self.jobs.contains_key(&run).then_some(run);
        }
        let attempts = self.jobs.keys().filter(|run| run.0 == job);
        attempts.max().copied()
    }

    /// Whether no job here is of the process's user.
    fn is_nobodys(&self, pid: i32) -> bool {
        processes::owner(pid)
            .is_some_and(|uid| !self.jobs.values().any(|e| e.uid == uid && !e.released))
    }

    fn release(&mut self, run: Run) {
        self.ending.remove(&run);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if std::mem::replace(&mut entry.released, true) {
            return;
        }
        entry.files = None;
        self.records.released(run);
        self.emit(&FromShim::Released(run));
    }
}
