//! One control group: a directory, by its descriptor.

use crate::os_error;
use crate::sys;
use muster_node_core::cgroup::{
    GroupPlace, GroupUsage, MemoryLimits, Version, cpu_times, oom_kills,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Number of rounds of killing, if the kernel cannot kill a whole group at once.
const ROUNDS_MAX: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    dir: OwnedFd,
    pub(super) version: Version,
    /// Path, for messages and for daemons.
    pub(super) path: PathBuf,
}

fn named(path: &Path, name: &str, e: impl Into<io::Error>) -> io::Error {
    os_error::named(format_args!("{}/{name}", path.display()), e.into())
}

impl Group {
    const DIR: OFlag = OFlag::O_RDONLY
        .union(OFlag::O_DIRECTORY)
        .union(OFlag::O_NOFOLLOW)
        .union(OFlag::O_CLOEXEC);

    /// The group with this directory. Only root may own the directories that lead to it.
    pub(super) fn open(path: &Path, version: Version) -> io::Result<Group> {
        Ok(Group {
            dir: open(path, Self::DIR, Mode::empty()).map_err(|e| named(path, "", e))?,
            version,
            path: path.to_owned(),
        })
    }

    /// The group that the launcher has created.
    pub(super) fn at(place: &GroupPlace) -> io::Result<Group> {
        let version = match place.is_v2 {
            true => Version::V2,
            false => Version::V1,
        };
        Group::open(&place.path, version)
    }

    /// For daemons.
    pub(super) fn place(&self, has_memory: bool) -> GroupPlace {
        GroupPlace {
            is_v2: self.version == Version::V2,
            path: self.path.clone(),
            has_memory,
        }
    }

    /// A group below this one, created if it does not exist.
    pub(super) fn make(&self, name: &str) -> io::Result<Group> {
        match mkdirat(&self.dir, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(named(&self.path, name, e)),
        }
        self.below(name)
    }

    /// A group below this one.
    pub(super) fn below(&self, name: &str) -> io::Result<Group> {
        let dir = openat(&self.dir, name, Self::DIR, Mode::empty());
        Ok(Group {
            dir: dir.map_err(|e| named(&self.path, name, e))?,
            version: self.version,
            path: self.path.join(name),
        })
    }

    fn file(&self, name: &str, flags: OFlag) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.dir, name, flags, Mode::empty()).map_err(|e| named(&self.path, name, e))
    }

    /// Writes a value. The kernel takes it completely, or returns an error.
    pub(super) fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let file = self.file(name, OFlag::O_WRONLY)?;
        let written = nix::unistd::write(&file, value.as_bytes());
        written.map(drop).map_err(|e| named(&self.path, name, e))
    }

    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        let file = self.file(name, OFlag::O_RDONLY)?;
        io::read_to_string(fs::File::from(file)).map_err(|e| named(&self.path, name, e))
    }

    /// The file by which processes join the group.
    pub(super) fn entrance(&self) -> io::Result<OwnedFd> {
        self.file("cgroup.procs", OFlag::O_WRONLY)
    }

    /// Names of the groups below.
    fn children(&self) -> Vec<String> {
        let own = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        let entries = fs::read_dir(own).into_iter().flatten().flatten();
        let groups = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        groups
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    }

    /// Groups below this one whose names begin with the prefix.
    pub(super) fn children_like(&self, start: &str) -> Vec<String> {
        let mut names = self.children();
        names.retain(|name| name.starts_with(start));
        names
    }

    /// Processes in the group and below.
    pub(super) fn members(&self) -> Vec<i32> {
        let text = self.read("cgroup.procs").unwrap_or_default();
        let mut pids: Vec<i32> = text.lines().filter_map(|l| l.parse().ok()).collect();
        for name in self.children() {
            pids.extend(self.below(&name).map(|g| g.members()).unwrap_or_default());
        }
        pids
    }

    /// Whether there are processes in the group or below.
    pub(super) fn is_populated(&self) -> bool {
        match self.version {
            Version::V2 => self
                .read("cgroup.events")
                .is_ok_and(|text| text.lines().any(|l| l == "populated 1")),
            Version::V1 => !self.members().is_empty(),
        }
    }

    /// Kills all processes in the group and below, including frozen ones and those that are being
    /// forked.
    pub(super) fn kill(&self) {
        if self.version == Version::V2 && self.write("cgroup.kill", "1").is_ok() {
            return;
        }
        // A frozen process can neither fork nor end. Until freezing is complete some still can;
        // each signalled process is verified to be a member after its descriptor was opened.
        for _ in 0..ROUNDS_MAX {
            self.freeze(true);
            let members = self.members();
            let held = |pid: &i32| Some((*pid, sys::pidfd(*pid).ok()?));
            let held: Vec<(i32, OwnedFd)> = members.iter().filter_map(held).collect();
            let still: BTreeSet<i32> = self.members().into_iter().collect();
            for (_, held) in held.iter().filter(|(pid, _)| still.contains(pid)) {
                let _ = sys::cells::signal_by(held, libc::SIGKILL);
            }
            self.freeze(false);
            if members.is_empty() {
                return;
            }
        }
    }

    /// Stops or continues all processes in the group and below.
    pub(super) fn freeze(&self, is_frozen: bool) {
        let written = match (self.version, is_frozen) {
            (Version::V2, _) => self.write("cgroup.freeze", if is_frozen { "1" } else { "0" }),
            (Version::V1, true) => self.write("freezer.state", "FROZEN"),
            (Version::V1, false) => self.write("freezer.state", "THAWED"),
        };
        if let Err(e) = written {
            eprintln!("a control group is not frozen or thawed: {e}");
        }
    }

    /// Enables these controllers of version 2 for groups below.
    pub(super) fn pass_on(&self, controllers: &[&str]) -> io::Result<()> {
        let there = self.read("cgroup.subtree_control")?;
        let missing = |name: &&&str| !there.split_whitespace().any(|word| word == **name);
        for name in controllers.iter().filter(missing) {
            self.write("cgroup.subtree_control", &format!("+{name}"))?;
        }
        Ok(())
    }

    /// Limits memory. A group of version 1 has no limit yet, or the same one.
    pub(super) fn limit_memory(&self, limits: &MemoryLimits) -> io::Result<()> {
        let value = |bytes: u64| bytes.to_string();
        match self.version {
            Version::V1 => {
                if let Some(hard) = limits.hard {
                    self.write("memory.limit_in_bytes", &value(hard))?;
                }
                if let Some(soft) = limits.soft {
                    self.write("memory.soft_limit_in_bytes", &value(soft))?;
                }
                if let Some(sum) = limits.with_swap {
                    self.write("memory.memsw.limit_in_bytes", &value(sum))?;
                }
            }
            Version::V2 => {
                if let Some(hard) = limits.hard {
                    self.write("memory.max", &value(hard))?;
                }
                // At the hard limit, throttling would only delay processes that are about to be
                // killed.
                if let Some(soft) = limits.soft.filter(|soft| limits.hard > Some(*soft)) {
                    self.write("memory.high", &value(soft))?;
                }
                if let (Some(hard), Some(sum)) = (limits.hard, limits.with_swap) {
                    self.write("memory.swap.max", &value(sum.saturating_sub(hard)))?;
                }
            }
        }
        Ok(())
    }

    /// Number of its processes that the kernel has killed for lack of memory.
    pub(super) fn oom_kills(&self) -> u64 {
        let name = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        self.read(name).map_or(0, |text| oom_kills(&text))
    }

    /// Resource usage of its processes, including ended ones.
    pub(super) fn usage(&self) -> GroupUsage {
        let (user_us, system_us) = self
            .read("cpu.stat")
            .map_or((0, 0), |text| cpu_times(&text));
        let name = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        let peak = self
            .read(name)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        GroupUsage {
            user_us,
            system_us,
            peak_kib: peak.unwrap_or(0) / 1024,
        }
    }

    /// Removes a group below this one, and those below that.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(self.dir.as_fd(), name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(_) => {}
        }
        let group = self.below(name)?;
        for below in group.children() {
            group.remove(&below)?;
        }
        unlinkat(self.dir.as_fd(), name, UnlinkatFlags::RemoveDir)
            .map_err(|e| named(&self.path, name, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure was attributed to the node at once, which was drained.
    #[test]
    fn a_group_for_which_something_lacks_is_tried_again() {
        for number in [Errno::EMFILE, Errno::ENOMEM, Errno::ENOSPC] {
            let error = named(Path::new("/sys/fs/cgroup"), "job", number);
            assert!(os_error::is_temporary(&error), "{error}");
        }
    }
}
