//! Changes of jobs, nodes, partitions and reservations, as a client follows them: the query and its answer. A change names the
//! new values in short; the record itself is queried as usual.

use minicbor::{Decode, Encode};
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::time::Timestamp;
use muster_model::validate::Validate;
use std::fmt;
use std::str::FromStr;

/// A place in the history: behind an event of the journal, or behind some of the changes that it made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Validate)]
pub struct ChangePosition {
    /// Position of the event in the journal.
    #[n(0)]
    pub event: u64,
    /// Which of the event's changes, from 0; [`ChangePosition::WHOLE`]: all of them.
    #[n(1)]
    pub part: u32,
}

impl ChangePosition {
    /// All changes of an event.
    pub const WHOLE: u32 = u32::MAX;

    /// Behind all that an event has changed.
    pub fn behind(event: u64) -> ChangePosition {
        ChangePosition {
            event,
            part: ChangePosition::WHOLE,
        }
    }
}

/// `EVENT`, or `EVENT.PART`.
impl fmt::Display for ChangePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            ChangePosition::WHOLE => write!(f, "{}", self.event),
            part => write!(f, "{}.{part}", self.event),
        }
    }
}

/// The error of a text that is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position of the event stream is a number, or two with a dot between them")]
pub struct PositionError;

impl FromStr for ChangePosition {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<ChangePosition, PositionError> {
        let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse::<u64>().map_err(|_| PositionError),
            false => Err(PositionError),
        };
        match text.split_once('.') {
            None => Ok(ChangePosition::behind(number(text)?)),
            Some((event, part)) => Ok(ChangePosition {
                event: number(event)?,
                part: u32::try_from(number(part)?).map_err(|_| PositionError)?,
            }),
        }
    }
}

/// Which changes are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ChangesQuery {
    /// Changes after this position; absent: none yet, only the position as of now.
    #[n(0)]
    pub after: Option<ChangePosition>,
    /// The answer waits until there is a change that the client may see.
    #[n(1)]
    pub wait: bool,
}

/// Changes, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ChangesAnswer {
    /// Changes that the client may see.
    #[n(0)]
    pub changes: Vec<ChangeNotice>,
    /// The position behind all of them, and behind those that the client may not see: `after` of the next query.
    #[n(1)]
    pub last: ChangePosition,
    /// Changes after the given position are not kept any more: all records must be listed anew.
    #[n(2)]
    pub reset: bool,
    /// There are more already.
    #[n(3)]
    pub more: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ChangeNotice {
    /// The position behind it.
    #[n(0)]
    pub at: ChangePosition,
    /// When.
    #[n(1)]
    pub time: Timestamp,
    /// The changed record, and the kind of its change.
    #[n(2)]
    pub subject: ChangedRecord,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum ChangedRecord {
    /// A job.
    #[n(0)]
    Job(#[n(0)] Box<ChangedJob>),
    /// A node.
    #[n(1)]
    Node(#[n(0)] ChangedNode),
    /// A partition; all of them and the nodes too if the name is empty, since the configuration was read again.
    #[n(2)]
    Partition(#[n(0)] String),
    /// A reservation.
    #[n(3)]
    Reservation(#[n(0)] String),
}

/// Kind of a job's change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum JobChangeKind {
    /// It was accepted.
    #[n(0)]
    Submitted,
    /// Its request, hold, priority or reason.
    #[default]
    #[n(1)]
    Updated,
    /// It has its allocation.
    #[n(2)]
    Started,
    /// It ends, and its nodes are being cleaned.
    #[n(3)]
    Ending,
    /// It has ended.
    #[n(4)]
    Ended,
    /// It waits again.
    #[n(5)]
    Requeued,
    /// It was stopped.
    #[n(6)]
    Suspended,
    /// It goes on.
    #[n(7)]
    Resumed,
    /// The controller has forgotten it; accounting has it.
    #[n(8)]
    Purged,
}

impl JobChangeKind {
    /// The word for it in the event stream.
    pub fn name(self) -> &'static str {
        match self {
            JobChangeKind::Submitted => "submitted",
            JobChangeKind::Updated => "updated",
            JobChangeKind::Started => "started",
            JobChangeKind::Ending => "ending",
            JobChangeKind::Ended => "ended",
            JobChangeKind::Requeued => "requeued",
            JobChangeKind::Suspended => "suspended",
            JobChangeKind::Resumed => "resumed",
            JobChangeKind::Purged => "purged",
        }
    }
}

/// A job as it was after a change.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ChangedJob {
    /// Kind of its change.
    #[n(0)]
    pub kind: JobChangeKind,
    /// Its number.
    #[n(1)]
    pub id: JobId,
    /// The number of its array, of a task or an array's record.
    #[n(2)]
    pub array: Option<JobId>,
    /// Its index there, of a task.
    #[n(3)]
    pub index: Option<u32>,
    /// Its owner.
    #[n(4)]
    pub uid: u32,
    /// The owner's name.
    #[n(5)]
    pub user: String,
    /// Its account; the owner's name where it has none.
    #[n(6)]
    pub account: String,
    /// Its partition.
    #[n(7)]
    pub partition: String,
    /// The begin of its name.
    #[n(8)]
    pub name: String,
    /// Its state.
    #[n(9)]
    pub state: JobState,
    /// Its nodes are being cleaned.
    #[n(10)]
    pub completing: bool,
    /// Why it waits, or why it ended.
    #[n(11)]
    pub reason: Reason,
}

/// A node as it was after a change.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ChangedNode {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its base state and flags, with `+` between them; empty: it is in listings no more.
    #[n(1)]
    pub state: String,
    /// The begin of the reason that an administrator or the system gave.
    #[n(2)]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_in_order_and_read_as_they_are_written() {
        let positions = ["7.0", "7.1", "7", "8.0", "8"];
        let read: Vec<ChangePosition> = positions.iter().map(|p| p.parse().unwrap()).collect();
        assert!(read.is_sorted());
        let written: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(written, positions);
        for bad in [
            "",
            ".",
            "7.",
            "-1",
            "+1",
            "7.1.1",
            "18446744073709551616",
            "7.4294967296",
        ] {
            assert_eq!(bad.parse::<ChangePosition>(), Err(PositionError), "{bad}");
        }
    }
}
