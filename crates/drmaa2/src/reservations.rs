//! Sessions of reservations, which are Slurm's: their ids are numbers, as qrsub has them. Who may make them is the controller's to say:
//! operators, and users whom sge.conf lets (arusers).

use crate::abi;
use crate::error::{DrmaaCode, DrmaaError};
use crate::jobs;
use crate::store::{SessionEntry, SessionKind};
use crate::values::{AttributeMap, AttributeValue, EXTRAS, MachineSlots, TextPair};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::command::{NameList, Reply, ReservationAsk, UserCommand};
use muster_model::reservation::Reservation;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client::ReservationsAnswer;

/// The implementation-specific attribute of `drmaa2_rtemplate` with the partition that the slots are of.
pub const PARTITION: &str = "muster_rt_partition";
/// Implementation-specific attributes of `drmaa2_rinfo`, and what each is.
pub const INFO_EXTRAS: [(&str, &str); 2] = [
    ("muster_ri_partition", "partition that it is of"),
    ("muster_ri_accounts", "accounts whose jobs may run in it"),
];

/// Makes a reservation, and gives its id.
///
/// # Errors
/// The template makes none, or the controller refuses it.
pub fn request(session: &str, template: AttributeMap) -> Result<String, DrmaaError> {
    let store = jobs::store()?;
    store.read(SessionKind::Reservations, session)?;
    let now = now_s();
    let ask = ask(&template, now)?;
    let mut client = jobs::connect()?;
    let id = library::reserve(&mut client, ask)?;
    let entry = SessionEntry::Reserved(id.clone(), template);
    store.add(SessionKind::Reservations, session, &entry)?;
    Ok(id)
}

fn now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

fn unsupported(name: &str, why: &str) -> DrmaaError {
    DrmaaError::new(
        DrmaaCode::UnsupportedAttribute,
        format!("{name} of a reservation is not supported: {why}"),
    )
}

/// Request to the controller.
fn ask(template: &AttributeMap, now: i64) -> Result<ReservationAsk, DrmaaError> {
    for name in ["jobCategory", "minPhysMemory", "machineOS", "machineArch"] {
        if template.get(name).is_some() {
            return Err(unsupported(name, "leave it unset"));
        }
    }
    let machines = template.texts("candidateMachines");
    if machines.len() > 1 {
        let why = "one machine may be named, or none";
        return Err(unsupported("candidateMachines", why));
    }
    let at = |name: &str| match template.number(name) {
        Some(abi::NOW) => Ok(Some(now)),
        Some(at) if at < 0 => Err(DrmaaError::argument(format!(
            "{name} is {at}: a time, DRMAA2_NOW or DRMAA2_UNSET_TIME is expected"
        ))),
        at => Ok(at),
    };
    let length = template.number("duration");
    if let Some(length) = length.filter(|length| *length < 1) {
        return Err(DrmaaError::argument(format!(
            "duration is {length}: a number of seconds is expected"
        )));
    }
    // Two of the three times give the third.
    let (start, end) = match (at("startTime")?, at("endTime")?, length) {
        (Some(start), Some(end), _) => (start, end),
        (None, Some(end), Some(length)) => (end.saturating_sub(length), end),
        (None, Some(end), None) => (now, end),
        (start, None, Some(length)) => {
            let start = start.unwrap_or(now);
            (start, start.saturating_add(length))
        }
        (_, None, None) => {
            let why = "neither endTime nor duration is set: a reservation has an end";
            return Err(DrmaaError::argument(why));
        }
    };
    let seconds = u64::try_from(end.saturating_sub(start)).unwrap_or(0);
    if seconds == 0 {
        return Err(DrmaaError::argument("endTime is not after startTime"));
    }
    let minutes = u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX);
    let users = match template.texts("usersACL") {
        [] => vec![own_user()],
        users => users.to_vec(),
    };
    Ok(ReservationAsk {
        start: Some(Timestamp::from_unix_s(start)),
        duration: Some(TimeLimit::Minutes(minutes)),
        core_counts: vec![slots(template)?],
        nodes: machines.first().cloned(),
        partition: template.extra(PARTITION).map(str::to_owned),
        users: Some(NameList::Only(users)),
        comment: template.text("reservationName").map(str::to_owned),
        ..ReservationAsk::default()
    })
}

fn slots(template: &AttributeMap) -> Result<u32, DrmaaError> {
    let (least, most) = (template.number("minSlots"), template.number("maxSlots"));
    let own = least.unwrap_or(1);
    if most.is_some_and(|most| most != own) {
        let why = "a reservation has as many slots as it asks for; set minSlots to the same number";
        return Err(unsupported("maxSlots", why));
    }
    let count = u32::try_from(own).ok().filter(|count| *count > 0);
    count.ok_or_else(|| DrmaaError::argument(format!("minSlots is {own}: 1 or more is expected")))
}

fn own_user() -> String {
    let uid = nix::unistd::geteuid();
    let found = nix::unistd::User::from_uid(uid).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// The ids of all reservations that the user may see.
///
/// # Errors
/// The controller cannot be asked.
pub fn of_cluster() -> Result<Vec<String>, DrmaaError> {
    let answer = answer(&mut jobs::connect()?)?;
    Ok(answer
        .reservations
        .into_iter()
        .map(|own| own.name)
        .collect())
}

/// The ids of the session's reservations that are there.
///
/// # Errors
/// There is no such session, or the controller cannot be asked.
pub fn of_session(session: &str) -> Result<Vec<String>, DrmaaError> {
    let record = jobs::store()?.read(SessionKind::Reservations, session)?;
    let all = of_cluster()?;
    let own = record.reservations.into_keys();
    Ok(own.filter(|id| all.contains(id)).collect())
}

/// Template with which a reservation of the session was requested.
///
/// # Errors
/// The session does not have it.
pub fn template(session: Option<&str>, id: &str) -> Result<AttributeMap, DrmaaError> {
    let unknown = || {
        DrmaaError::argument(format!(
            "reservation \"{id:.100}\" is of no session that is known"
        ))
    };
    let session = session.ok_or_else(unknown)?;
    let record = jobs::store()?.read(SessionKind::Reservations, session)?;
    record.reservations.get(id).cloned().ok_or_else(unknown)
}

fn answer(client: &mut Client) -> Result<ReservationsAnswer, DrmaaError> {
    Ok(library::reservations(client)?)
}

/// The members of `drmaa2_rinfo`.
///
/// # Errors
/// It is over, or the controller cannot be asked.
pub fn info(id: &str) -> Result<AttributeMap, DrmaaError> {
    let answer = answer(&mut jobs::connect()?)?;
    let place = answer.reservations.iter().position(|own| own.name == id);
    let place = place.ok_or_else(|| {
        DrmaaError::new(
            DrmaaCode::InvalidState,
            format!("reservation \"{id:.100}\" is over, or was deleted"),
        )
    })?;
    let cpus = answer.cpus.get(place).copied();
    Ok(described(&answer.reservations[place], cpus))
}

fn described(own: &Reservation, cpus: Option<u64>) -> AttributeMap {
    let mut info = AttributeMap::default();
    let title = own.comment.as_deref().filter(|text| !text.is_empty());
    info.put_text("reservationId", own.name.as_str());
    info.put_text("reservationName", title.unwrap_or(&own.name));
    let number = AttributeValue::Number;
    info.put("reservedStartTime", number(own.start.unix_s()));
    info.put("reservedEndTime", number(own.end.unix_s()));
    let is_for_users = !own.users.is_empty() && !own.users_denied;
    info.put(
        "usersACL",
        is_for_users.then(|| AttributeValue::Texts(own.users.clone())),
    );
    let cpus = cpus.and_then(|cpus| i64::try_from(cpus).ok());
    info.put("reservedSlots", cpus.map(AttributeValue::Number));
    let machines = own.nodes.iter().map(|node| MachineSlots {
        machine: node.name.clone(),
        slots: node.cpus.as_ref().map(|cpus| i64::from(cpus.len())),
    });
    info.put(
        "reservedMachines",
        AttributeValue::Machines(machines.collect()),
    );
    let extras = [
        (
            "muster_ri_partition",
            own.partition.clone().unwrap_or_default(),
        ),
        ("muster_ri_accounts", own.accounts.join(",")),
    ];
    let extras = extras.into_iter().filter(|(_, value)| !value.is_empty());
    let extras = extras.map(|(key, value)| TextPair {
        key: key.to_owned(),
        value,
    });
    info.put(EXTRAS, AttributeValue::Pairs(extras.collect()));
    info
}

/// Deletes a reservation.
///
/// # Errors
/// It is over, or the user may not do it.
pub fn terminate(session: Option<&str>, id: &str) -> Result<(), DrmaaError> {
    info(id)?;
    let name = id.to_owned();
    match jobs::connect()?.command(UserCommand::DeleteReservation { name })? {
        Reply::Done { .. } => {}
        other => return Err(DrmaaError::unexpected(&other)),
    }
    let Some(session) = session else {
        return Ok(());
    };
    let entry = SessionEntry::Deleted(id.to_owned());
    match jobs::store()?.add(SessionKind::Reservations, session, &entry) {
        // A reservation may outlive its session.
        Err(error) if error.code != DrmaaCode::InvalidArgument => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn template(numbers: &[(&str, i64)]) -> AttributeMap {
        let mut all = AttributeMap::default();
        for (name, value) in numbers {
            all.put(name, AttributeValue::Number(*value));
        }
        all
    }

    #[test]
    fn of_three_times_two_make_the_third() {
        let times = |numbers: &[(&str, i64)]| {
            let own = ask(&template(numbers), NOW).unwrap();
            (own.start.map(Timestamp::unix_s), own.duration)
        };
        let minutes = |count| Some(TimeLimit::Minutes(count));
        assert_eq!(times(&[("duration", 90)]), (Some(NOW), minutes(2)));
        assert_eq!(
            times(&[("startTime", abi::NOW), ("duration", 60)]),
            (Some(NOW), minutes(1))
        );
        assert_eq!(
            times(&[("startTime", NOW + 5), ("endTime", NOW + 605)]),
            (Some(NOW + 5), minutes(10))
        );
        assert_eq!(
            times(&[("endTime", NOW + 600), ("duration", 60)]),
            (Some(NOW + 540), minutes(1))
        );
        for wrong in [
            &[("startTime", NOW)][..],
            &[("duration", 0)],
            &[("startTime", -5), ("duration", 60)],
            &[("startTime", NOW), ("endTime", NOW)],
        ] {
            let code = ask(&template(wrong), NOW).unwrap_err().code;
            assert_eq!(code, DrmaaCode::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn what_reservations_cannot_have_is_refused_by_name() {
        for (name, value) in [
            ("maxSlots", 2),
            ("minPhysMemory", 1),
            ("machineOS", 3),
            ("machineArch", 8),
        ] {
            let error = ask(&template(&[("duration", 60), (name, value)]), NOW).unwrap_err();
            assert_eq!(error.code, DrmaaCode::UnsupportedAttribute);
            assert!(error.text.contains(name), "{error}");
        }
        let mut own = template(&[("duration", 60), ("minSlots", 3), ("maxSlots", 3)]);
        own.put_text("reservationName", "n");
        let ask = ask(&own, NOW).unwrap();
        assert_eq!(
            (ask.core_counts, ask.comment),
            (vec![3], Some("n".to_owned()))
        );
    }
}
