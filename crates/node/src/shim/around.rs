//! `Prolog` and `Epilog`: programs of the site that run as the shim's own user, root as a rule, before a job begins on
//! this node and after the last of it is gone. A job's launch and its steps wait for the former, its release for the
//! latter. What these programs leave in the background is the site's, and left alone.

use super::batch::Launch;
use super::files::open_as;
use super::jobs::{Role, Shim};
use super::records::Fault;
use super::waiting::{TRIES_MAX, TRY_AGAIN, fault_of};
use crate::descriptors::OrderFds;
use crate::sys;
use muster_node_core::messages::{JobAttempt, LauncherEvent, StepOrder};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, execve, setsid};
use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

/// Steps that wait for one job to begin.
const EARLY_MAX: usize = 4096;
/// Names which of the programs runs, in its environment.
const CONTEXT: &str = "SLURM_SCRIPT_CONTEXT";
/// The context of `UnkillableStepProgram`.
const UNKILLABLE: &str = "unkillable_step";

impl Shim {
    /// Runs the prolog of a job that is on file; its launch, if it has one here, waits.
    pub(super) fn start_prolog(&mut self, run: JobAttempt, held: Option<Box<Launch>>) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        entry.pending_launch = held;
        let around = entry.prolog_epilog.clone().unwrap_or_default();
        match fork_programs(&around.prolog, &around.env, "prolog_slurmd", None) {
            Ok(pid) => {
                self.roles.insert(pid, Role::Prolog(run));
                if let Some(entry) = self.jobs.get_mut(&run) {
                    entry.prolog = Some(pid);
                    entry.prolog_tries = 0;
                }
                self.limit_program(run, around.prolog_timeout_s);
            }
            Err(e) => self.prolog_not_started(run, &e),
        }
    }

    /// There are no processes left, as a rule, which users can use up: it is tried again for a while.
    pub(super) fn prolog_not_started(&mut self, run: JobAttempt, e: &io::Error) {
        let is_temporary = super::scripts::is_temporary(e);
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        if is_temporary && entry.prolog_tries < TRIES_MAX {
            if entry.prolog_tries == 0 {
                eprintln!("job {}: Prolog: fork: {e}; it is tried again", run.job);
            }
            entry.prolog_tries += 1;
            self.retries.insert((Instant::now() + TRY_AGAIN, run));
            return;
        }
        entry.prolog_tries = 0;
        entry.pending_launch = None;
        self.fail(run, format!("Prolog: fork: {e}"), fault_of(is_temporary));
        self.start_early_steps(run);
    }

    pub(super) fn prolog_ended(&mut self, run: JobAttempt, status: i32) {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return;
        };
        entry.prolog = None;
        let late = self.program_ends.remove(&run) == Some(None);
        let held = entry.pending_launch.take();
        if status != 0 && !self.killing {
            let programs = entry
                .prolog_epilog
                .as_ref()
                .map_or_else(String::new, |a| a.prolog.join(", "));
            let error = format!("Prolog {programs} failed: {}", describe(status, late));
            eprintln!("job {}: {error}", run.job);
            self.fail(run, error, Fault::Prolog);
        } else if entry.ending.is_none() {
            self.records.prolog_over(run, sys::boot_ms());
            if let Some(order) = held {
                self.fork_script(*order);
            }
        }
        // These are refused where the job is ending now.
        self.start_early_steps(run);
        self.unsettled = true;
    }

    /// Keeps a step's start until its job has begun, with its prolog, and the user's groups are known; gives it back if there
    /// is nothing to wait for.
    pub(super) fn wait_for_job(
        &mut self,
        order: Box<StepOrder>,
        with: OrderFds,
    ) -> Option<(Box<StepOrder>, OrderFds)> {
        let run = order.run;
        let Some(entry) = self.jobs.get(&run).filter(|e| !e.is_leaving()) else {
            return Some((order, with));
        };
        let has_prolog = entry.prolog.is_some() || entry.prolog_tries > 0;
        let mut waits = has_prolog || entry.waiting.is_some();
        if !waits && entry.user.is_none() {
            // An earlier launcher has begun the job.
            let grant = entry.grant.clone();
            let user = grant.and_then(|grant| self.user_of(&grant.spec.owner));
            waits = user.is_none();
            if waits {
                self.without_groups.insert(run);
            }
            if let Some(entry) = self.jobs.get_mut(&run) {
                entry.user = user;
            }
        }
        match self.jobs.get_mut(&run).filter(|_| waits) {
            Some(entry) if entry.pending_steps.len() < EARLY_MAX => {
                entry.pending_steps.push((order, with));
                None
            }
            Some(_) => {
                let (run, step) = (order.run, order.launch.step);
                let error = "too many steps wait for the job to begin".to_owned();
                self.emit(&LauncherEvent::StepFailed { run, step, error });
                None
            }
            None => Some((order, with)),
        }
    }

    /// The last of a job is gone: whether its epilog has to run, and does so from now on.
    pub(super) fn start_epilog(&mut self, run: JobAttempt) -> bool {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return false;
        };
        let programs = entry
            .prolog_epilog
            .as_ref()
            .filter(|a| !a.epilog.is_empty());
        let Some(around) = programs.cloned() else {
            return false;
        };
        if self.killing || std::mem::replace(&mut entry.epilog_began, true) {
            return false;
        }
        let status = match &entry.outcome {
            Some(LauncherEvent::BatchEnded { status, .. }) => Some(*status),
            _ => None,
        };
        match fork_programs(&around.epilog, &around.env, "epilog_slurmd", status) {
            Ok(pid) => {
                self.roles.insert(pid, Role::Epilog(run));
                entry.epilog = Some(pid);
                self.limit_program(run, around.epilog_timeout_s);
                true
            }
            Err(e) => {
                eprintln!("job {}: Epilog: fork: {e}", run.job);
                let again = super::scripts::is_temporary(&e);
                if again && let Some(entry) = self.jobs.get_mut(&run) {
                    // No job ends without it because users have used up all processes.
                    entry.epilog_began = false;
                    self.retries.insert((Instant::now() + TRY_AGAIN, run));
                }
                again
            }
        }
    }

    pub(super) fn epilog_ended(&mut self, run: JobAttempt, status: i32) {
        let late = self.program_ends.remove(&run) == Some(None);
        let mut programs = String::new();
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.epilog = None;
            programs = entry
                .prolog_epilog
                .as_ref()
                .map_or_else(String::new, |a| a.epilog.join(", "));
        }
        if status != 0 && !self.killing {
            let error = format!("Epilog error: {programs}: {}", describe(status, late));
            self.tell_fault(run, error);
        }
        self.unsettled = true;
    }

    /// Kills a program that runs around a job when it has run for so long.
    fn limit_program(&mut self, run: JobAttempt, timeout_s: Option<u32>) {
        if let Some(timeout_s) = timeout_s {
            let end = Instant::now() + Duration::from_secs(timeout_s.into());
            self.program_ends.insert(run, Some(end));
        }
    }

    /// Kills programs around jobs whose time is over.
    pub(super) fn end_late_programs(&mut self) {
        let now = Instant::now();
        for (run, end) in &mut self.program_ends {
            if end.take_if(|end| *end <= now).is_none() {
                continue;
            }
            let entry = self.jobs.get(run);
            let pids = entry.map(|e| [e.prolog, e.epilog]).unwrap_or_default();
            for pid in pids.into_iter().flatten() {
                sys::kill(-pid, libc::SIGKILL);
            }
        }
    }

    /// Runs the site's program for processes of a job that survive SIGKILL.
    pub(super) fn run_unkillable(&mut self, run: JobAttempt, program: String) {
        let around = self.jobs.get(&run).and_then(|e| e.prolog_epilog.clone());
        let mut env = around.map(|a| a.env).unwrap_or_default();
        if env.is_empty() {
            env.push(format!("SLURM_JOB_ID={}", run.job));
            env.push(format!("SLURMD_NODENAME={}", self.place.node));
        }
        match fork_programs(&[program], &env, UNKILLABLE, None) {
            Ok(pid) => {
                self.roles.insert(pid, Role::Other);
            }
            Err(e) => eprintln!("job {}: UnkillableStepProgram: fork: {e}", run.job),
        }
    }

    /// Kills programs that run around jobs; no more are started.
    pub(super) fn end_programs(&mut self) {
        self.killing = true;
        for entry in self.jobs.values() {
            for pid in [entry.prolog, entry.epilog].into_iter().flatten() {
                // They lead their sessions and thus their groups.
                sys::kill(-pid, libc::SIGKILL);
            }
        }
    }
}

/// Forks a child that runs programs one after the other, up to the first that fails.
fn fork_programs(
    programs: &[String],
    env: &[String],
    context: &str,
    job_status: Option<i32>,
) -> std::io::Result<i32> {
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => {
            let mut env = env.to_vec();
            env.push(format!("{CONTEXT}={context}"));
            if let Some(status) = job_status {
                let exit = muster_node_core::exit_status::exit_status(status);
                env.push(format!("SLURM_JOB_EXIT_CODE={status}"));
                env.push(format!(
                    "SLURM_JOB_EXIT_CODE2={}:{}",
                    exit.code, exit.signal
                ));
            }
            sys::exit_now(run_programs(programs, &env))
        }
    }
}

pub(super) fn run_programs(programs: &[String], env: &[String]) -> i32 {
    sys::restore_signals();
    sys::leave_protection();
    umask(Mode::from_bits_truncate(0o022));
    let ready = setsid()
        .and_then(|_| chdir("/"))
        .map_err(|e| e.to_string())
        .and_then(|()| open_as("/dev/null", OFlag::O_RDONLY, 0))
        .and_then(|()| open_as("/dev/null", OFlag::O_WRONLY, 1));
    if let Err(e) = ready {
        eprintln!("a program around a job cannot be run: {e}");
        return 1;
    }
    // Standard error stays the shim's log. This process may wait for programs, and must not keep the shim's sockets open.
    sys::close_from(3);
    for (resource, soft) in sys::with_first_limits(&[]) {
        let _ = sys::set_soft_limit(resource, soft);
    }
    let env: Vec<CString> = env
        .iter()
        .filter_map(|v| CString::new(v.as_str()).ok())
        .collect();
    let Some((last, before)) = programs.split_last() else {
        return 0;
    };
    for program in before {
        let code = match fork_patiently() {
            Ok(sys::Fork::Child) => sys::exit_now(execute(program, &env)),
            Ok(sys::Fork::Parent(pid)) => match waitpid(Pid::from_raw(pid), None) {
                Ok(WaitStatus::Exited(_, code)) => code,
                Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
                _ => 1,
            },
            Err(e) => {
                eprintln!("{program}: fork: {e}");
                1
            }
        };
        if code != 0 {
            return code;
        }
    }
    execute(last, &env)
}

/// Forks, in a process that may wait: for a while, if there are no processes left.
fn fork_patiently() -> io::Result<sys::Fork> {
    for _ in 0..TRIES_MAX {
        match sys::fork() {
            Err(e) if super::scripts::is_temporary(&e) => std::thread::sleep(TRY_AGAIN),
            forked => return forked,
        }
    }
    sys::fork()
}

/// Becomes a program; gives an exit code if it cannot.
fn execute(program: &str, env: &[CString]) -> i32 {
    let Ok(path) = CString::new(program) else {
        return 1;
    };
    let Err(e) = execve(&path, &[&path], env);
    eprintln!("{program}: {}", e.desc());
    127
}

pub(super) fn describe(status: i32, late: bool) -> String {
    let exit = muster_node_core::exit_status::exit_status(status);
    if late && exit.signal == libc::SIGKILL as u32 {
        "it ran longer than PrologEpilogTimeout and was killed".to_owned()
    } else if exit.signal != 0 {
        format!("it was killed by signal {}", exit.signal)
    } else {
        format!("exit status {}", exit.code)
    }
}
