//! The connection to the shim, which is started whenever it is not there.

use super::Event;
use crate::options::AgentOptions;
use crate::shim::{SHIM_NAME, socket_path};
use anyhow::Context as _;
use muster_proto::frame::Frames;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// Wait before the next try when a shim cannot be started.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the shim if none listens; returns once one does.
pub(super) fn ensure_shim(options: &AgentOptions) -> anyhow::Result<()> {
    let socket = socket_path(&options.spool_dir);
    if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        return Ok(());
    }
    let own = Path::new("/proc/self/exe");
    let program = options.shim_program.as_deref().unwrap_or(own);
    // Nothing of the operator's shell stays with a process that outlives the agent; messages need the time zone.
    let kept = ["TZ", "RUST_BACKTRACE"];
    let kept = kept.map(|name| Some((name, std::env::var_os(name)?)));
    let output = Command::new(program)
        .arg0(SHIM_NAME)
        .env_clear()
        .envs(kept.into_iter().flatten())
        .arg(&options.spool_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir("/")
        .output()
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
            match UnixStream::connect(&socket).await {
                Ok(stream) => {
                    let (reader, writer) = stream.into_split();
                    let outlet = spawn_writer(writer);
                    let _ = events.send(Event::ShimUp(outlet));
                    let ended = read_frames(reader, |message| {
                        let _ = events.send(Event::Shim(Box::new(message)));
                    })
                    .await;
                    log::error!("the connection to the shim ended: {ended}");
                    let _ = events.send(Event::ShimLost);
                }
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

/// Writes what comes into the outlet, until either end is gone.
pub(super) fn spawn_writer(mut writer: OwnedWriteHalf) -> super::Outlet {
    let (outlet, mut inbox) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        while let Some(mut bytes) = inbox.recv().await {
            while let Ok(more) = inbox.try_recv() {
                bytes.extend_from_slice(&more);
            }
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    outlet
}

/// Hands on every frame that comes, until the stream ends; gives why it did.
pub(super) async fn read_frames<T: for<'b> minicbor::Decode<'b, ()>>(
    mut reader: OwnedReadHalf,
    mut take: impl FnMut(T),
) -> String {
    let mut frames = Frames::default();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match reader.read(&mut chunk).await {
            Ok(0) => return "closed by the other side".to_owned(),
            Ok(n) => frames.push(&chunk[..n]),
            Err(e) => return e.to_string(),
        }
        loop {
            match frames.take() {
                Ok(Some(message)) => take(message),
                Ok(None) => break,
                Err(e) => return e.to_string(),
            }
        }
    }
}
