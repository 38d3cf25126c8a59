//! The sockets at which the controller is reached on its own host.

use anyhow::{Context as _, Result};
use muster_proto::client::daemon_socket;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Connections that wait to be accepted, of users.
const BACKLOG: i32 = 512;
/// Backlog of agents, of which each has one: as many as the kernel allows by default (net.core.somaxconn).
const DAEMONS_BACKLOG: i32 = 4096;

/// The sockets of the controller.
pub(crate) struct Listeners {
    pub(crate) users: std::os::unix::net::UnixListener,
    /// For agents, in a queue of their own: nobody but root and SlurmUser can connect there.
    pub(crate) daemons: std::os::unix::net::UnixListener,
}

impl Listeners {
    /// Makes both.
    ///
    /// # Errors
    /// One cannot be made.
    pub(crate) fn open(socket: &Path) -> Result<Listeners> {
        let users = listen(socket, BACKLOG)?;
        let path = daemon_socket(socket);
        let daemons = listen(&path, DAEMONS_BACKLOG)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot close {} to users", path.display()))?;
        Ok(Listeners { users, daemons })
    }

    /// Has the kernel refuse descriptors at both: connections are read as if none came then, and an agent may be somebody
    /// else's by now.
    pub(crate) fn refuse_descriptors(&self) -> nix::Result<()> {
        muster_closer::refuse_descriptors(&self.users)?;
        muster_closer::refuse_descriptors(&self.daemons)
    }
}

fn listen(socket: &Path, backlog: i32) -> Result<std::os::unix::net::UnixListener> {
    // The journal's lock is held: whatever socket is there belongs to a controller that is gone.
    let _ = fs::remove_file(socket);
    if let Some(dir) = socket.parent() {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    // Everybody waits for all who are in this queue. Beyond it each process waits in its own call, one connection of each
    // thread, and is let in as it came.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(backlog)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// The sockets of daemons took them, and the event loop closed what came by them: it waited as long as a sender wanted.
    #[test]
    fn neither_socket_takes_descriptors() {
        let dir = std::env::temp_dir().join(format!("muster-listeners-{}", std::process::id()));
        let socket = dir.join("socket");
        let listeners = Listeners::open(&socket).unwrap();
        if let Err(e) = listeners.refuse_descriptors() {
            eprintln!("this kernel has no SO_PASSRIGHTS ({e}); this test looked at nothing");
            return;
        }
        for path in [daemon_socket(&socket), socket] {
            let client = UnixStream::connect(&path).unwrap();
            let rights = [client.as_raw_fd()];
            let control = [ControlMessage::ScmRights(&rights)];
            let bytes = [IoSlice::new(b"x")];
            let flags = MsgFlags::empty();
            let sent = sendmsg::<UnixAddr>(client.as_raw_fd(), &bytes, &control, flags, None);
            assert_eq!(sent, Err(nix::errno::Errno::EPERM), "{}", path.display());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
