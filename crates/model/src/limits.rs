//! Limits on everything that comes from outside. Exceeding one is refused by name.

/// Nodes that one request may make.
pub const DYNAMIC_NODES_MAX: usize = 1 << 14;
/// Reservations that an ordinary user may have at a time, where the site lets users reserve. Chosen so that a user's weeks of courses fit.
pub const USER_RESERVATIONS_MAX: usize = 10;
/// Longest such reservation where the partition has no `MaxTime`, seconds: a month.
pub const USER_RESERVATION_LENGTH_S: u64 = 31 * 86_400;
/// Latest begin of such a reservation from now, seconds: a year.
pub const USER_RESERVATION_AHEAD_S: u64 = 366 * 86_400;
/// Users and groups whom the site may let reserve.
pub const RESERVATION_USERS_MAX: usize = 4096;
/// Most components of a heterogeneous job (Slurm's `MAX_HET_JOB_COMPS`).
pub const HET_COMPONENTS_MAX: u32 = 128;
/// Bytes of a batch script where `SchedulerParameters=max_script_size` says nothing (Slurm's default).
pub const SCRIPT_BYTES_DEFAULT: usize = 4 << 20;
/// Bytes of a batch script, whatever `max_script_size` says.
pub const SCRIPT_BYTES_MAX: usize = 16 << 20;
/// Bytes of an execution context (environment).
pub const CONTEXT_BYTES_MAX: usize = 8 << 20;
/// Variables of an execution context: what starts a program takes time and memory for each, however short it is.
pub const ENVIRONMENT_VARIABLES_MAX: usize = 64 << 10;
/// Arguments of a program, and lines of a `--multi-prog` file.
pub const ARGUMENTS_MAX: usize = 256 << 10;
/// Bytes of a command line where `SchedulerParameters=max_submit_line_size` says nothing (Slurm's default).
pub const SUBMIT_LINE_BYTES_DEFAULT: usize = 1 << 20;
/// Bytes of a command line, whatever `max_submit_line_size` says. The kernel takes no longer ones.
pub const SUBMIT_LINE_BYTES_MAX: usize = 6 << 20;
/// Bytes of one argument or variable of a program (the kernel's `MAX_ARG_STRLEN`).
pub const ARGUMENT_BYTES_MAX: usize = 128 << 10;
/// Bytes of all texts of a job, its command line aside: arguments, names, paths, lists of nodes.
pub const SPEC_BYTES_MAX: usize = 8 << 20;
/// Bytes of a hostlist: ten thousand nodes of names that have nothing in common take a quarter of it.
pub const HOSTLIST_BYTES_MAX: usize = 512 << 10;
/// Bytes of one protocol frame between daemons, and from the controller to a command.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of a frame that anybody may send to the controller: the largest submission fits.
pub const REQUEST_BYTES_MAX: usize = 40 << 20;
/// Bytes of a frame that anybody may send to a node's agent: the launch of the largest step fits.
pub const AGENT_REQUEST_BYTES_MAX: usize = 40 << 20;
/// Milliseconds since 1970 of the last moment that a message may name: the end of the year 9999. What is worked out from
/// it cannot overflow.
pub const TIME_MS_MAX: i64 = 253_402_300_799_999;
/// Bytes of a durable event. The journal takes records of this length.
pub const EVENT_BYTES_MAX: usize = 64 << 20;
/// CBOR items of one protocol frame between daemons. What an item becomes in memory is up to 64 bytes, however few it
/// takes in the frame.
pub const FRAME_ITEMS_MAX: usize = 1 << 23;
/// CBOR items of a frame that anybody may send.
pub const REQUEST_ITEMS_MAX: usize = 1 << 20;
/// CBOR items of a frame that anybody may send to a node's agent: each task of a step is one.
pub const AGENT_REQUEST_ITEMS_MAX: usize = 1 << 21;
/// Depth to which the items of a frame may be nested. Messages have half as many levels.
pub const FRAME_DEPTH_MAX: usize = 64;
/// Elements of a list in a message where nothing else is said: as many as there are tasks in the largest step.
pub const LIST_ITEMS_MAX: usize = 1 << 21;
/// Bytes of a job's name, account and other short texts.
pub const NAME_BYTES_MAX: usize = 1024;
/// Bytes of a path, comment or other long text.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the name of a file, and of a pattern of one (the kernel's `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of its command line that are kept of a step that runs, for listings and accounting.
pub const STEP_LINE_BYTES_MAX: usize = 4096;
/// Elements of a list in a question about jobs or nodes.
pub const QUERY_ITEMS_MAX: usize = 1 << 16;

/// Names that one edit of accounting is about, and items of each other list of it.
pub const EDIT_ITEMS_MAX: usize = 4096;

/// States, options and other words of which there are few kinds.
pub const KINDS_MAX: usize = 64;
/// Highest signal number on Linux.
pub const SIGNAL_MAX: u32 = 64;
/// Bytes of a text that a daemon writes for others: an error with a path in it, a file pattern that was filled in.
pub const NOTE_BYTES_MAX: usize = 1 << 20;
/// Partitions that one job may name.
pub const JOB_PARTITIONS_MAX: usize = 1000;
/// Reservations that one job may name.
pub const JOB_RESERVATIONS_MAX: usize = 64;
/// Partitions times reservations that one job may name: it waits in each of these.
pub const JOB_PLACES_MAX: usize = 1000;
/// Alternatives that `--licenses` of one job may have.
pub const LICENSE_ALTERNATIVES_MAX: usize = 64;
/// Alternatives that `--constraint` and `--prefer` of one job may have together: one of each, for each of the other.
pub const CONSTRAINT_ALTERNATIVES_MAX: usize = 64;
/// Counts of nodes that an alternative of `--constraint` with one of `--prefer` may have.
pub const CONSTRAINT_COUNTS_MAX: usize = 16;
/// Jobs that one `scontrol top` puts before others.
pub const TOP_JOBS_MAX: usize = 100;
/// Bytes of a user's crontab.
pub const CRONTAB_BYTES_MAX: usize = 64 << 10;
/// Entries of a user's crontab: each is a job that waits.
pub const CRONTAB_JOBS_MAX: usize = 500;
/// Seconds by which a zone may be off UTC.
pub const UTC_OFFSET_S_MAX: i32 = 26 * 3600;
/// Conditions of one `--dependency`.
pub const DEPENDENCY_TERMS_MAX: usize = 10_000;
/// Nodes that a `--constraint` may count.
pub const NODE_COUNT_MAX: u32 = 1 << 20;
/// CPUs, devices or nodes that a set of them can hold when it comes from outside.
pub const CPUSET_CPUS_MAX: u32 = 1 << 20;
/// CPUs of one node.
pub const NODE_CPUS_MAX: u32 = 65_536;
/// Memory of one node, MiB: of all of its CPUs together it still is a number.
pub const NODE_MIB_MAX: u64 = 1 << 40;
/// Kinds of devices in each of the lists in which a job asks for some.
pub const DEVICE_KINDS_MAX: usize = 64;
/// Bytes of a text of the devices that a step was asked to have. Longer ones are not sent: they are for listings only.
pub const DEVICE_TEXT_BYTES_MAX: usize = 256;
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
/// Parts of a list of numbers of tasks, `2,4-8`.
pub const TASK_RANGES_MAX: usize = 64;
/// Ended jobs that one tick takes out of the queue. Where more are due the next turn goes on, so that none is long.
pub const PURGE_MAX: usize = 2048;
/// Priority of the job with number 0; each later job has one less.
pub const PRIORITY_TOP: u32 = 4_294_901_759;
/// Launches that may fail on a node one after another before it is drained.
pub const LAUNCH_FAILURES_MAX: u32 = 5;

/// Bytes of a frame beside its texts.
const FRAME_OVERHEAD: usize = 1 << 20;

const _: () = assert!(NODE_CPUS_MAX <= CPUSET_CPUS_MAX);
const _: () = assert!(NODE_DEVICES_MAX <= CPUSET_CPUS_MAX as u64);
const _: () = assert!(SCRIPT_BYTES_DEFAULT <= SCRIPT_BYTES_MAX);
const _: () = assert!(SUBMIT_LINE_BYTES_DEFAULT <= SUBMIT_LINE_BYTES_MAX);
const _: () = assert!(
    SCRIPT_BYTES_MAX + CONTEXT_BYTES_MAX + SPEC_BYTES_MAX + SUBMIT_LINE_BYTES_MAX + FRAME_OVERHEAD
        <= REQUEST_BYTES_MAX,
    "the largest submission fits into a frame"
);
const _: () = assert!(
    CONTEXT_BYTES_MAX + 2 * SUBMIT_LINE_BYTES_MAX + LIST_ITEMS_MAX * 5 + FRAME_OVERHEAD
        <= AGENT_REQUEST_BYTES_MAX,
    "the launch of the largest step fits into a frame"
);
const _: () = assert!(
    REQUEST_BYTES_MAX + SPEC_BYTES_MAX + FRAME_OVERHEAD <= EVENT_BYTES_MAX,
    "an event that carries all of a request, and the specification that it changes, fits into the journal"
);
const _: () = assert!(REQUEST_BYTES_MAX <= FRAME_BYTES_MAX);
const _: () = assert!(AGENT_REQUEST_BYTES_MAX <= FRAME_BYTES_MAX);

/// Connections that everybody may have at a daemon while there are any.
pub const FEW_CONNECTIONS: u64 = 4;

/// Whether a user who has `own` connections at a daemon, of `all` that users have there, may have another. At most
/// `own_max` are one user's and `all_max` those of all. Beyond [`FEW_CONNECTIONS`] nobody has more than are left, and a
/// quarter of all is for users who have few: so they get in however many others take all they can.
pub fn may_connect(own: u64, all: u64, own_max: u64, all_max: u64) -> bool {
    let left = all_max.saturating_sub(all);
    if left == 0 || own >= own_max {
        return false;
    }
    own < FEW_CONNECTIONS || own < left.saturating_sub(all_max / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two users had all connections of a node, and ten those of the controller.
    #[test]
    fn however_many_users_take_what_they_can_others_get_in() {
        for all_max in [40, 896, 3290, 18_750] {
            let (mut all, mut greedy) = (0, Vec::new());
            while all < all_max - all_max / 4 {
                let mut own = 0;
                while may_connect(own, all, all_max / 2, all_max) {
                    (own, all) = (own + 1, all + 1);
                }
                assert!(own >= FEW_CONNECTIONS, "the last of {}", greedy.len());
                greedy.push(own);
            }
            assert!(greedy[0] * 3 > all_max, "one alone gets much: {greedy:?}");
            let others = (all_max - all) / FEW_CONNECTIONS;
            assert!(
                others * 20 >= all_max || all_max < 100,
                "{others} more of {all_max}"
            );
            assert!(may_connect(0, all, all_max / 2, all_max));
        }
        assert!(!may_connect(0, 40, 20, 40) && !may_connect(20, 20, 20, 400));
    }
}
