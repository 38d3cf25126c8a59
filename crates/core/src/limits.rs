//! Limits on everything that comes from outside. Exceeding one is refused by name.

/// Most components of a heterogeneous job (Slurm's `MAX_HET_JOB_COMPS`).
pub const HET_COMPONENTS_MAX: u32 = 128;
/// Bytes of a batch script.
pub const SCRIPT_BYTES_MAX: usize = 4 << 20;
/// Bytes of an execution context (environment).
pub const CONTEXT_BYTES_MAX: usize = 8 << 20;
/// Bytes of one protocol frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of a job's name, account and other short texts.
pub const NAME_BYTES_MAX: usize = 1024;
/// Bytes of a path, comment or other long text.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Conditions of one `--dependency`.
pub const DEPENDENCY_TERMS_MAX: usize = 10_000;
/// Nodes that one hostlist may name.
pub const HOSTLIST_NAMES_MAX: usize = 1 << 20;
/// CPUs of one node.
pub const NODE_CPUS_MAX: u32 = 65_536;
/// Seconds that a job waits after its n-th launch that failed are n times this.
pub const LAUNCH_BACKOFF_S: u64 = 10;
/// Most seconds that a job waits after a failed launch.
pub const LAUNCH_BACKOFF_MAX_S: u64 = 300;
/// Kinds of devices that a job may count over all of its nodes (`--gpus=a:1,b:2`).
pub const JOB_DEVICES_MAX: usize = 4;
/// Devices of one kind that a job may ask a node for: each is kept by number.
pub const NODE_DEVICES_MAX: u64 = 1 << 20;
/// Tasks that one job may ask for.
pub const TASKS_MAX: u32 = 1 << 24;
/// Ended jobs that one tick takes out of the queue. Where more are due the next turn goes on, so that none is long.
pub const PURGE_MAX: usize = 2048;
/// Priority of the job with number 0; each later job has one less.
pub const PRIORITY_TOP: u32 = 4_294_901_759;
/// Launches that may fail on a node one after another before it is drained.
pub const LAUNCH_FAILURES_MAX: u32 = 5;

const _: () = assert!(SCRIPT_BYTES_MAX + CONTEXT_BYTES_MAX < FRAME_BYTES_MAX);
