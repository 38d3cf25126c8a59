//! The controller's sockets. One thread serves all connections; the work is done by the writer, the replica and the accounting
//! reader.

use crate::connection::{self, Peer};
use crate::executor::Executor;
use crate::failure;
use crate::passed;
use crate::quota::Share;
use crate::shared::Shared;
use crate::watchdog::Doing;
use log::error;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::Response;
use muster_proto::frame;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// How often the event loop shows that it goes round.
const BEAT: Duration = Duration::from_secs(1);

/// The client, and its share of the user's quota. A client with too many connections is refused with a message.
fn admit(shared: &Shared, stream: &UnixStream) -> Option<(Peer, Share)> {
    let cred = stream.peer_cred().ok()?;
    let (uid, gid) = (cred.uid(), cred.gid());
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok());
    let peer = Peer {
        uid,
        gid,
        pid: pid.unwrap_or(0),
    };
    // Agents are root's or SlurmUser's.
    if uid == 0 || shared.admins.borrow().contains(&uid) {
        return Some((peer, shared.users.unlimited()));
    }
    match shared.users.connect(uid) {
        Ok(share) => Some((peer, share)),
        Err(over) => {
            shared.users.held_back(uid, &over, None);
            let refusal = Refusal::new(RefusalCode::Busy, over.to_string());
            // A new socket takes as much.
            let _ = stream.try_write(&frame::encode(&Response::Refused(refusal)));
            None
        }
    }
}

/// Closes a connection that is not served.
fn close(shared: &Shared, stream: UnixStream) {
    let uid = stream.peer_cred().map(|peer| peer.uid());
    if let (Ok(uid), Ok(stream)) = (uid, stream.into_std())
        && !shared.refuses_descriptors
    {
        passed::close(uid, stream.into());
    }
}

/// Accepts connections until it is stopped: of users, and of daemons, for which root and SlurmUser have a socket of their own.
pub(crate) async fn accept(shared: Rc<Shared>, users: UnixListener, daemons: UnixListener) {
    let waiter = Rc::clone(&shared);
    tokio::task::spawn_local(async move { waiter.give_up_unheld().await });
    let server = Arc::clone(&shared.pulses.server);
    tokio::task::spawn_local(async move {
        loop {
            server.begin(Doing::Serving);
            tokio::time::sleep(BEAT).await;
        }
    });
    // Not in what connections share: they would keep each other.
    let executor = Rc::new(Executor::default());
    let running = Rc::clone(&executor);
    let run = async move { running.run().await };
    let mut running = tokio::task::spawn_local(tokio::task::unconstrained(run));
    loop {
        let accepted = async {
            tokio::select! {
                // A daemon that waits here comes first. There is one connection of each agent.
                biased;
                daemon = daemons.accept() => daemon,
                user = users.accept() => user,
            }
        };
        tokio::select! {
            ended = &mut running => failure::end_process(&format!("no user is served any more: {ended:?}")),
            () = shared.stopped.notified() => return,
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    let Some((who, share)) = admit(&shared, &stream) else {
                        close(&shared, stream);
                        continue;
                    };
                    let (shared, uid) = (Rc::clone(&shared), share.uid());
                    let serve = async move {
                        shared.stats.connections.fetch_add(1, Relaxed);
                        connection::serve(Rc::clone(&shared), stream, who, share).await;
                        shared.stats.connections.fetch_sub(1, Relaxed);
                    };
                    match uid {
                        Some(uid) => executor.spawn(uid, serve),
                        None => drop(tokio::task::spawn_local(serve)),
                    }
                }
                Err(e) => {
                    // Out of file descriptors: connections that close make room; the backlog waits meanwhile.
                    error!("cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}
