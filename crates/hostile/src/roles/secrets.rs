//! Secrets of another user's job: its script, its environment, the keys by which its steps are reached, and the owner's
//! crontab. No answer to a request of a role has one of them that the table does not give to that role.

use super::site::{FOREIGN, OWN, Site, clear_all, name_of, victim};
use crate::jobs::{clear, submitted};
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply, framed};
use crate::random::Random;
use crate::requests::parts::{Other, parts};
use crate::requests::{self, Ids, blobs};
use crate::sys::{ADMINISTRATOR, ATTACKER, COORDINATOR, NAMELESS, OPERATOR, User, VICTIM, as_user};
use crate::target::{Target, until};
use muster_model::command::{CrontabAsk, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::rights::{AccessRequest as Row, Role, suffices};
use muster_model::spec::JobSpec;
use muster_proto::client::{Query, RequestBody, Response};
use std::time::Duration;

/// Time for which more may follow an answer.
const REST: Duration = Duration::from_millis(5);

/// A secret, and the request whose right is a right to it; none where no role has it.
struct Secret {
    what: &'static str,
    bytes: Vec<u8>,
    row: Option<Row>,
}

/// See the module.
pub(crate) fn secrets_of_others(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(site) = Site::make(target, &mut outcome) else {
        return outcome;
    };
    let all = [
        (ATTACKER, Role::User),
        (NAMELESS, Role::User),
        (COORDINATOR, Role::User),
        (OPERATOR, Role::Operator),
        (ADMINISTRATOR, Role::Administrator),
    ];
    // The account is of importance for its coordinator alone.
    for (account, users) in [(FOREIGN, &all[..]), (OWN, &all[2..3])] {
        let Some((job, secrets)) = secrets_in(target, account, random, &mut outcome) else {
            break;
        };
        for (user, role) in users.iter().copied() {
            search(target, user, role, job, &secrets, &mut outcome);
        }
        clear(target, VICTIM, &mut outcome);
    }
    clear_all(target, &mut outcome);
    drop(site);
    outcome
}

/// A running job of the victim's, and its secrets.
fn secrets_in(
    target: &Target,
    account: &str,
    random: &mut Random,
    outcome: &mut Outcome,
) -> Option<(JobId, Vec<Secret>)> {
    let mut marker = |name| format!("{name}{:016x}", random.number());
    let [script, variable, crontab] = ["Script", "Variable", "Crontab"].map(&mut marker);
    let spec = || JobSpec {
        account: Some(account.to_owned()),
        ..crate::jobs::small_job(target, VICTIM)
    };
    let text = format!("#!/bin/sh\n# {script}\nexec sleep 600\n");
    let carried = blobs(&text, &[&format!("SECRET={variable}")]);
    let answer = target.ask(VICTIM, requests::submit_with(spec(), carried));
    outcome.count("an ordinary job", &answer);
    let job = submitted(&answer)?;
    let table = UserCommand::SetCrontab(Box::new(CrontabAsk {
        text: Some(format!("# {crontab}\n@yearly true\n")),
        jobs: vec![spec()],
        blobs: blobs(&text, &[]),
        ..CrontabAsk::default()
    }));
    let answer = target.ask(VICTIM, RequestBody::Command(Box::new(table)));
    outcome.count("a crontab", &answer);
    if answer.is_refusal() {
        outcome.finding(format!("a user has no crontab: {answer:?}"));
    }
    until(|| crate::jobs::state(target, job) == Some(JobState::Running));
    let query = RequestBody::Query(Box::new(Query::Allocation(job)));
    let PeerReply::Accepted(Response::JobStarted(info)) = target.ask(VICTIM, query) else {
        outcome.finding("an owner does not get its allocation");
        return None;
    };
    let secret = |what, bytes: &[u8], row| Secret {
        what,
        bytes: bytes.to_vec(),
        row,
    };
    Some((
        job,
        vec![
            secret("the script", script.as_bytes(), Some(Row::Script)),
            secret("the environment", variable.as_bytes(), None),
            secret("the crontab", crontab.as_bytes(), Some(Row::CrontabOfOther)),
            secret("the key", &info.key, Some(Row::Allocation)),
        ],
    ))
}

/// Questions of a user about the job that do not end it.
fn questions(target: &Target, user: User, job: JobId) -> Vec<(&'static str, RequestBody)> {
    let ids = Ids {
        pending: job,
        array: job,
        running: job,
    };
    let samples = requests::samples(&ids).into_iter();
    let mut all: Vec<(&'static str, RequestBody)> = samples
        .filter(|sample| !matches!(sample.body, RequestBody::Command(_)))
        .filter(|sample| !super::NOT_BY_ROOT.contains(&sample.name) || sample.name == "Hold")
        .map(|sample| (sample.name, sample.body))
        .collect();
    let other = Other {
        owner: victim(),
        waits: job,
        held: job,
        runs: job,
        work_dir: &target.dir_of(user).display().to_string(),
    };
    let is_question = |body: &RequestBody| !matches!(body, RequestBody::Command(_));
    let parts = parts(&other).into_iter();
    all.extend(
        parts
            .filter(|part| is_question(&part.body))
            .map(|part| (part.row.name(), part.body)),
    );
    all
}

fn search(
    target: &Target,
    user: User,
    role: Role,
    job: JobId,
    secrets: &[Secret],
    outcome: &mut Outcome,
) {
    let socket = target.controller();
    let mut found = vec![false; secrets.len()];
    for (name, body) in questions(target, user, job) {
        let frame = framed(&peer::request(body).encode());
        let answer = as_user(user, || {
            let mut peer = Peer::connect(&socket)?;
            peer.send_raw(&frame)?;
            peer.all_frames(REST)
        });
        outcome.sent += 1;
        let answer = answer.unwrap_or_default();
        for (secret, found) in secrets.iter().zip(&mut found) {
            if !has(&answer, &secret.bytes) {
                continue;
            }
            *found = true;
            outcome.accepted += 1;
            if !secret.row.is_some_and(|row| suffices(role, row)) {
                let (who, what) = (name_of(user), secret.what);
                outcome.finding(format!("{who} gets {what} of another user by {name}"));
            }
        }
    }
    // A role finds the secrets that it has, or else this test looks for the wrong bytes.
    for (secret, found) in secrets.iter().zip(found) {
        let may = secret.row.is_some_and(|row| suffices(role, row));
        if may && !found {
            let (who, what) = (name_of(user), secret.what);
            outcome.finding(format!("{who} does not get {what}"));
        }
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
