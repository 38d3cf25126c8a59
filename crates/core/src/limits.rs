//! Limits on everything that comes from outside. Exceeding one is refused by name.

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
/// Launches that may fail on a node one after another before it is drained.
pub const LAUNCH_FAILURES_MAX: u32 = 5;

const _: () = assert!(SCRIPT_BYTES_MAX + CONTEXT_BYTES_MAX < FRAME_BYTES_MAX);
