//! Daemons with standing orders, from the shim's side. What they say of the steps that they take stays in their lines until
//! there is a reason to look: the agent says that there is something, an order is about their job, or they end. So a short
//! step does not wake this process, and still nothing is lost with a daemon.

use super::told::{EncodedEnd, Heard, Taken};
use super::{Daemon, StepProc};
use crate::shim::jobs::{Role, Shim};
use crate::shim::wire::{FromShim, Run};
use crate::stepd::{Control, Running};
use crate::sys;
use muster_core::ids::StepNo;
use std::os::fd::AsRawFd as _;

impl Shim {
    /// Takes in what a daemon with a standing order has said, if this is one. `untold`: the agent may not hear it from the
    /// daemon, or later than it has to.
    pub(in crate::shim) fn hear_standing(&mut self, pid: i32, untold: bool) {
        if let Some((run, step, daemon)) = self.take_daemon(pid, |d| d.stands) {
            self.hear_taken((run, step), daemon, untold);
        }
    }

    /// What a daemon of this process has said, with a standing order or without: it may have taken steps before this process
    /// was told of its order.
    pub(in crate::shim) fn hear_own(&mut self, pid: i32, untold: bool) {
        if let Some((run, step, daemon)) = self.take_daemon(pid, |d| !d.adopted) {
            self.hear_taken((run, step), daemon, untold);
        }
    }

    fn hear_taken(&mut self, (run, had): (Run, Option<StepNo>), mut daemon: Daemon, untold: bool) {
        // What it has not said is lost, or in a file: its end tells.
        let open = daemon.read().is_ok();
        let step = self.take_in(&mut daemon, (run, had), open);
        let (pid, untold) = (daemon.pid, untold || !daemon.owned);
        self.put_back((run, step), daemon, open);
        if untold {
            self.tell_taken(run, pid);
        }
        // The job ends, and this step has not been told.
        let ending = self.jobs.get(&run).is_some_and(|e| e.ending.is_some());
        if let Some(new) = step.filter(|step| ending && had != Some(*step))
            && let Some(pid) = self.step_proc(run, new).and_then(StepProc::ask_to_end)
        {
            self.signal_process(pid, libc::SIGTERM);
        }
    }

    /// Takes in the words of a daemon that have come whole. `open`: there may come more. The step that it has after them.
    fn take_in(
        &mut self,
        daemon: &mut Daemon,
        (run, mut step): (Run, Option<StepNo>),
        open: bool,
    ) -> Option<StepNo> {
        loop {
            let (of, end) = match daemon.ahead.take() {
                Some(ahead) => ahead,
                None => match Heard::next(&mut daemon.input) {
                    None => return step,
                    Some(Heard::Ended(of, end)) => (of, EncodedEnd::told(end)),
                    Some(Heard::Took(taken)) => {
                        step = self.step_taken(taken, daemon.pid).or(step);
                        continue;
                    }
                    Some(Heard::Released) => {
                        daemon.stands = false;
                        continue;
                    }
                    Some(Heard::Runs) => continue,
                },
            };
            if step == Some(of) {
                step = None;
                self.records.step_ended(run, of, end.clone());
                if let Some(proc) = self.step_proc(run, of) {
                    proc.told = true;
                }
                self.end_of_step(run, of, end, daemon.owned);
            } else if daemon.owned && open && step.is_none() {
                // The agent has given it a step, and says so later.
                daemon.ahead = Some((of, end));
                return step;
            }
            // That of a lost agent is known otherwise.
        }
    }

    /// Tells the agent of all steps that a daemon has taken, and that the agent has not had forgotten. It may have heard of
    /// them.
    fn tell_taken(&mut self, run: Run, pid: i32) {
        let entry = self.jobs.get(&run);
        let steps = entry.into_iter().flat_map(|e| &e.steps);
        let taken = steps.filter(|(_, proc)| proc.taken && proc.pid == pid);
        let taken: Vec<(StepNo, Option<EncodedEnd>)> = taken
            .map(|(step, proc)| (*step, proc.ended.clone()))
            .collect();
        for (step, end) in taken {
            let running = Running {
                run,
                step,
                pid,
                dirs: Vec::new(),
                kept: self.kept_of(run, step),
            };
            self.emit(&FromShim::StepTaken(Box::new(running)));
            if let Some(end) = end {
                let end = Box::new(end.decoded());
                self.emit(&FromShim::StepEnded { run, step, end });
            }
        }
    }

    /// The same of all such daemons of a job.
    pub(in crate::shim) fn hear_all_standing(&mut self, run: Run, untold: bool) {
        for pid in self.standing_of(run) {
            self.hear_standing(pid, untold);
        }
    }

    /// There is no agent any more that says when there is something to hear.
    pub(in crate::shim) fn listen_to_standing(&mut self) {
        let runs: Vec<Run> = self.jobs.keys().copied().collect();
        for run in runs {
            for pid in self.standing_of(run) {
                self.hear_standing(pid, false);
                if let Some((run, step, daemon)) = self.take_daemon(pid, |d| d.stands) {
                    self.standing_lines.insert(daemon.control.as_raw_fd(), pid);
                    self.put_back((run, step), daemon, true);
                }
            }
        }
    }

    /// The line of such a daemon has something to hear.
    pub(in crate::shim) fn hear_standing_line(&mut self, fd: i32) {
        let Some(pid) = self.standing_lines.get(&fd).copied() else {
            return;
        };
        self.hear_standing(pid, false);
        let goes_on = self.take_daemon(pid, |d| d.stands);
        match goes_on {
            Some((run, step, daemon)) => {
                // One that has ended is waited for: its line is not.
                if sys::has_hung_up(&daemon.control) {
                    self.standing_lines.remove(&fd);
                }
                self.put_back((run, step), daemon, true);
            }
            None => {
                self.standing_lines.remove(&fd);
            }
        }
    }

    fn standing_of(&self, run: Run) -> Vec<i32> {
        let entry = self.jobs.get(&run);
        let spares = entry.into_iter().flat_map(|e| &e.spares);
        let steps = entry.into_iter().flat_map(|e| e.steps.values());
        let all = spares.chain(steps.filter_map(|p| p.daemon.as_ref()));
        all.filter(|d| d.stands).map(|d| d.pid).collect()
    }

    /// A daemon of this process, if it is such a one, taken from where it is kept.
    fn take_daemon(
        &mut self,
        pid: i32,
        is_it: fn(&Daemon) -> bool,
    ) -> Option<(Run, Option<StepNo>, Daemon)> {
        match *self.roles.get(&pid)? {
            Role::Step(run, step) => {
                let kept = &mut self.step_proc(run, step)?.daemon;
                let daemon = kept.take_if(|d| d.pid == pid && is_it(d))?;
                Some((run, Some(step), daemon))
            }
            Role::Spare(run) => {
                let spares = &mut self.jobs.get_mut(&run)?.spares;
                let at = spares.iter().position(|d| d.pid == pid && is_it(d))?;
                Some((run, None, spares.swap_remove(at)))
            }
            _ => None,
        }
    }

    fn put_back(&mut self, (run, step): (Run, Option<StepNo>), mut daemon: Daemon, open: bool) {
        let fd = daemon.control.as_raw_fd();
        self.lines.remove(&fd);
        let Some(step) = step else {
            return match self.jobs.get_mut(&run) {
                // It may take a step before it hears this: it is heard once more when it has ended.
                Some(entry) if daemon.stands && entry.ending.is_some() => {
                    let _ = daemon.tell(&Control::Leave);
                    self.roles.insert(daemon.pid, Role::Spare(run));
                    entry.spares.push(daemon);
                }
                _ => self.keep_daemon(run, daemon),
            };
        };
        self.roles.insert(daemon.pid, Role::Step(run, step));
        if !daemon.stands && open {
            self.lines.insert(fd, (run, step));
        }
        match self.step_proc(run, step) {
            Some(proc) => proc.daemon = Some(daemon),
            None => daemon.dismiss(),
        }
    }

    fn step_proc(&mut self, run: Run, step: StepNo) -> Option<&mut StepProc> {
        self.jobs.get_mut(&run)?.steps.get_mut(&step)
    }

    /// A daemon has taken a step; its number, unless the job is forgotten.
    fn step_taken(&mut self, taken: Taken, daemon: i32) -> Option<StepNo> {
        let Taken {
            run,
            step,
            pid,
            dirs,
            kept,
        } = taken;
        if let Err(why) = self.check_number(run, step) {
            // The agent has given out a number twice: the step is not known here, and must not run unseen.
            self.refusals
                .log(format_args!("step {}.{step}: {why}", run.0));
            sys::kill(daemon, libc::SIGKILL);
            return None;
        }
        let entry = self.jobs.get_mut(&run).filter(|e| !e.released)?;
        self.records.step(run, step, pid);
        for (key, bytes) in kept {
            self.records.keep(run, key, bytes.to_vec().into());
        }
        let proc = StepProc {
            dirs,
            taken: true,
            ..StepProc::new(pid, None)
        };
        entry.enter_step(step, proc);
        Some(step)
    }
}
