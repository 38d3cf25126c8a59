//! Nodes that get a key of their own by a token. Who has none is bounded in attempts, and learns nothing from them.

use super::Network;
use crate::audit::Entry;
use crate::node_trust::{Joining, fingerprint};
use log::warn;
use muster_channel::admission::HostAddress;
use muster_channel::relay::confirmed;
use muster_channel::{Channel, Opening, Responder, UnconfirmedChannel};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest};
use muster_proto::frame;
use muster_proto::hello::ChannelAnswer;
use muster_proto::node_trust::{JoinAnswer, JoinHello};
use muster_proto::version::Versions;
use muster_trust::join::JoinOffer;
use muster_trust::node_key::now_s;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque, hash_map};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Attempts without a token that an address has in a time.
const TRIES_MAX: u32 = 10;
/// Attempts from one IPv6 /64, in which there may be one host with all addresses or a cluster.
const TRIES_OF_NETWORK_MAX: u32 = 1000;
/// That time.
const TRIES_TIME: Duration = Duration::from_secs(60);
/// Hosts whose attempts are counted.
const ADDRESSES_MAX: usize = 4096;

/// Attempts to join that failed.
#[derive(Debug, Default)]
pub(super) struct FailedTries {
    of_addresses: Tries<IpAddr>,
    of_networks: Tries<HostAddress>,
}

impl FailedTries {
    /// Whether the host of an address may try again.
    fn may_try(&self, from: IpAddr, now: Instant) -> bool {
        let (address, network) = (from.to_canonical(), HostAddress::of(from));
        self.of_addresses.count(address, now) < TRIES_MAX
            && self.of_networks.count(network, now) < TRIES_OF_NETWORK_MAX
    }

    fn note(&mut self, from: IpAddr, now: Instant) {
        self.of_addresses.note(from.to_canonical(), now);
        self.of_networks.note(HostAddress::of(from), now);
    }
}

/// Attempts of a host within the time.
#[derive(Debug)]
struct HostTries {
    since: Instant,
    count: u32,
}

/// Attempts by host. Notes cost the same however many hosts are known: ended ones are forgotten in the order in which
/// they began.
#[derive(Debug)]
struct Tries<K> {
    of_hosts: HashMap<K, HostTries>,
    /// The same hosts, by the time of their first attempt.
    in_order: VecDeque<K>,
}

impl<K> Default for Tries<K> {
    fn default() -> Tries<K> {
        Tries {
            of_hosts: HashMap::new(),
            in_order: VecDeque::new(),
        }
    }
}

impl HostTries {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TRIES_TIME
    }
}

impl<K: Copy + Eq + Hash> Tries<K> {
    fn count(&self, from: K, now: Instant) -> u32 {
        let counted = self.of_hosts.get(&from).filter(|tries| !tries.is_over(now));
        counted.map_or(0, |tries| tries.count)
    }

    fn note(&mut self, from: K, now: Instant) {
        self.forget_old(now);
        let is_full = self.of_hosts.len() >= ADDRESSES_MAX;
        match self.of_hosts.entry(from) {
            hash_map::Entry::Occupied(mut known) => {
                let tries = known.get_mut();
                tries.count = tries.count.saturating_add(1);
            }
            hash_map::Entry::Vacant(_) if is_full => {}
            hash_map::Entry::Vacant(room) => {
                self.in_order.push_back(from);
                room.insert(HostTries {
                    since: now,
                    count: 1,
                });
            }
        }
    }

    /// Forgets the hosts whose time is over; gives how many it has looked at: one more than these at most.
    fn forget_old(&mut self, now: Instant) -> usize {
        let mut looked_at = 0;
        while let Some(first) = self.in_order.front() {
            looked_at += 1;
            if self.of_hosts.get(first).is_some_and(|t| !t.is_over(now)) {
                break;
            }
            self.of_hosts.remove(first);
            self.in_order.pop_front();
        }
        looked_at
    }
}

/// A node that has shown that it has a token.
struct Admitted {
    offer: JoinOffer,
    hello: JoinHello,
    answer: Vec<u8>,
    channel: UnconfirmedChannel,
}

/// How far an attempt to join has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinStage {
    /// It was refused before anything was looked at.
    Refused,
    /// The other side has not shown that it has a token.
    Unconfirmed,
    /// It has, and its key is being pinned.
    Confirmed,
    /// It has its line in the audit log.
    Finished,
}

/// An attempt to join, which ends without an outcome where its time is over: it has a line, and counts, all the same.
struct JoinAttempt<'a> {
    tries: &'a RefCell<FailedTries>,
    from: IpAddr,
    /// Its offer, which may repeat one of another client.
    shown: Option<JoinOffer>,
    stage: JoinStage,
}

impl JoinAttempt<'_> {
    /// Writes its line.
    fn finish(&mut self, outcome: &Result<(), String>) {
        match outcome {
            Ok(()) => entry(self.from, self.shown.as_ref()).done(),
            Err(why) => {
                if self.stage == JoinStage::Unconfirmed {
                    self.tries.borrow_mut().note(self.from, Instant::now());
                }
                note_refusal(self.from, self.shown.as_ref(), why);
            }
        }
        self.stage = JoinStage::Finished;
    }
}

impl Drop for JoinAttempt<'_> {
    fn drop(&mut self) {
        let why = match self.stage {
            JoinStage::Finished => return,
            JoinStage::Refused | JoinStage::Unconfirmed => {
                "the connection ended before it was shown that the other side has the token"
            }
            JoinStage::Confirmed => {
                "the connection ended before its key was pinned, which may have happened all the same"
            }
        };
        self.finish(&Err(why.to_owned()));
    }
}

impl Network {
    /// Serves a node that joins, until all is said. Each attempt has a line in the audit log, however it ends.
    pub(super) async fn admit_node(
        self: &Rc<Network>,
        tcp: &mut TcpStream,
        opening: &Opening,
        from: SocketAddr,
    ) -> Result<(), String> {
        let ip = from.ip();
        let shown = JoinOffer::decode(&opening.credential);
        let mut attempt = JoinAttempt {
            tries: &self.tries,
            from: ip,
            shown,
            stage: JoinStage::Unconfirmed,
        };
        let outcome = self.attempt(tcp, opening, &mut attempt).await;
        let pinned = match &outcome {
            Ok((_, pinned)) => pinned,
            Err(why) => &Err(why.clone()),
        };
        attempt.finish(pinned);
        let (mut channel, pinned) = outcome.map_err(refused)?;
        let said = match &pinned {
            Ok(()) => JoinAnswer::Joined,
            Err(why) => JoinAnswer::Refused(why.clone()),
        };
        let mut sealed = Vec::new();
        let seal = channel.sealer.seal(&frame::encode(&said), &mut sealed);
        seal.and_then(|()| channel.sealer.seal_end(&mut sealed))
            .map_err(|e| e.to_string())?;
        tcp.write_all(&sealed).await.map_err(|e| e.to_string())?;
        let _ = tcp.shutdown().await;
        pinned.map_err(refused)
    }

    /// Serves a node that joins once it has shown that it has a token, and the channel to it.
    ///
    /// # Errors
    /// It has no token.
    async fn attempt(
        self: &Rc<Network>,
        tcp: &mut TcpStream,
        opening: &Opening,
        attempt: &mut JoinAttempt<'_>,
    ) -> Result<(Channel, Result<(), String>), String> {
        let from = attempt.from;
        if !self.tries.borrow().may_try(from, Instant::now()) {
            attempt.stage = JoinStage::Refused;
            let why = "too many attempts to join from there: try again in a minute";
            let _ = tcp.write_all(&Responder::refusal(why)).await;
            let _ = tcp.shutdown().await;
            return Err(why.to_owned());
        }
        let admitted = match self.offered(opening, from).await {
            Ok(admitted) => admitted,
            Err(why) => {
                // It may have gone.
                let _ = tcp.write_all(&Responder::refusal(&why)).await;
                let _ = tcp.shutdown().await;
                return Err(why);
            }
        };
        let sent = tcp.write_all(&admitted.answer).await;
        sent.map_err(|e| e.to_string())?;
        // A client that repeats recorded bytes comes no further.
        let channel = confirmed(tcp, admitted.channel).await?;
        attempt.stage = JoinStage::Confirmed;
        let pinned = self.pin(admitted.offer, admitted.hello, from).await;
        Ok((channel, pinned))
    }

    /// Offer of the other side, if it has a token of this controller's.
    async fn offered(
        self: &Rc<Network>,
        opening: &Opening,
        from: IpAddr,
    ) -> Result<Admitted, String> {
        let offer = JoinOffer::decode(&opening.credential).ok_or("it shows no token")?;
        let (asked, trust) = (offer.clone(), self.trust.clone());
        let secret = self
            .ask(from, move |_| trust.secret_of_offer(&asked))
            .await?;
        // The bearer of the token knows the secret that follows from it.
        let accepted = Responder::accept(opening, &secret).ok();
        let is_allowed = rights::may_by_token(AccessRequest::JoinNode, accepted.is_some());
        let accepted = accepted.filter(|_| is_allowed);
        let (responder, hello) = accepted.ok_or("it does not have the token that it shows")?;
        let hello: JoinHello =
            frame::decode(&hello).map_err(|e| format!("its greeting cannot be read: {e}"))?;
        Versions::CLUSTER
            .check(&hello.greeting, "'muster node join' there", "slurmctld")
            .map_err(|refusal| refusal.detail)?;
        let said = frame::encode(&ChannelAnswer {
            greeting: Versions::CLUSTER.greeting(),
            cluster: self.cluster.clone(),
        });
        let said = said.get(4..).unwrap_or_default();
        let (answer, channel) = responder.answer(said).map_err(|e| e.to_string())?;
        Ok(Admitted {
            offer,
            hello,
            answer,
            channel,
        })
    }

    /// Pins the key of a node, which connects from its `NodeAddr`.
    async fn pin(
        self: &Rc<Network>,
        offer: JoinOffer,
        hello: JoinHello,
        from: IpAddr,
    ) -> Result<(), String> {
        self.check_node(&offer.node, from).await?;
        let (node, key) = (offer.node.clone(), fingerprint(&hello.key));
        let trust = self.trust.clone();
        // It waits for the disk.
        let pin = move |_: &dyn super::Verifier| {
            let joining = Joining {
                offer: &offer,
                key: &hello.key,
                proof: &hello.proof,
                address: from.to_string(),
            };
            trust.pin(&joining, now_s())
        };
        self.ask(from, pin).await?;
        warn!("node {node} has a key of its own from now on ({key}), and joined from {from}");
        Ok(())
    }
}

/// The audit line of an attempt to join. The node's name is the peer's own, unproven claim.
fn entry(from: IpAddr, shown: Option<&JoinOffer>) -> Entry {
    let subject = shown.map(|offer| format!("node {}", offer.node));
    Entry::of_host(from.to_canonical(), AccessRequest::JoinNode).about(&subject.unwrap_or_default())
}

fn refused(why: String) -> String {
    format!("a node that joins is refused: {why}")
}

fn note_refusal(from: IpAddr, shown: Option<&JoinOffer>, why: &str) {
    let refusal = Refusal::new(RefusalCode::AccessDenied, why);
    entry(from, shown).refused(&refusal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_has_few_tries_in_a_time() {
        let (mut tries, now) = (FailedTries::default(), Instant::now());
        let from = |last: u32| IpAddr::from(last.to_be_bytes());
        for _ in 0..TRIES_MAX {
            assert!(tries.may_try(from(1), now));
            tries.note(from(1), now);
        }
        assert!(!tries.may_try(from(1), now) && tries.may_try(from(2), now));
        let later = now + TRIES_TIME;
        assert!(tries.may_try(from(1), later));
        tries.note(from(1), later);
        assert!(tries.may_try(from(1), later), "it begins again");
        for last in 0..100_000 {
            tries.note(from(last), later);
        }
        assert!(tries.of_addresses.of_hosts.len() <= ADDRESSES_MAX);
        let (mut tries, of_host) = (FailedTries::default(), |last: u16| {
            IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last])
        });
        (1..20).for_each(|_| tries.note(of_host(1), now));
        assert!(!tries.may_try(of_host(1), now));
        assert!(
            tries.may_try(of_host(2), now),
            "a cluster may be in one network"
        );
        (1..=1000).for_each(|last| tries.note(of_host(last), now));
        assert!(
            !tries.may_try(of_host(2000), now),
            "a host has many addresses"
        );
    }

    /// Each attempt went through all hosts once 4096 were known.
    #[test]
    fn an_attempt_costs_the_same_however_many_hosts_are_known() {
        let (mut tries, now) = (Tries::default(), Instant::now());
        let hosts = u32::try_from(ADDRESSES_MAX).unwrap();
        let at = |ms: u32| now + Duration::from_millis(ms.into());
        (0..hosts).for_each(|host| tries.note(host, at(host)));
        let mut looked_at = 0;
        for host in 0..hosts {
            looked_at += tries.forget_old(at(hosts));
            tries.note(host, at(hosts));
            assert_eq!(tries.count(host, at(hosts)), 2);
        }
        assert_eq!(looked_at, ADDRESSES_MAX, "one for each attempt");
        tries.note(hosts, at(hosts));
        assert_eq!(tries.count(hosts, at(hosts)), 0, "there is no room");
        // Each is forgotten once, when its time is over.
        let over = |host: u32| at(host) + TRIES_TIME;
        let all: usize = (0..hosts).map(|host| tries.forget_old(over(host))).sum();
        assert_eq!(all, 2 * ADDRESSES_MAX - 1);
        assert!(tries.of_hosts.is_empty() && tries.in_order.is_empty());
        tries.note(hosts, over(hosts));
        assert_eq!(tries.count(hosts, over(hosts)), 1);
    }

    /// A client that replays a recorded offer says nothing further: the server ends the connection, and the attempt
    /// with it.
    #[tokio::test]
    async fn an_attempt_that_the_server_ends_has_a_line_and_counts() {
        let lines = crate::audit::observe();
        let (tries, from) = (RefCell::default(), IpAddr::from([192, 0, 2, 77]));
        let lines_of_host = || {
            let lines = lines.try_iter().map(|entry: Entry| entry.line());
            lines
                .filter(|line| line.contains("192.0.2.77"))
                .collect::<Vec<_>>()
        };
        let attempt = |stage| JoinAttempt {
            tries: &tries,
            from,
            shown: None,
            stage,
        };
        for _ in 0..TRIES_MAX {
            assert!(tries.borrow().may_try(from, Instant::now()));
            let waits = async {
                let _attempt = attempt(JoinStage::Unconfirmed);
                std::future::pending::<()>().await;
            };
            tokio::time::timeout(Duration::ZERO, waits)
                .await
                .unwrap_err();
            let lines = lines_of_host();
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains("refused: "), "{lines:?}");
        }
        assert!(!tries.borrow().may_try(from, Instant::now()));
        let tries = RefCell::default();
        let mut joined = JoinAttempt {
            tries: &tries,
            from,
            shown: None,
            stage: JoinStage::Confirmed,
        };
        joined.finish(&Ok(()));
        drop(joined);
        assert_eq!(lines_of_host().len(), 1);
        assert_eq!(tries.borrow().of_addresses.count(from, Instant::now()), 0);
    }
}
