//! Archives of accounting (`sacctmgr archive`): each request is carried out by a process of its own, which has the
//! controller's user and program and reads slurmdbd.conf itself. Only the requester waits for it; it changes the store
//! in small transactions.

use muster_model::refusal::{Refusal, RefusalCode};
use muster_proto::archive::ArchiveRequest;
use muster_proto::client::{Request, RequestBody};
use muster_proto::{PROTOCOL, frame};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The subcommand of the program that carries a request out, which is for nobody else. It reads the request from standard input.
pub const ARCHIVE_COMMAND: &str = "accounting-archive";
/// Lines of an answer at most: a file has up to 50,000 rows.
const LINES_MAX: usize = 10_000;
/// Bytes of the text about a failure.
const WHY_BYTES_MAX: usize = 1000;

/// Carries out one request at a time.
#[derive(Debug, Default)]
pub(crate) struct ArchiveRunner {
    is_busy: AtomicBool,
}

impl ArchiveRunner {
    /// Carries a request out, and waits for its end: returns its actions, a line each.
    ///
    /// # Errors
    /// Another one is being carried out, or the process reports an error.
    pub(crate) fn run(&self, conf: &Path, request: ArchiveRequest) -> Result<Vec<String>, Refusal> {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            let why = "another archive is being written or read: try again once it is done";
            return Err(Refusal::new(RefusalCode::Busy, why));
        }
        let ran = run(conf, request);
        self.is_busy.store(false, Ordering::Release);
        let failed = |why: String| Err(Refusal::new(RefusalCode::Unspecified, why));
        match ran {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout);
                Ok(text.lines().take(LINES_MAX).map(str::to_owned).collect())
            }
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr);
                let last = text.lines().last().unwrap_or("the process was killed");
                let why = last.strip_prefix("muster: ").unwrap_or(last);
                failed(why.chars().take(WHY_BYTES_MAX).collect())
            }
            Err(e) => failed(format!("the process that archives cannot be started: {e}")),
        }
    }
}

fn run(conf: &Path, request: ArchiveRequest) -> io::Result<Output> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("muster")
        .arg(ARCHIVE_COMMAND)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SLURM_CONF", conf)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Ages count from the beginning of a local day or month.
    if let Some(zone) = std::env::var_os("TZ") {
        command.env("TZ", zone);
    }
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // One that ends early says why.
        let request = Request {
            version: PROTOCOL,
            body: RequestBody::Archive(request),
            client: None,
        };
        let _ = input.write_all(&frame::encode(&request));
    }
    child.wait_with_output()
}
