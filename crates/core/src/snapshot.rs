//! The whole state as bytes: a format version, then the primary fields as a CBOR map with numbered keys. Indexes are
//! left out and built anew.

use crate::apply;
use crate::policy::limits;
use crate::state::stored_bytes::StoredBytes;
use crate::state::triggers::{self, StoredTriggers};
use crate::state::{Blob, State};
use minicbor::bytes::ByteVec;
use minicbor::encode::Write;
use minicbor::{Decoder, Encode, Encoder};
use muster_model::ids::{BlobId, NodeIdx};
use muster_model::job::{Job, Reason};
use muster_model::node::Node;
use muster_model::reservation::Reservation;
use muster_model::shared_spec::SpecTable;
use std::convert::Infallible;
use std::sync::Arc;

/// The format that is written.
const FORMAT: u32 = 2;
/// Formats that are read: in the first every job carried its own specification.
const READ: std::ops::RangeInclusive<u32> = 1..=FORMAT;

/// Keys of the map.
mod key {
    pub(super) const CONFIG: u32 = 0;
    pub(super) const PARTITIONS: u32 = 1;
    pub(super) const NODES: u32 = 2;
    pub(super) const JOBS: u32 = 3;
    pub(super) const ARRAYS: u32 = 4;
    pub(super) const BLOBS: u32 = 5;
    pub(super) const NEXT_JOB_ID: u32 = 6;
    pub(super) const RESERVATIONS: u32 = 20;
    pub(super) const RESERVATIONS_MADE: u32 = 21;
    pub(super) const RUN_TIMES: u32 = 30;
    pub(super) const ACCOUNTS: u32 = 22;
    pub(super) const CRONTABS: u32 = 40;
    pub(super) const TRIGGERS: u32 = 41;
    pub(super) const COUNT: u64 = 13;
}

/// Why a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Written by a release that this one does not know.
    #[error(
        "the snapshot has format {found}, this release reads format {known}; use the release that wrote it"
    )]
    Version {
        /// The format of the snapshot.
        found: u32,
        /// The format that this release reads.
        known: u32,
    },
    /// Not a snapshot, or damaged.
    #[error("the snapshot cannot be decoded: {0}")]
    Damaged(#[from] minicbor::decode::Error),
}

impl State {
    /// Appends the state to `out`: a format version, then the primary fields as CBOR. Indexes are left out.
    pub fn encode_snapshot(&self, out: &mut Vec<u8>) {
        let mut specs = SpecTable::default();
        self.write(
            &mut Encoder::new(out),
            |job, e| job.encode(e, &mut specs),
            |node, e| node.encode(e, &mut ()),
        )
        .unwrap_or_else(|e| panic!("a vector takes all bytes: {e}"));
    }

    /// Reads what [`State::encode_snapshot`] wrote and rebuilds the indexes.
    ///
    /// # Errors
    /// An unknown format or damage.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<State, SnapshotError> {
        let mut d = Decoder::new(bytes);
        let found = d.u32()?;
        if !READ.contains(&found) {
            return Err(SnapshotError::Version {
                found,
                known: FORMAT,
            });
        }
        let mut state = State::default();
        let mut stored = StoredTriggers::default();
        let entries = d
            .map()?
            .ok_or_else(|| minicbor::decode::Error::message("a map of unknown length"))?;
        for _ in 0..entries {
            match d.u32()? {
                key::CONFIG => {
                    state.config = d
                        .decode::<Option<muster_model::config::ClusterConfig>>()?
                        .map(Arc::new);
                }
                key::PARTITIONS => state.partitions = d.decode()?,
                key::NODES => state.nodes = d.decode()?,
                key::JOBS => {
                    let jobs: Vec<Job> = d.decode_with(&mut SpecTable::default())?;
                    state.jobs = jobs.into_iter().map(|job| (job.id, job)).collect();
                }
                key::ARRAYS => state.arrays = d.decode()?,
                key::BLOBS => {
                    let blobs: Vec<(BlobId, u32, ByteVec)> = d.decode()?;
                    state.blobs = blobs
                        .into_iter()
                        .map(|(id, users, bytes)| {
                            let bytes = Arc::new(bytes);
                            let owners = Default::default();
                            let blob = Blob {
                                bytes,
                                users,
                                owners,
                            };
                            (id, blob)
                        })
                        .collect();
                }
                key::NEXT_JOB_ID => state.next_job_id = d.u64()?,
                key::RESERVATIONS => {
                    let all: Vec<Reservation> = d.decode()?;
                    all.into_iter().for_each(|r| state.reservations.insert(r));
                }
                key::ACCOUNTS => state.accounts = d.decode()?,
                key::RESERVATIONS_MADE => state.reservations_made = d.u64()?,
                key::RUN_TIMES => state.run_times = d.decode()?,
                key::CRONTABS => state.crontabs = d.decode()?,
                key::TRIGGERS => stored = d.decode()?,
                _ => d.skip()?,
            }
        }
        state.check_nodes()?;
        // Snapshots of older releases do not say how often a CPU is used.
        state.recount_nodes();
        // A version that kept use under names as hosts have them may have written it.
        limits::fold_names(&mut state);
        state.rebuild_indexes();
        triggers::restore(&mut state, stored);
        state.stored_bytes = StoredBytes::count(&state.jobs, &mut state.blobs);
        Ok(state)
    }

    /// Whether each node is where its number says, and jobs and reservations name nodes that are there.
    fn check_nodes(&self) -> Result<(), minicbor::decode::Error> {
        let is_in_place = |(place, node): (usize, &Node)| node.idx.0 as usize == place;
        let is_there = |node: NodeIdx| (node.0 as usize) < self.nodes.len();
        let of_jobs = self.jobs.values().filter_map(|job| job.alloc.as_ref());
        let of_jobs = of_jobs.flat_map(|alloc| alloc.nodes.iter().map(|share| share.node));
        let reserved = self.reservations.iter();
        let reserved = reserved.flat_map(|r| r.nodes.iter().map(|entry| entry.node));
        let is_whole =
            self.nodes.iter().enumerate().all(is_in_place) && of_jobs.chain(reserved).all(is_there);
        match is_whole {
            true => Ok(()),
            false => Err(minicbor::decode::Error::message(
                "it names a node that is not there",
            )),
        }
    }

    /// A hash of everything durable, the same for states that the same events made. Notes do not enter it.
    pub fn digest(&self) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        let written = self.write(
            &mut Encoder::new(&mut hash),
            |job, e| without_notes(job).encode(e, &mut ()),
            |node, e| node_without_notes(node).encode(e, &mut ()),
        );
        match written {
            Ok(()) => hash.0,
            Err(e) => panic!("a hash takes all bytes: {e}"),
        }
    }

    /// Writes the primary fields; jobs and nodes by the functions given.
    fn write<W: Write>(
        &self,
        e: &mut Encoder<W>,
        mut job_out: impl FnMut(&Job, &mut Encoder<W>) -> Result<(), minicbor::encode::Error<W::Error>>,
        node_out: impl Fn(&Node, &mut Encoder<W>) -> Result<(), minicbor::encode::Error<W::Error>>,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.u32(FORMAT)?.map(key::COUNT)?;
        e.u32(key::CONFIG)?.encode(self.config.as_deref())?;
        e.u32(key::PARTITIONS)?.encode(&self.partitions)?;
        e.u32(key::NODES)?.array(self.nodes.len() as u64)?;
        for node in &self.nodes {
            node_out(node, e)?;
        }
        e.u32(key::JOBS)?.array(self.jobs.len() as u64)?;
        for job in self.jobs.values() {
            job_out(job, e)?;
        }
        e.u32(key::ARRAYS)?.encode(&self.arrays)?;
        let mut blobs: Vec<_> = self.blobs.iter().filter(|(_, b)| b.users > 0).collect();
        blobs.sort_by_key(|(id, _)| **id);
        e.u32(key::BLOBS)?.array(blobs.len() as u64)?;
        for (id, blob) in blobs {
            e.encode((id, blob.users, blob.bytes.as_ref()))?;
        }
        e.u32(key::NEXT_JOB_ID)?.u64(self.next_job_id)?;
        let reservations: Vec<&Reservation> = self.reservations.iter().collect();
        e.u32(key::RESERVATIONS)?.encode(reservations)?;
        e.u32(key::ACCOUNTS)?.encode(&self.accounts)?;
        e.u32(key::RESERVATIONS_MADE)?.u64(self.reservations_made)?;
        e.u32(key::RUN_TIMES)?.encode(&self.run_times)?;
        e.u32(key::CRONTABS)?.encode(&self.crontabs)?;
        e.u32(key::TRIGGERS)?.encode(self.triggers.stored())?;
        Ok(())
    }
}

fn without_notes(job: &Job) -> Job {
    let mut job = job.clone();
    if job.is_startable() {
        job.reason = Reason::None;
    }
    job.reason_detail
        .take_if(|text| text.starts_with(apply::UNAVAILABLE));
    job.expected_start = None;
    job.last_sched_eval = None;
    job
}

fn node_without_notes(node: &Node) -> Node {
    let mut node = node.clone();
    apply::node::set_health(&mut node, 0, 0);
    node
}

/// The FNV-1a hash of what is written to it.
struct Fnv(u64);

impl Write for Fnv {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
