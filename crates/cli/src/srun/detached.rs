//! `--async`: the step goes on without the srun that was called. Another srun, in a session of its own, creates the step, writes
//! its output to files and leaves when it has ended; the called one exits as soon as the number of the step is known.

use super::request;
use crate::own_step;
use crate::say;
use crate::submit::line::SubmitLine;
use muster_conf::options::{ChosenOptions, OptionError};
use muster_model::ids::StepId;
use nix::unistd::{dup2_stderr, dup2_stdout, setsid};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};

/// First argument of the srun that stays with the step.
const STAYS: &str = "--stays-with-async-step";

/// The arguments without the word of the srun that stays, and whether it was there.
pub(super) fn own_arguments(args: &[String]) -> (&[String], bool) {
    match args.split_first() {
        Some((first, rest)) if first == STAYS => (rest, true),
        _ => (args, false),
    }
}

/// Refuses options that have no meaning without the other, or beside it.
///
/// # Errors
/// The first such pair.
pub(super) fn check(lines: &[SubmitLine]) -> Result<(), OptionError> {
    let has = |long| lines.iter().any(|line| line.chosen.has(long));
    let refused = |text: &str| Err(OptionError::fatal(text));
    if !has("async") {
        return match has("parsable") {
            true => refused("--parsable is only valid with --async"),
            false => Ok(()),
        };
    }
    if let Some(other) = ["pty", "immediate"].into_iter().find(|long| has(long)) {
        return Err(OptionError::fatal(format!(
            "--async and --{other} are mutually exclusive"
        )));
    }
    if lines.len() > 1 || has("het-group") {
        return refused("--async is not supported for steps of several components");
    }
    if lines.iter().any(|line| reads_own_input(&line.chosen)) {
        return refused("--async: srun is gone when the tasks read; --input takes a file or none");
    }
    // SLURM_JOB_ID is one of its sources.
    match has("jobid") {
        true => Ok(()),
        false => refused("--async can only be used inside an existing job allocation"),
    }
}

/// Whether the input of tasks would come from srun's own: `all`, or a task's number.
fn reads_own_input(chosen: &ChosenOptions) -> bool {
    let input = chosen.value("input");
    input.is_some_and(|text| text == "all" || text.parse::<u32>().is_ok())
}

/// Starts the srun that stays, and waits until it has the step.
///
/// # Errors
/// Its exit code, if it has ended without a step, after it has said why.
pub(super) fn start(line: &SubmitLine, args: &[String]) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    let failed = |e: std::io::Error| {
        say.error(&format!("cannot start the srun that runs the step: {e}"));
        say.failed()
    };
    let mut child = own_step::srun()
        .map_err(failed)?
        .arg(STAYS)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut step = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut step).map_err(failed)?;
    }
    if step.is_empty() {
        let code = child.wait().map_err(failed)?.code();
        let code = code.and_then(|code| u8::try_from(code).ok());
        return Err(code.map_or(say.failed(), ExitCode::from));
    }
    if !say.quiet {
        let begin = match line.chosen.has("parsable") {
            true => "",
            false => "Submitted step ",
        };
        say::stdout(&format!("{begin}{step}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes this the srun that stays: no signal of the terminal comes to it, and its output goes to files.
///
/// # Errors
/// The text for the user.
pub(super) fn begin(chosen: &mut ChosenOptions) -> Result<(), OptionError> {
    setsid().map_err(|e| OptionError::fatal(format!("--async: setsid: {e}")))?;
    if !chosen.has("input") {
        chosen.set("input", Some("none".to_owned()));
    }
    let is_own = |text: &str| text == "all" || text.parse::<u32>().is_ok();
    if chosen.value("output").is_none_or(is_own) {
        let file = format!("{}/slurm-%J.out", request::work_dir(chosen));
        chosen.set("output", Some(file));
    }
    if chosen.value("error").is_some_and(is_own) {
        chosen.remove("error");
    }
    Ok(())
}

/// Says which step there is to the srun that was called, which has waited for it; nobody reads more from here.
pub(super) fn announce(step: StepId) {
    say::stdout(&format!("{}.{}\n", step.job, step.step));
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        // Where that fails, the terminal sees messages of a step that goes on.
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::options::{OptionCommand, Source, find};

    fn line(options: &[(&'static str, Option<&str>)]) -> SubmitLine {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        for (long, value) in options {
            let row = find(OptionCommand::Srun, long).unwrap();
            chosen.give(row, value.map(str::to_owned), Source::CommandLine);
        }
        SubmitLine {
            chosen,
            words: vec!["true".to_owned()],
            say: say::Say::new("srun"),
        }
    }

    fn refusal(options: &[(&'static str, Option<&str>)]) -> String {
        let refused = check(&[line(options)]).err();
        refused.map_or_else(String::new, |e| e.lines.join("; "))
    }

    #[test]
    fn what_needs_srun_is_refused() {
        let step = ("async", None);
        let job = ("jobid", Some("7"));
        assert_eq!(refusal(&[step, job]), "");
        assert_eq!(refusal(&[step, job, ("input", Some("file"))]), "");
        assert_eq!(refusal(&[job]), "");
        for (options, part) in [
            (&[step][..], "inside an existing job"),
            (&[job, ("parsable", None)], "only valid with --async"),
            (&[step, job, ("pty", None)], "--pty"),
            (&[step, job, ("immediate", None)], "--immediate"),
            (&[step, job, ("input", Some("all"))], "--input"),
            (&[step, job, ("input", Some("2"))], "--input"),
            (&[step, job, ("het-group", Some("1"))], "components"),
        ] {
            assert!(refusal(options).contains(part), "{}", refusal(options));
        }
    }

    #[test]
    fn the_word_of_the_srun_that_stays_is_the_first() {
        let words = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let (args, stays) = (words(&[STAYS, "true"]), words(&["true", STAYS]));
        assert_eq!(own_arguments(&args), (&args[1..], true));
        assert_eq!(own_arguments(&stays), (&stays[..], false));
    }
}
