//! Messages that wait to be sent to a node. Signals, notices and limits of steps, which users can send as fast as they like,
//! wait apart from the rest and bounded: equal signals of a job are one, a step has one limit, and of the notices of a job the
//! last few count. The rest goes first; an order that begins or ends a job takes along the messages that wait for that job.

use crate::mail::ToLink;
use log::debug;
use muster_core::event::encoded_bytes;
use muster_model::command::SignalScope;
use muster_model::ids::{BlobId, JobAttempt, StepNo};
use muster_model::pending::JobWaiters;
use muster_model::time::TimeLimit;
use muster_proto::node::Order;
use std::collections::{HashMap, HashSet, VecDeque};

/// Notices that wait for one job; of more the oldest are dropped.
const NOTICES_MAX: usize = 8;
/// Bytes of messages after which no other message is taken along. All of them are one frame, which a node reads as a whole.
const RUN_BYTES: usize = 16 << 20;
/// Bytes of messages that wait apart, beside them.
const SIGNAL_BYTES: usize = 4 << 20;
/// Factor by which bytes of an order count: each may be an item of the frame, whose number is bounded, too.
const ORDER_WEIGHT: usize = 4;
/// Bytes that a message has at least.
const MESSAGE_BYTES: usize = 64;
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

/// Bytes of messages that leave together.
#[derive(Default)]
pub(crate) struct MessageRun {
    bytes: usize,
    /// Scripts and environments among them: each is sent once.
    blobs: HashSet<BlobId>,
}

impl MessageRun {
    fn has_room(&self) -> bool {
        self.bytes < RUN_BYTES
    }

    fn count(&mut self, message: &ToLink) {
        self.bytes += MESSAGE_BYTES;
        let ToLink::Order(order, blobs) = message else {
            return;
        };
        let order = match order {
            // Tasks of an array have one specification, and each order has all of it.
            Order::Launch(_) => usize::try_from(encoded_bytes(order)).unwrap_or(usize::MAX),
            Order::Notify { text, .. } => text.len(),
            Order::Terminate { .. }
            | Order::Signal { .. }
            | Order::StepLimit { .. }
            | Order::Reboot => 0,
        };
        let fresh = blobs.iter().filter(|(id, _)| self.blobs.insert(*id));
        let blobs: usize = fresh.map(|(_, blob)| blob.len()).sum();
        let bytes = order.saturating_mul(ORDER_WEIGHT).saturating_add(blobs);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The job that a message is for.
fn attempt_of(message: &ToLink) -> Option<JobAttempt> {
    let ToLink::Order(order, _) = message else {
        return None;
    };
    match order {
        Order::Launch(grant) => Some(JobAttempt::new(grant.job, grant.attempt)),
        Order::Terminate { job, attempt, .. }
        | Order::Signal { job, attempt, .. }
        | Order::StepLimit { job, attempt, .. }
        | Order::Notify { job, attempt, .. } => Some(JobAttempt::new(*job, *attempt)),
        Order::Reboot => None,
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

    /// Removes at most `most` messages, in their order, and none that waits apart. Those beyond the bytes of a run wait
    /// until these are written.
    pub(crate) fn take_first(&mut self, most: usize, run: &mut MessageRun) -> Vec<ToLink> {
        let mut taken = Vec::new();
        while taken.len() < most
            && run.has_room()
            && let Some(message) = self.first.pop_front()
        {
            run.count(&message);
            taken.push(message);
        }
        taken
    }

    /// Removes at most `most` of the messages that wait apart, as many as leave together; jobs take turns. None overtakes
    /// a message to its own job; those to other jobs may be many and long, and it does not wait for them.
    pub(crate) fn take_signals(&mut self, most: usize) -> Vec<ToLink> {
        let behind: HashSet<JobAttempt> = self.first.iter().filter_map(attempt_of).collect();
        let (mut run, mut taken, mut later) = (MessageRun::default(), Vec::new(), Vec::new());
        while taken.len() < most
            && run.bytes < SIGNAL_BYTES
            && let Some(attempt) = self.turns.pop_front()
        {
            if behind.contains(&attempt) {
                later.push(attempt);
                continue;
            }
            let Some(waiting) = self.jobs.get_mut(&attempt) else {
                continue;
            };
            let turn = TURN.min(most - taken.len());
            let own = std::iter::from_fn(|| waiting.pop(attempt)).take(turn);
            taken.extend(own.inspect(|message| run.count(message)));
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
        later
            .into_iter()
            .rev()
            .for_each(|attempt| self.turns.push_front(attempt));
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
    use minicbor::bytes::ByteVec;
    use muster_model::effect::TerminateReason;
    use muster_model::ids::{Attempt, JobId};
    use muster_model::job::{Allocation, ArrayRole};
    use muster_model::limits::{ARGUMENTS_MAX, FRAME_BYTES_MAX, FRAME_ITEMS_MAX};
    use muster_model::pending::PENDING_MAX;
    use muster_model::spec::JobSpec;
    use muster_model::time::Timestamp;
    use muster_proto::node::JobGrant;
    use std::sync::Arc;

    /// All that leaves together.
    fn take_run(queue: &mut LinkQueue) -> Vec<ToLink> {
        queue.take_first(usize::MAX, &mut MessageRun::default())
    }

    fn take_signals(queue: &mut LinkQueue, most: usize) -> Vec<ToLink> {
        queue.take_signals(most)
    }

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
        let sent = texts(take_signals(&mut queue, usize::MAX));
        assert_eq!(sent.len(), 3 + NOTICES_MAX);
        assert_eq!(sent[..3], ["7 10", "7 12", "7 15"]);
        assert_eq!(sent.last().unwrap(), "7 9999", "the last count");
        assert!(!queue.has_signals());
        // Different ones too.
        for step in 0..100_000 {
            queue.push(signal(7, Some(step), 10));
        }
        assert_eq!(take_signals(&mut queue, usize::MAX).len(), PENDING_MAX);
        assert!(take_run(&mut queue).is_empty());
    }

    #[test]
    fn ends_overtake_signals_of_other_jobs_and_none_of_their_own() {
        let mut queue = LinkQueue::default();
        queue.push(signal(7, None, 15));
        queue.push(signal(8, None, 15));
        queue.push(notice(8, "bye"));
        queue.push(ToLink::Ack(3));
        queue.push(terminate(8));
        let first = texts(take_run(&mut queue));
        assert_eq!(first, ["ack 3", "8 15", "8 bye", "8 end"]);
        assert_eq!(texts(take_signals(&mut queue, usize::MAX)), ["7 15"]);
        // When the controller stops, nothing is left behind.
        queue.push(signal(7, None, 10));
        queue.push(ToLink::Stop(true));
        assert_eq!(texts(take_run(&mut queue)), ["7 10", "stop"]);
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
        assert_eq!(texts(take_run(&mut queue)), ["ack 3", "8 end"]);
        let sent = texts(take_signals(&mut queue, usize::MAX));
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
        assert_eq!(take_signals(&mut queue, usize::MAX).len(), PENDING_MAX);
        // When the job ends, or the controller, the last limit has been sent.
        queue.push(limit(7, 0, 1));
        queue.push(terminate(7));
        assert_eq!(texts(take_run(&mut queue)), ["7.0 1 min", "7 end"]);
    }

    #[test]
    fn jobs_take_turns() {
        let mut queue = LinkQueue::default();
        for step in 0..1000 {
            queue.push(signal(7, Some(step), 10));
        }
        queue.push(signal(8, None, 15));
        let sent = texts(take_signals(&mut queue, TURN + 1));
        assert_eq!(sent.last().unwrap(), "8 15");
    }

    /// Messages to a node were made of a thousand orders, whatever those had with them.
    #[test]
    fn messages_wait_for_those_with_much_data() {
        let mut queue = LinkQueue::default();
        let blob: Arc<ByteVec> = Arc::new(vec![0; 7 << 20].into());
        let order = |number: u8| {
            let id = BlobId([number; 32]);
            ToLink::Order(Order::Reboot, vec![(id, Arc::clone(&blob))])
        };
        for number in 0..9 {
            queue.push(order(number));
        }
        let mut counts = Vec::new();
        while let count @ 1.. = take_run(&mut queue).len() {
            counts.push(count);
        }
        assert_eq!(counts, [3, 3, 3]);
        // Text that jobs share counts once.
        (0..100).for_each(|_| queue.push(order(1)));
        assert_eq!(take_run(&mut queue).len(), 100);
    }

    fn launch(job: u64, spec: &Arc<JobSpec>) -> ToLink {
        let grant = JobGrant {
            job: JobId(job),
            attempt: Attempt(1),
            spec: Arc::clone(spec),
            alloc: Allocation::default().into(),
            position: 0,
            array: ArrayRole::None,
            array_info: None,
            start_time: Timestamp(0),
            time_limit: TimeLimit::Unlimited,
            restarts: 0,
            addresses: Vec::new(),
            key: Vec::new().into(),
            account: String::new(),
            qos: String::new(),
            next_step: 0,
            components: Vec::new(),
            resizes: 0,
            het_key: None,
        };
        ToLink::Order(Order::Launch(Box::new(grant)), Vec::new())
    }

    /// The tasks of one array with long arguments, or with many, were more than a frame may have: the node refused it, connected
    /// again and was sent the same.
    #[test]
    fn launches_of_a_node_never_exceed_a_frame() {
        let arguments = |count: usize, length: usize| {
            let argv = vec!["a".repeat(length); count];
            Arc::new(JobSpec {
                argv,
                ..JobSpec::default()
            })
        };
        for (spec, count) in [
            (arguments(8, 128 << 10), 80),
            (arguments(ARGUMENTS_MAX, 0), 40),
        ] {
            let mut queue = LinkQueue::default();
            (0..count).for_each(|job| queue.push(launch(job, &spec)));
            queue.push(signal(7, None, 10));
            let mut launched = 0;
            while launched < count {
                let mut run = MessageRun::default();
                let taken = queue.take_first(1024, &mut run);
                launched += taken.len() as u64;
                let all = taken.into_iter().chain(queue.take_signals(1024));
                let orders: Vec<Order> = all.map(order_of).collect();
                let bytes = minicbor::to_vec(&orders).unwrap().len();
                let items = orders.len() * (spec.argv.len() + 256);
                assert!(!orders.is_empty() && bytes < FRAME_BYTES_MAX / 2);
                assert!(items < FRAME_ITEMS_MAX / 4 * 3);
            }
        }
    }

    /// Where launches of one user come faster than a node takes them, signals to jobs of others went out with none of them.
    #[test]
    fn signals_wait_for_launches_of_their_own_job_alone() {
        let argv = vec!["a".repeat(1 << 20); 1];
        let spec = Arc::new(JobSpec {
            argv,
            ..JobSpec::default()
        });
        let mut queue = LinkQueue::default();
        (10..20).for_each(|job| queue.push(launch(job, &spec)));
        queue.push(signal(19, None, 10));
        queue.push(signal(7, None, 15));
        queue.push(signal(10, None, 10));
        let mut sent = Vec::new();
        for job in 20..30 {
            let launches = queue.take_first(1024, &mut MessageRun::default());
            sent.push((launches.len(), texts(take_signals(&mut queue, 1024))));
            queue.push(launch(job, &spec));
        }
        assert_eq!(sent[0], (4, vec!["7 15".to_owned(), "10 10".to_owned()]));
        let behind = sent.iter().position(|(_, texts)| *texts == ["19 10"]);
        let launched: usize = sent[..=behind.unwrap()]
            .iter()
            .map(|(count, _)| count)
            .sum();
        assert!((10..10 + 4).contains(&launched), "{launched}");
        assert!(!queue.has_signals());
    }

    fn order_of(message: ToLink) -> Order {
        match message {
            ToLink::Order(order, _) => order,
            _ => panic!("it is no order"),
        }
    }

    /// So are notices: each may be long, and each job has some.
    #[test]
    fn notices_of_many_jobs_leave_in_several_messages() {
        let mut queue = LinkQueue::default();
        let text = "x".repeat(64 << 10);
        (0..1024).for_each(|job| queue.push(notice(job, &text)));
        let mut left = 1024;
        while left > 0 {
            let taken = take_signals(&mut queue, 1024);
            assert!((1..=256 + TURN).contains(&taken.len()), "{}", taken.len());
            left -= taken.len();
        }
    }
}
