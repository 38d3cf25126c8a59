//! The directory of a private cluster. Daemons read their configuration from it, and root's run the programs that it names: it
//! must be nobody else's, nor what leads to it.

use anyhow::{Context as _, Result, bail, ensure};
use muster_node::only_user_leads_to;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{User, geteuid};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where a private cluster lives.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn find() -> Result<Home> {
        if let Some(home) = std::env::var_os("MUSTER_HOME").filter(|v| !v.is_empty()) {
            let path = PathBuf::from(home);
            let path = if path.is_absolute() {
                path
            } else {
                std::env::current_dir()?.join(path)
            };
            return Ok(Home(path));
        }
        if geteuid().is_root() {
            return Ok(Home(PathBuf::from("/var/lib/muster")));
        }
        let home = std::env::var_os("HOME").context("neither MUSTER_HOME nor HOME is set")?;
        Ok(Home(Path::new(&home).join(".local/state/muster")))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.at("slurm.conf")
    }

    pub(crate) fn ctld_pid_file(&self) -> PathBuf {
        self.at("run/ctld.pid")
    }

    pub(crate) fn emulator_pid_file(&self) -> PathBuf {
        self.at("run/emulator.pid")
    }

    pub(crate) fn node_pid_file(&self, node: &str) -> PathBuf {
        self.at(&format!("run/noded.{node}.pid"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let (config, _) = muster_conf::load(&self.conf());
        config.nodes.into_iter().map(|node| node.name).collect()
    }

    /// Files in one of its directories with names of this begin and end.
    pub(crate) fn list(&self, dir: &str, start: &str, end: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.at(dir)).into_iter().flatten().flatten();
        let named = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        });
        named.map(|entry| entry.path()).collect()
    }

    /// A Unix socket's path may be 107 bytes long.
    pub(crate) fn check_length(&self) -> Result<()> {
        let longest =
            self.at("spool.a-node-name-of-some-length/step-abcdefghijklmnop.1234567890.sock");
        if longest.as_os_str().len() > 107 {
            bail!(
                "{} is too long a directory for sockets (their paths may have 107 bytes); set MUSTER_HOME to a shorter one",
                self.0.display()
            );
        }
        Ok(())
    }

    /// Refuses a directory that others have made, or could change something in: slurm.conf would be theirs, and links that they
    /// put there would be followed.
    pub(crate) fn check_owner(&self) -> Result<()> {
        let own = geteuid().as_raw();
        let safe = only_user_leads_to(&self.0, own)
            .with_context(|| format!("cannot look at {}", self.0.display()))?;
        ensure!(
            safe,
            "{}: other users own it, or a directory above it, or may replace it: give a MUSTER_HOME of your own, in a \
             directory of your own",
            self.0.display()
        );
        if !self.0.exists() {
            return Ok(());
        }
        check_entry(&self.0, &[own], false)?;
        let slurm_user = self.slurm_uid();
        for entry in fs::read_dir(&self.0).with_context(|| self.0.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_read = [".conf", ".yaml", ".toml"]
                .iter()
                .any(|end| name.ends_with(end));
            let is_shared = name.starts_with("tmp.");
            let is_dir = ["bin", "run", "log", "state", "hosts", "munge"].contains(&&*name)
                || name.starts_with("spool.")
                || is_shared;
            if !is_read && !is_dir {
                continue;
            }
            // The controller makes these its own.
            let owners = match matches!(&*name, "state" | "run" | "log") {
                true => vec![own, slurm_user.unwrap_or(own)],
                false => vec![own],
            };
            check_entry(&entry.path(), &owners, is_shared)?;
        }
        Ok(())
    }

    /// The number of `SlurmUser`, by the slurm.conf that is there.
    fn slurm_uid(&self) -> Option<u32> {
        let path = self.conf();
        check_entry(&path, &[geteuid().as_raw()], false).ok()?;
        let (config, _) = muster_conf::load(&path);
        let named = User::from_name(&config.slurm_user).ok().flatten();
        named
            .map(|user| user.uid.as_raw())
            .or_else(|| config.slurm_user.parse().ok())
    }

    /// Makes one of its directories, with this mode.
    pub(crate) fn make_dir(&self, name: &str, mode: u32) -> Result<()> {
        let path = self.at(name);
        let make = || {
            fs::create_dir_all(&path)?;
            let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let dir = open(&path, flags, Mode::empty())?;
            fchmod(&dir, Mode::from_bits_truncate(mode))?;
            Ok::<_, std::io::Error>(())
        };
        make().with_context(|| format!("cannot create {}", path.display()))
    }
}

/// Whether a file of a home belongs to one of these users, is no link, and is nobody else's to write. A directory that `is_shared` is
/// as /tmp: others may add to it.
fn check_entry(path: &Path, owners: &[u32], is_shared: bool) -> Result<()> {
    let found = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
    let others_write = found.mode() & 0o022 != 0 && !(is_shared && is_sticky);
    let (shown, uid) = (path.display(), found.uid());
    ensure!(
        !found.is_symlink(),
        "{shown} is a link, which is not followed: give another MUSTER_HOME"
    );
    ensure!(
        owners.contains(&uid),
        "{shown} belongs to another user (uid {uid}): give a MUSTER_HOME of your own"
    );
    ensure!(
        !others_write,
        "others may write to {shown} (mode {:o}): 'chmod go-w' changes that; or give another MUSTER_HOME",
        found.mode() & 0o7777
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    /// Root's daemons ran what another user's slurm.conf named, and opened directories to all that his links led to.
    #[test]
    fn a_home_that_somebody_else_made_is_refused() {
        if !geteuid().is_root() {
            eprintln!("not root: this test looked at nothing");
            return;
        }
        let place = std::env::temp_dir().join(format!("muster-home-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        let home = Home(place.join("home"));
        home.check_owner().unwrap();
        fs::create_dir(&home.0).unwrap();
        fs::set_permissions(&home.0, Permissions::from_mode(0o755)).unwrap();
        fs::write(home.conf(), "ClusterName=c\nSlurmUser=65534\n").unwrap();
        fs::create_dir(home.at("state")).unwrap();
        chown(home.at("state"), Some(65534), None).unwrap();
        home.check_owner().unwrap();
        let refused = |what: &str, which: &str| {
            let why = home.check_owner().expect_err(what).to_string();
            assert!(why.contains(which) && why.contains("MUSTER_HOME"), "{why}");
        };
        // As /tmp is: others would make what this home does not have yet.
        fs::set_permissions(&home.0, Permissions::from_mode(0o1777)).unwrap();
        refused("a directory for all", "(mode 1777)");
        fs::set_permissions(&home.0, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.at("hosts")).unwrap();
        chown(home.at("hosts"), Some(65534), None).unwrap();
        refused(
            "hosts of another user",
            "hosts belongs to another user (uid 65534)",
        );
        fs::remove_dir(home.at("hosts")).unwrap();
        fs::create_dir(home.at("tmp.n2")).unwrap();
        fs::set_permissions(home.at("tmp.n2"), Permissions::from_mode(0o1777)).unwrap();
        home.check_owner().unwrap();
        symlink("/etc", home.at("tmp.n1")).unwrap();
        refused("a link", "is a link");
        assert!(home.make_dir("tmp.n1", 0o1777).is_err());
        fs::remove_file(home.at("tmp.n1")).unwrap();
        chown(home.conf(), Some(65534), None).unwrap();
        refused(
            "another user's slurm.conf",
            "slurm.conf belongs to another user (uid 65534)",
        );
        chown(home.conf(), Some(0), None).unwrap();
        fs::set_permissions(home.conf(), Permissions::from_mode(0o666)).unwrap();
        refused("everybody's slurm.conf", "(mode 666)");
        fs::set_permissions(home.conf(), Permissions::from_mode(0o644)).unwrap();
        chown(&home.0, Some(65534), None).unwrap();
        refused("another user's home", "home belongs to another user");
        chown(&home.0, Some(0), None).unwrap();
        chown(&place, Some(65534), None).unwrap();
        refused("below another user's directory", "other users own it");
        fs::remove_dir_all(&place).unwrap();
    }
}
