//! How many descriptors the agent may have: as many as the hard limit allows, as it serves all users of the node. What it
//! starts gets the soft limit that the agent was started with; the hard limit stays as it was for all.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::{Mutex, PoisonError};

/// The soft limit before it was raised.
static BEFORE: Mutex<Option<u64>> = Mutex::new(None);

/// Raises the soft limit to the hard one; gives what it is then.
pub(super) fn raise() -> u64 {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    if let Err(e) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        log::warn!("the limit of open files stays at {soft}: {e}");
        return soft;
    }
    before.get_or_insert(soft);
    hard
}

/// Starts something under the limit from before.
pub(super) fn under_first_limit<T>(start: impl FnOnce() -> T) -> T {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = getrlimit(Resource::RLIMIT_NOFILE);
    let (Some(soft), Ok((raised, hard))) = (*before, now) else {
        return start();
    };
    // Nothing here goes above the hard limit, so that neither can fail.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    let started = start();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, raised, hard);
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_has_the_limit_from_before() {
        let limit = || getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let (_, hard) = limit();
        let soft = hard.min(4000);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert_eq!(raise(), hard);
        assert_eq!(limit(), (hard, hard));
        assert_eq!(under_first_limit(limit), (soft, hard));
        assert_eq!(limit(), (hard, hard));
    }
}
