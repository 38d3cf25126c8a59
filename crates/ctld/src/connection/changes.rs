//! The event stream: a query whose answer may come later, beside other answers.

use super::{Connection, Served};
use crate::mail::ToReplica;
use muster_model::refusal::RefusalCode;
use muster_proto::changes::ChangesQuery;
use muster_proto::client::Query;
use std::io;
use std::time::Instant;

impl Connection {
    /// Changes. The client may wait for the next one; a client that disconnects meanwhile is noticed.
    pub(super) async fn changes(
        &mut self,
        query: ChangesQuery,
        kind: &'static str,
        started: Instant,
    ) -> io::Result<Served> {
        if let Err(over) = self.share.wait() {
            return self.refuse(RefusalCode::Busy, over.to_string()).await;
        }
        self.shared.to_replica(ToReplica::Query {
            identity: self.identity.clone(),
            query: Box::new(Query::Changes(query)),
            answer: self.later.clone(),
        })?;
        let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.shared.stats.request(kind, self.identity.uid, us);
        Ok(Served::Next)
    }
}
