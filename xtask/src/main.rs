//! Development tasks: `cargo xtask check | demo | sim | bench`.

mod check;
mod demo;
mod peer;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask check             format, lints as errors, all tests
cargo xtask demo              build, start a cluster here, run jobs on it, show the listings
cargo xtask bench peer        Muster beside Slurm (where it is installed), with ratios
";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check"] => check::run(),
        ["demo"] => demo::run(),
        ["bench", "peer", ..] => peer::run(&args[2..]),
        [] | ["help" | "--help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => bail!("unknown task; these exist:\n{HELP}"),
    }
}
