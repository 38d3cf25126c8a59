//! Who may use which reservations, when a job asks for several or is changed.

use super::*;
use crate::accounts::{account, edit, users};
use muster_model::command::TermsAsk;

/// Reservations `mine` for `u1000`, `theirs` for a group, and `both` for a group of `u1000`'s and an account.
fn world() -> World {
    let mut w = World::new();
    for name in ["chem", "bio"] {
        w.must(0, edit(&[name], account("")));
        w.must(0, edit(&["u1000"], users(name, TermsAsk::default())));
    }
    let mine = on(&w, "mine", 0, 60, "n1");
    let only = |name: &str| Some(NameList::Only(vec![name.to_owned()]));
    let theirs = ReservationAsk {
        users: None,
        groups: only("chemists"),
        ..on(&w, "theirs", 0, 60, "n2")
    };
    let both = ReservationAsk {
        users: None,
        groups: only("u1000"),
        accounts: only("chem"),
        ..on(&w, "both", 0, 60, "n3")
    };
    for made in [mine, theirs, both] {
        create(&mut w, made).expect("it can be made");
    }
    w.pass(0);
    w
}

fn of(account: &str, reservations: &str) -> JobSpec {
    JobSpec {
        account: Some(account.into()),
        reservation: Some(reservations.into()),
        ..spec("x")
    }
}

fn change(id: JobId, change: impl FnOnce(&mut JobUpdate)) -> UserCommand {
    let mut update = JobUpdate::default();
    change(&mut update);
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

fn starts_in(w: &World, id: JobId, name: &str, node: u32) -> bool {
    let mut w = w.clone();
    let mut alloc = w.alloc(id, &[node], 1);
    alloc.reservation = Some(name.to_owned());
    w.plan(vec![PlannedStart { job: id, alloc }]) == 1
}

/// One reservation that lets a job in opened all that it named.
#[test]
fn a_job_is_let_into_each_reservation_that_it_names() {
    let mut w = world();
    let id = w.submit(of("chem", "mine,both"));
    assert!(starts_in(&w, id, "mine", 0) && starts_in(&w, id, "both", 2));
    assert!(!starts_in(&w, id, "theirs", 1));
    for names in ["theirs", "mine,theirs", "theirs,mine"] {
        let refused = w.refusal(of("chem", names));
        assert_eq!(refused, RefusalCode::ReservationAccess, "{names}");
        let named = change(id, |u| u.reservation = Some(names.into()));
        let refused = w.refused(1000, named);
        assert_eq!(refused, RefusalCode::ReservationAccess, "{names}");
    }
    let refused = w.refusal(of("bio", "mine,both"));
    assert_eq!(refused, RefusalCode::ReservationAccess);
    let refused = w.refusal(of("chem", "mine,nosuch"));
    assert_eq!(refused, RefusalCode::InvalidReservation);
    assert_eq!(w.refusal(of("chem", ",")), RefusalCode::InvalidReservation);
}

/// A job got another account than that by which it was let in. It need not be let in again by its groups, which who changes it
/// may not have.
#[test]
fn a_job_in_a_reservation_keeps_an_account_that_this_lets_in() {
    let mut w = world();
    let id = w.submit(of("chem", "both"));
    let to = |account: &str| {
        let account = account.to_owned();
        change(id, |u| u.account = Some(account))
    };
    for uid in [1000, 0] {
        let refused = w.refused(uid, to("bio"));
        assert_eq!(refused, RefusalCode::ReservationAccess);
        w.must(uid, to("chem"));
    }
    let elsewhere = change(id, |u| {
        u.account = Some("bio".into());
        u.reservation = Some("mine".into());
    });
    w.must(1000, elsewhere);
    assert_eq!(w.job(id).spec.reservation.as_deref(), Some("mine"));
}

/// Each start is checked: whom a reservation lets in may have been changed since the job asked for it.
#[test]
fn a_start_is_refused_where_the_reservation_does_not_let_the_job_in_any_more() {
    let mut w = world();
    let id = w.submit(of("chem", "mine,both"));
    let other = |name: &str| Some(NameList::Only(vec![name.to_owned()]));
    let changed = ReservationAsk {
        accounts: other("bio"),
        ..named("both")
    };
    update(&mut w, changed).expect("it can be changed");
    let changed = ReservationAsk {
        users: other("u1001"),
        ..named("mine")
    };
    update(&mut w, changed).expect("it can be changed");
    assert!(!starts_in(&w, id, "mine", 0) && !starts_in(&w, id, "both", 2));
}

/// Of a reservation for some users or groups in an account, the last name that was taken away opened it to the whole account.
#[test]
fn the_last_name_of_a_list_stays_beside_another_list() {
    let mut w = world();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let remove = |list: &[&str]| Some(NameList::Remove(names(list)));
    let groups = ReservationAsk {
        groups: remove(&["u1000"]),
        ..named("both")
    };
    let accounts = ReservationAsk {
        accounts: remove(&["chem"]),
        ..named("both")
    };
    for ask in [groups, accounts] {
        assert_eq!(update(&mut w, ask), Err(RefusalCode::InvalidValue));
    }
    let mine = ReservationAsk {
        accounts: Some(NameList::Only(names(&["chem"]))),
        ..named("mine")
    };
    update(&mut w, mine).expect("it can be changed");
    let users = |asked: NameList| ReservationAsk {
        users: Some(asked),
        ..named("mine")
    };
    let last = users(NameList::Remove(names(&["u1000"])));
    assert_eq!(update(&mut w, last), Err(RefusalCode::InvalidValue));
    let more = users(NameList::Add(names(&["root"])));
    update(&mut w, more).expect("it can be changed");
    let one = users(NameList::Remove(names(&["u1000"])));
    update(&mut w, one).expect("one is left");
    let all = users(NameList::Only(Vec::new()));
    update(&mut w, all).expect("this is what was said");
    assert!(get(&w, "mine").users.is_empty());
}

/// A reservation for an account that is not there was made, and kept its nodes from everybody.
#[test]
fn accounts_of_a_reservation_exist() {
    let mut w = world();
    let only = |name: &str| NameList::Only(vec![name.to_owned()]);
    let of = |w: &World, accounts: NameList| ReservationAsk {
        users: None,
        accounts: Some(accounts),
        ..on(w, "more", 7200, 60, "n1")
    };
    let ask = of(&w, only("nosuch"));
    assert_eq!(
        create(&mut w, ask).unwrap_err(),
        RefusalCode::InvalidAccount
    );
    let ask = of(&w, NameList::AllBut(vec!["nosuch".to_owned()]));
    assert_eq!(
        create(&mut w, ask).unwrap_err(),
        RefusalCode::InvalidAccount
    );
    let ask = of(&w, only("Chem"));
    create(&mut w, ask).expect("accounts are named in any case");
    let change = ReservationAsk {
        name: Some("more".to_owned()),
        accounts: Some(NameList::Add(vec!["nosuch".to_owned()])),
        ..ReservationAsk::default()
    };
    let change = UserCommand::UpdateReservation(Box::new(change));
    assert_eq!(w.refused(0, change), RefusalCode::InvalidAccount);
}
