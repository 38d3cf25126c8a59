//! The agent's requests to its supervisor, mainly for connections. See
//! [`crate::messages::agent_supervisor`].

use super::Input;
use super::order_link::OrderLink;
use super::socket::Socket;
use crate::credential::{self, Credential, SAID_MAX};
use crate::messages::agent_supervisor::{
    CONFIGURATION, LAUNCHER_EVENTS, LAUNCHER_ORDERS, RequestSender, SupervisorRequest, take_answer,
};
use crate::sys;
use muster_channel::{SECRET, Scheme};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, mpsc};

/// Requests connections to one place, one at a time.
#[derive(Debug)]
pub(super) struct Dialer {
    answers: AsyncFd<OwnedFd>,
    requests: RequestSender,
}

impl Dialer {
    /// Must be called inside the runtime.
    pub(super) fn new(answers: OwnedFd, requests: RequestSender) -> io::Result<Dialer> {
        Ok(Dialer {
            answers: sys::watch(answers, Interest::READABLE)?,
            requests,
        })
    }

    /// Requests a new connection to the launcher.
    pub(super) async fn connect_launcher(&self) -> io::Result<(Socket, OrderLink)> {
        self.requests.send(&SupervisorRequest::Launcher)?;
        let events = self.answer(LAUNCHER_EVENTS).await?;
        let orders = self.answer(LAUNCHER_ORDERS).await?;
        let events = Socket::new(UnixStream::from(events))?;
        Ok((events, OrderLink::new(orders)?))
    }

    /// Requests a new connection to the controller.
    pub(super) async fn connect_controller(&self) -> io::Result<Socket> {
        self.ask(0, &SupervisorRequest::Controller).await
    }

    /// Reports that the controller has another configuration.
    pub(super) fn note_configuration(&self) {
        if let Err(e) = self.requests.send(&SupervisorRequest::Configuration) {
            log::error!("the configuration is not fetched: {e}");
        }
    }

    /// Reports that the first attempt to register with the controller is over.
    pub(super) fn note_ready(&self) {
        if let Err(e) = self.requests.send(&SupervisorRequest::Ready) {
            log::error!("the start of this node is not reported: {e}");
        }
    }

    /// Requests a credential for this node that contains this secret, or a secret of its own.
    /// Request numbers are nonzero and all different.
    pub(super) async fn make_credential(
        &self,
        number: u64,
        secret: [u8; SECRET],
    ) -> anyhow::Result<(Scheme, Vec<u8>, [u8; SECRET])> {
        let request = SupervisorRequest::Credential {
            number,
            secret: secret.into(),
        };
        let link = File::from(self.descriptor(number, &request).await?);
        let read = move || {
            let mut said = Vec::new();
            link.take(SAID_MAX as u64)
                .read_to_end(&mut said)
                .map(|_| said)
        };
        let Credential {
            scheme,
            bytes,
            secret: own,
        } = credential::read(&tokio::task::spawn_blocking(read).await??)?;
        Ok((scheme, bytes, own.unwrap_or(secret)))
    }

    /// Waits for the connection requested under this number.
    async fn ask(&self, number: u64, request: &SupervisorRequest) -> io::Result<Socket> {
        let connected = self.descriptor(number, request).await?;
        Socket::new(UnixStream::from(connected))
    }

    /// Sends a request under this number. At most one request is under way.
    async fn descriptor(&self, number: u64, request: &SupervisorRequest) -> io::Result<OwnedFd> {
        self.requests.send(request)?;
        self.answer(number).await
    }

    /// The next answer under this number.
    async fn answer(&self, number: u64) -> io::Result<OwnedFd> {
        let answer = |line: &OwnedFd| take_answer(line);
        loop {
            let (of, given) = self.answers.async_io(Interest::READABLE, answer).await?;
            // Other answers belong to abandoned requests.
            if of == number {
                return given;
            }
        }
    }
}

/// Receives what the supervisor sends unasked: results of applying the configuration.
pub(super) async fn follow_news(line: OwnedFd, inputs: mpsc::UnboundedSender<Input>) {
    let line = match sys::watch(line, Interest::READABLE) {
        Ok(line) => line,
        Err(e) => return log::error!("what becomes of the configuration is not seen: {e}"),
    };
    let take = |line: &OwnedFd| take_answer(line);
    while let Ok((number, applied)) = line.async_io(Interest::READABLE, take).await {
        if number == CONFIGURATION {
            let error = applied.err().map(|e| e.to_string());
            let _ = inputs.send(Input::Configuration(error));
        }
    }
}

/// Requests connections to other agents, several at a time.
#[derive(Debug)]
pub(crate) struct PeerDialer(Mutex<(Dialer, u64)>);

impl PeerDialer {
    /// Must be called inside the runtime.
    pub(super) fn new(answers: OwnedFd, requests: RequestSender) -> io::Result<PeerDialer> {
        Ok(PeerDialer(Mutex::new((Dialer::new(answers, requests)?, 0))))
    }

    /// Requests a new connection to the agent whose socket has this path. The supervisor has
    /// already stated this node's name on it.
    pub(super) async fn connect(&self, path: &str) -> io::Result<Socket> {
        let mut dialer = self.0.lock().await;
        let (dialer, last) = &mut *dialer;
        *last += 1;
        let request = SupervisorRequest::Peer {
            number: *last,
            path: path.to_owned(),
        };
        dialer.ask(*last, &request).await
    }
}
