//! What sacctmgr changed, in the store.

use crate::query::{Scene, jobs};
use crate::support::at;
use muster_acct::History;
use muster_core::event::{AccountsChange, Event};
use muster_model::accounts::{JobNote, Transaction};
use muster_model::job::JobState;

#[test]
fn changes_of_accounting_are_logged_once() {
    let mut scene = Scene::new();
    let log = vec![Transaction {
        actor: "root".to_owned(),
        action: "Add Users".to_owned(),
        target: "ann".to_owned(),
        info: "Account=bio".to_owned(),
        users: vec!["ann".to_owned()],
        accounts: vec!["bio".to_owned(), "chem".to_owned()],
    }];
    let event = Event::AccountsChanged {
        changes: Vec::new(),
        at: at(10),
        log: log.clone(),
    };
    // What is written again, as after a crash, is the same line.
    scene.happens(event.clone());
    scene.happens(event);
    let mut reader = scene.store.reader().unwrap();
    let all = reader.transactions(None, None, None).unwrap().newest;
    let [entry] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!((entry.at, &entry.transaction), (at(10), &log[0]));
    assert_eq!(
        reader
            .transactions(Some(at(11)), None, None)
            .unwrap()
            .newest,
        []
    );
    assert_eq!(
        reader.transactions(None, Some(at(9)), None).unwrap().newest,
        []
    );
}

#[test]
fn texts_of_a_job_that_is_over_are_changed_by_its_owner_alone() {
    let mut scene = Scene::new();
    let id = scene.submit(1, None, 1);
    scene.start(id, &[0], 2);
    scene.end(id, JobState::Completed, None, 5);
    let uid = scene.state.jobs[&id].spec.owner.uid;
    let note = |text: &str| JobNote {
        comment: Some(text.to_owned()),
        derived_exit: Some(9),
        ..JobNote::default()
    };
    for (owner, text) in [(Some(uid + 1), "not his"), (Some(uid), "looked into")] {
        let changed = AccountsChange::JobNoted {
            job: id,
            owner,
            note: note(text),
        };
        scene.happens(Event::AccountsChanged {
            changes: vec![changed],
            at: at(20),
            log: Vec::new(),
        });
    }
    let job = scene.ask(&jobs(&[(id.0, None)])).remove(0);
    assert_eq!(job.comment, "looked into");
    assert_eq!((job.derived_exit.code, job.derived_exit.signal), (0, 9));
}
