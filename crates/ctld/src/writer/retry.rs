//! Turns that fail. Where a decision panics and has changed nothing, its command is refused and the turn goes on. Where
//! the state may be half changed, or the journal does not take the turn, the whole turn is abandoned: none of its
//! commands was acknowledged. The state is rebuilt as of the last commit, all agents connect again and repeat their
//! unacknowledged reports, as after a restart; then the commands are decided again, one in a turn, without the culprit,
//! which is refused and kept in quarantine.

use super::{Decided, Failure, NewConfig, Outbox, Rebuild, Stage, Work, Writer};
use crate::failure::{Panicked, caught};
use crate::fault;
use crate::mail::{ToLink, ToWriter};
use crate::writer::NextAction;
use log::{error, info, warn};
use muster_core::event::Event;
use muster_model::command::{Command, NodeCommand, Reply, UserCommand};
use muster_model::ids::{Attempt, JobId, NodeIdx};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_sched::engine::Engine;
use std::time::Instant;

/// End of the controller's prolog of a job.
pub(super) struct PrologResult {
    pub(super) job: JobId,
    pub(super) attempt: Attempt,
    pub(super) well: bool,
}

/// Reports of a node that are durable once the turn is.
pub(super) struct ReportAck {
    pub(super) node: NodeIdx,
    /// The connection by which they came.
    pub(super) generation: u64,
    /// The last of them.
    pub(super) seq: u64,
}

impl Outbox {
    /// Notes up to which report a node's are durable with the turn.
    pub(super) fn acknowledge(&mut self, ack: ReportAck) {
        let same =
            |last: &&mut ReportAck| (last.node, last.generation) == (ack.node, ack.generation);
        match self.acks.last_mut().filter(same) {
            Some(last) => last.seq = ack.seq,
            None => self.acks.push(ack),
        }
    }
}

/// Turns that may fail one after another, for no known reason, before the process ends.
const FAILURES_MAX: u32 = 3;
/// Reports that are not decided any more because they made turns fail.
const POISON_MAX: usize = 64;
/// Bytes of a turn above which it does not block the others when there is no room for it.
const OVERSIZED: usize = 1 << 20;
/// Bytes of a command's events above which it is refused when its turn has no room.
const LARGE: usize = 16 << 10;
/// Room in a journal record beside the script or environment that it holds.
const RECORD_MARGIN: u64 = 64 << 10;

/// The record of failed turns.
#[derive(Default)]
pub(super) struct Retry {
    pub(super) rebuild: Option<Rebuild>,
    /// Turns that take one message at most, until all messages of the failed turn are decided.
    careful: usize,
    /// The next turn takes no message at all.
    alone: bool,
    /// Turns that failed without a culprit since the last that did not fail.
    failures: u32,
    poison: Vec<(NodeIdx, NodeCommand)>,
    /// Jobs that were cancelled because turns failed over them.
    cancelled: Vec<JobId>,
    /// Nodes that are not connected since the state was rebuilt are still to be taken for lost.
    pub(super) nodes_are_missed: bool,
}

/// The cause of a failed turn.
#[derive(Debug, PartialEq)]
pub(super) enum Culprit {
    /// Commands of users, by their place in the turn.
    Users(Vec<usize>),
    /// A report of a node.
    Report,
    /// A job, when it was its time or its start was committed.
    Job(JobId),
    /// A new configuration.
    Configuration,
    /// Nobody knows.
    Unknown,
}

impl Retry {
    /// Messages that the next turn may take.
    pub(super) fn room(&mut self) -> usize {
        match (std::mem::take(&mut self.alone), self.careful) {
            (true, _) => 0,
            (false, 0) => usize::MAX,
            (false, _) => 1,
        }
    }

    /// Whether messages of a failed turn are still to be decided.
    pub(super) fn is_careful(&self) -> bool {
        self.careful > 0
    }

    /// A turn was committed.
    pub(super) fn succeeded(&mut self) {
        self.careful = self.careful.saturating_sub(1);
        self.failures = 0;
    }

    /// Another message is decided.
    pub(super) fn mark(&self, work: &mut Work) {
        work.mark = work.turn.events.len();
        work.report = None;
    }

    /// Whether a report made a turn fail before. Asked for every report, so nothing is compared as long as none did.
    pub(super) fn is_poison(&self, node: NodeIdx, command: &NodeCommand) -> bool {
        let same = |(of, known): &(NodeIdx, NodeCommand)| *of == node && known == command;
        !self.poison.is_empty() && self.poison.iter().any(same)
    }
}

impl Writer {
    /// Refuses the current command, if its panic changed nothing; false if the turn must be abandoned.
    pub(super) fn refuse_current(
        &mut self,
        Panicked(why): &Panicked,
        now: Timestamp,
        work: &mut Work,
    ) -> bool {
        if work.stage != Stage::Messages || work.turn.events.len() != work.mark {
            return false;
        }
        match (work.out.users.last_mut(), &work.report) {
            (Some(decided), None) if decided.reply.is_none() => {
                let at = keep(&mut self.quarantine, &decided.command, why, now);
                error!(
                    "{}: {why}; it is refused and kept in {at}",
                    name(&decided.command)
                );
                decided.reply = Some(refused());
                true
            }
            (_, Some(command)) => {
                let at = keep(&mut self.quarantine, command, why, now);
                error!("{}: {why}; it is left out and kept in {at}", name(command));
                true
            }
            _ => false,
        }
    }

    /// Gives up a turn that cannot be completed, and has its commands decided again.
    pub(super) fn abandon(
        &mut self,
        mut work: Work,
        failure: Failure,
        now: Timestamp,
    ) -> NextAction {
        self.pulse
            .begin_activity(crate::watchdog::ThreadActivity::Rebuilding);
        let begun = Instant::now();
        let culprit = self.culprit(&work, &failure);
        let why = match failure {
            Failure::Panic(Panicked(text)) => text,
            Failure::Record(_, text) => text,
            Failure::NoRoom => "there is no room on the disk for what it writes".to_owned(),
        };
        error!(
            "a turn of {} events is abandoned: {why}",
            work.turn.events.len()
        );
        if self.retry.rebuild.is_none() {
            // Nobody can give the state back: what the caller made of a panic before, it does now.
            self.fatal = Some(format!("{why}, and the state cannot be rebuilt"));
            return NextAction::Stop;
        }
        if let Some(fatal) = self.judge(&culprit, &mut work, &why, now) {
            self.fatal = Some(fatal);
            return NextAction::Stop;
        }
        let state = self.retry.rebuild.as_mut().and_then(|rebuild| rebuild());
        let Some(state) = state else {
            self.fatal = Some(format!("{why}, and the state cannot be rebuilt"));
            return NextAction::Stop;
        };
        self.engine = Engine::new(state);
        self.due = None;
        self.drop_links();
        self.again(work, culprit);
        info!(
            "the state was rebuilt in {} ms",
            begun.elapsed().as_millis()
        );
        NextAction::Again
    }

    /// Every agent connects again, and repeats its unacknowledged reports.
    fn drop_links(&mut self) {
        for (_, link) in self.links.drain() {
            let _ = link.send.send(ToLink::Replaced);
        }
        self.generations.clear();
        self.retry.nodes_are_missed = true;
    }

    /// Queues the messages of a failed turn before all others.
    fn again(&mut self, work: Work, culprit: Culprit) {
        let mut first: Vec<ToWriter> = Vec::new();
        if let Culprit::Job(job) = culprit {
            first.push(ToWriter::cancel(job, None));
        }
        if let Some(NewConfig {
            config,
            settings,
            keep,
        }) = work.out.config
            && culprit != Culprit::Configuration
        {
            let done = None;
            first.push(ToWriter::Configure {
                config,
                settings,
                keep,
                done,
            });
        }
        let prologs = work.out.prologs.into_iter();
        first.extend(prologs.map(|ended| ToWriter::PrologEnded {
            job: ended.job,
            attempt: ended.attempt,
            well: ended.well,
        }));
        first.extend(work.out.triggers.into_iter().map(ToWriter::Trigger));
        first.extend(work.out.users.into_iter().filter_map(message));
        self.retry.careful += first.len();
        // Where nobody is known to be to blame, the next turn shows whether it fails without any message.
        self.retry.alone = culprit == Culprit::Unknown;
        for message in first.into_iter().rev() {
            self.backlog.push_front(message);
        }
        if let Some(nodes) = work.stop {
            self.backlog.push_back(ToWriter::Stop { nodes });
        }
    }

    /// Answers and keeps the culprit. Returns why the process must end, if it must.
    fn judge(
        &mut self,
        culprit: &Culprit,
        work: &mut Work,
        why: &str,
        now: Timestamp,
    ) -> Option<String> {
        match culprit {
            Culprit::Users(places) => {
                for &place in places.iter().rev() {
                    let mut decided = work.out.users.remove(place);
                    let at = keep(&mut self.quarantine, &decided.command, why, now);
                    error!("{} is refused and kept in {at}", name(&decided.command));
                    decided.reply = Some(refused_for(why));
                    decided.answer(&self.stats);
                }
                None
            }
            Culprit::Report => {
                if let Some(command) = work.report.take() {
                    let at = keep(&mut self.quarantine, &command, why, now);
                    error!(
                        "{} is left out from now on and kept in {at}",
                        name(&command)
                    );
                    if let Command::Node(node, command) = command {
                        self.retry.poison.truncate(POISON_MAX - 1);
                        self.retry.poison.insert(0, (node, command));
                    }
                }
                None
            }
            Culprit::Job(job) if self.retry.cancelled.contains(job) => Some(format!(
                "job {job} cannot be cancelled either: {why}. Start the controller with --without-job={job}"
            )),
            Culprit::Job(job) => {
                error!("job {job} is cancelled: the controller cannot go on with it ({why})");
                self.retry.cancelled.push(*job);
                None
            }
            Culprit::Configuration if self.engine.state().config.is_none() => {
                Some(format!("the configuration cannot be used: {why}"))
            }
            Culprit::Configuration => {
                error!("the configuration stays as it was: {why}");
                None
            }
            Culprit::Unknown => {
                self.retry.failures += 1;
                let failures = self.retry.failures;
                warn!("no cause was identified (failure {failures} of {FAILURES_MAX})");
                (failures >= FAILURES_MAX)
                    .then(|| format!("{failures} turns failed one after another: {why}"))
            }
        }
    }

    fn culprit(&self, work: &Work, failure: &Failure) -> Culprit {
        let of_event = |index: usize| {
            let by = |index: usize| {
                let has = |decided: &Decided| decided.events.contains(&index);
                work.out.users.iter().position(has)
            };
            let all = &work.turn.events;
            let job = all.get(index).and_then(Event::job);
            // A job that was submitted in this turn is there only if its submission is decided again.
            let submitted =
                |event: &Event| matches!(event, Event::JobSubmitted { id, .. } if Some(*id) == job);
            let user = by(index).or_else(|| by(all.iter().position(submitted)?));
            match (user, job) {
                (Some(place), _) => Culprit::Users(vec![place]),
                (None, Some(job)) => Culprit::Job(job),
                (None, None) => Culprit::Unknown,
            }
        };
        match failure {
            Failure::NoRoom => Culprit::Users(self.large(work)),
            Failure::Record(index, _) => of_event(*index),
            Failure::Panic(why) => match work.stage {
                Stage::Configuration => Culprit::Configuration,
                Stage::Messages if work.report.is_some() => Culprit::Report,
                Stage::Messages => match work.out.users.last() {
                    Some(decided) if decided.reply.is_none() => {
                        Culprit::Users(vec![work.out.users.len() - 1])
                    }
                    _ => Culprit::Unknown,
                },
                Stage::Time if self.engine.is_applying() || fault::is_of_event(&why.0) => {
                    of_event(work.turn.events.len().saturating_sub(1))
                }
                // A turn with one command, after one without any did not fail.
                Stage::Time if self.retry.is_careful() && work.out.users.len() == 1 => {
                    Culprit::Users(vec![0])
                }
                Stage::Time => Culprit::Unknown,
            },
        }
    }

    /// Whether a turn without room is to be given up rather than waited for: it is large, and some command made it so.
    pub(super) fn is_oversized(&self, work: &Work) -> bool {
        self.retry.rebuild.is_some()
            && self.batch.bytes() > OVERSIZED
            && !self.large(work).is_empty()
    }

    /// Places of commands that write much.
    fn large(&self, work: &Work) -> Vec<usize> {
        let lengths: Vec<usize> = self.batch.iter().map(<[u8]>::len).collect();
        let bytes = |decided: &Decided| {
            let events = lengths.get(decided.events.clone());
            events.unwrap_or_default().iter().sum::<usize>()
        };
        let users = work.out.users.iter().enumerate();
        users
            .filter(|(_, decided)| bytes(decided) > LARGE)
            .map(|(place, _)| place)
            .collect()
    }

    /// The refusal of a command before it is decided, if a record of the journal could not hold its data.
    pub(super) fn too_large(&self, command: &UserCommand) -> Option<Refusal> {
        let blobs = match command {
            UserCommand::Submit { blobs, .. } | UserCommand::SubmitHet { blobs, .. } => blobs,
            UserCommand::SetCrontab(ask) => &ask.blobs,
            _ => return None,
        };
        let most = FRAME_BYTES_MAX as u64 - RECORD_MARGIN;
        let bytes = blobs.iter().map(|(_, bytes)| bytes.len() as u64).max()?;
        (bytes > most).then(|| {
            let detail = format!("a script or environment of {bytes} bytes; the limit is {most}");
            Refusal::new(RefusalCode::InvalidValue, detail)
        })
    }
}

fn keep(
    quarantine: &mut Option<crate::quarantine::Quarantine>,
    command: &Command,
    why: &str,
    now: Timestamp,
) -> String {
    let kept = quarantine
        .as_mut()
        .map(|q| caught(|| q.keep(command, why, now)));
    match kept {
        Some(Ok(place)) => place,
        _ => "nowhere".to_owned(),
    }
}

/// A command of a failed turn as it came.
fn message(decided: Decided) -> Option<ToWriter> {
    let Command::User(identity, command) = decided.command else {
        return None;
    };
    Some(ToWriter::User {
        identity,
        command: Box::new(command),
        reply: decided.to,
    })
}

fn refused() -> Reply {
    refused_for("it met a fault in the controller")
}

fn refused_for(why: &str) -> Reply {
    // Messages of panics may hold what other users sent; users get no more than the first line of ours.
    let detail = match why.starts_with("its record") || why.starts_with("there is no room") {
        true => why,
        false => {
            "the request met a fault in the controller and was not carried out; the administrator finds it in \
                  the log of slurmctld"
        }
    };
    let code = match why.starts_with("there is no room") {
        true => RefusalCode::StorageFull,
        false => RefusalCode::InvalidValue,
    };
    Reply::Refused(Refusal::new(code, detail))
}

/// The name of a command, for the log.
fn name(command: &Command) -> String {
    match command {
        Command::User(identity, command) => {
            let text = crate::quarantine::bounded(command, 40);
            let kind = text
                .split([' ', '(', '{'])
                .next()
                .unwrap_or_default()
                .to_owned();
            format!(
                "command {kind} of user {} (uid {})",
                identity.user, identity.uid
            )
        }
        Command::Node(node, command) => {
            let text = crate::quarantine::bounded(command, 120);
            format!("report {text} of node {}", node.0)
        }
        _ => "a request of the controller".to_owned(),
    }
}
