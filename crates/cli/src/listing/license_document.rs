//! Licenses as a document.

use super::document::Writer;
use muster_model::licenses::License;

/// Writes the main part of a document with the licenses.
pub(crate) fn write(w: &mut Writer<'_>, licenses: &[&License]) {
    w.list("licenses", |w| {
        for license in licenses {
            w.item(|w| one_license(w, license));
        }
    });
    if !w.is_old() {
        w.time("last_update", Some(crate::zone::now()));
    }
}

fn one_license(w: &mut Writer<'_>, license: &License) {
    let free = license.total.saturating_sub(license.used);
    w.text("LicenseName", &license.name);
    w.raw("Total", license.total);
    w.raw("Used", license.used);
    w.raw("Free", free);
    if w.is_old() {
        w.raw("Reserved", license.reserved);
        return w.raw("Remote", license.remote);
    }
    w.raw("Remote", license.remote);
    w.raw("Reserved", license.reserved);
    w.raw("LastConsumed", 0);
    w.raw("LastDeficit", 0);
    w.raw("LastUpdate", 0);
    if w.version() >= 44 {
        w.text("Nodes", "");
    }
}
