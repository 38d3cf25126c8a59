//! CPUs and devices of a job by node (`job_resources_t`), and the job of a process.

#![allow(unsafe_code)]

use crate::abi::members::{CMember as _, OwnedBlock, OwnedText};
use crate::bits;
use crate::error::{CallError, INVALID_JOB_ID};
use crate::memory;
use crate::numbers::short;
use libc::{c_char, c_int, pid_t, size_t};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::hostlist;
use muster_model::job::{GresShare, NodeShare, sum_devices};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// CPUs of a job on one node.
#[derive(Clone, Debug)]
struct CpusOnNode {
    name: String,
    cpus: Vec<u32>,
}

/// Sockets, cores and threads of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShape {
    sockets: u32,
    cores: u32,
    threads: u32,
}

/// Shapes of nodes that were asked for already: nodes keep theirs for as long as a program usually runs.
static SHAPES: Mutex<BTreeMap<String, NodeShape>> = Mutex::new(BTreeMap::new());

/// Asks for the shapes of nodes, if one of these is not known.
///
/// # Errors
/// The controller cannot be asked.
pub fn learn_shapes(client: &mut Client, names: &BTreeSet<String>) -> Result<(), CallError> {
    let mut known = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
    if names.iter().all(|name| known.contains_key(name)) {
        return Ok(());
    }
    for node in library::hardware(client)?.nodes {
        let shape = NodeShape {
            sockets: node.config.sockets.max(1),
            cores: node.config.cores_per_socket.max(1),
            threads: node.config.threads_per_core.max(1),
        };
        known.insert(node.config.name, shape);
    }
    Ok(())
}

/// The beginning of `job_resources_t` as Perl's module reads it: cores by node, one after another.
#[derive(Debug)]
#[repr(C)]
struct ResourcesHead {
    core_bitmap: *mut i64,
    core_bitmap_used: *mut i64,
    cpu_array_cnt: u32,
    cpu_array_value: *mut u16,
    cpu_array_reps: *mut u32,
    cpus: OwnedBlock<u16>,
    cpus_used: *mut u16,
    cores_per_socket: OwnedBlock<u16>,
    cr_type: u16,
    memory_allocated: OwnedBlock<u64>,
    memory_used: *mut u64,
    nhosts: u32,
    node_bitmap: *mut i64,
    node_req: u32,
    nodes: OwnedText,
    ncpus: u32,
    sock_core_rep_count: OwnedBlock<u32>,
    sockets_per_node: OwnedBlock<u16>,
    tasks_per_node: OwnedBlock<u16>,
    threads_per_core: u16,
    whole_node: u8,
}

impl ResourcesHead {
    fn of(shares: &[NodeShare]) -> ResourcesHead {
        let known = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = |share: &NodeShare| {
            let last = share.cpus.iter().last().map_or(1, |cpu| cpu + 1);
            let plain = NodeShape {
                sockets: 1,
                cores: last,
                threads: 1,
            };
            let own = known.get(&share.name).copied();
            own.filter(|own| own.sockets * own.cores * own.threads >= last)
                .unwrap_or(plain)
        };
        let shapes: Vec<NodeShape> = shares.iter().map(shape).collect();
        let cores: u32 = shapes.iter().map(|own| own.sockets * own.cores).sum();
        let bits = bits::with_bits(i64::from(cores), {
            let mut first = 0;
            let each = shares.iter().zip(&shapes).flat_map(move |(share, own)| {
                let before = first;
                first += own.sockets * own.cores;
                let threads = own.threads;
                share
                    .cpus
                    .iter()
                    .map(move |cpu| (before + cpu / threads) as usize)
            });
            each.collect()
        });
        let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
        let of = |number: &dyn Fn(&NodeShape) -> u32| {
            let all: Vec<u16> = shapes.iter().map(|own| short(number(own))).collect();
            OwnedBlock::of(&all)
        };
        let by_share = |number: &dyn Fn(&NodeShare) -> u32| {
            let all: Vec<u16> = shares.iter().map(|own| short(number(own))).collect();
            OwnedBlock::of(&all)
        };
        let memory: Vec<u64> = shares.iter().map(|share| share.memory_mib).collect();
        ResourcesHead {
            core_bitmap: bits,
            core_bitmap_used: null_mut(),
            cpu_array_cnt: 0,
            cpu_array_value: null_mut(),
            cpu_array_reps: null_mut(),
            cpus: by_share(&|share| share.cpus.len()),
            cpus_used: null_mut(),
            cores_per_socket: of(&|own| own.cores),
            cr_type: 0,
            memory_allocated: OwnedBlock::of(&memory),
            memory_used: null_mut(),
            nhosts: u32::try_from(shares.len()).unwrap_or(0),
            node_bitmap: null_mut(),
            node_req: 0,
            nodes: OwnedText::of(&hostlist::compress(&names)),
            ncpus: shares.iter().map(|share| share.cpus.len()).sum(),
            sock_core_rep_count: OwnedBlock::of(&vec![1_u32; shares.len()]),
            sockets_per_node: of(&|own| own.sockets),
            tasks_per_node: by_share(&|share| share.tasks),
            threads_per_core: shapes.first().map_or(1, |own| short(own.threads)),
            whole_node: 0,
        }
    }
}

impl Drop for ResourcesHead {
    fn drop(&mut self) {
        // SAFETY: all of them were made here.
        unsafe {
            libc::free(self.core_bitmap.cast());
            self.cpus.release();
            self.cores_per_socket.release();
            self.memory_allocated.release();
            self.nodes.release();
            self.sock_core_rep_count.release();
            self.sockets_per_node.release();
            self.tasks_per_node.release();
        }
    }
}

/// CPUs of a job by node.
#[derive(Debug)]
#[repr(C)]
pub struct JobResources {
    head: ResourcesHead,
    nodes: Vec<CpusOnNode>,
}

impl JobResources {
    /// The CPUs of shares; null without any.
    pub fn made(shares: &[NodeShare]) -> *mut JobResources {
        if shares.is_empty() {
            return null_mut();
        }
        let nodes = shares.iter().map(|share| CpusOnNode {
            name: share.name.clone(),
            cpus: share.cpus.iter().collect(),
        });
        Box::into_raw(Box::new(JobResources {
            head: ResourcesHead::of(shares),
            nodes: nodes.collect(),
        }))
    }

    /// Frees them.
    ///
    /// # Safety
    /// `at` is null, or was made here and not freed.
    pub unsafe fn free(at: *mut JobResources) {
        if !at.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(at) });
        }
    }

    fn at(&self, place: c_int) -> Option<&CpusOnNode> {
        self.nodes.get(usize::try_from(place).ok()?)
    }

    fn of(&self, name: &str) -> Option<&CpusOnNode> {
        self.nodes.iter().find(|own| own.name == name)
    }
}

/// A device's share, as `gpu:a100:2(IDX:0-1)`.
pub fn device_text(share: &GresShare) -> String {
    let numbers: Vec<u32> = share.numbers().collect();
    let kind = share
        .kind
        .as_ref()
        .map_or_else(String::new, |kind| format!(":{kind}"));
    let places = hostlist::ranges(&numbers);
    format!("{}{kind}:{}(IDX:{places})", share.name, share.ids.len())
}

/// Devices over all nodes, as `gpu:2`.
pub fn device_totals(shares: &[NodeShare]) -> String {
    let all = shares.iter().flat_map(|share| &share.gres);
    let sums = sum_devices(all.map(|own| (own.name.as_str(), None, u64::from(own.ids.len()))));
    let each = sums
        .into_iter()
        .map(|(name, count)| format!("{}:{count}", name.trim_start_matches("gres/")));
    each.collect::<Vec<_>>().join(",")
}

/// The job of a process of this host, by its control group or by its environment.
///
/// # Errors
/// There is no such process, or it is of no job.
pub fn job_of_process(pid: pid_t) -> Result<u32, CallError> {
    let none = || CallError::new(INVALID_JOB_ID, format!("process {pid} is of no job"));
    let own = library::scontrol(&["pidinfo".to_owned(), pid.to_string()]);
    let text = own.map_err(|_| none())?;
    let digits = text.split_once("JobId=").map_or("", |(_, rest)| rest);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number = digits[..length].parse().ok();
    number.ok_or_else(none)
}

fn number(own: Option<&CpusOnNode>) -> Result<c_int, CallError> {
    let own = own.ok_or_else(|| CallError::argument("the job is not on that node"))?;
    Ok(c_int::try_from(own.cpus.len()).unwrap_or(c_int::MAX))
}

fn unknown() -> CallError {
    CallError::argument("the job has no nodes")
}

value_functions! {
    /// Number of CPUs that a job has on the n-th of its nodes.
    fn slurm_job_cpus_allocated_on_node_id(at: *mut JobResources, place: c_int) -> c_int, else -1, {
        number(at.as_ref().ok_or_else(unknown)?.at(place))
    }
    /// Number of CPUs that a job has on a node.
    fn slurm_job_cpus_allocated_on_node(at: *mut JobResources, name: *const c_char) -> c_int, else -1, {
        let name = memory::text(name).unwrap_or_default();
        number(at.as_ref().ok_or_else(unknown)?.of(&name))
    }
}

status_functions! {
    /// CPUs that a job has on the n-th of its nodes, as `0-3,5`.
    fn slurm_job_cpus_allocated_str_on_node_id(buffer: *mut c_char, size: size_t, at: *mut JobResources, place: c_int) {
        let own = at.as_ref().ok_or_else(unknown)?.at(place).ok_or_else(unknown)?;
        memory::write_cut(&hostlist::ranges(&own.cpus), buffer, size);
        Ok(())
    }
    /// CPUs that a job has on a node, as `0-3,5`.
    fn slurm_job_cpus_allocated_str_on_node(buffer: *mut c_char, size: size_t, at: *mut JobResources, name: *const c_char) {
        let name = memory::text(name).unwrap_or_default();
        let own = at.as_ref().ok_or_else(unknown)?.of(&name).ok_or_else(unknown)?;
        memory::write_cut(&hostlist::ranges(&own.cpus), buffer, size);
        Ok(())
    }
}
