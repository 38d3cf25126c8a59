//! Runs one of the commands: `command sbatch --wrap true`. The tests use it to see what users see.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((name, rest)) => muster_cli::run(name, rest).unwrap_or(ExitCode::FAILURE),
        None => ExitCode::FAILURE,
    }
}
