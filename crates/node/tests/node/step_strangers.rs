//! Who connects to a step's daemon, or asks for a step, without the right to.

use super::Test;
use super::cluster::{Dir, Node};
use super::steps::{Srun, allocate, spec};
use super::versions::hello;
use muster_proto::frame;
use muster_proto::step::{AgentReply, FromStepd};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

pub const TESTS: &[Test] = &[("strangers_are_refused", strangers)];

fn strangers() {
    let dir = Dir::new("strange");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let srun = Srun::ask(&node, spec(1, &dir, &["true"])).created();
    let created = srun.created.clone().unwrap();
    let path = created.nodes[0].address.strip_prefix("unix:").unwrap();
    let mut stranger = UnixStream::connect(path).unwrap();
    frame::write(&mut stranger, &hello(&[0; 16])).unwrap();
    assert!(
        frame::read::<FromStepd>(&mut stranger).is_err(),
        "a wrong key is hung up on"
    );
    // Nor does anybody without the key have as much memory of the daemon as there is, or all of its descriptors.
    let mut long = UnixStream::connect(path).unwrap();
    let half = [&(60u32 << 20).to_be_bytes()[..], &vec![0; 8 << 20]].concat();
    assert!(long.write_all(&half).is_err(), "a long greeting is cut off");
    let mut first = UnixStream::connect(path).unwrap();
    let others = [(); 64].map(|()| UnixStream::connect(path).unwrap());
    assert_eq!(first.read(&mut [0]).unwrap(), 0, "the oldest is hung up on");
    let rights = [others[0].as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&rights)];
    let byte = [IoSlice::new(&[0])];
    let sent = sendmsg::<()>(
        others[0].as_raw_fd(),
        &byte,
        &rights,
        MsgFlags::empty(),
        None,
    );
    // Older kernels take them (SO_PASSRIGHTS).
    match knows_passrights() {
        true => assert_eq!(sent, Err(Errno::EPERM)),
        false => eprintln!("this kernel has no SO_PASSRIGHTS; descriptors were not looked at"),
    }
    let mut stepd = UnixStream::connect(path).unwrap();
    frame::write(&mut stepd, &hello(&created.key)).unwrap();
    assert!(matches!(
        frame::read(&mut stepd).unwrap(),
        FromStepd::Started(_)
    ));
    match Srun::ask_once(&node, spec(99, &dir, &["true"])).reply() {
        AgentReply::Refused(_) => {}
        other => panic!("{other:?}"),
    }
}

/// Whether this kernel refuses descriptors where they are not expected: Linux 6.16 and later.
fn knows_passrights() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    version >= (6, 16)
}
