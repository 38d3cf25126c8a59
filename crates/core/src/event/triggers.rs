//! Changes of triggers (`strigger`).

use minicbor::{Decode, Encode};
use muster_model::time::Timestamp;
use muster_model::trigger::{Trigger, TriggerEvents, TriggerRunId};

/// One change of triggers, or of the events recorded for them.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum TriggerChange {
    /// A trigger was made.
    #[n(0)]
    Set(#[n(0)] Box<Trigger>),
    /// Triggers were removed: by users, or since their job is over.
    #[n(1)]
    Removed(#[n(0)] Vec<u32>),
    /// A trigger fires: its program is run once this is durable, or later. The trigger goes unless it is permanent.
    #[n(2)]
    Fired {
        /// The trigger.
        #[n(0)]
        trigger: u32,
        /// The last argument of the program.
        #[n(1)]
        argument: String,
        /// When it is to be run.
        #[n(2)]
        due: Timestamp,
    },
    /// The time to run a program has come.
    #[n(3)]
    Begun(#[n(0)] TriggerRunId),
    /// A program was started. From here on it is not started again.
    #[n(4)]
    Started(#[n(0)] TriggerRunId),
    /// Something happened to the controller, to accounting or to its database, for which there are triggers.
    #[n(5)]
    Happened(#[n(0)] TriggerEvents),
    /// The recorded events have been compared with triggers.
    #[n(6)]
    Checked,
}
