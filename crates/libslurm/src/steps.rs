//! Steps of jobs: listings of those that run, their layouts, their processes.

#![allow(unsafe_code)]

use crate::abi::jobs::{
    SlurmStepInfo, SlurmStepInfoMsg, SlurmStepLayout, SlurmStepPids, SlurmStepPidsMsg,
    SlurmStepStat, SlurmStepStatMsg,
};
use crate::abi::members::{CMember as _, Foreign, OwnedBlock, OwnedList, OwnedText};
use crate::abi::parts::SlurmStepId;
use crate::abi::{release_array, release_placed};
use crate::connection::{change, connect, job, job_number};
use crate::error::{CallError, INVALID_JOB_ID};
use crate::list::SlurmList;
use crate::memory;
use crate::names::NO_VALUE;
use crate::numbers::{minutes, ranges};
use libc::{c_char, c_void, time_t};
use muster_cli::library::{self, StepDetails};
use muster_model::command::{JobTarget, UserCommand};
use muster_model::hostlist;
use muster_model::ids::StepNo;
use muster_model::job::{Job, JobState, Step};
use muster_model::time::TimeLimit;
use muster_proto::client::JobFilter;
use std::collections::BTreeMap;
use std::ptr::null_mut;

/// Steps that users do not start, as slurm.h numbers them.
const EXTERN: u32 = 0xffff_fffc;
const BATCH: u32 = 0xffff_fffb;
const INTERACTIVE: u32 = 0xffff_fffa;

/// A step's number as structures have it.
pub fn number(step: StepNo) -> u32 {
    match step {
        StepNo::BATCH => BATCH,
        StepNo::EXTERN => EXTERN,
        StepNo::INTERACTIVE => INTERACTIVE,
        StepNo(number) => number,
    }
}

/// A step by its number in structures; none for all of them.
pub fn step_of(number: u32) -> Option<StepNo> {
    match number {
        NO_VALUE => None,
        BATCH => Some(StepNo::BATCH),
        EXTERN => Some(StepNo::EXTERN),
        INTERACTIVE => Some(StepNo::INTERACTIVE),
        number => Some(StepNo(number)),
    }
}

fn made(
    job: &Job,
    step: &Step,
    array: (u64, Option<u32>),
    now: i64,
    cluster: &str,
) -> SlurmStepInfo {
    let details = StepDetails::of(step);
    let names: Vec<String> = hostlist::parse(&step.hostlist).unwrap_or_default();
    let shares = job.alloc.iter().flat_map(|alloc| &alloc.nodes);
    let places = shares.filter(|share| names.contains(&share.name));
    let mut info = SlurmStepInfo::empty();
    info.array_job_id = u32::try_from(array.0).unwrap_or(0);
    info.array_task_id = array.1.unwrap_or(NO_VALUE);
    info.cluster = OwnedText::of(cluster);
    (info.cpu_freq_min, info.cpu_freq_max, info.cpu_freq_gov) = (NO_VALUE, NO_VALUE, NO_VALUE);
    info.name = OwnedText::of(&step.name);
    info.nodes = OwnedText::or_null(&step.hostlist);
    info.node_inx = ranges(places.map(|share| share.node.0).collect());
    info.num_cpus = step.cpus;
    info.num_tasks = step.tasks;
    info.partition = OwnedText::of(&job.partition);
    info.run_time = (now - step.start_time.unix_s()).max(0);
    info.srun_host = OwnedText::some(step.maker.as_ref().map(|maker| maker.host.as_str()));
    info.srun_pid = step.maker.as_ref().map_or(0, |maker| maker.pid);
    info.start_time = step.start_time.unix_s();
    info.state = crate::names::state_number(JobState::Running);
    info.step_id = SlurmStepId {
        job_id: job_number(job.id),
        step_het_comp: NO_VALUE,
        step_id: number(step.step),
    };
    info.submit_line = OwnedText::or_null(&step.submit_line);
    info.task_dist = distribution(step.distribution.as_deref());
    info.time_limit = step.time_limit.map_or(crate::names::INFINITE, minutes);
    info.tres_alloc_str = OwnedText::of(&details.tres);
    info.user_id = job.spec.owner.uid;
    info
}

/// Distributions of tasks, by the words of `--distribution`.
const DISTRIBUTIONS: [(&str, u32); 5] = [
    ("cyclic", 1),
    ("block", 2),
    ("arbitrary", 3),
    ("plane", 4),
    ("unknown", 0x2000),
];

fn distribution(text: Option<&str>) -> u32 {
    let word = text.unwrap_or("block").to_ascii_lowercase();
    let first = word.split([':', '=', ',']).next().unwrap_or("");
    let found = DISTRIBUTIONS.iter().find(|(name, _)| *name == first);
    found.map_or(2, |(_, number)| *number)
}

/// The running steps of one job, or of all.
fn steps_of(id: u32, wanted: Option<StepNo>) -> Result<(Vec<SlurmStepInfo>, time_t), CallError> {
    let ids = match id {
        NO_VALUE | 0 => Vec::new(),
        id => vec![job(id)],
    };
    let mut client = connect()?;
    let cluster = client.endpoint.cluster.clone();
    let filter = JobFilter {
        ids,
        active: true,
        ..JobFilter::default()
    };
    let mut found = Vec::new();
    let listing = library::for_each_job(&mut client, filter, |job, details| {
        let own = job
            .steps
            .iter()
            .filter(|step| wanted.is_none_or(|wanted| step.step == wanted));
        let array = (details.array_job, details.array_task);
        found.extend(own.map(|step| (job.clone(), step.clone(), array)));
    })?;
    let now = listing.now.unix_s();
    let made = found
        .iter()
        .map(|(job, step, array)| made(job, step, *array, now, &cluster));
    Ok((made.collect(), now))
}

/// The step of a structure.
///
/// # Safety
/// `at` is null or a step.
unsafe fn named(at: *const SlurmStepId) -> Result<SlurmStepId, CallError> {
    // SAFETY: as the caller promises.
    let own = unsafe { at.as_ref() };
    own.copied()
        .ok_or_else(|| CallError::argument("the step is null"))
}

/// Processes of a step by node, as agents know them.
fn processes(
    own: SlurmStepId,
    nodes: Option<&str>,
) -> Result<BTreeMap<String, Vec<u32>>, CallError> {
    let all = library::step_processes(&mut connect()?, job(own.job_id), step_of(own.step_id))?;
    let wanted = nodes.map(|text| hostlist::parse(text).unwrap_or_default());
    let mut by_node: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for process in all {
        if wanted
            .as_ref()
            .is_none_or(|names| names.contains(&process.node))
        {
            by_node.entry(process.node).or_default().push(process.pid);
        }
    }
    Ok(by_node)
}

fn pids_made(node: &str, pids: &[u32]) -> SlurmStepPids {
    SlurmStepPids {
        node_name: OwnedText::of(node),
        pid: OwnedBlock::of(pids),
        pid_cnt: u32::try_from(pids.len()).unwrap_or(0),
    }
}

unsafe extern "C" fn free_pids(at: *mut c_void) {
    // SAFETY: entries of the list were made here.
    unsafe { slurm_job_step_pids_free(at.cast()) };
}

unsafe extern "C" fn free_stat(at: *mut c_void) {
    // SAFETY: entries of the list were made here.
    unsafe { slurm_job_step_stat_free(at.cast()) };
}

status_functions! {
    /// Running steps of a job, or of all jobs.
    fn slurm_get_job_steps(_since: time_t, id: u32, step: u32, at: *mut *mut SlurmStepInfoMsg, _flags: u16) {
        let (all, now) = steps_of(id, step_of(step))?;
        let message = SlurmStepInfoMsg {
            last_update: now,
            job_step_count: u32::try_from(all.len()).unwrap_or(u32::MAX),
            job_steps: memory::array_or_null(&all),
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
    /// Processes of a step.
    fn slurm_job_step_get_pids(step: *mut SlurmStepId, nodes: *const c_char, at: *mut *mut SlurmStepPidsMsg) {
        let own = named(step)?;
        let all = processes(own, memory::text(nodes).as_deref())?;
        let items = all.iter().map(|(node, pids)| memory::placed(pids_made(node, pids)).cast());
        let message = SlurmStepPidsMsg {
            pid_list: OwnedList(SlurmList::made(Some(free_pids), items.collect())),
            step_id: own,
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
    /// Processes of a step, with its tasks. What they use is not in it: `jobacct` is null.
    fn slurm_job_step_stat(step: *mut SlurmStepId, nodes: *const c_char, _version: u16, at: *mut *mut SlurmStepStatMsg) {
        let own = named(step)?;
        let all = processes(own, memory::text(nodes).as_deref())?;
        let items = all.iter().map(|(node, pids)| {
            let stat = SlurmStepStat {
                jobacct: Foreign::NULL,
                num_tasks: u32::try_from(pids.len()).unwrap_or(0),
                return_code: 0,
                step_pids: memory::placed(pids_made(node, pids)),
            };
            memory::placed(stat).cast()
        });
        let message = SlurmStepStatMsg {
            stats_list: OwnedList(SlurmList::made(Some(free_stat), items.collect())),
            step_id: own,
        };
        memory::give(at, memory::placed(message));
        Ok(())
    }
    /// Changes the time limit of a step, or of all steps of a job.
    fn slurm_update_step(at: *mut crate::abi::requests::SlurmStepUpdate) {
        let own = at.as_ref().ok_or_else(|| CallError::argument("the change is null"))?;
        change(UserCommand::UpdateStep {
            target: JobTarget { job: job(own.job_id), tasks: None, component: None },
            step: step_of(own.step_id),
            time_limit: match own.time_limit {
                crate::names::INFINITE => TimeLimit::Unlimited,
                minutes => TimeLimit::Minutes(minutes),
            },
        })
    }
}

value_functions! {
    /// Nodes of a running step, and its tasks on each.
    fn slurm_job_step_layout_get(step: *mut SlurmStepId) -> *mut SlurmStepLayout, else null_mut(), {
        let own = named(step)?;
        let (all, _) = steps_of(own.job_id, step_of(own.step_id))?;
        let none = || CallError::new(INVALID_JOB_ID, "there is no such step");
        let info = all.first().ok_or_else(none)?;
        let nodes = memory::text(info.nodes.0).unwrap_or_default();
        let count = hostlist::parse(&nodes).map_or(0, |names| names.len());
        let (tasks, lists) = tasks_of(info.num_tasks, count);
        let layout = SlurmStepLayout {
            front_end: OwnedText::NULL,
            node_cnt: u32::try_from(count).unwrap_or(0),
            node_list: OwnedText::of(&nodes),
            plane_size: 0,
            start_protocol_ver: 0,
            tasks: OwnedBlock::of(&tasks),
            task_cnt: info.num_tasks,
            task_dist: info.task_dist,
            tids: Foreign(lists.cast()),
        };
        all.iter().for_each(|info| info.release());
        Ok(memory::placed(layout))
    }
    /// Name of a distribution of tasks.
    fn slurm_step_layout_type_name(distribution: u32) -> *mut c_char, else null_mut(), {
        let base = distribution & 0xf;
        let found = DISTRIBUTIONS.iter().find(|(_, number)| *number == base);
        let name = found.map_or("Unknown".to_owned(), |(name, _)| {
            name[..1].to_ascii_uppercase() + &name[1..]
        });
        Ok(crate::names::lasting(&name))
    }
}

/// Tasks on each of some nodes, in blocks, and their ranks.
fn tasks_of(tasks: u32, nodes: usize) -> (Vec<u16>, *mut *mut u32) {
    let nodes_number = u32::try_from(nodes).unwrap_or(1).max(1);
    let (each, more) = (tasks / nodes_number, tasks % nodes_number);
    let mut counts = Vec::new();
    let mut lists: Vec<*mut u32> = Vec::new();
    let mut next = 0;
    for place in 0..u32::try_from(nodes).unwrap_or(0) {
        let count = each + u32::from(place < more);
        let ranks: Vec<u32> = (next..next + count).collect();
        next += count;
        counts.push(crate::numbers::short(count));
        lists.push(memory::array(&ranks));
    }
    (counts, memory::array(&lists))
}

quiet_functions! {
    /// Frees steps.
    fn slurm_free_job_step_info_response_msg(at: *mut SlurmStepInfoMsg) {
        if let Some(own) = at.as_ref() {
            release_array(own.job_steps, own.job_step_count);
            libc::free(at.cast());
        }
    }
    /// Frees what a step owns, but not its own memory.
    fn slurm_free_job_step_info_members(at: *mut SlurmStepInfo) {
        if let Some(own) = at.as_mut() {
            std::mem::replace(own, SlurmStepInfo::empty()).release();
        }
    }
    /// Frees a layout.
    fn slurm_job_step_layout_free(at: *mut SlurmStepLayout) {
        let Some(own) = at.as_ref() else { return };
        let lists: *mut *mut u32 = own.tids.0.cast();
        for place in 0..own.node_cnt as usize {
            if !lists.is_null() {
                libc::free((*lists.add(place)).cast());
            }
        }
        libc::free(lists.cast());
        release_placed(at);
    }
    /// Frees processes of a step on a node.
    fn slurm_job_step_pids_free(at: *mut SlurmStepPids) {
        release_placed(at);
    }
    /// Frees processes of a step. Given the answer of `slurm_job_step_stat`, which begins in the same way, it frees that.
    fn slurm_job_step_pids_response_msg_free(at: *mut c_void) {
        release_placed(at.cast::<SlurmStepPidsMsg>());
    }
    /// Frees the use of a step on a node.
    fn slurm_job_step_stat_free(at: *mut SlurmStepStat) {
        if let Some(own) = at.as_ref() {
            release_placed(own.step_pids);
            libc::free(at.cast());
        }
    }
    /// Frees the use of a step.
    fn slurm_job_step_stat_response_msg_free(at: *mut c_void) {
        release_placed(at.cast::<SlurmStepStatMsg>());
    }
    /// Sets the members of a change of steps to "not given".
    fn slurm_init_update_step_msg(at: *mut crate::abi::requests::SlurmStepUpdate) {
        if let Some(own) = at.as_mut() {
            (own.job_id, own.step_id, own.time_limit) = (NO_VALUE, NO_VALUE, NO_VALUE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_fill_nodes_in_blocks() {
        let (counts, lists) = tasks_of(5, 2);
        assert_eq!(counts, [3, 2]);
        // SAFETY: the lists were made just now.
        unsafe {
            assert_eq!(*(*lists.add(1)), 3);
            (0..2).for_each(|at| libc::free((*lists.add(at)).cast()));
            libc::free(lists.cast());
        }
        assert_eq!(distribution(Some("cyclic:block")), 1);
        assert_eq!(step_of(number(StepNo::BATCH)), Some(StepNo::BATCH));
    }
}
