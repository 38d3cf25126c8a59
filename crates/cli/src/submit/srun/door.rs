//! The door of a job: where steps follow each other, a step daemon takes requests there without the agent. A request goes
//! in one message, with srun's streams and the far end of a connection, by which all that is to be said comes back.

use super::hand_over::Line;
use super::request;
use crate::submit::agent::AgentStream;
use muster_proto::frame;
use muster_proto::step::{AgentRequest, FromStepd, StepCreated, StepSpec};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;

/// A longer request is the agent's.
const REQUEST_MAX: usize = 64 << 10;

/// Asks for a step at the door of its job, on the node whose agent has that address, if there is one.
pub(super) fn ask(address: &str, spec: &mut StepSpec) -> Option<Line> {
    let agent = Path::new(address.strip_prefix("unix:")?);
    let door = UnixDatagram::unbound().ok()?;
    let path = agent.with_file_name(format!("job-{}.door", spec.job));
    door.connect(path).ok()?;
    let (near, far) = UnixStream::pair().ok()?;
    let others = spec.extra_env.len();
    request::add_addresses(spec, IpAddr::V4(Ipv4Addr::LOCALHOST));
    // Each variable says how long it is; what else there is is short.
    let variables = &spec.context.environment;
    let size = variables.size_bytes() + 2 * variables.count() + 1024;
    // It is lent, not copied.
    let request = AgentRequest::Create(Box::new(std::mem::take(spec)));
    let bytes = frame::encode_sized(&request, size);
    if let AgentRequest::Create(lent) = request {
        *spec = *lent;
    }
    let handed = [0, 1, 2, far.as_raw_fd()];
    let with = [ControlMessage::ScmRights(&handed)];
    let (slices, flags) = ([IoSlice::new(&bytes)], MsgFlags::MSG_NOSIGNAL);
    let send = || sendmsg::<()>(door.as_raw_fd(), &slices, &with, flags, None);
    if bytes.len() > REQUEST_MAX || send().is_err() {
        // To the agent it says which way it has come.
        spec.extra_env.truncate(others);
        return None;
    }
    Some(Line::new(AgentStream::Unix(near)))
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
