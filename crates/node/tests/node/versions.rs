//! Processes of other versions: each is refused by name, and what runs goes on.

use super::Test;
use super::cluster::{Dir, Node};
use super::steps::{Srun, allocate, spec};
use muster_proto::PROTOCOL;
use muster_proto::frame;
use muster_proto::step::{FromStepd, ToStepd};
use muster_proto::version::Greeting;
use std::os::unix::net::UnixStream;

pub const TESTS: &[Test] = &[("srun_of_another_version_is_refused", newer_srun)];

/// It gets a refusal that names both versions, and takes nobody's place.
fn newer_srun() {
    let dir = Dir::new("newer-srun");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).created();
    let created = srun.created.clone().unwrap();
    let path = created.nodes[0].address.strip_prefix("unix:").unwrap();
    let mut newer = UnixStream::connect(path).unwrap();
    let greeting = Greeting {
        protocol: PROTOCOL + 1,
        release: "9.9.9".to_owned(),
    };
    let hello = ToStepd::Hello(created.key.clone(), Some(greeting));
    frame::write(&mut newer, &hello).unwrap();
    match frame::read(&mut newer).unwrap() {
        FromStepd::Refused(refusal) => {
            assert!(refusal.detail.contains("muster 9.9.9"), "{refusal}");
            assert!(refusal.detail.contains("update"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    assert!(frame::read::<FromStepd>(&mut newer).is_err());
    let mut own = UnixStream::connect(path).unwrap();
    frame::write(&mut own, &ToStepd::Hello(created.key, None)).unwrap();
    assert!(matches!(
        frame::read(&mut own).unwrap(),
        FromStepd::Started(_)
    ));
}
