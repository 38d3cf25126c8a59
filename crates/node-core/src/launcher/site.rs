//! Programs of the site that have to do with the node itself. `RebootProgram` is run when the controller orders it.
//! `HealthCheckProgram` is run when an agent has come to its controller, and then again and again. What it finds it acts
//! upon itself, with scontrol as a rule.

use super::Launcher;
use super::event::{Action, SiteProgram, TimerKey};
use crate::signals;
use muster_proto::node::HealthCheck;
use std::collections::BTreeMap;

/// How long one may take before it is killed, as in Slurm.
const TIME_LIMIT_MS: u64 = 60_000;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct SitePrograms {
    health_check: Option<HealthCheck>,
    /// That is being started.
    is_starting: bool,
    /// Those that run, by process.
    running: BTreeMap<i32, (SiteProgram, String)>,
}

impl Launcher {
    /// Takes over the settings. A clock that goes on as before is left alone.
    pub(super) fn configure_site_programs(&mut self) {
        let wanted = &self.settings.health_check;
        if self.site.health_check != *wanted {
            self.site.health_check = wanted.clone();
            match self.site.health_check {
                Some(_) => self.set_timer(TimerKey::HealthCheck, 0),
                None => self.stop_timer(TimerKey::HealthCheck),
            }
        }
    }

    /// An agent is new: the health of the node is checked when it has come to its controller.
    pub(super) fn forget_health_check(&mut self) {
        self.site.health_check = None;
        self.stop_timer(TimerKey::HealthCheck);
    }

    pub(super) fn check_health(&mut self) {
        let Some(check) = self.site.health_check.clone() else {
            return;
        };
        let once = check.interval_s == 0 || check.states.iter().any(|s| s == "START_ONLY");
        if !once {
            let interval_ms = u64::from(check.interval_s) * 1000;
            self.set_timer(TimerKey::HealthCheck, interval_ms);
        }
        let is_one = |running: &(SiteProgram, String)| running.0 == SiteProgram::HealthCheck;
        let runs = self.site.is_starting || self.site.running.values().any(is_one);
        if !runs && self.is_in_state(&check.states) {
            self.site.is_starting = true;
            self.start_site_program(SiteProgram::HealthCheck, check.program);
        }
    }

    /// Runs `RebootProgram`. It may not come back.
    pub(super) fn reboot(&mut self) {
        match self.settings.reboot_program.clone() {
            Some(program) => {
                self.log(format!("this node is rebooted by {program}"));
                self.start_site_program(SiteProgram::Reboot, program);
            }
            None => self.log("a reboot is ordered, but there is no RebootProgram"),
        }
    }

    /// A program of the site, with its arguments and variables, and nothing of this process's own.
    fn start_site_program(&mut self, kind: SiteProgram, program: String) {
        let env = vec![
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned(),
            format!("SLURM_CONF={}", self.settings.conf_path),
            format!("SLURM_CLUSTER_NAME={}", self.place.cluster),
            format!("SLURMD_NODENAME={}", self.place.node),
        ];
        self.act(Action::StartSiteProgram { kind, program, env });
    }

    pub(super) fn site_program_started(&mut self, kind: SiteProgram, pid: Result<i32, String>) {
        let (key, program) = match kind {
            SiteProgram::HealthCheck => {
                self.site.is_starting = false;
                let check = self.site.health_check.as_ref();
                ("HealthCheckProgram", check.map(|c| c.program.clone()))
            }
            SiteProgram::Reboot => ("RebootProgram", self.settings.reboot_program.clone()),
        };
        let what = format!("{key}={}", program.unwrap_or_default());
        match pid {
            Ok(pid) => {
                self.set_timer(TimerKey::SiteProgram(pid), TIME_LIMIT_MS);
                self.roles.insert(pid, super::Role::Site);
                self.site.running.insert(pid, (kind, what));
            }
            Err(e) => self.log(format!("{what}: fork: {e}")),
        }
    }

    pub(super) fn site_program_late(&mut self, pid: i32) {
        if let Some((_, what)) = self.site.running.get(&pid) {
            let line = format!("{what}: killed, it ran for more than 60 s");
            self.log(line);
            // It leads its session and thus its group.
            self.act(Action::SignalGroup(pid, signals::SIGKILL));
        }
    }

    pub(super) fn site_program_ended(&mut self, pid: i32, status: i32) {
        self.stop_timer(TimerKey::SiteProgram(pid));
        if let Some((_, what)) = self.site.running.remove(&pid)
            && status != 0
        {
            let status = super::programs::describe(status, false);
            self.log(format!("{what}: {status}"));
        }
    }

    /// Whether the node is in one of these states: IDLE, MIXED, ALLOC; others fit always.
    fn is_in_state(&self, states: &[String]) -> bool {
        let cpus = self.claim.cpus.unwrap_or(self.setup.cpus);
        let here = self.jobs.values().filter(|e| !e.phase.is_released());
        let shares = here.filter_map(|e| e.share());
        let now = match shares.map(|share| share.cpus.len()).sum() {
            0 => "IDLE",
            used if used >= cpus => "ALLOC",
            _ => "MIXED",
        };
        let mut named = states
            .iter()
            .filter(|s| matches!(s.as_str(), "IDLE" | "MIXED" | "ALLOC" | "NONDRAINED_IDLE"))
            .peekable();
        named.peek().is_none() || named.any(|s| s.trim_start_matches("NONDRAINED_") == now)
    }
}
