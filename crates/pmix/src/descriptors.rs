//! Descriptors of a host: as many as many other hosts and tasks take.

#![allow(unsafe_code)]

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

/// Descriptors of a host, at most: there are programs that close all numbers that they may have.
const FILES_MAX: rlim_t = 16_384;

/// The soft limit with which this process was started.
static FIRST: OnceLock<rlim_t> = OnceLock::new();

/// Raises the soft limit of this process.
pub(crate) fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    FIRST.get_or_init(|| soft);
    // A lower one is enough for all but the largest steps.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES_MAX.min(hard)), hard);
}

/// Starts a program with the first soft limit: srun passes its own on to tasks.
pub(crate) fn with_first_limit(command: &mut Command) {
    let Some(&first) = FIRST.get() else {
        return;
    };
    let restore = move || {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(setrlimit(Resource::RLIMIT_NOFILE, first.min(hard), hard)?)
    };
    // SAFETY: it only makes two system calls.
    unsafe { command.pre_exec(restore) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_limit_that_a_host_was_started_with() {
        raise_limit();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft >= FILES_MAX.min(hard));
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]);
        with_first_limit(&mut command);
        let said = command.output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.trim(), FIRST.get().unwrap().to_string());
    }
}
