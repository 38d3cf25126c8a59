//! Processes that try to outlive their job, or to pass for those of another.

use super::{finished, or_end, running_job, small_job};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::sys::{ATTACKER, ROOT, VICTIM};
use crate::target::{Target, until};
use muster_model::ids::JobId;
use std::fs;

/// Processes of the attacker that were started as `sleep` with this time.
fn sleepers(target: &Target, time: &str) -> Vec<i32> {
    let line = format!("sleep\0{time}\0");
    let mut pids = target.processes_of(ATTACKER);
    pids.retain(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.ends_with(line.as_bytes())
    });
    pids
}

/// A time that no other process sleeps for.
fn unusual_time(random: &mut Random) -> String {
    format!("{}", 10_000 + random.below(1 << 20))
}

fn submit(target: &Target, script: &str, outcome: &mut Outcome) -> Option<JobId> {
    super::must_submit(
        target,
        ATTACKER,
        small_job(target, ATTACKER),
        script,
        outcome,
    )
}

/// A process with another session and an empty environment, while its user has another job there.
pub(super) fn daemon_outlives_job(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let time = unusual_time(random);
    let script = format!(
        "#!/bin/sh\nenv -i /usr/bin/setsid /bin/sh -c '/usr/bin/setsid /bin/sleep {time} & exit' </dev/null >/dev/null 2>&1\n"
    );
    let job = or_end!(submit(target, &script, &mut outcome), target, outcome);
    target.ended(job);
    outcome.require(
        until(|| sleepers(target, &time).is_empty()),
        "a process that its job has left behind runs on while its user has another job there",
    );
    finished(target, outcome)
}

/// A process whose environment names another user's job.
pub(super) fn environment_of_another_job(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let theirs = or_end!(running_job(target, VICTIM, &mut outcome), target, outcome)
        .job
        .id;
    // So that the attacker's process could be of more than one job of its own.
    or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let time = unusual_time(random);
    let script = format!(
        "#!/bin/sh\nSLURM_JOB_ID={theirs} MUSTER_ATTEMPT=1 /usr/bin/setsid /bin/sh -c '/usr/bin/setsid /bin/sleep {time} & exit'\nexec sleep 600\n"
    );
    let own = or_end!(submit(target, &script, &mut outcome), target, outcome);
    if until(|| !sleepers(target, &time).is_empty()) {
        let pid = sleepers(target, &time)[0].to_string();
        let listed = target.run(
            ROOT,
            &format!("scontrol listpids {theirs} {}", super::FIRST_NODE),
        );
        outcome.sent += 1;
        let words = |line: &str| line.split_whitespace().next() == Some(&pid);
        outcome.require(
            !listed.out.lines().any(words),
            "a process is counted to another user's job because its environment names that",
        );
    } else {
        outcome.finding("a process of a job did not start");
    }
    target.run(ATTACKER, &format!("scancel {own}"));
    target.ended(own);
    outcome.require(
        until(|| sleepers(target, &time).is_empty()),
        "a process whose environment names another user's job outlives its own",
    );
    // The other user's job is none the worse, and its end takes nobody along.
    outcome.require(
        target.state(theirs) == "RUNNING",
        "another user's job has ended",
    );
    super::clear(target, VICTIM, &mut outcome);
    finished(target, outcome)
}

/// Has the kernel take 4 GiB of the process's memory, all zero, for its environment; then waits.
const ENDLESS_ENVIRONMENT: &str = r#"
import ctypes, struct, time
c = ctypes.CDLL(None, use_errno=True)
c.sbrk.restype = c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
stat = open("/proc/self/stat").read().rsplit(") ", 1)[1].split()
field = lambda number: int(stat[number - 3])
size = 4 << 30
start = c.mmap(None, size, 3, 0x4022, -1, 0)
fields = [field(n) for n in (26, 27, 45, 46, 47)] + [c.sbrk(0)] + [field(n) for n in (28, 48, 49)]
record = ctypes.create_string_buffer(struct.pack("=11QQIi", *fields, start, start + size, 0, 0, -1))
result = c.prctl(35, 14, ctypes.c_ulong(ctypes.addressof(record)), ctypes.c_ulong(104), 0)
open("environment.state", "w").write("set" if result == 0 else "refused")
time.sleep(600)
"#;

/// A process that says that gigabytes of its memory are its environment, which is asked about many times at once.
pub(super) fn environment_without_end(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let dir = target.dir_of(ATTACKER);
    let program = dir.join("environment.py");
    if let Err(e) = fs::write(&program, ENDLESS_ENVIRONMENT) {
        outcome.skipped.push(format!("no program: {e}"));
        return outcome;
    }
    let state = dir.join("environment.state");
    let _ = fs::remove_file(&state);
    // In a session of its own, so that nothing but its environment says whose it is.
    let script = format!(
        "#!/bin/sh\ncd {}\n/usr/bin/setsid /usr/bin/python3 {} || echo refused >environment.state\n",
        dir.display(),
        program.display()
    );
    let job = or_end!(submit(target, &script, &mut outcome), target, outcome);
    let read = || fs::read_to_string(&state).unwrap_or_default();
    until(|| !read().is_empty());
    if read() != "set" {
        let why = "there is no Python here, or the kernel moves no environments";
        outcome.skipped.push(why.to_owned());
        return finished(target, outcome);
    }
    let node = super::FIRST_NODE;
    let ask = format!(
        "for i in $(seq 16); do scontrol listpids {job} {node} & sstat -a -n -j {job} & done; wait"
    );
    outcome.sent += 32;
    let asked = target.run(ATTACKER, &ask);
    let listed = asked
        .out
        .lines()
        .filter(|line| line.contains(&job.to_string()));
    outcome.require(
        asked.code == 0 && listed.count() >= 16,
        "listpids of a job with such a process is not answered",
    );
    finished(target, outcome)
}
