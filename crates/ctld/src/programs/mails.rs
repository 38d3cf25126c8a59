//! Mails that wait to be sent. They have a queue, threads and a time limit of their own, so that no program that jobs
//! wait for stands behind them.

use super::queue::QueueBounds;
use muster_channel::admission::ByteBounds;
use std::time::Duration;

/// How long `MailProg` may take.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Sixteen at a time. Further mails of a user are not sent.
pub(super) const BOUNDS: QueueBounds = QueueBounds {
    what: "mail",
    at_once: 16,
    items: 20_000,
    bytes: ByteBounds {
        own: 64 << 20,
        all: 256 << 20,
        few: 1 << 20,
    },
    cut_beyond: usize::MAX,
};
