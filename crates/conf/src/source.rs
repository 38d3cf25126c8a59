//! From files to `Key=Value` pairs: comments, `\` continuation, `Include`, quotes. Knows the shape
//! of Slurm's configuration language and none of its keys.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Findings, Origin};

/// Depth to which `Include` may nest.
const MAX_INCLUDE_DEPTH: usize = 16;
/// The most files that one configuration may consist of.
const MAX_FILES: usize = 1024;
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: usize = 64 << 20;

/// Reads a file by name; lets tests and the simulator load from memory.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// Reads from the file system, refusing absurdly large files.
pub fn read_from_disk(path: &Path) -> io::Result<Vec<u8>> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES as u64 {
        return Err(io::Error::other(format!(
            "larger than {} MiB",
            MAX_FILE_BYTES >> 20
        )));
    }
    std::fs::read(path)
}

/// The text of a file that a site may do without, and nothing where it is not there.
///
/// # Errors
/// It cannot be read; the message names it.
pub fn optional_text(path: &Path) -> io::Result<String> {
    match read_from_disk(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&e.kind()) => {
            Ok(String::new())
        }
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
    }
}

/// One `Key=Value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: String,
    /// Without its quotes.
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// The pairs of one logical line; never empty.
pub(crate) type LogicalLine = Vec<Pair>;

/// Reads `path` and all that it includes into logical lines.
pub(crate) fn read_lines(
    path: &Path,
    read: ReadFile<'_>,
    findings: &mut Findings,
) -> Vec<LogicalLine> {
    let mut reader = Reader {
        read,
        findings,
        directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        cluster: None,
        open: Vec::new(),
        files: 0,
        lines: Vec::new(),
    };
    let whole = Origin {
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
    };
    reader.file(path, &whole);
    reader.lines
}

struct Reader<'a> {
    read: ReadFile<'a>,
    findings: &'a mut Findings,
    /// Directory of the main file; relative includes start from here.
    directory: PathBuf,
    /// Value of ClusterName so far, for `%c` in includes.
    cluster: Option<String>,
    /// The chain of includes being read.
    open: Vec<PathBuf>,
    files: usize,
    lines: Vec<LogicalLine>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, from: &Origin) {
        self.files += 1;
        if self.open.len() >= MAX_INCLUDE_DEPTH || self.files > MAX_FILES {
            let help = format!("at most {MAX_INCLUDE_DEPTH} levels and {MAX_FILES} files");
            return self
                .findings
                .error(from, "Include", "too many nested includes", help);
        }
        if self.open.iter().any(|open| open == path) {
            let message = format!("{} includes itself", path.display());
            return self
                .findings
                .error(from, "Include", message, "remove one of the includes");
        }
        let bytes = match (self.read)(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return self.findings.error(from, "", message, "");
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let file: Arc<str> = path.to_string_lossy().into();
        if matches!(text, std::borrow::Cow::Owned(_)) {
            let whole = Origin {
                file: file.clone(),
                line: 0,
                column: 0,
            };
            self.findings.warn(
                &whole,
                "",
                "the file is not valid UTF-8",
                "save it as UTF-8",
            );
        }
        self.open.push(path.to_owned());
        for (number, line) in logical_lines(&text) {
            let origin = Origin {
                file: file.clone(),
                line: number,
                column: 1,
            };
            match include_of(&line) {
                Some(target) => self.include(target, &origin),
                None => self.pairs(&line, &origin),
            }
        }
        self.open.pop();
    }

    fn include(&mut self, target: &str, origin: &Origin) {
        let mut target = target.trim_matches('"').to_owned();
        if target.contains("%c") {
            match &self.cluster {
                Some(cluster) => target = target.replace("%c", cluster),
                None => {
                    let help = "put ClusterName above the Include line";
                    return self
                        .findings
                        .error(origin, "Include", "%c is not known here", help);
                }
            }
        }
        let path = self.directory.join(&target);
        self.file(&path, origin);
    }

    fn pairs(&mut self, line: &str, origin: &Origin) {
        let pairs = split_pairs(line, origin, self.findings);
        if let Some(pair) = pairs
            .iter()
            .find(|p| p.key.eq_ignore_ascii_case("ClusterName"))
        {
            self.cluster = Some(pair.value.clone());
        }
        if !pairs.is_empty() {
            self.lines.push(pairs);
        }
    }
}

/// Lines without comments, with continuations joined, and the number of the first of each.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let mut lines = Vec::new();
    let mut pending: Option<(u32, String)> = None;
    for (index, raw) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let clean = strip_comment(raw);
        let trimmed = clean.trim_end();
        let (body, continues) = match trimmed.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (trimmed, false),
        };
        let (start, mut joined) = pending.take().unwrap_or((number, String::new()));
        joined.push_str(body);
        if continues {
            pending = Some((start, joined));
        } else if !joined.trim().is_empty() {
            lines.push((start, joined));
        }
    }
    lines.extend(pending.filter(|(_, text)| !text.trim().is_empty()));
    lines
}

/// Cuts at the first `#` that no backslash precedes; `\#` stands for `#`.
fn strip_comment(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '#' if clean.ends_with('\\') => {
                clean.pop();
                clean.push('#');
            }
            '#' => break,
            // A NUL would end the line for Slurm; here it is as good as white space.
            '\0' => clean.push(' '),
            c => clean.push(c),
        }
    }
    clean
}

fn include_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let word = line.get(..7)?;
    let rest = line.get(7..)?;
    let target = rest.trim();
    let is_include = word.eq_ignore_ascii_case("include")
        && rest.starts_with(char::is_whitespace)
        && !target.starts_with('=')
        && !target.is_empty();
    is_include.then_some(target)
}

/// Splits a line into pairs; other words are reported and skipped.
fn split_pairs(line: &str, origin: &Origin, findings: &mut Findings) -> LogicalLine {
    let mut pairs = Vec::new();
    let mut at = 0;
    while let Some(start) = skip_blank(line, at) {
        let here = Origin {
            column: u32::try_from(line[..start].chars().count() + 1).unwrap_or(0),
            ..origin.clone()
        };
        let word_end = end_of_word(line, start);
        let equals = line[start..].find('=').map(|offset| start + offset);
        let key_end = equals.filter(|&equals| {
            line[start..equals].trim_end().len() == equals - start
                || line[start..equals].split_whitespace().count() == 1
        });
        let Some(equals) = key_end else {
            let word = &line[start..word_end];
            let message = format!("`{word}` is not of the form Key=Value");
            findings.error(&here, "", message, "quote a value that contains spaces");
            at = word_end;
            continue;
        };
        let key = line[start..equals]
            .trim()
            .trim_end_matches(['+', '-', '*', '/']);
        let (value, next) = value_at(line, equals + 1, &here, key, findings);
        at = next;
        if key.is_empty() {
            findings.error(&here, "", "a value without a key", "write Key=Value");
            continue;
        }
        pairs.push(Pair {
            key: key.to_owned(),
            value,
            origin: here,
        });
    }
    pairs
}

/// The value that starts at or after `at`, and where the rest of the line begins.
fn value_at(
    line: &str,
    at: usize,
    origin: &Origin,
    key: &str,
    findings: &mut Findings,
) -> (String, usize) {
    let Some(start) = skip_blank(line, at) else {
        return (String::new(), line.len());
    };
    if let Some(quoted) = line[start..].strip_prefix('"') {
        return match quoted.find('"') {
            Some(length) => (quoted[..length].to_owned(), start + length + 2),
            None => {
                findings.error(
                    origin,
                    key,
                    format!("the quote of {key} is not closed"),
                    "add a \"",
                );
                (quoted.trim_end().to_owned(), line.len())
            }
        };
    }
    let end = end_of_word(line, start);
    let word = &line[start..end];
    if start > at && starts_a_pair(word) {
        // `Nodes= State=UP`: a blank value, which Slurm's documentation allows.
        return (String::new(), start);
    }
    (word.to_owned(), end)
}

/// Whether a word looks like `Key=...` rather than like a value that contains `=`.
fn starts_a_pair(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| {
        key.starts_with(|c: char| c.is_ascii_uppercase())
            && key.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

fn skip_blank(line: &str, at: usize) -> Option<usize> {
    line[at..]
        .find(|c: char| !c.is_whitespace())
        .map(|offset| at + offset)
}

fn end_of_word(line: &str, start: usize) -> usize {
    line[start..]
        .find(char::is_whitespace)
        .map_or(line.len(), |offset| start + offset)
}
