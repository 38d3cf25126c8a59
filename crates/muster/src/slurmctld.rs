//! `slurmctld`: the controller, with the options of slurmctld(8).

use crate::daemon::{self, PidFile, Ready};
use crate::logging;
use anyhow::{Context, Result, bail};
use muster_conf::endpoint::conf_path;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Usage: slurmctld [OPTIONS]
  -c             cancel every job that is in the queue when the controller starts
  -D             stay in the foreground and log to the terminal
  -f FILE        read this slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)
  -h             print this help
  -L FILE        log here instead of SlurmctldLogFile
  -n N           run at this nice value
  -r, -R, -s     accepted: state is always recovered in full
  -v             log more; may be repeated
  -V             print the version
";

#[derive(Default)]
struct Args {
    foreground: bool,
    conf: Option<PathBuf>,
    log: Option<PathBuf>,
    verbose: usize,
    clear: bool,
    nice: Option<i32>,
}

/// Runs the controller.
pub fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(()), start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("{e:#}");
            eprintln!("slurmctld: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let mut parsed = Args::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--help" || word == "--version" {
            return Ok(print(word));
        }
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
            bail!("'{word}' is not an option; 'slurmctld -h' lists them");
        };
        for (i, letter) in letters.char_indices() {
            let mut value = || {
                let rest = &letters[i + 1..];
                let value = if rest.is_empty() {
                    words.next().cloned()
                } else {
                    Some(rest.to_owned())
                };
                value.with_context(|| format!("option -{letter} needs a value"))
            };
            match letter {
                'D' => parsed.foreground = true,
                'c' => parsed.clear = true,
                'v' => parsed.verbose += 1,
                'r' | 'R' | 's' | 'B' => {}
                'h' | 'V' => return Ok(print(word)),
                'f' => parsed.conf = Some(value()?.into()),
                'L' => parsed.log = Some(value()?.into()),
                'n' => parsed.nice = Some(value()?.parse().context("-n takes a number")?),
                'i' => bail!(
                    "-i is refused: errors in the saved state are never skipped, since jobs would be lost with them"
                ),
                _ => bail!("unknown option -{letter}; 'slurmctld -h' lists them"),
            }
            if matches!(letter, 'f' | 'L' | 'n') {
                break;
            }
        }
    }
    Ok(Some(parsed))
}

fn print(word: &str) -> Option<Args> {
    if word.contains('V') || word == "--version" {
        println!("slurm {}", muster_ctld::SLURM_VERSION);
    } else {
        print!("{HELP}");
    }
    None
}

fn start(args: Args) -> Result<()> {
    let conf = args.conf.unwrap_or_else(conf_path);
    let conf = std::fs::canonicalize(&conf)
        .with_context(|| format!("cannot read the configuration {}", conf.display()))?;
    let (config, _) = muster_conf::load(&conf);
    if let Some(nice) = args.nice {
        std::process::Command::new("renice")
            .args([
                "-n",
                &nice.to_string(),
                "-p",
                &std::process::id().to_string(),
            ])
            .output()
            .context("cannot change the nice value")?;
    }
    let ready = if args.foreground {
        Ready::foreground()
    } else {
        daemon::daemonise()?
    };
    let log_file = args.log.or_else(|| config.paths.slurmctld_log_file.clone());
    let level = logging::level(config.slurmctld_debug, args.verbose);
    logging::start(log_file.as_deref(), args.foreground, level)?;
    let _pid_file = PidFile::take(&config.paths.slurmctld_pid_file)?;
    let options = muster_ctld::Options {
        conf,
        clear: args.clear,
    };
    muster_ctld::run(&options, || ready.tell())
}
