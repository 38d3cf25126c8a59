//! Questions of sacct, sreport and sacctmgr: asked on connections of their own to the store, in threads of their own,
//! after the store has all events that were acknowledged before the question arrived. Users take turns.

mod turns;

use crate::failure::{self, Panicked, caught};
use crate::outbox::Outbox;
use log::error;
use minicbor::bytes::ByteVec;
use muster_acct::{Follower, History, StoreError};
use muster_core::policy::access::privacy::JobScope;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::acct::{
    AcctJob, AcctQuery, JobTextQuery, NodeEventQuery, ReservationTimesQuery, TransactionQuery,
    UsagePage, UsageQuery,
};
use muster_proto::client::{AccountingPage, Response};
use muster_proto::frame;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;
use turns::{LONGEST, QuestionEnd, SharedQuestions};

/// Questions that are answered at a time, of as many users. One of them is about use: its answer is put together from all sums
/// of the period, in memory.
pub(crate) const READERS: usize = 4;
/// Jobs in one part of an answer.
const PART: usize = 1000;
/// Time that a question waits for the store to catch up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question to the store.
pub(crate) enum AccountingQuery {
    /// Jobs, of those that the user may see.
    Jobs(Box<AcctQuery>, JobScope),
    /// Usage by jobs that the user may see; whether outages of nodes may be seen as well.
    Usage(UsageQuery, JobScope, bool),
    /// Script or environment of a job, of this user's if one is named.
    JobText(JobTextQuery, Option<u32>),
    /// Times of reservations.
    Reservations(ReservationTimesQuery),
    /// When nodes were out of service.
    NodeEvents(NodeEventQuery),
    /// Changes made with sacctmgr; those of one user alone, if the asking user may not see others'.
    Transactions(TransactionQuery, Option<String>),
    /// Other clusters of the database that slurmdbd copies to.
    KnownClusters,
    /// Use of file systems by users; by one user alone, if the asking user may not see others'.
    Storage(StorageQuestion),
}

/// A question about use of file systems.
pub(crate) struct StorageQuestion {
    /// The only user whose use is shown.
    pub(crate) own: Option<String>,
}

/// A question: from whom, what, as of which position of the journal, and where the answer goes.
struct AcctQuestion {
    uid: u32,
    /// It is root's or SlurmUser's, and not ended for others.
    is_admin: bool,
    query: AccountingQuery,
    position: u64,
    answer: Outbox,
}

/// Questions that wait, by what answers them.
struct QuestionQueues {
    /// About use.
    usage: Arc<SharedQuestions>,
    /// All others.
    others: Arc<SharedQuestions>,
}

impl QuestionQueues {
    fn of(&self, query: &AccountingQuery) -> &SharedQuestions {
        match query {
            AccountingQuery::Usage(..) => &self.usage,
            AccountingQuery::Jobs(..)
            | AccountingQuery::JobText(..)
            | AccountingQuery::Reservations(_)
            | AccountingQuery::NodeEvents(_)
            | AccountingQuery::Transactions(..)
            | AccountingQuery::KnownClusters
            | AccountingQuery::Storage(_) => &self.others,
        }
    }
}

/// Where questions go.
pub(crate) struct Accounting {
    queues: Option<QuestionQueues>,
    /// Position of the journal that the replica was given last.
    position: Box<dyn Fn() -> u64>,
}

impl Accounting {
    /// Accounting is switched off: every question is refused.
    pub(crate) fn disabled() -> Accounting {
        Accounting {
            queues: None,
            position: Box::new(|| 0),
        }
    }

    /// Starts the threads that ask the store. `position` tells how far the journal is. The follower is held only while a
    /// question is answered: who stops the controller takes it back without waiting for these threads to be scheduled.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        mut readers: Vec<Box<dyn History>>,
        follower: &Weak<Follower>,
        position: Box<dyn Fn() -> u64>,
    ) -> std::io::Result<Accounting> {
        let last = readers.len().saturating_sub(1);
        let usage = answer_questions("sreport", readers.split_off(last), follower)?;
        // One reader alone answers all.
        let others = match readers.is_empty() {
            true => Arc::clone(&usage),
            false => answer_questions("sacct", readers, follower)?,
        };
        Ok(Accounting {
            queues: Some(QuestionQueues { usage, others }),
            position,
        })
    }

    /// Asks for a user, or for root or SlurmUser (`is_admin`).
    pub(crate) fn ask(&self, uid: u32, is_admin: bool, query: AccountingQuery, answer: Outbox) {
        let Some(queues) = &self.queues else {
            let refusal = Refusal::from(RefusalCode::AccountingDisabled);
            let _ = answer.send(frame::encode(&Response::Refused(refusal)));
            return;
        };
        let position = (self.position)();
        queues.of(&query).push(AcctQuestion {
            uid,
            is_admin,
            query,
            position,
            answer,
        });
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        if let Some(queues) = &self.queues {
            queues.usage.close();
            queues.others.close();
        }
    }
}

/// Starts the threads of some readers, which answer the questions of one queue.
fn answer_questions(
    name: &'static str,
    readers: Vec<Box<dyn History>>,
    follower: &Weak<Follower>,
) -> std::io::Result<Arc<SharedQuestions>> {
    let interrupters = readers.iter().map(|reader| reader.interrupter());
    let turns = Arc::new(SharedQuestions::new(interrupters));
    for (place, reader) in readers.into_iter().enumerate() {
        let (turns, follower) = (Arc::clone(&turns), Weak::clone(follower));
        failure::spawn_essential(name, move || {
            serve(reader, &follower, &turns, place);
            Ok(())
        })?;
    }
    let watched = Arc::clone(&turns);
    failure::spawn_essential("sacct-watch", move || {
        watched.watch();
        Ok(())
    })?;
    Ok(turns)
}

/// Answers one question after another until nobody can ask any more.
fn serve(
    mut history: Box<dyn History>,
    follower: &Weak<Follower>,
    turns: &SharedQuestions,
    place: usize,
) {
    while let Some(question) = turns.next(place) {
        let Some(follower) = follower.upgrade() else {
            return;
        };
        let out = AccountingAnswer {
            out: &question.answer,
            ended: &|| turns.ended(place),
            begins: &|| turns.start_clock(place),
        };
        let answered = caught(|| answer(history.as_mut(), &follower, &question, &out));
        if let Err(Panicked(why)) = answered {
            error!(
                "an accounting query of uid {} is refused: {why}",
                question.uid
            );
            let refusal = Refusal::new(RefusalCode::InvalidValue, "a fault in the controller");
            let refused = frame::encode(&Response::Refused(refusal));
            let _ = question.answer.send(refused);
        }
        turns.finish(place);
    }
}

/// Where an answer goes.
struct AccountingAnswer<'a> {
    out: &'a Outbox,
    /// Why the question was ended, if it was.
    ended: &'a dyn Fn() -> Option<QuestionEnd>,
    /// The store has caught up.
    begins: &'a dyn Fn(),
}

impl AccountingAnswer<'_> {
    /// Sends a part; whether anybody takes it.
    fn send(&self, response: &Response) -> bool {
        self.out.send(frame::encode(response)).is_ok()
    }

    /// The store has no answer, or no more of it.
    fn refuse(&self, error: &StoreError) -> bool {
        self.send(&refusal(error, (self.ended)()))
    }
}

fn answer(
    history: &mut dyn History,
    follower: &Follower,
    question: &AcctQuestion,
    out: &AccountingAnswer<'_>,
) {
    if follower.wait_stored(question.position, PATIENCE) != Ok(true) {
        return late(follower, out);
    }
    (out.begins)();
    match &question.query {
        AccountingQuery::Jobs(query, scope) => reply(history, query, scope, out),
        AccountingQuery::Usage(query, scope, shows_outages) => {
            usage(history, query, scope, *shows_outages, out);
        }
        AccountingQuery::Reservations(query) => reservations(history, *query, out),
        AccountingQuery::JobText(query, owner) => job_text(history, *query, *owner, out),
        AccountingQuery::NodeEvents(query) => events(history, query, out),
        AccountingQuery::Transactions(query, own) => {
            transactions(history, query, own.as_deref(), out);
        }
        AccountingQuery::KnownClusters => {
            match history.known_clusters() {
                Ok(found) => out.send(&Response::KnownClusters(found)),
                Err(e) => out.refuse(&e),
            };
        }
        AccountingQuery::Storage(question) => {
            match history.storage(question.own.as_deref()) {
                Ok(found) => out.send(&Response::Storage(Box::new(found))),
                Err(e) => out.refuse(&e),
            };
        }
    }
}

/// The store cannot be written: an old answer would be a wrong one.
fn late(follower: &Follower, answer: &AccountingAnswer<'_>) {
    let health = follower.health();
    let why = health
        .failing
        .map_or_else(|| "it is busy".to_owned(), |(.., text)| text);
    let detail = format!(
        "the accounting store is behind by {} changes: {why}",
        health.waiting
    );
    answer.send(&Response::Refused(Refusal::new(RefusalCode::Busy, detail)));
}

fn refusal(error: &StoreError, ended: Option<QuestionEnd>) -> Response {
    let refusal = match (ended, error) {
        (Some(QuestionEnd::TooLong), _) => Refusal::new(
            RefusalCode::Busy,
            format!(
                "the question took more than {} s while others waited: ask for less, by a shorter time (--starttime, --endtime) \
                 or by jobs or users (--jobs, --user)",
                LONGEST.as_secs()
            ),
        ),
        (None | Some(QuestionEnd::Gone), StoreError::TooMany(what)) => {
            Refusal::new(RefusalCode::TooLong, *what)
        }
        (None | Some(QuestionEnd::Gone), error) => {
            Refusal::new(RefusalCode::Busy, format!("the accounting store: {error}"))
        }
    };
    Response::Refused(refusal)
}

fn events(history: &mut dyn History, query: &NodeEventQuery, answer: &AccountingAnswer<'_>) {
    match history.node_events(&query.nodes, query.start, query.end) {
        Ok(events) => answer.send(&Response::NodeEvents(events)),
        Err(e) => answer.refuse(&e),
    };
}

fn reservations(
    history: &mut dyn History,
    query: ReservationTimesQuery,
    answer: &AccountingAnswer<'_>,
) {
    match history.reservations(query.start, query.end) {
        Ok(times) => answer.send(&Response::ReservationTimes(times)),
        Err(e) => answer.refuse(&e),
    };
}

fn job_text(
    history: &mut dyn History,
    query: JobTextQuery,
    owner: Option<u32>,
    answer: &AccountingAnswer<'_>,
) {
    match history.job_text(query.job, query.kind, owner) {
        Ok(text) => answer.send(&Response::JobText(text.map(ByteVec::from))),
        Err(e) => answer.refuse(&e),
    };
}

/// Usage, without that of other users whose jobs the user may not see.
fn usage(
    history: &mut dyn History,
    query: &UsageQuery,
    scope: &JobScope,
    shows_outages: bool,
    answer: &AccountingAnswer<'_>,
) {
    let now = crate::clock::now();
    let found = match history.usage(query, now) {
        Ok(found) => found,
        Err(e) => {
            answer.refuse(&e);
            return;
        }
    };
    let mut rows = found.rows;
    rows.retain(|row| scope.contains(row.uid, &row.account));
    let mut outages = shows_outages.then_some(found.outages);
    let mut since = found.since;
    let mut rows = rows.into_iter().peekable();
    loop {
        let part = UsagePage {
            rows: rows.by_ref().take(PART).collect(),
            outages: outages.take(),
            more: rows.peek().is_some(),
            now,
            withheld: *scope != JobScope::All,
            since: since.take(),
        };
        let more = part.more;
        let sent = answer.send(&Response::Usage(Box::new(part)));
        if !sent || !more {
            return;
        }
    }
}

/// Changes by all, or by one user who may not see those of others.
fn transactions(
    history: &mut dyn History,
    query: &TransactionQuery,
    own: Option<&str>,
    answer: &AccountingAnswer<'_>,
) {
    match history.transactions(query.start, query.end, own) {
        Ok(found) => answer.send(&Response::Transactions(found.newest, found.left_out)),
        Err(e) => answer.refuse(&e),
    };
}

/// Reads only private jobs from the store that the user may see, where one owner has them all; else the others are left
/// out before a part leaves.
fn reply(
    history: &mut dyn History,
    query: &AcctQuery,
    scope: &JobScope,
    answer: &AccountingAnswer<'_>,
) {
    let send = |jobs: Vec<AcctJob>, more| {
        let part = AccountingPage {
            jobs,
            more,
            now: crate::clock::now(),
            withheld: *scope != JobScope::All,
        };
        answer.send(&Response::Accounting(Box::new(part)))
    };
    let mut query = Cow::Borrowed(query);
    if let Some(uid) = scope.only_owner() {
        if !(query.uids.is_empty() || query.uids.contains(&uid)) {
            send(Vec::new(), false);
            return;
        }
        query.to_mut().uids = vec![uid];
    }
    // The last part is known only when nothing follows it.
    let mut held: Option<Vec<AcctJob>> = None;
    let result = history.query(&query, PART, &mut |mut jobs| {
        jobs.retain(|job| scope.contains(job.uid, &job.account));
        let gone = held.replace(jobs).is_some_and(|before| !send(before, true));
        if gone {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match result {
        Ok(()) => send(held.unwrap_or_default(), false),
        Err(e) => answer.refuse(&e),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_acct::Interrupter;
    use muster_proto::acct::NodeEventQuery;

    /// Four users had all sums of a period put together in memory four times.
    #[test]
    fn use_is_summed_up_for_one_question_at_a_time() {
        let none = |count: usize| {
            let interrupters = (0..count).map(|_| Interrupter(Box::new(|| {})));
            Arc::new(SharedQuestions::new(interrupters))
        };
        let (usage, others) = (none(1), none(READERS - 1));
        let queues = QuestionQueues { usage, others };
        let ask = |uid, query| {
            let (answer, inbox) = crate::outbox::channel(None);
            let position = 0;
            queues.of(&query).push(AcctQuestion {
                uid,
                is_admin: false,
                query,
                position,
                answer,
            });
            inbox
        };
        let used = || AccountingQuery::Usage(UsageQuery::default(), JobScope::All, true);
        let events = || AccountingQuery::NodeEvents(NodeEventQuery::default());
        let _answers = [ask(1, used()), ask(2, used()), ask(3, events())];
        let uid = |question: Option<AcctQuestion>| question.map(|question| question.uid);
        assert_eq!(uid(queues.others.next(0)), Some(3));
        assert_eq!(uid(queues.usage.next(0)), Some(1));
        queues.others.close();
        assert_eq!(uid(queues.others.next(1)), None, "the other is not its");
        queues.usage.finish(0);
        assert_eq!(uid(queues.usage.next(0)), Some(2));
    }
}
