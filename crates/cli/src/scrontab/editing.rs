//! The editor, and the file that it is given.

use super::SAY;
use crate::options::env;
use crate::say;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The text for who has no crontab yet.
pub(super) const EXAMPLE: &str = "\
# Each line is an entry, a comment or a variable:
#   MINUTE HOUR DAY-OF-MONTH MONTH DAY-OF-WEEK COMMAND
#   @hourly COMMAND           also @daily, @weekly, @monthly, @yearly
# #SCRON lines are options of sbatch for the entry that follows:
#   #SCRON --partition=NAME --time=5
# NAME=value is put in place of $NAME in the commands that follow.
# Times are in the time zone of the controller.
";

/// Removes the file whatever happens.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The text as the user leaves it.
pub(super) fn edited(text: &str) -> Result<String, ExitCode> {
    let failed = |what: &str, e: &dyn std::fmt::Display| SAY.fatal(&format!("{what}: {e}"));
    let directory = env("TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
    let template = Path::new(&directory).join("scrontab-XXXXXX");
    let (file, path) = nix::unistd::mkstemp(&template).map_err(|e| {
        failed(
            &format!("error creating temporary crontab in {directory}"),
            &e,
        )
    })?;
    let scratch = Scratch(path);
    let written = fs::File::from(file).write_all(text.as_bytes());
    written.map_err(|e| failed("error writing temporary crontab", &e))?;
    let editor = env("VISUAL").or_else(|| env("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // The variable may have options in it.
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("scrontab")
        .arg(&scratch.0)
        .status();
    let status = status.map_err(|e| failed("the editor could not be started", &e))?;
    if !status.success() {
        return Err(SAY.fatal(&format!("editor '{editor}' ended with {status}")));
    }
    super::from_file(&scratch.0.to_string_lossy())
}

/// Whether the user wants to go on with a crontab that has errors.
pub(super) fn retries() -> bool {
    say::stdout("Do you want to retry the edit? (y/n) ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}
