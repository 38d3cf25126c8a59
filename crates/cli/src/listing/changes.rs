//! Changes as documents of the event stream have them.

use muster_proto::changes::{ChangeNotice, ChangedJob, ChangedRecord, JobChangeKind};
use serde_json::{Value, json};

/// Kinds of changed records, in a word each.
pub(crate) const KINDS: [&str; 4] = ["job", "node", "partition", "reservation"];

/// Which of them a change is.
pub(crate) fn kind(change: &ChangeNotice) -> &'static str {
    match change.subject {
        ChangedRecord::Job(_) => "job",
        ChangedRecord::Node(_) => "node",
        ChangedRecord::Partition(_) => "partition",
        ChangedRecord::Reservation(_) => "reservation",
    }
}

/// A change as JSON, with the names that listings have.
pub(crate) fn document(change: &ChangeNotice) -> Value {
    let time = change.time.0.div_euclid(1000);
    match &change.subject {
        ChangedRecord::Job(job) => json!({
            "change": job.kind.name(),
            "time": time,
            "job_id": job.id.0,
            "array_job_id": job.array.map(|id| id.0),
            "array_task_id": job.index,
            "user_name": job.user,
            "account": job.account,
            "partition": job.partition,
            "name": job.name,
            "job_state": states(job),
            "state_reason": job.reason.name(),
        }),
        ChangedRecord::Node(node) => json!({
            "change": if node.state.is_empty() { "removed" } else { "updated" },
            "time": time,
            "name": node.name,
            "state": node.state.split('+').filter(|word| !word.is_empty()).collect::<Vec<_>>(),
            "reason": node.reason,
        }),
        ChangedRecord::Partition(name) => json!({
            "change": if name.is_empty() { "reconfigured" } else { "updated" },
            "time": time,
            "name": name,
        }),
        ChangedRecord::Reservation(name) => json!({
            "change": "updated", "time": time, "name": name,
        }),
    }
}

/// The states of a job; none of one that the controller has forgotten.
fn states(job: &ChangedJob) -> Vec<&'static str> {
    if job.kind == JobChangeKind::Purged {
        return Vec::new();
    }
    let flag = job.completing.then_some("COMPLETING");
    [job.state.name()].into_iter().chain(flag).collect()
}
