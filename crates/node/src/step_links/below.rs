//! Connections to the nodes below in the tree over a step's nodes. They carry bytes in both
//! directions, whose meaning is defined in [`muster_node_core::stepd::tree`].

use super::shown;
use super::wire::Wire;
use crate::shared_queue::SharedQueue;
use crate::{remote, stepd_log, sys};
use muster_channel::{Scheme, dial, open};
use muster_model::ids::StepId;
use muster_node_core::messages::ProcessIdentity;
use muster_node_core::stepd::tree::{BranchHead, OUTPUT_MAX};
use muster_proto::address::{Address, NetworkPlace};
use muster_proto::frame;
use muster_proto::hello::JobCredential;
use muster_proto::step::FromStepd;
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Uid;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

/// Time limit for a node below to accept a connection.
const CONNECT_WAIT_S: i64 = 5;
/// Longer frames cannot be [`FromStepd::ConnectionFinished`].
const OVER_MAX: usize = 16;
/// Bytes that leave a node's queue at a time.
const SEND_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Below {
    nodes: Vec<NodeBelow>,
}

/// The head of a branch below.
#[derive(Debug)]
struct NodeBelow {
    position: u32,
    wire: Wire,
    /// Frames to send to it.
    waiting: SharedQueue,
    /// The branch has reported that it is over.
    is_over: bool,
}

impl Below {
    /// Connects to the branches below, as `user` if this process is root; returns the positions
    /// that cannot be reached.
    pub(crate) fn connect(
        &mut self,
        branches: Vec<BranchHead>,
        user: Option<&ProcessIdentity>,
    ) -> Vec<u32> {
        let mut lost = Vec::new();
        for branch in branches {
            match NodeBelow::connect(&branch, user) {
                Ok(node) => self.nodes.push(node),
                Err(e) => {
                    let (at, why) = (shown(&branch.address), shown(&e.to_string()));
                    stepd_log::line(&format!("the step daemon at {at} cannot be reached: {why}"));
                    lost.push(branch.position);
                }
            }
        }
        lost
    }

    /// Sends a frame to the node at a position.
    pub(crate) fn send(&mut self, position: u32, frame: &Rc<Vec<u8>>) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.position == position) {
            node.waiting.push(frame);
            node.write();
        }
    }

    /// Whether the branches must wait for srun to catch up.
    pub(crate) fn is_stuffed(&self) -> bool {
        self.nodes.iter().any(|n| n.waiting.len() > OUTPUT_MAX)
    }

    /// Descriptors to poll; `full` while the side above must catch up.
    pub(crate) fn interests(&self, full: bool) -> impl Iterator<Item = (RawFd, i16)> {
        self.nodes.iter().map(move |node| {
            let reads = if full { 0 } else { libc::POLLIN };
            let writes = if node.has_output() { libc::POLLOUT } else { 0 };
            // poll(2) always reports a hang-up, so descriptors are left out while it cannot be
            // handled.
            let fd = if reads | writes == 0 {
                -1
            } else {
                node.wire.number()
            };
            (fd, reads | writes)
        })
    }

    /// Reads from the descriptors that poll reported; frames go to `up`. Returns the positions that
    /// have disconnected, and whether each was over.
    pub(crate) fn serve(&mut self, seen: &[bool], up: &mut Vec<u8>) -> Vec<(u32, bool)> {
        for (node, _) in self.nodes.iter_mut().zip(seen).filter(|(_, s)| **s) {
            node.write();
            node.read(up);
        }
        let gone = self.nodes.extract_if(.., |n| !n.wire.open);
        gone.map(|n| (n.position, n.is_over)).collect()
    }
}

impl NodeBelow {
    /// Connects to an address that srun has given. Any program may listen there: the connection is
    /// made with the user's rights, and the other side sees the user.
    fn connect(branch: &BranchHead, user: Option<&ProcessIdentity>) -> io::Result<NodeBelow> {
        let address = Address::parse(&branch.address)
            .ok_or_else(|| io::Error::other("invalid address of a step daemon"))?;
        let wire = match address.remote_place() {
            Some(there) => connect_remote(there, &address.path, branch)?,
            None => {
                let path = address.path.as_str();
                let connected = match user.filter(|_| Uid::effective().is_root()) {
                    Some(user) => sys::acting_as(user, || connect_soon(path))?,
                    None => connect_soon(path),
                };
                Wire::new(connected?)?
            }
        };
        let mut waiting = SharedQueue::default();
        waiting.push(&branch.greeting);
        let mut node = NodeBelow {
            position: branch.position,
            wire,
            waiting,
            is_over: false,
        };
        node.write();
        Ok(node)
    }

    fn has_output(&self) -> bool {
        self.wire.has_output() || !self.waiting.is_empty()
    }

    fn write(&mut self) {
        while self.wire.open && self.has_output() {
            if !self.wire.has_output() {
                let front = self.waiting.front();
                let part = &front[..front.len().min(SEND_MAX)];
                self.wire.output.extend_from_slice(part);
                self.waiting.advance(part.len());
            }
            if self.wire.write().is_err() {
                // The other side takes no more. Data that it has sent is still read; reading finds
                // the end.
                return self.waiting.clear();
            }
            if self.wire.has_output() {
                return;
            }
        }
    }

    fn read(&mut self, up: &mut Vec<u8>) {
        self.wire.read();
        loop {
            match self.wire.input.take_whole() {
                Ok(Some(frame)) if is_over(frame) => self.is_over = true,
                Ok(Some(frame)) => up.extend_from_slice(frame),
                Ok(None) => return,
                Err(e) => {
                    let why = shown(&e.to_string());
                    stepd_log::line(&format!("invalid message from a node below: {why}"));
                    self.wire.open = false;
                    return;
                }
            }
        }
    }
}

/// Connects to a step daemon on another host with the step's key.
fn connect_remote(there: &NetworkPlace, path: &str, branch: &BranchHead) -> io::Result<Wire> {
    let StepId { job, step } = branch.step;
    let path = path.to_owned();
    let credential = JobCredential::Step { job, step, path };
    let (credential, secret) = remote::proof(&credential, &branch.key);
    let tcp = dial(there.place.as_str(), remote::CONNECT_PATIENCE)?;
    let proof = (Scheme::Job, credential.as_slice(), &secret);
    let (channel, answer) = open(&tcp, proof, &remote::hello(), remote::CONNECT_PATIENCE)?;
    remote::check_answer(&answer, "slurmd there").map_err(io::Error::other)?;
    Wire::remote(tcp, channel)
}

/// Connects with a time limit of a few seconds.
fn connect_soon(path: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    setsockopt(&socket, SendTimeout, &TimeVal::seconds(CONNECT_WAIT_S))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn is_over(frame: &[u8]) -> bool {
    frame.len() <= OVER_MAX
        && matches!(
            frame::decode(&frame[4..]),
            Ok(FromStepd::ConnectionFinished)
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{JobId, StepNo};
    use nix::sys::socket::getsockopt;
    use nix::sys::socket::sockopt::PeerCredentials;
    use std::fs::{self, Permissions};
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_users_rights_count_where_srun_says_who_is_below() {
        if !Uid::effective().is_root() {
            eprintln!("not root: this test looked at nothing");
            return;
        }
        let dir = std::env::temp_dir().join(format!("muster-tree.{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let listen = |name: &str, mode: u32| {
            let path = dir.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            listener.set_nonblocking(true).unwrap();
            (format!("unix:{}", path.display()), listener)
        };
        let (of_root, roots) = listen("root", 0o600);
        let (of_all, alls) = listen("all", 0o666);
        let mut below = Below::default();
        let mut lost = |address: &str| {
            let branch = BranchHead {
                position: 1,
                address: address.to_owned(),
                greeting: Rc::new(Vec::new()),
                step: StepId::new(JobId(1), StepNo(0)),
                key: Vec::new().into(),
            };
            below.connect(vec![branch], Some(&nobody()))
        };
        assert_eq!(lost(&of_root), [1]);
        assert!(roots.accept().is_err(), "root's socket was connected to");
        assert!(lost(&of_all).is_empty());
        let (connection, _) = alls.accept().unwrap();
        let peer = getsockopt(&connection, PeerCredentials).unwrap();
        assert_eq!((peer.uid(), peer.gid()), (65534, 65534));
        assert!(Uid::effective().is_root());
        fs::remove_dir_all(dir).unwrap();
    }

    /// Input for all tasks was copied for each branch below.
    #[test]
    fn a_frame_for_all_branches_is_kept_once() {
        let dir = std::env::temp_dir().join(format!("muster-frames.{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let path = dir.join("node");
        let listener = UnixListener::bind(&path).unwrap();
        let greeting = Rc::new(b"greeting".to_vec());
        let branches = [1, 2].map(|position| BranchHead {
            position,
            address: format!("unix:{}", path.display()),
            greeting: Rc::clone(&greeting),
            step: StepId::new(JobId(1), StepNo(0)),
            key: Vec::new().into(),
        });
        let mut below = Below::default();
        assert!(below.connect(branches.into(), None).is_empty());
        let frame = Rc::new(vec![7; 4 << 20]);
        for position in [1, 2] {
            below.send(position, &frame);
        }
        assert!(below.is_stuffed());
        assert_eq!(Rc::strong_count(&frame), 3);
        let mut received: [Vec<u8>; 2] = Default::default();
        let mut ends = [(); 2].map(|()| listener.accept().unwrap().0);
        while received.iter().any(|all| all.len() < 8 + frame.len()) {
            assert!(below.serve(&[true, true], &mut Vec::new()).is_empty());
            for (end, received) in ends.iter_mut().zip(&mut received) {
                let mut chunk = vec![0; 1 << 20];
                end.set_nonblocking(true).unwrap();
                received.extend(end.read(&mut chunk).map_or(&[][..], |n| &chunk[..n]));
            }
        }
        let expected = [&greeting[..], &frame].concat();
        assert!(received.iter().all(|all| *all == expected));
        assert_eq!(Rc::strong_count(&frame), 1);
        assert!(
            below
                .interests(false)
                .all(|(_, events)| events == libc::POLLIN)
        );
        fs::remove_dir_all(dir).unwrap();
    }

    fn nobody() -> ProcessIdentity {
        ProcessIdentity {
            uid: 65534,
            gid: 65534,
            groups: vec![65534],
            name: "nobody".to_owned(),
        }
    }
}
