//! The step socket of a job, on which a step daemon with a lease accepts requests without the agent. A request is sent in one
//! message, with srun's streams; all answers come back on the same connection.

use super::request;
use super::stdio_passing::StepdChannel;
use crate::submit::agent::AgentStream;
use muster_proto::frame;
use muster_proto::step::{AgentRequest, FromStepd, StepCreated, StepSpec};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A longer request is the agent's.
const REQUEST_MAX: usize = 64 << 10;

/// Asks for a step on the step socket of its job, next to the agent's socket, if there is one.
pub(super) fn ask(address: &str, spec: &mut StepSpec) -> Option<StepdChannel> {
    let agent = Path::new(address.strip_prefix("unix:")?);
    let socket = agent.with_file_name(format!("job-{}.door", spec.job));
    if !socket.exists() {
        return None;
    }
    let others = spec.extra_env.len();
    request::add_addresses(spec, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let channel = encoded(spec).and_then(|bytes| send(&socket, &bytes));
    if channel.is_none() {
        // A request to the agent has the addresses of that connection instead.
        spec.extra_env.truncate(others);
    }
    channel
}

/// The request, unless it is too long.
fn encoded(spec: &mut StepSpec) -> Option<Vec<u8>> {
    // Each variable says how long it is; what else there is is short.
    let variables = &spec.context.environment;
    let size = variables.size_bytes() + 2 * variables.count() + 1024;
    // It is lent, not copied.
    let request = AgentRequest::Create(Box::new(std::mem::take(spec)));
    let bytes = frame::encode_sized(&request, size);
    if let AgentRequest::Create(lent) = request {
        *spec = *lent;
    }
    Some(bytes).filter(|bytes| bytes.len() <= REQUEST_MAX)
}

/// Connects and sends the request at once, with the standard streams: the process that is woken finds it there.
fn send(socket: &Path, bytes: &[u8]) -> Option<StepdChannel> {
    let channel = UnixStream::connect(socket).ok()?;
    let with = [ControlMessage::ScmRights(&[0, 1, 2])];
    let (slices, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_NOSIGNAL);
    let sent = sendmsg::<()>(channel.as_raw_fd(), &slices, &with, flags, None).ok()?;
    // What is left goes when there is room for it.
    (&channel).write_all(&bytes[sent..]).ok()?;
    Some(StepdChannel::new(AgentStream::Unix(channel)))
}

/// The step that a daemon has made of the request; nothing if the agent is to be asked.
///
/// # Errors
/// The process that had the request is gone.
pub(super) fn answer(channel: &mut StepdChannel) -> io::Result<Option<StepCreated>> {
    match channel.next()? {
        FromStepd::Created(created) => Ok(Some(*created)),
        FromStepd::Redirect => Ok(None),
        other => Err(io::Error::other(format!("unexpected message {other:.60?}"))),
    }
}
