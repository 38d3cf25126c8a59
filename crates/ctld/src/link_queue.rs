//! Messages that wait to be sent to a node. Signals, notices and limits of steps, which users can send as fast as they like,
//! wait apart from the rest and bounded: equal signals of a job are one, a step has one limit, and of the notices of a job the
//! last few count. The rest goes first; an order that begins or ends a job takes along the messages that wait for that job.

use crate::mail::ToLink;
use log::debug;
use muster_model::command::SignalScope;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::pending::JobWaiters;
use muster_model::time::TimeLimit;
use muster_proto::node::Order;
use std::collections::{HashMap, HashSet, VecDeque};

/// Notices that wait for one job; of more the oldest are dropped.
const NOTICES_MAX: usize = 8;
/// Bytes of scripts and environments after which no other message is taken along.
const BLOB_BYTES: usize = 16 << 20;
/// Orders of one job before it is the next one's turn.
const TURN: usize = 16;

/// The key of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Signal {
    step: Option<StepNo>,
    signal: u32,
    scope: SignalScope,
    cancelled_by: Option<u32>,
}

/// A message that waits apart.
enum Item {
    Signal(Signal),
    Limit(StepNo, TimeLimit),
    Notice(String),
}

impl Item {
    /// An order for a job of the kind that waits apart, else the message itself.
    fn of(message: ToLink) -> Result<(JobAttempt, Item), ToLink> {
        match message {
            ToLink::Order(
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                    cancelled_by,
                },
                _,
            ) => {
                let signal = Signal {
                    step,
                    signal,
                    scope,
                    cancelled_by,
                };
                Ok((JobAttempt::new(job, attempt), Item::Signal(signal)))
            }
            ToLink::Order(
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                },
                _,
            ) => Ok((JobAttempt::new(job, attempt), Item::Limit(step, limit))),
            ToLink::Order(Order::Notify { job, attempt, text }, _) => {
                Ok((JobAttempt::new(job, attempt), Item::Notice(text)))
            }
            other => Err(other),
        }
    }
}

/// The waiting messages of one job.
#[derive(Default)]
struct WaitingOrders {
    signals: JobWaiters<Signal>,
    /// Steps with a new limit, in order; `limits` has the value.
    limited: JobWaiters<StepNo>,
    limits: HashMap<StepNo, TimeLimit>,
    notices: VecDeque<String>,
    dropped: u64,
}

impl WaitingOrders {
    fn push(&mut self, item: Item) {
        let has_room = match item {
            Item::Signal(signal) => self.signals.push(signal, signal.signal),
            Item::Limit(step, limit) => {
                let has_room = self.limited.push(step, 0);
                if has_room {
                    self.limits.insert(step, limit);
                }
                has_room
            }
            Item::Notice(text) => {
                self.notices.push_back(text);
                let has_room = self.notices.len() <= NOTICES_MAX;
                if !has_room {
                    self.notices.pop_front();
                }
                has_room
            }
        };
        self.dropped += u64::from(!has_room);
    }

    fn pop(&mut self, JobAttempt { job, attempt }: JobAttempt) -> Option<ToLink> {
        let order = if let Some(signal) = self.signals.pop() {
            let Signal {
                step,
                signal,
                scope,
                cancelled_by,
            } = signal;
            Order::Signal {
                job,
                attempt,
                step,
                signal,
                scope,
                cancelled_by,
            }
        } else if let Some(step) = self.limited.pop() {
            let limit = self.limits.remove(&step)?;
            Order::StepLimit {
                job,
                attempt,
                step,
                limit,
            }
        } else {
            let text = self.notices.pop_front()?;
            Order::Notify { job, attempt, text }
        };
        Some(ToLink::Order(order, Vec::new()))
    }

    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.limited.is_empty() && self.notices.is_empty()
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct LinkQueue {
    first: VecDeque<ToLink>,
    jobs: HashMap<JobAttempt, WaitingOrders>,
    /// Jobs for which something waits apart, each once.
    turns: VecDeque<JobAttempt>,
}

impl LinkQueue {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: ToLink) {
        let message = match Item::of(message) {
            Ok((attempt, item)) => return self.waiting(attempt).push(item),
            Err(other) => other,
        };
        match &message {
            ToLink::Order(order, _) => self.take_along(order),
            // Nothing is sent after it.
            ToLink::Stop(_) => self.put_all_first(),
            ToLink::Welcome(..) | ToLink::Ack(_) | ToLink::Settings(_) | ToLink::Replaced => {}
        }
        self.first.push_back(message);
    }

    fn waiting(&mut self, attempt: JobAttempt) -> &mut WaitingOrders {
        self.jobs.entry(attempt).or_insert_with(|| {
            self.turns.push_back(attempt);
            WaitingOrders::default()
        })
    }

    /// Messages that were sent to a job before this order arrive before it.
    fn take_along(&mut self, order: &Order) {
        match order {
            Order::Launch(grant) => self.put_first(JobAttempt::new(grant.job, grant.attempt)),
            Order::Terminate { job, attempt, .. } => {
                self.put_first(JobAttempt::new(*job, *attempt))
            }
            Order::StepLimit { .. }
            | Order::Signal { .. }
            | Order::Notify { .. }
            | Order::Reboot => {}
        }
    }

    fn put_first(&mut self, attempt: JobAttempt) {
        if let Some(mut waiting) = self.jobs.remove(&attempt) {
            self.turns.retain(|waits| *waits != attempt);
            self.first
                .extend(std::iter::from_fn(|| waiting.pop(attempt)));
        }
    }

    /// Nothing waits apart any more.
    pub(crate) fn put_all_first(&mut self) {
        while let Some(attempt) = self.turns.front() {
            self.put_first(*attempt);
        }
    }

    /// Removes so many messages at most, in their order, and nothing that waits apart. Those that follow too many bytes of
    /// scripts and environments wait until these are written.
    pub(crate) fn take_first(&mut self, most: usize) -> Vec<ToLink> {
        let mut counted = HashSet::new();
        let mut bytes = 0;
        let has_room = |message: &&ToLink| {
            let fits = bytes < BLOB_BYTES;
            if let ToLink::Order(_, blobs) = message {
                let fresh = blobs.iter().filter(|(id, _)| counted.insert(*id));
                bytes += fresh.map(|(_, blob)| blob.len()).sum::<usize>();
            }
            fits
        };
        let count = self.first.iter().take(most).take_while(has_room).count();
        self.first.drain(..count).collect()
    }

    /// Removes so much at most of what waits apart; jobs take turns.
    pub(crate) fn take_signals(&mut self, most: usize) -> Vec<ToLink> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(attempt) = self.turns.pop_front()
        {
            let Some(waiting) = self.jobs.get_mut(&attempt) else {
                continue;
            };
            let turn = TURN.min(most - taken.len());
            taken.extend(std::iter::from_fn(|| waiting.pop(attempt)).take(turn));
            let dropped = std::mem::take(&mut waiting.dropped);
            if dropped > 0 {
                debug!(
                    "job {}: {dropped} signals, limits or notices are dropped, too many wait",
                    attempt.job
                );
            }
            if waiting.is_empty() {
                self.jobs.remove(&attempt);
            } else {
                self.turns.push_back(attempt);
            }
        }
        taken
    }

    /// Whether something waits apart.
    pub(crate) fn has_signals(&self) -> bool {
        !self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::effect::TerminateReason;
    use muster_model::ids::{Attempt, JobId};
    use muster_model::pending::PENDING_MAX;

    fn signal(job: u64, step: Option<u32>, signal: u32) -> ToLink {
        let order = Order::Signal {
            job: JobId(job),
            attempt: Attempt(1),
            step: step.map(StepNo),
            signal,
            scope: SignalScope::Full,
            cancelled_by: None,
        };
        ToLink::Order(order, Vec::new())
    }

    fn notice(job: u64, text: &str) -> ToLink {
        let order = Order::Notify {
            job: JobId(job),
            attempt: Attempt(1),
            text: text.to_owned(),
        };
        ToLink::Order(order, Vec::new())
    }

    fn terminate(job: u64) -> ToLink {
        let order = Order::Terminate {
            job: JobId(job),
            attempt: Attempt(1),
            now: false,
            why: TerminateReason::Cancelled,
        };
        ToLink::Order(order, Vec::new())
    }

    fn limit(job: u64, step: u32, minutes: u32) -> ToLink {
        let order = Order::StepLimit {
            job: JobId(job),
            attempt: Attempt(1),
            step: StepNo(step),
            limit: TimeLimit::Minutes(minutes),
        };
        ToLink::Order(order, Vec::new())
    }

    fn texts(messages: Vec<ToLink>) -> Vec<String> {
        let text = |message| match message {
            ToLink::Order(Order::Signal { job, signal, .. }, _) => format!("{job} {signal}"),
            ToLink::Order(Order::Notify { job, text, .. }, _) => format!("{job} {text}"),
            ToLink::Order(Order::Terminate { job, .. }, _) => format!("{job} end"),
            ToLink::Order(
                Order::StepLimit {
                    job, step, limit, ..
                },
                _,
            ) => {
                let minutes = limit.seconds().expect("a limit") / 60;
                format!("{job}.{step} {minutes} min")
            }
            ToLink::Ack(seq) => format!("ack {seq}"),
            ToLink::Stop(_) => "stop".to_owned(),
            _ => panic!("another message"),
        };
        messages.into_iter().map(text).collect()
    }

    /// Signals and notices as fast as users can send them, while the node does not read.
    #[test]
    fn what_waits_for_a_node_is_bounded_whatever_users_send() {
        let mut queue = LinkQueue::default();
        for round in 0..10_000 {
            for number in [10, 12, 15] {
                queue.push(signal(7, None, number));
            }
            queue.push(notice(7, &round.to_string()));
        }
        let sent = texts(queue.take_signals(usize::MAX));
        assert_eq!(sent.len(), 3 + NOTICES_MAX);
        assert_eq!(sent[..3], ["7 10", "7 12", "7 15"]);
        assert_eq!(sent.last().unwrap(), "7 9999", "the last count");
        assert!(!queue.has_signals());
        // Different ones too.
        for step in 0..100_000 {
            queue.push(signal(7, Some(step), 10));
        }
        assert_eq!(queue.take_signals(usize::MAX).len(), PENDING_MAX);
        assert!(queue.take_first(usize::MAX).is_empty());
    }

    #[test]
    fn ends_overtake_signals_of_other_jobs_and_none_of_their_own() {
        let mut queue = LinkQueue::default();
        queue.push(signal(7, None, 15));
        queue.push(signal(8, None, 15));
        queue.push(notice(8, "bye"));
        queue.push(ToLink::Ack(3));
        queue.push(terminate(8));
        let first = texts(queue.take_first(usize::MAX));
        assert_eq!(first, ["ack 3", "8 15", "8 bye", "8 end"]);
        assert_eq!(texts(queue.take_signals(usize::MAX)), ["7 15"]);
        // When the controller stops, nothing is left behind.
        queue.push(signal(7, None, 10));
        queue.push(ToLink::Stop(true));
        assert_eq!(texts(queue.take_first(usize::MAX)), ["7 10", "stop"]);
    }

    /// Limits that one user changes as fast as possible: what other users wait for does not wait for them.
    #[test]
    fn a_step_has_one_limit_that_waits_and_others_overtake_it() {
        let mut queue = LinkQueue::default();
        for round in 0..10_000 {
            queue.push(signal(7, None, 10));
            queue.push(limit(7, round % 3, round));
        }
        queue.push(ToLink::Ack(3));
        queue.push(terminate(8));
        queue.push(signal(9, None, 15));
        assert_eq!(texts(queue.take_first(usize::MAX)), ["ack 3", "8 end"]);
        let sent = texts(queue.take_signals(usize::MAX));
        let last = [
            "7 10",
            "7.0 9999 min",
            "7.1 9997 min",
            "7.2 9998 min",
            "9 15",
        ];
        assert_eq!(sent, last);
        assert!(!queue.has_signals());
        // Whatever steps are named.
        for step in 0..100_000 {
            queue.push(limit(7, step, 1));
        }
        assert_eq!(queue.take_signals(usize::MAX).len(), PENDING_MAX);
        // When the job ends, or the controller, the last limit has been sent.
        queue.push(limit(7, 0, 1));
        queue.push(terminate(7));
        assert_eq!(texts(queue.take_first(usize::MAX)), ["7.0 1 min", "7 end"]);
    }

    #[test]
    fn jobs_take_turns() {
        let mut queue = LinkQueue::default();
        for step in 0..1000 {
            queue.push(signal(7, Some(step), 10));
        }
        queue.push(signal(8, None, 15));
        let sent = texts(queue.take_signals(TURN + 1));
        assert_eq!(sent.last().unwrap(), "8 15");
    }

    /// Messages to a node were made of a thousand orders, whatever those had with them.
    #[test]
    fn messages_wait_for_those_with_much_data() {
        let mut queue = LinkQueue::default();
        let blob: std::sync::Arc<minicbor::bytes::ByteVec> =
            std::sync::Arc::new(vec![0; 7 << 20].into());
        let order = |number: u8| {
            let id = muster_model::ids::BlobId([number; 32]);
            ToLink::Order(Order::Reboot, vec![(id, std::sync::Arc::clone(&blob))])
        };
        for number in 0..9 {
            queue.push(order(number));
        }
        let mut counts = Vec::new();
        while let count @ 1.. = queue.take_first(1024).len() {
            counts.push(count);
        }
        assert_eq!(counts, [3, 3, 3]);
        // Text that jobs share counts once.
        (0..100).for_each(|_| queue.push(order(1)));
        assert_eq!(queue.take_first(1024).len(), 100);
    }
}
