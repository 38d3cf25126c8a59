//! A connection of srun, or of the node above.

use super::wire::Wire;
use super::{Phase, Stepd};
use muster_node_core::messages::{RunningStep, VERSIONS};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{FromStepd, ToStepd};
use muster_proto::version::{Greeting, Versions};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long news that nobody is waiting for are kept, for what follows to go with them: srun is woken once for the start,
/// the output's end and the end of a short task.
const COMPANY_WAIT: Duration = Duration::from_millis(5);

/// Connections that have not shown the key. With more, the oldest is closed: srun shows it at once.
pub(super) const STRANGERS_MAX: usize = 64;
/// Bytes of the first message of a connection: a key, and the addresses of the nodes below.
const GREETING_BYTES_MAX: usize = 4 << 20;

/// The connection and what waits on it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) wire: Wire,
    /// All that waits may wait until then.
    patient: Option<Instant>,
    /// It was sent that this connection is over.
    pub(crate) end_sent: bool,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Client> {
        Ok(Client {
            wire: Wire::new(stream)?,
            patient: None,
            end_sent: false,
        })
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Option<ToStepd> {
        self.wire.input.take().unwrap_or_else(|e| {
            eprintln!("a message from srun is not understood: {e}");
            self.wire.open = false;
            self.wire.input = Frames::default();
            None
        })
    }

    pub(crate) fn send(&mut self, message: &FromStepd) {
        self.send_frame(&frame::encode(message), is_patient(message));
    }

    /// Sends a message as a frame; `patient` if it can wait for others.
    pub(crate) fn send_frame(&mut self, frame: &[u8], patient: bool) {
        if !patient {
            self.hurry();
        } else if self.wire.output.is_empty() {
            self.patient = Some(Instant::now() + COMPANY_WAIT);
        }
        self.wire.output.extend_from_slice(frame);
    }

    /// Nothing of what waits can wait any longer.
    pub(crate) fn hurry(&mut self) {
        self.patient = None;
    }

    /// Until when all that is to be written waits for company.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.patient.filter(|_| !self.wire.output.is_empty())
    }

    /// Whether something is to be written now.
    pub(crate) fn has_output(&self) -> bool {
        !self.wire.output.is_empty() && self.patient.is_none()
    }

    /// Writes as much as it takes, unless it waits for company.
    pub(crate) fn write(&mut self) {
        if self.patient.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.patient = None;
        if self.wire.write().is_err() {
            self.wire.open = false;
        }
    }
}

/// Whether srun, or the step daemon above, speaks a version that is spoken here; it gets a refusal if not.
fn understands(client: &mut Client, greeting: Option<&Greeting>) -> bool {
    let theirs = greeting.cloned().unwrap_or_default();
    let checked = Versions::CLUSTER.check(&theirs, "srun", "the step daemon of this node");
    let Err(refusal) = checked else { return true };
    client.send(&FromStepd::Refused(refusal));
    client.write();
    false
}

/// Whether the other end belongs to the user of this process, which is no job's unless all jobs are of one user.
fn is_own(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, PeerCredentials);
    peer.is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

/// Whether nobody is kept waiting if a message comes a little later.
pub(crate) fn is_patient(message: &FromStepd) -> bool {
    match message {
        FromStepd::Created(_) | FromStepd::Started(_) => true,
        FromStepd::Stdout { bytes, .. } | FromStepd::Stderr { bytes, .. } => bytes.is_empty(),
        // The last one is followed by the end of the step.
        FromStepd::Exited { exit, .. } => exit.is_ok(),
        _ => false,
    }
}

impl Stepd<'_> {
    /// Takes in who has connected.
    pub(super) fn accept(&mut self) {
        // Others have their turn before the next so many.
        for _ in 0..STRANGERS_MAX {
            let Ok((stream, _)) = self.runtime.listener.accept() else {
                return;
            };
            if self.strangers.len() >= STRANGERS_MAX {
                self.strangers.remove(0);
            }
            if let Ok(client) = Client::new(stream) {
                self.strangers.push(client);
            }
        }
    }

    /// Someone connected: srun, if the first message is the key.
    pub(super) fn take_stranger(&mut self, at: usize) {
        let mut stranger = self.strangers.swap_remove(at);
        stranger.wire.read();
        let absent = self.client.is_none() && !self.ending;
        let free = absent && self.phase == Phase::Waiting;
        match stranger.next() {
            Some(ToStepd::Hello(key, greeting))
                if free
                    && key == self.order.launch.step_key
                    && understands(&mut stranger, greeting.as_ref()) =>
            {
                self.client = Some(stranger);
                self.start();
                self.tell_pmix_error();
                self.client_messages();
            }
            Some(ToStepd::Attach(attach))
                if (free || self.tree.is_some())
                    && attach.key == self.order.launch.step_key
                    && understands(&mut stranger, attach.greeting.as_ref()) =>
            {
                self.attach(&attach, stranger);
            }
            Some(ToStepd::Adopt(greeting)) if is_own(&stranger.wire.stream) => {
                let theirs = greeting.unwrap_or_default();
                match VERSIONS.is_too_old(&theirs) {
                    // What comes of the step will be in its file.
                    true => {
                        let why = VERSIONS.difference(&theirs, "the launcher", "a step daemon");
                        eprintln!("{why}; it is refused");
                    }
                    false => self.adopted(stranger.wire.stream),
                }
            }
            None if stranger.wire.open && stranger.wire.received <= GREETING_BYTES_MAX => {
                self.strangers.push(stranger);
            }
            // Not the key, too much without one, or srun is here already: the connection is dropped.
            _ => {}
        }
    }

    /// There is a new launcher.
    fn adopted(&mut self, stream: UnixStream) {
        // The last words of the one before.
        self.take_control();
        let running = RunningStep {
            run: self.order.run,
            step: self.order.launch.step,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            dirs: self.setting.dirs.clone(),
            kept: self.setting.kept.clone(),
            greeting: Some(VERSIONS.greeting()),
        };
        self.runtime.adopted(stream, running);
    }
}
