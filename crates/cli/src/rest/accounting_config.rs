//! All records of accounting but jobs, in one document.

use super::accounts::{load, one_association, one_qos, one_user, root_account, short_list, wckey};
use super::call::{Call, Outcome};
use super::clusters::OwnCluster;
use muster_model::accounts::ROOT;

/// `GET config`: all records of accounting together.
pub(super) fn show(call: &mut Call<'_>) -> Outcome {
    let book = load(call)?;
    let all = book.sorted();
    let root = root_account();
    let own = OwnCluster::load(call)?;
    let names = own.names(&book);
    Ok(call.document(&call.context(), |w| {
        w.list("clusters", |w| own.write_clusters(w, &names));
        let tres = if w.is_old() { "TRES" } else { "tres" };
        own.write_tres_list(w, tres);
        if (40..45).contains(&w.version()) {
            w.list("instances", |_| {});
        }
        w.list("accounts", |w| {
            let accounts = book.all.accounts.values().filter(|a| a.name != ROOT);
            for account in [&root].into_iter().chain(accounts) {
                w.item(|w| {
                    short_list(w, &all, &book, |a| a.account == account.name);
                    w.list("coordinators", |_| {});
                    w.text("description", &account.description);
                    w.text("name", &account.name);
                    w.text("organization", &account.organization);
                    w.list("flags", |_| {});
                });
            }
        });
        w.list("associations", |w| {
            for association in &all {
                w.item(|w| one_association(w, association, &book));
            }
        });
        w.list("users", |w| {
            for user in book.all.users.values() {
                w.item(|w| one_user(w, user, &all, &book));
            }
        });
        w.list(if w.is_old() { "QOS" } else { "qos" }, |w| {
            for qos in book.all.qos.values() {
                w.item(|w| one_qos(w, qos));
            }
        });
        w.list("wckeys", |w| {
            for user in book.all.users.values() {
                for key in &user.wckeys {
                    w.item(|w| wckey(w, key, user, &book));
                }
            }
        });
    }))
}
