//! The connection to the shim, which the supervisor makes, and starts the shim whenever it is not there.

use super::socket::{Socket, read_frames};
use super::supervisor_link::Dialer;
use super::{Event, OfUser, closing};
use std::time::Duration;
use tokio::sync::mpsc;

/// Wait before the next try when a shim cannot be started.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the connection up for ever.
pub(super) fn keep(dialer: Dialer, events: mpsc::UnboundedSender<Event>) {
    tokio::spawn(async move {
        loop {
            match dialer.connect_launcher().await {
                Ok(link) => {
                    let outlet = spawn_writer(link.clone());
                    let _ = events.send(Event::ShimUp(outlet));
                    let ended = read_frames(link, |message| {
                        let _ = events.send(Event::Shim(Box::new(message)));
                    })
                    .await;
                    log::error!("the connection to the shim ended: {ended}");
                    let _ = events.send(Event::ShimLost);
                }
                Err(e) => {
                    log::error!("there is no connection to the shim: {e}");
                    tokio::time::sleep(RETRY).await;
                }
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
