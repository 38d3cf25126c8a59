//! Requests by HTTP with wrong values, cut at any byte, many at once.

use super::Budget;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::rest::{self, connect, exchange, headers, request};
use crate::target::Target;
use std::io::Write as _;

/// Keys of a job that are read in different ways.
const KEYS: &[&str] = &[
    "account",
    "array",
    "begin_time",
    "comment",
    "constraints",
    "cpus_per_task",
    "deadline",
    "dependency",
    "distribution",
    "environment",
    "exclusive",
    "flags",
    "gres",
    "hold",
    "kill_on_node_fail",
    "licenses",
    "mail_type",
    "mail_user",
    "maximum_nodes",
    "memory_per_node",
    "minimum_nodes",
    "name",
    "nice",
    "nodes",
    "partition",
    "priority",
    "profile",
    "qos",
    "required_nodes",
    "reservation",
    "shared",
    "standard_output",
    "tasks",
    "time_limit",
    "tres_per_job",
    "user_id",
    "wait_all_nodes",
];
/// Values that at most a few of them may have.
const VALUES: &[&str] = &[
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e308",
    "4294967295",
    "18446744073709551615",
    "99999999999999999999999999",
    "\"\"",
    "\"x\"",
    "\"\\u0000\"",
    "\"a\\nb\"",
    "\"-\"",
    "\"0-4294967295\"",
    "\"[0-9999999]\"",
    "\"%s%n\"",
    "\"../../etc\"",
    "[]",
    "[[]]",
    "[null]",
    "[\"x\",\"x\"]",
    "{}",
    "{\"set\":true}",
    "{\"set\":true,\"number\":-1}",
    "{\"infinite\":true}",
    "{\"set\":1,\"number\":{}}",
];
/// Paths that read or change something.
const PATHS: &[(&str, &str)] = &[
    ("GET", "/slurm/v0.0.43/jobs"),
    ("GET", "/slurm/v0.0.40/nodes"),
    ("GET", "/slurmdb/v0.0.43/jobs"),
    ("GET", "/slurmdb/v0.0.42/associations"),
    ("GET", "/metrics/jobs"),
    ("GET", "/slurm/v0.0.43/shares"),
    ("POST", "/slurm/v0.0.43/job/1"),
    ("DELETE", "/slurm/v0.0.43/job/1"),
    ("POST", "/slurmdb/v0.0.43/qos"),
    ("POST", "/slurmdb/v0.0.43/users_association"),
    ("POST", "/slurm/v0.0.43/node/n1"),
    ("DELETE", "/slurm/v0.0.43/jobs"),
];

/// A submission with wrong values, or a request of another kind.
fn any(who: &str, random: &mut Random) -> Vec<u8> {
    let mut members = String::new();
    for _ in 0..random.below(4) {
        let key = random.pick(KEYS).copied().unwrap_or_default();
        let value = random.pick(VALUES).copied().unwrap_or_default();
        members += &format!(",\"{key}\":{value}");
    }
    if random.below(3) > 0 {
        let body = format!(
            r##"{{"script":"#!/bin/sh\n","job":{{"current_working_directory":"/","environment":["A=1"]{members}}}}}"##
        );
        return request("POST", "/slurm/v0.0.43/job/submit", who, body.as_bytes());
    }
    let (method, path) = random.pick(PATHS).copied().unwrap_or_default();
    let body = match method {
        "GET" => String::new(),
        _ => format!("{{\"jobs\":[\"1\"]{members}}}"),
    };
    request(method, path, who, body.as_bytes())
}

/// All kinds of requests; some wait, are cut, or are never read.
pub(super) fn requests(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    if rest::pid(target).is_none() {
        outcome.skipped.push("slurmrestd does not run".to_owned());
        return outcome;
    }
    let made = target.own("scontrol token");
    let own = made
        .out
        .strip_prefix("SLURM_JWT=")
        .unwrap_or("a.b.c")
        .to_owned();
    let who = headers(rest::ATTACKER_NAME, &own);
    let mut open = Vec::new();
    while budget.lasts(&outcome) {
        let bytes = any(&who, random);
        outcome.sent += 1;
        if random.below(3) > 0 {
            match exchange(target, &bytes) {
                Some(page) if page.is_done() => outcome.accepted += 1,
                // Others take the places; that every answer comes is examined when they have ended.
                _ => outcome.refused += 1,
            }
            continue;
        }
        let Ok(mut stream) = connect(target) else {
            outcome.refused += 1;
            continue;
        };
        let cut = random.below(bytes.len() + 1);
        if stream.write_all(&bytes[..cut]).is_err() {
            outcome.refused += 1;
        }
        open.push(stream);
        if open.len() > 100 {
            open.clear();
        }
    }
    drop(open);
    super::requests::cancel_all(&mut outcome, &target.controller());
    outcome
}
