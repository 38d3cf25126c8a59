//! What lines say of commands, and that they have an end.

use super::*;
use muster_model::account_limits::LimitAsk;
use muster_model::command::{
    JobUpdate, NameList, NodeUpdate, QosAsk, ReservationAsk, TermsAsk, WckeysAsk,
};
use muster_model::index_set::IndexSet;
use muster_model::time::{TimeLimit, Timestamp};

fn said(command: &UserCommand) -> String {
    subject(&State::default(), command)
}

fn job(job: u64) -> JobTarget {
    JobTarget {
        job: JobId(job),
        tasks: None,
        component: None,
    }
}

fn edit(ask: AccountsAsk) -> String {
    let names = vec!["jnann".to_owned()];
    said(&UserCommand::EditAccounts(Box::new(AccountsEdit {
        cluster: String::new(),
        names,
        ask,
    })))
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn a_subject_has_the_changed_keys_with_their_values() {
    let partition = UserCommand::UpdatePartition {
        name: "debug".into(),
        pairs: pairs(&[("MaxTime", "1-0"), ("State", "DOWN")]),
        read: Vec::new(),
    };
    assert_eq!(said(&partition), "debug MaxTime=1-0 State=DOWN");
    let update = NodeUpdate {
        state: Some("DRAIN".into()),
        reason: Some("bad \"disk\"\n".into()),
        weight: Some(3),
        ..NodeUpdate::default()
    };
    let nodes = UserCommand::UpdateNodes {
        nodes: "m[1-2]".into(),
        update,
    };
    assert_eq!(
        said(&nodes),
        "m[1-2] State=DRAIN Reason=bad \\\"disk\\\"\\u{a} Weight=3"
    );
    let update = JobUpdate {
        time_limit: Some(TimeLimit::Minutes(90)),
        comment: Some(String::new()),
        begin: Some(Timestamp::from_unix_s(7)),
        ask: Some(muster_model::spec::ResourceAsk {
            ntasks: Some(4),
            ..Default::default()
        }),
        ..JobUpdate::default()
    };
    let jobs = UserCommand::UpdateJob {
        target: JobTarget {
            tasks: Some(IndexSet::single(3)),
            ..job(1)
        },
        update: Box::new(update),
    };
    assert_eq!(
        said(&jobs),
        "job 1_[3] TimeLimit=90 Comment= StartTime=7 NumTasks=4"
    );
    let ask = ReservationAsk {
        name: Some("maint".into()),
        users: Some(NameList::Add(vec!["ann".into(), "bob".into()])),
        ..ReservationAsk::default()
    };
    let reservation = UserCommand::UpdateReservation(Box::new(ask));
    assert_eq!(said(&reservation), "maint Users+=ann,bob");
}

#[test]
fn a_subject_of_accounting_says_what_is_done_where() {
    let terms = TermsAsk {
        shares: Some(Some(7)),
        limits: vec![LimitAsk::new("MaxJobs", "5")],
        ..TermsAsk::default()
    };
    let account = AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: terms.clone(),
    };
    assert_eq!(edit(account), "jnann Fairshare=7 MaxJobs=5");
    let users = AccountsAsk::AddUsers {
        accounts: vec!["phys".into()],
        default_account: String::new(),
        admin_level: "Operator".into(),
        terms: TermsAsk::default(),
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    };
    assert_eq!(edit(users), "jnann Account=phys AdminLevel=Operator");
    let qos = QosAsk {
        priority: Some(10),
        ..QosAsk::default()
    };
    assert_eq!(
        edit(AccountsAsk::ModifyQos(qos.clone())),
        "jnann modify Priority=10"
    );
    assert_eq!(edit(AccountsAsk::AddQos(qos)), "jnann add Priority=10");
    assert_eq!(edit(AccountsAsk::DeleteQos), "jnann delete");
}

#[test]
fn subjects_end_whatever_users_write() {
    let nodes = UserCommand::Reboot {
        nodes: "\r\n".repeat(1 << 20),
        asap: false,
        down_after: false,
        reason: None,
    };
    let said_of_nodes = said(&nodes);
    assert!(said_of_nodes.len() < 200 && !said_of_nodes.contains(['\r', '\n']));
    let long = "x\n".repeat(1000);
    let many = UserCommand::UpdatePartition {
        name: long.clone(),
        pairs: vec![(long.clone(), long.clone()); 1000],
        read: Vec::new(),
    };
    let said_of_pairs = said(&many);
    assert!(said_of_pairs.len() < 800, "{}", said_of_pairs.len());
    assert!(said_of_pairs.ends_with(" ...") && !said_of_pairs.contains('\n'));
    let selection = JobSelection {
        targets: vec![job(17); 1000],
        ..JobSelection::default()
    };
    let jobs = said(&UserCommand::Cancel { selection });
    assert!(jobs.starts_with("job 17,job 17,") && jobs.ends_with(",..."));
}
