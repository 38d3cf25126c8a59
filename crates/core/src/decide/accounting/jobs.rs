//! Texts of jobs that accounting has (`sacctmgr modify job`), and numbers that jobs from another cluster have.

use crate::event::AccountsChange;
use crate::policy::access;
use crate::policy::access::privacy::JobScope;
use crate::state::State;
use muster_model::accounts::JobNote;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::visible_text::visible;

/// Bytes of the texts that one edit writes, over all its jobs.
const NOTE_BYTES_MAX: usize = 1 << 20;

/// The highest number that may be reserved: Slurm's are below 2^26, and those of federations below 2^31.
const RESERVED_MAX: u64 = (1 << 31) - 1;

/// Keeps numbers up to this one from new jobs.
pub(super) fn reserve_ids(state: &State, last: JobId) -> Result<Vec<AccountsChange>, Refusal> {
    if last.0 > RESERVED_MAX {
        let text =
            format!("job {last} is above {RESERVED_MAX}, the highest number that may be reserved");
        return Err(Refusal::new(RefusalCode::InvalidJobId, text));
    }
    let is_new = last.0 >= state.next_job_id;
    Ok(is_new
        .then_some(AccountsChange::JobIdsReserved(last))
        .into_iter()
        .collect())
}

/// Changes texts of jobs that are over. Whose they are the store knows; who is no operator changes own ones only, and
/// those of the administrator not at all.
pub(super) fn note(
    state: &State,
    identity: &Identity,
    names: &[String],
    note: &JobNote,
) -> Result<Vec<AccountsChange>, Refusal> {
    let is_operator = access::may(state, identity, AccessRequest::AdminComment);
    if note.admin_comment.is_some() {
        access::require(state, identity, AccessRequest::AdminComment)?;
    }
    let invalid = |text: String| Refusal::new(RefusalCode::InvalidValue, text);
    let texts = [&note.comment, &note.admin_comment, &note.wckey];
    let lengths = texts.into_iter().flatten().map(String::len);
    if lengths.clone().any(|length| length > TEXT_BYTES_MAX) {
        return Err(invalid("a text is longer than accounting keeps".to_owned()));
    }
    // Each job gets the texts.
    if lengths.sum::<usize>().saturating_mul(names.len()) > NOTE_BYTES_MAX {
        let text = format!(
            "the comment for these jobs needs more than {NOTE_BYTES_MAX} bytes; name fewer jobs"
        );
        return Err(invalid(text));
    }
    let plain = |text: &Option<String>| text.as_deref().map(|t| visible(t).into_owned());
    let note = JobNote {
        comment: plain(&note.comment),
        admin_comment: plain(&note.admin_comment),
        wckey: plain(&note.wckey),
        ..note.clone()
    };
    if let Some(wckey) = note.wckey.as_ref().filter(|_| !is_operator) {
        let user = state.accounts.users.get(&identity.user);
        let has_key = user.is_some_and(|user| user.wckeys.contains(wckey));
        if !has_key {
            let text = format!(
                "user {} has no key '{wckey}'; see sacctmgr show wckey",
                identity.user
            );
            return Err(invalid(text));
        }
    }
    let owner = (!is_operator).then_some(identity.uid);
    let scope = JobScope::of(state, identity);
    let changes = names.iter().map(|name| {
        let number = name.parse().ok().filter(|n: &u64| n.to_string() == *name);
        let job = JobId(number.ok_or_else(|| {
            let text = format!("{name} is not a job number");
            Refusal::new(RefusalCode::InvalidJobId, text)
        })?);
        // The store has room for fewer numbers than there are, and a number that it refuses would never be written.
        if job.0 >= state.next_job_id && job.0 > RESERVED_MAX {
            let text = format!("no job has the number {job} yet");
            return Err(Refusal::new(RefusalCode::InvalidJobId, text));
        }
        // A job that may not be seen is like one that is not there: the store changes the user's own.
        let known = state.jobs.get(&job).filter(|job| scope.has(job));
        if known.is_some_and(|job| !job.state.is_ended()) {
            return Err(Refusal::new(
                RefusalCode::InvalidValue,
                format!("job {job} is not over; use scontrol update JobId={job}"),
            ));
        }
        if known.is_some_and(|job| owner.is_some_and(|uid| job.spec.owner.uid != uid)) {
            return Err(RefusalCode::AccessDenied.into());
        }
        Ok(AccountsChange::JobNoted {
            job,
            owner,
            note: note.clone(),
        })
    });
    changes.collect()
}
