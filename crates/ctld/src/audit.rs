//! The audit log: who asked for what, from where, and what came of it. Commands that reach beyond one's own jobs and all
//! refused ones make a line each in the controller's log, whatever its level. A thread of its own writes them; each user
//! has a number of lines in a time, those above it are counted. Lines have no secrets, and texts of users are escaped
//! and cut.

use crate::failure;
use crate::peer::RequestOrigin;
use log::{Level, Record};
use muster_core::policy::access::audit::{beyond_own, subject, submission};
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::audit::{self, AuditRecord, LineKind, LineLimits, SUMMARY_MS, text};
use muster_model::command::{Identity, Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::refusal::Refusal;
use muster_model::rights::{self, AccessRequest, Role};
use muster_model::spec::JobSpec;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// Interval at which the number of omitted lines is logged.
const SUMMARY: Duration = Duration::from_millis(SUMMARY_MS);

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
        failure::spawn_essential("audit", move || {
            write(&receive);
            Ok(())
        })?;
    }
    Ok(())
}

/// A request whose result is not known yet.
#[derive(Debug)]
pub(crate) struct Entry {
    /// None for a host that has not shown whose it is.
    uid: Option<u32>,
    user: String,
    role: Role,
    place: RequestOrigin,
    /// The host that it comes from, escaped and cut.
    host: String,
    request: AccessRequest,
    /// Object and changed keys, escaped and cut.
    subject: String,
    /// Whether it makes a line though it is carried out.
    always: bool,
    /// Why it was refused.
    refused: Option<String>,
}

/// The lines of this process from now on, of all that runs in it; for one test.
#[cfg(test)]
pub(crate) fn observe() -> Receiver<Entry> {
    let (send, receive) = sync_channel(QUEUE);
    assert!(LOG.set(send).is_ok(), "one test has them");
    receive
}

impl Entry {
    /// Entry of a command, before it is decided; none if nothing is written.
    pub(crate) fn of_command(
        state: &State,
        identity: &Identity,
        command: &UserCommand,
        place: RequestOrigin,
    ) -> Option<Entry> {
        LOG.get()?;
        Some(Entry {
            always: beyond_own(state, identity, command),
            subject: subject(state, command),
            ..Entry::new(
                role_of(state, identity),
                identity,
                AccessRequest::from(command),
                place,
            )
        })
    }

    /// Entry of another request that concerns the cluster.
    pub(crate) fn new(
        role: Role,
        identity: &Identity,
        request: AccessRequest,
        place: RequestOrigin,
    ) -> Entry {
        Entry {
            uid: Some(identity.uid),
            user: identity.user.clone(),
            role,
            place,
            host: match (place.address, &identity.host) {
                (Some(_), Some(host)) => text(host),
                _ => String::new(),
            },
            request,
            subject: String::new(),
            always: true,
            refused: None,
        }
    }

    /// Entry of a request of a host that has no user.
    pub(crate) fn of_host(address: IpAddr, request: AccessRequest) -> Entry {
        let place = RequestOrigin {
            address: Some(address),
            ..RequestOrigin::default()
        };
        Entry {
            uid: None,
            ..Entry::new(Role::User, &Identity::default(), request, place)
        }
    }

    /// Entry of a submission that is only tried: makes a line if it is refused.
    pub(crate) fn of_trial(
        state: &State,
        identity: &Identity,
        spec: &JobSpec,
        place: RequestOrigin,
    ) -> Entry {
        Entry {
            always: false,
            subject: submission(spec),
            ..Entry::new(
                role_of(state, identity),
                identity,
                AccessRequest::Submit,
                place,
            )
        }
    }

    /// The refusal, if the role does not suffice for the request.
    pub(crate) fn denied(&self) -> Option<Refusal> {
        (!self.suffices(self.request)).then(|| rights::denied(self.request))
    }

    /// Whether the role suffices for a request.
    pub(crate) fn suffices(&self, request: AccessRequest) -> bool {
        rights::suffices(self.role, request)
    }

    /// The subject.
    pub(crate) fn about(self, words: &str) -> Entry {
        Entry {
            subject: text(words),
            ..self
        }
    }

    /// The command was answered: makes a line if the answer is worth one.
    pub(crate) fn replied(self, reply: &Reply) {
        match reply {
            Reply::Submitted { id, .. } => self.submitted(*id),
            Reply::Refused(refusal) => self.refused(refusal),
            Reply::Done { changed, refused } => match refused.first() {
                Some((_, refusal)) => self.refused_in_part(*changed, refused.len(), refusal),
                None => self.done(),
            },
            Reply::WouldStart { .. } | Reply::Reserved { .. } | Reply::NodeTaken(_) => self.done(),
        }
    }

    /// The submission has this number.
    fn submitted(mut self, id: JobId) {
        if self.always {
            self.subject.insert_str(0, &format!("job {id} "));
            self.send();
        }
    }

    /// The command was carried out.
    pub(crate) fn done(self) {
        if self.always {
            self.send();
        }
    }

    /// Notes that it was refused for some.
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

    fn from(&self) -> audit::ClientAddress<'_> {
        match (self.place.address, self.place.pid) {
            (Some(address), _) if self.host.is_empty() => audit::ClientAddress::Address(address),
            (Some(address), _) => audit::ClientAddress::Host(&self.host, address),
            (None, 0) => audit::ClientAddress::Local,
            (None, pid) => audit::ClientAddress::Process(pid),
        }
    }

    /// The line.
    pub(crate) fn line(&self) -> String {
        let who = match self.uid {
            Some(uid) => format!("{}({uid}) as {}", text(&self.user), self.role),
            None => "no user".to_owned(),
        };
        let line = AuditRecord {
            who: &who,
            from: self.from(),
            client: self.place.client,
            request: self.request.name(),
            subject: &self.subject,
            refused: self.refused.as_deref(),
        };
        line.to_string()
    }
}

fn write(entries: &Receiver<Entry>) {
    let (mut limits, clock) = (LineLimits::default(), Instant::now());
    let now_ms = || u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
    loop {
        match entries.recv_timeout(SUMMARY) {
            Ok(entry) => {
                let refused = entry.refused.is_some();
                let kind = match entry.uid {
                    Some(uid) => LineKind::of_user(uid, refused),
                    None => LineKind::of_host(entry.place.address, refused),
                };
                if limits.admits(kind, now_ms()) {
                    say(&entry.line());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        limits.summary(now_ms()).iter().for_each(|line| say(line));
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
        let place = RequestOrigin {
            pid: 42,
            ..RequestOrigin::default()
        };
        Entry::new(Role::Operator, &identity, AccessRequest::UpdateNodes, place)
    }

    /// Whatever the user is called there, and however the host.
    #[test]
    fn a_line_names_the_host_that_a_request_comes_from() {
        let line = |host: &str, address: Option<[u8; 4]>| {
            let identity = Identity {
                uid: 1000,
                user: "ann".into(),
                host: Some(host.into()),
                ..Identity::default()
            };
            let place = RequestOrigin {
                address: address.map(Into::into),
                ..RequestOrigin::default()
            };
            Entry::new(Role::User, &identity, AccessRequest::Cancel, place).line()
        };
        let begin = "audit: ann(1000) as user from ";
        assert_eq!(
            line("login1", Some([10, 0, 0, 7])),
            format!("{begin}login1 (10.0.0.7): Cancel \"\": done")
        );
        assert!(line("a\nb", Some([10, 0, 0, 7])).contains("from a\\u{a}b (10.0.0.7): "));
        assert!(line("here", None).starts_with(&format!("{begin}local: ")));
    }

    /// All requests by slurmrestd were slurmrestd's, as far as the log said.
    #[test]
    fn a_line_names_the_client_of_a_gateway() {
        let place = RequestOrigin {
            pid: 42,
            client: Some([10, 0, 0, 9].into()),
            ..RequestOrigin::default()
        };
        let identity = Identity::default();
        let line = Entry::new(Role::Root, &identity, AccessRequest::Cancel, place).line();
        assert!(line.contains(" from pid 42 for 10.0.0.9: Cancel"), "{line}");
    }

    #[test]
    fn a_host_without_user_is_named_by_its_address() {
        let mut entry =
            Entry::of_host([10, 0, 0, 9].into(), AccessRequest::JoinNode).about("node n\n1");
        entry.refused = Some("why".to_owned());
        assert_eq!(
            entry.line(),
            "audit: no user from 10.0.0.9: JoinNode \"node n\\u{a}1\": refused: \"why\""
        );
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
}
