//! The channel between two hosts: encrypted, and bound to who is at its other end. It begins with a credential that only the
//! receiver can use: from it both sides have a secret, which enters the key exchange (Noise, pattern NNpsk0). Who does not
//! have it can neither speak for the client nor answer for the server; keys are new for each connection, so that a
//! secret that becomes known later opens nothing that was recorded.
//!
//! [`Initiator`] and [`Responder`] are the exchange, [`Sealer`] and [`Unsealer`] what follows, all without I/O. [`connect`]
//! gives a command a plain socket whose other end is a remote host; daemons use `relay` and `server`.

pub mod admission;
mod connect;
mod handshake;
pub mod host;
mod keep_alive;
mod listener;
mod opening;
mod records;
#[cfg(feature = "tokio")]
pub mod relay;
#[cfg(feature = "tokio")]
pub mod server;
mod statement;

pub use connect::{EstablishedChannel, connect, dial, open};
pub use handshake::{
    Channel, HandshakeError, InitiatedChannel, Initiator, Responder, UnconfirmedChannel,
};
pub use keep_alive::KeepAlive;
pub use listener::listen_everywhere;
pub use opening::{
    CREDENTIAL_BYTES_MAX, OPENING_BYTES_MAX, Opening, OpeningError, PAYLOAD_BYTES_MAX, Scheme,
};
pub use records::{RECORD_BYTES_MAX, RecordError, Sealer, Unsealer};
pub use statement::{NoStatement, Purpose, Statement};

/// Bytes of the secret that a credential gives both sides.
pub const SECRET: usize = 32;
