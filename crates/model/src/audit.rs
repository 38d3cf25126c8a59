//! Lines of the audit log, which the controller and the agents of nodes write in the same form: texts of users as they
//! stand in a line, and how many lines a user may have in a time. What is worth a line is decided where requests are
//! answered.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Bytes of a text of users in a line.
pub const TEXT_MAX: usize = 160;
/// Lines that a user may have at once, of each kind of result.
pub const BURST: u32 = 50;
/// Milliseconds after which there may be one more.
pub const REFILL_MS: u64 = 200;
/// The same for strangers, who have no uid and are counted together.
pub const STRANGERS_REFILL_MS: u64 = 5_000;
/// Milliseconds from one count of what was left out to the next.
pub const SUMMARY_MS: u64 = 60_000;
/// Users whose lines are counted.
const USERS_MAX: usize = 10_000;

/// A text of users as it stands in a line: cut, without quotes and control characters.
pub fn text(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        if out.len() >= TEXT_MAX {
            out.push_str("...");
            break;
        }
        match c {
            '"' | '\\' => out.extend(c.escape_default()),
            ' '..='~' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// On this host; its process is not known.
    Local,
    /// A process of this host.
    Process(u32),
    /// On another host of this name, which is escaped and cut already.
    Host(&'a str, IpAddr),
    /// On another host, whose name is not known.
    Address(IpAddr),
    /// On another host, of which nothing is known.
    OtherHost,
}

/// A request and what came of it. Subject and reason are escaped and cut already.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Who: user with uid, role.
    pub who: &'a str,
    /// From where.
    pub from: Place<'a>,
    /// For whom a gateway there says that it asks.
    pub client: Option<IpAddr>,
    /// Name of the request in the table of rights.
    pub request: &'static str,
    /// Object and changed keys.
    pub subject: &'a str,
    /// Why it was refused; absent if it was carried out.
    pub refused: Option<&'a str>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "audit: {} from ", self.who)?;
        match self.from {
            Place::Local => f.write_str("local")?,
            Place::Process(pid) => write!(f, "pid {pid}")?,
            Place::Host(host, address) => write!(f, "{host} ({address})")?,
            Place::Address(address) => write!(f, "{address}")?,
            Place::OtherHost => f.write_str("another host")?,
        }
        if let Some(client) = self.client {
            write!(f, " for {client}")?;
        }
        write!(f, ": {} \"{}\": ", self.request, self.subject)?;
        match self.refused {
            None => f.write_str("done"),
            Some(why) => write!(f, "refused: \"{why}\""),
        }
    }
}

/// How many lines each user has had, of requests that were carried out and of refused ones. Times are milliseconds of
/// one clock.
#[derive(Debug, Default)]
pub struct LineLimits {
    users: HashMap<LineKind, Bucket>,
    summarised: Option<u64>,
}

/// Lines that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKind {
    /// Whose; none for hosts that have not shown whose they are.
    pub uid: Option<u32>,
    /// Of refused requests.
    pub refused: bool,
}

impl LineKind {
    fn refill_ms(self) -> u64 {
        match self.uid {
            Some(_) => REFILL_MS,
            None => STRANGERS_REFILL_MS,
        }
    }
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    since_ms: u64,
    left_out: u64,
}

impl LineLimits {
    /// Whether there is room for one more line.
    pub fn admits(&mut self, kind: LineKind, now_ms: u64) -> bool {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&kind) {
            // Full buckets say nothing that a new one would not.
            self.users.retain(|kind, bucket| {
                bucket.refill(now_ms, kind.refill_ms());
                bucket.left < BURST || bucket.left_out > 0
            });
        }
        let bucket = self.users.entry(kind).or_insert(Bucket {
            left: BURST,
            since_ms: now_ms,
            left_out: 0,
        });
        bucket.refill(now_ms, kind.refill_ms());
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
    pub fn summary(&mut self, now_ms: u64) -> Vec<String> {
        let summarised = *self.summarised.get_or_insert(now_ms);
        if now_ms.saturating_sub(summarised) < SUMMARY_MS {
            return Vec::new();
        }
        self.summarised = Some(now_ms);
        let mut lines = Vec::new();
        for (LineKind { uid, refused }, bucket) in &mut self.users {
            let count = std::mem::take(&mut bucket.left_out);
            if count > 0 {
                let what = if *refused { "refused" } else { "done" };
                let who = match uid {
                    Some(uid) => format!("uid {uid}"),
                    None => "strangers".to_owned(),
                };
                lines.push(format!("audit: {who}: {count} more requests were {what}"));
            }
        }
        lines.sort_unstable();
        lines
    }
}

impl Bucket {
    fn refill(&mut self, now_ms: u64, every_ms: u64) {
        let passed = now_ms.saturating_sub(self.since_ms);
        let more = u32::try_from(passed / every_ms).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_users_make_no_lines_and_end() {
        assert_eq!(text("n[1-4]"), "n[1-4]");
        assert_eq!(
            text("a\nb\u{1b}[2J\u{202e}\"\\"),
            "a\\u{a}b\\u{1b}[2J\\u{202e}\\\"\\\\"
        );
        assert!(text(&"x".repeat(1 << 20)).len() < TEXT_MAX + 8);
    }

    #[test]
    fn a_user_has_so_many_lines_and_the_rest_is_counted() {
        let (mut limits, start) = (LineLimits::default(), 7);
        let kind = |uid, refused| LineKind {
            uid: Some(uid),
            refused,
        };
        let many = |limits: &mut LineLimits, kind, at| {
            (0..1000).filter(|_| limits.admits(kind, at)).count()
        };
        assert_eq!(many(&mut limits, kind(1, true), start), BURST as usize);
        // What is carried out, and other users, have lines of their own.
        assert_eq!(many(&mut limits, kind(1, false), start), BURST as usize);
        assert!(limits.admits(kind(2, true), start));
        assert!(limits.summary(start).is_empty());
        let later = start + SUMMARY_MS;
        assert_eq!(many(&mut limits, kind(1, true), start + REFILL_MS), 1);
        let lines = limits.summary(later);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines.contains(&"audit: uid 1: 1949 more requests were refused".to_owned()),
            "{lines:?}"
        );
        assert!(limits.summary(later + SUMMARY_MS).is_empty());
        // Strangers are counted together, and have fewer.
        let strangers = LineKind {
            uid: None,
            refused: true,
        };
        assert_eq!(many(&mut limits, strangers, later), BURST as usize);
        assert_eq!(many(&mut limits, strangers, later + REFILL_MS), 0);
        let after = later + STRANGERS_REFILL_MS;
        assert_eq!(many(&mut limits, strangers, after), 1);
        assert!(
            limits
                .summary(later + 2 * SUMMARY_MS)
                .contains(&"audit: strangers: 2949 more requests were refused".to_owned())
        );
        // Users who have come and gone are forgotten.
        (0..30_000).for_each(|uid| {
            let at = later + REFILL_MS * u64::from(uid);
            let _ = limits.admits(kind(uid, true), at);
        });
        assert!(limits.users.len() <= USERS_MAX);
    }
}
