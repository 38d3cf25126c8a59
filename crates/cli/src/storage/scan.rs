//! Scans a directory tree for the use by each owner. Users may change the tree meanwhile, and try to lead root astray:
//! directories are opened from their parents and no link is followed, nothing is read but names and records of files, and memory
//! does not grow with the tree.

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statvfs::fstatvfs;
use std::collections::{HashMap, HashSet};
use std::fs::ReadDir;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

/// Directories that are open at a time: those in deeper ones are left out.
const DEPTH_MAX: usize = 256;
/// Number of remembered files with several names; more of them count for each name.
const LINKED_MAX: usize = 1 << 20;
/// Entries between two notes of progress.
const NOTE_EVERY: u64 = 1 << 14;

/// Use by an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerUse {
    /// Allocated bytes.
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScannedTree {
    pub(super) owners: HashMap<u32, OwnerUse>,
    pub(super) files: u64,
    /// Directories that were not looked through: too deep, or refused.
    pub(super) left_out: u64,
    pub(super) size_bytes: u64,
    pub(super) used_bytes: u64,
    linked: HashSet<Inode>,
}

/// A file by its number on its file system.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Inode {
    device: u64,
    number: u64,
}

/// A directory whose entries are being read.
struct OpenDirectory {
    fd: OwnedFd,
    entries: ReadDir,
}

impl OpenDirectory {
    fn new(fd: OwnedFd) -> io::Result<OpenDirectory> {
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        Ok(OpenDirectory { fd, entries })
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK);

/// Looks through the tree at `root`, as far as it is on one file system. `note` is called now and then with the result so far.
///
/// # Errors
/// The directory itself cannot be read.
pub(super) fn scan(root: &Path, mut note: impl FnMut(&ScannedTree)) -> io::Result<ScannedTree> {
    let fd = open(root, DIRECTORY, Mode::empty())?;
    let own = fstat(&fd)?;
    let sizes = fstatvfs(&fd)?;
    let mut found = ScannedTree {
        size_bytes: sizes.blocks() * sizes.fragment_size(),
        used_bytes: sizes.blocks().saturating_sub(sizes.blocks_free()) * sizes.fragment_size(),
        ..ScannedTree::default()
    };
    found.add(&own);
    let mut open_directories = vec![OpenDirectory::new(fd)?];
    loop {
        let depth = open_directories.len();
        let Some(directory) = open_directories.last_mut() else {
            return Ok(found);
        };
        let Some(entry) = directory.entries.next() else {
            open_directories.pop();
            continue;
        };
        let Ok(entry) = entry else {
            found.left_out += 1;
            open_directories.pop();
            continue;
        };
        let name = entry.file_name();
        let Ok(stat) = fstatat(
            &directory.fd,
            name.as_os_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        ) else {
            // It has gone meanwhile.
            continue;
        };
        if stat.st_dev != own.st_dev {
            continue;
        }
        found.add(&stat);
        if found.files.is_multiple_of(NOTE_EVERY) {
            note(&found);
        }
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR {
            continue;
        }
        let opened = match depth < DEPTH_MAX {
            true => openat(&directory.fd, name.as_os_str(), DIRECTORY, Mode::empty()).ok(),
            false => None,
        };
        // It may be another directory than before, even of another file system.
        let opened = opened.filter(|fd| fstat(fd).is_ok_and(|stat| stat.st_dev == own.st_dev));
        match opened.and_then(|fd| OpenDirectory::new(fd).ok()) {
            Some(inner) => open_directories.push(inner),
            None => found.left_out += 1,
        }
    }
}

impl ScannedTree {
    fn add(&mut self, stat: &FileStat) {
        let is_directory =
            SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
        if stat.st_nlink > 1 && !is_directory {
            let id = Inode {
                device: stat.st_dev,
                number: stat.st_ino,
            };
            if self.linked.contains(&id) {
                return;
            }
            if self.linked.len() < LINKED_MAX {
                self.linked.insert(id);
            }
        }
        self.files += 1;
        let owned = self.owners.entry(stat.st_uid).or_default();
        owned.files += 1;
        // Blocks of 512 bytes, by stat(2).
        owned.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    #[test]
    fn files_count_once_and_links_lead_nowhere() {
        let top = std::env::temp_dir().join(format!("muster-scan.{}", std::process::id()));
        let outside = top.with_extension("outside");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("big"), vec![1; 1 << 20]).unwrap();
        fs::write(top.join("a/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(top.join("a/file"), top.join("a/b/again")).unwrap();
        symlink(&outside, top.join("way-out")).unwrap();
        let found = scan(&top, |_| {}).unwrap();
        // The top, two directories, a file with two names, a link.
        assert_eq!((found.files, found.left_out), (5, 0));
        let uid = fs::metadata(&top).unwrap().uid();
        let owned = found.owners[&uid];
        assert!(owned.bytes >= 100_000 && owned.bytes < 1 << 20, "{owned:?}");
        assert!(found.size_bytes >= found.used_bytes && found.used_bytes > 0);
        assert!(
            scan(&top.join("way-out"), |_| {}).is_err(),
            "a link is no directory"
        );
        for dir in [&top, &outside] {
            fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn what_is_too_deep_is_left_out_and_counted() {
        let top = std::env::temp_dir().join(format!("muster-deep.{}", std::process::id()));
        let mut deep = top.clone();
        for _ in 0..DEPTH_MAX + 3 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        let found = scan(&top, |_| {}).unwrap();
        assert_eq!(found.left_out, 1);
        assert_eq!(found.files, DEPTH_MAX as u64 + 1);
        fs::remove_dir_all(&top).unwrap();
    }
}
