//! Rows: what a job is called, when it runs, where its output goes.

use super::row::{Commands, Group, OptionRow, flag, opt};

const B: Commands = Commands::B;
const R: Commands = Commands::R;
const A: Commands = Commands::A;
const BR: Commands = Commands::BR;
const BA: Commands = Commands::BA;
const RA: Commands = Commands::RA;

const NO_BURST_BUFFER: &str = "there are no burst buffers here; remove the option";
const NO_CONTAINER: &str = "OCI containers are not started by this build; run the container's own command, such as \
     'apptainer exec', inside the job";

pub(super) const ROWS: &[OptionRow] = &[
    opt("account", "name", "account that the job is charged to")
        .short('A')
        .env(&["SBATCH_ACCOUNT"], &["SLURM_ACCOUNT"], &["SALLOC_ACCOUNT"]),
    opt(
        "acctg-freq",
        "type=seconds,...",
        "how often usage is sampled",
    )
    .env(
        &["SBATCH_ACCTG_FREQ"],
        &["SLURM_ACCTG_FREQ"],
        &["SALLOC_ACCTG_FREQ"],
    )
    .partly("task= of a job, where JobAcctGatherType is set; there are no other samples, and steps go with their job"),
    opt(
        "array",
        "indexes",
        "run the script once for each index: 0-15:4%2, 1,3,7",
    )
    .short('a')
    .on(B)
    .sbatch_env(&["SBATCH_ARRAY_INX"]),
    opt(
        "batch",
        "features",
        "features of the node that runs the script",
    )
    .on(B)
    .sbatch_env(&["SBATCH_BATCH"]),
    opt("bb", "spec", "burst buffer")
        .env(&[], &["SLURM_BURST_BUFFER"], &["SALLOC_BURST_BUFFER"])
        .refused(NO_BURST_BUFFER),
    opt(
        "bbf",
        "file",
        "put the lines of this file into the script, behind its first line",
    )
    .on(B)
    .partly("there are no burst buffers: directives for them are comments of the script"),
    opt("bbf", "file", "file with a burst buffer's description")
        .on(RA)
        .refused(NO_BURST_BUFFER),
    opt(
        "begin",
        "time",
        "do not start before: 16:00, now+1hour, 2030-01-20T12:34:00",
    )
    .short('b'),
    flag(
        "bell",
        "ring the terminal's bell when the allocation is granted",
    )
    .on(A)
    .salloc_env(&["SALLOC_BELL"]),
    flag("no-bell", "do not ring the terminal's bell")
        .on(A)
        .salloc_env(&["SALLOC_NO_BELL"]),
    opt("chdir", "directory", "working directory")
        .short('D')
        .srun_env(&["SLURM_WORKING_DIR", "SLURM_REMOTE_CWD"]),
    opt(
        "cluster-constraint",
        "list",
        "features of the cluster that takes the job",
    )
    .refused("this cluster is not in a federation; remove the option"),
    opt(
        "clusters",
        "names",
        "cluster that gets the job; only this one is known",
    )
    .short('M')
    .env(
        &["SLURM_CLUSTERS", "SBATCH_CLUSTERS"],
        &["SLURM_CLUSTERS"],
        &["SLURM_CLUSTERS", "SALLOC_CLUSTERS"],
    ),
    opt("class", "name[.variant]", "job class of the site, whose rules the job follows").env(
        &["SBATCH_CLASS"],
        &["SLURM_CLASS"],
        &["SALLOC_CLASS"],
    ),
    opt("comment", "text", "free text that listings show"),
    opt("container", "bundle", "OCI bundle that the job runs in")
        .env(
            &["SBATCH_CONTAINER"],
            &["SRUN_CONTAINER"],
            &["SALLOC_CONTAINER"],
        )
        .refused(NO_CONTAINER),
    opt(
        "container-id",
        "id",
        "name of an OCI container that the job runs in",
    )
    .env(
        &["SBATCH_CONTAINER_ID"],
        &["SRUN_CONTAINER_ID"],
        &["SALLOC_CONTAINER_ID"],
    )
    .refused(NO_CONTAINER),
    opt(
        "deadline",
        "time",
        "remove the job when it cannot end before this time",
    ),
    opt(
        "delay-boot",
        "minutes",
        "how long to wait for nodes that need a reboot",
    )
    .env(
        &["SBATCH_DELAY_BOOT"],
        &["SLURM_DELAY_BOOT"],
        &["SALLOC_DELAY_BOOT"],
    )
    .stored("nodes are never rebooted for a job"),
    opt(
        "dependency",
        "type:jobid[+minutes]",
        "start when other jobs have: after, afterany, afterok, \
         afternotok, aftercorr, singleton",
    )
    .short('d')
    .srun_env(&["SLURM_DEPENDENCY"]),
    opt("error", "file", "file for standard error")
        .short('e')
        .on(BR)
        .env(&["SBATCH_ERROR"], &["SLURM_STDERRMODE", "SRUN_ERROR"], &[]),
    opt(
        "export",
        "names",
        "variables that the job gets: ALL, NONE, NIL, NAME, NAME=value",
    )
    .on(B)
    .sbatch_env(&["SBATCH_EXPORT"]),
    opt(
        "export",
        "names",
        "variables that the tasks get: ALL, NONE, NAME, NAME=value",
    )
    .on(R)
    .srun_env(&["SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"]),
    opt(
        "export-file",
        "file|fd",
        "file of NAME=value, each ended by a zero byte, that the job gets",
    )
    .on(B),
    flag("external", "job whose processes another system starts")
        .refused("jobs without processes are not supported; submit a script that waits"),
    opt("extra", "text", "free text that listings show"),
    opt(
        "get-user-env",
        "timeout[mode]",
        "add the user's login environment",
    )
    .optional()
    .on(BA)
    .sbatch_env(&["SBATCH_GET_USER_ENV"]),
    opt("gid", "group", "group that the job runs as (root only)"),
    flag("hold", "submit held; scontrol release lets it go").short('H'),
    flag(
        "ignore-pbs",
        "do not read #PBS and #BSUB lines",
    )
    .on(B)
    .sbatch_env(&["SBATCH_IGNORE_PBS"]),
    opt(
        "immediate",
        "seconds",
        "give up unless the resources are free within so many seconds",
    )
    .short('I')
    .optional()
    .on(RA)
    .env(&[], &["SLURM_IMMEDIATE"], &["SALLOC_IMMEDIATE"]),
    opt("input", "file", "file for standard input")
        .short('i')
        .on(BR)
        .env(&["SBATCH_INPUT"], &["SLURM_STDINMODE", "SRUN_INPUT"], &[]),
    opt("job-name", "name", "name of the job").short('J').env(
        &["SBATCH_JOB_NAME"],
        &["SLURM_JOB_NAME"],
        &["SALLOC_JOB_NAME"],
    ),
    opt(
        "kill-command",
        "signal",
        "signal for the command when the allocation is taken away",
    )
    .short('K')
    .optional()
    .on(A)
    .salloc_env(&["SALLOC_KILL_CMD"]),
    opt(
        "kill-on-invalid-dep",
        "yes|no",
        "cancel the job when its dependency can never be met",
    )
    .on(B),
    opt(
        "licenses",
        "names",
        "licenses that the job holds while it runs: name[:count],... or one of name[:count]|...",
    )
    .short('L')
    .partly("those of slurm.conf, and as name@server those of sacctmgr add resource; no license server is asked"),
    opt("mail-lines", "count", "last lines of the script's standard error in mails of its end")
        .on(B)
        .sbatch_env(&["SBATCH_MAIL_LINES"]),
    opt("mail-type", "type", "events to send mail for"),
    opt("mail-user", "user", "who gets the mail"),
    opt("mcs-label", "label", "label of the job's security group (MCSPlugin)"),
    opt("network", "type", "requests for the interconnect")
        .env(&["SBATCH_NETWORK"], &["SLURM_NETWORK"], &["SALLOC_NETWORK"])
        .warns("the interconnect is not set up for jobs"),
    opt("nice", "value", "lower the job's priority by so much").optional(),
    opt("no-kill", "off", "go on when a node is lost")
        .short('k')
        .optional()
        .env(&["SBATCH_NO_KILL"], &["SLURM_NO_KILL"], &["SALLOC_NO_KILL"]),
    flag("no-requeue", "never put the job back into the queue")
        .on(B)
        .sbatch_env(&["SBATCH_NO_REQUEUE"]),
    flag("no-shell", "grant the allocation and return at once").on(A),
    opt(
        "oom-kill-step",
        "0|1",
        "end the whole step when one task is out of memory",
    )
    .optional()
    .env(
        &["SBATCH_OOM_KILL_STEP"],
        &["SLURM_OOM_KILL_STEP"],
        &["SALLOC_OOM_KILL_STEP"],
    )
    .warns("only the task that is out of memory is ended"),
    opt(
        "open-mode",
        "append|truncate",
        "what to do with output files that exist",
    )
    .on(BR)
    .env(&["SBATCH_OPEN_MODE"], &["SLURM_OPEN_MODE"], &[]),
    opt("output", "file", "file for standard output")
        .short('o')
        .on(BR)
        .env(&["SBATCH_OUTPUT"], &["SLURM_STDOUTMODE", "SRUN_OUTPUT"], &[]),
    flag(
        "parsable",
        "print only the number of the job, or of the step that --async starts",
    )
    .on(BR),
    opt(
        "partition",
        "names",
        "partitions, the first that can start the job is used",
    )
    .short('p')
    .env(
        &["SBATCH_PARTITION"],
        &["SLURM_PARTITION"],
        &["SALLOC_PARTITION"],
    ),
    opt("power", "flags", "power management")
        .env(&["SBATCH_POWER"], &["SLURM_POWER"], &["SALLOC_POWER"])
        .stored("the option has no effect in Slurm 24.05 and later either"),
    opt("priority", "value", "the job's priority (administrators)"),
    opt("profile", "types", "detailed accounting")
        .env(&["SBATCH_PROFILE"], &["SLURM_PROFILE"], &["SALLOC_PROFILE"])
        .warns("no profile is written"),
    opt(
        "propagate",
        "limits",
        "resource limits (ulimit) that the job gets: ALL, NONE, names",
    )
    .optional()
    .on(BR)
    .env(&["SBATCH_PROPAGATE"], &["SLURM_PROPAGATE"], &[]),
    opt("qos", "qos", "quality of service").short('q').env(
        &["SBATCH_QOS"],
        &["SLURM_QOS"],
        &["SALLOC_QOS"],
    ),
    flag("quiet", "print errors only").short('Q'),
    flag("reboot", "reboot the nodes first")
        .refused("nodes are not rebooted for jobs; ask an administrator"),
    opt(
        "requeue",
        "expedite",
        "the job may be put back into the queue; with a value, before all others after a failure of a node",
    )
    .optional()
    .on(B)
    .sbatch_env(&["SBATCH_REQUEUE"])
    .partly(
        "its nodes are kept for it as for any job of the highest priority; the site allows it by enable_expedited_requeue",
    ),
    opt(
        "signal",
        "[R|B:]signal[@seconds]",
        "signal to send so many seconds before the end",
    )
    .env(&["SBATCH_SIGNAL"], &["SLURM_SIGNAL"], &["SALLOC_SIGNAL"]),
    flag("stepmgr", "let the job's first node make its steps")
        .env(&["SBATCH_STEPMGR"], &[], &["SALLOC_STEPMGR"])
        .stored("the first node of a job always makes its steps"),
    flag("test-only", "say when the job would start, submit nothing").on(BR),
    opt(
        "time",
        "minutes",
        "limit on the run time: minutes, hours:minutes:seconds, days-hours",
    )
    .short('t')
    .env(
        &["SBATCH_TIMELIMIT"],
        &["SLURM_TIMELIMIT"],
        &["SALLOC_TIMELIMIT"],
    ),
    opt(
        "time-min",
        "minutes",
        "least run time that would do, if an earlier start is possible",
    ),
    opt("uid", "user", "user that the job runs as (root only)"),
    flag("verbose", "say more; may be repeated").short('v').env(
        &["SBATCH_DEBUG"],
        &["SLURM_DEBUG"],
        &["SALLOC_DEBUG"],
    ),
    flag("wait", "return when the job has ended, with its exit code")
        .short('W')
        .on(B)
        .sbatch_env(&["SBATCH_WAIT"]),
    opt(
        "wait-all-nodes",
        "0|1",
        "start when all nodes are ready (1) or the first is (0)",
    )
    .on(BA)
    .env(&["SBATCH_WAIT_ALL_NODES"], &[], &["SALLOC_WAIT_ALL_NODES"])
    .stored("a job's nodes are ready when it starts"),
    opt("wckey", "key", "workload key for accounting").env(
        &["SBATCH_WCKEY"],
        &["SLURM_WCKEY"],
        &["SALLOC_WCKEY"],
    ),
    opt("wrap", "command", "run this command in a shell script")
        .on(B)
        .command_line_only(),
    flag("help", "print this help")
        .short('h')
        .group(Group::Help)
        .command_line_only(),
    flag("usage", "print a short summary")
        .group(Group::Help)
        .command_line_only(),
    flag("version", "print the version")
        .short('V')
        .group(Group::Other)
        .command_line_only(),
    opt(
        "autocomplete",
        "word",
        "names that complete a word, for shells",
    )
    .group(Group::Other)
    .command_line_only()
    .refused("completion scripts are not made by the commands themselves"),
];
