//! The controller's sockets, and what comes from other hosts. One thread serves all connections; the work is done by the writer, the replica and the accounting
//! reader.

use crate::connection;
use crate::executor::Executor;
use crate::failure;
use crate::network::NetworkArrival;
use crate::peer::{Origin, Peer};
use crate::quota::Share;
use crate::shared::Shared;
use crate::watchdog::ThreadActivity;
use log::error;
use muster_closer::passed;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::Response;
use muster_proto::frame;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Interval at which the event loop shows that it goes round.
const BEAT: Duration = Duration::from_secs(1);

/// The peer of a socket of this host, from the kernel.
fn local_peer(stream: &UnixStream) -> Option<Peer> {
    let cred = stream.peer_cred().ok()?;
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok());
    Some(Peer {
        uid: cred.uid(),
        gid: cred.gid(),
        pid: pid.unwrap_or(0),
    })
}

/// The client's share of the user's quota. A client with too many connections is refused with a message.
fn admit(shared: &Shared, uid: u32, stream: &UnixStream) -> Option<Share> {
    // Agents are root's or SlurmUser's.
    if uid == 0 || shared.admins.borrow().contains(&uid) {
        return Some(shared.users.unlimited());
    }
    match shared.users.connect(uid) {
        Ok(share) => Some(share),
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
fn close(shared: &Shared, uid: u32, stream: UnixStream) {
    if let Ok(stream) = stream.into_std()
        && !shared.refuses_descriptors
    {
        passed::close(shared.users.charged(uid), stream.into());
    }
}

/// The next client, from this host or another.
async fn next(
    users: &UnixListener,
    daemons: &UnixListener,
    network: &mut Option<mpsc::Receiver<NetworkArrival>>,
) -> io::Result<Option<(UnixStream, Peer, Origin)>> {
    let (stream, _) = tokio::select! {
        // A daemon that waits here comes first. There is one connection of each agent.
        biased;
        daemon = daemons.accept() => daemon?,
        Some(arrival) = arrival(network) => {
            let stream = UnixStream::from_std(arrival.stream)?;
            return Ok(Some((stream, arrival.peer, arrival.origin)));
        }
        user = users.accept() => user?,
    };
    let peer = local_peer(&stream);
    Ok(peer.map(|peer| (stream, peer, Origin::default())))
}

/// The next connection from another host.
async fn arrival(network: &mut Option<mpsc::Receiver<NetworkArrival>>) -> Option<NetworkArrival> {
    match network {
        Some(arrivals) => arrivals.recv().await,
        None => None,
    }
}

/// Accepts connections until it is stopped: of users, of daemons, for which root and SlurmUser have a socket of their own, and
/// of both from other hosts.
pub(crate) async fn accept(
    shared: Rc<Shared>,
    users: UnixListener,
    daemons: UnixListener,
    mut network: Option<mpsc::Receiver<NetworkArrival>>,
) {
    let waiter = Rc::clone(&shared);
    failure::spawn_essential_task("unheld allocations", async move {
        waiter.give_up_unheld().await;
        std::future::pending().await
    });
    let server = Arc::clone(&shared.pulses.server);
    failure::spawn_essential_task("beat", async move {
        loop {
            server.begin(ThreadActivity::Serving);
            tokio::time::sleep(BEAT).await;
        }
    });
    // Not in what connections share: they would keep each other.
    let executor = Rc::new(Executor::default());
    let running = Rc::clone(&executor);
    let run = async move { running.run().await };
    let mut running = tokio::task::spawn_local(tokio::task::unconstrained(run));
    loop {
        tokio::select! {
            ended = &mut running => failure::end_process(&format!("no user is served any more: {ended:?}")),
            () = shared.stopped.notified() => return,
            accepted = next(&users, &daemons, &mut network) => match accepted {
                Ok(None) => {}
                Ok(Some((stream, who, origin))) => {
                    let Some(share) = admit(&shared, who.uid, &stream) else {
                        close(&shared, who.uid, stream);
                        continue;
                    };
                    let (shared, uid) = (Rc::clone(&shared), share.uid());
                    let serve = async move {
                        shared.stats.connections.fetch_add(1, Relaxed);
                        connection::serve(Rc::clone(&shared), stream, (who, origin), share).await;
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
