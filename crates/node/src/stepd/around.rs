//! Programs around a task: `TaskProlog`, `TaskEpilog` and the step's own, run as the user. A prolog's output changes
//! the task's environment as described in srun(1): `export NAME=value`, `unset NAME`, and `print TEXT` for its
//! standard output.

use super::program::TASK_PID;
use super::task_set::TaskSet;
use crate::job_files::{go_to, say};
use crate::sys;
use muster_node_core::signals;
use muster_node_core::stepd::EPILOG_KILLED;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit of `--task-epilog` (srun(1)).
const EPILOG_MAX: Duration = Duration::from_secs(5);

impl TaskSet {
    /// In a task's child, before exec: runs the prologs and applies their output.
    ///
    /// A failed prolog prevents the task from running; the error is the task's exit code.
    pub(super) fn run_prologs(&self, env: &mut Vec<CString>) -> Result<(), i32> {
        let programs = [
            ("TaskProlog", &self.order.task_prolog),
            ("--task-prolog", &self.order.launch.spec.task_prolog),
        ];
        if programs.iter().all(|(_, p)| p.is_none()) {
            return Ok(());
        }
        env.extend(own_pid());
        for (what, program) in programs {
            let Some(program) = program else { continue };
            let failed = |status: i32, why: &str| {
                say(&format!("{what} {program} failed status={status}: {why}"));
                status
            };
            if !program.starts_with('/') {
                return Err(failed(1, "it must be named with its whole path"));
            }
            let output = command(program, env)
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .output()
                .map_err(|e| failed(1, &e.to_string()))?;
            if !output.status.success() {
                let status = output.status.code().unwrap_or(1);
                return Err(failed(status, &output.status.to_string()));
            }
            apply(&output.stdout, env);
        }
        // The program gets the variable when it is executed.
        unset(env, TASK_PID);
        Ok(())
    }

    /// Forks a child that runs the epilogs of a task.
    pub(super) fn start_epilogs(&self, local: u32, global: u32) -> Option<i32> {
        let programs = [&self.order.launch.spec.task_epilog, &self.order.task_epilog];
        match sys::fork() {
            Ok(sys::Fork::Parent(pid)) => return Some(pid),
            Err(_) => return None,
            Ok(sys::Fork::Child) => {}
        }
        sys::restore_signals();
        if self.join_group().is_err() {
            sys::exit_now(0);
        }
        // Like a task, because it runs the user's program.
        sys::leave_protection();
        for limit in sys::with_first_limits(&self.order.limits) {
            let _ = sys::set_soft_limit(limit.resource, limit.value);
        }
        umask(Mode::from_bits_truncate(
            self.order.launch.spec.context.umask & 0o777,
        ));
        let needed = self.pmix.iter().flat_map(|pmix| pmix.of_task(local));
        sys::close_all_but(&needed.collect::<Vec<_>>());
        let user = &self.order.user;
        if Uid::effective().is_root() && sys::become_user(user.uid, user.gid, &user.groups).is_err()
        {
            sys::exit_now(0);
        }
        // An epilog in /tmp is better than none.
        let _ = go_to(&self.order.launch.spec.work_dir);
        // The log is not for it.
        let tmp_dir = self.make_tmp_dir(|_| {});
        let mut env = self.task_env(local, global, tmp_dir.as_deref());
        env.extend(own_pid());
        // The node's log must not contain texts of users, so the daemon informs the user.
        let mut failed = 0;
        for (position, program) in programs.into_iter().enumerate() {
            let Some(program) = program else { continue };
            let mut command = command(program, &env);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            // Only the user's own epilog has a time limit. Its result changes nothing.
            let patience = (position == 0).then_some(EPILOG_MAX);
            failed |= match run(command, patience) {
                Ok(true) => 0,
                Ok(false) => EPILOG_KILLED.cast_signed(),
                Err(_) => 1 << position,
            };
        }
        sys::exit_now(failed)
    }
}

/// Runs a program to its end, or kills it with its process group when its time is over; returns
/// whether it ended by itself.
fn run(mut command: Command, patience: Option<Duration>) -> io::Result<bool> {
    let Some(patience) = patience else {
        return command.status().map(|_| true);
    };
    let mut child = command.process_group(0).spawn()?;
    let pid = child.id().cast_signed();
    let end = sys::pidfd(pid)?;
    let mut ends = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    // A signal that arrives meanwhile is one that ends the step.
    let has_ended = !matches!(poll(&mut ends, timeout), Ok(0));
    if !has_ended {
        let _ = sys::kill(-pid, signals::SIGKILL);
    }
    child.wait()?;
    Ok(has_ended)
}

/// The variable with this process's id.
fn own_pid() -> Option<CString> {
    CString::new(format!("{TASK_PID}={}", std::process::id())).ok()
}

fn command(program: &str, env: &[CString]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    for variable in env {
        let bytes = variable.as_bytes();
        if let Some(at) = bytes.iter().position(|b| *b == b'=') {
            command.env(
                OsStr::from_bytes(&bytes[..at]),
                OsStr::from_bytes(&bytes[at + 1..]),
            );
        }
    }
    command
}

fn apply(output: &[u8], env: &mut Vec<CString>) {
    for line in output.split(|b| *b == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        if let Some(text) = line.strip_prefix("print ") {
            use std::io::Write;
            let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
            let _ = std::io::stdout().flush();
        } else if let Some(name) = line.strip_prefix("unset ") {
            unset(env, name.trim());
        } else if let Some((name, value)) =
            line.strip_prefix("export ").and_then(|l| l.split_once('='))
        {
            unset(env, name.trim());
            env.extend(CString::new(format!("{}={value}", name.trim())).ok());
        }
    }
}

fn unset(env: &mut Vec<CString>, name: &str) {
    env.retain(|v| {
        let rest = v.as_bytes().strip_prefix(name.as_bytes());
        rest.is_none_or(|rest| rest.first() != Some(&b'='))
    });
}
