//! Programs of the site that concern the node itself. `RebootProgram` runs when the controller orders it.
//! `HealthCheckProgram` runs when an agent has connected to its controller, and then at intervals. It acts on its
//! findings itself, usually by scontrol.

use super::actions::Actions;
use super::interface::{Action, SiteProgram, Timer};
use super::state::LauncherState;
use crate::signals;
use muster_proto::node::HealthCheck;
use std::collections::BTreeMap;

/// Time limit of one before it is killed, as in Slurm.
const TIME_LIMIT_MS: u64 = 60_000;

/// State of these programs.
#[derive(Debug, Default)]
pub(super) struct SitePrograms {
    health_check: Option<HealthCheck>,
    /// The health check is being started.
    is_starting: bool,
    /// Running programs, by process.
    running: BTreeMap<i32, RunningSiteProgram>,
}

/// A program that runs.
#[derive(Debug)]
struct RunningSiteProgram {
    kind: SiteProgram,
    /// The setting and its value, for the log.
    setting: String,
}

impl SitePrograms {
    /// Takes over the settings. A clock that goes on as before is left alone.
    pub(super) fn configure(&mut self, wanted: Option<HealthCheck>, actions: &mut Actions) {
        if self.health_check != wanted {
            self.health_check = wanted;
            match self.health_check {
                Some(_) => actions.set_timer(Timer::HealthCheck, 0),
                None => actions.stop_timer(Timer::HealthCheck),
            }
        }
    }

    /// A new agent: the health check runs once the agent has connected to its controller.
    pub(super) fn forget(&mut self, actions: &mut Actions) {
        self.health_check = None;
        actions.stop_timer(Timer::HealthCheck);
    }

    fn runs_health_check(&self) -> bool {
        let is_one = |running: &RunningSiteProgram| running.kind == SiteProgram::HealthCheck;
        self.is_starting || self.running.values().any(is_one)
    }

    /// Kills one that has run for too long.
    pub(super) fn kill_late(&self, pid: i32, actions: &mut Actions) {
        if let Some(RunningSiteProgram { setting, .. }) = self.running.get(&pid) {
            actions.log(format!("{setting}: killed, it ran for more than 60 s"));
            // The program leads its own session, and thus its process group.
            actions.push(Action::SignalGroup(pid, signals::SIGKILL));
        }
    }

    pub(super) fn ended(&mut self, pid: i32, status: i32, actions: &mut Actions) {
        actions.stop_timer(Timer::SiteProgram(pid));
        if let Some(RunningSiteProgram { setting, .. }) = self.running.remove(&pid)
            && status != 0
        {
            let status = super::programs::describe(status, false);
            actions.log(format!("{setting}: {status}"));
        }
    }
}

impl SitePrograms {
    pub(super) fn check_health(&mut self, state: &mut LauncherState) {
        let Some(check) = self.health_check.clone() else {
            return;
        };
        let once = check.interval_s == 0 || check.states.iter().any(|s| s == "START_ONLY");
        if !once {
            let interval_ms = u64::from(check.interval_s) * 1000;
            state.actions.set_timer(Timer::HealthCheck, interval_ms);
        }
        if !self.runs_health_check() && self.is_in_state(state, &check.states) {
            self.is_starting = true;
            let (kind, env) = (SiteProgram::HealthCheck, state.node.site_env());
            let program = check.program;
            let start = Action::StartSiteProgram { kind, program, env };
            state.actions.push(start);
        }
    }

    /// Runs `RebootProgram`. It may not come back.
    pub(super) fn reboot(&mut self, state: &mut LauncherState) {
        match state.node.settings.reboot_program.clone() {
            Some(program) => {
                state
                    .actions
                    .log(format!("this node is rebooted by {program}"));
                let (kind, env) = (SiteProgram::Reboot, state.node.site_env());
                let start = Action::StartSiteProgram { kind, program, env };
                state.actions.push(start);
            }
            None => state
                .actions
                .log("a reboot is ordered, but there is no RebootProgram"),
        }
    }

    pub(super) fn site_program_started(
        &mut self,
        state: &mut LauncherState,
        kind: SiteProgram,
        pid: Result<i32, String>,
    ) {
        let (key, program) = match kind {
            SiteProgram::HealthCheck => {
                self.is_starting = false;
                let check = self.health_check.as_ref();
                ("HealthCheckProgram", check.map(|c| c.program.clone()))
            }
            SiteProgram::Reboot => ("RebootProgram", state.node.settings.reboot_program.clone()),
        };
        let setting = format!("{key}={}", program.unwrap_or_default());
        match pid {
            Ok(pid) => {
                state
                    .actions
                    .set_timer(Timer::SiteProgram(pid), TIME_LIMIT_MS);
                state.roles.insert(pid, super::state::Role::Site);
                let running = RunningSiteProgram { kind, setting };
                self.running.insert(pid, running);
            }
            Err(e) => state.actions.log(format!("{setting}: fork: {e}")),
        }
    }

    /// Whether the node is in one of these states: IDLE, MIXED, ALLOC; others fit always.
    pub(super) fn is_in_state(&self, state: &LauncherState, states: &[String]) -> bool {
        let cpus = state.node.claim.cpus.unwrap_or(state.node.setup.cpus);
        let here = state.jobs.values().filter(|e| !e.phase.is_released());
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
