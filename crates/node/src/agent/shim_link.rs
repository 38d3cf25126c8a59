//! The connection to the shim, which is started whenever it is not there.

use super::socket::{Socket, read_frames};
use super::{Event, OfUser, closing, descriptor_limit};
use crate::options::AgentOptions;
use crate::shim::{SHIM_NAME, attach_frame, socket_path};
use anyhow::Context as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc;

/// Wait before the next try when a shim cannot be started.
const RETRY: Duration = Duration::from_secs(1);

/// How the C library keeps memory for the shim and its daemons, which have one thread each: what is given back is at hand for
/// the next of its size. Otherwise no more than seven pieces of a size are, and the others are joined with their neighbours
/// again and again: a quarter of a step daemon's own time for a short step. (Other C libraries do not read it.)
const HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");

/// Starts the shim if none listens; returns once one does.
pub(super) fn ensure_shim(options: &AgentOptions) -> anyhow::Result<()> {
    let socket = socket_path(&options.spool_dir);
    if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        return Ok(());
    }
    let own = Path::new("/proc/self/exe");
    let program = options.shim_program.as_deref().unwrap_or(own);
    // Nothing of the operator's shell stays with a process that outlives the agent; messages need the time zone, and hosts
    // of MPI steps the libraries that the site names.
    let kept = ["TZ", "RUST_BACKTRACE", "MUSTER_PMIX_LIB", "MUSTER_UCX_LIB"];
    let kept = kept.map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program);
    command
        .arg0(SHIM_NAME)
        .env_clear()
        .envs(kept.into_iter().flatten())
        .env(HEAP.0, HEAP.1)
        .arg(&options.spool_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir("/");
    let output = descriptor_limit::under_first_limit(|| command.spawn())
        .and_then(Child::wait_with_output)
        .with_context(|| format!("starting {} as {SHIM_NAME}", program.display()))?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Keeps the connection up for ever.
pub(super) fn keep(options: AgentOptions, events: mpsc::UnboundedSender<Event>) {
    tokio::spawn(async move {
        let socket = socket_path(&options.spool_dir);
        loop {
            match Socket::connect(&socket).await {
                Ok(link) if link.write_all(&attach_frame(&options)).await.is_ok() => {
                    let outlet = spawn_writer(link.clone());
                    let _ = events.send(Event::ShimUp(outlet));
                    let ended = read_frames(link, |message| {
                        let _ = events.send(Event::Shim(Box::new(message)));
                    })
                    .await;
                    log::error!("the connection to the shim ended: {ended}");
                    let _ = events.send(Event::ShimLost);
                }
                Ok(_) => {}
                Err(e) => log::warn!("{}: {e}; a shim is started", socket.display()),
            }
            let starting = options.clone();
            let started = tokio::task::spawn_blocking(move || ensure_shim(&starting)).await;
            if let Ok(Err(e)) = started {
                log::error!("the shim cannot be started: {e:#}");
                tokio::time::sleep(RETRY).await;
            }
        }
    });
}

/// Writes what comes into the outlet, and the descriptors that go with it, until either end is gone.
fn spawn_writer(socket: Socket) -> super::ShimOutlet {
    let (outlet, mut inbox) = mpsc::unbounded_channel::<(Vec<u8>, Option<OfUser>)>();
    tokio::spawn(async move {
        while let Some((bytes, of_user)) = inbox.recv().await {
            let with = of_user.as_ref().map(|of_user| &of_user.with);
            let written = socket.write_all_with(&bytes, with).await;
            if let Some(OfUser { uid, with }) = of_user {
                closing::close_order(uid, with);
            }
            if written.is_err() {
                return;
            }
        }
    });
    outlet
}
