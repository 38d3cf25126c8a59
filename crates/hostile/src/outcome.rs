//! Outcome of an attack: requests, answers, findings.

use crate::peer::PeerReply;
use std::fmt::Write as _;

/// Counts of requests, and what must not have happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were refused, or whose connection was closed.
    pub refused: u64,
    /// Requests that were carried out or answered.
    pub accepted: u64,
    /// Findings, in words.
    pub findings: Vec<String>,
    /// Attacks that could not be tried here, and why.
    pub skipped: Vec<String>,
}

impl Outcome {
    /// Counts an answer; no answer, or one that cannot be read, is a finding.
    pub fn count<T>(&mut self, what: &str, answer: &PeerReply<T>) {
        self.sent += 1;
        match answer {
            PeerReply::Accepted(_) => self.accepted += 1,
            PeerReply::Refused(_) | PeerReply::Closed => self.refused += 1,
            PeerReply::Silent => self.finding(format!("{what}: no answer")),
            PeerReply::Unreadable(e) => self.finding(format!("{what}: an invalid answer: {e}")),
        }
    }

    /// Counts an answer that must be a refusal.
    pub fn must_refuse<T>(&mut self, what: &str, answer: &PeerReply<T>) {
        self.count(what, answer);
        if matches!(answer, PeerReply::Accepted(_)) {
            self.finding(format!("{what}: accepted"));
        }
    }

    /// Notes what must not have happened.
    pub fn finding(&mut self, text: impl Into<String>) {
        self.findings.push(text.into());
    }

    /// Notes what must hold if it does not.
    pub fn require(&mut self, holds: bool, text: &str) {
        if !holds {
            self.finding(text);
        }
    }

    /// Adds another.
    pub fn add(&mut self, other: Outcome) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.accepted += other.accepted;
        self.findings.extend(other.findings);
        self.skipped.extend(other.skipped);
    }

    /// As lines, for another process.
    pub fn to_lines(&self) -> String {
        let mut text = format!("counts {} {} {}\n", self.sent, self.refused, self.accepted);
        let line = |text: &str| text.replace('\n', " ");
        for finding in &self.findings {
            let _ = writeln!(text, "finding {}", line(finding));
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped {}", line(skipped));
        }
        text
    }

    /// Parses the output of another process. Lines of any other form are findings: a process of the attack that panics
    /// says so.
    pub fn from_lines(text: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("counts", numbers)) => {
                    let mut numbers = numbers.split(' ').map(|n| n.parse().unwrap_or(0));
                    let mut next = || numbers.next().unwrap_or(0);
                    outcome.sent += next();
                    outcome.refused += next();
                    outcome.accepted += next();
                }
                Some(("finding", text)) => outcome.finding(text),
                Some(("skipped", text)) => outcome.skipped.push(text.to_owned()),
                _ => {}
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_bring_it_over() {
        let outcome = Outcome {
            sent: 7,
            refused: 4,
            accepted: 3,
            findings: vec!["a b".to_owned(), "c".to_owned()],
            skipped: vec!["no compiler".to_owned()],
        };
        assert_eq!(Outcome::from_lines(&outcome.to_lines()), outcome);
    }
}
