//! Descriptor limit of a host process: connections to other hosts and to tasks each need one.

#![allow(unsafe_code)]

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

/// Upper bound for the descriptor limit: some programs close all descriptor numbers up to the
/// limit, which takes long if it is high.
const FILES_MAX: rlim_t = 16_384;

/// The soft limit with which this process was started.
static FIRST: OnceLock<rlim_t> = OnceLock::new();

/// Raises the soft limit of this process.
pub(crate) fn raise_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    FIRST.get_or_init(|| soft);
    // A lower limit suffices except for the largest steps.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES_MAX.min(hard)), hard);
}

/// Starts a program with the original soft limit, because srun propagates its own limits to tasks.
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
