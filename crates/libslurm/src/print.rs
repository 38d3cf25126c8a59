//! Records as texts, as scontrol shows them. The controller is asked anew: a text is that of the record as it is now, and empty if
//! there is none any more.

#![allow(unsafe_code)]

use crate::abi::cluster::{
    SlurmNodeInfo, SlurmNodeInfoMsg, SlurmPartitionInfo, SlurmPartitionInfoMsg,
    SlurmReservationInfo, SlurmReservationInfoMsg, SlurmTopoInfo, SlurmTopoInfoMsg,
};
use crate::abi::config::SlurmConf;
use crate::abi::jobs::{SlurmJobInfo, SlurmJobInfoMsg, SlurmStepInfo, SlurmStepInfoMsg};
use crate::abi::members::OwnedText;
use crate::memory;
use crate::update::run;
use libc::{c_char, c_int};
use std::ptr::null_mut;

/// Writes a text to a file of the program's.
///
/// # Safety
/// `out` is null or open.
pub unsafe fn write(out: *mut libc::FILE, text: &str) {
    if !out.is_null() {
        // SAFETY: as the caller promises.
        unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), out) };
    }
}

/// A record as scontrol shows it.
fn shown(what: &str, name: &str, one_line: c_int) -> String {
    let mut words = vec!["--all".to_owned(), "--details".to_owned()];
    if one_line != 0 {
        words.push("--oneliner".to_owned());
    }
    words.extend(["show".to_owned(), what.to_owned()]);
    if !name.is_empty() {
        words.push(name.to_owned());
    }
    run(&words).unwrap_or_default()
}

fn named(what: &str, name: OwnedText, one_line: c_int) -> String {
    // SAFETY: members are null or strings.
    let name = unsafe { memory::text(name.0) }.unwrap_or_default();
    match name.is_empty() {
        true => String::new(),
        false => shown(what, &name, one_line),
    }
}

fn job(own: &SlurmJobInfo, one_line: c_int) -> String {
    shown("job", &own.job_id.to_string(), one_line)
}

fn step(own: &SlurmStepInfo, one_line: c_int) -> String {
    let step = crate::steps::step_of(own.step_id.step_id);
    let step = step.map_or_else(String::new, |step| format!(".{step}"));
    shown("step", &format!("{}{step}", own.step_id.job_id), one_line)
}

/// Functions that write a record, that give it as a text, and that write all records of an answer.
macro_rules! print_functions {
    ($($kind:ty: $print:ident $($sprint:ident)?, $message:ty: $all:ident, $records:ident, $count:ident, $show:expr;)*) => { $(
        quiet_functions! {
            /// Writes a record.
            fn $print(out: *mut libc::FILE, at: *mut $kind, one_line: c_int) {
                if let Some(own) = at.as_ref() {
                    write(out, &$show(own, one_line));
                }
            }
            /// Writes all records of an answer.
            fn $all(out: *mut libc::FILE, at: *mut $message, one_line: c_int) {
                let Some(own) = at.as_ref() else { return };
                for place in 0..own.$count as usize {
                    write(out, &$show(&*own.$records.add(place), one_line));
                }
            }
        }
        $(value_functions! {
            /// A record as a text, to be freed by `slurm_xfree`.
            fn $sprint(at: *mut $kind, one_line: c_int) -> *mut c_char, else null_mut(), {
                Ok(at.as_ref().map_or(null_mut(), |own| memory::string(&$show(own, one_line))))
            }
        })?
    )* };
}

print_functions! {
    SlurmJobInfo: slurm_print_job_info slurm_sprint_job_info,
        SlurmJobInfoMsg: slurm_print_job_info_msg, job_array, record_count, job;
    SlurmStepInfo: slurm_print_job_step_info slurm_sprint_job_step_info,
        SlurmStepInfoMsg: slurm_print_job_step_info_msg, job_steps, job_step_count, step;
    SlurmNodeInfo: slurm_print_node_table slurm_sprint_node_table,
        SlurmNodeInfoMsg: slurm_print_node_info_msg, node_array, record_count,
        |own: &SlurmNodeInfo, one_line| named("node", own.name, one_line);
    SlurmPartitionInfo: slurm_print_partition_info slurm_sprint_partition_info,
        SlurmPartitionInfoMsg: slurm_print_partition_info_msg, partition_array, record_count,
        |own: &SlurmPartitionInfo, one_line| named("partition", own.name, one_line);
    SlurmReservationInfo: slurm_print_reservation_info slurm_sprint_reservation_info,
        SlurmReservationInfoMsg: slurm_print_reservation_info_msg, reservation_array, record_count,
        |own: &SlurmReservationInfo, one_line| named("reservation", own.name, one_line);
    SlurmTopoInfo: slurm_print_topo_record,
        SlurmTopoInfoMsg: slurm_print_topo_info_msg, topo_array, record_count,
        |own: &SlurmTopoInfo, one_line| named("topology", own.name, one_line);
}

quiet_functions! {
    /// Writes the configuration.
    fn slurm_print_ctl_conf(out: *mut libc::FILE, _own: *mut SlurmConf) {
        write(out, &shown("config", "", 0));
    }
}
