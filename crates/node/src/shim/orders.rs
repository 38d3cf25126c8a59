//! What the controller orders, from the batches that it has sealed: nothing else makes, signals or ends a job here.

use super::jobs::Shim;
use crate::{now, sys};
use minicbor::bytes::ByteVec;
use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{BlobId, StepNo};
use muster_node_core::messages::{JobAttempt, LauncherEvent};
use muster_proto::node::{JobGrant, NodeSettings, Order, Orders};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// File of the settings in the spool directory.
const SETTINGS: &str = "settings";

/// A grant as it is kept on file, and sent to agents.
pub(super) fn encoded(grant: &JobGrant) -> ByteVec {
    let bytes = minicbor::to_vec(grant).expect("writing to memory cannot fail");
    bytes.into()
}

/// What is printed on standard error when a job is ended.
fn end_message(why: TerminateReason, at: &str) -> Option<String> {
    let cause = match why {
        TerminateReason::Cancelled => "",
        TerminateReason::TimeLimit => " DUE TO TIME LIMIT",
        TerminateReason::Requeued => " DUE to JOB REQUEUE",
        TerminateReason::Preempted => " DUE TO PREEMPTION",
        TerminateReason::NodeFailure => " DUE TO NODE FAILURE",
        TerminateReason::Finished => return None,
    };
    Some(format!("CANCELLED AT {at}{cause}"))
}

impl Shim {
    /// The agent dials the controller.
    pub(super) fn open_session(&mut self) -> LauncherEvent {
        match self.session.open() {
            Ok(key) => LauncherEvent::SessionKey(key.to_vec().into()),
            Err(e) => LauncherEvent::SessionFailed(format!("no random numbers: {e}")),
        }
    }

    /// The controller has answered.
    pub(super) fn begin_session(&mut self, controller: &[u8]) -> LauncherEvent {
        let begun = self.session.begin(&self.spool, &self.place, controller);
        if begun.is_ok() {
            // It sends what later orders refer to once more.
            self.blobs.clear();
            self.contexts.clear();
            self.drop_unused_scripts();
        }
        LauncherEvent::SessionBegun(begun.err())
    }

    /// Carries out what the controller has sealed; an answer if it has not.
    pub(super) fn take_sealed(&mut self, orders: &[u8], seal: &[u8]) -> Option<LauncherEvent> {
        match self.session.check(&self.place, orders, seal) {
            Ok(orders) => {
                self.carry_out(orders);
                None
            }
            Err(e) => {
                eprintln!("orders are refused: {e}");
                Some(LauncherEvent::SessionFailed(e))
            }
        }
    }

    fn carry_out(&mut self, orders: Orders) {
        if let Some(settings) = orders.settings {
            self.apply_settings(*settings);
        }
        for (id, bytes) in orders.blobs {
            self.blobs.insert(id, Vec::from(bytes).into());
        }
        for order in orders.orders {
            if let Order::Launch(grant) = order {
                self.launch_job(Rc::new(*grant));
                continue;
            }
            self.launch();
            match order {
                Order::Launch(_) => {}
                Order::Terminate {
                    job,
                    attempt,
                    now: at_once,
                    why,
                } => {
                    let message = end_message(why, &sys::local_time(now().unix_s()));
                    self.terminate(JobAttempt::new(job, attempt), at_once, message);
                }
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                } => self.signal_ordered(JobAttempt::new(job, attempt), step, signal, scope),
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                } => self.limit_step(JobAttempt::new(job, attempt), step, limit.seconds()),
                Order::Tell { job, attempt, text } => {
                    self.tell_script(JobAttempt::new(job, attempt), &text, false);
                }
                Order::Reboot => self.reboot(),
            }
        }
        for id in orders.drop_blobs {
            self.blobs.remove(&id);
            self.contexts.remove(id);
            self.drop_script(id);
        }
    }

    fn apply_settings(&mut self, settings: NodeSettings) {
        self.launch();
        if settings != self.settings
            && let Err(e) = self.keep_settings(&settings)
        {
            eprintln!("{}: settings: {e}", self.spool.display());
        }
        self.use_settings(settings);
    }

    /// Keeps the settings for a launcher that has to do without the controller.
    fn keep_settings(&self, settings: &NodeSettings) -> io::Result<()> {
        let path = self.spool.join(SETTINGS);
        let next = path.with_extension("next");
        let _ = fs::remove_file(&next);
        let options = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next);
        let bytes = minicbor::to_vec(settings).expect("writing to memory cannot fail");
        options?.write_all(&bytes)?;
        fs::rename(next, path)
    }

    /// Takes over the settings that an earlier launcher has kept.
    pub(super) fn read_settings(&mut self) {
        let kept = fs::read(self.spool.join(SETTINGS)).unwrap_or_default();
        if let Ok(settings) = minicbor::decode(&kept) {
            self.use_settings(settings);
            // Nobody has asked for a health check yet.
            self.site.forget_settings();
        }
    }

    fn use_settings(&mut self, settings: NodeSettings) {
        if settings.kill_wait_s > 0 {
            self.kill_wait = Duration::from_secs(settings.kill_wait_s.into());
        }
        let timeout = Some(settings.unkillable_timeout_s).filter(|s| *s > 0);
        self.unkillable = timeout.map(|s| {
            let timeout = Duration::from_secs(s.into());
            (timeout, settings.unkillable_program.clone())
        });
        self.site.configure(settings.health_check.as_ref());
        self.settings = settings;
    }

    fn signal_ordered(
        &mut self,
        run: JobAttempt,
        step: Option<StepNo>,
        signal: u32,
        scope: SignalScope,
    ) {
        let Ok(signal) = i32::try_from(signal) else {
            return;
        };
        let signal = match (step, scope, signal) {
            (None, SignalScope::Full, libc::SIGSTOP) if self.stop_is_announced(run) => {
                libc::SIGTSTP
            }
            (None, SignalScope::Full, libc::SIGCONT) => {
                self.stops.remove(&run);
                signal
            }
            _ => signal,
        };
        self.signal(run, step, signal, scope);
    }

    /// Whether a job that is to be stopped gets a signal first that it can prepare itself at; then it is stopped later.
    fn stop_is_announced(&mut self, run: JobAttempt) -> bool {
        let grace = Duration::from_secs(self.settings.suspend_grace_s.into());
        let waits = |shim: &Shim| shim.jobs.get(&run).is_none_or(|e| e.waiting.is_some());
        if grace.is_zero() || waits(self) {
            return false;
        }
        let at = Instant::now() + grace;
        self.stops.entry(run).or_insert(at);
        true
    }

    /// Stops jobs to which that was announced, unless they go on by now.
    pub(super) fn stop_announced(&mut self, now: Instant) {
        let due: Vec<JobAttempt> = self
            .stops
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(run, _)| *run)
            .collect();
        for run in due {
            self.stops.remove(&run);
            if self.jobs.get(&run).is_some_and(|e| !e.released) {
                self.signal(run, None, libc::SIGSTOP, SignalScope::Full);
            }
        }
    }

    /// Removes scripts that no job here runs.
    pub(super) fn drop_unused_scripts(&mut self) {
        let used: HashSet<(BlobId, u32)> = self
            .jobs
            .values()
            .filter_map(|e| {
                let spec = &e.grant.as_ref()?.spec;
                Some((spec.script?, spec.owner.uid))
            })
            .collect();
        self.scripts.keep_only(&used);
    }

    /// Removes a script that the controller does not refer to any more, once no job here runs it.
    pub(super) fn drop_script(&mut self, id: BlobId) {
        let mut grants = self.jobs.values().filter_map(|e| e.grant.as_ref());
        if grants.any(|grant| grant.spec.script == Some(id)) {
            self.stale_scripts.insert(id);
        } else {
            self.scripts.drop_blob(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn settings_outlive_the_launcher() {
        let name = format!("muster-settings-{}", std::process::id());
        let spool = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&spool);
        fs::create_dir(&spool).unwrap();
        let settings = NodeSettings {
            kill_wait_s: 7,
            max_step_count: 5,
            ..NodeSettings::default()
        };
        let mut shim = Shim::open(&spool).unwrap();
        assert_eq!(shim.settings, NodeSettings::default());
        shim.apply_settings(settings.clone());
        drop(shim);
        let next = Shim::open(&spool).unwrap();
        assert_eq!(next.settings, settings);
        assert_eq!(next.kill_wait, Duration::from_secs(7));
        let mode = fs::metadata(spool.join(SETTINGS)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::remove_dir_all(&spool).unwrap();
    }
}
