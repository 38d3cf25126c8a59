//! Sends the notices of one webhook, in order, and again until they are taken: a POST with up to a hundred of them, signed with the key
//! of the site. What an address answers counts by its status alone.

use super::spool::{SpoolEnd, SpoolState, done_file, file_of, numbers, parse, write_whole};
use crate::failure::{Panicked, caught};
use hmac::{Hmac, Mac as _};
use log::{info, warn};
use muster_conf::webhooks::{WebhookFormat, WebhookSettings};
use muster_journal::Position;
use sha2::Sha256;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Notices of one request, and bytes of them.
const NOTICES_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 256 << 10;
/// How long a request may take, from the name of the host to the answer's head.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The pause after a failure, which doubles up to the most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(300);
/// Bytes of a key: fewer are guessed, more are a file that was meant for something else.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

/// The thread that sends.
pub(super) struct WebhookDelivery {
    settings: Arc<Mutex<WebhookSettings>>,
    is_over: Arc<AtomicBool>,
    state: Arc<SpoolState>,
}

impl WebhookDelivery {
    pub(super) fn start(
        folder: &Path,
        hook: WebhookSettings,
        state: Arc<SpoolState>,
    ) -> io::Result<WebhookDelivery> {
        let delivery = WebhookDelivery {
            settings: Arc::new(Mutex::new(hook.clone())),
            is_over: Arc::default(),
            state,
        };
        let done = fs::read_to_string(done_file(folder, &hook.name));
        let sender = NoticeSender {
            folder: folder.to_owned(),
            name: hook.name,
            settings: Arc::clone(&delivery.settings),
            is_over: Arc::clone(&delivery.is_over),
            state: Arc::clone(&delivery.state),
            place: ReadPlace::default(),
            seen: SpoolEnd::default(),
            done: done
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
        };
        crate::failure::spawn_worker("webhook", move || sender.run())?;
        Ok(delivery)
    }

    /// Settings have changed: a pause ends.
    pub(super) fn configure(&self, hook: WebhookSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = hook;
        self.state.call();
    }
}

impl Drop for WebhookDelivery {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.state.call();
    }
}

/// How far files were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReadPlace {
    file: u64,
    offset: u64,
}

/// Notices that are sent together.
struct NoticeBatch {
    notices: Vec<String>,
    last: Position,
    after: ReadPlace,
}

struct NoticeSender {
    folder: PathBuf,
    name: String,
    settings: Arc<Mutex<WebhookSettings>>,
    is_over: Arc<AtomicBool>,
    state: Arc<SpoolState>,
    place: ReadPlace,
    /// End of the readable notices at the last look: the newest file, and its bytes.
    seen: SpoolEnd,
    /// The last notice that was taken.
    done: Position,
}

impl NoticeSender {
    fn run(mut self) {
        let mut failures: u32 = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(batch) = self.next() else {
                self.state.wait(self.seen);
                continue;
            };
            if batch.notices.is_empty() {
                self.place = batch.after;
                continue;
            }
            // A fault in what speaks TLS is one of this address.
            let sent = caught(|| self.send(&batch));
            match sent.unwrap_or_else(|Panicked(why)| Err(why)) {
                Ok(()) => {
                    if failures > 0 {
                        info!("webhook {}: notices are taken again", self.name);
                    }
                    failures = 0;
                    (self.done, self.place) = (batch.last, batch.after);
                    let file = done_file(&self.folder, &self.name);
                    if let Err(e) = write_whole(&file, &format!("{}\n", self.done)) {
                        warn!("webhook {}: {}: {e}", self.name, file.display());
                    }
                }
                Err(why) => {
                    if failures == 0 {
                        warn!("webhook {}: {why}; it is tried again", self.name);
                    }
                    let doubled = PAUSE_FIRST.saturating_mul(1 << failures.min(16));
                    failures += 1;
                    self.state.pause(doubled.min(PAUSE_MOST));
                }
            }
        }
    }

    /// The next notices; none if all were taken. What is empty only goes on to another place.
    fn next(&mut self) -> Option<NoticeBatch> {
        self.seen = self.state.lock().end;
        let (newest, bytes) = (self.seen.file, self.seen.bytes);
        let numbers = numbers(&self.folder, &self.name);
        let number = *numbers.iter().find(|number| **number >= self.place.file)?;
        if number != self.place.file {
            self.place = ReadPlace {
                file: number,
                offset: 0,
            };
        }
        if number > newest || (number == newest && self.place.offset >= bytes) {
            return None;
        }
        let limit = if number == newest { bytes } else { u64::MAX };
        let batch = self.read(limit).unwrap_or_else(|e| {
            let file = file_of(&self.folder, &self.name, number);
            warn!("webhook {}: {}: {e}", self.name, file.display());
            None
        });
        if batch.is_none() && number < newest {
            // All of it was taken, and nothing comes to it any more.
            let _ = fs::remove_file(file_of(&self.folder, &self.name, number));
            let after = ReadPlace {
                file: number + 1,
                offset: 0,
            };
            return Some(NoticeBatch {
                notices: Vec::new(),
                last: self.done,
                after,
            });
        }
        batch
    }

    fn read(&self, limit: u64) -> io::Result<Option<NoticeBatch>> {
        let mut file = File::open(file_of(&self.folder, &self.name, self.place.file))?;
        file.seek(SeekFrom::Start(self.place.offset))?;
        let mut lines = BufReader::new(file);
        let mut batch = NoticeBatch {
            notices: Vec::new(),
            last: self.done,
            after: self.place,
        };
        let mut size = 0;
        while batch.notices.len() < NOTICES_MAX
            && size < BODY_BYTES_MAX
            && batch.after.offset < limit
        {
            let mut line = Vec::new();
            let length = lines.read_until(b'\n', &mut line)?;
            let text = String::from_utf8_lossy(&line);
            if !text.ends_with('\n') {
                break;
            }
            batch.after.offset += length as u64;
            // Other lines than ours were damaged.
            let Some((position, notice)) = parse(&text) else {
                continue;
            };
            // One that was taken before the controller stopped.
            if position > self.done {
                size += notice.len();
                batch.last = position;
                batch.notices.push(notice.to_owned());
            }
        }
        Ok((batch.after != self.place).then_some(batch))
    }

    fn send(&self, batch: &NoticeBatch) -> Result<(), String> {
        let settings = self
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let all = batch.notices.join(",");
        let body = match settings.format {
            WebhookFormat::Notices => format!("{{\"notices\":[{all}]}}"),
            WebhookFormat::Traces => format!("{{\"resourceSpans\":[{all}]}}"),
        };
        let is_signed = !settings.key.as_os_str().is_empty();
        let signature = match is_signed {
            true => {
                let key = read_key(&settings.key)?;
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                signature(&key, since.unwrap_or_default().as_secs(), &body)
            }
            false => String::new(),
        };
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(REQUEST_TIME))
            // An address that answers with another would choose where the controller connects to.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .tls_config(
                ureq::tls::TlsConfig::builder()
                    .root_certs(ureq::tls::RootCerts::PlatformVerifier)
                    .build(),
            )
            .build()
            .into();
        let mut request = agent
            .post(&settings.url)
            .header("Content-Type", "application/json")
            .header("X-Muster-Webhook", &self.name);
        if is_signed {
            request = request.header("X-Muster-Signature", &signature);
        }
        let answer = request
            .send(body.as_str())
            .map_err(|e| format!("{}: {e}", address(&settings.url)))?;
        let status = answer.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("{} answers {status}", address(&settings.url))),
        }
    }
}

/// The part of an address that is no secret: paths of chat services are.
fn address(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    let end = url[from..]
        .find(['/', '?'])
        .map_or(url.len(), |at| from + at);
    &url[..end]
}

/// The key of a file that others cannot read.
fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: String| format!("its key {}: {why}", path.display());
    let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
    let facts = file.metadata().map_err(|e| wrong(e.to_string()))?;
    let own = nix::unistd::geteuid().as_raw();
    if !facts.is_file() || facts.mode() & 0o077 != 0 || ![0, own].contains(&facts.uid()) {
        return Err(wrong(
            "it must be a file of root or of the controller's user, which nobody else may read (mode 0600)"
                .to_owned(),
        ));
    }
    let mut key = Vec::new();
    let limit = *KEY_BYTES.end() as u64 + 1;
    io::Read::read_to_end(&mut io::Read::take(file, limit), &mut key)
        .map_err(|e| wrong(e.to_string()))?;
    while key.last().is_some_and(u8::is_ascii_whitespace) {
        key.pop();
    }
    match KEY_BYTES.contains(&key.len()) {
        true => Ok(key),
        false => Err(wrong(format!(
            "{} to {} bytes are expected",
            KEY_BYTES.start(),
            KEY_BYTES.end()
        ))),
    }
}

/// `t=SECONDS,v1=HEX`: HMAC-SHA-256 of the time, a point and the body. A receiver that compares the time knows repeated requests.
fn signature(key: &[u8], unix_s: u64, body: &str) -> String {
    let mut keyed = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    keyed.update(format!("{unix_s}.").as_bytes());
    keyed.update(body.as_bytes());
    let digest = keyed.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={unix_s},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_time_and_body() {
        // openssl dgst -sha256 -hmac 0123456789abcdef
        let made = signature(b"0123456789abcdef", 1_795_000_000, "{}");
        let (time, hex) = made.split_once(",v1=").unwrap();
        assert_eq!((time, hex.len()), ("t=1795000000", 64));
        assert_ne!(made, signature(b"0123456789abcdef", 1_795_000_000, "{ }"));
        assert_ne!(made, signature(b"0123456789abcdeF", 1_795_000_000, "{}"));
        assert_eq!(
            address("https://chat.example/hooks/secret"),
            "https://chat.example"
        );
        assert_eq!(address("http://h:80?x"), "http://h:80");
    }
}
