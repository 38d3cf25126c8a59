//! The connection to the launcher. The supervisor opens it, and starts the launcher whenever it
//! does not run.

use super::Input;
use super::order_link::OrderLink;
use super::socket::{Socket, receive_frames};
use super::supervisor_link::Dialer;
use muster_node_core::agent;
use muster_node_core::messages::{LauncherEvent, VERSIONS};
use muster_proto::version::Greeting;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Wait before the next attempt if a launcher cannot be started.
const RETRY: Duration = Duration::from_secs(1);
/// Time between attempts for a launcher whose version cannot be used.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// The link to the launcher.
pub(super) struct LauncherOutlet {
    orders: OrderLink,
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Entries of the queue that are not written yet.
    queued: Arc<AtomicUsize>,
}

impl LauncherOutlet {
    /// The outlet of a connection, and the task that writes what the link does not take at once.
    fn new(orders: OrderLink) -> LauncherOutlet {
        let (queue, mut inbox) = mpsc::unbounded_channel::<Vec<u8>>();
        let queued = Arc::new(AtomicUsize::new(0));
        let (writer, left) = (orders.clone(), Arc::clone(&queued));
        tokio::spawn(async move {
            while let Some(bytes) = inbox.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
                left.fetch_sub(1, Ordering::Release);
            }
        });
        LauncherOutlet {
            orders,
            queue,
            queued,
        }
    }

    /// Sends bytes.
    pub(super) fn send(&self, bytes: Vec<u8>) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        // A closed queue means that the connection is gone, which arrives as a separate input.
        let _ = self.queue.send(bytes);
    }

    /// Sends bytes; returns whether the launcher will receive them and everything sent before, even
    /// if this process is killed now.
    pub(super) fn send_now(&self, mut bytes: Vec<u8>) -> bool {
        if self.queued.load(Ordering::Acquire) > 0 {
            self.send(bytes);
            return false;
        }
        if bytes.is_empty() {
            return true;
        }
        match self.orders.write_now(&bytes) {
            Ok(written) if written == bytes.len() => true,
            Ok(written) => {
                self.send(bytes.split_off(written));
                false
            }
            Err(_) => false,
        }
    }
}

/// Keeps the connection up for ever.
pub(super) fn maintain_connection(dialer: Dialer, inputs: mpsc::UnboundedSender<Input>) {
    tokio::spawn(async move {
        loop {
            match dialer.connect_launcher().await {
                Ok(link) => serve(link, &inputs).await,
                Err(e) => {
                    log::error!("there is no connection to the launcher: {e}");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    });
}

/// Serves a connection until it ends, if the launcher's protocol version is supported.
async fn serve((events, orders): (Socket, OrderLink), inputs: &mpsc::UnboundedSender<Input>) {
    let (mut is_up, mut refusal) = (false, None);
    let mut channels = VecDeque::new();
    let ended = receive_frames(&events, &mut channels, |message, channels| {
        if !is_up && refusal.is_none() {
            refusal = check_version(&message).err();
            match &refusal {
                Some(_) => events.close(),
                None => {
                    is_up = true;
                    let outlet = LauncherOutlet::new(orders.clone());
                    let _ = inputs.send(Input::LauncherUp(outlet));
                }
            }
        }
        let input = match message {
            _ if refusal.is_some() => return,
            LauncherEvent::Greeting(_) => return,
            LauncherEvent::StepChannel(attempt, step) => match channels.pop_front() {
                Some(channel) => Input::StepChannel(attempt, step, channel),
                None => return,
            },
            message => Input::Event(agent::Event::Launcher(Box::new(message))),
        };
        let _ = inputs.send(input);
    })
    .await;
    if let Some(why) = refusal {
        log::error!(
            "{why}. Its jobs go on, and this node gets no others: the launcher ends by SIGTERM once they have ended, then \
             slurmd starts its own"
        );
        tokio::time::sleep(REFUSED_RETRY).await;
        return;
    }
    log::error!("the connection to the launcher ended: {ended}");
    match is_up {
        true => drop(inputs.send(Input::LauncherLost)),
        // The launcher does not understand the message, or is ending.
        false => tokio::time::sleep(RETRY).await,
    }
}

/// Whether the launcher that sent this first message can be used. A launcher that does not state a
/// version predates versions.
fn check_version(first: &LauncherEvent) -> Result<(), String> {
    let theirs = match first {
        LauncherEvent::Refused(why) => return Err(why.clone()),
        LauncherEvent::Greeting(theirs) => theirs.clone(),
        _ => Greeting::default(),
    };
    match VERSIONS.is_too_old(&theirs) {
        true => Err(VERSIONS.difference(&theirs, "the launcher of this node", "slurmd")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_way_link::OneWayLink;
    use muster_proto::frame;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    fn link() -> (File, OrderLink) {
        let link = OneWayLink::open().unwrap();
        (link.reader.into(), OrderLink::new(link.writer).unwrap())
    }

    /// Returns the inputs that the agent receives from a launcher that sends these events and then waits. If the
    /// launcher is not accepted, its connection is closed.
    async fn inputs_of(said: &[LauncherEvent], is_used: bool) -> Vec<Input> {
        let (near, mut far) = UnixStream::pair().unwrap();
        let frames: Vec<u8> = said.iter().flat_map(frame::encode).collect();
        far.write_all(&frames).unwrap();
        if is_used {
            far.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let (inputs, mut inbox) = mpsc::unbounded_channel();
        let (_launchers_end, orders) = link();
        serve((Socket::new(near).unwrap(), orders), &inputs).await;
        if !is_used {
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "it is closed");
        }
        std::iter::from_fn(|| inbox.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_launcher_of_another_version_is_not_used() {
        let of = |protocol: u32| {
            LauncherEvent::Greeting(Greeting {
                protocol,
                release: "0.0.1".to_owned(),
            })
        };
        let state = || LauncherEvent::State {
            jobs: Vec::new(),
            is_last: true,
        };
        for said in [
            vec![of(VERSIONS.oldest - 1), state()],
            // This launcher predates versions.
            vec![state()],
            vec![LauncherEvent::Refused("update slurmd".to_owned())],
        ] {
            let began = tokio::time::Instant::now();
            assert!(inputs_of(&said, false).await.is_empty());
            assert!(began.elapsed() >= REFUSED_RETRY, "it is not asked at once");
        }
        let why = check_version(&of(VERSIONS.oldest - 1)).unwrap_err();
        assert!(why.contains("muster 0.0.1"), "{why}");
        // A launcher of the same version, and a newer one that has accepted the agent.
        for said in [
            vec![of(VERSIONS.newest), state()],
            vec![of(VERSIONS.newest + 1), state()],
        ] {
            match &*inputs_of(&said, true).await {
                [
                    Input::LauncherUp(_),
                    Input::Event(agent::Event::Launcher(first)),
                    Input::LauncherLost,
                ] => {
                    assert!(matches!(**first, LauncherEvent::State { .. }));
                }
                other => panic!("{} inputs", other.len()),
            }
        }
    }

    /// The record that a step's number is used must be sent before the step itself.
    #[tokio::test]
    async fn what_is_sent_at_once_is_there_or_said_not_to_be() {
        let (mut far, orders) = link();
        let outlet = LauncherOutlet::new(orders);
        assert!(outlet.send_now(b"one".to_vec()));
        let mut read = [0; 3];
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"one");
        // More bytes than the link takes at once, and a message behind them.
        let much = vec![b'm'; 4 << 20];
        assert!(!outlet.send_now(much.clone()));
        assert!(!outlet.send_now(b"two".to_vec()));
        let reader = tokio::task::spawn_blocking(move || {
            let mut read = vec![0; (4 << 20) + 3];
            far.read_exact(&mut read).unwrap();
            (far, read)
        });
        let (far, read) = reader.await.unwrap();
        assert!(read.starts_with(&much) && read.ends_with(b"two"));
        // A process that another test is just starting may hold a copy for a moment.
        nix::sys::socket::shutdown(far.as_raw_fd(), nix::sys::socket::Shutdown::Both).unwrap();
        assert!(!outlet.send_now(b"three".to_vec()));
    }
}
