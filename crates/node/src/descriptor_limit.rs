//! Limit of descriptors of agent and relay: as many as the hard limit allows, as they serve all users of the node.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit and returns the new soft limit.
pub(crate) fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    if let Err(e) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        log::warn!("the limit of open files stays at {soft}: {e}");
        return soft;
    }
    hard
}
