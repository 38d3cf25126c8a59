//! qsub: a script or a command becomes a job.

use super::arguments::{self, OperandPosition, OptionArgument, UsageError};
use super::defaults::{self, Misplaced, OptionSource};
use super::request::{Refused, Request, WorkDir};
use super::submit_options::QSUB;
use super::{fail, jsv, site, submission, sync, unable_to_run, unreachable};
use crate::connect::{Client, ConnectError, unexpected};
use crate::say;
use crate::submit::line;
use muster_model::command::{Reply, UserCommand};
use muster_model::grid_engine as marks;
use muster_model::limits::SCRIPT_BYTES_MAX;
use muster_model::refusal::RefusalCode;
use muster_proto::client::Response;
use std::io::Read as _;
use std::process::ExitCode;

/// Exit status when the script cannot be read.
const NO_SCRIPT: u8 = 14;

/// The program of the job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// The script; empty for a command.
    pub(super) script: Vec<u8>,
    /// The script's path or the command.
    pub(super) path: String,
    /// Arguments.
    pub(super) args: Vec<String>,
    /// Default for the job's name.
    pub(super) name: String,
}

/// Runs qsub.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let (mut request, program) = gather(args)?;
    let mapping = site::mapping()?;
    request.choose_environment(&mapping);
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let command = submission::command(&request, program, &mapping, &mut client, args)?;
    if request.is_shown_only {
        crate::listing::print(&command.text(&client));
        return Ok(ExitCode::SUCCESS);
    }
    let name = command.name.clone();
    if matches!(request.verify, Some('e' | 'w')) {
        verify(&mut client, &command.submit, request.verify == Some('e'))?;
    }
    let asks = matches!(request.verify, Some('v' | 'p'));
    let reply = client
        .command(command.submit)
        .map_err(|e| refused(&e, asks))?;
    match reply {
        Reply::Submitted {
            id,
            warnings,
            lines,
            name: changed,
        } => {
            // As Grid Engine has what a verifier logs.
            lines
                .iter()
                .for_each(|line| say::stdout(&format!("{line}\n")));
            for warning in &warnings {
                say::stderr(&format!("qsub: warning: {warning}\n"));
            }
            announce(&request, &id.to_string(), &changed.unwrap_or(name));
            if request.now && !request.terse {
                say::stderr(&format!(
                    "Your immediate job {id} has been successfully scheduled.\n"
                ));
            }
            match request.sync {
                true => Ok(sync::wait(client, id, request.terse)),
                false => Ok(ExitCode::SUCCESS),
            }
        }
        Reply::WouldStart { .. } => {
            say::stdout("verification: found suitable queue(s)\n");
            Ok(ExitCode::SUCCESS)
        }
        other => Err(unreachable(&unexpected(&Response::Reply(Box::new(other))))),
    }
}

/// The request to the controller.
///
/// # Errors
/// The exit status, after the error was printed.
pub(crate) fn request(args: &[String]) -> Result<UserCommand, ExitCode> {
    let (mut request, program) = gather(args)?;
    if request.sync || request.verify.is_some() || request.is_shown_only {
        return Err(fail("qsub: -sync, -w and -verify have no effect here", 2));
    }
    let mapping = site::mapping()?;
    request.choose_environment(&mapping);
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let command = submission::command(&request, program, &mapping, &mut client, args)?;
    Ok(command.submit)
}

/// Asks whether the job could run on the nodes that there are.
fn verify(client: &mut Client, submit: &UserCommand, must: bool) -> Result<(), ExitCode> {
    let mut asked = submit.clone();
    if let UserCommand::Submit {
        spec, test_only, ..
    } = &mut asked
    {
        *test_only = true;
        spec.hold = false;
        // The question is about the nodes that there are.
        spec.shown.retain(|(key, _)| key != marks::VERIFY);
    }
    match client.command(asked) {
        Err(ConnectError::Refused(refusal)) => {
            let kind = if must { "error" } else { "warning" };
            say::stderr(&format!("qsub: {kind}: {refusal}\n"));
            match must {
                true => Err(unable_to_run("error: no suitable queues")),
                false => Ok(()),
            }
        }
        Err(error) => Err(unreachable(&error)),
        Ok(_) => Ok(()),
    }
}

fn announce(request: &Request, id: &str, name: &str) {
    let tasks = request.tasks.map(|tasks| format!(".{}", tasks.text()));
    let text = match (request.terse, tasks) {
        (true, tasks) => format!("{id}{}\n", tasks.unwrap_or_default()),
        (false, Some(tasks)) => {
            format!("Your job-array {id}{tasks} (\"{name}\") has been submitted\n")
        }
        (false, None) => format!("Your job {id} (\"{name}\") has been submitted\n"),
    };
    say::stdout(&text);
}

/// Why the controller takes no such job, or why none could run where that was asked.
fn refused(error: &ConnectError, asks: bool) -> ExitCode {
    let ConnectError::Refused(refusal) = error else {
        return unreachable(error);
    };
    if !refusal.lines.is_empty() {
        return unable_to_run(&refusal.lines.join("\n"));
    }
    let detail = match refusal.detail.as_str() {
        "" => refusal.code.text().to_owned(),
        detail => format!("{}: {detail}", refusal.code.text()),
    };
    match refusal.code {
        RefusalCode::NotImmediate => fail(
            "Your qsub request could not be scheduled; try again later.",
            1,
        ),
        RefusalCode::NodeConfigUnavailable => {
            say::stderr(&format!("{detail}\n"));
            unable_to_run(match asks {
                true => "verification: no suitable queues",
                false => "error: no suitable queues",
            })
        }
        RefusalCode::AccessDenied if refusal.detail.contains("--nice below 0") => {
            unable_to_run("job rejected: positive submission priority requires operator privileges")
        }
        _ => unable_to_run(&format!("job rejected: {detail}")),
    }
}

/// Reads options from everywhere, and the script.
fn gather(args: &[String]) -> Result<(Request, Program), ExitCode> {
    let parsed =
        arguments::parse(&QSUB, args, OperandPosition::End).map_err(|wrong| report(&wrong))?;
    if parsed.has("help") {
        say::stdout(&QSUB.help());
        return Err(ExitCode::SUCCESS);
    }
    let mut places = defaults::from_request_files().map_err(misplaced)?;
    let own = defaults::expanded(String::new(), parsed.options, 0).map_err(misplaced)?;
    // The prefix of the script's lines, and whether there is a script, are given outside of it.
    let said = || places.iter().chain(&own).flat_map(|place| &place.options);
    let last = |name: &str| said().rev_last(name);
    let is_binary = last("b").is_some_and(|given| given.value().starts_with('y'));
    let prefix = last("C").map_or("#$", OptionArgument::value).to_owned();
    let program = program(&parsed.operands, is_binary)?;
    if !is_binary {
        let text = String::from_utf8_lossy(&program.script);
        places.extend(defaults::from_script(&text, &program.name, &prefix).map_err(misplaced)?);
    }
    places.extend(own);
    let mut request = Request::default();
    for place in &places {
        for given in &place.options {
            request.take(given).map_err(|refused| {
                locate(&place.name);
                complain(&refused)
            })?;
        }
    }
    // A script that says of itself that it is a command is none.
    request.binary = is_binary;
    let mut program = program;
    jsv::verify(&verifiers(&places), "qsub", &mut request, &mut program)?;
    Ok((request, program))
}

/// Programs of `-jsv`: the last of each place, the command line's first.
pub(super) fn verifiers(places: &[OptionSource]) -> Vec<String> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for place in places.iter().rev() {
        // Lines of one file are places of their own.
        let file = place.name.split(", line ").next().unwrap_or_default();
        let named = place.options.iter().rev().find(|given| given.name == "jsv");
        if let Some(given) = named
            && !all.iter().any(|(own, _)| *own == file)
        {
            all.push((file, given.value()));
        }
    }
    all.into_iter().map(|(_, url)| url.to_owned()).collect()
}

/// The last of options that have a name.
trait RevLast<'a> {
    fn rev_last(self, name: &str) -> Option<&'a OptionArgument>;
}

impl<'a, I: Iterator<Item = &'a OptionArgument>> RevLast<'a> for I {
    fn rev_last(self, name: &str) -> Option<&'a OptionArgument> {
        self.filter(|given| given.name == name).last()
    }
}

fn locate(place: &str) {
    if !place.is_empty() {
        say::stderr(&format!("qsub: {place}:\n"));
    }
}

pub(super) fn misplaced(error: Misplaced) -> ExitCode {
    locate(&error.place);
    report(&error.wrong)
}

fn report(wrong: &UsageError) -> ExitCode {
    match wrong {
        UsageError::Usage(text) => fail(text, 2),
        UsageError::Refused(text) => fail(text, 1),
    }
}

pub(super) fn complain(refused: &Refused) -> ExitCode {
    match refused {
        Refused::Line(text, status) => fail(text, *status),
        Refused::Job(why) => unable_to_run(why),
    }
}

fn program(words: &[String], is_binary: bool) -> Result<Program, ExitCode> {
    let no_command = || fail("qsub: command required for a binary job", 2);
    let (path, args) = match words.split_first() {
        Some((path, args)) if path != "-" => (path.clone(), args.to_vec()),
        _ if is_binary => return Err(no_command()),
        Some((_, args)) => (String::new(), args.to_vec()),
        None => (String::new(), Vec::new()),
    };
    let name = match path.as_str() {
        "" => "STDIN".to_owned(),
        path => line::base_name(path),
    };
    let script = if is_binary {
        Vec::new()
    } else {
        read_script(&path)?
    };
    Ok(Program {
        script,
        path,
        args,
        name,
    })
}

/// The line where standard input has no script, and its exit status.
const NO_INPUT: &str = "Unable to read script file because of error: no input read from stdin";
const NO_INPUT_STATUS: u8 = 4;

fn read_script(path: &str) -> Result<Vec<u8>, ExitCode> {
    let unable = |e: &std::io::Error| {
        let why = match e.raw_os_error() {
            Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
            None => e.to_string(),
        };
        let text =
            format!("Unable to read script file because of error: error opening {path}: {why}");
        fail(&text, NO_SCRIPT)
    };
    let mut bytes = Vec::new();
    let most = SCRIPT_BYTES_MAX as u64 + 1;
    let read = match path {
        "" => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|e| unable(&e))?;
    let refuse = |why: &str| {
        fail(
            &format!("Unable to read script file because of error: {why}"),
            NO_SCRIPT,
        )
    };
    if bytes.len() > SCRIPT_BYTES_MAX {
        return Err(refuse("the script is too large"));
    }
    if bytes.contains(&0) {
        return Err(refuse(
            "the script has a zero byte; submit a program with -b y",
        ));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(match path {
            "" => fail(NO_INPUT, NO_INPUT_STATUS),
            _ => refuse("the script is empty"),
        });
    }
    Ok(bytes)
}

/// The directory in which the job runs.
pub(super) fn work_dir(request: &Request) -> std::path::PathBuf {
    let here = line::current_dir();
    match &request.work_dir {
        WorkDir::Home => defaults::home(),
        WorkDir::Here => here,
        WorkDir::Named(dir) => here.join(dir),
    }
}
