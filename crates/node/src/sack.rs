//! A process of slurmd's that holds the cluster's key of auth/slurm and only makes tokens with it
//! for the users of this host ([`muster_trust::sack`]). It runs as the supervisor's user, root,
//! because the key belongs to root or `SlurmUser`. It is a separate process because users
//! communicate with it, and the supervisor controls the node's processes.

use crate::failure;
use crate::options::AgentOptions;
use crate::role::{self, SACK_NAME, Start};
use crate::{sys, syscall_filter};
use anyhow::Context as _;
use minicbor::{Decode, Encode};
use muster_conf::{AuthMethod, Authentication};
use muster_node_core::messages::ProcessIdentity;
use muster_trust::node_key;
use muster_trust::sack::{SackServer, SackSettings, SackSocket, own_socket};
use muster_trust::slurm_key::KeyFiles;
use nix::unistd::{getegid, geteuid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A process that ends earlier than this counts as failed.
const LIFE_MIN: Duration = Duration::from_secs(10);
/// After this number of consecutive failures no other process is started.
const FAILURES_MAX: u32 = 5;

/// The order of the process.
#[derive(Debug, Encode, Decode)]
struct TokenOrder {
    #[n(0)]
    cluster: String,
    #[n(1)]
    key_dir: PathBuf,
    #[n(2)]
    slurm_uid: u32,
    #[n(3)]
    ttl_s: Option<u32>,
    #[n(4)]
    socket: PathBuf,
    #[n(5)]
    #[cbor(default)]
    node_key: PathBuf,
}

/// The process, as the supervisor knows it.
pub(crate) struct SackProcess {
    order: Vec<u8>,
    pid: Option<i32>,
    began: Instant,
    failures: u32,
}

impl SackProcess {
    /// Starts the process if users of this host need tokens: the controller is on another host, and
    /// not everybody may read the key. Its lines go to `log`.
    pub(crate) fn start(
        options: &AgentOptions,
        log: Option<&File>,
    ) -> io::Result<Option<SackProcess>> {
        let network = &options.network;
        let (kind, info) = (network.auth_type.as_deref(), network.auth_info.as_deref());
        let authentication = Authentication::parse(kind, info, &network.key_dir);
        let has_own_key = network.node_key.join(node_key::FILE).exists();
        let is_needed = (authentication.method == AuthMethod::Slurm || has_own_key)
            && !network.controllers.is_empty()
            && geteuid().is_root();
        if !is_needed {
            return Ok(None);
        }
        let order = TokenOrder {
            cluster: options.cluster.clone(),
            key_dir: authentication.key_dir,
            slurm_uid: network.receiver_uid,
            ttl_s: authentication.ttl_s,
            socket: own_socket(false),
            node_key: network.node_key.clone(),
        };
        let mut process = SackProcess {
            order: minicbor::to_vec(&order).map_err(io::Error::other)?,
            pid: None,
            began: Instant::now(),
            failures: 0,
        };
        process.execute(log)?;
        Ok(Some(process))
    }

    fn execute(&mut self, log: Option<&File>) -> io::Result<()> {
        let start = Start {
            words: &[SACK_NAME],
            environment: Vec::new(),
            user: &ProcessIdentity {
                uid: geteuid().as_raw(),
                gid: getegid().as_raw(),
                ..ProcessIdentity::default()
            },
            order: self.order.clone(),
            errors: Some(log.map_or(libc::STDERR_FILENO, File::as_raw_fd)),
            is_untraceable: false,
            kept: Vec::new(),
            outlives: false,
            namespace: None,
        };
        let pid = start.start()?;
        self.began = Instant::now();
        self.pid = Some(pid);
        log::info!("tokens of auth/slurm are made by process {pid}");
        Ok(())
    }

    /// Starts the process again, if it is the one that has ended.
    pub(crate) fn ended(&mut self, pid: i32, log: Option<&File>) {
        if self.pid != Some(pid) {
            return;
        }
        self.pid = None;
        self.failures = match self.began.elapsed() < LIFE_MIN {
            true => self.failures + 1,
            false => 0,
        };
        if self.failures >= FAILURES_MAX {
            log::error!(
                "the process that makes tokens of auth/slurm for users of this host has failed {FAILURES_MAX} times, and is not started again: \
                 commands here need it; restart slurmd"
            );
            return;
        }
        log::error!("the process that makes tokens of auth/slurm has ended; starting another");
        if let Err(e) = self.execute(log) {
            log::error!("it cannot be started: {e}");
        }
    }
}

/// Runs as that process.
pub fn sack_main() -> ExitCode {
    failure::end_on_panic();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{SACK_NAME}: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    sys::set_undumpable().context("this process cannot be protected from others")?;
    let order: TokenOrder = minicbor::decode(&role::read_order()?).context("its order")?;
    let place = order.socket.display().to_string();
    // Another node of this host, or a sackd, may serve the users.
    let socket = SackSocket::open(&order.socket)
        .with_context(|| format!("the socket {place} cannot be made"))?;
    let settings = SackSettings {
        cluster: order.cluster,
        files: KeyFiles::of_directory(&order.key_dir),
        slurm_uid: order.slurm_uid,
        ttl_s: order.ttl_s,
        node_key: Some(order.node_key).filter(|path| !path.as_os_str().is_empty()),
        log: |line| eprintln!("{SACK_NAME}: {line}"),
    };
    serve(SackServer::new(settings, socket), never()?)
}

/// Serves users until `until` becomes readable.
///
/// # Errors
/// The socket is broken.
pub fn serve(mut server: SackServer, until: OwnedFd) -> anyhow::Result<()> {
    if let Err(e) = syscall_filter::apply() {
        eprintln!("cannot install the filter of system calls: {e:#}");
    }
    while server.serve_once(until.as_fd())? {}
    Ok(())
}

/// Nothing arrives on this descriptor.
fn never() -> io::Result<OwnedFd> {
    let (reader, writer) = nix::unistd::pipe()?;
    std::mem::forget(writer);
    Ok(reader)
}
