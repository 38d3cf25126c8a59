//! The PMIx host as a program: the step daemon forks, becomes the job's user and executes its own file again under
//! [`HOST_NAME`]. libpmix loads what the user's configuration names, so its process must hold nothing of root's or of
//! other users. Therefore it gets a new image, an environment made from the site's settings, and only the descriptors
//! below. Its order comes in a memory file.

use super::hints;
use crate::role::{self, HOST_NAME, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_node_core::messages::{PmixOrder, StepOrder};
use muster_pmix::pmi::PmiSetup;
use muster_pmix::{Endpoints, HostSetup};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Variables of the launcher's environment, which the agent made, that concern libraries of the site and messages.
const INHERITED: [&str; 4] = ["TZ", "RUST_BACKTRACE", "MUSTER_PMIX_LIB", "MUSTER_UCX_LIB"];

/// Bytes of the host's standard error that are logged in one call.
const LOGGED_MAX: usize = 4 << 10;

/// The step that a host serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
enum ServedApis {
    #[n(0)]
    Pmi,
    #[n(1)]
    Pmix,
    #[n(2)]
    Both,
}

/// The order that a host receives at its start.
#[derive(Clone, Debug, Encode, Decode)]
struct HostOrder {
    /// `JOB.STEP`, for messages.
    #[n(0)]
    step: String,
    #[n(1)]
    served: ServedApis,
    #[n(2)]
    setup: HostSetup,
    /// The working directory of spawned steps that name none.
    #[n(3)]
    work_dir: String,
    /// Address of the listener, if there is one.
    #[n(4)]
    address: Option<String>,
    /// Sockets of tasks.
    #[n(5)]
    sockets: u32,
}

/// The step daemon's record of a host that it has started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) errors: Errors,
}

/// Starts a host. `place` names this node's spool directory, for `ps`.
pub(super) fn start(
    (order, pmix, place): (&StepOrder, &PmixOrder, &str),
    setup: HostSetup,
    listener: Option<&TcpListener>,
    control: &UnixStream,
    sockets: &[UnixStream],
) -> io::Result<Started> {
    let step = format!("{}.{}", order.attempt.job, order.launch.step);
    let address = listener.map(TcpListener::local_addr).transpose()?;
    let host_order = HostOrder {
        step: step.clone(),
        served: match (pmix.pmi, pmix.any) {
            (true, _) => ServedApis::Pmi,
            (false, true) => ServedApis::Both,
            (false, false) => ServedApis::Pmix,
        },
        setup,
        work_dir: order.launch.spec.work_dir.clone(),
        address: address.map(|a| a.to_string()),
        sockets: u32::try_from(sockets.len()).unwrap_or(u32::MAX),
    };
    let (errors, errors_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    // The socket to the step daemon, the listener, if there is one, and the sockets of the tasks.
    let mut kept = vec![control.as_raw_fd()];
    kept.extend(listener.map(AsRawFd::as_raw_fd));
    kept.extend(sockets.iter().map(AsRawFd::as_raw_fd));
    let pid = Start {
        words: &[HOST_NAME, place, &step],
        environment: environment(pmix),
        user: &order.user,
        order: minicbor::to_vec(&host_order).expect("writing to memory cannot fail"),
        errors: Some(errors_writer.as_raw_fd()),
        is_untraceable: false,
        kept,
        outlives: false,
        namespace: None,
    }
    .start()?;
    let pipe = File::from(errors);
    Ok(Started {
        pid,
        errors: Errors { step, pipe },
    })
}

/// The environment of a host: nothing of a user's.
fn environment(pmix: &PmixOrder) -> Vec<CString> {
    let inherited = INHERITED.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(((*name).to_owned(), value))
    });
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let of_site = pmix.env.iter().filter_map(|v| v.split_once('='));
    let all: BTreeMap<String, String> = inherited
        .chain(hints::of_host(pmix).map(own))
        .chain(of_site.map(own))
        .collect();
    all.into_iter()
        .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
        .collect()
}

/// The standard error of a host. The host runs as the user, so it has no access to the node's log: the daemon logs
/// its output, up to a limit.
#[derive(Debug)]
pub(super) struct Errors {
    step: String,
    pipe: File,
}

impl Errors {
    /// The standard error of a host that writes nothing.
    #[cfg(test)]
    pub(super) fn none() -> Errors {
        Errors {
            step: String::new(),
            pipe: File::open("/dev/null").expect("it is always there"),
        }
    }

    /// Logs the output that has arrived.
    pub(super) fn log(&mut self) {
        let mut bytes = [0; LOGGED_MAX];
        let length = match self.pipe.read(&mut bytes) {
            Ok(length) if length > 0 => length,
            _ => return,
        };
        for line in String::from_utf8_lossy(&bytes[..length]).lines() {
            let line: String = line.chars().filter(|c| !c.is_control()).collect();
            crate::stepd_log::line(&format!("PMIx host of step {}: {line}", self.step));
        }
    }
}

/// Runs a PMIx host: the program that [`HOST_NAME`] stands for.
pub fn pmix_host_main() -> ExitCode {
    sys::set_name(c"muster-pmix");
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{HOST_NAME}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    sys::block_signals();
    let order: HostOrder = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
    let mut numbers = role::FIRST_FD..;
    let mut next = || role::take_descriptor(numbers.next().unwrap_or(-1));
    let control = next()?.into();
    let listener = match order.address {
        Some(address) => Some((TcpListener::from(next()?), address)),
        None => None,
    };
    let sockets = (0..order.sockets).map(|_| next().map(UnixStream::from));
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let ends = Endpoints { control, listener };
    let setup = order.setup;
    let pmi = PmiSetup {
        name: setup.nspace.clone(),
        tasks: setup.tasks.clone(),
        position: setup.position,
        universe: setup.universe,
        key: setup.key.clone(),
        job: setup.job,
        dir: setup.dir.clone(),
        env: setup.env.clone(),
        work_dir: order.work_dir,
    };
    match order.served {
        ServedApis::Pmi => muster_pmix::pmi::run(pmi, ends, sockets),
        ServedApis::Pmix => muster_pmix::run(setup, ends, None),
        ServedApis::Both => muster_pmix::run(setup, ends, Some((pmi, sockets))),
    }
}
