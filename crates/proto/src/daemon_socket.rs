//! The controller's socket for the agents of nodes.

use std::path::{Path, PathBuf};

/// Where a controller with this socket for users has another one for the agents of nodes, which wait behind no user there.
pub fn daemon_socket(controller_socket: &Path) -> PathBuf {
    controller_socket.with_file_name("daemons")
}
