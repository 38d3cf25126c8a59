//! Locations of the control group hierarchies: /proc/self/cgroup has the groups of this process, /proc/self/mountinfo
//! their mount points. Groups of jobs are below the launcher's own, so that a limit of the launcher's group applies
//! to jobs too. With version 2 they are below the root of the mount, because a group with processes cannot have
//! controllers.

use muster_proto::cgroup::CgroupVersion;
use std::fmt;
use std::path::{Path, PathBuf};

/// The use of a hierarchy for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupController {
    /// Memory and swap.
    Memory,
    /// CPUs and memory domains.
    Cpuset,
    /// Device files (version 1 only).
    Devices,
    /// Stops groups (version 1 only; in version 2 each group can be).
    Freezer,
}

impl CgroupController {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            CgroupController::Memory => "memory",
            CgroupController::Cpuset => "cpuset",
            CgroupController::Devices => "devices",
            CgroupController::Freezer => "freezer",
        }
    }

    /// The consequence for jobs if it is missing.
    pub fn without(self) -> &'static str {
        match self {
            CgroupController::Memory => "memory of jobs is not limited",
            CgroupController::Cpuset => "jobs are not confined to their CPUs",
            CgroupController::Devices => "jobs are not confined to their devices",
            CgroupController::Freezer => "processes of jobs are followed without control groups",
        }
    }
}

/// The version, which determines the names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}

/// A hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The version of its files.
    pub version: Version,
    /// The parent of the groups of jobs.
    pub base: PathBuf,
    /// Controllers of version 1; with version 2 they are in `cgroup.controllers`.
    controllers: Vec<String>,
}

/// The hierarchies of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    all: Vec<Hierarchy>,
    /// Controllers of version 2.
    unified: Vec<String>,
}

/// A missing controller, and the limits that are therefore not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingController {
    /// The controller.
    pub controller: CgroupController,
    /// Why it is not used.
    pub why: String,
}

impl fmt::Display for MissingController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, effect) = (self.controller.name(), self.controller.without());
        write!(f, "{name}: {}: {effect}", self.why)
    }
}

/// A mount of a hierarchy.
struct Mount {
    /// The group that is seen at `point`.
    root: String,
    point: PathBuf,
    version: Version,
    options: Vec<String>,
}

impl Hierarchies {
    /// The hierarchies in /proc/self/cgroup (`own`) and /proc/self/mountinfo (`mounts`) that the site allows.
    /// `unified` is called with the root of version 2 and returns the text of its `cgroup.controllers`.
    pub fn find(
        own: &str,
        mounts: &str,
        (version, mount_point): (CgroupVersion, &str),
        unified: impl Fn(&Path) -> Option<String>,
    ) -> Hierarchies {
        let mut found = Hierarchies::default();
        let below = |mount: &Mount| mount_point.is_empty() || mount.point.starts_with(mount_point);
        for mount in mounts.lines().filter_map(mount_of).filter(below) {
            let is_wanted = match mount.version {
                Version::V1 => version != CgroupVersion::V2,
                Version::V2 => version != CgroupVersion::V1,
            };
            if !is_wanted {
                continue;
            }
            let base = match mount.version {
                Version::V2 if found.unified().is_none() => {
                    let text = unified(&mount.point).unwrap_or_default();
                    found.unified = text.split_whitespace().map(str::to_owned).collect();
                    Some(mount.point)
                }
                Version::V2 => None,
                Version::V1 => own_v1(own, &mount.options)
                    .and_then(|path| below_root(&path, &mount.root))
                    .map(|rest| mount.point.join(rest)),
            };
            found.all.extend(base.map(|base| Hierarchy {
                version: mount.version,
                base,
                controllers: mount.options,
            }));
        }
        found
    }

    /// The hierarchy of version 2.
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.all.iter().find(|h| h.version == Version::V2)
    }

    /// The one by which processes are followed.
    pub fn tracking(&self) -> Option<&Hierarchy> {
        self.unified()
            .or_else(|| self.v1(CgroupController::Freezer))
    }

    /// The one that has a controller.
    pub fn of(&self, controller: CgroupController) -> Option<&Hierarchy> {
        if controller == CgroupController::Freezer {
            return self.tracking();
        }
        let in_unified = self.unified.iter().any(|name| name == controller.name());
        match self.unified().filter(|_| in_unified) {
            Some(unified) => Some(unified),
            None => self.v1(controller),
        }
    }

    fn v1(&self, controller: CgroupController) -> Option<&Hierarchy> {
        let has = |h: &&Hierarchy| {
            h.version == Version::V1 && h.controllers.iter().any(|c| c == controller.name())
        };
        self.all.iter().find(has)
    }

    /// All, for what an earlier launcher may have left.
    pub fn all(&self) -> &[Hierarchy] {
        &self.all
    }
}

/// The path of this process's group in the hierarchy of version 1 with one of these controllers.
fn own_v1(own: &str, options: &[String]) -> Option<String> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let mut named = controllers.split(',').filter(|c| !c.is_empty());
        let is_it = named.any(|c| options.iter().any(|o| o == c));
        // The path of a group outside this process's cgroup namespace begins with `/..`.
        (is_it && path.starts_with('/') && !path.contains("/..")).then(|| path.to_owned())
    })
}

/// The part of a group's path below the root of a mount.
fn below_root(path: &str, root: &str) -> Option<PathBuf> {
    let rest = Path::new(path).strip_prefix(root).ok()?;
    Some(rest.to_owned())
}

/// A line of mountinfo, proc_pid_mountinfo(5), if it is a hierarchy.
fn mount_of(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let mut first = first.split(' ').skip(3);
    let (root, point) = (unescape(first.next()?), unescape(first.next()?));
    let mut second = second.split(' ');
    let version = match second.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = second.nth(1).unwrap_or_default();
    Some(Mount {
        root,
        point: PathBuf::from(point),
        version,
        options: options.split(',').map(str::to_owned).collect(),
    })
}

/// Undoes the octal escapes of mountinfo.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'\\').then(|| after.get(..3)).flatten();
        let digits = digits.and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
25 1 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
27 25 0:24 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
28 25 0:25 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
29 25 0:26 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
30 25 0:27 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
31 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const OWN: &str =
        "9:name=systemd:/\n6:freezer:/\n4:memory:/outer/1\n3:cpuset:/\n1:cpu:/\n0::/\n";

    fn find(own: &str, mounts: &str, version: CgroupVersion, unified: &str) -> Hierarchies {
        Hierarchies::find(own, mounts, (version, ""), |_| Some(unified.to_owned()))
    }

    fn base(h: Option<&Hierarchy>) -> Option<(&str, Version)> {
        h.map(|h| (h.base.to_str().unwrap(), h.version))
    }

    #[test]
    fn a_hybrid_machine_limits_by_v1_below_its_own_groups_and_follows_by_v2() {
        let found = find(OWN, HYBRID, CgroupVersion::Any, "hugetlb");
        let memory = ("/sys/fs/cgroup/memory/outer/1", Version::V1);
        assert_eq!(base(found.of(CgroupController::Memory)), Some(memory));
        let cpuset = ("/sys/fs/cgroup/cpuset/", Version::V1);
        assert_eq!(base(found.of(CgroupController::Cpuset)), Some(cpuset));
        let unified = ("/sys/fs/cgroup/unified", Version::V2);
        assert_eq!(base(found.tracking()), Some(unified));
    }

    #[test]
    fn the_version_that_the_site_names_is_used_alone() {
        let found = find(OWN, HYBRID, CgroupVersion::V1, "");
        let freezer = ("/sys/fs/cgroup/freezer/", Version::V1);
        assert_eq!(base(found.tracking()), Some(freezer));
        let found = find(OWN, HYBRID, CgroupVersion::V2, "hugetlb");
        assert!(found.of(CgroupController::Memory).is_none());
        let other = (CgroupVersion::Any, "/other");
        assert_eq!(
            Hierarchies::find(OWN, HYBRID, other, |_| None),
            Hierarchies::default()
        );
    }

    #[test]
    fn version_2_alone_has_all_in_one() {
        let mounts = "40 1 0:30 / /sys/fs/cg\\040x rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = find(
            "0::/user.slice\n",
            mounts,
            CgroupVersion::Any,
            "cpuset cpu memory\n",
        );
        let place = Some(("/sys/fs/cg x", Version::V2));
        assert_eq!(base(found.of(CgroupController::Memory)), place);
        assert_eq!(base(found.of(CgroupController::Cpuset)), place);
        assert_eq!(base(found.tracking()), place);
    }

    #[test]
    fn a_group_that_is_not_to_be_seen_is_not_used() {
        let own = "4:memory:/../other\n";
        assert!(
            find(own, HYBRID, CgroupVersion::Any, "")
                .of(CgroupController::Memory)
                .is_none()
        );
        let mounts = "28 25 0:25 /a /m rw - cgroup cgroup rw,memory\n";
        assert!(
            find("4:memory:/b\n", mounts, CgroupVersion::Any, "")
                .of(CgroupController::Memory)
                .is_none()
        );
        let found = find("4:memory:/a/b\n", mounts, CgroupVersion::Any, "");
        assert_eq!(
            base(found.of(CgroupController::Memory)),
            Some(("/m/b", Version::V1))
        );
        assert!(
            find("", "garbage\n - \n1 2 3 - cgroup\n", CgroupVersion::Any, "")
                .all()
                .is_empty()
        );
    }
}
