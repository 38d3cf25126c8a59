//! Listings in templates and differences: what is read is what was written.

use super::*;
use crate::ids::Attempt;
use crate::job::{JobState, Reason};
use crate::shared_spec::SpecTable;
use crate::spec::JobSpec;
use crate::time::TimeLimit;
use proptest::prelude::*;

/// A record of one of some specifications. The last number chooses what else is unusual of it.
fn job(specs: &[Arc<JobSpec>], of: (u64, usize, i64, i64, u32, u8)) -> Job {
    let (id, spec, submitted, waits, priority, unusual) = of;
    let at = Timestamp(submitted);
    let mut job = Job::new(
        JobId(id),
        Arc::clone(&specs[spec]),
        TimeLimit::Minutes(60),
        at,
    );
    job.priority = priority;
    job.partition = "batch".to_owned();
    job.eligible_time = (unusual != 1).then(|| Timestamp(submitted.wrapping_add(waits)));
    job.predicted_s = (unusual != 2).then_some(priority / 3);
    job.last_sched_eval = (unusual == 3).then_some(at);
    match unusual {
        4 => job.state = JobState::Running,
        5 => job.reason = Reason::Dependency,
        6 => job.attempt = Attempt(7),
        _ => {}
    }
    job
}

fn specs() -> Vec<Arc<JobSpec>> {
    let named = |name: &str| JobSpec {
        name: name.to_owned(),
        ..JobSpec::default()
    };
    ["a", "b", "c"].map(|name| Arc::new(named(name))).to_vec()
}

fn written(jobs: &[Job], codec: &mut SpecTable) -> Vec<u8> {
    let (mut writer, mut templates) = (ListingWriter::default(), TemplateTable::default());
    for job in jobs {
        let template = templates.of(job, &mut writer, codec);
        writer.record(template, &RowValues::of(job));
    }
    assert_eq!(writer.len() as usize, jobs.len());
    minicbor::to_vec(&writer).unwrap()
}

fn read(bytes: &[u8], codec: &mut SpecTable) -> Result<CompactListing, Error> {
    minicbor::decode_with(bytes, codec)
}

prop_compose! {
    fn records()(of in prop::collection::vec(
        // Mostly what users submit: the next number, some milliseconds later.
        prop_oneof![
            4 => (1_u64..3, 0_usize..3, 0_i64..50, 0_i64..2, 0_u32..9, Just(0_u8)),
            1 => (any::<u64>(), 0_usize..3, any::<i64>(), any::<i64>(), any::<u32>(), 0_u8..7),
        ],
        0..40,
    )) -> Vec<Job> {
        let specs = specs();
        let mut last = (1000_u64, 1_800_000_000_000_i64);
        of.into_iter().map(|mut of| {
            last = (last.0.wrapping_add(of.0), last.1.wrapping_add(of.2));
            (of.0, of.2) = last;
            job(&specs, of)
        }).collect()
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(parts in prop::collection::vec(records(), 1..3)) {
        let (mut writer, mut reader) = (SpecTable::default(), SpecTable::default());
        for jobs in &parts {
            let bytes = written(jobs, &mut writer);
            let listed = read(&bytes, &mut reader).unwrap();
            prop_assert!(jobs.len() >= listed.templates.len());
            let again = minicbor::to_vec_with(&listed, &mut SpecTable::default()).unwrap();
            let again = read(&again, &mut SpecTable::default()).unwrap();
            prop_assert_eq!(&listed.into_jobs(), jobs);
            prop_assert_eq!(&again.into_jobs(), jobs);
            prop_assert_eq!(&CompactListing::from(jobs.clone()).into_jobs(), jobs);
        }
    }

    #[test]
    fn numbers_are_all_that_records_of_a_form_differ_in(jobs in records()) {
        for pair in jobs.windows(2).filter(|pair| same_template(&pair[0], &pair[1])) {
            let mut job = pair[0].clone();
            RowValues::of(&pair[1]).put(&mut job);
            prop_assert_eq!(&job, &pair[1]);
        }
    }

    #[test]
    fn damage_is_an_error_or_other_records(jobs in records(), at: prop::sample::Index, byte: u8) {
        let mut bytes = written(&jobs, &mut SpecTable::default());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for damaged in [&bytes[..], &bytes[..at]] {
            let _ = read(damaged, &mut SpecTable::default()).map(CompactListing::into_jobs);
        }
    }
}

#[test]
fn jobs_of_a_loop_take_a_few_bytes_each() {
    let specs = specs();
    let of = |n: u64| {
        job(
            &specs,
            (1000 + n, 0, 1_800_000_000_000 + 3 * n as i64, 0, 9, 0),
        )
    };
    let jobs: Vec<Job> = (0..1000).map(of).collect();
    let all = written(&jobs, &mut SpecTable::default()).len();
    let first = written(&jobs[..1], &mut SpecTable::default()).len();
    assert!(
        all - first <= 999 * 2 + 8,
        "{all} bytes, {first} of them for the first"
    );
}

#[test]
fn users_that_take_turns_cost_no_more() {
    let specs = specs();
    let of = |n: u64| job(&specs, (n, n as usize % 3, n as i64, 0, 9, 0));
    let jobs: Vec<Job> = (0..300).map(of).collect();
    let all = written(&jobs, &mut SpecTable::default());
    let whole = written(&jobs[..3], &mut SpecTable::default()).len();
    assert!(
        all.len() < whole + 300 * 5,
        "{} bytes, {whole} for the first of each",
        all.len()
    );
    let listed = read(&all, &mut SpecTable::default()).unwrap();
    let counts: Vec<u32> = listed.templates.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [100, 100, 100]);
}

#[test]
fn what_runs_between_others_leaves_them_alike() {
    let specs = specs();
    let of = |n: u64| {
        let mut job = job(&specs, (n, 0, n as i64, 0, 9, 0));
        if n.is_multiple_of(2) {
            job.state = JobState::Running;
            job.alloc = Some(Arc::default());
        }
        job
    };
    let jobs: Vec<Job> = (0..100).map(of).collect();
    let bytes = written(&jobs, &mut SpecTable::default());
    let listed = read(&bytes, &mut SpecTable::default()).unwrap();
    assert_eq!(listed.templates.len(), 51);
    assert_eq!(listed.into_jobs(), jobs);
}

#[test]
fn a_record_of_no_form_is_an_error() {
    let error = read(&[0x82, 0x80, 0x41, 0], &mut SpecTable::default()).unwrap_err();
    assert!(error.to_string().contains("not there"), "{error}");
}
