//! Names of states, reasons and modes, and their numbers in slurm.h. The names are those that squeue(1) and sinfo(1) have.

#![allow(unsafe_code)]

use crate::memory;
use libc::{c_char, c_int};
use muster_model::job::{Job, JobState, Reason};
use muster_model::node_state::{BaseState, NodeState, StateFlag};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// `NO_VAL16`.
pub const NO_VALUE_16: u16 = 0xfffe;
/// `NO_VAL`.
pub const NO_VALUE: u32 = 0xffff_fffe;
/// `NO_VAL64`.
pub const NO_VALUE_64: u64 = 0xffff_ffff_ffff_fffe;
/// `INFINITE`.
pub const INFINITE: u32 = 0xffff_ffff;
/// `INFINITE16`.
pub const INFINITE_16: u16 = 0xffff;

/// A text that stays where it is: programs keep names, and never free them.
pub fn lasting(text: &str) -> *mut c_char {
    static TEXTS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = texts.get(text) {
        return *own as *mut c_char;
    }
    let own = memory::string(text);
    texts.insert(text.to_owned(), own as usize);
    own
}

/// Base states of jobs, with their short forms, by number.
const JOB_STATES: [JobState; 12] = JobState::ALL;

const STATE_BASE: u32 = 0xff;

/// Flags beside a job's base state: bit, name and short form; the first that is set is shown.
const JOB_FLAGS: [(u32, &str, &str); 11] = [
    (15, "COMPLETING", "CG"),
    (23, "STAGE_OUT", "SO"),
    (14, "CONFIGURING", "CF"),
    (13, "RESIZING", "RS"),
    (10, "REQUEUED", "RQ"),
    (11, "REQUEUE_HOLD", "RH"),
    (12, "SPECIAL_EXIT", "SE"),
    (16, "STOPPED", "ST"),
    (19, "REVOKED", "RV"),
    (21, "RESV_DEL_HOLD", "RD"),
    (22, "SIGNALING", "SI"),
];

/// The number of a job's state.
pub fn job_state(job: &Job) -> u32 {
    let flag = |on: bool, bit: u32| if on { 1 << bit } else { 0 };
    state_number(job.state)
        | flag(job.completing, 15)
        | flag(job.configuring && job.state == JobState::Running, 14)
        | flag(job.special_exit && job.state == JobState::Pending, 12)
}

/// The number of a base state.
pub fn state_number(state: JobState) -> u32 {
    let found = JOB_STATES.iter().position(|own| *own == state);
    found.and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

fn job_state_names(number: u32) -> (&'static str, &'static str) {
    let flag = JOB_FLAGS.iter().find(|(bit, ..)| number >> bit & 1 != 0);
    let base = JOB_STATES.get((number & STATE_BASE) as usize);
    match (flag, base) {
        (Some((_, name, short)), _) => (name, short),
        (None, Some(state)) => (state.name(), state.code()),
        (None, None) => ("?", "?"),
    }
}

/// The number that a state's name has; `NO_VAL` if it is none.
fn job_state_number(name: &str) -> u32 {
    let is_named = |long: &str, short: &str| {
        name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(short)
    };
    let base = JOB_STATES
        .iter()
        .find(|state| is_named(state.name(), state.code()));
    if let Some(state) = base {
        return state_number(*state);
    }
    let flag = JOB_FLAGS
        .iter()
        .find(|(_, long, short)| is_named(long, short));
    flag.map_or(NO_VALUE, |(bit, ..)| 1 << bit)
}

/// Base states of nodes, by number.
const NODE_STATES: [Option<BaseState>; 7] = [
    Some(BaseState::Unknown),
    Some(BaseState::Down),
    Some(BaseState::Idle),
    Some(BaseState::Allocated),
    None,
    Some(BaseState::Mixed),
    Some(BaseState::Future),
];

/// Bits of a node's flags.
const NODE_FLAGS: [(StateFlag, u32); 15] = [
    (StateFlag::Reserved, 5),
    (StateFlag::Cloud, 7),
    (StateFlag::Drain, 9),
    (StateFlag::Completing, 10),
    (StateFlag::NotResponding, 11),
    (StateFlag::PoweredDown, 12),
    (StateFlag::Fail, 13),
    (StateFlag::PoweringUp, 14),
    (StateFlag::Maintenance, 15),
    (StateFlag::RebootRequested, 16),
    (StateFlag::PoweringDown, 18),
    (StateFlag::DynamicFuture, 19),
    (StateFlag::RebootIssued, 20),
    (StateFlag::PowerDown, 23),
    (StateFlag::DynamicNorm, 26),
];
const NODE_STATE_BASE: u32 = 0xf;

/// The number of a node's state.
pub fn node_state(state: NodeState) -> u32 {
    let base = NODE_STATES.iter().position(|own| *own == Some(state.base));
    let base = base.and_then(|at| u32::try_from(at).ok()).unwrap_or(0);
    let set = NODE_FLAGS.iter().filter(|(flag, _)| state.has(*flag));
    set.fold(base, |bits, (_, bit)| bits | 1 << bit)
}

/// The state of a number; nothing for a base state that there is not.
fn node_state_of(number: u32) -> Option<NodeState> {
    let base = (*NODE_STATES.get((number & NODE_STATE_BASE) as usize)?)?;
    let set = NODE_FLAGS.iter().filter(|(_, bit)| number >> bit & 1 != 0);
    Some(NodeState::new(base, set.map(|(flag, _)| *flag)))
}

fn marked(state: NodeState, word: &str) -> String {
    let mut text = word.to_ascii_uppercase();
    text.extend(state.mark());
    text
}

/// Names of reasons, by number.
#[rustfmt::skip]
const REASONS: [&str; 199] = [
    "None", "Priority", "Dependency", "Resources", "PartitionNodeLimit", "PartitionTimeLimit",
    "PartitionDown", "PartitionInactive", "JobHeldAdmin", "BeginTime", "Licenses",
    "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit", "Reservation",
    "ReqNodeNotAvail", "JobHeldUser", "FrontEndDown", "SchedDefer", "PartitionDown", "NodeDown",
    "BadConstraints", "SystemFailure", "JobLaunchFailure", "NonZeroExitCode", "TimeLimit",
    "InactiveLimit", "InvalidAccount", "InvalidQOS", "QOSUsageThreshold", "QOSJobLimit",
    "QOSResourceLimit", "QOSTimeLimit", "BlockMaxError", "BlockFreeAction", "Cleaning", "Prolog",
    "QOSNotAllowed", "AccountNotAllowed", "DependencyNeverSatisfied", "QOSGrpCpuLimit",
    "QOSGrpCPUMinutesLimit", "QOSGrpCPURunMinutesLimit", "QOSGrpJobsLimit", "QOSGrpMemLimit",
    "QOSGrpNodeLimit", "QOSGrpSubmitJobsLimit", "QOSGrpWallLimit", "QOSMaxCpuPerJobLimit",
    "QOSMaxCpuMinutesPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "QOSMaxCpuPerUserLimit", "QOSMaxJobsPerUserLimit", "QOSMaxNodePerUserLimit",
    "QOSMaxSubmitJobPerUserLimit", "QOSMinCpuNotSatisfied", "AssocGrpCpuLimit",
    "AssocGrpCPUMinutesLimit", "AssocGrpCPURunMinutesLimit", "AssocGrpJobsLimit",
    "AssocGrpMemLimit", "AssocGrpNodeLimit", "AssocGrpSubmitJobsLimit", "AssocGrpWallLimit",
    "AssocMaxJobsLimit", "AssocMaxCpuPerJobLimit", "AssocMaxCpuMinutesPerJobLimit",
    "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit", "AssocMaxSubmitJobLimit",
    "JobHoldMaxRequeue", "JobArrayTaskLimit", "BurstBufferResources", "BurstBufferStageIn",
    "BurstBufferOperation", "PowerNotAvail", "PowerReserved", "AssocGrpUnknown",
    "AssocGrpUnknownMinutes", "AssocGrpUnknownRunMinutes", "AssocMaxUnknownPerJob",
    "AssocMaxUnknownPerNode", "AssocMaxUnknownMinutesPerJob", "AssocMaxCpuPerNode",
    "AssocGrpMemMinutes", "AssocGrpMemRunMinutes", "AssocMaxMemPerJob", "AssocMaxMemPerNode",
    "AssocMaxMemMinutesPerJob", "AssocGrpNodeMinutes", "AssocGrpNodeRunMinutes",
    "AssocMaxNodeMinutesPerJob", "AssocGrpEnergy", "AssocGrpEnergyMinutes",
    "AssocGrpEnergyRunMinutes", "AssocMaxEnergyPerJob", "AssocMaxEnergyPerNode",
    "AssocMaxEnergyMinutesPerJob", "AssocGrpGRES", "AssocGrpGRESMinutes", "AssocGrpGRESRunMinutes",
    "AssocMaxGRESPerJob", "AssocMaxGRESPerNode", "AssocMaxGRESMinutesPerJob", "AssocGrpLicense",
    "AssocGrpLicenseMinutes", "AssocGrpLicenseRunMinutes", "AssocMaxLicensePerJob",
    "AssocMaxLicenseMinutesPerJob", "AssocGrpBB", "AssocGrpBBMinutes", "AssocGrpBBRunMinutes",
    "AssocMaxBBPerJob", "AssocMaxBBPerNode", "AssocMaxBBMinutesPerJob", "QOSGrpUnknown",
    "QOSGrpUnknownMinutes", "QOSGrpUnknownRunMinutes", "QOSMaxUnknownPerJob",
    "QOSMaxUnknownPerNode", "QOSMaxUnknownPerUser", "QOSMaxUnknownMinutesPerJob", "QOSMinUnknown",
    "QOSMaxCpuPerNode", "QOSGrpMemoryMinutes", "QOSGrpMemoryRunMinutes",
    "QOSMaxMemoryMinutesPerJob", "QOSMaxMemoryPerJob", "QOSMaxMemoryPerNode", "QOSMaxMemoryPerUser",
    "QOSMinMemory", "QOSGrpEnergy", "QOSGrpEnergyMinutes", "QOSGrpEnergyRunMinutes",
    "QOSMaxEnergyPerJob", "QOSMaxEnergyPerNode", "QOSMaxEnergyPerUser", "QOSMaxEnergyMinutesPerJob",
    "QOSMinEnergy", "QOSGrpNodeMinutes", "QOSGrpNodeRunMinutes", "QOSMaxNodeMinutesPerJob",
    "QOSMinNode", "QOSGrpGRES", "QOSGrpGRESMinutes", "QOSGrpGRESRunMinutes", "QOSMaxGRESPerJob",
    "QOSMaxGRESPerNode", "QOSMaxGRESPerUser", "QOSMaxGRESMinutesPerJob", "QOSMinGRES",
    "QOSGrpLicense", "QOSGrpLicenseMinutes", "QOSGrpLicenseRunMinutes", "QOSMaxLicensePerJob",
    "QOSMaxLicensePerUser", "QOSMaxLicenseMinutesPerJob", "QOSMinLicense", "QOSGrpBB",
    "QOSGrpBBMinutes", "QOSGrpBBRunMinutes", "QOSMaxBBPerJob", "QOSMaxBBPerNode", "QOSMaxBBPerUser",
    "AssocMaxBBMinutesPerJob", "QOSMinBB", "DeadLine", "MaxBBPerAccount", "MaxCpuPerAccount",
    "MaxEnergyPerAccount", "MaxGRESPerAccount", "MaxNodePerAccount", "MaxLicensePerAccount",
    "MaxMemoryPerAccount", "MaxUnknownPerAccount", "MaxJobsPerAccount", "MaxSubmitJobsPerAccount",
    "PartitionConfig", "AccountingPolicy", "FedJobLock", "OutOfMemory", "MaxMemPerLimit",
    "AssocGrpBilling", "AssocGrpBillingMinutes", "AssocGrpBillingRunMinutes",
    "AssocMaxBillingPerJob", "AssocMaxBillingPerNode", "AssocMaxBillingMinutesPerJob",
    "QOSGrpBilling", "QOSGrpBillingMinutes", "QOSGrpBillingRunMinutes", "QOSMaxBillingPerJob",
    "QOSMaxBillingPerNode", "QOSMaxBillingPerUser", "QOSMaxBillingMinutesPerJob",
    "MaxBillingPerAccount", "QOSMinBilling", "ReservationDeleted",
];

/// Reasons under another name than squeue of 22.05 has for them.
const OTHER_NAMES: [(Reason, &str); 3] = [
    (Reason::LaunchBackoff, "BeginTime"),
    (Reason::NodesUnavailable, "Resources"),
    (Reason::NodesReserved, "Resources"),
];

/// The number of a reason; that of none where 22.05 does not have it.
pub fn reason(reason: Reason) -> u16 {
    let other = OTHER_NAMES.iter().find(|(own, _)| *own == reason);
    let name = other.map_or(reason.name(), |(_, name)| name);
    let found = REASONS.iter().position(|own| *own == name);
    found.and_then(|at| u16::try_from(at).ok()).unwrap_or(0)
}

/// Modes of preemption: bit, name.
const PREEMPT_MODES: [(u16, &str); 3] = [(1, "SUSPEND"), (2, "REQUEUE"), (8, "CANCEL")];
const GANG: u16 = 0x8000;
const WITHIN: u16 = 0x4000;

/// The number of a mode of preemption; `NO_VAL16` if it is none.
pub fn preempt_mode(text: &str) -> u16 {
    let mut bits = 0;
    for word in text.split(',') {
        let known = PREEMPT_MODES
            .iter()
            .find(|(_, name)| word.eq_ignore_ascii_case(name));
        bits |= match (known, word.to_ascii_uppercase().as_str()) {
            (Some((bit, _)), _) => *bit,
            (None, "GANG") => GANG,
            (None, "WITHIN") => WITHIN,
            (None, "OFF") => 0,
            (None, _) => return NO_VALUE_16,
        };
    }
    bits
}

fn preempt_mode_name(bits: u16) -> String {
    let known = PREEMPT_MODES
        .iter()
        .find(|(bit, _)| *bit == bits & !(GANG | WITHIN));
    match (bits, known) {
        (0, _) => "OFF".to_owned(),
        (GANG, _) => "GANG".to_owned(),
        (WITHIN, _) => "WITHIN".to_owned(),
        (_, Some((_, name))) if bits & GANG != 0 => format!("GANG,{name}"),
        (_, Some((_, name))) => (*name).to_owned(),
        (_, None) => "UNKNOWN".to_owned(),
    }
}

/// Names of bits of `PrivateData` and of `AccountingStorageEnforce`, in the order in which they are written.
const PRIVATE_DATA: [(u32, &str); 9] = [
    (5, "accounts"),
    (7, "cloud"),
    (8, "events"),
    (0, "jobs"),
    (1, "nodes"),
    (2, "partitions"),
    (6, "reservations"),
    (3, "usage"),
    (4, "users"),
];
const ENFORCED: [(u32, &str); 7] = [
    (0, "associations"),
    (1, "limits"),
    (4, "nojobs"),
    (5, "nosteps"),
    (3, "qos"),
    (6, "safe"),
    (2, "wckeys"),
];

fn bit_names(bits: u16, names: &[(u32, &str)]) -> String {
    let set: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| bits >> bit & 1 != 0)
        .map(|(_, name)| *name)
        .collect();
    match set.is_empty() {
        true => "none".to_owned(),
        false => set.join(","),
    }
}

fn bits_of(text: &str, names: &[(u32, &str)]) -> u16 {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let set = names
        .iter()
        .filter(|(_, name)| words.iter().any(|word| word.eq_ignore_ascii_case(name)));
    set.fold(0, |bits, (bit, _)| bits | 1 << bit)
}

/// Bits of `PrivateData`.
pub fn private_data(text: &str) -> u16 {
    bits_of(text, &PRIVATE_DATA)
}

/// Bits of `AccountingStorageEnforce`.
pub fn enforced(text: &str) -> u16 {
    bits_of(text, &ENFORCED)
}

value_functions! {
    /// Name of a job's state.
    fn slurm_job_state_string(number: u32) -> *mut c_char, else null_mut(), {
        Ok(lasting(job_state_names(number).0))
    }
    /// Short form of a job's state.
    fn slurm_job_state_string_compact(number: u32) -> *mut c_char, else null_mut(), {
        Ok(lasting(job_state_names(number).1))
    }
    /// Number of a job's state; `NO_VAL` if it is none.
    fn slurm_job_state_num(name: *const c_char) -> u32, else NO_VALUE, {
        Ok(job_state_number(&memory::text(name).unwrap_or_default()))
    }
    /// Name of the reason for which a job waits.
    fn slurm_job_reason_string(number: c_int) -> *mut c_char, else null_mut(), {
        let name = usize::try_from(number).ok().and_then(|at| REASONS.get(at));
        Ok(name.map_or_else(|| lasting(&number.to_string()), |name| lasting(name)))
    }
    /// Number of a reason; `NO_VAL` if it is none.
    fn slurm_job_reason_num(name: *const c_char) -> u32, else NO_VALUE, {
        let name = memory::text(name).unwrap_or_default();
        let found = REASONS.iter().position(|own| own.eq_ignore_ascii_case(&name));
        Ok(found.and_then(|at| u32::try_from(at).ok()).unwrap_or(NO_VALUE))
    }
    /// Name of how a job shares its nodes.
    fn slurm_job_share_string(shared: u16) -> *mut c_char, else null_mut(), {
        let names = ["NO", "YES", "USER", "MCS"];
        Ok(lasting(names.get(usize::from(shared)).unwrap_or(&"OK")))
    }
    /// Name of a node's state, with a mark for its condition.
    fn slurm_node_state_string(number: u32) -> *mut c_char, else null_mut(), {
        let state = node_state_of(number);
        Ok(lasting(&state.map_or_else(|| "?".to_owned(), |state| marked(state, state.words().0))))
    }
    /// Short form of a node's state.
    fn slurm_node_state_string_compact(number: u32) -> *mut c_char, else null_mut(), {
        let state = node_state_of(number);
        Ok(lasting(&state.map_or_else(|| "?".to_owned(), |state| marked(state, state.words().1))))
    }
    /// A node's base state and all flags, to be freed by `slurm_xfree`.
    fn slurm_node_state_string_complete(number: u32) -> *mut c_char, else null_mut(), {
        let mut text = String::new();
        match node_state_of(number) {
            Some(state) => state.write_complete(&mut text),
            None => text.push('?'),
        }
        Ok(memory::string(&text))
    }
    /// Name of a node's base state.
    fn slurm_node_state_base_string(number: u32) -> *mut c_char, else null_mut(), {
        Ok(lasting(node_state_of(number).map_or("?", |state| state.base.name())))
    }
    /// Name of a mode of preemption.
    fn slurm_preempt_mode_string(mode: u16) -> *mut c_char, else null_mut(), {
        Ok(lasting(&preempt_mode_name(mode)))
    }
    /// Number of a mode of preemption.
    fn slurm_preempt_mode_num(name: *const c_char) -> u16, else NO_VALUE_16, {
        Ok(preempt_mode(&memory::text(name).unwrap_or_default()))
    }
}

quiet_functions! {
    /// Writes names of private data.
    fn slurm_private_data_string(bits: u16, buffer: *mut c_char, size: c_int) {
        memory::write_cut(&bit_names(bits, &PRIVATE_DATA), buffer, usize::try_from(size).unwrap_or(0));
    }
    /// Writes names of what accounting enforces.
    fn slurm_accounting_enforce_string(bits: u16, buffer: *mut c_char, size: c_int) {
        memory::write_cut(&bit_names(bits, &ENFORCED), buffer, usize::try_from(size).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_names_and_numbers() {
        for (number, name, short) in [
            (0, "PENDING", "PD"),
            (11, "OUT_OF_MEMORY", "OOM"),
            (3 | 1 << 15, "COMPLETING", "CG"),
            (12, "?", "?"),
        ] {
            assert_eq!(job_state_names(number), (name, short));
        }
        assert_eq!(job_state_number("cg"), 1 << 15);
        assert_eq!(job_state_number("FAILED"), 5);
        assert_eq!(job_state_number("x"), NO_VALUE);
        let drained = NodeState::new(BaseState::Idle, [StateFlag::Drain]);
        assert_eq!(node_state(drained), 2 | 1 << 9);
        assert_eq!(node_state_of(2 | 1 << 9), Some(drained));
        assert_eq!(marked(drained, drained.words().0), "DRAINED");
        assert_eq!(node_state_of(4), None);
    }

    #[test]
    fn reasons_and_modes_have_their_numbers() {
        assert_eq!(reason(Reason::None), 0);
        assert_eq!(reason(Reason::Priority), 1);
        assert_eq!(reason(Reason::JobHeldUser), 16);
        assert_eq!(REASONS.last(), Some(&"ReservationDeleted"));
        assert_eq!(preempt_mode("gang,suspend"), 0x8001);
        assert_eq!(preempt_mode_name(0x8001), "GANG,SUSPEND");
        assert_eq!(bit_names(5, &PRIVATE_DATA), "jobs,partitions");
    }
}
