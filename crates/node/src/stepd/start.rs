//! The start of a step daemon. The launcher executes its own file again under [`STEPD_NAME`]: a daemon has nothing of the
//! launcher's memory, which holds the environments and keys of other jobs. Its order comes in a memory file; beside that it
//! has only the descriptors that the order names.

use super::Setting;
use super::runtime::Confines;
use crate::descriptors::SrunStdio;
use crate::role;
use crate::sys;
use muster_node_core::messages::FirstOrder;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Name under which the binary's own executable is started as a step daemon.
pub const STEPD_NAME: &str = "muster-stepd";

/// How long a daemon waits for the streams of a direct step, which the agent sends when it learns that the daemon is there.
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
    crate::launcher::end_at_panic();
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
    sys::set_first_limits(order.first_limits);
    let setting = Setting {
        node: order.node,
        kill_wait: Duration::from_millis(order.step.kill_wait_ms.min(u32::MAX.into())),
        result: PathBuf::from(&order.step.result),
        dirs: order.dirs,
        kept: order.step.kept,
    };
    let (bounds, spool) = (order.bounds, order.spool);
    let order = order.step.order;
    let confines = Confines {
        run: order.run,
        bounds,
        spool,
    };
    let lines = (launcher, agent, confines);
    super::run(&order, &setting, listener, lines, wire, srun)
}
