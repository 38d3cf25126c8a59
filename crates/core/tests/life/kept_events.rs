//! Examples of events as released versions wrote them, which this and later versions must read: `tests/formats/vN.txt`, a
//! line of `Type::Variant hex` for each variant. `UPDATE_FIXTURES=1 cargo test -p muster-core --test life` writes those of the
//! newest version from the events of all tests; those of earlier ones stay as they are.

use muster_core::event::{AccountsChange, Event, JobChange, NodeChange, RecordChange};
use muster_model::account_limits::Scope;
use muster_model::accounts::{
    AssociationTerms, Cluster, ClusterFeatures, Federation, FederationMember, JobNote, QosDelta,
    ResourceShare, SharedResource, Transaction,
};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::preemption::{PreemptMode, Preempted};
use muster_model::storage::{StorageScan, StorageUse};
use muster_model::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

/// The version that events are written for.
const NEWEST: &str = "v1";
/// An example is the longest event of its kind up to this, so that most fields have a value.
const BYTES_MAX: usize = 1500;

static EXAMPLES: LazyLock<Mutex<BTreeMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// Takes an event of a test for an example, where examples are being written.
pub(crate) fn offer(event: &Event) {
    static WRITES: LazyLock<bool> = LazyLock::new(|| std::env::var_os("UPDATE_FIXTURES").is_some());
    if !*WRITES {
        return;
    }
    let bytes = minicbor::to_vec(event).expect("an event is encoded");
    let mut examples = EXAMPLES.lock().expect("no test fails here");
    let mut is_new = false;
    for name in names(event) {
        let better = |known: &Vec<u8>| match (known.len() > BYTES_MAX, bytes.len() > BYTES_MAX) {
            (false, true) => false,
            (true, false) => true,
            (true, true) => (bytes.len(), &bytes) < (known.len(), known),
            (false, false) => (known.len(), known) < (bytes.len(), &bytes),
        };
        if examples.get(&name).is_none_or(better) {
            examples.insert(name, bytes.clone());
            is_new = true;
        }
    }
    if is_new {
        let mut text = String::new();
        for (name, bytes) in &*examples {
            let _ = write!(text, "{name} ");
            bytes.iter().for_each(|byte| {
                let _ = write!(text, "{byte:02x}");
            });
            text.push('\n');
        }
        fs::write(folder().join(format!("{NEWEST}.txt")), text).expect("examples can be written");
    }
}

/// What an event is an example of: its variant, and those of the changes in it.
fn names(event: &Event) -> Vec<String> {
    let mut names = vec![format!("Event::{}", event.name())];
    match event {
        Event::JobChanged { change, .. } => {
            names.push(format!("JobChange::{}", variant(change)));
        }
        Event::NodeChanged { change, .. } => {
            names.push(format!("NodeChange::{}", variant(change)));
        }
        Event::AccountsChanged { changes, .. } => {
            let changes = changes.iter().map(variant);
            names.extend(changes.map(|name| format!("AccountsChange::{name}")));
        }
        _ => {}
    }
    names
}

fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal digits")
    };
    digits.map(byte).collect()
}

/// Events that no command of these tests causes.
fn others() -> Vec<Event> {
    let (id, at) = (JobId(7), Timestamp(1_700_000_000_000));
    let preempted = Preempted {
        by: JobId(9),
        at,
        mode: PreemptMode::Requeue,
        end: Some(at.plus_ms(30_000)),
    };
    let of_job = [
        JobChange::TermSent,
        JobChange::SwitchWait,
        JobChange::Preempted(preempted),
    ];
    let health = NodeChange::Health {
        load_centi: 150,
        free_mib: 64_000,
    };
    let terms = AssociationTerms {
        shares: Some(3),
        id: 4,
        qos_delta: QosDelta {
            more: vec!["high".to_owned()],
            less: vec!["low".to_owned()],
        },
        ..AssociationTerms::default()
    };
    let changes = vec![
        AccountsChange::UserGone("ann".to_owned()),
        AccountsChange::QosGone("high".to_owned()),
        AccountsChange::UserRenamed {
            from: "ann".to_owned(),
            to: "anna".to_owned(),
        },
        AccountsChange::Root(terms.clone()),
        AccountsChange::Cluster(Cluster {
            name: "west".to_owned(),
            classification: "Capacity".to_owned(),
            terms,
            ..Cluster::default()
        }),
        AccountsChange::OfCluster {
            cluster: "west".to_owned(),
            change: RecordChange::AccountGone("physics".to_owned()),
        },
        AccountsChange::ClusterGone("west".to_owned()),
        AccountsChange::Classified("Capability".to_owned()),
        AccountsChange::ScopeReset(Scope::PartitionAssociation(
            "bio".to_owned(),
            "ann".to_owned(),
            "short".to_owned(),
        )),
        AccountsChange::JobNoted {
            job: id,
            owner: Some(1000),
            note: JobNote {
                comment: Some("looked into".to_owned()),
                admin_comment: Some("ticket 7".to_owned()),
                wckey: Some("proj".to_owned()),
                derived_exit: Some(9),
            },
        },
        AccountsChange::StorageRecorded {
            name: "home".to_owned(),
            scan: StorageScan {
                at: Timestamp(1_700_000_000_000),
                path: "/home".to_owned(),
                size_bytes: 1 << 40,
                used_bytes: 1 << 30,
                users: vec![StorageUse {
                    user: "ann".to_owned(),
                    bytes: 4096,
                    files: 1,
                }],
            },
        },
    ];
    let log = vec![Transaction {
        actor: "root".to_owned(),
        action: "Add Users".to_owned(),
        target: "ann".to_owned(),
        info: "Account=bio".to_owned(),
        users: vec!["ann".to_owned()],
        accounts: vec!["bio".to_owned()],
    }];
    let of_job = of_job.map(|change| Event::JobChanged { id, change, at });
    let mut events = of_job.to_vec();
    events.push(Event::NodeChanged {
        node: NodeIdx(3),
        change: health,
        at,
    });
    events.push(Event::AccountsChanged { changes, at, log });
    events.push(Event::AccountsChanged {
        changes: shared_records(),
        at,
        log: Vec::new(),
    });
    events
}

/// Changes of records that clusters share.
fn shared_records() -> Vec<AccountsChange> {
    vec![
        AccountsChange::Resource(SharedResource {
            name: "ansys".to_owned(),
            server: "flex1".to_owned(),
            count: 50,
            server_type: "flexlm".to_owned(),
            description: "a solver".to_owned(),
            shares: vec![ResourceShare {
                cluster: "west".to_owned(),
                percent: 20,
            }],
            id: 1,
        }),
        AccountsChange::ResourceGone("ansys@flex1".to_owned()),
        AccountsChange::Federation(Federation {
            name: "fed".to_owned(),
            members: vec![FederationMember {
                cluster: "west".to_owned(),
                id: 1,
                state: "ACTIVE".to_owned(),
            }],
        }),
        AccountsChange::FederationGone("fed".to_owned()),
        AccountsChange::Features(ClusterFeatures {
            cluster: "west".to_owned(),
            features: vec!["gpu".to_owned()],
        }),
    ]
}

#[test]
fn events_of_all_versions_are_read() {
    others().iter().for_each(offer);
    for entry in fs::read_dir(folder()).expect("tests/formats") {
        let path = entry.expect("an entry").path();
        for line in fs::read_to_string(&path).expect("a text").lines() {
            let (name, hex) = line.split_once(' ').expect("a name and bytes");
            let event: Event = minicbor::decode(&bytes(hex))
                .unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
            assert!(names(&event).iter().any(|n| n == name), "{name}: {event:?}");
            // What this version writes of it, it reads the same.
            let again = minicbor::to_vec(&event).expect("an event is encoded");
            assert_eq!(minicbor::decode::<Event>(&again).expect("an event"), event);
        }
    }
}
