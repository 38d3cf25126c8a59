//! Questions of sacct, sreport and sacctmgr: asked on a connection of their own to the store, in a thread of their own, after the store has
//! caught up with what was acknowledged before the question came.

use log::warn;
use muster_acct::{Follower, History, StoreError};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_proto::acct::{AcctJob, AcctQuery, NodeEventQuery};
use muster_proto::client::{AccountingPart, Response};
use muster_proto::frame;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Jobs in one part of an answer.
const PART: usize = 1000;
/// How long a question waits for the store to catch up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked of the store.
pub(crate) enum Asked {
    /// Jobs.
    Jobs(Box<AcctQuery>),
    /// When nodes were out of service.
    NodeEvents(NodeEventQuery),
}

type Question = (Asked, u64, UnboundedSender<Vec<u8>>);

/// Where questions go.
pub(crate) struct Accounting {
    questions: Option<Sender<Question>>,
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

    /// Starts the thread that asks the store. `position` tells how far the journal is.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        mut history: Box<dyn History>,
        follower: Arc<Follower>,
        position: Box<dyn Fn() -> u64>,
    ) -> std::io::Result<Accounting> {
        let (questions, inbox) = channel::<Question>();
        std::thread::Builder::new()
            .name("sacct".into())
            .spawn(move || {
                for (query, position, answer) in inbox {
                    match follower.wait_stored(position, PATIENCE) {
                        Ok(true) => match &query {
                            Asked::Jobs(query) => reply(history.as_mut(), query, &answer),
                            Asked::NodeEvents(query) => events(history.as_mut(), query, &answer),
                        },
                        _ => late(&follower, &answer),
                    }
                }
            })?;
        Ok(Accounting {
            questions: Some(questions),
            position,
        })
    }

    /// Asks.
    pub(crate) fn ask(&self, query: Asked, answer: UnboundedSender<Vec<u8>>) {
        let asked = match &self.questions {
            Some(questions) => questions.send((query, (self.position)(), answer)).is_ok(),
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

/// The store cannot be written: an old answer would be a wrong one.
fn late(follower: &Follower, answer: &UnboundedSender<Vec<u8>>) {
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

fn events(history: &mut dyn History, query: &NodeEventQuery, answer: &UnboundedSender<Vec<u8>>) {
    let response = match history.node_events(&query.nodes, query.start, query.end) {
        Ok(events) => Response::NodeEvents(events),
        Err(e) => failed(&e),
    };
    let _ = answer.send(frame::encode(&response));
}

fn reply(history: &mut dyn History, query: &AcctQuery, answer: &UnboundedSender<Vec<u8>>) {
    let send = |jobs: Vec<AcctJob>, more| {
        let part = AccountingPart {
            jobs,
            more,
            now: crate::writer::now(),
        };
        answer
            .send(frame::encode(&Response::Accounting(Box::new(part))))
            .is_ok()
    };
    // The last part is known only when nothing follows it.
    let mut held: Option<Vec<AcctJob>> = None;
    let result = history.query(query, PART, &mut |jobs| {
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
