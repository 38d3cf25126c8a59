//! Processes of other versions: each is refused by name, and what runs goes on.

use super::Test;
use super::cluster::{Dir, Node, PATIENCE};
use super::steps::{Srun, allocate, another_shim, spec, step_end};
use minicbor::Encode;
use muster_model::effect::TerminateReason;
use muster_proto::PROTOCOL;
use muster_proto::frame;
use muster_proto::step::{FromStepd, ToStepd};
use muster_proto::version::{Greeting, Versions};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

pub const TESTS: &[Test] = &[
    ("srun_of_another_version_is_refused", newer_srun),
    ("agent_of_another_version_is_refused", older_agent),
    ("launcher_of_another_version_is_refused", older_launcher),
    ("step_daemon_of_another_version_is_left_alone", older_daemon),
];

/// What srun says first to a step daemon.
pub fn hello(key: &[u8]) -> ToStepd {
    let greeting = Versions::CLUSTER.greeting();
    ToStepd::Hello(key.to_vec().into(), Some(greeting))
}

/// A version before all others.
fn ancient() -> Greeting {
    Greeting {
        protocol: 0,
        release: "0.0.1".to_owned(),
    }
}

/// It gets a refusal that names both versions, and takes nobody's place.
fn newer_srun() {
    let dir = Dir::new("newer-srun");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).created();
    let created = srun.created.clone().unwrap();
    let path = created.nodes[0].address.strip_prefix("unix:").unwrap();
    let newer = Greeting {
        protocol: PROTOCOL + 1,
        release: "9.9.9".to_owned(),
    };
    let refused = |greeting: Option<Greeting>| {
        let mut other = UnixStream::connect(path).unwrap();
        let hello = ToStepd::Hello(created.key.clone(), greeting);
        frame::write(&mut other, &hello).unwrap();
        let FromStepd::Refused(refusal) = frame::read(&mut other).unwrap() else {
            panic!("it is not refused");
        };
        assert!(frame::read::<FromStepd>(&mut other).is_err());
        assert!(refusal.detail.contains("update"), "{refusal}");
        refusal.detail
    };
    let detail = refused(Some(newer));
    assert!(detail.contains("muster 9.9.9"), "{detail}");
    // Nor is anybody taken for one of this version who does not say so.
    let detail = refused(None);
    assert!(detail.contains("does not say which version"), "{detail}");
    let mut own = UnixStream::connect(path).unwrap();
    frame::write(&mut own, &hello(&created.key)).unwrap();
    assert!(matches!(
        frame::read(&mut own).unwrap(),
        FromStepd::Started(_)
    ));
}

/// Another agent than the node's attaches: the launcher refuses it, and stays with the one that it has.
fn older_agent() {
    let dir = Dir::new("older-agent");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let claim = (None::<u32>, 0u32, false);
    let attach = ("n1", "c", "0.0.1", claim, ancient());
    let answer = exchange(&node.spool.join("shim.sock"), &(0u32, (attach,)));
    let answer = String::from_utf8_lossy(&answer);
    for part in [
        "protocol 0 (muster 0.0.1)",
        "the launcher speaks",
        "update slurmd",
    ] {
        assert!(answer.contains(part), "{answer}");
    }
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).connect();
    assert!(srun.finish().exits[&0].is_ok());
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// A launcher that would take a step daemon over: it is not answered, and the daemon stays with the one that it has.
fn older_launcher() {
    let dir = Dir::new("older-shim");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    srun.started();
    let socket = node.step_socket();
    let answer = exchange(&socket, &ToStepd::Adopt(Some(ancient())));
    assert!(answer.is_empty(), "{answer:?}");
    end(&mut srun);
    assert_eq!(srun.finish().exits[&0].code, 5);
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
}

/// A new launcher finds a step daemon of an older version. The step runs on; its end is known from its result.
fn older_daemon() {
    let dir = Dir::new("older-stepd");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"])).connect();
    let task = srun.started()[0];
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).unwrap();
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"));
    let daemon: i32 = parent.unwrap().trim().parse().unwrap();
    // Who asks at its socket is answered as by an older one.
    let socket = node.step_socket();
    std::fs::rename(&socket, node.spool.join("away")).unwrap();
    let older = UnixListener::bind(&socket).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut launcher, _) = older.accept().unwrap();
        let asked: ToStepd = frame::read(&mut launcher).unwrap();
        assert!(matches!(asked, ToStepd::Adopt(Some(_))), "{asked:?}");
        let none: [u8; 0] = [];
        let running = ((1u64, 1u32), 0u32, daemon, none, none, ancient());
        let runs = frame::encode(&(1u32, (running,)));
        launcher.write_all(&runs).unwrap();
        launcher.set_read_timeout(Some(PATIENCE)).unwrap();
        // It is let go.
        assert_eq!(launcher.read(&mut [0]).unwrap(), 0);
    });
    another_shim(&mut node);
    answering.join().unwrap();
    end(&mut srun);
    assert_eq!(srun.finish().exits[&0].code, 5);
    let end = step_end(&mut node, 1, 0);
    assert_eq!((end.exit.code, end.usage.tasks), (5, 1));
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// Lets the step's task end.
fn end(srun: &mut Srun) {
    srun.send(&ToStepd::Stdin {
        task: None,
        bytes: b"x\n".to_vec().into(),
    });
}

/// Says something at a socket; all that is said there before the connection is closed.
fn exchange(socket: &Path, message: &impl Encode<()>) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    frame::write(&mut stream, message).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}
