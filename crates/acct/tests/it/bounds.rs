//! Questions that take long, or that have more of an answer than a message holds.

use crate::support::{Directory, Driver, Op, at};
use muster_acct::{
    AccountingChange, History, NodeServiceRow, SqliteStore, Store, StoreError, changes,
};
use muster_model::node::NodeReason;
use muster_model::node_state::ServiceState;
use muster_proto::acct::AcctQuery;
use std::ops::ControlFlow;

/// A store with the rows of some jobs.
fn store(directory: &Directory) -> SqliteStore {
    let mut store = SqliteStore::open(&directory.file("acct.db")).unwrap();
    let mut driver = Driver::default();
    let mut all: Vec<AccountingChange> = Vec::new();
    for n in 0..200u16 {
        let op = Op(0, n, 1);
        for event in driver.events(&op) {
            driver.state.apply(&event);
            all.extend(changes(&driver.state, &event));
        }
    }
    store.write(&all, 1).unwrap();
    store
}

/// A question about all jobs ever was answered to its end while others waited, and also when nobody waited for the answer.
#[test]
fn a_question_is_ended_while_it_is_answered() {
    let directory = Directory::new();
    let store = store(&directory);
    let mut reader = store.reader().unwrap();
    let interrupter = reader.interrupter();
    // Nothing is read yet: nothing is ended.
    (interrupter.0)();
    let everything = AcctQuery::default();
    let mut pages = 0;
    reader
        .query(&everything, 1, &mut |_| {
            pages += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(pages > 50, "{pages}");
    let mut before = 0;
    let ended = reader.query(&everything, 1, &mut |_| {
        before += 1;
        (interrupter.0)();
        ControlFlow::Continue(())
    });
    assert!(matches!(ended, Err(StoreError::Sql(_))), "{ended:?}");
    assert!(before <= 2, "{before}");
    // The next question is another one; so is that of another reader of the file.
    for mut reader in [reader.another().unwrap(), reader] {
        let mut again = 0;
        reader
            .query(&everything, 1, &mut |_| {
                again += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(again, pages);
    }
}

/// All events of nodes were one message: above its limit nobody got any.
#[test]
fn more_events_than_a_message_holds_are_refused_with_what_to_ask_for() {
    let directory = Directory::new();
    let mut store = store(&directory);
    let text = "x".repeat(1000);
    let node = |n: i64| {
        AccountingChange::Node(Box::new(NodeServiceRow {
            node: format!("n{}", n % 100),
            at: at(n),
            service: ServiceState {
                drain: true,
                ..ServiceState::default()
            },
            reason: Some(NodeReason {
                text: format!("{n} {text}"),
                uid: 0,
                since: at(n),
            }),
        }))
    };
    let all: Vec<AccountingChange> = (0..20_000).map(node).collect();
    store.write(&all, 2).unwrap();
    let mut reader = store.reader().unwrap();
    match reader.node_events(&[], None, None) {
        Err(StoreError::TooMany(text)) => {
            assert!(text.contains("Start=") && text.contains("Nodes="), "{text}");
        }
        other => panic!("{:?}", other.map(|events| events.len())),
    }
    let named = reader.node_events(&["n1".to_owned()], None, None).unwrap();
    assert_eq!(named.len(), 200);
    let of_time = reader.node_events(&[], Some(at(19_000)), None).unwrap();
    assert!((1000..1200).contains(&of_time.len()), "{}", of_time.len());
}
