//! The options and commands of scontrol: what its parser, its help, its man page and the compatibility page are made of.

use crate::options::{Arg, HelpForm, OptionStatus, Spec, also, flag, opt, push_row};

const NO_FEDERATION: &str = "this cluster is not in a federation";

/// scontrol.
pub(crate) static SPEC: Spec = Spec {
    name: "scontrol",
    about: "Shows the cluster in full, and changes it. Without a command it reads commands until 'exit'.",
    operands: "[COMMAND [ARGUMENT...]]",
    form: HelpForm::Options,
    options: &[
        flag("all", "hidden partitions too").short('a'),
        opt(
            "autocomplete",
            "WORD",
            "names that complete a word, for shells",
        )
        .refused("completion scripts are not made by the commands themselves"),
        opt("clusters", "NAME", "cluster to ask").short('M'),
        also("clusters", "cluster", Arg::Required),
        flag("details", "more of jobs").short('d'),
        flag(
            "dry-run",
            "with reconfigure: print what would change, and change nothing",
        ),
        flag("federation", "jobs of all clusters of a federation").stored(NO_FEDERATION),
        flag("future", "nodes in state FUTURE too").short('F'),
        flag("help", "print this help").short('h'),
        flag("hide", "no hidden partitions (the default)"),
        opt(
            "json",
            "VERSION",
            "show as JSON, in this version; list: versions there are",
        )
        .optional()
        .partly("jobs, nodes, partitions, reservations, licenses, topology and config, and of ping"),
        flag("local", "jobs of this cluster only").stored(NO_FEDERATION),
        flag("oneliner", "each record on one line").short('o'),
        flag("quiet", "print errors only").short('Q'),
        flag("sibling", "jobs of a federation's other clusters").stored(NO_FEDERATION),
        opt("uid", "UID", "update as this user")
            .short('u')
            .refused("updates are made by the calling user"),
        flag("usage", "print a short summary"),
        flag("verbose", "say more").short('v'),
        flag("version", "print the version").short('V'),
        opt("yaml", "VERSION", "show as YAML, in this version")
            .optional()
            .partly("jobs, nodes, partitions, reservations, licenses, topology and config, and of ping"),
    ],
    variables: &[("SCONTROL_ALL", "all")],
    notes: "\
JOBS are numbers such as 5, 7_3 or 7_[1-3], with commas or blanks between them, or JobName=NAME.
A SPECIFICATION is Key=Value..., with JobId=, StepId=, NodeName=, PartitionName= or ReservationName= among them.
",
};

/// A command: its name, how few letters stand for it, and its least and most words.
pub(crate) struct Keyword {
    pub(crate) name: &'static str,
    pub(crate) letters: usize,
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// Its arguments.
    pub(crate) arguments: &'static str,
    /// Its effect.
    pub(crate) help: &'static str,
    /// Its effect here.
    pub(crate) status: OptionStatus,
}

const fn keyword(
    name: &'static str,
    letters: usize,
    least: usize,
    most: usize,
    arguments: &'static str,
    help: &'static str,
) -> Keyword {
    Keyword {
        name,
        letters,
        least,
        most,
        arguments,
        help,
        status: OptionStatus::Works,
    }
}

impl Keyword {
    const fn refused(mut self, why: &'static str) -> Keyword {
        self.status = OptionStatus::Refused(why);
        self
    }

    const fn partly(mut self, how: &'static str) -> Keyword {
        self.status = OptionStatus::Partly(how);
        self
    }
}

const MANY: usize = usize::MAX;
const LEVEL: &str = "the scheduler has no log of its own: use setdebug";

/// All commands.
pub(crate) const KEYWORDS: &[Keyword] = &[
    keyword("abort", 5, 0, 0, "", "stop the controller")
        .partly("it is an ordinary shutdown of the controller; no core file is written"),
    keyword("all", 3, 0, 0, "", "as --all, for the commands that follow"),
    keyword("cancel_reboot", 3, 1, 1, "NODES", "take back a reboot"),
    keyword("cluster", 2, 0, 1, "[NAME]", "talk to this cluster; only this one is known"),
    keyword("completing", 2, 0, 0, "", "jobs whose nodes are still being cleaned"),
    keyword("create", 2, 1, MANY, "SPECIFICATION", "make nodes, a partition or a reservation")
        .partly("a node needs State=CLOUD or FUTURE, and room by MaxNodeCount; a partition is there until scontrol reconfigure, or longer with ReconfigFlags=KeepPartInfo"),
    keyword("delete", 3, 1, 2, "SPECIFICATION", "remove nodes, a partition or a reservation without jobs")
        .partly("nodes that scontrol create or slurmd -Z made; others are removed in slurm.conf"),
    keyword("details", 3, 0, 0, "", "as --details, for the commands that follow"),
    keyword("errnumstr", 2, 1, 1, "NUMBER", "an error number's text")
        .partly("the system's numbers, and Slurm's of the refusals that are given here"),
    keyword("exit", 1, 0, 0, "", "stop reading commands"),
    keyword("fsdampeningfactor", 3, 1, 1, "FACTOR", "dampen fair shares")
        .refused("set FairShareDampeningFactor in slurm.conf, then scontrol reconfigure"),
    keyword("help", 2, 0, 0, "", "print this help"),
    keyword("hide", 2, 0, 0, "", "as --hide, for the commands that follow"),
    keyword("hold", 3, 1, MANY, "JOBS", "keep pending jobs from starting"),
    keyword("holdu", 4, 1, MANY, "JOBS", "the same, but their owners may release them"),
    keyword("listjobs", 5, 0, 1, "[NODE]", "jobs that run on this node, or on the one that is named"),
    keyword("liststeps", 5, 0, 1, "[NODE]", "steps that run on this node, or on the one that is named"),
    keyword("listpids", 1, 0, 2, "[JOB[.STEP]] [NODE]", "process ids of jobs on this node"),
    keyword("local", 3, 0, 0, "", "as --local"),
    keyword("notify", 1, 2, MANY, "JOB MESSAGE", "write a line to a job's standard error, or to the salloc or srun that holds it"),
    keyword("oneliner", 1, 0, 0, "", "as --oneliner, for the commands that follow"),
    keyword("pidinfo", 3, 1, 1, "PID", "the job that a process of this node belongs to"),
    keyword("ping", 3, 0, 0, "", "whether the controller answers"),
    keyword("quiet", 4, 0, 0, "", "as --quiet, for the commands that follow"),
    keyword("quit", 4, 0, 0, "", "stop reading commands"),
    keyword("reboot", 3, 1, MANY, "[ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES|ALL", "reboot nodes once no job is there")
        .partly("a node that does not come back is down after SlurmdTimeout, whatever ResumeTimeout says"),
    keyword("reconfigure", 3, 0, 0, "", "read the configuration files again"),
    keyword("release", 3, 1, MANY, "JOBS", "let held jobs go"),
    keyword("requeue", 3, 1, MANY, "[Incomplete] JOBS", "put jobs back into the queue"),
    keyword("requeuehold", 8, 1, MANY, "[Incomplete] [State=SpecialExit] JOBS", "put jobs back into the queue, held"),
    keyword("resume", 3, 1, MANY, "JOBS", "let stopped jobs go on"),
    keyword("schedloglevel", 3, 1, 1, "LEVEL", "log the scheduler").refused(LEVEL),
    keyword("setdebug", 4, 1, 2, "LEVEL", "have the controller log more or less until it reads its configuration again")
        .partly("of the controller, not of agents: set SlurmdDebug in slurm.conf and restart those"),
    keyword("setdebugflags", 9, 1, MANY, "[+|-]FLAG", "log more of something")
        .refused("the log goes by level only: use setdebug"),
    keyword("show", 2, 1, MANY, "<ENTITY> [<ID>]", "print jobs, nodes, partitions, config, steps, ..."),
    keyword("shutdown", 8, 0, 1, "[slurmctld]", "stop the daemons, or only the controller"),
    keyword("suspend", 2, 1, MANY, "JOBS", "stop running jobs"),
    keyword("takeover", 8, 0, 1, "[INDEX]", "make a backup controller the primary one")
        .refused("there is no backup controller"),
    keyword("token", 3, 0, MANY, "[username=USER] [lifespan=SECONDS]", "make a token by which commands connect as a user (SLURM_JWT)"),
    keyword("top", 3, 1, MANY, "JOBS", "put jobs before the user's others"),
    keyword("uhold", 2, 1, MANY, "JOBS", "as holdu"),
    keyword("update", 1, 0, MANY, "SPECIFICATION", "change jobs, steps, nodes, partitions or reservations")
        .partly("fields are listed below; of steps TimeLimit; SlurmctldDebug as setdebug"),
    keyword("verbose", 4, 0, 0, "", "as --verbose, for the commands that follow"),
    keyword("version", 4, 0, 0, "", "print the version"),
    keyword("wait_job", 2, 1, 1, "JOB", "wait until a job's nodes are ready"),
    keyword(
        "write",
        2,
        1,
        3,
        "batch_script JOB [FILE|-]|config [FILE]",
        "write a job's script, or the configuration in force, to a file",
    ),
];

/// Text of `--help`.
pub(crate) fn help() -> String {
    let mut text = SPEC.help();
    text.push_str("\n  Valid <COMMAND> values are:\n");
    for keyword in KEYWORDS {
        let note = match keyword.status {
            OptionStatus::Refused(_) => " (not supported here)",
            _ => "",
        };
        let left = format!("  {} {}", keyword.name, keyword.arguments);
        push_row(
            &mut text,
            left.trim_end(),
            &format!("{}{note}", keyword.help),
        );
    }
    push_row(&mut text, "  !!", "repeat the last command");
    text
}
