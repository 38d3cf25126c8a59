//! The one connection of a server that another program has started for it: a socket (inetd), or standard input and output, which may
//! be pipes, files or a terminal.

use crate::connection_slots::Origin;
use crate::identity::Peer;
use crate::listen::Connection;
use crate::server::{Shared, connection_of};
use crate::user_stream::UserStream;
use anyhow::{Context as _, Result};
use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

/// Serves it until it ends.
///
/// # Errors
/// It cannot be used, or what standard input has is not HTTP.
pub(crate) async fn serve_single(connection: Connection, shared: &Arc<Shared>) -> Result<()> {
    let place = shared.places.admit(Origin::Unknown).map(Arc::new);
    let place = place.context("no connection is allowed (--max-connections)")?;
    match connection {
        Connection::Tcp(stream) => {
            let address = stream.peer_addr().ok();
            let peer = Peer::of_tcp(address);
            stream.set_nonblocking(true)?;
            let stream = tokio::net::TcpStream::from_std(stream)?;
            // Its client knows how it has ended.
            let _ = connection_of(stream, peer, place, shared.clone()).await;
        }
        Connection::Unix(stream) => {
            let peer = Peer::of_unix(&stream);
            stream.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let stream = UserStream::new(stream, peer.uid);
            let _ = connection_of(stream, peer, place, shared.clone()).await;
        }
        Connection::Stdio => {
            let (stream, far) = UnixStream::pair()?;
            let mut peer = Peer::of_unix(&stream);
            peer.ends_input = true;
            stream.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let written = copy_streams(far)?;
            let served = connection_of(stream, peer, place, shared.clone()).await;
            // The other side has the end by now, so this does not take long.
            let written = written.join().unwrap_or(Ok(()));
            served.context("standard input")?;
            written.context("standard output")?;
        }
    }
    Ok(())
}

/// Copies standard input to the socket and the socket to standard output. Only the latter has an end to wait for: a terminal may have
/// no more input, ever.
fn copy_streams(far: UnixStream) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    let input = far.try_clone()?;
    thread::Builder::new().name("input".into()).spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut &input);
        let _ = input.shutdown(Shutdown::Write);
    })?;
    thread::Builder::new().name("output".into()).spawn(move || {
        let mut stdout = io::stdout().lock();
        io::copy(&mut &far, &mut stdout)?;
        stdout.flush()
    })
}
