//! salloc: a command, or a shell, that runs here while it holds an allocation.

use crate::clusters;
use crate::say::Say;
use crate::submit::capture;
use crate::submit::filters::Filters;
use crate::submit::holder::{Holder, NotGranted, timeout};
use crate::submit::line::{self, SubmitLine};
use crate::submit::signals::Signals;
use crate::submit::verbose;
use muster_conf::options::{OptionCommand as Program, values};
use muster_model::job::{ExitStatus, JobState};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access, getpgrp, tcgetpgrp, tcsetpgrp};
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

const PREFIX: &str = "Job submit/allocate failed";

/// Runs salloc.
pub(crate) fn main(args: &[String]) -> ExitCode {
    main_with_marks(args, &[])
}

/// Runs salloc for a command whose jobs say more than its options do.
pub(crate) fn main_with_marks(args: &[String], marks: &[(String, String)]) -> ExitCode {
    run(args, marks).unwrap_or_else(|code| code)
}

fn run(args: &[String], marks: &[(String, String)]) -> Result<ExitCode, ExitCode> {
    let filters = Filters::of_site(Program::Salloc, args)?;
    let mut lines = line::read(Program::Salloc, args, &filters)?;
    filters.pre_submit(&mut lines)?;
    line::take_hostfile(&mut lines);
    verbose::list_options(&lines);
    let mut specs = Vec::with_capacity(lines.len());
    for line in &mut lines {
        specs.push(line::build(line, PREFIX)?.spec);
    }
    let words = lines.last().map(|line| line.words.clone());
    let mut line = lines.swap_remove(0);
    line.words = words.unwrap_or_default();
    let kill_signal = kill_signal(&line)?;
    if let Some(why) = line.chosen.value("chdir").and_then(no_directory) {
        line.say.error(&why);
        return Err(line.say.failed());
    }
    if line.chosen.has("get-user-env")
        && let Some(why) =
            no_login_environment(nix::unistd::geteuid().is_root(), line.chosen.has("uid"))
    {
        line.say.error(why);
        return Err(line.say.failed());
    }
    let no_shell = line.chosen.has("no-shell");
    if no_shell && !line.words.is_empty() {
        line.say
            .warning("--no-shell is given: the command is not run");
    }
    for (spec, number) in specs.iter_mut().zip(0..) {
        if spec.name.is_empty() {
            let name = if no_shell { "no-shell" } else { "interactive" };
            name.clone_into(&mut spec.name);
        }
        spec.argv = line.words.clone();
        spec.submit_line = line::submit_line("salloc", args);
        spec.shown.extend(marks.iter().cloned());
        // The holder of the first component holds all.
        spec.interactive = number == 0 && !no_shell;
    }
    let holder = Holder::obtain(&line, specs, PREFIX).map_err(|NotGranted(code)| code)?;
    let say = line.say;
    filters.post_submit(0, holder.job.0, None);
    say.info(&format!("Granted job allocation {}", holder.job));
    if wants_bell(&line) {
        let _ = std::io::stdout().write_all(b"\x07");
        let _ = std::io::stdout().flush();
    }
    if no_shell {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(run_command(&line, holder, kill_signal))
}

fn wants_bell(line: &SubmitLine) -> bool {
    match line.chosen.strongest(&["bell", "no-bell"]) {
        Some(given) => given.row.long == "bell",
        None => false,
    }
}

/// Why the command cannot run in a directory, found before there is an allocation.
fn no_directory(dir: &str) -> Option<String> {
    let error = access(&Path::new(dir).join("."), AccessFlags::X_OK).err()?;
    Some(format!("chdir({dir}): {}", error.desc()))
}

/// Why `--get-user-env` cannot be followed. As in Slurm it is root's; a login shell of another user would run as root.
fn no_login_environment(is_root: bool, for_other: bool) -> Option<&'static str> {
    match (is_root, for_other) {
        (false, _) => Some("SlurmdUser must be root to use --get-user-env"),
        (true, true) => Some("--get-user-env with --uid is not implemented"),
        (true, false) => None,
    }
}

/// `--kill-command`: the signal, if the option was given.
fn kill_signal(line: &SubmitLine) -> Result<Option<Signal>, ExitCode> {
    let Some(given) = line.chosen.get("kill-command") else {
        return Ok(None);
    };
    let number = match given.value.as_deref() {
        None => Some(15),
        Some(text) => values::signal(text),
    };
    number
        .and_then(|n| Signal::try_from(i32::try_from(n).ok()?).ok())
        .map(Some)
        .ok_or_else(|| {
            line.say.error("Invalid --kill-command specification");
            ExitCode::from(255)
        })
}

/// The command, its place on the terminal, and the allocation.
struct AllocationSession {
    say: Say,
    holder: Holder,
    child: Pid,
    /// Whether the terminal was handed to the command.
    terminal: bool,
    kill_signal: Option<Signal>,
    /// The end of the allocation was announced.
    revoked: bool,
}

fn run_command(line: &SubmitLine, holder: Holder, kill_signal: Option<Signal>) -> ExitCode {
    let say = line.say;
    let signals = match Signals::catch(&[
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGTSTP,
        Signal::SIGTTOU,
    ]) {
        Ok(signals) => signals,
        Err(e) => return say.fatal(&format!("signalfd: {e}")),
    };
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal() && tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp());
    let mut command = command(line, &holder);
    command.process_group(0);
    begin_clean(&mut command, terminal);
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)),
        Err(e) => {
            let program = command.get_program().to_string_lossy().into_owned();
            use std::io::ErrorKind::{NotFound, PermissionDenied};
            say.error(&match e.kind() {
                NotFound | PermissionDenied => {
                    format!("_fork_command: Unable to find command \"{program}\"")
                }
                _ => format!("Unable to exec command \"{program}\": {e}"),
            });
            say.info(&format!("Relinquishing job allocation {}", holder.job));
            holder.finish(ExitStatus {
                code: 127,
                signal: 0,
            });
            return say.failed();
        }
    };
    let session = AllocationSession {
        say,
        holder,
        child,
        terminal,
        kill_signal,
        revoked: false,
    };
    session.watch(&signals)
}

/// The user's command, or the user's shell.
fn command(line: &SubmitLine, holder: &Holder) -> Command {
    let mut command = match line.words.split_first() {
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args);
            command
        }
        None => {
            let shell = std::env::var_os("SHELL").filter(|s| !s.is_empty());
            Command::new(shell.unwrap_or_else(|| OsString::from("/bin/sh")))
        }
    };
    let mut own = capture::own_environment();
    if line.chosen.has("get-user-env") {
        own = capture::over_login(&own, &line.say);
    }
    command.env_clear().envs(capture::pairs(&own));
    command.env("SLURM_SUBMIT_DIR", line::current_dir());
    for (name, value) in holder.variables() {
        if name != "SLURM_SUBMIT_DIR" {
            command.env(name, value);
        }
    }
    command.envs(clusters::working_cluster());
    if let Some(dir) = line.chosen.value("chdir") {
        command.current_dir(dir);
    }
    command
}

/// Prepares the new process before the command itself begins: its process group becomes the one in front on the
/// terminal, if there is one, and the signals that salloc reads from a descriptor are open to it again.
#[allow(unsafe_code)]
fn begin_clean(command: &mut Command, terminal: bool) {
    let begin = move || {
        if terminal {
            let mut quiet = SigSet::empty();
            quiet.add(Signal::SIGTTOU);
            quiet.thread_block()?;
            tcsetpgrp(std::io::stdin(), nix::unistd::getpid())?;
        }
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: between fork and exec only sigprocmask, tcsetpgrp and getpid are called, which are async-signal-safe;
    // `stdin()` hands out a handle that was made before the fork.
    unsafe {
        command.pre_exec(begin);
    }
}

impl AllocationSession {
    fn watch(mut self, signals: &Signals) -> ExitCode {
        loop {
            let mut fds = vec![PollFd::new(signals.fd(), PollFlags::POLLIN)];
            if !self.revoked
                && let Some(fd) = self.holder.fd()
            {
                fds.push(PollFd::new(fd, PollFlags::POLLIN));
            }
            let _ = poll(&mut fds, timeout(self.holder.wake()));
            while let Some(signal) = signals.take() {
                if let Some(status) = self.signal(signal) {
                    return self.end(status);
                }
            }
            if !self.revoked {
                self.poll_controller();
            }
        }
    }

    /// Reacts to a signal; the command's status when it ended.
    fn signal(&mut self, signal: Signal) -> Option<WaitStatus> {
        match signal {
            Signal::SIGCHLD => {
                let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
                match waitpid(self.child, Some(flags)) {
                    Ok(WaitStatus::Stopped(..)) => {
                        self.stop_too();
                        None
                    }
                    Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                        Some(status)
                    }
                    _ => None,
                }
            }
            // The terminal gives these to the group in front, which is the command's.
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP | Signal::SIGTTOU => None,
            other => {
                let _ = killpg(self.child, other);
                None
            }
        }
    }

    /// The command was stopped by the terminal: the shell that called salloc must get the terminal back.
    fn stop_too(&self) {
        if !self.terminal {
            return;
        }
        let stdin = std::io::stdin();
        let _ = tcsetpgrp(&stdin, getpgrp());
        let _ = raise(Signal::SIGSTOP);
        let _ = tcsetpgrp(&stdin, self.child);
        let _ = killpg(self.child, Signal::SIGCONT);
    }

    fn poll_controller(&mut self) {
        if let Err(error) = self.holder.read() {
            // Such as a job that is no longer known: the allocation is gone.
            self.say.error(&error.to_string());
            self.revoke(None);
        } else if let Some(ended) = self.holder.ended {
            self.revoke(Some(ended.state));
        }
    }

    fn revoke(&mut self, state: Option<JobState>) {
        self.revoked = true;
        let job = self.holder.job;
        match state {
            Some(JobState::Timeout) => self.say.info(&format!(
                "Job {job} has exceeded its time limit and its allocation has been revoked."
            )),
            _ => self
                .say
                .info(&format!("Job allocation {job} has been revoked.")),
        }
        // An interactive shell is hung up on; another command goes on unless the user asked otherwise.
        let signal = self.kill_signal.or(self.terminal.then_some(Signal::SIGHUP));
        if let Some(signal) = signal {
            let _ = killpg(self.child, signal);
            let _ = kill(self.child, Signal::SIGCONT);
        }
    }

    fn end(self, status: WaitStatus) -> ExitCode {
        if self.terminal {
            let _ = tcsetpgrp(std::io::stdin(), getpgrp());
        }
        let (exit, code) = match status {
            WaitStatus::Signaled(_, signal, _) => {
                let number = signal as u32;
                let exit = ExitStatus {
                    code: 0,
                    signal: number,
                };
                // A signal of the user to the command is no failure of salloc.
                let code = match signal {
                    Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGKILL => 0,
                    _ => 128 + number,
                };
                (exit, code)
            }
            WaitStatus::Exited(_, code) => {
                let code = u32::try_from(code).unwrap_or(1);
                (ExitStatus { code, signal: 0 }, code)
            }
            _ => (ExitStatus::default(), 0),
        };
        if !self.revoked {
            self.say
                .info(&format!("Relinquishing job allocation {}", self.holder.job));
            self.holder.finish(exit);
        }
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command was not found then, after there was an allocation for it.
    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let text = "chdir(/nosuch/x): No such file or directory";
        assert_eq!(no_directory("/nosuch/x").as_deref(), Some(text));
        let text = "chdir(/dev/null): Not a directory";
        assert_eq!(no_directory("/dev/null").as_deref(), Some(text));
        assert_eq!(no_directory("/"), None);
    }

    /// The option was taken and did nothing.
    #[test]
    fn login_environments_are_for_root() {
        let of_user = no_login_environment(false, false);
        assert_eq!(
            of_user,
            Some("SlurmdUser must be root to use --get-user-env")
        );
        assert!(no_login_environment(true, true).is_some());
        assert_eq!(no_login_environment(true, false), None);
    }
}
