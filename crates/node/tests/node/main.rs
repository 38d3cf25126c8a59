//! Agent, shim and step daemon with real processes, against a controller that the tests play. The test program is
//! its own agent and shim: it starts itself under other arguments.
// Modules of a test program have no outside.
#![allow(unreachable_pub, clippy::unwrap_used)]

mod around;
mod attacker;
mod attacks;
mod batch;
mod cluster;
mod containment;
mod daemon_reuse;
mod direct;
mod dumpable;
mod launches;
mod lies;
mod privileges;
mod secrets;
mod step_strangers;
mod steps;
mod tmp_dirs;
mod versions;

use log::LevelFilter;
use muster_node::{
    AGENT_NAME, AgentLog, AgentOptions, EmulateOptions, EmulatedNode, LAUNCHER_NAME, RunTime,
};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    if name.ends_with(LAUNCHER_NAME) {
        return muster_node::launcher_main(args);
    }
    if name.ends_with(muster_node::STEPD_NAME) {
        return muster_node::stepd_main();
    }
    if name.ends_with(muster_node::HOST_NAME) {
        return muster_node::pmix_host_main();
    }
    if name.ends_with(AGENT_NAME) {
        return muster_node::agent_main(|_| panic_by_pipe());
    }
    let args: Vec<String> = args.collect();
    if args.first().is_some_and(|a| a == "agent") {
        return agent(&args[1..]);
    }
    if args.first().is_some_and(|a| a == EMULATE) {
        return emulate(&args[1..]);
    }
    if args.first().is_some_and(|a| a == attacker::ROLE) {
        return attacker::run(&args[1..]);
    }
    if args.first().is_some_and(|a| a == privileges::ROLE) {
        return privileges::run(&args[1..]);
    }
    let wanted = args.iter().find(|a| !a.starts_with('-'));
    if args.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let tests = [
        batch::TESTS,
        containment::TESTS,
        launches::TESTS,
        steps::TESTS,
        step_strangers::TESTS,
        direct::TESTS,
        daemon_reuse::TESTS,
        around::TESTS,
        attacks::TESTS,
        privileges::TESTS,
        lies::TESTS,
        secrets::TESTS,
        dumpable::TESTS,
        tmp_dirs::TESTS,
        versions::TESTS,
    ]
    .concat();
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: {} tests run only as root", tests.len());
        return ExitCode::SUCCESS;
    }
    let (mut failed, mut run) = (0, 0);
    for (name, test) in tests {
        if wanted.is_some_and(|w| !name.contains(w.as_str())) {
            continue;
        }
        run += 1;
        let started = std::time::Instant::now();
        let result = std::panic::catch_unwind(test);
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        failed += usize::from(result.is_err());
        println!(
            "test {name} ... {verdict} ({} ms)",
            started.elapsed().as_millis()
        );
    }
    println!("{} passed, {failed} failed", run - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// First argument of the program that emulates a node, which listens in the directory that follows, without a controller.
const EMULATE: &str = "emulate";

fn emulate(args: &[String]) -> ExitCode {
    let dir = Path::new(&args[0]);
    let options = EmulateOptions {
        nodes: vec![EmulatedNode {
            name: "n1".to_owned(),
            cpus: 1,
            memory_mib: 1,
            numa_distances: Vec::new(),
        }],
        controller_socket: dir.join("none"),
        cluster: cluster::CLUSTER.to_owned(),
        run_time: RunTime::Fixed(0.0),
        report: None,
        step_dir: Some(dir.to_owned()),
    };
    muster_node::emulate(options).unwrap();
    ExitCode::SUCCESS
}

/// A test: its name, and what it does.
type Test = (&'static str, fn());

/// Variable with the path of a pipe: when that is written to, a thread of the agent panics. It is one that agents get.
const PANIC_BY: &str = "RUST_BACKTRACE";

fn panic_by_pipe() {
    let Some(path) = std::env::var_os(PANIC_BY) else {
        return;
    };
    let Ok(mut pipe) = File::options().read(true).write(true).open(path) else {
        return;
    };
    std::thread::spawn(move || {
        pipe.read_exact(&mut [0]).unwrap();
        panic!("as the test wants it");
    });
}

fn options(name: &str, controller_socket: &Path, spool_dir: &Path) -> AgentOptions {
    AgentOptions {
        name: name.to_owned(),
        cluster: cluster::CLUSTER.to_owned(),
        address: String::new(),
        controller_socket: controller_socket.to_owned(),
        spool_dir: spool_dir.to_owned(),
        claimed_cpus: Some(8),
        claimed_sockets: 0,
        shared_machine: true,
        claimed_memory_mib: Some(8000),
        launcher_program: None,
        slurmd_user: String::new(),
        network: Default::default(),
        conf: String::new(),
        fetch: Vec::new(),
        dynamic: None,
        spool_pattern: spool_dir.with_file_name("spool.%n").display().to_string(),
    }
}

fn agent(args: &[String]) -> ExitCode {
    let log = AgentLog {
        file: None,
        path: None,
        replace: drop,
        append: |line| eprintln!("{line}"),
        level: LevelFilter::Off,
    };
    let options = options(&args[0], args[1].as_ref(), args[2].as_ref());
    match muster_node::run(options, log, || {}) {
        Ok(status) => status,
        Err(e) => {
            eprintln!("agent: {e:#}");
            ExitCode::FAILURE
        }
    }
}
