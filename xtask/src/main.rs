//! Development tasks: `cargo xtask build | check | clients | demo | differ | fuzz | generate | hostile | kill | mpi4py | numa |
//! package | sim | bench`.

mod bench;
mod build;
mod check;
mod clients;
mod cluster;
mod demo;
mod differ;
mod fuzz;
mod generate;
mod guard;
#[cfg(feature = "attacks")]
mod hostile;
#[cfg(feature = "attacks")]
mod kill;
mod mpi;
mod mpi4py;
mod numa;
mod package;
mod peer;
mod profile;
mod selection;
mod sim;

use anyhow::{Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask build             a release, target/release/muster: the commands linked statically inside, built twice, the
                              second time by a profile of what the first one does, symbols beside (muster.debug);
                              [--plain] builds it once, symbols inside, [--debug] with debug assertions
cargo xtask check             format, lints as errors, all tests; [--quick] in a build of its own, a quarter as large,
                              for a machine that does nothing else with it
cargo xtask clients           programs that use Slurm's commands, installed from the package index, against a cluster
                              of their own: [NAME ...] [--muster FILE], see tests/clients
cargo xtask demo              build, start a cluster here, run jobs on it, show the listings
cargo xtask differ            command lines of tests/differ and drawn ones on Slurm (where it is installed) and on Muster in the
                              same state; what differs and is not accepted there: [--seed N] [--lines N] [--only COMMAND];
                              those of tests/grid-engine on Grid Engine: [--grid-engine]
                              [--muster FILE]
cargo xtask fuzz              coverage-guided fuzzing of decoders, decisions and parsers; a minute each:
                              [--minutes N] [TARGET...]
cargo xtask generate          docs/compat.md and docs/security.md, from the tables that the programs run on
cargo xtask hostile           attacks of unprivileged users on a cluster of their own, all of which must fail:
                              [--minutes N] [--seed S] [--attack NAME]... [--release] [--muster FILE]
cargo xtask kill              daemons of a cluster under load are killed in turn, and nothing may be lost:
                              [--rounds N] [--nodes N] [--clients N] [--seed S] [--hostile] [--muster FILE]
cargo xtask mpi4py            mpi4py's own tests, started by srun and by mpirun over two nodes: [test_NAME ...]
                              [--muster FILE]
cargo xtask numa              jobs on a machine of eight NUMA domains that QEMU makes up: their cores, their memory:
                              [--muster FILE]
cargo xtask package           packages for Debian and for distributions with RPM, one for each role of a host, and an archive, in
                              target/package: [--debug|--quick|--muster FILE] [deb] [rpm] [archive]; [--check] installs,
                              updates and removes them in a copy of this machine's root
cargo xtask sim               the deterministic simulator: --seeds N [--from S] [--nodes N] [--steps N],
                              or --seed S [--trace] for one
cargo xtask compare-selection what Slurm (where it is installed) answers to the requests of crates/sim/tests/selection,
                              and where the tables there differ: [--write] [TABLE...]
cargo xtask bench mpi         MPI programs started by srun and by mpirun: start, MPI_Init, messages; [OPTIONS] of
                              'muster bench mpi'
cargo xtask bench sched       passes of the scheduler over 10,000 nodes and 100,000 waiting jobs: times, memory
cargo xtask bench all         throughput, latency, memory, restart beside peers and limits, as a table, JSON and
                              plots: [--only=NAME,...] [--scale=X] [--large] [--no-peers] [--muster=FILE]; see docs/performance.md
cargo xtask bench peer        Muster beside Slurm (where it is installed), with ratios
";

fn main() -> ExitCode {
    // A process of an attack.
    #[cfg(feature = "attacks")]
    if muster_hostile::load::main() {
        return ExitCode::SUCCESS;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|word| word == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["build"] => profile::profiled().map(|_| ()),
        ["build", "--plain"] => build::muster(build::Profile::Release).map(|_| ()),
        ["build", "--debug"] => build::muster(build::Profile::Dev).map(|_| ()),
        ["check"] => check::run(build::Profile::Dev),
        ["check", "--quick"] => check::run(build::Profile::Quick),
        ["clients", ..] => clients::run(&build::without_given(&args[1..])?),
        ["compare-selection", ..] => selection::run(&args[1..]),
        ["demo"] => demo::run(),
        ["differ", ..] => differ::run(&args[1..]),
        ["fuzz", ..] => fuzz::run(&args[1..]),
        ["generate"] => generate::run(),
        ["hostile" | "kill", ..] => attacks(args),
        ["mpi4py", ..] => mpi4py::run(&build::without_given(&args[1..])?),
        ["numa", ..] => numa::run(&args[1..]),
        ["package", ..] => package::run(&args[1..]),
        ["sim", ..] => sim::run(&args[1..]),
        ["bench", "mpi", ..] => mpi::run(&args[2..]),
        ["bench", "sched"] => sim::bench_sched(),
        ["bench", "all", ..] => bench::run(&args[2..]),
        ["bench", "peer", ..] => peer::run(&args[2..]),
        [peer::INSIDE, ..] => peer::burst(&args[1..]),
        [peer::IN_TURNS, ..] => peer::in_turns(&args[1..]),
        [bench::ASK, ..] => bench::asks(&args[1..]),
        [] | ["help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => bail!("unknown task; these exist:\n{HELP}"),
    }
}

#[cfg(feature = "attacks")]
fn attacks(args: &[String]) -> Result<()> {
    match args[0].as_str() {
        "kill" => kill::run(&args[1..]),
        _ => hostile::run(&args[1..]),
    }
}

/// Runs a task that needs crates of the product. Other tasks do without them, so that `cargo xtask demo` need not build them
/// twice.
#[cfg(not(feature = "attacks"))]
fn attacks(args: &[String]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--profile", "quick"])
        .args(["--package", "xtask", "--features", "attacks", "--"])
        .args(args)
        .status()?;
    anyhow::ensure!(status.success(), "{} failed", args[0]);
    Ok(())
}
