//! The read replica: a second copy of the state that follows the durable events and answers every read, so that no
//! reader ever makes the writer wait. It also tells waiting clients of starts and ends, derives the accounting
//! rows, and writes snapshots.
//!
//! A read sees everything that was acknowledged before it arrived: the writer hands a turn's events to this thread
//! before it answers, and what has arrived is taken before the next answer. Users take turns with their questions, so
//! that a flood of one delays only what that one asks.

use crate::answer;
use crate::changes::Changes;
use crate::failure::{Panicked, caught};
use crate::forecaster::{ForecastQuery, Forecaster};
use crate::keys::Keys;
use crate::mail::{StateCopy, ToReplica};
use crate::outbox::{Outbox, OutboxError};
use crate::programs::Programs;
use crate::snapshots::Snapshots;
use crate::stats::Stats;
use crate::waiting::Waiting;
use crate::watchdog::{ThreadActivity, ThreadHeartbeat};
use crate::webhooks::Webhooks;
use log::error;
use muster_acct::{Follower, changes};
use muster_channel::admission::FairQueue;
use muster_core::config_diff;
use muster_core::event::Event;
use muster_core::policy::access;
use muster_core::policy::access::privacy::{JobScope, hides};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::command::Identity;
use muster_model::config::ClusterConfig;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest};
use muster_model::time::Timestamp;
use muster_proto::client::{ConfigAnswer, JobFilter, Query, Response};
use muster_proto::frame;
use muster_sched::ExplanationDepth;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Messages taken between two answers at most.
const MESSAGES_MAX: usize = 4096;

/// The replica's state, and its services.
pub(crate) struct Replica {
    /// The state as of `position`.
    pub state: State,
    /// Position of the last event applied.
    pub position: Position,
    /// Messages to it.
    pub inbox: Receiver<ToReplica>,
    /// The accounting store's follower.
    pub follower: Arc<Follower>,
    /// Whether it keeps anything.
    pub accounting: bool,
    /// Secrets, for the keys of allocations.
    pub keys: Keys,
    /// Counters.
    pub stats: Arc<Stats>,
    /// `scontrol show config`.
    pub config: ConfigAnswer,
    /// When the controller started.
    pub started: Timestamp,
    /// Since when it counts.
    pub counted_since: Timestamp,
    /// Clients that wait for jobs.
    pub waiting: Waiting,
    /// Changes of late, and clients that wait for more.
    pub changes: Changes,
    /// Mails and other programs of the site.
    pub programs: Programs,
    /// Notices to addresses of the site.
    pub webhooks: Webhooks,
    /// Writes snapshots.
    pub snapshots: Snapshots,
    /// Expected starts.
    pub forecaster: Forecaster,
    /// Questions that wait.
    pub questions: FairQueue<ReplicaQuery>,
    /// The partitions, with which every listing of jobs begins.
    pub head: answer::ListingHead,
    /// Rows of the jobs that are not over, for listings.
    pub rows: answer::Rows,
    /// Its pulse for the watchdog.
    pub pulse: Arc<ThreadHeartbeat>,
}

/// A question, and where its answer goes.
pub(crate) struct ReplicaQuery {
    identity: Identity,
    query: Box<Query>,
    answer: Outbox,
    /// It has waited for expected starts, and is answered with those that are known.
    has_waited: bool,
}

impl Replica {
    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub(crate) fn run(mut self) -> Result<(), String> {
        self.write_snapshot_if_due();
        loop {
            self.pulse.rest();
            if self.questions.is_empty() {
                match self.next_message() {
                    Ok(message) => {
                        self.pulse.begin(ThreadActivity::Applying);
                        if self.take(message)?.is_break() {
                            return Ok(());
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            self.pulse.begin(ThreadActivity::Applying);
            for _ in 0..MESSAGES_MAX {
                let Ok(message) = self.inbox.try_recv() else {
                    break;
                };
                if self.take(message)?.is_break() {
                    return Ok(());
                }
            }
            self.pass_changes_on();
            let overdue = self.forecaster.overdue(Instant::now());
            self.queue_forecast_queries(overdue);
            if let Some((uid, question)) = self.questions.pop() {
                let begun = Instant::now();
                self.pulse.begin(ThreadActivity::Answering);
                self.answer(&question);
                let took = begun.elapsed().as_nanos();
                self.questions
                    .charge(uid, u64::try_from(took).unwrap_or(u64::MAX));
            }
        }
    }

    /// Waits for a message, or until clients are to have what has changed, or the expected starts that are known.
    fn next_message(&self) -> Result<ToReplica, RecvTimeoutError> {
        let now = Instant::now();
        let waits = [self.changes.due_in(now), self.forecaster.due_in(now)];
        match waits.into_iter().flatten().min() {
            Some(wait) => self.inbox.recv_timeout(wait),
            None => self.inbox.recv().map_err(RecvTimeoutError::from),
        }
    }

    /// Answers the clients that wait for changes, where it is time to.
    fn pass_changes_on(&mut self) {
        let now = Instant::now();
        if self.changes.due_in(now) != Some(Duration::ZERO) {
            return;
        }
        self.pulse.begin(ThreadActivity::Answering);
        let (changes, state) = (&mut self.changes, &self.state);
        if let Err(Panicked(why)) = caught(|| changes.pass_on(state, now)) {
            error!("dropping clients that follow changes: {why}");
            self.changes.give_up_waiting();
        }
    }

    /// Answers a query. One that panics is refused: answering changes caches of listings only, which are rebuilt.
    fn answer(&mut self, question: &ReplicaQuery) {
        let ReplicaQuery {
            identity,
            query,
            answer,
            has_waited,
        } = question;
        if answer.is_gone() {
            return;
        }
        let answered = caught(|| match &**query {
            Query::Jobs(filter) | Query::Listing(filter) if *has_waited => {
                self.list_with_starts(identity, query, filter, answer);
            }
            query => self.query(identity, query, answer),
        });
        if let Err(Panicked(why)) = answered {
            let text = crate::quarantine::bounded(query, 200);
            error!("query {text} of user {} is refused: {why}", identity.user);
            self.rows = caught(|| answer::Rows::rebuilt(&mut self.state)).unwrap_or_default();
            let detail = "the query met a fault in the controller; see the log of slurmctld";
            let refusal = Refusal::new(RefusalCode::InvalidValue, detail);
            let _ = answer.send(frame::encode(&Response::Refused(refusal)));
        }
    }

    fn take(&mut self, message: ToReplica) -> Result<ControlFlow<()>, String> {
        match message {
            ToReplica::Batch {
                first,
                bytes,
                events,
                notes,
                counted,
            } => {
                self.follow(first, &events)?;
                self.snapshots.add(events.len() as u64, bytes);
                notes.iter().for_each(|note| self.state.note(note));
                drop(counted);
                self.write_snapshot_if_due();
            }
            ToReplica::Copy { answer } => drop(answer.send(StateCopy {
                state: Box::new(self.state.clone()),
                position: self.position,
            })),
            ToReplica::Stop => return Ok(ControlFlow::Break(())),
            // The rest reads the state and changes nothing but who waits for what: a panic loses that one request.
            request => {
                if let Err(Panicked(why)) = caught(|| self.take_request(request)) {
                    error!("a request is dropped: {why}");
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn take_request(&mut self, message: ToReplica) {
        match message {
            ToReplica::Query {
                identity,
                query,
                answer,
            } => {
                let question = ReplicaQuery {
                    identity,
                    query,
                    answer,
                    has_waited: false,
                };
                self.questions.push(question.identity.uid, question);
            }
            ToReplica::Try {
                identity,
                specs,
                place,
                reply,
            } => {
                self.forecaster.try_job(identity, specs, place, reply);
            }
            ToReplica::ForecastResult(foreseen) => {
                let answered = self.forecaster.received(*foreseen);
                self.queue_forecast_queries(answered);
            }
            ToReplica::WaitStarted {
                identity,
                place,
                job,
                answer,
            } => {
                let keys = self.keys.clone();
                self.waiting
                    .wait_started(&self.state, &keys, (&identity, place), job, answer);
            }
            ToReplica::WaitEnded {
                identity,
                job,
                holder,
                answer,
            } => {
                self.waiting
                    .wait_ended(&self.state, &identity, job, holder, answer);
            }
            ToReplica::ReadState(look) => look(&self.state),
            ToReplica::WaitNodes { count, answer } => {
                self.waiting.wait_nodes(&self.state, count, answer);
            }
            ToReplica::Compare {
                cluster,
                pairs,
                answer,
            } => {
                let _ = answer.send(self.compare(&cluster, &pairs));
            }
            ToReplica::Notify { job, text, .. } => self.waiting.notify_holder(job, &text),
            ToReplica::Config(config) => self.config = *config,
            ToReplica::Programs(settings) => {
                self.webhooks.configure(settings.webhooks.clone());
                self.programs.configure(*settings);
            }
            ToReplica::Batch { .. } | ToReplica::Copy { .. } | ToReplica::Stop => {}
        }
    }

    /// Applies events and passes on what follows from them.
    ///
    /// # Errors
    /// Accounting has stopped.
    fn follow(&mut self, first: Position, events: &[Event]) -> Result<(), String> {
        let mut rows = Vec::new();
        for (position, event) in (first..).zip(events) {
            self.changes.before(&self.state, event);
            self.state.apply(event);
            self.changes.after(&self.state, position, event);
            if self.accounting {
                rows.extend(changes(&self.state, event));
            }
            self.waiting.on_event(&self.state, &self.keys, event);
            self.programs.on_event(&self.state, position, event);
            self.webhooks.on_event(&self.state, position, event);
            self.head.on_event(event);
        }
        self.rows.drop_if_lost(&self.state);
        self.programs.power_nodes(&self.state);
        if events.is_empty() {
            return Ok(());
        }
        self.position = first + events.len() as Position - 1;
        self.pulse.begin_activity(ThreadActivity::Handing);
        let sent = self.follower.send(self.position, rows);
        self.pulse.begin_activity(ThreadActivity::Applying);
        sent.map_err(|_| {
            "accounting has stopped; its rows follow from the journal at the next start".to_owned()
        })
    }

    fn compare(&self, new: &ClusterConfig, pairs: &[(String, String)]) -> Vec<String> {
        let known: HashMap<&str, &str> = self
            .config
            .pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let mut lines = Vec::new();
        for (key, value) in pairs {
            // Not settings: facts, and what follows from the number of nodes.
            const FACTS: [&str; 4] = ["BOOT_TIME", "NEXT_JOB_ID", "MaxNodeCount", "MaxDBDMsgs"];
            let old = known.get(key.as_str()).copied().unwrap_or("");
            if old != value && !FACTS.contains(&key.as_str()) {
                lines.push(format!("~ {key}: {old} -> {value}"));
            }
        }
        lines.extend(config_diff::differences(&self.state, new));
        lines
    }

    fn query(&mut self, identity: &Identity, query: &Query, out: &Outbox) {
        let mut send_part = |response: Response| out.send(frame::encode(&response));
        let send = |response: Response| drop(out.send(frame::encode(&response)));
        match query {
            Query::Jobs(filter) | Query::Listing(filter) if filter.starts => {
                if matches!(query, Query::Listing(_)) {
                    let partitions = sees_partitions(&self.state, identity);
                    let _ = out.send(frame::encode(self.head.answer(&self.state, partitions)));
                }
                // Worked out on another thread; the question waits there, not this one.
                let position = self.position;
                let asked = ForecastQuery {
                    identity: identity.clone(),
                    filter: filter.clone(),
                    out: out.clone(),
                };
                let now = Instant::now();
                let known = self.forecaster.ask(&self.state, position, asked, now);
                self.queue_forecast_queries(known.into_iter().collect());
            }
            Query::Jobs(filter) | Query::Listing(filter) => {
                self.list(identity, query, filter, out);
            }
            Query::Why { job, is_brief } => {
                let depth = match is_brief {
                    true => ExplanationDepth::Brief,
                    false => ExplanationDepth::WithChanges,
                };
                let (identity, out) = (identity.clone(), out.clone());
                self.forecaster
                    .explain(identity, *job, depth, out, Instant::now());
            }
            Query::Cluster => drop(answer::cluster(&self.state, identity, &mut send_part)),
            Query::Partitions => {
                let partitions = sees_partitions(&self.state, identity);
                drop(out.send(frame::encode(self.head.answer(&self.state, partitions))));
            }
            Query::Accounts | Query::AccountsOfClusters | Query::AccountsInUse => {
                send(answer::accounts(&self.state, identity, query));
            }
            Query::JobCounts => send(self.rows.job_counts(&mut self.state, identity)),
            Query::Priorities => answer::priorities(&self.state, identity, &mut send_part),
            Query::Triggers => send(answer::triggers(&self.state, identity)),
            Query::Crontab { uid } => send(answer::crontab(&self.state, identity, *uid)),
            Query::Reservations => send(answer::reservations(&self.state, identity)),
            Query::Changes(query) => {
                self.changes
                    .ask(&self.state, (identity, *query), out, Instant::now());
            }
            Query::Licenses => {
                let licenses = self.state.licenses(crate::clock::now());
                send(Response::Licenses(licenses));
            }
            Query::Ping => send(Response::Pong(answer::pong(&self.state, self.started))),
            Query::Config => {
                let mut config = self.config.clone();
                config.now = crate::clock::now();
                config.started = self.started;
                let next = config
                    .pairs
                    .iter_mut()
                    .find(|(key, _)| key == "NEXT_JOB_ID");
                if let Some((_, value)) = next {
                    *value = self.state.next_job_id.to_string();
                }
                send(Response::Config(Box::new(config)));
            }
            Query::Script(job) => send(answer::script(&self.state, identity, *job)),
            Query::Environment(job) => send(answer::environment(&self.state, identity, *job)),
            Query::Allocation(job) => {
                send(answer::allocation(&self.state, &self.keys, identity, *job));
            }
            Query::Differences | Query::JobClasses => send(Response::Refused(Refusal::new(
                RefusalCode::ProtocolError,
                "files are read by the connection, not by the replica",
            ))),
            Query::Accounting(_)
            | Query::JobText(_)
            | Query::ReservationTimes(_)
            | Query::Usage(_)
            | Query::NodeEvents(_)
            | Query::Storage
            | Query::KnownClusters
            | Query::Transactions(_) => {
                send(Response::Refused(Refusal::new(
                    RefusalCode::ProtocolError,
                    "accounting is asked of the store, not of the replica",
                )));
            }
            Query::ResetDiag if !access::may(&self.state, identity, AccessRequest::ResetDiag) => {
                send(Response::Refused(rights::denied(AccessRequest::ResetDiag)));
            }
            Query::Diag | Query::ResetDiag => {
                if matches!(query, Query::ResetDiag) {
                    self.counted_since = crate::clock::now();
                    self.stats.reset();
                    self.waiting.reset();
                }
                let mut diag = answer::diag(&self.state, self.counted_since);
                self.stats.fill(&mut diag);
                diag.accounting_lag = self.position.saturating_sub(self.follower.stored());
                self.waiting.fill(&mut diag);
                if hides(&self.state, identity, PrivateData::USERS) {
                    diag.users.retain(|user| user.uid == identity.uid);
                    diag.held_back.retain(|user| user.uid == identity.uid);
                }
                send(Response::Diag(Box::new(diag)));
            }
        }
    }

    /// Answers a question for jobs, and all others that wait for the same and see the same.
    fn list(&mut self, identity: &Identity, query: &Query, filter: &JobFilter, first: &Outbox) {
        let state = &self.state;
        let (scope, partitions) = (
            JobScope::of(state, identity),
            sees_partitions(state, identity),
        );
        let same = |other: &ReplicaQuery| {
            *other.query == *query && sees_the_same(state, identity, &other.identity)
        };
        let others = self.questions.take_all(same);
        let others: Vec<_> = others.into_iter().map(|question| question.answer).collect();
        let of_all = filter.ids.is_empty();
        if of_all {
            self.rows.follow(&mut self.state);
        }
        let mut begun = match query {
            Query::Listing(_) => frame::encode(self.head.answer(&self.state, partitions)),
            _ => Vec::new(),
        };
        let rows = Some(&self.rows).filter(|_| of_all);
        let asked = (filter, &scope);
        answer::jobs(&self.state, rows, asked, None, &mut |frame: Vec<u8>| {
            // The first change leaves together with the next ones: that wakes a client once.
            let frame = match begun.is_empty() {
                true => frame,
                false => [std::mem::take(&mut begun), frame].concat(),
            };
            send_to_all(first, &others, frame)
        });
    }

    /// Queues queries whose expected starts are known, or have been waited for long enough, in the turns of their users.
    fn queue_forecast_queries(&mut self, queries: Vec<ForecastQuery>) {
        for ForecastQuery {
            identity,
            filter,
            out,
        } in queries
        {
            let question = ReplicaQuery {
                identity,
                query: Box::new(Query::Jobs(filter)),
                answer: out,
                has_waited: true,
            };
            self.questions.push(question.identity.uid, question);
        }
    }

    /// Answers a question for jobs with the expected starts that are known, and all others that ask the same and see the same.
    fn list_with_starts(
        &mut self,
        identity: &Identity,
        query: &Query,
        filter: &JobFilter,
        first: &Outbox,
    ) {
        let state = &self.state;
        let scope = JobScope::of(state, identity);
        let same = |other: &ReplicaQuery| {
            other.has_waited
                && *other.query == *query
                && sees_the_same(state, identity, &other.identity)
        };
        let others = self.questions.take_all(same);
        let others: Vec<_> = others.into_iter().map(|question| question.answer).collect();
        let known = answer::KnownStarts {
            forecast: self.forecaster.starts(),
            progress: self.forecaster.progress(),
        };
        let wanted = (filter, &scope);
        answer::jobs(&self.state, None, wanted, Some(known), &mut |frame: Vec<
            u8,
        >| {
            send_to_all(first, &others, frame)
        });
    }

    fn write_snapshot_if_due(&mut self) {
        let (state, position) = (&self.state, self.position);
        self.snapshots.write_if_due(state, position, Instant::now());
    }
}

/// Sends a part of an answer to all who wait for it. An error once all of them have disconnected.
fn send_to_all(first: &Outbox, others: &[Outbox], frame: Vec<u8>) -> Result<(), OutboxError> {
    let mut sent = Err(OutboxError);
    for other in others {
        sent = sent.or(other.send(frame.clone()));
    }
    first.send(frame).or(sent)
}

fn sees_partitions(state: &State, identity: &Identity) -> bool {
    !hides(state, identity, PrivateData::PARTITIONS)
}

/// Whether two users have the same answer to the same question about jobs.
pub(crate) fn sees_the_same(state: &State, one: &Identity, other: &Identity) -> bool {
    JobScope::of(state, one) == JobScope::of(state, other)
        && sees_partitions(state, one) == sees_partitions(state, other)
}
