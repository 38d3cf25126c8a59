//! Use of file systems by users.

use crate::support::Directory;
use muster_acct::{AccountingChange, History as _, SqliteStore, Store as _};
use muster_model::storage::{StorageScan, StorageUse};
use muster_model::time::Timestamp;

const DAY_S: i64 = 86_400;

fn scan(name: &str, day: i64, users: &[(&str, u64)]) -> AccountingChange {
    let users = users.iter().map(|(user, bytes)| StorageUse {
        user: (*user).to_owned(),
        bytes: *bytes,
        files: 1,
    });
    AccountingChange::Storage {
        name: name.to_owned(),
        scan: Box::new(StorageScan {
            at: Timestamp::from_unix_s(day * DAY_S),
            path: format!("/{name}"),
            users: users.collect(),
            ..StorageScan::default()
        }),
    }
}

#[test]
fn the_latest_scan_of_each_file_system_is_read_with_what_was_before() {
    let directory = Directory::new();
    let mut store = SqliteStore::open(&directory.file("new.db")).unwrap();
    let changes = [
        scan("home", 1, &[("ada", 5)]),
        scan("home", 480, &[("ada", 10), ("bob", 7)]),
        scan("home", 500, &[("ada", 30)]),
        // Parts of one scan, one of them twice.
        scan("home", 500, &[("bob", 4), ("eve", 40)]),
        scan("home", 500, &[("bob", 4), ("eve", 40)]),
        scan("work", 499, &[("ada", 1)]),
    ];
    store.write(&changes, 1).unwrap();
    let mut reader = store.reader().unwrap();
    let all = reader.storage(None).unwrap();
    let shown: Vec<_> = all
        .filesystems
        .iter()
        .map(|filesystem| {
            let users = filesystem.users.iter();
            let users: Vec<_> = users
                .map(|user| (user.now.user.as_str(), user.now.bytes, user.bytes_before))
                .collect();
            (filesystem.name.as_str(), filesystem.since.is_some(), users)
        })
        .collect();
    let home = vec![
        ("eve", 40, None),
        ("ada", 30, Some(10)),
        ("bob", 4, Some(7)),
    ];
    assert_eq!(
        shown,
        [
            ("home", true, home),
            ("work", false, vec![("ada", 1, None)])
        ]
    );
    let own = reader.storage(Some("bob")).unwrap();
    assert!(own.own_only && own.left_out == 0);
    assert_eq!(own.filesystems[0].users.len(), 1);
    assert!(own.filesystems[1].users.is_empty());
    // The one that is older than is kept has gone.
    let file = rusqlite::Connection::open(directory.file("new.db")).unwrap();
    let scans: i64 = file
        .query_row("SELECT count(*) FROM storage_scan", [], |row| row.get(0))
        .unwrap();
    assert_eq!(scans, 3);
}
