//! The audit log: who asked for what, from where, and what came of it. Commands that reach beyond one's own jobs and all
//! refused ones make a line each in the controller's log, whatever its level. A thread of its own writes them; each user
//! has a number of lines in a time, those above it are counted. Lines have no secrets, and texts of users are escaped
//! and cut.

use log::{Level, Record};
use muster_core::policy::access::audit::{beyond_own, target, text};
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::command::{Identity, Reply, UserCommand};
use muster_model::refusal::Refusal;
use muster_model::rights::{Request, Role};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// Lines that a user may have at once, of each kind of result.
const BURST: u32 = 50;
/// Time after which there may be one more.
const REFILL: Duration = Duration::from_millis(200);
/// How often the number of those that were left out is logged.
const SUMMARY: Duration = Duration::from_secs(60);
/// Users whose lines are counted.
const USERS_MAX: usize = 10_000;

static LOG: OnceLock<SyncSender<Entry>> = OnceLock::new();
/// Lines for which the queue had no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Starts the thread. Without it nothing is written, as in simulations.
///
/// # Errors
/// The system has no thread to give.
pub(crate) fn start() -> std::io::Result<()> {
    let (send, receive) = sync_channel(QUEUE);
    if LOG.set(send).is_ok() {
        let work = move || write(&receive);
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(work)?;
    }
    Ok(())
}

/// A request whose result is not known yet.
#[derive(Debug)]
pub(crate) struct Entry {
    uid: u32,
    user: String,
    role: Role,
    /// Process id of the peer; 0 if it is not known.
    pid: u32,
    request: Request,
    target: String,
    /// Whether it makes a line though it is carried out.
    always: bool,
    /// Why it was refused.
    refused: Option<String>,
}

impl Entry {
    /// Of a command, before it is decided; none if nothing is written.
    pub(crate) fn of_command(
        state: &State,
        identity: &Identity,
        command: &UserCommand,
        pid: u32,
    ) -> Option<Entry> {
        LOG.get()?;
        Some(Entry {
            always: beyond_own(state, identity, command),
            target: target(command),
            ..Entry::new(
                role_of(state, identity),
                identity,
                Request::from(command),
                pid,
            )
        })
    }

    /// Of another request that concerns the cluster.
    pub(crate) fn new(role: Role, identity: &Identity, request: Request, pid: u32) -> Entry {
        Entry {
            uid: identity.uid,
            user: identity.user.clone(),
            role,
            pid,
            request,
            target: String::new(),
            always: true,
            refused: None,
        }
    }

    /// The subject.
    pub(crate) fn about(self, words: &str) -> Entry {
        Entry {
            target: text(words),
            ..self
        }
    }

    /// The command was answered: makes a line if the answer is worth one.
    pub(crate) fn replied(self, reply: &Reply) {
        match reply {
            Reply::Refused(refusal) => self.refused(refusal),
            Reply::Done { changed, refused } => match refused.first() {
                Some((_, refusal)) => self.refused_in_part(*changed, refused.len(), refusal),
                None => self.done(),
            },
            Reply::Submitted { .. } | Reply::WouldStart { .. } | Reply::Reserved { .. } => {
                self.done();
            }
        }
    }

    /// The command was carried out.
    pub(crate) fn done(self) {
        if self.always {
            self.send();
        }
    }

    /// Of some it was refused.
    fn refused_in_part(mut self, done: u32, refused: usize, first: &Refusal) {
        if done == 0 {
            return self.refused(first);
        }
        let all = format!("{refused}, {done} done: {first}");
        self.refused = Some(text(&all));
        self.send();
    }

    /// The command was refused.
    pub(crate) fn refused(mut self, refusal: &Refusal) {
        self.refused = Some(text(&refusal.to_string()));
        self.send();
    }

    fn send(self) {
        if let Some(log) = LOG.get()
            && log.try_send(self).is_err()
        {
            LOST.fetch_add(1, Relaxed);
        }
    }

    /// The line.
    fn line(&self) -> String {
        let from = match self.pid {
            0 => "local".to_owned(),
            pid => format!("pid {pid}"),
        };
        let Entry { uid, role, .. } = self;
        let (user, target) = (text(&self.user), &self.target);
        let request = self.request.name();
        match &self.refused {
            None => {
                format!("audit: {user}({uid}) as {role} from {from}: {request} \"{target}\": done")
            }
            Some(why) => format!(
                "audit: {user}({uid}) as {role} from {from}: {request} \"{target}\": refused: \"{why}\""
            ),
        }
    }
}

fn write(entries: &Receiver<Entry>) {
    let mut limits = Limits::default();
    loop {
        match entries.recv_timeout(SUMMARY) {
            Ok(entry) => {
                let kind = (entry.uid, entry.refused.is_some());
                if limits.admits(kind, Instant::now()) {
                    say(&entry.line());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        limits
            .summary(Instant::now())
            .iter()
            .for_each(|line| say(line));
        match LOST.swap(0, Relaxed) {
            0 => {}
            lost => say(&format!("audit: {lost} lines were lost: too many at once")),
        }
    }
}

/// Writes a line whatever the log's level is.
fn say(line: &str) {
    let record = Record::builder();
    let mut record = record;
    log::logger().log(
        &record
            .level(Level::Info)
            .target("audit")
            .args(format_args!("{line}"))
            .build(),
    );
}

/// How many lines each user has had, of requests that were carried out and of refused ones.
#[derive(Default)]
struct Limits {
    users: HashMap<(u32, bool), Bucket>,
    summarised: Option<Instant>,
}

struct Bucket {
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Limits {
    /// Whether there is room for one more line.
    fn admits(&mut self, kind: (u32, bool), now: Instant) -> bool {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&kind) {
            // Full buckets say nothing that a new one would not.
            self.users.retain(|_, bucket| {
                bucket.refill(now);
                bucket.left < BURST || bucket.left_out > 0
            });
        }
        let bucket = self.users.entry(kind).or_insert(Bucket {
            left: BURST,
            since: now,
            left_out: 0,
        });
        bucket.refill(now);
        match bucket.left {
            0 => {
                bucket.left_out += 1;
                false
            }
            _ => {
                bucket.left -= 1;
                true
            }
        }
    }

    /// Lines about what was left out, once in a while.
    fn summary(&mut self, now: Instant) -> Vec<String> {
        let summarised = *self.summarised.get_or_insert(now);
        if now.saturating_duration_since(summarised) < SUMMARY {
            return Vec::new();
        }
        self.summarised = Some(now);
        let mut lines = Vec::new();
        for ((uid, refused), bucket) in &mut self.users {
            let count = std::mem::take(&mut bucket.left_out);
            if count > 0 {
                let what = if *refused { "refused" } else { "done" };
                lines.push(format!(
                    "audit: uid {uid}: {count} more requests were {what}"
                ));
            }
        }
        lines.sort_unstable();
        lines
    }
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        let more = u32::try_from(passed.as_millis() / REFILL.as_millis()).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::refusal::RefusalCode;

    fn entry(user: &str) -> Entry {
        let identity = Identity {
            uid: 1000,
            user: user.into(),
            ..Identity::default()
        };
        Entry::new(Role::Operator, &identity, Request::UpdateNodes, 42)
    }

    #[test]
    fn a_line_is_one_line_and_names_all() {
        let done = entry("ann").about("n[1-4]\nforged: line");
        assert_eq!(
            done.line(),
            "audit: ann(1000) as operator from pid 42: UpdateNodes \"n[1-4]\\u{a}forged: line\": done"
        );
        let mut refused = entry("a\nb").about(&"x".repeat(1 << 20));
        let refusal = Refusal::new(RefusalCode::AccessDenied, "\u{1b}[2J".repeat(1000));
        refused.refused = Some(text(&refusal.to_string()));
        let line = refused.line();
        assert!(line.len() < 800, "{}", line.len());
        assert!(!line.chars().any(char::is_control), "{line}");
        assert!(
            line.contains("refused: \"Access/permission denied"),
            "{line}"
        );
    }

    #[test]
    fn a_user_has_so_many_lines_and_the_rest_is_counted() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let many =
            |limits: &mut Limits, kind, at| (0..1000).filter(|_| limits.admits(kind, at)).count();
        assert_eq!(many(&mut limits, (1, true), start), BURST as usize);
        // What is carried out, and other users, have lines of their own.
        assert_eq!(many(&mut limits, (1, false), start), BURST as usize);
        assert!(limits.admits((2, true), start));
        assert!(limits.summary(start).is_empty());
        let later = start + SUMMARY;
        assert_eq!(many(&mut limits, (1, true), start + REFILL), 1);
        let lines = limits.summary(later);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines.contains(&"audit: uid 1: 1949 more requests were refused".to_owned()),
            "{lines:?}"
        );
        assert!(limits.summary(later + SUMMARY).is_empty());
        // Users who have come and gone are forgotten.
        (0..30_000).for_each(|uid| {
            let _ = limits.admits((uid, true), later + REFILL * uid);
        });
        assert!(limits.users.len() <= USERS_MAX);
    }
}
