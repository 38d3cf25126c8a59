//! Events on connections to step daemons that carry a step's messages.

use super::events::NodeEvent;
use super::events::SrunWorldEvent;
use super::{Outcome, World, WorldEvent, trace};
use crate::classes::FaultClass;
use crate::node::{Direction, Down, LinkArrival, LinkClient, LinkServer, StepLinkId};

/// One in this number of messages between nodes is lost with its connection, where that is a fault.
const BREAKS_IN: u64 = 8;

/// The connections, with the world around them.
pub(super) struct StepNetwork<'w> {
    world: &'w mut World,
}

impl World {
    /// Connections to step daemons.
    pub(super) fn step_network(&mut self) -> StepNetwork<'_> {
        StepNetwork { world: self }
    }

    /// A step daemon looks what there is, soon.
    pub(super) fn wake_stepd(&mut self, node: usize, pid: i32) {
        let delay = self.hop();
        self.machine_later(delay, node, NodeEvent::StepdWakes(pid));
    }
}

impl StepNetwork<'_> {
    /// Connects to a step daemon; nothing if nobody listens there.
    pub(super) fn connect(
        &mut self,
        from: usize,
        client: LinkClient,
        address: &str,
    ) -> Option<StepLinkId> {
        let path = std::path::Path::new(address.strip_prefix("unix:")?);
        let (node, pid) = (0..self.world.nodes.len()).find_map(|node| {
            let pid = self.world.nodes[node].machine.sockets.get(path).copied()?;
            self.world.nodes[node]
                .machine
                .live(pid)
                .map(|_| (node, pid))
        })?;
        let cut_off = |n: usize| self.world.now < self.world.nodes[n].cut_off_until;
        let fails = self.world.healing_since.is_none()
            && self.world.has(FaultClass::UnreliableMessages)
            && self.world.chaos.one_in(30);
        if node != from && (fails || cut_off(node) || cut_off(from)) {
            return None;
        }
        let link = self.world.links.add(client, LinkServer::Stepd(node, pid));
        let stepd = self.world.nodes[node].machine.stepds.get_mut(&pid)?;
        stepd.clients.arrived.push_back(link);
        self.world.wake_stepd(node, pid);
        Some(link)
    }

    /// Sends frames on a connection.
    pub(super) fn send(&mut self, link: StepLinkId, direction: Direction, bytes: &[u8]) {
        let delay = self.world.latency();
        let at = self.world.now + delay;
        if self.is_to_break(link) {
            return self.break_off(link);
        }
        if let Some(open) = self.world.links.get_mut(link).filter(|l| !l.is_broken) {
            let at = open.arrives_at(direction, at);
            let arrival = LinkArrival::Bytes(bytes.to_vec());
            let event = WorldEvent::OnLink(link, direction, arrival);
            self.world.later(at - self.world.now, event);
        }
    }

    /// Whether the network loses a connection between two nodes now: also after the other faults, as steps end all the same.
    fn is_to_break(&mut self, link: StepLinkId) -> bool {
        if !self.world.has(FaultClass::UnreliableMessages) {
            return false;
        }
        let ends = self.world.links.get_mut(link).map(|l| (l.client, l.server));
        let Some((Some(client), Some(LinkServer::Stepd(server, _)))) = ends else {
            return false;
        };
        let client = match client {
            LinkClient::Stepd(node, _) => Some(node),
            LinkClient::Srun(srun, _) => self.world.sruns.get(&srun).map(|srun| srun.node),
        };
        client.is_some_and(|node| node != server) && self.world.chaos.one_in(BREAKS_IN)
    }

    /// The network loses a connection, which both ends find out, each in its time.
    fn break_off(&mut self, link: StepLinkId) {
        trace!(self.world, "FAULT connection {link} of a step breaks");
        for direction in [Direction::Up, Direction::Down] {
            let at = self.world.now + self.world.chaos.below(2_000);
            if let Some(open) = self.world.links.get_mut(link) {
                open.is_broken = true;
                let at = open.arrives_at(direction, at);
                let event = WorldEvent::OnLink(link, direction, LinkArrival::Closed);
                self.world.later(at - self.world.now, event);
            }
        }
    }

    /// Closes the end of a connection that sends in this direction.
    pub(super) fn close(&mut self, link: StepLinkId, direction: Direction) {
        if self.world.links.close(link, direction) {
            let at = self.world.now + self.world.latency();
            if let Some(open) = self.world.links.get_mut(link) {
                let at = open.arrives_at(direction, at);
                let event = WorldEvent::OnLink(link, direction, LinkArrival::Closed);
                self.world.later(at - self.world.now, event);
            }
        }
    }

    /// Message that passes the daemon's end of a connection on, which one more holds then.
    pub(super) fn pass(&mut self, link: StepLinkId) -> Down {
        let open = self.world.links.get_mut(link);
        if let Some(LinkServer::Passed(holders)) = open.and_then(|l| l.server.as_mut()) {
            *holders += 1;
        }
        Down::Streams(link)
    }

    /// One of those who hold the daemon's end of a connection before a daemon has it closes it.
    pub(super) fn release(&mut self, link: StepLinkId) {
        let open = self.world.links.get_mut(link);
        if let Some(LinkServer::Passed(holders)) = open.and_then(|l| l.server.as_mut()) {
            *holders = holders.saturating_sub(1);
            if *holders == 0 {
                self.close(link, Direction::Up);
            }
        }
    }

    /// Something arrives on a connection.
    pub(super) fn arrive(
        &mut self,
        id: StepLinkId,
        direction: Direction,
        arrival: LinkArrival,
    ) -> Outcome {
        let Some(link) = self.world.links.get_mut(id) else {
            return Ok(());
        };
        let (client, server) = (link.client, link.server);
        let readable = link.readable(direction);
        match arrival {
            LinkArrival::Bytes(bytes) => {
                readable.frames.push(&bytes);
                readable.is_new = true;
            }
            LinkArrival::Closed => readable.is_closed = true,
        }
        match (direction, client, server) {
            (Direction::Down, _, Some(LinkServer::Stepd(node, pid)))
            | (Direction::Up, Some(LinkClient::Stepd(node, pid)), _) => {
                self.world.wake_stepd(node, pid);
                Ok(())
            }
            (Direction::Up, Some(LinkClient::Srun(srun, _)), _) => {
                self.world.sruns().on_event(srun, SrunWorldEvent::Wakes)
            }
            // Nobody reads there, yet or any more.
            (Direction::Down, ..) | (Direction::Up, None, _) => Ok(()),
        }
    }

    /// All ends of connections that a machine or a process has are closed.
    pub(super) fn close_all_of(&mut self, node: usize, pid: Option<i32>) {
        let is_it = |n: usize, p: i32| n == node && pid.is_none_or(|pid| p == pid);
        let ends = self.world.links.with_end(
            |client| matches!(client, LinkClient::Stepd(n, p) if is_it(n, p)),
            |server| matches!(server, LinkServer::Stepd(n, p) if is_it(n, p)),
        );
        if pid.is_none() && !ends.is_empty() {
            trace!(
                self.world,
                "{}: {} connections of steps end",
                self.world.nodes[node].name,
                ends.len()
            );
        }
        for (link, direction) in ends {
            self.close(link, direction);
        }
    }
}
