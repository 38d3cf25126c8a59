//! Subjects of requests, as the audit log names them.

use muster_model::ids::JobId;
use muster_model::rights::AccessRequest;
use muster_proto::archive::ArchiveRequest;
use muster_proto::client::{Query, RequestBody};

/// A request, and its subject.
#[derive(Debug)]
pub(super) struct RequestSubject {
    pub(super) request: AccessRequest,
    /// As the audit log has it; empty for commands, whose subject is in the state.
    pub(super) subject: String,
    /// The job of which something is read.
    pub(super) job: Option<JobId>,
}

impl RequestSubject {
    /// Nothing was asked yet.
    pub(super) fn nothing() -> RequestSubject {
        RequestSubject {
            request: AccessRequest::Ping,
            subject: String::new(),
            job: None,
        }
    }

    /// By a user of this uid.
    pub(super) fn of(body: &RequestBody, uid: u32) -> RequestSubject {
        let mut asked = RequestSubject {
            request: AccessRequest::from(body),
            ..RequestSubject::nothing()
        };
        asked.subject = match body {
            RequestBody::Command(_) | RequestBody::WaitNodes(_) | RequestBody::NodeKeys => {
                String::new()
            }
            RequestBody::Query(query) => {
                match **query {
                    Query::Script(job) | Query::Environment(job) | Query::Allocation(job) => {
                        asked.job = Some(job);
                    }
                    Query::Crontab { uid: Some(other) } if other != uid => {
                        asked.request = AccessRequest::CrontabOfOther;
                    }
                    _ => {}
                }
                query_subject(query)
            }
            RequestBody::WaitStarted(job)
            | RequestBody::WaitEnded(job)
            | RequestBody::Hold(job) => format!("job {job}"),
            RequestBody::NodeHello(hello) => format!("node {}", hello.name),
            RequestBody::ServeNode(node) => format!("node {node}"),
            RequestBody::Shutdown { nodes } => shutdown_subject(*nodes).to_owned(),
            RequestBody::SetDebug(level) => level.clone(),
            RequestBody::Token { user, .. } => format!("user {}", user.as_deref().unwrap_or("")),
            RequestBody::NodeToken { node, .. } => {
                format!("node {}", node.as_deref().unwrap_or("any"))
            }
            RequestBody::Archive(ArchiveRequest::Dump(dump)) => {
                let place = dump.dir.as_ref().or(dump.script.as_ref());
                place.map_or_else(String::new, |place| format!("archive {place}"))
            }
            RequestBody::Archive(ArchiveRequest::Load { file }) => format!("archive {file}"),
            RequestBody::ForgetNodeKeys(nodes) => format!("nodes {}", nodes.join(",")),
        };
        asked
    }
}

/// Audit subject of a shutdown.
fn shutdown_subject(nodes: bool) -> &'static str {
    match nodes {
        true => "controller and nodes",
        false => "controller",
    }
}

/// Audit subject of a query.
fn query_subject(query: &Query) -> String {
    match query {
        Query::Script(job)
        | Query::Environment(job)
        | Query::Allocation(job)
        | Query::Why { job, .. } => {
            format!("job {job}")
        }
        Query::JobText(query) => format!("job {}", query.job),
        Query::ResetDiag => "counters".into(),
        Query::Differences => "configuration".into(),
        Query::Crontab { uid } => {
            uid.map_or_else(|| "crontab".to_owned(), |uid| format!("crontab of {uid}"))
        }
        Query::Ping
        | Query::Jobs(_)
        | Query::Listing(_)
        | Query::Cluster
        | Query::Partitions
        | Query::Config
        | Query::JobClasses
        | Query::Accounting(_)
        | Query::Usage(_)
        | Query::NodeEvents(_)
        | Query::ReservationTimes(_)
        | Query::Transactions(_)
        | Query::Storage
        | Query::KnownClusters
        | Query::Diag
        | Query::Reservations
        | Query::Licenses
        | Query::Accounts
        | Query::AccountsOfClusters
        | Query::AccountsInUse
        | Query::JobCounts
        | Query::Changes(_)
        | Query::Triggers
        | Query::Priorities => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_line_says_which_job_is_read_and_what_is_shut_down() {
        let job = JobId(7);
        for query in [
            Query::Script(job),
            Query::Environment(job),
            Query::Allocation(job),
        ] {
            assert_eq!(query_subject(&query), "job 7");
        }
        assert_ne!(shutdown_subject(true), shutdown_subject(false));
    }

    #[test]
    fn another_users_crontab_is_another_request() {
        let asked = |of| {
            let query = Box::new(Query::Crontab { uid: of });
            RequestSubject::of(&RequestBody::Query(query), 1000).request
        };
        assert_eq!(asked(None), AccessRequest::Crontab);
        assert_eq!(asked(Some(1000)), AccessRequest::Crontab);
        assert_eq!(asked(Some(1001)), AccessRequest::CrontabOfOther);
    }
}
