//! Triggers (`strigger`): programs that the controller runs on an event of a job, of nodes or of itself. This module
//! has their records and requests; the core decides when they fire.

use crate::ids::JobId;
use crate::limits::HOSTLIST_BYTES_MAX;
use crate::time::Timestamp;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Triggers of all users, with programs of such that were not begun. Root and SlurmUser have the last quarter to themselves.
pub const TRIGGERS_MAX: usize = 4096;
/// Triggers of a user who is neither root nor SlurmUser, with programs of such that were not begun.
pub const TRIGGERS_OF_USER_MAX: usize = 128;
/// Triggers for idle nodes: each is looked at whenever a node begins or ceases to be idle.
pub const IDLE_TRIGGERS_MAX: usize = 64;
/// Names of nodes in all triggers.
pub const TRIGGER_NODES_MAX: usize = 1 << 18;
/// Bytes of the texts of all triggers.
pub const TRIGGER_BYTES_MAX: usize = 8 << 20;
/// Bytes of the texts of a user's triggers, with those of programs that were not started, when a trigger is added.
pub const TRIGGER_BYTES_OF_USER_MAX: usize = 512 << 10;
/// Bytes of these texts when a trigger fires. Its program is not run where they would have more: arguments name nodes, and may be long.
pub const TRIGGER_RUN_BYTES_OF_USER_MAX: usize = 2 * TRIGGER_BYTES_OF_USER_MAX;
/// Bytes of a program with its arguments.
pub const TRIGGER_PROGRAM_BYTES_MAX: usize = 16 << 10;
/// Divisor: a user who is neither root nor SlurmUser has at most this part of triggers for idle nodes and of names.
pub const TRIGGER_USER_PART: usize = 8;
/// The most that an offset may be, in seconds, before or after the event; from Slurm.
pub const TRIGGER_OFFSET_MAX_S: i32 = 32_000;
/// Seconds between two comparisons of events of nodes with triggers; from Slurm.
pub const TRIGGER_PERIOD_S: u64 = 15;

/// Events that a trigger is for, as bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate,
)]
#[cbor(transparent)]
pub struct TriggerEvents(#[n(0)] pub u32);

macro_rules! events {
    ($($(#[doc = $doc:literal])* $bit:literal $name:ident = $word:literal;)*) => {
        impl TriggerEvents {
            $($(#[doc = $doc])* pub const $name: TriggerEvents = TriggerEvents(1 << $bit);)*
            /// Each with the word for it in listings.
            pub const WORDS: &'static [(TriggerEvents, &'static str)] =
                &[$((TriggerEvents::$name, $word),)*];
        }
    };
}

events! {
    /// A node goes DOWN.
    0 DOWN = "down";
    /// A node that was DOWN is in service again.
    1 UP = "up";
    /// A node is DRAINED.
    2 DRAINED = "drained";
    /// A node is DRAINING.
    3 DRAINING = "draining";
    /// A node is set to FAIL.
    4 FAIL = "fail";
    /// A node is set to RESUME.
    5 RESUME = "resume";
    /// A node has been idle for a time.
    6 IDLE = "idle";
    /// The configuration was read, or the state of a node was changed.
    7 RECONFIG = "reconfig";
    /// A job is over.
    8 FINI = "fini";
    /// A job reaches its time limit.
    9 TIME = "time";
    /// The primary controller fails.
    10 CONTROLLER_FAILS = "primary_slurmctld_failure";
    /// The primary controller works again.
    11 CONTROLLER_RESUMES = "primary_slurmctld_resumed_operation";
    /// The primary controller has control again.
    12 CONTROLLER_CONTROLS = "primary_slurmctld_resumed_control";
    /// Unwritten accounting data is too much.
    13 ACCOUNTING_FULL = "primary_slurmctld_acct_buffer_full";
    /// The backup controller fails.
    14 BACKUP_FAILS = "backup_slurmctld_failure";
    /// The backup controller works again.
    15 BACKUP_RESUMES = "backup_slurmctld_resumed_operation";
    /// The backup controller has control.
    16 BACKUP_CONTROLS = "backup_slurmctld_assumed_control";
    /// slurmdbd fails.
    17 ACCOUNTING_FAILS = "primary_slurmdbd_failure";
    /// slurmdbd works again.
    18 ACCOUNTING_RESUMES = "primary_slurmdbd_resumed_operation";
    /// The database fails.
    19 DATABASE_FAILS = "primary_database_failure";
    /// The database works again.
    20 DATABASE_RESUMES = "primary_database_resumed_operation";
    /// A burst buffer fails: there are none.
    21 BURST_BUFFER = "burst_buffer";
    /// The other events are meant of front end nodes: there are none.
    22 FRONT_END = "front_end";
}

impl TriggerEvents {
    /// None.
    pub const NONE: TriggerEvents = TriggerEvents(0);
    /// Events of nodes that are recorded until they are compared with triggers.
    pub const OF_NODES: TriggerEvents = TriggerEvents::DOWN
        .with(TriggerEvents::UP)
        .with(TriggerEvents::DRAINED)
        .with(TriggerEvents::DRAINING)
        .with(TriggerEvents::FAIL)
        .with(TriggerEvents::RESUME);
    /// Events of controllers.
    pub const OF_CONTROLLERS: TriggerEvents = TriggerEvents::CONTROLLER_FAILS
        .with(TriggerEvents::CONTROLLER_RESUMES)
        .with(TriggerEvents::CONTROLLER_CONTROLS)
        .with(TriggerEvents::ACCOUNTING_FULL)
        .with(TriggerEvents::BACKUP_FAILS)
        .with(TriggerEvents::BACKUP_RESUMES)
        .with(TriggerEvents::BACKUP_CONTROLS);
    /// Events of slurmdbd.
    pub const OF_ACCOUNTING: TriggerEvents =
        TriggerEvents::ACCOUNTING_FAILS.with(TriggerEvents::ACCOUNTING_RESUMES);
    /// Events of the database.
    pub const OF_DATABASE: TriggerEvents =
        TriggerEvents::DATABASE_FAILS.with(TriggerEvents::DATABASE_RESUMES);
    /// Events of jobs alone.
    pub const OF_JOBS: TriggerEvents = TriggerEvents::FINI.with(TriggerEvents::TIME);
    /// All that are known.
    pub const ALL: TriggerEvents = TriggerEvents((1 << 23) - 1);

    /// These and others.
    #[must_use]
    pub const fn with(self, others: TriggerEvents) -> TriggerEvents {
        TriggerEvents(self.0 | others.0)
    }

    /// Events that both sets have.
    #[must_use]
    pub const fn among(self, others: TriggerEvents) -> TriggerEvents {
        TriggerEvents(self.0 & others.0)
    }

    /// Whether one of them is among others.
    pub const fn meets(self, others: TriggerEvents) -> bool {
        self.0 & others.0 != 0
    }

    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = TriggerEvents> {
        let all = (0..u32::BITS).map(|bit| TriggerEvents(1 << bit));
        all.filter(move |one| self.meets(*one))
    }

    /// These without those of others.
    #[must_use]
    pub const fn without(self, others: TriggerEvents) -> TriggerEvents {
        TriggerEvents(self.0 & !others.0)
    }

    /// The word for it in listings; Slurm has none for several.
    pub fn word(self) -> &'static str {
        let mut words = TriggerEvents::WORDS.iter();
        let event = self.without(TriggerEvents::FRONT_END);
        let known = words.find(|(known, _)| *known == event);
        known.map_or("unknown", |(_, word)| word)
    }

    /// Its subject where no job is named: the word in listings.
    pub fn resource(self) -> &'static str {
        if self.meets(TriggerEvents::OF_DATABASE) {
            "database"
        } else if self.meets(TriggerEvents::OF_ACCOUNTING) {
            "slurmdbd"
        } else if self.meets(TriggerEvents::OF_CONTROLLERS) {
            "slurmctld"
        } else if self.meets(TriggerEvents::BURST_BUFFER) {
            "other"
        } else if self.meets(TriggerEvents::FRONT_END) {
            "front_end"
        } else {
            "node"
        }
    }
}

/// A trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Trigger {
    /// Its number.
    #[n(0)]
    pub id: u32,
    /// User of the program.
    #[n(1)]
    pub uid: u32,
    /// The group that the program runs with.
    #[n(2)]
    pub gid: u32,
    /// When it fires.
    #[n(3)]
    pub events: TriggerEvents,
    /// The job that it is about.
    #[n(4)]
    pub job: Option<JobId>,
    /// The nodes that it is about, as they were written; empty: all.
    #[n(5)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodes: String,
    /// Seconds after the event; negative: before it.
    #[n(6)]
    pub offset_s: i32,
    /// The program with its arguments.
    #[n(7)]
    #[valid(max_bytes = TRIGGER_PROGRAM_BYTES_MAX)]
    pub program: String,
    /// It stays after the event.
    #[n(8)]
    pub permanent: bool,
    /// When it fired last, if it is permanent.
    #[n(9)]
    pub fired: Option<Timestamp>,
}

impl Trigger {
    /// Its subject: the word in listings.
    pub fn resource(&self) -> &'static str {
        match self.job {
            Some(_) => "job",
            None => self.events.resource(),
        }
    }

    /// Events on which it fires: none of what there is not.
    pub fn fires_on(&self) -> TriggerEvents {
        match self.resource() {
            "other" | "front_end" => TriggerEvents::NONE,
            _ => self.events,
        }
    }

    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.nodes.len() + self.program.len()
    }

    /// Whether another asks for the same.
    pub fn is_same(&self, other: &Trigger) -> bool {
        let of = |trigger: &Trigger| (trigger.uid, trigger.events, trigger.job, trigger.offset_s);
        of(self) == of(other) && self.nodes == other.nodes && self.program == other.program
    }
}

/// A program of a trigger that fired: by the trigger, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct TriggerRunId {
    /// The trigger.
    #[n(0)]
    pub trigger: u32,
    /// When it fired.
    #[n(1)]
    pub fired: Timestamp,
}

/// A program of a trigger that fired, until it was started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TriggerRun {
    /// Its number.
    #[n(0)]
    pub id: TriggerRunId,
    /// User of the program.
    #[n(1)]
    pub uid: u32,
    /// The group that it runs with.
    #[n(2)]
    pub gid: u32,
    /// The program with its arguments.
    #[n(3)]
    pub program: String,
    /// The last argument: a job, nodes or an event.
    #[n(4)]
    pub argument: String,
    /// When it is to be run.
    #[n(5)]
    pub due: Timestamp,
    /// That time has come.
    #[n(6)]
    pub begun: bool,
}

impl TriggerRun {
    /// Bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.program.len() + self.argument.len()
    }
}

/// `strigger --set` and `--clear`.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum TriggerAsk {
    /// Makes a trigger.
    #[n(0)]
    Set {
        /// When it fires.
        #[n(0)]
        events: TriggerEvents,
        /// The job that it is about.
        #[n(1)]
        job: Option<JobId>,
        /// The nodes that it is about; empty: all.
        #[n(2)]
        #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
        nodes: String,
        /// Seconds after the event.
        #[n(3)]
        offset_s: i32,
        /// The program with its arguments.
        #[n(4)]
        #[valid(max_bytes = TRIGGER_PROGRAM_BYTES_MAX)]
        program: String,
        /// It stays after the event.
        #[n(5)]
        permanent: bool,
    },
    /// Removes those of which all that is given holds.
    #[n(1)]
    Clear {
        /// Its number.
        #[n(0)]
        id: Option<u32>,
        /// The job that they are about.
        #[n(1)]
        job: Option<JobId>,
        /// User of the triggers.
        #[n(2)]
        uid: Option<u32>,
    },
}

/// Report of the controller about triggers and their events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerReport {
    /// Something happened to the controller, to accounting or to its database.
    Happened(TriggerEvents),
    /// The program of a trigger was started, or could not be.
    Started(TriggerRunId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_events_have_a_word_and_several_have_none() {
        assert_eq!(
            TriggerEvents::ALL.each().count(),
            TriggerEvents::WORDS.len()
        );
        for (event, word) in TriggerEvents::WORDS {
            // It marks the subject of other events.
            let is_mark = *event == TriggerEvents::FRONT_END;
            assert!(is_mark || event.word() == *word, "{word}");
            assert!(event.meets(TriggerEvents::ALL));
        }
        let of_front_end = TriggerEvents::DOWN.with(TriggerEvents::FRONT_END);
        assert_eq!(of_front_end.word(), TriggerEvents::DOWN.word());
        let both = TriggerEvents::DOWN.with(TriggerEvents::UP);
        assert_eq!((both.word(), both.resource()), ("unknown", "node"));
        let of = |event: TriggerEvents| event.with(TriggerEvents::DOWN).resource();
        assert_eq!(of(TriggerEvents::ACCOUNTING_FULL), "slurmctld");
        assert_eq!(of(TriggerEvents::ACCOUNTING_FAILS), "slurmdbd");
        assert_eq!(of(TriggerEvents::DATABASE_RESUMES), "database");
    }
}
