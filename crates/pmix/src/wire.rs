//! Messages between hosts: frames of CBOR over TCP, after each end has proved that it knows the job's key.

use crate::ProcName;
use crate::info::Packed;
use crate::job::Job;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::Message;

/// A published value.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub(crate) struct PublishedValue {
    /// The process that published it.
    #[n(0)]
    pub(crate) owner: ProcName,
    /// The data from libpmix.
    #[n(1)]
    pub(crate) value: Packed,
}

/// Way to reach a host by UCX.
#[derive(Clone, Debug, Encode, Decode, Validate)]
pub(crate) enum UcxOffer {
    /// At this address of a worker of UCX.
    #[n(0)]
    Address(#[n(0)] ByteVec),
    /// The host is not reachable by UCX, for this reason.
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
        /// The collective: its kind and members.
        #[n(0)]
        name: ByteVec,
        /// The sequence number among collectives of that kind and these members.
        #[n(1)]
        number: u64,
        /// Its round.
        #[n(2)]
        round: u32,
        /// Worst status that is known.
        #[n(3)]
        status: i32,
        /// Contributions.
        #[n(4)]
        parts: Vec<ByteVec>,
    },
    /// Get what this process has put. Answered by `Fetched`.
    #[n(1)]
    Fetch {
        /// For the answer.
        #[n(0)]
        ticket: u64,
        /// The process.
        #[n(1)]
        proc: ProcName,
    },
    /// The answer.
    #[n(2)]
    Fetched {
        /// The question's.
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
        /// To whom or by whom.
        #[n(1)]
        source: ProcName,
        /// More about it.
        #[n(2)]
        infos: Packed,
    },
    /// Signals for processes of this host.
    #[n(4)]
    Signal {
        /// The names; an empty list means all.
        #[n(0)]
        targets: Vec<ProcName>,
        /// Number of the signal.
        #[n(1)]
        signal: i32,
    },
    /// To the keeper of names. Answered by `Answer`.
    #[n(5)]
    Publish {
        /// For the answer.
        #[n(0)]
        ticket: u64,
        /// Key and value.
        #[n(1)]
        entries: Vec<(String, PublishedValue)>,
    },
    /// To the keeper of names. Answered by `Found`.
    #[n(6)]
    Lookup {
        /// For the answer.
        #[n(0)]
        ticket: u64,
        /// The key that is looked for.
        #[n(1)]
        keys: Vec<String>,
        /// Wait until all are there.
        #[n(2)]
        wait: bool,
        /// Seconds to wait; 0 is no limit.
        #[n(3)]
        timeout_s: u64,
    },
    /// The answer.
    #[n(7)]
    Found {
        /// The question's.
        #[n(0)]
        ticket: u64,
        /// Values.
        #[n(1)]
        entries: Vec<PublishedValue>,
    },
    /// To the keeper of names. Answered by `Answer`.
    #[n(8)]
    Unpublish {
        /// For the answer.
        #[n(0)]
        ticket: u64,
        /// The publisher.
        #[n(1)]
        proc: ProcName,
        /// The keys; none is all.
        #[n(2)]
        keys: Vec<String>,
    },
    /// A status.
    #[n(9)]
    Answer {
        /// The question's.
        #[n(0)]
        ticket: u64,
        /// Status of PMIx.
        #[n(1)]
        status: i32,
    },
    /// A step that a task asked for has come up: to the host of that task. Answered by `Relatives`.
    #[n(10)]
    Child {
        /// The request that caused it.
        #[n(0)]
        ticket: u64,
        /// The step.
        #[n(1)]
        job: Job,
    },
    /// Name spaces that are related to this host's: their processes may be talked to. Acknowledged by `Answer`.
    #[n(11)]
    Relatives {
        /// For the acknowledgement.
        #[n(0)]
        ticket: u64,
        /// The name spaces.
        #[n(1)]
        jobs: Vec<Job>,
        /// The host that keeps names for all of them.
        #[n(2)]
        keeper: String,
    },
    /// This host leaves regularly and sends nothing more.
    #[n(12)]
    Bye,
    /// Between hosts of PMI-1 and PMI-2: their own encoded words.
    #[n(13)]
    Pmi(#[n(0)] ByteVec),
    /// Where this host is reached by UCX, as said of [`crate::lane`]; or why it is not.
    #[n(14)]
    Ucx(#[n(0)] UcxOffer),
    /// A message has come by UCX: the next ones may, too.
    #[n(15)]
    Reached,
    /// The number of messages of this connection that have been received by either transport.
    #[n(16)]
    Acknowledged(#[n(0)] u64),
    /// The message of this number, an encoded one, which may not have come by UCX.
    #[n(17)]
    Again(#[n(0)] u64, #[n(1)] ByteVec),
}

impl Message for Wire {}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_fixtures::{Root, check};
    use muster_proto::frame;

    /// Hosts of a step may be of neighbouring versions.
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
