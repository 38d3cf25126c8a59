//! Frames of requests and answers: what is read is what was written, and listings are small.

use super::*;
use crate::frame;
use muster_model::listing_codec::{RowValues, TemplateTable};
use muster_model::shared_spec::SpecTable;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::sync::Arc;

fn jobs(names: &[&str]) -> Vec<Job> {
    let spec = |name: &str| JobSpec {
        name: name.to_owned(),
        ..JobSpec::default()
    };
    let first: Arc<JobSpec> = Arc::new(spec(names[0]));
    let of = |name: &str| match name == names[0] {
        true => first.clone(),
        false => Arc::new(spec(name)),
    };
    let at = Timestamp::default();
    (1..)
        .zip(names)
        .map(|(id, name)| Job::new(JobId(id), of(name), TimeLimit::Unlimited, at))
        .collect()
}

#[test]
fn records_are_read_as_they_were_written_from_where_they_lie() {
    let jobs = jobs(&["a", "b", "a", "a"]);
    let (mut writes, mut reads) = (SpecTable::default(), SpecTable::default());
    // Parts of one answer share a table.
    for (part, more) in [(&jobs[..3], true), (&jobs[3..], true), (&jobs[..], false)] {
        let (mut records, mut templates) = (ListingWriter::default(), TemplateTable::default());
        for job in part {
            let template = templates.of(job, &mut records, &mut writes);
            records.record(template, &RowValues::of(job));
        }
        let written = JobsResponse::Jobs(WrittenJobsPage {
            jobs: records,
            arrays: vec![(JobId(7), ArrayInfo::default())],
            unknown: vec![JobId(9)],
            more,
            now: Timestamp(5),
            ..WrittenJobsPage::default()
        });
        let bytes = frame::encode(&written);
        let mut read = super::decode_answer(&bytes[4..], &mut reads).unwrap();
        if let Response::Jobs(part) = &mut read {
            part.jobs = std::mem::take(&mut part.jobs).into_jobs().into();
        }
        let expected = Response::Jobs(Box::new(JobsPage {
            jobs: part.to_vec().into(),
            arrays: vec![(JobId(7), ArrayInfo::default())],
            unknown: vec![JobId(9)],
            more,
            now: Timestamp(5),
            ..JobsPage::default()
        }));
        assert_eq!(read, expected);
    }
}
