//! `sackd`: makes tokens of auth/slurm for the users of a host that is no node, such as a login host, with the options of
//! sackd(8). It needs no account but `SlurmUser`, and serves a socket of this host. On a host without files it also keeps the
//! configuration that the controller gives, whatever `AuthType` is; a process of root's does that.

use crate::daemon::{self, Ready};
use crate::flags::{CONF_SERVER, CONF_USER, Daemon, flag, long_flag};
use crate::given_configuration::{self, Keeper};
use crate::logging;
use anyhow::{Context as _, Result, bail, ensure};
use muster_conf::AuthMethod;
use muster_conf::endpoint::{self, Endpoint, conf_path};
use muster_ctld::notify::Notify;
use muster_trust::sack::{SackServer, SackSettings, SackSocket, own_socket};
use muster_trust::slurm_key::KeyFiles;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Uid, User, geteuid, initgroups, setresgid, setresuid};
use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Interval of questions to the controller whether its configuration is another one: commands on this host may know an
/// older one for this time.
const REFRESH: Duration = Duration::from_secs(30);

/// sackd.
pub(crate) static DAEMON: Daemon = Daemon {
    name: "sackd",
    about: "Makes tokens of AuthType=auth/slurm for the users of a host that is not a node, such as a login host, and keeps the \
            configuration there.",
    operands: "",
    flags: &[
        CONF_SERVER,
        CONF_USER,
        long_flag("disable-reconfig", 'R', "", "get it once only"),
        long_flag(
            "refresh",
            'I',
            "SECONDS",
            "look every so many seconds whether there is another one (default: 30)",
        ),
        flag('D', "", "stay in the foreground and log to the terminal"),
        flag(
            'f',
            "FILE",
            "read this slurm.conf (default: $SLURM_CONF, else /etc/slurm/slurm.conf)",
        ),
        flag('h', "", "print this help"),
        flag('v', "", "log more; may be repeated"),
        flag('V', "", "print the version"),
    ],
};

#[derive(Default)]
struct Args {
    foreground: bool,
    conf: Option<PathBuf>,
    verbose: usize,
    /// Where the configuration comes from, if not from a file.
    server: Option<String>,
    server_user: Option<String>,
    once: bool,
    refresh: Option<Duration>,
}

/// Runs it.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(()), start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain!("sackd: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let mut parsed = Args::default();
    for (letter, value) in DAEMON.parse(args)? {
        match letter {
            'D' => parsed.foreground = true,
            'f' => parsed.conf = Some(value.into()),
            'h' => {
                say!("{}", DAEMON.help());
                return Ok(None);
            }
            'v' => parsed.verbose += 1,
            'H' => parsed.server = Some(value),
            'U' => parsed.server_user = Some(value),
            'R' => parsed.once = true,
            'I' => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let seconds =
                    seconds.with_context(|| format!("--refresh={value}: expected seconds"))?;
                parsed.refresh = Some(Duration::from_secs(seconds));
            }
            'V' => {
                say!("slurm {}\n", muster_ctld::SLURM_VERSION);
                return Ok(None);
            }
            // The table has no others.
            _ => {}
        }
    }
    if parsed.server.is_some() && parsed.conf.is_some() {
        bail!("--conf-server and -f say both where the configuration is: give one");
    }
    Ok(Some(parsed))
}

fn start(args: Args) -> Result<()> {
    let server = given_configuration::servers(args.server.clone(), args.conf.as_deref());
    let conf = match &server {
        Some(server) => given_configuration::get(server, args.server_user.as_deref())?,
        None => {
            let conf = args.conf.clone().unwrap_or_else(conf_path);
            std::fs::canonicalize(&conf)
                .with_context(|| format!("cannot read the configuration {}", conf.display()))?
        }
    };
    let endpoint = endpoint::read(&conf).context("the configuration")?;
    let makes_tokens = endpoint.authentication.method == AuthMethod::Slurm;
    ensure!(
        makes_tokens || server.is_some(),
        "{} does not say AuthType=auth/slurm, and is this host's own: nobody needs this daemon",
        conf.display()
    );
    let user = user(&endpoint.slurm_user)?;
    let ready = match args.foreground {
        true => Ready::foreground(),
        false => daemon::daemonise()?,
    };
    logging::start(None, args.foreground, logging::level("info", args.verbose))?;
    let tokens = match makes_tokens {
        true => Some(open_token_server(&endpoint, &user)?),
        false => None,
    };
    let keeper = match server.filter(|_| !args.once) {
        Some(server) => {
            let every = args.refresh.unwrap_or(REFRESH);
            Some(Keeper::start(&server, args.server_user.as_deref(), every)?)
        }
        None => None,
    };
    let signals = watch_signals().context("signals")?;
    drop_root(&user)?;
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    if let Some(server) = &tokens {
        server.check()?;
        log::info!("tokens for cluster {} are made", endpoint.cluster);
    }
    if keeper.is_some() {
        log::info!(
            "the controller's configuration is kept in {}",
            conf.display()
        );
    }
    ready.report();
    Notify::from_environment().send("READY=1");
    match tokens {
        Some(server) => muster_node::serve_tokens(server, signals)?,
        None => wait_for(&signals)?,
    }
    match keeper {
        Some(keeper) => keeper.end(),
        None => Ok(()),
    }
}

fn open_token_server(endpoint: &Endpoint, user: &User) -> Result<SackServer> {
    let authentication = &endpoint.authentication;
    let settings = SackSettings {
        node_key: None,
        cluster: endpoint.cluster.clone(),
        files: key_files(&authentication.key_dir),
        slurm_uid: user.uid.as_raw(),
        ttl_s: authentication.ttl_s,
        log: |line| log::info!("{line}"),
    };
    let path = own_socket(true);
    let place = path.display();
    let socket = SackSocket::try_open(&path)
        .with_context(|| format!("the socket {place} cannot be made"))?;
    let Some(socket) = socket else {
        bail!(
            "another process makes tokens at {place}: a sackd runs here, or slurmd, which makes them too"
        );
    };
    Ok(SackServer::new(settings, socket))
}

fn wait_for(signals: &OwnedFd) -> Result<()> {
    let mut come = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut come, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).context("signals"),
        }
    }
}

/// The files beside slurm.conf, or those that the environment names.
fn key_files(dir: &Path) -> KeyFiles {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut files = KeyFiles::of_directory(dir);
    if let Some(key) = given("SLURM_SACK_KEY") {
        files.key = key.into();
    }
    if let Some(jwks) = given("SLURM_SACK_JWKS") {
        files.jwks = jwks.into();
    }
    files
}

/// The account of `SlurmUser`.
pub(crate) fn user(name: &str) -> Result<User> {
    let found = match name.parse() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    let found = found.with_context(|| format!("SlurmUser={name} cannot be looked up"))?;
    found.with_context(|| {
        format!("this host has no user '{name}' (SlurmUser): make one with the uid of the controller's host")
    })
}

/// Becomes `SlurmUser` for good: root is not needed any more.
pub(crate) fn drop_root(user: &User) -> Result<()> {
    if !geteuid().is_root() || user.uid.is_root() {
        return Ok(());
    }
    let name = CString::new(user.name.as_str()).context("the name of SlurmUser")?;
    initgroups(&name, user.gid)
        .and_then(|()| setresgid(user.gid, user.gid, user.gid))
        .and_then(|()| setresuid(user.uid, user.uid, user.uid))
        .with_context(|| format!("cannot become SlurmUser {}", user.name))
}

/// Readable once the daemon is to end. The key is read anew when its file changes, whatever systemd says then.
fn watch_signals() -> Result<OwnedFd> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    // The process that keeps the configuration: without it this one is of no use.
    ends.add(Signal::SIGCHLD);
    let mut blocked = ends;
    blocked.add(Signal::SIGHUP);
    blocked.add(Signal::SIGPIPE);
    blocked.thread_block()?;
    Ok(SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC)?.into())
}
