//! Rows: how srun starts and watches the tasks of a step.

use super::row::{Commands, Group, OptionRow, flag, opt};

const R: Commands = Commands::R;
const RA: Commands = Commands::RA;

pub(super) const ROWS: &[OptionRow] = &[
    opt("argv", "words", "program name that the tasks see")
        .on(R)
        .refused("wrap the program in a script that uses exec -a"),
    flag(
        "async",
        "return as soon as the step is there, which goes on by itself",
    )
    .on(R)
    .partly("a step that waits for CPUs has no number yet: srun returns when it starts"),
    opt("bcast", "path", "copy the program to the nodes first")
        .optional()
        .on(R)
        .srun_env(&["SLURM_BCAST"])
        .partly(
            "the copy is on all nodes of the job; a name that is made up has no node's name in it",
        ),
    opt(
        "bcast-exclude",
        "paths",
        "directories whose libraries are not copied",
    )
    .on(R)
    .srun_env(&["SLURM_BCAST_EXCLUDE"]),
    opt("compress", "type", "compression of what --bcast copies")
        .optional()
        .on(R)
        .srun_env(&["SLURM_COMPRESS"])
        .stored("it only matters with --bcast"),
    opt("send-libs", "yes|no", "copy shared libraries with --bcast")
        .optional()
        .on(R)
        .srun_env(&["SLURM_SEND_LIBS"]),
    flag(
        "debugger-test",
        "have each task print its process id and stop before its program",
    )
    .on(R),
    flag(
        "disable-status",
        "send the first Ctrl-C to the tasks at once",
    )
    .short('X')
    .on(R)
    .srun_env(&["SLURM_DISABLE_STATUS"]),
    opt("epilog", "program", "run here when the step has ended")
        .on(R)
        .srun_env(&["SLURM_EPILOG"]),
    opt("prolog", "program", "run here before the step starts")
        .on(R)
        .srun_env(&["SLURM_PROLOG"]),
    flag("exact", "use only the CPUs that the tasks need")
        .on(R)
        .srun_env(&["SLURM_EXACT"]),
    opt(
        "het-group",
        "list",
        "parts of a heterogeneous job that run the step",
    )
    .on(R),
    flag(
        "interactive",
        "run as the interactive step of the allocation",
    )
    .on(R)
    .stored("steps of a shell in an allocation are ordinary steps"),
    flag(
        "external-launcher",
        "the program starts tasks itself, as mpirun does: share the CPUs of other steps",
    )
    .on(R),
    opt("jobid", "id", "run in this allocation")
        .on(R)
        .srun_env(&["SLURM_JOB_ID"]),
    opt(
        "kill-on-bad-exit",
        "0|1",
        "end the step when a task ends with an error",
    )
    .short('K')
    .optional()
    .on(R)
    .srun_env(&["SLURM_KILL_BAD_EXIT"]),
    flag("label", "put the task's number in front of each line")
        .short('l')
        .on(R)
        .srun_env(&["SLURM_LABELIO"]),
    opt(
        "mpi",
        "type",
        "MPI support that the tasks get; --mpi=list shows what there is",
    )
    .on(R)
    .srun_env(&["SLURM_MPI_TYPE"]),
    opt("msg-timeout", "seconds", "how long messages may take")
        .on(R)
        .stored("messages are never given up early"),
    flag(
        "multi-prog",
        "the argument is a file that says which task runs what",
    )
    .on(R),
    flag("overlap", "share the CPUs of other steps")
        .on(R)
        .srun_env(&["SLURM_OVERLAP"]),
    flag(
        "preserve-env",
        "keep node and task counts of the environment",
    )
    .short('E')
    .on(R),
    opt("pty", "fd", "run task 0 in a terminal of its own")
        .optional()
        .on(R)
        .srun_env(&["SRUN_PTY"]),
    flag("quit-on-interrupt", "end at the first Ctrl-C").on(R),
    opt(
        "relative",
        "n",
        "first node of the allocation that the step uses",
    )
    .short('r')
    .on(R),
    opt("slurmd-debug", "level", "messages of the node's agent")
        .on(R)
        .stored("agents write to their own log"),
    opt(
        "task-epilog",
        "program",
        "run on the node as each task ends",
    )
    .on(R)
    .srun_env(&["SLURM_TASK_EPILOG"]),
    opt("task-prolog", "program", "run on the node before each task")
        .on(R)
        .srun_env(&["SLURM_TASK_PROLOG"]),
    opt("threads", "threads", "connections that srun opens at once")
        .short('T')
        .on(R)
        .srun_env(&["SLURM_THREADS"])
        .stored("all connections are served by one thread"),
    opt("treewidth", "width", "fan-out of messages between nodes").on(R),
    flag("unbuffered", "pass output on as it comes, not by lines")
        .short('u')
        .on(R)
        .srun_env(&["SLURM_UNBUFFEREDIO"]),
    opt(
        "wait",
        "seconds",
        "end the step so long after its first task has ended",
    )
    .short('W')
    .on(R)
    .srun_env(&["SLURM_WAIT"]),
    flag(
        "wait-for-children",
        "a task has ended when its children have",
    )
    .on(R)
    .srun_env(&["SLURM_WAIT_FOR_CHILDREN"])
    .refused("a task ends with its first process; let that process wait for its children"),
    flag("whole", "use all CPUs of the allocation's nodes")
        .on(R)
        .srun_env(&["SLURM_WHOLE"]),
    opt("x11", "all|first|last", "forward X11 displays")
        .optional()
        .on(RA)
        .group(Group::Run)
        .refused("X11 is not forwarded; use ssh -X to the node while the job runs"),
];
