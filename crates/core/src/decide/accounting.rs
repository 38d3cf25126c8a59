//! Edits of sacctmgr: accounts, users with their associations, and QOS. The commands name the wanted state; here it is
//! checked against the current one.

mod accounts;
mod clusters;
mod jobs;
mod names;
mod qos;
mod rights;
mod shared;
mod storage;
mod users;

use super::draft::Draft;
use super::texts::too_long;
use crate::event::{AccountsChange, Event};
use crate::policy::access;
use crate::state::State;
use muster_model::account_limits::{LimitAsk, Limits};
use muster_model::accounts::{Accounts, AssociationTerms, QosDelta, ROOT};
use muster_model::command::{AccountsAsk, AccountsEdit, Identity, ListEdit, Reply, TermsAsk};
use muster_model::limits::NAME_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::visible_text::is_control;

/// The records of accounts and users that an edit is about.
struct Records<'a> {
    accounts: &'a Accounts,
    /// The state that they are part of, with its jobs; nothing if another controller serves the cluster.
    own: Option<&'a State>,
}

impl<'a> Records<'a> {
    fn own(state: &'a State) -> Records<'a> {
        Records {
            accounts: &state.accounts,
            own: Some(state),
        }
    }
}

/// Carries an edit out, all of it or nothing.
pub(super) fn edit(
    draft: &mut Draft<'_>,
    identity: &Identity,
    edit: &AccountsEdit,
) -> Result<Option<Reply>, Refusal> {
    let changes = match clusters::other(draft.state, identity, edit)? {
        None => {
            let edit = &names::folded(&draft.state.accounts, edit);
            // Rights are looked at for each association that it is about.
            check(edit)?;
            rights::check(draft.state, identity, edit)?;
            match &edit.ask {
                AccountsAsk::NoteJobs(note) => {
                    jobs::note(draft.state, identity, &edit.names, note)?
                }
                AccountsAsk::RecordStorage(scan) => storage::record(&edit.names, scan, draft.now)?,
                _ => changes(draft.state, edit)?,
            }
        }
        Some(cluster) => clusters::edit_records(draft.state, identity, cluster, edit)?,
    };
    qos::check_no_circle(draft.state, &changes)?;
    let changed = u32::try_from(changes.len()).unwrap_or(u32::MAX);
    if !changes.is_empty() {
        let at = draft.now;
        // The notes of users about their own jobs are in the records of these.
        let is_own_note = matches!(edit.ask, AccountsAsk::NoteJobs(_))
            && !access::may(draft.state, identity, AccessRequest::AdminComment);
        let edit = &names::folded(&draft.state.accounts, edit);
        let log = match is_own_note {
            true => Vec::new(),
            false => vec![names::transaction(draft.state, identity, edit)],
        };
        draft.emit(Event::AccountsChanged { changes, at, log });
    }
    Ok(Some(Reply::Done {
        changed,
        refused: Vec::new(),
    }))
}

/// Refuses names that are none, and an edit of too much.
fn check(edit: &AccountsEdit) -> Result<(), Refusal> {
    edit.names.iter().try_for_each(|name| check_name(name))?;
    check_size(edit)?;
    check_limits(edit)
}

/// Amounts that the limits of one edit name.
const LIMIT_AMOUNTS_MAX: usize = 1 << 12;

/// Limits that one request sets, for each association or QOS that they are set for.
const LIMITS_SET_MAX: usize = 1 << 18;

/// Refuses limits that it would take long to set. All that they say is read again for each association. How many those have that are
/// named is not for all to know ([`check_limits_of_users`]).
fn check_limits(edit: &AccountsEdit) -> Result<(), Refusal> {
    let names = &edit.names;
    let (limits, set) = match &edit.ask {
        AccountsAsk::AddAccounts { terms, .. }
        | AccountsAsk::ModifyAccounts { terms, .. }
        | AccountsAsk::ModifyUsers { terms, .. } => (&terms.limits, names.len()),
        AccountsAsk::AddUsers {
            accounts: added,
            default_account,
            partitions,
            terms,
            ..
        } => {
            let of_each = users::added_to(added, default_account).count();
            (
                &terms.limits,
                names.len() * of_each * partitions.len().max(1),
            )
        }
        AccountsAsk::AddQos(ask) | AccountsAsk::ModifyQos(ask) => (&ask.limits, names.len()),
        AccountsAsk::AddClusters(ask) | AccountsAsk::ModifyClusters(ask) => {
            (&ask.terms.limits, names.len())
        }
        _ => return Ok(()),
    };
    check_amounts(limits, set)
}

/// As above, for all associations of these users.
fn check_limits_of_users(
    accounts: &Accounts,
    names: &[String],
    ask: &TermsAsk,
) -> Result<(), Refusal> {
    let users = names.iter().filter_map(|name| accounts.users.get(name));
    check_amounts(
        &ask.limits,
        users.map(|user| user.associations().count()).sum(),
    )
}

fn check_amounts(limits: &[LimitAsk], set: usize) -> Result<(), Refusal> {
    let of_one = |limit: &LimitAsk| limit.value.split(',').count();
    let amounts: usize = limits.iter().map(of_one).sum();
    if amounts <= LIMIT_AMOUNTS_MAX && amounts.saturating_mul(set) <= LIMITS_SET_MAX {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::InvalidValue,
        format!(
            "the edit sets limits of {amounts} amounts for {set}; {LIMIT_AMOUNTS_MAX} may be set, and {LIMITS_SET_MAX} for all together: make several of it"
        ),
    ))
}

/// Associations that one edit is about.
const ASSOCIATIONS_MAX: usize = 1 << 16;

/// Refuses an edit of users in accounts and partitions that would be about too many associations.
fn check_size(edit: &AccountsEdit) -> Result<(), Refusal> {
    let (accounts, partitions) = match &edit.ask {
        AccountsAsk::AddUsers {
            accounts,
            partitions,
            ..
        }
        | AccountsAsk::ModifyUsers {
            accounts,
            partitions,
            ..
        }
        | AccountsAsk::DeleteUsers {
            accounts,
            partitions,
        } => (accounts.len(), partitions.len()),
        AccountsAsk::AddCoordinators { accounts }
        | AccountsAsk::DeleteCoordinators { accounts }
        | AccountsAsk::ResetUsage { accounts } => (accounts.len(), 1),
        _ => return Ok(()),
    };
    let product = edit.names.len().max(1) * accounts.max(1) * partitions.max(1);
    match product <= ASSOCIATIONS_MAX {
        true => Ok(()),
        false => Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!(
                "the edit is about {product} associations, and may be about {ASSOCIATIONS_MAX}: make several of it"
            ),
        )),
    }
}

/// The changes of an edit of the controller's own cluster.
fn changes(state: &State, edit: &AccountsEdit) -> Result<Vec<AccountsChange>, Refusal> {
    let names = &edit.names;
    let records = &Records::own(state);
    if let Some(changes) = record_changes(records, edit)? {
        return Ok(changes);
    }
    match &edit.ask {
        AccountsAsk::AddClusters(ask) => clusters::add(state, names, ask),
        AccountsAsk::ModifyClusters(ask) => clusters::modify(state, names, ask),
        AccountsAsk::DeleteClusters => clusters::delete(state, names),
        AccountsAsk::SetResource(resource) => shared::set_resource(state, names, resource),
        AccountsAsk::DeleteResources => shared::delete_resources(state, names),
        AccountsAsk::SetFederation(federation) => shared::set_federation(state, names, federation),
        AccountsAsk::DeleteFederations => shared::delete_federations(state, names),
        AccountsAsk::SetFeatures(of) => shared::set_features(state, names, of),
        AccountsAsk::ResetAccountUsage => Ok(users::reset_account_usage(records, names)),
        AccountsAsk::ResetQosUsage => qos::reset_usage(state, names),
        AccountsAsk::ReserveJobIds(last) => jobs::reserve_ids(state, *last),
        AccountsAsk::SetUsage(all) => users::set_usage(records, all),
        AccountsAsk::AddQos(ask) => qos::add(state, names, ask),
        AccountsAsk::ModifyQos(ask) => qos::modify(state, names, ask),
        AccountsAsk::DeleteQos => qos::delete(state, names),
        AccountsAsk::ResetUsage { accounts } => Ok(users::reset_usage(records, names, accounts)),
        // It needs to know who asks; the others are of records.
        _ => Ok(Vec::new()),
    }
}

/// The changes of an edit of accounts, of users or of coordinators; nothing if it is of something else.
fn record_changes(
    records: &Records<'_>,
    edit: &AccountsEdit,
) -> Result<Option<Vec<AccountsChange>>, Refusal> {
    let names = &edit.names;
    match &edit.ask {
        AccountsAsk::AddAccounts {
            parent,
            description,
            organization,
            terms,
        } => accounts::add(records, names, parent, [description, organization], terms).map(Some),
        AccountsAsk::ModifyAccounts {
            parent,
            description,
            organization,
            terms,
        } => accounts::modify(records, names, parent, [description, organization], terms).map(Some),
        AccountsAsk::DeleteAccounts => accounts::delete(records, names).map(Some),
        AccountsAsk::AddUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        } => {
            let asked = users::UserEditRequest {
                accounts,
                partitions,
                default_account,
                admin_level,
                terms,
                wckeys,
            };
            users::add(records, names, &asked).map(Some)
        }
        AccountsAsk::ModifyUsers {
            accounts,
            default_account,
            admin_level,
            terms,
            wckeys,
            partitions,
        } => {
            let asked = users::UserEditRequest {
                accounts,
                partitions,
                default_account,
                admin_level,
                terms,
                wckeys,
            };
            users::modify(records, names, &asked).map(Some)
        }
        AccountsAsk::DeleteUsers {
            accounts,
            partitions,
        } => users::delete(records, names, accounts, partitions).map(Some),
        AccountsAsk::RenameUser { to } => users::rename(records, names, to).map(Some),
        AccountsAsk::AddCoordinators { accounts } => {
            users::add_coordinators(records, names, accounts).map(Some)
        }
        AccountsAsk::DeleteCoordinators { accounts } => {
            users::delete_coordinators(records, names, accounts).map(Some)
        }
        AccountsAsk::DeleteWckeys(keys) => users::delete_wckeys(records, names, keys).map(Some),
        _ => Ok(None),
    }
}

/// Whether a list of names selects this one: an empty list selects all.
fn selects(list: &[String], name: &String) -> bool {
    list.is_empty() || list.contains(name)
}

/// The parent that an account is to get.
fn parent_or_root(parent: &str) -> &str {
    if parent.is_empty() { ROOT } else { parent }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    too_long("the name", name, NAME_BYTES_MAX)?;
    let bad = |c: char| is_control(c) || "=,".contains(c);
    if name.trim().is_empty() || name.trim() != name || name.contains(bad) {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!(
                "invalid name '{name}': commas, equal signs and surrounding blanks are not allowed"
            ),
        ));
    }
    Ok(())
}

fn check_terms(accounts: &Accounts, ask: &TermsAsk) -> Result<(), Refusal> {
    let named = ask.qos.iter().flat_map(|edit| &edit.names);
    let named = named.chain(&ask.qos_less);
    for name in named.chain(ask.default_qos.iter().filter(|n| !n.is_empty())) {
        if accounts.qos(name).is_none() {
            return Err(qos::not_found(name));
        }
    }
    set_limits(&mut Limits::default(), &ask.limits, false)
}

/// Sets limits, one after another.
fn set_limits(limits: &mut Limits, asked: &[LimitAsk], qos: bool) -> Result<(), Refusal> {
    for ask in asked {
        let wrong = |why| Refusal::new(RefusalCode::InvalidValue, why);
        limits.set(ask, qos).map_err(wrong)?;
    }
    Ok(())
}

fn set_terms(terms: &mut AssociationTerms, ask: &TermsAsk) -> Result<(), Refusal> {
    if let Some(shares) = ask.shares {
        terms.shares = shares;
    }
    if let Some(priority) = ask.priority {
        terms.priority = priority;
    }
    if let Some(qos) = &ask.default_qos {
        terms.default_qos = Some(qos.clone()).filter(|q| !q.is_empty());
    }
    // They were looked at before, but not with those that there are.
    set_limits(&mut terms.limits, &ask.limits, false)?;
    if let Some(ListEdit { sign, names }) = &ask.qos {
        set_qos(terms, *sign, names);
    }
    if !ask.qos_less.is_empty() {
        set_qos(terms, Some('-'), &ask.qos_less);
    }
    Ok(())
}

/// As above, of `root`, which has none above: an empty list of QOS stays one.
fn set_root_terms(terms: &mut AssociationTerms, ask: &TermsAsk) -> Result<(), Refusal> {
    let had_list = terms.qos.is_some();
    set_terms(terms, ask)?;
    let clears = |list: &ListEdit| list.sign.is_none() && list.names.is_empty();
    if terms.qos.is_none() && (had_list || ask.qos.as_ref().is_some_and(clears)) {
        terms.qos = Some(Vec::new());
    }
    Ok(())
}

/// A list replaces what there was, an empty one clears it; with a sign it changes the list that is set, or what the
/// association has beside that of the account above.
fn set_qos(terms: &mut AssociationTerms, sign: Option<char>, names: &[String]) {
    let Some(sign) = sign else {
        terms.qos = Some(names.to_vec()).filter(|list| !list.is_empty());
        terms.qos_delta = QosDelta::default();
        return;
    };
    if let Some(list) = &mut terms.qos {
        edit_list(list, Some(sign), names);
        if list.is_empty() {
            terms.qos = None;
        }
        return;
    }
    let delta = &mut terms.qos_delta;
    let (to, from) = match sign {
        '-' => (&mut delta.less, &mut delta.more),
        _ => (&mut delta.more, &mut delta.less),
    };
    edit_list(to, Some('+'), names);
    edit_list(from, Some('-'), names);
}

/// `=`, `+=` and `-=` of a list.
fn edit_list(list: &mut Vec<String>, sign: Option<char>, names: &[String]) {
    match sign {
        Some('-') => list.retain(|n| !names.contains(n)),
        Some(_) => {
            let new: Vec<String> = names
                .iter()
                .filter(|n| !list.contains(n))
                .cloned()
                .collect();
            list.extend(new);
        }
        None => *list = names.to_vec(),
    }
}
