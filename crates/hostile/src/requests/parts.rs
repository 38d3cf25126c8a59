//! Parts of requests that have rights of their own, each in a request that its sender may make otherwise.

use super::{Row, job, submit, target};
use muster_model::command::{CrontabAsk, JobUpdate, UserCommand};
use muster_model::ids::JobId;
use muster_model::spec::{JobSpec, Owner, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::trigger::TriggerAsk;
use muster_proto::client::{Query, RequestBody};

/// A request with a part, and the row of the part.
#[derive(Clone, Debug)]
pub(crate) struct NestedRequest {
    pub(crate) row: Row,
    pub(crate) body: RequestBody,
}

/// The other user for parts that name one.
pub(crate) struct Other<'o> {
    pub(crate) owner: Owner,
    /// A job of that user's, held by the user.
    pub(crate) waits: JobId,
    /// A job of that user's, held by an administrator.
    pub(crate) held: JobId,
    /// A job of that user's that runs.
    pub(crate) runs: JobId,
    /// Where jobs of submissions run.
    pub(crate) work_dir: &'o str,
}

fn update(job: JobId, update: JobUpdate) -> RequestBody {
    RequestBody::Command(Box::new(UserCommand::UpdateJob {
        target: target(job),
        update: Box::new(update),
    }))
}

/// Changes of the other's job.
fn updates(job: JobId) -> Vec<(Row, JobUpdate)> {
    let shown = vec![("admin-comment".to_owned(), "x".to_owned())];
    let none = JobUpdate::default;
    vec![
        (
            Row::SiteFactor,
            JobUpdate {
                site_factor: Some(5),
                ..none()
            },
        ),
        (Row::AdminComment, JobUpdate { shown, ..none() }),
        (
            Row::AdminFields,
            JobUpdate {
                deadline: Some(Timestamp(4_102_444_800_000)),
                ..none()
            },
        ),
        (
            Row::LowerNice,
            JobUpdate {
                nice: Some(-1),
                ..none()
            },
        ),
        (
            Row::RaiseTimeLimit,
            JobUpdate {
                time_limit: Some(TimeLimit::Minutes(600)),
                ..none()
            },
        ),
        (
            Row::UpdatePaths,
            JobUpdate {
                work_dir: Some("/tmp".to_owned()),
                ..none()
            },
        ),
        (
            Row::UpdatePaths,
            JobUpdate {
                stdio: Some(StdioSpec {
                    stdout: Some(format!("/tmp/{job}")),
                    ..StdioSpec::default()
                }),
                ..none()
            },
        ),
    ]
}

/// Submissions of the sender's own jobs.
fn submissions(other: &Other<'_>) -> Vec<(Row, JobSpec)> {
    let base = || JobSpec {
        hold: true,
        ..job(other.work_dir)
    };
    vec![
        (Row::NegativeNice, JobSpec { nice: -1, ..base() }),
        (
            Row::SiteFactor,
            JobSpec {
                site_factor: 5,
                ..base()
            },
        ),
        (
            Row::AdminComment,
            JobSpec {
                shown: vec![("admin-comment".to_owned(), "x".to_owned())],
                ..base()
            },
        ),
    ]
}

/// All that can be tried on any cluster. What is submitted for another user is no part: without the right it is the sender's; nor is a
/// priority, which is left out without the right where priorities are worked out.
pub(crate) fn parts(other: &Other<'_>) -> Vec<NestedRequest> {
    let part = |(row, body)| NestedRequest { row, body };
    let uid = Some(other.owner.uid);
    let token = |name: &str| RequestBody::Token {
        user: Some(name.to_owned()),
        lifespan_s: None,
    };
    let rest = [
        (
            Row::HoldAsAdmin,
            RequestBody::Command(Box::new(UserCommand::Release {
                target: target(other.held),
            })),
        ),
        (
            Row::SetCrontabOfOther,
            RequestBody::Command(Box::new(UserCommand::SetCrontab(Box::new(CrontabAsk {
                owner: other.owner.clone(),
                ..CrontabAsk::default()
            })))),
        ),
        (
            Row::CrontabOfOther,
            RequestBody::Query(Box::new(Query::Crontab { uid })),
        ),
        (
            Row::TriggerOfOther,
            RequestBody::Command(Box::new(UserCommand::Trigger(Box::new(
                TriggerAsk::Clear {
                    id: None,
                    job: None,
                    uid,
                },
            )))),
        ),
        (Row::TokenOfOther, token(&other.owner.user)),
        (Row::TokenOfOther, token("root")),
    ];
    let updates = updates(other.waits).into_iter();
    let submissions = submissions(other).into_iter();
    updates
        .map(|(row, change)| match row {
            // While it waits, its owner may raise it.
            Row::RaiseTimeLimit => (row, update(other.runs, change)),
            _ => (row, update(other.waits, change)),
        })
        .chain(submissions.map(|(row, spec)| (row, submit(spec, "#!/bin/sh\n"))))
        .chain(rest)
        .map(part)
        .collect()
}
