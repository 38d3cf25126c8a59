//! Temporary directories of Grid Engine jobs. They are made in a directory of root's in `TmpFS`, which nobody else lists or changes, and
//! given to the job's user. From then on the user may mount something there that never answers, or have a thread in the kernel that keeps
//! the directory locked: the launcher itself does not look at one again. Processes remove them ([`removal`]).

pub(super) mod queue;
pub(super) mod removal;

use crate::root_files::only_user_leads_to;
use crate::sys::quiet_stat::{self, Found};
use crate::sys::{self, mounts};
use muster_node_core::JobTmpDir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How often what others have put in a directory's place is moved away.
const TRIES_MAX: u32 = 16;
/// Mode of the directory that they are in: users reach theirs, and list none.
const PARENT_MODE: u32 = 0o711;
/// How long what a user has mounted may take to go.
const UNMOUNT_WAIT: Duration = Duration::from_secs(2);

/// Makes the directory that those of jobs are in, if it is not there; `owner` is a user beside root who may have the directory above.
///
/// # Errors
/// Others decide what is there, or it cannot be made.
pub(super) fn make_parent(path: &Path, owner: Option<u32>) -> io::Result<()> {
    let (above, name) = split(path)?;
    let above = open_above(above, owner)?;
    let device = quiet_stat::of_descriptor(&above)?.device;
    for _ in 0..TRIES_MAX {
        match quiet_stat::of_name(&above, name) {
            // To make it would need the directory above to itself.
            Ok(found) if is_parent(&found, device) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&above, name, Mode::from_bits_truncate(PARENT_MODE)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            _ => move_away(&above, name)?,
        }
    }
    Err(io::Error::other(
        "others put something there as soon as it is free",
    ))
}

/// Makes the directory of a job, in a process that may wait: the directory that it is to be in is made, too, and what an earlier job of
/// this number has left gets another name.
///
/// # Errors
/// It cannot be made.
pub(super) fn make(dir: &JobTmpDir) -> io::Result<()> {
    let (parent, name) = split(&dir.path)?;
    make_parent(parent, Some(dir.uid))?;
    let parent = open_parent(parent, Some(dir.uid))?;
    for _ in 0..TRIES_MAX {
        match make_in(&parent, name, dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => move_away(&parent, name)?,
            other => return other,
        }
    }
    Err(io::Error::from(Errno::EEXIST))
}

fn make_in(parent: &OwnedFd, name: &OsStr, dir: &JobTmpDir) -> io::Result<()> {
    mkdirat(parent, name, Mode::S_IRWXU)?;
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(dir.uid), Gid::from_raw(dir.gid));
    // Nobody else puts anything at this name.
    let given = fchownat(
        parent,
        name,
        Some(uid),
        Some(gid),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    );
    if given.is_err() {
        let _ = unlinkat(parent, name, UnlinkatFlags::RemoveDir);
    }
    Ok(given?)
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Opens a directory by its path, but asks nothing of what may be mounted there.
fn open_quietly(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Opens `TmpFS`.
fn open_above(path: &Path, owner: Option<u32>) -> io::Result<OwnedFd> {
    let own = Uid::effective().as_raw();
    if !only_user_leads_to(path.parent().unwrap_or(path), own)? {
        return Err(io::Error::other("others than root lead to TmpFS"));
    }
    let opened = open_quietly(path)?;
    let found = quiet_stat::of_descriptor(&opened)?;
    let is_trusted = found.uid == 0 || found.uid == own || Some(found.uid) == owner;
    let is_for_all = found.is_for_others() && found.mode & libc::S_ISVTX == 0;
    if !is_trusted || is_for_all {
        return Err(io::Error::other(
            "others than root may replace what is in TmpFS: it must be root's and sticky (chmod 1777), as /tmp is",
        ));
    }
    Ok(opened)
}

/// Opens the directory that those of jobs are in, if it is root's and nobody else changes it. In a directory that a job has to itself
/// that above may be its user's.
fn open_parent(path: &Path, owner: Option<u32>) -> io::Result<OwnedFd> {
    let (above, name) = split(path)?;
    let above = open_above(above, owner)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = openat(&above, name, flags, Mode::empty())?;
    let device = quiet_stat::of_descriptor(&above)?.device;
    match is_parent(&quiet_stat::of_descriptor(&opened)?, device) {
        true => Ok(opened),
        false => Err(io::Error::other(format!(
            "{}: not a directory of root's that nobody else changes",
            path.display()
        ))),
    }
}

/// Whether a directory is one that those of jobs are in. What users mount is on a device of its own, whatever it says of itself.
fn is_parent(found: &Found, device: u64) -> bool {
    let is_own = found.uid == Uid::effective().as_raw() && found.device == device;
    found.is_dir() && is_own && found.mode & 0o7777 == PARENT_MODE
}

/// Gives what somebody has put there a name that nobody needs. It stays theirs.
fn move_away(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mut number = [0; 8];
    sys::fill_randomly(&mut number)?;
    let mut aside = name.to_owned();
    aside.push(format!(".{:016x}.other", u64::from_ne_bytes(number)));
    for _ in 0..TRIES_MAX {
        match renameat(parent, name, parent, aside.as_os_str()) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EBUSY) => unmount(parent, name)?,
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::EBUSY.into())
}

/// Takes away what a user has mounted at a name in a directory of root's. A process of its own does it, as the file system is the
/// user's, and that is not waited for long.
fn unmount(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let at = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string());
    let at = at.join(name);
    let pid = match sys::fork()? {
        sys::Fork::Parent(pid) => pid,
        sys::Fork::Child => sys::exit_now(mounts::unmount(&at).is_err().into()),
    };
    match sys::exit_code_within(pid, UNMOUNT_WAIT) {
        Some(0) => Ok(()),
        _ => Err(Errno::EBUSY.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::geteuid;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
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

    fn parent(place: &Path) -> PathBuf {
        place.join("muster.c.n1")
    }

    fn tmp_dir(place: &Path) -> JobTmpDir {
        JobTmpDir {
            path: parent(place).join("7.1.all.q"),
            uid: USER,
            gid: USER,
        }
    }

    fn looked_at_nothing() -> bool {
        let is_other = !geteuid().is_root();
        if is_other {
            eprintln!("only root makes directories of others; this test looked at nothing");
        }
        is_other
    }

    fn mount_tmpfs(at: &Path) {
        mounts::mount_memory(at).unwrap();
        chown(at, Some(OTHER), None).unwrap();
    }

    /// A job's directory was made in TmpFS itself: what users put at its name, or mounted there, failed jobs and drained nodes.
    #[test]
    fn what_others_put_in_the_parents_place_is_moved_away() {
        if looked_at_nothing() {
            return;
        }
        let place = place("others");
        let (parent, dir) = (parent(&place), tmp_dir(&place));
        let victims = place.join("victims");
        fs::create_dir(&victims).unwrap();
        fs::set_permissions(&victims, fs::Permissions::from_mode(0o711)).unwrap();
        let put: [&dyn Fn(); 6] = [
            &|| {
                fs::create_dir(&parent).unwrap();
                fs::write(parent.join("file"), "other's").unwrap();
                chown(&parent, Some(OTHER), None).unwrap();
            },
            &|| symlink(&victims, &parent).unwrap(),
            &|| fs::write(&parent, "a file").unwrap(),
            &|| {
                fs::create_dir(&parent).unwrap();
                mount_tmpfs(&parent);
            },
            // What is mounted may say that it is root's.
            &|| {
                fs::create_dir(&parent).unwrap();
                mounts::mount_memory(&parent).unwrap();
                fs::set_permissions(&parent, fs::Permissions::from_mode(0o711)).unwrap();
            },
            &|| {},
        ];
        for put in put {
            put();
            make_parent(&parent, None).unwrap();
            let made = fs::symlink_metadata(&parent).unwrap();
            assert!(made.is_dir() && made.uid() == 0 && made.mode() & 0o7777 == 0o711);
            assert_eq!(made.dev(), fs::metadata(&place).unwrap().dev());
            make(&dir).unwrap();
            let made = fs::symlink_metadata(&dir.path).unwrap();
            assert!(made.is_dir() && made.uid() == USER && made.gid() == USER);
            assert_eq!(made.mode() & 0o7777, 0o700);
            assert_eq!(fs::read_dir(&victims).unwrap().count(), 0);
            // One that is there is taken as it is.
            make_parent(&parent, None).unwrap();
            removal::remove_all(std::slice::from_ref(&dir));
            assert!(!dir.path.exists());
            fs::remove_dir(&parent).unwrap();
        }
        // What was there is still there, under other names.
        let names = fs::read_dir(&place).unwrap();
        let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|n| n.ends_with(".other")).count(), 5);
        fs::remove_dir_all(&place).unwrap();
    }

    /// What an earlier job of this number has left is not the next one's.
    #[test]
    fn a_directory_that_is_there_is_moved_away_and_what_is_mounted_on_it_goes() {
        if looked_at_nothing() {
            return;
        }
        let place = place("mounted");
        let dir = tmp_dir(&place);
        make(&dir).unwrap();
        fs::write(dir.path.join("file"), "earlier").unwrap();
        mount_tmpfs(&dir.path);
        make(&dir).unwrap();
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 0);
        assert_eq!(fs::symlink_metadata(&dir.path).unwrap().uid(), USER);
        // Mounted twice, and full: the launcher had a look at it, which a user's file system need not answer.
        mount_tmpfs(&dir.path);
        mount_tmpfs(&dir.path);
        fs::write(dir.path.join("file"), "mounted").unwrap();
        removal::remove_all(std::slice::from_ref(&dir));
        assert!(!dir.path.exists());
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_is_left_over_is_found_by_user() {
        if looked_at_nothing() {
            return;
        }
        let place = place("left-over");
        make_parent(&parent(&place), None).unwrap();
        let make_of = |name: &str, uid: u32| {
            let path = parent(&place).join(name);
            make(&JobTmpDir {
                path,
                uid,
                gid: uid,
            })
            .unwrap();
        };
        for (name, uid) in [("1", USER), ("2", OTHER), ("3", USER), ("4", OTHER)] {
            make_of(name, uid);
        }
        let kept = std::collections::BTreeSet::from(["4".to_owned()]);
        let names = removal::names_left_over(&parent(&place), &kept);
        let left = removal::by_user(&parent(&place), names);
        let count = |of: &Vec<JobTmpDir>| (of[0].uid, of.len());
        let counts: Vec<(u32, usize)> = left.iter().map(count).collect();
        assert_eq!(counts, [(OTHER, 1), (USER, 2)]);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn one_is_made_only_where_nobody_can_replace_it() {
        if looked_at_nothing() {
            return;
        }
        let place = place("parent");
        let (parent, dir) = (parent(&place), tmp_dir(&place));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        let e = make_parent(&parent, None).unwrap_err().to_string();
        assert!(e.contains("chmod 1777"), "{e}");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).unwrap();
        chown(&place, Some(OTHER), None).unwrap();
        make_parent(&parent, None).unwrap_err();
        chown(&place, Some(0), None).unwrap();
        // Without that directory, or with another's in its place, none is made in it, and nothing is removed.
        let open = |path| open_parent(path, Some(USER)).map(drop);
        assert_eq!(open(&parent).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(&dir.path).unwrap();
        chown(&parent, Some(USER), None).unwrap();
        chown(&dir.path, Some(USER), None).unwrap();
        open(&parent).unwrap_err();
        removal::remove_all(std::slice::from_ref(&dir));
        assert!(dir.path.exists());
        // Another user's directory is not removed at the job's end.
        chown(&parent, Some(0), None).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o711)).unwrap();
        chown(&dir.path, Some(OTHER), None).unwrap();
        removal::remove_all(std::slice::from_ref(&dir));
        assert!(dir.path.exists());
        fs::remove_dir_all(&place).unwrap();
    }
}
