//! Admission of connections: those without a proven identity, the log's lines about refused ones, bytes that are kept for
//! users, and their turns.

mod bytes;
mod fair_queue;
mod host_address;
mod refusals;
mod strangers;

pub use bytes::{ByteBounds, ByteCount, NoRoom};
pub use fair_queue::FairQueue;
pub use host_address::HostAddress;
pub use refusals::Refusals;
pub use strangers::{StrangerBounds, StrangerId, Strangers};
