//! qrsh, qlogin, qsh: what runs at once, in front of the user. Their options become those of srun, which does the work.

use super::arguments::{self, OperandPosition, Parsed};
use super::places::places;
use super::request::{Request, WorkDir};
use super::submission;
use super::{defaults, fail, jsv, qsub, site, unreachable};
use crate::connect::Client;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use muster_conf::grid_engine::AllocationRule;
use muster_conf::grid_engine::resources::Resources;
use muster_conf::options::{self as submission_options, OptionCommand};
use muster_model::grid_engine as marks;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// qrsh.
pub(crate) static QRSH: Spec = Spec {
    name: "qrsh",
    about: "Runs a command, or a shell, on a host of the cluster at once.",
    operands: "[COMMAND [ARGUMENT...]]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: NOTES,
};

/// qlogin.
pub(crate) static QLOGIN: Spec = Spec {
    name: "qlogin",
    about: "Starts a login shell on a host of the cluster.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: NOTES,
};

/// qsh.
pub(crate) static QSH: Spec = Spec {
    name: "qsh",
    about: "Starts a terminal window (xterm) on a host of the cluster.",
    operands: "[-- XTERM_OPTION...]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: NOTES,
};

const NOTES: &str =
    "The command's words are joined by blanks, and the shell on the host reads them again.\n";

const NO_CONTEXT: &str = "jobs have no context; use -v for variables of the job";

static OPTIONS: &[Opt] = &[
    opt(
        "a",
        "date_time",
        "do not start before [[CC]YY]MMDDhhmm[.SS], with -now n",
    ),
    opt("ac", "context_list", "add variables to the job's context").warns(NO_CONTEXT),
    opt("c", "selector", "when to checkpoint").refused("there are no checkpointing environments"),
    opt("ckpt", "name", "checkpointing environment")
        .refused("there are no checkpointing environments"),
    opt(
        "dc",
        "context_list",
        "remove variables from the job's context",
    )
    .warns(NO_CONTEXT),
    opt("dl", "date_time", "deadline").refused("there are no deadline users"),
    opt("e", "path", "file for standard error"),
    flag("h", "submit held, with -now n; qrls lets it start"),
    opt(
        "hold_jid",
        "jobs",
        "wait until these jobs have ended, with -now n",
    ),
    opt("i", "path", "file for standard input"),
    opt("j", "y|n", "standard error goes where standard output goes")
        .partly("n has no effect: with -o and without -e both go to one file"),
    opt("js", "share", "share of the job in its project")
        .warns("shares are those of users and accounts"),
    opt("m", "events", "send mail").partly("s, mail when a job is suspended, is not sent"),
    opt("M", "addresses", "who gets the mail").partly("the first address only"),
    opt("masterl", "resources", "requests of the first task")
        .refused("all tasks have the same requests; use -l"),
    opt("masterq", "queues", "queues for the first task"),
    opt("mbind", "policy", "how memory is bound: cores[:strict], nlocal[:strict]")
        .partly("round_robin is refused"),
    flag("notify", "send SIGUSR2 a minute before the end by -l h_rt")
        .partly("nothing is sent before a suspension or qdel"),
    opt("o", "path", "file for standard output"),
    opt("ot", "tickets", "override tickets").refused("there are no tickets; use -p"),
    opt("r", "y|n", "whether the job may run again").refused("nobody would be there for it"),
    opt("sc", "context_list", "set the job's context").warns(NO_CONTEXT),
    opt("shell", "y|n", "let a shell read the command")
        .refused("the shell on the host always reads the command's words"),
    flag("verify", "print the job and submit nothing")
        .refused("qsub -verify prints it; srun --test-only asks when it would start"),
    opt("@", "file", "read options from a file"),
    opt("ar", "reservation", "run in this reservation"),
    opt(
        "jsv",
        "url",
        "program that verifies the job before it is sent",
    ),
    opt("A", "account_string", "text for accounting"),
    opt("b", "y|n", "the operand is a command").stored("it always is"),
    opt("binding", "strategy", "bind to cores")
        .warns("a job is always bound to the CPUs that it has"),
    flag("clear", "forget the options that came before"),
    flag("cwd", "run in the directory where it is called"),
    opt("display", "display", "X display of the job"),
    flag("hard", "requests after this must be met"),
    opt(
        "inherit",
        "host",
        "in a job: run the command on this host of it, as its task",
    ),
    opt("jc", "class[.variant]", "job class; NONE for none"),
    opt("l", "resources", "request resources"),
    opt("N", "name", "name of the job"),
    flag("noshell", "without a shell around the command")
        .refused("the shell reads the command's words"),
    flag("nostdin", "no standard input"),
    opt(
        "now",
        "y|n",
        "give up unless it starts at once (y, the default)",
    )
    .partly("within a few seconds"),
    opt("p", "priority", "from -1023 to 1024"),
    opt("pe", "pe_name slot_range", "parallel environment and slots")
        .partly("on one host, and of a range the least number; use qsub for more"),
    opt("par", "rule", "allocation rule in place of that of -pe"),
    opt("pty", "y|n", "with a terminal"),
    opt("P", "project", "project"),
    opt("q", "queues", "queues to run in"),
    opt("R", "y|n", "reserve resources")
        .partly("all jobs that wait first in line have their resources reserved"),
    flag("soft", "requests after this need not be met")
        .partly("for features of nodes and queues; of consumables it is refused, as in Grid Engine; others cause a warning"),
    opt("S", "path", "shell").refused("the user's own shell is started"),
    opt("v", "variables", "variables of the job"),
    flag("V", "the job gets all variables").stored("it always does"),
    opt("w", "e|w|n|p|v", "verify").stored("what can never run is refused"),
    opt("wd", "directory", "run in this directory"),
    flag("verbose", "say more"),
    flag("help", "print this help"),
];

/// Time that `-now y` waits, seconds: a job is placed in the turn in which it arrives, or when an ended job makes room.
const AT_ONCE_S: &str = "5";

/// Runs qrsh.
pub(crate) fn rsh_main(args: &[String]) -> ExitCode {
    main(&QRSH, args)
}

/// Runs qlogin.
pub(crate) fn login_main(args: &[String]) -> ExitCode {
    main(&QLOGIN, args)
}

/// Runs qsh.
pub(crate) fn sh_main(args: &[String]) -> ExitCode {
    main(&QSH, args)
}

fn main(spec: &'static Spec, args: &[String]) -> ExitCode {
    let mut parsed = match arguments::parse(spec, args, OperandPosition::End) {
        Ok(parsed) => parsed,
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") {
        say::stdout(&spec.help());
        return ExitCode::SUCCESS;
    }
    let made = gather(&mut parsed).and_then(|verifiers| words(spec.name, &parsed, &verifiers));
    match made {
        Ok((words, queue)) => {
            let mark = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            let command = mark(marks::COMMAND, spec.name);
            let queue = queue.map(|queue| mark(marks::QUEUE, &queue));
            let marks: Vec<(String, String)> = [command].into_iter().chain(queue).collect();
            crate::srun::main_with_marks(&words, &marks)
        }
        Err(code) => code,
    }
}

/// Puts the options of sge_request files and of files of `-@` where they count, the weakest first. Gives the programs of `-jsv`.
fn gather(parsed: &mut Parsed) -> Result<Vec<String>, ExitCode> {
    // A task in a job has what the job has.
    if parsed.has("inherit") {
        return Ok(Vec::new());
    }
    let mut places = defaults::from_request_files().map_err(qsub::misplaced)?;
    let own = std::mem::take(&mut parsed.options);
    places.extend(defaults::expanded(String::new(), own, 0).map_err(qsub::misplaced)?);
    let verifiers = qsub::verifiers(&places);
    parsed.options = places.into_iter().flat_map(|place| place.options).collect();
    Ok(verifiers)
}

/// The command line of srun, and the queue that the job is in where a job is made.
fn words(
    name: &str,
    parsed: &Parsed,
    verifiers: &[String],
) -> Result<(Vec<String>, Option<String>), ExitCode> {
    let command = match (name, parsed.operands.is_empty()) {
        ("qsh", _) => Some(format!("xterm {}", parsed.operands.join(" "))),
        ("qlogin", _) | (_, true) => None,
        _ => Some(parsed.operands.join(" ")),
    };
    if let Some(host) = parsed.last("inherit") {
        let Some(command) = command else {
            return Err(fail("qrsh: -inherit needs a command", 1));
        };
        // A step beside those that the job has.
        let options = ["--overlap", "--nodes=1", "--ntasks=1", "--nodelist"].map(str::to_owned);
        let rest = [host, "/bin/sh", "-c", &command].map(str::to_owned);
        return Ok((options.into_iter().chain(rest).collect(), None));
    }
    let mut request = Request::default();
    for given in &parsed.options {
        request
            .take(given)
            .map_err(|refused| qsub::complain(&refused))?;
    }
    let command = verified(name, parsed, verifiers, &mut request, command)?;
    if request.pe.is_some() {
        request.choose_environment(&site::mapping()?);
    }
    let (mut words, queue) = options(name, &request, command.as_deref())?;
    if parsed.last("now").is_none_or(|now| now.starts_with('y')) {
        words.push(format!("--immediate={AT_ONCE_S}"));
    }
    let wants_terminal = match parsed.last("pty") {
        Some(answer) => answer.starts_with('y'),
        None => command.is_none() && name != "qsh" && std::io::stdin().is_terminal(),
    };
    if wants_terminal {
        words.push("--pty".to_owned());
    }
    if parsed.has("nostdin") && request.stdin.is_none() {
        words.push("--input=none".to_owned());
    }
    if parsed.has("verbose") {
        words.push("--verbose".to_owned());
    }
    let slots = request.pe.as_ref().map_or(1, |(_, slots)| slots.least());
    let program = [
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        script(&request, name, command.as_deref(), slots),
    ];
    words.extend(program);
    Ok((words, Some(queue)))
}

/// Has the programs of `-jsv` verify the job; gives the command as it is after that.
fn verified(
    name: &str,
    parsed: &Parsed,
    verifiers: &[String],
    request: &mut Request,
    command: Option<String>,
) -> Result<Option<String>, ExitCode> {
    if verifiers.is_empty() {
        return Ok(command);
    }
    if name == "qsh" || command.is_none() {
        let mut none = qsub::Program {
            script: Vec::new(),
            path: "NONE".to_owned(),
            args: Vec::new(),
            name: name.to_ascii_uppercase(),
        };
        jsv::verify(verifiers, name, request, &mut none)?;
        if !none.args.is_empty() {
            return Err(super::unable_to_run(
                "the JSV adds arguments, and there is no command that could have any",
            ));
        }
        return Ok(command);
    }
    let mut words = parsed.operands.iter().cloned();
    let path = words.next().unwrap_or_default();
    let mut program = qsub::Program {
        script: Vec::new(),
        name: line::base_name(&path),
        path,
        args: words.collect(),
    };
    jsv::verify(verifiers, name, request, &mut program)?;
    let words: Vec<String> = std::iter::once(program.path).chain(program.args).collect();
    Ok(Some(words.join(" ")))
}

/// The input of the shell on the host: variables that Grid Engine promises, then the command or a login shell.
fn script(request: &Request, name: &str, command: Option<&str>, slots: u32) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let first = command
        .and_then(|command| command.split(' ').next())
        .unwrap_or(name);
    let job = request.name.as_deref().unwrap_or(match command {
        Some(_) => first,
        None if name == "qlogin" => "QLOGIN",
        None => "QRLOGIN",
    });
    let mut text = format!(
        "export JOB_ID=\"$SLURM_JOB_ID\" JOB_NAME={} QUEUE=\"${{QUEUE:-$SLURM_JOB_PARTITION}}\" NSLOTS={slots} NHOSTS=1 NQUEUES=1 \
         JOB_SCRIPT={} SGE_TASK_ID=undefined SGE_TASK_FIRST=undefined SGE_TASK_LAST=undefined \
         SGE_TASK_STEPSIZE=undefined RESTARTED=0",
        quoted(job),
        name.to_ascii_uppercase()
    );
    if let Some((pe, _)) = &request.pe {
        text += &format!(" PE={}", quoted(pe));
    }
    if let Some(command) = command {
        text += &format!(" QRSH_COMMAND={}", quoted(command));
    }
    for (name, value) in &request.variables {
        if let Some(value) = value {
            text += &format!(" {name}={}", quoted(value));
        }
    }
    if let Some(display) = &request.display {
        text += &format!(" DISPLAY={}", quoted(display));
    }
    match command {
        Some(command) => text + "\n" + command + "\n",
        None => text + "\nexec \"${SHELL:-/bin/sh}\" -l\n",
    }
}

/// Options of sbatch that srun has, too, as words; and the queue.
fn options(
    name: &str,
    request: &Request,
    command: Option<&str>,
) -> Result<(Vec<String>, String), ExitCode> {
    let mapping = site::mapping()?;
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let mut resources = Resources::default();
    for (request, value) in &request.hard {
        resources
            .add(
                (request, value.as_deref()),
                &mapping,
                &client.endpoint.gres_types,
            )
            .map_err(|why| super::unable_to_run(&why))?;
    }
    let job = request.name.clone().unwrap_or_else(|| match command {
        Some(command) => line::base_name(command.split(' ').next().unwrap_or(name)),
        None => name.to_ascii_uppercase(),
    });
    let mut chosen = submission::options(request, &job, &resources, &mapping)
        .map_err(|refused| qsub::complain(&refused))?;
    places(request, &resources, &mapping, &mut client, &mut chosen)?;
    submission::dependencies(request, &mut client, &mut chosen)?;
    if let Some(signal) = chosen.value("signal").map(str::to_owned) {
        // The step's tasks are all that the job has.
        let signal = signal.strip_prefix("B:").unwrap_or(&signal);
        chosen.set("signal", Some(signal.to_owned()));
    }
    let known = &client.endpoint.gres_types;
    submission::soft(name, request, &mapping, known, &mut chosen)
        .map_err(|why| super::unable_to_run(&why))?;
    if let Some((pe, slots)) = &request.pe {
        if request.rule_of(pe, &mapping) != Some(AllocationRule::PeSlots) && slots.least() > 1 {
            let text = format!(
                "{name}: -pe {pe} may need several hosts: use qsub, or an environment with $pe_slots"
            );
            return Err(fail(&text, 1));
        }
        if slots.all.len() > 1 {
            say::stderr(&format!(
                "{name}: warning: of the slots of -pe {pe} the least number is taken: {}\n",
                slots.least()
            ));
        }
        // One command has all slots.
        chosen.set("ntasks", Some("1".to_owned()));
        chosen.set("cpus-per-task", Some(slots.least().to_string()));
    }
    let mut left_out = vec!["open-mode", "array", "requeue", "no-requeue"];
    for (long, given) in [
        ("output", &request.stdout),
        ("error", &request.stderr),
        ("input", &request.stdin),
    ] {
        // Streams are the caller's.
        if given.is_none() {
            left_out.push(long);
        }
    }
    let mut words = Vec::new();
    if let Some(class) = &request.class {
        words.push(format!("--class={class}"));
        // Options that were not given are the class's.
        for (long, is_given) in [
            ("job-name", request.name.is_some()),
            ("chdir", request.work_dir != WorkDir::Home),
            ("ntasks", request.pe.is_some()),
        ] {
            if !is_given {
                chosen.remove(long);
            }
        }
    }
    for given in chosen
        .iter()
        .filter(|given| !left_out.contains(&given.row.long))
    {
        if submission_options::find(OptionCommand::Srun, given.row.long).is_none() {
            continue;
        }
        words.push(match &given.value {
            Some(value) => format!("--{}={value}", given.row.long),
            None => format!("--{}", given.row.long),
        });
    }
    let partitions = chosen.value("partition").unwrap_or_default().split(',');
    let partitions = partitions.filter(|own| !own.is_empty());
    let partitions: Vec<String> = partitions.map(str::to_owned).collect();
    let queue = submission::queue_name(request, &partitions, &mapping, &mut client)?;
    Ok((words, queue))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_manual_is_known_or_refused_by_name() {
        let manual = "a ac ar A b binding c ckpt clear cwd dc display dl e h hard help hold_jid i inherit j jc js jsv l m M \
                      masterl masterq mbind N noshell nostdin notify now o ot p P pe pty q R r S sc shell soft v V verbose \
                      verify w wd @";
        for word in manual.split_whitespace() {
            assert!(OPTIONS.iter().any(|option| option.long == word), "-{word}");
        }
    }

    #[test]
    fn what_the_shell_reads() {
        let request = Request {
            variables: vec![("A".to_owned(), Some("it's".to_owned()))],
            ..Request::default()
        };
        let text = script(&request, "qrsh", Some("hostname -f"), 1);
        assert!(
            text.starts_with("export JOB_ID=\"$SLURM_JOB_ID\" JOB_NAME='hostname' "),
            "{text}"
        );
        assert!(text.ends_with(" A='it'\\''s'\nhostname -f\n"), "{text}");
        assert!(script(&request, "qlogin", None, 2).contains(" NSLOTS=2 "));
    }
}
