//! scontrol: what administrators and users change. `scontrol show` is a listing and is handed on.

mod jobs;
mod partition;
mod processes;
mod service;
mod update;
mod update_job;

use super::line;
use super::say::{self, Say};
use crate::connect::{Client, ConnectError};
use crate::listing::scontrol::{ScontrolFlags, scontrol_show};
use muster_conf::options::getopt::{self, Order, Simple};
use muster_conf::options::{Arg, OptionError};
use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;

const OPTIONS: &[Simple] = &[
    Simple("all", Some('a'), Arg::None),
    Simple("autocomplete", None, Arg::Required),
    Simple("cluster", None, Arg::Required),
    Simple("clusters", Some('M'), Arg::Required),
    Simple("details", Some('d'), Arg::None),
    Simple("federation", None, Arg::None),
    Simple("future", Some('F'), Arg::None),
    Simple("help", Some('h'), Arg::None),
    Simple("hide", None, Arg::None),
    Simple("json", None, Arg::Optional),
    Simple("local", None, Arg::None),
    Simple("oneliner", Some('o'), Arg::None),
    Simple("quiet", Some('Q'), Arg::None),
    Simple("sibling", None, Arg::None),
    Simple("uid", Some('u'), Arg::Required),
    Simple("usage", None, Arg::None),
    Simple("verbose", Some('v'), Arg::None),
    Simple("version", Some('V'), Arg::None),
    Simple("yaml", None, Arg::Optional),
];

/// A command: its name, how few letters stand for it, and its least and most words.
struct Keyword {
    name: &'static str,
    letters: usize,
    least: usize,
    most: usize,
}

const fn keyword(name: &'static str, letters: usize, least: usize, most: usize) -> Keyword {
    Keyword {
        name,
        letters,
        least,
        most,
    }
}

const MANY: usize = usize::MAX;

const KEYWORDS: &[Keyword] = &[
    keyword("abort", 5, 0, 0),
    keyword("all", 3, 0, 0),
    keyword("cancel_reboot", 3, 1, 1),
    keyword("cluster", 2, 0, 1),
    keyword("completing", 2, 0, 0),
    keyword("create", 2, 1, MANY),
    keyword("delete", 3, 1, MANY),
    keyword("details", 3, 0, 0),
    keyword("errnumstr", 2, 1, 1),
    keyword("exit", 1, 0, 0),
    keyword("fsdampeningfactor", 3, 1, 1),
    keyword("help", 2, 0, 0),
    keyword("hide", 2, 0, 0),
    keyword("hold", 3, 1, MANY),
    keyword("holdu", 4, 1, MANY),
    keyword("listpids", 1, 0, 2),
    keyword("local", 3, 0, 0),
    keyword("notify", 1, 2, MANY),
    keyword("oneliner", 1, 0, 0),
    keyword("pidinfo", 3, 1, 1),
    keyword("ping", 3, 0, 0),
    keyword("quiet", 4, 0, 0),
    keyword("quit", 4, 0, 0),
    keyword("reboot", 3, 0, MANY),
    keyword("reconfigure", 3, 0, 0),
    keyword("release", 3, 1, MANY),
    keyword("requeue", 3, 1, MANY),
    keyword("requeuehold", 8, 1, MANY),
    keyword("resume", 3, 1, MANY),
    keyword("schedloglevel", 3, 1, 1),
    keyword("setdebug", 4, 1, 2),
    keyword("setdebugflags", 9, 1, MANY),
    keyword("show", 2, 1, MANY),
    keyword("shutdown", 8, 0, 1),
    keyword("suspend", 2, 1, MANY),
    keyword("takeover", 8, 0, 1),
    keyword("token", 3, 0, MANY),
    keyword("top", 3, 1, MANY),
    keyword("uhold", 2, 1, MANY),
    keyword("update", 1, 0, MANY),
    keyword("verbose", 4, 0, 0),
    keyword("version", 4, 0, 0),
    keyword("wait_job", 2, 1, 1),
    keyword("write", 2, 1, 3),
];

const HELP: &str = "\
scontrol [<OPTION>] [<COMMAND>]
    <OPTION> is one of
     -a, --all                show hidden partitions too
     -d, --details            show more of jobs
     -F, --future             accepted; nodes in state FUTURE are always shown
     -h, --help               print this help
         --hide               do not show hidden partitions
         --json, --yaml       show in this format
     -M, --clusters=NAME      cluster to ask; only this one is known
     -o, --oneliner           show each record on one line
     -Q, --quiet              print errors only
     -v, --verbose            say more
     -V, --version            print the version

  Without a command scontrol reads commands until 'exit'.

    <COMMAND> is one of
     completing               jobs whose nodes are still being cleaned
     hold JOBS                keep pending jobs from starting
     uhold JOBS               the same, but their owners may release them
     release JOBS             let held jobs go
     requeue JOBS             put jobs back into the queue
     requeuehold JOBS         put jobs back into the queue, held
     suspend JOBS             stop running jobs
     resume JOBS              let stopped jobs go on
     top JOBS                 put jobs before the user's others
     notify JOB MESSAGE       not supported
     update SPECIFICATION     change a job, node or partition
     create SPECIFICATION     make a partition or reservation
     delete SPECIFICATION     remove a partition or reservation
     show ENTITY [ID]         print jobs, nodes, partitions, config, steps, ...
     listpids [JOB[.STEP]] [NODE]  process ids of jobs on this node
     wait_job JOB             wait until a job's nodes are ready
     write batch_script JOB [FILE|-]  write a job's script to a file
     ping                     whether the controller answers
     reconfigure              read the configuration files again
     shutdown [slurmctld]     stop the daemons, or only the controller
     errnumstr NUMBER         an error number's text
     all, hide, details, oneliner, quiet, verbose, local  as the options
     help, version, exit, quit
     !!                       repeat the last command

  JOBS are numbers such as 5, 7_3 or 7_[1-3], with commas or blanks between them, or JobName=NAME.
  A SPECIFICATION is Key=Value..., with JobId=, NodeName= or PartitionName= among them.
";

/// One run of scontrol.
struct Session {
    say: Say,
    flags: ScontrolFlags,
    client: Option<Client>,
    failed: bool,
    done: bool,
}

/// Runs scontrol.
pub(super) fn main(args: &[String]) -> ExitCode {
    let say = Say::new("scontrol");
    let parsed = match getopt::parse(OPTIONS.iter(), args, Order::Mixed) {
        Ok(parsed) => parsed,
        Err(text) => {
            return say.option_error(&OptionError {
                lines: vec![text],
                exit: 1,
                bare: true,
            });
        }
    };
    let mut session = Session {
        say,
        flags: ScontrolFlags::default(),
        client: None,
        failed: false,
        done: false,
    };
    for name in ["SCONTROL_ALL", "SCONTROL_FUTURE"] {
        if name == "SCONTROL_ALL" && std::env::var_os(name).is_some() {
            session.flags.all = true;
        }
    }
    for (option, value) in &parsed.options {
        if let Some(code) = session.option(option.0, value.as_deref()) {
            return code;
        }
    }
    if parsed.words.is_empty() {
        session.interactive();
    } else {
        session.command(&parsed.words);
    }
    if session.failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

impl Session {
    fn option(&mut self, option: &str, value: Option<&str>) -> Option<ExitCode> {
        match option {
            "all" => self.flags.all = true,
            "details" => self.flags.details += 1,
            "hide" => self.flags.hide = true,
            "json" => self.flags.json = true,
            "yaml" => self.flags.yaml = true,
            "oneliner" => self.flags.one_liner = true,
            "quiet" => (self.flags.quiet, self.say.quiet) = (true, true),
            "verbose" => self.say.verbose += 1,
            "future" | "local" => {}
            "help" | "usage" => {
                say::stdout(HELP);
                return Some(ExitCode::SUCCESS);
            }
            "version" => return Some(say::version()),
            "cluster" | "clusters" => {
                let name = value.unwrap_or_default();
                let own = self.client().ok().map(|c| c.endpoint.cluster.clone());
                if own.as_deref() != Some(name) {
                    self.say.error(&format!(
                        "cluster '{name}' is not known here; set SLURM_CONF to reach another"
                    ));
                    return Some(ExitCode::FAILURE);
                }
            }
            other => {
                let why = match other {
                    "uid" => "updates are made by the calling user",
                    "federation" | "sibling" => "this cluster is not in a federation",
                    _ => "it has no meaning here",
                };
                self.say
                    .error(&format!("--{other} is not supported: {why}"));
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
            return self.complain(&format!("too few arguments for keyword:{name}"));
        }
        if rest.len() > known.most {
            return self.complain(&format!("too many arguments for keyword:{name}"));
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
            "verbose" => self.say.verbose += 1,
            "local" => {}
            "help" => say::stdout(HELP),
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
            "listpids" => self.list_processes(rest),
            _ => self.service(name, rest),
        }
    }

    fn show(&mut self, rest: &[String]) {
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
                self.complain(&format!("{prefix}: {}", refusal.code.text()));
            }
            ConnectError::Config(_) => {
                self.failed = true;
                let _ = self.say.fatal(&error.to_string());
            }
            other => self.complain(&format!("{prefix}: {other}")),
        }
    }
}

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
