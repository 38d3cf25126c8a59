//! A coordinator: manages jobs and edits records of his accounts, and of no other account.

use super::levels::{may_do, must_deny, parts_about};
use super::site::{FOREIGN, OWN, Site, UNDER, clear_all, jobs_in};
use crate::jobs::clear;
use crate::mutate;
use crate::outcome::Outcome;
use crate::peer;
use crate::random::Random;
use crate::requests::accounts::{
    add_accounts, add_coordinators, add_users, delete_coordinators, delete_users, edit,
    modify_accounts, modify_users,
};
use crate::requests::parts::NestedRequest;
use crate::requests::{self, Ids};
use crate::sys::{COORDINATOR, ROOT, VICTIM};
use crate::target::Target;
use muster_model::command::{AccountsAsk, UserCommand};
use muster_model::rights::{AccessRequest as Row, MinimumRole};
use muster_proto::client::RequestBody;

/// Edits with wrong values.
const WRONG: usize = 300;

/// Records that are not the coordinator's: roles, QOS, accounts and associations but for labs and accounts under it.
const OUTSIDE: &str = "sacctmgr -nP show user user=games,man,lp,mail,root format=user,adminlevel | sort; sacctmgr -nP show qos; \
                       sacctmgr -nP show account firm,root withcoord; \
                       sacctmgr -nP show assoc account=firm,root format=account,user,partition,parentname,share,grpjobs,maxjobs,qos \
                       | sort";

/// See the module.
pub(crate) fn coordinator_beside_own_accounts(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(site) = Site::make(target, &mut outcome) else {
        return outcome;
    };
    for (account, manages) in [(FOREIGN, false), (OWN, true)] {
        let Some(ids) = jobs_in(target, account, &mut outcome) else {
            break;
        };
        jobs_of_account(target, &ids, manages, &mut outcome);
        clear(target, VICTIM, &mut outcome);
        parts_of_requests(target, account, &mut outcome);
    }
    let before = target.run(ROOT, OUTSIDE).out;
    edits(target, &mut outcome);
    crossing_edits(target, &mut outcome);
    wrong_values(target, random, &mut outcome);
    let after = target.run(ROOT, OUTSIDE).out;
    if before != after {
        let differs = before.lines().zip(after.lines()).find(|(a, b)| a != b);
        outcome.finding(format!(
            "a coordinator has changed what is not of his accounts: {differs:?}"
        ));
    }
    clear_all(target, &mut outcome);
    drop(site);
    outcome
}

/// Every request but edits that are about accounts: those are tried by themselves.
fn jobs_of_account(target: &Target, ids: &Ids, manages: bool, outcome: &mut Outcome) {
    for sample in requests::samples(ids) {
        let row = sample.row();
        let what = format!("{} of a coordinator", sample.name);
        match row.least() {
            // Only where an administrator has allowed it.
            MinimumRole::Manager if row == Row::Top => {
                let answer = target.ask(COORDINATOR, sample.body);
                outcome.count(&what, &answer);
            }
            MinimumRole::Manager if manages => {
                may_do(target, COORDINATOR, &what, sample.body, outcome)
            }
            MinimumRole::Anyone => may_do(target, COORDINATOR, &what, sample.body, outcome),
            MinimumRole::Coordinator => {}
            _ => must_deny(target, COORDINATOR, &what, sample.body, outcome),
        }
    }
    clear(target, COORDINATOR, outcome);
}

/// Parts with a right of their own are never a coordinator's.
fn parts_of_requests(target: &Target, account: &str, outcome: &mut Outcome) {
    let parts = parts_about(target, COORDINATOR, account, outcome);
    for NestedRequest { row, body } in parts.into_iter().flatten() {
        let what = format!("the part {} of a coordinator", row.name());
        must_deny(target, COORDINATOR, &what, body, outcome);
    }
    for user in [VICTIM, COORDINATOR] {
        clear(target, user, outcome);
    }
}

fn command(names: &[&str], ask: AccountsAsk) -> RequestBody {
    RequestBody::Command(Box::new(edit(names, ask)))
}

/// Each edit that a coordinator has, in an account of his and in another. The second account is the one that shares are set of.
fn edits_in(account: &str, under: &str) -> Vec<(&'static str, RequestBody)> {
    let one = [account];
    vec![
        (
            "an account under it",
            command(&["c1"], add_accounts(account)),
        ),
        ("shares", command(&[under], modify_accounts(""))),
        ("a user", command(&["bin"], add_users(&one, "", &[]))),
        (
            "shares of a user",
            command(&["games"], modify_users(&one, "")),
        ),
        ("a coordinator", command(&["bin"], add_coordinators(&one))),
        (
            "the end of a coordinator",
            command(&["bin"], delete_coordinators(&one)),
        ),
        ("the end of a user", command(&["bin"], delete_users(&one))),
    ]
}

fn edits(target: &Target, outcome: &mut Outcome) {
    for (what, body) in edits_in(FOREIGN, FOREIGN) {
        let what = format!("{what}, of a coordinator of another account");
        must_deny(target, COORDINATOR, &what, body, outcome);
    }
    for (what, body) in edits_in(OWN, UNDER) {
        let answer = target.ask(COORDINATOR, body);
        outcome.count(what, &answer);
        if answer.is_refusal() {
            outcome.finding(format!("{what}, of the account's coordinator: {answer:?}"));
        }
    }
}

/// Edits that are of both accounts, or of the other by a way round.
fn crossing() -> Vec<RequestBody> {
    let both: &[&str] = &[OWN, FOREIGN];
    vec![
        command(&[OWN], modify_accounts("")),
        command(&["bin"], add_users(both, "", &[])),
        command(&["bin"], add_users(&[FOREIGN], "", &["batch"])),
        command(&["games"], modify_users(both, "")),
        command(&["games"], modify_users(&[], "")),
        command(&["games", "man"], modify_users(&[OWN], "")),
        command(&[FOREIGN], modify_accounts(OWN)),
        command(&[OWN, FOREIGN], modify_accounts("")),
        command(&[UNDER], modify_accounts(FOREIGN)),
        command(&["c2"], add_accounts("")),
        command(&["c2"], add_accounts("root")),
        command(&["mail"], add_coordinators(both)),
        command(&["mail"], add_coordinators(&[])),
        command(&["mail"], add_coordinators(&["root"])),
        command(&["mail"], add_coordinators(&["FIRM"])),
        command(&["man"], delete_users(&[])),
        command(&["games"], delete_users(both)),
        command(&["root"], delete_users(&["root"])),
        command(&["games", "lp"], delete_users(&[FOREIGN])),
        command(&["lp"], add_users(&[OWN], "None", &[])),
        command(&["lp"], modify_users(&[], "None")),
    ]
}

fn crossing_edits(target: &Target, outcome: &mut Outcome) {
    // It is there, and stays where it is.
    let answer = target.ask(COORDINATOR, command(&[FOREIGN], add_accounts(OWN)));
    outcome.count("an account that is there", &answer);
    for body in crossing() {
        let what = format!("an edit beyond the coordinator's accounts, {body:?}");
        must_deny(target, COORDINATOR, &what, body, outcome);
    }
    for name in ["firm ", "labs,firm", "labs\0firm", "../firm", "%", "firm\n"] {
        for ask in [
            add_users(&[name], "", &[]),
            modify_users(&[name], ""),
            add_coordinators(&[name]),
            delete_users(&[name]),
        ] {
            let answer = target.ask(COORDINATOR, command(&["games"], ask));
            outcome.must_refuse(&format!("an edit of account {name:?}"), &answer);
        }
    }
}

/// Wrong values in all of these edits, and in requests about another account's jobs.
fn wrong_values(target: &Target, random: &mut Random, outcome: &mut Outcome) {
    let edits = [edits_in(OWN, UNDER), edits_in(FOREIGN, FOREIGN)].concat();
    let mut all: Vec<RequestBody> = edits.into_iter().map(|(_, body)| body).collect();
    all.extend(crossing());
    let samples = requests::samples(&Ids::default()).into_iter();
    all.extend(samples.map(|sample| sample.body).filter(is_edit));
    for _ in 0..WRONG {
        let Some(body) = random.pick(&all) else {
            return;
        };
        let message = mutate::several(&peer::request(body.clone()), random);
        let answer = target.ask_tree(COORDINATOR, &message);
        outcome.count("an edit with wrong values", &answer);
    }
}

fn is_edit(body: &RequestBody) -> bool {
    matches!(body, RequestBody::Command(command) if matches!(**command, UserCommand::EditAccounts(_)))
}
