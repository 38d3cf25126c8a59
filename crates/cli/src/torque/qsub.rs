//! qsub: a script or a command becomes a job, with the options of Torque. It makes a command line of sbatch, or of salloc for `-I`.

use super::arguments::{self, TorqueLine, WordPlaces};
use super::request::TorqueRequest;
use super::script::{self, TorqueProgram};
use super::{HELP, call, fail, submission, wrong_usage};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::submit::line;
use crate::{salloc, say, sbatch};
use muster_conf::options::torque::AmountUnits;
use muster_conf::options::{OptionError, directives};
use muster_model::torque::COMMAND;
use std::process::ExitCode;

/// qsub.
pub(crate) static SPEC: Spec = Spec {
    name: "torque-qsub",
    about: "Submits a script or a command as a job, with the options of Torque.",
    operands: "[SCRIPT [ARGUMENT...]]",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "This is qsub where MUSTER_COMMAND_SET is torque, or where sge.conf has the line 'commands torque'. Lines of a script that begin with #PBS hold options, too, and those that begin with #SBATCH options of sbatch; the command \
            line is strongest. Without a script it is read from standard input. The job's number is printed.\n",
};

const ANOTHER_USER: &str = "a job is its submitter's; root may use sbatch --uid";

static OPTIONS: &[Opt] = &[
    opt(
        "a",
        "date_time",
        "do not start before [[[[CC]YY]MM]DD]hhmm[.SS], hh:mm or a time of sbatch",
    ),
    opt("A", "account", "account of the job"),
    opt("b", "y|n", "y: the operands are a command and no script")
        .partly("a number of seconds to wait for the server has no effect: it is waited for"),
    opt("c", "n", "when to checkpoint").partly("never, n, is all there is; others are refused"),
    opt(
        "C",
        "prefix",
        "what begins lines of options in the script, in place of #PBS",
    ),
    opt("d", "path", "directory that the job runs in"),
    opt("D", "path", "root directory of the job")
        .refused("jobs see the node's files; use the container's own command in the script"),
    opt("e", "path", "file or directory for standard error"),
    opt("E", "level", "PBS only").refused("there is nothing of that name"),
    flag("f", "go on when a node of the job is lost"),
    opt("F", "arguments", "arguments of the script, in one word"),
    flag("h", "submit held; qrls lets the job go"),
    flag(
        "I",
        "interactive: a shell, or a command, that holds the job's nodes",
    ),
    opt("j", "oe|eo|n", "standard error and output go into one file"),
    opt("J", "range", "an array of tasks: 1-5, 1-9:2, 0,3, 1-9%2"),
    opt("k", "o|e|oe|n", "keep output on the node")
        .warns("output is written where -o and -e say, while the job runs"),
    opt("K", "seconds", "seconds between the signals TERM and KILL")
        .warns("KillWait of slurm.conf says how many there are"),
    opt(
        "l",
        "resources",
        "request resources: nodes=2:ppn=4,walltime=1:00:00,mem=2gb",
    ),
    opt("L", "tasks", "requests of Torque 6").refused("use -l nodes=N:ppn=M"),
    opt("m", "a|b|e|n", "send mail at abort, begin, end; n is never"),
    opt("M", "addresses", "who gets the mail"),
    flag("n", "have the nodes alone"),
    opt("N", "name", "name of the job"),
    opt("o", "path", "file or directory for standard output"),
    opt(
        "p",
        "priority",
        "as sbatch --nice, of which less is more urgent",
    ),
    opt("pe", "shm count", "CPUs of each task"),
    opt("P", "wckey", "key of the job's use in accounting"),
    opt("q", "queue", "partition of the job").partly("without the server of QUEUE@SERVER"),
    opt("r", "y|n", "whether the job may run again"),
    flag(
        "sbatchline",
        "print the command line of sbatch and submit nothing",
    ),
    opt("S", "path", "shell that runs the script"),
    opt("t", "range", "an array of tasks, as -J"),
    opt("T", "script", "programs before and after the job")
        .refused("only the site's programs run around jobs"),
    opt("u", "user", "submit for another user").refused(ANOTHER_USER),
    opt(
        "v",
        "variables",
        "variables of the job alone: NAME, NAME=value",
    ),
    flag("V", "the job gets all variables, as without -v"),
    opt("w", "path", "as -d"),
    opt("wd", "path", "as -d"),
    opt(
        "W",
        "attributes",
        "depend=, umask=, block=, group_list=, x=NACCESSPOLICY:SINGLEJOB",
    )
    .partly("others are refused by name, stagein and stageout among them"),
    flag(
        "x",
        "with -I: the operands are the command that holds the nodes",
    ),
    flag("X", "windows of X").refused("X11 is not forwarded; use ssh -X to a node of the job"),
    flag("z", "do not print the job's number"),
    flag("version", "print the version"),
    HELP[0],
    HELP[1],
];

/// Beginning of lines of options in a script.
const DIRECTIVE: &str = "#PBS";

/// Runs qsub.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let parsed =
        arguments::parse(&SPEC, args, WordPlaces::End).map_err(|why| wrong_usage(&SPEC, &why))?;
    if parsed.wants_help() {
        say::stdout(&SPEC.help());
        return Ok(ExitCode::SUCCESS);
    }
    if parsed.has("version") {
        return Ok(say::version());
    }
    let is_command = parsed.last("b") == Some("y") || parsed.has("x");
    let is_interactive = parsed.has("I");
    if parsed.has("x") && !is_interactive {
        return Err(wrong_usage(&SPEC, "-x is for -I alone; use -b y"));
    }
    if parsed.has("sbatchline") {
        let request = request(&parsed, None)?;
        return line_alone(&request, &parsed.operands);
    }
    if is_interactive {
        return interactive(&parsed);
    }
    let program = match is_command {
        true => TorqueProgram::of_command(&parsed.operands),
        false => TorqueProgram::of_script(&parsed.operands),
    };
    let program = program.map_err(|why| fail(call(&SPEC), &why, 1))?;
    let request = request(&parsed, Some(&program))?;
    let said = said_for_sbatch(&program);
    let words = submission::words(&request, &program, &said);
    let words = words.map_err(|why| fail(call(&SPEC), &why, 1))?;
    let origin = submission::origin(&request, program, args);
    Ok(sbatch::main_for(&words, origin))
}

/// Request of script and command line, the latter being stronger.
fn request(
    parsed: &TorqueLine,
    program: Option<&TorqueProgram>,
) -> Result<TorqueRequest, ExitCode> {
    let name = call(&SPEC);
    let mut request = TorqueRequest::default();
    let prefix = parsed.last("C").unwrap_or(DIRECTIVE);
    if let Some(program) = program.filter(|own| !own.is_command && !prefix.is_empty()) {
        let text = program.text();
        let words = directives::words_after(prefix, &text, &program.name);
        let words = words.map_err(|e| fail(name, &one_line(&e), 1))?;
        let found = arguments::parse(&SPEC, &words, WordPlaces::Mixed);
        let found = found.map_err(|why| fail(name, &format!("{prefix}: {why}"), 1))?;
        if let Some(word) = found.operands.first() {
            return Err(fail(name, &format!("{prefix} {word}: it is no option"), 1));
        }
        for given in &found.options {
            let taken = request.take(given, AmountUnits::Slurm);
            taken.map_err(|why| fail(name, &format!("{prefix} {why}"), 1))?;
        }
    }
    for given in &parsed.options {
        let taken = request.take(given, AmountUnits::Torque);
        taken.map_err(|why| fail(name, &why, 1))?;
    }
    Ok(request)
}

/// Files and the name that the script's lines for sbatch say, of which qsub has no need to say others.
fn said_for_sbatch(program: &TorqueProgram) -> Vec<&'static str> {
    let mut chosen =
        muster_conf::options::ChosenOptions::new(muster_conf::options::OptionCommand::Sbatch);
    if program.is_command || directives::read(&mut chosen, &program.text(), &program.name).is_err()
    {
        // sbatch reports their errors.
        return Vec::new();
    }
    let names = ["output", "error", "job-name"];
    names.into_iter().filter(|long| chosen.has(long)).collect()
}

fn one_line(error: &OptionError) -> String {
    error.lines.join(": ")
}

/// `--sbatchline`: what would be called.
fn line_alone(request: &TorqueRequest, words: &[String]) -> Result<ExitCode, ExitCode> {
    let wrong = |why: String| fail(call(&SPEC), &why, 1);
    let program = match (request.is_command, words.first()) {
        (true, _) => TorqueProgram::of_command(words).map_err(wrong)?,
        (false, Some(path)) => TorqueProgram {
            name: line::base_name(path),
            path: path.clone(),
            args: words[1..].to_vec(),
            ..TorqueProgram::default()
        },
        (false, None) => return Err(wrong("there is no script".to_owned())),
    };
    let all = submission::words(request, &program, &[]).map_err(wrong)?;
    let mut text = "sbatch".to_owned();
    for word in all.iter().filter(|word| *word != "--parsable") {
        text.push(' ');
        text.push_str(&submission::shown(word));
    }
    say::stdout(&format!("{text}\n"));
    Ok(ExitCode::SUCCESS)
}

/// `-I`: nodes that a shell holds.
fn interactive(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let wrong = |why: String| fail(call(&SPEC), &why, 1);
    // A script's lines count, but the script is not run.
    let program = match parsed.operands.first() {
        Some(path) if !parsed.has("x") => {
            let text = script::read(path).map_err(wrong)?;
            Some(TorqueProgram {
                name: line::base_name(path),
                bytes: text,
                ..TorqueProgram::default()
            })
        }
        _ => None,
    };
    let request = request(parsed, program.as_ref())?;
    let mut words = submission::of_allocation(&request).map_err(wrong)?;
    if parsed.has("x") {
        words.extend(parsed.operands.iter().cloned());
    }
    let mark = (COMMAND.to_owned(), "qsub".to_owned());
    Ok(salloc::main_with_marks(&words, &[mark]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_manual_is_known() {
        let manual = "a A b c C d D e f F h I j J k K l L m M n N o p P q r S t T u v V w W x X z";
        for word in manual.split_whitespace() {
            assert!(OPTIONS.iter().any(|option| option.long == word), "-{word}");
        }
    }
}
