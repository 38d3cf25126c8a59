//! What goes away with this process, however that ends: a shell outside of its process group holds the other end of a
//! pipe, and does what there is to do when the pipe closes.

use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// One word on the pipe says that nothing is to be done, another that this process goes on; else its files go, too.
const WAIT: &str = "\
read -r word
[ \"$word\" = leave ] && exit
\"$@\" </dev/null >/dev/null
[ \"$word\" ] || [ ! \"$SCRATCH\" ] || { rm -rf \"$SCRATCH_HOME\"; rm -f \"$SCRATCH\"/*; rmdir \"$SCRATCH\"; } 2>/dev/null";

/// Runs a command when it is dropped, or when this process is gone.
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// A command, and variables for its environment. When this process does not end as it should, a directory goes, too:
    /// that of a cluster, and the one that it is in, with its files.
    pub(crate) fn new(
        words: &[&str],
        environment: &[(&str, &str)],
        scratch: Option<&Path>,
    ) -> Result<Guard> {
        let shell = Command::new("sh")
            .args(["-c", WAIT, "guard"])
            .args(words)
            .envs(environment.iter().copied())
            .env("SCRATCH_HOME", scratch.unwrap_or(Path::new("")))
            .env(
                "SCRATCH",
                scratch.and_then(Path::parent).unwrap_or(Path::new("")),
            )
            .stdin(Stdio::piped())
            // Signals for the terminal's or timeout's group are not for it.
            .process_group(0)
            .spawn()
            .context("no shell to clean up with")?;
        Ok(Guard { shell })
    }

    /// Nothing is to be done any more.
    pub(crate) fn stand_down(mut self) {
        self.say(b"leave\n");
    }

    fn say(&mut self, word: &[u8]) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(word);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.say(b"over\n");
        let _ = self.shell.wait();
    }
}
