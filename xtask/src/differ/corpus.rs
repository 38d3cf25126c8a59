//! Command lines that are run on both clusters.

use anyhow::{Context, Result, bail};
use std::fs;

/// User of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CorpusUser {
    Root,
    /// Owner of the state's jobs.
    Nobody,
    /// Owner of a few others.
    Daemon,
}

impl CorpusUser {
    pub(super) fn name(self) -> &'static str {
        match self {
            CorpusUser::Root => "root",
            CorpusUser::Nobody => "nobody",
            CorpusUser::Daemon => "daemon",
        }
    }
}

/// Effect of a line on the state; in this order they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CorpusKind {
    /// Reads.
    Query,
    /// Submits, and removes its submissions.
    Submission,
    /// Changes what others read, and changes it back.
    Change,
}

/// A line of shell.
#[derive(Clone, Debug)]
pub(super) struct CorpusLine {
    pub(super) kind: CorpusKind,
    pub(super) user: CorpusUser,
    pub(super) text: String,
}

const FILES: [(&str, CorpusKind); 3] = [
    ("queries", CorpusKind::Query),
    ("submissions", CorpusKind::Submission),
    ("changes", CorpusKind::Change),
];

/// The lines of all files in `lines` of a folder; the first word of a file's name is its kind.
pub(super) fn read_all(folder: &str) -> Result<Vec<CorpusLine>> {
    let folder = format!("{folder}/lines");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .with_context(|| folder.clone())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let kind = FILES
            .iter()
            .find(|(prefix, _)| name.split('-').next() == Some(prefix));
        let Some((_, kind)) = kind else {
            bail!("{name}: names of files begin with queries, submissions or changes");
        };
        lines.extend(read(*kind, &fs::read_to_string(&file)?));
    }
    Ok(lines)
}

/// A line a line; `root:` before it says that root types it, `daemon:` another user.
fn read(kind: CorpusKind, text: &str) -> Vec<CorpusLine> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line_of(kind, line)).collect()
}

pub(super) fn line_of(kind: CorpusKind, line: &str) -> CorpusLine {
    let user = [CorpusUser::Root, CorpusUser::Daemon]
        .into_iter()
        .find_map(|user| {
            let rest = line.strip_prefix(user.name())?.strip_prefix(": ")?;
            Some((user, rest))
        });
    let (user, text) = user.unwrap_or((CorpusUser::Nobody, line));
    CorpusLine {
        kind,
        user,
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_user() {
        let lines = read(
            CorpusKind::Query,
            "# a comment\n\nroot: sinfo -R\nsqueue\ndaemon: scancel 1\n",
        );
        let seen: Vec<_> = lines.iter().map(|l| (l.user, l.text.as_str())).collect();
        assert_eq!(
            seen,
            [
                (CorpusUser::Root, "sinfo -R"),
                (CorpusUser::Nobody, "squeue"),
                (CorpusUser::Daemon, "scancel 1")
            ]
        );
    }
}
