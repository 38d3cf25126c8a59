//! The door of a job: where steps follow each other, a step daemon takes requests there without the agent. A request goes
//! in one message, with srun's streams; by the same connection all that is to be said comes back.

use super::hand_over::Line;
use super::request;
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

/// Asks for a step at the door of its job, on the node whose agent has that address, if there is one.
pub(super) fn ask(address: &str, spec: &mut StepSpec) -> Option<Line> {
    let agent = Path::new(address.strip_prefix("unix:")?);
    let door = agent.with_file_name(format!("job-{}.door", spec.job));
    if !door.exists() {
        return None;
    }
    let others = spec.extra_env.len();
    request::add_addresses(spec, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let line = encoded(spec).and_then(|bytes| send(&door, &bytes));
    if line.is_none() {
        // To the agent it says which way it has come.
        spec.extra_env.truncate(others);
    }
    line
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

/// Sends it as soon as somebody may have been woken, with the standard streams.
fn send(door: &Path, bytes: &[u8]) -> Option<Line> {
    let line = UnixStream::connect(door).ok()?;
    let with = [ControlMessage::ScmRights(&[0, 1, 2])];
    let (slices, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_NOSIGNAL);
    let sent = sendmsg::<()>(line.as_raw_fd(), &slices, &with, flags, None).ok()?;
    // What is left goes when there is room for it.
    (&line).write_all(&bytes[sent..]).ok()?;
    Some(Line::new(AgentStream::Unix(line)))
}

/// The step that a daemon has made of the request; nothing if the agent is to be asked.
///
/// # Errors
/// Whoever had the request is gone.
pub(super) fn answer(line: &mut Line) -> io::Result<Option<StepCreated>> {
    match line.next()? {
        FromStepd::Created(created) => Ok(Some(*created)),
        FromStepd::Elsewhere => Ok(None),
        other => Err(io::Error::other(format!("unexpected word {other:.60?}"))),
    }
}
