//! `SlurmctldPort`, where other hosts reach the controller: an encrypted channel by a user's token, and below it what a hostile
//! program sends.

use crate::network::{PATIENCE, own_hello};
use crate::peer::Peer;
use crate::rest;
use crate::target::Target;
use muster_channel::{SECRET, Scheme};
use std::io;
use std::time::Duration;

/// The port, and what shows who connects.
pub(crate) struct ControllerPort {
    address: String,
    port: u16,
    credential: Vec<u8>,
    secret: [u8; SECRET],
}

impl ControllerPort {
    /// By a token that the calling thread's user gets for another, or for itself; none if the controller makes none.
    pub(crate) fn of(target: &Target, user: &str) -> Option<ControllerPort> {
        let conf = target.home().join("slurm.conf");
        let endpoint = muster_conf::endpoint::read(&conf).ok()?;
        let token = rest::token(target, user)?;
        let (credential, secret) = muster_trust::user_token::show(&token).ok()?;
        Some(ControllerPort {
            address: endpoint.addresses.into_iter().next()?,
            port: endpoint.port,
            credential,
            secret,
        })
    }

    /// Opens a channel. `patience` limits the time of a write.
    ///
    /// # Errors
    /// The controller refuses, or does not answer.
    pub(crate) fn connect(&self, patience: Duration) -> io::Result<Peer> {
        let tcp = muster_channel::dial((self.address.as_str(), self.port), PATIENCE)?;
        let proof = (Scheme::Jwt, self.credential.as_slice(), &self.secret);
        let connected = muster_channel::connect(tcp, proof, &own_hello(), PATIENCE)?;
        Peer::over(connected.stream, patience)
    }
}
