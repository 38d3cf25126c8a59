//! Where secrets of jobs are, and where they are not: in no process of another job, no command line, environment or log.

use super::Test;
use super::attacker::UID;
use super::cluster::{Dir, JobMaker, Node, PATIENCE, fifo};
use super::steps::{Srun, spec};
use muster_model::effect::TerminateReason;
use muster_model::spec::{JobKind, Owner};
use muster_proto::node::Order;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, chown};
use std::time::Instant;

pub const TESTS: &[Test] = &[(
    "step_daemons_hold_no_secret_of_other_jobs",
    daemons_of_other_jobs,
)];

/// A text that is nowhere in this program's file, which all processes of a node have in memory.
pub fn secret(of: &str) -> String {
    let mut number = [0; 8];
    let random = File::open("/dev/urandom").unwrap();
    random.read_exact_at(&mut number, 0).unwrap();
    format!("{of}-{:016x}", u64::from_ne_bytes(number))
}

/// All that a process has in memory and may read.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    fn of(pid: i32) -> Memory {
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).unwrap());
        let areas = maps.lines().filter_map(|line| {
            let line = line.unwrap();
            let mut fields = line.split_ascii_whitespace();
            let (range, rights) = (fields.next()?, fields.next()?);
            // The program's own code and constants are the same for all.
            let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
            if !rights.starts_with('r') || (is_file && !rights.contains('w')) {
                return None;
            }
            let (from, to) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let (from, to) = (number(from), number(to));
            let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
            // Pages of the kernel's own cannot be read.
            memory.read_exact_at(&mut bytes, from).ok()?;
            Some(bytes)
        });
        Memory(areas.collect())
    }

    fn has(&self, secret: &[u8]) -> bool {
        let mut areas = self.0.iter();
        areas.any(|area| area.windows(secret.len()).any(|part| part == secret))
    }
}

/// A job whose owner is the attacker, with a secret in its environment, and a key of its own.
fn job(node: &mut Node, id: u64, dir: &Dir, kind: JobKind, script: &str, secret: &str) -> Vec<u8> {
    let mut job = JobMaker::new(id, &dir.0, script);
    job.spec.kind = kind;
    job.spec.owner = Owner {
        uid: UID,
        gid: UID,
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
    };
    job.spec.stdio.stdout = Some("/dev/null".to_owned());
    job.env.push(format!("SECRET={secret}"));
    job.first_cpu = u32::try_from(id).unwrap();
    let (blobs, mut grants) = job.grants(&[node]);
    let key = self::secret("k").into_bytes()[..16].to_vec();
    grants[0].key = key.clone().into();
    node.order(blobs, vec![Order::Launch(Box::new(grants.remove(0)))]);
    key
}

/// Children of a process, once it has some.
fn child_of(pid: i32) -> i32 {
    let until = Instant::now() + PATIENCE;
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        if let Some(child) = children.split_ascii_whitespace().next() {
            return child.parse().unwrap();
        }
        assert!(Instant::now() < until, "{pid} has no child");
        std::thread::yield_now();
    }
}

fn daemons_of_other_jobs() {
    let dir = Dir::new("secrets");
    for name in ["first", "second", "third", "gate"] {
        fifo(&dir.path(name));
        chown(dir.path(name), Some(UID), None).unwrap();
    }
    let wait = |name: &str| {
        let (name, gate) = (dir.path(name), dir.path("gate"));
        format!("echo $PPID >{}; read x <{}", name.display(), gate.display())
    };
    let mut node = Node::start(&dir, "n1");

    // A victim's script and step.
    let victim = secret("victim");
    let script = format!("#!/bin/sh\n{}\n", wait("first"));
    let victim_key = job(&mut node, 1, &dir, JobKind::Batch, &script, &victim);
    assert_ne!(dir.text("first"), "");
    let of_step = secret("victims-step");
    let mut step = spec(1, &dir, &["sh", "-c", &wait("second")]);
    step.context
        .environment
        .push_string(&std::ffi::CString::new(format!("SECRET={of_step}")).unwrap());
    let _first = Srun::ask(&node, step).connect();
    let daemon_of_victim: i32 = dir.text("second").trim().parse().unwrap();
    assert!(Memory::of(daemon_of_victim).has(of_step.as_bytes()));

    // A step of another job, whose task waits for a file before it executes its program.
    let own = secret("attacker");
    let own_key = job(&mut node, 2, &dir, JobKind::Allocation, "", &own);
    let mut step = spec(2, &dir, &["sh", "-c", &wait("third")]);
    step.context
        .environment
        .push_string(&std::ffi::CString::new(format!("SECRET={own}")).unwrap());
    let mut waiting = step.clone();
    waiting.overlap = true;
    waiting.stdio.stdin = Some(dir.path("gate").to_string_lossy().into_owned());
    step.overlap = true;
    let _second = Srun::ask(&node, step).connect();
    let daemon: i32 = dir.text("third").trim().parse().unwrap();
    let _third = Srun::ask(&node, waiting).connect();

    let shim: i32 = dir.text("spool.n1/shim.pid").trim().parse().unwrap();
    // Its socket is there before it has its name.
    let until = Instant::now() + PATIENCE;
    let waiting = loop {
        let others = fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap();
        let mut others = others
            .split_ascii_whitespace()
            .map(|pid| pid.parse().unwrap())
            .filter(|pid| ![daemon, daemon_of_victim].contains(pid));
        if let Some(found) = others.find(|pid| name_of(*pid) == "muster-stepd") {
            break found;
        }
        assert!(Instant::now() < until, "there is no third daemon");
        std::thread::yield_now();
    };
    let task = child_of(waiting);
    for pid in [daemon, waiting, task] {
        let memory = Memory::of(pid);
        assert!(memory.has(own.as_bytes()), "the search finds nothing");
        for (what, secret) in [("script", &victim), ("step", &of_step)] {
            assert!(!memory.has(secret.as_bytes()), "{what}, {}", name_of(pid));
        }
        // Agents know each other by these.
        for key in [&victim_key, &own_key] {
            assert!(!memory.has(key), "{}", name_of(pid));
        }
    }
    for pid in [shim, daemon, waiting, daemon_of_victim] {
        for file in ["environ", "cmdline"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            let text = Memory(vec![text]);
            for secret in [&victim, &of_step, &own] {
                assert!(!text.has(secret.as_bytes()), "{file} of {}", name_of(pid));
            }
        }
    }
    let log = Memory(vec![dir.text("spool.n1/shim.log").into_bytes()]);
    for secret in [&victim, &of_step, &own] {
        assert!(!log.has(secret.as_bytes()));
    }
    for job in [1, 2] {
        node.terminate(job, TerminateReason::Finished);
    }
}

fn name_of(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    name.trim_end().to_owned()
}
