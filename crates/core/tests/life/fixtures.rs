//! Examples of stored records with every field set, which all later versions must read. Those that tests cause are in
//! [`crate::kept_events`].

use muster_core::event::Event;
use muster_core::state::State;
use muster_fixtures::{Root, check};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The map that a snapshot is behind its format, as docs/formats/fields.txt would have it.
const SNAPSHOT: &str = "\
core::snapshot::Snapshot [map]
  0 config: Option<ClusterConfig>
  1 partitions: Vec<PartitionConfig>
  2 nodes: Vec<Node>
  3 jobs: Vec<Job>
  4 arrays: BTreeMap<JobId, ArrayInfo>
  5 blobs: Vec<(BlobId, u32, ByteVec)>
  6 next_job_id: u64
  20 reservations: Vec<Reservation>
  21 reservations_made: u64
  22 accounts: Accounts
  30 run_times: RunTimes
";

/// What nodes have left, which follows from the jobs that are on them.
const CALCULATED: [&str; 11] = [
    "nodes[0].free_cpus",
    "nodes[0].used_mib",
    "nodes[0].exclusive",
    "nodes[0].used_gres",
    "nodes[0].shared_cpus",
    "nodes[0].alone",
    "nodes[0].alone_by_user",
    "nodes[0].only_user",
    "nodes[0].alone_by_label",
    "nodes[0].mcs_label",
    "nodes[0].stopped",
];

fn snapshot(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let state = State::decode_snapshot(bytes).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    state.encode_snapshot(&mut out);
    Ok(out)
}

#[test]
fn events_with_every_field_are_read() {
    let roots = [Root::plain::<Event>("core::event::Event").stored()];
    check(PACKAGE, "tests/fixtures/events.txt", &roots, "");
}

#[test]
fn snapshots_with_every_field_are_read() {
    let root = Root::new("core::snapshot::Snapshot", snapshot)
        .with_head(&[2])
        .with_calculated(&CALCULATED)
        .stored();
    check(PACKAGE, "tests/fixtures/snapshots.txt", &[root], SNAPSHOT);
}
