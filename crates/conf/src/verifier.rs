//! `verifier.conf`, beside slurm.conf: how programs of the site that see submissions are run. Nothing here reads a file.

use crate::diagnostic::{Diagnostic, Origin, Severity};
use std::sync::Arc;

/// The file's name.
pub const FILE: &str = "verifier.conf";

/// Keys of the file, their forms and meanings, for messages and pages about it.
pub const KEYS: [(&str, &str, &str); 4] = [
    (
        "Processes",
        "1 to 64",
        "verifier processes; a user has at most half of those that others leave (default 4)",
    ),
    (
        "TimeLimit",
        "1 to 600",
        "seconds for one submission (default 10)",
    ),
    (
        "Memory",
        "1 to 65536",
        "MiB for a process's Lua script (default 64)",
    ),
    (
        "OnFailure",
        "refuse or accept",
        "what becomes of a submission whose verification fails (default refuse)",
    ),
];

/// Settings of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifierBounds {
    /// `Processes`.
    pub processes: usize,
    /// `TimeLimit`.
    pub time_limit_s: u64,
    /// `Memory`.
    pub memory_mib: u64,
    /// `OnFailure=accept`.
    pub passes_on_failure: bool,
}

impl Default for VerifierBounds {
    fn default() -> VerifierBounds {
        VerifierBounds {
            processes: 4,
            time_limit_s: 10,
            memory_mib: 64,
            passes_on_failure: false,
        }
    }
}

impl VerifierBounds {
    /// Parses the text of a file of this name, with findings.
    pub fn parse(text: &str, file: &str) -> (VerifierBounds, Vec<Diagnostic>) {
        let (mut bounds, mut findings) = (VerifierBounds::default(), Vec::new());
        let file: Arc<str> = file.into();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let (key, value) = (key.trim(), value.trim());
            let known = KEYS
                .iter()
                .find(|(name, ..)| name.eq_ignore_ascii_case(key));
            let message = match known {
                None => format!("there is no key '{key}'"),
                Some((name, ..)) if bounds.set(name, value) => continue,
                Some((name, form, _)) => format!("{name}={value}: {form} is expected"),
            };
            let names: Vec<&str> = KEYS.iter().map(|(name, ..)| *name).collect();
            findings.push(Diagnostic {
                severity: Severity::Error,
                origin: Origin {
                    file: Arc::clone(&file),
                    line: number,
                    column: 0,
                },
                key: key.to_owned(),
                message,
                help: format!("keys are {}", names.join(", ")),
            });
        }
        (bounds, findings)
    }

    fn set(&mut self, name: &str, value: &str) -> bool {
        let number = |least: u64, most: u64| {
            let number = value.parse().ok();
            number.filter(|n: &u64| (least..=most).contains(n))
        };
        match name {
            "Processes" => number(1, 64)
                .and_then(|n| usize::try_from(n).ok())
                .map(|n| self.processes = n)
                .is_some(),
            "TimeLimit" => number(1, 600).map(|n| self.time_limit_s = n).is_some(),
            "Memory" => number(1, 65_536).map(|n| self.memory_mib = n).is_some(),
            _ => match value.to_ascii_lowercase().as_str() {
                "refuse" | "accept" => {
                    self.passes_on_failure = value.eq_ignore_ascii_case("accept");
                    true
                }
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text = "# ours\nprocesses = 2\nTimeLimit=3 # s\nOnFailure=Accept\n";
        let (bounds, findings) = VerifierBounds::parse(text, "verifier.conf");
        assert!(findings.is_empty());
        assert_eq!((bounds.processes, bounds.time_limit_s), (2, 3));
        assert!(bounds.passes_on_failure);
        let (_, findings) =
            VerifierBounds::parse("TimeLimit=0\nnone\nOnFailure=maybe\nMemory\n", "f");
        let lines: Vec<u32> = findings.iter().map(|finding| finding.origin.line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert_eq!(findings[0].message, "TimeLimit=0: 1 to 600 is expected");
    }
}
