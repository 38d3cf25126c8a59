//! `muster logs`: what a batch job has written, from any host that sees its files, and with `--follow` until the job has ended.

use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::job::Stdio;
use crate::listing::{Failure, complain, failed_call, job_names, query};
use crate::options::{HelpForm, Spec, flag, opt};
use muster_model::ids::JobId;
use muster_proto::client::{JobFilter, RequestBody, Response};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;

/// muster logs.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-logs",
    about: "Prints what a batch job has written, and follows it.",
    operands: "JOBID[_INDEX]",
    form: HelpForm::Options,
    options: &[
        flag("error", "standard error, where it has a file of its own").short('e'),
        flag("follow", "print what comes until the job has ended").short('f'),
        flag("help", "print this help"),
        opt("lines", "N", "begin N lines before the end (default: all)").short('n'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
The file is read where this command runs, with the rights of who runs it. Jobs that are no longer in the queue's memory \
(MinJobAge) are not found; 'sacct -o stdout' has the names of their files.",
};

/// Interval of looks at a followed file, milliseconds: no event reports writes of another host.
const LOOK_MS: u16 = 200;
/// Bytes that are read at a time.
const PART: usize = 64 << 10;

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let (mut which, mut follow, mut lines) = (Stdio::Out, false, None);
    for (name, value) in &parsed.options {
        match *name {
            "help" => return shown(&SPEC.help()),
            "usage" => return shown(&SPEC.usage()),
            "error" => which = Stdio::Err,
            "follow" => follow = true,
            "lines" => {
                let text = value.clone().unwrap_or_default();
                let number = text.parse::<usize>();
                let number = number.map_err(|_| {
                    Failure::new(format!("muster logs: --lines={text}: expected a number"))
                });
                lines = Some(number?);
            }
            _ => {}
        }
    }
    let [word] = parsed.operands.as_slice() else {
        return Err(Failure::new(format!(
            "muster logs: one job is needed\n{}",
            SPEC.usage().trim_end()
        )));
    };
    let mut client = Client::connect().map_err(failed_call("muster logs"))?;
    let found = find(&mut client, word, which)?;
    await_start(&found, &mut client, follow)?;
    let mut job = match follow && !found.is_over {
        true => Some(FollowedJob::new(client, found.id)?),
        false => None,
    };
    let mut file = open(&found, job.as_mut())?;
    if let Some(lines) = lines {
        go_back(&mut file, lines).map_err(|e| unreadable(&found.path, &e))?;
    }
    let mut out = io::stdout().lock();
    copy(&mut file, &mut out, &found.path)?;
    let Some(mut job) = job else {
        return Ok(());
    };
    while !job.has_ended_within(LOOK_MS)? {
        copy(&mut file, &mut out, &found.path)?;
    }
    // Copies output between the last look and the end.
    copy(&mut file, &mut out, &found.path)
}

fn shown(text: &str) -> Result<(), Failure> {
    crate::listing::print(text);
    Ok(())
}

/// A job's file.
struct LogFile {
    id: JobId,
    path: String,
    /// The node whose files are meant.
    host: Option<String>,
    is_waiting: bool,
    is_over: bool,
}

fn find(client: &mut Client, word: &str, which: Stdio) -> Result<LogFile, Failure> {
    let failed = failed_call("muster logs");
    let (id, task) = job_names::parse_job(word)
        .ok_or_else(|| Failure::new(format!("muster logs: '{word}' is not a job number")))?;
    let filter = JobFilter {
        ids: vec![id],
        ..JobFilter::default()
    };
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let jobs = query::jobs(client, &mut ctx, filter).map_err(&failed)?;
    let mut rows = job_names::rows_of(&jobs, id, task);
    let row = rows.next().ok_or_else(|| {
        Failure::new(format!(
            "muster logs: there is no job {word} in the queue's memory; 'sacct -j {word} -o stdout' names its file"
        ))
    })?;
    if row.in_array() && task.is_none() && rows.next().is_some() {
        return Err(Failure::new(format!(
            "muster logs: job {word} is an array: name a task, such as {word}_1"
        )));
    }
    let path = row.stdio_path(which).ok_or_else(|| {
        Failure::new(format!(
            "muster logs: job {word} has no script, and its steps write where they were started"
        ))
    })?;
    Ok(LogFile {
        id: row.job.id,
        path,
        host: row.shares().next().map(|share| share.name.clone()),
        is_waiting: row.is_pending(),
        is_over: row.job.state.is_ended(),
    })
}

fn unreadable(path: &str, error: &io::Error) -> Failure {
    Failure::new(format!("muster logs: {path}: {error}"))
}

/// Waits for a job that has not started, if it is to be followed.
fn await_start(found: &LogFile, client: &mut Client, follow: bool) -> Result<(), Failure> {
    if !found.is_waiting {
        return Ok(());
    }
    if !follow {
        return Err(Failure::new(format!(
            "muster logs: job {} has not started; 'muster why {}' says what it waits for",
            found.id, found.id
        )));
    }
    complain(&format!("muster logs: job {} waits to start", found.id));
    match client.call(RequestBody::WaitStarted(found.id)) {
        Ok(Response::JobStarted(_) | Response::JobEnded { .. }) => Ok(()),
        Ok(other) => Err(Failure::new(unexpected(&other).to_string())),
        Err(error) => Err(Failure::new(format!("muster logs: {error}"))),
    }
}

/// Opens the file, which a job that has just started may not have made yet.
fn open(found: &LogFile, mut job: Option<&mut FollowedJob>) -> Result<File, Failure> {
    loop {
        let error = match open_regular(&found.path) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing
            && let Some(job) = &mut job
            && !job.has_ended
        {
            job.has_ended_within(LOOK_MS)?;
            continue;
        }
        return Err(match &found.host {
            Some(host) if is_missing => Failure::new(format!(
                "muster logs: {} is not there on this host; the job wrote it on {host}",
                found.path
            )),
            _ => unreadable(&found.path, &error),
        });
    }
}

/// Opens a file that the owner of a job has named. Its kind is looked at before it is opened: a pipe would keep the reader waiting, and
/// the opening of a device does something.
fn open_regular(path: &str) -> io::Result<File> {
    let place = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    if !place.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// The end of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileEnd {
    /// The file.
    pub(crate) path: String,
    /// Its last lines.
    pub(crate) text: String,
}

/// The last lines of what a job has written, of the last bytes at most.
///
/// # Errors
/// Why there are none.
pub(crate) fn end_of(word: &str, lines: usize) -> Result<FileEnd, String> {
    let mut client = Client::connect().map_err(|e| e.to_string())?;
    let found = find(&mut client, word, Stdio::Out).map_err(|failure| failure.to_string())?;
    if found.is_waiting {
        return Err(format!("job {word} has not started"));
    }
    let wrong = |e: io::Error| format!("{}: {e}", found.path);
    let file = open_regular(&found.path);
    let mut file = file.map_err(|e| match &found.host {
        Some(host) if e.kind() == io::ErrorKind::NotFound => {
            format!(
                "{} is not there on this host; the job writes it on {host}",
                found.path
            )
        }
        _ => wrong(e),
    })?;
    let about = file.metadata().map_err(wrong)?;
    let begin = about.len().saturating_sub(PART as u64);
    file.seek(SeekFrom::Start(begin)).map_err(wrong)?;
    let mut bytes = Vec::new();
    file.take(PART as u64)
        .read_to_end(&mut bytes)
        .map_err(wrong)?;
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().take(lines).collect::<Vec<_>>();
    let text = last.into_iter().rev().collect::<Vec<_>>().join("\n");
    Ok(FileEnd {
        path: found.path,
        text,
    })
}

/// Goes to where the last lines begin.
fn go_back(file: &mut File, lines: usize) -> io::Result<()> {
    let mut at = file.seek(SeekFrom::End(0))?;
    let (mut seen, mut is_last) = (0, true);
    let mut part = vec![0; PART];
    while at > 0 {
        let length = at.min(PART as u64) as usize;
        at -= length as u64;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut part[..length])?;
        for (place, byte) in part[..length].iter().enumerate().rev() {
            // The end of the last line begins none.
            if *byte == b'\n' && !std::mem::take(&mut is_last) {
                seen += 1;
                if seen == lines.max(1) {
                    file.seek(SeekFrom::Start(at + place as u64 + 1))?;
                    return Ok(());
                }
            }
            is_last = false;
        }
    }
    file.seek(SeekFrom::Start(0)).map(drop)
}

/// Prints the available output. A reader that went away ends the command quietly.
fn copy(file: &mut File, out: &mut impl io::Write, path: &str) -> Result<(), Failure> {
    // A file that was cut begins anew.
    let length = file.metadata().map_err(|e| unreadable(path, &e))?.len();
    let at = file.stream_position().map_err(|e| unreadable(path, &e))?;
    if length < at {
        file.seek(SeekFrom::Start(0))
            .map_err(|e| unreadable(path, &e))?;
    }
    let mut part = vec![0; PART];
    loop {
        let count = file.read(&mut part).map_err(|e| unreadable(path, &e))?;
        if count == 0 {
            break;
        }
        if out.write_all(&part[..count]).is_err() {
            std::process::exit(141);
        }
    }
    if out.flush().is_err() {
        std::process::exit(141);
    }
    Ok(())
}

/// A job of which the end is awaited.
struct FollowedJob {
    client: Client,
    has_ended: bool,
}

impl FollowedJob {
    fn new(mut client: Client, id: JobId) -> Result<FollowedJob, Failure> {
        let sent = client.send(RequestBody::WaitEnded(id));
        sent.map_err(|e| Failure::new(format!("muster logs: {e}")))?;
        Ok(FollowedJob {
            client,
            has_ended: false,
        })
    }

    /// Whether it has ended, or does so in this time.
    fn has_ended_within(&mut self, milliseconds: u16) -> Result<bool, Failure> {
        if self.has_ended {
            return Ok(true);
        }
        let mut polled = [PollFd::new(self.client.stream().as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(milliseconds)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(false),
            _ => {}
        }
        match self.client.receive() {
            Ok(Response::JobEnded { .. }) => {
                self.has_ended = true;
                Ok(true)
            }
            Ok(other) => Err(Failure::new(unexpected(&other).to_string())),
            Err(ConnectError::Broken(_)) => Err(Failure::new(
                "muster logs: the controller went away; the job goes on",
            )),
            Err(error) => Err(Failure::new(format!("muster logs: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = std::env::temp_dir().join(format!("muster-logs-dir-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("device")).unwrap();
        let read = |name: &str| {
            let mut text = String::new();
            let mut file = open_regular(&path(name)).map_err(|e| e.to_string())?;
            file.read_to_string(&mut text).unwrap();
            Ok::<_, String>(text)
        };
        assert_eq!(read("file").unwrap(), "text");
        assert_eq!(read("link").unwrap(), "text");
        for name in ["pipe", "device", ""] {
            assert_eq!(read(name).unwrap_err(), "not a regular file", "{name}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_last_lines_begin_where_they_begin() {
        let path = std::env::temp_dir().join(format!("muster-logs-{}", std::process::id()));
        let long = "x".repeat(PART);
        let text = format!("a\n{long}\nb\nc\n");
        std::fs::write(&path, &text).unwrap();
        let tail = |lines| {
            let mut file = File::open(&path).unwrap();
            go_back(&mut file, lines).unwrap();
            let mut rest = String::new();
            file.read_to_string(&mut rest).unwrap();
            rest
        };
        assert_eq!(tail(1), "c\n");
        assert_eq!(tail(2), "b\nc\n");
        assert_eq!(tail(3), format!("{long}\nb\nc\n"));
        assert_eq!(tail(4), text);
        assert_eq!(tail(99), text);
        std::fs::write(&path, "a\nb").unwrap();
        assert_eq!(tail(1), "b");
        std::fs::remove_file(&path).unwrap();
    }
}
