//! The cluster's slurmrestd, as a process that is attacked, and HTTP to it, byte by byte.

use crate::sys::{ROOT, User, VICTIM, ended_with_its_starter};
use crate::target::{REST_PID, Target, until};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The user that it runs as: `sys`, who neither attacks nor is attacked.
const DAEMON: User = User { uid: 3, gid: 3 };
/// The name of the attacker, for tokens.
pub const ATTACKER_NAME: &str = "nobody";
/// The name of the user whose jobs must go on.
pub const VICTIM_NAME: &str = "games";
/// Time limit for an answer to another user.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// slurmrestd of a cluster. It ends with the value, or with the thread that started it.
#[derive(Debug)]
pub struct RestDaemon {
    child: Child,
    target: Target,
}

impl RestDaemon {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn start(target: &Target) -> io::Result<RestDaemon> {
        let dir = directory(target);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        chown(&dir, Some(DAEMON.uid), Some(DAEMON.gid))?;
        let mut command = Command::new(target.home().join("bin/slurmrestd"));
        command
            .args(["-a", "rest_auth/jwt"])
            .arg(format!("unix:{}", socket(target).display()))
            .env("SLURM_CONF", target.home().join("slurm.conf"))
            .current_dir(&dir)
            .uid(DAEMON.uid)
            .gid(DAEMON.gid)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(log(target))?);
        ended_with_its_starter(&mut command);
        let child = command.spawn()?;
        fs::write(dir.join("pid"), child.id().to_string())?;
        let daemon = RestDaemon {
            child,
            target: target.clone(),
        };
        match until(|| UnixStream::connect(socket(target)).is_ok()) {
            true => Ok(daemon),
            false => Err(io::Error::other("slurmrestd does not listen")),
        }
    }
}

impl Drop for RestDaemon {
    fn drop(&mut self) {
        let _ = fs::remove_file(directory(&self.target).join("pid"));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory(target: &Target) -> PathBuf {
    target.home().join("rest")
}

fn socket(target: &Target) -> PathBuf {
    directory(target).join("socket")
}

fn log(target: &Target) -> PathBuf {
    target.home().join("rest.log")
}

/// Its process, if it was started.
pub fn pid(target: &Target) -> Option<i32> {
    target.pid(REST_PID)
}

/// A token of a user, who asks for it, or for whom root does.
pub fn token(target: &Target, user: &str) -> Option<String> {
    let ran = target.run(ROOT, &format!("scontrol token username={user}"));
    ran.out.strip_prefix("SLURM_JWT=").map(str::to_owned)
}

/// The headers of a user with a token.
pub fn headers(user: &str, token: &str) -> String {
    format!("X-SLURM-USER-NAME: {user}\r\nX-SLURM-USER-TOKEN: {token}\r\n")
}

/// A request; the server closes after it.
pub fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}");
    if !body.is_empty() {
        let length = body.len();
        request += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    }
    let mut request = (request + "\r\n").into_bytes();
    request.extend_from_slice(body);
    request
}

/// Answer of slurmrestd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status; 0 if the server closed without one.
    pub status: u16,
    /// Body after the head.
    pub body: String,
}

impl Page {
    /// Whether the request was carried out.
    pub fn is_done(&self) -> bool {
        let has_errors = self.body.contains("\"error_number\"");
        self.status == 200 && !has_errors
    }
}

/// Connects as the calling thread's user.
///
/// # Errors
/// Those of connect(2).
pub fn connect(target: &Target) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket(target))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Sends bytes and reads until the server closes; absent if it does neither answer nor close in time.
pub fn exchange(target: &Target, bytes: &[u8]) -> Option<Page> {
    let closed = Page {
        status: 0,
        body: String::new(),
    };
    let Ok(mut stream) = connect(target) else {
        return Some(closed);
    };
    // It may answer and close before all has been written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer)
        && matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        )
    {
        return None;
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Some(Page {
        status: status.unwrap_or(0),
        body: body.to_owned(),
    })
}

/// Invariants of slurmrestd that do not hold.
pub fn check(target: &Target) -> Vec<String> {
    if pid(target).is_none() {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    let text = fs::read(log(target)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    for line in text
        .lines()
        .filter(|line| line.contains("panicked") || line.contains("could not be answered"))
    {
        wrong.push(format!("slurmrestd: {line}"));
    }
    let Some(token) = token(target, VICTIM_NAME) else {
        wrong.push("root gets no token for another user".to_owned());
        return wrong;
    };
    let ping = request(
        "GET",
        "/slurm/v0.0.43/jobs",
        &headers(VICTIM_NAME, &token),
        b"",
    );
    match crate::sys::as_user(VICTIM, || exchange(target, &ping)) {
        Some(page) if page.is_done() => {}
        other => wrong.push(format!(
            "slurmrestd does not answer another user: {other:?}"
        )),
    }
    wrong
}

/// Bytes as a JSON Web Token has them (RFC 4648, section 5, without padding).
pub fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let group = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letters =
            [18, 12, 6, 0].map(|shift| char::from(LETTERS[(bits >> shift & 63) as usize]));
        letters
            .into_iter()
            .take(chunk.len() + 1)
            .collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_letters() {
        // RFC 4648, section 10, and letters of its section 5.
        for (bytes, letters) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe", "__4"),
        ] {
            assert_eq!(base64url(bytes), letters);
        }
    }
}
