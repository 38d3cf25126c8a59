//! scontrol: what administrators and users change. `scontrol show` is a listing and is handed on.

mod jobs;
pub(crate) mod nodes;
mod on_node;
pub(crate) mod partition;
mod processes;
pub(crate) mod reservation;
mod running;
mod service;
pub(crate) mod show;
pub(crate) mod table;
mod token;
pub(crate) mod update;
pub(crate) mod update_job;
mod write_config;

use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError};
use crate::listing::document::Dialect;
use crate::options::OptionStatus;
use crate::say::{self, Say};
use crate::submit::line;
use muster_model::command::UserCommand;
use muster_model::refusal::RefusalCode;
use on_node::{OnNodeList, list_on_node};
use show::{ScontrolFlags, scontrol_show};
use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use table::{KEYWORDS, SPEC};

/// One run of scontrol.
struct Session {
    say: Say,
    flags: ScontrolFlags,
    client: Option<Client>,
    failed: bool,
    done: bool,
    /// `--dry-run`.
    dry_run: bool,
    print_answer: PrintAnswer,
}

/// Prints the answer at a path of slurmrestd as a document, and gives whether that is no error.
pub(crate) type PrintAnswer = fn(&str, Dialect) -> bool;

/// Runs scontrol.
pub(crate) fn main(args: &[String], print_answer: PrintAnswer) -> ExitCode {
    let say = Say::new("scontrol");
    let parsed = match SPEC.parse(&with_signed_words(args)) {
        Ok(parsed) => parsed,
        Err(text) => {
            say::stderr(&format!("{text}\n"));
            return say.failed();
        }
    };
    let mut session = Session {
        say,
        flags: ScontrolFlags::default(),
        client: None,
        failed: false,
        done: false,
        dry_run: false,
        print_answer,
    };
    if std::env::var_os("SCONTROL_ALL").is_some() {
        session.flags.all = true;
    }
    for (option, value) in &parsed.options {
        if let Some(code) = session.option(option, value.as_deref()) {
            return code;
        }
    }
    if parsed.operands.is_empty() {
        session.interactive();
    } else {
        session.command(&parsed.operands);
    }
    if session.failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The words, with the end of options before `setdebug` and `setdebugflags`, whose own begin with a minus (`setdebugflags -backfill`).
fn with_signed_words(args: &[String]) -> Vec<String> {
    let mut words = args.to_vec();
    let is_signed = |word: &String| {
        let word = word.to_ascii_lowercase();
        word.len() >= 4 && "setdebugflags".starts_with(&word)
    };
    let before = args.iter().position(|word| word == "--");
    if let Some(at) = args.iter().position(is_signed)
        && before.is_none_or(|end| end > at)
    {
        words.insert(at, "--".to_owned());
    }
    words
}

impl Session {
    fn option(&mut self, option: &str, value: Option<&str>) -> Option<ExitCode> {
        match option {
            "all" => self.flags.all = true,
            "details" => self.flags.details += 1,
            "dry-run" => self.dry_run = true,
            "future" => self.flags.future = true,
            "hide" => self.flags.hide = true,
            "json" | "yaml" => {
                let value = value.unwrap_or_default();
                if value == "list" {
                    say::stdout(&Dialect::list());
                    return Some(ExitCode::SUCCESS);
                }
                match Dialect::parse("scontrol", option == "yaml", value) {
                    Ok(dialect) => self.flags.dialect = Some(dialect),
                    Err(failure) => return Some(failure.report()),
                }
            }
            "oneliner" => self.flags.one_liner = true,
            "quiet" => (self.flags.quiet, self.say.quiet) = (true, true),
            "verbose" => (self.flags.verbose, self.say.verbose) = (true, self.say.verbose + 1),
            "help" => {
                say::stdout(&table::help());
                return Some(ExitCode::SUCCESS);
            }
            "usage" => {
                say::stdout(&SPEC.usage());
                return Some(ExitCode::SUCCESS);
            }
            "version" => return Some(say::version()),
            "clusters" => {
                self.client = None;
                if let Err(failure) =
                    ClusterSelection::choose_one("scontrol", value.unwrap_or_default())
                {
                    return Some(failure.report());
                }
            }
            other => {
                self.say
                    .error(&format!("option --{other} is not implemented"));
                return Some(ExitCode::FAILURE);
            }
        }
        None
    }

    /// The connection, opened when it is first needed.
    fn client(&mut self) -> Result<&mut Client, ConnectError> {
        if self.client.is_none() {
            self.client = Some(Client::connect_patiently(line::PATIENCE)?);
        }
        Ok(self.client.as_mut().expect("it was just opened"))
    }

    /// Reads commands, with a prompt, until `exit` or the end.
    fn interactive(&mut self) {
        let prompt = "scontrol: ";
        let mut last: Vec<String> = Vec::new();
        let stdin = std::io::stdin();
        let echo = !stdin.is_terminal();
        let mut lines = stdin.lock().lines();
        while !self.done {
            say::stdout(prompt);
            let Some(Ok(text)) = lines.next() else {
                say::stdout("\n");
                return;
            };
            if echo {
                say::stdout(&format!("{text}\n"));
            }
            let mut words = split(&text);
            if words.first().is_some_and(|w| w == "!!") {
                words.clone_from(&last);
            }
            if words.is_empty() {
                continue;
            }
            last.clone_from(&words);
            // A controller that restarted between two commands is found again.
            self.client = None;
            self.command(&words);
        }
    }

    /// One command.
    fn command(&mut self, words: &[String]) {
        let Some((name, rest)) = words.split_first() else {
            return;
        };
        let lower = name.to_ascii_lowercase();
        let known = KEYWORDS
            .iter()
            .find(|k| k.name == lower || (lower.len() >= k.letters && k.name.starts_with(&lower)));
        let Some(known) = known else {
            return self.complain(&format!("invalid keyword: {name}"));
        };
        if rest.len() < known.least {
            return self.complain(&match known.name {
                "create" | "delete" => format!("too few arguments for {} keyword", known.name),
                "errnumstr" => format!("one arguments required for keyword:{name}"),
                "pidinfo" => format!("missing argument for keyword:{name}"),
                _ => format!("too few arguments for keyword:{name}"),
            });
        }
        if rest.len() > known.most {
            return self.complain(&format!("too many arguments for keyword:{name}"));
        }
        if let OptionStatus::Refused(why) = known.status {
            return self.error(&format!("{} is not supported: {why}", known.name));
        }
        if self.dry_run && known.name != "reconfigure" {
            return self.error(&format!(
                "--dry-run goes with reconfigure only; {} was not carried out",
                known.name
            ));
        }
        self.run(known.name, rest);
    }

    fn run(&mut self, name: &'static str, rest: &[String]) {
        match name {
            "all" => (self.flags.all, self.flags.hide) = (true, false),
            "hide" => (self.flags.all, self.flags.hide) = (false, true),
            "details" => self.flags.details += 1,
            "oneliner" => self.flags.one_liner = true,
            "quiet" => (self.flags.quiet, self.say.quiet) = (true, true),
            "verbose" => (self.flags.verbose, self.say.verbose) = (true, self.say.verbose + 1),
            "local" => {}
            "help" => say::stdout(&table::help()),
            "version" => drop(say::version()),
            "exit" | "quit" => self.done = true,
            "show" => self.show(rest),
            "hold" | "holdu" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend"
            | "resume" | "top" => {
                self.jobs(name, rest);
            }
            "update" => self.update(rest),
            "create" => self.create(rest),
            "delete" => self.delete(rest),
            "reboot" => self.reboot(rest),
            "cancel_reboot" => {
                let nodes = rest[0].clone();
                self.send_update(UserCommand::CancelReboot { nodes });
            }
            "listjobs" => list_on_node(self, rest, OnNodeList::Jobs),
            "liststeps" => list_on_node(self, rest, OnNodeList::Steps),
            "listpids" => self.list_processes(rest),
            "pidinfo" => self.process_info(&rest[0]),
            "notify" => self.notify(rest),
            "token" => token::print(self, rest),
            "setdebug" => self.set_debug(&rest[0], rest.get(1)),
            _ => self.service(name, rest),
        }
    }

    fn show(&mut self, rest: &[String]) {
        if let ([what], Some(dialect)) = (rest, self.flags.dialect)
            && let Some(path) = show::path_of_whole(what)
        {
            self.failed |= !(self.print_answer)(path, dialect);
            return;
        }
        if scontrol_show(rest, &self.flags) != ExitCode::SUCCESS {
            self.failed = true;
        }
    }

    /// A line on standard error as it is; scontrol's exit code becomes 1.
    fn complain(&mut self, text: &str) {
        self.failed = true;
        say::stderr(&format!("{text}\n"));
    }

    /// `scontrol: error: text`.
    fn error(&mut self, text: &str) {
        self.failed = true;
        self.say.error(text);
    }

    /// A failure of a request: the refusal's detail, then Slurm's wording behind `prefix`.
    fn request_failed(&mut self, prefix: &str, error: &ConnectError) {
        match error {
            ConnectError::Refused(refusal) => {
                if !refusal.detail.is_empty() {
                    self.error(&refusal.detail);
                }
                self.complain(&format!("{prefix}: {}", request_text(prefix, refusal.code)));
            }
            ConnectError::Config(_) => {
                self.failed = true;
                let _ = self.say.fatal(&error.to_string());
            }
            other => self.complain(&format!("{prefix}: {other}")),
        }
    }
}

/// A refusal's wording. Slurm has one for what only operators may do, and the system's for agents and logs.
fn request_text(prefix: &str, code: RefusalCode) -> &'static str {
    const OF_OPERATORS: [&str; 8] = [
        "slurm_update error",
        "Error updating",
        "Error creating",
        "delete_",
        "slurm_shutdown error",
        "slurm_reconfigure error",
        "job script retrieval failed",
        "job notify failure",
    ];
    match code {
        RefusalCode::AccessDenied if OF_OPERATORS.iter().any(|p| prefix.starts_with(p)) => {
            NOT_THIS_USER
        }
        RefusalCode::AccessDenied
            if matches!(
                prefix,
                "slurm_set_debug_level error" | "scontrol_reboot_nodes error"
            ) =>
        {
            "Permission denied"
        }
        RefusalCode::JobPending if prefix == "job notify failure" => {
            RefusalCode::JobNotRunning.text()
        }
        other => other.text(),
    }
}

/// Slurm's message to a user who may not change another user's record.
const NOT_THIS_USER: &str = "Invalid user id";

/// Words of a line, with quotes as in a shell.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            say: Say::new("scontrol"),
            flags: ScontrolFlags::default(),
            client: None,
            failed: false,
            done: false,
            dry_run: false,
            print_answer: |_, _| true,
        }
    }

    #[test]
    fn keywords_may_be_short() {
        let found = |word: &str| {
            KEYWORDS
                .iter()
                .find(|k| k.name == word || (word.len() >= k.letters && k.name.starts_with(word)))
                .map(|k| k.name)
        };
        for (word, name) in [
            ("sho", "show"),
            ("sus", "suspend"),
            ("rec", "reconfigure"),
            ("u", "update"),
            ("uhold", "uhold"),
            ("requeue", "requeue"),
            ("requeueh", "requeuehold"),
            ("holdu", "holdu"),
            ("hol", "hold"),
            ("del", "delete"),
            ("det", "details"),
        ] {
            assert_eq!(found(word), Some(name), "{word}");
        }
        for word in ["h", "re", "nosuch", "s", "showx"] {
            assert_eq!(found(word), None, "{word}");
        }
    }

    #[test]
    fn wrong_commands_fail() {
        for words in [&["nosuch"][..], &["hold"], &["ping", "x"], &["show"]] {
            let mut session = session();
            session.command(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
            assert!(session.failed, "{words:?}");
        }
        let mut session = session();
        session.command(&["quit".to_owned()]);
        assert!(session.done && !session.failed);
    }

    #[test]
    fn lines() {
        assert_eq!(
            split(" update  JobId=1 Comment='a b'c \"\""),
            ["update", "JobId=1", "Comment=a bc", ""]
        );
        assert!(split("  ").is_empty());
    }
}
