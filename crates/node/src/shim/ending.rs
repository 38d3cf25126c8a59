//! How jobs end: asked, then killed, and released when no process is left.
//!
//! A job's end leaves no process: what survives its script was orphaned on the way and thus adopted by the shim, so
//! after each script's end it is enough to look whether the shim has children that it did not fork.

use super::files::Message;
use super::foreign::signal_found;
use super::jobs::{Role, Shim};
use super::membership::Belongs;
use super::processes::{self, Containment};
use super::removal::Removal;
use super::steps::StepProc;
use crate::sys;
use muster_node_core::messages::{JobAttempt, LauncherEvent};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long step daemons may go on after their tasks were killed, to pass on the last output.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// How long a message may take to be written: a job that ends waits for it.
const MESSAGE_WAIT: Duration = Duration::from_secs(2);

/// How long the directories of a step may take to be removed: its job ends only then.
const REMOVAL_WAIT: Duration = Duration::from_secs(30);

impl Shim {
    pub(super) fn begin_end(&mut self, run: JobAttempt, killed: bool) {
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

    pub(super) fn terminate(&mut self, run: JobAttempt, now: bool, message: Option<String>) {
        let Some(entry) = self.jobs.get(&run) else {
            return self.emit(&LauncherEvent::Released(run));
        };
        if entry.released {
            return self.emit(&LauncherEvent::Released(run));
        }
        let first = entry.ending.is_none();
        if self.end_waiting(run) {
            return;
        }
        if first {
            self.records.ending(run);
        }
        self.begin_end(run, false);
        if now {
            self.kill_job(run);
        } else if first {
            // The message comes before what the script writes when it is signalled, as in Slurm.
            let telling = message.as_ref().is_some_and(|text| {
                let text = format!("*** JOB {} ON {} {text} ***", run.job, self.place.node);
                self.tell(run, &text, Role::StderrNotifier(run))
            });
            if !telling {
                self.ask_to_end(run);
            }
            self.end_all_steps(run, message);
        }
    }

    /// Signals the script that it should end.
    pub(super) fn ask_to_end(&mut self, run: JobAttempt) {
        self.signal_script(run, libc::SIGCONT);
        self.signal_script(run, libc::SIGTERM);
    }

    /// Tells a script something, and then kills it if that is wanted: it has read what was written before its end.
    pub(super) fn tell_script(&mut self, run: JobAttempt, text: &str, kill: bool) {
        let role = match kill {
            true => Role::StderrNotifierThenKill(run),
            false => Role::Writer(run),
        };
        if !self.tell(run, text, role) && kill {
            self.signal_script(run, libc::SIGKILL);
        }
    }

    /// Has a process write a line into the standard error of the job's script, as its owner; whether one does. `role`
    /// says what its end means, which comes soon.
    pub(super) fn tell(&mut self, run: JobAttempt, text: &str, role: Role) -> bool {
        let Some(entry) = self.jobs.get_mut(&run).filter(|e| e.script.is_some()) else {
            return false;
        };
        let Some(files) = &entry.files else {
            return false;
        };
        let message = Message {
            work_dir: files.work_dir.clone(),
            path: files.stderr.clone(),
            line: format!("slurmstepd: error: {text}\n"),
        };
        match message.start(&files.user) {
            Ok(pid) => {
                entry.writers.insert(pid, Instant::now() + MESSAGE_WAIT);
                self.roles.insert(pid, role);
                true
            }
            Err(e) => {
                eprintln!("job {}: its message cannot be written: {e}", run.job);
                false
            }
        }
    }

    /// A process that wrote a message has ended.
    pub(super) fn writer_ended(&mut self, run: JobAttempt, pid: i32) {
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.writers.remove(&pid);
        }
    }

    /// Has directories of a job's removed; it ends when they are, or it has taken too long.
    pub(super) fn remove_dirs(&mut self, run: JobAttempt, dirs: &[PathBuf]) {
        let Some(removal) = Removal::begin(dirs) else {
            return;
        };
        self.roles.insert(removal.pid, Role::Remover(run));
        if let Some(entry) = self.jobs.get_mut(&run) {
            let by = Instant::now() + REMOVAL_WAIT;
            entry.writers.insert(removal.pid, by);
            entry.removals.push(removal);
        }
    }

    /// A process that removed directories has ended.
    pub(super) fn remover_ended(&mut self, run: JobAttempt, pid: i32) {
        self.writer_ended(run, pid);
        let entry = self.jobs.get_mut(&run);
        if let Some(removals) = entry.map(|e| &mut e.removals)
            && let Some(at) = removals.iter().position(|r| r.pid == pid)
        {
            removals.swap_remove(at);
        }
    }

    /// Kills processes that have not written their message in time.
    fn end_late_writers(&mut self, now: Instant) {
        for entry in self.jobs.values() {
            for (pid, _) in entry.writers.iter().filter(|(_, by)| **by <= now) {
                sys::kill(*pid, libc::SIGKILL);
            }
        }
    }

    /// Signals the script, its descendants, and orphans of the job: parents first, so that none sees a child end by the
    /// signal, and goes on or ends by itself, before it has the signal too.
    pub(super) fn signal_script(&mut self, run: JobAttempt, signal: i32) {
        let since_ms = sys::boot_ms();
        let mut roots: Vec<i32> = self
            .jobs
            .get(&run)
            .and_then(|e| e.script)
            .into_iter()
            .collect();
        roots.extend(self.leftovers(run));
        let below = self.tree.below(&roots);
        self.signal_members(run, (&roots, &below), (signal, since_ms));
    }

    /// Signals processes that have been found to be a job's, and what comes of them, in a search that began at `since_ms`.
    /// Numbers of this process's own children are theirs until it collects them; others may have gone to somebody else
    /// meanwhile.
    pub(super) fn signal_members(
        &self,
        run: JobAttempt,
        found: (&[i32], &[i32]),
        (signal, since_ms): (i32, u64),
    ) {
        let (roots, below) = found;
        let job = self.jobs.get(&run);
        // Processes of root's may have left their session.
        let is_roots = job.is_some_and(|e| e.uid == 0);
        let are_children = !job.is_some_and(|e| e.recovered);
        let signal_one = |pid: i32| match is_roots || !self.members.knows_sessions() {
            true => signal_found(pid, signal, since_ms),
            false => self.members.signal(run, pid, signal),
        };
        for pid in roots {
            match are_children {
                true => drop(sys::kill(*pid, signal)),
                false => signal_one(*pid),
            }
        }
        below.iter().copied().for_each(signal_one);
    }

    /// Kills everything of a job but its step daemons, which end by themselves once their tasks are gone.
    pub(super) fn kill_job(&mut self, run: JobAttempt) {
        self.signal_script(run, libc::SIGKILL);
        let (daemons, since_ms) = (self.daemons(run), sys::boot_ms());
        let tasks = self.tree.below(&daemons);
        self.signal_members(run, (&[], &tasks), (libc::SIGKILL, since_ms));
        if let Some(entry) = self.jobs.get_mut(&run) {
            let removers: Vec<i32> = entry.removals.iter().map(|r| r.pid).collect();
            for pid in entry.writers.keys().filter(|p| !removers.contains(p)) {
                sys::kill(*pid, libc::SIGKILL);
            }
            // A daemon that has no task yet must not start one.
            let steps = entry.steps.values_mut();
            let to_term: Vec<i32> = steps.filter_map(StepProc::ask_to_end).collect();
            let ending = entry.ending.get_or_insert_default();
            ending.killed = true;
            ending.kill_at = Some(Instant::now() + AFTER_KILL);
            for pid in to_term {
                self.signal_process(pid, libc::SIGTERM);
            }
        }
        self.unsettled = true;
    }

    pub(super) fn enforce_deadlines(&mut self) {
        self.end_late_programs();
        let now = Instant::now();
        self.stop_announced(now);
        self.retry_launches(now);
        self.repeat_late_look_ups(now);
        self.end_late_measurements(now);
        self.run_site_programs(now);
        self.launch();
        self.end_late_writers(now);
        let due: Vec<JobAttempt> = self
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
                        run.job
                    );
                    self.signal_process(pid, libc::SIGKILL);
                }
            }
            self.kill_job(run);
            self.tell_if_unkillable(run);
        }
    }

    /// Processes that SIGKILL does not end make a node unfit: it is reported once, and the site's program is run.
    fn tell_if_unkillable(&mut self, run: JobAttempt) {
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
        if ending.reported || since.elapsed() < timeout {
            return;
        }
        ending.reported = true;
        self.tell_fault(run, "Kill task failed".to_owned());
        if let Some(program) = program {
            self.run_unkillable(run, program);
        }
    }

    /// Milliseconds to the next deadline; -1 when there is none.
    pub(super) fn timeout_ms(&self) -> i32 {
        if self.may_have_ended || !self.remnants.is_empty() {
            return 0;
        }
        self.ending
            .iter()
            .filter_map(|run| self.jobs.get(run)?.ending?.kill_at)
            .chain(self.stops.values().copied())
            .chain(self.retries.first().map(|(at, _)| *at))
            .chain(self.look_up_deadline())
            .chain(self.measurement_deadline())
            .chain(self.site.deadline())
            .chain(self.program_ends.values().filter_map(|end| *end))
            .chain(self.jobs.values().flat_map(|e| e.writers.values().copied()))
            .min()
            .map_or(-1, |at| {
                let wait = at.saturating_duration_since(Instant::now()).as_millis() + 1;
                i32::try_from(wait).unwrap_or(i32::MAX)
            })
    }

    /// Releases jobs of which nothing is left, and kills what survived scripts that have ended.
    pub(super) fn settle(&mut self) {
        let ending: Vec<JobAttempt> = self.ending.iter().copied().collect();
        let done: Vec<JobAttempt> = ending
            .into_iter()
            .filter(|run| self.jobs.get(run).is_none_or(|e| !e.is_busy()))
            .collect();
        if done.is_empty() {
            return;
        }
        let since_ms = sys::boot_ms();
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
                self.signal_members(run, (&left, &below), (libc::SIGKILL, since_ms));
            }
        }
        if unclear {
            // With the last job of its user gone, an orphan that could have been any of several jobs' is nobody's.
            self.orphans();
        }
    }

    /// Children that this process did not fork, with the jobs they come from.
    fn orphans(&mut self) -> Vec<(i32, Option<JobAttempt>)> {
        let children = self.tree.own_children();
        let unknown = children
            .into_iter()
            .filter(|pid| !self.roles.contains_key(pid) && !self.is_of_the_site(*pid));
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
    fn leftovers(&mut self, run: JobAttempt) -> Vec<i32> {
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

    /// The job that a process comes from: by audit session or, where the kernel has none, by session, or as the only one of
    /// its user.
    pub(super) fn job_of(&self, pid: i32) -> Option<JobAttempt> {
        match self.members.of(pid) {
            Belongs::To(run) => return Some(run),
            Belongs::ToSite => return None,
            Belongs::Unknown => {}
        }
        if let Some(run) = sys::session_of(pid).and_then(|sid| self.sessions.get(&sid)) {
            return Some(*run);
        }
        let uid = processes::owner(pid)?;
        let mut of_user = self
            .jobs
            .iter()
            .filter(|(_, e)| e.uid == uid && !e.released && e.waiting.is_none());
        match (of_user.next(), of_user.next()) {
            (Some((run, _)), None) => Some(*run),
            _ => None,
        }
    }

    /// Whether a process comes from a prolog or an epilog.
    fn is_of_the_site(&self, pid: i32) -> bool {
        match self.members.of(pid) {
            Belongs::To(_) => false,
            Belongs::ToSite => true,
            // No program of a user's has all its identities root's: set-user-ID bits change only the effective ones.
            Belongs::Unknown => {
                processes::is_all_of(pid, 0)
                    && sys::session_of(pid).is_none_or(|sid| !self.sessions.contains_key(&sid))
            }
        }
    }

    /// Whether no job here is of the process's user.
    fn is_nobodys(&self, pid: i32) -> bool {
        processes::owner(pid)
            .is_some_and(|uid| !self.jobs.values().any(|e| e.uid == uid && !e.released))
    }

    fn release(&mut self, run: JobAttempt) {
        self.ending.remove(&run);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if std::mem::replace(&mut entry.released, true) {
            return;
        }
        entry.files = None;
        self.share_is_free = true;
        self.records.released(run);
        self.emit(&LauncherEvent::Released(run));
    }
}
