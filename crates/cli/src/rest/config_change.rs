//! `POST config` of accounting: records of several kinds in one request, as `GET config` answers them. Each kind goes the way that its
//! own path goes, in the order in which records need each other. It is not all or nothing: what came before an error stays.

use super::account_change;
use super::call::{Call, CallFailure, Handler, Outcome};
use super::errno;
use super::http::HttpStatus;
use serde_json::{Map, Value};

/// Kinds by their names in a body (up to v0.0.38 some have capitals), and what carries them out.
const KINDS: &[(&[&str], Handler)] = &[
    (&["clusters"], account_change::clusters),
    (&["accounts"], account_change::accounts),
    (&["qos", "QOS"], account_change::qos),
    (&["users"], account_change::users),
    (&["associations"], account_change::associations),
    (&["wckeys"], account_change::wckeys),
];
/// Members of answers beside records, and counts, which follow from the nodes.
const OTHERS: [&str; 8] = [
    "tres",
    "TRES",
    "instances",
    "meta",
    "errors",
    "warnings",
    "last_backup",
    "federations",
];

/// `POST config`.
pub(super) fn config(call: &mut Call<'_>) -> Outcome {
    let Value::Object(mut body) = std::mem::take(&mut call.body) else {
        return Err(CallFailure::malformed("body", "the body is not an object"));
    };
    let is_kind = |key: &str| KINDS.iter().any(|(names, _)| names.contains(&key));
    for (key, value) in &body {
        if is_kind(key) && !value.is_array() {
            return Err(CallFailure::malformed(key, "expected a list"));
        }
        if !is_kind(key) && !OTHERS.contains(&key.as_str()) {
            call.warn(key, format!("{key} has no effect here"));
        }
    }
    if !body.keys().any(|key| is_kind(key)) {
        let why = "the body has none of clusters, accounts, qos, users, associations, wckeys";
        let status = HttpStatus::BAD_REQUEST;
        return Err(CallFailure::numbered(
            status,
            errno::FAIL_PARSING,
            "config",
            why,
        ));
    }
    for (names, handler) in KINDS {
        let Some(list) = names.iter().find_map(|name| body.remove(*name)) else {
            continue;
        };
        call.body = Map::from_iter([(names[0].to_owned(), list)]).into();
        // Its document is that of the whole.
        handler(call)?;
    }
    call.done()
}

/// `POST tres`: refused, as in Slurm.
pub(super) fn tres(_: &mut Call<'_>) -> Outcome {
    let why = "what is counted follows from the nodes and AccountingStorageTRES of slurm.conf";
    let (status, number) = (HttpStatus::INTERNAL_ERROR, errno::NOT_SUPPORTED);
    Err(CallFailure::numbered(status, number, "tres", why))
}
