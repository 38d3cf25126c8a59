//! `cargo xtask hostile`: attacks against a cluster of real processes, until their time is over.

use crate::build::target;
use crate::cluster::Cluster;
use anyhow::{Context, Result, bail, ensure};
use muster_hostile::attacks::{ATTACKS, Attack};
use muster_hostile::campaign::{CampaignReport, PROCESSES, Round};
use muster_hostile::load::{Assignment, LOADS};
use muster_hostile::network::NetworkDaemons;
use muster_hostile::random::Random;
use muster_hostile::rest::RestDaemon;
use muster_hostile::slices::Slices;
use muster_hostile::target::{Target, configuration};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that loads run between two turns of the attacks that are carried out one by one.
const LOAD: Duration = Duration::from_secs(20);
/// Time by which another user's submission may take longer than a command that asks nothing while loads run, with a
/// program that is built for release. Where attackers have processors of their own, that is all that it takes.
const SUBMISSION_MAX: Duration = Duration::from_millis(50);

/// Options of the command line.
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
            if word == "--release" {
                options.release = true;
                continue;
            }
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

/// Makes what attacks need of a cluster before it is started; gives the options to start it with.
pub(crate) fn prepare(cluster: &Cluster, place: &Path) -> Result<Vec<String>> {
    let conf = place.join("slurm.conf");
    Target::prepare(&cluster.home)?;
    fs::write(&conf, configuration(&cluster.home))?;
    Ok(vec!["-f".to_owned(), conf.display().to_string()])
}

/// Time that one process attacks, where attackers are started again and again.
pub(crate) const ATTACK: Duration = Duration::from_secs(5);
/// Ends what attackers have left.
pub(crate) const CANCEL: &str = "scancel --user=65534; scancel --user=60001";

/// Processes that attack a cluster until they are stopped, whatever becomes of it meanwhile.
pub(crate) struct Attackers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Attackers {
    /// Starts them.
    pub(crate) fn start(cluster: &Cluster, seed: u64) -> Attackers {
        let stop = Arc::new(AtomicBool::new(false));
        let attack = |process: usize| {
            let (stop, target) = (stop.clone(), Target::new(&cluster.home));
            std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let number = round * PROCESSES + process;
                    let task = Assignment {
                        load: number % LOADS.len(),
                        seed: seed.wrapping_add(number as u64),
                        time: ATTACK,
                        requests: u64::MAX,
                    };
                    let mut command = own_program();
                    task.put(&target, &mut command);
                    // Its findings are that daemons do not answer: they are being killed.
                    let _ = command.stdin(Stdio::null()).output();
                    round += 1;
                }
                round as u64
            })
        };
        let threads = (0..PROCESSES).map(attack).collect();
        Attackers { stop, threads }
    }

    /// Stops them; gives how many attacks there were.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .sum()
    }
}

/// Runs the attacks.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::read(args)?;
    let place = target().join("hostile");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let slices = match Slices::enter() {
        Ok(slices) => Some(slices),
        Err(e) => {
            println!("daemons and users have no shares of the processors of their own: {e}");
            None
        }
    };
    let mut cluster = Cluster::stopped("hostile", options.release)?;
    let up = prepare(&cluster, &place)?;
    let words: Vec<&str> = up.iter().map(String::as_str).collect();
    cluster.start(&place, &words)?;
    let attacked = Target::new(&cluster.home);
    let _rest = RestDaemon::start(&attacked).context("slurmrestd")?;
    let _network = NetworkDaemons::start(&attacked).context("SlurmdPort and sackd")?;
    let mut random = Random::new(options.seed);
    let mut report = CampaignReport::with_slices(slices);
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
    let (slowest, start) = (
        report.submissions.of_thousand(990),
        report.starts.of_thousand(990),
    );
    if options.release && slowest > start + SUBMISSION_MAX {
        let [slowest, start, most] = [slowest, start, SUBMISSION_MAX].map(|time| time.as_millis());
        findings.push(format!(
            "99 % of another user's submissions took up to {slowest} ms, where a command that asks nothing took {start} ms; \
             {most} ms more are allowed"
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

/// This program, as the processes of a load run it. Its file may have been built anew meanwhile.
fn own_program() -> Command {
    Command::new("/proc/self/exe")
}
