//! The daemons' log: one line a message, as slurmctld and slurmd write theirs.

use log::{LevelFilter, Log, Metadata, Record};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The file that is logged to.
static FILE: Mutex<Option<File>> = Mutex::new(None);
/// Its path, where this process opens it again.
static PATH: OnceLock<PathBuf> = OnceLock::new();

struct Logger;

/// Whether standard error is logged to.
static STDERR: AtomicBool = AtomicBool::new(false);

/// Logs a line that is whole.
pub(crate) fn append(line: &str) {
    write(&format!("{line}\n"));
}

fn write(line: &str) {
    if let Some(file) = current().as_mut() {
        let _ = file.write_all(line.as_bytes());
    }
    if STDERR.load(Ordering::Relaxed) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // The audit log is written whatever the level is.
        if record.level() > log::max_level() && record.target() != "audit" {
            return;
        }
        let time = jiff::Zoned::now()
            .strftime("%Y-%m-%dT%H:%M:%S%.3f")
            .to_string();
        let level = match record.level() {
            log::Level::Error => "error: ",
            log::Level::Warn => "warning: ",
            log::Level::Info => "",
            log::Level::Debug => "debug: ",
            log::Level::Trace => "debug2: ",
        };
        write(&format!("[{time}] {level}{}\n", record.args()));
    }

    fn flush(&self) {}
}

/// Logs to a file, to standard error, or both.
///
/// # Errors
/// When the file cannot be opened.
pub(crate) fn start(file: Option<&Path>, stderr: bool, level: LevelFilter) -> io::Result<()> {
    start_with(file.map(open).transpose()?, stderr, level);
    if let Some(file) = file {
        let _ = PATH.set(file.to_path_buf());
    }
    Ok(())
}

/// Opens the file that [`start`] has opened anew: the earlier one was moved away.
///
/// # Errors
/// When it cannot be opened; the old one is logged to then.
pub(crate) fn reopen() -> io::Result<()> {
    if let Some(path) = PATH.get() {
        replace(open(path)?);
    }
    Ok(())
}

/// Opens a log file.
///
/// # Errors
/// Those of open(2).
pub(crate) fn open(path: &Path) -> io::Result<File> {
    muster_node::open_log(path).map_err(|e| {
        let text = format!("cannot open the log file {}: {e}", path.display());
        io::Error::new(e.kind(), text)
    })
}

/// Logs to another file from now on.
pub(crate) fn replace(file: File) {
    // Closed after the lock is given back.
    let _old = current().replace(file);
}

fn current() -> MutexGuard<'static, Option<File>> {
    FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs to a file that is open, to standard error, or both.
pub(crate) fn start_with(file: Option<File>, stderr: bool, level: LevelFilter) {
    *current() = file;
    STDERR.store(stderr, Ordering::Relaxed);
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(level);
        // A daemon's standard error is /dev/null.
        muster_ctld::failure::log_panics();
    }
}

/// The level of `SlurmctldDebug` or `SlurmdDebug`, plus this number of `-v`.
pub(crate) fn level(setting: &str, more: usize) -> LevelFilter {
    // Names were checked when the file was read.
    muster_ctld::debug_level::filter(setting, more).unwrap_or(LevelFilter::Trace)
}
