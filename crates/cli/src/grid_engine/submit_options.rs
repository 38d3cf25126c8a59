//! The options of qsub and of the commands that run things at once, a row for each.

use crate::options::{Arg, HelpForm, Opt, Spec, also, flag, opt};

/// qsub.
pub(crate) static QSUB: Spec = Spec {
    name: "qsub",
    about: "Submits a script or a command as a job, with the options of Grid Engine.",
    operands: "[SCRIPT|-|COMMAND [ARGUMENT...]]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Lines of a script that begin with #$ hold options too. Weakest first, options come from \
            $SGE_ROOT/$SGE_CELL/common/sge_request, ~/.sge_request, ./.sge_request, the script and the command line. \
            What queues, parallel environments, complexes and projects stand for is in sge.conf beside slurm.conf.\n",
};

const NO_CONTEXT: &str = "jobs have no context; use -v for variables of the job";
const NO_CHECKPOINTS: &str =
    "there are no checkpointing environments; a job that is requeued (-r y) begins anew";

pub(super) static OPTIONS: &[Opt] = &[
    opt(
        "a",
        "date_time",
        "do not start before [[CC]YY]MMDDhhmm[.SS]",
    ),
    opt("ac", "context_list", "add variables to the job's context").warns(NO_CONTEXT),
    opt("ar", "reservation", "run in this reservation, by its name"),
    opt(
        "A",
        "account_string",
        "text for accounting; it becomes the job's comment",
    ),
    opt("b", "y|n", "the operand is a command and no script"),
    opt("binding", "strategy", "bind to cores")
        .partly("it is checked and shown; a job is always bound to the CPUs that it has"),
    opt("c", "selector", "when to checkpoint").refused(NO_CHECKPOINTS),
    opt("ckpt", "name", "checkpointing environment").refused(NO_CHECKPOINTS),
    flag("clear", "forget the options that came before"),
    opt(
        "clearp",
        "attribute",
        "do without what the job class says of an attribute",
    ),
    opt(
        "clears",
        "attribute key",
        "do without an element of a list of the job class",
    ),
    flag("cwd", "run in the directory where qsub is called"),
    opt(
        "C",
        "prefix",
        "what begins lines of options in the script, in place of #$",
    ),
    opt(
        "dc",
        "context_list",
        "remove variables from the job's context",
    )
    .warns(NO_CONTEXT),
    opt("display", "display", "X display of the job"),
    opt("dl", "date_time", "time by which the job is to start")
        .refused("there are no deadline users; ask an administrator for a priority"),
    opt("e", "path", "file or directory for standard error"),
    flag("h", "submit held; qrls lets the job go"),
    flag("hard", "requests after this must be met"),
    opt("he", "y|n", "what exit status 100 does")
        .refused("set RequeueExitHold=100 in slurm.conf for all jobs"),
    opt(
        "hold_jid",
        "jobs",
        "wait until these jobs, by number, name or pattern, have ended",
    ),
    opt(
        "hold_jid_ad",
        "jobs",
        "each task waits for the same task of these arrays",
    ),
    opt("i", "path", "file for standard input"),
    opt("j", "y|n", "standard error goes where standard output goes"),
    opt("jc", "class[.variant]", "job class; NONE for none"),
    opt("js", "share", "share of the job in its project")
        .warns("shares are those of users and accounts"),
    opt(
        "jsv",
        "url",
        "program that verifies the job before it is sent",
    ),
    opt(
        "l",
        "resources",
        "request resources: h_rt=1:0:0,h_vmem=2G,gpu=1",
    ),
    opt(
        "m",
        "events",
        "send mail at begin, end, abort: b, e, a; n is never",
    )
    .partly("s, mail when a job is suspended, is not sent"),
    opt("M", "addresses", "who gets the mail").partly("the first address only"),
    opt("masterl", "resources", "requests of the first task")
        .refused("all tasks have the same requests; use -l"),
    opt("masterq", "queues", "queues for the first task")
        .partly("hosts (QUEUE@HOST) only of a job on one host; the whole job is in one of these queues"),
    opt("mbind", "policy", "how memory is bound: cores[:strict], nlocal[:strict]")
        .partly("round_robin is refused; srun in the script binds its tasks so, the script itself has the kernel's rule, near its CPUs"),
    opt(
        "mods",
        "attribute key value",
        "change an element of a list of the job class",
    )
    .refused("say it by the option itself, as -l h_rt=600"),
    opt(
        "adds",
        "attribute key value",
        "add to a list of the job class",
    )
    .refused("say it by the option itself, as -l gpu=1"),
    opt("N", "name", "name of the job"),
    flag("notify", "send SIGUSR2 a minute before the end by -l h_rt")
        .partly("nothing is sent before a suspension or qdel"),
    opt("now", "y|n", "start at once or never")
        .partly("y of an array of several tasks is refused"),
    opt("o", "path", "file or directory for standard output"),
    opt("ot", "tickets", "override tickets").refused("there are no tickets; use -p"),
    opt(
        "p",
        "priority",
        "from -1023 to 1024; more than 0 needs an administrator",
    ),
    opt("pe", "pe_name slot_range", "parallel environment and slots"),
    opt("par", "rule", "allocation rule in place of that of -pe"),
    opt("P", "project", "project; it becomes the job's account"),
    opt("q", "queues", "queues to run in: NAME, NAME@HOST, patterns"),
    opt("R", "y|n", "reserve resources")
        .partly("all jobs that wait first in line have their resources reserved"),
    opt("r", "y|n", "whether the job may run again"),
    opt("rdi", "y|n", "have the scheduler say why the job waits")
        .stored("muster why JOB says so of each job"),
    opt(
        "rou",
        "variables",
        "usage that is reported while the job runs",
    )
    .refused("sstat shows the usage of running jobs"),
    opt("S", "path", "shell that runs the script"),
    opt("sc", "context_list", "set the job's context").warns(NO_CONTEXT),
    opt("shell", "y|n", "with -b y: let a shell read the command"),
    flag("soft", "requests after this need not be met")
        .partly("for features of nodes and queues; of consumables it is refused, as in Grid Engine; others cause a warning"),
    opt(
        "sync",
        "y|n|x",
        "wait for the end, as y and x are; the exit status is the job's",
    ),
    opt(
        "t",
        "task_range",
        "an array of tasks: N, FIRST-LAST, FIRST-LAST:STEP",
    ),
    opt(
        "tc",
        "count",
        "at most so many tasks of the array run at once",
    ),
    opt(
        "tcon",
        "y|n",
        "all tasks of the array start together or none",
    )
    .refused("tasks of an array start one by one; use -pe"),
    flag("terse", "print the number alone"),
    opt("v", "variables", "variables of the job: NAME or NAME=value"),
    opt("umask", "mask", "file mode creation mask of the job, in octal"),
    flag("V", "the job gets all variables"),
    flag("verify", "print the job as qstat -j would, and submit nothing"),
    opt(
        "w",
        "e|w|n|p|v",
        "verify that hosts can run the job: e refuses, w warns, v and p submit nothing",
    ),
    opt("wd", "directory", "run in this directory"),
    opt("xd", "options", "options of a container")
        .refused("run the container's own command inside the job"),
    opt("xdv", "volumes", "volumes of a container")
        .refused("run the container's own command inside the job"),
    opt("@", "file", "read options from a file"),
    flag("help", "print this help"),
    also("hold_jid", "holdjid", Arg::Required),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_manual_is_known() {
        let manual = "a ac ar A b binding c ckpt clear cwd C dc display dl e h hard he help hold_jid hold_jid_ad i j js jsv \
                      l m M masterq N notify now o ot P p pe q R r S sc shell soft sync t tc terse v verify V w wd @ \
                      adds clearp clears jc masterl mbind mods par rdi rou tcon umask xd xdv";
        for word in manual.split_whitespace() {
            assert!(OPTIONS.iter().any(|option| option.long == word), "-{word}");
        }
    }
}
