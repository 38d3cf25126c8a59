//! Where the kernel makes memory dumpable at each change of identity (`fs.suid_dumpable`), a user cannot look into what root
//! had in memory. And what the kernel ends first when memory runs out.

use super::Test;
use super::attacker::{self, Attack, UID};
use super::cluster::{Dir, JobMaker, Node, PATIENCE, fifo};
use super::secrets::secret;
use super::steps::{Srun, allocate, spec};
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, JobId};
use muster_model::job::ExitStatus;
use muster_model::spec::Owner;
use muster_proto::node::Order;
use muster_proto::step::StepSpec;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("roots_memory_stays_its_own_where_all_is_dumpable", memory),
    (
        "a_user_does_not_trace_what_writes_a_message_for_a_job",
        traced,
    ),
    ("a_task_epilog_has_what_tasks_have", task_epilog),
    ("a_script_opens_no_descriptor_of_the_launchers", descriptors),
    (
        "jobs_are_ended_before_daemons_when_memory_runs_out",
        out_of_memory,
    ),
    (
        "script_that_cannot_be_started_for_want_of_descriptors_is_tried_again",
        tried_again,
    ),
];

const DUMPABLE: &str = "/proc/sys/fs/suid_dumpable";
/// Messages while the attacker looks.
const MESSAGES: u64 = 100;
/// Launches while the attacker looks.
const LAUNCHES: u64 = 300;

/// The setting of the whole machine, as it was before when this is dropped.
struct AllDumpable(String);

impl AllDumpable {
    fn set() -> Option<AllDumpable> {
        let before = fs::read_to_string(DUMPABLE).ok()?;
        fs::write(DUMPABLE, "1").ok()?;
        Some(AllDumpable(before))
    }
}

impl Drop for AllDumpable {
    fn drop(&mut self) {
        fs::write(DUMPABLE, self.0.trim()).unwrap();
    }
}

fn nobody() -> Owner {
    Owner {
        uid: UID,
        gid: UID,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    }
}

/// The attacker: tries to look into one process, which has not executed the user's program yet, and for a text in the memory of
/// all of its user but its own, until it is killed. Says so when it begins, and when it has succeeded.
pub fn read_memory(secret: &str, waiting: &str) {
    attacker::say("begun");
    let own = std::process::id().to_string();
    let memory = format!("/proc/{waiting}/mem");
    loop {
        for _ in 0..50_000 {
            if File::open(&memory).is_ok() {
                attacker::say("opened");
                return;
            }
        }
        for pid in of_attacker().filter(|pid| *pid != own) {
            if has(&format!("/proc/{pid}"), secret) {
                attacker::say("found");
                return;
            }
        }
    }
}

/// Processes that run as the attacker.
fn of_attacker() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.filter(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mut lines = status.lines();
        pid.parse::<u32>().is_ok()
            && lines.any(|l| l.starts_with("Uid:") && l.contains(&UID.to_string()))
    })
}

fn has(dir: &str, secret: &str) -> bool {
    let (Ok(memory), Ok(maps)) = (
        File::open(format!("{dir}/mem")),
        File::open(format!("{dir}/maps")),
    ) else {
        return false;
    };
    let areas = BufReader::new(maps).lines().map_while(Result::ok);
    let mut areas = areas.filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        // What root has written, and no more than that is worth.
        if !rest.starts_with("rw") || to - from > 64 << 20 {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(to - from).ok()?];
        memory.read_exact_at(&mut bytes, from).ok()?;
        Some(bytes)
    });
    let secret = secret.as_bytes();
    areas.any(|area| area.windows(secret.len()).any(|part| part == secret))
}

/// A script of the attacker's waits for a file, and many others are started, each of which becomes the user.
fn memory() {
    let Some(_setting) = AllDumpable::set() else {
        println!("SKIPPED: {DUMPABLE} cannot be written");
        return;
    };
    let dir = Dir::new("dumpable");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    fifo(&dir.path("never"));
    chown(dir.path("never"), Some(UID), None).unwrap();
    let mut node = Node::start(&dir, "n1");
    // Root's: in the launcher's memory as long as that job is there.
    let planted = secret("roots");
    let mut victim = JobMaker::new(1, &dir.0, "#!/bin/sh\nread x <go\n");
    fifo(&dir.path("go"));
    victim.env.push(format!("SECRET={planted}"));
    node.run(&victim);
    let mut waits = JobMaker::new(2, &dir.0, "#!/bin/sh\nexit 0\n");
    waits.spec.owner = nobody();
    waits.spec.stdio.stdin = Some(dir.path("never").to_string_lossy().into_owned());
    waits.spec.stdio.stdout = Some("/dev/null".to_owned());
    node.run(&waits);
    let launcher = node.shim_pid();
    let is_waiting = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        stat.contains(&format!("PPid:\t{launcher}\n"))
    };
    let until = Instant::now() + PATIENCE;
    let waiting = loop {
        if let Some(pid) = of_attacker().find(is_waiting) {
            break pid;
        }
        assert!(Instant::now() < until, "no script waits for its file");
    };
    // What is not there cannot be read; the launcher has it.
    assert!(has(&format!("/proc/{launcher}"), &planted));
    assert!(!has(&format!("/proc/{waiting}"), &planted));
    let mut attack = Attack::start(&["memory", &planted, &waiting]);
    assert_eq!(attack.line(), "begun");
    for id in 3..3 + LAUNCHES {
        let mut job = JobMaker::new(id, &dir.0, "#!/bin/sh\nexit 0\n");
        job.spec.owner = nobody();
        job.spec.stdio.stdout = Some("/dev/null".to_owned());
        node.run(&job);
        assert_eq!(node.batch_exit(id), ExitStatus::default());
    }
    attack.end();
    assert_eq!(attack.line(), "", "the attacker has got at memory");
    for job in [1, 2] {
        node.terminate(job, TerminateReason::Cancelled);
        node.released(job);
    }
}

/// The process that becomes a script has one descriptor of the launcher's until it executes that; a user may name it as a file.
fn descriptors() {
    let dir = Dir::new("slots");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let mut node = Node::start(&dir, "n1");
    for (id, fd) in (1..).zip(3..=5) {
        let mut job = JobMaker::new(id, &dir.0, "#!/bin/sh\nexit 0\n");
        job.spec.owner = nobody();
        job.spec.stdio.stdout = Some(format!("/proc/self/fd/{fd}"));
        node.run(&job);
        let report = node.report(|r| r.job.0 == id);
        assert!(
            format!("{report:?}").contains("Could not open stdout file"),
            "{report:?}"
        );
    }
}

fn oom_of(pid: &str) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    text.trim().parse().unwrap()
}

fn out_of_memory() {
    let dir = Dir::new("oom");
    let mut node = Node::start(&dir, "n1");
    let launcher = node.shim_pid().to_string();
    if oom_of(&launcher) != -1000 {
        println!("SKIPPED: this kernel protects no process from its end for memory");
        assert!(dir.text("spool.n1/shim.log").contains("memory runs out"));
        return;
    }
    let prolog = dir.path("prolog");
    let text = format!(
        "#!/bin/sh\ncat /proc/self/oom_score_adj >{}\n",
        dir.path("of_prolog").display()
    );
    fs::write(&prolog, text).unwrap();
    fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
    node.settings.prolog = Some(prolog.to_string_lossy().into_owned());
    node.configure();
    let mut job = JobMaker::new(
        1,
        &dir.0,
        "#!/bin/sh\ncat /proc/self/oom_score_adj\n(echo -1 >/proc/self/oom_score_adj) || echo refused\n",
    );
    job.spec.owner = nobody();
    job.spec.stdio.stdout = Some(dir.path("out").to_string_lossy().into_owned());
    dir.open();
    node.run(&job);
    assert_eq!(node.batch_exit(1), ExitStatus::default());
    assert_eq!(dir.text("of_prolog"), "0\n");
    let out = dir.text("out");
    assert!(
        out.starts_with("0\n") && out.ends_with("refused\n"),
        "{out}"
    );
    allocate(2, &dir, &mut [&mut node], 1);
    let step = spec(
        2,
        &dir,
        &[
            "sh",
            "-c",
            "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj",
        ],
    );
    let outcome = Srun::ask(&node, step).connect().finish();
    assert_eq!(outcome.out[&0], "0\n-1000\n");
    // Nothing of that has reached the daemons.
    for pid in [
        launcher,
        node.supervisor_pid().to_string(),
        node.agent_pid().to_string(),
    ] {
        assert_eq!(oom_of(&pid), -1000);
    }
}

/// It is the user's program, and was the step daemon's: umask, limits, and who is ended when memory runs out.
/// A message for a job is written by a process of the job's user that is in root's control groups and session: the user had what ran
/// there outlive all jobs.
fn traced() {
    let dir = Dir::new("traced");
    let mut node = Node::start(&dir, "n1");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let errors = dir.path("errors");
    fs::write(&errors, "").unwrap();
    chown(&errors, Some(UID), Some(UID)).unwrap();
    let mut job = JobMaker::new(1, &dir.0, "#!/bin/sh\necho up >&2\nexec sleep 600\n");
    job.spec.owner = nobody();
    job.spec.stdio.stdout = Some("/dev/null".to_owned());
    job.spec.stdio.stderr = Some(errors.to_string_lossy().into_owned());
    node.run(&job);
    let wait_for = |text: &str| {
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(&errors).unwrap().contains(text) {
            assert!(Instant::now() < until, "{text}");
        }
    };
    wait_for("up\n");
    let mut attack = Attack::start(&["trace"]);
    assert_eq!(attack.line(), "begun");
    for number in 1..=MESSAGES {
        let text = format!("message {number}");
        let tell = Order::Notify {
            job: JobId(1),
            attempt: Attempt(1),
            text: text.clone(),
        };
        node.order(Vec::new(), vec![tell]);
        wait_for(&text);
    }
    attack.end();
    assert_eq!(attack.line(), "");
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// The attacker: tries to trace processes that the launcher starts as its user, until it is killed. Says so when it begins, and when
/// it could.
pub fn trace() {
    attacker::say("begun");
    let mut load = String::new();
    loop {
        load.clear();
        File::open("/proc/loadavg")
            .unwrap()
            .read_to_string(&mut load)
            .unwrap();
        let last: u32 = load.split_whitespace().last().unwrap().parse().unwrap();
        for pid in last.saturating_sub(6)..=last {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // What opens it may trace it.
            if command.starts_with(b"muster-shim") && File::open(format!("/proc/{pid}/mem")).is_ok()
            {
                attacker::say("opened");
                return;
            }
        }
    }
}

fn task_epilog() {
    let dir = Dir::new("epilog");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let what = "cat /proc/self/oom_score_adj; umask; ulimit -S -c";
    let epilog = dir.path("task_epilog");
    fs::write(&epilog, format!("#!/bin/sh\n{{ {what}; }} >of_epilog\n")).unwrap();
    fs::set_permissions(&epilog, fs::Permissions::from_mode(0o755)).unwrap();
    let mut step = StepSpec {
        task_epilog: Some(epilog.to_string_lossy().into_owned()),
        ..spec(1, &dir, &["sh", "-c", what])
    };
    step.context.umask = 0o027;
    let outcome = Srun::ask(&node, step).connect().finish();
    assert!(
        outcome.out[&0].starts_with("0\n0027\n"),
        "{}",
        outcome.out[&0]
    );
    assert_eq!(dir.text("of_epilog"), outcome.out[&0]);
}

/// The launcher has no descriptor left when the prolog is over.
fn tried_again() {
    let dir = Dir::new("again");
    let mut node = Node::start(&dir, "n1");
    for name in ["up", "go"] {
        fifo(&dir.path(name));
    }
    let prolog = dir.path("prolog");
    let (up, go) = (dir.path("up"), dir.path("go"));
    let text = format!(
        "#!/bin/sh\necho up >{}\nread x <{}\n",
        up.display(),
        go.display()
    );
    fs::write(&prolog, text).unwrap();
    fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
    node.settings.prolog = Some(prolog.to_string_lossy().into_owned());
    node.configure();
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\nexit 3\n"));
    assert_eq!(dir.text("up"), "up\n");
    let launcher = node.shim_pid();
    let before = limit_files(launcher, 4);
    fs::write(&go, "x\n").unwrap();
    let until = Instant::now() + PATIENCE;
    while !dir.text("spool.n1/shim.log").contains("it is tried again") {
        assert!(Instant::now() < until, "{}", dir.text("spool.n1/shim.log"));
        std::thread::yield_now();
    }
    limit_files(launcher, before);
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
    node.released(1);
    assert!(
        node.left(1)
            .iter()
            .all(|r| !format!("{r:?}").contains("NodeFault"))
    );
}

/// Sets another process's soft limit of descriptors; gives the one before.
fn limit_files(pid: i32, soft: u64) -> u64 {
    let of = |text: String| -> u64 {
        let line = text
            .lines()
            .find(|l| l.starts_with("Max open files"))
            .unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    };
    let before = of(fs::read_to_string(format!("/proc/{pid}/limits")).unwrap());
    let set = std::process::Command::new("prlimit")
        .arg(format!("--pid={pid}"))
        .arg(format!("--nofile={soft}:"))
        .status();
    assert!(set.unwrap().success());
    before
}
