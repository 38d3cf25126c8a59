//! Dependencies between jobs: whether a condition holds, can still hold or never will, and what that means for the
//! jobs that wait. Work is proportional to the jobs that wait for what changed.

use super::draft::Draft;
use super::ending;
use crate::event::JobChange;
use crate::index::dependency_key;
use crate::state::DependencyKey;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{ArrayRole, Job, JobState, Phase, Reason};
use muster_model::spec::{DependencyKind, DependencyTerm};
use muster_model::time::Timestamp;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// The outcome of one condition, or of all of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It may still come to hold.
    Waits,
    /// It holds.
    Met,
    /// It holds from that time on.
    MetFrom(Timestamp),
    /// It can never hold.
    Never,
}

/// The change on which a waiting job is checked again.
enum Changed<'a> {
    /// Anything may have.
    All,
    /// These jobs, arrays or tasks.
    Jobs(&'a BTreeSet<JobId>),
    /// The submissions of the same owner and name.
    Name,
}

impl Changed<'_> {
    /// Whether the outcome of a condition may be another now.
    fn concerns(&self, term: &DependencyTerm) -> bool {
        match self {
            Changed::All => true,
            Changed::Jobs(jobs) => target_of(term).is_some_and(|target| jobs.contains(&target)),
            Changed::Name => *term == DependencyTerm::Singleton,
        }
    }
}

/// The outcome of all conditions of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Conditions that are left.
    pub(super) terms: Vec<DependencyTerm>,
    /// Conditions that fall away, while others are left.
    decided: Vec<DependencyTerm>,
    /// One that is left, or all in an `any` list, can never hold.
    pub(super) never: bool,
    /// Not before this time.
    pub(super) not_before: Option<Timestamp>,
}

/// Looks at the conditions that `job` waits for.
pub(super) fn verdict(draft: &Draft<'_>, job: &Job, terms: &[DependencyTerm]) -> Verdict {
    verdict_after(draft, job, terms, &Changed::All)
}

/// Looks at those conditions that may have changed; the others wait on.
fn verdict_after(
    draft: &Draft<'_>,
    job: &Job,
    terms: &[DependencyTerm],
    changed: &Changed<'_>,
) -> Verdict {
    let any = job.spec.dependency.any;
    let (mut left, mut decided) = (Vec::new(), Vec::new());
    let (mut met, mut waits, mut fails) = (Vec::new(), false, false);
    let looked = OutcomeCache::default();
    for term in terms {
        let outcome = match changed.concerns(term) {
            true => outcome(draft, job, term, &looked),
            false => Outcome::Waits,
        };
        match outcome {
            Outcome::Waits => {
                waits = true;
                left.push((term, false));
            }
            Outcome::Never => {
                fails = true;
                left.push((term, true));
            }
            Outcome::Met => met.push(None),
            Outcome::MetFrom(time) => met.push(Some(time)),
        }
        if matches!(outcome, Outcome::Met | Outcome::MetFrom(_)) {
            decided.push(term.clone());
        }
    }
    if any && !met.is_empty() {
        return Verdict {
            terms: Vec::new(),
            decided: Vec::new(),
            never: false,
            not_before: met.into_iter().min().flatten(),
        };
    }
    // In an `any` list a condition that failed only leaves the others.
    let never = fails && (!any || !waits);
    if fails && !never {
        let failed = left.extract_if(.., |(_, failed)| *failed);
        decided.extend(failed.map(|(term, _)| term.clone()));
    }
    Verdict {
        terms: left.into_iter().map(|(term, _)| term.clone()).collect(),
        decided,
        never,
        not_before: met.into_iter().max().flatten(),
    }
}

/// Resolves what waits for the records that changed in this draft, and what follows from that in turn. A job that waits for
/// many of them is looked at once.
pub(super) fn resolve(draft: &mut Draft<'_>) {
    loop {
        while !draft.changed.is_empty() {
            let mut dependents = BTreeMap::new();
            for id in std::mem::take(&mut draft.changed) {
                find_dependents(draft, id, &mut dependents);
            }
            for (dependent, jobs) in dependents {
                settle(draft, dependent, &Changed::Jobs(&jobs));
            }
        }
        let Some((uid, name)) = draft.touched_names.pop_first() else {
            return;
        };
        resolve_singletons(draft, uid, &name);
    }
}

/// Looks again at what a pending job waits for, as far as it has changed.
fn settle(draft: &mut Draft<'_>, id: JobId, changed: &Changed<'_>) {
    let Some(job) = draft.job(id) else {
        return;
    };
    if job.phase() != Phase::Pending
        || job.waiting_on.is_empty()
        || job.reason == Reason::DependencyNeverSatisfied
    {
        return;
    }
    let verdict = verdict_after(draft, job, &job.waiting_on, changed);
    if verdict.terms.is_empty() {
        return conclude(draft, id, verdict);
    }
    if verdict.decided.is_empty() && !verdict.never {
        return;
    }
    delay(draft, id, verdict.not_before);
    let change = JobChange::DependenciesDecided {
        terms: verdict.decided,
        reason: reason_for(verdict.never, false),
    };
    draft.change(id, change);
    end_if_invalid(draft, id, verdict.never);
}

/// Writes down what the conditions of a pending job came to.
pub(super) fn conclude(draft: &mut Draft<'_>, id: JobId, verdict: Verdict) {
    delay(draft, id, verdict.not_before);
    let reason = reason_for(verdict.never, verdict.terms.is_empty());
    let terms = verdict.terms;
    draft.change(id, JobChange::WaitingOn { terms, reason });
    end_if_invalid(draft, id, verdict.never);
}

fn reason_for(never: bool, all_met: bool) -> Reason {
    match (never, all_met) {
        (true, _) => Reason::DependencyNeverSatisfied,
        (false, true) => Reason::None,
        (false, false) => Reason::Dependency,
    }
}

fn delay(draft: &mut Draft<'_>, id: JobId, not_before: Option<Timestamp>) {
    let now = draft.now;
    if let Some(time) = not_before.filter(|time| *time > now) {
        draft.change(id, JobChange::NotBefore(time));
    }
}

fn end_if_invalid(draft: &mut Draft<'_>, id: JobId, never: bool) {
    if never && kills_on_invalid(draft, id) {
        ending::end(
            draft,
            id,
            ending::JobEnding::new(JobState::Cancelled, Reason::DependencyNeverSatisfied),
        );
    }
}

/// Whether a job that can never start is cancelled.
pub(super) fn kills_on_invalid(draft: &Draft<'_>, id: JobId) -> bool {
    let cluster = draft
        .state
        .config
        .as_ref()
        .is_some_and(|c| c.kill_invalid_depend);
    draft
        .job(id)
        .is_some_and(|job| job.spec.kill_on_invalid_dep.unwrap_or(cluster))
}

/// Gives a record of its own to each task whose `aftercorr` counterpart is over already, and settles it. For a job
/// that got its conditions just now.
pub(super) fn split_decided_tasks(draft: &mut Draft<'_>, id: JobId) {
    let waiting = draft.job(id).filter(|job| {
        job.phase() == Phase::Pending && matches!(job.array, ArrayRole::Pending { .. })
    });
    let Some(job) = waiting else {
        return;
    };
    let targets: BTreeSet<JobId> = job.waiting_on.iter().filter_map(correlated).collect();
    for target in targets {
        for (index, record) in draft.task_records(target) {
            if draft.job(record).is_some_and(Job::is_over) {
                split_and_settle(draft, id, index);
            }
        }
        // Tasks that were cancelled before they started have one record together.
        if draft.job(target).is_some_and(Job::is_over)
            && let (Some(own), Some(cancelled)) =
                (draft.pending_indices(id), draft.pending_indices(target))
        {
            for index in own.intersection(&cancelled).iter() {
                split_and_settle(draft, id, index);
            }
        }
    }
    // The tasks that are left have no counterpart.
    settle(draft, id, &Changed::All);
}

/// The jobs that a dependency on others leads to. Looks at no more than `most` jobs, and conditions.
pub(super) fn led_to(draft: &Draft<'_>, terms: &[DependencyTerm]) -> BTreeSet<JobId> {
    let most = 10_000;
    let (mut jobs, mut conditions) = (0, 0);
    let mut found = BTreeSet::new();
    let mut next: Vec<JobId> = terms.iter().filter_map(target_of).collect();
    while let Some(id) = next.pop() {
        if !found.insert(id) || jobs >= most {
            continue;
        }
        jobs += 1;
        if let Some(other) = draft.job(id)
            && conditions < 10 * most
        {
            conditions += other.waiting_on.len();
            next.extend(other.waiting_on.iter().filter_map(target_of));
        }
    }
    draft.look_at(jobs + conditions);
    found
}

fn target_of(term: &DependencyTerm) -> Option<JobId> {
    match term {
        DependencyTerm::Job { job, .. } => Some(*job),
        DependencyTerm::Singleton => None,
    }
}

fn correlated(term: &DependencyTerm) -> Option<JobId> {
    match term {
        DependencyTerm::Job {
            kind: DependencyKind::AfterCorr,
            job,
            task: None,
            ..
        } => Some(*job),
        DependencyTerm::Job { .. } | DependencyTerm::Singleton => None,
    }
}

/// Adds the jobs that wait for this one to `dependents`, each with what has changed for it. Tasks of arrays that wait for their
/// counterparts are settled at once.
fn find_dependents(
    draft: &mut Draft<'_>,
    id: JobId,
    dependents: &mut BTreeMap<JobId, BTreeSet<JobId>>,
) {
    let Some(job) = draft.job(id) else {
        return;
    };
    let (submission, over) = (job.submission(), job.is_over());
    let mut waiting: BTreeSet<JobId> = BTreeSet::new();
    let index = &draft.state.dependents;
    let mut look = |job, task| {
        let of_key = index.get(&DependencyKey::new(job, task));
        waiting.extend(of_key.into_iter().flatten());
    };
    look(id, None);
    look(submission, None);
    // With the last task the array is over, for which tasks without a counterpart wait.
    let all_over = draft.counts(submission).is_some_and(|c| c.unfinished == 0);
    match &job.array {
        ArrayRole::Task { index, .. } if !all_over => look(submission, Some(*index)),
        _ => {
            let key = |task| DependencyKey::new(submission, Some(task));
            let of_tasks = key(0)..=key(u32::MAX);
            waiting.extend(index.range(of_tasks).flat_map(|(_, ids)| ids));
        }
    }
    for target in [id, submission] {
        waiting.extend(draft.new_dependents.get(&target).into_iter().flatten());
    }
    if waiting.is_empty() {
        return;
    }
    let tasks = match &job.array {
        ArrayRole::Task { index, .. } => Some(IndexSet::single(*index)),
        ArrayRole::Pending { .. } => draft.pending_indices(id),
        ArrayRole::None => None,
    };
    for dependent in waiting {
        if let (true, Some(tasks)) = (over, &tasks) {
            split_correlated(draft, dependent, submission, tasks);
        }
        let jobs = dependents.entry(dependent).or_default();
        jobs.extend([id, submission]);
    }
}

/// Tasks `indices` of array `target` are over: if `dependent` is an array's record that waits for its counterparts
/// there, the tasks in question get records of their own, since a decision for one does not hold for the others.
fn split_correlated(draft: &mut Draft<'_>, dependent: JobId, target: JobId, indices: &IndexSet) {
    let waits = draft.job(dependent).is_some_and(|job| {
        job.phase() == Phase::Pending
            && job.reason != Reason::DependencyNeverSatisfied
            && job
                .waiting_on
                .iter()
                .any(|term| correlated(term) == Some(target))
    });
    if !waits {
        return;
    }
    // The usual case is one task: nothing is copied for it.
    let single = indices
        .first()
        .filter(|first| indices.last() == Some(*first));
    if let Some(index) = single {
        split_and_settle(draft, dependent, index);
        return;
    }
    let Some(own) = draft.pending_indices(dependent) else {
        return;
    };
    for index in own.intersection(indices).iter() {
        split_and_settle(draft, dependent, index);
    }
}

fn split_and_settle(draft: &mut Draft<'_>, array: JobId, index: u32) {
    if draft.is_in_record(array, index) {
        let task = draft.split_task(array, index);
        settle(draft, task, &Changed::All);
    }
}

/// The first submission of that name and owner that is left may start now.
fn resolve_singletons(draft: &mut Draft<'_>, uid: u32, name: &str) {
    if draft.state.singletons.is_empty() {
        return;
    }
    let Some(set) = draft.state.by_owner.get(&uid).and_then(|n| n.get(name)) else {
        return;
    };
    let Some((first, _)) = set.iter().find(|(_, id)| is_live(draft, *id, name)) else {
        return;
    };
    let records = (*first, JobId(0))..=(*first, JobId(u64::MAX));
    let waiting = draft.state.singletons.range(records);
    let waiting: Vec<JobId> = waiting.map(|(_, id)| *id).collect();
    for id in waiting {
        settle(draft, id, &Changed::Name);
    }
}

fn is_live(draft: &Draft<'_>, id: JobId, name: &str) -> bool {
    draft
        .job(id)
        .is_some_and(|job| !job.is_over() && job.spec.name == name)
}

/// Data that several conditions of a job may have in common, looked up once.
#[derive(Default)]
struct OutcomeCache {
    singleton: OnceCell<Outcome>,
    /// Tasks in the job's record.
    own: OnceCell<IndexSet>,
    /// Arrays, with whether the job has tasks that are undecided counterparts of theirs.
    undecided: RefCell<BTreeMap<JobId, bool>>,
}

fn outcome(draft: &Draft<'_>, job: &Job, term: &DependencyTerm, looked: &OutcomeCache) -> Outcome {
    let DependencyTerm::Job {
        kind,
        job: target,
        delay_minutes,
        ..
    } = term
    else {
        let outcome = || singleton_outcome(draft, job);
        return *looked.singleton.get_or_init(outcome);
    };
    let delay_s = u64::from(*delay_minutes) * 60;
    let task = dependency_key(job, term).and_then(|key| key.task);
    match (draft.counts(*target), task) {
        (Some(_), Some(index)) => match draft.task_record(*target, index) {
            Some(id) => record_outcome(draft.job(id), *kind, delay_s, draft.now),
            None if draft.is_in_record(*target, index) => {
                record_outcome(draft.job(*target), *kind, delay_s, draft.now)
            }
            None => Outcome::Met,
        },
        (Some(_), None) if has_undecided_counterparts(draft, job, term, looked) => Outcome::Waits,
        (Some(_), None) => array_outcome(draft, *target, *kind, delay_s),
        (None, _) => record_outcome(draft.job(*target), *kind, delay_s, draft.now),
    }
}

/// Whether `job` is an array's record with tasks whose counterparts in an array that is over failed, as far as is known: each
/// is to be looked at by itself, for which `split_decided_tasks` gives it a record.
fn has_undecided_counterparts(
    draft: &Draft<'_>,
    job: &Job,
    term: &DependencyTerm,
    looked: &OutcomeCache,
) -> bool {
    let (Some(target), ArrayRole::Pending { indices }) = (correlated(term), &job.array) else {
        return false;
    };
    if !(draft.counts(target)).is_some_and(|c| c.unfinished == 0 && c.failed > 0) {
        return false;
    }
    if let Some(known) = looked.undecided.borrow().get(&target) {
        return *known;
    }
    let in_own_record = || draft.pending_indices(job.id);
    let own = looked
        .own
        .get_or_init(|| in_own_record().unwrap_or_else(|| indices.clone()));
    let in_record = draft.pending_indices(target);
    let undecided = draft.has_record_among(target, own)
        || in_record.is_some_and(|tasks| !own.intersection(&tasks).is_empty());
    looked.undecided.borrow_mut().insert(target, undecided);
    undecided
}

/// A condition on one record. A record that is gone, or never was, is no obstacle: so it is in Slurm.
fn record_outcome(
    target: Option<&Job>,
    kind: DependencyKind,
    delay_s: u64,
    now: Timestamp,
) -> Outcome {
    let Some(target) = target else {
        return Outcome::Met;
    };
    let over = target.is_over();
    let ok = target.state == JobState::Completed;
    match kind {
        DependencyKind::After => {
            if target.attempt.0 == 0 && !target.state.is_ended() {
                return Outcome::Waits;
            }
            let since = target.start_time.or(target.end_time).unwrap_or(now);
            met_after(since, delay_s, now)
        }
        _ if !over => Outcome::Waits,
        DependencyKind::AfterAny => Outcome::Met,
        DependencyKind::AfterOk | DependencyKind::AfterCorr if ok => Outcome::Met,
        DependencyKind::AfterNotOk if !ok => Outcome::Met,
        DependencyKind::AfterOk | DependencyKind::AfterCorr | DependencyKind::AfterNotOk => {
            Outcome::Never
        }
    }
}

/// A condition on all tasks of an array.
fn array_outcome(draft: &Draft<'_>, base: JobId, kind: DependencyKind, delay_s: u64) -> Outcome {
    let Some(counts) = draft.counts(base) else {
        return Outcome::Met;
    };
    let over = counts.unfinished == 0;
    match kind {
        DependencyKind::After if counts.unstarted > 0 => Outcome::Waits,
        DependencyKind::After => met_after(draft.now, delay_s, draft.now),
        DependencyKind::AfterOk if counts.failed > 0 => Outcome::Never,
        _ if !over => Outcome::Waits,
        // Each task whose counterpart is over has a record of its own by now; the others have no counterpart.
        DependencyKind::AfterAny | DependencyKind::AfterOk | DependencyKind::AfterCorr => {
            Outcome::Met
        }
        DependencyKind::AfterNotOk if counts.failed > 0 => Outcome::Met,
        DependencyKind::AfterNotOk => Outcome::Never,
    }
}

fn met_after(since: Timestamp, delay_s: u64, now: Timestamp) -> Outcome {
    let from = since.plus_s(delay_s);
    if from > now {
        Outcome::MetFrom(from)
    } else {
        Outcome::Met
    }
}

/// No submission of the same owner and name that came earlier is left.
fn singleton_outcome(draft: &Draft<'_>, job: &Job) -> Outcome {
    let name = job.spec.name.as_str();
    let first = draft
        .state
        .by_owner
        .get(&job.spec.owner.uid)
        .and_then(|names| names.get(name))
        .and_then(|set| set.iter().find(|(_, id)| is_live(draft, *id, name)));
    match first {
        Some((submission, _)) if *submission < job.submitted_as() => Outcome::Waits,
        Some(_) | None => Outcome::Met,
    }
}
