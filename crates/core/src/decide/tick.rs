//! Decisions that are due at a time: limits, warnings, waits, deadlines, silent nodes, and the purge of ended jobs.
//! Each is found by its index, earliest first.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::node_loss::{NOT_RESPONDING, set_down};
use crate::event::{AccountsChange, Event, JobChange};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Job, JobState, Phase, Reason};
use muster_model::limits::PURGE_MAX;
use muster_model::time::Timestamp;
use std::collections::BTreeSet;

/// Makes the changes that are due.
pub(super) fn tick(draft: &mut Draft<'_>, accounted: bool) {
    accruals(draft);
    // Compares the recorded events before this tick, and forgets them: the tick's own changes of nodes are recorded for
    // the next time.
    super::triggers::tick(draft);
    silent_nodes(draft);
    time_limits(draft);
    for id in due(draft, &draft.state.by_warning) {
        if draft
            .job(id)
            .is_some_and(|job| job.state == JobState::Running && !job.completing)
        {
            draft.change(id, JobChange::Warned);
        }
    }
    for id in due(draft, &draft.state.by_begin) {
        draft.change(id, JobChange::Eligible);
    }
    for id in due(draft, &draft.state.by_deadline) {
        let how = JobEnding::new(JobState::Deadline, Reason::DeadLine);
        ending::end(draft, id, how);
    }
    super::calendar::tick(draft);
    super::reservation::tick(draft);
    super::turns::tick(draft);
    super::power::tick(draft);
    priorities(draft);
    if accounted {
        purge(draft);
    }
}

fn due(draft: &Draft<'_>, index: &BTreeSet<(Timestamp, JobId)>) -> Vec<JobId> {
    index
        .range(..=(draft.now, JobId(u64::MAX)))
        .map(|(_, id)| *id)
        .collect()
}

fn time_limits(draft: &mut Draft<'_>) {
    for id in due(draft, &draft.state.by_limit) {
        let Some(job) = draft.job(id) else {
            continue;
        };
        // A node that failed just now may have taken the job with it.
        if job.state != JobState::Running || job.completing {
            continue;
        }
        let deadline = job.spec.deadline.is_some_and(|d| d <= draft.now);
        let how = if job.grace_end().is_some_and(|end| end <= draft.now) {
            super::preempt::end_of(job)
        } else if deadline {
            JobEnding::new(JobState::Deadline, Reason::DeadLine)
        } else {
            JobEnding::new(JobState::Timeout, Reason::TimeLimit)
        };
        ending::end(draft, id, how);
    }
}

fn silent_nodes(draft: &mut Draft<'_>) {
    let timeout_s = draft.state.config.as_ref().map_or(0, |c| c.node_timeout_s);
    if timeout_s == 0 {
        return;
    }
    let now = draft.now;
    let silent: Vec<NodeIdx> = draft
        .state
        .lost_nodes
        .iter()
        .take_while(|(since, _)| since.plus_s(u64::from(timeout_s)) <= now)
        .map(|(_, node)| *node)
        .collect();
    for node in silent {
        set_down(draft, node, NOT_RESPONDING, 0);
    }
}

/// Ended jobs older than `MinJobAge` leave; zero keeps them. Those that went back to the queue just now, with the rest of their
/// heterogeneous jobs, stay.
fn purge(draft: &mut Draft<'_>) {
    let age_s = draft.state.config.as_ref().map_or(0, |c| c.min_job_age_s);
    if age_s == 0 {
        return;
    }
    let now = draft.now;
    let is_over = |id: &JobId| {
        draft
            .job(*id)
            .is_some_and(|job| job.phase() == Phase::Ended)
    };
    let ids: Vec<JobId> = draft
        .state
        .ended
        .iter()
        .take_while(|(ended, _)| ended.plus_s(u64::from(age_s)) <= now)
        .take(PURGE_MAX)
        .map(|(_, id)| *id)
        .filter(is_over)
        .collect();
    if !ids.is_empty() {
        draft.emit(Event::JobsPurged { ids });
    }
}

/// With priorities the jobs are chosen that gain age, where that is limited. Comes before everything else, so that the
/// state has their turns.
fn accruals(draft: &mut Draft<'_>) {
    let state = draft.state;
    let waits = state.scale.is_some() && !state.accrual_waiting.is_empty();
    if waits && state.priorities_due().is_some_and(|due| due <= draft.now) {
        for (id, tasks) in state.accruals_due() {
            draft.change(id, JobChange::Accrues(tasks));
        }
    }
}

/// Use is forgotten and priorities are worked out when their time has come.
fn priorities(draft: &mut Draft<'_>) {
    let state = draft.state;
    let Some(settings) = state
        .config
        .as_ref()
        .and_then(|c| c.order.multifactor.as_ref())
    else {
        return;
    };
    let at = draft.now;
    if state.priorities_due().is_none_or(|due| due > at) {
        return;
    }
    let since = state.accounts.reset_at;
    let first = state.accounts.calculated_at == Timestamp::default();
    if first || crate::policy::priority::usage_reset_between(settings, since, at) {
        let all = !first || settings.usage_reset == muster_model::order_config::UsageReset::Now;
        let forget = all.then_some(AccountsChange::UsageReset(None));
        let changes = forget.into_iter().collect();
        draft.emit(Event::AccountsChanged {
            changes,
            at,
            log: Vec::new(),
        });
    } else {
        draft.emit(Event::PrioritiesCalculated { at });
        end_of_use(draft);
    }
}

/// Jobs of those who have used all that they may are ended.
fn end_of_use(draft: &mut Draft<'_>) {
    let state = draft.state;
    let used_up = state.used_up(draft.now);
    if used_up.is_empty() {
        return;
    }
    for id in &state.active {
        let runs = |job: &&Job| job.state == JobState::Running && !job.completing;
        let Some(job) = draft.job(*id).filter(runs) else {
            continue;
        };
        let scopes = state.scopes_of(job, &job.partition);
        if scopes.iter().any(|scope| used_up.contains(scope)) {
            ending::end(
                draft,
                *id,
                JobEnding::new(JobState::Timeout, Reason::TimeLimit),
            );
        }
    }
}
