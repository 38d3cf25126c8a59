//! Messages of a command to its user: `COMMAND: text` and `COMMAND: error: text` on standard error, answers on standard
//! output. Each message is one write, and a reader that went away is no reason to stop.

use crate::connect::ConnectError;
use muster_conf::options::OptionError;
use muster_conf::options::job::BuildError;
use muster_model::refusal::Refusal;
use std::cell::RefCell;
use std::io::Write as _;
use std::process::ExitCode;

/// The voice of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Say {
    /// The command.
    pub(crate) name: &'static str,
    /// `--quiet`: errors only.
    pub(crate) quiet: bool,
    /// Number of times that `--verbose` was given.
    pub(crate) verbose: u32,
}

impl Say {
    pub(crate) const fn new(name: &'static str) -> Say {
        Say {
            name,
            quiet: false,
            verbose: 0,
        }
    }

    /// `COMMAND: text`, unless quiet.
    pub(crate) fn info(&self, text: &str) {
        if !self.quiet {
            stderr(&format!("{}: {text}\n", self.name));
        }
    }

    /// The text alone on standard output, unless quiet.
    pub(crate) fn plain(&self, text: &str) {
        if !self.quiet {
            stdout(&format!("{text}\n"));
        }
    }

    /// `COMMAND: text`, with `-v`.
    pub(crate) fn verbose(&self, text: &str) {
        if self.verbose > 0 {
            stderr(&format!("{}: {text}\n", self.name));
        }
    }

    /// `COMMAND: warning: text`, unless quiet.
    pub(crate) fn warning(&self, text: &str) {
        if !self.quiet {
            stderr(&format!("{}: warning: {text}\n", self.name));
        }
    }

    /// `COMMAND: error: text`.
    pub(crate) fn error(&self, text: &str) {
        for line in text.lines() {
            stderr(&format!("{}: error: {line}\n", self.name));
        }
    }

    /// `COMMAND: fatal: text`.
    pub(crate) fn fatal(&self, text: &str) -> ExitCode {
        stderr(&format!("{}: fatal: {text}\n", self.name));
        self.failed()
    }

    /// The exit code of a failure: 1, or what `SLURM_EXIT_ERROR` says.
    pub(crate) fn failed(&self) -> ExitCode {
        ExitCode::from(exit_variable("SLURM_EXIT_ERROR").unwrap_or(1))
    }

    /// Prints an option's error, and returns the exit code for it.
    pub(crate) fn option_error(&self, error: &OptionError) -> ExitCode {
        for line in &error.lines {
            if error.bare {
                stderr(&format!(
                    "{0}: {line}\nTry \"{0} --help\" for more information\n",
                    self.name
                ));
            } else {
                self.error(line);
            }
        }
        match error.exit {
            1 => self.failed(),
            other => ExitCode::from(other),
        }
    }

    /// Why the options make no job; `prefix` is the command's own for refusals.
    pub(crate) fn build_error(&self, prefix: &str, error: &BuildError) -> ExitCode {
        match error {
            BuildError::Option(error) => self.option_error(error),
            BuildError::Refused(refusal) => self.refusal(prefix, refusal),
        }
    }

    /// A refusal: what exactly is wrong, then Slurm's wording behind the command's own prefix.
    pub(crate) fn refusal(&self, prefix: &str, refusal: &Refusal) -> ExitCode {
        refusal.lines.iter().for_each(|line| self.error(line));
        if !refusal.detail.is_empty() {
            self.error(&refusal.detail);
        }
        self.error(&format!("{prefix}: {}", refusal.code.text()));
        self.failed()
    }

    /// Why the controller could not be asked or said no.
    pub(crate) fn connect_error(&self, prefix: &str, error: &ConnectError) -> ExitCode {
        match error {
            ConnectError::Refused(refusal) => self.refusal(prefix, refusal),
            ConnectError::Config(_) => self.fatal(&error.to_string()),
            other => {
                self.error(&format!("{prefix}: {other}"));
                self.failed()
            }
        }
    }
}

/// An exit code that the environment sets.
pub(crate) fn exit_variable(name: &str) -> Option<u8> {
    crate::process::variable(name)?.parse().ok()
}

thread_local! {
    /// Where messages of this thread go instead of standard error.
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Where answers of this thread go instead of standard output.
    static KEPT_OUTPUT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Output of a command that was run for the caller's own use.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptOutput {
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// Runs `make` and keeps its messages on standard error, for the caller's own use. Standard output is not its to write
/// to.
pub(crate) fn captured<T>(make: impl FnOnce() -> T) -> (T, String) {
    KEPT.with_borrow_mut(|kept| *kept = Some(String::new()));
    let made = make();
    (made, KEPT.take().unwrap_or_default())
}

/// Runs a whole command, and keeps its output.
pub(crate) fn run_captured<T>(run: impl FnOnce() -> T) -> (T, KeptOutput) {
    KEPT_OUTPUT.with_borrow_mut(|kept| *kept = Some(String::new()));
    let (made, err) = captured(run);
    let out = KEPT_OUTPUT.take().unwrap_or_default();
    (made, KeptOutput { out, err })
}

/// Keeps a text for standard output, where that is captured; false if it is not.
pub(crate) fn keep_output(text: &str) -> bool {
    KEPT_OUTPUT.with_borrow_mut(|kept| {
        kept.iter_mut().for_each(|kept| kept.push_str(text));
        kept.is_some()
    })
}

/// Writes to standard error.
pub(crate) fn stderr(text: &str) {
    let is_kept = KEPT.with_borrow_mut(|kept| {
        let is_kept = kept.is_some();
        kept.iter_mut().for_each(|kept| kept.push_str(text));
        is_kept
    });
    if is_kept {
        return;
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output.
pub(crate) fn stdout(text: &str) {
    if keep_output(text) {
        return;
    }
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// `--version`.
pub(crate) fn version() -> ExitCode {
    stdout(&format!("slurm {}\n", crate::SLURM_VERSION));
    ExitCode::SUCCESS
}
