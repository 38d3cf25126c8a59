//! Licenses among the trackable resources of jobs.

use crate::query::{Scene, jobs};
use crate::support::{allocation, at, config, spec};
use muster_core::event::Event;
use muster_model::config::ClusterConfig;
use muster_model::ids::{Attempt, JobId};
use muster_model::job::{Allocation, Hold, Reason};
use muster_model::licenses::LicenseCount;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::sync::Arc;

/// Licenses that `AccountingStorageTRES` names are among the resources of jobs.
#[test]
fn licenses_that_are_accounted_are_resources_of_jobs() {
    let mut scene = Scene::new();
    scene.happens(Event::Configured {
        config: Arc::new(ClusterConfig {
            accounted_licenses: vec!["matlab".to_owned()],
            ..config(4)
        }),
        at: at(0),
        partitions: None,
    });
    let id = JobId(scene.state.next_job_id);
    scene.happens(Event::JobSubmitted {
        id,
        spec: Arc::new(JobSpec {
            licenses: Some("Matlab:2,other:1".to_owned()),
            ..spec(1, None, true)
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
    let counts = [
        LicenseCount::new("Matlab", 2),
        LicenseCount::new("other", 1),
    ];
    scene.happens(Event::JobStarted {
        id,
        attempt: Attempt(1),
        at: at(2),
        alloc: Arc::new(Allocation {
            licenses: counts.to_vec(),
            ..allocation(&[0], 1)
        }),
        configuring: false,
        priority: None,
    });
    let [job] = &scene.ask(&jobs(&[(id.0, None)]))[..] else {
        panic!("one job");
    };
    let expected = [("license/Matlab".to_owned(), 2)];
    assert_eq!(job.gres, expected);
    assert_eq!(job.req_gres, expected);
}
