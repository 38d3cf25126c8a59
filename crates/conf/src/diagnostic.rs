//! Findings of the loader in a configuration: one [`Diagnostic`] for each, with its place and, where there is one, the
//! way out. Loading never stops at the first.

use std::fmt;
use std::sync::Arc;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used as it stands.
    Error,
    /// Usable, but probably not as intended, or not implemented yet.
    Warning,
    /// The key is understood and has no effect in Muster.
    NoEffect,
}

/// Prints `error`, `warning` or `no effect`.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::NoEffect => "no effect",
        })
    }
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The file, as it was named to the loader or by `Include`.
    pub file: Arc<str>,
    /// Line, counted from 1; 0 where the finding is about the file as a whole.
    pub line: u32,
    /// Column of the key, counted from 1; 0 where unknown.
    pub column: u32,
}

/// Prints `file:line:column`, leaving out unknown parts.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity of the finding.
    pub severity: Severity,
    /// Its place.
    pub origin: Origin,
    /// The key it is about, spelled as in Slurm's documentation; empty where there is none.
    pub key: String,
    /// The finding, one sentence without a final period.
    pub message: String,
    /// Advice for its correction; empty where there is nothing to add.
    pub help: String,
}

/// Prints `file:line:column: severity: message`, and the help on a line of its own.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.severity, self.message)?;
        if !self.help.is_empty() {
            write!(f, "\n    help: {}", self.help)?;
        }
        Ok(())
    }
}

/// Collects findings while a file is loaded.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Diagnostic>,
}

impl Findings {
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        origin: &Origin,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.list.push(Diagnostic {
            severity,
            origin: origin.clone(),
            key: key.to_owned(),
            message: message.into(),
            help: help.into(),
        });
    }

    pub(crate) fn error(
        &mut self,
        origin: &Origin,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Error, origin, key, message, help);
    }

    pub(crate) fn warn(
        &mut self,
        origin: &Origin,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Warning, origin, key, message, help);
    }

    /// In the order of files and lines; findings about whole files come first.
    pub(crate) fn sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| d.origin.line);
        self.list
    }
}
