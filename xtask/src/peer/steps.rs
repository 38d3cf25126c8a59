//! Steps in an allocation: so many sruns a second. This program calls itself inside the allocation, so that nothing but
//! srun is started there.

use super::{Product, again, together};
use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// First argument of this program where it is called inside an allocation.
pub(crate) const INSIDE: &str = "burst";

/// The same, where two commands are compared.
pub(crate) const IN_TURNS: &str = "in-turns";

/// So often each of two commands has its turn, for what else the machine does to fall to both.
const TURNS: u32 = 4;

const ONE: [&str; 6] = ["srun", "-Q", "-N1", "-n1", "--exact", "true"];
const FOUR: [&str; 5] = ["srun", "-Q", "-N4", "-n4", "true"];

/// `COUNT PARALLEL WORD...`: runs a command so many times, so many at once, and prints the seconds that it took.
pub(crate) fn burst(args: &[String]) -> Result<()> {
    let [count, parallel, words @ ..] = args else {
        anyhow::bail!("{INSIDE} COUNT PARALLEL PROGRAM [ARGUMENT...]");
    };
    println!("{}", seconds(count.parse()?, parallel.parse()?, words)?);
    Ok(())
}

/// `COUNT PARALLEL WORD...`: runs the command's last word alone, and the command, in turns; prints how much of the time that
/// the command took the last word took alone, in per cent.
pub(crate) fn in_turns(args: &[String]) -> Result<()> {
    let [count, parallel, words @ ..] = args else {
        anyhow::bail!("{IN_TURNS} COUNT PARALLEL PROGRAM [ARGUMENT...]");
    };
    let (count, parallel) = (count.parse()?, parallel.parse()?);
    let last = &words[words.len().saturating_sub(1)..];
    let (mut alone, mut whole) = (0.0, 0.0);
    for _ in 0..TURNS {
        alone += seconds(count, parallel, last)?;
        whole += seconds(count, parallel, words)?;
    }
    println!("{}", 100.0 * alone / whole);
    Ok(())
}

fn seconds(count: u32, parallel: u32, words: &[String]) -> Result<f64> {
    let (program, words) = words.split_first().context("no program is given")?;
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
    Ok(started.elapsed().as_secs_f64())
}

/// Output of this program, which runs a command inside an allocation of four nodes.
fn inside(
    p: &Product,
    dir: &Path,
    how: &str,
    (count, parallel): (u32, u32),
    words: &[&str],
) -> Result<f64> {
    p.clear(dir)?;
    let own = std::env::current_exe()?.display().to_string();
    let (count, parallel) = (count.to_string(), parallel.to_string());
    let mut args = vec!["salloc", "-Q", "-N4", "-n64", &own, how, &count, &parallel];
    args.extend(words);
    Ok(p.text(&args, dir)?.parse()?)
}

/// Commands a second.
fn rate(p: &Product, dir: &Path, count: u32, parallel: u32, words: &[&str]) -> Result<f64> {
    let seconds = inside(p, dir, INSIDE, (count, parallel), words)?;
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
    inside(p, dir, IN_TURNS, (500, 1), &ONE)
}

/// The same of eight at a time, which take what the machine has.
pub(super) fn share_of_eight_bare_programs(p: &Product, dir: &Path) -> Result<f64> {
    inside(p, dir, IN_TURNS, (500, 8), &ONE)
}
