//! Files that root opens by paths from the configuration. Other users may own directories on the
//! path, for example SlurmUser those of the logs, and could have put links there that lead to files
//! of root's.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Maximum number of links that are followed on the path to a file.
const LINKS_MAX: u32 = 40;

/// Whether only root can decide what a path leads to, as far as it exists: all directories on the
/// path, including those of links, are root's, and other users can at most add names without
/// replacing root's (`/tmp`).
///
/// # Errors
/// Those of lstat(2), and a path with too many links.
pub fn only_root_leads_to(path: &Path) -> io::Result<bool> {
    only_user_leads_to(path, 0)
}

/// As above, for another user in addition to root.
///
/// # Errors
/// See [`only_root_leads_to`].
pub fn only_user_leads_to(path: &Path, uid: u32) -> io::Result<bool> {
    others_directory(path, uid).map(|found| found.is_none())
}

/// The first directory on a path in which users other than root and this user can change what names
/// lead to, if there is one.
///
/// # Errors
/// See [`only_root_leads_to`].
pub(crate) fn others_directory(path: &Path, uid: u32) -> io::Result<Option<PathBuf>> {
    let is_trusted = |owner: u32| owner == 0 || owner == uid;
    let mut left: Vec<PathBuf> = components(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = left.pop() {
        let dir = fs::symlink_metadata(&at)?;
        let others_write = dir.mode() & 0o022 != 0;
        let sticky = dir.mode() & libc::S_ISVTX != 0;
        if !is_trusted(dir.uid()) || others_write && !sticky {
            return Ok(Some(at));
        }
        let next = at.join(&name);
        let found = match fs::symlink_metadata(&next) {
            Ok(found) => found,
            // A user who may add names here may do so meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(others_write.then_some(at)),
            Err(e) => return Err(e),
        };
        if others_write && !is_trusted(found.uid()) {
            return Ok(Some(at));
        }
        if !found.is_symlink() {
            at = match name.as_os_str() == ".." {
                true => at.parent().map_or(PathBuf::from("/"), Path::to_path_buf),
                false => next,
            };
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        left.extend(components(&target));
    }
    Ok(None)
}

/// The names of a path, last first.
fn components(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<PathBuf> = names.collect();
    names.reverse();
    names
}

/// Mode of a log file.
const LOG_MODE: u32 = 0o640;

/// Opens a log file for appending. Only its owner and group may read it, because it names users and
/// their jobs.
///
/// # Errors
/// Those of open(2); and for root, if other users could have put a link in the file's place, a file
/// that is not a regular file with one name.
pub fn open_log(path: &Path) -> io::Result<File> {
    let mut open = OpenOptions::new();
    open.create(true).append(true).mode(LOG_MODE);
    open_own(path, &mut open).and_then(keep_from_others)
}

/// Opens a file that a daemon writes.
///
/// # Errors
/// Those of open(2); and for root, if other users could have put a link in the file's place, a file
/// that is not a regular file with one name.
pub fn open_own(path: &Path, open: &mut OpenOptions) -> io::Result<File> {
    if !nix::unistd::geteuid().is_root() || only_root_leads_to(path)? {
        return open.open(path);
    }
    let file = open
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(io::Error::other(
            "others than root write to its directory, and it is not a plain file with one name",
        ));
    }
    Ok(file)
}

/// A log created by an earlier version or by logrotate may be readable for everybody.
fn keep_from_others(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    let mode = found.mode() & 0o7777;
    let is_ours = found.uid() == nix::unistd::geteuid().as_raw();
    if found.is_file() && is_ours && mode & !LOG_MODE != 0 {
        file.set_permissions(Permissions::from_mode(mode & LOG_MODE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn a_log_is_not_for_others_to_read() {
        let dir = std::env::temp_dir().join(format!("muster-log-mode-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let new = dir.join("new.log");
        open_log(&new).unwrap();
        assert_eq!(mode(&new) & 0o007, 0);
        let old = dir.join("old.log");
        for (before, after) in [(0o644, 0o640), (0o600, 0o600)] {
            fs::write(&old, "a line\n").unwrap();
            fs::set_permissions(&old, Permissions::from_mode(before)).unwrap();
            open_log(&old).unwrap();
            assert_eq!(mode(&old), after);
            assert_eq!(fs::read_to_string(&old).unwrap(), "a line\n");
        }
        // A file that is not regular keeps its mode.
        let null = mode(Path::new("/dev/null"));
        open_log(Path::new("/dev/null")).unwrap();
        assert_eq!(mode(Path::new("/dev/null")), null);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn root_logs_to_no_file_that_others_chose() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: there is nothing to be led to; this test looked at nothing");
            return;
        }
        let place = std::env::temp_dir().join(format!("muster-open-log-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let theirs = place.join("theirs");
        fs::create_dir_all(&theirs).unwrap();
        chown(&theirs, Some(65534), None).unwrap();
        let secret = place.join("secret");
        fs::write(&secret, "root's").unwrap();
        symlink(&secret, theirs.join("link")).unwrap();
        fs::hard_link(&secret, theirs.join("name")).unwrap();
        assert!(open_log(&theirs.join("link")).is_err());
        assert!(open_log(&theirs.join("name")).is_err());
        let log = open_log(&theirs.join("slurmd.log")).unwrap();
        assert_eq!(log.metadata().unwrap().mode() & 0o777, 0o640);
        // Root's own links are followed.
        symlink(&secret, place.join("link")).unwrap();
        open_log(&place.join("link")).unwrap();
        fs::remove_dir_all(&place).unwrap();
    }
}
