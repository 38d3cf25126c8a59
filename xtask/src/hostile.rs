//! `cargo xtask hostile`: attacks against a cluster of real processes, until their time is over.

use crate::cluster::{Cluster, target};
use anyhow::{Context, Result, bail, ensure};
use muster_hostile::attacks::{ATTACKS, Attack};
use muster_hostile::campaign::{Report, Round};
use muster_hostile::random::Random;
use muster_hostile::target::{Target, configuration};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long loads run between two turns of the attacks that are carried out one by one.
const LOAD: Duration = Duration::from_secs(20);
/// How long another user's submission may take while loads run, with a program that is built for release.
const SUBMISSION_MAX: Duration = Duration::from_millis(50);

/// What is asked for on the command line.
struct Options {
    time: Duration,
    seed: u64,
    attacks: Vec<&'static Attack>,
    /// Whether the program is one that was built for release, so that times count.
    release: bool,
}

impl Options {
    fn read(args: &[String]) -> Result<Options> {
        let mut options = Options {
            time: Duration::ZERO,
            seed: 1,
            attacks: Vec::new(),
            release: false,
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word}: a value must follow"))?;
            let number = || {
                let number = value.parse::<u64>();
                number.with_context(|| format!("{word}: a number must follow"))
            };
            match word.as_str() {
                "--muster" => crate::build::use_given(value)?,
                "--minutes" => options.time = Duration::from_secs(60 * number()?),
                "--seed" => options.seed = number()?,
                "--attack" => {
                    let named = ATTACKS.iter().find(|attack| attack.name == value);
                    options.attacks.push(named.with_context(|| known(value))?);
                }
                _ => bail!("{word}: --minutes, --seed, --attack, --release and --muster are known"),
            }
        }
        if options.attacks.is_empty() {
            options.attacks.extend(ATTACKS);
        }
        Ok(options)
    }
}

fn known(name: &str) -> String {
    let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
    format!("--attack {name}: there are {}", names.join(", "))
}

/// Runs the attacks.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::read(args)?;
    let place = target().join("hostile");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let conf = place.join("slurm.conf");
    let mut cluster = Cluster::stopped("hostile", options.release)?;
    let attacked = Target::prepare(&cluster.home)?;
    fs::write(&conf, configuration(&cluster.home))?;
    cluster.start(&place, &["-f", &*conf.to_string_lossy()])?;
    let (mut report, mut random) = (Report::default(), Random::new(options.seed));
    let started = Instant::now();
    for number in 0.. {
        for attack in &options.attacks {
            let found = report.attack(&attacked, attack, &mut random);
            say(attack.name, found);
        }
        let left = options.time.saturating_sub(started.elapsed());
        if !left.is_zero() {
            let round = Round {
                number,
                seed: options.seed,
                time: left.min(LOAD),
                requests: u64::MAX,
            };
            let found = report.load(&attacked, &round, &own_program);
            say("loads", found);
        }
        if started.elapsed() >= options.time || !report.findings().is_empty() {
            break;
        }
    }
    report.restart(&attacked);
    println!("\n{}", report.table());
    let mut findings = report.findings();
    let slowest = report.submission_time(990);
    if options.release && slowest > SUBMISSION_MAX {
        let (slowest, most) = (slowest.as_millis(), SUBMISSION_MAX.as_millis());
        findings.push(format!(
            "99 % of another user's submissions took up to {slowest} ms; {most} ms are allowed"
        ));
    }
    if !findings.is_empty() {
        cluster.keep = true;
        println!(
            "state and logs of the cluster are in {}",
            cluster.home.display()
        );
    }
    ensure!(
        findings.is_empty(),
        "seed {}:\n{}",
        options.seed,
        findings.join("\n")
    );
    Ok(())
}

fn say(what: &str, found: bool) {
    println!("{what:32} {}", if found { "FOUND" } else { "held" });
}

/// This program, as the processes of a load run it.
fn own_program() -> Command {
    Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()))
}
