//! Classes of faults beyond crashes and broken connections. Each seed draws which of them its cluster has, so that
//! every class meets every other one and some seeds have none.

use crate::random::Random;
use std::fmt;
use std::str::FromStr;

/// A class of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultClass {
    /// Users who send what the commands never send.
    HostileClients,
    /// Nodes that report events which did not happen, and connect twice.
    LyingNodes,
    /// Single threads of the controller end or panic.
    DyingThreads,
    /// Operations of the controller's storage fail with EMFILE, ENOSPC or EIO, once or for a while.
    FailingStorage,
    /// Syncs take seconds.
    SlowSyncs,
    /// The controller's clock is set by hours or days.
    ClockSteps,
    /// Nodes cannot write their records, or start processes.
    FailingNodes,
    /// Agents, launchers, step daemons and sruns die when something has arrived at one of them.
    DyingProcesses,
    /// Messages between controller and agents, and among agents, get lost, come twice or late.
    UnreliableMessages,
}

impl FaultClass {
    /// All of them.
    pub const ALL: [FaultClass; 9] = [
        FaultClass::HostileClients,
        FaultClass::LyingNodes,
        FaultClass::DyingThreads,
        FaultClass::FailingStorage,
        FaultClass::SlowSyncs,
        FaultClass::ClockSteps,
        FaultClass::FailingNodes,
        FaultClass::DyingProcesses,
        FaultClass::UnreliableMessages,
    ];

    fn name(self) -> &'static str {
        match self {
            FaultClass::HostileClients => "hostile-clients",
            FaultClass::LyingNodes => "lying-nodes",
            FaultClass::DyingThreads => "dying-threads",
            FaultClass::FailingStorage => "failing-storage",
            FaultClass::SlowSyncs => "slow-syncs",
            FaultClass::ClockSteps => "clock-steps",
            FaultClass::FailingNodes => "failing-nodes",
            FaultClass::DyingProcesses => "dying-processes",
            FaultClass::UnreliableMessages => "unreliable-messages",
        }
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FaultClass {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultClass, String> {
        let found = FaultClass::ALL.into_iter().find(|c| c.name() == text);
        found.ok_or_else(|| {
            let names = FaultClass::ALL.map(FaultClass::name).join(", ");
            format!("there is no class of faults '{text}'; there are {names}")
        })
    }
}

/// The classes that a seed has: none in one of four seeds, else about half of them.
pub(crate) fn draw(random: &mut Random) -> Vec<FaultClass> {
    if random.one_in(4) {
        return Vec::new();
    }
    let mut classes = FaultClass::ALL.to_vec();
    classes.retain(|_| random.one_in(2));
    classes
}
