//! The start of a step daemon. The launcher executes its own file again under [`STEPD_NAME`]: a daemon has nothing of the
//! launcher's memory, which holds the environments and keys of other jobs. Its order comes in a memory file; beside that it
//! has only the descriptors that the order names.

use super::executor::StepdConnections;
use crate::cgroup::steps::JobGroups;
use crate::descriptors::SrunStdio;
use crate::failure::end_at_panic;
use crate::role::{self, STEPD_NAME};
use crate::sys;
use muster_node_core::messages::FirstOrder;
use muster_node_core::stepd::StepdSetup;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

/// Time that a daemon waits for the streams of a direct step, which the agent sends when it learns that the daemon is
/// there.
const STREAMS_WAIT: Duration = Duration::from_secs(20);

/// Runs a step daemon: the program that [`STEPD_NAME`] stands for. Does not return unless it cannot begin.
pub fn stepd_main() -> ExitCode {
    let Err(e) = begin();
    eprintln!("{STEPD_NAME}: {e}");
    ExitCode::FAILURE
}

fn begin() -> io::Result<std::convert::Infallible> {
    sys::set_undumpable()?;
    sys::set_name(c"muster-stepd");
    end_at_panic();
    let order: FirstOrder = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
    let mut numbers = role::FIRST_FD..;
    let mut next = || role::take_descriptor(numbers.next().unwrap_or(-1));
    let (listener, launcher) = (UnixListener::from(next()?), UnixStream::from(next()?));
    let wire = match order.has_wire {
        true => Some(TcpListener::from(next()?)),
        false => None,
    };
    let agent = match order.has_agent {
        true => Some(UnixStream::from(next()?)),
        false => None,
    };
    let srun = match (order.step.order.direct, &agent) {
        (true, Some(agent)) => Some(SrunStdio::wait(agent, STREAMS_WAIT)?),
        (true, None) => return Err(io::Error::other("there is no agent to send streams")),
        (false, _) => None,
    };
    let groups = order.groups.map(JobGroups::open).transpose()?;
    sys::set_first_limits(order.first_limits);
    let setup = StepdSetup {
        node: order.node,
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        attempt: order.step.order.attempt,
        bounds: order.bounds,
        spool: order.spool,
    };
    let ends = StepdConnections {
        listener,
        launcher,
        agent,
        wire,
        groups,
    };
    super::run(setup, ends, order.step, order.dirs, srun)
}
