//! Removes directories in which users could write. No daemon waits for it, because there may be
//! millions of files, or a file system that does not answer even a query for a directory's owner.
//! Two processes do the work. The first runs as root: it renames the directories and removes them
//! once they are empty, which follows nothing of the user's. The second runs as the owner of the
//! directories and removes their contents.

use crate::role::{self, LAUNCHER_NAME, Start};
use crate::sys;
use crate::tree_removal;
use minicbor::{Decode, Encode};
use muster_node_core::messages::ProcessIdentity;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Argument with which the launcher's program removes directories instead, and the argument for
/// removing their contents.
pub(crate) const REMOVAL_ARGUMENT: &str = "--remove";
pub(crate) const CONTENT_ARGUMENT: &str = "--remove-content";
/// Argument with which it removes a user's directories with their contents, as that user.
pub(crate) const OWN_ARGUMENT: &str = "--remove-own";

/// A group without rights, because only the owner matters.
const NO_GROUP: u32 = 65534;

/// Directories whose contents are being removed.
#[derive(Debug)]
pub(crate) struct Removal {
    /// The removing process.
    pub(crate) pid: i32,
}

/// Owner and paths of the directories.
#[derive(Encode, Decode)]
struct RemovalOrder {
    #[n(0)]
    owner: u32,
    #[n(1)]
    dirs: Vec<PathBuf>,
}

impl Removal {
    /// Starts removing those of the directories that exist and belong to the user `owner`.
    pub(crate) fn begin(owner: u32, dirs: &[PathBuf]) -> Option<Removal> {
        let first = dirs.first()?;
        let own = ProcessIdentity {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: Vec::new(),
            name: String::new(),
        };
        let order = RemovalOrder {
            owner,
            dirs: dirs.to_vec(),
        };
        match start(REMOVAL_ARGUMENT, &own, &order, true) {
            Ok(pid) => Some(Removal { pid }),
            Err(e) => {
                eprintln!("{}: it cannot be removed: {e}", first.display());
                None
            }
        }
    }

    /// Waits for the process for a limited time; for callers that have nothing else to do.
    pub(crate) fn wait(self, patience: Duration) {
        if sys::exit_code_within(self.pid, patience).is_none() {
            sys::kill(self.pid, Signal::SIGKILL as i32);
            sys::exit_code_of(self.pid);
        }
    }
}

/// Starts a process of this user that removes directories, or their contents.
fn start(
    argument: &str,
    user: &ProcessIdentity,
    order: &RemovalOrder,
    outlives: bool,
) -> io::Result<i32> {
    let started = Start {
        words: &[LAUNCHER_NAME, argument],
        environment: Vec::new(),
        user,
        order: minicbor::to_vec(order).expect("writing to memory cannot fail"),
        // The log is root's, so a process of the user gets no descriptor of it.
        errors: (argument == REMOVAL_ARGUMENT).then_some(libc::STDERR_FILENO),
        is_untraceable: argument != REMOVAL_ARGUMENT,
        kept: Vec::new(),
        outlives,
        namespace: None,
    };
    started.start()
}

/// Starts a process of this user that removes the contents of directories.
fn start_emptying(uid: u32, dirs: &[PathBuf]) -> io::Result<i32> {
    let order = RemovalOrder {
        owner: uid,
        dirs: dirs.to_vec(),
    };
    start(
        CONTENT_ARGUMENT,
        &in_one_group(uid, NO_GROUP),
        &order,
        false,
    )
}

/// Starts a process of this user and group that removes the directories which belong to the user,
/// with their contents. The process outlives this one.
pub(crate) fn start_removing_own(uid: u32, gid: u32, dirs: Vec<PathBuf>) -> io::Result<i32> {
    let order = RemovalOrder { owner: uid, dirs };
    start(OWN_ARGUMENT, &in_one_group(uid, gid), &order, true)
}

/// A user without supplementary groups.
fn in_one_group(uid: u32, gid: u32) -> ProcessIdentity {
    ProcessIdentity {
        uid,
        gid,
        groups: Vec::new(),
        name: String::new(),
    }
}

/// Renames a directory of this user and returns its new name. If the parent directory has no sticky
/// bit, another user may have put something else in its place. A directory that root has created
/// and not given away yet is empty; root removes only empty directories.
fn set_aside(dir: &Path, owner: u32) -> Option<PathBuf> {
    let found = fs::symlink_metadata(dir).ok()?;
    if !found.is_dir() || found.uid() != owner && found.uid() != geteuid().as_raw() {
        eprintln!("{}: it is uid {}'s and stays", dir.display(), found.uid());
        return None;
    }
    let mut number = [0; 8];
    sys::fill_randomly(&mut number).ok()?;
    let mut aside = OsString::from(dir);
    aside.push(format!(".{:016x}.gone", u64::from_ne_bytes(number)));
    match fs::rename(dir, &aside) {
        Ok(()) => Some(aside.into()),
        Err(e) => {
            eprintln!("{}: {e}", dir.display());
            None
        }
    }
}

fn read_order() -> io::Result<RemovalOrder> {
    minicbor::decode(&role::read_order()?).map_err(io::Error::other)
}

/// The process that removes directories; usually root's.
pub(crate) fn removal_main() -> ExitCode {
    let Ok(RemovalOrder { owner, dirs }) = read_order() else {
        return ExitCode::FAILURE;
    };
    // After the rename, a process that is just ending cannot find the directory.
    let dirs = dirs.iter().filter_map(|dir| set_aside(dir, owner));
    let dirs: Vec<PathBuf> = dirs.collect();
    if dirs.is_empty() {
        return ExitCode::SUCCESS;
    }
    let emptied = start_emptying(owner, &dirs);
    match emptied {
        Ok(pid) => drop(sys::exit_code_of(pid)),
        Err(e) => eprintln!("{}: it cannot be emptied: {e}", dirs[0].display()),
    }
    let mut done = ExitCode::SUCCESS;
    for dir in dirs {
        if let Err(e) = fs::remove_dir(&dir)
            && e.kind() != io::ErrorKind::NotFound
        {
            eprintln!("{}: {e}", dir.display());
            done = ExitCode::FAILURE;
        }
    }
    done
}

/// The process that removes the contents, which runs as their owner.
pub(crate) fn content_main() -> ExitCode {
    let Ok(RemovalOrder { dirs, .. }) = read_order() else {
        return ExitCode::FAILURE;
    };
    // If the owner may not remove the directory itself, root does.
    let failed = dirs.iter().filter(|dir| tree_removal::empty(dir).is_err());
    match failed.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The process that removes directories of its own user.
pub(crate) fn own_main() -> ExitCode {
    let Ok(RemovalOrder { dirs, .. }) = read_order() else {
        return ExitCode::FAILURE;
    };
    // A job may leave many files, and nothing waits for their removal, so it runs at low priority.
    sys::lower_priority();
    let failed = dirs
        .iter()
        .filter(|dir| tree_removal::remove_own(dir).is_err());
    match failed.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_gets_a_name_that_nobody_knows() {
        let dir = std::env::temp_dir().join(format!("muster-removal.{}", std::process::id()));
        let own = geteuid().as_raw();
        assert_eq!(set_aside(&dir, own), None);
        fs::create_dir(&dir).unwrap();
        let aside = set_aside(&dir, own).unwrap();
        assert!(!dir.exists() && aside.is_dir());
        fs::remove_dir(aside).unwrap();
    }

    /// If everybody may rename entries, the place of a step's directory may hold another user's.
    #[test]
    fn what_is_another_users_stays() {
        if !geteuid().is_root() {
            eprintln!("only root has files of others; this test looked at nothing");
            return;
        }
        let dir = std::env::temp_dir().join(format!("muster-removal-other.{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65533), None).unwrap();
        assert_eq!(set_aside(&dir, 65534), None);
        assert!(dir.is_dir());
        let aside = set_aside(&dir, 65533).unwrap();
        fs::remove_dir(aside).unwrap();
        let file = dir.with_extension("link");
        std::os::unix::fs::symlink("/", &file).unwrap();
        assert_eq!(set_aside(&file, geteuid().as_raw()), None);
        fs::remove_file(file).unwrap();
    }
}
