//! A program of the site's that verifies submissions by Grid Engine's protocol: one process for one job after the other,
//! restarted when its file has changed, when it says something that nobody asked for, and when it fails.

use super::Settings;
use super::worker::{Process, WorkerConnection};
use muster_proto::jsv::{JsvAction, JsvDecision, LINE_BYTES_MAX, Level, QUIT, Verification};
use muster_verifier::jsv::{Site, apply, asked};
use muster_verifier::message;
use muster_verifier::message::{Subject, Verdict, VerifierReport};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream as Blocking;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Where the libraries that such programs source are, unless the controller's environment says otherwise.
const SGE_ROOT: &str = "/usr/share/muster/gridengine";

/// The process.
pub(crate) struct JsvProcess {
    path: PathBuf,
    site: Box<Site>,
    running: RunningJsv,
}

struct RunningJsv {
    _process: Process,
    connection: WorkerConnection,
    received: Vec<u8>,
    version: Version,
}

/// Which content its file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u64, u64, i64, i64);

impl Version {
    fn of(path: &Path) -> io::Result<Version> {
        let meta = std::fs::metadata(path)?;
        let (s, ns) = (meta.mtime(), meta.mtime_nsec());
        Ok(Version(meta.ino(), meta.len(), s, ns))
    }
}

impl RunningJsv {
    fn start(path: &Path) -> io::Result<RunningJsv> {
        let version = Version::of(path)?;
        let (own, theirs) = Blocking::pair()?;
        let output = OwnedFd::from(theirs.try_clone()?);
        let root = std::env::var("SGE_ROOT").unwrap_or_else(|_| SGE_ROOT.to_owned());
        let child = Command::new(path)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("SGE_ROOT", root)
            .env("SGE_CELL", "default")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .stderr(Stdio::null())
            .spawn()?;
        let process = Process::new(child);
        own.set_nonblocking(true)?;
        Ok(RunningJsv {
            _process: process,
            connection: WorkerConnection::new(own),
            received: Vec::new(),
            version,
        })
    }

    /// Whether it has said something while nothing was asked, or is gone.
    fn is_out_of_step(&mut self) -> bool {
        let mut byte = [0; 1];
        let Ok(stream) = self.connection.stream() else {
            return true;
        };
        let read = stream.try_read(&mut byte);
        !self.received.is_empty()
            || !matches!(read, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// A line, without its end.
    async fn next(&mut self) -> io::Result<String> {
        let mut searched = 0;
        loop {
            let rest = &self.received[searched..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=searched + at).collect();
                let line = String::from_utf8_lossy(&line[..line.len() - 1]);
                return Ok(line.trim_end_matches('\r').to_owned());
            }
            searched = self.received.len();
            if searched > LINE_BYTES_MAX {
                return Err(io::Error::other("it says a line without an end"));
            }
            self.received.reserve(READ_BYTES);
            let read = self.connection.stream()?.read_buf(&mut self.received);
            if read.await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Drop for RunningJsv {
    fn drop(&mut self) {
        // As Grid Engine says goodbye; whether it is read does not matter.
        match &mut self.connection {
            WorkerConnection::Made(Some(stream)) => drop(stream.write(QUIT.as_bytes())),
            WorkerConnection::Made(None) => {}
            WorkerConnection::Served(stream) => drop(stream.try_write(QUIT.as_bytes())),
        }
    }
}

impl JsvProcess {
    /// Starts the program.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(super) fn start(settings: &Settings, site: &Site) -> Result<JsvProcess, String> {
        let path = settings.script.clone();
        let running = RunningJsv::start(&path);
        let running = running.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(JsvProcess {
            site: Box::new(site.clone()),
            path,
            running,
        })
    }

    /// Whether nothing is left of the last request.
    pub(super) fn is_reusable(&self) -> bool {
        self.running.received.is_empty()
    }

    /// Has a submission verified; lines for the log are noted.
    pub(super) async fn verify(
        &mut self,
        subject: Subject,
        note: impl Fn(VerifierReport),
    ) -> io::Result<Verdict> {
        if self.running.is_out_of_step() || Version::of(&self.path)? != self.running.version {
            self.running = RunningJsv::start(&self.path)?;
        }
        let running = &mut self.running;
        let (mut verification, first) = Verification::begin(asked(&subject, &self.site));
        running
            .connection
            .stream()?
            .write_all(first.as_bytes())
            .await?;
        let outcome = loop {
            let line = running.next().await?;
            match verification.take(&line).map_err(io::Error::other)? {
                JsvAction::Next => {}
                JsvAction::Write(text) => {
                    running
                        .connection
                        .stream()?
                        .write_all(text.as_bytes())
                        .await?;
                }
                JsvAction::Log(level, text) => note(VerifierReport::Log {
                    level: match level {
                        Level::Info | Level::Warning => message::Level::Info,
                        Level::Error => message::Level::Error,
                    },
                    text,
                }),
                JsvAction::Ended(outcome) => break outcome,
            }
        };
        let refused = |message: String| Verdict {
            code: -1,
            lines: vec![message],
            ..Verdict::default()
        };
        match outcome.state {
            JsvDecision::Accept => Ok(Verdict::default()),
            JsvDecision::Reject | JsvDecision::RejectWait if outcome.message.is_empty() => {
                Ok(refused("the job was rejected by the site's JSV".to_owned()))
            }
            JsvDecision::Reject | JsvDecision::RejectWait => Ok(refused(outcome.message)),
            JsvDecision::Correct => {
                let (mut spec, mut context) = (subject.spec.clone(), subject.context.clone());
                Ok(match apply(&mut spec, &mut context, &outcome, &self.site) {
                    Err(why) => Verdict {
                        failed: Some(why),
                        ..Verdict::default()
                    },
                    Ok(()) => Verdict {
                        context: context.filter(|own| Some(own) != subject.context.as_ref()),
                        spec: Some(Box::new(spec)),
                        ..Verdict::default()
                    },
                })
            }
        }
    }
}
