//! `slurmctld`: the controller, with the options of slurmctld(8).

use crate::conf_owner;
use crate::controller_host;
use crate::daemon::{self, PidFile, Ready};
use crate::flags::{Daemon, flag, long_flag};
use crate::logging;
use crate::slurm_user;
use anyhow::{Context, Result, ensure};
use muster_conf::endpoint::conf_path;
use muster_conf::{Config, Diagnostic, Severity};
use muster_ctld::client_timeouts::ClientTimeouts;
use muster_ctld::priority;
use muster_ctld::{HttpAnswer, HttpPages};
use muster_model::ids::JobId;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// slurmctld.
pub(crate) static DAEMON: Daemon = Daemon {
    name: "slurmctld",
    about: "The controller: keeps the queue, schedules, answers commands, gives nodes their orders.",
    operands: "",
    flags: &[
        flag('B', "", "do not recover the state of burst buffers").stored("there are none"),
        flag(
            'c',
            "",
            "start as if there were no saved state: cancel every job, forget reservations, triggers, and states of nodes and \
             partitions",
        ),
        flag('D', "", "stay in the foreground and log to the terminal"),
        flag(
            'f',
            "FILE",
            "read this slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)",
        ),
        flag('h', "", "print this help"),
        flag('i', "", "ignore errors in the saved state")
            .stored("saved state with an error is never skipped: the log says what to do"),
        flag('L', "FILE", "log here instead of SlurmctldLogFile"),
        flag(
            'n',
            "N",
            "run at this nice value (default: threads that users wait for at -10, where root or LimitNICE= allows it)",
        ),
        flag('r', "", "recover part of the state").stored("state is always recovered in full"),
        flag('R', "", "recover the state in full").stored("it always is"),
        flag('s', "", "change to the state directory").stored("no core file is written there"),
        flag('v', "", "log more; may be repeated"),
        long_flag(
            "without-job",
            'w',
            "JOB",
            "leave this job out of the saved state; for a job with which the controller cannot go on, as its log says. It is \
             lost, and accounting has it as cancelled",
        ),
        flag('V', "", "print the version"),
    ],
};

#[derive(Default)]
struct Args {
    foreground: bool,
    conf: Option<PathBuf>,
    log: Option<PathBuf>,
    verbose: usize,
    clear: bool,
    nice: Option<i32>,
    without_jobs: Vec<JobId>,
}

/// Runs the controller.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(()), start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("{e:#}");
            complain!("slurmctld: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let mut parsed = Args::default();
    for (letter, value) in DAEMON.parse(args)? {
        match letter {
            'D' => parsed.foreground = true,
            'c' => parsed.clear = true,
            'v' => parsed.verbose += 1,
            'h' => {
                say!("{}", DAEMON.help());
                return Ok(None);
            }
            'V' => {
                say!("slurm {}\n", muster_ctld::SLURM_VERSION);
                return Ok(None);
            }
            'f' => parsed.conf = Some(value.into()),
            'L' => parsed.log = Some(value.into()),
            'w' => {
                let job = value
                    .parse()
                    .context("--without-job takes the number of a job")?;
                parsed.without_jobs.push(JobId(job));
            }
            'n' => parsed.nice = Some(value.parse().context("-n takes a number")?),
            // The rest has no effect; the table says why.
            _ => {}
        }
    }
    Ok(Some(parsed))
}

/// Warning at the start of a controller that stays root.
const ROOT_WARNING: &str = "SlurmUser is not set, or is root: the controller runs as root, and so do MailProg and \
    PrologSlurmctld; make an account for it and name it in slurm.conf (SlurmUser=slurm)";

/// Directories that are others' as well: the controller closes its own to everybody else.
const SHARED_DIRECTORIES: [&str; 13] = [
    "/",
    "/etc",
    "/home",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/var",
    "/var/lib",
    "/var/spool",
    "/var/tmp",
];

fn check_state_directory(dir: &Path) -> Result<()> {
    let plain: PathBuf = dir.components().collect();
    ensure!(
        !SHARED_DIRECTORIES
            .iter()
            .any(|shared| plain == Path::new(shared)),
        "StateSaveLocation is {}, which is not the controller's alone: name a directory of its own in slurm.conf, such as \
         /var/spool/slurmctld",
        dir.display()
    );
    Ok(())
}

/// Finding of `muster config check` about a `StateSaveLocation` with which slurmctld does not start. Slurm's default is one.
pub(crate) fn check_state_location(config: &Config) -> Option<Diagnostic> {
    const KEY: &str = "StateSaveLocation";
    let wrong = check_state_directory(&config.paths.state_save_location).err()?;
    let origin = match config
        .raw
        .get(KEY)
        .or_else(|| config.raw.get("ClusterName"))
    {
        Some(setting) => setting.origin.clone(),
        None => return None,
    };
    Some(Diagnostic {
        severity: Severity::Error,
        origin,
        key: KEY.to_owned(),
        message: wrong.to_string(),
        help: "slurmctld would not start".to_owned(),
    })
}

fn start(args: Args) -> Result<()> {
    let conf = args.conf.unwrap_or_else(conf_path);
    let conf = std::fs::canonicalize(&conf)
        .with_context(|| format!("cannot read the configuration {}", conf.display()))?;
    let (config, _) = conf_owner::load(&conf)?;
    controller_host::check(&config)?;
    check_state_directory(&config.paths.state_save_location)?;
    let ready = if args.foreground {
        Ready::foreground()
    } else {
        daemon::daemonise()?
    };
    match args.nice {
        Some(nice) => priority::set(nice).context("cannot change the nice value")?,
        None => priority::prepare(),
    }
    let log_file = args.log.or_else(|| config.paths.slurmctld_log_file.clone());
    slurm_user::assume(&config, log_file.as_deref())?;
    let level = logging::level(config.slurmctld_debug, args.verbose);
    logging::start(log_file.as_deref(), args.foreground, level)?;
    if nix::unistd::geteuid().is_root() {
        log::warn!("{ROOT_WARNING}");
    }
    let _pid_file = PidFile::take(&config.paths.slurmctld_pid_file)?;
    let options = muster_ctld::Options {
        conf,
        clear: args.clear,
        without_jobs: args.without_jobs,
        patience: ClientTimeouts::default(),
        reopen_log: logging::reopen,
    };
    muster_ctld::run(&options, http_pages(&options.conf), || ready.report())
}

/// The controller's pages by HTTP.
fn http_pages(conf: &Path) -> HttpPages {
    let conf = conf.to_path_buf();
    Arc::new(move |path, stream| {
        let answer = muster_cli::rest::controller_page(path, stream, &conf)?;
        Some(HttpAnswer {
            status: answer.status.0,
            media_type: answer.media_type,
            body: answer.body.into_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_directory_of_the_whole_system_is_taken() {
        for dir in ["/", "/var/spool", "/var/spool/", "/tmp/."] {
            let refused = check_state_directory(Path::new(dir)).unwrap_err();
            assert!(
                refused.to_string().contains("StateSaveLocation"),
                "{refused}"
            );
        }
        assert!(check_state_directory(Path::new("/var/spool/slurmctld")).is_ok());
    }

    #[test]
    fn a_check_of_the_configuration_finds_such_a_directory() {
        let finding = |line: &str| {
            let text = format!("ClusterName=c\nSlurmctldHost=h\n{line}\n");
            let (config, _) = muster_conf::load_text(Path::new("slurm.conf"), &text);
            check_state_location(&config)
        };
        for (line, at) in [("StateSaveLocation=/var/spool", 3), ("", 1)] {
            let found = finding(line).expect(line);
            assert_eq!((found.severity, found.origin.line), (Severity::Error, at));
            assert!(found.message.contains("/var/spool/slurmctld"), "{found}");
        }
        assert_eq!(finding("StateSaveLocation=/var/spool/slurmctld"), None);
    }
}
