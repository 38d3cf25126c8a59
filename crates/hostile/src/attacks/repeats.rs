//! Requests that repeat a name: their cost must not be the number of names times the number of records.

use super::{must_submit, small_job};
use crate::outcome::Outcome;
use crate::peer::PeerReply;
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, VICTIM};
use crate::target::Target;
use muster_model::accounts::JobNote;
use muster_model::command::{AccountsAsk, AccountsEdit, JobUpdate, UserCommand};
use muster_model::job::JobState;
use muster_model::spec::ArraySpec;
use muster_proto::acct::AcctQuery;
use muster_proto::client::{JobFilter, Query, RequestBody};
use std::time::{Duration, Instant};

/// Names in a request: more than anybody writes, and few bytes.
const MANY: usize = 60_000;
/// Time limit for another user's listing meanwhile, in a debug build on a busy machine.
const LISTING_MAX: Duration = Duration::from_secs(10);

/// Asks, and has another user list jobs at the same time.
fn ask(target: &Target, outcome: &mut Outcome, what: &str, body: RequestBody) {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| target.ask(ATTACKER, body));
        let started = Instant::now();
        let listed = target.run(VICTIM, "squeue -h -o %i; sacct -n -X -o JobID");
        let elapsed = started.elapsed();
        if listed.code != 0 || elapsed > LISTING_MAX {
            outcome.finding(format!(
                "{what}: another user's listings took {elapsed:?}: {}",
                listed.err
            ));
        }
        match asking.join() {
            Ok(answer @ (PeerReply::Accepted(_) | PeerReply::Refused(_))) => {
                outcome.count(what, &answer)
            }
            other => outcome.finding(format!("{what}: {other:?}")),
        }
    });
}

fn edit(names: Vec<String>, ask: AccountsAsk) -> RequestBody {
    let edit = UserCommand::EditAccounts(Box::new(AccountsEdit {
        names,
        ask,
        cluster: String::new(),
    }));
    RequestBody::Command(Box::new(edit))
}

fn query(query: Query) -> RequestBody {
    RequestBody::Query(Box::new(query))
}

/// Names, conditions and texts, each thousands of times.
pub(super) fn repeated_words(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let mut spec = small_job(target, ATTACKER);
    spec.hold = true;
    spec.array = Some(ArraySpec {
        indices: requests::range(0, 300),
        throttle: None,
    });
    let script = "#!/bin/sh\nexit 0\n";
    let job = super::or_end!(
        must_submit(target, ATTACKER, spec, script, &mut outcome),
        target,
        outcome
    );
    let note = || JobNote {
        comment: Some("x".repeat(60_000)),
        ..JobNote::default()
    };
    let same = |word: &str, count| vec![word.to_owned(); count];
    let jobs = |filter: JobFilter| query(Query::Jobs(filter));
    let accounting = |asked: AcctQuery| query(Query::Accounting(Box::new(asked)));
    let update = JobUpdate {
        shown: vec![("extra".to_owned(), "x".to_owned()); MANY],
        ..JobUpdate::default()
    };
    let all = [
        (
            "noted jobs",
            edit(same("999999", MANY), AccountsAsk::NoteJobs(note())),
        ),
        (
            "few noted jobs",
            edit(same("999999", 4000), AccountsAsk::NoteJobs(note())),
        ),
        (
            "noted jobs with long texts",
            edit(
                (900_000..904_000).map(|n| n.to_string()).collect(),
                AccountsAsk::NoteJobs(note()),
            ),
        ),
        (
            "numbers with zeros",
            edit(
                vec!["0".repeat(60_000) + "7"],
                AccountsAsk::NoteJobs(note()),
            ),
        ),
        (
            "users in accounts",
            edit(
                same("nobody", 4000),
                AccountsAsk::DeleteUsers {
                    accounts: (0..4000).map(|n| n.to_string()).collect(),
                    partitions: (0..4000).map(|n| n.to_string()).collect(),
                },
            ),
        ),
        (
            "owners",
            jobs(JobFilter {
                uids: vec![ATTACKER.uid; MANY],
                active: true,
                ..JobFilter::default()
            }),
        ),
        (
            "states",
            jobs(JobFilter {
                states: vec![JobState::Failed; MANY],
                ..JobFilter::default()
            }),
        ),
        (
            "partitions",
            jobs(JobFilter {
                partitions: same("none", MANY),
                ..JobFilter::default()
            }),
        ),
        (
            "numbers",
            jobs(JobFilter {
                ids: vec![job; MANY],
                ..JobFilter::default()
            }),
        ),
        (
            "numbers of accounting",
            accounting(AcctQuery {
                jobs: vec![(job, None); MANY],
                ..AcctQuery::default()
            }),
        ),
        (
            "states of accounting",
            accounting(AcctQuery {
                states: vec![JobState::Failed; MANY],
                ..AcctQuery::default()
            }),
        ),
        (
            "names of accounting",
            accounting(AcctQuery {
                names: (0..MANY).map(|n| n.to_string()).collect(),
                start: Some(muster_model::time::Timestamp(0)),
                ..AcctQuery::default()
            }),
        ),
        (
            "texts of an update",
            RequestBody::Command(Box::new(UserCommand::UpdateJob {
                target: requests::target(job),
                update: Box::new(update),
            })),
        ),
    ];
    for (what, body) in all {
        ask(target, &mut outcome, what, body);
    }
    // Questions that take long to answer, of one user, many at once.
    std::thread::scope(|scope| {
        for _ in 0..24 {
            let why = Query::Why {
                job,
                is_brief: false,
            };
            scope.spawn(|| target.ask(ATTACKER, query(why)));
        }
        let started = Instant::now();
        let tried = target.run(VICTIM, "sbatch --test-only --wrap true");
        let elapsed = started.elapsed();
        if tried.code != 0 || elapsed > LISTING_MAX {
            outcome.finding(format!(
                "another user's trial took {elapsed:?}: {}",
                tried.err
            ));
        }
    });
    super::finished(target, outcome)
}
