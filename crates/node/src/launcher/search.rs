//! Finds processes of jobs, and signals them. Processes that are not children of this one are signalled by descriptors (pidfd).
//! Each is compared with the search once it is open: any parent may have collected the process meanwhile, and its number may be
//! another's.

use super::membership::Membership;
use crate::cgroup::jobs::Jobs as JobGroups;
use crate::processes::{self, Containment, ProcessTree, Stat};
use crate::{audit_session, sys};
use muster_model::ids::{JobAttempt, StepNo};
use muster_node_core::launcher::Launcher;
use muster_node_core::launcher::interface::{Belongs, Event, Leftovers, Members, ProcessTraits};
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

/// The kernel counts start times by its ticks; a process may seem to have started so much too late.
const TICK_MS: u64 = 10;

/// A process that is not a child of this one.
#[derive(Debug)]
struct Watched {
    pid: i32,
    pidfd: OwnedFd,
}

/// The processes that a step daemon has left which was killed: its tasks go with it, but not what they had started.
#[derive(Debug)]
struct Remnant {
    of: Members,
    daemon: i32,
    /// The audit session that it had begun.
    session: Option<u32>,
    killed: BTreeSet<i32>,
}

/// Processes that were found for a signal. Signals of one job that are delivered one right after the other share them.
#[derive(Debug)]
struct SignalTargets {
    of: Members,
    /// A job's script, or a step's daemon.
    below: Option<i32>,
    roots: Vec<i32>,
    processes: Vec<i32>,
    since_ms: u64,
}

/// See the module.
pub(super) struct Search {
    tree: ProcessTree,
    /// What signals before this one have found.
    found: Vec<SignalTargets>,
    /// Searches for signals.
    searches: u64,
    pub(super) members: Membership,
    /// Control groups of jobs.
    pub(super) groups: JobGroups,
    watched: Vec<Watched>,
    /// Children that serve the executor itself: no job's.
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

    /// Watches a process that is no child of this one; gives when it started, if it is there.
    pub(super) fn watch(&mut self, pid: i32) -> Option<u64> {
        // The descriptor first: what is found to have this number then, is what the descriptor is of, or has ended.
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

    /// A watched process has ended: its wait status, if anybody knows it.
    pub(super) fn watched_ended(&mut self, pid: i32) -> Option<Event> {
        let at = self.watched.iter().position(|w| w.pid == pid)?;
        let watched = self.watched.swap_remove(at);
        let zombie = Stat::of(pid).filter(|s| s.zombie).map(|s| s.exit);
        let status = zombie.or_else(|| sys::exit_of_reaped(watched.pidfd.as_fd()));
        Some(Event::WatchedEnded { pid, status })
    }

    /// A child serves the executor itself.
    pub(super) fn add_helper(&mut self, pid: i32) {
        self.helpers.insert(pid);
    }

    /// A child was collected: from now on its number may be another process's.
    pub(super) fn forget_helper(&mut self, pid: i32) {
        self.helpers.remove(&pid);
    }

    /// Kills a child that serves the executor, unless it was collected.
    pub(super) fn kill_helper(&self, pid: i32) {
        if self.helpers.contains(&pid) {
            sys::kill(pid, libc::SIGKILL);
        }
    }

    /// Signals a process that belongs to a job: one that is watched by its descriptor, and a child by its number, which is
    /// the child's until this process collects it.
    pub(super) fn signal(&self, pid: i32, signal: i32) {
        match self.watched.iter().find(|watched| watched.pid == pid) {
            // It may have ended.
            Some(watched) => drop(sys::cells::signal_by(&watched.pidfd, signal)),
            None if is_child(pid) => drop(sys::kill(pid, signal)),
            None => {}
        }
    }

    /// Signals the group of a child, which it leads.
    pub(super) fn signal_group(&self, pid: i32, signal: i32) {
        if is_child(pid) {
            sys::kill(-pid, signal);
        }
    }

    /// Signals a job's script, the processes that have left it, and everything below them: parents first.
    pub(super) fn signal_script(
        &mut self,
        launcher: &Launcher,
        of: Members,
        script: Option<i32>,
        signal: i32,
    ) {
        if signal == libc::SIGKILL {
            self.groups.kill_script(of.attempt);
        }
        let found = match self.take_found(of, script, signal) {
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

    /// What an earlier signal of the job has found below this process. SIGKILL is to leave nothing: it searches again.
    fn take_found(
        &mut self,
        of: Members,
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

    fn signal_found_by(&mut self, found: SignalTargets, signal: i32) {
        let members = (&*found.roots, &*found.processes);
        self.signal_members(found.of, members, (signal, found.since_ms));
        self.found.push(found);
    }

    /// What was found is old: something else has happened.
    pub(super) fn forget_found(&mut self) {
        self.found.clear();
    }

    pub(super) fn signal_below(&self, of: Members, roots: &[i32], signal: i32) {
        if signal == libc::SIGKILL {
            self.groups.kill_steps(of.attempt, None);
        }
        let since_ms = sys::boot_ms();
        let below = self.tree.below(roots);
        self.signal_members(of, (&[], &below), (signal, since_ms));
    }

    pub(super) fn signal_step(
        &mut self,
        of: Members,
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
        self.signal_found_by(found, signal);
        is_empty.then_some(Event::StepHasNoTasks(of.attempt, step, signal))
    }

    pub(super) fn signal_found(&mut self, of: Members, found: &[i32], since_ms: u64, signal: i32) {
        if signal == libc::SIGKILL && self.groups.kill(of.attempt) && !of.is_roots {
            return;
        }
        let below = self.tree.below(found);
        self.signal_members(of, (found, &below), (signal, since_ms));
    }

    /// Signals processes that have been found to be a job's, and what comes of them, in a search that began at `since_ms`.
    /// Numbers of this process's own children are theirs until it collects them; others may have gone to another process
    /// meanwhile.
    fn signal_members(
        &self,
        of: Members,
        (roots, below): (&[i32], &[i32]),
        (signal, since_ms): (i32, u64),
    ) {
        // Processes of root's may have left their session.
        let signal_one = |pid: i32| match of.is_roots || !self.members.knows_sessions() {
            true => signal_foreign(pid, signal, since_ms),
            false => self.members.signal(of.attempt, pid, signal),
        };
        // What was found may also be a member of the job's groups that is below another process.
        for pid in roots {
            match !of.is_recovered && is_child(*pid) {
                true => drop(sys::kill(*pid, signal)),
                false => signal_one(*pid),
            }
        }
        below.iter().copied().for_each(signal_one);
    }

    /// What is left of jobs of which no process is known.
    pub(super) fn find_leftovers(&mut self, launcher: &Launcher, jobs: &[Members]) -> Event {
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
            // Those too that are below other processes than the launcher's.
            pids.extend(self.groups.members(attempt));
            left.push(Leftovers { attempt, pids });
        }
        Event::LeftoversFound {
            left,
            is_unclear,
            since_ms,
        }
    }

    /// Children that this process did not start, with the jobs they come from. Those that no job can have left are killed.
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
                eprintln!("process {pid} is left over from no job and is killed");
                sys::kill(pid, libc::SIGKILL);
            }
            found.push((pid, owner));
        }
        found
    }

    fn traits(&self, pid: i32) -> ProcessTraits {
        let belongs = self.members.of(pid);
        if let Belongs::To(_) = belongs {
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

    /// Processes of a job that are not this process's descendants. They are watched, so that their end is noticed.
    fn strays(&mut self, launcher: &Launcher, attempt: JobAttempt) -> Vec<i32> {
        let since_ms = sys::boot_ms();
        let own = own_pid();
        let mut found = Vec::new();
        for pid in processes::all_pids() {
            let Some(stat) = Stat::of(pid).filter(|s| pid != own && !s.zombie) else {
                continue;
            };
            let is_one = match self.members.of(pid) {
                Belongs::To(owner) => owner == attempt,
                Belongs::ToSite => false,
                // The number of the session's leader may have been an ended daemon's before: nobody else's process is the job's.
                Belongs::Unknown => {
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

    /// Kills what a step daemon has left: one round now, others with each wake-up, as processes may fork as fast as they are
    /// looked for.
    pub(super) fn kill_remnants(&mut self, launcher: &Launcher, of: Members, daemon: i32) {
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

    /// One more round for each.
    pub(super) fn kill_more_remnants(&mut self, launcher: &Launcher) {
        let mut remnants = std::mem::take(&mut self.remnants);
        remnants.retain_mut(|remnant| self.kill_round(launcher, remnant));
        self.remnants = remnants;
    }

    /// Further rounds are due.
    pub(super) fn has_remnants(&self) -> bool {
        !self.remnants.is_empty()
    }

    /// Whether there were others than in the round before: one of them may have forked while it was looked for the others.
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
            // One that cannot be read is gone, as a rule; the end of the job looks for what is left.
            Some(session) => {
                audit_session::of(&pid.to_string()).is_ok_and(|found| found == Some(session))
            }
            None => sys::session_of(*pid) == Some(remnant.daemon),
        });
        let known = remnant.killed.len();
        self.signal_members(of, (&[], &all), (libc::SIGKILL, since_ms));
        remnant.killed.extend(all);
        remnant.killed.len() != known
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Whether a process is this one's child: from then on its number is its own, until this process collects it.
fn is_child(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.parent == own_pid())
}

fn of_job(orphans: &[(i32, Option<JobAttempt>)], attempt: JobAttempt) -> impl Iterator<Item = i32> {
    let of_job = orphans
        .iter()
        .filter(move |(_, owner)| *owner == Some(attempt));
    of_job.map(|(pid, _)| *pid)
}

/// Whether a process comes from a program of the site's.
fn is_of_site(launcher: &Launcher, pid: i32, traits: &ProcessTraits) -> bool {
    match traits.belongs {
        Belongs::To(_) => false,
        Belongs::ToSite => true,
        // No program of a user's has all its identities root's: set-user-ID bits change only the effective ones.
        Belongs::Unknown => {
            let is_of_job = |session| launcher.owner_of_session(session).is_some();
            processes::is_all_of(pid, 0) && !traits.session.is_some_and(is_of_job)
        }
    }
}

/// Signals a process that was found in a search which began at `since_ms`, milliseconds since boot. One that has started
/// later has only taken its number.
fn signal_foreign(pid: i32, signal: i32, since_ms: u64) {
    let Ok(pidfd) = sys::pidfd(pid) else {
        return;
    };
    let was_there = |stat: &Stat| stat.start_ms <= since_ms.saturating_add(TICK_MS);
    if Stat::of(pid).is_some_and(|stat| was_there(&stat)) {
        // It may have ended.
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

    /// As if a child had been collected, and its number had gone to another process.
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

    /// A user may send all signals that there are, to all that a job has.
    #[test]
    fn signals_of_a_job_that_come_together_share_a_search() {
        let spool = std::env::temp_dir().join(format!("muster-shared.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut search = search_in(&spool);
        let of = Members {
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

    /// What a look-up had started kept its answer open; when that was late, the number of the look-up was killed, which had ended.
    #[test]
    fn a_helper_that_was_collected_is_not_killed() {
        let spool = std::env::temp_dir().join(format!("muster-helper.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut search = search_in(&spool);
        // Another process, by the number of one that was collected.
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
        signal_foreign(pid(&child), libc::SIGKILL, started - TICK_MS - 1);
        assert!(child.try_wait().unwrap().is_none());
        signal_foreign(pid(&child), libc::SIGKILL, sys::boot_ms());
        assert!(is_killed(&mut child));
    }

    /// As if the number of a process of an earlier launcher's job had gone to another process.
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
