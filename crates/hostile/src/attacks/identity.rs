//! Identity, on which rights and order depend, comes from the connection and the user database, never from the request.

use super::{finished, in_seconds, must_submit, or_end, small_job, submitted};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::requests::{self, blobs};
use crate::sys::{ATTACKER, ROOT, VICTIM};
use crate::target::Target;
use muster_model::command::UserCommand;
use muster_model::ids::BlobId;
use muster_model::job::Job;
use muster_model::spec::{JobKind, JobSpec, Owner};
use muster_proto::client::RequestBody;
use sha2::{Digest as _, Sha256};
use std::fs;

/// A job as a group that its user is not in: root's, and those that may read devices and passwords.
pub(super) fn foreign_group(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let own = target.run(ATTACKER, "id -gn").out;
    let user = target.run(ATTACKER, "id -un").out;
    let names = [own.as_str(), "root", "disk", "shadow", ""];
    for (number, (gid, uid)) in [
        (0, ATTACKER.uid),
        (6, ATTACKER.uid),
        (42, ATTACKER.uid),
        (0, 0),
    ]
    .into_iter()
    .enumerate()
    {
        for group in names {
            let file = target
                .dir_of(ATTACKER)
                .join(format!("ids.{number}.{group}"));
            let spec = JobSpec {
                owner: Owner {
                    uid,
                    gid,
                    user: user.clone(),
                    group: group.to_owned(),
                },
                ..small_job(target, ATTACKER)
            };
            let script = format!(
                "#!/bin/sh\n{{ id -u; id -g; id -G; }} >{}\n",
                file.display()
            );
            let answer = target.ask(ATTACKER, requests::submit(spec, &script));
            let what = format!("gid {gid} as group '{group}'");
            outcome.count(&what, &answer);
            let Some(job) = submitted(&answer) else {
                continue;
            };
            target.ended(job);
            let ids = fs::read_to_string(&file).unwrap_or_default();
            if !ids.starts_with(&format!(
                "{}\n{}\n{}\n",
                ATTACKER.uid, ATTACKER.gid, ATTACKER.gid
            )) {
                outcome.finding(format!(
                    "{what}: the job ran with {:?}",
                    ids.replace('\n', " ")
                ));
            }
        }
    }
    finished(target, outcome)
}

/// Another user's script and environment, by their ids.
pub(super) fn foreign_blobs(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let secret = format!("TOKEN={:016x}", random.number());
    let script = format!("#!/bin/sh\n# {secret}\n");
    let spec = JobSpec {
        hold: true,
        ..small_job(target, VICTIM)
    };
    let carried = blobs(&script, &[&secret]);
    let answer = target.ask(VICTIM, requests::submit_with(spec, carried.clone()));
    let theirs = or_end!(submitted(&answer), target, outcome);
    // Ids are no secrets: they are hashes, and were in listings.
    let id_of = |which| {
        let content = carried.iter().find(|(id, _)| *id == which);
        content.map(|(_, bytes)| BlobId(Sha256::digest(&**bytes).into()))
    };
    let (script, context) = (id_of(requests::SCRIPT), id_of(requests::CONTEXT));
    let base = small_job(target, ATTACKER);
    let own = |which| {
        blobs("#!/bin/sh\n", &[])
            .into_iter()
            .filter(move |(id, _)| *id == which)
    };
    let cases = [
        (
            "script",
            script,
            base.context,
            own(requests::CONTEXT).collect(),
        ),
        (
            "environment",
            base.script,
            context,
            own(requests::SCRIPT).collect(),
        ),
        ("script and environment", script, context, Vec::new()),
    ];
    let het = |spec: &JobSpec, blobs| {
        let second = JobSpec {
            script: None,
            kind: JobKind::Allocation,
            ..spec.clone()
        };
        RequestBody::Command(Box::new(UserCommand::SubmitHet {
            specs: vec![spec.clone(), second],
            blobs,
            test_only: false,
        }))
    };
    let answer = target.ask(ATTACKER, het(&base, blobs("#!/bin/sh\n", &[])));
    outcome.count("an ordinary heterogeneous job", &answer);
    if submitted(&answer).is_none() {
        outcome.finding(format!("an ordinary heterogeneous job: {answer:?}"));
    }
    for (what, script, context, blobs) in cases {
        let spec = JobSpec {
            script,
            context,
            hold: true,
            ..base.clone()
        };
        let body = het(&spec, blobs.clone());
        let what = format!("a job with another user's {what}");
        outcome.must_refuse(
            &what,
            &target.ask(ATTACKER, requests::submit_with(spec, blobs)),
        );
        outcome.must_refuse(&what, &target.ask(ATTACKER, body));
    }
    target.run(VICTIM, &format!("scancel {theirs}"));
    finished(target, outcome)
}

/// Priority, place in line, and what only administrators set.
pub(super) fn own_priority(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    // Not held, since jobs that are have no priority.
    let base = || JobSpec {
        begin: Some(in_seconds(86_400)),
        ..small_job(target, ATTACKER)
    };
    let shown = |key: &str| JobSpec {
        shown: vec![(key.to_owned(), "MARKER".to_owned())],
        ..base()
    };
    let ordinary = or_end!(
        must_submit(target, ATTACKER, base(), "#!/bin/sh\n", &mut outcome),
        target,
        outcome
    );
    let priority_of = |job: &Job| job.priority;
    let ordinary = target
        .jobs(ROOT, &[ordinary])
        .first()
        .map_or(0, priority_of);
    if ordinary == 0 {
        outcome.finding("a job that waits for tomorrow has no priority".to_owned());
    }
    let cases = [
        (
            "a site factor",
            JobSpec {
                site_factor: 2_000_000_000,
                ..base()
            },
        ),
        (
            "a priority",
            JobSpec {
                priority: Some(4_000_000_000),
                ..base()
            },
        ),
        (
            "a negative nice value",
            JobSpec {
                nice: -2_000_000_000,
                ..base()
            },
        ),
        (
            "the lowest nice value",
            JobSpec {
                nice: i32::MIN,
                ..base()
            },
        ),
        (
            "a host",
            JobSpec {
                submit_host: "MARKER".to_owned(),
                ..base()
            },
        ),
        ("an administrator's comment", shown("admin-comment")),
        (
            "an administrator's comment in capitals",
            shown("AdminComment"),
        ),
        ("a system comment", shown("system-comment")),
    ];
    for (what, spec) in cases {
        let answer = target.ask(ATTACKER, requests::submit(spec, "#!/bin/sh\n"));
        outcome.count(what, &answer);
        let Some(id) = submitted(&answer) else {
            continue;
        };
        let Some(job) = target.jobs(ROOT, &[id]).into_iter().next() else {
            continue;
        };
        let marked = job.spec.submit_host.contains("MARKER")
            || job.spec.shown.iter().any(|(_, text)| text == "MARKER");
        if job.spec.site_factor != 0 || job.priority > ordinary.saturating_add(1000) || marked {
            outcome.finding(format!(
                "{what} is taken from the request: priority {} where others have {ordinary}",
                job.priority
            ));
        }
    }
    finished(target, outcome)
}
