//! Control channels to the step daemons of this node. Each is a socket pair that the launcher
//! creates; this process gets one end after the daemon has got the other.

use super::Input;
use super::closing::Streams;
use crate::descriptors;
use crate::sys;
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_node_core::agent::{self, StepdChannelId};
use muster_node_core::messages::StepdEvent;
use muster_proto::frame::Frames;
use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// All channels.
#[derive(Debug, Default)]
pub(super) struct StepdChannels {
    open: HashMap<StepdChannelId, ChannelEnd>,
    /// Channels that the launcher was ordered to create, by the step that the daemon gets.
    expected: HashMap<AttemptStep, StepdChannelId>,
}

/// This end of a channel.
#[derive(Debug)]
struct ChannelEnd {
    fd: Arc<AsyncFd<UnixStream>>,
    input: Frames,
    watcher: JoinHandle<()>,
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl ChannelEnd {
    /// `id` is passed with the input that reports readable data.
    fn new(
        stream: UnixStream,
        id: StepdChannelId,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> io::Result<ChannelEnd> {
        stream.set_nonblocking(true)?;
        let fd = Arc::new(sys::watch(stream, Interest::READABLE)?);
        let watched = Arc::clone(&fd);
        let watcher = tokio::spawn(async move {
            while let Ok(mut ready) = watched.readable().await {
                // A closed end would stay readable for ever.
                let last = ready.ready().is_read_closed();
                ready.clear_ready();
                if inputs.send(Input::StepdReadable(id)).is_err() || last {
                    return;
                }
            }
        });
        Ok(ChannelEnd {
            fd,
            input: Frames::default(),
            watcher,
        })
    }

    /// Receives the available messages; returns whether more may follow.
    fn read(&mut self, events: &mut Vec<StepdEvent>) -> bool {
        let mut chunk = [0; 4 << 10];
        let open = loop {
            match self.fd.get_ref().read(&mut chunk) {
                Ok(0) => break false,
                Ok(n) => self.input.push(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break e.kind() == io::ErrorKind::WouldBlock,
            }
        };
        loop {
            match self.input.take() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return open,
                Err(e) => {
                    log::error!("invalid message from a step daemon: {e}");
                    return false;
                }
            }
        }
    }
}

impl StepdChannels {
    /// Records that the launcher is ordered to give a daemon this step.
    pub(super) fn expect(&mut self, id: StepdChannelId, attempt: JobAttempt, step: StepNo) {
        self.expected.insert(AttemptStep::new(attempt, step), id);
    }

    /// Takes the channel to the daemon of this step. A channel that is not needed any more is
    /// closed.
    pub(super) fn open(
        &mut self,
        AttemptStep { attempt, step }: AttemptStep,
        end: OwnedFd,
        inputs: &mpsc::UnboundedSender<Input>,
    ) {
        let Some(id) = self.expected.remove(&AttemptStep::new(attempt, step)) else {
            return;
        };
        match ChannelEnd::new(UnixStream::from(end), id, inputs.clone()) {
            Ok(channel) => drop(self.open.insert(id, channel)),
            // The daemon notices the closed channel, and the launcher notices the end of the
            // daemon.
            Err(e) => log::error!("step {}.{step}: no control channel: {e}", attempt.job),
        }
    }

    pub(super) fn close(&mut self, id: StepdChannelId) {
        self.open.remove(&id);
        self.expected.retain(|_, expected| *expected != id);
    }

    /// Data that a daemon has sent, or its end.
    pub(super) fn read(&mut self, id: StepdChannelId) -> Option<agent::Event> {
        let mut events = Vec::new();
        let is_open = self.open.get_mut(&id)?.read(&mut events);
        (!is_open || !events.is_empty()).then_some(agent::Event::StepdEvents {
            stepd: id,
            events,
            is_open,
        })
    }

    /// Sends a frame completely or, from its reader's point of view, not at all; returns whether it
    /// was sent.
    pub(super) fn send(&self, id: StepdChannelId, frame: &[u8], with: Option<&Streams>) -> bool {
        let with = with.map(Streams::numbers).unwrap_or_default();
        // A daemon that waits for a step has read everything, so a frame of this size is taken at
        // once.
        let sent = self
            .open
            .get(&id)
            .map(|channel| descriptors::send(channel.fd.get_ref(), frame, &with));
        matches!(sent, Some(Ok(n)) if n == frame.len())
    }

    /// Sends streams without a message; returns whether they were sent.
    pub(super) fn send_streams(&self, id: StepdChannelId, streams: &Streams) -> bool {
        let channel = self.open.get(&id);
        channel.is_some_and(|channel| streams.send(channel.fd.get_ref()))
    }
}
