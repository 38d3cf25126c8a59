//! Files of a site: slurm.conf and what lies beside it, and what the controller makes of them.

use muster_conf::files::{self, PlainFile};
use muster_conf::verifier::VerifierBounds;
use muster_conf::{ListingContext, grid_engine, job_container, load_with, show_config, topology};
use muster_core::decide::decide;
use muster_core::state::State;
use muster_model::command::{Command, KeptPartitions};
use muster_model::time::Timestamp;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// Nodes of a configuration that is carried out here: more only make it slow.
const NODES_MAX: usize = 64;

/// Files that are the input again; those after them are empty.
const FILES_MAX: usize = 6;

/// Runs the target.
pub(super) fn run(data: &[u8]) {
    // A file that includes two would be read a thousand times, the most that a site may have, and show nothing new.
    let count = Cell::new(0);
    let read = |_: &Path| {
        count.set(count.get() + 1);
        match count.get() {
            ..=FILES_MAX => Ok(data.to_vec()),
            _ => Ok(Vec::new()),
        }
    };
    let path = Path::new("slurm.conf");
    let (config, findings) = load_with(path, &read);
    findings
        .iter()
        .for_each(|finding| assert!(!finding.to_string().is_empty()));
    let facts = ListingContext {
        boot_time: "",
        next_job_id: 1,
        version: "",
        uid_of: &|_| None,
    };
    let _ = show_config(&config, &facts);
    let (gres, _) = files::load_gres_with(path, &read);
    let _ = topology::load_with(path, &read);
    for kind in [PlainFile::Cgroup, PlainFile::Mpi, PlainFile::Slurmdbd] {
        let _ = files::load_flat_with(kind, path, &read);
    }
    let _ = job_container::load_with(path, &read);
    let text = &*String::from_utf8_lossy(data);
    let _ = VerifierBounds::parse(text, "verifier.conf");
    let (mapping, _) = grid_engine::Mapping::parse(text, "sge.conf");
    let _ = (mapping.environments(), mapping.queue_of("p"));
    if config.nodes.len() > NODES_MAX {
        return;
    }
    let mut cluster = config.cluster(&gres, &|_| None);
    cluster.topologies = topology::resolve(&config, &read).0;
    let mut state = State::default();
    let command = Command::Configure {
        config: Arc::new(cluster),
        keep: KeptPartitions::File,
    };
    for event in decide(&state, &command, Timestamp(1_000_000)).events {
        state.apply(&event);
    }
    if let Err(broken) = state.check_invariants() {
        panic!("{broken}");
    }
}

/// Inputs to begin with.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let files = [
        &include_bytes!("../../../crates/conf/tests/data/site.conf")[..],
        include_bytes!("../../../crates/conf/tests/data/peer.conf"),
        include_bytes!("../../../crates/conf/tests/data/gpu.conf"),
        include_bytes!("../../../crates/conf/tests/data/htc.conf"),
        include_bytes!("../../../crates/conf/tests/data/old.conf"),
        include_bytes!("../../../crates/conf/tests/data/broken.conf"),
        include_bytes!("../../../crates/conf/tests/data/beside/gres.conf"),
        include_bytes!("../../../crates/conf/tests/data/beside/topology.conf"),
        include_bytes!("../../../crates/conf/tests/data/beside/cgroup.conf"),
        b"NodeName=n[1-4] CPUs=4 RealMemory=100 Gres=gpu:a:2\nPartitionName=p Nodes=ALL Default=YES\n",
        b"BasePath=/var/lib/jobs AutoBasePath=true Dirs=/tmp,/dev/shm CloneNSScript_Wait=5\nNodeName=n[1-2] BasePath=none\n",
        b"Processes=4\nTimeLimit=10\nMemory=64\nOnFailure=accept\n",
        b"queue long.q night\npe smp $pe_slots\npe mpi16 16\ncomplex gpu gres:gpu slot\nproject p12 physics\n\
          jsv_url script:/etc/slurm/jsv.sh\n",
    ];
    files.map(<[u8]>::to_vec).to_vec()
}
