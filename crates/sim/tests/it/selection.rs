//! Which nodes, CPUs and devices jobs get, beside what Slurm 22.05 gave for the same requests. The tables lie in
//! `selection/`: lines of the configuration, then a request a line, or several that follow each other (` ; `), with what
//! Slurm answered and, where Muster means to be different, what Muster does (docs/compat.md says why).
//! `cargo xtask compare-selection` asks a Slurm on this machine again.

use muster_conf::options::getopt::{self, OperandOrder};
use muster_conf::options::job::{SubmitEnvironment, build};
use muster_conf::options::values::time::Utc;
use muster_conf::options::{ChosenOptions, OptionCommand as Of, Source, table};
use muster_core::state::State;
use muster_model::command::{Command, Identity, NodeCommand, Reply, UserCommand};
use muster_model::hostlist;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Job, NodeShare};
use muster_model::node::NodeInfo;
use muster_model::spec::{JobKind, JobSpec};
use muster_model::time::Timestamp;
use muster_sched::engine::{Engine, Turn};
use std::path::Path;
use std::sync::Arc;

/// What stands between Slurm's answer and Muster's.
const BUT: &str = " | Muster: ";

/// A table taken apart.
struct Table<'a> {
    config: String,
    gres: String,
    /// Requests, and what is expected of Muster.
    rows: Vec<(&'a str, &'a str)>,
}

fn read(text: &str) -> Table<'_> {
    let (mut config, mut gres) = (
        String::from("ClusterName=c\nSlurmctldHost=h\n"),
        String::new(),
    );
    let mut rows = Vec::new();
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        if let Some(line) = line.strip_prefix("slurm.conf: ") {
            config.extend([line, "\n"]);
        } else if let Some(line) = line.strip_prefix("gres.conf: ") {
            gres.extend([line, "\n"]);
        } else {
            let (request, answer) = line.split_once(" = ").expect(line);
            let of_muster = answer.split_once(BUT).map_or(answer, |(_, muster)| muster);
            rows.push((request, of_muster));
        }
    }
    Table { config, gres, rows }
}

struct Cluster {
    engine: Engine,
    now: Timestamp,
}

impl Cluster {
    fn new(table: &Table<'_>) -> Cluster {
        let (config, findings) = muster_conf::load_text(Path::new("slurm.conf"), &table.config);
        assert!(findings.is_empty(), "{findings:?}");
        let read = |_: &Path| Ok(table.gres.as_bytes().to_vec());
        let (gres, findings) = muster_conf::files::load_gres_with(Path::new("gres.conf"), &read);
        assert!(findings.is_empty(), "{findings:?}");
        let config = config.cluster(&gres, &|_| None);
        let infos: Vec<NodeInfo> = (config.nodes.iter())
            .map(|node| NodeInfo {
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                ..NodeInfo::default()
            })
            .collect();
        let now = Timestamp::from_unix_s(1_700_000_000);
        let mut cluster = Cluster {
            engine: Engine::new(State::default()),
            now,
        };
        cluster.decide(&Command::Configure {
            config: Arc::new(config),
            keep: Default::default(),
        });
        for (info, node) in infos.into_iter().zip((0..).map(NodeIdx)) {
            let register = NodeCommand::Register {
                info: Box::new(info),
                present: Vec::new(),
            };
            cluster.decide(&Command::Node(node, register));
        }
        cluster
    }

    fn decide(&mut self, command: &Command) -> Turn {
        let mut turn = Turn::default();
        self.engine.decide(0, command, self.now, &mut turn);
        self.engine.schedule(self.now, &mut turn);
        turn
    }

    fn answer(&mut self, request: &str) -> String {
        let Some(spec) = spec(request) else {
            return "refused".to_owned();
        };
        let who = Identity {
            uid: 1000,
            gid: 1000,
            user: "u".to_owned(),
            group: "u".to_owned(),
            ..Identity::default()
        };
        let submit = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: Vec::new(),
            test_only: false,
        };
        let turn = self.decide(&Command::User(who, submit));
        match turn.replies.first() {
            Some((_, Reply::Submitted { id, .. })) => self.place(*id),
            Some((_, Reply::Refused(_))) => "refused".to_owned(),
            other => panic!("{request}: {other:?}"),
        }
    }

    fn place(&self, id: JobId) -> String {
        let job: &Job = &self.engine.state().jobs[&id];
        let Some(alloc) = &job.alloc else {
            return "waits".to_owned();
        };
        let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
        for share in &alloc.nodes {
            let what = shown(share);
            match groups.last_mut() {
                Some((names, same)) if *same == what => names.push(&share.name),
                _ => groups.push((vec![&share.name], what)),
            }
        }
        let shown = groups
            .iter()
            .map(|(names, what)| format!("{}:{what}", hostlist::compress(names)));
        shown.collect::<Vec<String>>().join(" ")
    }
}

/// CPUs, and devices as `scontrol show job -d` has them.
fn shown(share: &NodeShare) -> String {
    let ranges = |ids: &[u32]| hostlist::ranges(ids).to_string();
    let mut out = ranges(&share.cpus.iter().collect::<Vec<u32>>());
    for (gres, sign) in share
        .gres
        .iter()
        .zip([":"].into_iter().chain(std::iter::repeat(",")))
    {
        let kind = gres
            .kind
            .as_ref()
            .map_or(String::new(), |kind| format!(":{kind}"));
        out += &format!("{sign}{}{kind}:{}", gres.name, gres.ids.len());
        if gres.name == "gpu" {
            out += &format!("(IDX:{})", ranges(&gres.numbers().collect::<Vec<u32>>()));
        }
    }
    out
}

/// The job that sbatch would make of these options; none if it refuses them.
fn spec(options: &str) -> Option<JobSpec> {
    let args: Vec<String> = options
        .split_whitespace()
        .map(|w| w.replace('\'', ""))
        .collect();
    let rows = table().iter().filter(|row| row.commands.has(Of::Sbatch));
    let parsed = getopt::parse(rows, &args, OperandOrder::StopAtWord).ok()?;
    let mut chosen = ChosenOptions::new(Of::Sbatch);
    for (row, value) in parsed.options {
        chosen.give(row, value, Source::CommandLine);
    }
    let ambient = SubmitEnvironment {
        now: || Timestamp::from_unix_s(1_700_000_000),
        zone: &Utc,
    };
    let mut spec = build(&chosen, &ambient).ok()?.spec;
    // No script is needed for this.
    spec.kind = JobKind::Allocation;
    Some(spec)
}

/// Every request meets an empty cluster.
fn check(text: &str) {
    let table = read(text);
    let mut wrong = Vec::new();
    for (request, expected) in &table.rows {
        let mut cluster = Cluster::new(&table);
        let answers: Vec<String> = request.split(" ; ").map(|r| cluster.answer(r)).collect();
        let answer = answers.join(" ; ");
        if answer != *expected {
            wrong.push(format!(
                "{request}\n  expected {expected}\n  got      {answer}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        table.rows.len(),
        wrong.join("\n")
    );
    assert!(table.rows.len() > 20);
}

#[test]
fn cores() {
    check(include_str!("../selection/cores.txt"));
}

#[test]
fn sockets() {
    check(include_str!("../selection/sockets.txt"));
}

#[test]
fn whole_nodes() {
    check(include_str!("../selection/whole_nodes.txt"));
}

#[test]
fn unlike_nodes() {
    check(include_str!("../selection/unlike_nodes.txt"));
}

#[test]
fn gpus() {
    check(include_str!("../selection/gpus.txt"));
}

#[test]
fn one_task_per_core() {
    check(include_str!("../selection/one_task_per_core.txt"));
}

#[test]
fn whole_nodes_memory() {
    check(include_str!("../selection/whole_nodes_memory.txt"));
}

#[test]
fn core_memory() {
    check(include_str!("../selection/core_memory.txt"));
}
