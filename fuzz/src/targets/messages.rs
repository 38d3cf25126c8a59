//! Decoders: of the protocol, of what the processes of a node tell each other, of the journal. What is decoded can be
//! encoded, and is the same then.

use super::headed;
use minicbor::Encode;
use muster_core::event::Event;
use muster_core::state::State;
use muster_hostile::cbor::Value;
use muster_hostile::requests::{self, Ids};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::Job;
use muster_model::shared_spec::SpecTable;
use muster_model::spec::ExecContext;
use muster_node::fuzzing;
use muster_proto::client::{Request, Response};
use muster_proto::configuration::ConfigurationAnswer;
use muster_proto::frame::{self, Frames};
use muster_proto::hello::{ChannelAnswer, ChannelHello, HostAnswer, HostHello, JobCredential};
use muster_proto::node::{Orders, ToCtld, ToNode};
use muster_proto::node_trust::{JoinAnswer, JoinHello};
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, ToStepd};
use muster_proto::version::Greeting;

fn encoded<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("writing to memory cannot fail")
}

/// Decodes as the receiver of such a message, and again what that encodes to.
macro_rules! round_trip {
    ($type:ty, $bytes:expr) => {
        if let Ok(value) = frame::decode::<$type>($bytes) {
            let once = encoded(&value);
            let again = frame::decode::<$type>(&once).expect("what was decoded can be again");
            assert!(
                encoded(&again) == once,
                "{value:?} is {again:?} after a round trip"
            );
        }
    };
}

/// Messages of clients, agents and step daemons.
pub(super) fn of_protocol(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 12 {
        0..=2 => round_trip!(Request, bytes),
        3 => round_trip!(AgentRequest, bytes),
        4 => round_trip!(AgentReply, bytes),
        5 => round_trip!(ToStepd, bytes),
        6 => round_trip!(FromStepd, bytes),
        7 => round_trip!(ToNode, bytes),
        8 => round_trip!(Orders, bytes),
        9 => round_trip!(ToCtld, bytes),
        10 => round_trip!(ExecContext, bytes),
        _ => responses(bytes),
    }
    frames(data);
}

/// Messages before the sender is known, and answers to them.
pub(super) fn of_greetings(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    match kind % 9 {
        0 => round_trip!(JobCredential, bytes),
        1 => round_trip!(ChannelHello, bytes),
        2 => round_trip!(ChannelAnswer, bytes),
        3 => round_trip!(HostHello, bytes),
        4 => round_trip!(HostAnswer, bytes),
        5 => round_trip!(JoinHello, bytes),
        6 => round_trip!(JoinAnswer, bytes),
        7 => round_trip!(ConfigurationAnswer, bytes),
        _ => round_trip!(Response, bytes),
    }
}

pub(super) fn seeds_of_greetings() -> Vec<Vec<u8>> {
    let greeting = Value::of(&Greeting::default());
    let text = Value::Text(b"n1".to_vec());
    let variants = [
        Value::Array(vec![greeting.clone()]),
        Value::Array(vec![greeting.clone(), text.clone()]),
        Value::Array(vec![text.clone(), greeting, Value::Unsigned(7)]),
        Value::Array(vec![Value::Unsigned(0), Value::Array(vec![text])]),
        Value::Array(vec![Value::Unsigned(3), Value::Bytes(vec![1; 32])]),
    ];
    let all = (0..9).flat_map(|kind| variants.iter().map(move |value| headed(&[kind], value)));
    all.collect()
}

/// An answer of the controller, as commands read it.
fn responses(bytes: &[u8]) {
    let Ok(value) = minicbor::decode_with::<SpecTable, Response>(bytes, &mut SpecTable::default())
    else {
        return;
    };
    if let Response::Jobs(part) = value {
        let jobs: Vec<Job> = part.jobs.into_jobs();
        for job in &jobs {
            assert!(!format!("{job:?}").is_empty());
        }
    }
}

/// Frames that come in pieces.
fn frames(data: &[u8]) {
    let mut frames = Frames::default();
    for piece in data.chunks(7) {
        frames.push(piece);
        while let Ok(Some(frame)) = frames.take_whole() {
            assert!(frame.len() >= 4);
        }
    }
}

pub(super) fn seeds_of_protocol() -> Vec<Vec<u8>> {
    let ids = Ids {
        pending: JobId(1),
        array: JobId(2),
        running: JobId(3),
    };
    let bodies = requests::samples(&ids)
        .into_iter()
        .map(|sample| sample.body);
    let full = requests::submit(requests::full_job("/"), "#!/bin/sh\n");
    let requests_ = bodies
        .chain([full])
        .map(|body| headed(&[0], &muster_hostile::peer::request(body)));
    let to_agents = requests::agent_samples(JobId(3), &[1; 32])
        .into_iter()
        .map(|sample| headed(&[3], &Value::of(&sample.request)));
    let others = [
        headed(&[4], &Value::of(&AgentReply::Queued("x".to_owned()))),
        headed(
            &[5],
            &Value::of(&ToStepd::Hello(
                vec![1; 32].into(),
                Some(Greeting::default()),
            )),
        ),
        headed(
            &[5],
            &Value::of(&ToStepd::ForwardDown(
                1,
                Box::new(ToStepd::SrunDisconnected),
            )),
        ),
        headed(&[6], &Value::of(&FromStepd::Started(vec![1, 2]))),
        headed(
            &[6],
            &Value::of(&FromStepd::ForwardUp {
                position: 1,
                number: 1,
                acknowledged: 0,
                message: Box::new(FromStepd::NodeTasksEnded),
            }),
        ),
        headed(&[7], &Value::of(&ToNode::Ack(3))),
        headed(&[8], &Value::of(&orders())),
        headed(
            &[9],
            &Value::of(&ToCtld::Health {
                load_centi: 1,
                free_mib: 2,
                configuration: None,
            }),
        ),
        headed(&[11], &Value::of(&Response::NodesUp(2))),
    ];
    requests_.chain(to_agents).chain(others).collect()
}

fn orders() -> Orders {
    Orders {
        cluster: "c".to_owned(),
        node: "n1".to_owned(),
        at: muster_model::time::Timestamp(5),
        blobs: vec![(BlobId([1; 32]), vec![1, 2].into())],
        orders: vec![muster_proto::node::Order::Reboot],
        drop_blobs: vec![BlobId([2; 32])],
        settings: None,
    }
}

/// Messages between agent, shim and step daemons.
pub(super) fn of_node(data: &[u8]) {
    if let Some((kind, bytes)) = data.split_first() {
        fuzzing::decode(usize::from(*kind), bytes);
    }
}

pub(super) fn seeds_of_node() -> Vec<Vec<u8>> {
    let kinds = u8::try_from(fuzzing::KINDS).unwrap_or(u8::MAX);
    let launch = Value::of(&requests::launch(JobId(3), &[1; 32]));
    let end = Value::of(&muster_model::job::StepEnd::never_ran(
        muster_model::time::Timestamp(1),
    ));
    let variants = (0..30).flat_map(|variant| {
        let of = |fields| Value::Array(vec![Value::Unsigned(variant), Value::Array(fields)]);
        let run = Value::Array(vec![Value::Unsigned(3), Value::Unsigned(1)]);
        [
            of(Vec::new()),
            of(vec![run.clone()]),
            of(vec![run.clone(), Value::Unsigned(1), end.clone()]),
            of(vec![Value::Array(vec![run, launch.clone()])]),
        ]
    });
    let variants: Vec<Value> = variants.collect();
    let all = (0..kinds).flat_map(|kind| variants.iter().map(move |value| headed(&[kind], value)));
    all.collect()
}

/// Events, and states as snapshots have them.
pub(super) fn of_journal(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    if kind % 4 != 0 {
        if let Ok(event) = minicbor::decode::<Event>(bytes) {
            let once = encoded(&event);
            let again: Event = minicbor::decode(&once).expect("what was decoded can be again");
            assert!(
                encoded(&again) == once,
                "{event:?} is {again:?} after a round trip"
            );
        }
        return;
    }
    if let Ok(state) = State::decode_snapshot(bytes) {
        let mut once = Vec::new();
        state.encode_snapshot(&mut once);
        let again = State::decode_snapshot(&once).expect("what was decoded can be again");
        assert_eq!(again.digest(), state.digest());
    }
}

pub(super) fn seeds_of_journal() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (events, state) in super::decisions::histories() {
        seeds.extend(events.iter().map(|event| headed(&[1], &Value::of(event))));
        let mut snapshot = vec![0];
        state.encode_snapshot(&mut snapshot);
        seeds.push(snapshot);
    }
    seeds
}
