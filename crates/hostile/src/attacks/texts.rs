//! Requests that are too large: single texts, and the whole.

use super::{finished, must_submit, or_end, small_job, submitted};
use crate::cbor::Value;
use crate::outcome::Outcome;
use crate::peer::{self, PeerReply};
use crate::random::Random;
use crate::requests::{self, SCRIPT, blobs};
use crate::sys::ATTACKER;
use crate::target::Target;
use muster_model::command::{JobUpdate, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::mail::MailOptions;
use muster_model::spec::{JobSpec, StdioSpec};
use muster_proto::client::RequestBody;

/// Longer than any text of a job may be, the command line included.
const LONG: usize = 2 << 20;
/// Elements of a list that nobody writes.
const MANY: usize = 200_000;

/// A job whose every text is valid, and as many of them as a job may have.
fn job_of_texts(target: &Target) -> JobSpec {
    let text = |text: &str| Some(text.to_owned());
    let mut spec = JobSpec {
        hold: true,
        comment: text("comment"),
        wckey: text("key"),
        mail: MailOptions::of_texts("END".to_owned(), "nobody".to_owned()),
        export: text("ALL"),
        shown: vec![("extra".to_owned(), "x".to_owned())],
        argv: vec!["argument".to_owned()],
        command: "/bin/true".to_owned(),
        submit_line: "sbatch".to_owned(),
        submit_host: "host".to_owned(),
        partitions: vec!["batch".to_owned()],
        stdio: StdioSpec {
            stdin: text("/dev/null"),
            stdout: text("/dev/null"),
            stderr: text("/dev/null"),
            append: None,
        },
        ..small_job(target, ATTACKER)
    };
    spec.ask.exclude = text("n2");
    spec.ask.distribution = text("block");
    spec
}

fn update(job: JobId) -> RequestBody {
    let text = |text: &str| Some(text.to_owned());
    RequestBody::Command(Box::new(UserCommand::UpdateJob {
        target: requests::target(job),
        update: Box::new(JobUpdate {
            name: text("name"),
            comment: text("comment"),
            wckey: text("key"),
            work_dir: text("/"),
            partitions: Some(vec!["batch".to_owned()]),
            shown: vec![("extra".to_owned(), "x".to_owned())],
            ..JobUpdate::default()
        }),
    }))
}

/// Every text of a job, and of a change of a job, longer than it may be; every list far longer.
pub(super) fn huge_texts(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let spec = job_of_texts(target);
    let job = or_end!(
        must_submit(target, ATTACKER, spec.clone(), "#!/bin/sh\n", &mut outcome),
        target,
        outcome
    );
    for body in [requests::submit(spec, "#!/bin/sh\n"), update(job)] {
        let message = peer::request(body);
        for place in message.places() {
            let long = match message.get(&place) {
                Some(Value::Text(_)) => Value::Text(vec![b'x'; LONG]),
                Some(Value::Array(items)) if is_list(items) => {
                    Value::Array(vec![items[0].clone(); MANY])
                }
                _ => continue,
            };
            let answer = target.ask_tree(ATTACKER, &message.with(&place, long));
            let what = match message.get(&place) {
                Some(Value::Text(text)) => {
                    format!(
                        "a long text in place of '{}'",
                        String::from_utf8_lossy(text)
                    )
                }
                _ => format!("a long list at {place:?}"),
            };
            outcome.count(&what, &answer);
            if !matches!(answer, PeerReply::Accepted(_)) {
                continue;
            }
            // Dropped fields harm nobody: the owner is not taken from the request, a command line is cut.
            let id = submitted(&answer).unwrap_or(job);
            let size = |job: &Job| Value::of(job).encode().len();
            let kept = target
                .jobs(ATTACKER, &[id])
                .first()
                .map_or(usize::MAX, size);
            if kept >= LONG {
                outcome.finding(format!("{what}: kept"));
            }
        }
    }
    finished(target, outcome)
}

/// A list of equal things, as far as a tree tells: one text, or one pair of texts.
fn is_list(items: &[Value]) -> bool {
    match items {
        [Value::Text(_)] => true,
        [Value::Array(pair)] => matches!(pair[..], [Value::Text(_), Value::Text(_)]),
        _ => false,
    }
}

/// Submissions as large as a frame may be, and a little smaller: their record would be larger than allowed.
pub(super) fn largest_request(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let with = |bytes: usize| {
        let mut carried = blobs("", &[]);
        for (id, blob) in &mut carried {
            if *id == SCRIPT {
                *blob = vec![b'#'; bytes].into();
            }
        }
        requests::submit_with(small_job(target, ATTACKER), carried)
    };
    let around = peer::request(with(0)).encode().len() + 4;
    for less in [0, 40, 41, 100, 1000, 40 << 20] {
        let message = peer::request(with(FRAME_BYTES_MAX - around - less));
        let answer = target.ask_tree(ATTACKER, &message);
        outcome.must_refuse(
            &format!("a request of {} bytes", FRAME_BYTES_MAX - less),
            &answer,
        );
    }
    let beyond = Value::Bytes(vec![0; FRAME_BYTES_MAX]);
    let answer: PeerReply<_> = target.ask_tree(ATTACKER, &beyond);
    outcome.must_refuse("a frame beyond the limit", &answer);
    finished(target, outcome)
}
