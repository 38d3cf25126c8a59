//! The controller's turns: what goes in, what comes out, and the crashes in between.

use super::{Outcome, World, WorldEvent, trace};
use crate::classes::FaultClass;
use crate::controller::Controller;
use crate::outlets::Thread;
use crate::outlets::{Came, Outputs, PLANNED, collect, lock, name_of};
use crate::random::Random;
use crate::world::faults::CrashPoint;
use crate::world::invariants;
use crate::{Plant, Violation};
use muster_core::event::Event;
use muster_ctld::mail::{ToLink, ToWriter};
use muster_ctld::writer::NextAction;
use muster_journal::{Crash, FinishedSnapshot, Position, SnapshotWriter};
use muster_model::command::KeptPartitions;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

/// Longest sleep of the simulated controller, milliseconds. The real one looks more often; nothing depends on it.
const IDLE_MS: u64 = 5_000;
/// Turns at one moment that take no message and make no event: more is a spin.
const IDLE_TURNS_MAX: u32 = 50;

/// A turn whose events are in the journal.
pub(crate) struct Committed {
    outputs: Outputs,
    after: NextAction,
    crash: Option<CrashPoint>,
    is_durable: bool,
}

/// A snapshot of the state on its way to the disk.
pub(crate) enum Snapshot {
    /// The writer was asked.
    Asked {
        answer: std::sync::mpsc::Receiver<Option<SnapshotWriter>>,
        bytes: Vec<u8>,
    },
    /// Written; waits until accounting has all that the log may forget.
    Written { writer: SnapshotWriter },
    /// Durable; the writer will be notified.
    Reported,
}

/// The controller's process, with the world around it.
pub(super) struct ControllerExecutor<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// The controller's process, with the world around it.
    pub(super) fn controller_process(&mut self) -> ControllerExecutor<'_> {
        ControllerExecutor { world: self }
    }
}

impl ControllerExecutor<'_> {
    /// Starts the controller on the content of the disk and compares the recovered state with history.
    pub(crate) fn restart(&mut self) -> Outcome {
        if self.world.controller.is_some() {
            return Ok(());
        }
        let started = catch_unwind(AssertUnwindSafe(|| {
            Controller::start(
                &self.world.storage,
                self.world.options.plant,
                self.world.accounted,
            )
        }))
        .map_err(|cause| Violation::new("invariant_nothing_panics", panic_text(&*cause)))?;
        let controller = match started {
            Ok(controller) => controller,
            Err(e) if self.world.faults.disk_is_broken() => {
                trace!(self.world, "controller cannot start: {e:#}");
                self.world.storage = self.world.storage.crash(Crash::Process);
                self.world.later(1000, WorldEvent::Restart);
                return Ok(());
            }
            Err(e) => {
                return Err(Violation::new(
                    "invariant_a_journal_opens",
                    format!("{e:#}"),
                ));
            }
        };
        self.world.life += 1;
        let position = controller.replica_at;
        let jobs = controller.writer.state().jobs.len();
        trace!(
            self.world,
            "controller life {} starts at event {position}, {jobs} jobs", self.world.life
        );
        self.world.controller = Some(controller);
        self.world.controller_clock().start_clock();
        self.world.faults.able_since = self.world.now;
        self.world.faults.operation_fails = false;
        let doubt = std::mem::take(&mut self.world.doubt);
        self.world.ledger.accounted = self.world.accounted;
        if position == self.world.ledger.position + doubt.len() as Position {
            // The batch that was being written is there: then all of it is.
            for (position, event) in (self.world.ledger.position + 1..).zip(&doubt) {
                trace!(
                    self.world,
                    "  event {position} {} (was in doubt)",
                    brief(event)
                );
                let times = (self.world.now, self.world.decided_ms);
                self.world.ledger.take(times, position, event)?;
            }
        }
        self.world.ledger.limit_ends.clear();
        self.world.snapshot = None;
        invariants::invariant_no_acknowledged_job_is_lost(self.world)?;
        invariants::invariant_recovery_keeps_history(self.world)?;
        invariants::after_events(self.world)?;
        let (config, settings) = (
            self.world.config.clone(),
            Box::new(self.world.settings.clone()),
        );
        self.mail(ToWriter::Configure {
            config,
            settings,
            keep: KeptPartitions::All,
            done: None,
        });
        Ok(())
    }

    /// Puts a message into the writer's queue and wakes it.
    pub(crate) fn mail(&mut self, message: ToWriter) {
        let Some(controller) = &mut self.world.controller else {
            return;
        };
        controller.inbox.push_back(message);
        let delay = self.world.random.below(4);
        self.turn_in(delay);
    }

    pub(crate) fn turn_in(&mut self, delay: u64) {
        let at = self.world.now + delay;
        if self
            .world
            .turn_at
            .is_none_or(|before| at < before || before < self.world.now)
        {
            self.world.turn_at = Some(at);
            let life = self.world.life;
            self.world.later(delay, WorldEvent::Turn { life });
        }
    }

    pub(crate) fn turn(&mut self, life: u64) -> Outcome {
        if life != self.world.life || self.world.turn_at != Some(self.world.now) {
            return Ok(());
        }
        self.world.turn_at = None;
        if self.world.faults.busy || self.world.faults.writer_ended {
            return Ok(());
        }
        self.world.controller_clock().follow_clock();
        let clock = match self.world.planted(Plant::WallClock) {
            true => self.world.wall(),
            false => self.world.clock(),
        };
        let Some(controller) = &mut self.world.controller else {
            return Ok(());
        };
        self.world.turns += 1;
        let count = draw_message_count(&mut self.world.random, controller.inbox.len());
        let messages: Vec<ToWriter> = controller.inbox.drain(..count).collect();
        let crash = self.world.faults.crash.take();
        if let Some(CrashPoint::InAppend { operation, .. }) = crash {
            self.world.storage.halt_at(operation);
        }
        // A turn that waits for space on the disk was decided before.
        if !self.world.faults.blocked {
            self.world.decided_ms = self.world.now;
        }
        lock(&controller.watch).panics = self.world.faults.panic.take();
        let writer = &mut controller.writer;
        let after = catch_unwind(AssertUnwindSafe(|| {
            writer.turn(messages.into_iter(), clock)
        }));
        let came = collect(&controller.watch);
        let panics = lock(&controller.watch).panics.take();
        let after = match after {
            Ok(after) => after,
            Err(cause) if panic_text(&*cause) == PLANNED => {
                self.world.faults.crash = crash;
                return self.panicked(came);
            }
            Err(cause) => {
                return Err(Violation::new(
                    "invariant_nothing_panics",
                    panic_text(&*cause),
                ));
            }
        };
        self.world.faults.panic = panics;
        self.world.faults.blocked = after == NextAction::Full;
        // After a panic each turn takes one of the messages that were there, which may all be refused.
        let answered = !(came.outputs.replies.is_empty() && came.outputs.answers.is_empty());
        let idle = count == 0 && came.durable.is_empty() && !answered;
        controller.idle_turns = if idle { controller.idle_turns + 1 } else { 0 };
        if controller.idle_turns > IDLE_TURNS_MAX {
            return Err(Violation::new(
                "invariant_the_writer_sleeps",
                format!("{} turns at one moment did nothing", controller.idle_turns),
            ));
        }
        let is_durable = !came.durable.is_empty();
        let outputs = self.take_durable(came)?;
        let turn = Committed {
            outputs,
            after,
            crash,
            is_durable,
        };
        match self.world.fault_injector().sync_time() {
            time if time > 0 && is_durable => {
                trace!(self.world, "  the sync takes {time} ms");
                self.world.faults.busy = true;
                let turn = Box::new(turn);
                self.world.later(time, WorldEvent::Synced { life, turn });
                Ok(())
            }
            _ => self.committed(turn),
        }
    }

    /// Durable events go into history; the rest has yet to leave.
    fn take_durable(&mut self, came: Came) -> Result<Outputs, Violation> {
        if let Some(what) = came.early {
            return Err(Violation::new(
                "invariant_nothing_leaves_before_it_is_durable",
                format!("{what} left the writer before its events were durable"),
            ));
        }
        if let Some(what) = came.unreadable {
            return Err(Violation::new("invariant_events_can_be_read_back", what));
        }
        self.world.doubt = came.doubt;
        for (position, event) in &came.durable {
            trace!(self.world, "  event {position} {}", brief(event));
            self.world.ledger.accounted = self.world.accounted;
            let times = (self.world.now, self.world.decided_ms);
            self.world.ledger.take(times, *position, event)?;
        }
        let ends = std::mem::take(&mut self.world.ledger.limit_ends);
        ends.iter()
            .try_for_each(|end| invariants::invariant_limits_are_not_early(self.world, end))?;
        Ok(came.outputs)
    }

    /// The writer's thread panicked in a turn, as it was meant to.
    fn panicked(&mut self, came: Came) -> Outcome {
        let thread = match came.durable.is_empty() {
            true => Thread::WriterBeforeCommit,
            false => Thread::WriterAfterCommit,
        };
        self.take_durable(came)?;
        self.world.fault_injector().writer_panicked(thread);
        Ok(())
    }

    /// A sync that took its time is over.
    pub(crate) fn synced(&mut self, life: u64, turn: Committed) -> Outcome {
        if life != self.world.life || self.world.controller.is_none() {
            return Ok(());
        }
        self.world.faults.busy = false;
        self.world.faults.able_since = self.world.now;
        self.committed(turn)
    }

    /// The turn is durable: all may know.
    fn committed(&mut self, turn: Committed) -> Outcome {
        let Committed {
            mut outputs,
            after,
            crash,
            is_durable,
        } = turn;
        if let Some(controller) = &mut self.world.controller {
            controller.follow(&outputs.replica);
        }
        if is_durable && after != NextAction::Full {
            invariants::after_events(self.world)?;
        }
        match crash {
            None => {}
            Some(point) if after != NextAction::Stop && !is_durable => {
                self.world.faults.crash = Some(point);
            }
            Some(point) => {
                self.crash_with(point, &mut outputs);
                self.send_out(outputs)?;
                return Ok(());
            }
        }
        self.send_out(outputs)?;
        self.next_turn(after)
    }

    fn next_turn(&mut self, after: NextAction) -> Outcome {
        let clock = match self.world.planted(Plant::WallClock) {
            true => self.world.wall(),
            false => self.world.clock(),
        };
        let Some(controller) = &mut self.world.controller else {
            return Ok(());
        };
        if after != NextAction::Stop && !controller.inbox.is_empty() {
            self.turn_in(1);
            return Ok(());
        }
        match after {
            NextAction::Again => self.turn_in(1),
            NextAction::Full => {
                controller.idle_turns = 0;
                self.turn_in(200);
            }
            NextAction::Stop => {
                if !self.world.faults.storage_may_fail() && !self.world.faults.operation_fails {
                    let why = controller
                        .writer
                        .fatal
                        .as_deref()
                        .unwrap_or("nothing failed");
                    return Err(Violation::new(
                        "invariant_only_storage_stops_the_controller",
                        format!("the controller stops, and its storage works: {why}"),
                    ));
                }
                trace!(self.world, "controller stops: its journal failed");
                self.world.faults.writer_ended = true;
                self.world.fault_injector().thread_ends();
            }
            NextAction::Sleep => {
                let wait = controller.writer.next_tick(clock).as_millis();
                let wait = u64::try_from(wait).unwrap_or(IDLE_MS);
                // The real one sleeps half a second at most; with nothing due that is stretched.
                let wait = if wait == 500 { IDLE_MS } else { wait };
                if wait > 0 {
                    controller.idle_turns = 0;
                }
                self.turn_in(wait.min(IDLE_MS));
            }
        }
        Ok(())
    }

    /// Messages that had left the process when it died: of each channel a beginning.
    fn crash_with(&mut self, point: CrashPoint, outputs: &mut Outputs) {
        trace!(self.world, "controller crashes: {point:?}");
        let random = &mut self.world.random;
        match point {
            CrashPoint::AfterAppend { .. } => *outputs = Outputs::default(),
            CrashPoint::BetweenReplies { .. } => {
                outputs.replies.retain(|_| random.one_in(2));
                let mut open = BTreeMap::new();
                outputs.links.retain(|(conn, _)| {
                    let open = open.entry(*conn).or_insert(true);
                    *open &= !random.one_in(3);
                    *open
                });
            }
            CrashPoint::InAppend { .. } => {}
        }
        outputs.closed.clear();
        self.die(point.kind());
    }

    /// The controller's process, or its machine, dies.
    pub(crate) fn die(&mut self, crash: Crash) {
        // First the disk: what the dying process tidies up must not reach it.
        let survived = self.world.storage.crash(crash);
        self.world.controller = None;
        self.world.snapshot = None;
        self.world.turn_at = None;
        self.world.storage = survived;
        self.world.faults.busy = false;
        self.world.faults.writer_ended = false;
        self.world.faults.blocked = false;
        self.world.faults.panic = None;
        self.world.steady = None;
        if crash != Crash::Process {
            self.world.controller_clock().clocks_are_lost();
        }
        for lost in self.world.clients.lose_requests() {
            let delay = self.world.chaos.between(100, 20_000);
            if self.world.has(FaultClass::DyingThreads) {
                let lost = Box::new(lost);
                self.world.later(delay, WorldEvent::Retry { lost });
            }
        }
        let conns: Vec<_> = self.world.connections.keys().copied().collect();
        for conn in conns {
            self.world.network().controller_end_is_gone(conn);
        }
        let delay = self.world.random.between(50, 20_000);
        self.world.later(delay, WorldEvent::Restart);
    }

    /// Routes what the writer sent.
    fn send_out(&mut self, outputs: Outputs) -> Outcome {
        for (conn, answer) in outputs.answers {
            self.world.network().hello_is_answered(conn, answer);
        }
        let mut links: BTreeMap<_, Vec<ToLink>> = BTreeMap::new();
        for (conn, message) in outputs.links {
            if let ToLink::Order(order, _) = &message {
                invariants::invariant_orders_rest_on_durable_events(self.world, order)?;
            }
            trace!(self.world, "  to connection {conn}: {}", name_of(&message));
            links.entry(conn).or_default().push(message);
        }
        for (conn, messages) in links {
            self.world.network().send_to_agent(conn, messages);
        }
        for conn in outputs.closed {
            self.world.network().ctld_lets_go(conn);
        }
        for (id, reply) in outputs.replies {
            invariants::invariant_a_reply_is_visible_to_reads(self.world, &reply)?;
            let delay = self.world.latency();
            self.world.later(
                delay,
                WorldEvent::Answer {
                    id,
                    reply: Box::new(reply),
                },
            );
        }
        Ok(())
    }

    /// Accounting follows the replica, slowly or not at all.
    pub(crate) fn accounting_goes_on(&mut self) -> Outcome {
        invariants::invariant_running_jobs_are_known_to_their_nodes(self.world)?;
        invariants::invariant_stopped_scripts_stand_still(self.world)?;
        invariants::invariant_nothing_is_held_by_nothing(self.world)?;
        invariants::invariant_resumed_scripts_go_on(self.world)?;
        invariants::invariant_memory_is_bounded(self.world)?;
        invariants::invariant_requests_are_answered(self.world)?;
        invariants::invariant_limits_are_enforced(self.world)?;
        let random = &mut self.world.random;
        if self.world.now >= self.world.faults.accounting_stalls_until
            && let Some(controller) = &self.world.controller
        {
            let reached: Position = controller.replica_at.min(self.world.ledger.position);
            if reached > self.world.accounted {
                self.world.accounted += random.between(1, reached - self.world.accounted);
            }
            controller.stored.store(self.world.accounted, Relaxed);
        }
        let delay = self.world.random.around(700);
        self.world.later(delay, WorldEvent::Accounting);
        Ok(())
    }

    /// Work of the replica's snapshot thread, a step at a time.
    pub(crate) fn think_of_a_snapshot(&mut self) -> Outcome {
        let delay = self.world.random.around(8_000);
        self.world.later(delay, WorldEvent::Snapshot);
        let Some(controller) = &mut self.world.controller else {
            return Ok(());
        };
        match self.world.snapshot.take() {
            None => {
                let position = controller.replica_at;
                let mut bytes = Vec::new();
                let replica = controller.replica();
                replica.encode_snapshot(&mut bytes);
                invariants::invariant_a_snapshot_is_the_state(&replica, &bytes)?;
                drop(replica);
                let (sender, answer) = std::sync::mpsc::channel();
                self.world.snapshot = Some(Snapshot::Asked { answer, bytes });
                self.mail(ToWriter::StartSnapshot {
                    position,
                    answer: sender,
                });
            }
            Some(Snapshot::Asked { answer, bytes }) => match answer.try_recv() {
                Ok(Some(mut writer)) => {
                    let written = writer.write_all(&bytes).is_ok();
                    self.world.snapshot = written.then_some(Snapshot::Written { writer });
                }
                Ok(None) | Err(std::sync::mpsc::TryRecvError::Disconnected) => {}
                Err(std::sync::mpsc::TryRecvError::Empty) => {
                    self.world.snapshot = Some(Snapshot::Asked { answer, bytes });
                }
            },
            Some(Snapshot::Written { writer }) => {
                if writer.position() > self.world.accounted {
                    self.world.snapshot = Some(Snapshot::Written { writer });
                } else {
                    let position = writer.position();
                    let finished: Option<FinishedSnapshot> = writer.finish().ok();
                    if let Some(finished) = finished {
                        trace!(self.world, "snapshot at event {position}");
                        self.mail(ToWriter::FinishSnapshot(finished));
                        self.world.snapshot = Some(Snapshot::Reported);
                    }
                }
            }
            Some(Snapshot::Reported) => {}
        }
        Ok(())
    }
}

/// Text of a panic.
pub(crate) fn panic_text(cause: &(dyn std::any::Any + Send)) -> String {
    cause
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without text".to_owned())
}

/// An event in a line of the trace.
fn brief(event: &Event) -> String {
    match event {
        Event::Configured { .. } => "Configured".to_owned(),
        Event::BlobStored { id, .. } => format!("BlobStored {id:?}"),
        Event::JobSubmitted { id, spec, .. } => format!("JobSubmitted {id} {}", spec.name),
        Event::JobStarted {
            id, attempt, alloc, ..
        } => {
            format!("JobStarted {id}/{} on {}", attempt.0, alloc.hostlist)
        }
        Event::NodeRegistered { node, info, .. } => {
            format!("NodeRegistered {} boot {}", node.0, info.boot_id)
        }
        other => {
            let text = format!("{other:?}");
            // A user's text may have letters of several bytes.
            text.chars().take(160).collect()
        }
    }
}

/// Number of the waiting messages that a turn takes: mostly all; sometimes fewer, so that every message can meet the
/// end of a turn.
fn draw_message_count(random: &mut Random, waiting: usize) -> usize {
    match random.below(4) {
        0 => waiting.min(1),
        1 => random.below(waiting as u64 + 1) as usize,
        _ => waiting,
    }
}
