//! Requests that are answered when their time comes: waits for jobs and nodes, and the hold of an allocation.

use super::{Connection, Served, verify};
use crate::answer;
use crate::change_turns::ChangeTurn;
use crate::mail::ToReplica;
use crate::quota::Leave;
use muster_core::state::State;
use muster_model::command::UserCommand;
use muster_model::ids::JobId;
use muster_model::private_data::PrivateData;
use muster_model::refusal::RefusalCode;
use muster_proto::client::{RequestBody, Response};
use muster_proto::frame;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;

/// Whether the request counts among what its connection waits for.
pub(super) fn is_wait(body: &RequestBody) -> bool {
    matches!(
        body,
        RequestBody::WaitStarted(_)
            | RequestBody::WaitEnded(_)
            | RequestBody::WaitNodes(_)
            | RequestBody::Hold(_)
    )
}

/// # Errors
/// Nobody waits for the answer any more: the request is not carried out.
pub(super) fn check_client(client: &Connection) -> io::Result<()> {
    let mut ends = [PollFd::new(
        client.write.as_ref().as_fd(),
        PollFlags::POLLHUP,
    )];
    match poll(&mut ends, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
        true => Err(io::ErrorKind::ConnectionAborted.into()),
        false => Ok(()),
    }
}

/// Waits until a command may be looked at: for its turn, if it is a change that a script sees, and for a leave of its user's.
pub(super) async fn change_turn(
    client: &Connection,
    command: &UserCommand,
) -> io::Result<(Option<ChangeTurn>, Option<Leave>)> {
    let leave = client.share.command();
    let Some(target) = verify::seen_change(&client.shared, command) else {
        return Ok((None, leave.await));
    };
    let (turns, uid) = (&client.shared.change_turns, client.identity.uid);
    let job = verify::changed_job(&client.shared, &client.identity, target);
    let taken = turns.take(uid, || check_client(client), leave, job);
    let (turn, leave) = taken.await?;
    Ok((Some(turn), leave))
}

/// The client wants to know when a job starts.
pub(super) fn wait_started(client: &Connection, job: JobId) -> io::Result<Served> {
    client.shared.to_replica(ToReplica::WaitStarted {
        identity: client.identity.clone(),
        place: client.place,
        job,
        answer: client.later.clone(),
    })?;
    Ok(Served::Next)
}

/// The client, which is the holder of the allocation or not, wants to know when a job ends.
pub(super) fn wait_ended(client: &Connection, job: JobId, holder: bool) -> io::Result<Served> {
    client.shared.to_replica(ToReplica::WaitEnded {
        identity: client.identity.clone(),
        job,
        holder,
        answer: client.later.clone(),
    })?;
    Ok(Served::Next)
}

impl Connection {
    /// Serves a client that waits for this number of nodes.
    pub(super) async fn wait_nodes(&mut self, count: u32) -> io::Result<Served> {
        if self.hides(PrivateData::NODES).await? {
            return self.refuse(RefusalCode::AccessDenied, String::new()).await;
        }
        let answer = self.later.clone();
        self.shared
            .to_replica(ToReplica::WaitNodes { count, answer })?;
        Ok(Served::Next)
    }

    /// The client becomes the holder of an allocation: it is notified of its end, and the allocation ends with it.
    pub(super) async fn hold(&mut self, job: JobId) -> io::Result<Served> {
        let identity = self.identity.clone();
        let look = move |state: &State| answer::may_hold(state, &identity, job);
        let is_foreign = match self.shared.look(look).await? {
            Ok(is_foreign) => is_foreign,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        if is_foreign {
            self.entry().await?.done();
        }
        self.hold_allocation(job).await?;
        self.shared.held_again(job);
        self.send(&frame::encode(&Response::Held)).await?;
        wait_ended(self, job, true)
    }
}
