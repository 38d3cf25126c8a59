//! Finds processes of jobs and signals them. Processes that are not children of this one are
//! signalled by descriptors (pidfd). After a descriptor is opened, its process is compared with the
//! search result: its parent may have collected the process meanwhile, and the number may be
//! another process's.

use super::membership::Membership;
use crate::cgroup::jobs::Jobs as JobGroups;
use crate::processes::{self, Containment, ProcessTree, Stat};
use crate::sys::cells::SentSignal;
use crate::{audit_session, sys};
use muster_model::ids::{JobAttempt, StepNo};
use muster_node_core::launcher::Launcher;
use muster_node_core::launcher::interface::{
    Event, Leftovers, ProcessOwner, ProcessSearch, ProcessTraits,
};
use muster_node_core::signals;
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

/// The kernel counts start times in clock ticks; a process may appear to have started this much too
/// late.
const TICK_MS: u64 = 10;

/// A process that is not a child of this one.
#[derive(Debug)]
struct Watched {
    pid: i32,
    pidfd: OwnedFd,
}

/// Processes left by a killed step daemon: its tasks end with it, but not the processes that these
/// started.
#[derive(Debug)]
struct Remnant {
    of: ProcessSearch,
    daemon: i32,
    /// The audit session of the daemon.
    session: Option<u32>,
    killed: BTreeSet<i32>,
}

/// Processes found for a signal. Consecutive signals of one job share them.
#[derive(Debug)]
struct SignalTargets {
    of: ProcessSearch,
    /// A job's script, or a step's daemon.
    below: Option<i32>,
    roots: Vec<i32>,
    processes: Vec<i32>,
    /// When the search began.
    since_ms: u64,
}

/// See the module.
pub(super) struct Search {
    tree: ProcessTree,
    /// Results of earlier signals.
    found: Vec<SignalTargets>,
    /// Number of searches for signals.
    searches: u64,
    pub(super) members: Membership,
    /// Control groups of jobs.
    pub(super) groups: JobGroups,
    watched: Vec<Watched>,
    /// Children that serve the executor itself and belong to no job.
    helpers: BTreeSet<i32>,
    remnants: Vec<Remnant>,
}

impl Search {
    pub(super) fn new(members: Membership, groups: JobGroups) -> Search {
        Search {
            tree: ProcessTree::new(),
            found: Vec::new(),
            searches: 0,
            members,
            groups,
            watched: Vec::new(),
            helpers: BTreeSet::new(),
            remnants: Vec::new(),
        }
    }

    pub(super) fn tree(&self) -> &ProcessTree {
        &self.tree
    }

    /// Watches a process that is not a child of this one; returns its start time if it exists.
    pub(super) fn watch(&mut self, pid: i32) -> Option<u64> {
        // Open the descriptor first: the process found afterwards under this number is the
        // descriptor's, or that one has ended.
        let pidfd = sys::pidfd(pid).ok()?;
        let stat = Stat::of(pid).filter(|stat| !stat.zombie)?;
        if !self.is_watched(pid) {
            self.watched.push(Watched { pid, pidfd });
        }
        Some(stat.start_ms)
    }

    fn is_watched(&self, pid: i32) -> bool {
        self.watched.iter().any(|w| w.pid == pid)
    }

    pub(super) fn unwatch(&mut self, pid: i32) {
        self.watched.retain(|w| w.pid != pid);
    }

    /// Descriptors of watched processes, and the processes.
    pub(super) fn watched(&self) -> impl Iterator<Item = (RawFd, i32)> {
        self.watched.iter().map(|w| (w.pidfd.as_raw_fd(), w.pid))
    }

    /// Handles the end of a watched process: returns its wait status, if it is known.
    pub(super) fn watched_ended(&mut self, pid: i32) -> Option<Event> {
        let at = self.watched.iter().position(|w| w.pid == pid)?;
        let watched = self.watched.swap_remove(at);
        let zombie = Stat::of(pid).filter(|s| s.zombie).map(|s| s.exit);
        let status = zombie.or_else(|| sys::exit_of_reaped(watched.pidfd.as_fd()));
        Some(Event::WatchedEnded { pid, status })
    }

    /// Records a child that serves the executor itself.
    pub(super) fn add_helper(&mut self, pid: i32) {
        self.helpers.insert(pid);
    }

    /// Records that a child was collected: from now on its number may be another process's.
    pub(super) fn forget_helper(&mut self, pid: i32) {
        self.helpers.remove(&pid);
    }

    /// Kills a child that serves the executor, unless it was collected.
    pub(super) fn kill_helper(&self, pid: i32) {
        if self.helpers.contains(&pid) {
            sys::kill(pid, libc::SIGKILL);
        }
    }

    /// Signals a process of a job: a watched one by its descriptor, a child by its number, which
    /// cannot be reused until this process collects it.
    pub(super) fn signal(&self, pid: i32, signal: i32) {
        match self.watched.iter().find(|watched| watched.pid == pid) {
            // The process may have ended.
            Some(watched) => drop(sys::cells::signal_by(&watched.pidfd, signal)),
            None if is_child(pid) => drop(sys::kill(pid, signal)),
            None => {}
        }
    }

    /// Signals the process group that a child leads.
    pub(super) fn signal_group(&self, pid: i32, signal: i32) {
        if is_child(pid) {
            sys::kill(-pid, signal);
        }
    }

    /// Signals a job's script, the processes that have left it, and all their descendants: parents
    /// first.
    pub(super) fn signal_script(
        &mut self,
        launcher: &Launcher,
        of: ProcessSearch,
        script: Option<i32>,
        number: i32,
        steps_too: bool,
    ) {
        let value = steps_too.then(|| signals::whole_job_value(of.attempt.job));
        let signal = SentSignal { number, value };
        if signal.number == libc::SIGKILL {
            self.groups.kill_script(of.attempt);
        }
        let found = match self.take_found(of, script, signal.number) {
            Some(found) => found,
            None => {
                let since_ms = sys::boot_ms();
                let mut roots: Vec<i32> = script.into_iter().collect();
                let orphans = self.orphans(launcher);
                roots.extend(of_job(&orphans, of.attempt));
                if of.is_recovered {
                    roots.extend(self.strays(launcher, of.attempt));
                }
                SignalTargets {
                    of,
                    below: script,
                    processes: self.tree.below(&roots),
                    roots,
                    since_ms,
                }
            }
        };
        self.signal_found_by(found, signal);
    }

    /// The result of an earlier signal of the job below this process. SIGKILL must miss no process,
    /// so it searches again.
    fn take_found(
        &mut self,
        of: ProcessSearch,
        below: Option<i32>,
        signal: i32,
    ) -> Option<SignalTargets> {
        let is_it = |found: &SignalTargets| found.of == of && found.below == below;
        let at = self.found.iter().position(is_it);
        let found = at.map(|at| self.found.swap_remove(at));
        let found = found.filter(|_| signal != libc::SIGKILL);
        self.searches += u64::from(found.is_none());
        found
    }

    fn signal_found_by(&mut self, found: SignalTargets, signal: SentSignal) {
        self.signal_members(&found, signal);
        self.found.push(found);
    }

    /// Discards earlier results, because another event has happened.
    pub(super) fn forget_found(&mut self) {
        self.found.clear();
    }

    pub(super) fn signal_below(&self, of: ProcessSearch, roots: &[i32], signal: i32) {
        if signal == libc::SIGKILL {
            self.groups.kill_steps(of.attempt, None);
        }
        let since_ms = sys::boot_ms();
        let targets = SignalTargets {
            of,
            below: None,
            roots: Vec::new(),
            processes: self.tree.below(roots),
            since_ms,
        };
        self.signal_members(&targets, signal.into());
    }

    pub(super) fn signal_step(
        &mut self,
        of: ProcessSearch,
        (step, daemon): (StepNo, i32),
        signal: i32,
    ) -> Option<Event> {
        if signal == libc::SIGKILL {
            self.groups.kill_steps(of.attempt, Some(&step.to_string()));
        }
        let found = match self.take_found(of, Some(daemon), signal) {
            Some(found) => found,
            None => {
                let since_ms = sys::boot_ms();
                SignalTargets {
                    of,
                    below: Some(daemon),
                    roots: Vec::new(),
                    processes: self.tree.below(&[daemon]),
                    since_ms,
                }
            }
        };
        let is_empty = found.processes.is_empty();
        self.signal_found_by(found, signal.into());
        is_empty.then_some(Event::StepHasNoTasks(of.attempt, step, signal))
    }

    pub(super) fn signal_found(
        &mut self,
        of: ProcessSearch,
        found: &[i32],
        since_ms: u64,
        signal: i32,
    ) {
        if signal == libc::SIGKILL && self.groups.kill(of.attempt) && !of.is_roots {
            return;
        }
        let targets = SignalTargets {
            of,
            below: None,
            roots: found.to_vec(),
            processes: self.tree.below(found),
            since_ms,
        };
        self.signal_members(&targets, signal.into());
    }

    /// Signals processes that were found to belong to a job, and their descendants. Numbers of this
    /// process's own children stay theirs until they are collected; other numbers may have been
    /// reused since the search began.
    fn signal_members(&self, targets: &SignalTargets, signal: SentSignal) {
        let (of, since_ms) = (targets.of, targets.since_ms);
        // Processes of root may have left their session.
        let signal_one = |pid: i32| match of.is_roots || !self.members.knows_sessions() {
            true => signal_foreign(pid, signal, since_ms),
            false => self.members.signal(of.attempt, pid, signal),
        };
        // A found process may also be a member of the job's groups that descends from another
        // process.
        for pid in &targets.roots {
            match !of.is_recovered && is_child(*pid) {
                true => signal_child(*pid, signal),
                false => signal_one(*pid),
            }
        }
        targets.processes.iter().copied().for_each(signal_one);
    }

    /// Finds the remaining processes of jobs without a known process.
    pub(super) fn find_leftovers(&mut self, launcher: &Launcher, jobs: &[ProcessSearch]) -> Event {
        let since_ms = sys::boot_ms();
        let orphans = self.orphans(launcher);
        let is_unclear = orphans.iter().any(|(_, owner)| owner.is_none());
        let mut left = Vec::with_capacity(jobs.len());
        for of in jobs {
            let attempt = of.attempt;
            let mut pids: Vec<i32> = of_job(&orphans, attempt).collect();
            if of.is_recovered {
                pids.extend(self.strays(launcher, attempt));
            }
            // Includes processes that are not descendants of the launcher.
            pids.extend(self.groups.members(attempt));
            left.push(Leftovers { attempt, pids });
        }
        Event::LeftoversFound {
            left,
            is_unclear,
            since_ms,
        }
    }

    /// Children that this process did not start, with the jobs they come from. Children that belong
    /// to no job are killed.
    pub(super) fn orphans(&self, launcher: &Launcher) -> Vec<(i32, Option<JobAttempt>)> {
        let is_known = |pid: &i32| launcher.knows_process(*pid) || self.helpers.contains(pid);
        let children = self.tree.own_children();
        let mut found = Vec::new();
        for pid in children.into_iter().filter(|pid| !is_known(pid)) {
            let traits = self.traits(pid);
            if is_of_site(launcher, pid, &traits) {
                continue;
            }
            let owner = launcher.owner_of(&traits);
            if owner.is_none() && traits.uid.is_some_and(|uid| launcher.has_no_job_of(uid)) {
                eprintln!("killing process {pid}, which belongs to no job");
                sys::kill(pid, libc::SIGKILL);
            }
            found.push((pid, owner));
        }
        found
    }

    fn traits(&self, pid: i32) -> ProcessTraits {
        let belongs = self.members.of(pid);
        if let ProcessOwner::To(_) = belongs {
            return ProcessTraits {
                belongs,
                ..ProcessTraits::default()
            };
        }
        ProcessTraits {
            belongs,
            session: sys::session_of(pid),
            uid: processes::owner(pid),
        }
    }

    /// Processes of a job that are not descendants of this process. They are watched, so that their
    /// end is noticed.
    fn strays(&mut self, launcher: &Launcher, attempt: JobAttempt) -> Vec<i32> {
        let since_ms = sys::boot_ms();
        let own = own_pid();
        let mut found = Vec::new();
        for pid in processes::all_pids() {
            let Some(stat) = Stat::of(pid).filter(|s| pid != own && !s.zombie) else {
                continue;
            };
            let is_one = match self.members.of(pid) {
                ProcessOwner::To(owner) => owner == attempt,
                ProcessOwner::ToSite => false,
                // The session leader's number may have been that of an ended daemon; processes of
                // other users do not belong to the job.
                ProcessOwner::Unknown => {
                    launcher.owner_of_session(stat.session) == Some(attempt)
                        && launcher.has_uid(attempt, processes::owner(pid))
                }
            };
            if is_one {
                found.push(pid);
            }
        }
        for &pid in &found {
            if !self.is_watched(pid) && self.watch(pid).is_some_and(|start_ms| start_ms > since_ms)
            {
                self.unwatch(pid);
            }
        }
        found
    }

    /// Kills the processes left by a step daemon: one round now, further ones with each wake-up,
    /// because processes may fork as fast as they are searched for.
    pub(super) fn kill_remnants(&mut self, launcher: &Launcher, of: ProcessSearch, daemon: i32) {
        let mut remnant = Remnant {
            of,
            daemon,
            session: self.members.session_of_daemon(of.attempt, daemon),
            killed: BTreeSet::new(),
        };
        if self.kill_round(launcher, &mut remnant) {
            self.remnants.push(remnant);
        }
    }

    /// Runs one more round for each daemon.
    pub(super) fn kill_more_remnants(&mut self, launcher: &Launcher) {
        let mut remnants = std::mem::take(&mut self.remnants);
        remnants.retain_mut(|remnant| self.kill_round(launcher, remnant));
        self.remnants = remnants;
    }

    /// Whether further rounds are due.
    pub(super) fn has_remnants(&self) -> bool {
        !self.remnants.is_empty()
    }

    /// Runs one round; returns whether it found other processes than the round before, because one
    /// of them may have forked during the search.
    fn kill_round(&mut self, launcher: &Launcher, remnant: &mut Remnant) -> bool {
        let of = remnant.of;
        if !launcher.knows_job(of.attempt) {
            return false;
        }
        let since_ms = sys::boot_ms();
        let mut all = self.tree.below(&[own_pid()]);
        if of.is_recovered {
            all.extend(self.strays(launcher, of.attempt));
        }
        all.retain(|pid| match remnant.session {
            // A process that cannot be read has usually ended; the end of the job searches for the
            // rest.
            Some(session) => {
                audit_session::of(&pid.to_string()).is_ok_and(|found| found == Some(session))
            }
            None => sys::session_of(*pid) == Some(remnant.daemon),
        });
        let known = remnant.killed.len();
        let targets = SignalTargets {
            of,
            below: None,
            roots: Vec::new(),
            processes: all,
            since_ms,
        };
        self.signal_members(&targets, libc::SIGKILL.into());
        remnant.killed.extend(targets.processes);
        remnant.killed.len() != known
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Whether a process is a child of this one: its number then stays its own until this process
/// collects it.
fn is_child(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.parent == own_pid())
}

fn of_job(orphans: &[(i32, Option<JobAttempt>)], attempt: JobAttempt) -> impl Iterator<Item = i32> {
    let of_job = orphans
        .iter()
        .filter(move |(_, owner)| *owner == Some(attempt));
    of_job.map(|(pid, _)| *pid)
}

/// Whether a process descends from a program of the site.
fn is_of_site(launcher: &Launcher, pid: i32, traits: &ProcessTraits) -> bool {
    match traits.belongs {
        ProcessOwner::To(_) => false,
        ProcessOwner::ToSite => true,
        // Only a program of the site has all its identities root's: set-user-ID bits change only
        // the effective ones.
        ProcessOwner::Unknown => {
            let is_of_job = |session| launcher.owner_of_session(session).is_some();
            processes::has_only_uid(pid, 0) && !traits.session.is_some_and(is_of_job)
        }
    }
}

fn signal_child(pid: i32, signal: SentSignal) {
    let held = signal.value.and_then(|_| sys::pidfd(pid).ok());
    // The process may have ended.
    match held {
        Some(pidfd) => drop(sys::cells::signal_by(&pidfd, signal)),
        None => drop(sys::kill(pid, signal.number)),
    }
}

/// Signals a process found in a search that began at `since_ms`, milliseconds since boot. A process
/// that started later has only got its number.
fn signal_foreign(pid: i32, signal: SentSignal, since_ms: u64) {
    let Ok(pidfd) = sys::pidfd(pid) else {
        return;
    };
    let was_there = |stat: &Stat| stat.start_ms <= since_ms.saturating_add(TICK_MS);
    if Stat::of(pid).is_some_and(|stat| was_there(&stat)) {
        // The process may have ended.
        let _ = sys::cells::signal_by(&pidfd, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    fn search_in(spool: &std::path::Path) -> Search {
        let groups = JobGroups::open(spool, &[]).unwrap();
        Search::new(Membership::open(spool).unwrap(), groups)
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        child.id().try_into().unwrap()
    }

    fn is_killed(child: &mut Child) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        child.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Simulates that a child was collected and its number was reused.
    #[test]
    fn what_is_no_child_is_not_signalled_by_its_number() {
        let spool = std::env::temp_dir().join(format!("muster-no-child.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let search = search_in(&spool);
        let script = "setsid sleep 600 & echo $!; wait $!";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let mut parent = command.spawn().unwrap();
        let mut number = String::new();
        let said = parent.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut number).unwrap();
        let other: i32 = number.trim().parse().unwrap();
        search.signal(other, libc::SIGKILL);
        search.signal_group(other, libc::SIGKILL);
        sys::kill(other, libc::SIGTERM);
        let status = parent.wait().unwrap().code();
        assert_eq!(status, Some(128 + libc::SIGTERM), "how the other ended");
        std::fs::remove_dir_all(&spool).unwrap();
    }

    /// A user may send all signals, to all processes of a job.
    #[test]
    fn signals_of_a_job_that_come_together_share_a_search() {
        let spool = std::env::temp_dir().join(format!("muster-shared.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut search = search_in(&spool);
        let of = ProcessSearch {
            attempt: JobAttempt::default(),
            is_roots: false,
            is_recovered: false,
        };
        let daemon = sleeper();
        let step = (StepNo(0), pid(&daemon));
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM] {
            search.signal_step(of, step, signal);
        }
        assert_eq!(search.searches, 1);
        search.signal_step(of, step, libc::SIGKILL);
        assert_eq!(search.searches, 2, "it is to miss nothing");
        search.forget_found();
        search.signal_step(of, step, libc::SIGUSR1);
        assert_eq!(search.searches, 3);
        end(daemon);
        std::fs::remove_dir_all(&spool).unwrap();
    }

    /// Earlier, a process that a look-up had started kept the answer's pipe open. When the answer was late, the
    /// launcher killed the number of the look-up, which had ended already.
    #[test]
    fn a_helper_that_was_collected_is_not_killed() {
        let spool = std::env::temp_dir().join(format!("muster-helper.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut search = search_in(&spool);
        // Another process with the number of a collected one.
        let mut other = sleeper();
        search.add_helper(pid(&other));
        search.forget_helper(pid(&other));
        search.kill_helper(pid(&other));
        assert!(other.try_wait().unwrap().is_none());
        search.add_helper(pid(&other));
        search.kill_helper(pid(&other));
        assert!(is_killed(&mut other));
        std::fs::remove_dir_all(&spool).unwrap();
    }

    #[test]
    fn a_process_that_started_after_the_search_is_another_one() {
        let mut child = sleeper();
        let started = Stat::of(pid(&child)).unwrap().start_ms;
        signal_foreign(pid(&child), libc::SIGKILL.into(), started - TICK_MS - 1);
        assert!(child.try_wait().unwrap().is_none());
        signal_foreign(pid(&child), libc::SIGKILL.into(), sys::boot_ms());
        assert!(is_killed(&mut child));
    }

    /// Simulates that the number of a process of an earlier launcher's job was reused.
    #[test]
    fn a_number_that_has_gone_to_another_process_is_not_signalled() {
        let spool = std::env::temp_dir().join(format!("muster-foreign.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut search = search_in(&spool);
        let (ended, mut other) = (sleeper(), sleeper());
        assert!(search.watch(pid(&ended)).is_some());
        end(ended);
        search.watched[0].pid = pid(&other);
        search.signal(pid(&other), libc::SIGKILL);
        assert!(other.try_wait().unwrap().is_none());
        search.watched.clear();
        search.signal(pid(&other), libc::SIGKILL);
        assert!(is_killed(&mut other), "a child");
        std::fs::remove_dir_all(&spool).unwrap();
    }
}
