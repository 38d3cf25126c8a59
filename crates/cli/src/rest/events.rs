//! The event stream, `GET /muster/v1/events`: changes as server-sent events, of which a query chooses some. Who passes them on, and
//! to how many, is slurmrestd's concern.

use super::http::{HttpStatus, RestReply};
use super::value;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::changes;
use muster_model::ids::JobId;
use muster_proto::changes::{ChangeNotice, ChangePosition, ChangedRecord, ChangesQuery};
use muster_proto::client::{Query, RequestBody, Response};
use std::collections::BTreeSet;

/// The path.
pub const PATH: &str = "/muster/v1/events";
/// Parameters of the query.
pub(super) const PARAMETERS: &[&str] = &["kind", "user", "job", "partition", "node", "after"];
/// Values of one condition.
const VALUES_MAX: usize = 1000;

/// A place in the stream: what `id` says there, and `Last-Event-ID` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPlace(ChangePosition);

/// A change with its text.
#[derive(Clone, Debug)]
pub struct StreamedChange {
    change: ChangeNotice,
    text: String,
}

impl StreamedChange {
    fn new(change: ChangeNotice) -> StreamedChange {
        let data = changes::document(&change);
        let text = event(
            changes::kind(&change),
            StreamPlace(change.at),
            &data.to_string(),
        );
        StreamedChange { change, text }
    }

    /// The place behind it.
    pub fn place(&self) -> StreamPlace {
        StreamPlace(self.change.at)
    }

    /// Its text as sent.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Changes that the controller has answered with.
#[derive(Debug)]
pub struct StreamedChanges {
    /// The changes.
    pub changes: Vec<StreamedChange>,
    /// The place behind them.
    pub last: StreamPlace,
    /// Whether some were forgotten: all records must be listed anew.
    pub is_reset: bool,
    /// There are more already.
    pub has_more: bool,
}

fn event(kind: &str, place: StreamPlace, data: &str) -> String {
    format!("id: {}\nevent: {kind}\ndata: {data}\n\n", place.0)
}

/// The first event of a stream: from here on nothing is missed.
pub fn ready(place: StreamPlace) -> String {
    event("ready", place, "{}")
}

/// Changes are missing; listings before this event may be wrong.
pub fn reset(place: StreamPlace) -> String {
    event("reset", place, "{}")
}

/// Says that the stream is alive, and where it is.
pub fn heartbeat(place: StreamPlace) -> String {
    format!("id: {}\n\n", place.0)
}

/// The stream ends, for a reason that asking again does not change.
pub fn end(why: &str) -> String {
    let data = serde_json::json!({ "why": why });
    format!("event: end\ndata: {data}\n\n")
}

/// Asks the controller for changes after a place; absent: for the place as of now.
///
/// # Errors
/// [`ConnectError::Broken`].
pub fn ask(
    client: &mut Client,
    after: Option<StreamPlace>,
    wait: bool,
) -> Result<(), ConnectError> {
    let after = after.map(|place| place.0);
    let query = Query::Changes(ChangesQuery { after, wait });
    client.send(RequestBody::Query(Box::new(query)))
}

/// Receives the answer.
///
/// # Errors
/// [`ConnectError::Broken`] or [`ConnectError::Refused`].
pub fn receive(client: &mut Client) -> Result<StreamedChanges, ConnectError> {
    match client.receive()? {
        Response::Changes(answer) => Ok(StreamedChanges {
            changes: answer
                .changes
                .into_iter()
                .map(StreamedChange::new)
                .collect(),
            last: StreamPlace(answer.last),
            is_reset: answer.reset,
            has_more: answer.more,
        }),
        other => Err(unexpected(&other)),
    }
}

/// Which changes are wanted. A list that is empty is no condition; a change meets all conditions that it can meet: one of a node has
/// no user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFilter {
    kinds: BTreeSet<String>,
    users: BTreeSet<String>,
    jobs: BTreeSet<u64>,
    partitions: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl StreamFilter {
    /// Reads a query, and the place after which the stream is to begin: of the query, or of `Last-Event-ID`, which counts more.
    ///
    /// # Errors
    /// The answer to one that cannot be read.
    pub fn read(
        query: &str,
        last_event_id: Option<&str>,
    ) -> Result<(StreamFilter, Option<StreamPlace>), RestReply> {
        let wrong = |text: String| RestReply::text(HttpStatus::BAD_REQUEST, &text);
        let mut filter = StreamFilter::default();
        let mut after = None;
        for (name, value) in value::read_query(query)? {
            let list = || {
                value
                    .split(',')
                    .filter(|v| !v.is_empty())
                    .map(str::to_owned)
            };
            match name.as_str() {
                "kind" => filter.kinds.extend(list()),
                "user" => filter.users.extend(list()),
                "partition" => filter.partitions.extend(list()),
                "node" => filter.nodes.extend(list()),
                "job" => {
                    for word in list() {
                        let number = word.parse();
                        let number = number.map_err(|_| wrong(format!("job={word}: no number")));
                        filter.jobs.insert(number?);
                    }
                }
                "after" => after = Some(value),
                other => {
                    return Err(wrong(format!(
                        "there is no query parameter {other} at this path"
                    )));
                }
            }
        }
        if let Some(kind) = filter
            .kinds
            .iter()
            .find(|k| !changes::KINDS.contains(&k.as_str()))
        {
            return Err(wrong(format!(
                "kind={kind}: {} are known",
                changes::KINDS.join(", ")
            )));
        }
        let lists = [
            &filter.users,
            &filter.partitions,
            &filter.nodes,
            &filter.kinds,
        ];
        if lists.iter().any(|list| list.len() > VALUES_MAX) || filter.jobs.len() > VALUES_MAX {
            return Err(wrong(format!(
                "at most {VALUES_MAX} values of one parameter"
            )));
        }
        let after = last_event_id.map(str::to_owned).or(after);
        let after = after.filter(|text| !text.is_empty()).map(|text| {
            let read = text.parse().map(StreamPlace);
            read.map_err(|e| wrong(format!("Last-Event-ID: {e}")))
        });
        Ok((filter, after.transpose()?))
    }

    /// Whether a change is wanted.
    pub fn has(&self, streamed: &StreamedChange) -> bool {
        let change = &streamed.change;
        let is_any = |list: &BTreeSet<String>, value: &str| list.is_empty() || list.contains(value);
        if !is_any(&self.kinds, changes::kind(change)) {
            return false;
        }
        match &change.subject {
            ChangedRecord::Job(job) => {
                let ids = [Some(job.id), job.array];
                let is_named = |id: &JobId| self.jobs.contains(&id.0);
                is_any(&self.users, &job.user)
                    && is_any(&self.partitions, &job.partition)
                    && (self.jobs.is_empty() || ids.iter().flatten().any(is_named))
            }
            ChangedRecord::Node(node) => is_any(&self.nodes, &node.name),
            ChangedRecord::Partition(name) => name.is_empty() || is_any(&self.partitions, name),
            ChangedRecord::Reservation(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;
    use muster_model::job::{JobState, Reason};
    use muster_model::time::Timestamp;
    use muster_proto::changes::{ChangedJob, ChangedNode, JobChangeKind};

    fn change(subject: ChangedRecord) -> StreamedChange {
        StreamedChange::new(ChangeNotice {
            at: "7.1".parse().unwrap(),
            time: Timestamp(5_000),
            subject,
        })
    }

    fn job(name: &str) -> StreamedChange {
        change(ChangedRecord::Job(Box::new(ChangedJob {
            kind: JobChangeKind::Started,
            id: JobId(12),
            array: Some(JobId(10)),
            index: Some(2),
            uid: 1000,
            user: "ada".into(),
            account: "physics".into(),
            partition: "batch".into(),
            name: name.into(),
            state: JobState::Running,
            completing: false,
            reason: Reason::None,
        })))
    }

    fn node() -> StreamedChange {
        change(ChangedRecord::Node(ChangedNode {
            name: "n1".into(),
            state: "IDLE+DRAIN".into(),
            reason: "disk".into(),
        }))
    }

    #[test]
    fn a_change_is_an_event_of_one_line_whatever_a_name_has() {
        let text = job("a\n\ndata: b\r\u{1b}[2J").text;
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[..2], ["id: 7.1", "event: job"]);
        assert!(!text.contains(['\r', '\u{1b}']));
        let data: serde_json::Value = serde_json::from_str(&lines[2][6..]).unwrap();
        assert_eq!(data["job_id"], 12);
        assert_eq!(data["array_task_id"], 2);
        assert_eq!(data["change"], "started");
        assert_eq!(data["job_state"], serde_json::json!(["RUNNING"]));
        let data: serde_json::Value =
            serde_json::from_str(&node().text.split('\n').nth(2).unwrap()[6..]).unwrap();
        assert_eq!(data["state"], serde_json::json!(["IDLE", "DRAIN"]));
    }

    #[test]
    fn conditions_choose() {
        let has = |query: &str, change: &StreamedChange| {
            StreamFilter::read(query, None).unwrap().0.has(change)
        };
        for query in [
            "",
            "user=ada",
            "job=12",
            "job=9,10",
            "partition=x,batch",
            "kind=job,node",
            "node=n2",
        ] {
            assert!(has(query, &job("j")), "{query}");
        }
        for query in [
            "user=bob",
            "job=2",
            "partition=x",
            "kind=node",
            "user=ada&job=9",
        ] {
            assert!(!has(query, &job("j")), "{query}");
        }
        assert!(
            has("node=n1&user=bob", &node())
                && !has("node=n2", &node())
                && !has("kind=job", &node())
        );
        for wrong in ["kind=x", "job=x", "nosuch=1", "after=x"] {
            let status = StreamFilter::read(wrong, None).unwrap_err().status;
            assert_eq!(status, HttpStatus::BAD_REQUEST, "{wrong}");
        }
        let many: Vec<String> = (0..=VALUES_MAX).map(|job| job.to_string()).collect();
        let many = many.join(",");
        assert!(StreamFilter::read(&format!("job={many}"), None).is_err());
        let after = |query, header| {
            StreamFilter::read(query, header)
                .unwrap()
                .1
                .map(|p| p.0.event)
        };
        assert_eq!(after("after=5", None), Some(5));
        assert_eq!(after("after=5", Some("6")), Some(6));
        assert_eq!(after("", Some("")), None);
    }
}
