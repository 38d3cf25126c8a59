//! Use of file systems (`muster storage scan`).

use crate::accounts::edit;
use crate::world::World;
use muster_model::command::AccountsAsk;
use muster_model::refusal::RefusalCode;
use muster_model::storage::StorageScan;
use muster_model::time::Timestamp;

#[test]
fn a_scan_of_the_future_is_refused() {
    let mut world = World::new();
    let scan = |at: i64| {
        AccountsAsk::RecordStorage(StorageScan {
            at: Timestamp(at),
            ..StorageScan::default()
        })
    };
    let now = world.now.0;
    let refused = world.refused(0, edit(&["home"], scan(now + 2 * 3_600_000)));
    assert_eq!(refused, RefusalCode::InvalidValue);
    world.must(0, edit(&["home"], scan(now)));
}
