//! Requests whose members programs set: at first each is "not given".

#![allow(unsafe_code)]

use crate::abi::cluster::{SlurmNodeUpdate, SlurmPartitionInfo, SlurmReservationDesc};
use crate::abi::members::CMember as _;
use crate::abi::release_placed;
use crate::abi::requests::{
    SlurmJobDesc, SlurmStepUpdate, SlurmSubmitResponse, SlurmTriggerInfo, SlurmWillRun,
};
use crate::names::{NO_VALUE, NO_VALUE_16, NO_VALUE_64};
use libc::c_char;

/// Sets numbers to "not given", in the width of each.
macro_rules! not_given {
    ($own:expr, short: $($short:ident)*; long: $($long:ident)*;) => {
        $($own.$short = NO_VALUE_16;)*
        $($own.$long = NO_VALUE;)*
    };
}

/// A job of which nothing is given.
pub fn job() -> SlurmJobDesc {
    let mut own = SlurmJobDesc::empty();
    not_given!(own,
        short: contiguous core_spec cpu_bind_type kill_on_node_fail mail_type mem_bind_type plane_size reboot requeue shared
            wait_all_nodes cpus_per_task sockets_per_node cores_per_socket threads_per_core ntasks_per_node
            ntasks_per_socket ntasks_per_core ntasks_per_tres pn_min_cpus;
        long: alloc_sid cpu_freq_min cpu_freq_max cpu_freq_gov delay_boot group_id job_id nice num_tasks priority
            site_factor task_dist time_limit time_min user_id min_cpus max_cpus min_nodes max_nodes pn_min_tmp_disk
            req_switch wait4switch;
    );
    own.overcommit = 0xfe;
    own.pn_min_memory = NO_VALUE_64;
    own
}

/// Changes of a partition of which nothing is given.
pub fn partition() -> SlurmPartitionInfo {
    let mut own = SlurmPartitionInfo::empty();
    not_given!(own,
        short: max_share over_time_limit preempt_mode priority_job_factor priority_tier state_up;
        long: default_time grace_time max_cpus_per_node max_nodes max_time min_nodes;
    );
    (own.def_mem_per_cpu, own.max_mem_per_cpu) = (NO_VALUE_64, NO_VALUE_64);
    own
}

/// A time that is not given.
pub const NO_TIME: i64 = NO_VALUE as i64;

/// A reservation of which nothing is given.
pub fn reservation() -> SlurmReservationDesc {
    let mut own = SlurmReservationDesc::empty();
    not_given!(own, short: ; long: duration max_start_delay purge_comp_time resv_watts;);
    (own.start_time, own.end_time, own.flags) = (NO_TIME, NO_TIME, NO_VALUE_64);
    own
}

/// Frees strings of which there are that many.
///
/// # Safety
/// `at` is null or leads to as many strings of malloc(3)'s.
unsafe fn free_strings(at: *mut *mut c_char, count: u32) {
    if at.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe {
        (0..count as usize).for_each(|place| libc::free((*at.add(place)).cast()));
        libc::free(at.cast());
    }
}

quiet_functions! {
    /// Sets the members of a job.
    fn slurm_init_job_desc_msg(at: *mut SlurmJobDesc) {
        crate::memory::give(at, job());
    }
    /// Sets the members of changes of a partition.
    fn slurm_init_part_desc_msg(at: *mut SlurmPartitionInfo) {
        crate::memory::give(at, partition());
    }
    /// Sets the members of a reservation.
    fn slurm_init_resv_desc_msg(at: *mut SlurmReservationDesc) {
        crate::memory::give(at, reservation());
    }
    /// Sets the members of changes of nodes.
    fn slurm_init_update_node_msg(at: *mut SlurmNodeUpdate) {
        let mut own = SlurmNodeUpdate::empty();
        (own.node_state, own.weight) = (NO_VALUE, NO_VALUE);
        crate::memory::give(at, own);
    }
    /// Sets the members of a trigger.
    fn slurm_init_trigger_msg(at: *mut SlurmTriggerInfo) {
        let mut own = SlurmTriggerInfo::empty();
        own.user_id = NO_VALUE;
        crate::memory::give(at, own);
    }
    /// Frees a job that is asked for, with what its members lead to.
    fn slurm_free_job_desc_msg(at: *mut SlurmJobDesc) {
        if let Some(own) = at.as_ref() {
            free_strings(own.argv.0.cast(), own.argc);
            free_strings(own.environment.0.cast(), own.env_size);
            free_strings(own.spank_job_env.0.cast(), own.spank_job_env_size);
            release_placed(at);
        }
    }
    /// Frees an answer to a submission.
    fn slurm_free_submit_response_response_msg(at: *mut SlurmSubmitResponse) {
        release_placed(at);
    }
    /// Frees changes of nodes.
    fn slurm_free_update_node_msg(at: *mut SlurmNodeUpdate) {
        release_placed(at);
    }
    /// Frees changes of a partition.
    fn slurm_free_update_part_msg(at: *mut SlurmPartitionInfo) {
        release_placed(at);
    }
    /// Frees a change of steps.
    fn slurm_free_update_step_msg(at: *mut SlurmStepUpdate) {
        release_placed(at);
    }
    /// Frees a reservation that is asked for.
    fn slurm_free_resv_desc_msg(at: *mut SlurmReservationDesc) {
        release_placed(at);
    }
    /// Frees an expected start.
    fn slurm_free_will_run_response_msg(at: *mut SlurmWillRun) {
        if let Some(own) = at.as_ref() {
            own.release();
            libc::free(at.cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_not_given_at_first() {
        let own = job();
        assert_eq!(
            (own.min_nodes, own.shared, own.overcommit),
            (NO_VALUE, NO_VALUE_16, 0xfe)
        );
        assert_eq!((own.begin_time, own.immediate, own.argc), (0, 0, 0));
        assert_eq!(partition().flags, 0);
        assert_eq!(reservation().start_time, 0xffff_fffe);
    }
}
