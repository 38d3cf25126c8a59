//! The connection to the launcher, which the supervisor makes, and starts the launcher whenever it is not there.

use super::Input;
use super::socket::{Socket, read_frames};
use super::supervisor_link::Dialer;
use crate::descriptors::OrderFds;
use muster_node_core::agent::AgentEvent;
use std::time::Duration;
use tokio::sync::mpsc;

/// Wait before the next try when a launcher cannot be started.
const RETRY: Duration = Duration::from_secs(1);

/// Bytes for the launcher, with the descriptors that go with the last message of them.
pub(super) type LauncherOutlet = mpsc::UnboundedSender<(Vec<u8>, OrderFds)>;

/// Keeps the connection up for ever.
pub(super) fn keep(dialer: Dialer, inputs: mpsc::UnboundedSender<Input>) {
    tokio::spawn(async move {
        loop {
            match dialer.connect_launcher().await {
                Ok(link) => {
                    let outlet = spawn_writer(link.clone());
                    let _ = inputs.send(Input::LauncherUp(outlet));
                    let ended = read_frames(link, |event| {
                        let event = AgentEvent::Launcher(Box::new(event));
                        let _ = inputs.send(Input::Event(event));
                    })
                    .await;
                    log::error!("the connection to the launcher ended: {ended}");
                    let _ = inputs.send(Input::LauncherLost);
                }
                Err(e) => {
                    log::error!("there is no connection to the launcher: {e}");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    });
}

/// Writes what comes into the outlet, and the descriptors that go with it, until either end is gone.
fn spawn_writer(socket: Socket) -> LauncherOutlet {
    let (outlet, mut inbox) = mpsc::unbounded_channel::<(Vec<u8>, OrderFds)>();
    tokio::spawn(async move {
        while let Some((bytes, with)) = inbox.recv().await {
            if socket.write_all_with(&bytes, Some(&with)).await.is_err() {
                return;
            }
        }
    });
    outlet
}
