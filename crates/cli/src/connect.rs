//! A command's conversation with the controller: blocking, over the socket that slurm.conf leads to.

use muster_conf::endpoint::{self, Endpoint};
use muster_core::command::{Reply, UserCommand};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::shared_spec::SpecTable;
use muster_proto::client::{Query, Request, RequestBody, Response};
use muster_proto::{PROTOCOL, frame};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why a command could not talk to the controller. Clients tell "unreachable" from "gone" by the first text.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration cannot be read.
    #[error(
        "Could not establish a configuration source: {0}. Set SLURM_CONF, or start a cluster with 'muster up' and \
         evaluate the output of 'muster env'."
    )]
    Config(io::Error),
    /// Nothing listens.
    #[error("Unable to contact slurm controller (connect failure)")]
    Unreachable {
        /// The socket.
        socket: String,
        /// What connect(2) said.
        source: io::Error,
    },
    /// The connection broke or timed out.
    #[error("Socket timed out on send/recv operation")]
    Broken(#[source] io::Error),
    /// The controller refused the request.
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// An open conversation.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// The frame that was read last.
    frame: Vec<u8>,
    /// Specifications that the answer which is being read has given so far.
    specs: SpecTable,
    /// Where it leads.
    pub endpoint: Endpoint,
}

impl Client {
    /// Connects to the controller of the configuration that the environment names.
    ///
    /// # Errors
    /// [`ConnectError::Config`] or [`ConnectError::Unreachable`].
    pub fn connect() -> Result<Client, ConnectError> {
        Client::connect_to(&endpoint::conf_path())
    }

    /// Connects to the controller of a configuration file.
    ///
    /// # Errors
    /// [`ConnectError::Config`] or [`ConnectError::Unreachable`].
    pub fn connect_to(conf: &Path) -> Result<Client, ConnectError> {
        let endpoint = endpoint::read(conf).map_err(ConnectError::Config)?;
        let stream =
            UnixStream::connect(&endpoint.socket).map_err(|source| ConnectError::Unreachable {
                socket: endpoint.socket.display().to_string(),
                source,
            })?;
        Ok(Client {
            stream,
            frame: Vec::new(),
            specs: SpecTable::default(),
            endpoint,
        })
    }

    /// Like [`Client::connect`], but keeps trying while a controller restarts. Used where nothing can be lost by
    /// asking again: before the request was sent.
    ///
    /// # Errors
    /// The last attempt's, once `patience` is over.
    pub fn connect_patiently(patience: Duration) -> Result<Client, ConnectError> {
        let until = Instant::now() + patience;
        loop {
            match Client::connect() {
                Err(ConnectError::Unreachable { .. }) if Instant::now() < until => {
                    // The socket appears when the controller is ready; there is nothing to wait on but its path.
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`ConnectError::Broken`].
    pub fn send(&mut self, body: RequestBody) -> Result<(), ConnectError> {
        frame::write(
            &mut self.stream,
            &Request {
                version: PROTOCOL,
                body,
            },
        )
        .map_err(ConnectError::Broken)
    }

    /// Receives the next response; a refusal becomes an error.
    ///
    /// # Errors
    /// [`ConnectError::Broken`] or [`ConnectError::Refused`].
    pub fn receive(&mut self) -> Result<Response, ConnectError> {
        let response = self.read().map_err(ConnectError::Broken)?;
        if !matches!(&response, Response::Jobs(part) if part.more) {
            self.specs = SpecTable::default();
        }
        match response {
            Response::Refused(refusal) => Err(refusal.into()),
            other => Ok(other),
        }
    }

    fn read(&mut self) -> io::Result<Response> {
        await_answer(&self.stream);
        frame::read_body(&mut self.stream, &mut self.frame)?;
        frame::decode_in(&self.frame, &mut self.specs)
    }

    /// One request, one response.
    ///
    /// # Errors
    /// See [`Client::send`] and [`Client::receive`].
    pub fn call(&mut self, body: RequestBody) -> Result<Response, ConnectError> {
        self.send(body)?;
        self.receive()
    }

    /// A command; a refusal of the core becomes an error.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn command(&mut self, command: UserCommand) -> Result<Reply, ConnectError> {
        match self.call(RequestBody::Command(Box::new(command)))? {
            Response::Reply(reply) => match *reply {
                Reply::Refused(refusal) => Err(refusal.into()),
                reply => Ok(reply),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// A query; the caller receives further parts itself.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn query(&mut self, query: Query) -> Result<Response, ConnectError> {
        self.call(RequestBody::Query(Box::new(query)))
    }

    /// The stream, to poll it beside others.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

/// Waits until there is something to read. A read that blocks would do, but it is woken, and sleeps again, when the other
/// side has taken in the request.
pub(crate) fn await_answer(stream: &impl AsFd) {
    // Whatever it is that ends the wait, the read tells.
    let _ = poll(
        &mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)],
        PollTimeout::NONE,
    );
}

/// An answer that does not fit the request: a bug or a newer controller.
pub fn unexpected(response: &Response) -> ConnectError {
    let detail =
        format!("unexpected answer {response:.60?}; is the controller of another version?");
    Refusal::new(RefusalCode::ProtocolError, detail).into()
}
