//! Removes temporary directories of jobs, in processes: one for those of a user, so that what one user does to it holds up no other.

use super::{TRIES_MAX, open_parent, split, unmount};
use crate::removal::start_emptying;
use crate::sys;
use crate::sys::quiet_stat;
use muster_node_core::JobTmpDir;
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the content of a user's may take to be removed.
const CONTENT_MAX: Duration = Duration::from_secs(3600);
/// A group that has rights to nothing: of what is left over nobody knows the job's group.
const NO_GROUP: u32 = 65534;

/// What is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    Nothing,
    Content,
}

/// Removes those of one user, the ones of each group in turn.
pub(crate) fn remove_all_groups(dirs: &[JobTmpDir]) {
    let mut dirs = dirs.to_vec();
    dirs.sort_by_key(|dir| dir.gid);
    for of_group in dirs.chunk_by(|a, b| a.gid == b.gid) {
        remove_all(of_group);
    }
}

/// Removes those of one user, who has this group in all of them.
pub(crate) fn remove_all(dirs: &[JobTmpDir]) {
    let with_content = dirs.iter().filter(|dir| match remove_empty(dir) {
        Ok(leftover) => leftover == Leftover::Content,
        Err(e) => {
            eprintln!("{}: it stays: {e}", dir.path.display());
            false
        }
    });
    let left: Vec<&JobTmpDir> = with_content.collect();
    let Some(first) = left.first() else { return };
    let paths: Vec<PathBuf> = left.iter().map(|dir| dir.path.clone()).collect();
    match start_emptying(first.uid, first.gid, &paths) {
        Ok(pid) => {
            if sys::exit_code_within(pid, CONTENT_MAX).is_none() {
                sys::kill(pid, libc::SIGKILL);
            }
        }
        Err(e) => eprintln!("{}: it cannot be emptied: {e}", first.path.display()),
    }
    for dir in left {
        match remove_empty(dir) {
            Ok(Leftover::Nothing) => {}
            Ok(Leftover::Content) => eprintln!(
                "{}: it stays, with what its user may not remove",
                dir.path.display()
            ),
            Err(e) => eprintln!("{}: it stays: {e}", dir.path.display()),
        }
    }
}

/// Removes one that is empty, and what its user has mounted on it.
fn remove_empty(dir: &JobTmpDir) -> io::Result<Leftover> {
    let (parent, name) = split(&dir.path)?;
    // Nobody but root makes one in a directory of a user's, which goes with its job.
    let parent = match open_parent(parent, None) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Leftover::Nothing),
        other => other?,
    };
    let device = quiet_stat::of_descriptor(&parent)?.device;
    for _ in 0..TRIES_MAX {
        let found = match quiet_stat::of_name(&parent, name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Leftover::Nothing),
            Ok(found) if found.device == device => found,
            // Another file system's, or one of a user's that refuses root.
            _ => {
                unmount(&parent, name)?;
                continue;
            }
        };
        if found.uid != dir.uid || !found.is_dir() {
            let text = format!("it is uid {}'s", found.uid);
            return Err(io::Error::other(text));
        }
        match unlinkat(&parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(Leftover::Nothing),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(Leftover::Content),
            Err(Errno::EBUSY) => unmount(&parent, name)?,
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::EBUSY.into())
}

/// Names in a directory of those that jobs do not have any more. It is listed at once, so that what is made from now on stays.
pub(crate) fn names_left_over(parent: &Path, kept: &BTreeSet<String>) -> Vec<OsString> {
    let is_kept = |name: &OsStr| name.to_str().is_some_and(|name| kept.contains(name));
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter(|name| !is_kept(name)).collect()
}

/// Those of these names, by user. Users may have to do with how long that takes.
pub(crate) fn by_user(parent: &Path, names: Vec<OsString>) -> Vec<Vec<JobTmpDir>> {
    let Ok(opened) = open_parent(parent, None) else {
        return Vec::new();
    };
    let mut dirs: Vec<JobTmpDir> = names
        .into_iter()
        .filter_map(|name| {
            Some(JobTmpDir {
                uid: owner_of(&opened, &name)?,
                path: parent.join(name),
                gid: NO_GROUP,
            })
        })
        .collect();
    dirs.sort_by_key(|dir| dir.uid);
    let groups = dirs.chunk_by(|a, b| a.uid == b.uid);
    groups.map(<[JobTmpDir]>::to_vec).collect()
}

/// Whose a directory is; what is mounted on it goes first.
fn owner_of(parent: &OwnedFd, name: &OsStr) -> Option<u32> {
    let device = quiet_stat::of_descriptor(parent).ok()?.device;
    for _ in 0..TRIES_MAX {
        match quiet_stat::of_name(parent, name) {
            Ok(found) if found.device == device => return Some(found.uid),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            _ => unmount(parent, name).ok()?,
        }
    }
    None
}
