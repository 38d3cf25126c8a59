//! Collectives among hosts: fences, connects, groups. A collective is identified by its kind and
//! members. The n-th collective that a host enters under one identity is matched with the n-th of
//! the other hosts, in whatever order messages arrive.

use crate::exchange::Exchange;
use crate::upcall::{Done, InfoReply, Modex};
use crate::wire::Wire;
use minicbor::bytes::ByteVec;
use std::collections::{BTreeMap, HashMap};

/// One collective.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectiveName {
    /// Kind and members.
    pub(crate) name: Vec<u8>,
    /// Number of collectives with the same kind and members that the host entered before.
    pub(crate) number: u64,
}

/// The use of the result.
#[derive(Debug)]
pub(crate) enum Finish {
    /// The contributions are concatenated and passed to the library.
    Fence(Modex),
    /// Only completion matters; there is no result.
    Met(Done),
    /// A group is complete. If true, the group needs a context number.
    Group(bool, InfoReply),
}

/// A completed collective.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Worst status.
    pub(crate) status: i32,
    /// Contributions in the members' order.
    pub(crate) parts: Vec<ByteVec>,
    /// The use of the result.
    pub(crate) finish: Finish,
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Name of the receiving host.
    pub(crate) host: String,
    /// The message.
    pub(crate) message: Wire,
}

#[derive(Debug, Default)]
struct OngoingCollective {
    exchange: Exchange,
    members: Vec<String>,
    finish: Option<Finish>,
}

/// All collectives of a host.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    runs: BTreeMap<CollectiveName, OngoingCollective>,
    entered: HashMap<Vec<u8>, u64>,
}

/// A host's contribution to a collective.
#[derive(Debug)]
pub(crate) struct Contribution {
    /// Name: the same at all members.
    pub(crate) name: Vec<u8>,
    /// Hosts, in the same order at all members.
    pub(crate) members: Vec<String>,
    /// Status of this host's part.
    pub(crate) status: i32,
    /// The contributed bytes.
    pub(crate) part: Vec<u8>,
    /// The use of the result.
    pub(crate) finish: Finish,
}

impl Collectives {
    /// Called when all tasks of this host have entered the collective.
    pub(crate) fn enter(
        &mut self,
        own: &str,
        entry: Contribution,
        is_gone: impl Fn(&str) -> bool,
    ) -> (Vec<Outgoing>, Option<Outcome>) {
        let counter = self.entered.entry(entry.name.clone()).or_default();
        let name = CollectiveName {
            name: entry.name,
            number: *counter,
        };
        *counter += 1;
        let index = entry.members.iter().position(|m| m == own).unwrap_or(0);
        let run = self.runs.entry(name.clone()).or_default();
        run.exchange
            .enter(entry.members.len(), index, entry.status, entry.part);
        for (at, member) in entry.members.iter().enumerate() {
            if is_gone(member) {
                run.exchange.lost(at);
            }
        }
        run.members = entry.members;
        run.finish = Some(entry.finish);
        self.advance(&name)
    }

    /// A message for a round arrived from another host.
    pub(crate) fn receive(
        &mut self,
        name: CollectiveName,
        round: u32,
        status: i32,
        parts: Vec<ByteVec>,
    ) -> (Vec<Outgoing>, Option<Outcome>) {
        let run = self.runs.entry(name.clone()).or_default();
        run.exchange.receive(round, status, parts);
        self.advance(&name)
    }

    /// A host has disconnected.
    pub(crate) fn lost(&mut self, host: &str) -> (Vec<Outgoing>, Vec<Outcome>) {
        let (mut outgoing, mut outcomes) = (Vec::new(), Vec::new());
        let names: Vec<CollectiveName> = self.runs.keys().cloned().collect();
        for name in names {
            let Some(run) = self.runs.get_mut(&name) else {
                continue;
            };
            let Some(at) = run.members.iter().position(|m| m == host) else {
                continue;
            };
            run.exchange.lost(at);
            let (more, outcome) = self.advance(&name);
            outgoing.extend(more);
            outcomes.extend(outcome);
        }
        (outgoing, outcomes)
    }

    fn advance(&mut self, name: &CollectiveName) -> (Vec<Outgoing>, Option<Outcome>) {
        let Some(run) = self.runs.get_mut(name) else {
            return (Vec::new(), None);
        };
        let outgoing = run
            .exchange
            .advance()
            .into_iter()
            .map(|due| {
                let message = Wire::Exchange {
                    name: name.name.clone().into(),
                    number: name.number,
                    round: due.round,
                    status: due.status,
                    parts: due.parts,
                };
                Outgoing {
                    host: run.members[due.to].clone(),
                    message,
                }
            })
            .collect();
        let Some((status, parts)) = run.exchange.result() else {
            return (outgoing, None);
        };
        let outcome = run.finish.take().map(|finish| Outcome {
            status,
            parts,
            finish,
        });
        self.runs.remove(name);
        (outgoing, outcome)
    }
}

/// The hosts that this host sends to in collectives over all hosts of a step. Connections to them
/// are opened ahead of time.
pub(crate) fn neighbours(members: usize, index: usize) -> Vec<usize> {
    let mut out = Vec::new();
    let mut reach = 1;
    while reach < members {
        out.push((index + members - reach) % members);
        reach *= 2;
    }
    out
}
