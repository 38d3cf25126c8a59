//! Removes directories in which users could write. Who removes what is in them is their owner, in a process of its own that
//! may take its time: there may be millions of files, or another file system that does not answer. Root only renames and
//! removes the directory itself, which follows nothing of the user's.

use super::wire::User;
use crate::role::{self, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The argument with which the shim's program removes directories instead.
pub(super) const REMOVAL_ARGUMENT: &str = "--remove";

/// A group that has rights to nothing: what counts is the owner.
const NO_GROUP: u32 = 65534;

/// Directories whose content is being removed.
#[derive(Debug)]
pub(crate) struct Removal {
    /// The process that does it.
    pub(crate) pid: i32,
    dirs: Vec<PathBuf>,
}

#[derive(Encode, Decode)]
struct Order(#[n(0)] Vec<PathBuf>);

impl Removal {
    /// Begins to remove those that are there. Under another name, what ends at this very moment cannot find them.
    pub(crate) fn begin(dirs: &[PathBuf]) -> Option<Removal> {
        let mut found: Vec<(u32, PathBuf)> = dirs.iter().filter_map(|dir| set_aside(dir)).collect();
        let (owner, _) = found.first()?;
        let owner = *owner;
        // Those of a step have one owner.
        found.retain(|(uid, _)| *uid == owner);
        let dirs: Vec<PathBuf> = found.into_iter().map(|(_, dir)| dir).collect();
        let user = User {
            uid: owner,
            gid: NO_GROUP,
            groups: Vec::new(),
            name: String::new(),
        };
        let started = Start {
            words: &[super::SHIM_NAME, REMOVAL_ARGUMENT],
            environment: Vec::new(),
            user: &user,
            order: minicbor::to_vec(Order(dirs.clone())).expect("writing to memory cannot fail"),
            errors: None,
            kept: Vec::new(),
            outlives: true,
        };
        match started.start() {
            Ok(pid) => Some(Removal { pid, dirs }),
            Err(e) => {
                eprintln!("{}: it cannot be removed: {e}", dirs[0].display());
                None
            }
        }
    }

    /// Its process has ended: removes the directories themselves.
    pub(crate) fn finish(self) {
        for dir in self.dirs {
            if let Err(e) = fs::remove_dir(&dir)
                && e.kind() != io::ErrorKind::NotFound
            {
                eprintln!("{}: {e}", dir.display());
            }
        }
    }

    /// Waits for it, but not for ever, in a process that has nothing else to do.
    pub(crate) fn wait(self, patience: Duration) {
        let ended = sys::pidfd(self.pid).is_ok_and(|pidfd| {
            let mut fds = [libc::pollfd {
                fd: pidfd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            let wait = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
            sys::poll(&mut fds, wait).is_ok() && fds[0].revents != 0
        });
        if !ended {
            sys::kill(self.pid, Signal::SIGKILL as i32);
        }
        sys::exit_code_of(self.pid);
        self.finish();
    }
}

/// Gives a directory another name; that, and the owner of it.
fn set_aside(dir: &Path) -> Option<(u32, PathBuf)> {
    let owner = fs::symlink_metadata(dir).ok()?.uid();
    let mut number = [0; 8];
    sys::fill_randomly(&mut number).ok()?;
    let mut aside = OsString::from(dir);
    aside.push(format!(".{:016x}.gone", u64::from_ne_bytes(number)));
    match fs::rename(dir, &aside) {
        Ok(()) => Some((owner, aside.into())),
        Err(e) => {
            eprintln!("{}: {e}", dir.display());
            None
        }
    }
}

/// The process that removes directories.
pub(super) fn removal_main() -> ExitCode {
    let order = role::read_order()
        .and_then(|bytes| minicbor::decode::<Order>(&bytes).map_err(io::Error::other));
    let Ok(Order(dirs)) = order else {
        return ExitCode::FAILURE;
    };
    // Where the owner may not remove the directory itself, root does that.
    let removed = dirs.iter().all(|dir| fs::remove_dir_all(dir).is_ok());
    match removed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_gets_a_name_that_nobody_knows() {
        let dir = std::env::temp_dir().join(format!("muster-removal.{}", std::process::id()));
        assert_eq!(set_aside(&dir), None);
        fs::create_dir(&dir).unwrap();
        let (owner, aside) = set_aside(&dir).unwrap();
        assert_eq!(owner, nix::unistd::geteuid().as_raw());
        assert!(!dir.exists() && aside.is_dir());
        fs::remove_dir(aside).unwrap();
    }
}
