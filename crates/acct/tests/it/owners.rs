//! Jobs that are asked for by the names of their owners.

use crate::query::Scene;
use muster_model::job::JobState;
use muster_proto::acct::AcctQuery;

/// All jobs were read for a user whom the system does not know.
#[test]
fn owners_are_found_by_the_names_that_accounting_keeps() {
    let mut scene = Scene::new();
    for (n, at) in [(0, 10), (1, 20), (2, 30), (3, 40)] {
        let id = scene.submit(n, None, at);
        scene.start(id, &[0], at + 1);
        scene.end(id, JobState::Completed, None, at + 2);
    }
    let found = |users: &[&str], groups: &[&str]| -> Vec<u64> {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let query = AcctQuery {
            users: texts(users),
            groups: texts(groups),
            ..AcctQuery::default()
        };
        scene.ask(&query).iter().map(|job| job.id.0).collect()
    };
    assert_eq!(found(&["u0"], &[]), [1, 4]);
    assert_eq!(found(&["u2", "u1", "u1"], &["g"]), [2, 3]);
    assert_eq!(found(&["nobody"], &[]), []);
    assert_eq!(found(&["u0"], &["other"]), []);
    assert_eq!(found(&[], &["g"]), [1, 2, 3, 4]);
}
