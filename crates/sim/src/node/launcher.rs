//! The process of a launcher: the machine, and what its executor holds for it.

use super::agent::ToLauncher;
use super::machine::ChannelId;
use muster_node_core::launcher::interface::{Event, StepdConnId, Timer};
use muster_node_core::launcher::{Launcher, UserAccount};
use muster_node_core::messages::{LauncherEvent, StepdEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A connection to a step daemon.
#[derive(Debug)]
pub(crate) struct StepdConnection {
    pub(crate) channel: ChannelId,
    /// Received, and not looked at.
    pub(crate) input: VecDeque<StepdEvent>,
    pub(crate) is_listening: bool,
    pub(crate) is_closed: bool,
}

impl StepdConnection {
    /// By this channel.
    pub(crate) fn new(channel: ChannelId) -> StepdConnection {
        StepdConnection {
            channel,
            input: VecDeque::new(),
            is_listening: false,
            is_closed: false,
        }
    }
}

/// See the module.
pub(crate) struct LauncherProcess {
    pub(crate) machine: Launcher,
    /// Which launcher of this node it is.
    pub(crate) life: u64,
    /// Answers to actions, which come before all other events.
    pub(crate) events: VecDeque<Event>,
    /// Messages from agents, with the link of each.
    pub(crate) inbox: VecDeque<(u64, ToLauncher)>,
    pub(crate) timers: BTreeMap<Timer, u64>,
    pub(crate) watched: BTreeSet<i32>,
    /// Watched processes that have ended, with the known status.
    pub(crate) watched_ended: BTreeMap<i32, Option<i32>>,
    pub(crate) helpers: BTreeSet<i32>,
    pub(crate) stepds: BTreeMap<StepdConnId, StepdConnection>,
    /// Daemons that may have sent more than was delivered.
    pub(crate) unread: Vec<StepdConnId>,
    /// Groups that are looked up.
    pub(crate) look_ups: BTreeSet<UserAccount>,
    pub(crate) output: Vec<LauncherEvent>,
    /// The link of the agent that is attached.
    pub(crate) attached: Option<u64>,
    pub(crate) last_id: u64,
    /// Number of actions before which it is killed.
    pub(crate) dies_in: Option<u64>,
}

impl LauncherProcess {
    pub(crate) fn new(machine: Launcher, life: u64) -> LauncherProcess {
        LauncherProcess {
            machine,
            life,
            events: VecDeque::new(),
            inbox: VecDeque::new(),
            timers: BTreeMap::new(),
            watched: BTreeSet::new(),
            watched_ended: BTreeMap::new(),
            helpers: BTreeSet::new(),
            stepds: BTreeMap::new(),
            unread: Vec::new(),
            look_ups: BTreeSet::new(),
            output: Vec::new(),
            attached: None,
            last_id: 0,
            dies_in: None,
        }
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The timer that is due first of those that are.
    pub(crate) fn take_due(&mut self, mono_ms: u64) -> Option<Timer> {
        let due = self.timers.iter().filter(|(_, at)| **at <= mono_ms);
        let (key, _) = due.min_by_key(|(_, at)| **at)?;
        let key = key.clone();
        self.timers.remove(&key);
        Some(key)
    }
}
