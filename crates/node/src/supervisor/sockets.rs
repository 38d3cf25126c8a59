//! The agent's socket in the spool directory, which is root's: the supervisor creates it and the
//! agent serves it. A client that connects sees the credentials of the process that created it,
//! which are root's.

use crate::info;
use anyhow::Context as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The agent's socket, which exists as long as this value.
#[derive(Debug)]
pub(super) struct NodeSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl NodeSocket {
    /// Creates the socket. Everybody may connect, and waits until an agent accepts.
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
