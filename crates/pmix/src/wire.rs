//! Messages between hosts: CBOR frames over TCP, sent after each end has proved that it knows the
//! job's key.

use crate::ProcName;
use crate::info::Packed;
use crate::job::Job;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::Message;

/// A published value.
pub(crate) type Entry = (ProcName, Packed);

/// Whether and how a host is reachable by UCX.
#[derive(Clone, Debug, Encode, Decode, Validate)]
pub(crate) enum UcxOffer {
    /// Address of the host's UCX worker.
    #[n(0)]
    Address(#[n(0)] ByteVec),
    /// UCX is not used, for this reason.
    #[n(1)]
    Unavailable(#[n(0)] String),
}

/// Host to host.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) enum Wire {
    /// A round of a collective.
    #[n(0)]
    Exchange {
        /// Kind and members of the collective.
        #[n(0)]
        name: ByteVec,
        /// Sequence number among collectives of the same kind and members.
        #[n(1)]
        number: u64,
        /// Round of the exchange.
        #[n(2)]
        round: u32,
        /// Worst status known so far.
        #[n(3)]
        status: i32,
        /// Contributions.
        #[n(4)]
        parts: Vec<ByteVec>,
    },
    /// Request for the data that this process has put. Answered by `Fetched`.
    #[n(1)]
    Fetch {
        /// Ticket for the answer.
        #[n(0)]
        ticket: u64,
        /// The process.
        #[n(1)]
        proc: ProcName,
    },
    /// Answer to `Fetch`.
    #[n(2)]
    Fetched {
        /// Ticket of the request.
        #[n(0)]
        ticket: u64,
        /// Status of PMIx.
        #[n(1)]
        status: i32,
        /// The data from libpmix.
        #[n(2)]
        data: ByteVec,
    },
    /// An event for the tasks of this host.
    #[n(3)]
    Notify {
        /// The event.
        #[n(0)]
        code: i32,
        /// The process that raised the event, or that it is for.
        #[n(1)]
        source: ProcName,
        /// Further attributes of the event.
        #[n(2)]
        infos: Packed,
    },
    /// Signals for processes of this host.
    #[n(4)]
    Signal {
        /// The processes; an empty list means all.
        #[n(0)]
        targets: Vec<ProcName>,
        /// Number of the signal.
        #[n(1)]
        signal: i32,
    },
    /// Publish request to the name keeper. Answered by `Answer`.
    #[n(5)]
    Publish {
        /// Ticket for the answer.
        #[n(0)]
        ticket: u64,
        /// Key and value.
        #[n(1)]
        entries: Vec<(String, Entry)>,
    },
    /// Lookup request to the name keeper. Answered by `Found`.
    #[n(6)]
    Lookup {
        /// Ticket for the answer.
        #[n(0)]
        ticket: u64,
        /// The keys to look up.
        #[n(1)]
        keys: Vec<String>,
        /// Wait until all keys are published.
        #[n(2)]
        wait: bool,
        /// Timeout in seconds; 0 is no limit.
        #[n(3)]
        timeout_s: u64,
    },
    /// Answer to a lookup.
    #[n(7)]
    Found {
        /// Ticket of the request.
        #[n(0)]
        ticket: u64,
        /// Names found.
        #[n(1)]
        entries: Vec<Entry>,
    },
    /// Withdraw request to the name keeper. Answered by `Answer`.
    #[n(8)]
    Unpublish {
        /// Ticket for the answer.
        #[n(0)]
        ticket: u64,
        /// The publisher.
        #[n(1)]
        proc: ProcName,
        /// The keys; an empty list means all keys of the publisher.
        #[n(2)]
        keys: Vec<String>,
    },
    /// A status.
    #[n(9)]
    Answer {
        /// Ticket of the request.
        #[n(0)]
        ticket: u64,
        /// Status of PMIx.
        #[n(1)]
        status: i32,
    },
    /// To the host of the spawning task: the spawned step has started. Answered by `Relatives`.
    #[n(10)]
    Child {
        /// Ticket of the spawn request.
        #[n(0)]
        ticket: u64,
        /// The spawned step.
        #[n(1)]
        job: Job,
    },
    /// Name spaces related to this host's, whose processes may be addressed. Acknowledged by
    /// `Answer`.
    #[n(11)]
    Relatives {
        /// Ticket for the acknowledgement.
        #[n(0)]
        ticket: u64,
        /// The name spaces.
        #[n(1)]
        jobs: Vec<Job>,
        /// The name keeper of all of them.
        #[n(2)]
        keeper: String,
    },
    /// This host leaves in order; no further message follows.
    #[n(12)]
    Bye,
    /// Encoded messages between PMI-1 and PMI-2 servers.
    #[n(13)]
    Pmi(#[n(0)] ByteVec),
    /// UCX address of this host for [`crate::lane`], or the reason why it has none.
    #[n(14)]
    Ucx(#[n(0)] UcxOffer),
    /// Confirms a message that arrived by UCX: further messages may use UCX.
    #[n(15)]
    Reached,
    /// Number of messages of this connection that were received, by TCP or UCX.
    #[n(16)]
    Acknowledged(#[n(0)] u64),
    /// An encoded message with its number, sent again because UCX may not have delivered it.
    #[n(17)]
    Again(#[n(0)] u64, #[n(1)] ByteVec),
}

impl Message for Wire {}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_fixtures::{Root, check};
    use muster_proto::frame;

    /// Hosts of a step may differ by one version.
    #[test]
    fn messages_between_hosts_are_read() {
        let message = |bytes: &[u8]| {
            let message: Wire = frame::decode(bytes).map_err(|error| error.to_string())?;
            Ok(frame::encode(&message)[4..].to_vec())
        };
        let roots = [Root::new("pmix::wire::Wire", message)];
        check(
            env!("CARGO_MANIFEST_DIR"),
            "tests/fixtures/wire.txt",
            &roots,
            "",
        );
    }
}
