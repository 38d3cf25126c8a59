//! The launcher's socket, and the first message on it.

use crate::options::AgentOptions;
use muster_node_core::messages::{AttachAgent, LauncherCommand, VERSIONS};
use std::path::{Path, PathBuf};

/// The socket of the launcher of a spool directory.
pub(crate) fn socket_path(spool: &Path) -> PathBuf {
    spool.join("shim.sock")
}

/// The first message on a connection to the launcher, before an agent gets the connection.
pub(crate) fn attach_frame(options: &AgentOptions) -> Vec<u8> {
    let attach = AttachAgent {
        node: options.name.clone(),
        cluster: options.cluster.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        claim: options.claim(),
        greeting: Some(VERSIONS.greeting()),
        conf: options.conf.clone(),
    };
    muster_proto::frame::encode(&LauncherCommand::Attach(Box::new(attach)))
}
