//! The state of a node as Slurm names it: a base state, and flags beside it. It is derived from the node's record and never
//! stored. slurm.conf gives the state that a node begins in.
//!
//! A new state is a flag here, with its name and mark, and what makes it so in `Node::state`; listings, JSON, sinfo's
//! `--states` and `SuspendExcStates` follow.

use crate::validate::{Bounds, Invalid, Validate};
use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode, Encoder, encode};
use std::fmt;

/// Base states, in Slurm's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BaseState {
    /// Has not registered yet.
    Unknown,
    /// Not in use.
    Down,
    /// No job.
    Idle,
    /// No CPU is free.
    Allocated,
    /// Some CPUs are free.
    Mixed,
    /// Not there yet (`State=FUTURE`).
    Future,
}

impl BaseState {
    /// All of them.
    pub const ALL: [BaseState; 6] = [
        BaseState::Unknown,
        BaseState::Down,
        BaseState::Idle,
        BaseState::Allocated,
        BaseState::Mixed,
        BaseState::Future,
    ];

    /// As `scontrol show node` has it.
    pub fn name(self) -> &'static str {
        match self {
            BaseState::Unknown => "UNKNOWN",
            BaseState::Down => "DOWN",
            BaseState::Idle => "IDLE",
            BaseState::Allocated => "ALLOCATED",
            BaseState::Mixed => "MIXED",
            BaseState::Future => "FUTURE",
        }
    }

    /// In one word, long and short, as sinfo's `%T` and `%t` have it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            BaseState::Unknown => ("unknown", "unk"),
            BaseState::Down => ("down", "down"),
            BaseState::Idle => ("idle", "idle"),
            BaseState::Allocated => ("allocated", "alloc"),
            BaseState::Mixed => ("mixed", "mix"),
            BaseState::Future => ("future", "futr"),
        }
    }

    /// As `slurm.h` numbers it.
    fn number(self) -> u32 {
        match self {
            BaseState::Unknown => 0,
            BaseState::Down => 1,
            BaseState::Idle => 2,
            BaseState::Allocated => 3,
            BaseState::Mixed => 5,
            BaseState::Future => 6,
        }
    }
}

/// Flags beside the base state, in Slurm's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateFlag {
    /// A reservation for maintenance has it now.
    Maintenance,
    /// A reservation has it now.
    Reserved,
    /// Takes no new jobs.
    Drain,
    /// A job that holds it is completing.
    Completing,
    /// Its agent is not connected.
    NotResponding,
    /// Expected to fail, takes no new jobs.
    Fail,
    /// A reboot was asked for.
    RebootRequested,
    /// `RebootProgram` was ordered.
    RebootIssued,
    /// Powered up when it is needed (`State=CLOUD`).
    Cloud,
    /// It was FUTURE, and a host has taken it (`slurmd -F`).
    DynamicFuture,
    /// It is in no file (`slurmd -Z`, `scontrol create NodeName=`).
    DynamicNorm,
    /// To be powered down once no job is there.
    PowerDown,
    /// Being powered down.
    PoweringDown,
    /// Powered down.
    PoweredDown,
    /// Being powered up.
    PoweringUp,
}

impl StateFlag {
    /// All of them, in Slurm's order.
    pub const ALL: [StateFlag; 15] = [
        StateFlag::Maintenance,
        StateFlag::Reserved,
        StateFlag::Drain,
        StateFlag::Completing,
        StateFlag::NotResponding,
        StateFlag::Fail,
        StateFlag::RebootRequested,
        StateFlag::RebootIssued,
        StateFlag::Cloud,
        StateFlag::DynamicFuture,
        StateFlag::DynamicNorm,
        StateFlag::PowerDown,
        StateFlag::PoweringDown,
        StateFlag::PoweredDown,
        StateFlag::PoweringUp,
    ];

    /// As `scontrol show node` has it.
    pub fn name(self) -> &'static str {
        match self {
            StateFlag::Maintenance => "MAINTENANCE",
            StateFlag::Reserved => "RESERVED",
            StateFlag::Drain => "DRAIN",
            StateFlag::Completing => "COMPLETING",
            StateFlag::NotResponding => "NOT_RESPONDING",
            StateFlag::Fail => "FAIL",
            StateFlag::RebootRequested => "REBOOT_REQUESTED",
            StateFlag::RebootIssued => "REBOOT_ISSUED",
            StateFlag::Cloud => "CLOUD",
            StateFlag::DynamicFuture => "DYNAMIC_FUTURE",
            StateFlag::DynamicNorm => "DYNAMIC_NORM",
            StateFlag::PowerDown => "POWER_DOWN",
            StateFlag::PoweringDown => "POWERING_DOWN",
            StateFlag::PoweredDown => "POWERED_DOWN",
            StateFlag::PoweringUp => "POWERING_UP",
        }
    }

    /// The bit by which Slurm orders nodes, if it is one of these.
    fn order_bit(self) -> u32 {
        match self {
            StateFlag::Reserved => 1 << 6,
            StateFlag::Maintenance => 1 << 8,
            StateFlag::Drain => 1 << 9,
            StateFlag::Completing => 1 << 10,
            StateFlag::NotResponding => 1 << 11,
            StateFlag::Fail => 1 << 13,
            StateFlag::RebootRequested
            | StateFlag::RebootIssued
            | StateFlag::Cloud
            | StateFlag::DynamicFuture
            | StateFlag::DynamicNorm
            | StateFlag::PowerDown
            | StateFlag::PoweringDown
            | StateFlag::PoweredDown
            | StateFlag::PoweringUp => 0,
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Whether a node takes jobs: it does with none of these.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// DOWN.
    pub down: bool,
    /// DRAIN.
    pub drain: bool,
    /// FAIL.
    pub fail: bool,
}

impl ServiceState {
    /// Whether it takes jobs.
    pub fn is_in_service(self) -> bool {
        self == ServiceState::default()
    }

    /// All of them, in order.
    pub fn all() -> [ServiceState; 8] {
        std::array::from_fn(|bits| ServiceState {
            down: bits & 1 != 0,
            drain: bits & 2 != 0,
            fail: bits & 4 != 0,
        })
    }
}

impl fmt::Debug for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.down, "DOWN"),
            (self.drain, "DRAIN"),
            (self.fail, "FAIL"),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let names: Vec<&str> = set.map(|(_, name)| *name).collect();
        match names.is_empty() {
            true => f.write_str("InService"),
            false => f.write_str(&names.join("+")),
        }
    }
}

/// A node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The base state.
    pub base: BaseState,
    flags: u32,
}

impl NodeState {
    /// A base state with flags.
    pub fn new(base: BaseState, flags: impl IntoIterator<Item = StateFlag>) -> NodeState {
        let flags = flags.into_iter().fold(0, |bits, flag| bits | flag.bit());
        NodeState { base, flags }
    }

    /// Whether a flag is set.
    pub fn has(self, flag: StateFlag) -> bool {
        self.flags & flag.bit() != 0
    }

    /// The flags that are set, in Slurm's order.
    pub fn flags(self) -> impl Iterator<Item = StateFlag> {
        let all = StateFlag::ALL.into_iter();
        all.filter(move |flag| self.has(*flag))
    }

    /// Whether jobs run on it or are being cleaned up.
    pub fn is_busy(self) -> bool {
        self.has(StateFlag::Completing)
            || matches!(self.base, BaseState::Allocated | BaseState::Mixed)
    }

    /// Whether CPUs that no job holds can be given to one.
    pub fn offers_cpus(self) -> bool {
        let is_there = match self.base {
            BaseState::Idle | BaseState::Allocated | BaseState::Mixed => true,
            BaseState::Down | BaseState::Unknown | BaseState::Future => false,
        };
        is_there && !self.has(StateFlag::Drain)
    }

    /// In one word, long and short, as sinfo's `%T` and `%t` have it, without the mark.
    pub fn words(self) -> (&'static str, &'static str) {
        let completing = self.has(StateFlag::Completing);
        if self.has(StateFlag::Drain) {
            return match self.is_busy() {
                true => ("draining", "drng"),
                false => ("drained", "drain"),
            };
        }
        if self.has(StateFlag::Fail) {
            return match completing || self.base == BaseState::Allocated {
                true => ("failing", "failg"),
                false => ("fail", "fail"),
            };
        }
        match self.base {
            BaseState::Down => self.base.words(),
            BaseState::Allocated if completing => ("allocated+", "alloc+"),
            BaseState::Allocated => self.base.words(),
            _ if completing => ("completing", "comp"),
            BaseState::Idle if self.has(StateFlag::Maintenance) => ("maint", "maint"),
            BaseState::Idle if self.has(StateFlag::Reserved) => ("reserved", "resv"),
            base => base.words(),
        }
    }

    /// The character that sinfo puts behind the word.
    pub fn mark(self) -> Option<char> {
        let marks = [
            (StateFlag::RebootIssued, '^'),
            (StateFlag::RebootRequested, '@'),
            (StateFlag::PowerDown, '!'),
            (StateFlag::PoweringDown, '%'),
            (StateFlag::PoweredDown, '~'),
            (StateFlag::PoweringUp, '#'),
            (StateFlag::NotResponding, '*'),
        ];
        let mark = marks.into_iter().find(|(flag, _)| self.has(*flag));
        let in_maintenance = self.has(StateFlag::Maintenance) && self.base != BaseState::Idle;
        mark.map(|(_, mark)| mark)
            .or_else(|| in_maintenance.then_some('$'))
    }

    /// `IDLE+DRAIN`.
    pub fn write_complete(self, out: &mut String) {
        out.push_str(self.base.name());
        for flag in self.flags() {
            out.push('+');
            out.push_str(flag.name());
        }
    }

    /// The number that Slurm orders nodes by: the base state, with bits for flags.
    pub fn order(self) -> u32 {
        let flags = self.flags();
        flags.fold(self.base.number(), |bits, flag| bits | flag.order_bit())
    }
}

/// Pattern by which `sinfo --states` and `SuspendExcStates` select nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePattern {
    /// A base state; a node with some CPUs in use counts as allocated, too, as in Slurm.
    Base(BaseState),
    /// A flag.
    Flag(StateFlag),
    /// Drained, and no job is there.
    Drained,
    /// Drained, and jobs are there.
    Draining,
    /// A state of Slurm that nodes of this version are never in.
    Never,
}

impl StatePattern {
    /// Names of sinfo(1), upper case.
    pub const NAMES: &[(&str, StatePattern)] = &[
        ("UNKNOWN", StatePattern::Base(BaseState::Unknown)),
        ("UNK", StatePattern::Base(BaseState::Unknown)),
        ("DOWN", StatePattern::Base(BaseState::Down)),
        ("IDLE", StatePattern::Base(BaseState::Idle)),
        ("ALLOCATED", StatePattern::Base(BaseState::Allocated)),
        ("ALLOC", StatePattern::Base(BaseState::Allocated)),
        ("MIXED", StatePattern::Base(BaseState::Mixed)),
        ("MIX", StatePattern::Base(BaseState::Mixed)),
        ("FUTURE", StatePattern::Base(BaseState::Future)),
        ("FUTR", StatePattern::Base(BaseState::Future)),
        ("DRAIN", StatePattern::Flag(StateFlag::Drain)),
        ("DRAINED", StatePattern::Drained),
        ("DRAINING", StatePattern::Draining),
        ("DRNG", StatePattern::Draining),
        ("COMPLETING", StatePattern::Flag(StateFlag::Completing)),
        ("COMP", StatePattern::Flag(StateFlag::Completing)),
        ("FAIL", StatePattern::Flag(StateFlag::Fail)),
        ("NO_RESPOND", StatePattern::Flag(StateFlag::NotResponding)),
        (
            "NOT_RESPONDING",
            StatePattern::Flag(StateFlag::NotResponding),
        ),
        ("RESERVED", StatePattern::Flag(StateFlag::Reserved)),
        ("RESV", StatePattern::Flag(StateFlag::Reserved)),
        ("PLANNED", StatePattern::Never),
        ("PLND", StatePattern::Never),
        ("MAINT", StatePattern::Flag(StateFlag::Maintenance)),
        ("PERFCTRS", StatePattern::Never),
        ("NPC", StatePattern::Never),
        ("CLOUD", StatePattern::Flag(StateFlag::Cloud)),
        (
            "DYNAMIC_FUTURE",
            StatePattern::Flag(StateFlag::DynamicFuture),
        ),
        ("DYNAMIC_NORM", StatePattern::Flag(StateFlag::DynamicNorm)),
        ("POWER_DOWN", StatePattern::Flag(StateFlag::PowerDown)),
        ("POWERING_DOWN", StatePattern::Flag(StateFlag::PoweringDown)),
        ("POWERED_DOWN", StatePattern::Flag(StateFlag::PoweredDown)),
        ("POWER_UP", StatePattern::Flag(StateFlag::PoweringUp)),
        ("POWERING_UP", StatePattern::Flag(StateFlag::PoweringUp)),
        ("REBOOT_ISSUED", StatePattern::Flag(StateFlag::RebootIssued)),
        (
            "REBOOT_REQUESTED",
            StatePattern::Flag(StateFlag::RebootRequested),
        ),
        ("INVAL", StatePattern::Never),
        ("BLOCKED", StatePattern::Never),
    ];

    /// The pattern of a name, in any case.
    pub fn parse(name: &str) -> Option<StatePattern> {
        let is_it = |(known, _): &&(&str, StatePattern)| known.eq_ignore_ascii_case(name);
        StatePattern::NAMES.iter().find(is_it).map(|(_, p)| *p)
    }

    /// Whether a state fits.
    pub fn fits(self, state: NodeState) -> bool {
        match self {
            StatePattern::Base(BaseState::Allocated) => {
                matches!(state.base, BaseState::Allocated | BaseState::Mixed)
            }
            StatePattern::Base(base) => state.base == base,
            StatePattern::Flag(flag) => state.has(flag),
            StatePattern::Drained => state.has(StateFlag::Drain) && !state.is_busy(),
            StatePattern::Draining => state.has(StateFlag::Drain) && state.is_busy(),
            StatePattern::Never => false,
        }
    }
}

/// The state that a node begins in: `State` of its line in slurm.conf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialState {
    /// To be found out.
    #[default]
    Unknown,
    /// Powered down until it is needed.
    Cloud,
    /// Not in use.
    Down,
    /// Takes no jobs.
    Drain,
    /// Expected to fail, takes no jobs.
    Fail,
    /// Does not exist yet.
    Future,
}

impl InitialState {
    /// All of them.
    pub const ALL: [InitialState; 6] = [
        InitialState::Unknown,
        InitialState::Cloud,
        InitialState::Down,
        InitialState::Drain,
        InitialState::Fail,
        InitialState::Future,
    ];

    /// The word that slurm.conf has for it.
    pub fn name(self) -> &'static str {
        match self {
            InitialState::Unknown => "UNKNOWN",
            InitialState::Cloud => "CLOUD",
            InitialState::Down => "DOWN",
            InitialState::Drain => "DRAIN",
            InitialState::Fail => "FAIL",
            InitialState::Future => "FUTURE",
        }
    }

    /// Reads what slurm.conf(5) allows, in any case.
    pub fn parse(text: &str) -> Option<InitialState> {
        let text = text.to_ascii_uppercase();
        let name = match text.as_str() {
            "DRAINED" | "DRAINING" => "DRAIN",
            "FAILING" => "FAIL",
            other => other,
        };
        let mut all = InitialState::ALL.into_iter();
        all.find(|state| state.name() == name)
    }
}

/// Read from a word that is one.
impl Validate for InitialState {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

/// As its word.
impl<C> Encode<C> for InitialState {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.str(self.name())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for InitialState {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<InitialState, Error> {
        let unknown = || Error::message("no state that a node begins in");
        InitialState::parse(d.str()?).ok_or_else(unknown)
    }
}
