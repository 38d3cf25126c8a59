//! Nodes, front ends and switches of the cluster: what programs get of each, and freeing it.

#![allow(unsafe_code)]

use crate::abi::cluster::{
    SlurmEnergy, SlurmFrontEndInfoMsg, SlurmNodeInfo, SlurmNodeInfoMsg, SlurmPartitionInfoMsg,
    SlurmSensors, SlurmTopoInfo, SlurmTopoInfoMsg,
};
use crate::abi::members::{CMember as _, Foreign, OwnedText};
use crate::abi::parts::SlurmPluginData;
use crate::abi::{release_array, release_placed};
use crate::connection::connect;
use crate::error::{CallError, INVALID_NODE};
use crate::memory;
use crate::names::{self, NO_VALUE, NO_VALUE_64};
use crate::numbers::{seconds, short};
use libc::{c_char, c_int, c_void, time_t};
use muster_cli::library::{self, NodeDetails};
use muster_model::node::Node;
use std::ptr::null_mut;

/// Use of a node by jobs, which `slurm_get_select_nodeinfo` gives.
#[derive(Clone, Debug)]
struct NodeUse {
    cpus: u32,
    memory_mib: u64,
    tres: String,
}

fn made(node: &Node, details: &NodeDetails, cluster: &str, hidden: bool) -> SlurmNodeInfo {
    let mut info = SlurmNodeInfo::empty();
    if hidden {
        return info;
    }
    let (config, report) = (&node.config, node.report.as_ref());
    let text = |own: &str| OwnedText::or_null(own);
    info.arch = OwnedText::some(report.map(|own| own.arch.as_str()));
    info.boards = short(config.boards.max(1));
    info.boot_time = seconds(report.map(|own| own.boot_time));
    info.cluster_name = text(cluster);
    info.cores = short(config.cores_per_socket);
    info.core_spec_cnt = 0;
    info.cpu_load = report.map_or(NO_VALUE, |own| own.load_centi);
    info.free_mem = report.map_or(NO_VALUE_64, |own| own.free_mib);
    info.cpus = short(config.cpus);
    info.cpus_efctv = short(details.job_cpus);
    let spec: Vec<u32> = config.spec_cpus.iter().collect();
    info.cpu_spec_list = text(&muster_model::hostlist::ranges(&spec));
    info.energy = memory::placed(SlurmEnergy {
        ave_watts: NO_VALUE,
        base_consumed_energy: NO_VALUE_64,
        consumed_energy: NO_VALUE_64,
        current_watts: NO_VALUE,
        previous_consumed_energy: NO_VALUE_64,
        poll_time: 0,
    });
    info.ext_sensors = memory::placed(SlurmSensors {
        consumed_energy: NO_VALUE_64,
        temperature: NO_VALUE,
        energy_update_time: 0,
        current_watts: NO_VALUE,
    });
    let features = config.features.join(",");
    (info.features, info.features_act) = (text(&features), text(&features));
    info.gres = OwnedText::some(details.gres.as_deref());
    info.gres_used = OwnedText::some(details.gres_used.as_deref());
    info.last_busy = seconds(node.last_busy);
    info.mem_spec_limit = config.spec_mib;
    info.name = OwnedText::of(&config.name);
    info.next_state = NO_VALUE;
    info.node_addr = text(&config.addr);
    info.node_hostname = text(&config.hostname);
    info.node_state = names::node_state(details.state);
    info.os = OwnedText::some(report.map(|own| own.os.as_str()));
    info.owner = node.only_user.unwrap_or(NO_VALUE);
    info.partitions = text(&details.partitions.join(","));
    info.port = short(config.port);
    info.real_memory = config.memory_mib;
    info.comment = OwnedText::some(node.comment.as_deref());
    if let Some(reason) = &node.reason {
        info.reason = text(&reason.text);
        info.reason_time = reason.since.unix_s();
        info.reason_uid = reason.uid;
    } else {
        info.reason_uid = NO_VALUE;
    }
    info.select_nodeinfo = memory::placed(SlurmPluginData {
        data: Foreign(
            Box::into_raw(Box::new(NodeUse {
                cpus: details.used_cpus,
                memory_mib: node.used_mib,
                tres: details.used_tres.clone(),
            }))
            .cast(),
        ),
        plugin_id: 0,
    });
    info.slurmd_start_time = seconds(report.map(|own| own.agent_start));
    info.sockets = short(config.sockets.max(1));
    info.threads = short(config.threads_per_core);
    info.tmp_disk = u32::try_from(config.tmp_disk_mib).unwrap_or(u32::MAX);
    info.weight = config.weight;
    info.tres_fmt_str = text(&details.tres);
    info.version = OwnedText::some(report.map(|own| own.version.as_str()));
    info
}

/// `SHOW_FUTURE`.
const SHOW_FUTURE: u16 = 0x80;

/// The nodes, or one of them, where a program gets them. Those that are not shown have no name: indices of nodes in other answers
/// are places in this one.
///
/// # Safety
/// `at` is null or leads to room for a pointer.
unsafe fn load(
    at: *mut *mut SlurmNodeInfoMsg,
    only: Option<&str>,
    flags: u16,
) -> Result<(), CallError> {
    if at.is_null() {
        return Err(CallError::argument("the pointer to the answer is null"));
    }
    let listing = library::nodes(&mut connect()?)?;
    let mut all: Vec<SlurmNodeInfo> = Vec::new();
    for (node, details) in listing.nodes.iter().zip(&listing.details) {
        if only.is_some_and(|name| name != node.config.name) {
            continue;
        }
        let place = node.idx.0 as usize;
        while only.is_none() && all.len() < place {
            all.push(SlurmNodeInfo::empty());
        }
        let hidden = only.is_none() && node.future && flags & SHOW_FUTURE == 0;
        all.push(made(node, details, &listing.cluster, hidden));
    }
    if only.is_some() && all.is_empty() {
        return Err(CallError::new(INVALID_NODE, "there is no such node"));
    }
    let message = SlurmNodeInfoMsg {
        last_update: listing.now.unix_s(),
        record_count: u32::try_from(all.len()).unwrap_or(u32::MAX),
        node_array: memory::array_or_null(&all),
    };
    // SAFETY: as the caller promises.
    unsafe { at.write(memory::placed(message)) };
    Ok(())
}

/// Frees what a node owns, but not its own memory.
///
/// # Safety
/// The node was made here, and nothing of it was freed.
unsafe fn release(own: SlurmNodeInfo) {
    // SAFETY: as the caller promises.
    unsafe {
        libc::free(own.energy.cast());
        libc::free(own.ext_sensors.cast());
        libc::free(own.power.cast());
        if let Some(plugin) = own.select_nodeinfo.as_ref() {
            drop(Box::from_raw(plugin.data.0.cast::<NodeUse>()));
            libc::free(own.select_nodeinfo.cast());
        }
        own.release();
    }
}

/// Kinds of data of a node: CPUs in use, memory in use, both as a text, and a weight.
const USED_CPUS: c_int = 2;
const USED_MEMORY: c_int = 8;
const USED_TRES: c_int = 9;
const USED_WEIGHT: c_int = 10;

/// States of a node for which CPUs are asked: those that jobs have.
const ALLOCATED: c_int = 3;

status_functions! {
    /// All nodes.
    fn slurm_load_node(_since: time_t, at: *mut *mut SlurmNodeInfoMsg, flags: u16) {
        load(at, None, flags)
    }
    /// As above; there is no other cluster.
    fn slurm_load_node2(_since: time_t, at: *mut *mut SlurmNodeInfoMsg, flags: u16, _cluster: *mut c_void) {
        load(at, None, flags)
    }
    /// One node.
    fn slurm_load_node_single(at: *mut *mut SlurmNodeInfoMsg, name: *const c_char, flags: u16) {
        load(at, Some(&memory::text(name).unwrap_or_default()), flags)
    }
    /// As above; there is no other cluster.
    fn slurm_load_node_single2(at: *mut *mut SlurmNodeInfoMsg, name: *const c_char, flags: u16, _cluster: *mut c_void) {
        load(at, Some(&memory::text(name).unwrap_or_default()), flags)
    }
    /// Use of a node by jobs.
    fn slurm_get_select_nodeinfo(at: *mut SlurmPluginData, kind: c_int, state: c_int, out: *mut c_void) {
        let own = at.as_ref().and_then(|own| own.data.0.cast::<NodeUse>().as_ref());
        let own = own.ok_or_else(|| CallError::argument("the data are null"))?;
        if out.is_null() {
            return Err(CallError::argument("the place of the answer is null"));
        }
        match kind {
            USED_CPUS => out.cast::<u16>().write(if state == ALLOCATED { short(own.cpus) } else { 0 }),
            USED_MEMORY => out.cast::<u64>().write(own.memory_mib),
            USED_TRES => out.cast::<*mut c_char>().write(match own.tres.as_str() {
                "" => null_mut(),
                text => memory::string(text),
            }),
            USED_WEIGHT => out.cast::<f64>().write(0.0),
            _ => return Err(CallError::argument("there is no such kind of data")),
        }
        Ok(())
    }
    /// Front ends: none.
    fn slurm_load_front_end(_since: time_t, at: *mut *mut SlurmFrontEndInfoMsg) {
        memory::give(at, memory::placed(SlurmFrontEndInfoMsg::empty()));
        Ok(())
    }
    /// The switches of the network.
    fn slurm_load_topo(at: *mut *mut SlurmTopoInfoMsg) {
        let rows = library::topology(&mut connect()?)?;
        let made = rows.iter().map(|row| SlurmTopoInfo {
            level: short(row.level),
            link_speed: row.link_speed,
            name: OwnedText::of(&row.name),
            nodes: OwnedText::or_null(&row.nodes),
            switches: OwnedText::or_null(&row.switches),
        });
        let made: Vec<SlurmTopoInfo> = made.collect();
        let message = SlurmTopoInfoMsg {
            record_count: u32::try_from(made.len()).unwrap_or(u32::MAX),
            topo_array: memory::array_or_null(&made),
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
}

quiet_functions! {
    /// Frees nodes.
    fn slurm_free_node_info_msg(at: *mut SlurmNodeInfoMsg) {
        let Some(own) = at.as_ref() else { return };
        for place in 0..own.record_count as usize {
            release(own.node_array.add(place).read());
        }
        libc::free(own.node_array.cast());
        libc::free(at.cast());
    }
    /// Frees what a node owns, but not its own memory.
    fn slurm_free_node_info_members(at: *mut SlurmNodeInfo) {
        if let Some(own) = at.as_mut() {
            release(std::mem::replace(own, SlurmNodeInfo::empty()));
        }
    }
    /// Nothing: nodes have the names of their partitions already.
    fn slurm_populate_node_partitions(_nodes: *mut SlurmNodeInfoMsg, _partitions: *mut SlurmPartitionInfoMsg) {}
    /// Frees the answer about front ends.
    fn slurm_free_front_end_info_msg(at: *mut SlurmFrontEndInfoMsg) {
        release_placed(at);
    }
    /// Frees switches.
    fn slurm_free_topo_info_msg(at: *mut SlurmTopoInfoMsg) {
        if let Some(own) = at.as_ref() {
            release_array(own.topo_array, own.record_count);
            libc::free(at.cast());
        }
    }
}
