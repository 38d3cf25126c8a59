//! Programs of the site that have to do with the node itself. `RebootProgram` is run when the controller orders it.
//! `HealthCheckProgram` is run when an agent has come to its controller, and then again and again. What it finds it acts
//! upon itself, with scontrol as a rule.

use super::around::run_programs;
use super::files::open_as;
use super::jobs::{Role, Shim};
use crate::sys;
use muster_proto::node::HealthCheck;
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// How long one may take before it is killed, as in Slurm.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct SitePrograms {
    health_check: Option<HealthCheck>,
    /// When that is run next.
    due: Option<Instant>,
    /// Those that run, by process.
    running: BTreeMap<i32, Running>,
}

#[derive(Debug)]
struct Running {
    /// The key of slurm.conf and the program.
    what: String,
    is_health_check: bool,
    /// When it is killed; nothing once it was.
    by: Option<Instant>,
}

impl SitePrograms {
    /// Takes over the settings. A clock that goes on as before is left alone.
    pub(super) fn configure(&mut self, wanted: Option<&HealthCheck>) {
        if self.health_check.as_ref() != wanted {
            self.health_check = wanted.cloned();
            self.due = wanted.map(|_| Instant::now());
        }
    }

    /// An agent is new: the health of the node is checked when it has come to its controller.
    pub(super) fn forget_settings(&mut self) {
        (self.health_check, self.due) = (None, None);
    }

    /// When something is to be done.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.running.values().filter_map(|r| r.by);
        ends.chain(self.due).min()
    }

    /// Kills those that have run for too long.
    fn end_late(&mut self, now: Instant) {
        for (pid, running) in &mut self.running {
            if running.by.take_if(|by| *by <= now).is_some() {
                eprintln!("{}: killed, it ran for more than 60 s", running.what);
                // It leads its session and thus its group.
                sys::kill(-*pid, libc::SIGKILL);
            }
        }
    }
}

impl Shim {
    pub(super) fn run_site_programs(&mut self, now: Instant) {
        self.site.end_late(now);
        if self.site.due.is_none_or(|due| due > now) {
            return;
        }
        let Some(check) = self.site.health_check.clone() else {
            return self.site.due = None;
        };
        let once = check.interval_s == 0 || check.states.iter().any(|s| s == "START_ONLY");
        let interval = Duration::from_secs(check.interval_s.into());
        self.site.due = (!once).then(|| now + interval);
        let runs = self.site.running.values().any(|r| r.is_health_check);
        if !runs && self.is_in_state(&check.states) {
            self.start_site_program("HealthCheckProgram", &check.program);
        }
    }

    /// Runs `RebootProgram`. It may not come back.
    pub(super) fn reboot(&mut self) {
        match self.settings.reboot_program.clone() {
            Some(program) => {
                eprintln!("this node is rebooted by {program}");
                self.start_site_program("RebootProgram", &program);
            }
            None => eprintln!("a reboot is ordered, but there is no RebootProgram"),
        }
    }

    /// A program of the site, with its arguments and variables, and nothing of this process's own.
    fn start_site_program(&mut self, key: &str, program: &str) {
        let what = format!("{key}={program}");
        let env = [
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned(),
            format!("SLURM_CONF={}", self.settings.conf_path),
            format!("SLURM_CLUSTER_NAME={}", self.place.cluster),
            format!("SLURMD_NODENAME={}", self.place.node),
        ];
        match fork_program(program, &env) {
            Ok(pid) => {
                self.roles.insert(pid, Role::Site);
                let running = Running {
                    what,
                    is_health_check: key == "HealthCheckProgram",
                    by: Some(Instant::now() + PATIENCE),
                };
                self.site.running.insert(pid, running);
            }
            Err(e) => eprintln!("{what}: fork: {e}"),
        }
    }

    pub(super) fn site_program_ended(&mut self, pid: i32, status: i32) {
        if let Some(running) = self.site.running.remove(&pid)
            && status != 0
        {
            let status = super::around::describe(status, false);
            eprintln!("{}: {status}", running.what);
        }
    }

    /// Whether the node is in one of these states: IDLE, MIXED, ALLOC; others fit always.
    fn is_in_state(&self, states: &[String]) -> bool {
        let there = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cpus = self.claim.cpus;
        let cpus = cpus.unwrap_or_else(|| u32::try_from(there()).unwrap_or(u32::MAX));
        let here = self.jobs.values().filter(|e| !e.released);
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

fn fork_program(program: &str, env: &[String]) -> io::Result<i32> {
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => {
            // What it writes is nobody's; it acts upon what it finds.
            let quiet = open_as("/dev/null", OFlag::O_WRONLY, 2);
            sys::exit_now(match quiet {
                Ok(()) => run_programs(&[program.to_owned()], env),
                Err(_) => 1,
            })
        }
    }
}
