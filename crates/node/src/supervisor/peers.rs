//! Connections to agents of other nodes on this machine. The agent names a node's socket by its
//! path, but chooses only what replaces `%n` and `%h` in the site's `SlurmdSpoolDir`: an agent that
//! is taken over cannot lead root to another directory, or to one that is mounted there.

use super::write_first;
use crate::info;
use crate::messages::agent_supervisor;
use muster_proto::frame;
use muster_proto::step::AgentRequest;
use muster_proto::version::Versions;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Pattern of the spool directories of this machine's nodes.
#[derive(Debug)]
pub(super) struct PeerPlaces {
    /// The common parent directory.
    base: PathBuf,
    /// The path components below it.
    below: Vec<NamePattern>,
}

/// A path component that may contain a node's name.
#[derive(Debug)]
struct NamePattern {
    /// The common prefix of the names.
    prefix: String,
    /// Suffix after the node's name; without a node's name the prefix is the whole component.
    suffix: Option<String>,
}

impl NamePattern {
    /// Parses a path component with `%n`, `%h` and `%%`.
    fn read(name: &str) -> NamePattern {
        let (mut prefix, mut suffix) = (String::new(), None);
        let mut chars = name.chars();
        while let Some(c) = chars.next() {
            let next = chars.clone().next();
            let is_escaped = c == '%' && matches!(next, Some('n' | 'h' | '%'));
            if is_escaped {
                chars.next();
            }
            if is_escaped && next != Some('%') {
                suffix = Some(String::new());
                continue;
            }
            suffix.as_mut().unwrap_or(&mut prefix).push(c);
        }
        NamePattern { prefix, suffix }
    }

    /// Whether a name matches the pattern.
    fn has(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        match &self.suffix {
            None => name == self.prefix,
            Some(suffix) => {
                let rest = name.strip_prefix(&self.prefix);
                let node = rest.and_then(|rest| rest.strip_suffix(suffix.as_str()));
                node.is_some_and(|node| !node.is_empty())
            }
        }
    }
}

impl PeerPlaces {
    /// The pattern of a `SlurmdSpoolDir` from slurm.conf.
    pub(super) fn new(pattern: &str) -> PeerPlaces {
        let (mut base, mut below) = (PathBuf::new(), Vec::new());
        for part in Path::new(pattern).components() {
            let name = NamePattern::read(&part.as_os_str().to_string_lossy());
            match part {
                Component::Normal(_) if !below.is_empty() || name.suffix.is_some() => {
                    below.push(name);
                }
                Component::Normal(_) => base.push(name.prefix),
                _ => base.push(part),
            }
        }
        PeerPlaces { base, below }
    }

    /// The components of an agent's socket path between the directory above all and the socket's
    /// name; `None` if no node can have this path.
    fn within(&self, socket: &str) -> Option<PathBuf> {
        let spool = Path::new(socket).parent()?;
        let within = spool.strip_prefix(&self.base).ok()?;
        let is_one = within.components().count() == self.below.len()
            && within
                .components()
                .zip(&self.below)
                .all(|(part, name)| matches!(part, Component::Normal(part) if name.has(part)));
        (is_one && !self.below.is_empty() && info::is_agent_socket(socket))
            .then(|| within.to_path_buf())
    }

    /// Connects to the agent of another node of this machine: to a socket of this process's user,
    /// with an agent's name, in a directory in which no other user can create names. The directory
    /// is held open, so that the checked socket is the connected one. The other agent sees root, so
    /// the first message restricts the connection to requests that this node's agent may send.
    pub(super) fn connect(&self, path: &str, node: &str) -> io::Result<OwnedFd> {
        let refused = || io::Error::other("that is not a socket of an agent of this user");
        let within = self.within(path).ok_or_else(refused)?;
        let name = Path::new(path).file_name().ok_or_else(refused)?;
        let dir = self.open(&within)?;
        let own = nix::unistd::geteuid().as_raw();
        let of_dir = nix::sys::stat::fstat(&dir)?;
        let of_socket = nix::sys::stat::fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let is_closed = of_dir.st_uid == own && of_dir.st_mode & 0o022 == 0;
        let is_socket = of_socket.st_mode & libc::S_IFMT == libc::S_IFSOCK;
        if !is_closed || !is_socket || of_socket.st_uid != own {
            return Err(refused());
        }
        let held = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let connection = agent_supervisor::connect(&held.join(name))?;
        let greeting = Some(Versions::CLUSTER.greeting());
        let restricted = frame::encode(&AgentRequest::ServeNode(node.to_owned(), greeting));
        write_first(&connection, &restricted)?;
        Ok(connection)
    }

    /// Opens a spool directory below the one above all. If other users can create names there
    /// (`/tmp`), a name may be a mount of theirs, whose file system must not be queried.
    fn open(&self, within: &Path) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let base = nix::fcntl::open(&self.base, flags, Mode::empty())?;
        let resolve = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_XDEV;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        match openat2(&base, within, how) {
            Ok(dir) => Ok(dir),
            Err(Errno::EXDEV) => Err(io::Error::other(
                "its SlurmdSpoolDir is a mount of its own: agents of one machine need one file system for theirs",
            )),
            // Linux before 5.6, or a container runtime that does not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let flags = flags | OFlag::O_NOFOLLOW;
                Ok(nix::fcntl::openat(&base, within, flags, Mode::empty())?)
            }
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MntFlags, MsFlags};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_agent_chooses_a_nodes_name_and_no_path() {
        let places = PeerPlaces::new("/var/spool/%%/slurmd.%n/d");
        let within = |path: &str| places.within(path).is_some();
        assert!(within("/var/spool/%/slurmd.n2/d/noded.sock"));
        for path in [
            "/var/spool/%/slurmd./d/noded.sock",
            "/var/spool/%/slurmd.n2/noded.sock",
            "/var/spool/%/slurmd.n2/d/e/noded.sock",
            "/var/spool/%/slurmd.n2/e/noded.sock",
            "/var/spool/%/slurmd.n2/../d/noded.sock",
            "/var/spool/%/other.n2/d/noded.sock",
            "/var/spool/%/../%/slurmd.n2/d/noded.sock",
            "/var/spool/%/slurmd.n2/d/docker.sock",
            "/home/eve/slurmd.n2/d/noded.sock",
            "var/spool/%/slurmd.n2/d/noded.sock",
            "noded.sock",
            "",
        ] {
            assert!(!within(path), "{path}");
        }
        let own = PeerPlaces::new("/spool/%h.%n/");
        assert!(own.within("/spool/host.n1/noded.sock").is_some());
        assert!(own.within("/spool/../noded.sock").is_none());
        // There is no other node on this machine.
        for alone in ["/var/spool/slurmd", ""] {
            let places = PeerPlaces::new(alone);
            assert!(places.within("/var/spool/slurmd/noded.sock").is_none());
            assert!(places.within("/noded.sock").is_none());
        }
    }

    /// A link to another socket, a mount, or a directory in which others make names would make root connect to any
    /// socket, or wait.
    #[test]
    fn only_agents_of_this_user_are_connected_to() {
        let home = std::env::temp_dir().join(format!("muster-peer-{}", std::process::id()));
        let dir = |name: &str, mode: u32| {
            let dir = home.join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            dir
        };
        let (own, peer, open) = (dir("d.a", 0o711), dir("d.b", 0o711), dir("d.c", 0o777));
        let (other_place, mounted) = (dir("e", 0o711), dir("d.m", 0o711));
        let at = |dir: &Path| dir.join("noded.sock");
        let listeners =
            [&peer, &open, &other_place].map(|dir| UnixListener::bind(at(dir)).unwrap());
        let places = PeerPlaces::new(home.join("d.%n").to_str().unwrap());
        let connects = |socket: &Path| places.connect(socket.to_str().unwrap(), "n1").is_ok();
        assert!(connects(&at(&peer)));
        // Before the agent can send anything, its supervisor has stated the node.
        let (mut accepted, _) = listeners[0].accept().unwrap();
        let first: AgentRequest = frame::read(&mut accepted).unwrap();
        let greeting = Some(Versions::CLUSTER.greeting());
        assert_eq!(first, AgentRequest::ServeNode("n1".to_owned(), greeting));
        assert!(!connects(&at(&open)), "others make names there");
        assert!(!connects(&at(&other_place)), "that is no node's directory");
        symlink(&other_place, home.join("d.l")).unwrap();
        assert!(!connects(&at(&home.join("d.l"))), "a link to a directory");
        symlink(at(&peer), at(&own)).unwrap();
        assert!(!connects(&at(&own)), "a link");
        let _other = UnixListener::bind(peer.join("docker.sock")).unwrap();
        assert!(!connects(&peer.join("docker.sock")), "no agent's name");
        std::fs::write(own.join("file"), "").unwrap();
        std::fs::rename(own.join("file"), at(&own)).unwrap();
        assert!(!connects(&at(&own)), "no socket");
        if nix::unistd::geteuid().is_root() {
            let none: Option<&str> = None;
            nix::mount::mount(Some(&peer), &mounted, none, MsFlags::MS_BIND, none).unwrap();
            let is_connected = connects(&at(&mounted));
            nix::mount::umount2(&mounted, MntFlags::MNT_DETACH).unwrap();
            assert!(!is_connected, "a mount");
        }
        std::fs::remove_dir_all(&home).unwrap();
    }
}
