//! pbsnodes: nodes and their states, and taking nodes out of service.

use super::arguments::TorqueLine;
use super::change::{self, ChangeFailure};
use super::{HELP, fail, refusal_text, run_command, text_of, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::node::NodeView;
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_model::command::{NodeUpdate, UserCommand};
use muster_model::hostlist;
use muster_model::node::Node;
use std::fmt::Write as _;
use std::process::ExitCode;

/// pbsnodes.
pub(crate) static SPEC: Spec = Spec {
    name: "pbsnodes",
    about: "Shows nodes, as Torque's pbsnodes does, and takes them out of service.",
    operands: "[NODE...]",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "-o, -c, -r and -N need an administrator. A NODE may be a list, n[1-4].\n",
};

static OPTIONS: &[Opt] = &[
    flag("a", "all nodes (the default)"),
    flag("c", "put nodes that are offline back into service"),
    flag("d", "diagnostics").refused("scontrol show node says what is known"),
    flag(
        "l",
        "only nodes that are down, offline or unknown; with 'free', 'offline', ... those",
    ),
    flag("m", "power states").refused("use scontrol power"),
    opt("N", "note", "the reason why nodes are offline"),
    flag("n", "with -l: the reasons"),
    flag("o", "take nodes out of service: they start no more jobs"),
    flag("q", "do not say what is wrong with nodes"),
    flag("r", "as -c"),
    opt("s", "server", "another server").refused("the server is that of slurm.conf"),
    flag("x", "as XML").refused("use sinfo --json"),
    HELP[0],
    HELP[1],
];

/// Runs pbsnodes.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, run)
}

/// States that `-l` takes.
const STATES: [&str; 9] = [
    "free",
    "offline",
    "down",
    "reserve",
    "job-exclusive",
    "mixed",
    "busy",
    "unknown",
    "all",
];

fn run(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let changes = [parsed.has("o"), parsed.has("c") || parsed.has("r")];
    if changes == [true, true] {
        return Err(fail("pbsnodes", "-o and -c exclude each other", 2));
    }
    let failed = |e: ConnectError| unreachable("pbsnodes", &e);
    let mut client = Client::connect().map_err(failed)?;
    if changes.contains(&true) || parsed.has("N") {
        return change_nodes(parsed, &mut client, changes[0]);
    }
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    let completing = query::cluster(&mut client, &mut ctx).map_err(failed)?;
    let (wanted, names): (Vec<&String>, Vec<&String>) = parsed
        .operands
        .iter()
        .partition(|word| parsed.has("l") && STATES.contains(&word.as_str()));
    let mut status = ExitCode::SUCCESS;
    let shown = chosen(&ctx.nodes, &names, &mut status, parsed.has("q"))?;
    let mut text = String::new();
    for node in shown {
        let is_reserved = ctx.reserved.get(&node.idx).copied();
        let view = NodeView::new(node, completing.contains(&node.idx), is_reserved);
        let state = state(&view);
        if !parsed.has("l") {
            paragraph(&mut text, &view, state);
        } else if is_listed(state, &wanted) {
            line(&mut text, node, state, parsed.has("n"));
        }
    }
    crate::listing::print(&text);
    Ok(status)
}

fn is_listed(state: &str, wanted: &[&String]) -> bool {
    match wanted.is_empty() {
        true => ["down", "offline", "unknown"].contains(&state),
        false => wanted.iter().any(|own| *own == state || *own == "all"),
    }
}

/// The nodes that are named; all without a name.
fn chosen<'a>(
    nodes: &'a [Node],
    names: &[&String],
    status: &mut ExitCode,
    quiet: bool,
) -> Result<Vec<&'a Node>, ExitCode> {
    if names.is_empty() {
        return Ok(nodes.iter().collect());
    }
    let mut all = Vec::new();
    for word in names {
        for name in of_word(word)? {
            match nodes.iter().find(|node| node.config.name == name) {
                Some(node) => all.push(node),
                None => {
                    *status = ExitCode::FAILURE;
                    if !quiet {
                        fail("pbsnodes", &format!("there is no node '{name}'"), 1);
                    }
                }
            }
        }
    }
    Ok(all)
}

fn of_word(word: &str) -> Result<Vec<String>, ExitCode> {
    hostlist::parse(word).map_err(|e| fail("pbsnodes", &format!("'{word}': {e}"), 2))
}

fn change_nodes(
    parsed: &TorqueLine,
    client: &mut Client,
    offline: bool,
) -> Result<ExitCode, ExitCode> {
    if parsed.operands.is_empty() {
        return Err(fail("pbsnodes", "no node is named", 2));
    }
    let note = parsed.last("N").map(str::to_owned);
    let state = match (offline, parsed.has("c") || parsed.has("r")) {
        (true, _) => Some("DRAIN"),
        (false, true) => Some("RESUME"),
        (false, false) => None,
    };
    let mut status = ExitCode::SUCCESS;
    for word in &parsed.operands {
        let update = NodeUpdate {
            state: state.map(str::to_owned),
            // A node is not drained without a reason.
            reason: match (offline, &note) {
                (true, None) => Some("offline by pbsnodes".to_owned()),
                (_, note) => note.clone(),
            },
            ..NodeUpdate::default()
        };
        let nodes = word.clone();
        let asked = change::send(client, UserCommand::UpdateNodes { nodes, update });
        let why = match asked {
            Ok(()) => continue,
            Err(ChangeFailure::By(refusal)) => refusal_text(&refusal),
            Err(ChangeFailure::Not(error)) => text_of(&error),
        };
        status = fail("pbsnodes", &format!("node {word}: {why}"), 1);
    }
    Ok(status)
}

/// A state in the words of Torque, and of Slurm's pbsnodes for nodes of which a part is free.
fn state(view: &NodeView) -> &'static str {
    let node = view.node;
    let mut text = String::new();
    view.write_state(&mut text);
    let base = text.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    match base {
        _ if node.drain || node.fail => "offline",
        "idle" => "free",
        "allocated" | "completing" => "job-exclusive",
        "mixed" => "mixed",
        "reserved" | "maint" | "planned" => "reserve",
        "unknown" => "unknown",
        _ if node.down => "down",
        _ => "down",
    }
}

fn line(text: &mut String, node: &Node, state: &str, with_note: bool) {
    let _ = write!(text, "{}\t\t{state}", node.config.name);
    if with_note && let Some(reason) = &node.reason {
        let _ = write!(text, "\t\t{}", reason.text);
    }
    text.push('\n');
}

fn paragraph(text: &mut String, view: &NodeView, state: &str) {
    let (node, config) = (view.node, &view.node.config);
    let mut own = String::new();
    view.write_state(&mut own);
    let _ = writeln!(text, "{}", config.name);
    let _ = writeln!(text, "    state = {state}");
    let _ = writeln!(text, "    np = {}", config.cpus);
    if !config.features.is_empty() {
        let _ = writeln!(text, "    properties = {}", config.features.join(","));
    }
    let _ = writeln!(text, "    ntype = cluster");
    let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
    if !jobs.is_empty() {
        let _ = writeln!(text, "    jobs = {}", jobs.join(","));
    }
    let mut status = format!("state={state},slurmstate={own}");
    if let Some(reason) = &node.reason {
        let _ = write!(status, ",message=\"{}\"", reason.text);
    }
    let _ = write!(
        status,
        ",ncpus={},sockets={},cores={},threads={},availmem={}mb",
        config.cpus,
        config.sockets,
        config.cores_per_socket,
        config.threads_per_core,
        config.memory_mib
    );
    if let Some(report) = &node.report {
        let load = f64::from(report.load_centi) / 100.0;
        let os = report.os.to_lowercase();
        let _ = write!(status, ",loadave={load:.2},opsys={os},arch={}", report.arch);
    }
    let _ = writeln!(text, "    status = {status}");
    let mut gres = String::new();
    view.write_gres(&mut gres);
    if !gres.is_empty() && gres != "(null)" {
        let _ = writeln!(text, "    gres = {gres}");
    }
    if let Some(reason) = &node.reason {
        let _ = writeln!(text, "    note = {}", reason.text);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::NodeIdx;
    use muster_model::node::NodeConfig;
    use muster_model::time::Timestamp;

    fn node() -> Node {
        let config = NodeConfig {
            name: "n1".to_owned(),
            cpus: 8,
            sockets: 1,
            cores_per_socket: 8,
            threads_per_core: 1,
            memory_mib: 8_000,
            features: vec!["fat".to_owned()],
            ..NodeConfig::default()
        };
        Node::new(NodeIdx(0), &config, Timestamp(0))
    }

    #[test]
    fn a_paragraph_for_each_node() {
        let node = node();
        let view = NodeView::new(&node, false, None);
        let mut text = String::new();
        paragraph(&mut text, &view, "free");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "n1",
                "    state = free",
                "    np = 8",
                "    properties = fat",
                "    ntype = cluster"
            ]
        );
        assert!(lines[5].contains(",ncpus=8,sockets=1,cores=8,threads=1,availmem=8000mb"));
    }

    #[test]
    fn nodes_out_of_service_are_offline_and_listed() {
        let mut node = node();
        node.drain = true;
        let view = NodeView::new(&node, false, None);
        assert_eq!(state(&view), "offline");
        assert!(is_listed("offline", &[]) && !is_listed("free", &[]));
        let free = "free".to_owned();
        assert!(is_listed("free", &[&free]) && !is_listed("down", &[&free]));
        let mut text = String::new();
        line(&mut text, &node, "offline", true);
        assert_eq!(text, "n1\t\toffline\n");
    }
}
