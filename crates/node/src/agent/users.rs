//! Groups of users, from the system's user database. Looked up before a launch, so that no forked child has to.

use nix::unistd::{Gid, getgrouplist};
use std::collections::HashMap;
use std::ffi::CString;
use std::time::{Duration, Instant};

/// How long an answer is good: a burst of jobs asks once, a change is seen soon.
const KEEP: Duration = Duration::from_secs(10);

/// Answers of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Users {
    known: HashMap<(String, u32), (Instant, Vec<u32>)>,
}

impl Users {
    /// All groups of a user, the primary one included. One who is not in the database has only that.
    pub(super) fn groups(&mut self, user: &str, gid: u32) -> Vec<u32> {
        let key = (user.to_owned(), gid);
        if let Some((at, groups)) = self.known.get(&key)
            && at.elapsed() < KEEP
        {
            return groups.clone();
        }
        let groups = CString::new(user)
            .ok()
            .and_then(|name| getgrouplist(&name, Gid::from_raw(gid)).ok())
            .map_or_else(
                || vec![gid],
                |all| all.into_iter().map(Gid::as_raw).collect(),
            );
        self.known.retain(|_, (at, _)| at.elapsed() < KEEP);
        self.known.insert(key, (Instant::now(), groups.clone()));
        groups
    }
}
