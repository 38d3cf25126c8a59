//! Questions of sacct, sreport and sacctmgr: asked on a connection of their own to the store, in a thread of their own,
//! after the store has caught up with what was acknowledged before the question came. Users take turns.

use crate::failure::{self, Panicked, caught};
use crate::outbox::Outbox;
use log::{error, warn};
use muster_acct::{Follower, History, StoreError};
use muster_channel::admission::FairQueue;
use muster_core::policy::access::privacy::JobScope;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::acct::{
    AcctJob, AcctQuery, NodeEventQuery, TransactionQuery, UsagePage, UsageQuery,
};
use muster_proto::client::{AccountingPage, Response};
use muster_proto::frame;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Jobs in one part of an answer.
const PART: usize = 1000;
/// How long a question waits for the store to catch up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question to the store.
pub(crate) enum AccountingQuery {
    /// Jobs, of those that the user may see.
    Jobs(Box<AcctQuery>, JobScope),
    /// What was used: by jobs that the user may see, and whether outages of nodes may be seen as well.
    Usage(UsageQuery, JobScope, bool),
    /// When nodes were out of service.
    NodeEvents(NodeEventQuery),
    /// Who changed what with sacctmgr.
    /// Of one user alone, where the asking user may not see those of others.
    Transactions(TransactionQuery, Option<String>),
}

/// A question: from whom, what, as of which position of the journal, and where the answer goes.
struct AcctQuestion {
    uid: u32,
    query: AccountingQuery,
    position: u64,
    answer: Outbox,
}

/// Where questions go.
pub(crate) struct Accounting {
    questions: Option<Sender<AcctQuestion>>,
    /// Position of the journal that the replica was given last.
    position: Box<dyn Fn() -> u64>,
}

impl Accounting {
    /// Accounting is switched off: every question is refused.
    pub(crate) fn disabled() -> Accounting {
        Accounting {
            questions: None,
            position: Box::new(|| 0),
        }
    }

    /// Starts the thread that asks the store. `position` tells how far the journal is. The follower is held only while a
    /// question is answered: who stops the controller takes it back without waiting for this thread to be scheduled.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        history: Box<dyn History>,
        follower: Weak<Follower>,
        position: Box<dyn Fn() -> u64>,
    ) -> std::io::Result<Accounting> {
        let (questions, inbox) = channel::<AcctQuestion>();
        failure::spawn_essential("sacct", move || {
            serve(history, &follower, &inbox);
            Ok(())
        })?;
        Ok(Accounting {
            questions: Some(questions),
            position,
        })
    }

    /// Asks for a user.
    pub(crate) fn ask(&self, uid: u32, query: AccountingQuery, answer: Outbox) {
        let asked = match &self.questions {
            Some(questions) => {
                let position = (self.position)();
                let question = AcctQuestion {
                    uid,
                    query,
                    position,
                    answer,
                };
                questions.send(question).is_ok()
            }
            None => {
                let refusal = Refusal::from(RefusalCode::AccountingDisabled);
                let _ = answer.send(frame::encode(&Response::Refused(refusal)));
                true
            }
        };
        if !asked {
            warn!("the accounting reader is gone");
        }
    }
}

/// Answers one question after another until nobody can ask any more.
fn serve(mut history: Box<dyn History>, follower: &Weak<Follower>, inbox: &Receiver<AcctQuestion>) {
    let mut turns = FairQueue::default();
    loop {
        if turns.is_empty() {
            let Ok(question) = inbox.recv() else {
                return;
            };
            turns.push(question.uid, question);
        }
        for question in inbox.try_iter() {
            turns.push(question.uid, question);
        }
        if let Some((uid, question)) = turns.pop() {
            let Some(follower) = follower.upgrade() else {
                return;
            };
            let begun = Instant::now();
            let answered = caught(|| match follower.wait_stored(question.position, PATIENCE) {
                Ok(true) => match &question.query {
                    AccountingQuery::Jobs(query, scope) => {
                        reply(history.as_mut(), query, scope, &question.answer);
                    }
                    AccountingQuery::Usage(query, scope, shows_outages) => {
                        usage(
                            history.as_mut(),
                            query,
                            scope,
                            *shows_outages,
                            &question.answer,
                        );
                    }
                    AccountingQuery::NodeEvents(query) => {
                        events(history.as_mut(), query, &question.answer);
                    }
                    AccountingQuery::Transactions(query, own) => {
                        transactions(history.as_mut(), query, own.as_deref(), &question.answer);
                    }
                },
                _ => late(&follower, &question.answer),
            });
            if let Err(Panicked(why)) = answered {
                error!("an accounting query of uid {uid} is refused: {why}");
                let refusal = Refusal::new(RefusalCode::InvalidValue, "a fault in the controller");
                let _ = question
                    .answer
                    .send(frame::encode(&Response::Refused(refusal)));
            }
            let took = begun.elapsed().as_nanos();
            turns.charge(uid, u64::try_from(took).unwrap_or(u64::MAX));
        }
    }
}

/// The store cannot be written: an old answer would be a wrong one.
fn late(follower: &Follower, answer: &Outbox) {
    let health = follower.health();
    let why = health
        .failing
        .map_or_else(|| "it is busy".to_owned(), |(.., text)| text);
    let detail = format!(
        "the accounting store is behind by {} changes: {why}",
        health.waiting
    );
    let refusal = Refusal::new(RefusalCode::Busy, detail);
    let _ = answer.send(frame::encode(&Response::Refused(refusal)));
}

fn failed(error: &StoreError) -> Response {
    let detail = format!("the accounting store: {error}");
    Response::Refused(Refusal::new(RefusalCode::Busy, detail))
}

fn events(history: &mut dyn History, query: &NodeEventQuery, answer: &Outbox) {
    let response = match history.node_events(&query.nodes, query.start, query.end) {
        Ok(events) => Response::NodeEvents(events),
        Err(e) => failed(&e),
    };
    let _ = answer.send(frame::encode(&response));
}

/// What was used, without what others used whose jobs the user may not see.
fn usage(
    history: &mut dyn History,
    query: &UsageQuery,
    scope: &JobScope,
    shows_outages: bool,
    answer: &Outbox,
) {
    let now = crate::clock::now();
    let found = match history.usage(query, now) {
        Ok(found) => found,
        Err(e) => return drop(answer.send(frame::encode(&failed(&e)))),
    };
    let mut rows = found.rows;
    rows.retain(|row| scope.contains(row.uid, &row.account));
    let mut outages = shows_outages.then_some(found.outages);
    let mut rows = rows.into_iter().peekable();
    loop {
        let part = UsagePage {
            rows: rows.by_ref().take(PART).collect(),
            outages: outages.take(),
            more: rows.peek().is_some(),
            now,
            withheld: *scope != JobScope::All,
        };
        let more = part.more;
        let sent = answer.send(frame::encode(&Response::Usage(Box::new(part))));
        if sent.is_err() || !more {
            return;
        }
    }
}

/// Changes by all, or by one user who may not see those of others.
fn transactions(
    history: &mut dyn History,
    query: &TransactionQuery,
    own: Option<&str>,
    answer: &Outbox,
) {
    let response = match history.transactions(query.start, query.end) {
        Ok(mut all) => {
            all.retain(|logged| own.is_none_or(|user| logged.transaction.actor == user));
            Response::Transactions(all)
        }
        Err(e) => failed(&e),
    };
    let _ = answer.send(frame::encode(&response));
}

/// Of private jobs only those are read from the store that the user may see, where one owner has them all; else the
/// others are left out before a part leaves.
fn reply(history: &mut dyn History, query: &AcctQuery, scope: &JobScope, answer: &Outbox) {
    let send = |jobs: Vec<AcctJob>, more| {
        let part = AccountingPage {
            jobs,
            more,
            now: crate::clock::now(),
            withheld: *scope != JobScope::All,
        };
        answer
            .send(frame::encode(&Response::Accounting(Box::new(part))))
            .is_ok()
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
        Ok(()) => drop(send(held.unwrap_or_default(), false)),
        Err(e) => drop(answer.send(frame::encode(&failed(&e)))),
    }
}
