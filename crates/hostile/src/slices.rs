//! Shares of the processors: one for daemons, and one for each of two users, as systemd makes them of a machine's services
//! and of its users' sessions (`system.slice`, `user.slice`, systemd.slice(5)). Without them the measured times of one
//! user's commands are those of a machine on which eight processes of another may take all processors.

use crate::sys::in_cgroup;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where the controller `cpu` of cgroup v1 is, and where cgroup v2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
const PROCESSES: &str = "cgroup.procs";

/// The shares, which are removed at the end.
#[derive(Debug)]
pub struct Slices {
    root: PathBuf,
    dirs: Vec<PathBuf>,
    /// Joined by the user who attacks.
    attacker: Arc<File>,
    /// Directory of the user who is attacked.
    other: PathBuf,
    /// Directory of daemons.
    system: PathBuf,
}

impl Slices {
    /// Creates the shares and has this process, with the daemons that it will start, join that of daemons.
    ///
    /// # Errors
    /// There is no cgroup controller `cpu` in which this process may create any.
    pub fn enter() -> io::Result<Slices> {
        let has_controller = |root: &&&str| {
            let root = Path::new(**root);
            let of_v2 = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            root.join("cpu.shares").exists() || of_v2.split_whitespace().any(|name| name == "cpu")
        };
        let none = || io::Error::new(io::ErrorKind::NotFound, "no cgroup controller cpu");
        let root = PathBuf::from(ROOTS.iter().find(has_controller).ok_or_else(none)?);
        let of = |name: &str| root.join(format!("muster-hostile-{}-{name}", std::process::id()));
        let (system, users) = (of("system"), of("users"));
        let (attacker, other) = (users.join("attacker"), users.join("other"));
        let mut dirs = Vec::new();
        for dir in [&system, &users, &attacker, &other] {
            let parent = dir.parent().unwrap_or(&root);
            // With cgroup v1 there is no such file, and children have the controller without it.
            let control = parent.join("cgroup.subtree_control");
            if control.exists() {
                fs::write(control, "+cpu")?;
            }
            fs::create_dir(dir)?;
            dirs.insert(0, dir.clone());
        }
        let open = |dir: &Path| {
            let processes = File::options().write(true).open(dir.join(PROCESSES));
            processes.map(Arc::new)
        };
        let slices = Slices {
            attacker: open(&attacker)?,
            other,
            system,
            root,
            dirs,
        };
        slices.join_system()?;
        Ok(slices)
    }

    /// Has a command of the attacking user run in that user's share.
    pub fn put_attacker(&self, command: &mut Command) {
        in_cgroup(command, self.attacker.clone());
    }

    /// Moves this process to the share of the other user, whose commands it starts. It moves before they start: a move
    /// waits for a grace period of the kernel, which is no part of their time.
    ///
    /// # Errors
    /// The share is gone.
    pub fn join_other(&self) -> io::Result<()> {
        fs::write(self.other.join(PROCESSES), "0")
    }

    /// Moves this process back to the share of daemons.
    ///
    /// # Errors
    /// The share is gone.
    pub fn join_system(&self) -> io::Result<()> {
        fs::write(self.system.join(PROCESSES), "0")
    }
}

impl Drop for Slices {
    /// Moves every process back and removes the shares; those of processes that start meanwhile stay, empty of others.
    fn drop(&mut self) {
        for dir in &self.dirs {
            let processes = fs::read_to_string(dir.join(PROCESSES)).unwrap_or_default();
            for process in processes.lines() {
                let _ = fs::write(self.root.join(PROCESSES), process);
            }
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::VICTIM;
    use std::os::unix::process::CommandExt;

    #[test]
    fn commands_run_in_the_share_of_their_user() {
        let slices = match Slices::enter() {
            Ok(slices) => slices,
            Err(e) => return eprintln!("SKIPPED: {e}"),
        };
        let share = |put: &dyn Fn(&mut Command)| {
            let mut command = Command::new("cat");
            put(command.arg("/proc/self/cgroup").uid(VICTIM.uid));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let attacker = share(&|command| slices.put_attacker(command));
        assert!(attacker.contains("-users/attacker"), "{attacker}");
        slices.join_other().unwrap();
        let other = share(&|_| ());
        slices.join_system().unwrap();
        assert!(other.contains("-users/other"), "{other}");
        let own = share(&|_| ());
        assert!(own.contains("-system"), "{own}");
        let dirs = slices.dirs.clone();
        drop(slices);
        assert!(dirs.iter().all(|dir| !dir.exists()), "{dirs:?}");
        assert!(!share(&|_| ()).contains("muster-hostile"));
    }
}
