//! Whatever happens to jobs: what is written from rows is what is written from the jobs themselves.

use super::*;
use crate::answer;
use muster_core::policy::access::privacy::JobScope;
use muster_model::config::PartitionConfig;
use muster_model::job::JobState;
use muster_model::shared_spec::SpecTable;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client;
use muster_proto::client::{JobFilter, Response};
use proptest::prelude::*;

/// What happens to one job, of one of some specifications.
#[derive(Clone, Debug)]
enum Change {
    Submit(usize),
    /// Another priority, or what is unusual of it.
    Edit(u32),
    Start,
    End,
    Remove,
}

fn change() -> impl Strategy<Value = (u64, Change)> {
    let change = prop_oneof![
        6 => (0_usize..3).prop_map(Change::Submit),
        2 => (0_u32..9).prop_map(Change::Edit),
        1 => Just(Change::Start),
        1 => Just(Change::End),
        1 => Just(Change::Remove),
    ];
    (1_u64..300, change)
}

fn specs() -> Vec<Arc<JobSpec>> {
    let spec = |uid: u32| JobSpec {
        name: format!("of {uid}"),
        owner: Owner {
            uid,
            ..Owner::default()
        },
        ..JobSpec::default()
    };
    (0..3).map(|uid| Arc::new(spec(uid))).collect()
}

fn job(id: u64, spec: &Arc<JobSpec>) -> Job {
    let at = Timestamp(1_000_000 + 7 * id.cast_signed());
    let mut job = Job::new(JobId(id), Arc::clone(spec), TimeLimit::Minutes(60), at);
    job.partition = ["batch", "other"][usize::from(id.is_multiple_of(5))].to_owned();
    job.priority = 5000 - u32::try_from(id).unwrap();
    job.eligible_time = Some(at);
    job
}

/// The state after a change, with the indexes that listings go by.
fn make(state: &mut State, specs: &[Arc<JobSpec>], id: u64, change: &Change) {
    let key = JobId(id);
    match change {
        Change::Submit(_) if state.jobs.contains_key(&key) => {}
        Change::Submit(spec) => {
            state.jobs.insert(key, job(id, &specs[*spec]));
        }
        Change::Remove => drop(state.jobs.remove(&key)),
        Change::Edit(number) => {
            if let Some(job) = state.jobs.get_mut(&key) {
                job.priority = *number / 3;
                job.begin_at = (number % 3 == 1).then_some(Timestamp(9_000_000));
                job.requeueable = number % 3 == 2;
            }
        }
        Change::Start => {
            if let Some(job) = state.jobs.get_mut(&key) {
                job.state = JobState::Running;
                job.alloc = Some(Arc::default());
            }
        }
        Change::End => {
            if let Some(job) = state.jobs.get_mut(&key) {
                job.state = JobState::Completed;
                job.completing = id.is_multiple_of(2);
            }
        }
    }
    let job = state.jobs.get(&key);
    let open = job.filter(|job| !job.state.is_ended() || job.completing);
    state.pending.remove(&key);
    state.active.remove(&key);
    state.by_owner.values_mut().for_each(|names| {
        for ids in names.values_mut() {
            ids.remove(&(key, key));
        }
    });
    if let Some(job) = open {
        match job.state {
            JobState::Pending => state.pending.insert(key),
            _ => state.active.insert(key),
        };
        let names = state.by_owner.entry(job.spec.owner.uid).or_default();
        names
            .entry(job.spec.name.clone())
            .or_default()
            .insert((key, key));
    }
}

fn state() -> State {
    let mut state = State::default();
    for name in ["batch", "other"] {
        state.partitions.push(PartitionConfig::named(name));
    }
    state.evaluated = vec![Timestamp(1_001_000), Timestamp(8_000_000)];
    state
}

/// What a client reads.
fn listed(state: &State, rows: Option<&Rows>, filter: &JobFilter) -> Vec<Job> {
    listed_in(state, rows, (filter, &JobScope::All)).0
}

/// What someone reads who may see some of the jobs, and which values name nothing.
fn listed_in(
    state: &State,
    rows: Option<&Rows>,
    asked: (&JobFilter, &JobScope),
) -> (Vec<Job>, Vec<JobId>) {
    let mut unknown = Vec::new();
    let (mut specs, mut jobs) = (SpecTable::default(), Vec::new());
    answer::jobs(
        state,
        rows,
        asked,
        None,
        &mut |bytes| match client::decode_answer(&bytes[4..], &mut specs).unwrap() {
            Response::Jobs(part) => {
                jobs.extend(part.jobs.into_jobs());
                unknown.extend(part.unknown);
                Ok(())
            }
            other => panic!("{other:?}"),
        },
    );
    (jobs, unknown)
}

fn filters() -> [JobFilter; 7] {
    let all = JobFilter {
        active: true,
        ..JobFilter::default()
    };
    [
        all.clone(),
        JobFilter {
            uids: vec![1],
            ..all.clone()
        },
        JobFilter {
            uids: vec![2, 0],
            states: vec![JobState::Pending],
            ..all.clone()
        },
        JobFilter {
            states: vec![JobState::Running],
            ..all.clone()
        },
        JobFilter {
            partitions: vec!["other".to_owned()],
            ..all
        },
        JobFilter::default(),
        JobFilter {
            uids: vec![0, 2],
            partitions: vec!["batch".to_owned()],
            ..JobFilter::default()
        },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_tell_what_the_jobs_do(rounds in prop::collection::vec(prop::collection::vec(change(), 0..80), 1..5)) {
        let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
        for changes in rounds {
            for (id, change) in &changes {
                make(&mut state, &specs, *id, change);
            }
            rows.follow(&mut state);
            for filter in filters() {
                prop_assert_eq!(listed(&state, Some(&rows), &filter), listed(&state, None, &filter));
            }
            let identity = Identity::default();
            let counted = rows.job_counts(&mut state, &identity);
            prop_assert_eq!(counted, counts::scanned(&state, &identity));
            // Nothing is kept of what is gone.
            let used: std::collections::BTreeSet<u32> = rows.iter().map(|row| row.template).filter(|template| *template != NONE).collect();
            prop_assert_eq!(used.len(), rows.templates.iter().flatten().count());
            prop_assert_eq!(used.len(), rows.by_spec.values().map(Vec::len).sum::<usize>());
        }
    }
}

/// `PrivateData=jobs`: whatever is asked for, and whether or not there are rows.
#[test]
fn jobs_that_may_not_be_seen_are_not_there() {
    let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
    for id in 1..400 {
        make(
            &mut state,
            &specs,
            id,
            &Change::Submit(usize::try_from(id % 3).unwrap()),
        );
        if id.is_multiple_of(7) {
            make(&mut state, &specs, id, &Change::Start);
        }
    }
    rows.follow(&mut state);
    let of = |uid, accounts: &[&str]| JobScope::Of {
        labels: None,
        uid,
        accounts: accounts.iter().map(|a| (*a).to_owned()).collect(),
    };
    let named = JobFilter {
        ids: (1..500).map(JobId).collect(),
        ..JobFilter::default()
    };
    let asked = filters().into_iter().chain([JobFilter::default(), named]);
    for filter in asked {
        let all = listed(&state, None, &filter);
        for scope in [of(1, &[]), of(9, &[]), of(1, &["other"]), JobScope::All] {
            let wanted: Vec<Job> = all.iter().filter(|job| scope.has(job)).cloned().collect();
            let with_rows = Some(&rows).filter(|_| filter.ids.is_empty());
            for rows in [with_rows, None] {
                let (jobs, unknown) = listed_in(&state, rows, (&filter, &scope));
                assert_eq!(jobs, wanted, "{filter:?} {scope:?}");
                let hidden = filter
                    .ids
                    .iter()
                    .filter(|id| state.jobs.get(id).is_none_or(|job| !scope.has(job)));
                let none_asked = filter.ids.is_empty();
                assert!(
                    none_asked || unknown.iter().eq(hidden),
                    "{filter:?} {scope:?}"
                );
            }
        }
    }
}

#[test]
fn a_listing_looks_at_the_jobs_that_changed() {
    let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
    (1..5000).for_each(|id| make(&mut state, &specs, id, &Change::Submit(0)));
    rows.follow(&mut state);
    assert_eq!(rows.templates_end(), 2, "one for each partition");
    make(&mut state, &specs, 77, &Change::Edit(1));
    assert_eq!(state.jobs.take_changed(), Some(vec![JobId(77)]));
}

#[test]
fn rows_that_nobody_asks_for_are_dropped() {
    let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
    (1..100).for_each(|id| make(&mut state, &specs, id, &Change::Submit(0)));
    rows.follow(&mut state);
    for n in 0..100_000 {
        make(&mut state, &specs, 1 + n % 2, &Change::Edit(1));
    }
    rows.drop_if_lost(&state);
    assert_eq!(rows.iter().count(), 0);
    rows.follow(&mut state);
    let all = &filters()[0];
    assert_eq!(listed(&state, Some(&rows), all), listed(&state, None, all));
}

/// Counting looked at every record: 30 ms of the thread that answers, with 100,000 jobs, for each scrape and each page.
#[test]
fn counting_looks_at_the_jobs_that_changed() {
    let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
    (1..5000).for_each(|id| make(&mut state, &specs, id, &Change::Submit(0)));
    let identity = Identity::default();
    rows.job_counts(&mut state, &identity);
    assert_eq!(
        rows.counts.as_ref().map(CountIndex::len),
        Some(2),
        "one for each partition"
    );
    make(&mut state, &specs, 77, &Change::Start);
    make(&mut state, &specs, 78, &Change::Remove);
    let noted = state.jobs.take_changed().unwrap();
    assert_eq!(noted, [JobId(77), JobId(78)]);
    noted
        .iter()
        .for_each(|id| rows.set(*id, state.jobs.get(id)));
    let counted = rows.job_counts(&mut state, &identity);
    assert_eq!(counted, counts::scanned(&state, &identity));
}

/// Numbers are kept while they are asked for, and not made anew each time where more changes than is noted.
#[test]
fn numbers_that_nobody_asks_for_are_dropped() {
    let (mut state, specs, mut rows) = (state(), specs(), Rows::default());
    (1..100).for_each(|id| make(&mut state, &specs, id, &Change::Submit(0)));
    let identity = Identity::default();
    let mut made = Vec::new();
    for _ in 0..9 {
        let counted = rows.job_counts(&mut state, &identity);
        assert_eq!(counted, counts::scanned(&state, &identity));
        made.push(rows.counts.is_some());
        for n in 0..100_000 {
            make(&mut state, &specs, 1 + n % 2, &Change::Edit(1));
        }
        rows.drop_if_lost(&state);
    }
    assert_eq!(
        made,
        [true, true, false, true, false, false, false, true, false]
    );
    for _ in 0..COUNTS_UNASKED_MAX / 50 {
        (1..100).for_each(|id| {
            make(
                &mut state,
                &specs,
                id,
                &Change::Edit(u32::try_from(id).unwrap()),
            )
        });
        rows.follow(&mut state);
    }
    assert!(rows.counts.is_none());
}
