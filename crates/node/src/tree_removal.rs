//! Removes a directory of root's with everything that users have left in it. Root follows nothing
//! of theirs: each directory is opened by its name relative to an open one, no link is followed,
//! and no other file system is entered. Nested directories are moved up and then removed one by
//! one, so that neither a deep tree nor a long path is a problem.
//!
//! A process of the user outside of the job may still have directories open. Before a directory is
//! emptied it becomes accessible to root only, so that nothing is added to it meanwhile.

use crate::sys::quiet_stat;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, unlinkat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Time limit for a tree: processes of its user outside of the job that have directories of it open
/// can add to it.
pub(crate) const REMOVAL_MAX: Duration = Duration::from_secs(3600);

/// Removes a directory that only root can enter, in one of root's, or as much of it as is possible in
/// this time. A missing directory counts as removed.
///
/// # Errors
/// A part stays: the time is over ([`io::ErrorKind::TimedOut`]), or it belongs to another file system
/// or may not be changed.
pub(crate) fn remove(path: &Path, time: Duration) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = match File::open(above) {
        Ok(above) => OwnedFd::from(above),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let top = match open_dir(&above, name) {
        Ok(top) => top,
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            return Ok(unlinkat(&above, name, UnlinkatFlags::NoRemoveDir)?);
        }
        Err(e) => return Err(e.into()),
    };
    let mut tree = Tree::of(top)?;
    tree.until = Instant::now() + time;
    while tree.empty_top()? {}
    match unlinkat(&above, name, UnlinkatFlags::RemoveDir) {
        Ok(()) => Ok(()),
        Err(e) => Err(tree.first_error.unwrap_or_else(|| e.into())),
    }
}

/// Removes the contents of a directory of this process's user, who may have denied reading or
/// changing some directories in it.
///
/// # Errors
/// A part stays; everything else is removed.
pub(crate) fn empty(path: &Path) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = nix::fcntl::open(above, flags, Mode::empty())?;
    let top = open_own_dir(&above, name)?;
    fchmod(&top, Mode::S_IRWXU)?;
    let mut tree = Tree::of(top)?;
    while tree.empty_top()? {}
    tree.first_error.map_or(Ok(()), Err)
}

/// Removes a directory of this process's user with its contents. Entries of other users, other file
/// systems and paths that are not directories are left alone; a file system that may never answer
/// is not queried either.
///
/// # Errors
/// A part stays; everything else is removed.
pub(crate) fn remove_own(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let above = nix::fcntl::open(above, flags, Mode::empty())?;
    let found = match quiet_stat::of_name(&above, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !found.is_dir() || found.uid != geteuid().as_raw() {
        return Ok(());
    }
    if found.device != quiet_stat::of_descriptor(&above)?.device {
        return Err(io::Error::other("another file system is mounted there"));
    }
    let top = open_own_dir(&above, name)?;
    fchmod(&top, Mode::S_IRWXU)?;
    let mut tree = Tree::of(top)?;
    while tree.empty_top()? {}
    match unlinkat(&above, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(tree.first_error.unwrap_or_else(|| e.into())),
    }
}

struct Tree {
    top: OwnedFd,
    device: u64,
    /// The beginning of names of directories that are moved up. An interrupted removal may have left many names, which
    /// the next one does not try.
    prefix: String,
    /// Number of directories that were moved up.
    moved: u64,
    /// Number of names that were removed or moved.
    changes: u64,
    /// The first reason why a part stays.
    first_error: Option<io::Error>,
    /// The removal stops at this time even if a part of the tree remains.
    until: Instant,
}

impl Tree {
    fn of(top: OwnedFd) -> io::Result<Tree> {
        Ok(Tree {
            device: fstat(&top)?.st_dev,
            top,
            prefix: format!(".removed.{}", nanoseconds()),
            moved: 0,
            changes: 0,
            first_error: None,
            until: Instant::now() + REMOVAL_MAX,
        })
    }

    /// Removes the contents of the top directory, and moves up the contents of its directories;
    /// returns whether anything changed.
    fn empty_top(&mut self) -> io::Result<bool> {
        let before = self.changes;
        for entry in entries(&self.top)? {
            self.check_time()?;
            let name = entry?.file_name();
            let removed = match remove_entry(&self.top, &name) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.empty_dir(&name),
                other => other.map_err(io::Error::from),
            };
            match removed {
                Ok(()) => self.changes += 1,
                Err(e) => self.note(e),
            }
        }
        Ok(self.changes != before)
    }

    fn check_time(&self) -> io::Result<()> {
        match Instant::now() > self.until {
            true => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the tree is not removed in time: processes may be adding to it",
            )),
            false => Ok(()),
        }
    }

    fn note(&mut self, e: io::Error) {
        self.first_error.get_or_insert(e);
    }

    /// Removes a directory of the top one after its own directories were moved up.
    fn empty_dir(&mut self, name: &OsStr) -> io::Result<()> {
        let dir = open_own_dir(&self.top, name)?;
        if fstat(&dir)?.st_dev != self.device {
            return Err(io::Error::other("another file system is mounted there"));
        }
        take(&dir)?;
        loop {
            let before = self.changes;
            for entry in entries(&dir)? {
                self.check_time()?;
                let inner = entry?.file_name();
                let removed = match remove_entry(&dir, &inner) {
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                        let moved = self.move_up(&dir, &inner);
                        moved.or_else(|e| self.remove_leaf(&dir, &inner).map_err(|_| e))
                    }
                    other => other.map_err(io::Error::from),
                };
                match removed {
                    Ok(()) => self.changes += 1,
                    Err(e) => self.note(e),
                }
            }
            if self.changes == before {
                break;
            }
        }
        Ok(unlinkat(&self.top, name, UnlinkatFlags::RemoveDir)?)
    }
}

impl Tree {
    /// Moves a directory up to a free name.
    fn move_up(&mut self, dir: &OwnedFd, inner: &OsStr) -> io::Result<()> {
        let mut is_open = false;
        loop {
            self.moved += 1;
            let up = format!("{}.{}", self.prefix, self.moved);
            match renameat(dir, inner, &self.top, up.as_str()) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.check_time()?,
                // Moving a directory requires the right to change it.
                Err(Errno::EACCES) if !is_open => {
                    open_up(dir, inner)?;
                    is_open = true;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Removes one directory at the bottom of a directory that cannot be moved up, with the files on the way to it. A file
    /// system without room for another name has room again after that.
    fn remove_leaf(&mut self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let (mut above, mut name) = (dir.try_clone()?, name.to_owned());
        loop {
            let own = open_own_dir(&above, &name)?;
            if fstat(&own)?.st_dev != self.device {
                return Err(io::Error::other("another file system is mounted there"));
            }
            take(&own)?;
            let mut next = None;
            for entry in entries(&own)? {
                self.check_time()?;
                let inner = entry?.file_name();
                match remove_entry(&own, &inner) {
                    Ok(()) => self.changes += 1,
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) => next = Some(inner),
                    Err(e) => self.note(e.into()),
                }
            }
            let Some(inner) = next else {
                return Ok(unlinkat(
                    &above,
                    name.as_os_str(),
                    UnlinkatFlags::RemoveDir,
                )?);
            };
            (above, name) = (own, inner);
        }
    }
}

/// The time of the clock, which differs from that of an earlier removal.
fn nanoseconds() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

/// Opens a directory in another one, without following a link.
fn open_dir(above: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// As above, for a directory that its user, as whom this process runs, may have made unreadable.
fn open_own_dir(above: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    match open_dir(above, name) {
        Err(Errno::EACCES) => {
            open_up(above, name)?;
            open_dir(above, name)
        }
        other => other,
    }
}

/// Gives the user of a directory, as whom this process runs, the rights to read and change it. Root
/// does not need that, and follows no link here.
fn open_up(above: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    match geteuid().is_root() {
        true => Err(Errno::EACCES),
        false => fchmodat(above, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink),
    }
}

/// Restricts access to a directory to this user.
fn take(dir: &OwnedFd) -> nix::Result<()> {
    if geteuid().is_root() {
        fchown(dir, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
    }
    fchmod(dir, Mode::S_IRWXU)
}

/// The complete contents of a directory, because names that cannot be removed may come before
/// others. A few names are read at a time, because the user chose their number.
fn entries(dir: &OwnedFd) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// Removes a name that is an empty directory or not a directory.
fn remove_entry(above: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    match unlinkat(above, name, UnlinkatFlags::NoRemoveDir) {
        // The error that Linux returns for a directory.
        Err(Errno::EISDIR | Errno::EPERM) if is_dir(above, name) => {
            unlinkat(above, name, UnlinkatFlags::RemoveDir)
        }
        other => other,
    }
}

fn is_dir(above: &OwnedFd, name: &OsStr) -> bool {
    let found = nix::sys::stat::fstatat(above, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    found.is_ok_and(|of| of.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn place(name: &str) -> std::path::PathBuf {
        let name = format!("muster-tree-removal-{name}.{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("tree")).unwrap();
        place
    }

    #[test]
    fn links_lead_nowhere() {
        let place = place("links");
        let (tree, others) = (place.join("tree"), place.join("others"));
        fs::create_dir_all(others.join("below")).unwrap();
        fs::write(others.join("below/file"), "kept").unwrap();
        fs::create_dir_all(tree.join("a/b")).unwrap();
        symlink(&others, tree.join("link")).unwrap();
        symlink(&others, tree.join("a/b/link")).unwrap();
        symlink("../../../others", tree.join("a/b/up")).unwrap();
        fs::hard_link(others.join("below/file"), tree.join("a/name")).unwrap();
        remove(&tree, REMOVAL_MAX).unwrap();
        assert!(!tree.exists());
        assert_eq!(
            fs::read_to_string(others.join("below/file")).unwrap(),
            "kept"
        );
        // The tree itself may be a link.
        symlink(&others, &tree).unwrap();
        remove(&tree, REMOVAL_MAX).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err() && others.join("below").is_dir());
        remove(&tree, REMOVAL_MAX).unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn deep_wide_and_closed_trees_go() {
        let place = place("deep");
        let tree = place.join("tree");
        let mut at = OwnedFd::from(File::open(&tree).unwrap());
        // Longer than a path may be, and deeper than the number of descriptors.
        let name = OsString::from("d".repeat(100));
        for _ in 0..2000 {
            nix::sys::stat::mkdirat(&at, name.as_os_str(), Mode::S_IRWXU).unwrap();
            at = open_dir(&at, &name).unwrap();
        }
        for n in 0..300 {
            let dir = tree.join(format!("w{n}/x/y"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("file"), "").unwrap();
        }
        let closed = tree.join("closed/inner/file");
        fs::create_dir_all(&closed).unwrap();
        fs::set_permissions(tree.join("closed/inner"), fs::Permissions::from_mode(0o700)).unwrap();
        let error = remove(&tree, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(tree.exists());
        remove(&tree, REMOVAL_MAX).unwrap();
        assert!(!tree.exists());
        fs::remove_dir_all(place).unwrap();
    }

    /// Each turn tried all names that those before had left: with some million directories it took the whole turn.
    #[test]
    fn a_removal_tries_no_names_of_the_one_before() {
        let place = place("turns");
        let tree = place.join("tree");
        for n in 0..100 {
            fs::create_dir_all(tree.join(format!("wide/{n}/inner"))).unwrap();
        }
        let wide = OwnedFd::from(File::open(tree.join("wide")).unwrap());
        let turn = || Tree::of(OwnedFd::from(File::open(&tree).unwrap())).unwrap();
        let mut first = turn();
        for n in 0..99 {
            first.move_up(&wide, OsStr::new(&n.to_string())).unwrap();
        }
        let mut second = turn();
        second.move_up(&wide, OsStr::new("99")).unwrap();
        assert_eq!((first.moved, second.moved), (99, 1));
        remove(&tree, REMOVAL_MAX).unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    /// A job that left its file system without room for another name had nothing removed: all that it leaves is in
    /// directories that were to be moved up first.
    #[test]
    fn directories_that_cannot_be_moved_up_are_removed() {
        let place = place("unmoved");
        let tree = place.join("tree");
        for inner in ["a/b/c/d", "a/b/e", "a/f/g"] {
            let dir = tree.join("wide").join(inner);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("file"), "").unwrap();
        }
        let mut removal = Tree::of(OwnedFd::from(File::open(&tree).unwrap())).unwrap();
        // Too long for any file system.
        removal.prefix = "n".repeat(255);
        while removal.empty_top().unwrap() {}
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 0);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn names_that_stay_hide_no_others() {
        if !geteuid().is_root() {
            eprintln!("only root makes what others cannot remove; this test looked at nothing");
            return;
        }
        let place = place("many");
        let (tree, user) = (place.join("tree"), Uid::from_raw(65_533));
        for n in 0..4500 {
            fs::create_dir_all(tree.join(format!("kept{n}/inner"))).unwrap();
        }
        for n in 0..200 {
            fs::write(tree.join(format!("file{n}")), "").unwrap();
        }
        std::os::unix::fs::chown(&tree, Some(user.as_raw()), None).unwrap();
        let own = tree.clone();
        // Each thread has its own file system user.
        let emptied = std::thread::spawn(move || {
            nix::unistd::setfsuid(user);
            empty(&own).is_ok()
        });
        assert!(!emptied.join().unwrap(), "what is root's stays");
        let left = fs::read_dir(&tree)
            .unwrap()
            .map(|own| own.unwrap().file_name());
        let files = left.filter(|name| name.as_encoded_bytes().starts_with(b"file"));
        assert_eq!(files.count(), 0);
        remove(&tree, REMOVAL_MAX).unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    /// A process of root removes root's files as a process of a user removes the user's.
    #[test]
    fn what_is_anothers_or_mounted_is_left_alone() {
        if !geteuid().is_root() {
            eprintln!("only root has files of others; this test looked at nothing");
            return;
        }
        let place = place("own");
        let own = place.join("own");
        fs::create_dir_all(own.join("x/y")).unwrap();
        fs::write(own.join("x/y/file"), "").unwrap();
        symlink("/", own.join("x/link")).unwrap();
        fs::set_permissions(own.join("x"), fs::Permissions::from_mode(0o555)).unwrap();
        remove_own(&own).unwrap();
        assert!(!own.exists());
        remove_own(&own).unwrap();
        let anothers = place.join("anothers");
        fs::create_dir_all(anothers.join("inner")).unwrap();
        std::os::unix::fs::chown(&anothers, Some(65_533), None).unwrap();
        let (link, file) = (place.join("link"), place.join("file"));
        symlink(place.join("tree"), &link).unwrap();
        fs::write(&file, "").unwrap();
        for left in [&anothers, &link, &file] {
            remove_own(left).unwrap();
            assert!(fs::symlink_metadata(left).is_ok());
        }
        fs::create_dir(&own).unwrap();
        crate::sys::mounts::mount_memory(&own).unwrap();
        fs::create_dir(own.join("inner")).unwrap();
        let refused = remove_own(&own);
        let is_kept = own.join("inner").is_dir();
        crate::sys::mounts::unmount(&own).unwrap();
        assert!(refused.is_err() && is_kept && place.join("tree").is_dir());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn another_file_system_stays_and_is_named() {
        if !geteuid().is_root() {
            eprintln!("only root mounts; this test looked at nothing");
            return;
        }
        let place = place("mount");
        let mounted = place.join("tree/a/mounted");
        fs::create_dir_all(&mounted).unwrap();
        crate::sys::mounts::mount_memory(&mounted).unwrap();
        fs::create_dir_all(mounted.join("kept/inner")).unwrap();
        let refused = remove(&place.join("tree"), REMOVAL_MAX);
        let is_kept = mounted.join("kept/inner").is_dir();
        let unmounted = crate::sys::mounts::unmount(&mounted);
        assert!(refused.is_err() && is_kept);
        unmounted.unwrap();
        remove(&place.join("tree"), REMOVAL_MAX).unwrap();
        fs::remove_dir_all(place).unwrap();
    }
}
