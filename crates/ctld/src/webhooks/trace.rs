//! The way of a job as spans of OpenTelemetry: what a collector takes as OTLP in JSON. Spans of a job have ids that follow from its
//! number and when it was submitted, so those that are sent at its start and at its end meet, and one that is sent again is the same.

use muster_model::job::Job;
use muster_model::job::JobState;
use muster_model::time::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Characters of a text that users write.
const TEXT_CHARS_MAX: usize = 256;

/// The spans that are known once a job has started, or is over.
pub(super) fn line(job: &Job, is_over: bool, cluster: &str) -> Arc<str> {
    let trace = TraceId::of(job, cluster);
    let spans = match is_over {
        true => at_end(job, &trace),
        false => at_start(job, &trace),
    };
    json!({
        "resource": {"attributes": [
            text("service.name", "slurmctld"),
            text("slurm.cluster", cluster),
        ]},
        "scopeSpans": [{
            "scope": {"name": "muster", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    })
    .to_string()
    .into()
}

/// Source of the ids of a job's spans.
struct TraceId([u8; 32]);

impl TraceId {
    fn of(job: &Job, cluster: &str) -> TraceId {
        let own = format!("{cluster}/{}/{}", job.id.0, job.submit_time.0);
        TraceId(Sha256::digest(own.as_bytes()).into())
    }

    fn trace(&self) -> String {
        hex(&self.0[..16])
    }

    /// The id of a span by its name, of this attempt to run the job.
    fn span(&self, name: &str) -> String {
        let mut of_span = Sha256::new();
        of_span.update(self.0);
        of_span.update(name.as_bytes());
        hex(&of_span.finalize()[..8])
    }

    fn one(&self, name: &str, parent: &str, from: Timestamp, to: Timestamp) -> Value {
        json!({
            "traceId": self.trace(),
            "spanId": self.span(name),
            "parentSpanId": if parent.is_empty() { String::new() } else { self.span(parent) },
            "name": name,
            // SPAN_KIND_INTERNAL
            "kind": 1,
            "startTimeUnixNano": nanoseconds(from),
            "endTimeUnixNano": nanoseconds(to.max(from)),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As OTLP has numbers of 64 bits in JSON.
fn nanoseconds(at: Timestamp) -> String {
    (i128::from(at.0) * 1_000_000).to_string()
}

fn text(key: &str, value: &str) -> Value {
    let value: String = value.chars().take(TEXT_CHARS_MAX).collect();
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Until it became eligible, and until it started or went away.
fn waits(job: &Job, trace: &TraceId, until: Timestamp) -> Vec<Value> {
    let eligible = job.eligible_time.unwrap_or(job.submit_time).min(until);
    let mut spans = Vec::new();
    if eligible > job.submit_time {
        spans.push(trace.one("ineligible", "job", job.submit_time, eligible));
    }
    spans.push(trace.one("queue", "job", eligible, until));
    spans
}

fn at_start(job: &Job, trace: &TraceId) -> Vec<Value> {
    waits(job, trace, job.start_time.unwrap_or(job.submit_time))
}

fn at_end(job: &Job, trace: &TraceId) -> Vec<Value> {
    let end = job.end_time.unwrap_or(job.submit_time);
    let mut whole = trace.one("job", "", job.submit_time, end);
    whole["attributes"] = attributes(job);
    // STATUS_CODE_OK, STATUS_CODE_ERROR
    let is_well = job.state == JobState::Completed;
    whole["status"] = match is_well {
        true => json!({"code": 1}),
        false => json!({"code": 2, "message": job.state.name()}),
    };
    let mut spans = vec![whole];
    let Some(start) = job.start_time else {
        spans.extend(waits(job, trace, end));
        return spans;
    };
    spans.push(trace.one("run", "job", start, end));
    spans
}

fn attributes(job: &Job) -> Value {
    let nodes = job
        .alloc
        .as_ref()
        .map_or("", |alloc| alloc.hostlist.as_str());
    json!([
        number("slurm.job.id", job.id.0),
        text("slurm.job.name", &job.spec.name),
        text("slurm.job.user", &job.spec.owner.user),
        text("slurm.job.account", job.spec.account_name()),
        text("slurm.job.partition", &job.partition),
        text("slurm.job.state", job.state.name()),
        text("slurm.job.nodes", nodes),
        number("slurm.job.exit_code", u64::from(job.exit.code)),
        number("slurm.job.restarts", u64::from(job.restarts)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;
    use muster_model::spec::JobSpec;
    use muster_model::time::TimeLimit;

    fn spans(line: &str) -> Vec<Value> {
        let line: Value = serde_json::from_str(line).unwrap();
        line["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    }

    #[test]
    fn spans_at_the_start_and_at_the_end_are_one_trace() {
        let spec = JobSpec {
            name: "a \"name\"".to_owned(),
            ..JobSpec::default()
        };
        let mut job = Job::new(
            JobId(7),
            Arc::new(spec),
            TimeLimit::Unlimited,
            Timestamp(1_000),
        );
        (job.eligible_time, job.start_time) = (Some(Timestamp(2_000)), Some(Timestamp(5_500)));
        let first = spans(&line(&job, false, "c"));
        let names: Vec<&str> = first.iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["ineligible", "queue"]);
        assert_eq!(first[1]["startTimeUnixNano"], "2000000000");
        assert_eq!(first[1]["endTimeUnixNano"], "5500000000");
        (job.state, job.end_time) = (JobState::Failed, Some(Timestamp(9_000)));
        let last = spans(&line(&job, true, "c"));
        let names: Vec<&str> = last.iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["job", "run"]);
        assert_eq!(first[0]["parentSpanId"], last[0]["spanId"]);
        assert_eq!(first[0]["traceId"], last[0]["traceId"]);
        assert_eq!(first[0]["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(last[0]["status"]["message"], "FAILED");
        assert_ne!(line(&job, true, "c"), line(&job, true, "d"));
    }
}
