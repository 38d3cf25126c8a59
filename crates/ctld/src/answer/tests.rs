//! What a client below the commands reads: whatever it asks, `PrivateData` and the table of rights hold in the answer.

use super::*;
use crate::peer::RequestOrigin;
use crate::replica::sees_the_same;
use crate::waiting::Waiting;
use muster_core::decide::decide;
use muster_core::state::Blob;
use muster_model::accounts::{Account, User};
use muster_model::command::{Command, KeptPartitions};
use muster_model::config::PartitionConfig;
use muster_model::ids::BlobId;
use muster_model::job::Allocation;
use muster_model::node::NodeConfig;
use muster_model::node_state::InitialState;
use muster_model::shared_spec::SpecTable;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::TimeLimit;
use muster_proto::client::{self, JobFilter};
use std::sync::Arc;

const OWNER: u32 = 1000;
const STRANGER: u32 = 1001;
const COORDINATOR: u32 = 1002;
const OPERATOR: u32 = 1003;
const ADMINISTRATOR: u32 = 1004;

fn identity(uid: u32) -> Identity {
    Identity {
        uid,
        gid: uid,
        user: format!("u{uid}"),
        ..Identity::default()
    }
}

/// One job of the owner, in account a, with a script, on node n1; partitions and a reservation of the owner's.
fn state(private: &str) -> State {
    let mut state = State::default();
    let script = BlobId([1; 32]);
    let config = ClusterConfig {
        private: PrivateData::parse(private),
        admin_uids: vec![64_030],
        nodes: vec![NodeConfig {
            name: "n1".into(),
            cpus: 1,
            state: InitialState::Unknown,
            ..NodeConfig::default()
        }],
        partitions: vec![PartitionConfig::named("batch")],
        ..ClusterConfig::default()
    };
    let configure = Command::Configure {
        config: Arc::new(config),
        keep: KeptPartitions::File,
    };
    for event in &decide(&state, &configure, Timestamp(1)).events {
        state.apply(event);
    }
    let spec = JobSpec {
        owner: Owner {
            uid: OWNER,
            user: format!("u{OWNER}"),
            ..Owner::default()
        },
        account: Some("a".into()),
        script: Some(script),
        ..JobSpec::default()
    };
    let bytes = Arc::new(b"#!/bin/sh\n".to_vec().into());
    state.blobs.insert(
        script,
        Blob {
            bytes,
            users: 1,
            owners: Default::default(),
        },
    );
    let at = Timestamp(1_000_000);
    let mut job = Job::new(JobId(1), Arc::new(spec), TimeLimit::Minutes(60), at);
    job.state = JobState::Running;
    job.alloc = Some(Arc::new(Allocation::default()));
    state.jobs.insert(job.id, job);
    let user = |uid: u32, level: &str, coordinates: &[&str]| User {
        name: format!("u{uid}"),
        admin_level: level.into(),
        accounts: [("a".to_owned(), Default::default())].into(),
        coordinates: coordinates.iter().map(|a| (*a).to_owned()).collect(),
        ..User::default()
    };
    for user in [
        user(OWNER, "None", &[]),
        user(COORDINATOR, "None", &["a"]),
        user(OPERATOR, "Operator", &[]),
        user(ADMINISTRATOR, "Administrator", &[]),
    ] {
        state.accounts.users.insert(user.name.clone(), user);
    }
    let account = Account {
        name: "a".into(),
        parent: "root".into(),
        ..Account::default()
    };
    state.accounts.accounts.insert("a".into(), account);
    state
}

fn parts(state: &State, uid: u32) -> (usize, usize, PrivateData) {
    let (mut nodes, mut partitions, mut withheld) = (0, 0, PrivateData::default());
    cluster(state, &identity(uid), &mut |response| {
        let Response::Cluster(part) = response else {
            panic!("{response:?}");
        };
        nodes += part.nodes.len();
        partitions += part.partitions.len();
        withheld = withheld.with(part.withheld);
        Ok(())
    })
    .unwrap();
    (nodes, partitions, withheld)
}

#[test]
fn partitions_that_are_private_are_in_no_answer() {
    for (words, hidden) in [("none", false), ("partitions", true), ("jobs,users", false)] {
        let (state, mut head) = (state(words), ListingHead::default());
        for (uid, sees) in [
            (STRANGER, !hidden),
            (COORDINATOR, !hidden),
            (OPERATOR, true),
            (0, true),
        ] {
            let (_, partitions, withheld) = parts(&state, uid);
            assert_eq!(partitions, usize::from(sees), "{words} {uid}");
            assert_eq!(
                withheld.has(PrivateData::PARTITIONS),
                !sees,
                "{words} {uid}"
            );
        }
        for sees in [true, false, true] {
            let Response::Cluster(part) = head.answer(&state, sees) else {
                panic!("it is of the cluster");
            };
            assert_eq!(part.partitions.len(), usize::from(sees));
        }
    }
}

#[test]
fn nodes_that_are_private_are_in_no_answer() {
    let mut shown = Vec::new();
    for words in ["none", "nodes"] {
        let state = state(words);
        shown.push([STRANGER, COORDINATOR, OPERATOR, 0].map(|uid| parts(&state, uid).0));
    }
    assert_eq!(shown, [[1, 1, 1, 1], [0, 0, 1, 1]]);
}

#[test]
fn what_is_private_to_a_job_is_for_its_owner() {
    let refused = |response: Response| match response {
        Response::Refused(refusal) => Some(refusal.code),
        _ => None,
    };
    let (denied, hidden) = (
        Some(RefusalCode::AccessDenied),
        Some(RefusalCode::InvalidJobId),
    );
    // Whose request, what of the script, what of the key: without and with private jobs.
    for (uid, [script_open, key_open, script_private, key_private]) in [
        (OWNER, [None, None, None, None]),
        (STRANGER, [denied, denied, hidden, hidden]),
        (COORDINATOR, [denied, denied, denied, denied]),
        (OPERATOR, [None, denied, None, denied]),
        (ADMINISTRATOR, [None, denied, None, denied]),
        (64_030, [None, None, None, None]),
        (0, [None, None, None, None]),
    ] {
        for (words, for_script, for_key) in [
            ("none", script_open, key_open),
            ("jobs", script_private, key_private),
        ] {
            let state = state(words);
            let who = identity(uid);
            let script = refused(script(&state, &who, JobId(1)));
            assert_eq!(script, for_script, "script, {words}, {uid}");
            let key = allocation(&state, &Keys::from_bytes([7; 64]), &who, JobId(1));
            assert_eq!(refused(key), for_key, "key, {words}, {uid}");
        }
    }
}

/// One listing serves all who ask for the same at once, if they may see the same.
#[test]
fn an_answer_is_shared_only_with_those_who_see_the_same() {
    let shared = |words: &str, one: u32, other: u32| {
        sees_the_same(&state(words), &identity(one), &identity(other))
    };
    for (one, other) in [(OWNER, STRANGER), (STRANGER, OPERATOR), (STRANGER, 0)] {
        assert!(shared("none", one, other) && shared("users,accounts", one, other));
        assert!(!shared("jobs", one, other), "{one} and {other}");
    }
    assert!(shared("jobs", OPERATOR, 0) && shared("jobs", OWNER, OWNER));
    assert!(!shared("jobs", OWNER, COORDINATOR));
    assert!(shared("partitions", OWNER, STRANGER) && !shared("partitions", OWNER, OPERATOR));
}

#[test]
fn who_may_not_see_a_job_cannot_wait_for_it() {
    let answered = |words: &str, uid: u32, started: bool| {
        let (mut state, mut waiting) = (state(words), Waiting::default());
        if !started {
            let job = state.jobs.get_mut(&JobId(1)).unwrap();
            job.state = JobState::Completed;
        }
        let (out, mut answers) = crate::outbox::channel(None);
        let who = identity(uid);
        match started {
            true => {
                let keys = Keys::from_bytes([7; 64]);
                waiting.wait_started(
                    &state,
                    &keys,
                    (&who, RequestOrigin::default()),
                    JobId(1),
                    out,
                );
            }
            false => waiting.wait_ended(&state, &who, JobId(1), false, out),
        }
        let bytes = answers.try_recv().unwrap();
        client::decode_answer(&bytes[4..], &mut SpecTable::default()).unwrap()
    };
    let code = |response: Response| match response {
        Response::Refused(refusal) => Some(refusal.code),
        Response::JobStarted(_) | Response::JobEnded { .. } => None,
        other => panic!("{other:?}"),
    };
    let (denied, hidden) = (
        Some(RefusalCode::AccessDenied),
        Some(RefusalCode::InvalidJobId),
    );
    for (uid, open, private, end) in [
        (OWNER, None, None, None),
        (0, None, None, None),
        (STRANGER, denied, hidden, hidden),
        (COORDINATOR, denied, denied, None),
        (OPERATOR, denied, denied, None),
    ] {
        assert_eq!(code(answered("none", uid, true)), open, "{uid}");
        assert_eq!(code(answered("jobs", uid, true)), private, "{uid}");
        assert_eq!(code(answered("none", uid, false)), None, "{uid}");
        assert_eq!(code(answered("jobs", uid, false)), end, "{uid}");
    }
}

/// A client that held a batch job and left ended it in the controller's name, and nobody saw who holds another's that waits.
#[test]
fn who_holds_holds_an_allocation() {
    let mut state = state("");
    let hold = |state: &State, uid| may_hold(state, &identity(uid), JobId(1));
    let code = |held: Result<bool, Refusal>| held.map_err(|refusal| refusal.code);
    assert_eq!(code(hold(&state, OWNER)), Err(RefusalCode::JobNotRunning));
    let job = state.jobs.get_mut(&JobId(1)).unwrap();
    Arc::make_mut(&mut job.spec).kind = JobKind::Allocation;
    job.state = JobState::Pending;
    job.alloc = None;
    assert_eq!(hold(&state, OWNER), Ok(false));
    assert_eq!(hold(&state, 0), Ok(true), "it has a line");
    let denied = Err(RefusalCode::AccessDenied);
    assert_eq!(code(hold(&state, STRANGER)), denied);
    state.jobs.get_mut(&JobId(1)).unwrap().state = JobState::Cancelled;
    assert_eq!(code(hold(&state, OWNER)), Err(RefusalCode::AlreadyDone));
    let other = may_hold(&state, &identity(OWNER), JobId(2));
    assert_eq!(code(other), Err(RefusalCode::InvalidJobId));
}

/// `sprio`: what anybody may ask for leaves in parts, however many jobs wait in however many partitions.
#[test]
fn priorities_leave_in_parts_with_each_partition_of_a_job_once() {
    let mut state = State::default();
    let mut config = ClusterConfig {
        partitions: vec![PartitionConfig::named("a"), PartitionConfig::named("b")],
        ..ClusterConfig::default()
    };
    config.order.multifactor = Some(Default::default());
    let configure = Command::Configure {
        config: Arc::new(config),
        keep: KeptPartitions::File,
    };
    for event in &decide(&state, &configure, Timestamp(1)).events {
        state.apply(event);
    }
    let spec = Arc::new(JobSpec {
        partitions: ["a", "b"]
            .repeat(500)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ..JobSpec::default()
    });
    let at = Timestamp(1_000_000);
    let jobs = 2500;
    for id in (1..=jobs).map(JobId) {
        let mut job = Job::new(id, Arc::clone(&spec), TimeLimit::Minutes(60), at);
        (job.priority, job.eligible_time) = (1, Some(at));
        state.jobs.insert(id, job);
        state.pending.insert(id);
    }
    let mut parts = Vec::new();
    priorities(&state, &identity(0), &mut |response| match response {
        Response::Priorities(part) => {
            parts.push((part.jobs.len(), part.settings.is_some(), part.more));
            Ok(())
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(
        parts,
        [
            (2000, true, true),
            (2000, false, true),
            (1000, false, false)
        ]
    );
}

/// An answer was put together to its end for a client that had gone or did not read.
#[test]
fn an_answer_ends_where_nobody_takes_it() {
    let mut state = State::default();
    let mut config = ClusterConfig {
        partitions: vec![PartitionConfig::named("a")],
        ..ClusterConfig::default()
    };
    config.order.multifactor = Some(Default::default());
    let node = |n| NodeConfig {
        name: format!("n{n}"),
        cpus: 1,
        state: InitialState::Unknown,
        ..NodeConfig::default()
    };
    config.nodes = (0..1000).map(node).collect();
    let configure = Command::Configure {
        config: Arc::new(config),
        keep: KeptPartitions::File,
    };
    for event in &decide(&state, &configure, Timestamp(1)).events {
        state.apply(event);
    }
    let at = Timestamp(1_000_000);
    for id in (1..=10_000).map(JobId) {
        let spec = Arc::new(JobSpec {
            name: format!("job-{id}"),
            partitions: vec!["a".to_owned()],
            ..JobSpec::default()
        });
        let mut job = Job::new(id, spec, TimeLimit::Minutes(60), at);
        (job.priority, job.eligible_time) = (1, Some(at));
        state.jobs.insert(id, job);
        state.pending.insert(id);
    }
    let filter = JobFilter {
        active: true,
        ..JobFilter::default()
    };
    let rows = Rows::rebuilt(&mut state);
    for takes in [0, 1] {
        let mut sent = [0; 4];
        let take = |sent: &mut i32| {
            *sent += 1;
            if *sent > takes {
                Err(OutboxError)
            } else {
                Ok(())
            }
        };
        let asked = (&filter, &JobScope::All);
        jobs(&state, None, asked, None, &mut |_| take(&mut sent[0]));
        jobs(&state, Some(&rows), asked, None, &mut |_| {
            take(&mut sent[1])
        });
        priorities(&state, &identity(0), &mut |_| take(&mut sent[2]));
        let whole = cluster(&state, &identity(0), &mut |_| take(&mut sent[3]));
        assert_eq!(whole, Err(OutboxError));
        assert_eq!(sent, [takes + 1; 4]);
    }
}
