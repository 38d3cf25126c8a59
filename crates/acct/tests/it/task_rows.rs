//! Tasks that are still in their array's record, asked for one by one.

use crate::query::{Scene, jobs};
use crate::support::{at, spec};
use muster_acct::History as _;
use muster_core::event::Event;
use muster_model::ids::JobId;
use muster_model::job::{Hold, Reason};
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_proto::acct::AcctJob;
use std::ops::ControlFlow;
use std::sync::Arc;

const LONG: usize = 60_000;

/// An array of `tasks`, all in its record, whose texts are as long as they may be.
fn with_long_texts(scene: &mut Scene, tasks: u32) -> JobId {
    let id = JobId(scene.state.next_job_id);
    let text = "x".repeat(LONG);
    scene.happens(Event::JobSubmitted {
        id,
        spec: Arc::new(JobSpec {
            submit_line: text.clone(),
            comment: Some(text.clone()),
            work_dir: format!("/{}", &text[..4000]),
            ..spec(1, Some(tasks), true)
        }),
        at: at(1),
        priority: 1,
        hold: Hold::None,
        time_limit: TimeLimit::Minutes(1),
        waiting_on: Vec::new(),
        reason: Reason::None,
        partition: "batch".to_owned(),
        requeueable: true,
        het: None,
    });
    id
}

/// Each had all texts of the record, and all of them were there before the first page left.
#[test]
fn tasks_of_one_record_come_in_pages_that_are_bounded() {
    let mut scene = Scene::new();
    let base = with_long_texts(&mut scene, 1000);
    let all: Vec<(u64, Option<u32>)> = (1..=1000).map(|index| (base.0, Some(index))).collect();
    let (mut pages, mut found): (Vec<usize>, Vec<AcctJob>) = (Vec::new(), Vec::new());
    let mut reader = scene.store.reader().unwrap();
    reader
        .query(&jobs(&all), 1_000_000, &mut |page| {
            pages.push(
                page.iter()
                    .map(|job| minicbor::to_vec(job).unwrap().len())
                    .sum(),
            );
            found.extend(page);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(pages.iter().all(|bytes| *bytes < 5 << 20), "{pages:?}");
    let bytes: usize = pages.iter().sum();
    assert!(bytes < 1000 * 16_000, "{bytes} bytes are sent");
    assert!(bytes > 1000 * 12_000, "{bytes} bytes are sent");
    let indices = found
        .iter()
        .map(|job| job.array.as_ref().map(|task| task.index));
    assert!(indices.eq((1..=1000).map(Some)));
    assert_eq!(
        (found[0].submit_line.len(), found[0].comment.len()),
        (LONG, LONG)
    );
    for job in &found[1..] {
        assert_eq!((job.submit_line.len(), job.comment.len()), (4096, 4096));
        assert_eq!((job.id, job.work_dir.len()), (base, 4001));
    }
    // No more is made than somebody reads.
    let mut pages = 0;
    reader
        .query(&jobs(&all), 1, &mut |page| {
            pages += page.len();
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(pages, 1);
}
