//! Resources that go away with this process, however that ends: a shell outside of its process group holds the other
//! end of a pipe, and cleans up when the pipe closes.

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A directory with a home in it, and what a guard would do there: leave a file above both.
    fn place(name: &str) -> (PathBuf, PathBuf, PathBuf) {
        let top = std::env::temp_dir().join(format!("muster-guard-{}-{name}", std::process::id()));
        let home = top.join("scratch/home");
        fs::create_dir_all(&home).unwrap();
        fs::write(top.join("scratch/file"), "").unwrap();
        (top.join("done"), home, top)
    }

    fn guard(done: &Path, home: &Path) -> Guard {
        Guard::new(&["touch", &done.display().to_string()], &[], Some(home)).unwrap()
    }

    #[test]
    fn what_is_to_be_done_is_done_when_it_is_dropped() {
        let (done, home, top) = place("dropped");
        drop(guard(&done, &home));
        assert!(done.exists() && home.exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn it_and_more_is_done_when_the_process_is_gone() {
        let (done, home, top) = place("gone");
        let mut guard = guard(&done, &home);
        // The effect of the process's end, however it comes.
        drop(guard.shell.stdin.take());
        guard.shell.wait().unwrap();
        assert!(done.exists() && !top.join("scratch").exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn nothing_is_done_when_it_stands_down() {
        let (done, home, top) = place("down");
        guard(&done, &home).stand_down();
        assert!(!done.exists() && home.exists());
        fs::remove_dir_all(top).unwrap();
    }
}
