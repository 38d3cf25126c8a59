//! Temporary directories of Grid Engine jobs: made by root in `TmpFS`, given to the job's user, removed when the job is over. Their
//! names can be guessed, so that others may have put something there before. This runs in processes of the launcher's.

use crate::removal::Removal;
use crate::root_files::only_user_leads_to;
use crate::sys;
use crate::user_dir::give_away;
use muster_node_core::JobTmpDir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::Uid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How often what others have put in a directory's place is moved away.
const TRIES_MAX: u32 = 16;
/// How long the content of one may take to be removed.
const REMOVAL_MAX: Duration = Duration::from_secs(3600);

/// Makes one.
///
/// # Errors
/// Others decide what is at its path, or it cannot be made.
pub(super) fn make(dir: &JobTmpDir) -> io::Result<()> {
    let named = |e: io::Error| {
        let text = format!("TmpFS: {}: {e}", dir.path.display());
        io::Error::new(e.kind(), text)
    };
    make_in_place(dir).map_err(named)
}

fn make_in_place(dir: &JobTmpDir) -> io::Result<()> {
    let (Some(parent), Some(name)) = (dir.path.parent(), dir.path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = open_parent(parent, dir.uid)?;
    for _ in 0..TRIES_MAX {
        match mkdirat(&parent, name, Mode::S_IRWXU) {
            Ok(()) => {
                let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let made = File::from(openat(&parent, name, flags, Mode::empty())?);
                return match Uid::effective().is_root() {
                    true => give_away(&made, dir.uid, dir.gid),
                    false => Ok(()),
                };
            }
            // An earlier attempt of the job has left it, or another node on this host has it.
            Err(Errno::EEXIST) if is_dir_of(&parent, name, dir.uid)? => return Ok(()),
            Err(Errno::EEXIST) => move_away(&parent, name)?,
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::Error::other(
        "others put something there as soon as it is free",
    ))
}

/// Opens the directory that it is to be in.
fn open_parent(parent: &Path, uid: u32) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY);
    let opened = options.open(parent)?;
    let found = opened.metadata()?;
    // With a container it is the job's own (`Dirs`).
    let is_trusted = found.uid() == Uid::effective().as_raw() || found.uid() == uid;
    let is_for_all = found.mode() & 0o022 != 0 && found.mode() & libc::S_ISVTX == 0;
    let is_safe = found.uid() == 0 || is_trusted;
    if !is_safe || is_for_all || !only_user_leads_to(parent, Uid::effective().as_raw())? {
        return Err(io::Error::other(
            "others than root may replace what is in this directory: it must be root's and sticky (chmod 1777), as /tmp is",
        ));
    }
    Ok(opened)
}

/// Whether a user has a directory of this name there.
fn is_dir_of(parent: &File, name: &OsStr, uid: u32) -> io::Result<bool> {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(found.st_uid == uid && found.st_mode & libc::S_IFMT == libc::S_IFDIR),
        Err(Errno::ENOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Gives what somebody has put there a name that nobody needs. It stays theirs.
fn move_away(parent: &File, name: &OsStr) -> io::Result<()> {
    let mut number = [0; 8];
    sys::fill_randomly(&mut number)?;
    let mut aside = name.to_owned();
    aside.push(format!(".{:016x}.other", u64::from_ne_bytes(number)));
    match renameat(parent, name, parent, aside.as_os_str()) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Kinds of file systems that answer at once, or not at all.
const LOCAL: [&str; 8] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs",
];

/// Whether one is on a disk of this machine, so that nobody waits for another. Nothing else is asked for that.
pub(super) fn is_local(dir: &JobTmpDir) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let parent = dir.path.parent().unwrap_or(Path::new("/"));
    let mut all: Vec<&Path> = parent.ancestors().collect();
    all.reverse();
    let is_link = |path: &Path| fs::symlink_metadata(path).map_or(true, |of| of.is_symlink());
    all.into_iter()
        .all(|path| kind_of_mount(&mounts, path).is_none_or(is_known) && !is_link(path))
}

fn is_known(kind: &str) -> bool {
    LOCAL.contains(&kind)
}

/// The kind of the file system that is mounted there, if one is.
fn kind_of_mount<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    // ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS ... - KIND SOURCE OPTIONS
    let kind = |line: &'m str| {
        let (mount, of) = line.split_once(" - ")?;
        let there = Path::new(mount.split(' ').nth(4)?);
        (there == path).then(|| of.split(' ').next().unwrap_or_default())
    };
    mounts.lines().filter_map(kind).next_back()
}

/// Removes one that is empty; whether there is nothing more to do.
pub(super) fn remove_if_empty(dir: &JobTmpDir) -> bool {
    match fs::symlink_metadata(&dir.path) {
        Ok(found) if found.uid() == dir.uid => fs::remove_dir(&dir.path).is_ok(),
        Ok(_) => true,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes one. What is in it is removed by a process of its user's, so that nothing goes that the user could not remove.
pub(super) fn remove(dir: &JobTmpDir) {
    // Root removes nothing but empty directories.
    if remove_if_empty(dir) {
        return;
    }
    let removal = Removal::begin(dir.uid, std::slice::from_ref(&dir.path));
    removal
        .into_iter()
        .for_each(|begun| begun.wait(REMOVAL_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::geteuid;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::PathBuf;

    const USER: u32 = 65_534;
    const OTHER: u32 = 65_533;

    /// A directory as /tmp is.
    fn place(name: &str) -> PathBuf {
        let name = format!("muster-tmp-dirs-{name}.{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).unwrap();
        place
    }

    fn tmp_dir(place: &Path) -> JobTmpDir {
        JobTmpDir {
            path: place.join("7.1.all.q"),
            uid: USER,
            gid: USER,
        }
    }

    /// What others had put at a name that can be guessed was the job's directory, or no job had one.
    #[test]
    fn what_others_put_in_its_place_is_moved_away() {
        if !geteuid().is_root() {
            eprintln!("only root makes directories of others; this test looked at nothing");
            return;
        }
        let place = place("others");
        let dir = tmp_dir(&place);
        let victims = place.join("victims");
        fs::create_dir(&victims).unwrap();
        let put: [&dyn Fn(); 4] = [
            &|| {
                fs::create_dir(&dir.path).unwrap();
                fs::write(dir.path.join("file"), "other's").unwrap();
                chown(&dir.path, Some(OTHER), None).unwrap();
            },
            &|| symlink(&victims, &dir.path).unwrap(),
            &|| fs::write(&dir.path, "a file").unwrap(),
            &|| {},
        ];
        for put in put {
            put();
            make(&dir).unwrap();
            let made = fs::symlink_metadata(&dir.path).unwrap();
            assert!(made.is_dir() && made.uid() == USER && made.gid() == USER);
            assert_eq!(made.mode() & 0o7777, 0o700);
            assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 0);
            assert_eq!(fs::metadata(&victims).unwrap().uid(), 0);
            // One of its user's is taken as it is.
            make(&dir).unwrap();
            remove(&dir);
            assert!(!dir.path.exists());
        }
        // What was there is still there, under other names.
        let names = fs::read_dir(&place).unwrap();
        let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|n| n.ends_with(".other")).count(), 3);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn kinds_of_mounts_are_found() {
        let mounts = "25 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
                      30 25 0:40 / /scratch rw - nfs4 server:/x rw\n\
                      31 25 0:41 / /tmp rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(kind_of_mount(mounts, Path::new("/")), Some("ext4"));
        assert_eq!(kind_of_mount(mounts, Path::new("/tmp")), Some("tmpfs"));
        assert_eq!(kind_of_mount(mounts, Path::new("/scratch")), Some("nfs4"));
        assert_eq!(kind_of_mount(mounts, Path::new("/scratch/a")), None);
        assert!(!is_known("nfs4") && !is_known("autofs") && is_known("xfs"));
        let place = place("local");
        let link = place.join("link");
        symlink(&place, &link).unwrap();
        assert!(!is_local(&tmp_dir(&link)));
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn one_is_made_only_where_nobody_can_replace_it() {
        if !geteuid().is_root() {
            eprintln!("only root makes directories of others; this test looked at nothing");
            return;
        }
        let place = place("parent");
        let dir = tmp_dir(&place);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        let e = make(&dir).unwrap_err().to_string();
        assert!(e.contains("chmod 1777") && e.contains("7.1.all.q"), "{e}");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).unwrap();
        chown(&place, Some(OTHER), None).unwrap();
        make(&dir).unwrap_err();
        // Another user's directory is not removed at the job's end.
        chown(&place, Some(0), None).unwrap();
        fs::create_dir(&dir.path).unwrap();
        chown(&dir.path, Some(OTHER), None).unwrap();
        remove(&dir);
        assert!(dir.path.exists());
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(make(&dir).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
