//! `slurmdbd`: copies the controller's accounting to the MariaDB or PostgreSQL that slurmdbd.conf names, with the options of
//! slurmdbd(8). It runs beside the controller, as `SlurmUser`, and reads the file in `StateSaveLocation` that the controller writes;
//! nothing connects to it. It purges that file as well ([`purge`]).

pub(crate) mod archive;
mod directory;
pub(crate) mod purge;
mod purge_lock;

use crate::conf_owner;
use crate::daemon::{self, PidFile, Ready, lock_path};
use crate::flags::{Daemon, flag};
use crate::logging;
use crate::sackd::{drop_root, user};
use crate::slurm_user::own_file;
use anyhow::{Context as _, Result, bail, ensure};
use archive::ArchiveSettings;
use directory::ClusterDirectory;
use muster_acct::{CopySource, Stage};
use muster_conf::Severity;
use muster_conf::endpoint::conf_path;
use muster_conf::files::{FlatSettings, PlainFile, load_flat};
use muster_ctld::notify::Notify;
use muster_dbd::{Database, DatabaseAddress, DatabaseError, DatabaseTls, Kind, Replica};
use muster_node::only_root_leads_to;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{User, geteuid};
use purge::{PurgeSettings, PurgeThread};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// slurmdbd.
pub(crate) static DAEMON: Daemon = Daemon {
    name: "slurmdbd",
    about: "Copies accounting to MariaDB or PostgreSQL and purges what is old, as slurmdbd.conf beside slurm.conf says. Runs beside slurmctld.",
    operands: "",
    flags: &[
        flag('D', "", "stay in the foreground and log to the terminal"),
        flag('h', "", "print this help"),
        flag('n', "N", "run at this nice value").stored("it waits most of the time"),
        flag('R', "", "roll up usage from the beginning").refused(
            "sums are written with the rows that they are of: there is nothing to make anew",
        ),
        flag('s', "", "change to the log's directory").stored("no core file is written there"),
        flag('u', "", "only update the tables")
            .refused("the tables are brought up to date at each start"),
        flag('v', "", "log more; may be repeated"),
        flag('V', "", "print the version"),
    ],
};

/// Files that root makes for a daemon whose slurmdbd.conf is `SlurmUser`'s, which only root can make in these places.
const USUAL_FILES: [&str; 3] = [
    "/var/run/slurmdbd.pid",
    "/var/run/slurm/slurmdbd.pid",
    "/var/log/slurm/slurmdbd.log",
];
/// Interval of looks at the controller's file while there is nothing to copy.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// First wait after a failure; each further one is twice as long.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// Longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Interval of messages about a first copy, or that the database is still away.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);
/// Time that a clean end has to copy the rest.
const LAST_COPY_WAIT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Args {
    foreground: bool,
    verbose: usize,
}

/// Runs it.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match parse(args).and_then(|args| args.map_or(Ok(()), start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("{e:#}");
            complain!("slurmdbd: fatal: {e:#}");
            ExitCode::from(1)
        }
    }
}

fn parse(args: &[String]) -> Result<Option<Args>> {
    let mut parsed = Args::default();
    for (letter, value) in DAEMON.parse(args)? {
        match letter {
            'D' => parsed.foreground = true,
            'h' => {
                say!("{}", DAEMON.help());
                return Ok(None);
            }
            'n' => drop(value.parse::<i32>().context("-n takes a number")?),
            'v' => parsed.verbose += 1,
            'V' => {
                say!("slurm {}\n", muster_ctld::SLURM_VERSION);
                return Ok(None);
            }
            // The rest has no effect; the table says why.
            _ => {}
        }
    }
    Ok(Some(parsed))
}

/// Settings of slurmdbd.conf and slurm.conf.
struct Settings {
    dbd: FlatSettings,
    cluster: String,
    /// The controller's store.
    file: PathBuf,
    user: User,
    purge: PurgeSettings,
    directory: ClusterDirectory,
}

impl Settings {
    /// Reads both files, and becomes `SlurmUser` before anything is opened that slurmdbd.conf names.
    fn read() -> Result<Settings> {
        let conf = fs::canonicalize(conf_path())
            .with_context(|| format!("cannot read {}", conf_path().display()))?;
        let (config, _) = conf_owner::load(&conf)?;
        let path = conf.with_file_name("slurmdbd.conf");
        let user = user(&config.slurm_user)?;
        let dbd = read_as_owner(&path, &user)?;
        let named = dbd.text("SlurmUser").unwrap_or(&user.name);
        ensure!(
            named == user.name || named.parse() == Ok(user.uid.as_raw()),
            "SlurmUser is {named} in {}, and {} in {}: what the controller keeps is read as its user; name the same in both",
            path.display(),
            user.name,
            conf.display()
        );
        ensure!(
            config.accounting,
            "{} has AccountingStorageType=accounting_storage/none: nothing is kept that could be copied",
            conf.display()
        );
        let file = config.paths.state_save_location.join("accounting.db");
        let min_job_age_s = config.timeouts.min_job_age_s;
        let archive = ArchiveSettings::read(&dbd, &config.cluster_name)?;
        Ok(Settings {
            purge: PurgeSettings::read(&dbd, file.clone(), min_job_age_s, archive)?,
            directory: ClusterDirectory::new(&config),
            dbd,
            cluster: config.cluster_name,
            file,
            user,
        })
    }
}

/// Becomes `SlurmUser`, and gives what slurmdbd.conf says. Root reads a file that is root's alone, and makes the log and the PID file that
/// it names, where only root can. One of `SlurmUser`'s is read as that user: it may be a link, and names what its owner chooses.
fn read_as_owner(path: &Path, user: &User) -> Result<FlatSettings> {
    if !geteuid().is_root() || user.uid.is_root() {
        return read_file(path, user);
    }
    let show = || format!("cannot look at {}", path.display());
    let is_roots = only_root_leads_to(path).with_context(show)?
        && fs::metadata(path).with_context(show)?.uid() == 0;
    if !is_roots {
        give_files(USUAL_FILES.map(PathBuf::from), user)?;
        drop_root(user)?;
        return read_file(path, user);
    }
    let dbd = read_file(path, user)?;
    give_files(log_file(&dbd).into_iter().chain([pid_file(&dbd)]), user)?;
    drop_root(user)?;
    Ok(dbd)
}

fn read_file(path: &Path, user: &User) -> Result<FlatSettings> {
    check_file(path, user)?;
    let (dbd, findings) = load_flat(PlainFile::Slurmdbd, path);
    match findings.iter().find(|f| f.severity == Severity::Error) {
        Some(error) => bail!("{error}"),
        None => Ok(dbd),
    }
}

/// Sees to files that the user writes, in directories that are there, and to the locks of PID files.
fn give_files(files: impl IntoIterator<Item = PathBuf>, user: &User) -> Result<()> {
    for file in files {
        if !file.parent().is_some_and(Path::is_dir) {
            continue;
        }
        own_file(&file, user)?;
        if file.extension().is_some_and(|end| end == "pid") {
            own_file(&lock_path(&file), user)?;
        }
    }
    Ok(())
}

fn log_file(dbd: &FlatSettings) -> Option<PathBuf> {
    dbd.text("LogFile").map(PathBuf::from)
}

fn pid_file(dbd: &FlatSettings) -> PathBuf {
    let named = dbd.text("PidFile").unwrap_or("/var/run/slurmdbd.pid");
    PathBuf::from(named)
}

/// The database that slurmdbd.conf names; none if it names none. `name` is its user where the file names none.
pub(crate) fn address_of(dbd: &FlatSettings, name: &str) -> Result<Option<DatabaseAddress>> {
    let text = |key: &str| dbd.text(key).filter(|value| !value.is_empty());
    let (kind, port) = match text("StorageType") {
        Some("accounting_storage/mysql") => (Kind::MariaDb, 3306),
        Some("accounting_storage/postgresql") => (Kind::PostgreSql, 5432),
        _ => return Ok(None),
    };
    let tls = text("StorageParameters")
        .map(DatabaseTls::parse)
        .transpose()?;
    tls.iter().try_for_each(DatabaseTls::check)?;
    let port = match text("StoragePort") {
        Some(port) => port.parse().context("StoragePort in slurmdbd.conf")?,
        None => port,
    };
    let password = match text("StoragePassScript") {
        Some(script) => Some(password_of(script)?),
        None => text("StoragePass").map(str::to_owned),
    };
    Ok(Some(DatabaseAddress {
        kind,
        host: text("StorageHost").unwrap_or("localhost").to_owned(),
        port,
        user: text("StorageUser").unwrap_or(name).to_owned(),
        password,
        database: text("StorageLoc").unwrap_or("slurm_acct_db").to_owned(),
        tls,
    }))
}

/// That database on `StorageBackupHost`, if there is one.
fn backup_of(dbd: &FlatSettings, address: &DatabaseAddress) -> Option<DatabaseAddress> {
    let host = dbd
        .text("StorageBackupHost")
        .filter(|host| !host.is_empty())?;
    Some(DatabaseAddress {
        host: host.to_owned(),
        ..address.clone()
    })
}

/// Connects to the first of the databases that can be reached.
///
/// # Errors
/// That of the first.
fn connect_any(addresses: &[DatabaseAddress]) -> Result<Box<dyn Database>, DatabaseError> {
    let mut failed = None;
    for address in addresses {
        match muster_dbd::connect(address) {
            Ok(database) => {
                if failed.is_some() {
                    log::warn!("the accounting is copied to {address} (StorageBackupHost)");
                }
                return Ok(database);
            }
            Err(e @ DatabaseError::Connect { .. }) => failed = Some(failed.unwrap_or(e)),
            Err(e) => return Err(e),
        }
    }
    Err(failed.unwrap_or(DatabaseError::Answer("no database is named")))
}

/// Output of the site's program, run as `SlurmUser`.
fn password_of(script: &str) -> Result<String> {
    let output = Command::new(script)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("StoragePassScript {script} cannot be started"))?;
    ensure!(
        output.status.success(),
        "StoragePassScript {script} failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context("what StoragePassScript printed")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The file has the database's password: nobody else may read or change it.
pub(crate) fn check_file(path: &Path, user: &User) -> Result<()> {
    let found = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (shown, name) = (path.display(), &user.name);
    ensure!(
        found.uid() == 0 || found.uid() == user.uid.as_raw(),
        "{shown} belongs to uid {}: chown it to root or to SlurmUser ({name})",
        found.uid()
    );
    ensure!(
        found.mode() & 0o077 == 0,
        "{shown} can be read by others, and has the password of the database: chmod 600 {shown}"
    );
    Ok(())
}

fn start(args: Args) -> Result<()> {
    let settings = Settings::read()?;
    let ready = match args.foreground {
        true => Ready::foreground(),
        false => daemon::daemonise()?,
    };
    let level = settings.dbd.text("DebugLevel").unwrap_or("info");
    let level = logging::level(level, args.verbose);
    logging::start(log_file(&settings.dbd).as_deref(), args.foreground, level)?;
    let _pid_file = PidFile::take(&pid_file(&settings.dbd))?;
    let signals = watch_signals().context("signals")?;
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    let address = address_of(&settings.dbd, &settings.user.name)?;
    ready.report();
    Notify::from_environment().send("READY=1");
    let _purging = PurgeThread::start(settings.purge.clone()).context("purge")?;
    let mut service = Service {
        settings,
        signals,
        is_ended: false,
    };
    match address {
        Some(address) => {
            let backup = backup_of(&service.settings.dbd, &address);
            let addresses: Vec<DatabaseAddress> = [address].into_iter().chain(backup).collect();
            service.copy(&addresses);
        }
        None => {
            log::info!(
                "slurmdbd.conf names no database (StorageType): accounting is in {} alone",
                service.settings.file.display()
            );
            while !service.is_ended {
                service.wait(PROGRESS_INTERVAL);
            }
        }
    }
    log::info!("ends by a signal");
    Ok(())
}

/// The running daemon.
struct Service {
    settings: Settings,
    signals: SignalFd,
    is_ended: bool,
}

impl Service {
    /// Waits for a while, or until the daemon is to end.
    fn wait(&mut self, time: Duration) {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let is_signalled = poll(&mut fds, timeout).is_ok_and(|ready| ready > 0);
        if !is_signalled {
            return;
        }
        let Ok(Some(signal)) = self.signals.read_signal() else {
            return;
        };
        let signal = i32::try_from(signal.ssi_signo).map(Signal::try_from);
        match signal {
            Ok(Ok(Signal::SIGHUP)) => {
                log::info!("SIGHUP: restart slurmdbd to have slurmdbd.conf read anew");
            }
            Ok(Ok(Signal::SIGUSR2)) => match logging::reopen() {
                Ok(()) => log::info!("SIGUSR2: the log file was opened anew"),
                Err(e) => log::error!("SIGUSR2: {e}; messages still go to the old file"),
            },
            _ => self.is_ended = true,
        }
    }

    /// Copies until the daemon is to end.
    fn copy(&mut self, addresses: &[DatabaseAddress]) {
        if let Some(address) = addresses.first() {
            log::info!(
                "the accounting of cluster {} is copied to {address}",
                self.settings.cluster
            );
        }
        let (mut retry, mut failing) = (RETRY_MIN, None::<(Instant, String)>);
        while !self.is_ended {
            let begun = Instant::now();
            let Err(error) = self.follow(addresses, &mut failing) else {
                return;
            };
            let text = error.to_string();
            let is_news = failing
                .as_ref()
                .is_none_or(|(said, before)| *before != text || said.elapsed() > PROGRESS_INTERVAL);
            if is_news {
                log::error!("{text}; it is tried again, and nothing is lost meanwhile");
                failing = Some((Instant::now(), text));
            }
            if begun.elapsed() > RETRY_MAX {
                retry = RETRY_MIN;
            }
            self.wait(retry);
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Copies what there is, and what comes, by one connection.
    fn follow(
        &mut self,
        addresses: &[DatabaseAddress],
        failing: &mut Option<(Instant, String)>,
    ) -> Result<(), DatabaseError> {
        let file = self.settings.file.clone();
        while !file.exists() && !self.is_ended {
            self.wait(LOOK_INTERVAL);
        }
        let mut source = CopySource::open(&file)?;
        let database = connect_any(addresses)?;
        let mut replica = Replica::open(database, &self.settings.cluster, &source)?;
        self.settings.directory.begin();
        let (mut said, mut was_first) =
            (Instant::now(), replica.copied().stage != Stage::Following);
        loop {
            let until = self.is_ended.then(|| Instant::now() + LAST_COPY_WAIT);
            while replica.copy(&mut source)? {
                if failing.take().is_some() {
                    log::info!("the database is back");
                }
                let is_first = replica.copied().stage != Stage::Following;
                if was_first && !is_first {
                    log::info!("all that there was is copied; what comes follows");
                }
                was_first = is_first;
                if said.elapsed() > PROGRESS_INTERVAL {
                    said = Instant::now();
                    let copied = replica.copied();
                    let behind = source.behind(copied)?;
                    let job = copied.row >> 16;
                    match copied.stage {
                        Stage::Following => log::info!("{behind} changes are not copied yet"),
                        _ => log::info!("the first copy is at job {job}"),
                    }
                }
                match until {
                    Some(until) if Instant::now() >= until => return Ok(()),
                    None => self.wait(Duration::ZERO),
                    Some(_) => {}
                }
            }
            if self.is_ended {
                return Ok(());
            }
            self.settings.directory.keep(&mut replica, &mut source)?;
            self.wait(LOOK_INTERVAL);
        }
    }
}

fn watch_signals() -> Result<SignalFd> {
    let mut watched = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR2,
    ] {
        watched.add(signal);
    }
    let mut blocked = watched;
    blocked.add(Signal::SIGPIPE);
    blocked.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&watched, flags)?)
}
