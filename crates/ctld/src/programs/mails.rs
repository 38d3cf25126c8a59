//! Mails that wait to be sent. They have a queue, threads and a time limit of their own, so that no program that jobs
//! wait for stands behind them.

use super::turns::{Room, take_turns};
use super::{Invocation, start};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Mails that are sent at the same time.
const AT_ONCE: usize = 16;
/// How long `MailProg` may take.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Mails of one user that wait; further ones are not sent.
const WAITING_MAX: usize = 20_000;

/// Sends what comes, until nobody can add more.
pub(super) fn send_all(mailbox: &Receiver<(u32, Invocation)>) {
    let room = Arc::new(Room::of(AT_ONCE));
    take_turns(mailbox, &room, WAITING_MAX, |mail| {
        start(mail, &room, |_| {});
    });
}
