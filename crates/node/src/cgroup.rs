//! Control groups of jobs. The launcher makes `muster/NODE/job_J` in each hierarchy that the site uses and has scripts and step
//! daemons begin in it ([`jobs`]); daemons make `step_S` below it and have tasks begin there ([`steps`]). A process joins before it
//! executes anything of a user's, by a descriptor that was open before the fork, so none ever runs outside. Names of groups are
//! made of numbers, and each directory is opened from the one above it: nothing that a user can make is followed.
//!
//! What is decided about groups is in [`muster_node_core::cgroup`].

mod group;
pub(crate) mod jobs;
mod machine;
pub(crate) mod steps;

pub use machine::{ControllerUse, uses};

use crate::sys::bare::{self, Errno};
use muster_node_core::cgroup::GroupUsage;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// What groups of the same processes say in several hierarchies.
fn together<'g>(groups: impl Iterator<Item = &'g group::Group>) -> GroupUsage {
    groups
        .map(group::Group::usage)
        .fold(GroupUsage::default(), |a, b| GroupUsage {
            user_us: a.user_us.max(b.user_us),
            system_us: a.system_us.max(b.system_us),
            peak_kib: a.peak_kib.max(b.peak_kib),
        })
}

/// What a child joins: `cgroup.procs` of groups, open for writing.
#[derive(Debug, Default)]
pub(crate) struct Entrances(Vec<OwnedFd>);

impl Entrances {
    /// In the child: joins the groups. Allocates nothing.
    ///
    /// # Errors
    /// It is not in all of them.
    pub(crate) fn join(&self) -> Result<(), Errno> {
        let mut groups = self.0.iter();
        groups.try_for_each(|procs| bare::try_write(procs.as_raw_fd(), b"0").map(drop))
    }
}
