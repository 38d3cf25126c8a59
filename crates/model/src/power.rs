//! Power saving: nodes that idle are powered down by the site's program, and powered up when jobs are given to them.

use crate::node_state::StateFlag;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// Settings of power saving; only with both `SuspendProgram` and `ResumeProgram`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PowerConfig {
    /// `SuspendTime`, seconds that a node idles before it is powered down; absent: only when that is asked for.
    #[n(0)]
    pub suspend_time_s: Option<u32>,
    /// `SuspendTimeout`, seconds after which a node that is being powered down may be powered up again.
    #[n(1)]
    pub suspend_timeout_s: u32,
    /// `ResumeTimeout`, seconds that a node has to come up.
    #[n(2)]
    pub resume_timeout_s: u32,
    /// `SuspendRate`, nodes a minute; 0: any number.
    #[n(3)]
    pub suspend_rate: u32,
    /// `ResumeRate`, likewise.
    #[n(4)]
    pub resume_rate: u32,
    /// `SuspendExcNodes` with a count: this number of the usable ones of these nodes stays up.
    #[n(5)]
    pub keep: Vec<SuspendException>,
    /// `SuspendExcStates`, upper case.
    #[n(6)]
    pub except_states: Vec<String>,
}

/// `nid[10-20]:4` of `SuspendExcNodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SuspendException {
    /// Names of the nodes.
    #[n(0)]
    pub nodes: Vec<String>,
    /// Number of them that stays up.
    #[n(1)]
    pub count: u32,
}

/// Where a node is in power saving; a node that is up is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Power {
    /// It is powered down once no job is there and `SuspendRate` lets it be: `POWER_DOWN`, `!`.
    #[n(0)]
    DownWanted {
        /// It was drained for it (`POWER_DOWN_ASAP`), which ends with it.
        #[n(0)]
        drained: bool,
    },
    /// `SuspendProgram` was run: `POWERING_DOWN`, `%`.
    #[n(1)]
    GoingDown {
        /// When.
        #[n(0)]
        at: Timestamp,
        /// As above.
        #[n(1)]
        drained: bool,
    },
    /// `POWERED_DOWN`, `~`.
    #[n(2)]
    Down,
    /// It is powered up as soon as `ResumeRate` lets it be: `POWERING_UP`, `#`.
    #[n(3)]
    UpWanted,
    /// `ResumeProgram` was run, its agent has not come yet: `POWERING_UP`, `#`.
    #[n(4)]
    GoingUp {
        /// When.
        #[n(0)]
        at: Timestamp,
    },
}

impl Power {
    /// The node is not there, but is brought up for a job that is given to it.
    pub fn is_powered_down(self) -> bool {
        match self {
            Power::Down | Power::UpWanted | Power::GoingUp { .. } => true,
            Power::DownWanted { .. } | Power::GoingDown { .. } => false,
        }
    }

    /// The flag of the node's state.
    pub fn flag(self) -> StateFlag {
        match self {
            Power::DownWanted { .. } => StateFlag::PowerDown,
            Power::GoingDown { .. } => StateFlag::PoweringDown,
            Power::Down => StateFlag::PoweredDown,
            Power::UpWanted | Power::GoingUp { .. } => StateFlag::PoweringUp,
        }
    }
}

/// The reason why a job that has its nodes is not launched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PowerUpWait {
    /// Nodes that are being powered up.
    #[n(0)]
    Nodes,
    /// Nodes that power up, and `PrologSlurmctld`.
    #[n(1)]
    NodesAndProlog,
}

/// Numbers of nodes powered down and up in the running minute; forgotten with the controller.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerRates {
    minute: i64,
    down: u32,
    up: u32,
}

impl PowerRates {
    /// One more.
    pub fn count(&mut self, at: Timestamp, up: bool) {
        let minute = at.0.div_euclid(60_000);
        if minute != self.minute {
            *self = PowerRates {
                minute,
                ..PowerRates::default()
            };
        }
        match up {
            true => self.up += 1,
            false => self.down += 1,
        }
    }

    /// Number of further nodes that may be powered now.
    pub fn left(&self, now: Timestamp, up: bool, rate: u32) -> u32 {
        let used = match (now.0.div_euclid(60_000) == self.minute, up) {
            (false, _) => 0,
            (true, true) => self.up,
            (true, false) => self.down,
        };
        match rate {
            0 => u32::MAX,
            rate => rate.saturating_sub(used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_by_the_minute() {
        let mut rates = PowerRates::default();
        let at = |s: i64| Timestamp(s * 1000);
        for second in [61, 70] {
            rates.count(at(second), false);
        }
        rates.count(at(80), true);
        assert_eq!(rates.left(at(119), false, 3), 1);
        assert_eq!(rates.left(at(119), true, 3), 2);
        assert_eq!(rates.left(at(120), false, 3), 3);
        assert_eq!(rates.left(at(119), false, 0), u32::MAX);
        assert_eq!(rates.left(at(119), false, 1), 0);
    }
}
