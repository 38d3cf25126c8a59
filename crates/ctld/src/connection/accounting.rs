//! Questions of a connection to accounting, as far as `PrivateData` lets its user ask them.

use super::Connection;
use crate::accounting::AccountingQuery;
use crate::outbox::Outbox;
use muster_core::policy::access::privacy::hides;
use muster_core::state::State;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::client::Response;
use muster_proto::frame;
use std::io;

impl Connection {
    /// Whether `PrivateData` hides this from the client.
    pub(super) async fn hides(&self, what: PrivateData) -> io::Result<bool> {
        let identity = self.identity.clone();
        let look = move |state: &State| hides(state, &identity, what);
        self.shared.look(look).await
    }
}

/// The user's name, if `PrivateData` hides any of these: then the answer is about that user alone.
pub(super) async fn own_name_if_hidden(
    client: &Connection,
    words: &[PrivateData],
) -> io::Result<Option<String>> {
    for word in words {
        if client.hides(*word).await? {
            return Ok(Some(client.identity.user.clone()));
        }
    }
    Ok(None)
}

/// Asks accounting a question whose answer `PrivateData` may hide as a whole.
pub(super) async fn ask_unless_hidden(
    client: &Connection,
    what: PrivateData,
    asked: AccountingQuery,
    answer: Outbox,
) -> io::Result<()> {
    if client.hides(what).await? {
        let refusal = Refusal::from(RefusalCode::AccessDenied);
        let _ = answer.send(frame::encode(&Response::Refused(refusal)));
        return Ok(());
    }
    ask_accounting(client, asked, answer);
    Ok(())
}

/// Asks accounting for the user of a connection.
pub(super) fn ask_accounting(connection: &Connection, asked: AccountingQuery, answer: Outbox) {
    let uid = connection.identity.uid;
    let shared = &connection.shared;
    let is_admin = uid == 0 || shared.admins.borrow().contains(&uid);
    shared.accounting.ask(uid, is_admin, asked, answer);
}
