//! Tests of replies to clients and other agents on a connection.

use super::*;
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobId, StepNo};
use muster_proto::step::StepSpec;
use std::io::Read as _;

/// The reply to a user who sends this and then nothing.
async fn answer_to(said: &[u8]) -> Vec<AgentReply> {
    answer_by(1000, said).await.0
}

/// The quota of this user, and the number of requests passed on.
async fn answer_by(uid: u32, said: &[u8]) -> (Vec<AgentReply>, usize) {
    let (replies, handed_on, _) = outcome_of(uid, said).await;
    (replies, handed_on)
}

/// The same, and the number of refusals in the audit log.
async fn outcome_of(uid: u32, said: &[u8]) -> (Vec<AgentReply>, usize, usize) {
    outcome_for(uid, None, said).await
}

/// The same on a connection from another host that is limited to one job.
async fn outcome_for(
    uid: u32,
    only_job: Option<JobId>,
    said: &[u8],
) -> (Vec<AgentReply>, usize, usize) {
    let quotas = Quotas::new(0, 20_000);
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(said).unwrap();
    if uid == 0 {
        // Such a connection may stay silent without limit.
        far.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let (inputs, mut inbox) = mpsc::unbounded_channel();
    let client = quotas.client(uid).unwrap();
    let connected = Connected {
        client,
        place: ClientPlace::Process(0),
        only_job,
    };
    serve(near, connected, 1, inputs).await;
    let (mut handed_on, mut denied) = (0, 0);
    while let Ok(input) = inbox.try_recv() {
        handed_on += usize::from(matches!(
            input,
            Input::Client(.., ClientInput::Request { .. })
        ));
        denied += usize::from(matches!(input, Input::Denied(..)));
    }
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).unwrap();
    let mut frames = Frames::default();
    frames.push(&bytes);
    let replies = std::iter::from_fn(|| frames.take().unwrap()).collect();
    (replies, handed_on, denied)
}

fn codes(replies: &[AgentReply]) -> Vec<RefusalCode> {
    let code = |reply: &AgentReply| match reply {
        AgentReply::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    };
    replies.iter().map(code).collect()
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection() {
    let began = tokio::time::Instant::now();
    assert_eq!(codes(&answer_to(b"").await), [RefusalCode::Busy]);
    assert!(began.elapsed() >= IDLE_MAX && began.elapsed() < IDLE_MAX * 2);
    assert_eq!(codes(&answer_to(&[0, 0, 1]).await), [RefusalCode::Busy]);
    assert!(began.elapsed() < IDLE_MAX * 2);
}

/// The supervisor of another node, which is root, opens the connection and announces the agent;
/// that agent is not root.
#[tokio::test(start_paused = true)]
async fn a_connection_of_another_agent_is_good_for_nothing_else() {
    let frames = |requests: &[AgentRequest]| -> Vec<u8> {
        requests.iter().flat_map(frame::encode).collect()
    };
    let serve = || AgentRequest::ServeNode("n2".to_owned(), None);
    let (job, key) = (JobId(1), ByteVec::from(vec![1; 16]));
    let signal = || AgentRequest::SignalStep {
        job,
        key: key.clone(),
        step: StepNo(0),
        signal: 9,
        below: Vec::new(),
    };
    let create = || {
        AgentRequest::Create(Box::new(StepSpec {
            job,
            argv: vec!["true".to_owned()],
            ..StepSpec::default()
        }))
    };
    let number = AgentRequest::TakeStepNumber { job, key: None };
    for other in [
        create(),
        number,
        AgentRequest::Inspect { job },
        AgentRequest::Measure { job },
        serve(),
    ] {
        let said = frames(&[serve(), signal(), other.clone(), signal()]);
        let (replies, handed_on, denied) = outcome_of(0, &said).await;
        assert_eq!(codes(&replies), [RefusalCode::AccessDenied], "{other:?}");
        assert_eq!((handed_on, denied), (1, 1), "{other:?}");
    }
    // A client that acted as root before, or that is a user, cannot become an agent either.
    for (uid, said, before) in [(0, [create(), serve()], 1), (1000, [serve(), signal()], 0)] {
        let (replies, handed_on) = answer_by(uid, &frames(&said)).await;
        assert_eq!(codes(&replies), [RefusalCode::AccessDenied]);
        assert_eq!(handed_on, before);
    }
}

/// A message of another version need not be parsable, because its contents are ignored. The key of
/// one of root's jobs gives no rights to other jobs of root, nor those of another node's agent.
#[tokio::test(start_paused = true)]
async fn the_key_of_a_job_is_good_for_no_other() {
    let inspect = |job| frame::encode(&AgentRequest::Inspect { job: JobId(job) });
    let serve = frame::encode(&AgentRequest::ServeNode("n2".to_owned(), None));
    let greeting = frame::encode(&AgentRequest::Greeting(Versions::CLUSTER.greeting()));
    for (said, handed_on) in [
        ([greeting.clone(), inspect(7)].concat(), 1),
        (inspect(8), 0),
        (serve, 0),
        ([inspect(7), inspect(8)].concat(), 1),
    ] {
        let (replies, count, refusals) = outcome_for(0, Some(JobId(7)), &said).await;
        assert_eq!(count, handed_on, "{replies:?}");
        if handed_on == 0 {
            assert_eq!(codes(&replies), [RefusalCode::AccessDenied]);
            assert_eq!(refusals, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_is_refused_by_name() {
    let of = |protocol: u32| Greeting {
        protocol,
        release: "9.9.9".to_owned(),
    };
    let newest = Versions::CLUSTER.newest;
    let clients = |greeting: Greeting| frame::encode(&AgentRequest::Greeting(greeting));
    let agents = |greeting: Greeting| {
        frame::encode(&AgentRequest::ServeNode("n2".to_owned(), Some(greeting)))
    };
    for (uid, first) in [(1000, clients(of(newest + 1))), (0, agents(of(newest + 1)))] {
        let said = [first, vec![0, 0, 0, 1, 0xff]].concat();
        let (replies, handed_on) = answer_by(uid, &said).await;
        let [AgentReply::Refused(refusal)] = &*replies else {
            panic!("{replies:?}");
        };
        assert_eq!(refusal.code, RefusalCode::ProtocolError);
        let both = [
            format!("protocol {} (muster 9.9.9)", newest + 1),
            format!("protocol {newest} "),
        ];
        assert!(both.iter().all(|v| refusal.detail.contains(v)), "{refusal}");
        assert!(
            refusal.detail.contains("update this node's slurmd"),
            "{refusal}"
        );
        assert_eq!(handed_on, 0);
    }
    // The same version, and a missing version, which means the first, are understood.
    let inspect = frame::encode(&AgentRequest::Inspect { job: JobId(1) });
    for first in [clients(of(newest)), Vec::new()] {
        let (_, handed_on) = answer_by(0, &[first, inspect.clone()].concat()).await;
        assert_eq!(handed_on, 1);
    }
}

/// Another agent could leave any number of half requests here for as long as it liked.
#[tokio::test(start_paused = true)]
async fn half_a_request_of_another_agent_has_a_time_limit() {
    let quotas = Quotas::new(0, 20_000);
    let connect = || {
        let (near, far) = UnixStream::pair().unwrap();
        let mut client = quotas.client(0).unwrap();
        assert!(client.become_agent(Sender::AgentsOfJob(7)));
        let connected = Connected {
            client,
            place: ClientPlace::Host(None),
            only_job: None,
        };
        let (inputs, _inbox) = mpsc::unbounded_channel();
        (tokio::spawn(serve(near, connected, 1, inputs)), far)
    };
    let (served, mut far) = connect();
    far.write_all(&[0, 0, 1]).unwrap();
    let began = tokio::time::Instant::now();
    let within = tokio::time::timeout(2 * AGENTS_HALF_SENT_MAX, served).await;
    within.expect("it is closed").unwrap();
    assert!(began.elapsed() >= AGENTS_HALF_SENT_MAX);
    // A connection kept for the next request is closed after the other agent has stopped using it;
    // otherwise it would occupy one of the places of all agents for good.
    let (served, _far) = connect();
    let began = tokio::time::Instant::now();
    let within = tokio::time::timeout(10 * KEPT_IDLE_MAX, served).await;
    within.expect("it is closed").unwrap();
    assert!(began.elapsed() > KEPT_IDLE_MAX);
}

/// Who has the key of a job can name each of its nodes: each name had places of its own.
#[tokio::test]
async fn agents_of_one_job_leave_places_for_those_of_others() {
    let (inputs, _inbox) = mpsc::unbounded_channel();
    let server = Server {
        next: Arc::default(),
        quotas: Quotas::new(0, 536),
        inputs,
    };
    let mut ends = Vec::new();
    let mut is_served = |job: u64, node: usize| {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let agent = JobAgent {
            job: JobId(job),
            node: format!("n{node}"),
        };
        let of = CallerOf::Node(agent);
        server.serve_remote(near, Caller { uid: 0, of }, None);
        let refused = far.read(&mut [0]);
        ends.push(far);
        refused.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    };
    let first = (0..100).filter(|node| is_served(1, *node)).count();
    assert!((10..20).contains(&first), "{first} of 40 places");
    assert!((0..4).all(|node| is_served(2, node)));
}

#[tokio::test(start_paused = true)]
async fn many_requests_end_a_connection() {
    let one = frame::encode(&AgentRequest::Inspect { job: JobId(1) });
    let said = one.repeat(REQUESTS_MAX as usize + 1);
    assert_eq!(codes(&answer_to(&said).await), [RefusalCode::Busy]);
}

/// Hundreds of thousands of requests of a user waited for their turns in the agent's memory.
#[tokio::test]
async fn of_the_requests_of_a_user_a_few_wait_and_others_are_not_read() {
    let quotas = Quotas::new(0, 20_000);
    let (inputs, mut inbox) = mpsc::unbounded_channel();
    let said =
        frame::encode(&AgentRequest::Inspect { job: JobId(1) }).repeat(REQUESTS_MAX as usize);
    let ends: Vec<UnixStream> = (1..=5)
        .map(|conn| {
            let (near, mut far) = UnixStream::pair().unwrap();
            far.write_all(&said).unwrap();
            let connected = Connected {
                client: quotas.client(1000).unwrap(),
                place: ClientPlace::Process(0),
                only_job: None,
            };
            tokio::spawn(serve(near, connected, conn, inputs.clone()));
            far
        })
        .collect();
    let mut waiting = Vec::new();
    while waiting.len() < 4 * REQUESTS_MAX as usize {
        waiting.push(inbox.recv().await.unwrap());
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(inbox.try_recv().is_err(), "the fifth waits");
    waiting.truncate(3 * REQUESTS_MAX as usize);
    while waiting.len() < 4 * REQUESTS_MAX as usize {
        waiting.push(inbox.recv().await.unwrap());
    }
    drop(ends);
}
