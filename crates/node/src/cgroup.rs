//! Control groups of jobs. The launcher creates `muster/NODE/job_J` in each hierarchy that the site
//! uses, and scripts and step daemons begin in it ([`jobs`]); daemons create `step_S` below it for
//! their tasks ([`steps`]). A process joins its group before it executes anything of a user's, by a
//! descriptor opened before the fork, so none ever runs outside. Names of groups consist of
//! numbers, and each directory is opened from the one above it, so nothing that a user can create
//! is followed.
//!
//! Decisions about groups are made in [`muster_node_core::cgroup`].

mod group;
pub(crate) mod jobs;
mod machine;
pub(crate) mod steps;

pub use machine::{ControllerUse, uses};

use crate::sys::bare::{self, Errno};
use muster_node_core::cgroup::GroupUsage;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Combines the figures of groups in several hierarchies that have the same processes.
fn together<'g>(groups: impl Iterator<Item = &'g group::Group>) -> GroupUsage {
    groups
        .map(group::Group::usage)
        .fold(GroupUsage::default(), |a, b| GroupUsage {
            user_us: a.user_us.max(b.user_us),
            system_us: a.system_us.max(b.system_us),
            peak_kib: a.peak_kib.max(b.peak_kib),
        })
}

/// The groups that a child joins: their `cgroup.procs`, open for writing.
#[derive(Debug, Default)]
pub(crate) struct Entrances(Vec<OwnedFd>);

impl Entrances {
    /// In the child: joins the groups. Allocates no memory.
    ///
    /// # Errors
    /// The process did not join all of the groups.
    pub(crate) fn join(&self) -> Result<(), Errno> {
        let mut groups = self.0.iter();
        groups.try_for_each(|procs| bare::try_write(procs.as_raw_fd(), b"0").map(drop))
    }
}
