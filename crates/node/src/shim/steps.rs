//! Step daemons from the shim's side: forked without exec, told of the job's end, collected with their result.

use super::jobs::{Role, Shim};
use super::processes::Containment;
use super::wire::{FromShim, Run, StepOrder};
use crate::{now, stepd, sys};
use muster_core::ids::StepNo;
use muster_core::job::{ExitStatus, JobState, StepEnd, Usage};
use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A step daemon.
#[derive(Debug)]
pub(super) struct StepProc {
    /// Its process; 0 for one that did not outlive an earlier shim.
    pub(super) pid: i32,
    /// Takes lines for the standard error of the step; lost with an earlier shim.
    pub(super) control: Option<UnixStream>,
    /// How its part of the step ended.
    pub(super) ended: Option<StepEnd>,
}

impl Shim {
    pub(super) fn start_step(&mut self, order: StepOrder) {
        let Some(order) = self.wait_for_prolog(order) else {
            return;
        };
        let (run, step) = (order.run, order.launch.step);
        let refused = match self.jobs.get(&run) {
            None => Some("the job is not on this node"),
            Some(e) if e.ending.is_some() => Some("the job is ending"),
            Some(e) if e.steps.contains_key(&step) => Some("the step exists"),
            Some(_) => None,
        };
        let started = match refused {
            Some(why) => Err(io::Error::other(why)),
            None => self.fork_step(&order),
        };
        let event = match started {
            Ok((socket, wire)) => FromShim::StepReady {
                run,
                step,
                socket: socket.to_string_lossy().into_owned(),
                wire,
            },
            Err(e) => FromShim::StepFailed {
                run,
                step,
                error: e.to_string(),
            },
        };
        self.emit(&event);
    }

    /// Gives where the daemon listens: for srun, and for the step's other nodes.
    fn fork_step(&mut self, order: &StepOrder) -> io::Result<(PathBuf, Option<String>)> {
        let (run, step) = (order.run, order.launch.step);
        let socket = self.step_socket(run, step);
        let listener = super::bind(&socket, 0o600)?;
        if nix::unistd::geteuid().is_root() {
            chown(&socket, Some(order.user.uid), Some(order.user.gid))?;
        }
        let wire = match &order.pmix {
            Some(pmix) => Some(listen_at(&pmix.listen)?),
            None => None,
        };
        let address = wire.as_ref().map(TcpListener::local_addr).transpose()?;
        let (control, far_end) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let setting = stepd::Setting {
            node: self.node.clone(),
            kill_wait: self.kill_wait,
            result: Shim::result_path(&self.spool, run, step),
        };
        match sys::fork()? {
            sys::Fork::Child => become_stepd(order, setting, &listener, &far_end, wire.as_ref()),
            sys::Fork::Parent(pid) => {
                self.records.step(run, step, pid);
                self.roles.insert(pid, Role::Step(run, step));
                let proc = StepProc {
                    pid,
                    control: Some(control),
                    ended: None,
                };
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.steps.insert(step, proc);
                }
                Ok((socket, address.map(|a| a.to_string())))
            }
        }
    }

    fn step_socket(&self, run: Run, step: StepNo) -> PathBuf {
        self.spool.join(format!("step-{}.{}.sock", run.0, step.0))
    }

    /// A step daemon ended: reads what it left.
    pub(super) fn step_ended(&mut self, run: Run, step: StepNo) {
        let _ = fs::remove_file(self.step_socket(run, step));
        let end = fs::read(Shim::result_path(&self.spool, run, step))
            .ok()
            .and_then(|bytes| minicbor::decode(&bytes).ok())
            .unwrap_or_else(lost);
        let Some(proc) = self.jobs.get_mut(&run).and_then(|e| e.steps.get_mut(&step)) else {
            return;
        };
        proc.ended = Some(end.clone());
        proc.control = None;
        self.emit(&FromShim::StepEnded {
            run,
            step,
            end: Box::new(end),
        });
        self.unsettled = true;
    }

    pub(super) fn forget_step(&mut self, run: Run, step: StepNo) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if entry.steps.get(&step).is_some_and(|s| s.ended.is_some()) {
            entry.steps.remove(&step);
            self.records.step_gone(run, step);
            let _ = fs::remove_file(Shim::result_path(&self.spool, run, step));
        }
    }

    /// Processes of the job's step daemons.
    pub(super) fn daemons(&self, run: Run) -> Vec<i32> {
        self.jobs.get(&run).map_or_else(Vec::new, |e| {
            let alive = e.steps.values().filter(|s| s.ended.is_none() && s.pid > 0);
            alive.map(|s| s.pid).collect()
        })
    }

    /// Tells all steps of a job to end, and their users why.
    pub(super) fn end_all_steps(&mut self, run: Run, message: Option<String>) {
        let node = self.node.clone();
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        for (step, proc) in entry.steps.iter_mut().filter(|(_, p)| p.ended.is_none()) {
            if let (Some(text), Some(control)) = (&message, &mut proc.control) {
                let text = format!(
                    "slurmstepd: error: *** STEP {}.{step} ON {node} {text} ***",
                    run.0
                );
                let line = stepd::Control::Text(text).line();
                // A daemon that does not read is being killed anyway.
                let _ = control.write_all(line.as_bytes());
            }
            sys::kill(proc.pid, libc::SIGTERM);
        }
    }

    /// Tells a step daemon that its tasks may run for another time. One whose line was lost with an earlier shim
    /// keeps its limit.
    pub(super) fn limit_step(&mut self, run: Run, step: StepNo, seconds: Option<u64>) {
        self.control_step(run, step, &stepd::Control::Limit(seconds));
    }

    /// Has a step daemon write a line to the standard error of its step, whichever node it is on.
    pub(super) fn tell_step(&mut self, run: Run, step: StepNo, text: String) {
        let line = format!("slurmstepd: error: {text}");
        self.control_step(run, step, &stepd::Control::Own(line));
    }

    fn control_step(&mut self, run: Run, step: StepNo, control: &stepd::Control) {
        let entry = self.jobs.get_mut(&run);
        let proc = entry.and_then(|e| e.steps.get_mut(&step));
        if let Some(stream) = proc.and_then(|p| p.control.as_mut()) {
            // A daemon that does not read is being killed.
            let _ = stream.write_all(control.line().as_bytes());
        }
    }

    pub(super) fn end_step(&mut self, run: Run, step: StepNo) {
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        if let Some(proc) = proc.filter(|p| p.ended.is_none()) {
            sys::kill(proc.pid, libc::SIGTERM);
        }
    }

    /// Signals all processes of a step; one that is to end it also ends a step whose tasks have not started.
    pub(super) fn signal_step(&mut self, run: Run, step: StepNo, signal: i32) {
        let proc = self.jobs.get(&run).and_then(|e| e.steps.get(&step));
        let Some(pid) = proc.filter(|p| p.ended.is_none()).map(|p| p.pid) else {
            return;
        };
        let tasks = self.tree.below(&[pid]);
        if tasks.is_empty() && matches!(signal, libc::SIGKILL | libc::SIGTERM | libc::SIGINT) {
            sys::kill(pid, libc::SIGTERM);
        }
        for task in tasks {
            sys::kill(task, signal);
        }
    }
}

/// In a fresh fork: keeps only what a step daemon needs.
fn become_stepd(
    order: &StepOrder,
    setting: stepd::Setting,
    listener: &UnixListener,
    control: &UnixStream,
    wire: Option<&TcpListener>,
) -> ! {
    // Above what the shim has open, so that neither overwrites the other; then down to fixed numbers.
    let moved = sys::dup_high(listener.as_raw_fd())
        .and_then(|l| sys::dup_high(control.as_raw_fd()).map(|c| (l, c)))
        .and_then(|(l, c)| {
            let wire = wire.map(|w| sys::dup_high(w.as_raw_fd())).transpose()?;
            sys::dup_to(l, 3)?;
            sys::dup_to(c, 4)?;
            wire.map_or(Ok(()), |wire| sys::dup_to(wire, 5))
        });
    if moved.is_err() {
        sys::exit_now(1);
    }
    sys::close_from(if wire.is_some() { 6 } else { 5 });
    let wire = wire.map(|_| TcpListener::from(sys::adopt(5)));
    let listener = UnixListener::from(sys::adopt(3));
    let control = UnixStream::from(sys::adopt(4));
    stepd::run(order, setting, listener, control, wire)
}

/// A listener for the step's other nodes, at a port of the kernel's choice.
fn listen_at(ip: &str) -> io::Result<TcpListener> {
    TcpListener::bind((ip, 0))
        .map_err(|e| io::Error::new(e.kind(), format!("cannot listen at {ip}: {e}")))
}

/// The end of a step whose daemon left no result: it was killed.
fn lost() -> StepEnd {
    StepEnd {
        end_time: now(),
        exit: ExitStatus {
            code: 0,
            signal: libc::SIGKILL.unsigned_abs(),
        },
        state: JobState::Failed,
        usage: Usage::default(),
        cancelled_by: None,
    }
}
