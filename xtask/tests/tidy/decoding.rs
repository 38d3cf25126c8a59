//! Where bytes become values: what comes over a connection is decoded by `muster_proto::frame`, which validates it.

use crate::source::product;
use std::collections::BTreeSet;

/// Files that call the decoder itself: what they read was written by this host's own processes, or is a part of a message that
/// was validated.
const DECODERS: [&str; 36] = [
    // Frames themselves.
    "crates/proto/src/client.rs",
    "crates/proto/src/frame.rs",
    "crates/proto/src/preencoded.rs",
    // The journal and the store, which the controller has written.
    "crates/acct/src/sqlite/records.rs",
    "crates/acct/src/sqlite/rollup.rs",
    "crates/ctld/src/recover.rs",
    // Execution contexts and environments, which are parts of messages that were validated.
    "crates/cli/src/library.rs",
    "crates/cli/src/listing/query.rs",
    "crates/core/src/decide/submit.rs",
    "crates/node/src/stepd/mpi.rs",
    "crates/pmix/src/host/requests.rs",
    "crates/verifier/src/description.rs",
    "crates/verifier/src/job_class.rs",
    "crates/verifier/src/jsv.rs",
    // What the launcher keeps for agents, and has written into its files.
    "crates/node-core/src/agent/jobs.rs",
    "crates/node-core/src/agent/lead.rs",
    "crates/node-core/src/agent/node_steps.rs",
    "crates/node-core/src/launcher/end.rs",
    "crates/node-core/src/launcher/measure.rs",
    "crates/node-core/src/launcher/records.rs",
    "crates/node-core/src/launcher/recover.rs",
    "crates/node/src/launcher/record_file.rs",
    // Orders to a process of a node from the one that started it, and its answers.
    "crates/node/src/credential.rs",
    "crates/node/src/launcher/files.rs",
    "crates/node/src/launcher/groups.rs",
    "crates/node/src/launcher/measure.rs",
    "crates/node/src/removal.rs",
    "crates/node/src/sack.rs",
    "crates/node/src/stepd/mpi/host.rs",
    "crates/node/src/stepd/start.rs",
    "crates/node/src/messages/agent_order.rs",
    // Tools that attack, simulate and compare.
    "crates/fixtures/src/lib.rs",
    "crates/hostile/src/peer.rs",
    "crates/node/src/fuzzing.rs",
    "crates/sim/src/outlets.rs",
    "crates/sim/src/world/launchers.rs",
];

#[test]
fn messages_are_decoded_where_they_are_validated() {
    let sources = product()
        .into_iter()
        .filter(|source| source.path.starts_with("crates/"));
    let found = sources.filter(|source| {
        let code = source.code();
        let mut calls = code.match_indices("minicbor::decode");
        calls.any(|(at, call)| {
            let rest = code[at + call.len()..].trim_start_matches("_with");
            rest.starts_with(['(', ')']) || rest.starts_with("::<")
        })
    });
    let found: BTreeSet<String> = found.map(|source| source.path).collect();
    let known: BTreeSet<String> = DECODERS.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(found, known, "files that decode without frame::decode");
}
