//! Sockets in the spool directory, which is root's: made by the supervisor, served by the agent. Whoever connects sees the
//! credentials of the process that made them, which is root's.

use crate::info;
use crate::standing::{is_job_door, job_door};
use anyhow::Context as _;
use muster_core::ids::JobId;
use nix::unistd::geteuid;
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Sockets of jobs that an agent may have at a time.
const JOB_SOCKETS_MAX: usize = 16_384;

/// The agent's, as long as this lives.
#[derive(Debug)]
pub(super) struct NodeSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl NodeSocket {
    /// Makes it. Everybody may connect, and waits until an agent accepts.
    pub(super) fn open(spool: &Path) -> anyhow::Result<NodeSocket> {
        let path = info::agent_socket(spool);
        let make = || {
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            Ok::<_, io::Error>(listener)
        };
        let listener = make().with_context(|| path.display().to_string())?;
        Ok(NodeSocket { listener, path })
    }

    /// The number of its descriptor.
    pub(super) fn number(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

impl Drop for NodeSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Those at which srun asks for further steps of a job.
#[derive(Debug)]
pub(super) struct JobSockets {
    spool: PathBuf,
    open: HashSet<JobId>,
}

impl JobSockets {
    pub(super) fn new(spool: &Path) -> JobSockets {
        JobSockets {
            spool: spool.to_owned(),
            open: HashSet::new(),
        }
    }

    /// Only the user may connect. The agent says who that is, and its word opens nothing: the name is made of the job's
    /// number in a directory of root's; the owner of a socket cannot remove or rename it there; and the step daemon that
    /// accepts compares the kernel's word of who has connected with the user of its own job (`stepd::standing`).
    pub(super) fn open(&mut self, job: JobId, uid: u32) -> io::Result<OwnedFd> {
        if self.open.len() >= JOB_SOCKETS_MAX && !self.open.contains(&job) {
            return Err(io::Error::other("there are too many sockets of jobs"));
        }
        let path = job_door(&self.spool, job);
        let _ = fs::remove_file(&path);
        let socket = UnixListener::bind(&path)?;
        self.open.insert(job);
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if geteuid().is_root() {
            chown(&path, Some(uid), None)?;
        }
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }

    /// Removes it.
    pub(super) fn close(&mut self, job: JobId) {
        if self.open.remove(&job) {
            let _ = fs::remove_file(job_door(&self.spool, job));
        }
    }
}

impl Drop for JobSockets {
    fn drop(&mut self) {
        for job in self.open.drain() {
            let _ = fs::remove_file(job_door(&self.spool, job));
        }
    }
}

/// Removes sockets of jobs that an earlier supervisor has left.
pub(super) fn remove_left(spool: &Path) {
    let files = fs::read_dir(spool).into_iter().flatten().flatten();
    for file in files {
        if file.file_name().to_str().is_some_and(is_job_door) {
            let _ = fs::remove_file(file.path());
        }
    }
}
