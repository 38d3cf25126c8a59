//! A hostile client against a cluster of its own: attacks that once worked, and after each the same daemons, in little
//! memory, serving another user.

use crate::cluster::Cluster;
use muster_hostile::attacks::ATTACKS;
use muster_hostile::campaign::{CampaignReport, Round};
use muster_hostile::network::NetworkDaemons;
use muster_hostile::random::Random;
use muster_hostile::rest::RestDaemon;
use muster_hostile::target::{Target, configuration};
use std::process::Command;
use std::time::Duration;

/// A cluster whose users are to be attacked; none where this is not root, who alone can be several users.
fn attacked() -> Option<(Cluster, Target)> {
    let cluster = Cluster::fresh();
    let home = cluster.path("");
    let target = Target::prepare(&home).unwrap();
    cluster.write("given.conf", &configuration(&home));
    if !cluster.ok("id -u").eq("0") {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return None;
    }
    let file = cluster.dir.join("given.conf");
    cluster.up_again(&["-f", file.to_str().unwrap()]);
    Some((cluster, target))
}

#[test]
fn attacks_that_once_worked_are_refused_and_change_nothing() {
    let Some((cluster, target)) = attacked() else {
        return;
    };
    let _rest = RestDaemon::start(&target).unwrap();
    let _network = NetworkDaemons::start(&target).unwrap();
    let (mut report, mut random) = (CampaignReport::default(), Random::new(1));
    for attack in ATTACKS {
        report.attack(&target, attack, &mut random);
    }
    report.restart(&target);
    println!("{}", report.table());
    let findings = report.findings();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    // What agents have refused is in their logs.
    let logs = cluster.ok("cd ../log; grep -l ' audit: .* as user from pid [0-9]*: [A-Za-z]* \"job [0-9]*\": refused: \"Access' *.log");
    assert!(logs.lines().any(|log| log != "ctld.log"), "{logs}");
}

/// A process of a load is this test program, which then runs this test alone.
#[test]
fn attacker_process() {
    muster_hostile::load::main();
}

fn attacker() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile::attacker_process", "--nocapture"]);
    command
}

#[test]
fn others_are_served_while_many_processes_attack() {
    let Some((_cluster, target)) = attacked() else {
        return;
    };
    let _rest = RestDaemon::start(&target).unwrap();
    let _network = NetworkDaemons::start(&target).unwrap();
    let mut report = CampaignReport::default();
    for number in 0..2 {
        let round = Round {
            number,
            seed: 1,
            time: Duration::from_secs(20),
            requests: 150,
        };
        report.load(&target, &round, &attacker);
    }
    report.restart(&target);
    println!("{}", report.table());
    let findings = report.findings();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
