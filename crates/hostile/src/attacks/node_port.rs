//! `SlurmdPort`, where other hosts reach a node's steps: who has no key of a job gets nothing by it, and keeps nobody out.

use super::{clear, finished, or_end, small_job};
use crate::cbor::Value;
use crate::jobs::{running_job_of, victim_works};
use crate::mutate;
use crate::network::{
    Begin, Carried, PATIENCE, address, credential, dial, hello, of_owner, own_hello,
};
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply, framed};
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, User, VICTIM, as_user, raise_descriptors};
use crate::target::{PORT_NODE as NODE, Target};
use minicbor::bytes::ByteVec;
use muster_channel::{SECRET, Scheme};
use muster_model::ids::{JobId, StepNo};
use muster_model::job::ExitStatus;
use muster_model::spec::JobSpec;
use muster_proto::address::Address;
use muster_proto::hello::JobCredential;
use muster_proto::step::{
    AgentReply, AgentRequest, Attach, FromStepd, StepCreated, StepSpec, ToStepd,
};
use muster_proto::version::{Greeting, Versions};
use muster_trust::channel_secret;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time for an answer that need not come: the agent keeps questions about jobs that it does not know.
const SHORT: Duration = Duration::from_millis(20);
/// Credentials with wrong values.
const WRONG: usize = 25;
/// Name of these in findings.
const CHANGED: &str = "a wrong value in";
/// Connections that say nothing, or not all: more than the relay keeps of strangers.
const CONNECTIONS: usize = 1100;
/// Channels of one user.
const CHANNELS: usize = 100;

/// A job on the node that serves the port, and what its owner has.
struct Owned {
    job: JobId,
    credential: Vec<u8>,
    secret: [u8; SECRET],
}

fn owned(target: &Target, user: User, outcome: &mut Outcome) -> Option<Owned> {
    let mut spec = JobSpec {
        ..small_job(target, user)
    };
    spec.ask.nodelist = Some(NODE.to_owned());
    let info = running_job_of(target, user, spec, outcome)?;
    Some(Owned {
        job: info.job.id,
        credential: of_owner(info.job.id),
        secret: channel_secret(&info.key),
    })
}

/// The port, and the attacker's job there.
fn begin(target: &Target, outcome: &mut Outcome) -> Option<(SocketAddr, Owned)> {
    let Some(at) = address(target) else {
        outcome.skipped.push("no agent serves a port".to_owned());
        return None;
    };
    let own = owned(target, ATTACKER, outcome)?;
    is_served(at, &own, outcome);
    Some((at, own))
}

/// A job's owner must be served.
fn is_served(at: SocketAddr, own: &Owned, outcome: &mut Outcome) {
    let answer = match open(at, own, &own_hello(), PATIENCE) {
        Ok(mut carried) => carried.ask::<AgentReply>(&AgentRequest::Inspect { job: own.job }),
        Err(e) => {
            outcome.sent += 1;
            return outcome.finding(format!("an owner gets no channel: {e}"));
        }
    };
    outcome.count("a request by the port", &answer);
    if !matches!(answer, PeerReply::Accepted(_)) {
        outcome.finding(format!("an owner is not served by the port: {answer:?}"));
    }
}

fn open(at: SocketAddr, own: &Owned, hello: &[u8], patience: Duration) -> std::io::Result<Carried> {
    Carried::open(at, &own.credential, &own.secret, hello, patience)
}

/// Sends bytes and says whether anything but a refusal came in a short time: an answer begins with a length above 0.
fn is_answered(at: SocketAddr, bytes: &[u8]) -> bool {
    let Ok(mut stream) = dial(at, SHORT) else {
        return false;
    };
    let _ = stream.write_all(bytes);
    let mut length = [0; 2];
    stream.read_exact(&mut length).is_ok() && length != [0, 0]
}

/// Openings that are cut, changed and too long, of other kinds and versions; and none at all.
pub(super) fn wrong_openings(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, own) = or_end!(begin(target, &mut outcome), target, outcome);
    let valid = || Begin::new(Scheme::Job, &own.credential, &own.secret, &own_hello());
    let opening = or_end!(valid().ok(), target, outcome).opening;
    for end in 0..opening.len() {
        outcome.sent += 1;
        let sent = dial(at, PATIENCE).and_then(|mut stream| stream.write_all(&opening[..end]));
        outcome.require(sent.is_ok(), "the port takes no connection");
    }
    let mut wrong: Vec<(String, Vec<u8>)> = Vec::new();
    for place in 0..opening.len() {
        let mut copy = opening.clone();
        copy[place] ^= 1 << random.below(8);
        wrong.push((format!("an opening with byte {place} changed"), copy));
    }
    for kind in (0..=7).chain([127, 255]) {
        let mut copy = opening.clone();
        if copy[8] != kind {
            copy[8] = kind;
            wrong.push((format!("a credential of kind {kind}"), copy));
        }
    }
    let surplus = [&opening[..], b"x"].concat();
    wrong.push(("an opening with more behind it".to_owned(), surplus));
    let long = [&opening[..9], &[0xff, 0xff], &[0; 70_000]].concat();
    wrong.push(("an endless credential".to_owned(), long));
    for text in ["muster/2", "\x16\x03\x01"] {
        wrong.push((format!("{text:?}"), text.as_bytes().to_vec()));
    }
    for (what, bytes) in wrong {
        outcome.sent += 1;
        match is_answered(at, &bytes) {
            true => outcome.finding(format!("{what} was answered as a channel")),
            false => outcome.refused += 1,
        }
    }
    wrong_greetings(at, &own, &mut outcome);
    wrong_confirmations(at, &own, random, &mut outcome);
    is_served(at, &own, &mut outcome);
    finished(target, outcome)
}

/// Greetings of versions that are not spoken, and ones that are none, of somebody who has the key.
fn wrong_greetings(at: SocketAddr, own: &Owned, outcome: &mut Outcome) {
    let versions = [0, Versions::CLUSTER.newest + 1, u32::MAX];
    let greetings = versions.map(|protocol| {
        hello(Greeting {
            protocol,
            ..Greeting::default()
        })
    });
    let none = [Vec::new(), vec![0xff], vec![0x9f; 1000], b"x".to_vec()];
    for bytes in greetings.into_iter().chain(none) {
        outcome.sent += 1;
        match open(at, own, &bytes, PATIENCE) {
            Ok(_) => outcome.finding(format!("a greeting of {} bytes that is none", bytes.len())),
            Err(_) => outcome.refused += 1,
        }
    }
}

/// After a right opening: a confirmation cut at each byte, none, noise, and noise behind it.
fn wrong_confirmations(at: SocketAddr, own: &Owned, random: &mut Random, outcome: &mut Outcome) {
    let mut length = 1;
    let mut end = 0;
    while end <= length {
        outcome.sent += 1;
        let cut = || -> std::io::Result<usize> {
            let mut begin = Begin::new(Scheme::Job, &own.credential, &own.secret, &own_hello())?;
            let mut stream = dial(at, PATIENCE)?;
            stream.write_all(&begin.opening)?;
            let confirmation = begin.finish(&mut stream)?.confirmation;
            stream.write_all(&confirmation[..end.min(confirmation.len())])?;
            Ok(confirmation.len())
        };
        match cut() {
            Ok(whole) => length = whole,
            Err(e) => return outcome.finding(format!("a channel of one's own: {e}")),
        }
        end += 1;
    }
    for count in [1, 18, 2000, 200_000] {
        let noise: Vec<u8> = (0..count).map(|_| random.number() as u8).collect();
        outcome.sent += 1;
        if let Ok(mut carried) = open(at, own, &own_hello(), PATIENCE) {
            let _ = carried.send_unsealed(&noise);
        }
        outcome.sent += 1;
        if let Ok(mut carried) = open(at, own, &own_hello(), PATIENCE) {
            let _ = carried.send(&noise);
        }
    }
}

/// A recorded connection of another user is refused when it is sent again.
pub(super) fn recorded_channel(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, own) = or_end!(begin(target, &mut outcome), target, outcome);
    let record = || -> std::io::Result<[bool; 2]> {
        let mut begin = Begin::new(Scheme::Job, &own.credential, &own.secret, &own_hello())?;
        let mut first = dial(at, PATIENCE)?;
        first.write_all(&begin.opening)?;
        let mut begun = begin.finish(&mut first)?;
        let mut said = begun.confirmation;
        let request = AgentRequest::Inspect { job: own.job };
        let request = framed(&Value::of(&request).encode());
        let sealed = begun.channel.sealer.seal(&request, &mut said);
        sealed.map_err(std::io::Error::other)?;
        first.write_all(&said)?;
        let mut second = dial(at, PATIENCE)?;
        second.write_all(&begin.opening)?;
        // It is answered, by another key.
        let mut answer = [0; 2048];
        let _ = second.read(&mut answer)?;
        second.write_all(&said)?;
        let served = |mut stream: TcpStream| matches!(stream.read(&mut [0; 64]), Ok(1..));
        Ok([served(first), served(second)])
    };
    outcome.sent += 2;
    match record() {
        Ok([true, false]) => outcome.refused += 1,
        Ok([first, second]) => outcome.finding(format!(
            "served the first time: {first}; when it was repeated: {second}"
        )),
        Err(e) => outcome.finding(format!("a channel of one's own: {e}")),
    }
    finished(target, outcome)
}

/// Another's job by the key of one's own: as its owner, as an agent, at its steps, and by requests through one's own channel.
pub(super) fn jobs_of_others(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, own) = or_end!(begin(target, &mut outcome), target, outcome);
    let theirs = or_end!(owned(target, VICTIM, &mut outcome), target, outcome);
    for (what, bytes) in foreign_credentials(target, own.job, theirs.job, random) {
        // A wrong value is one with the attacker's key; the others are tried with keys that are easy to guess as well.
        let guessed = [channel_secret(&[]), [0; SECRET]];
        let guessed = guessed.into_iter().filter(|_| !what.starts_with(CHANGED));
        for secret in guessed.chain([own.secret]) {
            outcome.sent += 1;
            match Carried::open(at, &bytes, &secret, &own_hello(), SHORT) {
                Ok(_) => outcome.finding(format!("{what}: a channel")),
                Err(_) => outcome.refused += 1,
            }
        }
    }
    for key in [&own.secret[..], &[]] {
        let of_theirs = requests::agent_samples(theirs.job, key).into_iter();
        let of_agents = requests::agent_samples(own.job, key).into_iter();
        let of_agents = of_agents.filter(|sample| {
            let names = [
                "StartStep",
                "StepNodeEnded",
                "SignalStep",
                "FindStep",
                "ServeNode",
            ];
            names.contains(&sample.name)
        });
        for sample in of_theirs.chain(of_agents) {
            let what = format!("{} by a channel of one's own job", sample.name);
            match open(at, &own, &own_hello(), PATIENCE) {
                Ok(mut carried) => {
                    let answer = carried.ask::<AgentReply>(&sample.request);
                    outcome.must_refuse(&what, &answer);
                }
                Err(e) => outcome.finding(format!("a channel of one's own: {e}")),
            }
        }
    }
    is_served(at, &theirs, &mut outcome);
    clear(target, VICTIM, &mut outcome);
    finished(target, outcome)
}

/// Credentials that the attacker's key must not be good for.
fn foreign_credentials(
    target: &Target,
    own: JobId,
    theirs: JobId,
    random: &mut Random,
) -> Vec<(String, Vec<u8>)> {
    let spool = target.spool(NODE);
    let entries = fs::read_dir(&spool).into_iter().flatten().flatten();
    // Sockets of step daemons as well, whose names other users cannot know.
    let mut paths: Vec<String> = entries.map(|e| e.path().display().to_string()).collect();
    let spool = spool.display();
    paths.extend([
        "/etc/shadow".to_owned(),
        target.controller().display().to_string(),
        format!("{spool}/step-/../noded.sock"),
        format!("{spool}/step-1/../../run/x.sock"),
        String::new(),
    ]);
    let node = |job, node: &str| JobCredential::Node {
        job,
        node: node.to_owned(),
    };
    let mut all = vec![
        JobCredential::Owner(theirs),
        node(own, "n1"),
        node(own, NODE),
        node(theirs, "n1"),
        node(own, ""),
    ];
    for path in paths {
        for job in [own, theirs] {
            all.push(JobCredential::Step {
                job,
                step: StepNo::BATCH,
                path: path.clone(),
            });
        }
    }
    let mut named: Vec<(String, Vec<u8>)> = all
        .iter()
        .map(|one| (format!("{one:?}"), credential(one)))
        .collect();
    for _ in 0..WRONG {
        let Some(one) = random.pick(&all) else { break };
        let bytes = mutate::one(&Value::of(one), random).encode();
        // It may have become the attacker's own.
        let is_own = peer::credential(&bytes) == Some(JobCredential::Owner(own));
        if !is_own && bytes.len() <= muster_channel::CREDENTIAL_BYTES_MAX {
            named.push((format!("{CHANGED} {one:?}"), bytes));
        }
    }
    named
}

/// A step that runs in a job, and the connection of its srun.
fn step_of(target: &Target, user: User, job: JobId) -> Option<(Peer, Box<StepCreated>)> {
    let spec = StepSpec {
        overlap: true,
        ..requests::step(job, &["sleep", "600"])
    };
    as_user(user, || {
        let mut peer = Peer::connect(&target.agent(NODE)).ok()?;
        let create = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
        match peer.ask::<AgentReply>(&create) {
            PeerReply::Accepted(AgentReply::Created(created)) => Some((peer, created)),
            _ => None,
        }
    })
}

/// First messages to a step daemon: to show a step's output, to be its srun, and to obey another launcher.
fn first_messages(key: &ByteVec) -> Vec<ToStepd> {
    let greeting = || Some(Versions::CLUSTER.greeting());
    vec![
        ToStepd::AttachReader(key.clone(), greeting()),
        ToStepd::Hello(key.clone(), greeting()),
        ToStepd::Attach(Box::new(Attach {
            key: key.clone(),
            below: Vec::new(),
            srun: true,
            seen: Vec::new(),
            greeting: greeting(),
        })),
        ToStepd::Adopt(greeting()),
        ToStepd::Signal(9),
        ToStepd::FailStep(ExitStatus { code: 1, signal: 0 }),
        ToStepd::SrunDisconnected,
    ]
}

/// The key of one's own step leads to step daemons of the job, whose sockets' names have a secret part; those of others want theirs,
/// also of who has learned it.
pub(super) fn steps_of_others(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, own) = or_end!(begin(target, &mut outcome), target, outcome);
    let theirs = or_end!(owned(target, VICTIM, &mut outcome), target, outcome);
    let [mine, other] =
        [(ATTACKER, own.job), (VICTIM, theirs.job)].map(|(user, job)| step_of(target, user, job));
    let Some(((_mine, mine), (_other, other))) = mine.zip(other) else {
        outcome.finding("an owner gets no step");
        return finished(target, outcome);
    };
    let socket = |step: &StepCreated| {
        let node = step.nodes.first();
        let address = node.and_then(|node| Address::parse(&node.address));
        address.map_or_else(String::new, |address| address.path)
    };
    let spool = target.spool(NODE);
    let guessed = spool.join(format!("step-{}.{}.sock", theirs.job, StepNo::BATCH.0));
    let ask = |path: String, message: &ToStepd| -> std::io::Result<PeerReply<FromStepd>> {
        let credential = credential(&JobCredential::Step {
            job: own.job,
            step: mine.step,
            path,
        });
        let secret = channel_secret(&mine.key);
        let mut carried = Carried::open(at, &credential, &secret, &own_hello(), PATIENCE)?;
        Ok(carried.ask(message))
    };
    for message in first_messages(&mine.key) {
        for path in [guessed.display().to_string(), socket(&other)] {
            outcome.sent += 1;
            match ask(path, &message) {
                Err(_) | Ok(PeerReply::Refused(_) | PeerReply::Closed) => outcome.refused += 1,
                Ok(answer) => outcome.finding(format!(
                    "another's step answers {message:?} with {answer:?}"
                )),
            }
        }
    }
    // Its srun comes last.
    let srun = ToStepd::Hello(mine.key.clone(), Some(Versions::CLUSTER.greeting()));
    outcome.sent += 1;
    match ask(socket(&mine), &srun) {
        Ok(PeerReply::Accepted(_)) => outcome.accepted += 1,
        other => outcome.finding(format!("one's own step does not answer: {other:?}")),
    }
    is_served(at, &theirs, &mut outcome);
    clear(target, VICTIM, &mut outcome);
    finished(target, outcome)
}

/// Thousands of connections that say nothing, a part, or whose owner has all that it may have: another user is served.
pub(super) fn crowded_port(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, own) = or_end!(begin(target, &mut outcome), target, outcome);
    let theirs = or_end!(owned(target, VICTIM, &mut outcome), target, outcome);
    let most = usize::try_from(raise_descriptors()).unwrap_or(0);
    let count = most.saturating_sub(400).min(CONNECTIONS);
    let opening = Begin::new(Scheme::Job, &own.credential, &own.secret, &own_hello());
    let opening = opening.map(|begin| begin.opening).unwrap_or_default();
    let mut idle = Vec::new();
    for number in 0..count {
        outcome.sent += 1;
        match dial(at, PATIENCE) {
            Ok(mut stream) => {
                let part = random.below(opening.len());
                if number % 2 == 0 && stream.write_all(&opening[..part]).is_err() {
                    outcome.refused += 1;
                }
                idle.push(stream);
            }
            Err(_) => outcome.refused += 1,
        }
        if number % 500 == 499 {
            is_served(at, &theirs, &mut outcome);
        }
    }
    let mut channels = Vec::new();
    for _ in 0..CHANNELS.min(most.saturating_sub(idle.len())) {
        outcome.sent += 1;
        match open(at, &own, &own_hello(), PATIENCE) {
            Ok(carried) => channels.push(carried),
            Err(_) => outcome.refused += 1,
        }
    }
    is_served(at, &theirs, &mut outcome);
    clear(target, VICTIM, &mut outcome);
    if let Err(e) = victim_works(target, Some(NODE), Duration::from_secs(30)) {
        outcome.finding(e);
    }
    drop((idle, channels));
    finished(target, outcome)
}
