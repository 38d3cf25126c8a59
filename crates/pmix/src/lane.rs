//! Messages by UCX, beside a TCP connection between two hosts. The connection comes first, stays open, and authenticates the
//! peer; UCX only carries bytes faster where there is a network for it. Nothing depends on UCX:
//!
//! * Both ends count messages. A message by UCX carries its number and waits for those before it.
//! * Nothing is sent by UCX before the other end has confirmed that a first, empty message has come.
//! * One end sends its first message, and the other end answers with its own. UCX 1.13 aborts over TCP where both
//!   connect at once and one of them closes or ends: in a test of four processes 18 of 100 rounds, and none in this order.
//! * Messages by UCX are kept until the other end has acknowledged them. When UCX fails, or at the end, they are sent again
//!   over the connection.
//! * A message by UCX is authenticated (HMAC), as any process may send to a UCX address.

use crate::ucx::Endpoint;
use crate::wire::Wire;
use hmac::{Hmac, Mac};
use minicbor::bytes::ByteVec;
use sha2::Sha256;
use std::collections::{BTreeMap, VecDeque};

/// Number of the first, empty message, which carries no data.
const TRIAL: u64 = u64::MAX;
/// Bytes of sequence number and authentication code before a message.
const HEAD: usize = 8 + CODE;
const CODE: usize = 32;
/// An acknowledgement is sent after this many messages by UCX, or bytes of them.
const TELL_AFTER: u64 = 64;
const TELL_BYTES: usize = 256 << 10;

/// State of the UCX lane.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// Messages go over TCP only.
    #[default]
    None,
    /// The other end, whose UCX address this is, sends its first packet first.
    Offered(Vec<u8>),
    /// The first packet was sent and is not confirmed yet.
    Tried(Endpoint, u64),
    /// Messages go by UCX to this endpoint, under this tag.
    Open(Endpoint, u64),
}

/// Message counters of one connection, and its UCX lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) way: LaneState,
    /// The other end's first packet has come.
    pub(crate) is_reached: bool,
    /// Authenticate sent and received packets; set once the handshake is complete.
    codes: Option<(Hmac<Sha256>, Hmac<Sha256>)>,
    /// The tag with which the other end sends.
    tag: Option<u64>,
    sent: u64,
    taken: u64,
    /// Value of `taken` in the last acknowledgement, and the bytes received since.
    reported: u64,
    unreported: usize,
    /// Messages that arrived by UCX out of order.
    early: BTreeMap<u64, Vec<u8>>,
    /// Messages that were sent by UCX and not acknowledged yet.
    unacknowledged: VecDeque<(u64, Vec<u8>)>,
}

/// A packet received by UCX.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// The first packet, which shows that the lane works.
    Trial,
    /// A message.
    Message(u64, Vec<u8>),
}

impl Lane {
    /// Sets the authentication codes, which both ends derive from the job's key and the two nonces.
    pub(crate) fn set_codes(&mut self, out: Hmac<Sha256>, into: Hmac<Sha256>) {
        self.tag = Some(tag(&into));
        self.codes = Some((out, into));
    }

    /// Whether a packet with this tag belongs to this connection.
    pub(crate) fn has_tag(&self, tag: u64) -> bool {
        self.tag == Some(tag)
    }

    /// The tag for packets to the other end.
    pub(crate) fn other_tag(&self) -> Option<u64> {
        self.codes.as_ref().map(|(out, _)| tag(out))
    }

    /// Whether this lane uses the given endpoint.
    pub(crate) fn leads_to(&self, endpoint: Endpoint) -> bool {
        matches!(self.way, LaneState::Tried(e, _) | LaneState::Open(e, _) if e == endpoint)
    }

    /// Counts a message that is about to be sent.
    pub(crate) fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// Encodes the last counted message as a packet, and keeps it until it is acknowledged.
    pub(crate) fn packet(&mut self, body: Vec<u8>) -> Vec<u8> {
        let number = self.sent - 1;
        let packet = self.seal(number, &body);
        self.unacknowledged.push_back((number, body));
        packet
    }

    /// The packet of the first, empty message.
    pub(crate) fn trial(&self) -> Vec<u8> {
        self.seal(TRIAL, &[])
    }

    fn seal(&self, number: u64, body: &[u8]) -> Vec<u8> {
        let mut packet = Vec::with_capacity(HEAD + body.len());
        packet.extend_from_slice(&number.to_le_bytes());
        if let Some((out, _)) = &self.codes {
            packet.extend_from_slice(&code(out, number, body).finalize().into_bytes());
        }
        packet.extend_from_slice(body);
        packet
    }

    /// The message in a packet; `None` if its authentication code is wrong.
    pub(crate) fn open(&self, packet: &[u8]) -> Option<Packet> {
        let (_, into) = self.codes.as_ref()?;
        let (head, body) = packet.split_at_checked(HEAD)?;
        let (number, given) = head.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(*number);
        code(into, number, body).verify_slice(given).ok()?;
        Some(match number {
            TRIAL => Packet::Trial,
            _ => Packet::Message(number, body.to_vec()),
        })
    }

    /// Takes a message that arrived by the connection, which keeps the order; returns the messages
    /// from UCX that follow it.
    pub(crate) fn count_taken(&mut self) -> Vec<Vec<u8>> {
        self.taken += 1;
        self.in_turn()
    }

    /// Takes a numbered message; returns the messages that are now in order.
    pub(crate) fn take(&mut self, number: u64, body: Vec<u8>) -> Vec<Vec<u8>> {
        self.unreported += body.len();
        if number >= self.taken {
            self.early.insert(number, body);
        }
        self.in_turn()
    }

    fn in_turn(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.taken {
                break;
            }
            let (number, body) = entry.remove_entry();
            if number == self.taken {
                self.taken += 1;
                out.push(body);
            }
        }
        out
    }

    /// The acknowledgement of received messages, if one is due.
    pub(crate) fn news(&mut self) -> Option<Wire> {
        let due = self.taken - self.reported >= TELL_AFTER || self.unreported >= TELL_BYTES;
        due.then(|| {
            self.reported = self.taken;
            self.unreported = 0;
            Wire::Acknowledged(self.taken)
        })
    }

    /// The other end has acknowledged messages up to this number.
    pub(crate) fn acknowledged(&mut self, count: u64) {
        while self.unacknowledged.front().is_some_and(|(n, _)| *n < count) {
            self.unacknowledged.pop_front();
        }
    }

    /// Stops using UCX; returns the messages that have to be sent again over the connection.
    pub(crate) fn give_up(&mut self) -> Vec<Wire> {
        self.way = LaneState::None;
        let unacknowledged = std::mem::take(&mut self.unacknowledged);
        let again = |(number, body): (u64, Vec<u8>)| Wire::Again(number, ByteVec::from(body));
        unacknowledged.into_iter().map(again).collect()
    }
}

fn code(key: &Hmac<Sha256>, number: u64, body: &[u8]) -> Hmac<Sha256> {
    let mut code = key.clone();
    code.update(&number.to_le_bytes());
    code.update(body);
    code
}

/// The tag of one direction. Both ends compute the same tag.
fn tag(key: &Hmac<Sha256>) -> u64 {
    let bytes = key.clone().finalize().into_bytes();
    bytes
        .iter()
        .take(8)
        .fold(0, |tag, b| tag << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Lane, Lane) {
        let key = |text: &[u8]| Hmac::<Sha256>::new_from_slice(text).unwrap();
        let (mut a, mut b) = (Lane::default(), Lane::default());
        a.set_codes(key(b"ab"), key(b"ba"));
        b.set_codes(key(b"ba"), key(b"ab"));
        (a, b)
    }

    fn packet(lane: &mut Lane, body: &[u8]) -> Vec<u8> {
        lane.count_sent();
        lane.packet(body.to_vec())
    }

    fn taken(lane: &mut Lane, packet: &[u8]) -> Vec<Vec<u8>> {
        match lane.open(packet) {
            Some(Packet::Message(number, body)) => lane.take(number, body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_are_taken_in_their_order_and_once() {
        let (mut a, mut b) = pair();
        assert!(b.has_tag(a.other_tag().unwrap()) && !a.has_tag(a.other_tag().unwrap()));
        // The first message goes over the connection and arrives later than the others.
        a.count_sent();
        let first = packet(&mut a, b"1");
        let second = packet(&mut a, b"2");
        assert!(taken(&mut b, &second).is_empty());
        assert!(taken(&mut b, &first).is_empty());
        assert_eq!(b.count_taken(), [b"1".to_vec(), b"2".to_vec()]);
        assert!(taken(&mut b, &second).is_empty());
    }

    #[test]
    fn what_was_sent_last_is_sent_again_when_the_way_is_lost() {
        let (mut a, mut b) = pair();
        let packets: Vec<Vec<u8>> = (0..100u8).map(|i| packet(&mut a, &[i])).collect();
        let mut got = Vec::new();
        for packet in &packets[..70] {
            got.extend(taken(&mut b, packet));
            if let Some(Wire::Acknowledged(count)) = b.news() {
                a.acknowledged(count);
            }
        }
        let again = a.give_up();
        assert_eq!(again.len(), 100 - 64);
        for wire in again {
            let Wire::Again(number, body) = wire else {
                panic!("{wire:?}");
            };
            got.extend(b.take(number, body.into()));
        }
        assert_eq!(got, (0..100u8).map(|i| vec![i]).collect::<Vec<_>>());
        // Later messages go over the connection only.
        a.count_sent();
        assert!(b.count_taken().is_empty());
        assert!(a.give_up().is_empty());
    }

    #[test]
    fn packets_of_others_are_not_opened() {
        let (mut a, b) = pair();
        assert_eq!(b.open(&a.trial()), Some(Packet::Trial));
        let mut packet = packet(&mut a, b"text");
        assert_eq!(a.open(&packet), None, "of this end's own");
        packet[HEAD] ^= 1;
        assert_eq!(b.open(&packet), None);
        assert_eq!(b.open(b"short"), None);
        assert_eq!(Lane::default().open(&packet), None);
    }
}
