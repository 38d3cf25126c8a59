//! Reservations that are made or changed: keys of a body become the fields of `scontrol create reservation` and `scontrol update
//! ReservationName=`. One whose name is there already is changed.

use super::call::{Call, CallFailure, Outcome};
use super::job_keys::member;
use super::submission::Body;
use super::value::{self, GivenValue};
use crate::connect::unexpected;
use crate::listing::query;
use crate::scontrol::reservation;
use crate::zone::{self, LocalZone};
use muster_conf::options::values::time;
use muster_model::command::{Reply, ReservationAsk, UserCommand};
use muster_model::time::Timestamp;
use muster_proto::client::Response;
use serde_json::Value;
use std::collections::HashSet;

/// Reservations of one request.
const RESERVATIONS_MAX: usize = 1000;

/// Key of a body, and the field of scontrol that it is.
#[rustfmt::skip]
const FIELDS: &[(&str, &str)] = &[
    ("accounts", "Accounts"),
    ("burst_buffer", "BurstBuffer"),
    ("comment", "Comment"),
    ("core_count", "CoreCnt"),
    ("duration", "Duration"),
    ("end_time", "EndTime"),
    ("features", "Features"),
    ("flags", "Flags"),
    ("groups", "Groups"),
    ("licenses", "Licenses"),
    ("max_start_delay", "MaxStartDelay"),
    ("name", "ReservationName"),
    ("node_count", "NodeCnt"),
    ("node_list", "Nodes"),
    ("partition", "PartitionName"),
    ("start_time", "StartTime"),
    ("tres", "TRES"),
    ("users", "Users"),
];

/// `POST reservation`.
pub(super) fn one(call: &mut Call<'_>) -> Outcome {
    match std::mem::take(&mut call.body) {
        Value::Object(body) => make(call, vec![body]),
        _ => Err(CallFailure::malformed(
            "body",
            "the body is not an object with a reservation's keys",
        )),
    }
}

/// `POST reservations`.
pub(super) fn many(call: &mut Call<'_>) -> Outcome {
    let name = "reservations";
    let Value::Array(items) = call.body[name].take() else {
        return Err(CallFailure::malformed(name, "the body has no such list"));
    };
    if items.len() > RESERVATIONS_MAX {
        let why = format!("a request may have {RESERVATIONS_MAX} at most");
        return Err(CallFailure::malformed(name, why));
    }
    let bodies = items.into_iter().map(|item| match item {
        Value::Object(body) => Ok(body),
        _ => Err(CallFailure::malformed(name, "an item is not an object")),
    });
    make(call, bodies.collect::<Result<_, _>>()?)
}

fn make(call: &mut Call<'_>, mut bodies: Vec<Body>) -> Outcome {
    let mut known: Option<HashSet<String>> = None;
    for body in &mut bodies {
        let words = words(call, body)?;
        let known = match &mut known {
            Some(known) => known,
            None => {
                let all = call.ask(query::reservations)?.reservations;
                known.insert(all.into_iter().map(|r| r.name).collect())
            }
        };
        let name = body.get("name").and_then(Value::as_str).unwrap_or("");
        let command = match known.contains(name) {
            true => UserCommand::UpdateReservation(ask(reservation::change_of_words(&words))?),
            false => UserCommand::CreateReservation(ask(reservation::of_words(&words))?),
        };
        match call.ask(|client| client.command(command))? {
            Reply::Reserved { name } => {
                known.insert(name.clone());
                body.insert("name".to_owned(), name.into());
            }
            Reply::Done { refused, .. } => {
                if let Some((_, refusal)) = refused.into_iter().next() {
                    return Err(call.refusal(&refusal));
                }
            }
            other => {
                let error = unexpected(&Response::Reply(Box::new(other)));
                return Err(call.failure(&error));
            }
        }
    }
    answer(call, &bodies)
}

fn ask(read: Result<ReservationAsk, String>) -> Result<Box<ReservationAsk>, CallFailure> {
    read.map(Box::new)
        .map_err(|why| CallFailure::malformed("reservation", why))
}

/// The requested reservations, with their names now.
fn answer(call: &mut Call<'_>, bodies: &[Body]) -> Outcome {
    Ok(call.document(&call.context(), |w| {
        w.list("reservations", |w| {
            for body in bodies {
                w.item(|w| {
                    for key in ["name", "partition", "comment"] {
                        if let Some(Value::String(text)) = body.get(key) {
                            w.text(key, text);
                        }
                    }
                    for key in ["node_list", "users", "accounts", "groups", "flags"] {
                        if let Some(Value::Array(items)) = body.get(key) {
                            w.texts(key, items.iter().filter_map(Value::as_str));
                        }
                    }
                });
            }
        });
    }))
}

/// The fields of a body, as words of scontrol.
fn words(call: &mut Call<'_>, body: &Body) -> Result<Vec<String>, CallFailure> {
    let mut words = Vec::new();
    for (key, value) in body {
        let lower = key.to_ascii_lowercase();
        let bad = |why: &str| CallFailure::malformed(key, format!("{key}: {why}"));
        if lower == "purge_completed" {
            if let Some(minutes) = purge_minutes(value).map_err(bad)? {
                words.push(format!("Flags=PURGE_COMP={minutes}"));
            }
            continue;
        }
        let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == lower) else {
            let what = format!("{key} is not a key of a reservation, and has no effect");
            call.warn(key, what);
            continue;
        };
        let text = match (lower.as_str(), value) {
            ("tres", Value::Array(items)) if items.iter().any(Value::is_object) => {
                let expected = || bad("expected objects of type, name and count");
                super::account_change::tres(items).ok_or_else(expected)?
            }
            _ => match value::read(value).map_err(bad)? {
                given if given.is_empty() => continue,
                GivenValue::Truth(_) => return Err(bad("expected a text, a number or a list")),
                given => given.text().unwrap_or_default(),
            },
        };
        if text.chars().any(char::is_control) {
            return Err(bad("it has a character that no field has"));
        }
        let text = match lower.as_str() {
            "start_time" | "end_time" => point(&text).ok_or_else(|| bad("expected a time"))?,
            "flags" => flags(&text),
            _ => text,
        };
        if !text.is_empty() {
            words.push(format!("{field}={text}"));
        }
    }
    Ok(words)
}

/// The time after which one without jobs goes, in minutes.
fn purge_minutes(value: &Value) -> Result<Option<u64>, &'static str> {
    let time = match value.as_object().and_then(|body| member(body, "time")) {
        Some(time) => value::read(time)?,
        None => value::read(value)?,
    };
    match time.text() {
        None => Ok(None),
        Some(text) => {
            let seconds: u64 = text.parse().map_err(|_| "expected seconds")?;
            Ok(Some(seconds.div_ceil(60)))
        }
    }
}

/// A point in time as scontrol shows it; 0 is none.
fn point(text: &str) -> Option<String> {
    let at = match text.parse::<i64>() {
        Ok(0) => return Some(String::new()),
        Ok(unix_s) if unix_s > 0 => Timestamp::from_unix_s(unix_s),
        Ok(_) => return None,
        Err(_) => time::parse(text, zone::now(), &LocalZone::default())?,
    };
    Some(zone::show(at))
}

/// Flags as scontrol has them: what answers name besides follows from other fields, and `NO_` takes a flag away.
fn flags(text: &str) -> String {
    let words = text.split(',').map(str::trim).filter(|word| {
        let is_shown_only = ["", "SPEC_NODES", "ALL_NODES"].contains(word);
        !is_shown_only
    });
    let words = words.map(|word| match word.strip_prefix("NO_") {
        Some(flag) if !flag.starts_with("HOLD_JOBS") => format!("-{flag}"),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_times_are_as_scontrol_has_them() {
        assert_eq!(
            flags("MAINT,SPEC_NODES,NO_FLEX,NO_HOLD_JOBS_AFTER_END"),
            "MAINT,-FLEX,NO_HOLD_JOBS_AFTER_END"
        );
        assert_eq!(point("0"), Some(String::new()));
        assert_eq!(point("-5"), None);
        assert_eq!(point("teatime\u{7}?"), None);
        let at = Timestamp::from_unix_s(1_795_000_000);
        assert_eq!(point("1795000000"), Some(zone::show(at)));
        assert!(FIELDS.is_sorted_by_key(|(key, _)| *key));
        for (_, field) in FIELDS {
            assert!(
                reservation::FIELDS.iter().any(|(name, ..)| name == field),
                "{field}"
            );
        }
    }
}
