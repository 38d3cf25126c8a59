//! Removes a directory of root's with all that users have left in it. Root follows nothing of theirs: each directory is opened by its
//! name in the one that is open already, no link is followed, and no other file system is entered. Directories within directories
//! are moved up and then removed one by one, so that neither a deep tree nor a long path is too much.
//!
//! A process of the user outside of the job may still have directories open. Before one is emptied it becomes root's alone, so that nothing is
//! added to it meanwhile.

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
use std::time::{Duration, Instant};

/// How long a tree may take: processes of its user that are outside of the job, and have directories of it open, can add to it.
const REMOVAL_MAX: Duration = Duration::from_secs(3600);

/// Removes a directory that is only root's to enter, in one of root's. What is not there is removed.
///
/// # Errors
/// Something of it stays: it is another file system's, may not be changed, or is added to without end.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
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
    while tree.empty_top()? {}
    match unlinkat(&above, name, UnlinkatFlags::RemoveDir) {
        Ok(()) => Ok(()),
        Err(e) => Err(tree.first_error.unwrap_or_else(|| e.into())),
    }
}

/// Removes what is in a directory of this process's user, who may have kept directories of it from being read or changed.
///
/// # Errors
/// Something of it stays; all else is gone.
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

/// Removes a directory of this process's user, with what is in it. What is somebody else's, another file system's or no directory is left
/// alone; such a file system, which may never answer, is not asked either.
///
/// # Errors
/// Something of it stays; all else is gone.
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
    /// How many directories were moved up.
    moved: u64,
    /// How many names were removed or moved.
    changes: u64,
    /// Why something stays.
    first_error: Option<io::Error>,
    /// When it is given up.
    until: Instant,
}

impl Tree {
    fn of(top: OwnedFd) -> io::Result<Tree> {
        Ok(Tree {
            device: fstat(&top)?.st_dev,
            top,
            moved: 0,
            changes: 0,
            first_error: None,
            until: Instant::now() + REMOVAL_MAX,
        })
    }

    /// Removes what is in the top directory, and moves up what its directories hold; whether anything has changed.
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
            true => Err(io::Error::other(
                "the tree is not removed after an hour: processes may be adding to it",
            )),
            false => Ok(()),
        }
    }

    fn note(&mut self, e: io::Error) {
        self.first_error.get_or_insert(e);
    }

    /// Removes a directory of the top one once its own directories are moved up.
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
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.move_up(&dir, &inner),
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
    /// Moves a directory up, to a name that is free: a removal that was interrupted has left some.
    fn move_up(&mut self, dir: &OwnedFd, inner: &OsStr) -> io::Result<()> {
        let mut is_open = false;
        loop {
            self.moved += 1;
            let up = format!(".removed.{}", self.moved);
            match renameat(dir, inner, &self.top, up.as_str()) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.check_time()?,
                // To move a directory is to change it.
                Err(Errno::EACCES) if !is_open => {
                    open_up(dir, inner)?;
                    is_open = true;
                }
                other => return Ok(other?),
            }
        }
    }
}

/// Opens a directory in another, and nothing that a link leads to.
fn open_dir(above: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// The same of one that its user, who this process is, may have kept from being read.
fn open_own_dir(above: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    match open_dir(above, name) {
        Err(Errno::EACCES) => {
            open_up(above, name)?;
            open_dir(above, name)
        }
        other => other,
    }
}

/// Lets the user of a directory, who this process is, read and change it. Root needs that nowhere, and follows no link here.
fn open_up(above: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    match geteuid().is_root() {
        true => Err(Errno::EACCES),
        false => fchmodat(above, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink),
    }
}

/// Makes a directory this user's alone.
fn take(dir: &OwnedFd) -> nix::Result<()> {
    if geteuid().is_root() {
        fchown(dir, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
    }
    fchmod(dir, Mode::S_IRWXU)
}

/// What is in a directory, from its beginning and all of it: names that cannot be removed may come before others. They are read a
/// few at a time, since its user chose how many there are.
fn entries(dir: &OwnedFd) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// Removes a name that is no directory, or an empty one.
fn remove_entry(above: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    match unlinkat(above, name, UnlinkatFlags::NoRemoveDir) {
        // What Linux says of a directory.
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
        remove(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(
            fs::read_to_string(others.join("below/file")).unwrap(),
            "kept"
        );
        // The tree itself may be a link.
        symlink(&others, &tree).unwrap();
        remove(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err() && others.join("below").is_dir());
        remove(&tree).unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn deep_wide_and_closed_trees_go() {
        let place = place("deep");
        let tree = place.join("tree");
        let mut at = OwnedFd::from(File::open(&tree).unwrap());
        // Longer than a path may be, and deeper than there are descriptors for.
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
        remove(&tree).unwrap();
        assert!(!tree.exists());
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
        // Whose files a thread works with is its own.
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
        remove(&tree).unwrap();
        fs::remove_dir_all(place).unwrap();
    }

    /// A process of root removes what is root's as one of a user does what is his.
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
        let refused = remove(&place.join("tree"));
        let is_kept = mounted.join("kept/inner").is_dir();
        let unmounted = crate::sys::mounts::unmount(&mounted);
        assert!(refused.is_err() && is_kept);
        unmounted.unwrap();
        remove(&place.join("tree")).unwrap();
        fs::remove_dir_all(place).unwrap();
    }
}
