//! Messages between a step daemon and its host, in frames of CBOR over a socket pair. Both run the same executable file,
//! so the messages have no version.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::Message;

/// Step daemon to host.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum ToHost {
    /// Addresses at which the hosts of the step listen, by node of the step.
    #[n(0)]
    Peers(#[n(0)] Vec<String>),
    /// A task ended without finalizing.
    #[n(1)]
    TaskFailed {
        /// Its rank.
        #[n(0)]
        rank: u32,
    },
    /// All tasks of this node have ended: the host says goodbye to other hosts and exits.
    #[n(2)]
    Stop,
}

impl Message for ToHost {}

/// Host to step daemon.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub enum FromHost {
    /// Tasks may start.
    #[n(0)]
    Ready(#[n(0)] Environments),
    /// Tasks cannot start; the text names the missing part.
    #[n(1)]
    Failed(#[n(0)] String),
    /// A task has connected.
    #[n(2)]
    Connected(#[n(0)] u32),
    /// A task has finalized. The host answers the task only after it has written this message.
    #[n(3)]
    Finalized(#[n(0)] u32),
    /// A task asks to end the step (abort).
    #[n(4)]
    Abort {
        /// Its rank.
        #[n(0)]
        rank: u32,
        /// The exit status that the task gives.
        #[n(1)]
        status: i32,
        /// The abort message of the task.
        #[n(2)]
        text: String,
    },
    /// A line for the step's standard error.
    #[n(5)]
    Message(#[n(0)] String),
    /// Bytes for the standard output of the step, or its standard error if the flag is true. They
    /// come from a step that a task spawned.
    #[n(6)]
    Output(#[n(0)] bool, #[n(1)] ByteVec),
    /// Send a signal to the listed tasks of this node; to all tasks if the list is empty.
    #[n(7)]
    Signal(#[n(0)] Vec<u32>, #[n(1)] i32),
    /// The host of this node of the step disconnected without saying goodbye.
    #[n(8)]
    PeerLost(#[n(0)] u32),
    /// A line for the user that concerns the whole step. Several hosts may send such a line;
    /// showing one is enough.
    #[n(9)]
    Note(#[n(0)] String),
}

impl Message for FromHost {}

/// Variables for the environment of tasks, as `NAME=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Environments {
    /// Variables of all tasks.
    #[n(0)]
    pub shared: Vec<ByteVec>,
    /// Variables of each task, by rank.
    #[n(1)]
    pub own: Vec<(u32, Vec<ByteVec>)>,
}

impl Environments {
    /// Separates variables that all tasks share, so that they are sent once.
    pub(crate) fn gather(all: Vec<(u32, Vec<Vec<u8>>)>) -> Environments {
        let Some((_, first)) = all.first() else {
            return Environments::default();
        };
        let shared: Vec<Vec<u8>> = first
            .iter()
            .filter(|v| all.iter().all(|(_, env)| env.contains(v)))
            .cloned()
            .collect();
        let own = all
            .into_iter()
            .map(|(rank, env)| {
                let own = env.into_iter().filter(|v| !shared.contains(v));
                (rank, own.map(ByteVec::from).collect())
            })
            .collect();
        Environments {
            shared: shared.into_iter().map(ByteVec::from).collect(),
            own,
        }
    }

    /// Adds further variables to the environment.
    pub(crate) fn join(&mut self, others: Environments) {
        self.shared.extend(others.shared);
        for (rank, env) in others.own {
            match self.own.iter_mut().find(|(r, _)| *r == rank) {
                Some((_, own)) => own.extend(env),
                None => self.own.push((rank, env)),
            }
        }
    }

    /// The environment variables of one task.
    pub fn of(&self, rank: u32) -> impl Iterator<Item = &[u8]> {
        let own = self.own.iter().find(|(r, _)| *r == rank);
        let own = own.map_or(&[][..], |(_, env)| env.as_slice());
        self.shared.iter().chain(own).map(|v| v.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_share_what_is_common() {
        let v = |texts: &[&str]| -> Vec<Vec<u8>> {
            texts.iter().map(|t| t.as_bytes().to_vec()).collect()
        };
        let all = vec![(0, v(&["A=1", "R=0"])), (3, v(&["A=1", "R=3"]))];
        let environments = Environments::gather(all);
        assert_eq!(environments.shared.len(), 1);
        let of: Vec<&[u8]> = environments.of(3).collect();
        assert_eq!(of, [b"A=1", b"R=3"]);
        assert_eq!(environments.of(7).count(), 1);
    }
}
