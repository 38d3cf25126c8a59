//! A node's place in the tree of its step's nodes, if there is one: srun connects to a few nodes, and each of these
//! to those below it. Messages of srun go down to all nodes. A message of a node goes up with its position and a
//! number, and is stored until srun acknowledges it. So nothing is lost if a node in the middle fails: srun connects
//! to the nodes below it, and they repeat the messages that it has not received.
//!
//! The executor owns the connections. Messages from below go up unchanged, without passing through here.

use minicbor::bytes::ByteVec;
use muster_model::ids::StepId;
use muster_model::tree;
use muster_proto::frame;
use muster_proto::step::{Attach, FromStepd, StepLaunch, ToStepd};
use muster_proto::version::Versions;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// The number of input bytes after which srun gets an acknowledgement.
const ACKNOWLEDGE_EVERY: usize = 128 << 10;
/// Output that srun has not read yet: beyond this, tasks have to wait.
pub const OUTPUT_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Tree {
    position: usize,
    /// Ranges of the connected nodes below.
    branches: Vec<Range<usize>>,
    /// Messages of this node that srun has not acknowledged, and the number of the first of them.
    kept: VecDeque<Rc<Vec<u8>>>,
    kept_bytes: usize,
    first: u64,
    /// Messages that were received, and bytes of input since that was acknowledged.
    received: u64,
    unacknowledged_bytes: usize,
    /// Connected to srun itself.
    by_srun: bool,
    /// srun is gone for good.
    has_left: bool,
}

/// A node below, to which a connection is made.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchHead {
    /// The position of the node.
    pub position: u32,
    /// Where it listens.
    pub address: String,
    /// The first message to the node, as a frame.
    pub greeting: Rc<Vec<u8>>,
    /// The step.
    pub step: StepId,
    /// The step's key, which a node of another host wants.
    pub key: ByteVec,
}

/// A frame for a node below.
#[derive(Debug, PartialEq, Eq)]
pub struct FrameBelow {
    /// The node's position.
    pub position: u32,
    /// The message, as a frame.
    pub frame: Rc<Vec<u8>>,
}

impl FrameBelow {
    fn new(position: usize, frame: Rc<Vec<u8>>) -> FrameBelow {
        let position = number(position);
        FrameBelow { position, frame }
    }
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

impl Tree {
    /// The place of a node, and the nodes below to which it connects.
    pub fn new(launch: &StepLaunch, attach: &Attach) -> (Tree, Vec<BranchHead>) {
        let position = launch.position as usize;
        let width = launch.tree_width();
        let (own, _) = tree::place(position, launch.names.len(), width);
        let address = |at: usize| attach.below.get(at - position - 1).cloned();
        let branches: Vec<Range<usize>> = tree::below(&own, width).collect();
        let to = |branch: &Range<usize>| {
            let hand = Attach {
                key: attach.key.clone(),
                below: (branch.start + 1..branch.end).filter_map(address).collect(),
                srun: false,
                seen: Vec::new(),
                greeting: Some(Versions::CLUSTER.greeting()),
            };
            BranchHead {
                position: number(branch.start),
                address: address(branch.start).unwrap_or_default(),
                greeting: Rc::new(frame::encode(&ToStepd::Attach(Box::new(hand)))),
                step: StepId::new(launch.spec.job, launch.step),
                key: attach.key.clone(),
            }
        };
        let below = branches.iter().map(to).collect();
        let tree = Tree {
            position,
            branches,
            kept: VecDeque::new(),
            kept_bytes: 0,
            first: 0,
            received: 0,
            unacknowledged_bytes: 0,
            by_srun: attach.srun,
            has_left: false,
        };
        (tree, below)
    }

    /// The connection to the head of a branch is gone, or could not be made.
    pub fn close(&mut self, position: u32) {
        self.branches.retain(|b| number(b.start) != position);
    }

    /// There is another connection upwards: to srun, or to a node.
    pub fn set_by_srun(&mut self, by_srun: bool) {
        self.by_srun = by_srun;
    }

    /// Whether srun may connect in place of a lost node above.
    pub fn awaits_srun(&self) -> bool {
        !self.by_srun && !self.has_left
    }

    /// A message of this node's as the frame that goes up.
    pub fn say(&mut self, message: FromStepd) -> Rc<Vec<u8>> {
        let up = FromStepd::ForwardUp {
            position: number(self.position),
            number: self.first + self.kept.len() as u64,
            acknowledged: self.received,
            message: Box::new(message),
        };
        let frame = Rc::new(frame::encode(&up));
        self.kept_bytes += frame.len();
        self.kept.push_back(Rc::clone(&frame));
        frame
    }

    /// Takes a message for all nodes: returns it if it is new here, and the messages to pass on.
    pub fn take(
        &mut self,
        number: u64,
        message: ToStepd,
        launch: &StepLaunch,
    ) -> (Option<ToStepd>, Vec<FrameBelow>) {
        let only = match &message {
            ToStepd::Stdin {
                task: Some(task), ..
            } => launch.tasks.iter().position(|here| here.contains(task)),
            _ => None,
        };
        let down = ToStepd::ForwardDown(number, Box::new(message));
        let mut below = Vec::new();
        if !self.branches.is_empty() {
            let whole = Rc::new(frame::encode(&down));
            below.extend(self.branches.iter().map(|branch| {
                let frame = match only.is_none_or(|at| branch.contains(&at)) {
                    true => Rc::clone(&whole),
                    false => {
                        let nothing = ToStepd::ForwardDown(number, Box::new(ToStepd::SkipNumber));
                        Rc::new(frame::encode(&nothing))
                    }
                };
                FrameBelow::new(branch.start, frame)
            }));
        }
        let ToStepd::ForwardDown(_, message) = down else {
            return (None, below);
        };
        if number != self.received {
            return (None, below);
        }
        self.received += 1;
        if let ToStepd::Stdin { bytes, .. } = &*message {
            self.unacknowledged_bytes += bytes.len();
        }
        (Some(*message), below)
    }

    /// Whether srun should get an acknowledgement; the caller sends it then.
    pub fn owes_acknowledgement(&mut self) -> bool {
        let owes = self.unacknowledged_bytes > ACKNOWLEDGE_EVERY;
        if owes {
            self.unacknowledged_bytes = 0;
        }
        owes
    }

    /// srun has received the first `count` messages of a node. If that is a node below, returns the acknowledgement
    /// to pass on.
    pub fn seen(&mut self, position: u32, count: u64) -> Option<FrameBelow> {
        if position as usize != self.position {
            let is_to = |b: &&Range<usize>| b.contains(&(position as usize));
            let branch = self.branches.iter().find(is_to)?;
            let frame = frame::encode(&ToStepd::AcknowledgeFrom(position, count));
            return Some(FrameBelow::new(branch.start, Rc::new(frame)));
        }
        while self.first < count
            && let Some(frame) = self.kept.pop_front()
        {
            self.kept_bytes -= frame.len();
            self.first += 1;
        }
        None
    }

    /// srun requests all messages after these counts again: returns those of this node, and the requests to the nodes
    /// below.
    pub fn again(&mut self, seen: &[u64]) -> (Vec<u8>, Vec<FrameBelow>) {
        let ask = |branch: &Range<usize>| {
            let (from, to) = (branch.start - self.position, branch.end - self.position);
            let of_branch = seen.get(from..to).unwrap_or_default().to_vec();
            let frame = frame::encode(&ToStepd::Resend(of_branch));
            FrameBelow::new(branch.start, Rc::new(frame))
        };
        let below = self.branches.iter().map(ask).collect();
        let own = number(self.position);
        self.seen(own, seen.first().copied().unwrap_or(0));
        let kept = self.kept.iter().flat_map(|frame| frame.iter());
        (kept.copied().collect(), below)
    }

    /// srun has disconnected: returns the messages for the nodes below.
    pub fn leave(&mut self) -> Vec<FrameBelow> {
        self.has_left = true;
        let frame = Rc::new(frame::encode(&ToStepd::SrunDisconnected));
        let to = |b: &Range<usize>| FrameBelow::new(b.start, Rc::clone(&frame));
        self.branches.iter().map(to).collect()
    }

    /// srun has received all that this node sends, and those below are over.
    pub fn is_over(&self) -> bool {
        self.branches.is_empty() && (self.kept.is_empty() || self.has_left)
    }

    /// srun must catch up with this node.
    pub fn is_full(&self) -> bool {
        self.kept_bytes > OUTPUT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::frame::Frames;

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

    fn attach() -> Attach {
        Attach {
            key: vec![1].into(),
            below: vec!["one".to_owned(), "two".to_owned()],
            srun: true,
            seen: Vec::new(),
            greeting: None,
        }
    }

    fn decoded<T: for<'b> minicbor::Decode<'b, ()> + frame::Message>(bytes: &[u8]) -> T {
        let mut frames = Frames::default();
        frames.push(bytes);
        frames.take().unwrap().unwrap()
    }

    #[test]
    fn what_is_said_is_kept_until_it_is_acknowledged() {
        let (mut tree, _) = Tree::new(
            &StepLaunch {
                position: 2,
                ..launch()
            },
            &Attach {
                below: Vec::new(),
                ..attach()
            },
        );
        let said: Vec<Vec<u8>> = (0..4)
            .map(|pid| tree.say(FromStepd::Started(vec![pid])).to_vec())
            .collect();
        assert!(tree.seen(2, 2).is_none());
        assert_eq!(tree.again(&[2]).0, said[2..].concat());
        // An old acknowledgement changes nothing.
        assert_eq!(tree.again(&[1]).0, said[2..].concat());
        assert_eq!(tree.again(&[3]).0, said[3]);
        let FromStepd::ForwardUp {
            position, number, ..
        } = decoded(&said[3])
        else {
            panic!("no message of a tree")
        };
        assert_eq!((position, number), (2, 3));
        assert!(!tree.is_over());
        assert!(tree.seen(2, 4).is_none());
        assert!(tree.is_over() && tree.kept_bytes == 0);
    }

    #[test]
    fn what_was_received_before_is_not_received_again() {
        let (mut tree, below) = Tree::new(&launch(), &attach());
        // One wide, so that the first of the two below is the head of both.
        let [branch] = &below[..] else {
            panic!("{below:?}")
        };
        assert_eq!((branch.position, &*branch.address), (1, "one"));
        let ToStepd::Attach(hand) = decoded(&branch.greeting) else {
            panic!("no greeting")
        };
        assert_eq!((&*hand.below, hand.srun), (&["two".to_owned()][..], false));
        let message = ToStepd::Signal(10);
        let mut take = |number| tree.take(number, message.clone(), &launch());
        let (own, passed) = take(0);
        assert_eq!(own, Some(message.clone()));
        assert_eq!(
            decoded::<ToStepd>(&passed[0].frame),
            ToStepd::ForwardDown(0, Box::new(message.clone()))
        );
        // A duplicate is passed on: those below may not have had it.
        let (own, passed) = take(0);
        assert_eq!((own, passed.len()), (None, 1));
        assert_eq!(take(2).0, None);
        assert_eq!(take(1).0, Some(message.clone()));
        tree.close(1);
        assert_eq!(
            tree.take(2, message.clone(), &launch()),
            (Some(message), vec![])
        );
        assert!(tree.is_over());
    }
}
