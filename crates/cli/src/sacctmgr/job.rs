//! `sacctmgr modify job`: texts that accounting has of jobs.

use super::edit::{NOTHING_MODIFIED, NOTHING_SET, parts};
use super::ledger::error;
use super::session::{Invocation, refused};
use super::show::USE_SET;
use super::words::Word;
use crate::connect::ConnectError;
use crate::listing::context::Ctx;
use crate::listing::{Failure, query, time_input};
use jiff::Zoned;
use muster_model::accounts::JobNote;
use muster_model::command::{AccountsAsk, JobTarget, JobUpdate, UserCommand};
use muster_model::ids::JobId;
use muster_proto::acct::{AcctJob, AcctQuery};
use std::fmt::Write as _;

/// Changes the jobs that conditions mean: those that are over in accounting, others in the controller as well.
pub(super) fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (conditions, set) = parts(words);
    let asked = conditions_of(&conditions)?;
    let note = note_of(session, &set)?;
    let client = session.ledger.client()?;
    let ctx = Ctx::new(&client.endpoint.cluster.clone());
    let (jobs, ..) = query::accounting(client, asked).map_err(error)?;
    let mut text = String::from(" Modified jobs...\n");
    for job in &jobs {
        let mut at = String::new();
        ctx.time_or(&mut at, Some(job.submit), "Unknown");
        let _ = writeln!(text, "  {} submitted at {at}", job.id);
    }
    if jobs.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    if !session.immediate {
        session.console.say(&text);
        if !session.commits() {
            return Ok(());
        }
    }
    let is_over = |job: &&AcctJob| job.state.is_ended();
    let over: Vec<String> = jobs
        .iter()
        .filter(is_over)
        .map(|job| job.id.to_string())
        .collect();
    for job in jobs.iter().filter(|job| !job.state.is_ended()) {
        update(session, job.id, &note).map_err(refused)?;
    }
    if !over.is_empty() {
        let edit = Invocation::edit_of(&over, AccountsAsk::NoteJobs(note));
        session.ledger.edit(edit).map_err(refused)?;
    }
    if session.immediate {
        session.console.say(&text);
    }
    Ok(())
}

/// A job that is not over has its texts in the controller.
fn update(session: &mut Invocation<'_>, job: JobId, note: &JobNote) -> Result<(), ConnectError> {
    let update = JobUpdate {
        comment: note.comment.clone(),
        shown: (note.admin_comment.iter())
            .map(|text| ("admin-comment".to_owned(), text.clone()))
            .collect(),
        wckey: note.wckey.clone(),
        ..JobUpdate::default()
    };
    let command = UserCommand::UpdateJob {
        target: JobTarget {
            job,
            tasks: None,
            component: None,
        },
        update: Box::new(update),
    };
    let Ok(client) = session.ledger.client() else {
        return Ok(());
    };
    client.command(command).map(drop)
}

fn conditions_of(words: &[String]) -> Result<AcctQuery, Failure> {
    let now = Zoned::now();
    let mut query = AcctQuery {
        allocations_only: true,
        ..AcctQuery::default()
    };
    for text in words {
        let word = Word::new(text);
        let unknown = || Failure::new(format!(" Unknown condition: {text}{USE_SET}"));
        let at = || {
            let at = time_input::parse(&word.value, &now);
            at.map(Some)
                .ok_or_else(|| error(format!("Invalid time specification: {}", word.value)))
        };
        let is = |name: &str, least: usize| word.key.is_some() && word.is(name, least);
        match () {
            () if is("jobids", 1) => {
                for id in word.list() {
                    let id = id
                        .parse()
                        .map_err(|_| error(format!("Invalid job id {id}")))?;
                    query.jobs.push((JobId(id), None));
                }
            }
            () if is("clusters", 1) => {}
            () if is("users", 1) => {
                for name in word.list() {
                    let known = crate::people::user_named(&name).map(|user| user.uid.as_raw());
                    query
                        .uids
                        .push(known.ok_or_else(|| error(format!("no user {name}")))?);
                }
            }
            () if is("wckeys", 1) => query.wckeys = word.list(),
            () if is("starttime", 1) => query.start = at()?,
            () if is("endtime", 1) => query.end = at()?,
            () => return Err(unknown()),
        }
    }
    Ok(query)
}

fn note_of(session: &mut Invocation<'_>, words: &[String]) -> Result<JobNote, Failure> {
    let mut note = JobNote::default();
    for text in words
        .iter()
        .filter(|word| !word.eq_ignore_ascii_case("and"))
    {
        let word = Word::new(text);
        let is = |name: &str, least: usize| word.key.is_some() && word.is(name, least);
        match () {
            () if is("admincomment", 2) => note.admin_comment = Some(word.value.clone()),
            () if is("comment", 1) => note.comment = Some(word.value.clone()),
            () if is("derivedexitcode", 12) || is("derivedes", 9) => {
                let wrong = |_| {
                    let text = format!("Invalid value for DerivedExitCode ({})", word.value);
                    Failure::new(format!("sacctmgr: error: {text}\n{NOTHING_SET}"))
                };
                note.derived_exit = Some(word.value.parse().map_err(wrong)?);
            }
            () if is("newwckey", 1) || is("wckey", 1) => note.wckey = Some(word.value.clone()),
            () if is("systemcomment", 1) => {
                return Err(error(
                    "SystemComment= is not kept; use Comment= or AdminComment=",
                ));
            }
            () => {
                session.console.say(&format!(
                    " Unknown option: {text}\n Use keyword 'where' to modify condition\n"
                ));
            }
        }
    }
    match note == JobNote::default() {
        true => Err(Failure::new(NOTHING_SET)),
        false => Ok(note),
    }
}
