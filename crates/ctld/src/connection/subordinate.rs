//! Connections of users who are turned away: uids that are a user namespace's (subuid(5)), and accounts for which the host that names
//! them is not believed.

use muster_closer::passed;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::Response;
use muster_proto::frame;
use tokio::net::UnixStream;

/// Turns away a user who is one of a user namespace's: each of those would have jobs, limits and priorities of its own.
pub(super) fn refuse(stream: UnixStream, (uid, charged): (u32, u32), refuses_descriptors: bool) {
    let why = format!(
        "uid {uid} has no account, and is a user namespace's (/etc/subuid): run the command outside of that, as the user"
    );
    turn_away(stream, charged, refuses_descriptors, why);
}

/// Says why, and closes the connection.
pub(super) fn turn_away(stream: UnixStream, charged: u32, refuses_descriptors: bool, why: String) {
    let refusal = Refusal::new(RefusalCode::AccessDenied, why);
    // A new socket takes as much.
    let _ = stream.try_write(&frame::encode(&Response::Refused(refusal)));
    if let (Ok(stream), false) = (stream.into_std(), refuses_descriptors) {
        passed::close(charged, stream.into());
    }
}
