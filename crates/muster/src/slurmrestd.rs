//! `slurmrestd`: HTTP and JSON in front of the controller, with the options of slurmrestd(8). It runs as a user of its own who may
//! do nothing, on a host that reaches the controller.

use crate::flags::{Daemon, flag, long_flag};
use crate::logging;
use anyhow::{Context as _, Result, bail, ensure};
use log::LevelFilter;
use muster_conf::endpoint::{self, Endpoint, conf_path};
use muster_ctld::notify::Notify;
use muster_restd::{Authentication, Limits, ListenAddress, Listeners, RestAccess, ServedPaths};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, User, getegid, geteuid};
use std::path::PathBuf;
use std::process::ExitCode;

/// slurmrestd.
pub(crate) static DAEMON: Daemon = Daemon {
    name: "slurmrestd",
    about: "Answers HTTP requests for the controller: Slurm's REST API. Each request is its user's, by a token (scontrol token).",
    operands: "[HOST]:PORT | unix:PATH ...",
    flags: &[
        flag(
            'a',
            "TYPE[,...]",
            "what requests prove their user by: rest_auth/jwt, rest_auth/local (default: both); list",
        ),
        flag(
            'd',
            "VERSION[,...]",
            "versions of the documents; list (default: all)",
        ),
        flag(
            'f',
            "FILE",
            "read this slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)",
        ),
        flag('g', "GROUP", "run as this group, once the sockets are made"),
        long_flag(
            "generate-openapi-spec",
            'G',
            "",
            "print the description of the API and end",
        ),
        flag('h', "", "print this help"),
        long_flag(
            "max-connections",
            'M',
            "N",
            "connections at a time (default: 124)",
        ),
        flag('s', "PLUGIN[,...]", "parts of the API; list (default: all)"),
        flag(
            't',
            "N",
            "requests that are answered at a time (default: 20)",
        ),
        flag('u', "USER", "run as this user, once the sockets are made"),
        flag('v', "", "log more; may be repeated"),
        flag('V', "", "print the version"),
    ],
};

/// Connections at a time, as in Slurm.
const CONNECTIONS: usize = 124;
/// Requests answered at a time, as in Slurm.
const THREADS: usize = 20;
/// More threads than any machine answers with.
const THREADS_MAX: usize = 1024;

struct Args {
    authentication: Authentication,
    served: ServedPaths,
    conf: PathBuf,
    user: Option<String>,
    group: Option<String>,
    limits: Limits,
    verbose: usize,
    addresses: Vec<ListenAddress>,
    /// Addresses of `SLURMRESTD_LISTEN`, for a start without sockets of systemd.
    usual_addresses: Vec<ListenAddress>,
}

/// Runs it.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(()), start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain!("slurmrestd: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let types = variable("SLURMRESTD_AUTH_TYPES").unwrap_or_else(|| "jwt,local".to_owned());
    let mut authentication = read_types(&types)?;
    let mut parsed = Args {
        authentication,
        served: ServedPaths::default(),
        conf: conf_path(),
        user: None,
        group: None,
        limits: Limits {
            connections: CONNECTIONS,
            threads: THREADS,
        },
        verbose: 0,
        addresses: Vec::new(),
        usual_addresses: Vec::new(),
    };
    if let Some(count) = variable("SLURMRESTD_MAX_CONNECTIONS") {
        parsed.limits.connections = at_least_one("SLURMRESTD_MAX_CONNECTIONS", &count)?;
    }
    let mut wants_description = false;
    let (flags, operands) = DAEMON.parse_with_operands(args)?;
    for (letter, value) in flags {
        match letter {
            'a' if value == "list" => return list(&Authentication::NAMES),
            'a' => authentication = read_types(&value)?,
            'd' if value == "list" => return list(&versions("data_parser/")),
            'd' => parsed.served.add_versions(&value).map_err(|word| {
                anyhow::anyhow!("there is no data parser '{word}'; -d list names those there are")
            })?,
            'f' => parsed.conf = value.into(),
            'g' => parsed.group = Some(value),
            'G' => wants_description = true,
            'h' => {
                say!("{}", DAEMON.help());
                return Ok(None);
            }
            'M' => parsed.limits.connections = at_least_one("--max-connections", &value)?,
            's' if value == "list" => return list(&["openapi/slurmctld", "openapi/slurmdbd"]),
            's' => parsed.served.add_parts(&value).map_err(|word| {
                anyhow::anyhow!(
                    "there is no part of the API '{word}'; -s list names those there are"
                )
            })?,
            't' => {
                let threads = at_least_one("-t", &value)?;
                ensure!(
                    (2..=THREADS_MAX).contains(&threads),
                    "-t {threads}: expected a number from 2 to {THREADS_MAX}"
                );
                parsed.limits.threads = threads;
            }
            'u' => parsed.user = Some(value),
            'v' => parsed.verbose += 1,
            'V' => {
                say!("slurm {}\n", muster_ctld::SLURM_VERSION);
                return Ok(None);
            }
            // The table has no others.
            _ => {}
        }
    }
    if wants_description {
        let description = parsed.served.description().at("/openapi/v3");
        let text = description.map_or_else(String::new, |answer| answer.body.into_owned());
        say!("{text}\n");
        return Ok(None);
    }
    parsed.authentication = authentication;
    let listen = variable("SLURMRESTD_LISTEN").unwrap_or_default();
    for word in &operands {
        parsed.addresses.push(word.parse()?);
    }
    for word in listen.split(',').filter(|word| !word.is_empty()) {
        parsed.usual_addresses.push(word.parse()?);
    }
    Ok(Some(parsed))
}

fn list(names: &[impl AsRef<str>]) -> Result<Option<Args>> {
    for name in names {
        complain!("slurmrestd: {}", name.as_ref());
    }
    Ok(None)
}

fn versions(prefix: &str) -> Vec<String> {
    muster_cli::rest::versions()
        .map(|version| format!("{prefix}{version}"))
        .collect()
}

fn read_types(list: &str) -> Result<Authentication> {
    let read = Authentication::read(list);
    read.map_err(|name| {
        anyhow::anyhow!("there is no way of authentication '{name}'; -a list names those there are")
    })
}

fn at_least_one(what: &str, text: &str) -> Result<usize> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.with_context(|| format!("{what} {text}: expected a number"))
}

/// A line for each request of a user unless `SLURMRESTD_DEBUG` has another level, and more with each `-v`.
fn log_level(setting: Option<&str>, verbose: usize) -> Result<LevelFilter> {
    let setting = setting.unwrap_or("info");
    let level = muster_ctld::debug_level::filter(setting, verbose);
    level.with_context(|| {
        format!("SLURMRESTD_DEBUG={setting}: expected a number from 0 to 9, or the name of a level")
    })
}

fn start(args: Args) -> Result<()> {
    let conf = std::fs::canonicalize(&args.conf)
        .with_context(|| format!("cannot read the configuration {}", args.conf.display()))?;
    let endpoint = endpoint::read(&conf).context("the configuration")?;
    let level = log_level(variable("SLURMRESTD_DEBUG").as_deref(), args.verbose)?;
    logging::start(None, true, level)?;
    let listeners = listeners(&args)?;
    become_user(&args)?;
    check_user(&endpoint)?;
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    prctl::set_no_new_privs().context("no_new_privs")?;
    Notify::from_environment().send("READY=1");
    let access = RestAccess {
        authentication: args.authentication,
        served: args.served,
    };
    muster_restd::serve(listeners, conf, access, args.limits)
}

/// The sockets of systemd with those of the command line, else those of the command line and of `SLURMRESTD_LISTEN`, else the one
/// connection that inetd gives.
fn listeners(args: &Args) -> Result<Listeners> {
    let opened = Listeners::open(&args.addresses)?;
    if let Some(given) = Listeners::given_by_systemd().context("the sockets of systemd")? {
        return Ok(given.and(opened));
    }
    let usual = Listeners::open(&args.usual_addresses)?;
    if !args.addresses.is_empty() || !args.usual_addresses.is_empty() {
        return Ok(opened.and(usual));
    }
    let connection = Listeners::standard_input().context("standard input")?;
    connection.context(
        "there is nowhere to listen: name HOST:PORT or unix:PATH, or set SLURMRESTD_LISTEN; systemd and inetd pass sockets on",
    )
}

fn become_user(args: &Args) -> Result<()> {
    let group = args.group.as_deref().map(group).transpose()?;
    let user = match &args.user {
        Some(name) => {
            let user = match name.parse() {
                Ok(uid) => User::from_uid(Uid::from_raw(uid)),
                Err(_) => User::from_name(name),
            };
            Some(
                user.ok()
                    .flatten()
                    .with_context(|| format!("-u {name}: there is no such user"))?,
            )
        }
        None => None,
    };
    if user.is_none() && group.is_none() {
        return Ok(());
    }
    let own = user.map_or((geteuid(), getegid()), |user| (user.uid, user.gid));
    let gid = group.unwrap_or(own.1);
    if geteuid() == own.0 && getegid() == gid {
        return Ok(());
    }
    nix::unistd::setgroups(&[gid])
        .and_then(|()| nix::unistd::setresgid(gid, gid, gid))
        .and_then(|()| nix::unistd::setresuid(own.0, own.0, own.0))
        .with_context(|| format!("cannot become uid {} and gid {gid}", own.0))
}

fn group(name: &str) -> Result<Gid> {
    if let Ok(gid) = name.parse() {
        return Ok(Gid::from_raw(gid));
    }
    let group = nix::unistd::Group::from_name(name).ok().flatten();
    let group = group.with_context(|| format!("-g {name}: there is no such group"))?;
    Ok(group.gid)
}

/// It answers everyone who reaches it, so it must be nobody: neither root nor `SlurmUser`, who may do everything.
fn check_user(endpoint: &Endpoint) -> Result<()> {
    let words = variable("SLURMRESTD_SECURITY").unwrap_or_default();
    let mut is_checked = true;
    for word in words.split(',').filter(|word| !word.is_empty()) {
        match word {
            "disable_user_check" => is_checked = false,
            // There is nothing to unshare: it opens no file of users', and has no memory in common with others.
            "disable_unshare_files" | "disable_unshare_sysv" => {}
            "become_user" => bail!(
                "SLURMRESTD_SECURITY=become_user is not supported: requests of other users bring a token"
            ),
            _ => bail!("SLURMRESTD_SECURITY has '{word}', which is not known"),
        }
    }
    if !is_checked {
        return Ok(());
    }
    ensure!(
        !geteuid().is_root(),
        "slurmrestd should not be run as the root user: name another with -u"
    );
    ensure!(
        getegid().as_raw() != 0,
        "slurmrestd should not be run with the root group: name another with -g"
    );
    let slurm_user = User::from_name(&endpoint.slurm_user).ok().flatten();
    let slurm_uid = slurm_user
        .map(|user| user.uid.as_raw())
        .or(endpoint.slurm_user.parse().ok());
    ensure!(
        slurm_uid != Some(geteuid().as_raw()),
        "slurmrestd should not be run as SlurmUser, who may do everything: name another user with -u"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_logged_and_each_v_adds_a_level() {
        let levels = [0, 1, 2, 3, 9].map(|verbose| log_level(None, verbose).unwrap());
        let expected = [
            LevelFilter::Info,
            LevelFilter::Debug,
            LevelFilter::Trace,
            LevelFilter::Trace,
            LevelFilter::Trace,
        ];
        assert_eq!(levels, expected);
        assert_eq!(log_level(Some("error"), 0).unwrap(), LevelFilter::Error);
        assert_eq!(log_level(Some("2"), 1).unwrap(), LevelFilter::Info);
        assert!(log_level(Some("loud"), 0).is_err());
    }
}
