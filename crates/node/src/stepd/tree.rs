//! A step daemon's place in the tree over its step's nodes, where there is one: srun speaks to a few nodes, and each of
//! them for those below it. What srun says goes down to all; what a node says goes up with its position and a number,
//! and is kept until srun has it. So nothing is lost with a node in the middle: srun connects to those below it, and
//! has them send again what it has not received.

use super::client::Client;
use super::wire::Wire;
use super::{OUTPUT_MAX, Stepd};
use crate::sys;
use muster_model::tree;
use muster_node_core::messages::User;
use muster_proto::frame;
use muster_proto::step::{Attach, FromStepd, StepLaunch, ToStepd};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Uid;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a node whose connection upwards is lost waits for srun.
const ADOPTION_WAIT: Duration = Duration::from_secs(60);
/// How long a node below may take to accept a connection.
const CONNECT_WAIT_S: i64 = 5;
/// After so many bytes of input srun is sent how much was received.
const ACKNOWLEDGE_EVERY: usize = 128 << 10;
/// Frames of more bytes are no [`FromStepd::Over`].
const OVER_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    position: usize,
    children: Vec<Child>,
    /// What this node has said and srun has not acknowledged, and the number of the first of it.
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    first: u64,
    /// Messages that were received, and bytes of input since that was acknowledged.
    received: u64,
    unacknowledged_bytes: usize,
    /// Connected to srun itself.
    by_srun: bool,
    /// srun is gone for good.
    left: bool,
}

/// The connection to the head of a branch below.
#[derive(Debug)]
struct Child {
    branch: Range<usize>,
    wire: Wire,
    /// It has said that it is over.
    over: bool,
}

impl Tree {
    /// Connects to those below, as `user` if this process is root; gives the positions of those that cannot be reached, too.
    pub(crate) fn new(
        launch: &StepLaunch,
        attach: &Attach,
        user: Option<&User>,
    ) -> (Tree, Vec<u32>) {
        let position = launch.position as usize;
        let width = launch.tree_width();
        let (own, _) = tree::place(position, launch.names.len(), width);
        let mut lost = Vec::new();
        let mut children = Vec::new();
        for branch in tree::below(&own, width) {
            let address = |at: usize| attach.below.get(at - position - 1).cloned();
            let below = (branch.start + 1..branch.end).filter_map(address).collect();
            let hand = Attach {
                key: attach.key.clone(),
                below,
                srun: false,
                seen: Vec::new(),
            };
            let at = address(branch.start).unwrap_or_default();
            match Child::connect(&at, branch.clone(), hand, user) {
                Ok(child) => children.push(child),
                Err(e) => {
                    eprintln!("the step daemon at {at} cannot be reached: {e}");
                    lost.push(number(branch.start));
                }
            }
        }
        let tree = Tree {
            position,
            children,
            kept: VecDeque::new(),
            kept_bytes: 0,
            first: 0,
            received: 0,
            unacknowledged_bytes: 0,
            by_srun: attach.srun,
            left: false,
        };
        (tree, lost)
    }

    /// A message of this node's as the frame that goes up.
    pub(crate) fn say(&mut self, message: &FromStepd) -> &[u8] {
        let up = FromStepd::Up {
            position: number(self.position),
            number: self.first + self.kept.len() as u64,
            acknowledged: self.received,
            message: Box::new(message.clone()),
        };
        let frame = frame::encode(&up);
        self.kept_bytes += frame.len();
        self.kept.push_back(frame);
        self.kept.back().map_or(&[], Vec::as_slice)
    }

    /// Takes a message for all nodes: passes it on, and gives it if it is new here.
    pub(crate) fn take(
        &mut self,
        number: u64,
        message: ToStepd,
        launch: &StepLaunch,
    ) -> Option<ToStepd> {
        let only = match &message {
            ToStepd::Stdin {
                task: Some(task), ..
            } => launch.tasks.iter().position(|here| here.contains(task)),
            _ => None,
        };
        let whole = frame::encode(&ToStepd::Down(number, Box::new(message.clone())));
        for child in &mut self.children {
            if only.is_none_or(|at| child.branch.contains(&at)) {
                child.wire.output.extend_from_slice(&whole);
            } else {
                let nothing = ToStepd::Down(number, Box::new(ToStepd::Nothing));
                frame::encode_into(&nothing, &mut child.wire.output);
            }
        }
        self.write();
        if number != self.received {
            return None;
        }
        self.received += 1;
        if let ToStepd::Stdin { bytes, .. } = &message {
            self.unacknowledged_bytes += bytes.len();
        }
        Some(message)
    }

    /// Whether srun should get an acknowledgement; the caller sends it then.
    pub(crate) fn owes_acknowledgement(&mut self) -> bool {
        let owes = self.unacknowledged_bytes > ACKNOWLEDGE_EVERY;
        if owes {
            self.unacknowledged_bytes = 0;
        }
        owes
    }

    /// srun has the first so many messages of a node.
    pub(crate) fn seen(&mut self, position: u32, count: u64) {
        if position as usize != self.position {
            let to = |c: &&mut Child| c.branch.contains(&(position as usize));
            if let Some(child) = self.children.iter_mut().find(to) {
                frame::encode_into(&ToStepd::Seen(position, count), &mut child.wire.output);
                child.write();
            }
            return;
        }
        while self.first < count
            && let Some(frame) = self.kept.pop_front()
        {
            self.kept_bytes -= frame.len();
            self.first += 1;
        }
    }

    /// srun wants again what comes after so many messages, of this node and those below: what this one has said.
    pub(crate) fn again(&mut self, seen: &[u64]) -> Vec<u8> {
        for child in &mut self.children {
            let from = child.branch.start - self.position;
            let to = child.branch.end - self.position;
            let of_child = seen.get(from..to).unwrap_or_default().to_vec();
            frame::encode_into(&ToStepd::Again(of_child), &mut child.wire.output);
        }
        self.write();
        self.seen(number(self.position), seen.first().copied().unwrap_or(0));
        self.kept.iter().flatten().copied().collect()
    }

    /// srun is gone.
    pub(crate) fn leave(&mut self) {
        self.left = true;
        for child in &mut self.children {
            frame::encode_into(&ToStepd::Left, &mut child.wire.output);
        }
        self.write();
    }

    /// srun has received all that this node sends, and those below are over.
    pub(crate) fn is_over(&self) -> bool {
        self.children.is_empty() && (self.kept.is_empty() || self.left)
    }

    /// srun must catch up with this node.
    pub(crate) fn is_full(&self) -> bool {
        self.kept_bytes > OUTPUT_MAX
    }

    /// Those below must catch up with srun.
    pub(crate) fn is_stuffed(&self) -> bool {
        self.children
            .iter()
            .any(|c| c.wire.output.len() > OUTPUT_MAX)
    }

    /// To poll; `full` while those above must catch up.
    pub(crate) fn interests(&self, full: bool) -> impl Iterator<Item = (RawFd, i16)> {
        self.children.iter().map(move |child| {
            let reads = if full { 0 } else { libc::POLLIN };
            let writes = if child.wire.output.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            // A hang-up is always reported; it must not be while it cannot be dealt with.
            let fd = if reads | writes == 0 {
                -1
            } else {
                child.wire.stream.as_raw_fd()
            };
            (fd, reads | writes)
        })
    }

    /// Reads from those that poll found something at: what they say goes to `up`. Gives the positions of those lost.
    pub(crate) fn serve(&mut self, seen: &[bool], up: &mut Vec<u8>) -> Vec<u32> {
        for (child, _) in self.children.iter_mut().zip(seen).filter(|(_, s)| **s) {
            child.write();
            child.read(up);
        }
        let gone = self.children.extract_if(.., |c| !c.wire.open);
        gone.filter(|c| !c.over)
            .map(|c| number(c.branch.start))
            .collect()
    }

    fn write(&mut self) {
        self.children.iter_mut().for_each(Child::write);
    }
}

impl Child {
    /// Connects to an address that srun has given. It may be of anything that listens: the user's rights count, and
    /// the other side sees the user.
    fn connect(
        address: &str,
        branch: Range<usize>,
        hand: Attach,
        user: Option<&User>,
    ) -> io::Result<Child> {
        let path = address.strip_prefix("unix:").ok_or_else(|| {
            io::Error::other("step daemons on other machines cannot be reached by this version")
        })?;
        let connected = match user.filter(|_| Uid::effective().is_root()) {
            Some(user) => sys::acting_as(user, || connect_soon(path))?,
            None => connect_soon(path),
        };
        let mut wire = Wire::new(connected?)?;
        wire.output = frame::encode(&ToStepd::Attach(Box::new(hand)));
        let mut child = Child {
            branch,
            wire,
            over: false,
        };
        child.write();
        Ok(child)
    }

    fn write(&mut self) {
        // Where it takes no more, what it has said is still to be read; that finds the end.
        self.wire.write().ok();
    }

    fn read(&mut self, up: &mut Vec<u8>) {
        self.wire.read();
        loop {
            match self.wire.input.take_whole() {
                Ok(Some(frame)) if is_over(frame) => self.over = true,
                Ok(Some(frame)) => up.extend_from_slice(frame),
                Ok(None) => return,
                Err(e) => {
                    eprintln!("a message from below is not understood: {e}");
                    self.wire.open = false;
                    return;
                }
            }
        }
    }
}

/// Connects, if the other side takes that within a few seconds.
fn connect_soon(path: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    setsockopt(&socket, SendTimeout, &TimeVal::seconds(CONNECT_WAIT_S))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn is_over(frame: &[u8]) -> bool {
    frame.len() <= OVER_MAX && matches!(frame::decode(&frame[4..]), Ok(FromStepd::Over))
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

impl Stepd<'_> {
    /// srun, or the node above, is there: at first, or in the place of one that is lost.
    pub(super) fn attach(&mut self, attach: &Attach, client: Client) {
        self.client = Some(client);
        self.adoption_by = None;
        if let Some(tree) = &mut self.tree {
            tree.by_srun = attach.srun;
            self.say_again(&attach.seen);
        } else {
            let (tree, lost) = Tree::new(&self.order.launch, attach, Some(&self.order.user));
            self.tree = Some(tree);
            self.start();
            for position in lost {
                self.send(&FromStepd::Lost(position));
            }
            self.tell_pmix_error();
        }
        self.client_messages();
    }

    /// Sends again what srun has not received.
    pub(super) fn say_again(&mut self, seen: &[u64]) {
        if let (Some(tree), Some(client)) = (&mut self.tree, &mut self.client) {
            client.send_frame(&tree.again(seen), false);
        }
    }

    /// Passes on what those below say.
    pub(super) fn take_below(&mut self, seen: &[bool]) {
        let Some(tree) = &mut self.tree else {
            return;
        };
        // Without a way up it is dropped: they will be asked to say it again.
        let mut nowhere = Vec::new();
        let up = self.client.as_mut().map_or(&mut nowhere, |c| {
            c.hurry();
            &mut c.wire.output
        });
        for position in tree.serve(seen, up) {
            self.send(&FromStepd::Lost(position));
        }
    }

    /// The connection upwards is gone. Where it was to a node, srun is awaited, which has others to say so.
    pub(super) fn is_orphan(&mut self) -> bool {
        match &mut self.tree {
            Some(tree) if !tree.by_srun && !tree.left => {
                self.adoption_by = Some(Instant::now() + ADOPTION_WAIT);
                true
            }
            Some(tree) => {
                tree.leave();
                false
            }
            None => false,
        }
    }

    /// srun is gone, says the node above.
    pub(super) fn srun_left(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.leave();
        }
        self.begin_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::frame::Frames;
    use nix::sys::socket::getsockopt;
    use nix::sys::socket::sockopt::PeerCredentials;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_said_is_kept_until_it_is_acknowledged() {
        let mut tree = Tree {
            position: 3,
            children: Vec::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            first: 0,
            received: 0,
            unacknowledged_bytes: 0,
            by_srun: true,
            left: false,
        };
        let said: Vec<Vec<u8>> = (0..4)
            .map(|pid| tree.say(&FromStepd::Started(vec![pid])).to_vec())
            .collect();
        tree.seen(3, 2);
        assert_eq!(tree.again(&[2]), said[2..].concat());
        // An old acknowledgement changes nothing.
        assert_eq!(tree.again(&[1]), said[2..].concat());
        assert_eq!(tree.again(&[3]), said[3]);
        let mut frames = Frames::default();
        frames.push(&said[3]);
        let message: FromStepd = frames.take().unwrap().unwrap();
        let FromStepd::Up {
            position, number, ..
        } = message
        else {
            panic!("{message:?}")
        };
        assert_eq!((position, number), (3, 3));
        assert!(!tree.is_over());
        tree.seen(3, 4);
        assert!(tree.is_over() && tree.kept_bytes == 0);
    }

    #[test]
    fn what_was_received_before_is_not_received_again() {
        let (mut tree, lost) = Tree::new(
            &launch(),
            &Attach {
                key: vec![1].into(),
                below: vec!["nowhere".to_owned(); 2],
                srun: true,
                seen: Vec::new(),
            },
            Some(&nobody()),
        );
        // One wide, so that the first of the two below is the head of both.
        assert_eq!(lost, [1]);
        let message = ToStepd::Signal(10);
        assert_eq!(
            tree.take(0, message.clone(), &launch()),
            Some(message.clone())
        );
        assert_eq!(tree.take(0, message.clone(), &launch()), None);
        assert_eq!(tree.take(2, message.clone(), &launch()), None);
        assert_eq!(tree.take(1, message.clone(), &launch()), Some(message));
    }

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
        let attach = |at: &str| Attach {
            key: vec![1].into(),
            below: vec![at.to_owned(); 2],
            srun: true,
            seen: Vec::new(),
        };
        let (_tree, lost) = Tree::new(&launch(), &attach(&of_root), Some(&nobody()));
        assert_eq!(lost, [1]);
        assert!(roots.accept().is_err(), "root's socket was connected to");
        let (_tree, lost) = Tree::new(&launch(), &attach(&of_all), Some(&nobody()));
        assert_eq!(lost, []);
        let (connection, _) = alls.accept().unwrap();
        let peer = getsockopt(&connection, PeerCredentials).unwrap();
        assert_eq!((peer.uid(), peer.gid()), (65534, 65534));
        assert!(Uid::effective().is_root());
        fs::remove_dir_all(dir).unwrap();
    }

    fn nobody() -> User {
        User {
            uid: 65534,
            gid: 65534,
            groups: vec![65534],
            name: "nobody".to_owned(),
        }
    }

    fn launch() -> StepLaunch {
        StepLaunch {
            key: vec![1].into(),
            spec: muster_proto::step::StepSpec::default(),
            step: muster_model::ids::StepNo(0),
            step_key: vec![1].into(),
            position: 0,
            tasks: (0..3).map(|t| vec![t]).collect(),
            names: (0..3).map(|n| format!("n{n}")).collect(),
            cpus: muster_model::cpuset::CpuSet::default(),
            memory_mib: 0,
            gres: Vec::new(),
            lead: String::new(),
            // Wider than that there is no tree: the test is of a head of all.
            width: 1,
            above: None,
        }
    }
}
