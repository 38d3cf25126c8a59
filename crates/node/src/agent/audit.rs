//! The agent's lines of the audit log: requests that were refused for lack of rights. Format and
//! limits are those of the controller. The agent does not look up names: users appear by number.

use muster_model::audit::{AuditRecord, ClientAddress, LineKind, LineLimits, text};
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_proto::step::AgentRequest;
use std::net::IpAddr;
use std::time::Instant;

/// The location of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientPlace {
    /// A process of this host; 0 if unknown.
    Process(u32),
    /// Another host, with its address if known.
    Host(Option<IpAddr>),
}

/// A client and its request.
#[derive(Clone, Debug)]
pub(super) struct AuditedRequest {
    /// The user at the other end.
    pub(super) uid: u32,
    pub(super) place: ClientPlace,
    /// The client is another agent and not a user, whatever its uid.
    pub(super) is_agent: bool,
    request: AccessRequest,
    job: Option<JobId>,
}

impl AuditedRequest {
    pub(super) fn new(
        uid: u32,
        place: ClientPlace,
        is_agent: bool,
        request: &AgentRequest,
    ) -> Self {
        AuditedRequest {
            uid,
            place,
            is_agent,
            request: AccessRequest::from(request),
            job: request.job(),
        }
    }

    fn who(&self) -> String {
        match self.uid {
            uid if self.is_agent => format!("agent({uid}) as agent"),
            0 => "root(0) as root".to_owned(),
            uid => format!("{uid}({uid}) as user"),
        }
    }

    fn line(&self, refusal: &Refusal) -> String {
        let subject = self.job.map(|job| format!("job {job}")).unwrap_or_default();
        let line = AuditRecord {
            who: &self.who(),
            from: match self.place {
                ClientPlace::Process(0) => ClientAddress::Local,
                ClientPlace::Process(pid) => ClientAddress::Process(pid),
                ClientPlace::Host(Some(address)) => ClientAddress::Address(address),
                ClientPlace::Host(None) => ClientAddress::OtherHost,
            },
            client: None,
            request: self.request.name(),
            subject: &subject,
            refused: Some(&text(&refusal.to_string())),
        };
        line.to_string()
    }
}

/// Counts of the lines so far.
pub(super) struct AuditLog {
    limits: LineLimits,
    clock: Instant,
}

impl AuditLog {
    pub(super) fn new() -> AuditLog {
        AuditLog {
            limits: LineLimits::default(),
            clock: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes a line if the refusal is for lack of rights and the user's limit permits. Returns
    /// whether the limit suppressed the line.
    pub(super) fn note(&mut self, asked: &AuditedRequest, refusal: &Refusal) -> bool {
        if refusal.code != RefusalCode::AccessDenied {
            return false;
        }
        self.write_summary();
        let kind = LineKind::of_user(asked.uid, true);
        let now_ms = self.now_ms();
        let is_admitted = self.limits.admits(kind, now_ms);
        if is_admitted {
            write(&asked.line(refusal));
        }
        !is_admitted
    }

    /// Writes the number of suppressed lines, if it is time to.
    pub(super) fn write_summary(&mut self) {
        let now_ms = self.now_ms();
        for line in self.limits.summary(now_ms) {
            write(&line);
        }
    }
}

/// Writes a line regardless of the log level.
fn write(line: &str) {
    log::logger().log(
        &log::Record::builder()
            .level(log::Level::Info)
            .target("audit")
            .args(format_args!("{line}"))
            .build(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::audit::BURST;

    fn asked(uid: u32, is_agent: bool) -> AuditedRequest {
        let request = AgentRequest::Measure { job: JobId(17) };
        AuditedRequest::new(uid, ClientPlace::Process(4711), is_agent, &request)
    }

    #[test]
    fn a_refusal_names_user_process_request_and_job() {
        let refusal = Refusal::new(RefusalCode::AccessDenied, "a\nb");
        let line = asked(1001, false).line(&refusal);
        assert!(
            line.starts_with(
                "audit: 1001(1001) as user from pid 4711: Measure \"job 17\": refused: \"Access"
            ),
            "{line}"
        );
        assert!(!line.contains('\n'), "{line}");
        assert!(asked(0, true).line(&refusal).contains("as agent"));
        let from = |place| {
            let asked = AuditedRequest {
                place,
                ..asked(0, true)
            };
            let line = asked.line(&refusal);
            line.split(": ").nth(1).unwrap_or_default().to_owned()
        };
        let address = Some([10, 0, 0, 7].into());
        let agent = "agent(0) as agent from";
        assert_eq!(
            from(ClientPlace::Host(address)),
            format!("{agent} 10.0.0.7")
        );
        assert_eq!(
            from(ClientPlace::Host(None)),
            format!("{agent} another host")
        );
        assert_eq!(from(ClientPlace::Process(0)), format!("{agent} local"));
    }

    #[test]
    fn a_flood_of_refusals_leaves_lines_for_others() {
        let mut log = AuditLog::new();
        let denied = Refusal::from(RefusalCode::AccessDenied);
        let busy = Refusal::from(RefusalCode::Busy);
        let (flood, other) = (asked(1, false), asked(2, false));
        let left_out = (0..10 * BURST)
            .filter(|_| log.note(&flood, &denied))
            .count();
        assert!(left_out > 0);
        assert!(!log.note(&other, &denied));
        // Refusals for other reasons produce no lines.
        assert!(!log.note(&flood, &busy));
    }
}
