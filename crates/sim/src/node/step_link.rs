//! Connections to step daemons that carry a step's messages: of srun, or of the daemon of the node above. What was sent on one
//! arrives in order, as bytes, and later.

use muster_proto::frame::Frames;
use std::collections::BTreeMap;

/// Number of a connection.
pub(crate) type StepLinkId = u64;

/// Process that has connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkClient {
    /// This srun, which calls the connection so.
    Srun(u64, u32),
    /// The step daemon of this node and process.
    Stepd(usize, i32),
}

/// The end of a step daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkServer {
    /// It is a descriptor that is passed on, with this number of holders.
    Passed(u32),
    /// This node's process has it.
    Stepd(usize, i32),
}

/// Data readable at an end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Readable {
    pub(crate) frames: Frames,
    /// Something has come that was not read.
    pub(crate) is_new: bool,
    /// The other end is closed, and all that came before has come.
    pub(crate) is_closed: bool,
    /// Arrival of the last data sent, milliseconds.
    last_at: u64,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct StepLink {
    /// None once it is closed.
    pub(crate) client: Option<LinkClient>,
    /// None once it is closed.
    pub(crate) server: Option<LinkServer>,
    /// For the client.
    pub(crate) up: Readable,
    /// For the daemon.
    pub(crate) down: Readable,
    /// The network between its ends has lost it: nothing more arrives.
    pub(crate) is_broken: bool,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the client.
    Up,
    /// To the daemon.
    Down,
}

/// Something that arrives on a connection.
#[derive(Debug)]
pub(crate) enum LinkArrival {
    /// Frames.
    Bytes(Vec<u8>),
    /// The other end is closed.
    Closed,
}

impl StepLink {
    /// Data readable at the end to which a direction leads.
    pub(crate) fn readable(&mut self, direction: Direction) -> &mut Readable {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// Arrival of data that is sent now: after all sent before.
    pub(crate) fn arrives_at(&mut self, direction: Direction, at: u64) -> u64 {
        let readable = self.readable(direction);
        readable.last_at = readable.last_at.max(at);
        readable.last_at
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct StepLinks {
    links: BTreeMap<StepLinkId, StepLink>,
    last: StepLinkId,
}

impl StepLinks {
    /// Makes a connection.
    pub(crate) fn add(&mut self, client: LinkClient, server: LinkServer) -> StepLinkId {
        self.last += 1;
        let link = StepLink {
            client: Some(client),
            server: Some(server),
            up: Readable::default(),
            down: Readable::default(),
            is_broken: false,
        };
        self.links.insert(self.last, link);
        self.last
    }

    /// One of which not both ends are closed.
    pub(crate) fn get_mut(&mut self, id: StepLinkId) -> Option<&mut StepLink> {
        self.links.get_mut(&id)
    }

    /// Something is to be read at an end.
    pub(crate) fn is_ready(&self, id: StepLinkId, direction: Direction) -> bool {
        let link = self.links.get(&id);
        link.is_none_or(|link| {
            let readable = match direction {
                Direction::Up => &link.up,
                Direction::Down => &link.down,
            };
            readable.is_new || readable.is_closed
        })
    }

    /// Closes an end; whether the other one is open and learns of it.
    pub(crate) fn close(&mut self, id: StepLinkId, direction: Direction) -> bool {
        let Some(link) = self.links.get_mut(&id) else {
            return false;
        };
        let was_open = match direction {
            Direction::Up => link.server.take().is_some(),
            Direction::Down => link.client.take().is_some(),
        };
        if link.client.is_none() && link.server.is_none() {
            self.links.remove(&id);
            return false;
        }
        was_open
    }

    /// Connections that have an end for which this holds, and in which direction that end sends.
    pub(crate) fn with_end(
        &self,
        client: impl Fn(LinkClient) -> bool,
        server: impl Fn(LinkServer) -> bool,
    ) -> Vec<(StepLinkId, Direction)> {
        let mut found = Vec::new();
        for (id, link) in &self.links {
            if link.client.is_some_and(&client) {
                found.push((*id, Direction::Down));
            }
            if link.server.is_some_and(&server) {
                found.push((*id, Direction::Up));
            }
        }
        found
    }
}
