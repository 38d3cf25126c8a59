//! All connections of a host. A host is identified by the address at which it listens. Two hosts
//! connect when one sends a message to the other, or ahead of time on request. A message to the own
//! host is delivered locally.

use crate::handshake::HostIdentity;
use crate::link::{Link, UnprovenLink};
use crate::ucx::{Arrival, Ucx};
use crate::wire::Wire;
use muster_channel::admission::{StrangerBounds, Strangers};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Time that a leaving host waits for another host that does not read.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// Limit of accepted connections that have not completed the handshake. Anybody can open such
/// connections.
const STRANGERS: StrangerBounds = StrangerBounds {
    all: 256,
    of_address: 64,
};
/// Time that a connection may remain without a completed handshake.
const STRANGER_MAX: Duration = Duration::from_secs(30);
/// Connections accepted in one round: fewer than the limit per address, so that those of the round before are read
/// first.
const ACCEPTED_MAX: usize = 16;
/// Pause after accepting has failed for lack of descriptors: the listener would report waiting connections again at
/// once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Events on the connections.
#[derive(Debug)]
pub(crate) enum MeshEvent {
    /// A message and its sender.
    Message(String, Wire),
    /// A host has disconnected; the flag says whether it said goodbye.
    Gone(String, bool),
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Mesh {
    /// Address at which this host listens.
    pub(crate) own: String,
    key: Vec<u8>,
    listener: Option<TcpListener>,
    /// No connection is accepted before this time, because accepting has failed.
    paused: Option<Instant>,
    links: Vec<Link>,
    strangers: Strangers,
    to_self: VecDeque<Wire>,
    /// Hosts to which no connection could be opened.
    unreachable: Vec<String>,
    /// Hosts that have disconnected.
    gone: BTreeSet<String>,
    ucx: Option<Ucx>,
    /// The UCX offer to other hosts, if UCX is requested.
    offer: Option<Result<Vec<u8>, String>>,
    /// Reasons why UCX is not used although it is requested.
    pub(crate) notes: Vec<String>,
}

impl Mesh {
    pub(crate) fn new(own: String, key: Vec<u8>, listener: Option<TcpListener>) -> Mesh {
        Mesh {
            own,
            key,
            listener,
            paused: None,
            links: Vec::new(),
            strangers: Strangers::new(STRANGERS),
            to_self: VecDeque::new(),
            unreachable: Vec::new(),
            gone: BTreeSet::new(),
            ucx: None,
            offer: None,
            notes: Vec::new(),
        }
    }

    /// The connections of a host with the given address; there is no listener if the step has no
    /// other hosts.
    pub(crate) fn listening(
        listener: Option<(TcpListener, String)>,
        key: &[u8],
    ) -> std::io::Result<Mesh> {
        let (listener, address) = listener.unzip();
        if let Some(listener) = &listener {
            listener.set_nonblocking(true)?;
        }
        let own = address.unwrap_or_else(|| "this host".to_owned());
        Ok(Mesh::new(own, key.to_vec(), listener))
    }

    /// Enables UCX for messages to hosts that have it too.
    pub(crate) fn use_ucx(&mut self, ucx: std::io::Result<Ucx>) {
        let offer = match &ucx {
            Ok(ucx) => Ok(ucx.address().to_vec()),
            Err(e) => {
                self.notes.push(e.to_string());
                Err(e.to_string())
            }
        };
        self.offer = Some(offer);
        self.ucx = ucx.ok();
    }

    /// Sends a message to a host.
    pub(crate) fn send(&mut self, host: &str, message: &Wire) {
        if host == self.own {
            self.to_self.push_back(message.clone());
        } else if let Some(at) = self.link(host) {
            self.links[at].send(message, self.ucx.as_mut());
        }
    }

    /// Connects to a host ahead of the first message.
    pub(crate) fn prepare(&mut self, host: &str) {
        if host != self.own {
            self.link(host);
        }
    }

    pub(crate) fn is_gone(&self, host: &str) -> bool {
        self.gone.contains(host)
    }

    /// A new host has connected. It may have the address of a host that has left, because ports are
    /// used again.
    pub(crate) fn add_host(&mut self, host: &str) {
        self.gone.remove(host);
    }

    /// The connection to a host; opens one if there is none.
    fn link(&mut self, host: &str) -> Option<usize> {
        let of_host = |l: &Link| l.open && l.peer == host;
        // An accepted connection counts only after it has proved which host it is.
        let known = self.links.iter().position(|l| of_host(l) && l.is_known());
        let found = known.or_else(|| {
            self.links
                .iter()
                .position(|l| of_host(l) && l.is_outbound())
        });
        if found.is_some() {
            return found;
        }
        match Link::connect(host) {
            Ok(link) => {
                self.links.push(link);
                Some(self.links.len() - 1)
            }
            Err(e) => {
                eprintln!("the host at {host} cannot be reached: {e}");
                self.unreachable.push(host.to_owned());
                None
            }
        }
    }

    /// Descriptors to poll: the listener first, then UCX, then the connections.
    pub(crate) fn interests(&self) -> Vec<(i32, i16)> {
        let listener = self.listener.as_ref().filter(|_| self.paused.is_none());
        let listener = listener.map_or(-1, |l| l.as_raw_fd());
        let ucx = self.ucx.as_ref().map_or(-1, Ucx::fd);
        let mut out = vec![(listener, libc::POLLIN), (ucx, libc::POLLIN)];
        out.extend(self.links.iter().map(Link::interest));
        out
    }

    /// Whether there is work that no descriptor reports.
    pub(crate) fn is_eager(&mut self) -> bool {
        self.ucx.as_mut().is_some_and(|ucx| !ucx.may_sleep())
            || !self.to_self.is_empty()
            || !self.unreachable.is_empty()
            || self.links.iter().any(|l| !l.open)
    }

    /// Time at which the mesh must be served even if no descriptor is ready.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let links = self.links.iter().filter_map(|l| l.stranger);
        let ends = links.map(|stranger| stranger.until);
        ends.chain(self.paused).min()
    }

    /// Serves the descriptors that poll reported, in the order of [`Self::interests`].
    pub(crate) fn serve(&mut self, seen: &[bool]) -> Vec<MeshEvent> {
        let mut out = Vec::new();
        let own = HostIdentity {
            key: &self.key,
            address: &self.own,
        };
        for (link, _) in self
            .links
            .iter_mut()
            .zip(seen.iter().skip(2))
            .filter(|(_, s)| **s)
        {
            for message in link.serve(own, self.ucx.as_mut()) {
                out.push(MeshEvent::Message(link.peer.clone(), message));
            }
            if let Some(stranger) = link.stranger.filter(|_| link.is_answered()) {
                self.strangers.set_credible(stranger.id);
            }
            if let Some(offer) = &self.offer {
                link.offer(offer);
            }
        }
        self.serve_ucx(&mut out);
        for message in std::mem::take(&mut self.to_self) {
            out.push(MeshEvent::Message(self.own.clone(), message));
        }
        let now = Instant::now();
        self.end_waits(now);
        if seen.first() == Some(&true) {
            self.accept(now);
        }
        self.bury(&mut out);
        out
    }

    fn serve_ucx(&mut self, out: &mut Vec<MeshEvent>) {
        let Some(ucx) = &mut self.ucx else {
            return;
        };
        // UCX may report a broken endpoint before the goodbye of a leaving host arrives. An
        // endpoint that broke in the last round is therefore reported only if no goodbye has come
        // since.
        let links = self.links.iter_mut().filter(|l| l.open && !l.bye);
        self.notes.extend(links.filter_map(|l| l.note.take()));
        for arrival in ucx.progress() {
            match arrival {
                Arrival::Message(tag, packet) => {
                    let Some(link) = self.links.iter_mut().find(|l| l.lane.has_tag(tag)) else {
                        continue;
                    };
                    for message in link.packet(&packet, ucx) {
                        out.push(MeshEvent::Message(link.peer.clone(), message));
                    }
                }
                Arrival::Broken(endpoint, why) => {
                    if let Some(link) = self.links.iter_mut().find(|l| l.lane.leads_to(endpoint)) {
                        link.lose_way(ucx, &why);
                    }
                }
            }
        }
    }

    /// Stops counting connections whose host has proved itself as unproven, and closes those that
    /// have not in time.
    fn end_waits(&mut self, now: Instant) {
        self.paused = self.paused.filter(|until| *until > now);
        for link in &mut self.links {
            let Some(stranger) = link.stranger else {
                continue;
            };
            link.open &= link.is_known() || stranger.until > now;
            if link.is_known() || !link.open {
                self.strangers.leave(stranger.id);
                link.stranger = None;
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.as_ref().map(TcpListener::accept) {
                None => return,
                Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => return,
                Some(accepted) => self.accepted(accepted, now),
            }
            if self.paused.is_some() {
                return;
            }
        }
    }

    fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>, now: Instant) {
        let link = accepted.and_then(|(stream, from)| Ok((Link::accepted(stream)?, from.ip())));
        let (mut link, from) = match link {
            Ok(accepted) => accepted,
            Err(e) => {
                eprintln!("a connection cannot be accepted: {e}");
                self.paused = Some(now + ACCEPT_PAUSE);
                return;
            }
        };
        let (id, gone) = self.strangers.admit(from);
        let until = now + STRANGER_MAX;
        link.stranger = Some(UnprovenLink { id, until });
        let mut others = self.links.iter_mut();
        if let Some(other) = others.find(|l| gone.is_some() && l.stranger.map(|s| s.id) == gone) {
            (other.open, other.stranger) = (false, None);
        }
        self.links.push(link);
    }

    /// Removes closed connections; reports a host without connections as disconnected.
    fn bury(&mut self, out: &mut Vec<MeshEvent>) {
        let failed = std::mem::take(&mut self.unreachable);
        let mut ended: BTreeMap<String, bool> = failed.into_iter().map(|h| (h, false)).collect();
        for link in self.links.iter().filter(|l| !l.open && l.names_a_host()) {
            *ended.entry(link.peer.clone()).or_insert(true) &= link.bye;
        }
        if let Some(ucx) = &mut self.ucx {
            let closed = self.links.iter_mut().filter(|l| !l.open);
            closed.for_each(|l| l.lose_way(ucx, "the connection is closed"));
        }
        self.links.retain(|l| l.open);
        for (host, orderly) in ended {
            if !self.links.iter().any(|l| l.peer == host) && self.gone.insert(host.clone()) {
                out.push(MeshEvent::Gone(host, orderly));
            }
        }
    }

    /// Says goodbye to all hosts and closes the connections.
    pub(crate) fn leave(&mut self) {
        for link in &mut self.links {
            link.leave();
            link.finish(LEAVE_WAIT);
        }
        self.links.clear();
    }
}

#[cfg(test)]
mod tests;
