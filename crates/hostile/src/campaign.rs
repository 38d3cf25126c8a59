//! A run of attacks against a cluster, and what came of it: a table, and what must not have happened.

use crate::attacks::Attack;
use crate::health::{self, Daemons};
use crate::load::{Assignment, LOADS};
use crate::outcome::Outcome;
use crate::peer::PeerReply;
use crate::random::Random;
use crate::slices::Slices;
use crate::sys::{ATTACKER, NAMELESS, ROOT, VICTIM, in_own_session};
use crate::target::Target;
use muster_proto::client::{Query, RequestBody, Response};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that attack at once.
pub const PROCESSES: usize = 8;
/// Time beyond its own after which a process is killed.
const GRACE: Duration = Duration::from_secs(60);

/// Results of attacks so far.
#[derive(Debug, Default)]
pub struct CampaignReport {
    /// Number of runs of each attack, and their outcome.
    rows: BTreeMap<&'static str, (u64, Outcome)>,
    /// The most resident memory of each daemon, MiB.
    peaks: BTreeMap<String, u64>,
    /// Invariants that did not hold at the end.
    end: Vec<String>,
    /// Times of another user's submissions while loads ran.
    pub submissions: Latencies,
    /// Times of a command that asks no daemon meanwhile: the machine's own part, whose processors the attackers use
    /// too.
    pub starts: Latencies,
    /// Shares of the processors, where users have them.
    slices: Option<Slices>,
    /// Requests of the other user while loads ran, and the time that the controller had them, by its own count.
    served: (u64, Duration),
}

/// Loads that run at once, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Which round it is: each process has another load in the next.
    pub number: usize,
    /// Seed of the processes' choices.
    pub seed: u64,
    /// For how long.
    pub time: Duration,
    /// Most requests of each process.
    pub requests: u64,
}

impl CampaignReport {
    /// No results yet; the users have these shares of the processors.
    pub fn with_slices(slices: Option<Slices>) -> CampaignReport {
        CampaignReport {
            slices,
            ..CampaignReport::default()
        }
    }

    /// Carries out an attack and examines the cluster; says whether anything was found.
    pub fn attack(&mut self, target: &Target, attack: &Attack, random: &mut Random) -> bool {
        let before = Daemons::of(target);
        let mut outcome = (attack.run)(target, random);
        let before = match attack.restarts {
            true => Daemons::of(target),
            false => before,
        };
        self.examine(target, &before, &mut outcome);
        self.add(attack.name, outcome)
    }

    /// Runs loads in processes, each started by a command that calls [`crate::load::main`], while another user submits jobs;
    /// then examines the cluster. Says whether anything was found.
    pub fn load(&mut self, target: &Target, round: &Round, command: &dyn Fn() -> Command) -> bool {
        let before = Daemons::of(target);
        let mut running = Vec::new();
        let mut found = false;
        for process in 0..PROCESSES {
            // Two rounds have all loads.
            let number = round.number * PROCESSES + process;
            let task = Assignment {
                load: number % LOADS.len(),
                seed: round.seed.wrapping_add(number as u64),
                time: round.time,
                requests: round.requests,
            };
            let mut command = command();
            task.put(target, &mut command);
            if let Some(slices) = &self.slices {
                slices.put_attacker(&mut command);
            }
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            match command.spawn() {
                Ok(child) => running.push((LOADS[task.load].name, child)),
                Err(e) => self.end.push(format!("a process does not start: {e}")),
            }
        }
        let end = Instant::now() + round.time;
        let mut outcome = Outcome::default();
        let before_load = served(target);
        let mut joined = self.slices.iter().try_for_each(Slices::join_other);
        while Instant::now() < end && running.iter_mut().any(|(_, child)| is_running(child)) {
            self.submit(target, &mut outcome);
            self.start(target);
        }
        joined = joined.and(self.slices.iter().try_for_each(Slices::join_system));
        if let Err(e) = joined {
            outcome.finding(format!("a share of the processors cannot be joined: {e}"));
        }
        let (count, time) = served(target);
        self.served.0 += count.saturating_sub(before_load.0);
        self.served.1 += time.saturating_sub(before_load.1);
        for (name, child) in running {
            let of_process = collect(child, end + GRACE);
            found |= self.add(name, of_process);
        }
        for user in [ATTACKER, NAMELESS, VICTIM] {
            crate::jobs::clear(target, user, &mut outcome);
        }
        crate::jobs::until_queue_is_empty(target);
        self.examine(target, &before, &mut outcome);
        self.add("load: another user", outcome) || found
    }

    /// One submission of another user, by the command, as users make it.
    fn submit(&mut self, target: &Target, outcome: &mut Outcome) {
        let mut command = sbatch(target);
        command.args(["-o", "/dev/null", "--wrap", "true"]);
        let started = Instant::now();
        let ran = command.output();
        let elapsed = started.elapsed();
        outcome.sent += 1;
        match ran {
            Ok(output) if output.status.success() => {
                outcome.accepted += 1;
                self.submissions.0.push(elapsed);
            }
            Ok(output) => {
                outcome.refused += 1;
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                outcome.finding(format!("a submission was refused: {}", error.trim()));
            }
            Err(e) => outcome.finding(format!("sbatch: {e}")),
        }
    }

    /// One start of the same command, in the same way, that does not speak to the controller.
    fn start(&mut self, target: &Target) {
        let mut command = sbatch(target);
        command.arg("--version");
        let started = Instant::now();
        if command.output().is_ok_and(|output| output.status.success()) {
            self.starts.0.push(started.elapsed());
        }
    }

    fn examine(&mut self, target: &Target, before: &Daemons, outcome: &mut Outcome) {
        for (name, mib) in health::resident_peak(target) {
            let peak = self.peaks.entry(name).or_default();
            *peak = mib.max(*peak);
        }
        outcome.findings.extend(health::check(target, before));
    }

    fn add(&mut self, name: &'static str, outcome: Outcome) -> bool {
        let found = !outcome.findings.is_empty();
        let (runs, sum) = self.rows.entry(name).or_default();
        *runs += 1;
        sum.add(outcome);
        found
    }

    /// Restarts the controller, for the journal to be read, and compares the queue.
    pub fn restart(&mut self, target: &Target) {
        self.end.extend(health::check_restart(target));
    }

    /// Findings, with the name of the attack.
    pub fn findings(&self) -> Vec<String> {
        let of_row = |(name, (_, outcome)): (&&'static str, &(u64, Outcome))| {
            let name = *name;
            let lines = outcome.findings.clone().into_iter();
            lines.map(move |finding| format!("{name}: {finding}"))
        };
        let rows = self.rows.iter().flat_map(of_row);
        let end = self
            .end
            .iter()
            .map(|finding| format!("at the end: {finding}"));
        rows.chain(end).collect()
    }

    /// Attacks that could not be tried.
    pub fn skipped(&self) -> Vec<String> {
        let rows = self.rows.iter();
        let mut lines: Vec<String> = rows
            .flat_map(|(name, (_, outcome))| {
                outcome
                    .skipped
                    .iter()
                    .map(move |why| format!("{name}: {why}"))
            })
            .collect();
        lines.dedup();
        lines
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:32} {:>5} {:>10} {:>10} {:>10} {:>9}\n",
            "attack", "runs", "requests", "refused", "accepted", "findings"
        );
        for (name, (runs, outcome)) in &self.rows {
            let _ = writeln!(
                text,
                "{name:32} {runs:>5} {:>10} {:>10} {:>10} {:>9}",
                outcome.sent,
                outcome.refused,
                outcome.accepted,
                outcome.findings.len()
            );
        }
        if !self.submissions.0.is_empty() {
            if self.slices.is_some() {
                text += "daemons, the attacker and the other user have shares of the processors of their own\n";
            }
            let _ = writeln!(text, "another user's submissions: {}", self.submissions);
            let _ = writeln!(text, "sbatch --version meanwhile: {}", self.starts);
            let (count, time) = self.served;
            let us = time.as_micros() / u128::from(count.max(1));
            let _ = writeln!(
                text,
                "the controller had each of that user's requests for {us} us"
            );
        }
        for (name, mib) in &self.peaks {
            let _ = writeln!(text, "most memory of {name}: {mib} MiB");
        }
        for skipped in self.skipped() {
            let _ = writeln!(text, "not tried: {skipped}");
        }
        text
    }
}

/// Times that something took.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// The time in which this part of a thousand were done.
    pub fn of_thousand(&self, part: usize) -> Duration {
        let mut times = self.0.clone();
        times.sort_unstable();
        let place = (times.len() * part).div_ceil(1000).saturating_sub(1);
        times.get(place).copied().unwrap_or_default()
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |part| self.of_thousand(part).as_secs_f64() * 1e3;
        write!(
            f,
            "{} times, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
            self.0.len(),
            ms(500),
            ms(990),
            ms(1000)
        )
    }
}

/// The command by which another user submits, in another login session than the attacker.
fn sbatch(target: &Target) -> Command {
    let mut command = Command::new(target.home().join("bin/sbatch"));
    command
        .env("SLURM_CONF", target.home().join("slurm.conf"))
        .current_dir(target.dir_of(VICTIM))
        .uid(VICTIM.uid)
        .gid(VICTIM.gid)
        .stdin(Stdio::null());
    in_own_session(&mut command);
    command
}

/// Requests of the other user so far, and the time that the controller had them.
fn served(target: &Target) -> (u64, Duration) {
    let diag = RequestBody::Query(Box::new(Query::Diag));
    let PeerReply::Accepted(Response::Diag(diag)) = target.ask(ROOT, diag) else {
        return (0, Duration::ZERO);
    };
    let of_victim = diag.users.iter().find(|user| user.uid == VICTIM.uid);
    of_victim.map_or((0, Duration::ZERO), |user| {
        (user.count, Duration::from_micros(user.total_us))
    })
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Output of a process, once it has ended; it is killed if it does not.
fn collect(mut child: Child, end: Instant) -> Outcome {
    let mut late = false;
    while is_running(&mut child) {
        if Instant::now() > end {
            late = child.kill().is_ok();
            break;
        }
        std::thread::sleep(crate::target::LOOK);
    }
    let Ok(output) = child.wait_with_output() else {
        return Outcome::default();
    };
    let mut outcome = Outcome::from_lines(&String::from_utf8_lossy(&output.stdout));
    if late || !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = if late { "did not end" } else { "failed" };
        outcome.finding(format!("a process of the attack {why}: {}", error.trim()));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_submissions() {
        let times = Latencies((1..=200).rev().map(Duration::from_millis).collect());
        let ms = |part| times.of_thousand(part).as_millis();
        assert_eq!((ms(500), ms(990), ms(1000)), (100, 198, 200));
        assert_eq!(Latencies::default().of_thousand(990), Duration::ZERO);
    }
}
