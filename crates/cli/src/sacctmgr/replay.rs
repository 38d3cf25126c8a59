//! Sessions with a real Slurm, replayed: the command lines of tests/sacctmgr with what Slurm 22.05 printed, against the
//! records of a controller in memory. A line `$ COMMAND` is followed by its output, `[stderr]` and what stood there, and
//! `[exit N]`; one of `% COMMAND` prepares what follows and is not compared.

use super::book::ClusterFacts;
use super::commands;
use super::console::script::Script;
use super::ledger::{Ledger, error};
use super::prompt;
use super::session::Invocation;
use super::words::split_line;
use crate::connect::{Client, ConnectError};
use crate::listing::Failure;
use muster_core::decide::decide;
use muster_core::state::State;
use muster_model::command::{AccountsEdit, Command, Identity, KeptPartitions, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::known_cluster::KnownCluster;
use muster_model::time::Timestamp;
use muster_proto::client::AccountsAnswer;
use std::fmt::Write as _;
use std::sync::Arc;

/// A controller in memory.
struct MemoryLedger {
    state: State,
    user: String,
    /// Other clusters of the shared database.
    others: Vec<KnownCluster>,
}

impl MemoryLedger {
    fn new() -> MemoryLedger {
        let config = ClusterConfig {
            cluster_name: "peer".to_owned(),
            ..ClusterConfig::default()
        };
        let mut table = MemoryLedger {
            state: State::default(),
            user: "root".to_owned(),
            others: Vec::new(),
        };
        let (config, keep) = (Arc::new(config), KeptPartitions::File);
        let done = table.run(Command::Configure { config, keep });
        assert!(done.is_none());
        table
    }

    fn run(&mut self, command: Command) -> Option<Reply> {
        let decision = decide(&self.state, &command, Timestamp(1_000_000));
        for event in &decision.events {
            self.state.apply(event);
        }
        decision.reply
    }
}

impl Ledger for MemoryLedger {
    fn accounts(&mut self) -> Result<AccountsAnswer, Failure> {
        Ok(AccountsAnswer {
            accounts: self.state.accounts.clone(),
            cluster: "peer".to_owned(),
            fair_tree: None,
            users_withheld: false,
            uses: Vec::new(),
        })
    }

    fn edit(&mut self, edit: AccountsEdit) -> Result<u32, ConnectError> {
        let uid = if self.user == "root" { 0 } else { 1000 };
        let identity = Identity {
            uid,
            gid: uid,
            user: self.user.clone(),
            group: self.user.clone(),
            groups: vec![self.user.clone()],
            gids: vec![uid],
            host: None,
            granted: Default::default(),
            is_ordinary: false,
        };
        let command = UserCommand::EditAccounts(Box::new(edit));
        match self.run(Command::User(identity, command)) {
            Some(Reply::Done { changed, .. }) => Ok(changed),
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            other => panic!("{other:?}"),
        }
    }

    fn tracks_wckeys(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    fn facts(&mut self) -> Result<ClusterFacts, Failure> {
        let tres = ["gres/gpu", "gres/gpu:a100", "license/matlab"];
        Ok(ClusterFacts {
            tres: tres.map(str::to_owned).to_vec(),
            host: "127.0.0.1".to_owned(),
            port: 19400,
            nodes: "n[1-4]".to_owned(),
            node_count: 4,
            total: "cpu=16".to_owned(),
            others: self.others.clone(),
        })
    }

    fn client(&mut self) -> Result<&mut Client, Failure> {
        Err(error("there is no controller"))
    }

    fn user(&self) -> String {
        self.user.clone()
    }

    fn is_user(&self, name: &str) -> bool {
        !name.starts_with("nosuch")
    }
}

/// Output of a command, and its exit status.
fn answer(table: &mut MemoryLedger, line: &str) -> String {
    let (input, line) = match line.split_once(" | ") {
        Some((input, rest)) if rest.starts_with("sacctmgr") => (input, rest),
        _ => ("", line),
    };
    let mut script = Script::default();
    let typed = input
        .trim_start_matches("echo ")
        .trim_start_matches("printf ");
    let typed = typed.trim_matches('\'').replace("\\n", "\n");
    script.answers = typed.lines().map(|line| format!("{line}\n")).collect();
    let mut words = split_line(line);
    if let Some(user) = words[0]
        .strip_prefix('(')
        .and_then(|word| word.strip_suffix(")$"))
    {
        table.user = user.to_owned();
        words.remove(0);
    } else {
        "root".clone_into(&mut table.user);
    }
    words.remove(0);
    let mut session = Invocation::new(table, &mut script);
    let mut operands = Vec::new();
    for word in words {
        match word.as_str() {
            "-i" => session.immediate = true,
            "-n" => session.style.no_header = true,
            "-p" => session.style.bars = Some(true),
            "-P" => session.style.bars = Some(false),
            "-nP" => (session.style.no_header, session.style.bars) = (true, Some(false)),
            "-s" => session.associations = true,
            "-r" => session.readonly = true,
            "-o" | "-Q" | "-v" => {}
            _ => operands.push(word),
        }
    }
    let result = match operands.is_empty() {
        true => prompt::run(&mut session),
        false => commands::execute(&mut session, &operands),
    };
    let mut out = script.out;
    let mut err = script.err;
    let status = match result {
        Ok(()) => 0,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                err.push_str(&text);
                err.push('\n');
            }
            1
        }
    };
    if !err.is_empty() {
        let _ = write!(out, "[stderr]\n{err}");
    }
    let _ = writeln!(out, "[exit {status}]");
    out
}

/// Replays a file: of each compared command its line, the expected output, and the actual output.
fn replay(text: &str) -> Vec<(String, String, String)> {
    let mut table = MemoryLedger::new();
    let mut out = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let compared = line.starts_with("$ ") || line.starts_with('(');
        let Some(command) = line
            .strip_prefix("% ")
            .or(line.strip_prefix("$ "))
            .or_else(|| line.starts_with('(').then_some(line))
        else {
            continue;
        };
        let got = answer(&mut table, command);
        let mut expected = String::new();
        while let Some(next) = lines.next_if(|_| compared) {
            let _ = writeln!(expected, "{next}");
            if next.starts_with("[exit ") {
                break;
            }
        }
        if compared {
            out.push((command.to_owned(), expected, got));
        }
    }
    out
}

/// The sessions, by topic.
const SESSIONS: [(&str, &str); 14] = [
    ("history", include_str!("../../tests/sacctmgr/history.txt")),
    ("account", include_str!("../../tests/sacctmgr/account.txt")),
    ("user", include_str!("../../tests/sacctmgr/user.txt")),
    ("qos", include_str!("../../tests/sacctmgr/qos.txt")),
    (
        "clusters",
        include_str!("../../tests/sacctmgr/clusters.txt"),
    ),
    (
        "association",
        include_str!("../../tests/sacctmgr/association.txt"),
    ),
    ("cluster", include_str!("../../tests/sacctmgr/cluster.txt")),
    (
        "coordinator_wckey",
        include_str!("../../tests/sacctmgr/coordinator_wckey.txt"),
    ),
    (
        "resource",
        include_str!("../../tests/sacctmgr/resource.txt"),
    ),
    (
        "federation",
        include_str!("../../tests/sacctmgr/federation.txt"),
    ),
    ("rights", include_str!("../../tests/sacctmgr/rights.txt")),
    ("prompt", include_str!("../../tests/sacctmgr/prompt.txt")),
    (
        "listings",
        include_str!("../../tests/sacctmgr/listings.txt"),
    ),
    ("misc", include_str!("../../tests/sacctmgr/misc.txt")),
];

#[test]
fn commands_answer_as_slurm_does() {
    let mut compared = 0;
    let mut different = String::new();
    for (topic, text) in SESSIONS {
        for (command, expected, got) in replay(text) {
            if got != expected {
                let _ = writeln!(different, "{topic}: {command}\n{got}instead of\n{expected}");
            }
            compared += 1;
        }
    }
    assert!(different.is_empty(), "{different}");
    assert!(compared >= 450, "{compared} commands are compared");
}

/// A table with the entities of the first session.
fn with_history() -> MemoryLedger {
    let mut table = MemoryLedger::new();
    let commands = SESSIONS[0]
        .1
        .lines()
        .filter_map(|line| line.strip_prefix("$ "));
    for command in commands {
        answer(&mut table, command);
    }
    table
}

/// Output of `dump`, without the comments above.
fn dumped(table: &mut MemoryLedger, name: &str) -> String {
    let path = std::env::temp_dir().join(format!("muster-{}-{name}.cfg", std::process::id()));
    let answer = answer(
        table,
        &format!("sacctmgr dump peer file={}", path.display()),
    );
    assert!(answer.contains("[exit 0]"), "{answer}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_dump_has_slurms_lines_and_is_loaded_again() {
    let mut table = with_history();
    let text = dumped(&mut table, "written");
    assert_eq!(text, include_str!("../../tests/sacctmgr/dump.cfg"));
    let path = std::env::temp_dir().join(format!("muster-{}-load.cfg", std::process::id()));
    std::fs::write(&path, &text).unwrap();
    let load = format!("sacctmgr -i load {}", path.display());
    assert_eq!(
        answer(&mut table, &load),
        "For cluster peer\n Nothing new added.\n[exit 0]\n"
    );
    // Another controller has only the QOS that the file names.
    let mut other = MemoryLedger::new();
    answer(&mut other, "sacctmgr -i add qos low,lowc,high,strict");
    let said = answer(&mut other, &load);
    assert!(
        said.contains("Account Associations\n") && said.contains("[exit 0]"),
        "{said}"
    );
    assert_eq!(dumped(&mut other, "again"), text);
    let clean = answer(&mut table, &format!("{load} clean"));
    assert!(
        clean.contains("User Associations\n") && clean.contains("[exit 0]"),
        "{clean}"
    );
    assert_eq!(dumped(&mut table, "clean"), text);
    std::fs::write(
        &path,
        text.replace("Fairshare=30", "Fairshare=31:MaxJobs=9"),
    )
    .unwrap();
    let changed = answer(&mut table, &load);
    assert!(
        changed.starts_with(
            "For cluster peer\n Changed fairshare             for Account chem             30 -> 31\n \
             Changed MaxJobs               for Account chem             -1 -> 9\n"
        ),
        "{changed}"
    );
    std::fs::remove_file(path).unwrap();
}

/// As Slurm 22.05.8 printed it.
#[test]
fn a_file_says_the_class_of_its_cluster() {
    let mut table = MemoryLedger::new();
    let path = std::env::temp_dir().join(format!("muster-{}-class.cfg", std::process::id()));
    let load = format!("sacctmgr -i load {}", path.display());
    let mut loaded = |cluster: &str| {
        std::fs::write(
            &path,
            format!("Cluster - 'blue'{cluster}\nParent - 'root'\n"),
        )
        .unwrap();
        let said = answer(&mut table, &load);
        let class = answer(
            &mut table,
            "sacctmgr -nP show cluster blue format=class,fairshare",
        );
        (said, class)
    };
    let (said, class) = loaded(":Classification='Capacity':Fairshare=10");
    assert!(
        said.starts_with("For cluster blue\nClassification: Capacity\n   Account ParentName"),
        "{said}"
    );
    assert_eq!(class, "Capacity|10\n[exit 0]\n");
    let (said, class) = loaded(":Classification='*capa':Fairshare=20");
    assert!(
        said.contains("expected Capability, Capacity or Capapacity"),
        "{said}"
    );
    assert_eq!(class, "Capacity|10\n[exit 0]\n");
    let (said, class) = loaded(":Classification='Capapacity':Fairshare=20");
    assert!(
        said.starts_with(
            "For cluster blue\n \
             Changed Classification        for Cluster blue       Capacity -> Capapacity\n \
             Changed fairshare             for Cluster blue             10 -> 20\n"
        ) && !said.contains("ParentName"),
        "{said}"
    );
    assert_eq!(class, "Capapacity|20\n[exit 0]\n");
    let (said, _) = loaded(":Classification='Capapacity':Fairshare=20");
    assert_eq!(said, "For cluster blue\n Nothing new added.\n[exit 0]\n");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn administrators_stay_administrators_when_a_file_is_loaded_anew() {
    let mut table = MemoryLedger::new();
    let path = std::env::temp_dir().join(format!("muster-{}-levels.cfg", std::process::id()));
    let mut load = |level: &str, clean: &str| {
        let text = format!(
            "Cluster - 'peer'\nParent - 'root'\nAccount - 'a'\nParent - 'a'\n\
             User - 'ann':DefaultAccount='a'{level}\n"
        );
        std::fs::write(&path, text).unwrap();
        let said = answer(
            &mut table,
            &format!("sacctmgr -i load {} {clean}", path.display()),
        );
        assert!(said.contains("[exit 0]"), "{said}");
        answer(&mut table, "sacctmgr -nP show user ann format=user,admin")
    };
    assert_eq!(
        load(":AdminLevel='Operator'", ""),
        "ann|Operator\n[exit 0]\n"
    );
    assert_eq!(load("", "clean"), "ann|Operator\n[exit 0]\n");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_is_wrong_is_refused_at_its_line() {
    let mut table = MemoryLedger::new();
    let path = std::env::temp_dir().join(format!("muster-{}-wrong.cfg", std::process::id()));
    for (text, expected) in [
        (
            "Cluster - 'peer'\nParent - 'nosuch'\n",
            "line(2) You need to add this parent (nosuch)",
        ),
        (
            "Parent - 'root'\nUser - 'amy'\n",
            "You need to specify a cluster name first",
        ),
        (
            "Cluster - 'peer':Fairshare=abc\n",
            "error: Problem with line(1)",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let said = answer(&mut table, &format!("sacctmgr -i load {}", path.display()));
        assert!(
            said.contains(expected) && said.contains("[exit 1]"),
            "{text}: {said}"
        );
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn signs_may_stand_before_the_names_of_qos() {
    let mut table = with_history();
    for (command, shown) in [
        (
            "modify user ben set qos=+low,-high",
            "low,lowc,normal,strict",
        ),
        ("modify user ben set qos-=low", "lowc,normal,strict"),
        ("modify user ben set qos=strict", "strict"),
        ("modify user ben set QosLevel+=low", "low,strict"),
        ("modify user ben set qos=", "high,low,lowc,normal,strict"),
    ] {
        answer(&mut table, &format!("sacctmgr -i {command}"));
        let got = answer(&mut table, "sacctmgr -nP show assoc user=ben format=qos");
        assert_eq!(got, format!("{shown}\n[exit 0]\n"), "{command}");
    }
}

#[test]
fn clusters_of_the_shared_database_are_listed() {
    let mut table = MemoryLedger::new();
    table.others.push(KnownCluster {
        name: "beta".to_owned(),
        addresses: vec!["ctl2".to_owned(), "ctl3".to_owned()],
        port: 6817,
        ..KnownCluster::default()
    });
    let show = "sacctmgr -nP show cluster format=cluster,controlhost,controlport";
    let expected = "beta|ctl2|6817\npeer|127.0.0.1|19400\n[exit 0]\n";
    assert_eq!(answer(&mut table, show), expected);
}

#[test]
fn usage_of_a_qos_is_reset_on_the_cluster_that_is_named() {
    let mut table = with_history();
    let reset = |cluster: &str| format!("sacctmgr -i modify qos high {cluster} set RawUsage=0");
    let got = answer(&mut table, &reset("cluster=peer"));
    assert_eq!(got, "[exit 0]\n");
    let got = answer(&mut table, &reset(""));
    assert!(got.starts_with("No cluster specified"), "{got}");
    let got = answer(&mut table, &reset("cluster=other"));
    assert!(
        got.contains("Usage on cluster other is reset there"),
        "{got}"
    );
}

/// sacctmgr(1) lists these names; its own parser has some of them in another form only.
#[test]
fn columns_of_qos_have_all_names_of_the_manual() {
    let mut table = MemoryLedger::new();
    let names = "MaxSubmitJobsPA,MaxSubmitJobsPU,MaxTRESPJ,MaxSubmitJobsPerAccount,MaxSubmitJobsPerUser,MaxTRESPerJob";
    let said = answer(&mut table, &format!("sacctmgr -P show qos format={names}"));
    let header = "MaxSubmitPA|MaxSubmitPU|MaxTRES|MaxSubmitPA|MaxSubmitPU|MaxTRES\n";
    assert!(said.contains(header), "{said}");
}

#[test]
fn what_there_is_no_need_for_is_refused_by_name() {
    let mut table = MemoryLedger::new();
    let said = answer(&mut table, "sacctmgr rollup");
    assert!(
        said.contains("sacctmgr: error: ") && said.contains("[exit 1]"),
        "{said}"
    );
}
