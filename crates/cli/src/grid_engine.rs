//! The commands of Grid Engine: a second front end of the same controller. Their options, output and exit statuses are those of
//! Grid Engine 8.1.9; their requests to the controller are those of Slurm's commands.

pub(crate) mod arguments;
mod core_binding;
mod defaults;
mod environment;
pub(crate) mod interactive;
mod jsv;
#[cfg(test)]
mod malformed;
mod memory;
mod output;
mod places;
pub(crate) mod qacct;
pub(crate) mod qalter;
pub(crate) mod qconf;
pub(crate) mod qdel;
pub(crate) mod qhold;
pub(crate) mod qhost;
pub(crate) mod qmod;
pub(crate) mod qping;
pub(crate) mod qquota;
pub(crate) mod qresub;
pub(crate) mod qrsub;
pub(crate) mod qstat;
pub(crate) mod qsub;
pub(crate) mod qsummary;
mod request;
mod resources;
mod selection;
pub(crate) mod site;
mod submission;
mod submit_options;
mod sync;

use crate::options::Spec;
use crate::say;
use arguments::{OperandPosition, Parsed, UsageError};
use muster_conf::grid_engine::fits;
use std::process::ExitCode;

/// The tables of the commands.
pub(crate) static SPECS: &[&Spec] = &[
    &submit_options::QSUB,
    &qstat::SPEC,
    &qdel::SPEC,
    &qalter::SPEC,
    &qhold::QHOLD,
    &qhold::QRLS,
    &qmod::SPEC,
    &qhost::QHOST,
    &qhost::QSELECT,
    &qacct::SPEC,
    &qconf::SPEC,
    &qping::SPEC,
    &qquota::SPEC,
    &qsummary::SPEC,
    &qresub::SPEC,
    &qrsub::QRSUB,
    &qrsub::QRDEL,
    &qrsub::QRSTAT,
    &interactive::QRSH,
    &interactive::QLOGIN,
    &interactive::QSH,
];

/// Exit statuses and their meanings.
pub(crate) fn exits(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "qsub" => &[
            ("0", "the job was accepted"),
            (
                "1",
                "it was refused, or the controller cannot be reached; with -sync y, a signal ended it",
            ),
            ("2", "there is no such option, or -p is out of range"),
            ("14", "the script cannot be read"),
            (
                "other",
                "with -sync y, the first exit status of the job's tasks that is not 0",
            ),
        ],
        _ => &[
            ("0", "all went well"),
            (
                "1",
                "something was refused, there is no such job, or the controller cannot be reached",
            ),
        ],
    }
}

/// Reads a command line and runs the command with it; words that are no options only where the command takes any.
fn run_command(
    spec: &'static Spec,
    args: &[String],
    takes_words: bool,
    run: fn(&Parsed) -> Result<ExitCode, ExitCode>,
) -> ExitCode {
    let parsed = match arguments::parse(spec, args, OperandPosition::Mixed) {
        Ok(parsed) => parsed,
        // Grid Engine's qalter reads its options as qsub does.
        Err(wrong @ UsageError::Usage(_)) if spec.name == "qalter" => {
            return fail(wrong.text(), 2);
        }
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") {
        say::stdout(&spec.help());
        return ExitCode::SUCCESS;
    }
    match parsed.operands.first() {
        Some(word) if !takes_words => {
            let command = spec.name;
            fail(&format!("{command}: invalid option argument \"{word}\""), 1)
        }
        _ => run(&parsed).unwrap_or_else(|code| code),
    }
}

/// Prints a line on standard error and gives an exit status.
fn fail(line: &str, status: u8) -> ExitCode {
    say::stderr(&format!("{line}\n"));
    ExitCode::from(status)
}

/// An answer about something that is not there, which Grid Engine's commands print as they print others.
fn missing(line: &str, status: u8) -> ExitCode {
    say::stdout(&format!("{line}\n"));
    ExitCode::from(status)
}

/// A submission that is refused, in Grid Engine's two lines.
fn unable_to_run(why: &str) -> ExitCode {
    fail(&format!("Unable to run job: {why}\nExiting."), 1)
}

/// Why the controller could not be asked.
fn unreachable(error: &crate::connect::ConnectError) -> ExitCode {
    fail(&format!("error: {error}"), 1)
}

/// The system's text for a failure, without its number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next();
    text.unwrap_or_default().to_owned()
}

/// Whether a word is a pattern and no plain name.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '|'])
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("n?", "n1", true),
            ("n[1-3]", "n2", true),
            ("n[!1-3]", "n2", false),
            ("n1|n7", "n7", true),
            ("all.q", "allxq", false),
            ("[", "[", true),
        ] {
            assert_eq!(fits(pattern, text), want, "{pattern} {text}");
        }
    }
}
