//! Frames that no peer of ours sends: they are refused, and cost no more than their bytes.

#[path = "../../core/tests/life/mutation.rs"]
mod mutation;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode, Encoder};
use muster_model::command::{JobSelection, JobTarget, UserCommand};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, BlobId, JobAttempt, JobId, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{Allocation, ArrayRole, ExitStatus, JobState, ResourceUsage, StepEnd};
use muster_model::limits::{
    CONTEXT_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_ITEMS_MAX, SCRIPT_BYTES_MAX,
    SUBMIT_LINE_BYTES_MAX,
};
use muster_model::mail::MailOptions;
use muster_model::node::NodeInfo;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{ArraySpec, ExecContext, JobSpec, SoftLimit};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::PROTOCOL;
use muster_proto::acct::AcctQuery;
use muster_proto::client::{JobFilter, Query, Request, RequestBody, Response};
use muster_proto::frame::{self, FrameError, Frames, Message};
use muster_proto::node::{
    JobGrant, NodeHello, NumberedReport, Order, Orders, Report, ToCtld, ToNode, Welcome,
};
use muster_proto::node_trust::JoinHello;
use muster_proto::step::NodeEnd;
use muster_proto::step::{
    AgentReply, AgentRequest, Attach, FromStepd, HetStep, StepCreated, StepLaunch, StepNode,
    StepShare, StepSpec, ToStepd,
};
use muster_proto::version::Versions;
use mutation::{change, changed};
use proptest::prelude::*;
use std::sync::Arc;

fn request(command: UserCommand) -> Request {
    Request {
        version: PROTOCOL,
        client: None,
        body: RequestBody::Command(Box::new(command)),
    }
}

fn submission(spec: JobSpec) -> Request {
    request(UserCommand::Submit {
        spec: Box::new(spec),
        blobs: Vec::new(),
        test_only: false,
    })
}

fn encoded<T: Encode<()>>(message: &T) -> Vec<u8> {
    frame::encode(message)[4..].to_vec()
}

fn refusal_code<T: for<'b> Decode<'b, ()> + Message>(body: &[u8]) -> Option<RefusalCode> {
    let error = frame::decode::<T>(body).err()?;
    Some(FrameError::refusal_of(&error).code)
}

/// A set of indices as any client could encode it.
fn ranges(ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut e = Encoder::new(Vec::new());
    let mut encode = || {
        e.map(ranges.len() as u64)?;
        let mut ranges = ranges.iter();
        ranges.try_for_each(|(first, last)| e.u32(*first)?.u32(*last)?.ok())
    };
    encode().expect("writing to memory cannot fail");
    e.into_writer()
}

/// The bytes with the only place where `from` is found made `to`.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|w| w == from);
    let at = at.expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn an_array_of_overlapping_ranges_is_refused() {
    let mut indices = IndexSet::default();
    indices.insert_range(0, 3);
    indices.insert_range(52, 59);
    let valid = ranges(&[(0, 3), (52, 59)]);
    let spec = JobSpec {
        begin: Some(Timestamp(1_000_000)),
        array: Some(ArraySpec {
            indices,
            throttle: None,
        }),
        ..JobSpec::default()
    };
    let bytes = encoded(&submission(spec));
    frame::decode::<Request>(&bytes).unwrap();
    let overlapping = replaced(&bytes, &valid, &ranges(&[(0, 3), (2, 9)]));
    let code = refusal_code::<Request>(&overlapping);
    assert_eq!(code, Some(RefusalCode::ProtocolError));
}

#[test]
fn a_target_whose_range_ends_before_it_begins_is_refused() {
    let target = JobTarget {
        job: JobId(7),
        tasks: Some(IndexSet::single(53)),
        component: None,
    };
    let cancel = UserCommand::Cancel {
        selection: JobSelection {
            targets: vec![target],
            ..JobSelection::default()
        },
    };
    let bytes = encoded(&request(cancel));
    frame::decode::<Request>(&bytes).unwrap();
    let backwards = replaced(&bytes, &ranges(&[(53, 53)]), &ranges(&[(5, 1)]));
    frame::decode::<Request>(&backwards).unwrap_err();
    let beyond = replaced(
        &bytes,
        &ranges(&[(53, 53)]),
        &ranges(&[(50_000, 7), (1, 2)]),
    );
    frame::decode::<Request>(&beyond).unwrap_err();
}

#[test]
fn texts_have_bounds_of_their_own() {
    let with = |mail: usize, key: usize| JobSpec {
        mail: MailOptions::of_texts("END".to_owned(), "m".repeat(mail)),
        shown: vec![("k".repeat(key), String::new())],
        ..JobSpec::default()
    };
    let code = |spec: JobSpec| refusal_code::<Request>(&encoded(&submission(spec)));
    assert_eq!(code(with(64 << 10, 64 << 10)), None);
    assert_eq!(code(with((64 << 10) + 1, 0)), Some(RefusalCode::TooLong));
    assert_eq!(code(with(0, (64 << 10) + 1)), Some(RefusalCode::TooLong));
    let nul = JobSpec {
        work_dir: "/tmp\0/x".to_owned(),
        ..JobSpec::default()
    };
    assert_eq!(code(nul), Some(RefusalCode::InvalidValue));
    let last = JobSpec {
        begin: Some(Timestamp(i64::MAX)),
        ..JobSpec::default()
    };
    assert_eq!(code(last), Some(RefusalCode::InvalidValue));
}

#[test]
fn a_long_frame_is_refused_by_its_length() {
    let announced = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
    let mut frames = Frames::default();
    frames.push(&announced(REQUEST_BYTES_MAX));
    assert!(matches!(frames.take::<Request>(), Ok(None)));
    let mut frames = Frames::default();
    frames.push(&announced(REQUEST_BYTES_MAX + 1));
    frames.take::<Request>().unwrap_err();
    frame::length_of::<Request>(announced(REQUEST_BYTES_MAX + 1)).unwrap_err();
    frame::decode::<Request>(&vec![0; REQUEST_BYTES_MAX + 1]).unwrap_err();
}

#[test]
fn the_largest_submission_fits() {
    let blob = |bytes: usize, id: u8| (BlobId([id; 32]), ByteVec::from(vec![b'#'; bytes]));
    let arguments = SUBMIT_LINE_BYTES_MAX / (128 << 10);
    let message = request(UserCommand::Submit {
        spec: Box::new(JobSpec {
            submit_line: "x".repeat(SUBMIT_LINE_BYTES_MAX),
            argv: vec!["x".repeat(128 << 10); arguments],
            ..JobSpec::default()
        }),
        blobs: vec![blob(SCRIPT_BYTES_MAX, 1), blob(CONTEXT_BYTES_MAX, 2)],
        test_only: false,
    });
    let body = encoded(&message);
    assert!(frame::decode::<Request>(&body).unwrap() == message);
}

#[test]
fn items_of_few_bytes_are_counted() {
    // Two bytes each, 56 in memory: `scancel` of millions of jobs.
    let mut e = Encoder::new(Vec::new());
    e.array(2).unwrap().u32(PROTOCOL).unwrap();
    e.array(2).unwrap().u32(0).unwrap();
    e.array(1).unwrap().array(2).unwrap().u32(1).unwrap();
    e.array(1).unwrap().array(1).unwrap();
    let targets = REQUEST_ITEMS_MAX as u64 / 2;
    e.array(targets).unwrap();
    (0..targets).for_each(|n| {
        e.array(1).unwrap().u64(n).unwrap();
    });
    let body = e.into_writer();
    assert!(body.len() < 4 << 20);
    let error = frame::decode::<Request>(&body).unwrap_err();
    assert!(error.to_string().contains("values"), "{error}");
}

#[test]
fn messages_within_messages_end_somewhere() {
    // Each level of a relayed message is three bytes, and would be a level of the stack.
    let levels = 1 << 20;
    let mut body = [0x82, 13, 0x82, 0].repeat(levels);
    body.extend([0x81, 16]);
    frame::decode::<ToStepd>(&body).unwrap_err();
    let mut body = [0x82, 12, 0x84, 0, 0, 0].repeat(levels);
    body.extend([0x81, 5]);
    frame::decode::<FromStepd>(&body).unwrap_err();
    let relayed = ToStepd::ForwardDown(7, Box::new(ToStepd::SrunDisconnected));
    assert_eq!(
        frame::decode::<ToStepd>(&encoded(&relayed)).unwrap(),
        relayed
    );
}

#[test]
fn numbers_of_steps_are_those_that_steps_have() {
    let create = |step: u32| {
        AgentRequest::Create(Box::new(StepSpec {
            het: Some(HetStep {
                step,
                ..HetStep::default()
            }),
            ..StepSpec::default()
        }))
    };
    let code = |request: AgentRequest| refusal_code::<AgentRequest>(&encoded(&request));
    assert_eq!(code(create(StepNo::COUNTED_MAX)), None);
    for step in [StepNo::COUNTED_MAX + 1, StepNo::BATCH.0, StepNo::EXTERN.0] {
        assert_eq!(code(create(step)), Some(RefusalCode::InvalidValue));
    }
    let signal = |step: StepNo, signal: u32| AgentRequest::SignalStep {
        job: JobId(1),
        key: Vec::new().into(),
        step,
        signal,
        below: Vec::new(),
    };
    assert_eq!(code(signal(StepNo::BATCH, 9)), None);
    assert_eq!(
        code(signal(StepNo(1 << 30), 9)),
        Some(RefusalCode::InvalidValue)
    );
    assert_eq!(code(signal(StepNo(0), 65)), Some(RefusalCode::InvalidValue));
}

#[test]
fn what_follows_a_message_is_refused() {
    let mut body = encoded(&ToNode::Ping);
    frame::decode::<ToNode>(&body).unwrap();
    body.push(0);
    frame::decode::<ToNode>(&body).unwrap_err();
}

fn step_spec() -> StepSpec {
    StepSpec {
        job: JobId(3),
        name: "n".to_owned(),
        argv: vec!["a".to_owned()],
        context: ExecContext {
            environment: ["A=1", "B=2"].iter().collect(),
            umask: 0o22,
            soft_limits: vec![SoftLimit::new(0, 1)],
        },
        ntasks: Some(2),
        nodelist: Some("n[1-2]".to_owned()),
        het: Some(HetStep::default()),
        ..StepSpec::default()
    }
}

fn launch() -> StepLaunch {
    StepLaunch {
        key: vec![1; 16].into(),
        spec: step_spec(),
        step: StepNo(4),
        step_key: vec![2; 16].into(),
        position: 0,
        tasks: vec![vec![0, 1]],
        names: vec!["n1".to_owned()],
        cpus: CpuSet::first(70),
        memory_mib: 5,
        gres: Vec::new(),
        lead: "unix:/x".to_owned(),
        width: 2,
        above: None,
    }
}

fn end() -> StepEnd {
    StepEnd {
        end_time: Timestamp(5),
        exit: ExitStatus { code: 1, signal: 0 },
        state: JobState::Failed,
        usage: ResourceUsage::default(),
        cancelled_by: None,
        last_lines: None,
    }
}

fn grant() -> JobGrant {
    JobGrant {
        job: JobId(3),
        attempt: Attempt(1),
        spec: Arc::new(JobSpec::default()),
        alloc: Allocation {
            hostlist: "n1".to_owned(),
            ..Allocation::default()
        }
        .into(),
        position: 0,
        array: ArrayRole::Pending {
            indices: IndexSet::single(3),
        },
        array_info: None,
        start_time: Timestamp(1),
        time_limit: TimeLimit::Unlimited,
        restarts: 0,
        addresses: vec!["unix:/y".to_owned()],
        key: vec![3; 16].into(),
        account: "a".to_owned(),
        qos: "q".to_owned(),
        next_step: 0,
        components: Vec::new(),
        resizes: 0,
        het_key: Some(vec![4; 16].into()),
    }
}

/// Decodes what was made of a message; whatever comes of it, it is no panic.
fn try_it<T: for<'b> Decode<'b, ()> + Message>(body: &[u8]) {
    if let Ok(message) = frame::decode::<T>(body) {
        message.validate().expect("what was decoded is valid");
    }
    let mut frames = Frames::default();
    frames.push(body);
    let _ = frames.take::<T>();
}

type Sample = (Vec<u8>, fn(&[u8]));

fn sample<T: for<'b> Decode<'b, ()> + Message + Encode<()>>(message: &T) -> Sample {
    let body = encoded(message);
    frame::decode::<T>(&body).expect("a valid message");
    (body, try_it::<T>)
}

/// One of each kind of message that a daemon takes from another process.
fn samples() -> Vec<Sample> {
    let bytes = || ByteVec::from(vec![1, 2, 3]);
    let of = |body: RequestBody| Request {
        version: PROTOCOL,
        client: None,
        body,
    };
    let orders = Orders {
        cluster: "c".to_owned(),
        node: "n1".to_owned(),
        at: Timestamp(9),
        blobs: vec![(BlobId([1; 32]), bytes())],
        orders: vec![
            Order::Launch(Box::new(grant())),
            Order::StepLimit {
                job: JobId(3),
                attempt: Attempt(1),
                step: StepNo(1),
                limit: TimeLimit::Minutes(7),
            },
        ],
        drop_blobs: vec![BlobId([2; 32])],
        settings: Some(Box::default()),
    };
    let hello = NodeHello {
        name: "n1".to_owned(),
        info: NodeInfo::default(),
        present: vec![JobAttempt::new(JobId(3), Attempt(1))],
        key: bytes(),
        launcher_key: bytes(),
        dynamic: None,
    };
    let reports = vec![NumberedReport {
        seq: 1,
        job: JobId(3),
        attempt: Attempt(1),
        report: Report::BatchEnded {
            exit: ExitStatus { code: 1, signal: 0 },
            oom: false,
            end: Box::new(end()),
        },
    }];
    let share = StepShare {
        address: "unix:/z".to_owned(),
        cpus: CpuSet::first(3),
        memory_mib: 1,
        gres: Vec::new(),
    };
    let created = StepCreated {
        step: StepNo(4),
        nodes: vec![StepNode {
            name: "n1".to_owned(),
            address: "unix:/a".to_owned(),
            tasks: vec![0, 1],
        }],
        key: bytes(),
        hostlist: "n1".to_owned(),
        mesh_addresses: vec![],
        width: 1,
        direct: false,
        cpu_bind: String::new(),
    };
    vec![
        sample(&submission(JobSpec {
            array: Some(ArraySpec {
                indices: IndexSet::single(3),
                throttle: Some(1),
            }),
            ..JobSpec::default()
        })),
        sample(&of(RequestBody::Query(Box::new(Query::Jobs(JobFilter {
            ids: vec![JobId(3)],
            uids: vec![1000],
            states: vec![JobState::Pending],
            partitions: vec!["p".to_owned()],
            active: true,
            starts: true,
        }))))),
        sample(&of(RequestBody::Query(Box::new(Query::Accounting(
            Box::new(AcctQuery {
                jobs: vec![(JobId(3), Some(1))],
                names: vec!["j".to_owned()],
                start: Some(Timestamp(1)),
                ..AcctQuery::default()
            }),
        ))))),
        sample(&of(RequestBody::ServeNode("n1".to_owned()))),
        sample(&of(RequestBody::Token {
            user: Some("ada".to_owned()),
            lifespan_s: Some(60),
        })),
        sample(&of(RequestBody::NodeToken {
            node: Some("n1".to_owned()),
            lifespan_s: Some(60),
        })),
        sample(&of(RequestBody::ForgetNodeKeys(vec!["n1".to_owned()]))),
        sample(&JoinHello {
            greeting: Versions::CLUSTER.greeting(),
            key: bytes(),
            proof: bytes(),
        }),
        sample(&of(RequestBody::NodeHello(Box::new(hello)))),
        sample(&of(RequestBody::WaitNodes(3))),
        sample(&Response::Welcome(Box::new(Welcome {
            public_key: bytes(),
            cluster: "c".to_owned(),
            greeting: Some(Versions::CLUSTER.greeting()),
        }))),
        sample(&ToNode::Sealed {
            orders: bytes(),
            seal: bytes(),
            launcher_seal: bytes(),
        }),
        sample(&orders),
        sample(&ToCtld::Reports(reports)),
        sample(&step_spec().context),
        sample(&AgentRequest::Create(Box::new(step_spec()))),
        sample(&AgentRequest::StartStep(Box::new(launch()), vec![share])),
        sample(&AgentRequest::ServeNode("n1".to_owned(), None)),
        sample(&AgentRequest::StepNodeEnded {
            job: JobId(3),
            key: bytes(),
            step: StepNo(1),
            position: 0,
            end: Box::new(end()),
            others: vec![NodeEnd {
                position: 1,
                end: end(),
            }],
            onwards: true,
        }),
        sample(&AgentReply::Created(Box::new(created.clone()))),
        sample(&ToStepd::ForwardDown(
            1,
            Box::new(ToStepd::Attach(Box::new(Attach {
                key: bytes(),
                below: vec!["unix:/b".to_owned()],
                srun: true,
                seen: vec![1, 2],
                greeting: Some(Versions::CLUSTER.greeting()),
            }))),
        )),
        sample(&FromStepd::ForwardUp {
            position: 1,
            number: 2,
            acknowledged: 3,
            message: Box::new(FromStepd::Created(Box::new(created))),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_are_a_panic(pick in any::<usize>(), changes in proptest::collection::vec(change(), 1..6)) {
        let all = samples();
        let (body, try_it) = &all[pick % all.len()];
        // Changes of items need valid CBOR, which cuts and single bytes may leave otherwise.
        changes.iter().for_each(|change| try_it(&changed(body, change)));
    }

    #[test]
    fn random_bytes_are_refused(pick in any::<usize>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let all = samples();
        all[pick % all.len()].1(&bytes);
    }
}
