//! Texts of jobs that accounting has (`sacctmgr modify job`).

use crate::event::AccountsChange;
use crate::policy::access;
use crate::state::State;
use muster_model::accounts::JobNote;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::Request;

/// Changes texts of jobs that are over. Whose they are the store knows; who is no operator changes own ones only, and
/// those of the administrator not at all.
pub(super) fn note(
    state: &State,
    identity: &Identity,
    names: &[String],
    note: &JobNote,
) -> Result<Vec<AccountsChange>, Refusal> {
    let is_operator = access::may(state, identity, Request::AdminComment);
    if note.admin_comment.is_some() {
        access::require(state, identity, Request::AdminComment)?;
    }
    for text in [&note.comment, &note.admin_comment, &note.wckey]
        .into_iter()
        .flatten()
    {
        if text.len() > TEXT_BYTES_MAX {
            let text = "a text is longer than accounting keeps";
            return Err(Refusal::new(RefusalCode::InvalidValue, text));
        }
    }
    let owner = (!is_operator).then_some(identity.uid);
    let changes = names.iter().map(|name| {
        let wrong = |_| {
            Refusal::new(
                RefusalCode::InvalidJobId,
                format!("{name} is no job number"),
            )
        };
        let job = JobId(name.parse().map_err(wrong)?);
        let known = state.jobs.get(&job);
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
