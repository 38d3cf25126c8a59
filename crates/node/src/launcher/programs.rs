//! Processes that run the site's programs: those around jobs, one after the other up to the first
//! failure, and those that concern the node itself.

use crate::job_files::open_as;
use crate::os_error::is_temporary;
use crate::sys;
use muster_node_core::exit_status::exit_status;
use muster_node_core::launcher::interface::JobProgramKind;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, execve, setsid};
use std::ffi::CString;
use std::io;
use std::time::Duration;

/// Variable that names the running program.
const CONTEXT: &str = "SLURM_SCRIPT_CONTEXT";
/// Wait before a program is tried again after no process could be created.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Number of attempts before the program counts as failed.
const TRIES_MAX: u32 = 60;

/// Forks a child that runs programs one after the other, up to the first failure.
pub(super) fn start(
    kind: JobProgramKind,
    programs: &[String],
    mut env: Vec<String>,
) -> io::Result<i32> {
    let context = match kind {
        JobProgramKind::Prolog => "prolog_slurmd",
        JobProgramKind::Epilog(_) => "epilog_slurmd",
        JobProgramKind::Unkillable => "unkillable_step",
        // These kinds have no programs.
        JobProgramKind::Container | JobProgramKind::ContainerRemoval => "",
    };
    env.push(format!("{CONTEXT}={context}"));
    if let JobProgramKind::Epilog(Some(status)) = kind {
        let exit = exit_status(status);
        env.push(format!("SLURM_JOB_EXIT_CODE={status}"));
        env.push(format!(
            "SLURM_JOB_EXIT_CODE2={}:{}",
            exit.code, exit.signal
        ));
    }
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => sys::exit_now(run(programs, &env)),
    }
}

/// In a child of the launcher: resets session, signals, streams and limits. Standard error remains
/// the log.
///
/// # Errors
/// The reason for the failure.
pub(super) fn leave_launcher() -> Result<(), String> {
    sys::restore_signals();
    sys::leave_protection();
    umask(Mode::from_bits_truncate(0o022));
    setsid()
        .and_then(|_| chdir("/"))
        .map_err(|e| e.to_string())
        .and_then(|()| open_as("/dev/null", OFlag::O_RDONLY, 0))
        .and_then(|()| open_as("/dev/null", OFlag::O_WRONLY, 1))?;
    // This process may wait for programs, and must not keep the launcher's sockets open meanwhile.
    sys::close_from(3);
    for limit in sys::with_first_limits(&[]) {
        let _ = sys::set_soft_limit(limit.resource, limit.value);
    }
    Ok(())
}

fn run(programs: &[String], env: &[String]) -> i32 {
    if let Err(e) = leave_launcher() {
        eprintln!("a program around a job cannot be run: {e}");
        return 1;
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

/// Forks, in a process that may wait: retries for a while if no process can be created.
fn fork_patiently() -> io::Result<sys::Fork> {
    for _ in 0..TRIES_MAX {
        match sys::fork() {
            Err(e) if is_temporary(&e) => std::thread::sleep(TRY_AGAIN),
            forked => return forked,
        }
    }
    sys::fork()
}

/// Executes a program; returns an exit code if it cannot.
fn execute(program: &str, env: &[CString]) -> i32 {
    let Ok(path) = CString::new(program) else {
        return 1;
    };
    let Err(e) = execve(&path, &[&path], env);
    eprintln!("{program}: {}", e.desc());
    127
}

/// Starts a program that concerns the node. Its output is discarded; only its actions matter.
pub(super) fn start_of_site(program: &str, env: &[String]) -> io::Result<i32> {
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => {
            let quiet = open_as("/dev/null", OFlag::O_WRONLY, 2);
            sys::exit_now(match quiet {
                Ok(()) => run(&[program.to_owned()], env),
                Err(_) => 1,
            })
        }
    }
}
