//! The text that the user edits.

use super::SAY;
use crate::{editor, say};
use std::process::ExitCode;

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

/// The text as the user leaves it.
pub(super) fn edited(text: &str) -> Result<String, ExitCode> {
    let edited = editor::edit("scrontab", "crontab", text).map_err(|why| SAY.fatal(&why))?;
    super::from_file(&edited.path().to_string_lossy())
}

/// Whether the user wants to go on with a crontab that has errors.
pub(super) fn retries() -> bool {
    say::stdout("Do you want to retry the edit? (y/n) ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && answer.trim_start().starts_with(['y', 'Y'])
}
