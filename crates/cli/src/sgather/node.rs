//! The task of sgather on a node: writes a header and a file to standard output, or removes the file. It has the rights of the
//! job's user and no others.

use crate::errno;
use crate::options::env;
use crate::say;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Begins the arguments of the task that sends.
pub(super) const SEND: &str = "--send";
/// Begins the arguments of the task that removes the sent file.
pub(super) const REMOVE: &str = "--remove";
/// Exit status where there is no such file: ENOENT.
pub(super) const ABSENT: u8 = 2;

/// Bytes of a header: five numbers and their blanks.
const HEADER_BYTES_MAX: usize = 128;

/// Header before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// An archive of tar's follows.
    pub(super) is_directory: bool,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Its permissions.
    pub(super) mode: u32,
    /// When it was read last.
    pub(super) atime_s: u64,
    /// When it was changed last.
    pub(super) mtime_s: u64,
}

impl Header {
    fn of(about: &fs::Metadata) -> Header {
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        Header {
            is_directory: about.is_dir(),
            size: about.size(),
            mode: about.mode() & 0o777,
            atime_s: seconds(about.atime()),
            mtime_s: seconds(about.mtime()),
        }
    }

    fn line(&self) -> String {
        let kind = if self.is_directory { "d" } else { "f" };
        format!(
            "{kind} {} {:o} {} {}\n",
            self.size, self.mode, self.atime_s, self.mtime_s
        )
    }

    /// Reads a line; `None` where nothing was sent.
    pub(super) fn read(input: &mut impl Read) -> io::Result<Option<Header>> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.len() < HEADER_BYTES_MAX && input.read(&mut byte)? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        if line.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&line);
        let header = Header::parse(&text);
        header
            .map(Some)
            .ok_or_else(|| io::Error::other("invalid message from the node"))
    }

    fn parse(text: &str) -> Option<Header> {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, size, mode, atime, mtime] = words[..] else {
            return None;
        };
        Some(Header {
            is_directory: kind == "d",
            size: size.parse().ok()?,
            mode: u32::from_str_radix(mode, 8).ok()? & 0o777,
            atime_s: atime.parse().ok()?,
            mtime_s: mtime.parse().ok()?,
        })
    }
}

/// Runs the task; its exit status is the error's number.
pub(super) fn main(removes: bool, words: &[String]) -> ExitCode {
    let [source, recursive] = words else {
        say::stderr("sgather: error: --send and --remove are for sgather's own tasks\n");
        return ExitCode::FAILURE;
    };
    let (path, recursive) = (Path::new(source), recursive == "1");
    let result = match removes {
        true => remove(path, recursive),
        false => send(path, recursive),
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    let node = env("SLURMD_NODENAME").unwrap_or_default();
    let why = errno::system_text(&error);
    say::stderr(&format!("sgather: error: {node}: {source}: {why}\n"));
    let number = error.raw_os_error().and_then(|n| u8::try_from(n).ok());
    ExitCode::from(number.unwrap_or(1))
}

fn send(path: &Path, recursive: bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    if about.is_dir() && !recursive {
        return Err(io::Error::other("it is a directory; --recursive copies it"));
    }
    let mut out = io::stdout().lock();
    out.write_all(Header::of(&about).line().as_bytes())?;
    out.flush()?;
    if about.is_dir() {
        drop(out);
        return Err(Command::new("tar")
            .arg("-c")
            .args(["-f", "-", "-C"])
            .arg(path)
            .arg(".")
            .exec());
    }
    io::copy(&mut file, &mut out)?;
    out.flush()
}

fn remove(path: &Path, recursive: bool) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true if recursive => fs::remove_dir_all(path),
        true => Err(io::Error::other(
            "it is a directory; --recursive removes it",
        )),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header {
            is_directory: false,
            size: 1 << 40,
            mode: 0o640,
            atime_s: 1,
            mtime_s: 2,
        };
        let mut bytes = header.line().into_bytes();
        bytes.extend(b"data");
        let mut input = bytes.as_slice();
        assert_eq!(Header::read(&mut input).unwrap(), Some(header));
        assert_eq!(input, b"data");
        assert_eq!(Header::read(&mut &b""[..]).unwrap(), None);
        for bad in ["x\n", "f 1 2 3\n", "f -1 644 0 0\n", "f 1 9 0 0\n"] {
            assert!(Header::read(&mut bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
