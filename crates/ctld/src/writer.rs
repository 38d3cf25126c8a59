//! The thread that owns the state. It takes all queued messages, decides them in one turn, makes the turn durable
//! with one sync, and only then lets answers, acknowledgements and orders go. It answers no reads.
//!
//! A command whose decision panics is refused. A turn that cannot be completed is abandoned and decided again without
//! the message that made it fail: see [`retry`].

mod binding;
mod encoded_bytes;
mod het;
pub(crate) mod joining;
mod nodes;
mod orders;
mod queue;
mod replica_feed;
mod retry;
mod room;
#[cfg(test)]
mod tests;

use crate::accounted::{Accounted, StoredPosition};
use crate::audit::Entry;
use crate::clock::now;
use crate::disk::DiskReserve;
use crate::failure::{Panicked, caught};
use crate::fault;
use crate::keys::Keys;
use crate::mail::{Link, ToLink, ToReplica, ToWriter};
use crate::network::NodeAddresses;
use crate::quarantine::Quarantine;
use crate::reply::ReplyTo;
use crate::stats::Stats;
use crate::watchdog::{ThreadActivity, ThreadHeartbeat};
use log::{error, info, warn};
use muster_core::state::{DisplayUpdate, State};
use muster_journal::{Batch, Error, Log, Position};
use muster_model::command::{Command, KeptPartitions, NodeCommand, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::{JobAttempt, NodeIdx};
use muster_model::limits::PURGE_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_model::topology::{Topology, TopologyAddress};
use muster_model::trigger::TriggerReport;
use muster_proto::node::{NodeSettings, Welcome};
use muster_sched::engine::{Engine, Turn};
use retry::{PrologResult, ReportAck, Retry};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub use het::components;
use nodes::NodeReports;
pub use nodes::node_command;
use orders::Grants;
pub use orders::addresses;
use queue::{Charge, Cost, Queue};
use replica_feed::ReplicaFeed;

/// Messages taken into one turn at most.
const TURN_MESSAGES_MAX: usize = 4096;
/// Longest sleep: accounting progress and node silence are looked at this often.
const IDLE: Duration = Duration::from_millis(500);
/// Time between attempts to write to a full disk.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// The state's owner and everything it drives.
pub struct Writer {
    engine: Engine,
    log: Box<dyn Log>,
    replica: ReplicaFeed,
    links: HashMap<NodeIdx, Link>,
    /// The connection of each node whose hello was decided last. It is known here before its link takes over, which
    /// waits for the commit: the loss of an older connection may be reported in the same turn.
    generations: HashMap<NodeIdx, u64>,
    settings: NodeSettings,
    /// Places of the nodes in the network, by name.
    places: BTreeMap<String, TopologyAddress>,
    /// Where agents connect from.
    addresses: NodeAddresses,
    keys: Keys,
    stats: Arc<Stats>,
    accounted: Accounted,
    /// When time must be looked at, as of the last look.
    due: Option<Timestamp>,
    reserve: DiskReserve,
    batch: Batch,
    /// A turn that waits for space on the disk.
    blocked: Option<Box<Work>>,
    /// Messages of a turn that failed, which are to be decided again before others.
    backlog: VecDeque<ToWriter>,
    queue: Queue,
    reported_full: bool,
    retry: Retry,
    quarantine: Option<Quarantine>,
    pulse: Arc<ThreadHeartbeat>,
    /// Tells how long commands take.
    stopwatch: Stopwatch,
    /// Why the writer cannot go on, after [`NextAction::Stop`].
    pub fatal: Option<String>,
}

/// A user's command of this turn. It is kept until the turn is durable: a turn that fails is decided again.
struct Decided {
    command: Command,
    to: ReplyTo,
    /// Absent while it is being decided.
    reply: Option<Reply>,
    /// Its events among those of the turn.
    events: Range<usize>,
    /// Its line of the audit log, if it makes one.
    audit: Option<Entry>,
}

impl Decided {
    /// Sends the reply, once it may be known.
    fn answer(self, stats: &Stats) {
        if let Some(reply) = self.reply {
            if let Some(entry) = self.audit {
                entry.replied(&reply);
            }
            self.to.send(reply, stats);
        }
    }
}

/// A configuration that was read.
struct NewConfig {
    config: Arc<ClusterConfig>,
    settings: Box<NodeSettings>,
    keep: KeptPartitions,
}

/// Requests that wait for the turn's commit, or are decided again if it fails.
#[derive(Default)]
struct Outbox {
    users: Vec<Decided>,
    prologs: Vec<PrologResult>,
    /// Reports about triggers, in case they have to be decided again.
    triggers: Vec<TriggerReport>,
    config: Option<NewConfig>,
    /// By node and connection: a node that has connected again gets none for what another connection has said.
    acks: Vec<ReportAck>,
    welcomes: Vec<NewLink>,
    registered: Vec<(NodeIdx, Vec<JobAttempt>)>,
    configured: Vec<oneshot::Sender<()>>,
}

/// A node that registered in this turn.
struct NewLink {
    node: NodeIdx,
    link: Link,
    welcome: Box<Welcome>,
    settings: Box<NodeSettings>,
    answer: oneshot::Sender<Result<NodeIdx, Refusal>>,
}

/// The parts of a writer.
pub struct WriterSetup {
    /// The recovered state.
    pub state: State,
    /// The open journal.
    pub log: Box<dyn Log>,
    /// The read replica.
    pub replica: Sender<ToReplica>,
    /// Secrets.
    pub keys: Keys,
    /// Counters.
    pub stats: Arc<Stats>,
    /// Position up to which accounting has stored.
    pub accounted: StoredPosition,
    /// Free space to keep for the end of jobs.
    pub reserve: DiskReserve,
    /// Tells how long users' commands take, by which users take turns.
    pub stopwatch: Stopwatch,
}

impl Writer {
    /// Puts it together.
    pub fn new(parts: WriterSetup) -> Writer {
        let position = parts.log.last_position();
        Writer {
            engine: Engine::new(parts.state),
            log: parts.log,
            replica: ReplicaFeed::new(parts.replica),
            links: HashMap::new(),
            generations: HashMap::new(),
            settings: NodeSettings::default(),
            places: BTreeMap::new(),
            addresses: NodeAddresses::default(),
            keys: parts.keys,
            stats: parts.stats,
            accounted: Accounted::new(parts.accounted, position),
            due: None,
            reserve: parts.reserve,
            batch: Batch::new(),
            blocked: None,
            backlog: VecDeque::new(),
            queue: Queue::default(),
            reported_full: false,
            retry: Retry::default(),
            quarantine: None,
            pulse: Arc::new(ThreadHeartbeat::new("writer")),
            stopwatch: parts.stopwatch,
            fatal: None,
        }
    }

    /// With a way to get the state as of the last commit back, so that a turn that fails need not end the process.
    pub fn rebuilt_by(mut self, rebuild: Rebuild) -> Writer {
        self.retry.rebuild = Some(rebuild);
        self
    }

    /// With a place for commands that made it panic.
    pub fn with_quarantine(mut self, quarantine: Quarantine) -> Writer {
        self.quarantine = Some(quarantine);
        self
    }

    /// Notes its stages in this pulse.
    pub fn watched_by(mut self, pulse: Arc<ThreadHeartbeat>) -> Writer {
        self.pulse = pulse;
        self
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Why it cannot go on: the journal failed, or the state cannot be rebuilt.
    pub fn run(mut self, inbox: &Receiver<ToWriter>) -> Result<(), String> {
        let (mut wait, mut is_blocked) = (Duration::ZERO, false);
        loop {
            let first = match inbox.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let messages = first
                .into_iter()
                .chain(inbox.try_iter())
                .take(TURN_MESSAGES_MAX);
            // In a turn that waits for space on the disk the last job may have ended, which runs on if this process is lost before
            // the turn is written.
            crate::clock::follow(!is_blocked && self.engine.state().active.is_empty());
            let after = self.turn(messages, now());
            is_blocked = matches!(after, NextAction::Full);
            wait = match after {
                NextAction::Sleep => self.next_tick(now()),
                NextAction::Again => Duration::ZERO,
                NextAction::Full => FULL_RETRY,
                NextAction::Stop => return self.fatal.map_or(Ok(()), Err),
            };
        }
    }

    /// Time in which nothing need be done, if no message comes.
    pub fn next_tick(&self, now: Timestamp) -> Duration {
        match self.next_due(now) {
            Some(at) => Duration::from_millis(at.since_ms(now)).min(IDLE),
            None => IDLE,
        }
    }

    /// When time must be looked at again. The state puts off a purge that is overdue from wherever it is asked, so that
    /// one which waits for accounting is not tried all the time; `due` remembers until when.
    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.engine.state().next_tick(now);
        let plan = self.engine.scheduler().next_look();
        self.due.into_iter().chain(next).chain(plan).min()
    }

    /// One turn: decides the messages, lets time pass, schedules, commits, and sends what may now be known.
    /// Synchronous and driven from outside, so that the simulator runs this very code.
    pub fn turn(&mut self, messages: impl Iterator<Item = ToWriter>, now: Timestamp) -> NextAction {
        self.pulse.begin(ThreadActivity::Deciding);
        let after = self.whole_turn(messages, now);
        self.pulse.rest();
        after
    }

    fn whole_turn(
        &mut self,
        messages: impl Iterator<Item = ToWriter>,
        now: Timestamp,
    ) -> NextAction {
        self.queue.extend(messages, self.engine.state());
        if let Some(blocked) = self.blocked.take() {
            // The state already holds the blocked turn; nothing else is decided before it is durable.
            return match self.stop_is_queued() {
                // Nothing of the blocked turn was acknowledged: who stops need not wait for space.
                Some(nodes) => self.stop(nodes),
                None => self.finish(*blocked, now),
            };
        }
        let mut work = Work {
            room: self.retry.room(),
            ..Work::default()
        };
        self.queue.begin_turn();
        while let Err(panicked) = caught(|| self.decide_turn(now, &mut work)) {
            if !self.refuse_current(&panicked, now, &mut work) {
                return self.abandon(work, Failure::Panic(panicked), now);
            }
        }
        self.finish(work, now)
    }

    /// Decides the messages, processes timers that are due and plans. After a panic that left the state whole it
    /// continues from there.
    fn decide_turn(&mut self, now: Timestamp, work: &mut Work) {
        self.retry.mark(work);
        if std::mem::take(&mut self.retry.nodes_are_missed) {
            self.miss_nodes(now, &mut work.turn);
        }
        self.reports(now, work);
        while work.room > 0
            && let Some((charge, message)) = self.next_message(work.stop.is_some())
        {
            work.room -= 1;
            let before = (work.turn.events.len(), work.turn.effects.len());
            let begun = charge.as_ref().map(|_| (self.stopwatch)());
            match message {
                // A second Stop, from a signal during shutdown, does not cancel the nodes flag of the first.
                ToWriter::Stop { nodes } => work.stop = Some(nodes || work.stop == Some(true)),
                other => self.take(other, now, work),
            }
            if let Some((charge, begun)) = charge.zip(begun) {
                let cost = Cost {
                    events: &work.turn.events[before.0..],
                    orders: work.turn.effects.len() - before.1,
                    time: (self.stopwatch)().saturating_sub(begun),
                };
                self.queue.charge(charge, &cost);
            }
        }
        work.stage = Stage::Time;
        self.pulse.begin_activity(ThreadActivity::Ticking);
        self.tick(now, &mut work.turn);
        if !self.engine.puts_off(&mut work.turn) {
            self.pulse.begin_activity(ThreadActivity::Scheduling);
            let pass = Instant::now();
            let planned = work.turn.events.len();
            self.engine.schedule(now, &mut work.turn);
            fault::on_start(
                "schedule",
                self.engine.state(),
                &work.turn.events[planned..],
            );
            self.stats.pass(micros(pass.elapsed()));
        }
    }

    /// The next message, and who is charged for it.
    fn next_message(&mut self, is_last: bool) -> Option<(Option<Charge>, ToWriter)> {
        match self.backlog.pop_front() {
            Some(message) => Some((None, message)),
            None => self.queue.next(is_last),
        }
    }

    /// Whether the controller is to stop, and the agents with it.
    fn stop_is_queued(&self) -> Option<bool> {
        let waiting = self.backlog.iter().chain(self.queue.first());
        let stops = waiting.filter_map(|message| match message {
            ToWriter::Stop { nodes } => Some(*nodes),
            _ => None,
        });
        stops.reduce(|one, other| one || other)
    }

    fn stop(&mut self, nodes: bool) -> NextAction {
        self.links
            .values()
            .for_each(|link| drop(link.send.send(ToLink::Stop(nodes))));
        self.replica.stop();
        NextAction::Stop
    }

    /// The state, for checks.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    fn finish(&mut self, work: Work, now: Timestamp) -> NextAction {
        let stop = work.stop;
        self.pulse.begin_activity(ThreadActivity::Writing);
        match self.commit(&work.turn) {
            Commit::Durable => {}
            Commit::Full if self.is_oversized(&work) => {
                return self.abandon(work, Failure::NoRoom, now);
            }
            Commit::Full => {
                self.blocked = Some(Box::new(work));
                return NextAction::Full;
            }
            Commit::Refused(index, why) => {
                return self.abandon(work, Failure::Record(index, why), now);
            }
            Commit::Failed(why) => {
                self.fatal = Some(why);
                return NextAction::Stop;
            }
        }
        self.retry.succeeded();
        let waits = !self.backlog.is_empty() || !self.queue.is_empty();
        let more = work.turn.more || waits || self.retry.is_careful();
        self.pulse.begin_activity(ThreadActivity::Sending);
        self.send(work.turn, work.out);
        self.accounted.note(now, self.log.last_position());
        if let Some(nodes) = stop {
            return self.stop(nodes);
        }
        if more {
            NextAction::Again
        } else {
            NextAction::Sleep
        }
    }

    fn tick(&mut self, now: Timestamp, turn: &mut Turn) {
        let state = self.engine.state();
        let due = self.next_due(now);
        self.due = due;
        if due.is_some_and(|at| at <= now) {
            let age = state.config.as_ref().map_or(0, |c| c.min_job_age_s);
            let accounted = self.accounted.covers(now, u64::from(age));
            // Purges keep up with the jobs that end, and take no more of a turn than its other events.
            let mut most = turn.events.len();
            let more = loop {
                self.engine
                    .decide(0, &Command::Tick { accounted }, now, turn);
                let more = accounted && self.engine.state().purge_is_due(now);
                if !more || most < PURGE_MAX {
                    break more;
                }
                most -= PURGE_MAX;
            };
            self.due = match more {
                true => Some(now),
                false => self.engine.state().next_tick(now),
            };
        }
    }

    fn take(&mut self, message: ToWriter, now: Timestamp, work: &mut Work) {
        self.retry.mark(work);
        let Work { turn, out, .. } = work;
        match message {
            ToWriter::User {
                identity,
                command,
                reply,
            } => {
                let audit = reply.entry(self.engine.state(), &identity, &command);
                let begin = turn.events.len();
                out.users.push(Decided {
                    command: Command::User(identity, *command),
                    to: reply,
                    reply: None,
                    events: begin..begin,
                    audit,
                });
                let decided = out.users.last_mut().expect("it was pushed just now");
                let reply = self.user(&decided.command, &decided.to, now, turn);
                decided.events.end = turn.events.len();
                decided.reply = Some(reply);
            }
            ToWriter::NodeHello {
                hello,
                link,
                answer,
            } => {
                self.hello(*hello, link, answer, now, work);
            }
            ToWriter::Reports {
                node,
                generation,
                reports,
            } => {
                if self.is_current(node, generation) {
                    work.reports = Some(NodeReports {
                        node,
                        generation,
                        left: reports.into_iter(),
                        cost: 0,
                    });
                    self.reports(now, work);
                }
            }
            ToWriter::Health {
                node,
                load_centi,
                free_mib,
            } => {
                self.engine.take_note(
                    DisplayUpdate::Health {
                        node,
                        load_centi,
                        free_mib,
                    },
                    turn,
                );
            }
            ToWriter::NodeConfiguration {
                node,
                generation,
                error,
            } => {
                if self.is_current(node, generation) {
                    let command = Command::Node(node, NodeCommand::Configuration { error });
                    self.engine.decide(0, &command, now, turn);
                }
            }
            ToWriter::NodeLost { node, generation } => {
                if self.is_current(node, generation) {
                    self.links.remove(&node);
                    self.generations.remove(&node);
                    self.engine
                        .decide(0, &Command::Node(node, NodeCommand::Lost), now, turn);
                }
            }
            ToWriter::Configure {
                config,
                settings,
                keep,
                done,
            } => {
                work.stage = Stage::Configuration;
                let network = config.topologies.iter().find(|t| t.cluster_default);
                self.places = network.map(Topology::addresses).unwrap_or_default();
                self.settings = (*settings).clone();
                let new = out.config.insert(NewConfig {
                    config,
                    settings,
                    keep,
                });
                let command = Command::Configure {
                    config: Arc::clone(&new.config),
                    keep: new.keep,
                };
                self.engine.decide(0, &command, now, turn);
                self.miss_nodes(now, turn);
                self.settings.cpu_bind = binding::defaults(self.engine.state());
                self.send_settings();
                out.configured.extend(done);
                work.stage = Stage::Messages;
            }
            ToWriter::PrologEnded { job, attempt, well } => {
                out.prologs.push(PrologResult { job, attempt, well });
                let command = Command::PrologEnded { job, attempt, well };
                self.engine.decide(0, &command, now, turn);
            }
            ToWriter::Trigger(report) => {
                out.triggers.push(report);
                self.engine.decide(0, &Command::Trigger(report), now, turn);
            }
            ToWriter::StartSnapshot { position, answer } => {
                let writer = self.log.start_snapshot(position);
                if let Err(e) = &writer {
                    warn!("no snapshot of the state is written now: {e}");
                }
                let _ = answer.send(writer.ok());
            }
            ToWriter::FinishSnapshot(snapshot) => {
                if let Err(e) = self.log.finish_snapshot(snapshot) {
                    warn!("old journal segments stay for now: {e}");
                }
            }
            ToWriter::Stop { .. } => unreachable!("a stop is handled by the turn itself"),
        }
    }

    fn user(&mut self, whole: &Command, to: &ReplyTo, now: Timestamp, turn: &mut Turn) -> Reply {
        let Command::User(identity, command) = whole else {
            return Reply::Refused(RefusalCode::ProtocolError.into());
        };
        fault::on_command("decide", whole);
        if let Some(refusal) = self.too_large(command) {
            return Reply::Refused(refusal);
        }
        if let UserCommand::Submit { spec, .. } = command
            && spec.immediate_s.is_some()
        {
            let state = self.engine.state();
            let starts =
                muster_core::decide::prospective_job(state, identity, spec, now).and_then(|job| {
                    muster_core::decide::check_immediate(state, &job, now)?;
                    self.engine.scheduler().starts_now(state, &job.spec, now)
                });
            if let Err(refusal) = starts {
                return Reply::Refused(refusal);
            }
        }
        if let UserCommand::SubmitHet { specs, .. } = command
            && let Err(refusal) = self.check_het(identity, specs, now)
        {
            return Reply::Refused(refusal);
        }
        let before = turn.replies.len();
        let binds = binding::may_change(command);
        let kept = room::kept(self.engine.state(), identity, command, to.because_of());
        let reserve = &self.reserve;
        let accepts = |events: &[_]| room::check(reserve, kept, events);
        self.engine.decide_if(0, whole, now, turn, accepts);
        fault::on_command("apply", whole);
        if binds {
            self.publish_bindings();
        }
        match turn.replies.drain(before..).next() {
            Some((_, reply)) => reply,
            None => Reply::Done {
                changed: 0,
                refused: Vec::new(),
            },
        }
    }

    /// Makes the turn durable. While the disk is full nothing is answered and nothing is lost: the turn waits.
    fn commit(&mut self, turn: &Turn) -> Commit {
        if turn.events.is_empty() {
            return Commit::Durable;
        }
        self.batch.clear();
        for event in &turn.events {
            self.batch.push_with(|bytes| {
                minicbor::encode(event, bytes).expect("writing to memory cannot fail");
            });
        }
        match self.log.append(&self.batch) {
            Ok(_) => {
                if std::mem::replace(&mut self.reported_full, false) {
                    info!("the journal can be written again");
                }
            }
            Err(e) if e.is_temporary() => {
                if !std::mem::replace(&mut self.reported_full, true) {
                    error!("{e}. Nothing is acknowledged until then; running jobs go on.");
                }
                return Commit::Full;
            }
            Err(Error::TooLarge { index, len, max }) => {
                let why = format!("its record would have {len} bytes; the limit is {max}");
                return Commit::Refused(index, why);
            }
            Err(e) => return Commit::Failed(format!("the journal cannot be written: {e}")),
        }
        self.stats.commits.fetch_add(1, Relaxed);
        self.stats
            .events
            .fetch_add(turn.events.len() as u64, Relaxed);
        Commit::Durable
    }

    fn send(&mut self, turn: Turn, out: Outbox) {
        joining::follow(self, &turn.events);
        let orders = turn.effects;
        if !turn.events.is_empty() || !turn.notes.is_empty() {
            let first = self.log.last_position() + 1 - turn.events.len() as Position;
            let bytes = match turn.events.is_empty() {
                true => 0,
                false => self.batch.bytes() as u64,
            };
            self.replica
                .batch(first, bytes, turn.events, turn.notes, &self.pulse);
            self.stats.set_durable(self.log.last_position());
        }
        // From here on the turn is durable and every later read sees it.
        for decided in out.users {
            decided.answer(&self.stats);
        }
        for done in out.configured {
            let _ = done.send(());
        }
        for NewLink {
            node,
            link,
            welcome,
            settings,
            answer,
        } in out.welcomes
        {
            let _ = link.send.send(ToLink::Welcome(welcome, settings));
            if let Some(old) = self.links.insert(node, link) {
                let _ = old.send.send(ToLink::Replaced);
            }
            let _ = answer.send(Ok(node));
        }
        for ReportAck {
            node,
            generation,
            seq,
        } in out.acks
        {
            let link = self.links.get(&node);
            if let Some(link) = link.filter(|link| link.generation == generation) {
                let _ = link.send.send(ToLink::Ack(seq));
            }
        }
        let registered = out.registered.iter().flat_map(|(node, present)| {
            let repeated = caught(|| self.engine.state().orders_for_node(*node, present));
            repeated.unwrap_or_else(|Panicked(why)| {
                error!("node {} gets no orders now: {why}", node.0);
                Vec::new()
            })
        });
        let mut effects = registered.chain(orders);
        // An order that cannot be put together is left out; the turn that it follows from is durable.
        while let Err(Panicked(why)) = caught(|| {
            let mut grants = Grants::default();
            for effect in effects.by_ref() {
                self.order(effect, &mut grants);
            }
        }) {
            error!("an order is not sent: {why}");
        }
    }
}

/// The next action after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Nothing until a message or [`Writer::next_tick`].
    Sleep,
    /// Another turn at once: work was left.
    Again,
    /// The disk is full: another turn when there may be space.
    Full,
    /// The end: it was stopped, or the journal cannot be trusted any more.
    Stop,
}

/// Tells the time since some moment.
pub type Stopwatch = Box<dyn Fn() -> Duration + Send>;

/// Gives the state as of the last commit, if it can be had.
pub type Rebuild = Box<dyn FnMut() -> Option<State> + Send>;

enum Commit {
    Durable,
    /// Nothing was written; it may work later.
    Full,
    /// Nothing was written, and this record never will be.
    Refused(usize, String),
    Failed(String),
}

/// Why a turn cannot be completed.
enum Failure {
    Panic(Panicked),
    /// The journal does not take the record of this event.
    Record(usize, String),
    /// The disk has no room for a turn of this size.
    NoRoom,
}

/// The part of a turn that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Messages are decided.
    #[default]
    Messages,
    /// One of them is a configuration.
    Configuration,
    /// Due decisions, and the plan.
    Time,
}

/// A turn's results until they are durable.
#[derive(Default)]
struct Work {
    turn: Turn,
    out: Outbox,
    stop: Option<bool>,
    stage: Stage,
    /// Events of the turn when the present message was taken.
    mark: usize,
    /// Messages that it may still take.
    room: usize,
    /// Reports of a message that are not decided yet.
    reports: Option<NodeReports>,
    /// The one that is being decided.
    report: Option<Command>,
}

/// The cluster's name.
pub fn cluster_name(state: &State) -> String {
    state
        .config
        .as_ref()
        .map(|c| c.cluster_name.clone())
        .unwrap_or_default()
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
