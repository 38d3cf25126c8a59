//! All-to-all exchange in a logarithmic number of rounds: in round *k* each of *n* members sends
//! the contributions that it holds to the member 2^k before it, and receives as many from the
//! member 2^k behind it (Bruck's algorithm). There is no root to wait for, every member sends ⌈log2
//! n⌉ messages, and receives only contributions that it lacks. Pure: this module does no I/O.

use minicbor::bytes::ByteVec;
use std::collections::BTreeMap;

/// A message that is due.
#[derive(Debug, PartialEq)]
pub(crate) struct Due {
    /// Index of the receiving member.
    pub(crate) to: usize,
    /// Its round.
    pub(crate) round: u32,
    /// Worst status known so far.
    pub(crate) status: i32,
    /// Contributions of members, starting with the sender's own.
    pub(crate) parts: Vec<ByteVec>,
}

/// One member's view of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Set once this member has entered the exchange.
    own: Option<HeldContributions>,
    round: u32,
    sent: bool,
    status: i32,
    /// Messages that arrived for later rounds.
    early: BTreeMap<u32, (i32, Vec<ByteVec>)>,
}

#[derive(Debug)]
struct HeldContributions {
    members: usize,
    index: usize,
    /// Contributions of the members index, index + 1, ... (modulo their number).
    held: Vec<ByteVec>,
}

impl Exchange {
    /// Enters this member with its contribution.
    pub(crate) fn enter(&mut self, members: usize, index: usize, status: i32, part: Vec<u8>) {
        self.worsen(status);
        self.own = Some(HeldContributions {
            members,
            index,
            held: vec![part.into()],
        });
    }

    /// Takes a message of another member.
    pub(crate) fn receive(&mut self, round: u32, status: i32, parts: Vec<ByteVec>) {
        self.early.entry(round).or_insert((status, parts));
    }

    /// A member has left: treats the messages that it would have sent as failures.
    pub(crate) fn lost(&mut self, member: usize) {
        let Some(own) = &self.own else {
            return;
        };
        let mut round = self.round;
        while 1usize << round < own.members {
            if (own.index + (1 << round)) % own.members == member {
                self.early
                    .entry(round)
                    .or_insert((crate::status::LOST_CONNECTION, Vec::new()));
            }
            round += 1;
        }
    }

    /// Advances through rounds whose messages have arrived; returns the messages to send.
    pub(crate) fn advance(&mut self) -> Vec<Due> {
        let mut out = Vec::new();
        while let Some(own) = &mut self.own {
            let reach = 1usize << self.round;
            if reach >= own.members {
                break;
            }
            let count = reach.min(own.members - reach);
            if !self.sent {
                self.sent = true;
                out.push(Due {
                    to: (own.index + own.members - reach) % own.members,
                    round: self.round,
                    status: self.status,
                    parts: own.held[..count.min(own.held.len())].to_vec(),
                });
            }
            let Some((status, parts)) = self.early.remove(&self.round) else {
                break;
            };
            own.held.extend(parts.into_iter().take(count));
            self.round += 1;
            self.sent = false;
            self.worsen(status);
        }
        out
    }

    /// The result once all contributions have arrived: worst status, and the contributions in the
    /// members' order.
    pub(crate) fn result(&self) -> Option<(i32, Vec<ByteVec>)> {
        let own = self.own.as_ref()?;
        if 1usize << self.round < own.members {
            return None;
        }
        let mut parts = own.held.clone();
        parts.resize(own.members, Vec::new().into());
        parts.rotate_right(own.index);
        Some((self.status, parts))
    }

    /// Number of completed rounds.
    pub(crate) fn rounds(&self) -> u32 {
        self.round
    }

    fn worsen(&mut self, status: i32) {
        if self.status == crate::status::SUCCESS {
            self.status = status;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs an exchange among `n` members; `pick` chooses the order of delivery. Returns numbers of
    /// rounds and messages.
    fn run(n: usize, mut pick: impl FnMut(usize) -> usize) -> (u32, usize) {
        let mut members: Vec<Exchange> = (0..n).map(|_| Exchange::default()).collect();
        let mut wire: VecDeque<Due> = VecDeque::new();
        let mut order: Vec<usize> = (0..n).collect();
        let mut messages = 0;
        while !order.is_empty() || !wire.is_empty() {
            // Some members enter late, after messages for them have arrived.
            let late = !order.is_empty() && (wire.is_empty() || pick(2) == 0);
            let due = if late {
                let who = order.swap_remove(pick(order.len()));
                let text = format!("<{who}>").into_bytes();
                members[who].enter(n, who, 0, text);
                members[who].advance()
            } else {
                let at = pick(wire.len());
                let due = wire.remove(at).unwrap();
                members[due.to].receive(due.round, due.status, due.parts);
                members[due.to].advance()
            };
            messages += due.len();
            wire.extend(due);
        }
        let all: Vec<ByteVec> = (0..n)
            .map(|i| format!("<{i}>").into_bytes().into())
            .collect();
        for member in &members {
            assert_eq!(member.result(), Some((0, all.clone())));
        }
        (members.iter().map(|m| m.round).max().unwrap(), messages)
    }

    #[test]
    fn rounds_and_messages_grow_as_the_logarithm() {
        for n in (1..=33).chain([63, 64, 65, 100, 128, 255, 256]) {
            let mut state = n as u64;
            let pick = |bound: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).unwrap() % bound
            };
            let (rounds, messages) = run(n, pick);
            let log = n.next_power_of_two().trailing_zeros();
            assert_eq!(rounds, log, "{n} members");
            assert_eq!(messages, n * log as usize, "{n} members");
        }
    }

    #[test]
    fn a_failure_reaches_everyone() {
        let n = 5;
        let mut members: Vec<Exchange> = (0..n).map(|_| Exchange::default()).collect();
        let mut wire = VecDeque::new();
        for (i, member) in members.iter_mut().enumerate() {
            member.enter(n, i, if i == 3 { -61 } else { 0 }, Vec::new());
            wire.extend(member.advance());
        }
        while let Some(due) = wire.pop_front() {
            members[due.to].receive(due.round, due.status, due.parts);
            wire.extend(members[due.to].advance());
        }
        assert!(members.iter().all(|m| m.result().unwrap().0 == -61));
    }
}
