//! Numbers of jobs, for metrics and overviews. Jobs that count the same are kept as one kind with their number, which is brought up to
//! date by the records that have changed: an answer looks at the kinds, which are few, and at no job.

use muster_core::policy::access::privacy::JobScope;
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::job_counts::{JobCountGroup, JobCounts, NodesAsked, ShownCount, ShownJob};
use muster_proto::client::Response;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// All that numbers of jobs depend on: jobs with equal values count the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CountedKind {
    uid: u32,
    user: String,
    account: String,
    partition: String,
    label: Option<String>,
    counts: JobCounts,
    nodes_asked: NodesAsked,
    shown: ShownJob,
    /// Jobs of one record: the tasks of an array that wait.
    tasks: u64,
}

impl CountedKind {
    fn of(job: &Job) -> CountedKind {
        let mut counts = JobCounts::default();
        counts.count(job);
        let mut nodes_asked = NodesAsked::default();
        nodes_asked.count(job);
        CountedKind {
            uid: job.spec.owner.uid,
            user: job.spec.owner.user.clone(),
            account: job.spec.account_name().to_owned(),
            partition: job.partition.clone(),
            label: job.spec.mcs_label().map(str::to_owned),
            counts,
            nodes_asked,
            shown: ShownJob::of(job),
            tasks: job.tasks().into(),
        }
    }

    fn is_in(&self, scope: &JobScope) -> bool {
        scope.has_labelled(self.uid, &self.account, self.label.as_deref())
    }
}

/// The kinds of all jobs of a state.
#[derive(Debug, Default)]
pub(super) struct CountIndex {
    /// Records of each kind.
    records: HashMap<Arc<CountedKind>, u64>,
    of_job: HashMap<JobId, Arc<CountedKind>>,
}

impl CountIndex {
    /// The job of this number is as given, or there is none.
    pub(super) fn set(&mut self, id: JobId, job: Option<&Job>) {
        let kind = job.map(CountedKind::of);
        let before = match &kind {
            Some(kind) if self.of_job.get(&id).is_some_and(|before| **before == *kind) => return,
            Some(_) | None => self.of_job.remove(&id),
        };
        if let Some(before) = before
            && let Some(records) = self.records.get_mut(&before)
        {
            *records -= 1;
            if *records == 0 {
                self.records.remove(&before);
            }
        }
        let Some(kind) = kind else {
            return;
        };
        let known = self.records.get_key_value(&kind);
        let kind = known.map_or_else(|| Arc::new(kind), |(known, _)| Arc::clone(known));
        *self.records.entry(Arc::clone(&kind)).or_default() += 1;
        self.of_job.insert(id, kind);
    }

    /// The index of all jobs of a state.
    pub(super) fn of(state: &State) -> CountIndex {
        let mut index = CountIndex::default();
        let jobs = state.jobs.values();
        jobs.for_each(|job| index.set(job.id, Some(job)));
        index
    }

    /// The answer for a user.
    pub(super) fn answer(&self, state: &State, identity: &Identity) -> Response {
        let scope = JobScope::of(state, identity);
        let mut groups = GroupSums::new();
        for (kind, records) in self.records.iter().filter(|(kind, _)| kind.is_in(&scope)) {
            let key = (
                kind.user.as_str(),
                kind.account.as_str(),
                kind.partition.as_str(),
            );
            let group = groups.entry(key).or_default();
            group.counts.add_times(&kind.counts, *records);
            group.nodes_asked.add(&kind.nodes_asked);
            *group.shown.entry(kind.shown).or_default() += kind.tasks * records;
        }
        answer_of(state, groups)
    }

    /// Number of kinds.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

/// The answer of a state without an index: it looks at every job.
pub(super) fn scanned(state: &State, identity: &Identity) -> Response {
    let scope = JobScope::of(state, identity);
    let mut groups = GroupSums::new();
    for job in state.jobs.values().filter(|job| scope.has(job)) {
        let account = job.spec.account_name();
        let key = (
            job.spec.owner.user.as_str(),
            account,
            job.partition.as_str(),
        );
        let group = groups.entry(key).or_default();
        group.counts.count(job);
        group.nodes_asked.count(job);
        *group.shown.entry(ShownJob::of(job)).or_default() += u64::from(job.tasks());
    }
    answer_of(state, groups)
}

/// Sums by user, account and partition.
type GroupSums<'g> = HashMap<(&'g str, &'g str, &'g str), GroupSum>;

/// Counts of the jobs of a user, an account and a partition.
#[derive(Default)]
struct GroupSum {
    counts: JobCounts,
    nodes_asked: NodesAsked,
    shown: HashMap<ShownJob, u64>,
}

fn answer_of(state: &State, groups: GroupSums<'_>) -> Response {
    let hidden = state.partitions.iter().filter(|partition| partition.hidden);
    let hidden: HashSet<&str> = hidden.map(|partition| partition.name.as_str()).collect();
    let group = |((user, account, partition), sum): ((&str, &str, &str), GroupSum)| {
        let hidden = hidden.contains(partition);
        let [user, account, partition] = [user, account, partition].map(str::to_owned);
        let shown = sum.shown.into_iter().map(|(shown, jobs)| ShownCount {
            state: shown.state.to_owned(),
            reason: shown.reason,
            is_over: shown.is_over,
            jobs,
        });
        let mut shown: Vec<ShownCount> = shown.collect();
        let name = |shown: &ShownCount| shown.reason.map(|reason| reason.name());
        shown.sort_by(|a, b| (&a.state, name(a)).cmp(&(&b.state, name(b))));
        JobCountGroup {
            user,
            account,
            partition,
            counts: sum.counts,
            shown,
            hidden,
            nodes_asked: sum.nodes_asked,
        }
    };
    let mut groups: Vec<JobCountGroup> = groups.into_iter().map(group).collect();
    groups.sort_by(|a, b| {
        (&a.user, &a.account, &a.partition).cmp(&(&b.user, &b.account, &b.partition))
    });
    Response::JobCounts(groups)
}
