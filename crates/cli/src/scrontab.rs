//! scrontab: a user's crontab, whose jobs the controller submits. What a line means is read here, as sbatch reads its
//! script; when it is due is read by the controller.

mod editing;
mod lines;

use crate::SLURM_VERSION;
use crate::connect::{Client, ConnectError, unexpected};
use crate::errno;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say::{self, Say};
use crate::submit::line;
use muster_model::command::{CrontabAsk, Reply, UserCommand};
use muster_model::limits::CRONTAB_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::Owner;
use muster_proto::client::{Query, Response};
use nix::unistd::User;
use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

/// scrontab.
pub(crate) static SPEC: Spec = Spec {
    name: "scrontab",
    about: "Shows and replaces a user's crontab: jobs that are submitted again and again at set times.",
    operands: "[FILE]",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: &[],
    notes: "\
FILE replaces the crontab; '-', or no file where standard input is not a terminal, is standard input.
A line is 'MINUTE HOUR DAY MONTH WEEKDAY COMMAND', or @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually and
a command. #SCRON lines before it have options of sbatch for it alone; NAME=value is put into commands that follow as $NAME.
Each entry is one job. It waits until its time comes, in the time zone of the controller, and waits again when it is over.
scancel of the job puts '#DISABLED: ' before its lines. VISUAL or EDITOR names the editor.
",
};

static OPTIONS: &[Opt] = &[
    flag("edit", "edit the crontab, the default on a terminal").short('e'),
    flag("help", "print this help").short('h'),
    flag("list", "print the crontab").short('l'),
    flag("remove", "remove the crontab and what waits of its jobs").short('r'),
    flag("usage", "print a short summary"),
    opt("user", "USER", "the crontab of this user").short('u'),
    flag("verbose", "say what is done").short('v'),
    flag("version", "print the version").short('V'),
];

const SAY: Say = Say::new("scrontab");

/// Action of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Edit,
    List,
    Remove,
}

/// Runs scrontab.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn run(args: &[String]) -> Result<(), ExitCode> {
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        ExitCode::FAILURE
    })?;
    let (mut mode, mut user) = (None, None);
    for (name, value) in parsed.options {
        match name {
            "help" => return print(&SPEC.help()),
            "usage" => return print(&SPEC.usage()),
            "version" => return print(&format!("slurm {SLURM_VERSION}\n")),
            "edit" => mode = Some(Mode::Edit),
            "remove" if mode != Some(Mode::Edit) => mode = Some(Mode::Remove),
            "list" if mode.is_none() => mode = Some(Mode::List),
            "user" => user = value,
            _ => {}
        }
    }
    let user = whose(user.as_deref())?;
    match (mode, parsed.operands.as_slice()) {
        (None, []) if std::io::stdin().is_terminal() => edit(&user),
        (None, []) => replace(&user, &from_stdin()?),
        (None, [file]) if file == "-" => replace(&user, &from_stdin()?),
        (None, [file]) => replace(&user, &from_file(file)?),
        (Some(Mode::Edit), []) => edit(&user),
        (Some(Mode::List), []) => list(&user),
        (Some(Mode::Remove), []) => send(&user, None).map(drop),
        _ => {
            say::stderr(&SPEC.usage());
            Err(ExitCode::FAILURE)
        }
    }
}

fn print(text: &str) -> Result<(), ExitCode> {
    say::stdout(text);
    Ok(())
}

/// User to whom the crontab belongs.
fn whose(name: Option<&str>) -> Result<User, ExitCode> {
    let own = nix::unistd::getuid().to_string();
    let text = name.unwrap_or(&own);
    line::user(text).ok_or_else(|| SAY.fatal(&format!("Could not find user {text}")))
}

fn is_own(user: &User) -> bool {
    user.uid == nix::unistd::getuid()
}

fn from_stdin() -> Result<String, ExitCode> {
    let stdin = std::io::stdin().lock();
    text_of(stdin, "standard input")
}

fn from_file(path: &str) -> Result<String, ExitCode> {
    let file = std::fs::File::open(path);
    let file = file.map_err(|e| {
        SAY.fatal(&format!(
            "failed to open {path}: {}",
            errno::system_text(&e)
        ))
    })?;
    text_of(file, path)
}

fn text_of(input: impl std::io::Read, name: &str) -> Result<String, ExitCode> {
    let mut text = String::new();
    let most = CRONTAB_BYTES_MAX as u64 + 1;
    let read = input.take(most).read_to_string(&mut text);
    read.map_err(|e| {
        SAY.fatal(&format!(
            "failed to read {name}: {}",
            errno::system_text(&e)
        ))
    })?;
    match text.len() > CRONTAB_BYTES_MAX {
        false => Ok(text),
        true => {
            let text =
                format!("{name} has more than {CRONTAB_BYTES_MAX} bytes, the limit of a crontab");
            Err(SAY.fatal(&text))
        }
    }
}

fn connect() -> Result<Client, ExitCode> {
    Client::connect_patiently(line::PATIENCE)
        .map_err(|e| SAY.connect_error("Unable to contact slurm controller", &e))
}

/// The crontab as it is, if there is one.
fn current(user: &User) -> Result<Option<String>, ExitCode> {
    let uid = (!is_own(user)).then(|| user.uid.as_raw());
    let answer = connect()?.query(Query::Crontab { uid });
    match answer {
        Ok(Response::Crontab(text)) => Ok(text),
        Ok(Response::Refused(refusal)) => Err(query_refused(&refusal)),
        Ok(other) => Err(SAY.connect_error("slurm_request_crontab failed", &unexpected(&other))),
        Err(ConnectError::Refused(refusal)) => Err(query_refused(&refusal)),
        Err(error) => Err(SAY.connect_error("slurm_request_crontab failed", &error)),
    }
}

fn query_refused(refusal: &Refusal) -> ExitCode {
    match refusal.code {
        RefusalCode::CrontabsDisabled => SAY.fatal(refusal.code.text()),
        RefusalCode::AccessDenied => SAY.fatal("slurm_request_crontab failed: Invalid user id"),
        code => SAY.fatal(&format!("slurm_request_crontab failed: {}", code.text())),
    }
}

fn list(user: &User) -> Result<(), ExitCode> {
    match current(user)? {
        Some(text) => print(&text),
        None => {
            say::stdout(&format!("no crontab for {}\n", user.name));
            Err(ExitCode::FAILURE)
        }
    }
}

/// Sends a crontab, or removes it. `false`: it has errors, which were printed.
fn send(user: &User, text: Option<&str>) -> Result<bool, ExitCode> {
    let jobs = match text.map(|text| lines::jobs(text, user)) {
        Some(Ok(jobs)) => jobs,
        None => lines::CrontabJobs::default(),
        Some(Err(faults)) => {
            faults.iter().for_each(|fault| SAY.error(fault));
            say::stdout("There are errors in your crontab.\n");
            return Ok(false);
        }
    };
    let owner = match is_own(user) {
        true => Owner::default(),
        false => Owner {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            user: user.name.clone(),
            group: lines::group_name(user),
        },
    };
    let ask = CrontabAsk {
        owner,
        text: text.map(str::to_owned),
        jobs: jobs.specs,
        blobs: jobs.blobs,
    };
    match connect()?.command(UserCommand::SetCrontab(Box::new(ask))) {
        Ok(Reply::Done { .. }) => Ok(true),
        Ok(other) => {
            let error = unexpected(&Response::Reply(Box::new(other)));
            Err(SAY.connect_error("slurm_update_crontab failed", &error))
        }
        Err(ConnectError::Refused(refusal)) if refusal.code == RefusalCode::CrontabsDisabled => {
            Err(SAY.fatal(refusal.code.text()))
        }
        Err(ConnectError::Refused(refusal)) => {
            refusal.lines.iter().for_each(|line| SAY.error(line));
            say::stdout(&refused_text(&refusal));
            Ok(false)
        }
        Err(error) => Err(SAY.connect_error("slurm_update_crontab failed", &error)),
    }
}

/// Which lines were refused and why; the controller puts their numbers first.
fn refused_text(refusal: &Refusal) -> String {
    let of_lines = refusal.detail.strip_prefix("lines ");
    let parts = of_lines.and_then(|rest| rest.split_once(": "));
    let (lines, why) = match parts {
        Some((lines, why)) => (format!(" on lines {lines}"), why),
        None => (String::new(), refusal.detail.as_str()),
    };
    format!(
        "There was an issue with the job submission{lines}\nThe error code return was: {}\nThe error message was: {}\n",
        refusal.code.text(),
        if why.is_empty() { "(null)" } else { why },
    )
}

fn replace(user: &User, text: &str) -> Result<(), ExitCode> {
    match send(user, Some(text))? {
        true => Ok(()),
        false => Err(SAY.failed()),
    }
}

fn edit(user: &User) -> Result<(), ExitCode> {
    if !std::io::stdin().is_terminal() {
        return Err(SAY.fatal("Standard input is not a TTY"));
    }
    let before = current(user)?;
    let mut text = before
        .clone()
        .unwrap_or_else(|| editing::EXAMPLE.to_owned());
    loop {
        let after = editing::edited(&text)?;
        if Some(&after) == before.as_ref() {
            say::stdout("No modification made\n");
            return Ok(());
        }
        if send(user, Some(&after))? {
            return Ok(());
        }
        if !editing::retries() {
            return Err(SAY.failed());
        }
        text = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_lines_and_slurms_words() {
        let refusal = |detail: &str| Refusal::new(RefusalCode::InvalidPartition, detail);
        assert_eq!(
            refused_text(&refusal("lines 1-2: there is no partition nosuch")),
            "There was an issue with the job submission on lines 1-2\n\
             The error code return was: Invalid partition name specified\n\
             The error message was: there is no partition nosuch\n"
        );
        let text = refused_text(&refusal(""));
        assert!(text.ends_with("The error message was: (null)\n"), "{text}");
    }
}
