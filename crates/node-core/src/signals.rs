//! Numbers of signals on Linux, on all processors that Muster runs on, and how they are reported.

use muster_model::ids::JobId;

/// Asks a process to end, as from a terminal.
pub const SIGINT: i32 = 2;
/// Asks a process to end, and to leave a core file, as from a terminal.
pub const SIGQUIT: i32 = 3;
/// Ends a process.
pub const SIGKILL: i32 = 9;
/// Asks a process to end.
pub const SIGTERM: i32 = 15;
/// Continues a stopped process.
pub const SIGCONT: i32 = 18;
/// Stops a process.
pub const SIGSTOP: i32 = 19;
/// Asks a process to stop.
pub const SIGTSTP: i32 = 20;
/// The highest signal.
pub const SIGRTMAX: i32 = 64;

/// High half of the value of a signal that a whole job gets, its steps included.
const WHOLE_JOB: u64 = 0x4a4f_4253;

/// The value that goes with a signal to the processes of a job's script, where the steps of the job get the same signal.
pub fn whole_job_value(job: JobId) -> u64 {
    (WHOLE_JOB << 32) | (job.0 & u64::from(u32::MAX))
}

/// The job that [`whole_job_value`] has made this value of.
pub fn job_of_value(value: u64) -> Option<JobId> {
    (value >> 32 == WHOLE_JOB).then_some(JobId(value & u64::from(u32::MAX)))
}

/// A signal in words, as strsignal(3) has them.
pub fn signal_text(signal: u32) -> String {
    let text = match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        31 => "Bad system call",
        _ => return format!("Signal {signal}"),
    };
    text.to_owned()
}
