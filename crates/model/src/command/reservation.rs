//! Requests about reservations.

use crate::limits::{HOSTLIST_BYTES_MAX, UTC_OFFSET_S_MAX};
use crate::reservation::Flags;
use crate::time::{TimeLimit, Timestamp};
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Fields of `scontrol create reservation` and `scontrol update reservation` that were given. Times are read by the
/// client, which knows the user's zone.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ReservationAsk {
    /// `ReservationName`; made up for a new one if absent.
    #[n(0)]
    pub name: Option<String>,
    /// `StartTime`.
    #[n(1)]
    pub start: Option<Timestamp>,
    /// `EndTime`.
    #[n(2)]
    pub end: Option<Timestamp>,
    /// `Duration`.
    #[n(3)]
    pub duration: Option<TimeLimit>,
    /// `Nodes`: a hostlist or `ALL`; empty takes the naming back.
    #[n(4)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodes: Option<String>,
    /// `NodeCnt`.
    #[n(5)]
    pub node_count: Option<u32>,
    /// `CoreCnt`: one number for all, or one for each node.
    #[n(6)]
    pub core_counts: Vec<u32>,
    /// `PartitionName`.
    #[n(7)]
    pub partition: Option<String>,
    /// `Features`; empty clears.
    #[n(8)]
    pub features: Option<String>,
    /// `Users`.
    #[n(9)]
    pub users: Option<NameList>,
    /// `Accounts`.
    #[n(10)]
    pub accounts: Option<NameList>,
    /// `Groups`.
    #[n(11)]
    pub groups: Option<NameList>,
    /// `Licenses`.
    #[n(12)]
    pub licenses: Option<String>,
    /// Flags to set.
    #[n(13)]
    pub flags: Flags,
    /// Flags to take away.
    #[n(14)]
    pub flags_removed: Flags,
    /// `MaxStartDelay`, seconds.
    #[n(15)]
    pub max_start_delay_s: Option<u32>,
    /// `PURGE_COMP=`, seconds.
    #[n(16)]
    pub purge_s: Option<u32>,
    /// `Comment`.
    #[n(17)]
    pub comment: Option<String>,
    /// Seconds east of UTC where the user is.
    #[n(18)]
    #[valid(min = -UTC_OFFSET_S_MAX, max = UTC_OFFSET_S_MAX)]
    pub utc_offset_s: i32,
    /// `Skip`: go on to the next occurrence.
    #[n(19)]
    pub skip: bool,
    /// `Duration+=`, `Duration-=`: it is made longer or shorter by `duration`.
    #[n(20)]
    pub duration_sign: Option<char>,
}

/// A list of names as reservations take it: all anew, or some more or fewer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum NameList {
    /// `Users=a,b`.
    #[n(0)]
    Only(#[n(0)] Vec<String>),
    /// `Users=-a,-b`: all but these.
    #[n(1)]
    AllBut(#[n(0)] Vec<String>),
    /// `Users+=a`.
    #[n(2)]
    Add(#[n(0)] Vec<String>),
    /// `Users-=a`.
    #[n(3)]
    Remove(#[n(0)] Vec<String>),
}
