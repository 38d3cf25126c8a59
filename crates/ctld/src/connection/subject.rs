//! Subjects of requests, as the audit log names them.

use muster_proto::client::Query;

/// Audit subject of a shutdown.
pub(super) fn shutdown_subject(nodes: bool) -> &'static str {
    match nodes {
        true => "controller and nodes",
        false => "controller",
    }
}

/// Audit subject of a query.
pub(super) fn query_subject(query: &Query) -> String {
    match query {
        Query::Script(job) | Query::Allocation(job) | Query::Why(job) => format!("job {job}"),
        Query::ResetDiag => "counters".into(),
        Query::Crontab { uid } => {
            uid.map_or_else(|| "crontab".to_owned(), |uid| format!("crontab of {uid}"))
        }
        Query::Ping
        | Query::Jobs(_)
        | Query::Listing(_)
        | Query::Cluster
        | Query::Partitions
        | Query::Config
        | Query::Accounting(_)
        | Query::Usage(_)
        | Query::NodeEvents(_)
        | Query::Transactions(_)
        | Query::Diag
        | Query::Reservations
        | Query::Licenses
        | Query::Differences
        | Query::Accounts
        | Query::AccountsOfClusters
        | Query::JobCounts
        | Query::Changes(_)
        | Query::Priorities => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

    #[test]
    fn an_audit_line_says_which_job_is_read_and_what_is_shut_down() {
        let job = JobId(7);
        for query in [Query::Script(job), Query::Allocation(job)] {
            assert_eq!(query_subject(&query), "job 7");
        }
        assert_ne!(shutdown_subject(true), shutdown_subject(false));
    }
}
