//! The choice of jobs by `-u` and `-s`.

use super::lines::{self, Entry, EntrySource};
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{fail, selection};
use muster_model::job::Job;
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// Which jobs are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct QstatFilter {
    /// Users whose jobs are listed; all if absent.
    uids: Option<Vec<u32>>,
    pub(super) pending: bool,
    pub(super) running: bool,
    suspended: bool,
    pub(super) ended: bool,
    /// Kinds of holds: u, o, s, d, j, a.
    pub(super) holds: String,
}

impl QstatFilter {
    pub(super) fn read(parsed: &Parsed) -> Result<QstatFilter, ExitCode> {
        let uids = match parsed.has("u") {
            // Nobody has jobs of a user who is unknown, in Grid Engine too.
            true => selection::known_users(parsed.all("u")),
            false => Some(vec![nix::unistd::getuid().as_raw()]),
        };
        let mut wanted = QstatFilter {
            uids,
            ..QstatFilter::default()
        };
        let states = parsed.last("s").unwrap_or("a");
        let mut letters = states.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                'p' => wanted.pending = true,
                'r' => wanted.running = true,
                's' => wanted.suspended = true,
                'z' => wanted.ended = true,
                'a' => (wanted.pending, wanted.running, wanted.suspended) = (true, true, true),
                'h' => match letters.next_if(|next| "uosdja".contains(*next)) {
                    Some(kind) => wanted.holds.push(kind),
                    None => wanted.holds.push_str("uosdja"),
                },
                _ => {
                    let text = format!(
                        "error: invalid argument \"{states}\" to -s: '{letter}' is not a valid state"
                    );
                    return Err(fail(&text, 1));
                }
            }
        }
        Ok(wanted)
    }

    /// The query to the controller; `by_all` if it is for jobs of all users, since queues show the use by everybody.
    pub(super) fn query(&self, by_all: bool) -> JobFilter {
        let uids = match (&self.uids, by_all) {
            (Some(uids), false) => uids.clone(),
            _ => Vec::new(),
        };
        JobFilter {
            uids,
            active: !self.ended,
            ..JobFilter::default()
        }
    }

    pub(super) fn has(&self, job: &Job, state: &str) -> bool {
        let is_theirs = self
            .uids
            .as_ref()
            .is_none_or(|uids| uids.contains(&job.spec.owner.uid));
        is_theirs && self.has_state(job, state)
    }

    fn has_state(&self, job: &Job, state: &str) -> bool {
        if job.state.is_ended() && !job.completing {
            return self.ended;
        }
        if state.ends_with('w') || state.ends_with('q') {
            return self.pending || self.holds.chars().any(|kind| lines::is_held(job, kind));
        }
        match state.contains(['s', 'S', 'T']) {
            true => self.suspended || self.running,
            false => self.running,
        }
    }

    /// The lines of the jobs that are wanted, in order.
    pub(super) fn entries<'a>(&self, source: EntrySource<'_>, jobs: &'a [Job]) -> Vec<Entry<'a>> {
        let mut all: Vec<Entry<'a>> = Vec::new();
        for job in jobs {
            let state = lines::state(job);
            if self.has(job, &state) {
                all.extend(Entry::of(job, state, source));
            }
        }
        lines::merge_ended(&mut all);
        lines::sort(&mut all);
        all
    }
}
