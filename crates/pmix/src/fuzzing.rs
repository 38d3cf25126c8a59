//! Entry points for fuzz targets: decoders of messages between step daemons and hosts, of messages
//! among hosts, and of PMI-1 and PMI-2 requests of tasks. Not part of the crate's interface.

use crate::control::{FromHost, ToHost};
use crate::pmi::PmiWire;
use crate::pmi::protocol::{Dialect, TaskConnection};
use crate::pmi::server::Puts;
use crate::wire::Wire;
use muster_proto::frame;

/// Number of message kinds that [`decode`] knows.
pub const KINDS: usize = 7;

/// Decodes bytes as a message of the given kind, and checks that the message survives encoding and
/// decoding.
///
/// # Panics
/// The message differs after encoding and decoding.
pub fn decode(kind: usize, bytes: &[u8]) {
    macro_rules! round_trip {
        ($type:ty) => {
            if let Ok(value) = frame::decode::<$type>(bytes) {
                let once = minicbor::to_vec(&value).expect("writing to memory cannot fail");
                let again = frame::decode::<$type>(&once).expect("what was decoded can be again");
                let twice = minicbor::to_vec(&again).expect("writing to memory cannot fail");
                assert!(once == twice, "{value:?} is {again:?} after a round trip");
            }
        };
    }
    match kind % KINDS {
        0 => round_trip!(FromHost),
        1 => round_trip!(ToHost),
        2 => round_trip!(Wire),
        3 => round_trip!(PmiWire),
        4 => round_trip!(Puts),
        5 => requests(Dialect::One, bytes),
        _ => requests(Dialect::Two, bytes),
    }
}

/// Requests of a task, delivered in pieces.
fn requests(dialect: Dialect, bytes: &[u8]) {
    let mut talk = TaskConnection::default();
    talk.speak(dialect);
    for piece in bytes.chunks(9) {
        talk.push(piece);
        loop {
            match talk.take() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
