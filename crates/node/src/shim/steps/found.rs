//! Step daemons that an earlier shim forked. They listen still: a new shim asks each what it runs, and the connection
//! becomes the line that the daemon has lost with the shim before. What it runs may be on no file: the agent gives steps
//! to daemons that wait for one and tells the shim afterwards, and both may be lost in between. Such a daemon knows what
//! the shim would have kept of the step; where it has ended meanwhile, its result says it.

use super::{Daemon, EncodedEnd, StepProc};
use crate::shim::jobs::{Role, Shim};
use crate::{stepd, sys};
use muster_core::ids::{Attempt, JobId, StepNo};
use muster_node_core::messages::{JobAttempt, KeptEntries, LauncherEvent, RunningStep, StepdEvent};
use muster_node_core::stepd_reuse::result_path;
use muster_proto::frame::{self, Frames};
use muster_proto::step::ToStepd;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a shim waits for answers before it listens itself. Later ones are sent to the agent when they come.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

impl Daemon {
    /// Asks the daemon that listens there what it runs.
    fn ask(socket: PathBuf) -> io::Result<Daemon> {
        let control = UnixStream::connect(&socket)?;
        control.set_nonblocking(true)?;
        frame::write(&mut &control, &ToStepd::Adopt)
            .map_err(|e| io::Error::other(e.to_string()))?;
        Ok(Daemon {
            pid: 0,
            control,
            input: Frames::default(),
            socket,
            has_agent_channel: false,
            adopted: true,
        })
    }

    /// What it has answered, once it has.
    ///
    /// # Errors
    /// It does not answer.
    fn answer(&mut self) -> io::Result<Option<RunningStep>> {
        let open = self.read();
        match self.input.take() {
            Ok(Some(StepdEvent::StepRunning(running))) => Ok(Some(*running)),
            Ok(None) => open.map(|()| None),
            Ok(Some(_)) => Err(io::ErrorKind::InvalidData.into()),
            Err(e) => Err(io::Error::other(e.to_string())),
        }
    }
}

impl Shim {
    /// Looks for daemons of an earlier shim's, and for results of steps that it did not know.
    pub(in crate::shim) fn find_steps(&mut self) {
        for (path, name) in self.step_files() {
            if !name.ends_with(".sock") {
                continue;
            }
            match Daemon::ask(path.clone()) {
                Ok(daemon) => self.asked.push(daemon),
                // Its daemon has ended.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(path);
                }
                Err(e) => eprintln!("{name}: {e}"),
            }
        }
        let until = Instant::now() + ANSWER_WAIT;
        while !self.asked.is_empty() {
            let wait = until.saturating_duration_since(Instant::now()).as_millis();
            let entry = |daemon: &Daemon| libc::pollfd {
                fd: daemon.control.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut fds: Vec<libc::pollfd> = self.asked.iter().map(entry).collect();
            if wait == 0 || sys::poll(&mut fds, i32::try_from(wait).unwrap_or(0)).is_err() {
                break;
            }
            for fd in fds.iter().filter(|fd| fd.revents != 0) {
                self.on_adoption_reply(fd.fd);
            }
        }
        // A daemon that ended before it was asked has left its result by now.
        self.find_results();
    }

    /// A daemon that was asked has something to say, if it is one.
    pub(in crate::shim) fn on_adoption_reply(&mut self, fd: RawFd) {
        let is_it = |d: &Daemon| d.control.as_raw_fd() == fd;
        let Some(at) = self.asked.iter().position(is_it) else {
            return;
        };
        match self.asked[at].answer() {
            Ok(None) => {}
            Ok(Some(running)) => {
                let daemon = self.asked.swap_remove(at);
                self.adopt(daemon, running);
            }
            // It has ended, or its version does not know the question.
            Err(_) => {
                self.asked.swap_remove(at);
                self.find_results();
            }
        }
    }

    fn adopt(&mut self, mut daemon: Daemon, running: RunningStep) {
        let RunningStep {
            run,
            step,
            pid,
            dirs,
            kept,
        } = running;
        daemon.pid = pid;
        let fd = daemon.control.as_raw_fd();
        let Some(entry) = self.jobs.get_mut(&run).filter(|e| !e.released) else {
            // Nobody knows of the job any more.
            return daemon.dismiss();
        };
        let ending = entry.ending.is_some();
        match entry.steps.get_mut(&step) {
            Some(proc) if proc.ended.is_some() => return daemon.dismiss(),
            Some(proc) => proc.daemon = Some(daemon),
            None => {
                if !dirs.is_empty() {
                    self.records.step_dirs(run, step, &dirs);
                }
                self.records.step(run, step, pid);
                let proc = StepProc {
                    dirs,
                    ..StepProc::new(pid, Some(daemon))
                };
                entry.enter_step(step, proc);
                self.record_adopted_step(run, step, kept);
                if !self.watch_daemon(run, step, pid) {
                    return self.step_ended(run, step);
                }
            }
        }
        self.end_steps_before(run, step, pid);
        self.lines.insert(fd, (run, step));
        if ending {
            self.end_step(run, step);
        }
        // It may have ended since.
        self.receive_from_daemon(fd);
    }

    /// Steps that a daemon had before this one have ended, which the launcher before had not received.
    fn end_steps_before(&mut self, run: JobAttempt, step: StepNo, pid: i32) {
        let entry = self.jobs.get(&run);
        let steps = entry.into_iter().flat_map(|e| &e.steps);
        let earlier: Vec<StepNo> = steps
            .filter(|(no, proc)| **no != step && proc.pid == pid && proc.ended.is_none())
            .map(|(no, _)| *no)
            .collect();
        let of_step = Role::Step(run, step);
        self.watched.retain(|w| w.pid != pid || w.role == of_step);
        for step in earlier {
            // A daemon that goes on to another step leaves what was not received.
            let result = stepd::read_result(&result_path(&self.spool, run, step));
            let end = result.map_or_else(super::lost, |(end, _)| end);
            self.end_of_step(run, step, EncodedEnd::of(&end), false);
        }
    }

    /// Takes in results of steps that are known from nowhere else.
    fn find_results(&mut self) {
        for (path, name) in self.step_files() {
            let Some((run, step)) = step_of_result(&name) else {
                continue;
            };
            let Some(entry) = self.jobs.get(&run).filter(|e| !e.released) else {
                continue;
            };
            if entry.steps_gone.contains(&step) {
                let _ = fs::remove_file(path);
                continue;
            }
            if entry.steps.contains_key(&step) {
                continue;
            }
            let Some((end, kept)) = stepd::read_result(&path) else {
                continue;
            };
            if let Some(entry) = self.jobs.get_mut(&run) {
                entry.enter_step(step, StepProc::new(0, None));
            }
            self.record_adopted_step(run, step, kept);
            self.end_of_step(run, step, EncodedEnd::of(&end), false);
        }
    }

    /// What was to be kept of a step that nobody had reported.
    fn record_adopted_step(&mut self, run: JobAttempt, step: StepNo, kept: KeptEntries) {
        eprintln!("step {}.{} was not on file", run.job, step.0);
        for (key, bytes) in &kept {
            if !self.records.keeps(run, *key) {
                self.records.keep(run, *key, bytes.clone());
            }
        }
        self.emit(&LauncherEvent::StepFound { run, step, kept });
    }

    /// What is kept of a step, for its daemon.
    pub(super) fn kept_of(&self, run: JobAttempt, step: StepNo) -> KeptEntries {
        let kept = self.records.kept(run);
        let of_step = kept.filter(|(key, _)| muster_node_core::kept::is_kept_of(*key, step));
        of_step.map(|(key, bytes)| (key, bytes.clone())).collect()
    }

    /// Files of steps in the spool directory, with their names.
    fn step_files(&self) -> Vec<(PathBuf, String)> {
        let files = fs::read_dir(&self.spool);
        let named = |path: PathBuf| {
            let name = path.file_name()?.to_str()?.to_owned();
            name.starts_with("step-").then_some((path, name))
        };
        let files = files.into_iter().flatten().flatten();
        files.filter_map(|file| named(file.path())).collect()
    }
}

/// The step that a file is the result of ([`result_path`]).
fn step_of_result(name: &str) -> Option<(JobAttempt, StepNo)> {
    let numbers = name.strip_prefix("step-")?.strip_suffix(".end")?;
    let mut numbers = numbers.split('.');
    let job = numbers.next()?.parse().ok()?;
    let attempt = numbers.next()?.parse().ok()?;
    let step = numbers.next()?.parse().ok()?;
    let run = JobAttempt::new(JobId(job), Attempt(attempt));
    numbers.next().is_none().then_some((run, StepNo(step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn results_are_known_by_their_names() {
        let run = JobAttempt::new(JobId(7), Attempt(2));
        let path = result_path(Path::new("/spool"), run, StepNo(3));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(step_of_result(name), Some((run, StepNo(3))));
        for other in [
            "step-7.3.sock",
            "step-7.2.3.next",
            "step-7.2.3.4.end",
            "7.2.3.end",
        ] {
            assert_eq!(step_of_result(other), None, "{other}");
        }
    }
}
