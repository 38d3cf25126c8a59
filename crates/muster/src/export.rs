//! `muster export`: accounting for other tools.

use anyhow::{Context as _, Result, bail, ensure};
use muster_acct::ArchiveReader;
use muster_dbd::parquet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Request of a command line.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    archives: Vec<PathBuf>,
    /// Directory of the new files.
    to: PathBuf,
}

/// Runs it.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    match words.first().map(String::as_str) {
        Some("archive") => {}
        Some(other) => bail!("'{other}' cannot be exported: 'muster export --help' says what can"),
        None => bail!("what is to be exported? 'muster export --help' says what can be"),
    }
    let request = parse(&words[1..])?;
    for archive in &request.archives {
        let shown = archive.display();
        let counts = export(archive, &request.to).with_context(|| format!("{shown}"))?;
        let counts: Vec<String> = counts.iter().map(Count::text).collect();
        say!("{shown}: {}\n", counts.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request {
        archives: Vec::new(),
        to: PathBuf::from("."),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--to") {
            Some("") => {
                let to = words.next().context("--to: the directory is missing")?;
                request.to = to.into();
            }
            Some(to) if to.starts_with('=') => request.to = to[1..].into(),
            _ if word.starts_with('-') => {
                bail!("there is no option '{word}'; 'muster export --help'")
            }
            _ => request.archives.push(word.into()),
        }
    }
    ensure!(
        !request.archives.is_empty(),
        "which files? 'muster export --help'"
    );
    Ok(request)
}

/// A file that was made.
struct Count {
    file: PathBuf,
    rows: u64,
}

impl Count {
    fn text(&self) -> String {
        let noun = if self.rows == 1 { "row" } else { "rows" };
        format!("{} {noun} in {}", self.rows, self.file.display())
    }
}

/// Writes the rows of an archive beside each other, a file for each kind. No file is left of an archive that is damaged.
fn export(archive: &Path, to: &Path) -> Result<Vec<Count>> {
    let name = archive.file_name().context("this names no file")?;
    let place = |kind: &str| {
        let mut file = name.to_owned();
        file.push(format!(".{kind}.parquet"));
        to.join(file)
    };
    // A pipe is not waited for, and no device is read.
    let input = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(archive)?;
    ensure!(input.metadata()?.is_file(), "this is not a regular file");
    let mut reader = ArchiveReader::begin(BufReader::new(input))?;
    let mut made = Vec::new();
    let written = parquet::export(&mut reader, &mut |kind| {
        let path = place(kind);
        let file = create(&path)?;
        made.push(path);
        Ok(BufWriter::new(file))
    });
    match written {
        Ok(counts) => Ok(counts
            .into_iter()
            .map(|(kind, rows)| Count {
                file: place(&kind),
                rows,
            })
            .collect()),
        Err(e) => {
            for path in made {
                let _ = fs::remove_file(path);
            }
            Err(e.into())
        }
    }
}

/// A new file that is the caller's alone, as archives are. None is replaced.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_are_read() {
        let expected = Request {
            archives: vec!["a".into(), "b".into()],
            to: "/d".into(),
        };
        assert_eq!(parse(&words("a --to /d b")).unwrap(), expected);
        assert_eq!(parse(&words("--to=/d a b")).unwrap(), expected);
        for (wrong, named) in [
            ("", "which files?"),
            ("a --to", "--to: the directory is missing"),
            ("a --csv", "there is no option '--csv'"),
            ("a --tool", "there is no option '--tool'"),
        ] {
            let error = parse(&words(wrong)).unwrap_err().to_string();
            assert!(error.starts_with(named), "{wrong}: {error}");
        }
    }
}
