//! The last lines of a script's standard error, for mails about its job (`--mail-lines`). A process reads them as the job's user,
//! who chose the file. The end of the script is reported once it has, or when it is late: it is on file before, so a
//! launcher that is started again reports it without lines.

use super::end::ScriptEnd;
use super::interface::{Action, Timer};
use super::state::LauncherState;
use muster_model::ids::JobAttempt;
use muster_model::mail::last_lines;
use muster_model::visible_text::visible;
use muster_proto::node::JobGrant;

/// Time limit for reading them.
const READ_WAIT_MS: u64 = 2000;

/// Starts to read the lines of a script that has ended, if its job asks for them. Returns the end where it does not.
pub(super) fn begin(
    state: &mut LauncherState,
    attempt: JobAttempt,
    ended: ScriptEnd,
) -> Option<ScriptEnd> {
    let Some(job) = state.jobs.get_mut(&attempt) else {
        return Some(ended);
    };
    let Some(files) = job
        .files
        .as_ref()
        .filter(|_| wanted(job.grant.as_deref()) > 0)
    else {
        return Some(ended);
    };
    state.actions.push(Action::ReadLastLines {
        attempt,
        user: files.user.clone(),
        work_dir: files.work_dir.clone(),
        path: files.stderr.clone(),
        namespace: job.namespace(),
    });
    // Its process is no more, and its number may be another's.
    job.script = None;
    job.unread_end = Some(ended);
    state
        .actions
        .set_timer(Timer::LastLines(attempt), READ_WAIT_MS);
    None
}

/// The lines were read, in the bytes of the file's end. Returns the end of the script with them.
pub(super) fn end(
    state: &mut LauncherState,
    attempt: JobAttempt,
    bytes: &[u8],
) -> Option<ScriptEnd> {
    let job = state.jobs.get_mut(&attempt)?;
    let mut ended = job.unread_end.take()?;
    let text = String::from_utf8_lossy(bytes);
    // Neither the agent nor the controller takes texts with a NUL byte.
    let shown = text
        .split('\n')
        .map(|line| visible(line.strip_suffix('\r').unwrap_or(line)));
    let text = shown.collect::<Vec<_>>().join("\n");
    let lines = last_lines(&text, wanted(job.grant.as_deref()));
    ended.last_lines = (!lines.is_empty()).then(|| lines.to_owned());
    state.actions.stop_timer(Timer::LastLines(attempt));
    Some(ended)
}

/// They were not read in time.
pub(super) fn stop(state: &mut LauncherState, attempt: JobAttempt) {
    state.actions.push(Action::StopLastLines(attempt));
}

/// The number of lines that a job asks for.
fn wanted(grant: Option<&JobGrant>) -> u16 {
    let mail = grant.and_then(|grant| grant.spec.mail.as_ref());
    mail.and_then(|mail| mail.lines).unwrap_or(0)
}
