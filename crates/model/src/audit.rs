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
/// The lines of a host that has not shown whose it is, and when there may be one more: some for each attempt that it has anyway.
const HOST_BURST: u32 = 20;
const HOST_REFILL_MS: u64 = 60_000;
/// Such hosts that are counted alone. The lines of all others are counted together, and there may be one more after this time.
const HOSTS_MAX: usize = 256;
const STRANGERS_REFILL_MS: u64 = 5_000;
/// Milliseconds between two summaries of omitted lines.
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
pub enum ClientAddress<'a> {
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
pub struct AuditRecord<'a> {
    /// The requester: user with uid, role.
    pub who: &'a str,
    /// From where.
    pub from: ClientAddress<'a>,
    /// For whom a gateway there says that it asks.
    pub client: Option<IpAddr>,
    /// Name of the request in the table of rights.
    pub request: &'static str,
    /// Object and changed keys.
    pub subject: &'a str,
    /// Why it was refused; absent if it was carried out.
    pub refused: Option<&'a str>,
}

impl fmt::Display for AuditRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "audit: {} from ", self.who)?;
        match self.from {
            ClientAddress::Local => f.write_str("local")?,
            ClientAddress::Process(pid) => write!(f, "pid {pid}")?,
            ClientAddress::Host(host, address) => write!(f, "{host} ({address})")?,
            ClientAddress::Address(address) => write!(f, "{address}")?,
            ClientAddress::OtherHost => f.write_str("another host")?,
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

/// Counts of lines of each user, of requests carried out and of refused ones. Times are milliseconds of one clock.
#[derive(Debug, Default)]
pub struct LineLimits {
    users: HashMap<LineKind, Bucket>,
    hosts: HashMap<LineKind, Bucket>,
    summarised: Option<u64>,
}

/// Lines that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKind {
    actor: AuditActor,
    /// Whether the requests were refused.
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AuditActor {
    User(u32),
    /// A host that has not shown whose it is: its address, of one of IPv6 the first 64 bits.
    Host(IpAddr),
    /// All other hosts of that kind.
    Strangers,
}

impl LineKind {
    /// Lines of a user.
    pub fn of_user(uid: u32, refused: bool) -> LineKind {
        let actor = AuditActor::User(uid);
        LineKind { actor, refused }
    }

    /// Lines of a host without a proved user.
    pub fn of_host(address: Option<IpAddr>, refused: bool) -> LineKind {
        let actor = match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V6(v6)) => {
                AuditActor::Host(IpAddr::V6((u128::from(v6) >> 64 << 64).into()))
            }
            Some(v4) => AuditActor::Host(v4),
            None => AuditActor::Strangers,
        };
        LineKind { actor, refused }
    }

    fn result(self) -> &'static str {
        match self.refused {
            true => "refused",
            false => "done",
        }
    }

    fn burst(self) -> u32 {
        match self.actor {
            AuditActor::Host(_) => HOST_BURST,
            AuditActor::User(_) | AuditActor::Strangers => BURST,
        }
    }

    fn refill_ms(self) -> u64 {
        match self.actor {
            AuditActor::User(_) => REFILL_MS,
            AuditActor::Host(_) => HOST_REFILL_MS,
            AuditActor::Strangers => STRANGERS_REFILL_MS,
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
        if !matches!(kind.actor, AuditActor::Host(_)) {
            has_place(&mut self.users, kind, USERS_MAX, now_ms);
            return takes_line(&mut self.users, kind, now_ms);
        }
        if has_place(&mut self.hosts, kind, HOSTS_MAX, now_ms) {
            return takes_line(&mut self.hosts, kind, now_ms);
        }
        let actor = AuditActor::Strangers;
        takes_line(&mut self.users, LineKind { actor, ..kind }, now_ms)
    }

    /// Returns summary lines of omitted lines, once in a while.
    pub fn summary(&mut self, now_ms: u64) -> Vec<String> {
        let summarised = *self.summarised.get_or_insert(now_ms);
        if now_ms.saturating_sub(summarised) < SUMMARY_MS {
            return Vec::new();
        }
        self.summarised = Some(now_ms);
        let mut lines = Vec::new();
        for (kind, bucket) in &mut self.users {
            if let AuditActor::User(uid) = kind.actor
                && bucket.left_out > 0
            {
                let count = std::mem::take(&mut bucket.left_out);
                let result = kind.result();
                lines.push(format!(
                    "audit: uid {uid}: {count} more requests were {result}"
                ));
            }
        }
        lines.extend(
            [false, true]
                .map(|refused| self.summary_of_hosts(refused))
                .into_iter()
                .flatten(),
        );
        lines.sort_unstable();
        lines
    }

    /// The line about hosts that have not shown whose they are, if there is something to be said.
    fn summary_of_hosts(&mut self, refused: bool) -> Option<String> {
        let strangers = LineKind {
            actor: AuditActor::Strangers,
            refused,
        };
        let others = self.users.get_mut(&strangers);
        let mut count = others.map_or(0, |bucket| std::mem::take(&mut bucket.left_out));
        let mut most: Option<(u64, IpAddr)> = None;
        for (kind, bucket) in self
            .hosts
            .iter_mut()
            .filter(|(kind, _)| kind.refused == refused)
        {
            let own = std::mem::take(&mut bucket.left_out);
            count += own;
            if let AuditActor::Host(address) = kind.actor
                && own > 0
            {
                most = most.max(Some((own, address)));
            }
        }
        let most = most.map_or_else(String::new, |(own, address)| {
            format!(", {own} of them from {address}")
        });
        let result = strangers.result();
        (count > 0).then(|| format!("audit: strangers: {count} more requests were {result}{most}"))
    }
}

type Buckets = HashMap<LineKind, Bucket>;

/// Whether there is a bucket, or room for one. Full ones say nothing that a new one would not, and go.
fn has_place(buckets: &mut Buckets, kind: LineKind, most: usize, now_ms: u64) -> bool {
    if buckets.len() >= most && !buckets.contains_key(&kind) {
        buckets.retain(|kind, bucket| {
            bucket.refill(*kind, now_ms);
            bucket.left < kind.burst() || bucket.left_out > 0
        });
    }
    buckets.len() < most || buckets.contains_key(&kind)
}

/// Takes a line of a bucket, or counts it as left out.
fn takes_line(buckets: &mut Buckets, kind: LineKind, now_ms: u64) -> bool {
    let bucket = buckets.entry(kind).or_insert(Bucket {
        left: kind.burst(),
        since_ms: now_ms,
        left_out: 0,
    });
    bucket.refill(kind, now_ms);
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

impl Bucket {
    fn refill(&mut self, kind: LineKind, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.since_ms);
        let more = u32::try_from(passed / kind.refill_ms()).unwrap_or(u32::MAX);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(kind.burst());
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
        let kind = LineKind::of_user;
        let many = |limits: &mut LineLimits, kind, at| {
            (0..1000).filter(|_| limits.admits(kind, at)).count()
        };
        assert_eq!(many(&mut limits, kind(1, true), start), BURST as usize);
        // Requests that are carried out, and other users, have lines of their own.
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
        let strangers = LineKind::of_host(None, true);
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

    /// All strangers shared their lines: some cheap attempts left those of a real guesser to the count.
    #[test]
    fn a_host_without_user_has_lines_of_its_own() {
        let (mut limits, now) = (LineLimits::default(), 7);
        let host = |text: &str| LineKind::of_host(text.parse().ok(), true);
        let mut many = |kind| (0..1000).filter(|_| limits.admits(kind, now)).count();
        assert_eq!(many(host("192.0.2.1")), HOST_BURST as usize);
        assert_eq!(many(host("::ffff:192.0.2.1")), 0);
        assert_eq!(many(host("2001:db8::1")), HOST_BURST as usize);
        assert_eq!(
            many(host("2001:db8::ffff:1")),
            0,
            "a host has many addresses"
        );
        assert!(limits.summary(now).is_empty());
        let later = now + SUMMARY_MS;
        let summary = limits.summary(later);
        let line =
            "audit: strangers: 3960 more requests were refused, 1980 of them from 2001:db8::";
        assert_eq!(summary, [line]);
        // The number of hosts that are counted alone.
        let networks = (0..1000_u128).map(|n| IpAddr::V6(((0x2001 << 112) + (n << 64)).into()));
        let kinds = networks.map(|address| LineKind::of_host(Some(address), true));
        let admitted = kinds.filter(|kind| limits.admits(*kind, later)).count();
        assert!(admitted >= HOSTS_MAX && admitted <= HOSTS_MAX + BURST as usize);
        assert!(limits.hosts.len() <= HOSTS_MAX);
        assert!(limits.admits(LineKind::of_user(1, true), later));
    }
}
