//! Handshake between two hosts: a channel of `muster-channel` whose secret is derived from the
//! job's key. Only a host of the same job can begin or answer a handshake, and everything after it
//! is encrypted.

use hmac::{Hmac, Mac};
use muster_channel::{Channel, Initiator, OPENING_BYTES_MAX, Opening, Responder, SECRET, Scheme};
use muster_channel::{HandshakeError, UnconfirmedChannel};
use muster_proto::frame::{self, Message};
use muster_proto::hello::{HostAnswer, HostHello};
use muster_proto::version::Versions;
use sha2::Sha256;
use std::io::Read as _;

/// Credential of channels between PMIx hosts. It only marks the kind of the channel.
const CREDENTIAL: &[u8] = b"muster-pmix";
/// Bytes of a nonce.
const NONCE: usize = 16;

/// The identity of this host in a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostIdentity<'a> {
    /// The secret key shared by the hosts of this job.
    pub(crate) key: &'a [u8],
    /// Address at which this host listens, which is its name.
    pub(crate) address: &'a str,
}

/// Progress of the handshake.
#[derive(Debug)]
enum Stage {
    /// This end has connected and sent the opening; it waits for the answer.
    Opened(Box<Initiator>),
    /// This end has accepted the connection; it waits for the opening.
    Accepted,
    /// This end has answered; it waits for the confirmation.
    Answered(UnconfirmedChannel),
}

/// A connection whose handshake is in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    stage: Stage,
    nonce: Vec<u8>,
    other_nonce: Vec<u8>,
    /// Address at which the other end listens.
    peer: String,
    /// Bytes that were received and not parsed yet.
    input: Vec<u8>,
}

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct OpenedChannel {
    pub(crate) channel: Channel,
    /// Address at which the other end listens.
    pub(crate) peer: String,
    /// Authenticates packets sent to the other end by UCX.
    pub(crate) code_out: Hmac<Sha256>,
    /// Authenticates packets received from the other end by UCX.
    pub(crate) code_in: Hmac<Sha256>,
}

impl Handshake {
    /// Begins the handshake of a connection that this end has opened. The opening is appended to
    /// the output.
    ///
    /// # Errors
    /// Random numbers are not available.
    pub(crate) fn open(
        own: HostIdentity<'_>,
        peer: &str,
        output: &mut Vec<u8>,
    ) -> Result<Handshake, String> {
        let nonce = random()?;
        let hello = HostHello {
            greeting: Versions::CLUSTER.greeting(),
            address: own.address.to_owned(),
            nonce: nonce.clone().into(),
            wanted: peer.to_owned(),
        };
        let begun = Initiator::begin(Scheme::Job, CREDENTIAL, &secret(own.key), &payload(&hello));
        let (initiator, bytes) = begun.map_err(|e| e.to_string())?;
        output.extend(bytes);
        Ok(Handshake {
            stage: Stage::Opened(Box::new(initiator)),
            nonce,
            other_nonce: Vec::new(),
            peer: peer.to_owned(),
            input: Vec::new(),
        })
    }

    /// Begins the handshake of a connection that this end has accepted.
    ///
    /// # Errors
    /// Random numbers are not available.
    pub(crate) fn accepted() -> Result<Handshake, String> {
        Ok(Handshake {
            stage: Stage::Accepted,
            nonce: random()?,
            other_nonce: Vec::new(),
            peer: String::new(),
            input: Vec::new(),
        })
    }

    /// Whether this end opened the connection.
    pub(crate) fn is_outbound(&self) -> bool {
        matches!(self.stage, Stage::Opened(_))
    }

    /// Whether the other end has shown that it has the job's key.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered(_))
    }

    /// Processes received bytes and queues the replies. Returns the connection once both ends have identified each
    /// other.
    ///
    /// # Errors
    /// The other end is not a host of this job, or its version is not supported.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        own: HostIdentity<'_>,
        output: &mut Vec<u8>,
    ) -> Result<Option<OpenedChannel>, String> {
        match &mut self.stage {
            Stage::Accepted => {
                self.input.extend_from_slice(bytes);
                self.answer(own, output).map(|()| None)
            }
            Stage::Answered(channel) => match channel.confirm(bytes).map_err(reason)? {
                false => Ok(None),
                true => {
                    let before = std::mem::replace(&mut self.stage, Stage::Accepted);
                    let Stage::Answered(channel) = before else {
                        return Ok(None);
                    };
                    Ok(Some(self.known(channel.into_channel(), own)))
                }
            },
            Stage::Opened(initiator) => {
                self.input.extend_from_slice(bytes);
                let Some(begun) = initiator.finish(&self.input).map_err(reason)? else {
                    return self.check_length().map(|()| None);
                };
                let answer: HostAnswer = read(&begun.payload)?;
                check(&answer.greeting)?;
                self.other_nonce = answer.nonce.into();
                output.extend(begun.confirmation);
                Ok(Some(self.known(begun.channel, own)))
            }
        }
    }

    /// Answers the opening of the other end once it is complete.
    fn answer(&mut self, own: HostIdentity<'_>, output: &mut Vec<u8>) -> Result<(), String> {
        let opening = Opening::decode(&self.input).map_err(|e| e.to_string())?;
        let Some(opening) = opening else {
            return self.check_length();
        };
        let (responder, hello) = Responder::accept(&opening, &secret(own.key)).map_err(reason)?;
        let hello: HostHello = read(&hello)?;
        check(&hello.greeting)?;
        // All hosts of the job share the key, so the key alone does not show which host the other
        // end wants.
        if hello.wanted != own.address {
            return Err("it was redirected here but expects another host".to_owned());
        }
        let answer = HostAnswer {
            greeting: Versions::CLUSTER.greeting(),
            nonce: self.nonce.clone().into(),
        };
        let (bytes, channel) = responder.answer(&payload(&answer)).map_err(reason)?;
        output.extend(bytes);
        (self.peer, self.other_nonce) = (hello.address, hello.nonce.into());
        self.stage = Stage::Answered(channel);
        Ok(())
    }

    fn check_length(&self) -> Result<(), String> {
        match self.input.len() > OPENING_BYTES_MAX {
            true => Err("it does not speak as a host".to_owned()),
            false => Ok(()),
        }
    }

    fn known(&mut self, channel: Channel, own: HostIdentity<'_>) -> OpenedChannel {
        OpenedChannel {
            channel,
            peer: std::mem::take(&mut self.peer),
            code_out: code(own.key, &self.other_nonce, &self.nonce),
            code_in: code(own.key, &self.nonce, &self.other_nonce),
        }
    }
}

fn reason(error: HandshakeError) -> String {
    match error {
        HandshakeError::Secret => "it does not know the job's key".to_owned(),
        other => other.to_string(),
    }
}

fn check(greeting: &muster_proto::version::Greeting) -> Result<(), String> {
    let checked = Versions::CLUSTER.check(greeting, "the host there", "this host");
    checked.map_err(|refusal| refusal.detail)
}

/// A message of the handshake, which has its own length prefix.
fn payload<M: Message + minicbor::Encode<()>>(message: &M) -> Vec<u8> {
    frame::encode(message).split_off(4)
}

fn read<M>(bytes: &[u8]) -> Result<M, String>
where
    M: Message + for<'b> minicbor::Decode<'b, ()>,
{
    frame::decode(bytes).map_err(|e| format!("invalid message: {e}"))
}

fn random() -> Result<Vec<u8>, String> {
    let mut nonce = vec![0; NONCE];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut nonce));
    read.map_err(|e| format!("/dev/urandom: {e}"))?;
    Ok(nonce)
}

/// The secret of channels between hosts of a job.
fn secret(key: &[u8]) -> [u8; SECRET] {
    let mut mac = keyed(key);
    mac.update(b"muster: secret of a channel between PMIx hosts, 1\0");
    mac.finalize().into_bytes().into()
}

/// The code that authenticates packets sent by UCX beside the channel. It is derived from the key
/// and both nonces, the receiver's nonce first.
fn code(key: &[u8], receiver: &[u8], sender: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(key);
    for part in [&b"ucx"[..], receiver, sender] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}
