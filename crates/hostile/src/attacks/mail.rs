//! Mail options of a user reach the mail program as an address and nothing else.

use super::{clear, finished, small_job, submitted};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, VICTIM};
use crate::target::{Target, until};
use muster_model::mail::MailOptions;
use muster_model::spec::JobSpec;
use std::fs;

/// Options, commands and files in place of an address.
const ADDRESSES: [&str; 7] = [
    "-Ssendmail=EVIL",
    "--EVIL",
    "-",
    "|EVIL",
    "/tmp/EVIL",
    "a@b\nBcc: EVIL",
    "a@b -S EVIL",
];

/// An option for the mail program in place of an address.
pub(super) fn option_in_mail_user(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let job = |user, address: &str| JobSpec {
        mail: MailOptions::of_texts("BEGIN,END,FAIL".to_owned(), address.to_owned()),
        ..small_job(target, user)
    };
    let mut accepted = Vec::new();
    for address in ADDRESSES {
        let body = requests::submit(job(ATTACKER, address), "#!/bin/sh\n");
        let answer = target.ask(ATTACKER, body);
        outcome.count("an option as an address", &answer);
        accepted.extend(submitted(&answer));
    }
    for id in accepted {
        target.ended(id);
    }
    // The letters of a later job come after theirs.
    let marker = format!("marker{}@example.org", random.below(1 << 30));
    let body = requests::submit(job(VICTIM, &marker), "#!/bin/sh\n");
    let answer = target.ask(VICTIM, body);
    outcome.require(
        submitted(&answer).is_some(),
        "a job with mail is not accepted",
    );
    let log = || fs::read_to_string(target.mail_log()).unwrap_or_default();
    outcome.require(
        until(|| log().contains(&marker)),
        "mail for another user's job does not come",
    );
    for call in log().split("---\n").filter(|call| call.contains("EVIL")) {
        let plain = call
            .lines()
            .skip(3)
            .all(|word| !word.starts_with(['-', '|', '/']));
        let header = call.lines().any(|word| word == "Bcc: EVIL");
        if header || !plain {
            outcome.finding(format!("the mail program was called with {call:?}"));
        }
    }
    clear(target, VICTIM, &mut outcome);
    finished(target, outcome)
}
