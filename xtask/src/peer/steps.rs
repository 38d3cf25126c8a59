//! Steps in an allocation: so many sruns a second. This program calls itself inside the allocation, so that nothing but
//! srun is started there.

use super::{Product, again, together};
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// First argument of this program where it is called inside an allocation.
pub(crate) const INSIDE: &str = "burst";

const ONE: [&str; 6] = ["srun", "-Q", "-N1", "-n1", "--exact", "true"];
const FOUR: [&str; 5] = ["srun", "-Q", "-N4", "-n4", "true"];

/// `COUNT PARALLEL WORD...`: runs a command so many times, so many at once, and prints the seconds that it took.
pub(crate) fn burst(args: &[String]) -> Result<()> {
    let [count, parallel, program, words @ ..] = args else {
        anyhow::bail!("{INSIDE} COUNT PARALLEL PROGRAM [ARGUMENT...]");
    };
    let (count, parallel): (u32, u32) = (count.parse()?, parallel.parse()?);
    let started = Instant::now();
    let make = || {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        again(command)
    };
    let failed = together(count, parallel, make);
    anyhow::ensure!(
        failed == 0,
        "{failed} of {count} commands {program} {words:?} failed"
    );
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}

/// Commands a second inside an allocation of four nodes.
fn rate(p: &Product, dir: &Path, count: u32, parallel: u32, words: &[&str]) -> Result<f64> {
    p.clear(dir)?;
    let own = std::env::current_exe()?.display().to_string();
    let (times, parallel) = (count.to_string(), parallel.to_string());
    let mut args = vec![
        "salloc", "-Q", "-N4", "-n64", &own, INSIDE, &times, &parallel,
    ];
    args.extend(words);
    let seconds: f64 = p.text(&args, dir)?.parse()?;
    Ok(f64::from(count) / seconds)
}

pub(super) fn one_after_another(p: &Product, dir: &Path) -> Result<f64> {
    rate(p, dir, 100, 1, &ONE)
}

pub(super) fn eight_at_once(p: &Product, dir: &Path) -> Result<f64> {
    rate(p, dir, 400, 8, &ONE)
}

pub(super) fn over_four_nodes(p: &Product, dir: &Path) -> Result<f64> {
    rate(p, dir, 40, 1, &FOUR)
}

/// Per cent of the rate at which the program could be started without srun and everything behind it.
pub(super) fn share_of_the_bare_program(p: &Product, dir: &Path) -> Result<f64> {
    share(p, dir, 1)
}

/// The same of eight at a time, which take what the machine has.
pub(super) fn share_of_eight_bare_programs(p: &Product, dir: &Path) -> Result<f64> {
    share(p, dir, 8)
}

fn share(p: &Product, dir: &Path, parallel: u32) -> Result<f64> {
    let bare = rate(p, dir, 1000, parallel, &["true"])?;
    Ok(100.0 * rate(p, dir, 1000, parallel, &ONE)? / bare)
}
