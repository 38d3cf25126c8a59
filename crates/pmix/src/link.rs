//! One connection between hosts. Each end proves that it knows the job's key, with a nonce of the other's, before
//! its messages are read; these are not encrypted, as is usual within a cluster. Where both ends have
//! UCX, messages go by UCX once it is known to work ([`crate::lane`]).

use crate::lane::{Lane, Packet, Way};
use crate::ucx::Ucx;
use crate::wire::Wire;
use hmac::{Hmac, Mac};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::validate::Validate;
use muster_proto::frame::{self, Frames, Message};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect, setsockopt, socket,
    sockopt,
};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that a peer may send before it has proved that it knows the key.
const STRANGER_MAX: usize = 4096;
/// Bytes of a nonce.
const NONCE: usize = 16;

/// Handshake.
#[derive(Debug, Encode, Decode, Validate)]
enum Hand {
    /// From the end that connects: its nonce, where it listens itself.
    #[n(0)]
    Hello(#[n(0)] ByteVec, #[n(1)] String),
    /// The other's nonce and its proof.
    #[n(1)]
    Welcome(#[n(0)] ByteVec, #[n(1)] ByteVec),
    /// The first's proof.
    #[n(2)]
    Proof(#[n(0)] ByteVec),
}

impl Message for Hand {
    const BYTES_MAX: usize = STRANGER_MAX;
    const ITEMS_MAX: usize = 16;
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The connection is being made.
    Connecting,
    /// Connected; the welcome is awaited.
    Greeted,
    /// Accepted; the hello is awaited.
    Accepted,
    /// Welcomed; the proof is awaited.
    Welcomed,
    /// Both know each other.
    Open,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    stage: Stage,
    nonce: Vec<u8>,
    other_nonce: Vec<u8>,
    /// Where the other end listens: its name.
    pub(crate) peer: String,
    input: Frames,
    seen: usize,
    /// Frames that wait until both know each other.
    held: Vec<u8>,
    output: Vec<u8>,
    /// Neither end has closed it.
    pub(crate) open: bool,
    /// The other said that it leaves.
    pub(crate) bye: bool,
    pub(crate) lane: Lane,
    /// The offer of UCX was sent.
    offered: bool,
    /// Why the other end is not sent to by UCX, when that is news.
    pub(crate) note: Option<String>,
}

impl Link {
    /// Begins to connect; does not wait.
    pub(crate) fn connect(address: &str) -> io::Result<Link> {
        let target: SocketAddr = address
            .parse()
            .map_err(|_| io::Error::other(format!("'{address}' is not an address")))?;
        let family = match target {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Stream, flags, None)?;
        let begun = match target {
            SocketAddr::V4(v4) => connect(fd.as_raw_fd(), &SockaddrIn::from(v4)),
            SocketAddr::V6(v6) => connect(fd.as_raw_fd(), &SockaddrIn6::from(v6)),
        };
        match begun {
            Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        let mut link = Link::new(TcpStream::from(fd), Stage::Connecting)?;
        address.clone_into(&mut link.peer);
        Ok(link)
    }

    /// One that was accepted.
    pub(crate) fn accepted(stream: TcpStream) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Link::new(stream, Stage::Accepted)
    }

    fn new(stream: TcpStream, stage: Stage) -> io::Result<Link> {
        // Rounds of a collective are small and wait for each other.
        setsockopt(&stream, sockopt::TcpNoDelay, &true)?;
        let mut nonce = vec![0; NONCE];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut nonce)?;
        Ok(Link {
            stream,
            stage,
            nonce,
            other_nonce: Vec::new(),
            peer: String::new(),
            input: Frames::default(),
            seen: 0,
            held: Vec::new(),
            output: Vec::new(),
            open: true,
            bye: false,
            lane: Lane::default(),
            offered: false,
            note: None,
        })
    }

    /// To poll.
    pub(crate) fn interest(&self) -> (i32, i16) {
        let writes = self.stage == Stage::Connecting || !self.output.is_empty();
        let events = libc::POLLIN | if writes { libc::POLLOUT } else { 0 };
        (self.stream.as_fd().as_raw_fd(), events)
    }

    /// Whether this end began it.
    pub(crate) fn is_outbound(&self) -> bool {
        matches!(self.stage, Stage::Connecting | Stage::Greeted)
    }

    /// Whether it is known whose other end it is.
    pub(crate) fn names_a_host(&self) -> bool {
        self.is_known() || self.is_outbound()
    }

    /// Whether messages may be sent: both ends know each other.
    pub(crate) fn is_known(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Sends a message, by UCX if that is open.
    pub(crate) fn send(&mut self, message: &Wire, ucx: Option<&mut Ucx>) {
        self.lane.count_sent();
        let (Way::Open(to, tag), Some(ucx)) = (&self.lane.way, ucx) else {
            return self.say(message);
        };
        let (to, tag) = (*to, *tag);
        let body = minicbor::to_vec(message).expect("writing to memory cannot fail");
        let packet = self.lane.packet(body);
        if let Err(e) = ucx.send(to, tag, packet) {
            self.lose_way(ucx, &e.to_string());
        }
    }

    /// Writes a message to the connection.
    pub(crate) fn say(&mut self, message: &Wire) {
        if self.stage == Stage::Open {
            frame::encode_into(message, &mut self.output);
            self.write();
        } else {
            frame::encode_into(message, &mut self.held);
        }
    }

    /// Tells the other end, once it is known, where this one is reached by UCX, or why it is not.
    pub(crate) fn offer(&mut self, own: &Result<Vec<u8>, String>) {
        if self.is_known() && self.open && !std::mem::replace(&mut self.offered, true) {
            self.say(&Wire::Ucx(own.clone().map(ByteVec::from)));
        }
    }

    /// The other end has sent its offer of UCX.
    fn try_way(&mut self, offer: Result<ByteVec, String>, ucx: Option<&mut Ucx>) {
        let (Some(ucx), Some(tag)) = (ucx, self.lane.other_tag()) else {
            return;
        };
        let way = offer.and_then(|address| ucx.connect(&address).map_err(|e| e.to_string()));
        match way {
            Ok(endpoint) => {
                self.lane.way = Way::Tried(endpoint, tag);
                if let Err(e) = ucx.send(endpoint, tag, self.lane.trial()) {
                    self.lose_way(ucx, &e.to_string());
                }
            }
            Err(why) => self.note = Some(format!("{}: {why}", self.peer)),
        }
    }

    /// UCX does not lead to the other end, or not any more.
    pub(crate) fn lose_way(&mut self, ucx: &mut Ucx, why: &str) {
        if let Way::Tried(endpoint, _) | Way::Open(endpoint, _) = self.lane.way {
            ucx.close(endpoint);
        }
        self.note = Some(format!("{}: {why}", self.peer));
        for message in self.lane.give_up() {
            self.say(&message);
        }
    }

    /// A packet of this connection's tag came by UCX; the messages whose turn it is.
    pub(crate) fn packet(&mut self, packet: &[u8]) -> Vec<Wire> {
        let mut messages = Vec::new();
        match self.lane.opened(packet) {
            Some(Packet::Trial) => self.say(&Wire::Reached),
            Some(Packet::Message(number, body)) => {
                let bodies = self.lane.take(number, body);
                self.decode(bodies, &mut messages);
                if let Some(news) = self.lane.news() {
                    self.say(&news);
                }
            }
            None => eprintln!("a packet that is not of '{}' is left alone", self.peer),
        }
        messages
    }

    /// A message came by the connection.
    fn take(&mut self, message: Wire, ucx: Option<&mut Ucx>, messages: &mut Vec<Wire>) {
        match message {
            Wire::Bye => self.bye = true,
            Wire::Ucx(offer) => self.try_way(offer, ucx),
            Wire::Reached => {
                if let Way::Tried(endpoint, tag) = self.lane.way {
                    eprintln!("messages to the host at {} go by UCX", self.peer);
                    self.lane.way = Way::Open(endpoint, tag);
                }
            }
            Wire::Acknowledged(count) => self.lane.acknowledged(count),
            Wire::Again(number, body) => {
                let bodies = self.lane.take(number, body.into());
                self.decode(bodies, messages);
            }
            message => {
                messages.push(message);
                let bodies = self.lane.count_taken();
                self.decode(bodies, messages);
            }
        }
    }

    fn decode(&mut self, bodies: Vec<Vec<u8>>, messages: &mut Vec<Wire>) {
        for body in bodies {
            match frame::decode(&body) {
                Ok(message) => messages.push(message),
                Err(e) => {
                    eprintln!("the host at {} is not understood: {e}", self.peer);
                    self.open = false;
                }
            }
        }
    }

    /// Something is to be read or written. `own` is where this host listens.
    pub(crate) fn serve(&mut self, key: &[u8], own: &str, mut ucx: Option<&mut Ucx>) -> Vec<Wire> {
        if self.stage == Stage::Connecting {
            if let Ok(Some(e)) | Err(e) = self.stream.take_error() {
                eprintln!("the host at {} cannot be reached: {e}", self.peer);
                self.open = false;
                return Vec::new();
            }
            if self.stream.peer_addr().is_err() {
                return Vec::new();
            }
            self.stage = Stage::Greeted;
            let hello = Hand::Hello(self.nonce.clone().into(), own.to_owned());
            frame::encode_into(&hello, &mut self.output);
        }
        self.write();
        self.read();
        let mut messages = Vec::new();
        while self.open || self.stage == Stage::Open {
            if self.stage != Stage::Open {
                if !self.shake(key, own) {
                    break;
                }
                continue;
            }
            match self.input.take() {
                Ok(Some(message)) => self.take(message, ucx.as_deref_mut(), &mut messages),
                Ok(None) => break,
                Err(e) => {
                    eprintln!("the host at {} is not understood: {e}", self.peer);
                    self.open = false;
                    break;
                }
            }
        }
        self.write();
        messages
    }

    /// Takes a step of the handshake; whether there was one to take.
    fn shake(&mut self, key: &[u8], own: &str) -> bool {
        let hand = match self.input.take::<Hand>() {
            // Messages after the proof come with it, and may be long.
            Ok(Some(hand)) => hand,
            Ok(None) if self.seen <= STRANGER_MAX => return false,
            _ => return self.refuse("it does not speak as a host"),
        };
        match (&self.stage, hand) {
            (Stage::Accepted, Hand::Hello(nonce, peer)) => {
                self.other_nonce = nonce.into();
                self.peer = peer;
                let proof = proof(key, b"welcome", &self.other_nonce, &self.nonce, own);
                let welcome = Hand::Welcome(self.nonce.clone().into(), proof.into());
                frame::encode_into(&welcome, &mut self.output);
                self.stage = Stage::Welcomed;
            }
            (Stage::Greeted, Hand::Welcome(nonce, given)) => {
                self.other_nonce = nonce.into();
                if !holds(
                    key,
                    b"welcome",
                    &self.nonce,
                    &self.other_nonce,
                    &self.peer,
                    &given,
                ) {
                    return self.refuse("it does not know the job's key");
                }
                let own = proof(key, b"proof", &self.other_nonce, &self.nonce, own);
                frame::encode_into(&Hand::Proof(own.into()), &mut self.output);
                self.opened(key);
            }
            (Stage::Welcomed, Hand::Proof(given)) => {
                if !holds(
                    key,
                    b"proof",
                    &self.nonce,
                    &self.other_nonce,
                    &self.peer,
                    &given,
                ) {
                    return self.refuse("it does not know the job's key");
                }
                self.opened(key);
            }
            _ => return self.refuse("it does not keep to the order of a greeting"),
        }
        true
    }

    fn opened(&mut self, key: &[u8]) {
        let role = b"ucx";
        self.lane.set_codes(
            mac(key, role, &self.other_nonce, &self.nonce, ""),
            mac(key, role, &self.nonce, &self.other_nonce, ""),
        );
        self.stage = Stage::Open;
        let held = std::mem::take(&mut self.held);
        self.output.extend_from_slice(&held);
    }

    fn refuse(&mut self, why: &str) -> bool {
        eprintln!("a connection of '{}' is closed: {why}", self.peer);
        self.open = false;
        false
    }

    fn read(&mut self) {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.open = false;
                    return;
                }
                Ok(n) => {
                    self.seen += n;
                    self.input.push(&chunk[..n]);
                    if n < chunk.len() || (self.stage != Stage::Open && self.seen > STRANGER_MAX) {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.open = false;
                    return;
                }
            }
        }
    }

    fn write(&mut self) {
        let mut done = 0;
        while done < self.output.len() && self.open && self.stage != Stage::Connecting {
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Earlier messages of the other end may still be read; reading finds the end.
                Err(_) => done = self.output.len(),
            }
        }
        self.output.drain(..done);
    }

    /// Says good-bye. What may not have come by UCX is said before it.
    pub(crate) fn leave(&mut self) {
        for message in self.lane.give_up() {
            self.say(&message);
        }
        self.say(&Wire::Bye);
    }

    /// Writes the rest, waiting for the other end if it must, but not for long.
    pub(crate) fn finish(&mut self, patience: std::time::Duration) {
        if self.stage != Stage::Open || self.output.is_empty() || !self.open {
            return;
        }
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(patience));
        let _ = self.stream.write_all(&self.output);
        self.output.clear();
    }
}

fn mac(key: &[u8], role: &[u8], asked: &[u8], own: &[u8], name: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [role, asked, own, name.as_bytes()] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

/// What shows that one knows the key: over the other's nonce, one's own and one's name.
fn proof(key: &[u8], role: &[u8], asked: &[u8], own: &[u8], name: &str) -> Vec<u8> {
    mac(key, role, asked, own, name)
        .finalize()
        .into_bytes()
        .to_vec()
}

fn holds(key: &[u8], role: &[u8], asked: &[u8], theirs: &[u8], name: &str, given: &[u8]) -> bool {
    mac(key, role, asked, theirs, name)
        .verify_slice(given)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Reads a long message that was sent before the ends knew each other.
    fn talk(key: &[u8], other: &[u8]) -> Vec<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut near = Link::connect(&address).unwrap();
        near.send(&Wire::Pmi(vec![7; 3 * STRANGER_MAX].into()), None);
        let mut far = Link::accepted(listener.accept().unwrap().0).unwrap();
        let mut got = Vec::new();
        while got.is_empty() && near.open && far.open {
            let mut fds = [near.interest(), far.interest()].map(|(fd, events)| libc::pollfd {
                fd,
                events,
                revents: 0,
            });
            crate::ends::poll(&mut fds, 10_000).unwrap();
            near.serve(key, "127.0.0.1:1", None);
            got.extend(far.serve(other, &address, None));
        }
        got
    }

    #[test]
    fn a_long_message_may_follow_the_greeting_at_once() {
        let got = talk(b"key", b"key");
        assert!(matches!(&got[..], [Wire::Pmi(bytes)] if bytes.len() == 3 * STRANGER_MAX));
    }

    #[test]
    fn without_the_key_messages_are_ignored() {
        assert!(talk(b"key", b"another").is_empty());
    }
}
