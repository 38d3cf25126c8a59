//! Use of file systems by users (`muster storage scan`): kept by accounting's store alone.

use super::super::texts::too_long;
use crate::event::AccountsChange;
use muster_model::limits::{NAME_BYTES_MAX, TEXT_BYTES_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::storage::{StorageScan, StorageUse};
use muster_model::time::Timestamp;
use muster_model::visible_text::visible;

/// Milliseconds by which the clock of the scanned host may be ahead.
const AHEAD_MAX_MS: i64 = 3_600_000;

/// Records a scan of one file system.
pub(super) fn record(
    names: &[String],
    scan: &StorageScan,
    now: Timestamp,
) -> Result<Vec<AccountsChange>, Refusal> {
    let [name] = names else {
        let text = "name the one file system that was looked through";
        return Err(Refusal::new(RefusalCode::InvalidValue, text));
    };
    // Scans go by the times of later ones: one of the future would take all others with it.
    if scan.at.0 > now.0.saturating_add(AHEAD_MAX_MS) {
        let text =
            "the scan was made in the future: see that the clocks of both hosts are the same";
        return Err(Refusal::new(RefusalCode::InvalidValue, text));
    }
    too_long("the path", &scan.path, TEXT_BYTES_MAX)?;
    for user in &scan.users {
        too_long("the name of a user", &user.user, NAME_BYTES_MAX)?;
    }
    let users = scan.users.iter().map(|user| StorageUse {
        user: visible(&user.user).into_owned(),
        ..user.clone()
    });
    let scan = StorageScan {
        path: visible(&scan.path).into_owned(),
        users: users.collect(),
        ..scan.clone()
    };
    Ok(vec![AccountsChange::StorageRecorded {
        name: name.clone(),
        scan,
    }])
}
