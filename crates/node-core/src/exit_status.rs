//! Wait statuses as Slurm shows them.

use muster_model::job::ExitStatus;

/// A wait status as Slurm shows it.
pub fn exit_status(status: i32) -> ExitStatus {
    let bits = status.unsigned_abs();
    ExitStatus {
        code: (bits >> 8) & 0xff,
        signal: bits & 0x7f,
    }
}

/// Slurm's exit status for processes that were killed for their memory.
pub const OUT_OF_MEMORY: ExitStatus = ExitStatus {
    code: 0,
    signal: 125,
};
