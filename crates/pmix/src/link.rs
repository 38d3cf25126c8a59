//! One connection between two hosts. Both ends prove that they know the job's key
//! ([`crate::handshake`]) before any message is read; messages are encrypted. If both ends have
//! UCX, messages go by UCX once it is known to work ([`crate::lane`]); UCX messages are
//! authenticated but not encrypted.

use crate::handshake::{Handshake, HostIdentity};
use crate::lane::{Lane, LaneState, Packet};
use crate::ucx::Ucx;
use crate::wire::{UcxOffer, Wire};
use muster_channel::Channel;
use muster_channel::admission::StrangerId;
use muster_proto::frame::{self, Frames};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect, setsockopt, socket,
    sockopt,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

#[derive(Debug)]
enum LinkStage {
    /// The TCP connection is being established.
    Connecting,
    /// The handshake is in progress.
    Unknown(Box<Handshake>),
    /// The handshake is complete.
    Open(Channel),
}

/// An accepted connection whose other end has not proved yet that it is a host of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnprovenLink {
    /// Identifies the connection in the count of unproven connections.
    pub(crate) id: StrangerId,
    /// Time at which it is closed if it is still unproven.
    pub(crate) until: Instant,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    stage: LinkStage,
    /// Address at which the other end listens, which is its name.
    pub(crate) peer: String,
    input: Frames,
    /// Frames to send once the handshake is complete.
    held: Vec<u8>,
    /// Encrypted bytes that wait for the socket to become writable.
    output: Vec<u8>,
    /// Whether neither end has closed the connection.
    pub(crate) open: bool,
    /// The other end said goodbye.
    pub(crate) bye: bool,
    pub(crate) lane: Lane,
    /// The UCX offer was sent.
    offered: bool,
    /// The reason why UCX is not used towards the other end, until it has been reported.
    pub(crate) note: Option<String>,
    /// Set as long as the connection is unproven.
    pub(crate) stranger: Option<UnprovenLink>,
}

impl Link {
    /// Starts a connection without waiting for it.
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
        let mut link = Link::new(TcpStream::from(fd), LinkStage::Connecting)?;
        address.clone_into(&mut link.peer);
        Ok(link)
    }

    /// Wraps an accepted connection.
    pub(crate) fn accepted(stream: TcpStream) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        let handshake = Handshake::accepted().map_err(io::Error::other)?;
        Link::new(stream, LinkStage::Unknown(Box::new(handshake)))
    }

    fn new(stream: TcpStream, stage: LinkStage) -> io::Result<Link> {
        // Rounds of a collective are small messages that wait for each other, so delaying packets
        // would slow them down.
        setsockopt(&stream, sockopt::TcpNoDelay, &true)?;
        Ok(Link {
            stream,
            stage,
            peer: String::new(),
            input: Frames::default(),
            held: Vec::new(),
            output: Vec::new(),
            open: true,
            bye: false,
            lane: Lane::default(),
            offered: false,
            note: None,
            stranger: None,
        })
    }

    /// Descriptor and events to poll.
    pub(crate) fn interest(&self) -> (i32, i16) {
        let writes = matches!(self.stage, LinkStage::Connecting) || !self.output.is_empty();
        let events = libc::POLLIN | if writes { libc::POLLOUT } else { 0 };
        (self.stream.as_fd().as_raw_fd(), events)
    }

    /// Whether this end opened the connection.
    pub(crate) fn is_outbound(&self) -> bool {
        match &self.stage {
            LinkStage::Connecting => true,
            LinkStage::Unknown(handshake) => handshake.is_outbound(),
            LinkStage::Open(_) => false,
        }
    }

    /// Whether the host at the other end is known.
    pub(crate) fn names_a_host(&self) -> bool {
        self.is_known() || self.is_outbound()
    }

    /// Whether the other end has shown that it has the job's key, and is not known yet.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(&self.stage, LinkStage::Unknown(handshake) if handshake.is_answered())
    }

    /// Whether messages may be sent: both ends know each other.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.stage, LinkStage::Open(_))
    }

    /// Sends a message, by UCX if the lane is open.
    pub(crate) fn send(&mut self, message: &Wire, ucx: Option<&mut Ucx>) {
        self.lane.count_sent();
        let (LaneState::Open(to, tag), Some(ucx)) = (&self.lane.way, ucx) else {
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
        frame::encode_into(message, &mut self.held);
        if self.is_known() {
            self.seal();
            self.write();
        }
    }

    /// Sends the UCX offer of this host, or the reason why UCX is not used. The handshake must be
    /// complete.
    pub(crate) fn offer(&mut self, own: &Result<Vec<u8>, String>) {
        if self.is_known() && self.open && !std::mem::replace(&mut self.offered, true) {
            self.say(&Wire::Ucx(match own {
                Ok(address) => UcxOffer::Address(address.clone().into()),
                Err(why) => UcxOffer::Unavailable(why.clone()),
            }));
        }
    }

    /// Handles the UCX offer of the other end, which comes once. The end with the lower address connects first.
    fn take_offer(&mut self, offer: UcxOffer, own: &str, ucx: Option<&mut Ucx>) {
        let (Some(ucx), LaneState::None) = (ucx, &self.lane.way) else {
            return;
        };
        match offer {
            UcxOffer::Unavailable(why) => self.note = Some(format!("{}: {why}", self.peer)),
            UcxOffer::Address(address) if own < self.peer.as_str() || self.lane.is_reached => {
                self.try_way(&address, ucx);
            }
            UcxOffer::Address(address) => self.lane.way = LaneState::Offered(address.into()),
        }
    }

    /// Connects to the other end's UCX address and sends the first packet.
    fn try_way(&mut self, address: &[u8], ucx: &mut Ucx) {
        let Some(tag) = self.lane.other_tag() else {
            return;
        };
        match ucx.connect(address) {
            Ok(endpoint) => {
                self.lane.way = LaneState::Tried(endpoint, tag);
                if let Err(e) = ucx.send(endpoint, tag, self.lane.trial()) {
                    self.lose_way(ucx, &e.to_string());
                }
            }
            Err(e) => {
                self.lane.way = LaneState::None;
                self.note = Some(format!("{}: {e}", self.peer));
            }
        }
    }

    /// UCX does not reach the other end, or has stopped working.
    pub(crate) fn lose_way(&mut self, ucx: &mut Ucx, why: &str) {
        if let LaneState::Tried(endpoint, _) | LaneState::Open(endpoint, _) = self.lane.way {
            ucx.close(endpoint);
        }
        self.note = Some(format!("{}: {why}", self.peer));
        for message in self.lane.give_up() {
            self.say(&message);
        }
    }

    /// Takes a UCX packet with this connection's tag; returns the messages that are now in order.
    pub(crate) fn packet(&mut self, packet: &[u8], ucx: &mut Ucx) -> Vec<Wire> {
        let mut messages = Vec::new();
        match self.lane.open(packet) {
            Some(Packet::Trial) => {
                self.say(&Wire::Reached);
                // It may come before the offer, which goes by the connection.
                self.lane.is_reached = true;
                if let LaneState::Offered(address) = &mut self.lane.way {
                    let address = std::mem::take(address);
                    self.try_way(&address, ucx);
                }
            }
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

    /// Handles a message that arrived over the connection.
    fn take(&mut self, message: Wire, own: &str, ucx: Option<&mut Ucx>, messages: &mut Vec<Wire>) {
        match message {
            Wire::Bye => self.bye = true,
            Wire::Ucx(offer) => self.take_offer(offer, own, ucx),
            Wire::Reached => {
                if let LaneState::Tried(endpoint, tag) = self.lane.way {
                    eprintln!("messages to the host at {} go by UCX", self.peer);
                    self.lane.way = LaneState::Open(endpoint, tag);
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
                    eprintln!("invalid message from the host at {}: {e}", self.peer);
                    self.open = false;
                }
            }
        }
    }

    /// Reads and writes as far as the socket permits; returns the received messages.
    pub(crate) fn serve(&mut self, own: HostIdentity<'_>, mut ucx: Option<&mut Ucx>) -> Vec<Wire> {
        if matches!(self.stage, LinkStage::Connecting) {
            if let Ok(Some(e)) | Err(e) = self.stream.take_error() {
                eprintln!("the host at {} cannot be reached: {e}", self.peer);
                self.open = false;
                return Vec::new();
            }
            if self.stream.peer_addr().is_err() {
                return Vec::new();
            }
            match Handshake::open(own, &self.peer, &mut self.output) {
                Ok(handshake) => self.stage = LinkStage::Unknown(Box::new(handshake)),
                Err(why) => self.refuse(&why),
            }
        }
        self.write();
        self.read(own);
        let mut messages = Vec::new();
        // Messages that arrived before the other end closed the connection still count.
        while self.is_known() {
            match self.input.take() {
                Ok(Some(message)) => {
                    self.take(message, own.address, ucx.as_deref_mut(), &mut messages)
                }
                Ok(None) => break,
                Err(e) => {
                    eprintln!("invalid message from the host at {}: {e}", self.peer);
                    self.open = false;
                    break;
                }
            }
        }
        self.write();
        messages
    }

    /// Takes received bytes.
    fn take_bytes(&mut self, bytes: &[u8], own: HostIdentity<'_>) {
        match &mut self.stage {
            LinkStage::Connecting => {}
            LinkStage::Unknown(handshake) => match handshake.take(bytes, own, &mut self.output) {
                Ok(None) => {}
                Ok(Some(known)) => {
                    self.peer = known.peer;
                    self.lane.set_codes(known.code_out, known.code_in);
                    self.stage = LinkStage::Open(known.channel);
                    self.seal();
                    // Bytes after the handshake may have arrived with it.
                    self.unseal(&[]);
                }
                Err(why) => self.refuse(&why),
            },
            LinkStage::Open(_) => self.unseal(bytes),
        }
    }

    fn unseal(&mut self, bytes: &[u8]) {
        let LinkStage::Open(channel) = &mut self.stage else {
            return;
        };
        let mut plain = Vec::new();
        channel.opener.push(bytes);
        loop {
            match channel.opener.open_next(&mut plain) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    self.refuse(&e.to_string());
                    break;
                }
            }
        }
        self.input.push(&plain);
    }

    /// Encrypts the queued frames.
    fn seal(&mut self) {
        let LinkStage::Open(channel) = &mut self.stage else {
            return;
        };
        // An empty record would mark the end of the stream.
        if self.held.is_empty() {
            return;
        }
        let sealed = channel.sealer.seal(&self.held, &mut self.output);
        self.held.clear();
        if let Err(e) = sealed {
            self.refuse(&e.to_string());
        }
    }

    fn refuse(&mut self, why: &str) {
        eprintln!("a connection of '{}' is closed: {why}", self.peer);
        self.open = false;
    }

    fn read(&mut self, own: HostIdentity<'_>) {
        let mut chunk = [0; 64 << 10];
        while self.open {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.open = false;
                    return;
                }
                Ok(n) => {
                    self.take_bytes(&chunk[..n], own);
                    if n < chunk.len() {
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
        while done < self.output.len() && self.open && !matches!(self.stage, LinkStage::Connecting)
        {
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Messages that the other end sent earlier may still be readable; reading finds the
                // end of the stream.
                Err(_) => done = self.output.len(),
            }
        }
        self.output.drain(..done);
    }

    /// Says goodbye. Messages that UCX may not have delivered are sent first.
    pub(crate) fn leave(&mut self) {
        for message in self.lane.give_up() {
            self.say(&message);
        }
        self.say(&Wire::Bye);
    }

    /// Writes the remaining output; waits for the other end for a limited time.
    pub(crate) fn finish(&mut self, patience: std::time::Duration) {
        if !self.is_known() || self.output.is_empty() || !self.open {
            return;
        }
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(patience));
        let _ = self.stream.write_all(&self.output);
        self.output.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A message that is longer than one record of the channel.
    const LONG: usize = 200_000;

    /// Reads a long message that was sent before the handshake was complete.
    fn talk(key: &[u8], other: &[u8]) -> Vec<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address_of_far = listener.local_addr().unwrap().to_string();
        let mut near = Link::connect(&address_of_far).unwrap();
        near.send(&Wire::Pmi(vec![7; LONG].into()), None);
        let mut far = Link::accepted(listener.accept().unwrap().0).unwrap();
        let mut got = Vec::new();
        while got.is_empty() && near.open && far.open {
            let mut fds = [near.interest(), far.interest()].map(|(fd, events)| libc::pollfd {
                fd,
                events,
                revents: 0,
            });
            crate::ends::poll(&mut fds, 10_000).unwrap();
            let address = "127.0.0.1:1";
            near.serve(HostIdentity { key, address }, None);
            let address = &*address_of_far;
            got.extend(far.serve(
                HostIdentity {
                    key: other,
                    address,
                },
                None,
            ));
        }
        got
    }

    #[test]
    fn a_long_message_may_follow_the_greeting_at_once() {
        let got = talk(b"key", b"key");
        assert!(matches!(&got[..], [Wire::Pmi(bytes)] if bytes.len() == LONG));
    }

    #[test]
    fn without_the_key_messages_are_ignored() {
        assert!(talk(b"key", b"another").is_empty());
    }
}
