//! Lines of the audit log for a connection: one for each request that it refuses for want of a right, made where the refusal is
//! sent, and one for each read that reaches beyond the user's own jobs. For commands that the writer decides, and for waits, the
//! line is made where they are answered.

use super::subject::RequestSubject;
use super::{Connection, Served};
use crate::audit::Entry;
use muster_core::policy::access::audit::is_foreign;
use muster_core::state::State;
use muster_model::command::{Reply, UserCommand};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_proto::client::Response;
use muster_proto::frame;
use std::io;

/// The number of [`Response::Refused`].
const REFUSED: u32 = 1;

/// The refusal, if an encoded response is one. Of others only the variant is decoded.
fn refusal_of(response: &[u8]) -> Option<Refusal> {
    let mut decoder = minicbor::Decoder::new(response);
    let is_refused = decoder.array().is_ok() && matches!(decoder.u32(), Ok(REFUSED));
    match is_refused.then(|| frame::decode(response)) {
        Some(Ok(Response::Refused(refusal))) => Some(refusal),
        _ => None,
    }
}

/// The only user whose jobs' texts the client may read; none if it may read everybody's, which the audit log then has.
pub(super) async fn text_owner(client: &mut Connection) -> io::Result<Option<u32>> {
    let entry = client.entry().await?;
    if !entry.suffices(AccessRequest::JobTextOfOther) {
        return Ok(Some(client.identity.uid));
    }
    client.asked.request = AccessRequest::JobTextOfOther;
    Ok(None)
}

impl Connection {
    /// The line of the present request.
    pub(super) async fn entry(&self) -> io::Result<Entry> {
        let RequestSubject {
            request, subject, ..
        } = &self.asked;
        let role = self.shared.role(&self.identity).await?;
        Ok(Entry::new(role, &self.identity, *request, self.place).about(subject))
    }

    /// Whether the client's role suffices for the present request.
    pub(super) async fn may(&self) -> io::Result<Result<Entry, Refusal>> {
        let entry = self.entry().await?;
        Ok(match entry.denied() {
            None => Ok(entry),
            Some(refusal) => Err(refusal),
        })
    }

    /// Refuses the present request.
    pub(super) async fn refuse(&mut self, code: RefusalCode, detail: String) -> io::Result<Served> {
        self.refuse_as(Refusal::new(code, detail)).await
    }

    /// Refuses the present request.
    pub(super) async fn refuse_as(&mut self, refusal: Refusal) -> io::Result<Served> {
        if refusal.code == RefusalCode::AccessDenied {
            self.entry().await?.refused(&refusal);
        }
        self.send_refusal(refusal).await
    }

    /// Refuses what concerns the cluster, for whatever reason.
    pub(super) async fn refuse_entry(
        &mut self,
        entry: Entry,
        refusal: Refusal,
    ) -> io::Result<Served> {
        entry.refused(&refusal);
        self.send_refusal(refusal).await
    }

    /// Refuses a command that the writer does not get.
    pub(super) async fn refuse_command(
        &mut self,
        command: UserCommand,
        refusal: Refusal,
    ) -> io::Result<Served> {
        if refusal.code == RefusalCode::AccessDenied {
            let (identity, place) = (self.identity.clone(), self.place);
            let look = move |state: &State| Entry::of_command(state, &identity, &command, place);
            if let Some(entry) = self.shared.look(look).await? {
                entry.refused(&refusal);
            }
        }
        // A job that is not there is refused as the writer refuses one that the user may not know of.
        if refusal.code == RefusalCode::InvalidJobId {
            return self.reply(Reply::Refused(refusal)).await;
        }
        self.send_refusal(refusal).await
    }

    async fn send_refusal(&mut self, refusal: Refusal) -> io::Result<Served> {
        let response = Response::Refused(refusal);
        self.send(&frame::encode(&response)).await?;
        Ok(Served::Next)
    }

    /// A read was answered: makes a line if it was refused for want of a right, read another user's private data, or changed
    /// something.
    pub(super) async fn note_answer(&self, bytes: &[u8]) -> io::Result<()> {
        let refusal = bytes.get(4..).and_then(refusal_of);
        if let Some(refusal) = refusal {
            if refusal.code == RefusalCode::AccessDenied {
                self.entry().await?.refused(&refusal);
            }
            return Ok(());
        }
        let is_noted = match (self.asked.request, self.asked.job) {
            (
                AccessRequest::ResetDiag
                | AccessRequest::CrontabOfOther
                | AccessRequest::JobTextOfOther,
                _,
            ) => true,
            (
                AccessRequest::Script | AccessRequest::Environment | AccessRequest::Allocation,
                Some(job),
            ) => {
                let identity = self.identity.clone();
                let look = move |state: &State| is_foreign(state, &identity, job);
                self.shared.look(look).await?
            }
            _ => false,
        };
        if is_noted {
            self.entry().await?.done();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_number() {
        let of = |response: Response| refusal_of(&frame::encode(&response)[4..]);
        let refusal = Refusal::new(RefusalCode::AccessDenied, "why");
        assert_eq!(of(Response::Refused(refusal.clone())), Some(refusal));
        assert_eq!(of(Response::Done), None);
        assert_eq!(of(Response::Crontab(None)), None);
        assert_eq!(refusal_of(&[]), None);
    }
}
