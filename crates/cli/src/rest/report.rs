//! `GET /muster/v1/report`: the report of `muster report`, whose options are the parameters of the query.

use super::call::{Call, CallFailure, Outcome};
use crate::report::{Format, Request};
use crate::storage::{document, read};

/// Bytes of rows of a report: users choose how many there are.
const ROW_BYTES_MAX: usize = 64 << 20;

/// `GET report`.
pub(super) fn report(call: &mut Call<'_>) -> Outcome {
    let mut request = Request::default();
    request.format = Format::Json;
    request.row_bytes_max = ROW_BYTES_MAX;
    for (name, value) in std::mem::take(&mut call.query) {
        let set = request.set(&name, &value);
        set.map_err(|why| CallFailure::malformed(&name, format!("{name}={value}: {why}")))?;
    }
    // Beside it are the site's rules.
    let conf = call.ask(|client| Ok(client.endpoint.conf.clone()))?;
    let plan = request.plan(&conf);
    let plan = plan.map_err(|why| CallFailure::malformed("report", why))?;
    let work = call.ask(|client| plan.read(client))?;
    let report = work.report();
    let report = report.map_err(|why| CallFailure::malformed("report", why))?;
    call.media_type = Some(request.format.media_type());
    Ok(report.render(request.format))
}

/// `GET storage`: the document of `muster storage --format=json`.
pub(super) fn storage(call: &mut Call<'_>) -> Outcome {
    let answer = call.ask(read)?;
    let document = document(&answer);
    Ok(call.document(&call.context(), |w| w.raw("storage", document)))
}
