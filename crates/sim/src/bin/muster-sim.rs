//! Runs the simulator over a range of seeds; what `cargo xtask sim` calls. The first seed in which an invariant does
//! not hold ends it, with the command that runs it again.

use muster_sim::{FaultClass, Options, run};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
cargo xtask sim [--seeds N] [--from S] [--nodes N] [--steps N]   run seeds S, S+1, ...
cargo xtask sim --seed S [--trace] [--nodes N] [--steps N]       run one, and print what happened
    --trace-node N      with all that the processes of this node are given and do
    --classes C,C,...   classes of faults instead of those that the seed draws: hostile-clients, lying-nodes,
                        dying-threads, failing-storage, slow-syncs, clock-steps, failing-nodes,
                        dying-processes, unreliable-messages; or none
";

struct Args {
    from: u64,
    seeds: u64,
    options: Options,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(text) => {
            eprintln!("{text}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    // A panic of the controller is a finding, reported like any other. Who looks closely sees its place.
    if !args.options.trace {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let start = Instant::now();
    // A line that is written over is for people who watch.
    let watched = std::io::stdout().is_terminal() && !args.options.trace;
    let (mut events, mut restarts, mut acknowledged, mut launches, mut turns) = (0, 0, 0, 0, 0);
    let (mut virtual_ms, mut attacks) = (0, (0, 0));
    for (done, seed) in (1..=args.seeds).zip(args.from..) {
        let report = run(seed, &args.options);
        if args.options.trace {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        if let Some(violation) = &report.violation {
            if !args.options.trace {
                println!();
                let from = report.trace.len().saturating_sub(40);
                report.trace[from..]
                    .iter()
                    .for_each(|line| println!("{line}"));
            }
            println!("\nseed {seed} ({} nodes): {violation}", report.nodes);
            println!("run it again: {}", again(seed, &args.options));
            return ExitCode::FAILURE;
        }
        events += report.events;
        restarts += report.restarts;
        acknowledged += report.acknowledged;
        launches += report.launches;
        turns += report.turns;
        virtual_ms += report.virtual_ms;
        attacks.0 += report.attacks.0;
        attacks.1 += report.attacks.1;
        if watched {
            let per_s = done as f64 / start.elapsed().as_secs_f64();
            print!("\r{done}/{} seeds, {per_s:.0} per second", args.seeds);
            let _ = std::io::stdout().flush();
        }
    }
    if watched {
        println!();
    }
    println!(
        "no invariant was broken: {} seeds, {turns} turns, {events} events, {acknowledged} acknowledged \
         submissions, {launches} launches, {restarts} restarts, {} requests of hostile users ({} accepted), {} hours \
         of virtual time, {:.1} s",
        args.seeds,
        attacks.0,
        attacks.1,
        virtual_ms / 3_600_000,
        start.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

fn again(seed: u64, options: &Options) -> String {
    let defaults = Options::default();
    let mut command = format!("cargo xtask sim --seed {seed} --trace");
    if options.nodes != defaults.nodes {
        command.push_str(&format!(" --nodes {}", options.nodes));
    }
    if options.steps != defaults.steps {
        command.push_str(&format!(" --steps {}", options.steps));
    }
    if let Some(classes) = &options.classes {
        let names: Vec<String> = classes.iter().map(ToString::to_string).collect();
        let list = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(","),
        };
        command.push_str(&format!(" --classes {list}"));
    }
    command
}

fn classes(list: &str) -> Result<Vec<FaultClass>, String> {
    match list {
        "none" => Ok(Vec::new()),
        list => list.split(',').map(str::parse).collect(),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        from: 1,
        seeds: 200,
        options: Options::default(),
    };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("{word} needs a number"))?;
            value
                .parse::<u64>()
                .map_err(|_| format!("{word} needs a number, not '{value}'"))
        };
        match word.as_str() {
            "--seeds" => args.seeds = number()?,
            "--from" => args.from = number()?,
            "--seed" => {
                args.from = number()?;
                args.seeds = 1;
            }
            "--nodes" => args.options.nodes = usize::try_from(number()?).unwrap_or(0),
            "--steps" => args.options.steps = u32::try_from(number()?).unwrap_or(u32::MAX),
            "--trace" => args.options.trace = true,
            "--trace-node" => {
                args.options.trace = true;
                args.options.trace_node = usize::try_from(number()?).ok();
            }
            "--classes" => {
                let list = words.next().ok_or("--classes needs a list")?;
                args.options.classes = Some(classes(&list)?);
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(args)
}
