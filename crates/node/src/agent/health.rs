//! Programs of the site that have to do with the node itself. `RebootProgram` is run when the controller orders it.
//! `HealthCheckProgram` is run when the agent has come to its controller, and then again and again. What it finds it acts
//! upon itself, with scontrol as a rule.

use super::{Agent, Event, descriptor_limit};
use crate::sys;
use muster_proto::node::HealthCheck;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long it may take before it is killed, as in Slurm.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is known of the checks.
#[derive(Debug, Default)]
pub(super) struct Checks {
    wanted: Option<HealthCheck>,
    clock: Option<JoinHandle<()>>,
    running: bool,
}

impl Checks {
    /// Takes over the settings. A clock that goes on as before is left alone.
    pub(super) fn configure(
        &mut self,
        wanted: Option<HealthCheck>,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        if self.wanted == wanted {
            return;
        }
        if let Some(clock) = self.clock.take() {
            clock.abort();
        }
        if let Some(check) = &wanted {
            let once = check.states.iter().any(|s| s == "START_ONLY");
            let interval = if once { 0 } else { check.interval_s };
            let interval = Duration::from_secs(interval.into());
            self.clock = Some(tokio::spawn(tick(interval, events.clone())));
        }
        self.wanted = wanted;
    }

    pub(super) fn checked(&mut self) {
        self.running = false;
    }
}

async fn tick(interval: Duration, events: mpsc::UnboundedSender<Event>) {
    while events.send(Event::HealthCheckDue).is_ok() && !interval.is_zero() {
        tokio::time::sleep(interval).await;
    }
}

impl Agent {
    /// Runs the program, unless the last run goes on or the node is in no state to be checked.
    pub(super) fn check_health(&mut self) {
        let Some(check) = self.health.wanted.clone() else {
            return;
        };
        if self.health.running || !self.is_in_state(&check.states) {
            return;
        }
        self.health.running = true;
        let command = self.site_command(&check.program);
        let events = self.events.clone();
        std::mem::drop(tokio::task::spawn_blocking(move || {
            run(command, &check.program, "HealthCheckProgram");
            let _ = events.send(Event::HealthChecked);
        }));
    }

    /// Runs `RebootProgram`. It may not come back.
    pub(super) fn reboot(&mut self) {
        let Some(program) = self.settings.reboot_program.clone() else {
            return log::error!("a reboot is ordered, but there is no RebootProgram");
        };
        log::warn!("this node is rebooted by {program}");
        let command = self.site_command(&program);
        std::mem::drop(tokio::task::spawn_blocking(move || {
            run(command, &program, "RebootProgram");
        }));
    }

    /// A program of the site, with what it is told, and nothing of the agent's own.
    fn site_command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            )
            .env("SLURM_CONF", &self.settings.conf_path)
            .env("SLURM_CLUSTER_NAME", &self.options.cluster)
            .env("SLURMD_NODENAME", &self.options.name)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        command
    }

    /// Whether the node is in one of these states: IDLE, MIXED, ALLOC; others fit always.
    fn is_in_state(&self, states: &[String]) -> bool {
        let cpus = crate::info::cpus(&self.options);
        let used: u32 = self
            .jobs
            .iter()
            .filter(|(_, job)| !job.released)
            .filter_map(|(_, job)| job.share())
            .map(|share| share.cpus.len())
            .sum();
        let now = match used {
            0 => "IDLE",
            _ if used >= cpus => "ALLOC",
            _ => "MIXED",
        };
        let mut named = states
            .iter()
            .filter(|s| matches!(s.as_str(), "IDLE" | "MIXED" | "ALLOC" | "NONDRAINED_IDLE"))
            .peekable();
        named.peek().is_none() || named.any(|s| s.trim_start_matches("NONDRAINED_") == now)
    }
}

/// Runs it to its end, or until it has taken too long.
fn run(mut command: Command, program: &str, what: &str) {
    let mut child = match descriptor_limit::under_first_limit(|| command.spawn()) {
        Ok(child) => child,
        Err(e) => return log::error!("{what}={program}: {e}"),
    };
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let (ended, waiting) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || drop(ended.send(child.wait())));
    let status = waiting.recv_timeout(PATIENCE).or_else(|_| {
        log::error!("{what}={program}: killed, it ran for more than 60 s");
        // It leads its process group.
        sys::kill(-pid, libc::SIGKILL);
        waiting.recv()
    });
    let _ = waiter.join();
    match status {
        Ok(Ok(status)) if !status.success() => {
            log::error!("{what}={program}: {status}");
        }
        Ok(Err(e)) => log::error!("{what}={program}: {e}"),
        _ => {}
    }
}
