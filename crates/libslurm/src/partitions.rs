//! Partitions, reservations and licenses: what programs get of each, and freeing it.

#![allow(unsafe_code)]

use crate::abi::cluster::{
    SlurmLicenseInfo, SlurmLicenseInfoMsg, SlurmPartitionInfo, SlurmPartitionInfoMsg,
    SlurmReservationInfo, SlurmReservationInfoMsg,
};
use crate::abi::members::{CMember as _, OwnedText};
use crate::abi::release_array;
use crate::connection::connect;
use crate::error::CallError;
use crate::memory;
use crate::names::{self, INFINITE, INFINITE_16, NO_VALUE, NO_VALUE_16};
use crate::numbers::{PER_CPU, minutes, ranges, short};
use libc::{c_char, c_void, time_t};
use muster_cli::library;
use muster_model::config::{OverSubscribe, PartitionConfig, PartitionState};
use muster_model::node::Node;
use muster_model::reservation::{Flags, Reservation};
use muster_model::spec::MemoryAsk;
use std::collections::HashMap;
use std::ptr::null_mut;

/// `SHARED_FORCE`.
const FORCE: u16 = 0x8000;

/// Bits of a partition.
fn flags(own: &PartitionConfig) -> u16 {
    let set = [
        (own.default, 1),
        (own.hidden, 1 << 1),
        (own.disable_root_jobs, 1 << 2),
        (own.root_only, 1 << 3),
        (own.req_resv, 1 << 4),
        (own.lln, 1 << 5),
        (own.exclusive_user, 1 << 6),
    ];
    set.into_iter()
        .fold(0, |bits, (on, bit)| if on { bits | bit } else { bits })
}

fn memory_number(ask: MemoryAsk) -> u64 {
    match ask {
        MemoryAsk::PerNode(mib) => mib,
        MemoryAsk::PerCpu(mib) => mib | PER_CPU,
        MemoryAsk::Default => 0,
    }
}

fn partition(
    own: &PartitionConfig,
    nodes: &HashMap<&str, &Node>,
    cluster: &str,
) -> SlurmPartitionInfo {
    let list = |names: &[String]| OwnedText::or_null(&names.join(","));
    let members: Vec<&&Node> = own
        .nodes
        .iter()
        .filter_map(|name| nodes.get(name.as_str()))
        .collect();
    let cpus: u32 = members.iter().map(|node| node.config.cpus).sum();
    let memory: u64 = members.iter().map(|node| node.config.memory_mib).sum();
    let mut info = SlurmPartitionInfo::empty();
    info.allow_alloc_nodes = match own.alloc_nodes.as_slice() {
        [] => OwnedText::of("ALL"),
        names => list(names),
    };
    info.allow_accounts = list(&own.allow_accounts);
    info.allow_groups = list(&own.allow_groups);
    info.allow_qos = list(&own.allow_qos);
    info.alternate = OwnedText::some(own.alternate.as_deref());
    info.billing_weights_str = OwnedText::some(own.billing_weights.as_deref());
    info.cluster_name = OwnedText::of(cluster);
    info.def_mem_per_cpu = memory_number(own.default_memory);
    info.default_time = own.default_time.map_or(NO_VALUE, minutes);
    info.deny_accounts = list(&own.deny_accounts);
    info.deny_qos = list(&own.deny_qos);
    info.flags = flags(own);
    info.grace_time = own.grace_time_s;
    info.max_cpus_per_node = own.max_cpus_per_node.unwrap_or(INFINITE);
    info.max_mem_per_cpu = memory_number(own.max_memory);
    info.max_nodes = own.max_nodes.unwrap_or(INFINITE);
    info.max_share = match own.over_subscribe {
        OverSubscribe::Exclusive => 0,
        OverSubscribe::No => 1,
        OverSubscribe::Yes(count) => short(count),
        OverSubscribe::Force(count) => short(count) | FORCE,
    };
    info.max_time = minutes(own.max_time);
    info.min_nodes = own.min_nodes;
    info.name = OwnedText::of(&own.name);
    info.node_inx = ranges(members.iter().map(|node| node.idx.0).collect());
    info.nodes = OwnedText::or_null(&own.nodes_text);
    info.over_time_limit = own.over_time_limit_min.map_or(NO_VALUE_16, short);
    info.preempt_mode = own
        .preempt_mode
        .as_deref()
        .map_or(NO_VALUE_16, names::preempt_mode);
    info.priority_job_factor = short(own.priority_job_factor);
    info.priority_tier = short(own.priority_tier);
    info.qos_char = OwnedText::some(own.qos.as_deref());
    info.resume_timeout = INFINITE_16;
    info.state_up = match own.effective_state() {
        PartitionState::Up => 3,
        PartitionState::Down => 1,
        PartitionState::Drain => 2,
        PartitionState::Inactive => 0,
    };
    info.suspend_time = NO_VALUE;
    info.suspend_timeout = INFINITE_16;
    info.total_cpus = cpus;
    info.total_nodes = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let count = members.len();
    info.tres_fmt_str = OwnedText::of(&format!(
        "cpu={cpus},mem={memory}M,node={count},billing={cpus}"
    ));
    info
}

/// The partitions, where a program gets them.
///
/// # Safety
/// `at` is null or leads to room for a pointer.
unsafe fn load(at: *mut *mut SlurmPartitionInfoMsg) -> Result<(), CallError> {
    if at.is_null() {
        return Err(CallError::argument("the pointer to the answer is null"));
    }
    let listing = library::nodes(&mut connect()?)?;
    let by_name = listing
        .nodes
        .iter()
        .map(|node| (node.config.name.as_str(), node));
    let by_name: HashMap<&str, &Node> = by_name.collect();
    let all = listing
        .partitions
        .iter()
        .map(|own| partition(own, &by_name, &listing.cluster));
    let all: Vec<SlurmPartitionInfo> = all.collect();
    let message = SlurmPartitionInfoMsg {
        last_update: listing.now.unix_s(),
        record_count: u32::try_from(all.len()).unwrap_or(u32::MAX),
        partition_array: memory::array_or_null(&all),
    };
    // SAFETY: as the caller promises.
    unsafe { at.write(memory::placed(message)) };
    Ok(())
}

/// Bits of flags of reservations.
const RESERVATION_FLAGS: [(Flags, u32); 20] = [
    (Flags::MAINT, 0),
    (Flags::DAILY, 2),
    (Flags::WEEKLY, 4),
    (Flags::IGNORE_JOBS, 6),
    (Flags::ANY_NODES, 8),
    (Flags::STATIC, 10),
    (Flags::PART_NODES, 12),
    (Flags::OVERLAP, 14),
    (Flags::SPEC_NODES, 15),
    (Flags::FIRST_CORES, 16),
    (Flags::TIME_FLOAT, 17),
    (Flags::REPLACE, 18),
    (Flags::PURGE_COMP, 20),
    (Flags::WEEKDAY, 21),
    (Flags::WEEKEND, 23),
    (Flags::FLEX, 25),
    (Flags::NO_HOLD_JOBS_AFTER, 29),
    (Flags::REPLACE_DOWN, 30),
    (Flags::MAGNETIC, 32),
    (Flags::HOURLY, 35),
];

/// Names of flags of bits.
pub fn reservation_flags(bits: u64) -> String {
    let set = RESERVATION_FLAGS
        .iter()
        .filter(|(_, bit)| bits >> bit & 1 != 0);
    let flags = set.fold(Flags::default(), |all, (flag, _)| all.with(*flag));
    let names = Flags::ALL.iter().filter(|(flag, _)| flags.has(*flag));
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn reservation(own: &Reservation, cpus: u64, cores: u64) -> SlurmReservationInfo {
    let list = |names: &[String]| OwnedText::or_null(&names.join(","));
    let minus = |names: &[String], denied: bool| match denied {
        true => OwnedText::or_null(
            &names
                .iter()
                .map(|name| format!("-{name}"))
                .collect::<Vec<_>>()
                .join(","),
        ),
        false => list(names),
    };
    let bits = RESERVATION_FLAGS
        .iter()
        .filter(|(flag, _)| own.flags.has(*flag));
    let mut info = SlurmReservationInfo::empty();
    info.accounts = minus(&own.accounts, own.accounts_denied);
    info.core_cnt = u32::try_from(cores).unwrap_or(u32::MAX);
    info.end_time = own.end.unix_s();
    info.features = OwnedText::some(own.features.as_deref());
    info.flags = bits.fold(0, |bits, (_, bit)| bits | 1 << bit);
    info.groups = list(&own.groups);
    info.licenses = OwnedText::some(own.licenses.as_deref());
    info.max_start_delay = own.max_start_delay_s.unwrap_or(0);
    info.name = OwnedText::of(&own.name);
    info.node_cnt = u32::try_from(own.nodes.len()).unwrap_or(u32::MAX);
    info.node_inx = ranges(own.nodes.iter().map(|node| node.node.0).collect());
    info.node_list = OwnedText::or_null(&own.hostlist);
    info.partition = OwnedText::some(own.partition.as_deref());
    info.purge_comp_time = own.purge_s.unwrap_or(0);
    info.start_time = own.start.unix_s();
    info.resv_watts = NO_VALUE;
    info.tres_str = OwnedText::of(&format!("cpu={cpus}"));
    info.users = minus(&own.users, own.users_denied);
    info
}

status_functions! {
    /// All partitions.
    fn slurm_load_partitions(_since: time_t, at: *mut *mut SlurmPartitionInfoMsg, _flags: u16) {
        load(at)
    }
    /// As above; there is no other cluster.
    fn slurm_load_partitions2(_since: time_t, at: *mut *mut SlurmPartitionInfoMsg, _flags: u16, _cluster: *mut c_void) {
        load(at)
    }
    /// Reservations that the user may see.
    fn slurm_load_reservations(_since: time_t, at: *mut *mut SlurmReservationInfoMsg) {
        let answer = library::reservation_list(&mut connect()?)?;
        let number = |all: &[u64], place: usize| all.get(place).copied().unwrap_or(0);
        let all = answer.reservations.iter().enumerate().map(|(place, own)| {
            reservation(own, number(&answer.cpus, place), number(&answer.cores, place))
        });
        let all: Vec<SlurmReservationInfo> = all.collect();
        let message = SlurmReservationInfoMsg {
            last_update: answer.now.unix_s(),
            record_count: u32::try_from(all.len()).unwrap_or(u32::MAX),
            reservation_array: memory::array_or_null(&all),
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
    /// The licenses of the cluster.
    fn slurm_load_licenses(_since: time_t, at: *mut *mut SlurmLicenseInfoMsg, _flags: u16) {
        let all = library::licenses(&mut connect()?)?;
        let all = all.iter().map(|own| SlurmLicenseInfo {
            name: OwnedText::of(&own.name),
            total: own.total,
            in_use: own.used,
            available: own.total.saturating_sub(own.used),
            remote: 0,
            reserved: own.reserved,
        });
        let all: Vec<SlurmLicenseInfo> = all.collect();
        let message = SlurmLicenseInfoMsg {
            last_update: 0,
            num_lic: u32::try_from(all.len()).unwrap_or(u32::MAX),
            lic_array: memory::array_or_null(&all),
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
}

value_functions! {
    /// Names of a reservation's flags, to be freed by `slurm_xfree`.
    fn slurm_reservation_flags_string(at: *mut SlurmReservationInfo) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&at.as_ref().map_or_else(String::new, |own| reservation_flags(own.flags))))
    }
}

quiet_functions! {
    /// Frees partitions.
    fn slurm_free_partition_info_msg(at: *mut SlurmPartitionInfoMsg) {
        if let Some(own) = at.as_ref() {
            release_array(own.partition_array, own.record_count);
            libc::free(at.cast());
        }
    }
    /// Frees what a partition owns, but not its own memory.
    fn slurm_free_partition_info_members(at: *mut SlurmPartitionInfo) {
        if let Some(own) = at.as_mut() {
            std::mem::replace(own, SlurmPartitionInfo::empty()).release();
        }
    }
    /// Frees reservations.
    fn slurm_free_reservation_info_msg(at: *mut SlurmReservationInfoMsg) {
        if let Some(own) = at.as_ref() {
            release_array(own.reservation_array, own.record_count);
            libc::free(at.cast());
        }
    }
    /// Frees what a reservation owns, but not its own memory.
    fn slurm_free_reserve_info_members(at: *mut SlurmReservationInfo) {
        if let Some(own) = at.as_mut() {
            std::mem::replace(own, SlurmReservationInfo::empty()).release();
        }
    }
    /// Frees licenses.
    fn slurm_free_license_info_msg(at: *mut SlurmLicenseInfoMsg) {
        if let Some(own) = at.as_ref() {
            release_array(own.lic_array, own.num_lic);
            libc::free(at.cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_their_names() {
        assert_eq!(reservation_flags(1 | 1 << 32), "MAINT,MAGNETIC");
        assert_eq!(RESERVATION_FLAGS.len(), Flags::ALL.len());
    }
}
