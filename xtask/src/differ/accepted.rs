//! The list of differences that are accepted, each under its reason.
//!
//! A line `[REASON]` begins a part. The others are entries: `KIND COMMAND || PATTERN`, where COMMAND is a pattern for the
//! command line and `*` in patterns matches any text. KIND is `line`: a line that only one side prints, as it is shown
//! with its sign; `word`: a word that is left out on both sides before they are compared; `order`, where PATTERN is a line
//! that may be in another place; or `whole`, where PATTERN is a line with its sign that explains all else.

use super::compare::{changes, is_same};
use anyhow::{Context, Result, bail};

/// Result of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineVerdict {
    Equal,
    /// All that differs is accepted, for these reasons.
    Accepted(Vec<String>),
    /// Differences that are not accepted.
    Differs(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptedKind {
    Line,
    Word,
    Order,
    Whole,
}

struct AcceptedEntry {
    kind: AcceptedKind,
    command: String,
    pattern: String,
    reason: usize,
    is_used: bool,
}

/// The list.
pub(super) struct AcceptedList {
    reasons: Vec<String>,
    entries: Vec<AcceptedEntry>,
}

impl AcceptedList {
    /// Reads the list.
    ///
    /// # Errors
    /// A line is no entry, or has no reason.
    pub(super) fn read(text: &str) -> Result<AcceptedList> {
        let mut list = AcceptedList {
            reasons: Vec::new(),
            entries: Vec::new(),
        };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(reason) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                list.reasons.push(reason.to_owned());
                continue;
            }
            let place = || format!("accepted.txt, line {}", at + 1);
            let (kind, rest) = line.split_once(' ').with_context(place)?;
            let (command, pattern) = rest.split_once(" || ").with_context(place)?;
            let kind = match kind {
                "line" if pattern.starts_with(['-', '+', '*']) => AcceptedKind::Line,
                "whole" if pattern.starts_with(['-', '+']) => AcceptedKind::Whole,
                "word" => AcceptedKind::Word,
                "order" => AcceptedKind::Order,
                _ => bail!(
                    "{}: neither 'line' or 'whole' with a sign, 'word' nor 'order'",
                    place()
                ),
            };
            let reason = list.reasons.len().checked_sub(1);
            list.entries.push(AcceptedEntry {
                kind,
                command: command.trim().to_owned(),
                pattern: pattern.to_owned(),
                reason: reason.with_context(|| format!("{}: no reason", place()))?,
                is_used: false,
            });
        }
        Ok(list)
    }

    /// Whether what differs is accepted.
    pub(super) fn judge(
        &mut self,
        command: &str,
        slurm: &[String],
        muster: &[String],
    ) -> LineVerdict {
        let found = changes(slurm, muster);
        if found.is_empty() {
            return LineVerdict::Equal;
        }
        let mut used = Vec::new();
        let entries: Vec<usize> = (0..self.entries.len())
            .filter(|at| matches(&self.entries[*at].command, command))
            .collect();
        let explains = entries.iter().copied().find(|at| {
            let entry = &self.entries[*at];
            entry.kind == AcceptedKind::Whole
                && found.iter().any(|line| matches(&entry.pattern, line))
        });
        if let Some(at) = explains {
            self.entries[at].is_used = true;
            return LineVerdict::Accepted(vec![self.reasons[self.entries[at].reason].clone()]);
        }
        let words: Vec<usize> = entries
            .iter()
            .copied()
            .filter(|at| self.entries[*at].kind == AcceptedKind::Word)
            .collect();
        let mut left = match words.is_empty() {
            true => found.clone(),
            false => {
                let (a, b) = (
                    self.reduced(&found, "- ", &words, &mut used),
                    self.reduced(&found, "+ ", &words, &mut used),
                );
                changes(&a, &b)
            }
        };
        if used.is_empty() {
            left = found;
        }
        self.drop_moved(&mut left, &entries, &mut used);
        left.retain(|line| {
            let entry = entries.iter().find(|at| {
                let entry = &self.entries[**at];
                entry.kind == AcceptedKind::Line && matches(&entry.pattern, line)
            });
            used.extend(entry);
            entry.is_none()
        });
        if !left.is_empty() {
            return LineVerdict::Differs(left);
        }
        let mut reasons = Vec::new();
        for at in used {
            let entry = &mut self.entries[at];
            entry.is_used = true;
            if !reasons.contains(&self.reasons[entry.reason]) {
                reasons.push(self.reasons[entry.reason].clone());
            }
        }
        LineVerdict::Accepted(reasons)
    }

    /// Changed lines of one side without the words that are accepted; what has other words gone is left out whole.
    fn reduced(
        &self,
        found: &[String],
        sign: &str,
        words: &[usize],
        used: &mut Vec<usize>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for line in found.iter().filter_map(|line| line.strip_prefix(sign)) {
            let mut left = Vec::new();
            for word in line.split_whitespace() {
                let entry = words
                    .iter()
                    .find(|at| matches(&self.entries[**at].pattern, word));
                match entry {
                    Some(at) => used.push(*at),
                    None => left.push(word),
                }
            }
            lines.extend((!left.is_empty()).then(|| left.join(" ")));
        }
        lines
    }

    /// Takes pairs of lines away that are only in another place.
    fn drop_moved(&self, left: &mut Vec<String>, entries: &[usize], used: &mut Vec<usize>) {
        for at in entries
            .iter()
            .filter(|at| self.entries[**at].kind == AcceptedKind::Order)
        {
            let pattern = &self.entries[*at].pattern;
            let mut from = 0;
            while let Some(gone) = left.get(from) {
                let place = gone
                    .strip_prefix("- ")
                    .filter(|line| matches(pattern, line));
                let other = place.and_then(|line| {
                    let is_it = |other: &String| {
                        other
                            .strip_prefix("+ ")
                            .is_some_and(|other| is_same(line, other))
                    };
                    left.iter().position(is_it)
                });
                match other {
                    Some(other) => {
                        left.remove(from.max(other));
                        left.remove(from.min(other));
                        from -= usize::from(other < from);
                        used.push(*at);
                    }
                    None => from += 1,
                }
            }
        }
    }

    /// Entries that nothing met.
    pub(super) fn unused(&self) -> Vec<String> {
        let unused = self.entries.iter().filter(|entry| !entry.is_used);
        unused
            .map(|entry| format!("{} || {}", entry.command, entry.pattern))
            .collect()
    }
}

/// Whether a pattern, in which `*` matches any text, is met by the whole text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn patterns() {
        assert!(matches("a*c", "abbc") && matches("*", "") && matches("a", "a"));
        assert!(matches("*b*", "abc") && matches("a*b*c", "a1b2bc"));
        assert!(!matches("a", "ab") && !matches("a*c", "acb") && !matches("ab*b", "ab"));
    }

    #[test]
    fn a_difference_is_accepted_where_each_of_its_lines_is() {
        let text = "[no licences]\nline sbatch -L* || - exit 1\nline sbatch -L* || + exit 0\nline sinfo* || + x\n";
        let mut list = AcceptedList::read(text).unwrap();
        let (one, zero) = (lines("exit 1"), lines("exit 0"));
        assert_eq!(list.judge("squeue", &one, &one), LineVerdict::Equal);
        let accepted = LineVerdict::Accepted(vec!["no licences".to_owned()]);
        assert_eq!(list.judge("sbatch -L x", &one, &zero), accepted);
        let differs = LineVerdict::Differs(lines("- exit 1\n+ exit 0"));
        assert_eq!(list.judge("sbatch -n1", &one, &zero), differs);
        let more = lines("exit 0\nmore");
        assert_eq!(
            list.judge("sbatch -L x", &one, &more),
            LineVerdict::Differs(lines("+ more"))
        );
        assert_eq!(list.unused(), ["sinfo* || + x"]);
    }

    #[test]
    fn words_are_left_out_of_lines_that_differ() {
        let mut list = AcceptedList::read("[measured]\nword scontrol* || CPULoad=*\n").unwrap();
        let (a, b) = (lines("CPUs=8  CPULoad=0.1"), lines("CPUs=8 CPULoad=7"));
        let accepted = LineVerdict::Accepted(vec!["measured".to_owned()]);
        assert_eq!(list.judge("scontrol show node", &a, &b), accepted);
        let c = lines("CPUs=9 CPULoad=7");
        let differs = LineVerdict::Differs(lines("- CPUs=8\n+ CPUs=9"));
        assert_eq!(list.judge("scontrol show node", &a, &c), differs);
    }

    #[test]
    fn lines_may_be_in_another_place() {
        let mut list = AcceptedList::read("[ties]\norder squeue* || *held*\n").unwrap();
        let (a, b) = (
            lines("1 held\n2 held\n3 run"),
            lines("2 held\n1 held\n3 run"),
        );
        let accepted = LineVerdict::Accepted(vec!["ties".to_owned()]);
        assert_eq!(list.judge("squeue", &a, &b), accepted);
        let c = lines("2 held\n4 held\n3 run");
        assert_eq!(
            list.judge("squeue", &a, &c),
            LineVerdict::Differs(lines("- 1 held\n+ 4 held"))
        );
    }

    #[test]
    fn a_line_may_explain_all() {
        let text = "[never]\nwhole submit* || + *not available\n";
        let mut list = AcceptedList::read(text).unwrap();
        let (a, b) = (
            lines("Submitted 1\nexit 0"),
            lines("error: not available\nexit 1"),
        );
        let accepted = LineVerdict::Accepted(vec!["never".to_owned()]);
        assert_eq!(list.judge("submit -N9", &a, &b), accepted);
        let c = lines("error: other\nexit 1");
        assert!(matches!(
            list.judge("submit -N9", &a, &c),
            LineVerdict::Differs(_)
        ));
    }

    #[test]
    fn the_list_can_be_read() {
        let text = std::fs::read_to_string("../tests/differ/accepted.txt").unwrap();
        AcceptedList::read(&text).unwrap();
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        assert!(AcceptedList::read("line a || - b").is_err());
        assert!(AcceptedList::read("[x]\nline a || b").is_err());
        assert!(AcceptedList::read("[x]\nline a").is_err());
    }
}
