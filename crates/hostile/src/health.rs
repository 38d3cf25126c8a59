//! Invariants after each attack, whatever it was: the same daemons, in little memory, with all nodes in use, serving
//! another user.

use crate::jobs::victim_works;
use crate::sys::{ROOT, VICTIM};
use crate::target::{Target, alive};
use std::fs;
use std::time::Duration;

/// Resident memory that a daemon may have.
pub const RESIDENT_MAX_MIB: u64 = 512;
/// Time limit for another user's small job from submission to end, in a debug build on a busy machine.
const JOB_MAX: Duration = Duration::from_secs(30);

/// Which processes the daemons are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemons(Vec<(String, i32, String)>);

impl Daemons {
    /// The daemons as they are.
    pub fn of(target: &Target) -> Daemons {
        let all = target.daemons().into_iter();
        Daemons(all.map(|(name, pid)| (name, pid, started(pid))).collect())
    }
}

/// When a process was started, in ticks: a number may be given again.
fn started(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(") ").next().unwrap_or_default();
    rest.split(' ').nth(19).unwrap_or_default().to_owned()
}

/// A field of `/proc/PID/status`, in MiB.
fn status_mib(pid: i32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Resident memory of each daemon now, MiB.
pub fn resident(target: &Target) -> Vec<(String, u64)> {
    let all = target.daemons().into_iter();
    all.map(|(name, pid)| (name, status_mib(pid, "VmRSS:")))
        .collect()
}

/// The most resident memory that each daemon has had, MiB.
pub fn resident_peak(target: &Target) -> Vec<(String, u64)> {
    let all = target.daemons().into_iter();
    all.map(|(name, pid)| (name, status_mib(pid, "VmHWM:")))
        .collect()
}

/// Invariants that do not hold.
pub fn check(target: &Target, before: &Daemons) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, pid, start) in &before.0 {
        if !alive(*pid) || started(*pid) != *start {
            wrong.push(format!("{name} is not the process any more that it was"));
        }
    }
    for (name, mib) in resident_peak(target) {
        if mib > RESIDENT_MAX_MIB {
            wrong.push(format!("{name} has had {mib} MiB"));
        }
    }
    let ping = target.run(ROOT, "scontrol ping");
    if ping.code != 0 || !ping.out.contains("UP") {
        wrong.push(format!("scontrol ping: {} {}", ping.out, ping.err));
        // Nothing else would be answered.
        return wrong;
    }
    if !target.nodes_are_up() {
        let nodes = target.run(ROOT, "sinfo -h -N -o '%N %T %E'").out;
        wrong.push(format!("nodes: {}", nodes.replace('\n', ", ")));
    }
    if let Err(e) = victim_works(target, None, JOB_MAX) {
        wrong.push(e);
    }
    wrong.extend(crate::rest::check(target));
    wrong
}

/// Jobs that are in the queue when the controller is restarted.
const HELD: &str = "sbatch -H -o /dev/null --wrap true; sbatch -H -a 0-9 -o /dev/null --wrap true";

/// Restarts the controller; the queue must be the same afterwards.
pub fn check_restart(target: &Target) -> Vec<String> {
    // Records of ended jobs leave the queue at any time.
    let queue = || target.run(ROOT, "squeue -h -o '%i %T %u %Q %r' | sort").out;
    target.run(VICTIM, HELD);
    let before = queue();
    let again = target.restart_controller();
    if again.code != 0 {
        return vec![format!(
            "the controller does not start again: {}",
            again.err
        )];
    }
    if !target.nodes_are_up() {
        return vec!["nodes do not come back to a controller that was restarted".to_owned()];
    }
    let after = queue();
    target.run(VICTIM, "scancel --me");
    match after == before && !after.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "the queue was {before:?} and is {after:?} after a restart"
        )],
    }
}
