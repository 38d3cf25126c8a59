//! Attributes of job classes: Grid Engine's, and those of Slurm that these do not cover.

/// Values that an attribute can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// `y` or `n`.
    Flag,
    /// A number.
    Number,
    /// A list of `NAME=VALUE`.
    List,
    /// None: it can be forbidden or left free.
    Unspecified,
    /// There is nothing like it here, so that it is free, whatever users ask for; why.
    Absent(&'static str),
}

/// An attribute.
#[derive(Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, that of qsub's option for most.
    pub name: &'static str,
    /// Its values.
    pub kind: Kind,
    /// Its meaning, with the option of sbatch.
    pub meaning: &'static str,
}

impl Attribute {
    /// Form of its line after the name.
    pub fn form(&self) -> String {
        match self.kind {
            Kind::Text => "[{~}|{-}|{+}]TEXT".to_owned(),
            Kind::Flag => "[{~}|{-}|{+}]y or n".to_owned(),
            Kind::Number => "[{~}|{-}|{+}]NUMBER".to_owned(),
            Kind::List => "[{...}][{~}|{-}|{+}]NAME=VALUE,...".to_owned(),
            Kind::Unspecified => "UNSPECIFIED (nobody may give it) or {+}UNSPECIFIED".to_owned(),
            Kind::Absent(why) => format!("{{+}}UNSPECIFIED: {why}"),
        }
    }
}

const fn of(name: &'static str, kind: Kind, meaning: &'static str) -> Attribute {
    Attribute {
        name,
        kind,
        meaning,
    }
}

const CHECKPOINTS: Kind = Kind::Absent("there are no checkpointing environments");
const COMMAND: Kind = Kind::Absent("a class has no command: name the script when you submit");
const CONTEXT: Kind = Kind::Absent("jobs have no context");
const MASTER: Kind = Kind::Absent("all tasks of a job are placed in one way");

/// All attributes, in the order in which they are shown.
pub static ALL: &[Attribute] = &[
    of("A", Kind::Text, "text for accounting; --comment"),
    of("a", Kind::Unspecified, "time of start; --begin"),
    of("ar", Kind::Text, "reservation; --reservation"),
    of("b", COMMAND, "the operand is a command"),
    of(
        "binding",
        Kind::Absent("a job is always bound to its CPUs"),
        "binding to cores",
    ),
    of("c_interval", CHECKPOINTS, "checkpoints"),
    of("c_occasion", CHECKPOINTS, "checkpoints"),
    of("CMDNAME", COMMAND, "the command"),
    of("CMDARG", COMMAND, "its arguments"),
    of("ckpt", CHECKPOINTS, "checkpoints"),
    of("ac", CONTEXT, "context"),
    of("cwd", Kind::Text, "directory; --chdir"),
    of("dl", Kind::Unspecified, "deadline; --deadline"),
    of("e", Kind::Text, "file for standard error; --error"),
    of("h", Kind::Flag, "submitted held; --hold"),
    of(
        "hold_jid",
        Kind::Unspecified,
        "jobs to wait for; --dependency",
    ),
    of("i", Kind::Text, "file for standard input; --input"),
    of(
        "j",
        Kind::Flag,
        "standard error goes where standard output goes",
    ),
    of(
        "js",
        Kind::Absent("shares are those of users and accounts"),
        "job share",
    ),
    of(
        "l_hard",
        Kind::List,
        "resources: h_rt, h_vmem, complexes of sge.conf; --time, --mem-per-cpu, --gres, --licenses, --constraint, \
         --exclusive, --mincpus, --nodelist and their kin",
    ),
    of(
        "l_soft",
        Kind::Unspecified,
        "resources that need not be met; --prefer",
    ),
    of("masterl", MASTER, "resources of the first task"),
    of("m", Kind::Text, "mail at b, e, a; --mail-type"),
    of(
        "mbind",
        Kind::Absent("memory is bound by srun --mem-bind"),
        "binding of memory",
    ),
    of("M", Kind::Text, "who gets the mail; --mail-user"),
    of("masterq", MASTER, "queues of the first task"),
    of("N", Kind::Text, "name; --job-name"),
    of("notify", Kind::Flag, "a signal before the end; --signal"),
    of(
        "now",
        Kind::Absent("qsub cannot do it; qrsh does it always"),
        "start at once",
    ),
    of("o", Kind::Text, "file for standard output; --output"),
    of("P", Kind::Text, "project; --account"),
    of(
        "p",
        Kind::Number,
        "priority, -1023 to 1024; --nice, --priority",
    ),
    of(
        "pe_name",
        Kind::Text,
        "parallel environment; layout of tasks: --nodes, --ntasks-per-node, --cpus-per-task, --distribution and their kin",
    ),
    of("pe_range", Kind::Text, "slots: N or LEAST-MOST; --ntasks"),
    of("q_hard", Kind::Text, "queues; --partition"),
    of(
        "q_soft",
        Kind::Absent("a job runs in the queues that it names"),
        "queues that need not be met",
    ),
    of("qos", Kind::Text, "QOS; --qos"),
    of(
        "R",
        Kind::Absent("all jobs that wait first in line have reservations"),
        "reservation of resources",
    ),
    of("r", Kind::Flag, "whether the job may run again; --requeue"),
    of(
        "rou",
        Kind::Absent("usage is always booked at the end"),
        "reporting of usage",
    ),
    of(
        "S",
        Kind::Absent("the script's first line names its shell"),
        "shell",
    ),
    of(
        "shell",
        Kind::Absent("see S"),
        "whether a shell reads the command",
    ),
    of(
        "t",
        Kind::Text,
        "tasks of an array: FIRST-LAST:STEP; --array",
    ),
    of("tc", Kind::Number, "tasks that run at once; --array=...%N"),
    of("V", Kind::Absent("v has variables"), "all variables"),
    of(
        "v",
        Kind::List,
        "variables of the job; {~} yields to the user's own",
    ),
    of("wckey", Kind::Text, "workload key; --wckey"),
];

/// An attribute by its name.
pub fn find(name: &str) -> Option<&'static Attribute> {
    ALL.iter().find(|own| own.name == name)
}
