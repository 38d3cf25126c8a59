//! Connections to the daemon's socket, by the numbers that the state machine uses: connections that
//! have not shown the key, and the one of srun or of the node above.

use crate::descriptors::SrunStdio;
use crate::step_links::StepClient;
use muster_model::refusal::Refusal;
use muster_node_core::stepd::ClientId;
use muster_proto::step::{FromStepd, ToStepd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Maximum number of connections that have not shown the key. Above it the oldest is closed: srun
/// shows the key at once.
const STRANGERS_MAX: usize = 64;
/// Time limit for showing the key, in milliseconds: as long as a daemon waits for srun.
const STRANGER_MAX_MS: u64 = 30_000;
/// Maximum unread output of a reader, which is dropped above it. Tasks do not wait for readers.
const READER_BYTES_MAX: usize = 4 << 20;
/// Maximum size of the first message of a connection: a key, and the addresses of the nodes below.
const GREETING_BYTES_MAX: usize = 4 << 20;

/// A connection that has not shown the key.
pub(super) struct Stranger {
    id: ClientId,
    pub(super) client: StepClient,
    /// Time at which it is closed, in milliseconds of the monotonic clock.
    until_ms: u64,
}

/// See the module.
pub(super) struct Connections {
    pub(super) listener: UnixListener,
    /// Connections that have not shown the key.
    pub(super) strangers: Vec<Stranger>,
    /// The client whose first message the state machine is checking.
    greeted: Option<(ClientId, StepClient)>,
    client: Option<(ClientId, StepClient)>,
    /// Clients that read the output of tasks.
    pub(super) readers: Vec<(ClientId, StepClient)>,
    /// The state machine waits until all output to the client is written.
    is_flush_awaited: bool,
    /// Streams received with the step that is being given.
    handed_over: Option<(ClientId, SrunStdio)>,
    last_id: u64,
}

/// Result of writing to the client.
pub(super) enum WriteResult {
    /// All output is written, for which the state machine waited.
    Flushed,
    /// The client has disconnected.
    Closed,
}

impl Connections {
    pub(super) fn new(listener: UnixListener) -> Connections {
        Connections {
            listener,
            strangers: Vec::new(),
            greeted: None,
            client: None,
            readers: Vec::new(),
            is_flush_awaited: false,
            handed_over: None,
            last_id: 0,
        }
    }

    fn next_id(&mut self) -> ClientId {
        self.last_id += 1;
        ClientId(self.last_id)
    }

    /// The connection of srun, or of the node above.
    pub(super) fn client(&self) -> Option<&StepClient> {
        self.client.as_ref().map(|(_, client)| client)
    }

    /// The client, for changing it.
    pub(super) fn client_mut(&mut self) -> Option<&mut StepClient> {
        self.client.as_mut().map(|(_, client)| client)
    }

    /// Accepts new connections at this time.
    pub(super) fn accept(&mut self, now_ms: u64) {
        // Other work has its turn before more are accepted.
        for _ in 0..STRANGERS_MAX {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if self.strangers.len() >= STRANGERS_MAX {
                self.strangers.remove(0);
            }
            if let Ok(client) = StepClient::new(stream) {
                let id = self.next_id();
                let until_ms = now_ms.saturating_add(STRANGER_MAX_MS);
                self.strangers.push(Stranger {
                    id,
                    client,
                    until_ms,
                });
            }
        }
    }

    /// Time at which the next unproven connection is to be [closed](Connections::close_late).
    pub(super) fn next_late_ms(&self) -> Option<u64> {
        self.strangers.iter().map(|one| one.until_ms).min()
    }

    /// Closes connections that have not shown the key in time.
    pub(super) fn close_late(&mut self, now_ms: u64) {
        self.strangers.retain(|one| one.until_ms > now_ms);
    }

    /// Reads the first message of a connection, which then waits for a decision; also returns
    /// whether an [`ToStepd::Adopt`] comes from this process's user.
    pub(super) fn read_stranger(&mut self, at: usize) -> Option<(ClientId, ToStepd, bool)> {
        let mut stranger = self.strangers.swap_remove(at);
        let client = &mut stranger.client;
        client.wire.read();
        let Some(message) = client.next() else {
            // Too many bytes without a complete message: the connection is dropped.
            if client.wire.open && client.wire.received <= GREETING_BYTES_MAX {
                self.strangers.push(stranger);
            }
            return None;
        };
        let is_own =
            matches!(message, ToStepd::Adopt(_)) && client.wire.local().is_some_and(is_own);
        let id = stranger.id;
        self.greeted = Some((id, stranger.client));
        Some((id, message, is_own))
    }

    /// The checked connection becomes that of srun.
    pub(super) fn take_client(&mut self, id: ClientId) {
        self.client = self.greeted.take_if(|(of, _)| *of == id);
        self.is_flush_awaited = false;
    }

    /// The checked connection becomes a reader, and is sent frames.
    pub(super) fn take_reader(&mut self, id: ClientId, frames: &[u8]) {
        let mut taken = self.greeted.take_if(|(of, _)| *of == id);
        if let Some((_, reader)) = taken.as_mut().filter(|_| !frames.is_empty()) {
            reader.send_frame(frames, false);
        }
        self.readers.extend(taken);
    }

    /// Sends a frame to all readers. Readers that have not read earlier output are dropped.
    pub(super) fn send_readers(&mut self, frame: &[u8]) -> Vec<ClientId> {
        for (_, reader) in &mut self.readers {
            reader.write();
            match reader.wire.output.len() + frame.len() <= READER_BYTES_MAX {
                true => reader.send_frame(frame, false),
                false => reader.wire.open = false,
            }
        }
        self.drop_closed_readers()
    }

    /// Reads from a reader: input for tasks.
    pub(super) fn read_reader(&mut self, at: usize) -> Vec<ToStepd> {
        let Some((_, reader)) = self.readers.get_mut(at) else {
            return Vec::new();
        };
        reader.wire.read();
        std::iter::from_fn(|| reader.next()).collect()
    }

    /// Writes queued output to readers; returns those that have disconnected.
    pub(super) fn write_readers(&mut self) -> Vec<ClientId> {
        self.readers
            .iter_mut()
            .for_each(|(_, reader)| reader.write());
        self.drop_closed_readers()
    }

    fn drop_closed_readers(&mut self) -> Vec<ClientId> {
        let mut gone = Vec::new();
        self.readers.retain(|(id, reader)| {
            if !reader.wire.open {
                gone.push(*id);
            }
            reader.wire.open
        });
        gone
    }

    /// Ends the step. Readers get only the bytes that their connections take at once.
    pub(super) fn end_step(&mut self) {
        self.strangers.clear();
        self.readers
            .iter_mut()
            .for_each(|(_, reader)| reader.write());
        self.readers.clear();
    }

    /// The checked connection is the launcher's.
    pub(super) fn take_launcher(&mut self, id: ClientId) -> Option<UnixStream> {
        let client = self.greeted.take_if(|(of, _)| *of == id);
        client.and_then(|(_, client)| client.wire.into_local())
    }

    /// The checked connection is refused.
    pub(super) fn refuse(&mut self, id: ClientId, refusal: Refusal) {
        if let Some((_, mut client)) = self.greeted.take_if(|(of, _)| *of == id) {
            client.send(&FromStepd::Refused(refusal), false);
            client.write();
        }
    }

    /// The decision is made: closes the checked connection unless it was accepted.
    pub(super) fn drop_greeted(&mut self) {
        self.greeted = None;
    }

    /// Stores the streams of a step that is given.
    pub(super) fn hand_over(&mut self, srun: Option<SrunStdio>) -> Option<ClientId> {
        self.handed_over = srun.map(|srun| (self.next_id(), srun));
        self.handed_over.as_ref().map(|(id, _)| *id)
    }

    /// A step has begun with stored streams: srun's connection becomes the client, and these are
    /// its streams.
    pub(super) fn take_stdio(&mut self, id: ClientId) -> Option<[OwnedFd; 3]> {
        let (id, stdio) = self.handed_over.take_if(|(of, _)| *of == id)?;
        // If it cannot be used, srun reads the end of the stream.
        let client = StepClient::new(UnixStream::from(stdio.line));
        self.client = client.ok().map(|client| (id, client));
        self.is_flush_awaited = false;
        Some([stdio.stdin, stdio.stdout, stdio.stderr])
    }

    /// Writes the bytes that a connection takes at once, and closes it.
    pub(super) fn close(&mut self, id: ClientId) {
        if let Some((_, mut client)) = self.client.take_if(|(of, _)| *of == id) {
            client.hurry();
            client.write();
        }
        self.greeted.take_if(|(of, _)| *of == id);
        self.handed_over.take_if(|(of, _)| *of == id);
    }

    pub(super) fn await_flush(&mut self) {
        self.is_flush_awaited = true;
    }

    /// Writes queued output to srun.
    pub(super) fn write(&mut self) -> Option<WriteResult> {
        let (_, client) = self.client.as_mut()?;
        client.write();
        if !client.wire.open {
            return Some(WriteResult::Closed);
        }
        let is_flushed = self.is_flush_awaited && client.wire.output.is_empty();
        self.is_flush_awaited &= !is_flushed;
        is_flushed.then_some(WriteResult::Flushed)
    }
}

/// Whether the other end runs as this process's user, which is no user of a job unless all jobs
/// belong to one user.
fn is_own(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, PeerCredentials);
    peer.is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::frame;
    use std::io::Write as _;

    /// A stranger kept its place, and the memory of half a message, for as long as the step ran.
    #[test]
    fn who_does_not_show_the_key_in_time_is_closed() {
        let path = std::env::temp_dir().join(format!("muster-late.{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut connections = Connections::new(listener);
        let mut first = UnixStream::connect(&path).unwrap();
        connections.accept(1_000);
        first.write_all(&[0, 0, 1]).unwrap();
        assert!(connections.read_stranger(0).is_none(), "half a message");
        let mut second = UnixStream::connect(&path).unwrap();
        connections.accept(2_000);
        assert_eq!(
            connections.next_late_ms(),
            Some(1_000 + STRANGER_MAX_MS),
            "what it sends gives it no more time"
        );
        connections.close_late(999 + STRANGER_MAX_MS);
        assert_eq!(connections.strangers.len(), 2);
        connections.close_late(1_000 + STRANGER_MAX_MS);
        assert!(first.write_all(&[0]).is_err());
        frame::write(&mut second, &ToStepd::SrunDisconnected).unwrap();
        let (_, message, _) = connections.read_stranger(0).unwrap();
        assert_eq!(message, ToStepd::SrunDisconnected);
        assert_eq!(connections.next_late_ms(), None);
        std::fs::remove_file(path).unwrap();
    }
}
