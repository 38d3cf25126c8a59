//! What tests need of the Python package index, kept beside what is built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The virtual environment of a package (`name==version`); nothing, and a word that says so, without a network.
pub(crate) fn installed(package: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package.replace("==", "-"));
    let done = dir.join("installed");
    if !done.exists() {
        let script = format!(
            "python3 -m venv --clear {0} && {0}/bin/pip install -q {package} && touch {0}/installed",
            dir.display()
        );
        let ran = Command::new("bash").args(["-c", &script]).output().unwrap();
        if !ran.status.success() {
            let why = String::from_utf8_lossy(&ran.stderr).into_owned();
            eprintln!("SKIPPED: {package} cannot be installed: {why}");
            return None;
        }
    }
    Some(dir)
}
