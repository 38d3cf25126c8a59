//! `scontrol create`, `update` and `delete reservation`: the request is checked as a whole and becomes a record.
//! `nodes` chooses its nodes; `course` follows time and changes of nodes.

mod course;
mod feature_request;
mod nodes;
mod own;

pub(super) use course::{end_by, follow, tick};

use super::draft::Draft;
use super::texts::too_long;
use crate::event::Event;
use crate::policy::access::privacy::sees_reservation;
use crate::state::State;
use muster_model::accounts::ROOT;
use muster_model::command::{Identity, NameList, Reply, ReservationAsk};
use muster_model::licenses::LicenseCount;
use muster_model::limits::{NAME_BYTES_MAX, TEXT_BYTES_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::{Flags, Reservation};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};

/// Time in the past at which a reservation may begin, seconds: the way of the request.
const LATE_S: u64 = 600;
/// `Duration=UNLIMITED`.
const YEAR_S: u64 = 365 * 86_400;
/// `PURGE_COMP` without a time.
const PURGE_S: u32 = 300;

/// Makes a reservation.
pub(super) fn create(
    draft: &mut Draft<'_>,
    identity: &Identity,
    ask: &ReservationAsk,
) -> Result<Option<Reply>, Refusal> {
    check_texts(ask)?;
    let is_own = own::is_own(draft.state, identity);
    let ask = &match is_own {
        true => own::bounded(draft, identity, ask)?,
        false => ask.clone(),
    };
    let start = ask.start.ok_or(RefusalCode::InvalidTime)?;
    if start.plus_s(LATE_S) < draft.now {
        return Err(Refusal::new(
            RefusalCode::InvalidTime,
            "StartTime is in the past",
        ));
    }
    let mut made = Reservation {
        start,
        utc_offset_s: ask.utc_offset_s,
        ..Reservation::default()
    };
    apply_lists(draft.state, &mut made, ask)?;
    apply_plain(draft.state, &mut made, ask)?;
    made.end = end_of(ask, start, None).ok_or(RefusalCode::InvalidTime)?;
    check_times(draft, &mut made)?;
    if made.users.is_empty() && made.accounts.is_empty() && made.groups.is_empty() {
        return Err(RefusalCode::ReservationEmpty.into());
    }
    made.name = match ask.name.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => made_up_name(draft.state, &made),
    };
    if draft.state.reservations.get(&made.name).is_some() {
        return Err(RefusalCode::Duplicate.into());
    }
    if is_own {
        made.made_by = Some(identity.uid);
        own::check_partition(draft, identity, &made, ask)?;
    }
    nodes::choose(draft, &mut made, ask)?;
    if is_own {
        own::check_limits(draft, identity, &made)?;
    }
    settle(draft, &mut made);
    let name = made.name.clone();
    emit(draft, made);
    Ok(Some(Reply::Reserved { name }))
}

/// Changes a reservation.
pub(super) fn update(
    draft: &mut Draft<'_>,
    ask: &ReservationAsk,
) -> Result<Option<Reply>, Refusal> {
    check_texts(ask)?;
    let known = find(draft.state, ask.name.as_deref().unwrap_or_default())?;
    let mut new = known.clone();
    if ask.skip {
        let (start, end) = known.next_occurrence().ok_or(RefusalCode::NotSkippable)?;
        (new.start, new.end, new.active) = (start, end, false);
    }
    if let Some(start) = ask.start {
        if known.active {
            return Err(RefusalCode::ReservationStarted.into());
        }
        if start.plus_s(LATE_S) < draft.now {
            return Err(Refusal::new(
                RefusalCode::InvalidTime,
                "StartTime is in the past",
            ));
        }
        // The length stays unless it is given, too.
        new.end = new.end.plus_ms(start.since_ms(new.start));
        new.end = Timestamp(new.end.0 - i64::try_from(new.start.since_ms(start)).unwrap_or(0));
        new.start = start;
    }
    apply_lists(draft.state, &mut new, ask)?;
    apply_plain(draft.state, &mut new, ask)?;
    if let Some(end) = end_of(ask, new.start, Some(new.end)) {
        new.end = end;
    }
    check_times(draft, &mut new)?;
    if new.users.is_empty() && new.accounts.is_empty() && new.groups.is_empty() {
        return Err(RefusalCode::ReservationEmpty.into());
    }
    check_removed(known, &new, ask)?;
    let moved = (new.start, new.end) != (known.start, known.end);
    nodes::rechoose(draft, &mut new, ask, moved)?;
    settle(draft, &mut new);
    if new != *known {
        emit(draft, new);
    }
    Ok(Some(Reply::Done {
        changed: 1,
        refused: Vec::new(),
    }))
}

/// Deletes a reservation that nobody uses or asks for.
pub(super) fn delete(
    draft: &mut Draft<'_>,
    identity: &Identity,
    name: &str,
) -> Result<Option<Reply>, Refusal> {
    let known = find(draft.state, name)?;
    if own::is_own(draft.state, identity) {
        own::check_owner(identity, known)?;
    }
    if let Some(job) = draft
        .state
        .by_reservation
        .get(name)
        .and_then(|jobs| jobs.first())
    {
        return Err(Refusal::new(
            RefusalCode::ReservationBusy,
            format!("job {job} is in reservation {name} or asks for it"),
        ));
    }
    let (name, at) = (name.to_owned(), draft.now);
    draft.emit(Event::ReservationGone { name, at });
    Ok(Some(Reply::Done {
        changed: 1,
        refused: Vec::new(),
    }))
}

/// Refuses a job that asks for a reservation which it may not use. It may start in each that it names, so it is to be let into
/// all of them.
pub(super) fn check_access(
    state: &State,
    identity: &Identity,
    spec: &JobSpec,
) -> Result<(), Refusal> {
    if spec.reservation.is_some() && spec.reservations().next().is_none() {
        return Err(RefusalCode::InvalidReservation.into());
    }
    for name in spec.reservations() {
        let reservation = find(state, name)?;
        let own = identity.uid == spec.owner.uid;
        let mut groups = vec![spec.owner.group.as_str()];
        groups.extend(identity.groups.iter().filter(|_| own).map(String::as_str));
        if !reservation.admits(
            &state.accounts,
            &spec.owner.user,
            &groups,
            spec.account_name(),
        ) {
            return Err(match sees_reservation(state, identity, reservation) {
                true => not_for(reservation, spec),
                // One that may not be seen is not there.
                false => unknown(name),
            });
        }
    }
    Ok(())
}

/// As above, for a job that is let in and gets another account. A reservation that is gone lets nobody in.
pub(super) fn check_account(state: &State, spec: &JobSpec) -> Result<(), Refusal> {
    let (user, account) = (&spec.owner.user, spec.account_name());
    let mut known = spec
        .reservations()
        .filter_map(|name| state.reservations.get(name));
    match known.find(|reservation| !reservation.still_admits(&state.accounts, user, account)) {
        Some(reservation) => Err(not_for(reservation, spec)),
        None => Ok(()),
    }
}

fn not_for(reservation: &Reservation, spec: &JobSpec) -> Refusal {
    let (name, user) = (&reservation.name, &spec.owner.user);
    let text = match reservation.accounts.is_empty() {
        true => format!("reservation {name} is not for {user}"),
        false => format!(
            "reservation {name} is not for {user} in account {}",
            spec.account_name()
        ),
    };
    Refusal::new(RefusalCode::ReservationAccess, text)
}

fn find<'s>(state: &'s State, name: &str) -> Result<&'s Reservation, Refusal> {
    state.reservations.get(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Refusal {
    let text = format!("there is no reservation {name}");
    Refusal::new(RefusalCode::InvalidReservation, text)
}

fn emit(draft: &mut Draft<'_>, reservation: Reservation) {
    course::follow_end(draft, &reservation);
    draft.emit(Event::ReservationSet {
        reservation: Box::new(reservation),
        at: Some(draft.now),
    });
}

fn check_texts(ask: &ReservationAsk) -> Result<(), Refusal> {
    for (what, text) in [
        ("ReservationName", &ask.name),
        ("PartitionName", &ask.partition),
    ] {
        too_long(what, text.as_deref().unwrap_or_default(), NAME_BYTES_MAX)?;
    }
    for (what, text) in [
        ("Nodes", &ask.nodes),
        ("Features", &ask.features),
        ("Comment", &ask.comment),
    ] {
        too_long(what, text.as_deref().unwrap_or_default(), TEXT_BYTES_MAX)?;
    }
    let named = ask.name.as_deref().unwrap_or_default();
    if named.contains([',', ' ', '=']) {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("ReservationName={named}: names have no commas, blanks or equal signs"),
        ));
    }
    Ok(())
}

/// Refuses licenses that the cluster does not have, or not in this number.
fn check_licenses(state: &State, text: &str) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidLicense, why));
    let Some(counts) = muster_model::licenses::parse(text) else {
        return refuse(format!("Licenses={text}: expected name:count,..."));
    };
    for LicenseCount { name, count } in counts {
        let total = state.license_total(&name);
        if count > total {
            return refuse(format!("Licenses={text}: the cluster has {total} {name}"));
        }
    }
    Ok(())
}

/// Refuses accounts that there are not, where accounting says which there are: nobody could use the reservation.
fn check_accounts(state: &State, ask: &ReservationAsk) -> Result<(), Refusal> {
    let known = &state.accounts.accounts;
    let named = match &ask.accounts {
        Some(NameList::Only(all) | NameList::AllBut(all) | NameList::Add(all)) => &all[..],
        Some(NameList::Remove(_)) | None => &[],
    };
    let is_there = |name: &String| {
        name.eq_ignore_ascii_case(ROOT) || known.contains_key(&state.accounts.account_key(name))
    };
    match named
        .iter()
        .find(|name| !name.is_empty() && !is_there(name))
    {
        Some(name) if !known.is_empty() => Err(Refusal::new(
            RefusalCode::InvalidAccount,
            format!("there is no account {name}"),
        )),
        _ => Ok(()),
    }
}

/// Users, groups and accounts.
fn apply_lists(state: &State, new: &mut Reservation, ask: &ReservationAsk) -> Result<(), Refusal> {
    check_accounts(state, ask)?;
    change(&mut new.users, &mut new.users_denied, ask.users.as_ref());
    change(
        &mut new.accounts,
        &mut new.accounts_denied,
        ask.accounts.as_ref(),
    );
    let mut denied = false;
    change(&mut new.groups, &mut denied, ask.groups.as_ref());
    if denied {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            "Groups: groups are let in, not kept out",
        ));
    }
    if !new.users.is_empty() && !new.groups.is_empty() {
        return Err(RefusalCode::UsersAndGroups.into());
    }
    Ok(())
}

/// Refuses to take the last name off a list beside another one: both let a job in, and an empty list lets in all.
fn check_removed(
    known: &Reservation,
    new: &Reservation,
    ask: &ReservationAsk,
) -> Result<(), Refusal> {
    let lists = [
        ("Users", &ask.users, &known.users, &new.users),
        ("Accounts", &ask.accounts, &known.accounts, &new.accounts),
        ("Groups", &ask.groups, &known.groups, &new.groups),
    ];
    let is_opened = |asked: &Option<NameList>, before: &[String], after: &[String]| {
        matches!(asked, Some(NameList::Remove(_))) && !before.is_empty() && after.is_empty()
    };
    for (what, asked, before, after) in lists {
        if is_opened(asked, before, after) {
            let why = format!(
                "{what} would be empty, which lets in all that the other lists do: use {what}= if that is meant"
            );
            return Err(Refusal::new(RefusalCode::InvalidValue, why));
        }
    }
    Ok(())
}

fn change(list: &mut Vec<String>, denied: &mut bool, ask: Option<&NameList>) {
    match ask {
        None => {}
        Some(NameList::Only(names)) => (*list, *denied) = (names.clone(), false),
        Some(NameList::AllBut(names)) => (*list, *denied) = (names.clone(), true),
        // Letting in one of those kept out takes the name off the list, and the other way round.
        Some(NameList::Add(names)) if *denied => list.retain(|n| !names.contains(n)),
        Some(NameList::Remove(names)) if !*denied && !list.is_empty() => {
            list.retain(|n| !names.contains(n));
        }
        Some(NameList::Remove(names)) => {
            *denied = true;
            list.extend(
                names
                    .iter()
                    .filter(|n| !list.contains(n))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
        Some(NameList::Add(names)) => {
            list.extend(
                names
                    .iter()
                    .filter(|n| !list.contains(n))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
    }
    if list.is_empty() {
        *denied = false;
    }
}

fn apply_plain(state: &State, new: &mut Reservation, ask: &ReservationAsk) -> Result<(), Refusal> {
    if !new.name.is_empty() && ask.flags.has(Flags::TIME_FLOAT) {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            "TIME_FLOAT is given when a reservation is made",
        ));
    }
    if let Some((_, name)) = Flags::ALL
        .iter()
        .find(|(flag, _)| Flags::LASTING.has(*flag) && ask.flags_removed.has(*flag))
    {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            format!("the flag {name} is not taken away; delete the reservation and make it anew"),
        ));
    }
    new.flags = new.flags.with(ask.flags).without(ask.flags_removed);
    if let Some(text) = &ask.licenses {
        check_licenses(state, text)?;
        new.licenses = Some(text.clone()).filter(|t| !t.is_empty());
    }
    if ask.flags.has(Flags::PURGE_COMP) {
        new.purge_s = Some(ask.purge_s.unwrap_or(PURGE_S));
    } else if ask.flags_removed.has(Flags::PURGE_COMP) {
        new.purge_s = None;
    }
    if new.flags.has(Flags::TIME_FLOAT) && new.repeats() {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            "a reservation with TIME_FLOAT does not repeat",
        ));
    }
    if let Some(partition) = &ask.partition {
        let named = Some(partition).filter(|name| !name.is_empty());
        if named.is_some_and(|name| state.partition(name).is_none()) {
            return Err(Refusal::new(
                RefusalCode::InvalidPartition,
                format!("there is no partition {partition}"),
            ));
        }
        new.partition = named.cloned();
        if named.is_none() {
            // It keeps the nodes, and does not follow the partition any more.
            new.flags = new.flags.without(Flags::PART_NODES);
        }
    }
    if let Some(features) = &ask.features {
        let features = Some(features.clone()).filter(|f| !f.is_empty());
        if !new.name.is_empty() && features.is_some() && features != new.features {
            return Err(Refusal::new(
                RefusalCode::NotSupported,
                "Features are given when a reservation is made; Features= takes them back",
            ));
        }
        new.features = features;
    }
    if let Some(comment) = &ask.comment {
        new.comment = Some(comment.clone()).filter(|c| !c.is_empty());
    }
    if let Some(delay) = ask.max_start_delay_s {
        new.max_start_delay_s = Some(delay).filter(|s| *s > 0);
    }
    Ok(())
}

/// The end that is asked for.
fn end_of(ask: &ReservationAsk, start: Timestamp, now: Option<Timestamp>) -> Option<Timestamp> {
    let length_s = ask.duration.and_then(TimeLimit::seconds).unwrap_or(0);
    if let (Some(sign), Some(end)) = (ask.duration_sign, now) {
        return Some(match sign {
            '+' => end.plus_s(length_s),
            _ => Timestamp(end.0.saturating_sub_unsigned(length_s.saturating_mul(1000))),
        });
    }
    match (ask.duration, ask.end) {
        (Some(TimeLimit::Unlimited), _) => Some(start.plus_s(YEAR_S)),
        (Some(TimeLimit::Minutes(minutes)), _) => Some(start.plus_s(u64::from(minutes) * 60)),
        (None, Some(end)) => Some(end),
        (None, None) => now,
    }
}

fn check_times(draft: &Draft<'_>, new: &mut Reservation) -> Result<(), Refusal> {
    if new.end <= new.start || new.end <= draft.now {
        return Err(Refusal::new(
            RefusalCode::InvalidTime,
            "the reservation ends before it begins, or in the past",
        ));
    }
    if new.flags.has(Flags::TIME_FLOAT) && new.float_s.is_none() {
        new.float_s = Some(new.start.since_ms(draft.now).div_ceil(1000));
    }
    if let Some((next, _)) = new.next_occurrence()
        && next < new.end
    {
        return Err(Refusal::new(
            RefusalCode::InvalidTime,
            "the reservation would begin again before it ends",
        ));
    }
    Ok(())
}

/// Sets the fields that follow from its times and from its running jobs.
fn settle(draft: &Draft<'_>, new: &mut Reservation) {
    new.active = new.float_s.is_none() && new.start <= draft.now;
    let busy = draft
        .state
        .by_reservation
        .get(&new.name)
        .is_some_and(|jobs| {
            jobs.iter()
                .any(|id| draft.job(*id).is_some_and(|job| !job.nodes_held.is_empty()))
        });
    new.idle_since = match (new.purge_s, new.active, busy) {
        (Some(_), true, false) => Some(new.idle_since.unwrap_or(draft.now)),
        _ => None,
    };
}

/// The first user or account with a number behind it.
fn made_up_name(state: &State, made: &Reservation) -> String {
    let lists = [&made.users, &made.accounts, &made.groups];
    let first = lists.iter().find_map(|list| list.first());
    let stem = first.map_or("resv", String::as_str);
    let mut number = state.reservations_made + 1;
    loop {
        let name = format!("{stem}_{number}");
        if state.reservations.get(&name).is_none() {
            return name;
        }
        number += 1;
    }
}
